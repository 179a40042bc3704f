/* The fake engine's state (sim_play.c), which the canaries change behind its back (sim_canary.c). */
#ifndef SIM_PLAY_H
#define SIM_PLAY_H

#include "sim_account.h"

struct request {
    struct account_row row;
    struct sim_task task;
    uint32_t place; /* in play.live */
    uint32_t heard; /* generated tokens that the engine has read, */
    uint32_t got;   /* and of them those before its end */
    uint32_t slot;  /* the last sample */
    uint64_t scores;
    uint64_t wake_at, finish_at, ended_commit;
    uint8_t closing, ended, spoilt; /* spoilt: a launch of it failed */
};

struct launch {
    const struct plan *plan;
    uint32_t *samples;
    int ran, failed;
};

/* A copy of a block on the fake disk. */
struct sim_copy {
    uint64_t *values[PAGES_GROUPS_MAX]; /* of PAGE_TOKENS positions */
    uint32_t groups;
    int used;
};

struct sim_load {
    sched_row row;
    uint64_t due;
    uint32_t n;
    struct sched_load_block *blocks;
};

enum { SPARE = 4 };

struct play {
    struct sim_rng rng;
    enum sim_canary canary;
    struct sim_totals *totals;
    struct sched_config config;
    struct sim_habits habits;
    struct sched *s;
    struct sim_model model;
    struct account account;
    struct request **by_index, **live;
    sched_row *names; /* the last of each index */
    uint32_t live_n;
    sched_row spare[SPARE]; /* reserved places not used yet */
    uint32_t spare_n;
    struct launch launch[SCHED_IN_FLIGHT];
    uint32_t launched;
    struct plan_item *unread; /* of the last committed plan, until it is read */
    uint32_t *unread_samples, unread_n;
    struct sim_library library;
    struct sim_copy *disk; /* habits.disk of them; a block's `where` is its index + 1 */
    uint32_t disk_n, disk_next;
    struct sim_load *loads;
    uint32_t loads_n;
    sched_row *orphans; /* before the plan: rows whose leader is gone, in order */
    uint32_t orphans_n;
    uint64_t stamp; /* of the store, before the plan */
    uint32_t left;
    uint64_t now, commits, hold_until;
    uint32_t check_every, idle_turns;
    int closed, bitten; /* bitten: the canary has done its one deed */
};

/* ---- sim_store.c: what there is beside when rows share ---- */
void store_new(struct play *p);
void store_free(struct play *p);
void store_plan(struct play *p);    /* before sched_plan */
void store_planned(struct play *p); /* after sched_plan: what it did is seen to follow the rules */
/* Then, when the account knows the plan: copies and loads are done and begun. 1: a load failed at once. */
int store_move(struct play *p);
void store_drop(struct play *p); /* maybe a space, whoever has it */
/* What the failed launch may have written. */
void store_spoil(struct play *p, const struct plan *plan);
/* After any other call, and when the account knows the plan: rows that waited may have gone on. */
void store_sync(struct play *p);
void store_spill(struct play *p);
void store_load(struct play *p); /* loads that are done are told */
void store_say(struct play *p, const struct sim_task *task);

#endif
