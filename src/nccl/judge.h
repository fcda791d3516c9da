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

#include "nccl/machine.h"
#include "nccl/model.h"

/*
 * How NCCL joins the graphs of hosts to the rings and trees of a communicator (NVIDIA/nccl
 * src/graph/connect.cc and trees.cc, as of 2.30). All hosts have the same graphs, or each its own:
 * then they agree on the fewest channels and the least speed (init.cc). Ranks of a host follow each
 * other.
 *
 *   ring of channel c   the list of host 0, that of host 1, .. and back; with crossnic 2 odd hosts
 *                       take the list of channel c^1
 *   tree of channel c   in a host the list as a chain, between hosts a double binary tree
 *   channels n .. 2n-1  copies of 0 .. n-1, on the second tree; maybe more copies
 */

#define COPSE_NCCL_DOWNS 3

/* What a rank has to do with a channel. Ports are numbers of the machine's; -1: none, as all of a
 * link in a host. */
struct copse_nccl_role {
  int next;                       /* of the ring */
  int send_port, receive_port;    /* towards `next`; from the rank before */
  int up, down[COPSE_NCCL_DOWNS]; /* of the tree; -1: none */
  int up_port, down_port[COPSE_NCCL_DOWNS];
};

struct copse_nccl_joined {
  int n_ranks, n_hosts;
  int n_channels;       /* of the communicator */
  int n_graph_channels; /* of a graph: channel c is its c modulo this */
  bool has_ring, has_tree;
  struct copse_nccl_role *roles; /* [n_channels * n_ranks] */
  struct copse_arena arena;
};

static inline const struct copse_nccl_role *copse_nccl_role_of(
    const struct copse_nccl_joined *joined, int channel, int rank) {
  return &joined->roles[(size_t)channel * (size_t)joined->n_ranks + (size_t)rank];
}

/*
 * Joins the ring and tree graphs over the machine's hosts: graphs[0] is all hosts' where n_graphs
 * is 1, else graphs[h] that of host h. Refuses (COPSE_BAD_INPUT, naming channel and GPU) what NCCL
 * fails on or hangs with: a GPU or NIC that a host lacks, a GPU twice or not at all. `label` names
 * the graphs' file. Free with copse_nccl_joined_free, whatever the outcome. O(channels * ranks).
 */
copse_status copse_nccl_join(const char *label, const struct copse_nccl_graphs *const *graphs,
                             int n_graphs, const struct copse_nccl_machine *machine,
                             struct copse_nccl_joined *out, struct copse_err *err) COPSE_CHECKED;
void copse_nccl_joined_free(struct copse_nccl_joined *joined);

/* A host's place in a binary tree of hosts: hosts or -1. */
struct copse_nccl_tree_place {
  int up, down[2];
  int child; /* 0: below its parent's number, 1: above; of the plain tree */
};

/* Finds the places of a host in the two trees over n hosts. Complexity O(log n). */
void copse_nccl_double_tree(int n, int host, struct copse_nccl_tree_place trees[2]);

struct copse_nccl_verdict {
  enum copse_nccl_graph_id algorithm;
  copse_collective collective;
  struct copse_q links_time;  /* s/GB that the links allow; zero: a rank alone, nothing moves */
  struct copse_q stated_time; /* s/GB by the graph's channels and speed; zero: states none */
  int link;                   /* the most loaded one, of equals the first; -1: none */
  struct copse_q *load;       /* [n_links] GB on the link per GB of the buffer */
};

/* Returns the longer of both times: what NCCL's choice can reach at best as NCCL itself sees it. */
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
 * Judges one algorithm for one collective; root: of broadcast and reduce, else not looked at. The
 * judge owns out->load. COPSE_INFEASIBLE where the topology has no way between two ends;
 * COPSE_OVERFLOW; COPSE_NOMEM. O(channels * ranks * links of a way).
 */
copse_status copse_nccl_judge(struct copse_nccl_judge *judge, enum copse_nccl_graph_id algorithm,
                              copse_collective collective, int root, struct copse_nccl_verdict *out,
                              struct copse_err *err) COPSE_CHECKED;

/*
 * Judges the algorithm with which NCCL runs long messages: ring or tree, whichever is faster in its
 * own model (model.h) by the speeds that the graphs state; without speeds the ring. The root is
 * rank 0. Errors as above; COPSE_INVALID for an alltoall.
 */
copse_status copse_nccl_judge_choice(struct copse_nccl_judge *judge, copse_collective collective,
                                     struct copse_nccl_verdict *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* Makes NCCL's model of these graphs, and what the links allow. Errors as above. */
copse_status copse_nccl_judge_model(struct copse_nccl_judge *judge, struct copse_nccl_model *out,
                                    struct copse_err *err) COPSE_CHECKED;

/* Whether NCCL's model has NVLS, or its trees over hosts, faster for a long allreduce than ring and
 * tree are by the speeds that the graphs state. */
bool copse_nccl_judge_prefers_nvls(const struct copse_nccl_judge *judge);

/* Returns "Ring", "Tree": as NCCL names an algorithm. */
const char *copse_nccl_algorithm_name(enum copse_nccl_graph_id algorithm);

/*
 * How NCCL joins the graphs of hosts to the rings and trees of a communicator (NVIDIA/nccl
 * src/graph/connect.cc and trees.cc, as of 2.30). All hosts have the same graphs, or each its own:
 * then they agree on the fewest channels and the least speed (init.cc). Ranks of a host follow each
 * other.
 *
 *   ring of channel c   the list of host 0, that of host 1, .. and back; with crossnic 2 odd hosts
 *                       take the list of channel c^1
 *   tree of channel c   in a host the list as a chain, between hosts a double binary tree
 *   channels n .. 2n-1  copies of 0 .. n-1, on the second tree; maybe more copies
 */
