/* Links of a network by their ends, their images under a permutation of the nodes, terminals. */
#include "solver/network/network.h"

#include "base/index_map.h"
#include "base/memory.h"

copse_status copse_links_by_source(const struct copse_network *network, struct copse_arena *arena,
                                   struct copse_adjacency *out, struct copse_err *err) {
  return copse_adjacency_by(arena, network->n_nodes, network->n_links,
                            COPSE_KEYS(network->links, src), sizeof *network->links, out, err);
}

copse_status copse_links_by_destination(const struct copse_network *network,
                                        struct copse_arena *arena, struct copse_adjacency *out,
                                        struct copse_err *err) {
  return copse_adjacency_by(arena, network->n_nodes, network->n_links,
                            COPSE_KEYS(network->links, dst), sizeof *network->links, out, err);
}

copse_status copse_links_image(const struct copse_network *network,
                               const struct copse_permutation *rotation, struct copse_arena *arena,
                               int **image, struct copse_err *err) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map by_ends = {0};
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_links, *image, err));
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    (*image)[e] = e;
    COPSE_DO(copse_index_map_add(&by_ends, copse_key_pair(link->src, link->dst), e, err));
  }
  for (int e = 0; rotation->image && e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    uint64_t key = copse_key_pair(rotation->image[link->src], rotation->image[link->dst]);
    size_t cursor = 0;
    int found = copse_index_map_next(&by_ends, key, &cursor);
    if (found < 0 || network->links[found].capacity != link->capacity)
      return copse_fail(err, COPSE_INTERNAL, "a claimed symmetry is none");
    (*image)[e] = found;
  }
  return COPSE_OK;
}

copse_status copse_links_orbits(const struct copse_network *network,
                                const struct copse_permutation *generators, int n,
                                struct copse_arena *arena, int **first, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_links, *first, err));
  copse_sets_init(*first, network->n_links);
  for (int i = 0; i < n; i++) {
    COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
    int *image;
    COPSE_DO(copse_links_image(network, &generators[i], &scratch, &image, err));
    for (int e = 0; e < network->n_links; e++) copse_sets_unite(*first, e, image[e]);
  }
  for (int e = 0; e < network->n_links; e++) (*first)[e] = copse_sets_find(*first, e);
  return COPSE_OK;
}

copse_status copse_nodes_orbits(const struct copse_network *network,
                                const struct copse_permutation *generators, int n,
                                struct copse_arena *arena, int **first, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_nodes, *first, err));
  copse_sets_init(*first, network->n_nodes);
  for (int i = 0; i < n; i++)
    for (int v = 0; generators[i].image && v < network->n_nodes; v++)
      copse_sets_unite(*first, v, generators[i].image[v]);
  for (int v = 0; v < network->n_nodes; v++) (*first)[v] = copse_sets_find(*first, v);
  return COPSE_OK;
}

copse_status copse_network_terminals(const struct copse_network *network, struct copse_arena *arena,
                                     bool **flags, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_nodes, *flags, err));
  for (int i = 0; i < network->n_terminals; i++) (*flags)[network->terminals[i]] = true;
  return COPSE_OK;
}

bool copse_network_equal_weights(const struct copse_network *network) {
  for (int i = 1; i < network->n_roots; i++)
    if (network->roots[i].weight != network->roots[0].weight) return false;
  return true;
}

/* ---- shortest ways ------------------------------------------------------------------------- */

/* E. W. Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1
 * (1959), on a binary heap. Hops live in the low bits of a distance, so that one comparison decides
 * both. */

/* Of a distance; a path has less than 2^12 links. */
#define HOP_BITS 12

copse_status copse_shortest_prepare(const struct copse_network *network, struct copse_arena *arena,
                                    struct copse_shortest *out, struct copse_err *err) {
  size_t n = (size_t)network->n_nodes;
  *out = (struct copse_shortest){.network = network};
  COPSE_DO(copse_nearest_prepare(arena, network->n_nodes, &out->nearest, err));
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &out->via, &out->order));
  return copse_links_by_source(network, arena, &out->leaving, err);
}

static void relax(struct copse_shortest *s, int node, const int64_t *lengths) {
  for (int i = s->leaving.first[node]; i < s->leaving.first[node + 1]; i++) {
    int link = s->leaving.item[i], to = s->network->links[link].dst;
    int64_t distance = s->nearest.distance[node] + (lengths[link] << HOP_BITS) + 1;
    if (copse_nearest_offer(&s->nearest, to, distance)) s->via[to] = link;
  }
}

void copse_shortest_run(struct copse_shortest *s, int source, const int64_t *lengths,
                        const bool *blocked) {
  for (int v = 0; v < s->network->n_nodes; v++) s->via[v] = -1;
  s->n_order = 0;
  copse_nearest_reset(&s->nearest);
  copse_nearest_offer(&s->nearest, source, 0);
  while (s->nearest.n > 0) {
    int node = copse_nearest_take(&s->nearest);
    s->order[s->n_order++] = node;
    if (node == source || !blocked || !blocked[node]) relax(s, node, lengths);
  }
}

int64_t copse_shortest_length(const struct copse_shortest *s, int node) {
  int64_t distance = s->nearest.distance[node];
  return distance == INT64_MAX ? -1 : distance >> HOP_BITS;
}
