/* Splitting with PCRE2's interpreter (no JIT: its stack would be the calling thread's). The interpreter keeps its
 * backtracking points on the heap; the patterns repeat single characters only, so it needs one at a time, and every
 * limit below is far from what they use.
 *
 * A vocabulary's patterns apply one after the other: each cuts the pieces that the one before left, and both what it
 * matches and what lies between matches are pieces. Each piece is a subject of its own, so no pattern looks past it. */
#include "text/pretok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>

#include "base/mem.h"

enum {
    MATCH_LIMIT = 1 << 28, /* steps of one match; a pattern takes a few per byte of the text */
    HEAP_LIMIT_KIB = 65536
};

static void *take(size_t n, void *unused) { return mem_alloc(n, 1); }
static void give(void *memory, void *unused) { mem_free(memory); }

int pretok_open(struct pretok *p, const struct pretok_rule *rule, cohort_error *err) {
    *p = (struct pretok){0};
    pcre2_general_context *memory = pcre2_general_context_create(take, give, NULL);
    if (!memory) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the pre-tokeniser");
    p->memory = (struct pretok_memory *)memory;
    pcre2_compile_context *compile = pcre2_compile_context_create(memory);
    int code = compile ? 0 : err_set(err, COHORT_E_MEMORY, NULL, "no memory for the pre-tokeniser");
    for (; !code && rule->stages[p->n]; p->n++) {
        assert(p->n < PRETOK_STAGES_MAX);
        int number;
        PCRE2_SIZE at;
        pcre2_code *pattern = pcre2_compile((PCRE2_SPTR)rule->stages[p->n], PCRE2_ZERO_TERMINATED,
                                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &number, &at, compile);
        p->patterns[p->n] = (struct pretok_pattern *)pattern;
        if (pattern) continue;
        code = number == PCRE2_ERROR_HEAP_FAILED
                   ? err_set(err, COHORT_E_MEMORY, NULL, "no memory for the pre-tokeniser")
                   : err_set(err, COHORT_E_INTERNAL, NULL, "pre-tokeniser '%s', pattern %d: error %d at %zu",
                             rule->name, p->n, number, at);
        break;
    }
    pcre2_compile_context_free(compile);
    if (code) pretok_close(p);
    return code;
}

void pretok_close(struct pretok *p) {
    for (int i = 0; i < PRETOK_STAGES_MAX; i++) pcre2_code_free((pcre2_code *)p->patterns[i]);
    pcre2_general_context_free((pcre2_general_context *)p->memory);
    *p = (struct pretok){0};
}

struct split {
    const struct pretok *p;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pretok_word word;
    void *context;
};

/* Cuts one piece with the patterns from `stage` on. Its depth is the number of patterns. */
static int cut(const struct split *s, int stage, const char *text, size_t n) {
    if (stage == s->p->n) return s->word(s->context, text, n);
    size_t done = 0;
    while (done < n) {
        int found = pcre2_match((const pcre2_code *)s->p->patterns[stage], (PCRE2_SPTR)text, n, done,
                                PCRE2_NO_UTF_CHECK, s->match, s->limits);
        if (found == PCRE2_ERROR_NOMEMORY) return COHORT_E_MEMORY;
        if (found < 0 && found != PCRE2_ERROR_NOMATCH) return COHORT_E_LIMIT;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
        size_t begin = found < 0 ? n : at[0], end = found < 0 ? n : at[1];
        assert(begin >= done && end <= n && (end > begin || found < 0)); /* no pattern matches nothing */
        int code = begin > done ? cut(s, stage + 1, text + done, begin - done) : 0;
        if (!code && end > begin) code = cut(s, stage + 1, text + begin, end - begin);
        if (code) return code;
        done = end;
    }
    return 0;
}

int pretok_split(const struct pretok *p, const char *text, size_t n, pretok_word word, void *context) {
    pcre2_general_context *memory = (pcre2_general_context *)p->memory;
    struct split s = {p, pcre2_match_data_create(1, memory), pcre2_match_context_create(memory), word, context};
    int code = COHORT_E_MEMORY;
    if (s.match && s.limits) {
        pcre2_set_match_limit(s.limits, MATCH_LIMIT);
        pcre2_set_heap_limit(s.limits, HEAP_LIMIT_KIB);
        code = cut(&s, 0, text, n);
    }
    pcre2_match_context_free(s.limits);
    pcre2_match_data_free(s.match);
    return code;
}
