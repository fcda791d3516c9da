/*
 * An MSCCL program while it grows: thread blocks, channels and steps, and trees, stages and paths
 * as such steps, in one global order. program.h says why no program made so can deadlock.
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
#include "codegen/msccl/program.h"

#include <limits.h>

#include "base/memory.h"

#define NO_REF ((struct copse_msccl_ref){-1, -1})

copse_status copse_msccl_program_start(struct copse_msccl_program *p, int n_ranks, int max_blocks,
                                       struct copse_err *err) {
  size_t n = (size_t)n_ranks;
  *p = (struct copse_msccl_program){
      .n_ranks = n_ranks, .kind = 1, .max_blocks = max_blocks, .err = err};
  COPSE_DO(COPSE_ARRAY(&p->arena, n, p->ranks, err));
  return COPSE_ARRAY(&p->arena, n * n * COPSE_MSCCL_MAX_CHANNELS, p->load, err);
}

/* Ends at a limit of the executors: what is added after it is lost. */
static void end_at(struct copse_msccl_program *p, const char *what, int rank, int limit) {
  if (p->status != COPSE_OK) return;
  p->misfit = (struct copse_msccl_misfit){.what = what, .rank = rank, .limit = limit};
  p->status = COPSE_UNSUPPORTED;
}

/* ---- channels ------------------------------------------------------------------------- */

static int *load_of(struct copse_msccl_program *p, int src, int dst, int channel) {
  size_t pair = (size_t)src * (size_t)p->n_ranks + (size_t)dst;
  return &p->load[pair * COPSE_MSCCL_MAX_CHANNELS + (size_t)channel];
}

/* Counts blocks of the rank that send (or receive) on the channel. */
static int connections(const struct copse_msccl_program *p, int rank, int channel, bool send) {
  return p->ranks[rank].connections[send][channel];
}

static bool has_room(struct copse_msccl_program *p, int src, int dst, int channel) {
  return *load_of(p, src, dst, channel) > 0 ||
         (connections(p, src, channel, true) < COPSE_MSCCL_MAX_CONNECTIONS &&
          connections(p, dst, channel, false) < COPSE_MSCCL_MAX_CONNECTIONS);
}

/* ---- blocks --------------------------------------------------------------------------- */

/* Gives a block a peer to send to, or to receive from. */
static void give_peer(struct copse_msccl_program *p, int block, int peer, bool send) {
  struct copse_msccl_block *b = &p->blocks[block];
  if (peer < 0) return;
  *(send ? &b->send : &b->recv) = peer;
  p->ranks[b->rank].connections[send][b->channel]++;
}

static int add_block(struct copse_msccl_program *p, int rank, int send, int recv, int channel) {
  struct rank_blocks *r = &p->ranks[rank];
  if (r->n >= p->max_blocks) end_at(p, "thread blocks", rank, p->max_blocks);
  COPSE_KEEP(p, COPSE_GROW_IN(&p->arena, p->blocks, p->capacity, (size_t)p->n_blocks + 1, p->err));
  COPSE_KEEP(p, COPSE_GROW_IN(&p->arena, r->ids, r->capacity, (size_t)r->n + 1, p->err));
  if (p->status != COPSE_OK) return -1;
  p->blocks[p->n_blocks] = (struct copse_msccl_block){
      .rank = rank, .send = -1, .recv = -1, .channel = channel, .id = r->n};
  r->ids[r->n++] = p->n_blocks;
  give_peer(p, p->n_blocks, send, true);
  give_peer(p, p->n_blocks, recv, false);
  return p->n_blocks++;
}

/* Returns the rank's block whose send (or receive) peer on the channel is `peer`, or -1. */
static int owner(const struct copse_msccl_program *p, int rank, int peer, int channel, bool send) {
  const struct rank_blocks *r = &p->ranks[rank];
  for (int i = 0; i < r->n; i++) {
    const struct copse_msccl_block *b = &p->blocks[r->ids[i]];
    if (b->channel == channel && (send ? b->send : b->recv) == peer) return r->ids[i];
  }
  return -1;
}

/* ---- the channel of a transfer --------------------------------------------------------- */

/* Returns what a connection would cost: the blocks that it adds, then how full the channel is at
 * both. */
static int price(const struct copse_msccl_program *p, int src, int dst, int channel) {
  if (p->sharing < COPSE_MSCCL_SHARE_BLOCKS) return 0;
  int blocks = (owner(p, src, -1, channel, true) < 0) + (owner(p, dst, -1, channel, false) < 0);
  return (blocks * 2 * COPSE_MSCCL_MAX_CONNECTIONS) + connections(p, src, channel, true) +
         connections(p, dst, channel, false);
}

/* Returns the channel for `count` more chunks from src to dst: the least loaded, of those in no
 * use by the pair the one that costs least, then `wish` (-1: none), else the first. Channels whose
 * blocks are all taken are passed over, and unused ones when the pair has its share; -1, a
 * failure, if none is left. */
static int least_loaded(struct copse_msccl_program *p, int src, int dst, int wish, int count) {
  int best = -1, least = INT_MAX, lowest = 0, used = 0;
  if (p->status != COPSE_OK) return -1;
  int share = p->shares[p->kind][(size_t)src * (size_t)p->n_ranks + (size_t)dst];
  for (int c = p->first_channel; c < p->end_channel; c++) used += *load_of(p, src, dst, c) > 0;
  for (int c = p->first_channel; c < p->end_channel; c++) {
    int load = *load_of(p, src, dst, c);
    if (load > least || (load == 0 && (used >= share || !has_room(p, src, dst, c)))) continue;
    int cost = load > 0 ? 0 : price(p, src, dst, c);
    if (load == least && (cost > lowest || (cost == lowest && c != wish))) continue;
    best = c;
    least = load;
    lowest = cost;
  }
  if (best >= 0)
    *load_of(p, src, dst, best) += count;
  else
    end_at(p, "connections in one channel", src, COPSE_MSCCL_MAX_CONNECTIONS);
  return best;
}

/* ---- a rank's block --------------------------------------------------------------------- */

/* Returns the rank's block without peers; it names channel 0, as it must name one. */
static int local_block(struct copse_msccl_program *p, int rank) {
  const struct rank_blocks *r = &p->ranks[rank];
  for (int i = 0; i < r->n; i++) {
    const struct copse_msccl_block *b = &p->blocks[r->ids[i]];
    if (b->send < 0 && b->recv < 0) return r->ids[i];
  }
  return add_block(p, rank, -1, -1, 0);
}

/* Returns the block of a rank that sends to `send` or receives from `recv` (-1: neither wanted);
 * -1 after a failure. */
static int block_for(struct copse_msccl_program *p, int rank, int send, int recv, int channel) {
  bool sends = send >= 0;
  int peer = sends ? send : recv;
  if (p->status != COPSE_OK) return -1;
  if (peer < 0) return local_block(p, rank);
  int block = owner(p, rank, peer, channel, sends);
  if (block < 0 && p->sharing >= COPSE_MSCCL_SHARE_BLOCKS) {
    block = owner(p, rank, -1, channel, sends); /* a block that so far only does the other */
    if (block >= 0) give_peer(p, block, peer, sends);
  }
  return block >= 0 ? block : add_block(p, rank, send, recv, channel);
}

/* Returns the same for a block that must do both; -1 also where the connections have two. */
static int block_of_both(struct copse_msccl_program *p, int rank, int send, int recv, int channel) {
  if (p->status != COPSE_OK) return -1;
  int s = owner(p, rank, send, channel, true), r = owner(p, rank, recv, channel, false);
  if (s < 0 && r < 0) return add_block(p, rank, send, recv, channel);
  if (s == r) return s;
  if (s < 0 && p->blocks[r].send < 0) {
    give_peer(p, r, send, true);
    return r;
  }
  if (r >= 0 || p->blocks[s].recv >= 0) return -1;
  give_peer(p, s, recv, false);
  return s;
}

/* ---- steps ---------------------------------------------------------------------------- */

static void append(struct copse_msccl_program *p, struct copse_msccl_block *b,
                   const struct copse_msccl_step *step) {
  if (b->n_steps >= COPSE_MSCCL_MAX_STEPS)
    end_at(p, "steps in one thread block", b->rank, COPSE_MSCCL_MAX_STEPS);
  COPSE_KEEP(p, COPSE_GROW_IN(&p->arena, b->steps, b->capacity, (size_t)b->n_steps + 1, p->err));
  if (p->status == COPSE_OK) b->steps[b->n_steps++] = *step;
}

/* Whether an earlier step of the block has waited for `ref` or what comes after it. */
static bool waited(const struct copse_msccl_block *b, struct copse_msccl_ref ref) {
  for (int s = 0; s < b->n_steps; s++)
    if (b->steps[s].after.block == ref.block && b->steps[s].after.step >= ref.step) return true;
  return false;
}

/* Publishes a step that none waits for: the executors merge no `re` across it. */
static void publish(struct copse_msccl_program *p, struct copse_msccl_ref ref) {
  if (p->status == COPSE_OK) p->blocks[ref.block].steps[ref.step].awaited = true;
}

/* Adds a step that starts after all of `after` (n_after refs; those of the same block and
 * NO_REF and those waited for before cost nothing, others a nop each but the last).
 * NO_REF after a failure. */
static struct copse_msccl_ref add_step(struct copse_msccl_program *p, int block,
                                       const struct copse_msccl_step *step,
                                       const struct copse_msccl_ref *after, int n_after) {
  struct copse_msccl_step real = *step;
  real.after = NO_REF;
  real.awaited = false;
  for (int i = 0; i < n_after && p->status == COPSE_OK; i++) {
    struct copse_msccl_block *b = &p->blocks[block];
    if (after[i].block < 0 || after[i].block == block || waited(b, after[i])) continue;
    if (real.after.block >= 0)
      append(p, b,
             &(struct copse_msccl_step){
                 .op = COPSE_MSCCL_NOP, .src = {'i', -1}, .dst = {'o', -1}, .after = real.after});
    real.after = after[i];
    publish(p, after[i]);
  }
  if (p->status == COPSE_OK) append(p, &p->blocks[block], &real);
  if (p->status != COPSE_OK) return NO_REF;
  return (struct copse_msccl_ref){block, p->blocks[block].n_steps - 1};
}

/* Takes `count` chunks of scratch of the rank. */
static struct copse_msccl_place scratch(struct copse_msccl_program *p, int rank, int count) {
  int at = p->ranks[rank].scratch;
  /* past the end of what fits: the limits are checked when the program is whole */
  if (at <= COPSE_MSCCL_MAX_CHUNKS) p->ranks[rank].scratch += count;
  return (struct copse_msccl_place){'s', at};
}

copse_status copse_msccl_finish(struct copse_msccl_program *p) {
  int number[COPSE_MSCCL_MAX_CHANNELS] = {0};
  for (int r = 0; r < p->n_ranks && p->status == COPSE_OK; r++)
    if (p->ranks[r].n == 0) local_block(p, r);
  for (int b = 0; b < p->n_blocks; b++) number[p->blocks[b].channel] = 1;
  p->n_channels = 0;
  for (int c = 0; c < COPSE_MSCCL_MAX_CHANNELS; c++)
    if (number[c]) number[c] = p->n_channels++;
  for (int b = 0; b < p->n_blocks; b++) p->blocks[b].channel = number[p->blocks[b].channel];
  return p->status;
}

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
  return add_step(w->p, block, &step, after, n_after);
}

static int channel_for(const struct walk *w, int src, int dst, int wish) {
  return least_loaded(w->p, src, dst, wish, w->run->count);
}

static void send(const struct walk *w, int rank, int peer, int channel,
                 struct copse_msccl_place src, struct copse_msccl_ref after) {
  int block = block_for(w->p, rank, peer, -1, channel);
  add(w, block, COPSE_MSCCL_S, src, src, &after, 1);
}

static struct copse_msccl_ref receive(const struct walk *w, int rank, int peer, int channel,
                                      struct copse_msccl_place dst) {
  int block = block_for(w->p, rank, -1, peer, channel);
  return add(w, block, COPSE_MSCCL_R, dst, dst, NULL, 0);
}

/* ---- reduction ------------------------------------------------------------------------ */

static int send_up(const struct walk *w, int rank);

/* Adds: sum += every part, in groups that run as one operation; a group waits for all of its parts
 * at once. A published step ends a group. Returns the last step. */
static struct copse_msccl_ref add_up(const struct walk *w, int block, struct copse_msccl_place sum,
                                     const struct copse_msccl_place *parts,
                                     const struct copse_msccl_ref *after, int n) {
  struct copse_msccl_ref ref = NO_REF;
  for (int i = 0; i < n; i++) {
    int at = i % COPSE_MSCCL_MAX_FUSED, left = n - i;
    int group = left < COPSE_MSCCL_MAX_FUSED ? left : COPSE_MSCCL_MAX_FUSED;
    ref = add(w, block, COPSE_MSCCL_RE, parts[i], sum, after + i, at == 0 ? group : 0);
    if (at == COPSE_MSCCL_MAX_FUSED - 1) publish(w->p, ref);
  }
  return ref;
}

/* Collects plainly: every child's sum into scratch. Returns the channel of the last, `channel` if
 * none. */
static int collect(const struct walk *w, int rank, int channel) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  for (int i = t->first_child[rank]; i < t->first_child[rank + 1]; i++) {
    channel = send_up(w, t->children[i]);
    w->parts[i] = scratch(w->p, rank, w->run->count);
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
  int block = block_for(w->p, rank, parent, -1, channel);
  if (n > 0) {
    add(w, block, COPSE_MSCCL_RE, w->in, parts[0], refs, 1);
    add_up(w, block, parts[0], parts + 1, refs + 1, n - 1);
  }
  send(w, rank, parent, channel, n > 0 ? parts[0] : w->in, NO_REF);
  return channel;
}

/* Adds the children's sums fused, as they come, into `acc`; all but the last child. *src: where the
 * sum so far is. Returns when. */
static struct copse_msccl_ref fold_all_but_last(const struct walk *w, int rank,
                                                struct copse_msccl_place acc,
                                                struct copse_msccl_place *src) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  struct copse_msccl_ref ref = NO_REF;
  *src = w->in;
  for (int i = t->first_child[rank]; i + 1 < t->first_child[rank + 1]; i++) {
    int channel = send_up(w, t->children[i]);
    int block = block_for(w->p, rank, -1, t->children[i], channel);
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
    send(w, rank, parent, channel, w->in, NO_REF);
    return channel;
  }
  int last = t->children[t->first_child[rank + 1] - 1];
  if (n > 1) acc = scratch(w->p, rank, w->run->count);
  struct copse_msccl_ref before = fold_all_but_last(w, rank, acc, &src);
  int from = send_up(w, last), channel = channel_for(w, rank, parent, from);
  if (channel == from) block = block_of_both(w->p, rank, parent, last, from);
  if (block >= 0) {
    add(w, block, COPSE_MSCCL_RRS, src, src, &before, 1);
    return channel;
  }
  if (n == 1) acc = scratch(w->p, rank, w->run->count);
  block = block_for(w->p, rank, -1, last, from);
  send(w, rank, parent, channel, acc, add(w, block, COPSE_MSCCL_RRC, src, acc, &before, 1));
  return channel;
}

/* Adds all that makes `rank` send its sum to its parent, and returns on which channel; the parent's
 * receive is the caller's. */
static int send_up(const struct walk *w, int rank) {
  if (w->p->status != COPSE_OK) return -1;
  return w->style.fused ? fused_up(w, rank) : plain_up(w, rank);
}

/* Returns the root's part of a fused reduction: every child's sum is added into the output. */
static struct copse_msccl_ref fused_root(const struct walk *w, int root) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  struct copse_msccl_place src;
  int last = t->children[t->first_child[root + 1] - 1];
  struct copse_msccl_ref before = fold_all_but_last(w, root, w->out, &src);
  int block = block_for(w->p, root, -1, last, send_up(w, last));
  return add(w, block, COPSE_MSCCL_RRC, src, w->out, &before, 1);
}

/* Adds the whole reduction; returns when the root's output has the sum. */
static struct copse_msccl_ref reduce(const struct walk *w) {
  const struct copse_unit_tree *t = w->run->unit->reduce;
  int root = w->run->unit->root, n = copse_tree_children(t, root), first = t->first_child[root];
  struct copse_msccl_ref done = NO_REF;
  if (n > 0 && w->style.fused) return fused_root(w, root);
  collect(w, root, 0);
  int block = n > 0 ? w->refs[first + n - 1].block : block_for(w->p, root, -1, -1, 0);
  if (!w->style.skip_copy) done = add(w, block, COPSE_MSCCL_CPY, w->in, w->out, NULL, 0);
  if (n == 0) return done;
  return add_up(w, block, w->out, w->parts + first, w->refs + first, n);
}

/* ---- broadcast ------------------------------------------------------------------------ */

static void pass_down(const struct walk *w, int rank, int first, struct copse_msccl_ref have);

/* Lets `rank` take the run from its parent and pass it on: to its first child in the same step
 * where the styles and the connections allow. */
static void take_down(const struct walk *w, int rank, int parent, int channel) {
  const struct copse_unit_tree *t = w->run->unit->broadcast;
  int first = t->first_child[rank], next = -1, block = -1;
  struct copse_msccl_ref ref;
  if (w->p->status != COPSE_OK) return;
  if (w->style.fused && first < t->first_child[rank + 1]) {
    next = channel_for(w, rank, t->children[first], channel);
    if (next == channel) block = block_of_both(w->p, rank, t->children[first], parent, channel);
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

/* Passes to the children from index `first` on, once `have` is done. */
static void pass_down(const struct walk *w, int rank, int first, struct copse_msccl_ref have) {
  const struct copse_unit_tree *t = w->run->unit->broadcast;
  for (int i = first; i < t->first_child[rank + 1]; i++) {
    int channel = channel_for(w, rank, t->children[i], -1);
    send(w, rank, t->children[i], channel, w->out, have);
    take_down(w, t->children[i], rank, channel);
  }
}

/* ---- stages: sums to the groups' ranks, into scratch, and from there into the output -------- */

/* What came of a root's sum, or a send. */
struct come {
  struct copse_msccl_place at;
  struct copse_msccl_ref ref;
  int rank;
};

struct stage {
  const struct walk *w;
  struct copse_msccl_ref *have; /* [n_ranks] when the output has the sum so far, or when that is
                                   given away; NO_REF: the input has it */
  bool *gave;                   /* [n_ranks] there is no sum */
  struct come *parts;           /* [n_ranks * n_ranks] by rank and root; rank -1: none */
  struct come *sends;           /* of the stage */
  size_t n_sends, capacity;
  struct copse_msccl_place *at; /* [n_ranks] of what a rank adds */
  struct copse_msccl_ref *after;
  size_t after_capacity;
  struct copse_arena arena;
};

static void release_stage(struct stage *s) { copse_arena_free(&s->arena); }

/* Spreads a root's sum, or what came of it to `rank`, to the children in the tree. */
static void spread(struct stage *s, const struct copse_unit_tree *t, int root, int rank,
                   const struct come *from) {
  const struct walk *w = s->w;
  struct copse_msccl_program *p = w->p;
  for (int i = t->first_child[rank]; i < t->first_child[rank + 1]; i++) {
    int child = t->children[i], channel = channel_for(w, rank, child, -1);
    int block = block_for(p, rank, child, -1, channel);
    struct come sent = {.rank = rank, .at = from->at};
    sent.ref = add(w, block, COPSE_MSCCL_S, from->at, from->at, &from->ref, 1);
    COPSE_KEEP(p, COPSE_GROW_IN(&s->arena, s->sends, s->capacity, s->n_sends + 1, p->err));
    if (p->status != COPSE_OK) return;
    s->sends[s->n_sends++] = sent;
    struct come *part = &s->parts[(size_t)child * (size_t)p->n_ranks + (size_t)root];
    *part = (struct come){.at = scratch(p, child, w->run->count), .rank = child};
    part->ref = receive(w, child, rank, channel, part->at);
    spread(s, t, root, child, part);
  }
}

/* Adds: sum += parts, the first after `after`; in groups that run as one operation. */
static struct copse_msccl_ref add_parts(const struct walk *w, int block,
                                        struct copse_msccl_place sum,
                                        const struct copse_msccl_place *parts, int n,
                                        const struct copse_msccl_ref *after, int n_after) {
  struct copse_msccl_ref ref = NO_REF;
  for (int i = 0; i < n; i++) {
    ref = add(w, block, COPSE_MSCCL_RE, parts[i], sum, after, i == 0 ? n_after : 0);
    if (i + 1 == n || i % COPSE_MSCCL_MAX_FUSED == COPSE_MSCCL_MAX_FUSED - 1) publish(w->p, ref);
  }
  return ref;
}

/*
 * Adds a stage: the output gets the sum of what it had, or the input, and what came, by rank: so
 * all of a group add alike. Those of smaller ranks are summed first, in the place of the least.
 * What is overwritten has been sent by then.
 */
static void add_stage(struct stage *s, int rank) {
  const struct walk *w = s->w;
  struct copse_msccl_program *p = w->p;
  const struct come *parts = &s->parts[(size_t)rank * (size_t)p->n_ranks];
  int n = 0, before = 0, n_after = 0, block = -1;
  size_t most = (size_t)p->n_ranks + s->n_sends + 1;
  COPSE_KEEP(p, COPSE_GROW_IN(&s->arena, s->after, s->after_capacity, most, p->err));
  if (p->status != COPSE_OK) return;
  s->after[n_after++] = s->have[rank];
  for (size_t i = 0; i < s->n_sends; i++)
    if (s->sends[i].rank == rank) s->after[n_after++] = s->sends[i].ref;
  for (int root = 0; root < p->n_ranks; root++) {
    if (parts[root].rank < 0) continue;
    before += root < rank;
    s->at[n++] = parts[root].at;
    s->after[n_after++] = parts[root].ref;
    block = parts[root].ref.block;
  }
  if (n == 0 || p->status != COPSE_OK) return;
  if (s->have[rank].block < 0 && !w->style.skip_copy) {
    add(w, block, COPSE_MSCCL_CPY, w->in, w->out, s->after, n_after);
    n_after = 0;
  }
  if (before > 1) {
    add_parts(w, block, s->at[0], s->at + 1, before - 1, s->after, n_after);
    s->at[before - 1] = s->at[0];
    n_after = 0;
  }
  int first = before > 1 ? before - 1 : 0;
  if (s->gave[rank]) { /* nothing to add to */
    s->have[rank] = add(w, block, COPSE_MSCCL_CPY, s->at[first++], w->out, s->after, n_after);
    publish(p, s->have[rank]);
    s->gave[rank] = false;
    n_after = 0;
  }
  if (n > first)
    s->have[rank] = add_parts(w, block, w->out, s->at + first, n - first, s->after, n_after);
}

/* Gathers sums on their way to a root: every rank adds its children's and sends its own on. */
static void gather_sums(struct stage *s, const struct copse_unit_tree *t, int rank) {
  const struct walk *w = s->w;
  struct copse_msccl_program *p = w->p;
  for (int i = t->first_child[rank]; i < t->first_child[rank + 1]; i++) {
    int child = t->children[i], channel = channel_for(w, child, rank, -1);
    gather_sums(s, t, child);
    struct copse_msccl_place from = s->have[child].block >= 0 ? w->out : w->in;
    int block = block_for(p, child, rank, -1, channel);
    s->have[child] = add(w, block, COPSE_MSCCL_S, from, from, &s->have[child], 1);
    s->gave[child] = true;
    struct come *part = &s->parts[(size_t)rank * (size_t)p->n_ranks + (size_t)child];
    *part = (struct come){.at = scratch(p, rank, w->run->count), .rank = rank};
    part->ref = receive(w, rank, child, channel, part->at);
  }
  add_stage(s, rank);
}

static void emit_stages(struct walk *w) {
  COPSE_AT_END(release_stage) struct stage s = {.w = w};
  struct copse_msccl_program *p = w->p;
  const struct copse_unit *unit = w->run->unit;
  size_t n = (size_t)p->n_ranks;
  COPSE_KEEP(p, COPSE_ARRAY(&s.arena, n, s.have, p->err));
  COPSE_KEEP(p, COPSE_ARRAY(&s.arena, n, s.gave, p->err));
  COPSE_KEEP(p, COPSE_ARRAY(&s.arena, n, s.at, p->err));
  COPSE_KEEP(p, COPSE_ARRAY(&s.arena, n * n, s.parts, p->err));
  if (p->status != COPSE_OK) return;
  w->in = (struct copse_msccl_place){'i', w->run->offset};
  w->out = (struct copse_msccl_place){'o', w->run->offset};
  for (size_t r = 0; r < n; r++) s.have[r] = NO_REF;
  for (int stage = 0; stage < unit->n_stages && p->status == COPSE_OK; stage++) {
    const struct copse_unit_tree *const *trees = unit->stages + (size_t)stage * n;
    bool reduces = false; /* then all of the stage's trees do */
    s.n_sends = 0;
    for (size_t i = 0; i < n * n; i++) s.parts[i].rank = -1;
    for (int root = 0; root < p->n_ranks; root++) {
      bool begun = s.have[root].block >= 0;
      const struct come sum = {.at = begun ? w->out : w->in, .ref = s.have[root]};
      reduces = reduces || (trees[root] && trees[root]->reduce);
      if (trees[root] && reduces)
        gather_sums(&s, trees[root], root);
      else if (trees[root])
        spread(&s, trees[root], root, root, &sum);
    }
    for (int rank = 0; rank < p->n_ranks && !reduces; rank++) add_stage(&s, rank);
  }
}

/* ---- trees ------------------------------------------------------------------------------ */

/* Chooses channels: both phases get their own, where there are two: a block that did both would
 * wait for its own part of the result before it takes the next. */
static void choose_channels(const struct walk *w, int channels, bool broadcast) {
  bool sums = w->run->unit->reduce && w->run->unit->broadcast, both = sums && channels > 1;
  w->p->kind = sums && !broadcast ? 0 : 1;
  w->p->first_channel = both && broadcast ? channels / 2 : 0;
  w->p->end_channel = both && !broadcast ? channels / 2 : channels;
}

/* Copies an allgather's own block into the output; refs[rank * n + i] is for its i-th stretch. */
static void copy_own(const struct walk *w, int stretches, struct copse_msccl_ref *refs) {
  for (int r = 0; r < w->p->n_ranks && !w->style.skip_copy; r++) {
    int block = block_for(w->p, r, -1, -1, 0);
    for (int i = 0; i < stretches; i++) {
      int at = i * COPSE_MSCCL_MAX_COUNT, left = w->cut->block - at;
      struct copse_msccl_step copy = {
          .op = COPSE_MSCCL_CPY,
          .src = {'i', at},
          .dst = {'o', r * w->cut->block + at},
          .count = left < COPSE_MSCCL_MAX_COUNT ? left : COPSE_MSCCL_MAX_COUNT};
      refs[r * stretches + i] = add_step(w->p, block, &copy, NULL, 0);
    }
  }
}

static void emit_trees(struct walk *w) {
  const struct copse_whole_chunks *cut = w->cut;
  struct copse_msccl_program *p = w->p;
  int stretches = (cut->block - 1) / COPSE_MSCCL_MAX_COUNT + 1, channels = p->end_channel;
  size_t n = (size_t)p->n_ranks, n_own = n * (size_t)stretches;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_msccl_ref *own;
  COPSE_KEEP(p, COPSE_ARRAY(&scratch, n_own, own, p->err));
  COPSE_KEEP(p, COPSE_ARRAY(&scratch, n, w->parts, p->err));
  COPSE_KEEP(p, COPSE_ARRAY(&scratch, n, w->refs, p->err));
  if (p->status != COPSE_OK) return;
  for (size_t i = 0; i < n_own; i++) own[i] = NO_REF;
  if (cut->schedule->collective == COPSE_ALLGATHER) copy_own(w, stretches, own);
  for (size_t i = 0; i < cut->n_runs && p->status == COPSE_OK; i++) {
    const struct copse_chunk_run *run = w->run = &cut->runs[i];
    int whole = run->unit->block * cut->block + run->offset, root = run->unit->root;
    bool scatters = cut->schedule->collective == COPSE_REDUCE_SCATTER;
    struct copse_msccl_ref have = own[root * stretches + run->offset / COPSE_MSCCL_MAX_COUNT];
    w->in = (struct copse_msccl_place){'i', whole};
    w->out = (struct copse_msccl_place){'o', scatters ? run->offset : whole};
    choose_channels(w, channels, false);
    if (run->unit->n_stages > 0) emit_stages(w);
    if (run->unit->reduce) have = reduce(w);
    choose_channels(w, channels, true);
    if (run->unit->broadcast) pass_down(w, root, run->unit->broadcast->first_child[root], have);
  }
}

/* ---- paths: from the sender's input over scratch to the output --------------------------- */

/* Returns the place of the run at the path's stop `i`. */
static struct copse_msccl_place place(const struct walk *w, int i) {
  const struct copse_unit *u = w->run->unit;
  int first = u->path[0], last = u->path[u->n_path - 1], block = w->cut->block;
  if (i == u->n_path - 1) return (struct copse_msccl_place){'o', first * block + w->run->offset};
  if (i == 0) return (struct copse_msccl_place){'i', last * block + w->run->offset};
  return scratch(w->p, u->path[i], w->run->count);
}

/* Lets the path's stop i take the run and, if one block can, send it on in the same step: *sent. */
static struct copse_msccl_ref take(const struct walk *w, int i, struct copse_msccl_place at,
                                   int channel, int next, bool *sent) {
  const struct copse_unit *u = w->run->unit;
  int rank = u->path[i], from = u->path[i - 1], block = -1;
  if (w->style.fused && i + 1 < u->n_path && next == channel)
    block = block_of_both(w->p, rank, u->path[i + 1], from, channel);
  *sent = block >= 0;
  if (*sent) return add(w, block, COPSE_MSCCL_RCS, at, at, NULL, 0);
  return receive(w, rank, from, channel, at);
}

static void emit_path(const struct walk *w) {
  const int *path = w->run->unit->path, n = w->run->unit->n_path;
  struct copse_msccl_place at = place(w, 0);
  struct copse_msccl_ref have = NO_REF;
  int channel = -1;
  if (n == 1) {
    struct copse_msccl_place own = {'i', at.offset};
    int block = block_for(w->p, path[0], -1, -1, 0);
    add(w, block, COPSE_MSCCL_CPY, own, at, NULL, 0);
    return;
  }
  for (int i = 0; i < n && w->p->status == COPSE_OK; i++) {
    bool sent = false, last = i + 1 == n;
    int next = last ? -1 : channel_for(w, path[i], path[i + 1], channel);
    if (i > 0) {
      at = place(w, i);
      have = take(w, i, at, channel, next, &sent);
    }
    if (!last && !sent) send(w, path[i], path[i + 1], next, at, have);
    channel = next;
  }
}

/* Runs of paths, those straight from rank to rank and ranks' own first: what others pass on has
 * come by the time that blocks wait for it. */
static void emit_paths(struct walk *w) {
  const struct copse_whole_chunks *cut = w->cut;
  int most = 2;
  for (size_t i = 0; i < cut->n_runs; i++)
    if (cut->runs[i].unit->n_path > most) most = cut->runs[i].unit->n_path;
  for (int stops = 2; stops <= most; stops++)
    for (size_t i = 0; i < cut->n_runs && w->p->status == COPSE_OK; i++) {
      int n = cut->runs[i].unit->n_path;
      w->run = &cut->runs[i];
      if (n == stops || (n < 2 && stops == 2)) emit_path(w);
    }
}

void copse_msccl_emit(const struct copse_whole_chunks *cut, struct copse_msccl_style style,
                      struct copse_msccl_program *p) {
  struct walk w = {.cut = cut, .style = style, .p = p};
  if (cut->schedule->collective != COPSE_ALLTOALL) {
    emit_trees(&w);
    return;
  }
  emit_paths(&w);
}
