/* Formatting of strings: Python's str.format() and its format specifications. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

struct spec {
    uint32_t fill;
    char align, sign, group, type;
    int alternate, zero;
    int64_t width, precision;
};

static int64_t read_number(struct run *x, const struct str *s, size_t *at) {
    int64_t n = 0;
    while (*at < s->n && s->b[*at] >= '0' && s->b[*at] <= '9') {
        n = n * 10 + (s->b[(*at)++] - '0');
        if (n > JINJA_OUTPUT_MAX) jx_fail_limit(x, "text");
    }
    return n;
}

static struct spec read_spec(struct run *x, const struct str *s) {
    struct spec p = {.fill = ' ', .precision = -1};
    size_t at = 0;
    unsigned len = 0;
    if (s->n) {
        uint32_t c = str_char(s, 0, &len);
        if (len < s->n && strchr("<>=^", s->b[len])) {
            p.fill = c;
            p.align = s->b[len];
            at = len + 1;
        } else if (strchr("<>=^", s->b[0])) {
            p.align = s->b[0];
            at = 1;
        }
    }
    if (at < s->n && (s->b[at] == '+' || s->b[at] == '-' || s->b[at] == ' ')) p.sign = s->b[at++];
    if (at < s->n && s->b[at] == '#') p.alternate = 1, at++;
    if (at < s->n && s->b[at] == '0') {
        p.zero = 1;
        if (!p.align) p.fill = '0', p.align = '=';
        at++;
    }
    p.width = read_number(x, s, &at);
    if (at < s->n && (s->b[at] == ',' || s->b[at] == '_')) p.group = s->b[at++];
    if (at < s->n && s->b[at] == '.') {
        at++;
        size_t was = at;
        p.precision = read_number(x, s, &at);
        if (at == was) jx_fail(x, "Format specifier missing precision");
    }
    if (at < s->n) p.type = s->b[at++];
    if (at < s->n) jx_fail(x, "Invalid format specifier");
    return p;
}

static void put_fill(struct maker *m, uint32_t fill, int64_t n, uint16_t mark) {
    struct maker one = maker_begin(m->x);
    maker_char(&one, fill, mark);
    maker_repeat(m, maker_end(&one).s, n);
}

/* `prefix` bytes (sign and base) stay in front of what '=' fills. */
static val padded(struct run *x, const struct spec *p, val body, size_t prefix, char align) {
    struct str *s = body.s;
    int64_t pad = p->width - str_chars(s);
    if (pad <= 0) return body;
    struct maker m = maker_begin(x);
    if (p->align) align = p->align;
    uint16_t mark = mark_of(body);
    if (align == '=') {
        maker_part(&m, s, 0, prefix);
        put_fill(&m, p->fill, pad, mark);
        maker_part(&m, s, prefix, s->n - prefix);
        return maker_end(&m);
    }
    int64_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    put_fill(&m, p->fill, before, mark);
    maker_str(&m, s);
    put_fill(&m, p->fill, pad - before, mark);
    return maker_end(&m);
}

/* Digits with a separator each `each`, made at least as wide as zeros in front ask for. */
static void put_grouped(struct maker *m, const char *digits, size_t n, char group, int each, int64_t width,
                        uint16_t mark) {
    int64_t have = (int64_t)n, zeros = 0;
    while (group && have + zeros + (have + zeros - 1) / each < width) zeros++;
    if (group && width && (have + zeros + (have + zeros - 1) / each) > width && zeros && (have + zeros - 1) % each == 0)
        zeros += 0;
    if (zeros > JINJA_OUTPUT_MAX) jx_fail_limit(m->x, "text");
    int64_t total = have + zeros;
    for (int64_t i = 0; i < total; i++) {
        if (group && i && (total - i) % each == 0) maker_add(m, &group, 1, mark);
        maker_add(m, i < zeros ? "0" : &digits[i - zeros], 1, mark);
    }
}

static val finish_number(struct run *x, const struct spec *p, const char *sign, const char *base, const char *digits,
                         size_t whole, int each, uint16_t mark) {
    struct maker m = maker_begin(x);
    maker_text(&m, sign, mark);
    maker_text(&m, base, mark);
    size_t prefix = m.n, rest = strlen(digits) - whole;
    int64_t width = p->fill == '0' && p->align == '=' && p->group ? p->width - (int64_t)prefix - (int64_t)rest : 0;
    put_grouped(&m, digits, whole, p->group, each, width, mark);
    maker_text(&m, digits + whole, mark);
    return padded(x, p, maker_end(&m), prefix, '>');
}

static const char *sign_of(const struct spec *p, int negative) {
    return negative ? "-" : p->sign == '+' ? "+" : p->sign == ' ' ? " " : "";
}

static val format_integer(struct run *x, val v, const struct spec *p) {
    char digits[80];
    uint64_t u = v.i < 0 ? 0 - (uint64_t)v.i : (uint64_t)v.i;
    const char *base = "";
    int each = 3;
    if (p->precision >= 0) jx_fail(x, "Precision not allowed in integer format specifier");
    if (p->type == 'c') {
        if (v.i < 0 || v.i > 0x10ffff || (v.i >= 0xd800 && v.i < 0xe000)) jx_fail(x, "%%c arg not in range(0x110000)");
        struct maker m = maker_begin(x);
        maker_char(&m, (uint32_t)v.i, v.mark);
        return padded(x, p, maker_end(&m), 0, '<');
    }
    if (p->type == 'b') {
        size_t n = 0;
        int bit = 63;
        while (bit > 0 && !(u >> bit & 1)) bit--;
        for (; bit >= 0; bit--) digits[n++] = (char)('0' + (u >> bit & 1));
        digits[n] = 0;
        base = "0b";
    } else if (p->type == 'x' || p->type == 'X') {
        snprintf(digits, sizeof(digits), p->type == 'x' ? "%llx" : "%llX", (unsigned long long)u);
        base = p->type == 'x' ? "0x" : "0X";
    } else if (p->type == 'o') {
        snprintf(digits, sizeof(digits), "%llo", (unsigned long long)u);
        base = "0o";
    } else {
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)u);
    }
    if (base[0]) each = 4;
    if (base[0] && p->group == ',') jx_fail(x, "Cannot specify ',' with '%c'.", p->type);
    return finish_number(x, p, sign_of(p, v.i < 0), p->alternate ? base : "", digits, strlen(digits), each, v.mark);
}

static size_t whole_digits(const char *text) {
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9') n++;
    return n;
}

/* Without a type: repr() without a precision, else 'g' that keeps one digit behind the point. */
static void general_text(char *text, size_t size, double f, int64_t precision, int alternate) {
    if (precision == 0) precision = 1;
    snprintf(text, size, alternate ? "%#.*g" : "%.*g", (int)precision, f);
    char *e = strchr(text, 'e');
    int exponent = 0;
    if (e) exponent = atoi(e + 1);
    if (!e && !strchr(text, '.') && strlen(text) < size - 3) {
        /* Python writes 1e+01 for '.1' of 10.0: one digit is needed behind the point. */
        if ((int64_t)strlen(text) >= precision)
            snprintf(text, size, "%.*e", (int)precision - 1, f);
        else
            strncat(text, ".0", size - strlen(text) - 1);
    }
    (void)exponent;
}

static val format_real(struct run *x, val v, const struct spec *p) {
    double f = v.type == V_FLOAT ? v.f : (double)v.i;
    int64_t precision = p->precision < 0 ? 6 : p->precision;
    if (precision > 800) jx_fail_limit(x, "digits");
    char *text = jx_alloc(x, 1, 1200), type = p->type == '%' ? 'f' : p->type == 'n' ? 'g' : p->type;
    double a = fabs(p->type == '%' ? f * 100 : f);
    if (!type && p->precision < 0) {
        struct maker m = maker_begin(x);
        put_float(&m, a, 0);
        maker_add(&m, "", 1, 0);
        memcpy(text, m.b, m.n);
    } else if (!type) {
        general_text(text, 1000, a, precision, p->alternate);
    } else {
        char pattern[16];
        snprintf(pattern, sizeof(pattern), "%%%s.*%c", p->alternate ? "#" : "", type);
        _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"")
            snprintf(text, 1000, pattern, (int)precision, a);
        _Pragma("GCC diagnostic pop")
    }
    if (p->type == '%') strncat(text, "%", 1199 - strlen(text));
    return finish_number(x, p, sign_of(p, signbit(f) && !isnan(f)), "", text, whole_digits(text), 3, v.mark);
}

static val format_text(struct run *x, val v, const struct spec *p) {
    if (p->sign) jx_fail(x, "Sign not allowed in string format specifier");
    if (p->align == '=' && !p->zero) jx_fail(x, "'=' alignment not allowed in string format specifier");
    if (p->group) jx_fail(x, "Cannot specify '%c' with 's'.", p->group);
    if (p->alternate) jx_fail(x, "Alternate form (#) not allowed in string format specifier");
    struct spec own = *p;
    if (own.align == '=') own.align = '<';
    if (p->precision >= 0 && p->precision < str_chars(v.s)) v = v_slice(x, v.s, 0, str_offset(v.s, p->precision));
    return padded(x, &own, v, 0, '<');
}

val format_value(struct run *x, val v, const struct str *s) {
    if (!s->n) return v_str_of(x, v);
    struct spec p = read_spec(x, s);
    int known = is_str(v)           ? !p.type || p.type == 's'
                : v.type == V_FLOAT ? !p.type || strchr("eEfFgGn%", p.type) != NULL
                : is_integer(v)     ? !p.type || strchr("bcdoxXneEfFgG%", p.type) != NULL
                                    : 0;
    if (v.type == V_UNDEF || !(is_str(v) || is_number(v)))
        jx_fail(x, "unsupported format string passed to %s.__format__", type_name(v));
    if (!known) jx_fail(x, "Unknown format code '%c' for object of type '%s'", p.type, type_name(v));
    if (is_str(v)) return format_text(x, v, &p);
    if (is_integer(v) && (!p.type || strchr("bcdoxXn", p.type))) return format_integer(x, v, &p);
    return format_real(x, v, &p);
}

/* ---- str.format ---- */

struct fields {
    struct run *x;
    const struct args *a;
    int next, manual; /* automatic numbers; numbers given by hand */
};

static void put_fields(struct fields *f, struct maker *m, struct str *s, int depth);

static val first_of(struct fields *f, const struct str *name) {
    struct run *x = f->x;
    int number = name->n > 0 && whole_digits(name->n < 19 ? strndupa(name->b, name->n) : "") == name->n;
    int64_t i = 0;
    if (!name->n) {
        if (f->manual) jx_fail(x, "cannot switch from manual field specification to automatic field numbering");
        i = f->next++;
        number = 1;
    } else if (number) {
        if (f->next) jx_fail(x, "cannot switch from automatic field numbering to manual field specification");
        f->manual = 1;
        size_t at = 0;
        i = read_number(x, name, &at);
    }
    if (number) {
        if (i >= f->a->n) jx_fail(x, "Replacement index %lld out of range for positional args tuple", (long long)i);
        return f->a->v[i];
    }
    for (uint32_t k = 0; k < f->a->n_kw; k++)
        if (str_equal(f->a->kw[k].name, name)) return f->a->kw[k].value;
    jx_fail(x, "KeyError: '%.*s'", (int)(name->n > 100 ? 100 : name->n), name->b);
}

static val field_value(struct fields *f, const struct str *name) {
    struct run *x = f->x;
    size_t at = 0;
    while (at < name->n && name->b[at] != '.' && name->b[at] != '[') at++;
    val v = first_of(f, v_slice(x, name, 0, at).s);
    while (at < name->n) {
        size_t from = ++at;
        int item = name->b[at - 1] == '[';
        if (!item && name->b[at - 1] != '.') jx_fail(x, "Only '.' or '[' may follow ']' in format field specifier");
        while (at < name->n && (item ? name->b[at] != ']' : name->b[at] != '.' && name->b[at] != '[')) at++;
        if (item && at >= name->n) jx_fail(x, "Missing ']' in format string");
        if (at == from) jx_fail(x, "Empty attribute in format string");
        val part = v_slice(x, name, from, at - from);
        if (item) {
            size_t digit = 0;
            at++;
            int64_t i = part.s->n < 10 ? read_number(x, part.s, &digit) : 0;
            v = get_item(x, v, digit == part.s->n ? v_int(i) : part);
        } else {
            v = get_attribute(x, v, part);
        }
    }
    return v;
}

static size_t field_end(struct run *x, const struct str *s, size_t at) {
    int depth = 1;
    for (; at < s->n; at++) {
        if (s->b[at] == '{') depth++;
        if (s->b[at] == '}' && --depth == 0) return at;
    }
    jx_fail(x, "expected '}' before end of string");
}

static void put_field(struct fields *f, struct maker *m, const struct str *s, int depth) {
    struct run *x = f->x;
    size_t name = 0, at;
    int brackets = 0;
    while (name < s->n && (brackets || (s->b[name] != '!' && s->b[name] != ':'))) {
        if (s->b[name] == '{') jx_fail(x, "unexpected '{' in field name");
        if (s->b[name] == '[') brackets = 1;
        if (s->b[name] == ']') brackets = 0;
        name++;
    }
    char conversion = 0;
    at = name;
    if (at < s->n && s->b[at] == '!') {
        if (at + 1 >= s->n) jx_fail(x, "end of string while looking for conversion specifier");
        conversion = s->b[at + 1];
        at += 2;
        if (at < s->n && s->b[at] != ':') jx_fail(x, "expected ':' after conversion specifier");
    }
    val v = field_value(f, v_slice(x, s, 0, name).s);
    struct maker spec = maker_begin(x);
    if (at < s->n) put_fields(f, &spec, v_slice(x, s, at + 1, s->n - at - 1).s, depth + 1);
    if (conversion == 's') {
        v = v_str_of(x, v);
    } else if (conversion == 'r' || conversion == 'a') {
        struct maker text = maker_begin(x);
        put_repr(&text, v);
        v = maker_end(&text);
    } else if (conversion) {
        jx_fail(x, "Unknown conversion specifier");
    }
    put_str(m, format_value(x, v, maker_end(&spec).s));
}

static void put_fields(struct fields *f, struct maker *m, struct str *s, int depth) {
    struct run *x = f->x;
    if (depth > 2) jx_fail(x, "Max string recursion exceeded");
    for (size_t at = 0; at < s->n;) {
        size_t from = at;
        while (at < s->n && s->b[at] != '{' && s->b[at] != '}') at++;
        maker_part(m, s, from, at - from);
        if (at >= s->n) break;
        jx_steps(x, 1);
        if (at + 1 < s->n && s->b[at + 1] == s->b[at]) {
            maker_part(m, s, at, 1);
            at += 2;
            continue;
        }
        if (s->b[at] == '}') jx_fail(x, "Single '}' encountered in format string");
        if (at + 1 >= s->n) jx_fail(x, "Single '{' encountered in format string");
        size_t end = field_end(x, s, at + 1);
        jx_steps(x, (end - at) / 16);
        put_field(f, m, v_slice(x, s, at + 1, end - at - 1).s, depth);
        at = end + 1;
    }
}

val format_method(struct run *x, val format, const struct args *a) {
    struct fields f = {.x = x, .a = a};
    struct maker m = maker_begin(x);
    put_fields(&f, &m, format.s, 1);
    return v_markup(x, maker_end(&m), format.s->markup);
}
