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
#pragma once

#include "nccl/machine.h"

#define COPSE_NCCL_DOWNS 3

/* What a rank has to do with a channel. Ports are numbers of the machine's; -1: none, as all of a
 * link in a host. */
struct copse_nccl_seat {
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
  struct copse_nccl_seat *seats; /* [n_channels * n_ranks] */
  struct copse_arena arena;
};

static inline const struct copse_nccl_seat *copse_nccl_seat_of(
    const struct copse_nccl_joined *joined, int channel, int rank) {
  return &joined->seats[(size_t)channel * (size_t)joined->n_ranks + (size_t)rank];
}

/*
 * Joins the ring and tree graphs over the machine's hosts: graphs[0] is all hosts' where n_graphs is
 * 1, else graphs[h] that of host h. Refuses (COPSE_BAD_INPUT, naming channel and GPU) what NCCL
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

/* The places of a host in the two trees over n hosts. Complexity O(log n). */
void copse_nccl_double_tree(int n, int host, struct copse_nccl_tree_place trees[2]);
