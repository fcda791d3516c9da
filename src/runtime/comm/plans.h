/* Inside src/runtime: the plans of a communicator, read from a folder or given, and which one a
 * call runs. */
#pragma once

#include "runtime/backend/backend.h"

struct copse_plan_entry {
  const struct copse_plan *plan;
  void *prepared; /* the backend's */
  bool grouped;   /* multicast */
};

/* Zero-initialise to start. */
struct copse_plans {
  struct copse_plan_entry *entries; /* in the order in which plans were added */
  size_t n, capacity;
  /* Those from files, to be freed after the backend, which may hold some that aren't entries. */
  struct copse_plan **read;
  size_t n_read, read_capacity;
  /* Those that were passed over for being for other numbers of ranks, and the last one's number. */
  uint32_t n_others, other_ranks;
};

void copse_plans_free(struct copse_plans *plans);

/*
 * Reads every *.plan of the folder (as a shell would list them: no hidden ones) for n_ranks, in
 * byte order of name; plans for other numbers of ranks and alltoalls by demand are passed over.
 * COPSE_INVALID for no folder (NULL or ""), COPSE_IO, or what is wrong with a file; then none is
 * kept.
 */
copse_status copse_plans_read(struct copse_plans *plans, const char *folder, uint32_t n_ranks,
                              struct copse_err *err) COPSE_CHECKED;

/* The size of a message as nccl-tests counts it: of the larger of a rank's buffers. `count`
 * elements are a block. COPSE_INVALID where buffers would be too large for any plan. */
copse_status copse_message_bytes(copse_collective collective, uint32_t n_ranks, uint64_t count,
                                 copse_type type, uint64_t *bytes,
                                 struct copse_err *err) COPSE_CHECKED;

struct copse_plan_choice {
  const struct copse_plan_entry *entry; /* NULL: none fits */
  size_t n_fitting;                     /* to choose from */
  uint64_t message_bytes;
};

/*
 * The best entry: of those for the collective and root whose range holds the message's size, the
 * one with the narrowest range, then a multicast one, which `plans` makes beside others that need no
 * switch, then the one added first. Uneven all-to-alls are not served
 * by the low-latency protocol, whose packets are laid out for full blocks.
 * Complexity: linear in the number of plans, of which a job has a few dozen.
 */
copse_status copse_plans_find(const struct copse_plans *plans, uint32_t n_ranks,
                              const struct copse_call *call, struct copse_plan_choice *choice,
                              struct copse_err *err) COPSE_CHECKED;

/*
 * Whether a communicator can serve calls with the plan at all. COPSE_INVALID for another number
 * of ranks. COPSE_UNSUPPORTED for an alltoall by demand (it moves only the parts of blocks
 * that its own demand names, so it serves neither all_to_all nor all_to_all_v of other counts;
 * `copse run` runs it), and for a plan that touches what NCCL's arguments let be NULL: the
 * input of a broadcast but at its root, the output of a reduce but at its root.
 */
copse_status copse_plan_check_servable(const struct copse_plan *plan, uint32_t n_ranks,
                                       struct copse_err *err) COPSE_CHECKED;
