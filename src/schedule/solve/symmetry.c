/* Symmetries as solvers take them: one flow for each orbit of ranks, rotations of a schedule. */
#include "schedule/solve/symmetry.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "schedule/loads.h"

/* The first rank of every orbit. */
static copse_status find_sinks(const struct copse_topology *t, struct copse_solve_symmetry *s,
                               struct copse_err *err) {
  struct copse_arena scratch = {0};
  int *orbit;
  copse_status status;
  COPSE_TRY(copse_arena_array(&scratch, (size_t)t->n_ranks, sizeof *orbit, &orbit, err));
  COPSE_TRY(copse_calloc((size_t)t->n_ranks, sizeof *s->sinks, &s->sinks, err));
  copse_sets_init(orbit, t->n_ranks);
  for (int g = 0; g < s->found.n + s->found.n_others; g++)
    for (int r = 0; r < t->n_ranks; r++)
      copse_sets_unite(orbit, r, t->nodes[s->found.generators[g].image[t->rank_nodes[r]]].rank);
  for (int r = 0; r < t->n_ranks; r++)
    if (orbit[r] == r) s->sinks[s->n_sinks++] = t->rank_nodes[r];
out:
  copse_arena_free(&scratch);
  return status;
}

copse_status copse_solve_symmetry_find(const struct copse_topology *topology,
                                       struct copse_solve_symmetry *out, struct copse_err *err) {
  copse_status status;
  *out = (struct copse_solve_symmetry){.found = {.n_products = 1}};
  COPSE_TRY(copse_topology_symmetry(topology, &out->found, err));
  out->network = (struct copse_network_symmetry){out->found.n, out->found.generators};
  status = find_sinks(topology, out, err);
out:
  if (status != COPSE_OK) copse_solve_symmetry_free(out);
  return status;
}

void copse_solve_symmetry_free(struct copse_solve_symmetry *symmetry) {
  copse_symmetry_free(&symmetry->found);
  free(symmetry->sinks);
  *symmetry = (struct copse_solve_symmetry){.found = {.n_products = 1}};
}

copse_status copse_solve_symmetry_set(const struct copse_topology *topology,
                                      const struct copse_solve_symmetry *symmetry,
                                      struct copse_schedule *schedule, struct copse_err *err) {
  size_t n = (size_t)symmetry->found.n, nodes = (size_t)topology->n_nodes;
  struct copse_permutation *rotations =
      copse_arena_alloc(&schedule->arena, n ? n : 1, sizeof *rotations);
  if (!rotations) return copse_fail_nomem(err);
  for (size_t g = 0; g < n; g++) {
    int *image = copse_arena_alloc(&schedule->arena, nodes, sizeof *image);
    if (!image) return copse_fail_nomem(err);
    memcpy(image, symmetry->found.generators[g].image, nodes * sizeof *image);
    rotations[g] =
        (struct copse_permutation){.order = symmetry->found.generators[g].order, .image = image};
  }
  schedule->rotations = rotations;
  schedule->n_rotations = (int)n;
  return copse_loads_time(topology, schedule, &schedule->time_per_GB, err);
}

/* ---- groups -------------------------------------------------------------------------------- */

copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_permutation **out, int *n_out,
                                     struct copse_err *err) {
  struct copse_arena scratch = {0};
  struct copse_symmetry found = {.n_products = 1};
  struct copse_node_set *sets;
  copse_status status;
  COPSE_TRY(copse_arena_array(&scratch, (size_t)n, sizeof *sets, &sets, err));
  for (int g = 0; g < n; g++)
    sets[g] = (struct copse_node_set){.kind = (int)groups[g].collective,
                                      .root = groups[g].root,
                                      .n = groups[g].n,
                                      .nodes = groups[g].nodes};
  COPSE_TRY(copse_topology_set_symmetries(topology, sets, n, &found, err));
  *out = found.generators;
  *n_out = found.n_others;
out:
  copse_arena_free(&scratch);
  return status;
}

void copse_groups_symmetries_free(struct copse_permutation *symmetries, int n) {
  struct copse_symmetry found = {.n_others = n, .generators = symmetries};
  copse_symmetry_free(&found);
}
