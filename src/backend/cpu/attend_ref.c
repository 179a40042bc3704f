/* Attention in plain C, one query at a time: docs/NUMERICS.md, Attention, operation by operation. Reentrant. */
#include <math.h>

#include "backend/backend.h"
#include "backend/cpu/attend_ref.h"
#include "backend/cpu/half.h"
#include "backend/cpu/math_ref.h"

enum { PAGE = BACKEND_PAGE_TOKENS };

size_t attend_scratch_floats(uint32_t rows, uint32_t key_width) {
    return (size_t)rows * ((size_t)key_width + PAGE) + (size_t)ATTEND_ROW_FLOATS * (rows + (size_t)ATTEND_ROWS_BEHIND);
}

struct sums { /* over the blocks so far */
    float max, sum;
};

/* Without regard to NaN: a NaN score makes its own exponential NaN, and so the sum and the output. */
static float larger(float a, float b) { return a > b ? a : b; }

/* Scores, then exponentials, of the visible keys low .. high of a page; e[j] stays unset for the others. */
static struct sums weigh(const struct attend_args *a, const float *q, const uint16_t *keys, uint32_t low, uint32_t high,
                         float e[PAGE]) {
    struct sums block = {.max = -INFINITY};
    for (uint32_t j = low; j <= high; j++) {
        float s = 0;
        for (uint32_t d = 0; d < a->key_width; d++) s = fmaf(q[d], half_to_float(keys[(size_t)d * PAGE + j]), s);
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

static float weighted_value(const uint16_t *values, uint32_t width, uint32_t d, const float e[PAGE], uint32_t low,
                            uint32_t high) {
    float o = 0;
    for (uint32_t j = low; j <= high; j++) o = fmaf(e[j], half_to_float(values[(size_t)j * width + d]), o);
    return o;
}

static void attend_query(const struct attend_args *a, const float *q, uint32_t first, uint32_t last, float *out) {
    struct sums all = {0};
    for (uint32_t block = first / PAGE; block <= last / PAGE; block++) {
        const uint16_t *keys = (const uint16_t *)(const void *)(a->arena + a->table[block] * a->page_bytes);
        const uint16_t *values = keys + (size_t)a->key_width * PAGE;
        uint32_t base = block * PAGE, low = first > base ? first - base : 0;
        uint32_t high = last - base < PAGE ? last - base : PAGE - 1, width = a->value_width;
        float e[PAGE];
        struct sums here = weigh(a, q, keys, low, high, e);
        if (block == first / PAGE) {
            all = here;
            for (uint32_t d = 0; d < width; d++) out[d] = weighted_value(values, width, d, e, low, high);
            continue;
        }
        float max = larger(all.max, here.max), f = exp_ref(all.max - max), g = exp_ref(here.max - max);
        all = (struct sums){.max = max, .sum = fmaf(here.sum, g, all.sum * f)};
        for (uint32_t d = 0; d < width; d++)
            out[d] = fmaf(weighted_value(values, width, d, e, low, high), g, out[d] * f);
    }
    for (uint32_t d = 0; d < a->value_width; d++) out[d] /= all.sum;
}

void attend_ref(const struct attend_args *a) {
    for (uint32_t token = 0; token < a->tokens; token++) {
        uint32_t last = a->pos + token;
        uint32_t first = a->window != 0 && last >= a->window ? last - a->window + 1 : 0;
        for (uint32_t h = 0; h < a->heads; h++) {
            const float *q = a->q + token * a->q_stride + (size_t)h * a->key_width;
            for (uint32_t d = 0; d < a->key_width; d++) a->scratch[d] = q[d] * a->scale;
            attend_query(a, a->scratch, first, last, a->out + token * a->out_stride + (size_t)h * a->value_width);
        }
    }
}
