/* DRY: who would go on with a repeat gets the less likely the longer the repeat is (row.h). Pure but for the row's room
 * to work; called on the backend's team threads. */
#include "base/fmath.h"
#include "sample/row.h"

/* How many tokens at the end, of at most `most`, no breaker cuts off from what comes. */
static uint32_t reach(const struct sample_row *r, uint32_t position, uint32_t most) {
    uint32_t n = 0;
    while (n < most && !(r->breaks && r->breaks[position - 1 - n])) n++;
    return n;
}

/* Read backwards, from its end: matches[k] becomes the length to which text k tokens earlier is the same, by Z boxes,
 * so that each token is compared once. */
static void match(const int32_t *end, uint32_t n, uint32_t *matches) {
    uint32_t from = 0, to = 0; /* the box: [from, to) is the same as [0, to - from) */
#define AT(i) end[-1 - (int64_t)(i)]
    for (uint32_t k = 1; k < n; k++) {
        uint32_t same = k < to ? (matches[k - from] < to - k ? matches[k - from] : to - k) : 0;
        while (k + same < n && AT(same) == AT(k + same)) same++;
        matches[k] = same;
        if (k + same > to) {
            from = k;
            to = k + same;
        }
    }
#undef AT
}

uint32_t dry_note(const struct sample_row *r, const cohort_sampling *s, uint32_t position, uint32_t *scratch) {
    uint32_t window = s->dry_window < 0 || position < (uint32_t)s->dry_window ? position : (uint32_t)s->dry_window;
    uint32_t most = reach(r, position, window), n = 0;
    const int32_t *end = r->tokens + position;
    if (most < s->dry_allowed_length) return 0;
    struct breakers_tail tail;
    breakers_tail(r, position, &tail);
    match(end, window, r->matches);
    /* The longest repeat that each token goes on with, then each token once. */
    for (uint32_t k = 1; k < window; k++) scratch[end[-(int64_t)k]] = 0;
    for (uint32_t k = 1; k < window; k++) {
        uint32_t length = r->matches[k] < most ? r->matches[k] : most, *longest = &scratch[end[-(int64_t)k]];
        if (length >= s->dry_allowed_length && length > *longest) *longest = length;
    }
    for (uint32_t k = 1; k < window; k++) {
        int32_t id = end[-(int64_t)k];
        uint32_t length = scratch[id];
        scratch[id] = 0;
        if (length && !breakers_end_behind(r, &tail, id))
            r->repeats[n++] = (struct sample_note){.id = id, .repeated = length};
    }
    return n;
}

void dry_apply(const struct sample_note *notes, uint32_t n, const cohort_sampling *s, float scale, struct edits *e) {
    static const double largest_power = 88; /* its exponential is close to the largest fp32 number */
    double log_base = fmath_log((double)s->dry_base);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = edits_index(e, notes[i].id);
        if (index == UINT32_MAX) continue;
        double power = (double)(notes[i].repeated - s->dry_allowed_length) * log_base;
        if (power > largest_power) power = largest_power;
        double less = (double)s->dry_multiplier * fmath_exp(power);
        edits_set(e, index, (float)((double)e->logits->x[index] - less / (double)scale));
    }
}
