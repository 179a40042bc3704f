/* Errors: the names and texts of cohort.h's list, and filling a cohort_error. Stateless, any thread. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char *cohort_error_name(int code) {
    switch (code) {
#define NAME_CASE(name, number, text)                                                                                  \
    case number:                                                                                                       \
        return #name;
        COHORT_ERROR_LIST(NAME_CASE)
#undef NAME_CASE
    }
    return "E_UNKNOWN";
}

const char *cohort_error_text(int code) {
    switch (code) {
#define TEXT_CASE(name, number, text)                                                                                  \
    case number:                                                                                                       \
        return text;
        COHORT_ERROR_LIST(TEXT_CASE)
#undef TEXT_CASE
    }
    return "unknown error";
}

/* Copies `in` to `out` as one line of valid UTF-8 that ends at a whole character. Control characters and bytes that are
 * no UTF-8 come from hostile files: they become '?', so that a message can never steer a terminal or break a log. */
static void copy_line(char *out, size_t out_size, const char *in) {
    size_t n = strlen(in), used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(in + i, n - i, &cp);
        int control = len > 0 && (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029);
        size_t add = len > 0 && !control ? (size_t)len : 1;
        if (used + add >= out_size) break;
        if (len > 0 && !control)
            memcpy(out + used, in + i, add);
        else
            out[used] = cp == '\n' || cp == '\t' ? ' ' : '?';
        used += add;
        i += len > 0 ? (size_t)len : 1;
    }
    out[used] = '\0';
}

int err_set(cohort_error *err, int code, const char *field, const char *format, ...) {
    if (!err) return code;
    char text[2 * sizeof(err->text)];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof(text), format, arguments) < 0) text[0] = '\0';
    va_end(arguments);
    err->code = code;
    copy_line(err->field, sizeof(err->field), field ? field : "");
    copy_line(err->text, sizeof(err->text), text);
    err->retry_after_ms = 0;
    return code;
}

int err_prefix(cohort_error *err, int code, const char *prefix) {
    if (!err) return code;
    char text[2 * sizeof(err->text)];
    /* A very long prefix may not push the reason out: the reason gets at least half of the room. */
    snprintf(text, sizeof(text), "%.*s: %s", (int)(sizeof(err->text) / 2), prefix, err->text);
    copy_line(err->text, sizeof(err->text), text);
    return err->code;
}
