/*
 * Lowering to MSCCL XML: the search for numbers of channels that keep every rank within the
 * executors' limits, what to say where there are none, and the text.
 *
 * Channels and blocks. Each edge of a tree takes the least loaded channel between its two ranks;
 * more channels mean more blocks. The search takes the most channels, up to 32 or --channels, with
 * which every rank stays within --workers blocks and 64 steps a block: first with sends and
 * receives in blocks of their own, which run at once, then sharing blocks, then with one connection
 * per pair of ranks. Where nothing fits, shares are rounded: numbers of chunks are tried in the
 * order of what they add to the links, least first, powers of two before others of about as much.
 * With --chunks given, and where no rounding fits, it tries other --channels, --workers and
 * --chunks and names one that does.
 */
#include "codegen/msccl/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/types.h"
#include "base/text.h"
#include "codegen/msccl/program.h"

struct job {
  const struct copse_schedule *schedule;
  struct copse_msccl_options options; /* filled in */
  struct copse_whole_chunks cut;      /* runs of at most COPSE_MSCCL_MAX_COUNT chunks */
  struct copse_msccl_style style;
};

/* ---- limits --------------------------------------------------------------------------- */

/* A limit that a program breaks: what, at which rank, and by how much. */
struct misfit {
  const char *what;
  int rank, need, limit;
};

static bool over(struct misfit *m, const char *what, int rank, int need, int limit) {
  if (need <= limit) return false;
  *m = (struct misfit){what, rank, need, limit};
  return true;
}

static bool fits(const struct job *job, const struct copse_msccl_program *p, struct misfit *m) {
  for (int r = 0; r < p->n_ranks; r++) {
    int steps = 0;
    if (over(m, "thread blocks", r, p->ranks[r].n, job->options.max_blocks)) return false;
    for (int i = 0; i < p->ranks[r].n; i++) {
      const struct copse_msccl_block *b = &p->blocks[p->ranks[r].ids[i]];
      steps += b->n_steps;
      if (over(m, "steps in one thread block", r, b->n_steps, COPSE_MSCCL_MAX_STEPS)) return false;
    }
    if (over(m, "elements in the executors' parser", r, 1 + p->n_ranks + p->ranks[r].n + steps,
             COPSE_MSCCL_MAX_NODES) ||
        over(m, "chunks of scratch", r, p->ranks[r].scratch, COPSE_MSCCL_MAX_CHUNKS))
      return false;
  }
  return true;
}

/* ---- peers ---- */

struct peers {
  const struct job *job;
  bool *sends; /* [n_ranks * n_ranks] from, to */
};

static void free_peers(struct peers *p) { free(p->sends); }

static void mark_pair(struct peers *p, int from, int to) {
  p->sends[(size_t)from * (size_t)p->job->schedule->n_ranks + (size_t)to] = true;
}

static void mark_tree(struct peers *p, int tree) {
  if (tree < 0) return;
  const struct copse_schedule_tree *t = &p->job->schedule->trees[tree];
  for (int e = 0; e < t->n_edges; e++) mark_pair(p, t->edges[e].src, t->edges[e].dst);
}

static void mark_unit(struct peers *p, const struct copse_unit *unit) {
  const struct copse_schedule *s = p->job->schedule;
  for (int i = 0; i + 1 < unit->n_path; i++) mark_pair(p, unit->path[i], unit->path[i + 1]);
  if (unit->n_path > 0) return;
  for (int t = unit->tree; unit->n_stages > 0 && t < s->n_trees; t++)
    if (s->trees[t].piece == s->trees[unit->tree].piece) mark_tree(p, t);
  if (unit->n_stages > 0) return;
  mark_tree(p, unit->broadcast_tree);
  mark_tree(p, unit->tree);
}

/* A rank that sends to more ranks, or receives from more, than it may have blocks: no number of
 * channels helps. COPSE_UNSUPPORTED with *m. O(trees * ranks + ranks^2), an attempt's less. */
static copse_status check_peers(const struct job *job, struct misfit *m, struct copse_err *err) {
  COPSE_AT_END(free_peers) struct peers p = {.job = job};
  const int n = job->schedule->n_ranks;
  const struct copse_unit *last = NULL;
  COPSE_DO(copse_calloc((size_t)n * (size_t)n, sizeof *p.sends, &p.sends, err));
  for (size_t i = 0; i < job->cut.n_runs; i++) {
    if (job->cut.runs[i].unit != last) mark_unit(&p, job->cut.runs[i].unit);
    last = job->cut.runs[i].unit;
  }
  for (int r = 0; r < n; r++) {
    int to = 0, from = 0;
    for (int other = 0; other < n; other++) {
      to += p.sends[(size_t)r * (size_t)n + (size_t)other];
      from += p.sends[(size_t)other * (size_t)n + (size_t)r];
    }
    if (over(m, "thread blocks", r, to > from ? to : from, job->options.max_blocks))
      return COPSE_UNSUPPORTED;
  }
  return COPSE_OK;
}

/* One attempt; COPSE_UNSUPPORTED with *m where it doesn't fit. */
static copse_status attempt(const struct job *job, int channels, enum copse_msccl_sharing sharing,
                            struct copse_msccl_program *p, struct misfit *m,
                            struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status;
  *m = (struct misfit){"connections in one channel", 0, COPSE_MSCCL_MAX_CONNECTIONS + 1,
                       COPSE_MSCCL_MAX_CONNECTIONS};
  COPSE_TRY(copse_msccl_program_start(p, job->schedule->n_ranks, job->options.max_blocks, &why));
  p->end_channel = channels;
  p->sharing = sharing;
  copse_msccl_emit(&job->cut, job->style, p);
  COPSE_TRY(p->status);
  if (!fits(job, p, m)) status = COPSE_UNSUPPORTED;
out:
  p->err = err;
  if (status == COPSE_OK) return COPSE_OK;
  if (status == COPSE_UNSUPPORTED && p->crowded_rank >= 0)
    over(m, "thread blocks", p->crowded_rank, 2 * p->max_blocks, p->max_blocks);
  copse_msccl_program_free(p);
  return status == COPSE_UNSUPPORTED ? status : copse_fail(err, status, "%s", why.text);
}

/* The most channels up to `most` that fit: sends and receives in blocks of
 * their own run at once, so sharing a block comes after fewer channels. */
static copse_status search(const struct job *job, int most, struct copse_msccl_program *p,
                           int *channels, struct misfit *m, struct copse_err *err) {
  struct misfit first = {0};
  copse_status peers = check_peers(job, m, err);
  if (peers != COPSE_OK) return peers;
  for (int sharing = COPSE_MSCCL_SHARE_NONE; sharing <= COPSE_MSCCL_SHARE_ALL; sharing++) {
    for (*channels = most; *channels >= 1; --*channels) {
      copse_status status = attempt(job, *channels, (enum copse_msccl_sharing)sharing, p, m, err);
      if (status != COPSE_UNSUPPORTED) return status;
      /* what stands in the way of the fewest blocks says most */
      if (!first.what || m->need - m->limit <= first.need - first.limit) first = *m;
    }
  }
  *m = first;
  return COPSE_UNSUPPORTED;
}

/* Whether the job fits; *channels gets how many are used. */
static copse_status try_channels(const struct job *job, int *channels, struct copse_err *err) {
  struct copse_msccl_program p;
  struct misfit m;
  copse_status status = search(job, COPSE_MSCCL_MAX_CHANNELS, &p, channels, &m, err);
  if (status == COPSE_OK) copse_msccl_program_free(&p);
  return status;
}

/* Whether so many chunks per block are of no use where `exact` ones do not fit (0: they are too many to
 * be tried): parts that are rounded up to more chunks need as many connections. */
static bool is_finer(int chunks, int exact) { return exact > 0 && chunks >= exact; }

/* The largest power of two of chunks per block that fits, shares rounded; 0 if none does. */
static copse_status try_chunks(struct job *job, int *chunks, struct copse_err *err) {
  int used, exact = job->cut.block;
  copse_status status = COPSE_UNSUPPORTED;
  for (*chunks = 64; *chunks > 0 && status == COPSE_UNSUPPORTED; *chunks /= 2) {
    if (*chunks * job->cut.blocks > COPSE_MSCCL_MAX_CHUNKS || is_finer(*chunks, exact)) continue;
    status = copse_chunks_cut(&job->cut, *chunks, err);
    if (status == COPSE_OK) status = try_channels(job, &used, err);
    if (status == COPSE_OK) return COPSE_OK;
  }
  return status == COPSE_UNSUPPORTED ? COPSE_OK : status;
}

int copse_msccl_default_blocks(const struct copse_msccl_options *o) {
  return o->executor == COPSE_MSCCL_NCCL ? 108 : 64;
}

/* The least number of blocks that is enough, more of them never being worse; 0: none is. */
static copse_status try_blocks(struct job *job, int *least, struct copse_err *err) {
  int given = job->options.max_blocks, low = given,
      high = copse_msccl_default_blocks(&job->options) + 1, used;
  int most = high;
  copse_status status = COPSE_OK;
  while (low + 1 < high) { /* low is too few, high enough (or out of range) */
    job->options.max_blocks = high == most ? most - 1 : low + (high - low) / 2;
    status = try_channels(job, &used, err);
    if (status != COPSE_OK && status != COPSE_UNSUPPORTED) return status;
    if (status == COPSE_UNSUPPORTED && high == most) break;
    *(status == COPSE_OK ? &high : &low) = job->options.max_blocks;
  }
  job->options.max_blocks = given;
  *least = high < most ? high : 0;
  return COPSE_OK;
}

/* What would fit, in words. */
static copse_status find_hint(struct job *job, int64_t k, char *hint, size_t size,
                              struct copse_err *err) {
  int n;
  if (job->options.channels > 0 && job->cut.block > 0) {
    copse_status status = try_channels(job, &n, err);
    if (status == COPSE_OK) snprintf(hint, size, "--channels %d fits", n);
    if (status != COPSE_UNSUPPORTED) return status;
  }
  if (job->options.max_blocks < copse_msccl_default_blocks(&job->options) && job->cut.block > 0) {
    COPSE_DO(try_blocks(job, &n, err));
    if (n > 0) {
      snprintf(hint, size, "--workers %d fits", n);
      return COPSE_OK;
    }
  }
  COPSE_DO(try_chunks(job, &n, err));
  if (job->options.instances > 1)
    snprintf(hint, size, "take fewer --instances than %d", job->options.instances);
  else if (job->schedule->k > 1 && n > 0)
    snprintf(hint, size,
             "solve again with --k %lld or less, or --chunks %d fits, which rounds "
             "the shares",
             (long long)k, n);
  else if (job->schedule->k > 1)
    snprintf(hint, size, "solve again with --k %lld or less", (long long)k);
  else if (n > 0)
    snprintf(hint, size, "--chunks %d fits, which rounds the shares", n);
  else
    snprintf(hint, size, "only a native plan (--to plan) has no such limit");
  return COPSE_OK;
}

static copse_status say_misfit(struct job *job, const struct misfit *m, struct copse_err *err) {
  int64_t k = job->schedule->k * m->limit / m->need;
  char hint[160];
  COPSE_DO(find_hint(job, k < 1 ? 1 : k, hint, sizeof hint, err));
  return copse_fail(err, COPSE_UNSUPPORTED, "rank %d needs %d %s and may have %d; %s", m->rank,
                    m->need, m->what, m->limit, hint);
}

static copse_status say_too_fine(struct job *job, int64_t block, struct copse_err *err) {
  char hint[160];
  COPSE_DO(find_hint(job, 1, hint, sizeof hint, err));
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the shares of this schedule are parts of %lld%s of a message, and MSCCL "
                    "numbers at most %d chunks; %s",
                    (long long)(block * job->cut.blocks),
                    block > COPSE_MSCCL_MAX_CHUNKS ? " or more" : "", COPSE_MSCCL_MAX_CHUNKS, hint);
}

/* ---- rounding ------------------------------------------------------------------------- */

/* What links carry, in blocks: with exact shares, and in whole chunks. */
struct links {
  const struct job *job;
  struct copse_index_map at; /* links by their two nodes */
  double *exact, *rounded;
  size_t n, exact_capacity, rounded_capacity;
  struct copse_arena arena;
  struct copse_err *err;
};

static void end_links(struct links *l) {
  copse_index_map_free(&l->at);
  copse_arena_free(&l->arena);
}

static copse_status add_link(struct links *l, int src, int dst, double exact, double rounded) {
  uint64_t key = copse_key_pair(src, dst);
  size_t cursor = 0;
  int i = copse_index_map_next(&l->at, key, &cursor);
  if (i < 0) {
    COPSE_DO(COPSE_GROW_IN(&l->arena, l->exact, l->exact_capacity, l->n + 1, l->err));
    COPSE_DO(COPSE_GROW_IN(&l->arena, l->rounded, l->rounded_capacity, l->n + 1, l->err));
    COPSE_DO(copse_index_map_add(&l->at, key, (int)l->n, l->err));
    i = (int)l->n++;
    l->exact[i] = l->rounded[i] = 0;
  }
  l->exact[i] += exact;
  l->rounded[i] += rounded;
  return COPSE_OK;
}

static copse_status add_tree(struct links *l, int tree, double exact, double rounded) {
  if (tree < 0) return COPSE_OK;
  const struct copse_schedule_tree *t = &l->job->schedule->trees[tree];
  for (int e = 0; e < t->n_edges; e++)
    for (int i = 0; i + 1 < t->edges[e].n_path; i++)
      COPSE_DO(add_link(l, t->edges[e].path[i], t->edges[e].path[i + 1], exact, rounded));
  return COPSE_OK;
}

/* The ways of an alltoall's unit differ in relays alone, which are the executor's choice. */
static copse_status add_unit(struct links *l, const struct copse_unit *unit, double exact,
                             double rounded) {
  for (int i = 0; i + 1 < unit->n_path; i++)
    COPSE_DO(add_link(l, unit->path[i], unit->path[i + 1], exact, rounded));
  if (unit->n_path > 0) return COPSE_OK;
  const struct copse_schedule *s = l->job->schedule;
  for (int t = unit->tree; unit->n_stages > 0 && t < s->n_trees; t++)
    if (s->trees[t].piece == s->trees[unit->tree].piece) COPSE_DO(add_tree(l, t, exact, rounded));
  if (unit->n_stages > 0) return COPSE_OK;
  COPSE_DO(add_tree(l, unit->broadcast_tree, exact, rounded));
  return unit->tree == unit->broadcast_tree ? COPSE_OK : add_tree(l, unit->tree, exact, rounded);
}

/* The most that the cut at hand adds to a link, as a part of what it carries with exact shares. No
 * link takes longer than the schedule says by more, whatever its bandwidth. */
static copse_status added_by_cut(const struct job *job, double *more, struct copse_err *err) {
  COPSE_AT_END(end_links) struct links l = {.job = job, .err = err};
  *more = 0;
  for (int u = 0; u < job->cut.units.n_units; u++)
    COPSE_DO(add_unit(&l, &job->cut.units.units[u], copse_width(&job->cut.units.units[u]), 0));
  for (size_t i = 0; i < job->cut.n_runs; i++)
    COPSE_DO(add_unit(&l, job->cut.runs[i].unit, 0,
                      (double)job->cut.runs[i].count / (double)job->cut.block));
  for (size_t i = 0; i < l.n; i++)
    if (l.rounded[i] / l.exact[i] - 1 > *more) *more = l.rounded[i] / l.exact[i] - 1;
  if (*more < 1e-9) *more = 0; /* sums of floating point */
  return COPSE_OK;
}

/* A number of chunks that may be taken. */
struct candidate {
  int block;
  double more;
};

/* The executors serve only counts that are multiples of the chunks; usual ones are of powers of
 * two, which may add so much more for that. */
#define USUAL_SIZES_WORTH 0.01

static double price(const struct candidate *c) {
  return c->more + (c->block & (c->block - 1) ? USUAL_SIZES_WORTH : 0);
}

COPSE_ORDER(less_first, struct candidate, COPSE_COMPARE(price(a), price(b)) ?: COPSE_UP(block))

/* Powers of two, which serve the usual sizes, and multiples of them that odd numbers of ranks and
 * trees ask for. */
enum { MOST_ROUNDED = 1024, MOST_CANDIDATES = 64 };
static int list_candidates(const struct job *job, struct candidate *to) {
  const int factors[] = {1, 3, 5, 7, job->schedule->n_ranks};
  int n = 0, most = COPSE_MSCCL_MAX_CHUNKS / job->cut.blocks;
  if (most > MOST_ROUNDED) most = MOST_ROUNDED;
  for (size_t f = 0; f < sizeof factors / sizeof *factors; f++)
    for (int block = factors[f]; block <= most && n < MOST_CANDIDATES; block *= 2) {
      bool known = false;
      for (int i = 0; i < n; i++) known = known || to[i].block == block;
      if (!known) to[n++].block = block;
    }
  return n;
}

/* Whether the cut at hand fits with some power of two below `most` as the number of channels. */
static copse_status fits_somehow(const struct job *job, int most, bool *yes,
                                 struct copse_err *err) {
  struct misfit crowded;
  *yes = false;
  copse_status peers = check_peers(job, &crowded, err);
  if (peers != COPSE_OK) return peers == COPSE_UNSUPPORTED ? COPSE_OK : peers;
  for (int sharing = COPSE_MSCCL_SHARE_NONE; sharing <= COPSE_MSCCL_SHARE_ALL && !*yes; sharing++)
    for (int channels = most; channels >= 1 && !*yes; channels /= 2) {
      struct copse_msccl_program p;
      struct misfit m;
      copse_status status = attempt(job, channels, (enum copse_msccl_sharing)sharing, &p, &m, err);
      if (status != COPSE_OK && status != COPSE_UNSUPPORTED) return status;
      if (status == COPSE_OK) copse_msccl_program_free(&p);
      *yes = status == COPSE_OK;
    }
  return COPSE_OK;
}

/* Cuts the job into the number of chunks that fits and adds least to links; *found: there is one.
 */
static copse_status round_shares(struct job *job, int most_channels, bool *found,
                                 struct copse_err *err) {
  struct candidate list[MOST_CANDIDATES];
  int exact = job->cut.block, n = list_candidates(job, list), n_coarser = 0;
  for (int i = 0; i < n; i++)
    if (!is_finer(list[i].block, exact)) list[n_coarser++] = list[i];
  n = n_coarser;
  for (int i = 0; i < n; i++) {
    COPSE_DO(copse_chunks_cut(&job->cut, list[i].block, err));
    COPSE_DO(added_by_cut(job, &list[i].more, err));
  }
  COPSE_SORT(list, n, less_first);
  *found = false;
  for (int i = 0; i < n && !*found; i++) {
    COPSE_DO(copse_chunks_cut(&job->cut, list[i].block, err));
    COPSE_DO(fits_somehow(job, most_channels, found, err));
  }
  return COPSE_OK;
}

/* ---- text ----------------------------------------------------------------------------- */

/* The executors read XML with a scanner of their own: no prolog, no tabs, all attributes on one
 * line, no entities, a comment whose first word has no '='. */
static const char *const op_names[] = {"s", "r", "rcs", "rrs", "rrc", "cpy", "re", "nop"};

static void add_step(struct copse_text *text, const struct copse_msccl_program *p,
                     const struct copse_msccl_step *s, int number) {
  int dep = s->after.block < 0 ? -1 : p->blocks[s->after.block].id;
  copse_text_add(text,
                 "      <step s=\"%d\" type=\"%s\" srcbuf=\"%c\" srcoff=\"%d\" dstbuf=\"%c\" "
                 "dstoff=\"%d\" cnt=\"%d\" depid=\"%d\" deps=\"%d\" hasdep=\"%d\"/>\n",
                 number, op_names[s->op], s->src.buffer, s->src.offset, s->dst.buffer,
                 s->dst.offset, s->count, dep, s->after.step, s->awaited);
}

static void add_rank(struct copse_text *text, const struct job *job,
                     const struct copse_msccl_program *p, int rank) {
  copse_collective c = job->schedule->collective;
  copse_text_add(text, "  <gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"%d\">\n", rank,
                 c == COPSE_ALLGATHER ? job->cut.block : job->cut.chunks,
                 c == COPSE_REDUCE_SCATTER ? job->cut.block : job->cut.chunks,
                 p->ranks[rank].scratch);
  for (int i = 0; i < p->ranks[rank].n; i++) {
    const struct copse_msccl_block *b = &p->blocks[p->ranks[rank].ids[i]];
    copse_text_add(text, "    <tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"%d\">\n", b->id, b->send,
                   b->recv, b->channel);
    for (int s = 0; s < b->n_steps; s++) add_step(text, p, &b->steps[s], s);
    copse_text_add(text, "    </tb>\n");
  }
  copse_text_add(text, "  </gpu>\n");
}

static void write_program(const struct job *job, const struct copse_msccl_program *p,
                          struct copse_text *text) {
  static const char *const protocols[] = {"Simple", "LL", "LL128"};
  const struct copse_msccl_options *o = &job->options;
  const char *coll = copse_collective_name(job->schedule->collective);
  if (job->schedule->collective == COPSE_REDUCE_SCATTER) coll = "reducescatter";
  copse_text_add(text, "<!-- written by copse %s; counts that are multiples of %d are served -->\n",
                 COPSE_VERSION_STRING, job->cut.block);
  copse_text_add(text, "<algo name=\"");
  copse_chunks_add_name(&job->cut, text);
  copse_text_add(text,
                 "_%s\" proto=\"%s\" nchannels=\"%d\" nchunksperloop=\"%d\" ngpus=\"%d\" "
                 "coll=\"%s\" inplace=\"%d\" outofplace=\"%d\" minBytes=\"%" PRId64
                 "\" maxBytes=\"%" PRId64 "\">\n",
                 coll, protocols[o->protocol], p->n_channels, job->cut.chunks, p->n_ranks, coll,
                 o->layout != COPSE_MSCCL_OUT_OF_PLACE, o->layout != COPSE_MSCCL_IN_PLACE,
                 o->min_bytes, o->max_bytes);
  for (int r = 0; r < p->n_ranks; r++) add_rank(text, job, p, r);
  copse_text_add(text, "</algo>\n");
}

/* ---- all together --------------------------------------------------------------------- */

static copse_status check_options(struct job *job, struct copse_err *err) {
  struct copse_msccl_options *o = &job->options;
  bool nccl = o->executor == COPSE_MSCCL_NCCL;
  int blocks = nccl ? COPSE_MSCCL_MAX_DEP_BLOCK : 64;
  if (o->max_blocks == 0) o->max_blocks = copse_msccl_default_blocks(o);
  if (o->instances == 0) o->instances = 1;
  if (o->max_blocks < 1 || o->max_blocks > blocks)
    return copse_fail(err, COPSE_INVALID, "workers must be from 1 to %d for this executor", blocks);
  if (o->channels < 0 || o->channels > COPSE_MSCCL_MAX_CHANNELS)
    return copse_fail(err, COPSE_INVALID, "channels must be from 1 to %d",
                      COPSE_MSCCL_MAX_CHANNELS);
  if (o->instances < 1 || o->instances > 64)
    return copse_fail(err, COPSE_INVALID, "instances must be from 1 to 64");
  if (o->chunks < 0 || o->chunks > COPSE_MSCCL_MAX_CHUNKS)
    return copse_fail(err, COPSE_INVALID, "chunks must be from 1 to %d", COPSE_MSCCL_MAX_CHUNKS);
  if (o->min_bytes < 0 || o->max_bytes < 0 || (o->max_bytes > 0 && o->max_bytes < o->min_bytes))
    return copse_fail(err, COPSE_INVALID, "the smallest message must not exceed the largest");
  if (job->schedule->collective == COPSE_ALLTOALL) {
    if (o->layout == COPSE_MSCCL_IN_PLACE)
      return copse_fail(err, COPSE_UNSUPPORTED, "an alltoall is lowered out of place only");
    o->layout = COPSE_MSCCL_OUT_OF_PLACE;
  }
  job->style.fused = nccl;
  job->style.skip_copy = o->layout == COPSE_MSCCL_IN_PLACE;
  return COPSE_OK;
}

/* Into the chunks asked for, or as few as the shares need; cut.block is 0 where they need too many.
 */
static copse_status cut(struct job *job, int64_t *needed, struct copse_err *err) {
  int64_t block = job->options.chunks;
  COPSE_DO(copse_chunks_start(&job->cut, job->schedule, job->options.instances,
                              COPSE_MSCCL_MAX_COUNT, err));
  if (block == 0) COPSE_DO(copse_chunks_exact(&job->cut, COPSE_MSCCL_MAX_CHUNKS, &block, err));
  *needed = block;
  if (block * job->cut.blocks > COPSE_MSCCL_MAX_CHUNKS) return COPSE_OK;
  return copse_chunks_cut(&job->cut, (int)block, err);
}

/* The loop counter of the executors ends at 65536 slots of this size for every chunk. */
static copse_status bound_bytes(struct job *job, struct copse_err *err) {
  static const int64_t slot[] = {2097152, 16384, 50176};
  int64_t most = slot[job->options.protocol] * 65536 * job->cut.chunks;
  struct copse_msccl_options *o = &job->options;
  if (o->protocol == COPSE_MSCCL_SIMPLE && o->max_bytes == 0) return COPSE_OK; /* 128 GiB a chunk */
  if (o->max_bytes == 0 || o->max_bytes > most) o->max_bytes = most;
  if (o->min_bytes <= o->max_bytes) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the executors run this program with messages of at most %lld bytes, so "
                    "--min-bytes must be less; more --chunks, or Simple, take longer ones",
                    (long long)most);
}

static void summarize(const struct job *job, const struct copse_msccl_program *p,
                      struct copse_msccl_summary *out) {
  *out = (struct copse_msccl_summary){
      .channels = p->n_channels, .chunks = job->cut.chunks, .multiple = job->cut.block};
  for (int r = 0; r < p->n_ranks; r++) {
    if (p->ranks[r].n > out->blocks) out->blocks = p->ranks[r].n;
    if (p->ranks[r].scratch > out->scratch) out->scratch = p->ranks[r].scratch;
  }
  for (int b = 0; b < p->n_blocks; b++)
    if (p->blocks[b].n_steps > out->steps) out->steps = p->blocks[b].n_steps;
}

/* The program of exact shares, or of rounded ones. */
static copse_status make_program(struct job *job, struct copse_msccl_program *p, bool *rounded,
                                 struct copse_err *err) {
  int most = job->options.channels ? job->options.channels : COPSE_MSCCL_MAX_CHANNELS, channels;
  int64_t needed;
  struct misfit misfit, other;
  copse_status status = COPSE_UNSUPPORTED;
  COPSE_DO(cut(job, &needed, err));
  bool too_fine = job->cut.block == 0;
  if (!too_fine) status = search(job, most, p, &channels, &misfit, err);
  if (status == COPSE_UNSUPPORTED && job->options.chunks == 0) {
    int block = job->cut.block;
    COPSE_DO(round_shares(job, most, rounded, err));
    if (*rounded) status = search(job, most, p, &channels, &other, err);
    if (!*rounded && block > 0) COPSE_DO(copse_chunks_cut(&job->cut, block, err));
    if (!*rounded) job->cut.block = block;
  }
  if (status == COPSE_UNSUPPORTED)
    return too_fine ? say_too_fine(job, needed, err) : say_misfit(job, &misfit, err);
  COPSE_DO(status);
  return bound_bytes(job, err);
}

static void end_job(struct job *job) { copse_chunks_free(&job->cut); }

copse_status copse_lower_msccl(const struct copse_schedule *schedule,
                               const struct copse_msccl_options *options, char **text, size_t *size,
                               struct copse_msccl_summary *summary, struct copse_err *err) {
  COPSE_AT_END(end_job) struct job job = {.schedule = schedule, .options = *options};
  COPSE_AT_END(copse_msccl_program_free) struct copse_msccl_program p = {0};
  COPSE_AT_END(copse_text_free) struct copse_text out = {0};
  bool rounded = false;
  double more;
  COPSE_DO(check_options(&job, err));
  COPSE_DO(make_program(&job, &p, &rounded, err));
  COPSE_DO(added_by_cut(&job, &more, err));
  COPSE_DO(copse_msccl_finish(&p));
  write_program(&job, &p, &out);
  summarize(&job, &p, summary);
  summary->rounded = rounded;
  summary->more = more;
  return copse_text_take(&out, text, size, err);
}
