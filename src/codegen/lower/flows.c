/*
 * An alltoall as operations of a plan. A chain (work.h) is the ranks along which one piece of one
 * pair's block travels:
 *
 *   sender               forwarder             receiver
 *   input --- put ---> FIFO slots --- put ---> output
 *     |----- signal ----->|----- signal (last) -->|     data: for every chunk, or once at the end
 *     |<- entered, credit-|<----- entered --------|     back: before the first put; a slot is free
 *
 * A piece is put into the next rank's slots, or at the last hop straight into the receiver's
 * output, with the handshakes and credits of trees.c. In the low-latency protocol it goes in
 * packets, also at the last hop, from where the receiver copies them; nobody asks then, because
 * every rank is notified of every other in every alltoall (check/clock.h).
 *
 * Order, and why nothing deadlocks. For each chunk a worker does first what it sends itself, then
 * what it forwards at the first stop, and so on, and last what it waits for, at the end of a path
 * once for all chunks. Every wait is for a smaller (chunk, hop), so no ring of waits can close, and
 * sending never waits for receiving. Roles are dealt as in trees.c. Within a hop they are done by
 * the distance from sender to receiver, so that at any moment the ranks send to different ranks.
 *
 * By demand (an alltoallv known beforehand) blocks are as large as the largest pair's, and each has
 * an extent: the part of it that its pair sends.
 */
#include <stdlib.h>

#include "codegen/lower/plan_build.h"
#include "codegen/lower/policy.h"
#include "codegen/lower/work.h"

/* What one chain has in the plan. */
struct passage {
  int *worker;           /* [n] of each rank's */
  uint32_t *region;      /* [n] slots at the forwarding ranks */
  uint32_t data_channel; /* of its first hop; the others follow */
  uint32_t back_channel; /* against the data: entered, and credits of slots */
};

/* One rank's part in a chain. */
struct role {
  int rank, worker, hop, chain;
};

struct lowering {
  struct copse_plan_build *b;
  int n_ranks;
  struct copse_chains chains;
  struct passage *passages; /* [n_chains] */
  struct role *roles;       /* by rank, worker, hop, chain: the order in which they run */
  size_t n_roles;
  int *first_worker;        /* [n_ranks + 1] */
  struct copse_arena arena; /* of one cut into instances */
};

static int pair_of(const struct lowering *l, const struct copse_chain *c) {
  return c->ranks[0] * l->n_ranks + c->ranks[c->n - 1];
}

static copse_status make_extents(struct lowering *l) {
  struct copse_plan_build *b = l->b;
  const int64_t *demand = b->schedule->demand;
  size_t n = (size_t)l->n_ranks * (size_t)l->n_ranks;
  int64_t most = 1;
  if (!demand) return COPSE_OK;
  COPSE_DO(copse_calloc(n, sizeof *b->extents, &b->extents, b->err));
  for (size_t i = 0; i < n; i++)
    if (demand[i] > most) most = demand[i];
  for (size_t i = 0; i < n; i++) b->extents[i] = (struct copse_plan_extent){demand[i], most};
  b->header.n_extents = (uint32_t)n;
  return COPSE_OK;
}

/* ---- roles and workers ------------------------------------------------------------------- */

static int compare_roles(const void *a, const void *b) {
  const struct role *x = a, *y = b;
  if (x->rank != y->rank) return x->rank - y->rank;
  if (x->worker != y->worker) return x->worker - y->worker;
  if (x->hop != y->hop) return x->hop - y->hop;
  return x->chain - y->chain;
}

static copse_status make_roles(struct lowering *l, struct copse_err *err) {
  size_t n = 0;
  for (int c = 0; c < l->chains.n_chains; c++) n += (size_t)l->chains.chains[c].n;
  l->n_roles = 0;
  COPSE_DO(copse_arena_array(&l->arena, n, sizeof *l->roles, &l->roles, err));
  COPSE_DO(copse_arena_array(&l->arena, (size_t)l->chains.n_chains, sizeof *l->passages,
                             &l->passages, err));
  for (int c = 0; c < l->chains.n_chains; c++) {
    const struct copse_chain *chain = &l->chains.chains[c];
    COPSE_DO(
        copse_arena_array(&l->arena, (size_t)chain->n, sizeof(int), &l->passages[c].worker, err));
    COPSE_DO(copse_arena_array(&l->arena, (size_t)chain->n, sizeof(uint32_t),
                               &l->passages[c].region, err));
    for (int hop = 0; hop < chain->n; hop++)
      l->roles[l->n_roles++] = (struct role){chain->ranks[hop], 0, hop, c};
  }
  qsort(l->roles, l->n_roles, sizeof *l->roles, compare_roles);
  return COPSE_OK;
}

/* At a chain's end a role only waits; but packets have to be unpacked. */
static bool moves(const struct lowering *l, const struct role *role) {
  int n = l->chains.chains[role->chain].n;
  return n == 1 || role->hop + 1 < n || l->b->options.low_latency;
}

/* A piece read and written. */
static double role_cost(const struct lowering *l, const struct role *role) {
  const struct copse_chain *c = &l->chains.chains[role->chain];
  const struct copse_plan_extent *extent = l->b->extents ? &l->b->extents[pair_of(l, c)] : NULL;
  double width = copse_width(c->lo, c->hi);
  if (extent) width *= (double)extent->num / (double)extent->den;
  return width * (moves(l, role) ? 2 : COPSE_POLICY_WAIT);
}

/* Deals the n roles of one rank. */
static copse_status deal_rank(struct lowering *l, struct role *roles, size_t n,
                              struct copse_deal_role *dealt, double *most, double *cost) {
  size_t movers = 0;
  *cost = 0;
  for (size_t i = 0; i < n; i++) {
    dealt[i] = (struct copse_deal_role){.cost = role_cost(l, &roles[i]), .key = (int)i};
    *cost += dealt[i].cost;
    if (moves(l, &roles[i])) movers++;
  }
  int workers = l->b->options.max_workers;
  if ((size_t)workers > movers) workers = movers > 0 ? (int)movers : 1;
  COPSE_DO(copse_deal(dealt, n, workers, most, l->b->err));
  for (size_t i = 0; i < n; i++) {
    struct role *role = &roles[dealt[i].key];
    role->worker = l->passages[role->chain].worker[role->hop] = dealt[i].worker;
  }
  return COPSE_OK;
}

/* As in trees.c. */
static copse_status make_workers(struct lowering *l, double *balance) {
  double most = 0, cost, most_cost = 0;
  size_t from = 0;
  struct copse_deal_role *dealt;
  COPSE_DO(copse_arena_array(&l->arena, (size_t)l->n_ranks + 1, sizeof(int), &l->first_worker,
                             l->b->err));
  COPSE_DO(copse_arena_array(&l->arena, l->n_roles, sizeof *dealt, &dealt, l->b->err));
  for (int rank = 0; rank < l->n_ranks; rank++) {
    size_t to = from;
    while (to < l->n_roles && l->roles[to].rank == rank) to++;
    COPSE_DO(deal_rank(l, l->roles + from, to - from, dealt, &most, &cost));
    if (cost > most_cost) most_cost = cost;
    if (to > from) qsort(l->roles + from, to - from, sizeof *l->roles, compare_roles);
    int workers = to > from ? l->roles[to - 1].worker + 1 : 1;
    l->first_worker[rank + 1] = l->first_worker[rank] + workers;
    from = to;
  }
  *balance = most > 0 ? most_cost / (most * l->b->options.max_workers) : 1;
  return COPSE_OK;
}

static void free_cut(struct lowering *l) {
  copse_chains_free(&l->chains);
  copse_arena_free(&l->arena);
}

static copse_status cut_into(void *lowering, int instances, struct copse_deal_outcome *outcome,
                             struct copse_err *err) {
  struct lowering *l = lowering;
  free_cut(l);
  COPSE_DO(copse_chains_make(l->b->schedule, instances, false, &l->chains, err));
  COPSE_DO(make_roles(l, err));
  COPSE_DO(make_workers(l, &outcome->balance));
  outcome->roles = (int64_t)l->n_roles;
  outcome->per_worker = (double)l->n_roles / ((double)l->n_ranks * l->b->options.max_workers);
  return COPSE_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

static uint32_t worker_of(const struct lowering *l, int chain, int hop) {
  int rank = l->chains.chains[chain].ranks[hop];
  return (uint32_t)(l->first_worker[rank] + l->passages[chain].worker[hop]);
}

static void make_channels(struct lowering *l) {
  for (int c = 0; c < l->chains.n_chains; c++)
    for (int back = 0; back < 2; back++) {
      struct passage *passage = &l->passages[c];
      *(back ? &passage->back_channel : &passage->data_channel) = l->b->header.n_channels;
      for (int hop = 0; hop + 1 < l->chains.chains[c].n; hop++)
        copse_build_channel(l->b, worker_of(l, c, hop + back), worker_of(l, c, hop + 1 - back));
    }
}

/* Roles come by rank, as regions must. */
static void make_regions(struct lowering *l) {
  for (size_t i = 0; i < l->n_roles; i++) {
    const struct role *role = &l->roles[i];
    bool last = role->hop == l->chains.chains[role->chain].n - 1;
    if (role->hop == 0 || (last && !l->b->options.low_latency)) continue;
    l->passages[role->chain].region[role->hop] = copse_build_region(l->b, role->rank, role->chain);
  }
}

/* ---- operations -------------------------------------------------------------------------- */

static void add_output(struct lowering *l, const struct copse_chain *c) {
  copse_build_operand(l->b, c->ranks[c->n - 1], COPSE_BUFFER_OUTPUT, (uint32_t)c->ranks[0]);
}

/* The memory of hop i: the sender's input, a forwarder's slots, the receiver's output; packets
 * at all but the sender. */
static void add_place(struct lowering *l, int chain, int hop) {
  const struct copse_chain *c = &l->chains.chains[chain];
  if (hop == 0)
    copse_build_operand(l->b, c->ranks[0], COPSE_BUFFER_INPUT, (uint32_t)c->ranks[c->n - 1]);
  else if (hop == c->n - 1 && !l->b->options.low_latency)
    add_output(l, c);
  else
    copse_build_operand(l->b, c->ranks[hop], copse_build_region_buffer(l->b),
                        l->passages[chain].region[hop]);
}

static void add_put(struct lowering *l, const struct role *role) {
  const struct copse_chain *c = &l->chains.chains[role->chain];
  uint32_t first = l->b->header.n_operands;
  add_place(l, role->chain, role->hop);
  if (role->hop == c->n - 1) /* the rank's own block, or out of the packets */
    add_output(l, c);
  else
    add_place(l, role->chain, role->hop + 1);
  copse_build_move(l->b, role->chain, first, 1, 0);
}

static void add_packet_role(struct lowering *l, const struct role *role) {
  uint32_t hop = (uint32_t)role->hop, data = l->passages[role->chain].data_channel;
  if (hop > 0) copse_build_data_wait(l->b, data + hop - 1);
  add_put(l, role);
  if (role->hop < l->chains.chains[role->chain].n - 1) copse_build_data_signal(l->b, data + hop);
}

static void add_role(struct lowering *l, const struct role *role) {
  const struct passage *passage = &l->passages[role->chain];
  int n = l->chains.chains[role->chain].n;
  uint32_t data = passage->data_channel + (uint32_t)role->hop;
  uint32_t back = passage->back_channel + (uint32_t)role->hop;
  bool last = role->hop == n - 1, next_is_slot = role->hop + 1 < n - 1;
  if (role->hop > 0) /* at the end it is enough that all of it is there */
    copse_build_wait(l->b, last ? COPSE_WHEN_LAST : COPSE_WHEN_ALWAYS, data - 1);
  if (last && n > 1) return;
  if (n > 1) /* the next rank has entered; later: a slot is free again */
    copse_build_wait(l->b, COPSE_WHEN_FIRST, back);
  if (next_is_slot) copse_build_wait(l->b, COPSE_WHEN_AFTER_FIFO, back);
  add_put(l, role);
  if (n > 1) copse_build_signal(l->b, next_is_slot ? COPSE_WHEN_ALWAYS : COPSE_WHEN_LAST, data);
  if (role->hop > 0) copse_build_signal(l->b, COPSE_WHEN_BEFORE_FIFO, back - 1);
}

/* The n roles of one worker: first it signals that it has entered to those that put to it. */
static void add_worker(struct lowering *l, int rank, const struct role *roles, size_t n) {
  uint32_t first_op = l->b->header.n_ops;
  bool low_latency = l->b->options.low_latency;
  for (size_t i = 0; i < n && !low_latency; i++)
    if (roles[i].hop > 0)
      copse_build_signal(l->b, COPSE_WHEN_FIRST,
                         l->passages[roles[i].chain].back_channel + (uint32_t)roles[i].hop - 1);
  for (size_t i = 0; i < n; i++) (low_latency ? add_packet_role : add_role)(l, &roles[i]);
  copse_build_worker(l->b, rank, first_op);
}

static void make_ops(struct lowering *l) {
  size_t from = 0;
  for (int rank = 0; rank < l->n_ranks; rank++)
    for (int w = 0; w < l->first_worker[rank + 1] - l->first_worker[rank]; w++) {
      size_t to = from;
      while (to < l->n_roles && l->roles[to].rank == rank && l->roles[to].worker == w) to++;
      add_worker(l, rank, l->roles + from, to - from);
      from = to;
    }
}

copse_status copse_lower_flows(struct copse_plan_build *b) {
  struct lowering l = {.b = b, .n_ranks = b->schedule->n_ranks};
  int levels = 0;
  copse_status status;
  COPSE_TRY(make_extents(&l));
  COPSE_TRY(copse_deal_instances(&l, cut_into, b->options.instances, b->err));
  for (int c = 0; c < l.chains.n_chains; c++) {
    const struct copse_chain *chain = &l.chains.chains[c];
    if (chain->n - 1 > levels) levels = chain->n - 1;
    copse_build_piece(b, chain->lo, chain->hi, (uint32_t)pair_of(&l, chain) + 1);
  }
  copse_build_levels(b, levels);
  make_channels(&l);
  make_regions(&l);
  make_ops(&l);
out:
  free_cut(&l);
  return status;
}
