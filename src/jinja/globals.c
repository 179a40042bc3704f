/* Global functions, and calling what can be called. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

static val g_range(struct run *x, const struct args *a) {
    val v[3];
    if (a->n_kw) jx_fail(x, "range() takes no keyword arguments");
    bind(x, "range", a, "start,stop,step", v, 3, 1);
    struct range *r = jx_alloc(x, 1, sizeof(*r));
    int64_t first = need_int(x, v[0], "range"), second = v[1].type == V_MISSING ? 0 : need_int(x, v[1], "range");
    r->start = a->n == 1 ? 0 : first;
    r->stop = a->n == 1 ? first : second;
    r->step = v[2].type == V_MISSING ? 1 : need_int(x, v[2], "range");
    if (!r->step) jx_fail(x, "range() arg 3 must not be zero");
    __int128 span = r->step > 0 ? (__int128)r->stop - r->start : (__int128)r->start - r->stop;
    __int128 step = r->step > 0 ? r->step : -(__int128)r->step, n = span > 0 ? (span - 1) / step + 1 : 0;
    if (n > JINJA_RANGE_MAX)
        jx_fail(x, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", JINJA_RANGE_MAX);
    r->n = (int64_t)n;
    return (val){.type = V_RANGE, .r = r};
}

/* What dict() and namespace() take: a mapping or pairs, and names. */
static struct dict *dict_of(struct run *x, const struct args *a, const char *who) {
    struct dict *d = dict_new(x);
    if (a->n > 1) jx_fail(x, "%s expected at most 1 argument, got %u", who, a->n);
    if (a->n) need_defined(x, a->v[0]);
    if (a->n && a->v[0].type == V_DICT) {
        const struct dict *from = a->v[0].d;
        for (uint32_t i = 0; i < from->n; i++) dict_set(x, d, from->e[i].key, from->e[i].value);
    } else if (a->n) {
        struct iter it;
        val item;
        iter_begin(x, &it, a->v[0]);
        while (iter_next(x, &it, &item)) {
            struct list *l = list_from(x, item);
            if (l->n != 2) jx_fail(x, "dictionary update sequence element has length %u; 2 is required", l->n);
            dict_set(x, d, l->v[0], l->v[1]);
        }
    }
    for (uint32_t i = 0; i < a->n_kw; i++)
        dict_set(x, d, (val){.type = V_STR, .s = (struct str *)a->kw[i].name}, a->kw[i].value);
    return d;
}
static val g_dict(struct run *x, const struct args *a) { return (val){.type = V_DICT, .d = dict_of(x, a, "dict")}; }
static val g_namespace(struct run *x, const struct args *a) {
    return (val){.type = V_NAMESPACE, .d = dict_of(x, a, "namespace")};
}

static val g_cycler(struct run *x, const struct args *a) {
    if (a->n_kw) jx_fail(x, "cycler() takes no keyword arguments");
    if (!a->n) jx_fail(x, "at least one item has to be provided");
    struct cycler *c = jx_alloc(x, 1, sizeof(*c));
    *c = (struct cycler){.items = list_new(x, a->n)};
    for (uint32_t i = 0; i < a->n; i++) list_add(x, c->items, a->v[i]);
    return (val){.type = V_CYCLER, .c = c};
}

/* A joiner is a cycler of the empty text and the separator, which stays at the second. */
static val g_joiner(struct run *x, const struct args *a) {
    val sep;
    bind(x, "joiner", a, "sep", &sep, 1, 0);
    struct cycler *c = jx_alloc(x, 1, sizeof(*c));
    *c = (struct cycler){.items = list_new(x, 2)};
    list_add(x, c->items, v_text(x, ""));
    list_add(x, c->items, or_else(sep, v_text(x, ", ")));
    return (val){.type = V_JOINER, .c = c};
}

static val g_raise(struct run *x, const struct args *a) {
    val message;
    bind(x, "raise_exception", a, "message", &message, 1, 1);
    const struct str *s = to_str(x, message);
    jx_fail_code(x, COHORT_E_ARGUMENT, "messages", s->b, s->n);
}

static val g_strftime(struct run *x, const struct args *a) {
    val format;
    bind(x, "strftime_now", a, "format", &format, 1, 1);
    if (!is_str(format)) jx_fail(x, "strftime() argument 1 must be str");
    return time_format(x, x->render->now_s, format.s);
}

const struct function *global_find(const char *name, size_t n) {
    static const struct function globals[] = {{"range", g_range},          {"dict", g_dict},
                                              {"namespace", g_namespace},  {"cycler", g_cycler},
                                              {"joiner", g_joiner},        {"raise_exception", g_raise},
                                              {"strftime_now", g_strftime}};
    for (size_t i = 0; i < sizeof(globals) / sizeof(*globals); i++)
        if (strlen(globals[i].name) == n && !memcmp(globals[i].name, name, n)) return &globals[i];
    return NULL;
}

int callable(val v) {
    switch (v.type) {
    case V_FUNCTION:
    case V_METHOD:
    case V_MACRO:
    case V_LOOP:
    case V_JOINER:
    case V_UNDEF:
        return 1;
    default:
        return 0;
    }
}

static val call_known(struct run *x, val callee, const struct args *a) {
    switch (callee.type) {
    case V_FUNCTION:
        return callee.fn->fn(x, a);
    case V_METHOD:
        return callee.method->def->fn(x, callee.method->self, a);
    case V_MACRO:
        return macro_call(x, callee.m, a);
    case V_LOOP:
        return loop_call(x, callee.loop, a);
    case V_JOINER: {
        if (a->n || a->n_kw) jx_fail(x, "a joiner takes no arguments");
        val v = callee.c->items->v[callee.c->at];
        callee.c->at = 1;
        return v;
    }
    default:
        jx_fail(x, "'%s' object is not callable", type_name(callee));
    }
}

val call_value(struct run *x, val callee, const struct args *a) {
    need_defined(x, callee);
    jx_enter(x);
    val v = call_known(x, callee, a);
    jx_leave(x);
    return v;
}
