/*
 * Alltoallv planned at run time: two-tier fabrics by solver/online, any other topology by the paths
 * of an offline alltoall schedule, whose weights share out the bytes at hand. docs/theory.md,
 * "src/solver/online/".
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "schedule/online/internal.h"
#include "schedule/online/online.h"

struct way {
  int first_node, n_nodes; /* in `nodes` */
  int first_link;          /* in `links`; n_nodes - 1 of them */
  int64_t before;          /* weight of the ways before it, of its pair */
  int64_t latency_ns;      /* of its links, and of a hop for each rank that it comes to */
};

struct pair {
  int src, dst;
  int first_way, n_ways;
  int64_t weight; /* sum of the weights of its ways; at most 2^62 */
  int quickest;   /* way of least latency */
};

/* Sets of nodes, by what they are: a node is in at most one of each kind. */
enum { HOSTS, BOUND, RANKS, N_KINDS };

/* What leaves, or enters, a set: at most, for a second; and of the plan. */
struct cut {
  enum copse_online_limit limit;
  int index;
  int64_t bandwidth; /* 0: nothing can */
  int64_t bytes;
};

struct copse_planner {
  const struct copse_topology *topology;
  struct copse_two_tier tier;
  struct copse_online *online; /* of two tiers; else NULL, and all below is of offline paths */
  int n;                       /* ranks */
  int64_t *units, scale;       /* of the links' bandwidth */
  int n_pairs;
  struct pair *pairs;
  int *pair_of; /* [n * n] or -1 */
  struct way *ways;
  int *nodes, *links;
  int *touch_start, *touches; /* [n + 1] ways on which each rank sends or receives, ascending */
  int *pair_of_way;
  int *set_of[N_KINDS]; /* [nodes] -1: none */
  int first_cut[N_KINDS + 1];
  struct cut *cuts;     /* of each set two: leaving, entering */
  const int64_t *bytes; /* the caller's; NULL: no plan */
  int64_t *load;        /* [links] */
  int busiest;          /* link, -1: none */
  bool quick;           /* each pair by its quickest way alone */
  int64_t latency_ns;   /* of the slowest way that carries bytes */
  struct copse_online_bound bound;
  struct copse_arena arena;
};

static int64_t count(const struct copse_planner *r, int src, int dst) {
  return r->bytes[(size_t)src * (size_t)r->n + (size_t)dst];
}

/* ---- creation: paths ---------------------------------------------------------------------- */

/* Sets whole numbers in the proportion of a flow's weights: exact where they have a common
 * denominator that fits, else within 2^-40. */
static void set_weights(struct copse_planner *r, struct pair *pair,
                        const struct copse_schedule_flow *flow) {
  int64_t common = 1, sum = 0;
  bool exact = true;
  for (int p = 0; p < flow->n_paths && exact; p++)
    exact = copse_lcm(common, flow->paths[p].weight.den, &common, NULL) == COPSE_OK;
  for (int p = 0; p < flow->n_paths && exact; p++) {
    int64_t weight;
    exact = !copse_mul_overflows(flow->paths[p].weight.num, common / flow->paths[p].weight.den,
                                 &weight) &&
            !copse_add_overflows(sum, weight, &sum) && sum <= (int64_t)1 << 62;
  }
  pair->weight = 0;
  for (int p = 0; p < flow->n_paths; p++) {
    struct copse_q w = flow->paths[p].weight;
    r->ways[pair->first_way + p].before = pair->weight;
    pair->weight +=
        exact ? w.num * (common / w.den) : (int64_t)(((__int128)w.num << 40) / w.den) + 1;
  }
}

static copse_status add_way(struct copse_planner *r, const struct copse_schedule *offline,
                            const struct copse_schedule_path *path, struct way *way,
                            struct copse_err *err) {
  for (int k = 0; k < path->n_nodes; k++) {
    const char *id = offline->nodes[path->nodes[k]];
    int v = copse_topology_find(r->topology, id);
    if (v < 0)
      return copse_fail(err, COPSE_INVALID, "the schedule's node \"%.80s\" is not in the topology",
                        id);
    r->nodes[way->first_node + k] = v;
    if (k == 0) continue;
    int e = copse_topology_find_link(r->topology, r->nodes[way->first_node + k - 1], v);
    if (e < 0)
      return copse_fail(err, COPSE_INVALID,
                        "the schedule uses a link to \"%.80s\" that isn't there", id);
    r->links[way->first_link + k - 1] = e;
    way->latency_ns += (int64_t)(1e3 * copse_q_to_double(r->topology->links[e].latency));
    if (r->topology->nodes[v].rank >= 0) way->latency_ns += copse_online_hop_ns();
  }
  return COPSE_OK;
}

static copse_status add_flows(struct copse_planner *r, const struct copse_schedule *offline,
                              struct copse_err *err) {
  int way = 0, node = 0, link = 0;
  for (int f = 0; f < offline->n_flows; f++) {
    const struct copse_schedule_flow *flow = &offline->flows[f];
    r->pairs[f] = (struct pair){
        .src = flow->src, .dst = flow->dst, .first_way = way, .n_ways = flow->n_paths};
    if (flow->n_paths > 0) r->pair_of[(size_t)flow->src * (size_t)r->n + (size_t)flow->dst] = f;
    for (int p = 0; p < flow->n_paths; p++, way++) {
      const struct copse_schedule_path *path = &flow->paths[p];
      r->ways[way] = (struct way){.first_node = node, .n_nodes = path->n_nodes, .first_link = link};
      r->pair_of_way[way] = f;
      COPSE_DO(add_way(r, offline, path, &r->ways[way], err));
      if (r->nodes[node] != r->topology->rank_nodes[flow->src] ||
          r->nodes[node + path->n_nodes - 1] != r->topology->rank_nodes[flow->dst])
        return copse_fail(err, COPSE_INVALID, "a path of %d -> %d ends at other ranks", flow->src,
                          flow->dst);
      node += path->n_nodes;
      link += path->n_nodes - 1;
    }
    set_weights(r, &r->pairs[f], flow);
    r->pairs[f].quickest = r->pairs[f].first_way;
    for (int w = r->pairs[f].first_way; w < way; w++)
      if (r->ways[w].latency_ns < r->ways[r->pairs[f].quickest].latency_ns)
        r->pairs[f].quickest = w;
  }
  return COPSE_OK;
}

/* Indexes which ways pass through which ranks. */
static void index_touches(struct copse_planner *r, int n_ways, bool fill) {
  for (int w = 0; w < n_ways; w++)
    for (int k = 0; k < r->ways[w].n_nodes; k++) {
      int rank = r->topology->nodes[r->nodes[r->ways[w].first_node + k]].rank;
      if (rank < 0) continue;
      if (fill)
        r->touches[r->touch_start[rank]++] = w;
      else
        r->touch_start[rank + 1]++;
    }
}

static copse_status take_paths(struct copse_planner *r, const struct copse_schedule *offline,
                               struct copse_err *err) {
  size_t n = (size_t)r->n, ways = 0, nodes = 0;
  for (int f = 0; f < offline->n_flows; f++)
    for (int p = 0; p < offline->flows[f].n_paths; p++, ways++)
      nodes += (size_t)offline->flows[f].paths[p].n_nodes;
  r->n_pairs = offline->n_flows;
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)offline->n_flows, r->pairs, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, n * n, r->pair_of, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, ways, r->ways, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, ways, r->pair_of_way, err));
  COPSE_DO(COPSE_ARRAYS(&r->arena, nodes, int, err, &r->nodes, &r->links, &r->touches));
  COPSE_DO(COPSE_ARRAY(&r->arena, n + 2, r->touch_start, err));
  memset(r->pair_of, 0xff, n * n * sizeof *r->pair_of);
  COPSE_DO(add_flows(r, offline, err));
  r->touch_start++; /* while it is filled, entry i is where rank i goes on */
  index_touches(r, (int)ways, false);
  for (size_t i = 0; i < n; i++) r->touch_start[i + 1] += r->touch_start[i];
  index_touches(r, (int)ways, true);
  r->touch_start--;
  return COPSE_OK;
}

/* ---- creation: cuts ---------------------------------------------------------------------------
 */

/* Adds bytes from one node to another to the cuts that they cross. */
static void cross(struct copse_planner *r, int from, int to, int64_t bandwidth, int64_t bytes) {
  for (int kind = 0; kind < N_KINDS; kind++) {
    int sets[2] = {r->set_of[kind][from], r->set_of[kind][to]};
    for (int entering = 0; entering < 2 && sets[0] != sets[1]; entering++) {
      if (sets[entering] < 0) continue;
      struct cut *cut = &r->cuts[r->first_cut[kind] + 2 * sets[entering] + entering];
      cut->bandwidth += bandwidth;
      cut->bytes += bytes;
    }
  }
}

/* Lists the cuts: around hosts, where ids name them, the set of the offline bound, and single
 * ranks. */
static copse_status take_cuts(struct copse_planner *r, const struct copse_schedule *offline,
                              struct copse_err *err) {
  static const enum copse_online_limit limits[N_KINDS][2] = {
      [HOSTS] = {COPSE_ONLINE_HOST_OUT, COPSE_ONLINE_HOST_IN},
      [BOUND] = {COPSE_ONLINE_CUT, COPSE_ONLINE_CUT},
      [RANKS] = {COPSE_ONLINE_RANK_OUT, COPSE_ONLINE_RANK_IN}};
  const struct copse_topology *t = r->topology;
  int n_sets[N_KINDS] = {[BOUND] = 1, [RANKS] = r->n};
  for (int kind = 0; kind < N_KINDS; kind++)
    COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)t->n_nodes, r->set_of[kind], err));
  for (int v = 0; v < t->n_nodes; v++) {
    int host = copse_online_host_of(t->nodes[v].id);
    r->set_of[HOSTS][v] = host < t->n_nodes ? host : -1;
    if (r->set_of[HOSTS][v] >= n_sets[HOSTS]) n_sets[HOSTS] = host + 1;
    r->set_of[BOUND][v] = -1;
    r->set_of[RANKS][v] = t->nodes[v].rank;
  }
  for (int i = 0; i < offline->bound.n_cut && offline->bound.kind == COPSE_BOUND_CUT; i++) {
    int v = copse_topology_find(t, offline->nodes[offline->bound.cut[i]]);
    if (v >= 0) r->set_of[BOUND][v] = 0;
  }
  for (int kind = 0; kind < N_KINDS; kind++)
    r->first_cut[kind + 1] = r->first_cut[kind] + 2 * n_sets[kind];
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)r->first_cut[N_KINDS], r->cuts, err));
  for (int kind = 0; kind < N_KINDS; kind++)
    for (int i = 0; i < 2 * n_sets[kind]; i++)
      r->cuts[r->first_cut[kind] + i] = (struct cut){.limit = limits[kind][i % 2], .index = i / 2};
  for (int e = 0; e < t->n_links; e++) cross(r, t->links[e].src, t->links[e].dst, r->units[e], 0);
  r->cuts[r->first_cut[BOUND] + 1].bandwidth = 0; /* its bound is of what leaves the set */
  return COPSE_OK;
}

static copse_status check_offline(const struct copse_topology *topology,
                                  const struct copse_schedule *offline, struct copse_err *err) {
  if (offline->collective != COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "the offline schedule must be of an alltoall");
  if (offline->n_ranks != topology->n_ranks)
    return copse_fail(err, COPSE_INVALID, "the offline schedule has %d ranks, the topology %d",
                      offline->n_ranks, topology->n_ranks);
  return COPSE_OK;
}

/* Clears the plan before the first one, and after one that failed. */
static void forget_plan(struct copse_planner *r) {
  r->bytes = NULL;
  r->busiest = -1;
  r->bound = (struct copse_online_bound){.index = -1, .bandwidth = 1};
}

static copse_status take_offline(struct copse_planner *r, const struct copse_schedule *offline,
                                 struct copse_err *err) {
  const struct copse_topology *t = r->topology;
  COPSE_DO(check_offline(t, offline, err));
  r->n = t->n_ranks;
  forget_plan(r);
  COPSE_DO(copse_online_link_units(t, &r->arena, &r->units, &r->scale, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)t->n_links, r->load, err));
  COPSE_DO(take_paths(r, offline, err));
  return take_cuts(r, offline, err);
}

static void planner_release_at(struct copse_planner **planner) { copse_planner_release(*planner); }

copse_status copse_planner_create(const struct copse_topology *topology,
                                  const struct copse_schedule *offline, struct copse_planner **out,
                                  struct copse_err *err) {
  COPSE_AT_END(planner_release_at) struct copse_planner *r = NULL;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof *r, &r, err));
  r->topology = topology;
  COPSE_DO(copse_two_tier_find(topology, &r->arena, &r->tier, err));
  if (r->tier.found)
    COPSE_DO(copse_online_create(&r->tier.model, NULL, &r->online, err));
  else if (offline)
    COPSE_DO(take_offline(r, offline, err));
  else
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "not hosts of two tiers (%s): an alltoall schedule is needed to plan from",
                      r->tier.why_not);
  *out = r;
  r = NULL;
  return COPSE_OK;
}

void copse_planner_release(struct copse_planner *r) {
  if (!r) return;
  copse_online_free(r->online);
  copse_arena_free(&r->arena);
  free(r);
}

struct copse_online *copse_planner_two_tier(struct copse_planner *r) {
  return r->online;
}

/* ---- planning ---- */

/* Finds the bytes offset..end of a pair's that take way w. */
static void share(const struct copse_planner *r, int w, int64_t *offset, int64_t *end) {
  const struct pair *pair = &r->pairs[r->pair_of_way[w]];
  int64_t bytes = count(r, pair->src, pair->dst);
  bool last = w + 1 == pair->first_way + pair->n_ways;
  if (r->quick) {
    *offset = 0;
    *end = w == pair->quickest ? bytes : 0;
    return;
  }
  int64_t after = last ? pair->weight : r->ways[w + 1].before;
  *offset = (int64_t)((__int128)bytes * r->ways[w].before / pair->weight);
  *end = (int64_t)((__int128)bytes * after / pair->weight);
}

static copse_status read_counts(struct copse_planner *r, struct copse_err *err) {
  int64_t most = ((int64_t)1 << 62) / ((int64_t)r->n * r->n);
  for (int c = 0; c < r->first_cut[N_KINDS]; c++) r->cuts[c].bytes = 0;
  for (int i = 0; i < r->n; i++)
    for (int j = 0; j < r->n; j++) {
      int64_t v = count(r, i, j);
      COPSE_DO(copse_online_check_count(v, most, i, j, err));
      if (i == j || v == 0) continue;
      if (r->pair_of[(size_t)i * (size_t)r->n + (size_t)j] < 0)
        return copse_fail(err, COPSE_INFEASIBLE,
                          "the offline schedule has no path from rank %d to rank %d", i, j);
      cross(r, r->topology->rank_nodes[i], r->topology->rank_nodes[j], 0, v);
    }
  return COPSE_OK;
}

static void add_loads(struct copse_planner *r) {
  memset(r->load, 0, (size_t)r->topology->n_links * sizeof *r->load);
  r->busiest = -1;
  r->latency_ns = 0;
  for (int f = 0; f < r->n_pairs; f++)
    for (int p = 0; p < r->pairs[f].n_ways; p++) {
      const struct way *way = &r->ways[r->pairs[f].first_way + p];
      int64_t offset, end;
      share(r, r->pairs[f].first_way + p, &offset, &end);
      if (end > offset) r->latency_ns = copse_larger(r->latency_ns, way->latency_ns);
      for (int k = 0; k + 1 < way->n_nodes; k++)
        r->load[r->links[way->first_link + k]] += end - offset;
    }
  for (int e = 0; e < r->topology->n_links; e++)
    if (r->load[e] > 0 && (r->busiest < 0 || (__int128)r->load[e] * r->units[r->busiest] >
                                                 (__int128)r->load[r->busiest] * r->units[e]))
      r->busiest = e;
}

/* Returns the bytes over the bandwidth of the busiest link, and the latency of the slowest way. */
static __int128 predicted_ns(const struct copse_planner *r) {
  if (r->busiest < 0) return 0;
  return (__int128)r->load[r->busiest] * r->scale / r->units[r->busiest] + r->latency_ns;
}

/* Shares bytes among ways by the weights of the offline schedule. Small messages take their
 * quickest way, where that makes up for what its links then carry. */
static void choose_ways(struct copse_planner *r) {
  r->quick = true;
  add_loads(r);
  __int128 quick = predicted_ns(r);
  r->quick = false;
  add_loads(r);
  r->quick = quick < predicted_ns(r);
  if (r->quick) add_loads(r);
}

static void find_bound(struct copse_planner *r) {
  for (int c = 0; c < r->first_cut[N_KINDS]; c++) {
    const struct cut *cut = &r->cuts[c];
    if (cut->bandwidth > 0)
      copse_online_raise_bound(&r->bound, cut->limit, cut->index, cut->bytes, cut->bandwidth);
  }
}

copse_status copse_planner_plan(struct copse_planner *r, const int64_t *bytes,
                                struct copse_err *err) {
  if (r->online) return copse_online_plan(r->online, bytes, err);
  forget_plan(r);
  r->bytes = bytes;
  copse_status status = read_counts(r, err);
  if (status != COPSE_OK) {
    r->bytes = NULL;
    return status;
  }
  choose_ways(r);
  find_bound(r);
  return COPSE_OK;
}

/* Returns bytes over a bandwidth in the planner's units. */
static double seconds_of(const struct copse_planner *r, int64_t bytes, int64_t bandwidth) {
  return (double)bytes / 1e9 / ((double)bandwidth / (double)r->scale);
}

void copse_planner_bound(const struct copse_planner *r, struct copse_online_bound *bound) {
  if (r->online) {
    copse_online_bound(r->online, bound);
    return;
  }
  *bound = r->bound;
  bound->seconds = seconds_of(r, bound->bytes, bound->bandwidth);
  bound->with_latency = r->busiest < 0 ? 0 : bound->seconds + (double)copse_online_hop_ns() / 1e9;
}

double copse_planner_predicted_seconds(const struct copse_planner *r) {
  if (r->online) return (double)copse_online_predicted_ns(r->online) / 1e9;
  return (double)predicted_ns(r) / 1e9;
}

double copse_planner_busiest_seconds(const struct copse_planner *r) {
  if (!r->online)
    return r->busiest < 0 ? 0 : seconds_of(r, r->load[r->busiest], r->units[r->busiest]);
  const struct copse_online_model *m = &r->tier.model;
  int64_t bound, bytes;
  copse_online_inter(r->online, &bound, &bytes);
  return (double)bytes / 1e9 * (double)m->scale / (double)m->nic;
}

/* ---- transfers ---- */

struct list {
  struct copse_online_transfer *out;
  int64_t capacity, n;
};

static void put(struct list *list, const struct copse_online_transfer *transfer) {
  if (list->out && list->n < list->capacity) list->out[list->n] = *transfer;
  list->n++;
}

/* Puts the hops of one way that `rank` has a part in. */
static void put_hops(const struct copse_planner *r, int w, int rank, int which, struct list *list) {
  const struct way *way = &r->ways[w];
  const struct pair *pair = &r->pairs[r->pair_of_way[w]];
  int64_t offset, end;
  share(r, w, &offset, &end);
  for (int k = 1, from = pair->src; k < way->n_nodes && end > offset; k++) {
    int to = r->topology->nodes[r->nodes[way->first_node + k]].rank;
    if (to < 0) continue;
    struct copse_online_transfer t = {COPSE_ONLINE_ROUTE,
                                      from,
                                      to,
                                      {.step = w - pair->first_way,
                                       .origin = pair->src,
                                       .final = pair->dst,
                                       .via_src = -1,
                                       .via_dst = -1,
                                       .offset = offset,
                                       .bytes = end - offset,
                                       .lane_offset = offset}};
    if ((from == rank && (which & COPSE_ONLINE_SENDS)) ||
        (to == rank && (which & COPSE_ONLINE_RECEIVES)))
      put(list, &t);
    from = to;
  }
}

copse_status copse_planner_transfers(struct copse_planner *r, int rank, int which,
                                     struct copse_online_transfer *out, int64_t capacity,
                                     int64_t *n, struct copse_err *err) {
  if (r->online) return copse_online_transfers(r->online, rank, which, out, capacity, n, err);
  struct list list = {.out = out, .capacity = capacity};
  *n = 0;
  if (rank < 0 || rank >= r->n)
    return copse_fail(err, COPSE_INVALID, "rank %d is not in 0..%d", rank, r->n - 1);
  if (!r->bytes) return COPSE_OK;
  if (count(r, rank, rank) > 0 && which)
    put(&list, &(struct copse_online_transfer){COPSE_ONLINE_SELF,
                                               rank,
                                               rank,
                                               {.origin = rank,
                                                .final = rank,
                                                .via_src = -1,
                                                .via_dst = -1,
                                                .bytes = count(r, rank, rank)}});
  for (int i = r->touch_start[rank]; i < r->touch_start[rank + 1]; i++)
    put_hops(r, r->touches[i], rank, which, &list);
  *n = list.n;
  return COPSE_OK;
}
