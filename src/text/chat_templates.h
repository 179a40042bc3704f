/* Turn templates as data. A string may hold markers, written as in the vocabulary: they become those tokens. */
#ifndef TEXT_CHAT_TEMPLATES_H
#define TEXT_CHAT_TEMPLATES_H

struct tokenizer;

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_ROLES };

struct chat_turn {
    const char *open, *close;
};

struct chat_template {
    const char *name;
    const char *needs[3];               /* control tokens that the vocabulary must have */
    int kind;                           /* enum tokenizer_kind, -1: any */
    int hints;                          /* HINT_... that the file's own template must give */
    int begin;                          /* begins with the begin token, also where plain text would not */
    int trim;                           /* contents lose white space at both ends */
    int system_inside;                  /* a system text stands in the next user's turn, in front of its content */
    const char *start;                  /* in front of the first turn */
    struct chat_turn turns[CHAT_ROLES]; /* open NULL: the template has no such turn */
    const char *generation;             /* opens the assistant's turn */
};

/* The first template whose markers the vocabulary has; never NULL. */
const struct chat_template *chat_template_choose(const struct tokenizer *t);

#endif
