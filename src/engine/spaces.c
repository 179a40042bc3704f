/* A table that is looked through from end to end, by a hash first: it has at most SPACES_MAX entries and is asked once
 * for each request (spaces.h). */
#include "engine/spaces.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

struct space {
    uint64_t number, used; /* number 0: free; used: ascending, when it was taken last */
    uint64_t hash;
    uint32_t holders, tenant;
    struct space_name *name;
};

struct spaces {
    uint64_t numbers, uses;
    struct space list[SPACES_MAX];
};

void space_name_make(struct space_name *out, const char *tenant, const char *salt, size_t salt_n) {
    int n = snprintf(out->bytes, sizeof(out->bytes), "tenant:%zu:%s;salt:%zu:", strlen(tenant), tenant, salt_n);
    assert(n > 0 && (size_t)n + salt_n <= sizeof(out->bytes));
    if (salt_n) memcpy(out->bytes + n, salt, salt_n);
    out->n = (size_t)n + salt_n;
}

struct spaces *spaces_new(void) {
    return mem_zalloc(1, sizeof(struct spaces));
}

void spaces_free(struct spaces *s) {
    if (!s) return;
    for (uint32_t i = 0; i < SPACES_MAX; i++) mem_free(s->list[i].name);
    mem_free(s);
}

static struct space *find(struct spaces *s, const struct space_name *name, uint64_t hash) {
    for (uint32_t i = 0; i < SPACES_MAX; i++) {
        struct space *it = &s->list[i];
        if (it->number && it->hash == hash && it->name->n == name->n && !memcmp(it->name->bytes, name->bytes, name->n))
            return it;
    }
    return NULL;
}

/* A free entry, or the one that nobody holds and nobody has asked for the longest: of the tenant's own, if it has many.
 */
static struct space *make_place(struct spaces *s, uint32_t tenant, uint64_t *dropped) {
    struct space *oldest = NULL, *own = NULL;
    uint32_t owns = 0;
    for (uint32_t i = 0; i < SPACES_MAX; i++) {
        struct space *it = &s->list[i];
        if (!it->number) return it;
        owns += it->tenant == tenant;
        if (it->holders) continue;
        if (!oldest || it->used < oldest->used) oldest = it;
        if (it->tenant == tenant && (!own || it->used < own->used)) own = it;
    }
    if (own && owns >= SPACES_SHARE) oldest = own;
    if (oldest) *dropped = oldest->number;
    return oldest;
}

uint64_t spaces_take(struct spaces *s, const struct space_name *name, uint32_t tenant, uint64_t *dropped) {
    uint64_t hash = XXH3_64bits(name->bytes, name->n);
    struct space *it = find(s, name, hash);
    *dropped = 0;
    if (!it) {
        it = make_place(s, tenant, dropped);
        if (it && !it->name) it->name = mem_alloc(1, sizeof(*it->name));
        if (!it || !it->name) return 0;
        *it = (struct space){.number = ++s->numbers, .hash = hash, .name = it->name};
        memcpy(it->name->bytes, name->bytes, name->n);
        it->name->n = name->n;
    }
    it->holders++;
    it->tenant = tenant; /* of one that comes from the disk it is known only now */
    it->used = ++s->uses;
    return it->number;
}

static struct space *by_number(const struct spaces *s, uint64_t space) {
    for (uint32_t i = 0; space && i < SPACES_MAX; i++)
        if (s->list[i].number == space) return (struct space *)&s->list[i];
    return NULL;
}

void spaces_leave(struct spaces *s, uint64_t space) {
    struct space *it = by_number(s, space);
    if (!it) return;
    assert(it->holders > 0);
    it->holders--;
}

const struct space_name *spaces_name(const struct spaces *s, uint64_t space) {
    const struct space *it = by_number(s, space);
    return it ? it->name : NULL;
}
