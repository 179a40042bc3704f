/* What the files that render share. */
#ifndef CHAT_INTERNAL_H
#define CHAT_INTERNAL_H

#include <jansson.h>

#include "base/buf.h"
#include "chat/format.h"
#include "chat/template.h"
#include "jinja/jinja.h"

enum {
    CHAT_MESSAGES_MAX = 4096,
    CHAT_JSON_DEPTH_MAX = 64,
    CHAT_VARIABLES_MAX = 64,
    CHAT_SHORT_ID = 9,       /* as Mistral's templates demand */
    CHAT_MARK_OTHER = 0xffff /* of what tools and variables bring; element i of the messages has i + 1 */
};

/* One text of a template. */
struct chat_variant {
    struct jinja *jinja; /* NULL: there is none */
    char *text;
    size_t len;
    struct chat_abilities can;
    uint8_t writes_calls;    /* an assistant's "tool_calls" come out */
    uint8_t null_content;    /* and beside them a content must be null, not empty */
    uint8_t short_ids;       /* calls must have ids of CHAT_SHORT_ID letters and digits */
    uint8_t steady;          /* what is written of a message stays when more follow */
    uint8_t knows_developer; /* has a role of this name */
    const char *reasoning;   /* the name under which it looks for an assistant's reasoning */
    /* What it writes behind a message's last byte before it knows what follows, by role. */
    struct buf close[COHORT_ROLE_TOOL + 1];
};

struct chat_template {
    const struct tokenizer *tokenizer;
    struct buf bos, eos; /* their texts, as JSON */
    struct chat_variant plain, tools;
};

/* What a template is told. */
struct chat_told {
    const char *messages; /* JSON */
    size_t messages_n;
    const char *tools; /* JSON; NULL: none */
    size_t tools_n;
    const json_t *variables; /* object; NULL: none */
    int generation, go_on;
    int64_t now_s;
};
int chat_template_write(const struct chat_template *t, const struct chat_variant *v, const struct chat_told *values,
                        struct jinja_text *out, cohort_error *err);
/* The names that a client's variables cannot have. */
int chat_template_reserves(const char *name);

/* prepare.c: a chat, checked, and as its template wants it. */
struct chat_prepared {
    const struct chat_variant *variant;
    json_t *messages; /* array, as the template gets it */
    size_t n;         /* of the chat's messages; */
    int *roles;       /* theirs, */
    size_t *at;       /* and the elements of `messages` that they became */
    json_t *tools;    /* what the template itself shows; NULL: none */
    json_t *variables;
    int shows_tools; /* the model is told of tools */
    char *tail;    /* COHORT_CHAT_CONTINUE: white space that the last message ends with, which stands in no message; */
    int stands_in; /* 1: that message has nothing else: one character stands for it, and does not come out */
};
int chat_prepare(const struct chat_template *t, const cohort_chat *chat, struct chat_prepared *out, cohort_error *err);
void chat_prepared_free(struct chat_prepared *p);
/* JSON of a chat: its nesting is checked before a parser that recurses sees it. */
/* Strings as lists of one part of text. */
void chat_type_contents(json_t *messages);
int chat_json_load(const char *json, size_t len, const char *field, json_t **out, cohort_error *err);

#endif
