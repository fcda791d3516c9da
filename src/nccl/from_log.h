/*
 * What a log of NCCL says in place of a graph dump: the graphs of a host (lines of the subsystem
 * GRAPH), and the rings and trees that a communicator runs.
 */
#pragma once

#include "nccl/judge.h"
#include "nccl/log.h"

/*
 * Finds the topology's rank of each rank of a communicator of as many: hosts in order of their
 * first ranks, GPUs by bus id, where all are found, else by NVML index, else in order. `place`
 * [n_ranks] is the caller's; *by_bus: all were found by bus id. COPSE_INVALID where sizes differ.
 */
copse_status copse_nccl_place_ranks(const struct copse_log_comm *comm,
                                    const struct copse_nccl_machine *machine, int *place,
                                    bool *by_bus, struct copse_err *err) COPSE_CHECKED;

/* Finds the rank with a bus id as tools print it, "0000:1b:00" or "00000000:1B:00.0", the first of
 * them; -1: none. copse_nccl_has_buses says whether the topology has bus ids at all. */
int copse_nccl_rank_of_bus(const struct copse_nccl_machine *machine, const char *bus);
bool copse_nccl_has_buses(const struct copse_nccl_machine *machine);

/*
 * Reads the graphs that one rank printed, for the machine's GPUs: the first that did, of this host
 * (-1: of any). Without such lines, or where they name GPUs that the machine lacks, *out has none.
 * The caller frees it with copse_nccl_graphs_free.
 */
copse_status copse_nccl_graphs_of_log(const struct copse_log_comm *comm,
                                      const struct copse_nccl_machine *machine, const int *place,
                                      int host, struct copse_nccl_graphs *out,
                                      struct copse_err *err) COPSE_CHECKED;

/*
 * Has the judge go by the log's rings, and trees if it has all of them, on the log's NICs (where it
 * doesn't say: the graph's, else the nearest, of equally near ones by turns). *used: false, and
 * nothing changes, where the log lacks rings. Without graphs the judge has no stated speeds.
 */
struct copse_nccl_log_unlike {
  int channels; /* whose rings are not those of the graphs */
  int guessed;  /* ends of links between hosts whose NIC neither log nor graphs say */
};
copse_status copse_nccl_judge_log(struct copse_nccl_judge *judge, const struct copse_log_comm *comm,
                                  const int *place, bool *used,
                                  struct copse_nccl_log_unlike *unlike,
                                  struct copse_err *err) COPSE_CHECKED;
