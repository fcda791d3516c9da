/*
 * A topology as NCCL sees it: hosts (an NVLink domain is one), GPUs and NICs by NCCL's numbers, and
 * the one way that NCCL takes between two of them (NVIDIA/nccl src/graph/paths.cc): of the best
 * path type, of these the fewest links, of these the widest. Types in order: NVLink, NVLink over a
 * GPU, C2C, one PCIe switch, several, a CPU, several.
 */
#pragma once

#include "base/graph.h"
#include "base/memory.h"
#include "nccl/graph.h"
#include "topology/topology.h"

/* A NIC's port: a node of type "net" (in a host without any, of type "nic"). */
struct copse_nccl_port {
  int node, host;
  uint64_t dev; /* as graphs name it */
  int rail;     /* ports of one rail reach each other without passing a host */
  int leaf;     /* the network's node at its cable; -1: none */
  bool shared;  /* every host has a port of its rail */
};

/* A link and the part of the data that goes over it: all, but where equal ways share it. */
struct copse_nccl_hop {
  int link;
  struct copse_q share;
};

struct copse_nccl_route {
  enum copse_nccl_path type;
  struct copse_q width; /* GB/s of the narrowest link */
  int n_hops;
  int n_first; /* hops to the host's memory, the first ones, where the way passes that; else 0 */
  struct copse_nccl_hop *hops;
};

struct copse_nccl_machine {
  const struct copse_topology *topology; /* borrowed */
  int n_hosts;                           /* in order of their first ranks */
  bool even, same_nics;                  /* all hosts have as many GPUs; as many ports */
  int *host_of_node;                     /* [n_nodes] -1: of the network between hosts */
  int *host_of_rank;                     /* [n_ranks] */
  int *first, *members; /* ranks of host h: members[first[h]] to members[first[h + 1] - 1] */
  uint64_t *devs;       /* [n_ranks] as graphs name the GPU */
  int n_ports;
  struct copse_nccl_port *ports;    /* [n_ports] by host, then as the topology has them */
  int *first_port;                  /* [n_hosts + 1] */
  struct copse_nccl_finder *finder; /* of routes, with those found */
  struct copse_arena arena;
};

/* Numbers a topology's parts as NCCL does; where a topology that is no NCCL XML has no numbers of
 * NCCL's, GPUs and NICs count from 0 in each host. Free with copse_nccl_machine_free, whatever the
 * outcome. COPSE_NOMEM. */
copse_status copse_nccl_machine_open(const struct copse_topology *topology,
                                     struct copse_nccl_machine *out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_nccl_machine_free(struct copse_nccl_machine *machine);

/* Makes n of the same host on one network without a bottleneck of its own, each NIC as fast as the
 * host says. The caller frees *out. COPSE_BAD_INPUT for a host without NICs. */
copse_status copse_nccl_repeat_host(const struct copse_topology *host, int n,
                                    struct copse_topology **out,
                                    struct copse_err *err) COPSE_CHECKED;

/* Finds the rank of the GPU that graphs call `dev` in this host; copse_nccl_find_port finds the
 * port with that number; or -1. */
int copse_nccl_find_rank(const struct copse_nccl_machine *machine, int host, uint64_t dev);
int copse_nccl_find_port(const struct copse_nccl_machine *machine, int host, uint64_t dev);

/*
 * Finds the way between two nodes of a host, or from a port to one of another host; GPUs relay
 * only over NVLink, and only one. Where there is no other way, any GPU may. The machine owns *out;
 * it lasts as long. COPSE_INFEASIBLE naming both nodes; COPSE_OVERFLOW (shares); COPSE_NOMEM.
 */
copse_status copse_nccl_find_route(struct copse_nccl_machine *machine, int from, int to,
                                   const struct copse_nccl_route **out,
                                   struct copse_err *err) COPSE_CHECKED;

/* Finds the rank of the GPU that NCCL takes a port to belong to: of those with the widest ways from
 * it, of these the best type, the first that takes this port of its nearest ones; -1: none does.
 * COPSE_NOMEM. */
copse_status copse_nccl_find_own_gpu(struct copse_nccl_machine *machine, int port, int *rank,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * Finds the way that a GPU's data take to a port of its host: over the GPU that the port belongs
 * to where that spares a CPU or is wider, as NCCL does from 2.12 on (PXN). *relay gets that GPU's
 * rank or -1; *first its route then (else NULL), *last the rest.
 */
copse_status copse_nccl_find_way_out(struct copse_nccl_machine *machine, int rank, int port,
                                     int *relay, const struct copse_nccl_route **first,
                                     const struct copse_nccl_route **last,
                                     struct copse_err *err) COPSE_CHECKED;
