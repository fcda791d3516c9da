/*
 * What the workers of a plan know of each other in one launch: vector clocks (L. Lamport 1978, C.
 * J. Fidge and F. Mattern 1988). Every worker has a clock: for each worker the number of its
 * operations known to be done. A signal carries the clock of its sender, and a wait takes the later
 * of both, entry by entry. Workers that no chain of channels joins are never ordered, so a clock
 * only spans one connected component.
 */
#pragma once

#include "base/memory.h"
#include "codegen/check/memory.h"
#include "runtime/plan/plan.h"

struct copse_clocks;

/* In the arena, for workers that have done nothing. Memory: workers times those of their connected
 * component, and what signals under way carry. */
copse_status copse_clocks_new(struct copse_arena *arena, const struct copse_plan *plan,
                              struct copse_clocks **out, struct copse_err *err) COPSE_CHECKED;
void copse_clocks_reset(struct copse_clocks *c);

/* The worker does its next operation. */
struct copse_event copse_clocks_tick(struct copse_clocks *c, uint32_t worker);

/* Sends the clock of the channel's sender along it. O(workers of the component). */
copse_status copse_clocks_send(struct copse_clocks *c, uint32_t channel,
                               struct copse_err *err) COPSE_CHECKED;
/* Signals of the channel that are not waited for yet. */
uint32_t copse_clocks_pending(const struct copse_clocks *c, uint32_t channel);
/* Takes the oldest one in at the other end, which `learns` from it or not. */
void copse_clocks_receive(struct copse_clocks *c, uint32_t channel, bool learns);

/* Whether the event came before what `worker` does now. */
bool copse_clocks_before(const struct copse_clocks *c, struct copse_event event, uint32_t worker);
/* Whether the worker knows that the rank has entered this launch. */
bool copse_clocks_knows_entered(const struct copse_clocks *c, uint32_t worker, uint32_t rank);
/* Whether some worker of the rank knows of the event by now. */
bool copse_clocks_known_at(const struct copse_clocks *c, struct copse_event event, uint32_t rank);
