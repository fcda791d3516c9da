#include "schedule/solve/symmetry.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/loads.h"

/* The image of a rank under generator g, or one that only joins orbits. */
static int image_of(const struct copse_topology *topology, const struct copse_symmetry *found,
                    int g, int rank) {
  const struct copse_symmetry_generator *by =
      g < found->n ? &found->generators[g] : &found->others[g - found->n];
  return topology->nodes[by->image[topology->rank_nodes[rank]]].rank;
}

/* The first rank of every orbit. */
static copse_status find_sinks(const struct copse_topology *topology,
                               struct copse_solve_symmetry *s, struct copse_err *err) {
  int *stack = NULL;
  char *seen = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)topology->n_ranks, sizeof *stack, &stack, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_ranks, 1, &seen, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_ranks, sizeof *s->sinks, &s->sinks, err));
  for (int first = 0; first < topology->n_ranks; first++) {
    int n = 0;
    if (seen[first]) continue;
    s->sinks[s->n_sinks++] = topology->rank_nodes[first];
    seen[first] = 1;
    stack[n++] = first;
    while (n > 0) {
      int rank = stack[--n];
      for (int g = 0; g < s->found.n + s->found.n_others; g++) {
        int image = image_of(topology, &s->found, g, rank);
        if (seen[image]) continue;
        seen[image] = 1;
        stack[n++] = image;
      }
    }
  }
out:
  free(stack);
  free(seen);
  return status;
}

copse_status copse_solve_symmetry_find(const struct copse_topology *topology,
                                       struct copse_solve_symmetry *out, struct copse_err *err) {
  copse_status status;
  *out = (struct copse_solve_symmetry){.found = {.n_products = 1}};
  COPSE_TRY(copse_topology_symmetry(topology, &out->found, err));
  COPSE_TRY(copse_calloc((size_t)out->found.n, sizeof *out->generators, &out->generators, err));
  for (int g = 0; g < out->found.n; g++)
    out->generators[g] =
        (struct copse_rotation){out->found.generators[g].order, out->found.generators[g].image};
  out->network = (struct copse_network_symmetry){out->found.n, out->generators};
  status = find_sinks(topology, out, err);
out:
  if (status != COPSE_OK) copse_solve_symmetry_free(out);
  return status;
}

void copse_solve_symmetry_free(struct copse_solve_symmetry *symmetry) {
  copse_symmetry_free(&symmetry->found);
  free(symmetry->generators);
  free(symmetry->sinks);
  *symmetry = (struct copse_solve_symmetry){.found = {.n_products = 1}};
}

copse_status copse_solve_symmetry_set(const struct copse_topology *topology,
                                      const struct copse_solve_symmetry *symmetry,
                                      struct copse_schedule *schedule, struct copse_err *err) {
  size_t n = (size_t)symmetry->found.n, nodes = (size_t)topology->n_nodes;
  struct copse_schedule_rotation *rotations =
      copse_arena_alloc(&schedule->arena, n ? n : 1, sizeof *rotations);
  if (!rotations) return copse_fail_nomem(err);
  for (size_t g = 0; g < n; g++) {
    int *image = copse_arena_alloc(&schedule->arena, nodes, sizeof *image);
    if (!image) return copse_fail_nomem(err);
    memcpy(image, symmetry->found.generators[g].image, nodes * sizeof *image);
    rotations[g] = (struct copse_schedule_rotation){symmetry->found.generators[g].order, image};
  }
  schedule->rotations = rotations;
  schedule->n_rotations = (int)n;
  return copse_template_time(topology, schedule, &schedule->time_per_GB, err);
}
