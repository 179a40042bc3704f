/* The fake engine's state (sim_play.c), which the canaries change behind its back (sim_canary.c). */
#ifndef SIM_PLAY_H
#define SIM_PLAY_H

#include "sim_account.h"

struct request {
    struct account_row row;
    struct sim_task task;
    uint32_t place;        /* in play.live */
    uint32_t *read, heard; /* tokens that the engine has read, */
    uint32_t got;          /* and of them those before its end */
    uint32_t slot;         /* the last sample */
    uint64_t scores;
    uint64_t wake_at, finish_at, ended_commit;
    uint8_t closing, ended, spoilt; /* spoilt: a launch of it failed */
};

struct launch {
    const struct plan *plan;
    uint32_t *samples;
    int ran, failed;
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
    uint32_t left;
    uint64_t now, commits, hold_until;
    uint32_t check_every, idle_turns;
    int closed, bitten; /* bitten: the canary has done its one deed */
};

#endif
