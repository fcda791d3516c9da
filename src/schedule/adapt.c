/*
 * A schedule against another topology than its own: the topology's choice of the schedule's ranks,
 * its numbers of nodes, and the schedule's image under a renaming of its nodes.
 */
#include "schedule/adapt.h"

#include <stdlib.h>

#include "base/memory.h"
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

/* ---- the topology's own numbers ---- */

/* A list of nodes of the schedule as one of nodes of the topology. */
static copse_status place_path(struct copse_arena *arena, const int *at, const int **nodes, int n,
                               struct copse_err *err) {
  int *placed = NULL;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, placed, err));
  for (int i = 0; i < n; i++) placed[i] = at[(*nodes)[i]];
  *nodes = placed;
  return COPSE_OK;
}

static copse_status place_tree(struct copse_arena *arena, const int *at,
                               struct copse_schedule_tree *tree, struct copse_err *err) {
  struct copse_schedule_edge *edges = NULL;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)tree->n_edges, edges, err));
  for (int e = 0; e < tree->n_edges; e++) {
    edges[e] = tree->edges[e];
    COPSE_DO(place_path(arena, at, &edges[e].path, edges[e].n_path, err));
  }
  tree->edges = edges;
  return COPSE_OK;
}

static copse_status place_flow(struct copse_arena *arena, const int *at,
                               struct copse_schedule_flow *flow, struct copse_err *err) {
  struct copse_schedule_path *paths = NULL;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)flow->n_paths, paths, err));
  for (int p = 0; p < flow->n_paths; p++) {
    paths[p] = flow->paths[p];
    COPSE_DO(place_path(arena, at, &paths[p].nodes, paths[p].n_nodes, err));
  }
  flow->paths = paths;
  return COPSE_OK;
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
  struct copse_schedule_tree *trees = NULL;
  struct copse_schedule_flow *flows = NULL;
  int *at = NULL;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_nodes, at, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_trees, trees, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_flows, flows, err));
  for (int i = 0; i < s->n_nodes; i++) at[i] = copse_topology_find(topology, s->nodes[i]);
  for (int t = 0; t < s->n_trees; t++) {
    trees[t] = s->trees[t];
    COPSE_DO(place_tree(&s->arena, at, &trees[t], err));
  }
  for (int f = 0; f < s->n_flows; f++) {
    flows[f] = s->flows[f];
    COPSE_DO(place_flow(&s->arena, at, &flows[f], err));
  }
  s->trees = trees;
  s->flows = flows;
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
  struct mapping m = {.from = schedule, .err = err};
  char sha256[COPSE_SHA256_HEX];
  copse_status status;
  *out = NULL;
  if (schedule->root >= 0 || schedule->demand || schedule->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID,
                      "only a schedule without root and demand, expanded, has an image");
  COPSE_TRY(copse_topology_sha256(target, sha256, err));
  COPSE_TRY(copse_calloc(1, sizeof *m.to, &m.to, err));
  *m.to = *schedule;
  m.to->arena = (struct copse_arena){NULL};
  COPSE_TRY(
      copse_arena_array(&m.to->arena, (size_t)schedule->n_ranks, sizeof *m.rank, &m.rank, err));
  COPSE_TRY(copse_arena_text(&m.to->arena, target->name, &m.to->topology_name, err));
  COPSE_TRY(copse_arena_text(&m.to->arena, sha256, &m.to->topology_sha256, err));
  COPSE_TRY(map_nodes(&m, ids, target));
  COPSE_TRY(map_trees(&m));
  COPSE_TRY(map_flows(&m));
  *out = m.to;
  m.to = NULL;
out:
  copse_schedule_free(m.to);
  return status;
}
