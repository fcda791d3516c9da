/*
 * The low-latency protocol: a message is one chunk, and all that goes between ranks goes in
 * packets: 8-byte words of 4 bytes of data and a 4-byte flag, the number of the launch, stored at
 * once, as in NCCL's LL protocol (NVIDIA/nccl src/device/prims_ll.h). Who reads looks until the
 * flags are the present launch's: no signal, no fence, and no handshake before the put. It costs
 * twice the bytes and a copy out of the packets, and memory for a whole message: the plan states
 * the largest one that it takes.
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
 * their broadcasts, and of these first those that begin at its rank: whatever waits, waits for a
 * smaller (phase, beginning, unit), or for the same one nearer to the tree's leaves or root. So no
 * ring of waits can close.
 *
 * Each message keeps a worker busy, so a rank deals its puts to its workers, as in trees.c
 * (work.h): a way is some of its children. Each way reads the input, or looks at the packets that
 * came, for itself, with a marked signal of its own: nobody waits for the first one. But a root
 * that sums up puts in the MOVE that sums: others would wait for a signal, with a fence, which
 * packets are to save. And a root's own copy, in place over what its ways read, waits for them,
 * last of all.
 *
 * Signals that packets make superfluous stay in the plan, marked IN_DATA. They show who waits for
 * whom, so that the deadlock proof and the reports of a standstill are those of every other plan,
 * and the executor on one thread goes by them. An executor that looks at packets skips them, and so
 * must find both ends of a channel marked or neither (check/proof.c).
 *
 * Who may overwrite packets, and why a broadcast and a reduce signal that a rank has entered:
 * check/proof.c.
 */
#include <string.h>

#include "base/types.h"
#include "codegen/lower/plan_build.h"
#include "codegen/lower/work.h"

/* What joins a rank to its parents in the trees of a unit. */
struct link {
  uint32_t up, down;    /* channels: to its parent in the reduction, from it in the broadcast, to
                           each of the rank's ways */
  uint32_t read;        /* at a root without a reduction, from each way but the first: that it has
                           read the input, which in place is the output of the root's own copy */
  uint32_t entry_channel; /* channel from the receiver; only with `signals_entry` */
  uint32_t up_region;   /* at the parent, for what the rank sends up */
  uint32_t down_region; /* at the rank, for what comes down */
  int ways;   /* roles that the rank's puts to its children in the broadcast are dealt to */
  int sender; /* which of the parent's workers puts to this rank */
};

struct lowering {
  struct copse_plan_build *b;
  int n_ranks;
  struct copse_units units;
  int *n_workers;     /* [n_ranks] */
  int *first_worker;  /* [n_ranks] */
  int *worker;        /* [n_units] of each rank, but for the second way on */
  struct link *links; /* [n_units * n_ranks] */
  bool signals_entry; /* receivers must signal that they have entered, as nobody answers */
};

static struct link *link_of(const struct lowering *l, int u, int rank) {
  return &l->links[(size_t)u * (size_t)l->n_ranks + (size_t)rank];
}

/* ---- ways ------------------------------------------------------------------------------ */

/* Returns, of a rank's children in the broadcast, where those of a way begin. */
static int first_of_way(const struct lowering *l, int u, int rank, int way) {
  const struct copse_unit_tree *tree = l->units.units[u].broadcast;
  return copse_way_first(tree->first_child[rank], tree->first_child[rank + 1], way,
                         link_of(l, u, rank)->ways);
}

/* Returns, of the rank's workers, the one that does a way. */
static int worker_of_way(const struct lowering *l, int u, int rank, int way) {
  if (way == 0) return l->worker[u];
  int first = first_of_way(l, u, rank, way);
  return link_of(l, u, l->units.units[u].broadcast->children[first])->sender;
}

/* Finds the worker for a way but the first: of a root the one whose number is the child's, where
 * that puts nothing yet, so that children keep theirs where another one goes; else the one that has
 * least to do. */
static int find_worker(const struct lowering *l, int child, bool root, int n_base,
                       const double *load, const double *puts) {
  int worker = child % n_base;
  if (root && puts[worker] == 0) return worker;
  worker = 0;
  for (int w = 1; w < l->b->options.max_workers; w++)
    if (load[w] + puts[w] < load[worker] + puts[worker]) worker = w;
  return worker;
}

/* Deals a rank's ways. load, puts: [max_workers] what each takes in, and puts */
static void deal_ways(struct lowering *l, int rank, double *load, double *puts) {
  size_t bytes = (size_t)l->b->options.max_workers * sizeof *load;
  int n_base = l->n_workers[rank];
  memset(load, 0, bytes);
  memset(puts, 0, bytes);
  for (int u = 0; u < l->units.n_units; u++) load[l->worker[u]] += copse_width(&l->units.units[u]);
  for (int i = 0; i < 2 * l->units.n_units; i++) { /* all first ways, then all second ones */
    int u = i % l->units.n_units, way = i >= l->units.n_units, worker = l->worker[u];
    const struct copse_unit *unit = &l->units.units[u];
    const struct copse_unit_tree *tree = unit->broadcast;
    for (int end = way > 0 ? link_of(l, u, rank)->ways : 1; tree && way < end; way++) {
      int from = first_of_way(l, u, rank, way), to = first_of_way(l, u, rank, way + 1);
      if (way > 0)
        worker = find_worker(l, tree->children[from], rank == unit->root, n_base, load, puts);
      for (int k = from; k < to; k++) link_of(l, u, tree->children[k])->sender = worker;
      puts[worker] += (to - from) * copse_width(unit);
      if (worker >= l->n_workers[rank]) l->n_workers[rank] = worker + 1;
    }
  }
}

/* Deals units to at most `most` workers, the same on every rank: worker_of[u], and how many are
 * used. */
static copse_status spread(const struct copse_units *units, int most, int *worker_of,
                           int *n_workers, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct copse_role *roles = NULL;
  double load = 0;
  *n_workers = units->n_units < most ? units->n_units : most;
  COPSE_DO(copse_calloc((size_t)units->n_units, sizeof *roles, &roles, err));
  for (int u = 0; u < units->n_units; u++)
    roles[u] = (struct copse_role){.cost = copse_width(&units->units[u]), .unit = u};
  COPSE_DO(copse_roles_deal(roles, (size_t)units->n_units, 0, *n_workers, &load, err));
  for (int i = 0; i < units->n_units; i++) worker_of[roles[i].unit] = roles[i].worker;
  return COPSE_OK;
}

/* Makes workers. A root that sums up puts in the same MOVE: others would have to wait for a signal,
 * with a fence, that the sum is there. */
static copse_status make_workers(struct lowering *l, struct copse_arena *scratch) {
  size_t n = (size_t)l->n_ranks;
  const struct copse_plan_build *b = l->b;
  int *ways, n_workers;
  double *load, *puts;
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)l->units.n_units, l->worker, b->err));
  COPSE_DO(COPSE_ARRAYS(scratch, (size_t)b->options.max_workers, double, b->err, &load, &puts));
  COPSE_DO(COPSE_ARRAYS(scratch, n, int, b->err, &l->n_workers, &l->first_worker));
  COPSE_DO(spread(&l->units, b->options.max_workers, l->worker, &n_workers, b->err));
  COPSE_DO(copse_units_ways(scratch, b->schedule, &l->units, &b->options, &ways, b->err));
  for (int rank = 0; rank < l->n_ranks; rank++) {
    for (int u = 0; u < l->units.n_units; u++) {
      bool sums = l->units.units[u].reduce && rank == l->units.units[u].root;
      link_of(l, u, rank)->ways = sums ? 1 : ways[(size_t)u * n + (size_t)rank];
    }
    l->n_workers[rank] = n_workers;
    deal_ways(l, rank, load, puts);
    if (rank > 0) l->first_worker[rank] = l->first_worker[rank - 1] + l->n_workers[rank - 1];
  }
  return COPSE_OK;
}

/* Checks how many sources or destinations one MOVE has besides the rank's own. */
static copse_status check_degrees(const struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++)
    for (int rank = 0; rank < l->n_ranks; rank++) {
      const struct copse_unit *unit = &l->units.units[u];
      int up = unit->reduce ? copse_tree_children(unit->reduce, rank) : 0,
          ways = link_of(l, u, rank)->ways;
      int down = unit->broadcast ? copse_tree_children(unit->broadcast, rank) : 0;
      if (up >= (int)COPSE_MOVE_MAX_OPERANDS ||
          (down + ways - 1) / ways >= (int)COPSE_MOVE_MAX_OPERANDS)
        return copse_fail(
            l->b->err, COPSE_UNSUPPORTED,
            "rank %d has %d children in a tree, a low-latency plan takes %d of a worker; lower "
            "without it",
            rank, up > down ? up : down, (int)COPSE_MOVE_MAX_OPERANDS - 1);
    }
  return COPSE_OK;
}

/* ---- channels and regions -------------------------------------------------------------- */

static uint32_t add_channel(struct lowering *l, int from, int from_worker, int to, int to_worker) {
  return copse_build_channel(l->b, (uint32_t)(l->first_worker[from] + from_worker),
                             (uint32_t)(l->first_worker[to] + to_worker));
}

/* Makes channels from the parent, or where the rank is the root, within it. */
static void make_down_channels(struct lowering *l, int u, int rank) {
  struct link *link = link_of(l, u, rank);
  int own = l->worker[u], parent = l->units.units[u].broadcast->parent[rank];
  link->down = link->read = l->b->header.n_channels;
  for (int way = parent < 0; way < link->ways; way++) {
    int worker = worker_of_way(l, u, rank, way);
    if (parent < 0)
      add_channel(l, rank, worker, rank, own);
    else
      add_channel(l, parent, link->sender, rank, worker);
  }
  if (parent >= 0 && l->signals_entry)
    link->entry_channel = add_channel(l, rank, own, parent, link->sender);
}

static void make_channels(struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++)
    for (int rank = 0; rank < l->n_ranks; rank++) {
      const struct copse_unit *unit = &l->units.units[u];
      struct link *link = link_of(l, u, rank);
      if (unit->reduce && rank != unit->root) {
        int parent = unit->reduce->parent[rank];
        link->up = add_channel(l, rank, l->worker[u], parent, l->worker[u]);
        if (l->signals_entry)
          link->entry_channel = add_channel(l, parent, l->worker[u], rank, l->worker[u]);
      }
      if (unit->broadcast) make_down_channels(l, u, rank);
    }
}

/* Makes regions grouped by rank, as the plan has them. */
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

/* Adds the broadcast's children of a way as destinations. */
static void add_children(struct lowering *l, int u, int rank, int way) {
  const struct copse_unit_tree *tree = l->units.units[u].broadcast;
  for (int i = first_of_way(l, u, rank, way); i < first_of_way(l, u, rank, way + 1); i++)
    copse_build_operand(l->b, tree->children[i], COPSE_BUFFER_PACKETS,
                        link_of(l, u, tree->children[i])->down_region);
}

/* Notifies the children; each of a child's ways looks at the packets for itself. */
static void notify_children(struct lowering *l, int u, int rank, int way) {
  const struct copse_unit_tree *tree = l->units.units[u].broadcast;
  for (int i = first_of_way(l, u, rank, way); i < first_of_way(l, u, rank, way + 1); i++) {
    const struct link *child = link_of(l, u, tree->children[i]);
    for (int w = 0; w < child->ways; w++) copse_build_data_signal(l->b, child->down + (uint32_t)w);
  }
}

/* Adds the own input and the children's sums, up to the parent or, at the root, out and down. */
static void add_reduce(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct copse_unit_tree *tree = unit->reduce;
  const struct link *link = link_of(l, u, rank);
  bool root = rank == unit->root;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    copse_build_data_wait(l->b, link_of(l, u, tree->children[i])->up);
  if (!root && l->signals_entry) copse_build_wait(l->b, COPSE_WHEN_FIRST, link->entry_channel);
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
  if (root && unit->broadcast) add_children(l, u, rank, 0);
  copse_build_move(l->b, u, first, (int)(l->b->header.n_operands - first_dst),
                   root ? COPSE_MOVE_FINAL : 0);
  if (!root)
    copse_build_data_signal(l->b, link->up);
  else if (unit->broadcast)
    notify_children(l, u, rank, 0);
}

/* Adds a way of a broadcast. The first one also puts into the output, but at a root with others:
 * those read its input. */
static void add_broadcast(struct lowering *l, int u, int rank, int way) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct copse_unit_tree *tree = unit->broadcast;
  const struct link *link = link_of(l, u, rank);
  bool root = rank == unit->root;
  int from = first_of_way(l, u, rank, way), end = first_of_way(l, u, rank, way + 1);
  if (root && unit->reduce) return; /* done when it had summed up */
  if (!root) copse_build_data_wait(l->b, link->down + (uint32_t)way);
  for (int i = from; i < end && l->signals_entry; i++)
    copse_build_wait(l->b, COPSE_WHEN_FIRST, link_of(l, u, tree->children[i])->entry_channel);
  uint32_t first = l->b->header.n_operands;
  if (root)
    copse_build_block(l->b, rank, COPSE_BUFFER_INPUT, unit->block);
  else
    copse_build_operand(l->b, rank, COPSE_BUFFER_PACKETS, link->down_region);
  if (way == 0 && (!root || link->ways == 1))
    copse_build_block(l->b, rank, COPSE_BUFFER_OUTPUT, unit->block);
  add_children(l, u, rank, way);
  copse_build_move(l->b, u, first, (int)(l->b->header.n_operands - first) - 1, 0);
  notify_children(l, u, rank, way);
  if (root && way > 0) copse_build_signal(l->b, COPSE_WHEN_ALWAYS, link->read + (uint32_t)way - 1);
}

/* Adds a root's own copy of what several of its workers put, once they have read it. */
static void add_own(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct link *link = link_of(l, u, rank);
  if (rank != unit->root || link->ways == 1) return;
  for (int way = 1; way < link->ways; way++)
    copse_build_wait(l->b, COPSE_WHEN_ALWAYS, link->read + (uint32_t)way - 1);
  uint32_t first = l->b->header.n_operands;
  copse_build_block(l->b, rank, COPSE_BUFFER_INPUT, unit->block);
  copse_build_block(l->b, rank, COPSE_BUFFER_OUTPUT, unit->block);
  copse_build_move(l->b, u, first, 1, 0);
}

/* Adds what a receiver signals before it waits for anything. */
static void add_entry_signals(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  const struct copse_unit_tree *up = unit->reduce;
  if (!l->signals_entry) return;
  if (unit->broadcast && rank != unit->root)
    copse_build_signal(l->b, COPSE_WHEN_FIRST, link_of(l, u, rank)->entry_channel);
  for (int i = up ? up->first_child[rank] : 0; up && i < up->first_child[rank + 1]; i++)
    copse_build_signal(l->b, COPSE_WHEN_FIRST, link_of(l, u, up->children[i])->entry_channel);
}

/* Adds a worker's part of a unit's broadcast, if the rank is its root, or if it isn't (`of_root`).
 */
static void add_ways(struct lowering *l, int u, int rank, int worker, bool of_root) {
  if (!l->units.units[u].broadcast || of_root != (rank == l->units.units[u].root)) return;
  for (int way = 0; way < link_of(l, u, rank)->ways; way++)
    if (worker_of_way(l, u, rank, way) == worker) add_broadcast(l, u, rank, way);
}

static void add_tree_worker(struct lowering *l, int rank, int worker) {
  uint32_t first_op = l->b->header.n_ops;
  for (int step = 0; step < 5; step++)
    for (int u = 0; u < l->units.n_units; u++) {
      bool own = l->worker[u] == worker, broadcasts = l->units.units[u].broadcast;
      if (step == 0 && own) add_entry_signals(l, u, rank);
      if (step == 1 && own && l->units.units[u].reduce) add_reduce(l, u, rank);
      if (step == 2 || step == 3) add_ways(l, u, rank, worker, step == 2);
      if (step == 4 && own && broadcasts) add_own(l, u, rank);
    }
  copse_build_worker(l->b, rank, first_op);
}

copse_status copse_lower_packets(struct copse_plan_build *b) {
  struct lowering l = {.b = b,
                       .n_ranks = b->schedule->n_ranks,
                       .signals_entry = copse_collective_rooted(b->schedule->collective)};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_DO(copse_units_make(&scratch, b->schedule, b->options.instances, false, &l.units, b->err));
  size_t n = (size_t)l.units.n_units;
  COPSE_DO(COPSE_ARRAY(&scratch, n * (size_t)l.n_ranks, l.links, b->err));
  COPSE_DO(make_workers(&l, &scratch));
  COPSE_DO(check_degrees(&l));
  for (int u = 0; u < l.units.n_units; u++)
    copse_build_piece(b, l.units.units[u].lo, l.units.units[u].hi, 0);
  make_channels(&l);
  make_regions(&l);
  for (int rank = 0; rank < l.n_ranks; rank++)
    for (int w = 0; w < l.n_workers[rank]; w++) add_tree_worker(&l, rank, w);
  return COPSE_OK;
}
