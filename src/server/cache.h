/* What a request asks of the prefix store: its fields, and the places in a prompt at which state is kept. Pure. */
#ifndef SERVER_CACHE_H
#define SERVER_CACHE_H

#include <jansson.h>

#include "cohort/cohort.h"

enum {
    CACHE_BORDERS_MAX = 4, /* places that a chat's turns give: behind the system part, before its last three users */
    CACHE_BORDERS_APART = 256, /* tokens between two of them at least: what lies closer is read again as quickly */
    CACHE_SLOT_NAME_MAX = 16   /* bytes of "slot-2147483647", and one for a sign */
};

struct cache_params {
    int cache_prompt;
    cohort_span salt, session;          /* in the body's JSON; bytes NULL: none */
    char slot[CACHE_SLOT_NAME_MAX + 1]; /* the session's name if it came as id_slot, else "" */
    uint32_t snapshot_at[COHORT_SNAPSHOTS_MAX];
    size_t snapshot_at_n;
};

/* cache_prompt, cache_salt, cache_session_id, id_slot; what is absent has its default. */
int cache_read(const json_t *body, struct cache_params *out, cohort_error *err);
/* snapshot_at: places in tokens, given by the client. */
int cache_read_snapshots(const json_t *body, struct cache_params *out, cohort_error *err);
/* The same from the turns of a chat of `prompt_n` ids. */
void cache_borders(const cohort_turn *turns, size_t n, size_t prompt_n, struct cache_params *out);
/* Borrows from `params`: it must stay where it is until the request was submitted. */
void cache_fill(const struct cache_params *params, cohort_request *request);
/* The name of the session that a number means. */
void cache_slot_name(int32_t slot, char out[CACHE_SLOT_NAME_MAX + 1]);

#endif
