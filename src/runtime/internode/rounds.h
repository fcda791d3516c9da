/* Plans over hosts that share no memory: split, and cut into rounds between which data change
 * hosts. How, and why the result is right: rounds.c. */
#pragma once

#include "base/err.h"
#include "base/memory.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_math.h"

struct copse_split {
  struct copse_plan local; /* what backends run; operations as in the plan, one by one */
  /* [local.header.n_operands] where the plan has each destination. Where that is another rank
   * than local's operand says, local's is its outbox. */
  struct copse_plan_operand *lands;
  /* Of an alltoall, else NULL: [local.header.n_operands] for a destination in the output of a rank
   * on another host, a region of slots there, its inbox; for all others COPSE_NO_INBOX. */
  uint32_t *inboxes;
  bool *crosses;             /* [n_channels] from one host to another */
  struct copse_arena memory; /* of all arrays above and local's own */
};

/*
 * Inboxes are for an alltoall whose counts only the GPUs know (copse_all_to_all_v). The host sizes
 * a message, so it is a whole slot. The receiver's GPU uses as much of it as there is. Data that
 * are passed on stay in slots; data for an output come to an inbox first, and are copied out of it.
 */
#define COPSE_NO_INBOX UINT32_MAX

/* Splits a plan by hosts; host_of[r] is the number of rank r's host. The plan is borrowed.
 * COPSE_UNSUPPORTED where a region of packets is written both from its own host and from another;
 * copse_prove_plan accepts no such plan, since packets are sent once. O(operations + operands). */
copse_status copse_split_new(const struct copse_plan *plan, const uint32_t *host_of,
                             struct copse_split **out, struct copse_err *err) COPSE_CHECKED;
void copse_split_free(struct copse_split *split);

static inline bool copse_split_crosses(const struct copse_split *split, uint32_t operand) {
  return split->lands[operand].rank != split->local.operands[operand].rank;
}

#define COPSE_NO_OPERAND UINT32_MAX

/* A message from rank src to rank dst, or the status word that ends a pair's messages of a round.
 */
struct copse_message {
  uint32_t src, dst;
  uint32_t operand; /* of the split plan; COPSE_NO_OPERAND: the status word */
  uint32_t piece, chunk;
};

struct copse_rounds {
  uint32_t n_chunks, n_rounds;
  uint32_t first_worker, n_workers; /* workers that have cursors here */
  struct copse_cursor *cursors;     /* [(n_rounds + 1) * n_workers] round r: row r to row r + 1 */
  size_t *first_message;            /* [n_rounds + 1] round r: [first[r], first[r + 1]) */
  struct copse_message *messages;   /* of a round, sorted by src, dst, operand, chunk */
  struct copse_arena memory;        /* of all arrays */
};

#define COPSE_ALL_RANKS UINT32_MAX

/*
 * Makes the rounds of a launch of n_chunks chunks: cursors of the rank's workers and messages from
 * and to it, or those of COPSE_ALL_RANKS. COPSE_UNSUPPORTED where the plan deadlocks, or is too
 * long to be cut. O(operations * chunks + rounds * workers); rounds are about as many as the hosts
 * that data cross one after the other, and chunks / fifo.
 */
copse_status copse_rounds_new(const struct copse_split *split, uint32_t n_chunks, uint32_t rank,
                              struct copse_rounds **out, struct copse_err *err) COPSE_CHECKED;
void copse_rounds_free(struct copse_rounds *rounds);

/* Whether a worker of `rounds` does anything in the round, and whether none does later. */
bool copse_rounds_moves(const struct copse_rounds *rounds, uint32_t round);
bool copse_rounds_ends(const struct copse_rounds *rounds, uint32_t round);

/* Rounds the number of chunks up to three significant binary digits, so that plans are cut for few
 * different numbers. Results don't depend on it. */
void copse_rounds_shape(struct copse_shape *shape);
