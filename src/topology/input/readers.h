/*
 * Inside src/topology/input only: the reader of each format, and what several of them share. Each
 * makes a topology with the builder of topology.h.
 */
#pragma once

#include "base/json.h"
#include "topology/topology.h"

/* Reads "name", "description" and "source" of a document's root, where they are given. */
copse_status copse_read_about(const struct copse_json *json, struct copse_topology_builder *builder,
                              struct copse_err *err) COPSE_CHECKED;

/* A text to read. */
struct copse_input {
  const char *label, *data; /* the label names it in messages */
  size_t size;
  const struct copse_topology_options *options;
  int depth; /* of clusters within clusters */
};

/* Notes the options that were given and that an input of this sort (`what`) does not use; `used`:
 * those it does. */
enum { COPSE_USES_LINKS = 1, COPSE_USES_NVLINK_SWITCH = 2, COPSE_USES_GPU = 4 };
void copse_note_unused_options(const struct copse_input *in, const char *what, unsigned used);

copse_status copse_read_topology_json(const struct copse_input *in, struct copse_topology **out,
                                      struct copse_err *err) COPSE_CHECKED;
/* Reads the part of it for cluster JSON, from the parsed document. */
copse_status copse_read_cluster(const struct copse_input *in, const struct copse_json *json,
                                struct copse_topology_builder *builder,
                                struct copse_err *err) COPSE_CHECKED;
copse_status copse_read_nccl_xml(const struct copse_input *in, struct copse_topology **out,
                                 struct copse_err *err) COPSE_CHECKED;
/* Reads the tree that NCCL's debug log has; copse_is_nccl_tree says whether a text has one. */
copse_status copse_read_nccl_tree(const struct copse_input *in, struct copse_topology **out,
                                  struct copse_err *err) COPSE_CHECKED;
bool copse_is_nccl_tree(const struct copse_input *in);
/* Reads the text of `nvidia-smi topo -m`, or (`amd`) of `rocm-smi --showtopo`, of --shownodesbw
 * with it. */
copse_status copse_read_matrix(const struct copse_input *in, bool amd, struct copse_topology **out,
                               struct copse_err *err) COPSE_CHECKED;
/* Whether a text has the first of them in it. */
copse_status copse_find_nvidia_smi(const struct copse_input *in, bool *found,
                                   struct copse_err *err) COPSE_CHECKED;
/* Builds a synthetic line's topology; `label` and line are for messages. The name is the builder's
 * own or `spec`. */
copse_status copse_build_synthetic(struct copse_topology_builder *builder, const char *label,
                                   long line, const char *spec, const struct copse_notes *notes,
                                   struct copse_err *err) COPSE_CHECKED;
copse_status copse_topology_load_at(const char *path, const struct copse_topology_options *options,
                                    int depth, struct copse_topology **out,
                                    struct copse_err *err) COPSE_CHECKED;
