/* What a model is, in terms that no family owns: sizes, switches and the file's tensors, layer by layer. A family (one
 * row of families.c) and the file's keys fill it (keys.c, tensors.c); emit.c turns it into a program. Anything that two
 * families do differently is a field here, never a test for a name.
 *
 * Plain data, immutable once built, owned by its struct model; tensor pointers live as long as the model file.
 * Everything in it has been checked against the bounds below and the tensors' shapes. */
#ifndef MODEL_SPEC_H
#define MODEL_SPEC_H

#include <stdint.h>

#include "backend/program.h"
#include "format/gguf.h"

enum {
    SPEC_LAYERS_MAX = PROGRAM_LAYERS_MAX,
    SPEC_WIDTH_MAX = PROGRAM_WIDTH_MAX, /* of the residual stream, of the feed-forward, of all heads together */
    SPEC_HEADS_MAX = 1024,
    SPEC_HEAD_WIDTH_MAX = 1024,
    SPEC_VOCAB_MAX = 1 << 20,
    SPEC_TAPS_MAX = 16,        /* of a convolution */
    SPEC_CONTEXT_MAX = 1 << 24 /* keeps position * frequency inside what fmath_sincos takes (rope.h) */
};

enum spec_rope_scaling { SPEC_ROPE_PLAIN, SPEC_ROPE_LINEAR, SPEC_ROPE_YARN };

struct spec_rope {
    uint32_t pairs;  /* rotated pairs per head */
    int interleaved; /* as in struct program_rope */
    double base;
    enum spec_rope_scaling scaling;
    double factor;                     /* LINEAR, YARN: how many times longer the context became */
    double magnitude;                  /* multiplies cos and sin; YARN's own factor is already in it */
    uint32_t original_context;         /* YARN */
    double beta_fast, beta_slow;       /* YARN: turns in the original context between which the two scalings mix */
    const struct file_tensor *factors; /* each pair's frequency is divided by one of these; NULL: none */
};

struct spec_matrix {
    const struct file_tensor *weight; /* NULL: the layer has no such matrix */
    const struct file_tensor *bias;   /* NULL: none */
};

/* How the tokens of a sequence see each other in a layer. */
enum spec_mixer { SPEC_ATTENTION, SPEC_GATED_DELTA, SPEC_SHORT_CONV };

struct spec_attention {
    uint32_t heads, kv_heads, key_width, value_width; /* widths per head */
    uint32_t window;                                  /* tokens a position sees, itself included; 0: all */
    uint32_t rope;                                    /* index into model_spec.ropes */
    float scale;                                      /* of the queries */
    float softcap;                                    /* of the scores; 0: none */
    struct spec_matrix query, key, value;             /* or: */
    struct spec_matrix fused;                         /* query, key and value rows behind one another */
    const struct file_tensor *query_norm, *key_norm;  /* per head; NULL: none */
    int gated;                                        /* the query matrix has a gate's rows behind each head's */
    struct spec_matrix out;
};

/* The gated delta rule (Yang et al. 2024) behind a short convolution. Value head h asks key head h % key_heads. */
struct spec_gated_delta {
    uint32_t heads, key_heads, key_width, value_width; /* heads: of values; widths per head */
    uint32_t taps;                                     /* of the convolution, the token's own included */
    struct spec_matrix in;                             /* queries, keys and values behind one another */
    struct spec_matrix gate, decay, rate;              /* of the output; of each head's state */
    const struct file_tensor *conv;                    /* [column][tap] */
    const struct file_tensor *decay_rate, *decay_bias; /* per head; the first is negative */
    const struct file_tensor *norm;                    /* over each value head */
    struct spec_matrix out;
};

/* A convolution over the last tokens, gated before and behind. */
struct spec_short_conv {
    uint32_t taps;
    struct spec_matrix in; /* rows of the gate before, the gate behind, the values; each as wide as the stream */
    const struct file_tensor *conv; /* [column][tap] */
    struct spec_matrix out;
};

/* What a layer does with each token alone. Experts become a kind of its own. */
enum spec_ffn { SPEC_GATED };

struct spec_gated {
    uint32_t width;
    enum program_act act;
    struct spec_matrix gate, up; /* or: */
    struct spec_matrix fused;    /* gate rows, then up rows */
    struct spec_matrix down;
};

struct spec_layer {
    enum spec_mixer mixer;
    enum spec_ffn ffn;
    const struct file_tensor *mixer_norm, *ffn_norm;           /* of what goes in */
    const struct file_tensor *mixer_post_norm, *ffn_post_norm; /* of what comes out, before it is added; NULL: none */
    union { /* by mixer; keys.c reads every layer as attention first */
        struct spec_attention attention;
        struct spec_gated_delta delta;
        struct spec_short_conv conv;
    };
    struct spec_gated gated;
};

struct model_spec {
    const char *architecture; /* general.architecture, as in families.c */
    uint32_t n_layers, width, context_trained;
    uint32_t vocab;         /* the tokenizer's size; more rows in the file are padding, which is left out */
    float eps;              /* of every norm */
    float embed_scale;      /* 1: none */
    float logits_cap;       /* 0: none */
    int tied;               /* head is embedding */
    cohort_pooling pooling; /* what the file names for embeddings; NONE: nothing, or a kind that makes none */
    uint32_t n_ropes;
    struct spec_rope ropes[PROGRAM_ROPES_MAX];
    const struct file_tensor *embedding, *output_norm, *head;
    struct spec_layer *layers; /* n_layers */
};

#endif
