/* The candidates of one draw as they become fewer. Every filter leaves a range of ranks of the descending order, so
 * they are found as lazily as order.h finds them; only logits that change behind a filter need a list. One call's
 * stack. */
#ifndef SAMPLE_CHAIN_H
#define SAMPLE_CHAIN_H

#include "sample/order.h"
#include "sample/sample.h"

struct chain {
    const struct vecops *ops;
    const struct logits *logits;
    const struct sample_params *params;
    uint64_t position;
    struct order order;
    uint32_t *ids;     /* the order's memory */
    uint32_t low, end; /* ranks; there may be fewer than `end` says, never none */
    float max;         /* the logit at rank `low`: weights are exp(scale * (x - max)) */
    float scale;       /* 1 / temperature, once there was one */
    uint32_t keep;     /* a filter leaves at least so many */
    uint32_t first;    /* the id at rank `low`, if that is not 0 */
    uint8_t whole;     /* no filter has taken anything away behind `low` */
    uint8_t listed;    /* ids[low, end) are the candidates: the order is used no more */
};

/* Candidates with their weights: the same bits as in a pass over the whole row. */
enum { CHAIN_BLOCK = 32 };
struct chain_block {
    uint32_t n, id[CHAIN_BLOCK];
    float weight[CHAIN_BLOCK];
};

/* `max` is the largest logit, finite. `ids`: memory for as many ids as there are logits. */
void chain_init(struct chain *c, const struct vecops *ops, const struct logits *logits, float max, uint32_t *ids,
                const struct sample_params *params, uint64_t position);
/* The candidate at a rank. A rank is asked for only after all before it. 0: there is none. */
int chain_at(struct chain *c, uint32_t rank, uint32_t *id);
/* Reads from a rank on. n == 0: no more. */
void chain_read(struct chain *c, uint32_t rank, struct chain_block *out);
/* The sum of the weights. */
double chain_sum(struct chain *c);
/* Ranks [low, end) stay; `low` was read. */
void chain_cut(struct chain *c, uint32_t low, uint32_t end);
void chain_drop(struct chain *c, uint32_t low); /* [low, ...) stay */
/* Candidates with smaller logits go, but for the least number. */
void chain_cut_below(struct chain *c, float floor);
/* `end` says how many there are. */
void chain_count(struct chain *c);
/* All of them as a list, for whoever changes logits; chain_relist puts it in order again. */
void chain_list(struct chain *c);
void chain_relist(struct chain *c);
/* Draws: `target` of the accumulated weight, from 0 to the sum. */
uint32_t chain_pick(struct chain *c, double target);

/* filters.c */
void filter_top_k(struct chain *c);
void filter_top_p(struct chain *c);
void filter_min_p(struct chain *c);
void filter_top_n_sigma(struct chain *c);
void filter_typical(struct chain *c);
void filter_xtc(struct chain *c);
void filter_temperature(struct chain *c);

/* mirostat.c: what it leaves at a state, and its state behind a token of that probability. */
void mirostat_cut(struct chain *c, float state);
float mirostat_next(const cohort_sampling *s, float state, double log_probability);

/* spread.c: sums over all candidates, whole or not, in double. */
struct spread {
    uint32_t n;    /* candidates */
    double sum;    /* of weights */
    double mean_y; /* of y = scale * (x - max), by weight */
};
struct spread chain_spread(struct chain *c);
/* Population mean and variance of the logits. */
void chain_moments(struct chain *c, double *mean, double *variance);

#endif
