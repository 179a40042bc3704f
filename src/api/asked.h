/* What a body of /v1/messages or /v1/responses asks of a chat, brought into OpenAI's shapes, which the renderer takes.
 * Pure. */
#ifndef API_ASKED_H
#define API_ASKED_H

#include <jansson.h>

#include "cohort/cohort.h"
#include "server/chat_params.h"

struct call;

struct asked {              /* zero-initialise, asked_free */
    json_t *messages;       /* owned */
    json_t *tools;          /* owned; {"type":"function",...}; NULL: none */
    json_t *allowed;        /* owned; names of the tools that may be called; NULL: all */
    const char *tool_name;  /* NAMED; this and what follows stays in the body */
    const char *effort;     /* NULL: the template's own */
    const json_t *schema;   /* that the answer's text follows; NULL: none */
    const char *form_field; /* where that came from; a literal */
    int json;               /* it must be a JSON object, whatever is in it */
    int go_on;              /* the last message is the beginning of the answer */
    int single;             /* one call at most */
    int hides_reasoning;    /* what was reasoned is not told */
    int summarises;         /* what was reasoned is told as a summary, too */
    int may_reason;         /* reasoning is ON where the model can */
    int64_t budget;         /* tokens of reasoning; 0: not said */
    cohort_reasoning reasoning;
    cohort_tool_choice choice;
};

void asked_free(struct asked *asked);
/* Behind the others: {"type":"function","function":{...}}. `parameters` may be NULL; `strict` -1: not said. `place` is
 * the tool's, for messages: what is no name, or one that another tool has, is refused. */
int asked_add_tool(struct asked *asked, const json_t *name, const json_t *description, const json_t *parameters,
                   int strict, const char *place, cohort_error *err);
int asked_has_tool(const struct asked *asked, const char *name);
/* What a dialect calls what errors of chats name as OpenAI does. Literals. */
struct asked_names {
    const char *messages, *schema; /* "messages"; a tool's "function.parameters" */
    const char *reasoning;
};
void asked_name(const struct asked_names *names, cohort_error *err);
/* As a chat, which lives as long as `chat` and the body; the model says whether it can reason. `chat` was made by
 * chat_params_init. */
int asked_chat(const struct asked *asked, const struct asked_names *names, const cohort_model *model,
               struct chat_params *chat, cohort_error *err);
/* The same as what a call asks for, as its one prompt. */
int asked_call(const struct asked *asked, const struct asked_names *names, struct call *call, cohort_error *err);

#endif
