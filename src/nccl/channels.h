/*
 * What NCCL's channels load on a host's links, as instances of solver/rings: rows are links (and
 * the cables of NICs), steps go over the ways that machine.h finds.
 */
#pragma once

#include "base/memory.h"
#include "nccl/machine.h"
#include "solver/rings/rings.h"

enum copse_nccl_channel_kind {
  COPSE_NCCL_RINGS,       /* several hosts: in by any NIC, out by any */
  COPSE_NCCL_RAIL_RINGS,  /* in and out by the same NIC (crossnic 0), in at a GPU near it */
  COPSE_NCCL_TWIN_RINGS,  /* two channels at once, the second the first backwards (crossnic 2) */
  COPSE_NCCL_CHAINS,      /* trees: chains, all links between hosts at the first GPU (pattern 3) */
  COPSE_NCCL_SPLIT_CHAINS /* child 0 at the second GPU (pattern 1) */
};

/*
 * A row: a link of the topology; or all links between a NIC's port and the network, which a
 * topology of one host has not. Chains of several hosts: a host has a parent and children in each
 * of two trees, each of which carries half of a channel; hosts whose links to others load theirs
 * differently have rows of their own.
 */
struct copse_nccl_row {
  int link;     /* or -1: the cable of */
  int port;     /* this one, */
  bool outward; /* in this direction */
  int host;     /* whose place in the trees it is; of rings the one asked for */
};

struct copse_nccl_channels {
  enum copse_nccl_channel_kind kind;
  int n_hosts;
  struct copse_ring_instance instance; /* its GPUs: the host's, in the machine's order */
  struct copse_nccl_row *rows;         /* [instance.n_rows] */
  struct copse_q unit; /* what an instance's row has of the link's bandwidth: bandwidth * unit, and
                          loads times unit too */
  enum copse_nccl_path *move_type; /* [n * n] */
  enum copse_nccl_path *in_type;   /* [n_ports * n] of the way from a NIC to a GPU, */
  enum copse_nccl_path *out_type;  /* and from it to the NIC */
  struct copse_arena arena;
};

/* Makes the instance of channels in one host of the machine (`host`, from 0), of `hosts` in all;
 * its places in trees are those of all hosts h with like[h] (NULL: of all). Free *out in every
 * case. COPSE_INFEASIBLE where several hosts have no NIC, or parts can't be reached;
 * COPSE_OVERFLOW. */
copse_status copse_nccl_channels_make(struct copse_nccl_machine *machine,
                                      enum copse_nccl_channel_kind kind, int host, int hosts,
                                      const bool *like, struct copse_nccl_channels *out,
                                      struct copse_err *err) COPSE_CHECKED;
/* Limits cables to what the slowest host has on their rails, for channels that take one rail in all
 * hosts. COPSE_OVERFLOW, COPSE_NOMEM. */
copse_status copse_nccl_channels_level(const struct copse_nccl_machine *machine, int host,
                                       struct copse_nccl_channels *channels,
                                       struct copse_err *err) COPSE_CHECKED;
/* Limits the cables of the host's port p to what counts[p] channels of a speed take, so that just
 * so many can be on each; ports without any are left out. COPSE_OVERFLOW, COPSE_NOMEM. */
copse_status copse_nccl_channels_share(struct copse_nccl_channels *channels, const int *counts,
                                       struct copse_q speed, struct copse_err *err) COPSE_CHECKED;
static inline void copse_nccl_channels_free(struct copse_nccl_channels *channels) {
  copse_arena_free(&channels->arena);
  *channels = (struct copse_nccl_channels){0};
}
