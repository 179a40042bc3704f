/* The methods of lists, mappings, numbers and loops. Those that would change something are refused, as in the immutable
 * sandbox. */
#include <math.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

static void no_arguments(struct run *x, const char *who, const struct args *a) {
    if (a->n || a->n_kw) jx_fail(x, "%s() takes no arguments", who);
}
static void positional(struct run *x, const char *who, const struct args *a) {
    if (a->n_kw) jx_fail(x, "%s() takes no keyword arguments", who);
}

/* ---- Lists and tuples ---- */

static val l_count(struct run *x, val self, const struct args *a) {
    val v;
    int64_t n = 0;
    positional(x, "count", a);
    bind(x, "count", a, "value", &v, 1, 1);
    for (uint32_t i = 0; i < self.l->n; i++) n += equal(x, self.l->v[i], v);
    return v_int(n);
}

static int64_t clamp(struct run *x, val v, int64_t n, int64_t fallback) {
    if (v.type == V_MISSING) return fallback;
    int64_t i = need_int(x, v, "slice index");
    return i < 0 ? (i < -n ? 0 : i + n) : i;
}

static val l_index(struct run *x, val self, const struct args *a) {
    val v[3];
    positional(x, "index", a);
    bind(x, "index", a, "value,start,stop", v, 3, 1);
    int64_t n = self.l->n, stop = clamp(x, v[2], n, n);
    for (int64_t i = clamp(x, v[1], n, 0); i < n && i < stop; i++)
        if (equal(x, self.l->v[i], v[0])) return v_int(i);
    jx_fail(x, "the value is not in the %s", type_name(self));
}

static val l_copy(struct run *x, val self, const struct args *a) { return no_arguments(x, "copy", a), self; }

const struct method_def list_methods[] = {{"count", l_count}, {"index", l_index}, {"copy", l_copy}, {"append", NULL},
                                          {"clear", NULL},    {"extend", NULL},   {"insert", NULL}, {"pop", NULL},
                                          {"remove", NULL},   {"reverse", NULL},  {"sort", NULL},   {NULL, NULL}};
const struct method_def tuple_methods[] = {{"count", l_count}, {"index", l_index}, {NULL, NULL}};

/* ---- Mappings ---- */

static val view(struct run *x, val self, char what) {
    struct view *v = jx_alloc(x, 1, sizeof(*v));
    *v = (struct view){.dict = self, .what = (uint8_t)what};
    return (val){.type = V_VIEW, .mark = self.mark, .v = v};
}
static val d_keys(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "keys", a), view(x, self, 'k');
}
static val d_values(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "values", a), view(x, self, 'v');
}
static val d_items(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "items", a), view(x, self, 'i');
}

static val d_get(struct run *x, val self, const struct args *a) {
    val v[2], out;
    positional(x, "get", a);
    bind(x, "get", a, "key,default", v, 2, 1);
    return dict_get(x, self.d, v[0], &out) ? out : or_else(v[1], v_none());
}

static val d_copy(struct run *x, val self, const struct args *a) { return no_arguments(x, "copy", a), self; }

static val d_fromkeys(struct run *x, val self, const struct args *a) {
    val v[2], item;
    struct iter it;
    positional(x, "fromkeys", a);
    bind(x, "fromkeys", a, "iterable,value", v, 2, 1);
    struct dict *d = dict_new(x);
    iter_begin(x, &it, v[0]);
    while (iter_next(x, &it, &item)) dict_set(x, d, item, or_else(v[1], v_none()));
    return (val){.type = V_DICT, .d = d};
}

const struct method_def dict_methods[] = {{"get", d_get},       {"items", d_items}, {"keys", d_keys},
                                          {"values", d_values}, {"copy", d_copy},   {"fromkeys", d_fromkeys},
                                          {"clear", NULL},      {"pop", NULL},      {"popitem", NULL},
                                          {"setdefault", NULL}, {"update", NULL},   {NULL, NULL}};

/* ---- Numbers ---- */

static val i_bit_length(struct run *x, val self, const struct args *a) {
    no_arguments(x, "bit_length", a);
    uint64_t u = self.i < 0 ? 0 - (uint64_t)self.i : (uint64_t)self.i;
    return v_int(u ? 64 - __builtin_clzll(u) : 0);
}
static val i_bit_count(struct run *x, val self, const struct args *a) {
    no_arguments(x, "bit_count", a);
    return v_int(__builtin_popcountll(self.i < 0 ? 0 - (uint64_t)self.i : (uint64_t)self.i));
}
static val n_conjugate(struct run *x, val self, const struct args *a) {
    no_arguments(x, "conjugate", a);
    return op_negate(x, self, 1);
}
static val f_is_integer(struct run *x, val self, const struct args *a) {
    no_arguments(x, "is_integer", a);
    return v_bool(!isinf(self.f) && self.f == floor(self.f));
}

const struct method_def int_methods[] = {
    {"bit_length", i_bit_length}, {"bit_count", i_bit_count}, {"conjugate", n_conjugate}, {NULL, NULL}};
const struct method_def float_methods[] = {{"is_integer", f_is_integer}, {"conjugate", n_conjugate}, {NULL, NULL}};

/* ---- Ranges, loops, cyclers ---- */

static int64_t range_place(val self, val v) {
    if (!is_integer(v) || !self.r->n) return -1;
    int64_t off = v.i - self.r->start;
    if (off % self.r->step || off / self.r->step < 0 || off / self.r->step >= self.r->n) return -1;
    return off / self.r->step;
}
static val r_count(struct run *x, val self, const struct args *a) {
    val v;
    bind(x, "count", a, "value", &v, 1, 1);
    return v_int(range_place(self, v) >= 0);
}
static val r_index(struct run *x, val self, const struct args *a) {
    val v;
    bind(x, "index", a, "value", &v, 1, 1);
    int64_t at = range_place(self, v);
    if (at < 0) jx_fail(x, "the value is not in range");
    return v_int(at);
}
const struct method_def range_methods[] = {{"count", r_count}, {"index", r_index}, {NULL, NULL}};

static val loop_cycle(struct run *x, val self, const struct args *a) {
    positional(x, "cycle", a);
    if (!a->n) jx_fail(x, "no items for cycling given");
    return a->v[self.loop->index0 % (a->n ? a->n : 1)];
}
static val loop_changed(struct run *x, val self, const struct args *a) {
    positional(x, "changed", a);
    struct list *l = list_new(x, a->n);
    for (uint32_t i = 0; i < a->n; i++) list_add(x, l, a->v[i]);
    val now = v_list(l, V_TUPLE);
    int is = !self.loop->has_changed || !equal(x, self.loop->changed, now);
    self.loop->has_changed = 1;
    self.loop->changed = now;
    return v_bool(is);
}
const struct method_def loop_methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}, {NULL, NULL}};

static val cycler_next(struct run *x, val self, const struct args *a) {
    no_arguments(x, "next", a);
    struct cycler *c = self.c;
    val v = c->items->v[c->at];
    c->at = (c->at + 1) % c->items->n;
    return v;
}
static val cycler_reset(struct run *x, val self, const struct args *a) {
    no_arguments(x, "reset", a);
    self.c->at = 0;
    return v_none();
}
const struct method_def cycler_methods[] = {{"next", cycler_next}, {"reset", cycler_reset}, {NULL, NULL}};
