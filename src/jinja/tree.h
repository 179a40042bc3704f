/* The tree of a parsed template, with every name resolved to a place. */
#ifndef JINJA_TREE_H
#define JINJA_TREE_H

#include "jinja/ops.h"

enum node_kind {
    N_CONST,
    N_NAME,
    N_NSREF,
    N_TUPLE,
    N_LIST,
    N_DICT,
    N_BINARY,
    N_AND,
    N_OR,
    N_NOT,
    N_NEG,
    N_POS,
    N_CONCAT,
    N_COMPARE,
    N_GETATTR,
    N_GETITEM,
    N_SLICE,
    N_FILTER,
    N_TEST,
    N_CALL,
    N_COND,
    N_DATA,
    N_OUTPUT,
    N_FOR,
    N_IF,
    N_MACRO,
    N_CALLBLOCK,
    N_FILTERBLOCK,
    N_SET,
    N_SETBLOCK,
    N_WITH,
    N_BREAK,
    N_CONTINUE,
    N_BLOCK,
    N_NOLOADER
};

/* A name of the template; one object per spelling. */
struct name {
    struct str *s;
    uint32_t id;
};

/* A place: slot `slot` of the function `up` functions outward. */
struct place {
    uint16_t up;
    uint32_t slot;
};
enum load_kind { LOAD_PARAMETER, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEFINED, LOAD_EXPORTED };
/* What is done with a name when its scope is entered. */
struct load {
    enum load_kind kind;
    uint32_t slot;
    struct place from;
    const struct name *name;
};
struct scope {
    struct load *loads;
    uint32_t n;
};

struct keyword {
    const struct name *name;
    struct node *value;
};
struct node {
    uint8_t kind, op, flag, special;
    uint16_t height;
    uint32_t line;
    struct place at; /* NAME: where it is. Stores of macros too */
    const struct name *name;
    val value;
    struct node *a, *b, *c, *d;
    struct node **list, **list2, **body, **orelse;
    uint32_t n, n2, n_body, n_orelse, n_kw;
    struct keyword *kw;
    const void *known;          /* the filter or test; of compare: its ops */
    struct scope scope, scope2; /* of the body; of for's test, or of its else branch */
    struct scope scope3;
    uint32_t slots, slots2; /* of the function that the node makes */
    struct place caller, kwargs, varargs, loop;
};

/* node->special of macros and calls: what the body asks for */
enum { USES_CALLER = 1, USES_KWARGS = 2, USES_VARARGS = 4, USES_LOOP = 8 };

struct name_table {
    struct name **slots;
    uint32_t n, cap;
};
struct jinja {
    struct arena arena;
    struct node *root; /* body, scope, slots */
    struct name_table names;
};

/* lexer.c */
enum token_kind {
    T_EOF,
    T_DATA,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON
};
struct token {
    uint8_t kind;
    uint32_t line;
    const struct name *name; /* NAME */
    val value;
};
struct token *lex(struct run *x, const char *text, size_t n, struct name_table *names, uint32_t *n_tokens);
const struct name *name_intern(struct run *x, struct name_table *t, const char *b, size_t n);

/* parser.c, parser_expr.c */
struct parser {
    struct run *x;
    struct name_table *names;
    const struct token *t; /* the current one; the last is EOF */
    int depth, loops;      /* nesting; of loops that break can leave */
};
struct node *parse_template(struct parser *p);
struct node *parse_expression(struct parser *p, int conditional);
struct node *parse_tuple(struct parser *p, int simplified, int conditional, const char *end, int parentheses,
                         int namespaces);
struct node *parse_filter(struct parser *p, struct node *node, int inline_start);
struct node *node_new(struct parser *p, enum node_kind kind, uint32_t line);
void node_height(struct parser *p, struct node *n, const struct node *child);
void parse_enter(struct parser *p);
_Noreturn void parse_fail(struct parser *p, const char *message);
int at_name(const struct parser *p, const char *name);
int skip_name(struct parser *p, const char *name);
int skip_kind(struct parser *p, enum token_kind kind);
void expect_kind(struct parser *p, enum token_kind kind, const char *what);
struct nodes {
    struct node **v;
    uint32_t n, cap;
};
void nodes_add(struct run *x, struct nodes *l, struct node *n);

/* scope.c: resolves all names */
void resolve_names(struct run *x, struct jinja *t);

/* eval.c, exec.c, call.c */
struct frame {
    val *slots;
    struct frame *outer;
};
struct render {
    const struct jinja *template;
    struct frame *root;
    struct dict *variables;
    int64_t now_s;
};
struct macro {
    const struct node *node;
    struct frame *outer;
    val name;
};
struct loop {
    struct iter it;
    const struct node *node; /* recursive: can be called */
    struct frame *frame;     /* the frame in which the for stands */
    struct frame *test_frame;
    uint8_t tested, has_after, has_changed;
    int64_t index0, length; /* length < 0: not known */
    int64_t depth0;
    val after, current, before, changed;
};
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
val eval(struct run *x, struct frame *f, const struct node *n);
const struct filter *node_filter(struct run *x, const struct node *n); /* never NULL */
int64_t loop_length(struct run *x, struct loop *l);
int loop_next(struct run *x, struct loop *l, val *out);
void assign(struct run *x, struct frame *f, const struct node *target, val v);
void scope_enter(struct run *x, struct frame *f, const struct scope *s);
void scope_leave(struct frame *f, const struct scope *s);
val *slot_of(struct frame *f, struct place p);
struct frame *frame_new(struct run *x, uint32_t slots, struct frame *outer);
enum flow exec_body(struct run *x, struct frame *f, struct node *const *body, uint32_t n, struct maker *out);
val macro_call(struct run *x, struct macro *m, const struct args *a);
val loop_call(struct run *x, struct loop *l, const struct args *a);
void for_render(struct run *x, const struct node *n, struct frame *f, val source, int64_t depth0, struct maker *out,
                enum flow *flow);
void args_eval(struct run *x, struct frame *f, const struct node *n, struct args *out, const val *caller);
val resolve(struct run *x, const struct name *name);

#endif
