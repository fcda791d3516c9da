/*
 * What is before what in one launch of a plan: the least order with program order and the j-th
 * signal of a channel before its j-th wait (L. Lamport 1978). Workers count their operations; a
 * signal carries its sender's count. Most questions are answered by the last signal from one worker
 * to another, all others by a search back through what each worker has waited for. Memory is linear
 * in channels and waits, where a vector clock for each worker would take the square of the workers.
 */
#pragma once

#include "base/memory.h"
#include "codegen/check/memory.h"
#include "runtime/plan/plan.h"

struct copse_order;

/* In the arena. */
copse_status copse_order_new(struct copse_arena *arena, const struct copse_plan *plan,
                             struct copse_order **out, struct copse_err *err) COPSE_CHECKED;
void copse_order_free(struct copse_order *o);
/* Nothing has been done in a launch of so many chunks. O(operations + channels). */
copse_status copse_order_reset(struct copse_order *o, uint32_t chunks,
                               struct copse_err *err) COPSE_CHECKED;

/* The worker does its next operation. */
struct copse_event copse_order_tick(struct copse_order *o, uint32_t worker);

/* The channel's sender signals. */
copse_status copse_order_send(struct copse_order *o, uint32_t channel,
                              struct copse_err *err) COPSE_CHECKED;
/* Fetches what the next call on the channel will touch. */
void copse_order_expect(const struct copse_order *o, uint32_t channel);
/* Signals of the channel that are not waited for yet. */
uint32_t copse_order_pending(const struct copse_order *o, uint32_t channel);
/* Takes the oldest one in at the other end. `orders`: false of a signal that announces packets,
 * which orders nothing but what asks by `announced`. */
void copse_order_receive(struct copse_order *o, uint32_t channel, bool orders);

/* Whether the event came before what `worker` does now. */
bool copse_order_before(struct copse_order *o, struct copse_event event, uint32_t worker,
                        bool announced);
/* Whether the worker knows that the rank has entered this launch. */
bool copse_order_knows_entered(struct copse_order *o, uint32_t worker, uint32_t rank);
/* Says that it does, from what it has read. */
void copse_order_note_entered(struct copse_order *o, uint32_t worker, uint32_t rank);
/* Whether some worker of the rank knows of the event by now. */
bool copse_order_known_at(struct copse_order *o, struct copse_event event, uint32_t rank);
