/* The prefix store's fields (cache.h). */
#include "server/cache.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "server/fields.h"

void cache_slot_name(int32_t slot, char out[CACHE_SLOT_NAME_MAX + 1]) {
    snprintf(out, CACHE_SLOT_NAME_MAX + 1, "slot-%d", slot);
}

int cache_read(const json_t *body, struct cache_params *out, cohort_error *err) {
    int64_t slot = -1;
    *out = (struct cache_params){.cache_prompt = 1};
    int rc = field_bool(body, "cache_prompt", &out->cache_prompt, err);
    if (!rc) rc = field_string(body, "cache_salt", COHORT_CACHE_SALT_MAX, &out->salt, err);
    if (!rc) rc = field_string(body, "cache_session_id", COHORT_SESSION_NAME_MAX, &out->session, err);
    if (!rc) rc = field_integer(body, "id_slot", -1, INT32_MAX, &slot, err);
    if (!rc && !out->cache_prompt && (out->session.bytes || slot >= 0)) {
        const char *field = out->session.bytes ? "cache_session_id" : "id_slot";
        return err_set(err, COHORT_E_ARGUMENT, field, "%s keeps state, which \"cache_prompt\": false forbids", field);
    }
    if (rc || slot < 0) return rc;
    if (out->session.bytes)
        return err_set(err, COHORT_E_ARGUMENT, "id_slot",
                       "id_slot names a session, and cache_session_id another: one of them is allowed");
    cache_slot_name((int32_t)slot, out->slot);
    return 0;
}

int cache_read_snapshots(const json_t *body, struct cache_params *out, cohort_error *err) {
    const json_t *list = json_object_get(body, "snapshot_at");
    if (!list || json_is_null(list)) return 0;
    if (!json_is_array(list) || json_array_size(list) > COHORT_SNAPSHOTS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "snapshot_at", "snapshot_at must be an array of at most %d positions",
                       COHORT_SNAPSHOTS_MAX);
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t least = i ? (json_int_t)out->snapshot_at[i - 1] + 1 : 1;
        if (!json_is_integer(item) || json_integer_value(item) < least || json_integer_value(item) > UINT32_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "snapshot_at",
                           "snapshot_at[%zu] is not a position: integers from 1 on, each above the one before", i);
        out->snapshot_at[i] = (uint32_t)json_integer_value(item);
    }
    out->snapshot_at_n = n;
    return 0;
}

/* The turns' ends that are worth a place: *last of them, in ascending order. A conversation comes again with the next
 * user's turn, or with another text in one of its last ones. */
static size_t choose_ends(const cohort_turn *turns, size_t n, size_t ends[CACHE_BORDERS_MAX]) {
    size_t systems = 0, users[CACHE_BORDERS_MAX - 1] = {0}, users_n = 0, chosen = 0;
    while (systems < n && turns[systems].role == COHORT_ROLE_SYSTEM) systems++;
    for (size_t i = n; i > 1 && users_n < CACHE_BORDERS_MAX - 1; i--)
        if (turns[i - 1].role == COHORT_ROLE_USER) users[users_n++] = turns[i - 2].end;
    if (systems) ends[chosen++] = turns[systems - 1].end;
    while (users_n > 0) ends[chosen++] = users[--users_n];
    return chosen;
}

void cache_borders(const cohort_turn *turns, size_t n, size_t prompt_n, struct cache_params *out) {
    size_t ends[CACHE_BORDERS_MAX], ends_n = choose_ends(turns, n, ends), last = 0;
    out->snapshot_at_n = 0;
    for (size_t i = 0; i < ends_n; i++) {
        if (ends[i] < last + CACHE_BORDERS_APART || ends[i] >= prompt_n) continue;
        last = ends[i];
        out->snapshot_at[out->snapshot_at_n++] = (uint32_t)last;
    }
}

void cache_fill(const struct cache_params *params, cohort_request *request) {
    request->cache_prompt = params->cache_prompt;
    request->cache_salt = params->salt.bytes;
    request->cache_salt_n = params->salt.len;
    request->session = params->slot[0] ? params->slot : params->session.bytes;
    request->session_n = params->slot[0] ? strlen(params->slot) : params->session.len;
    request->snapshot_at = params->snapshot_at_n ? params->snapshot_at : NULL;
    request->snapshot_at_n = params->snapshot_at_n;
}
