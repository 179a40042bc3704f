/* Loading the token table. The metadata is hostile: every array's type and length is checked against the token count,
 * every length against a stated limit, before anything is read from it. */
#include "text/vocab.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/tokenizer.h"

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"
#define KEY_SCORES "tokenizer.ggml.scores"

static uint64_t fold(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t vocab_hash(const struct vocab *v, const char *text, size_t len) {
    const uint64_t a = 0x9e3779b97f4a7c15u, b = 0xd6e8feb86659fd93u; /* odd, bits well mixed */
    uint64_t hash = v->seed ^ (len * a), word = 0;
    for (; len >= 8; text += 8, len -= 8) {
        memcpy(&word, text, 8);
        hash = fold(hash ^ word, a);
    }
    word = 0;
    if (len) memcpy(&word, text, len);
    return fold(fold(hash ^ word, b), a ^ v->seed);
}

/* The slot of the text, or the free one where it would be. */
static uint32_t find_slot(const struct vocab *v, uint64_t hash, const char *text, size_t len) {
    uint32_t i = (uint32_t)hash & v->slots_mask;
    for (; v->slots[i]; i = (i + 1) & v->slots_mask) {
        if ((v->slots[i] ^ hash) >> 32) continue;
        size_t n;
        const char *have = vocab_text(v, (uint32_t)v->slots[i] - 1, &n);
        if (n == len && memcmp(have, text, len) == 0) break;
    }
    return i;
}

int32_t vocab_find_hashed(const struct vocab *v, uint64_t hash, const char *text, size_t len) {
    return (int32_t)(uint32_t)v->slots[find_slot(v, hash, text, len)] - 1;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len) {
    if (len == 0 || len > v->longest) return -1;
    return vocab_find_hashed(v, vocab_hash(v, text, len), text, len);
}

int vocab_array(const struct meta *meta, const char *key, enum meta_type element, uint64_t count,
                const struct meta_entry **out, cohort_error *err) {
    const struct meta_entry *entry = meta_find(meta, key);
    *out = NULL;
    if (!entry) return 0;
    if (entry->type != META_ARRAY || entry->element != element)
        return err_set(err, COHORT_E_FILE, key, "key '%s' is not an array of the expected element type", key);
    if (count && entry->count != count)
        return err_set(err, COHORT_E_FILE, key, "key '%s' has %llu elements for %llu tokens", key,
                       (unsigned long long)entry->count, (unsigned long long)count);
    *out = entry;
    return 0;
}

/* One block for all tables: sizes are below 2^28 + 2^20 * 32, nothing overflows. */
static int reserve(struct vocab *v, size_t text_bytes, int with_scores) {
    size_t slots = 16, n = v->n;
    while (slots < 2 * n) slots *= 2; /* at most half full */
    v->slots_mask = (uint32_t)slots - 1;
    v->memory_bytes = slots * sizeof(*v->slots) + (n + 1) * sizeof(*v->at) + (with_scores ? n * sizeof(*v->order) : 0) +
                      n + text_bytes + VOCAB_PADDING;
    v->memory = mem_map_large(v->memory_bytes);
    if (!v->memory) return COHORT_E_MEMORY;
    v->slots = v->memory;
    v->at = (uint32_t *)(v->slots + slots);
    uint32_t *order = v->at + n + 1;
    v->order = with_scores ? order : NULL;
    v->type = (uint8_t *)(order + (with_scores ? n : 0));
    v->text = (char *)v->type + n;
    return 0;
}

/* Copies the texts into one block. */
static int load_texts(struct vocab *v, const struct meta *meta, int with_scores, cohort_error *err) {
    const struct meta_entry *tokens;
    int code = vocab_array(meta, KEY_TOKENS, META_STRING, 0, &tokens, err);
    if (code) return code;
    if (!tokens || tokens->count == 0)
        return err_set(err, COHORT_E_FILE, KEY_TOKENS, "key '%s' is missing or empty", KEY_TOKENS);
    if (tokens->count > TOKENIZER_VOCAB_MAX)
        return err_set(err, COHORT_E_LIMIT, KEY_TOKENS, "key '%s' has %llu tokens, the limit is %d", KEY_TOKENS,
                       (unsigned long long)tokens->count, TOKENIZER_VOCAB_MAX);
    v->n = (uint32_t)tokens->count;
    uint64_t total = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        uint64_t len = meta_entry_string(tokens, i)->len;
        if (len > TOKENIZER_PIECE_MAX || (total += len) > TOKENIZER_BYTES_MAX)
            return err_set(err, COHORT_E_LIMIT, KEY_TOKENS,
                           "key '%s', token %u: longer than %d bytes, or all together longer than %d", KEY_TOKENS, i,
                           TOKENIZER_PIECE_MAX, TOKENIZER_BYTES_MAX);
    }
    if (reserve(v, total, with_scores))
        return err_set(err, COHORT_E_MEMORY, KEY_TOKENS, "no memory for the vocabulary");
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct meta_string *s = meta_entry_string(tokens, i);
        v->at[i] = at;
        if (s->len) memcpy(v->text + at, s->bytes, s->len);
        at += (uint32_t)s->len;
        if (s->len > v->longest) v->longest = (uint32_t)s->len;
    }
    v->at[v->n] = at;
    return 0;
}

static int load_types(struct vocab *v, const struct meta *meta, cohort_error *err) {
    const struct meta_entry *types;
    int code = vocab_array(meta, KEY_TYPES, META_I32, v->n, &types, err);
    if (code) return code;
    for (uint32_t i = 0; i < v->n; i++) {
        int32_t type = TOKEN_NORMAL;
        if (types) memcpy(&type, (const char *)types->data + (size_t)i * sizeof(type), sizeof(type));
        if (type < 0 || type > TOKEN_BYTE)
            return err_set(err, COHORT_E_FILE, KEY_TYPES, "key '%s', token %u: type %d is not one of 0..%d", KEY_TYPES,
                           i, type, TOKEN_BYTE);
        v->type[i] = type ? (uint8_t)type : TOKEN_UNUSED;
    }
    return 0;
}

/* A score as a number whose ascending order is the order of merging: highest score first. */
static uint32_t score_order(float score) {
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &score, sizeof(bits));
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

static int load_scores(struct vocab *v, const struct meta *meta, cohort_error *err) {
    const struct meta_entry *scores = meta_find(meta, KEY_SCORES);
    if (!scores) return err_set(err, COHORT_E_FILE, KEY_SCORES, "key '%s' is missing", KEY_SCORES);
    int whole = scores->type == META_ARRAY && scores->element == META_I32;
    int code = vocab_array(meta, KEY_SCORES, whole ? META_I32 : META_F32, v->n, &scores, err);
    if (code) return code;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t bits;
        float score;
        memcpy(&bits, (const char *)scores->data + (size_t)i * sizeof(bits), sizeof(bits));
        if (whole)
            score = (float)(int32_t)bits;
        else
            memcpy(&score, &bits, sizeof(score));
        if (isnan(score))
            return err_set(err, COHORT_E_FILE, KEY_SCORES, "key '%s', token %u: not a number", KEY_SCORES, i);
        v->order[i] = score_order(score);
    }
    return 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int vocab_byte(const struct vocab *v, uint32_t id) {
    size_t len;
    const char *s = vocab_text(v, id, &len);
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static int load_bytes(struct vocab *v, cohort_error *err) {
    memset(v->byte_id, 0xff, sizeof(v->byte_id));
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->type[i] != TOKEN_BYTE) continue;
        int byte = vocab_byte(v, i);
        if (byte < 0) {
            size_t len;
            const char *s = vocab_text(v, i, &len);
            return err_set(err, COHORT_E_FILE, KEY_TOKENS,
                           "key '%s', token %u: byte token '%.*s' is not of the form <0xHH>", KEY_TOKENS, i,
                           (int)(len < 32 ? len : 32), s);
        }
        if (v->byte_id[byte] < 0) v->byte_id[byte] = (int32_t)i;
    }
    return 0;
}

/* Open addressing; inserted in ascending order, so a repeated text finds its lowest id. */
static void build_hash(struct vocab *v) {
    enum { AHEAD = 16 }; /* texts hashed before their slots are touched: the slots are out of cache */
    uint64_t hash[AHEAD];
    for (uint32_t i = 0; i < v->n + AHEAD; i++) {
        size_t len;
        if (i >= AHEAD) {
            const char *s = vocab_text(v, i - AHEAD, &len);
            uint64_t h = hash[i % AHEAD];
            uint32_t slot = find_slot(v, h, s, len);
            if (len && !v->slots[slot]) v->slots[slot] = (h & 0xffffffff00000000u) | (i - AHEAD + 1);
        }
        if (i < v->n) {
            const char *s = vocab_text(v, i, &len);
            hash[i % AHEAD] = vocab_hash(v, s, len);
            vocab_prefetch(v, hash[i % AHEAD]);
        }
    }
}

int vocab_load(struct vocab *v, const struct meta *meta, int with_scores, cohort_error *err) {
    memset(v, 0, sizeof(*v));
    v->seed = rng_entropy();
    int code = load_texts(v, meta, with_scores, err);
    if (!code) code = load_types(v, meta, err);
    if (!code && with_scores) code = load_scores(v, meta, err);
    if (!code) code = load_bytes(v, err);
    if (!code) build_hash(v);
    if (code) vocab_free(v);
    return code;
}

void vocab_free(struct vocab *v) {
    mem_unmap(v->memory, v->memory_bytes);
    memset(v, 0, sizeof(*v));
}
