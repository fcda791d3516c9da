/*
 * Lowering to MSCCL++. Operations are one-sided: a block writes to a peer and signals.
 *
 * Order, and why nothing deadlocks. Units are dealt to blocks, the same on every rank, and
 * every block does its parts in one order over all ranks: all reductions, then all broadcasts; in
 * an alltoall all first hops, then all second ones. Two blocks of one number share one channel, and
 * since both ends keep that order, what is signalled first is what is waited for first:
 *
 *   block b of rank 0   | greet | reduce unit 0 | reduce unit 4 | broadcast 0 | broadcast 4 |
 *        channel b <-> b        signals and waits in the same order at both ends
 *   block b of rank 1   | greet | reduce unit 0 | reduce unit 4 | broadcast 0 | broadcast 4 |
 *
 * Blocks start with a handshake of all their peers. Ranks of one host use memory channels. Others
 * use ports, through scratch, since a port reads a buffer from where its allocation starts, and
 * through scratch that only the sender writes, since a port may still read when the launch is over.
 * A plan is for one layout, in place naming only the buffer that lies at the same distance on every
 * rank. A block passes on whole chunks; with --pipeline it does each of its parts in a `pipeline`,
 * piece by piece, so that the hops of a tree overlap.
 */
#include "codegen/mscclpp/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "base/memory.h"
#include "codegen/lower/whole_chunks.h"
#include "codegen/mscclpp/plan.h"

enum { MAX_CHUNKS = 32767 };

struct job {
  const struct copse_schedule *schedule;
  struct copse_mscclpp_options options;
  struct copse_whole_chunks cut;
  struct copse_pp_plan p;
  int *host; /* [n_ranks] */
  int n_hosts;
  int *block; /* [cut.n_runs] */
  int **slot; /* [cut.n_runs][n_ranks] reduce: chunk of scratch for what the rank sends up */
  struct copse_pp_place *places; /* [max(n_ranks, n_runs) + 1] for one operation at a time */
  struct copse_arena arena;
  struct copse_err *err;
};

/* ---- places ---------------------------------------------------------------------------- */

/* In place a plan names one buffer only, the one at the same distance on every rank. */
static struct copse_pp_place input(const struct job *j, const struct copse_chunk_run *s, int rank) {
  int whole = s->unit->block * j->cut.block + s->offset;
  bool gathers = j->schedule->collective == COPSE_ALLGATHER;
  if (j->schedule->collective == COPSE_REDUCE_SCATTER || (!gathers && j->options.out_of_place))
    return (struct copse_pp_place){rank, 'i', whole};
  if (gathers && j->options.out_of_place) return (struct copse_pp_place){rank, 'i', s->offset};
  return (struct copse_pp_place){rank, 'o', whole};
}

static struct copse_pp_place output(const struct job *j, const struct copse_chunk_run *s,
                                    int rank) {
  int whole = s->unit->block * j->cut.block + s->offset;
  if (j->schedule->collective != COPSE_REDUCE_SCATTER)
    return (struct copse_pp_place){rank, 'o', whole};
  if (j->options.out_of_place) return (struct copse_pp_place){rank, 'o', s->offset};
  return (struct copse_pp_place){rank, 'i', whole};
}

/* ---- moving data ----------------------------------------------------------------------- */

/*
 * A copy in scratch for a port to read. Ports read buffers from where their allocation starts, so
 * these won't do; and they may still read when the rank has left. Only its own block writes to
 * this place, in the next launch after the receiver's greeting, and so not too early.
 */
static void stage(struct job *j, int rank, int block, struct copse_pp_place *at, int count) {
  struct copse_pp_place staged = copse_pp_scratch(&j->p, rank, count);
  copse_pp_data(&j->p, rank, block, "copy", at, 1, &staged, 1, count);
  copse_pp_meet(&j->p, rank, block);
  *at = staged;
}

/*
 * One place of a rank to the same run at peers, and the signal that it is there. What is in
 * scratch must be fit for ports (stage).
 */
static void put(struct job *j, int rank, int block, struct copse_pp_place src,
                const struct copse_pp_place *dst, int n_dst, int count) {
  struct copse_pp_place from[COPSE_PP_MAX_IDS], to[COPSE_PP_MAX_IDS], staged = src;
  int peers[COPSE_PP_MAX_IDS], n;
  for (int far = 0; far < 2; far++) {
    n = 0;
    for (int i = 0; i < n_dst; i++) {
      if (copse_pp_same_host(&j->p, rank, dst[i].rank) == !far) {
        if (far && staged.buffer != 's') stage(j, rank, block, &staged, count);
        peers[n] = dst[i].rank;
        from[n] = far ? staged : src;
        to[n++] = dst[i];
      }
      if (n == 0 || (n < COPSE_PP_MAX_IDS && i + 1 < n_dst)) continue;
      copse_pp_data(&j->p, rank, block, far ? "pws" : "put", from, n, to, n, count);
      if (!far) {
        copse_pp_meet(&j->p, rank, block);
        copse_pp_sync(&j->p, rank, block, "signal", peers, n);
      }
      n = 0;
    }
  }
}

static void wait_for(struct job *j, int rank, int block, const int *peers, int n) {
  if (n == 0) return;
  copse_pp_sync(&j->p, rank, block, "wait", peers, n);
  copse_pp_meet(&j->p, rank, block);
}

/* dst = the sum of `n` places of the rank's own, as many at a time as an op takes. */
static void sum(struct job *j, int rank, int block, struct copse_pp_place *src, int n,
                struct copse_pp_place dst, int count) {
  for (int done = 0; done < n;) {
    int first = done > 0 ? done - 1 : 0, left = n - first;
    int take = left < COPSE_PP_MAX_SOURCES ? left : COPSE_PP_MAX_SOURCES;
    if (done > 0) {
      src[first] = dst; /* what is summed so far */
      copse_pp_meet(&j->p, rank, block);
    }
    copse_pp_data(&j->p, rank, block, "re", src + first, take, &dst, 1, count);
    done = first + take;
  }
  copse_pp_meet(&j->p, rank, block);
}

/* What a block does with a run, whole or piece by piece; ends with end_run. */
static void start_run(struct job *j, int rank, size_t i) {
  if (j->options.pipeline_bytes > 0)
    copse_pp_loop(&j->p, rank, j->block[i], j->options.pipeline_bytes, j->cut.runs[i].count);
}

static void end_run(struct job *j, int rank, size_t i) {
  copse_pp_end_loop(&j->p, rank, j->block[i]);
}

/* ---- trees ----------------------------------------------------------------------------- */

/* A rank's part of a reduction: its children's sums and its own, up or, at the root, out. */
static void reduce_at(struct job *j, size_t i, int rank) {
  const struct copse_chunk_run *s = &j->cut.runs[i];
  const struct copse_unit_tree *t = s->unit->reduce;
  const int *children = t->children + t->first_child[rank];
  int n = copse_tree_children(t, rank), parent = t->parent[rank], block = j->block[i];
  struct copse_pp_place acc = output(j, s, rank), *src = j->places;
  src[0] = input(j, s, rank);
  for (int c = 0; c < n; c++)
    src[c + 1] = (struct copse_pp_place){rank, 's', j->slot[i][children[c]]};
  wait_for(j, rank, block, children, n);
  if (parent >= 0 && n == 0) acc = src[0];
  if (parent >= 0 && n > 0) /* a child's next sum must not overtake a port that reads this one */
    acc =
        copse_pp_same_host(&j->p, rank, parent) ? src[1] : copse_pp_scratch(&j->p, rank, s->count);
  if (n > 0) sum(j, rank, block, src, n + 1, acc, s->count);
  if (n == 0 && parent < 0 && j->options.out_of_place)
    copse_pp_data(&j->p, rank, block, "copy", src, 1, &acc, 1, s->count);
  if (parent < 0) return;
  struct copse_pp_place up = {parent, 's', j->slot[i][rank]};
  put(j, rank, block, acc, &up, 1, s->count);
}

static void broadcast_at(struct job *j, size_t i, int rank) {
  const struct copse_chunk_run *s = &j->cut.runs[i];
  const struct copse_unit_tree *t = s->unit->broadcast;
  int first = t->first_child[rank], n = copse_tree_children(t, rank), block = j->block[i];
  bool own = t->parent[rank] < 0 && !s->unit->reduce && j->options.out_of_place;
  struct copse_pp_place out = output(j, s, rank), src = own ? input(j, s, rank) : out;
  struct copse_pp_place *dst = j->places;
  for (int c = 0; c < n; c++) dst[c] = output(j, s, t->children[first + c]);
  if (t->parent[rank] >= 0) {
    copse_pp_sync(&j->p, rank, block, "wait", &t->parent[rank], 1);
    if (n > 0) copse_pp_meet(&j->p, rank, block);
  }
  put(j, rank, block, src, dst, n, s->count);
  if (own) copse_pp_data(&j->p, rank, block, "copy", &src, 1, &out, 1, s->count);
}

/* Where a rank's sum goes at its parent. */
static void place_slots(struct job *j) {
  for (size_t i = 0; i < j->cut.n_runs; i++) {
    const struct copse_unit_tree *t = j->cut.runs[i].unit->reduce;
    for (int r = 0; t && r < j->schedule->n_ranks; r++)
      if (t->parent[r] >= 0)
        j->slot[i][r] = copse_pp_scratch(&j->p, t->parent[r], j->cut.runs[i].count).index;
  }
}

static void link_tree(struct job *j, int block, const struct copse_unit_tree *t) {
  for (int r = 0; t && r < j->schedule->n_ranks; r++)
    if (t->parent[r] >= 0) copse_pp_link(&j->p, block, r, t->parent[r]);
}

static void emit_trees(struct job *j) {
  place_slots(j);
  for (int phase = 0; phase < 2; phase++)
    for (size_t i = 0; i < j->cut.n_runs; i++)
      for (int r = 0; r < j->schedule->n_ranks; r++) {
        start_run(j, r, i);
        if (phase == 0 && j->cut.runs[i].unit->reduce) reduce_at(j, i, r);
        if (phase == 1 && j->cut.runs[i].unit->broadcast) broadcast_at(j, i, r);
        end_run(j, r, i);
      }
}

/* ---- paths ----------------------------------------------------------------------------- */

/* The path's stop `hop`: wait for the piece, which is at *at, and pass it on. */
static void path_at(struct job *j, size_t i, int hop, struct copse_pp_place *at) {
  const struct copse_chunk_run *s = &j->cut.runs[i];
  const int *path = s->unit->path, n = s->unit->n_path;
  int rank = path[hop], last = path[n - 1], block = j->block[i];
  struct copse_pp_place in = {rank, 'i', last * j->cut.block + s->offset};
  struct copse_pp_place out = {last, 'o', path[0] * j->cut.block + s->offset};
  struct copse_pp_place next = out;
  if (hop > 0) {
    copse_pp_sync(&j->p, rank, block, "wait", &path[hop - 1], 1);
    in = *at;
  }
  if (n == 1) copse_pp_data(&j->p, rank, block, "copy", &in, 1, &out, 1, s->count);
  if (hop == n - 1) return;
  if (hop > 0) copse_pp_meet(&j->p, rank, block);
  if (hop + 2 < n) next = copse_pp_scratch(&j->p, path[hop + 1], s->count);
  *at = next;
  if (hop > 0 && !copse_pp_same_host(&j->p, rank, next.rank)) stage(j, rank, block, &in, s->count);
  put(j, rank, block, in, &next, 1, s->count);
}

/* First what ranks send themselves, then what they forward at the first stop, and so on. */
static void emit_paths(struct job *j) {
  bool more = true;
  for (int hop = 0; more; hop++) {
    more = false;
    for (size_t i = 0; i < j->cut.n_runs; i++) {
      const struct copse_unit *unit = j->cut.runs[i].unit;
      if (hop >= unit->n_path) continue;
      more = true;
      int rank = unit->path[hop];
      start_run(j, rank, i);
      path_at(j, i, hop, &j->places[i]);
      end_run(j, rank, i);
    }
  }
}

/* ---- blocks ---------------------------------------------------------------------------- */

static void deal(struct job *j, int n_blocks) {
  for (size_t i = 0; i < j->cut.n_runs; i++) {
    const struct copse_unit *u = j->cut.runs[i].unit;
    int turn = u->path ? copse_path_distance(u, j->schedule->n_ranks) : (int)i;
    j->block[i] = turn % n_blocks;
    link_tree(j, j->block[i], u->reduce);
    link_tree(j, j->block[i], u->broadcast);
    for (int hop = 0; hop + 1 < u->n_path; hop++)
      copse_pp_link(&j->p, j->block[i], u->path[hop], u->path[hop + 1]);
  }
}

/* Before anything is written to a peer, it has entered the launch. */
static void greet(struct job *j, int n_blocks) {
  for (int b = 0; b < j->schedule->n_ranks * n_blocks; b++) {
    const struct copse_pp_block *block = &j->p.blocks[b];
    int rank = b / n_blocks;
    if (block->n_peers == 0) continue;
    copse_pp_sync(&j->p, rank, b % n_blocks, "rlxsignal", block->peers, block->n_peers);
    copse_pp_sync(&j->p, rank, b % n_blocks, "rlxwait", block->peers, block->n_peers);
    copse_pp_meet(&j->p, rank, b % n_blocks);
  }
}

/* Why a plan does not fit: what a block needs and may have; NULL if it fits. */
struct misfit {
  const char *what;
  int rank, need, limit;
};

static struct misfit find_misfit(const struct job *j, int n_blocks) {
  for (int b = 0; b < j->schedule->n_ranks * n_blocks; b++) {
    const struct copse_pp_block *block = &j->p.blocks[b];
    int near[2] = {0, 0}, far[2] = {0, 0}, rank = b / n_blocks;
    for (int i = 0; i < block->n_peers; i++)
      ++*(copse_pp_same_host(&j->p, rank, block->peers[i]) ? &near[0] : &far[0]);
    for (int i = 0; i < block->n_remotes; i++)
      ++*(copse_pp_same_host(&j->p, rank, block->remotes[i].peer) ? &near[1] : &far[1]);
    if (block->n_ops > COPSE_PP_MAX_OPS)
      return (struct misfit){"operations in a block", rank, block->n_ops, COPSE_PP_MAX_OPS};
    for (int k = 0; k < 2; k++) {
      int most = near[k] > far[k] ? near[k] : far[k];
      if (most > COPSE_PP_MAX_CHANNELS)
        return (struct misfit){k ? "remote buffers in a block" : "channels in a block", rank, most,
                               COPSE_PP_MAX_CHANNELS};
    }
  }
  return (struct misfit){NULL, 0, 0, 0};
}

/* One attempt, which the job keeps. */
static copse_status attempt(struct job *j, int n_blocks, struct misfit *misfit) {
  copse_pp_free(&j->p);
  COPSE_DO(copse_pp_start(&j->p, j->schedule->n_ranks, n_blocks, j->host, j->err));
  deal(j, n_blocks);
  greet(j, n_blocks);
  (j->schedule->collective == COPSE_ALLTOALL ? emit_paths : emit_trees)(j);
  COPSE_DO(copse_pp_status(&j->p));
  *misfit = find_misfit(j, n_blocks);
  return COPSE_OK;
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
  else if (j->schedule->k > 1)
    snprintf(hint, sizeof hint, "solve again with --k %" PRId64 " or less", k < 1 ? 1 : k);
  return copse_fail(j->err, COPSE_UNSUPPORTED, "rank %d needs %d %s and may have %d; %s", m->rank,
                    m->need, m->what, m->limit, hint);
}

/* ---- hosts and sizes ------------------------------------------------------------------- */

/* The length of "h3" in "h3.gpu0"; 0 in "gpu0" and in a bus id, "gpu@0000:c1:00.0". */
static size_t host_length(const char *id) {
  size_t n = strcspn(id, ".@:");
  return id[n] == '.' ? n : 0;
}

/* Ranks whose ids have no host part are all on one. */
static copse_status find_hosts(struct job *j) {
  const struct copse_schedule *s = j->schedule;
  COPSE_DO(copse_arena_array(&j->arena, (size_t)s->n_ranks, sizeof *j->host, &j->host, j->err));
  for (int r = 0; r < s->n_ranks; r++) {
    const char *id = s->nodes[s->rank_nodes[r]];
    size_t length = host_length(id);
    int other = 0;
    for (; other < r; other++) {
      const char *before = s->nodes[s->rank_nodes[other]];
      if (host_length(before) == length && strncmp(before, id, length) == 0) break;
    }
    j->host[r] = other < r ? j->host[other] : j->n_hosts;
    if (j->options.ranks_per_host > 0) j->host[r] = r / j->options.ranks_per_host;
    if (j->host[r] >= j->n_hosts) j->n_hosts = j->host[r] + 1;
  }
  return COPSE_OK;
}

static int longest_run(const struct job *j) {
  int most = 1;
  for (size_t i = 0; i < j->cut.n_runs; i++)
    if (j->cut.runs[i].count > most) most = j->cut.runs[i].count;
  return most;
}

/* Offsets are 32 bits, of scratch as well. */
static copse_status bound_bytes(struct job *j, struct copse_mscclpp_summary *summary) {
  struct copse_mscclpp_options *o = &j->options;
  int most = j->cut.chunks;
  for (int r = 0; r < j->schedule->n_ranks; r++)
    if (j->p.scratch[r] > most) most = j->p.scratch[r];
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
  COPSE_DO(copse_chunks_start(&j->cut, j->schedule, j->options.instances, MAX_CHUNKS, j->err));
  if (block == 0) COPSE_DO(copse_chunks_exact(&j->cut, MAX_CHUNKS, &block, j->err));
  if (block * j->cut.blocks > MAX_CHUNKS)
    return copse_fail(
        j->err, COPSE_UNSUPPORTED,
        "the shares of this schedule are parts of %lld or more of a message, too fine "
        "for chunks of equal size; --chunks 64 rounds them%s",
        (long long)(block * j->cut.blocks),
        j->schedule->k > 1 ? ", or solve again with --k 1" : "");
  COPSE_DO(copse_chunks_cut(&j->cut, (int)block, j->err));
  size_t n_runs = j->cut.n_runs, n_ranks = (size_t)j->schedule->n_ranks;
  COPSE_DO(copse_arena_array(&j->arena, n_runs, sizeof *j->block, &j->block, j->err));
  COPSE_DO(copse_arena_array(&j->arena, n_runs, sizeof *j->slot, &j->slot, j->err));
  for (size_t i = 0; i < n_runs; i++)
    if (j->cut.runs[i].unit->reduce)
      COPSE_DO(copse_arena_array(&j->arena, n_ranks, sizeof(int), &j->slot[i], j->err));
  return copse_arena_array(&j->arena, (n_runs > n_ranks ? n_runs : n_ranks) + 1, sizeof *j->places,
                           &j->places, j->err);
}

/* Contexts are kept by name: two different plans must not share one. */
static void write_plan(const struct job *j, struct copse_text *text) {
  const struct copse_schedule *s = j->schedule;
  copse_collective c = s->collective;
  const char *coll = c == COPSE_REDUCE_SCATTER ? "reducescatter" : copse_collective_name(c);
  int in = c == COPSE_ALLGATHER ? j->cut.block : j->cut.chunks;
  int out = c == COPSE_REDUCE_SCATTER ? j->cut.block : j->cut.chunks;
  copse_text_add(text, "{\"name\": \"copse_");
  copse_chunks_add_name(&j->cut, text);
  copse_text_add(text, "_%s_%s_%d_%d_%" PRId64 "_%" PRId64 "\",\n", coll,
                 j->options.out_of_place ? "out" : "in", j->cut.chunks, j->p.n_blocks,
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
                   r > 0 ? "," : "", r, in, out, j->p.scratch[r]);
    copse_pp_write_rank(&j->p, r, text);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "\n ]}\n");
}

static copse_status make(struct job *j, struct copse_mscclpp_summary *summary) {
  struct misfit misfit;
  COPSE_DO(check_options(j));
  COPSE_DO(cut(j));
  COPSE_DO(find_hosts(j));
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
    if (j->p.scratch[r] > summary->scratch) summary->scratch = j->p.scratch[r];
  for (int b = 0; b < j->schedule->n_ranks * n_blocks; b++)
    if (j->p.blocks[b].n_ops > summary->ops) summary->ops = j->p.blocks[b].n_ops;
  return COPSE_OK;
}

copse_status copse_lower_mscclpp(const struct copse_schedule *schedule,
                                 const struct copse_mscclpp_options *options, char **text,
                                 size_t *size, struct copse_mscclpp_summary *summary,
                                 struct copse_err *err) {
  struct job j = {.schedule = schedule, .options = *options, .err = err};
  struct copse_text out = {0};
  copse_status status;
  *summary = (struct copse_mscclpp_summary){0};
  COPSE_TRY(make(&j, summary));
  write_plan(&j, &out);
  COPSE_TRY(copse_text_take(&out, text, size, err));
out:
  copse_pp_free(&j.p);
  copse_chunks_free(&j.cut);
  copse_arena_free(&j.arena);
  copse_text_free(&out);
  return status;
}
