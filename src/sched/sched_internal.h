/* What the scheduler's files share: rows, the lists they stand in, and the whole object. sched.c owns a row's life,
 * plan.c admission and iterations, check.c the invariants. */
#ifndef SCHED_INTERNAL_H
#define SCHED_INTERNAL_H

#include "sched/sched.h"

#define NO_ROW  UINT32_MAX
#define NO_SLOT UINT32_MAX

/* Every row stands in exactly one of these. A row that holds pages but has nothing to plan (paused, or its budget is
 * reached by a token that the engine has not read yet) is PARKED, so that planning walks only rows it plans. */
enum list_id {
    LIST_FREE,
    LIST_RESERVED,
    LIST_WAITING,
    LIST_PREPARING,
    LIST_RUNNING,
    LIST_PARKED,
    LIST_ENDING,
    LIST_GONE,
    LISTS
};

enum link_kind { LINK_PLACE, LINK_ADMITTED, LINK_KINDS };

struct link {
    uint32_t prev, next;
};

struct list {
    uint32_t first, last, n;
    enum link_kind kind;
};

/* A row's pages in one group: table entries [first, end) are held. */
struct span {
    uint32_t first, end;
    uint32_t worst; /* reserved in the pool; end - first never exceeds it */
};

struct row {
    uint32_t generation;
    uint8_t state, list; /* enum row_state, enum list_id */
    uint8_t paused, all_outputs, admitted_unread;
    uint8_t in_flight; /* plans in flight that name it */
    uint32_t prompt_n, max_new;
    uint32_t chunk;     /* prompt tokens in one iteration at most */
    uint32_t next;      /* positions [0, next) are planned */
    uint32_t done;      /* positions [0, done) are committed */
    uint32_t load;      /* its part of the cohort's load */
    uint32_t granted;   /* only inside sched_plan */
    uint32_t slot;      /* which tables are its own, NO_SLOT: none */
    uint64_t submitted; /* ascending number: the order of the line */
    struct link link[LINK_KINDS];
    struct span span[PAGES_GROUPS_MAX];
};

struct sched {
    struct sched_config config; /* as raised */
    uint32_t rows_total;
    struct row *rows;
    struct list list[LISTS];
    struct list admitted; /* rows that sched_pop_admitted has not told of */
    uint32_t state_n[ROW_STATES];
    uint32_t paused_n;
    uint64_t submitted;   /* rows so far */
    uint64_t cohort_load; /* sum over rows */
    uint64_t worst[PAGES_GROUPS_MAX];
    uint8_t held_back, closed;

    /* Page tables: a slot is one table of table_len entries per group. Rows that end keep theirs while plans name them,
     * so there are (1 + SCHED_IN_FLIGHT) * rows_max slots. The map's untouched part costs no memory. */
    uint32_t *tables;
    size_t tables_bytes;
    uint32_t table_len;
    uint32_t slots;
    uint32_t *slot_free; /* a stack */
    uint32_t slot_free_n;

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

void sched_list_push(struct sched *s, struct list *list, struct row *r);
void sched_list_remove(struct sched *s, struct list *list, struct row *r);

/* The list in which a row must stand, by its state and flags. */
enum list_id sched_row_list(const struct row *r);
/* What a row adds to the cohort's load. */
uint32_t sched_row_load(const struct sched *s, const struct row *r);
/* Puts a row where its state and flags say, at the end of that list; keeps its place if it already stands there. */
void sched_row_settle(struct sched *s, struct row *r);
/* The one place where a state changes. */
void sched_row_enter(struct sched *s, struct row *r, enum row_state state);
/* ENDING -> GONE: every page, the reservation and the tables go back. */
void sched_row_leave(struct sched *s, struct row *r);
/* Gives back the pages that lie wholly behind the window of position `done`. */
void sched_row_release_window(struct sched *s, struct row *r);

#endif
