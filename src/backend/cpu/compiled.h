/* A compiled program: packed weights, register storage, and the operations regrouped into phases.
 *
 * compile.c builds it, exec.c runs it, backend.c holds it. A phase is what the team does between two meeting points:
 *
 *   ROWS    steps that look at one row only, one after the other, tiles over rows
 *   MATMUL  products of one prepared source, tiles over output groups (and blocks of rows if that is not enough)
 *   ATTEND  tiles over spans of tokens, kv heads and parts of their query heads
 *   RECUR   tiles over items and parts of the state: columns of a convolution, heads of the delta rule
 *   LOGITS  the head in tiles of output rows: the products, then the consumer; then, without products, the hidden
 *           vectors in tiles of items and columns
 *
 * A phase works in one domain: rows are the batch's tokens, or (after OP_SELECT) its outputs. */
#ifndef BACKEND_CPU_COMPILED_H
#define BACKEND_CPU_COMPILED_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/team.h"

enum { PHASE_PRODUCTS_MAX = 8 };

struct backend {
    struct kernels kernels;
    struct team *team;
};

enum domain { DOMAIN_NONE = -1, DOMAIN_TOKENS, DOMAIN_OUTPUTS, DOMAINS };

/* Where a register's rows lie: row r at base + r * stride. */
struct reg_rows {
    float *base;
    size_t stride;
    uint32_t width;
};

enum step_kind {
    STEP_ANGLES, /* the rope tables of a token, for every layer */
    STEP_EMBED,
    STEP_NORM,
    STEP_ROPE,
    STEP_STORE, /* keys and values into the layer's page */
    STEP_L2_NORM,
    STEP_DECAY,
    STEP_ACT,
    STEP_SPLIT,
    STEP_GLU,
    STEP_ADD,
    STEP_SELECT,
    STEP_PREPARE /* the source of the products that follow, in the layout of one kind of weights */
};

struct step {
    enum step_kind kind;
    struct op op;
    const float *weight;     /* NORM, DECAY */
    const float *bias;       /* DECAY */
    enum pack_kind act_kind; /* PREPARE */
};

struct product {
    const struct packed *weight;
    const float *bias; /* NULL: none */
    int16_t dst;
};

enum phase_kind { PHASE_ROWS, PHASE_MATMUL, PHASE_ATTEND, PHASE_RECUR, PHASE_LOGITS };

struct phase {
    enum phase_kind kind;
    enum domain domain;
    uint32_t first, n;   /* ROWS: steps; MATMUL, LOGITS: products */
    uint32_t row_ns;     /* ROWS: a rough cost, to decide whether sharing it pays */
    struct op op;        /* ATTEND, RECUR, LOGITS */
    const float *weight; /* RECUR: of a convolution, [tap][column] */
};

/* What became of a tensor. */
struct weight {
    struct packed packed; /* data NULL: not a matrix of a product */
    float *vector;        /* NULL: not a vector; of a convolution: its taps, [tap][column] */
    uint32_t same_as;     /* the first tensor with the same bytes; its own index if there is none before */
};

/* Prepared rows of one kind. */
struct act_rows {
    char *base;
    size_t bytes;
};
enum { PACK_KINDS = PACK_INT + 1 };

/* A run of consecutive tokens of one item for one attend call. */
struct span {
    uint32_t item, row, n; /* `row` in the phase's domain */
    uint32_t pos;
};

struct token {
    uint32_t item, pos;
    int32_t id;
};

struct output {
    uint32_t row, item, index; /* row: the token's */
    const uint32_t *wanted;    /* of outputs from n_whole on: ids, one bit each; NULL: none */
};

/* An item whose outputs are hidden vectors: the first one's row among the outputs. */
struct hidden_item {
    uint32_t item, row;
};

/* What the phase of the head is at. */
enum logits_stage { LOGITS_PRODUCTS, LOGITS_CONSUME, LOGITS_HIDDEN };

/* How the current phase is cut into tiles. */
struct tiling {
    uint32_t tiles;
    uint32_t rows_per_tile; /* ROWS; MATMUL: rows of a row block */
    uint32_t row_blocks;    /* MATMUL */
    uint32_t first_tile[PHASE_PRODUCTS_MAX], groups_per_tile[PHASE_PRODUCTS_MAX];
    uint32_t units, parts;  /* ATTEND: span, kv head, part of the query heads; parts per kv head */
    uint32_t slice, slices; /* RECUR: columns or heads of a tile, tiles of an item; parts per head as above */
};

/* The batch being run. Written between phases only. */
struct run {
    struct batch batch;
    uint32_t n_rows[DOMAINS];
    struct token *tokens;
    uint32_t *first_rows;   /* by item: its first token's row */
    struct output *outputs; /* those that become logits first */
    uint32_t n_logits;      /* outputs that become logits */
    uint32_t n_whole;       /* the first ones of those: of which all logits are computed (head.c) */
    struct hidden_item *hidden;
    uint32_t n_hidden;
    struct span *spans[DOMAINS];
    uint32_t n_spans[DOMAINS];
    uint64_t seen[DOMAINS][PROGRAM_GROUPS_MAX]; /* (token, visible position) pairs */
    uint32_t phase, end;                        /* current; first that is not run */
    uint32_t logit_first, logit_n;              /* LOGITS: the current tile of outputs */
    enum logits_stage stage;                    /* likewise */
    struct tiling tiling;
};

struct flight { /* a launched batch */
    struct team_job job;
    struct backend_program *program;
    struct batch batch;
    int started;
    uint64_t begin_us, busy_us;
};

struct backend_program {
    struct backend *backend;
    uint32_t tokens_max, items_max, outputs_max, vocab;

    uint32_t n_tensors, n_regs, n_layers, n_groups, n_ropes;
    struct program_tensor *tensors; /* without names */
    struct weight *weights;
    char *packed_data;
    size_t packed_bytes;
    size_t work_bytes; /* of everything else that is large */

    struct reg_rows regs[PROGRAM_REGS_MAX];
    float *reg_data[PROGRAM_REGS_MAX]; /* of registers without parent */
    struct act_rows acts[PACK_KINDS];

    struct program_layer *layers;
    struct program_group groups[PROGRAM_GROUPS_MAX];
    struct program_rope ropes[PROGRAM_ROPES_MAX];
    float *angles[PROGRAM_ROPES_MAX]; /* per token: cosines, then sines */

    struct step *steps;
    struct product *products;
    struct phase *phases;
    uint32_t n_steps, n_products, n_phases;
    uint32_t end_stateful; /* phases that a batch without outputs needs */

    float *logits; /* BACKEND_LOGIT_TILE rows or fewer */
    size_t logits_stride;
    float *peaks; /* of the logits (base/logits.h), as many rows */
    size_t peaks_stride;
    float *scratch; /* per thread */
    size_t scratch_stride;

    struct run run;
    struct flight flights[BACKEND_IN_FLIGHT];
    uint64_t launched, waited;
};

/* Packs the matrices that are planned (weights.c); the team works on it, this thread reports. weights_bytes: what one
 * takes, planned but perhaps not packed. */
enum { WEIGHTS_ALIGNMENT = 64 };
size_t weights_bytes(const struct packed *w);
int weights_pack(struct backend_program *p, void (*progress)(void *user, double fraction), void *user,
                 cohort_error *err);

/* The two ends of a flight's job (exec.c). */
uint32_t exec_advance(void *flight, unsigned thread);
void exec_tile(void *flight, uint32_t tile, unsigned thread);

static inline struct page_shape page_shape_of(const struct program_group *g) {
    return (struct page_shape){g->key_width, g->value_width, g->key_form, g->value_form, NULL};
}

#endif
