#include "solver/trees/nested_cuts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"

/* Different capacities looked at, from the largest: beyond, sets are as good as all. */
#define MOST_CAPACITIES 64

struct finder {
  const struct copse_network *network;
  const int64_t *capacities;
  int root;
  int64_t narrow;
  int *by_capacity; /* [n_links] links, the fastest first */
  int *set;         /* [n_nodes] union-find: the smallest node of each is its name */
  int *terminals;   /* [n_nodes] by name: how many the set has */
  int *listed;      /* [n_nodes] by name: how many it had when it was listed; 0: never */
  int64_t *across;  /* [n_nodes] by name: capacity of the links into the set, or out of root's */
  int *place;       /* [n_nodes] by name: which cut it becomes now, or -1 */
  struct copse_template_member *members;
  size_t n_members, members_capacity;
  int n_cuts;
  struct copse_err *err;
};

static int find_set(int *set, int v) {
  while (set[v] != v) v = set[v] = set[set[v]];
  return v;
}

static int by_capacity(const void *a, const void *b, void *capacities) {
  const int64_t *c = capacities;
  int e = *(const int *)a, f = *(const int *)b;
  return c[e] != c[f] ? (c[e] < c[f]) - (c[e] > c[f]) : e - f;
}

static copse_status prepare(struct finder *f) {
  size_t n = (size_t)f->network->n_nodes, m = (size_t)f->network->n_links;
  copse_status status;
  COPSE_TRY(copse_calloc(m, sizeof(int), &f->by_capacity, f->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &f->set, f->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &f->terminals, f->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &f->listed, f->err));
  COPSE_TRY(copse_calloc(n, sizeof(int64_t), &f->across, f->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &f->place, f->err));
  for (size_t e = 0; e < m; e++) f->by_capacity[e] = (int)e;
  int64_t *keys = (int64_t *)f->capacities; /* qsort_r hands them on as they are */
  qsort_r(f->by_capacity, m, sizeof *f->by_capacity, by_capacity, keys);
  for (size_t v = 0; v < n; v++) f->set[v] = (int)v;
  for (int i = 0; i < f->network->n_terminals; i++) f->terminals[f->network->terminals[i]] = 1;
out:
  return status;
}

static void join(struct finder *f, int u, int v) {
  u = find_set(f->set, u);
  v = find_set(f->set, v);
  if (u == v) return;
  if (v < u) {
    int w = u;
    u = v;
    v = w;
  }
  f->set[v] = u;
  f->terminals[u] += f->terminals[v];
}

/* What must be crossed to get into each set; where it holds the root, out of it. */
static void measure(struct finder *f) {
  int of_root = find_set(f->set, f->root);
  memset(f->across, 0, (size_t)f->network->n_nodes * sizeof *f->across);
  for (int e = 0; e < f->network->n_links; e++) {
    int u = find_set(f->set, f->network->links[e].src),
        v = find_set(f->set, f->network->links[e].dst);
    if (u == v) continue;
    if (v != of_root && copse_add_overflows(f->across[v], f->capacities[e], &f->across[v]))
      f->across[v] = INT64_MAX;
    if (u == of_root && copse_add_overflows(f->across[u], f->capacities[e], &f->across[u]))
      f->across[u] = INT64_MAX;
  }
}

/* Lists the sets that are new since the last time and narrow. */
static copse_status list_sets(struct finder *f) {
  int n = f->network->n_nodes, of_root = find_set(f->set, f->root);
  copse_status status = COPSE_OK;
  measure(f);
  for (int v = 0; v < n; v++) {
    f->place[v] = -1;
    if (f->set[v] != v || f->across[v] >= f->narrow || f->terminals[v] == f->listed[v] ||
        f->terminals[v] == f->network->n_terminals || (v != of_root && f->terminals[v] < 2))
      continue;
    f->listed[v] = f->terminals[v];
    f->place[v] = f->n_cuts++;
  }
  for (int v = 0; v < n; v++) {
    int cuts[2] = {f->place[find_set(f->set, v)], f->place[of_root]};
    if (find_set(f->set, v) == of_root) cuts[0] = cuts[1] = -1;
    for (int i = 0; i < 2; i++) {
      if (cuts[i] < 0) continue;
      COPSE_TRY(copse_grow(&f->members, &f->members_capacity, f->n_members + 1, sizeof *f->members,
                           f->err));
      f->members[f->n_members++] = (struct copse_template_member){v, cuts[i]};
    }
  }
out:
  return status;
}

copse_status copse_nested_cuts_find(const struct copse_network *network, const int64_t *capacities,
                                    int root, int64_t narrow, struct copse_template_cuts *out,
                                    struct copse_err *err) {
  struct finder f = {
      .network = network, .capacities = capacities, .root = root, .narrow = narrow, .err = err};
  copse_status status;
  *out = (struct copse_template_cuts){0};
  COPSE_TRY(prepare(&f));
  for (int i = 0, n_capacities = 0; i < network->n_links && n_capacities < MOST_CAPACITIES;
       n_capacities++) {
    int64_t capacity = capacities[f.by_capacity[i]];
    if (capacity == 0) break;
    COPSE_TRY(list_sets(&f));
    for (; i < network->n_links && capacities[f.by_capacity[i]] == capacity; i++) {
      const struct copse_net_link *link = &network->links[f.by_capacity[i]];
      join(&f, link->src, link->dst);
    }
  }
  status = copse_template_cuts_list(network->n_nodes, f.members, f.n_members, f.n_cuts, out, err);
out:
  free(f.by_capacity);
  free(f.set);
  free(f.terminals);
  free(f.listed);
  free(f.across);
  free(f.place);
  free(f.members);
  if (status != COPSE_OK) copse_template_cuts_free(out);
  return status;
}
