/*
 * NCCL's own model of its collectives (NVIDIA/nccl src/graph/tuning.cc, constants as of 2.30.7): a
 * latency and a bandwidth for each algorithm and protocol, by the graphs and the GPUs' generation.
 * It is what NCCL chooses by. It is a model: nothing of it is measured on the machine at hand.
 *
 *   time = latency + bytes / bandwidth
 *
 * Given what the links allow, it tells what the choice should be rather than what NCCL's is, which
 * goes by the speeds that graphs state.
 */
#pragma once

#include "nccl/graph.h"
#include "nccl/tuner_table.h"

struct copse_nccl_model {
  const struct copse_nccl_graphs *graphs; /* borrowed */
  int nodes, ranks;                       /* as NCCL counts: an NVLink domain is a node */
  int sm;                                 /* the least compute capability of the GPUs: 90 */
  int channels;                           /* of the communicator */
  bool amd;                               /* the CPUs are AMD's: slower to post to the network */
  /* GB/s of a graph's channels in all, by enum copse_nccl_graph_id, as NCCL counts them: rings
   * what passes each GPU, trees twice an allreduce's data. 0: channels times stated speed. */
  double links[COPSE_NCCL_GRAPHS];
};

struct copse_nccl_cost {
  double latency_us;
  double GBps; /* of the call's bytes; 0: NCCL doesn't have it here, or the model doesn't */
};

/*
 * Returns the cost of tree and ring of all protocols; NVLS on one node, NVLS trees on several (an
 * allreduce). Others are not modelled. Collective, algorithm and protocol are by the numbers of
 * tuner_table.h.
 */
struct copse_nccl_cost copse_nccl_model_cost(const struct copse_nccl_model *model, int collective,
                                             int algorithm, int protocol);

/* Returns the microseconds of one call; infinite where there is no cost. */
double copse_nccl_model_us(const struct copse_nccl_model *model, int collective, int algorithm,
                           int protocol, uint64_t bytes);

/* Chooses the fastest for so many bytes; false: the model has none. */
bool copse_nccl_choose(const struct copse_nccl_model *model, int collective, uint64_t bytes,
                       int *algorithm, int *protocol);

/*
 * Adds rules for communicators of the model's nodes and ranks, for every size from 0 to 2^64 - 1
 * without a gap; channels are NCCL's choice. After a rule whose pair NCCL may not have there stands
 * one of ring and simple. Adds none where the model has none. COPSE_NOMEM.
 */
copse_status copse_nccl_choose_rules(const struct copse_nccl_model *model, int collective,
                                     struct copse_tuner_table *table,
                                     struct copse_err *err) COPSE_CHECKED;
