/*
 * The proof of a plan. It runs the plan on names instead of numbers: a cell of memory holds the
 * multiset of ranks whose input went into it, with its block, piece and chunk (memory.h).
 *
 * - Result. Every rank ends with exactly what the collective promises: each contribution once,
 *   averages divided once, no piece missing, no final step missing or done twice. Pieces of a
 *   block that overlap in part or leave a gap are refused.
 * - No deadlock. Each channel has one signalling and one waiting worker, so whether a wait can pass
 *   never depends on the interleaving (G. Kahn 1974), and one greedy execution decides.
 * - Balance. Every signal is waited for: one left over would satisfy the next launch's wait.
 * - No race. Any two accesses to the same cell of which one writes are ordered by program order and
 *   signals (memory.h), or by the data themselves: whoever writes over an input what that input
 *   went into, by its only reading, does so after that. No peer writes before a rank has entered
 *   or after it may have left; no output is written twice; no slot is overwritten unread or never
 *   read.
 * - Packets need no order between write and read, but must be sent once a launch, read, and
 *   announced: the reader has waited for a signal, marked IN_DATA or not, that came after the
 *   write. Marked signals order nothing else. Whoever writes packets is notified of their reader in
 * the same launch, so that two launches later they are free again (see "notified").
 *
 * chunk_counts.h says why few numbers of chunks stand for all. A plan of packets has one chunk, and
 * what holds for it follows from program order and from who sends what to whom: one execution
 * decides for all.
 */
#include "codegen/check/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/check/chunk_counts.h"
#include "codegen/check/memory.h"
#include "runtime/plan/plan_math.h"

/* ---- notified: which ranks each worker knows by packets to have entered ------------------- */

/*
 * Why two copies of packets are enough. A region of packets exists twice, for even and
 * odd launches, at a distance that no size changes. No signal says that packets were read. So
 * whoever writes in launch e + 2 must know that the reader has left launch e. It knows if in launch
 * e + 1 its rank was notified, over any chain of packets, that the reader had entered that one:
 *
 *   launch      e          e + 1                  e + 2
 *   writer   packets --+   ... is notified -+---> writes the copy of launch e again
 *                      |                    |
 *   reader      reads <+   enters e + 1 ----+     (so it has left e)
 *
 * Or the writer knows by a real signal that the reader has entered launch e + 2. Three things
 * follow:
 * - Only packets that are sent in *every* launch notify. A piece may be empty where a message is
 *   short; the one piece of a block that never is, is its last (hi = 1). An alltoall by demand,
 *   whose blocks may be empty, has no plan of packets, nor does one take counts of pairs at launch.
 * - In an allreduce, allgather, reduce_scatter and alltoall every rank that sends to another is
 *   notified of it anyway. In a broadcast and a reduce nobody answers: there receivers have
 *   a real signal say that they have entered, and senders wait for it (lower/packets.c).
 * - A launch without elements sends nothing, so it is no launch: it has no number.
 *
 * The numbers start again after 2^32 launches, half a day of small ones. A short message leaves a
 * longer one's packets as they are, whose flags would then pass for new: a rank clears the copies
 * of launches 2^32 - 2 and 2^32 - 1 when it has left them (copse_epoch_is_last).
 */
#define NOBODY UINT32_MAX

struct notified {
  const struct copse_plan *plan;
  size_t n_words;    /* of a set of ranks */
  uint64_t *workers; /* [n_workers][n_words] ranks that each is notified of */
  uint64_t *packets; /* [n_regions][n_words] the ranks that a region's packets name */
  uint32_t *writer;  /* [n_regions] worker whose rank must be notified of the reader, or NOBODY */
};

/* Makes the table; a plan without packets has NULL, with which the functions below do nothing. */
static copse_status new_notified(struct copse_arena *arena, const struct copse_plan *plan,
                                 struct notified **out, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct notified *notified;
  COPSE_DO(COPSE_ARRAY(arena, 1, notified, err));
  notified->plan = plan;
  notified->n_words = (h->n_ranks + 63) / 64;
  size_t bytes = notified->n_words * sizeof(uint64_t);
  COPSE_DO(copse_arena_array(arena, h->n_workers, bytes, &notified->workers, err));
  COPSE_DO(copse_arena_array(arena, h->n_regions, bytes, &notified->packets, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_regions, notified->writer, err));
  *out = notified;
  return COPSE_OK;
}

static uint64_t *of_worker(const struct notified *notified, uint32_t w) {
  return notified->workers + (size_t)w * notified->n_words;
}

static uint64_t *of_region(const struct notified *notified, uint32_t r) {
  return notified->packets + (size_t)r * notified->n_words;
}

static bool has(const uint64_t *set, uint32_t rank) { return set[rank / 64] >> (rank % 64) & 1; }

static void reset_notified(struct notified *notified) {
  if (!notified) return;
  const struct copse_plan_header *h = &notified->plan->header;
  memset(notified->workers, 0, h->n_workers * notified->n_words * sizeof(uint64_t));
  memset(notified->packets, 0, h->n_regions * notified->n_words * sizeof(uint64_t));
  for (uint32_t w = 0; w < h->n_workers; w++) {
    uint32_t rank = notified->plan->workers[w].rank;
    of_worker(notified, w)[rank / 64] |= (uint64_t)1 << (rank % 64);
  }
  memset(notified->writer, 0xff, h->n_regions * sizeof *notified->writer); /* NOBODY */
}

/* Notes that the worker writes a region's packets; `entered`: it knows by signals that the region's
 * rank has entered this launch, and needs no more. */
static void note_packets_sent(struct notified *notified, uint32_t worker, uint32_t region,
                              bool entered) {
  if (!notified) return;
  memcpy(of_region(notified, region), of_worker(notified, worker),
         notified->n_words * sizeof(uint64_t));
  if (!entered) notified->writer[region] = worker;
}

static void note_packets_read(struct notified *notified, uint32_t worker, uint32_t region) {
  if (!notified) return;
  const struct copse_plan_piece *piece =
      &notified->plan->pieces[notified->plan->regions[region].piece];
  bool never_empty = piece->hi_num == piece->hi_den && piece->lo_num < piece->lo_den;
  if (!never_empty) return;
  for (size_t i = 0; i < notified->n_words; i++)
    of_worker(notified, worker)[i] |= of_region(notified, region)[i];
}

/* Whether a rank is notified: its workers leave a launch together. */
static bool rank_is_notified(const struct notified *notified, uint32_t rank, uint32_t of) {
  const struct copse_plan_rank *r = &notified->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (has(of_worker(notified, w), of)) return true;
  return false;
}

/* Returns COPSE_REFUTED, naming a writer whose rank need not have been notified of its reader. At
 * the end of a launch. */
static copse_status check_notified(const struct notified *notified, const char *label,
                                   struct copse_err *err) {
  if (!notified) return COPSE_OK;
  for (uint32_t r = 0; r < notified->plan->header.n_regions; r++) {
    if (notified->writer[r] == NOBODY) continue;
    uint32_t from = notified->plan->workers[notified->writer[r]].rank;
    uint32_t to = notified->plan->regions[r].rank;
    if (!rank_is_notified(notified, from, to))
      return copse_fail_at(
          err, COPSE_REFUTED, label, 0,
          "rank %u sends packets[%u] to rank %u and need not be notified of it in return: "
          "two launches later it may overwrite them unread",
          from, r, to);
  }
  return COPSE_OK;
}

/* ---- the proof ------------------------------------------------------------------------------- */

struct copse_reads {
  struct copse_event reader;
  struct copse_reads *next;
};

/* A peer's write, or reading for a group, that the rank must be notified of before it leaves. */
struct copse_late {
  struct copse_event access;
  uint32_t rank;
  bool reads;
  struct copse_late *next;
};

struct proof {
  const struct copse_plan *plan;
  const char *label;
  struct copse_arena arena;
  struct copse_multisets *sets;
  int *singles, everyone; /* [n_ranks] the set of each rank alone; the set of all ranks */
  struct copse_order *order;
  struct notified *notified;
  /* out of place and, but for an alltoall, in place: one order of operations, followed in both */
  struct copse_memory memories[2];
  size_t n_memories;
  struct copse_memory *memory, *memories_end; /* the one at hand; none in some chunks */
  bool regular;                               /* see chunk_counts.h */
  uint32_t chunks, chunk;                     /* chunk: the one that all workers are at */
  struct copse_cursor *cursors; /* [n_workers] */
  uint32_t *ready;              /* [n_workers] workers that may move, as a stack */
  uint32_t n_ready;
  bool *waiting; /* [n_workers] */
  uint32_t n_done;
  int terms[COPSE_MOVE_MAX_OPERANDS];
  uint64_t executed;
  struct copse_err *err;
};

static copse_status refute(struct proof *p, uint32_t worker, const char *what) {
  const struct copse_plan_worker *w = &p->plan->workers[worker];
  return copse_fail_at(
      p->err, COPSE_REFUTED, p->label, 0, "rank %u, worker %u, op %u, chunk %u of %u%s: %s",
      w->rank, worker - p->plan->ranks[w->rank].first_worker, p->cursors[worker].op,
      p->cursors[worker].chunk, p->chunks, p->memory->in_place ? ", in place" : "", what);
}

/* Refutes; the operand is "input[0] of rank 3". */
static copse_status refute_operand(struct proof *p, uint32_t worker,
                                   const struct copse_plan_operand *o, const char *what) {
  static const char *const names[] = {"input", "output", "scratch", "packets"};
  char text[200];
  snprintf(text, sizeof text, "%s[%u] of rank %u %s", names[o->buffer], o->index, o->rank, what);
  return refute(p, worker, text);
}

/* Notes a read. Of a worker's reads the last one is kept. */
static copse_status add_read(struct proof *p, struct copse_cell *cell, struct copse_event now) {
  cell->reads++;
  if (cell->reader.time == 0 || cell->reader.worker == now.worker) {
    cell->reader = now;
    return COPSE_OK;
  }
  struct copse_reads *more;
  COPSE_DO(COPSE_ARRAY(&p->memory->launch, 1, more, p->err));
  more->reader = now;
  more->next = cell->more;
  cell->more = more;
  return COPSE_OK;
}

/* Reads packets, which are there when the reader sees them; but a signal must have announced them,
 * or an executor that goes by signals would read too early and a report name nobody. */
static copse_status read_packets(struct proof *p, uint32_t worker,
                                 const struct copse_plan_operand *o,
                                 const struct copse_cell *cell) {
  if (!copse_order_before(p->order, cell->writer, worker, true))
    return refute_operand(p, worker, o, "is read before a signal tells that it was sent");
  note_packets_read(p->notified, worker, o->index);
  return COPSE_OK;
}

/* Reads one source. Checks that it was written before, that the reader is ordered after the writer,
 * and that it holds the same data as the other sources. */
static copse_status read_source(struct proof *p, uint32_t worker, struct copse_event now,
                                const struct copse_plan_operand *o, struct copse_cell *cell,
                                const struct copse_content *like) {
  const struct copse_content *v = &cell->content;
  if (v->set < 0) return refute_operand(p, worker, o, "is read before anything is written");
  if (o->buffer == COPSE_BUFFER_PACKETS)
    COPSE_DO(read_packets(p, worker, o, cell));
  else if (!copse_order_before(p->order, cell->writer, worker, false))
    return refute_operand(p, worker, o, "is read while it may still be written: a race");
  if (v->chunk != p->cursors[worker].chunk)
    return refute_operand(p, worker, o, "holds another chunk");
  if (like && (v->block != like->block || v->piece != like->piece))
    return refute_operand(p, worker, o, "holds other data than the sources before it");
  if (v->scaled && like) return refute_operand(p, worker, o, "is final and must not be summed");
  return add_read(p, cell, now);
}

static void write_cell(struct copse_cell *cell, struct copse_event now,
                       const struct copse_content *value) {
  *cell = (struct copse_cell){.content = *value, .writer = now, .written = 1};
}

/* Writes packets: readers look for the launch's flag, which must come once. */
static copse_status write_packets(struct proof *p, uint32_t worker, struct copse_event now,
                                  const struct copse_plan_operand *o, struct copse_cell *cell,
                                  const struct copse_content *value) {
  if (cell->written) return refute_operand(p, worker, o, "is sent twice in a launch");
  bool entered = o->rank == p->plan->workers[worker].rank ||
                 copse_order_knows_entered(p->order, worker, o->rank);
  note_packets_sent(p->notified, worker, o->index, entered);
  write_cell(cell, now, value);
  return COPSE_OK;
}

/* Whether all earlier uses of the cell are over. A value that the rank's input went into comes
 * after the reading of that input, if there was but one; so does the writing of the value over
 * it. */
static bool is_free(struct proof *p, uint32_t worker, const struct copse_plan_operand *o,
                    const struct copse_cell *cell, const struct copse_content *value) {
  const struct copse_content *was = &cell->content;
  if (cell->reads == 0) return copse_order_before(p->order, cell->writer, worker, false);
  bool input = o->buffer == COPSE_BUFFER_OUTPUT && !cell->written && was->block == value->block &&
               was->piece == value->piece && was->chunk == value->chunk;
  if (input && cell->reads == 1 && copse_multisets_has(p->sets, value->set, (int)o->rank))
    return true;
  bool ordered = copse_order_before(p->order, cell->reader, worker, false);
  for (const struct copse_reads *r = cell->more; r && ordered; r = r->next)
    ordered = copse_order_before(p->order, r->reader, worker, false);
  return ordered; /* a reader comes after the writer */
}

/* Whether the rank has entered: what its input went into was sent since. */
static bool has_entered(struct proof *p, uint32_t worker, uint32_t rank,
                        const struct copse_content *value) {
  if (rank == p->plan->workers[worker].rank || copse_multisets_has(p->sets, value->set, (int)rank))
    return true;
  return copse_order_knows_entered(p->order, worker, rank);
}

/* Writes a destination: nobody may still read or write it, and its owner must have entered. */
static copse_status write_destination(struct proof *p, uint32_t worker, struct copse_event now,
                                      const struct copse_plan_operand *o, struct copse_cell *cell,
                                      const struct copse_content *value) {
  if (!is_free(p, worker, o, cell, value))
    return refute_operand(p, worker, o, "is written while it may still be used: a race");
  if (!has_entered(p, worker, o->rank, value))
    return refute_operand(p, worker, o, "is written before its rank has entered the call");
  if (o->buffer == COPSE_BUFFER_SCRATCH) {
    if (cell->written && cell->reads == 0)
      return refute_operand(p, worker, o, "is overwritten before it was read");
  } else if (cell->written) {
    return refute_operand(p, worker, o, "is written twice");
  }
  write_cell(cell, now, value);
  return COPSE_OK;
}

static copse_status note_late(struct proof *p, struct copse_event access, uint32_t rank,
                              bool reads) {
  struct copse_late *late;
  COPSE_DO(COPSE_ARRAY(&p->memory->launch, 1, late, p->err));
  *late = (struct copse_late){access, rank, reads, p->memory->late};
  p->memory->late = late;
  return COPSE_OK;
}

static copse_status do_move(struct proof *p, uint32_t worker, struct copse_event now, uint32_t op) {
  const struct copse_plan_op *o = &p->plan->ops[op];
  const struct copse_plan_operand *operands = &p->plan->operands[o->operand];
  uint32_t c = p->cursors[worker].chunk;
  struct copse_content value = {-1, 0, 0, 0, false};
  for (uint32_t i = 0; i < o->n_src; i++) {
    struct copse_cell *cell = copse_memory_cell(p->memory, op, i, c);
    COPSE_DO(read_source(p, worker, now, &operands[i], cell, i > 0 ? &value : NULL));
    if (i == 0) value = cell->content;
    p->terms[i] = cell->content.set;
    if (operands[i].rank != p->plan->workers[worker].rank)
      COPSE_DO(note_late(p, now, operands[i].rank, true));
  }
  if (o->n_src > 1 && value.scaled) return refute(p, worker, "a final value must not be summed");
  COPSE_DO(copse_multisets_sum(p->sets, p->terms, o->n_src, &value.set, p->err));
  if (o->flags & COPSE_MOVE_FINAL) {
    if (!copse_collective_reduces((copse_collective)p->plan->header.collective))
      return refute(p, worker, "the final step of a reduction, where nothing is reduced");
    if (value.scaled) return refute(p, worker, "a value is made final twice");
    value.scaled = true;
  }
  for (uint32_t i = 0; i < o->n_dst; i++) {
    const struct copse_plan_operand *dst = &operands[o->n_src + i];
    struct copse_cell *cell = copse_memory_cell(p->memory, op, o->n_src + i, c);
    if (dst->buffer == COPSE_BUFFER_PACKETS)
      COPSE_DO(write_packets(p, worker, now, dst, cell, &value));
    else
      COPSE_DO(write_destination(p, worker, now, dst, cell, &value));
  }
  return COPSE_OK;
}

static copse_status do_moves(struct proof *p, uint32_t worker, uint32_t op) {
  struct copse_event now = copse_order_tick(p->order, worker);
  for (; p->memory < p->memories_end; p->memory++) COPSE_DO(do_move(p, worker, now, op));
  p->memory = p->memories;
  return COPSE_OK;
}

static copse_status do_signal(struct proof *p, uint32_t worker, uint32_t channel) {
  uint32_t receiver = p->plan->channels[channel].dst_worker;
  copse_order_tick(p->order, worker);
  if (p->waiting[receiver]) {
    p->waiting[receiver] = false;
    p->ready[p->n_ready++] = receiver;
  }
  return copse_order_send(p->order, channel, p->err);
}

/* Does the worker's operation; *blocked if it waits for a signal that is not there yet. */
static copse_status do_op(struct proof *p, uint32_t worker, bool *blocked) {
  uint32_t index = p->plan->workers[worker].first_op + p->cursors[worker].op;
  const struct copse_plan_op *op = &p->plan->ops[index];
  const struct copse_plan_header *h = &p->plan->header;
  *blocked = false;
  if (!copse_op_runs(op->when, p->cursors[worker].chunk, p->chunks, h->fifo)) return COPSE_OK;
  p->executed++;
  if (op->kind == COPSE_OP_MOVE) return do_moves(p, worker, index);
  if (op->kind == COPSE_OP_SIGNAL) return do_signal(p, worker, op->channel);
  if (!copse_order_pending(p->order, op->channel)) {
    *blocked = true;
    p->executed--;
    return COPSE_OK;
  }
  copse_order_tick(p->order, worker);
  copse_order_receive(p->order, op->channel, !(op->flags & COPSE_SYNC_IN_DATA));
  return COPSE_OK;
}

/* Prefetches what a coming operation touches: a proof of many ranks waits for memory. */
static void expect_op(struct proof *p, uint32_t index) {
  const struct copse_plan_op *op = &p->plan->ops[index];
  if (op->kind != COPSE_OP_MOVE) {
    copse_order_expect(p->order, op->channel);
    return;
  }
  for (struct copse_memory *m = p->memories; m < p->memories_end; m++)
    for (uint32_t i = 0; i < (uint32_t)op->n_src + op->n_dst; i++)
      __builtin_prefetch(copse_memory_cell(m, index, i, p->chunk), 1);
}

enum { SOON = 6 }; /* operations */

/* Runs one worker until it waits or is through with the chunk. */
static copse_status run_worker(struct proof *p, uint32_t worker) {
  struct copse_cursor *at = &p->cursors[worker];
  uint32_t first = p->plan->workers[worker].first_op, n = p->plan->workers[worker].n_ops;
  for (; at->op < n; at->op++) {
    bool blocked;
    if (at->op + SOON < n) expect_op(p, first + at->op + SOON);
    COPSE_DO(do_op(p, worker, &blocked));
    if (blocked) {
      p->waiting[worker] = true;
      return COPSE_OK;
    }
  }
  p->n_done++;
  return COPSE_OK;
}

/* Names a waiting worker and the waiting worker that it waits for. */
static copse_status refute_deadlock(struct proof *p) {
  for (uint32_t w = 0; w < p->plan->header.n_workers; w++) {
    if (!p->waiting[w]) continue;
    const struct copse_plan_op *op = &p->plan->ops[p->plan->workers[w].first_op + p->cursors[w].op];
    uint32_t other = p->plan->channels[op->channel].src_worker;
    uint32_t rank = p->plan->workers[other].rank;
    char text[160];
    snprintf(text, sizeof text, "deadlock: waits on channel %u for rank %u, worker %u, which %s",
             op->channel, rank, other - p->plan->ranks[rank].first_worker,
             p->waiting[other] ? "waits too" : "is through");
    return refute(p, w, text);
  }
  return copse_fail(p->err, COPSE_INTERNAL, "the proof stopped without a reason");
}

/* Signals left over would satisfy the next launch's waits too early. */
static copse_status check_balance(struct proof *p) {
  for (uint32_t i = 0; i < p->plan->header.n_channels; i++) {
    const struct copse_plan_channel *ch = &p->plan->channels[i];
    uint32_t left = copse_order_pending(p->order, i);
    if (left > 0)
      return copse_fail_at(p->err, COPSE_REFUTED, p->label, 0,
                           "channel %u from rank %u to rank %u: %u signals that nobody waits for "
                           "(%u chunks)",
                           i, p->plan->workers[ch->src_worker].rank,
                           p->plan->workers[ch->dst_worker].rank, left, p->chunks);
  }
  return COPSE_OK;
}

/* Checks that what a peer wrote, or read for a group, was announced before the rank's own workers
 * were through. */
static copse_status check_settled(struct proof *p, struct copse_event access, uint32_t rank,
                                  bool reads) {
  if (copse_order_known_at(p->order, access, rank)) return COPSE_OK;
  return copse_fail_at(p->err, COPSE_REFUTED, p->label, 0,
                       "rank %u may leave the call while rank %u still %s it (%u chunks)", rank,
                       p->plan->workers[access.worker].rank, reads ? "reads from" : "writes to",
                       p->chunks);
}

/* Notes writes at the end of a chunk. Who is notified of a worker's last write is notified of
 * those before. */
static copse_status note_writes(struct proof *p) {
  for (uint32_t i = 0; i < p->memory->n_places; i++) {
    struct copse_event now = p->memory->cells[i].writer, *last = &p->memory->unsettled[i];
    if (now.time == 0) continue;
    if (last->time > 0 && last->worker != now.worker)
      COPSE_DO(note_late(p, *last, p->memory->places[i].rank, false));
    *last = now;
  }
  return COPSE_OK;
}

static copse_status check_all_settled(struct proof *p) {
  const struct copse_plan_header *h = &p->plan->header;
  for (uint32_t i = 0; i < p->memory->n_places; i++)
    COPSE_DO(check_settled(p, p->memory->unsettled[i], p->memory->places[i].rank, false));
  for (const struct copse_late *l = p->memory->late; l; l = l->next)
    COPSE_DO(check_settled(p, l->access, l->rank, l->reads));
  for (size_t i = 0; i < (size_t)h->n_regions * h->fifo; i++) {
    const struct copse_cell *cell = &p->memory->slots[i];
    const struct copse_plan_region *region = &p->plan->regions[i / h->fifo];
    bool packets = region->kind == COPSE_REGION_PACKETS;
    if (!packets) COPSE_DO(check_settled(p, cell->writer, region->rank, false));
    if (cell->written && cell->reads == 0)
      return copse_fail_at(p->err, COPSE_REFUTED, p->label, 0,
                           "%s[%zu] of rank %u is written and never read (%u chunks)",
                           packets ? "packets" : "scratch", i / h->fifo, region->rank, p->chunks);
  }
  return COPSE_OK;
}

/* Whether the collective promises data block `block` at `rank`. */
static bool is_promised(const struct copse_plan_header *h, uint32_t rank, uint32_t block) {
  switch ((copse_collective)h->collective) {
    case COPSE_REDUCE_SCATTER: return block == rank;
    case COPSE_REDUCE: return (int32_t)rank == h->root;
    case COPSE_ALLTOALL: return block % h->n_ranks == rank;
    default: return true;
  }
}

/* Returns the multiset that data block `block` must consist of at the end. */
static int promised_set(const struct proof *p, uint32_t block) {
  const struct copse_plan_header *h = &p->plan->header;
  if (copse_collective_reduces((copse_collective)h->collective)) return p->everyone;
  return p->singles[h->collective == COPSE_BROADCAST  ? (uint32_t)h->root
                    : h->collective == COPSE_ALLTOALL ? block / h->n_ranks
                                                      : block];
}

static copse_status refute_result(struct proof *p, uint32_t rank, uint32_t block, uint32_t piece,
                                  const char *what) {
  return copse_fail_at(p->err, COPSE_REFUTED, p->label, 0,
                       "rank %u, block %u, piece %u, chunk %u of %u%s: %s", rank, block, piece,
                       p->chunk, p->chunks, p->memory->in_place ? ", in place" : "", what);
}

static copse_status check_cell_result(struct proof *p, const struct copse_memory_place *place,
                                      const struct copse_content *v) {
  bool reduces = copse_collective_reduces((copse_collective)p->plan->header.collective);
  int expected = promised_set(p, place->block);
  bool there = v->set >= 0,
       same = v->block == place->block && v->piece == place->piece && v->chunk == p->chunk;
  if (there && same && v->set == expected && v->scaled == reduces) return COPSE_OK;
  char what[300];
  if (!there)
    snprintf(what, sizeof what, "never written");
  else if (!same)
    snprintf(what, sizeof what, "ends with block %u, piece %u, chunk %u", v->block, v->piece,
             v->chunk);
  else if (v->set != expected)
    snprintf(what, sizeof what, "ends with the data of %s", copse_multisets_text(p->sets, v->set));
  else
    snprintf(what, sizeof what, "the final step of the reduction is missing");
  return refute_result(p, place->rank, place->block, place->piece, what);
}

/* Checks at the end of a chunk. That every promised place is there, check_promises says. */
static copse_status check_results(struct proof *p) {
  for (uint32_t i = 0; i < p->memory->n_places; i++) {
    const struct copse_memory_place *place = &p->memory->places[i];
    if (place->buffer == COPSE_BUFFER_OUTPUT &&
        is_promised(&p->plan->header, place->rank, place->block))
      COPSE_DO(check_cell_result(p, place, &p->memory->cells[i].content));
  }
  return COPSE_OK;
}

COPSE_ORDER(compare_keys, uint64_t, COPSE_COMPARE(*a, *b))

/* Checks that a (block, piece) pair has a place at every rank that is promised the block. */
static copse_status check_piece_promises(struct proof *p, uint32_t block, uint32_t piece) {
  const struct copse_plan_header *h = &p->plan->header;
  for (uint32_t rank = 0; rank < h->n_ranks; rank++)
    if (is_promised(h, rank, block) &&
        copse_memory_output(p->memory, rank, block, piece) == COPSE_NO_PLACE)
      return refute_result(p, rank, block, piece, "never written");
  return COPSE_OK;
}

/* Returns the first block that has to be moved from `from` on; `end` if none before it. An alltoall
 * by demand has blocks without elements, of which nothing is promised. */
static uint32_t next_block(const struct copse_plan *plan, uint32_t from, uint32_t end) {
  while (from < end && plan->header.n_extents > 0 && plan->extents[from].num == 0) from++;
  return from;
}

/* Checks every promised block, piece by piece: the pieces in use anywhere tile the block. */
static copse_status check_promises(struct proof *p) {
  uint32_t blocks = copse_memory_blocks(p->plan), next = 0;
  COPSE_AT_END(copse_free_at) uint64_t *keys = NULL;
  COPSE_DO(copse_calloc(p->memory->n_places, sizeof *keys, &keys, p->err));
  for (uint32_t i = 0; i < p->memory->n_places; i++)
    keys[i] = (uint64_t)p->memory->places[i].block << 32 | p->memory->places[i].piece;
  COPSE_SORT(keys, p->memory->n_places, compare_keys);
  for (uint32_t i = 0; i < p->memory->n_places; i++) {
    uint32_t block = (uint32_t)(keys[i] >> 32);
    if (i > 0 && keys[i] == keys[i - 1]) continue;
    if (block > next) next = next_block(p->plan, next, block);
    if (block > next) break; /* block `next` is missing */
    next = block + 1;
    COPSE_DO(check_piece_promises(p, block, (uint32_t)keys[i]));
  }
  next = next_block(p->plan, next, blocks);
  if (next == blocks) return COPSE_OK;
  return copse_fail_at(p->err, COPSE_REFUTED, p->label, 0, "block %u is never moved", next);
}

static copse_status refuse_ahead(const struct proof *p, uint32_t c, uint32_t chunk) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_channel *channel = &plan->channels[c];
  return copse_fail_at(
      p->err, COPSE_REFUTED, p->label, 0,
      "channel %u from rank %u to rank %u: with %u chunks it is waited for at chunk "
      "%u and signalled at a later one",
      c, plan->workers[channel->src_worker].rank, plan->workers[channel->dst_worker].rank,
      p->chunks, chunk);
}

/* Refutes a plan whose workers all wait: for a signal of a later chunk, or a ring of waits. The
 * j-th wait on a channel takes the j-th signal, so up to the end of every chunk there must be at
 * least as many signals as waits. Complexity O(chunks * operations). */
static copse_status refute_stall(struct proof *p) {
  const struct copse_plan *plan = p->plan;
  size_t n = plan->header.n_channels;
  int64_t *ahead;
  COPSE_DO(COPSE_ARRAY(&p->memory->launch, n, ahead, p->err));
  for (uint32_t chunk = 0; chunk <= p->chunk; chunk++) {
    for (uint32_t i = 0; i < plan->header.n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[i];
      if (op->kind == COPSE_OP_MOVE ||
          !copse_op_runs(op->when, chunk, p->chunks, plan->header.fifo))
        continue;
      ahead[op->channel] += op->kind == COPSE_OP_SIGNAL ? 1 : -1;
    }
    for (uint32_t c = 0; c < plan->header.n_channels; c++)
      if (ahead[c] < 0) return refuse_ahead(p, c, chunk);
  }
  return refute_deadlock(p);
}

/* Does the same in each memory, in turn the one at hand. */
static copse_status in_each(struct proof *p, copse_status (*check)(struct proof *)) {
  for (p->memory = p->memories; p->memory < p->memories_end; p->memory++) COPSE_DO(check(p));
  p->memory = p->memories;
  return COPSE_OK;
}

static copse_status start_memory(struct proof *p) {
  copse_memory_start(p->memory);
  return COPSE_OK;
}

static copse_status start_chunk(struct proof *p) {
  copse_memory_start_chunk(p->memory, p->chunk, p->singles);
  return COPSE_OK;
}

/* Runs a chunk of all workers before any does the next: none may wait for a later one, or a ring of
 * waits could reach over more chunks than are tried here. */
static copse_status run_chunk(struct proof *p, uint32_t chunk) {
  uint32_t n = p->plan->header.n_workers;
  bool memory = copse_chunk_has_memory(chunk, p->chunks, p->plan->header.fifo, p->regular);
  p->chunk = chunk;
  p->memories_end = p->memories + (memory ? p->n_memories : 0);
  COPSE_DO(in_each(p, start_chunk));
  p->n_done = 0;
  p->n_ready = n;
  for (uint32_t w = 0; w < n; w++) {
    p->ready[w] = n - 1 - w;
    p->cursors[w] = (struct copse_cursor){chunk, 0};
  }
  while (p->n_ready > 0) COPSE_DO(run_worker(p, p->ready[--p->n_ready]));
  if (p->n_done < n) return refute_stall(p);
  COPSE_DO(in_each(p, note_writes));
  return in_each(p, check_results);
}

static copse_status prove_run(struct proof *p, uint32_t chunks) {
  p->chunks = chunks;
  COPSE_DO(copse_order_reset(p->order, chunks, p->err));
  reset_notified(p->notified);
  COPSE_DO(in_each(p, start_memory));
  memset(p->waiting, 0, p->plan->header.n_workers * sizeof *p->waiting);
  for (uint32_t chunk = 0; chunk < chunks; chunk++) COPSE_DO(run_chunk(p, chunk));
  p->memories_end = p->memories + p->n_memories;
  COPSE_DO(check_balance(p));
  COPSE_DO(in_each(p, check_all_settled));
  return check_notified(p->notified, p->label, p->err);
}

/* Maps the memory at hand. */
static copse_status map_memory(struct proof *p) {
  bool in_place = p->memory > p->memories;
  COPSE_DO(copse_memory_map(p->memory, p->plan, in_place, p->label, p->err));
  return check_promises(p);
}

static copse_status prove_runs(struct proof *p, struct copse_proof_report *report) {
  const struct copse_plan_header *h = &p->plan->header;
  /* NCCL has no alltoall in place: a block would be overwritten before it is sent */
  p->n_memories = h->collective == COPSE_ALLTOALL ? 1 : 2;
  p->memories_end = p->memories + p->n_memories;
  p->chunk = 0;
  p->chunks = 1;
  COPSE_DO(in_each(p, map_memory));
  for (uint32_t n = 0; (n = copse_next_chunks(n, h->fifo, p->regular)) > 0;) {
    COPSE_DO(prove_run(p, n));
    report->runs += (int)(p->memories_end - p->memories);
    if (h->protocol == COPSE_PROTOCOL_LOW_LATENCY) break;
  }
  return COPSE_OK;
}

/* ---- channels ---------------------------------------------------------------------------- */

/* Checks that both ends of a channel or none are superfluous by packets: executors that look at
 * packets skip such signals and waits. */
static copse_status check_channels(struct proof *p) {
  uint8_t *seen;
  COPSE_DO(COPSE_ARRAY(&p->arena, p->plan->header.n_channels, seen, p->err));
  for (uint32_t i = 0; i < p->plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &p->plan->ops[i];
    if (op->kind == COPSE_OP_MOVE) continue;
    seen[op->channel] |= op->flags & COPSE_SYNC_IN_DATA ? 2 : 1;
    if (seen[op->channel] == (1 | 2))
      return copse_fail_at(p->err, COPSE_REFUTED, p->label, 0,
                           "op %u: channel %u belongs to packets in one operation and not in "
                           "another: who looks at packets skips the one and not the other",
                           i, op->channel);
  }
  return COPSE_OK;
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Bytes of one, with what its growing and its index take: a place, with its cell and name; a
 * multiset and the sum that it comes from, besides one for each rank; a wait, signalled and
 * answered, for each chunk; another rank's access, for each chunk. Measured for 64 to 256 ranks:
 * 0.9 to 1.3 times the peak beyond the plan itself. */
enum { PLACE_BYTES = 144, SUM_BYTES = 160, WAIT_BYTES = 20, LATE_BYTES = 32 };

/* Estimates the memory of a proof: every output is written once, and no sum is asked for twice. */
static uint64_t estimate_bytes(const struct proof *p) {
  const struct copse_plan *plan = p->plan;
  const struct copse_plan_header *h = &plan->header;
  uint64_t places = 0, sums = 0, waits = 0, late = 0, chunks = (uint64_t)h->fifo + 3;
  for (uint32_t w = 0; w < h->n_workers; w++)
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      const struct copse_plan_operand *operands = &plan->operands[op->operand];
      if (op->kind == COPSE_OP_WAIT) waits += op->when == COPSE_WHEN_ALWAYS ? chunks : 1;
      if (op->kind != COPSE_OP_MOVE) continue;
      sums += op->n_src > 1;
      for (uint32_t k = 0; k < (uint32_t)op->n_src + op->n_dst; k++) {
        bool dst = k >= op->n_src, input = operands[k].buffer == COPSE_BUFFER_INPUT;
        places += input || (dst && operands[k].buffer == COPSE_BUFFER_OUTPUT);
        late += operands[k].rank != plan->workers[w].rank ? chunks : 0;
      }
    }
  return places * PLACE_BYTES + sums * (SUM_BYTES + h->n_ranks) + waits * WAIT_BYTES +
         late * LATE_BYTES + (uint64_t)h->n_regions * h->fifo * sizeof(struct copse_cell) +
         (uint64_t)h->n_operands * sizeof(uint32_t) + (uint64_t)h->n_ops * sizeof(uint32_t) +
         (uint64_t)h->n_channels * 48 + (uint64_t)h->n_workers * (h->n_ranks / 8 + 64);
}

static void end_proof(struct proof *p) {
  copse_order_free(p->order);
  copse_memory_free(&p->memories[0]);
  copse_memory_free(&p->memories[1]);
  copse_multisets_free(p->sets);
  copse_arena_free(&p->arena);
}

copse_status copse_prove_plan(const struct copse_plan *plan, const char *label,
                              struct copse_proof_report *report, struct copse_err *err) {
  COPSE_AT_END(end_proof) struct proof p = {.plan = plan, .label = label, .err = err};
  p.memory = p.memories;
  struct copse_arena *arena = &p.arena;
  size_t n = plan->header.n_workers;
  *report = (struct copse_proof_report){0};
  COPSE_DO(copse_memory_check(estimate_bytes(&p), label, "a plan of fewer --instances", err,
                              "the proof of %u operations", plan->header.n_ops));
  COPSE_DO(check_channels(&p));
  COPSE_DO(copse_plan_is_regular(plan, &p.regular, err));
  p.regular &= plan->header.protocol != COPSE_PROTOCOL_LOW_LATENCY;
  COPSE_DO(copse_multisets_new((int)plan->header.n_ranks, &p.sets, err));
  COPSE_DO(COPSE_ARRAY(arena, plan->header.n_ranks, p.singles, err));
  for (uint32_t r = 0; r < plan->header.n_ranks; r++)
    COPSE_DO(copse_multisets_single(p.sets, (int)r, &p.singles[r], err));
  COPSE_DO(copse_multisets_everyone(p.sets, &p.everyone, err));
  COPSE_DO(copse_order_new(arena, plan, &p.order, err));
  if (plan->header.protocol == COPSE_PROTOCOL_LOW_LATENCY)
    COPSE_DO(new_notified(arena, plan, &p.notified, err));
  COPSE_DO(COPSE_ARRAY(arena, n, p.cursors, err));
  COPSE_DO(COPSE_ARRAY(arena, n, p.ready, err));
  COPSE_DO(COPSE_ARRAY(arena, n, p.waiting, err));
  COPSE_DO(prove_runs(&p, report));
  report->operations = p.executed;
  return COPSE_OK;
}
