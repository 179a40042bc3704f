/* Making and keeping what a row has of its own (row.h). Made by the submitting thread. */
#include "sample/row.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* One block for everything: parts are laid out once to find its size, then once more to place them. */
struct layout {
    char *base; /* NULL: only measured */
    size_t bytes;
    int overflow;
};

static void *part(struct layout *l, size_t n, size_t size) {
    size_t bytes, at = l->bytes;
    if (size_mul(n, size, &bytes) || size_add(bytes, 15, &bytes) || size_add(at, bytes & ~(size_t)15, &l->bytes))
        l->overflow = 1;
    return l->base && n ? l->base + at : NULL;
}

static int has_step(const struct sample_params *p, int step) { return memchr(p->steps, step, p->steps_n) != NULL; }

struct needs {
    const struct sample_params *params;
    const cohort_request *q;
    uint32_t ends_n, vocab;
    size_t banned_ids, breaker_bytes;
    int penalties, dry;
};

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The pointers of *r into the block behind it; their contents are the caller's business. */
static void lay_out(struct sample_row *r, const struct needs *need, struct layout *l, int32_t **banned_ids,
                    char **breaker_text) {
    const cohort_request *q = need->q;
    uint32_t window = smaller(need->vocab, r->most), ends = r->ends_n;
    int looks_back = need->penalties || need->dry || q->banned_n;
    r->biases = part(l, q->biases_n, sizeof(*r->biases));
    r->banned = part(l, q->banned_n, sizeof(*r->banned));
    r->breakers = part(l, r->breakers_n, sizeof(*r->breakers));
    r->allowed = part(l, q->allowed_ids_n, sizeof(*r->allowed));
    r->allowed_x = part(l, q->allowed_ids_n, sizeof(*r->allowed_x));
    r->allowed_peaks = part(l, logits_spans((uint32_t)q->allowed_ids_n), sizeof(*r->allowed_peaks));
    r->ends = part(l, ends, sizeof(*r->ends));
    *banned_ids = part(l, need->banned_ids, sizeof(**banned_ids));
    *breaker_text = part(l, need->breaker_bytes, 1);
    r->states = part(l, need->params->asked.mirostat ? r->most - r->prompt_n + (size_t)1 : 0, sizeof(*r->states));
    r->tokens = part(l, looks_back ? r->most : 0, sizeof(*r->tokens));
    r->breaks = part(l, r->breakers_n ? r->most : 0, 1);
    r->uses = part(l, need->penalties ? window : 0, sizeof(*r->uses));
    r->repeats = part(l, need->dry ? window : 0, sizeof(*r->repeats));
    r->matches = part(l, need->dry ? r->most : 0, sizeof(*r->matches));
    size_t edits = q->biases_n + q->banned_n + ends;
    edits += (need->penalties ? window : 0) + (size_t)(need->dry ? window : 0);
    r->edits = part(l, edits, sizeof(*r->edits));
}

static int by_id(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    return i < j ? -1 : i > j;
}

/* `stride` bytes from id to id. */
static int find_twice(const void *ids, size_t n, size_t stride, int32_t *id) {
    const char *at = ids;
    for (size_t i = 1; i < n; i++) {
        *id = *(const int32_t *)(const void *)(at + i * stride);
        if (*(const int32_t *)(const void *)(at + (i - 1) * stride) == *id) return 1;
    }
    return 0;
}

static int copy_sorted(const char *field, void *to, const void *from, size_t n, size_t size, cohort_error *err) {
    int32_t id;
    if (n == 0) return 0;
    memcpy(to, from, n * size);
    qsort(to, n, size, by_id);
    if (!find_twice(to, n, size, &id)) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%s names token %d twice", field, id);
}

static void copy_lists(struct sample_row *r, const struct needs *need, const int32_t *ends, int32_t *banned_ids,
                       char *breaker_text) {
    const cohort_request *q = need->q;
    for (uint32_t i = 0; i < r->banned_n; i++) {
        memcpy(banned_ids, q->banned[i].ids, q->banned[i].n * sizeof(*banned_ids));
        r->banned[i] = (cohort_ids){banned_ids, q->banned[i].n};
        banned_ids += q->banned[i].n;
    }
    for (uint32_t i = 0; i < r->breakers_n; i++) {
        size_t len = q->dry_breakers[i].len;
        memcpy(breaker_text, q->dry_breakers[i].bytes, len);
        r->breakers[i] = (cohort_span){breaker_text, len};
        breaker_text += len;
        if (len > r->breaker_max) r->breaker_max = (uint32_t)len;
    }
    if (need->ends_n) memcpy(r->ends, ends, need->ends_n * sizeof(*ends));
    if (r->ends_n > need->ends_n)
        memcpy(r->ends + need->ends_n, q->stop_ids, (r->ends_n - need->ends_n) * sizeof(*r->ends));
}

static void copy_past(struct sample_row *r, const cohort_request *q, const struct sample_params *params) {
    if (r->states) r->states[0] = 2 * params->asked.mirostat_tau;
    if (r->tokens) memcpy(r->tokens, q->prompt, r->prompt_n * sizeof(*r->tokens));
    for (uint32_t i = 0; r->breaks && i < r->prompt_n; i++) r->breaks[i] = (uint8_t)breakers_end(r, i, r->tokens[i]);
    for (uint32_t i = 0; i < q->resume_n; i++)
        sample_row_keep(r, r->prompt_n + i, q->resume[i].token, q->resume[i].sampler_state);
}

int sample_row_make(struct sample_row **out, const struct sample_params *params, const cohort_request *q,
                    uint32_t max_new, uint32_t vocab, const int32_t *ends, uint32_t ends_n,
                    const struct tokenizer *tokenizer, cohort_error *err) {
    struct needs need = {.params = params, .q = q, .vocab = vocab, .ends_n = q->ignore_eos && !q->grammar ? 0 : ends_n};
    struct sample_row sizes = {.prompt_n = (uint32_t)q->prompt_n,
                               .most = (uint32_t)q->prompt_n + max_new,
                               .biases_n = (uint32_t)q->biases_n,
                               .allowed_n = (uint32_t)q->allowed_ids_n,
                               .banned_n = (uint32_t)q->banned_n,
                               .min_tokens = q->min_tokens,
                               .tokenizer = tokenizer};
    *out = NULL;
    need.penalties = has_step(params, COHORT_SAMPLER_PENALTIES);
    need.dry = has_step(params, COHORT_SAMPLER_DRY);
    if (q->min_tokens == 0) need.ends_n = 0;
    sizes.ends_n = need.ends_n + (q->min_tokens ? (uint32_t)q->stop_ids_n : 0);
    if (need.dry) sizes.breakers_n = (uint32_t)q->dry_breakers_n;
    for (size_t i = 0; i < q->banned_n; i++) need.banned_ids += q->banned[i].n;
    for (uint32_t i = 0; i < sizes.breakers_n; i++) need.breaker_bytes += q->dry_breakers[i].len;
    int32_t *banned_ids;
    char *breaker_text;
    struct layout l = {0};
    lay_out(&sizes, &need, &l, &banned_ids, &breaker_text);
    if (l.bytes == 0) return 0;
    size_t head = (sizeof(struct sample_row) + 15) & ~(size_t)15, bytes;
    struct sample_row *r = l.overflow || size_add(l.bytes, head, &bytes) ? NULL : mem_alloc(bytes, 1);
    if (!r) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the samplers of a request");
    *r = sizes;
    l = (struct layout){.base = (char *)r + head};
    lay_out(r, &need, &l, &banned_ids, &breaker_text);
    copy_lists(r, &need, ends, banned_ids, breaker_text);
    int code = copy_sorted("biases", r->biases, q->biases, q->biases_n, sizeof(*r->biases), err);
    if (!code)
        code = copy_sorted("allowed_ids", r->allowed, q->allowed_ids, q->allowed_ids_n, sizeof(*r->allowed), err);
    if (code) {
        mem_free(r);
        return code;
    }
    copy_past(r, q, params);
    *out = r;
    return 0;
}

void sample_row_free(struct sample_row *r) { mem_free(r); }

void sample_row_keep(struct sample_row *r, uint64_t position, int32_t token, float state) {
    if (!r) return;
    assert(position >= r->prompt_n && position < r->most);
    if (r->breaks) r->breaks[position] = (uint8_t)breakers_end(r, (uint32_t)position, token);
    if (r->tokens) r->tokens[position] = token;
    if (r->states) r->states[position - r->prompt_n + 1] = state;
}
