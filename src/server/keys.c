/* Reading the keys file, and finding a key (keys.h). Duplicates are found by sorting, so that a long file costs no more
 * than reading it. */
#include "server/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

struct key {
    const char *text; /* in the JSON, or the option's */
    uint32_t len, tenant;
};

struct keys {
    json_t *file; /* holds the strings */
    cohort_tenant *tenants;
    size_t n;
    struct key *key;
    size_t key_n;
    char shadow[KEYS_KEY_MAX]; /* compared in place of what lies behind a shorter key's end */
};

/* Where in the file something is wrong. */
struct place {
    const char *path;
    size_t entry;
};

__attribute__((format(printf, 4, 5))) static int wrong(const struct place *at, const char *field, cohort_error *err,
                                                       const char *format, ...) {
    char text[256], name[48];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(name, sizeof name, "keys[%zu].%s", at->entry, field);
    return err_set(err, COHORT_E_ARGUMENT, name, "%.160s: %s %s", at->path, name, text);
}

/* ---- the file's bytes ---- */

static int read_all(int fd, const char *path, struct buf *out, cohort_error *err) {
    char block[16384];
    ssize_t n;
    out->max = KEYS_FILE_MAX;
    while ((n = read(fd, block, sizeof block)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, COHORT_E_IO, "keys", "%.160s: %s", path, strerror(errno));
        int code = buf_add(out, block, (size_t)n);
        if (code == COHORT_E_LIMIT)
            return err_set(err, code, "keys", "%.160s: larger than %d bytes", path, KEYS_FILE_MAX);
        if (code) return err_set(err, code, "keys", "%.160s: no memory to read it", path);
    }
    return 0;
}

static int read_file(const char *path, struct buf *out, cohort_error *err) {
    struct stat is;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &is) != 0) {
        int code = err_set(err, COHORT_E_IO, "keys", "%.160s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return code;
    }
    if (S_ISREG(is.st_mode) && is.st_mode & (S_IRGRP | S_IROTH))
        fprintf(stderr, "cohort: warning: %s can be read by others than its owner (mode %04o); it holds keys\n", path,
                (unsigned)is.st_mode & 07777);
    int code = read_all(fd, path, out, err);
    close(fd);
    return code;
}

static int parse(const char *path, json_t **out, cohort_error *err) {
    struct buf text = {0};
    json_error_t where;
    int code = read_file(path, &text, err);
    if (!code) {
        *out = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &where);
        if (!*out)
            code = err_set(err, COHORT_E_ARGUMENT, "keys", "%.160s: line %d, column %d: %s", path, where.line,
                           where.column, where.text);
    }
    buf_free(&text);
    return code;
}

/* ---- fields ---- */

static int only_known(const struct place *at, const json_t *entry, cohort_error *err) {
    static const char *const known[] = {"name", "key", "weight", "rows", "queue", "tokens_per_minute"};
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)entry, field, value) {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(known[i], field) != 0) i++;
        if (i == sizeof known / sizeof known[0]) return wrong(at, field, err, "is not a field of a key");
    }
    return 0;
}

static int read_number(const struct place *at, const json_t *entry, const char *field, uint64_t low, uint64_t high,
                       uint64_t *out, cohort_error *err) {
    const json_t *value = json_object_get(entry, field);
    if (!value) return 0;
    if (!json_is_integer(value)) return wrong(at, field, err, "must be an integer");
    json_int_t number = json_integer_value(value);
    if (number < (json_int_t)low || number > (json_int_t)high)
        return wrong(at, field, err, "is %lld; %llu to %llu are possible", (long long)number, (unsigned long long)low,
                     (unsigned long long)high);
    *out = (uint64_t)number;
    return 0;
}

static int read_name(const struct place *at, const json_t *entry, cohort_tenant *out, cohort_error *err) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const json_t *value = json_object_get(entry, "name");
    if (!json_is_string(value)) return wrong(at, "name", err, "must be a string");
    size_t len = json_string_length(value);
    if (len < 1 || len > COHORT_TENANT_NAME_MAX || strspn(json_string_value(value), allowed) != len)
        return wrong(at, "name", err, "must be 1 to %d bytes of A-Z a-z 0-9 . _ -", COHORT_TENANT_NAME_MAX);
    out->name = json_string_value(value);
    return 0;
}

/* A key goes through an HTTP header, which loses spaces at its ends and cannot carry everything. */
static const char *what_is_wrong(const char *key, size_t len) {
    if (len == 0) return "is empty";
    if (len > KEYS_KEY_MAX) return "is longer than 256 bytes";
    for (size_t i = 0; i < len; i++)
        if (key[i] < ' ' || key[i] > '~') return "has a byte that no HTTP header can carry";
    return key[0] == ' ' || key[len - 1] == ' ' ? "begins or ends with a space" : NULL;
}
_Static_assert(KEYS_KEY_MAX == 256, "the text says it");

static void add_key(struct keys *keys, const char *text, size_t len, size_t tenant) {
    keys->key[keys->key_n++] = (struct key){text, (uint32_t)len, (uint32_t)tenant};
}

static int read_keys(struct keys *keys, const struct place *at, const json_t *entry, cohort_error *err) {
    const json_t *value = json_object_get(entry, "key");
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (!json_is_array(value) && !json_is_string(value))
        return wrong(at, "key", err, "must be a string or an array of strings");
    if (n < 1 || n > KEYS_EACH_MAX)
        return wrong(at, "key", err, "has %zu keys; 1 to %d are possible", n, KEYS_EACH_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *key = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(key)) return wrong(at, "key", err, "must be a string or an array of strings");
        const char *fault = what_is_wrong(json_string_value(key), json_string_length(key));
        if (fault) return wrong(at, "key", err, "%s", fault);
        add_key(keys, json_string_value(key), json_string_length(key), keys->n);
    }
    return 0;
}

static int read_entry(struct keys *keys, const struct place *at, const json_t *entry, cohort_error *err) {
    cohort_tenant *x = &keys->tenants[keys->n];
    uint64_t weight = 1, rows = 0, queue = 0;
    if (!json_is_object(entry))
        return err_set(err, COHORT_E_ARGUMENT, "keys", "%.160s: keys[%zu] must be an object", at->path, at->entry);
    *x = (cohort_tenant){0};
    int code = only_known(at, entry, err);
    if (!code) code = read_name(at, entry, x, err);
    if (!code) code = read_keys(keys, at, entry, err);
    if (!code) code = read_number(at, entry, "weight", 1, COHORT_WEIGHT_MAX, &weight, err);
    if (!code) code = read_number(at, entry, "rows", 0, INT32_MAX, &rows, err);
    if (!code) code = read_number(at, entry, "queue", 0, INT32_MAX, &queue, err);
    if (!code)
        code = read_number(at, entry, "tokens_per_minute", 0, COHORT_TOKENS_PER_MINUTE_MAX, &x->tokens_per_minute, err);
    x->weight = (uint32_t)weight;
    x->rows = (uint32_t)rows;
    x->queue = (uint32_t)queue;
    keys->n++;
    return code;
}

/* ---- duplicates ---- */

static int by_text(const void *a, const void *b) {
    const struct key *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->tenant > y->tenant) - (x->tenant < y->tenant);
}

/* `first`: the tenant that is keys[0] of the file; the one before it is --api-key's. */
static int refuse_twin(const char *path, size_t first, const struct key *a, const struct key *b, const char *field,
                       cohort_error *err) {
    const struct place at = {path, b->tenant - first};
    if (a->tenant < first)
        return wrong(&at, field, err, "is %s", field[0] == 'n' ? "that of --api-key's tenant" : "--api-key's, too");
    return wrong(&at, field, err, "is %s keys[%zu], too", field[0] == 'n' ? "that of" : "a key of", a->tenant - first);
}

static int find_twins(struct key *list, size_t n, const char *path, size_t first, const char *field,
                      cohort_error *err) {
    qsort(list, n, sizeof *list, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(list[i - 1].text, list[i].text) == 0)
            return refuse_twin(path, first, &list[i - 1], &list[i], field, err);
    return 0;
}

static int check_twins(struct keys *keys, const char *path, size_t first, cohort_error *err) {
    struct key *names = mem_alloc(keys->n, sizeof *names);
    if (!names) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu keys", keys->n);
    for (size_t i = 0; i < keys->n; i++) names[i] = (struct key){keys->tenants[i].name, 0, (uint32_t)i};
    int code = find_twins(names, keys->n, path, first, "name", err);
    mem_free(names);
    if (!code) code = find_twins(keys->key, keys->key_n, path, first, "key", err);
    return code;
}

/* ---- life ---- */

static int allocate(struct keys *keys, size_t entries, cohort_error *err) {
    keys->tenants = mem_zalloc(entries + 1, sizeof *keys->tenants);
    keys->key = mem_zalloc(entries * KEYS_EACH_MAX + 1, sizeof *keys->key);
    if (keys->tenants && keys->key) return 0;
    return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu keys", entries);
}

static int add_api_key(struct keys *keys, const char *api_key, cohort_error *err) {
    const char *fault = what_is_wrong(api_key, strlen(api_key));
    if (fault) return err_set(err, COHORT_E_ARGUMENT, "api-key", "--api-key %s", fault);
    keys->tenants[keys->n] = (cohort_tenant){.name = "default", .weight = 1};
    add_key(keys, api_key, strlen(api_key), keys->n++);
    return 0;
}

/* The array of the file's entries, NULL after an error. */
static const json_t *find_list(const json_t *file, const char *path, size_t most, cohort_error *err) {
    const json_t *list = json_object_get(file, "keys");
    if (!json_is_array(list) || json_object_size(file) != 1)
        err_set(err, COHORT_E_ARGUMENT, "keys", "%.160s: must be an object with one field, \"keys\", an array", path);
    else if (json_array_size(list) < 1 || json_array_size(list) > most)
        err_set(err, COHORT_E_ARGUMENT, "keys", "%.160s: keys has %zu entries; 1 to %zu are possible", path,
                json_array_size(list), most);
    else
        return list;
    return NULL;
}

static int fill(struct keys *keys, const char *api_key, const char *path, cohort_error *err) {
    const json_t *list = NULL;
    if (path) {
        int code = parse(path, &keys->file, err);
        if (code) return code;
        list = find_list(keys->file, path, COHORT_TENANTS_MAX - (api_key != NULL), err);
        if (!list) return COHORT_E_ARGUMENT;
    }
    int code = allocate(keys, json_array_size(list), err);
    if (!code && api_key) code = add_api_key(keys, api_key, err);
    struct place at = {path, 0};
    size_t first = keys->n;
    for (; !code && at.entry < json_array_size(list); at.entry++)
        code = read_entry(keys, &at, json_array_get(list, at.entry), err);
    if (!code) code = check_twins(keys, path, first, err);
    return code;
}

int keys_open(const char *api_key, const char *path, struct keys **out, cohort_error *err) {
    *out = NULL;
    if (!api_key && !path) return 0;
    struct keys *keys = mem_zalloc(1, sizeof *keys);
    if (!keys) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for keys");
    int code = fill(keys, api_key, path, err);
    if (code) {
        keys_close(keys);
        return code;
    }
    *out = keys;
    return 0;
}

void keys_close(struct keys *keys) {
    if (!keys) return;
    json_decref(keys->file);
    mem_free(keys->tenants);
    mem_free(keys->key);
    mem_free(keys);
}

const cohort_tenant *keys_tenants(const struct keys *keys, size_t *n) {
    *n = keys ? keys->n : 0;
    return keys ? keys->tenants : NULL;
}

int keys_find(const struct keys *keys, const char *given) {
    size_t given_len = strlen(given);
    uint32_t found = 0; /* tenant + 1 */
    for (size_t k = 0; k < keys->key_n; k++) {
        const struct key *key = &keys->key[k];
        unsigned char difference = given_len != key->len;
        for (size_t i = 0; i < given_len && i < KEYS_KEY_MAX; i++)
            difference |= (unsigned char)(given[i] ^ (i < key->len ? key->text : keys->shadow)[i]);
        uint32_t same = (uint32_t)(difference - 1) >> 31; /* 1 if there is no difference */
        found |= (key->tenant + 1) & (0 - same);
    }
    return (int)found - 1;
}
