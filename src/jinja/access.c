/* Attributes, items and slices, as the sandboxed environment gives them, and the binding of arguments. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

static const struct method_def *table_find(const struct method_def *table, const struct str *name) {
    for (; table->name; table++)
        if (str_is(name, table->name)) return table;
    return NULL;
}

static const struct method_def *method_find(val obj, const struct str *name) {
    const struct method_def *def = NULL;
    switch (obj.type) {
    case V_STR:
        def = table_find(str_methods, name);
        return def ? def : table_find(str_methods_find, name);
    case V_LIST:
        return table_find(list_methods, name);
    case V_TUPLE:
        return table_find(tuple_methods, name);
    case V_DICT:
        return table_find(dict_methods, name);
    case V_INT:
    case V_BOOL:
        return table_find(int_methods, name);
    case V_FLOAT:
        return table_find(float_methods, name);
    case V_RANGE:
        return table_find(range_methods, name);
    case V_LOOP:
        return table_find(loop_methods, name);
    case V_CYCLER:
        return table_find(cycler_methods, name);
    default:
        return NULL;
    }
}

/* Attributes that are values. */
static int plain_attribute(struct run *x, val obj, const struct str *name, val *out) {
    int found = 0;
    switch (obj.type) {
    case V_NAMESPACE:
        return dict_get_bytes(obj.d, name->b, name->n, out);
    case V_INT:
    case V_BOOL:
        if (str_is(name, "real") || str_is(name, "numerator")) return *out = v_int(obj.i), 1;
        if (str_is(name, "imag")) return *out = v_int(0), 1;
        if (str_is(name, "denominator")) return *out = v_int(1), 1;
        return 0;
    case V_FLOAT:
        if (str_is(name, "real")) return *out = obj, 1;
        if (str_is(name, "imag")) return *out = v_float(0), 1;
        return 0;
    case V_RANGE:
        if (str_is(name, "start")) return *out = v_int(obj.r->start), 1;
        if (str_is(name, "stop")) return *out = v_int(obj.r->stop), 1;
        if (str_is(name, "step")) return *out = v_int(obj.r->step), 1;
        return 0;
    case V_LOOP:
        *out = loop_attribute(x, obj, name, &found);
        return found;
    case V_MACRO:
        *out = macro_attribute(x, obj, name, &found);
        return found;
    case V_CYCLER:
        if (!str_is(name, "current")) return 0;
        *out = obj.c->items->v[obj.c->at];
        return 1;
    default:
        return 0;
    }
}

static int attribute(struct run *x, val obj, val name, val *out) {
    const struct method_def *def = method_find(obj, name.s);
    if (def && !def->fn) {
        *out = v_undef_of(x, obj, name, U_UNSAFE);
        return 1;
    }
    if (def) {
        struct method *m = jx_alloc(x, 1, sizeof(*m));
        *m = (struct method){.self = obj, .def = def};
        *out = (val){.type = V_METHOD, .method = m};
        return 1;
    }
    if (!plain_attribute(x, obj, name.s, out)) return 0;
    if (name.s->n && name.s->b[0] == '_') *out = v_undef_of(x, obj, name, U_UNSAFE);
    return 1;
}

/* What every Python object has, and what the sandbox hides of it. */
static int hidden(const struct str *name) {
    static const char *const names[] = {"__class__", "__doc__",  "__init__", "__new__", "__repr__",
                                        "__str__",   "__hash__", "__eq__",   "__dir__", "__format__"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (str_is(name, names[i])) return 1;
    return 0;
}

val get_attribute(struct run *x, val obj, val name) {
    val out;
    if (hidden(name.s)) return v_undef_of(x, obj, name, U_UNSAFE);
    need_defined(x, obj);
    if (attribute(x, obj, name, &out)) return out;
    if (obj.type == V_DICT && dict_get(x, obj.d, name, &out)) return out;
    return v_undef_of(x, obj, name, U_ATTRIBUTE);
}

static int item_at(struct run *x, val obj, int64_t i, val *out) {
    int64_t n = length(x, obj);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return 0;
    if (obj.type == V_RANGE) {
        *out = v_int(range_at(obj.r, i));
    } else if (is_sequence(obj)) {
        *out = obj.l->v[i];
    } else {
        if (obj.s->chars != obj.s->n) jx_steps(x, obj.s->n / 64);
        size_t from = str_offset(obj.s, i);
        unsigned len;
        str_char(obj.s, from, &len);
        *out = v_slice(x, obj.s, from, len);
    }
    return 1;
}

val get_item(struct run *x, val obj, val key) {
    val out;
    need_defined(x, obj);
    if (obj.type == V_DICT && hashable(x, key) && dict_get(x, obj.d, key, &out)) return out;
    if ((is_sequence(obj) || is_str(obj) || obj.type == V_RANGE) && is_integer(key) && item_at(x, obj, key.i, &out))
        return out;
    if (is_str(key) && hidden(key.s)) return v_undef_of(x, obj, key, U_UNSAFE);
    if (is_str(key) && attribute(x, obj, key, &out)) return out;
    return v_undef_of(x, obj, key, U_ATTRIBUTE);
}

/* ---- Slices ---- */

static int64_t slice_bound(struct run *x, val v, int64_t fallback, int64_t n, int64_t step) {
    if (v.type == V_NONE || v.type == V_MISSING) return fallback;
    if (!is_integer(v)) jx_fail(x, "slice indices must be integers or None or have an __index__ method");
    int64_t i = v.i, low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (i < 0) i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static val slice_str(struct run *x, struct str *s, int64_t start, int64_t n, int64_t step) {
    if (step == 1) {
        size_t from = str_offset(s, start);
        return v_slice(x, s, from, str_offset(s, start + n) - from);
    }
    /* By characters: where each begins. */
    uint32_t chars = str_chars(s), *at = jx_alloc(x, chars + 1, sizeof(*at)), k = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (((uint8_t)s->b[i] & 0xc0) != 0x80) at[k++] = i;
    at[k] = s->n;
    struct maker m = maker_begin(x);
    for (int64_t i = 0, c = start; i < n; i++, c += step) maker_part(&m, s, at[c], at[c + 1] - at[c]);
    return v_markup(x, maker_end(&m), s->markup);
}

val get_slice(struct run *x, val obj, val start_v, val stop_v, val step_v) {
    need_defined(x, obj);
    if (!is_str(obj) && !is_sequence(obj) && obj.type != V_RANGE)
        jx_fail(x, "'%s' object cannot be sliced", type_name(obj));
    int64_t n = length(x, obj), step = 1;
    if (step_v.type != V_NONE && step_v.type != V_MISSING) {
        if (!is_integer(step_v)) jx_fail(x, "slice indices must be integers or None or have an __index__ method");
        step = step_v.i;
        if (step == 0) jx_fail(x, "slice step cannot be zero");
        if (step > INT32_MAX) step = INT32_MAX;
        if (step < -INT32_MAX) step = -INT32_MAX;
    }
    int64_t start = slice_bound(x, start_v, step < 0 ? n - 1 : 0, n, step);
    int64_t stop = slice_bound(x, stop_v, step < 0 ? -1 : n, n, step);
    int64_t count = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0)
                             : (start > stop ? (start - stop - 1) / -step + 1 : 0);
    jx_steps(x, (uint64_t)count / 8);
    if (is_str(obj)) {
        if (obj.s->n != obj.s->chars) jx_steps(x, obj.s->n / 64);
        return slice_str(x, obj.s, start, count, step);
    }
    if (obj.type == V_RANGE) {
        struct range *r = jx_alloc(x, 1, sizeof(*r));
        *r = (struct range){range_at(obj.r, start), range_at(obj.r, stop), obj.r->step * step, count};
        return (val){.type = V_RANGE, .r = r};
    }
    struct list *l = list_new(x, (uint32_t)count);
    for (int64_t i = 0; i < count; i++) list_add(x, l, obj.l->v[start + i * step]);
    val v = v_list(l, obj.type);
    v.mark = obj.mark;
    return v;
}

/* ---- Paths ---- */

val get_path(struct run *x, val obj, val path, val fallback) {
    if (path.type == V_NONE) return obj;
    if (!is_str(path)) {
        obj = get_item(x, obj, path);
        return is_undef(obj) && fallback.type != V_NONE ? fallback : obj;
    }
    const struct str *s = path.s;
    for (size_t from = 0; from <= s->n;) {
        const char *dot = memchr(s->b + from, '.', s->n - from);
        size_t end = dot ? (size_t)(dot - s->b) : s->n;
        int64_t number = 0;
        int digits = end > from && end - from < 10;
        for (size_t i = from; i < end && digits; i++) {
            digits = s->b[i] >= '0' && s->b[i] <= '9';
            number = number * 10 + (s->b[i] - '0');
        }
        obj = get_item(x, obj, digits ? v_int(number) : v_slice(x, s, from, end - from));
        if (is_undef(obj) && fallback.type != V_NONE) obj = fallback;
        from = end + 1;
    }
    return obj;
}

/* ---- Arguments ---- */

static int name_at(const char *names, uint32_t at, const char **name, size_t *n) {
    for (; at; at--) {
        names = strchr(names, ',');
        if (!names) return 0;
        names++;
    }
    *name = names;
    *n = strcspn(names, ",");
    return *n > 0;
}

void bind(struct run *x, const char *who, const struct args *a, const char *names, val *out, uint32_t n,
          uint32_t required) {
    const char *name;
    size_t len;
    for (uint32_t i = 0; i < n; i++) out[i] = (val){.type = V_MISSING};
    if (a->n > n) jx_fail(x, "%s() takes at most %u arguments (%u given)", who, n, a->n);
    for (uint32_t i = 0; i < a->n; i++) out[i] = a->v[i];
    for (uint32_t k = 0; k < a->n_kw; k++) {
        const struct str *key = a->kw[k].name;
        uint32_t i = 0;
        while (i < n && (!name_at(names, i, &name, &len) || len != key->n || memcmp(name, key->b, len))) i++;
        if (i == n)
            jx_fail(x, "%s() got an unexpected keyword argument '%.*s'", who, (int)(key->n > 64 ? 64 : key->n), key->b);
        if (out[i].type != V_MISSING) jx_fail(x, "%s() got multiple values for argument", who);
        out[i] = a->kw[k].value;
    }
    for (uint32_t i = 0; i < required; i++)
        if (out[i].type == V_MISSING) jx_fail(x, "%s() missing a required argument", who);
}
