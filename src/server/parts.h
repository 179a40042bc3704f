/* What an answer says, in parts: text, reasoning and calls of tools, read from the text of its events. One path for all
 * answers: what has no reader is text. Streams tell the parts of each event, other replies the blocks that these make
 * when they are joined. Loop thread, but for parts_open. */
#ifndef SERVER_PARTS_H
#define SERVER_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cohort/cohort.h"

struct call;
struct choice;

enum { PARTS_ID_SIZE = 64 };

/* The parts of the event at hand: neighbours of one kind are one part. */
struct parts {
    cohort_part *list; /* their bytes stay until the call's next event */
    size_t n, cap;
    struct buf bytes;
};

/* What a choice has said so far. */
struct said {
    cohort_part_type last; /* kind of the last part; 0: nothing came */
    uint32_t calls;        /* begun; */
    uint32_t whole;        /* and whole */
    int reasoned;          /* some of it was reasoning */
};

/* What a reply that is not streamed tells as one: a text, reasoning, or a call. In their order. */
struct block {
    cohort_part_type type;  /* TEXT, REASONING or CALL */
    uint32_t call;          /* its number among the calls */
    int whole;              /* CALL: it was not cut off */
    struct buf name, bytes; /* CALL: the tool's name and its arguments; else the text */
};

/* Before a choice's first event: how its answer is read. On a helper. */
int parts_open(struct choice *choice, const cohort_prompt *prompt, cohort_error *err);
/* Reads what the event brings into call->parts and choice->said. 0 or a code. */
int parts_read(struct choice *choice, const cohort_event *event);
/* Adds call->parts to the choice's blocks. */
int parts_collect(struct choice *choice);
/* The id of a choice's call `number`: it follows from the call's own id, so that it is the same when a stored call is
 * made again. Letters, digits and "_". */
void parts_call_id(const struct choice *choice, const char *prefix, uint32_t number, char out[PARTS_ID_SIZE]);
void parts_free(struct parts *parts);
/* Frees the reader and the blocks. */
void parts_close(struct choice *choice);

#endif
