/*
 * What NCCL's graphs can reach at best: each channel's data as load on the links that they pass,
 * exact. Two figures stand beside each other: what the links allow (the largest load over its
 * bandwidth, if NCCL filled every link all the time) and what the graph states (its channels by
 * its speed, which NCCL's own model goes by).
 *
 * Loads of M bytes of the collective's buffer on N ranks and n channels, each with M/n:
 *   ring       allreduce 2(N-1)/N on every link of the ring, allgather and reduce_scatter (N-1)/N,
 *              broadcast 1 on all but the link into the root, reduce all but the one out of it
 *   tree       allreduce: 1 up and 1 down every link, half of the channels on each double tree
 *   NVLS       allreduce: all GPUs to the NVSwitch, sum to the head, head to the switch, copy to
 *              all; heads of several hosts in double trees
 *   CollNet    allreduce: a chain, or every GPU with every head, to the head; the heads send and
 *              receive once
 * Theirs is NVIDIA/nccl src/graph/tuning.cc and src/device.
 */
#pragma once

#include "copse/copse.h"
#include "nccl/join.h"
#include "nccl/model.h"

struct copse_nccl_verdict {
  enum copse_nccl_graph_id algorithm;
  copse_collective collective;
  struct copse_q links_time;  /* s/GB that the links allow; zero: a rank alone, nothing moves */
  struct copse_q stated_time; /* s/GB by the graph's channels and speed; zero: states none */
  int link;                   /* the most loaded one, of equals the first; -1: none */
  struct copse_q *load;       /* [n_links] GB on the link per GB of the buffer */
};

/* The longer of both: what NCCL's choice can reach at best as NCCL itself sees it. */
static inline struct copse_q copse_nccl_verdict_time(const struct copse_nccl_verdict *verdict) {
  return copse_q_cmp(verdict->stated_time, verdict->links_time) > 0 ? verdict->stated_time
                                                                    : verdict->links_time;
}

struct copse_nccl_judge {
  struct copse_nccl_machine *machine;          /* borrowed */
  const char *label;                           /* of the graphs' file */
  const struct copse_nccl_graphs *graphs;      /* what hosts agree on: the one graph, or the first's
                                                  with the least of all (init.cc) */
  const struct copse_nccl_graphs *const *each; /* [n_each] borrowed */
  int n_each;                                  /* 1: of all hosts, or n_hosts */
  struct copse_nccl_joined joined;
  struct copse_arena arena; /* loads of verdicts */
};

/* Joins the graphs over the machine's hosts, one for all or one for each. Errors as of
 * copse_nccl_join. `graphs` and what it points to must last. Free with copse_nccl_judge_close,
 * whatever the outcome. */
copse_status copse_nccl_judge_open(const char *label, const struct copse_nccl_graphs *const *graphs,
                                   int n_graphs, struct copse_nccl_machine *machine,
                                   struct copse_nccl_judge *out,
                                   struct copse_err *err) COPSE_CHECKED;
void copse_nccl_judge_close(struct copse_nccl_judge *judge);

/* Whether NCCL has this algorithm for the collective, and the graphs hold it. */
bool copse_nccl_judge_has(const struct copse_nccl_judge *judge, enum copse_nccl_graph_id algorithm,
                          copse_collective collective);

/*
 * One algorithm for one collective; root: of broadcast and reduce, else not looked at. The judge
 * owns out->load. COPSE_INFEASIBLE where the topology has no way between two ends; COPSE_OVERFLOW;
 * COPSE_NOMEM. O(channels * ranks * links of a way).
 */
copse_status copse_nccl_judge(struct copse_nccl_judge *judge, enum copse_nccl_graph_id algorithm,
                              copse_collective collective, int root, struct copse_nccl_verdict *out,
                              struct copse_err *err) COPSE_CHECKED;

/*
 * What NCCL runs long messages with: ring or tree, whichever its own model (model.h) has faster by
 * the speeds that the graphs state; where those are not known, the ring. Errors as above;
 * COPSE_INVALID for an alltoall.
 */
copse_status copse_nccl_judge_choice(struct copse_nccl_judge *judge, copse_collective collective,
                                     int root, struct copse_nccl_verdict *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* NCCL's model of these graphs, by what they state; by_links: by what the links allow. Errors as
 * above. */
copse_status copse_nccl_judge_model(struct copse_nccl_judge *judge, bool by_links,
                                    struct copse_nccl_model *out,
                                    struct copse_err *err) COPSE_CHECKED;

/* Whether NCCL's model has NVLS, or its trees over hosts, faster for a long allreduce than ring and
 * tree are by the speeds that the graphs state. */
bool copse_nccl_judge_prefers_nvls(const struct copse_nccl_judge *judge);

/* "Ring", "Tree": as NCCL names an algorithm. */
const char *copse_nccl_algorithm_name(enum copse_nccl_graph_id algorithm);
