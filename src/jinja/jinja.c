/* The room's door: parsing a template, rendering it. Both begin a run and are where it ends, however it does. */
#include "jinja/jinja.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/tree.h"

static void parse(struct run *x, struct jinja *t, const char *text, size_t len) {
    uint32_t n_tokens;
    struct parser p = {.x = x, .names = &t->names, .t = lex(x, text, len, &t->names, &n_tokens)};
    t->root = parse_template(&p);
    resolve_names(x, t);
}

static int run_parse(struct run *x, struct jinja *t, const char *text, size_t len) {
    if (setjmp(x->out)) return x->code;
    parse(x, t, text, len);
    return 0;
}

int jinja_parse(const char *text, size_t len, struct jinja **out, cohort_error *err) {
    *out = NULL;
    if (len > JINJA_TEMPLATE_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "chat_template", "a template of more than %d bytes", JINJA_TEMPLATE_MAX);
    if (!utf8_valid(text, len)) return err_set(err, COHORT_E_ARGUMENT, "chat_template", "invalid UTF-8");
    struct jinja *t = mem_zalloc(1, sizeof(*t));
    if (!t) return err_set(err, COHORT_E_MEMORY, "chat_template", "no memory");
    t->arena.limit = JINJA_MEMORY_MAX;
    struct run x = {.err = err, .arena = &t->arena, .line = 1};
    int code = run_parse(&x, t, text, len);
    if (code) {
        jinja_free(t);
        return code;
    }
    *out = t;
    return 0;
}

void jinja_free(struct jinja *t) {
    if (!t) return;
    arena_free(&t->arena);
    mem_free(t);
}

static void render(struct run *x, const struct jinja *t, const struct jinja_variable *v, size_t n, struct maker *out) {
    struct render *r = x->render;
    r->variables = dict_new(x);
    for (size_t i = 0; i < n; i++) {
        val name = v_bytes(x, v[i].name, strlen(v[i].name), 0);
        dict_set(x, r->variables, name, json_parse(x, &v[i]));
    }
    r->root = frame_new(x, t->root->slots, NULL);
    scope_enter(x, r->root, &t->root->scope);
    exec_body(x, r->root, t->root->body, t->root->n_body, out);
}

static int run_render(struct run *x, const struct jinja *t, const struct jinja_variable *v, size_t n,
                      struct maker *out) {
    if (setjmp(x->out)) return x->code;
    render(x, t, v, n, out);
    return 0;
}

static int take_text(const struct maker *m, struct jinja_text *out, cohort_error *err) {
    out->bytes = mem_alloc(m->n + 1, 1);
    out->marks = mem_alloc(m->n + 1, sizeof(*out->marks));
    if (!out->bytes || !out->marks) {
        jinja_text_free(out);
        return err_set(err, COHORT_E_MEMORY, "chat_template", "no memory");
    }
    if (m->n) memcpy(out->bytes, m->b, m->n);
    out->bytes[m->n] = 0;
    for (size_t i = 0; i < m->n; i++) out->marks[i] = m->marks ? m->marks[i] : m->mark;
    out->len = m->n;
    return 0;
}

int jinja_render(const struct jinja *t, const struct jinja_variable *variables, size_t n, int64_t now_s,
                 struct jinja_text *out, cohort_error *err) {
    struct arena arena = {.limit = JINJA_MEMORY_MAX};
    struct render r = {.template = t, .now_s = now_s};
    struct run x = {.err = err, .arena = &arena, .render = &r, .line = 1};
    struct maker m = maker_begin(&x);
    memset(out, 0, sizeof(*out));
    int code = run_render(&x, t, variables, n, &m);
    if (!code) code = take_text(&m, out, err);
    arena_free(&arena);
    return code;
}

void jinja_text_free(struct jinja_text *text) {
    mem_free(text->bytes);
    mem_free(text->marks);
    memset(text, 0, sizeof(*text));
}
