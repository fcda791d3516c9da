/* Ops of an MSCCL++ plan that move data, in packets or not. */
#include <stdio.h>
#include <string.h>

#include "codegen/mscclpp/check_launch.h"

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

static copse_status check_place(struct copse_pj_launch *r, int block,
                                const struct copse_pj_place *at) {
  static const char letters[] = "ios";
  int first = at->rank < 0 ? 0 : at->rank, n = at->rank < 0 ? at->n_members : 1;
  char what[120];
  for (int i = 0; i < n; i++) {
    int rank = at->rank < 0 ? at->members[i] : first;
    int chunks = copse_cells_size(r->cells, rank, at->letter) / r->slices;
    if (at->size >= 1 && at->index + at->size <= chunks) continue;
    snprintf(what, sizeof what, "uses %d chunks from %c[%d] of gpu %d on, which has %d of them",
             at->size, letters[at->letter], at->index, rank, chunks);
    return copse_pj_refute(r, block, what);
  }
  return COPSE_OK;
}

/* A peer's memory may be used once it is known that the peer has entered this launch. */
static copse_status check_entered(struct copse_pj_launch *r, int block, int rank, int thread) {
  char what[120];
  if (rank == r->f->blocks[block].rank) return COPSE_OK;
  if (copse_threads_before(r->threads, (struct copse_action){r->first_entry + rank, 1}, thread))
    return COPSE_OK;
  snprintf(what, sizeof what,
           "uses memory of gpu %d, which may not have entered the launch: no signal of it has been "
           "waited for",
           rank);
  return copse_pj_refute(r, block, what);
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

static copse_status check_packet(struct copse_pj_launch *r, int block,
                                 const struct copse_pj_place *at) {
  if (at->letter != COPSE_LETTER_S) return copse_pj_refute(r, block, "has packets outside scratch");
  if (!r->f->low_latency)
    return copse_pj_refute(r, block,
                           "uses packets, for which scratch is too small unless \"protocol\" is "
                           "\"LL\"");
  if (r->packets[at->rank]) return COPSE_OK;
  return copse_calloc((size_t)r->f->scratch[at->rank] * (size_t)r->slices + 1, sizeof **r->packets,
                      &r->packets[at->rank], r->err);
}

/* Sizes, bounds, packets; what an op may do at all. */
static copse_status check_data(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  const struct copse_pj_state *s = &r->states[block];
  copse_status status = COPSE_OK;
  int size = op->n_src > 0 ? op->src[0].size : 0;
  if (op->n_src == 0 || op->n_dst == 0)
    return copse_pj_refute(r, block, "lacks a source or destination");
  if (op->type->kind == COPSE_PJ_MOVE && op->n_src != op->n_dst)
    return copse_pj_refute(r, block, "has not as many sources as destinations");
  if (s->loop >= 0 && (op->parts > 1 || size != r->f->blocks[block].ops[s->loop].unit_chunks))
    return copse_pj_refute(r, block, "is not of the num_chunks of its pipeline");
  for (int side = 0; side < 2; side++) {
    const struct copse_pj_place *at = side ? op->dst : op->src;
    bool pkt = side ? op->type->pkt_dst : op->type->pkt_src;
    for (int i = 0; i < (side ? op->n_dst : op->n_src); i++) {
      if (at[i].size != size) return copse_pj_refute(r, block, "has entries of different sizes");
      if (at[i].rank < 0 && op->type->kind != COPSE_PJ_MULTIMEM)
        return copse_pj_refute(r, block, "can't go through a switch channel");
      COPSE_TRY(check_place(r, block, &at[i]));
      if (in_packets(op, pkt, i)) COPSE_TRY(check_packet(r, block, &at[i]));
    }
  }
  if (op->type->gets && op->type->kind == COPSE_PJ_MOVE && op->src[0].index != op->dst[0].index)
    return copse_pj_refute(r, block,
                           "gets to another index than it gets from, which the kernel mixes up");
  if (op->channel == COPSE_PJ_PORT && op->type->kind == COPSE_PJ_SUM && !op->type->pkt_dst)
    return copse_pj_refute(r, block, "can't go through a port");
  if (op->channel == COPSE_PJ_PORT && op->type->kind == COPSE_PJ_MOVE && op->n_ends < op->n_dst)
    return copse_pj_refute(r, block, "needs a channel id for every destination");
out:
  return status;
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

static copse_status read_slice(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                               int i, int slice, struct copse_action action,
                               struct copse_value *v) {
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

static copse_status write_slice(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                                int i, int slice, struct copse_action action,
                                struct copse_value v) {
  const struct copse_pj_place *at = &op->dst[i];
  copse_status status = COPSE_OK;
  bool packets = in_packets(op, op->type->pkt_dst, i);
  if (!packets || !r->f->double_scratch)
    COPSE_TRY(check_entered(r, block, at->rank, action.thread));
  if (!packets && at->letter == COPSE_LETTER_I && !r->f->in_place)
    return copse_pj_refute(r, block, "writes an input, and the plan is for calls out of place");
  if (!packets)
    return copse_cells_write(r->cells, action, cell_of(r, at, at->rank, slice), v, r->err);
  struct copse_pj_packet *p = packet_of(r, at, slice);
  if (p->history) return copse_pj_refute(r, block, "writes packets that are there already");
  p->value = v;
  COPSE_TRY(copse_history_take(r->threads, packet_thread(r, block, COPSE_PJ_PACKET_TELLS),
                               &p->history, r->err));
out:
  return status;
}

/* ---- ops with packets ------------------------------------------------------------------ */

/* What the packets of a slice tell, to the op's reads and on to the packets that it makes. */
static copse_status take_packets(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                                 int slice) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    struct copse_history *h = packet_of(r, &op->src[i], slice)->history;
    COPSE_TRY(
        copse_history_learn(r->threads, packet_thread(r, block, COPSE_PJ_PACKET_READS), h, r->err));
    COPSE_TRY(
        copse_history_learn(r->threads, packet_thread(r, block, COPSE_PJ_PACKET_TELLS), h, r->err));
  }
out:
  return status;
}

static copse_status do_packet_slice(struct copse_pj_launch *r, int block,
                                    const struct copse_pj_op *op, int slice) {
  int reads = packet_thread(r, block, COPSE_PJ_PACKET_READS),
      writes = packet_thread(r, block, COPSE_PJ_PACKET_WRITES);
  bool moves = op->type->kind == COPSE_PJ_MOVE;
  struct copse_value sum = {0}, v;
  struct copse_history *h;
  copse_status status;
  COPSE_TRY(take_packets(r, block, op, slice));
  for (int i = 0; i < op->n_src; i++) {
    struct copse_action action = copse_threads_act(r->threads, reads);
    COPSE_TRY(read_slice(r, block, op, i, slice, action, &v));
    COPSE_TRY(copse_history_of(action, &h, r->err));
    status =
        copse_history_learn(r->threads, packet_thread(r, block, COPSE_PJ_PACKET_TELLS), h, r->err);
    copse_history_drop(h);
    if (status != COPSE_OK) return status;
    if (!moves && i > 0)
      COPSE_TRY(copse_cells_add(r->cells, action, &sum, v, r->err));
    else
      sum = v;
    if (!moves) continue;
    COPSE_TRY(copse_pj_tell(r, reads, writes));
    action = copse_threads_act(r->threads, writes);
    COPSE_TRY(write_slice(r, block, op, i, slice, action, v));
  }
  COPSE_TRY(copse_pj_tell(r, reads, writes));
  for (int i = 0; i < op->n_dst && !moves; i++)
    COPSE_TRY(write_slice(r, block, op, i, slice, copse_threads_act(r->threads, writes), sum));
out:
  return status;
}

static copse_status do_packets(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  int from, to;
  struct copse_history *h;
  copse_status status;
  if (op->channel == COPSE_PJ_PORT)
    return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, op->line,
                         "packets through a port, which this checker does not follow");
  COPSE_TRY(copse_pj_tell(r, block, packet_thread(r, block, COPSE_PJ_PACKET_READS)));
  slices_of(r, block, op, op->src[0].size, &from, &to);
  for (int j = from; j < to; j++) COPSE_TRY(do_packet_slice(r, block, op, j));
  COPSE_TRY(
      copse_history_take(r->threads, packet_thread(r, block, COPSE_PJ_PACKET_WRITES), &h, r->err));
  COPSE_TRY(copse_pj_append(r, &r->states[block].learned, h));
out:
  return status;
}

/* ---- other ops with data --------------------------------------------------------------- */

/* dst[i] = src[i], by the block or, through a port, by the proxy of its channel. */
static copse_status do_move(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  copse_status status = COPSE_OK;
  struct copse_action action = {0, 0};
  bool port = op->channel == COPSE_PJ_PORT;
  if (!port) COPSE_TRY(copse_pj_act(r, block, &action));
  for (int i = 0; i < op->n_dst; i++) {
    int from, to;
    if (port) COPSE_TRY(copse_pj_act_through(r, block, op->ends[i], &action));
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

static copse_status do_sum(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  struct copse_action action;
  int from, to;
  copse_status status;
  COPSE_TRY(copse_pj_act(r, block, &action));
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
static copse_status do_multimem(struct copse_pj_launch *r, int block,
                                const struct copse_pj_op *op) {
  const struct copse_pj_place *src = &op->src[0], *dst = &op->dst[0];
  int own = r->f->blocks[block].rank, from, to;
  struct copse_action action;
  copse_status status;
  if (dst->rank >= 0 || (src->rank >= 0 && src->rank != own))
    return copse_pj_refute(r, block, "needs a switch channel as destination");
  COPSE_TRY(copse_pj_act(r, block, &action));
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

/* ---- any of them ----------------------------------------------------------------------- */

copse_status copse_pj_do_data(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                              bool *done) {
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
    for (int i = 0; i < op->n_ends; i++) COPSE_TRY(copse_pj_signal(r, block, op->ends[i], false));
  if (strcmp(op->type->name, "pwsf") == 0) COPSE_TRY(copse_pj_flush(r, block, op));
out:
  return status;
}
