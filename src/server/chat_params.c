/* A chat as a body asks for it (chat_params.h). */
#include "server/chat_params.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

void chat_params_init(struct chat_params *c) {
    *c = (struct chat_params){0};
    cohort_chat_defaults(&c->chat);
}

void chat_params_deinit(struct chat_params *c) {
    for (size_t i = 0; i < c->owned_n; i++) buf_free(&c->owned[i]);
    mem_free(c->chat.tool_names_allowed);
    *c = (struct chat_params){0};
}

void chat_params_keep(struct chat_params *c, struct buf *text) {
    assert(c->owned_n < CHAT_PARAMS_OWNED_MAX);
    c->owned[c->owned_n++] = *text;
    *text = (struct buf){0};
}

static int add(const char *bytes, size_t n, void *text) { return buf_add(text, bytes, n) ? -1 : 0; }

int chat_params_text(struct chat_params *c, const json_t *value, const char **text, size_t *n, cohort_error *err) {
    struct buf dump = {0};
    if (json_dump_callback(value, add, &dump, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        buf_free(&dump);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    }
    *text = dump.data;
    *n = dump.len;
    chat_params_keep(c, &dump);
    return 0;
}

int chat_params_messages(struct chat_params *c, const json_t *messages, cohort_error *err) {
    return chat_params_text(c, messages, &c->chat.messages, &c->chat.messages_n, err);
}

int chat_params_tools(struct chat_params *c, const json_t *tools, cohort_error *err) {
    return chat_params_text(c, tools, &c->chat.tools, &c->chat.tools_n, err);
}

int chat_params_variables(struct chat_params *c, const json_t *variables, cohort_error *err) {
    return chat_params_text(c, variables, &c->chat.variables, &c->chat.variables_n, err);
}

int chat_params_allow(struct chat_params *c, const json_t *names, cohort_error *err) {
    size_t n = json_array_size(names);
    assert(!c->chat.tool_names_allowed);
    const char **list = mem_alloc(n, sizeof *list);
    if (!list) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu names", n);
    for (size_t i = 0; i < n; i++) list[i] = json_string_value(json_array_get(names, i));
    c->chat.tool_names_allowed = list;
    c->chat.tool_names_allowed_n = n;
    return 0;
}
