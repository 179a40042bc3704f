/* The naive account: what the scheduler must do, said a second time and simply. It knows the rules of sched.h and
 * docs/SCHEDULER.md, keeps rows in plain arrays, adds everything up anew whenever it is asked, and shares no code with
 * src/sched. Three parts: it predicts who is preempted and who is admitted by the next plan (sim_account.c), and it
 * checks every item of that plan and what follows from many of them (sim_items.c), and it knows what iterations take
 * (sim_time.c). With a prefix store it does not predict what is shared, but sees what the scheduler does and whether
 * that follows the rules (sim_store.c). */
#ifndef SIM_ACCOUNT_H
#define SIM_ACCOUNT_H

#include "sim.h"

/* States of a row: after its last whole block, after its last token, and one for each plan in flight. */
enum { ACCOUNT_STATES = 2 + SCHED_IN_FLIGHT };

struct account_row {
    struct sched_request request;
    sched_row name;
    enum row_state state;
    uint32_t place; /* in the array it stands in, if that has no order */
    uint32_t chunk;
    uint64_t submitted;
    uint8_t paused, untold;                   /* admitted, and the engine was not told */
    uint8_t following, loading, told, orphan; /* told: the engine knows that it is to be loaded */
    uint32_t taken, cached, lead_until;
    struct account_row *leader; /* that it follows; NULL: nobody, or it has just lost it */
    uint32_t limit;             /* sim_items.c: of its next item */
    /* Recurrent groups: the blocks for which it has a state, ascending. */
    uint32_t branch; /* as the scheduler found it */
    uint32_t states[ACCOUNT_STATES], states_n;
    uint32_t next, done, reach, known, admitted, covered;
    uint32_t preemptions, redone, cuts_seen;
    uint32_t forced;  /* of the preemptions: it was paused, or everybody else had come again just now as well */
    uint32_t flying;  /* plans that name it */
    uint32_t stalls;  /* as the scheduler counts them */
    uint32_t without; /* plans in a row in which it had no room */
    uint32_t held[PAGES_GROUPS_MAX]; /* pages, once it was preempted or has ended */
};

struct account_list {
    struct account_row **at;
    uint32_t n;
};

struct account_tenant {
    struct sched_tenant limits;
    uint32_t present;
    int competes;
    uint64_t served;
    uint64_t passed; /* sim_items.c: tokens that passed it while it waits */
};
enum { ACCOUNT_TENANTS = 8 };

/* NOT_SAID: with a store. */
enum account_reason { FOR_ROOM, PAUSED_ONE, OWED_ONE, NOT_SAID };

struct account {
    const struct sched_config *config; /* as raised */
    struct account_tenant tenant[ACCOUNT_TENANTS];
    uint32_t tenants_n;
    /* in: preparing and running, in the order in which they came into their list (running, preparing, neither).
     * leaving: preempted or ending while plans name them. waiting, leaving: no order. gone: not popped yet, in order.
     * untold: admitted and not told of, in order. */
    struct account_list waiting, in, leaving, gone, untold, gave_way;
    struct account_list scratch, flight[SCHED_IN_FLIGHT]; /* rows of the plans in flight, by number */
    uint64_t submitted, preemptions, redone, cached;
    uint64_t pressed, pages_reached; /* preempted for room; pages that rows came to, one more for each row */
    uint32_t flying;                 /* plans */
    int hold;
    int recurs;         /* there is a recurrent group */
    uint32_t late_most; /* turns after its last token in which the engine finishes a row, at most */
    /* P9, index: decoding rows; beyond 128 the first of their sixteen */
    int64_t step_us[SCHED_ROWS_MAX + 1], guess_us[SCHED_ROWS_MAX + 1], token_ns, added_ns;
    /* The plan that was predicted last. */
    int calm;            /* nobody was short of room */
    int loading;         /* somebody loads, and does not give way */
    uint32_t admitted_n; /* rows that came in */
    uint32_t redo_plans; /* plans in a row that made nothing new */
    struct sim_totals *totals;
};

void account_init(struct account *a, const struct sched_config *config, uint32_t late_most, struct sim_totals *totals);
void account_clear(struct account *a);

/* ---- What happens (sim_account.c) ---- */
/* What sched_submit must say; sets row->chunk. */
int account_judge(const struct account *a, struct account_row *row);
void account_submit(struct account *a, struct account_row *row);
void account_finish(struct account *a, struct account_row *row);
void account_pause(struct account *a, struct account_row *row, int paused);
/* Who gives way and who comes in when sched_plan is called now. */
void account_predict(struct account *a);
/* The next of a list that has an order, NULL if there is none. */
struct account_row *account_take_first(struct account_list *list);

/* ---- What a plan must be (sim_items.c) ---- */
/* After account_predict: the plan that was made, or NULL. */
void account_plan(struct account *a, const struct plan *plan);
void account_commit(struct account *a, const struct plan *plan, uint32_t us);
/* After account_predict and sched_plan: who is in and who was preempted. */
void account_expect(const struct account *a, const struct sched *s);
/* The scheduler's own figures must be the account's. */
void account_compare(const struct account *a, const struct sched *s);

/* ---- Time (sim_time.c) ---- */
void account_note(struct account *a, const struct plan *plan, int64_t us);
struct account_allowance {
    uint32_t long_ones, all;
};
/* Prompt tokens for which a plan has time in which `rows` rows decode and `prompts` prepare: of those with long
 * prompts, and of all. */
struct account_allowance account_allow(const struct account *a, uint32_t rows, uint32_t prompts);
void account_compare_time(const struct account *a, uint32_t rows, const struct sched_counts *n);

/* ---- Shared between them ---- */
static inline uint32_t account_total(const struct account_row *r) { return r->request.prompt_n + r->request.max_new; }
/* Nothing is left to plan: its last token, or the end of its prompt if it makes none, is planned. */
static inline int account_spent(const struct account_row *r) {
    return r->next >= r->request.prompt_n && r->next + 1 >= account_total(r);
}
uint32_t account_rows(const struct account *a, uint32_t tenant); /* admitted ones */
/* Pages of a group that a row holds now. */
uint32_t account_held(const struct account *a, const struct account_row *r, uint32_t g);
/* Recurrent groups: it has a state in that block, or no more. */
void account_state(struct account_row *r, uint32_t block);
int account_stateless(struct account_row *r, uint32_t block); /* 0: it had none */
/* Virtual tokens: tokens by weight, in a unit that the scheduler chose. */
static inline uint64_t account_virtual(const struct account *a, uint32_t tenant, uint64_t tokens) {
    return tokens * ((UINT64_C(1) << 20) / a->tenant[tenant].limits.weight);
}
/* Moves a row to the end of `in`: it came into another of the scheduler's lists. */
void account_reorder(struct account *a, struct account_row *r);
void account_pass_cuts(struct account_row *r); /* those that it has behind it, read or not, are not reached again */
void account_preempt(struct account *a, struct account_row *r, enum account_reason reason);
struct account_row *account_head(const struct account *a);
void account_admit(struct account *a, struct account_row *r);
/* A waiting row would come in if it shared nothing, whatever the others share. `spent`: what their claims cost. */
int account_has_room(const struct account *a, const struct account_row *r, const uint64_t spent[]);
const struct account_row *account_senior(const struct account *a);
void account_go(struct account *a, struct account_row *r); /* the last plan that names a leaving row is committed */

#endif
