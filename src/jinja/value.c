/* Truth, equality, order, hashes and containers of values. */
#include "jinja/value.h"

#include <math.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/text.h"
#include "jinja/tree.h"

const char *type_name(val v) {
    static const char *const names[] = {
        [V_MISSING] = "missing",  [V_UNDEF] = "Undefined", [V_NONE] = "NoneType",       [V_BOOL] = "bool",
        [V_INT] = "int",          [V_BIG] = "int",         [V_FLOAT] = "float",         [V_STR] = "str",
        [V_LIST] = "list",        [V_TUPLE] = "tuple",     [V_DICT] = "dict",           [V_RANGE] = "range",
        [V_VIEW] = "dict_items",  [V_GEN] = "generator",   [V_NAMESPACE] = "Namespace", [V_MACRO] = "Macro",
        [V_LOOP] = "LoopContext", [V_METHOD] = "method",   [V_FUNCTION] = "function",   [V_CYCLER] = "Cycler",
        [V_JOINER] = "Joiner"};
    if (v.type == V_VIEW) return v.v->what == 'k' ? "dict_keys" : v.v->what == 'v' ? "dict_values" : "dict_items";
    return names[v.type];
}

val v_undef_of(struct run *x, val obj, val name, enum undef_kind kind) {
    struct undef *u = jx_zalloc(x, 1, sizeof(*u));
    u->kind = kind;
    u->obj = obj;
    u->name = name;
    return (val){.type = V_UNDEF, .u = u};
}
val v_undef_name(struct run *x, val name) { return v_undef_of(x, v_none(), name, U_NAME); }
val v_undef_hint(struct run *x, const char *hint) {
    val v = v_undef_of(x, v_none(), v_none(), U_HINT);
    v.u->hint = hint;
    return v;
}

void undef_fail(struct run *x, val v) {
    const struct undef *u = v.u;
    if (u->kind == U_HINT) jx_fail(x, "%s", u->hint);
    struct maker m = maker_begin(x);
    put_repr(&m, u->name);
    int n = (int)(m.n > 200 ? 200 : m.n);
    if (u->kind == U_NAME) jx_fail(x, "%.*s is undefined", n, m.b);
    if (u->kind == U_UNSAFE)
        jx_fail(x, "access to attribute %.*s of '%s' object is unsafe.", n, m.b, type_name(u->obj));
    if (!is_str(u->name)) jx_fail(x, "%s object has no element %.*s", type_name(u->obj), n, m.b);
    jx_fail(x, "'%s object' has no attribute %.*s", type_name(u->obj), n, m.b);
}

struct list *list_new(struct run *x, uint32_t cap) {
    struct list *l = jx_zalloc(x, 1, sizeof(*l));
    l->cap = cap;
    l->v = cap ? jx_alloc(x, cap, sizeof(val)) : NULL;
    return l;
}

void list_add(struct run *x, struct list *l, val v) {
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 8;
        if (cap > JINJA_MEMORY_MAX / sizeof(val)) jx_fail_limit(x, "memory");
        l->v = jx_grow(x, l->v, l->cap * sizeof(val), cap * sizeof(val));
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

val v_list(struct list *l, uint8_t type) { return (val){.type = type, .l = l}; }

val v_pair(struct run *x, val a, val b) {
    struct list *l = list_new(x, 2);
    l->v[0] = a;
    l->v[1] = b;
    l->n = 2;
    return v_list(l, V_TUPLE);
}

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *b, uint32_t n) {
    uint64_t h = 0xcbf29ce484222325u ^ n;
    for (uint32_t i = 0; i < n; i++) h = (h ^ (uint8_t)b[i]) * 0x100000001b3u;
    return mix(h);
}

int hashable(struct run *x, val v) {
    if (v.type == V_TUPLE) {
        jx_enter(x);
        for (uint32_t i = 0; i < v.l->n; i++)
            if (!hashable(x, v.l->v[i])) return jx_leave(x), 0;
        jx_leave(x);
        jx_steps(x, v.l->n);
        return 1;
    }
    return v.type != V_LIST && v.type != V_DICT && v.type != V_VIEW;
}

/* Equal keys have equal hashes: 1, 1.0 and True are one key. */
static uint64_t hash_of(struct run *x, val v) {
    switch (v.type) {
    case V_STR:
    case V_BIG:
        jx_steps(x, v.s->n / 64);
        return hash_bytes(v.s->b, v.s->n);
    case V_INT:
    case V_BOOL:
        return mix((uint64_t)v.i);
    case V_FLOAT:
        if (v.f >= -9.2e18 && v.f <= 9.2e18 && v.f == (double)(int64_t)v.f) return mix((uint64_t)(int64_t)v.f);
        {
            uint64_t bits;
            memcpy(&bits, &v.f, sizeof(bits));
            return mix(bits);
        }
    case V_TUPLE: {
        uint64_t h = 77;
        jx_enter(x);
        for (uint32_t i = 0; i < v.l->n; i++) h = mix(h * 31 + hash_of(x, v.l->v[i]));
        jx_leave(x);
        return h;
    }
    case V_NONE:
    case V_UNDEF:
        return mix(v.type);
    case V_RANGE:
        return mix((uint64_t)v.r->n);
    default:
        return mix((uint64_t)(uintptr_t)v.d);
    }
}

struct dict *dict_new(struct run *x) {
    return jx_zalloc(x, 1, sizeof(struct dict));
}

static void dict_index(struct run *x, struct dict *d) {
    uint32_t slots = d->slots ? d->slots * 2 : 16;
    d->index = jx_zalloc(x, slots, sizeof(*d->index));
    d->slots = slots;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t at = (uint32_t)d->e[i].hash & (slots - 1);
        while (d->index[at]) at = (at + 1) & (slots - 1);
        d->index[at] = i + 1;
    }
}

static struct entry *dict_entry(struct run *x, const struct dict *d, val key, uint64_t hash) {
    if (!d->slots) return NULL;
    for (uint32_t at = (uint32_t)hash & (d->slots - 1); d->index[at]; at = (at + 1) & (d->slots - 1)) {
        struct entry *e = &d->e[d->index[at] - 1];
        jx_steps(x, 1);
        if (e->hash == hash && equal(x, e->key, key)) return e;
    }
    return NULL;
}

void dict_set(struct run *x, struct dict *d, val key, val value) {
    if (!hashable(x, key)) jx_fail(x, "unhashable type: '%s'", type_name(key));
    uint64_t hash = hash_of(x, key);
    struct entry *e = dict_entry(x, d, key, hash);
    if (e) {
        e->value = value;
        return;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 8;
        if (cap > JINJA_MEMORY_MAX / sizeof(struct entry)) jx_fail_limit(x, "memory");
        d->e = jx_grow(x, d->e, d->cap * sizeof(*d->e), cap * sizeof(*d->e));
        d->cap = cap;
    }
    if ((uint64_t)(d->n + 1) * 2 > d->slots) dict_index(x, d);
    d->e[d->n] = (struct entry){.key = key, .value = value, .hash = hash};
    uint32_t at = (uint32_t)hash & (d->slots - 1);
    while (d->index[at]) at = (at + 1) & (d->slots - 1);
    d->index[at] = ++d->n;
}

int dict_get(struct run *x, const struct dict *d, val key, val *out) {
    if (!hashable(x, key)) jx_fail(x, "unhashable type: '%s'", type_name(key));
    struct entry *e = d->n ? dict_entry(x, d, key, hash_of(x, key)) : NULL;
    if (e) *out = e->value;
    return e != NULL;
}

int dict_get_bytes(const struct dict *d, const char *b, uint32_t n, val *out) {
    if (!d->slots) return 0;
    uint64_t hash = hash_bytes(b, n);
    for (uint32_t at = (uint32_t)hash & (d->slots - 1); d->index[at]; at = (at + 1) & (d->slots - 1)) {
        const struct entry *e = &d->e[d->index[at] - 1];
        if (e->hash == hash && is_str(e->key) && e->key.s->n == n && !memcmp(e->key.s->b, b, n)) {
            *out = e->value;
            return 1;
        }
    }
    return 0;
}

int has_length(val v) {
    switch (v.type) {
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_LOOP:
    case V_UNDEF:
        return 1;
    default:
        return 0;
    }
}

int64_t length(struct run *x, val v) {
    switch (v.type) {
    case V_STR:
        if (v.s->chars == UINT32_MAX) jx_steps(x, v.s->n / 64);
        return str_chars(v.s);
    case V_LIST:
    case V_TUPLE:
        return v.l->n;
    case V_DICT:
        return v.d->n;
    case V_RANGE:
        return v.r->n;
    case V_VIEW:
        return v.v->dict.d->n;
    case V_UNDEF:
        return 0;
    case V_LOOP:
        return loop_length(x, v.loop);
    default:
        jx_fail(x, "object of type '%s' has no len()", type_name(v));
    }
}

int truth(struct run *x, val v) {
    switch (v.type) {
    case V_UNDEF:
    case V_NONE:
    case V_MISSING:
        return 0;
    case V_BOOL:
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->n > 0;
    default:
        return has_length(v) ? length(x, v) > 0 : 1;
    }
}

static int equal_lists(struct run *x, const struct list *a, const struct list *b) {
    if (a->n != b->n) return 0;
    if (a == b) return 1;
    jx_enter(x);
    int is = 1;
    for (uint32_t i = 0; i < a->n && is; i++) is = equal(x, a->v[i], b->v[i]);
    jx_leave(x);
    return is;
}

static int equal_dicts(struct run *x, const struct dict *a, const struct dict *b) {
    if (a->n != b->n) return 0;
    jx_enter(x);
    int is = 1;
    for (uint32_t i = 0; i < a->n && is; i++) {
        val other;
        is = dict_get(x, b, a->e[i].key, &other) && equal(x, a->e[i].value, other);
    }
    jx_leave(x);
    return is;
}

static int equal_views(struct run *x, const struct view *a, const struct view *b) {
    if (a == b) return 1;
    if (a->what == 'v' || b->what == 'v' || a->what != b->what || a->dict.d->n != b->dict.d->n) return 0;
    if (a->what == 'i') return equal_dicts(x, a->dict.d, b->dict.d);
    for (uint32_t i = 0; i < a->dict.d->n; i++) {
        val other;
        if (!dict_get(x, b->dict.d, a->dict.d->e[i].key, &other)) return 0;
    }
    return 1;
}

static int equal_int_float(int64_t i, double f) {
    return f >= -9223372036854775808.0 && f < 9223372036854775808.0 && (int64_t)f == i && (double)(int64_t)f == f;
}

int equal(struct run *x, val a, val b) {
    jx_steps(x, 1);
    if (is_integer(a) && is_integer(b)) return a.i == b.i;
    if (is_number(a) && is_number(b)) {
        if (a.type == V_FLOAT && b.type == V_FLOAT) return a.f == b.f;
        return a.type == V_FLOAT ? equal_int_float(b.i, a.f) : equal_int_float(a.i, b.f);
    }
    if (a.type != b.type) return 0;
    switch (a.type) {
    case V_NONE:
    case V_MISSING:
    case V_UNDEF:
        return 1;
    case V_STR:
    case V_BIG:
        jx_steps(x, a.s->n / 64);
        return str_equal(a.s, b.s);
    case V_LIST:
    case V_TUPLE:
        return equal_lists(x, a.l, b.l);
    case V_DICT:
        return a.d == b.d || equal_dicts(x, a.d, b.d);
    case V_RANGE:
        return a.r->n == b.r->n && (!a.r->n || (a.r->start == b.r->start && (a.r->n == 1 || a.r->step == b.r->step)));
    case V_VIEW:
        return equal_views(x, a.v, b.v);
    case V_METHOD:
        return a.method->def == b.method->def && same(a.method->self, b.method->self);
    default:
        return a.d == b.d;
    }
}

int same(val a, val b) {
    if (a.type != b.type) return 0;
    switch (a.type) {
    case V_NONE:
        return 1;
    case V_BOOL:
    case V_INT:
        return a.i == b.i;
    case V_FLOAT:
        return a.f == b.f;
    case V_STR:
        return a.s == b.s || str_equal(a.s, b.s);
    default:
        return a.d == b.d;
    }
}

static int order(double a, double b) { return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2; }

static int order_numbers(val a, val b) {
    if (is_integer(a) && is_integer(b)) return a.i < b.i ? -1 : a.i > b.i;
    if (a.type == V_FLOAT && b.type == V_FLOAT) return order(a.f, b.f);
    if (a.type == V_FLOAT) {
        int r = order_numbers(b, a);
        return r == 2 ? 2 : -r;
    }
    /* An int and a float: exactly, where a double cannot hold the int. */
    if (b.f != b.f) return 2;
    if (b.f >= 9223372036854775808.0) return -1;
    if (b.f < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)b.f;
    if (a.i != whole) return a.i < whole ? -1 : 1;
    return order((double)whole, b.f);
}

int compare(struct run *x, val a, val b, const char *op) {
    jx_steps(x, 1);
    need_defined(x, a);
    need_defined(x, b);
    if (is_number(a) && is_number(b)) return order_numbers(a, b);
    if (is_str(a) && is_str(b)) {
        jx_steps(x, (a.s->n < b.s->n ? a.s->n : b.s->n) / 64);
        return str_compare(a.s, b.s);
    }
    if (is_sequence(a) && a.type == b.type) {
        jx_enter(x);
        int r = 0;
        uint32_t i = 0, n = a.l->n < b.l->n ? a.l->n : b.l->n;
        while (i < n && equal(x, a.l->v[i], b.l->v[i])) i++;
        r = i < n ? compare(x, a.l->v[i], b.l->v[i], op) : a.l->n < b.l->n ? -1 : a.l->n > b.l->n;
        jx_leave(x);
        return r;
    }
    jx_fail(x, "'%s' not supported between instances of '%s' and '%s'", op, type_name(a), type_name(b));
}

int contains(struct run *x, val container, val item) {
    val out;
    switch (container.type) {
    case V_STR:
        if (!is_str(item)) jx_fail(x, "'in <string>' requires string as left operand, not %s", type_name(item));
        return str_find(x, container.s, item.s, 0, container.s->n, 0) >= 0;
    case V_DICT:
        return dict_get(x, container.d, item, &out);
    case V_VIEW:
        if (container.v->what == 'k') return dict_get(x, container.v->dict.d, item, &out);
        break;
    case V_NAMESPACE:
        jx_fail(x, "argument of type 'Namespace' is not iterable");
    default:
        break;
    }
    struct iter it;
    iter_begin(x, &it, container);
    while (iter_next(x, &it, &out))
        if (equal(x, out, item)) return 1;
    return 0;
}

int64_t need_int(struct run *x, val v, const char *what) {
    need_defined(x, v);
    if (!is_integer(v)) jx_fail(x, "%s: '%s' object cannot be interpreted as an integer", what, type_name(v));
    return v.i;
}
