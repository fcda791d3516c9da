#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/symmetry/internal.h"

/* Arcs looked at for generators, and again for other automorphisms: so many times those that there
 * are, within bounds; a part as many for turns by number. */
#define MOST_ROUNDS 256
#define LEAST_WORK 200000
#define MOST_WORK 100000000
#define PART_FOR_TURNS 4
/* First images of different kinds tried for one generator, and other choices after each. */
#define MOST_KINDS 32
#define MOST_CHOICES 8
/* Ranks looked at to tell whether all are moved as far. */
#define SAMPLE 32
/* Automorphisms that only join orbits, and ranks that seem alike but are not shown to be. */
#define MOST_OTHERS 64
#define MOST_FAILED 16

/* ---- orbits --------------------------------------------------------------------------------- */

static int find_first(int *orbit, int v) {
  while (orbit[v] != v) v = orbit[v] = orbit[orbit[v]];
  return v;
}

/* The orbits, joined as the candidate joins them. */
static void join_orbits(struct copse_searcher *s) {
  int n = s->topology->n_nodes;
  memcpy(s->joined, s->orbit, (size_t)n * sizeof *s->joined);
  for (int v = 0; v < n; v++) {
    int a = find_first(s->joined, v), b = find_first(s->joined, s->image[v]);
    if (a < b) s->joined[b] = a;
    if (b < a) s->joined[a] = b;
  }
  for (int v = 0; v < n; v++) s->joined[v] = find_first(s->joined, v);
}

/* The candidate and its orbits become those found. */
static copse_status take(struct copse_searcher *s, struct copse_symmetry_generator **list, int *n,
                         size_t *capacity, int order) {
  int *swap = s->orbit;
  copse_status status;
  COPSE_TRY(copse_grow(list, capacity, (size_t)*n + 1, sizeof **list, s->err));
  (*list)[(*n)++] = (struct copse_symmetry_generator){order, s->image};
  s->orbit = s->joined;
  s->joined = swap;
  s->image = NULL;
  status = copse_calloc((size_t)s->topology->n_nodes, sizeof *s->image, &s->image, s->err);
out:
  return status;
}

static void start_again(struct copse_searcher *s) {
  copse_refinement_start(&s->refinement);
  copse_partition_copy(s->topology->n_nodes, &s->refinement.cells, &s->base);
}

/* ---- generators ----------------------------------------------------------------------------- */

/* A product of commuting turns that join all of an orbit moves each of it as far. What does not
 * is left out at first, before it stands in the way of such. */
static bool is_welcome(struct copse_searcher *s) {
  const struct copse_topology *t = s->topology;
  const int *cell = s->base.cell;
  int step = t->n_ranks / SAMPLE + 1;
  if (!s->evenly) return true;
  int far = copse_candidate_distance(s, s->first, s->image[s->first]);
  for (int r = 0; r < t->n_ranks; r += step) {
    int v = t->rank_nodes[r];
    if (cell[v] == cell[s->first] && copse_candidate_distance(s, v, s->image[v]) != far)
      return false;
  }
  return true;
}

static bool commutes(const struct copse_searcher *s) {
  for (int g = 0; g < s->out->n; g++) {
    const int *other = s->out->generators[g].image;
    for (int v = 0; v < s->topology->n_nodes; v++)
      if (other[s->image[v]] != s->image[other[v]]) return false;
  }
  return true;
}

/* Whether `order` times the candidate change nothing. */
static bool has_order(struct copse_searcher *s, int order) {
  s->n_cycles++;
  for (int v = 0; v < s->topology->n_nodes; v++) {
    int length = 0;
    for (int u = v; s->visited[u] != s->n_cycles; u = s->image[u], length++)
      s->visited[u] = s->n_cycles;
    if (length > 0 && order % length != 0) return false;
  }
  return true;
}

/* Whether the products with the candidate move no rank onto itself: as many as there are, as
 * large is every orbit. */
static bool moves_all(struct copse_searcher *s, int order) {
  const struct copse_topology *t = s->topology;
  int64_t n_products = (int64_t)s->out->n_products * order;
  int *size = s->queue;
  join_orbits(s);
  memset(size, 0, (size_t)t->n_nodes * sizeof *size);
  for (int r = 0; r < t->n_ranks; r++) size[s->joined[t->rank_nodes[r]]]++;
  for (int r = 0; r < t->n_ranks; r++)
    if (size[s->joined[t->rank_nodes[r]]] != n_products) return false;
  return true;
}

/* The candidate becomes a generator if it is one. */
static copse_status take_generator(struct copse_searcher *s, int order, bool *good) {
  struct copse_symmetry *out = s->out;
  copse_status status = copse_topology_is_automorphism(s->topology, s->image, good, s->err);
  if (status != COPSE_OK || !*good) return status;
  *good = has_order(s, order) && commutes(s) && moves_all(s, order);
  if (!*good) return COPSE_OK;
  COPSE_TRY(take(s, &out->generators, &out->n, &s->capacity, order));
  out->n_products *= order;
  COPSE_TRY(copse_refinement_commute(&s->refinement, out->generators[out->n - 1].image, s->err));
  start_again(s);
out:
  return status;
}

/* ---- turns by number ------------------------------------------------------------------------ */

/* Every block of `block` ranks by `step`, if what is alike allows it. */
static copse_status try_turn(struct copse_searcher *s, int block, int step, bool *good) {
  const struct copse_topology *t = s->topology;
  *good = false;
  memset(s->image, -1, (size_t)t->n_nodes * sizeof *s->image);
  for (int r = 0; r < t->n_ranks; r++) {
    int from = t->rank_nodes[r], to = t->rank_nodes[r - r % block + (r % block + step) % block];
    if (s->base.cell[from] != s->base.cell[to]) return COPSE_OK;
    s->image[from] = to;
  }
  if (!copse_candidate_of_ranks(s, block / step) || !is_welcome(s)) return COPSE_OK;
  return take_generator(s, block / step, good);
}

static int next_divisor(int n, int below) {
  int d = below - 1;
  while (d > 1 && n % d != 0) d--;
  return d;
}

/*
 * From the largest blocks to the smallest. Within blocks of B the smallest step that holds makes
 * the largest orbits; what is left to be moved are blocks of that step.
 */
static copse_status find_turns(struct copse_searcher *s) {
  int n = s->topology->n_ranks;
  copse_status status = COPSE_OK;
  for (int block = n; block > 1 && !copse_candidate_over(s);) {
    bool good = false;
    int step = 1;
    for (; step < block && !good; step++)
      if (block % step == 0) COPSE_TRY(try_turn(s, block, step, &good));
    block = good ? step - 1 : next_divisor(n, block);
  }
out:
  return status;
}

/* ---- turns by kind -------------------------------------------------------------------------- */

typedef copse_status try_function(struct copse_searcher *s, int from, int to, bool *found);

static copse_status try_generator(struct copse_searcher *s, int from, int to, bool *found) {
  int order;
  *found = copse_candidate_from(s, from, to, &order) && order > 1 && is_welcome(s);
  return *found ? take_generator(s, order, found) : COPSE_OK;
}

/* One first image, with all ways of going on from there. */
static copse_status try_all_ways(struct copse_searcher *s, int from, int to, try_function *try,
                                 bool *found) {
  bool more = true;
  copse_status status = COPSE_OK;
  *found = false;
  for (s->skip = 0; s->skip < MOST_CHOICES && more; s->skip++) {
    more = false;
    for (s->closing = COPSE_CLOSE_LATE; s->closing <= COPSE_CLOSE_EARLY; s->closing++) {
      if (copse_candidate_over(s)) return COPSE_OK;
      COPSE_TRY(try(s, from, to, found));
      if (*found) return COPSE_OK;
      more = more || s->skipped;
    }
  }
out:
  return status;
}

/* One rank of every kind that `first` may go to, the nearest first; returns how many. A kind is
 * a cell of what leaves `first` in place: all of it is alike for a first image. */
static int list_kinds(struct copse_searcher *s, int *kinds) {
  const struct copse_partition *cells = &s->refinement.cells;
  int n_kinds = 0;
  copse_partition_copy(s->topology->n_nodes, &s->base, &s->refinement.cells);
  if (!copse_refinement_pair(&s->refinement, s->first, s->first)) return 0;
  int n = copse_candidate_walk(s, s->first);
  s->n_cycles++;
  for (int i = 0; i < n && n_kinds < MOST_KINDS; i++) {
    int u = s->queue[i], kind = cells->elements[cells->cell[u]] % s->topology->n_nodes;
    if (s->base.cell[u] != s->base.cell[s->first] || s->orbit[u] == s->orbit[s->first] ||
        s->visited[kind] == s->n_cycles)
      continue;
    s->visited[kind] = s->n_cycles;
    kinds[n_kinds++] = u;
  }
  return n_kinds;
}

/* At most `most` products. */
static copse_status find_generators(struct copse_searcher *s, int most) {
  int kinds[MOST_KINDS];
  bool found = true;
  copse_status status = COPSE_OK;
  while (found && s->out->n_products < most) {
    int n = list_kinds(s, kinds);
    found = false;
    for (int i = 0; i < n && !found; i++)
      COPSE_TRY(try_all_ways(s, s->first, kinds[i], try_generator, &found));
  }
out:
  return status;
}

/* ---- orbits that the products leave apart --------------------------------------------------- */

static copse_status try_other(struct copse_searcher *s, int from, int to, bool *found) {
  struct copse_symmetry *out = s->out;
  int ignored;
  *found = copse_candidate_from(s, from, to, &ignored);
  if (!*found) return COPSE_OK;
  copse_status status = copse_topology_is_automorphism(s->topology, s->image, found, s->err);
  if (status != COPSE_OK || !*found) return status;
  join_orbits(s);
  return take(s, &out->others, &out->n_others, &s->others_capacity, 0);
}

/* Joins the orbit that rank v is the first of to one before it; *left counts failures down. */
static copse_status join_to_others(struct copse_searcher *s, int v, int *left) {
  const struct copse_partition *base = &s->base;
  const struct copse_node *nodes = s->topology->nodes;
  int cell = base->cell[v];
  bool found = false;
  copse_status status = COPSE_OK;
  for (int i = cell; i < cell + base->length[cell] && *left > 0 && !found; i++) {
    int u = base->elements[i];
    if (u >= s->topology->n_nodes || s->orbit[u] != u || nodes[u].rank >= nodes[v].rank) continue;
    COPSE_TRY(try_all_ways(s, u, v, try_other, &found));
    *left -= !found;
  }
out:
  return status;
}

static copse_status find_others(struct copse_searcher *s) {
  const struct copse_topology *t = s->topology;
  int left = MOST_FAILED;
  copse_status status = COPSE_OK;
  copse_refinement_commute_with_none(&s->refinement);
  start_again(s);
  s->free_cycles = true;
  for (int r = 0; r < t->n_ranks && left > 0 && s->out->n_others < MOST_OTHERS; r++)
    if (s->orbit[t->rank_nodes[r]] == t->rank_nodes[r])
      COPSE_TRY(join_to_others(s, t->rank_nodes[r], &left));
out:
  return status;
}

/* ---- the search ----------------------------------------------------------------------------- */

static copse_status prepare(struct copse_searcher *s) {
  size_t n = (size_t)s->topology->n_nodes;
  copse_status status;
  COPSE_TRY(copse_refinement_make(&s->refinement, s->topology, s->err));
  COPSE_TRY(copse_partition_make(s->topology->n_nodes, &s->base, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->orbit, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->joined, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->image, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->visited, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->seen, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->queue, s->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->distance, s->err));
  for (size_t v = 0; v < n; v++) s->orbit[v] = (int)v;
out:
  return status;
}

/* Of the ranks those of which the fewest are alike; returns how many these are: there can't be
 * more products. */
static int choose_first(struct copse_searcher *s) {
  const struct copse_topology *t = s->topology;
  int most = t->n_ranks + 1;
  for (int r = 0; r < t->n_ranks; r++) {
    int v = t->rank_nodes[r], n = s->base.lefts[s->base.cell[v]];
    if (n < most) s->first = v;
    if (n < most) most = n;
  }
  return most;
}

static copse_status search(struct copse_searcher *s) {
  int64_t work = (int64_t)2 * MOST_ROUNDS * s->topology->n_links + LEAST_WORK;
  if (work > MOST_WORK) work = MOST_WORK;
  copse_status status;
  start_again(s);
  int most = choose_first(s);
  for (int round = 0; round < 2; round++) {
    s->evenly = round == 0;
    s->most_work = copse_candidate_work(s) + work / PART_FOR_TURNS;
    if (s->out->n_products < most) COPSE_TRY(find_turns(s));
    s->most_work = copse_candidate_work(s) + work / 2;
    COPSE_TRY(find_generators(s, most));
  }
  s->most_work = copse_candidate_work(s) + work;
  status = find_others(s);
out:
  return status;
}

copse_status copse_topology_symmetry(const struct copse_topology *topology,
                                     struct copse_symmetry *out, struct copse_err *err) {
  struct copse_searcher s = {.topology = topology, .out = out, .err = err};
  copse_status status;
  *out = (struct copse_symmetry){.n_products = 1};
  COPSE_TRY(prepare(&s));
  status = search(&s);
out:
  copse_refinement_free(&s.refinement);
  copse_partition_free(&s.base);
  free(s.orbit);
  free(s.joined);
  free(s.image);
  free(s.visited);
  free(s.seen);
  free(s.queue);
  free(s.distance);
  if (status != COPSE_OK) copse_symmetry_free(out);
  return status;
}
