/* What stored state and answers depend on: the model's bytes, the forms of its state, its vocabulary, the numerics,
 * how pages are laid out. Any
 * thread; nothing is kept, so asking costs a reading of the model file. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "engine/cache.h"
#include "engine/forms.h"
#include "engine/internal.h"

/* Raised whenever the same request would be given other bytes by what lies between a text and a token: tokenizers, turn
 * templates, samplers, stops. (The arithmetic has NUMERICS_VERSION.) */
enum { ANSWERS_VERSION = 1 };

static void put(uint8_t out[16], XXH128_hash_t hash) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out, canonical.digest, 16);
}

/* The model's bytes and the forms of its state, which belong together: the same bytes with other forms answer
 * otherwise, and f16 everywhere is what the bytes alone stand for. */
static void digest_model(const struct model_file *file, uint64_t forms, uint8_t out[16]) {
    XXH128_hash_t all = {0, 0};
    for (uint32_t i = 0; i < model_file_shards(file); i++) {
        size_t n;
        const void *bytes = model_file_shard(file, i, &n);
        struct {
            uint64_t before[2], this[2], n;
        } chain = {{all.low64, all.high64}, {0, 0}, n};
        XXH128_hash_t hash = XXH3_128bits(bytes, n);
        chain.this[0] = hash.low64;
        chain.this[1] = hash.high64;
        all = XXH3_128bits(&chain, sizeof(chain));
    }
    model_file_release(file);
    if (forms) all = XXH3_128bits_withSeed(&all, sizeof(all), forms);
    put(out, all);
}

static void digest_tokenizer(const struct tokenizer *t, uint8_t out[16]) {
    XXH128_hash_t all = {tokenizer_size(t), 0};
    for (uint32_t i = 0; i < tokenizer_size(t); i++) {
        const char *bytes;
        size_t n;
        tokenizer_piece(t, (int32_t)i, 1, &bytes, &n);
        uint64_t seed = all.low64 ^ (all.high64 << 1) ^ (uint64_t)tokenizer_is_special(t, (int32_t)i);
        all = XXH3_128bits_withSeed(bytes, n, seed);
    }
    put(out, all);
}

void identity_of(const struct cohort_engine *e, struct disk_identity *out) {
    const struct program *program = model_program(e->model->built);
    *out = (struct disk_identity){
        .numerics = NUMERICS_VERSION, .page_layout = backend_page_layout_version(), .groups = program->n_groups};
    digest_model(e->model->file, forms_digest(program), out->model);
    digest_tokenizer(e->model->tokenizer, out->tokenizer);
    for (uint32_t g = 0; g < program->n_groups; g++) {
        out->window[g] = state_shape(&program->groups[g]).window;
        out->page_bytes[g] = backend_page_bytes(&program->groups[g]);
    }
}

int cohort_engine_identity(cohort_engine *e, char out[COHORT_IDENTITY_SIZE], cohort_error *err) {
    struct disk_identity identity;
    uint8_t digest[16];
    if (!e) return err_set(err, COHORT_E_ARGUMENT, "engine", "there is no engine");
    if (e->cache.disk)
        identity = e->cache.identity;
    else
        identity_of(e, &identity);
    /* Of what answers depend on: not of how pages are laid out. */
    struct {
        uint8_t model[16], tokenizer[16];
        uint32_t numerics, version;
        char family[8];
    } answers;
    memset(&answers, 0, sizeof(answers));
    memcpy(answers.model, identity.model, sizeof(answers.model));
    memcpy(answers.tokenizer, identity.tokenizer, sizeof(answers.tokenizer));
    answers.numerics = identity.numerics;
    answers.version = ANSWERS_VERSION;
    memcpy(answers.family, "cpu", 3);
    put(digest, XXH3_128bits(&answers, sizeof(answers)));
    for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return COHORT_OK;
}
