/*
 * Lowering of an alltoall: every path of a flow is a chain of ranks along which one piece of
 * one block travels; ranks in between store and forward through FIFO slots.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/lower/deal.h"
#include "codegen/lower/plan_build.h"
#include "codegen/lower/unit.h"
#include "schedule/demand.h"

/* A piece and its chain: ranks[0] sends, ranks[n - 1] keeps, the others forward. */
struct chain {
  int n;
  const int *ranks;
  struct copse_q lo, hi; /* of the pair's block */
  int *worker;           /* [n] of each rank's */
  uint32_t data_channel; /* of its first hop; the others follow */
  uint32_t back_channel; /* against the data: ready, and credits of slots */
  uint32_t *region;      /* [n - 2] slots at the forwarding ranks */
};

/* One rank's part in a chain. */
struct role {
  int rank, worker, hop, chain;
};

struct lowering {
  const struct copse_schedule *schedule;
  struct copse_plan_build b;
  struct copse_arena arena;
  struct chain *chains;
  size_t n_chains, chains_capacity;
  struct role *roles; /* by rank, worker, hop, chain: the order in which they run */
  size_t n_roles, roles_capacity;
  int *first_worker; /* [n_ranks + 1] */
  int64_t m;         /* M in bytes of the demand; 0 when uniform */
  int *rank_of;      /* [schedule->n_nodes] -1 for relays */
};

/* ---- chains ----------------------------------------------------------------------- */

static copse_status add_chain(struct lowering *l, const struct chain *chain) {
  copse_status status =
      copse_grow(&l->chains, &l->chains_capacity, l->n_chains + 1, sizeof *l->chains, l->b.err);
  if (status == COPSE_OK) l->chains[l->n_chains++] = *chain;
  return status;
}

/* The ranks that a path visits. */
static copse_status path_ranks(struct lowering *l, const struct copse_schedule_path *path,
                               struct chain *chain) {
  int *ranks = copse_arena_alloc(&l->arena, (size_t)path->n_nodes, sizeof *ranks);
  if (!ranks) return copse_fail_nomem(l->b.err);
  for (int i = 0; i < path->n_nodes; i++)
    if (l->rank_of[path->nodes[i]] >= 0) ranks[chain->n++] = l->rank_of[path->nodes[i]];
  chain->ranks = ranks;
  return COPSE_OK;
}

static bool same_ranks(const struct chain *a, const struct chain *b) {
  return a->n == b->n && memcmp(a->ranks, b->ranks, (size_t)a->n * sizeof *a->ranks) == 0;
}

/* A plan speaks of ranks: paths that differ only in relays are one chain. */
static copse_status add_flow(struct lowering *l, const struct copse_schedule_flow *flow) {
  size_t first = l->n_chains;
  struct copse_q at = COPSE_Q_ZERO, n, share;
  copse_status status;
  if (flow->n_paths == 0) return COPSE_OK; /* of a pair that sends nothing */
  /* weights are parts of M; a piece is a part of what this pair sends */
  COPSE_TRY(copse_demand_share(l->schedule->demand, l->schedule->n_ranks, l->m, flow->src,
                               flow->dst, &share, l->b.err));
  COPSE_TRY(copse_q_div(COPSE_Q_ONE, share, &n, l->b.err));
  for (int p = 0; p < flow->n_paths; p++) { /* widths first, in hi */
    struct chain chain = {.n = 0};
    size_t i = first;
    COPSE_TRY(path_ranks(l, &flow->paths[p], &chain));
    COPSE_TRY(copse_q_mul(flow->paths[p].weight, n, &chain.hi, l->b.err));
    while (i < l->n_chains && !same_ranks(&l->chains[i], &chain)) i++;
    if (i < l->n_chains)
      COPSE_TRY(copse_q_add(l->chains[i].hi, chain.hi, &l->chains[i].hi, l->b.err));
    else
      COPSE_TRY(add_chain(l, &chain));
  }
  for (size_t i = first; i < l->n_chains; i++) {
    l->chains[i].lo = at;
    COPSE_TRY(copse_q_add(at, l->chains[i].hi, &at, l->b.err));
    l->chains[i].hi = at;
  }
out:
  return status;
}

/*
 * By demand the blocks are as large as the largest pair's, and each has the extent that its
 * pair sends.
 */
static copse_status make_extents(struct lowering *l) {
  const int64_t *demand = l->schedule->demand;
  size_t n = (size_t)l->schedule->n_ranks * (size_t)l->schedule->n_ranks;
  int64_t most = 1;
  copse_status status = COPSE_OK;
  if (!demand) return COPSE_OK;
  COPSE_TRY(copse_demand_total(demand, l->schedule->n_ranks, &l->m, l->b.err));
  COPSE_TRY(copse_calloc(n, sizeof *l->b.extents, &l->b.extents, l->b.err));
  for (size_t i = 0; i < n; i++)
    if (demand[i] > most) most = demand[i];
  for (size_t i = 0; i < n; i++) l->b.extents[i] = (struct copse_plan_extent){demand[i], most};
  l->b.header.n_extents = (uint32_t)n;
out:
  return status;
}

/* A rank's block for itself is a chain of one. */
static copse_status add_own(struct lowering *l, int rank) {
  int64_t n = l->schedule->n_ranks;
  if (l->schedule->demand && l->schedule->demand[rank * n + rank] == 0) return COPSE_OK;
  int *ranks = copse_arena_alloc(&l->arena, 1, sizeof *ranks);
  if (!ranks) return copse_fail_nomem(l->b.err);
  ranks[0] = rank;
  return add_chain(l,
                   &(struct chain){.n = 1, .ranks = ranks, .lo = COPSE_Q_ZERO, .hi = COPSE_Q_ONE});
}

static int offset_of(const struct lowering *l, const struct chain *c) {
  int n = l->schedule->n_ranks;
  return (c->ranks[c->n - 1] - c->ranks[0] + n) % n;
}

static int pair_of(const struct lowering *l, const struct chain *c) {
  return c->ranks[0] * l->schedule->n_ranks + c->ranks[c->n - 1];
}

/* By distance from sender to receiver, then by sender: at any moment the ranks send to
 * different ranks, so none is flooded. */
static int compare_chains(const void *a, const void *b, void *ctx) {
  const struct chain *x = a, *y = b;
  int dx = offset_of(ctx, x), dy = offset_of(ctx, y);
  if (dx != dy) return dx - dy;
  if (x->ranks[0] != y->ranks[0]) return x->ranks[0] - y->ranks[0];
  return copse_q_cmp(x->lo, y->lo);
}

static copse_status make_ranks(struct lowering *l) {
  const struct copse_schedule *s = l->schedule;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)s->n_nodes, sizeof(int), &l->rank_of, l->b.err));
  for (int v = 0; v < s->n_nodes; v++) l->rank_of[v] = -1;
  for (int r = 0; r < s->n_ranks; r++) l->rank_of[s->rank_nodes[r]] = r;
out:
  return status;
}

static copse_status make_chains(struct lowering *l) {
  const struct copse_schedule *s = l->schedule;
  copse_status status = COPSE_OK;
  for (int r = 0; r < s->n_ranks; r++) COPSE_TRY(add_own(l, r));
  for (int f = 0; f < s->n_flows; f++) COPSE_TRY(add_flow(l, &s->flows[f]));
  qsort_r(l->chains, l->n_chains, sizeof *l->chains, compare_chains, l);
out:
  return status;
}

static double width_of(const struct chain *c) {
  return copse_q_to_double(c->hi) - copse_q_to_double(c->lo);
}

/* Every chain's piece in equal parts; see copse_units_make. */
static copse_status cut_chains(struct lowering *l, int instances) {
  size_t n = l->n_chains;
  struct chain *whole = l->chains;
  double widest = 0;
  copse_status status = COPSE_OK;
  if (instances == 1) return COPSE_OK;
  for (size_t i = 0; i < n; i++)
    if (width_of(&whole[i]) > widest) widest = width_of(&whole[i]);
  l->chains = NULL;
  l->n_chains = l->chains_capacity = 0;
  for (size_t i = 0; i < n; i++) {
    int parts = copse_instances_of(instances, width_of(&whole[i]) / widest);
    struct copse_q width, end;
    COPSE_TRY(copse_q_sub(whole[i].hi, whole[i].lo, &width, l->b.err));
    struct chain part = whole[i];
    for (int k = 1; k <= parts; k++) {
      COPSE_TRY(copse_q_mul(width, (struct copse_q){k, parts}, &end, l->b.err));
      COPSE_TRY(copse_q_add(whole[i].lo, end, &part.hi, l->b.err));
      COPSE_TRY(add_chain(l, &part));
      part.lo = part.hi;
    }
  }
out:
  free(whole);
  return status;
}

static copse_status make_pieces(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < l->n_chains; i++) {
    const struct chain *c = &l->chains[i];
    COPSE_TRY(copse_build_piece(&l->b, c->lo, c->hi, (uint32_t)pair_of(l, c) + 1));
  }
out:
  return status;
}

/* ---- roles, channels, regions ----------------------------------------------------- */

/*
 * A worker does, for each chunk, first what it sends itself, then what it forwards at the
 * first stop, and so on, and last what it waits for. Every wait is for a smaller (chunk, hop),
 * so no ring of waits can close, and sending never waits for receiving.
 */
static int compare_roles(const void *a, const void *b) {
  const struct role *x = a, *y = b;
  if (x->rank != y->rank) return x->rank - y->rank;
  if (x->worker != y->worker) return x->worker - y->worker;
  if (x->hop != y->hop) return x->hop - y->hop;
  return x->chain - y->chain;
}

static copse_status make_roles(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (size_t c = 0; c < l->n_chains; c++) {
    struct chain *chain = &l->chains[c];
    chain->worker = copse_arena_alloc(&l->arena, (size_t)chain->n, sizeof *chain->worker);
    if (!chain->worker) return copse_fail_nomem(l->b.err);
    COPSE_TRY(copse_grow(&l->roles, &l->roles_capacity, l->n_roles + (size_t)chain->n,
                         sizeof *l->roles, l->b.err));
    for (int hop = 0; hop < chain->n; hop++)
      l->roles[l->n_roles++] = (struct role){chain->ranks[hop], 0, hop, (int)c};
  }
  qsort(l->roles, l->n_roles, sizeof *l->roles, compare_roles);
out:
  return status;
}

/* At a chain's end a role only waits; but packets have to be unpacked. */
static bool moves(const struct lowering *l, const struct role *role) {
  int n = l->chains[role->chain].n;
  return n == 1 || role->hop + 1 < n || l->b.options.low_latency;
}

/* A piece read and written. */
static double role_cost(const struct lowering *l, const struct role *role) {
  const struct chain *c = &l->chains[role->chain];
  const struct copse_plan_extent *extent = l->b.extents ? &l->b.extents[pair_of(l, c)] : NULL;
  double width = copse_q_to_double(c->hi) - copse_q_to_double(c->lo);
  if (extent) width *= (double)extent->num / (double)extent->den;
  return width * (moves(l, role) ? 2 : COPSE_DEAL_WAIT);
}

/* Deals the roles [from, to) of one rank. */
static copse_status deal_rank(struct lowering *l, size_t from, size_t to, double *most,
                              double *cost) {
  struct copse_deal_role *dealt = NULL;
  size_t n = to - from, movers = 0;
  copse_status status;
  *cost = 0;
  COPSE_TRY(copse_calloc(n, sizeof *dealt, &dealt, l->b.err));
  for (size_t i = 0; i < n; i++) {
    const struct role *role = &l->roles[from + i];
    dealt[i] = (struct copse_deal_role){.cost = role_cost(l, role), .key = (int)(from + i)};
    *cost += dealt[i].cost;
    if (moves(l, role)) movers++;
  }
  int workers = l->b.options.max_workers;
  if ((size_t)workers > movers) workers = movers > 0 ? (int)movers : 1;
  COPSE_TRY(copse_deal(dealt, n, workers, most, l->b.err));
  for (size_t i = 0; i < n; i++) {
    struct role *role = &l->roles[dealt[i].key];
    role->worker = l->chains[role->chain].worker[role->hop] = dealt[i].worker;
  }
out:
  free(dealt);
  return status;
}

/* As in lower_trees.c. */
static copse_status make_workers(struct lowering *l, double *balance) {
  double most = 0, cost, most_cost = 0;
  size_t from = 0;
  copse_status status;
  COPSE_TRY(
      copse_calloc((size_t)l->schedule->n_ranks + 1, sizeof(int), &l->first_worker, l->b.err));
  for (int rank = 0; rank < l->schedule->n_ranks; rank++) {
    size_t to = from;
    while (to < l->n_roles && l->roles[to].rank == rank) to++;
    COPSE_TRY(deal_rank(l, from, to, &most, &cost));
    if (cost > most_cost) most_cost = cost;
    if (to > from) qsort(l->roles + from, to - from, sizeof *l->roles, compare_roles);
    int workers = to > from ? l->roles[to - 1].worker + 1 : 1;
    l->first_worker[rank + 1] = l->first_worker[rank] + workers;
    from = to;
  }
  *balance = most > 0 ? most_cost / (most * l->b.options.max_workers) : 1;
out:
  return status;
}
static uint32_t global_worker(const struct lowering *l, const struct chain *c, int hop) {
  return (uint32_t)(l->first_worker[c->ranks[hop]] + c->worker[hop]);
}

static copse_status make_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (size_t c = 0; c < l->n_chains; c++) {
    struct chain *chain = &l->chains[c];
    for (int back = 0; back < 2; back++) {
      *(back ? &chain->back_channel : &chain->data_channel) = l->b.header.n_channels;
      for (int hop = 0; hop + 1 < chain->n; hop++)
        COPSE_TRY(copse_build_channel(&l->b, global_worker(l, chain, hop + back),
                                      global_worker(l, chain, hop + 1 - back)));
    }
  }
out:
  return status;
}

/* Roles come by rank, as regions must. */
static copse_status make_regions(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (size_t c = 0; c < l->n_chains; c++) {
    struct chain *chain = &l->chains[c];
    chain->region = copse_arena_alloc(&l->arena, (size_t)chain->n, sizeof *chain->region);
    if (!chain->region) return copse_fail_nomem(l->b.err);
  }
  for (size_t i = 0; i < l->n_roles; i++) {
    const struct role *role = &l->roles[i];
    struct chain *chain = &l->chains[role->chain];
    bool last = role->hop == chain->n - 1;
    if (role->hop == 0 || (last && !l->b.options.low_latency)) continue;
    COPSE_TRY(copse_build_region(&l->b, role->rank, role->chain, &chain->region[role->hop]));
  }
out:
  return status;
}

/* ---- operations ------------------------------------------------------------------- */

static copse_status add_output(struct lowering *l, const struct chain *c) {
  return copse_build_operand(&l->b, c->ranks[c->n - 1], COPSE_BUFFER_OUTPUT, (uint32_t)c->ranks[0]);
}

/* The memory of hop i: the sender's input, a forwarder's slots, the receiver's output; packets
 * at all but the sender. */
static copse_status add_place(struct lowering *l, const struct chain *c, int hop) {
  int src = c->ranks[0], dst = c->ranks[c->n - 1];
  if (hop == 0) return copse_build_operand(&l->b, src, COPSE_BUFFER_INPUT, (uint32_t)dst);
  if (hop == c->n - 1 && !l->b.options.low_latency) return add_output(l, c);
  return copse_build_operand(&l->b, c->ranks[hop], copse_build_region_buffer(&l->b),
                             c->region[hop]);
}

static copse_status add_put(struct lowering *l, const struct role *role) {
  const struct chain *c = &l->chains[role->chain];
  uint32_t first = l->b.header.n_operands;
  copse_status status;
  COPSE_TRY(add_place(l, c, role->hop));
  if (role->hop == c->n - 1) /* the rank's own block, or out of the packets */
    COPSE_TRY(add_output(l, c));
  else
    COPSE_TRY(add_place(l, c, role->hop + 1));
  status = copse_build_move(&l->b, role->chain, first, 1, 0);
out:
  return status;
}

/* With packets nobody asks: every rank hears of every other in every alltoall. */
static copse_status add_packet_role(struct lowering *l, const struct role *role) {
  const struct chain *c = &l->chains[role->chain];
  uint32_t hop = (uint32_t)role->hop;
  copse_status status = COPSE_OK;
  if (hop > 0) COPSE_TRY(copse_build_data_sync(&l->b, COPSE_OP_WAIT, c->data_channel + hop - 1));
  COPSE_TRY(add_put(l, role));
  if (role->hop < c->n - 1)
    COPSE_TRY(copse_build_data_sync(&l->b, COPSE_OP_SIGNAL, c->data_channel + hop));
out:
  return status;
}

static copse_status add_role(struct lowering *l, const struct role *role) {
  if (l->b.options.low_latency) return add_packet_role(l, role);
  const struct chain *c = &l->chains[role->chain];
  uint32_t hop = (uint32_t)role->hop;
  bool last = role->hop == c->n - 1, next_is_slot = role->hop + 1 < c->n - 1;
  copse_status status = COPSE_OK;
  if (hop > 0) /* at the end it is enough to hear that all of it is there */
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, last ? COPSE_WHEN_LAST : COPSE_WHEN_ALWAYS,
                               c->data_channel + hop - 1));
  if (last && c->n > 1) return COPSE_OK;
  if (c->n > 1) /* the next rank has entered; later: a slot is free again */
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST, c->back_channel + hop));
  if (next_is_slot)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_AFTER_FIFO, c->back_channel + hop));
  COPSE_TRY(add_put(l, role));
  if (c->n > 1)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL,
                               next_is_slot ? COPSE_WHEN_ALWAYS : COPSE_WHEN_LAST,
                               c->data_channel + hop));
  if (hop > 0)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_BEFORE_FIFO,
                               c->back_channel + hop - 1));
out:
  return status;
}

/* Roles [from, to) of one worker: first its word to those that will put to it. */
static copse_status add_worker(struct lowering *l, int rank, size_t from, size_t to) {
  uint32_t first_op = l->b.header.n_ops;
  copse_status status = COPSE_OK;
  for (size_t i = from; i < to; i++)
    if (l->roles[i].hop > 0 && !l->b.options.low_latency)
      COPSE_TRY(copse_build_sync(
          &l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
          l->chains[l->roles[i].chain].back_channel + (uint32_t)l->roles[i].hop - 1));
  for (size_t i = from; i < to; i++) COPSE_TRY(add_role(l, &l->roles[i]));
  status = copse_build_worker(&l->b, rank, first_op);
out:
  return status;
}

static copse_status make_ops(struct lowering *l) {
  size_t from = 0;
  copse_status status = COPSE_OK;
  for (int rank = 0; rank < l->schedule->n_ranks; rank++) {
    for (int w = 0; w < l->first_worker[rank + 1] - l->first_worker[rank]; w++) {
      size_t to = from;
      while (to < l->n_roles && l->roles[to].rank == rank && l->roles[to].worker == w) to++;
      COPSE_TRY(add_worker(l, rank, from, to));
      from = to;
    }
  }
out:
  return status;
}

static void release_chains(struct lowering *l) {
  free(l->chains);
  free(l->roles);
  free(l->first_worker);
  l->chains = NULL;
  l->roles = NULL;
  l->first_worker = NULL;
  l->n_chains = l->chains_capacity = l->n_roles = l->roles_capacity = 0;
}

static copse_status cut_into(void *lowering, int instances, struct copse_deal_outcome *outcome,
                             struct copse_err *err) {
  struct lowering *l = lowering;
  copse_status status;
  (void)err; /* the lowering's own */
  release_chains(l);
  COPSE_TRY(make_chains(l));
  COPSE_TRY(cut_chains(l, instances));
  COPSE_TRY(make_roles(l));
  COPSE_TRY(make_workers(l, &outcome->balance));
  outcome->roles = (int64_t)l->n_roles;
  outcome->per_worker =
      (double)l->n_roles / ((double)l->schedule->n_ranks * l->b.options.max_workers);
out:
  return status;
}

copse_status copse_lower_flows(const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, struct copse_plan **out,
                               struct copse_err *err) {
  struct lowering l = {.schedule = schedule};
  copse_status status;
  if (options && options->low_latency && schedule->demand)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall by demand has no low-latency plan: its blocks may be empty");
  COPSE_TRY(copse_build_start(&l.b, schedule, options, 1, err));
  COPSE_TRY(make_ranks(&l));
  COPSE_TRY(make_extents(&l));
  COPSE_TRY(copse_deal_instances(&l, cut_into, l.b.options.instances, err));
  int levels = 0;
  for (size_t i = 0; i < l.n_chains; i++)
    if (l.chains[i].n - 1 > levels) levels = l.chains[i].n - 1;
  copse_build_levels(&l.b, levels);
  COPSE_TRY(make_pieces(&l));
  COPSE_TRY(make_channels(&l));
  COPSE_TRY(make_regions(&l));
  COPSE_TRY(make_ops(&l));
  COPSE_TRY(copse_build_finish(&l.b, out));
out:
  release_chains(&l);
  free(l.rank_of);
  copse_arena_free(&l.arena);
  copse_build_free(&l.b);
  return status;
}
