/* Plans with a single fault, for tests of the proof. */
#ifndef COPSE_TESTS_MUTANT_H
#define COPSE_TESTS_MUTANT_H

#include "runtime/comm/executor.h"

/* A plan whose tables can be changed; the operations of a worker may grow by one. */
struct mutant {
  struct copse_plan plan;
  struct copse_plan_rank *ranks;
  struct copse_plan_worker *workers;
  struct copse_plan_op *ops;
  struct copse_plan_operand *operands;
};

struct mutant mutant_of(const struct copse_plan *plan);
void mutant_free(struct mutant *m);

uint32_t mutant_worker(const struct copse_plan *plan, uint32_t op);
void mutant_drop(struct mutant *m, uint32_t op);
void mutant_double(struct mutant *m, uint32_t op);

/* Accepted: the plan is valid and proved. Fails the test where a refusal has no reason. */
bool mutant_accepted(const struct copse_plan *plan);

/* Runs a plan on real data, out of place and in place: the number of wrong elements. */
uint64_t mutant_wrong(const struct copse_plan *plan, enum copse_backend backend, uint64_t count);

/* Every operation dropped, or done twice, one at a time: fails the test where the proof accepts. */
void mutant_refuse_dropped(const struct copse_plan *plan);
void mutant_refuse_doubled(const struct copse_plan *plan);

#endif
