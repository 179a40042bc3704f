/* What OpenAI's generating endpoints share. Loop thread, but for openai_prepare. */
#ifndef API_OPENAI_H
#define API_OPENAI_H

#include "base/buf.h"
#include "server/call.h"
#include "server/fields.h"

enum { OPENAI_REPLY_BYTES_MAX = 256 << 20 /* of all choices of a reply that is not streamed */ };

/* Of one choice, beside what the call keeps of it. */
struct openai_choice {
    struct buf ids;    /* of a reply that is not streamed: generated token ids, written */
    struct buf prompt; /* what the model said of the prompt's tokens, written (prompt_logprobs) */
    size_t echo_at;    /* bytes of the echoed text whose tokens have their columns */
    double logprobs;   /* sum over the tokens of the answer */
    uint32_t tokens;
    cohort_part_type last; /* of what has been told of a chat's answer; 0: nothing yet */
    int begun;             /* the echo stands in its text */
};

/* call->own of both endpoints. */
struct openai {
    int echo;           /* completions: the prompt stands in front of the answer */
    int logprobs;       /* those that are told: -1: none, else the n best */
    int prompt_top;     /* the same of the prompt (prompt_logprobs) */
    int ids;            /* token ids are told */
    int usage_so_far;   /* every event of a stream tells usage */
    int add_begin;      /* a text prompt gets the begin token */
    int legacy;         /* chats: calls are told as `function_call` */
    int tools;          /* chats: there may be calls, and a content without text is null */
    int hide_reasoning; /* chats: what was reasoned is not told */
    struct buf *echoes; /* texts of the prompts, prompts_n of them, if they are echoed */
    size_t echoes_n;
    struct openai_choice *choices;
    size_t choices_n;
    size_t held; /* bytes of all that a reply that is not streamed collects */
};

/* The fields that both have: a code, or call->own is there and the common ones are read. n_predict (-1: no limit)
 * counts if neither max_tokens nor max_completion_tokens is there. */
int openai_parse(struct call *call, const json_t *body, const struct known_field *fields, size_t n, cohort_error *err);
/* Once params and prompts are known: what goes together and what does not, and a place for each choice. */
int openai_settle(struct call *call, cohort_error *err);
int openai_prepare(struct call *call, cohort_error *err);
void openai_forget(struct call *call);
static inline struct openai *openai_of(const struct call *call) { return call->own; }
static inline struct openai_choice *openai_choice_of(const struct choice *choice) {
    return &openai_of(choice->call)->choices[choice->index];
}
static inline const struct prompt *openai_prompt_of(const struct choice *choice) {
    return &choice->call->prompts[choice->index / choice->call->params.tries];
}

const char *openai_finish_name(cohort_finish finish);
/* "usage":{...} of all choices together. */
int openai_add_usage(const struct call *call, struct buf *out);
/* ,"usage":... of a stream's event, if the stream tells any: of the choice as far as `event` (NULL: its opening). */
int openai_add_usage_so_far(const struct choice *choice, const cohort_event *event, struct buf *out);
/* {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":... without the end. */
int openai_add_head(const struct call *call, struct buf *out, const char *object);
/* ,"prompt_token_ids":[...] of the choice's prompt, if ids are told. */
int openai_add_prompt_ids(const struct choice *choice, struct buf *out);
/* ,"token_ids":[...]: of the event (a stream's), or collected ones (NULL). */
int openai_add_ids(const struct choice *choice, const cohort_event *event, struct buf *out);
/* Collects what an event brings, by `take`, with a limit for the whole reply: COHORT_E_LIMIT. */
int openai_collect(struct choice *choice, const cohort_event *event,
                   int (*take)(struct choice *choice, const cohort_event *event));
/* Takes in what a token brings beside text: its id and its log-probability. */
int openai_count(struct choice *choice, const cohort_event *event);
/* What the model said of the prompt, in vLLM's words: one position, and all of them. */
int openai_prompt_logprob(struct choice *choice, const cohort_event *event);
int openai_add_prompt_logprobs(const struct choice *choice, struct buf *out);
/* JSON has no infinities; a probability of zero is written as OpenAI writes it. */
double openai_logprob(float logprob);
/* A token's own bytes. */
void openai_piece_of(const struct call *call, int32_t id, const char **bytes, size_t *len);
/* {"token","logprob","bytes","top_logprobs":[...]}: a token of a chat. */
int openai_add_logprob(const struct call *call, const cohort_event *event, uint32_t most, struct buf *out);
/* The event that tells usage, for a stream that asked for it. */
int openai_usage_event(struct call *call, struct buf *out, const char *object);
/* Names of fields: refuses what cannot be done, tells what is not known in a header. */
int openai_check_known(struct call *call, const json_t *body, const struct known_field *fields, size_t n,
                       cohort_error *err);

#endif
