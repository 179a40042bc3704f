/* Python's classes of characters and mappings of case, over utf8proc's tables. */
#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/cases.h"
#include "jinja/text.h"

int char_space(uint32_t c) {
    if (c < 128) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

int line_break(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

int char_alpha(uint32_t c) {
    if (c < 128) return (c | 32) >= 'a' && (c | 32) <= 'z';
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

int char_decimal(uint32_t c) { return c < 128 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }

/* Digits that are no decimal: superscripts, subscripts, circled and the like. */
int char_digit(uint32_t c) {
    return char_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0x1369 && c <= 0x1371) || c == 0x19da ||
           c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247c) || (c >= 0x2488 && c <= 0x2490) ||
           c == 0x24ea || (c >= 0x24f5 && c <= 0x24fd) || c == 0x24ff || (c >= 0x2776 && c <= 0x277e) ||
           (c >= 0x2780 && c <= 0x2788) || (c >= 0x278a && c <= 0x2792) || (c >= 0x10a40 && c <= 0x10a43) ||
           (c >= 0x10e60 && c <= 0x10e68) || (c >= 0x11052 && c <= 0x1105a) || (c >= 0x1f100 && c <= 0x1f10a);
}

int char_numeric(uint32_t c) {
    if (char_digit(c)) return 1;
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO) return 1;
    static const uint16_t ideographs[] = {0x4e00, 0x4e03, 0x4e07, 0x4e09, 0x4e5d, 0x4e8c, 0x4e94, 0x4ebf,
                                          0x5104, 0x516b, 0x516d, 0x5341, 0x5343, 0x56db, 0x767e, 0x842c};
    for (size_t i = 0; i < sizeof(ideographs) / sizeof(*ideographs); i++)
        if (c == ideographs[i]) return 1;
    return 0;
}

int char_word(uint32_t c) { return c == '_' || char_alpha(c) || char_numeric(c); }

/* Unicode's Other_Uppercase and Other_Lowercase beyond the letters' own categories. */
int char_upper(uint32_t c) {
    if (c < 128) return c >= 'A' && c <= 'Z';
    return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216f) || (c >= 0x24b6 && c <= 0x24cf);
}

int char_lower(uint32_t c) {
    if (c < 128) return c >= 'a' && c <= 'z';
    return category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba || (c >= 0x2b0 && c <= 0x2b8) ||
           (c >= 0x2c0 && c <= 0x2c1) || (c >= 0x2e0 && c <= 0x2e4) || c == 0x345 || c == 0x37a ||
           (c >= 0x1d2c && c <= 0x1d6a) || c == 0x1d78 || (c >= 0x1d9b && c <= 0x1dbf) || c == 0x2071 || c == 0x207f ||
           (c >= 0x2090 && c <= 0x209c) || (c >= 0x2170 && c <= 0x217f) || (c >= 0x24d0 && c <= 0x24e9);
}

int char_title(uint32_t c) { return c >= 128 && category(c) == UTF8PROC_CATEGORY_LT; }

int char_printable(uint32_t c) {
    if (c < 128) return c >= 32 && c < 127;
    utf8proc_category_t k = category(c);
    return k != UTF8PROC_CATEGORY_CC && k != UTF8PROC_CATEGORY_CF && k != UTF8PROC_CATEGORY_CS &&
           k != UTF8PROC_CATEGORY_CO && k != UTF8PROC_CATEGORY_CN && k != UTF8PROC_CATEGORY_ZL &&
           k != UTF8PROC_CATEGORY_ZP && k != UTF8PROC_CATEGORY_ZS;
}

/* ---- Case ---- */

static const struct mapping *special(const struct mapping *table, size_t n, uint32_t c) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].from == c) return &table[middle];
        if (table[middle].from < c)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void put_special(struct maker *m, const struct mapping *k, uint16_t mark) {
    for (int i = 0; i < 3 && k->to[i]; i++) maker_char(m, k->to[i], mark);
}

static void put_upper(struct maker *m, uint32_t c, uint16_t mark) {
    const struct mapping *k = special(upper_special, sizeof(upper_special) / sizeof(*upper_special), c);
    if (k)
        put_special(m, k, mark);
    else
        maker_char(m, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c), mark);
}

static void put_title(struct maker *m, uint32_t c, uint16_t mark) {
    const struct mapping *k = special(title_special, sizeof(title_special) / sizeof(*title_special), c);
    if (k)
        put_special(m, k, mark);
    else
        maker_char(m, (uint32_t)utf8proc_totitle((utf8proc_int32_t)c), mark);
}

static int cased(uint32_t c) { return char_lower(c) || char_upper(c) || char_title(c); }

static int case_ignorable(uint32_t c) {
    if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xad || c == 0xb7 || c == 0x2019) return 1;
    utf8proc_category_t k = category(c);
    return c >= 128 && (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
                        k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK);
}

/* A capital sigma at the end of a word becomes the final one. */
static int final_sigma(const struct str *s, size_t at) {
    unsigned len;
    size_t i = at;
    int before = 0;
    while (i > 0) {
        do i--;
        while (i > 0 && ((uint8_t)s->b[i] & 0xc0) == 0x80);
        uint32_t c = str_char(s, i, &len);
        if (case_ignorable(c)) continue;
        before = cased(c);
        break;
    }
    if (!before) return 0;
    for (i = at + 2; i < s->n; i += len) {
        uint32_t c = str_char(s, i, &len);
        if (!case_ignorable(c)) return !cased(c);
    }
    return 1;
}

static void put_lower(struct maker *m, const struct str *s, size_t at, uint32_t c, uint16_t mark) {
    if (c == 0x130) {
        maker_char(m, 'i', mark);
        maker_char(m, 0x307, mark);
    } else if (c == 0x3a3) {
        maker_char(m, final_sigma(s, at) ? 0x3c2 : 0x3c3, mark);
    } else {
        maker_char(m, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c), mark);
    }
}

static void put_fold(struct maker *m, uint32_t c, uint16_t mark) {
    utf8proc_int32_t out[8];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, out, 8, UTF8PROC_CASEFOLD, &last);
    if (n < 1 || n > 8) maker_char(m, c, mark);
    for (utf8proc_ssize_t i = 0; i < n && n <= 8; i++) maker_char(m, (uint32_t)out[i], mark);
}

/* The ASCII characters from `at` on at once; how many. */
static size_t put_ascii(struct maker *m, const struct str *s, size_t at, int upper) {
    size_t end = at, begun = m->n;
    while (end < s->n && (uint8_t)s->b[end] < 128) end++;
    if (end == at) return 0;
    maker_part(m, s, at, end - at);
    for (size_t i = begun; i < m->n; i++) {
        char c = m->b[i];
        if (upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') m->b[i] = (char)(c ^ 32);
    }
    return end - at;
}

val str_case(struct run *x, struct str *s, enum case_kind kind) {
    struct maker m = maker_begin(x);
    unsigned len;
    int inside = 0; /* of a word, for titles */
    for (size_t at = 0; at < s->n; at += len) {
        size_t plain = kind == CASE_LOWER || kind == CASE_UPPER ? put_ascii(&m, s, at, kind == CASE_UPPER) : 0;
        if (plain) {
            len = (unsigned)plain;
            continue;
        }
        jx_steps(x, 1);
        uint32_t c = str_char(s, at, &len);
        uint16_t mark = str_mark(s, at);
        switch (kind) {
        case CASE_LOWER:
            put_lower(&m, s, at, c, mark);
            break;
        case CASE_UPPER:
            put_upper(&m, c, mark);
            break;
        case CASE_FOLD:
            put_fold(&m, c, mark);
            break;
        case CASE_SWAP:
            if (char_upper(c))
                put_lower(&m, s, at, c, mark);
            else if (char_lower(c))
                put_upper(&m, c, mark);
            else
                maker_char(&m, c, mark);
            break;
        case CASE_CAPITAL:
        case CASE_TITLE:
            if (kind == CASE_CAPITAL ? at > 0 : inside)
                put_lower(&m, s, at, c, mark);
            else
                put_title(&m, c, mark);
            inside = cased(c);
            break;
        }
    }
    return v_markup(x, maker_end(&m), s->markup);
}

int char_joins(uint32_t c) {
    if (c < 128) return 0;
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC || c == 0xb7 ||
           c == 0x387;
}
