/* Models for histories.h. The window of a tiny model's file is narrower than a page; files with wider ones are made
 * from it by changing that number, which no tensor depends on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "histories.h"

static const char *vectors_root(void) {
    const char *set = getenv("COHORT_VECTORS");
    return set && *set ? set : COHORT_SOURCE_DIR "/../shared/vectors";
}

static _Noreturn void broken(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n);
    if (!bytes || fread(bytes, 1, *n, f) != *n) broken(path, "cannot be read");
    fclose(f);
    return bytes;
}

/* The value of a 32-bit key, in the bytes of a file; 0 if it is not there. */
static uint32_t *find_u32(char *bytes, size_t n, const char *folder, const char *name) {
    char key[128];
    size_t len = (size_t)snprintf(key, sizeof(key), "%s.%s", folder, name);
    char *at = memmem(bytes, n, key, len);
    return at ? (uint32_t *)(void *)(at + len + sizeof(uint32_t)) : NULL; /* behind its type */
}

static cohort_model *open_path(const char *path, const char *cpu) {
    cohort_model_options o;
    cohort_model *model;
    cohort_error err = {0};
    cohort_model_options_defaults(&o);
    o.cpu = cpu;
    o.threads = 1;
    if (cohort_model_open(path, &o, &model, &err) != 0) broken(path, err.text);
    return model;
}

int history_model_open(struct history_model *m, const char *name, const char *cpu) {
    char folder[64], path[4096], copy[] = "/tmp/cohort-histories-XXXXXX";
    size_t n;
    const char *colon = strchr(name, ':'), *forms = strchr(name, '@');
    snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(name, ":@"), name);
    unsigned keys = 0, values = 0, after = 0;
    if (forms && sscanf(forms, "@%u/%u/%u", &keys, &values, &after) != 3) broken(name, "no such forms");
    m->key_form = (cohort_state_form)keys;
    m->value_form = (cohort_state_form)values;
    m->quantise_after = after;
    snprintf(path, sizeof(path), "%s/%s/model.gguf", vectors_root(), folder);
    char *bytes = read_file(path, &n);
    if (!bytes) return 0;
    uint32_t window = 0, *value = find_u32(bytes, n, folder, "attention.sliding_window");
    if (value && colon) {
        window = (uint32_t)strtoul(colon + 1, NULL, 10);
        memcpy(value, &window, sizeof(window));
    } else if (value) {
        memcpy(&window, value, sizeof(window));
    }
    int fd = mkstemp(copy);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) broken(copy, "cannot be written");
    close(fd);
    free(bytes);
    m->window = window;
    m->recurrent = strcmp(folder, "qwen3_5") == 0 || strcmp(folder, "lfm2") == 0;
    m->played = open_path(copy, cpu);
    m->oracle = open_path(copy, cpu);
    unlink(copy); /* they have it mapped */
    cohort_model_info info;
    cohort_model_get_info(m->played, &info);
    m->vocab = info.vocab_size;
    m->eos = info.eos;
    grammar_mix_open(&m->played_grammars, m->played);
    grammar_mix_open(&m->oracle_grammars, m->oracle);
    return 1;
}

void history_model_forms(const struct history_model *m, cohort_engine_options *o) {
    o->key_form = m->key_form;
    o->value_form = m->value_form;
    o->quantise_after = m->quantise_after;
}

void history_model_close(struct history_model *m) {
    grammar_mix_close(&m->played_grammars);
    grammar_mix_close(&m->oracle_grammars);
    cohort_model_close(m->played);
    cohort_model_close(m->oracle);
}
