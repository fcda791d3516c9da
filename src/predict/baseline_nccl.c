/*
 * The rings that NCCL runs, as trees: those of a graph dump, joined over hosts as NCCL joins them,
 * else the best packing of rings there is (nccl/best.h).
 *
 *   graphs --nccl/join.h--> orders of ranks, NICs between hosts --> from each root a chain around
 */
#include <string.h>

#include "nccl/best.h"
#include "nccl/join.h"
#include "predict/baseline_internal.h"
#include "predict/policy.h"

/* Rings, and how many channels each is. */
struct rings {
  int n, channels;
  struct copse_baseline_ring *ring; /* [n] */
  int *times;                       /* [n] */
};

/* Appends a route's nodes but the first to a way. Of equal ways each channel takes another one. */
static void add_route(const struct copse_topology *t, const struct copse_nccl_route *route, int to,
                      int turn, struct copse_baseline_way *way) {
  int first = way->n, at = to;
  way->nodes[way->n++] = at;
  for (;;) {
    int n = 0, link = -1;
    for (int i = 0; i < route->n_hops; i++) n += t->links[route->hops[i].link].dst == at;
    if (n == 0) break;
    for (int i = 0, k = turn % n; i < route->n_hops && link < 0; i++)
      if (t->links[route->hops[i].link].dst == at && k-- == 0) link = route->hops[i].link;
    at = t->links[link].src;
    way->nodes[way->n++] = at;
  }
  way->n--; /* what the way ended with before */
  for (int i = first, j = way->n - 1; i < j; i++, j--) {
    int node = way->nodes[i];
    way->nodes[i] = way->nodes[j];
    way->nodes[j] = node;
  }
}

/* From rank a over its NIC to rank b, as NCCL has it; between GPUs of one host the fabric's own. */
static copse_status find_way(struct copse_baseline_work *w, struct copse_nccl_machine *m,
                             const struct copse_nccl_joined *joined, int channel, int a,
                             struct copse_baseline_way *way) {
  const struct copse_topology *t = w->topology;
  const struct copse_nccl_seat *s = copse_nccl_seat_of(joined, channel, a);
  int in = copse_nccl_seat_of(joined, channel, s->next)->receive_port, relay;
  const struct copse_nccl_route *routes[4];
  if (s->send_port < 0 || in < 0) return COPSE_OK;
  int out_node = m->ports[s->send_port].node, in_node = m->ports[in].node;
  int b_node = t->rank_nodes[s->next];
  COPSE_DO(copse_nccl_find_way_out(m, a, s->send_port, &relay, &routes[0], &routes[1], w->err));
  COPSE_DO(copse_nccl_find_route(m, out_node, in_node, &routes[2], w->err));
  COPSE_DO(copse_nccl_find_route(m, in_node, b_node, &routes[3], w->err));
  int hops = 2;
  for (int i = 0; i < 4; i++) hops += routes[i] ? routes[i]->n_hops + 1 : 0;
  COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)hops, way->nodes, w->err));
  way->nodes[way->n++] = t->rank_nodes[a];
  if (routes[0]) add_route(t, routes[0], t->rank_nodes[relay], channel, way);
  add_route(t, routes[1], out_node, channel, way);
  add_route(t, routes[2], in_node, channel, way);
  add_route(t, routes[3], b_node, channel, way);
  return COPSE_OK;
}

static bool is_same(const struct copse_baseline_ring *a, const struct copse_baseline_ring *b,
                    int n) {
  for (int i = 0; i < n; i++)
    if (a->order[i] != b->order[i] || a->ways[i].n != b->ways[i].n ||
        (a->ways[i].n > 0 &&
         memcmp(a->ways[i].nodes, b->ways[i].nodes, (size_t)a->ways[i].n * sizeof(int)) != 0))
      return false;
  return true;
}

/* Of a communicator's channels those of the graph: the others are copies. */
static copse_status collect(struct copse_baseline_work *w, struct copse_nccl_machine *m,
                            const struct copse_nccl_joined *joined, struct rings *rings) {
  int n = w->topology->n_ranks;
  rings->channels = joined->n_graph_channels;
  COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)rings->channels, rings->ring, w->err));
  COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)rings->channels, rings->times, w->err));
  for (int c = 0; c < rings->channels; c++) {
    struct copse_baseline_ring ring;
    int like = 0;
    COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)n, ring.order, w->err));
    COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)n, ring.ways, w->err));
    for (int i = 1; i < n; i++)
      ring.order[i] = copse_nccl_seat_of(joined, c, ring.order[i - 1])->next;
    for (int i = 0; i < n; i++) COPSE_DO(find_way(w, m, joined, c, ring.order[i], &ring.ways[i]));
    while (like < rings->n && !is_same(&rings->ring[like], &ring, n)) like++;
    if (like == rings->n) rings->ring[rings->n++] = ring;
    rings->times[like]++;
  }
  return COPSE_OK;
}

static copse_status join(struct copse_baseline_work *w,
                         const struct copse_nccl_graphs *const *graphs, int n_graphs,
                         struct rings *rings) {
  COPSE_AT_END(copse_nccl_machine_free) struct copse_nccl_machine machine = {0};
  COPSE_AT_END(copse_nccl_joined_free) struct copse_nccl_joined joined = {0};
  const char *label = w->options->nccl_label ? w->options->nccl_label : w->topology->name;
  COPSE_DO(copse_nccl_machine_open(w->topology, &machine, w->err));
  COPSE_DO(copse_nccl_join(label, graphs, n_graphs, &machine, &joined, w->err));
  if (!joined.has_ring)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "%s has no rings (graph 0)", label);
  return collect(w, &machine, &joined, rings);
}

/* Hosts of one communicator run one number and speed of channels: says whose bound is the least. */
static void note_hosts_that_differ(const struct copse_baseline_work *w,
                                   const struct copse_nccl_best *best) {
  int least = 0;
  for (int i = 1; i < best->n_groups; i++)
    if (copse_q_cmp(best->groups[i].ring.bound, best->groups[least].ring.bound) < 0) least = i;
  int host = best->groups[least].host;
  const char *id = w->topology->nodes[w->topology->rank_nodes[w->hosts.members[w->hosts.first[host]]]].id;
  int length = (int)copse_host_prefix(id, NULL);
  if (best->n_groups > 1)
    copse_note(w->options->notes, "hosts differ: rings of %d kinds of host, all as fast as %.*s's",
               best->n_groups, length > 0 ? length - 1 : 0, id);
}

static copse_status find_best(struct copse_baseline_work *w, struct rings *rings) {
  COPSE_AT_END(copse_nccl_best_free) struct copse_nccl_best best = {0};
  const struct copse_nccl_best_options options = {0};
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = copse_nccl_best_find(w->topology, &options, &best, &why);
  if (status == COPSE_INFEASIBLE)
    status = COPSE_UNSUPPORTED; /* of NCCL's rings; ranks are joined */
  if (status != COPSE_OK) return copse_fail(w->err, status, "%s", why.text);
  if (best.ring.n == 0)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "hosts of one GPU have no rings of their own");
  note_hosts_that_differ(w, &best);
  return join(w, best.graphs, best.n_hosts, rings);
}

copse_status copse_baseline_rings(struct copse_baseline_work *w) {
  struct rings rings = {0};
  int64_t ranks = w->topology->n_ranks, roots = w->options->root < 0 ? ranks : 1;
  if (ranks < 2)
    return copse_baseline_chains(w, &(struct copse_baseline_ring){(int[]){0}, NULL}, COPSE_Q_ONE);
  COPSE_DO(w->options->nccl ? join(w, &w->options->nccl, 1, &rings) : find_best(w, &rings));
  if (rings.n * roots * ranks > MOST_EDGES)
    return copse_fail(w->err, COPSE_UNSUPPORTED,
                      "%d rings of %d ranks are more than %d edges of trees", rings.n, (int)ranks,
                      MOST_EDGES);
  for (int i = 0; i < rings.n; i++) {
    struct copse_q weight;
    COPSE_DO(copse_q_make(rings.times[i], rings.channels, &weight, w->err));
    COPSE_DO(copse_baseline_chains(w, &rings.ring[i], weight));
  }
  return COPSE_OK;
}
