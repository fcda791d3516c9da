/*
 * Inside codegen/check: which numbers n of chunks the proof tries. f: the depth of FIFOs.
 *
 * An operation runs or not by c = 0, c >= f, c + f < n and c + 1 = n. Chunk c touches cells of
 * chunk c and slot c mod f alone, and reads nothing of another chunk. No wait takes the signal of a
 * later chunk (check_reach), so every path of order from an operation of chunk c to one of chunk d
 * stays within c..d, and a ring of waits within one chunk.
 *
 * Any plan: all n to 3 f + 1. For n > 2 f the chunks are a start of f, a middle and an end of f; as
 * every count balances, a channel holds as many signals before every chunk of the middle, and those
 * of start and end do not depend on n. Let n >= 3 f + 2, and n - 1 be right.
 * - Every window of f + 1 chunks of n is one of n - 1: the same chunks with the same signals under
 *   way. So rings of waits, the result of each chunk, and the order of two uses of a slot that are
 * f chunks apart are those of n - 1. Uses further apart are by operations for the first and the
 *   last chunk alone, whose order is knowledge of chunk 0.
 * - Knowledge of an event of chunk d <= f (a rank has entered, a slot was read) at the k-th chunk
 *   from the end is at least that of n - 1: up to there it has one more chunk to spread, workers
 *   forget nothing, and the signals under way were sent later. Knowledge of later events is that of
 *   n - 1 at the chunk before.
 *
 * A regular plan: 1, for rings of waits alone, and f + 3, whose chunks 2 to f need no look at
 * memory. Here every MOVE is for every chunk. A channel's signals and waits stand in the same
 * order: those for the first chunk, for every chunk, for the last; as many of each. Credits, which
 * are signalled while f chunks follow and waited for f chunks later, share a channel with nothing
 * but earlier signals for the first chunk. So the j-th signal of a kind in a chunk is taken by the
 * j-th wait of this kind in the same chunk or, a credit, f chunks on, whatever n is. Further
 * signals only add to the order, so what holds where the fewest run holds elsewhere:
 * - Within a chunk credits order nothing. An inner chunk has the fewest signals. It decides on
 * results and on the order within a chunk. A rank's entry is known by signals for the first and for
 * every chunk, and is asked for there: chunk 0 of f + 3, which is not the last.
 * - Rings of waits lie within a chunk, which is first and last (n = 1), first, last, or neither.
 * - Slots: chunks c and c + f are ordered by paths within c..c + f. The fewest signals are there
 * where c is not the first and c + f not the last chunk: chunks 1 and f + 1. No credit from between
 * is back by then, and those of chunk c are.
 * - What is known at the end of an access in the last chunk needs the rest of that chunk, and no
 *   credit: chunk f + 2, which is not the first. The same operation's accesses in chunks before are
 *   known with it.
 */
#pragma once

#include "base/memory.h"
#include "runtime/plan/plan.h"

/* How many operations a channel has, by whether they wait and by when. */
struct copse_channel_uses {
  uint32_t n[2][COPSE_WHEN_LAST + 1];
  bool disordered; /* not: for the first chunk, for every one or as credits, for the last */
};

static inline void copse_channel_use(struct copse_channel_uses *u, bool waits, uint8_t when) {
  const uint32_t *n = u->n[waits];
  bool every = n[COPSE_WHEN_ALWAYS] > 0 || (!waits && n[COPSE_WHEN_BEFORE_FIFO] > 0);
  bool first = when == COPSE_WHEN_FIRST, last = when == COPSE_WHEN_LAST;
  if ((first && every) || (!last && n[COPSE_WHEN_LAST] > 0)) u->disordered = true;
  u->n[waits][when]++;
}

static inline bool copse_channel_is_regular(const struct copse_channel_uses *u) {
  const uint32_t *signals = u->n[0], *waits = u->n[1];
  bool credits = signals[COPSE_WHEN_BEFORE_FIFO] > 0;
  if (signals[COPSE_WHEN_AFTER_FIFO] > 0 || waits[COPSE_WHEN_BEFORE_FIFO] > 0) return false;
  if (credits && (signals[COPSE_WHEN_ALWAYS] > 0 || signals[COPSE_WHEN_LAST] > 0)) return false;
  return !u->disordered && signals[COPSE_WHEN_BEFORE_FIFO] == waits[COPSE_WHEN_AFTER_FIFO] &&
         signals[COPSE_WHEN_ALWAYS] == waits[COPSE_WHEN_ALWAYS] &&
         signals[COPSE_WHEN_FIRST] == waits[COPSE_WHEN_FIRST] &&
         signals[COPSE_WHEN_LAST] == waits[COPSE_WHEN_LAST];
}

/* Whether the plan is regular. O(operations + channels). */
static inline copse_status copse_plan_is_regular(const struct copse_plan *plan, bool *regular,
                                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct copse_channel_uses *uses = NULL;
  *regular = false;
  COPSE_DO(copse_calloc(plan->header.n_channels, sizeof *uses, &uses, err));
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    if (op->kind == COPSE_OP_MOVE && op->when != COPSE_WHEN_ALWAYS) return COPSE_OK;
    if (op->kind == COPSE_OP_MOVE) continue;
    copse_channel_use(&uses[op->channel], op->kind == COPSE_OP_WAIT, op->when);
  }
  for (uint32_t i = 0; i < plan->header.n_channels; i++)
    if (!copse_channel_is_regular(&uses[i])) return COPSE_OK;
  *regular = true;
  return COPSE_OK;
}

/* Returns the number of chunks to try after n, 0 to start; 0: no more. */
static inline uint32_t copse_next_chunks(uint32_t n, uint32_t fifo, bool regular) {
  if (!regular) return n <= 3 * fifo ? n + 1 : 0;
  return n == 0 ? 1 : n == 1 ? fifo + 3 : 0;
}

/* Whether the contents of memory matter in this chunk of n, and not order alone. */
static inline bool copse_chunk_has_memory(uint32_t chunk, uint32_t n, uint32_t fifo, bool regular) {
  return !regular || (n > 1 && (chunk < 2 || chunk > fifo));
}
