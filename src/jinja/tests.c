/* Tests ("is defined"), and filters and tests by name. */
#include <math.h>
#include <string.h>

#include "jinja/tree.h"

static val one(struct run *x, const char *who, const struct args *a, const char *name) {
    val v;
    bind(x, who, a, name, &v, 1, 1);
    return v;
}
static void none(struct run *x, const char *who, const struct args *a) { bind(x, who, a, "", NULL, 0, 0); }

static int remainder_is(struct run *x, val v, val by, int64_t is) {
    if (is_str(v)) jx_fail(x, "not all arguments converted during string formatting");
    return equal(x, op_binary(x, OP_MOD, v, by), v_int(is));
}
static int t_odd(struct run *x, val v, const struct args *a) {
    return none(x, "odd", a), remainder_is(x, v, v_int(2), 1);
}
static int t_even(struct run *x, val v, const struct args *a) {
    return none(x, "even", a), remainder_is(x, v, v_int(2), 0);
}
static int t_divisibleby(struct run *x, val v, const struct args *a) {
    return remainder_is(x, v, one(x, "divisibleby", a, "num"), 0);
}
static int t_defined(struct run *x, val v, const struct args *a) { return none(x, "defined", a), !is_undef(v); }
static int t_undefined(struct run *x, val v, const struct args *a) { return none(x, "undefined", a), is_undef(v); }
static int t_filter(struct run *x, val v, const struct args *a) {
    none(x, "filter", a);
    if (!hashable(x, v)) jx_fail(x, "unhashable type: '%s'", type_name(v));
    return is_str(v) && filter_find(v.s->b, v.s->n) != NULL;
}
static int t_test(struct run *x, val v, const struct args *a) {
    none(x, "test", a);
    if (!hashable(x, v)) jx_fail(x, "unhashable type: '%s'", type_name(v));
    return is_str(v) && test_find(v.s->b, v.s->n) != NULL;
}
static int t_none(struct run *x, val v, const struct args *a) { return none(x, "none", a), v.type == V_NONE; }
static int t_boolean(struct run *x, val v, const struct args *a) { return none(x, "boolean", a), v.type == V_BOOL; }
static int t_false(struct run *x, val v, const struct args *a) { return none(x, "false", a), v.type == V_BOOL && !v.i; }
static int t_true(struct run *x, val v, const struct args *a) { return none(x, "true", a), v.type == V_BOOL && v.i; }
static int t_integer(struct run *x, val v, const struct args *a) {
    return none(x, "integer", a), v.type == V_INT || v.type == V_BIG;
}
static int t_float(struct run *x, val v, const struct args *a) { return none(x, "float", a), v.type == V_FLOAT; }
static int t_number(struct run *x, val v, const struct args *a) {
    return none(x, "number", a), is_number(v) || v.type == V_BIG;
}
static int t_string(struct run *x, val v, const struct args *a) { return none(x, "string", a), is_str(v); }
static int t_mapping(struct run *x, val v, const struct args *a) { return none(x, "mapping", a), v.type == V_DICT; }
static int t_sequence(struct run *x, val v, const struct args *a) {
    none(x, "sequence", a);
    return is_str(v) || is_sequence(v) || v.type == V_DICT || v.type == V_RANGE || is_undef(v);
}
static int t_iterable(struct run *x, val v, const struct args *a) { return none(x, "iterable", a), iterable(v); }
static int t_callable(struct run *x, val v, const struct args *a) { return none(x, "callable", a), callable(v); }
static int t_escaped(struct run *x, val v, const struct args *a) {
    return none(x, "escaped", a), is_str(v) && v.s->markup;
}
static int t_sameas(struct run *x, val v, const struct args *a) { return same(v, one(x, "sameas", a, "other")); }
static int t_in(struct run *x, val v, const struct args *a) { return contains(x, one(x, "in", a, "seq"), v); }

static int is_case(struct run *x, val v, int upper) {
    const struct str *s = to_str(x, v);
    unsigned len;
    int any = 0;
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t c = str_char(s, at, &len);
        if (upper ? char_lower(c) || char_title(c) : char_upper(c) || char_title(c)) return 0;
        any |= upper ? char_upper(c) : char_lower(c);
    }
    return any;
}
static int t_lower(struct run *x, val v, const struct args *a) { return none(x, "lower", a), is_case(x, v, 0); }
static int t_upper(struct run *x, val v, const struct args *a) { return none(x, "upper", a), is_case(x, v, 1); }

static int t_eq(struct run *x, val v, const struct args *a) { return op_compare(x, OP_EQ, v, one(x, "eq", a, "b")); }
static int t_ne(struct run *x, val v, const struct args *a) { return op_compare(x, OP_NE, v, one(x, "ne", a, "b")); }
static int t_lt(struct run *x, val v, const struct args *a) { return op_compare(x, OP_LT, v, one(x, "lt", a, "b")); }
static int t_le(struct run *x, val v, const struct args *a) { return op_compare(x, OP_LE, v, one(x, "le", a, "b")); }
static int t_gt(struct run *x, val v, const struct args *a) { return op_compare(x, OP_GT, v, one(x, "gt", a, "b")); }
static int t_ge(struct run *x, val v, const struct args *a) { return op_compare(x, OP_GE, v, one(x, "ge", a, "b")); }

static const struct test tests[] = {{"odd", t_odd},
                                    {"even", t_even},
                                    {"divisibleby", t_divisibleby},
                                    {"defined", t_defined},
                                    {"undefined", t_undefined},
                                    {"filter", t_filter},
                                    {"test", t_test},
                                    {"none", t_none},
                                    {"boolean", t_boolean},
                                    {"false", t_false},
                                    {"true", t_true},
                                    {"integer", t_integer},
                                    {"float", t_float},
                                    {"number", t_number},
                                    {"string", t_string},
                                    {"mapping", t_mapping},
                                    {"sequence", t_sequence},
                                    {"iterable", t_iterable},
                                    {"callable", t_callable},
                                    {"escaped", t_escaped},
                                    {"sameas", t_sameas},
                                    {"in", t_in},
                                    {"lower", t_lower},
                                    {"upper", t_upper},
                                    {"==", t_eq},
                                    {"eq", t_eq},
                                    {"equalto", t_eq},
                                    {"!=", t_ne},
                                    {"ne", t_ne},
                                    {"<", t_lt},
                                    {"lt", t_lt},
                                    {"lessthan", t_lt},
                                    {"<=", t_le},
                                    {"le", t_le},
                                    {">", t_gt},
                                    {"gt", t_gt},
                                    {"greaterthan", t_gt},
                                    {">=", t_ge},
                                    {"ge", t_ge}};

const struct test *test_find(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
        if (strlen(tests[i].name) == n && !memcmp(tests[i].name, name, n)) return &tests[i];
    return NULL;
}

const struct filter *filter_find(const char *name, size_t n) {
    const struct filter *const tables[] = {filters_text, filters_list, filters_html};
    for (int t = 0; t < 3; t++)
        for (const struct filter *f = tables[t]; f->name; f++)
            if (strlen(f->name) == n && !memcmp(f->name, name, n)) return f;
    return NULL;
}

static _Noreturn void unknown(struct run *x, const char *kind, val name) {
    int n = is_str(name) && name.s->n < 64 ? (int)name.s->n : 0;
    jx_fail(x, "No %s named '%.*s'.", kind, n, n ? name.s->b : "");
}

static const struct filter *filter_named(struct run *x, val name) {
    const struct filter *f = is_str(name) ? filter_find(name.s->b, name.s->n) : NULL;
    if (!f) unknown(x, "filter", name);
    return f;
}

static const struct test *test_named(struct run *x, val name) {
    const struct test *t = is_str(name) ? test_find(name.s->b, name.s->n) : NULL;
    if (!t) unknown(x, "test", name);
    return t;
}

val filter_call(struct run *x, val name, val self, const struct args *a) {
    return filter_named(x, name)->fn(x, self, a);
}
int test_call(struct run *x, val name, val self, const struct args *a) { return test_named(x, name)->fn(x, self, a); }
