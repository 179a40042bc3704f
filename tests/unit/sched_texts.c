/* Rows with real tokens for the unit tests (sched_texts.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched_internal.h"
#include "sched_texts.h"

struct text texts[ROWS];
struct seen seen;

const int32_t *tokens_of_row(void *user, sched_row row, uint32_t *n) {
    (void)user;
    texts[sched_row_index(row)].asked++;
    *n = texts[sched_row_index(row)].n;
    return texts[sched_row_index(row)].tokens;
}

struct rig rig_storing(uint32_t rows, uint32_t batch, uint32_t full, uint32_t windowed) {
    struct sched_config c = config_of(rows, 16, batch);
    c.group[1].window = windowed;
    c.tokens = tokens_of_row;
    return rig_of(c, full, full);
}

struct rig rig_full(uint32_t rows, uint32_t batch) {
    return rig_storing(rows, batch, 1000, 0);
}

sched_row submit_text(struct rig *r, struct prompt p, struct sched_request q) {
    sched_row row = reserve(r);
    uint32_t i = sched_row_index(row);
    assert_true(i < ROWS && p.n <= TEXT);
    for (uint32_t k = 0; k < p.n; k++) texts[i].tokens[k] = (int32_t)((k < p.shared ? p.a : p.b) * 10000 + k);
    texts[i].n = p.n;
    texts[i].asked = 0;
    q.prompt_n = p.n - q.resumed;
    if (q.space == 0) q.space = 7;
    assert_int_equal(sched_submit(r->s, row, &q, NULL), 0);
    assert_true(sched_check(r->s));
    return row;
}

sched_row submit_new(struct rig *r, struct prompt p, uint32_t max_new) {
    return submit_text(r, p, (struct sched_request){.max_new = max_new});
}

void collect(struct rig *r) {
    struct sched_load load;
    seen.copies = seen.loads = 0;
    while (sched_pop_copy(r->s, &seen.copy[seen.copies])) seen.copies++;
    while (sched_pop_load(r->s, &load)) {
        seen.load = load;
        memcpy(seen.blocks, load.blocks, load.n * sizeof *load.blocks);
        seen.loads++;
    }
    assert_true(sched_check(r->s));
}

const struct plan *begin(struct rig *r) {
    const struct plan *p = plan(r);
    collect(r);
    return p;
}

void end(struct rig *r, const struct plan *p) {
    commit(r, p);
    for (uint32_t i = 0; i < p->n_items; i++) {
        uint32_t row = sched_row_index(p->items[i].row);
        if (!p->items[i].samples) continue;
        texts[row].tokens[texts[row].n] = 1000000 + (int32_t)texts[row].n;
        texts[row].n++;
    }
}

const struct plan *turn(struct rig *r) {
    const struct plan *p = begin(r);
    if (p != NULL) end(r, p);
    return p;
}

uint32_t run(struct rig *r, sched_row row) {
    uint32_t read = 0;
    const struct row *it = row_at(r->s, sched_row_index(row));
    while (!(it->state == ROW_RUNNING && row_spent(it))) {
        const struct plan_item *item = item_of(turn(r), row);
        if (item != NULL && item->source == PLAN_PROMPT) read += item->n_tokens;
    }
    finish(r, row);
    return read;
}

uint32_t run_new(struct rig *r, struct prompt p, uint32_t max_new) {
    uint32_t read = run(r, submit_new(r, p, max_new));
    while (pop_gone(r) != 0) continue;
    return read;
}

uint32_t cached(struct rig *r, sched_row row) {
    struct sched_history h;
    sched_get_history(r->s, row, &h);
    return h.cached;
}

struct prefix_counts store(struct rig *r) {
    struct prefix_counts n;
    prefix_get_counts(r->prefix, &n);
    return n;
}

struct sched_counts counts(struct rig *r) {
    struct sched_counts n;
    sched_get_counts(r->s, &n);
    return n;
}

const uint32_t *table(struct rig *r, sched_row row, uint32_t g) {
    return row_table(r->s, row_at(r->s, sched_row_index(row)), g);
}
