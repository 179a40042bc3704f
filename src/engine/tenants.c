/* Places and token buckets (tenants.h). Invariant: `places` is the sum of the tenants' places, and at most places_max;
 * a drain rate is busy exactly while there are places that it counts. */
#include "engine/tenants.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "engine/internal.h"
#include "engine/rate.h"

struct tenant {
    cohort_tenant limits;
    uint32_t places, rows;
    struct rate_drain drain;
    struct rate_bucket bucket;
    uint64_t submitted, refused, prompt_tokens, generated_tokens;
};

struct tenants {
    cohort_tenant *list; /* what was given, in our memory */
    char *names;         /* of COHORT_TENANT_NAME_MAX + 1 bytes each */
    int nobody;          /* none were given */
    struct tenant *each;
    uint32_t n, rows, queue;
    pthread_mutex_t lock;
    uint32_t places, places_max;
    struct rate_drain drain;
};

/* ---- opening ---- */

static int name_is_good(const char *name) {
    size_t len = name ? strnlen(name, COHORT_TENANT_NAME_MAX + 1) : 0;
    if (len == 0 || len > COHORT_TENANT_NAME_MAX) return 0;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || memchr("._-", c, 3)))
            return 0;
    }
    return 1;
}

static int check_one(const cohort_tenant *list, size_t i, cohort_error *err) {
    const cohort_tenant *x = &list[i];
    if (!name_is_good(x->name))
        return err_set(err, COHORT_E_ARGUMENT, "tenants",
                       "tenants[%zu].name must be 1 to %d bytes of A-Z a-z 0-9 . _ -", i, COHORT_TENANT_NAME_MAX);
    if (x->weight < 1 || x->weight > COHORT_WEIGHT_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "tenants", "tenants[%zu].weight is %u; 1 to %d are possible", i,
                       x->weight, COHORT_WEIGHT_MAX);
    if (x->tokens_per_minute > COHORT_TOKENS_PER_MINUTE_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "tenants", "tenants[%zu].tokens_per_minute is %llu; at most %d", i,
                       (unsigned long long)x->tokens_per_minute, COHORT_TOKENS_PER_MINUTE_MAX);
    for (size_t j = 0; j < i; j++)
        if (strcmp(list[j].name, x->name) == 0)
            return err_set(err, COHORT_E_ARGUMENT, "tenants", "tenants[%zu].name \"%s\" is taken by tenants[%zu]", i,
                           x->name, j);
    return 0;
}

static int check(const cohort_tenant *list, size_t n, cohort_error *err) {
    if (n < 1 || n > COHORT_TENANTS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "tenants", "%zu tenants; 1 to %d are possible", n, COHORT_TENANTS_MAX);
    for (size_t i = 0; i < n; i++) {
        int code = check_one(list, i, err);
        if (code) return code;
    }
    return 0;
}

static void fill(struct tenants *t, const cohort_tenant *list, uint64_t now_us) {
    for (uint32_t i = 0; i < t->n; i++) {
        char *name = t->names + (size_t)i * (COHORT_TENANT_NAME_MAX + 1);
        memcpy(name, list[i].name, strlen(list[i].name));
        t->list[i] = list[i];
        t->list[i].name = name;
        t->each[i].limits = t->list[i];
        rate_bucket_init(&t->each[i].bucket, list[i].tokens_per_minute, now_us);
    }
}

int tenants_new(const cohort_tenant *list, size_t n, uint32_t rows, uint32_t queue, uint64_t now_us,
                struct tenants **out, cohort_error *err) {
    static const cohort_tenant everybody = {.name = "default", .weight = 1};
    int nobody = !list && n == 0;
    *out = NULL;
    if (nobody) {
        list = &everybody;
        n = 1;
    }
    if (!list) return err_set(err, COHORT_E_ARGUMENT, "tenants", "tenants_n is %zu, but there are none", n);
    int code = check(list, n, err);
    if (code) return code;
    struct tenants *t = mem_zalloc(1, sizeof(*t));
    if (t) {
        pthread_mutex_init(&t->lock, NULL);
        t->list = mem_zalloc(n, sizeof(*t->list));
        t->names = mem_zalloc(n, COHORT_TENANT_NAME_MAX + 1);
        t->each = mem_zalloc(n, sizeof(*t->each));
    }
    if (!t || !t->list || !t->names || !t->each) {
        tenants_free(t);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu tenants", n);
    }
    t->n = (uint32_t)n;
    t->nobody = nobody;
    t->rows = rows;
    t->queue = queue;
    t->places_max = rows + queue;
    fill(t, list, now_us);
    *out = t;
    return 0;
}

void tenants_free(struct tenants *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->lock);
    mem_free(t->list);
    mem_free(t->names);
    mem_free(t->each);
    mem_free(t);
}

const cohort_tenant *tenants_list(const struct tenants *t, size_t *n) {
    *n = t->n;
    return t->list;
}

const char *tenants_owner(const struct tenants *t, uint32_t tenant) { return t->nobody ? "" : t->list[tenant].name; }

/* ---- places ---- */

/* When a place may come free. Never 0. */
static uint64_t place_wait_us(const struct rate_drain *drain, uint64_t now_us) {
    uint64_t wait = rate_drain_interval_us(drain, now_us);
    if (wait < TENANTS_RETRY_LEAST_MS * UINT64_C(1000)) return TENANTS_RETRY_LEAST_MS * UINT64_C(1000);
    if (wait > TENANTS_RETRY_MOST_MS * UINT64_C(1000)) return TENANTS_RETRY_MOST_MS * UINT64_C(1000);
    return wait;
}

/* What stands in the way for how long; 0: nothing. */
struct refusal {
    uint64_t all, own, tokens;
};

static struct refusal what_refuses(struct tenants *t, struct tenant *x, uint64_t now_us) {
    struct refusal r = {0};
    if (t->places == t->places_max) r.all = place_wait_us(&t->drain, now_us);
    if (x->limits.queue && x->places >= x->limits.queue) r.own = place_wait_us(&x->drain, now_us);
    r.tokens = rate_bucket_wait_us(&x->bucket, now_us);
    return r;
}

/* Names the limit that is in the way for longest. */
static int refuse(const struct tenants *t, struct tenant *x, const struct refusal *r, uint64_t now_us,
                  cohort_error *err) {
    const cohort_tenant *limits = &x->limits;
    uint64_t wait = r->all;
    x->refused++;
    if (r->tokens > r->own && r->tokens > r->all) {
        wait = r->tokens;
        err_set(err, COHORT_E_BUSY, "tokens_per_minute",
                "\"%s\" may use %llu tokens per minute and is %lld tokens over that", limits->name,
                (unsigned long long)limits->tokens_per_minute, -(long long)rate_bucket_tokens(&x->bucket, now_us));
    } else if (r->own > r->all) {
        wait = r->own;
        err_set(err, COHORT_E_BUSY, "queue", "all %u places of \"%s\" are taken", limits->queue, limits->name);
    } else {
        err_set(err, COHORT_E_BUSY, NULL, "all %u places (%u rows and a line of %u) are taken", t->places_max, t->rows,
                t->queue);
    }
    uint64_t ms = (wait + 999) / 1000;
    if (err) err->retry_after_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    return COHORT_E_BUSY;
}

int tenants_enter(struct tenants *t, uint32_t tenant, uint64_t now_us, cohort_error *err) {
    if (tenant >= t->n)
        return err_set(err, COHORT_E_ARGUMENT, "tenant", "there is no tenant %u; %u are configured", tenant, t->n);
    struct tenant *x = &t->each[tenant];
    int code = 0;
    pthread_mutex_lock(&t->lock);
    struct refusal r = what_refuses(t, x, now_us);
    if (r.all || r.own || r.tokens) {
        code = refuse(t, x, &r, now_us, err);
    } else {
        if (t->places++ == 0) rate_drain_busy(&t->drain, now_us);
        if (x->places++ == 0) rate_drain_busy(&x->drain, now_us);
    }
    pthread_mutex_unlock(&t->lock);
    return code;
}

static void give_back(uint32_t *places, struct rate_drain *drain, int ended, uint64_t now_us) {
    assert(*places > 0);
    if (ended) rate_drain_end(drain, now_us);
    if (--*places == 0) rate_drain_idle(drain, now_us);
}

void tenants_leave(struct tenants *t, uint32_t tenant, enum tenants_end how, uint64_t now_us) {
    assert(tenant < t->n);
    struct tenant *x = &t->each[tenant];
    pthread_mutex_lock(&t->lock);
    give_back(&t->places, &t->drain, how != TENANTS_UNUSED, now_us);
    give_back(&x->places, &x->drain, how != TENANTS_UNUSED, now_us);
    if (how == TENANTS_RAN) {
        assert(x->rows > 0);
        x->rows--;
    }
    pthread_mutex_unlock(&t->lock);
}

void tenants_refused(struct tenants *t, uint32_t tenant) {
    assert(tenant < t->n);
    pthread_mutex_lock(&t->lock);
    t->each[tenant].refused++;
    pthread_mutex_unlock(&t->lock);
}

/* ---- what they use ---- */

void tenants_submitted(struct tenants *t, uint32_t tenant, uint32_t prompt_tokens, uint64_t now_us) {
    assert(tenant < t->n);
    struct tenant *x = &t->each[tenant];
    pthread_mutex_lock(&t->lock);
    x->submitted++;
    x->prompt_tokens += prompt_tokens;
    rate_bucket_take(&x->bucket, prompt_tokens, now_us);
    pthread_mutex_unlock(&t->lock);
}

void tenants_admitted(struct tenants *t, uint32_t tenant) {
    assert(tenant < t->n);
    pthread_mutex_lock(&t->lock);
    t->each[tenant].rows++;
    assert(t->each[tenant].rows <= t->each[tenant].places);
    pthread_mutex_unlock(&t->lock);
}

void tenants_generated(struct tenants *t, uint32_t tenant, uint32_t tokens, uint64_t now_us) {
    assert(tenant < t->n);
    struct tenant *x = &t->each[tenant];
    pthread_mutex_lock(&t->lock);
    x->generated_tokens += tokens;
    rate_bucket_take(&x->bucket, tokens, now_us);
    pthread_mutex_unlock(&t->lock);
}

/* ---- sight ---- */

uint32_t tenants_places(struct tenants *t) {
    pthread_mutex_lock(&t->lock);
    uint32_t places = t->places;
    pthread_mutex_unlock(&t->lock);
    return places;
}

int tenants_metrics(struct tenants *t, uint32_t tenant, cohort_tenant_metrics *out) {
    if (tenant >= t->n) return COHORT_E_NOT_FOUND;
    const struct tenant *x = &t->each[tenant];
    pthread_mutex_lock(&t->lock);
    *out = (cohort_tenant_metrics){.places = x->places,
                                   .rows = x->rows,
                                   .requests_submitted = x->submitted,
                                   .requests_refused = x->refused,
                                   .prompt_tokens = x->prompt_tokens,
                                   .generated_tokens = x->generated_tokens};
    pthread_mutex_unlock(&t->lock);
    memcpy(out->name, x->limits.name, strlen(x->limits.name) + 1);
    return 0;
}

int cohort_tenant_metrics_get(cohort_engine *e, uint32_t tenant, cohort_tenant_metrics *out) {
    return tenants_metrics(e->tenants, tenant, out);
}
