/* The scheduler rig of the unit tests (sched_rig.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched_internal.h"
#include "sched_rig.h"

enum { STORE_BLOCKS = 4096 };

/* Two groups, the second windowed, as in the default model. */
struct sched_config config_of(uint32_t rows, uint32_t queue, uint32_t batch) {
    return (struct sched_config){.rows_max = rows,
                                 .queue_max = queue,
                                 .batch_tokens = batch,
                                 .context_max = 4096,
                                 .groups = 2,
                                 .group = {{.window = 0}, {.window = 64}}};
}

struct rig rig_of(struct sched_config config, uint32_t full, uint32_t windowed) {
    struct rig r = {NULL, NULL, NULL};
    assert_int_equal(pages_new(&r.pages, 2, (const uint32_t[]){full, windowed}, NULL), 0);
    config.pages = r.pages;
    struct prefix_config store = {r.pages, 2, {config.group[0], config.group[1]}, STORE_BLOCKS, 1};
    if (config.tokens != NULL) assert_int_equal(prefix_new(&store, &r.prefix, NULL), 0);
    config.prefix = r.prefix;
    assert_int_equal(sched_new(&config, &r.s, NULL), 0);
    assert_true(sched_check(r.s));
    return r;
}

struct rig rig_wide(uint32_t rows, uint32_t queue, uint32_t batch) {
    return rig_of(config_of(rows, queue, batch), 4096, 4096);
}

/* Ends every row and sees that all pages came back, but for those that the store keeps. */
void rig_end(struct rig *r) {
    for (uint32_t i = 0; i < r->s->rows_total; i++) sched_finish(r->s, row_name(r->s, row_at(r->s, i)), 1);
    while (r->s->in_flight > 0) sched_commit(r->s, plan_at(r->s, r->s->planned - r->s->in_flight + 1), 0);
    assert_true(sched_check(r->s));
    struct prefix_counts n = {0};
    if (r->prefix != NULL) prefix_get_counts(r->prefix, &n);
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(prefix_used(r->s->prefix, g), 0);
        assert_int_equal(pages_available(r->pages, g) + n.idle[g], pages_total(r->pages, g));
    }
    sched_free(r->s);
    prefix_free(r->prefix);
    pages_free(r->pages);
}

sched_row reserve(struct rig *r) {
    sched_row row;
    assert_int_equal(sched_reserve(r->s, &row), 0);
    assert_int_not_equal(row, 0);
    return row;
}

sched_row submit_request(struct rig *r, struct sched_request q) {
    sched_row row = reserve(r);
    assert_int_equal(sched_submit(r->s, row, &q, NULL), 0);
    assert_true(sched_check(r->s));
    return row;
}

sched_row submit(struct rig *r, uint32_t prompt_n, uint32_t max_new) {
    return submit_request(r, (struct sched_request){.prompt_n = prompt_n, .max_new = max_new});
}

const struct plan *plan(struct rig *r) {
    const struct plan *p;
    int made = sched_plan(r->s, &p);
    assert_int_equal(made, p != NULL);
    assert_true(sched_check(r->s));
    return p;
}

void commit(struct rig *r, const struct plan *p) {
    sched_commit(r->s, p, 0);
    assert_true(sched_check(r->s));
}

/* One whole iteration; the plan stays readable until the next but one. */
const struct plan *step(struct rig *r) {
    const struct plan *p = plan(r);
    if (p != NULL) commit(r, p);
    return p;
}

const struct plan_item *item_of(const struct plan *p, sched_row row) {
    for (uint32_t i = 0; p != NULL && i < p->n_items; i++)
        if (p->items[i].row == row) return &p->items[i];
    return NULL;
}

uint32_t tokens_of(const struct plan *p, sched_row row) {
    const struct plan_item *item = item_of(p, row);
    return item == NULL ? 0 : item->n_tokens;
}

void finish(struct rig *r, sched_row row) {
    sched_finish(r->s, row, 1);
    assert_true(sched_check(r->s));
}

sched_row pop_gone(struct rig *r) {
    sched_row row;
    int popped = sched_pop_gone(r->s, &row);
    assert_int_equal(popped, row != 0);
    assert_true(sched_check(r->s));
    return row;
}

void assert_state(struct rig *r, sched_row row, enum row_state state) {
    assert_int_equal(sched_row_state(r->s, row), state);
}
