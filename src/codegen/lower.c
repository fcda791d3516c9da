#include "codegen/lower.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/unit.h"

enum { PHASE_REDUCE = 0, PHASE_BROADCAST = 1, N_PHASES = 2 };

/* One phase of one unit, as the channels and workers see it. */
struct part {
  const struct copse_unit_tree *tree; /* NULL: the unit lacks this phase */
  int worker;                         /* index among the rank's workers, the same on every rank */
  uint32_t data_channel; /* of the edge to the first rank that is no root; see edge_slot */
  uint32_t back_channel; /* ready and credit, against the data; unused without handshake */
  int next_on_worker;    /* next unit of the same worker, -1 at the end */
};

struct lowering {
  const struct copse_schedule *schedule;
  struct copse_lower_options options;
  struct copse_units units;
  struct part *parts[N_PHASES]; /* [n_units] */
  int n_workers[N_PHASES];      /* per rank */
  int *first_on_worker[N_PHASES];
  uint32_t *local_channel; /* [n_units] allreduce: from the root's reduce to its broadcast */
  uint32_t *region;        /* [n_units * n_ranks] where a child's partial sums arrive */
  bool handshake;          /* broadcasts need the peers' word that they have entered */
  struct copse_plan_header header;
  struct copse_plan_rank *ranks;
  struct copse_plan_worker *workers;
  struct copse_plan_op *ops;
  size_t ops_capacity;
  struct copse_plan_operand *operands;
  size_t operands_capacity;
  struct copse_plan_piece *pieces;
  struct copse_plan_region *regions;
  size_t regions_capacity;
  struct copse_plan_channel *channels;
  size_t channels_capacity;
  struct copse_err *err;
};

/* ---- options ---------------------------------------------------------------------- */

static bool both_phases(const struct lowering *l) {
  return l->schedule->collective == COPSE_ALLREDUCE;
}

static copse_status check_range(struct lowering *l, const char *what, int64_t value, int64_t min,
                                int64_t max) {
  if (value >= min && value <= max) return COPSE_OK;
  return copse_fail(l->err, COPSE_INVALID, "%s must be from %lld to %lld", what, (long long)min,
                    (long long)max);
}

static copse_status fill_options(struct lowering *l, const struct copse_lower_options *given) {
  struct copse_lower_options *o = &l->options;
  copse_status status;
  if (given) *o = *given;
  if (o->max_workers == 0) o->max_workers = 32;
  if (o->instances == 0) o->instances = 1;
  if (o->fifo == 0) o->fifo = 4;
  if (o->pipeline_chunks == 0) o->pipeline_chunks = 16;
  if (o->chunk_bytes == 0) o->chunk_bytes = 512 << 10;
  if (o->min_chunk_bytes == 0) o->min_chunk_bytes = o->chunk_bytes < 16384 ? o->chunk_bytes : 16384;
  COPSE_TRY(check_range(l, "the number of workers", o->max_workers, both_phases(l) ? 2 : 1, 1024));
  COPSE_TRY(check_range(l, "the number of instances", o->instances, 1, 64));
  COPSE_TRY(check_range(l, "the FIFO depth", o->fifo, 1, 64));
  COPSE_TRY(check_range(l, "the number of chunks", o->pipeline_chunks, 1, 1 << 20));
  COPSE_TRY(check_range(l, "the chunk size", o->chunk_bytes, COPSE_PLAN_ALIGN_BYTES, 1LL << 40));
  COPSE_TRY(check_range(l, "the smallest chunk size", o->min_chunk_bytes, COPSE_PLAN_ALIGN_BYTES,
                        o->chunk_bytes));
out:
  return status;
}

/* ---- workers ---------------------------------------------------------------------- */

struct sized {
  double size;
  int unit;
};

static int larger_first(const void *a, const void *b) {
  const struct sized *x = a, *y = b;
  if (x->size != y->size) return x->size < y->size ? 1 : -1;
  return x->unit - y->unit;
}

static int least_loaded(const double *load, int n) {
  int best = 0;
  for (int w = 1; w < n; w++)
    if (load[w] < load[best]) best = w;
  return best;
}

/*
 * Spreads the units of a phase over the rank's workers: largest first to the least loaded
 * one. The choice is the same on all ranks, and a worker does its units in ascending
 * order: whatever waits, waits for a smaller (chunk, unit) or for the same one further
 * down or up its tree, so no ring of waits can close.
 */
static copse_status assign_workers(struct lowering *l, int phase, int first, int most) {
  size_t n = (size_t)l->units.n_units;
  int workers = l->units.n_units < most ? l->units.n_units : most;
  struct sized *sized = NULL;
  double *load = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(n, sizeof *sized, &sized, l->err));
  COPSE_TRY(copse_calloc((size_t)workers, sizeof *load, &load, l->err));
  COPSE_TRY(copse_calloc((size_t)workers, sizeof(int), &l->first_on_worker[phase], l->err));
  for (int u = 0; u < l->units.n_units; u++) {
    const struct copse_unit *unit = &l->units.units[u];
    sized[u] = (struct sized){copse_q_to_double(unit->hi) - copse_q_to_double(unit->lo), u};
  }
  qsort(sized, n, sizeof *sized, larger_first);
  for (size_t i = 0; i < n; i++) {
    int w = least_loaded(load, workers);
    load[w] += sized[i].size;
    l->parts[phase][sized[i].unit].worker = first + w;
  }
  for (int w = 0; w < workers; w++) l->first_on_worker[phase][w] = -1;
  for (int u = l->units.n_units - 1; u >= 0; u--) {
    struct part *part = &l->parts[phase][u];
    part->next_on_worker = l->first_on_worker[phase][part->worker - first];
    l->first_on_worker[phase][part->worker - first] = u;
  }
  l->n_workers[phase] = workers;
out:
  free(sized);
  free(load);
  return status;
}

static copse_status make_workers(struct lowering *l) {
  bool reduces = l->units.units[0].reduce != NULL;
  bool broadcasts = l->units.units[0].broadcast != NULL;
  int most = l->options.max_workers / (reduces && broadcasts ? 2 : 1);
  copse_status status = COPSE_OK;
  for (int p = 0; p < N_PHASES; p++) {
    COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(struct part), &l->parts[p], l->err));
    for (int u = 0; u < l->units.n_units; u++)
      l->parts[p][u].tree =
          p == PHASE_REDUCE ? l->units.units[u].reduce : l->units.units[u].broadcast;
  }
  if (reduces) COPSE_TRY(assign_workers(l, PHASE_REDUCE, 0, most));
  if (broadcasts) COPSE_TRY(assign_workers(l, PHASE_BROADCAST, l->n_workers[PHASE_REDUCE], most));
out:
  return status;
}

static int workers_per_rank(const struct lowering *l) {
  return l->n_workers[PHASE_REDUCE] + l->n_workers[PHASE_BROADCAST];
}

static uint32_t global_worker(const struct lowering *l, int rank, int worker) {
  return (uint32_t)(rank * workers_per_rank(l) + worker);
}

/* ---- channels and regions --------------------------------------------------------- */

static copse_status add_channel(struct lowering *l, uint32_t src, uint32_t dst) {
  copse_status status = copse_grow(&l->channels, &l->channels_capacity,
                                   (size_t)l->header.n_channels + 1, sizeof *l->channels, l->err);
  if (status == COPSE_OK)
    l->channels[l->header.n_channels++] = (struct copse_plan_channel){src, dst};
  return status;
}

/* Edges are named by their child; the root, which has none, is left out of the count. */
static uint32_t edge_slot(int child, int root) {
  return (uint32_t)(child < root ? child : child - 1);
}

/* Channels along the tree's edges: with the data, or against it. */
static copse_status add_edge_channels(struct lowering *l, int phase, int u, bool to_parent) {
  const struct part *part = &l->parts[phase][u];
  copse_status status = COPSE_OK;
  for (int child = 0; child < l->schedule->n_ranks; child++) {
    int parent = part->tree->parent[child];
    if (parent < 0) continue;
    int src = to_parent ? child : parent, dst = to_parent ? parent : child;
    COPSE_TRY(
        add_channel(l, global_worker(l, src, part->worker), global_worker(l, dst, part->worker)));
  }
out:
  return status;
}

static copse_status make_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(uint32_t), &l->local_channel, l->err));
  for (int u = 0; u < l->units.n_units; u++) {
    struct part *reduce = &l->parts[PHASE_REDUCE][u], *broadcast = &l->parts[PHASE_BROADCAST][u];
    int root = l->units.units[u].root;
    if (reduce->tree) {
      reduce->data_channel = l->header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, true));
      reduce->back_channel = l->header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, false));
    }
    if (broadcast->tree) {
      broadcast->data_channel = l->header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, false));
      broadcast->back_channel = l->header.n_channels;
      if (l->handshake) COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, true));
    }
    if (!reduce->tree || !broadcast->tree) continue;
    l->local_channel[u] = l->header.n_channels;
    COPSE_TRY(add_channel(l, global_worker(l, root, reduce->worker),
                          global_worker(l, root, broadcast->worker)));
  }
out:
  return status;
}

static copse_status add_region(struct lowering *l, int rank, int piece, uint32_t *index) {
  copse_status status = copse_grow(&l->regions, &l->regions_capacity,
                                   (size_t)l->header.n_regions + 1, sizeof *l->regions, l->err);
  if (status != COPSE_OK) return status;
  *index = l->header.n_regions;
  l->regions[l->header.n_regions++] = (struct copse_plan_region){(uint32_t)rank, (uint32_t)piece};
  return COPSE_OK;
}

/* Sources (or destinations) of one MOVE besides the rank's own; more take several. */
#define CHILDREN_PER_MOVE ((int)COPSE_MOVE_MAX_OPERANDS - 1)

static int child_count(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

/* One region per edge, at the parent; the plan wants them grouped by rank. */
static copse_status make_regions(struct lowering *l) {
  int n = l->schedule->n_ranks;
  copse_status status;
  COPSE_TRY(
      copse_calloc((size_t)l->units.n_units * (size_t)n, sizeof(uint32_t), &l->region, l->err));
  for (int rank = 0; rank < n; rank++) {
    for (int u = 0; u < l->units.n_units; u++) {
      const struct copse_unit_tree *tree = l->parts[PHASE_REDUCE][u].tree;
      uint32_t *region = l->region + (size_t)u * (size_t)n;
      if (!tree) continue;
      for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
        COPSE_TRY(add_region(l, rank, u, &region[tree->children[i]]));
    }
  }
out:
  return status;
}

static copse_status make_pieces(struct lowering *l) {
  copse_status status =
      copse_calloc((size_t)l->units.n_units, sizeof *l->pieces, &l->pieces, l->err);
  if (status != COPSE_OK) return status;
  for (int u = 0; u < l->units.n_units; u++) {
    const struct copse_unit *unit = &l->units.units[u];
    l->pieces[u] =
        (struct copse_plan_piece){unit->lo.num, unit->lo.den, unit->hi.num, unit->hi.den};
  }
  l->header.n_pieces = (uint32_t)l->units.n_units;
  return COPSE_OK;
}

/* ---- operations ------------------------------------------------------------------- */

static copse_status add_op(struct lowering *l, struct copse_plan_op op) {
  copse_status status =
      copse_grow(&l->ops, &l->ops_capacity, (size_t)l->header.n_ops + 1, sizeof *l->ops, l->err);
  if (status == COPSE_OK) l->ops[l->header.n_ops++] = op;
  return status;
}

static copse_status add_sync(struct lowering *l, uint8_t kind, uint8_t when, uint32_t channel) {
  return add_op(l, (struct copse_plan_op){.kind = kind, .when = when, .channel = channel});
}

static copse_status add_operand(struct lowering *l, int rank, uint32_t buffer, uint32_t index) {
  copse_status status = copse_grow(&l->operands, &l->operands_capacity,
                                   (size_t)l->header.n_operands + 1, sizeof *l->operands, l->err);
  if (status == COPSE_OK)
    l->operands[l->header.n_operands++] =
        (struct copse_plan_operand){(uint32_t)rank, buffer, index};
  return status;
}

/* A MOVE whose operands are the ones added since `first`; the last n_dst are stored to. */
static copse_status add_move(struct lowering *l, int u, uint32_t first, int n_dst, uint8_t flags) {
  int n = (int)(l->header.n_operands - first);
  return add_op(l, (struct copse_plan_op){.kind = COPSE_OP_MOVE,
                                          .flags = flags,
                                          .n_src = (uint8_t)(n - n_dst),
                                          .n_dst = (uint8_t)n_dst,
                                          .piece = (uint32_t)u,
                                          .operand = first});
}

static uint32_t input_block(const struct lowering *l, int u) {
  return l->header.input_blocks > 1 ? (uint32_t)l->units.units[u].block : 0;
}

static uint32_t output_block(const struct lowering *l, int u) {
  return l->header.output_blocks > 1 ? (uint32_t)l->units.units[u].block : 0;
}

static uint32_t channel_of(uint32_t base, int child, int root) {
  return base + edge_slot(child, root);
}

/* Where a rank's sum goes: the parent's slot for it, or at the root the output. */
static copse_status add_sum_target(struct lowering *l, int u, int rank) {
  int parent = l->parts[PHASE_REDUCE][u].tree->parent[rank];
  if (parent < 0) return add_operand(l, rank, COPSE_BUFFER_OUTPUT, output_block(l, u));
  return add_operand(l, parent, COPSE_BUFFER_SCRATCH,
                     l->region[(size_t)u * (size_t)l->schedule->n_ranks + (size_t)rank]);
}

/*
 * Own input plus the children's sums, in the tree's order. Beyond what one MOVE takes, the
 * sum so far goes into the first child's slot, which has been read by then.
 */
static copse_status add_sum(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *tree = l->parts[PHASE_REDUCE][u].tree;
  const uint32_t *region = l->region + (size_t)u * (size_t)l->schedule->n_ranks;
  int n = child_count(tree, rank), done = 0;
  const int *children = tree->children + tree->first_child[rank];
  copse_status status = COPSE_OK;
  do {
    uint32_t first = l->header.n_operands;
    if (done == 0)
      COPSE_TRY(add_operand(l, rank, COPSE_BUFFER_INPUT, input_block(l, u)));
    else
      COPSE_TRY(add_operand(l, rank, COPSE_BUFFER_SCRATCH, region[children[0]]));
    int upto = n - done > CHILDREN_PER_MOVE ? done + CHILDREN_PER_MOVE : n;
    for (; done < upto; done++)
      COPSE_TRY(add_operand(l, rank, COPSE_BUFFER_SCRATCH, region[children[done]]));
    if (done < n) {
      COPSE_TRY(add_operand(l, rank, COPSE_BUFFER_SCRATCH, region[children[0]]));
      COPSE_TRY(add_move(l, u, first, 1, 0));
    } else {
      COPSE_TRY(add_sum_target(l, u, rank));
      COPSE_TRY(add_move(l, u, first, 1, tree->parent[rank] < 0 ? COPSE_MOVE_FINAL : 0));
    }
  } while (done < n);
out:
  return status;
}

/* Reduce phase of unit u at `rank`, for one chunk. The data goes from child to parent. */
static copse_status add_reduce(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[PHASE_REDUCE][u];
  const struct copse_unit_tree *tree = part->tree;
  int root = l->units.units[u].root;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(add_sync(l, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS,
                       channel_of(part->data_channel, tree->children[i], root)));
  if (rank != root) { /* the parent has entered; later: a slot is free again */
    uint32_t credit = channel_of(part->back_channel, rank, root);
    COPSE_TRY(add_sync(l, COPSE_OP_WAIT, COPSE_WHEN_FIRST, credit));
    COPSE_TRY(add_sync(l, COPSE_OP_WAIT, COPSE_WHEN_AFTER_FIFO, credit));
  }
  COPSE_TRY(add_sum(l, u, rank));
  if (rank != root)
    COPSE_TRY(add_sync(l, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS,
                       channel_of(part->data_channel, rank, root)));
  else if (l->units.units[u].broadcast)
    COPSE_TRY(add_sync(l, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS, l->local_channel[u]));
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(add_sync(l, COPSE_OP_SIGNAL, COPSE_WHEN_BEFORE_FIFO,
                       channel_of(part->back_channel, tree->children[i], root)));
out:
  return status;
}

/* Puts to the children `from`..`to` of the tree's list, and at a lone root to itself. */
static copse_status add_put(struct lowering *l, int u, int rank, int from, int to) {
  const struct copse_unit_tree *tree = l->parts[PHASE_BROADCAST][u].tree;
  bool source = rank == l->units.units[u].root && !l->units.units[u].reduce;
  bool keep = source && from == tree->first_child[rank]; /* the root's own copy, once */
  uint32_t first = l->header.n_operands;
  copse_status status;
  COPSE_TRY(add_operand(l, rank, source ? COPSE_BUFFER_INPUT : COPSE_BUFFER_OUTPUT,
                        source ? input_block(l, u) : output_block(l, u)));
  if (keep) COPSE_TRY(add_operand(l, rank, COPSE_BUFFER_OUTPUT, output_block(l, u)));
  for (int i = from; i < to; i++)
    COPSE_TRY(add_operand(l, tree->children[i], COPSE_BUFFER_OUTPUT, output_block(l, u)));
  COPSE_TRY(add_move(l, u, first, (to - from) + (keep ? 1 : 0), 0));
out:
  return status;
}

/* Broadcast phase of unit u at `rank`, for one chunk. The data goes from parent to child. */
static copse_status add_broadcast(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[PHASE_BROADCAST][u];
  const struct copse_unit_tree *tree = part->tree;
  int root = l->units.units[u].root;
  int from = tree->first_child[rank], end = tree->first_child[rank + 1];
  bool source = rank == root && !l->units.units[u].reduce;
  copse_status status = COPSE_OK;
  if (rank != root)
    COPSE_TRY(
        add_sync(l, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS, channel_of(part->data_channel, rank, root)));
  else if (!source)
    COPSE_TRY(add_sync(l, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS, l->local_channel[u]));
  for (int i = from; i < end && l->handshake; i++)
    COPSE_TRY(add_sync(l, COPSE_OP_WAIT, COPSE_WHEN_FIRST,
                       channel_of(part->back_channel, tree->children[i], root)));
  for (int i = from; i < end || (i == from && source); i += CHILDREN_PER_MOVE)
    COPSE_TRY(add_put(l, u, rank, i, end - i > CHILDREN_PER_MOVE ? i + CHILDREN_PER_MOVE : end));
  for (int i = from; i < end; i++)
    COPSE_TRY(add_sync(l, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS,
                       channel_of(part->data_channel, tree->children[i], root)));
out:
  return status;
}

/*
 * What a rank has to say before it waits for anything: "I have entered". To the children
 * whose sums it takes (their slots are free), to the parents that put into its output.
 */
static copse_status add_greetings(struct lowering *l, int phase, int first_unit, int rank) {
  copse_status status = COPSE_OK;
  for (int u = first_unit; u >= 0; u = l->parts[phase][u].next_on_worker) {
    const struct part *part = &l->parts[phase][u];
    int root = l->units.units[u].root;
    if (phase == PHASE_REDUCE) {
      for (int i = part->tree->first_child[rank]; i < part->tree->first_child[rank + 1]; i++)
        COPSE_TRY(add_sync(l, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                           channel_of(part->back_channel, part->tree->children[i], root)));
    } else if (l->handshake && rank != root) {
      COPSE_TRY(add_sync(l, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                         channel_of(part->back_channel, rank, root)));
    }
  }
out:
  return status;
}

static copse_status add_worker(struct lowering *l, int phase, int worker, int rank) {
  int first_unit = l->first_on_worker[phase][worker];
  uint32_t first_op = l->header.n_ops;
  copse_status status;
  COPSE_TRY(add_greetings(l, phase, first_unit, rank));
  for (int u = first_unit; u >= 0; u = l->parts[phase][u].next_on_worker) {
    if (phase == PHASE_REDUCE)
      COPSE_TRY(add_reduce(l, u, rank));
    else
      COPSE_TRY(add_broadcast(l, u, rank));
  }
  l->workers[l->header.n_workers++] =
      (struct copse_plan_worker){(uint32_t)rank, first_op, l->header.n_ops - first_op};
out:
  return status;
}

static copse_status make_ops(struct lowering *l) {
  int n = l->schedule->n_ranks, per_rank = workers_per_rank(l);
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *l->ranks, &l->ranks, l->err));
  COPSE_TRY(copse_calloc((size_t)n * (size_t)per_rank, sizeof *l->workers, &l->workers, l->err));
  for (int rank = 0; rank < n; rank++) {
    l->ranks[rank] = (struct copse_plan_rank){l->header.n_workers, (uint32_t)per_rank};
    for (int phase = 0; phase < N_PHASES; phase++)
      for (int w = 0; w < l->n_workers[phase]; w++) COPSE_TRY(add_worker(l, phase, w, rank));
    if (l->header.n_ops > UINT32_MAX / 2 || l->header.n_operands > UINT32_MAX / 2)
      return copse_fail(l->err, COPSE_NOMEM, "the plan has over 2^31 operations");
  }
out:
  return status;
}

/* ---- the whole -------------------------------------------------------------------- */

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

static void fill_header(struct lowering *l) {
  const struct copse_schedule *s = l->schedule;
  struct copse_plan_header *h = &l->header;
  h->version = COPSE_PLAN_VERSION;
  h->header_bytes = sizeof *h;
  h->collective = (uint32_t)s->collective;
  h->root = s->root;
  h->input_blocks = s->collective == COPSE_REDUCE_SCATTER ? (uint32_t)s->n_ranks : 1;
  h->output_blocks = s->collective == COPSE_ALLGATHER ? (uint32_t)s->n_ranks : 1;
  h->fifo = (uint32_t)l->options.fifo;
  h->pipeline_chunks = (uint32_t)l->options.pipeline_chunks;
  h->chunk_bytes = (uint64_t)l->options.chunk_bytes;
  h->min_chunk_bytes = (uint64_t)l->options.min_chunk_bytes;
  h->n_ranks = (uint32_t)s->n_ranks;
  h->name_bytes = (uint32_t)strlen(s->topology_name);
  if (strlen(s->topology_sha256) != 2 * sizeof h->topology_sha256) return;
  for (size_t i = 0; i < sizeof h->topology_sha256; i++) {
    int hi = hex_digit(s->topology_sha256[2 * i]), lo = hex_digit(s->topology_sha256[2 * i + 1]);
    h->topology_sha256[i] = hi < 0 || lo < 0 ? 0 : (uint8_t)(16 * hi + lo);
  }
}

static void release(struct lowering *l) {
  copse_units_free(&l->units);
  for (int p = 0; p < N_PHASES; p++) {
    free(l->parts[p]);
    free(l->first_on_worker[p]);
  }
  free(l->local_channel);
  free(l->region);
  free(l->ranks);
  free(l->workers);
  free(l->ops);
  free(l->operands);
  free(l->pieces);
  free(l->regions);
  free(l->channels);
}

/* Through the file format, so that what runs is what a file would hold. */
static copse_status freeze(struct lowering *l, struct copse_plan **out) {
  struct copse_plan plan = {.header = l->header,
                            .ranks = l->ranks,
                            .workers = l->workers,
                            .ops = l->ops,
                            .operands = l->operands,
                            .pieces = l->pieces,
                            .regions = l->regions,
                            .channels = l->channels,
                            .name = l->schedule->topology_name};
  char *bytes = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_plan_encode(&plan, &bytes, &size, l->err));
  COPSE_TRY(copse_plan_decode("plan", bytes, size, out, l->err));
out:
  free(bytes);
  return status;
}

copse_status copse_lower_schedule(const struct copse_schedule *schedule,
                                  const struct copse_lower_options *options,
                                  struct copse_plan **out, struct copse_err *err) {
  struct lowering l = {.schedule = schedule, .err = err};
  copse_status status;
  *out = NULL;
  COPSE_TRY(fill_options(&l, options));
  fill_header(&l);
  /* In an allreduce a rank's output is written only after its input went into the sum. */
  l.handshake = !both_phases(&l);
  COPSE_TRY(copse_units_make(schedule, l.options.instances, &l.units, err));
  COPSE_TRY(make_workers(&l));
  COPSE_TRY(make_channels(&l));
  COPSE_TRY(make_regions(&l));
  COPSE_TRY(make_pieces(&l));
  COPSE_TRY(make_ops(&l));
  COPSE_TRY(freeze(&l, out));
out:
  release(&l);
  return status;
}
