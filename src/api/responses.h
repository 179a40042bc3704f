/* What the files of /v1/responses share. Loop thread, but for the pure ones, which helpers use, too. */
#ifndef API_RESPONSES_H
#define API_RESPONSES_H

#include <event2/http.h>
#include <jansson.h>

#include "api/asked.h"
#include "base/buf.h"
#include "cohort/cohort.h"
#include "server/call.h"

#define RESPONSES_PREFIX "resp_"

/* ---- items: pure ---- */

enum { RESPONSES_ITEMS_MAX = 4096 };

/* The chat that a body asks to go on with, as OpenAI's chat messages: its instructions, then its input. Owned by the
 * caller. Refuses what cannot be told to a model, with its place. `joins`: the input stands behind a conversation that
 * is not at hand, in which calls may be that it has the outputs of. */
int responses_chat(const json_t *body, int joins, json_t **out, cohort_error *err);
/* All that a body asks of its chat: also tools, the text's form, reasoning. asked_free. */
int responses_ask(const json_t *body, int joins, struct asked *out, cohort_error *err);
extern const struct asked_names responses_names;
/* The items of an input, which may be a string, behind those of the array `out`. */
int responses_add_items(json_t *out, const json_t *input, cohort_error *err);
/* Puts in front of the body's input the conversation of an earlier response: the items of its body, and those of its
 * object's output. */
int responses_continue(json_t *body, const json_t *earlier_body, const json_t *earlier_object, cohort_error *err);
/* What ids of such an item begin with. */
const char *responses_item_prefix(const json_t *item);
/* The item as a list of items tells it. */
int responses_list_item(struct buf *out, const char *id, const json_t *item);

/* ---- the object: pure ---- */

struct response_view {
    const char *id, *model, *status;
    int64_t created;
    const char *echo;          /* of responses_echo */
    const char *failure;       /* JSON of "error"; NULL: null */
    const char *cut;           /* why it is incomplete; NULL: it is not */
    const char *output;        /* JSON of its items, with commas between them; NULL: none */
    const cohort_stats *stats; /* NULL: not known */
};
int responses_object(struct buf *out, const struct response_view *view);
/* What the object repeats of its request: members, without what is around them. */
int responses_echo(struct buf *out, const json_t *body, int stored);
/* "error" for a failure of this status. */
int responses_failure(struct buf *out, int status, const char *message);

/* ---- replies: parts of dialect_responses ---- */

/* What a call keeps of its body, and how far its stream is. */
struct response {
    struct buf echo;
    uint64_t events; /* so far: the next one's sequence_number */
    int background;
    int summarises;        /* reasoning is told as its summary, too */
    cohort_part_type open; /* the item that is open: TEXT, REASONING or CALL; 0: none */
    uint32_t item, items;  /* its index; begun */
    cohort_part_type last; /* the last part that came; 0: none */
    struct buf begins;     /* size_t: where the log-probabilities of each item begin in the choice's */
    struct buf waiting;    /* those of tokens whose text is not certain yet */
};

/* {"type":...,"sequence_number":N without the end. */
int responses_begin_event(struct call *call, const char *type, struct buf *out);
int responses_start_text(struct choice *choice, struct buf *out); /* a message begins */
int responses_piece(struct choice *choice, const cohort_event *event, struct buf *out);
int responses_collect(struct choice *choice, const cohort_event *event);
/* The items of an answer that has ended, with commas between them. */
int responses_add_output(const struct choice *choice, struct buf *out);

/* ---- fields: pure, but for the header that names unknown ones (`http` NULL: none) ---- */

int responses_check_known(struct evhttp_request *http, const json_t *body, cohort_error *err);
/* Fields that are taken as long as they ask for nothing. */
int responses_check_neutral(const json_t *body, cohort_error *err);

#endif
