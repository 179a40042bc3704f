/* Reasoning (thinking.h). An answer without reasoning has a budget of any size for it. */
#include "api/thinking.h"

#include <string.h>

#include "base/err.h"
#include "server/fields.h"
#include "server/http.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int thinking_effort(struct call *call, const char *word, const char *field, cohort_error *err) {
    static const char *const words[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
    cohort_chat *chat = &call->params.chat.chat;
    cohort_model_info info;
    if (word && strcmp(word, "none") == 0) {
        chat->reasoning = COHORT_REASONING_OFF;
        return 0;
    }
    for (size_t i = 0; i < COUNT(words) && word; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        cohort_model_get_info(server_model(call->server), &info);
        if (!info.chat_reasoning && !chat->chat_template)
            return err_set(err, COHORT_E_UNSUPPORTED, field, "%s: this model does not reason before it answers", field);
        chat->reasoning = COHORT_REASONING_ON;
        chat->effort = words[i];
        return 0;
    }
    return err_set(err, COHORT_E_ARGUMENT, field,
                   "%s must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"", field);
}

void thinking_budget(struct call *call, int64_t tokens, const char *field) {
    call->params.reasoning_budget = tokens < 0 ? UINT32_MAX : (uint32_t)tokens;
    call->params.budget_field = field;
}

int thinking_read(struct call *call, const json_t *body, cohort_error *err) {
    static const char *const budgets[] = {"thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"};
    const json_t *effort = field_present(body, "reasoning_effort");
    int rc = effort ? thinking_effort(call, field_word(body, "reasoning_effort"), "reasoning_effort", err) : 0;
    for (size_t i = 0; i < COUNT(budgets) && !rc; i++) {
        int64_t tokens = -1;
        rc = field_integer(body, budgets[i], -1, INT32_MAX, &tokens, err);
        if (!rc && field_present(body, budgets[i])) thinking_budget(call, tokens, budgets[i]);
    }
    return rc;
}
