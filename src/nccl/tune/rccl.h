/* Rings and trees in RCCL's own variables, NCCL_RINGS and RCCL_TREES (ROCm/rccl
 * src/graph/rome_models.cc, 2.21 to 2.30). */
#ifndef COPSE_NCCL_TUNE_RCCL_H
#define COPSE_NCCL_TUNE_RCCL_H

#include "base/text.h"
#include "nccl/join.h"

/*
 * "N0 0 2 3 1 N1|N1 1 3 2 0 N0": a ring of GPUs for each channel, by their indexes, between the
 * NICs where there are several hosts. Odd hosts run a list backwards. COPSE_UNSUPPORTED where
 * graphs have no rings, or GPUs or NICs of several systems.
 */
copse_status copse_rccl_rings(const struct copse_nccl_graphs *graphs, int hosts,
                              struct copse_text *out, struct copse_err *err) COPSE_CHECKED;

/*
 * "(0(1(2))(3))|..": a tree of the communicator's ranks for each channel, the first `channels` of
 * `joined`. COPSE_UNSUPPORTED where they have no trees or are deeper than 4,096.
 */
copse_status copse_rccl_trees(const struct copse_nccl_joined *joined, int channels,
                              struct copse_text *out, struct copse_err *err) COPSE_CHECKED;

#endif
