/* What ranks exchange when a communicator is made, and what all of them conclude from it.
 * Serving a call is a decision of all ranks or of none.
 *
 * All ranks or none. A collective that one rank serves and another passes to NCCL hangs. So
 * whether a call is served depends only on what is the same at all ranks of the communicator: what
 * they agreed on when it was made, and the call's collective, count, type, operation and root. It
 * never depends on addresses, groups, streams or captures.
 *
 * When the communicator is made. copse's communicator is made right after NCCL's, in a group at
 * the group's end. It is never made at the first collective, which may be in a group on one rank
 * and not on another, or in a stream capture. It costs at most ten all-gathers, and two small ones
 * where it isn't served. Non-blocking communicators (config.blocking = 0) are not served: making
 * them would have to wait in one of the later calls, and which one differs between ranks.
 *
 * How it is made. Each rank sends the checksum of its plan folder, its host, process and device.
 * With all ranks in one process the first of its threads calls copse_comm_init_all. With a process
 * per rank each calls copse_comm_init_rank, bootstrapped by the NCCL communicator. In all other
 * cases, or if a rank has other plans or fails, no call is served, and every rank's log says why.
 * A rank without the drop-in can't be asked: its peers would wait.
 *
 * What fails at one rank. What may fail at one rank alone is tried before an all-gather, which
 * notifies the other ranks. The all-gathers allocate no host memory. Device memory for them is
 * asked for four times within 0.14 s, then page-locked host memory is taken. A rank that can't take
 * part (no stream or page can be had) can't notify the others. Making the communicator fails there,
 * as where NCCL fails at one rank. Its peers wait for it at most 120 s from when NCCL has made the
 * communicator (COPSE_JOIN_TIMEOUT, in seconds; the same at every rank). Then making it fails at
 * them too (ncclSystemError), and NCCL's communicator is aborted. So it is made at all ranks or at
 * none.
 */
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

/* Fills this rank's record for a communicator of n_ranks. folder: the value of COPSE_PLAN_DIR or
 * NULL. What can't be read becomes `trouble`, and *err says it. */
void copse_nccl_record_fill(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                            int device, struct copse_err *err);

enum copse_nccl_way {
  COPSE_NCCL_PASS,         /* nothing is served */
  COPSE_NCCL_ONE_PROCESS,  /* copse_comm_init_all */
  COPSE_NCCL_PROCESS_EACH, /* copse_comm_init_rank, on one host or several */
};

int copse_nccl_count_hosts(const struct copse_nccl_record *all, int n_ranks);

/* Decides by nothing but what all ranks have. why: the reason of COPSE_NCCL_PASS, else untouched.
 * Complexity: quadratic in the number of ranks. */
enum copse_nccl_way copse_nccl_way_of(const struct copse_nccl_record *all, int n_ranks, char *why,
                                      size_t n_why);

/* ==== NCCL's graph file ======================================================================= */

/*
 * NCCL's graph file (copse tune makes one) for the communicators that it fits. NCCL reads
 * NCCL_GRAPH_FILE for every communicator of a process; one of other GPUs fails with it or hangs. So
 * it is COPSE_NCCL_GRAPHS here: NCCL first makes each communicator as usual. The ranks' records say
 * which graph each has and where. The graph is used if three things hold: all ranks have the same
 * graph, or graphs of one set (copse tune names the set in files for hosts that differ); each rank
 * is a process of its own; every host has as many ranks as the graph has GPUs. NCCL then makes the
 * communicator again, as a split that has all ranks, with NCCL_GRAPH_FILE set for that time. The
 * second one replaces the first, at all ranks or at none, and the log says so. The costs are a
 * second communicator, and a variable that is set while other threads may read the environment.
 */
