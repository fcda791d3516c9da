/*
 * Symmetries of a topology. Without a search: whether a permutation is one, the rotation of hosts
 * that their names tell, and which nodes are alike under those found. Colour refinement, on which
 * searches stand. The search that keeps sets of nodes. docs/theory.md, "src/topology/symmetry/".
 */
#include "topology/symmetry/symmetry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "topology/policy.h"
#include "topology/symmetry/internal.h"

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

bool copse_symmetry_drop(struct copse_symmetry *symmetry, int n_ranks, int64_t most) {
  if (symmetry->n < 2) return false;
  struct copse_permutation *last = &symmetry->generators[symmetry->n - 1];
  int n_products = symmetry->n_products / last->order;
  if (n_ranks / n_products > most / n_ranks) return false;
  symmetry->n_products = n_products;
  symmetry->n--;
  symmetry->n_others++;
  last->order = 0;
  return true;
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

/* Counts the hosts that ids name; 0 where a rank is outside of hosts. Names give a rotation in a
 * pass over the nodes; a search would choose another: the turn by one rank where all are alike, or
 * one that mixes the hosts' planes. An alltoall has one rotation, by whole hosts, so that its base
 * flows are those of one host. */
static int count_hosts(const struct copse_topology *topology) {
  int most = -1, host;
  for (int v = 0; v < topology->n_nodes; v++) {
    (void)copse_host_prefix(topology->nodes[v].id, &host);
    if (host > most) most = host;
    if (host < 0 && topology->nodes[v].rank >= 0) return 0; /* a rank outside of hosts */
  }
  return most + 1;
}

/* Returns the node of that name in the next host, -1 where there is none. */
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

/* ==== colour refinement ======================================================================= */

/*
 * Colour refinement of two copies of a graph: a queue of cells that split others.
 *
 *   cells of left and right copies      splitter C: what each vertex sees of it is a sum of
 *   [ a b | a'b' ] [ c d e | c'd'e' ]   colours; a cell splits by these sums
 *                                        => [ c | c' ] [ d e | d'e' ], the smaller one queued
 *
 * Hopcroft's rule as Paige and Tarjan have it: Three Partition Refinement Algorithms (1987).
 */

/* A vertex next to the splitter, and the sum of the colours that it sees there. */
struct copse_refinement_hit {
  int vertex;
  uint64_t sum;
};

/* ---- making --------------------------------------------------------------------------------- */

static copse_status make_partition(struct copse_refinement *r, struct copse_partition *cells,
                                   struct copse_err *err) {
  size_t size = 2 * (size_t)r->n;
  int *all;
  COPSE_DO(COPSE_ARRAY(&r->arena, 5 * size, all, err));
  *cells =
      (struct copse_partition){all, all + size, all + 2 * size, all + 3 * size, all + 4 * size};
  return COPSE_OK;
}

static void copy_partition(int n, const struct copse_partition *from, struct copse_partition *to) {
  memcpy(to->elements, from->elements, 10 * (size_t)n * sizeof(int)); /* the five are one block */
}

void copse_refinement_keep(struct copse_refinement *r) {
  copy_partition(r->n, &r->cells, &r->base);
}

void copse_refinement_restore(struct copse_refinement *r) {
  copy_partition(r->n, &r->base, &r->cells);
}

COPSE_ORDER(compare_arcs, struct copse_refinement_arc,
            COPSE_UP(degree) ?: COPSE_UP(node) ?: COPSE_UP(colour))

/* Calls for every arc, from one end; `next` NULL: only counted, in r->first_arc[v + 2]. */
static void add_arc(struct copse_refinement *r, int *next, int u, int v, uint64_t colour) {
  if (next) {
    r->arcs[next[u]++] = (struct copse_refinement_arc){v, 0, colour};
    r->arcs[next[v]++] = (struct copse_refinement_arc){u, 0, copse_mix(colour)};
  } else {
    r->first_arc[u + 2]++;
    r->first_arc[v + 2]++;
  }
}

static void add_arcs(struct copse_refinement *r, int *next) {
  const struct copse_topology *t = r->topology;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    uint64_t colour = copse_mix(copse_mix((uint64_t)l->bandwidth.num) ^ (uint64_t)l->bandwidth.den);
    add_arc(r, next, l->src, l->dst, colour);
  }
  for (int i = 0; i < r->n_sets; i++)
    for (int k = 0; k < r->sets[i].n; k++)
      add_arc(r, next, r->sets[i].nodes[k], t->n_nodes + i, copse_mix(k == r->sets[i].root));
}

static copse_status list_arcs(struct copse_refinement *r, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)r->n + 2, r->first_arc, err));
  add_arcs(r, NULL);
  int *next = r->first_arc + 1; /* becomes first_arc once all arcs are added */
  for (int v = 0; v < r->n; v++) next[v + 1] += next[v];
  int n_arcs = next[r->n];
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)n_arcs, r->arcs, err));
  add_arcs(r, next);
  for (int a = 0; a < n_arcs; a++) {
    int v = r->arcs[a].node;
    r->arcs[a].degree = r->first_arc[v + 1] - r->first_arc[v];
  }
  for (int v = 0; v < r->n; v++)
    COPSE_SORT(r->arcs + r->first_arc[v], r->first_arc[v + 1] - r->first_arc[v], compare_arcs);
  return COPSE_OK;
}

copse_status copse_refinement_make(struct copse_refinement *r,
                                   const struct copse_topology *topology,
                                   const struct copse_node_set *sets, int n_sets,
                                   struct copse_err *err) {
  *r = (struct copse_refinement){
      .topology = topology, .sets = sets, .n_sets = n_sets, .n = topology->n_nodes + n_sets};
  size_t size = 2 * (size_t)r->n;
  COPSE_DO(list_arcs(r, err));
  COPSE_DO(make_partition(r, &r->cells, err));
  COPSE_DO(make_partition(r, &r->base, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, size + 1, r->queue.items, err));
  COPSE_DO(COPSE_ARRAYS(&r->arena, size, int, err, &r->hit_of, &r->hit_cells, &r->cell_hits,
                        &r->cell_start));
  COPSE_DO(COPSE_ARRAY(&r->arena, size, r->queued, err));
  COPSE_DO(COPSE_ARRAYS(&r->arena, size, struct copse_refinement_hit, err, &r->hits, &r->sorted));
  for (size_t v = 0; v < size; v++) r->hit_of[v] = -1;
  return COPSE_OK;
}

copse_status copse_refinement_commute(struct copse_refinement *r, const int *image,
                                      struct copse_err *err) {
  int *inverse;
  if (r->n_permutations == COPSE_REFINEMENT_PERMUTATIONS)
    return copse_fail(err, COPSE_INTERNAL, "more symmetries than are ever looked for");
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)r->n, inverse, err));
  copse_permutation_invert(image, r->n, inverse);
  r->images[r->n_permutations] = image;
  r->inverses[r->n_permutations++] = inverse;
  return COPSE_OK;
}

/* ---- splitting ------------------------------------------------------------------------------ */

static void enqueue(struct copse_refinement *r, int cell) {
  copse_queue_push_around(&r->queue, 2 * r->n + 1, cell);
  r->queued[cell] = 1;
}

static int dequeue(struct copse_refinement *r) {
  int cell = copse_queue_pop_around(&r->queue, 2 * r->n + 1);
  r->queued[cell] = 0;
  return cell;
}

static void hit(struct copse_refinement *r, int vertex, uint64_t colour, int *n_hits) {
  if (r->hit_of[vertex] < 0) {
    r->hit_of[vertex] = *n_hits;
    r->hits[(*n_hits)++] = (struct copse_refinement_hit){vertex, 0};
  }
  r->hits[r->hit_of[vertex]].sum += colour;
}

/* Collects what each vertex sees of the splitter. */
static int collect_hits(struct copse_refinement *r, int splitter) {
  const struct copse_partition *c = &r->cells;
  int n_hits = 0;
  for (int i = splitter; i < splitter + c->length[splitter]; i++) {
    int side = c->elements[i] >= r->n ? r->n : 0, v = c->elements[i] - side;
    for (int a = r->first_arc[v]; a < r->first_arc[v + 1]; a++)
      hit(r, r->arcs[a].node + side, r->arcs[a].colour, &n_hits);
    for (int p = 0; p < r->n_permutations; p++) {
      hit(r, r->images[p][v] + side, copse_mix((uint64_t)p), &n_hits);
      hit(r, r->inverses[p][v] + side, copse_mix(~(uint64_t)p), &n_hits);
    }
    r->work += r->first_arc[v + 1] - r->first_arc[v] + 2 * r->n_permutations;
  }
  for (int i = 0; i < n_hits; i++) r->hit_of[r->hits[i].vertex] = -1;
  return n_hits;
}

COPSE_ORDER(compare_hits, struct copse_refinement_hit, COPSE_UP(sum) ?: COPSE_UP(vertex))

/* Sorts the hits by cell in r->sorted, cells in r->hit_cells, how many each in r->cell_hits;
 * returns how many cells. */
static int sort_by_cell(struct copse_refinement *r, int n) {
  const int *cell = r->cells.cell;
  int n_cells = 0, next = 0;
  for (int i = 0; i < n; i++)
    if (r->cell_hits[cell[r->hits[i].vertex]]++ == 0)
      r->hit_cells[n_cells++] = cell[r->hits[i].vertex];
  for (int i = 0; i < n_cells; i++) {
    r->cell_start[r->hit_cells[i]] = next;
    next += r->cell_hits[r->hit_cells[i]];
  }
  for (int i = 0; i < n; i++) r->sorted[r->cell_start[cell[r->hits[i].vertex]]++] = r->hits[i];
  return n_cells;
}

/* Sorts hits unless all are the same, as they mostly are. */
static void sort_by_sum(struct copse_refinement_hit *hits, int n) {
  int i = 1;
  while (i < n && hits[i].sum == hits[0].sum) i++;
  if (i < n) COPSE_SORT(hits, n, compare_hits);
}

/* Moves n vertices of a cell to a new one at its end; false if that is not half left, half
 * right. */
static bool split_off(struct copse_refinement *r, int cell, const struct copse_refinement_hit *hits,
                      int n) {
  struct copse_partition *c = &r->cells;
  int lefts = 0, made = cell + c->length[cell] - n;
  for (int i = 0; i < n; i++) { /* to the places from `made` on */
    int vertex = hits[i].vertex, from = c->place[vertex], to = made + n - 1 - i;
    int other = c->elements[to];
    c->elements[from] = other;
    c->place[other] = from;
    c->elements[to] = vertex;
    c->place[vertex] = to;
    c->cell[vertex] = made;
    lefts += vertex < r->n;
  }
  c->length[made] = n;
  c->lefts[made] = lefts;
  c->length[cell] -= n;
  c->lefts[cell] -= lefts;
  return 2 * lefts == n;
}

/* Splits one cell by the sums of its vertices that were hit, which are sorted. All parts split
 * others in turn, but for the largest: what is seen of it follows from the rest. */
static bool split_cell(struct copse_refinement *r, int cell,
                       const struct copse_refinement_hit *hits, int n) {
  const int *length = r->cells.length;
  int past = cell + length[cell], largest = cell;
  bool good = true, whole = n == length[cell];
  for (int end, i = 0; i < n && good; i = end) {
    for (end = i + 1; end < n && hits[end].sum == hits[i].sum;) end++;
    if (end == n && whole) break; /* the last keep the cell where all were hit */
    good = split_off(r, cell, hits + i, end - i);
  }
  for (int part = cell; part < past; part += length[part])
    if (length[part] > length[largest]) largest = part;
  if (r->queued[cell]) largest = -1; /* what is seen of the whole is not known yet */
  for (int part = cell; part < past; part += length[part])
    if (part != largest && !r->queued[part]) enqueue(r, part);
  return good;
}

static bool split_by(struct copse_refinement *r, int splitter) {
  struct copse_refinement_hit *hits = r->sorted;
  int n_cells = sort_by_cell(r, collect_hits(r, splitter));
  bool good = true;
  for (int i = 0; i < n_cells; i++) {
    int cell = r->hit_cells[i], n = r->cell_hits[cell];
    r->cell_hits[cell] = 0;
    if (good) {
      sort_by_sum(hits, n);
      good = split_cell(r, cell, hits, n);
    }
    hits += n;
  }
  return good;
}

static bool refine(struct copse_refinement *r) {
  bool good = true;
  while (!copse_queue_is_empty(&r->queue)) {
    int splitter = dequeue(r);
    if (good) good = split_by(r, splitter);
  }
  return good;
}

/* ---- partitions ----------------------------------------------------------------------------- */

/* Sets come behind all kinds of nodes. */
#define NODE_KINDS 8
static int kind_of(const struct copse_refinement *r, int v) {
  const struct copse_topology *t = r->topology;
  if (v >= t->n_nodes) return NODE_KINDS + r->sets[v - t->n_nodes].kind;
  const struct copse_node *node = &t->nodes[v];
  return (node->rank >= 0) | node->multicast << 1 | node->aggregation << 2;
}

void copse_refinement_start(struct copse_refinement *r) {
  struct copse_partition *c = &r->cells;
  int n = 0, n_kinds = NODE_KINDS;
  for (int i = 0; i < r->n_sets; i++)
    if (NODE_KINDS + r->sets[i].kind >= n_kinds) n_kinds = NODE_KINDS + r->sets[i].kind + 1;
  for (int kind = 0; kind < n_kinds; kind++) {
    int first = n;
    for (int i = 0; i < 2 * r->n; i++) {
      if (kind_of(r, i % r->n) != kind) continue;
      c->elements[n] = i;
      c->place[i] = n++;
      c->cell[i] = first;
    }
    if (n == first) continue;
    c->length[first] = n - first;
    c->lefts[first] = (n - first) / 2;
    enqueue(r, first);
  }
  refine(r); /* both copies are the same: nothing to tell them apart */
}

bool copse_refinement_pair(struct copse_refinement *r, int left, int right) {
  struct copse_refinement_hit pair[2] = {{.vertex = left}, {.vertex = r->n + right}};
  int cell = r->cells.cell[left];
  if (!copse_refinement_may_go(r, left, right)) return false;
  if (r->cells.length[cell] == 2) return true;
  split_off(r, cell, pair, 2);
  enqueue(r, r->cells.cell[left]);
  return refine(r);
}

/* ==== symmetries that keep sets of nodes ====================================================== */

/*
 * Symmetries that keep sets of nodes: the groups of ranks at work on one fabric. Two ranks that
 * look alike are made a pair; as long as refinement leaves a rank several images, it gets the one
 * as far on in number as the first pair's, or the next one. The permutation is checked on links and
 * sets.
 *
 *   groups {0 1} {2 3}, all alike: try 0 -> 1   =>  0 <-> 1          orbits {0 1} {2} {3}
 *                                  then 0 -> 2  =>  0 -> 2, 1 -> 3   orbits {0 1 2 3}
 */

struct finder {
  const struct copse_topology *topology;
  const struct copse_node_set *sets;
  int n_sets, n_nodes;
  struct copse_refinement *refinement;
  int *orbit;          /* [n_nodes] the least that a node is an image of */
  int *mark;           /* [n_nodes] 1 + the set that was last taken here */
  bool *taken;         /* [n_sets] */
  int *image, *groups; /* [n_nodes], [n_sets] where the candidate takes them */
  int n_tried, n_failed;
  struct copse_symmetry *found;
  struct copse_err *err;
};

/* ---- candidates ---------------------------------------------------------------------------- */

/* Chooses among several that look alike: a rank goes where the turn takes it, or to the next
 * possible rank, so that the result moves many ranks by the same turn; a relay goes to the first
 * node. */
static int choose(const struct finder *f, int from, int turn) {
  const struct copse_partition *cells = &f->refinement->cells;
  const struct copse_node *nodes = f->topology->nodes;
  int n_ranks = f->topology->n_ranks, cell = cells->cell[from], best = -1, least = 0;
  for (int i = cell; i < cell + cells->length[cell]; i++) {
    int to = cells->elements[i] - f->refinement->n;
    if (to < 0) continue;
    int off = nodes[from].rank < 0
                  ? to
                  : (nodes[to].rank - nodes[from].rank - turn + 2 * n_ranks) % n_ranks;
    if (best >= 0 && off >= least) continue;
    best = to;
    least = off;
  }
  return best;
}

/* Chooses a node's image if more than one node may be it. */
static bool settle(struct finder *f, int node, int turn) {
  return copse_refinement_image(f->refinement, node) >= 0 ||
         copse_refinement_pair(f->refinement, node, choose(f, node, turn));
}

/* Finds an image of all nodes that takes node `from` to node `to`, if refinement leads to one. */
static bool match(struct finder *f, int from, int to, int *image) {
  const struct copse_topology *t = f->topology;
  int turn = t->nodes[to].rank - t->nodes[from].rank; /* 0 of relays */
  copse_refinement_restore(f->refinement);
  if (!copse_refinement_pair(f->refinement, from, to)) return false;
  for (int r = 0; r < t->n_ranks; r++)
    if (!settle(f, t->rank_nodes[r], turn)) return false;
  for (int v = 0; v < f->n_nodes; v++)
    if (!settle(f, v, turn)) return false;
  for (int v = 0; v < f->n_nodes; v++) image[v] = copse_refinement_image(f->refinement, v);
  return true;
}

/* ---- images of sets ---------------------------------------------------------------------- */

static bool is_image(const struct finder *f, const int *image, int from, int to) {
  const struct copse_node_set *a = &f->sets[from], *b = &f->sets[to];
  if (a->kind != b->kind || a->n != b->n) return false;
  for (int i = 0; i < b->n; i++)
    if (f->mark[b->nodes[i]] != from + 1) return false;
  return a->root < 0 || image[a->nodes[a->root]] == b->nodes[b->root];
}

/* Sets that are the same go to such in their order. */
static bool map_sets(struct finder *f, const int *image, int *to) {
  memset(f->mark, 0, (size_t)f->n_nodes * sizeof *f->mark);
  memset(f->taken, 0, (size_t)f->n_sets * sizeof *f->taken);
  for (int g = 0; g < f->n_sets; g++) {
    int h = 0;
    for (int i = 0; i < f->sets[g].n; i++) f->mark[image[f->sets[g].nodes[i]]] = g + 1;
    while (h < f->n_sets && (f->taken[h] || !is_image(f, image, g, h))) h++;
    if (h == f->n_sets) return false;
    f->taken[h] = true;
    to[g] = h;
  }
  return true;
}

/* ---- search -------------------------------------------------------------------------------- */

static copse_status try_match(struct finder *f, int from, int to) {
  const struct copse_permutation by = {.image = f->image, .groups = f->groups};
  bool good = match(f, from, to, f->image);
  f->n_tried++;
  if (good) COPSE_DO(copse_topology_is_automorphism(f->topology, f->image, &good, f->err));
  good = good && map_sets(f, f->image, f->groups);
  f->n_failed += !good;
  if (!good) return COPSE_OK;
  for (int v = 0; v < f->n_nodes; v++) copse_sets_unite(f->orbit, v, f->image[v]);
  return copse_symmetry_add(f->found, by, f->n_nodes, f->n_sets, f->err);
}

/* Joins ranks, or else relays, that look alike and are no images of each other yet. */
static copse_status join_alike(struct finder *f, bool ranks) {
  const int *cell = f->refinement->base.cell;
  for (int w = 0; w < f->n_nodes; w++)
    for (int v = 0; v < w && f->orbit[w] == w; v++) {
      if (f->n_tried >= MOST_IMAGES_TRIED || f->n_failed >= MOST_IMAGES_FAILED) return COPSE_OK;
      if (cell[v] == cell[w] && (f->topology->nodes[v].rank >= 0) == ranks && f->orbit[v] == v)
        COPSE_DO(try_match(f, v, w));
    }
  return COPSE_OK;
}

static copse_status prepare(struct finder *f) {
  size_t nodes = (size_t)f->n_nodes, sets = (size_t)f->n_sets;
  COPSE_DO(copse_refinement_make(f->refinement, f->topology, f->sets, f->n_sets, f->err));
  COPSE_DO(COPSE_ARRAYS(&f->refinement->arena, nodes, int, f->err, &f->orbit, &f->mark, &f->image));
  COPSE_DO(COPSE_ARRAY(&f->refinement->arena, sets, f->groups, f->err));
  COPSE_DO(COPSE_ARRAY(&f->refinement->arena, sets, f->taken, f->err));
  copse_sets_init(f->orbit, f->n_nodes);
  return COPSE_OK;
}

static copse_status search(struct finder *f) {
  const struct copse_topology *t = f->topology;
  COPSE_DO(prepare(f));
  copse_refinement_start(f->refinement);
  copse_refinement_keep(f->refinement);
  COPSE_DO(join_alike(f, true));
  /* with all ranks in their places, parallel switches */
  copse_refinement_restore(f->refinement);
  for (int r = 0; r < t->n_ranks; r++)
    (void)copse_refinement_pair(f->refinement, t->rank_nodes[r], t->rank_nodes[r]);
  copse_refinement_keep(f->refinement);
  f->n_failed = 0;
  return join_alike(f, false);
}

copse_status copse_topology_set_symmetries(const struct copse_topology *topology,
                                           const struct copse_node_set *sets, int n_sets,
                                           struct copse_symmetry *out, struct copse_err *err) {
  COPSE_AT_END(copse_refinement_free) struct copse_refinement refinement = {0};
  struct finder f = {.refinement = &refinement,
                     .topology = topology,
                     .sets = sets,
                     .n_sets = n_sets,
                     .n_nodes = topology->n_nodes,
                     .found = out,
                     .err = err};
  *out = (struct copse_symmetry){.n_products = 1};
  copse_status status = search(&f);
  if (status != COPSE_OK) copse_symmetry_free(out);
  return status;
}
