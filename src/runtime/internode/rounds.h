/*
 * Plans over hosts that share no memory: cut into rounds, between which data change hosts.
 *
 * In a round every worker runs from one cursor to another; then all data that were written for
 * other hosts in the round move, as messages between pairs of ranks; then the next round. A
 * launch's rounds and messages follow each other at a rank, as in one stream. Nothing waits or
 * signals between hosts: the cut lets a worker pass a WAIT for another host's SIGNAL only in a
 * later round than that in which the SIGNAL is passed. Within a host all is as in any launch.
 *
 * What is cut is a *split* plan: a MOVE's destination at another host becomes an outbox, a region
 * of slots at the worker's own rank, whence a message takes it to where it was meant to go. The
 * SIGNALs and WAITs between hosts are marked COPSE_SYNC_IN_DATA, so that machines skip them.
 *
 * Why a plan that copse_prove_plan accepts stays right. The proof stands on an order: an operation
 * is before a later one of its worker, and a SIGNAL before the WAIT that takes it. This order
 * holds in real time. Within a host by the counters, as ever. Between hosts: where a SIGNAL
 * passes from rank a to rank b in round r, there is a message from a to b at the end of round r,
 * a word if nothing else, that leaves a's stream after a's round r and that b's stream receives
 * before b's round r + 1. Hence credits, "the peer has entered" and whatever is concluded from
 * them over any number of ranks hold, with one difference: what a writes into b's memory is
 * there not when a's MOVE is done but when b's stream has received it. For X in b's memory:
 *
 *   read afterwards    the way from a's MOVE to a reader at b crosses hosts, so the reader is in
 *                      a later round of b, behind the message in b's stream
 *   read before        the reader is in no later round than the MOVE, so before the message
 *   written before or after by somebody else: not without a read in between (slots), or not at
 *                      all (outputs, written once), else copse_prove_plan refuses the plan
 *   b has entered, and has not left: the message is in the midst of b's own launch
 *
 * An outbox has a slot for each of `fifo` chunks, and the cut lets a MOVE run for no more chunks
 * in one round; the stream sends them before the next.
 *
 * Packets (low-latency plans) stay packets within a host. A region of packets that another host
 * writes becomes a slot, and the MOVE that reads it finds plain data: it stands behind the WAIT for
 * the packets' SIGNAL, which copse_prove_plan demands although nobody waits for it who looks at
 * packets, and the cut takes that for any other. One slot does, where packets need two copies: the
 * stream of its rank brings each launch's data between those of the launch's rounds. And that a
 * packet isn't overwritten unread stands on having heard that its reader has entered the launch
 * between, over any chain of packets: the same chain, with words for some of its links.
 *
 * Whether a WAIT can pass in a round doesn't depend on the interleaving, as in every plan; so
 * each process finds the same rounds by itself. Messages between two ranks have one order.
 */
#ifndef COPSE_RUNTIME_INTERNODE_ROUNDS_H
#define COPSE_RUNTIME_INTERNODE_ROUNDS_H

#include "base/err.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_math.h"

struct copse_split {
  struct copse_plan local; /* what machines run; operations as in the plan, one by one */
  /* [local.header.n_operands] where a destination was meant to be. At another rank than local's
   * operand says: the latter is its outbox. */
  struct copse_plan_operand *lands;
  /* Of an alltoall, else NULL: [local.header.n_operands] for what lands in another host's output,
   * a region of slots there, an inbox; for all others COPSE_NO_INBOX. See below. */
  uint32_t *inboxes;
  bool *crosses; /* [n_channels] from one host to another */
};

/*
 * Blocks of an alltoall whose counts only the GPUs know (copse_all_to_all_v): a message is sized by
 * the host, so it is a whole slot, of which the receiver's GPU takes what there is. Slots do for
 * all that is passed on; what would land in an output lands in its inbox first.
 */
#define COPSE_NO_INBOX UINT32_MAX

/*
 * host_of[r] numbers the host of rank r. The plan is borrowed. COPSE_UNSUPPORTED where a region
 * of packets is written by ranks of its own host and of others (no plan that copse_prove_plan
 * accepts: packets are sent once). O(operations + operands).
 */
copse_status copse_split_new(const struct copse_plan *plan, const uint32_t *host_of,
                             struct copse_split **out, struct copse_err *err) COPSE_CHECKED;
void copse_split_free(struct copse_split *split);

static inline bool copse_split_crosses(const struct copse_split *split, uint32_t operand) {
  return split->lands[operand].rank != split->local.operands[operand].rank;
}

#define COPSE_NO_OPERAND UINT32_MAX

/* A message from rank src to rank dst, or the word that ends each pair's messages of a round. */
struct copse_message {
  uint32_t src, dst;
  uint32_t operand; /* of the split plan; COPSE_NO_OPERAND: the word */
  uint32_t piece, chunk;
};

struct copse_rounds {
  uint32_t n_chunks, n_rounds;
  uint32_t first_worker, n_workers; /* whose cursors there are */
  struct copse_cursor *cursors;     /* [(n_rounds + 1) * n_workers] round r: from row r to r + 1 */
  size_t *first_message;            /* [n_rounds + 1] round r: [first[r], first[r + 1]) */
  struct copse_message *messages;   /* of a round by src, dst, operand, chunk */
};

#define COPSE_ALL_RANKS UINT32_MAX

/*
 * The rounds of a launch of n_chunks chunks: cursors of the rank's workers, messages from and to
 * it, or everybody's. COPSE_UNSUPPORTED where the plan stands still, or is too long to be cut:
 * the time is O(operations * chunks + rounds * workers), and rounds are at most chunks / fifo more
 * than the hosts that data cross one after the other, or so.
 */
copse_status copse_rounds_new(const struct copse_split *split, uint32_t n_chunks, uint32_t rank,
                              struct copse_rounds **out, struct copse_err *err) COPSE_CHECKED;
void copse_rounds_free(struct copse_rounds *rounds);

/* Whether a worker of `rounds` does anything in the round, and whether any does later. */
bool copse_rounds_moves(const struct copse_rounds *rounds, uint32_t round);
bool copse_rounds_ends(const struct copse_rounds *rounds, uint32_t round);

/*
 * A message may move in parts, each a launch of its own: of all pieces' chunks an equal number.
 * The same shape for the first of n_parts; the next part's first_chunk is n_chunks more. That is
 * as many chunks as they need, rounded up to a number of three binary digits, so that few
 * different ones are ever cut. Results don't depend on it.
 */
void copse_rounds_shape(struct copse_shape *shape, uint32_t n_parts);

#endif
