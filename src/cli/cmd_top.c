/* `cohort top`: what a running server does, read from its /metrics and drawn once an interval. The event loop runs on
 * the main thread; the terminal is put back on every way out of it.
 *
 * Before the first reading a failure ends the program, for it is most likely a mistake in the options. Afterwards it is
 * shown, and the server is asked again until it is back. */
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/top_client.h"
#include "cli/top_sample.h"
#include "cli/top_terminal.h"
#include "cli/top_view.h"

enum { HISTORY = 11 /* readings: quantiles are of the last ten intervals */, TROUBLE_MAX = 256 };

struct top {
    int once, failed;
    double interval_s;
    struct event_base *base;
    struct top_client *client;
    struct event *tick, *keys;
    struct top_sample history[HISTORY]; /* a ring: the newest at (first + n - 1) % HISTORY */
    unsigned first, n;
    int read_ever;
    char trouble[TROUBLE_MAX]; /* "": the last question was answered */
};

static double now_s(void) { return (double)clock_us() * 1e-6; }

static struct top_sample *reading(struct top *top, unsigned i) { return &top->history[(top->first + i) % HISTORY]; }

static int picture(struct top *top, struct buf *out) {
    struct top_view view = {.url = top_client_url(top->client), .trouble = top->trouble[0] ? top->trouble : NULL};
    if (top->n > 0) {
        view.now = reading(top, top->n - 1);
        view.silent_s = now_s() - view.now->at_s;
    }
    if (top->n > 1) {
        view.last = reading(top, top->n - 2);
        view.older = reading(top, 0);
    }
    return top_view(&view, out);
}

static void show(struct top *top) {
    struct buf lines = {0};
    if (picture(top, &lines) == 0 && lines.len) {
        if (top->once)
            fputs(lines.data, stdout);
        else
            top_terminal_draw(lines.data);
    }
    buf_free(&lines);
}

static void end_failed(struct top *top, const char *why) {
    top_terminal_leave();
    top->failed = cli_failf("%s: %s", top_client_url(top->client), why);
    event_base_loopbreak(top->base);
}

static void note_trouble(struct top *top, enum top_outcome outcome, const char *why) {
    if (top->once || (outcome == TOP_FAILED && !top->read_ever)) {
        end_failed(top, why);
        return;
    }
    snprintf(top->trouble, sizeof top->trouble, "%s", why);
    show(top);
}

/* Readings of another run of the server say nothing beside this one's. */
static void keep(struct top *top, const struct top_sample *sample) {
    if (top->n > 0 && top_restarted(reading(top, top->n - 1), sample)) top->n = 0;
    if (top->n == HISTORY)
        top->first = (top->first + 1) % HISTORY;
    else
        top->n++;
    *reading(top, top->n - 1) = *sample;
    top->read_ever = 1;
    top->trouble[0] = 0;
}

static void on_answer(void *user, enum top_outcome outcome, const char *text, size_t len) {
    struct top *top = user;
    static struct top_sample sample; /* some ten KiB */
    if (outcome != TOP_ANSWERED) {
        note_trouble(top, outcome, text);
    } else if (top_read(text, len, now_s(), &sample) != 0) {
        note_trouble(top, TOP_FAILED, "this is not a cohort server: what it calls /metrics is not one's");
    } else {
        keep(top, &sample);
        if (!top->once || top->n > 1) show(top);
        if (top->once && top->n > 1) event_base_loopbreak(top->base);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *argument) {
    (void)fd;
    (void)what;
    top_client_ask(((struct top *)argument)->client);
}

static void on_end(evutil_socket_t number, short what, void *argument) {
    (void)number;
    (void)what;
    event_base_loopbreak(((struct top *)argument)->base);
}

static void on_resize(evutil_socket_t number, short what, void *argument) {
    (void)number;
    (void)what;
    show(argument);
}

/* Stopped from the keyboard: the shell gets its screen back, and we ours when we go on. */
static void on_stop(evutil_socket_t number, short what, void *argument) {
    (void)number;
    (void)what;
    top_terminal_leave();
    raise(SIGSTOP);
    top_terminal_enter();
    show(argument);
}

static void on_key(evutil_socket_t fd, short what, void *argument) {
    (void)what;
    struct top *top = argument;
    char keys[64];
    ssize_t n = read(fd, keys, sizeof keys);
    if (n <= 0) event_del(top->keys);
    if (n > 0 && memchr(keys, 'q', (size_t)n)) event_base_loopbreak(top->base);
}

static struct timeval interval_of(const struct top *top) {
    time_t seconds = (time_t)top->interval_s;
    return (struct timeval){seconds, (suseconds_t)((top->interval_s - (double)seconds) * 1e6)};
}

enum { SIGNALS = 4 };

static int watch(struct top *top, struct event *signals[SIGNALS]) {
    static const struct {
        int number;
        event_callback_fn act;
    } acts[SIGNALS] = {{SIGINT, on_end}, {SIGTERM, on_end}, {SIGWINCH, on_resize}, {SIGTSTP, on_stop}};
    for (int i = 0; i < (top->once ? 2 : SIGNALS); i++) {
        signals[i] = evsignal_new(top->base, acts[i].number, acts[i].act, top);
        if (!signals[i] || event_add(signals[i], NULL) != 0) return -1;
    }
    if (!top->once && isatty(STDIN_FILENO)) {
        top->keys = event_new(top->base, STDIN_FILENO, EV_READ | EV_PERSIST, on_key, top);
        if (!top->keys || event_add(top->keys, NULL) != 0) return -1;
    }
    struct timeval interval = interval_of(top);
    top->tick = event_new(top->base, -1, EV_PERSIST, on_tick, top);
    return top->tick ? event_add(top->tick, &interval) : -1;
}

static int run(struct top *top) {
    struct event *signals[SIGNALS] = {NULL};
    int rc = watch(top, signals);
    if (rc) {
        rc = cli_failf("cannot set up the event loop");
    } else {
        if (!top->once) {
            top_terminal_enter();
            show(top);
        }
        top_client_ask(top->client);
        if (!event_base_got_break(top->base)) event_base_dispatch(top->base);
        top_terminal_leave();
        rc = top->failed;
    }
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i]) event_free(signals[i]);
    if (top->keys) event_free(top->keys);
    if (top->tick) event_free(top->tick);
    return rc;
}

int cmd_top(const struct cli_options *options) {
    if (!options->once && !isatty(STDOUT_FILENO))
        return cli_failf("standard output is not a terminal: --once prints one picture");
    struct top *top = calloc(1, sizeof *top);
    if (!top) return cli_failf("out of memory");
    signal(SIGPIPE, SIG_IGN);
    top->once = options->once;
    top->interval_s = options->interval;
    top->base = event_base_new();
    if (top->base)
        top->client =
            top_client_new(top->base, options->host, (uint16_t)options->port, options->api_key, on_answer, top);
    int rc = top->client ? run(top) : cli_failf("out of memory");
    top_client_free(top->client);
    if (top->base) event_base_free(top->base);
    free(top);
    return rc;
}
