/* A sorted list instead of a tree: walking down a text, the range of tokens that still fit narrows by binary search.
 * What is matched is whole UTF-8 (checked at build), so valid text stays valid on both sides of a match. */
#include "text/special.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static int by_text(const void *a, const void *b, void *vocab) {
    const struct vocab *v = vocab;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    size_t n, m;
    const char *s = vocab_text(v, (uint32_t)x, &n), *t = vocab_text(v, (uint32_t)y, &m);
    int order = memcmp(s, t, n < m ? n : m);
    if (order) return order;
    if (n != m) return n < m ? -1 : 1;
    return x < y ? -1 : 1; /* of equal texts the lowest id comes first and is the one found */
}

static int wanted(const struct vocab *v, uint32_t id, int control) {
    int type = v->type[id];
    if (type != TOKEN_USER && !(control && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN))) return 0;
    return v->at[id] != v->at[id + 1];
}

static void drop_repeats(struct special_set *set, const struct vocab *v) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        size_t n, m = 0;
        const char *s = vocab_text(v, (uint32_t)set->ids[i], &n);
        const char *last = kept ? vocab_text(v, (uint32_t)set->ids[kept - 1], &m) : NULL;
        if (!kept || n != m || memcmp(s, last, n) != 0) set->ids[kept++] = set->ids[i];
    }
    set->n = kept;
}

int special_build(struct special_set *set, const struct vocab *v, int control, const uint8_t *flags, unsigned without,
                  cohort_error *err) {
    memset(set, 0, sizeof(*set));
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) n += (uint32_t)(!(flags[i] & without) && wanted(v, i, control));
    set->ids = mem_alloc(n, sizeof(*set->ids));
    if (!set->ids) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the vocabulary");
    for (uint32_t i = 0; i < v->n; i++) {
        if (flags[i] & without || !wanted(v, i, control)) continue;
        size_t len;
        const char *text = vocab_text(v, i, &len);
        if (len > SPECIAL_BYTES_MAX || !utf8_valid(text, len)) {
            special_free(set);
            return err_set(err, COHORT_E_FILE, "tokenizer.ggml.tokens",
                           "key 'tokenizer.ggml.tokens', token %u: a control or user-defined token that is not UTF-8 "
                           "or longer than %d bytes",
                           i, SPECIAL_BYTES_MAX);
        }
        set->ids[set->n++] = (int32_t)i;
    }
    qsort_r(set->ids, set->n, sizeof(*set->ids), by_text, (void *)v);
    drop_repeats(set, v);
    for (uint32_t i = 0; i < set->n; i++) set->first[(uint8_t)v->text[v->at[set->ids[i]]] + 1] = i + 1;
    for (int b = 0; b < 256; b++)
        if (set->first[b + 1] < set->first[b]) set->first[b + 1] = set->first[b];
    return 0;
}

void special_free(struct special_set *set) {
    mem_free(set->ids);
    memset(set, 0, sizeof(*set));
}

/* The first index in [low, high) whose byte at `depth` is at least `byte`; all are longer than depth. */
static uint32_t lower(const struct special_set *set, const struct vocab *v, uint32_t low, uint32_t high, size_t depth,
                      unsigned byte) {
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if ((uint8_t)v->text[v->at[set->ids[mid]] + depth] < byte)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int32_t special_longest(const struct special_set *set, const struct vocab *v, const char *text, size_t n, size_t *len) {
    uint32_t low = set->first[(uint8_t)text[0]], high = set->first[(uint8_t)text[0] + 1];
    int32_t found = -1;
    for (size_t depth = 1; low < high; depth++) {
        size_t shortest;
        vocab_text(v, (uint32_t)set->ids[low], &shortest);
        if (shortest == depth) { /* the token that ends here is sorted first */
            found = set->ids[low++];
            *len = depth;
        }
        if (depth == n) break;
        low = lower(set, v, low, high, depth, (uint8_t)text[depth]);
        high = lower(set, v, low, high, depth, (uint8_t)text[depth] + 1u);
    }
    return found;
}

int32_t special_next(const struct special_set *set, const struct vocab *v, const char *text, size_t n, size_t *at,
                     size_t *len) {
    if (set->n == 0) return -1;
    for (size_t i = *at; i < n; i++) {
        unsigned byte = (uint8_t)text[i];
        if (set->first[byte] == set->first[byte + 1]) continue;
        int32_t id = special_longest(set, v, text + i, n - i, len);
        if (id >= 0) {
            *at = i;
            return id;
        }
    }
    return -1;
}
