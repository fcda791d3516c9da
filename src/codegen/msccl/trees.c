/*
 * Trees as MSCCL steps. Two styles: plain, where every rank receives in one block and sends in
 * another (all that RCCL runs), and fused, where one step receives and sends on.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "codegen/msccl/emit.h"

/* One span on its way through its unit's trees. */
struct walk {
  const struct copse_msccl_job *job;
  struct copse_msccl_program *p;
  const struct copse_chunk_run *span;
  struct copse_msccl_place in, out; /* of the span, at every rank that has it there */
};

static copse_status add(struct walk *w, int block, enum copse_msccl_op op,
                        struct copse_msccl_place src, struct copse_msccl_place dst,
                        const struct copse_msccl_ref *after, int n_after,
                        struct copse_msccl_ref *ref) {
  struct copse_msccl_step step = {.op = op, .src = src, .dst = dst, .count = w->span->count};
  return copse_msccl_add(w->p, block, &step, after, n_after, ref);
}

static copse_status channel_for(struct walk *w, int src, int dst, int wish, int *channel) {
  *channel = copse_msccl_channel(w->p, src, dst, wish, w->span->count);
  if (*channel >= 0) return COPSE_OK;
  return copse_fail(w->p->err, COPSE_UNSUPPORTED, "no channel is left from rank %d to %d", src,
                    dst);
}

static copse_status send(struct walk *w, int rank, int peer, int channel,
                         struct copse_msccl_place src, struct copse_msccl_ref after) {
  struct copse_msccl_ref ref;
  int block;
  copse_status status;
  COPSE_TRY(copse_msccl_block(w->p, rank, peer, -1, channel, &block));
  COPSE_TRY(add(w, block, COPSE_MSCCL_S, src, src, &after, 1, &ref));
out:
  return status;
}

static copse_status receive(struct walk *w, int rank, int peer, int channel,
                            struct copse_msccl_place dst, struct copse_msccl_ref *ref) {
  int block;
  copse_status status;
  COPSE_TRY(copse_msccl_block(w->p, rank, -1, peer, channel, &block));
  COPSE_TRY(add(w, block, COPSE_MSCCL_R, dst, dst, NULL, 0, ref));
out:
  return status;
}

/* ---- reduction ------------------------------------------------------------------------ */

static copse_status send_up(struct walk *w, int rank, int *channel);

/*
 * sum += every part, in groups that run as one operation; a group waits for all of its parts
 * at once. A published step ends a group.
 */
static copse_status add_up(struct walk *w, int block, struct copse_msccl_place sum,
                           const struct copse_msccl_place *parts,
                           const struct copse_msccl_ref *after, int n,
                           struct copse_msccl_ref *ref) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < n; i++) {
    int at = i % COPSE_MSCCL_MAX_FUSED, left = n - i;
    int group = left < COPSE_MSCCL_MAX_FUSED ? left : COPSE_MSCCL_MAX_FUSED;
    COPSE_TRY(add(w, block, COPSE_MSCCL_RE, parts[i], sum, after + i, at == 0 ? group : 0, ref));
    if (at == COPSE_MSCCL_MAX_FUSED - 1) w->p->blocks[block].steps[ref->step].awaited = true;
  }
out:
  return status;
}

/* Plain: every child's sum into scratch; `parts` and `refs` get where and when. */
static copse_status collect(struct walk *w, int rank, struct copse_msccl_place *parts,
                            struct copse_msccl_ref *refs, int *channel) {
  const struct copse_unit_tree *t = w->span->unit->reduce;
  copse_status status = COPSE_OK;
  for (int i = t->first_child[rank]; i < t->first_child[rank + 1]; i++) {
    COPSE_TRY(send_up(w, t->children[i], channel));
    *parts = copse_msccl_scratch(w->p, rank, w->span->count);
    COPSE_TRY(receive(w, rank, t->children[i], *channel, *parts++, refs++));
  }
out:
  return status;
}

static copse_status plain_up(struct walk *w, int rank, int *channel) {
  const struct copse_unit_tree *t = w->span->unit->reduce;
  int n = t->first_child[rank + 1] - t->first_child[rank], block;
  struct copse_msccl_place *parts = NULL;
  struct copse_msccl_ref *refs = NULL, ref;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *parts, &parts, w->p->err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *refs, &refs, w->p->err));
  *channel = -1;
  COPSE_TRY(collect(w, rank, parts, refs, channel));
  COPSE_TRY(channel_for(w, rank, t->parent[rank], *channel, channel));
  COPSE_TRY(copse_msccl_block(w->p, rank, t->parent[rank], -1, *channel, &block));
  if (n > 0) {
    COPSE_TRY(add(w, block, COPSE_MSCCL_RE, w->in, parts[0], refs, 1, &ref));
    COPSE_TRY(add_up(w, block, parts[0], parts + 1, refs + 1, n - 1, &ref));
  }
  COPSE_TRY(send(w, rank, t->parent[rank], *channel, n > 0 ? parts[0] : w->in, COPSE_MSCCL_NO_REF));
out:
  free(parts);
  free(refs);
  return status;
}

/* Fused: the children's sums are added as they come, into `acc`; all but the last child. */
static copse_status fold_all_but_last(struct walk *w, int rank, struct copse_msccl_place acc,
                                      struct copse_msccl_place *src, struct copse_msccl_ref *ref) {
  const struct copse_unit_tree *t = w->span->unit->reduce;
  int block, channel;
  copse_status status = COPSE_OK;
  *src = w->in;
  *ref = COPSE_MSCCL_NO_REF;
  for (int i = t->first_child[rank]; i + 1 < t->first_child[rank + 1]; i++) {
    struct copse_msccl_ref before = *ref;
    COPSE_TRY(send_up(w, t->children[i], &channel));
    COPSE_TRY(copse_msccl_block(w->p, rank, -1, t->children[i], channel, &block));
    COPSE_TRY(add(w, block, COPSE_MSCCL_RRC, *src, acc, &before, 1, ref));
    *src = acc;
  }
out:
  return status;
}

static copse_status fused_up(struct walk *w, int rank, int *channel) {
  const struct copse_unit_tree *t = w->span->unit->reduce;
  int n = t->first_child[rank + 1] - t->first_child[rank], block, from, parent = t->parent[rank];
  struct copse_msccl_place src, acc = {0};
  struct copse_msccl_ref ref, before;
  copse_status status;
  if (n == 0) {
    COPSE_TRY(channel_for(w, rank, parent, -1, channel));
    return send(w, rank, parent, *channel, w->in, COPSE_MSCCL_NO_REF);
  }
  int last = t->children[t->first_child[rank + 1] - 1];
  if (n > 1) acc = copse_msccl_scratch(w->p, rank, w->span->count);
  COPSE_TRY(fold_all_but_last(w, rank, acc, &src, &before));
  COPSE_TRY(send_up(w, last, &from));
  COPSE_TRY(channel_for(w, rank, parent, from, channel));
  block = -1;
  if (*channel == from)
    COPSE_TRY(copse_msccl_block_of_both(w->p, rank, parent, last, from, &block));
  if (block >= 0) return add(w, block, COPSE_MSCCL_RRS, src, src, &before, 1, &ref);
  if (n == 1) acc = copse_msccl_scratch(w->p, rank, w->span->count);
  COPSE_TRY(copse_msccl_block(w->p, rank, -1, last, from, &block));
  COPSE_TRY(add(w, block, COPSE_MSCCL_RRC, src, acc, &before, 1, &ref));
  COPSE_TRY(send(w, rank, parent, *channel, acc, ref));
out:
  return status;
}

/* All that makes `rank` send its sum to its parent; the parent's receive is the caller's. */
static copse_status send_up(struct walk *w, int rank, int *channel) {
  return w->job->fused ? fused_up(w, rank, channel) : plain_up(w, rank, channel);
}

/* The root's part of a fused reduction: every child's sum is added into the output. */
static copse_status fused_root(struct walk *w, int root, struct copse_msccl_ref *done) {
  const struct copse_unit_tree *t = w->span->unit->reduce;
  struct copse_msccl_place src;
  struct copse_msccl_ref before;
  int block, channel, last = t->children[t->first_child[root + 1] - 1];
  copse_status status;
  COPSE_TRY(fold_all_but_last(w, root, w->out, &src, &before));
  COPSE_TRY(send_up(w, last, &channel));
  COPSE_TRY(copse_msccl_block(w->p, root, -1, last, channel, &block));
  COPSE_TRY(add(w, block, COPSE_MSCCL_RRC, src, w->out, &before, 1, done));
out:
  return status;
}

/* The whole reduction; *done: the root's output has the sum. */
static copse_status reduce(struct walk *w, struct copse_msccl_ref *done) {
  const struct copse_unit_tree *t = w->span->unit->reduce;
  int root = w->span->unit->root, n = t->first_child[root + 1] - t->first_child[root];
  int channel = 0, block;
  struct copse_msccl_place *parts = NULL;
  struct copse_msccl_ref *refs = NULL;
  copse_status status;
  if (n > 0 && w->job->fused) return fused_root(w, root, done);
  COPSE_TRY(copse_calloc((size_t)n, sizeof *parts, &parts, w->p->err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *refs, &refs, w->p->err));
  COPSE_TRY(collect(w, root, parts, refs, &channel));
  if (n > 0)
    block = refs[n - 1].block;
  else
    COPSE_TRY(copse_msccl_block(w->p, root, -1, -1, 0, &block));
  *done = COPSE_MSCCL_NO_REF;
  if (!w->job->skip_copy) COPSE_TRY(add(w, block, COPSE_MSCCL_CPY, w->in, w->out, NULL, 0, done));
  COPSE_TRY(add_up(w, block, w->out, parts, refs, n, done));
out:
  free(parts);
  free(refs);
  return status;
}

/* ---- broadcast ------------------------------------------------------------------------ */

static copse_status pass_down(struct walk *w, int rank, int first, struct copse_msccl_ref have);

/*
 * `rank` takes the span from its parent and passes it on: to its first child in the same step
 * where the styles and the connections allow.
 */
static copse_status take_down(struct walk *w, int rank, int parent, int channel) {
  const struct copse_unit_tree *t = w->span->unit->broadcast;
  int first = t->first_child[rank], next = -1, block = -1;
  struct copse_msccl_ref ref;
  copse_status status;
  if (w->job->fused && first < t->first_child[rank + 1]) {
    COPSE_TRY(channel_for(w, rank, t->children[first], channel, &next));
    if (next == channel)
      COPSE_TRY(copse_msccl_block_of_both(w->p, rank, t->children[first], parent, channel, &block));
  }
  if (block >= 0)
    COPSE_TRY(add(w, block, COPSE_MSCCL_RCS, w->out, w->out, NULL, 0, &ref));
  else
    COPSE_TRY(receive(w, rank, parent, channel, w->out, &ref));
  if (next >= 0) {
    if (block < 0) COPSE_TRY(send(w, rank, t->children[first], next, w->out, ref));
    COPSE_TRY(take_down(w, t->children[first], rank, next));
    first++;
  }
  COPSE_TRY(pass_down(w, rank, first, ref));
out:
  return status;
}

/* To the children from index `first` on, once `have` is done. */
static copse_status pass_down(struct walk *w, int rank, int first, struct copse_msccl_ref have) {
  const struct copse_unit_tree *t = w->span->unit->broadcast;
  copse_status status = COPSE_OK;
  for (int i = first; i < t->first_child[rank + 1]; i++) {
    int channel;
    COPSE_TRY(channel_for(w, rank, t->children[i], -1, &channel));
    COPSE_TRY(send(w, rank, t->children[i], channel, w->out, have));
    COPSE_TRY(take_down(w, t->children[i], rank, channel));
  }
out:
  return status;
}

/* ---- all together --------------------------------------------------------------------- */

/* Both phases get channels of their own, where there are two: a block that did both would wait
 * for its own part of the result before it takes the next. */
static void choose_channels(struct walk *w, int channels, bool broadcast) {
  bool both = w->span->unit->reduce && w->span->unit->broadcast && channels > 1;
  w->p->first_channel = both && broadcast ? channels / 2 : 0;
  w->p->end_channel = both && !broadcast ? channels / 2 : channels;
}

/* An allgather's own block into the output; refs[rank * n + i] is for its i-th stretch. */
static copse_status copy_own(const struct copse_msccl_job *job, struct copse_msccl_program *p,
                             int stretches, struct copse_msccl_ref *refs) {
  copse_status status = COPSE_OK;
  for (int r = 0; r < p->n_ranks && !job->skip_copy; r++) {
    int block;
    COPSE_TRY(copse_msccl_block(p, r, -1, -1, 0, &block));
    for (int i = 0; i < stretches; i++) {
      int at = i * COPSE_MSCCL_MAX_COUNT, left = job->cut.block - at;
      struct copse_msccl_step copy = {
          .op = COPSE_MSCCL_CPY,
          .src = {'i', at},
          .dst = {'o', r * job->cut.block + at},
          .count = left < COPSE_MSCCL_MAX_COUNT ? left : COPSE_MSCCL_MAX_COUNT};
      COPSE_TRY(copse_msccl_add(p, block, &copy, NULL, 0, &refs[r * stretches + i]));
    }
  }
out:
  return status;
}

copse_status copse_msccl_emit_trees(const struct copse_msccl_job *job,
                                    struct copse_msccl_program *p) {
  int stretches = (job->cut.block - 1) / COPSE_MSCCL_MAX_COUNT + 1, channels = p->end_channel;
  size_t n_refs = (size_t)p->n_ranks * (size_t)stretches;
  struct copse_msccl_ref *own = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(n_refs, sizeof *own, &own, p->err));
  for (size_t i = 0; i < n_refs; i++) own[i] = COPSE_MSCCL_NO_REF;
  if (job->schedule->collective == COPSE_ALLGATHER) COPSE_TRY(copy_own(job, p, stretches, own));
  for (size_t i = 0; i < job->cut.n_runs; i++) {
    const struct copse_chunk_run *span = &job->cut.runs[i];
    int whole = span->block * job->cut.block + span->offset;
    struct walk w = {job, p, span, {'i', whole}, {'o', whole}};
    struct copse_msccl_ref have =
        own[span->unit->root * stretches + span->offset / COPSE_MSCCL_MAX_COUNT];
    if (job->schedule->collective == COPSE_REDUCE_SCATTER) w.out.offset = span->offset;
    choose_channels(&w, channels, false);
    if (span->unit->reduce) COPSE_TRY(reduce(&w, &have));
    choose_channels(&w, channels, true);
    if (span->unit->broadcast)
      COPSE_TRY(pass_down(&w, span->unit->root,
                          span->unit->broadcast->first_child[span->unit->root], have));
  }
out:
  free(own);
  return status;
}
