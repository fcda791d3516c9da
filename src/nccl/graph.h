/*
 * NCCL's graphs: what its search chose for one host (or NVLink domain), as NCCL_GRAPH_DUMP_FILE
 * writes and NCCL_GRAPH_FILE reads it (NVIDIA/nccl src/graph/search.cc and xml.cc, 2.18 to 2.31).
 *
 *   <graphs version="1"> <graph id pattern nchannels ..> <channel> <net dev/> <gpu dev/> ..
 *
 * A graph has channels, each an order of the host's GPUs. Ring: data go from the first to the last,
 * which sends to the first of the next host, on one host to the first. Tree: a chain, the first is
 * above. NVLS and CollNet direct: the first GPU of each channel is a head.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"

enum copse_nccl_graph_id {
  COPSE_NCCL_RING,
  COPSE_NCCL_TREE,
  COPSE_NCCL_COLLNET_CHAIN,
  COPSE_NCCL_NVLS,
  COPSE_NCCL_COLLNET_DIRECT,
  COPSE_NCCL_GRAPHS /* how many ids there are */
};

enum copse_nccl_pattern { /* where a host's links to others are; numbers of the files */
                          COPSE_NCCL_PATTERN_BALANCED_TREE =
                              1, /* up and child 1 at the first GPU, child 0 at the second */
                          COPSE_NCCL_PATTERN_SPLIT_TREE =
                              2, /* up at the first GPU, both children at the second */
                          COPSE_NCCL_PATTERN_TREE = 3, /* all at the first GPU */
                          COPSE_NCCL_PATTERN_RING = 4,
                          COPSE_NCCL_PATTERN_NVLS = 5,
                          COPSE_NCCL_PATTERN_COLLNET_DIRECT = 6
};

/* Kinds of paths, best first: local, NVLink, NVLink over a GPU, C2C, one PCIe switch, several, PCIe
 * over C2C, a GPU that relays to its NIC, the CPU, between CPUs, the network, none. */
enum copse_nccl_path {
  COPSE_NCCL_PATH_LOC,
  COPSE_NCCL_PATH_NVL,
  COPSE_NCCL_PATH_NVB,
  COPSE_NCCL_PATH_C2C,
  COPSE_NCCL_PATH_PIX,
  COPSE_NCCL_PATH_PXB,
  COPSE_NCCL_PATH_P2C,
  COPSE_NCCL_PATH_PXN,
  COPSE_NCCL_PATH_PHB,
  COPSE_NCCL_PATH_SYS,
  COPSE_NCCL_PATH_NET,
  COPSE_NCCL_PATH_DIS,
  COPSE_NCCL_PATHS
};

/* Returns "NVL" and so on. */
const char *copse_nccl_path_name(enum copse_nccl_path path);
/* Reads the word of a graph file as NCCL does: by prefix; false for a word that it takes for LOC
 * ("C2C", "NET", "DIS" and unknown ones). */
bool copse_nccl_path_from_name(const char *name, enum copse_nccl_path *out);

/* A GPU is named by (number of its system << 56) + NVML index, a NIC by (system << 56) + index.
 * Systems are hosts of an NVLink domain, in the order in which the topology names them. */
#define COPSE_NCCL_SYSTEM_SHIFT 56
static inline uint64_t copse_nccl_dev(uint64_t system, uint64_t index) {
  return system << COPSE_NCCL_SYSTEM_SHIFT | index;
}
static inline int copse_nccl_dev_system(uint64_t dev) {
  return (int)(dev >> COPSE_NCCL_SYSTEM_SHIFT);
}
static inline uint64_t copse_nccl_dev_index(uint64_t dev) {
  return dev & ((UINT64_C(1) << COPSE_NCCL_SYSTEM_SHIFT) - 1);
}

struct copse_nccl_channel {
  int n_gpus, n_nets;
  uint64_t *devs;   /* [n_gpus] */
  int *ranks;       /* [n_gpus] in the communicator, as a dump of 2.30 has them, each -1 where the
                       file says none; NULL: none says one */
  uint64_t nets[2]; /* of the first GPU, of the last; n_nets of them are stated, others 0 */
};

struct copse_nccl_graph_search { /* one <graph>: the result of a search of NCCL's */
  int id;                        /* enum copse_nccl_graph_id */
  int pattern;                   /* enum copse_nccl_pattern; a file may hold any number */
  int crossnic;                  /* 0, 1, or 2: channels in pairs with NICs exchanged */
  int n_channels;                /* 0: not computed, NCCL searches */
  struct copse_q speed_intra;    /* GB/s of one channel, inside the host */
  struct copse_q speed_inter;    /* over its NIC */
  struct copse_q latency_inter;  /* microseconds a hop */
  enum copse_nccl_path type_intra, type_inter; /* the worst of a channel */
  bool same_channels;                          /* all channels have the same order of GPUs */
  struct copse_nccl_channel *channels;         /* [n_channels] */
};

struct copse_nccl_graphs {
  const char *set;                 /* of what files for hosts of several kinds it is one, for the
                                      drop-in, which NCCL passes over; borrowed; NULL: of none */
  bool present[COPSE_NCCL_GRAPHS]; /* the file has this id */
  struct copse_nccl_graph_search graph[COPSE_NCCL_GRAPHS];
  struct copse_arena arena; /* channels and what they point to */
};

/* Returns the graph with this id if it was found (has channels), else NULL. */
static inline const struct copse_nccl_graph_search *copse_nccl_graph(
    const struct copse_nccl_graphs *graphs, enum copse_nccl_graph_id id) {
  return graphs->present[id] && graphs->graph[id].n_channels > 0 ? &graphs->graph[id] : NULL;
}

/* Of a graph that NCCL runs: 32 channels from 2.25 on, since joining doubles them. */
#define COPSE_NCCL_MAX_CHANNELS 32
/* GPUs and NICs of one channel, from 2.29.7 on. */
#define COPSE_NCCL_MAX_CHILDREN 640

/* Releases what the arena holds; *graphs is empty then. */
void copse_nccl_graphs_free(struct copse_nccl_graphs *graphs);

/*
 * Reads graph XML. Follows NCCL's own reader, which is no XML parser: what NCCL refuses is refused
 * with file and line, and what NCCL misreads is a remark to `notes` (may be NULL): an unknown path
 * type, a decimal "10" that it takes for sixteen, more than 32 channels, a tree that lacks a GPU.
 * *out is zero-initialised by the function; the caller frees it with copse_nccl_graphs_free,
 * whatever the outcome. COPSE_BAD_INPUT, COPSE_OVERFLOW (a speed beyond 64 bits), COPSE_NOMEM.
 */
copse_status copse_nccl_graphs_parse(const char *label, const char *data, size_t size,
                                     const struct copse_notes *notes, struct copse_nccl_graphs *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* Reads the same from a file; "-" is standard input. */
copse_status copse_nccl_graphs_load(const char *path, const struct copse_notes *notes,
                                    struct copse_nccl_graphs *out,
                                    struct copse_err *err) COPSE_CHECKED;

/* Whether the text is graph XML: its first element is <graphs>. */
bool copse_nccl_is_graphs(const char *data, size_t size);

/*
 * Writes graph XML that NCCL from `version` on (22700 is 2.27.0) reads as it is meant: `dev` in
 * hexadecimal, no `rank`, types that it knows. Refuses what NCCL would misread: graphs 0 and 1 of
 * unlike channel counts, more channels than the version has, a channel that lacks a GPU of the
 * first, no NICs for several hosts. `hosts` > 1: <net> elements are written. The caller frees
 * *text with free(). COPSE_INVALID, COPSE_NOMEM.
 */
copse_status copse_nccl_graphs_write(const struct copse_nccl_graphs *graphs, int hosts,
                                     long version, char **text, size_t *size,
                                     struct copse_err *err) COPSE_CHECKED;
