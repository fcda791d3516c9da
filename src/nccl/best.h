/*
 * The best graphs that NCCL could run on a machine: rings and chains, found by solver/rings, with
 * what proves that no others are faster.
 */
#pragma once

#include "nccl/channels.h"
#include "nccl/graph.h"

/* Zero-initialised: the defaults. */
struct copse_nccl_best_options {
  int hosts;        /* so many alike, of a topology of one host; 0: the topology's */
  int max_channels; /* of a graph; 0: COPSE_NCCL_MAX_CHANNELS */
  bool quick;       /* of hosts of more than COPSE_RINGS_EXACT_GPUS a tenth of the work */
};

/* A length on a row: that no channel is shorter than `least` proves the bound. */
struct copse_nccl_length {
  struct copse_nccl_row row; /* ports by their place in the host; of the group's first host */
  int64_t length;            /* > 0 */
};

/* Rings, or chains for trees. */
struct copse_nccl_optimum {
  enum copse_nccl_channel_kind kind;
  int n;                /* channels; 0: none (a ring of one GPU) */
  struct copse_q speed; /* GB/s of each */
  struct copse_q GBps;  /* n * speed: of rings busbw, of chains algbw of an allreduce */
  struct copse_q bound; /* no set of channels, of any number and unlike speeds, has more: of rings
                           with any NICs, of chains of this kind */
  struct copse_q least; /* length of the shortest channel, or of the relaxation */
  struct copse_nccl_length *lengths; /* [n_lengths] */
  int n_lengths;
};

/* Hosts alike: in links, NICs and NCCL's numbers of them. */
struct copse_nccl_best_group {
  int host;                              /* the first of them */
  struct copse_nccl_graphs graphs;       /* 0 and 1, of equally many channels in all groups */
  struct copse_nccl_optimum ring, chain; /* bounds of these hosts; channels and speed of all */
};

struct copse_nccl_best {
  int n_hosts, n_ranks;                    /* of all hosts */
  int n_groups, *group_of;                 /* [n_hosts]; groups by their first hosts */
  struct copse_nccl_best_group *groups;    /* [n_groups] */
  const struct copse_nccl_graphs **graphs; /* [n_hosts] each host's */
  struct copse_nccl_optimum ring, chain;   /* of the group with the least bound */
  struct copse_arena arena;
};

/*
 * Finds the best rings and chains. Rings of several hosts visit each host once, in rank order,
 * over a network that is limited by NICs alone. Hosts may differ: each group has its graph, all of
 * one number and speed of channels, and no more than the least bound of a group is possible. Where
 * rails are apart each channel has one rail in all hosts. Of equally good numbers of channels the
 * one is taken whose channels are as fast as NCCL's (best.c). The caller frees *out with
 * copse_nccl_best_free in every case. COPSE_INFEASIBLE where GPUs can't be reached,
 * COPSE_UNSUPPORTED where hosts are too large or no rails for all were found, COPSE_INVALID where
 * hosts are asked for of a topology of several, COPSE_OVERFLOW, COPSE_NOMEM.
 */
copse_status copse_nccl_best_find(const struct copse_topology *topology,
                                  const struct copse_nccl_best_options *options,
                                  struct copse_nccl_best *out, struct copse_err *err) COPSE_CHECKED;
void copse_nccl_best_free(struct copse_nccl_best *best);

/* What several graph files are called in messages. */
#define COPSE_NCCL_GRAPH_FILES \
  "the graph files in this order (one for each kind of hosts, by first hosts)"

/*
 * Assigns the graphs [n > 1] of files, one for each kind of hosts, to `each` [machine->n_hosts]
 * host: a file is of the kind of its first rank's host, where it says ranks, else the next in
 * order of first hosts. COPSE_INVALID where they are not one of each kind; other errors as above.
 */
copse_status copse_nccl_graphs_by_host(struct copse_nccl_machine *machine,
                                       const struct copse_nccl_graphs *graphs, int n,
                                       const struct copse_nccl_graphs **each,
                                       struct copse_err *err) COPSE_CHECKED;

/*
 * Writes the rings and chains with their bounds as a certificate, JSON "copse-rings/1", which
 * copse_verify_rings checks (docs/nccl-rings.md has the format). The caller frees *text.
 */
copse_status copse_nccl_best_to_json(const struct copse_nccl_best *best,
                                     const struct copse_topology *topology, char **text,
                                     size_t *size, struct copse_err *err) COPSE_CHECKED;
