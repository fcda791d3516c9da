/*
 * The search for symmetries that commute: candidates node by node, each followed around its cycle,
 * and what makes of a candidate a generator. After McKay and Piperno: Practical graph isomorphism,
 * II (2014), without backtracking.
 *
 *   refinement leaves rank a the images b, c     nearest: b      a -> b -> c -> d -> a
 *   a pair a -> b is made, cells split           next: b's       (a cycle; its length is the
 *   .. until every node has one image                             candidate's order)
 */
#include <string.h>

#include "topology/policy.h"
#include "topology/symmetry/internal.h"

/* How a cycle of ranks is closed while its length is free. */
enum closing { CLOSE_LATE, CLOSE_EARLY };

struct searcher {
  const struct copse_topology *topology;
  struct copse_symmetry *out;
  struct copse_refinement *refinement;
  int *orbit;                    /* [n_nodes] under what was found so far: the first member */
  int *joined;                   /* [n_nodes] the same with the candidate */
  int *image;                    /* [n_nodes] the candidate; -1: open */
  int *visited, n_cycles;        /* [n_nodes] the last cycle through the node, or a rank's orbit */
  int *seen, *distance, n_walks; /* [n_nodes] breadth-first */
  struct copse_queue queue;      /* [n_nodes] all that the last walk met */
  enum closing closing;
  bool free_cycles;         /* of any lengths, and through an orbit more than once */
  int skip;                 /* how many of the nearest the first free choice leaves out */
  bool chose;               /* that choice has been made */
  bool skipped;             /* and something was left to choose */
  bool evenly;              /* only what moves alike ranks as far counts */
  int first;                /* a rank of the fewest that are alike */
  int64_t looks, most_work; /* links walked over; all that a search may take */
  struct copse_err *err;
};

static bool is_rank(const struct searcher *s, int v) { return s->topology->nodes[v].rank >= 0; }

/* Returns the work done so far, in links that refinement looks at. */
static int64_t work_of(const struct searcher *s) {
  return s->refinement->work + s->looks / LOOKS_PER_WORK;
}

static bool is_over(const struct searcher *s) { return work_of(s) > s->most_work; }

/* ---- walks ---------------------------------------------------------------------------------- */

static void start_walk(struct searcher *s, int from) {
  s->n_walks++;
  s->seen[from] = s->n_walks;
  s->distance[from] = 0;
  copse_queue_reset(&s->queue);
  copse_queue_push(&s->queue, from);
}

/* Takes the next node of the queue and appends its neighbours that were not seen yet. */
static void step_walk(struct searcher *s) {
  const struct copse_refinement *r = s->refinement;
  int v = copse_queue_pop(&s->queue);
  for (int a = r->first_arc[v]; a < r->first_arc[v + 1]; a++) {
    int u = r->arcs[a].node;
    if (s->seen[u] == s->n_walks) continue;
    s->seen[u] = s->n_walks;
    s->distance[u] = s->distance[v] + 1;
    copse_queue_push(&s->queue, u);
  }
  s->looks += r->first_arc[v + 1] - r->first_arc[v];
}

/* Walks all nodes that can be reached, nearest first, in s->queue; returns how many. */
static int walk(struct searcher *s, int from) {
  start_walk(s, from);
  while (!copse_queue_is_empty(&s->queue)) step_walk(s);
  return s->queue.tail;
}

/* Counts the links on a shortest way from one to the other, in any direction; -1: there is no
 * way. */
static int distance(struct searcher *s, int from, int to) {
  start_walk(s, from);
  while (!copse_queue_is_empty(&s->queue) && s->seen[to] != s->n_walks) step_walk(s);
  return s->seen[to] == s->n_walks ? s->distance[to] : -1;
}

/* ---- choices -------------------------------------------------------------------------------- */

static int visit_key(const struct searcher *s, int v) {
  return is_rank(s, v) && !s->free_cycles ? s->orbit[v] : v;
}

/* Whether v may go to u, and the cycle has not been at u. */
static bool is_open(const struct searcher *s, int v, int u) {
  return copse_refinement_may_go(s->refinement, v, u) && s->visited[visit_key(s, u)] != s->n_cycles;
}

/* Finds the nearest open node after leaving out `skip` of them; -1: none. */
static int find_nearest(struct searcher *s, int v, int skip) {
  const struct copse_partition *cells = &s->refinement->cells;
  int64_t until = s->looks + MOST_LOOKED_AT;
  int last = 0, cell = cells->cell[v];
  start_walk(s, v);
  while (!copse_queue_is_empty(&s->queue) && s->looks < until) {
    step_walk(s);
    for (; last < s->queue.tail; last++)
      if (is_open(s, v, s->queue.items[last]) && skip-- == 0) return s->queue.items[last];
  }
  for (int i = cell; i < cell + cells->length[cell]; i++) {
    int u = cells->elements[i] - s->refinement->n;
    if (u >= 0 && s->seen[u] != s->n_walks && is_open(s, v, u) && skip-- == 0) return u;
  }
  return -1;
}

/* Chooses the image of v, which is the `length`-th node of the cycle from `start` on; -1: none. An
 * order of 0 is not fixed yet. */
static int choose(struct searcher *s, int v, int start, int length, int order) {
  int only = copse_refinement_image(s->refinement, v);
  bool may_close = copse_refinement_may_go(s->refinement, v, start);
  if (only >= 0) return only;
  if (!is_rank(s, v) && may_close && order % length == 0) return start;
  if (order == length) return may_close ? start : -1;
  may_close = may_close && order == 0 && length > 1;
  if (may_close && s->closing == CLOSE_EARLY) return start;
  bool first = !s->chose;
  int to = find_nearest(s, v, first ? s->skip : 0);
  s->chose = true;
  if (first) s->skipped = to >= 0;
  if (to < 0 && may_close && !(first && s->skip > 0)) return start;
  return to;
}

/* Chooses the images along the cycle of `start`. An order of 0 becomes its length. */
static bool follow_cycle(struct searcher *s, int start, int *order) {
  int v = start, length = 0;
  s->n_cycles++;
  do {
    if ((*order > 0 && length == *order) || is_over(s)) return false;
    s->visited[visit_key(s, v)] = s->n_cycles;
    int to = choose(s, v, start, ++length, *order);
    if (to < 0 || !copse_refinement_pair(s->refinement, v, to)) return false;
    s->image[v] = to;
    v = to;
  } while (v != start);
  if (*order == 0) *order = length;
  return is_rank(s, start) ? length == *order : *order % length == 0;
}

static bool follow_from(struct searcher *s, int v, int *order) {
  int any = 0;
  return s->image[v] >= 0 || follow_cycle(s, v, s->free_cycles ? &any : order);
}

static bool follow_relays(struct searcher *s, int *order) {
  for (int v = 0; v < s->topology->n_nodes; v++)
    if (!follow_from(s, v, order)) return false;
  return true;
}

/* ---- candidates ----------------------------------------------------------------------------- */

/*
 * Makes a permutation that takes `from` to `to` and whose cycles of ranks are all as long as the
 * first, unless cycles are free. Each node goes to the nearest that refinement leaves it, around to
 * the start of its cycle. False where a choice leads nowhere, or the work is used up; no choice is
 * taken back.
 */
static bool candidate_from(struct searcher *s, int from, int to, int *order) {
  const struct copse_topology *t = s->topology;
  *order = 0;
  s->chose = s->skipped = false;
  copse_refinement_restore(s->refinement);
  memset(s->image, -1, (size_t)t->n_nodes * sizeof *s->image);
  if (!copse_refinement_pair(s->refinement, from, to) || !follow_from(s, from, order)) return false;
  for (int r = 0; r < t->n_ranks; r++)
    if (!follow_from(s, t->rank_nodes[r], order)) return false;
  return follow_relays(s, order);
}

/* Extends s->image, given for all ranks, to all nodes; the first rank returns after `order`
 * steps. */
static bool candidate_of_ranks(struct searcher *s, int order) {
  const struct copse_topology *t = s->topology;
  copse_refinement_restore(s->refinement);
  for (int r = 0; r < t->n_ranks; r++) {
    int v = t->rank_nodes[r];
    if (!copse_refinement_pair(s->refinement, v, s->image[v]) || is_over(s)) return false;
  }
  return follow_relays(s, &order);
}

/* ---- orbits --------------------------------------------------------------------------------- */

/* Writes to s->joined the orbits with those that the candidate joins. */
static void join_orbits(struct searcher *s) {
  int n = s->topology->n_nodes;
  memcpy(s->joined, s->orbit, (size_t)n * sizeof *s->joined);
  for (int v = 0; v < n; v++) copse_sets_unite(s->joined, v, s->image[v]);
  for (int v = 0; v < n; v++) s->joined[v] = copse_sets_find(s->joined, v);
}

/* Adds the candidate to what is found, and takes over its orbits. */
static copse_status take(struct searcher *s, int order) {
  const struct copse_permutation by = {order, s->image, NULL};
  int *swap = s->orbit;
  COPSE_DO(copse_symmetry_add(s->out, by, s->topology->n_nodes, 0, s->err));
  s->orbit = s->joined;
  s->joined = swap;
  return COPSE_OK;
}

static void start_again(struct searcher *s) {
  copse_refinement_start(s->refinement);
  copse_refinement_keep(s->refinement);
}

/* ---- generators ----------------------------------------------------------------------------- */

/* Whether ranks that look alike move equally far, as under a product of commuting turns that joins
 * all of an orbit. Others are left out in the first round, lest they keep such from being found. */
static bool moves_evenly(struct searcher *s) {
  const struct copse_topology *t = s->topology;
  const int *cell = s->refinement->base.cell;
  int step = t->n_ranks / SAMPLE + 1;
  if (!s->evenly) return true;
  int far = distance(s, s->first, s->image[s->first]);
  for (int r = 0; r < t->n_ranks; r += step) {
    int v = t->rank_nodes[r];
    if (cell[v] == cell[s->first] && distance(s, v, s->image[v]) != far) return false;
  }
  return true;
}

static bool commutes(const struct searcher *s) {
  for (int g = 0; g < s->out->n; g++) {
    const int *other = s->out->generators[g].image;
    for (int v = 0; v < s->topology->n_nodes; v++)
      if (other[s->image[v]] != s->image[other[v]]) return false;
  }
  return true;
}

/* Whether the candidate applied `order` times changes nothing. */
static bool has_order(struct searcher *s, int order) {
  s->n_cycles++;
  for (int v = 0; v < s->topology->n_nodes; v++) {
    int length = 0;
    for (int u = v; s->visited[u] != s->n_cycles; u = s->image[u], length++)
      s->visited[u] = s->n_cycles;
    if (length > 0 && order % length != 0) return false;
  }
  return true;
}

/* Whether the products with the candidate move no rank onto itself: then every orbit is as large as
 * their number. */
static bool moves_all(struct searcher *s, int order) {
  const struct copse_topology *t = s->topology;
  int64_t n_products = (int64_t)s->out->n_products * order;
  int *size = s->queue.items;
  join_orbits(s);
  memset(size, 0, (size_t)t->n_nodes * sizeof *size);
  for (int r = 0; r < t->n_ranks; r++) size[s->joined[t->rank_nodes[r]]]++;
  for (int r = 0; r < t->n_ranks; r++)
    if (size[s->joined[t->rank_nodes[r]]] != n_products) return false;
  return true;
}

/* Makes the candidate a generator if it is one. */
static copse_status take_generator(struct searcher *s, int order, bool *good) {
  struct copse_symmetry *out = s->out;
  COPSE_DO(copse_topology_is_automorphism(s->topology, s->image, good, s->err));
  *good = *good && has_order(s, order) && commutes(s) && moves_all(s, order);
  if (!*good) return COPSE_OK;
  COPSE_DO(take(s, order));
  out->n++;
  out->n_others--;
  out->n_products *= order;
  COPSE_DO(copse_refinement_commute(s->refinement, out->generators[out->n - 1].image, s->err));
  start_again(s);
  return COPSE_OK;
}

/* ---- turns by number ------------------------------------------------------------------------ */

/* Turns every block of `block` ranks by `step`, if refinement permits these images. */
static copse_status try_turn(struct searcher *s, int block, int step, bool *good) {
  const struct copse_topology *t = s->topology;
  *good = false;
  memset(s->image, -1, (size_t)t->n_nodes * sizeof *s->image);
  for (int r = 0; r < t->n_ranks; r++) {
    int from = t->rank_nodes[r], to = t->rank_nodes[r - r % block + (r % block + step) % block];
    if (s->refinement->base.cell[from] != s->refinement->base.cell[to]) return COPSE_OK;
    s->image[from] = to;
  }
  if (!candidate_of_ranks(s, block / step) || !moves_evenly(s)) return COPSE_OK;
  return take_generator(s, block / step, good);
}

static int next_divisor(int n, int below) {
  int d = below - 1;
  while (d > 1 && n % d != 0) d--;
  return d;
}

/* Finds turns, from the largest blocks to the smallest. Within blocks of B the smallest step that
 * holds makes the largest orbits; what is left to be moved are blocks of that step. */
static copse_status find_turns(struct searcher *s) {
  int n = s->topology->n_ranks;
  for (int block = n; block > 1 && !is_over(s);) {
    bool good = false;
    int step = 1;
    for (; step < block && !good; step++)
      if (block % step == 0) COPSE_DO(try_turn(s, block, step, &good));
    block = good ? step - 1 : next_divisor(n, block);
  }
  return COPSE_OK;
}

/* ---- turns by kind -------------------------------------------------------------------------- */

typedef copse_status try_function(struct searcher *s, int from, int to, bool *found);

static copse_status try_generator(struct searcher *s, int from, int to, bool *found) {
  int order;
  *found = candidate_from(s, from, to, &order) && order > 1 && moves_evenly(s);
  return *found ? take_generator(s, order, found) : COPSE_OK;
}

/* Tries one first image, with all ways of going on from there. */
static copse_status try_all_ways(struct searcher *s, int from, int to, try_function *try,
                                 bool *found) {
  bool more = true;
  *found = false;
  for (s->skip = 0; s->skip < MOST_CHOICES && more; s->skip++) {
    more = false;
    for (s->closing = CLOSE_LATE; s->closing <= CLOSE_EARLY; s->closing++) {
      if (is_over(s)) return COPSE_OK;
      COPSE_DO(try(s, from, to, found));
      if (*found) return COPSE_OK;
      more = more || s->skipped;
    }
  }
  return COPSE_OK;
}

/* Lists one rank of every kind that `first` may go to, the nearest first; returns how many. A kind
 * is a cell of what leaves `first` in place: all of it is alike for a first image. */
static int list_kinds(struct searcher *s, int *kinds) {
  const struct copse_partition *cells = &s->refinement->cells;
  int n_kinds = 0;
  copse_refinement_restore(s->refinement);
  if (!copse_refinement_pair(s->refinement, s->first, s->first)) return 0;
  int n = walk(s, s->first);
  s->n_cycles++;
  for (int i = 0; i < n && n_kinds < MOST_KINDS; i++) {
    int u = s->queue.items[i], kind = cells->elements[cells->cell[u]] % s->topology->n_nodes;
    if (s->refinement->base.cell[u] != s->refinement->base.cell[s->first] ||
        s->orbit[u] == s->orbit[s->first] || s->visited[kind] == s->n_cycles)
      continue;
    s->visited[kind] = s->n_cycles;
    kinds[n_kinds++] = u;
  }
  return n_kinds;
}

/* Finds generators of at most `most` products. */
static copse_status find_generators(struct searcher *s, int most) {
  int kinds[MOST_KINDS];
  bool found = true;
  while (found && s->out->n_products < most) {
    int n = list_kinds(s, kinds);
    found = false;
    for (int i = 0; i < n && !found; i++)
      COPSE_DO(try_all_ways(s, s->first, kinds[i], try_generator, &found));
  }
  return COPSE_OK;
}

/* ---- orbits that the products leave apart --------------------------------------------------- */

static copse_status try_other(struct searcher *s, int from, int to, bool *found) {
  int ignored;
  *found = candidate_from(s, from, to, &ignored);
  if (*found) COPSE_DO(copse_topology_is_automorphism(s->topology, s->image, found, s->err));
  if (!*found) return COPSE_OK;
  join_orbits(s);
  return take(s, 0);
}

/* Joins the orbit that rank v is the first of to one before it; *left counts failures down. */
static copse_status join_to_others(struct searcher *s, int v, int *left) {
  const struct copse_partition *base = &s->refinement->base;
  const struct copse_node *nodes = s->topology->nodes;
  int cell = base->cell[v];
  bool found = false;
  for (int i = cell; i < cell + base->length[cell] && *left > 0 && !found; i++) {
    int u = base->elements[i];
    if (u >= s->topology->n_nodes || s->orbit[u] != u || nodes[u].rank >= nodes[v].rank) continue;
    COPSE_DO(try_all_ways(s, u, v, try_other, &found));
    *left -= !found;
  }
  return COPSE_OK;
}

static copse_status find_others(struct searcher *s) {
  const struct copse_topology *t = s->topology;
  int left = MOST_UNSHOWN;
  copse_refinement_commute_with_none(s->refinement);
  start_again(s);
  s->free_cycles = true;
  for (int r = 0; r < t->n_ranks && left > 0 && s->out->n_others < MOST_OTHERS; r++)
    if (s->orbit[t->rank_nodes[r]] == t->rank_nodes[r])
      COPSE_DO(join_to_others(s, t->rank_nodes[r], &left));
  return COPSE_OK;
}

/* ---- the search ----------------------------------------------------------------------------- */

static copse_status prepare(struct searcher *s) {
  size_t n = (size_t)s->topology->n_nodes;
  COPSE_DO(copse_refinement_make(s->refinement, s->topology, NULL, 0, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->refinement->arena, n, int, s->err, &s->image, &s->orbit, &s->joined,
                        &s->visited, &s->seen, &s->queue.items, &s->distance));
  copse_sets_init(s->orbit, (int)n);
  return COPSE_OK;
}

/* Chooses the rank of which the fewest are alike; returns how many these are: there can't be more
 * products. */
static int choose_first(struct searcher *s) {
  const struct copse_topology *t = s->topology;
  int most = t->n_ranks + 1;
  for (int r = 0; r < t->n_ranks; r++) {
    int v = t->rank_nodes[r], n = s->refinement->base.lefts[s->refinement->base.cell[v]];
    if (n < most) s->first = v;
    if (n < most) most = n;
  }
  return most;
}

static copse_status search(struct searcher *s) {
  int64_t work = (int64_t)2 * MOST_ROUNDS * s->topology->n_links + LEAST_WORK;
  if (work > MOST_WORK) work = MOST_WORK;
  start_again(s);
  int most = choose_first(s);
  for (int round = 0; round < 2; round++) {
    s->evenly = round == 0;
    s->most_work = work_of(s) + work / PART_FOR_TURNS;
    if (s->out->n_products < most) COPSE_DO(find_turns(s));
    s->most_work = work_of(s) + work / 2;
    COPSE_DO(find_generators(s, most));
  }
  s->most_work = work_of(s) + work;
  return find_others(s);
}

copse_status copse_topology_symmetry(const struct copse_topology *topology,
                                     struct copse_symmetry *out, struct copse_err *err) {
  COPSE_AT_END(copse_refinement_free) struct copse_refinement refinement = {0};
  struct searcher s = {.topology = topology, .out = out, .refinement = &refinement, .err = err};
  *out = (struct copse_symmetry){.n_products = 1};
  copse_status status = prepare(&s);
  if (status == COPSE_OK) status = search(&s);
  if (status != COPSE_OK) copse_symmetry_free(out);
  return status;
}
