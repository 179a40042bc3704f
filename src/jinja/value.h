/* Values of templates: Python's, as far as templates can have them. All are immutable but namespaces, generators (which
 * are used up) and the helpers of loops. They live in the run's arena. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include "jinja/run.h"

enum value_type {
    V_MISSING, /* a name that has no value yet; never seen by templates */
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG, /* an int of a variable beyond 64 bits: is only written out again */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_RANGE,
    V_VIEW, /* what a dict's keys(), values() and items() give */
    V_GEN,
    V_NAMESPACE,
    V_MACRO,
    V_LOOP,
    V_METHOD,
    V_FUNCTION,
    V_CYCLER,
    V_JOINER
};

typedef struct val {
    uint8_t type;
    uint16_t mark; /* of what is not a string: what its digits and brackets get */
    union {
        int64_t i; /* also BOOL */
        double f;
        struct str *s; /* also BIG: its digits */
        struct list *l;
        struct dict *d;
        struct undef *u;
        struct range *r;
        struct view *v;
        struct gen *g;
        struct macro *m;
        struct loop *loop;
        struct method *method;
        struct cycler *c;
        const struct function *fn;
    };
} val;

/* Room behind a string that grew by concatenation, so that growing again copies nothing. Bytes in front of `used` never
 * change. */
struct room {
    char *bytes;
    uint16_t *marks; /* NULL: all have `mark` */
    uint32_t used, cap;
    uint16_t mark;
};
struct str {
    const char *b;
    const uint16_t *marks; /* NULL: all bytes have `mark` */
    uint32_t n;
    uint32_t chars; /* UINT32_MAX: not counted yet */
    uint16_t mark;
    uint8_t markup; /* Python's Markup: escapes what joins it */
    struct room *room;
};
struct list {
    val *v;
    uint32_t n, cap;
};
struct entry {
    val key, value;
    uint64_t hash;
};
struct dict {
    struct entry *e;
    uint32_t *index; /* of `slots` places: 0 or 1 + entry */
    uint32_t n, cap, slots;
};
enum undef_kind { U_NAME, U_ATTRIBUTE, U_HINT, U_UNSAFE };
struct undef {
    enum undef_kind kind;
    val obj, name;
    const char *hint;
};
struct range {
    int64_t start, stop, step, n;
};
struct view {
    val dict;
    uint8_t what; /* 'k', 'v', 'i' */
};
struct method {
    val self;
    const struct method_def *def;
};
struct cycler {
    struct list *items;
    uint32_t at;
};
struct kwarg {
    const struct str *name;
    val value;
};
struct args {
    val *v;
    struct kwarg *kw;
    uint32_t n, n_kw;
};
typedef val (*function_fn)(struct run *x, const struct args *a);
struct function {
    const char *name;
    function_fn fn;
};
typedef val (*method_fn)(struct run *x, val self, const struct args *a);
struct method_def {
    const char *name;
    method_fn fn; /* NULL: changes the object, so the sandbox refuses it */
};

/* What is walked over: the state of a Python iterator. */
struct iter {
    val source;
    uint32_t at; /* index or byte */
    int64_t i;
};
enum gen_kind { G_MAP, G_MAP_ATTRIBUTE, G_SELECT, G_ITEMS, G_UNIQUE, G_BATCH, G_SLICE, G_REVERSED };
struct gen {
    enum gen_kind kind;
    uint8_t begun, done, negate, flag;
    struct iter it;
    val source;
    struct args args;
    val a, b; /* of the kind: an attribute, a default, a test's name, what has been seen */
    int64_t n, i;
};

/* value.c */
static inline val v_none(void) { return (val){.type = V_NONE}; }
static inline val v_bool(int truth) { return (val){.type = V_BOOL, .i = !!truth}; }
static inline val v_int(int64_t i) { return (val){.type = V_INT, .i = i}; }
static inline val v_float(double f) { return (val){.type = V_FLOAT, .f = f}; }
static inline int is_str(val v) { return v.type == V_STR; }
static inline int is_undef(val v) { return v.type == V_UNDEF; }
static inline int is_number(val v) { return v.type == V_INT || v.type == V_BOOL || v.type == V_FLOAT; }
static inline int is_integer(val v) { return v.type == V_INT || v.type == V_BOOL; }
static inline int is_sequence(val v) { return v.type == V_LIST || v.type == V_TUPLE; }

val v_undef_name(struct run *x, val name);
val v_undef_of(struct run *x, val obj, val name, enum undef_kind kind);
val v_undef_hint(struct run *x, const char *hint);
_Noreturn void undef_fail(struct run *x, val undefined);
/* Fails if the value is undefined: what Python's operators do with it. */
static inline void need_defined(struct run *x, val v) {
    if (v.type == V_UNDEF) undef_fail(x, v);
}
const char *type_name(val v); /* Python's */

struct list *list_new(struct run *x, uint32_t cap);
void list_add(struct run *x, struct list *l, val v);
val v_list(struct list *l, uint8_t type);
val v_pair(struct run *x, val a, val b);
struct dict *dict_new(struct run *x);
void dict_set(struct run *x, struct dict *d, val key, val value); /* fails if the key cannot be one */
int dict_get(struct run *x, const struct dict *d, val key, val *out);
int dict_get_bytes(const struct dict *d, const char *b, uint32_t n, val *out);
int hashable(struct run *x, val v);

int truth(struct run *x, val v);
int equal(struct run *x, val a, val b);
int compare(struct run *x, val a, val b, const char *op); /* <0, 0, >0; 2: not ordered (NaN); fails on mixed types */
int same(val a, val b);                                   /* Python's `is` */
int64_t length(struct run *x, val v);                     /* fails if it has none */
int has_length(val v);
int contains(struct run *x, val container, val item);
int64_t need_int(struct run *x, val v, const char *what);

/* iter.c */
int iterable(val v);
void iter_begin(struct run *x, struct iter *it, val source); /* fails if it cannot be */
int iter_next(struct run *x, struct iter *it, val *out);
struct list *list_from(struct run *x, val v); /* a list of all elements; may be the value's own */
val v_gen(struct run *x, enum gen_kind kind, val source);
int64_t range_at(const struct range *r, int64_t i);

/* sort.c: stable, fails on mixed types */
void sort_by(struct run *x, val *v, const val *keys, uint32_t n, int reverse);

#endif
