/*
 * One symbolic launch of an MSCCL++ plan. Threads, as far as order goes:
 *
 *   [0, n_blocks)           blocks: groups whose members are ordered only where they meet
 *   first_entry + rank      the rank's entry
 *   first_proxy + end       the proxy of a port
 *   first_end + rank        the rank's end
 *   first_packet + ...      for every op with packets its reads, its writes and what a packet
 * carries
 *
 * A block's threads are ordered only where they meet (`nop`, barriers): what a block does is before
 * its next actions once it has met. A port's proxy is a thread of its own, which a signal through
 * that port follows and a signal through memory does not. Relaxed signals say that a rank has
 * entered, and nothing of memory. A packet orders what was read for it, element by element (data
 * depend on it), and nothing else.
 */
#include "codegen/mscclpp/launch.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- who did what ------------------------------------------------------------------------ */

static long name_op(const struct copse_pj_launch *r, int block, int op, char text[64]) {
  const struct copse_pj_block *b = &r->f->blocks[block];
  snprintf(text, 64, "gpu %d tb %d op %d", b->rank, b->id, op);
  return b->ops[op].line;
}

long copse_pj_name_action(const void *ctx, struct copse_action action, char text[64]) {
  const struct copse_pj_launch *r = ctx;
  if (action.thread < r->f->n_blocks)
    return name_op(r, action.thread, r->states[action.thread].op_of[action.time - 1], text);
  if (action.thread >= r->first_packet) {
    int op = (action.thread - r->first_packet) / COPSE_PJ_PACKET_THREADS;
    return name_op(r, op / COPSE_PJ_MAX_OPS, op % COPSE_PJ_MAX_OPS, text);
  }
  if (action.thread >= r->first_proxy && action.thread < r->first_end) {
    int op = r->ends[action.thread - r->first_proxy].op_of[action.time - 1];
    return name_op(r, op / COPSE_PJ_MAX_OPS, op % COPSE_PJ_MAX_OPS, text);
  }
  snprintf(text, 64, "gpu %d itself", action.thread - r->first_entry);
  return 0;
}

copse_status copse_pj_refute(const struct copse_pj_launch *r, int block, const char *what) {
  char place[64];
  const struct copse_pj_op *op = &r->f->blocks[block].ops[r->states[block].op];
  long line = name_op(r, block, r->states[block].op, place);
  return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, line, "%s (%s) %s", place,
                       op->type->name, what);
}

/* ---- lists of histories ---------------------------------------------------------------- */

copse_status copse_pj_append(struct copse_pj_launch *r, struct copse_pj_histories *list,
                             struct copse_history *h) {
  copse_status status = copse_grow(&list->v, &list->capacity, list->n + 1, sizeof *list->v, r->err);
  if (status == COPSE_OK)
    list->v[list->n++] = h;
  else
    copse_history_drop(h);
  return status;
}

void copse_pj_drop_all(struct copse_pj_histories *list) {
  for (; list->first < list->n; list->first++) copse_history_drop(list->v[list->first]);
  list->first = list->n = 0;
}

copse_status copse_pj_pass_on(struct copse_pj_launch *r, int from, int to) {
  struct copse_history *h;
  copse_status status = copse_history_take(r->threads, from, &h, r->err);
  if (status != COPSE_OK) return status;
  status = copse_history_learn(r->threads, to, h, r->err);
  copse_history_drop(h);
  return status;
}

copse_status copse_pj_meet(struct copse_pj_launch *r, int block) {
  struct copse_pj_histories *learned = &r->states[block].learned;
  copse_status status = COPSE_OK;
  copse_threads_meet(r->threads, block);
  for (size_t i = learned->first; i < learned->n; i++)
    COPSE_TRY(copse_history_learn(r->threads, block, learned->v[i], r->err));
  copse_pj_drop_all(learned);
out:
  return status;
}

copse_status copse_pj_act(struct copse_pj_launch *r, int block, struct copse_action *action) {
  struct copse_pj_state *s = &r->states[block];
  copse_status status =
      copse_grow(&s->op_of, &s->times_capacity, s->n_times + 1, sizeof *s->op_of, r->err);
  if (status != COPSE_OK) return status;
  s->op_of[s->n_times++] = s->op;
  *action = copse_threads_act(r->threads, block);
  return COPSE_OK;
}

copse_status copse_pj_act_through(struct copse_pj_launch *r, int block, int end,
                                  struct copse_action *action) {
  struct copse_pj_end_state *e = &r->ends[end];
  copse_status status;
  COPSE_TRY(copse_pj_pass_on(r, block, r->first_proxy + end));
  COPSE_TRY(copse_grow(&e->op_of, &e->times_capacity, e->n_times + 1, sizeof *e->op_of, r->err));
  e->op_of[e->n_times++] = block * COPSE_PJ_MAX_OPS + r->states[block].op;
  *action = copse_threads_act(r->threads, r->first_proxy + end);
out:
  return status;
}

/* ---- signals --------------------------------------------------------------------------- */

copse_status copse_pj_signal(struct copse_pj_launch *r, int block, int end, bool relaxed) {
  const struct copse_pj_end *e = &r->f->ends[end];
  int entry = r->first_entry + e->rank, from = block;
  struct copse_history *h;
  copse_status status;
  if (e->partner < 0)
    return copse_pj_refute(r, block, "signals a peer that has no such channel back");
  struct copse_pj_end_state *mine = &r->ends[end];
  if (mine->signaller >= 0 && mine->signaller != block)
    return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, 0,
                         "two blocks of gpu %d signal on one channel, which this checker does not "
                         "follow",
                         e->rank);
  mine->signaller = block;
  if (e->type == COPSE_PJ_PORT) { /* after what went through this port before */
    from = r->first_proxy + end;
    COPSE_TRY(copse_pj_pass_on(r, block, from));
  }
  COPSE_TRY(copse_history_take(r->threads, relaxed ? entry : from, &h, r->err));
  COPSE_TRY(copse_pj_append(r, &r->ends[e->partner].in, h));
out:
  return status;
}

copse_status copse_pj_try_sync(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                               bool *done) {
  copse_status status = COPSE_OK;
  bool none = op->channel != COPSE_PJ_MEMORY && op->channel != COPSE_PJ_PORT;
  *done = true;
  if (none) return COPSE_OK; /* the kernel does nothing then */
  if (!op->type->waits) {
    for (int i = 0; i < op->n_ends; i++)
      COPSE_TRY(copse_pj_signal(r, block, op->ends[i],
                                op->type->relaxed && op->channel != COPSE_PJ_PORT));
    return COPSE_OK;
  }
  for (int i = 0; i < op->n_ends; i++) {
    struct copse_pj_end_state *e = &r->ends[op->ends[i]];
    if (e->waiter >= 0 && e->waiter != block)
      return copse_pj_refute(r, block,
                             "waits on a channel on which another block of its gpu waits too");
    e->waiter = block;
    for (int k = 0; k < i; k++)
      if (op->ends[k] == op->ends[i]) return copse_pj_refute(r, block, "names a channel twice");
    if (e->in.first == e->in.n) *done = false;
  }
  for (int i = 0; i < op->n_ends && *done; i++) {
    struct copse_pj_histories *in = &r->ends[op->ends[i]].in;
    struct copse_history *h = in->v[in->first++];
    COPSE_TRY(copse_pj_append(r, &r->states[block].learned, h));
  }
out:
  return status;
}

/* ---- within a gpu ---------------------------------------------------------------------- */

/* Everyone at the barrier learns what the others did. */
static copse_status pass_barrier(struct copse_pj_launch *r, int block,
                                 const struct copse_pj_op *op) {
  int rank = r->f->blocks[block].rank;
  struct copse_pj_histories all = {0};
  copse_status status = COPSE_OK;
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    struct copse_history *h;
    if (!r->states[b].arrived || r->f->blocks[b].ops[r->states[b].op].barrier != op->barrier)
      continue;
    COPSE_TRY(copse_history_take(r->threads, b, &h, r->err));
    COPSE_TRY(copse_pj_append(r, &all, h));
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
  copse_pj_drop_all(&all);
  free(all.v);
  return status;
}

copse_status copse_pj_try_barrier(struct copse_pj_launch *r, int block,
                                  const struct copse_pj_op *op, bool *done) {
  int rank = r->f->blocks[block].rank, n = 0;
  copse_status status = COPSE_OK;
  *done = false;
  if (r->states[block].loop >= 0)
    return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, op->line,
                         "a barrier in a pipeline, which this checker does not follow");
  if (!r->states[block].arrived) COPSE_TRY(copse_pj_meet(r, block));
  r->states[block].arrived = true;
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!r->states[b].arrived) continue;
    const struct copse_pj_op *other = &r->f->blocks[b].ops[r->states[b].op];
    if (other->barrier != op->barrier) continue;
    if (other->barrier_blocks != op->barrier_blocks)
      return copse_pj_refute(r, block, "and another block give their barrier different counts");
    n++;
  }
  if (n < op->barrier_blocks) return COPSE_OK;
  *done = true;
  COPSE_TRY(pass_barrier(r, block, op));
out:
  return status;
}

copse_status copse_pj_try_acquire(struct copse_pj_launch *r, int block,
                                  const struct copse_pj_op *op, bool *done) {
  copse_status status = COPSE_OK;
  *done = true;
  for (int i = 0; i < op->n_ends; i++) {
    struct copse_pj_semaphore *s = &r->semaphores[op->ends[i]];
    if (s->acquirer >= 0 && s->acquirer != block)
      return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, op->line,
                           "two blocks acquire one semaphore, which this checker does not follow");
    s->acquirer = block;
    for (int k = 0; k < i; k++)
      if (op->ends[k] == op->ends[i]) return copse_pj_refute(r, block, "names a semaphore twice");
    if (s->value < 1) *done = false;
  }
  for (int i = 0; i < op->n_ends && *done; i++) {
    struct copse_pj_semaphore *s = &r->semaphores[op->ends[i]];
    s->value--;
    /* the n-th acquire beyond the initial value needed the n-th release */
    if (s->n_acquired++ < r->f->semaphores[op->ends[i]]) continue;
    struct copse_history *h = s->released.v[s->released.first++];
    COPSE_TRY(copse_pj_append(r, &r->states[block].learned, h));
  }
out:
  return status;
}

copse_status copse_pj_release(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < op->n_ends; i++) {
    struct copse_pj_semaphore *s = &r->semaphores[op->ends[i]];
    struct copse_history *h;
    COPSE_TRY(copse_history_take(r->threads, block, &h, r->err));
    COPSE_TRY(copse_pj_append(r, &s->released, h));
    s->value++;
  }
out:
  return status;
}

copse_status copse_pj_flush(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < op->n_ends && i < op->n_dst; i++) {
    struct copse_history *h;
    COPSE_TRY(copse_history_take(r->threads, r->first_proxy + op->ends[i], &h, r->err));
    COPSE_TRY(copse_pj_append(r, &r->states[block].learned, h));
  }
out:
  return status;
}
