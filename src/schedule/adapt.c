/*
 * A schedule against another topology than its own: the topology's choice of the schedule's ranks,
 * its numbers of nodes, and the schedule's image under a renaming of its nodes.
 *
 * Where parts are down, trees are repaired one by one: a part that has lost its edge to the root
 * is hung below another rank, by the shortest way (Dijkstra 1959) over links that are the longer
 * the busier they are. What the solver's repair does to keep the optimum is
 * schedule/solve/repair.c; this one is quick and exact in what it states of its time. For that
 * repair nodes are numbered where both the healthy topology and the broken one have their place.
 */
#include "schedule/adapt.h"

#include <string.h>

#include "base/memory.h"
#include "base/types.h"
#include "schedule/loads.h"
#include "schedule/policy.h"
#include "topology/modify.h"

copse_status copse_schedule_choose_ranks(const struct copse_schedule *schedule,
                                         struct copse_topology **topology, struct copse_err *err) {
  const struct copse_topology *t = *topology;
  struct copse_topology *chosen = NULL;
  bool same = schedule->n_ranks == t->n_ranks, known = !t->chosen_from;
  COPSE_AT_END(copse_free_at) int *nodes = NULL;
  COPSE_DO(copse_calloc((size_t)schedule->n_ranks, sizeof *nodes, &nodes, err));
  for (int r = 0; r < schedule->n_ranks && known; r++) {
    nodes[r] = copse_topology_find(t, schedule->nodes[schedule->rank_nodes[r]]);
    known = nodes[r] >= 0 && t->nodes[nodes[r]].rank >= 0;
    same = same && known && t->rank_nodes[r] == nodes[r];
  }
  if (same || !known) return COPSE_OK;
  COPSE_DO(copse_topology_choose_ranks(t, nodes, schedule->n_ranks, schedule->others_excluded,
                                       &chosen, err));
  copse_topology_free(*topology);
  *topology = chosen;
  return COPSE_OK;
}

copse_status copse_schedule_check_ranks(const struct copse_schedule *s, const char *label,
                                        const struct copse_topology *t, struct copse_err *err) {
  if (s->n_ranks != t->n_ranks)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "the schedule has %d ranks, the topology %d: it was made for %.100s, and "
                         "this is %.100s",
                         s->n_ranks, t->n_ranks, s->topology_name ? s->topology_name : "another",
                         t->name);
  for (int r = 0; r < s->n_ranks; r++)
    if (strcmp(s->nodes[s->rank_nodes[r]], t->nodes[t->rank_nodes[r]].id) != 0)
      return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                           "rank %d is '%s' in the schedule and '%s' in the topology", r,
                           s->nodes[s->rank_nodes[r]], t->nodes[t->rank_nodes[r]].id);
  return COPSE_OK;
}

bool copse_schedule_has_nodes_of(const struct copse_schedule *schedule,
                                 const struct copse_topology *topology) {
  struct copse_err why = COPSE_ERR_INIT;
  bool same = copse_schedule_check_ranks(schedule, "", topology, &why) == COPSE_OK;
  for (int v = 0; v < schedule->n_nodes && same; v++)
    same = copse_topology_find(topology, schedule->nodes[v]) >= 0;
  return same;
}

/* ---- the topology's own numbers ---- */

/* Converts a list of nodes of the schedule to one of nodes of the topology. */
static copse_status place_path(struct copse_arena *arena, const int *at, const int **nodes, int n,
                               struct copse_err *err) {
  int *placed = NULL;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, placed, err));
  for (int i = 0; i < n; i++) placed[i] = at[(*nodes)[i]];
  *nodes = placed;
  return COPSE_OK;
}

static copse_status place_way(void *at, struct copse_arena *arena, int src, int dst,
                              const int **nodes, int *n_nodes, struct copse_err *err) {
  (void)src, (void)dst;
  return place_path(arena, at, nodes, *n_nodes, err);
}

static copse_status place_bound(struct copse_arena *arena, const int *at, struct copse_bound *bound,
                                struct copse_err *err) {
  struct copse_schedule_length *lengths = NULL;
  struct copse_schedule_cut *cuts = NULL;
  struct copse_schedule_potential *potentials = NULL;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)bound->n_lengths, lengths, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)bound->n_cuts, cuts, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)bound->n_potentials, potentials, err));
  for (int i = 0; i < bound->n_lengths; i++)
    lengths[i] = (struct copse_schedule_length){
        at[bound->lengths[i].src], at[bound->lengths[i].dst], bound->lengths[i].length};
  for (int i = 0; i < bound->n_cuts; i++) {
    cuts[i] = bound->cuts[i];
    COPSE_DO(place_path(arena, at, &cuts[i].nodes, cuts[i].n_nodes, err));
  }
  for (int i = 0; i < bound->n_potentials; i++)
    potentials[i] = (struct copse_schedule_potential){at[bound->potentials[i].node],
                                                      bound->potentials[i].value};
  bound->lengths = lengths;
  bound->cuts = cuts;
  bound->potentials = potentials;
  COPSE_DO(place_path(arena, at, &bound->cut, bound->n_cut, err));
  return place_path(arena, at, &bound->reduce_cut, bound->n_reduce_cut, err);
}

static copse_status place_names(struct copse_schedule *s, const struct copse_topology *topology,
                                struct copse_err *err) {
  const char **names = NULL;
  int *rank_nodes = NULL;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)topology->n_nodes, names, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)topology->n_ranks, rank_nodes, err));
  for (int v = 0; v < topology->n_nodes; v++)
    COPSE_DO(copse_arena_text(&s->arena, topology->nodes[v].id, &names[v], err));
  for (int r = 0; r < topology->n_ranks; r++) rank_nodes[r] = topology->rank_nodes[r];
  s->nodes = names;
  s->n_nodes = topology->n_nodes;
  s->rank_nodes = rank_nodes;
  return COPSE_OK;
}

copse_status copse_schedule_place(struct copse_schedule *s, const struct copse_topology *topology,
                                  struct copse_err *err) {
  int *at = NULL;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_nodes, at, err));
  for (int i = 0; i < s->n_nodes; i++) at[i] = copse_topology_find(topology, s->nodes[i]);
  COPSE_DO(copse_schedule_change_ways(s, place_way, at, err));
  COPSE_DO(place_bound(&s->arena, at, &s->bound, err));
  COPSE_DO(place_path(&s->arena, at, &s->copying, s->n_copying, err));
  COPSE_DO(place_path(&s->arena, at, &s->adding, s->n_adding, err));
  s->bound_at = NULL;
  s->routes = NULL;
  return place_names(s, topology, err);
}

/* ---- the image ---- */

struct mapping {
  const struct copse_schedule *from;
  struct copse_schedule *to; /* its arena has what is not as in `from` */
  int *rank;                 /* [n_ranks] the image of each */
  struct copse_err *err;
};

static copse_status map_nodes(struct mapping *m, const char *const *ids,
                              const struct copse_topology *target) {
  const struct copse_schedule *s = m->from;
  const char **nodes;
  int *rank_nodes;
  COPSE_DO(COPSE_ARRAY(&m->to->arena, (size_t)s->n_nodes, nodes, m->err));
  COPSE_DO(COPSE_ARRAY(&m->to->arena, (size_t)s->n_ranks, rank_nodes, m->err));
  for (int v = 0; v < s->n_nodes; v++)
    COPSE_DO(copse_arena_text(&m->to->arena, ids[v], &nodes[v], m->err));
  for (int r = 0; r < s->n_ranks; r++) {
    int node = copse_topology_find(target, ids[s->rank_nodes[r]]);
    if (node < 0 || target->nodes[node].rank < 0 || target->nodes[node].rank >= s->n_ranks)
      return copse_fail(m->err, COPSE_INVALID, "\"%.80s\" is no rank of %.80s",
                        ids[s->rank_nodes[r]], target->name);
    m->rank[r] = target->nodes[node].rank;
    rank_nodes[m->rank[r]] = s->rank_nodes[r];
  }
  m->to->nodes = nodes;
  m->to->rank_nodes = rank_nodes;
  return COPSE_OK;
}

static copse_status map_trees(struct mapping *m) {
  const struct copse_schedule *s = m->from;
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(&m->to->arena, (size_t)s->n_trees, trees, m->err));
  for (int t = 0; t < s->n_trees; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t];
    struct copse_schedule_edge *edges;
    COPSE_DO(COPSE_ARRAY(&m->to->arena, (size_t)tree->n_edges, edges, m->err));
    for (int e = 0; e < tree->n_edges; e++) {
      edges[e] = tree->edges[e];
      edges[e].src = m->rank[edges[e].src];
      edges[e].dst = m->rank[edges[e].dst];
    }
    trees[t] = *tree;
    trees[t].root = m->rank[tree->root];
    trees[t].edges = edges;
  }
  m->to->trees = trees;
  return COPSE_OK;
}

static copse_status map_flows(struct mapping *m) {
  const struct copse_schedule *s = m->from;
  struct copse_schedule_flow *flows;
  COPSE_DO(COPSE_ARRAY(&m->to->arena, (size_t)s->n_flows, flows, m->err));
  for (int f = 0; f < s->n_flows; f++) {
    flows[f] = s->flows[f];
    flows[f].src = m->rank[flows[f].src];
    flows[f].dst = m->rank[flows[f].dst];
  }
  m->to->flows = flows;
  return COPSE_OK;
}

copse_status copse_schedule_image(const struct copse_schedule *schedule, const char *const *ids,
                                  const struct copse_topology *target, struct copse_schedule **out,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *to = NULL;
  struct mapping m = {.from = schedule, .err = err};
  char sha256[COPSE_SHA256_HEX];
  *out = NULL;
  if (schedule->demand || schedule->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "only a schedule without demand, expanded, has an image");
  COPSE_DO(copse_topology_sha256(target, sha256, err));
  COPSE_DO(copse_schedule_borrow(schedule, &to, err));
  m.to = to;
  COPSE_DO(
      copse_arena_array(&m.to->arena, (size_t)schedule->n_ranks, sizeof *m.rank, &m.rank, err));
  COPSE_DO(copse_arena_text(&m.to->arena, target->name, &m.to->topology_name, err));
  COPSE_DO(copse_arena_text(&m.to->arena, sha256, &m.to->topology_sha256, err));
  COPSE_DO(map_nodes(&m, ids, target));
  if (schedule->root >= 0) to->root = m.rank[schedule->root];
  COPSE_DO(map_trees(&m));
  COPSE_DO(map_flows(&m));
  *out = to;
  to = NULL;
  return COPSE_OK;
}

/* ---- parts that are down ---- */

struct repair {
  const struct copse_topology *t;
  int64_t *load;  /* [n_links] of COPSE_WHOLE_LOAD */
  int64_t *worst; /* [n_links] as much as makes it as busy as the busiest before; at least 1 */
  struct copse_adjacency leaving, entering;
  struct copse_nearest nearest;
  int *via;     /* [n_nodes] the link that the search came by, -1: it began here */
  int *rank_of; /* [n_nodes] -1: a relay */
  /* of the tree at hand, [n_ranks]: */
  bool downwards; /* its edges lead away from the root */
  int64_t weight;
  int *up;                         /* the rank that it hangs on; -1: nowhere, or the root */
  int *top;                        /* the root of the part that it hangs in */
  struct copse_schedule_edge *way; /* from up[r] or to it */
  int *order;                      /* ranks as the tree lists them, from the root on */
  struct copse_arena arena;
};

static void free_repair(struct repair *m) { copse_arena_free(&m->arena); }

/* Adds `weight` to the links of a path; false, and nothing, where one of them is gone. */
static bool load_path(struct repair *m, const int *path, int n, int64_t weight) {
  for (int i = 0; i < n; i++)
    if (path[i] < 0 || (i > 0 && copse_topology_find_link(m->t, path[i - 1], path[i]) < 0))
      return false;
  for (int i = 1; i < n; i++)
    m->load[copse_topology_find_link(m->t, path[i - 1], path[i])] += weight;
  return true;
}

/* Returns b * load / c, at least 1 and no more than fits. */
static int64_t scaled(int64_t load, struct copse_q b, struct copse_q c) {
  __int128 n = (__int128)load * b.num / b.den;
  if (n >= INT64_MAX) return INT64_MAX;
  n = n * c.den / c.num;
  return n < 1 ? 1 : n >= INT64_MAX ? INT64_MAX : (int64_t)n;
}

static copse_status prepare_repair(struct repair *m, const struct copse_schedule *s,
                                   struct copse_err *err) {
  const struct copse_topology *t = m->t;
  size_t n_nodes = (size_t)t->n_nodes, n_ranks = (size_t)t->n_ranks;
  int busiest = 0;
  COPSE_DO(COPSE_ARRAYS(&m->arena, (size_t)t->n_links, int64_t, err, &m->load, &m->worst));
  COPSE_DO(COPSE_ARRAYS(&m->arena, n_nodes, int, err, &m->via, &m->rank_of));
  COPSE_DO(COPSE_ARRAYS(&m->arena, n_ranks, int, err, &m->up, &m->top, &m->order));
  COPSE_DO(COPSE_ARRAY(&m->arena, n_ranks, m->way, err));
  COPSE_DO(copse_nearest_prepare(&m->arena, t->n_nodes, &m->nearest, err));
  COPSE_DO(copse_adjacency_by(&m->arena, t->n_nodes, t->n_links, COPSE_KEYS(t->links, src),
                              sizeof *t->links, &m->leaving, err));
  COPSE_DO(copse_adjacency_by(&m->arena, t->n_nodes, t->n_links, COPSE_KEYS(t->links, dst),
                              sizeof *t->links, &m->entering, err));
  for (int v = 0; v < t->n_nodes; v++) m->rank_of[v] = t->nodes[v].rank;
  for (int i = 0; i < s->n_trees; i++)
    for (int e = 0; e < s->trees[i].n_edges; e++)
      (void)load_path(m, s->trees[i].edges[e].path, s->trees[i].edges[e].n_path,
                      copse_load_part(s->trees[i].weight));
  for (int l = 1; l < t->n_links; l++)
    if (scaled(m->load[busiest], t->links[l].bandwidth, t->links[busiest].bandwidth) < m->load[l])
      busiest = l;
  for (int l = 0; l < t->n_links; l++)
    m->worst[l] = scaled(m->load[busiest], t->links[l].bandwidth, t->links[busiest].bandwidth);
  return COPSE_OK;
}

/* Takes the tree without what it lost; returns how many of its ranks hang nowhere. */
static int take_tree(struct repair *m, const struct copse_schedule_tree *tree) {
  int n = tree->n_edges, lost = 0;
  m->downwards = tree->phase == COPSE_PHASE_BROADCAST;
  m->weight = copse_load_part(tree->weight);
  m->up[tree->root] = -1;
  m->top[tree->root] = tree->root;
  m->order[0] = tree->root;
  for (int e = 0; e < n; e++) {
    const struct copse_schedule_edge *edge = &tree->edges[m->downwards ? e : n - 1 - e];
    int below = m->downwards ? edge->dst : edge->src, above = m->downwards ? edge->src : edge->dst;
    bool stays = load_path(m, edge->path, edge->n_path, 0);
    m->order[e + 1] = below;
    m->up[below] = stays ? above : -1;
    m->top[below] = stays ? m->top[above] : below;
    m->way[below] = *edge;
    lost += !stays;
  }
  return lost;
}

/* Returns two to the power of the load's share of the worst, straight between whole powers. */
static int64_t length_of(const struct repair *m, int link) {
  __int128 power = (__int128)(m->load[link] + m->weight) * COPSE_STEEPNESS * 1024 / m->worst[link];
  int64_t p = power < COPSE_MOST_STEEPNESS * 1024 ? (int64_t)power : COPSE_MOST_STEEPNESS * 1024;
  return ((int64_t)1 << p / 1024) * (1024 + p % 1024);
}

/* Whether the ranks from `rank` up to the one that hangs nowhere can be turned around. */
static bool may_turn(const struct repair *m, int rank) {
  for (; m->up[rank] >= 0; rank = m->up[rank]) {
    const struct copse_schedule_edge *way = &m->way[rank];
    for (int i = 1; i < way->n_path; i++)
      if (copse_topology_find_link(m->t, way->path[i], way->path[i - 1]) < 0) return false;
  }
  return true;
}

/* Finds the nearest rank that does not hang on the root and can be hung there, or -1; `via` leads
 * back. */
static int find_place(struct repair *m, int root) {
  const struct copse_topology *t = m->t;
  const struct copse_adjacency *next = m->downwards ? &m->leaving : &m->entering;
  copse_nearest_reset(&m->nearest);
  for (int r = 0; r < t->n_ranks; r++)
    if (m->top[r] == root && copse_nearest_offer(&m->nearest, t->rank_nodes[r], 0))
      m->via[t->rank_nodes[r]] = -1;
  while (m->nearest.n > 0) {
    int v = copse_nearest_take(&m->nearest), rank = m->rank_of[v];
    if (rank >= 0 && m->top[rank] != root) {
      if (may_turn(m, rank)) return rank;
      continue;
    }
    for (int i = next->first[v]; i < next->first[v + 1]; i++) {
      int link = next->item[i], to = m->downwards ? t->links[link].dst : t->links[link].src;
      int64_t length = length_of(m, link);
      if (copse_nearest_offer(&m->nearest, to, m->nearest.distance[v] + length)) m->via[to] = link;
    }
  }
  return -1;
}

/* Takes the way that the search found to a rank, as an edge of the tree. */
static copse_status take_way(struct repair *m, struct copse_schedule *s, int rank,
                             struct copse_schedule_edge *out, struct copse_err *err) {
  const struct copse_topology *t = m->t;
  int n = 1, *path, at = t->rank_nodes[rank];
  for (int v = at; m->via[v] >= 0; n++)
    v = m->downwards ? t->links[m->via[v]].src : t->links[m->via[v]].dst;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n, path, err));
  for (int i = 0; i < n; i++) {
    path[m->downwards ? n - 1 - i : i] = at;
    if (m->via[at] >= 0) at = m->downwards ? t->links[m->via[at]].src : t->links[m->via[at]].dst;
  }
  *out = (struct copse_schedule_edge){m->rank_of[path[0]], m->rank_of[path[n - 1]], path, n};
  (void)load_path(m, path, n, m->weight);
  return COPSE_OK;
}

/* Takes the same path the other way around, between the same ranks. */
static copse_status turn_way(struct repair *m, struct copse_schedule *s,
                             const struct copse_schedule_edge *way, struct copse_schedule_edge *out,
                             struct copse_err *err) {
  int *path, n = way->n_path;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n, path, err));
  for (int i = 0; i < n; i++) path[i] = way->path[n - 1 - i];
  (void)load_path(m, way->path, n, -m->weight);
  (void)load_path(m, path, n, m->weight);
  *out = (struct copse_schedule_edge){way->dst, way->src, path, n};
  return COPSE_OK;
}

/* Hangs a rank by a way, with the ranks above it in its part turned below it. */
static copse_status hang(struct repair *m, struct copse_schedule *s, int rank, int root,
                         struct copse_err *err) {
  struct copse_schedule_edge way, next;
  int lost = m->top[rank], above;
  COPSE_DO(take_way(m, s, rank, &way, err));
  for (above = m->downwards ? way.src : way.dst; rank >= 0;) {
    int was = m->up[rank];
    if (was >= 0) COPSE_DO(turn_way(m, s, &m->way[rank], &next, err));
    m->up[rank] = above;
    m->way[rank] = way;
    way = next;
    above = rank;
    rank = was;
  }
  for (int r = 0; r < m->t->n_ranks; r++)
    if (m->top[r] == lost) m->top[r] = root;
  return COPSE_OK;
}

/* Lists the edges in the order of before, but none before the one that it hangs on. */
static copse_status list_edges(struct repair *m, struct copse_schedule *s,
                               struct copse_schedule_tree *tree, struct copse_err *err) {
  struct copse_schedule_edge *edges;
  int n = tree->n_edges, done = 0;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n, edges, err));
  m->top[tree->root] = -1; /* listed */
  while (done < n)
    for (int i = 1; i <= n; i++) {
      int r = m->order[i];
      if (m->top[r] < 0 || m->top[m->up[r]] >= 0) continue;
      edges[m->downwards ? done : n - 1 - done] = m->way[r];
      m->top[r] = -1;
      done++;
    }
  tree->edges = edges;
  return COPSE_OK;
}

static copse_status repair_tree(struct repair *m, struct copse_schedule *s,
                                struct copse_schedule_tree *tree, bool *repaired,
                                struct copse_err *err) {
  int lost = take_tree(m, tree);
  *repaired = lost == 0 || tree->stage == 0;
  if (lost == 0 || !*repaired) return COPSE_OK;
  for (; lost > 0; lost--) {
    int rank = find_place(m, tree->root);
    *repaired = rank >= 0;
    if (!*repaired) return COPSE_OK;
    COPSE_DO(hang(m, s, rank, tree->root, err));
  }
  return list_edges(m, s, tree, err);
}

static bool has_ranks_of(const struct copse_schedule *s, const struct copse_topology *topology) {
  bool same = s->n_ranks == topology->n_ranks;
  for (int r = 0; same && r < s->n_ranks; r++)
    same = strcmp(s->nodes[s->rank_nodes[r]], topology->nodes[topology->rank_nodes[r]].id) == 0;
  return same;
}

copse_status copse_schedule_repair(struct copse_schedule *s, const struct copse_topology *topology,
                                   bool *repaired, struct copse_err *err) {
  COPSE_AT_END(free_repair) struct repair m = {.t = topology};
  struct copse_schedule_tree *trees;
  char sha256[COPSE_SHA256_HEX];
  *repaired = s->n_trees > 0 && s->n_copying == 0 && s->n_adding == 0 && s->n_rotations == 0 &&
              has_ranks_of(s, topology);
  if (!*repaired) return COPSE_OK;
  COPSE_DO(copse_schedule_place(s, topology, err));
  COPSE_DO(prepare_repair(&m, s, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_trees, trees, err));
  for (int i = 0; i < s->n_trees && *repaired; i++) {
    trees[i] = s->trees[i];
    COPSE_DO(repair_tree(&m, s, &trees[i], repaired, err));
  }
  if (!*repaired) return COPSE_OK;
  s->trees = trees;
  COPSE_DO(copse_topology_sha256(topology, sha256, err));
  COPSE_DO(copse_arena_text(&s->arena, topology->name, &s->topology_name, err));
  COPSE_DO(copse_arena_text(&s->arena, sha256, &s->topology_sha256, err));
  return copse_loads_time(topology, s, &s->time_per_GB, err);
}

/* ---- numbers where parts are gone ------------------------------------------------------------ */

/* Numbers the broken topology's nodes, then the others. */
static copse_status number_nodes(const struct copse_topology *healthy,
                                 const struct copse_topology *t, struct copse_arena *arena,
                                 struct copse_numbering *out, struct copse_err *err) {
  size_t n = (size_t)healthy->n_nodes + (size_t)t->n_nodes;
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &out->healthy_of, &out->all_of, &out->rank_of));
  for (int v = 0; v < healthy->n_nodes; v++) out->all_of[v] = -1;
  for (int v = 0; v < t->n_nodes; v++) {
    int from = copse_topology_find(healthy, t->nodes[v].id);
    if (from < 0)
      return copse_fail(err, COPSE_INTERNAL, "'%s' is new in the broken topology", t->nodes[v].id);
    out->healthy_of[v] = from;
    out->all_of[from] = v;
  }
  out->n_nodes = t->n_nodes;
  for (int v = 0; v < healthy->n_nodes; v++) {
    if (out->all_of[v] >= 0) continue;
    out->all_of[v] = out->n_nodes;
    out->healthy_of[out->n_nodes++] = v;
  }
  return COPSE_OK;
}

static copse_status number_ranks(const struct copse_topology *healthy,
                                 const struct copse_topology *t, struct copse_arena *arena,
                                 struct copse_numbering *out, struct copse_err *err) {
  int *nodes, n = t->n_ranks;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)healthy->n_ranks, nodes, err));
  memcpy(nodes, t->rank_nodes, (size_t)n * sizeof *nodes);
  for (int i = 0; i < healthy->n_ranks; i++) {
    int v = out->all_of[healthy->rank_nodes[i]];
    if (v >= t->n_nodes) nodes[n++] = v;
  }
  for (int v = 0; v < out->n_nodes; v++) out->rank_of[v] = -1;
  for (int i = 0; i < n; i++) out->rank_of[nodes[i]] = i;
  out->schedule.n_ranks = t->n_ranks;
  out->schedule.n_absent = n - t->n_ranks;
  out->schedule.rank_nodes = nodes;
  out->schedule.n_nodes = out->n_nodes;
  return COPSE_OK;
}

/* Copies an edge, turned around or not; `number` is what nodes become, or NULL: they are the
 * numbering's. */
static copse_status copy_edge(const struct copse_numbering *numbers,
                              const struct copse_schedule_edge *from, bool turn, const int *number,
                              struct copse_arena *arena, struct copse_schedule_edge *to,
                              struct copse_err *err) {
  int *path, n = from->n_path;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, path, err));
  for (int i = 0; i < n; i++) {
    int v = from->path[turn ? n - 1 - i : i];
    path[i] = number ? number[v] : v;
  }
  *to = (struct copse_schedule_edge){.src = numbers->rank_of[path[0]],
                                     .dst = numbers->rank_of[path[n - 1]],
                                     .path = path,
                                     .n_path = n};
  return COPSE_OK;
}

/* Numbers trees of one phase, away from their roots. */
static copse_status number_trees(const struct copse_schedule *s, const int *number,
                                 struct copse_arena *arena, struct copse_numbering *out,
                                 struct copse_err *err) {
  bool reduce = !copse_collective_broadcasts(s->collective);
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->n_trees, trees, err));
  for (int i = 0; i < s->n_trees; i++) {
    const struct copse_schedule_tree *from = &s->trees[i];
    struct copse_schedule_tree *to = &trees[out->schedule.n_trees];
    struct copse_schedule_edge *edges;
    if ((from->phase == COPSE_PHASE_REDUCE) != reduce) continue;
    COPSE_DO(COPSE_ARRAY(arena, (size_t)from->n_edges, edges, err));
    for (int e = 0; e < from->n_edges; e++)
      COPSE_DO(copy_edge(out, &from->edges[reduce ? from->n_edges - 1 - e : e], reduce, number,
                         arena, &edges[e], err));
    *to = (struct copse_schedule_tree){.root = out->rank_of[number[s->rank_nodes[from->root]]],
                                       .weight = from->weight,
                                       .n_edges = from->n_edges,
                                       .edges = edges};
    out->schedule.n_trees++;
  }
  out->schedule.trees = trees;
  return COPSE_OK;
}

/* Copies n rotations; `number` as above. */
static copse_status copy_rotations(const struct copse_numbering *numbers,
                                   const struct copse_permutation *from, int n, const int *number,
                                   struct copse_arena *arena, const struct copse_permutation **out,
                                   struct copse_err *err) {
  struct copse_permutation *to;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, to, err));
  for (int g = 0; g < n; g++) {
    int *image;
    COPSE_DO(COPSE_ARRAY(arena, (size_t)numbers->n_nodes, image, err));
    for (int v = 0; v < numbers->n_nodes; v++)
      image[number ? number[v] : v] = number ? number[from[g].image[v]] : from[g].image[v];
    to[g] = (struct copse_permutation){.order = from[g].order, .image = image};
  }
  *out = to;
  return COPSE_OK;
}

copse_status copse_numbering_make(const struct copse_schedule *from,
                                  const struct copse_topology *healthy,
                                  const struct copse_topology *topology, struct copse_arena *arena,
                                  struct copse_numbering *out, bool *fits, struct copse_err *err) {
  int *number;
  *out = (struct copse_numbering){.healthy = healthy};
  COPSE_DO(number_nodes(healthy, topology, arena, out, err));
  COPSE_DO(number_ranks(healthy, topology, arena, out, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)from->n_nodes, number, err));
  *fits = from->n_nodes == out->n_nodes;
  for (int v = 0; v < from->n_nodes && *fits; v++) {
    int at = copse_topology_find(healthy, from->nodes[v]);
    *fits = at >= 0;
    if (*fits) number[v] = out->all_of[at];
  }
  if (!*fits) return COPSE_OK;
  COPSE_DO(number_trees(from, number, arena, out, err));
  out->schedule.n_rotations = from->n_rotations;
  return copy_rotations(out, from->rotations, from->n_rotations, number, arena,
                        &out->schedule.rotations, err);
}

copse_status copse_numbering_each(const struct copse_numbering *numbers, int64_t *k, int64_t *each,
                                  struct copse_err *err) {
  const struct copse_schedule *s = &numbers->schedule;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < s->n_trees; i++) {
      struct copse_q part = {numbers->healthy->n_ranks, 1};
      COPSE_DO(copse_q_mul(s->trees[i].weight, part, &part, err));
      if (pass == 0) COPSE_DO(copse_lcm(*k, part.den, k, err));
      COPSE_DO(copse_q_mul(part, (struct copse_q){*k, 1}, &part, err));
      each[i] = part.num;
    }
  return COPSE_OK;
}

copse_status copse_numbering_users(const struct copse_numbering *numbers, struct copse_arena *arena,
                                   struct copse_tree_user **users, struct copse_adjacency *by_link,
                                   struct copse_err *err) {
  const struct copse_schedule *base = &numbers->schedule;
  int n = 0;
  for (int t = 0; t < base->n_trees; t++)
    for (int e = 0; e < base->trees[t].n_edges; e++) n += base->trees[t].edges[e].n_path - 1;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, *users, err));
  n = 0;
  for (int t = 0; t < base->n_trees; t++)
    for (int e = 0; e < base->trees[t].n_edges; e++) {
      const struct copse_schedule_edge *edge = &base->trees[t].edges[e];
      for (int i = 0; i + 1 < edge->n_path; i++)
        (*users)[n++] = (struct copse_tree_user){
            copse_numbering_link(numbers, edge->path[i], edge->path[i + 1]), t, edge->dst};
    }
  return copse_adjacency_by(arena, numbers->healthy->n_links, n, COPSE_KEYS(*users, link),
                            sizeof **users, by_link, err);
}

copse_status copse_numbering_image_users(const struct copse_numbering *numbers,
                                         const struct copse_images *images,
                                         const struct copse_adjacency *by_link, int src, int dst,
                                         struct copse_arena *arena, struct copse_image_users *out,
                                         struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct copse_image_user *found = NULL;
  size_t n = 0, capacity = 0;
  for (int i = 0; i < (int)images->n_images; i++) {
    struct copse_image image = copse_image_of(images, i);
    int link = copse_numbering_link(numbers, copse_image_back(images, &image, src),
                                    copse_image_back(images, &image, dst));
    for (int u = by_link->first[link]; u < by_link->first[link + 1]; u++) {
      COPSE_DO(COPSE_GROW(found, capacity, n + 1, err));
      found[n++] = (struct copse_image_user){i, by_link->item[u]};
    }
  }
  out->n = (int)n;
  COPSE_DO(COPSE_ARRAY(arena, n + 1, out->item, err));
  if (n > 0) memcpy(out->item, found, n * sizeof *found);
  return COPSE_OK;
}

copse_status copse_numbering_loads(const struct copse_numbering *numbers, const int64_t *each,
                                   struct copse_q *loads, bool *fits, struct copse_err *err) {
  const struct copse_schedule *base = &numbers->schedule;
  const struct copse_topology *healthy = numbers->healthy;
  COPSE_AT_END(copse_free_at) int *image = NULL;
  COPSE_DO(copse_calloc((size_t)healthy->n_links, sizeof *image, &image, err));
  for (int e = 0; e < healthy->n_links; e++) loads[e] = COPSE_Q_ZERO;
  for (int t = 0; t < base->n_trees; t++)
    for (int e = 0; e < base->trees[t].n_edges; e++) {
      const struct copse_schedule_edge *edge = &base->trees[t].edges[e];
      for (int i = 0; i + 1 < edge->n_path && *fits; i++) {
        int link = copse_numbering_link(numbers, edge->path[i], edge->path[i + 1]);
        *fits = link >= 0;
        if (*fits) loads[link].num += each[t];
      }
    }
  for (int g = 0; g < base->n_rotations && *fits; g++) {
    const struct copse_permutation *rotation = &base->rotations[g];
    for (int e = 0; e < healthy->n_links && *fits; e++) {
      image[e] =
          copse_numbering_link(numbers, rotation->image[numbers->all_of[healthy->links[e].src]],
                               rotation->image[numbers->all_of[healthy->links[e].dst]]);
      *fits = image[e] >= 0;
    }
    if (*fits) COPSE_DO(copse_sum_cycles(rotation->order, image, healthy->n_links, loads, err));
  }
  return COPSE_OK;
}

static copse_status keep_nodes(const struct copse_numbering *numbers, struct copse_schedule *s,
                               struct copse_err *err) {
  const struct copse_schedule *base = &numbers->schedule;
  const char **ids;
  int *ranks, n = base->n_ranks + base->n_absent;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)numbers->n_nodes, ids, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n, ranks, err));
  for (int v = 0; v < numbers->n_nodes; v++)
    COPSE_DO(copse_arena_text(&s->arena, numbers->healthy->nodes[numbers->healthy_of[v]].id,
                              &ids[v], err));
  memcpy(ranks, base->rank_nodes, (size_t)n * sizeof *ranks);
  s->nodes = ids;
  s->n_nodes = numbers->n_nodes;
  s->rank_nodes = ranks;
  s->n_absent = base->n_absent;
  s->n_rotations = base->n_rotations;
  return copy_rotations(numbers, base->rotations, s->n_rotations, NULL, &s->arena, &s->rotations,
                        err);
}

/* Appends the trees of one phase to those that are kept. */
static copse_status keep_trees(const struct copse_numbering *numbers, const int64_t *each,
                               enum copse_phase phase, struct copse_schedule *s,
                               struct copse_schedule_tree *trees, struct copse_err *err) {
  bool reduce = phase == COPSE_PHASE_REDUCE;
  for (int i = 0; i < numbers->schedule.n_trees; i++) {
    const struct copse_schedule_tree *from = &numbers->schedule.trees[i];
    struct copse_schedule_tree *to = &trees[s->n_trees++];
    struct copse_schedule_edge *edges;
    int n = from->n_edges;
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n, edges, err));
    for (int e = 0; e < n; e++)
      COPSE_DO(copy_edge(numbers, &from->edges[reduce ? n - 1 - e : e], reduce, NULL, &s->arena,
                         &edges[e], err));
    *to = (struct copse_schedule_tree){
        .root = from->root, .phase = phase, .n_edges = n, .edges = edges};
    COPSE_DO(copse_q_make(each[i], s->k, &to->weight, err));
    COPSE_DO(copse_q_div(to->weight, (struct copse_q){s->n_ranks, 1}, &to->weight, err));
  }
  return COPSE_OK;
}

COPSE_ORDER(by_dst, struct copse_schedule_edge, COPSE_UP(dst) ?: COPSE_UP(src))

/* Changes of the trees from `first` on, edges in an order. */
static copse_status keep_changes(const struct copse_numbering *numbers,
                                 const struct copse_schedule_change *changes, int n, bool reduce,
                                 int first, struct copse_schedule *s,
                                 struct copse_schedule_change *list, struct copse_err *err) {
  for (int i = 0; i < n; i++) {
    struct copse_schedule_change *to = &list[s->n_changes++];
    struct copse_schedule_edge *edges;
    *to = changes[i];
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)to->n_edges, edges, err));
    for (int e = 0; e < to->n_edges; e++)
      COPSE_DO(copy_edge(numbers, &changes[i].edges[e], reduce, NULL, &s->arena, &edges[e], err));
    COPSE_SORT(edges, to->n_edges, by_dst);
    to->tree += first;
    to->edges = edges;
    COPSE_DO(copse_q_div(to->weight, (struct copse_q){s->n_ranks, 1}, &to->weight, err));
  }
  return COPSE_OK;
}

static int compare_edges(const struct copse_schedule_change *a,
                         const struct copse_schedule_change *b) {
  int order = 0;
  for (int e = 0; e < a->n_edges && order == 0; e++) {
    const struct copse_schedule_edge *x = &a->edges[e], *y = &b->edges[e];
    order = COPSE_COMPARE(x->n_path, y->n_path);
    for (int i = 0; i < x->n_path && order == 0; i++) order = COPSE_COMPARE(x->path[i], y->path[i]);
  }
  return order;
}
COPSE_ORDER(by_image, struct copse_schedule_change,
            COPSE_UP(tree) ?: COPSE_UP(image) ?: COPSE_UP(n_edges) ?: compare_edges(a, b))

/* Makes one change of those of an image that have the same edges. */
static copse_status merge_changes(struct copse_schedule_change *list, int *n,
                                  struct copse_err *err) {
  int kept = 0;
  COPSE_SORT(list, *n, by_image);
  for (int i = 0; i < *n; i++) {
    if (kept > 0 && by_image(&list[kept - 1], &list[i]) == 0)
      COPSE_DO(copse_q_add(list[kept - 1].weight, list[i].weight, &list[kept - 1].weight, err));
    else
      list[kept++] = list[i];
  }
  *n = kept;
  return COPSE_OK;
}

copse_status copse_numbering_keep(const struct copse_numbering *numbers, const int64_t *each,
                                  const struct copse_schedule_change *changes, int n,
                                  struct copse_schedule *s, struct copse_err *err) {
  struct copse_schedule_tree *trees;
  struct copse_schedule_change *list;
  COPSE_DO(keep_nodes(numbers, s, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, 2 * (size_t)numbers->schedule.n_trees, trees, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, 2 * (size_t)n, list, err));
  s->trees = trees;
  s->changes = list;
  s->n_trees = s->n_changes = 0;
  s->excepted = true;
  for (int reduce = 1; reduce >= 0; reduce--) {
    int first = s->n_trees;
    if (!(reduce ? copse_collective_reduces(s->collective)
                 : copse_collective_broadcasts(s->collective)))
      continue;
    COPSE_DO(keep_trees(numbers, each, reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST, s,
                        trees, err));
    COPSE_DO(keep_changes(numbers, changes, n, reduce, first, s, list, err));
  }
  return merge_changes(list, &s->n_changes, err);
}
