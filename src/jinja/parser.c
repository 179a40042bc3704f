/* Statements: the tags of a template. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

struct body {
    struct node **v;
    uint32_t n;
};

static int at_end(const struct parser *p, const char *ends) {
    if (!ends || p->t->kind != T_NAME) return 0;
    for (const char *e = ends; *e;) {
        size_t n = strcspn(e, ",");
        if (p->t->name->s->n == n && !memcmp(p->t->name->s->b, e, n)) return 1;
        e += n + (e[n] == ',');
    }
    return 0;
}

static struct node *parse_statement(struct parser *p);

/* Until a tag that begins with one of `ends` (which is then the current token), or the end of the template. */
static struct body parse_body(struct parser *p, const char *ends) {
    struct nodes l = {0};
    for (;;) {
        uint32_t line = p->t->line;
        struct nodes one = {0};
        struct node *n;
        switch (p->t->kind) {
        case T_EOF:
            if (ends) parse_fail(p, "Unexpected end of template.");
            return (struct body){l.v, l.n};
        case T_DATA:
            n = node_new(p, N_DATA, line);
            n->value = (p->t++)->value;
            break;
        case T_VARIABLE_BEGIN:
            p->t++;
            n = node_new(p, N_OUTPUT, line);
            nodes_add(p->x, &one, parse_tuple(p, 0, 1, NULL, 0, 0));
            n->list = one.v;
            n->n = one.n;
            expect_kind(p, T_VARIABLE_END, "end of print statement");
            break;
        default:
            expect_kind(p, T_BLOCK_BEGIN, "a tag");
            if (at_end(p, ends)) return (struct body){l.v, l.n};
            n = parse_statement(p);
            expect_kind(p, T_BLOCK_END, "end of statement block");
        }
        nodes_add(p->x, &l, n);
    }
}

static struct body parse_block_body(struct parser *p, const char *ends) {
    skip_kind(p, T_COLON);
    expect_kind(p, T_BLOCK_END, "end of statement block");
    return parse_body(p, ends);
}

/* The body up to the one tag that ends it, which is consumed. */
static void take_body(struct parser *p, struct node *n, const char *end) {
    struct body b = parse_block_body(p, end);
    p->t++;
    n->body = b.v;
    n->n_body = b.n;
}

static int can_assign(struct parser *p, const struct node *n) {
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++)
            if (!can_assign(p, n->list[i])) return 0;
        return 1;
    }
    return n->kind == N_NAME || n->kind == N_NSREF;
}

static struct node *parse_target(struct parser *p, const char *end, int namespaces) {
    struct node *n = parse_tuple(p, 1, 1, end, 0, namespaces);
    if (!can_assign(p, n)) parse_fail(p, "can't assign to this");
    return n;
}

static struct node *parse_target_name(struct parser *p) {
    if (p->t->kind != T_NAME) parse_fail(p, "expected a name");
    struct node *n = node_new(p, N_NAME, p->t->line);
    n->name = (p->t++)->name;
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (int i = 0; i < 6; i++)
        if (str_is(n->name->s, constants[i])) parse_fail(p, "can't assign to a constant");
    return n;
}

static struct node *parse_set(struct parser *p, uint32_t line) {
    struct node *target = parse_target(p, NULL, 1);
    struct node *n = node_new(p, N_SET, line);
    n->a = target;
    if (skip_kind(p, T_ASSIGN)) {
        n->b = parse_tuple(p, 0, 1, NULL, 0, 0);
        return n;
    }
    n->kind = N_SETBLOCK;
    n->b = parse_filter(p, NULL, 0);
    take_body(p, n, "endset");
    return n;
}

static int sets_loop(const struct node *target) {
    if (target->kind == N_NAME) return str_is(target->name->s, "loop");
    for (uint32_t i = 0; target->kind == N_TUPLE && i < target->n; i++)
        if (sets_loop(target->list[i])) return 1;
    return 0;
}

static struct node *parse_for(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_FOR, line);
    const struct token *begin = p->t;
    n->a = parse_target(p, "in", 0);
    if (sets_loop(n->a)) parse_fail(p, "Can't assign to special loop variable in for-loop target");
    if (!skip_name(p, "in")) parse_fail(p, "expected 'in'");
    n->b = parse_tuple(p, 0, 0, "recursive", 0, 0);
    if (skip_name(p, "if")) {
        /* The test is a function of its own with the target's names: it gets its own copy of the target. */
        n->c = parse_expression(p, 1);
        const struct token *here = p->t;
        p->t = begin;
        n->d = parse_target(p, "in", 0);
        p->t = here;
    }
    n->flag = (uint8_t)skip_name(p, "recursive");
    p->loops++;
    struct body b = parse_block_body(p, "endfor,else");
    p->loops--;
    n->body = b.v;
    n->n_body = b.n;
    if (str_is((p->t++)->name->s, "else")) {
        int loops = p->loops;
        if (n->flag) p->loops = 0;
        b = parse_block_body(p, "endfor");
        p->loops = loops;
        p->t++;
        n->orelse = b.v;
        n->n_orelse = b.n;
    }
    return n;
}

static struct node *parse_if(struct parser *p, uint32_t line) {
    struct nodes more = {0};
    struct node *first = node_new(p, N_IF, line), *n = first;
    for (;;) {
        n->a = parse_tuple(p, 0, 0, NULL, 0, 0);
        struct body b = parse_block_body(p, "elif,else,endif");
        n->body = b.v;
        n->n_body = b.n;
        const struct str *tag = (p->t++)->name->s;
        if (str_is(tag, "elif")) {
            n = node_new(p, N_IF, p->t->line);
            nodes_add(p->x, &more, n);
            continue;
        }
        if (str_is(tag, "else")) {
            b = parse_block_body(p, "endif");
            p->t++;
            first->orelse = b.v;
            first->n_orelse = b.n;
        }
        break;
    }
    first->list = more.v;
    first->n = more.n;
    return first;
}

/* (a, b=default) of a macro or a call block: list are the names, list2 the defaults of the last ones. */
static void parse_signature(struct parser *p, struct node *n) {
    struct nodes args = {0}, defaults = {0};
    expect_kind(p, T_LPAREN, "'('");
    while (p->t->kind != T_RPAREN) {
        if (args.n) expect_kind(p, T_COMMA, "','");
        struct node *arg = parse_target_name(p);
        for (uint32_t i = 0; i < args.n; i++)
            if (args.v[i]->name == arg->name) parse_fail(p, "duplicate argument");
        if (args.n >= 256) parse_fail(p, "too many arguments");
        nodes_add(p->x, &args, arg);
        if (skip_kind(p, T_ASSIGN))
            nodes_add(p->x, &defaults, parse_expression(p, 1));
        else if (defaults.n)
            parse_fail(p, "non-default argument follows default argument");
    }
    p->t++;
    n->list = args.v;
    n->n = args.n;
    n->list2 = defaults.v;
    n->n2 = defaults.n;
}

/* A body that is a function of its own: no loop around it can be left from within. */
static void take_function_body(struct parser *p, struct node *n, const char *end) {
    int loops = p->loops;
    p->loops = 0;
    take_body(p, n, end);
    p->loops = loops;
}

static struct node *parse_macro(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_MACRO, line);
    n->name = parse_target_name(p)->name;
    parse_signature(p, n);
    take_function_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_CALLBLOCK, line);
    if (p->t->kind == T_LPAREN) parse_signature(p, n);
    n->a = parse_expression(p, 1);
    if (n->a->kind != N_CALL) parse_fail(p, "expected call");
    take_function_body(p, n, "endcall");
    return n;
}

/* {% generation %} marks what an assistant wrote; it renders as its body, in a scope of its own. */
static struct node *parse_generation(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_CALLBLOCK, line);
    take_function_body(p, n, "endgeneration");
    return n;
}

static struct node *parse_filter_block(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_FILTERBLOCK, line);
    n->b = parse_filter(p, NULL, 1);
    take_body(p, n, "endfilter");
    return n;
}

static struct node *parse_with(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_WITH, line);
    struct nodes targets = {0}, values = {0};
    while (p->t->kind != T_BLOCK_END) {
        if (targets.n) expect_kind(p, T_COMMA, "','");
        nodes_add(p->x, &targets, parse_target(p, NULL, 0));
        expect_kind(p, T_ASSIGN, "'='");
        nodes_add(p->x, &values, parse_expression(p, 1));
    }
    n->list = targets.v;
    n->n = targets.n;
    n->list2 = values.v;
    n->n2 = values.n;
    take_body(p, n, "endwith");
    return n;
}

static struct node *parse_print(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_OUTPUT, line);
    struct nodes l = {0};
    while (p->t->kind != T_BLOCK_END) {
        if (l.n) expect_kind(p, T_COMMA, "','");
        nodes_add(p->x, &l, parse_expression(p, 1));
    }
    n->list = l.v;
    n->n = l.n;
    return n;
}

static struct node *parse_block(struct parser *p, uint32_t line) {
    struct node *n = node_new(p, N_BLOCK, line);
    n->name = parse_target_name(p)->name;
    n->flag = (uint8_t)skip_name(p, "scoped");
    if (skip_name(p, "required")) parse_fail(p, "required blocks are not supported");
    if (p->t->kind == T_SUB) parse_fail(p, "Block names may not contain hyphens");
    take_function_body(p, n, "endblock");
    if (p->t->kind == T_NAME && p->t->name == n->name) p->t++;
    return n;
}

/* include, import, from and extends: there is nothing to load from, which is an error once they are reached. */
static struct node *parse_loader(struct parser *p, uint32_t line) {
    while (p->t->kind != T_BLOCK_END && p->t->kind != T_EOF) p->t++;
    return node_new(p, N_NOLOADER, line);
}

static struct node *parse_jump(struct parser *p, uint32_t line, enum node_kind kind) {
    if (!p->loops) parse_fail(p, "break or continue outside of a loop");
    return node_new(p, kind, line);
}

static struct node *parse_tag(struct parser *p, const struct str *tag, uint32_t line) {
    static const struct {
        const char *tag;
        struct node *(*parse)(struct parser *p, uint32_t line);
    } tags[] = {{"for", parse_for},         {"if", parse_if},
                {"set", parse_set},         {"macro", parse_macro},
                {"call", parse_call_block}, {"filter", parse_filter_block},
                {"with", parse_with},       {"print", parse_print},
                {"block", parse_block},     {"generation", parse_generation},
                {"include", parse_loader},  {"import", parse_loader},
                {"from", parse_loader},     {"extends", parse_loader}};
    for (size_t i = 0; i < sizeof(tags) / sizeof(*tags); i++)
        if (str_is(tag, tags[i].tag)) return tags[i].parse(p, line);
    if (str_is(tag, "break")) return parse_jump(p, line, N_BREAK);
    if (str_is(tag, "continue")) return parse_jump(p, line, N_CONTINUE);
    p->x->line = line;
    jx_fail(p->x, "Encountered unknown tag '%.*s'.", (int)(tag->n > 64 ? 64 : tag->n), tag->b);
}

static struct node *parse_statement(struct parser *p) {
    if (p->t->kind != T_NAME) parse_fail(p, "tag name expected");
    parse_enter(p);
    const struct token *t = p->t++;
    struct node *n = parse_tag(p, t->name->s, t->line);
    p->depth--;
    return n;
}

struct node *parse_template(struct parser *p) {
    struct node *n = node_new(p, N_BLOCK, 1);
    struct body b = parse_body(p, NULL);
    n->body = b.v;
    n->n_body = b.n;
    return n;
}
