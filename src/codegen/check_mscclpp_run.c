/*
 * One symbolic run of an MSCCL++ plan. Threads, as far as order goes: every block (loose: its
 * members are ordered only where they meet), every rank's entry, every port's proxy, every
 * rank's end, and for every op with packets its reads, its writes and what a packet tells: a
 * packet orders what was read for it, element by element, and nothing else. Every block does
 * what it can until it has to wait.
 */
#include "codegen/check_mscclpp_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rational.h"

enum { MAX_SLICES = 64, MAX_OPS = 64 };

/* Threads of an op with packets. */
enum { PACKET_READS, PACKET_WRITES, PACKET_TELLS, N_PACKET_THREADS };

struct history_list {
  struct copse_history **v;
  size_t first, n, capacity; /* [first, n) are there */
};

struct state {
  int op;
  int round, rounds, loop; /* within the pipeline op `loop`, -1: in none */
  int *op_of;              /* [times] the op of each action */
  size_t n_times, times_capacity;
  struct history_list learned; /* by waits since the threads met last */
  bool arrived;                /* at the barrier that it stands at */
};

struct end_state {
  struct history_list in; /* signals on their way to this end */
  int waiter, signaller;  /* the one block that does, -1: none yet */
  int *op_of;             /* [n_times] block and op of each action of the port's proxy */
  size_t n_times, times_capacity;
};

struct semaphore {
  int64_t value;
  int acquirer, n_acquired;
  struct history_list released;
};

/* A chunk's slice in packet form. */
struct packet {
  struct copse_value value;
  struct copse_history *history; /* of the reads that it is made from; NULL: not there */
};

struct run {
  const struct copse_pj_file *f;
  struct copse_cells *cells;
  struct copse_threads *threads; /* the cells' */
  struct state *states;
  struct end_state *ends;
  struct semaphore *semaphores;
  struct packet **packets; /* [n_ranks][scratch * slices], where a rank has any */
  int first_entry, first_proxy, first_end, first_packet;
  int slices;
  int64_t chunk_bytes;
  uint64_t *actions;
  struct copse_err *err;
};

/* ---- names ----------------------------------------------------------------------------- */

static long name_op(const struct run *r, int block, int op, char text[64]) {
  const struct copse_pj_block *b = &r->f->blocks[block];
  snprintf(text, 64, "gpu %d tb %d op %d", b->rank, b->id, op);
  return b->ops[op].line;
}

static long name_action(const void *ctx, struct copse_action action, char text[64]) {
  const struct run *r = ctx;
  if (action.thread < r->f->n_blocks)
    return name_op(r, action.thread, r->states[action.thread].op_of[action.time - 1], text);
  if (action.thread >= r->first_packet) {
    int op = (action.thread - r->first_packet) / N_PACKET_THREADS;
    return name_op(r, op / MAX_OPS, op % MAX_OPS, text);
  }
  if (action.thread >= r->first_proxy && action.thread < r->first_end) {
    int op = r->ends[action.thread - r->first_proxy].op_of[action.time - 1];
    return name_op(r, op / MAX_OPS, op % MAX_OPS, text);
  }
  snprintf(text, 64, "gpu %d itself", action.thread - r->first_entry);
  return 0;
}

static copse_status refute(const struct run *r, int block, const char *what) {
  char place[64];
  const struct copse_pj_op *op = &r->f->blocks[block].ops[r->states[block].op];
  long line = name_op(r, block, r->states[block].op, place);
  return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, line, "%s (%s) %s", place,
                       op->type->name, what);
}

/* ---- lists of histories ---------------------------------------------------------------- */

static copse_status append(struct run *r, struct history_list *list, struct copse_history *h) {
  copse_status status = copse_grow(&list->v, &list->capacity, list->n + 1, sizeof *list->v, r->err);
  if (status == COPSE_OK)
    list->v[list->n++] = h;
  else
    copse_history_drop(h);
  return status;
}

static void drop_all(struct history_list *list) {
  for (; list->first < list->n; list->first++) copse_history_drop(list->v[list->first]);
  list->first = list->n = 0;
}

/* What one thread knows, to another. */
static copse_status tell(struct run *r, int from, int to) {
  struct copse_history *h;
  copse_status status = copse_history_take(r->threads, from, &h, r->err);
  if (status != COPSE_OK) return status;
  status = copse_history_learn(r->threads, to, h, r->err);
  copse_history_drop(h);
  return status;
}

/* The block's threads meet: each knows what any did and learned. */
static copse_status meet(struct run *r, int block) {
  struct history_list *learned = &r->states[block].learned;
  copse_status status = COPSE_OK;
  copse_threads_meet(r->threads, block);
  for (size_t i = learned->first; i < learned->n; i++)
    COPSE_TRY(copse_history_learn(r->threads, block, learned->v[i], r->err));
  drop_all(learned);
out:
  return status;
}

static copse_status act(struct run *r, int block, struct copse_action *action) {
  struct state *s = &r->states[block];
  copse_status status =
      copse_grow(&s->op_of, &s->times_capacity, s->n_times + 1, sizeof *s->op_of, r->err);
  if (status != COPSE_OK) return status;
  s->op_of[s->n_times++] = s->op;
  *action = copse_threads_act(r->threads, block);
  return COPSE_OK;
}

/* The proxy of a port acts, after all that the block has done before it last met. */
static copse_status act_through(struct run *r, int block, int end, struct copse_action *action) {
  struct end_state *e = &r->ends[end];
  copse_status status;
  COPSE_TRY(tell(r, block, r->first_proxy + end));
  COPSE_TRY(copse_grow(&e->op_of, &e->times_capacity, e->n_times + 1, sizeof *e->op_of, r->err));
  e->op_of[e->n_times++] = block * MAX_OPS + r->states[block].op;
  *action = copse_threads_act(r->threads, r->first_proxy + end);
out:
  return status;
}

/* ---- data ------------------------------------------------------------------------------ */

/* The slices [from, to) of a place that this op does now. */
static void slices_of(const struct run *r, int block, const struct copse_pj_op *op, int size,
                      int *from, int *to) {
  const struct state *s = &r->states[block];
  bool rounds = s->loop >= 0;
  int parts = rounds ? s->rounds : op->parts, part = rounds ? s->round : op->part;
  *from = size * r->slices * part / parts;
  *to = size * r->slices * (part + 1) / parts;
}

static copse_status check_place(struct run *r, int block, const struct copse_pj_place *at) {
  static const char letters[] = "ios";
  int first = at->rank < 0 ? 0 : at->rank, n = at->rank < 0 ? at->n_members : 1;
  char what[120];
  for (int i = 0; i < n; i++) {
    int rank = at->rank < 0 ? at->members[i] : first;
    int chunks = copse_cells_size(r->cells, rank, at->letter) / r->slices;
    if (at->size >= 1 && at->index + at->size <= chunks) continue;
    snprintf(what, sizeof what, "uses %d chunks from %c[%d] of gpu %d on, which has %d of them",
             at->size, letters[at->letter], at->index, rank, chunks);
    return refute(r, block, what);
  }
  return COPSE_OK;
}

/* A peer's memory may be used once it is known that the peer has entered this launch. */
static copse_status check_entered(struct run *r, int block, int rank, int thread) {
  char what[120];
  if (rank == r->f->blocks[block].rank) return COPSE_OK;
  if (copse_threads_before(r->threads, (struct copse_action){r->first_entry + rank, 1}, thread))
    return COPSE_OK;
  snprintf(what, sizeof what,
           "uses memory of gpu %d, which may not have entered the launch: no signal of it has been "
           "waited for",
           rank);
  return refute(r, block, what);
}

static struct copse_cell_at cell_of(const struct run *r, const struct copse_pj_place *at, int rank,
                                    int slice) {
  return (struct copse_cell_at){rank, at->letter, at->index * r->slices + slice};
}

static struct packet *packet_of(struct run *r, const struct copse_pj_place *at, int slice) {
  return &r->packets[at->rank][at->index * r->slices + slice];
}

/* One of the threads of the op at which the block stands. */
static int packet_thread(const struct run *r, int block, int which) {
  return r->first_packet + (block * MAX_OPS + r->states[block].op) * N_PACKET_THREADS + which;
}

/* Whether entry i of an op is in packet form; sums start with a plain one of their own. */
static bool in_packets(const struct copse_pj_op *op, bool pkt, int i) {
  bool plain_first = op->type->kind == COPSE_PJ_SUM && strcmp(op->type->name, "rppkt") != 0;
  return pkt && (i > 0 || !plain_first);
}

static copse_status check_packet(struct run *r, int block, const struct copse_pj_place *at) {
  if (at->letter != COPSE_LETTER_S) return refute(r, block, "has packets outside scratch");
  if (!r->f->low_latency)
    return refute(r, block,
                  "uses packets, for which scratch is too small unless \"protocol\" is "
                  "\"LL\"");
  if (r->packets[at->rank]) return COPSE_OK;
  return copse_calloc((size_t)r->f->scratch[at->rank] * (size_t)r->slices + 1, sizeof **r->packets,
                      &r->packets[at->rank], r->err);
}

/* Sizes, bounds, packets; what an op may do at all. */
static copse_status check_data(struct run *r, int block, const struct copse_pj_op *op) {
  const struct state *s = &r->states[block];
  copse_status status = COPSE_OK;
  int size = op->n_src > 0 ? op->src[0].size : 0;
  if (op->n_src == 0 || op->n_dst == 0) return refute(r, block, "lacks a source or destination");
  if (op->type->kind == COPSE_PJ_MOVE && op->n_src != op->n_dst)
    return refute(r, block, "has not as many sources as destinations");
  if (s->loop >= 0 && (op->parts > 1 || size != r->f->blocks[block].ops[s->loop].unit_chunks))
    return refute(r, block, "is not of the num_chunks of its pipeline");
  for (int side = 0; side < 2; side++) {
    const struct copse_pj_place *at = side ? op->dst : op->src;
    bool pkt = side ? op->type->pkt_dst : op->type->pkt_src;
    for (int i = 0; i < (side ? op->n_dst : op->n_src); i++) {
      if (at[i].size != size) return refute(r, block, "has entries of different sizes");
      if (at[i].rank < 0 && op->type->kind != COPSE_PJ_MULTIMEM)
        return refute(r, block, "can't go through a switch channel");
      COPSE_TRY(check_place(r, block, &at[i]));
      if (in_packets(op, pkt, i)) COPSE_TRY(check_packet(r, block, &at[i]));
    }
  }
  if (op->type->gets && op->type->kind == COPSE_PJ_MOVE && op->src[0].index != op->dst[0].index)
    return refute(r, block, "gets to another index than it gets from, which the kernel mixes up");
  if (op->channel == COPSE_PJ_PORT && op->type->kind == COPSE_PJ_SUM && !op->type->pkt_dst)
    return refute(r, block, "can't go through a port");
  if (op->channel == COPSE_PJ_PORT && op->type->kind == COPSE_PJ_MOVE && op->n_ends < op->n_dst)
    return refute(r, block, "needs a channel id for every destination");
out:
  return status;
}

static bool packets_there(struct run *r, int block, const struct copse_pj_op *op) {
  int from, to;
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    slices_of(r, block, op, op->src[i].size, &from, &to);
    for (int j = from; j < to; j++)
      if (!packet_of(r, &op->src[i], j)->history) return false;
  }
  return true;
}

static copse_status read_slice(struct run *r, int block, const struct copse_pj_op *op, int i,
                               int slice, struct copse_action action, struct copse_value *v) {
  const struct copse_pj_place *at = &op->src[i];
  copse_status status = COPSE_OK;
  if (in_packets(op, op->type->pkt_src, i)) {
    *v = packet_of(r, at, slice)->value;
    return COPSE_OK;
  }
  COPSE_TRY(check_entered(r, block, at->rank, action.thread));
  COPSE_TRY(copse_cells_read(r->cells, action, cell_of(r, at, at->rank, slice), v, r->err));
out:
  return status;
}

static copse_status write_slice(struct run *r, int block, const struct copse_pj_op *op, int i,
                                int slice, struct copse_action action, struct copse_value v) {
  const struct copse_pj_place *at = &op->dst[i];
  copse_status status = COPSE_OK;
  bool packets = in_packets(op, op->type->pkt_dst, i);
  if (!packets || !r->f->double_scratch)
    COPSE_TRY(check_entered(r, block, at->rank, action.thread));
  if (!packets && at->letter == COPSE_LETTER_I && !r->f->in_place)
    return refute(r, block, "writes an input, and the plan is for calls out of place");
  if (!packets)
    return copse_cells_write(r->cells, action, cell_of(r, at, at->rank, slice), v, r->err);
  struct packet *p = packet_of(r, at, slice);
  if (p->history) return refute(r, block, "writes packets that are there already");
  p->value = v;
  COPSE_TRY(
      copse_history_take(r->threads, packet_thread(r, block, PACKET_TELLS), &p->history, r->err));
out:
  return status;
}

/* ---- ops with packets ------------------------------------------------------------------ */

/* What the packets of a slice tell, to the op's reads and on to the packets that it makes. */
static copse_status take_packets(struct run *r, int block, const struct copse_pj_op *op,
                                 int slice) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    struct copse_history *h = packet_of(r, &op->src[i], slice)->history;
    COPSE_TRY(copse_history_learn(r->threads, packet_thread(r, block, PACKET_READS), h, r->err));
    COPSE_TRY(copse_history_learn(r->threads, packet_thread(r, block, PACKET_TELLS), h, r->err));
  }
out:
  return status;
}

static copse_status do_packet_slice(struct run *r, int block, const struct copse_pj_op *op,
                                    int slice) {
  int reads = packet_thread(r, block, PACKET_READS),
      writes = packet_thread(r, block, PACKET_WRITES);
  bool moves = op->type->kind == COPSE_PJ_MOVE;
  struct copse_value sum = {0}, v;
  struct copse_history *h;
  copse_status status;
  COPSE_TRY(take_packets(r, block, op, slice));
  for (int i = 0; i < op->n_src; i++) {
    struct copse_action action = copse_threads_act(r->threads, reads);
    COPSE_TRY(read_slice(r, block, op, i, slice, action, &v));
    COPSE_TRY(copse_history_of(action, &h, r->err));
    status = copse_history_learn(r->threads, packet_thread(r, block, PACKET_TELLS), h, r->err);
    copse_history_drop(h);
    if (status != COPSE_OK) return status;
    if (!moves && i > 0)
      COPSE_TRY(copse_cells_add(r->cells, action, &sum, v, r->err));
    else
      sum = v;
    if (!moves) continue;
    COPSE_TRY(tell(r, reads, writes));
    action = copse_threads_act(r->threads, writes);
    COPSE_TRY(write_slice(r, block, op, i, slice, action, v));
  }
  COPSE_TRY(tell(r, reads, writes));
  for (int i = 0; i < op->n_dst && !moves; i++)
    COPSE_TRY(write_slice(r, block, op, i, slice, copse_threads_act(r->threads, writes), sum));
out:
  return status;
}

static copse_status do_packets(struct run *r, int block, const struct copse_pj_op *op) {
  int from, to;
  struct copse_history *h;
  copse_status status;
  if (op->channel == COPSE_PJ_PORT)
    return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, op->line,
                         "packets through a port, which this checker does not follow");
  COPSE_TRY(tell(r, block, packet_thread(r, block, PACKET_READS)));
  slices_of(r, block, op, op->src[0].size, &from, &to);
  for (int j = from; j < to; j++) COPSE_TRY(do_packet_slice(r, block, op, j));
  COPSE_TRY(copse_history_take(r->threads, packet_thread(r, block, PACKET_WRITES), &h, r->err));
  COPSE_TRY(append(r, &r->states[block].learned, h));
out:
  return status;
}

/* ---- other ops with data --------------------------------------------------------------- */

/* dst[i] = src[i], by the block or, through a port, by the proxy of its channel. */
static copse_status do_move(struct run *r, int block, const struct copse_pj_op *op) {
  copse_status status = COPSE_OK;
  struct copse_action action = {0, 0};
  bool port = op->channel == COPSE_PJ_PORT;
  if (!port) COPSE_TRY(act(r, block, &action));
  for (int i = 0; i < op->n_dst; i++) {
    int from, to;
    if (port) COPSE_TRY(act_through(r, block, op->ends[i], &action));
    slices_of(r, block, op, op->src[i].size, &from, &to);
    for (int j = from; j < to; j++) {
      struct copse_value v;
      COPSE_TRY(read_slice(r, block, op, i, j, action, &v));
      COPSE_TRY(write_slice(r, block, op, i, j, action, v));
    }
  }
out:
  return status;
}

static copse_status do_sum(struct run *r, int block, const struct copse_pj_op *op) {
  struct copse_action action;
  int from, to;
  copse_status status;
  COPSE_TRY(act(r, block, &action));
  slices_of(r, block, op, op->src[0].size, &from, &to);
  for (int j = from; j < to; j++) {
    struct copse_value sum, v;
    COPSE_TRY(read_slice(r, block, op, 0, j, action, &sum));
    for (int i = 1; i < op->n_src; i++) {
      COPSE_TRY(read_slice(r, block, op, i, j, action, &v));
      COPSE_TRY(copse_cells_add(r->cells, action, &sum, v, r->err));
    }
    for (int i = 0; i < op->n_dst; i++) COPSE_TRY(write_slice(r, block, op, i, j, action, sum));
  }
out:
  return status;
}

/* gstore: one's own chunk to all members; glres: the sum over all members to all. */
static copse_status do_multimem(struct run *r, int block, const struct copse_pj_op *op) {
  const struct copse_pj_place *src = &op->src[0], *dst = &op->dst[0];
  int own = r->f->blocks[block].rank, from, to;
  struct copse_action action;
  copse_status status;
  if (dst->rank >= 0 || (src->rank >= 0 && src->rank != own))
    return refute(r, block, "needs a switch channel as destination");
  COPSE_TRY(act(r, block, &action));
  slices_of(r, block, op, src->size, &from, &to);
  for (int j = from; j < to; j++) {
    struct copse_value sum = {0}, v;
    int n = src->rank >= 0 ? 1 : src->n_members;
    for (int i = 0; i < n; i++) {
      int rank = src->rank >= 0 ? own : src->members[i];
      COPSE_TRY(check_entered(r, block, rank, block));
      COPSE_TRY(copse_cells_read(r->cells, action, cell_of(r, src, rank, j), &v, r->err));
      if (i == 0)
        sum = v;
      else
        COPSE_TRY(copse_cells_add(r->cells, action, &sum, v, r->err));
    }
    for (int i = 0; i < dst->n_members; i++) {
      COPSE_TRY(check_entered(r, block, dst->members[i], block));
      COPSE_TRY(
          copse_cells_write(r->cells, action, cell_of(r, dst, dst->members[i], j), sum, r->err));
    }
  }
out:
  return status;
}

/* ---- signals --------------------------------------------------------------------------- */

/* Sends what `thread` knows, or, relaxed, only that its rank has entered. */
static copse_status signal(struct run *r, int block, int end, bool relaxed) {
  const struct copse_pj_end *e = &r->f->ends[end];
  int entry = r->first_entry + e->rank, from = block;
  struct copse_history *h;
  copse_status status;
  if (e->partner < 0) return refute(r, block, "signals a peer that has no such channel back");
  struct end_state *mine = &r->ends[end];
  if (mine->signaller >= 0 && mine->signaller != block)
    return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, 0,
                         "two blocks of gpu %d signal on one channel, which this checker does not "
                         "follow",
                         e->rank);
  mine->signaller = block;
  if (e->type == COPSE_PJ_PORT) { /* after what went through this port before */
    from = r->first_proxy + end;
    COPSE_TRY(tell(r, block, from));
  }
  COPSE_TRY(copse_history_take(r->threads, relaxed ? entry : from, &h, r->err));
  COPSE_TRY(append(r, &r->ends[e->partner].in, h));
out:
  return status;
}

static copse_status try_sync(struct run *r, int block, const struct copse_pj_op *op, bool *done) {
  copse_status status = COPSE_OK;
  bool none = op->channel != COPSE_PJ_MEMORY && op->channel != COPSE_PJ_PORT;
  *done = true;
  if (none) return COPSE_OK; /* the kernel does nothing then */
  if (!op->type->waits) {
    for (int i = 0; i < op->n_ends; i++)
      COPSE_TRY(signal(r, block, op->ends[i], op->type->relaxed && op->channel != COPSE_PJ_PORT));
    return COPSE_OK;
  }
  for (int i = 0; i < op->n_ends; i++) {
    struct end_state *e = &r->ends[op->ends[i]];
    if (e->waiter >= 0 && e->waiter != block)
      return refute(r, block, "waits on a channel on which another block of its gpu waits too");
    e->waiter = block;
    for (int k = 0; k < i; k++)
      if (op->ends[k] == op->ends[i]) return refute(r, block, "names a channel twice");
    if (e->in.first == e->in.n) *done = false;
  }
  for (int i = 0; i < op->n_ends && *done; i++) {
    struct history_list *in = &r->ends[op->ends[i]].in;
    struct copse_history *h = in->v[in->first++];
    COPSE_TRY(append(r, &r->states[block].learned, h));
  }
out:
  return status;
}

/* ---- within a gpu ---------------------------------------------------------------------- */

/* Everyone at the barrier learns what the others did. */
static copse_status pass_barrier(struct run *r, int block, const struct copse_pj_op *op) {
  int rank = r->f->blocks[block].rank;
  struct history_list all = {0};
  copse_status status = COPSE_OK;
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    struct copse_history *h;
    if (!r->states[b].arrived || r->f->blocks[b].ops[r->states[b].op].barrier != op->barrier)
      continue;
    COPSE_TRY(copse_history_take(r->threads, b, &h, r->err));
    COPSE_TRY(append(r, &all, h));
  }
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!r->states[b].arrived || r->f->blocks[b].ops[r->states[b].op].barrier != op->barrier)
      continue;
    for (size_t i = 0; i < all.n; i++)
      COPSE_TRY(copse_history_learn(r->threads, b, all.v[i], r->err));
    r->states[b].arrived = false;
    if (b != block) r->states[b].op++;
  }
out:
  drop_all(&all);
  free(all.v);
  return status;
}

static copse_status try_barrier(struct run *r, int block, const struct copse_pj_op *op,
                                bool *done) {
  int rank = r->f->blocks[block].rank, n = 0;
  copse_status status = COPSE_OK;
  *done = false;
  if (r->states[block].loop >= 0)
    return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, op->line,
                         "a barrier in a pipeline, which this checker does not follow");
  if (!r->states[block].arrived) COPSE_TRY(meet(r, block));
  r->states[block].arrived = true;
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!r->states[b].arrived) continue;
    const struct copse_pj_op *other = &r->f->blocks[b].ops[r->states[b].op];
    if (other->barrier != op->barrier) continue;
    if (other->barrier_blocks != op->barrier_blocks)
      return refute(r, block, "and another block give their barrier different counts");
    n++;
  }
  if (n < op->barrier_blocks) return COPSE_OK;
  *done = true;
  COPSE_TRY(pass_barrier(r, block, op));
out:
  return status;
}

/*
 * A semaphore tells its one acquirer of the release that it needed: for sure if one block
 * releases, or if it was the last of all.
 */
static copse_status try_acquire(struct run *r, int block, const struct copse_pj_op *op,
                                bool *done) {
  copse_status status = COPSE_OK;
  *done = true;
  for (int i = 0; i < op->n_ends; i++) {
    struct semaphore *s = &r->semaphores[op->ends[i]];
    if (s->acquirer >= 0 && s->acquirer != block)
      return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, op->line,
                           "two blocks acquire one semaphore, which this checker does not follow");
    s->acquirer = block;
    for (int k = 0; k < i; k++)
      if (op->ends[k] == op->ends[i]) return refute(r, block, "names a semaphore twice");
    if (s->value < 1) *done = false;
  }
  for (int i = 0; i < op->n_ends && *done; i++) {
    struct semaphore *s = &r->semaphores[op->ends[i]];
    s->value--;
    /* the n-th acquire beyond the initial value needed the n-th release */
    if (s->n_acquired++ < r->f->semaphores[op->ends[i]]) continue;
    struct copse_history *h = s->released.v[s->released.first++];
    COPSE_TRY(append(r, &r->states[block].learned, h));
  }
out:
  return status;
}

static copse_status release(struct run *r, int block, const struct copse_pj_op *op) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < op->n_ends; i++) {
    struct semaphore *s = &r->semaphores[op->ends[i]];
    struct copse_history *h;
    COPSE_TRY(copse_history_take(r->threads, block, &h, r->err));
    COPSE_TRY(append(r, &s->released, h));
    s->value++;
  }
out:
  return status;
}

/* A flush of a port waits for what went through it, if it names as many destinations. */
static copse_status flush(struct run *r, int block, const struct copse_pj_op *op) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < op->n_ends && i < op->n_dst; i++) {
    struct copse_history *h;
    COPSE_TRY(copse_history_take(r->threads, r->first_proxy + op->ends[i], &h, r->err));
    COPSE_TRY(append(r, &r->states[block].learned, h));
  }
out:
  return status;
}

/* ---- one block ------------------------------------------------------------------------- */

static copse_status do_data(struct run *r, int block, const struct copse_pj_op *op, bool *done) {
  copse_status status;
  COPSE_TRY(check_data(r, block, op));
  *done = packets_there(r, block, op);
  if (!*done) return COPSE_OK;
  if (op->type->pkt_src || op->type->pkt_dst) return do_packets(r, block, op);
  switch (op->type->kind) {
    case COPSE_PJ_MOVE: COPSE_TRY(do_move(r, block, op)); break;
    case COPSE_PJ_SUM: COPSE_TRY(do_sum(r, block, op)); break;
    default: COPSE_TRY(do_multimem(r, block, op));
  }
  if (op->type->signals && op->channel == COPSE_PJ_PORT)
    for (int i = 0; i < op->n_ends; i++) COPSE_TRY(signal(r, block, op->ends[i], false));
  if (strcmp(op->type->name, "pwsf") == 0) COPSE_TRY(flush(r, block, op));
out:
  return status;
}

static int rounds_of(const struct run *r, const struct copse_pj_op *op) {
  int64_t n = (op->unit_chunks * r->chunk_bytes + op->unit - 1) / op->unit;
  return n > 0 ? (int)n : 1;
}

/* The op at which the block stands; a barrier's other blocks may be moved as well. */
static copse_status do_op(struct run *r, int block, const struct copse_pj_op *op, bool *done) {
  struct state *s = &r->states[block];
  *done = true;
  switch (op->type->kind) {
    case COPSE_PJ_NOP: return meet(r, block);
    case COPSE_PJ_SYNC: return try_sync(r, block, op, done);
    case COPSE_PJ_FLUSH: return flush(r, block, op);
    case COPSE_PJ_BARRIER: return try_barrier(r, block, op, done);
    case COPSE_PJ_ACQUIRE: return try_acquire(r, block, op, done);
    case COPSE_PJ_RELEASE: return release(r, block, op);
    case COPSE_PJ_PIPELINE:
      s->loop = s->op;
      s->round = 0;
      s->rounds = rounds_of(r, op);
      return COPSE_OK;
    default: return do_data(r, block, op, done);
  }
}

static copse_status advance(struct run *r, int block, bool *progress) {
  const struct copse_pj_block *b = &r->f->blocks[block];
  struct state *s = &r->states[block];
  copse_status status = COPSE_OK;
  while (s->op < b->n_ops || s->loop >= 0) {
    if (s->loop >= 0 && s->op == s->loop + b->ops[s->loop].n_inner + 1) {
      bool again = ++s->round < s->rounds;
      if (again) s->op = s->loop + 1;
      if (!again) s->loop = -1;
      continue;
    }
    bool done;
    COPSE_TRY(do_op(r, block, &b->ops[s->op], &done));
    if (!done) break;
    s->op++;
    *progress = true;
    ++*r->actions;
  }
out:
  return status;
}

/* ---- all together ---------------------------------------------------------------------- */

bool copse_pj_has_pipeline(const struct copse_pj_file *f) {
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
static copse_status choose_slices(struct run *r, int rounds) {
  const struct copse_pj_file *f = r->f;
  int64_t slices = 1;
  copse_status status = COPSE_OK;
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
      COPSE_TRY(copse_lcm(slices, cut / copse_gcd(cut, size), &slices, r->err));
      if (slices > MAX_SLICES)
        return copse_fail_at(r->err, COPSE_UNSUPPORTED, f->label, op->line,
                             "chunks are cut in more ways than this checker follows");
    }
  }
  r->slices = (int)slices;
out:
  return status;
}

static copse_status make_cells(struct run *r) {
  const struct copse_pj_file *f = r->f;
  r->first_entry = f->n_blocks;
  r->first_proxy = r->first_entry + f->n_ranks;
  r->first_end = r->first_proxy + f->n_ends;
  r->first_packet = r->first_end + f->n_ranks;
  struct copse_cells_of of = {
      .n_ranks = f->n_ranks,
      .n_threads = r->first_packet + f->n_blocks * MAX_OPS * N_PACKET_THREADS,
      .n_loose = f->n_blocks,
      .slices = r->slices,
      .collective = f->collective,
      .chunks = f->chunks,
      .block = f->block,
      .in_place = f->in_place,
      .scratch = f->scratch,
      .label = f->label,
      .name = name_action,
      .ctx = r};
  copse_status status = copse_cells_new(&of, &r->cells, r->err);
  if (status == COPSE_OK) r->threads = copse_cells_threads(r->cells);
  return status;
}

/* Every block knows that its own rank has entered. */
static copse_status enter(struct run *r) {
  copse_status status = COPSE_OK;
  for (int g = 0; g < r->f->n_ranks; g++) {
    struct copse_history *h;
    copse_threads_act(r->threads, r->first_entry + g);
    COPSE_TRY(copse_history_take(r->threads, r->first_entry + g, &h, r->err));
    for (int b = r->f->first_block[g]; b < r->f->first_block[g + 1] && status == COPSE_OK; b++)
      status = copse_history_learn(r->threads, b, h, r->err);
    copse_history_drop(h);
    if (status != COPSE_OK) return status;
  }
out:
  return status;
}

/* A rank's end comes after all that its blocks did and learned. */
static copse_status leave(struct run *r) {
  copse_status status = COPSE_OK;
  for (int b = 0; b < r->f->n_blocks; b++) {
    COPSE_TRY(meet(r, b));
    COPSE_TRY(tell(r, b, r->first_end + r->f->blocks[b].rank));
  }
  COPSE_TRY(copse_cells_check_left(r->cells, r->first_end, r->first_proxy, r->err));
out:
  return status;
}

/* What is left over would be taken by the next launch for its own. */
static copse_status check_balance(const struct run *r) {
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

static copse_status make_states(struct run *r) {
  const struct copse_pj_file *f = r->f;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)f->n_blocks, sizeof *r->states, &r->states, r->err));
  COPSE_TRY(copse_calloc((size_t)f->n_ends, sizeof *r->ends, &r->ends, r->err));
  COPSE_TRY(copse_calloc((size_t)f->n_semaphores, sizeof *r->semaphores, &r->semaphores, r->err));
  COPSE_TRY(copse_calloc((size_t)f->n_ranks, sizeof *r->packets, &r->packets, r->err));
  for (int b = 0; b < f->n_blocks; b++) r->states[b].loop = -1;
  for (int e = 0; e < f->n_ends; e++) r->ends[e].waiter = r->ends[e].signaller = -1;
  for (int s = 0; s < f->n_semaphores; s++) {
    r->semaphores[s].value = f->semaphores[s];
    r->semaphores[s].acquirer = -1;
  }
out:
  return status;
}

static void free_list(struct history_list *list) {
  drop_all(list);
  free(list->v);
}

static void free_run(struct run *r) {
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
  for (int g = 0; r->packets && g < r->f->n_ranks; g++) {
    for (int i = 0; r->packets[g] && i < r->f->scratch[g] * r->slices; i++)
      copse_history_drop(r->packets[g][i].history);
    free(r->packets[g]);
  }
  free(r->states);
  free(r->ends);
  free(r->semaphores);
  free(r->packets);
  copse_cells_free(r->cells);
}

/* One launch. `before`: reads that the one before may have left going on, `after`: its own. */
static copse_status launch(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                           const struct copse_late_reads *before, struct copse_late_reads **after,
                           struct copse_err *err) {
  struct run r = {.f = file, .actions = actions, .err = err};
  bool progress = true;
  copse_status status;
  COPSE_TRY(make_states(&r));
  COPSE_TRY(choose_slices(&r, rounds));
  COPSE_TRY(make_cells(&r));
  copse_cells_guard(r.cells, before, r.first_entry);
  COPSE_TRY(enter(&r));
  while (progress) {
    progress = false;
    for (int b = 0; b < file->n_blocks; b++) COPSE_TRY(advance(&r, b, &progress));
  }
  for (int b = 0; b < file->n_blocks; b++)
    if (r.states[b].op < file->blocks[b].n_ops) {
      status = refute(&r, b, "waits forever: a deadlock");
      goto out;
    }
  COPSE_TRY(leave(&r));
  COPSE_TRY(copse_cells_check_result(r.cells, err));
  COPSE_TRY(check_balance(&r));
  if (after) status = copse_late_reads_take(r.cells, r.first_proxy, r.first_end, after, err);
out:
  free_run(&r);
  return status;
}

copse_status copse_pj_run(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                          struct copse_err *err) {
  struct copse_late_reads *late = NULL;
  copse_status status = launch(file, rounds, actions, NULL, &late, err);
  if (status == COPSE_OK && late) {
    uint64_t again = 0;
    status = launch(file, rounds, &again, late, NULL, err);
  }
  copse_late_reads_free(late);
  return status;
}
