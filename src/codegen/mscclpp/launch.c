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

void copse_pj_refute(struct copse_pj_launch *r, int block, const char *what) {
  char place[64];
  const struct copse_pj_op *op = &r->f->blocks[block].ops[r->states[block].op];
  long line = name_op(r, block, r->states[block].op, place);
  COPSE_KEEP(r, copse_fail_at(r->err, COPSE_REFUTED, r->f->label, line, "%s (%s) %s", place,
                              op->type->name, what));
}

void copse_pj_not_followed(struct copse_pj_launch *r, long line, const char *what) {
  COPSE_KEEP(r, copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, line,
                              "%s, which this checker does not follow", what));
}

/* ---- who knows of it --------------------------------------------------------------------- */

struct copse_history *copse_pj_take(struct copse_pj_launch *r, int thread) {
  struct copse_history *h = NULL;
  COPSE_KEEP(r, copse_history_take(r->threads, thread, &h, r->err));
  return r->status == COPSE_OK ? h : NULL;
}

void copse_pj_append(struct copse_pj_launch *r, struct copse_pj_histories *list,
                     struct copse_history *h) {
  COPSE_KEEP(r, copse_grow(&list->v, &list->capacity, list->n + 1, sizeof *list->v, r->err));
  if (r->status == COPSE_OK)
    list->v[list->n++] = h;
  else
    copse_history_drop(h);
}

void copse_pj_drop_all(struct copse_pj_histories *list) {
  for (; list->first < list->n; list->first++) copse_history_drop(list->v[list->first]);
  list->first = list->n = 0;
}

void copse_pj_pass_on(struct copse_pj_launch *r, int from, int to) {
  struct copse_history *h = copse_pj_take(r, from);
  COPSE_KEEP(r, copse_history_learn(r->threads, to, h, r->err));
  copse_history_drop(h);
}

void copse_pj_meet(struct copse_pj_launch *r, int block) {
  struct copse_pj_histories *learned = &r->states[block].learned;
  copse_threads_meet(r->threads, block);
  for (size_t i = learned->first; i < learned->n; i++)
    COPSE_KEEP(r, copse_history_learn(r->threads, block, learned->v[i], r->err));
  copse_pj_drop_all(learned);
}

struct copse_action copse_pj_act(struct copse_pj_launch *r, int block) {
  struct copse_pj_state *s = &r->states[block];
  COPSE_KEEP(r,
             copse_grow(&s->op_of, &s->times_capacity, s->n_times + 1, sizeof *s->op_of, r->err));
  if (r->status == COPSE_OK) s->op_of[s->n_times++] = s->op;
  return copse_threads_act(r->threads, block);
}

struct copse_action copse_pj_act_through(struct copse_pj_launch *r, int block, int end) {
  struct copse_pj_end_state *e = &r->ends[end];
  copse_pj_pass_on(r, block, r->first_proxy + end);
  COPSE_KEEP(r,
             copse_grow(&e->op_of, &e->times_capacity, e->n_times + 1, sizeof *e->op_of, r->err));
  if (r->status == COPSE_OK)
    e->op_of[e->n_times++] = block * COPSE_PJ_MAX_OPS + r->states[block].op;
  return copse_threads_act(r->threads, r->first_proxy + end);
}

/* ---- signals --------------------------------------------------------------------------- */

void copse_pj_signal(struct copse_pj_launch *r, int block, int end, bool relaxed) {
  const struct copse_pj_end *e = &r->f->ends[end];
  struct copse_pj_end_state *mine = &r->ends[end];
  int from = block;
  char what[80];
  if (e->partner < 0) {
    copse_pj_refute(r, block, "signals a peer that has no such channel back");
    return;
  }
  snprintf(what, sizeof what, "two blocks of gpu %d signal on one channel", e->rank);
  if (mine->signaller >= 0 && mine->signaller != block) copse_pj_not_followed(r, 0, what);
  mine->signaller = block;
  if (e->type == COPSE_PJ_PORT) { /* after what went through this port before */
    from = r->first_proxy + end;
    copse_pj_pass_on(r, block, from);
  }
  copse_pj_append(r, &r->ends[e->partner].in,
                  copse_pj_take(r, relaxed ? r->first_entry + e->rank : from));
}

bool copse_pj_try_sync(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  bool port = op->channel == COPSE_PJ_PORT;
  if (!port && op->channel != COPSE_PJ_MEMORY) return true; /* the kernel does nothing then */
  for (int i = 0; i < op->n_ends && !op->type->waits; i++)
    copse_pj_signal(r, block, op->ends[i], op->type->relaxed && !port);
  if (!op->type->waits) return true;
  bool done = true;
  for (int i = 0; i < op->n_ends; i++) {
    struct copse_pj_end_state *e = &r->ends[op->ends[i]];
    if (e->waiter >= 0 && e->waiter != block)
      copse_pj_refute(r, block, "waits on a channel on which another block of its gpu waits too");
    e->waiter = block;
    for (int k = 0; k < i; k++)
      if (op->ends[k] == op->ends[i]) copse_pj_refute(r, block, "names a channel twice");
    if (e->in.first == e->in.n) done = false;
  }
  for (int i = 0; i < op->n_ends && done && r->status == COPSE_OK; i++) {
    struct copse_pj_histories *in = &r->ends[op->ends[i]].in;
    copse_pj_append(r, &r->states[block].learned, in->v[in->first++]);
  }
  return done;
}

/* ---- within a gpu ---------------------------------------------------------------------- */

static bool stands_at(const struct copse_pj_launch *r, int block, int barrier) {
  const struct copse_pj_state *s = &r->states[block];
  return s->arrived && r->f->blocks[block].ops[s->op].barrier == barrier;
}

/* Everyone at the barrier learns what the others did. */
static void pass_barrier(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  int rank = r->f->blocks[block].rank;
  struct copse_pj_histories all = {0};
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++)
    if (stands_at(r, b, op->barrier)) copse_pj_append(r, &all, copse_pj_take(r, b));
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!stands_at(r, b, op->barrier)) continue;
    for (size_t i = 0; i < all.n; i++)
      COPSE_KEEP(r, copse_history_learn(r->threads, b, all.v[i], r->err));
    r->states[b].arrived = false;
    if (b != block) r->states[b].op++;
  }
  copse_pj_drop_all(&all);
  free(all.v);
}

bool copse_pj_try_barrier(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  int rank = r->f->blocks[block].rank, n = 0;
  if (r->states[block].loop >= 0) copse_pj_not_followed(r, op->line, "a barrier in a pipeline");
  if (!r->states[block].arrived) copse_pj_meet(r, block);
  r->states[block].arrived = true;
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!stands_at(r, b, op->barrier)) continue;
    if (r->f->blocks[b].ops[r->states[b].op].barrier_blocks != op->barrier_blocks)
      copse_pj_refute(r, block, "and another block give their barrier different counts");
    n++;
  }
  if (n < op->barrier_blocks || r->status != COPSE_OK) return false;
  pass_barrier(r, block, op);
  return true;
}

bool copse_pj_try_acquire(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  bool done = true;
  for (int i = 0; i < op->n_ends; i++) {
    struct copse_pj_semaphore *s = &r->semaphores[op->ends[i]];
    if (s->acquirer >= 0 && s->acquirer != block)
      copse_pj_not_followed(r, op->line, "two blocks acquire one semaphore");
    s->acquirer = block;
    for (int k = 0; k < i; k++)
      if (op->ends[k] == op->ends[i]) copse_pj_refute(r, block, "names a semaphore twice");
    if (s->value < 1) done = false;
  }
  for (int i = 0; i < op->n_ends && done && r->status == COPSE_OK; i++) {
    struct copse_pj_semaphore *s = &r->semaphores[op->ends[i]];
    s->value--;
    /* the n-th acquire beyond the initial value needed the n-th release */
    if (s->n_acquired++ < r->f->semaphores[op->ends[i]]) continue;
    copse_pj_append(r, &r->states[block].learned, s->released.v[s->released.first++]);
  }
  return done;
}

void copse_pj_release(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  for (int i = 0; i < op->n_ends; i++) {
    struct copse_pj_semaphore *s = &r->semaphores[op->ends[i]];
    copse_pj_append(r, &s->released, copse_pj_take(r, block));
    s->value++;
  }
}

void copse_pj_flush(struct copse_pj_launch *r, int block, const struct copse_pj_op *op) {
  for (int i = 0; i < op->n_ends && i < op->n_dst; i++)
    copse_pj_append(r, &r->states[block].learned, copse_pj_take(r, r->first_proxy + op->ends[i]));
}
