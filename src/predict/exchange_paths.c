/*
 * Local exchange of an alltoall's paths. A flow goes in equal pieces, each whole, as one chunk,
 * over a path of its own; a piece that is late gets another path, or its flow another turn, and
 * what the simulation says decides.
 *
 *   order of flows   4>7  0>2  1>3 ...      turn: place in it, then the piece's number
 *   pieces of 0>2    0-1-2  0-3-2  0-2      each over one of the pair's paths
 *
 * Local search with a threshold that falls to 0 (Dueck and Scheuer, Threshold accepting, 1990), as
 * in exchange.c.
 */
#include "predict/exchange_paths.h"

#include <math.h>
#include <string.h>

#include "base/graph.h"
#include "predict/policy.h"
#include "predict/simulate.h"

/* Paths that a pair's pieces may take. */
struct choice {
  const int **nodes; /* [n] */
  int *n_nodes;
  int n;
};

struct search {
  const struct copse_exchange_paths *x;
  int n_flows, pieces;
  struct choice *choices; /* [n_flows] */
  double *amount;         /* [n_flows] of a piece, of M */
  int *next_rank;         /* [n_ranks * n_ranks] on the way of least latency */
  int *walk;              /* scratch: two ways, each over all ranks at most */
  double *load;           /* [n_links] us, of pieces that are dealt by loads */
  int *order;             /* [n_flows] flows in turn */
  int *path;              /* [n_flows * pieces] a choice of its flow */
  int *best_order, *best_path;
  double *now,
      *next; /* [n_flows * pieces] when each arrives, in the state as it is and in a trial */
  double soft, f, f_next, us_next, least;
  int *late, n_late; /* pieces that arrive after `soft` */
  int *last;         /* [n_flows * pieces] its last transfer in dag */
  double *arrivals;  /* [2 * n_flows * pieces] of transfers */
  size_t n_arrivals;
  struct copse_sim_dag dag;
  double work;
  uint64_t random;
  struct copse_arena arena;
  struct copse_err *err;
};

/* ---- ways to choose from -------------------------------------------------------------------- */

static void add_choice(struct choice *c, const int *nodes, int n) {
  for (int i = 0; i < c->n; i++)
    if (c->n_nodes[i] == n && memcmp(c->nodes[i], nodes, (size_t)n * sizeof *nodes) == 0) return;
  c->nodes[c->n] = nodes;
  c->n_nodes[c->n++] = n;
}

/* Whether a path has a node twice, and so is none. */
static bool has_loop(const int *nodes, int n) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      if (nodes[i] == nodes[k]) return true;
  return false;
}

/* Finds which rank is next on the way of least latency from each to each, by hops that no rank is
 * on (Floyd, Algorithm 97, 1962); -1: there is none. */
static copse_status find_ways(struct search *s) {
  const struct copse_topology *t = s->x->topology;
  int n = t->n_ranks, length;
  double *us;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)(n * n), us, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)(n * n), s->next_rank, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, 2 * (size_t)n * (size_t)t->n_nodes, s->walk, s->err));
  for (int i = 0; i < n * n; i++) {
    const int *nodes = i / n == i % n ? NULL : copse_route(s->x->routes, i / n, i % n, &length);
    us[i] = i / n == i % n ? 0 : INFINITY;
    s->next_rank[i] = -1;
    if (!nodes || !copse_route_is_hop(t, nodes, length)) continue;
    us[i] = s->x->alpha_us + HOP_US; /* of equal ones the fewest hops */
    s->next_rank[i] = i % n;
    for (int k = 0; k + 1 < length; k++)
      us[i] +=
          copse_q_to_double(t->links[copse_topology_find_link(t, nodes[k], nodes[k + 1])].latency);
  }
  for (int by = 0; by < n; by++)
    for (int i = 0; i < n * n; i++) {
      double sum = us[i / n * n + by] + us[by * n + i % n];
      if (sum >= us[i] * (1 - SAME_TIME)) continue;
      us[i] = sum;
      s->next_rank[i] = s->next_rank[i / n * n + by];
    }
  return COPSE_OK;
}

/* Goes on from a rank to another; *n nodes so far, the rank's the last. How many hops; -1: no
 * way. */
static int walk(const struct search *s, int from, int to, int *nodes, int *n) {
  int hops = 0, length, n_ranks = s->x->topology->n_ranks;
  for (; from != to; hops++) {
    int next = s->next_rank[from * n_ranks + to];
    if (next < 0) return -1;
    const int *route = copse_route(s->x->routes, from, next, &length);
    memcpy(nodes + *n, route + 1, (size_t)(length - 1) * sizeof *nodes);
    *n += length - 1;
    from = next;
  }
  return hops;
}

/* Finds the flow's own paths, that of least latency, and those over any rank of a hop more at
 * most. */
static copse_status find_choices(struct search *s, const struct copse_schedule_flow *flow,
                                 struct choice *c) {
  const struct copse_topology *t = s->x->topology;
  size_t most = (size_t)(flow->n_paths + t->n_ranks);
  int fewest = 0;
  COPSE_DO(COPSE_ARRAY(&s->arena, most, c->nodes, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, most, c->n_nodes, s->err));
  for (int p = 0; p < flow->n_paths; p++)
    add_choice(c, flow->paths[p].nodes, flow->paths[p].n_nodes);
  for (int i = -1; i < t->n_ranks; i++) { /* first the straight one */
    int *nodes, n = 1, by = i < 0 ? flow->dst : i;
    if (i == flow->src || i == flow->dst) continue;
    s->walk[0] = t->rank_nodes[flow->src];
    int before = walk(s, flow->src, by, s->walk, &n), after;
    after = before < 0 ? -1 : walk(s, by, flow->dst, s->walk, &n);
    if (after < 0) continue;
    if (i < 0) fewest = before;
    if (before + after > fewest + 1 || has_loop(s->walk, n)) continue;
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n, nodes, s->err));
    memcpy(nodes, s->walk, (size_t)n * sizeof *nodes);
    add_choice(c, nodes, n);
  }
  return COPSE_OK;
}

static int choice_of(const struct choice *c, const struct copse_schedule_path *path) {
  int i = 0;
  while (c->n_nodes[i] != path->n_nodes ||
         memcmp(c->nodes[i], path->nodes, (size_t)path->n_nodes * sizeof(int)) != 0)
    i++;
  return i;
}

/* Deals pieces to the flow's paths by their weights, to the one that is owed most. */
static void deal(struct search *s, int flow) {
  const struct copse_schedule_flow *f = &s->x->flows[flow];
  double given[MOST_PATHS] = {0};
  int n = f->n_paths < MOST_PATHS ? f->n_paths : MOST_PATHS;
  for (int i = 0; i < s->pieces; i++) {
    int most = 0;
    for (int p = 1; p < n; p++)
      if (copse_q_to_double(f->paths[p].weight) - given[p] >
          copse_q_to_double(f->paths[most].weight) - given[most])
        most = p;
    given[most] += s->amount[flow];
    s->path[flow * s->pieces + i] = choice_of(&s->choices[flow], &f->paths[most]);
  }
}

/* Loads a piece more on a path, or with -1 one less: what then is on its busiest link, and on all
 * of them on average, in us; and its latency. */
static double load_path(struct search *s, int flow, int path, double pieces) {
  const struct copse_topology *t = s->x->topology;
  const struct choice *c = &s->choices[flow];
  double busiest = 0, all = 0, latency = 0;
  int n = c->n_nodes[path] - 1;
  for (int i = 0; i < n; i++) {
    int e = copse_topology_find_link(t, c->nodes[path][i], c->nodes[path][i + 1]);
    double rate = copse_q_to_double(t->links[e].bandwidth) * 1e3;
    s->load[e] += pieces * s->amount[flow] * s->x->bytes / rate;
    busiest = fmax(busiest, s->load[e]);
    all += s->load[e];
    latency += copse_q_to_double(t->links[e].latency);
    if (t->nodes[c->nodes[path][i + 1]].rank >= 0) latency += s->x->alpha_us;
  }
  return busiest + all / n + latency;
}

/* Deals every piece to the path on which least is before it, latencies counted; then all of them
 * again, now that the others are known. */
static copse_status deal_by_loads(struct search *s) {
  int n_pieces = s->n_flows * s->pieces;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->x->topology->n_links, s->load, s->err));
  for (int at = 0; at < DEAL_ROUNDS * n_pieces; at++) {
    int turn = at % n_pieces, flow = turn % s->n_flows, piece = turn / s->n_flows;
    int *path = &s->path[flow * s->pieces + piece], n = s->choices[flow].n;
    double least = INFINITY;
    if (at >= n_pieces) load_path(s, flow, *path, -1);
    for (int i = 0; i < n; i++) { /* of equal ones another for each piece */
      int p = (piece + i) % n;
      double us = load_path(s, flow, p, 1);
      load_path(s, flow, p, -1);
      if (us < least * (1 - SAME_TIME)) least = us, *path = p;
    }
    load_path(s, flow, *path, 1);
    s->work += n;
  }
  return COPSE_OK;
}

static copse_status set_up(struct search *s) {
  size_t flows = (size_t)s->n_flows, all = flows * (size_t)s->pieces;
  COPSE_DO(COPSE_ARRAY(&s->arena, flows, s->choices, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, flows, s->amount, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, flows, int, s->err, &s->order, &s->best_order));
  COPSE_DO(COPSE_ARRAYS(&s->arena, all, int, s->err, &s->path, &s->best_path, &s->late, &s->last));
  COPSE_DO(COPSE_ARRAYS(&s->arena, all, double, s->err, &s->now, &s->next));
  COPSE_DO(find_ways(s));
  for (int f = 0; f < s->n_flows; f++) {
    double whole = 0;
    for (int p = 0; p < s->x->flows[f].n_paths; p++)
      whole += copse_q_to_double(s->x->flows[f].paths[p].weight);
    s->amount[f] = whole / s->pieces;
    COPSE_DO(find_choices(s, &s->x->flows[f], &s->choices[f]));
    if (!s->x->by_loads) deal(s, f);
    s->order[f] = f;
  }
  return s->x->by_loads ? deal_by_loads(s) : COPSE_OK;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static copse_status simulate(struct search *s) {
  const struct copse_sim_options options = {.alpha_us = s->x->alpha_us,
                                            .alpha_occupies = s->x->alpha_occupies,
                                            .duplex = 1,
                                            .min_chunk_bytes = 1e18,
                                            .max_chunk_bytes = 1e18,
                                            .pipeline_chunks = 1,
                                            .max_steps = MAX_STEPS};
  struct copse_sim_result result;
  s->dag.n_transfers = 0; /* its memory is used again */
  s->dag.n_ints = 0;
  for (int i = 0, turn = 0; i < s->n_flows; i++)
    for (int p = 0; p < s->pieces; p++, turn++) {
      int at = s->order[i] * s->pieces + p;
      const struct choice *c = &s->choices[s->order[i]];
      const struct copse_sim_transfer transfer = {.amount = s->amount[s->order[i]], .order = turn};
      COPSE_DO(copse_sim_dag_add_path(&s->dag, s->x->topology, c->nodes[s->path[at]],
                                      c->n_nodes[s->path[at]], &transfer, &s->last[at], s->err));
    }
  if ((size_t)s->dag.n_transfers > s->n_arrivals) {
    s->n_arrivals = 2 * (size_t)s->dag.n_transfers;
    COPSE_DO(COPSE_ARRAY(&s->arena, s->n_arrivals, s->arrivals, s->err));
  }
  COPSE_DO(
      copse_simulate(s->x->topology, &s->dag, &options, s->x->bytes, &result, s->arrivals, s->err));
  s->work += STEPS_OF_PATH * (double)s->dag.n_ints;
  s->us_next = result.us;
  s->f_next = 0;
  for (int i = 0; i < s->n_flows * s->pieces; i++) {
    s->next[i] = s->arrivals[s->last[i]];
    double by = s->next[i] - s->soft;
    if (by > 0) s->f_next += by * by;
  }
  return COPSE_OK;
}

/* Accepts the trial as how things are; lateness counts from `soft` on. */
static void accept(struct search *s) {
  double *before = s->now;
  s->now = s->next;
  s->next = before;
  s->n_late = 0;
  s->f = 0;
  for (int i = 0; i < s->n_flows * s->pieces; i++) {
    double by = s->now[i] - s->soft;
    if (by <= 0) continue;
    s->late[s->n_late++] = i;
    s->f += by * by;
  }
}

static void keep_best(struct search *s) {
  s->least = s->us_next;
  memcpy(s->best_order, s->order, (size_t)s->n_flows * sizeof *s->order);
  memcpy(s->best_path, s->path, (size_t)s->n_flows * (size_t)s->pieces * sizeof *s->path);
}

/* ---- moves ---------------------------------------------------------------------------------- */

/* piece >= 0: it had path `was`; else flows in turns a and b changed places. */
struct move {
  int piece, was, a, b;
};

static bool choose(struct search *s, struct move *m) {
  int piece = s->late[copse_random_below(&s->random, s->n_late)], flow = piece / s->pieces;
  if (copse_random_below(&s->random, 4) == 0)
    piece = copse_random_below(&s->random, s->n_flows * s->pieces), flow = piece / s->pieces;
  *m = (struct move){.piece = piece, .was = s->path[piece]};
  if (s->n_flows > 1 && copse_random_below(&s->random, 3) == 0) {
    m->piece = -1;
    for (m->a = 0; s->order[m->a] != flow; m->a++) continue;
    m->b = copse_random_below(&s->random, s->n_flows);
    return m->a != m->b;
  }
  int path = copse_random_below(&s->random, s->choices[flow].n);
  if (path == m->was) return false;
  s->path[piece] = path;
  return true;
}

static void swap_turns(struct search *s, const struct move *m) {
  int flow = s->order[m->a];
  s->order[m->a] = s->order[m->b];
  s->order[m->b] = flow;
}

static void undo(struct search *s, const struct move *m) {
  if (m->piece < 0)
    swap_turns(s, m);
  else
    s->path[m->piece] = m->was;
}

static copse_status improve(struct search *s) {
  double heat = HEAT, window;
  s->soft = INFINITY;
  COPSE_DO(simulate(s));
  keep_best(s);
  window = (s->us_next - s->x->enough_us) / 2;
  s->soft = s->us_next - window;
  accept(s);
  while (s->work < s->x->work && s->least > s->x->enough_us && s->n_late > 0) {
    struct move m;
    s->work++;
    if (!choose(s, &m)) continue;
    if (m.piece < 0) swap_turns(s, &m);
    heat = HEAT * (1 - s->work / s->x->work);
    COPSE_DO(simulate(s));
    if (s->f_next > s->f * (1 + heat)) {
      undo(s, &m);
      continue;
    }
    double us = s->us_next;
    if (us < s->least * (1 - 1e-9)) keep_best(s);
    if (us < s->soft + window / 2) s->soft = us - window;
    accept(s);
  }
  return COPSE_OK;
}

/* ---- the result ----------------------------------------------------------------------------- */

static copse_status take_flow(const struct search *s, int flow, struct copse_arena *arena,
                              struct copse_schedule_flow *out) {
  const struct copse_schedule_flow *from = &s->x->flows[flow];
  struct copse_schedule_path *paths;
  struct copse_q weight = COPSE_Q_ZERO;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->pieces, paths, s->err));
  for (int p = 0; p < from->n_paths; p++)
    COPSE_DO(copse_q_add(weight, from->paths[p].weight, &weight, s->err));
  COPSE_DO(copse_q_div(weight, (struct copse_q){s->pieces, 1}, &weight, s->err));
  for (int p = 0; p < s->pieces; p++) {
    int path = s->best_path[flow * s->pieces + p], *nodes;
    paths[p] =
        (struct copse_schedule_path){.n_nodes = s->choices[flow].n_nodes[path], .weight = weight};
    COPSE_DO(COPSE_ARRAY(arena, (size_t)paths[p].n_nodes, nodes, s->err));
    memcpy(nodes, s->choices[flow].nodes[path], (size_t)paths[p].n_nodes * sizeof *nodes);
    paths[p].nodes = nodes;
  }
  *out = (struct copse_schedule_flow){from->src, from->dst, s->pieces, paths};
  return COPSE_OK;
}

static void release(struct search *s) {
  copse_sim_dag_free(&s->dag);
  copse_arena_free(&s->arena);
}

copse_status copse_exchange_flows(const struct copse_exchange_paths *x, struct copse_arena *arena,
                                  const struct copse_schedule_flow **flows, double *work,
                                  struct copse_err *err) {
  COPSE_AT_END(release)
  struct search s = {
      .x = x, .n_flows = x->n_flows, .pieces = x->pieces, .random = x->seed, .err = err};
  struct copse_schedule_flow *out;
  if (x->topology->n_ranks > MOST_PATH_RANKS)
    return copse_fail(err, COPSE_UNSUPPORTED, "exchange of paths is for at most %d ranks",
                      MOST_PATH_RANKS);
  COPSE_DO(set_up(&s));
  copse_status status = improve(&s);
  *work += s.work;
  COPSE_DO(status);
  COPSE_DO(COPSE_ARRAY(arena, (size_t)x->n_flows, out, err));
  for (int i = 0; i < x->n_flows; i++) COPSE_DO(take_flow(&s, s.best_order[i], arena, &out[i]));
  *flows = out;
  return COPSE_OK;
}
