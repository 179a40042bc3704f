/* A model's chat template, as model_api.c opens and shows it. */
#ifndef ENGINE_CHAT_API_H
#define ENGINE_CHAT_API_H

#include "engine/internal.h"

/* `wanted`: a template's text, or a built-in one's name, instead of the file's own; NULL: that. A template of the file
 * that cannot be used is no error: chats are refused with the reason. */
int chat_api_open(cohort_model *m, const struct meta *meta, const char *wanted, cohort_error *err);
void chat_api_close(cohort_model *m);
void chat_api_info(const cohort_model *m, cohort_model_info *out);

#endif
