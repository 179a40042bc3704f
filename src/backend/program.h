/* A model as an immutable program of layer operations over per-token registers. `model` emits it at load, and anew
 * for whoever wants state in other forms; a backend compiles it.
 *
 * Registers are rows of floats, one row per token of the batch or, once OP_SELECT wrote it, one per output; what else
 * is computed from a register has the same rows (ATTEND: as its queries, which may be outputs while keys and values are
 * tokens). A register may be a view of columns inside another. Matrices are as in the file: W[rows, cols], y[r] = sum_c
 * W[r][c] * x[c].
 *
 * Everything here is plain data owned by whoever built it (src/model); backends copy what they keep, except tensor
 * bytes, which stay in the model file's mapping. docs/NUMERICS.md says what each operation computes, bit by bit. */
#ifndef BACKEND_PROGRAM_H
#define BACKEND_PROGRAM_H

#include <stdint.h>

#include "base/dtype.h"

enum {
    PROGRAM_OPS_MAX = 32768,
    PROGRAM_REGS_MAX = 64,
    PROGRAM_LAYERS_MAX = 512,
    PROGRAM_GROUPS_MAX = 4,
    PROGRAM_ROPES_MAX = 4,
    PROGRAM_WIDTH_MAX = 1 << 20
};

struct program_tensor {
    const char *name; /* as in the file, for messages */
    enum dtype type;
    uint32_t rows, cols; /* a vector: rows 1 */
    const void *data;
    uint64_t bytes;
    int mapped; /* data lies in a read-only mapping of a file: pages may be given back, and are read again if touched */
};

struct program_reg {
    uint32_t width; /* floats per token */
    int32_t parent; /* -1: own storage; else a register without parent whose columns [offset, offset + width) this is */
    uint32_t offset;
};

enum program_act { ACT_SILU, ACT_GELU_TANH, ACT_SIGMOID, ACT_NONE /* the value itself */ };

enum op_kind {
    OP_EMBED, /* dst = scale * dequantised row `token` of tensor */
    OP_NORM,  /* per `width` columns of src: dst = rms_norm(src) * tensor (vector of `width`); width divides src's width
               */
    OP_MATMUL,  /* dst = tensor * src, + bias (tensor index, -1: none) */
    OP_ROPE,    /* in place on dst: heads of `width` columns rotated by rope table `rope` at the token's position */
    OP_ATTEND,  /* keys `b` and values `c` of the tokens go into the layer's state, then dst = attention of queries
                   `a` */
    OP_CONV,    /* dst = act(causal convolution of each column of `a` over the sequence): tensor[column, tap], the last
                   tap is the token's own; the columns' last taps - 1 values are the layer's state at `offset` */
    OP_DELTA,   /* dst = the gated delta rule: per head of `heads` a state [width][value width] that every token decays
                   and corrects, at `offset` of the layer's. `a` holds queries and keys of `key_heads` heads and the
                   values behind one another (head h asks key head h % key_heads), `b` the decays, `c` the rates */
    OP_L2_NORM, /* per `width` columns of src: dst = scale * src / |src| */
    OP_DECAY,   /* dst = exp(tensor * softplus(a + bias)), both vectors of a's width */
    OP_ACT,     /* dst = act(a) */
    OP_SPLIT,   /* dst = the columns [offset, offset + width) of each of `heads` equal parts of `a` */
    OP_GLU,     /* dst = act(a) * b */
    OP_ADD,     /* dst += a */
    OP_SELECT,  /* dst (a per-output register) = rows of src whose output is wanted */
    OP_LOGITS   /* logits = softcap(tensor * src), handed to the batch's consumer row by row; last operation */
};

struct op {
    enum op_kind kind;
    int16_t dst, a, b, c; /* registers, -1: unused. `a` is the source where there is one */
    int32_t tensor;       /* index into program.tensors, -1: none */
    int32_t bias;
    uint32_t width;           /* NORM, L2_NORM: columns per norm; ROPE, ATTEND, DELTA: (key) head width; SPLIT */
    uint32_t heads, kv_heads; /* ROPE: heads in dst; ATTEND: query heads, key/value heads (heads % kv_heads == 0) */
    uint32_t key_heads;       /* DELTA: heads of queries and keys (heads % key_heads == 0) */
    uint32_t layer;           /* ATTEND, CONV, DELTA: index into program.layers */
    uint32_t offset;          /* CONV, DELTA: floats of the layer's state before the operation's own; SPLIT: columns */
    uint32_t rope;            /* ROPE: index into program.ropes */
    enum program_act act;
    float scale;   /* EMBED, L2_NORM: multiplier; ATTEND: queries are multiplied by it before the products */
    float softcap; /* ATTEND: scores, LOGITS: logits; 0: none */
    float eps;     /* NORM, L2_NORM */
};

/* Rotation angles: position * frequency[i] for pair i of `pairs`; cos and sin are multiplied by `magnitude`. Dimensions
 * behind 2 * pairs pass unchanged. */
struct program_rope {
    uint32_t pairs;
    int interleaved;   /* 1: pair i is columns 2i, 2i+1; 0: columns i, i + pairs */
    double *frequency; /* pairs; rope scaling of every kind is already in it */
    float magnitude;
};

struct program_layer { /* one layer that keeps state */
    uint32_t group;    /* index into groups */
    uint32_t slot;     /* index among the group's layers: 0 .. group.layers - 1 */
    int32_t late;      /* the group that holds positions from groups[group].end on, at the same slot; -1: none */
    float *balance;    /* of the group's key_width: powers of two by which keys are multiplied, and queries divided,
                          before keys become codes; NULL: none */
};

/* How keys or values lie in a page. Quantised ones are in blocks of 32 values of one head of one token. */
enum state_form { FORM_F16, FORM_Q8, FORM_Q4 };

/* ATTENTION: keys and values of every token, as long as a window needs them. RECURRENT: one state that every token
 * changes; what a page holds is the state after some token. */
enum group_kind { GROUP_ATTENTION, GROUP_RECURRENT };

/* Layers whose state lives and dies together. */
struct program_group {
    enum group_kind kind;
    uint32_t layers;

    /* of ATTENTION; the same for all its layers */
    uint32_t window; /* tokens a position sees, itself included; 0: all */
    uint32_t kv_heads;
    uint32_t key_width, value_width; /* per head */
    enum state_form key_form, value_form;
    uint32_t begin, end; /* the positions that it holds: whole pages; end 0: to the last */

    uint32_t floats; /* of RECURRENT: per layer */
};

struct program {
    uint32_t n_tensors, n_regs, n_ops, n_layers, n_groups, n_ropes;
    struct program_tensor *tensors;
    struct program_reg *regs;
    struct op *ops;
    struct program_layer *layers;
    struct program_group groups[PROGRAM_GROUPS_MAX];
    struct program_rope ropes[PROGRAM_ROPES_MAX];
    uint32_t vocab; /* rows of the LOGITS tensor and of the EMBED tensor */
    uint32_t context_trained;
};

#endif
