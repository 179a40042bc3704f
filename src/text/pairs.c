/* Loading the merge list into an open-addressing table. */
#include "text/pairs.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer.h"

#define KEY_MERGES "tokenizer.ggml.merges"

static uint32_t slot_of(const struct pairs *p, uint32_t left, uint32_t right) {
    uint64_t x = ((uint64_t)left << 32 | right) ^ p->seed;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return (uint32_t)(x ^ x >> 32) & p->mask;
}

const struct pair_slot *pairs_find(const struct pairs *p, int32_t left, int32_t right) {
    uint32_t a = (uint32_t)left + 1, b = (uint32_t)right + 1;
    for (uint32_t i = slot_of(p, a, b); p->slots[i].left; i = (i + 1) & p->mask)
        if (p->slots[i].left == a && p->slots[i].right == b) return &p->slots[i];
    return NULL;
}

struct merge_line {
    const char *bytes;
    size_t left, right; /* lengths; the blank is between them */
    uint64_t hash[3];   /* left, right, both */
    int32_t id[3];
    uint32_t slot; /* where the pair's search begins */
};

/* Splits at the one blank and hashes the three texts. */
static int read_line(const struct vocab *v, const struct meta_string *s, uint64_t i, char *joined,
                     struct merge_line *line, cohort_error *err) {
    const char *blank = s->len > 2 ? memchr(s->bytes, ' ', s->len) : NULL;
    size_t left = blank ? (size_t)(blank - s->bytes) : 0, right = blank ? s->len - left - 1 : 0;
    if (!left || !right || memchr(blank + 1, ' ', right) || left + right > v->longest)
        return err_set(err, COHORT_E_FILE, KEY_MERGES, "key '%s', merge %llu: '%.*s' is not two tokens with one blank",
                       KEY_MERGES, (unsigned long long)i, (int)(s->len < 64 ? s->len : 64), s->bytes);
    memcpy(joined, s->bytes, left);
    memcpy(joined + left, blank + 1, right);
    line->bytes = s->bytes;
    line->left = left;
    line->right = right;
    line->hash[0] = vocab_hash(v, s->bytes, left);
    line->hash[1] = vocab_hash(v, blank + 1, right);
    line->hash[2] = vocab_hash(v, joined, left + right);
    for (int k = 0; k < 3; k++) vocab_prefetch(v, line->hash[k]);
    return 0;
}

/* Looks the three texts up. */
static int find_line(const struct pairs *p, const struct vocab *v, struct merge_line *line, uint64_t i, char *joined,
                     cohort_error *err) {
    const char *second = line->bytes + line->left + 1;
    memcpy(joined, line->bytes, line->left);
    memcpy(joined + line->left, second, line->right);
    line->id[0] = vocab_find_hashed(v, line->hash[0], line->bytes, line->left);
    line->id[1] = vocab_find_hashed(v, line->hash[1], second, line->right);
    line->id[2] = vocab_find_hashed(v, line->hash[2], joined, line->left + line->right);
    if (line->id[0] < 0 || line->id[1] < 0 || line->id[2] < 0) {
        size_t shown = line->left + line->right + 1;
        return err_set(err, COHORT_E_FILE, KEY_MERGES,
                       "key '%s', merge %llu: a part of '%.*s' or its join is not in tokenizer.ggml.tokens", KEY_MERGES,
                       (unsigned long long)i, (int)(shown < 64 ? shown : 64), line->bytes);
    }
    line->slot = slot_of(p, (uint32_t)line->id[0] + 1, (uint32_t)line->id[1] + 1);
    __builtin_prefetch(&p->slots[line->slot], 1);
    return 0;
}

/* The first of equal merges keeps its rank. */
static void insert_line(struct pairs *p, const struct vocab *v, const struct merge_line *line, uint64_t rank) {
    uint32_t left = (uint32_t)line->id[0] + 1, right = (uint32_t)line->id[1] + 1, i = line->slot;
    if (!vocab_is_plain(v, line->id[2])) return;
    for (; p->slots[i].left; i = (i + 1) & p->mask)
        if (p->slots[i].left == left && p->slots[i].right == right) return;
    p->slots[i] = (struct pair_slot){left, right, (uint32_t)rank, line->id[2]};
}

/* Every line goes through three steps some lines apart, so that what a step touches is in cache when its turn comes. */
static int load_lines(struct pairs *p, const struct vocab *v, const struct meta_entry *merges, char *joined,
                      cohort_error *err) {
    enum { AHEAD = 16 };
    struct merge_line lines[2 * AHEAD];
    int code = 0;
    for (uint64_t i = 0; !code && i < merges->count + 2 * AHEAD; i++) {
        if (i >= 2 * AHEAD) insert_line(p, v, &lines[i % (2 * AHEAD)], i - 2 * AHEAD);
        if (i >= AHEAD && i - AHEAD < merges->count)
            code = find_line(p, v, &lines[(i - AHEAD) % (2 * AHEAD)], i - AHEAD, joined, err);
        if (!code && i < merges->count)
            code = read_line(v, meta_entry_string(merges, i), i, joined, &lines[i % (2 * AHEAD)], err);
    }
    return code;
}

int pairs_load(struct pairs *p, const struct vocab *v, const struct meta *meta, cohort_error *err) {
    const struct meta_entry *merges;
    memset(p, 0, sizeof(*p));
    int code = vocab_array(meta, KEY_MERGES, META_STRING, 0, &merges, err);
    if (code) return code;
    if (!merges) return err_set(err, COHORT_E_FILE, KEY_MERGES, "key '%s' is missing", KEY_MERGES);
    if (merges->count > TOKENIZER_MERGES_MAX)
        return err_set(err, COHORT_E_LIMIT, KEY_MERGES, "key '%s' has %llu merges, the limit is %d", KEY_MERGES,
                       (unsigned long long)merges->count, TOKENIZER_MERGES_MAX);
    uint32_t slots = 16;
    while (slots < merges->count + merges->count / 2) slots *= 2;
    p->seed = v->seed;
    p->mask = slots - 1;
    p->slots = mem_zalloc(slots, sizeof(*p->slots));
    char *joined = mem_alloc(v->longest + 1, 1);
    code = p->slots && joined ? load_lines(p, v, merges, joined, err)
                              : err_set(err, COHORT_E_MEMORY, KEY_MERGES, "no memory for the merges");
    mem_free(joined);
    if (code) pairs_free(p);
    return code;
}

void pairs_free(struct pairs *p) {
    mem_free(p->slots);
    memset(p, 0, sizeof(*p));
}
