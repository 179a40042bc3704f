/* Counts what operator new gives while a budget is open on the thread, and throws when one of its limits is reached.
 * The operators are replaced for the whole program: outside of a budget they are malloc and free. */
#include "grammar/budget.h"

#include <malloc.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <exception>

namespace {

enum {
    STEPS_PER_CLOCK = 64, /* allocations between two looks at the clock ... */
    LARGE = 16 << 10 /* ... and one at each of so many bytes: what is as large as the vocabulary took long to fill */
};

thread_local cohort::budget *open_budget;
std::atomic<uint64_t> fail_in{0}, allocations{0};
std::atomic<int64_t> held{0};

uint64_t thread_ns() {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000U + static_cast<uint64_t>(t.tv_nsec);
}

/* What is spent is remembered, so that code that swallows the exception meets the next one. While one is on its way
 * nothing is refused: clearing up may need memory, and a second exception would end the process. */
void take(cohort::budget *b, size_t size) {
    if (b->what == cohort::spent::nothing) {
        if (++b->steps > b->steps_max)
            b->what = cohort::spent::steps;
        else if (b->held > b->bytes_max)
            b->what = cohort::spent::bytes;
        else if (reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < b->stack_end)
            b->what = cohort::spent::stack;
        else if ((b->steps % STEPS_PER_CLOCK == 0 || size >= LARGE) && thread_ns() > b->cpu_end)
            b->what = cohort::spent::time;
        else
            return;
    }
    if (std::uncaught_exceptions() == 0) throw cohort::out_of_budget();
}

bool fails_now() {
    uint64_t left = fail_in.load(std::memory_order_relaxed);
    while (left && !fail_in.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
    }
    return left == 1;
}

/* Streams swallow exceptions, and what they wrote is short then: so a budget remembers also that memory gave out. */
[[noreturn]] void give_up(cohort::budget *b) {
    if (b) b->what = cohort::spent::memory;
    throw std::bad_alloc();
}

void *allocate(size_t size, size_t alignment) {
    cohort::budget *b = open_budget;
    if (b) {
        take(b, size);
        if (fails_now() && std::uncaught_exceptions() == 0) give_up(b);
    }
    void *memory =
        alignment ? aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment) : malloc(size ? size : 1);
    if (!memory) give_up(b);
    if (b) b->held += static_cast<int64_t>(malloc_usable_size(memory));
    return memory;
}

void *allocate_or_null(size_t size, size_t alignment) noexcept {
    try {
        return allocate(size, alignment);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void release(void *memory) {
    if (open_budget && memory) open_budget->held -= static_cast<int64_t>(malloc_usable_size(memory));
    free(memory);
}

} // namespace

namespace cohort {

budget_scope::budget_scope(budget *b) : b_(b), held_before_(b->held) {
    b->steps = 0;
    b->what = spent::nothing;
    b->cpu_end = thread_ns() + b->cpu_ns_max;
    open_budget = b;
}

budget_scope::~budget_scope() {
    open_budget = nullptr;
    held.fetch_add(b_->held - held_before_, std::memory_order_relaxed);
    allocations.fetch_add(b_->steps, std::memory_order_relaxed);
}

void budget_check() {
    if (!open_budget || thread_ns() <= open_budget->cpu_end) return;
    open_budget->what = spent::time;
    throw out_of_budget();
}

} // namespace cohort

void grammar_fail_at(uint64_t nth) { fail_in.store(nth, std::memory_order_relaxed); }
int64_t grammar_held(void) { return held.load(std::memory_order_relaxed); }
uint64_t grammar_allocations(void) { return allocations.load(std::memory_order_relaxed); }

void *operator new(size_t size) { return allocate(size, 0); }
void *operator new[](size_t size) { return allocate(size, 0); }
void *operator new(size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void *operator new[](size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void *operator new(size_t size, const std::nothrow_t &) noexcept { return allocate_or_null(size, 0); }
void *operator new[](size_t size, const std::nothrow_t &) noexcept { return allocate_or_null(size, 0); }
void *operator new(size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return allocate_or_null(size, static_cast<size_t>(alignment));
}
void *operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return allocate_or_null(size, static_cast<size_t>(alignment));
}
void operator delete(void *memory) noexcept { release(memory); }
void operator delete[](void *memory) noexcept { release(memory); }
void operator delete(void *memory, size_t) noexcept { release(memory); }
void operator delete[](void *memory, size_t) noexcept { release(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void *memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void *memory, const std::nothrow_t &) noexcept { release(memory); }
void operator delete[](void *memory, const std::nothrow_t &) noexcept { release(memory); }
void operator delete(void *memory, std::align_val_t, const std::nothrow_t &) noexcept { release(memory); }
void operator delete[](void *memory, std::align_val_t, const std::nothrow_t &) noexcept { release(memory); }
