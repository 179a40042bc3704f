/* Statements carried out: loops, conditions, assignments, blocks, macros. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

/* ---- Assignment ---- */

static void check_namespaces(struct run *x, struct frame *f, const struct node *t) {
    if (t->kind == N_TUPLE) {
        for (uint32_t i = 0; i < t->n; i++) check_namespaces(x, f, t->list[i]);
    } else if (t->kind == N_NSREF && slot_of(f, t->at)->type != V_NAMESPACE) {
        jx_fail(x, "cannot assign attribute on non-namespace object");
    }
}

void assign(struct run *x, struct frame *f, const struct node *t, val v) {
    if (t->kind == N_NAME) {
        *slot_of(f, t->at) = v;
    } else if (t->kind == N_NSREF) {
        dict_set(x, slot_of(f, t->at)->d, t->value, v);
    } else {
        struct list *l = list_from(x, v);
        if (l->n != t->n)
            jx_fail(x,
                    l->n > t->n ? "too many values to unpack (expected %u)"
                                : "not enough values to unpack (expected %u)",
                    t->n);
        for (uint32_t i = 0; i < t->n; i++) assign(x, f, t->list[i], l->v[i]);
    }
}

/* ---- Loops ---- */

static int test_passes(struct run *x, struct loop *l, val item) {
    const struct node *n = l->node;
    if (!l->test_frame) {
        l->test_frame = frame_new(x, n->slots2, l->frame);
        scope_enter(x, l->test_frame, &n->scope2);
    }
    assign(x, l->test_frame, n->d, item);
    return truth(x, eval(x, l->test_frame, n->c));
}

static int loop_fetch(struct run *x, struct loop *l, val *out) {
    while (iter_next(x, &l->it, out))
        if (!l->tested || test_passes(x, l, *out)) return 1;
    return 0;
}

int loop_next(struct run *x, struct loop *l, val *out) {
    if (l->has_after) {
        *out = l->after;
        l->has_after = 0;
    } else if (!loop_fetch(x, l, out)) {
        return 0;
    }
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return 1;
}

static int loop_peek(struct run *x, struct loop *l) {
    if (!l->has_after && loop_fetch(x, l, &l->after)) l->has_after = 1;
    return l->has_after;
}

int64_t loop_length(struct run *x, struct loop *l) {
    if (l->length >= 0) return l->length;
    if (!l->tested && has_length(l->it.source) && l->it.source.type != V_LOOP)
        return l->length = length(x, l->it.source);
    struct list *rest = list_new(x, 0);
    val item;
    while (loop_fetch(x, l, &item)) list_add(x, rest, item);
    l->tested = 0;
    iter_begin(x, &l->it, v_list(rest, V_LIST));
    return l->length = rest->n + l->index0 + 1 + l->has_after;
}

val loop_attribute(struct run *x, val v, const struct str *name, int *found) {
    struct loop *l = v.loop;
    *found = 1;
    if (str_is(name, "index")) return v_int(l->index0 + 1);
    if (str_is(name, "index0")) return v_int(l->index0);
    if (str_is(name, "first")) return v_bool(l->index0 == 0);
    if (str_is(name, "last")) return v_bool(!loop_peek(x, l));
    if (str_is(name, "length")) return v_int(loop_length(x, l));
    if (str_is(name, "revindex")) return v_int(loop_length(x, l) - l->index0);
    if (str_is(name, "revindex0")) return v_int(loop_length(x, l) - l->index0 - 1);
    if (str_is(name, "depth")) return v_int(l->depth0 + 1);
    if (str_is(name, "depth0")) return v_int(l->depth0);
    if (str_is(name, "previtem")) return l->index0 == 0 ? v_undef_hint(x, "there is no previous item") : l->before;
    if (str_is(name, "nextitem")) return loop_peek(x, l) ? l->after : v_undef_hint(x, "there is no next item");
    *found = 0;
    return v;
}

/* jinja2 runs the else branch unless one turn came to the end of the body: break and continue do not. */
void for_render(struct run *x, const struct node *n, struct frame *f, val source, int64_t depth0, struct maker *out,
                enum flow *flow) {
    struct frame *g = n->flag ? frame_new(x, n->slots, f) : f;
    struct loop *l = jx_zalloc(x, 1, sizeof(*l));
    val item;
    int completed = 0;
    l->node = n;
    l->frame = f;
    l->tested = n->c != NULL;
    l->index0 = -1;
    l->length = -1;
    l->depth0 = depth0;
    iter_begin(x, &l->it, source);
    while (loop_next(x, l, &item)) {
        jx_steps(x, 3);
        if (n->special & USES_LOOP) *slot_of(g, n->loop) = (val){.type = V_LOOP, .loop = l};
        assign(x, g, n->a, item);
        scope_enter(x, g, &n->scope);
        enum flow body = exec_body(x, g, n->body, n->n_body, out);
        if (body == FLOW_BREAK) break;
        if (body == FLOW_ON) completed = 1;
    }
    scope_leave(g, &n->scope);
    *flow = FLOW_ON;
    if (!completed && n->n_orelse) {
        scope_enter(x, g, &n->scope3);
        *flow = exec_body(x, g, n->orelse, n->n_orelse, out);
        scope_leave(g, &n->scope3);
    }
}

val loop_call(struct run *x, struct loop *l, const struct args *a) {
    val source;
    enum flow flow;
    struct maker out = maker_begin(x);
    bind(x, "loop", a, "iterable", &source, 1, 1);
    if (!l->node->flag) jx_fail(x, "The loop must have the 'recursive' marker to be called recursively.");
    if (++x->calls > JINJA_DEPTH_MAX) jx_fail_limit(x, "recursion");
    for_render(x, l->node, l->frame, source, l->depth0 + 1, &out, &flow);
    x->calls--;
    return maker_end(&out);
}

/* ---- Macros ---- */

static val macro_new(struct run *x, const struct node *n, struct frame *f) {
    struct macro *m = jx_alloc(x, 1, sizeof(*m));
    m->node = n;
    m->outer = f;
    m->name = n->name ? (val){.type = V_STR, .s = n->name->s} : v_none();
    return (val){.type = V_MACRO, .m = m};
}

val macro_attribute(struct run *x, val v, const struct str *name, int *found) {
    const struct node *n = v.m->node;
    *found = 1;
    if (str_is(name, "name")) return v.m->name;
    if (str_is(name, "catch_kwargs")) return v_bool(n->special & USES_KWARGS);
    if (str_is(name, "catch_varargs")) return v_bool(n->special & USES_VARARGS);
    if (str_is(name, "caller")) return v_bool(n->special & USES_CALLER);
    if (str_is(name, "arguments")) {
        struct list *l = list_new(x, n->n);
        for (uint32_t i = 0; i < n->n; i++) list_add(x, l, (val){.type = V_STR, .s = n->list[i]->name->s});
        return v_list(l, V_TUPLE);
    }
    *found = 0;
    return v;
}

static int take_keyword(const struct args *a, uint8_t *taken, const char *b, size_t n, val *out) {
    for (uint32_t k = 0; k < a->n_kw; k++) {
        if (taken[k] || a->kw[k].name->n != n || memcmp(a->kw[k].name->b, b, n)) continue;
        taken[k] = 1;
        *out = a->kw[k].value;
        return 1;
    }
    return 0;
}

static void macro_keywords(struct run *x, struct macro *m, struct frame *f, const struct args *a,
                           const uint8_t *taken) {
    struct dict *rest = dict_new(x);
    for (uint32_t k = 0; k < a->n_kw; k++) {
        if (taken[k]) continue;
        if (!(m->node->special & USES_KWARGS))
            jx_fail(x, "macro takes no keyword argument '%.*s'", (int)(a->kw[k].name->n > 64 ? 64 : a->kw[k].name->n),
                    a->kw[k].name->b);
        dict_set(x, rest, (val){.type = V_STR, .s = (struct str *)a->kw[k].name}, a->kw[k].value);
    }
    if (m->node->special & USES_KWARGS) *slot_of(f, m->node->kwargs) = (val){.type = V_DICT, .d = rest};
}

/* Arguments into the macro's frame, as jinja2's Macro object does it. */
static void macro_bind(struct run *x, struct macro *m, struct frame *f, const struct args *a) {
    const struct node *n = m->node;
    uint8_t *taken = jx_zalloc(x, a->n_kw + 1, 1);
    int own_caller = 0;
    for (uint32_t i = 0; i < n->n; i++) {
        val *slot = slot_of(f, n->list[i]->at);
        const struct str *name = n->list[i]->name->s;
        own_caller |= str_is(name, "caller");
        if (i < a->n)
            *slot = a->v[i];
        else
            take_keyword(a, taken, name->b, name->n, slot);
    }
    if ((n->special & USES_CALLER) && !own_caller) {
        val caller;
        if (!take_keyword(a, taken, "caller", 6, &caller) || caller.type == V_NONE)
            caller = v_undef_hint(x, "No caller defined");
        *slot_of(f, n->caller) = caller;
    }
    macro_keywords(x, m, f, a, taken);
    if (n->special & USES_VARARGS) {
        struct list *l = list_new(x, 0);
        for (uint32_t i = n->n; i < a->n; i++) list_add(x, l, a->v[i]);
        *slot_of(f, n->varargs) = v_list(l, V_TUPLE);
    } else if (a->n > n->n) {
        jx_fail(x, "macro takes not more than %u argument(s)", n->n);
    }
}

val macro_call(struct run *x, struct macro *m, const struct args *a) {
    const struct node *n = m->node;
    struct maker out = maker_begin(x);
    if (++x->calls > JINJA_DEPTH_MAX) jx_fail_limit(x, "recursion");
    struct frame *f = frame_new(x, n->slots, m->outer);
    macro_bind(x, m, f, a);
    scope_enter(x, f, &n->scope);
    for (uint32_t i = 0; i < n->n; i++) {
        val *slot = slot_of(f, n->list[i]->at);
        uint32_t first = n->n - n->n2;
        if (slot->type != V_MISSING) continue;
        val v = i < first ? v_undef_hint(x, "a parameter was not provided") : eval(x, f, n->list2[i - first]);
        *slot_of(f, n->list[i]->at) = v;
    }
    exec_body(x, f, n->body, n->n_body, &out);
    x->calls--;
    return maker_end(&out);
}

/* jinja2 joins what blocks give without making texts of it. */
static void put_text(struct maker *out, val v) {
    if (!is_str(v)) jx_fail(out->x, "expected str instance, %s found", type_name(v));
    maker_str(out, v.s);
}

static void exec_call_block(struct run *x, struct frame *f, const struct node *n, struct maker *out) {
    val caller = macro_new(x, n, f);
    struct args a = {0};
    if (!n->a) { /* generation */
        put_str(out, macro_call(x, caller.m, &a));
        return;
    }
    val callee = eval(x, f, n->a->a);
    args_eval(x, f, n->a, &a, &caller);
    x->line = n->line;
    put_text(out, call_value(x, callee, &a));
}

/* ---- Blocks ---- */

/* A chain of filters over what a block rendered. */
static val filtered(struct run *x, struct frame *f, const struct node *n, val input) {
    struct args a;
    if (!n) return input;
    val self = filtered(x, f, n->a, input);
    args_eval(x, f, n, &a, NULL);
    x->line = n->line;
    return node_filter(x, n)->fn(x, self, &a); // cppcheck-suppress returnDanglingLifetime
}

static enum flow exec_captured(struct run *x, struct frame *f, const struct node *n, struct maker *out) {
    struct maker inner = maker_begin(x);
    scope_enter(x, f, &n->scope);
    enum flow flow = exec_body(x, f, n->body, n->n_body, &inner);
    if (flow == FLOW_ON) {
        val v = filtered(x, f, n->b, maker_end(&inner));
        if (n->kind == N_FILTERBLOCK) {
            put_text(out, v);
        } else {
            check_namespaces(x, f, n->a);
            assign(x, f, n->a, v);
        }
    }
    scope_leave(f, &n->scope);
    return flow;
}

static enum flow exec_with(struct run *x, struct frame *f, const struct node *n, struct maker *out) {
    scope_enter(x, f, &n->scope);
    for (uint32_t i = 0; i < n->n; i++) assign(x, f, n->list[i], eval(x, f, n->list2[i]));
    enum flow flow = exec_body(x, f, n->body, n->n_body, out);
    scope_leave(f, &n->scope);
    return flow;
}

static enum flow exec_if(struct run *x, struct frame *f, const struct node *n, struct maker *out) {
    if (truth(x, eval(x, f, n->a))) return exec_body(x, f, n->body, n->n_body, out);
    for (uint32_t i = 0; i < n->n; i++)
        if (truth(x, eval(x, f, n->list[i]->a))) return exec_body(x, f, n->list[i]->body, n->list[i]->n_body, out);
    return exec_body(x, f, n->orelse, n->n_orelse, out);
}

static enum flow exec_statement(struct run *x, struct frame *f, const struct node *n, struct maker *out) {
    enum flow flow = FLOW_ON;
    switch (n->kind) {
    case N_DATA:
        maker_str(out, n->value.s);
        break;
    case N_OUTPUT:
        for (uint32_t i = 0; i < n->n; i++) put_str(out, eval(x, f, n->list[i]));
        break;
    case N_FOR:
        for_render(x, n, f, eval(x, f, n->b), 0, out, &flow);
        break;
    case N_IF:
        return exec_if(x, f, n, out);
    case N_SET: {
        check_namespaces(x, f, n->a);
        val v = eval(x, f, n->b);
        assign(x, f, n->a, v);
        break;
    }
    case N_MACRO:
        *slot_of(f, n->at) = macro_new(x, n, f);
        break;
    case N_CALLBLOCK:
        exec_call_block(x, f, n, out);
        break;
    case N_SETBLOCK:
    case N_FILTERBLOCK:
        return exec_captured(x, f, n, out);
    case N_WITH:
        return exec_with(x, f, n, out);
    case N_BLOCK: {
        struct frame *g = frame_new(x, n->slots, f);
        scope_enter(x, g, &n->scope);
        exec_body(x, g, n->body, n->n_body, out);
        break;
    }
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        jx_fail(x, "no loader for this environment specified");
    }
    return flow;
}

enum flow exec_body(struct run *x, struct frame *f, struct node *const *body, uint32_t n, struct maker *out) {
    enum flow flow = FLOW_ON;
    jx_enter(x);
    for (uint32_t i = 0; i < n && flow == FLOW_ON; i++) {
        jx_steps(x, 1);
        x->line = body[i]->line;
        flow = exec_statement(x, f, body[i], out);
    }
    jx_leave(x);
    return flow;
}
