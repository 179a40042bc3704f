/* Strings and numbers: lengths, patterns, formats, ranges. */
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "grammar/pattern.h"
#include "grammar/schema_inner.h"

#define YEAR "[1-9]\\d{3}"
/* Days that every month has; the 29th and 30th without February's; the 31st; February's 29th in leap years. */
#define DATE                                                                                                           \
    "(" YEAR "-((0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"                    \
    "|([1-9]\\d(0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)"
#define ZONE  "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?" ZONE
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  "(" BYTE "\\.){3}" BYTE
#define H16   "[0-9a-fA-F]{1,4}"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

/* Texts that certainly have the format; not always all of them. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(\\d+W|((\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))?"
                 "|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)))$"},
    {"email", "^" ATOM "(\\." ATOM ")*@" LABEL "(\\." LABEL ")+$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^((" H16 ":){7}" H16 "|(" H16 ":){1,6}:" H16 "|(" H16 ":){1,5}(:" H16 "){2}|(" H16 ":){1,4}(:" H16
             "){3}|(" H16 ":){1,3}(:" H16 "){4}|(" H16 ":){1,2}(:" H16 "){5}|" H16 ":(:" H16 "){6}|:(:" H16
             "){1,7}|(" H16 ":){1,7}:|::|(" H16 ":){6}" IPV4 "|::ffff:" IPV4 ")$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\\d{1,5})?(/" PCHAR "*)*(\\?(" PCHAR
            "|[/?])*)?(#(" PCHAR "|[/?])*)?$"},
    {"json-pointer", "^(/([^~/]|~[01])*)*$"},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

int schema_size(struct schema *s, json_t *flat, const char *keyword, int64_t *out) {
    json_t *value = json_object_get(flat, keyword);
    if (!value) return 0;
    double n = json_number_value(value);
    if (!json_is_number(value) || n < 0 || n != floor(n))
        return schema_refuse(s, COHORT_E_ARGUMENT, keyword, "must be a whole number that is not negative");
    *out = n > INT32_MAX ? INT32_MAX : (int64_t)n;
    return 0;
}

static int with_pattern(struct schema *s, const char *keyword, const char *pattern, size_t len, json_t **out) {
    struct buf rewritten = {.max = 1 << 20};
    cohort_error why = {0};
    int rc = pattern_rewrite(pattern, len, PATTERN_STRING, &rewritten, &why);
    if (rc) {
        rc = schema_refuse(s, rc, keyword, why.text);
    } else {
        *out = json_pack("{s:s,s:s}", "type", "string", "pattern", rewritten.len ? rewritten.data : "");
        rc = schema_made(s, *out);
    }
    buf_free(&rewritten);
    return rc;
}

static int with_format(struct schema *s, json_t *format, json_t **out) {
    const char *name = json_string_value(format);
    if (!name) return schema_refuse(s, COHORT_E_ARGUMENT, "format", "must be a string");
    for (size_t i = 0; i < COUNT(formats); i++)
        if (!strcmp(name, formats[i].name))
            return with_pattern(s, "format", formats[i].pattern, strlen(formats[i].pattern), out);
    return schema_refuse(s, COHORT_E_UNSUPPORTED, "format", "this format is not supported");
}

int schema_string(struct schema *s, json_t *flat, json_t **out) {
    int64_t shortest = 0, longest = INT32_MAX;
    json_t *pattern = json_object_get(flat, "pattern"), *format = json_object_get(flat, "format");
    int rc = schema_size(s, flat, "minLength", &shortest);
    if (!rc) rc = schema_size(s, flat, "maxLength", &longest);
    if (rc) return rc;
    if (shortest > longest) return SCHEMA_NOTHING;
    int sized = shortest > 0 || longest < INT32_MAX;
    if (pattern && !json_is_string(pattern)) return schema_refuse(s, COHORT_E_ARGUMENT, "pattern", "must be a string");
    if ((pattern != NULL) + (format != NULL) + sized > 1)
        return schema_refuse(s, COHORT_E_UNSUPPORTED, pattern ? "pattern" : "format",
                             "is not supported together with a length or a format");
    if (pattern) return with_pattern(s, "pattern", json_string_value(pattern), json_string_length(pattern), out);
    if (format) return with_format(s, format, out);
    *out = json_pack("{s:s}", "type", "string");
    rc = schema_made(s, *out);
    if (!rc && shortest > 0)
        rc = json_object_set_new(*out, "minLength", json_integer(shortest)) ? schema_made(s, NULL) : 0;
    if (!rc && longest < INT32_MAX)
        rc = json_object_set_new(*out, "maxLength", json_integer(longest)) ? schema_made(s, NULL) : 0;
    return rc;
}

/* ---- Numbers ---- */

struct bounds {
    double low, high;
    int open_low, open_high; /* the bound itself is outside */
};

static int read_bound(struct schema *s, json_t *flat, const char *keyword, double *out, int *there) {
    json_t *value = json_object_get(flat, keyword);
    *there = value != NULL;
    if (value && !json_is_number(value)) return schema_refuse(s, COHORT_E_ARGUMENT, keyword, "must be a number");
    if (value) *out = json_number_value(value);
    return 0;
}

static int read_bounds(struct schema *s, json_t *flat, struct bounds *b) {
    double x = 0;
    int there, rc;
    *b = (struct bounds){-INFINITY, INFINITY, 0, 0};
    if ((rc = read_bound(s, flat, "minimum", &b->low, &there)) ||
        (rc = read_bound(s, flat, "maximum", &b->high, &there)))
        return rc;
    if ((rc = read_bound(s, flat, "exclusiveMinimum", &x, &there))) return rc;
    if (there && x >= b->low) {
        b->low = x;
        b->open_low = 1;
    }
    if ((rc = read_bound(s, flat, "exclusiveMaximum", &x, &there))) return rc;
    if (there && x <= b->high) {
        b->high = x;
        b->open_high = 1;
    }
    return 0;
}

/* Formats of OpenAPI's: ranges of integers; of numbers they say nothing that holds. */
static void format_bounds(json_t *flat, struct bounds *b) {
    const char *format = json_string_value(json_object_get(flat, "format"));
    if (!format || strcmp(format, "int32")) return;
    if (b->low < INT32_MIN) *b = (struct bounds){INT32_MIN, b->high, 0, b->open_high};
    if (b->high > INT32_MAX) *b = (struct bounds){b->low, INT32_MAX, b->open_low, 0};
}

enum { EXACT_BITS = 53 }; /* whole numbers up to here are exact as double */

int schema_integer(struct schema *s, json_t *flat, json_t **out) {
    struct bounds b;
    const double exact = (double)(INT64_C(1) << EXACT_BITS);
    json_t *multiple = json_object_get(flat, "multipleOf");
    int rc = read_bounds(s, flat, &b);
    if (rc) return rc;
    format_bounds(flat, &b);
    double low = ceil(b.low), high = floor(b.high);
    if (b.open_low && low == b.low) low += 1;
    if (b.open_high && high == b.high) high -= 1;
    if (low > high) return SCHEMA_NOTHING;
    if ((low > -INFINITY && fabs(low) > exact) || (high < INFINITY && fabs(high) > exact))
        return schema_refuse(s, COHORT_E_UNSUPPORTED, low > -INFINITY ? "minimum" : "maximum",
                             "bounds beyond 2^53 are not supported");
    *out = json_pack("{s:s}", "type", "integer");
    if ((rc = schema_made(s, *out))) return rc;
    int bad = 0;
    if (low > -INFINITY) bad |= json_object_set_new(*out, "minimum", json_integer((json_int_t)low));
    if (high < INFINITY) bad |= json_object_set_new(*out, "maximum", json_integer((json_int_t)high));
    double m = json_number_value(multiple);
    if (multiple && (!json_is_number(multiple) || m <= 0))
        return schema_refuse(s, COHORT_E_ARGUMENT, "multipleOf", "must be a number above 0");
    if (multiple && m < 1 && 1 / m == floor(1 / m) && ldexp(m, 20) == floor(ldexp(m, 20)))
        m = 1; /* 0.5, 0.25: all integers are */
    if (multiple && m != 1) {
        if (m != floor(m) || m > 1024)
            return schema_refuse(s, COHORT_E_UNSUPPORTED, "multipleOf", "only whole numbers up to 1024 are supported");
        if ((low > -INFINITY) != (high < INFINITY) || (low > -INFINITY && high - low >= 10000))
            return schema_refuse(s, COHORT_E_UNSUPPORTED, "multipleOf",
                                 "is not supported together with a range that is open or wider than 10000");
        if (low > -INFINITY && floor(high / m) * m < low) return SCHEMA_NOTHING;
        bad |= json_object_set_new(*out, "multipleOf", json_integer((json_int_t)m));
    }
    return bad ? schema_made(s, NULL) : 0;
}

int schema_number(struct schema *s, json_t *flat, json_t **out) {
    struct bounds b;
    const double largest = 1e15; /* six digits behind the point are written, and must not be lost */
    json_t *multiple = json_object_get(flat, "multipleOf");
    int rc = read_bounds(s, flat, &b);
    if (rc) return rc;
    if (multiple && json_is_number(multiple) && json_number_value(multiple) >= 1) return schema_integer(s, flat, out);
    if (multiple) return schema_refuse(s, COHORT_E_UNSUPPORTED, "multipleOf", "is only supported for whole numbers");
    if (b.low > b.high || (b.low == b.high && (b.open_low || b.open_high))) return SCHEMA_NOTHING;
    if ((b.low > -INFINITY && fabs(b.low) > largest) || (b.high < INFINITY && fabs(b.high) > largest))
        return schema_refuse(s, COHORT_E_UNSUPPORTED, b.low > -INFINITY ? "minimum" : "maximum",
                             "bounds of numbers beyond 1e15 are not supported");
    *out = json_pack("{s:s}", "type", "number");
    if ((rc = schema_made(s, *out))) return rc;
    int bad = 0;
    if (b.low > -INFINITY)
        bad |= json_object_set_new(*out, b.open_low ? "exclusiveMinimum" : "minimum", json_real(b.low));
    if (b.high < INFINITY)
        bad |= json_object_set_new(*out, b.open_high ? "exclusiveMaximum" : "maximum", json_real(b.high));
    return bad ? schema_made(s, NULL) : 0;
}
