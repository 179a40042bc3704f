/* The names of the forms of keys and values. Whichever thread opens. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const char *const names[] = {"f16", "q8_0", "q4_0"}; /* by cohort_state_form */
enum { NAMES = sizeof names / sizeof *names };

static int find(const char *option, const char *name, size_t len, cohort_state_form *out) {
    for (int i = 0; i < NAMES; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            *out = (cohort_state_form)i;
            return 0;
        }
    return cli_failf("%s: state cannot be kept as \"%.*s\"; there are f16, q8_0 and q4_0", option, (int)len, name);
}

static int read_number(const char **at, uint32_t *out) {
    char *end;
    errno = 0;
    unsigned long n = **at >= '0' && **at <= '9' ? strtoul(*at, &end, 10) : UINT32_MAX;
    if (errno || n >= UINT32_MAX) return -1;
    *at = end;
    *out = (uint32_t)n;
    return 0;
}

/* One exception: LAYER or FIRST-LAST, "=", FORM or KEYS/VALUES, up to a comma or the end. */
static int read_exception(const char *option, const char **at, cohort_layer_forms *out) {
    const char *begin = *at;
    int bad = read_number(at, &out->first);
    out->last = out->first;
    if (!bad && **at == '-') {
        (*at)++;
        bad = read_number(at, &out->last);
    }
    if (bad || **at != '=')
        return cli_failf("%s: \"%s\" does not begin with layers (such as 0-3=f16 or 7=q8_0/q4_0)", option, begin);
    const char *key = ++*at;
    size_t len = strcspn(key, ",/");
    int code = find(option, key, len, &out->key);
    out->value = out->key;
    *at = key + len;
    if (code || **at != '/') return code;
    const char *value = ++*at;
    len = strcspn(value, ",");
    *at = value + len;
    return find(option, value, len, &out->value);
}

int cli_forms(const struct cli_options *options, cohort_layer_forms *list, cohort_engine_options *engine) {
    static const char layers[] = "--cache-type-layers";
    int code = find("--cache-type-k", options->key_form, strlen(options->key_form), &engine->key_form);
    if (!code) code = find("--cache-type-v", options->value_form, strlen(options->value_form), &engine->value_form);
    engine->quantise_after = (uint32_t)options->quantise_after;
    engine->layer_forms = list;
    engine->layer_forms_n = 0;
    for (const char *at = options->layer_forms; at && *at && !code; at += *at == ',') {
        if (engine->layer_forms_n == COHORT_LAYER_FORMS_MAX)
            return cli_failf("%s: more than %d exceptions", layers, COHORT_LAYER_FORMS_MAX);
        code = read_exception(layers, &at, &list[engine->layer_forms_n++]);
    }
    return code;
}
