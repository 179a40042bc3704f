/* What the files of /v1/responses share. Loop thread, but for the pure ones, which helpers use, too. */
#ifndef API_RESPONSES_H
#define API_RESPONSES_H

#include <event2/http.h>
#include <jansson.h>

#include "base/buf.h"
#include "cohort/cohort.h"

#define RESPONSES_PREFIX "resp_"

/* ---- items: pure ---- */

enum { RESPONSES_ITEMS_MAX = 4096 };

/* The chat that a body asks to go on with, as OpenAI's chat messages: its instructions, then its input. Owned by the
 * caller. Refuses what is no text, with its place. */
int responses_chat(const json_t *body, json_t **out, cohort_error *err);
/* The items of an input, which may be a string, behind those of the array `out`. */
int responses_add_items(json_t *out, const json_t *input, cohort_error *err);
/* Puts in front of the body's input the conversation of an earlier response: the items of its body, and those of its
 * object's output. */
int responses_continue(json_t *body, const json_t *earlier_body, const json_t *earlier_object, cohort_error *err);
/* The item as a list of items tells it. */
int responses_list_item(struct buf *out, const char *id, const json_t *item);

/* ---- the object: pure ---- */

struct response_view {
    const char *id, *model, *status;
    int64_t created;
    const char *echo;    /* of responses_echo */
    const char *failure; /* JSON of "error"; NULL: null */
    const char *cut;     /* why it is incomplete; NULL: it is not */
    int has_output;      /* else there is none */
    const struct buf *text, *logprobs;
    const cohort_stats *stats; /* NULL: not known */
};
int responses_object(struct buf *out, const struct response_view *view);
/* {"id":...,"type":"message",...}; `text` NULL: nothing has been said. */
int responses_output_item(struct buf *out, const char *id, const char *status, const struct buf *text,
                          const struct buf *logprobs);
/* {"type":"output_text",...} */
int responses_output_part(struct buf *out, const struct buf *text, const struct buf *logprobs);
/* What the object repeats of its request: members, without what is around them. */
int responses_echo(struct buf *out, const json_t *body, int stored);
/* "error" for a failure of this status. */
int responses_failure(struct buf *out, int status, const char *message);

/* ---- fields: pure, but for the header that names unknown ones (`http` NULL: none) ---- */

int responses_check_known(struct evhttp_request *http, const json_t *body, cohort_error *err);
/* Fields that are taken as long as they ask for nothing. */
int responses_check_neutral(const json_t *body, cohort_error *err);

#endif
