/*
 * Recursive doubling, in groups of any size (R. Thakur, R. Rabenseifner, W. Gropp 2005; with groups
 * of more than two: recursive multiplying): in stages every rank sends its sum so far to the ranks
 * of its group and adds theirs. An allreduce in as many rounds as the groups are far across, for
 * small messages; in one stage of all ranks it takes one hop.
 *
 *   stage 1   0 <-> 1   2 <-> 3     own input to the group; input + what came -> sum
 *   stage 2   0 <-> 2   1 <-> 3     sum to the group; sum + what came -> output
 *
 * A schedule of stages (struct copse_schedule_tree) says which rank's sum goes to whom along which
 * tree. In a reduce tree a rank adds what its children send to its own sum, sends that on and has
 * none then. Every rank of a group adds the same sums in the order of their ranks, so all end with
 * the same bits. A sum stays in slots of the rank's own; what comes from others comes into slots of
 * theirs, with credits, or into packets (packets.c; codegen/check/proof.c says why nobody
 * overwrites what is unread).
 *
 * In one hop: of a schedule of other trees only the ranks are taken, and that every pair of them
 * sends to each other. `copse plans` adds such a plan as far as the simulator finds it faster.
 *
 * Each message keeps a worker busy, so a rank deals its puts in a tree to its workers, as in
 * trees.c (work.h). A way is some of its children. The unit's worker makes the sums, does the first
 * way and tells the others' workers that what they put is there. They tell it that it was read:
 * before it puts the result where in place the input lies, or a later chunk's sum. In packets only
 * a rank's input is dealt, for which nobody waits: a sum would need a signal, with a fence. A rank
 * that passes others' sums on in the stage deals nothing: what it puts one after the other comes so
 * to its neighbours. Dealt it came at once, and waited for each other at every hop: an allreduce of
 * 1 KiB on an 8x8 torus took 16.88 us, not 16.16.
 *
 * No ring of waits can close: each operation waits for one of a smaller (chunk, unit, stage, level)
 * or a credit of an earlier chunk, and each worker goes by that order.
 */
#include "base/graph.h"
#include "codegen/lower/plan_build.h"
#include "codegen/lower/policy.h"
#include "codegen/lower/work.h"

/* One edge of a tree for one unit: data into a region of `dst`, and back that it may come. */
struct hop {
  int root, dst; /* root: whose sum it is, in a reduce tree the sender's */
  bool reduce;
  int level;    /* 1 from the root, of a reduce tree all */
  int tree;     /* of all units' */
  int into, on; /* keys: (dst, unit, stage); (tree, source) */
  int sender;   /* which of the source's workers puts */
  uint32_t data, ready, region;
  /* channels within the source, + 1, 0: none; of the first child of a way of another worker: that
   * what it puts is there (the input is), and was read */
  uint32_t there, read;
};

/* What a worker puts that another one has made: hops [first, end) of l->on. */
struct way {
  int worker, unit, first, end;
  struct copse_plan_operand source;
};

struct lowering {
  struct copse_plan_build *b;
  const struct copse_schedule_tree *trees; /* by piece, stage, root */
  int n_trees, n_ranks, n_pieces, n_parts, n_units, n_stages;
  int n_base; /* workers of each rank that do units; those of its other ways come after them */
  bool packets;
  struct hop *hops; /* by unit, stage, root and turn */
  int n_hops;
  struct copse_adjacency into, on; /* hops by their keys */
  int *own;    /* [n_ranks * n_units * n_stages] the tree that takes a rank's sum, 1 + its number;
                  0: none */
  bool *gives; /* likewise: whether that is a reduce tree */
  uint32_t *sums; /* likewise: slots for its sum after the stage */
  int n_places, *n_ways;         /* [n_places] of hops' `on`: to how many ways they are dealt */
  int *n_workers, *first_worker; /* [n_ranks] */
  struct way *others;            /* of the rank at hand, those that other workers do, by unit */
  int n_others;
  struct copse_arena arena;
};

static int key(const struct lowering *l, int rank, int unit, int stage) {
  return (rank * l->n_units + unit) * l->n_stages + stage - 1;
}

static int unit_of(const struct lowering *l, const struct hop *hop) {
  return hop->into / l->n_stages % l->n_units;
}

/* Returns the key of a hop's source in its stage. */
static int source_key(const struct lowering *l, const struct hop *hop) {
  return key(l, hop->on % l->n_ranks, unit_of(l, hop), hop->into % l->n_stages + 1);
}

/* ---- what there is ------------------------------------------------------------------------- */

/* Adds every piece in so many parts, one after the other: the units. */
static copse_status add_units(struct lowering *l) {
  struct copse_q at = COPSE_Q_ZERO, width;
  for (int t = 0; t < l->n_trees; t++) {
    if (l->trees[t].stage > l->n_stages) l->n_stages = l->trees[t].stage;
    if (l->trees[t].piece < l->n_pieces) continue;
    l->n_pieces++;
    COPSE_DO(copse_q_div(l->trees[t].weight, (struct copse_q){l->n_parts, 1}, &width, l->b->err));
    for (int p = 0; p < l->n_parts; p++) {
      struct copse_q lo = at;
      COPSE_DO(copse_q_add(at, width, &at, l->b->err));
      copse_build_piece(l->b, lo, at, 0);
    }
  }
  l->n_units = l->n_pieces * l->n_parts;
  return COPSE_OK;
}

static void add_hops(struct lowering *l, int unit, const struct copse_schedule_tree *t, int tree,
                     int *level) {
  bool reduce = t->phase == COPSE_PHASE_REDUCE;
  if (!reduce) l->own[key(l, t->root, unit, t->stage)] = 1 + tree;
  level[t->root] = 0;
  for (int e = 0; e < t->n_edges; e++) {
    int src = t->edges[e].src, dst = t->edges[e].dst;
    level[dst] = reduce ? 1 : level[src] + 1;
    if (reduce) {
      l->own[key(l, src, unit, t->stage)] = 1 + tree;
      l->gives[key(l, src, unit, t->stage)] = true;
    }
    l->hops[l->n_hops++] = (struct hop){.root = reduce ? src : t->root,
                                        .dst = dst,
                                        .reduce = reduce,
                                        .level = level[dst],
                                        .tree = tree,
                                        .into = key(l, dst, unit, t->stage),
                                        .on = tree * l->n_ranks + src,
                                        .sender = unit % l->n_base};
  }
}

static copse_status make_hops(struct lowering *l) {
  size_t n = 0, keys = (size_t)l->n_ranks * (size_t)l->n_units * (size_t)l->n_stages;
  int *level, tree = 0;
  if (keys > COPSE_POLICY_MOST_STAGES ||
      (size_t)l->n_trees * (size_t)l->n_parts * (size_t)l->n_ranks > COPSE_POLICY_MOST_STAGES)
    return copse_fail(l->b->err, COPSE_UNSUPPORTED,
                      "%d ranks with %d stages, in %d pieces and parts, are too many for a plan",
                      l->n_ranks, l->n_stages, l->n_units);
  for (int t = 0; t < l->n_trees; t++) n += (size_t)l->trees[t].n_edges * (size_t)l->n_parts;
  COPSE_DO(COPSE_ARRAY(&l->arena, n, l->hops, l->b->err));
  COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)l->n_ranks, level, l->b->err));
  COPSE_DO(COPSE_ARRAY(&l->arena, keys, l->own, l->b->err));
  COPSE_DO(COPSE_ARRAY(&l->arena, keys, l->gives, l->b->err));
  COPSE_DO(COPSE_ARRAY(&l->arena, keys, l->sums, l->b->err));
  for (int u = 0; u < l->n_units; u++)
    for (int t = 0; t < l->n_trees; t++)
      if (l->trees[t].piece == u / l->n_parts) add_hops(l, u, &l->trees[t], tree++, level);
  COPSE_DO(copse_adjacency_by(&l->arena, (int)keys, l->n_hops, COPSE_KEYS(l->hops, into),
                              sizeof *l->hops, &l->into, l->b->err));
  l->n_places = tree * l->n_ranks;
  return copse_adjacency_by(&l->arena, l->n_places, l->n_hops, COPSE_KEYS(l->hops, on),
                            sizeof *l->hops, &l->on, l->b->err);
}

/* ---- ways ---------------------------------------------------------------------------------- */

/* Returns the first hop of what a rank puts in a tree, NULL: it puts nothing. */
static struct hop *first_hop(const struct lowering *l, int place) {
  int first = l->on.first[place];
  return first < l->on.first[place + 1] ? &l->hops[l->on.item[first]] : NULL;
}

static int first_of_way(const struct lowering *l, int place, int way) {
  return copse_way_first(l->on.first[place], l->on.first[place + 1], way, l->n_ways[place]);
}

/* Whether what a rank puts of its own is its input: nothing came before. */
static bool puts_input(const struct lowering *l, const struct hop *hop) {
  int at = source_key(l, hop), stage = hop->into % l->n_stages;
  return l->into.first[at - stage] == l->into.first[at];
}

/* Finds to how many ways a rank's puts are dealt; of: how many trees it puts in then. */
static int find_ways(const struct lowering *l, int place, int of) {
  if (l->packets && !puts_input(l, first_hop(l, place))) return 1;
  return copse_ways(&l->b->options, l->on.first[place + 1] - l->on.first[place],
                    of > l->n_base ? of : l->n_base);
}

/* Deals a rank's puts in a tree; dealt: how many ways of that stage other workers have. */
static void deal_place(struct lowering *l, int place, int of, int *dealt) {
  int rank = place % l->n_ranks, others = l->b->options.max_workers - l->n_base;
  l->n_ways[place] = find_ways(l, place, of);
  for (int way = 1; way < l->n_ways[place]; way++) {
    int worker = l->n_base + (*dealt)++ % others;
    for (int k = first_of_way(l, place, way); k < first_of_way(l, place, way + 1); k++)
      l->hops[l->on.item[k]].sender = worker;
    if (worker >= l->n_workers[rank]) l->n_workers[rank] = worker + 1;
  }
}

/* Deals ranks' puts to workers, those of a stage to different ones as far as there are enough. */
static copse_status deal(struct lowering *l) {
  size_t n = (size_t)l->n_ranks, places = (size_t)l->n_places;
  int *n_puts, *dealt; /* by rank and stage */
  COPSE_DO(COPSE_ARRAY(&l->arena, places, l->n_ways, l->b->err));
  COPSE_DO(COPSE_ARRAYS(&l->arena, n * (size_t)l->n_stages, int, l->b->err, &n_puts, &dealt));
  COPSE_DO(COPSE_ARRAYS(&l->arena, n, int, l->b->err, &l->n_workers, &l->first_worker));
  COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)l->n_hops, l->others, l->b->err)); /* at most */
  for (int r = 0; r < l->n_ranks; r++) l->n_workers[r] = l->n_base;
  for (int i = 0; i < l->n_places; i++) l->n_ways[i] = 1;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < l->n_places; i++) {
      const struct hop *hop = first_hop(l, i);
      if (!hop) continue;
      int at = i % l->n_ranks * l->n_stages + hop->into % l->n_stages;
      if (pass == 0)
        n_puts[at] += hop->level > 1 ? l->b->options.max_workers : 1; /* no ways beside it */
      else
        deal_place(l, i, n_puts[at], &dealt[at]);
    }
  for (int r = 1; r < l->n_ranks; r++)
    l->first_worker[r] = l->first_worker[r - 1] + l->n_workers[r - 1];
  return COPSE_OK;
}

/* Makes channels within a rank, between the unit's worker and those of its other ways. */
static void make_locals(struct lowering *l, int place) {
  for (int way = 1; way < l->n_ways[place]; way++) {
    struct hop *hop = &l->hops[l->on.item[first_of_way(l, place, way)]];
    int first = l->first_worker[place % l->n_ranks];
    uint32_t own = (uint32_t)(first + unit_of(l, hop) % l->n_base);
    uint32_t other = (uint32_t)(first + hop->sender);
    if (!puts_input(l, hop)) hop->there = 1 + copse_build_channel(l->b, own, other);
    hop->read = 1 + copse_build_channel(l->b, other, own);
  }
}

static void make_channels(struct lowering *l) {
  for (int i = 0; i < l->n_hops; i++) {
    struct hop *hop = &l->hops[i];
    uint32_t from = (uint32_t)(l->first_worker[hop->on % l->n_ranks] + hop->sender);
    uint32_t to = (uint32_t)(l->first_worker[hop->dst] + unit_of(l, hop) % l->n_base);
    hop->data = copse_build_channel(l->b, from, to);
    hop->ready = l->packets ? 0 : copse_build_channel(l->b, to, from);
  }
  for (int i = 0; i < l->n_places; i++) make_locals(l, i);
}

/* ---- regions ------------------------------------------------------------------------------- */

/* Finds hops that come to a rank in a stage: [*first, *end) of l->into. */
static void find_arrivals(const struct lowering *l, int rank, int unit, int stage, int *first,
                          int *end) {
  *first = l->into.first[key(l, rank, unit, stage)];
  *end = l->into.first[key(l, rank, unit, stage) + 1];
}

/* Makes regions grouped by rank, as the plan has them. */
static void make_regions(struct lowering *l) {
  for (int rank = 0; rank < l->n_ranks; rank++)
    for (int u = 0; u < l->n_units; u++)
      for (int s = 1, first, end; s <= l->n_stages; s++) {
        find_arrivals(l, rank, u, s, &first, &end);
        for (int k = first; k < end; k++)
          l->hops[l->into.item[k]].region = copse_build_region(l->b, rank, u);
        if (end > first && s < l->n_stages && !l->gives[key(l, rank, u, s)])
          l->sums[key(l, rank, u, s)] = copse_build_slots(l->b, rank, u);
      }
}

/* ---- operations ---------------------------------------------------------------------------- */

/* What a rank does for a unit while it goes through the stages. */
struct walk {
  struct lowering *l;
  int rank, unit;
  bool has;               /* a sum */
  uint32_t buffer, index; /* where that is */
};

static void add_region(const struct lowering *l, int rank, const struct hop *hop) {
  copse_build_operand(l->b, rank, l->packets ? COPSE_BUFFER_PACKETS : COPSE_BUFFER_SCRATCH,
                      hop->region);
}

/*
 * Puts the sources since `operand` to `n_own` places of the rank's own, added behind them, and to
 * hops [first, end) of l->on, once they have room. None where nobody takes it.
 */
static void put(const struct lowering *l, int unit, uint32_t operand, int n_own, uint8_t flags,
                int first, int end) {
  for (int k = first; k < end; k++) {
    const struct hop *hop = &l->hops[l->on.item[k]];
    add_region(l, hop->dst, hop);
    if (l->packets) continue;
    copse_build_wait(l->b, COPSE_WHEN_FIRST, hop->ready);
    copse_build_wait(l->b, COPSE_WHEN_AFTER_FIFO, hop->ready);
  }
  if (n_own + end - first > 0)
    copse_build_move(l->b, unit, operand, n_own + end - first, flags);
  else
    l->b->header.n_operands = operand;
}

static void notify(const struct lowering *l, int first, int end) {
  for (int k = first; k < end; k++) copse_build_data_signal(l->b, l->hops[l->on.item[k]].data);
}

/* Sends a MOVE of the sources since `operand` to the rank's own sum, where `keeps`, and to its
 * children in a tree (-1: none); other workers put the sum then. */
static void send(struct walk *w, uint32_t operand, bool keeps, uint8_t flags, int tree) {
  struct lowering *l = w->l;
  int place = tree < 0 ? 0 : tree * l->n_ranks + w->rank;
  int first = tree < 0 ? 0 : l->on.first[place], end = tree < 0 ? 0 : first_of_way(l, place, 1);
  if (keeps) copse_build_operand(l->b, w->rank, w->buffer, w->index);
  put(l, w->unit, operand, keeps, flags, first, end);
  for (int way = 1; tree >= 0 && way < l->n_ways[place]; way++) {
    int from = first_of_way(l, place, way);
    const struct hop *hop = &l->hops[l->on.item[from]];
    if (hop->there > 0) copse_build_signal(l->b, COPSE_WHEN_ALWAYS, hop->there - 1);
    l->others[l->n_others++] = (struct way){.worker = hop->sender,
                                            .unit = w->unit,
                                            .first = from,
                                            .end = first_of_way(l, place, way + 1),
                                            .source = {(uint32_t)w->rank, w->buffer, w->index}};
  }
  notify(l, first, end);
}

/* When a worker of another way says that it has read what it puts: slots are filled again later. */
static enum copse_plan_when when_read(const struct lowering *l, const struct hop *hop) {
  return puts_input(l, hop) ? COPSE_WHEN_ALWAYS : COPSE_WHEN_BEFORE_FIFO;
}

/* Adds a way of another worker than the unit's. */
static void add_way(const struct lowering *l, const struct way *way) {
  const struct hop *hop = &l->hops[l->on.item[way->first]];
  uint32_t operand = l->b->header.n_operands;
  if (hop->there > 0) copse_build_wait(l->b, COPSE_WHEN_ALWAYS, hop->there - 1);
  copse_build_operand(l->b, (int)way->source.rank, way->source.buffer, way->source.index);
  put(l, way->unit, operand, 0, 0, way->first, way->end);
  notify(l, way->first, way->end);
  copse_build_signal(l->b, when_read(l, hop), hop->read - 1);
}

/* Waits until other workers have read what they put of the rank's own in all stages. */
static void await_ways(const struct walk *w) {
  const struct lowering *l = w->l;
  for (int s = 1; s <= l->n_stages; s++) {
    int tree = l->own[key(l, w->rank, w->unit, s)] - 1, place = tree * l->n_ranks + w->rank;
    for (int way = 1; tree >= 0 && way < l->n_ways[place]; way++) {
      const struct hop *hop = &l->hops[l->on.item[first_of_way(l, place, way)]];
      copse_build_wait(l->b, when_read(l, hop), hop->read - 1);
    }
  }
}

/* Waits for what comes in a stage, the nearest first, and sends on what goes on. */
static void receive(struct walk *w, int first, int end) {
  const struct lowering *l = w->l;
  int seen = 0;
  for (int level = 1; seen < end - first; level++)
    for (int k = first; k < end; k++) {
      const struct hop *hop = &l->hops[l->into.item[k]];
      if (hop->level != level) continue;
      uint32_t operand = l->b->header.n_operands;
      copse_build_data_wait(l->b, hop->data);
      add_region(l, w->rank, hop);
      if (hop->reduce)
        l->b->header.n_operands = operand;
      else
        send(w, operand, false, 0, hop->tree);
      seen++;
    }
}

/* Returns the tree that takes a rank's sum in a stage, once nothing more comes to it there; -1:
 * none. */
static int tree_from(const struct walk *w, int stage) {
  int first, end, at = key(w->l, w->rank, w->unit, stage);
  find_arrivals(w->l, w->rank, w->unit, stage, &first, &end);
  return w->l->gives[at] && end > first ? -1 : w->l->own[at] - 1;
}

/* Adds the sum so far and what came in a stage, by rank: into the output, or kept and sent in the
 * next stage, or given away in this one. */
static void add_up(struct walk *w, int stage, int first, int end) {
  const struct lowering *l = w->l;
  int at = key(l, w->rank, w->unit, stage);
  bool last = stage == l->n_stages, gives = end > first && l->gives[at], own = !w->has;
  uint32_t operand = l->b->header.n_operands;
  for (int k = first; k <= end; k++) {
    const struct hop *hop = k < end ? &l->hops[l->into.item[k]] : NULL;
    if (!own && (!hop || hop->root > w->rank)) {
      copse_build_operand(l->b, w->rank, w->buffer, w->index);
      own = true;
    }
    if (hop) add_region(l, w->rank, hop);
  }
  w->has = w->has || end > first;
  int tree = !w->has || last ? -1 : gives ? l->own[at] - 1 : tree_from(w, stage + 1);
  gives = gives || (tree >= 0 && l->gives[at + 1]);
  bool keeps = !gives && w->has && (last || end > first);
  if (keeps) {
    w->buffer = last ? COPSE_BUFFER_OUTPUT : COPSE_BUFFER_SCRATCH;
    w->index = last ? 0 : l->sums[at];
  }
  if (last) await_ways(w);
  send(w, operand, keeps, last ? COPSE_MOVE_FINAL : 0, tree);
  w->has = w->has && !gives;
  for (int k = first; k < end && !l->packets; k++)
    copse_build_signal(l->b, COPSE_WHEN_BEFORE_FIFO, l->hops[l->into.item[k]].ready);
}

static void add_worker(struct lowering *l, int rank, int worker) {
  uint32_t first_op = l->b->header.n_ops;
  int first, end;
  for (int u = worker; u < l->n_units && !l->packets; u += l->n_base)
    for (int k = l->into.first[key(l, rank, u, 1)];
         k < l->into.first[key(l, rank, u, l->n_stages) + 1]; k++)
      copse_build_signal(l->b, COPSE_WHEN_FIRST, l->hops[l->into.item[k]].ready);
  for (int u = worker; u < l->n_units; u += l->n_base) {
    struct walk w = {l, rank, u, true, COPSE_BUFFER_INPUT, 0};
    add_up(&w, 0, 0, 0);
    for (int s = 1; s <= l->n_stages; s++) {
      find_arrivals(l, rank, u, s, &first, &end);
      receive(&w, first, end);
      add_up(&w, s, first, end);
    }
  }
  copse_build_worker(l->b, rank, first_op);
}

static void add_workers(struct lowering *l, int rank) {
  l->n_others = 0;
  for (int w = 0; w < l->n_base; w++) add_worker(l, rank, w);
  for (int w = l->n_base; w < l->n_workers[rank]; w++) {
    uint32_t first_op = l->b->header.n_ops;
    for (int i = 0; i < l->n_others; i++)
      if (l->others[i].worker == w) add_way(l, &l->others[i]);
    copse_build_worker(l->b, rank, first_op);
  }
}

/* Checks that a rank adds no more than an operation has room for. */
static copse_status check_operands(const struct lowering *l) {
  for (int k = 0; k < l->n_ranks * l->n_units * l->n_stages; k++) {
    int n = l->into.first[k + 1] - l->into.first[k];
    if (n >= (int)COPSE_MOVE_MAX_OPERANDS)
      return copse_fail(l->b->err, COPSE_UNSUPPORTED,
                        "a rank adds the sums of %d others at once, an operation takes %d", n,
                        (int)COPSE_MOVE_MAX_OPERANDS - 1);
  }
  return COPSE_OK;
}

static copse_status lower(struct lowering *l) {
  struct copse_plan_build *b = l->b;
  l->packets = b->options.low_latency;
  l->n_parts = b->options.instances == COPSE_LOWER_AUTO ? 1 : b->options.instances;
  if (l->n_parts > b->options.max_workers) l->n_parts = b->options.max_workers;
  COPSE_DO(add_units(l));
  l->n_base = copse_smaller(l->n_units, b->options.max_workers);
  COPSE_DO(make_hops(l));
  COPSE_DO(check_operands(l));
  COPSE_DO(deal(l));
  make_channels(l);
  make_regions(l);
  copse_build_levels(b, l->n_stages);
  for (int rank = 0; rank < l->n_ranks; rank++) add_workers(l, rank);
  return COPSE_OK;
}

static void release(struct lowering *l) { copse_arena_free(&l->arena); }

copse_status copse_lower_doubling(struct copse_plan_build *b) {
  const struct copse_schedule *s = b->schedule;
  COPSE_AT_END(release)
  struct lowering l = {.b = b, .trees = s->trees, .n_trees = s->n_trees, .n_ranks = s->n_ranks};
  return lower(&l);
}

/* ---- in one hop ---------------------------------------------------------------------------- */

/* Checks that the trees join all ranks straight: others may have no way to each other, or one over
 * third ranks. */
static copse_status check_pairs(const struct copse_schedule *s, struct copse_arena *arena,
                                struct copse_err *err) {
  size_t n = (size_t)s->n_ranks;
  bool *joined;
  COPSE_DO(COPSE_ARRAY(arena, n * n, joined, err));
  for (int i = 0; i < s->n_trees; i++)
    for (int e = 0; e < s->trees[i].n_edges; e++) {
      const struct copse_schedule_edge *edge = &s->trees[i].edges[e];
      joined[(size_t)edge->src * n + (size_t)edge->dst] = true;
    }
  for (size_t i = 0; i < n * n; i++)
    if (!joined[i] && i / n != i % n)
      return copse_fail(err, COPSE_UNSUPPORTED,
                        "one hop needs each rank to send to every other, and in this schedule "
                        "rank %zu never sends to rank %zu: lower without it",
                        i / n, i % n);
  return COPSE_OK;
}

/* Makes stars to all others, the next rank first: not everybody to one at the same moment. */
static copse_status make_stars(struct lowering *l, struct copse_err *err) {
  int n = l->n_ranks;
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)n, trees, err));
  for (int root = 0; root < n; root++) {
    struct copse_schedule_edge *edges;
    COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)n, edges, err));
    for (int i = 1; i < n; i++)
      edges[i - 1] = (struct copse_schedule_edge){.src = root, .dst = (root + i) % n};
    trees[root] = (struct copse_schedule_tree){
        .root = root, .weight = COPSE_Q_ONE, .n_edges = n - 1, .edges = edges, .stage = 1};
  }
  l->trees = trees;
  l->n_trees = n;
  return COPSE_OK;
}

copse_status copse_lower_one_hop(struct copse_plan_build *b) {
  const struct copse_schedule *s = b->schedule;
  COPSE_AT_END(release) struct lowering l = {.b = b, .n_ranks = s->n_ranks};
  if (s->collective != COPSE_ALLREDUCE)
    return copse_fail(b->err, COPSE_UNSUPPORTED,
                      "one hop is for an allreduce: the trees of other collectives have no second "
                      "one to save");
  if (s->n_ranks > (int)COPSE_MOVE_MAX_OPERANDS)
    return copse_fail(b->err, COPSE_UNSUPPORTED,
                      "%d ranks' inputs are more than one operation adds, which is %d: lower "
                      "without one hop",
                      s->n_ranks, (int)COPSE_MOVE_MAX_OPERANDS);
  COPSE_DO(check_pairs(s, &l.arena, b->err));
  COPSE_DO(make_stars(&l, b->err));
  return lower(&l);
}

/* ---- by a switch that copies and adds ---------------------------------------------------- */

/*
 * An allreduce of ranks at one switch that copies and adds (NVLink SHARP), in operations for the
 * group of all ranks (plan_abi.h). A unit is a part of a root's share. Its workers, one at each
 * rank:
 *
 *   rank                                   root
 *     input -> own slot `in`                 input -> own slot `in`
 *     signal ----------------------------->  wait for all
 *                                            sum of all ranks' `in` -> all ranks' `out`, final
 *     wait <-------------------------------  signal all
 *     own slot `out` -> output               own slot `out` -> output
 *
 * No credits are needed: the root's signal also says that `in` was read, the rank's next one that
 * `out` was. A worker does the first step of all its units before the second of any, chunk by
 * chunk, so operations wait for smaller (chunk, step) alone and no ring of waits can close.
 */
struct group_unit {
  int root, piece;
  uint32_t *up, *down; /* [n_ranks] channels to and from the root; none of the root's own */
};

struct group_lowering {
  struct copse_plan_build *b;
  int n_ranks, n_workers, n_units;
  struct group_unit *units;
  struct copse_arena arena;
};

/* Returns a rank's regions: `in` and `out` of each unit. */
static uint32_t group_region(const struct group_lowering *l, int rank, int u, bool out) {
  return (uint32_t)(2 * (rank * l->n_units + u) + out);
}

/* Computes the root's share of the block, which it reduces and broadcasts. */
static copse_status group_share(const struct copse_schedule *s, int root, struct copse_q *share,
                                struct copse_err *err) {
  *share = COPSE_Q_ZERO;
  for (int t = 0; t < s->n_trees; t++)
    if (s->trees[t].root == root && s->trees[t].phase == COPSE_PHASE_BROADCAST)
      COPSE_DO(copse_q_add(*share, s->trees[t].weight, share, err));
  return COPSE_OK;
}

static copse_status group_units(struct group_lowering *l) {
  struct copse_plan_build *b = l->b;
  const int n = l->n_ranks, asked = b->options.instances;
  const int parts = asked != COPSE_LOWER_AUTO ? asked : (b->options.max_workers + n - 1) / n;
  struct copse_q at = COPSE_Q_ZERO, width;
  COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)n * (size_t)parts, l->units, b->err));
  for (int root = 0; root < n; root++) {
    COPSE_DO(group_share(b->schedule, root, &width, b->err));
    if (copse_q_eq(width, COPSE_Q_ZERO)) continue;
    COPSE_DO(copse_q_div(width, (struct copse_q){parts, 1}, &width, b->err));
    for (int p = 0; p < parts; p++) {
      struct group_unit *unit = &l->units[l->n_units++];
      struct copse_q lo = at;
      COPSE_DO(copse_q_add(at, width, &at, b->err));
      COPSE_DO(COPSE_ARRAYS(&l->arena, (size_t)n, uint32_t, b->err, &unit->up, &unit->down));
      unit->root = root;
      unit->piece = (int)copse_build_piece(b, lo, at, 0);
    }
  }
  l->n_workers = copse_smaller(l->n_units, b->options.max_workers);
  return COPSE_OK;
}

static void group_tables(struct group_lowering *l) {
  for (int rank = 0; rank < l->n_ranks; rank++)
    for (int u = 0; u < l->n_units; u++)
      for (int k = 0; k < 2; k++) copse_build_slots(l->b, rank, l->units[u].piece);
  for (int u = 0; u < l->n_units; u++)
    for (int rank = 0; rank < l->n_ranks; rank++) {
      struct group_unit *unit = &l->units[u];
      uint32_t own = (uint32_t)(rank * l->n_workers + u % l->n_workers);
      uint32_t root = (uint32_t)(unit->root * l->n_workers + u % l->n_workers);
      if (rank == unit->root) continue;
      unit->up[rank] = copse_build_channel(l->b, own, root);
      unit->down[rank] = copse_build_channel(l->b, root, own);
    }
}

/* Copies one operand to one: to or from a slot of the rank's own. */
static void group_copy(const struct group_lowering *l, int rank, int u, bool out) {
  uint32_t operand = l->b->header.n_operands;
  if (!out) copse_build_block(l->b, rank, COPSE_BUFFER_INPUT, 0);
  copse_build_operand(l->b, rank, COPSE_BUFFER_SCRATCH, group_region(l, rank, u, out));
  if (out) copse_build_block(l->b, rank, COPSE_BUFFER_OUTPUT, 0);
  copse_build_move(l->b, l->units[u].piece, operand, 1, 0);
}

static void group_sum(const struct group_lowering *l, int u) {
  const struct group_unit *unit = &l->units[u];
  uint32_t operand = l->b->header.n_operands;
  for (int r = 0; r < l->n_ranks; r++)
    if (r != unit->root) copse_build_wait(l->b, COPSE_WHEN_ALWAYS, unit->up[r]);
  for (int k = 0; k < 2; k++)
    for (int r = 0; r < l->n_ranks; r++)
      copse_build_operand(l->b, r, COPSE_BUFFER_SCRATCH, group_region(l, r, u, k > 0));
  copse_build_move(l->b, unit->piece, operand, l->n_ranks,
                   COPSE_MOVE_FINAL | COPSE_MOVE_REDUCE_LOAD | COPSE_MOVE_GROUP_STORE);
  for (int r = 0; r < l->n_ranks; r++)
    if (r != unit->root) copse_build_signal(l->b, COPSE_WHEN_ALWAYS, unit->down[r]);
}

static void group_worker(const struct group_lowering *l, int rank, int worker) {
  const uint32_t first_op = l->b->header.n_ops;
  for (int u = worker; u < l->n_units; u += l->n_workers) {
    group_copy(l, rank, u, false);
    if (rank != l->units[u].root) copse_build_signal(l->b, COPSE_WHEN_ALWAYS, l->units[u].up[rank]);
  }
  for (int u = worker; u < l->n_units; u += l->n_workers)
    if (rank == l->units[u].root) group_sum(l, u);
  for (int u = worker; u < l->n_units; u += l->n_workers) {
    if (rank != l->units[u].root) copse_build_wait(l->b, COPSE_WHEN_ALWAYS, l->units[u].down[rank]);
    group_copy(l, rank, u, true);
  }
  copse_build_worker(l->b, rank, first_op);
}

static void group_release(struct group_lowering *l) { copse_arena_free(&l->arena); }

copse_status copse_lower_multicast(struct copse_plan_build *b) {
  const struct copse_schedule *s = b->schedule;
  COPSE_AT_END(group_release) struct group_lowering l = {.b = b, .n_ranks = s->n_ranks};
  if (!copse_schedule_is_group(s))
    return copse_fail(b->err, COPSE_UNSUPPORTED,
                      "the schedule counts on '%s' to %s for its time, and a plan can ask that of "
                      "switches only where each tree is one hop of all ranks by a switch that does "
                      "both; solve without --in-network for one that is sent as it says",
                      s->nodes[s->n_copying > 0 ? s->copying[0] : s->adding[0]],
                      s->n_copying > 0 ? "copy" : "add");
  if (s->n_ranks > (int)COPSE_MOVE_MAX_OPERANDS)
    return copse_fail(b->err, COPSE_UNSUPPORTED,
                      "a group of %d ranks, an operation has room for %d", s->n_ranks,
                      (int)COPSE_MOVE_MAX_OPERANDS);
  COPSE_DO(group_units(&l));
  group_tables(&l);
  copse_build_levels(b, 2);
  for (int rank = 0; rank < l.n_ranks; rank++)
    for (int w = 0; w < l.n_workers; w++) group_worker(&l, rank, w);
  return COPSE_OK;
}
