/* Links of a network by their ends, their images under a permutation of the nodes, terminals. */
#include "solver/network/network.h"

#include <stdlib.h>

#include "base/index_map.h"
#include "base/memory.h"

copse_status copse_links_by_source(const struct copse_network *network, struct copse_arena *arena,
                                   struct copse_adjacency *out, struct copse_err *err) {
  const int *key = COPSE_KEYS(network->links, src);
  return copse_adjacency_by(arena, network->n_nodes, network->n_links, key, sizeof *network->links,
                            out, err);
}

copse_status copse_links_by_destination(const struct copse_network *network,
                                        struct copse_arena *arena, struct copse_adjacency *out,
                                        struct copse_err *err) {
  const int *key = COPSE_KEYS(network->links, dst);
  return copse_adjacency_by(arena, network->n_nodes, network->n_links, key, sizeof *network->links,
                            out, err);
}

copse_status copse_links_image(const struct copse_network *network,
                               const struct copse_permutation *rotation, int **image,
                               struct copse_err *err) {
  struct copse_index_map by_ends = {0};
  copse_status status;
  *image = NULL;
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof **image, image, err));
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    (*image)[e] = e;
    COPSE_TRY(copse_index_map_add(&by_ends, copse_key_pair(link->src, link->dst), e, err));
  }
  for (int e = 0; rotation->image && e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    uint64_t key = copse_key_pair(rotation->image[link->src], rotation->image[link->dst]);
    size_t cursor = 0;
    int found = copse_index_map_next(&by_ends, key, &cursor);
    if (found < 0 || network->links[found].capacity != link->capacity) {
      status = copse_fail(err, COPSE_INTERNAL, "a claimed symmetry is none");
      goto out;
    }
    (*image)[e] = found;
  }
out:
  copse_index_map_free(&by_ends);
  if (status != COPSE_OK) {
    free(*image);
    *image = NULL;
  }
  return status;
}

copse_status copse_network_terminals(const struct copse_network *network, struct copse_arena *arena,
                                     bool **flags, struct copse_err *err) {
  COPSE_DO(copse_arena_array(arena, (size_t)network->n_nodes, sizeof **flags, flags, err));
  for (int i = 0; i < network->n_terminals; i++) (*flags)[network->terminals[i]] = true;
  return COPSE_OK;
}

bool copse_network_equal_weights(const struct copse_network *network) {
  for (int i = 1; i < network->n_roots; i++)
    if (network->roots[i].weight != network->roots[0].weight) return false;
  return true;
}
