/* Walking over values: Python's iterators, and the generators that filters give. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

int iterable(val v) {
    switch (v.type) {
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_GEN:
    case V_LOOP:
    case V_UNDEF:
        return 1;
    default:
        return 0;
    }
}

void iter_begin(struct run *x, struct iter *it, val source) {
    if (!iterable(source)) jx_fail(x, "'%s' object is not iterable", type_name(source));
    *it = (struct iter){.source = source};
}

int64_t range_at(const struct range *r, int64_t i) { return r->start + i * r->step; }

static val dict_part(struct run *x, const struct dict *d, uint32_t i, char what) {
    const struct entry *e = &d->e[i];
    return what == 'k' ? e->key : what == 'v' ? e->value : v_pair(x, e->key, e->value);
}

static int next_char(struct run *x, struct iter *it, val *out) {
    const struct str *s = it->source.s;
    unsigned len;
    if (it->at >= s->n) return 0;
    str_char(s, it->at, &len);
    *out = v_markup(x, v_slice(x, s, it->at, len), 0);
    it->at += len;
    return 1;
}

static int gen_next(struct run *x, struct gen *g, val *out);

int iter_next(struct run *x, struct iter *it, val *out) {
    val v = it->source;
    jx_steps(x, 1);
    switch (v.type) {
    case V_STR:
        return next_char(x, it, out);
    case V_LIST:
    case V_TUPLE:
        if (it->at >= v.l->n) return 0;
        *out = v.l->v[it->at++];
        return 1;
    case V_DICT:
        if (it->at >= v.d->n) return 0;
        *out = v.d->e[it->at++].key;
        return 1;
    case V_VIEW:
        if (it->at >= v.v->dict.d->n) return 0;
        *out = dict_part(x, v.v->dict.d, it->at++, (char)v.v->what);
        return 1;
    case V_RANGE:
        if (it->i >= v.r->n) return 0;
        *out = v_int(range_at(v.r, it->i++));
        return 1;
    case V_GEN:
        return gen_next(x, v.g, out);
    case V_LOOP:
        if (!loop_next(x, v.loop, out)) return 0;
        *out = v_pair(x, *out, v);
        return 1;
    default:
        return 0;
    }
}

struct list *list_from(struct run *x, val v) {
    if (is_sequence(v)) return v.l;
    struct iter it;
    val item;
    iter_begin(x, &it, v);
    struct list *l = list_new(x, 0);
    while (iter_next(x, &it, &item)) list_add(x, l, item);
    return l;
}

val v_gen(struct run *x, enum gen_kind kind, val source) {
    struct gen *g = jx_zalloc(x, 1, sizeof(*g));
    g->kind = kind;
    g->source = source;
    return (val){.type = V_GEN, .g = g};
}

/* What a generator does before its first element. 0: there is none. */
static int gen_begin(struct run *x, struct gen *g) {
    g->begun = 1;
    switch (g->kind) {
    case G_MAP:
    case G_MAP_ATTRIBUTE:
    case G_SELECT:
        if (!truth(x, g->source)) return 0;
        break;
    case G_ITEMS:
        if (is_undef(g->source)) return 0;
        if (g->source.type != V_DICT) jx_fail(x, "Can only get item pairs from a mapping.");
        break;
    case G_UNIQUE:
        g->a = (val){.type = V_DICT, .d = dict_new(x)};
        break;
    case G_SLICE: {
        struct list *l = list_from(x, g->source);
        g->source = v_list(l, V_LIST);
        if (!g->n) jx_fail(x, "integer division or modulo by zero");
        return 1;
    }
    case G_REVERSED:
        g->i = length(x, g->source);
        return 1;
    default:
        break;
    }
    iter_begin(x, &g->it, g->source);
    return 1;
}

static int next_selected(struct run *x, struct gen *g, val *out) {
    while (iter_next(x, &g->it, out)) {
        val subject = g->flag ? get_path(x, *out, g->b, v_none()) : *out;
        int is = g->a.type == V_MISSING ? truth(x, subject) : test_call(x, g->a, subject, &g->args);
        if (is != g->negate) return 1;
    }
    return 0;
}

static int next_unique(struct run *x, struct gen *g, val *out) {
    val seen;
    while (iter_next(x, &g->it, out)) {
        val key = g->b.type == V_NONE ? *out : get_path(x, *out, g->b, v_none());
        if (!g->flag && is_str(key)) key = str_case(x, key.s, CASE_LOWER);
        if (dict_get(x, g->a.d, key, &seen)) continue;
        dict_set(x, g->a.d, key, v_none());
        return 1;
    }
    return 0;
}

static int next_batch(struct run *x, struct gen *g, val *out) {
    struct list *l = list_new(x, 0);
    val item;
    /* The one element that was read too much begins the next batch. */
    if (g->flag) list_add(x, l, g->b), g->flag = 0;
    while (iter_next(x, &g->it, &item)) {
        if ((int64_t)l->n == g->n) {
            g->b = item;
            g->flag = 1;
            *out = v_list(l, V_LIST);
            return 1;
        }
        list_add(x, l, item);
    }
    if (!l->n) return 0;
    if (g->a.type != V_NONE)
        while ((int64_t)l->n < g->n) {
            jx_steps(x, 4);
            list_add(x, l, g->a);
        }
    *out = v_list(l, V_LIST);
    return 1;
}

static int next_slice(struct run *x, struct gen *g, val *out) {
    const struct list *all = g->source.l;
    if (g->i >= g->n) return 0;
    int64_t each = all->n / g->n, more = all->n % g->n, i = g->i++;
    int64_t begin = i * each + (i < more ? i : more), end = begin + each + (i < more);
    struct list *l = list_new(x, (uint32_t)(end - begin));
    for (int64_t k = begin; k < end; k++) list_add(x, l, all->v[k]);
    if (g->a.type != V_NONE && i >= more) list_add(x, l, g->a);
    *out = v_list(l, V_LIST);
    return 1;
}

static val reversed_at(struct run *x, val v, int64_t i) {
    switch (v.type) {
    case V_LIST:
    case V_TUPLE:
        return v.l->v[i];
    case V_RANGE:
        return v_int(range_at(v.r, i));
    case V_DICT:
        return v.d->e[i].key;
    default:
        return dict_part(x, v.v->dict.d, (uint32_t)i, (char)v.v->what);
    }
}

static int gen_step(struct run *x, struct gen *g, val *out) {
    switch (g->kind) {
    case G_MAP:
        if (!iter_next(x, &g->it, out)) return 0;
        *out = filter_call(x, g->a, *out, &g->args);
        return 1;
    case G_MAP_ATTRIBUTE:
        if (!iter_next(x, &g->it, out)) return 0;
        *out = get_path(x, *out, g->a, g->b);
        return 1;
    case G_SELECT:
        return next_selected(x, g, out);
    case G_ITEMS:
        if (g->it.at >= g->source.d->n) return 0;
        *out = dict_part(x, g->source.d, g->it.at++, 'i');
        return 1;
    case G_UNIQUE:
        return next_unique(x, g, out);
    case G_BATCH:
        return next_batch(x, g, out);
    case G_SLICE:
        return next_slice(x, g, out);
    case G_REVERSED:
        if (g->i <= 0) return 0;
        *out = reversed_at(x, g->source, --g->i);
        return 1;
    }
    return 0;
}

static int gen_next(struct run *x, struct gen *g, val *out) {
    if (g->done) return 0;
    jx_enter(x);
    if ((!g->begun && !gen_begin(x, g)) || !gen_step(x, g, out)) g->done = 1;
    jx_leave(x);
    return !g->done;
}
