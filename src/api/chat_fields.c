/* Fields of a chat (chat_fields.h). */
#include "api/chat_fields.h"

#include <string.h>

#include "base/err.h"
#include "server/fields.h"

int chat_fields_ending(cohort_chat *chat, const json_t *body, const json_t *messages, cohort_error *err) {
    int open = 1, go_on = 0;
    int rc = field_bool(body, "continue_final_message", &go_on, err);
    if (!rc) rc = field_bool(body, "add_generation_prompt", &open, err);
    chat->ending = open;
    if (rc || !go_on) return rc;
    if (field_present(body, "add_generation_prompt") && open)
        return err_set(err, COHORT_E_ARGUMENT, "continue_final_message",
                       "continue_final_message and add_generation_prompt cannot both be true");
    size_t n = json_array_size(messages);
    const char *role = json_string_value(json_object_get(json_array_get(messages, n - 1), "role"));
    if (n < 2 || !role || strcmp(role, "assistant") != 0)
        return err_set(err, COHORT_E_ARGUMENT, "continue_final_message",
                       "continue_final_message needs an assistant's message at the end, and others before it");
    chat->ending = COHORT_CHAT_CONTINUE;
    return 0;
}

int chat_fields_template(struct chat_params *c, const struct server_options *options, const json_t *body,
                         cohort_error *err) {
    const json_t *variables = field_present(body, "chat_template_kwargs"),
                 *given = field_present(body, "chat_template");
    if (given && !json_is_string(given))
        return err_set(err, COHORT_E_ARGUMENT, "chat_template", "chat_template must be a string, not %s",
                       field_type(given));
    if (given && !options->request_templates)
        return err_set(err, COHORT_E_UNSUPPORTED, "chat_template",
                       "chat_template: this server takes no templates from requests (--allow-request-templates)");
    c->chat.chat_template = json_string_value(given);
    c->chat.chat_template_n = json_string_length(given);
    if (!variables) return 0;
    if (!json_is_object(variables))
        return err_set(err, COHORT_E_ARGUMENT, "chat_template_kwargs", "chat_template_kwargs must be an object, not %s",
                       field_type(variables));
    return json_object_size(variables) ? chat_params_variables(c, variables, err) : 0;
}
