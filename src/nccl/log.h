/*
 * What NCCL_DEBUG=INFO logs say, of NCCL 2.18 to 2.31 and RCCL: communicators with their ranks,
 * rings and trees as joined over hosts, the graphs of a host that they come from (NCCL_DEBUG_SUBSYS
 * with GRAPH), transports, NICs, choices (TUNING), settings and warnings. Ranks
 * may write into one file or several, in any order of lines; launchers and time stamps may stand
 * before a line.
 *
 * Text that isn't NCCL's is passed over, and so are lines that are cut; remarks say how many.
 * Memory: proportional to the text, at most a few times its size; time linear.
 *
 * Source: the formats of NCCL's src/init.cc, src/graph/{connect,rings,search,tuning}.cc and
 * src/transport/{p2p,shm,net,coll_net}.cc.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rational.h"

struct copse_log_rank {
  int rank;
  const char *host;
  int64_t pid;
  int cuda_dev, nvml_dev, local_rank; /* -1: the log doesn't say */
  uint64_t bus;                       /* domain << 20 | bus << 12 | device << 4 | function */
};

/* A channel's ring. */
struct copse_log_ring {
  int channel;
  const int *order; /* [n_ranks of the communicator], from rank 0; NULL: the log hasn't all of it */
};

/* One rank's place in a channel's tree; -1: none. */
struct copse_log_tree {
  int channel, rank;
  int up, down[3];
};

/* One of a graph's channels on a host, as data pass. */
struct copse_log_hop {
  bool is_net;
  int system;  /* -1: not said */
  uint64_t id; /* a NIC's number; a GPU's bus id as above, where system >= 0, else its rank */
};
struct copse_log_graph {
  int rank;    /* who printed it */
  int pattern; /* 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct */
  int crossnic, n_channels;
  bool same_channels;
  struct copse_q bw_intra, bw_inter;           /* GB/s of a channel */
  const char *type_intra, *type_inter;         /* "NVL"; "" where not said */
  int n_listed;                                /* channels whose lines are in the log */
  const struct copse_log_hop *const *channels; /* [n_listed] */
  const int *n_hops;                           /* [n_listed] */
};

enum copse_log_via {
  COPSE_VIA_P2P, /* also of one process: direct pointers */
  COPSE_VIA_MNNVL,
  COPSE_VIA_INDIRECT, /* over another GPU */
  COPSE_VIA_SHM,
  COPSE_VIA_NET,
  COPSE_VIA_COLLNET,
  COPSE_VIA_OTHER
};
/* A connection. The lines of both ends of a network connection are here, each as one. */
struct copse_log_edge {
  int channel, connection; /* connection 0: collectives; 1: sends and receives; -1: not said */
  int src, dst;            /* ranks; CollNet: both the rank */
  enum copse_log_via via;
  const char
      *net; /* "IB", of NET and COLLNET; else the rest of the line, such as "P2P/CUMEM/read" */
  int net_dev, proxy; /* the plugin's device; the rank whose GPU relays; -1: none */
  bool receive, gdr;
};

/* What NCCL ran for calls of a size; alike ones once. */
struct copse_log_pick {
  const char *function, *algorithm, *protocol; /* "" where not said; "RING", "LL128" */
  int64_t bytes;
  struct copse_q time_us; /* the model's; negative: not said */
  int channels;           /* 0: not said */
  int64_t times;
};

struct copse_log_comm {
  const char *id;      /* commId "0x6f1d2c9b", or what tells it apart */
  const char *version; /* "2.30.7+cuda13.0"; NULL: not said */
  int n_ranks;
  int n_hosts, n_channels; /* 0: not said */
  int n_known;
  const struct copse_log_rank *ranks; /* [n_known] by rank */
  int n_rings, n_trees, n_graphs, n_edges, n_picks;
  const struct copse_log_ring *rings; /* by channel */
  const struct copse_log_tree *trees; /* by channel, then rank */
  const struct copse_log_graph
      *graphs; /* in order of the log: of each rank ring, tree, then others */
  const struct copse_log_edge *edges; /* in order of the log */
  const struct copse_log_pick *picks;
};

struct copse_log_nic {
  const char *host, *net; /* "IB" */
  int index;
  const char *name, *link; /* "mlx5_0:1", "RoCE"; link "" where not said */
};

/* A text, and how many lines had it. */
struct copse_log_said {
  const char *host, *text; /* the first that had it; host "" where not said */
  int64_t times;
};

struct copse_nccl_log {
  int n_comms, n_nics, n_settings, n_warnings;
  const struct copse_log_comm *comms; /* those of more ranks first */
  const struct copse_log_nic *nics;
  const struct copse_log_said *settings; /* "NCCL_ALGO=RING": variables that were set */
  const struct copse_log_said *warnings;
  int64_t n_lines, n_foreign; /* lines; of them without NCCL's mark */
  int64_t n_cut;              /* lines of NCCL's that begin as known ones do and end otherwise */
  int64_t n_unowned;          /* of no communicator that the log names */
  struct copse_log_reader *reader;
};

/* Makes an empty log. Release with copse_nccl_log_free, whatever the outcome. */
copse_status copse_nccl_log_open(struct copse_nccl_log *log, struct copse_err *err) COPSE_CHECKED;
/* Reads one more text. Nothing in it is an error. */
copse_status copse_nccl_log_add(struct copse_nccl_log *log, const char *data, size_t size,
                                struct copse_err *err) COPSE_CHECKED;
/* Joins what was read; to be called once, after which the members of `log` are valid. */
copse_status copse_nccl_log_finish(struct copse_nccl_log *log, const char *label,
                                   const struct copse_notes *notes,
                                   struct copse_err *err) COPSE_CHECKED;
void copse_nccl_log_free(struct copse_nccl_log *log);

/* Whether a line is one of NCCL's. */
bool copse_nccl_log_has(const char *data, size_t size);
