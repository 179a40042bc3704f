/* Mistakes made on purpose inside the scheduler's memory (sim_canary.c); those of the fake engine are in sim_play.c and
 * sim_model.c. Nothing happens unless a canary was asked for. */
#ifndef SIM_CANARY_H
#define SIM_CANARY_H

#include "sim_play.h"

void canary_configure(const struct play *p, struct sched_config *told); /* what the scheduler is told */
void canary_submitted(struct play *p, struct request *r);
void canary_disturb(struct play *p);
void canary_begun(struct play *p, struct account_row *r);     /* it has waited, and goes on */
void canary_plan(struct play *p);                             /* before sched_plan */
void canary_made(struct play *p);                             /* right after it */
void canary_planned(struct play *p, const struct plan *plan); /* after that; NULL: nothing was planned */

#endif
