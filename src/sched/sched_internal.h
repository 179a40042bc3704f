/* What the scheduler's files share: rows, the lists they stand in, tenants, and the whole object. sched.c owns a row's
 * life, line.c the waiting lines and the tenants' shares, room.c who has pages and who gives them up, share.c what rows
 * take from the prefix store and put there, follow.c rows that wait for another's state or for a copy of it, costs.c
 * what iterations are expected to take, plan.c admission and iterations, check.c the invariants. */
#ifndef SCHED_INTERNAL_H
#define SCHED_INTERNAL_H

#include "sched/sched.h"

#define NO_ROW  UINT32_MAX
#define NO_SLOT UINT32_MAX

/* Every row stands in exactly one of these. A row that holds pages but has nothing to plan (paused, or its budget is
 * reached by a token that the engine has not read yet) is PARKED, so that planning walks only rows it plans. So is
 * FOLLOWING: a preparing row that waits for what another row computes, or for a copy. */
enum list_id {
    LIST_FREE,
    LIST_RESERVED,
    LIST_WAITING,
    LIST_PREPARING,
    LIST_FOLLOWING,
    LIST_RUNNING,
    LIST_PARKED,
    LIST_ENDING,
    LIST_GONE,
    LISTS
};

/* LINK_SHARE: of a row that follows, in its leader's list or among the orphans; of one that loads, among the loads that
 * nobody was told of. */
enum link_kind { LINK_PLACE, LINK_ADMITTED, LINK_LEADS, LINK_SHARE, LINK_KINDS };

struct link {
    uint32_t prev, next;
};

struct list {
    uint32_t first, last, n;
    enum link_kind kind;
};

/* Its place in its tenant's line, a pairing heap: `prev` is the left sibling, or the parent of a first child. */
struct heap_link {
    uint32_t child, next, prev;
};

/* A row's pages in one group: table entries [first, end) are held; of a recurrent group those among them that are not
 * PAGE_NONE. */
struct span {
    uint32_t first, end;
    uint32_t held;  /* entries that are */
    uint32_t claim; /* pages that are its own to take, the held ones included */
};

struct row {
    uint32_t generation;
    uint8_t state, list; /* enum row_state, enum list_id */
    uint8_t paused, all_outputs, last_output, admitted_unread;
    uint8_t in_flight; /* plans in flight that name it */
    uint8_t stalls;    /* plans in a row in which it had no room and waited for pages on their way back */
    uint8_t grows;     /* its claim does not cover all its tokens yet */
    uint8_t spent;     /* counted in spent_n */
    uint8_t following; /* PREPARING, has no pages, waits for its leader to reach lead_until */
    uint8_t loading;   /* PREPARING or ENDING, [0, next) is being fetched into its pages */
    uint8_t unfetched; /* it loads, and sched_pop_load has not told of it */
    uint8_t leads;     /* in the list of those that may be followed */
    uint8_t unsound;   /* its state is not what its tokens say */
    uint8_t sealed;    /* the store took no more of it */
    uint8_t warm_only; /* a copy failed: it takes none again */
    uint8_t copied;    /* bit g: while it loads: the page of the cut block is copied from another */
    uint32_t tenant;
    int32_t priority;
    uint32_t prompt_n, max_new;
    uint32_t chunk; /* prompt tokens in one iteration at most */
    uint32_t next;  /* positions [0, next) are planned */
    uint32_t done;  /* positions [0, done) are committed */
    uint32_t reach; /* positions [0, reach) were planned before: their outputs are made, only their state is not */
    uint32_t known; /* tokens that are read before it goes on from its last sample: the prompt, and what it was fed */
    uint32_t admitted; /* `known` when it was admitted last */
    uint32_t covered;  /* positions [0, covered) lie inside its claims */
    uint32_t load;     /* its part of the cohort's load */
    uint32_t granted;  /* only inside sched_plan */
    uint32_t stop;     /* likewise: its next item does not go past this */
    uint32_t slot;     /* which tables are its own, NO_SLOT: none */
    struct link link[LINK_KINDS];
    uint64_t space;  /* what it may share with; 0: nothing */
    uint32_t stored; /* blocks [0, stored) of it are in the store */
    struct span span[PAGES_GROUPS_MAX];

    /* what follows is not touched for a token */
    uint32_t preemptions, redone;
    uint32_t cuts[SCHED_CUTS_MAX], cuts_n;
    uint64_t submitted; /* ascending number: the order of the line */
    uint32_t weight;
    uint32_t taken;     /* positions [0, taken) came from the store when it was admitted last */
    uint32_t branch;    /* a place to go on for the next one that shares as much: see struct look */
    prefix_block block; /* the last of those that are stored, pinned by the row */
    prefix_block own;   /* the first that it computed itself, also before it was preempted; all its others lie behind */
    prefix_block cold;  /* while it loads: what it loads, pinned */
    prefix_block left;  /* once it is gone: the last block of it that is in the store */
    uint32_t cached;
    uint32_t begins; /* a hash of its first page of tokens, once it was looked at */
    uint32_t leader; /* NO_ROW: it is an orphan, and looks again in the next plan */
    uint32_t lead_until;
    struct list followers;
    struct heap_link heap;
};

struct tenant {
    uint32_t weight, rows_max;
    uint32_t rows;       /* PREPARING or RUNNING */
    uint32_t present;    /* WAITING to PREEMPTED */
    uint32_t competes;   /* it has a line and may have one more row */
    uint32_t waiting;    /* in its line: WAITING and not paused */
    uint32_t root;       /* of the line: the row that goes first */
    uint32_t prev, next; /* in the list of tenants with present rows */
    uint64_t served;     /* tokens planned for it, each SERVED_UNIT / weight */
};
#define SERVED_UNIT (UINT64_C(1) << 20)

/* What iterations took, smoothed. Index of step_us: rows that decode, see costs.c. */
enum { COST_STEPS = 128 + (SCHED_ROWS_MAX - 128) / 16 + 1 };
struct costs {
    uint32_t step_us[COST_STEPS];  /* without prompt tokens; 0: not known */
    uint32_t guess_us[COST_STEPS]; /* the same, from mixed iterations */
    uint32_t token_ns;             /* a prompt token while nobody decodes; 0: not known */
    uint32_t added_ns;             /* what a prompt token adds to decoding rows; 0: not known */
};

struct sched {
    struct sched_config config; /* as raised */
    uint32_t rows_total;
    struct row *rows;
    struct list list[LISTS];
    struct list admitted; /* rows that sched_pop_admitted has not told of */
    struct list leaders;  /* rows whose state is being computed or fetched, in a space */
    struct list orphans, loads;
    uint32_t following_n, loading_n;
    uint32_t trailing_n; /* of loading_n: they have ended, and their places are not free yet */
    uint32_t state_n[ROW_STATES];
    uint32_t paused_n;
    uint32_t returning_n; /* WAITING rows that were preempted */
    uint32_t spent_n;     /* parked because their budget is reached: they end as soon as the engine has read them */
    uint32_t growing_n;   /* rows with `grows` */
    uint64_t submitted;   /* rows so far */
    uint64_t cohort_load; /* sum over rows */
    uint64_t claimed[PAGES_GROUPS_MAX], held[PAGES_GROUPS_MAX]; /* by all rows; held: a shared page once for each */
    uint64_t preemptions, redone, cached;
    uint8_t held_back, closed;

    struct tenant *tenants;
    uint32_t tenants_n;
    uint32_t present_first; /* tenants with present rows */
    struct costs costs;

    /* Page tables: a slot is one table of table_len entries per group. Rows that end keep theirs while plans name them,
     * so there are (1 + SCHED_IN_FLIGHT) * rows_max slots. The map's untouched part costs no memory. */
    uint32_t *tables;
    size_t tables_bytes;
    uint32_t table_len;
    uint32_t slots;
    uint32_t *slot_free; /* a stack */
    uint32_t slot_free_n;

    struct prefix *prefix; /* the caller's, or its own, which stores nothing */
    uint8_t owns_prefix;
    uint8_t has_windows, has_recurrent; /* a recurrent group counts as both */
    struct sched_copy *copies;          /* a ring of copies_max */
    uint32_t copies_max, copies_first, copies_n;
    struct sched_load_block *load_blocks; /* of the load that was told last; table_len */

    struct plan plans[SCHED_IN_FLIGHT]; /* plan `number` lies at number % SCHED_IN_FLIGHT */
    uint64_t planned;                   /* number of the youngest */
    uint32_t in_flight;

    uint32_t *owners[PAGES_GROUPS_MAX]; /* sched_check's own counts, one per page, */
    uint8_t *slot_seen;                 /* and one per slot */
};

static inline struct row *row_at(const struct sched *s, uint32_t i) { return &s->rows[i]; }
static inline uint32_t row_index(const struct sched *s, const struct row *r) { return (uint32_t)(r - s->rows); }
static inline sched_row row_name(const struct sched *s, const struct row *r) {
    return (uint64_t)r->generation << 32 | row_index(s, r);
}

static inline uint32_t *row_table(const struct sched *s, const struct row *r, uint32_t group) {
    return s->tables + ((size_t)r->slot * s->config.groups + group) * s->table_len;
}

/* Its budget is reached: by max_new samples, or, if it wants none, by its prompt. The token that a sample makes is fed
 * at position prompt_n + its index; the last one is never fed. */
static inline int row_spent(const struct row *r) {
    return r->next >= r->prompt_n && (uint64_t)r->next + 1 >= (uint64_t)r->prompt_n + r->max_new;
}

/* The oldest plan in flight is number planned - in_flight + 1. */
static inline struct plan *plan_at(struct sched *s, uint64_t number) { return &s->plans[number % SCHED_IN_FLIGHT]; }

static inline uint32_t sched_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t sched_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* ---- sched.c ---- */
void sched_list_push(struct sched *s, struct list *list, struct row *r);
void sched_list_remove(struct sched *s, struct list *list, struct row *r);

/* NULL: unknown. */
struct row *sched_row_find(const struct sched *s, sched_row name);
/* The list in which a row must stand, by its state and flags. */
enum list_id sched_row_list(const struct row *r);
/* What a row adds to the cohort's load. */
uint32_t sched_row_load(const struct sched *s, const struct row *r);
/* Puts a row where its state and flags say, at the end of that list; keeps its place if it already stands there. */
void sched_row_settle(struct sched *s, struct row *r);
/* The one place where a state changes. */
void sched_row_enter(struct sched *s, struct row *r, enum row_state state);
/* Forgets that the row was admitted, if nobody has asked yet. */
void sched_row_untell(struct sched *s, struct row *r);
/* ENDING -> GONE: every page, the claims and the tables go back. */
void sched_row_leave(struct sched *s, struct row *r);
/* PREEMPTED -> WAITING: the same. */
void sched_row_requeue(struct sched *s, struct row *r);

/* ---- line.c ---- */
int sched_line_new(struct sched *s, const struct sched_config *config, cohort_error *err);
void sched_line_push(struct sched *s, struct row *r);
void sched_line_remove(struct sched *s, struct row *r);
/* Which of two rows goes before the other. */
int sched_row_before(const struct row *a, const struct row *b);
/* A tenant's rows in the states that count changed. */
void sched_tenant_count(struct sched *s, struct row *r, enum row_state from, enum row_state to);
void sched_tenant_charge(struct sched *s, const struct row *r, uint32_t tokens);
/* The row to admit next, NULL if none may be. */
struct row *sched_line_head(struct sched *s);
/* The most that a tenant may have been served without owing its rows to one that waits: t's head waits. */
uint64_t sched_share_limit(const struct tenant *t);

/* ---- share.c ---- */
/* What a row that holds nothing could begin with. */
struct look {
    uint32_t position;  /* [0, position) is taken, or loaded where it is not resident */
    uint32_t resident;  /* <= position */
    prefix_block block; /* holds position - 1 */
    uint32_t branch;    /* behind position: where its text parts from what is stored; 0: there is nothing between */
    uint32_t leader;    /* NO_ROW: it follows nobody. Else it takes nothing now, and position is 0 */
    uint32_t until;     /* how far it follows, in whole pages */
    /* In full groups: pages that are not its own to take, and of them those that no row holds now. */
    uint32_t shared[PAGES_GROUPS_MAX], idle[PAGES_GROUPS_MAX];
};
/* The best that could be found: for whom that is not enough nobody needs to look, which costs time by the token. */
void sched_share_hope(const struct sched *s, const struct row *r, struct look *out);
/* Fills everything but claims; asks for the row's tokens. */
void sched_share_look(struct sched *s, struct row *r, struct look *out);
/* Takes what was found, which its claims cover. */
void sched_share_take(struct sched *s, struct row *r, const struct look *look);
/* Where its next item must end at the latest, so that there is a recurrent state to be taken: a position behind its
 * next one, UINT32_MAX if nothing asks for it. */
uint32_t sched_share_stop(const struct sched *s, const struct row *r);
/* Stores what is committed of it, in whole blocks. */
void sched_share_publish(struct sched *s, struct row *r);
/* Its last plan is committed and its pages are about to go: stores all that is known of it, if it is sound, and lets
 * go of the store. */
void sched_share_leave(struct sched *s, struct row *r);
/* Unpins. */
void sched_share_let_go(struct sched *s, struct row *r);
/* Positions that it took count as read by it. */
void sched_share_note(struct sched *s, struct row *r);
/* Its state is not what its tokens say: what it put there is taken out. */
void sched_share_disown(struct sched *s, struct row *r);

/* ---- follow.c ---- */
/* The row to follow instead of reading what is behind look->position, into *look. tokens[0, limit): of it. */
void sched_follow_find(struct sched *s, struct row *r, const int32_t *tokens, uint32_t limit, struct look *look);
void sched_follow(struct sched *s, struct row *r, const struct look *look);
void sched_unfollow(struct sched *s, struct row *r);
/* Keeps the list of leaders true; who followed one that leads no more is an orphan. */
void sched_lead_settle(struct sched *s, struct row *r);
/* The row has advanced: wakes those that followed as far. */
void sched_lead(struct sched *s, struct row *r);
/* Orphans look again. */
void sched_orphans(struct sched *s);
void sched_load(struct sched *s, struct row *r, prefix_block cold);
/* It ends, and nobody has been told to load anything for it yet. */
void sched_load_cancel(struct sched *s, struct row *r);

/* ---- room.c ---- */
/* 1: the row's first claims fit beside all others, if it takes what was found. */
int sched_room_fits(const struct sched *s, const struct row *r, const struct look *look);
void sched_room_claim(struct sched *s, struct row *r);
/* The same for an admitted row that holds nothing and has claims already. */
int sched_room_refits(const struct sched *s, const struct row *r, const struct look *look);
void sched_preempt(struct sched *s, struct row *r);
/* Claims shrink to the pages that are held: the row takes no more. */
void sched_room_shrink(struct sched *s, struct row *r);
/* Every running row of this plan gets room for its token, by preempting others if it must. 0: nobody else may be
 * admitted in this plan. */
int sched_room_make(struct sched *s);
/* The head of the line has no room or no row: who gives up his for it, if somebody must. */
struct row *sched_room_giver(const struct sched *s, const struct row *head);
/* Gives back the pages that lie wholly behind the window of position `done`. */
void sched_row_release_window(struct sched *s, struct row *r);
/* An item that began at `pos` is committed. A state from which it went on in the middle of a block, and behind that
 * block's end, goes back: nobody reads it any more, and it must not be stored as the block's. */
void sched_row_release_state(struct sched *s, struct row *r, uint32_t pos);
/* Every page. */
void sched_room_let_go(struct sched *s, struct row *r);
/* Every page, the claims and the tables. */
void sched_room_give_back(struct sched *s, struct row *r);

/* ---- costs.c ---- */
void sched_costs_note(struct costs *c, const struct plan *p, uint32_t us);
uint32_t sched_costs_step(const struct costs *c, uint32_t rows);
struct allowance {
    uint32_t long_ones; /* of prompts above SCHED_SHORT_PROMPT tokens */
    uint32_t all;       /* of all prompts */
};
/* Prompt tokens for which an iteration has time in which `rows` rows decode and `prompts` prepare; at least
 * SCHED_PROMPT_LEAST. */
struct allowance sched_costs_allow(const struct costs *c, const struct sched_config *config, uint32_t rows,
                                   uint32_t prompts);

#endif
