/* A stored call while it runs (stored.h): from the choices' events to notes, turns, numbered events and the end. Loop
 * thread, but for stored_resume. Invariant: events base + 1 .. events_n are in the log, 1 .. events_safe in the
 * journal, and base <= events_safe, so that every event is in one of them. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"
#include "server/notes.h"
#include "server/readers.h"
#include "server/recover.h"
#include "server/stored.h"

enum { QUEUE_KEEP = 64 << 10 };

/* ---- the log ---- */

static size_t end_of(const struct stored *s, uint64_t n) {
    return n <= s->base ? 0 : ((const size_t *)(const void *)s->ends.data)[n - s->base - 1];
}

const char *stored_event(const struct stored *s, uint64_t n, size_t *len) {
    size_t begin = end_of(s, n - 1);
    *len = end_of(s, n) - begin;
    return s->log.data + begin;
}

/* What is on the disk need not be here: readers that are behind read it there. */
static void trim(struct stored *s) {
    if (s->log.len <= STORED_LOG_KEEP || s->events_safe <= s->base) return;
    size_t cut = end_of(s, s->events_safe), n = (size_t)(s->events_safe - s->base);
    size_t *ends = (size_t *)(void *)s->ends.data;
    size_t left = (size_t)(s->events_n - s->events_safe);
    memmove(s->log.data, s->log.data + cut, s->log.len - cut);
    s->log.len -= cut;
    for (size_t i = 0; i < left; i++) ends[i] = ends[i + n] - cut;
    s->ends.len = left * sizeof *ends;
    s->base = s->events_safe;
}

static int no_memory(int code, cohort_error *err) {
    return code == COHORT_E_LIMIT
               ? err_set(err, code, NULL, "the answer is longer than the %d MiB that are kept of one",
                         SERVER_RESULT_BYTES_MAX >> 20)
               : err_set(err, code, NULL, "no memory for the answer");
}

static int differs(cohort_error *err) {
    return err_set(err, COHORT_E_INTERNAL, NULL, "the answer could not be made again as it began");
}

/* An event that was there before the crash: it must be the same one. */
static int compare(struct stored *s, const char *bytes, size_t len, cohort_error *err) {
    s->sum = journal_sum((uint64_t)s->sum, s->events_n, bytes, len);
    if (s->events_n < s->before_n || s->sum == s->before_sum) return 0;
    return differs(err);
}

/* Its further steps are not in the journal: a restart makes them again. The journal says why. */
void stored_lose(struct stored *s) {
    s->server->stored_lost += !s->lost;
    s->lost = 1;
}

static int add_event(struct stored *s, const char *bytes, size_t len, cohort_error *err) {
    if (s->events_n < s->before_n) {
        s->base = s->events_safe = ++s->events_n;
        return compare(s, bytes, len, err);
    }
    size_t end = s->log.len + len;
    int rc = buf_add(&s->ends, &end, sizeof end);
    if (!rc && (rc = buf_add(&s->log, bytes, len)) != 0) s->ends.len -= sizeof end;
    if (rc) return no_memory(rc, err);
    s->events_n++;
    if (!s->lost && journal_event(s->server->journal, s->number, s->events_n, bytes, len) != 0) stored_lose(s);
    trim(s);
    return 0;
}

/* As a dialect writes them: one a line. */
static int add_events(struct stored *s, const struct buf *lines, cohort_error *err) {
    int rc = 0;
    const char *at = lines->data, *end = at + lines->len;
    while (at < end && !rc) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        if (!line) return err_set(err, COHORT_E_INTERNAL, NULL, "an event without an end");
        rc = add_event(s, at, (size_t)(line - at), err);
        at = line + 1;
    }
    return rc;
}

/* ---- from the engine to the lanes ---- */

static int is_too_much(const struct stored *s) { return s->held + s->log.len > SERVER_RESULT_BYTES_MAX; }

/* Its turn has not come for much of what it said. */
static int is_ahead(const struct lane *lane) { return lane->queue.len - lane->at >= STORED_AHEAD; }

/* A token that is known: the engine came to it once more. 1: it is one; a negative code: it is another. */
static int is_known(const struct lane *lane, const cohort_event *event, cohort_error *err) {
    if (event->type != COHORT_EVENT_TOKEN || event->index >= lane->known.len / sizeof(int32_t)) return 0;
    int32_t id = ((const int32_t *)(const void *)lane->known.data)[event->index];
    return id == event->token ? 1 : differs(err);
}

static void write_note(struct stored *s, const char *bytes, size_t len, int urgent) {
    struct journal *journal = s->server->journal;
    if (s->lost) return;
    if (journal_note(journal, s->number, s->notes_n, bytes, len, urgent) != 0) stored_lose(s);
    if (s->tries) journal_tried(journal, s->number, s->tries = 0); /* a step ahead */
}

static int take_note(struct stored *s, struct choice *choice, const cohort_event *event, cohort_error *err) {
    struct lane *lane = &s->lanes[choice->index];
    int rc = is_known(lane, event, err);
    if (rc) return rc < 0 ? rc : 0;
    size_t before = lane->queue.len;
    if (is_too_much(s)) return no_memory(COHORT_E_LIMIT, err);
    rc = note_write(&lane->queue, choice->index, event);
    if (rc) return no_memory(rc, err);
    s->held += lane->queue.len - before;
    s->notes_n++;
    int ends = event->type == COHORT_EVENT_FINISH;
    write_note(s, lane->queue.data + before, lane->queue.len - before, ends);
    if (ends) lane->end_note = s->notes_n;
    if (ends && !s->lost) s->waits_since_s = (int64_t)(clock_us() / 1000000);
    return 0;
}

/* An end that is none of the call's: the engine ends. */
static int is_engine_end(const struct stored *s, const cohort_event *event) {
    if (event->type != COHORT_EVENT_FINISH || !event->error) return 0;
    if (event->finish == COHORT_FINISH_CANCELLED) return 1;
    cohort_metrics m;
    cohort_metrics_get(s->server->engine, &m);
    return !m.healthy;
}

/* 1: the engine has ended. */
static int drain_choice(struct stored *s, struct choice *choice, cohort_error *err) {
    struct lane *lane = &s->lanes[choice->index];
    cohort_event event;
    while (choice->id && !(lane->waits = is_ahead(lane)) &&
           cohort_next(s->server->engine, choice->id, &event) == COHORT_OK) {
        if (event.type != COHORT_EVENT_TOKEN && event.type != COHORT_EVENT_FINISH) continue;
        if (is_engine_end(s, &event)) return 1;
        int rc = take_note(s, choice, &event, err);
        if (rc) return rc;
        if (event.type == COHORT_EVENT_FINISH) call_drop_choice(choice);
    }
    return 0;
}

/* ---- turns ---- */

static size_t bytes_of(const struct choice *whole) {
    return whole->text.len + whole->logprobs.len + whole->top_logprobs.len + whole->offsets.len + whole->tokens.len +
           whole->blocks_bytes;
}

/* `kept`: bytes that the choice itself had kept. */
static int collect(struct stored *s, const struct choice *choice, const cohort_event *event, size_t kept) {
    s->held += bytes_of(choice) - kept;
    if (!s->whole) return is_too_much(s) ? COHORT_E_LIMIT : 0;
    struct choice *whole = &s->whole[choice->index];
    size_t before = bytes_of(whole);
    whole->finish = choice->finish;
    whole->stats = choice->stats;
    whole->stop_token = choice->stop_token;
    whole->stop_index = choice->stop_index;
    whole->said = choice->said;
    int rc = choice->call->dialect->collect(whole, event);
    s->held += bytes_of(whole) - before;
    return rc || !is_too_much(s) ? rc : COHORT_E_LIMIT;
}

/* The call was cancelled; what the engine ends so, with an error, has no note. */
static int is_cut(const cohort_event *event) {
    return event->type == COHORT_EVENT_FINISH && event->finish == COHORT_FINISH_CANCELLED && !event->error;
}

static int take_piece(struct stored *s, struct choice *choice, const cohort_event *event, cohort_error *err) {
    int rc = 0;
    if (is_cut(event)) {
        choice->finished = 1;
        choice->finish = event->finish;
    } else if ((rc = call_take_end(choice, event, err)) != 0) {
        return rc;
    }
    struct buf piece = {0};
    size_t kept = bytes_of(choice);
    rc = parts_read(choice, event);
    if (!rc) rc = s->call->dialect->piece(choice, event, &piece);
    if (!rc) rc = collect(s, choice, event, kept);
    if (rc)
        no_memory(rc, err);
    else
        rc = add_events(s, &piece, err);
    buf_free(&piece);
    return rc;
}

static void step_lane(struct lane *lane, size_t bytes) {
    lane->at += bytes;
    if (lane->at == lane->queue.len) {
        buf_clear(&lane->queue);
        lane->at = 0;
    } else if (lane->at > QUEUE_KEEP && lane->at > lane->queue.len / 2) {
        memmove(lane->queue.data, lane->queue.data + lane->at, lane->queue.len - lane->at);
        lane->queue.len -= lane->at;
        lane->at = 0;
    }
}

/* One event of the choice whose turn it is. 1: there is none yet. */
static int take_turn(struct stored *s, struct choice *choice, cohort_error *err) {
    struct lane *lane = &s->lanes[choice->index];
    cohort_event event;
    uint32_t index;
    if (lane->at == lane->queue.len) return 1;
    const char *note = lane->queue.data + lane->at;
    size_t bytes = note_length(note, lane->queue.len - lane->at);
    int rc = note_read(note, bytes, &index, &event);
    if (rc) return err_set(err, COHORT_E_INTERNAL, NULL, "a note of the journal cannot be read");
    if (event.type == COHORT_EVENT_FINISH && !s->lost && lane->end_note > s->notes_safe) return 1;
    rc = take_piece(s, choice, &event, err);
    step_lane(lane, bytes);
    s->held -= bytes;
    if (choice->finished) {
        s->ended_n++;
        s->waits_since_s = 0;
    }
    return rc;
}

/* ---- the end ---- */

static void end(struct stored *s, int status) {
    struct call *call = s->call;
    s->call = NULL;
    s->state = STORED_ENDED;
    s->status = status;
    s->waits_since_s = 0;
    if (!s->lost && journal_end(s->server->journal, s->number, s->events_n, status, s->result.data, s->result.len) != 0)
        stored_lose(s);
    if (s->lost)
        s->settled = 1;
    else
        s->waits_since_s = (int64_t)(clock_us() / 1000000);
    if (call) {
        call->stored = NULL;
        call_free(call);
    }
    readers_feed(s);
    stored_maybe_free(s);
}

void stored_fail(struct stored *s, const cohort_error *error) {
    cohort_error none = {0};
    struct buf piece = {0};
    const struct error_shape *shape = server_errors_of(s->server, s->id);
    int status = error_status(shape, error);
    buf_clear(&s->result);
    error_json(&s->result, shape, error);
    if (s->recovered) {
        status |= STORED_BROKEN;
        if (s->events_n < s->before_n) s->events_n = s->base = s->events_safe = s->before_n;
    } else {
        s->log.max = 0; /* there is always room for it */
        if (call_failing(s->call, error, &piece) == 0) add_events(s, &piece, &none);
    }
    buf_free(&piece);
    end(s, status);
}

static int whole_body(struct stored *s, struct buf *out) {
    struct call *call = s->call;
    struct choice *choices = call->choices;
    if (call->dialect->keeps) return call->dialect->whole(call, out);
    if (!s->whole) return 0;
    call->choices = s->whole;
    int rc = call->dialect->whole(call, out);
    call->choices = choices;
    return rc;
}

static void finish(struct stored *s) {
    cohort_error error = {0};
    const struct dialect *dialect = s->call->dialect;
    struct buf piece = {0};
    int rc = dialect->close ? dialect->close(s->call, &piece) : 0;
    if (!rc) rc = whole_body(s, &s->result);
    if (rc) no_memory(rc, &error);
    if (!rc) rc = add_events(s, &piece, &error);
    if (!rc && dialect->done) rc = add_event(s, dialect->done, strlen(dialect->done), &error);
    buf_free(&piece);
    if (!rc && s->events_n < s->before_n) rc = differs(&error); /* it ended earlier: compare did not come to the last */
    if (rc)
        stored_fail(s, &error);
    else
        end(s, 200);
}

/* The ends of the choices that have none are made here, behind what they have said, as if the engine had said them:
 * their notes are on the disk before any event that follows from them. 1: there were some. */
static int cut_choices(struct stored *s, cohort_error *err) {
    const cohort_event cut = {
        .type = COHORT_EVENT_FINISH, .finish = COHORT_FINISH_CANCELLED, .text = "", .stop_index = -1};
    int rc = 0, some = 0;
    for (size_t i = 0; i < s->lanes_n && !rc; i++) {
        struct choice *choice = &s->call->choices[i];
        if (choice->finished || s->lanes[i].end_note) continue;
        call_drop_choice(choice);
        s->lanes[i].waits = 0;
        rc = take_note(s, choice, &cut, err);
        some = 1;
    }
    return rc ? rc : some;
}

static int drain_all(struct stored *s, cohort_error *err) {
    int rc = 0;
    for (size_t i = 0; i < s->lanes_n && !rc; i++) rc = drain_choice(s, &s->call->choices[i], err);
    return rc;
}

/* 1: the choice whose turn it is has said nothing yet, or all have ended. */
static int take_turns(struct stored *s, cohort_error *err) {
    int rc = 0;
    while (!rc && s->ended_n < s->lanes_n) {
        struct choice *choice = &s->call->choices[s->turn];
        if (!choice->finished) rc = take_turn(s, choice, err);
        if (!rc) s->turn = (s->turn + 1) % s->lanes_n;
    }
    return rc < 0 ? rc : 1;
}

/* One that was ahead is not any more; nobody but us knows that its events are to be read. */
static int caught_up(const struct stored *s) {
    for (size_t i = 0; i < s->lanes_n; i++)
        if (s->lanes[i].waits && !is_ahead(&s->lanes[i])) return 1;
    return 0;
}

void stored_cancel(struct stored *s) {
    if (s->state == STORED_ENDED) return;
    s->cancelled = 1;
    stored_pump(s);
}

void stored_pump(struct stored *s) {
    cohort_error error = {0};
    int rc, cut = 0;
    if (s->state != STORED_RUNNING) return;
    do {
        rc = drain_all(s, &error);
        if (rc > 0) {
            stored_suspend(s);
            return;
        }
        if (!rc) rc = take_turns(s, &error);
        if (rc < 0) break;
        /* Not before what was told already is known again. */
        cut = s->cancelled && s->events_n >= s->before_n ? cut_choices(s, &error) : 0;
    } while (cut > 0 || (!cut && caught_up(s)));
    if (rc < 0 || cut < 0)
        stored_fail(s, &error);
    else if (s->ended_n == s->lanes_n)
        finish(s);
    else
        readers_feed(s);
}

/* ---- the beginning ---- */

static int make_whole(struct stored *s, cohort_error *err) {
    struct call *call = s->call;
    if (call->params.stream || call->dialect->keeps) return 0;
    s->whole = mem_zalloc(call->choices_n, sizeof *s->whole);
    if (!s->whole) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu choices", call->choices_n);
    for (size_t i = 0; i < call->choices_n; i++) {
        struct choice *whole = &s->whole[i];
        whole->call = call;
        whole->index = (uint32_t)i;
        whole->text.max = whole->logprobs.max = SERVER_RESULT_BYTES_MAX;
        whole->tokens.max = whole->offsets.max = whole->top_logprobs.max = SERVER_RESULT_BYTES_MAX;
    }
    return 0;
}

void stored_run(struct stored *s) {
    struct call *call = s->call;
    cohort_error error = {0};
    s->state = STORED_RUNNING;
    int rc = make_whole(s, &error);
    struct buf piece = {0};
    if (!rc) rc = call_opening(call, &piece);
    if (!rc) rc = add_events(s, &piece, &error);
    buf_free(&piece);
    if (rc && !error.code) no_memory(rc, &error);
    if (rc && s->recovered)
        recover_submitted(s, &error);
    else if (rc)
        stored_fail(s, &error);
    else
        stored_pump(s);
}

/* All but the last known token: if that one ended the choice, it does so again. */
int stored_resume(struct stored *s, const struct choice *choice, cohort_request *request, cohort_error *err) {
    struct lane *lane = &s->lanes[choice->index];
    size_t known = lane->known.len / sizeof(int32_t), n = 0;
    if (known < 2) return 0;
    lane->resume = mem_zalloc(known, sizeof *lane->resume);
    if (!lane->resume) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu tokens", known);
    for (size_t at = 0, bytes; n + 1 < known && at < lane->queue.len; at += bytes) {
        cohort_event event;
        uint32_t index;
        bytes = note_length(lane->queue.data + at, lane->queue.len - at);
        if (note_read(lane->queue.data + at, bytes, &index, &event) != 0) break;
        if (event.type == COHORT_EVENT_TOKEN)
            lane->resume[n++] = (cohort_saved_token){.token = event.token,
                                                     .logprob = event.logprob,
                                                     .sampler_state = event.sampler_state,
                                                     .top_n = event.top_n,
                                                     .top = event.top};
    }
    request->resume = lane->resume;
    request->resume_n = n;
    return 0;
}
