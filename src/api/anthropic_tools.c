/* Tools, thinking and the output's form in Anthropic's bodies (anthropic.h). Pure.
 *
 * Tools are the client's own: those with another type than "custom" would be run by the origin's servers and are
 * refused by their type. A budget is of the tokens of thinking; without thinking in a body it is the model's template
 * that says whether there is some. Effort is told to the template. */
#include <string.h>

#include "api/anthropic.h"
#include "base/err.h"
#include "server/fields.h"

enum { PLACE_MAX = 64, BUDGET_MIN = 1024 };

static int is_word(const char *word, const char *const *words, size_t n) {
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(words[i], word) == 0) return 1;
    return 0;
}

/* ---- tools ---- */

/* What is known of a tool and cannot be held. */
static int check_beside(const json_t *tool, const char *place, cohort_error *err) {
    const json_t *examples = field_present(tool, "input_examples"), *callers = field_present(tool, "allowed_callers");
    int later = 0, eager = 0, rc = field_bool(tool, "defer_loading", &later, NULL);
    if (!rc) rc = field_bool(tool, "eager_input_streaming", &eager, NULL);
    if (rc)
        return err_set(err, COHORT_E_ARGUMENT, place,
                       "%s: defer_loading and eager_input_streaming must be true or false", place);
    if (later) return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.defer_loading cannot be done here", place);
    if (json_array_size(examples) || (examples && !json_is_array(examples)))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.input_examples cannot be told to the model", place);
    const json_t *caller = json_array_get(callers, 0);
    if (callers &&
        (json_array_size(callers) != 1 || !json_is_string(caller) || strcmp(json_string_value(caller), "direct") != 0))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.allowed_callers must be [\"direct\"]", place);
    return anthropic_cache_control(tool, place, err);
}

static int read_tool(struct asked *asked, const json_t *tool, size_t i, cohort_error *err) {
    char place[PLACE_MAX];
    int strict = -1;
    snprintf(place, sizeof place, "tools[%zu]", i);
    if (!json_is_object(tool)) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object", place);
    const json_t *kind = field_present(tool, "type"), *schema = json_object_get(tool, "input_schema");
    const char *type = kind ? field_word(tool, "type") : "custom";
    if (!type) return err_set(err, COHORT_E_ARGUMENT, place, "%s.type must be a string", place);
    if (strcmp(type, "custom") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, place,
                       "%s has the type \"%.64s\"; this server runs no tools of its own: \"custom\" ones only", place,
                       type);
    if (!json_is_object(schema))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.input_schema must be an object", place);
    const char *of = field_word(schema, "type");
    if (!of || strcmp(of, "object") != 0)
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.input_schema.type must be \"object\"", place);
    if (field_bool(tool, "strict", &strict, NULL) != 0)
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.strict must be true or false", place);
    int rc = check_beside(tool, place, err);
    return rc ? rc
              : asked_add_tool(asked, json_object_get(tool, "name"), field_present(tool, "description"), schema, strict,
                               place, err);
}

static int read_choice(struct asked *asked, const json_t *choice, cohort_error *err) {
    static const char *const types[] = {"auto", "none", "any", "tool"};
    const char *type = field_word(choice, "type"), *name = field_word(choice, "name");
    if (!is_word(type, types, 4))
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice",
                       "tool_choice must be an object with the type \"auto\", \"any\", \"tool\" or \"none\"");
    if (field_bool(choice, "disable_parallel_tool_use", &asked->single, NULL) != 0)
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice",
                       "tool_choice.disable_parallel_tool_use must be true or false");
    asked->choice = strcmp(type, "none") == 0   ? COHORT_TOOLS_NONE
                    : strcmp(type, "any") == 0  ? COHORT_TOOLS_REQUIRED
                    : strcmp(type, "tool") == 0 ? COHORT_TOOLS_NAMED
                                                : COHORT_TOOLS_AUTO;
    if (asked->choice == COHORT_TOOLS_REQUIRED && !asked->tools)
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice asks for a call, and there are no tools");
    if (asked->choice != COHORT_TOOLS_NAMED) return 0;
    if (!name || !asked_has_tool(asked, name))
        return err_set(err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice.name must be the name of one of the tools");
    asked->tool_name = name;
    return 0;
}

static int read_tools(struct asked *asked, const json_t *body, cohort_error *err) {
    const json_t *tools = field_present(body, "tools"), *choice = field_present(body, "tool_choice");
    int rc = 0;
    if (tools && !json_is_array(tools))
        return err_set(err, COHORT_E_ARGUMENT, "tools", "tools must be an array, not %s", field_type(tools));
    for (size_t i = 0; i < json_array_size(tools) && !rc; i++) rc = read_tool(asked, json_array_get(tools, i), i, err);
    return rc || !choice ? rc : read_choice(asked, choice, err);
}

/* ---- thinking ---- */

static int read_budget(struct asked *asked, const json_t *body, const json_t *thinking, cohort_error *err) {
    const json_t *budget = json_object_get(thinking, "budget_tokens"), *most = field_present(body, "max_tokens");
    if (!json_is_integer(budget))
        return err_set(err, COHORT_E_ARGUMENT, "thinking", "thinking.budget_tokens must be an integer");
    asked->budget = json_integer_value(budget);
    if (asked->budget < BUDGET_MIN || asked->budget > INT32_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "thinking", "thinking.budget_tokens is %lld, at least %d are needed",
                       (long long)asked->budget, BUDGET_MIN);
    if (most && asked->budget >= json_integer_value(most))
        return err_set(err, COHORT_E_ARGUMENT, "thinking",
                       "thinking.budget_tokens is %lld, which must be below max_tokens, %lld", (long long)asked->budget,
                       (long long)json_integer_value(most));
    return 0;
}

static int read_display(struct asked *asked, const json_t *thinking, cohort_error *err) {
    const json_t *display = field_present(thinking, "display");
    static const char *const displays[] = {"summarized", "omitted"};
    if (!display) return 0;
    const char *word = field_word(thinking, "display");
    if (!is_word(word, displays, 2))
        return err_set(err, COHORT_E_ARGUMENT, "thinking", "thinking.display must be \"summarized\" or \"omitted\"");
    asked->hides_reasoning = strcmp(word, "omitted") == 0;
    return 0;
}

static int read_thinking(struct asked *asked, const json_t *body, cohort_error *err) {
    const json_t *thinking = field_present(body, "thinking");
    const char *type = field_word(thinking, "type");
    if (!thinking) return 0;
    if (!type) return err_set(err, COHORT_E_ARGUMENT, "thinking", "thinking must be an object with a \"type\"");
    if (strcmp(type, "disabled") == 0) {
        asked->reasoning = COHORT_REASONING_OFF;
        return 0;
    }
    int enabled = strcmp(type, "enabled") == 0;
    if (!enabled && strcmp(type, "adaptive") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, "thinking",
                       "thinking.type is \"%.64s\"; it must be \"enabled\", \"adaptive\" or \"disabled\"", type);
    if (asked->go_on)
        return err_set(err, COHORT_E_ARGUMENT, "thinking",
                       "thinking cannot be had where the last message is the beginning of the answer");
    asked->reasoning = COHORT_REASONING_ON;
    asked->may_reason = !enabled;
    int rc = read_display(asked, thinking, err);
    return rc || !enabled ? rc : read_budget(asked, body, thinking, err);
}

/* ---- the output ---- */

static int read_format(struct asked *asked, const json_t *format, const char *place, cohort_error *err) {
    const char *type = field_word(format, "type");
    const json_t *schema = json_object_get(format, "schema");
    if (!type) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object with a \"type\"", place);
    if (strcmp(type, "json_schema") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.type is \"%.64s\"; it must be \"json_schema\"", place,
                       type);
    if (!json_is_object(schema)) return err_set(err, COHORT_E_ARGUMENT, place, "%s.schema must be an object", place);
    asked->schema = schema;
    asked->form_field = place;
    return 0;
}

static int read_output(struct asked *asked, const json_t *body, cohort_error *err) {
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
    const json_t *config = field_present(body, "output_config"), *format = field_present(body, "output_format");
    const json_t *effort = field_present(config, "effort"), *inner = field_present(config, "format");
    const char *name;
    json_t *value;
    if (config && !json_is_object(config))
        return err_set(err, COHORT_E_ARGUMENT, "output_config", "output_config must be an object, not %s",
                       field_type(config));
    json_object_foreach((json_t *)config, name, value) {
        if (strcmp(name, "effort") == 0 || strcmp(name, "format") == 0 || json_is_null(value)) continue;
        return err_set(err, COHORT_E_UNSUPPORTED, "output_config", "output_config.%.64s cannot be done here", name);
    }
    if (effort && !is_word(field_word(config, "effort"), efforts, 5))
        return err_set(err, COHORT_E_ARGUMENT, "output_config",
                       "output_config.effort must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
    asked->effort = field_word(config, "effort");
    if (inner && format)
        return err_set(err, COHORT_E_ARGUMENT, "output_format",
                       "output_format and output_config.format say the same: one of them is enough");
    if (inner) return read_format(asked, inner, "output_config.format", err);
    return format ? read_format(asked, format, "output_format", err) : 0;
}

int anthropic_ask(const json_t *body, struct asked *out, cohort_error *err) {
    *out = (struct asked){0};
    int rc = anthropic_chat(body, &out->messages, &out->go_on, err);
    if (!rc) rc = read_tools(out, body, err);
    if (!rc) rc = read_thinking(out, body, err);
    if (!rc) rc = read_output(out, body, err);
    if (rc) asked_free(out);
    return rc;
}
