/* Tasks and the admission hold (tasks.h). The list is short and is walked under engine.lock; `run` is called without
 * it, so that a task can use the engine. A task keeps its place in the list while it runs: an engine with one is not
 * idle, and a cancel finds it too late. */
#include "engine/tasks.h"

#include <assert.h>
#include <string.h>

#include "engine/internal.h"

/* ---- under lock ---- */

static struct task *find(struct tasks *t, uint64_t id) {
    for (uint32_t i = 0; i < t->n; i++)
        if (t->list[i].id == id) return &t->list[i];
    return NULL;
}

static const struct task *first_exclusive(const struct tasks *t) {
    for (uint32_t i = 0; i < t->n; i++)
        if (t->list[i].kind == COHORT_TASK_EXCLUSIVE && !t->list[i].cancelled) return &t->list[i];
    return NULL;
}

static void wake(struct cohort_engine *e) {
    e->tasks.news = 1;
    pthread_cond_signal(&e->wake);
}

/* Nothing is admitted any more, and everything that ran was delivered. */
static int is_drained(const struct cohort_engine *e) {
    struct sched_counts counts;
    sched_get_counts(e->sched, &counts);
    uint32_t in = counts.preparing + counts.running + counts.preempted + counts.returning + counts.ending;
    return !e->unread && in + counts.in_flight == 0;
}

int tasks_due(const struct cohort_engine *e) {
    return e->tasks.news || (e->tasks.held && first_exclusive(&e->tasks) && is_drained(e));
}

/* The oldest of the tasks up to number `last` that can run now or never will. */
static struct task *next_due(struct cohort_engine *e, uint64_t last, int drained) {
    struct tasks *t = &e->tasks;
    const struct task *exclusive = first_exclusive(t);
    for (uint32_t i = 0; i < t->n && t->list[i].id <= last; i++)
        if (t->list[i].cancelled || t->list[i].kind == COHORT_TASK_READ || (drained && &t->list[i] == exclusive))
            return &t->list[i];
    return NULL;
}

static void forget(struct cohort_engine *e, uint64_t id) {
    struct tasks *t = &e->tasks;
    struct task *task = find(t, id);
    assert(task);
    memmove(task, task + 1, (size_t)(&t->list[--t->n] - task) * sizeof(*task));
    if (t->n == 0) pthread_cond_broadcast(&e->idle);
}

/* Lets go of the lock while it runs. */
static void run(struct cohort_engine *e, struct task *task, int code) {
    struct task copy = *task;
    task->run = NULL; /* it has begun */
    if (copy.cancelled) code = COHORT_E_CANCELLED;
    pthread_mutex_unlock(&e->lock);
    copy.run(copy.user, code);
    if (code == COHORT_OK) metrics_task(e);
    pthread_mutex_lock(&e->lock);
    forget(e, copy.id);
}

/* ---- engine thread ---- */

static void hold(struct cohort_engine *e, int wanted) {
    if (wanted == e->tasks.held) return;
    e->tasks.held = wanted;
    sched_hold(e->sched, wanted);
}

void tasks_boundary(struct cohort_engine *e) {
    struct tasks *t = &e->tasks;
    pthread_mutex_lock(&e->lock);
    t->news = 0;
    uint64_t last = t->added;
    /* A hold that begins here has let nothing in since: what is admitted was so before the task came. */
    if (first_exclusive(t)) hold(e, 1);
    int drained = t->held && is_drained(e);
    struct task *task;
    while ((task = next_due(e, last, drained)) != NULL) run(e, task, COHORT_OK);
    const struct task *exclusive = first_exclusive(t);
    hold(e, t->user_hold || (exclusive && exclusive->id <= last));
    pthread_mutex_unlock(&e->lock);
}

void tasks_end(struct cohort_engine *e) {
    pthread_mutex_lock(&e->lock);
    assert(e->draining || e->stopping);
    while (e->tasks.n) run(e, &e->tasks.list[0], COHORT_E_CLOSED);
    e->tasks.news = 0;
    pthread_mutex_unlock(&e->lock);
}

/* ---- the public half ---- */

int cohort_task_add(struct cohort_engine *e, int kind, void (*run_it)(void *user, int code), void *user,
                    cohort_task *out, cohort_error *err) {
    int code = 0;
    uint64_t id = 0;
    if (out) *out = 0;
    if (kind != COHORT_TASK_READ && kind != COHORT_TASK_EXCLUSIVE)
        return err_set(err, COHORT_E_ARGUMENT, "kind", "kind is %d, which is no kind of task", kind);
    if (!run_it) return err_set(err, COHORT_E_ARGUMENT, "run", "a task needs a function");
    pthread_mutex_lock(&e->lock);
    struct tasks *t = &e->tasks;
    if (e->draining) {
        code = inbox_closed_error(e, err);
    } else if (t->n == COHORT_TASKS_MAX) {
        code = err_set(err, COHORT_E_BUSY, NULL, "%d tasks have not run yet", COHORT_TASKS_MAX);
    } else {
        id = ++t->added;
        t->list[t->n++] = (struct task){.id = id, .kind = kind, .run = run_it, .user = user};
        wake(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (out) *out = id;
    return code;
}

void cohort_task_cancel(struct cohort_engine *e, cohort_task id) {
    pthread_mutex_lock(&e->lock);
    struct task *task = id ? find(&e->tasks, id) : NULL;
    if (task && task->run) {
        task->cancelled = 1;
        wake(e);
    }
    pthread_mutex_unlock(&e->lock);
}

void cohort_engine_hold(struct cohort_engine *e, int wanted) {
    pthread_mutex_lock(&e->lock);
    if (e->tasks.user_hold != (wanted != 0) && !e->failure.code) {
        e->tasks.user_hold = wanted != 0;
        wake(e);
    }
    pthread_mutex_unlock(&e->lock);
}
