/*
 * A schedule against another topology than its own: the topology's choice of the schedule's ranks,
 * and the schedule's image under a renaming of its nodes.
 */
#include "schedule/adapt.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/modify.h"

copse_status copse_schedule_choose_ranks(const struct copse_schedule *schedule,
                                         struct copse_topology **topology, struct copse_err *err) {
  const struct copse_topology *t = *topology;
  struct copse_topology *chosen = NULL;
  bool same = schedule->n_ranks == t->n_ranks, known = !t->chosen_from;
  int *nodes = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)schedule->n_ranks, sizeof *nodes, &nodes, err));
  for (int r = 0; r < schedule->n_ranks && known; r++) {
    nodes[r] = copse_topology_find(t, schedule->nodes[schedule->rank_nodes[r]]);
    known = nodes[r] >= 0 && t->nodes[nodes[r]].rank >= 0;
    same = same && known && t->rank_nodes[r] == nodes[r];
  }
  if (same || !known) goto out;
  COPSE_TRY(copse_topology_choose_ranks(t, nodes, schedule->n_ranks, schedule->others_excluded,
                                        &chosen, err));
  copse_topology_free(*topology);
  *topology = chosen;
out:
  free(nodes);
  return status;
}

struct mapping {
  const struct copse_schedule *from;
  struct copse_schedule *to;
  int *rank; /* [n_ranks] the image of each */
  struct copse_err *err;
};

/* A copy in the arena of the image; node numbers stay, their names change. */
static void *keep(struct mapping *m, const void *items, int n, size_t size) {
  void *copy = copse_arena_alloc(&m->to->arena, n > 0 ? (size_t)n : 1, size);
  if (copy && n > 0) memcpy(copy, items, (size_t)n * size);
  return copy;
}

static copse_status map_nodes(struct mapping *m, const char *const *ids,
                              const struct copse_topology *target) {
  const struct copse_schedule *s = m->from;
  const char **nodes = copse_arena_alloc(&m->to->arena, (size_t)s->n_nodes, sizeof *nodes);
  int *rank_nodes = copse_arena_alloc(&m->to->arena, (size_t)s->n_ranks, sizeof *rank_nodes);
  if (!nodes || !rank_nodes) return copse_fail_nomem(m->err);
  for (int v = 0; v < s->n_nodes; v++)
    if (!(nodes[v] = copse_arena_strdup(&m->to->arena, ids[v]))) return copse_fail_nomem(m->err);
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

static copse_status map_edges(struct mapping *m, struct copse_schedule_tree *tree) {
  struct copse_schedule_edge *edges = keep(m, tree->edges, tree->n_edges, sizeof *edges);
  if (!edges) return copse_fail_nomem(m->err);
  for (int e = 0; e < tree->n_edges; e++) {
    edges[e].src = m->rank[edges[e].src];
    edges[e].dst = m->rank[edges[e].dst];
    edges[e].path = keep(m, edges[e].path, edges[e].n_path, sizeof *edges[e].path);
    if (!edges[e].path) return copse_fail_nomem(m->err);
  }
  tree->root = m->rank[tree->root];
  tree->edges = edges;
  return COPSE_OK;
}

static copse_status map_paths(struct mapping *m, struct copse_schedule_flow *flow) {
  struct copse_schedule_path *paths = keep(m, flow->paths, flow->n_paths, sizeof *paths);
  if (!paths) return copse_fail_nomem(m->err);
  for (int p = 0; p < flow->n_paths; p++) {
    paths[p].nodes = keep(m, paths[p].nodes, paths[p].n_nodes, sizeof *paths[p].nodes);
    if (!paths[p].nodes) return copse_fail_nomem(m->err);
  }
  flow->src = m->rank[flow->src];
  flow->dst = m->rank[flow->dst];
  flow->paths = paths;
  return COPSE_OK;
}

static copse_status map_cuts(struct mapping *m) {
  const struct copse_bound *from = &m->from->bound;
  struct copse_bound *to = &m->to->bound;
  struct copse_schedule_cut *cuts = keep(m, from->cuts, from->n_cuts, sizeof *cuts);
  if (!cuts) return copse_fail_nomem(m->err);
  for (int c = 0; c < from->n_cuts; c++)
    if (!(cuts[c].nodes = keep(m, cuts[c].nodes, cuts[c].n_nodes, sizeof *cuts[c].nodes)))
      return copse_fail_nomem(m->err);
  to->cuts = cuts;
  to->potentials = keep(m, from->potentials, from->n_potentials, sizeof *to->potentials);
  return to->potentials ? COPSE_OK : copse_fail_nomem(m->err);
}

static copse_status map_all(struct mapping *m) {
  const struct copse_schedule *s = m->from;
  struct copse_bound *bound = &m->to->bound;
  struct copse_schedule_tree *trees = keep(m, s->trees, s->n_trees, sizeof *trees);
  struct copse_schedule_flow *flows = keep(m, s->flows, s->n_flows, sizeof *flows);
  bound->cut = keep(m, s->bound.cut, s->bound.n_cut, sizeof *bound->cut);
  bound->reduce_cut = keep(m, s->bound.reduce_cut, s->bound.n_reduce_cut, sizeof *bound->cut);
  bound->lengths = keep(m, s->bound.lengths, s->bound.n_lengths, sizeof *bound->lengths);
  m->to->copying = keep(m, s->copying, s->n_copying, sizeof *s->copying);
  m->to->adding = keep(m, s->adding, s->n_adding, sizeof *s->adding);
  if (!m->to->copying || !m->to->adding) return copse_fail_nomem(m->err);
  if (!trees || !flows || !bound->cut || !bound->reduce_cut || !bound->lengths)
    return copse_fail_nomem(m->err);
  COPSE_DO(map_cuts(m));
  for (int t = 0; t < s->n_trees; t++) COPSE_DO(map_edges(m, &trees[t]));
  for (int f = 0; f < s->n_flows; f++) COPSE_DO(map_paths(m, &flows[f]));
  m->to->trees = trees;
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
  COPSE_TRY(copse_calloc((size_t)schedule->n_ranks, sizeof *m.rank, &m.rank, err));
  *m.to = *schedule;
  m.to->arena = (struct copse_arena){NULL};
  m.to->topology_name = copse_arena_strdup(&m.to->arena, target->name);
  m.to->topology_sha256 = copse_arena_strdup(&m.to->arena, sha256);
  if (!m.to->topology_name || !m.to->topology_sha256) {
    status = copse_fail_nomem(err);
    goto out;
  }
  COPSE_TRY(map_nodes(&m, ids, target));
  COPSE_TRY(map_all(&m));
  *out = m.to;
  m.to = NULL;
out:
  copse_schedule_free(m.to);
  free(m.rank);
  return status;
}
