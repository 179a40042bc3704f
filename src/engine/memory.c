/* What an engine takes of memory, told before anything is loaded: cohort_plan. The caller's thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/budget.h"
#include "engine/forms.h"
#include "engine/internal.h"

enum { REPORT_BYTES_MAX = 64 << 10 };

struct needs {
    struct backend_needs backend;
    struct state_plan state;
    uint64_t model;   /* what this process holds of the model already: vocabulary, names */
    uint64_t program; /* this program's own pages and its libraries' */
    uint64_t books;   /* page tables, the prefix store's index, requests and their rings, samples */
    uint64_t total;   /* once every page of the state was used */
    uint64_t begin;   /* before the first request */
    uint64_t limit;
};

static const char *form_name(enum state_form form) {
    static const char *const names[] = {[FORM_F16] = "f16", [FORM_Q8] = "q8_0", [FORM_Q4] = "q4_0"};
    return names[form];
}

/* Memory of this process that no file backs, and that which files back; 0 if the system does not say. */
static void resident_bytes(uint64_t *anonymous, uint64_t *file) {
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long kib;
    char line[256];
    *anonymous = *file = 0;
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1) *anonymous = (uint64_t)kib << 10;
        if (sscanf(line, "RssFile: %llu kB", &kib) == 1) *file = (uint64_t)kib << 10;
    }
    if (f) fclose(f);
}

static uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Bookkeeping that grows with the options: what is touched when all rows and all pages are in use. */
static uint64_t books_bytes(const struct cohort_engine *e, const struct state_plan *plan) {
    const cohort_engine_options *o = &e->options;
    uint64_t table = (uint64_t)(o->context / PAGE_TOKENS + 1) * plan->groups * sizeof(uint32_t);
    uint64_t row = table + o->ring_bytes + (uint64_t)o->context * sizeof(int32_t);
    uint64_t samples = (o->batch_tokens + (uint64_t)o->rows) * ENGINE_ITERATIONS * sizeof(struct sample_result);
    return o->rows * row + (uint64_t)engine_handles(o) * sizeof(struct row) + samples +
           prefix_bytes(plan->groups, plan->pages, o->cache);
}

static int needs_take(struct cohort_engine *e, struct needs *out, cohort_error *err) {
    int code = engine_make_effective(e, err);
    if (!code) code = forms_take(e, err);
    if (code) return code;
    uint64_t measured, unreleased;
    resident_bytes(&out->model, &unreleased); /* before the heap keeps what measuring took for a moment */
    uint32_t tokens = e->options.batch_tokens;
    const struct program *program = model_program(e->model->built); /* in the forms just taken */
    code = budget_plan(program, &e->options, &out->state, err);
    if (!code) code = backend_measure(e->model->backend, program, tokens, e->options.rows, tokens, &out->backend, err);
    if (code) return code;
    model_file_release(e->model->file); /* what was read to measure; an engine releases it, too */
    resident_bytes(&measured, &out->program);
    out->books = books_bytes(e, &out->state);
    out->limit = budget_memory_limit();
    out->begin = add(add(out->backend.weights, out->model), out->program);
    const uint64_t later[] = {out->backend.tables, out->backend.work, out->state.bytes, out->books};
    out->total = out->begin;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) /* a hostile file's state may be as large as can be */
        out->total = add(out->total, later[i]);
    return 0;
}

/* ---- The report ---- */

static int say_group(struct buf *b, const struct program_group *g, uint32_t pages, uint64_t page_bytes) {
    int code = buf_addf(b, "  %u layers, ", g->layers);
    if (g->kind == GROUP_RECURRENT) {
        if (!code) code = buf_addf(b, "recurrent: %.1f KiB a state, %u states", (double)page_bytes / 1024, pages);
    } else {
        if (!code && g->window) code = buf_addf(b, "window of %u tokens", g->window);
        if (!code && !g->window) code = buf_adds(b, "full attention");
        if (!code && g->end) code = buf_addf(b, ", the first %u tokens", g->end);
        if (!code && g->begin) code = buf_addf(b, ", from token %u on", g->begin);
        if (!code)
            code = buf_addf(
                b, ": %u key/value heads of %u and %u, keys %s, values %s, %.2f KiB a token, %" PRIu64 " tokens",
                g->kv_heads, g->key_width, g->value_width, form_name(g->key_form), form_name(g->value_form),
                (double)page_bytes / PAGE_TOKENS / 1024, (uint64_t)pages * PAGE_TOKENS);
    }
    return code ? code : buf_addf(b, ", %.1f MiB\n", (double)page_bytes * pages / 1048576);
}

static int json_group(struct buf *b, const struct program_group *g, uint32_t pages, uint64_t page_bytes) {
    int code = buf_addf(b, "{\"layers\":%u,\"kind\":\"%s\",\"pages\":%u,\"page_bytes\":%" PRIu64, g->layers,
                        g->kind == GROUP_RECURRENT ? "recurrent" : "attention", pages, page_bytes);
    if (!code && g->kind == GROUP_ATTENTION)
        code = buf_addf(b, ",\"window\":%u,\"first_token\":%u,\"end_token\":%u,\"keys\":\"%s\",\"values\":\"%s\"",
                        g->window, g->begin, g->end, form_name(g->key_form), form_name(g->value_form));
    return code ? code : buf_adds(b, "}");
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576; }

static int report_text(struct buf *b, const struct cohort_engine *e, const struct program *program,
                       const struct needs *n) {
    const cohort_engine_options *o = &e->options;
    int code =
        buf_addf(b, "%u rows of %u tokens of context, %u tokens an iteration\n", o->rows, o->context, o->batch_tokens);
    if (!code)
        code = buf_addf(b, "state: %.1f MiB for %" PRIu64 " tokens\n", mib(n->state.bytes),
                        budget_tokens(program, &n->state));
    for (uint32_t g = 0; g < n->state.groups && !code; g++)
        code = say_group(b, &program->groups[g], n->state.pages[g], n->state.page_bytes[g]);
    if (!code)
        code = buf_addf(b,
                        "weights: %.1f MiB; vocabulary and names: %.1f MiB; program: %.1f MiB\n"
                        "working memory: %.1f MiB; books: %.1f MiB",
                        mib(n->backend.weights), mib(n->model), mib(n->program), mib(n->backend.work), mib(n->books));
    if (!code && n->backend.tables)
        code = buf_addf(b, "; embeddings, read from the file: %.1f MiB", mib(n->backend.tables));
    if (!code)
        code = buf_addf(b,
                        "\nbefore the first request: %.1f MiB; the rest is taken when it is first used\n"
                        "together, once the state is full: %.1f MiB of the %.1f MiB that this process may use%s\n",
                        mib(n->begin), mib(n->total), mib(n->limit), n->total > n->limit ? ": it does not fit" : "");
    if (!code && n->backend.scoring)
        code = buf_addf(b, "and %.1f MiB if prompts' log-probabilities are asked for\n", mib(n->backend.scoring));
    return code;
}

static int report_json(struct buf *b, const struct cohort_engine *e, const struct program *program,
                       const struct needs *n) {
    const cohort_engine_options *o = &e->options;
    int code = buf_addf(b,
                        "{\"rows\":%u,\"context\":%u,\"batch_tokens\":%u,\"state\":{\"bytes\":%" PRIu64
                        ",\"tokens\":%" PRIu64 ",\"groups\":[",
                        o->rows, o->context, o->batch_tokens, n->state.bytes, budget_tokens(program, &n->state));
    for (uint32_t g = 0; g < n->state.groups && !code; g++) {
        if (g > 0) code = buf_adds(b, ",");
        if (!code) code = json_group(b, &program->groups[g], n->state.pages[g], n->state.page_bytes[g]);
    }
    if (!code)
        code = buf_addf(b,
                        "]},\"weights_bytes\":%" PRIu64 ",\"work_bytes\":%" PRIu64 ",\"books_bytes\":%" PRIu64
                        ",\"model_bytes\":%" PRIu64 ",\"program_bytes\":%" PRIu64 ",\"tables_bytes\":%" PRIu64
                        ",\"scoring_bytes\":%" PRIu64 ",\"begin_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64
                        ",\"limit_bytes\":%" PRIu64 ",\"fits\":%s}\n",
                        n->backend.weights, n->backend.work, n->books, n->model, n->program, n->backend.tables,
                        n->backend.scoring, n->begin, n->total, n->limit, n->total <= n->limit ? "true" : "false");
    return code;
}

int cohort_plan(cohort_model *model, const cohort_engine_options *options, int json, char **out, size_t *out_len,
                cohort_error *err) {
    *out = NULL;
    *out_len = 0;
    if (!model->built)
        return err_set(err, COHORT_E_UNSUPPORTED, "vocab_only", "the model was opened for its vocabulary only");
    int expected = 0; /* the program is made in the options' forms, so nobody else may look at it */
    if (!atomic_compare_exchange_strong(&model->in_use, &expected, 1))
        return err_set(err, COHORT_E_UNSUPPORTED, "model", "a plan needs the model for itself, and an engine is open");
    struct cohort_engine *e = mem_zalloc(1, sizeof(*e));
    if (!e) {
        atomic_store(&model->in_use, 0);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a plan");
    }
    e->model = model;
    if (options)
        e->options = *options;
    else
        cohort_engine_options_defaults(&e->options);
    struct needs needs = {0};
    struct buf b = {.max = REPORT_BYTES_MAX};
    int code = needs_take(e, &needs, err);
    if (!code && (json ? report_json : report_text)(&b, e, model_program(model->built), &needs) !=
                     0) /* a code would name no reason */
        code = err_set(err, COHORT_E_MEMORY, NULL, "no memory for a plan");
    mem_free(e);
    atomic_store(&model->in_use, 0);
    if (code) {
        buf_free(&b);
        return code;
    }
    *out = b.data;
    *out_len = b.len;
    return COHORT_OK;
}
