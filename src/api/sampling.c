/* How tokens are drawn (sampling.h). Limits are the engine's; what is absent has the engine's default, which changes
 * nothing but for the temperature that a dialect sets.
 *
 *   temperature 0..100 (0: greedy)               repeat_penalty = repetition_penalty, above 0 to 100
 *   dynatemp_range, dynatemp_exponent 0..100     repeat_last_n: its window, and that of the next two unless
 *   top_k -1..(-1, 0: off)  top_p, min_p 0..1    penalty_last_n says otherwise; -1: all, 0: off
 *   typical_p = typ_p 0..1                       frequency_penalty, presence_penalty -100..100, of the answer only
 *   top_n_sigma -1..1000 (-1, 0: off)            dry_multiplier 0..100, dry_base 1..100, dry_allowed_length from 1,
 *   xtc_probability, xtc_threshold 0..1          dry_penalty_last_n as repeat_last_n, dry_sequence_breakers: texts
 *   min_keep from 0                              mirostat 0..2, mirostat_tau 0..100, mirostat_eta 0..1
 *   seed: any 64 bits; -1: drawn                 samplers: names in an array, or a string of llama-server's letters
 *   min_tokens, ignore_eos                       allowed_token_ids, logit_bias, bad_words
 *
 * logit_bias is OpenAI's map of ids, or llama-server's array of [id or text, bias] pairs, or a map whose keys are
 * texts: a text's bias is that of each of its tokens, false is minus infinity, and of an id's several biases the last
 * counts. A bad word is banned with a space in front and without. Two names of one field must agree. */
#include "api/sampling.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/params.h"
#include "base/err.h"
#include "base/mem.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field names[] = {
    {"temperature", FIELD_READ, NULL},
    {"dynatemp_range", FIELD_READ, NULL},
    {"dynatemp_exponent", FIELD_READ, NULL},
    {"top_k", FIELD_READ, NULL},
    {"top_p", FIELD_READ, NULL},
    {"min_p", FIELD_READ, NULL},
    {"typical_p", FIELD_READ, NULL},
    {"typ_p", FIELD_READ, NULL},
    {"top_n_sigma", FIELD_READ, NULL},
    {"xtc_probability", FIELD_READ, NULL},
    {"xtc_threshold", FIELD_READ, NULL},
    {"min_keep", FIELD_READ, NULL},
    {"repeat_penalty", FIELD_READ, NULL},
    {"repetition_penalty", FIELD_READ, NULL},
    {"repeat_last_n", FIELD_READ, NULL},
    {"penalty_last_n", FIELD_READ, NULL},
    {"frequency_penalty", FIELD_READ, NULL},
    {"presence_penalty", FIELD_READ, NULL},
    {"dry_multiplier", FIELD_READ, NULL},
    {"dry_base", FIELD_READ, NULL},
    {"dry_allowed_length", FIELD_READ, NULL},
    {"dry_penalty_last_n", FIELD_READ, NULL},
    {"dry_sequence_breakers", FIELD_READ, NULL},
    {"mirostat", FIELD_READ, NULL},
    {"mirostat_tau", FIELD_READ, NULL},
    {"mirostat_eta", FIELD_READ, NULL},
    {"samplers", FIELD_READ, NULL},
    {"seed", FIELD_READ, NULL},
    {"logit_bias", FIELD_READ, NULL},
    {"bad_words", FIELD_READ, NULL},
    {"allowed_token_ids", FIELD_READ, NULL},
    {"min_tokens", FIELD_READ, NULL},
    {"ignore_eos", FIELD_READ, NULL},
};
const struct known_list sampling_known = {names, COUNT(names)};

/* ---- numbers ---- */

static const struct number {
    const char *name, *other; /* NULL: no second name */
    size_t at;
    double low, high;
} numbers[] = {
    {"temperature", NULL, offsetof(cohort_sampling, temperature), 0, 100},
    {"dynatemp_range", NULL, offsetof(cohort_sampling, temperature_range), 0, 100},
    {"dynatemp_exponent", NULL, offsetof(cohort_sampling, temperature_exponent), 0, 100},
    {"top_p", NULL, offsetof(cohort_sampling, top_p), 0, 1},
    {"min_p", NULL, offsetof(cohort_sampling, min_p), 0, 1},
    {"typical_p", "typ_p", offsetof(cohort_sampling, typical_p), 0, 1},
    {"top_n_sigma", NULL, offsetof(cohort_sampling, top_n_sigma), -1, 1000},
    {"xtc_probability", NULL, offsetof(cohort_sampling, xtc_probability), 0, 1},
    {"xtc_threshold", NULL, offsetof(cohort_sampling, xtc_threshold), 0, 1},
    {"repeat_penalty", "repetition_penalty", offsetof(cohort_sampling, repetition_penalty), 0, 100},
    {"frequency_penalty", NULL, offsetof(cohort_sampling, frequency_penalty), -100, 100},
    {"presence_penalty", NULL, offsetof(cohort_sampling, presence_penalty), -100, 100},
    {"dry_multiplier", NULL, offsetof(cohort_sampling, dry_multiplier), 0, 100},
    {"dry_base", NULL, offsetof(cohort_sampling, dry_base), 1, 100},
    {"mirostat_tau", NULL, offsetof(cohort_sampling, mirostat_tau), 0, 100},
    {"mirostat_eta", NULL, offsetof(cohort_sampling, mirostat_eta), 0, 1},
};

static int read_number(const json_t *body, const struct number *number, float *out, cohort_error *err) {
    int rc = field_number(body, number->name, number->low, number->high, out, err);
    if (rc || !number->other || !field_present(body, number->other)) return rc;
    float other = *out;
    rc = field_number(body, number->other, number->low, number->high, &other, err);
    if (!rc && field_present(body, number->name) && other != *out)
        return err_set(err, COHORT_E_ARGUMENT, number->other, "%s and %s are one field, and they differ", number->name,
                       number->other);
    if (!rc) *out = other;
    return rc;
}

static int read_numbers(const json_t *body, cohort_sampling *s, cohort_error *err) {
    int rc = 0;
    for (size_t i = 0; i < COUNT(numbers) && !rc; i++)
        rc = read_number(body, &numbers[i], (float *)(void *)((char *)s + numbers[i].at), err);
    if (rc) return rc;
    if (s->top_n_sigma < 0) s->top_n_sigma = 0;
    const char *penalty = field_present(body, "repeat_penalty") ? "repeat_penalty" : "repetition_penalty";
    if (field_present(body, penalty) && !(s->repetition_penalty > 0))
        return err_set(err, COHORT_E_ARGUMENT, penalty, "%s must be above 0", penalty);
    return 0;
}

/* ---- integers ---- */

static int read_int(const json_t *body, const char *name, int64_t low, int64_t high, int32_t *out, cohort_error *err) {
    int64_t value = *out;
    int rc = field_integer(body, name, low, high, &value, err);
    *out = (int32_t)value;
    return rc;
}

static int read_count(const json_t *body, const char *name, int64_t low, uint32_t *out, cohort_error *err) {
    int64_t value = *out;
    int rc = field_integer(body, name, low, INT32_MAX, &value, err);
    *out = (uint32_t)value;
    return rc;
}

static int read_window(const json_t *body, const char *name, int32_t *out, cohort_error *err) {
    return read_int(body, name, -1, COHORT_SAMPLER_WINDOW_MAX, out, err);
}

static int read_seed(const json_t *body, cohort_sampling *s, cohort_error *err) {
    int64_t seed = -1;
    int rc = field_integer(body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    if (rc || !field_present(body, "seed")) return rc;
    s->seed = (uint64_t)seed;
    s->has_seed = seed != -1;
    return 0;
}

static int read_integers(const json_t *body, cohort_sampling *s, cohort_error *err) {
    int rc = read_int(body, "top_k", -1, INT32_MAX, &s->top_k, err);
    if (!rc) rc = read_count(body, "min_keep", 0, &s->min_keep, err);
    if (!rc) rc = read_window(body, "repeat_last_n", &s->repetition_window, err);
    if (!rc && field_present(body, "repeat_last_n")) s->answer_window = s->repetition_window;
    if (!rc) rc = read_window(body, "penalty_last_n", &s->answer_window, err);
    if (!rc) rc = read_window(body, "dry_penalty_last_n", &s->dry_window, err);
    if (!rc) rc = read_count(body, "dry_allowed_length", 1, &s->dry_allowed_length, err);
    if (!rc) rc = read_int(body, "mirostat", 0, 2, &s->mirostat, err);
    if (!rc) rc = read_seed(body, s, err);
    if (s->top_k < 0) s->top_k = 0;
    return rc;
}

/* ---- samplers ---- */

static const struct sampler_name {
    const char *name;
    char letter; /* 0: another name of one that has it */
    uint8_t sampler;
} sampler_names[] = {
    {"penalties", 'e', COHORT_SAMPLER_PENALTIES},
    {"dry", 'd', COHORT_SAMPLER_DRY},
    {"top_n_sigma", 's', COHORT_SAMPLER_TOP_N_SIGMA},
    {"top_k", 'k', COHORT_SAMPLER_TOP_K},
    {"typ_p", 'y', COHORT_SAMPLER_TYPICAL},
    {"typical_p", 0, COHORT_SAMPLER_TYPICAL},
    {"top_p", 'p', COHORT_SAMPLER_TOP_P},
    {"min_p", 'm', COHORT_SAMPLER_MIN_P},
    {"xtc", 'x', COHORT_SAMPLER_XTC},
    {"temperature", 't', COHORT_SAMPLER_TEMPERATURE},
    {"temp", 0, COHORT_SAMPLER_TEMPERATURE},
};

/* "top-k" is "top_k". */
static int is_named(const char *given, size_t len, const char *name) {
    if (len != strlen(name)) return 0;
    for (size_t i = 0; i < len; i++)
        if ((given[i] == '-' ? '_' : given[i]) != name[i]) return 0;
    return 1;
}

/* 0: no sampler. */
static uint8_t find_sampler(const char *given, size_t len, int by_letter) {
    for (size_t i = 0; i < COUNT(sampler_names); i++) {
        const struct sampler_name *known = &sampler_names[i];
        if (by_letter ? known->letter && *given == known->letter : is_named(given, len, known->name))
            return known->sampler;
    }
    return 0;
}

static int add_sampler(cohort_sampling *s, size_t i, const char *given, size_t len, int by_letter, cohort_error *err) {
    uint8_t sampler = find_sampler(given, len, by_letter);
    if (!sampler)
        return err_set(err, COHORT_E_ARGUMENT, "samplers",
                       "samplers[%zu] is none of penalties (e), dry (d), top_n_sigma (s), top_k (k), typ_p (y), "
                       "top_p (p), min_p (m), xtc (x), temperature (t)",
                       i);
    for (uint32_t j = 0; j < s->order_n; j++)
        if (s->order[j] == sampler)
            return err_set(err, COHORT_E_ARGUMENT, "samplers", "samplers[%zu] is there for the second time", i);
    s->order[s->order_n++] = sampler;
    return 0;
}

static int read_samplers(const json_t *body, cohort_sampling *s, cohort_error *err) {
    const json_t *list = field_present(body, "samplers");
    if (!list) return 0;
    int by_letter = json_is_string(list), rc = 0;
    if (!by_letter && !json_is_array(list))
        return err_set(err, COHORT_E_ARGUMENT, "samplers",
                       "samplers must be an array of names or a string of letters, not %s", field_type(list));
    size_t n = by_letter ? json_string_length(list) : json_array_size(list);
    s->order_n = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const json_t *item = by_letter ? list : json_array_get(list, i);
        if (!json_is_string(item))
            return err_set(err, COHORT_E_ARGUMENT, "samplers", "samplers[%zu] must be a string, not %s", i,
                           field_type(item));
        const char *given = json_string_value(item);
        rc = by_letter ? add_sampler(s, i, given + i, 1, 1, err)
                       : add_sampler(s, i, given, json_string_length(item), 0, err);
    }
    if (!rc && n == 0) { /* none at all: one that does nothing, as an empty order is the usual one */
        s->order[s->order_n++] = COHORT_SAMPLER_DRY;
        s->dry_multiplier = 0;
    }
    return rc;
}

/* ---- texts and ids ---- */

/* An array of at most `most` texts; *n of them. */
static int check_texts(const json_t *list, const char *field, size_t most, size_t *n, cohort_error *err) {
    if (!json_is_array(list))
        return err_set(err, COHORT_E_ARGUMENT, field, "%s must be an array of strings, not %s", field,
                       field_type(list));
    *n = json_array_size(list);
    if (*n > most)
        return err_set(err, COHORT_E_ARGUMENT, field, "%s has %zu strings, at most %zu are allowed", field, *n, most);
    for (size_t i = 0; i < *n; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item))
            return err_set(err, COHORT_E_ARGUMENT, field, "%s[%zu] must be a string, not %s", field, i,
                           field_type(item));
        size_t len = json_string_length(item);
        if (len == 0 || len > COHORT_STOP_BYTES_MAX)
            return err_set(err, COHORT_E_ARGUMENT, field, "%s[%zu] has %zu bytes, 1 to %d are allowed", field, i, len,
                           COHORT_STOP_BYTES_MAX);
    }
    return 0;
}

static int read_breakers(struct params *p, const json_t *body, cohort_error *err) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const json_t *list = field_present(body, "dry_sequence_breakers");
    p->dry_breakers_n = 0;
    if (!list) {
        for (size_t i = 0; i < COUNT(usual); i++) p->dry_breakers[p->dry_breakers_n++] = (cohort_span){usual[i], 1};
        return 0;
    }
    size_t n;
    int rc = check_texts(list, "dry_sequence_breakers", COHORT_DRY_BREAKERS_MAX, &n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        const json_t *item = json_array_get(list, i);
        p->dry_breakers[p->dry_breakers_n++] = (cohort_span){json_string_value(item), json_string_length(item)};
    }
    return rc;
}

static int compare_ids(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int read_allowed(struct call *call, const json_t *body, cohort_error *err) {
    struct params *p = &call->params;
    const json_t *list = field_present(body, "allowed_token_ids");
    if (!list) return 0;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > COHORT_ALLOWED_IDS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "allowed_token_ids",
                       "allowed_token_ids must be an array of 1 to %d token ids", COHORT_ALLOWED_IDS_MAX);
    size_t n, kept = 0;
    int rc = params_ids(call, list, "allowed_token_ids", &p->allowed_ids, &n, err);
    if (rc) return rc;
    qsort(p->allowed_ids, n, sizeof *p->allowed_ids, compare_ids);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || p->allowed_ids[i] != p->allowed_ids[kept - 1]) p->allowed_ids[kept++] = p->allowed_ids[i];
    p->allowed_ids_n = kept;
    return 0;
}

/* ---- biases ---- */

/* One entry: `text`, or `id` if that is NULL. */
struct bias_entry {
    const char *text;
    size_t len;
    int32_t id;
    float bias;
};

static int is_integer(const char *s, size_t len) {
    size_t i = len > 1 && *s == '-';
    if (i == len) return 0;
    for (; i < len; i++)
        if (s[i] < '0' || s[i] > '9') return 0;
    return 1;
}

static int no_bias_id(const struct call *call, cohort_error *err) {
    cohort_model_info info;
    cohort_model_get_info(server_model(call->server), &info);
    return err_set(err, COHORT_E_ARGUMENT, "logit_bias", "logit_bias has an id that is no token's: from 0 to %u",
                   info.vocab_size - 1);
}

static int bias_id(const struct call *call, int64_t id, struct bias_entry *out, cohort_error *err) {
    cohort_model_info info;
    cohort_model_get_info(server_model(call->server), &info);
    if (id < 0 || id >= (int64_t)info.vocab_size) return no_bias_id(call, err);
    *out = (struct bias_entry){.id = (int32_t)id};
    return 0;
}

/* A string is an id if it reads as an integer, else a text. */
static int bias_name(const struct call *call, const char *s, size_t len, struct bias_entry *out, cohort_error *err) {
    if (is_integer(s, len)) return len > 18 ? no_bias_id(call, err) : bias_id(call, strtoll(s, NULL, 10), out, err);
    if (len == 0 || len > COHORT_STOP_BYTES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "logit_bias", "logit_bias has a text of %zu bytes, 1 to %d are allowed",
                       len, COHORT_STOP_BYTES_MAX);
    *out = (struct bias_entry){.text = s, .len = len};
    return 0;
}

static int bias_value(const json_t *value, struct bias_entry *out, cohort_error *err) {
    if (json_is_false(value)) {
        out->bias = -INFINITY;
        return 0;
    }
    double bias = json_number_value(value);
    if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
        return err_set(err, COHORT_E_ARGUMENT, "logit_bias",
                       "logit_bias has a value that is not a number from -100 to 100, or false");
    out->bias = (float)bias;
    return 0;
}

static int bias_pair(const struct call *call, const json_t *pair, struct bias_entry *out, cohort_error *err) {
    const json_t *name = json_array_get(pair, 0);
    int rc;
    if (json_array_size(pair) != 2 || !(json_is_integer(name) || json_is_string(name)))
        return err_set(err, COHORT_E_ARGUMENT, "logit_bias",
                       "logit_bias as an array must have pairs [token id or text, bias]");
    if (json_is_integer(name))
        rc = bias_id(call, json_integer_value(name), out, err);
    else if (json_string_length(name) == 0)
        rc = bias_name(call, "", 0, out, err);
    else
        rc = bias_name(call, json_string_value(name), json_string_length(name), out, err);
    return rc ? rc : bias_value(json_array_get(pair, 1), out, err);
}

/* The entries of either form, each given to `take`. */
static int walk_biases(struct call *call, const json_t *biases,
                       int (*take)(struct call *call, const struct bias_entry *entry, cohort_error *err),
                       cohort_error *err) {
    struct bias_entry entry;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(biases) && !rc; i++) {
        rc = bias_pair(call, json_array_get(biases, i), &entry, err);
        if (!rc) rc = take(call, &entry, err);
    }
    const char *name;
    json_t *value;
    if (!json_is_object(biases)) return rc;
    json_object_foreach((json_t *)biases, name, value) {
        rc = bias_name(call, name, strlen(name), &entry, err);
        if (!rc) rc = bias_value(value, &entry, err);
        if (!rc) rc = take(call, &entry, err);
        if (rc) return rc;
    }
    return rc;
}

static int only_check(struct call *call, const struct bias_entry *entry, cohort_error *err) {
    (void)call;
    (void)entry;
    (void)err;
    return 0;
}

static int check_biases(struct call *call, const json_t *body, cohort_error *err) {
    const json_t *biases = field_present(body, "logit_bias");
    if (!biases) return 0;
    if (!json_is_object(biases) && !json_is_array(biases))
        return err_set(err, COHORT_E_ARGUMENT, "logit_bias", "logit_bias must be an object or an array, not %s",
                       field_type(biases));
    size_t n = json_is_object(biases) ? json_object_size(biases) : json_array_size(biases);
    if (n > COHORT_BIASES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "logit_bias", "logit_bias has %zu entries, at most %d are allowed", n,
                       COHORT_BIASES_MAX);
    return walk_biases(call, biases, only_check, err);
}

static int set_bias(struct params *p, int32_t id, float bias, cohort_error *err) {
    for (size_t i = 0; i < p->biases_n; i++)
        if (p->biases[i].id == id) {
            p->biases[i].bias = bias;
            return 0;
        }
    if (p->biases_n == COHORT_BIASES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "logit_bias", "logit_bias is for more than %d tokens",
                       COHORT_BIASES_MAX);
    p->biases[p->biases_n++] = (cohort_bias){id, bias};
    return 0;
}

/* Tokens of a text that stands somewhere in an answer. */
static int tokens_of(const struct call *call, const char *field, const char *text, size_t len, int32_t **ids, size_t *n,
                     cohort_error *err) {
    int rc = cohort_tokenize(server_model(call->server), text, len, 0, ids, n, err);
    if (rc) return err_set(err, rc, field, "%s: %s", field, cohort_error_text(rc));
    return 0;
}

static int take_bias(struct call *call, const struct bias_entry *entry, cohort_error *err) {
    if (!entry->text) return set_bias(&call->params, entry->id, entry->bias, err);
    int32_t *ids;
    size_t n;
    int rc = tokens_of(call, "logit_bias", entry->text, entry->len, &ids, &n, err);
    if (rc) return rc;
    for (size_t i = 0; i < n && !rc; i++) rc = set_bias(&call->params, ids[i], entry->bias, err);
    cohort_free(ids);
    return rc;
}

static int make_biases(struct call *call, const json_t *biases, cohort_error *err) {
    struct params *p = &call->params;
    if (!biases) return 0;
    p->biases_n = 0;
    p->biases = mem_alloc(COHORT_BIASES_MAX, sizeof *p->biases);
    if (!p->biases) return err_set(err, COHORT_E_MEMORY, "logit_bias", "no memory for the biases");
    return walk_biases(call, biases, take_bias, err);
}

/* ---- words ---- */

/* What is banned lies in one block: the sequences, then room for the ids of as many. */
static int32_t *banned_ids(const struct params *p, size_t words) {
    return (int32_t *)(void *)(p->banned + 2 * words) + p->banned_n * COHORT_BANNED_IDS_MAX;
}

static int ban(struct call *call, size_t words, const char *text, size_t len, cohort_error *err) {
    struct params *p = &call->params;
    int32_t *ids, *into = banned_ids(p, words);
    size_t n;
    int rc = tokens_of(call, "bad_words", text, len, &ids, &n, err);
    if (rc) return rc;
    if (n > COHORT_BANNED_IDS_MAX)
        rc = err_set(err, COHORT_E_ARGUMENT, "bad_words", "bad_words has a text of %zu tokens, at most %d are allowed",
                     n, COHORT_BANNED_IDS_MAX);
    if (!rc && n) {
        memcpy(into, ids, n * sizeof *ids);
        p->banned[p->banned_n++] = (cohort_ids){into, n};
    }
    cohort_free(ids);
    return rc;
}

static int make_banned(struct call *call, const json_t *words, cohort_error *err) {
    struct params *p = &call->params;
    size_t n = json_array_size(words);
    int rc = 0;
    if (n == 0) return 0;
    p->banned_n = 0;
    p->banned = mem_zalloc(2 * n, sizeof *p->banned + COHORT_BANNED_IDS_MAX * sizeof(int32_t));
    if (!p->banned) return err_set(err, COHORT_E_MEMORY, "bad_words", "no memory for %zu words", n);
    for (size_t i = 0; i < n && !rc; i++) {
        const json_t *word = json_array_get(words, i);
        const char *text = json_string_value(word);
        size_t len = json_string_length(word), space = len > 1 && *text == ' ';
        char spaced[COHORT_STOP_BYTES_MAX + 1] = " ";
        memcpy(spaced + 1, text + space, len - space);
        rc = ban(call, n, spaced + 1, len - space, err);
        if (!rc) rc = ban(call, n, spaced, len - space + 1, err);
    }
    return rc;
}

/* ---- all of them ---- */

int sampling_read(struct call *call, const json_t *body, cohort_error *err) {
    struct params *p = &call->params;
    const json_t *words = field_present(body, "bad_words");
    size_t words_n;
    int rc = read_numbers(body, &p->sampling, err);
    if (!rc) rc = read_integers(body, &p->sampling, err);
    if (!rc) rc = read_samplers(body, &p->sampling, err);
    if (!rc) rc = read_breakers(p, body, err);
    if (!rc) rc = read_allowed(call, body, err);
    if (!rc) rc = check_biases(call, body, err);
    if (!rc && words) rc = check_texts(words, "bad_words", PARAMS_WORDS_MAX, &words_n, err);
    if (!rc) rc = read_count(body, "min_tokens", 0, &p->min_tokens, err);
    if (!rc) rc = field_bool(body, "ignore_eos", &p->ignore_eos, err);
    return rc;
}

int sampling_prepare(struct call *call, cohort_error *err) {
    int rc = make_biases(call, field_present(call->body, "logit_bias"), err);
    return rc ? rc : make_banned(call, field_present(call->body, "bad_words"), err);
}
