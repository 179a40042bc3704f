/* Counting a chat's tokens, for the endpoints that tell no more of it (routes.h). */
#include <time.h>

#include "api/routes.h"
#include "api/tokens.h"
#include "base/err.h"
#include "server/task.h"

struct count {
    struct task task; /* first member */
    const cohort_model *model;
    json_t *body; /* has texts of the chat */
    struct chat_params chat;
    const struct asked_names *names;
    const char *object; /* a literal */
    size_t n;
};

static void work(struct task *task) {
    struct count *count = (struct count *)task;
    cohort_prompt *prompt = NULL;
    cohort_prompt_info info;
    count->chat.chat.now_s = (int64_t)time(NULL);
    int rc = cohort_prompt_render(count->model, &count->chat.chat, &prompt, &task->error);
    if (rc && !task->error.code) task->error.code = rc;
    if (rc) {
        asked_name(count->names, &task->error);
        return;
    }
    cohort_prompt_get(prompt, &info);
    count->n = info.n;
    cohort_prompt_free(prompt);
}

static void answer(struct task *task) {
    const struct count *count = (const struct count *)task;
    char text[128];
    int n = count->object
                ? snprintf(text, sizeof text, "{\"object\":\"%s\",\"input_tokens\":%zu}", count->object, count->n)
                : snprintf(text, sizeof text, "{\"input_tokens\":%zu}", count->n);
    sink_json(&task->sink, 200, text, (size_t)n);
}

static void forget(struct task *task) {
    struct count *count = (struct count *)task;
    chat_params_deinit(&count->chat);
    json_decref(count->body);
}

void count_chat(struct server *server, struct evhttp_request *http, json_t *body, const struct asked *asked,
                const struct asked_names *names, const char *object) {
    struct count *count = task_new(server, http, sizeof *count);
    if (!count) return;
    cohort_error error = {0};
    count->task.work = work;
    count->task.answer = answer;
    count->task.forget = forget;
    count->model = server_model(server);
    count->body = json_incref(body);
    count->names = names;
    count->object = object;
    chat_params_init(&count->chat);
    int rc = asked_chat(asked, names, count->model, &count->chat, &error);
    if (!rc && count->chat.chat.messages_n + count->chat.chat.tools_n > TOKENS_TEXT_MAX)
        rc = err_set(&error, COHORT_E_LIMIT, NULL, "what is to be counted has more than %d bytes", TOKENS_TEXT_MAX);
    if (rc)
        task_refuse(&count->task, &error);
    else
        task_start(&count->task, TASK_TOKENS);
}
