#include "schedule/loads.h"

#include <stdlib.h>
#include <string.h>

/* Adds to the links of a path; with a tree, once where switches copy or combine: stamps[link] is
 * the number of the tree that crossed it last. */
static copse_status add_path(const struct copse_topology *topology, const int *nodes, int n,
                             struct copse_q weight, const struct copse_schedule_tree *tree,
                             int *stamps, int stamp, struct copse_q *loads, struct copse_err *err) {
  const struct copse_node *all = topology->nodes;
  for (int i = 0; i + 1 < n; i++) {
    int link = copse_topology_find_link(topology, nodes[i], nodes[i + 1]);
    bool once = tree && (tree->phase == COPSE_PHASE_BROADCAST ? all[nodes[i + 1]].multicast
                                                              : all[nodes[i]].aggregation);
    if (once && stamps[link] == stamp) continue;
    if (once) stamps[link] = stamp;
    copse_status status = copse_q_add(loads[link], weight, &loads[link], err);
    if (status != COPSE_OK) return status;
  }
  return COPSE_OK;
}

copse_status copse_tree_loads(const struct copse_topology *topology,
                              const struct copse_schedule_tree *trees, size_t n_trees,
                              struct copse_q *loads, struct copse_err *err) {
  int *stamps = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *stamps, &stamps, err));
  for (int i = 0; i < topology->n_links; i++) loads[i] = COPSE_Q_ZERO;
  for (size_t t = 0; t < n_trees; t++)
    for (int e = 0; e < trees[t].n_edges; e++)
      COPSE_TRY(add_path(topology, trees[t].edges[e].path, trees[t].edges[e].n_path,
                         trees[t].weight, &trees[t], stamps, (int)t + 1, loads, err));
out:
  free(stamps);
  return status;
}

copse_status copse_flow_loads(const struct copse_topology *topology,
                              const struct copse_schedule_flow *flows, int n_flows,
                              struct copse_q *loads, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < topology->n_links; i++) loads[i] = COPSE_Q_ZERO;
  for (int f = 0; f < n_flows; f++)
    for (int p = 0; p < flows[f].n_paths; p++)
      COPSE_TRY(add_path(topology, flows[f].paths[p].nodes, flows[f].paths[p].n_nodes,
                         flows[f].paths[p].weight, NULL, NULL, 0, loads, err));
out:
  return status;
}

static copse_status most_loaded(const struct copse_topology *topology, const struct copse_q *loads,
                                struct copse_q *time, struct copse_err *err) {
  copse_status status = COPSE_OK;
  *time = COPSE_Q_ZERO;
  for (int i = 0; i < topology->n_links; i++) {
    struct copse_q t;
    COPSE_TRY(copse_q_div(loads[i], topology->links[i].bandwidth, &t, err));
    if (copse_q_cmp(t, *time) > 0) *time = t;
  }
out:
  return status;
}

copse_status copse_tree_time(const struct copse_topology *topology,
                             const struct copse_schedule_tree *trees, size_t n_trees,
                             struct copse_q *time, struct copse_err *err) {
  struct copse_q *loads = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  COPSE_TRY(copse_tree_loads(topology, trees, n_trees, loads, err));
  status = most_loaded(topology, loads, time, err);
out:
  free(loads);
  return status;
}

/* Every copy, and the switches for which add_path would have left some out. */
static copse_status add_copies(const struct copse_topology *topology,
                               const struct copse_schedule_tree *tree, int *stamps, int stamp,
                               struct copse_q *loads, bool *used, struct copse_err *err) {
  const struct copse_node *all = topology->nodes;
  bool broadcast = tree->phase == COPSE_PHASE_BROADCAST;
  copse_status status = COPSE_OK;
  for (int e = 0; e < tree->n_edges; e++)
    for (int i = 0; i + 1 < tree->edges[e].n_path; i++) {
      int src = tree->edges[e].path[i], dst = tree->edges[e].path[i + 1];
      int link = copse_topology_find_link(topology, src, dst), at = broadcast ? dst : src;
      bool once = broadcast ? all[dst].multicast : all[src].aggregation;
      COPSE_TRY(copse_q_add(loads[link], tree->weight, &loads[link], err));
      if (once && stamps[link] == stamp) used[at] = true;
      stamps[link] = stamp;
    }
out:
  return status;
}

copse_status copse_tree_switches(const struct copse_topology *topology,
                                 const struct copse_schedule_tree *trees, size_t n_trees,
                                 struct copse_q time, bool *copies, bool *adds, bool *counts,
                                 struct copse_err *err) {
  struct copse_q *loads = NULL, with_copies;
  int *stamps = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *stamps, &stamps, err));
  for (int i = 0; i < topology->n_links; i++) loads[i] = COPSE_Q_ZERO;
  for (size_t t = 0; t < n_trees; t++)
    COPSE_TRY(add_copies(topology, &trees[t], stamps, (int)t + 1, loads,
                         trees[t].phase == COPSE_PHASE_BROADCAST ? copies : adds, err));
  COPSE_TRY(most_loaded(topology, loads, &with_copies, err));
  *counts = copse_q_cmp(with_copies, time) > 0;
out:
  free(loads);
  free(stamps);
  return status;
}

copse_status copse_flow_time(const struct copse_topology *topology,
                             const struct copse_schedule_flow *flows, int n_flows,
                             struct copse_q *time, struct copse_err *err) {
  struct copse_q *loads = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  COPSE_TRY(copse_flow_loads(topology, flows, n_flows, loads, err));
  status = most_loaded(topology, loads, time, err);
out:
  free(loads);
  return status;
}

/* Loads under all powers of a rotation, image [n_links]: a link takes what lies on its cycle, so
 * often as the powers go around it. */
static copse_status spread(int order, const int *image, int n, char *done, struct copse_q *loads,
                           struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int e = 0; e < n; e++) {
    struct copse_q sum = COPSE_Q_ZERO;
    int length = 0, f = e;
    if (done[e]) continue;
    do {
      COPSE_TRY(copse_q_add(sum, loads[f], &sum, err));
      f = image[f];
      length++;
    } while (f != e);
    COPSE_TRY(copse_q_mul(sum, (struct copse_q){order / length, 1}, &sum, err));
    do {
      loads[f] = sum;
      done[f] = 1;
      f = image[f];
    } while (f != e);
  }
out:
  return status;
}

static copse_status spread_all(const struct copse_topology *topology,
                               const struct copse_schedule *schedule, struct copse_q *loads,
                               struct copse_err *err) {
  int *image = NULL;
  char *done = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *image, &image, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_links, 1, &done, err));
  for (int i = 0; i < schedule->n_rotations; i++) {
    const struct copse_schedule_rotation *rotation = &schedule->rotations[i];
    for (int e = 0; e < topology->n_links; e++) {
      const struct copse_link *link = &topology->links[e];
      image[e] = copse_topology_find_link(topology, rotation->image[link->src],
                                          rotation->image[link->dst]);
    }
    memset(done, 0, (size_t)topology->n_links);
    COPSE_TRY(spread(rotation->order, image, topology->n_links, done, loads, err));
  }
out:
  free(image);
  free(done);
  return status;
}

copse_status copse_template_time(const struct copse_topology *topology,
                                 const struct copse_schedule *schedule, struct copse_q *time,
                                 struct copse_err *err) {
  struct copse_q *loads = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  COPSE_TRY(copse_tree_loads(topology, schedule->trees, (size_t)schedule->n_trees, loads, err));
  COPSE_TRY(spread_all(topology, schedule, loads, err));
  status = most_loaded(topology, loads, time, err);
out:
  free(loads);
  return status;
}
