/* A trace file in Chrome's JSON array format: who has something to tell puts a record of fixed size into a bounded
 * buffer, and a thread of the trace's own turns records into text and writes them. Nobody waits for the disk: a record
 * that finds the buffer full is dropped and counted.
 *
 * Any thread may push; open and close belong to the engine's opener. What the records mean is in spans.c, how they look
 * in trace_json.c. */
#ifndef ENGINE_TRACE_H
#define ENGINE_TRACE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    TRACE_RECORDS = 16384, /* that wait for the writer; as many again are being written */
    TRACE_LINGER_MS = 100  /* how long the writer lets them gather, unless half of the buffer fills before */
};
#define TRACE_BYTES_MAX (UINT64_C(1) << 30) /* of the file: tracing ends behind it */

enum trace_kind {
    TRACE_SUBMITTED, /* the request's span begins, and its time in the line */
    TRACE_ADMITTED,  /* the line ends, prefill begins */
    TRACE_STEP,      /* the row's part of an iteration */
    TRACE_DECODES,   /* prefill ends, decode begins */
    TRACE_INSTANT,   /* something happened to the row */
    TRACE_FINISHED,  /* the phase and the request end */
    TRACE_ITERATION  /* one iteration with its parts */
};

enum trace_phase { TRACE_PHASE_QUEUE, TRACE_PHASE_PREFILL, TRACE_PHASE_DECODE };
enum trace_instant { TRACE_PREEMPTED, TRACE_CANCEL };

struct trace_record {
    uint8_t kind;
    uint64_t request;          /* the id; 0 for an iteration */
    uint64_t begin_us, end_us; /* end: of STEP and ITERATION */
    union {
        struct {
            uint8_t trace_id[16], parent_id[8]; /* all 0: none */
            uint32_t prompt_n, max_new;
        } submitted;
        struct {
            uint64_t iteration;
            uint32_t pos, n_tokens;
            uint8_t prompt;                   /* reads known tokens; else decodes */
            uint8_t boundary;                 /* ends at a snapshot boundary */
            uint8_t first_token;              /* makes the request's first one: with the figures below */
            uint64_t pages_used, pages_total; /* of state */
        } step;
        struct {
            uint8_t what;
        } instant;
        struct {
            uint8_t phase, finish;
            int code;
            cohort_stats stats;
        } finished;
        struct {
            uint64_t number;
            uint64_t idle_since_us; /* the team had nothing to do from then to the launch; 0: the engine slept before */
            uint64_t launched_us, done_us, deliver_us; /* end_us: delivered */
            uint32_t rows, prompt_tokens, redone_tokens, decode_tokens;
        } iteration;
    };
};

struct trace;

/* Creates the file, readable by its owner only, and starts the writer. E_IO naming trace_path. `path` is copied. */
int trace_open(const char *path, uint64_t bytes_max, struct trace **out, cohort_error *err);
/* Writes what is there, ends the array and closes. NULL is allowed. */
void trace_close(struct trace *t);
const char *trace_path(const struct trace *t);
void trace_push(struct trace *t, const struct trace_record *record);
uint64_t trace_dropped(struct trace *t); /* 0 for NULL */

/* trace_json.c: pure but for the memory figure. Each appends whole events, and on failure leaves `out` as it was. */
int trace_json_begin(struct buf *out, int pid, uint64_t now_us); /* "[" and the names of process and tracks */
int trace_json_record(struct buf *out, int pid, const struct trace_record *record);
int trace_json_end(struct buf *out);

#endif
