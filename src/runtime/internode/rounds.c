/*
 * Plans over hosts that share no memory.
 *
 * In a round every worker runs from one cursor to another. Then all data that were written for
 * other hosts in the round travel, as messages between pairs of ranks. Then the next round begins.
 * A launch's rounds and messages follow each other at a rank, as in one stream. Nothing waits or
 * signals between hosts: the cut lets a worker pass a WAIT for another host's SIGNAL only in a
 * later round than that in which the SIGNAL is passed. Within a host all is as in any launch.
 *
 *   host A, rank 0   [ round 0: MOVE, SIGNAL c ]--messages-->[ round 1: ...            ]--> ...
 *   host B, rank 1   [ round 0: stops at WAIT c ]-messages-->[ round 1: WAIT c, MOVE ...]-> ...
 *
 * What is cut is a *split* plan. A MOVE's destination on another host becomes an outbox, a region
 * of slots at the worker's own rank; a message takes it to where it was meant to go. SIGNALs and
 * WAITs between hosts are marked COPSE_SYNC_IN_DATA, so that backends skip them. The cut follows
 * the hosts that there are, so no spread of the ranks over hosts makes a plan wrong.
 *
 * Why a plan that copse_prove_plan accepts stays right. The proof of that check (docs/theory.md,
 * "src/codegen/check/") needs an order: an
 * operation is before a later one of its worker, and a SIGNAL before the WAIT that takes it. This
 * order holds in real time. Within a host counters enforce it, as ever. Between hosts: where a
 * SIGNAL passes from rank a to rank b in round r, there is a message from a to b at the end of
 * round r, a status word if nothing else. It leaves a's stream after a's round r, and b's stream
 * receives it before b's round r + 1. Hence credits, "the peer has entered", and what is concluded
 * from them over any number of ranks hold. One thing differs: what a writes into b's memory is
 * there not when a's MOVE is done but when b's stream has received it. For a place X in b's memory:
 *
 *   read later       the path from a's MOVE to a reader at b crosses hosts, so the reader is in a
 *                    later round of b, behind the message in b's stream
 *   read before      the reader is in no later round than the MOVE, so before the message
 *   written before or later by another worker: only with a read in between (slots), or never
 *                    (outputs are written once), else copse_prove_plan refuses the plan
 *   b has entered the launch and has not left it: the message is between rounds of b's own launch
 *
 * An outbox has a slot for each of `fifo` chunks. The cut lets a MOVE run for no more chunks in one
 * round, and the stream sends them before the next.
 *
 * Packets (low-latency plans) stay packets within a host. A region of packets that another host
 * writes becomes a slot, and the MOVE that reads it finds plain data. That MOVE follows the WAIT
 * for the packets' SIGNAL: copse_prove_plan demands this WAIT although nobody who polls packets
 * waits there, and the cut treats it as any other. One slot is enough where packets need two
 * copies, since the rank's stream brings each launch's data between the rounds of that launch. That
 * a packet isn't overwritten unread rests on knowing that its reader has entered the launch
 * between, over any chain of packets. The same chain holds here, with status words for some of its
 * links.
 *
 * Whether a WAIT can pass in a round doesn't depend on the interleaving, as in every plan. So each
 * process finds the same rounds by itself. Messages between two ranks have one order.
 */
#include "runtime/internode/rounds.h"

#include <stdlib.h>
#include <string.h>

/* ---- splitting ----------------------------------------------------------------------------- */

static uint32_t rank_of(const struct copse_plan *plan, uint32_t worker) {
  return plan->workers[worker].rank;
}

/* Counts the operands of all MOVEs, without sharing, and how many of them cross hosts. */
static void count_operands(const struct copse_plan *plan, const uint32_t *host_of, uint64_t *all,
                           uint64_t *crossing) {
  *all = *crossing = 0;
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      for (uint32_t k = 0; k < (uint32_t)op->n_src + op->n_dst; k++)
        *crossing += host_of[plan->operands[op->operand + k].rank] != host_of[rank_of(plan, w)];
      *all += (uint64_t)op->n_src + op->n_dst;
    }
}

/* The split plan's tables while they are filled. */
struct tables {
  struct copse_plan_op *ops;
  struct copse_plan_operand *operands;
  struct copse_plan_region *regions;
};

/* Turns regions of packets that come from another host, in messages, into regions of slots. */
static copse_status split_packets(const struct tables *t, const uint32_t *host_of,
                                  const struct copse_plan *plan, struct copse_err *err) {
  enum { FROM_HERE = 1, FROM_ELSEWHERE = 2 };
  COPSE_AT_END(copse_free_at) uint8_t *from = NULL;
  COPSE_DO(copse_calloc(plan->header.n_regions, 1, &from, err));
  for (uint32_t w = 0; w < plan->header.n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      for (uint32_t k = op->n_src; k < (uint32_t)op->n_src + op->n_dst; k++) {
        const struct copse_plan_operand *dst = &plan->operands[op->operand + k];
        if (dst->buffer == COPSE_BUFFER_PACKETS)
          from[dst->index] |=
              host_of[dst->rank] == host_of[rank_of(plan, w)] ? FROM_HERE : FROM_ELSEWHERE;
      }
    }
  for (uint32_t i = 0; i < plan->header.n_regions; i++) {
    if (from[i] == (FROM_HERE | FROM_ELSEWHERE))
      return copse_fail(err, COPSE_UNSUPPORTED,
                        "%s: packets[%u] of rank %u come from its own host and from another",
                        plan->name, i, plan->regions[i].rank);
    if (from[i] == FROM_ELSEWHERE) t->regions[i].kind = COPSE_REGION_SLOTS;
  }
  return COPSE_OK;
}

/* Returns the operand with packets read as slots where its region has become one of slots. */
static struct copse_plan_operand split_operand(const struct tables *t,
                                               const struct copse_plan_operand *meant) {
  struct copse_plan_operand it = *meant;
  if (it.buffer == COPSE_BUFFER_PACKETS && t->regions[it.index].kind == COPSE_REGION_SLOTS)
    it.buffer = COPSE_BUFFER_SCRATCH;
  return it;
}

static bool has_inboxes(const struct copse_plan *plan) {
  return plan->header.collective == COPSE_ALLTOALL && plan->header.n_extents == 0 &&
         plan->header.protocol == COPSE_PROTOCOL_BANDWIDTH;
}

static uint32_t add_slots(struct copse_split *split, const struct tables *t, uint32_t rank,
                          uint32_t piece) {
  uint32_t region = split->local.header.n_regions++;
  t->regions[region] = (struct copse_plan_region){rank, piece, COPSE_REGION_SLOTS};
  return region;
}

static void split_op(struct copse_split *split, const struct tables *t, const uint32_t *host_of,
                     uint32_t rank, struct copse_plan_op *op, const struct copse_plan *plan) {
  struct copse_plan_header *h = &split->local.header;
  uint32_t first = h->n_operands;
  if (op->kind != COPSE_OP_MOVE) {
    if (split->crosses[op->channel]) op->flags |= COPSE_SYNC_IN_DATA;
    return;
  }
  for (uint32_t k = 0; k < (uint32_t)op->n_src + op->n_dst; k++) {
    const struct copse_plan_operand meant = split_operand(t, &plan->operands[op->operand + k]);
    split->lands[h->n_operands] = t->operands[h->n_operands] = meant;
    const bool crosses = host_of[meant.rank] != host_of[rank];
    if (split->inboxes)
      split->inboxes[h->n_operands] = crosses && meant.buffer == COPSE_BUFFER_OUTPUT
                                          ? add_slots(split, t, meant.rank, op->piece)
                                          : COPSE_NO_INBOX;
    if (crosses)
      t->operands[h->n_operands] = (struct copse_plan_operand){
          rank, COPSE_BUFFER_SCRATCH, add_slots(split, t, rank, op->piece)};
    h->n_operands++;
  }
  op->operand = first;
}

static copse_status fill_split(struct copse_split *split, const struct copse_plan *plan,
                               const uint32_t *host_of, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_arena *own = &split->memory;
  struct tables t = {0};
  uint64_t n_operands, crossing;
  count_operands(plan, host_of, &n_operands, &crossing);
  const uint64_t n_regions = h->n_regions + crossing * (has_inboxes(plan) ? 2 : 1);
  if (n_operands >= COPSE_NO_OPERAND || n_regions > UINT32_MAX)
    return copse_fail(err, COPSE_UNSUPPORTED, "a plan too large for several hosts");
  COPSE_DO(COPSE_ARRAY(own, h->n_ops, t.ops, err));
  COPSE_DO(COPSE_ARRAY(own, (size_t)n_operands, t.operands, err));
  COPSE_DO(COPSE_ARRAY(own, (size_t)n_regions, t.regions, err));
  COPSE_DO(COPSE_ARRAY(own, (size_t)n_operands, split->lands, err));
  if (has_inboxes(plan)) COPSE_DO(COPSE_ARRAY(own, (size_t)n_operands, split->inboxes, err));
  COPSE_DO(COPSE_ARRAY(own, h->n_channels, split->crosses, err));
  for (uint32_t c = 0; c < h->n_channels; c++)
    split->crosses[c] = host_of[rank_of(plan, plan->channels[c].src_worker)] !=
                        host_of[rank_of(plan, plan->channels[c].dst_worker)];
  memcpy(t.ops, plan->ops, h->n_ops * sizeof *t.ops);
  memcpy(t.regions, plan->regions, h->n_regions * sizeof *t.regions);
  split->local = *plan;
  split->local.ops = t.ops;
  split->local.operands = t.operands;
  split->local.regions = t.regions;
  if (h->protocol == COPSE_PROTOCOL_LOW_LATENCY) {
    split->local.header.fifo = 1; /* a launch is one chunk */
    COPSE_DO(split_packets(&t, host_of, plan, err));
  }
  split->local.header.n_operands = 0;
  for (uint32_t w = 0; w < h->n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++)
      split_op(split, &t, host_of, rank_of(plan, w), &t.ops[plan->workers[w].first_op + i], plan);
  return COPSE_OK;
}

static void drop_split(struct copse_split **split) { copse_split_free(*split); }

copse_status copse_split_new(const struct copse_plan *plan, const uint32_t *host_of,
                             struct copse_split **out, struct copse_err *err) {
  COPSE_AT_END(drop_split) struct copse_split *split = NULL;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof *split, &split, err));
  COPSE_DO(fill_split(split, plan, host_of, err));
  *out = split;
  split = NULL;
  return COPSE_OK;
}

void copse_split_free(struct copse_split *split) {
  if (!split) return;
  copse_arena_free(&split->memory);
  free(split);
}

/* ---- cutting ------------------------------------------------------------------------------- */

/* Steps of a plan that are followed at most: more take seconds. */
#define MOST_STEPS ((uint64_t)1 << 30)
#define NO_CHANNEL UINT32_MAX

struct counter {
  uint64_t signals, waits;
  uint64_t underway; /* signals of this round to another host */
};

/* One execution of the whole plan, of cursors and counters alone. */
struct cut {
  const struct copse_split *split;
  uint32_t n_chunks, rank;
  struct copse_cursor *at;  /* [n_workers] */
  struct counter *counters; /* [n_channels] */
  uint32_t *waits_on;       /* [n_workers] channel, or NO_CHANNEL */
  uint32_t *ready, n_ready; /* [n_workers] workers that may go on, as a stack */
  uint32_t *signalled;      /* [n_channels] channels with signals under way */
  uint32_t n_signalled;
  uint32_t *boxed;    /* [n_ops] chunks in a MOVE's outboxes, valid in round ... */
  uint32_t *boxed_in; /* [n_ops] ... of this number, from 1 */
  uint32_t n_done;
  bool moved; /* some worker, in this round */
  struct copse_rounds *rounds;
  size_t n_messages, messages_capacity, cursors_capacity, first_capacity;
  struct copse_err *err;
};

static copse_status add_message(struct cut *cut, const struct copse_message *message) {
  struct copse_rounds *r = cut->rounds;
  if (cut->rank != COPSE_ALL_RANKS && cut->rank != message->src && cut->rank != message->dst)
    return COPSE_OK;
  return COPSE_PUSH(r->messages, cut->n_messages, cut->messages_capacity, cut->err, *message);
}

/* Adds the messages of a MOVE for this chunk. *room: false where its outboxes are full. */
static copse_status box(struct cut *cut, uint32_t o, uint32_t rank, uint32_t chunk, bool *room) {
  const struct copse_split *split = cut->split;
  const struct copse_plan_op *op = &split->local.ops[o];
  bool crosses = false;
  *room = true;
  for (uint32_t k = op->n_src; k < (uint32_t)op->n_src + op->n_dst; k++)
    crosses = crosses || copse_split_crosses(split, op->operand + k);
  if (!crosses) return COPSE_OK;
  uint32_t now = cut->rounds->n_rounds + 1;
  if (cut->boxed_in[o] != now) cut->boxed[o] = 0;
  cut->boxed_in[o] = now;
  *room = cut->boxed[o] < split->local.header.fifo;
  if (!*room) return COPSE_OK;
  cut->boxed[o]++;
  for (uint32_t k = op->operand + op->n_src; k < op->operand + op->n_src + op->n_dst; k++)
    if (copse_split_crosses(split, k))
      COPSE_DO(add_message(
          cut, &(struct copse_message){rank, split->lands[k].rank, k, op->piece, chunk}));
  return COPSE_OK;
}

static void make_ready(struct cut *cut, uint32_t w) {
  cut->waits_on[w] = NO_CHANNEL;
  cut->ready[cut->n_ready++] = w;
}

static void raise_signal(struct cut *cut, uint32_t channel) {
  struct counter *counter = &cut->counters[channel];
  if (cut->split->crosses[channel]) {
    if (counter->underway++ == 0) cut->signalled[cut->n_signalled++] = channel;
    return;
  }
  counter->signals++;
  uint32_t waiter = cut->split->local.channels[channel].dst_worker;
  if (cut->waits_on[waiter] == channel) make_ready(cut, waiter);
}

/* Does one operation. *passed: false where the worker must stop before it. */
static copse_status pass(struct cut *cut, uint32_t w, uint32_t o, bool *passed) {
  const struct copse_plan *plan = &cut->split->local;
  const struct copse_plan_op *op = &plan->ops[o];
  uint32_t chunk = cut->at[w].chunk;
  *passed = true;
  if (!copse_op_runs(op->when, chunk, cut->n_chunks, plan->header.fifo)) return COPSE_OK;
  if (op->kind == COPSE_OP_MOVE) return box(cut, o, plan->workers[w].rank, chunk, passed);
  if (op->kind == COPSE_OP_SIGNAL) {
    raise_signal(cut, op->channel);
    return COPSE_OK;
  }
  struct counter *counter = &cut->counters[op->channel];
  *passed = counter->waits < counter->signals;
  if (*passed)
    counter->waits++;
  else
    cut->waits_on[w] = op->channel;
  return COPSE_OK;
}

static copse_status run_worker(struct cut *cut, uint32_t w) {
  const struct copse_plan_worker *worker = &cut->split->local.workers[w];
  struct copse_cursor *at = &cut->at[w];
  if (worker->n_ops == 0) at->chunk = cut->n_chunks;
  while (at->chunk < cut->n_chunks) {
    bool passed;
    copse_status status = pass(cut, w, worker->first_op + at->op, &passed);
    if (status != COPSE_OK || !passed) return status;
    cut->moved = true;
    if (++at->op < worker->n_ops) continue;
    at->op = 0;
    at->chunk++;
  }
  cut->moved = true;
  cut->n_done++;
  return COPSE_OK;
}

COPSE_ORDER(compare_messages, struct copse_message,
            COPSE_UP(src) ?: COPSE_UP(dst) ?: COPSE_UP(operand) ?: COPSE_UP(chunk))

/* Adds a status word for every pair that has messages and every pair that has signalled. */
static copse_status add_words(struct cut *cut, size_t first) {
  struct copse_rounds *r = cut->rounds;
  for (size_t i = first, end = cut->n_messages; i < end; i++) {
    struct copse_message word = r->messages[i];
    word.operand = COPSE_NO_OPERAND;
    word.piece = word.chunk = 0;
    if (i == first || r->messages[i - 1].src != word.src || r->messages[i - 1].dst != word.dst)
      COPSE_DO(add_message(cut, &word));
  }
  for (uint32_t i = 0; i < cut->n_signalled; i++) {
    const struct copse_plan *plan = &cut->split->local;
    const struct copse_plan_channel *channel = &plan->channels[cut->signalled[i]];
    const struct copse_message word = {rank_of(plan, channel->src_worker),
                                       rank_of(plan, channel->dst_worker), COPSE_NO_OPERAND, 0, 0};
    COPSE_DO(add_message(cut, &word));
  }
  return COPSE_OK;
}

static copse_status end_messages(struct cut *cut) {
  struct copse_rounds *r = cut->rounds;
  size_t first = r->first_message[r->n_rounds], kept = first;
  COPSE_DO(add_words(cut, first));
  if (cut->n_messages > first)
    COPSE_SORT(&r->messages[first], cut->n_messages - first, compare_messages);
  for (size_t i = first; i < cut->n_messages; i++) /* drops duplicate words */
    if (i == first || compare_messages(&r->messages[kept - 1], &r->messages[i]) != 0)
      r->messages[kept++] = r->messages[i];
  cut->n_messages = kept;
  return COPSE_OK;
}

/* Begins the round numbered n_rounds at the present cursors. */
static copse_status begin_round(struct cut *cut) {
  struct copse_rounds *r = cut->rounds;
  size_t row = (size_t)r->n_rounds * r->n_workers;
  COPSE_DO(COPSE_GROW(r->cursors, cut->cursors_capacity, row + r->n_workers + 1, cut->err));
  COPSE_DO(COPSE_GROW(r->first_message, cut->first_capacity, (size_t)r->n_rounds + 1, cut->err));
  if (r->n_workers > 0)
    memcpy(&r->cursors[row], &cut->at[r->first_worker], r->n_workers * sizeof *r->cursors);
  r->first_message[r->n_rounds] = cut->n_messages;
  cut->moved = false;
  for (uint32_t i = 0; i < cut->n_signalled; i++) {
    struct counter *counter = &cut->counters[cut->signalled[i]];
    counter->signals += counter->underway;
    counter->underway = 0;
  }
  cut->n_signalled = 0;
  for (uint32_t w = cut->split->local.header.n_workers; w-- > 0;)
    if (cut->at[w].chunk < cut->n_chunks) make_ready(cut, w);
  return COPSE_OK;
}

static copse_status run_round(struct cut *cut) {
  while (cut->n_ready > 0) COPSE_DO(run_worker(cut, cut->ready[--cut->n_ready]));
  if (!cut->moved)
    return copse_fail(cut->err, COPSE_UNSUPPORTED,
                      "%s: stands still over several hosts after %u rounds; copse check says why",
                      cut->split->local.name, cut->rounds->n_rounds);
  COPSE_DO(end_messages(cut));
  cut->rounds->n_rounds++;
  return begin_round(cut);
}

static copse_status make_cut(struct cut *cut, struct copse_arena *s) {
  const struct copse_plan_header *h = &cut->split->local.header;
  const size_t n_workers = h->n_workers, n_channels = h->n_channels, n_ops = h->n_ops;
  COPSE_DO(COPSE_ARRAY(s, n_workers, cut->at, cut->err));
  COPSE_DO(COPSE_ARRAYS(s, n_workers, uint32_t, cut->err, &cut->waits_on, &cut->ready));
  COPSE_DO(COPSE_ARRAY(s, n_channels, cut->counters, cut->err));
  COPSE_DO(COPSE_ARRAY(s, n_channels, cut->signalled, cut->err));
  COPSE_DO(COPSE_ARRAYS(s, n_ops, uint32_t, cut->err, &cut->boxed, &cut->boxed_in));
  COPSE_DO(begin_round(cut));
  while (cut->n_done < h->n_workers) COPSE_DO(run_round(cut));
  return COPSE_OK;
}

copse_status copse_rounds_new(const struct copse_split *split, uint32_t n_chunks, uint32_t rank,
                              struct copse_rounds **out, struct copse_err *err) {
  const struct copse_plan *plan = &split->local;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct cut cut = {.split = split, .n_chunks = n_chunks, .rank = rank, .err = err};
  *out = NULL;
  if ((uint64_t)plan->header.n_ops * n_chunks > MOST_STEPS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "%s: %u chunks are too many to cut into rounds; a larger --chunk helps",
                      plan->name, n_chunks);
  COPSE_DO(copse_calloc(1, sizeof *cut.rounds, &cut.rounds, err));
  cut.rounds->n_chunks = n_chunks;
  cut.rounds->n_workers = plan->header.n_workers;
  if (rank != COPSE_ALL_RANKS) {
    cut.rounds->first_worker = plan->ranks[rank].first_worker;
    cut.rounds->n_workers = plan->ranks[rank].n_workers;
  }
  copse_status status = make_cut(&cut, &scratch);
  if (status == COPSE_OK)
    *out = cut.rounds;
  else
    copse_rounds_free(cut.rounds);
  return status;
}

void copse_rounds_free(struct copse_rounds *rounds) {
  if (!rounds) return;
  free(rounds->cursors);
  free(rounds->first_message);
  free(rounds->messages);
  free(rounds);
}

bool copse_rounds_moves(const struct copse_rounds *rounds, uint32_t round) {
  const struct copse_cursor *row = &rounds->cursors[(size_t)round * rounds->n_workers];
  return rounds->n_workers > 0 &&
         memcmp(row, row + rounds->n_workers, rounds->n_workers * sizeof *row) != 0;
}

bool copse_rounds_ends(const struct copse_rounds *rounds, uint32_t round) {
  const size_t n = rounds->n_workers;
  return n == 0 || memcmp(&rounds->cursors[(round + 1) * n], &rounds->cursors[rounds->n_rounds * n],
                          n * sizeof *rounds->cursors) == 0;
}

void copse_rounds_shape(struct copse_shape *shape) {
  uint32_t unit = 1;
  while (shape->n_chunks > 8 * unit) unit *= 2;
  shape->n_chunks = (shape->n_chunks + unit - 1) / unit * unit;
  shape->chunk_base = shape->count / shape->n_chunks + 1;
}
