/* The kernel table: every computation whose speed matters, one signature each. `ref` fills all of it in plain C and
 * defines the bits (docs/NUMERICS.md); a level's init overwrites upward what it does faster. All kernels are reentrant,
 * allocate nothing and never fail.
 *
 * Matrix products work on packed weights (pack.h): outputs in groups of PACK_OUTPUTS, lanes are outputs. Activations
 * are prepared once per row (act.h). */
#ifndef BACKEND_CPU_KERNELS_H
#define BACKEND_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/pack.h"
#include "backend/cpu/page.h"
#include "backend/program.h"
#include "base/vecops.h"

/* One call of `attend` does a tile: `tokens` consecutive tokens of one item times `heads` query heads that share one kv
 * head. Every (token, head) is a chain of its own, so how a batch is cut into tiles cannot be seen in the bits; a tile
 * only shares the reading of the pages. Keys and values up to position pos + tokens - 1 were stored before. */
enum { ATTEND_TOKENS = 8 };

/* Where pages of one layer and kv head are, and how their bytes are to be read. */
struct attend_pages {
    const uint32_t *table; /* page ids by position / 32; entries behind the window are not read */
    const char *arena;     /* page p's slice: arena + p * page_bytes */
    size_t page_bytes;
    enum state_form key_form, value_form;
};

struct attend_args {
    const float *q;                  /* token t, head h: key_width floats at q + t * q_stride + h * key_width */
    float *out;                      /* likewise value_width floats at out + t * out_stride + h * value_width */
    size_t q_stride, out_stride;     /* floats from one token to the next */
    uint32_t tokens;                 /* 1 .. ATTEND_TOKENS */
    uint32_t heads;                  /* 1 ..: all query heads of the kv head, or any contiguous part of them */
    uint32_t key_width, value_width; /* any value >= 1 */
    float scale, softcap;            /* softcap 0: none */
    uint32_t pos;                    /* position of token 0; token t is at pos + t */
    uint32_t window;                 /* positions a token sees, itself included; 0: all */
    struct attend_pages pages[2];    /* of positions before page `late`, and of those from it on */
    uint32_t late;                   /* UINT32_MAX: pages[1] is not looked at */
    const float *balance;            /* as in struct program_layer */
    float *scratch;                  /* attend_scratch_floats(tokens * heads, key_width) floats, any alignment */
};

/* One call of `conv` does columns of consecutive tokens of one item: out = act(sum over the taps). Columns lie behind
 * one another in x, y and each row of the tail; `tail` is what the sequence's last taps - 1 tokens had in these
 * columns, the oldest first. */
enum { CONV_TAPS_MAX = 16 };

struct conv_args {
    const float *x; /* token t: x + t * x_stride */
    float *y;       /* likewise; not x */
    size_t x_stride, y_stride;
    uint32_t tokens, columns, taps; /* taps 2 .. CONV_TAPS_MAX */
    const float *weight; /* tap j of column c at weight[j * weight_stride + c]; tap taps - 1 is the token's own */
    size_t weight_stride;
    const float *from;  /* tail before the first token; NULL: the sequence begins, all are +0 */
    float *to;          /* tail after the last token; may be `from` */
    size_t tail_stride; /* floats from one row of a tail to the next */
    enum program_act act;
};

/* One call of `delta` does the values [first, end) of one head over consecutive tokens of one item. The state of a head
 * is in blocks of DELTA_VALUES values (the last one may be narrower): [block][key_width][values of the block]. */
enum { DELTA_VALUES = 32 };

struct delta_args {
    const float *q, *k, *v; /* token t: + t * stride */
    size_t stride;
    const float *decay, *rate; /* of this head: + t * gate_stride each */
    size_t decay_stride, rate_stride;
    float *out; /* token t: value_width floats at out + t * out_stride */
    size_t out_stride;
    uint32_t tokens, key_width, value_width;
    uint32_t first, end; /* first is a multiple of DELTA_VALUES, so is end unless it is value_width */
    const float *from;   /* the head's state before the first token; NULL: all +0 */
    float *to;           /* after the last; may be `from` */
};

struct kernels {
    const char *level;

    /* Bytes of a prepared activation row for weights of this kind (pack.h), `cols` columns. */
    size_t (*act_bytes)(enum pack_kind kind, uint32_t cols);
    void (*act_prepare)(enum pack_kind kind, void *act, const float *x, uint32_t cols);
    /* y[r * y_stride + o] for rows r < n_rows and outputs o of groups [first, end), outputs past w->rows not written.
     * acts: n_rows prepared rows, act_stride bytes apart. */
    void (*matmul)(const struct packed *w, uint32_t first, uint32_t end, const void *acts, size_t act_stride,
                   uint32_t n_rows, float *y, size_t y_stride);

    /* y = norm(x) * weight over n columns. y may be x. */
    void (*norm)(float *y, const float *x, const float *weight, uint32_t n, float eps);
    /* Rotates `heads` heads of `width` columns in place; cs: pairs cosines, then pairs sines. */
    void (*rope)(float *x, uint32_t heads, uint32_t width, const float *cs, uint32_t pairs, int interleaved);
    void (*glu)(float *y, const float *a, const float *b, uint32_t n, enum program_act act); /* y may be a or b */
    void (*add)(float *y, const float *x, uint32_t n);                                       /* y += x */
    void (*softcap)(float *x, uint32_t n, float cap);
    /* Stores one token's key and value of one kv head at `slot` (position % 32) of a page slice (page.h). */
    void (*store)(const struct page_shape *shape, void *page, uint32_t slot, const float *key, const float *value);
    void (*attend)(const struct attend_args *a);

    void (*l2_norm)(float *y, const float *x, uint32_t n, float eps, float scale);             /* y may be x */
    void (*act)(float *y, const float *x, uint32_t n, enum program_act act);                   /* y may be x */
    void (*decay)(float *y, const float *x, const float *rate, const float *bias, uint32_t n); /* y may be x */
    void (*conv)(const struct conv_args *a);
    void (*delta)(const struct delta_args *a);

    struct vecops vec;
};

/* Scratch of an attend call over rows = tokens * heads queries; the same at every level. */
size_t attend_scratch_floats(uint32_t rows, uint32_t key_width);

enum { TILE_SUM = 4096 };

/* Each level's two halves, in this order of calls: ref always, then up to the chosen level. A build has those of its
 * own kind of processor. */
void kernels_matmul_ref(struct kernels *k);
void kernels_vector_ref(struct kernels *k);
void kernels_recur_ref(struct kernels *k); /* called by kernels_vector_ref */
void kernels_matmul_avx2(struct kernels *k);
void kernels_vector_avx2(struct kernels *k);
void kernels_matmul_avxvnni(struct kernels *k);
void kernels_matmul_avx512(struct kernels *k);
void kernels_vector_avx512(struct kernels *k);
void kernels_matmul_neon(struct kernels *k);
void kernels_vector_neon(struct kernels *k);

/* Levels of this kind of processor by number, best last: "ref", "avx2", "avxvnni", "avx512", or "ref", "neon"; NULL
 * behind the last. This machine may have any of them, and always the reference. dispatch.c. */
const char *kernels_level(unsigned i);
int kernels_init(struct kernels *k, const char *level); /* 0, or -1: unknown, -2: this CPU cannot */
const char *kernels_best(void);
int kernels_available(const char *level);

#endif
