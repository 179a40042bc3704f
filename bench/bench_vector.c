/* Speed of the vector kernels on the shapes of real models, one thread: attention at several contexts, the activation
 * quantiser, norm and the gated activation, the vocabulary scans and whole draws of a token. Attention is set beside
 * the peak of fused multiply-adds, everything beside reading the same bytes from where they lie.
 *
 *     bench_vector [--level L] [--json] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "measure.h"
#include "sample/mask.h"
#include "sample/sample.h"

enum { VOCAB = 262144 };

static struct kernels kernels;

static void fill(float *x, size_t n) {
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = (float)(int32_t)state * 0x1p-29f;
    }
}

static void run_attend(void *arg) { kernels.attend(arg); }

/* Logits as models make them: a bell curve, and a few that stand out. */
static void fill_logits(float *x, size_t n) {
    uint32_t state = 54321;
    for (size_t i = 0; i < n; i++) {
        x[i] = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525 + 1013904223;
            x[i] += (float)(int32_t)state * 0x1p-29f;
        }
    }
    for (size_t i = 0; i < 20; i++) x[(i + 1) * (n / 24)] = 24 - 0.7f * (float)i;
}

/* Pages of one kv head in a fixed disorder, filled. */
static char *pages_make(const struct page_shape *shape, uint32_t *table, uint32_t pages, const float *values) {
    size_t page_bytes = page_slice_bytes(shape);
    char *arena = mem_aligned(pages, page_bytes);
    if (!arena) exit(1);
    for (uint32_t i = 0; i < pages; i++) table[i] = pages % 7 ? (i * 7 + 3) % pages : i;
    for (uint32_t p = 0; p < pages * PAGE; p++)
        kernels.store(shape, arena + table[p / PAGE] * page_bytes, p % PAGE, values + p % 13, values + p % 17);
    return arena;
}

static void run_delta(void *arg) { kernels.delta(arg); }
static void run_conv(void *arg) { kernels.conv(arg); }

/* All heads' states of a layer, one head after the other, each through `tokens` tokens. */
struct delta_layer {
    struct delta_args a;
    uint32_t heads;
    float *state;
};
static void run_delta_heads(void *arg) {
    struct delta_layer *l = arg;
    for (uint32_t h = 0; h < l->heads; h++) {
        l->a.to = l->state + (size_t)h * l->a.key_width * l->a.value_width;
        l->a.from = l->a.to;
        run_delta(&l->a);
    }
}

static void bench_delta(const struct measure *m, uint32_t tokens, uint32_t heads, uint32_t width) {
    size_t row = 4 * (size_t)width, state = (size_t)heads * width * width;
    float *x = mem_alloc(tokens * row + 2 * (size_t)tokens, sizeof *x), *s = mem_aligned(state, sizeof *s);
    char shape[64];
    if (!x || !s) exit(1);
    fill(x, tokens * row);
    fill(s, state);
    for (size_t i = 0; i < tokens * row; i++) x[i] /= (float)width;
    float *gates = x + tokens * row;
    for (uint32_t i = 0; i < 2 * tokens; i++) gates[i] = i % 2 ? 0.5f : 0.95f;
    struct delta_layer l = {.heads = heads,
                            .state = s,
                            .a = {.q = x,
                                  .k = x + width,
                                  .v = x + 2 * (size_t)width,
                                  .out = x + 3 * (size_t)width,
                                  .stride = row,
                                  .out_stride = row,
                                  .decay = gates,
                                  .rate = gates + 1,
                                  .decay_stride = 2,
                                  .rate_stride = 2,
                                  .tokens = tokens,
                                  .key_width = width,
                                  .value_width = width,
                                  .end = width}};
    snprintf(shape, sizeof shape, "%u heads of %u x %u", heads, width, width);
    measure_print(m, &(struct measure_result){.kernel = "delta",
                                              .shape = shape,
                                              .rows = tokens,
                                              .seconds = measure_call(run_delta_heads, &l),
                                              .tokens = tokens,
                                              .macs = 3.0 * tokens * (double)state,
                                              .peak = m->fp32});
    mem_free(x);
    mem_free(s);
}

static void bench_conv(const struct measure *m, uint32_t tokens, uint32_t columns) {
    size_t n = (size_t)tokens * columns;
    float *x = mem_alloc(2 * n + 8 * (size_t)columns, sizeof *x);
    char shape[64];
    if (!x) exit(1);
    fill(x, 2 * n + 8 * (size_t)columns);
    struct conv_args a = {.x = x,
                          .y = x + n,
                          .x_stride = columns,
                          .y_stride = columns,
                          .tokens = tokens,
                          .columns = columns,
                          .taps = 4,
                          .weight = x + 2 * n,
                          .weight_stride = columns,
                          .from = x + 2 * n + 4 * (size_t)columns,
                          .to = x + 2 * n + 4 * (size_t)columns,
                          .tail_stride = columns,
                          .act = ACT_SILU};
    snprintf(shape, sizeof shape, "4 taps, %u columns", columns);
    measure_print(m, &(struct measure_result){.kernel = "conv",
                                              .shape = shape,
                                              .rows = tokens,
                                              .seconds = measure_call(run_conv, &a),
                                              .tokens = tokens,
                                              .macs = 4.0 * (double)n,
                                              .peak = m->fp32});
    mem_free(x);
}

static void bench_attend_form(const struct measure *m, enum state_form form, uint32_t context, uint32_t tokens,
                              uint32_t heads, uint32_t width) {
    static const char *const names[] = {"", ", q8_0", ", q4_0"};
    uint32_t pages = (context + PAGE - 1) / PAGE;
    const struct page_shape page = {width, width, form, form, NULL};
    size_t row = (size_t)heads * width;
    uint32_t *table = mem_alloc(pages, sizeof *table);
    float *q = mem_alloc(2 * tokens * row, sizeof *q);
    float *scratch = mem_alloc(attend_scratch_floats(tokens * heads, width), sizeof *scratch);
    if (!table || !q || !scratch) exit(1);
    fill(q, 2 * tokens * row);
    char *arena = pages_make(&page, table, pages, q), shape[64];
    struct attend_args a = {.q = q,
                            .out = q + tokens * row,
                            .q_stride = row,
                            .out_stride = row,
                            .tokens = tokens,
                            .heads = heads,
                            .key_width = width,
                            .value_width = width,
                            .scale = 0.0625f,
                            .pos = context - tokens,
                            .pages = {{table, arena, page_slice_bytes(&page), form, form}},
                            .late = UINT32_MAX,
                            .scratch = scratch};
    snprintf(shape, sizeof shape, "context %u, %u heads of %u%s", context, heads, width, names[form]);
    measure_print(m, &(struct measure_result){.kernel = "attend",
                                              .shape = shape,
                                              .rows = tokens,
                                              .seconds = measure_call(run_attend, &a),
                                              .macs = 2.0 * context * (double)(tokens * row),
                                              .peak = m->fp32,
                                              .bytes = (double)pages * (double)page_slice_bytes(&page),
                                              .read = roof_read(m, arena, pages * page_slice_bytes(&page))});
    mem_free(arena);
    mem_free(table);
    mem_free(q);
    mem_free(scratch);
}

static void bench_attend(const struct measure *m, uint32_t context, uint32_t tokens, uint32_t heads, uint32_t width) {
    for (int form = FORM_F16; form <= FORM_Q4; form++)
        bench_attend_form(m, (enum state_form)form, context, tokens, heads, width);
}

struct scan {
    float *x, *y, *w;
    uint32_t n, found;
    double sum;
    struct sample_params params;
    struct logits logits;
    const struct mask *mask; /* NULL: all may be drawn */
    struct sample_result result;
};
static void run_sum_exp(void *arg) {
    struct scan *s = arg;
    s->sum = kernels.vec.sum_exp(s->x, s->n, 4, 1);
}
static void run_sum(void *arg) {
    struct scan *s = arg;
    s->sum = kernels.vec.sum(s->x, s->n);
}
static void run_peak(void *arg) {
    struct scan *s = arg;
    s->sum = (double)kernels.vec.peak(s->x, s->n);
}
static void run_at_least(void *arg) {
    struct scan *s = arg;
    s->found = kernels.vec.at_least(s->x, s->n, 3.99f, (uint32_t *)(void *)s->y, s->n);
}
static void run_norm(void *arg) {
    struct scan *s = arg;
    kernels.norm(s->y, s->x, s->w, s->n, 1e-6f);
}
static void run_gelu(void *arg) {
    struct scan *s = arg;
    kernels.glu(s->y, s->x, s->w, s->n, ACT_GELU_TANH);
}
static void run_silu(void *arg) {
    struct scan *s = arg;
    kernels.glu(s->y, s->x, s->w, s->n, ACT_SILU);
}

static void run_exp(void *arg) {
    struct scan *s = arg;
    kernels.vec.exp_shifted(s->y, s->x, s->n, 4, 1);
}
static void run_quantise(void *arg) {
    struct scan *s = arg;
    kernels.act_prepare(PACK_INT, s->y, s->x, s->n);
}
static void run_draw(void *arg) {
    struct scan *s = arg;
    sample_draw(&kernels.vec, &s->params, s->found++, s->mask, &s->logits, s->y, &s->result);
}

static void bench_scan(const struct measure *m, const char *name, const char *shape, void (*call)(void *),
                       struct scan *s, uint32_t n) {
    char text[64];
    s->n = n;
    snprintf(text, sizeof text, "%s%u values", shape, n);
    measure_print(m, &(struct measure_result){.kernel = name,
                                              .shape = text,
                                              .rows = 1,
                                              .seconds = measure_call(call, s),
                                              .bytes = (double)n * sizeof *s->x,
                                              .read = roof_read(m, s->x, n * sizeof *s->x)});
}

static void bench_draws(const struct measure *m, struct scan *s) {
    static const struct {
        const char *shape;
        float temperature, top_p, min_p, typical_p, top_n_sigma;
        int32_t top_k;
        int logprobs;
    } draws[] = {
        {"greedy, ", 0, 1, 0, 1, 0, 0, -1},
        {"greedy, 5 logprobs, ", 0, 1, 0, 1, 0, 0, 5},
        {"temperature 1, ", 1, 1, 0, 1, 0, 0, -1},
        {"top-k 40, top-p 0.95, ", 0.8f, 0.95f, 0.05f, 1, 0, 40, -1},
        {"top-p 0.95, ", 0.8f, 0.95f, 0, 1, 0, 0, -1},
        {"typical 0.95, ", 0.8f, 1, 0, 0.95f, 0, 0, -1},
        {"top-n-sigma 1, ", 0.8f, 1, 0, 1, 1, 0, -1},
    };
    static float peaks[VOCAB / LOGITS_SPAN + 1];
    fill_logits(s->x, VOCAB);
    logits_peaks(&kernels.vec, s->x, VOCAB, 0, logits_spans(VOCAB), peaks);
    s->logits = (struct logits){s->x, VOCAB, peaks};
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        cohort_sampling asked;
        sample_defaults(&asked);
        asked.temperature = draws[i].temperature;
        asked.top_k = draws[i].top_k;
        asked.top_p = draws[i].top_p;
        asked.min_p = draws[i].min_p;
        asked.typical_p = draws[i].typical_p;
        asked.top_n_sigma = draws[i].top_n_sigma;
        s->params = sample_params_make(&asked, 0, draws[i].logprobs, 0);
        bench_scan(m, "draw", draws[i].shape, run_draw, s, VOCAB);
    }
}

/* What a grammar's masks do to the row, of the kinds that there are: a few tokens, words of letters, the inside of a
 * text. They change it, so these are the last draws. */
static void bench_masked_draws(const struct measure *m, struct scan *s) {
    static const struct {
        const char *shape;
        uint32_t allowed, of; /* the first ones of so many */
    } masks[] = {{"few of a mask, ", 1, 4096}, {"a quarter and one, ", 65, 256}, {"all but 1 in 100, ", 99, 100}};
    static uint32_t bits[VOCAB / 32 + 1];
    cohort_sampling asked;
    sample_defaults(&asked);
    s->params = sample_params_make(&asked, 0, -1, 0);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        memset(bits, 0, sizeof bits);
        for (uint32_t id = 0; id < VOCAB; id++)
            if (id % masks[i].of < masks[i].allowed) bits[id / 32] |= (uint32_t)1 << id % 32;
        struct mask mask = {bits, mask_count(bits, VOCAB)};
        fill_logits(s->x, VOCAB);
        logits_peaks(&kernels.vec, s->x, VOCAB, 0, logits_spans(VOCAB), s->logits.peaks);
        s->mask = &mask;
        bench_scan(m, "draw", masks[i].shape, run_draw, s, VOCAB);
        s->mask = NULL;
    }
}

static void bench_all(const struct measure *m, struct scan *s) {
    static const uint32_t contexts[] = {128, 1024, 8192};
    for (int i = 0; i < 3; i++) bench_attend(m, contexts[i], 1, 4, 256);
    for (int i = 0; i < 3; i++) bench_attend(m, contexts[i], ATTEND_TOKENS, 4, 256);
    bench_attend(m, 1024, 1, 4, 64);
    bench_attend(m, 1024, ATTEND_TOKENS, 4, 64);
    bench_attend(m, 1024, 1, 1, 128);
    bench_attend(m, 1024, 1, 7, 128);
    bench_delta(m, 1, 16, 128);
    bench_delta(m, 64, 16, 128);
    bench_delta(m, 64, 4, 64);
    bench_conv(m, 64, 6144);
    bench_scan(m, "quantise", "", run_quantise, s, 640);
    bench_scan(m, "quantise", "", run_quantise, s, 2048);
    bench_scan(m, "norm", "", run_norm, s, 256);
    bench_scan(m, "norm", "", run_norm, s, 640);
    bench_scan(m, "norm", "", run_norm, s, 4096);
    bench_scan(m, "gelu", "", run_gelu, s, 2048);
    bench_scan(m, "silu", "", run_silu, s, 2048);
    bench_scan(m, "peak", "", run_peak, s, VOCAB);
    bench_scan(m, "at_least", "", run_at_least, s, VOCAB);
    bench_scan(m, "exp", "", run_exp, s, VOCAB);
    bench_scan(m, "sum", "", run_sum, s, VOCAB);
    bench_scan(m, "sum_exp", "", run_sum_exp, s, VOCAB);
    bench_draws(m, s);
    bench_masked_draws(m, s);
}

int main(int argc, char **argv) {
    struct measure m = {.program = "vector", .level = kernels_best(), .threads = 1};
    struct scan s = {.x = mem_aligned(VOCAB, 4), .y = mem_aligned(VOCAB, 4), .w = mem_aligned(VOCAB, 4)};
    int bad = !s.x || !s.y || !s.w;
    for (int i = 1, used; i < argc; i += used) bad |= !measure_option(&m, argc, argv, i, &used);
    if (bad || m.threads != 1 || kernels_init(&kernels, m.level) != 0)
        return fprintf(stderr, "bench_vector: bad level or argument, or no memory\n"), 2;
    fill(s.x, VOCAB);
    fill(s.y, VOCAB);
    fill(s.w, VOCAB);
    measure_machine(&m);
    bench_all(&m, &s);
    mem_free(s.x);
    mem_free(s.y);
    mem_free(s.w);
    return 0;
}
