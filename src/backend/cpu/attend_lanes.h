/* Attention over sixteen lanes: the rest of vector_LEVEL.c, after vector_lanes.h.
 *
 * Rows are the queries of the call, token by token and head by head. A page is taken once: scores of all its keys for
 * every row that sees it (lanes are keys), then each row's softmax, then the values (lanes are dimensions), joined to
 * the row's output in the same pass. Up to TILE_ROWS rows share each converted key or value in registers. */
#ifndef BACKEND_CPU_ATTEND_LANES_H
#define BACKEND_CPU_ATTEND_LANES_H

#include "backend/cpu/kernels.h"

enum { TILE_ROWS = LANES_ACCUMULATORS < 8 ? LANES_ACCUMULATORS : 8 };
_Static_assert(PAGE == 32, "a row's scores in one page are two lanes");

/* How many lanes wide a tile of `rows` rows is, so that its sums stay in registers. */
#define VALUE_LANES(rows) (LANES_WIDE_ACCUMULATORS / (rows) >= 4 ? 4 : LANES_WIDE_ACCUMULATORS / (rows) >= 2 ? 2 : 1)
#define KEY_LANES(rows)   (LANES_WIDE_ACCUMULATORS / (rows) >= 2 ? 2 : 1)

/* What one token sees of the page at hand. */
struct view {
    uint32_t low, high; /* visible keys, inclusive */
    int start;          /* it is the token's first page */
};

/* A call's state: parts of the caller's scratch, indexed by row. */
struct attention {
    const struct attend_args *args;
    float *q;             /* [row][key_width], scaled */
    float *weights;       /* [row][PAGE]: scores, then their exponentials */
    float *max, *sum;     /* over the pages so far */
    float *page_sum;      /* of the page at hand */
    float *old, *page;    /* factors of what was so far and of the page at hand */
    const uint16_t *next; /* keys of the page after it */
    struct view views[ATTEND_TOKENS];
};

/* While it works it asks for the page's values, which lie behind the keys; the values' tiles ask for the next keys. */
LANES_INLINE void score_tile(const int rows, const int wide, const uint16_t *keys, const float *q, uint32_t width,
                             float *scores) {
    const uint16_t *ahead = keys + (size_t)width * PAGE;
    for (int part = 0; part < PAGE; part += 16 * wide) {
        lanes sums[TILE_ROWS * 2];
        for (int i = 0; i < rows * wide; i++) sums[i] = lanes_splat(0);
        for (uint32_t d = 0; d < width; d++) {
            lanes_prefetch(ahead + (size_t)d * PAGE);
            for (int l = 0; l < wide; l++) {
                lanes k = lanes_load_half(keys + (size_t)d * PAGE + part + 16 * l);
                for (int r = 0; r < rows; r++) {
                    lanes x = lanes_splat(q[(size_t)r * width + d]);
                    sums[r * wide + l] = lanes_fma(x, k, sums[r * wide + l]);
                }
            }
        }
        for (int r = 0; r < rows; r++)
            for (int l = 0; l < wide; l++) lanes_store(scores + r * PAGE + part + 16 * l, sums[r * wide + l]);
    }
}

/* Columns d .. d + count - 1 of the output of `rows` rows that have the same view of the page; count is 16 * wide, or
 * less than 16 for the last columns of an odd width. */
LANES_INLINE void value_columns(const int rows, const int wide, const uint16_t *values, uint32_t width,
                                const float *weights, const struct view *view, float *const *out, const float *old,
                                const float *page, uint32_t d, int count, const uint16_t *next) {
    lanes sums[TILE_ROWS > 4 ? TILE_ROWS * 4 : 16];
    for (int i = 0; i < rows * wide; i++) sums[i] = lanes_splat(0);
    for (uint32_t j = view->low; j <= view->high; j++) {
        const uint16_t *from = values + (size_t)j * width + d;
        uint16_t last[16] = {0};
        lanes_prefetch(next + (size_t)d * PAGE + j * 16 * (uint32_t)wide);
        if (count < 16) from = memcpy(last, from, sizeof(uint16_t) * (size_t)count);
        for (int l = 0; l < wide; l++) {
            lanes v = lanes_load_half(from + 16 * l);
            for (int r = 0; r < rows; r++)
                sums[r * wide + l] = lanes_fma(lanes_splat(weights[r * PAGE + j]), v, sums[r * wide + l]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < wide; l++) {
            float *o = out[r] + d + 16 * l;
            lanes x = sums[r * wide + l];
            if (!view->start) {
                lanes before = count < 16 ? lanes_load_first(o, count) : lanes_load(o);
                x = lanes_fma(x, lanes_splat(page[r]), lanes_mul(before, lanes_splat(old[r])));
            }
            if (count < 16)
                lanes_store_first(o, x, count);
            else
                lanes_store(o, x);
        }
    }
}

LANES_INLINE void value_tile(const int rows, const int wide, const uint16_t *values, uint32_t width,
                             const float *weights, const struct view *view, float *const *out, const float *old,
                             const float *page, const uint16_t *next) {
    uint32_t d = 0, step = 16 * (uint32_t)wide;
    for (; width - d >= step; d += step)
        value_columns(rows, wide, values, width, weights, view, out, old, page, d, (int)step, next);
    for (; width - d >= 16; d += 16) value_columns(rows, 1, values, width, weights, view, out, old, page, d, 16, next);
    if (d < width) value_columns(rows, 1, values, width, weights, view, out, old, page, d, (int)(width - d), next);
}

/* One instance of a tile for every number of rows that the level's registers hold. */
#define EACH_TILE(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

#define SCORE_CASE(n)                                                                                                  \
    case n:                                                                                                            \
        if (n <= TILE_ROWS) score_tile(n, KEY_LANES(n), keys, q, width, scores);                                       \
        break;
static void score_rows(uint32_t rows, const uint16_t *keys, const float *q, uint32_t width, float *scores) {
    switch (rows) { EACH_TILE(SCORE_CASE) }
}

#define VALUE_CASE(n)                                                                                                  \
    case n:                                                                                                            \
        if (n <= TILE_ROWS) value_tile(n, VALUE_LANES(n), values, width, weights, view, out, old, page, next);         \
        break;
static void value_rows(uint32_t rows, const uint16_t *values, uint32_t width, const float *weights,
                       const struct view *view, float *const *out, const float *old, const float *page,
                       const uint16_t *next) {
    switch (rows) { EACH_TILE(VALUE_CASE) }
}

/* The next tile's rows when `left` rows are to be divided evenly. */
static uint32_t tile_rows(uint32_t left) {
    uint32_t tiles = (left + TILE_ROWS - 1) / TILE_ROWS;
    return (left + tiles - 1) / tiles;
}

static void scores(struct attention *t, const uint16_t *keys, uint32_t row, uint32_t end) {
    uint32_t width = t->args->key_width;
    for (uint32_t n; row < end; row += n) {
        n = tile_rows(end - row);
        score_rows(n, keys, t->q + (size_t)row * width, width, t->weights + (size_t)row * PAGE);
    }
}

/* Scores become exponentials, those of unseen keys +0; the page's maximum joins the row's. */
static void soften(struct attention *t, uint32_t row, const struct view *view) {
    float *w = t->weights + (size_t)row * PAGE;
    lanes s0 = lanes_load(w), s1 = lanes_load(w + 16);
    if (t->args->softcap != 0) {
        s0 = lanes_softcap(s0, lanes_splat(t->args->softcap));
        s1 = lanes_softcap(s1, lanes_splat(t->args->softcap));
    }
    int low = (int)view->low, end = (int)view->high + 1;
    lanes_mask seen0 = lanes_mask_range(low, end), seen1 = lanes_mask_range(low - 16, end - 16);
    lanes none = lanes_splat(-INFINITY);
    s0 = lanes_pick(seen0, s0, none);
    s1 = lanes_pick(seen1, s1, none);
    float max = lanes_largest(lanes_max(s0, s1)); /* any number if a score is NaN: its exponential is NaN anyway */
    lanes e0 = lanes_keep(seen0, lanes_exp(lanes_sub(s0, lanes_splat(max))));
    lanes e1 = lanes_keep(seen1, lanes_exp(lanes_sub(s1, lanes_splat(max))));
    lanes_store(w, e0);
    lanes_store(w + 16, e1);
    t->page_sum[row] = lanes_sum(lanes_add(e0, e1));
    float both = view->start || max > t->max[row] ? max : t->max[row];
    t->old[row] = view->start ? 0 : t->max[row] - both;
    t->page[row] = max - both;
    t->max[row] = both;
}

static void join_sums(struct attention *t, uint32_t row, uint32_t end) {
    exp_shifted(t->old + row, t->old + row, end - row, 0, 1);
    exp_shifted(t->page + row, t->page + row, end - row, 0, 1);
    for (; row < end; row++) {
        if (t->views[row / t->args->heads].start)
            t->sum[row] = t->page_sum[row];
        else
            t->sum[row] = fmaf(t->page_sum[row], t->page[row], t->sum[row] * t->old[row]);
    }
}

static float *row_out(const struct attend_args *a, uint32_t row) {
    return a->out + row / a->heads * a->out_stride + (size_t)(row % a->heads) * a->value_width;
}

/* Tokens with the same view go together: all of them in most pages, each alone where windows or the last page end. */
static void join_values(struct attention *t, const uint16_t *values, uint32_t token, uint32_t end_token) {
    const struct attend_args *a = t->args;
    for (uint32_t same; token < end_token; token = same) {
        const struct view *view = &t->views[token];
        for (same = token + 1; same < end_token; same++)
            if (memcmp(&t->views[same], view, sizeof *view) != 0) break;
        for (uint32_t row = token * a->heads, n; row < same * a->heads; row += n) {
            float *out[TILE_ROWS];
            n = tile_rows(same * a->heads - row);
            for (uint32_t i = 0; i < n; i++) out[i] = row_out(a, row + i);
            value_rows(n, values, a->value_width, t->weights + (size_t)row * PAGE, view, out, t->old + row,
                       t->page + row, t->next);
        }
    }
}

static uint32_t first_visible(const struct attend_args *a, uint32_t token) {
    uint32_t last = a->pos + token;
    return a->window != 0 && last >= a->window ? last - a->window + 1 : 0;
}

static const uint16_t *page_keys(const struct attend_args *a, uint32_t block) {
    return (const uint16_t *)(const void *)(a->arena + a->table[block] * a->page_bytes);
}

static void take_page(struct attention *t, uint32_t block, uint32_t last_block) {
    const struct attend_args *a = t->args;
    uint32_t base = block * PAGE, token = a->pos >= base ? 0 : base - a->pos, end = token;
    for (; end < a->tokens && first_visible(a, end) < base + PAGE; end++) {
        uint32_t first = first_visible(a, end), last = a->pos + end;
        t->views[end] = (struct view){.low = first > base ? first - base : 0,
                                      .high = last - base < PAGE ? last - base : PAGE - 1,
                                      .start = first >= base};
    }
    const uint16_t *keys = page_keys(a, block);
    t->next = block < last_block ? page_keys(a, block + 1) : keys;
    const uint16_t *values = keys + (size_t)a->key_width * PAGE;
    uint32_t row = token * a->heads, end_row = end * a->heads;
    scores(t, keys, row, end_row);
    for (uint32_t r = row; r < end_row; r++) soften(t, r, &t->views[r / a->heads]);
    join_sums(t, row, end_row);
    join_values(t, values, token, end);
}

static void attend(const struct attend_args *a) {
    uint32_t rows = a->tokens * a->heads, width = a->key_width;
    struct attention t = {.args = a, .q = a->scratch, .weights = a->scratch + (size_t)rows * width};
    t.max = t.weights + (size_t)rows * PAGE;
    t.sum = t.max + rows;
    t.page_sum = t.sum + rows;
    t.old = t.page_sum + rows;
    t.page = t.old + rows;
    lanes scale = lanes_splat(a->scale);
    for (uint32_t token = 0; token < a->tokens; token++) {
        const float *q = a->q + token * a->q_stride;
        OVER_LANES(t.q + (size_t)token * a->heads * width, q, q, a->heads * width, lanes_mul(v, scale));
    }
    uint32_t last_block = (a->pos + a->tokens - 1) / PAGE;
    for (uint32_t block = first_visible(a, 0) / PAGE; block <= last_block; block++) take_page(&t, block, last_block);
    for (uint32_t row = 0; row < rows; row++) {
        float *out = row_out(a, row);
        OVER_LANES(out, out, out, a->value_width, lanes_div(v, lanes_splat(t.sum[row])));
    }
}

static void vector_fill(struct kernels *k) {
    k->norm = norm;
    k->rope = rope;
    k->glu = glu;
    k->add = add;
    k->softcap = softcap;
    k->store = store;
    k->attend = attend;
    k->vec = (struct vecops){
        .peak = peak, .at_least = at_least, .exp_shifted = exp_shifted, .sum = sum, .sum_exp = sum_exp};
}

#endif
