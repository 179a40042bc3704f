/* What llama-server's endpoints share: its words for errors, the fields of requests that generate, and how an answer
 * is told. Loop thread, but for what makes prompts of their parts. */
#ifndef API_LLAMA_H
#define API_LLAMA_H

#include <jansson.h>

#include "base/buf.h"
#include "server/call.h"

/* {"error":{code,message,type}} with the status as the code and llama-server's types; "param" where a field is at
 * fault. A prompt beyond the context is "exceed_context_size_error". */
extern const struct error_shape error_shape_llama;

enum {
    LLAMA_FIELDS_MAX = 64,      /* response_fields, */
    LLAMA_FIELD_BYTES_MAX = 128 /* of so many bytes each */
};

/* Of a call: what is not in its params. */
struct llama_own {
    json_t *told;   /* fields that the answer tells as they came: stop, logit_bias, samplers, ... */
    json_t *fields; /* response_fields; NULL: all */
    int64_t n_predict, n_keep, n_discard, n_indent;
    int32_t slot;
    int return_tokens, timings_per_token;
    int special; /* parse_special */
};

/* Reads all but the prompt into the params and call->own. */
int llama_read(struct call *call, const json_t *body, cohort_error *err);
/* "generation_settings": the parameters as they were understood. */
int llama_add_settings(const struct params *params, const struct llama_own *own, struct buf *out);
/* llama-server's defaults, where they are not those of other endpoints. */
void llama_sampling_defaults(cohort_sampling *sampling);

/* The dialect's functions; `own` of the call is a struct llama_own. */
int llama_piece(struct choice *choice, const cohort_event *event, struct buf *out);
int llama_collect(struct choice *choice, const cohort_event *event);
int llama_whole(struct call *call, struct buf *out);
void llama_forget(struct call *call);

/* Texts made of parts: arrays of strings and ids. Whether they are, naming the field; *text_len (may be NULL) grows by
 * the strings' bytes. */
int llama_check_parts(const cohort_model_info *info, const json_t *parts, const char *field, size_t *text_len,
                      cohort_error *err);
/* On a helper: adds the ids (int32_t) of a text, or of parts, to a buffer; `flags` of cohort_tokenize, whose begin
 * token only a first string gets. */
int llama_add_text(const cohort_model *model, const char *text, size_t len, int flags, struct buf *ids,
                   cohort_error *err);
int llama_add_parts(const cohort_model *model, const json_t *parts, int flags, struct buf *ids, cohort_error *err);
/* Makes the prompt of what is in the buffer. */
int llama_take_ids(struct buf *ids, struct prompt *prompt, cohort_error *err);

/* Handlers (llama_info.c). */
void llama_props(struct server *server, struct evhttp_request *http, const char *name);
void llama_props_set(struct server *server, struct evhttp_request *http, const char *name);
void llama_slots(struct server *server, struct evhttp_request *http, const char *name);

#endif
