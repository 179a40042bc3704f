/* Renders chats with a model file's vocabulary, for comparisons with other tokenizers (scripts/check_chats.py).
 *
 * usage: chat_tool MODEL TEMPLATE ...
 * TEMPLATE: a file with a chat template; "": the built-in one for the vocabulary. Standard input: lines of JSON,
 * {"messages","tools","variables","ending"}. For each template: "refused" and a message on a line, or "template" and
 * then a line for each chat: the ids, a tab, the rendering in hexadecimal, a tab and the ends of turns; or "error", a
 * code's name and a message. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/builtin.h"
#include "chat/render.h"
#include "format/gguf.h"
#include "jinja/jinja.h"

static char *dump(const json_t *object, const char *name, const char **out, size_t *n) {
    const json_t *value = json_object_get(object, name);
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    *out = text;
    *n = text ? strlen(text) : 0;
    return text;
}

static void answer(const struct chat_template *t, const json_t *asked) {
    cohort_chat chat = {.parallel_calls = 1, .now_s = 1735689600};
    struct chat_prompt p;
    cohort_error err = {0};
    char *texts[] = {dump(asked, "messages", &chat.messages, &chat.messages_n),
                     dump(asked, "tools", &chat.tools, &chat.tools_n),
                     dump(asked, "variables", &chat.variables, &chat.variables_n)};
    chat.ending = (int)json_integer_value(json_object_get(asked, "ending"));
    if (chat_render(t, &chat, &p, &err)) {
        printf("error %s %s\n", cohort_error_name(err.code), err.text);
    } else {
        for (size_t i = 0; i < p.n; i++) printf("%s%d", i ? " " : "", p.ids[i]);
        putchar('\t');
        for (size_t i = 0; i < p.text_n; i++) printf("%02x", (unsigned char)p.text[i]);
        putchar('\t');
        for (size_t i = 0; i < p.turns_n; i++) printf("%s%u", i ? " " : "", p.turns[i].end);
        putchar('\n');
        chat_prompt_clear(&p);
    }
    for (int i = 0; i < 3; i++) free(texts[i]);
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, JINJA_TEMPLATE_MAX + 2);
    if (!file || !text || fread(text, 1, JINJA_TEMPLATE_MAX + 1, file) == 0) exit(1);
    fclose(file);
    return text;
}

static void answer_all(const struct tokenizer *t, const char *path, const json_t *chats) {
    struct chat_template *template;
    cohort_error err;
    char *given = *path ? read_file(path) : NULL;
    const char *text = given ? given : chat_builtin_choose(t)->text;
    if (chat_template_make(t, text, strlen(text), NULL, 0, &template, &err)) {
        printf("refused %s\n", err.text);
    } else {
        puts("template");
        for (size_t i = 0; i < json_array_size(chats); i++) answer(template, json_array_get(chats, i));
        chat_template_free(template);
    }
    free(given);
}

int main(int argc, char **argv) {
    static char line[1 << 20];
    struct model_file *file;
    struct tokenizer *t;
    cohort_error err;
    if (argc < 3) return 2;
    if (model_file_open(argv[1], &file, &err) || tokenizer_open(model_file_meta(file), &t, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    model_file_close(file);
    json_t *chats = json_array();
    while (fgets(line, sizeof line, stdin)) json_array_append_new(chats, json_loads(line, 0, NULL));
    for (int i = 2; i < argc; i++) answer_all(t, argv[i], chats);
    json_decref(chats);
    tokenizer_close(t);
    return 0;
}
