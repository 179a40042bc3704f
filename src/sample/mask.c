/* Masks over rows of logits (mask.h). A row is walked by spans: those without a rejected token, which are most of them
 * inside of a free text, cost a look at eight words. */
#include "sample/mask.h"

#include <math.h>

enum { SPAN_WORDS = LOGITS_SPAN / 32, SCATTER_MOST = 32 /* rejected tokens of a span that are set one by one */ };
_Static_assert(LOGITS_SPAN % 32 == 0, "a span has whole words");

/* The word with the bits of tokens that there are. */
static uint32_t word_at(const uint32_t *mask, uint32_t i, uint32_t n) {
    uint32_t left = n - i * 32;
    return left >= 32 ? mask[i] : mask[i] & (((uint32_t)1 << left) - 1);
}

uint32_t mask_count(const uint32_t *mask, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < mask_words(n); i++) count += (uint32_t)__builtin_popcount(word_at(mask, i, n));
    return count;
}

void mask_gather(const uint32_t *mask, const struct logits *from, int32_t *ids, float *x) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < mask_words(from->n); i++)
        for (uint32_t word = word_at(mask, i, from->n); word; word &= word - 1) {
            uint32_t id = i * 32 + (uint32_t)__builtin_ctz(word);
            ids[found] = (int32_t)id;
            x[found++] = from->x[id];
        }
}

/* One by one; 1 if the span's peak may have been among them. */
static int scatter(const uint32_t *allowed, uint32_t words, float *x, float peak) {
    int hit = 0;
    for (uint32_t i = 0; i < words; i++)
        for (uint32_t word = ~allowed[i]; word; word &= word - 1) {
            float *at = x + i * 32 + (uint32_t)__builtin_ctz(word);
            hit |= *at == peak;
            *at = -INFINITY;
        }
    return hit;
}

static void select_allowed(const uint32_t *allowed, uint32_t words, float *x) {
    static const uint32_t bit[32] = {1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
                                     1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
                                     1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
                                     1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};
    for (uint32_t i = 0; i < words; i++, x += 32)
        for (uint32_t j = 0; j < 32; j++) x[j] = allowed[i] & bit[j] ? x[j] : -INFINITY;
}

/* A whole span. */
static void reject_span(const struct vecops *ops, const uint32_t *allowed, const struct logits *l, uint32_t span) {
    uint32_t some = 0;
    float *x = l->x + (size_t)span * LOGITS_SPAN;
    for (uint32_t i = 0; i < SPAN_WORDS; i++) some += (uint32_t)__builtin_popcount(allowed[i]);
    if (some == LOGITS_SPAN) return;
    if (some + SCATTER_MOST >= LOGITS_SPAN) {
        if (!scatter(allowed, SPAN_WORDS, x, l->peaks[span])) return;
    } else {
        select_allowed(allowed, SPAN_WORDS, x);
    }
    logits_peaks(ops, l->x, l->n, span, span + 1, l->peaks);
}

void mask_reject(const struct vecops *ops, const uint32_t *mask, const struct logits *l) {
    uint32_t whole = l->n / LOGITS_SPAN;
    for (uint32_t span = 0; span < whole; span++) reject_span(ops, mask + span * SPAN_WORDS, l, span);
    if (whole == logits_spans(l->n)) return;
    for (uint32_t id = whole * LOGITS_SPAN; id < l->n; id++)
        if (!mask_allows(mask, id)) l->x[id] = -INFINITY;
    logits_peaks(ops, l->x, l->n, whole, whole + 1, l->peaks);
}
