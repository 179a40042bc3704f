#include "expected.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *expected_root(void) {
    const char *root = getenv("COHORT_VECTORS");
    if (!root || !*root) root = COHORT_VECTORS_DIR;
    char path[512];
    snprintf(path, sizeof path, "%s/llama/expected.json", root);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fclose(f);
    return root;
}

static void *checked(void *memory) {
    if (!memory) fail_msg("out of memory");
    return memory;
}

/* A file of floats, whole. */
static float *load_floats(const char *folder, const char *name, size_t *n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", expected_root(), folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    long bytes = ftell(f);
    rewind(f);
    float *data = checked(malloc((size_t)bytes));
    if (fread(data, 1, (size_t)bytes, f) != (size_t)bytes) fail_msg("cannot read %s", path);
    fclose(f);
    *n = (size_t)bytes / sizeof *data;
    return data;
}

/* {"file", "offset", "shape"} inside `all`. */
static const float *part(const json_t *ref, const float *all, size_t n, uint32_t *dims, size_t n_dims) {
    const json_t *shape = json_object_get(ref, "shape");
    size_t offset = (size_t)json_integer_value(json_object_get(ref, "offset")), size = 1;
    assert_int_equal(json_array_size(shape), n_dims);
    for (size_t i = 0; i < n_dims; i++) {
        dims[i] = (uint32_t)json_integer_value(json_array_get(shape, i));
        size *= dims[i];
    }
    assert_true(offset + size <= n);
    return all + offset;
}

static int32_t *integers(const json_t *array, size_t expected_n) {
    assert_int_equal(json_array_size(array), expected_n);
    int32_t *out = checked(calloc(expected_n + 1, sizeof *out));
    for (size_t i = 0; i < expected_n; i++) out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return out;
}

static float *numbers(const json_t *array, size_t expected_n) {
    assert_int_equal(json_array_size(array), expected_n);
    float *out = checked(calloc(expected_n + 1, sizeof *out));
    for (size_t i = 0; i < expected_n; i++) out[i] = (float)json_number_value(json_array_get(array, i));
    return out;
}

static void load_prompt(struct expected_prompt *p, const json_t *j, const float *logits, size_t n_floats,
                        uint32_t *vocab) {
    uint32_t dims[2];
    p->n = (uint32_t)json_integer_value(json_object_get(j, "n"));
    p->ids = integers(json_object_get(j, "ids"), p->n);
    p->argmax = integers(json_object_get(j, "argmax"), p->n);
    p->gap = numbers(json_object_get(j, "gap"), p->n);
    p->next_logprob = numbers(json_object_get(j, "next_logprob"), p->n - 1);
    p->logits = part(json_object_get(j, "logits"), logits, n_floats, dims, 2);
    p->n_logits = dims[0];
    *vocab = dims[1];
    const json_t *greedy = json_object_get(j, "greedy"), *ids = json_object_get(greedy, "ids");
    p->n_greedy = (uint32_t)json_array_size(ids);
    assert_true(p->n_greedy <= EXPECTED_GREEDY_MAX);
    for (uint32_t i = 0; i < p->n_greedy; i++) {
        p->greedy[i] = (int32_t)json_integer_value(json_array_get(ids, i));
        p->greedy_gap[i] = (float)json_number_value(json_array_get(json_object_get(greedy, "gap"), i));
    }
}

static void load_tolerance(struct expected *e, json_t *tolerance) {
    const char *name;
    json_t *value;
    e->strict_max = e->strict_rms = INFINITY;
    json_object_foreach(tolerance, name, value) {
        double max = json_number_value(json_object_get(value, "max"));
        double rms = json_number_value(json_object_get(value, "rms"));
        e->strict_max = fmin(e->strict_max, max);
        e->strict_rms = fmin(e->strict_rms, rms);
        e->loose_max = fmax(e->loose_max, max);
        e->loose_rms = fmax(e->loose_rms, rms);
    }
}

void expected_load(struct expected *e, const char *folder) {
    *e = (struct expected){0};
    char path[512];
    snprintf(path, sizeof path, "%s/%s/expected.json", expected_root(), folder);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fail_msg("%s: %s", path, error.text);
    load_tolerance(e, json_object_get(root, "tolerance"));

    size_t n;
    float *logits = load_floats(folder, "logits.f32", &n);
    e->files[0] = logits;
    const json_t *prompts = json_object_get(root, "prompts");
    e->n_prompts = (uint32_t)json_array_size(prompts);
    assert_in_range(e->n_prompts, 1, EXPECTED_PROMPTS_MAX);
    for (uint32_t i = 0; i < e->n_prompts; i++)
        load_prompt(&e->prompts[i], json_array_get(prompts, i), logits, n, &e->vocab);

    const json_t *trace = json_object_get(root, "trace");
    if (trace) {
        uint32_t dims[3];
        float *values = load_floats(folder, "trace.f32", &n);
        e->files[1] = values;
        e->trace = part(json_object_get(trace, "values"), values, n, dims, 3);
        e->trace_rows = dims[0];
        e->trace_n = dims[1];
        e->trace_width = dims[2];
        e->trace_ids = integers(json_object_get(trace, "ids"), e->trace_n);
    }
    json_decref(root);
}

void expected_free(struct expected *e) {
    for (uint32_t i = 0; i < e->n_prompts; i++) {
        struct expected_prompt *p = &e->prompts[i];
        free(p->ids);
        free(p->argmax);
        free(p->gap);
        free(p->next_logprob);
    }
    free(e->trace_ids);
    for (size_t i = 0; i < sizeof e->files / sizeof e->files[0]; i++) free(e->files[i]);
    *e = (struct expected){0};
}

void distance_add(struct distance *d, double a, double b) {
    double x = fabs(a - b);
    if (!(x <= d->max)) d->max = x; /* a NaN stays */
    d->sum += x * x;
    d->n++;
}

double distance_rms(const struct distance *d) { return d->n ? sqrt(d->sum / (double)d->n) : 0; }
