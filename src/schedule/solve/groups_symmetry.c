#include "schedule/solve/groups_symmetry.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/symmetry/symmetry.h"

#define MOST_TRIED 100
#define MOST_FAILED 24 /* ranks that look alike and are not: few more will be */

struct coloured {
  uint64_t colour;
  int node;
};

struct finder {
  const struct copse_topology *topology;
  const struct copse_group *groups;
  int n_groups, n_nodes;
  uint64_t *link_colour;      /* [n_links] */
  uint64_t *base;             /* [n_nodes] what all candidates keep */
  uint64_t *colours[2];       /* [n_nodes] before and after */
  struct coloured *sorted[2]; /* [n_nodes] by colour */
  uint64_t *sums;             /* [n_nodes] scratch */
  int *orbit;                 /* [n_nodes] the least that a node is an image of */
  int n_tried, n_failed;
  struct copse_groups_symmetry *found;
  size_t n_found, capacity;
  struct copse_err *err;
};

static uint64_t mix(uint64_t x) { /* splitmix64's finaliser */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* ---- colours ------------------------------------------------------------------------------- */

/* A round of refinement. A collision of hashes costs a candidate, which is checked. */
static void refine(struct finder *f, uint64_t *colours) {
  const struct copse_topology *t = f->topology;
  memset(f->sums, 0, (size_t)f->n_nodes * sizeof *f->sums);
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *link = &t->links[e];
    f->sums[link->src] += mix(colours[link->dst] ^ f->link_colour[e]);
    f->sums[link->dst] += mix((colours[link->src] ^ f->link_colour[e]) + 1);
  }
  for (int g = 0; g < f->n_groups; g++) {
    const struct copse_group *group = &f->groups[g];
    uint64_t sum = mix((uint64_t)group->collective);
    for (int i = 0; i < group->n; i++) sum += mix(colours[group->nodes[i]] + (i == group->root));
    sum = mix(sum);
    for (int i = 0; i < group->n; i++) f->sums[group->nodes[i]] += mix(sum + (i == group->root));
  }
  for (int v = 0; v < f->n_nodes; v++) colours[v] = mix(colours[v] ^ mix(f->sums[v]));
}

static int compare_coloured(const void *a, const void *b) {
  const struct coloured *x = a, *y = b;
  if (x->colour != y->colour) return x->colour < y->colour ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

/* How many colours there are. */
static int sort_side(struct finder *f, int side) {
  struct coloured *sorted = f->sorted[side];
  int distinct = 0;
  for (int v = 0; v < f->n_nodes; v++) sorted[v] = (struct coloured){f->colours[side][v], v};
  qsort(sorted, (size_t)f->n_nodes, sizeof *sorted, compare_coloured);
  for (int i = 0; i < f->n_nodes; i++)
    distinct += i == 0 || sorted[i].colour != sorted[i - 1].colour;
  return distinct;
}

/* Until no round tells more apart. *distinct: how many colours; false where the sides differ. */
static bool settle(struct finder *f, int *distinct) {
  int before;
  *distinct = -1;
  do {
    before = *distinct;
    for (int side = 0; side < 2; side++) refine(f, f->colours[side]);
    *distinct = sort_side(f, 0);
    if (sort_side(f, 1) != *distinct) return false;
  } while (*distinct != before);
  for (int i = 0; i < f->n_nodes; i++)
    if (f->sorted[0][i].colour != f->sorted[1][i].colour) return false;
  return true;
}

/* ---- candidates ---------------------------------------------------------------------------- */

static void tell_apart(struct finder *f, int from, int to) {
  f->colours[0][from] = f->colours[1][to] = mix(f->colours[0][from] + 3);
}

/* Of several that look alike: a rank before a relay, and to where the first one's turn takes it or
 * next to that, so that what comes out turns much. */
static void tell_more_apart(struct finder *f, int turn) {
  const struct copse_topology *t = f->topology;
  int n_ranks = t->n_ranks, from = -1, to = -1, least = n_ranks;
  for (int i = 0; i < f->n_nodes; i++) {
    const struct coloured *c = &f->sorted[0][i];
    bool alone =
        (i == 0 || c[-1].colour != c->colour) && (i + 1 == f->n_nodes || c[1].colour != c->colour);
    if (alone) continue;
    int a = from < 0 || t->nodes[from].rank < 0 ? n_ranks : t->nodes[from].rank;
    int b = t->nodes[c->node].rank < 0 ? n_ranks : t->nodes[c->node].rank;
    if (from < 0 || b < a || (a == b && c->node < from)) from = c->node;
  }
  for (int i = 0; i < f->n_nodes; i++) {
    const struct coloured *c = &f->sorted[1][i];
    if (c->colour != f->colours[0][from]) continue;
    int off = t->nodes[from].rank < 0
                  ? 0
                  : (t->nodes[c->node].rank - t->nodes[from].rank - turn + 2 * n_ranks) % n_ranks;
    if (to < 0 || off < least) to = c->node;
    if (off < least) least = off;
  }
  tell_apart(f, from, to);
}

/* An image of all nodes that takes one to the other, if the colours find one. */
static bool match(struct finder *f, int from, int to, int *image) {
  int distinct;
  int turn = f->topology->nodes[to].rank - f->topology->nodes[from].rank; /* 0 of relays */
  for (int side = 0; side < 2; side++)
    memcpy(f->colours[side], f->base, (size_t)f->n_nodes * sizeof *f->base);
  tell_apart(f, from, to);
  for (;;) {
    if (!settle(f, &distinct)) return false;
    if (distinct == f->n_nodes) break;
    tell_more_apart(f, turn);
  }
  for (int i = 0; i < f->n_nodes; i++) image[f->sorted[0][i].node] = f->sorted[1][i].node;
  return true;
}

/* ---- what becomes of groups ---------------------------------------------------------------- */

static bool is_image(const struct finder *f, const int *image, int from, int to, const int *mark) {
  const struct copse_group *a = &f->groups[from], *b = &f->groups[to];
  if (a->collective != b->collective || a->n != b->n) return false;
  for (int i = 0; i < b->n; i++)
    if (mark[b->nodes[i]] != from + 1) return false;
  return a->root < 0 || image[a->nodes[a->root]] == b->nodes[b->root];
}

/* Groups that are the same go to such in their order. */
static copse_status map_groups(struct finder *f, const int *image, int *to, bool *good) {
  int *mark = NULL;
  bool *taken = NULL;
  copse_status status;
  *good = true;
  COPSE_TRY(copse_calloc((size_t)f->n_nodes, sizeof *mark, &mark, f->err));
  COPSE_TRY(copse_calloc((size_t)f->n_groups, sizeof *taken, &taken, f->err));
  for (int g = 0; g < f->n_groups && *good; g++) {
    int h = 0;
    for (int i = 0; i < f->groups[g].n; i++) mark[image[f->groups[g].nodes[i]]] = g + 1;
    while (h < f->n_groups && (taken[h] || !is_image(f, image, g, h, mark))) h++;
    *good = h < f->n_groups;
    to[g] = h;
    if (*good) taken[h] = true;
  }
out:
  free(mark);
  free(taken);
  return status;
}

/* ---- search -------------------------------------------------------------------------------- */

static int find(int *orbit, int v) {
  while (orbit[v] != v) v = orbit[v] = orbit[orbit[v]];
  return v;
}

static void join_images(struct finder *f, const int *image) {
  for (int v = 0; v < f->n_nodes; v++) {
    int a = find(f->orbit, v), b = find(f->orbit, image[v]);
    f->orbit[a > b ? a : b] = a > b ? b : a;
  }
}

static copse_status try_match(struct finder *f, int from, int to) {
  struct copse_groups_symmetry s = {0};
  bool good;
  copse_status status;
  f->n_tried++;
  COPSE_TRY(copse_calloc((size_t)f->n_nodes, sizeof(int), &s.nodes, f->err));
  COPSE_TRY(copse_calloc((size_t)f->n_groups, sizeof(int), &s.groups, f->err));
  good = match(f, from, to, s.nodes);
  if (good) COPSE_TRY(copse_topology_is_automorphism(f->topology, s.nodes, &good, f->err));
  if (good) COPSE_TRY(map_groups(f, s.nodes, s.groups, &good));
  f->n_failed += !good;
  if (!good) goto out;
  COPSE_TRY(copse_grow(&f->found, &f->capacity, f->n_found + 1, sizeof *f->found, f->err));
  join_images(f, s.nodes);
  f->found[f->n_found++] = s;
  return COPSE_OK;
out:
  free(s.nodes);
  free(s.groups);
  return status;
}

/* Ranks, or else relays, that look alike and are no images of each other yet. */
static copse_status join_alike(struct finder *f, bool ranks) {
  const struct copse_topology *t = f->topology;
  copse_status status = COPSE_OK;
  int distinct;
  for (int side = 0; side < 2; side++)
    memcpy(f->colours[side], f->base, (size_t)f->n_nodes * sizeof *f->base);
  if (!settle(f, &distinct)) goto out;
  memcpy(f->base, f->colours[0], (size_t)f->n_nodes * sizeof *f->base);
  for (int w = 0; w < f->n_nodes; w++)
    for (int v = 0; v < w && find(f->orbit, w) == w; v++) {
      if (f->n_tried >= MOST_TRIED || f->n_failed >= MOST_FAILED) goto out;
      if (f->base[v] == f->base[w] && (t->nodes[v].rank >= 0) == ranks && find(f->orbit, v) == v)
        COPSE_TRY(try_match(f, v, w));
    }
out:
  return status;
}

static copse_status prepare(struct finder *f) {
  const struct copse_topology *t = f->topology;
  size_t nodes = (size_t)t->n_nodes;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)t->n_links, sizeof(uint64_t), &f->link_colour, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->base, f->err));
  for (int side = 0; side < 2; side++) {
    COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->colours[side], f->err));
    COPSE_TRY(copse_calloc(nodes, sizeof(struct coloured), &f->sorted[side], f->err));
  }
  COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->sums, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof(int), &f->orbit, f->err));
  for (int e = 0; e < t->n_links; e++)
    f->link_colour[e] =
        mix(mix((uint64_t)t->links[e].bandwidth.num) ^ (uint64_t)t->links[e].bandwidth.den);
  for (int v = 0; v < t->n_nodes; v++) {
    f->base[v] = mix((uint64_t)(t->nodes[v].rank >= 0));
    f->orbit[v] = v;
  }
out:
  return status;
}

copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_groups_symmetry **out, int *n_out,
                                     struct copse_err *err) {
  struct finder f = {.topology = topology,
                     .groups = groups,
                     .n_groups = n,
                     .n_nodes = topology->n_nodes,
                     .err = err};
  copse_status status;
  COPSE_TRY(prepare(&f));
  COPSE_TRY(join_alike(&f, true));
  /* with all ranks in their places, parallel switches */
  for (int r = 0; r < topology->n_ranks; r++)
    f.base[topology->rank_nodes[r]] = mix((uint64_t)r + 8);
  f.n_failed = 0;
  COPSE_TRY(join_alike(&f, false));
  *out = f.found;
  *n_out = (int)f.n_found;
  f.found = NULL;
out:
  free(f.link_colour);
  free(f.base);
  free(f.sums);
  free(f.orbit);
  for (int side = 0; side < 2; side++) {
    free(f.colours[side]);
    free(f.sorted[side]);
  }
  copse_groups_symmetries_free(f.found, (int)f.n_found);
  return status;
}

void copse_groups_symmetries_free(struct copse_groups_symmetry *symmetries, int n) {
  for (int i = 0; symmetries && i < n; i++) {
    free(symmetries[i].nodes);
    free(symmetries[i].groups);
  }
  free(symmetries);
}
