/*
 * Colour refinement of two copies of a graph: a queue of cells that split others.
 *
 *   cells of left and right copies      splitter C: what each vertex sees of it is a sum of
 *   [ a b | a'b' ] [ c d e | c'd'e' ]   colours; a cell splits by these sums
 *                                        => [ c | c' ] [ d e | d'e' ], the smaller one queued
 *
 * Hopcroft's rule as Paige and Tarjan have it: Three Partition Refinement Algorithms (1987).
 */
#include "topology/symmetry/refinement.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"

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

static int compare_arcs(const void *a, const void *b) {
  const struct copse_refinement_arc *x = a, *y = b;
  if (x->degree != y->degree) return x->degree < y->degree ? -1 : 1;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  return (x->colour > y->colour) - (x->colour < y->colour);
}

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
  int *next = r->first_arc + 1; /* first_arc itself, once all are there */
  for (int v = 0; v < r->n; v++) next[v + 1] += next[v];
  int n_arcs = next[r->n];
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)n_arcs, r->arcs, err));
  add_arcs(r, next);
  for (int a = 0; a < n_arcs; a++) {
    int v = r->arcs[a].node;
    r->arcs[a].degree = r->first_arc[v + 1] - r->first_arc[v];
  }
  for (int v = 0; v < r->n; v++)
    qsort(r->arcs + r->first_arc[v], (size_t)(r->first_arc[v + 1] - r->first_arc[v]),
          sizeof *r->arcs, compare_arcs);
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
  COPSE_DO(COPSE_ARRAYS(&r->arena, size, int, err, &r->queue, &r->hit_of, &r->hit_cells,
                        &r->cell_hits, &r->cell_start));
  COPSE_DO(COPSE_ARRAY(&r->arena, size, r->queued, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, size, r->hits, err));
  COPSE_DO(COPSE_ARRAY(&r->arena, size, r->sorted, err));
  for (size_t v = 0; v < size; v++) r->hit_of[v] = -1;
  return COPSE_OK;
}

void copse_refinement_free(struct copse_refinement *r) { copse_arena_free(&r->arena); }

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
  r->queue[(r->queue_head + r->n_queued++) % (2 * r->n)] = cell;
  r->queued[cell] = 1;
}

static int dequeue(struct copse_refinement *r) {
  int cell = r->queue[r->queue_head];
  r->queue_head = (r->queue_head + 1) % (2 * r->n);
  r->n_queued--;
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

/* What each vertex sees of the splitter. */
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

static int compare_hits(const void *a, const void *b) {
  const struct copse_refinement_hit *x = a, *y = b;
  if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
  return (x->vertex > y->vertex) - (x->vertex < y->vertex);
}

/* The hits by cell in r->sorted, cells in r->hit_cells, how many each in r->cell_hits; returns how
 * many cells. */
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

/* As a rule all are the same: no need to sort them. */
static void sort_by_sum(struct copse_refinement_hit *hits, int n) {
  int i = 1;
  while (i < n && hits[i].sum == hits[0].sum) i++;
  if (i < n) qsort(hits, (size_t)n, sizeof *hits, compare_hits);
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
  while (r->n_queued > 0) {
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

int copse_refinement_image(const struct copse_refinement *r, int left) {
  const struct copse_partition *c = &r->cells;
  int cell = c->cell[left];
  if (c->length[cell] != 2) return -1;
  int other = c->elements[cell] == left ? c->elements[cell + 1] : c->elements[cell];
  return other - r->n;
}
