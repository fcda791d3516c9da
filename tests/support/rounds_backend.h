/*
 * Plans in rounds on the CPU, all ranks in one process and one thread, as adversely as hosts
 * joined by messages can be: each rank's rounds, messages and launches follow each other as in a
 * stream of its own, ranks and workers move in random order, some hardly ever, and the memory of
 * a rank is scribbled on before it enters a launch and after it has left. Packets have two copies and
 * are looked for, as on a GPU. With counts of pairs messages are whole slots, and inboxes are
 * emptied when they have come.
 */
#ifndef COPSE_TESTS_ROUNDS_BACKEND_H
#define COPSE_TESTS_ROUNDS_BACKEND_H

#include "runtime/internode/rounds.h"
#include "support/exec_support.h"

struct rounds_case {
  const uint32_t *host_of;
  struct exec_case it;
  uint32_t n_launches; /* one after the other, nobody waits in between */
  uint64_t seed;
  const uint64_t *pair_counts; /* of an alltoall, or NULL: full blocks */
  bool words; /* false: pairs that only signal send nothing, to see that this is found */
};

/* The number of wrong elements over all launches; fails the test where nothing moves. */
uint64_t rounds_backend_run(const struct copse_plan *plan, const struct rounds_case *it);

#endif
