/* Tenants: whose requests they are, what each may hold at once and use in a minute, and what each has had. Owns the
 * places in the line (all tenants' and each one's) and the token buckets; the scheduler shares out rows and tokens. Any
 * thread; one lock inside, under which nothing else is called. */
#ifndef ENGINE_TENANTS_H
#define ENGINE_TENANTS_H

#include <stddef.h>
#include <stdint.h>

#include "cohort/cohort.h"

enum {
    TENANTS_RETRY_LEAST_MS = 1000,
    TENANTS_RETRY_MOST_MS = 300000 /* when a place comes free is a guess; when a bucket is positive again is not */
};

struct tenants;

/* Checks and copies `list` (NULL: one tenant "default", weight 1, no limits). E_ARGUMENT names "tenants". */
int tenants_new(const cohort_tenant *list, size_t n, uint32_t rows, uint32_t queue, uint64_t now_us,
                struct tenants **out, cohort_error *err);
void tenants_free(struct tenants *t);
const cohort_tenant *tenants_list(const struct tenants *t, size_t *n); /* lives as long as `t` */

/* Whose stored state it is. Without tenants a name that no tenant can have: what was stored for everybody is not what
 * one of them called "default" stored. */
const char *tenants_owner(const struct tenants *t, uint32_t tenant);

/* Takes a place: E_BUSY with the limit in words and err->retry_after_ms, E_ARGUMENT for a tenant that is none. */
int tenants_enter(struct tenants *t, uint32_t tenant, uint64_t now_us, cohort_error *err);
/* Gives it back. Only requests that ran or waited say something about the rate at which places come free. */
enum tenants_end { TENANTS_UNUSED, TENANTS_WAITED, TENANTS_RAN };
void tenants_leave(struct tenants *t, uint32_t tenant, enum tenants_end how, uint64_t now_us);
void tenants_refused(struct tenants *t, uint32_t tenant); /* for a reason that is not of this file */
void tenants_submitted(struct tenants *t, uint32_t tenant, uint32_t prompt_tokens, uint64_t now_us);
void tenants_admitted(struct tenants *t, uint32_t tenant); /* once per request, which then leaves with TENANTS_RAN */
void tenants_generated(struct tenants *t, uint32_t tenant, uint32_t tokens, uint64_t now_us);

uint32_t tenants_places(struct tenants *t);                                          /* taken, of all tenants */
int tenants_metrics(struct tenants *t, uint32_t tenant, cohort_tenant_metrics *out); /* 0 or E_NOT_FOUND */

#endif
