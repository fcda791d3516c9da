/*
 * NCCL's graph file (copse tune makes one) for the communicators that it fits. NCCL reads
 * NCCL_GRAPH_FILE for every communicator of a process; one of other GPUs fails with it or hangs. So
 * it is COPSE_NCCL_GRAPHS here: NCCL makes a communicator as ever, and once its ranks know where
 * all of them are, and that the graph fits, NCCL makes it again with the file, as a split of the
 * first that has all ranks. It costs a second making of these communicators.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "dropin/abi.h"
#include "dropin/record.h"

/* Notes in the record which graph COPSE_NCCL_GRAPHS is; a file that can't be used is none, and *err
 * says why. Without the variable nothing. */
void copse_nccl_graph_note(struct copse_nccl_record *mine, struct copse_err *err);

/*
 * Whether the graph fits a communicator of these ranks: all name the same one, each rank has a
 * process of its own (the variable is the process's), and every host has as many ranks as the graph
 * has GPUs. A pure function of what all ranks have. why: the reason if not, "" where nobody has a
 * graph.
 */
bool copse_nccl_graph_fits(const struct copse_nccl_record *all, int n_ranks, char *why,
                           size_t n_why);

/* The same ranks with the graph: collective. The caller owns both. */
ncclResult_t copse_nccl_graph_split(ncclComm_t comm, int rank, ncclComm_t *out);
