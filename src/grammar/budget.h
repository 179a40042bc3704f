/* Limits of one piece of work in C++: while a scope is open on a thread, every operator new of that thread counts
 * against its budget, and throws when it is spent. Counts come first, since they are the same each time; processor time
 * is the backstop. Also the test hook that fails the nth allocation. */
#ifndef GRAMMAR_BUDGET_H
#define GRAMMAR_BUDGET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Test hook: the nth operator new within a budget from now on fails, once, on any thread. 0: off. */
void grammar_fail_at(uint64_t nth);
/* Bytes that operator new gave within budgets and that are not freed. */
int64_t grammar_held(void);
uint64_t grammar_allocations(void); /* within budgets, so far */

#ifdef __cplusplus
}

#include <new>

namespace cohort {

enum class spent { nothing, steps, bytes, time, stack, memory /* the system has no more */ };

struct budget {
    int64_t bytes_max;
    uint64_t steps_max;  /* allocations */
    uint64_t cpu_ns_max; /* of the thread, from when the scope opened */
    uintptr_t stack_end; /* frames below this address are too deep; 0: not looked at */
    int64_t held;        /* bytes; of all scopes of this budget */
    uint64_t steps;      /* in this scope */
    uint64_t cpu_end;
    spent what;
};

class out_of_budget : public std::bad_alloc {
  public:
    const char *what() const noexcept override { return "a limit is reached"; }
};

/* Work under `b`, on this thread, until the scope ends. Scopes do not nest. */
class budget_scope {
  public:
    explicit budget_scope(budget *b);
    ~budget_scope();
    budget_scope(const budget_scope &) = delete;
    budget_scope &operator=(const budget_scope &) = delete;

  private:
    budget *b_;
    int64_t held_before_;
};

/* For loops that allocate nothing: throws if the time is over. */
void budget_check();

} // namespace cohort
#endif
#endif
