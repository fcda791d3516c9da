#include <string.h>

#include "topology/symmetry/internal.h"

/* Links looked at for the nearest: who is further off is as near as any other. */
#define MOST_LOOKED_AT (1 << 15)
/* Links looked at so take the time of one that refinement looks at. */
#define LOOKS_PER_WORK 16

static bool is_rank(const struct copse_searcher *s, int v) {
  return s->topology->nodes[v].rank >= 0;
}

/* ---- walks ---------------------------------------------------------------------------------- */

static int start_walk(struct copse_searcher *s, int from) {
  s->n_walks++;
  s->seen[from] = s->n_walks;
  s->distance[from] = 0;
  s->queue[0] = from;
  return 1;
}

/* Appends what is next to queue[head] and new; returns how many there are in all. */
static int step_walk(struct copse_searcher *s, int head, int n) {
  const struct copse_refinement *r = &s->refinement;
  int v = s->queue[head];
  for (int a = r->first_arc[v]; a < r->first_arc[v + 1]; a++) {
    int u = r->arcs[a].node;
    if (s->seen[u] == s->n_walks) continue;
    s->seen[u] = s->n_walks;
    s->distance[u] = s->distance[v] + 1;
    s->queue[n++] = u;
  }
  s->looks += r->first_arc[v + 1] - r->first_arc[v];
  return n;
}

int copse_candidate_walk(struct copse_searcher *s, int from) {
  int n = start_walk(s, from);
  for (int head = 0; head < n; head++) n = step_walk(s, head, n);
  return n;
}

int copse_candidate_distance(struct copse_searcher *s, int from, int to) {
  int n = start_walk(s, from);
  for (int head = 0; head < n && s->seen[to] != s->n_walks; head++) n = step_walk(s, head, n);
  return s->seen[to] == s->n_walks ? s->distance[to] : -1;
}

/* ---- choices -------------------------------------------------------------------------------- */

static int visit_key(const struct copse_searcher *s, int v) {
  return is_rank(s, v) && !s->free_cycles ? s->orbit[v] : v;
}

/* v may go to u, and the cycle has not been there. */
static bool is_open(const struct copse_searcher *s, int v, int u) {
  return copse_refinement_may_go(&s->refinement, v, u) &&
         s->visited[visit_key(s, u)] != s->n_cycles;
}

/* The nearest open one; `skip` of them are left out. */
static int find_nearest(struct copse_searcher *s, int v, int skip) {
  const struct copse_partition *cells = &s->refinement.cells;
  int64_t until = s->looks + MOST_LOOKED_AT;
  int n = start_walk(s, v), last = 0, cell = cells->cell[v];
  for (int head = 0; head < n && s->looks < until; head++) {
    n = step_walk(s, head, n);
    for (; last < n; last++)
      if (is_open(s, v, s->queue[last]) && skip-- == 0) return s->queue[last];
  }
  for (int i = cell; i < cell + cells->length[cell]; i++) {
    int u = cells->elements[i] - s->refinement.n;
    if (u >= 0 && s->seen[u] != s->n_walks && is_open(s, v, u) && skip-- == 0) return u;
  }
  return -1;
}

/* Where v goes, the cycle's node `length` from its start on, the start counted; order 0: not
 * known yet. */
static int choose(struct copse_searcher *s, int v, int start, int length, int order) {
  int only = copse_refinement_image(&s->refinement, v);
  bool may_close = copse_refinement_may_go(&s->refinement, v, start);
  if (only >= 0) return only;
  if (!is_rank(s, v) && may_close && order % length == 0) return start;
  if (order == length) return may_close ? start : -1;
  may_close = may_close && order == 0 && length > 1;
  if (may_close && s->closing == COPSE_CLOSE_EARLY) return start;
  bool first = !s->chose;
  int to = find_nearest(s, v, first ? s->skip : 0);
  s->chose = true;
  if (first) s->skipped = to >= 0;
  if (to < 0 && may_close && !(first && s->skip > 0)) return start;
  return to;
}

/* The images along the cycle of `start`. An order of 0 becomes its length. */
static bool follow_cycle(struct copse_searcher *s, int start, int *order) {
  int v = start, length = 0;
  s->n_cycles++;
  do {
    if ((*order > 0 && length == *order) || copse_candidate_over(s)) return false;
    s->visited[visit_key(s, v)] = s->n_cycles;
    int to = choose(s, v, start, ++length, *order);
    if (to < 0 || !copse_refinement_pair(&s->refinement, v, to)) return false;
    s->image[v] = to;
    v = to;
  } while (v != start);
  if (*order == 0) *order = length;
  return is_rank(s, start) ? length == *order : *order % length == 0;
}

static bool follow_from(struct copse_searcher *s, int v, int *order) {
  int any = 0;
  return s->image[v] >= 0 || follow_cycle(s, v, s->free_cycles ? &any : order);
}

static bool follow_relays(struct copse_searcher *s, int *order) {
  for (int v = 0; v < s->topology->n_nodes; v++)
    if (!follow_from(s, v, order)) return false;
  return true;
}

/* ---- candidates ----------------------------------------------------------------------------- */

int64_t copse_candidate_work(const struct copse_searcher *s) {
  return s->refinement.work + s->looks / LOOKS_PER_WORK;
}

bool copse_candidate_over(const struct copse_searcher *s) {
  return copse_candidate_work(s) > s->most_work;
}

bool copse_candidate_from(struct copse_searcher *s, int from, int to, int *order) {
  const struct copse_topology *t = s->topology;
  *order = 0;
  s->chose = s->skipped = false;
  copse_partition_copy(t->n_nodes, &s->base, &s->refinement.cells);
  memset(s->image, -1, (size_t)t->n_nodes * sizeof *s->image);
  if (!copse_refinement_pair(&s->refinement, from, to) || !follow_from(s, from, order))
    return false;
  for (int r = 0; r < t->n_ranks; r++)
    if (!follow_from(s, t->rank_nodes[r], order)) return false;
  return follow_relays(s, order);
}

bool copse_candidate_of_ranks(struct copse_searcher *s, int order) {
  const struct copse_topology *t = s->topology;
  copse_partition_copy(t->n_nodes, &s->base, &s->refinement.cells);
  for (int r = 0; r < t->n_ranks; r++) {
    int v = t->rank_nodes[r];
    if (!copse_refinement_pair(&s->refinement, v, s->image[v]) || copse_candidate_over(s))
      return false;
  }
  return follow_relays(s, &order);
}
