/* Tokenizers that write a space as U+2581: SentencePiece's, which merge whatever two neighbours together are a token,
 * best score first, and the BPE kind, which merges by rank inside lines.
 *
 * A merge makes a listed token. So where no token has a given character in front of a U+2581, nothing merges across
 * such a place, and the text is cut there: the queue then stays as short as a word. */
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer_internal.h"

static const char space_mark[] = "\xe2\x96\x81";

static int32_t find_plain(const struct encoder *e, const char *text, size_t n) {
    int32_t id = vocab_find(&e->t->vocab, text, n);
    return id >= 0 && encoder_may_make(e, id) ? id : -1;
}

static int join_scores(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                       uint32_t *order, int32_t *id) {
    const struct encoder *e = context;
    *id = find_plain(e, e->word + left->at, left->len + right->len);
    if (*id < 0) return 0;
    *order = e->t->vocab.order[*id];
    return 1;
}

static int join_ranks(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                      uint32_t *order, int32_t *id) {
    const struct encoder *e = context;
    if (left->id < 0 || right->id < 0) return 0;
    const struct pair_slot *pair = pairs_find(&e->t->pairs, left->id, right->id);
    if (!pair || !encoder_may_make(e, pair->id)) return 0;
    *order = pair->rank;
    *id = pair->id;
    return 1;
}

/* A character that is no token: its bytes if all of them are tokens. */
static int add_fallback(struct encoder *e, const char *s, size_t n) {
    const struct vocab *v = &e->t->vocab;
    for (size_t i = 0; i < n; i++)
        if (v->byte_id[(uint8_t)s[i]] < 0) return encoder_no_token(e, (uint8_t)s[i]);
    int code = 0;
    for (size_t i = 0; !code && i < n; i++) code = ids_add(&e->out, v->byte_id[(uint8_t)s[i]]);
    return code;
}

static int encode_word(struct encoder *e, const char *word, size_t n) {
    const struct tokenizer *t = e->t;
    int by_rank = t->kind == KIND_SPACED;
    if (n > TOKENIZER_WORD_MAX) return COHORT_E_LIMIT;
    int32_t whole = by_rank && word[0] == '\n' ? find_plain(e, word, n) : -1;
    if (whole >= 0) return ids_add(&e->out, whole);
    merge_clear(&e->merger);
    e->word = word;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = (size_t)utf8_decode(word + i, n - i, &cp);
        if (merge_add(&e->merger, (uint32_t)i, (uint32_t)len, by_rank ? find_plain(e, word + i, len) : -1))
            return COHORT_E_MEMORY;
        i += len;
    }
    int code = merge_run(&e->merger, by_rank ? join_ranks : join_scores, e);
    for (int32_t i = 0; !code && i >= 0; i = e->merger.symbols[i].next) {
        const struct merge_symbol *symbol = &e->merger.symbols[i];
        const char *s = word + symbol->at;
        int32_t id = symbol->id >= 0 || by_rank ? symbol->id : find_plain(e, s, symbol->len);
        code = id >= 0 ? ids_add(&e->out, id) : add_fallback(e, s, symbol->len);
    }
    return code;
}

static int write_marks(struct buf *out, const char *text, size_t n, int space_in_front) {
    buf_clear(out);
    int code = space_in_front ? buf_add(out, space_mark, 3) : 0;
    while (!code && n) {
        const char *space = memchr(text, ' ', n);
        size_t plain = space ? (size_t)(space - text) : n;
        code = buf_add(out, text, plain);
        if (!code && space) code = buf_add(out, space_mark, 3);
        text += plain + (space != NULL);
        n -= plain + (space != NULL);
    }
    return code;
}

/* Whether a word may begin at s + i, i > 0. */
static int cuts(const struct tokenizer *t, const char *s, size_t i, size_t n) {
    if (t->kind == KIND_SPACED && (s[i] == '\n') != (s[i - 1] == '\n')) return 1;
    if (s[i] != space_mark[0] || n - i < 3 || memcmp(s + i, space_mark, 3) != 0) return 0;
    if (i >= 3 && memcmp(s + i - 3, space_mark, 3) == 0) return 0;
    return !t->joins_space[(uint8_t)s[i - 1]];
}

int spaced_encode(struct encoder *e, const char *text, size_t n, int space_in_front) {
    int code = write_marks(&e->scratch, text, n, space_in_front);
    const char *s = e->scratch.data;
    n = e->scratch.len;
    for (size_t begin = 0, end; !code && begin < n; begin = end) {
        for (end = begin + 1; end < n && !cuts(e->t, s, end, n); end++) continue;
        code = encode_word(e, s + begin, end - begin);
    }
    return code;
}
