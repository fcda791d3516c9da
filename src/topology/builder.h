/*
 * Inside src/topology only: how readers make a topology. Nodes and links are added with
 * their line for messages; the build checks ids, ranks and bandwidths once for all
 * formats.
 */
#ifndef COPSE_TOPOLOGY_BUILDER_H
#define COPSE_TOPOLOGY_BUILDER_H

#include "base/json.h"
#include "topology/topology.h"

struct copse_topology_builder;

/* `file` is borrowed and names the input in messages. */
copse_status copse_builder_new(const char *file, struct copse_topology_builder **out,
                               struct copse_err *err) COPSE_CHECKED;
/* With the name, description and source of a topology. *out is to be freed also after a failure. */
copse_status copse_builder_like(const struct copse_topology *topology, const char *file,
                                struct copse_topology_builder **out,
                                struct copse_err *err) COPSE_CHECKED;
void copse_builder_free(struct copse_topology_builder *builder);

copse_status copse_builder_set_name(struct copse_topology_builder *builder, const char *name,
                                    struct copse_err *err) COPSE_CHECKED;

/* What the topology says of itself; either may be NULL. Copied. */
copse_status copse_builder_set_about(struct copse_topology_builder *builder,
                                     const char *description, const char *source,
                                     struct copse_err *err) COPSE_CHECKED;
/* Of a choice of ranks: `chosen_from` (copied) and `others_excluded` of struct copse_topology. */
copse_status copse_builder_set_choice(struct copse_topology_builder *builder, const char *sha256,
                                      bool others_excluded, struct copse_err *err) COPSE_CHECKED;

/* "name", "description" and "source" of a document's root, as far as they are there. */
copse_status copse_read_about(const struct copse_json *json, struct copse_topology_builder *builder,
                              struct copse_err *err) COPSE_CHECKED;

/* A path, relative to the document; "-" is a file of that name. The caller frees *out. */
copse_status copse_read_path(const struct copse_json *json, const cJSON *object, const char *key,
                             char **out, struct copse_err *err) COPSE_CHECKED;
/* What came of reading the file that `key` names: where it can't be read, the error says first who
 * names it; other errors have their place in that file. */
copse_status copse_read_named(const struct copse_json *json, const cJSON *object, const char *key,
                              copse_status status, const struct copse_err *why,
                              struct copse_err *err) COPSE_CHECKED;

/*
 * Adds a node; strings are copied. rank < 0: none stated. *index (may be NULL) gets its
 * number. Refuses a duplicate or empty id and a rank on a node that is no gpu.
 */
copse_status copse_builder_add_node(struct copse_topology_builder *builder, long line,
                                    const struct copse_node *node, int *index,
                                    struct copse_err *err) COPSE_CHECKED;

/* The node with this id so far, or -1. */
int copse_builder_find(const struct copse_topology_builder *builder, const char *id);

/*
 * Adds src -> dst; bandwidths of parallel links add up. Refuses a self-link, a bandwidth
 * that isn't positive, a negative latency.
 */
copse_status copse_builder_add_link(struct copse_topology_builder *builder, long line, int src,
                                    int dst, struct copse_q bandwidth, struct copse_q latency,
                                    struct copse_err *err) COPSE_CHECKED;

/* The same in both directions. */
copse_status copse_builder_add_duplex(struct copse_topology_builder *builder, long line, int a,
                                      int b, struct copse_q bandwidth, struct copse_q latency,
                                      struct copse_err *err) COPSE_CHECKED;

/*
 * Checks and freezes. Ranks: as stated if every gpu states one (they must be
 * 0..n-1, each once), else in order of appearance. Refuses a topology without a gpu.
 * The builder is used up, whatever the outcome, and must still be freed.
 */
copse_status copse_builder_finish(struct copse_topology_builder *builder,
                                  struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;

/* Notes the options that an input of this sort (`what`) has no use for; `used`: those it has. */
enum { COPSE_USES_LINKS = 1, COPSE_USES_NVLINK_SWITCH = 2, COPSE_USES_GPU = 4 };
void copse_note_unused_options(const char *label, const char *what, unsigned used,
                               const struct copse_topology_options *options);

/* The readers. `depth` counts clusters within clusters. */
copse_status copse_read_topology_json(const char *label, const char *data, size_t size,
                                      const struct copse_topology_options *options, int depth,
                                      struct copse_topology **out,
                                      struct copse_err *err) COPSE_CHECKED;
/* The part of it for cluster JSON, from the parsed document. */
copse_status copse_read_cluster(const struct copse_json *json,
                                const struct copse_topology_options *options, int depth,
                                struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
copse_status copse_read_nccl_xml(const char *label, const char *data, size_t size,
                                 const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
/* The text of `nvidia-smi topo -m`, and whether a text has one in it. */
copse_status copse_read_nvidia_smi(const char *label, const char *data, size_t size,
                                   const struct copse_topology_options *options,
                                   struct copse_topology **out,
                                   struct copse_err *err) COPSE_CHECKED;
copse_status copse_find_nvidia_smi(const char *data, size_t size, bool *found,
                                   struct copse_err *err) COPSE_CHECKED;
/* The text of `rocm-smi --showtopo`, and of --shownodesbw with it. */
copse_status copse_read_rocm_smi(const char *label, const char *data, size_t size,
                                 const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
/* A synthetic line; `label` and line for messages. The name is the builder's own or `spec`. */
copse_status copse_build_synthetic(struct copse_topology_builder *builder, const char *label,
                                   long line, const char *spec,
                                   struct copse_err *err) COPSE_CHECKED;
copse_status copse_topology_load_at(const char *path, const struct copse_topology_options *options,
                                    int depth, struct copse_topology **out,
                                    struct copse_err *err) COPSE_CHECKED;

#endif
