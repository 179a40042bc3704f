/* Attention in plain C, one query at a time: docs/NUMERICS.md, Attention, operation by operation. Reentrant. */
#include <math.h>

#include "backend/cpu/attend_ref.h"
#include "backend/cpu/codes.h"
#include "backend/cpu/math_ref.h"

size_t attend_scratch_floats(uint32_t rows, uint32_t key_width) {
    return (size_t)rows * ((size_t)key_width * 2 + PAGE) +
           (size_t)ATTEND_ROW_FLOATS * (rows + (size_t)ATTEND_ROWS_BEHIND);
}

static int key_code(enum state_form form, const char *keys, uint32_t d, uint32_t j) {
    if (form == FORM_Q8) return ((const int8_t *)keys)[(size_t)d * PAGE + j];
    return (((const uint8_t *)keys)[(size_t)d / 2 * PAGE + j] >> (d % 2 * 4) & 15) - NIBBLE_ZERO;
}

static int value_code(enum state_form form, const char *row, uint32_t d) {
    if (form == FORM_Q8) return ((const int8_t *)row)[d];
    return (((const uint8_t *)row)[d / BLOCK * 16 + d % 16] >> (d % BLOCK / 16 * 4) & 15) - NIBBLE_ZERO;
}

struct sums { /* over the blocks so far */
    float max, sum;
};

/* Without regard to NaN: a NaN score makes its own exponential NaN, and so the sum and the output. */
static float larger(float a, float b) { return a > b ? a : b; }

/* One key against the query: a chain over its columns, or over its blocks. */
static float score(enum state_form form, const char *keys, uint32_t width, uint32_t j, const float *q) {
    float s = 0;
    if (form == FORM_F16) {
        const uint16_t *halves = (const uint16_t *)(const void *)keys;
        for (uint32_t d = 0; d < width; d++) s = fmaf(q[d], half_to_float(halves[(size_t)d * PAGE + j]), s);
        return s;
    }
    const uint16_t *scales = (const uint16_t *)(const void *)(keys + page_key_codes(form, width));
    for (uint32_t b = 0; b < page_blocks(width); b++) {
        uint32_t end = (b + 1) * BLOCK < width ? (b + 1) * BLOCK : width;
        float sum = 0;
        for (uint32_t d = b * BLOCK; d < end; d++) sum = fmaf(q[d], (float)key_code(form, keys, d, j), sum);
        s = fmaf(sum, half_to_float(scales[b * PAGE + j]), s);
    }
    return s;
}

/* Scores, then exponentials, of the visible keys low .. high of a page; e[j] stays unset for the others. */
static struct sums weigh(const struct attend_args *a, const struct attend_pages *p, const float *q, const char *keys,
                         uint32_t low, uint32_t high, float e[PAGE]) {
    struct sums block = {.max = -INFINITY};
    for (uint32_t j = low; j <= high; j++) {
        float s = score(p->key_form, keys, a->key_width, j, q);
        e[j] = a->softcap != 0 ? softcap_ref(s, a->softcap) : s;
        block.max = larger(block.max, e[j]);
    }
    float lane[16] = {0};
    for (uint32_t j = low; j <= high; j++) {
        e[j] = exp_ref(e[j] - block.max);
        lane[j % 16] += e[j];
    }
    block.sum = lanes_total_ref(lane);
    return block;
}

static float weighted_value(enum state_form form, const char *values, uint32_t width, uint32_t d, const float e[PAGE],
                            uint32_t low, uint32_t high) {
    size_t row = page_value_row(form, width);
    const uint16_t *scales = (const uint16_t *)(const void *)(values + row * PAGE) + d / BLOCK * PAGE;
    float o = 0;
    for (uint32_t j = low; j <= high; j++) {
        const char *v = values + j * row;
        if (form == FORM_F16)
            o = fmaf(e[j], half_to_float(((const uint16_t *)(const void *)v)[d]), o);
        else
            o = fmaf(e[j] * half_to_float(scales[j]), (float)value_code(form, v, d), o);
    }
    return o;
}

/* q: the query, then the query rotated. */
static void attend_query(const struct attend_args *a, const float *q, uint32_t first, uint32_t last, float *out) {
    struct sums all = {0};
    for (uint32_t block = first / PAGE; block <= last / PAGE; block++) {
        const struct attend_pages *p = &a->pages[block >= a->late];
        const char *keys = p->arena + p->table[block] * p->page_bytes;
        const char *values = keys + page_keys_bytes(p->key_form, a->key_width);
        uint32_t base = block * PAGE, low = first > base ? first - base : 0;
        uint32_t high = last - base < PAGE ? last - base : PAGE - 1, width = a->value_width;
        float e[PAGE];
        struct sums here = weigh(a, p, p->key_form != FORM_F16 ? q + a->key_width : q, keys, low, high, e);
        if (block == first / PAGE) {
            all = here;
            for (uint32_t d = 0; d < width; d++) out[d] = weighted_value(p->value_form, values, width, d, e, low, high);
            continue;
        }
        float max = larger(all.max, here.max), f = exp_ref(all.max - max), g = exp_ref(here.max - max);
        all = (struct sums){.max = max, .sum = fmaf(here.sum, g, all.sum * f)};
        for (uint32_t d = 0; d < width; d++)
            out[d] = fmaf(weighted_value(p->value_form, values, width, d, e, low, high), g, out[d] * f);
    }
    for (uint32_t d = 0; d < a->value_width; d++) out[d] /= all.sum;
}

/* Stages of sums and differences of neighbours. */
void rotate_ref(float *x, uint32_t width) {
    for (uint32_t n; width > 0; x += n, width -= n) {
        n = rotated_part(width);
        for (uint32_t stage = 1; stage < n; stage *= 2) {
            float y[ROTATE_MAX];
            memcpy(y, x, n * sizeof *y);
            for (uint32_t i = 0; i < n / 2; i++) x[i] = y[2 * i] + y[2 * i + 1], x[n / 2 + i] = y[2 * i] - y[2 * i + 1];
        }
    }
}

static void rotate_query_ref(float *x, uint32_t width, const float *balance) {
    for (uint32_t d = 0; d < width && balance; d++) x[d] /= balance[d];
    rotate_ref(x, width);
    for (uint32_t n; width > 0; x += n, width -= n) {
        n = rotated_part(width);
        for (uint32_t i = 0; i < n; i++) x[i] *= 1 / (float)n;
    }
}

void attend_ref(const struct attend_args *a) {
    for (uint32_t token = 0; token < a->tokens; token++) {
        uint32_t last = a->pos + token;
        uint32_t first = a->window != 0 && last >= a->window ? last - a->window + 1 : 0;
        for (uint32_t h = 0; h < a->heads; h++) {
            const float *q = a->q + token * a->q_stride + (size_t)h * a->key_width;
            float *rotated = a->scratch + a->key_width;
            for (uint32_t d = 0; d < a->key_width; d++) a->scratch[d] = rotated[d] = q[d] * a->scale;
            rotate_query_ref(rotated, a->key_width, a->balance);
            attend_query(a, a->scratch, first, last, a->out + token * a->out_stride + (size_t)h * a->value_width);
        }
    }
}
