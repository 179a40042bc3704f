/* The compute team: every tile once, phases in order, jobs in order, idle means asleep, its own floating-point mode;
 * and the CPU limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cpu/quota.h"
#include "backend/cpu/team.h"
#include "base/mem.h"

enum { TILES_MAX = 64 };

/* A job whose phases have varying tile counts; every tile adds to plain memory of its own, checked by the next
 * advance: a lost, doubled or late tile shows, and TSan sees an unordered one. */
struct trial {
    struct team_job job;
    uint32_t phases, phase, tiles;
    uint32_t ran[TILES_MAX];
    int failures;
    uint32_t *order, order_index; /* shared between jobs */
    unsigned threads;
};

static uint32_t trial_advance(void *user, unsigned thread) {
    struct trial *t = user;
    t->failures += thread >= t->threads;
    for (uint32_t i = 0; i < t->tiles; i++) t->failures += t->ran[i] != t->phase;
    if (t->phase == t->phases) {
        if (t->order) t->failures += (*t->order)++ != t->order_index;
        return 0;
    }
    t->phase++;
    t->tiles = 1 + (t->phase * 7919 + t->phases) % TILES_MAX;
    for (uint32_t i = 0; i < t->tiles; i++) t->ran[i] = t->phase - 1;
    return t->tiles;
}

static void trial_tile(void *user, uint32_t tile, unsigned thread) {
    struct trial *t = user;
    if (tile < t->tiles) t->ran[tile]++;
}

static struct trial trial_make(uint32_t phases, unsigned threads) {
    return (struct trial){.job = {.advance = trial_advance, .tile = trial_tile}, .phases = phases, .threads = threads};
}

static void every_tile_once(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct team *team;
        assert_int_equal(team_new(threads, &team, NULL), 0);
        assert_int_equal(team_threads(team), threads);
        for (uint32_t phases = 0; phases < 2000; phases = phases * 3 + 1) {
            struct trial t = trial_make(phases, threads);
            t.job.user = &t;
            assert_int_equal(team_post(team, &t.job), 0);
            team_wait(team, &t.job);
            assert_true(team_done(&t.job));
            assert_int_equal(t.failures, 0);
            assert_int_equal(t.phase, phases);
        }
        team_free(team);
    }
}

static void jobs_in_order(void **state) {
    (void)state;
    struct team *team;
    assert_int_equal(team_new(3, &team, NULL), 0);
    uint32_t order = 0;
    struct trial t[TEAM_JOBS_MAX];
    for (int round = 0; round < 50; round++) {
        order = 0;
        for (uint32_t i = 0; i < TEAM_JOBS_MAX; i++) {
            t[i] = trial_make(i % 5, 3);
            t[i].job.user = &t[i];
            t[i].order = &order;
            t[i].order_index = i;
            assert_int_equal(team_post(team, &t[i].job), 0);
        }
        for (uint32_t i = 0; i < TEAM_JOBS_MAX; i++) {
            team_wait(team, &t[i].job);
            assert_int_equal(t[i].failures, 0);
        }
    }
    team_free(team);
}

static uint32_t slow_advance(void *user, unsigned thread) {
    int *left = user;
    struct timespec nap = {.tv_nsec = 30 * 1000 * 1000};
    nanosleep(&nap, NULL);
    return (uint32_t)((*left)-- > 0);
}
static void slow_tile(void *user, uint32_t tile, unsigned thread) {}

static void full_queue_and_timed_wait(void **state) {
    (void)state;
    struct team *team;
    assert_int_equal(team_new(2, &team, NULL), 0);
    int left[TEAM_JOBS_MAX + 2];
    struct team_job jobs[TEAM_JOBS_MAX + 2];
    memset(jobs, 0, sizeof jobs);
    int posted = 0;
    for (int i = 0; i < TEAM_JOBS_MAX + 2; i++) {
        left[i] = i == 0;
        jobs[i].advance = slow_advance;
        jobs[i].tile = slow_tile;
        jobs[i].user = &left[i];
        if (team_post(team, &jobs[i])) break;
        posted++;
    }
    assert_in_range(posted, TEAM_JOBS_MAX, TEAM_JOBS_MAX + 1); /* one may have left the queue already */
    assert_int_equal(team_wait_ms(team, &jobs[posted - 1], 1), 0);
    assert_int_equal(team_wait_ms(team, &jobs[0], 10000), 1);
    team_wait(team, &jobs[posted - 1]);
    team_free(team);
}

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void idle_is_asleep(void **state) {
    (void)state;
    struct team *team;
    assert_int_equal(team_new(4, &team, NULL), 0);
    struct trial t = trial_make(100, 4);
    t.job.user = &t;
    assert_int_equal(team_post(team, &t.job), 0);
    team_wait(team, &t.job);
    struct timespec nap = {.tv_nsec = 300 * 1000 * 1000};
    nanosleep(&nap, NULL);
    double before = cpu_seconds();
    nanosleep(&nap, NULL);
    assert_true(cpu_seconds() - before < 0.003); /* 1 % of 0.3 s */
    team_free(team);
}

/* What a phase writes other threads read in the next: sums over a shared array, in plain memory. */
struct relay {
    struct team_job job;
    uint32_t round;
    uint64_t a[TILES_MAX], b[TILES_MAX];
};
static uint32_t relay_advance(void *user, unsigned thread) {
    struct relay *r = user;
    return r->round++ < 2000 ? TILES_MAX : 0;
}
static void relay_tile(void *user, uint32_t tile, unsigned thread) {
    struct relay *r = user;
    const uint64_t *from = r->round % 2 ? r->a : r->b;
    uint64_t *to = r->round % 2 ? r->b : r->a;
    to[tile] = from[(tile + 1) % TILES_MAX] * 3 + from[(tile + 17) % TILES_MAX] + tile;
}

static void phases_see_each_other(void **state) {
    (void)state;
    struct relay alone = {.job = {.advance = relay_advance, .tile = relay_tile}}, shared = alone;
    while (relay_advance(&alone, 0))
        for (uint32_t i = 0; i < TILES_MAX; i++) relay_tile(&alone, i, 0);
    struct team *team;
    assert_int_equal(team_new(4, &team, NULL), 0);
    shared.job.user = &shared;
    assert_int_equal(team_post(team, &shared.job), 0);
    team_wait(team, &shared.job);
    assert_memory_equal(alone.a, shared.a, sizeof alone.a);
    assert_memory_equal(alone.b, shared.b, sizeof alone.b);
    team_free(team);
}

/* Denormal numbers become zero, and roundings go up; a new thread begins with what its maker has. */
static void float_mode_spoil(void) {
#if defined(__x86_64__)
    __asm__ volatile("ldmxcsr %0" : : "m"((uint32_t){0x1f80 | 0x8040 | 0x4000}));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 24 | (uint64_t)1 << 22));
#endif
}

struct arithmetic {
    struct team_job job;
    volatile float tiny, third; /* 2^-127 and 1 / 3 */
    int phases;
};

static uint32_t arithmetic_advance(void *user, unsigned thread) {
    struct arithmetic *a = user;
    return (uint32_t)(a->phases-- > 0);
}

static void arithmetic_tile(void *user, uint32_t tile, unsigned thread) {
    struct arithmetic *a = user;
    volatile float half = 0.5f, smallest = 0x1p-126f, one = 1, minus_three = -3;
    a->tiny = smallest * half;
    a->third = one / minus_three; /* nearest is away from zero, thus down */
}

static void threads_have_the_default_float_mode(void **state) {
    struct team *team;
    struct arithmetic a = {.job = {.advance = arithmetic_advance, .tile = arithmetic_tile, .user = &a}, .phases = 1};
    arithmetic_tile(&a, 0, 0);
    float tiny = a.tiny, third = a.third;
    assert_true(tiny == 0x1p-127f);
    a.tiny = a.third = 0;
    float_mode_spoil();
    arithmetic_tile(&a, 0, 0);
    int code = team_new(1, &team, NULL);
    team_float_mode();
    assert_int_equal(code, 0);
#if defined(__x86_64__) || defined(__aarch64__)
    assert_true(a.tiny == 0 && a.third > third);
#endif
    assert_int_equal(team_post(team, &a.job), 0);
    team_wait(team, &a.job);
    assert_memory_equal((const void *)&a.tiny, &tiny, sizeof tiny);
    assert_memory_equal((const void *)&a.third, &third, sizeof third);
    team_free(team);
}

/* Waiting threads fetch what is no longer mapped, and what never was. */
struct fetcher {
    struct team_job job;
    struct team *team;
    void *gone;
    int phases;
};

static uint32_t fetcher_advance(void *user, unsigned thread) {
    struct fetcher *f = user;
    team_fetch_ahead(f->team, f->phases % 2 ? f->gone : (void *)4096, 1 << 24);
    return f->phases-- > 0 ? 2 : 0;
}

static void fetcher_tile(void *user, uint32_t tile, unsigned thread) {
    struct timespec nap = {.tv_nsec = 200 * 1000};
    if (tile) nanosleep(&nap, NULL);
}

static void fetched_memory_may_be_gone(void **state) {
    struct fetcher f = {.job = {.advance = fetcher_advance, .tile = fetcher_tile, .user = &f}, .phases = 40};
    f.gone = mem_map(1 << 24);
    assert_non_null(f.gone);
    mem_unmap(f.gone, 1 << 24);
    assert_int_equal(team_new(4, &f.team, NULL), 0);
    assert_int_equal(team_post(f.team, &f.job), 0);
    team_wait(f.team, &f.job);
    team_free(f.team);
}

static void failed_allocations(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct team *team = NULL;
        cohort_error err;
        mem_fail_at(nth, 0);
        assert_int_equal(team_new(2, &team, &err), COHORT_E_MEMORY);
        mem_fail_at(0, 0);
        assert_null(team);
    }
}

/* ---- CPU limits ---- */

static char folder[64];

static void file_write(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
static void folder_make(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}
static int limits_setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/cohort-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int limits_teardown(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
static unsigned limit_now(void) {
    char membership[128];
    snprintf(membership, sizeof membership, "%s/membership", folder);
    return quota_cgroup(membership, folder);
}

static void limits_version_2(void **state) {
    (void)state;
    assert_int_equal(limit_now(), 0); /* no membership file */
    file_write("membership", "0::/a/b\n");
    assert_int_equal(limit_now(), 0);
    folder_make("a");
    folder_make("a/b");
    file_write("a/b/cpu.max", "max 100000\n");
    assert_int_equal(limit_now(), 0);
    file_write("a/b/cpu.max", "350000 100000\n");
    assert_int_equal(limit_now(), 3); /* rounded down */
    file_write("a/cpu.max", "200000 100000\n");
    assert_int_equal(limit_now(), 2); /* the group above is stricter */
    file_write("cpu.max", "50000 100000\n");
    assert_int_equal(limit_now(), 1); /* at least one */
    file_write("membership", "0::/not/here\n");
    assert_int_equal(limit_now(), 1); /* a container sees only the root */
    file_write("cpu.max", "garbage");
    assert_int_equal(limit_now(), 0);
    file_write("cpu.max", "100000 0");
    assert_int_equal(limit_now(), 0);
}

static void limits_version_1(void **state) {
    (void)state;
    file_write("membership", "5:cpuset:/x\n4:cpu,cpuacct:/job\n3:memory:/job\n");
    folder_make("cpu,cpuacct");
    folder_make("cpu,cpuacct/job");
    file_write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    file_write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(limit_now(), 0);
    file_write("cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(limit_now(), 4);
    file_write("membership", "4:cpuacct:/job\n"); /* not the controller in question */
    assert_int_equal(limit_now(), 0);
    file_write("membership", "4:cpu:/job\n");
    folder_make("cpu");
    file_write("cpu/cpu.cfs_quota_us", "250000\n");
    file_write("cpu/cpu.cfs_period_us", "50000\n");
    assert_int_equal(limit_now(), 5);
}

static void default_threads(void **state) {
    (void)state;
    unsigned cpus = quota_cpus();
    assert_in_range(cpus, 1, (unsigned)sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(backend_cpus(), cpus < BACKEND_THREADS_MAX ? cpus : BACKEND_THREADS_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_once),
        cmocka_unit_test(jobs_in_order),
        cmocka_unit_test(full_queue_and_timed_wait),
        cmocka_unit_test(idle_is_asleep),
        cmocka_unit_test(phases_see_each_other),
        cmocka_unit_test(threads_have_the_default_float_mode),
        cmocka_unit_test(fetched_memory_may_be_gone),
        cmocka_unit_test(failed_allocations),
        cmocka_unit_test_setup_teardown(limits_version_2, limits_setup, limits_teardown),
        cmocka_unit_test_setup_teardown(limits_version_1, limits_setup, limits_teardown),
        cmocka_unit_test(default_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
