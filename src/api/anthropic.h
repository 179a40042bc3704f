/* What Anthropic's endpoints share. Loop thread. */
#ifndef API_ANTHROPIC_H
#define API_ANTHROPIC_H

#include <jansson.h>

#include "api/asked.h"
#include "base/buf.h"
#include "server/call.h"
#include "server/http.h"

/* {"type":"error","error":{"type","message"},"request_id"}. 529 "overloaded_error" where the server itself has no room
 * for more; a key that has used up what it may is still a 429 "rate_limit_error". */
extern const struct error_shape error_shape_anthropic;

/* ---- bodies: pure ---- */

/* The chat of a body's `system` and `messages`, as OpenAI's messages: *out is owned by the caller. `prefill`: its last
 * message is the beginning of the answer. */
int anthropic_chat(const json_t *body, json_t **out, int *prefill, cohort_error *err);
/* All that a body asks of its chat: also tools, thinking, the output's form. asked_free. */
int anthropic_ask(const json_t *body, struct asked *out, cohort_error *err);
/* `cache_control` is none, or one that is known; it changes nothing. */
int anthropic_cache_control(const json_t *block, const char *place, cohort_error *err);

/* ---- replies: parts of dialect_messages ---- */

/* What a call keeps of its body, and how far its stream is. */
struct message {
    struct buf texts; /* the stop strings, which stop_sequence names */
    size_t begin[COHORT_STOPS_MAX + 1];
    int hides_thinking;    /* blocks of thinking come without what was thought */
    cohort_part_type open; /* the block that is open: TEXT, REASONING or CALL; 0: none */
    uint32_t blocks;       /* begun */
};

int messages_open(struct call *call, struct buf *out);
int messages_piece(struct choice *choice, const cohort_event *event, struct buf *out);
int messages_close(struct call *call, struct buf *out);
int messages_whole(struct call *call, struct buf *out);

#endif
