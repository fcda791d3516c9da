/*
 * Inside src/codegen: what a plan's workers know of each other in one launch. Vector clocks say
 * what happened before what (L. Lamport 1978, C. J. Fidge and F. Mattern 1988); `notified` says
 * which ranks each worker knows by packets to have entered.
 */
#ifndef COPSE_CODEGEN_CHECK_CLOCK_H
#define COPSE_CODEGEN_CHECK_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "runtime/plan/plan.h"

/* An operation of a worker: its `time`-th, from 1; time 0 is no operation. */
struct copse_event {
  uint32_t worker, time;
};

struct copse_clocks;

/* In the arena, as are the signals on their way; borrows the plan. Memory: workers times the
 * workers of their connected component. */
copse_status copse_clocks_new(struct copse_arena *arena, const struct copse_plan *plan,
                              struct copse_clocks **out, struct copse_err *err) COPSE_CHECKED;
void copse_clocks_reset(struct copse_clocks *clocks);

/* The worker does its next operation. */
struct copse_event copse_clocks_tick(struct copse_clocks *clocks, uint32_t worker);

/* Sends the worker's clock along a channel; takes the oldest one in at the other end, which
 * `learns` from it or not. */
copse_status copse_clocks_signal(struct copse_clocks *clocks, uint32_t channel,
                                 struct copse_err *err) COPSE_CHECKED;
void copse_clocks_wait(struct copse_clocks *clocks, uint32_t channel, bool learns);
/* Signals that are not waited for yet. */
uint32_t copse_clocks_pending(const struct copse_clocks *clocks, uint32_t channel);

/* Whether the event came before what `worker` does now. */
bool copse_clocks_before(const struct copse_clocks *clocks, struct copse_event event,
                         uint32_t worker);
/* Whether the worker knows that the rank has entered this launch. */
bool copse_clocks_entered(const struct copse_clocks *clocks, uint32_t worker, uint32_t rank);
/* Whether some worker of the rank knows of the event by now. */
bool copse_clocks_known_at(const struct copse_clocks *clocks, struct copse_event event,
                           uint32_t rank);

struct copse_notified;

/* In the arena. NULL in *out for a plan without packets; the functions below take it and do
 * nothing. */
copse_status copse_notified_new(struct copse_arena *arena, const struct copse_plan *plan,
                                struct copse_notified **out, struct copse_err *err) COPSE_CHECKED;
void copse_notified_reset(struct copse_notified *notified);

/* The worker writes a region's packets; `entered`: it knows by signals that the region's rank
 * has entered this launch, and needs no more. */
void copse_notified_write(struct copse_notified *notified, uint32_t worker, uint32_t region,
                          bool entered);
void copse_notified_read(struct copse_notified *notified, uint32_t worker, uint32_t region);

/* COPSE_REFUTED, naming a writer whose rank need not have been notified of its reader. At the end
 * of a launch. */
copse_status copse_notified_check(const struct copse_notified *notified, const char *label,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
