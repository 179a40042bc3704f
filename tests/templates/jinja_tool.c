/* Renders templates for tests: one JSON object a line on stdin, one a line on stdout.
 *
 * In: {"template": text (absent: the one before), "variables": {name: JSON text}, "now": seconds, "marks": {name:
 * mark}}. Out: {"text": ...} with "marks" as [mark, bytes] runs if asked for, or {"error": "parse", "raised", "render"
 * or "limit", "message": ...}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"

enum { VARIABLES_MAX = 32 };

static void answer_error(const char *kind, const cohort_error *err) {
    json_t *o = json_pack("{s:s, s:s}", "error", kind, "message", err->text);
    char *line = json_dumps(o, JSON_COMPACT);
    puts(line);
    free(line);
    json_decref(o);
}

static const char *kind_of(const cohort_error *err) {
    if (err->code == COHORT_E_LIMIT || err->code == COHORT_E_MEMORY) return "limit";
    return strcmp(err->field, "messages") ? "render" : "raised";
}

static json_t *runs_of(const struct jinja_text *text) {
    json_t *runs = json_array();
    for (size_t at = 0; at < text->len;) {
        size_t from = at;
        while (at < text->len && text->marks[at] == text->marks[from]) at++;
        json_array_append_new(runs, json_pack("[i, i]", (int)text->marks[from], (int)(at - from)));
    }
    return runs;
}

static void render(const struct jinja *t, json_t *line) {
    struct jinja_variable v[VARIABLES_MAX];
    size_t n = 0;
    const char *name;
    json_t *value, *marks = json_object_get(line, "marks");
    json_object_foreach(json_object_get(line, "variables"), name, value) {
        if (n == VARIABLES_MAX) break;
        json_t *mark = json_object_get(marks, name);
        v[n++] = (struct jinja_variable){.name = name,
                                         .json = json_string_value(value),
                                         .len = json_string_length(value),
                                         .mark = (uint16_t)json_integer_value(mark),
                                         .by_element = mark != NULL};
    }
    struct jinja_text text;
    cohort_error err = {0};
    if (jinja_render(t, v, n, json_integer_value(json_object_get(line, "now")), &text, &err)) {
        answer_error(kind_of(&err), &err);
        return;
    }
    json_t *o = json_pack("{s:o}", "text", json_stringn(text.bytes, text.len));
    if (marks) json_object_set_new(o, "marks", runs_of(&text));
    char *out = json_dumps(o, JSON_COMPACT);
    puts(out);
    free(out);
    json_decref(o);
    jinja_text_free(&text);
}

int main(void) {
    char *bytes = NULL;
    size_t cap = 0;
    ssize_t n;
    struct jinja *t = NULL;
    cohort_error err = {0};
    while ((n = getline(&bytes, &cap, stdin)) > 0) {
        json_t *line = json_loadb(bytes, (size_t)n, JSON_ALLOW_NUL, NULL), *text = json_object_get(line, "template");
        if (text) {
            jinja_free(t);
            jinja_parse(json_string_value(text), json_string_length(text), &t, &err);
        }
        if (t)
            render(t, line);
        else
            answer_error("parse", &err);
        fflush(stdout);
        json_decref(line);
    }
    jinja_free(t);
    free(bytes);
    return 0;
}
