/* What is known of a topology's symmetries, without a search: whether a permutation is one, the
 * rotation of hosts that their names tell, and which nodes are alike under those found. */
#include "topology/symmetry/symmetry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

copse_status copse_topology_is_automorphism(const struct copse_topology *topology, const int *image,
                                            bool *is, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *hit = NULL;
  *is = false;
  COPSE_DO(copse_calloc((size_t)topology->n_nodes, 1, &hit, err));
  for (int v = 0; v < topology->n_nodes; v++) {
    if (image[v] < 0 || image[v] >= topology->n_nodes || hit[image[v]]++) return COPSE_OK;
    const struct copse_node *a = &topology->nodes[v], *b = &topology->nodes[image[v]];
    if ((a->rank >= 0) != (b->rank >= 0) || a->multicast != b->multicast ||
        a->aggregation != b->aggregation)
      return COPSE_OK;
  }
  for (int e = 0; e < topology->n_links; e++) {
    const struct copse_link *link = &topology->links[e];
    int f = copse_topology_find_link(topology, image[link->src], image[link->dst]);
    if (f < 0 || !copse_q_eq(topology->links[f].bandwidth, link->bandwidth)) return COPSE_OK;
  }
  *is = true; /* an injection of links into links of a finite graph is a bijection */
  return COPSE_OK;
}

void copse_symmetry_free(struct copse_symmetry *symmetry) {
  copse_arena_free(&symmetry->arena);
  *symmetry = (struct copse_symmetry){.n_products = 1};
}

static copse_status copy(struct copse_arena *arena, const int *from, int n, const int **out,
                         struct copse_err *err) {
  int *to;
  *out = NULL;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, to, err));
  *out = memcpy(to, from, (size_t)n * sizeof *to);
  return COPSE_OK;
}

copse_status copse_permutation_copy(struct copse_arena *arena, struct copse_permutation from,
                                    int n_nodes, int n_groups, struct copse_permutation *out,
                                    struct copse_err *err) {
  out->order = from.order;
  COPSE_DO(copy(arena, from.image, n_nodes, &out->image, err));
  return copy(arena, from.groups, n_groups, &out->groups, err);
}

copse_status copse_symmetry_add(struct copse_symmetry *symmetry, struct copse_permutation by,
                                int n_nodes, int n_groups, struct copse_err *err) {
  size_t n = (size_t)(symmetry->n + symmetry->n_others);
  COPSE_DO(COPSE_GROW_IN(&symmetry->arena, symmetry->generators, symmetry->capacity, n + 1, err));
  COPSE_DO(copse_permutation_copy(&symmetry->arena, by, n_nodes, n_groups, &symmetry->generators[n],
                                  err));
  symmetry->n_others++;
  return COPSE_OK;
}

/* ---- rotations of hosts ---------------------------------------------------------------------- */

/* A candidate by names, because a search would choose another: the turn by one rank where all are
 * alike, or one that mixes the hosts' planes. An alltoall has one rotation, by whole hosts, so that
 * its base flows are those of one host; and names give it in a pass over the nodes. */
static int count_hosts(const struct copse_topology *topology) {
  int most = -1, host;
  for (int v = 0; v < topology->n_nodes; v++) {
    (void)copse_host_prefix(topology->nodes[v].id, &host);
    if (host > most) most = host;
    if (host < 0 && topology->nodes[v].rank >= 0) return 0; /* a rank outside of hosts */
  }
  return most + 1;
}

/* -1 where there is no such node. */
static int image_by_name(const struct copse_topology *topology, int node, int n_hosts) {
  const char *id = topology->nodes[node].id;
  int host;
  size_t prefix = copse_host_prefix(id, &host);
  char name[512];
  if (host < 0) return node;
  int n = snprintf(name, sizeof name, "h%d.%s", (host + 1) % n_hosts, id + prefix);
  return n < (int)sizeof name ? copse_topology_find(topology, name) : -1;
}

copse_status copse_topology_host_rotation(const struct copse_topology *topology,
                                          struct copse_arena *arena, struct copse_permutation *out,
                                          struct copse_err *err) {
  int n_hosts = count_hosts(topology), *image;
  bool good = n_hosts > 1;
  *out = (struct copse_permutation){.order = 1};
  if (!good) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)topology->n_nodes, image, err));
  for (int v = 0; v < topology->n_nodes && good; v++) {
    image[v] = image_by_name(topology, v, n_hosts);
    good = image[v] >= 0;
  }
  if (good) COPSE_DO(copse_topology_is_automorphism(topology, image, &good, err));
  /* every rank's host moves on, so n_hosts steps and not fewer */
  if (good) *out = (struct copse_permutation){.order = n_hosts, .image = image};
  return COPSE_OK;
}

copse_status copse_topology_rotation(const struct copse_topology *topology,
                                     struct copse_arena *arena, struct copse_permutation *out,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_symmetry_free) struct copse_symmetry found = {.n_products = 1};
  struct copse_permutation longest = {.order = 1};
  COPSE_DO(copse_topology_host_rotation(topology, arena, out, err));
  if (out->order > 1) return COPSE_OK;
  COPSE_DO(copse_topology_symmetry(topology, &found, err));
  for (int g = 0; g < found.n; g++)
    if (found.generators[g].order > longest.order) longest = found.generators[g];
  return copse_permutation_copy(arena, longest, topology->n_nodes, 0, out, err);
}

/* ---- orbits -------------------------------------------------------------------------------- */

copse_status copse_orbit_find(const struct copse_symmetry *symmetry, int n_nodes, int node,
                              struct copse_orbit *out, struct copse_err *err) {
  size_t n = (size_t)n_nodes;
  char *seen;
  *out = (struct copse_orbit){.n = 1};
  COPSE_DO(COPSE_ARRAY(&out->arena, n, seen, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, n, out->members, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, n, out->images, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, n, out->images[0], err));
  for (int v = 0; v < n_nodes; v++) out->images[0][v] = v;
  out->members[0] = node;
  seen[node] = 1;
  for (int i = 0; i < out->n; i++)
    for (int g = 0; g < symmetry->n + symmetry->n_others; g++) {
      const int *step = symmetry->generators[g].image;
      int to = step[out->members[i]], **image = &out->images[out->n];
      if (seen[to]) continue;
      COPSE_DO(COPSE_ARRAY(&out->arena, n, *image, err));
      copse_permutation_compose(out->images[i], step, n_nodes, *image);
      out->members[out->n++] = to;
      seen[to] = 1;
    }
  return COPSE_OK;
}

void copse_orbit_free(struct copse_orbit *orbit) {
  copse_arena_free(&orbit->arena);
  *orbit = (struct copse_orbit){0};
}

void copse_symmetry_products(const struct copse_symmetry *symmetry, int n_nodes, int *images) {
  size_t nodes = (size_t)n_nodes, have = 1;
  for (size_t v = 0; v < nodes; v++) images[v] = (int)v;
  for (int r = 0; symmetry && r < symmetry->n; r++) {
    const struct copse_permutation *by = &symmetry->generators[r];
    size_t before = have;
    for (int power = 1; power < by->order; power++)
      for (size_t i = 0; i < before; i++, have++)
        for (size_t v = 0; v < nodes; v++)
          images[have * nodes + v] = by->image[images[(have - before) * nodes + v]];
  }
}
