/* Work of the caller's at iteration boundaries, and the admission hold. API threads add, cancel and hold; the engine
 * thread runs everything, also what is told that it never will run, so that a task's `run` is always called there, once
 * and without a lock.
 *
 *   added --READ: the next boundary, EXCLUSIVE: its turn has come and nothing is admitted--> run(OK)
 *     +-----cancelled: the next boundary-------------------------------------------------> run(E_CANCELLED)
 *     +-----the engine closes or fails---------------------------------------------------> run(E_CLOSED)
 *
 * Admission is held while the user wants it held or an exclusive task waits. Exclusive tasks run in the order in which
 * they were added; those added while one runs begin their own hold at the next boundary, so that admission always goes
 * on between them. */
#ifndef ENGINE_TASKS_H
#define ENGINE_TASKS_H

#include <stdint.h>

#include "cohort/cohort.h"

struct cohort_engine;

struct task {
    uint64_t id;
    int kind, cancelled;
    void (*run)(void *user, int code);
    void *user;
};

struct tasks {                          /* under engine.lock, but for `held` */
    struct task list[COHORT_TASKS_MAX]; /* in the order in which they were added; stays in it until `run` returned */
    uint32_t n;
    uint64_t added; /* tasks so far: the last one's id */
    int user_hold;
    int news; /* something the engine thread has not looked at */
    int held; /* engine thread: what the scheduler was told */
};

/* At a boundary, before the next plan: runs what may run, and holds or lets go of admission. Engine thread. */
void tasks_boundary(struct cohort_engine *e);
/* The engine closes or fails: tells every task so. No more can be added. Engine thread. */
void tasks_end(struct cohort_engine *e);
/* Whether tasks_boundary has something to do. Engine thread, under lock. */
int tasks_due(const struct cohort_engine *e);

#endif
