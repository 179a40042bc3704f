/* API keys and whose they are: --api-key and the file of --keys, read once at start. Immutable afterwards; any thread.
 *
 *   {"keys": [{"name": "research", "key": ["new-key", "old-key"], "weight": 3, "rows": 8, "queue": 32,
 *              "tokens_per_minute": 60000}, ...]}
 *
 * Each entry is a tenant of the engine, in the file's order; only name and key must be there. Several keys let one be
 * replaced by another without a gap. */
#ifndef SERVER_KEYS_H
#define SERVER_KEYS_H

#include "cohort/cohort.h"

enum {
    KEYS_FILE_MAX = 8 << 20, /* bytes */
    KEYS_EACH_MAX = 16,      /* keys of one tenant */
    KEYS_KEY_MAX = 256       /* bytes of a key */
};

struct keys;

/* `api_key` (NULL: none) is tenant "default", in front of the file's (`path`, NULL: none). Strict: whatever the file
 * says beyond or against the above is an error that names file, entry and field. `*out` is NULL if neither is given. */
int keys_open(const char *api_key, const char *path, struct keys **out, cohort_error *err);
void keys_close(struct keys *keys);
/* For the engine's options; live as long as `keys`. NULL: none, and *n is 0. */
const cohort_tenant *keys_tenants(const struct keys *keys, size_t *n);
/* The tenant whose key this is, -1 if nobody's. The time says nothing of what the keys contain, nor which one it was:
 * every byte given is compared with every key. */
int keys_find(const struct keys *keys, const char *given);

#endif
