/* Repetition, frequency and presence penalties (row.h). Pure but for the row's room to work; called on the backend's
 * team threads. */
#include "sample/row.h"

static uint32_t window_begin(int32_t window, uint32_t least, uint32_t end) {
    if (window < 0 || end - least <= (uint32_t)window) return least;
    return end - (uint32_t)window;
}

enum { REPEATED = 1u << 31 };

/* Only the scratch of ids that occur is touched: zeroed, counted, then read once each. */
uint32_t penalties_note(const struct sample_row *r, const cohort_sampling *s, uint32_t position, uint32_t *scratch) {
    int repetition = s->repetition_penalty != 1, usage = s->frequency_penalty != 0 || s->presence_penalty != 0;
    uint32_t repeats = repetition ? window_begin(s->repetition_window, 0, position) : position;
    uint32_t uses = usage ? window_begin(s->answer_window, r->prompt_n, position) : position, n = 0;
    uint32_t begin = repeats < uses ? repeats : uses;
    for (uint32_t i = begin; i < position; i++) scratch[r->tokens[i]] = 0;
    for (uint32_t i = repeats; i < position; i++) scratch[r->tokens[i]] |= REPEATED;
    for (uint32_t i = uses; i < position; i++) scratch[r->tokens[i]]++;
    for (uint32_t i = begin; i < position; i++) {
        uint32_t found = scratch[r->tokens[i]];
        scratch[r->tokens[i]] = 0;
        if (found) r->uses[n++] = (struct sample_note){r->tokens[i], found & ~(uint32_t)REPEATED, found >> 31};
    }
    return n;
}

void penalties_apply(const struct sample_note *notes, uint32_t n, const cohort_sampling *s, float scale,
                     struct edits *e) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = edits_index(e, notes[i].id);
        if (index == UINT32_MAX) continue;
        float x = e->logits->x[index];
        if (notes[i].repeated) x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
        if (notes[i].uses) {
            double less = (double)notes[i].uses * (double)s->frequency_penalty + (double)s->presence_penalty;
            x = (float)((double)x - less / (double)scale);
        }
        edits_set(e, index, x);
    }
}
