/*
 * Inside src/codegen only: vector clocks over a plan's workers. Workers that no chain of
 * channels joins are never ordered, so a clock only spans one connected component.
 */
#ifndef COPSE_CODEGEN_CHECK_CLOCK_H
#define COPSE_CODEGEN_CHECK_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "runtime/plan/plan.h"

/* An operation of a worker: its `time`-th, from 1; time 0 is no operation. */
struct copse_event {
  uint32_t worker, time;
};

struct copse_clocks;

copse_status copse_clocks_new(const struct copse_plan *plan, struct copse_clocks **out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_clocks_free(struct copse_clocks *clocks);
void copse_clocks_reset(struct copse_clocks *clocks);

/* The worker does its next operation. */
struct copse_event copse_clocks_tick(struct copse_clocks *clocks, uint32_t worker);

/* Sends the worker's clock along a channel; takes the oldest one in at the other end. */
copse_status copse_clocks_signal(struct copse_clocks *clocks, uint32_t channel,
                                 struct copse_err *err) COPSE_CHECKED;
/* Takes the oldest one in and learns nothing from it. */
void copse_clocks_drop(struct copse_clocks *clocks, uint32_t channel);
bool copse_clocks_pending(const struct copse_clocks *clocks, uint32_t channel);
void copse_clocks_wait(struct copse_clocks *clocks, uint32_t channel);
uint32_t copse_clocks_unclaimed(const struct copse_clocks *clocks, uint32_t channel);

/* Whether the event came before what `worker` does now. */
bool copse_clocks_before(const struct copse_clocks *clocks, struct copse_event event,
                         uint32_t worker);
/* Whether the worker knows that the rank has entered this launch. */
bool copse_clocks_entered(const struct copse_clocks *clocks, uint32_t worker, uint32_t rank);
/* Whether some worker of the rank has heard of the event by now. */
bool copse_clocks_known_at(const struct copse_clocks *clocks, struct copse_event event,
                           uint32_t rank);

#endif
