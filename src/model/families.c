/* The table of families, and what their readers share. */
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct family *const families[] = {&family_gemma2, &family_gemma3, &family_lfm2,  &family_llama,
                                                &family_phi3,   &family_qwen2,  &family_qwen3, &family_qwen35};
enum { FAMILIES = sizeof families / sizeof families[0] };

const struct family *family_find(const struct meta_string *architecture) {
    for (size_t i = 0; i < FAMILIES; i++) {
        const char *name = families[i]->architecture;
        if (architecture->len == strlen(name) && memcmp(architecture->bytes, name, strlen(name)) == 0)
            return families[i];
    }
    return NULL;
}

void family_names(char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < FAMILIES && used < size; i++) {
        int n = snprintf(out + used, size - used, "%s%s", i ? " " : "", families[i]->architecture);
        used += (size_t)n;
    }
}

/* Which layers are windowed, one flag each. A file may say it with a number (every nth is global) or one by one. */
static int read_pattern(const struct keys *k, uint32_t n, uint32_t pattern, uint32_t windowed[]) {
    static const char name[] = "attention.sliding_window_pattern";
    char key[96];
    snprintf(key, sizeof key, "%s.%s", k->prefix, name);
    const struct meta_entry *entry = meta_find(k->meta, key);
    if (!entry || entry->type != META_ARRAY) {
        int rc = keys_u32(k, name, 0, SPEC_LAYERS_MAX, &pattern);
        if (rc) return rc;
        for (uint32_t i = 0; i < n; i++) windowed[i] = pattern == 0 || i % pattern < pattern - 1;
        return 0;
    }
    if (entry->element != META_BOOL) return keys_layers(k, name, 0, 1, n, windowed);
    if (entry->count != n)
        return keys_error(k, name, "has %llu elements for %u layers", (unsigned long long)entry->count, n);
    for (uint32_t i = 0; i < n; i++) windowed[i] = meta_entry_i64(entry, i) != 0;
    return 0;
}

int family_read_windows(const struct keys *keys, struct model_spec *spec, uint32_t window, uint32_t pattern,
                        uint32_t rope) {
    uint32_t windowed[SPEC_LAYERS_MAX];
    int rc = keys_u32(keys, "attention.sliding_window", 0, SPEC_CONTEXT_MAX, &window);
    if (!rc) rc = read_pattern(keys, spec->n_layers, pattern, windowed);
    if (rc || window == 0) return rc;
    for (uint32_t i = 0; i < spec->n_layers; i++) {
        if (!windowed[i]) continue;
        spec->layers[i].attention.window = window;
        spec->layers[i].attention.rope = rope;
    }
    return 0;
}

int family_read_softcaps(const struct keys *keys, struct model_spec *spec) {
    double scores = 0, logits = 0;
    int rc = keys_f64(keys, "attn_logit_softcapping", 0, 1e6, &scores);
    if (!rc) rc = keys_f64(keys, "final_logit_softcapping", 0, 1e6, &logits);
    if (rc) return rc;
    for (uint32_t i = 0; i < spec->n_layers; i++) spec->layers[i].attention.softcap = (float)scores;
    spec->logits_cap = (float)logits;
    return 0;
}

void family_set_scale(struct model_spec *spec, double square) {
    for (uint32_t i = 0; i < spec->n_layers; i++) spec->layers[i].attention.scale = (float)(1 / sqrt(square));
}
