/* Expressions, by recursive descent with Jinja's levels of precedence. The tree's height is bounded, also where loops
 * and not recursion build it. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

struct node *node_new(struct parser *p, enum node_kind kind, uint32_t line) {
    struct node *n = jx_zalloc(p->x, 1, sizeof(*n));
    n->kind = (uint8_t)kind;
    n->line = line;
    n->height = 1;
    return n;
}

void parse_fail(struct parser *p, const char *message) {
    p->x->line = p->t->line;
    jx_fail(p->x, "%s", message);
}

static _Noreturn void too_deep(struct parser *p) {
    p->x->line = p->t->line;
    jx_fail_limit(p->x, "nesting");
}

void node_height(struct parser *p, struct node *n, const struct node *child) {
    if (!child) return;
    if (child->height >= 2 * JINJA_DEPTH_MAX) too_deep(p);
    if (n->height <= child->height) n->height = child->height + 1;
}

void parse_enter(struct parser *p) {
    if (++p->depth > JINJA_DEPTH_MAX) too_deep(p);
}

void nodes_add(struct run *x, struct nodes *l, struct node *n) {
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        l->v = jx_grow(x, l->v, l->cap * sizeof(*l->v), cap * sizeof(*l->v));
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

int at_name(const struct parser *p, const char *name) { return p->t->kind == T_NAME && str_is(p->t->name->s, name); }

int skip_name(struct parser *p, const char *name) {
    if (!at_name(p, name)) return 0;
    p->t++;
    return 1;
}

int skip_kind(struct parser *p, enum token_kind kind) {
    if (p->t->kind != kind) return 0;
    p->t++;
    return 1;
}

void expect_kind(struct parser *p, enum token_kind kind, const char *what) {
    if (p->t->kind != kind) {
        p->x->line = p->t->line;
        jx_fail(p->x, "expected %s", what);
    }
    p->t++;
}

static struct node *unary(struct parser *p, enum node_kind kind, struct node *a, uint32_t line) {
    struct node *n = node_new(p, kind, line);
    n->a = a;
    node_height(p, n, a);
    return n;
}

static struct node *binary(struct parser *p, enum node_kind kind, int op, struct node *a, struct node *b,
                           uint32_t line) {
    struct node *n = unary(p, kind, a, line);
    n->op = (uint8_t)op;
    n->b = b;
    node_height(p, n, b);
    return n;
}

static void take_list(struct parser *p, struct node *n, struct nodes *l) {
    n->list = l->v;
    n->n = l->n;
    for (uint32_t i = 0; i < l->n; i++) node_height(p, n, l->v[i]);
}

/* ---- Calls, filters, tests ---- */

static void parse_arguments(struct parser *p, struct node *call) {
    struct nodes args = {0};
    uint32_t cap = 0, comma = 0;
    expect_kind(p, T_LPAREN, "'('");
    while (p->t->kind != T_RPAREN) {
        if (comma) {
            expect_kind(p, T_COMMA, "','");
            if (p->t->kind == T_RPAREN) break;
        }
        comma = 1;
        if (p->t->kind == T_MUL) {
            if (call->b || call->c) parse_fail(p, "invalid syntax for function call expression");
            p->t++;
            call->b = parse_expression(p, 1);
            node_height(p, call, call->b);
        } else if (p->t->kind == T_POW) {
            if (call->c) parse_fail(p, "invalid syntax for function call expression");
            p->t++;
            call->c = parse_expression(p, 1);
            node_height(p, call, call->c);
        } else if (p->t->kind == T_NAME && p->t[1].kind == T_ASSIGN) {
            if (call->c) parse_fail(p, "invalid syntax for function call expression");
            if (call->n_kw == cap) {
                cap = cap ? cap * 2 : 4;
                call->kw = jx_grow(p->x, call->kw, call->n_kw * sizeof(*call->kw), cap * sizeof(*call->kw));
            }
            const struct name *name = p->t->name;
            for (uint32_t i = 0; i < call->n_kw; i++)
                if (call->kw[i].name == name) parse_fail(p, "keyword argument repeated");
            if (call->n_kw >= 256) parse_fail(p, "too many keyword arguments");
            p->t += 2;
            struct node *value = parse_expression(p, 1);
            call->kw[call->n_kw++] = (struct keyword){name, value};
            node_height(p, call, value);
        } else {
            if (call->b || call->c || call->n_kw) parse_fail(p, "invalid syntax for function call expression");
            nodes_add(p->x, &args, parse_expression(p, 1));
        }
    }
    p->t++;
    take_list(p, call, &args);
}

static struct node *parse_call(struct parser *p, struct node *callee) {
    struct node *n = unary(p, N_CALL, callee, p->t->line);
    parse_arguments(p, n);
    return n;
}

/* A name that may have dots. */
static val dotted_name(struct parser *p) {
    if (p->t->kind != T_NAME) parse_fail(p, "expected a name");
    val name = {.type = V_STR, .s = p->t->name->s};
    p->t++;
    while (skip_kind(p, T_DOT)) {
        if (p->t->kind != T_NAME) parse_fail(p, "expected a name");
        name = v_concat(p->x, v_concat(p->x, name, v_text(p->x, ".")), (val){.type = V_STR, .s = p->t->name->s});
        p->t++;
    }
    return name;
}

struct node *parse_filter(struct parser *p, struct node *node, int inline_start) {
    while (p->t->kind == T_PIPE || inline_start) {
        if (!inline_start) p->t++;
        inline_start = 0;
        struct node *n = unary(p, N_FILTER, node, p->t->line);
        n->value = dotted_name(p);
        n->known = filter_find(n->value.s->b, n->value.s->n);
        if (p->t->kind == T_LPAREN) parse_arguments(p, n);
        node = n;
    }
    return node;
}

static struct node *parse_primary(struct parser *p, int namespaces);
static struct node *parse_postfix(struct parser *p, struct node *node);

static struct node *parse_test(struct parser *p, struct node *node) {
    uint32_t line = p->t->line;
    p->t++;
    int negated = skip_name(p, "not");
    struct node *n = unary(p, N_TEST, node, line);
    n->value = dotted_name(p);
    n->known = test_find(n->value.s->b, n->value.s->n);
    switch (p->t->kind) {
    case T_LPAREN:
        parse_arguments(p, n);
        break;
    case T_NAME:
        if (at_name(p, "else") || at_name(p, "or") || at_name(p, "and")) break;
        if (at_name(p, "is")) parse_fail(p, "You cannot chain multiple tests with is");
        /* fall through */
    case T_STRING:
    case T_INTEGER:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE: {
        struct nodes args = {0};
        nodes_add(p->x, &args, parse_postfix(p, parse_primary(p, 0)));
        take_list(p, n, &args);
        break;
    }
    default:
        break;
    }
    return negated ? unary(p, N_NOT, n, line) : n;
}

/* ---- Primaries ---- */

static struct node *constant(struct parser *p, val v, uint32_t line) {
    struct node *n = node_new(p, N_CONST, line);
    n->value = v;
    return n;
}

static struct node *parse_name(struct parser *p, int namespaces) {
    const struct token *t = p->t++;
    const struct str *s = t->name->s;
    if (str_is(s, "true") || str_is(s, "True")) return constant(p, v_bool(1), t->line);
    if (str_is(s, "false") || str_is(s, "False")) return constant(p, v_bool(0), t->line);
    if (str_is(s, "none") || str_is(s, "None")) return constant(p, v_none(), t->line);
    struct node *n = node_new(p, N_NAME, t->line);
    n->name = t->name;
    if (namespaces && skip_kind(p, T_DOT)) {
        if (p->t->kind != T_NAME) parse_fail(p, "expected a name");
        n->kind = N_NSREF;
        n->value = (val){.type = V_STR, .s = p->t->name->s};
        p->t++;
    }
    return n;
}

static struct node *parse_list(struct parser *p) {
    struct node *n = node_new(p, N_LIST, p->t->line);
    struct nodes items = {0};
    p->t++;
    while (p->t->kind != T_RBRACKET) {
        if (items.n) expect_kind(p, T_COMMA, "','");
        if (p->t->kind == T_RBRACKET) break;
        nodes_add(p->x, &items, parse_expression(p, 1));
    }
    p->t++;
    take_list(p, n, &items);
    return n;
}

static struct node *parse_dict(struct parser *p) {
    struct node *n = node_new(p, N_DICT, p->t->line);
    struct nodes items = {0};
    p->t++;
    while (p->t->kind != T_RBRACE) {
        if (items.n) expect_kind(p, T_COMMA, "','");
        if (p->t->kind == T_RBRACE) break;
        nodes_add(p->x, &items, parse_expression(p, 1));
        expect_kind(p, T_COLON, "':'");
        nodes_add(p->x, &items, parse_expression(p, 1));
    }
    p->t++;
    take_list(p, n, &items);
    return n;
}

static struct node *parse_strings(struct parser *p) {
    uint32_t line = p->t->line;
    struct maker m = maker_begin(p->x);
    if (p->t[1].kind != T_STRING) return constant(p, (p->t++)->value, line);
    while (p->t->kind == T_STRING) maker_str(&m, (p->t++)->value.s);
    return constant(p, maker_end(&m), line);
}

static struct node *parse_primary(struct parser *p, int namespaces) {
    struct node *n;
    switch (p->t->kind) {
    case T_NAME:
        return parse_name(p, namespaces);
    case T_STRING:
        return parse_strings(p);
    case T_INTEGER:
    case T_FLOAT:
        n = constant(p, p->t->value, p->t->line);
        return p->t++, n;
    case T_LPAREN:
        p->t++;
        n = parse_tuple(p, 0, 1, NULL, 1, 0);
        expect_kind(p, T_RPAREN, "')'");
        return n;
    case T_LBRACKET:
        return parse_list(p);
    case T_LBRACE:
        return parse_dict(p);
    default:
        parse_fail(p, "unexpected token, expected an expression");
    }
}

struct node *parse_tuple(struct parser *p, int simplified, int conditional, const char *end, int parentheses,
                         int namespaces) {
    struct nodes items = {0};
    uint32_t line = p->t->line;
    int is_tuple = 0;
    for (;;) {
        if (items.n) expect_kind(p, T_COMMA, "','");
        if (p->t->kind == T_VARIABLE_END || p->t->kind == T_BLOCK_END || p->t->kind == T_RPAREN ||
            (end && at_name(p, end)))
            break;
        nodes_add(p->x, &items, simplified ? parse_primary(p, namespaces) : parse_expression(p, conditional));
        if (p->t->kind != T_COMMA) break;
        is_tuple = 1;
    }
    if (!is_tuple) {
        if (items.n) return items.v[0];
        if (!parentheses) parse_fail(p, "Expected an expression");
    }
    struct node *n = node_new(p, N_TUPLE, line);
    take_list(p, n, &items);
    return n;
}

/* ---- Postfixes ---- */

static struct node *parse_subscribed(struct parser *p) {
    struct node *parts[3] = {0};
    uint32_t line = p->t->line;
    if (p->t->kind != T_COLON) {
        parts[0] = parse_expression(p, 1);
        if (p->t->kind != T_COLON) return parts[0];
    }
    p->t++;
    if (p->t->kind != T_COLON && p->t->kind != T_RBRACKET && p->t->kind != T_COMMA) parts[1] = parse_expression(p, 1);
    if (skip_kind(p, T_COLON) && p->t->kind != T_RBRACKET && p->t->kind != T_COMMA) parts[2] = parse_expression(p, 1);
    struct node *n = binary(p, N_SLICE, 0, parts[0], parts[1], line);
    n->c = parts[2];
    node_height(p, n, n->c);
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *node) {
    uint32_t line = p->t->line;
    if (skip_kind(p, T_DOT)) {
        const struct token *t = p->t++;
        struct node *n = unary(p, t->kind == T_NAME ? N_GETATTR : N_GETITEM, node, line);
        if (t->kind == T_NAME) {
            n->value = (val){.type = V_STR, .s = t->name->s};
            return n;
        }
        if (t->kind != T_INTEGER) p->t--, parse_fail(p, "expected name or number");
        n->b = constant(p, t->value, line);
        return n;
    }
    struct nodes args = {0};
    p->t++;
    while (p->t->kind != T_RBRACKET) {
        if (args.n) expect_kind(p, T_COMMA, "','");
        nodes_add(p->x, &args, parse_subscribed(p));
    }
    p->t++;
    struct node *key = args.n == 1 ? args.v[0] : node_new(p, N_TUPLE, line);
    if (args.n != 1) take_list(p, key, &args);
    for (uint32_t i = 0; args.n > 1 && i < args.n; i++)
        if (args.v[i]->kind == N_SLICE) parse_fail(p, "a slice within a tuple");
    return binary(p, N_GETITEM, 0, node, key, line);
}

static struct node *parse_postfix(struct parser *p, struct node *node) {
    for (;;) {
        if (p->t->kind == T_DOT || p->t->kind == T_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->t->kind == T_LPAREN)
            node = parse_call(p, node);
        else
            return node;
    }
}

static struct node *parse_filters(struct parser *p, struct node *node) {
    for (;;) {
        if (p->t->kind == T_PIPE)
            node = parse_filter(p, node, 0);
        else if (at_name(p, "is"))
            node = parse_test(p, node);
        else if (p->t->kind == T_LPAREN)
            node = parse_call(p, node);
        else
            return node;
    }
}

/* ---- Operators, loosest last ---- */

static struct node *parse_unary(struct parser *p, int with_filters) {
    uint32_t line = p->t->line;
    struct node *n;
    if (p->t->kind == T_SUB || p->t->kind == T_ADD) {
        enum node_kind kind = (p->t++)->kind == T_SUB ? N_NEG : N_POS;
        parse_enter(p);
        n = unary(p, kind, parse_unary(p, 0), line);
        p->depth--;
    } else {
        n = parse_primary(p, 0);
    }
    n = parse_postfix(p, n);
    return with_filters ? parse_filters(p, n) : n;
}

static struct node *parse_pow(struct parser *p) {
    struct node *n = parse_unary(p, 1);
    uint32_t line = p->t->line;
    while (skip_kind(p, T_POW)) n = binary(p, N_BINARY, OP_POW, n, parse_unary(p, 1), line);
    return n;
}

static struct node *parse_math2(struct parser *p) {
    struct node *n = parse_pow(p);
    for (;;) {
        int op = p->t->kind == T_MUL        ? OP_MUL
                 : p->t->kind == T_DIV      ? OP_DIV
                 : p->t->kind == T_FLOORDIV ? OP_FLOORDIV
                 : p->t->kind == T_MOD      ? OP_MOD
                                            : -1;
        if (op < 0) return n;
        uint32_t line = (p->t++)->line;
        n = binary(p, N_BINARY, op, n, parse_pow(p), line);
    }
}

static struct node *parse_concat(struct parser *p) {
    struct node *first = parse_math2(p);
    if (p->t->kind != T_TILDE) return first;
    struct nodes items = {0};
    struct node *n = node_new(p, N_CONCAT, p->t->line);
    nodes_add(p->x, &items, first);
    while (skip_kind(p, T_TILDE)) nodes_add(p->x, &items, parse_math2(p));
    take_list(p, n, &items);
    return n;
}

static struct node *parse_math1(struct parser *p) {
    struct node *n = parse_concat(p);
    while (p->t->kind == T_ADD || p->t->kind == T_SUB) {
        int op = p->t->kind == T_ADD ? OP_ADD : OP_SUB;
        uint32_t line = (p->t++)->line;
        n = binary(p, N_BINARY, op, n, parse_concat(p), line);
    }
    return n;
}

static int comparison(struct parser *p) {
    static const int8_t ops[] = {
        [T_EQ] = OP_EQ, [T_NE] = OP_NE, [T_GT] = OP_GT, [T_GE] = OP_GE, [T_LT] = OP_LT, [T_LE] = OP_LE};
    if (p->t->kind >= T_EQ && p->t->kind <= T_LE) return ops[(p->t++)->kind];
    if (skip_name(p, "in")) return OP_IN;
    if (at_name(p, "not") && p->t[1].kind == T_NAME && str_is(p->t[1].name->s, "in")) return p->t += 2, OP_NOTIN;
    return -1;
}

static struct node *parse_compare(struct parser *p) {
    struct node *n = parse_math1(p), *chain = NULL;
    struct nodes items = {0};
    uint32_t line = p->t->line;
    int op;
    while ((op = comparison(p)) >= 0) {
        if (!chain) {
            chain = node_new(p, N_COMPARE, line);
            nodes_add(p->x, &items, n);
        }
        /* The operator is kept with its right side, which no other part of the tree names. */
        struct node *right = unary(p, N_COMPARE, parse_math1(p), line);
        right->op = (uint8_t)op;
        nodes_add(p->x, &items, right);
    }
    if (!chain) return n;
    take_list(p, chain, &items);
    return chain;
}

static struct node *parse_not(struct parser *p) {
    uint32_t line = p->t->line;
    if (!skip_name(p, "not")) return parse_compare(p);
    parse_enter(p);
    struct node *n = unary(p, N_NOT, parse_not(p), line);
    p->depth--;
    return n;
}

static struct node *parse_and(struct parser *p) {
    struct node *n = parse_not(p);
    uint32_t line = p->t->line;
    while (skip_name(p, "and")) n = binary(p, N_AND, 0, n, parse_not(p), line);
    return n;
}

static struct node *parse_or(struct parser *p) {
    struct node *n = parse_and(p);
    uint32_t line = p->t->line;
    while (skip_name(p, "or")) n = binary(p, N_OR, 0, n, parse_and(p), line);
    return n;
}

struct node *parse_expression(struct parser *p, int conditional) {
    parse_enter(p);
    struct node *n = parse_or(p);
    uint32_t line = p->t->line;
    while (conditional && skip_name(p, "if")) {
        struct node *test = parse_or(p);
        n = binary(p, N_COND, 0, n, test, line);
        if (skip_name(p, "else")) {
            n->c = parse_expression(p, 1);
            node_height(p, n, n->c);
        }
    }
    p->depth--;
    return n;
}
