/* A model's chat template: parsed, with what it can do, found out by rendering small chats. Immutable once made; any
 * thread. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include <stddef.h>

#include "base/err.h"
#include "text/tokenizer.h"

struct chat_template;

/* `text` renders chats; `tools_text`, if there is one, those with tools. The tokenizer must outlive the template.
 * Errors are E_ARGUMENT and have the field "chat_template". Hostile texts are bounded as jinja.h says. */
int chat_template_make(const struct tokenizer *t, const char *text, size_t len, const char *tools_text,
                       size_t tools_len, struct chat_template **out, cohort_error *err);
void chat_template_free(struct chat_template *t); /* NULL is allowed */

/* For cohort_model_info. */
const char *chat_template_format(const struct chat_template *t); /* name of the description of its answers */
int chat_template_tools(const struct chat_template *t);
int chat_template_reasons(const struct chat_template *t);

#endif
