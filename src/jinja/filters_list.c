/* Filters over lists, mappings and numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

static val none_or(val v) { return v.type == V_MISSING ? v_none() : v; }
static int flag(struct run *x, val v) { return v.type != V_MISSING && truth(x, v); }
static val folded(struct run *x, val v, int case_sensitive) {
    return !case_sensitive && is_str(v) ? str_case(x, v.s, CASE_LOWER) : v;
}

static val f_abs(struct run *x, val self, const struct args *a) {
    bind(x, "abs", a, "", NULL, 0, 0);
    need_defined(x, self);
    if (!is_number(self)) jx_fail(x, "bad operand type for abs(): '%s'", type_name(self));
    if (self.type == V_FLOAT) return self.f = fabs(self.f), self;
    return self.i < 0 ? op_negate(x, self, 0) : op_negate(x, self, 1);
}

static val f_length(struct run *x, val self, const struct args *a) {
    bind(x, "length", a, "", NULL, 0, 0);
    return v_int(length(x, self));
}

static val f_default(struct run *x, val self, const struct args *a) {
    val v[2];
    bind(x, "default", a, "default_value,boolean", v, 2, 0);
    if (is_undef(self) || (flag(x, v[1]) && !truth(x, self))) return or_else(v[0], v_text(x, ""));
    return self;
}

static val f_first(struct run *x, val self, const struct args *a) {
    struct iter it;
    val out;
    bind(x, "first", a, "", NULL, 0, 0);
    iter_begin(x, &it, self);
    return iter_next(x, &it, &out) ? out : v_undef_hint(x, "No first item, sequence was empty.");
}

static val f_last(struct run *x, val self, const struct args *a) {
    bind(x, "last", a, "", NULL, 0, 0);
    if (self.type == V_GEN || self.type == V_LOOP || !iterable(self))
        jx_fail(x, "'%s' object is not reversible", type_name(self));
    int64_t n = length(x, self);
    if (!n) return v_undef_hint(x, "No last item, sequence was empty.");
    if (is_str(self)) return get_item(x, self, v_int(n - 1));
    val gen = v_gen(x, G_REVERSED, self), out;
    struct iter it;
    iter_begin(x, &it, gen);
    return iter_next(x, &it, &out) ? out : v_none();
}

static val f_list(struct run *x, val self, const struct args *a) {
    bind(x, "list", a, "", NULL, 0, 0);
    val v = v_list(list_from(x, self), V_LIST);
    v.mark = is_str(self) ? 0 : self.mark;
    return v;
}

static val f_items(struct run *x, val self, const struct args *a) {
    bind(x, "items", a, "", NULL, 0, 0);
    return v_gen(x, G_ITEMS, self);
}

static val f_join(struct run *x, val self, const struct args *a) {
    val v[2], item;
    struct iter it;
    struct maker m = maker_begin(x);
    bind(x, "join", a, "d,attribute", v, 2, 0);
    const struct str *d = to_str(x, or_else(v[0], v_text(x, "")));
    iter_begin(x, &it, self);
    for (uint32_t i = 0; iter_next(x, &it, &item); i++) {
        if (i) maker_str(&m, d);
        put_str(&m, get_path(x, item, none_or(v[1]), v_none()));
    }
    return maker_end(&m);
}

static val f_reverse(struct run *x, val self, const struct args *a) {
    bind(x, "reverse", a, "", NULL, 0, 0);
    if (is_str(self)) return get_slice(x, self, v_none(), v_none(), v_int(-1));
    if (self.type == V_GEN || self.type == V_LOOP) {
        struct list *l = list_from(x, self), *back = list_new(x, l->n);
        for (uint32_t i = l->n; i-- > 0;) list_add(x, back, l->v[i]);
        return v_list(back, V_LIST);
    }
    if (!iterable(self)) jx_fail(x, "argument must be iterable");
    return v_gen(x, G_REVERSED, self);
}

/* ---- Sorting ---- */

static val sort_key(struct run *x, val item, val attribute, int case_sensitive) {
    if (!is_str(attribute)) return folded(x, get_path(x, item, attribute, v_none()), case_sensitive);
    struct list *keys = list_new(x, 1);
    const struct str *s = attribute.s;
    for (size_t from = 0; from <= s->n;) {
        const char *comma = memchr(s->b + from, ',', s->n - from);
        size_t end = comma ? (size_t)(comma - s->b) : s->n;
        list_add(x, keys, folded(x, get_path(x, item, v_slice(x, s, from, end - from), v_none()), case_sensitive));
        from = end + 1;
    }
    return v_list(keys, V_LIST);
}

static val f_sort(struct run *x, val self, const struct args *a) {
    val v[3];
    bind(x, "sort", a, "reverse,case_sensitive,attribute", v, 3, 0);
    struct list *from = list_from(x, self), *l = list_new(x, from->n);
    val *keys = jx_alloc(x, from->n + 1, sizeof(val));
    for (uint32_t i = 0; i < from->n; i++) {
        list_add(x, l, from->v[i]);
        keys[i] = sort_key(x, from->v[i], none_or(v[2]), flag(x, v[1]));
        /* One key stands in a list too, where equality is asked before order. */
        if (keys[i].type != V_LIST || !is_str(none_or(v[2]))) {
            struct list *one = list_new(x, 1);
            list_add(x, one, keys[i]);
            keys[i] = v_list(one, V_LIST);
        }
    }
    sort_by(x, l->v, keys, l->n, flag(x, v[0]));
    return v_list(l, V_LIST);
}

static val f_dictsort(struct run *x, val self, const struct args *a) {
    val v[3];
    bind(x, "dictsort", a, "case_sensitive,by,reverse", v, 3, 0);
    val by = or_else(v[1], v_text(x, "key"));
    need_defined(x, self);
    if (!is_str(by) || (!str_is(by.s, "key") && !str_is(by.s, "value")))
        jx_fail(x, "You can only sort by either \"key\" or \"value\"");
    if (self.type != V_DICT) jx_fail(x, "'%s' object has no attribute 'items'", type_name(self));
    struct list *l = list_new(x, self.d->n);
    val *keys = jx_alloc(x, self.d->n + 1, sizeof(val));
    for (uint32_t i = 0; i < self.d->n; i++) {
        const struct entry *e = &self.d->e[i];
        list_add(x, l, v_pair(x, e->key, e->value));
        keys[i] = folded(x, str_is(by.s, "key") ? e->key : e->value, flag(x, v[0]));
    }
    sort_by(x, l->v, keys, l->n, flag(x, v[2]));
    return v_list(l, V_LIST);
}

static val f_unique(struct run *x, val self, const struct args *a) {
    val v[2];
    bind(x, "unique", a, "case_sensitive,attribute", v, 2, 0);
    val out = v_gen(x, G_UNIQUE, self);
    out.g->flag = (uint8_t)flag(x, v[0]);
    out.g->b = none_or(v[1]);
    return out;
}

static val extreme(struct run *x, val self, const struct args *a, int want, const char *who) {
    val v[2], item, best = v_none(), best_key = v_none();
    struct iter it;
    bind(x, who, a, "case_sensitive,attribute", v, 2, 0);
    iter_begin(x, &it, self);
    for (uint32_t i = 0; iter_next(x, &it, &item); i++) {
        val key = folded(x, get_path(x, item, none_or(v[1]), v_none()), flag(x, v[0]));
        if (i && compare(x, key, best_key, want < 0 ? "<" : ">") != want) continue;
        best = item;
        best_key = key;
        if (!i) best.mark = item.mark;
    }
    return it.at || it.i || best.type != V_NONE || best_key.type != V_NONE
               ? best
               : v_undef_hint(x, "No aggregated item, sequence was empty.");
}
static val f_min(struct run *x, val self, const struct args *a) { return extreme(x, self, a, -1, "min"); }
static val f_max(struct run *x, val self, const struct args *a) { return extreme(x, self, a, 1, "max"); }

static val f_groupby(struct run *x, val self, const struct args *a) {
    val v[3];
    bind(x, "groupby", a, "attribute,default,case_sensitive", v, 3, 1);
    int sensitive = flag(x, v[2]);
    struct list *from = list_from(x, self), *l = list_new(x, from->n), *out = list_new(x, 0);
    val *keys = jx_alloc(x, from->n + 1, sizeof(val));
    for (uint32_t i = 0; i < from->n; i++) {
        list_add(x, l, from->v[i]);
        keys[i] = folded(x, get_path(x, from->v[i], v[0], none_or(v[1])), sensitive);
    }
    sort_by(x, l->v, keys, l->n, 0);
    val last = v_none();
    for (uint32_t i = 0; i < l->n; i++) {
        val grouper = get_path(x, l->v[i], v[0], none_or(v[1])), key = folded(x, grouper, sensitive);
        if (!out->n || !equal(x, key, last)) list_add(x, out, v_pair(x, grouper, v_list(list_new(x, 0), V_LIST)));
        last = key;
        val group = out->v[out->n - 1];
        group.l->cap = 2; /* a pair with names: see tuple attributes */
        list_add(x, group.l->v[1].l, l->v[i]);
    }
    return v_list(out, V_LIST);
}

static val f_sum(struct run *x, val self, const struct args *a) {
    val v[2], item;
    struct iter it;
    bind(x, "sum", a, "attribute,start", v, 2, 0);
    val total = or_else(v[1], v_int(0));
    if (is_str(total)) jx_fail(x, "sum() can't sum strings [use ''.join(seq) instead]");
    iter_begin(x, &it, self);
    while (iter_next(x, &it, &item)) total = op_binary(x, OP_ADD, total, get_path(x, item, none_or(v[0]), v_none()));
    return total;
}

/* ---- Parts ---- */

static val f_batch(struct run *x, val self, const struct args *a) {
    val v[2];
    bind(x, "batch", a, "linecount,fill_with", v, 2, 1);
    val out = v_gen(x, G_BATCH, self);
    /* What is no integer equals no length: one batch. */
    out.g->n = is_integer(v[0]) ? v[0].i : v[0].type == V_FLOAT && v[0].f == floor(v[0].f) ? (int64_t)v[0].f : -1;
    out.g->a = none_or(v[1]);
    return out;
}

static val f_slice(struct run *x, val self, const struct args *a) {
    val v[2];
    bind(x, "slice", a, "slices,fill_with", v, 2, 1);
    val out = v_gen(x, G_SLICE, self);
    out.g->n = need_int(x, v[0], "slice");
    out.g->a = none_or(v[1]);
    return out;
}

/* ---- Mapping and choosing ---- */

static struct args rest_of(const struct args *a, uint32_t from) {
    struct args rest = *a;
    if (from > a->n) from = a->n;
    if (from) rest.v += from; /* without any there is nothing to point into */
    rest.n -= from;
    return rest;
}

static val f_map(struct run *x, val self, const struct args *a) {
    val out = v_gen(x, G_MAP, self), v[2];
    if (!a->n && a->n_kw) {
        for (uint32_t i = 0; i < a->n_kw; i++) {
            if (!str_is(a->kw[i].name, "attribute")) continue;
            bind(x, "map", a, "attribute,default", v, 2, 1);
            out.g->kind = G_MAP_ATTRIBUTE;
            out.g->a = v[0];
            out.g->b = none_or(v[1]);
            return out;
        }
    }
    if (!a->n) jx_fail(x, "map requires a filter argument");
    out.g->a = a->v[0];
    out.g->args = rest_of(a, 1);
    return out;
}

static val choose(struct run *x, val self, const struct args *a, int by_attribute, int negate) {
    val out = v_gen(x, G_SELECT, self);
    if (by_attribute && !a->n) jx_fail(x, "Missing parameter for attribute name");
    out.g->flag = (uint8_t)by_attribute;
    out.g->negate = (uint8_t)negate;
    if (by_attribute) out.g->b = a->v[0];
    out.g->a = a->n > (uint32_t)by_attribute ? a->v[by_attribute] : (val){.type = V_MISSING};
    out.g->args = rest_of(a, 1 + (uint32_t)by_attribute);
    return out;
}
static val f_select(struct run *x, val self, const struct args *a) { return choose(x, self, a, 0, 0); }
static val f_reject(struct run *x, val self, const struct args *a) { return choose(x, self, a, 0, 1); }
static val f_selectattr(struct run *x, val self, const struct args *a) { return choose(x, self, a, 1, 0); }
static val f_rejectattr(struct run *x, val self, const struct args *a) { return choose(x, self, a, 1, 1); }

static val f_attr(struct run *x, val self, const struct args *a) {
    val name;
    bind(x, "attr", a, "name", &name, 1, 1);
    if (!is_str(name)) jx_fail(x, "attribute name must be string, not '%s'", type_name(name));
    /* Only attributes, not items; an undefined value has none. */
    if (self.type == V_DICT || self.type == V_UNDEF) {
        if (self.type == V_UNDEF) undef_fail(x, self);
        val empty = {.type = V_DICT, .d = dict_new(x)}, out = get_attribute(x, empty, name);
        if (out.type != V_METHOD) return v_undef_of(x, self, name, U_ATTRIBUTE);
        out.method->self = self;
        return out;
    }
    return get_attribute(x, self, name);
}

/* ---- Numbers ---- */

static val f_int(struct run *x, val self, const struct args *a) {
    val v[2], out;
    bind(x, "int", a, "default,base", v, 2, 0);
    need_defined(x, self);
    int64_t base = v[1].type == V_MISSING ? 10 : need_int(x, v[1], "int");
    if (to_int(x, self, base, &out)) return out;
    if (to_float(x, self, &out) && !isnan(out.f) && !isinf(out.f)) {
        if (!(out.f > -9.3e18 && out.f < 9.3e18)) jx_fail_limit(x, "digits of an integer");
        val whole = v_int((int64_t)out.f);
        whole.mark = mark_of(self);
        return whole;
    }
    return or_else(v[0], v_int(0));
}

static val f_float(struct run *x, val self, const struct args *a) {
    val fallback, out;
    bind(x, "float", a, "default", &fallback, 1, 0);
    need_defined(x, self);
    return to_float(x, self, &out) ? out : or_else(fallback, v_float(0));
}

static double rounded(double f, int64_t places) {
    char text[400];
    if (isnan(f) || isinf(f) || places > 323) return f;
    if (places >= 0) {
        snprintf(text, sizeof(text), "%.*f", (int)places, f);
        return fabs(f) > 1e60 ? f : strtod(text, NULL);
    }
    if (places < -308) return 0 * f;
    double unit = 1;
    for (int64_t i = 0; i > places; i--) unit *= 10;
    snprintf(text, sizeof(text), "%.0f", f / unit);
    return strtod(text, NULL) * unit;
}

static val round_integer(struct run *x, val v, int64_t places) {
    if (places >= 0) return op_negate(x, v, 1);
    if (places < -18) return v_int(0);
    int64_t unit = 1;
    for (int64_t i = 0; i > places; i--) unit *= 10;
    int64_t low = v.i % unit;
    if (low < 0) low += unit;
    int64_t down = v.i - low;
    int up = low > unit - low || (low == unit - low && down / unit % 2 != 0);
    val out = v_int(down);
    if (up && __builtin_add_overflow(down, unit, &out.i)) jx_fail_limit(x, "digits of an integer");
    return out;
}

static val f_round(struct run *x, val self, const struct args *a) {
    val v[2];
    bind(x, "round", a, "precision,method", v, 2, 0);
    int64_t places = v[0].type == V_MISSING ? 0 : need_int(x, v[0], "round");
    val method = or_else(v[1], v_text(x, "common"));
    int common = is_str(method) && str_is(method.s, "common"), up = is_str(method) && str_is(method.s, "ceil");
    if (!common && !up && !(is_str(method) && str_is(method.s, "floor")))
        jx_fail(x, "method must be common, ceil or floor");
    need_defined(x, self);
    if (!is_number(self)) jx_fail(x, "type %s doesn't define __round__ method", type_name(self));
    if (common && is_integer(self)) return round_integer(x, self, places);
    if (common) {
        val out = v_float(rounded(self.f, places));
        out.mark = self.mark;
        return out;
    }
    double unit = 1;
    if (places > 300 || places < -300) jx_fail_limit(x, "digits");
    for (int64_t i = 0; i < llabs(places); i++) unit *= 10;
    if (places < 0) unit = 1 / unit;
    double f = (self.type == V_FLOAT ? self.f : (double)self.i) * unit;
    if (isnan(f) || isinf(f)) jx_fail(x, "cannot convert float to integer");
    val out = v_float((up ? ceil(f) : floor(f)) / unit);
    if (out.f == 0) out.f = 0;
    out.mark = self.mark;
    return out;
}

static val f_random(struct run *x, val self, const struct args *a) {
    bind(x, "random", a, "", NULL, 0, 0);
    jx_fail(x, "random is not available: a rendering depends on its variables alone");
}

const struct filter filters_list[] = {{"abs", f_abs},
                                      {"length", f_length},
                                      {"count", f_length},
                                      {"default", f_default},
                                      {"d", f_default},
                                      {"first", f_first},
                                      {"last", f_last},
                                      {"list", f_list},
                                      {"items", f_items},
                                      {"join", f_join},
                                      {"reverse", f_reverse},
                                      {"sort", f_sort},
                                      {"dictsort", f_dictsort},
                                      {"unique", f_unique},
                                      {"min", f_min},
                                      {"max", f_max},
                                      {"groupby", f_groupby},
                                      {"sum", f_sum},
                                      {"batch", f_batch},
                                      {"slice", f_slice},
                                      {"map", f_map},
                                      {"select", f_select},
                                      {"reject", f_reject},
                                      {"selectattr", f_selectattr},
                                      {"rejectattr", f_rejectattr},
                                      {"attr", f_attr},
                                      {"int", f_int},
                                      {"float", f_float},
                                      {"round", f_round},
                                      {"random", f_random},
                                      {NULL, NULL}};
