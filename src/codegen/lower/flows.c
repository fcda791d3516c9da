/*
 * An alltoall as operations of a plan. A unit (work.h) is one piece of one pair's block with the
 * ranks along which it travels:
 *
 *   sender               forwarder             receiver
 *   input --- put ---> FIFO slots --- put ---> output
 *     |----- signal ----->|----- signal (last) -->|     data: for every chunk, or once at the end
 *     |<- entered, credit-|<----- entered --------|     back: before the first put; a slot is free
 *
 * A piece is put into the next rank's slots, or at the last hop straight into the receiver's
 * output, with the handshakes and credits of trees.c. In the low-latency protocol it goes in
 * packets, also at the last hop, from where the receiver copies them; nobody asks then, because
 * every rank is notified of every other in every alltoall (check/proof.c).
 *
 * Order, and why nothing deadlocks. For each chunk a worker does first what it sends itself, then
 * what it forwards at the first stop, and so on, and last what it waits for, at the end of a path
 * once for all chunks. Every wait is for a smaller (chunk, hop), so no ring of waits can close, and
 * sending never waits for receiving. Roles are dealt as in trees.c. Within a hop they are done by
 * the distance from sender to receiver, so that at any moment the ranks send to different ranks.
 *
 * By demand (an alltoallv known beforehand) blocks are as large as the largest pair's, and each has
 * an extent: the part of it that its pair sends.
 *
 * The paths come from the flow's decomposition: docs/theory.md, "src/solver/alltoall/".
 */

#include "codegen/lower/plan_build.h"
#include "codegen/lower/policy.h"
#include "codegen/lower/work.h"

/* A unit's regions, workers and channels in the plan. */
struct passage {
  struct stop {
    int worker;          /* among the rank's */
    uint32_t region;     /* slots, or packets, where the piece arrives */
  } * stops;             /* [n_path] */
  uint32_t data_channel; /* channel of its first hop; those of later hops follow */
  uint32_t back_channel; /* against the data: entered, and credits of slots */
};

struct lowering {
  struct copse_plan_build *b;
  int n_ranks;
  struct copse_units units;
  struct passage *passages; /* [n_units] */
  struct copse_role *roles; /* in the order in which they run; `phase` is the hop */
  size_t n_roles;
  int *first_worker;        /* [n_ranks + 1] */
  struct copse_arena arena; /* of one cut into instances */
};

static const struct copse_unit *unit_of(const struct lowering *l, const struct copse_role *role) {
  return &l->units.units[role->unit];
}

static int pair_of(const struct lowering *l, const struct copse_unit *unit) {
  return unit->path[0] * l->n_ranks + unit->path[unit->n_path - 1];
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

/* Whether a role moves data: at a path's end it only waits, unless there are packets to unpack. */
static bool moves(const struct lowering *l, const struct copse_role *role) {
  int n = unit_of(l, role)->n_path;
  return n == 1 || role->phase + 1 < n || l->b->options.low_latency;
}

/* Returns the cost of a piece read and written. */
static double role_cost(const struct lowering *l, const struct copse_role *role) {
  const struct copse_unit *unit = unit_of(l, role);
  const struct copse_plan_extent *extent = l->b->extents ? &l->b->extents[pair_of(l, unit)] : NULL;
  double width = copse_width(unit);
  if (extent) width *= (double)extent->num / (double)extent->den;
  return width * (moves(l, role) ? 2 : COPSE_POLICY_WAIT);
}

static copse_status make_roles(struct lowering *l, struct copse_err *err) {
  size_t n = 0, n_units = (size_t)l->units.n_units;
  for (size_t u = 0; u < n_units; u++) n += (size_t)l->units.units[u].n_path;
  l->n_roles = 0;
  COPSE_DO(COPSE_ARRAY(&l->arena, n, l->roles, err));
  COPSE_DO(COPSE_ARRAY(&l->arena, n_units, l->passages, err));
  for (int u = 0; u < l->units.n_units; u++) {
    const struct copse_unit *unit = &l->units.units[u];
    struct passage *passage = &l->passages[u];
    COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)unit->n_path, passage->stops, err));
    for (int hop = 0; hop < unit->n_path; hop++) {
      struct copse_role role = {.rank = unit->path[hop], .phase = hop, .unit = u};
      role.cost = role_cost(l, &role);
      l->roles[l->n_roles++] = role;
    }
  }
  copse_roles_sort(l->roles, n);
  return COPSE_OK;
}

/* Makes workers as trees.c does. */
static copse_status make_workers(struct lowering *l, double *balance, struct copse_err *err) {
  double most = 0, most_cost = 0;
  size_t n;
  COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)l->n_ranks + 1, l->first_worker, err));
  for (size_t from = 0; from < l->n_roles; from += n) { /* one rank's */
    struct copse_role *roles = l->roles + from;
    double cost = 0;
    int movers = 0, workers = l->b->options.max_workers;
    n = copse_roles_of_worker(roles, l->n_roles - from);
    for (size_t i = 0; i < n; i++) {
      cost += roles[i].cost;
      movers += moves(l, &roles[i]);
    }
    if (workers > movers) workers = movers > 0 ? movers : 1;
    COPSE_DO(copse_roles_deal(roles, n, 0, workers, &most, err));
    copse_roles_sort(roles, n);
    if (cost > most_cost) most_cost = cost;
    l->first_worker[roles->rank + 1] = roles[n - 1].worker + 1; /* how many, for now */
  }
  for (size_t i = 0; i < l->n_roles; i++)
    l->passages[l->roles[i].unit].stops[l->roles[i].phase].worker = l->roles[i].worker;
  for (int r = 0; r < l->n_ranks; r++) /* a rank without roles has one worker all the same */
    l->first_worker[r + 1] =
        l->first_worker[r] + (l->first_worker[r + 1] > 0 ? l->first_worker[r + 1] : 1);
  *balance = most > 0 ? most_cost / (most * l->b->options.max_workers) : 1;
  return COPSE_OK;
}

static copse_status cut_into(void *lowering, int instances, struct copse_deal_outcome *outcome,
                             struct copse_err *err) {
  struct lowering *l = lowering;
  copse_arena_free(&l->arena);
  COPSE_DO(copse_units_make(&l->arena, l->b->schedule, instances, false, &l->units, err));
  COPSE_DO(make_roles(l, err));
  COPSE_DO(make_workers(l, &outcome->balance, err));
  outcome->roles = (int64_t)l->n_roles;
  return COPSE_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

static uint32_t worker_of(const struct lowering *l, int unit, int hop) {
  int rank = l->units.units[unit].path[hop];
  return (uint32_t)(l->first_worker[rank] + l->passages[unit].stops[hop].worker);
}

static void make_channels(struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++)
    for (int back = 0; back < 2; back++) {
      struct passage *passage = &l->passages[u];
      *(back ? &passage->back_channel : &passage->data_channel) = l->b->header.n_channels;
      for (int hop = 0; hop + 1 < l->units.units[u].n_path; hop++)
        copse_build_channel(l->b, worker_of(l, u, hop + back), worker_of(l, u, hop + 1 - back));
    }
}

/* Makes regions. Roles come by rank, as regions must. */
static void make_regions(struct lowering *l) {
  for (size_t i = 0; i < l->n_roles; i++) {
    const struct copse_role *role = &l->roles[i];
    bool last = role->phase == unit_of(l, role)->n_path - 1;
    if (role->phase == 0 || (last && !l->b->options.low_latency)) continue;
    l->passages[role->unit].stops[role->phase].region =
        copse_build_region(l->b, role->rank, role->unit);
  }
}

/* ---- operations -------------------------------------------------------------------------- */

static void add_output(struct lowering *l, const struct copse_unit *unit) {
  copse_build_operand(l->b, unit->path[unit->n_path - 1], COPSE_BUFFER_OUTPUT,
                      (uint32_t)unit->path[0]);
}

/* Adds the memory of a hop: the sender's input, a forwarder's slots, the receiver's output;
 * packets at all but the sender. */
static void add_place(struct lowering *l, int u, int hop) {
  const struct copse_unit *unit = &l->units.units[u];
  if (hop == 0)
    copse_build_operand(l->b, unit->path[0], COPSE_BUFFER_INPUT,
                        (uint32_t)unit->path[unit->n_path - 1]);
  else if (hop == unit->n_path - 1 && !l->b->options.low_latency)
    add_output(l, unit);
  else
    copse_build_operand(l->b, unit->path[hop],
                        l->b->options.low_latency ? COPSE_BUFFER_PACKETS : COPSE_BUFFER_SCRATCH,
                        l->passages[u].stops[hop].region);
}

static void add_put(struct lowering *l, const struct copse_role *role) {
  const struct copse_unit *unit = unit_of(l, role);
  uint32_t first = l->b->header.n_operands;
  add_place(l, role->unit, role->phase);
  if (role->phase == unit->n_path - 1) /* the rank's own block, or out of the packets */
    add_output(l, unit);
  else
    add_place(l, role->unit, role->phase + 1);
  copse_build_move(l->b, role->unit, first, 1, 0);
}

static void add_packet_role(struct lowering *l, const struct copse_role *role) {
  uint32_t hop = (uint32_t)role->phase, data = l->passages[role->unit].data_channel;
  if (hop > 0) copse_build_data_wait(l->b, data + hop - 1);
  add_put(l, role);
  if (role->phase < unit_of(l, role)->n_path - 1) copse_build_data_signal(l->b, data + hop);
}

static void add_role(struct lowering *l, const struct copse_role *role) {
  const struct passage *passage = &l->passages[role->unit];
  int hop = role->phase, n = unit_of(l, role)->n_path;
  uint32_t data = passage->data_channel + (uint32_t)hop;
  uint32_t back = passage->back_channel + (uint32_t)hop;
  bool last = hop == n - 1, next_is_slot = hop + 1 < n - 1;
  if (hop > 0) /* at the end of the path one wait for the last chunk is enough */
    copse_build_wait(l->b, last ? COPSE_WHEN_LAST : COPSE_WHEN_ALWAYS, data - 1);
  if (last && n > 1) return;
  if (n > 1) /* the next rank has entered; later: a slot is free again */
    copse_build_wait(l->b, COPSE_WHEN_FIRST, back);
  if (next_is_slot) copse_build_wait(l->b, COPSE_WHEN_AFTER_FIFO, back);
  add_put(l, role);
  if (n > 1) copse_build_signal(l->b, next_is_slot ? COPSE_WHEN_ALWAYS : COPSE_WHEN_LAST, data);
  if (hop > 0) copse_build_signal(l->b, COPSE_WHEN_BEFORE_FIFO, back - 1);
}

/* Adds the n roles of one worker. The worker first signals that it has entered, to every rank that
 * puts to it. */
static void add_worker(struct lowering *l, int rank, const struct copse_role *roles, size_t n) {
  uint32_t first_op = l->b->header.n_ops;
  bool low_latency = l->b->options.low_latency;
  for (size_t i = 0; i < n && !low_latency; i++)
    if (roles[i].phase > 0)
      copse_build_signal(l->b, COPSE_WHEN_FIRST,
                         l->passages[roles[i].unit].back_channel + (uint32_t)roles[i].phase - 1);
  for (size_t i = 0; i < n; i++) (low_latency ? add_packet_role : add_role)(l, &roles[i]);
  copse_build_worker(l->b, rank, first_op);
}

static void make_ops(struct lowering *l) {
  const struct copse_role *roles = l->roles;
  size_t left = l->n_roles;
  for (int rank = 0; rank < l->n_ranks; rank++)
    for (int w = l->first_worker[rank]; w < l->first_worker[rank + 1]; w++) {
      size_t n = left > 0 && roles->rank == rank ? copse_roles_of_worker(roles, left) : 0;
      add_worker(l, rank, roles, n);
      roles += n;
      left -= n;
    }
}

static void end_lowering(struct lowering *l) { copse_arena_free(&l->arena); }

copse_status copse_lower_flows(struct copse_plan_build *b) {
  COPSE_AT_END(end_lowering)
  struct lowering l = {.b = b, .n_ranks = b->schedule->n_ranks};
  int levels = 0;
  COPSE_DO(make_extents(&l));
  int64_t n_workers = (int64_t)l.n_ranks * b->options.max_workers;
  COPSE_DO(copse_deal_instances(&l, cut_into, b->options.instances, n_workers, b->err));
  for (int u = 0; u < l.units.n_units; u++) {
    const struct copse_unit *unit = &l.units.units[u];
    if (unit->n_path - 1 > levels) levels = unit->n_path - 1;
    copse_build_piece(b, unit->lo, unit->hi, (uint32_t)pair_of(&l, unit) + 1);
  }
  copse_build_levels(b, levels);
  make_channels(&l);
  make_regions(&l);
  make_ops(&l);
  return COPSE_OK;
}
