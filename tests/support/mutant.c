#include "support/mutant.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "runtime/interpreter/expected.h"
#include "support/support.h"

static void *copy(const void *from, size_t n, size_t size, size_t extra) {
  void *to = calloc(n + extra + 1, size);
  ck_assert_ptr_nonnull(to);
  if (n > 0) memcpy(to, from, n * size);
  return to;
}

struct mutant mutant_of(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  struct mutant m = {.plan = *plan};
  m.ranks = copy(plan->ranks, h->n_ranks, sizeof *m.ranks, 0);
  m.workers = copy(plan->workers, h->n_workers, sizeof *m.workers, 0);
  m.ops = copy(plan->ops, h->n_ops, sizeof *m.ops, 1);
  m.operands = copy(plan->operands, h->n_operands, sizeof *m.operands, 0);
  m.plan.ranks = m.ranks;
  m.plan.workers = m.workers;
  m.plan.ops = m.ops;
  m.plan.operands = m.operands;
  return m;
}

void mutant_free(struct mutant *m) {
  free(m->ranks);
  free(m->workers);
  free(m->ops);
  free(m->operands);
}

uint32_t mutant_worker(const struct copse_plan *plan, uint32_t op) {
  uint32_t w = 0;
  while (op >= plan->workers[w].first_op + plan->workers[w].n_ops) w++;
  return w;
}

static void shift_workers(struct mutant *m, uint32_t after, int by) {
  for (uint32_t w = after + 1; w < m->plan.header.n_workers; w++)
    m->workers[w].first_op = (uint32_t)((int)m->workers[w].first_op + by);
}

void mutant_drop(struct mutant *m, uint32_t op) {
  uint32_t w = mutant_worker(&m->plan, op);
  memmove(m->ops + op, m->ops + op + 1, (m->plan.header.n_ops - op - 1) * sizeof *m->ops);
  m->plan.header.n_ops--;
  m->workers[w].n_ops--;
  shift_workers(m, w, -1);
}

void mutant_double(struct mutant *m, uint32_t op) {
  uint32_t w = mutant_worker(&m->plan, op);
  memmove(m->ops + op + 1, m->ops + op, (m->plan.header.n_ops - op) * sizeof *m->ops);
  m->plan.header.n_ops++;
  m->workers[w].n_ops++;
  shift_workers(m, w, 1);
}

bool mutant_accepted(const struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  copse_status status = copse_plan_validate(plan, "mutant", &err);
  if (status == COPSE_OK) status = copse_prove_plan(plan, "mutant", &report, &err);
  ck_assert_msg(status == COPSE_OK || status == COPSE_BAD_INPUT || status == COPSE_REFUTED,
                "unexpected: %s", err.text);
  if (status != COPSE_OK) ck_assert_msg(strlen(err.text) > 10, "a refusal without a reason");
  return status == COPSE_OK;
}

uint64_t mutant_wrong(const struct copse_plan *plan, enum copse_backend backend, uint64_t count) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_buffers buffers;
  struct copse_exec *exec;
  uint64_t wrong = 0;
  uint64_t in = count * plan->header.input_blocks * 4, out = count * plan->header.output_blocks * 4;
  ASSERT_OK(copse_exec_new(plan, backend, &exec, &err), &err);
  ASSERT_OK(copse_buffers_new(plan->header.n_ranks, in, out, &buffers, &err), &err);
  for (int in_place = 0; in_place < (plan->header.collective == COPSE_ALLTOALL ? 1 : 2);
       in_place++) {
    struct copse_data data = {(copse_collective)plan->header.collective,
                              plan->header.n_ranks,
                              plan->header.root,
                              count,
                              COPSE_INT32,
                              COPSE_SUM,
                              7,
                              NULL,
                              NULL};
    copse_buffers_fill(&buffers, &data, in_place);
    struct copse_launch launch = {count,          COPSE_INT32,     COPSE_SUM,
                                  buffers.inputs, buffers.outputs, NULL};
    ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
    wrong += copse_buffers_count_wrong(&buffers);
  }
  copse_buffers_free(&buffers);
  copse_exec_free(exec);
  return wrong;
}

void mutant_refuse_dropped(const struct copse_plan *plan) {
  for (uint32_t op = 0; op < plan->header.n_ops; op++) {
    struct mutant m = mutant_of(plan);
    mutant_drop(&m, op);
    ck_assert_msg(!mutant_accepted(&m.plan), "op %u of kind %d dropped and accepted", op,
                  plan->ops[op].kind);
    mutant_free(&m);
  }
}

void mutant_refuse_doubled(const struct copse_plan *plan) {
  for (uint32_t op = 0; op < plan->header.n_ops; op++) {
    struct mutant m = mutant_of(plan);
    mutant_double(&m, op);
    ck_assert_msg(!mutant_accepted(&m.plan), "op %u of kind %d doubled and accepted", op,
                  plan->ops[op].kind);
    mutant_free(&m);
  }
}
