/* What ranks exchange when a communicator is made, and what all of them conclude from it.
 * Serving a call is a decision of all ranks or of none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "dropin/abi.h"
#include "dropin/record.h"

enum copse_nccl_trouble {
  COPSE_NCCL_NO_TROUBLE,
  COPSE_NCCL_NO_FOLDER, /* COPSE_PLAN_DIR is not set */
  COPSE_NCCL_UNREADABLE /* or can't be read */
};

/* This rank's record for a communicator of n_ranks. folder: the value of COPSE_PLAN_DIR or NULL.
 * What can't be read becomes `trouble`, and *err says it. */
void copse_nccl_record_fill(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                            int device, struct copse_err *err);

enum copse_nccl_way {
  COPSE_NCCL_PASS,         /* nothing is served */
  COPSE_NCCL_ONE_PROCESS,  /* copse_comm_init_all */
  COPSE_NCCL_PROCESS_EACH, /* copse_comm_init_rank, on one host or several */
};

int copse_nccl_count_hosts(const struct copse_nccl_record *all, int n_ranks);

/* A pure function of what all ranks have. why: the reason of COPSE_NCCL_PASS, else untouched.
 * Complexity: quadratic in the number of ranks. */
enum copse_nccl_way copse_nccl_way_of(const struct copse_nccl_record *all, int n_ranks, char *why,
                                      size_t n_why);

/* ==== NCCL's graph file ======================================================================= */

/*
 * NCCL's graph file (copse tune makes one) for the communicators that it fits. NCCL reads
 * NCCL_GRAPH_FILE for every communicator of a process; one of other GPUs fails with it or hangs. So
 * it is COPSE_NCCL_GRAPHS here: NCCL makes a communicator as ever, and once its ranks know where
 * all of them are, and that the graph fits, NCCL makes it again with the file, as a split of the
 * first that has all ranks. It costs a second making of these communicators.
 */
