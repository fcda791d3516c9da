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
  COPSE_DO(COPSE_ARRAY(arena, n, out->distance, err));
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &out->via, &out->heap, &out->position, &out->order));
  return copse_links_by_source(network, arena, &out->leaving, err);
}

/* Ties between nodes go to the smaller one, for the sake of determinism. */
static bool before(const struct copse_shortest *s, int a, int b) {
  return s->distance[a] != s->distance[b] ? s->distance[a] < s->distance[b] : a < b;
}

static void place(struct copse_shortest *s, int at, int node) {
  s->heap[at] = node;
  s->position[node] = at;
}

static void sift_up(struct copse_shortest *s, int at) {
  int node = s->heap[at];
  while (at > 0 && before(s, node, s->heap[(at - 1) / 2])) {
    place(s, at, s->heap[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  place(s, at, node);
}

static int pop(struct copse_shortest *s) {
  int top = s->heap[0], node = s->heap[--s->n_heap], at = 0;
  s->position[top] = -1;
  if (s->n_heap == 0) return top;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= s->n_heap) break;
    if (child + 1 < s->n_heap && before(s, s->heap[child + 1], s->heap[child])) child++;
    if (!before(s, s->heap[child], node)) break;
    place(s, at, s->heap[child]);
    at = child;
  }
  place(s, at, node);
  return top;
}

static void relax(struct copse_shortest *s, int node, const int64_t *lengths) {
  for (int i = s->leaving.first[node]; i < s->leaving.first[node + 1]; i++) {
    int link = s->leaving.item[i], to = s->network->links[link].dst;
    int64_t distance = s->distance[node] + (lengths[link] << HOP_BITS) + 1;
    if (distance >= s->distance[to]) continue;
    if (s->distance[to] == INT64_MAX) {
      s->heap[s->n_heap] = to;
      s->position[to] = s->n_heap++;
    }
    s->distance[to] = distance;
    s->via[to] = link;
    sift_up(s, s->position[to]);
  }
}

void copse_shortest_run(struct copse_shortest *s, int source, const int64_t *lengths,
                        const bool *blocked) {
  for (int v = 0; v < s->network->n_nodes; v++) {
    s->distance[v] = INT64_MAX;
    s->via[v] = -1;
    s->position[v] = -1;
  }
  s->n_order = 0;
  s->n_heap = 1;
  s->heap[0] = source;
  s->position[source] = 0;
  s->distance[source] = 0;
  while (s->n_heap > 0) {
    int node = pop(s);
    s->order[s->n_order++] = node;
    if (node == source || !blocked || !blocked[node]) relax(s, node, lengths);
  }
}

int64_t copse_shortest_length(const struct copse_shortest *s, int node) {
  return s->distance[node] == INT64_MAX ? -1 : s->distance[node] >> HOP_BITS;
}
