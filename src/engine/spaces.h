/* Numbers for what must be kept apart in the prefix store: a space's name is made of everything that belongs to it,
 * each part with its tag and its length, and compared byte by byte. Engine thread. */
#ifndef ENGINE_SPACES_H
#define ENGINE_SPACES_H

#include <stddef.h>
#include <stdint.h>

enum {
    SPACES_MAX = 4096,   /* known at one time */
    SPACES_SHARE = 64,   /* of them a tenant may have before its own make room first */
    SPACE_NAME_MAX = 512 /* bytes of a name */
};

struct space_name {
    char bytes[SPACE_NAME_MAX];
    size_t n;
};

/* "tenant" and "salt" of a request. The salt has at most COHORT_CACHE_SALT_MAX bytes. */
void space_name_make(struct space_name *out, const char *tenant, const char *salt, size_t salt_n);

struct spaces;
struct spaces *spaces_new(void); /* NULL: no memory */
void spaces_free(struct spaces *s);
/* The number of a name, with a holder more; 0: SPACES_MAX others are held. *dropped: a space that nobody held was
 * forgotten for it (0: none): what is stored under that number is unreachable now. A tenant with many spaces loses its
 * own (SPACES_SHARE), so that none can push out all others. Numbers are never used again. */
uint64_t spaces_take(struct spaces *s, const struct space_name *name, uint32_t tenant, uint64_t *dropped);
void spaces_leave(struct spaces *s, uint64_t space);
const struct space_name *spaces_name(const struct spaces *s, uint64_t space); /* NULL: not known */

#endif
