/* Masks over rows of logits (mask.h). A row is walked by spans: those without a rejected token, which are most of them
 * inside of a free text, cost a look at eight words. */
#include "sample/mask.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { SPAN_WORDS = LOGITS_SPAN / 32, SCATTER_MOST = 32 /* rejected tokens of a span that are set one by one */ };
_Static_assert(LOGITS_SPAN == 256, "a span has two vectors of words");

/* Four words at a time, on any processor: the instruction that counts bits is not on all of them. */
typedef uint32_t words4 __attribute__((vector_size(16)));

static words4 load(const void *from) {
    words4 w;
    memcpy(&w, from, sizeof(w));
    return w;
}

/* The set bits of each byte. */
static words4 bits_of(words4 w) {
    w -= (w >> 1) & 0x55555555;
    w = (w & 0x33333333) + ((w >> 2) & 0x33333333);
    return (w + (w >> 4)) & 0x0f0f0f0f;
}

/* Allowed tokens of a whole span. */
static uint32_t span_count(const uint32_t *allowed) {
    words4 w = bits_of(load(allowed)) + bits_of(load(allowed + 4)); /* at most 16 in each byte */
    w = (w & 0x00ff00ff) + ((w >> 8) & 0x00ff00ff);
    w = (w & 0xffff) + (w >> 16);
    return w[0] + w[1] + w[2] + w[3];
}

/* The word with the bits of tokens that there are. */
static uint32_t word_at(const uint32_t *bits, uint32_t i, uint32_t n) {
    uint32_t left = n - i * 32;
    return left >= 32 ? bits[i] : bits[i] & (((uint32_t)1 << left) - 1);
}

uint32_t mask_count(const uint32_t *bits, uint32_t n) {
    uint32_t count = 0, i = 0;
    for (; i + SPAN_WORDS <= n / 32; i += SPAN_WORDS) count += span_count(bits + i);
    for (; i < mask_words(n); i++) count += (uint32_t)__builtin_popcount(word_at(bits, i, n));
    return count;
}

static uint32_t gather_word(uint32_t word, uint32_t first, const float *from, uint32_t found, int32_t *ids, float *x) {
    for (; word; word &= word - 1) {
        uint32_t id = first + (uint32_t)__builtin_ctz(word);
        ids[found] = (int32_t)id;
        x[found++] = from[id];
    }
    return found;
}

void mask_gather(const struct mask *mask, const struct logits *from, int32_t *ids, float *x) {
    const uint32_t *bits = mask->bits;
    uint32_t found = 0, i = 0;
    for (; i + SPAN_WORDS <= from->n / 32; i += SPAN_WORDS) {
        words4 any = load(bits + i) | load(bits + i + 4);
        if (!(any[0] | any[1] | any[2] | any[3])) continue;
        for (uint32_t j = i; j < i + SPAN_WORDS; j++) found = gather_word(bits[j], j * 32, from->x, found, ids, x);
    }
    for (; i < mask_words(from->n); i++) found = gather_word(word_at(bits, i, from->n), i * 32, from->x, found, ids, x);
    assert(found == mask->allowed);
}

/* One by one; 1 if the span's peak may have been among them. */
static int scatter(const uint32_t *allowed, float *x, float peak) {
    int hit = 0;
    for (uint32_t i = 0; i < SPAN_WORDS; i++)
        for (uint32_t word = ~allowed[i]; word; word &= word - 1) {
            float *at = x + i * 32 + (uint32_t)__builtin_ctz(word);
            hit |= *at == peak;
            *at = -INFINITY;
        }
    return hit;
}

/* Four logits at a time: a rejected one's bits become those of minus infinity. */
static void select_allowed(const uint32_t *allowed, float *x) {
    const words4 one = {1, 2, 4, 8}, rejected = {0xff800000, 0xff800000, 0xff800000, 0xff800000};
    for (uint32_t i = 0; i < SPAN_WORDS; i++)
        for (uint32_t j = 0; j < 32; j += 4, x += 4) {
            words4 keep = (words4)(((allowed[i] >> j) & one) != 0);
            words4 bits = (load(x) & keep) | (rejected & ~keep);
            memcpy(x, &bits, sizeof(bits));
        }
}

/* A whole span. */
static void reject_span(const struct vecops *ops, const uint32_t *allowed, const struct logits *l, uint32_t span) {
    uint32_t some = span_count(allowed);
    float *x = l->x + (size_t)span * LOGITS_SPAN;
    if (some == LOGITS_SPAN) return;
    if (some + SCATTER_MOST >= LOGITS_SPAN) {
        if (!scatter(allowed, x, l->peaks[span])) return;
    } else {
        select_allowed(allowed, x);
    }
    logits_peaks(ops, l->x, l->n, span, span + 1, l->peaks);
}

void mask_reject(const struct vecops *ops, const struct mask *mask, const struct logits *l) {
    uint32_t whole = l->n / LOGITS_SPAN;
    for (uint32_t span = 0; span < whole; span++) reject_span(ops, mask->bits + span * SPAN_WORDS, l, span);
    if (whole == logits_spans(l->n)) return;
    for (uint32_t id = whole * LOGITS_SPAN; id < l->n; id++)
        if (!mask_allows(mask, id)) l->x[id] = -INFINITY;
    logits_peaks(ops, l->x, l->n, whole, whole + 1, l->peaks);
}
