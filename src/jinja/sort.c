/* A stable merge sort that compares keys as Python's sorted() does: only by "less than". */
#include <string.h>

#include "jinja/value.h"

struct pair {
    val value, key;
};

static int less(struct run *x, const struct pair *a, const struct pair *b) {
    return compare(x, a->key, b->key, "<") == -1;
}

static void merge(struct run *x, struct pair *v, struct pair *other, uint32_t n) {
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t begin = 0; begin < n; begin += 2 * width) {
            uint32_t middle = begin + width < n ? begin + width : n;
            uint32_t end = begin + 2 * width < n ? begin + 2 * width : n;
            uint32_t a = begin, b = middle;
            for (uint32_t k = begin; k < end; k++)
                other[k] = a < middle && (b >= end || !less(x, &v[b], &v[a])) ? v[a++] : v[b++];
        }
        memcpy(v, other, n * sizeof(*v));
    }
}

/* Reversed is sorted backwards with equal ones still in their order: turned before and after. */
void sort_by(struct run *x, val *v, const val *keys, uint32_t n, int reverse) {
    struct pair *p = jx_alloc(x, n ? n : 1, sizeof(*p)), *other = jx_alloc(x, n ? n : 1, sizeof(*p));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = reverse ? n - 1 - i : i;
        p[at] = (struct pair){v[i], keys[i]};
    }
    jx_steps(x, n);
    merge(x, p, other, n);
    for (uint32_t i = 0; i < n; i++) v[i] = p[reverse ? n - 1 - i : i].value;
}
