#include "solver/trees/orbit_cuts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/sinks.h"

/* At most so many nodes in all images of one cut. */
#define MOST_MEMBERS (1 << 25)

struct finder {
  const struct copse_network *network;
  const struct copse_network_symmetry *symmetry;
  int64_t n_products;
  int *levels; /* [(n generators + 1) * n_nodes] the set at hand under the powers chosen so far */
  int n_inside;
  uint64_t *seen; /* [n_seen] hashes of the sets so far, by open addressing, 0: free */
  size_t seen_size, n_seen;
  struct copse_template_member *members;
  size_t n_members, members_capacity;
  int n_cuts;
};

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static copse_status grow_seen(struct finder *f, struct copse_err *err) {
  size_t size = f->seen_size ? 2 * f->seen_size : 1024;
  uint64_t *seen = NULL;
  copse_status status = copse_calloc(size, sizeof *seen, &seen, err);
  if (status != COPSE_OK) return status;
  for (size_t i = 0; i < f->seen_size; i++) {
    size_t at = f->seen[i] & (size - 1);
    if (f->seen[i] == 0) continue;
    while (seen[at]) at = (at + 1) & (size - 1);
    seen[at] = f->seen[i];
  }
  free(f->seen);
  f->seen = seen;
  f->seen_size = size;
  return COPSE_OK;
}

/* A set of nodes becomes a cut unless it is one already. Equal hashes pass for equal sets: then a
 * hint is lost. */
static copse_status add_image(struct finder *f, const int *nodes, struct copse_err *err) {
  copse_status status = COPSE_OK;
  uint64_t hash = 0;
  for (int i = 0; i < f->n_inside; i++) hash += mix((uint64_t)nodes[i]);
  if (hash == 0) hash = 1;
  if (2 * f->n_seen >= f->seen_size) COPSE_TRY(grow_seen(f, err));
  size_t at = hash & (f->seen_size - 1);
  for (; f->seen[at]; at = (at + 1) & (f->seen_size - 1))
    if (f->seen[at] == hash) return COPSE_OK;
  f->seen[at] = hash;
  f->n_seen++;
  COPSE_TRY(copse_grow(&f->members, &f->members_capacity, f->n_members + (size_t)f->n_inside,
                       sizeof *f->members, err));
  for (int i = 0; i < f->n_inside; i++)
    f->members[f->n_members++] = (struct copse_template_member){nodes[i], f->n_cuts};
  f->n_cuts++;
out:
  return status;
}

/* All images of the set at level g under the generators from g on. */
static copse_status add_images(struct finder *f, int g, struct copse_err *err) {
  int *nodes = f->levels + (size_t)g * (size_t)f->network->n_nodes;
  int *next = nodes + f->network->n_nodes;
  copse_status status = COPSE_OK;
  if (g == f->symmetry->n) return add_image(f, nodes, err);
  memcpy(next, nodes, (size_t)f->n_inside * sizeof *next);
  const struct copse_permutation *generator = &f->symmetry->generators[g];
  for (int power = 0; power < generator->order; power++) {
    COPSE_TRY(add_images(f, g + 1, err));
    for (int i = 0; i < f->n_inside; i++) nodes[i] = generator->image[nodes[i]];
    memcpy(next, nodes, (size_t)f->n_inside * sizeof *next);
  }
out:
  return status;
}

/* The tight cut nearest to a sink, if it is one to list. */
static copse_status add_cut_of(struct finder *f, struct copse_flow *flow, int64_t demand, int sink,
                               const bool *is_terminal, struct copse_err *err) {
  int n = 0, terminals = 0;
  if (copse_flow_max(flow, f->network->n_nodes, sink, demand) < demand) return COPSE_OK;
  copse_flow_find_sides(flow, sink);
  for (int v = 0; v < f->network->n_nodes; v++) {
    if (copse_flow_on_source_side(flow, v)) continue;
    f->levels[n++] = v;
    terminals += is_terminal[v];
  }
  f->n_inside = n;
  if (terminals < 2 || terminals == f->network->n_terminals || n > MOST_MEMBERS / f->n_products)
    return COPSE_OK;
  return add_images(f, 0, err);
}

copse_status copse_template_cuts_list(int n_nodes, const struct copse_template_member *members,
                                      size_t n_members, int n_cuts, struct copse_template_cuts *out,
                                      struct copse_err *err) {
  copse_status status;
  out->n = n_cuts;
  COPSE_TRY(copse_calloc((size_t)n_nodes + 2, sizeof(int), &out->first, err));
  COPSE_TRY(copse_calloc(n_members, sizeof(int), &out->cuts, err));
  for (size_t i = 0; i < n_members; i++) out->first[members[i].node + 2]++;
  for (int v = 0; v < n_nodes; v++) out->first[v + 2] += out->first[v + 1];
  for (size_t i = 0; i < n_members; i++)
    out->cuts[out->first[members[i].node + 1]++] = members[i].cut;
out:
  return status;
}

copse_status copse_template_cuts_find(const struct copse_network *network,
                                      const int64_t *capacities, int64_t k,
                                      const struct copse_network_symmetry *symmetry,
                                      const int *sinks, int n_sinks,
                                      struct copse_template_cuts *out, struct copse_err *err) {
  struct finder f = {.network = network, .symmetry = symmetry, .n_products = 1};
  struct copse_flow *flow = NULL;
  bool *is_terminal = NULL;
  int64_t demand;
  copse_status status;
  *out = (struct copse_template_cuts){0};
  for (int g = 0; g < symmetry->n; g++) f.n_products *= symmetry->generators[g].order;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, 1, &is_terminal, err));
  COPSE_TRY(copse_calloc(((size_t)symmetry->n + 1) * (size_t)network->n_nodes, sizeof(int),
                         &f.levels, err));
  for (int i = 0; i < network->n_terminals; i++) is_terminal[network->terminals[i]] = true;
  COPSE_TRY(copse_sinks_graph(network, capacities, 1, k, &flow, &demand, err));
  for (int i = 0; i < n_sinks; i++)
    COPSE_TRY(add_cut_of(&f, flow, demand, sinks[i], is_terminal, err));
  COPSE_TRY(copse_template_cuts_list(network->n_nodes, f.members, f.n_members, f.n_cuts, out, err));
out:
  copse_flow_free(flow);
  free(is_terminal);
  free(f.levels);
  free(f.seen);
  free(f.members);
  if (status != COPSE_OK) copse_template_cuts_free(out);
  return status;
}

void copse_template_cuts_free(struct copse_template_cuts *cuts) {
  free(cuts->first);
  free(cuts->cuts);
  *cuts = (struct copse_template_cuts){0};
}

bool copse_template_cuts_hold(const struct copse_template_cuts *cuts, int cut, int node) {
  for (int i = cuts->first[node]; i < cuts->first[node + 1]; i++)
    if (cuts->cuts[i] == cut) return true;
  return false;
}
