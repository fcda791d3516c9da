/* Writes NCCL_RINGS and RCCL_TREES. RCCL drops a ring that it can't use without a word, and with it
 * the channel: so the lists are those that the graph's writer has checked. */
#include "nccl/tune/rccl.h"

#include <inttypes.h>

#define MAX_DEPTH 4096

copse_status copse_rccl_rings(const struct copse_nccl_graphs *graphs, int hosts,
                              struct copse_text *out, struct copse_err *err) {
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(graphs, COPSE_NCCL_RING);
  if (!ring) return copse_fail(err, COPSE_UNSUPPORTED, "no rings for NCCL_RINGS");
  for (int c = 0; c < ring->n_channels; c++) {
    const struct copse_nccl_channel *channel = &ring->channels[c];
    copse_text_add(out, c > 0 ? "|" : "");
    if (hosts > 1) copse_text_add(out, "N%" PRIu64 " ", channel->nets[0]);
    for (int i = 0; i < channel->n_gpus; i++) {
      if (copse_nccl_dev_system(channel->devs[i]) != 0)
        return copse_fail(err, COPSE_UNSUPPORTED, "NCCL_RINGS is for GPUs of one host");
      copse_text_add(out, "%s%" PRIu64, i > 0 ? " " : "", channel->devs[i]);
    }
    if (hosts > 1) copse_text_add(out, " N%" PRIu64, channel->nets[1]);
  }
  return copse_text_status(out, err);
}

static copse_status add_tree(const struct copse_nccl_joined *joined, int channel, int rank,
                             int depth, struct copse_text *out, struct copse_err *err) {
  const struct copse_nccl_seat *seat = copse_nccl_seat_of(joined, channel, rank);
  if (depth == MAX_DEPTH)
    return copse_fail(err, COPSE_UNSUPPORTED, "a tree of more than %d ranks in a row", MAX_DEPTH);
  copse_text_add(out, "(%d", rank);
  for (int d = 0; d < COPSE_NCCL_DOWNS; d++)
    if (seat->down[d] >= 0) COPSE_DO(add_tree(joined, channel, seat->down[d], depth + 1, out, err));
  copse_text_add(out, ")");
  return COPSE_OK;
}

copse_status copse_rccl_trees(const struct copse_nccl_joined *joined, int channels,
                              struct copse_text *out, struct copse_err *err) {
  if (!joined->has_tree) return copse_fail(err, COPSE_UNSUPPORTED, "no trees for RCCL_TREES");
  for (int c = 0; c < channels && c < joined->n_channels; c++) {
    int root = 0;
    while (root < joined->n_ranks && copse_nccl_seat_of(joined, c, root)->up >= 0) root++;
    if (root == joined->n_ranks) return copse_fail(err, COPSE_INTERNAL, "a tree without a root");
    copse_text_add(out, c > 0 ? "|" : "");
    COPSE_DO(add_tree(joined, c, root, 0, out, err));
  }
  return copse_text_status(out, err);
}
