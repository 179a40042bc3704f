/* Tasks (task.h). Loop thread. Invariant: a task between task_start and `done` is counted in tasks_n and among the
 * replies that are owed; it is freed at `done` and nowhere else, so a client that leaves only empties its sink. */
#include "server/task.h"

#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"

static void client_gone(struct sink *sink) { (void)sink; }

static void task_free(struct task *task) {
    if (task->forget) task->forget(task);
    mem_free(task);
}

void *task_new(struct server *server, struct evhttp_request *http, size_t size) {
    struct task *task = mem_zalloc(1, size);
    if (!task) {
        cohort_error error = {0};
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the request");
        reply_error(server, http, &error);
        return NULL;
    }
    task->server = server;
    task->sink = (struct sink){.server = server, .http = http, .gone = client_gone, .drained = client_gone};
    task->tenant = (uint32_t)server_tenant_of(server, http);
    return task;
}

static void work(struct pool_job *job) {
    struct task *task = (struct task *)job;
    task->work(task);
}

static void done(struct pool_job *job) {
    struct task *task = (struct task *)job;
    struct server *server = task->server;
    if (task->sink.http && server->stopping)
        err_set(&task->error, COHORT_E_CLOSED, NULL, "the server is shutting down");
    if (task->sink.http && task->error.code)
        sink_error(&task->sink, &task->error);
    else if (task->sink.http)
        task->answer(task);
    if (task->again && task->sink.http) {
        task->again = 0;
        pool_add(task->pool, job);
        return;
    }
    server->tasks_n--;
    server->replies_open--;
    task_free(task);
}

void task_refuse(struct task *task, const cohort_error *error) {
    sink_error(&task->sink, error);
    task_free(task);
}

void task_start(struct task *task, enum task_pool which) {
    struct server *server = task->server;
    cohort_error error = {0};
    int rc = server->tasks_n >= TASKS_MAX
                 ? err_set(&error, COHORT_E_BUSY, NULL, "%d requests wait for the server's helpers", TASKS_MAX)
                 : sink_watch(&task->sink, &error);
    if (rc) {
        task_refuse(task, &error);
        return;
    }
    task->job.work = work;
    task->job.done = done;
    server->tasks_n++;
    server->replies_open++;
    task->pool = which == TASK_JOURNAL ? server->journal_pool : server->pool;
    pool_add(task->pool, &task->job);
}
