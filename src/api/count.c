/* Counting a chat's tokens, for the endpoints that tell no more of it (routes.h). */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/routes.h"
#include "api/tokens.h"
#include "base/err.h"
#include "server/task.h"

struct count {
    struct task task; /* first member */
    const cohort_model *model;
    char *messages;
    int go_on;
    const char *object; /* a literal */
    size_t n;
};

static void work(struct task *task) {
    struct count *count = (struct count *)task;
    cohort_prompt *prompt = NULL;
    cohort_prompt_info info;
    cohort_chat chat;
    cohort_chat_defaults(&chat);
    chat.messages = count->messages;
    chat.messages_n = strlen(count->messages);
    chat.ending = count->go_on ? COHORT_CHAT_CONTINUE : 1;
    chat.now_s = (int64_t)time(NULL);
    int rc = cohort_prompt_render(count->model, &chat, &prompt, &task->error);
    if (rc && !task->error.code) task->error.code = rc;
    if (!rc) {
        cohort_prompt_get(prompt, &info);
        count->n = info.n;
    }
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

static void forget(struct task *task) { free(((struct count *)task)->messages); }

void count_chat(struct server *server, struct evhttp_request *http, const json_t *chat, int go_on, const char *object) {
    struct count *count = task_new(server, http, sizeof *count);
    if (!count) return;
    cohort_error error = {0};
    count->task.work = work;
    count->task.answer = answer;
    count->task.forget = forget;
    count->model = server_model(server);
    count->go_on = go_on;
    count->object = object;
    count->messages = json_dumps(chat, JSON_COMPACT);
    if (!count->messages)
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the messages");
    else if (strlen(count->messages) > TOKENS_TEXT_MAX)
        err_set(&error, COHORT_E_LIMIT, NULL, "what is to be counted has more than %d bytes", TOKENS_TEXT_MAX);
    if (error.code)
        task_refuse(&count->task, &error);
    else
        task_start(&count->task, TASK_TOKENS);
}
