/* What a body asks of a chat (asked.h). */
#include "api/asked.h"

#include <stdio.h>
#include <string.h>

#include "api/params.h"
#include "base/err.h"
#include "server/call.h"
#include "server/fields.h"

enum { TOOL_NAME_MAX = 128 };

void asked_free(struct asked *asked) {
    json_decref(asked->messages);
    json_decref(asked->tools);
    json_decref(asked->allowed);
    *asked = (struct asked){0};
}

static const char *name_of(const json_t *tool) { return field_word(json_object_get(tool, "function"), "name"); }

int asked_has_tool(const struct asked *asked, const char *name) {
    size_t i = 0, n = json_array_size(asked->tools);
    while (i < n && strcmp(name_of(json_array_get(asked->tools, i)), name) != 0) i++;
    return i < n;
}

static int check_name(const struct asked *asked, const json_t *name, const char *place, cohort_error *err) {
    const char *text = json_string_value(name);
    size_t len = json_string_length(name);
    if (!text || len == 0 || len > TOOL_NAME_MAX ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != len)
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.name must have 1 to %d letters, digits, \"_\" and \"-\"",
                       place, TOOL_NAME_MAX);
    if (asked_has_tool(asked, text))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.name is \"%s\", which another tool has", place, text);
    return 0;
}

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the tools"); }

int asked_add_tool(struct asked *asked, const json_t *name, const json_t *description, const json_t *parameters,
                   int strict, const char *place, cohort_error *err) {
    int rc = check_name(asked, name, place, err);
    if (rc) return rc;
    if (description && !json_is_string(description))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.description must be a string", place);
    if (!asked->tools && !(asked->tools = json_array())) return no_memory(err);
    if (json_array_size(asked->tools) >= COHORT_CHAT_TOOLS_MAX)
        return err_set(err, COHORT_E_LIMIT, "tools", "tools has more than %d tools", COHORT_CHAT_TOOLS_MAX);
    json_t *function = json_pack("{s:O}", "name", name);
    rc = function ? 0 : no_memory(err);
    if (!rc && description && json_object_set(function, "description", (json_t *)description) != 0) rc = no_memory(err);
    if (!rc && parameters && json_object_set(function, "parameters", (json_t *)parameters) != 0) rc = no_memory(err);
    if (!rc && strict >= 0 && json_object_set_new(function, "strict", json_boolean(strict)) != 0) rc = no_memory(err);
    if (rc) {
        json_decref(function);
        return rc;
    }
    json_t *tool = json_pack("{s:s,s:o}", "type", "function", "function", function);
    return json_array_append_new(asked->tools, tool) == 0 ? 0 : no_memory(err);
}

/* What the answer's text must follow. */
static int set_answer(const struct asked *asked, struct chat_params *c, cohort_error *err) {
    cohort_grammar_source *answer = &c->chat.answer;
    if (asked->json) answer->kind = COHORT_GRAMMAR_JSON;
    if (!asked->schema) return 0;
    answer->kind = COHORT_GRAMMAR_JSON_SCHEMA;
    return chat_params_text(c, asked->schema, &answer->text, &answer->len, err);
}

/* What is asked of reasoning, which not every model has. */
static int set_reasoning(const struct asked *asked, const struct asked_names *names, const cohort_model *model,
                         cohort_chat *chat, cohort_error *err) {
    cohort_model_info info;
    cohort_model_get_info(model, &info);
    chat->reasoning = asked->reasoning;
    chat->effort = asked->effort;
    if (info.chat_reasoning || asked->reasoning != COHORT_REASONING_ON) return 0;
    if (!asked->may_reason)
        return err_set(err, COHORT_E_UNSUPPORTED, names->reasoning, "%s: this model does not reason", names->reasoning);
    chat->reasoning = COHORT_REASONING_DEFAULT;
    return 0;
}

/* All but the messages. */
static int set_wants(const struct asked *asked, const struct asked_names *names, const cohort_model *model,
                     struct chat_params *c, cohort_error *err) {
    cohort_chat *chat = &c->chat;
    chat->ending = asked->go_on ? COHORT_CHAT_CONTINUE : 1;
    chat->tool_choice = asked->choice;
    chat->tool_name = asked->tool_name;
    chat->parallel_calls = !asked->single;
    int rc = set_reasoning(asked, names, model, chat, err);
    if (!rc && asked->tools) rc = chat_params_tools(c, asked->tools, err);
    if (!rc && asked->allowed) rc = chat_params_allow(c, asked->allowed, err);
    return rc ? rc : set_answer(asked, c, err);
}

int asked_chat(const struct asked *asked, const struct asked_names *names, const cohort_model *model,
               struct chat_params *chat, cohort_error *err) {
    int rc = chat_params_messages(chat, asked->messages, err);
    return rc ? rc : set_wants(asked, names, model, chat, err);
}

int asked_call(const struct asked *asked, const struct asked_names *names, struct call *call, cohort_error *err) {
    struct params *p = &call->params;
    p->form_field = asked->form_field;
    p->budget_field = names->reasoning;
    if (asked->budget > 0) p->reasoning_budget = (uint32_t)asked->budget;
    int rc = params_chat(call, asked->messages, err);
    return rc ? rc : set_wants(asked, names, server_model(call->server), &p->chat, err);
}

/* ---- names in errors ---- */

static int begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static void rename_field(cohort_error *err, const char *field) {
    char text[sizeof err->text];
    size_t len = strlen(err->field);
    if (begins(err->text, err->field)) {
        snprintf(text, sizeof text, "%s%s", field, err->text + len);
        memcpy(err->text, text, sizeof text);
    }
    snprintf(err->field, sizeof err->field, "%s", field);
}

void asked_name(const struct asked_names *names, cohort_error *err) {
    static const char function[] = ".function", schema[] = "parameters";
    char field[sizeof err->field + 32];
    const char *at = strstr(err->field, function);
    if (begins(err->field, "messages")) {
        rename_field(err, names->messages); /* places in it are those of the chat that was made of them */
    } else if (begins(err->field, "reasoning")) {
        rename_field(err, names->reasoning);
    } else if (begins(err->field, "tools[") && at) {
        const char *member = at + sizeof function - 1 + (at[sizeof function - 1] == '.');
        int renamed = begins(member, schema);
        snprintf(field, sizeof field, "%.*s%s%s%s", (int)(at - err->field), err->field, *member ? "." : "",
                 renamed ? names->schema : "", renamed ? member + sizeof schema - 1 : member);
        rename_field(err, field);
    }
}
