/* Tools, reasoning and the text's form in bodies of /v1/responses (responses.h). Pure.
 *
 * Tools are functions: those that the origin's servers would run, and calls without a schema, are refused by their
 * type. A format's `description` and `name` are not told to the model, nor is a schema that is not strict held less.
 * Reasoning is told as it is; with `summary` it is the summary as well, for nobody makes one. */
#include <string.h>

#include "api/responses.h"
#include "base/err.h"
#include "server/fields.h"

enum { PLACE_MAX = 64, FORMAT_NAME_MAX = 64 };

static int is_word(const char *word, const char *const *words, size_t n) {
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(words[i], word) == 0) return 1;
    return 0;
}

/* ---- tools ---- */

/* What is known of a function and cannot be held. */
static int check_beside(const json_t *tool, const char *place, cohort_error *err) {
    static const char *const flags[] = {"defer_loading", "async"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *flag = field_present(tool, flags[i]);
        if (flag && !json_is_false(flag))
            return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.%s must be false", place, flags[i]);
    }
    const json_t *callers = field_present(tool, "allowed_callers"), *caller = json_array_get(callers, 0);
    if (callers &&
        (json_array_size(callers) != 1 || !json_is_string(caller) || strcmp(json_string_value(caller), "direct") != 0))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.allowed_callers must be [\"direct\"]", place);
    if (field_present(tool, "output_schema"))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.output_schema cannot be told to the model", place);
    return 0;
}

static int read_tool(struct asked *asked, const json_t *tool, size_t i, cohort_error *err) {
    char place[PLACE_MAX];
    int strict = -1;
    snprintf(place, sizeof place, "tools[%zu]", i);
    const char *type = field_word(tool, "type");
    if (!type) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object with a \"type\"", place);
    if (strcmp(type, "function") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, place,
                       "%s has the type \"%.64s\"; this server runs no tools of its own: \"function\" only", place,
                       type);
    const json_t *parameters = field_present(tool, "parameters");
    if (parameters && !json_is_object(parameters))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.parameters must be an object", place);
    if (field_bool(tool, "strict", &strict, NULL) != 0)
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.strict must be true or false", place);
    int rc = check_beside(tool, place, err);
    return rc ? rc
              : asked_add_tool(asked, json_object_get(tool, "name"), field_present(tool, "description"), parameters,
                               strict, place, err);
}

static int check_tool_name(const struct asked *asked, const char *name, cohort_error *err) {
    if (name && asked_has_tool(asked, name)) return 0;
    return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice names \"%.64s\", which is none of the tools",
                   name ? name : "");
}

static int read_allowed(struct asked *asked, const json_t *choice, cohort_error *err) {
    const char *mode = field_word(choice, "mode");
    const json_t *tools = json_object_get(choice, "tools");
    if (!mode || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice.mode must be \"auto\" or \"required\"");
    if (!json_is_array(tools) || json_array_size(tools) == 0)
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice",
                       "tool_choice.tools must be an array of at least one tool");
    asked->choice = strcmp(mode, "auto") == 0 ? COHORT_TOOLS_AUTO : COHORT_TOOLS_REQUIRED;
    asked->allowed = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = field_word(tool, "type");
        if (!type || strcmp(type, "function") != 0)
            return err_set(err, COHORT_E_UNSUPPORTED, "tool_choice",
                           "tool_choice.tools[%zu] must be {\"type\": \"function\", \"name\"}", i);
        int rc = check_tool_name(asked, field_word(tool, "name"), err);
        if (rc) return rc;
        if (json_array_append(asked->allowed, json_object_get(tool, "name")) != 0)
            return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the tools");
    }
    return 0;
}

static int read_choice_object(struct asked *asked, const json_t *choice, cohort_error *err) {
    const char *type = field_word(choice, "type");
    if (!type)
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice",
                       "tool_choice must be \"none\", \"auto\", \"required\" or an object with a \"type\"");
    if (strcmp(type, "allowed_tools") == 0) return read_allowed(asked, choice, err);
    if (strcmp(type, "function") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, "tool_choice",
                       "tool_choice has the type \"%.64s\"; it must be \"function\" or \"allowed_tools\"", type);
    asked->choice = COHORT_TOOLS_NAMED;
    asked->tool_name = field_word(choice, "name");
    return check_tool_name(asked, asked->tool_name, err);
}

static int read_choice(struct asked *asked, const json_t *choice, cohort_error *err) {
    static const char *const words[] = {"none", "auto", "required"};
    const char *word = json_string_value(choice);
    if (!word || !is_word(word, words, 3)) return read_choice_object(asked, choice, err);
    asked->choice = strcmp(word, "none") == 0       ? COHORT_TOOLS_NONE
                    : strcmp(word, "required") == 0 ? COHORT_TOOLS_REQUIRED
                                                    : COHORT_TOOLS_AUTO;
    if (asked->choice == COHORT_TOOLS_REQUIRED && !asked->tools)
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice asks for a call, and there are no tools");
    return 0;
}

static int read_tools(struct asked *asked, const json_t *body, cohort_error *err) {
    const json_t *tools = field_present(body, "tools"), *choice = field_present(body, "tool_choice");
    int parallel = 1, rc = field_bool(body, "parallel_tool_calls", &parallel, err);
    asked->single = !parallel;
    if (rc) return rc;
    if (tools && !json_is_array(tools))
        return err_set(err, COHORT_E_ARGUMENT, "tools", "tools must be an array, not %s", field_type(tools));
    for (size_t i = 0; i < json_array_size(tools) && !rc; i++) rc = read_tool(asked, json_array_get(tools, i), i, err);
    return rc || !choice ? rc : read_choice(asked, choice, err);
}

/* ---- the text ---- */

static int read_schema(struct asked *asked, const json_t *format, cohort_error *err) {
    const json_t *name = json_object_get(format, "name"), *schema = json_object_get(format, "schema");
    const json_t *description = field_present(format, "description");
    int strict = 0;
    size_t len = json_string_length(name);
    if (!json_is_string(name) || len == 0 || len > FORMAT_NAME_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "text", "text.format.name must be a string of 1 to %d bytes",
                       FORMAT_NAME_MAX);
    if (!json_is_object(schema)) return err_set(err, COHORT_E_ARGUMENT, "text", "text.format.schema must be an object");
    if ((description && !json_is_string(description)) || field_bool(format, "strict", &strict, NULL) != 0)
        return err_set(err, COHORT_E_ARGUMENT, "text",
                       "text.format: description must be a string, and strict true or false");
    asked->schema = schema;
    asked->form_field = "text";
    return 0;
}

static int read_text(struct asked *asked, const json_t *body, cohort_error *err) {
    const json_t *text = field_present(body, "text"), *format = field_present(text, "format");
    if (text && !json_is_object(text))
        return err_set(err, COHORT_E_ARGUMENT, "text", "text must be an object, not %s", field_type(text));
    const char *verbosity = field_present(text, "verbosity") ? field_word(text, "verbosity") : "medium";
    if (!verbosity || strcmp(verbosity, "medium") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, "text", "text.verbosity must be \"medium\"");
    if (!format) return 0;
    const char *type = field_word(format, "type");
    if (!type) return err_set(err, COHORT_E_ARGUMENT, "text", "text.format must be an object with a \"type\"");
    if (strcmp(type, "json_schema") == 0) return read_schema(asked, format, err);
    asked->json = strcmp(type, "json_object") == 0;
    asked->form_field = "text";
    if (asked->json || strcmp(type, "text") == 0) return 0;
    return err_set(err, COHORT_E_UNSUPPORTED, "text",
                   "text.format.type is \"%.64s\"; it must be \"text\", \"json_object\" or \"json_schema\"", type);
}

/* ---- reasoning ---- */

static int read_summary(const json_t *reasoning, const char *name, int *out, cohort_error *err) {
    static const char *const words[] = {"auto", "detailed"};
    if (!field_present(reasoning, name)) return 0;
    *out = 1;
    if (is_word(field_word(reasoning, name), words, 2)) return 0;
    return err_set(err, COHORT_E_UNSUPPORTED, "reasoning",
                   "reasoning.%s must be \"auto\" or \"detailed\": reasoning is told whole", name);
}

/* A member that must not ask for anything. */
static int is_plain(const json_t *reasoning, const char *name, const char *plain) {
    const char *word = field_word(reasoning, name);
    return !field_present(reasoning, name) || (word && strcmp(word, plain) == 0);
}

static int read_reasoning(struct asked *asked, const json_t *body, cohort_error *err) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const json_t *reasoning = field_present(body, "reasoning");
    if (!reasoning) return 0;
    if (!json_is_object(reasoning))
        return err_set(err, COHORT_E_ARGUMENT, "reasoning", "reasoning must be an object, not %s",
                       field_type(reasoning));
    int rc = read_summary(reasoning, "summary", &asked->summarises, err);
    if (!rc) rc = read_summary(reasoning, "generate_summary", &asked->summarises, err);
    if (rc) return rc;
    if (!is_plain(reasoning, "context", "auto") || !is_plain(reasoning, "mode", "standard"))
        return err_set(err, COHORT_E_UNSUPPORTED, "reasoning",
                       "reasoning.context must be \"auto\" and reasoning.mode \"standard\"");
    if (!field_present(reasoning, "effort")) return 0;
    const char *effort = field_word(reasoning, "effort");
    if (!is_word(effort, efforts, sizeof efforts / sizeof efforts[0]))
        return err_set(err, COHORT_E_ARGUMENT, "reasoning",
                       "reasoning.effort must be none, minimal, low, medium, high, xhigh or max");
    if (strcmp(effort, "none") == 0) {
        asked->reasoning = COHORT_REASONING_OFF;
        return 0;
    }
    asked->reasoning = COHORT_REASONING_ON;
    asked->effort = effort;
    return 0;
}

int responses_ask(const json_t *body, int joins, struct asked *out, cohort_error *err) {
    *out = (struct asked){0};
    int rc = responses_chat(body, joins, &out->messages, err);
    if (!rc) rc = read_tools(out, body, err);
    if (!rc) rc = read_text(out, body, err);
    if (!rc) rc = read_reasoning(out, body, err);
    if (rc) asked_free(out);
    return rc;
}
