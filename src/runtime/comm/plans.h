/*
 * Inside src/runtime: the plans of a communicator, and which one a call runs.
 */
/*
 * Inside src/runtime: plan files of a folder.
 */
#ifndef COPSE_RUNTIME_COMM_PLANS_H
#define COPSE_RUNTIME_COMM_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "runtime/plan/plan.h"

struct copse_plan_entry {
  const struct copse_plan *plan;
  void *prepared; /* the backend's */
};

/* Zero-initialise to start. In the order in which plans were added. */
struct copse_plan_table {
  struct copse_plan_entry *entries;
  size_t n, capacity;
};

/* What a plan is chosen by. */
struct copse_plan_want {
  copse_collective collective;
  int root;               /* broadcast, reduce; else not looked at */
  bool uneven;            /* all_to_all_v */
  uint64_t message_bytes; /* of the whole message, see copse_message_bytes */
};

/*
 * The size of a message as nccl-tests counts it: of the larger of a rank's buffers. `count`
 * elements are a block. COPSE_INVALID where buffers would be too large for any plan.
 */
copse_status copse_message_bytes(copse_collective collective, uint32_t n_ranks, uint64_t count,
                                 copse_type type, uint64_t *bytes,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * The best entry, or NULL: of those for the collective and root whose range holds the size, the
 * one with the narrowest range, then the one added first. Uneven all-to-alls are not served
 * by the low-latency protocol, whose packets are laid out for full blocks.
 * *n_fitting (may be NULL): how many there were to choose from.
 * Complexity: linear in the number of plans, of which a job has a few dozen.
 */
const struct copse_plan_entry *copse_plan_table_find(const struct copse_plan_table *table,
                                                     const struct copse_plan_want *want,
                                                     size_t *n_fitting);

/*
 * Whether a communicator can serve calls with the plan at all. COPSE_INVALID for another number
 * of ranks. COPSE_UNSUPPORTED for an alltoall by demand (it moves only the parts of blocks
 * that its own demand names, so it serves neither all_to_all nor all_to_all_v of other counts;
 * `copse run` runs it), and for a plan that touches what NCCL's arguments let be NULL: the
 * input of a broadcast but at its root, the output of a reduce but at its root.
 */
copse_status copse_plan_check_servable(const struct copse_plan *plan, uint32_t n_ranks,
                                       struct copse_err *err) COPSE_CHECKED;
/* Plans that somebody must free. */
struct copse_plan_list {
  struct copse_plan **plans;
  size_t n, capacity;
};

/*
 * Every *.plan of the folder (as a shell would list them: no hidden ones) for n_ranks, in byte
 * order of name; plans for other numbers of ranks and alltoalls by demand are passed over.
 * COPSE_INVALID for no folder (NULL or ""), COPSE_IO, or what is wrong with a file; then the list
 * is empty.
 */
copse_status copse_folder_read_plans(const char *folder, uint32_t n_ranks,
                                     struct copse_plan_list *list,
                                     struct copse_err *err) COPSE_CHECKED;
/* Frees the plans too. */
void copse_plan_list_free(struct copse_plan_list *list);

#endif
