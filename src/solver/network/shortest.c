/* E. W. Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1
 * (1959), on a binary heap. Hops live in the low bits of a distance, so that one comparison decides
 * both. */
#include "solver/network/shortest.h"

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
