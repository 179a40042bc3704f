/* Any bytes as a template, rendered over fixed values: an error or a text, with a mark for each byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct jinja_variable variables[] = {
#define VARIABLE(n, j, m)                                                                                              \
    { .name = n, .json = j, .len = sizeof(j) - 1, .mark = m, .by_element = m != 0 }
    VARIABLE("messages",
             "[{\"role\": \"user\", \"content\": \"Hi \\u00e9\\n<x>\"}, {\"role\": \"assistant\", \"content\": null, "
             "\"tool_calls\": [{\"function\": "
             "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}]",
             1),
    VARIABLE("d", "{\"a\": 1, \"b\": [1, \"x\"], \"c\": {\"d\": null}}", 0),
    VARIABLE("l", "[3, 1, 2]", 0),
    VARIABLE("s", "\"Hello, World %s {} \\u4e16\"", 7),
    VARIABLE("n", "12", 0),
    VARIABLE("f", "1.5", 0),
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct jinja *t;
    struct jinja_text text;
    cohort_error err = {0};
    if (size > 4096) return 0;
    if (jinja_parse((const char *)data, size, &t, &err)) {
        if (t || !err.text[0]) abort();
        return 0;
    }
    int code = jinja_render(t, variables, sizeof(variables) / sizeof(*variables), 1790000000, &text, &err);
    if (code ? text.bytes != NULL || !err.text[0] : !utf8_valid(text.bytes, text.len)) abort();
    for (size_t i = 0; !code && i < text.len; i++)
        if (text.marks[i] > 7) abort();
    jinja_text_free(&text);
    jinja_free(t);
    return 0;
}
