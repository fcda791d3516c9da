/* Textbook algorithms on the plan builder. */
#include <stdbool.h>
#include <stdlib.h>

#include "support/plan_builder.h"

/* A complete tree of some arity over positions 0 .. n-1 (0: root), turned so that
 * position 0 is rank `root`. */
struct tree {
  struct plan_builder *b;
  uint32_t n, arity, root;
  uint32_t piece;
  uint32_t in_block, out_block; /* at every rank */
  uint32_t *workers;            /* [n] by position */
};

static uint32_t rank_at(const struct tree *t, uint32_t position) {
  return (position + t->root) % t->n;
}
static uint32_t first_child(const struct tree *t, uint32_t position) {
  return position * t->arity + 1;
}
static uint32_t end_child(const struct tree *t, uint32_t position) {
  uint64_t end = (uint64_t)position * t->arity + 1 + t->arity;
  return end < t->n ? (uint32_t)end : t->n;
}

static void new_workers(struct tree *t) {
  t->workers = calloc(t->n, sizeof *t->workers);
  if (!t->workers) abort();
  for (uint32_t p = 0; p < t->n; p++) t->workers[p] = pb_worker(t->b, rank_at(t, p));
}

struct edge { /* from a position to its parent (reduce) or the other way (broadcast) */
  uint32_t data, ready, region;
};

/* Partial sums go up through scratch at the parent. */
static struct edge *reduce_edges(struct tree *t) {
  struct edge *edges = calloc(t->n, sizeof *edges);
  if (!edges) abort();
  for (uint32_t p = 1; p < t->n; p++) {
    uint32_t parent = (p - 1) / t->arity;
    edges[p].data = pb_channel(t->b, t->workers[p], t->workers[parent]);
    edges[p].ready = pb_channel(t->b, t->workers[parent], t->workers[p]);
    edges[p].region = pb_region(t->b, rank_at(t, parent), t->piece);
  }
  return edges;
}

static struct edge *broadcast_edges(struct tree *t) {
  struct edge *edges = calloc(t->n, sizeof *edges);
  if (!edges) abort();
  for (uint32_t p = 1; p < t->n; p++) {
    uint32_t parent = (p - 1) / t->arity;
    edges[p].data = pb_channel(t->b, t->workers[parent], t->workers[p]);
    edges[p].ready = pb_channel(t->b, t->workers[p], t->workers[parent]);
  }
  return edges;
}

/* One position's part of a reduce; `down`: the edges of a broadcast that follows it. */
static void reduce_at(struct tree *t, const struct edge *up, uint32_t p, const struct edge *down) {
  uint32_t w = t->workers[p], rank = rank_at(t, p);
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_signal(t->b, w, up[c].ready, COPSE_WHEN_FIRST);
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_wait(t->b, w, up[c].data, COPSE_WHEN_ALWAYS);
  if (p > 0) {
    pb_wait(t->b, w, up[p].ready, COPSE_WHEN_FIRST);
    pb_wait(t->b, w, up[p].ready, COPSE_WHEN_AFTER_FIFO);
  }
  pb_move(t->b, w, t->piece, p == 0 ? COPSE_MOVE_FINAL : 0);
  pb_src(t->b, pb_input(rank, t->in_block));
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_src(t->b, pb_scratch(rank, up[c].region));
  if (p > 0) {
    pb_dst(t->b, pb_scratch(rank_at(t, (p - 1) / t->arity), up[p].region));
  } else {
    pb_dst(t->b, pb_output(rank, t->out_block));
    for (uint32_t c = first_child(t, p); down && c < end_child(t, p); c++)
      pb_dst(t->b, pb_output(rank_at(t, c), t->out_block));
  }
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_signal(t->b, w, up[c].ready, COPSE_WHEN_BEFORE_FIFO);
  if (p > 0) pb_signal(t->b, w, up[p].data, COPSE_WHEN_ALWAYS);
  for (uint32_t c = first_child(t, p); p == 0 && down && c < end_child(t, p); c++)
    pb_signal(t->b, w, down[c].data, COPSE_WHEN_ALWAYS);
}

static void reduce_tree(struct tree *t) {
  new_workers(t);
  struct edge *up = reduce_edges(t);
  for (uint32_t p = 0; p < t->n; p++) reduce_at(t, up, p, NULL);
  free(up);
  free(t->workers);
}

static void broadcast_at(struct tree *t, const struct edge *down, uint32_t p) {
  uint32_t w = t->workers[p], rank = rank_at(t, p);
  if (p > 0) pb_signal(t->b, w, down[p].ready, COPSE_WHEN_FIRST);
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_wait(t->b, w, down[c].ready, COPSE_WHEN_FIRST);
  if (p > 0) pb_wait(t->b, w, down[p].data, COPSE_WHEN_ALWAYS);
  if (p > 0 && first_child(t, p) >= t->n) return; /* a leaf */
  pb_move(t->b, w, t->piece, 0);
  pb_src(t->b, p == 0 ? pb_input(rank, t->in_block) : pb_output(rank, t->out_block));
  if (p == 0) pb_dst(t->b, pb_output(rank, t->out_block));
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_dst(t->b, pb_output(rank_at(t, c), t->out_block));
  for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
    pb_signal(t->b, w, down[c].data, COPSE_WHEN_ALWAYS);
}

static void broadcast_tree(struct tree *t) {
  new_workers(t);
  struct edge *down = broadcast_edges(t);
  for (uint32_t p = 0; p < t->n; p++) broadcast_at(t, down, p);
  free(down);
  free(t->workers);
}

/* Up and down the same tree. The way down needs no handshake: what comes down at a rank
 * depends on what that rank sent up. It has workers of its own, so that the next chunk
 * goes up while this one comes down. */
static void allreduce_tree(struct tree *t) {
  new_workers(t);
  struct edge *up = reduce_edges(t);
  uint32_t *up_workers = t->workers;
  new_workers(t);
  t->workers[0] = up_workers[0];
  struct edge *down = broadcast_edges(t);
  uint32_t *down_workers = t->workers;
  t->workers = up_workers;
  for (uint32_t p = 0; p < t->n; p++) reduce_at(t, up, p, down);
  t->workers = down_workers;
  for (uint32_t p = 1; p < t->n; p++) {
    pb_wait(t->b, t->workers[p], down[p].data, COPSE_WHEN_ALWAYS);
    if (first_child(t, p) >= t->n) continue;
    pb_move(t->b, t->workers[p], t->piece, 0);
    pb_src(t->b, pb_output(rank_at(t, p), t->out_block));
    for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
      pb_dst(t->b, pb_output(rank_at(t, c), t->out_block));
    for (uint32_t c = first_child(t, p); c < end_child(t, p); c++)
      pb_signal(t->b, t->workers[p], down[c].data, COPSE_WHEN_ALWAYS);
  }
  free(up);
  free(down);
  free(up_workers);
  free(down_workers);
}

/* The part [lo / den, hi / den) of every block, straight to its receiver. */
static void alltoall(struct plan_builder *b, uint32_t n, int64_t lo, int64_t hi, int64_t den) {
  uint32_t *workers = calloc(n, sizeof *workers);
  uint32_t *data = calloc((size_t)n * n, sizeof *data),
           *ready = calloc((size_t)n * n, sizeof *data);
  if (!workers || !data || !ready) abort();
  for (uint32_t r = 0; r < n; r++) workers[r] = pb_worker(b, r);
  for (uint32_t s = 0; s < n; s++)
    for (uint32_t d = 0; d < n; d++) {
      if (s == d) continue;
      data[s * n + d] = pb_channel(b, workers[s], workers[d]);
      ready[s * n + d] = pb_channel(b, workers[d], workers[s]);
    }
  for (uint32_t r = 0; r < n; r++) {
    for (uint32_t s = 0; s < n; s++)
      if (s != r) pb_signal(b, workers[r], ready[s * n + r], COPSE_WHEN_FIRST);
    for (uint32_t step = 0; step < n; step++) {
      uint32_t d = (r + step) % n;
      if (d != r) pb_wait(b, workers[r], ready[r * n + d], COPSE_WHEN_FIRST);
      pb_move(b, workers[r], pb_pair_piece(b, r, d, lo, den, hi, den), 0);
      pb_src(b, pb_input(r, d));
      pb_dst(b, pb_output(d, r));
      if (d != r) pb_signal(b, workers[r], data[r * n + d], COPSE_WHEN_ALWAYS);
    }
    for (uint32_t s = 0; s < n; s++)
      if (s != r) pb_wait(b, workers[r], data[s * n + r], COPSE_WHEN_ALWAYS);
  }
  free(workers);
  free(data);
  free(ready);
}

static struct plan_builder *begin(copse_collective collective, uint32_t n_ranks, int32_t root,
                                  const struct pb_options *options) {
  struct plan_builder *b = pb_new(collective, n_ranks, root);
  pb_header(b)->fifo = options->fifo;
  pb_header(b)->pipeline_chunks = options->pipeline_chunks;
  pb_header(b)->chunk_bytes = options->chunk_bytes;
  pb_header(b)->min_chunk_bytes = options->min_chunk_bytes;
  return b;
}

/* All trees of one part of the message. */
static void add_trees(struct tree *t, copse_collective collective, int32_t root, uint32_t part) {
  switch (collective) {
    case COPSE_BROADCAST:
      t->root = (uint32_t)root;
      broadcast_tree(t);
      break;
    case COPSE_REDUCE:
      t->root = (uint32_t)root;
      reduce_tree(t);
      break;
    case COPSE_ALLREDUCE:
      t->root = part % t->n;
      allreduce_tree(t);
      break;
    case COPSE_ALLGATHER:
      for (t->root = 0; t->root < t->n; t->root++) {
        t->out_block = t->root;
        broadcast_tree(t);
      }
      break;
    default:
      for (t->root = 0; t->root < t->n; t->root++) {
        t->in_block = t->root;
        reduce_tree(t);
      }
      break;
  }
}

struct copse_plan *pb_tree_plan(copse_collective collective, uint32_t n_ranks, int32_t root,
                                struct pb_options options) {
  struct plan_builder *b = begin(collective, n_ranks, root, &options);
  for (uint32_t i = 0; i < options.n_trees; i++) {
    if (collective == COPSE_ALLTOALL) {
      alltoall(b, n_ranks, i, i + 1, options.n_trees);
      continue;
    }
    uint32_t piece = pb_piece(b, i, options.n_trees, i + 1, options.n_trees);
    struct tree t = {.b = b, .n = n_ranks, .arity = options.arity, .piece = piece};
    add_trees(&t, collective, root, i);
  }
  return pb_finish(b);
}

struct copse_plan *pb_ring_allgather(uint32_t n, struct pb_options options) {
  struct plan_builder *b = begin(COPSE_ALLGATHER, n, -1, &options);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t *data = calloc(n, sizeof *data), *ready = calloc(n, sizeof *ready);
  if (!data || !ready) abort();
  for (uint32_t r = 0; r < n; r++) pb_worker(b, r);
  for (uint32_t r = 0; r < n; r++) { /* from r to the next */
    data[r] = pb_channel(b, r, (r + 1) % n);
    ready[r] = pb_channel(b, (r + 1) % n, r);
  }
  for (uint32_t r = 0; r < n; r++) {
    uint32_t next = (r + 1) % n, before = (r + n - 1) % n;
    if (n > 1) pb_signal(b, r, ready[before], COPSE_WHEN_FIRST);
    if (n > 1) pb_wait(b, r, ready[r], COPSE_WHEN_FIRST);
    for (uint32_t step = 0; step + 1 < n || step == 0; step++) {
      uint32_t block = (r + n - step) % n;
      if (step > 0) pb_wait(b, r, data[before], COPSE_WHEN_ALWAYS);
      pb_move(b, r, piece, 0);
      pb_src(b, step == 0 ? pb_input(r, 0) : pb_output(r, block));
      if (step == 0) pb_dst(b, pb_output(r, block));
      if (n > 1) pb_dst(b, pb_output(next, block));
      if (n > 1) pb_signal(b, r, data[r], COPSE_WHEN_ALWAYS);
    }
    if (n > 1) pb_wait(b, r, data[before], COPSE_WHEN_ALWAYS);
  }
  free(data);
  free(ready);
  return pb_finish(b);
}
