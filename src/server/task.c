/* Tasks (task.h). Loop thread. Invariant: a task between task_start and `done` is counted in tasks_n and among the
 * replies that are owed; it is freed at `done` and nowhere else, so a client that leaves only empties its sink. */
#include "server/task.h"

#include <event2/buffer.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"

static void client_gone(struct sink *sink) {
    struct task *task = (struct task *)((char *)sink - offsetof(struct task, sink));
    atomic_store(&task->gone, 1);
}

static void drained(struct sink *sink) { (void)sink; }

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
    task->sink = (struct sink){.server = server, .http = http, .gone = client_gone, .drained = drained};
    task->bytes = TASK_BYTES_OF_BODY * evbuffer_get_length(evhttp_request_get_input_buffer(http));
    task->tenant = (uint32_t)server_tenant_of(server, http);
    return task;
}

static void work(struct pool_job *job) {
    struct task *task = (struct task *)job;
    if (!atomic_load(&task->gone)) task->work(task);
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
    server->tasks_bytes -= task->bytes;
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
    int full =
        server->tasks_n >= TASKS_MAX || (server->tasks_n > 0 && server->tasks_bytes + task->bytes > TASKS_BYTES_MAX);
    int rc = full ? err_set(&error, COHORT_E_BUSY, NULL, "%d requests wait for the server's helpers", server->tasks_n)
                  : sink_watch(&task->sink, &error);
    if (rc) {
        task_refuse(task, &error);
        return;
    }
    task->job.work = work;
    task->job.done = done;
    server->tasks_n++;
    server->tasks_bytes += task->bytes;
    server->replies_open++;
    task->pool = which == TASK_JOURNAL ? server->journal_pool : server->task_pool;
    pool_add(task->pool, &task->job);
}
