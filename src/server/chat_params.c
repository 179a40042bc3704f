/* A chat as a body asks for it (chat_params.h). */
#include "server/chat_params.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

void chat_params_init(struct chat_params *c) {
    *c = (struct chat_params){0};
    cohort_chat_defaults(&c->chat);
}

void chat_params_deinit(struct chat_params *c) {
    for (size_t i = 0; i < c->owned_n; i++) free(c->owned[i]); /* jansson's */
    mem_free(c->chat.tool_names_allowed);
    *c = (struct chat_params){0};
}

int chat_params_text(struct chat_params *c, const json_t *value, const char **text, size_t *n, cohort_error *err) {
    assert(c->owned_n < CHAT_PARAMS_OWNED_MAX);
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!dump) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    c->owned[c->owned_n++] = dump;
    *text = dump;
    *n = strlen(dump);
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
