/* Operators, attributes, filters, tests, methods and global functions by name. */
#ifndef JINJA_OPS_H
#define JINJA_OPS_H

#include "jinja/text.h"

enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOTIN
};
val op_binary(struct run *x, enum op op, val a, val b);
int op_compare(struct run *x, enum op op, val a, val b);
val op_negate(struct run *x, val a, int positive);

val get_attribute(struct run *x, val obj, val name);
val get_item(struct run *x, val obj, val key);
val get_slice(struct run *x, val obj, val start, val stop, val step);
/* The item that a path of attributes ("a.b.0") leads to; `fallback` for undefined ones if it is not None. */
val get_path(struct run *x, val obj, val path, val fallback);

/* Arguments by position or name into out[n], in the order of `names` (comma-separated); those not given become MISSING.
 * Fails on unknown ones, on doubled ones and if one of the first `required` is missing. */
void bind(struct run *x, const char *who, const struct args *a, const char *names, val *out, uint32_t n,
          uint32_t required);
static inline val or_else(val v, val fallback) { return v.type == V_MISSING ? fallback : v; }

typedef val (*filter_fn)(struct run *x, val self, const struct args *a);
typedef int (*test_fn)(struct run *x, val self, const struct args *a);
struct filter {
    const char *name;
    filter_fn fn;
};
struct test {
    const char *name;
    test_fn fn;
};
extern const struct filter filters_text[], filters_list[], filters_html[]; /* each ends with an empty one */
const struct filter *filter_find(const char *name, size_t n);
const struct test *test_find(const char *name, size_t n);
val filter_call(struct run *x, val name, val self, const struct args *a);
int test_call(struct run *x, val name, val self, const struct args *a);

extern const struct method_def str_methods[], str_methods_find[], list_methods[], tuple_methods[], dict_methods[],
    int_methods[], float_methods[], range_methods[], loop_methods[], cycler_methods[];
val call_value(struct run *x, val callee, const struct args *a);
int callable(val v);
const struct function *global_find(const char *name, size_t n);

/* loop.c: the variable `loop` */
val loop_attribute(struct run *x, val loop, const struct str *name, int *found);
val macro_attribute(struct run *x, val macro, const struct str *name, int *found);

#endif
