/* What the text of an answer must follow, by all the names that bodies have for it (forms.c lists them). Loop thread;
 * pure apart from the call. */
#ifndef API_FORMS_H
#define API_FORMS_H

#include <jansson.h>

#include "server/call.h"
#include "server/fields.h"

/* Their names, for fields_known. */
extern const struct known_list forms_known;

/* From the body into the call: a chat's `answer`, or the call's `grammar`. At most one of them may be there. */
int forms_read(struct call *call, const json_t *body, int is_chat, cohort_error *err);
/* A JSON schema as that; `field`: a literal, where it came from. */
int forms_schema(struct call *call, const json_t *schema, int is_chat, const char *field, cohort_error *err);

#endif
