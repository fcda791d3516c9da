/*
 * Lowering to MSCCL++ (arXiv 2504.09014). Operations are one-sided: a block writes and signals.
 *
 * Order, and why nothing deadlocks. Units are dealt to blocks, the same on every rank, and
 * every block does its parts in one order over all ranks: all reductions, then all broadcasts; in
 * an alltoall all first hops, then all second ones. Two blocks of one number share one channel, and
 * since both ends keep that order, what is signalled first is what is waited for first:
 *
 *   block b of rank 0   | enter | reduce unit 0 | reduce unit 4 | broadcast 0 | broadcast 4 |
 *        channel b <-> b        signals and waits in the same order at both ends
 *   block b of rank 1   | enter | reduce unit 0 | reduce unit 4 | broadcast 0 | broadcast 4 |
 *
 * Blocks start with a handshake of all their peers. Ranks of one host use memory channels. Others
 * use ports, through scratch, since a port reads a buffer from where its allocation starts, and
 * through scratch that only the sender writes, since a port may still read when the launch is over.
 * A schedule whose switch copies and adds (--in-network) has a switch channel of all ranks: once
 * all are there, the root of a run sums the outputs of all in the switch and stores the sum to all
 * (glres). A plan is for one layout, in place naming only the buffer that lies at the same distance
 * on every rank. A block passes on whole chunks; with --pipeline it does each of its parts in a
 * `pipeline`, piece by piece, so that the hops of a tree overlap.
 */
#include "codegen/mscclpp/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/types.h"
#include "codegen/lower/work.h"

/* What the executor takes. */
enum {
  MAX_CHUNKS = 32767,
  MAX_OPS = 64,
  MAX_IDS = 8,      /* channels of an op, remote places of an op */
  MAX_SOURCES = 10, /* of an op */
  MAX_LISTED = 16   /* of a block: channels of a type, remote buffers of a type */
};

/* Channels to ranks of the same host, and to others. */
enum { NEAR, FAR, N_TYPES };
static const char *const channel_types[] = {"memory", "port"};

/* Chunks of a rank's memory: 'i', 'o' or 's'. */
struct place {
  int rank;
  char buffer;
  int index;
};

struct block {
  struct job *job;
  int rank;
  struct peers {
    int *ranks; /* [n] one channel each */
    int n;
    size_t capacity;
  } peers[N_TYPES];
  struct remote { /* a peer's buffer that the block addresses */
    int peer;
    char buffer;
  } * remotes;
  int n_remotes;
  size_t remotes_capacity;
  struct copse_text ops;
  int n_ops;
  bool met;        /* the last op was a nop: all threads have met since any data op */
  bool listed;     /* the list at hand, of the block or of a pipeline, has an op */
  int loop_chunks; /* of a pipeline that starts with the next op, 0: none does */
  bool in_loop;
};

struct job {
  const struct copse_schedule *schedule;
  struct copse_mscclpp_options options;
  struct copse_whole_chunks cut;
  int *host; /* [n_ranks] */
  int n_hosts;
  bool multicast;       /* over a switch channel */
  int n_blocks;         /* of each rank */
  struct block *blocks; /* [n_ranks * n_blocks] */
  int *scratch;         /* [n_ranks] chunks taken */
  int *block;           /* [cut.n_runs] */
  int **slot; /* [cut.n_runs][n_ranks] reduce: chunk of scratch for what the rank sends up */
  struct place *places; /* [max(n_ranks, n_runs) + 1] for one operation at a time */
  struct copse_arena arena;
  copse_status status; /* of the first failure of a block; what is added after it is lost */
  struct copse_err *err;
};

static struct block *block_of(const struct job *j, int rank, int block) {
  return &j->blocks[rank * j->n_blocks + block];
}

static int type_of(const struct block *b, int peer) {
  return b->job->host[b->rank] == b->job->host[peer] ? NEAR : FAR;
}

static struct place take_scratch(struct job *j, int rank, int count) {
  struct place at = {rank, 's', j->scratch[rank]};
  j->scratch[rank] += count;
  return at;
}

/* ---- channels and remote buffers ------------------------------------------------------- */

/* Returns the number of the peer's channel among the block's of its type; their number if it has
 * none. */
static int channel_id(const struct block *b, int peer) {
  const struct peers *peers = &b->peers[type_of(b, peer)];
  int id = 0;
  while (id < peers->n && peers->ranks[id] != peer) id++;
  return id;
}

static void add_peer(struct block *b, int peer) {
  struct peers *peers = &b->peers[type_of(b, peer)];
  if (channel_id(b, peer) < peers->n) return;
  struct job *j = b->job;
  COPSE_KEEP(j,
             COPSE_GROW_IN(&j->arena, peers->ranks, peers->capacity, (size_t)peers->n + 1, j->err));
  if (j->status == COPSE_OK) peers->ranks[peers->n++] = peer;
}

/* Gives ranks x and y a channel in their blocks of that number. */
static void link_ranks(struct job *j, int block, int x, int y) {
  add_peer(block_of(j, x, block), y);
  add_peer(block_of(j, y, block), x);
}

/* Returns the number of a peer's buffer among the block's of its channel's type. */
static int remote_id(struct block *b, struct place at) {
  int id = 0;
  for (int i = 0; i < b->n_remotes; i++) {
    if (b->remotes[i].peer == at.rank && b->remotes[i].buffer == at.buffer) return id;
    id += type_of(b, b->remotes[i].peer) == type_of(b, at.rank);
  }
  struct job *j = b->job;
  size_t need = (size_t)b->n_remotes + 1;
  COPSE_KEEP(j, COPSE_GROW_IN(&j->arena, b->remotes, b->remotes_capacity, need, j->err));
  if (j->status == COPSE_OK) b->remotes[b->n_remotes++] = (struct remote){at.rank, at.buffer};
  return id;
}

/* ---- operations of a block ------------------------------------------------------------- */

/* Starts an op, and with the first op its pipeline, which must not be empty. */
static struct copse_text *start_op(struct block *b, const char *name) {
  if (b->loop_chunks > 0) {
    copse_text_add(&b->ops,
                   "%s\n        {\"name\": \"pipeline\", \"iter_context\": {\"unit_size\": %" PRId64
                   ", \"num_chunks\": %d}, \"ops\": [",
                   b->listed ? "," : "", b->job->options.pipeline_bytes, b->loop_chunks);
    b->n_ops++;
    b->loop_chunks = 0;
    b->listed = false;
    b->in_loop = true;
  }
  copse_text_add(&b->ops, "%s\n        {\"name\": \"%s\"", b->listed ? "," : "", name);
  b->n_ops++;
  b->listed = true;
  b->met = false;
  return &b->ops;
}

/* Starts a run: what is added for `count` chunks until its end runs once for every piece, if
 * any. */
static void start_run(struct block *b, int count) {
  if (b->job->options.pipeline_bytes > 0) b->loop_chunks = count;
}

static void end_run(struct block *b) {
  if (b->in_loop) copse_text_add(&b->ops, "]}");
  if (b->in_loop) b->listed = true;
  b->in_loop = false;
  b->loop_chunks = 0;
}

/* Adds a nop, where none is yet. */
static void meet(struct block *b) {
  if (b->met || b->n_ops == 0) return;
  copse_text_add(start_op(b, "nop"), "}");
  b->met = true;
}

static void add_ids(const struct block *b, const int *peers, int n, struct copse_text *text) {
  copse_text_add(text, ", \"channel_ids\": [");
  for (int i = 0; i < n; i++)
    copse_text_add(text, "%s%d", i > 0 ? ", " : "", channel_id(b, peers[i]));
  copse_text_add(text, "]");
}

/* Adds signal, wait, rlxsignal or rlxwait with peers, by the type of their channels. */
static void sync_with(struct block *b, const char *name, const int *peers, int n_peers) {
  for (int type = 0; type < N_TYPES; type++) {
    int some[MAX_IDS], n = 0;
    for (int i = 0; i < n_peers; i++) {
      if (type_of(b, peers[i]) == type) some[n++] = peers[i];
      if (n == 0 || (n < MAX_IDS && i + 1 < n_peers)) continue;
      struct copse_text *text = start_op(b, name);
      copse_text_add(text, ", \"channel_type\": \"%s\"", channel_types[type]);
      add_ids(b, some, n, text);
      copse_text_add(text, "}");
      n = 0;
    }
  }
}

static void add_places(struct block *b, const char *key, const struct place *at, int n, int count) {
  copse_text_add(&b->ops, ", \"%s\": [", key);
  for (int i = 0; i < n; i++) {
    copse_text_add(&b->ops, "%s{", i > 0 ? ", " : "");
    if (at[i].rank == b->rank)
      copse_text_add(&b->ops, "\"type\": \"%c\"", at[i].buffer);
    else
      copse_text_add(&b->ops, "\"buffer_id\": %d", remote_id(b, at[i]));
    copse_text_add(&b->ops, ", \"index\": %d, \"size\": %d}", at[i].index, count);
  }
  copse_text_add(&b->ops, "]");
}

/* Adds copy, put, pws or re of `count` chunks; destinations at peers are of one type. */
static void add_data(struct block *b, const char *name, const struct place *src, int n_src,
                     const struct place *dst, int n_dst, int count) {
  struct copse_text *text = start_op(b, name);
  int peers[MAX_IDS], n = 0;
  for (int i = 0; i < n_dst; i++)
    if (dst[i].rank != b->rank) peers[n++] = dst[i].rank;
  int type = n > 0 ? type_of(b, peers[0]) : NEAR;
  if (n > 0) copse_text_add(text, ", \"channel_type\": \"%s\"", channel_types[type]);
  if (type == FAR) add_ids(b, peers, n, text);
  if (name[0] == 'r') copse_text_add(text, ", \"reduce_op\": \"sum\"");
  add_places(b, "src_buff", src, n_src, count);
  add_places(b, "dst_buff", dst, n_dst, count);
  copse_text_add(text, "}");
}

/* ---- places ---------------------------------------------------------------------------- */

/* Returns the input. In place a plan names one buffer only, the one at the same distance on every
 * rank. */
static struct place input(const struct job *j, const struct copse_chunk_run *s, int rank) {
  int whole = s->unit->block * j->cut.block + s->offset;
  bool gathers = j->schedule->collective == COPSE_ALLGATHER;
  if (j->schedule->collective == COPSE_REDUCE_SCATTER || (!gathers && j->options.out_of_place))
    return (struct place){rank, 'i', whole};
  if (gathers && j->options.out_of_place) return (struct place){rank, 'i', s->offset};
  return (struct place){rank, 'o', whole};
}

static struct place output(const struct job *j, const struct copse_chunk_run *s, int rank) {
  int whole = s->unit->block * j->cut.block + s->offset;
  if (j->schedule->collective != COPSE_REDUCE_SCATTER) return (struct place){rank, 'o', whole};
  if (j->options.out_of_place) return (struct place){rank, 'o', s->offset};
  return (struct place){rank, 'i', whole};
}

/* ---- moving data ----------------------------------------------------------------------- */

/* Makes a copy in scratch for a port to read. Ports read buffers from where their allocation
 * starts, so these won't do; and they may still read when the rank has left. Only its own block
 * writes to this place, in the next launch after the receiver has entered, and so not too early. */
static void stage(struct block *b, struct place *at, int count) {
  struct place staged = take_scratch(b->job, b->rank, count);
  add_data(b, "copy", at, 1, &staged, 1, count);
  meet(b);
  *at = staged;
}

/* Puts one place of a rank to places at peers, with the signals that say that the data are there.
 * Data that go through ports are copied to scratch first (stage). */
static void put(struct block *b, struct place src, const struct place *dst, int n_dst, int count) {
  struct place from[MAX_IDS], to[MAX_IDS], staged = src;
  int peers[MAX_IDS], n;
  for (int type = 0; type < N_TYPES; type++) {
    bool far = type == FAR;
    n = 0;
    for (int i = 0; i < n_dst; i++) {
      if (type_of(b, dst[i].rank) == type) {
        if (far && staged.buffer != 's') stage(b, &staged, count);
        peers[n] = dst[i].rank;
        from[n] = far ? staged : src;
        to[n++] = dst[i];
      }
      if (n == 0 || (n < MAX_IDS && i + 1 < n_dst)) continue;
      add_data(b, far ? "pws" : "put", from, n, to, n, count);
      if (!far) {
        meet(b);
        sync_with(b, "signal", peers, n);
      }
      n = 0;
    }
  }
}

static void wait_for(struct block *b, const int *peers, int n) {
  if (n == 0) return;
  sync_with(b, "wait", peers, n);
  meet(b);
}

/* Sums `n` places of the rank's own into dst, as many at a time as an op takes. */
static void sum(struct block *b, struct place *src, int n, struct place dst, int count) {
  for (int done = 0; done < n;) {
    int first = done > 0 ? done - 1 : 0, left = n - first;
    int take = left < MAX_SOURCES ? left : MAX_SOURCES;
    if (done > 0) {
      src[first] = dst; /* the sum so far */
      meet(b);
    }
    add_data(b, "re", src + first, take, &dst, 1, count);
    done = first + take;
  }
  meet(b);
}

/* ---- trees ----------------------------------------------------------------------------- */

/* Adds a rank's part of a reduction: its children's sums and its own, up or, at the root, out. */
static void reduce_at(struct block *b, size_t i) {
  struct job *j = b->job;
  int rank = b->rank;
  const struct copse_chunk_run *s = &j->cut.runs[i];
  const struct copse_unit_tree *t = s->unit->reduce;
  const int *children = t->children + t->first_child[rank];
  int n = copse_tree_children(t, rank), parent = t->parent[rank];
  struct place acc = output(j, s, rank), *src = j->places;
  src[0] = input(j, s, rank);
  for (int c = 0; c < n; c++) src[c + 1] = (struct place){rank, 's', j->slot[i][children[c]]};
  wait_for(b, children, n);
  if (parent >= 0 && n == 0) acc = src[0];
  if (parent >= 0 && n > 0) /* a child's next sum must not overtake a port that reads this one */
    acc = type_of(b, parent) == NEAR ? src[1] : take_scratch(j, rank, s->count);
  if (n > 0) sum(b, src, n + 1, acc, s->count);
  if (n == 0 && parent < 0 && j->options.out_of_place)
    add_data(b, "copy", src, 1, &acc, 1, s->count);
  if (parent < 0) return;
  struct place up = {parent, 's', j->slot[i][rank]};
  put(b, acc, &up, 1, s->count);
}

static void broadcast_at(struct block *b, size_t i) {
  const struct job *j = b->job;
  int rank = b->rank;
  const struct copse_chunk_run *s = &j->cut.runs[i];
  const struct copse_unit_tree *t = s->unit->broadcast;
  int first = t->first_child[rank], n = copse_tree_children(t, rank);
  bool own = t->parent[rank] < 0 && !s->unit->reduce && j->options.out_of_place;
  struct place out = output(j, s, rank), src = own ? input(j, s, rank) : out;
  struct place *dst = j->places;
  for (int c = 0; c < n; c++) dst[c] = output(j, s, t->children[first + c]);
  if (t->parent[rank] >= 0) {
    sync_with(b, "wait", &t->parent[rank], 1);
    if (n > 0) meet(b);
  }
  put(b, src, dst, n, s->count);
  if (own) add_data(b, "copy", &src, 1, &out, 1, s->count);
}

/* Places the slots to which a rank's sum goes at its parent. */
static void place_slots(struct job *j) {
  for (size_t i = 0; i < j->cut.n_runs; i++) {
    const struct copse_unit_tree *t = j->cut.runs[i].unit->reduce;
    for (int r = 0; t && r < j->schedule->n_ranks; r++)
      if (t->parent[r] >= 0)
        j->slot[i][r] = take_scratch(j, t->parent[r], j->cut.runs[i].count).index;
  }
}

static void link_tree(struct job *j, int block, const struct copse_unit_tree *t) {
  for (int r = 0; t && r < j->schedule->n_ranks; r++)
    if (t->parent[r] >= 0) link_ranks(j, block, r, t->parent[r]);
}

static void emit_trees(struct job *j) {
  place_slots(j);
  for (int phase = 0; phase < 2; phase++)
    for (size_t i = 0; i < j->cut.n_runs; i++)
      for (int r = 0; r < j->schedule->n_ranks; r++) {
        struct block *b = block_of(j, r, j->block[i]);
        start_run(b, j->cut.runs[i].count);
        if (phase == 0 && j->cut.runs[i].unit->reduce) reduce_at(b, i);
        if (phase == 1 && j->cut.runs[i].unit->broadcast) broadcast_at(b, i);
        end_run(b);
      }
}

/* ---- paths ----------------------------------------------------------------------------- */

/* Adds the path's stop `hop`: waits for the piece, which is at *at, and passes it on. */
static void path_at(struct block *b, const struct copse_chunk_run *s, int hop, struct place *at) {
  const int *path = s->unit->path, n = s->unit->n_path;
  int last = path[n - 1], block = b->job->cut.block;
  struct place in = {b->rank, 'i', last * block + s->offset};
  struct place out = {last, 'o', path[0] * block + s->offset};
  struct place next = out;
  if (hop > 0) {
    sync_with(b, "wait", &path[hop - 1], 1);
    in = *at;
  }
  if (n == 1) add_data(b, "copy", &in, 1, &out, 1, s->count);
  if (hop == n - 1) return;
  if (hop > 0) meet(b);
  if (hop + 2 < n) next = take_scratch(b->job, path[hop + 1], s->count);
  *at = next;
  if (hop > 0 && type_of(b, next.rank) == FAR) stage(b, &in, s->count);
  put(b, in, &next, 1, s->count);
}

/* Emits first what ranks send themselves, then what they forward at the first stop, and so on. */
static void emit_paths(struct job *j) {
  bool more = true;
  for (int hop = 0; more; hop++) {
    more = false;
    for (size_t i = 0; i < j->cut.n_runs; i++) {
      const struct copse_chunk_run *run = &j->cut.runs[i];
      if (hop >= run->unit->n_path) continue;
      more = true;
      struct block *b = block_of(j, run->unit->path[hop], j->block[i]);
      start_run(b, run->count);
      path_at(b, run, hop, &j->places[i]);
      end_run(b);
    }
  }
}

/* ---- a switch that copies and adds ----------------------------------------------------- */

/* Fills the outputs with what the switch sums, before the handshake. */
static void fill_outputs(struct job *j) {
  for (size_t i = 0; i < j->cut.n_runs && j->options.out_of_place; i++)
    for (int r = 0; r < j->schedule->n_ranks; r++) {
      const struct copse_chunk_run *s = &j->cut.runs[i];
      struct place in = input(j, s, r), out = output(j, s, r);
      add_data(block_of(j, r, j->block[i]), "copy", &in, 1, &out, 1, s->count);
    }
}

static void emit_groups(struct job *j) {
  for (size_t i = 0; i < j->cut.n_runs; i++) {
    const struct copse_chunk_run *s = &j->cut.runs[i];
    struct copse_text *text = start_op(block_of(j, s->unit->root, j->block[i]), "glres");
    copse_text_add(text, ", \"channel_type\": \"switch\", \"reduce_op\": \"sum\"");
    for (int k = 0; k < 2; k++)
      copse_text_add(text, ", \"%s\": [{\"switch_channel_id\": 0, \"index\": %d, \"size\": %d}]",
                     k ? "dst_buff" : "src_buff", output(j, s, 0).index, s->count);
    copse_text_add(text, "}");
  }
}

/* ---- blocks ---------------------------------------------------------------------------- */

static void deal(struct job *j) {
  for (size_t i = 0; i < j->cut.n_runs; i++) {
    const struct copse_unit *u = j->cut.runs[i].unit;
    int turn = u->path ? copse_path_distance(u, j->schedule->n_ranks) : (int)i;
    j->block[i] = turn % j->n_blocks;
    link_tree(j, j->block[i], u->reduce);
    link_tree(j, j->block[i], u->broadcast);
    for (int hop = 0; hop + 1 < u->n_path; hop++)
      link_ranks(j, j->block[i], u->path[hop], u->path[hop + 1]);
  }
}

/* Adds the handshake before anything is written to a peer: it has entered the launch; with `data`
 * what a switch sums, or has stored, is there. */
static void handshake(struct block *b, bool data) {
  const char *const names[] = {data ? "signal" : "rlxsignal", data ? "wait" : "rlxwait"};
  if (data) meet(b);
  for (int i = 0; i < 2; i++)
    for (int type = 0; type < N_TYPES; type++)
      sync_with(b, names[i], b->peers[type].ranks, b->peers[type].n);
  meet(b);
}

/* Why a plan does not fit: what a block needs and may have; NULL if it fits. */
struct misfit {
  const char *what;
  int rank, need, limit;
};

static struct misfit find_misfit(const struct job *j) {
  for (int i = 0; i < j->schedule->n_ranks * j->n_blocks; i++) {
    const struct block *b = &j->blocks[i];
    int n_remotes[N_TYPES] = {0, 0};
    for (int k = 0; k < b->n_remotes; k++) n_remotes[type_of(b, b->remotes[k].peer)]++;
    int channels = b->peers[b->peers[NEAR].n > b->peers[FAR].n ? NEAR : FAR].n;
    int remotes = n_remotes[n_remotes[NEAR] > n_remotes[FAR] ? NEAR : FAR];
    if (b->n_ops > MAX_OPS)
      return (struct misfit){"operations in a block", b->rank, b->n_ops, MAX_OPS};
    if (channels > MAX_LISTED)
      return (struct misfit){"channels in a block", b->rank, channels, MAX_LISTED};
    if (remotes > MAX_LISTED)
      return (struct misfit){"remote buffers in a block", b->rank, remotes, MAX_LISTED};
  }
  return (struct misfit){NULL, 0, 0, 0};
}

static void free_blocks(struct job *j) {
  for (int i = 0; j->blocks && i < j->schedule->n_ranks * j->n_blocks; i++)
    copse_text_free(&j->blocks[i].ops);
  free(j->blocks);
  j->blocks = NULL;
}

/* Makes one attempt, which the job keeps. */
static copse_status attempt(struct job *j, int n_blocks, struct misfit *misfit) {
  size_t n = (size_t)j->schedule->n_ranks;
  free_blocks(j);
  j->n_blocks = n_blocks;
  COPSE_DO(copse_calloc(n * (size_t)n_blocks, sizeof *j->blocks, &j->blocks, j->err));
  COPSE_DO(COPSE_ARRAY(&j->arena, n, j->scratch, j->err));
  for (int i = 0; i < (int)n * n_blocks; i++)
    j->blocks[i] = (struct block){.job = j, .rank = i / n_blocks};
  deal(j);
  if (j->multicast) fill_outputs(j);
  for (int i = 0; i < (int)n * n_blocks; i++) handshake(&j->blocks[i], j->multicast);
  if (j->multicast)
    emit_groups(j);
  else
    (j->schedule->collective == COPSE_ALLTOALL ? emit_paths : emit_trees)(j);
  for (int i = 0; i < (int)n * n_blocks && j->multicast; i++) handshake(&j->blocks[i], true);
  for (int i = 0; i < (int)n * n_blocks; i++)
    COPSE_KEEP(j, copse_text_status(&j->blocks[i].ops, j->err));
  *misfit = find_misfit(j);
  return j->status;
}

static copse_status say_misfit(struct job *j, const struct misfit *m, int tried) {
  int64_t k = j->schedule->k * m->limit / m->need;
  char hint[120] = "only a native plan (--to plan) has no such limit";
  struct misfit other = *m;
  int blocks = tried;
  while (other.what && blocks < (int)j->cut.n_runs && blocks < 1024) {
    blocks = 2 * blocks < 1024 ? 2 * blocks : 1024;
    COPSE_DO(attempt(j, blocks, &other));
  }
  if (!other.what)
    snprintf(hint, sizeof hint, "--workers %d fits", blocks);
  else if (k >= 1 && j->schedule->k > 1)
    snprintf(hint, sizeof hint, "solve again with --k %" PRId64 " or less", k);
  return copse_fail(j->err, COPSE_UNSUPPORTED, "rank %d needs %d %s and may have %d; %s", m->rank,
                    m->need, m->what, m->limit, hint);
}

/* ---- sizes ----------------------------------------------------------------------------- */

static int longest_run(const struct job *j) {
  int most = 1;
  for (size_t i = 0; i < j->cut.n_runs; i++)
    if (j->cut.runs[i].count > most) most = j->cut.runs[i].count;
  return most;
}

/* Bounds the bytes: offsets are 32 bits, of scratch as well. */
static copse_status bound_bytes(struct job *j, struct copse_mscclpp_summary *summary) {
  struct copse_mscclpp_options *o = &j->options;
  int most = j->cut.chunks;
  for (int r = 0; r < j->schedule->n_ranks; r++)
    if (j->scratch[r] > most) most = j->scratch[r];
  int64_t chunk = (((int64_t)1 << 32) - 1) / most / 16 * 16, largest = chunk * j->cut.chunks;
  summary->multiple = (int64_t)16 * j->cut.chunks;
  if (o->pipeline_bytes > 0) { /* at most 65535 rounds of the longest run */
    int64_t rounds = 65535 * o->pipeline_bytes / longest_run(j) / 16 * 16;
    if (rounds * j->cut.chunks < largest) largest = rounds * j->cut.chunks;
  }
  if (o->min_bytes == 0) o->min_bytes = summary->multiple;
  if (o->max_bytes == 0 || o->max_bytes > largest) o->max_bytes = largest;
  if (o->min_bytes > o->max_bytes || o->min_bytes > INT32_MAX)
    return copse_fail(j->err, COPSE_UNSUPPORTED,
                      "the smallest message must be at most %lld bytes for this plan",
                      (long long)(largest < INT32_MAX ? largest : INT32_MAX));
  return COPSE_OK;
}

/* ---- all together ---------------------------------------------------------------------- */

static copse_status check_options(struct job *j) {
  struct copse_mscclpp_options *o = &j->options;
  if (o->max_blocks == 0) o->max_blocks = 32;
  if (o->instances == 0) o->instances = 1;
  if (o->max_blocks < 1 || o->max_blocks > 1024)
    return copse_fail(j->err, COPSE_INVALID, "workers must be from 1 to 1024");
  if (o->instances < 1 || o->instances > 64)
    return copse_fail(j->err, COPSE_INVALID, "instances must be from 1 to 64");
  if (o->chunks < 0 || o->chunks > MAX_CHUNKS || o->ranks_per_host < 0)
    return copse_fail(j->err, COPSE_INVALID, "chunks must be from 1 to %d", MAX_CHUNKS);
  if (o->pipeline_bytes < 0 || o->pipeline_bytes % 16 != 0 || o->pipeline_bytes > INT32_MAX)
    return copse_fail(j->err, COPSE_INVALID, "pieces must be of a multiple of 16 bytes");
  if (o->min_bytes < 0 || o->max_bytes < 0)
    return copse_fail(j->err, COPSE_INVALID, "sizes must not be negative");
  if (j->schedule->collective == COPSE_ALLTOALL) o->out_of_place = true;
  return COPSE_OK;
}

static copse_status cut(struct job *j) {
  int64_t block = j->options.chunks;
  if (copse_schedule_doubles(j->schedule))
    return copse_fail(j->err, COPSE_UNSUPPORTED,
                      "an allreduce in stages is lowered to plans and MSCCL alone: --to plan");
  COPSE_DO(copse_chunks_start(&j->cut, j->schedule, j->options.instances, MAX_CHUNKS, j->err));
  if (block == 0) COPSE_DO(copse_chunks_exact(&j->cut, MAX_CHUNKS, &block, j->err));
  if (block * j->cut.blocks > MAX_CHUNKS)
    return copse_fail(
        j->err, COPSE_UNSUPPORTED,
        "the shares of this schedule are parts of %lld or more of a message, too fine "
        "for chunks of equal size; --chunks 64 rounds them%s",
        (long long)(block * j->cut.blocks),
        j->schedule->k > 1 ? ", or solve again with --k 1" : "");
  COPSE_DO(copse_chunks_cut(&j->cut, (int)block, false, j->err));
  size_t n_runs = j->cut.n_runs, n_ranks = (size_t)j->schedule->n_ranks;
  COPSE_DO(COPSE_ARRAY(&j->arena, n_runs, j->block, j->err));
  COPSE_DO(COPSE_ARRAY(&j->arena, n_runs, j->slot, j->err));
  for (size_t i = 0; i < n_runs; i++)
    if (j->cut.runs[i].unit->reduce) COPSE_DO(COPSE_ARRAY(&j->arena, n_ranks, j->slot[i], j->err));
  return COPSE_ARRAY(&j->arena, (n_runs > n_ranks ? n_runs : n_ranks) + 1, j->places, j->err);
}

/* ---- text ------------------------------------------------------------------------------ */

/* Numbers in groups by type: {"KEY": "memory", "LIST": [0, 1]}, ... */
struct groups {
  struct copse_text *text;
  const char *key, *list;
  int type; /* of the group at hand */
  bool any;
};

static void add_to_group(struct groups *g, int type, int number) {
  if (g->any && g->type == type)
    copse_text_add(g->text, ", %d", number);
  else
    copse_text_add(g->text, "%s{\"%s\": \"%s\", \"%s\": [%d", g->any ? "]}, " : "", g->key,
                   channel_types[type], g->list, number);
  g->type = type;
  g->any = true;
}

static void end_groups(const struct groups *g) { copse_text_add(g->text, g->any ? "]}]" : "]"); }

/* Adds the switch's channel, which comes last: the rank's declaration, or a block's. */
static void add_switch(const struct groups *g, const struct job *j, bool declares) {
  copse_text_add(g->text, "%s{\"channel_type\": \"switch\", ", g->any ? "]}, " : "");
  if (declares)
    copse_text_add(g->text, "\"buffer_type\": \"o\", \"rank_groups\": [{\"size\": %d, \"ranks\": [",
                   j->schedule->n_ranks);
  for (int r = 0; r < j->schedule->n_ranks && declares; r++)
    copse_text_add(g->text, "%s%d", r > 0 ? ", " : "", r);
  copse_text_add(g->text, declares ? "]}]}]" : "\"channel_ids\": [0]}]");
}

/* Writes peers by type, over all blocks: the rank's channels, numbered in this order. */
static void write_channels(const struct job *j, int rank, struct copse_text *text) {
  struct groups groups = {.text = text, .key = "channel_type", .list = "connected_to"};
  copse_text_add(text, "    \"channels\": [");
  for (int type = 0; type < N_TYPES; type++)
    for (int n = 0; n < j->n_blocks; n++) {
      const struct peers *peers = &block_of(j, rank, n)->peers[type];
      for (int i = 0; i < peers->n; i++) add_to_group(&groups, type, peers->ranks[i]);
    }
  if (j->multicast)
    add_switch(&groups, j, true);
  else
    end_groups(&groups);
  copse_text_add(text, ",\n");
}

static void write_remotes(const struct job *j, int rank, struct copse_text *text) {
  bool first = true;
  copse_text_add(text, "    \"remote_buffers\": [");
  for (int n = 0; n < j->n_blocks; n++) {
    const struct block *b = block_of(j, rank, n);
    for (int i = 0; i < b->n_remotes; i++) {
      const struct remote *r = &b->remotes[i];
      copse_text_add(text, "%s{\"rank\": %d, \"type\": \"%c\", \"access_channel_types\": [\"%s\"]}",
                     first ? "" : ", ", r->peer, r->buffer, channel_types[type_of(b, r->peer)]);
      first = false;
    }
  }
  copse_text_add(text, "],\n");
}

/* Writes a block's channels and remote buffers: their numbers among the rank's, of which earlier
 * blocks have `channels` and `remotes`, which grow. */
static void write_lists(const struct block *b, int channels[N_TYPES], int *remotes,
                        struct copse_text *text) {
  struct groups ids = {.text = text, .key = "channel_type", .list = "channel_ids"};
  struct groups refs = {.text = text, .key = "access_channel_type", .list = "remote_buffer_ids"};
  copse_text_add(text, "\"channels\": [");
  for (int type = 0; type < N_TYPES; type++)
    for (int i = 0; i < b->peers[type].n; i++) add_to_group(&ids, type, channels[type]++);
  if (b->job->multicast)
    add_switch(&ids, b->job, false);
  else
    end_groups(&ids);
  copse_text_add(text, ", \"remote_buffer_refs\": [");
  for (int type = 0; type < N_TYPES; type++)
    for (int i = 0; i < b->n_remotes; i++)
      if (type_of(b, b->remotes[i].peer) == type) add_to_group(&refs, type, *remotes + i);
  end_groups(&refs);
  *remotes += b->n_remotes;
}

/* Writes the members "channels", "remote_buffers" and "threadblocks" of a rank. */
static void write_rank(const struct job *j, int rank, struct copse_text *text) {
  int channels[N_TYPES] = {0, 0}, remotes = 0;
  write_channels(j, rank, text);
  write_remotes(j, rank, text);
  copse_text_add(text, "    \"threadblocks\": [");
  for (int n = 0; n < j->n_blocks; n++) {
    const struct block *b = block_of(j, rank, n);
    copse_text_add(text, "%s\n     {\"id\": %d, ", n > 0 ? "," : "", n);
    write_lists(b, channels, &remotes, text);
    copse_text_add(text, ", \"ops\": [");
    if (b->n_ops > 0) copse_text_append(text, b->ops.data, b->ops.size);
    copse_text_add(text, "]}");
  }
  copse_text_add(text, "]");
}

/* Writes the plan. Contexts are kept by name: two different plans must not share one. */
static void write_plan(const struct job *j, struct copse_text *text) {
  const struct copse_schedule *s = j->schedule;
  copse_collective c = s->collective;
  const char *coll = c == COPSE_REDUCE_SCATTER ? "reducescatter" : copse_collective_name(c);
  int in = c == COPSE_ALLGATHER ? j->cut.block : j->cut.chunks;
  int out = c == COPSE_REDUCE_SCATTER ? j->cut.block : j->cut.chunks;
  copse_text_add(text, "{\"name\": \"copse_");
  copse_chunks_add_name(&j->cut, text);
  copse_text_add(text, "_%s_%s_%d_%d_%" PRId64 "_%" PRId64 "\",\n", coll,
                 j->options.out_of_place ? "out" : "in", j->cut.chunks, j->n_blocks,
                 j->options.pipeline_bytes, j->options.max_bytes);
  copse_text_add(text,
                 " \"collective\": \"%s\", \"protocol\": \"Simple\", \"inplace\": %s,\n"
                 " \"reuse_resources\": false, \"num_threads_per_block\": 1024, "
                 "\"use_double_scratch_buffer\": false,\n"
                 " \"buffer_alignment\": 16, \"min_message_size\": %" PRId64
                 ", \"max_message_size\": %" PRId64 ",\n \"gpus\": [",
                 coll, j->options.out_of_place ? "false" : "true", j->options.min_bytes,
                 j->options.max_bytes);
  for (int r = 0; r < s->n_ranks; r++) {
    copse_text_add(text,
                   "%s\n   {\"id\": %d, \"input_chunks\": %d, \"output_chunks\": %d, "
                   "\"scratch_chunks\": %d,\n",
                   r > 0 ? "," : "", r, in, out, j->scratch[r]);
    write_rank(j, r, text);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "\n ]}\n");
}

static copse_status make(struct job *j, struct copse_mscclpp_summary *summary) {
  struct misfit misfit;
  COPSE_DO(check_options(j));
  COPSE_DO(cut(j));
  COPSE_DO(COPSE_ARRAY(&j->arena, (size_t)j->schedule->n_ranks, j->host, j->err));
  j->n_hosts = copse_schedule_hosts(j->schedule, j->options.ranks_per_host, j->host);
  if (j->multicast && (j->n_hosts > 1 || j->options.pipeline_bytes > 0))
    return copse_fail(j->err, COPSE_UNSUPPORTED,
                      "a switch channel is for one host, without --pipeline");
  int n_blocks = j->options.max_blocks;
  int of_use =
      j->schedule->collective == COPSE_ALLTOALL ? j->schedule->n_ranks : (int)j->cut.n_runs;
  if (n_blocks > of_use) n_blocks = of_use;
  COPSE_DO(attempt(j, n_blocks, &misfit));
  if (misfit.what) return say_misfit(j, &misfit, n_blocks);
  COPSE_DO(bound_bytes(j, summary));
  summary->blocks = n_blocks;
  summary->chunks = j->cut.chunks;
  summary->hosts = j->n_hosts;
  for (int r = 0; r < j->schedule->n_ranks; r++)
    if (j->scratch[r] > summary->scratch) summary->scratch = j->scratch[r];
  for (int b = 0; b < j->schedule->n_ranks * n_blocks; b++)
    if (j->blocks[b].n_ops > summary->ops) summary->ops = j->blocks[b].n_ops;
  return COPSE_OK;
}

static void end_job(struct job *j) {
  free_blocks(j);
  copse_chunks_free(&j->cut);
  copse_arena_free(&j->arena);
}

copse_status copse_lower_mscclpp(const struct copse_schedule *schedule,
                                 const struct copse_mscclpp_options *options, char **text,
                                 size_t *size, struct copse_mscclpp_summary *summary,
                                 struct copse_err *err) {
  struct copse_schedule sent = *schedule; /* trees, whatever the switch does with them */
  COPSE_AT_END(end_job) struct job j = {.schedule = &sent, .options = *options, .err = err};
  j.multicast = copse_schedule_is_group(schedule);
  if (j.multicast) sent.n_copying = sent.n_adding = 0;
  COPSE_AT_END(copse_text_free) struct copse_text out = {0};
  *summary = (struct copse_mscclpp_summary){0};
  COPSE_DO(make(&j, summary));
  write_plan(&j, &out);
  return copse_text_take(&out, text, size, err);
}
