/* Byte-level BPE: words by the pre-tokeniser's patterns, each merged up from its bytes by the rank of the merges. Only
 * ids are looked at while merging; the printable alphabet matters at load and for whole-word lookup. */
#include "base/utf8.h"
#include "text/tokenizer_internal.h"

static int join(const void *context, const struct merge_symbol *left, const struct merge_symbol *right, uint32_t *order,
                int32_t *id) {
    const struct encoder *e = context;
    if (left->id < 0 || right->id < 0) return 0;
    const struct pair_slot *pair = pairs_find(&e->t->pairs, left->id, right->id);
    if (!pair || !encoder_may_make(e, pair->id)) return 0;
    *order = pair->rank;
    *id = pair->id;
    return 1;
}

/* The token that the whole word is, -1 if it is none; COHORT_E_MEMORY. */
static int whole_word(struct encoder *e, const char *word, size_t n, int32_t *id) {
    const struct tokenizer *t = e->t;
    *id = -1;
    if (n > t->vocab.longest) return 0;
    buf_clear(&e->scratch);
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        int len = utf8_encode(t->byte_char[(uint8_t)word[i]], utf8);
        if (buf_add(&e->scratch, utf8, (size_t)len)) return COHORT_E_MEMORY;
    }
    int32_t found = vocab_find(&t->vocab, e->scratch.data, e->scratch.len);
    if (found >= 0 && encoder_may_make(e, found)) *id = found;
    return 0;
}

static int encode_word(void *context, const char *word, size_t n) {
    struct encoder *e = context;
    const struct tokenizer *t = e->t;
    if (n > TOKENIZER_WORD_MAX) return COHORT_E_LIMIT;
    if (t->ignore_merges) {
        int32_t id;
        int code = whole_word(e, word, n, &id);
        if (code || id >= 0) return code ? code : ids_add(&e->out, id);
    }
    merge_clear(&e->merger);
    for (size_t i = 0; i < n; i++)
        if (merge_add(&e->merger, (uint32_t)i, 1, t->byte_token[(uint8_t)word[i]])) return COHORT_E_MEMORY;
    int code = merge_run(&e->merger, join, e);
    const struct merge_symbol *symbols = e->merger.symbols;
    for (int32_t i = 0; !code && i >= 0; i = symbols[i].next)
        code = symbols[i].id >= 0 ? ids_add(&e->out, symbols[i].id) : encoder_no_token(e, (uint8_t)word[symbols[i].at]);
    return code;
}

int bytes_encode(struct encoder *e, const char *text, size_t n) {
    return pretok_split(&e->t->pretok, text, n, encode_word, e);
}
