/* Who did what in a symbolic run of an MSCCL++ plan, and who knows of it. */
#include <stdio.h>

#include "codegen/mscclpp/check_launch.h"

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

copse_status copse_pj_tell(struct copse_pj_launch *r, int from, int to) {
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
  COPSE_TRY(copse_pj_tell(r, block, r->first_proxy + end));
  COPSE_TRY(copse_grow(&e->op_of, &e->times_capacity, e->n_times + 1, sizeof *e->op_of, r->err));
  e->op_of[e->n_times++] = block * COPSE_PJ_MAX_OPS + r->states[block].op;
  *action = copse_threads_act(r->threads, r->first_proxy + end);
out:
  return status;
}
