/* The topology of a cluster: a directed graph of GPUs (the ranks) and relays, with an
 * exact bandwidth on every link. Immutable once made. */
#pragma once

#include "base/err.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rational.h"

struct copse_node {
  const char *id;
  const char *type; /* "gpu" is a rank, anything else a relay */
  int rank;         /* 0..n_ranks-1, or -1 for a relay */
  bool multicast;   /* a switch that copies: one copy in, many out */
  bool aggregation; /* a switch that reduces: many in, one out */
  bool no_gdr;      /* a GPU or NIC without GPUDirect RDMA: NCCL goes over the host's memory */
  /* What NCCL calls it, where its XML says: (number of its system << 56) + NVML index of a gpu or
   * index of a net. These three are in no JSON. */
  bool has_dev;
  uint64_t dev;
  int sm; /* of a gpu: compute capability, 90 for 9.0; 0: not said */
};

/* What a bandwidth rests on where no file says it and nobody measured it. Topology JSON keeps it,
 * by name. */
enum copse_guess {
  COPSE_GUESS_NONE,
  COPSE_GUESS_SOCKETS, /* NCCL's constant for the kind of CPU */
  COPSE_GUESS_SPEED,   /* PCIe Gen3, since the file names no speed that is known */
  COPSE_GUESS_PORT,    /* 10 Gb/s, since the file names no speed */
  COPSE_GUESS_CLASS    /* the usual host of such GPUs */
};
/* Returns why it is a guess, such as "NCCL's constant for ..". */
const char *copse_guess_reason(enum copse_guess guess);
/* Returns what measures such a link ("nvbandwidth -t ..") and where the number goes. */
const char *copse_guess_remedy(enum copse_guess guess);

/* One direction. Between two nodes there is at most one: parallel links are added up. */
struct copse_link {
  int src, dst;             /* node indices */
  struct copse_q bandwidth; /* GB/s = 10^9 bytes per second, > 0 */
  struct copse_q latency;   /* microseconds, >= 0; the largest of the parallel links */
  enum copse_guess guess;   /* of merged parallel links that of any of them */
};

/* What hardware takes from rank to rank where it is not what topology/route.h finds: as a file
 * says. Inner nodes are relays, none comes twice, and each is joined to the next by a link. */
struct copse_stated_route {
  int src, dst; /* ranks */
  int n_nodes;
  const int *nodes; /* [n_nodes] both ends included */
};

struct copse_topology {
  const char *name;
  const char *description, *source; /* one line each, as the file says; NULL: it doesn't */
  int n_nodes, n_links, n_ranks;
  const struct copse_node *nodes; /* [n_nodes] in order of appearance */
  const struct copse_link *links; /* [n_links] in order of first appearance */
  const int *rank_nodes;          /* [n_ranks] node of each rank */
  int n_routes;
  const struct copse_stated_route *routes; /* [n_routes] by src, then dst, one of a pair */
  /* A choice of ranks (modify.h): the checksum of the topology it was made from, or NULL; and
   * whether its other GPUs are left out rather than relays. */
  const char *chosen_from;
  bool others_excluded;
};

/* What a reader keeps of an NCCL XML file. */
enum copse_link_mode {
  COPSE_LINKS_DEFAULT, /* nvlink if it joins all GPUs, plus the PCIe ways to NICs; else all */
  COPSE_LINKS_NVLINK,  /* only nvlink, xgmi and the NVSwitch */
  COPSE_LINKS_ALL
};

/* Looks up "nvlink", "all" or "default". */
bool copse_link_mode_from_name(const char *name, enum copse_link_mode *out);

/* Zero-initialised: the defaults. What concerns one kind of input does so as a cluster's host too.
 */
struct copse_topology_options {
  enum copse_link_mode links;          /* for XML and matrices */
  const struct copse_notes *notes;     /* where remarks go; may be NULL */
  struct copse_q nvlink_switch;        /* for XML without NVLinks: GB/s of each GPU to a switch
                                          of its host; zero: none */
  const char *gpu;                     /* for matrices: the GPUs' class, such as "a100"; or NULL */
  int nccl_version;                    /* whose constants XML and matrices are read by: 22705 is
                                          2.27.5; 0: 2.30.7 */
  const struct copse_profile *profile; /* measured numbers over nominal ones; may be NULL */
  const char *const *catalogue;        /* folders, NULL-terminated, where a name that is no file
                                          is looked for; may be NULL */
};

/* Limits that keep hostile files from eating the machine. */
#define COPSE_TOPOLOGY_MAX_NODES (1 << 22)
#define COPSE_TOPOLOGY_MAX_LINKS (1 << 24)

/*
 * Reads a topology from `path` ("-": standard input), its format recognised by content: topology,
 * cluster or synthetic JSON, NCCL or RCCL topology XML, what `nvidia-smi topo -m` and
 * `rocm-smi --showtopo` print. A path that is no file may be a name of the catalogue.
 * options may be NULL for the defaults. The caller frees *out with copse_topology_free.
 * Returns COPSE_BAD_INPUT with file and line for what a file must not say,
 * COPSE_IO, COPSE_OVERFLOW (a sum of parallel links), COPSE_NOMEM.
 */
copse_status copse_topology_load(const char *path, const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;

/* Reads a topology from memory; `label` names the input in messages and places relative hosts. */
copse_status copse_topology_parse(const char *label, const char *data, size_t size,
                                  const struct copse_topology_options *options,
                                  struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;

/* Makes a synthetic topology from its one line, such as "ring:8@50" (input/synthetic.c). */
copse_status copse_topology_synthetic(const char *spec,
                                      const struct copse_topology_options *options,
                                      struct copse_topology **out,
                                      struct copse_err *err) COPSE_CHECKED;

/* ---- the catalogue: topologies that can be named instead of a file -------------------- */

/*
 * Finds the path to read for `path`: itself if it is a file, "-" or no name of the catalogue, else
 * the catalogue's file. A name such as "dgx-a100" is the file dgx-a100.json, .xml or .txt in one
 * of the catalogue's folders. A file of the name wins over it. A path with a slash is no name.
 * folders may be NULL. The caller frees *out.
 */
copse_status copse_catalogue_find(const char *path, const char *const *folders, char **out,
                                  struct copse_err *err) COPSE_CHECKED;

/* Finds the catalogue's file of that name alone, NULL where there is none. The caller frees
 * *out. */
copse_status copse_catalogue_path(const char *name, const char *const *folders, char **out,
                                  struct copse_err *err) COPSE_CHECKED;

/* Every entry, sorted; the caller frees it with copse_catalogue_free. */
struct copse_catalogue {
  struct copse_catalogue_entry {
    const char *name, *path;
  } * entries;
  size_t capacity;
  struct copse_arena arena;
  int n;
};
copse_status copse_catalogue_list(const char *const *folders, struct copse_catalogue *out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_catalogue_free(struct copse_catalogue *catalogue);

/* ---- what is in a topology ------------------------------------------------------------ */

/* Finds the node with this id, or -1. O(1). */
int copse_topology_find(const struct copse_topology *topology, const char *id);

/* Whether both have the same GPUs as the same ranks. */
bool copse_topology_has_ranks_of(const struct copse_topology *topology,
                                 const struct copse_topology *other);

/* Measures "h12.", which the ids of a cluster's nodes begin with, or returns 0; *host (may be NULL)
 * gets its number, -1 where there is none or one beyond COPSE_TOPOLOGY_MAX_NODES. */
size_t copse_host_prefix(const char *id, int *host);

/* Finds the link src -> dst, or -1. O(log of the links that leave src). */
int copse_topology_find_link(const struct copse_topology *topology, int src, int dst);

/* Finds the route that the topology states of two ranks, or NULL. O(log n_routes). */
const struct copse_stated_route *copse_topology_route(const struct copse_topology *topology,
                                                      int src, int dst);

/* Fails with COPSE_INFEASIBLE: no links lead from one node to another in the way that `how` says ("
 * without passing through ranks"; ""). `label` names the input; NULL: the caller does. */
copse_status copse_topology_refuse_unreached(const struct copse_topology *topology,
                                             const char *label, int from, int to, const char *how,
                                             struct copse_err *err) COPSE_CHECKED;

/* Finds the first relay whose ingress and egress bandwidth differ (tree packing needs them equal),
 * or -1. in and out (may be NULL) get both sums. COPSE_OVERFLOW. */
copse_status copse_topology_find_unbalanced(const struct copse_topology *topology, int *node,
                                            struct copse_q *in, struct copse_q *out,
                                            struct copse_err *err) COPSE_CHECKED;

/*
 * Writes canonical topology JSON: what `copse topo -o` writes, byte for byte; one node and one
 * link per line, two directions of equal bandwidth and latency as one duplex link. Without
 * description and source, so that a remark changes no checksum. Reading it back gives the same
 * topology, and writing that the same bytes. The caller frees *text.
 */
copse_status copse_topology_to_json(const struct copse_topology *topology, char **text,
                                    size_t *size, struct copse_err *err) COPSE_CHECKED;

/* Computes the SHA-256 of the canonical JSON, as schedules carry it; for a choice of ranks, that of
 * the topology that it was made from. */
copse_status copse_topology_sha256(const struct copse_topology *topology,
                                   char hex[COPSE_SHA256_HEX], struct copse_err *err) COPSE_CHECKED;

/* ---- for readers: how a topology is made ----------------------------------------------------- */

/* Nodes and links are added with their line for messages; the builder checks ids, ranks and
 * bandwidths once for all formats. */
struct copse_topology_builder;

/* Makes a builder; `file` is borrowed and names the input in messages. */
copse_status copse_builder_new(const char *file, struct copse_topology_builder **out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_builder_free(struct copse_topology_builder *builder);
/* Frees at the end of a scope (COPSE_AT_END). */
static inline void copse_builder_free_at(struct copse_topology_builder **builder) {
  copse_builder_free(*builder);
}
static inline void copse_topology_free_at(struct copse_topology **topology) {
  copse_topology_free(*topology);
}

copse_status copse_builder_set_name(struct copse_topology_builder *builder, const char *name,
                                    struct copse_err *err) COPSE_CHECKED;

/* Sets the topology's description and source; either may be NULL. Copied. */
copse_status copse_builder_set_about(struct copse_topology_builder *builder,
                                     const char *description, const char *source,
                                     struct copse_err *err) COPSE_CHECKED;
/* Adds a node; strings are copied. rank < 0: none stated. *index (may be NULL) gets its
 * number. Refuses a duplicate or empty id and a rank on a node that is no gpu. */
copse_status copse_builder_add_node(struct copse_topology_builder *builder, long line,
                                    const struct copse_node *node, int *index,
                                    struct copse_err *err) COPSE_CHECKED;

/* Finds the node with this id so far, or -1. */
int copse_builder_find(const struct copse_topology_builder *builder, const char *id);

/* Adds src -> dst; bandwidths of parallel links add up. Refuses a self-link, a bandwidth
 * that isn't positive, a negative latency. */
copse_status copse_builder_add_link(struct copse_topology_builder *builder, long line, int src,
                                    int dst, struct copse_q bandwidth, struct copse_q latency,
                                    struct copse_err *err) COPSE_CHECKED;

/* Says what the bandwidth of a link that was added rests on. */
void copse_builder_set_guess(struct copse_topology_builder *builder, int src, int dst,
                             enum copse_guess guess);

/* Adds a link in both directions. */
copse_status copse_builder_add_duplex(struct copse_topology_builder *builder, long line, int a,
                                      int b, struct copse_q bandwidth, struct copse_q latency,
                                      struct copse_err *err) COPSE_CHECKED;

/* States the route of two gpus; nodes [n] are copied. Checked when all is there, by
 * copse_builder_finish: see struct copse_stated_route. */
copse_status copse_builder_add_route(struct copse_topology_builder *builder, long line,
                                     const int *nodes, int n, struct copse_err *err) COPSE_CHECKED;

/* Checks and freezes. Ranks: as stated if every gpu states one (they must be
 * 0..n-1, each once), else in order of appearance. Refuses a topology without a gpu.
 * The builder is used up, whatever the outcome, and must still be freed. */
copse_status copse_builder_finish(struct copse_topology_builder *builder,
                                  struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;

/* Makes a topology with all that `from` says, where `from` is one whose parts the caller has
 * changed: nodes without an id are left out, and so are their links and those of bandwidth 0, and
 * routes that are not whole without them or no longer from rank to rank. What remains goes through
 * the builder as if it had been read from `file`. The caller frees *out. */
copse_status copse_topology_copy(const struct copse_topology *from, const char *file,
                                 struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
