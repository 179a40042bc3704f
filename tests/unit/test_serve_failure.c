/* Pain 12: `cohort serve` with an engine that cannot go on. The whole command runs in a child, on the backend that can
 * be told to fail (fake_backend.h): what is pending is answered, health turns red, and the program ends by itself. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "cli/cli.h"
#include "engine_run.h"
#include "fake_backend.h"

enum { CLIENTS = 3, REPLY_MAX = 8192 };

static char lines[REPLY_MAX]; /* what the child said */
static size_t lines_n;

static void model_path(char path[4096]) {
    const char *set = getenv("COHORT_VECTORS");
    snprintf(path, 4096, "%s/gemma3/model.gguf", set && *set ? set : COHORT_SOURCE_DIR "/../shared/vectors");
}

/* The child: one row, and nothing ever comes back from the backend. */
static void serve(const char *model, int out) {
    char *words[] = {"-m", (char *)(uintptr_t)model, "--port", "0", "-np", "1", "-c", "256", "--queue", "8"};
    struct cli_options options;
    const struct cli_command *command = cli_commands;
    dup2(out, STDERR_FILENO);
    fake_backend.delay_us = 1000000; /* the clients all come before the first iteration ends */
    fake_backend.break_wait = 1;
    while (strcmp(command->name, "serve") != 0) command++;
    if (cli_parse((int)(sizeof(words) / sizeof(words[0])), words, command, &options) != 0) _exit(99);
    _exit(command->run(&options));
}

/* Reads what the child says until it contains `what`, or ends (NULL). */
static const char *read_until(int fd, const char *what) {
    for (;;) {
        const char *found = what ? strstr(lines, what) : NULL;
        if (found && strchr(found, '\n')) return found;
        assert_true(lines_n + 1 < sizeof(lines));
        ssize_t n = read(fd, lines + lines_n, sizeof(lines) - 1 - lines_n);
        if (n <= 0) return found;
        lines_n += (size_t)n;
        lines[lines_n] = 0;
    }
}

static int ask(uint16_t port, const char *request) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(s);
        return -1;
    }
    assert_int_equal(write(s, request, strlen(request)), strlen(request));
    return s;
}

static void read_reply(int s, char reply[REPLY_MAX]) {
    size_t n = 0;
    ssize_t got;
    while (n + 1 < REPLY_MAX && (got = read(s, reply + n, REPLY_MAX - 1 - n)) > 0) n += (size_t)got;
    reply[n] = 0;
    close(s);
}

static int post(uint16_t port, int streamed) {
    char request[512], body[160];
    snprintf(body, sizeof(body), "{\"prompt\":[5,6,7],\"max_tokens\":9,\"stream\":%s}", streamed ? "true" : "false");
    snprintf(request, sizeof(request),
             "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    return ask(port, request);
}

static void pain12_a_server_whose_engine_failed_ends(void **state) {
    char path[4096], reply[REPLY_MAX];
    model_path(path);
    if (access(path, R_OK) != 0) skip();
    int out[2], clients[CLIENTS];
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(out[0]);
        alarm(60);
        serve(path, out[1]);
    }
    close(out[1]);
    const char *where = read_until(out[0], "listening on http://127.0.0.1:");
    assert_non_null(where);
    uint16_t port = (uint16_t)atoi(strrchr(where, ':') + 1);
    for (int i = 0; i < CLIENTS; i++) clients[i] = post(port, i % 2 == 0); /* one runs, the others wait */
    for (int i = 0; i < CLIENTS; i++) {
        read_reply(clients[i], reply);
        assert_non_null(strstr(reply, i % 2 == 0 ? "HTTP/1.1 200" : "HTTP/1.1 500"));
        assert_non_null(strstr(reply, "\"error\":"));
        assert_non_null(strstr(reply, "the backend failed"));
    }
    /* Until it ends it says what it is. */
    read_reply(ask(port, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), reply);
    assert_non_null(strstr(reply, "HTTP/1.1 503"));
    read_reply(post(port, 0), reply);
    assert_non_null(strstr(reply, "HTTP/1.1 503"));
    assert_non_null(strstr(reply, "stopped"));
    size_t before = lines_n;
    read_until(out[0], NULL);
    close(out[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    const char *last = lines + before;
    assert_int_equal(strncmp(last, "cohort: ", 8), 0);
    assert_non_null(strstr(last, "the backend failed"));
    assert_ptr_equal(strchr(last, '\n'), lines + lines_n - 1); /* one line */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pain12_a_server_whose_engine_failed_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
