/*
 * Hosts in an order of few hops: nearest neighbour and 2-opt (G. A. Croes, A method for solving
 * traveling-salesman problems, 1958).
 */
#include "nccl/tune/order.h"

#include <string.h>

#include "base/graph.h"
#include "nccl/policy.h"

struct tour {
  const struct copse_nccl_machine *m;
  struct copse_adjacency out;
  int n;
  int *hops; /* [n * n] links from host to host; -1: not joined */
  int *depth;
  struct copse_queue queue;
};

static int hops(const struct tour *t, int a, int b) { return t->hops[a * t->n + b]; }

/* Measures breadth first from a host's nodes over the network: what is in hosts relays nothing. */
static void measure(struct tour *t, int host) {
  const struct copse_nccl_machine *m = t->m;
  copse_queue_reset(&t->queue);
  for (int g = 0; g < t->n; g++) t->hops[host * t->n + g] = g == host ? 0 : -1;
  for (int v = 0; v < m->topology->n_nodes; v++) {
    t->depth[v] = m->host_of_node[v] == host ? 0 : -1;
    if (t->depth[v] == 0) copse_queue_push(&t->queue, v);
  }
  while (!copse_queue_is_empty(&t->queue)) {
    int v = copse_queue_pop(&t->queue), at = m->host_of_node[v];
    if (at >= 0 && at != host) {
      int *there = &t->hops[host * t->n + at];
      if (*there < 0) *there = t->depth[v];
      continue;
    }
    for (int i = t->out.first[v]; i < t->out.first[v + 1]; i++) {
      int w = m->topology->links[t->out.item[i]].dst;
      if (t->depth[w] >= 0) continue;
      t->depth[w] = t->depth[v] + 1;
      copse_queue_push(&t->queue, w);
    }
  }
}

static int64_t length(const struct tour *t, const int *hosts) {
  int64_t sum = 0;
  for (int i = 0; i < t->n; i++) sum += hops(t, hosts[i], hosts[(i + 1) % t->n]);
  return sum;
}

static void go_to_nearest(const struct tour *t, int *hosts) {
  for (int i = 0; i + 1 < t->n; i++) {
    int nearest = i + 1;
    for (int k = i + 2; k < t->n; k++)
      if (hops(t, hosts[i], hosts[k]) < hops(t, hosts[i], hosts[nearest])) nearest = k;
    int next = hosts[nearest];
    memmove(&hosts[i + 2], &hosts[i + 1], (size_t)(nearest - i - 1) * sizeof *hosts);
    hosts[i + 1] = next;
  }
}

static void turn(int *hosts, int from, int to) {
  for (; from < to; from++, to--) {
    int host = hosts[from];
    hosts[from] = hosts[to];
    hosts[to] = host;
  }
}

static bool turn_parts(const struct tour *t, int *hosts) {
  bool better = false;
  for (int i = 0; i + 2 < t->n; i++)
    for (int k = i + 2; k < t->n; k++) {
      int a = hosts[i], b = hosts[i + 1], c = hosts[k], d = hosts[(k + 1) % t->n];
      if (a == d || hops(t, a, c) + hops(t, b, d) >= hops(t, a, b) + hops(t, c, d)) continue;
      turn(hosts, i + 1, k);
      better = true;
    }
  return better;
}

/* Whether all hosts are joined; `matters` gets whether some are further apart than others. */
static bool are_joined(const struct tour *t, bool *matters) {
  *matters = false;
  for (int i = 0; i < t->n * t->n; i++) {
    if (t->hops[i] < 0) return false;
    *matters = *matters || (t->hops[i] > 0 && t->hops[i] != t->hops[1]);
  }
  return true;
}

copse_status copse_nccl_order_hosts(const struct copse_nccl_machine *machine,
                                    struct copse_arena *arena, struct copse_nccl_order *out,
                                    struct copse_err *err) {
  const struct copse_topology *topology = machine->topology;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct tour t = {.m = machine, .n = machine->n_hosts};
  size_t n = (size_t)t.n;
  *out = (struct copse_nccl_order){0};
  COPSE_DO(COPSE_ARRAY(arena, n, out->hosts, err));
  for (int h = 0; h < t.n; h++) out->hosts[h] = h;
  if (t.n < 3 || t.n > COPSE_NCCL_ORDER_MAX_HOSTS) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, n * n, t.hops, err));
  COPSE_DO(COPSE_ARRAYS(&scratch, (size_t)topology->n_nodes, int, err, &t.depth, &t.queue.items));
  COPSE_DO(copse_adjacency_by(&scratch, topology->n_nodes, topology->n_links,
                              COPSE_KEYS(topology->links, src), sizeof *topology->links, &t.out,
                              err));
  for (int h = 0; h < t.n; h++) measure(&t, h);
  if (!are_joined(&t, &out->matters) || !out->matters) return COPSE_OK;
  out->given = length(&t, out->hosts);
  go_to_nearest(&t, out->hosts);
  for (int round = 0; round < MOST_ORDER_ROUNDS && turn_parts(&t, out->hosts); round++) continue;
  out->best = length(&t, out->hosts);
  if (out->best < out->given) return COPSE_OK;
  for (int h = 0; h < t.n; h++) out->hosts[h] = h;
  out->best = out->given;
  return COPSE_OK;
}
