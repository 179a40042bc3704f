/* Tools in the shapes of OpenAI's API (tools.h). What the rendering of the chat would not say as exactly is said here;
 * whether a schema can be held is seen when it is compiled. */
#include "api/tools.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "server/fields.h"

static int refuse(cohort_error *err, int code, size_t i, const char *key, const char *reason) {
    char field[48];
    snprintf(field, sizeof field, "tools[%zu]%s%s", i, *key ? "." : "", key);
    return err_set(err, code, field, "%s %s", field, reason);
}

int tools_is_name(const json_t *name) {
    const char *text = json_string_value(name);
    size_t len = json_string_length(name);
    if (!text || len == 0 || len > TOOLS_NAME_MAX) return 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        int ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!ok) return 0;
    }
    return 1;
}

static const json_t *name_at(const json_t *tools, size_t i) {
    return json_object_get(json_object_get(json_array_get(tools, i), "function"), "name");
}

static int have_before(const json_t *tools, size_t n, const json_t *name) {
    for (size_t i = 0; i < n; i++)
        if (json_equal(name_at(tools, i), name)) return 1;
    return 0;
}

int tools_have(const json_t *tools, const json_t *name) {
    return json_is_string(name) && have_before(tools, json_array_size(tools), name);
}

static int check_function(const json_t *function, size_t i, cohort_error *err) {
    const json_t *description = field_present(function, "description"), *strict = field_present(function, "strict");
    const json_t *parameters = field_present(function, "parameters");
    if (!json_is_object(function)) return refuse(err, COHORT_E_ARGUMENT, i, "function", "must be an object");
    if (!tools_is_name(json_object_get(function, "name")))
        return refuse(err, COHORT_E_ARGUMENT, i, "function.name",
                      "must be a string of 1 to 128 letters, digits, \"_\" and \"-\"");
    if (description && !json_is_string(description))
        return refuse(err, COHORT_E_ARGUMENT, i, "function.description", "must be a string");
    if (parameters && !json_is_object(parameters))
        return refuse(err, COHORT_E_ARGUMENT, i, "function.parameters", "must be an object: a JSON schema");
    if (strict && !json_is_boolean(strict))
        return refuse(err, COHORT_E_ARGUMENT, i, "function.strict", "must be true or false");
    return 0;
}

static int check_tool(const json_t *tools, size_t i, cohort_error *err) {
    const json_t *tool = json_array_get(tools, i), *type = json_object_get(tool, "type");
    if (!json_is_object(tool)) return refuse(err, COHORT_E_ARGUMENT, i, "", "must be an object");
    if (!json_is_string(type)) return refuse(err, COHORT_E_ARGUMENT, i, "type", "must be a string");
    if (strcmp(json_string_value(type), "function") != 0)
        return refuse(err, COHORT_E_UNSUPPORTED, i, "type", "must be \"function\": this server has no others");
    int rc = check_function(json_object_get(tool, "function"), i, err);
    if (!rc && have_before(tools, i, name_at(tools, i)))
        rc = refuse(err, COHORT_E_ARGUMENT, i, "function.name", "is another tool's name, too");
    return rc;
}

int tools_read(struct chat_params *c, const json_t *tools, cohort_error *err) {
    size_t n = json_array_size(tools);
    int rc = 0;
    if (!tools) return 0;
    if (!json_is_array(tools))
        return err_set(err, COHORT_E_ARGUMENT, "tools", "tools must be an array, not %s", field_type(tools));
    if (n > COHORT_CHAT_TOOLS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "tools", "tools has %zu tools, at most %d are allowed", n,
                       COHORT_CHAT_TOOLS_MAX);
    for (size_t i = 0; i < n && !rc; i++) rc = check_tool(tools, i, err);
    return rc || n == 0 ? rc : chat_params_tools(c, tools, err);
}

/* ---- tool_choice ---- */

static int bad_choice(cohort_error *err) {
    return err_set(err, COHORT_E_ARGUMENT, "tool_choice",
                   "tool_choice must be \"none\", \"auto\", \"required\", {\"type\": \"function\", \"function\": "
                   "{\"name\": a tool's name}} or {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\" "
                   "or \"required\", \"tools\": some of the tools}}");
}

static int not_a_tool(const json_t *name, cohort_error *err) {
    return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice names \"%.60s\", which is none of the tools",
                   json_string_value(name));
}

static int read_mode(struct chat_params *c, const char *mode, int none_too) {
    if (mode && strcmp(mode, "auto") == 0)
        c->chat.tool_choice = COHORT_TOOLS_AUTO;
    else if (mode && strcmp(mode, "required") == 0)
        c->chat.tool_choice = COHORT_TOOLS_REQUIRED;
    else if (none_too && mode && strcmp(mode, "none") == 0)
        c->chat.tool_choice = COHORT_TOOLS_NONE;
    else
        return -1;
    return 0;
}

static int read_named(struct chat_params *c, const json_t *choice, const json_t *tools, cohort_error *err) {
    const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    if (!json_is_string(name)) return bad_choice(err);
    if (!tools_have(tools, name)) return not_a_tool(name, err);
    c->chat.tool_choice = COHORT_TOOLS_NAMED;
    c->chat.tool_name = json_string_value(name);
    return 0;
}

/* Some of the tools, by what names them in full: {"type":"function","function":{"name"}}, or by "name" alone. */
static int read_allowed(struct chat_params *c, const json_t *choice, const json_t *tools, cohort_error *err) {
    const json_t *allowed = json_object_get(choice, "allowed_tools"), *some = json_object_get(allowed, "tools");
    if (!json_is_array(some) || json_array_size(some) == 0 || json_array_size(some) > COHORT_CHAT_TOOLS_MAX ||
        read_mode(c, field_word(allowed, "mode"), 0) != 0)
        return bad_choice(err);
    json_t *names = json_array();
    int rc = names ? 0 : err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    for (size_t i = 0; i < json_array_size(some) && !rc; i++) {
        const json_t *tool = json_array_get(some, i), *name = json_object_get(tool, "name");
        if (!name) name = json_object_get(json_object_get(tool, "function"), "name");
        if (!json_is_string(name))
            rc = bad_choice(err);
        else if (!tools_have(tools, name))
            rc = not_a_tool(name, err);
        else if (json_array_append(names, (json_t *)name) != 0)
            rc = err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    }
    if (!rc) rc = chat_params_allow(c, names, err);
    json_decref(names); /* the names themselves are the body's */
    return rc;
}

int tools_read_choice(struct chat_params *c, const json_t *choice, const json_t *tools, cohort_error *err) {
    const char *type = field_word(choice, "type");
    if (!choice) return 0;
    if (json_is_string(choice) ? read_mode(c, json_string_value(choice), 1) != 0 : !type) return bad_choice(err);
    if (json_array_size(tools) == 0 && (type || c->chat.tool_choice == COHORT_TOOLS_REQUIRED))
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice asks for a tool, and there are no tools");
    if (!type) return 0;
    if (strcmp(type, "function") == 0) return read_named(c, choice, tools, err);
    if (strcmp(type, "allowed_tools") == 0) return read_allowed(c, choice, tools, err);
    return bad_choice(err);
}
