/* Expressions evaluated. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

enum { CONCAT_MAX = 16 }; /* up to so many, what is joined may grow in its place */

val *slot_of(struct frame *f, struct place p) {
    for (uint16_t i = 0; i < p.up; i++) f = f->outer;
    return &f->slots[p.slot];
}

struct frame *frame_new(struct run *x, uint32_t slots, struct frame *outer) {
    struct frame *f = jx_alloc(x, 1, sizeof(*f));
    f->slots = jx_zalloc(x, slots ? slots : 1, sizeof(val));
    f->outer = outer;
    jx_steps(x, slots / 8);
    return f;
}

val resolve(struct run *x, const struct name *name) {
    val out;
    if (dict_get_bytes(x->render->variables, name->s->b, name->s->n, &out)) return out;
    const struct function *fn = global_find(name->s->b, name->s->n);
    return fn ? (val){.type = V_FUNCTION, .fn = fn} : (val){.type = V_MISSING};
}

void scope_enter(struct run *x, struct frame *f, const struct scope *s) {
    jx_steps(x, s->n / 4);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct load *l = &s->loads[i];
        val v = {.type = V_MISSING};
        if (l->kind == LOAD_PARAMETER) continue;
        if (l->kind == LOAD_ALIAS) v = *slot_of(f, l->from);
        if (l->kind == LOAD_EXPORTED) v = x->render->root->slots[l->from.slot];
        if (l->kind == LOAD_RESOLVE || (l->kind == LOAD_EXPORTED && v.type == V_MISSING)) v = resolve(x, l->name);
        f->slots[l->slot] = v;
    }
}

void scope_leave(struct frame *f, const struct scope *s) {
    for (uint32_t i = 0; i < s->n; i++) f->slots[s->loads[i].slot] = (val){.type = V_MISSING};
}

/* ---- Arguments ---- */

static void spread_list(struct run *x, struct list *l, val v) {
    struct iter it;
    val item;
    need_defined(x, v);
    iter_begin(x, &it, v);
    while (iter_next(x, &it, &item)) list_add(x, l, item);
}

void args_eval(struct run *x, struct frame *f, const struct node *n, struct args *out, const val *caller) {
    struct list *l = list_new(x, n->n);
    for (uint32_t i = 0; i < n->n; i++) list_add(x, l, eval(x, f, n->list[i]));
    if (n->b) spread_list(x, l, eval(x, f, n->b));
    uint32_t n_kw = n->n_kw + (caller != NULL);
    val more = v_none();
    *out = (struct args){.v = l->v, .n = l->n};
    if (n_kw || n->c) {
        struct kwarg *kw = jx_alloc(x, n_kw + 1, sizeof(*kw));
        uint32_t k = 0;
        for (; k < n->n_kw; k++) kw[k] = (struct kwarg){n->kw[k].name->s, eval(x, f, n->kw[k].value)};
        if (n->c) {
            more = eval(x, f, n->c);
            need_defined(x, more);
            if (more.type != V_DICT) jx_fail(x, "argument after ** must be a mapping, not %s", type_name(more));
            struct kwarg *bigger = jx_alloc(x, n_kw + more.d->n + 1, sizeof(*kw));
            memcpy(bigger, kw, k * sizeof(*kw));
            kw = bigger;
            for (uint32_t i = 0; i < more.d->n; i++) {
                if (!is_str(more.d->e[i].key)) jx_fail(x, "keywords must be strings");
                for (uint32_t j = 0; j < n->n_kw; j++)
                    if (str_equal(kw[j].name, more.d->e[i].key.s))
                        jx_fail(x, "got multiple values for keyword argument");
                kw[k++] = (struct kwarg){more.d->e[i].key.s, more.d->e[i].value};
            }
        }
        if (caller) kw[k++] = (struct kwarg){v_text(x, "caller").s, *caller};
        out->kw = kw;
        out->n_kw = k;
    }
}

/* ---- Kinds of nodes ---- */

static val eval_list(struct run *x, struct frame *f, const struct node *n) {
    struct list *l = list_new(x, n->n);
    for (uint32_t i = 0; i < n->n; i++) list_add(x, l, eval(x, f, n->list[i]));
    return v_list(l, n->kind == N_LIST ? V_LIST : V_TUPLE);
}

static val eval_dict(struct run *x, struct frame *f, const struct node *n) {
    struct dict *d = dict_new(x);
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        val key = eval(x, f, n->list[i]);
        dict_set(x, d, key, eval(x, f, n->list[i + 1]));
    }
    return (val){.type = V_DICT, .d = d};
}

static val eval_concat(struct run *x, struct frame *f, const struct node *n) {
    if (n->n > CONCAT_MAX) {
        struct maker m = maker_begin(x);
        for (uint32_t i = 0; i < n->n; i++) put_str(&m, eval(x, f, n->list[i]));
        return maker_end(&m);
    }
    val all = v_str_of(x, eval(x, f, n->list[0]));
    for (uint32_t i = 1; i < n->n; i++) all = v_concat(x, all, v_str_of(x, eval(x, f, n->list[i])));
    return v_markup(x, all, 0);
}

static val eval_compare(struct run *x, struct frame *f, const struct node *n) {
    val a = eval(x, f, n->list[0]);
    for (uint32_t i = 1; i < n->n; i++) {
        val b = eval(x, f, n->list[i]->a);
        if (!op_compare(x, n->list[i]->op, a, b)) return v_bool(0);
        a = b;
    }
    return v_bool(1);
}

static val eval_item(struct run *x, struct frame *f, const struct node *n) {
    val obj = eval(x, f, n->a);
    if (n->b->kind != N_SLICE) return get_item(x, obj, eval(x, f, n->b));
    val start = n->b->a ? eval(x, f, n->b->a) : v_none();
    val stop = n->b->b ? eval(x, f, n->b->b) : v_none();
    val step = n->b->c ? eval(x, f, n->b->c) : v_none();
    x->line = n->line;
    return get_slice(x, obj, start, stop, step);
}

/* One that is not known is an error only where it is reached, if it stands within an if. */
static _Noreturn void unknown(struct run *x, const char *kind, const struct str *name) {
    jx_fail(x, "No %s named '%.*s' found.", kind, (int)(name->n > 64 ? 64 : name->n), name->b);
}

const struct filter *node_filter(struct run *x, const struct node *n) {
    if (!n->known) unknown(x, "filter", n->value.s);
    return n->known;
}

static const struct test *node_test(struct run *x, const struct node *n) {
    if (!n->known) unknown(x, "test", n->value.s);
    return n->known;
}

static val eval_filter(struct run *x, struct frame *f, const struct node *n) {
    struct args a;
    val self = eval(x, f, n->a);
    args_eval(x, f, n, &a, NULL);
    x->line = n->line;
    return node_filter(x, n)->fn(x, self, &a); // cppcheck-suppress returnDanglingLifetime
}

static val eval_test(struct run *x, struct frame *f, const struct node *n) {
    struct args a;
    val self = eval(x, f, n->a);
    args_eval(x, f, n, &a, NULL);
    x->line = n->line;
    return v_bool(node_test(x, n)->fn(x, self, &a));
}

static val eval_call(struct run *x, struct frame *f, const struct node *n) {
    struct args a;
    val callee = eval(x, f, n->a);
    args_eval(x, f, n, &a, NULL);
    x->line = n->line;
    return call_value(x, callee, &a);
}

static val eval_name(struct run *x, struct frame *f, const struct node *n) {
    val v = *slot_of(f, n->at);
    return v.type == V_MISSING ? v_undef_name(x, (val){.type = V_STR, .s = n->name->s}) : v;
}

static val eval_operation(struct run *x, struct frame *f, const struct node *n) {
    val a = eval(x, f, n->a), b;
    switch (n->kind) {
    case N_BINARY:
        b = eval(x, f, n->b);
        x->line = n->line;
        return op_binary(x, n->op, a, b);
    case N_AND:
        return truth(x, a) ? eval(x, f, n->b) : a;
    case N_OR:
        return truth(x, a) ? a : eval(x, f, n->b);
    case N_NOT:
        return v_bool(!truth(x, a));
    default:
        return op_negate(x, a, n->kind == N_POS);
    }
}

static val eval_kind(struct run *x, struct frame *f, const struct node *n) {
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return eval_name(x, f, n);
    case N_TUPLE:
    case N_LIST:
        return eval_list(x, f, n);
    case N_DICT:
        return eval_dict(x, f, n);
    case N_CONCAT:
        return eval_concat(x, f, n);
    case N_COMPARE:
        return eval_compare(x, f, n);
    case N_GETATTR:
        return get_attribute(x, eval(x, f, n->a), n->value);
    case N_GETITEM:
        return eval_item(x, f, n);
    case N_FILTER:
        return n->a ? eval_filter(x, f, n) : v_none();
    case N_TEST:
        return eval_test(x, f, n);
    case N_CALL:
        return eval_call(x, f, n);
    case N_COND:
        if (truth(x, eval(x, f, n->b))) return eval(x, f, n->a);
        if (n->c) return eval(x, f, n->c);
        return v_undef_hint(x, "the inline if-expression evaluated to false and no else section was defined.");
    case N_SLICE:
        jx_fail(x, "a slice outside of brackets");
    default:
        return eval_operation(x, f, n);
    }
}

val eval(struct run *x, struct frame *f, const struct node *n) {
    jx_steps(x, 1);
    jx_enter(x);
    x->line = n->line;
    val v = eval_kind(x, f, n);
    jx_leave(x);
    return v;
}
