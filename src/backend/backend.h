/* What a device does with a program and a ragged batch.
 *
 * Threads: one owner at a time calls everything here (the thread that opens, then the engine's); backend_cpus and what
 * never changes (level, threads, vecops) any thread. The backend's compute team runs the launched batches,
 * in launch order, one at a time; at most BACKEND_IN_FLIGHT may be launched and not yet waited for. Bytes never depend
 * on the number of threads, on who computes what, or on what else is in the batch (docs/NUMERICS.md). */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "backend/program.h"
#include "base/err.h"
#include "base/logits.h"

enum { BACKEND_IN_FLIGHT = 2, NUMERICS_VERSION = 2, BACKEND_THREADS_MAX = 256, BACKEND_LOGIT_TILE = 64 };

struct backend; /* a device: instruction-set level and compute team */

struct backend_options {
    const char *level; /* "ref", "avx2", "avxvnni", "avx512", "neon"; NULL: best */
    int threads;       /* 0: affinity and cgroup quota decide */
};

/* CPUs this process may use by affinity and control group quota: the default number of threads. More threads than that
 * wait for each other. */
unsigned backend_cpus(void);

int backend_open(const struct backend_options *options, struct backend **out, cohort_error *err);
void backend_close(struct backend *b);
const char *backend_level(const struct backend *b);
int backend_threads(const struct backend *b);
const struct vecops *backend_vecops(const struct backend *b);

struct backend_program; /* a compiled program: packed weights, scratch */

/* Packs the weights (the team works on it; progress 0..1 from this thread) and sizes the scratch for batches of at most
 * tokens_max tokens, items_max items and outputs_max outputs. E_UNSUPPORTED names a tensor and its type. The program
 * may be freed after; tensor bytes are read here and, for an embedding table that is not the head too, during batches.
 * Mapped pages are given back as they are packed. */
int backend_compile(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                    uint32_t outputs_max, void (*progress)(void *user, double fraction), void *user,
                    struct backend_program **out, cohort_error *err);
void backend_program_free(struct backend_program *p);
/* What the compiled program would take of memory. Packs nothing; of the tensors it reads vectors and convolutions, and
 * working memory is allocated for the moment, but not touched. */
struct backend_needs {
    uint64_t weights; /* packed */
    uint64_t work;    /* registers, prepared rows, vectors, logits of one output an item */
    uint64_t scoring; /* logits of more outputs than that: touched if a batch has them */
    uint64_t tables;  /* of the file, read during batches: pages that the system may take back */
};
int backend_measure(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                    uint32_t outputs_max, struct backend_needs *out, cohort_error *err);
uint64_t backend_program_bytes(const struct backend_program *p); /* packed weights */

/* Bytes of one page: PAGE_TOKENS tokens of all layers of a group, or in a recurrent group one state of each; the layout
 * inside is the backend's, the same at every level. */
enum { BACKEND_PAGE_TOKENS = 32 };
uint64_t backend_page_bytes(const struct program_group *group);
/* Identity of the page layout, written into whatever stores pages. */
uint32_t backend_page_layout_version(void);

/* The page table of one row in one group, indexed by position / PAGE_TOKENS from 0. Entries behind the window may be
 * stale: they are not read. */
struct batch_item {
    uint32_t first_pos; /* position of the item's first token */
    uint32_t n_tokens;  /* >= 1 */
    const int32_t
        *tokens;   /* n_tokens ids in host memory that stays valid until the wait; NULL: one token, read from `slot` */
    uint32_t slot; /* index into batch.slots */
    uint32_t n_outputs; /* logits wanted for the last n_outputs tokens: 0 .. n_tokens */
    uint8_t hidden;     /* not logits, but what the head would make them from */
    const uint32_t *table[PROGRAM_GROUPS_MAX];
    /* In recurrent groups there is no table: the page that holds the state before the item's first token (BATCH_EMPTY:
     * there is none, the sequence begins), and the one that gets the state after its last. They may be the same; if
     * not, the first stays as it is, so an item can be run again, or another go on from the same place. */
    uint32_t from[PROGRAM_GROUPS_MAX], to[PROGRAM_GROUPS_MAX];
};
#define BATCH_EMPTY UINT32_MAX

/* Which logits of an output are wanted. */
enum batch_wants { BATCH_ALL, BATCH_SOME, BATCH_NONE };

/* Columns [first, first + columns) of the hidden vectors of an item's outputs: row o, of `rows`, at x + o * stride. */
struct hidden {
    const float *x;
    size_t stride;
    uint32_t rows, first, columns;
};

struct batch {
    uint32_t n_items;
    const struct batch_item *items;  /* stays valid until the wait */
    void *arena[PROGRAM_GROUPS_MAX]; /* page p of group g lies at arena[g] + p * page_bytes(g) */
    int32_t *slots; /* sampled tokens: read at the start of a batch, written by `consume` of an earlier one */
    /* Called on the team's threads, each output exactly once, outputs of one batch in any order and at the same time.
     * `item` and `output` (0-based inside the item's outputs) say which; `logits` are its program.vocab logits (those
     * of them that were wanted, below), valid during the call; scratch is program.vocab floats of its own. Must not
     * block. */
    void (*consume)(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch);
    /* Which of an output's logits consume will look at: asked once for each, in any order, by one of the team's threads
     * before the head computes them, behind all of consume's calls of the batches before. BATCH_SOME: at those whose
     * bits (id % 32 of word id / 32, words for program.vocab ids; bits of no id do nothing) are set in *ids, which
     * stays valid until that output's consume; the others, and the peaks, may then hold anything, and with BATCH_NONE
     * everything may. NULL: at all of them. Must not block. */
    enum batch_wants (*wants)(void *user, uint32_t item, uint32_t output, const uint32_t **ids);
    /* The same as consume for items with `hidden`: called for runs of columns, each column of such an item exactly
     * once, with all of its outputs in their order. What a column becomes needs no other, so how they are cut makes no
     * difference. `hidden` is valid during the call. NULL if the batch has no such item. */
    void (*take_hidden)(void *user, uint32_t item, const struct hidden *hidden);
    void *user;
};

/* Starts a batch and returns. The batch struct is copied; what it points to stays until the wait. Page tables may grow
 * or go stale behind the window meanwhile. Ids and positions were checked by the caller (asserted here). E_BUSY if two
 * are in flight. */
int backend_launch(struct backend_program *p, const struct batch *batch);
/* Waits for the oldest launched batch to end; *busy_us: time the team worked on it. E_AGAIN if none is in flight. */
int backend_wait(struct backend_program *p, uint64_t *busy_us);
/* 1 if backend_wait would return at once. */
int backend_done(const struct backend_program *p);

#endif
