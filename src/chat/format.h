/* How a family of models writes reasoning and tool calls: declarative descriptions, one for each way of writing, and
 * which of them a template uses, found by what the template itself writes for probes. No code is particular to a model.
 * Immutable; any thread. */
#ifndef CHAT_FORMAT_H
#define CHAT_FORMAT_H

#include <stddef.h>

#include "base/err.h"
#include "cohort/cohort.h"
#include "text/tokenizer.h"

struct chat_format;

/* Renders a chat (JSON of messages, of tools or NULL, of variables or NULL) by the template in question into
 * mem_alloc'ed *text; 0, or a code where the template refuses. */
typedef int (*chat_probe_fn)(void *user, const char *messages, const char *tools, const char *variables, int generation,
                             char **text, size_t *len);

/* What a template can do, and how its answers are read. The format is never NULL: where the template shows no way of
 * writing calls, they are written in the house's own. Unless `tools`, render.c explains to the model in a system
 * message which tools there are, and how they are called. */
struct chat_abilities {
    const struct chat_format *format;
    uint8_t tools;            /* the template itself tells the model of tools, in a notation that can be read */
    uint8_t call_turns;       /* it writes the calls of an assistant's turn */
    uint8_t tool_turns;       /* and has turns for what tools answer */
    uint8_t system;           /* has system turns */
    uint8_t reasoning;        /* answers may hold reasoning */
    uint8_t typed_content;    /* contents must be lists of parts */
    uint8_t object_arguments; /* a call's arguments must be an object, not a string of JSON */
};
int chat_format_find(const char *template_text, size_t len, chat_probe_fn probe, void *user, struct chat_abilities *out,
                     cohort_error *err);
/* Formats are counted: what chat_format_find gives is the caller's to let go of, as is every further reference. */
void chat_format_ref(const struct chat_format *f);
void chat_format_unref(const struct chat_format *f); /* NULL is allowed */
const char *chat_format_name(const struct chat_format *f);
/* What a model is told of tools where the template does not: text for a system message, mem_alloc'ed. */
int chat_format_explain(const struct chat_format *f, const char *tools_json, size_t len, char **text, size_t *n,
                        cohort_error *err);

/* What a request wants of the answer, checked: chat->tools and the like. `prompt`: the rendered text, whose end says
 * whether reasoning is open. */
struct chat_wants {
    const cohort_chat *chat;
    const struct tokenizer *tokenizer; /* markers that are control tokens are named as tokens */
    const char *prompt;
    size_t prompt_n;
};
/* constrain.c. The grammar that an answer must follow, of kind TAGS or NONE; its text is mem_alloc'ed. E_UNSUPPORTED:
 * the format cannot hold it. */
int chat_constrain(const struct chat_format *f, const struct chat_wants *w, cohort_grammar_source *out,
                   cohort_error *err);
/* The text that closes reasoning; "" if there is none. */
const char *chat_format_reasoning_end(const struct chat_format *f);
/* And that which opens it, if the answer has to; "" where reasoning is open at the end of the prompt. */
const char *chat_format_reasoning_begin(const struct chat_format *f, const struct chat_wants *w);
/* 1: reasoning is open at the end of the prompt, or may come first in the answer. */
int chat_format_reasons(const struct chat_format *f, const struct chat_wants *w);

/* 1: the answer may hold markers, of calls, reasoning or others: it needs a reader. */
int chat_format_reads(const struct chat_format *f, const struct chat_wants *w);

/* reader.c: what cohort_reader_... do. Calls are looked for if there are tools and the choice is not NONE. The reader
 * keeps the format, and of `w` nothing. */
struct chat_reader;
int chat_reader_make(const struct chat_format *f, const struct chat_wants *w, struct chat_reader **out,
                     cohort_error *err);
int chat_reader_feed(struct chat_reader *r, const char *text, size_t len, int last);
int chat_reader_next(struct chat_reader *r, cohort_part *out); /* 0 or COHORT_E_AGAIN */
void chat_reader_free(struct chat_reader *r);

#endif
