/* Encoding what a template has written: tokenizer_encode_marked. Between two special tokens the text is encoded as one,
 * whoever wrote which part of it. A cut inside such a text is found once it is encoded, by the bytes that its tokens
 * stand for. */
#include <string.h>

#include "text/tokenizer_internal.h"

struct walk {
    struct encoder e;
    const struct tokenizer_marked *in;
    size_t clean; /* the bytes from the place that is looked at to here have mark 0 */
    size_t cut;   /* the first that has no place in the ids yet */
};

/* The next token that is found as it is spelled, at or behind *at. */
static int32_t next_special(struct walk *w, size_t *at, size_t *len) {
    const struct tokenizer *t = w->e.t;
    const struct tokenizer_marked *in = w->in;
    for (size_t i = *at; i < in->len; i++) {
        if (w->clean < i) w->clean = i;
        while (w->clean < in->len && w->clean - i < SPECIAL_BYTES_MAX && in->marks[w->clean] == 0) w->clean++;
        size_t marker_len = 0, word_len = 0;
        int32_t marker = -1, word = -1;
        if (w->clean > i) marker = special_longest(&t->all, &t->vocab, in->text + i, w->clean - i, &marker_len);
        if (t->words.n) word = special_longest(&t->words, &t->vocab, in->text + i, in->len - i, &word_len);
        if (marker < 0 && word < 0) continue;
        *at = i;
        *len = marker >= 0 && (word < 0 || marker_len >= word_len) ? marker_len : word_len;
        return *len == marker_len ? marker : word;
    }
    return -1;
}

/* Places the cuts up to byte `end`: the bytes from `begin` on have become the ids from `first` on. */
static void place_cuts(struct walk *w, size_t begin, size_t end, size_t first) {
    const struct tokenizer_marked *in = w->in;
    const struct ids *out = &w->e.out;
    if (w->cut == in->cuts_n || in->cuts[w->cut] > end) return;
    size_t all = 0, bytes = 0, at = first, len;
    const char *piece;
    for (size_t i = first; i < out->n; i++) {
        tokenizer_piece(w->e.t, out->v[i], 1, &piece, &len);
        all += len;
    }
    /* A space that the encoder put in front is no byte of the text. Characters that the vocabulary lacks have no bytes
     * to go by: then the cuts are where the text begins. */
    size_t extra = all - (end - begin);
    int exact = all >= end - begin && extra <= 1;
    for (; w->cut < in->cuts_n && in->cuts[w->cut] <= end; w->cut++) {
        size_t cut = in->cuts[w->cut];
        cut = cut > begin ? cut - begin + extra : 0;
        for (; exact && at < out->n; at++) {
            tokenizer_piece(w->e.t, out->v[at], 1, &piece, &len);
            if (bytes + len > cut) break;
            bytes += len;
        }
        in->cut_ids[w->cut] = (uint32_t)at;
    }
}

static int encode(struct walk *w) {
    const struct tokenizer_marked *in = w->in;
    const struct tokenizer *t = w->e.t;
    int code = 0, after_special = !in->within, begins = t->add_bos && !in->within;
    if (begins) code = ids_add(&w->e.out, t->bos);
    for (size_t done = 0; !code && done < in->len;) {
        size_t at = done, len = 0, first = w->e.out.n;
        int32_t id = next_special(w, &at, &len);
        if (id < 0) at = in->len;
        code = encoder_plain(&w->e, in->text + done, at - done, after_special);
        if (code) break;
        place_cuts(w, done, at, first);
        after_special = id >= 0;
        done = at + len;
        if (id < 0) break;
        first = w->e.out.n;
        code = ids_add(&w->e.out, id);
        if (code) break;
        for (; w->cut < in->cuts_n && in->cuts[w->cut] < done; w->cut++) in->cut_ids[w->cut] = (uint32_t)first;
        if (t->flags[id] & ID_EATS_SPACE)
            while (done < in->len && encoder_drops(in->text[done])) done++;
    }
    for (; w->cut < in->cuts_n; w->cut++) in->cut_ids[w->cut] = (uint32_t)w->e.out.n;
    if (code || !begins || w->e.out.n < 2 || w->e.out.v[1] != t->bos) return code;
    memmove(w->e.out.v, w->e.out.v + 1, --w->e.out.n * sizeof(*w->e.out.v)); /* the template wrote it, too */
    for (size_t i = 0; i < in->cuts_n; i++) in->cut_ids[i] -= in->cut_ids[i] > 0;
    return 0;
}

int tokenizer_encode_marked(const struct tokenizer *t, const struct tokenizer_marked *in, int32_t **out, size_t *n,
                            cohort_error *err) {
    *out = NULL;
    *n = 0;
    int code = encoder_check(in->text, in->len, err);
    if (code) return code;
    struct walk w = {.e = {.t = t, .err = err, .marked = 1}, .in = in};
    return encoder_end(&w.e, encode(&w), out, n);
}
