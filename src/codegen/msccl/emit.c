/*
 * Trees and chains as MSCCL steps, in one global order (program.h).
 *
 * Two styles. `any` uses what RCCL has kernels for (s, r, cpy, re, nop): a rank receives in one
 * block and sends in another that waits for it, so that both run at once over the parts of a large
 * chunk; a sum is collected in scratch and added by the sending block, up to 15 children in one
 * fused `re`. `nccl` receives and sends in one step where the connections allow it (rcs, rrs), and
 * adds each child as it comes (rrc):
 *
 *   any    recv block:  r -> s[0]   r -> s[1]            nccl   one block:  rrc   rrs --> parent
 *                         |           |  depid                               ^     ^
 *          send block:    +-----------+--> re re s --> parent            child 0  child 1
 *
 * Layouts. By default a file serves calls in place and out of place: own data are copied into the
 * output (in place that copies a chunk onto itself), sums gather in scratch, and the caller's input
 * is never written. Sends read `o`, as RCCL's waiting steps take data from other blocks for sure
 * only there.
 */
#include "codegen/msccl/emit.h"

#include "base/types.h"
#include "base/memory.h"

/* One run of chunks on its way through its unit's trees. */
struct walk {
  const struct copse_whole_chunks *cut;
  struct copse_msccl_style style;
  struct copse_msccl_program *p;
  const struct copse_chunk_run *run;
  struct copse_msccl_place in, out; /* of the run, at every rank that has it there */
  /* where and when the children's sums came in, by place in the tree's list of children */
  struct copse_msccl_place *parts; /* [n_ranks] */
  struct copse_msccl_ref *refs;    /* [n_ranks] */
};

static struct copse_msccl_ref add(const struct walk *w, int block, enum copse_msccl_op op,
                                  struct copse_msccl_place src, struct copse_msccl_place dst,
                                  const struct copse_msccl_ref *after, int n_after) {
  struct copse_msccl_step step = {.op = op, .src = src, .dst = dst, .count = w->run->count};
  return copse_msccl_add(w->p, block, &step, after, n_after);
}

static int channel_for(const struct walk *w, int src, int dst, int wish) {
  return copse_msccl_channel(w->p, src, dst, wish, w->run->count);
}

static void send(const struct walk *w, int rank, int peer, int channel,
                 struct copse_msccl_place src, struct copse_msccl_ref after) {
  int block = copse_msccl_block(w->p, rank, peer, -1, channel);
  add(w, block, COPSE_MSCCL_S, src, src, &after, 1);
}

static struct copse_msccl_ref receive(const struct walk *w, int rank, int peer, int channel,
                                      struct copse_msccl_place dst) {
  int block = copse_msccl_block(w->p, rank, -1, peer, channel);
  return add(w, block, COPSE_MSCCL_R, dst, dst, NULL, 0);
}

/* ---- reduction ------------------------------------------------------------------------ */

static int send_up(const struct walk *w, int rank);

/*
 * sum += every part, in groups that run as one operation; a group waits for all of its parts
 * at once. A published step ends a group. Returns the last step.
 */
static struct copse_msccl_ref add_up(const struct walk *w, int block, struct copse_msccl_place sum,
                                     const struct copse_msccl_place *parts,
                                     const struct copse_msccl_ref *after, int n) {
  struct copse_msccl_ref ref = COPSE_MSCCL_NO_REF;
  for (int i = 0; i < n; i++) {
    int at = i % COPSE_MSCCL_MAX_FUSED, left = n - i;
    int group = left < COPSE_MSCCL_MAX_FUSED ? left : COPSE_MSCCL_MAX_FUSED;
    ref = add(w, block, COPSE_MSCCL_RE, parts[i], sum, after + i, at == 0 ? group : 0);
    if (at == COPSE_MSCCL_MAX_FUSED - 1) copse_msccl_publish(w->p, ref);
  }
  return ref;
}

/* Plain: every child's sum into scratch. Returns the channel of the last, `channel` if none. */
static int collect(const struct walk *w, int rank, int channel) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  for (int i = t->first_child[rank]; i < t->first_child[rank + 1]; i++) {
    channel = send_up(w, t->children[i]);
    w->parts[i] = copse_msccl_scratch(w->p, rank, w->run->count);
    w->refs[i] = receive(w, rank, t->children[i], channel, w->parts[i]);
  }
  return channel;
}

static int plain_up(const struct walk *w, int rank) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  int n = copse_tree_children(t, rank), parent = t->parent[rank];
  const struct copse_msccl_place *parts = w->parts + t->first_child[rank];
  const struct copse_msccl_ref *refs = w->refs + t->first_child[rank];
  int channel = channel_for(w, rank, parent, collect(w, rank, -1));
  int block = copse_msccl_block(w->p, rank, parent, -1, channel);
  if (n > 0) {
    add(w, block, COPSE_MSCCL_RE, w->in, parts[0], refs, 1);
    add_up(w, block, parts[0], parts + 1, refs + 1, n - 1);
  }
  send(w, rank, parent, channel, n > 0 ? parts[0] : w->in, COPSE_MSCCL_NO_REF);
  return channel;
}

/* Fused: the children's sums are added as they come, into `acc`; all but the last child. *src:
 * where the sum so far is. Returns when. */
static struct copse_msccl_ref fold_all_but_last(const struct walk *w, int rank,
                                                struct copse_msccl_place acc,
                                                struct copse_msccl_place *src) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  struct copse_msccl_ref ref = COPSE_MSCCL_NO_REF;
  *src = w->in;
  for (int i = t->first_child[rank]; i + 1 < t->first_child[rank + 1]; i++) {
    int channel = send_up(w, t->children[i]);
    int block = copse_msccl_block(w->p, rank, -1, t->children[i], channel);
    ref = add(w, block, COPSE_MSCCL_RRC, *src, acc, &ref, 1);
    *src = acc;
  }
  return ref;
}

static int fused_up(const struct walk *w, int rank) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  int n = copse_tree_children(t, rank), parent = t->parent[rank], block = -1;
  struct copse_msccl_place src, acc = {0};
  if (n == 0) {
    int channel = channel_for(w, rank, parent, -1);
    send(w, rank, parent, channel, w->in, COPSE_MSCCL_NO_REF);
    return channel;
  }
  int last = t->children[t->first_child[rank + 1] - 1];
  if (n > 1) acc = copse_msccl_scratch(w->p, rank, w->run->count);
  struct copse_msccl_ref before = fold_all_but_last(w, rank, acc, &src);
  int from = send_up(w, last), channel = channel_for(w, rank, parent, from);
  if (channel == from) block = copse_msccl_block_of_both(w->p, rank, parent, last, from);
  if (block >= 0) {
    add(w, block, COPSE_MSCCL_RRS, src, src, &before, 1);
    return channel;
  }
  if (n == 1) acc = copse_msccl_scratch(w->p, rank, w->run->count);
  block = copse_msccl_block(w->p, rank, -1, last, from);
  send(w, rank, parent, channel, acc, add(w, block, COPSE_MSCCL_RRC, src, acc, &before, 1));
  return channel;
}

/* All that makes `rank` send its sum to its parent, and on which channel; the parent's receive is
 * the caller's. */
static int send_up(const struct walk *w, int rank) {
  if (w->p->status != COPSE_OK) return -1;
  return w->style.fused ? fused_up(w, rank) : plain_up(w, rank);
}

/* The root's part of a fused reduction: every child's sum is added into the output. */
static struct copse_msccl_ref fused_root(const struct walk *w, int root) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  struct copse_msccl_place src;
  int last = t->children[t->first_child[root + 1] - 1];
  struct copse_msccl_ref before = fold_all_but_last(w, root, w->out, &src);
  int block = copse_msccl_block(w->p, root, -1, last, send_up(w, last));
  return add(w, block, COPSE_MSCCL_RRC, src, w->out, &before, 1);
}

/* The whole reduction; returns when the root's output has the sum. */
static struct copse_msccl_ref reduce(const struct walk *w) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  int root = w->run->unit->root, n = copse_tree_children(t, root), first = t->first_child[root];
  struct copse_msccl_ref done = COPSE_MSCCL_NO_REF;
  if (n > 0 && w->style.fused) return fused_root(w, root);
  collect(w, root, 0);
  int block = n > 0 ? w->refs[first + n - 1].block : copse_msccl_block(w->p, root, -1, -1, 0);
  if (!w->style.skip_copy) done = add(w, block, COPSE_MSCCL_CPY, w->in, w->out, NULL, 0);
  if (n == 0) return done;
  return add_up(w, block, w->out, w->parts + first, w->refs + first, n);
}

/* ---- broadcast ------------------------------------------------------------------------ */

static void pass_down(const struct walk *w, int rank, int first, struct copse_msccl_ref have);

/*
 * `rank` takes the run from its parent and passes it on: to its first child in the same step
 * where the styles and the connections allow.
 */
static void take_down(const struct walk *w, int rank, int parent, int channel) {
  const struct copse_unit_tree *t = w->run->unit->broadcast;
  int first = t->first_child[rank], next = -1, block = -1;
  struct copse_msccl_ref ref;
  if (w->p->status != COPSE_OK) return;
  if (w->style.fused && first < t->first_child[rank + 1]) {
    next = channel_for(w, rank, t->children[first], channel);
    if (next == channel)
      block = copse_msccl_block_of_both(w->p, rank, t->children[first], parent, channel);
  }
  if (block >= 0)
    ref = add(w, block, COPSE_MSCCL_RCS, w->out, w->out, NULL, 0);
  else
    ref = receive(w, rank, parent, channel, w->out);
  if (next >= 0) {
    if (block < 0) send(w, rank, t->children[first], next, w->out, ref);
    take_down(w, t->children[first], rank, next);
    first++;
  }
  pass_down(w, rank, first, ref);
}

/* To the children from index `first` on, once `have` is done. */
static void pass_down(const struct walk *w, int rank, int first, struct copse_msccl_ref have) {
  const struct copse_unit_tree *t = w->run->unit->broadcast;
  for (int i = first; i < t->first_child[rank + 1]; i++) {
    int channel = channel_for(w, rank, t->children[i], -1);
    send(w, rank, t->children[i], channel, w->out, have);
    take_down(w, t->children[i], rank, channel);
  }
}

/* ---- trees ------------------------------------------------------------------------------ */

/* Both phases get channels of their own, where there are two: a block that did both would wait
 * for its own part of the result before it takes the next. */
static void choose_channels(const struct walk *w, int channels, bool broadcast) {
  bool both = w->run->unit->reduce && w->run->unit->broadcast && channels > 1;
  w->p->first_channel = both && broadcast ? channels / 2 : 0;
  w->p->end_channel = both && !broadcast ? channels / 2 : channels;
}

/* An allgather's own block into the output; refs[rank * n + i] is for its i-th stretch. */
static void copy_own(const struct walk *w, int stretches, struct copse_msccl_ref *refs) {
  for (int r = 0; r < w->p->n_ranks && !w->style.skip_copy; r++) {
    int block = copse_msccl_block(w->p, r, -1, -1, 0);
    for (int i = 0; i < stretches; i++) {
      int at = i * COPSE_MSCCL_MAX_COUNT, left = w->cut->block - at;
      struct copse_msccl_step copy = {
          .op = COPSE_MSCCL_CPY,
          .src = {'i', at},
          .dst = {'o', r * w->cut->block + at},
          .count = left < COPSE_MSCCL_MAX_COUNT ? left : COPSE_MSCCL_MAX_COUNT};
      refs[r * stretches + i] = copse_msccl_add(w->p, block, &copy, NULL, 0);
    }
  }
}

static void emit_trees(struct walk *w) {
  const struct copse_whole_chunks *cut = w->cut;
  struct copse_msccl_program *p = w->p;
  int stretches = (cut->block - 1) / COPSE_MSCCL_MAX_COUNT + 1, channels = p->end_channel;
  size_t n = (size_t)p->n_ranks, n_own = n * (size_t)stretches;
  struct copse_arena scratch = {0};
  struct copse_msccl_ref *own;
  copse_status status;
  COPSE_TRY(copse_arena_array(&scratch, n_own, sizeof *own, &own, p->err));
  COPSE_TRY(copse_arena_array(&scratch, n, sizeof *w->parts, &w->parts, p->err));
  COPSE_TRY(copse_arena_array(&scratch, n, sizeof *w->refs, &w->refs, p->err));
  for (size_t i = 0; i < n_own; i++) own[i] = COPSE_MSCCL_NO_REF;
  if (cut->schedule->collective == COPSE_ALLGATHER) copy_own(w, stretches, own);
  for (size_t i = 0; i < cut->n_runs && p->status == COPSE_OK; i++) {
    const struct copse_chunk_run *run = w->run = &cut->runs[i];
    int whole = run->block * cut->block + run->offset, root = run->unit->root;
    bool scatters = cut->schedule->collective == COPSE_REDUCE_SCATTER;
    struct copse_msccl_ref have = own[root * stretches + run->offset / COPSE_MSCCL_MAX_COUNT];
    w->in = (struct copse_msccl_place){'i', whole};
    w->out = (struct copse_msccl_place){'o', scatters ? run->offset : whole};
    choose_channels(w, channels, false);
    if (run->unit->reduce) have = reduce(w);
    choose_channels(w, channels, true);
    if (run->unit->broadcast) pass_down(w, root, run->unit->broadcast->first_child[root], have);
  }
out:
  if (p->status == COPSE_OK) p->status = status;
  copse_arena_free(&scratch);
}

/* ---- chains: from the sender's input over scratch to the output -------------------------- */

/* The place of the run at the chain's stop `i`. */
static struct copse_msccl_place place(const struct walk *w, int i) {
  const struct copse_chain *c = w->run->chain;
  int first = c->ranks[0], last = c->ranks[c->n - 1], block = w->cut->block;
  if (i == c->n - 1) return (struct copse_msccl_place){'o', first * block + w->run->offset};
  if (i == 0) return (struct copse_msccl_place){'i', last * block + w->run->offset};
  return copse_msccl_scratch(w->p, c->ranks[i], w->run->count);
}

/* The chain's stop i takes the run and, if one block can, sends it on in the same step: *sent. */
static struct copse_msccl_ref take(const struct walk *w, int i, struct copse_msccl_place at,
                                   int channel, int next, bool *sent) {
  const struct copse_chain *c = w->run->chain;
  int rank = c->ranks[i], from = c->ranks[i - 1], block = -1;
  if (w->style.fused && i + 1 < c->n && next == channel)
    block = copse_msccl_block_of_both(w->p, rank, c->ranks[i + 1], from, channel);
  *sent = block >= 0;
  if (*sent) return add(w, block, COPSE_MSCCL_RCS, at, at, NULL, 0);
  return receive(w, rank, from, channel, at);
}

static void emit_chain(const struct walk *w) {
  const struct copse_chain *c = w->run->chain;
  struct copse_msccl_place at = place(w, 0);
  struct copse_msccl_ref have = COPSE_MSCCL_NO_REF;
  int channel = -1;
  if (c->n == 1) {
    struct copse_msccl_place own = {'i', at.offset};
    int block = copse_msccl_block(w->p, c->ranks[0], -1, -1, 0);
    add(w, block, COPSE_MSCCL_CPY, own, at, NULL, 0);
    return;
  }
  for (int i = 0; i < c->n && w->p->status == COPSE_OK; i++) {
    bool sent = false, last = i + 1 == c->n;
    int next = last ? -1 : channel_for(w, c->ranks[i], c->ranks[i + 1], channel);
    if (i > 0) {
      at = place(w, i);
      have = take(w, i, at, channel, next, &sent);
    }
    if (!last && !sent) send(w, c->ranks[i], c->ranks[i + 1], next, at, have);
    channel = next;
  }
}

void copse_msccl_emit(const struct copse_whole_chunks *cut, struct copse_msccl_style style,
                      struct copse_msccl_program *p) {
  struct walk w = {.cut = cut, .style = style, .p = p};
  if (cut->schedule->collective != COPSE_ALLTOALL) {
    emit_trees(&w);
    return;
  }
  for (size_t i = 0; i < cut->n_runs && p->status == COPSE_OK; i++) {
    w.run = &cut->runs[i];
    emit_chain(&w);
  }
}
