/*
 * The shortest order of all GPUs under lengths on rows: a cycle through a depot, which is the last
 * GPU of a closed ring, else the ports. Up to COPSE_RINGS_EXACT_GPUS by the dynamic programme over
 * sets of Held and Karp (SIAM Journal 10, 1962). Beyond, the assignment problem (Kuhn 1955, in the
 * form of Jonker and Volgenant 1987: shortest augmenting paths) is a lower bound, and its cycles
 * joined at least cost (Karp 1979) are an order, improved by local search with kicks.
 */
#include <string.h>

#include "solver/policy.h"
#include "solver/rings/rings.h"

/* No step; lengths of orders stay far below. */
#define NONE ((int64_t)1 << 50)

struct search {
  const struct copse_ring_instance *instance;
  const int64_t *lengths;
  int n, m;        /* GPUs; nodes, of which the last is the depot */
  int64_t *cost;   /* [m * m] */
  int64_t *cost_to; /* the same by the node that it leads to */
  int64_t *second; /* [m] beside the step to the second GPU; 0 */
  int *in, *out;   /* [n] ports of a first, of a last GPU */
  int64_t
      *set_cost;  /* [2^(m - 1) * (m - 1)] least cost from the depot through the set to its last */
  struct copse_arena scratch, *arena;
  struct copse_ring *found; /* [n] by length */
  int64_t *found_cost;      /* [n + 1] */
  int n_found;
  int64_t least;
  int64_t steps; /* comparisons to improve cycles */
};

static int64_t length_of(const struct search *s, const struct copse_ring_step *step) {
  int64_t sum = 0;
  if (!step->exists) return NONE;
  for (int i = 0; i < step->n; i++) sum += s->lengths[step->loads[i].row] * step->loads[i].amount;
  return sum;
}

/* Keeps the order if it is among the n_gpus shortest. */
static copse_status keep(struct search *s, const int *order, int64_t cost, int port_in,
                         int port_out, struct copse_err *err) {
  int at = s->n_found, *gpus;
  if (at == s->n && cost >= s->found_cost[at - 1]) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(s->arena, (size_t)s->n, gpus, err));
  memcpy(gpus, order, (size_t)s->n * sizeof *gpus);
  if (at < s->n)
    s->n_found++;
  else
    at--;
  for (; at > 0 && s->found_cost[at - 1] > cost; at--) {
    s->found[at] = s->found[at - 1];
    s->found_cost[at] = s->found_cost[at - 1];
  }
  s->found[at] = (struct copse_ring){gpus, {port_in, port_out}};
  s->found_cost[at] = cost;
  return COPSE_OK;
}

/* ---- sets ----------------------------------------------------------------------------------- */

/* Extends ways through the set by one node more, for each that is not in it. */
static void extend(struct search *s, size_t set) {
  size_t k = (size_t)s->m - 1, full = ((size_t)1 << k) - 1, members[COPSE_RINGS_EXACT_GPUS], n = 0;
  const int64_t *costs = s->set_cost + set * k;
  for (size_t left = set; left; left &= left - 1) members[n++] = (size_t)__builtin_ctzl(left);
  for (size_t left = full & ~set; left; left &= left - 1) {
    size_t last = (size_t)__builtin_ctzl(left);
    const int64_t *to = s->cost_to + last * (size_t)s->m;
    int64_t best = n == 0 ? to[k] : NONE;
    for (size_t i = 0; i < n; i++) best = copse_smaller(best, costs[members[i]] + to[members[i]]);
    if (n == 1) best += s->second[last];
    s->set_cost[(set | (size_t)1 << last) * k + last] = copse_smaller(best, NONE);
  }
}

/* Returns the first of the set's nodes over which it costs least to go on to `last`; -1: the set
 * is empty. */
static int before(const struct search *s, size_t set, int last) {
  int64_t best = NONE;
  int from = -1;
  for (size_t left = set; left; left &= left - 1) {
    int i = __builtin_ctzl(left);
    int64_t cost = s->set_cost[set * ((size_t)s->m - 1) + (size_t)i] + s->cost_to[last * s->m + i];
    if (cost < best) best = cost, from = i;
  }
  return from;
}

/* Finds the orders that end at each node; those of one port only the best of them. */
static copse_status over_sets(struct search *s, bool all, struct copse_err *err) {
  int k = s->m - 1, order[COPSE_RINGS_EXACT_GPUS + 1];
  size_t full = ((size_t)1 << k) - 1;
  int64_t least = NONE;
  for (int i = 0; i < s->m; i++)
    for (int j = 0; j < s->m; j++) s->cost_to[j * s->m + i] = s->cost[i * s->m + j];
  for (size_t set = 0; set < full; set++) extend(s, set);
  const int64_t *ends = s->set_cost + full * (size_t)k;
  for (int j = 0; j < k; j++) {
    int64_t cost = ends[j] + s->cost[(size_t)j * (size_t)s->m + (size_t)k];
    if (cost < least) least = cost;
  }
  if (least < s->least) s->least = least;
  for (int j = 0; j < k; j++) {
    int64_t cost = ends[j] + s->cost[(size_t)j * (size_t)s->m + (size_t)k];
    size_t set = full;
    if (cost >= NONE || (!all && cost > least)) continue;
    order[s->n - 1] = s->n - 1; /* the depot of a closed ring */
    for (int i = k - 1, at = j; i >= 0; i--) {
      order[i] = at;
      set &= ~((size_t)1 << at);
      at = before(s, set, at);
    }
    COPSE_DO(keep(s, order, cost, s->in[order[0]], s->out[order[s->n - 1]], err));
    if (!all) break;
  }
  return COPSE_OK;
}

/* ---- assignments ----------------------------------------------------------------------------- */

/* Returns the cost from i to j; a node goes to itself never. */
static int64_t arc(const struct search *s, int i, int j) {
  return i == j ? NONE : s->cost[(size_t)i * (size_t)s->m + (size_t)j];
}

/* Grows one augmenting path from row `root`; 0-based, column m is the path's start. */
static void augment(const struct search *s, int root, int64_t *u, int64_t *v, int *row_of,
                    int64_t *least, int *way, bool *used) {
  int m = s->m, at = m;
  row_of[m] = root;
  for (int j = 0; j <= m; j++) least[j] = INT64_MAX, used[j] = false;
  do {
    int i = row_of[at], next = -1;
    int64_t delta = INT64_MAX;
    used[at] = true;
    for (int j = 0; j < m; j++) {
      if (used[j]) continue;
      int64_t reduced = arc(s, i, j) - u[i] - v[j];
      if (reduced < least[j]) least[j] = reduced, way[j] = at;
      if (least[j] < delta) delta = least[j], next = j;
    }
    for (int j = 0; j <= m; j++) {
      if (used[j]) {
        u[row_of[j]] += delta;
        v[j] -= delta;
      } else if (least[j] != INT64_MAX) {
        least[j] -= delta;
      }
    }
    at = next;
  } while (row_of[at] >= 0);
  while (at != m) {
    row_of[at] = row_of[way[at]];
    at = way[at];
  }
}

/* Finds next [m]: the assignment of least cost, which is returned. */
static copse_status assign(struct search *s, int *next, int64_t *cost, struct copse_err *err) {
  size_t places = (size_t)s->m + 1;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int64_t *u, *v, *least;
  int *row_of, *way;
  bool *used;
  COPSE_DO(COPSE_ARRAYS(&scratch, places, int64_t, err, &u, &v, &least));
  COPSE_DO(COPSE_ARRAYS(&scratch, places, int, err, &row_of, &way));
  COPSE_DO(COPSE_ARRAY(&scratch, places, used, err));
  for (size_t j = 0; j < places; j++) row_of[j] = -1;
  for (int i = 0; i < s->m; i++) augment(s, i, u, v, row_of, least, way, used);
  *cost = 0;
  for (int j = 0; j < s->m; j++) {
    next[row_of[j]] = j;
    *cost += arc(s, row_of[j], j);
  }
  return COPSE_OK;
}

/* Returns the cost of exchanging the successors of i and j, by which two cycles become one. */
static int64_t exchange_cost(const struct search *s, const int *next, int i, int j) {
  return arc(s, i, next[j]) + arc(s, j, next[i]) - arc(s, i, next[i]) - arc(s, j, next[j]);
}

/* Joins cycles, each with the one that costs least. */
static void join_cycles(const struct search *s, int *next, int *cycle) {
  for (;;) {
    int64_t best = INT64_MAX;
    int a = -1, b = -1;
    memset(cycle, 0, (size_t)s->m * sizeof *cycle);
    int at = 0, n = 0;
    do {
      cycle[at] = 1;
      at = next[at];
      n++;
    } while (at != 0);
    if (n == s->m) return;
    for (int i = 0; i < s->m; i++) {
      for (int j = 0; cycle[i] && j < s->m; j++) {
        if (cycle[j]) continue;
        int64_t cost = exchange_cost(s, next, i, j);
        if (cost < best) best = cost, a = i, b = j;
      }
    }
    int after = next[a];
    next[a] = next[b];
    next[b] = after;
  }
}

/* ---- a cycle improved --------------------------------------------------------------------------
 */

/* A cycle of all nodes as an array, and what its first k steps cost forwards and backwards. */
struct cycle {
  const struct search *s;
  int *at, *spare;               /* [m] */
  int64_t *forwards, *backwards; /* [m + 1] */
  uint64_t state;                /* of draws */
};

static int node(const struct cycle *c, int place) {
  return c->at[place < c->s->m ? place : place - c->s->m];
}

static void sum_up(struct cycle *c) {
  c->forwards[0] = c->backwards[0] = 0;
  for (int i = 0; i < c->s->m; i++) {
    c->forwards[i + 1] = c->forwards[i] + arc(c->s, c->at[i], node(c, i + 1));
    c->backwards[i + 1] = c->backwards[i] + arc(c->s, node(c, i + 1), c->at[i]);
  }
}

/* Exchanges the neighbouring segments (i, j] and (j, k]. */
static void swap_segments(struct cycle *c, int i, int j, int k) {
  memcpy(c->spare, c->at + i + 1, (size_t)(j - i) * sizeof *c->at);
  memmove(c->at + i + 1, c->at + j + 1, (size_t)(k - j) * sizeof *c->at);
  memcpy(c->at + i + 1 + (k - j), c->spare, (size_t)(j - i) * sizeof *c->at);
}

static void reverse(struct cycle *c, int i, int j) {
  for (int a = i + 1, b = j; a < b; a++, b--) {
    int node = c->at[a];
    c->at[a] = c->at[b];
    c->at[b] = node;
  }
}

/* Returns the best exchange of the segment (i, j] with one behind it; k of 0: none gains. */
static int best_swap(const struct cycle *c, int i, int j, int64_t *gain) {
  const struct search *s = c->s;
  int best = 0, head = c->at[i + 1], tail = c->at[j];
  int64_t around =
      arc(s, c->at[i], head) + arc(s, tail, node(c, j + 1)) - arc(s, c->at[i], node(c, j + 1));
  *gain = 0;
  for (int k = j + 1; k < s->m; k++) {
    int64_t cost =
        arc(s, c->at[k], head) + arc(s, tail, node(c, k + 1)) - arc(s, c->at[k], node(c, k + 1));
    if (around - cost > *gain) *gain = around - cost, best = k;
  }
  return best;
}

/* Returns the gain of going through (i, j] backwards. */
static int64_t reversal_gain(const struct cycle *c, int i, int j) {
  int64_t way = c->forwards[j] - c->forwards[i + 1], back = c->backwards[j] - c->backwards[i + 1];
  return arc(c->s, c->at[i], c->at[i + 1]) + arc(c->s, c->at[j], node(c, j + 1)) + way - back -
         arc(c->s, c->at[i], c->at[j]) - arc(c->s, c->at[i + 1], node(c, j + 1));
}

/* Exchanges segments (3-opt without reversal) and reverses them (2-opt; Croes 1958) while that
 * gains. The effort, about a comparison each, is taken from *left. */
static void improve_cycle(struct cycle *c, int64_t *left) {
  int m = c->s->m;
  sum_up(c);
  for (bool again = true; again && *left > 0;) {
    again = false;
    for (int i = 0; i + 2 < m; i++)
      for (int j = i + 1; j + 1 < m; j++) {
        int64_t gain, turned = reversal_gain(c, i, j);
        int k = best_swap(c, i, j, &gain);
        *left -= m - j;
        if (gain <= 0 && turned <= 0) continue;
        if (turned > gain)
          reverse(c, i, j);
        else
          swap_segments(c, i, j, k);
        sum_up(c);
        again = true;
      }
  }
}

/* Turns the cycle by a random number of places, and exchanges two short segments of it: what
 * improve_cycle does not undo in a step (Martin, Otto and Felten 1991). */
static void kick(struct cycle *c) {
  int m = c->s->m, turn = copse_random_below(&c->state, m);
  int longest = (int)copse_smaller((m - 2) / 3, COPSE_RINGS_SEGMENT);
  memcpy(c->spare, c->at, (size_t)m * sizeof *c->at);
  for (int i = 0; i < m; i++) c->at[i] = c->spare[(i + turn) % m];
  int j = 1 + copse_random_below(&c->state, longest),
      k = j + 1 + copse_random_below(&c->state, longest);
  swap_segments(c, 0, j, k);
  if (k + 2 < m) swap_segments(c, k - 1, k, k + 1);
}

/* Returns the cheapest ports of a first and a last GPU. */
static int64_t least_ports(const struct search *s, int first, int last, int ports[2]) {
  const struct copse_ring_instance *instance = s->instance;
  int64_t least = arc(s, s->m - 1, first) + arc(s, last, s->m - 1);
  ports[0] = s->in[first];
  ports[1] = s->out[last];
  if (!instance->same_port || ports[0] == ports[1]) return least;
  least = NONE;
  for (int d = 0; d < instance->n_ports; d++) {
    int64_t cost = length_of(s, &instance->enter[d * s->n + first]);
    if (instance->leave) cost += length_of(s, &instance->leave[d * s->n + last]);
    if (cost < least) least = cost, ports[0] = ports[1] = d;
  }
  return least;
}

/* Finds the orders that a cycle of nodes is when the depot stands elsewhere in it, the cycle's own
 * among them: channels over a switch differ by little else. Of ports, those that are cheapest
 * there. */
static copse_status cut_open(struct search *s, const int *next, int *order, struct copse_err *err) {
  int depot = s->m - 1, n = s->n, first = next[depot];
  int64_t around = 0;
  for (int i = 0, at = first; i < n; i++, at = next[at]) order[i] = at;
  for (int i = 0; i < n; i++) around += arc(s, order[i], order[(i + 1) % n]);
  if (s->instance->closed) return around < NONE ? keep(s, order, around, -1, -1, err) : COPSE_OK;
  for (int turn = 0; turn < n; turn++) {
    int last = order[n - 1], head = order[0], ports[2];
    int64_t cost = around - (n > 1 ? arc(s, last, head) : 0) + least_ports(s, head, last, ports);
    if (cost < NONE) COPSE_DO(keep(s, order, cost, ports[0], ports[1], err));
    memmove(order, order + 1, (size_t)(n - 1) * sizeof *order);
    order[n - 1] = head;
  }
  return COPSE_OK;
}

/* Improves a cycle, then others that are kicked out of the best, for a while or until one is as
 * short as the bound. Closed rings that are met are all offered: they are columns. */
static copse_status improve(struct search *s, int *next, int *order, int64_t bound,
                            struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct cycle c = {.s = s, .state = 1};
  size_t m = (size_t)s->m;
  int64_t left = COPSE_RINGS_EFFORT, least = INT64_MAX;
  int *best, stalled = 0;
  COPSE_DO(COPSE_ARRAYS(&scratch, m, int, err, &c.at, &c.spare, &best));
  COPSE_DO(COPSE_ARRAYS(&scratch, m + 1, int64_t, err, &c.forwards, &c.backwards));
  for (int i = 0, v = s->m - 1; i < s->m; i++, v = next[v]) c.at[i] = v;
  for (;;) {
    improve_cycle(&c, &left);
    for (int i = 0; i < s->m; i++) next[c.at[i]] = node(&c, i + 1);
    if (s->instance->closed || c.forwards[m] < least) COPSE_DO(cut_open(s, next, order, err));
    bool better = c.forwards[m] <= least;
    stalled = c.forwards[m] < least ? 0 : stalled + 1;
    if (better) least = c.forwards[m];
    memcpy(better ? best : c.at, better ? c.at : best, m * sizeof *best);
    if (least <= bound || left <= 0 || stalled > COPSE_RINGS_STALLED || s->m < 8) break;
    kick(&c);
  }
  s->steps += COPSE_RINGS_EFFORT - left;
  return COPSE_OK;
}

static copse_status by_assignment(struct search *s, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *next, *order;
  int64_t cost;
  COPSE_DO(COPSE_ARRAYS(&scratch, (size_t)s->m, int, err, &next, &order));
  COPSE_DO(assign(s, next, &cost, err));
  if (cost < s->least) s->least = cost;
  if (cost >= NONE) return COPSE_OK;
  join_cycles(s, next, order);
  return improve(s, next, order, cost, err);
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* Sets the depot's costs over ports first .. last: the cheapest for each GPU. */
static void set_ports(struct search *s, int first, int last) {
  const struct copse_ring_instance *instance = s->instance;
  size_t m = (size_t)s->m, depot = m - 1;
  for (int g = 0; g < s->n; g++) {
    int64_t *to = s->cost + depot * m + (size_t)g, *from = s->cost + (size_t)g * m + depot;
    *to = *from = s->second[g] = NONE;
    for (int d = first; d <= last; d++) {
      int at = d * s->n + g;
      int64_t enter = length_of(s, &instance->enter[at]);
      int64_t leave = instance->leave ? length_of(s, &instance->leave[at]) : 0;
      int64_t second = instance->second ? length_of(s, &instance->second[at]) : 0;
      if (enter < *to) *to = enter, s->in[g] = d;
      if (leave < *from) *from = leave, s->out[g] = d;
      if (second < s->second[g]) s->second[g] = second;
    }
  }
}

static copse_status start(struct search *s, struct copse_err *err) {
  const struct copse_ring_instance *instance = s->instance;
  size_t n = (size_t)s->n, m = (size_t)s->m;
  COPSE_DO(COPSE_ARRAY(&s->scratch, m * m, s->cost, err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, m, s->second, err));
  COPSE_DO(COPSE_ARRAYS(&s->scratch, n, int, err, &s->in, &s->out));
  COPSE_DO(COPSE_ARRAY(&s->scratch, n + 1, s->found_cost, err));
  for (size_t i = 0; i < n; i++) {
    s->in[i] = s->out[i] = -1;
    for (size_t j = 0; j < n; j++)
      s->cost[i * m + j] = i == j ? NONE : length_of(s, &instance->move[i * n + j]);
  }
  s->least = NONE;
  if (s->n > COPSE_RINGS_EXACT_GPUS) return COPSE_OK;
  size_t sets = (size_t)1 << (m - 1);
  COPSE_DO(COPSE_ARRAY(&s->scratch, m * m, s->cost_to, err));
  return COPSE_ARRAY(&s->scratch, sets * (m - 1), s->set_cost, err);
}

copse_status copse_rings_shortest(const struct copse_ring_instance *instance,
                                  const int64_t *lengths, struct copse_arena *arena,
                                  struct copse_ring *out, int *n, int64_t *least, bool *exact,
                                  int64_t *steps, struct copse_err *err) {
  struct search s = {.instance = instance,
                     .lengths = lengths,
                     .n = instance->n_gpus,
                     .m = instance->n_gpus + !instance->closed,
                     .arena = arena,
                     .found = out};
  bool small = s.n <= COPSE_RINGS_EXACT_GPUS;
  bool each = small && instance->same_port && instance->n_ports > 1;
  copse_status status = start(&s, err);
  for (int d = 0; status == COPSE_OK && d < (each ? instance->n_ports : 1); d++) {
    if (instance->n_ports > 0) set_ports(&s, each ? d : 0, each ? d : instance->n_ports - 1);
    status = small ? over_sets(&s, !each, err) : by_assignment(&s, err);
  }
  *n = s.n_found;
  *least = s.least;
  *steps += s.steps;
  *exact = small || (s.n_found > 0 && s.found_cost[0] == s.least);
  copse_arena_free(&s.scratch);
  return status;
}
