#include "solver/network/shortest.h"

#include <stdlib.h>

#include "base/memory.h"

/* Hops live in the low bits of a distance, so that one comparison decides both. */
#define HOP_BITS 12

struct copse_shortest {
  const struct copse_network *network;
  int *first_link, *links; /* by source node */
  int64_t *distance;       /* [n_nodes] INT64_MAX: not reached */
  int *via;                /* [n_nodes] link */
  int *heap, *position;    /* [n_nodes] binary heap; position -1: not in it */
  int n_heap;
  int *order;
  int n_order;
};

copse_status copse_shortest_new(const struct copse_network *network, struct copse_shortest **out,
                                struct copse_err *err) {
  size_t n = (size_t)network->n_nodes;
  struct copse_shortest *s = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *s, &s, err));
  s->network = network;
  COPSE_TRY(copse_calloc(n + 2, sizeof(int), &s->first_link, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof(int), &s->links, err));
  COPSE_TRY(copse_calloc(n, sizeof(int64_t), &s->distance, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->via, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->heap, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->position, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->order, err));
  /* counting sort by source; off by one while filling */
  for (int i = 0; i < network->n_links; i++) s->first_link[network->links[i].src + 2]++;
  for (size_t v = 1; v < n + 2; v++) s->first_link[v] += s->first_link[v - 1];
  for (int i = 0; i < network->n_links; i++)
    s->links[s->first_link[network->links[i].src + 1]++] = i;
  *out = s;
  return COPSE_OK;
out:
  copse_shortest_free(s);
  return status;
}

void copse_shortest_free(struct copse_shortest *s) {
  if (!s) return;
  free(s->first_link);
  free(s->links);
  free(s->distance);
  free(s->via);
  free(s->heap);
  free(s->position);
  free(s->order);
  free(s);
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
  for (int i = s->first_link[node]; i < s->first_link[node + 1]; i++) {
    int link = s->links[i], to = s->network->links[link].dst;
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

int copse_shortest_link(const struct copse_shortest *s, int node) { return s->via[node]; }

int64_t copse_shortest_length(const struct copse_shortest *s, int node) {
  return s->distance[node] == INT64_MAX ? -1 : s->distance[node] >> HOP_BITS;
}

const int *copse_shortest_order(const struct copse_shortest *s, int *n) {
  *n = s->n_order;
  return s->order;
}
