/* Models and what can be done with a vocabulary alone: the cohort_model_* half of cohort.h. A model is immutable once
 * open, but for what an engine notes in it (atomics); everything here may be called from any thread. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/chat_api.h"
#include "engine/internal.h"
#include "model/spec.h"

_Static_assert((int)COHORT_TOKENIZE_SPECIAL == (int)TOKENIZER_SPECIAL && (int)COHORT_TOKENIZE_BOS == (int)TOKENIZER_BOS,
               "the flags are the same");
_Static_assert((int)COHORT_STOPS_MAX == (int)DETOK_STOPS_MAX && (int)COHORT_STOP_BYTES_MAX == (int)DETOK_STOP_BYTES_MAX,
               "the limits are the same");

void cohort_model_options_defaults(cohort_model_options *options) {
    *options = (cohort_model_options){.size = sizeof(*options),
                                      .grammar_ms = COHORT_GRAMMAR_MS_DEFAULT,
                                      .grammar_bytes = COHORT_GRAMMAR_MEMORY_DEFAULT,
                                      .grammar_cache_bytes = COHORT_GRAMMAR_CACHE_DEFAULT};
}

static char *copy_meta_string(const struct meta *meta, const char *key) {
    struct meta_string value = {"", 0};
    if (meta_string(meta, key, &value, NULL) != 0) value = (struct meta_string){"", 0};
    char *out = mem_alloc((size_t)value.len + 1, 1);
    if (!out) return NULL;
    memcpy(out, value.bytes, (size_t)value.len);
    out[value.len] = '\0';
    return out;
}

static int open_model(cohort_model *m, const char *path, const cohort_model_options *o, cohort_error *err) {
    int code = model_file_open(path, &m->file, err);
    if (code) return code;
    const struct meta *meta = model_file_meta(m->file);
    code = tokenizer_open(meta, &m->tokenizer, err);
    if (code) return err_prefix(err, code, path);
    m->piece_max = tokenizer_longest_piece(m->tokenizer);
    m->architecture = copy_meta_string(meta, "general.architecture");
    m->name = copy_meta_string(meta, "general.name");
    if (!m->architecture || !m->name || grammars_new(m->tokenizer, o, &m->grammars) != 0)
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a model");
    code = chat_api_open(m, meta, o->chat_template, err);
    if (code) return code;
    if (o->vocab_only) return 0;
    code = model_build(m->file, tokenizer_size(m->tokenizer), &m->built, err);
    if (code) return err_prefix(err, code, path);
    const struct backend_options wanted = {.level = o->cpu, .threads = o->threads};
    return backend_open(&wanted, &m->backend, err);
}

int cohort_model_open(const char *path, const cohort_model_options *options, cohort_model **out, cohort_error *err) {
    cohort_model_options o;
    *out = NULL;
    cohort_model_options_defaults(&o);
    if (options) o = *options;
    if (o.size != sizeof(o))
        return err_set(err, COHORT_E_ARGUMENT, "size", "the options were not filled by cohort_model_options_defaults");
    if (o.threads < 0 || o.threads > BACKEND_THREADS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "threads", "threads is %d; 0 to %d are possible", o.threads,
                       BACKEND_THREADS_MAX);
    int code = grammars_check_options(&o, err);
    if (code) return code;
    cohort_model *m = mem_zalloc(1, sizeof(*m));
    if (!m) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a model");
    m->progress = o.progress;
    m->progress_user = o.progress_user;
    code = open_model(m, path, &o, err);
    if (code) {
        cohort_model_close(m);
        return code;
    }
    *out = m;
    return COHORT_OK;
}

void cohort_model_close(cohort_model *m) {
    if (!m) return;
    backend_close(m->backend);
    model_free(m->built);
    grammars_free(m->grammars);
    chat_api_close(m);
    tokenizer_close(m->tokenizer);
    model_file_close(m->file);
    mem_free(m->architecture);
    mem_free(m->name);
    mem_free(m);
}

void cohort_model_get_info(const cohort_model *m, cohort_model_info *out) {
    *out = (cohort_model_info){.architecture = m->architecture,
                               .name = m->name,
                               .cpu = "none",
                               .numerics_version = NUMERICS_VERSION,
                               .file_bytes = model_file_bytes(m->file),
                               .packed_bytes = atomic_load(&((cohort_model *)m)->packed_bytes),
                               .vocab_size = tokenizer_size(m->tokenizer),
                               .bos = tokenizer_bos(m->tokenizer),
                               .eos = tokenizer_eos(m->tokenizer),
                               .add_bos = tokenizer_add_bos(m->tokenizer),
                               .fim_prefix = tokenizer_fill(m->tokenizer, TOKENIZER_FILL_PREFIX),
                               .fim_suffix = tokenizer_fill(m->tokenizer, TOKENIZER_FILL_SUFFIX),
                               .fim_middle = tokenizer_fill(m->tokenizer, TOKENIZER_FILL_MIDDLE),
                               .fim_pad = tokenizer_fill(m->tokenizer, TOKENIZER_FILL_PAD),
                               .fim_repository = tokenizer_fill(m->tokenizer, TOKENIZER_FILL_REPOSITORY),
                               .fim_file = tokenizer_fill(m->tokenizer, TOKENIZER_FILL_FILE)};
    chat_api_info(m, out);
    if (!m->built) return;
    const struct model_spec *spec = model_get_spec(m->built);
    out->cpu = backend_level(m->backend);
    out->threads = backend_threads(m->backend);
    out->parameters = model_parameters(m->built);
    out->context_trained = spec->context_trained;
    out->layers = spec->n_layers;
    out->embedding_width = spec->width;
    out->pooling = spec->pooling;
}

/* Hands a buffer's bytes to a caller of the public interface. */
static void give(struct buf *b, char **out, size_t *len) {
    *out = b->data;
    if (len) *len = b->len;
}

int cohort_inspect(const char *path, int json, char **out, size_t *out_len, cohort_error *err) {
    struct model_file *file;
    struct buf text = {0};
    *out = NULL;
    int code = model_file_open(path, &file, err);
    if (code) return code;
    code = model_file_report(file, json, &text);
    if (!code) code = buf_add(&text, "", 0); /* something to point to, even if the report were empty */
    model_file_close(file);
    if (code) {
        buf_free(&text);
        return err_set(err, code, NULL, "no memory for the report");
    }
    give(&text, out, out_len);
    return COHORT_OK;
}

void cohort_free(void *memory) { mem_free(memory); }

int cohort_tokenize(const cohort_model *m, const char *text, size_t len, int flags, int32_t **out, size_t *n,
                    cohort_error *err) {
    *out = NULL;
    *n = 0;
    if (flags & ~(COHORT_TOKENIZE_SPECIAL | COHORT_TOKENIZE_BOS))
        return err_set(err, COHORT_E_ARGUMENT, "flags", "unknown flags %#x", (unsigned)flags);
    if (!utf8_valid(text, len)) return err_set(err, COHORT_E_ARGUMENT, "text", "the text is not valid UTF-8");
    return tokenizer_encode(m->tokenizer, text, len, flags, out, n, err);
}

static int check_id(const cohort_model *m, int32_t id, size_t i, cohort_error *err) {
    if (id >= 0 && (uint32_t)id < tokenizer_size(m->tokenizer)) return 0;
    return err_set(err, COHORT_E_ARGUMENT, "ids", "ids[%zu] is %d; the vocabulary has %u tokens", i, id,
                   tokenizer_size(m->tokenizer));
}

int cohort_detokenize(const cohort_model *m, const int32_t *ids, size_t n, int special, char **out, size_t *len,
                      cohort_error *err) {
    struct buf text = {0};
    *out = NULL;
    *len = 0;
    int code = buf_add(&text, "", 0), first = tokenizer_strips_first_space(m->tokenizer);
    for (size_t i = 0; i < n && !code; i++) {
        const char *bytes;
        size_t piece;
        if ((code = check_id(m, ids[i], i, err)) != 0) {
            buf_free(&text);
            return code;
        }
        tokenizer_piece(m->tokenizer, ids[i], special, &bytes, &piece);
        size_t skip = first && piece > 0 && bytes[0] == ' ';
        if (piece > 0) first = 0;
        code = buf_add(&text, bytes + skip, piece - skip);
    }
    if (code) {
        buf_free(&text);
        return err_set(err, code, NULL, "no memory for the text of %zu tokens", n);
    }
    give(&text, out, len);
    return COHORT_OK;
}

int cohort_token_piece(const cohort_model *m, int32_t id, const char **bytes, size_t *len) {
    if (check_id(m, id, 0, NULL)) return COHORT_E_ARGUMENT;
    tokenizer_piece(m->tokenizer, id, 1, bytes, len);
    return COHORT_OK;
}
