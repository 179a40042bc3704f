/* Opening a tokenizer and encoding text with it: special tokens are cut out here, what lies between goes to the kind's
 * own encoder. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_internal.h"

#define KEY_MODEL "tokenizer.ggml.model"
#define KEY_PRE   "tokenizer.ggml.pre"

static int is(const struct meta_string *s, const char *text) {
    return s->len == strlen(text) && memcmp(s->bytes, text, s->len) == 0;
}

static int read_kind(struct tokenizer *t, const struct meta *meta, cohort_error *err) {
    static const char *const others[][2] = {
        {"bert", "WordPiece"}, {"t5", "unigram"}, {"rwkv", "RWKV"}, {"plamo2", "PLaMo"}, {"no_vocab", "none"}};
    struct meta_string model = {0};
    int code = meta_string(meta, KEY_MODEL, &model, err);
    if (code == COHORT_E_NOT_FOUND)
        return err_set(err, COHORT_E_FILE, KEY_MODEL, "key '%s' is missing: the file has no tokenizer", KEY_MODEL);
    if (code) return code;
    if (is(&model, "llama"))
        t->kind = KIND_SCORES;
    else if (is(&model, "gpt2"))
        t->kind = KIND_BYTES;
    else if (is(&model, "gemma4"))
        t->kind = KIND_SPACED;
    else {
        const char *kind = "unknown";
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            if (is(&model, others[i][0])) kind = others[i][1];
        return err_set(err, COHORT_E_UNSUPPORTED, KEY_MODEL, "key '%s': tokenizer '%.*s' (%s) is not supported",
                       KEY_MODEL, (int)(model.len < 64 ? model.len : 64), model.bytes, kind);
    }
    return 0;
}

/* Byte-level BPE without a name has the default patterns, as files from before the key do. */
static int read_pretok(struct tokenizer *t, const struct meta *meta, cohort_error *err) {
    struct meta_string name = {"default", 7};
    int code = meta_string(meta, KEY_PRE, &name, err);
    if (code && code != COHORT_E_NOT_FOUND) return code;
    const struct pretok_rule *rule = pretok_find(name.bytes, name.len);
    if (!rule)
        return err_set(err, COHORT_E_UNSUPPORTED, KEY_PRE, "key '%s': unknown pre-tokeniser '%.*s'", KEY_PRE,
                       (int)(name.len < 64 ? name.len : 64), name.bytes);
    t->ignore_merges = rule->ignore_merges;
    t->add_bos = rule->add_bos;
    return pretok_open(&t->pretok, rule, err);
}

static int read_id(const struct tokenizer *t, const struct meta *meta, const char *key, int32_t *out,
                   cohort_error *err) {
    uint32_t id;
    int code = meta_u32(meta, key, &id, err);
    *out = -1;
    if (code) return code == COHORT_E_NOT_FOUND ? 0 : code;
    if (id >= t->vocab.n)
        return err_set(err, COHORT_E_FILE, key, "key '%s' is %u, the vocabulary has %u tokens", key, id, t->vocab.n);
    *out = (int32_t)id;
    return 0;
}

/* All "tokenizer.ggml..._token_id" keys are range-checked, also those that mean nothing here. */
static int check_ids(const struct tokenizer *t, const struct meta *meta, cohort_error *err) {
    static const char prefix[] = "tokenizer.ggml.", suffix[] = "_token_id";
    for (size_t i = 0; i < meta->n; i++) {
        const struct meta_string *k = &meta->entries[i].key;
        char key[64];
        if (k->len >= sizeof(key) || k->len < sizeof(prefix) + sizeof(suffix) - 2) continue;
        if (memcmp(k->bytes, prefix, sizeof(prefix) - 1) != 0) continue;
        if (memcmp(k->bytes + k->len - (sizeof(suffix) - 1), suffix, sizeof(suffix) - 1) != 0) continue;
        memcpy(key, k->bytes, k->len);
        key[k->len] = '\0';
        int32_t id;
        int code = read_id(t, meta, key, &id, err);
        if (code) return code;
    }
    return 0;
}

static int read_flag(const struct meta *meta, const char *key, uint8_t *flag, cohort_error *err) {
    int value = *flag;
    int code = meta_bool(meta, key, &value, err);
    *flag = (uint8_t)value;
    return code == COHORT_E_NOT_FOUND ? 0 : code;
}

static int read_ids_and_flags(struct tokenizer *t, const struct meta *meta, cohort_error *err) {
    int code = check_ids(t, meta, err);
    if (!code) code = read_id(t, meta, "tokenizer.ggml.bos_token_id", &t->bos, err);
    if (!code) code = read_id(t, meta, "tokenizer.ggml.eos_token_id", &t->eos, err);
    if (!code) code = read_id(t, meta, "tokenizer.ggml.unknown_token_id", &t->unknown, err);
    if (!code) code = read_flag(meta, "tokenizer.ggml.add_bos_token", &t->add_bos, err);
    if (!code) code = read_flag(meta, "tokenizer.ggml.add_space_prefix", &t->add_space, err);
    if (code) return code;
    if (t->kind == KIND_BYTES) t->add_space = 0;
    for (uint32_t i = 0; t->kind == KIND_SCORES && t->unknown < 0 && i < t->vocab.n; i++)
        if (t->vocab.type[i] == TOKEN_UNKNOWN) t->unknown = (int32_t)i;
    if (t->add_bos && t->bos < 0) {
        if (meta_find(meta, "tokenizer.ggml.add_bos_token"))
            return err_set(err, COHORT_E_FILE, "tokenizer.ggml.bos_token_id",
                           "key 'tokenizer.ggml.bos_token_id' is missing, but add_bos_token asks for it");
        t->add_bos = 0;
    }
    return 0;
}

static int load(struct tokenizer *t, const struct meta *meta, cohort_error *err) {
    int code = read_kind(t, meta, err);
    if (code) return code;
    t->bos = t->eos = t->unknown = -1;
    t->add_bos = t->kind != KIND_BYTES;
    t->add_space = t->kind == KIND_SCORES;
    if (t->kind == KIND_BYTES) code = read_pretok(t, meta, err);
    if (!code) code = vocab_load(&t->vocab, meta, t->kind == KIND_SCORES, err);
    if (!code) code = read_ids_and_flags(t, meta, err);
    if (!code) code = markers_load(t, meta, err);
    if (!code && t->kind != KIND_SCORES) code = pairs_load(&t->pairs, &t->vocab, meta, err);
    if (!code) code = special_build(&t->user, &t->vocab, 0, t->flags, 0, err);
    if (!code) code = special_build(&t->words, &t->vocab, 0, t->flags, ID_MARKER, err);
    if (!code) code = special_build(&t->all, &t->vocab, 1, t->flags, 0, err);
    if (!code) code = pieces_load(t, err);
    return code;
}

int tokenizer_open(const struct meta *meta, struct tokenizer **out, cohort_error *err) {
    *out = NULL;
    struct tokenizer *t = mem_zalloc(1, sizeof(*t));
    if (!t) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the tokenizer");
    int code = load(t, meta, err);
    if (code) {
        tokenizer_close(t);
        return code;
    }
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t) {
    if (!t) return;
    pretok_close(&t->pretok);
    pairs_free(&t->pairs);
    special_free(&t->user);
    special_free(&t->words);
    special_free(&t->all);
    vocab_free(&t->vocab);
    mem_free(t->flags);
    mem_unmap(t->piece_at, t->piece_bytes);
    mem_free(t);
}

int tokenizer_merges_by_score(const struct tokenizer *t) { return t->kind == KIND_SCORES; }
uint32_t tokenizer_size(const struct tokenizer *t) { return t->vocab.n; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
int32_t tokenizer_fill(const struct tokenizer *t, enum tokenizer_fill which) { return t->fill[which]; }
int tokenizer_add_bos(const struct tokenizer *t) { return t->add_bos; }
int tokenizer_strips_first_space(const struct tokenizer *t) { return t->add_space; }

static int in_range(const struct tokenizer *t, int32_t id) { return id >= 0 && (uint32_t)id < t->vocab.n; }

int tokenizer_is_end(const struct tokenizer *t, int32_t id) { return in_range(t, id) && (t->flags[id] & ID_END) != 0; }

int tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    return in_range(t, id) && vocab_is_hidden(&t->vocab, id);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len) {
    return vocab_find(&t->vocab, text, len);
}

void tokenizer_piece(const struct tokenizer *t, int32_t id, int special, const char **bytes, size_t *len) {
    *bytes = "";
    *len = 0;
    if (!in_range(t, id) || (!special && vocab_is_hidden(&t->vocab, id))) return;
    *bytes = t->pieces + t->piece_at[id];
    *len = t->piece_at[id + 1] - t->piece_at[id];
}

void tokenizer_spelling(const struct tokenizer *t, int32_t id, const char **bytes, size_t *len) {
    *bytes = "";
    *len = 0;
    if (in_range(t, id)) *bytes = vocab_text(&t->vocab, (uint32_t)id, len);
}

uint32_t tokenizer_longest_piece(const struct tokenizer *t) { return t->longest_piece; }
uint32_t tokenizer_reach(const struct tokenizer *t) { return t->reach; }

int ids_add(struct ids *ids, int32_t id) {
    if (ids->n == ids->capacity) {
        size_t more = ids->capacity ? ids->capacity * 2 : 64;
        int32_t *grown = mem_realloc(ids->v, more, sizeof(*grown));
        if (!grown) return COHORT_E_MEMORY;
        ids->v = grown;
        ids->capacity = more;
    }
    ids->v[ids->n++] = id;
    return 0;
}

static int encoder_error(struct encoder *e, int code) {
    if (code == COHORT_E_MEMORY) return err_set(e->err, code, NULL, "no memory to tokenize the text");
    if (code == COHORT_E_LIMIT)
        return err_set(e->err, code, "text", "more than %d bytes of the text have no place to be cut at",
                       TOKENIZER_WORD_MAX);
    return code;
}

/* As SentencePiece does, a run of unknown characters is one unknown token. */
int encoder_no_token(struct encoder *e, unsigned byte) {
    if (e->t->unknown < 0)
        return err_set(e->err, COHORT_E_UNSUPPORTED, "text", "the vocabulary has no token for byte 0x%02x of the text",
                       byte);
    if (e->out.n > e->plain_from && e->out.v[e->out.n - 1] == e->t->unknown) return 0;
    return ids_add(&e->out, e->t->unknown);
}

int encoder_plain(struct encoder *e, const char *text, size_t n, int after_special) {
    e->plain_from = e->out.n;
    if (n == 0) return 0;
    return e->t->kind == KIND_BYTES ? bytes_encode(e, text, n)
                                    : spaced_encode(e, text, n, after_special && e->t->add_space);
}

static int encode_all(struct encoder *e, const char *text, size_t n, int flags) {
    const struct tokenizer *t = e->t;
    const struct special_set *set = flags & TOKENIZER_SPECIAL ? &t->all : &t->user;
    int code = 0;
    if (flags & TOKENIZER_BOS && t->add_bos) code = ids_add(&e->out, t->bos);
    size_t done = 0;
    int after_special = !(flags & TOKENIZER_GOES_ON);
    while (!code && done < n) {
        size_t at = done, len = 0;
        int32_t id = special_next(set, &t->vocab, text, n, &at, &len);
        if (id < 0) at = n;
        code = encoder_plain(e, text + done, at - done, after_special);
        after_special = id >= 0;
        done = at + len;
        if (id < 0 || code) continue;
        code = ids_add(&e->out, id);
        if (t->flags[id] & ID_EATS_SPACE)
            while (done < n && encoder_drops(text[done])) done++;
    }
    if (!code && flags & TOKENIZER_BOS && t->add_bos && e->out.n > 1 && e->out.v[1] == t->bos)
        memmove(e->out.v, e->out.v + 1, --e->out.n * sizeof(*e->out.v));
    return code;
}

int encoder_check(const char *text, size_t len, cohort_error *err) {
    if (len > TOKENIZER_TEXT_MAX)
        return err_set(err, COHORT_E_LIMIT, "text", "the text has %zu bytes, the limit is %d", len, TOKENIZER_TEXT_MAX);
    if (!utf8_valid(text, len)) return err_set(err, COHORT_E_ARGUMENT, "text", "the text is not valid UTF-8");
    return 0;
}

int encoder_end(struct encoder *e, int code, int32_t **out, size_t *n) {
    if (code) code = encoder_error(e, code);
    if (!code && !e->out.v && !(e->out.v = mem_alloc(1, sizeof(*e->out.v)))) code = encoder_error(e, COHORT_E_MEMORY);
    merge_free(&e->merger);
    buf_free(&e->scratch);
    if (code) {
        mem_free(e->out.v);
        return code;
    }
    *out = e->out.v;
    *n = e->out.n;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags, int32_t **out, size_t *n,
                     cohort_error *err) {
    *out = NULL;
    *n = 0;
    int code = encoder_check(text, len, err);
    if (code) return code;
    struct encoder e = {.t = t, .err = err};
    return encoder_end(&e, encode_all(&e, text, len, flags), out, n);
}
