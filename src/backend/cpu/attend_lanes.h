/* Attention over sixteen lanes: the rest of vector_LEVEL.c, after vector_lanes.h.
 *
 * Rows are the queries of the call, token by token and head by head. A page is taken once: scores of all its keys for
 * every row that sees it (lanes are keys), then each row's softmax, then the values (lanes are dimensions), joined to
 * the row's output in the same pass. Up to TILE_ROWS rows share each converted key or value in registers. */
#ifndef BACKEND_CPU_ATTEND_LANES_H
#define BACKEND_CPU_ATTEND_LANES_H

#include "backend/cpu/attend_ref.h"
#include "backend/cpu/codes.h"
#include "backend/cpu/kernels.h"

enum {
    TILE_ROWS = LANES_ACCUMULATORS < 12 ? LANES_ACCUMULATORS : 12,
    TILE_SUMS = TILE_ROWS > 4 ? TILE_ROWS * 4 : 16, /* room for any tile's; it uses the first rows * wide */
    CHUNK = 64,                                     /* columns of values */
};
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
    float *q;          /* [row][key_width], scaled */
    float *rotated;    /* the same, rotated, if any page asks for it */
    float *weights;    /* [row][PAGE]: scores, then their exponentials */
    float *max, *sum;  /* [row]: over the pages so far */
    float *page_sum;   /* [row]: of the page at hand */
    float *old, *page; /* [row]: factors of what was so far and of the page at hand; `page` is its maximum first */
    const char *next;  /* the page after it */
    struct view views[ATTEND_TOKENS];
};

/* Scores of at least the keys low .. high. While it works it asks for the page's values, which lie behind the keys; the
 * values' tiles ask for the next keys. */
LANES_INLINE void score_tile(const int rows, const int wide, const char *page, const float *q, uint32_t width,
                             float *scores, uint32_t low, uint32_t high) {
    const uint16_t *keys = (const uint16_t *)(const void *)page;
    const uint16_t *ahead = keys + (size_t)width * PAGE;
    const uint32_t step = 16 * (uint32_t)wide;
    for (uint32_t part = low / step * step; part <= high; part += step) {
        lanes sums[TILE_ROWS * 2];
        for (int i = 0; i < rows * wide; i++) sums[i] = lanes_splat(0);
        for (uint32_t d = 0; d < width; d++) {
            lanes_prefetch(ahead);
            ahead += 16 * wide;
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

/* The rows of a tile of values: all have the same view of the page. */
struct value_rows {
    const float *weights;    /* [row][PAGE] */
    const float *old, *page; /* [row]: factors of what the output holds and of this page */
    float *out[TILE_ROWS];
    const char *ahead; /* what to ask memory for meanwhile: as much as is read of the values */
};

/* The sums of 16 * wide columns of a page's values, `stride` apart from key to key. Pointers walk, so that each row's
 * weight lies at a constant distance from one of them and costs no instruction beside its load. */
LANES_INLINE void weigh_values(const int rows, const int wide, const uint16_t *values, size_t stride,
                               const struct view *view, const float *weights, const uint16_t *ahead, lanes *sums) {
    for (int i = 0; i < rows * wide; i++) sums[i] = lanes_splat(0);
    const float *w = weights + view->low, *end = weights + view->high + 1;
    values += view->low * stride;
    _Pragma("GCC unroll 2") for (; w < end; w++, values += stride, ahead += 16 * wide) {
        for (int line = 0; line < wide; line += 2) lanes_prefetch(ahead + 16 * line);
        for (int l = 0; l < wide; l++) {
            lanes v = lanes_load_half(values + 16 * l);
            for (int r = 0; r < rows; r++)
                sums[r * wide + l] = lanes_fma(lanes_splat(w[r * PAGE]), v, sums[r * wide + l]);
        }
    }
}

/* A page's sums join 16 * wide columns of the output. */
LANES_INLINE void join_columns(const int rows, const int wide, const struct view *view, const struct value_rows *v,
                               size_t column, const lanes *sums) {
    for (int r = 0; r < rows; r++) {
        lanes old = lanes_splat(v->old[r]), page = lanes_splat(v->page[r]);
        for (int l = 0; l < wide; l++) {
            float *o = v->out[r] + column + 16 * l;
            lanes x = sums[r * wide + l];
            lanes_store(o, view->start ? x : lanes_fma(x, page, lanes_mul(lanes_load(o), old)));
        }
    }
}

/* The same for fewer than sixteen columns. */
LANES_INLINE void join_last(const int rows, const struct view *view, const struct value_rows *v, size_t column,
                            int count, const lanes *sums) {
    for (int r = 0; r < rows; r++) {
        float *o = v->out[r] + column;
        lanes x = sums[r], before = lanes_mul(lanes_load_first(o, count), lanes_splat(v->old[r]));
        lanes_store_first(o, view->start ? x : lanes_fma(x, lanes_splat(v->page[r]), before), count);
    }
}

LANES_INLINE void value_columns(const int rows, const int wide, const uint16_t *values, uint32_t width,
                                const struct view *view, const struct value_rows *v, size_t column) {
    lanes sums[TILE_SUMS];
    const uint16_t *ahead = (const uint16_t *)(const void *)v->ahead;
    weigh_values(rows, wide, values + column, width, view, v->weights, ahead + column * PAGE, sums);
    join_columns(rows, wide, view, v, column, sums);
}

/* The last columns of a width that is no multiple of 16. */
LANES_INLINE void value_rest(const int rows, const uint16_t *values, uint32_t width, const struct view *view,
                             const struct value_rows *v, size_t column, int count) {
    lanes sums[TILE_SUMS];
    const uint16_t *ahead = (const uint16_t *)(const void *)v->ahead;
    uint16_t block[PAGE * 16] = {0};
    for (uint32_t j = view->low; j <= view->high; j++)
        memcpy(block + 16 * j, values + column + (size_t)j * width, sizeof(uint16_t) * (size_t)count);
    weigh_values(rows, 1, block, 16, view, v->weights, ahead + column * PAGE, sums);
    join_last(rows, view, v, column, count, sums);
}

/* Columns [d, end) of the output. */
LANES_INLINE void value_tile(const int rows, const int wide, const char *page, uint32_t width, uint32_t d, uint32_t end,
                             const struct view *view, const struct value_rows *v) {
    const uint16_t *values = (const uint16_t *)(const void *)page;
    uint32_t step = 16 * (uint32_t)wide;
    for (; end - d >= step; d += step) value_columns(rows, wide, values, width, view, v, d);
    for (; end - d >= 16; d += 16) value_columns(rows, 1, values, width, view, v, d);
    if (d < end) value_rest(rows, values, width, view, v, d, (int)(end - d));
}

#include "backend/cpu/attend_codes.h"

/* One instance of a tile for every number of rows that the level's registers hold. */
#define EACH_TILE(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

#define SCORE_CASE(n)                                                                                                  \
    case n:                                                                                                            \
        if (n <= TILE_ROWS) score_tile(n, KEY_LANES(n), keys, q, width, scores, low, high);                            \
        break;
#define SCORE_CODES_CASE(n)                                                                                            \
    case n:                                                                                                            \
        if (n <= TILE_ROWS) score_codes(form, n, KEY_LANES(n), keys, q, width, scores, low, high);                     \
        break;
LANES_INLINE void score_codes_rows(const enum state_form form, uint32_t rows, const char *keys, const float *q,
                                   uint32_t width, float *scores, uint32_t low, uint32_t high) {
    switch (rows) { EACH_TILE(SCORE_CODES_CASE) }
}
static void score_rows(enum state_form form, uint32_t rows, const char *keys, const float *q, uint32_t width,
                       float *scores, uint32_t low, uint32_t high) {
    if (form == FORM_Q8)
        score_codes_rows(FORM_Q8, rows, keys, q, width, scores, low, high);
    else if (form == FORM_Q4)
        score_codes_rows(FORM_Q4, rows, keys, q, width, scores, low, high);
    else
        switch (rows) { EACH_TILE(SCORE_CASE) }
}

#define VALUE_CASE(n)                                                                                                  \
    case n:                                                                                                            \
        if (n <= TILE_ROWS) value_tile(n, VALUE_LANES(n), values, width, d, end, view, v);                             \
        break;
#define CODE_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        if (n <= TILE_ROWS) code_tile(form, n, VALUE_LANES(n), values, width, d, end, view, v);                        \
        break;
LANES_INLINE void code_rows(const enum state_form form, uint32_t rows, const char *values, uint32_t width, uint32_t d,
                            uint32_t end, const struct view *view, const struct value_rows *v) {
    switch (rows) { EACH_TILE(CODE_CASE) }
}
static void value_rows(enum state_form form, uint32_t rows, const char *values, uint32_t width, uint32_t d,
                       uint32_t end, const struct view *view, const struct value_rows *v) {
    if (form == FORM_Q8)
        code_rows(FORM_Q8, rows, values, width, d, end, view, v);
    else if (form == FORM_Q4)
        code_rows(FORM_Q4, rows, values, width, d, end, view, v);
    else
        switch (rows) { EACH_TILE(VALUE_CASE) }
}

/* The next tile's rows when `left` rows are to be divided evenly. */
static uint32_t tile_rows(uint32_t left) {
    uint32_t tiles = (left + TILE_ROWS - 1) / TILE_ROWS;
    return (left + tiles - 1) / tiles;
}

/* Scores of what tokens [token, end) see: from the first one's first key to the last one's last. */
static void scores(struct attention *t, enum state_form form, const char *keys, uint32_t token, uint32_t end) {
    const float *q = form != FORM_F16 ? t->rotated : t->q;
    uint32_t width = t->args->key_width, row = token * t->args->heads, end_row = end * t->args->heads;
    uint32_t low = t->views[token].low, high = t->views[end - 1].high;
    for (uint32_t n; row < end_row; row += n) {
        n = tile_rows(end_row - row);
        score_rows(form, n, keys, q + (size_t)row * width, width, t->weights + (size_t)row * PAGE, low, high);
    }
}

/* The two lanes of keys of a page that a token sees. */
struct seen {
    lanes_mask mask[2];
};

static struct seen seen_of(const struct view *view) {
    int low = (int)view->low, end = (int)view->high + 1;
    return (struct seen){{lanes_mask_range(low, end), lanes_mask_range(low - 16, end - 16)}};
}

/* The largest visible score of each row goes to `page`: any number if a score is NaN, whose exponential is NaN anyway.
 * Apart from the exponentials, because rows wait for their maximum much longer than it takes to compute. */
static void find_maxima(struct attention *t, uint32_t token, uint32_t end) {
    uint32_t heads = t->args->heads, row = token * heads;
    lanes none = lanes_splat(-INFINITY), cap = lanes_splat(t->args->softcap);
    for (; token < end; token++) {
        struct seen seen = seen_of(&t->views[token]);
        for (uint32_t h = 0; h < heads; h++, row++) {
            float *w = t->weights + (size_t)row * PAGE;
            lanes s0 = lanes_load(w), s1 = lanes_load(w + 16);
            if (t->args->softcap != 0) {
                s0 = lanes_softcap(s0, cap), s1 = lanes_softcap(s1, cap);
                lanes_store(w, s0), lanes_store(w + 16, s1);
            }
            s0 = lanes_pick(seen.mask[0], s0, none);
            s1 = lanes_pick(seen.mask[1], s1, none);
            t->page[row] = lanes_largest(lanes_max(s0, s1));
        }
    }
}

/* Scores become exponentials, those of unseen keys +0. */
static void take_exponentials(struct attention *t, uint32_t token, uint32_t end) {
    uint32_t heads = t->args->heads, row = token * heads;
    for (; token < end; token++) {
        struct seen seen = seen_of(&t->views[token]);
        for (uint32_t h = 0; h < heads; h++, row++) {
            float *w = t->weights + (size_t)row * PAGE;
            lanes max = lanes_splat(t->page[row]);
            lanes e0 = lanes_keep(seen.mask[0], lanes_exp(lanes_sub(lanes_load(w), max)));
            lanes e1 = lanes_keep(seen.mask[1], lanes_exp(lanes_sub(lanes_load(w + 16), max)));
            lanes_store(w, e0);
            lanes_store(w + 16, e1);
            t->page_sum[row] = lanes_sum(lanes_add(e0, e1));
        }
    }
}

/* The page's maximum and sum join those so far, sixteen rows at a time; rows from `end` on keep theirs. A row's first
 * page finds -infinity and 0 there: it comes out with a factor of 1 and its own sum. */
static void join_sums(struct attention *t, uint32_t row, uint32_t end) {
    for (; row < end; row += 16) {
        lanes_mask ours = lanes_mask_range(0, (int)(end - row));
        lanes so_far = lanes_load(t->max + row), here = lanes_load(t->page + row), sum = lanes_load(t->sum + row);
        lanes max = lanes_max(so_far, here);
        lanes old = lanes_exp(lanes_sub(so_far, max)), page = lanes_exp(lanes_sub(here, max));
        lanes both = lanes_fma(lanes_load(t->page_sum + row), page, lanes_mul(sum, old));
        lanes_store(t->old + row, old);
        lanes_store(t->page + row, page);
        lanes_store(t->max + row, lanes_pick(ours, max, so_far));
        lanes_store(t->sum + row, lanes_pick(ours, both, sum));
    }
}

/* The outputs of token `from` and what follows, head by head. */
struct outputs {
    float *token, *head, *end; /* the token's first head, the one at hand, behind its last */
};

static struct outputs outputs_from(const struct attend_args *a, uint32_t token) {
    float *out = a->out + token * a->out_stride;
    return (struct outputs){out, out, out + (size_t)a->heads * a->value_width};
}

static float *outputs_next(struct outputs *o, const struct attend_args *a) {
    float *out = o->head;
    o->head += a->value_width;
    if (o->head == o->end) o->token += a->out_stride, o->head = o->token, o->end += a->out_stride;
    return out;
}

/* The values of a page for tokens [token, end), whose view is the same. All rows take a chunk of columns before the
 * next, so that it stays in the nearest cache. */
static void join_same(struct attention *t, enum state_form form, const char *values, uint32_t token, uint32_t end) {
    const struct attend_args *a = t->args;
    uint32_t width = a->value_width, end_row = end * a->heads;
    for (uint32_t d = 0; d < width; d += CHUNK) {
        struct outputs out = outputs_from(a, token);
        for (uint32_t row = token * a->heads, n; row < end_row; row += n) {
            struct value_rows v = {t->weights + (size_t)row * PAGE, t->old + row, t->page + row, {0}, t->next};
            n = tile_rows(end_row - row);
            for (uint32_t i = 0; i < n; i++) v.out[i] = outputs_next(&out, a);
            value_rows(form, n, values, width, d, width - d < CHUNK ? width : d + CHUNK, &t->views[token], &v);
        }
    }
}

/* Tokens with the same view go together: all of them in most pages, each alone where windows or the last page end. */
static void join_values(struct attention *t, enum state_form form, const char *values, uint32_t token, uint32_t end) {
    for (uint32_t same; token < end; token = same) {
        for (same = token + 1; same < end; same++)
            if (memcmp(&t->views[same], &t->views[token], sizeof t->views[0]) != 0) break;
        join_same(t, form, values, token, same);
    }
}

static uint32_t first_visible(const struct attend_args *a, uint32_t token) {
    uint32_t last = a->pos + token;
    return a->window != 0 && last >= a->window ? last - a->window + 1 : 0;
}

static const struct attend_pages *pages_at(const struct attend_args *a, uint32_t block) {
    return &a->pages[block >= a->late];
}

static const char *page_at(const struct attend_args *a, uint32_t block) {
    const struct attend_pages *p = pages_at(a, block);
    return p->arena + p->table[block] * p->page_bytes;
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
    const struct attend_pages *pages = pages_at(a, block);
    const char *keys = page_at(a, block), *values = keys + page_keys_bytes(pages->key_form, a->key_width);
    t->next = block < last_block ? page_at(a, block + 1) : keys;
    scores(t, pages->key_form, keys, token, end);
    find_maxima(t, token, end);
    take_exponentials(t, token, end);
    join_sums(t, token * a->heads, end * a->heads);
    join_values(t, pages->value_form, values, token, end);
}

static void attend(const struct attend_args *a) {
    uint32_t rows = a->tokens * a->heads, width = a->key_width, padded = rows + ATTEND_ROWS_BEHIND;
    struct attention t = {.args = a, .q = a->scratch, .rotated = a->scratch + (size_t)rows * width};
    t.weights = t.rotated + (size_t)rows * width;
    t.max = t.weights + (size_t)rows * PAGE;
    t.sum = t.max + padded;
    t.page_sum = t.sum + padded;
    t.old = t.page_sum + padded;
    t.page = t.old + padded;
    for (uint32_t row = 0; row < padded; row++) t.max[row] = -INFINITY, t.sum[row] = t.page_sum[row] = t.page[row] = 0;
    lanes scale = lanes_splat(a->scale);
    for (uint32_t token = 0; token < a->tokens; token++) {
        const float *q = a->q + token * a->q_stride;
        OVER_LANES(t.q + (size_t)token * a->heads * width, q, q, a->heads * width, lanes_mul(v, scale));
    }
    uint32_t last_block = (a->pos + a->tokens - 1) / PAGE, first_block = first_visible(a, 0) / PAGE;
    if (pages_at(a, first_block)->key_form != FORM_F16 || pages_at(a, last_block)->key_form != FORM_F16) {
        memcpy(t.rotated, t.q, sizeof(float) * rows * width);
        for (uint32_t row = 0; row < rows; row++) rotate_query(t.rotated + (size_t)row * width, width, a->balance);
    }
    for (uint32_t block = first_block; block <= last_block; block++) take_page(&t, block, last_block);
    struct outputs outputs = outputs_from(a, 0);
    for (uint32_t row = 0; row < rows; row++) {
        float *out = outputs_next(&outputs, a);
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
    k->vec =
        (struct vecops){.peak = peak, .at_least = at_least, .exp_shifted = exp_shifted, .sum = sum, .sum_exp = sum_exp};
}

#endif
