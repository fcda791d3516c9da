/*
 * The rings that NCCL runs, as trees: those of a graph dump, joined over hosts as NCCL joins them,
 * else the best packing of rings there is (nccl/best.h).
 *
 *   graphs --nccl/join.h--> orders of ranks, NICs between hosts --> from each root a chain around
 *
 * Hosts of one NCCL communicator agree on the number and speed of their channels. Where parts of
 * some hosts are down or slow, the rings are those of the machine whose hosts all lack what one of
 * them lacks.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "nccl/best.h"
#include "nccl/join.h"
#include "predict/baseline_internal.h"
#include "predict/policy.h"
#include "topology/modify.h"

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

/* ---- hosts that differ ---- */

/* What is to be taken from a topology so that its hosts are alike. */
struct levelling {
  struct copse_baseline_work *w;
  struct copse_fault *faults; /* [capacity] of nodes and of links */
  int n, narrowed;            /* faults; links that are slower elsewhere */
  const char *lacked;         /* a node that some host lacks, without its host; NULL: none */
  struct copse_q *outside[2]; /* [n_nodes] to and from nodes of no host */
};

/* The node of another host with the same name; one of no host is its own; -1: none. */
static int find_twin(const struct copse_baseline_work *w, int node, int host) {
  const struct copse_topology *t = w->topology;
  char id[600];
  const char *own = t->nodes[node].id;
  if (w->hosts.of_node[node] < 0) return node;
  const char *first = t->nodes[t->rank_nodes[w->hosts.members[w->hosts.first[host]]]].id;
  int prefix = (int)copse_host_prefix(first, NULL);
  int n = snprintf(id, sizeof id, "%.*s%s", prefix, first, own + copse_host_prefix(own, NULL));
  return n < (int)sizeof id ? copse_topology_find(t, id) : -1;
}

/* For each node what it sends to nodes of no host, and what it takes from them. */
static copse_status sum_outside(struct levelling *v) {
  const struct copse_topology *t = v->w->topology;
  const int *host = v->w->hosts.of_node;
  for (int back = 0; back < 2; back++) {
    COPSE_DO(
        COPSE_ARRAY(&v->w->scratch, (size_t)t->n_nodes, v->outside[back], v->w->err));
    for (int n = 0; n < t->n_nodes; n++) v->outside[back][n] = COPSE_Q_ZERO;
  }
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    struct copse_q *to = &v->outside[0][l->src], *from = &v->outside[1][l->dst];
    if (host[l->dst] < 0) COPSE_DO(copse_q_add(*to, l->bandwidth, to, v->w->err));
    if (host[l->src] < 0) COPSE_DO(copse_q_add(*from, l->bandwidth, from, v->w->err));
  }
  return COPSE_OK;
}

/* Of a node the bandwidth to (back: from) another of its host, or as -1 all nodes of no host. */
static struct copse_q bandwidth_to(const struct levelling *v, int node, int other, bool back) {
  const struct copse_topology *t = v->w->topology;
  if (other < 0) return v->outside[back][node];
  int link = copse_topology_find_link(t, back ? other : node, back ? node : other);
  return link < 0 ? COPSE_Q_ZERO : t->links[link].bandwidth;
}

/* Whether some host has not such a node, or as a NIC no cable at it, which others have. */
static bool is_lacked(const struct levelling *v, int node) {
  const struct copse_baseline_work *w = v->w;
  const char *type = w->topology->nodes[node].type;
  bool nic = strcmp(type, "nic") == 0 || strcmp(type, "net") == 0, some = false, none = false;
  for (int h = 0; h < w->hosts.n_hosts; h++) {
    int twin = find_twin(w, node, h);
    if (twin < 0) return true;
    *(v->outside[0][twin].num > 0 ? &some : &none) = true;
  }
  return nic && some && none;
}

/* Takes from a link of a host, both ways, what its like in the slowest host lacks. */
static copse_status level_link(struct levelling *v, int a, int b) {
  struct copse_baseline_work *w = v->w;
  struct copse_q left = COPSE_Q_ONE, mine, theirs, part;
  bool outside = w->hosts.of_node[b] < 0;
  for (int h = 0; h < w->hosts.n_hosts; h++) {
    int x = find_twin(w, a, h), y = outside ? -1 : find_twin(w, b, h);
    if (x < 0 || (y < 0 && !outside)) return COPSE_OK; /* the node goes, and the link with it */
    for (int back = 0; back < 2; back++) {
      mine = bandwidth_to(v, a, outside ? -1 : b, back);
      theirs = bandwidth_to(v, x, y, back);
      if (mine.num == 0) continue;
      COPSE_DO(copse_q_div(theirs, mine, &part, w->err));
      if (copse_q_cmp(part, left) < 0) left = part;
    }
  }
  if (copse_q_cmp(left, COPSE_Q_ONE) >= 0 || is_lacked(v, a)) return COPSE_OK;
  const char *what = copse_arena_printf(&w->scratch, "%s>%s", w->topology->nodes[a].id,
                                        w->topology->nodes[b].id);
  if (!what) return copse_fail_nomem(w->err);
  v->faults[v->n++] = (struct copse_fault){what, left};
  v->narrowed++;
  return COPSE_OK;
}

static copse_status find_faults(struct levelling *v) {
  struct copse_baseline_work *w = v->w;
  const struct copse_topology *t = w->topology;
  COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)t->n_nodes + (size_t)t->n_links, v->faults, w->err));
  COPSE_DO(sum_outside(v));
  for (int i = 0; i < t->n_nodes; i++) {
    if (!is_lacked(v, i)) continue;
    v->faults[v->n++] = (struct copse_fault){t->nodes[i].id, COPSE_Q_ZERO};
    if (!v->lacked) v->lacked = t->nodes[i].id + copse_host_prefix(t->nodes[i].id, NULL);
  }
  for (int i = 0; i < t->n_links; i++) {
    int a = t->links[i].src, b = t->links[i].dst;
    int back = copse_topology_find_link(t, b, a);
    if (back >= 0 && back < i) continue; /* done */
    if (w->hosts.of_node[a] < 0) a = t->links[i].dst, b = t->links[i].src;
    bool of_host = w->hosts.of_node[a] >= 0;
    bool one = w->hosts.of_node[b] < 0 || w->hosts.of_node[b] == w->hosts.of_node[a];
    /* a pair that only goes the other way is no cable that could be named so */
    if (of_host && one && copse_topology_find_link(t, a, b) >= 0) COPSE_DO(level_link(v, a, b));
  }
  return COPSE_OK;
}

static copse_status join_alike(struct copse_baseline_work *w, const struct copse_topology *alike,
                               struct rings *rings);

/* Rings of what all hosts have; *found false where that has no rings either, or other ranks. */
static copse_status find_levelled(struct copse_baseline_work *w, struct rings *rings, bool *found) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *alike = NULL;
  struct levelling v = {.w = w};
  struct copse_err why = COPSE_ERR_INIT;
  *found = false;
  if (w->hosts.n_hosts < 2 || !w->hosts.even) return COPSE_OK;
  COPSE_DO(find_faults(&v));
  if (v.n == 0) return COPSE_OK;
  copse_status status =
      copse_topology_break(w->topology, w->topology->name, v.faults, v.n, &alike, &why);
  if (status == COPSE_BAD_INPUT || (status == COPSE_OK && alike->n_ranks < w->topology->n_ranks))
    return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(w->err, status, "%s", why.text);
  struct copse_err *err = w->err;
  w->err = &why;
  status = join_alike(w, alike, rings);
  w->err = err;
  if (status == COPSE_UNSUPPORTED) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(w->err, status, "%s", why.text);
  *found = true;
  copse_note(w->options->notes, "hosts differ: rings of what all of them have%s%.60s%s",
             v.lacked ? ", without " : "", v.lacked ? v.lacked : "",
             v.narrowed ? ", links as slow as the slowest of their kind" : "");
  return COPSE_OK;
}

static copse_status join(struct copse_baseline_work *w, const struct copse_nccl_graphs *graphs,
                         struct rings *rings) {
  COPSE_AT_END(copse_nccl_machine_free) struct copse_nccl_machine machine = {0};
  COPSE_AT_END(copse_nccl_joined_free) struct copse_nccl_joined joined = {0};
  const char *label = w->options->nccl_label ? w->options->nccl_label : w->topology->name;
  COPSE_DO(copse_nccl_machine_open(w->topology, &machine, w->err));
  COPSE_DO(copse_nccl_join(label, graphs, &machine, &joined, w->err));
  if (!joined.has_ring)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "%s has no rings (graph 0)", label);
  return collect(w, &machine, &joined, rings);
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
  return join(w, &best.graphs, rings);
}

/* Those of a topology of the same ranks and of no other nodes, with the nodes' numbers in ours. */
static copse_status join_alike(struct copse_baseline_work *w, const struct copse_topology *alike,
                               struct rings *rings) {
  const struct copse_topology *whole = w->topology;
  w->topology = alike;
  copse_status status = find_best(w, rings);
  w->topology = whole;
  for (int r = 0; status == COPSE_OK && r < rings->n; r++)
    for (int i = 0; i < alike->n_ranks; i++) {
      struct copse_baseline_way *way = &rings->ring[r].ways[i];
      for (int k = 0; k < way->n; k++)
        way->nodes[k] = copse_topology_find(whole, alike->nodes[way->nodes[k]].id);
    }
  return status;
}

static copse_status find_best_or_levelled(struct copse_baseline_work *w, struct rings *rings) {
  struct copse_err why = COPSE_ERR_INIT, *err = w->err;
  bool found = false;
  w->err = &why;
  copse_status status = find_best(w, rings);
  w->err = err;
  if (status == COPSE_UNSUPPORTED) {
    *rings = (struct rings){0};
    COPSE_DO(find_levelled(w, rings, &found));
  }
  return status == COPSE_OK || found ? COPSE_OK : copse_fail(err, status, "%s", why.text);
}

copse_status copse_baseline_rings(struct copse_baseline_work *w) {
  struct rings rings = {0};
  int64_t ranks = w->topology->n_ranks, roots = w->options->root < 0 ? ranks : 1;
  if (ranks < 2)
    return copse_baseline_chains(w, &(struct copse_baseline_ring){(int[]){0}, NULL}, COPSE_Q_ONE);
  COPSE_DO(w->options->nccl ? join(w, w->options->nccl, &rings)
                            : find_best_or_levelled(w, &rings));
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
