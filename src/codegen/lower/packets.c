/*
 * The low-latency protocol: a message is one chunk, and all that goes between ranks goes in
 * packets: 8-byte words of 4 bytes of data and a 4-byte flag, the number of the launch, stored at
 * once. Who reads looks until the flags are the present launch's: no signal, no fence, and no
 * handshake before the put. It costs twice the bytes and a copy out of the packets, and memory
 * for a whole message: the plan states the largest one that it takes.
 *
 *        parent                                child
 *          |   packets of the child at parent    |
 *          |<======== sum | flag, ... ===========|   reduce: the child stores once
 *          |   fold input and all packets        |
 *          |======== total | flag, ... =========>|   the root sends on in the same MOVE
 *          |                                     |   one MOVE: packets -> output, next packets
 *
 * Along trees. The root's sum and its broadcast are one MOVE: fold own input and the children's
 * packets, store to the output and to the children's packets. Below, one MOVE takes packets to the
 * output and to the next ranks' packets. A worker does the reductions of all its units before
 * their broadcasts: whatever waits, waits for a smaller (phase, unit), or for the same one nearer
 * to the tree's leaves or root. So no ring of waits can close.
 *
 * Signals that packets make superfluous stay in the plan, marked IN_DATA. They show who waits for
 * whom, so that the deadlock proof and the reports of a standstill are those of every other plan,
 * and the executor on one thread goes by them. An executor that looks at packets skips them, and so
 * must find both ends of a channel marked or neither (check/proof.c).
 *
 * Who may overwrite packets, and why a broadcast and a reduce greet: check/proof.c.
 */
#include "base/types.h"
#include "codegen/lower/plan_build.h"
#include "codegen/lower/work.h"

/* What joins a rank to its parents in the trees of a unit. */
struct link {
  uint32_t up, down;    /* channels: to its parent in the reduction, from it in the broadcast */
  uint32_t greeting;    /* channel from the receiver; only with `greets` */
  uint32_t up_region;   /* at the parent, for what the rank sends up */
  uint32_t down_region; /* at the rank, for what comes down */
};

struct lowering {
  struct copse_plan_build *b;
  int n_ranks;
  struct copse_units units;
  int n_workers;      /* per rank */
  int *worker;        /* [n_units] */
  struct link *links; /* [n_units * n_ranks] */
  bool greets;        /* receivers must signal that they have entered, as nobody answers */
};

static struct link *link_of(const struct lowering *l, int u, int rank) {
  return &l->links[(size_t)u * (size_t)l->n_ranks + (size_t)rank];
}

/* Sources or destinations of one MOVE besides the rank's own. */
static copse_status check_degrees(const struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++)
    for (int rank = 0; rank < l->n_ranks; rank++) {
      const struct copse_unit *unit = &l->units.units[u];
      int up = unit->reduce ? copse_tree_children(unit->reduce, rank) : 0;
      int down = unit->broadcast ? copse_tree_children(unit->broadcast, rank) : 0;
      if (up >= (int)COPSE_MOVE_MAX_OPERANDS || down >= (int)COPSE_MOVE_MAX_OPERANDS)
        return copse_fail(l->b->err, COPSE_UNSUPPORTED,
                          "rank %d has %d children in a tree, a low-latency plan takes %d; lower "
                          "without it",
                          rank, up > down ? up : down, (int)COPSE_MOVE_MAX_OPERANDS - 1);
    }
  return COPSE_OK;
}

/* From one rank's worker for the unit to another's. */
static uint32_t add_channel(struct lowering *l, int u, int from, int to) {
  return copse_build_channel(l->b, (uint32_t)(from * l->n_workers + l->worker[u]),
                             (uint32_t)(to * l->n_workers + l->worker[u]));
}

static void make_channels(struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++)
    for (int rank = 0; rank < l->n_ranks; rank++) {
      const struct copse_unit *unit = &l->units.units[u];
      struct link *link = link_of(l, u, rank);
      if (rank == unit->root) continue;
      if (unit->reduce) {
        int parent = unit->reduce->parent[rank];
        link->up = add_channel(l, u, rank, parent);
        if (l->greets) link->greeting = add_channel(l, u, parent, rank);
      }
      if (unit->broadcast) {
        int parent = unit->broadcast->parent[rank];
        link->down = add_channel(l, u, parent, rank);
        if (l->greets) link->greeting = add_channel(l, u, rank, parent);
      }
    }
}

/* Grouped by rank, as the plan has them. */
static void make_regions(struct lowering *l) {
  for (int rank = 0; rank < l->n_ranks; rank++)
    for (int u = 0; u < l->units.n_units; u++) {
      const struct copse_unit *unit = &l->units.units[u];
      const struct copse_unit_tree *up = unit->reduce;
      for (int i = up ? up->first_child[rank] : 0; up && i < up->first_child[rank + 1]; i++)
        link_of(l, u, up->children[i])->up_region = copse_build_region(l->b, rank, u);
      if (unit->broadcast && rank != unit->root)
        link_of(l, u, rank)->down_region = copse_build_region(l->b, rank, u);
    }
}

/* Adds the broadcast's children as destinations. */
static void add_children(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *tree = l->units.units[u].broadcast;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    copse_build_operand(l->b, tree->children[i], COPSE_BUFFER_PACKETS,
                        link_of(l, u, tree->children[i])->down_region);
}

static void notify_children(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *tree = l->units.units[u].broadcast;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    copse_build_data_signal(l->b, link_of(l, u, tree->children[i])->down);
}

/* Own input plus the children's sums, up to the parent or, at the root, out and down. */
static void add_reduce(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct copse_unit_tree *tree = unit->reduce;
  const struct link *link = link_of(l, u, rank);
  bool root = rank == unit->root;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    copse_build_data_wait(l->b, link_of(l, u, tree->children[i])->up);
  if (!root && l->greets) copse_build_wait(l->b, COPSE_WHEN_FIRST, link->greeting);
  uint32_t first = l->b->header.n_operands;
  copse_build_block(l->b, rank, COPSE_BUFFER_INPUT, unit->block);
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    copse_build_operand(l->b, rank, COPSE_BUFFER_PACKETS,
                        link_of(l, u, tree->children[i])->up_region);
  uint32_t first_dst = l->b->header.n_operands;
  if (root)
    copse_build_block(l->b, rank, COPSE_BUFFER_OUTPUT, unit->block);
  else
    copse_build_operand(l->b, tree->parent[rank], COPSE_BUFFER_PACKETS, link->up_region);
  if (root && unit->broadcast) add_children(l, u, rank);
  copse_build_move(l->b, u, first, (int)(l->b->header.n_operands - first_dst),
                   root ? COPSE_MOVE_FINAL : 0);
  if (!root)
    copse_build_data_signal(l->b, link->up);
  else if (unit->broadcast)
    notify_children(l, u, rank);
}

static void add_broadcast(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct copse_unit_tree *tree = unit->broadcast;
  bool root = rank == unit->root;
  if (root && unit->reduce) return; /* done when it had summed up */
  if (!root) copse_build_data_wait(l->b, link_of(l, u, rank)->down);
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1] && l->greets; i++)
    copse_build_wait(l->b, COPSE_WHEN_FIRST, link_of(l, u, tree->children[i])->greeting);
  uint32_t first = l->b->header.n_operands;
  if (root)
    copse_build_block(l->b, rank, COPSE_BUFFER_INPUT, unit->block);
  else
    copse_build_operand(l->b, rank, COPSE_BUFFER_PACKETS, link_of(l, u, rank)->down_region);
  copse_build_block(l->b, rank, COPSE_BUFFER_OUTPUT, unit->block);
  add_children(l, u, rank);
  copse_build_move(l->b, u, first, (int)(l->b->header.n_operands - first) - 1, 0);
  notify_children(l, u, rank);
}

/* Adds what a receiver signals before it waits for anything. */
static void add_greetings(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct copse_unit_tree *up = unit->reduce;
  if (!l->greets) return;
  if (unit->broadcast && rank != unit->root)
    copse_build_signal(l->b, COPSE_WHEN_FIRST, link_of(l, u, rank)->greeting);
  for (int i = up ? up->first_child[rank] : 0; up && i < up->first_child[rank + 1]; i++)
    copse_build_signal(l->b, COPSE_WHEN_FIRST, link_of(l, u, up->children[i])->greeting);
}

static void add_tree_worker(struct lowering *l, int rank, int worker) {
  uint32_t first_op = l->b->header.n_ops;
  for (int step = 0; step < 3; step++)
    for (int u = 0; u < l->units.n_units; u++) {
      if (l->worker[u] != worker) continue;
      if (step == 0) add_greetings(l, u, rank);
      if (step == 1 && l->units.units[u].reduce) add_reduce(l, u, rank);
      if (step == 2 && l->units.units[u].broadcast) add_broadcast(l, u, rank);
    }
  copse_build_worker(l->b, rank, first_op);
}

copse_status copse_lower_packets(struct copse_plan_build *b) {
  struct lowering l = {.b = b,
                       .n_ranks = b->schedule->n_ranks,
                       .greets = copse_collective_rooted(b->schedule->collective)};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_DO(copse_units_make(&scratch, b->schedule, b->options.instances, false, &l.units, b->err));
  COPSE_DO(check_degrees(&l));
  size_t n = (size_t)l.units.n_units;
  COPSE_DO(COPSE_ARRAY(&scratch, n * (size_t)l.n_ranks, l.links, b->err));
  COPSE_DO(COPSE_ARRAY(&scratch, n, l.worker, b->err));
  COPSE_DO(copse_units_spread(&l.units, b->options.max_workers, l.worker, &l.n_workers, b->err));
  for (int u = 0; u < l.units.n_units; u++)
    copse_build_piece(b, l.units.units[u].lo, l.units.units[u].hi, 0);
  make_channels(&l);
  make_regions(&l);
  for (int rank = 0; rank < l.n_ranks; rank++)
    for (int w = 0; w < l.n_workers; w++) add_tree_worker(&l, rank, w);
  return COPSE_OK;
}
