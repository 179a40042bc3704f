/* Records as events of Chrome's trace format. A request is a track of nestable asynchronous events under its id:
 *
 *   request [ queue | prefill [ chunk ... [ first token ] ] | decode [ token ... ] ]
 *
 * and an iteration a slice with its parts on one of two tracks, by turns, because the next one is built before the last
 * one is delivered. Events with the same time keep the file's order, so what encloses is written before what begins
 * with it and after what ends with it. Numbers of 64 bits are strings: readers keep numbers as doubles. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/trace.h"

enum { TRACK_ITERATIONS = 1 /* and 2 */, TRACK_WAITS = 3, TRACKS = 3 };

/* The beginning of an event of a request's track; the caller adds what is left and "}". */
static int open_async(struct buf *out, int pid, const char *phase, const char *name, uint64_t id, uint64_t at_us) {
    return buf_addf(out,
                    ",\n{\"ph\":\"%s\",\"cat\":\"request\",\"id\":\"0x%" PRIx64
                    "\",\"name\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%" PRIu64,
                    phase, id, name, pid, at_us);
}

static int add_async(struct buf *out, int pid, const char *phase, const char *name, uint64_t id, uint64_t at_us) {
    int rc = open_async(out, pid, phase, name, id, at_us);
    return rc ? rc : buf_adds(out, "}");
}

/* Likewise a slice of one of the engine's tracks. */
static int open_slice(struct buf *out, int pid, int track, const char *name, uint64_t begin_us, uint64_t end_us) {
    return buf_addf(out, ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64 ",\"dur\":%" PRIu64,
                    name, pid, track, begin_us, end_us > begin_us ? end_us - begin_us : 0);
}

static int add_slice(struct buf *out, int pid, int track, const char *name, uint64_t begin_us, uint64_t end_us,
                     uint64_t iteration) {
    int rc = open_slice(out, pid, track, name, begin_us, end_us);
    return rc ? rc : buf_addf(out, ",\"args\":{\"iteration\":%" PRIu64 "}}", iteration);
}

static int add_hex(struct buf *out, const char *name, const uint8_t *bytes, size_t n) {
    int any = 0;
    for (size_t i = 0; i < n; i++) any |= bytes[i];
    int rc = any ? buf_addf(out, ",\"%s\":\"", name) : 0;
    for (size_t i = 0; i < n && any && !rc; i++) rc = buf_addf(out, "%02x", bytes[i]);
    return any && !rc ? buf_adds(out, "\"") : rc;
}

static int add_submitted(struct buf *out, int pid, const struct trace_record *r) {
    int rc = open_async(out, pid, "b", "request", r->request, r->begin_us);
    if (!rc)
        rc = buf_addf(out, ",\"args\":{\"prompt_tokens\":%u,\"max_tokens\":%u", r->submitted.prompt_n,
                      r->submitted.max_new);
    if (!rc) rc = add_hex(out, "trace_id", r->submitted.trace_id, sizeof r->submitted.trace_id);
    if (!rc) rc = add_hex(out, "parent_id", r->submitted.parent_id, sizeof r->submitted.parent_id);
    if (!rc) rc = buf_adds(out, "}}");
    return rc ? rc : add_async(out, pid, "b", "queue", r->request, r->begin_us);
}

static int add_admitted(struct buf *out, int pid, const struct trace_record *r) {
    int rc = add_async(out, pid, "e", "queue", r->request, r->begin_us);
    return rc ? rc : add_async(out, pid, "b", "prefill", r->request, r->begin_us);
}

static int add_decodes(struct buf *out, int pid, const struct trace_record *r) {
    int rc = add_async(out, pid, "e", "prefill", r->request, r->begin_us);
    return rc ? rc : add_async(out, pid, "b", "decode", r->request, r->begin_us);
}

/* What the process holds in memory now, which is some time after the record was made; 0: the system does not say. */
static uint64_t resident_bytes(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int add_first_token(struct buf *out, int pid, const struct trace_record *r) {
    int rc = add_async(out, pid, "b", "first token", r->request, r->begin_us);
    if (!rc) rc = open_async(out, pid, "e", "first token", r->request, r->end_us);
    return rc ? rc
              : buf_addf(out,
                         ",\"args\":{\"iteration\":%" PRIu64 ",\"state_pages_used\":%" PRIu64
                         ",\"state_pages\":%" PRIu64 ",\"resident_bytes\":%" PRIu64 "}}",
                         r->step.iteration, r->step.pages_used, r->step.pages_total, resident_bytes());
}

static int add_step(struct buf *out, int pid, const struct trace_record *r) {
    const char *name = r->step.prompt ? "chunk" : "token";
    int rc = open_async(out, pid, "b", name, r->request, r->begin_us);
    if (!rc)
        rc = buf_addf(out, ",\"args\":{\"iteration\":%" PRIu64 ",\"position\":%u,\"tokens\":%u}}", r->step.iteration,
                      r->step.pos, r->step.n_tokens);
    if (!rc && r->step.first_token) rc = add_first_token(out, pid, r);
    if (!rc && r->step.boundary) {
        rc = open_async(out, pid, "n", "snapshot boundary", r->request, r->end_us);
        if (!rc) rc = buf_addf(out, ",\"args\":{\"position\":%u}}", r->step.pos + r->step.n_tokens);
    }
    return rc ? rc : add_async(out, pid, "e", name, r->request, r->end_us);
}

static int add_instant(struct buf *out, int pid, const struct trace_record *r) {
    static const char *const names[] = {[TRACE_PREEMPTED] = "preempted", [TRACE_CANCEL] = "cancel"};
    return add_async(out, pid, "n", names[r->instant.what], r->request, r->begin_us);
}

static int add_finished(struct buf *out, int pid, const struct trace_record *r) {
    static const char *const phases[] = {
        [TRACE_PHASE_QUEUE] = "queue", [TRACE_PHASE_PREFILL] = "prefill", [TRACE_PHASE_DECODE] = "decode"};
    static const char *const reasons[] = {[COHORT_FINISH_STOP] = "stop",
                                          [COHORT_FINISH_LENGTH] = "length",
                                          [COHORT_FINISH_CANCELLED] = "cancelled",
                                          [COHORT_FINISH_ERROR] = "error"};
    const cohort_stats *s = &r->finished.stats;
    int rc = add_async(out, pid, "e", phases[r->finished.phase], r->request, r->begin_us);
    if (!rc) rc = open_async(out, pid, "e", "request", r->request, r->begin_us);
    if (!rc)
        rc = buf_addf(out,
                      ",\"args\":{\"finish\":\"%s\",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"generated_tokens\":%u,"
                      "\"preemptions\":%u,\"redone_tokens\":%u,\"seed\":\"%" PRIu64 "\"",
                      reasons[r->finished.finish], s->prompt_tokens, s->cached_tokens, s->generated_tokens,
                      s->preemptions, s->redone_tokens, s->seed);
    if (!rc && r->finished.code) rc = buf_addf(out, ",\"error\":\"%s\"", cohort_error_name(r->finished.code));
    return rc ? rc : buf_adds(out, "}}");
}

static int add_iteration(struct buf *out, int pid, const struct trace_record *r) {
    uint64_t number = r->iteration.number;
    int track = TRACK_ITERATIONS + (int)(number % 2);
    int rc = open_slice(out, pid, track, "iteration", r->begin_us, r->end_us);
    if (!rc)
        rc = buf_addf(out,
                      ",\"args\":{\"iteration\":%" PRIu64
                      ",\"rows\":%u,\"prompt_tokens\":%u,\"redone_tokens\":%u,\"decode_tokens\":%u}}",
                      number, r->iteration.rows, r->iteration.prompt_tokens, r->iteration.redone_tokens,
                      r->iteration.decode_tokens);
    if (!rc) rc = add_slice(out, pid, track, "build", r->begin_us, r->iteration.launched_us, number);
    if (!rc) rc = add_slice(out, pid, track, "forward", r->iteration.launched_us, r->iteration.done_us, number);
    if (!rc) rc = add_slice(out, pid, track, "deliver", r->iteration.deliver_us, r->end_us, number);
    if (!rc && r->iteration.idle_since_us)
        rc = add_slice(out, pid, TRACK_WAITS, "gap", r->iteration.idle_since_us, r->iteration.launched_us, number);
    return rc;
}

static int add_record(struct buf *out, int pid, const struct trace_record *r) {
    switch (r->kind) {
    case TRACE_SUBMITTED:
        return add_submitted(out, pid, r);
    case TRACE_ADMITTED:
        return add_admitted(out, pid, r);
    case TRACE_STEP:
        return add_step(out, pid, r);
    case TRACE_DECODES:
        return add_decodes(out, pid, r);
    case TRACE_INSTANT:
        return add_instant(out, pid, r);
    case TRACE_FINISHED:
        return add_finished(out, pid, r);
    default:
        return add_iteration(out, pid, r);
    }
}

int trace_json_record(struct buf *out, int pid, const struct trace_record *record) {
    size_t len = out->len;
    int rc = add_record(out, pid, record);
    if (rc) {
        out->len = len;
        if (out->data) out->data[len] = 0;
    }
    return rc;
}

int trace_json_begin(struct buf *out, int pid, uint64_t now_us) {
    static const char *const tracks[TRACKS] = {"iterations, even", "iterations, odd", "compute team waits"};
    int rc = buf_addf(out,
                      "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"ts\":%" PRIu64
                      ",\"args\":{\"name\":\"cohort " COHORT_VERSION "\"}}",
                      pid, now_us);
    for (int i = 0; i < TRACKS && !rc; i++)
        rc =
            buf_addf(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                     pid, TRACK_ITERATIONS + i, tracks[i]);
    return rc;
}

int trace_json_end(struct buf *out) { return buf_adds(out, "\n]\n"); }
