/*
 * All-to-all: from a topology to flows over paths, with the lengths that bound them; and one within
 * a given part of the links, as groups that share a fabric have it.
 * docs/theory.md, "src/solver/alltoall/".
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "schedule/demand.h"
#include "schedule/loads.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/solve.h"
#include "solver/alltoall/concurrent.h"
#include "solver/alltoall/paths.h"
#include "solver/joint/joint.h"
#include "topology/symmetry/symmetry.h"

struct build {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  struct copse_schedule *schedule;
  struct copse_instance instance;
  struct copse_concurrent result;
  int64_t *reduced; /* the demand divided by its greatest common divisor, NULL: uniform */
  int64_t m;        /* M in units of the reduced demand */
  struct copse_permutation rotation; /* in the schedule's arena */
  /* within a part of the links */
  const struct copse_joint_part *part;
  struct copse_schedule_flow *flows;
  int *sources; /* nodes of all ranks but the sink */
  struct copse_err *err;
};

/* Brings weights of cuts to whole numbers; false where they leave 64 bits. */
static bool whole_weights(const struct copse_joint *joint, int64_t *weights) {
  int64_t common = 1;
  for (int c = 0; c < joint->n_cuts; c++)
    if (copse_lcm(common, joint->cuts[c].weight.den, &common, NULL) != COPSE_OK) return false;
  for (int c = 0; c < joint->n_cuts; c++)
    if (copse_mul_overflows(joint->cuts[c].weight.num, common / joint->cuts[c].weight.den,
                            &weights[c]))
      return false;
  return true;
}

/* Sets lengths of links to what a joint optimum's cuts of one phase say, the longest of all phases,
 * which come one after the other; false where they are too long. */
static bool set_cut_lengths(const struct copse_network *network, const struct copse_joint *joint,
                            const int64_t *weights, int64_t *phase, int64_t *lengths) {
  for (int c = 0; c < joint->n_cuts; c++) {
    const struct copse_joint_cut *cut = &joint->cuts[c];
    if (c == 0 || cut->sink != cut[-1].sink)
      memset(phase, 0, (size_t)network->n_links * sizeof *phase);
    for (int e = 0; e < network->n_links; e++) {
      if (!cut->inside[network->links[e].src] || cut->inside[network->links[e].dst]) continue;
      if (copse_add_overflows(phase[e], weights[c], &phase[e]) || phase[e] > COPSE_LENGTH_MAX)
        return false;
      lengths[e] = copse_larger(lengths[e], phase[e]);
    }
  }
  return true;
}

/* Finds the bound by the joint programme of one group, where that is of the size. */
static copse_status find_joint_bound(struct build *b, struct copse_concurrent_problem *problem,
                                     bool *found) {
  const struct copse_network *network = &b->instance.network;
  const struct copse_joint_group group = {.n_members = network->n_terminals,
                                          .members = network->terminals,
                                          .exchanges = true,
                                          .root = -1};
  const struct copse_joint_options options = {.max_columns = COPSE_GROUPS_COLUMNS,
                                              .progress = problem->progress};
  COPSE_AT_END(copse_joint_free) struct copse_joint joint = {0};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int64_t *weights, *phase, *lengths;
  COPSE_DO(copse_joint_find(network, &group, 1, &options, &joint, b->err));
  if (joint.n_cuts == 0 || joint.rounded_proof) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)joint.n_cuts, weights, b->err));
  COPSE_DO(COPSE_ARRAYS(&scratch, (size_t)network->n_links, int64_t, b->err, &phase, &lengths));
  *found =
      whole_weights(&joint, weights) && set_cut_lengths(network, &joint, weights, phase, lengths);
  if (!*found) return COPSE_OK;
  problem->lengths = lengths;
  COPSE_DO(copse_concurrent_solve(problem, &b->result, b->err));
  problem->lengths = NULL;
  *found = b->result.bound.num > 0;
  if (!*found) copse_concurrent_free(&b->result);
  return COPSE_OK;
}

/* Finds the bound alone of few ranks without symmetry: with little work, or by the joint programme,
 * which takes a fifth of the time where there are many sources and many ways. *found: it is the
 * optimum; else the search has yet to be made to its end. */
static copse_status find_bound(struct build *b, struct copse_concurrent_problem *problem,
                               bool *found) {
  problem->work = COPSE_EXCHANGE_WORK;
  COPSE_DO(copse_concurrent_solve(problem, &b->result, b->err));
  problem->work = 0;
  *found = b->result.unreached_source >= 0 || b->result.finished;
  if (*found) return COPSE_OK;
  copse_concurrent_free(&b->result);
  return find_joint_bound(b, problem, found);
}

static copse_status solve_flow(struct build *b) {
  const struct copse_solve_options *o = b->options;
  struct copse_concurrent_problem problem = {.network = &b->instance.network,
                                             .demand = b->reduced,
                                             .forward = !o->no_forward,
                                             .rotation = b->rotation,
                                             .total = b->m,
                                             .time_unit = b->instance.scale,
                                             .tolerance = o->tolerance,
                                             .progress = o->progress};
  bool found = false;
  if (o->bound_only && !b->reduced && !o->no_forward && b->rotation.order == 1 &&
      o->tolerance.num == 0 && b->topology->n_ranks <= COPSE_EXACT_EXCHANGE_RANKS)
    COPSE_DO(find_bound(b, &problem, &found));
  if (!found) COPSE_DO(copse_concurrent_solve(&problem, &b->result, b->err));
  int from = b->result.unreached_source, to = b->result.unreached_sink;
  if (from < 0) return COPSE_OK;
  return copse_topology_refuse_unreached(
      b->topology, o->label, b->topology->rank_nodes[from], b->topology->rank_nodes[to],
      o->no_forward ? " without passing through ranks" : "", b->err);
}

static copse_status set_lengths(struct build *b) {
  const struct copse_topology *t = b->topology;
  struct copse_bound *bound = &b->schedule->bound;
  int n = 0;
  for (int e = 0; e < t->n_links; e++) n += b->result.lengths[e] > 0;
  struct copse_schedule_length *lengths;
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, (size_t)n, lengths, b->err));
  bound->kind = COPSE_BOUND_LENGTHS;
  bound->lengths = lengths;
  for (int e = 0; e < t->n_links; e++)
    if (b->result.lengths[e] > 0)
      lengths[bound->n_lengths++] = (struct copse_schedule_length){
          t->links[e].src, t->links[e].dst, {b->result.lengths[e], 1}};
  bound->time_per_GB = b->result.bound;
  return COPSE_OK;
}

/* Adds a path of amount / whole of M; each run of one pair is a flow. */
static copse_status add_path(struct build *b, int src, int dst, int64_t amount, int64_t whole,
                             struct copse_schedule_path *path) {
  int n = b->schedule->n_flows;
  struct copse_schedule_flow *last = b->flows + n - 1;
  COPSE_DO(copse_q_make(amount, whole, &path->weight, b->err));
  if (n > 0 && last->src == src && last->dst == dst)
    last->n_paths++;
  else
    b->flows[b->schedule->n_flows++] = (struct copse_schedule_flow){src, dst, 1, path};
  return COPSE_OK;
}

static copse_status set_flows(struct build *b) {
  const struct copse_concurrent *r = &b->result;
  int64_t whole = b->m * r->whole; /* fits 64 bits: the solver has checked it */
  struct copse_schedule_path *paths;
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, (size_t)r->n_paths, paths, b->err));
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, (size_t)r->n_paths, b->flows, b->err));
  for (int i = 0; i < r->n_paths; i++) {
    const struct copse_concurrent_path *p = &r->paths[i];
    int *nodes;
    COPSE_DO(COPSE_ARRAY(&b->schedule->arena, (size_t)p->n_nodes, nodes, b->err));
    paths[i].nodes = memcpy(nodes, p->nodes, (size_t)p->n_nodes * sizeof *nodes);
    paths[i].n_nodes = p->n_nodes;
    COPSE_DO(add_path(b, p->source, p->sink, p->amount, whole, &paths[i]));
  }
  b->schedule->flows = b->flows;
  return COPSE_OK;
}

/* Checks that a tolerance that a user has named is met: he relies on it. */
static copse_status check_tolerance(struct build *b) {
  struct copse_q limit;
  if (b->options->tolerance.num == 0 || b->options->may_miss) return COPSE_OK;
  COPSE_DO(copse_q_add(COPSE_Q_ONE, b->options->tolerance, &limit, b->err));
  if (copse_q_to_double(b->result.time) >
      copse_q_to_double(b->result.bound) * copse_q_to_double(limit))
    return copse_fail(
        b->err, COPSE_OVERFLOW,
        "the tolerance is not met: the flows that were found are %.3g %% above the "
        "bound; without a tolerance they are made",
        100 * (copse_q_to_double(b->result.time) / copse_q_to_double(b->result.bound) - 1));
  return COPSE_OK;
}

static copse_status set_demand(struct build *b) {
  size_t n = (size_t)b->topology->n_ranks * (size_t)b->topology->n_ranks;
  b->m = b->topology->n_ranks;
  if (!b->options->demand) return COPSE_OK;
  int64_t *copy;
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, n, copy, b->err));
  memcpy(copy, b->options->demand, n * sizeof *copy);
  b->schedule->demand = copy;
  int64_t common = 0;
  for (size_t i = 0; i < n; i++) common = copse_gcd(common, copy[i]);
  if (common == 0) return copse_fail(b->err, COPSE_INVALID, "the demand is all zero");
  COPSE_DO(copse_calloc(n, sizeof *b->reduced, &b->reduced, b->err));
  for (size_t i = 0; i < n; i++) b->reduced[i] = copy[i] / common;
  return copse_demand_total(b->reduced, b->topology->n_ranks, &b->m, b->err);
}

static copse_status set_rotation(struct build *b) {
  struct copse_permutation *rotation;
  if (b->rotation.order == 1) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, 1, rotation, b->err));
  *rotation = b->rotation;
  b->schedule->rotations = rotation;
  b->schedule->n_rotations = 1;
  if (b->topology->n_ranks > COPSE_LISTED_FLOWS_RANKS) return COPSE_OK;
  return copse_schedule_expand(b->schedule, b->err);
}

/* Finds the rotation. Where all flows are listed one of hosts is taken for granted or left: without
 * one the programme is small, and its paths as good. */
static copse_status find_rotation(struct build *b) {
  struct copse_arena *arena = &b->schedule->arena;
  if (b->topology->n_ranks > COPSE_LISTED_FLOWS_RANKS)
    return copse_topology_rotation(b->topology, arena, &b->rotation, b->err);
  return copse_topology_host_rotation(b->topology, arena, &b->rotation, b->err);
}

static void end_build(struct build *b) {
  copse_concurrent_free(&b->result);
  copse_instance_free(&b->instance);
  free(b->reduced);
  free(b->sources);
}

copse_status copse_solve_alltoall(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule *schedule,
                                  struct copse_solve_seconds *seconds, struct copse_err *err) {
  COPSE_AT_END(end_build)
  struct build b = {.topology = topology,
                    .options = options,
                    .schedule = schedule,
                    .rotation.order = 1,
                    .err = err};
  double start = copse_clock_seconds();
  schedule->no_forward = options->no_forward;
  COPSE_DO(set_demand(&b));
  COPSE_DO(copse_instance_scale(topology, &b.instance, err));
  if (!options->demand && !options->no_symmetry) COPSE_DO(find_rotation(&b));
  COPSE_DO(solve_flow(&b));
  COPSE_DO(set_lengths(&b));
  seconds->optimum = copse_clock_seconds() - start;
  if (options->bound_only) {
    schedule->time_per_GB = schedule->bound.time_per_GB;
    return COPSE_OK;
  }
  start = copse_clock_seconds();
  schedule->time_per_GB = b.result.time;
  COPSE_DO(check_tolerance(&b));
  COPSE_DO(set_flows(&b));
  COPSE_DO(set_rotation(&b));
  seconds->pack = copse_clock_seconds() - start;
  return COPSE_OK;
}

/* ---- within a part of the links ------------------------------------------------------------ */

static copse_status add_paths(struct build *b, int sink, const struct copse_gather_path *from,
                              size_t n) {
  struct copse_schedule_path *paths;
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, n, paths, b->err));
  for (size_t i = 0; i < n; i++) {
    int src = b->topology->nodes[b->sources[from[i].source]].rank;
    paths[i].nodes = from[i].nodes;
    paths[i].n_nodes = from[i].n_nodes;
    COPSE_DO(add_path(b, src, sink, from[i].amount, b->part->whole, &paths[i]));
  }
  return COPSE_OK;
}

static copse_status fill_sink(struct build *b, int sink) {
  const struct copse_topology *t = b->topology;
  COPSE_AT_END(copse_free_at) struct copse_gather_path *paths = NULL;
  size_t n;
  int n_sources = 0;
  for (int r = 0; r < t->n_ranks; r++)
    if (r != sink) b->sources[n_sources++] = t->rank_nodes[r];
  const struct copse_gather_question question = {.network = &b->instance.network,
                                                 .capacities = b->part->exchange[sink],
                                                 .sources = b->sources,
                                                 .n_sources = n_sources,
                                                 .sink = t->rank_nodes[sink],
                                                 .amount = b->part->whole / t->n_ranks};
  COPSE_DO(copse_gather_paths(&question, &b->schedule->arena, &paths, &n, b->err));
  return add_paths(b, sink, paths, n);
}

static copse_status fill_exchange(struct build *b) {
  size_t n = (size_t)b->topology->n_ranks;
  COPSE_DO(copse_instance_scale(b->topology, &b->instance, b->err));
  COPSE_DO(copse_calloc(n, sizeof *b->sources, &b->sources, b->err));
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, n * n, b->flows, b->err));
  for (int r = 0; r < b->topology->n_ranks; r++) COPSE_DO(fill_sink(b, r));
  b->schedule->flows = b->flows;
  return copse_flow_time(b->topology, b->flows, b->schedule->n_flows, &b->schedule->time_per_GB,
                         b->err);
}

copse_status copse_solve_exchange_in_part(const struct copse_topology *topology,
                                          const struct copse_solve_options *options,
                                          const struct copse_joint_part *part,
                                          struct copse_schedule **out,
                                          struct copse_solve_seconds *seconds,
                                          struct copse_err *err) {
  struct copse_solve_options bound_only = *options;
  struct copse_solve_seconds bound_seconds = {0};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *made = part ? *out : NULL;
  COPSE_AT_END(end_build) struct build b = {.topology = topology, .part = part, .err = err};
  *out = NULL;
  bound_only.bound_only = true;
  if (topology->n_ranks > COPSE_EXACT_EXCHANGE_RANKS)
    bound_only.tolerance = COPSE_EXCHANGE_TOLERANCE;
  if (!made) COPSE_DO(copse_solve_schedule(topology, &bound_only, &made, &bound_seconds, err));
  b.schedule = made;
  made->n_flows = 0;
  seconds->optimum += bound_seconds.optimum;
  double start = copse_clock_seconds();
  if (part) COPSE_DO(fill_exchange(&b));
  seconds->pack += copse_clock_seconds() - start;
  *out = made;
  made = NULL;
  return COPSE_OK;
}

/* ---- fewer peers --------------------------------------------------------------------------- */

struct thinning {
  const struct copse_topology *t;
  int n, most;
  int longest;   /* nodes of a way from rank to rank */
  bool sparing;  /* as few pairs as can be serve others, else those with the least load */
  int *rank_of;  /* [n_nodes] -1: a relay */
  int64_t *load; /* [n_links] of COPSE_WHOLE_LOAD */
  struct peer {
    int64_t weight; /* of COPSE_WHOLE_LOAD, what goes straight from rank to rank; 0: nothing does */
    const int *way; /* [n_way] nodes */
    int n_way, by;  /* by which rank it goes instead; -1: by none */
    bool stays;     /* others go over it, or no rank can stand in */
  } * peers;        /* [n * n] from, to */
  int *to, *from;   /* [n] peers */
  struct copse_arena arena;
};

static int64_t time_of(int64_t load, struct copse_q bandwidth) {
  __int128 time = (__int128)load * bandwidth.den / bandwidth.num;
  return time > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)time;
}

static void free_thinning(struct thinning *m) { copse_arena_free(&m->arena); }

static void load_way(struct thinning *m, const struct peer *peer, int64_t weight) {
  for (int i = 0; i + 1 < peer->n_way; i++)
    m->load[copse_topology_find_link(m->t, peer->way[i], peer->way[i + 1])] += weight;
}

/* Returns how long the busiest link of a way takes with so much more, in no unit. */
static int64_t busiest_with(const struct thinning *m, const struct peer *peer, int64_t weight) {
  int64_t most = 0;
  for (int i = 0; i + 1 < peer->n_way; i++) {
    int e = copse_topology_find_link(m->t, peer->way[i], peer->way[i + 1]);
    int64_t time = time_of(m->load[e] + weight, m->t->links[e].bandwidth);
    if (time > most) most = time;
  }
  return most;
}

/* Adds a path's load to the ways from rank to rank. Its nodes are the topology's. */
static void add_peers(struct thinning *m, const int *path, int n, int64_t weight) {
  for (int begin = 0, end = 1; end < n; end++) {
    if (m->rank_of[path[end]] < 0) continue;
    struct peer *peer = &m->peers[m->rank_of[path[begin]] * m->n + m->rank_of[path[end]]];
    if (!peer->way) {
      *peer = (struct peer){0, &path[begin], end - begin + 1, -1, false};
      m->to[m->rank_of[path[begin]]]++;
      m->from[m->rank_of[path[end]]]++;
      if (peer->n_way > m->longest) m->longest = peer->n_way;
    }
    peer->weight += weight;
    for (int i = begin; i < end; i++)
      m->load[copse_topology_find_link(m->t, path[i], path[i + 1])] += weight;
    begin = end;
  }
}

/* Returns the most ranks that a rank sends to or receives from. */
static int most_peers(const struct thinning *m) {
  int most = 0;
  for (int r = 0; r < m->n; r++) {
    if (m->to[r] > most) most = m->to[r];
    if (m->from[r] > most) most = m->from[r];
  }
  return most;
}

/* Finds the pair of ranks with too many peers and the most of them; NULL: none. */
static struct peer *find_crowded(struct thinning *m) {
  struct peer *best = NULL;
  int most = 0, any = most_peers(m);
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < m->n && m->to[i] + any > most; j++) {
      struct peer *peer = &m->peers[i * m->n + j];
      int to = m->to[i], from = m->from[j];
      bool crowded = to > m->most || from > m->most;
      if (!peer->way || peer->by >= 0 || peer->stays || !crowded || to + from <= most) continue;
      best = peer;
      most = to + from;
    }
  return best;
}

/* Goes over the rank whose links are the least busy with it; if there is none the pair stays. */
static void go_by_another(struct thinning *m, struct peer *peer) {
  int src = (int)(peer - m->peers) / m->n, dst = (int)(peer - m->peers) % m->n;
  int64_t least = INT64_MAX;
  load_way(m, peer, -peer->weight);
  for (int step = 1; step < m->n; step++) {
    int by = (src + step) % m->n;
    struct peer *first = &m->peers[src * m->n + by], *second = &m->peers[by * m->n + dst];
    if (!first->way || first->by >= 0 || !second->way || second->by >= 0) continue;
    int64_t one = busiest_with(m, first, peer->weight), two = busiest_with(m, second, peer->weight);
    if (two > one) one = two;
    for (int i = 0; i < 2 && m->sparing; i++)
      one += (i ? first : second)->stays ? 0 : INT64_MAX / 4;
    if (one < least) peer->by = by;
    if (one < least) least = one;
  }
  peer->stays = peer->by < 0;
  if (peer->stays) {
    load_way(m, peer, peer->weight);
    return;
  }
  struct peer *over[2] = {&m->peers[src * m->n + peer->by], &m->peers[peer->by * m->n + dst]};
  for (int i = 0; i < 2; i++) {
    load_way(m, over[i], peer->weight);
    over[i]->weight += peer->weight;
    over[i]->stays = true;
  }
  m->to[src]--;
  m->from[dst]--;
}

static copse_status thin_way(void *context, struct copse_arena *arena, int from, int to,
                             const int **way, int *n_way, struct copse_err *err) {
  struct thinning *m = context;
  const int *old = *way;
  int *nodes, n = 1, most = 2 * m->longest * *n_way;
  (void)from, (void)to;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)most, nodes, err));
  nodes[0] = old[0];
  for (int begin = 0, end = 1; end < *n_way; end++) {
    if (m->rank_of[old[end]] < 0) continue;
    int src = m->rank_of[old[begin]], dst = m->rank_of[old[end]];
    int by = m->peers[src * m->n + dst].by;
    const struct peer *over[2] = {&m->peers[src * m->n + by], &m->peers[by * m->n + dst]};
    for (int i = begin + 1; by < 0 && i <= end; i++) nodes[n++] = old[i];
    for (int o = 0; by >= 0 && o < 2; o++)
      for (int i = 1; i < over[o]->n_way; i++) nodes[n++] = over[o]->way[i];
    begin = end;
  }
  *way = nodes;
  *n_way = n;
  return COPSE_OK;
}

static copse_status list_peers(struct thinning *m, const struct copse_schedule *s,
                               struct copse_err *err) {
  size_t n = (size_t)m->n;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->t->n_nodes, m->rank_of, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->t->n_links, m->load, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, n * n, m->peers, err));
  COPSE_DO(COPSE_ARRAYS(&m->arena, n, int, err, &m->to, &m->from));
  for (int v = 0; v < m->t->n_nodes; v++) m->rank_of[v] = m->t->nodes[v].rank;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++) {
      const struct copse_schedule_path *path = &s->flows[f].paths[p];
      add_peers(m, path->nodes, path->n_nodes, copse_load_part(path->weight));
    }
  return COPSE_OK;
}

/* Makes the schedule as it is at hand. */
static copse_status make_thinned(struct thinning *m, const struct copse_schedule *s,
                                 struct copse_schedule **out, struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *made = NULL;
  COPSE_DO(copse_schedule_borrow(s, &made, err));
  COPSE_DO(copse_schedule_change_ways(made, thin_way, m, err));
  COPSE_DO(copse_flow_time(m->t, made->flows, made->n_flows, &made->time_per_GB, err));
  *out = made;
  made = NULL;
  return COPSE_OK;
}

/* Hands on all with at most `most` peers in one of the two ways; *most: less than the fewest. */
static copse_status thin(const struct copse_schedule *s, const struct copse_topology *topology,
                         bool sparing, int *most, copse_take_thinned *take, void *context,
                         struct copse_err *err) {
  COPSE_AT_END(free_thinning)
  struct thinning m = {.t = topology, .n = topology->n_ranks, .sparing = sparing};
  COPSE_DO(list_peers(&m, s, err));
  for (int peers = most_peers(&m), before = peers + 1; peers < before; peers = most_peers(&m)) {
    struct copse_schedule *made;
    struct peer *crowded;
    before = peers;
    if (peers <= *most) {
      COPSE_DO(make_thinned(&m, s, &made, err));
      COPSE_DO(take(context, made, peers, err));
      *most = peers - 1;
    }
    m.most = peers - 1;
    while ((crowded = find_crowded(&m))) go_by_another(&m, crowded);
  }
  return COPSE_OK;
}

copse_status copse_alltoall_thin(const struct copse_schedule *s,
                                 const struct copse_topology *topology, int most,
                                 copse_take_thinned *take, void *context, struct copse_err *err) {
  COPSE_DO(thin(s, topology, false, &most, take, context, err));
  return thin(s, topology, true, &most, take, context, err);
}
