/*
 * The proof of an MSCCL++ plan. It runs launches (launch.c) on names: a cell is a chunk, or a slice
 * of one where ops cut chunks (check/cells.c). Every block does what it can until it has to wait.
 *
 * - Peers' memory may be used once the peer is known to have entered, and everything done to a
 *   rank's memory must be known to it when it leaves.
 * - What a port reads may outlast the launch:
 *
 *     launch e       proxy reads x ........................ still reading
 *     launch e + 1                      who first writes x must know of the entry of a rank
 *                                       that had left launch e knowing of the read
 *
 *   A second run refutes a writer that need not know.
 * - Signals and semaphores must end as they began.
 * - Pipelines run 1, 2 and 3 times on slices of chunks.
 * - Not followed, and said so: packets through ports, semaphores with several acquirers, channels
 *   that several blocks signal on.
 *
 * Mutants that are no defects, besides those of MSCCL (msccl/check.c): a `nop` before what does not
 * touch what stands before it.
 */
#include "codegen/mscclpp/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rational.h"
#include "codegen/mscclpp/launch.h"

#define MAX_SLICES 64

/* ---- places of an op ----------------------------------------------------------------------- */

/* The slices [from, to) of a place that this op does now. */
static void slices_of(const struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                      int size, int *from, int *to) {
  const struct copse_pj_state *s = &r->states[block];
  bool rounds = s->loop >= 0;
  int parts = rounds ? s->rounds : op->parts, part = rounds ? s->round : op->part;
  int64_t slices = (int64_t)size * r->slices; /* no more than the buffer has; times a part, maybe */
  *from = (int)(slices * part / parts);
  *to = (int)(slices * (part + 1) / parts);
}

static void check_place(struct copse_pj_launch *r, int block, const struct copse_pj_place *at) {
  static const char letters[] = "ios";
  int n = at->rank < 0 ? at->n_members : 1;
  char what[120];
  for (int i = 0; i < n; i++) {
    int rank = at->rank < 0 ? at->members[i] : at->rank;
    int chunks = copse_cells_size(r->cells, rank, at->letter) / r->slices;
    if (at->size >= 1 && at->index + at->size <= chunks) continue;
    snprintf(what, sizeof what, "uses %d chunks from %c[%d] of gpu %d on, which has %d of them",
             at->size, letters[at->letter], at->index, rank, chunks);
    copse_pj_refute(r, block, what);
  }
}

/* A peer's memory may be used once it is known that the peer has entered this launch. */
static void check_entered(struct copse_pj_launch *r, int block, int rank, int thread) {
  char what[120];
  struct copse_action entry = {r->first_entry + rank, 1};
  if (rank == r->f->blocks[block].rank) return;
  if (copse_threads_before(r->threads, entry, thread)) return;
  snprintf(what, sizeof what,
           "uses memory of gpu %d, which may not have entered the launch: no signal of it has been "
           "waited for",
           rank);
  copse_pj_refute(r, block, what);
}

static struct copse_cell_at cell_of(const struct copse_pj_launch *r,
                                    const struct copse_pj_place *at, int rank, int slice) {
  return (struct copse_cell_at){rank, at->letter, at->index * r->slices + slice};
}

static struct copse_pj_packet *packet_of(struct copse_pj_launch *r, const struct copse_pj_place *at,
                                         int slice) {
  return &r->packets[at->rank][at->index * r->slices + slice];
}

/* One of the threads of the op at which the block stands. */
static int packet_thread(const struct copse_pj_launch *r, int block, int which) {
  return r->first_packet +
         (block * COPSE_PJ_MAX_OPS + r->states[block].op) * COPSE_PJ_PACKET_THREADS + which;
}

/* Whether entry i of an op is in packet form; sums start with a plain one of their own. */
static bool in_packets(const struct copse_pj_op *op, bool pkt, int i) {
  bool plain_first = op->type->kind == COPSE_PJ_SUM && strcmp(op->type->name, "rppkt") != 0;
  return pkt && (i > 0 || !plain_first);
}

static void check_packet(struct copse_pj_launch *r, int block, const struct copse_pj_place *at) {
  if (at->letter != COPSE_LETTER_S) copse_pj_refute(r, block, "has packets outside scratch");
  if (!r->f->low_latency)
    copse_pj_refute(r, block,
                    "uses packets, for which scratch is too small unless \"protocol\" is \"LL\"");
  if (r->status != COPSE_OK || r->packets[at->rank]) return;
  r->status = copse_arena_array(&r->arena, (size_t)r->f->scratch[at->rank] * (size_t)r->slices,
                                sizeof **r->packets, &r->packets[at->rank], r->err);
}

/* Sizes, bounds, packets; what an op may do at all. */
static void check_data(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  const struct copse_pj_state *s = &r->states[block];
  bool moves = op->type->kind == COPSE_PJ_MOVE, sums = op->type->kind == COPSE_PJ_SUM;
  bool port = op->channel == COPSE_PJ_PORT;
  int size = op->n_src > 0 ? op->src[0].size : 0;
  if (op->n_src == 0 || op->n_dst == 0) copse_pj_refute(r, block, "lacks a source or destination");
  if (moves && op->n_src != op->n_dst)
    copse_pj_refute(r, block, "has not as many sources as destinations");
  if (s->loop >= 0 && (op->parts > 1 || size != r->f->blocks[block].ops[s->loop].unit_chunks))
    copse_pj_refute(r, block, "is not of the num_chunks of its pipeline");
  for (int side = 0; side < 2; side++) {
    const struct copse_pj_place *at = side ? op->dst : op->src;
    bool pkt = side ? op->type->pkt_dst : op->type->pkt_src;
    for (int i = 0; i < (side ? op->n_dst : op->n_src) && r->status == COPSE_OK; i++) {
      if (at[i].size != size) copse_pj_refute(r, block, "has entries of different sizes");
      if (at[i].rank < 0 && op->type->kind != COPSE_PJ_MULTIMEM)
        copse_pj_refute(r, block, "can't go through a switch channel");
      check_place(r, block, &at[i]);
      if (in_packets(op, pkt, i)) check_packet(r, block, &at[i]);
    }
  }
  if (op->type->gets && moves && op->src[0].index != op->dst[0].index)
    copse_pj_refute(r, block, "gets to another index than it gets from, which the kernel mixes up");
  if (port && sums && !op->type->pkt_dst) copse_pj_refute(r, block, "can't go through a port");
  if (port && moves && op->n_ends < op->n_dst)
    copse_pj_refute(r, block, "needs a channel id for every destination");
}

static bool packets_there(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  int from, to;
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    slices_of(r, block, op, op->src[i].size, &from, &to);
    for (int j = from; j < to; j++)
      if (!packet_of(r, &op->src[i], j)->history) return false;
  }
  return true;
}

static struct copse_value read_cell(struct copse_pj_launch *r, int block,
                                    const struct copse_pj_place *at, int rank, int slice,
                                    struct copse_action action) {
  struct copse_value v = {COPSE_SET_UNDEFINED, 0, {0, 0}};
  check_entered(r, block, rank, action.thread);
  COPSE_KEEP(r, copse_cells_read(r->cells, action, cell_of(r, at, rank, slice), &v, r->err));
  return v;
}

static struct copse_value read_slice(struct copse_pj_launch *r, int block,
                                     const struct copse_pj_op *op, int i, int slice,
                                     struct copse_action action) {
  const struct copse_pj_place *at = &op->src[i];
  if (in_packets(op, op->type->pkt_src, i)) return packet_of(r, at, slice)->value;
  return read_cell(r, block, at, at->rank, slice, action);
}

static void write_slice(struct copse_pj_launch *r, int block, const struct copse_pj_op *op, int i,
                        int slice, struct copse_action action, struct copse_value v) {
  const struct copse_pj_place *at = &op->dst[i];
  bool packets = in_packets(op, op->type->pkt_dst, i);
  if (!packets || !r->f->double_scratch) check_entered(r, block, at->rank, action.thread);
  if (!packets && at->letter == COPSE_LETTER_I && !r->f->in_place)
    copse_pj_refute(r, block, "writes an input, and the plan is for calls out of place");
  if (!packets) {
    struct copse_cell_at cell = cell_of(r, at, at->rank, slice);
    COPSE_KEEP(r, copse_cells_write(r->cells, action, cell, v, r->err));
    return;
  }
  struct copse_pj_packet *p = packet_of(r, at, slice);
  if (p->history) copse_pj_refute(r, block, "writes packets that are there already");
  p->value = v;
  if (r->status == COPSE_OK)
    p->history = copse_pj_take(r, packet_thread(r, block, COPSE_PJ_PACKET_CARRIES));
}

static void add_value(struct copse_pj_launch *r, struct copse_action action,
                      struct copse_value *sum, struct copse_value v) {
  COPSE_KEEP(r, copse_cells_add(r->cells, action, sum, v, r->err));
}

/* ---- ops with packets ------------------------------------------------------------------ */

/* What the packets of a slice carry, to the op's reads and on to the packets that it makes. */
static void take_packets(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                         int slice) {
  int reads = packet_thread(r, block, COPSE_PJ_PACKET_READS);
  int carries = packet_thread(r, block, COPSE_PJ_PACKET_CARRIES);
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    struct copse_history *h = packet_of(r, &op->src[i], slice)->history;
    COPSE_KEEP(r, copse_history_learn(r->threads, reads, h, r->err));
    COPSE_KEEP(r, copse_history_learn(r->threads, carries, h, r->err));
  }
}

static void do_packet_slice(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                            int slice) {
  int reads = packet_thread(r, block, COPSE_PJ_PACKET_READS);
  int writes = packet_thread(r, block, COPSE_PJ_PACKET_WRITES);
  int carries = packet_thread(r, block, COPSE_PJ_PACKET_CARRIES);
  bool moves = op->type->kind == COPSE_PJ_MOVE;
  struct copse_value sum = {0};
  take_packets(r, block, op, slice);
  for (int i = 0; i < op->n_src && r->status == COPSE_OK; i++) {
    struct copse_action action = copse_threads_act(r->threads, reads);
    struct copse_value v = read_slice(r, block, op, i, slice, action);
    struct copse_history *h = NULL;
    COPSE_KEEP(r, copse_history_of(action, &h, r->err));
    COPSE_KEEP(r, copse_history_learn(r->threads, carries, h, r->err));
    copse_history_drop(h);
    if (!moves && i > 0)
      add_value(r, action, &sum, v);
    else
      sum = v;
    if (!moves) continue;
    copse_pj_pass_on(r, reads, writes);
    write_slice(r, block, op, i, slice, copse_threads_act(r->threads, writes), v);
  }
  copse_pj_pass_on(r, reads, writes);
  for (int i = 0; i < op->n_dst && !moves && r->status == COPSE_OK; i++)
    write_slice(r, block, op, i, slice, copse_threads_act(r->threads, writes), sum);
}

static void do_packets(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  int from, to;
  if (op->channel == COPSE_PJ_PORT) copse_pj_not_followed(r, op->line, "packets through a port");
  copse_pj_pass_on(r, block, packet_thread(r, block, COPSE_PJ_PACKET_READS));
  slices_of(r, block, op, op->src[0].size, &from, &to);
  for (int j = from; j < to && r->status == COPSE_OK; j++) do_packet_slice(r, block, op, j);
  copse_pj_append(r, &r->states[block].learned,
                  copse_pj_take(r, packet_thread(r, block, COPSE_PJ_PACKET_WRITES)));
}

/* ---- other ops with data --------------------------------------------------------------- */

/* dst[i] = src[i], by the block or, through a port, by the proxy of its channel. */
static void do_move(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  bool port = op->channel == COPSE_PJ_PORT;
  struct copse_action action = {0, 0};
  if (!port) action = copse_pj_act(r, block);
  for (int i = 0; i < op->n_dst; i++) {
    int from, to;
    if (port) action = copse_pj_act_through(r, block, op->ends[i]);
    slices_of(r, block, op, op->src[i].size, &from, &to);
    for (int j = from; j < to && r->status == COPSE_OK; j++)
      write_slice(r, block, op, i, j, action, read_slice(r, block, op, i, j, action));
  }
}

static void do_sum(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  struct copse_action action = copse_pj_act(r, block);
  int from, to;
  slices_of(r, block, op, op->src[0].size, &from, &to);
  for (int j = from; j < to && r->status == COPSE_OK; j++) {
    struct copse_value sum = read_slice(r, block, op, 0, j, action);
    for (int i = 1; i < op->n_src; i++)
      add_value(r, action, &sum, read_slice(r, block, op, i, j, action));
    for (int i = 0; i < op->n_dst; i++) write_slice(r, block, op, i, j, action, sum);
  }
}

/* gstore: one's own chunk to all members; glres: the sum over all members to all. */
static void do_multimem(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  const struct copse_pj_place *src = &op->src[0], *dst = &op->dst[0];
  int own = r->f->blocks[block].rank, n = src->rank >= 0 ? 1 : src->n_members, from, to;
  if (dst->rank >= 0 || (src->rank >= 0 && src->rank != own)) {
    copse_pj_refute(r, block, "needs a switch channel as destination");
    return;
  }
  struct copse_action action = copse_pj_act(r, block);
  slices_of(r, block, op, src->size, &from, &to);
  for (int j = from; j < to && r->status == COPSE_OK; j++) {
    struct copse_value sum = {0};
    for (int i = 0; i < n; i++) {
      int rank = src->rank >= 0 ? own : src->members[i];
      struct copse_value v = read_cell(r, block, src, rank, j, action);
      if (i == 0)
        sum = v;
      else
        add_value(r, action, &sum, v);
    }
    for (int i = 0; i < dst->n_members; i++) {
      struct copse_cell_at at = cell_of(r, dst, dst->members[i], j);
      check_entered(r, block, at.rank, block);
      COPSE_KEEP(r, copse_cells_write(r->cells, action, at, sum, r->err));
    }
  }
}

/* Whether its packets are there. */
static bool do_data(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  check_data(r, block, op);
  if (r->status != COPSE_OK || !packets_there(r, block, op)) return false;
  if (op->type->pkt_src || op->type->pkt_dst) {
    do_packets(r, block, op);
    return true;
  }
  switch (op->type->kind) {
    case COPSE_PJ_MOVE: do_move(r, block, op); break;
    case COPSE_PJ_SUM: do_sum(r, block, op); break;
    default: do_multimem(r, block, op);
  }
  if (op->type->signals && op->channel == COPSE_PJ_PORT)
    for (int i = 0; i < op->n_ends; i++) copse_pj_signal(r, block, op->ends[i], false);
  if (strcmp(op->type->name, "pwsf") == 0) copse_pj_flush(r, block, op);
  return true;
}

/* ---- one block ------------------------------------------------------------------------- */

static int rounds_of(const struct copse_pj_launch *r, const struct copse_pj_op *op) {
  int64_t n = (op->unit_chunks * r->chunk_bytes + op->unit - 1) / op->unit;
  return n > 0 ? (int)n : 1;
}

/* The op at which the block stands: whether it is done. A barrier's other blocks may be moved as
 * well. */
static bool do_op(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  struct copse_pj_state *s = &r->states[block];
  switch (op->type->kind) {
    case COPSE_PJ_NOP: copse_pj_meet(r, block); return true;
    case COPSE_PJ_SYNC: return copse_pj_try_sync(r, block, op);
    case COPSE_PJ_FLUSH: copse_pj_flush(r, block, op); return true;
    case COPSE_PJ_BARRIER: return copse_pj_try_barrier(r, block, op);
    case COPSE_PJ_ACQUIRE: return copse_pj_try_acquire(r, block, op);
    case COPSE_PJ_RELEASE: copse_pj_release(r, block, op); return true;
    case COPSE_PJ_PIPELINE:
      s->loop = s->op;
      s->round = 0;
      s->rounds = rounds_of(r, op);
      return true;
    default: return do_data(r, block, op);
  }
}

/* As far as the block gets; whether that is anywhere. */
static bool advance(struct copse_pj_launch *r, int block) {
  const struct copse_pj_block *b = &r->f->blocks[block];
  struct copse_pj_state *s = &r->states[block];
  bool progress = false;
  while (s->op < b->n_ops || s->loop >= 0) {
    if (s->loop >= 0 && s->op == s->loop + b->ops[s->loop].n_inner + 1) {
      bool again = ++s->round < s->rounds;
      if (again) s->op = s->loop + 1;
      if (!again) s->loop = -1;
      continue;
    }
    if (!do_op(r, block, &b->ops[s->op]) || r->status != COPSE_OK) break;
    s->op++;
    progress = true;
    ++*r->actions;
  }
  return progress;
}

/* ---- all together ---------------------------------------------------------------------- */

static bool has_pipeline(const struct copse_pj_file *f) {
  for (int b = 0; b < f->n_blocks; b++)
    for (int o = 0; o < f->blocks[b].n_ops; o++)
      if (f->blocks[b].ops[o].type->kind == COPSE_PJ_PIPELINE) return true;
  return false;
}

/* The smallest chunk of which some pipeline's unit is a whole; 0 without pipelines. */
static int64_t unit_bytes(const struct copse_pj_file *f) {
  int64_t least = 0;
  for (int b = 0; b < f->n_blocks; b++)
    for (int o = 0; o < f->blocks[b].n_ops; o++) {
      const struct copse_pj_op *op = &f->blocks[b].ops[o];
      if (op->type->kind != COPSE_PJ_PIPELINE) continue;
      int64_t bytes = (op->unit + op->unit_chunks - 1) / op->unit_chunks;
      if (least == 0 || bytes < least) least = bytes;
    }
  return least;
}

/* Chunks so large that the shortest pipeline runs `rounds` times, sliced where any op cuts. */
static copse_status choose_slices(struct copse_pj_launch *r, int rounds) {
  const struct copse_pj_file *f = r->f;
  int64_t slices = 1;
  r->chunk_bytes = unit_bytes(f) * rounds;
  for (int b = 0; b < f->n_blocks; b++) {
    int end = -1, loops = 1;
    for (int o = 0; o < f->blocks[b].n_ops; o++) {
      const struct copse_pj_op *op = &f->blocks[b].ops[o];
      if (op->type->kind == COPSE_PJ_PIPELINE) {
        end = o + op->n_inner;
        loops = rounds_of(r, op);
      }
      int cut = o <= end ? loops : op->parts, size = op->n_src > 0 ? op->src[0].size : 0;
      if (cut <= 1 || size == 0) continue;
      COPSE_DO(copse_lcm(slices, cut / copse_gcd(cut, size), &slices, r->err));
      if (slices > MAX_SLICES)
        return copse_fail_at(r->err, COPSE_UNSUPPORTED, f->label, op->line,
                             "chunks are cut in more ways than this checker follows");
    }
  }
  r->slices = (int)slices;
  return COPSE_OK;
}

static copse_status make_cells(struct copse_pj_launch *r) {
  const struct copse_pj_file *f = r->f;
  r->first_entry = f->n_blocks;
  r->first_proxy = r->first_entry + f->n_ranks;
  r->first_end = r->first_proxy + f->n_ends;
  r->first_packet = r->first_end + f->n_ranks;
  struct copse_cells_of of = {
      .n_ranks = f->n_ranks,
      .n_threads = r->first_packet + f->n_blocks * COPSE_PJ_MAX_OPS * COPSE_PJ_PACKET_THREADS,
      .n_groups = f->n_blocks,
      .slices = r->slices,
      .collective = f->collective,
      .block = f->block,
      .in_place = f->in_place,
      .scratch = f->scratch,
      .label = f->label,
      .name = copse_pj_name_action,
      .ctx = r};
  copse_status status = copse_cells_new(&of, &r->cells, r->err);
  if (status == COPSE_OK) r->threads = copse_cells_threads(r->cells);
  return status;
}

/* Every block knows that its own rank has entered. */
static void enter(struct copse_pj_launch *r) {
  for (int g = 0; g < r->f->n_ranks; g++) {
    copse_threads_act(r->threads, r->first_entry + g);
    for (int b = r->f->first_block[g]; b < r->f->first_block[g + 1]; b++)
      copse_pj_pass_on(r, r->first_entry + g, b);
  }
}

/* A rank's end comes after all that its blocks did and learned. */
static void leave(struct copse_pj_launch *r) {
  for (int b = 0; b < r->f->n_blocks; b++) {
    copse_pj_meet(r, b);
    copse_pj_pass_on(r, b, r->first_end + r->f->blocks[b].rank);
  }
  COPSE_KEEP(r, copse_cells_check_left(r->cells, r->first_end, r->first_proxy, r->err));
}

/* What is left over would be taken by the next launch for its own. */
static copse_status check_balance(const struct copse_pj_launch *r) {
  for (int e = 0; e < r->f->n_ends; e++)
    if (r->ends[e].in.first < r->ends[e].in.n) {
      int from = r->ends[r->f->ends[e].partner].signaller;
      return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, 0,
                           "gpu %d tb %d signals gpu %d %zu times more than that waits: the next "
                           "launch starts too early",
                           r->f->ends[e].peer, r->f->blocks[from].id, r->f->ends[e].rank,
                           r->ends[e].in.n - r->ends[e].in.first);
    }
  for (int s = 0; s < r->f->n_semaphores; s++)
    if (r->semaphores[s].value != r->f->semaphores[s])
      return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, 0,
                           "a semaphore ends at %lld and starts at %d: the next launch differs",
                           (long long)r->semaphores[s].value, r->f->semaphores[s]);
  return COPSE_OK;
}

static copse_status make_states(struct copse_pj_launch *r) {
  const struct copse_pj_file *f = r->f;
  struct copse_arena *arena = &r->arena;
  size_t n_semaphores = (size_t)f->n_semaphores;
  COPSE_DO(copse_arena_array(arena, (size_t)f->n_blocks, sizeof *r->states, &r->states, r->err));
  COPSE_DO(copse_arena_array(arena, (size_t)f->n_ends, sizeof *r->ends, &r->ends, r->err));
  COPSE_DO(copse_arena_array(arena, n_semaphores, sizeof *r->semaphores, &r->semaphores, r->err));
  COPSE_DO(copse_arena_array(arena, (size_t)f->n_ranks, sizeof *r->packets, &r->packets, r->err));
  for (int b = 0; b < f->n_blocks; b++) r->states[b].loop = -1;
  for (int e = 0; e < f->n_ends; e++) r->ends[e].waiter = r->ends[e].signaller = -1;
  for (int s = 0; s < f->n_semaphores; s++) {
    r->semaphores[s].value = f->semaphores[s];
    r->semaphores[s].acquirer = -1;
  }
  return COPSE_OK;
}

static void free_list(struct copse_pj_histories *list) {
  copse_pj_drop_all(list);
  free(list->v);
}

static void free_run(struct copse_pj_launch *r) {
  for (int b = 0; r->states && b < r->f->n_blocks; b++) {
    free(r->states[b].op_of);
    free_list(&r->states[b].learned);
  }
  for (int e = 0; r->ends && e < r->f->n_ends; e++) {
    free_list(&r->ends[e].in);
    free(r->ends[e].op_of);
  }
  for (int s = 0; r->semaphores && s < r->f->n_semaphores; s++)
    free_list(&r->semaphores[s].released);
  for (int g = 0; r->packets && g < r->f->n_ranks; g++)
    for (int i = 0; r->packets[g] && i < r->f->scratch[g] * r->slices; i++)
      copse_history_drop(r->packets[g][i].history);
  copse_cells_free(r->cells);
  copse_arena_free(&r->arena);
}

/* One launch. `before`: reads that the one before may have left going on, `after`: its own. */
static copse_status launch(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                           const struct copse_late_reads *before, struct copse_late_reads *after,
                           struct copse_err *err) {
  struct copse_pj_launch r = {.f = file, .actions = actions, .err = err};
  bool progress = true;
  copse_status status;
  COPSE_TRY(make_states(&r));
  COPSE_TRY(choose_slices(&r, rounds));
  COPSE_TRY(make_cells(&r));
  copse_cells_guard(r.cells, before, r.first_entry);
  enter(&r);
  while (progress && r.status == COPSE_OK) {
    progress = false;
    for (int b = 0; b < file->n_blocks && r.status == COPSE_OK; b++)
      if (advance(&r, b)) progress = true;
  }
  for (int b = 0; b < file->n_blocks; b++)
    if (r.states[b].op < file->blocks[b].n_ops) copse_pj_refute(&r, b, "waits forever: a deadlock");
  leave(&r);
  COPSE_TRY(r.status);
  COPSE_TRY(copse_cells_check_result(r.cells, err));
  COPSE_TRY(check_balance(&r));
  if (after) status = copse_late_reads_take(r.cells, r.first_proxy, r.first_end, after, err);
out:
  free_run(&r);
  return status;
}

/* `rounds`: how often the shortest pipeline runs; others by their sizes. */
static copse_status run_twice(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                              struct copse_err *err) {
  struct copse_late_reads late = {0};
  uint64_t again = 0;
  copse_status status = launch(file, rounds, actions, NULL, &late, err);
  if (status == COPSE_OK && late.n > 0) status = launch(file, rounds, &again, &late, NULL, err);
  copse_late_reads_free(&late);
  return status;
}

copse_status copse_check_mscclpp(const char *label, const char *data, size_t size,
                                 struct copse_check_mscclpp_report *report, struct copse_err *err) {
  struct copse_pj_file file;
  copse_status status = copse_pj_parse(label, data, size, &file, err);
  if (status != COPSE_OK) return status;
  *report = (struct copse_check_mscclpp_report){.collective = file.collective,
                                                .n_ranks = file.n_ranks,
                                                .n_blocks = file.n_blocks,
                                                .n_ops = file.n_ops,
                                                .chunks = file.chunks,
                                                .in_place = file.in_place};
  snprintf(report->name, sizeof report->name, "%s", file.name);
  int most = has_pipeline(&file) ? 3 : 1;
  for (int rounds = 1; rounds <= most && status == COPSE_OK; rounds++)
    status = run_twice(&file, rounds, &report->actions, err);
  copse_pj_free(&file);
  return status;
}
