/*
 * Baselines: makes one by kind, as a schedule that verifies and as transfers, with a bound. The
 * bound is that of a given schedule where it binds the baseline too, else the best cut around one
 * rank or host. Each baseline's source is named in baseline.h.
 */
#include "predict/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "nccl/best.h"
#include "nccl/judge.h"
#include "predict/baseline_internal.h"
#include "predict/policy.h"
#include "schedule/loads.h"

/* Takes memory of the schedule. */
static copse_status take(struct copse_baseline_work *w, size_t n, size_t size, void *out_pointer) {
  return copse_arena_array(&w->schedule->arena, n, size, out_pointer, w->err);
}

/* ---- NCCL's own rings ----------------------------------------------------------------------- */

/*
 * The rings that NCCL runs, as trees: those of a graph dump, joined over hosts as NCCL joins them,
 * else the best packing of rings there is (nccl/best.h).
 *
 *   graphs --nccl/judge.h-> orders of ranks, NICs between hosts --> from each root a chain around
 */

/* Rings, and how many channels each is. */
struct rings {
  int n, channels;
  struct copse_baseline_ring *ring; /* [n] */
  int *times;                       /* [n] */
};

/* Appends the nodes of a route's hops before the way's last node, back from it; stops where none
 * leads there. Of equal ways each channel takes another one. */
static void walk_back(const struct copse_topology *t, const struct copse_nccl_hop *hops, int n_hops,
                      int turn, struct copse_baseline_way *way) {
  for (;;) {
    int n = 0, link = -1, at = way->nodes[way->n - 1];
    for (int i = 0; i < n_hops; i++) n += t->links[hops[i].link].dst == at;
    if (n == 0) break;
    for (int i = 0, k = turn % n; i < n_hops && link < 0; i++)
      if (t->links[hops[i].link].dst == at && k-- == 0) link = hops[i].link;
    way->nodes[way->n++] = t->links[link].src;
  }
}

/* Appends a route's nodes but the first to a way. What goes through a host's memory may come over
 * one switch twice, so each part is walked for itself. */
static void add_route(const struct copse_topology *t, const struct copse_nccl_route *route, int to,
                      int turn, struct copse_baseline_way *way) {
  int first = way->n;
  way->nodes[way->n++] = to;
  walk_back(t, route->hops + route->n_first, route->n_hops - route->n_first, turn, way);
  walk_back(t, route->hops, route->n_first, turn, way);
  way->n--; /* what the way ended with before */
  for (int i = first, j = way->n - 1; i < j; i++, j--) {
    int node = way->nodes[i];
    way->nodes[i] = way->nodes[j];
    way->nodes[j] = node;
  }
}

/* Leaves out the loops: a schedule's path comes through every node once. */
static int without_loops(int *nodes, int n) {
  int kept = 0;
  for (int i = 0; i < n; i++) {
    int before = 0;
    while (before < kept && nodes[before] != nodes[i]) before++;
    nodes[before] = nodes[i];
    kept = before + 1;
  }
  return kept;
}

/* Refuses a way over a third host's GPUs: a NIC cabled to one other host reaches a third one by no
 * way but back over its own host's GPUs and another NIC, which is no ring of NCCL's. */
static copse_status check_way(const struct copse_baseline_work *w, int out, int in,
                              const struct copse_baseline_way *way) {
  const struct copse_node *nodes = w->topology->nodes;
  for (int i = 0; i < way->n; i++)
    for (int j = 0; j < i; j++)
      if (way->nodes[i] == way->nodes[j] && nodes[way->nodes[i]].rank >= 0)
        return copse_fail(w->err, COPSE_UNSUPPORTED, "a ring from %s to %s would pass %s twice",
                          nodes[out].id, nodes[in].id, nodes[way->nodes[i]].id);
  return COPSE_OK;
}

/* Finds the way from rank a over its NIC to rank b, as NCCL has it; between GPUs of one host the
 * fabric's own. */
static copse_status find_way(struct copse_baseline_work *w, struct copse_nccl_machine *m,
                             const struct copse_nccl_joined *joined, int channel, int a,
                             struct copse_baseline_way *way) {
  const struct copse_topology *t = w->topology;
  const struct copse_nccl_role *s = copse_nccl_role_of(joined, channel, a);
  int in = copse_nccl_role_of(joined, channel, s->next)->receive_port, relay;
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
  COPSE_DO(check_way(w, out_node, in_node, way));
  if (!w->options->pass_on) way->n = without_loops(way->nodes, way->n);
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

/* Collects of a communicator's channels those of the graph: the others are copies. */
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
      ring.order[i] = copse_nccl_role_of(joined, c, ring.order[i - 1])->next;
    for (int i = 0; i < n; i++) COPSE_DO(find_way(w, m, joined, c, ring.order[i], &ring.ways[i]));
    while (like < rings->n && !is_same(&rings->ring[like], &ring, n)) like++;
    if (like == rings->n) rings->ring[rings->n++] = ring;
    rings->times[like]++;
  }
  return COPSE_OK;
}

/* Joins rings by graphs [n_graphs]: of all hosts, or each host's; NULL: those of the options. */
static copse_status join(struct copse_baseline_work *w,
                         const struct copse_nccl_graphs *const *graphs, int n_graphs,
                         struct rings *rings) {
  COPSE_AT_END(copse_nccl_machine_free) struct copse_nccl_machine machine = {0};
  COPSE_AT_END(copse_nccl_joined_free) struct copse_nccl_joined joined = {0};
  const char *label = w->options->nccl_label ? w->options->nccl_label : w->topology->name;
  const struct copse_baseline_options *o = w->options;
  COPSE_DO(copse_nccl_machine_open(w->topology, &machine, w->err));
  if (!graphs && o->n_nccl > 1) {
    const struct copse_nccl_graphs **each;
    n_graphs = machine.n_hosts;
    COPSE_DO(COPSE_ARRAY(&w->scratch, (size_t)n_graphs, each, w->err));
    COPSE_DO(copse_nccl_graphs_by_host(&machine, o->nccl, o->n_nccl, each, w->err));
    graphs = each;
  }
  if (!graphs) graphs = &o->nccl;
  COPSE_DO(copse_nccl_join(label, graphs, n_graphs, &machine, &joined, w->err));
  if (!joined.has_ring)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "%s has no rings (graph 0)", label);
  return collect(w, &machine, &joined, rings);
}

/* Notes whose bound is the least: hosts of one communicator run one number and speed of
 * channels. */
static void note_hosts_that_differ(const struct copse_baseline_work *w,
                                   const struct copse_nccl_best *best) {
  int least = 0;
  for (int i = 1; i < best->n_groups; i++)
    if (copse_q_cmp(best->groups[i].ring.bound, best->groups[least].ring.bound) < 0) least = i;
  int host = best->groups[least].host;
  const char *id =
      w->topology->nodes[w->topology->rank_nodes[w->hosts.members[w->hosts.first[host]]]].id;
  int length = (int)copse_host_prefix(id, NULL);
  if (best->n_groups > 1)
    copse_note(w->options->notes, "hosts differ: rings of %d kinds of host, all as fast as %.*s's",
               best->n_groups, length > 0 ? length - 1 : 0, id);
}

static copse_status find_best(struct copse_baseline_work *w, struct rings *rings) {
  struct copse_nccl_best *best = &w->shared->rings;
  const struct copse_nccl_best_options options = {.quick = w->options->quick};
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = COPSE_OK;
  if (best->n_groups == 0) status = copse_nccl_best_find(w->topology, &options, best, &why);
  if (status != COPSE_OK) copse_nccl_best_free(best);
  if (status != COPSE_OK) return copse_fail(w->err, status, "%s", why.text);
  if (best->ring.n == 0)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "hosts of one GPU have no rings of their own");
  note_hosts_that_differ(w, best);
  return join(w, best->graphs, best->n_hosts, rings);
}

/* Finds the rings. Where NICs that a ring goes by aren't joined there is none; ranks may be. */
static copse_status find_rings(struct copse_baseline_work *w, struct rings *rings) {
  struct copse_err why = COPSE_ERR_INIT, *err = w->err;
  w->err = &why;
  copse_status status = w->options->nccl ? join(w, NULL, 1, rings) : find_best(w, rings);
  w->err = err;
  if (status == COPSE_INFEASIBLE) status = COPSE_UNSUPPORTED;
  return status == COPSE_OK ? COPSE_OK : copse_fail(err, status, "%s", why.text);
}

static copse_status own_rings(struct copse_baseline_work *w) {
  struct rings rings = {0};
  int64_t ranks = w->topology->n_ranks, roots = w->options->root < 0 ? ranks : 1;
  if (ranks < 2)
    return copse_baseline_chains(w, &(struct copse_baseline_ring){(int[]){0}, NULL}, COPSE_Q_ONE);
  COPSE_DO(find_rings(w, &rings));
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

/* ---- the bound of another schedule ----------------------------------------------------- */

static bool flows_forward(const struct copse_baseline_work *w) {
  const struct copse_schedule *s = w->schedule;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      for (int i = 1; i + 1 < s->flows[f].paths[p].n_nodes; i++)
        if (w->topology->nodes[s->flows[f].paths[p].nodes[i]].rank >= 0) return true;
  return false;
}

static copse_status copy_nodes(const struct copse_topology *t, const struct copse_schedule *like,
                               const int *from, int n, struct copse_arena *arena, const int **to,
                               int *n_to, struct copse_err *err) {
  int *nodes;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, nodes, err));
  for (int i = 0; i < n; i++) {
    nodes[i] = copse_topology_find(t, like->nodes[from[i]]);
    if (nodes[i] < 0)
      return copse_fail(err, COPSE_INVALID, "the bound's node '%s' is not in the topology",
                        like->nodes[from[i]]);
  }
  *to = nodes;
  *n_to = n;
  return COPSE_OK;
}

copse_status copse_baseline_copy_bound(const struct copse_topology *t,
                                       const struct copse_schedule *like,
                                       struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_arena *arena = &schedule->arena;
  struct copse_bound *to = &schedule->bound;
  const struct copse_bound *from = &like->bound;
  struct copse_schedule_length *lengths;
  *to = (struct copse_bound){.kind = from->kind, .time_per_GB = from->time_per_GB};
  COPSE_DO(copy_nodes(t, like, from->cut, from->n_cut, arena, &to->cut, &to->n_cut, err));
  COPSE_DO(copy_nodes(t, like, from->reduce_cut, from->n_reduce_cut, arena, &to->reduce_cut,
                      &to->n_reduce_cut, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)from->n_lengths, lengths, err));
  for (int i = 0; i < from->n_lengths; i++) {
    lengths[i] = from->lengths[i];
    lengths[i].src = copse_topology_find(t, like->nodes[from->lengths[i].src]);
    lengths[i].dst = copse_topology_find(t, like->nodes[from->lengths[i].dst]);
  }
  to->lengths = lengths;
  to->n_lengths = from->n_lengths;
  return COPSE_OK;
}

/* Whether the other schedule's bound binds this one; sets no_forward where that is why. */
static bool take_over(struct copse_baseline_work *w, const struct copse_schedule *like) {
  if (!like || like->collective != w->options->collective) return false;
  if (like->bound.kind == COPSE_BOUND_FORESTS) return false; /* baselines need be no forests */
  /* what no two phases one after the other can beat, two at the same time may */
  if (copse_q_cmp(w->schedule->time_per_GB, like->bound.time_per_GB) < 0) return false;
  if (like->no_forward && flows_forward(w)) return false;
  w->schedule->no_forward = like->no_forward;
  return true;
}

/* ---- cuts around one rank or host ------------------------------------------------------ */

struct cut {
  struct copse_baseline_work *w;
  char *inside; /* [n_nodes] the set under test */
  char *best;   /* [n_nodes] */
  struct copse_q best_time;
  bool found;
};

/* Returns the bandwidth over the set's edge, outwards, or inwards for a reduction. */
static copse_status cut_bandwidth(const struct cut *c, bool entering, struct copse_q *sum) {
  const struct copse_topology *t = c->w->topology;
  *sum = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (c->inside[entering ? l->dst : l->src] && !c->inside[entering ? l->src : l->dst]) {
      COPSE_DO(copse_q_add(*sum, l->bandwidth, sum, NULL));
    }
  }
  return COPSE_OK;
}

static copse_status demand_across(const struct cut *c, struct copse_q *share) {
  const struct copse_topology *t = c->w->topology;
  int64_t sum = 0;
  for (int i = 0; i < t->n_ranks; i++)
    for (int j = 0; j < t->n_ranks; j++)
      if (c->inside[t->rank_nodes[i]] && !c->inside[t->rank_nodes[j]] &&
          copse_add_overflows(sum, copse_baseline_units(c->w, i, j), &sum))
        return COPSE_OVERFLOW;
  return copse_q_make(sum, c->w->m, share, NULL);
}

/* Computes the fraction of M that must cross, 0 where the set separates nothing that matters. */
static copse_status data_across(const struct cut *c, struct copse_q *share) {
  const struct copse_topology *t = c->w->topology;
  const struct copse_baseline_options *o = c->w->options;
  int ranks = 0;
  bool rooted = copse_collective_rooted(o->collective);
  *share = COPSE_Q_ZERO;
  if (o->collective == COPSE_ALLTOALL) return demand_across(c, share);
  for (int r = 0; r < t->n_ranks; r++) ranks += c->inside[t->rank_nodes[r]];
  if (ranks == 0 || ranks == t->n_ranks) return COPSE_OK;
  if (rooted && !c->inside[t->rank_nodes[o->root]]) return COPSE_OK;
  if (rooted || o->collective == COPSE_ALLREDUCE)
    *share = COPSE_Q_ONE;
  else
    return copse_q_make(ranks, t->n_ranks, share, NULL);
  return COPSE_OK;
}

/* Tries a set. One whose sums leave 64 bits is passed over: any cut will do, the best is not
 * needed. */
static void try_cut(struct cut *c) {
  bool reduces = copse_collective_reduces(c->w->options->collective) &&
                 c->w->options->collective != COPSE_ALLREDUCE;
  struct copse_q share, bandwidth, time;
  if (data_across(c, &share) != COPSE_OK || share.num == 0) return;
  if (cut_bandwidth(c, reduces, &bandwidth) != COPSE_OK || bandwidth.num == 0) return;
  if (copse_q_div(share, bandwidth, &time, NULL) != COPSE_OK) return;
  if (c->found && copse_q_cmp(time, c->best_time) <= 0) return;
  c->found = true;
  c->best_time = time;
  memcpy(c->best, c->inside, (size_t)c->w->topology->n_nodes);
}

static void try_cut_and_rest(struct cut *c) {
  try_cut(c);
  for (int v = 0; v < c->w->topology->n_nodes; v++) c->inside[v] = !c->inside[v];
  try_cut(c);
}

static copse_status set_cut(struct cut *c) {
  const struct copse_topology *t = c->w->topology;
  struct copse_bound *bound = &c->w->schedule->bound;
  int *cut = NULL;
  COPSE_DO(take(c->w, (size_t)t->n_nodes, sizeof *cut, &cut));
  bound->kind = COPSE_BOUND_CUT;
  bound->time_per_GB = c->best_time;
  for (int v = 0; v < t->n_nodes; v++)
    if (c->best[v]) cut[bound->n_cut++] = v;
  bound->cut = cut;
  return COPSE_OK;
}

static copse_status bound_by_cuts(struct copse_baseline_work *w) {
  const struct copse_topology *t = w->topology;
  struct cut c = {.w = w, .best_time = COPSE_Q_ZERO};
  size_t n = (size_t)t->n_nodes;
  COPSE_DO(copse_arena_array(&w->scratch, n, 1, &c.inside, w->err));
  COPSE_DO(copse_arena_array(&w->scratch, n, 1, &c.best, w->err));
  c.best[t->rank_nodes[0]] = 1; /* proves 0, where nothing has to move */
  for (int r = 0; r < t->n_ranks; r++) {
    memset(c.inside, 0, n);
    c.inside[t->rank_nodes[r]] = 1;
    try_cut_and_rest(&c);
  }
  for (int h = 0; w->hosts.n_hosts > 1 && h < w->hosts.n_hosts; h++) {
    for (int v = 0; v < t->n_nodes; v++) c.inside[v] = w->hosts.of_node[v] == h;
    try_cut_and_rest(&c);
  }
  return set_cut(&c);
}

static const struct {
  const char *name;
  copse_status (*make)(struct copse_baseline_work *w);
  bool flows;     /* of an alltoall; else trees */
  bool two_tiers; /* needs hosts */
} kinds[COPSE_N_ARRANGEMENTS] = {
    [COPSE_BASELINE_PAIRWISE] = {"pairwise", copse_baseline_pairwise, true, false},
    [COPSE_BASELINE_SPREAD_OUT] = {"spread-out", copse_baseline_spread_out, true, false},
    [COPSE_BASELINE_2DH] = {"2dh", copse_baseline_2dh, true, true},
    [COPSE_BASELINE_BIRKHOFF] = {"birkhoff", copse_baseline_birkhoff, true, true},
    [COPSE_BASELINE_RINGS] = {"best-rings", own_rings, false, false},
    [COPSE_BASELINE_TREE] = {"tree", copse_baseline_tree, false, false},
    [COPSE_BASELINE_DIRECT] = {"direct", copse_baseline_direct, false, false},
    [COPSE_BASELINE_SCATTER] = {"scatter", copse_baseline_scatter, false, false},
    [COPSE_BASELINE_HOSTS] = {"hosts", copse_baseline_hosts, false, true},
};

const char *copse_baseline_name(enum copse_baseline kind) { return kinds[kind].name; }

bool copse_baseline_exists(enum copse_baseline kind, copse_collective collective) {
  if (kind == COPSE_BASELINE_SCATTER) return copse_collective_rooted(collective);
  if (kind == COPSE_BASELINE_HOSTS && copse_collective_rooted(collective)) return false;
  return kinds[kind].flows == (collective == COPSE_ALLTOALL);
}

static copse_status describe(struct copse_baseline_work *w) {
  const struct copse_topology *t = w->topology;
  struct copse_schedule *s = w->schedule;
  char sha256[COPSE_SHA256_HEX];
  const char **ids = NULL;
  int *ranks = NULL;
  COPSE_DO(take(w, (size_t)t->n_nodes, sizeof *ids, &ids));
  COPSE_DO(take(w, (size_t)t->n_ranks, sizeof *ranks, &ranks));
  COPSE_DO(copse_topology_sha256(t, sha256, w->err));
  s->collective = w->options->collective;
  s->root = w->options->root;
  s->topology_name = copse_arena_strdup(&s->arena, t->name);
  s->topology_sha256 = copse_arena_strdup(&s->arena, sha256);
  if (!s->topology_name || !s->topology_sha256) return copse_fail_nomem(w->err);
  for (int i = 0; i < t->n_nodes; i++)
    if (!(ids[i] = copse_arena_strdup(&s->arena, t->nodes[i].id))) return copse_fail_nomem(w->err);
  memcpy(ranks, t->rank_nodes, (size_t)t->n_ranks * sizeof *ranks);
  s->nodes = ids;
  s->n_nodes = t->n_nodes;
  s->rank_nodes = ranks;
  s->n_ranks = t->n_ranks;
  return COPSE_OK;
}

/* ---- demand ---------------------------------------------------------------------------- */

/* Reads the demand in units of its greatest common divisor, so that exact sums stay small. */
static copse_status read_demand(struct copse_baseline_work *w) {
  const int64_t *demand = w->options->demand;
  size_t n = (size_t)w->topology->n_ranks;
  int64_t unit = 0;
  COPSE_DO(copse_arena_array(&w->scratch, n * n, sizeof *w->units, &w->units, w->err));
  for (size_t i = 0; i < n * n; i++) {
    w->units[i] = demand ? demand[i] : 1;
    if (w->units[i] < 0)
      return copse_fail(w->err, COPSE_INVALID, "the demand from rank %zu to rank %zu is negative",
                        i / n, i % n);
    unit = copse_gcd(unit, w->units[i]);
  }
  if (unit == 0)
    return copse_fail(w->err, COPSE_INVALID, "the demand is all zero: nothing is to be sent");
  for (size_t i = 0; i < n * n; i++) w->units[i] /= unit;
  for (size_t i = 0; i < n; i++) {
    int64_t row = 0;
    for (size_t j = 0; j < n; j++)
      if (copse_add_overflows(row, w->units[i * n + j], &row))
        return copse_fail(w->err, COPSE_OVERFLOW, "the demand of rank %zu needs over 63 bits", i);
    if (row > w->m) w->m = row;
  }
  w->whole = w->m;
  return COPSE_OK;
}

static copse_status keep_demand(struct copse_baseline_work *w) {
  size_t n = (size_t)w->topology->n_ranks;
  int64_t *demand = NULL;
  if (!w->options->demand) return COPSE_OK;
  COPSE_DO(take(w, n * n, sizeof *demand, &demand));
  memcpy(demand, w->options->demand, n * n * sizeof *demand);
  w->schedule->demand = demand;
  return COPSE_OK;
}

/* ---- flows from shipments -------------------------------------------------------------- */

static int by_way(const void *a, const void *b) {
  const struct copse_shipment *x = a, *y = b;
  if (x->src != y->src) return x->src < y->src ? -1 : 1;
  if (x->dst != y->dst) return x->dst < y->dst ? -1 : 1;
  if (x->n_stops != y->n_stops) return x->n_stops < y->n_stops ? -1 : 1;
  for (int i = 0; i < x->n_stops; i++)
    if (x->stops[i] != y->stops[i]) return x->stops[i] < y->stops[i] ? -1 : 1;
  return 0;
}

/* Merges equal ways into one. */
static copse_status merge_shipments(struct copse_baseline_work *w) {
  size_t n = 0;
  if (w->n_shipments == 0) return COPSE_OK; /* only ranks to themselves */
  COPSE_SORT(w->shipments, w->n_shipments, by_way);
  for (size_t i = 0; i < w->n_shipments; i++) {
    struct copse_shipment *last = n > 0 ? &w->shipments[n - 1] : NULL;
    if (!last || by_way(last, &w->shipments[i]) != 0)
      w->shipments[n++] = w->shipments[i];
    else if (copse_add_overflows(last->units, w->shipments[i].units, &last->units))
      return copse_fail(w->err, COPSE_OVERFLOW, "the demand of a pair needs over 63 bits");
  }
  w->n_shipments = n;
  return COPSE_OK;
}

/* Makes the path: the routes between the stops, end to end. */
static copse_status make_path(struct copse_baseline_work *w, const struct copse_shipment *shipment,
                              struct copse_schedule_path *path) {
  size_t n = 1;
  int *nodes = NULL;
  for (int i = 0; i + 1 < shipment->n_stops; i++) {
    int leg, from = shipment->stops[i], to = shipment->stops[i + 1];
    (void)copse_route(&w->routes, from, to, &leg);
    COPSE_DO(copse_route_require(w->topology, from, to, leg, w->err));
    n += (size_t)leg - 1;
  }
  COPSE_DO(take(w, n, sizeof *nodes, &nodes));
  path->nodes = nodes;
  for (int i = 0; i + 1 < shipment->n_stops; i++) {
    int leg;
    const int *route = copse_route(&w->routes, shipment->stops[i], shipment->stops[i + 1], &leg);
    int skip = i > 0; /* the stop that ended the leg before */
    memcpy(nodes + path->n_nodes, route + skip, (size_t)(leg - skip) * sizeof *nodes);
    path->n_nodes += leg - skip;
  }
  path->n_nodes = without_loops(nodes, path->n_nodes);
  return copse_q_make(shipment->units, w->whole, &path->weight, w->err);
}

static copse_status make_flows(struct copse_baseline_work *w) {
  struct copse_schedule_path *paths = NULL;
  struct copse_schedule_flow *flows = NULL;
  int n = 0;
  COPSE_DO(merge_shipments(w));
  COPSE_DO(take(w, w->n_shipments, sizeof *paths, &paths));
  COPSE_DO(take(w, w->n_shipments, sizeof *flows, &flows));
  for (size_t i = 0; i < w->n_shipments; i++) {
    const struct copse_shipment *s = &w->shipments[i];
    if (n == 0 || flows[n - 1].src != s->src || flows[n - 1].dst != s->dst)
      flows[n++] = (struct copse_schedule_flow){s->src, s->dst, 0, &paths[i]};
    flows[n - 1].n_paths++;
    COPSE_DO(make_path(w, s, &paths[i]));
  }
  w->schedule->flows = flows;
  w->schedule->n_flows = n;
  return copse_flow_time(w->topology, flows, n, &w->schedule->time_per_GB, w->err);
}

static copse_status make_trees(struct copse_baseline_work *w) {
  struct copse_schedule *s = w->schedule;
  struct copse_schedule_tree *trees = NULL;
  COPSE_DO(take(w, w->n_trees, sizeof *trees, &trees));
  if (w->n_trees > 0) memcpy(trees, w->trees, w->n_trees * sizeof *trees);
  s->trees = trees;
  s->n_trees = (int)w->n_trees;
  COPSE_DO(copse_tree_time(w->topology, trees, w->n_trees, &s->time_per_GB, w->err));
  return w->dag ? copse_sim_dag_of_schedule(s, w->topology, false, w->dag, w->err) : COPSE_OK;
}

/* ---- all together ---------------------------------------------------------------------- */

static copse_status check(const struct copse_baseline_work *w, enum copse_baseline kind) {
  const struct copse_baseline_options *o = w->options;
  bool rooted = copse_collective_rooted(o->collective);
  if (!copse_baseline_exists(kind, o->collective))
    return copse_fail(w->err, COPSE_UNSUPPORTED, "%s is not for %s", kinds[kind].name,
                      copse_collective_name(o->collective));
  if (rooted ? o->root < 0 || o->root >= w->topology->n_ranks : o->root >= 0)
    return copse_fail(w->err, COPSE_INVALID, "the root doesn't fit the collective");
  if (w->topology->n_ranks < 1)
    return copse_fail(w->err, COPSE_INVALID, "the topology has no ranks");
  return COPSE_OK;
}

static copse_status check_hosts(const struct copse_baseline_work *w, enum copse_baseline kind) {
  if (!kinds[kind].two_tiers) return COPSE_OK;
  if (w->hosts.n_hosts < 2)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "%s needs at least two hosts", kinds[kind].name);
  if (!w->hosts.even)
    return copse_fail(w->err, COPSE_UNSUPPORTED, "%s needs hosts of equally many ranks",
                      kinds[kind].name);
  return COPSE_OK;
}

void copse_baseline_shared_free(struct copse_baseline_shared *shared) {
  copse_hosts_free(&shared->hosts);
  copse_routes_free(&shared->routes);
  copse_routes_free(&shared->plans_routes);
  copse_nccl_best_free(&shared->rings);
  *shared = (struct copse_baseline_shared){0};
}

static copse_status make(struct copse_baseline_work *w, enum copse_baseline kind,
                         struct copse_baseline_shared *shared) {
  w->shared = shared;
  COPSE_DO(check(w, kind));
  COPSE_DO(copse_calloc(1, sizeof *w->schedule, &w->schedule, w->err));
  if (shared->hosts.n_hosts == 0) COPSE_DO(copse_hosts_find(w->topology, &shared->hosts, w->err));
  w->hosts = shared->hosts;
  COPSE_DO(check_hosts(w, kind));
  if (!shared->routes.first)
    COPSE_DO(copse_routes_find(w->topology, &shared->hosts, 1, false, &shared->routes, w->err));
  w->routes = shared->routes;
  w->arena = &w->schedule->arena;
  COPSE_DO(describe(w));
  if (kinds[kind].flows) {
    COPSE_DO(read_demand(w));
    COPSE_DO(keep_demand(w));
  }
  COPSE_DO(kinds[kind].make(w));
  COPSE_DO(kinds[kind].flows ? make_flows(w) : make_trees(w));
  if (!take_over(w, w->options->like)) return bound_by_cuts(w);
  return copse_baseline_copy_bound(w->topology, w->options->like, w->schedule, w->err);
}

copse_status copse_baseline_make(const struct copse_topology *topology, enum copse_baseline kind,
                                 const struct copse_baseline_options *options,
                                 struct copse_schedule **schedule, struct copse_sim_dag *dag,
                                 struct copse_err *err) {
  struct copse_sim_dag unwanted = {0};
  struct copse_baseline_shared own = {0};
  struct copse_baseline_work w = {.topology = topology, .options = options, .dag = dag, .err = err};
  copse_status status;
  if (schedule) *schedule = NULL;
  if (dag) *dag = unwanted;
  COPSE_TRY(make(&w, kind, options->shared ? options->shared : &own));
  if (schedule) {
    *schedule = w.schedule;
    w.schedule = NULL;
  }
out:
  if (status != COPSE_OK && dag) copse_sim_dag_free(dag);
  copse_schedule_free(w.schedule);
  copse_baseline_shared_free(&own);
  copse_arena_free(&w.scratch);
  free(w.shipments);
  free(w.trees);
  return status;
}
