/*
 * Lowering to MSCCL XML: the search for numbers of channels that keep every rank within the
 * executors' limits, what to say where there are none, and the text.
 *
 * Channels and blocks. Each edge of a tree takes the least loaded channel between its two ranks;
 * more channels mean more blocks. The search takes the most channels, up to 32 or --channels, with
 * which every rank stays within --workers blocks and 64 steps a block: first with sends and
 * receives in blocks of their own, which run at once, then with fewer channels for pairs with
 * little between them, then sharing blocks, then with one connection per pair of ranks. What any
 * program would need is counted first, so most of those that can't fit are never made; the others
 * end at the first limit that they break. Where nothing fits, shares are rounded: numbers of chunks
 * are tried in the order of what they add to the links, least first, powers of two before others of
 * about as much. What else would fit is searched last, and named only after it was tried.
 *
 * The limits are those of the executors that codegen/msccl/file.c names.
 */
#include "codegen/msccl/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/types.h"
#include "base/text.h"
#include "codegen/lower/policy.h"
#include "codegen/msccl/program.h"

struct job {
  const struct copse_schedule *schedule;
  struct copse_msccl_options options; /* filled in */
  struct copse_whole_chunks cut;      /* runs of at most COPSE_MSCCL_MAX_COUNT chunks */
  struct copse_msccl_style style;
};

/* ---- limits --------------------------------------------------------------------------- */

static bool over(struct copse_msccl_misfit *m, const char *what, int rank, int need, int limit) {
  if (need <= limit) return false;
  *m = (struct copse_msccl_misfit){what, rank, need, limit};
  return true;
}

/* Whether the program still fits, by the limits that are checked while it grows. */
static bool fits(const struct copse_msccl_program *p, struct copse_msccl_misfit *m) {
  for (int r = 0; r < p->n_ranks; r++) {
    int steps = 0;
    for (int i = 0; i < p->ranks[r].n; i++) steps += p->blocks[p->ranks[r].ids[i]].n_steps;
    if (over(m, "elements in the executors' parser", r, 1 + p->n_ranks + p->ranks[r].n + steps,
             COPSE_MSCCL_MAX_NODES) ||
        over(m, "chunks of scratch", r, p->ranks[r].scratch, COPSE_MSCCL_MAX_CHUNKS))
      return false;
  }
  return true;
}

/* ---- least needs of any program ------------------------------------------------------- */

/* Runs that go straight from rank to rank, [n_ranks * n_ranks] from, to. An allreduce by trees
 * sends sums over channels of their own. */
struct traffic {
  const struct job *job;
  int *runs[2];  /* sums, others */
  int most[2];   /* of a pair */
  bool has_sums; /* channels are in two parts, where there are two */
  bool crowded;  /* a rank has more peers than connections of a channel */
  struct copse_arena arena;
};

static void free_traffic(struct traffic *t) { copse_arena_free(&t->arena); }

static void count_tree(const struct traffic *t, int tree, int *runs) {
  if (tree < 0) return;
  const struct copse_schedule *s = t->job->schedule;
  for (int e = 0; e < s->trees[tree].n_edges; e++) {
    const struct copse_schedule_edge *edge = &s->trees[tree].edges[e];
    runs[(size_t)edge->src * (size_t)s->n_ranks + (size_t)edge->dst]++;
  }
}

static void count_unit(struct traffic *t, const struct copse_unit *unit) {
  const struct copse_schedule *s = t->job->schedule;
  for (int i = 0; i + 1 < unit->n_path; i++)
    t->runs[1][(size_t)unit->path[i] * (size_t)s->n_ranks + (size_t)unit->path[i + 1]]++;
  if (unit->n_path > 0) return;
  for (int i = unit->tree; unit->n_stages > 0 && i < s->n_trees; i++)
    if (s->trees[i].piece == s->trees[unit->tree].piece) count_tree(t, i, t->runs[1]);
  if (unit->n_stages > 0) return;
  bool both = unit->reduce && unit->broadcast;
  t->has_sums = t->has_sums || both;
  if (unit->reduce) count_tree(t, unit->tree, t->runs[both ? 0 : 1]);
  if (unit->broadcast) count_tree(t, unit->broadcast_tree, t->runs[1]);
}

static int least(int a, int b) { return a < b ? a : b; }

/* Counts the runs of the cut at hand. O(runs * ranks + ranks^2). */
static copse_status count_traffic(struct traffic *t, struct copse_err *err) {
  const struct job *job = t->job;
  size_t n = (size_t)job->schedule->n_ranks;
  COPSE_DO(COPSE_ARRAYS(&t->arena, n * n, int, err, &t->runs[0], &t->runs[1]));
  for (size_t i = 0; i < job->cut.n_runs; i++) count_unit(t, job->cut.runs[i].unit);
  for (size_t i = 0; i < 2 * n * n; i++) {
    int runs = t->runs[i / (n * n)][i % (n * n)], *most = &t->most[i / (n * n)];
    if (runs > *most) *most = runs;
  }
  for (size_t r = 0; r < n; r++) {
    int to = 0, from = 0;
    for (size_t other = 0; other < n; other++) {
      to += t->runs[0][r * n + other] + t->runs[1][r * n + other] > 0;
      from += t->runs[0][other * n + r] + t->runs[1][other * n + r] > 0;
    }
    t->crowded =
        t->crowded || to > COPSE_MSCCL_MAX_CONNECTIONS || from > COPSE_MSCCL_MAX_CONNECTIONS;
  }
  return COPSE_OK;
}

/* A way to spread runs over channels and blocks. */
struct spreading {
  int channels;
  enum copse_msccl_sharing sharing;
};

/* Returns the next fewer channels to try; of many it hardly counts how many, where each pair has
 * one connection. */
static int fewer_channels(struct spreading s) {
  return s.sharing == COPSE_MSCCL_SHARE_ALL && s.channels > 8 ? s.channels / 2 : s.channels - 1;
}

/* Returns how many channels a pair may use for so many runs of a kind. */
static int share_of(const struct traffic *t, struct spreading s, int kind, int runs) {
  bool parts = t->has_sums && s.channels > 1;
  int channels = !parts ? s.channels : kind == 0 ? s.channels / 2 : s.channels - s.channels / 2;
  if (s.sharing == COPSE_MSCCL_SHARE_NONE || runs == 0) return channels;
  if (s.sharing == COPSE_MSCCL_SHARE_ALL) return 1;
  return (int)(((int64_t)channels * runs - 1) / t->most[kind]) + 1;
}

/* Returns the connections from rank to rank, and the steps of the fullest one: no program has
 * less. A run goes to a channel that its pair does not use yet, as far as it may and there are any
 * with room. */
static int connections_of(const struct traffic *t, struct spreading s, size_t pair, int *steps) {
  int n = 0;
  *steps = 0;
  for (int kind = 0; kind < 2; kind++) {
    int runs = t->runs[kind][pair];
    if (runs == 0) continue;
    int used = least(share_of(t, s, kind, runs), runs), fullest = (runs - 1) / used + 1;
    n += t->crowded ? 1 : used;
    if (fullest > *steps) *steps = fullest;
  }
  return s.channels == 1 ? least(n, 1) : n;
}

/* Whether a program that spreads runs so might fit; false, with *m, where none does. O(ranks^2). */
static bool might_fit(const struct traffic *t, struct spreading spread,
                      struct copse_msccl_misfit *m) {
  const struct job *job = t->job;
  const size_t n = (size_t)job->schedule->n_ranks;
  const bool apart = spread.sharing <= COPSE_MSCCL_SHARE_CHANNELS && !job->style.fused;
  for (size_t r = 0; r < n; r++) {
    int to = 0, from = 0, sends = 0, receives = 0, steps, fullest = 0;
    for (size_t other = 0; other < n; other++) {
      size_t out = r * n + other, in = other * n + r;
      to += connections_of(t, spread, out, &steps);
      if (steps > fullest) fullest = steps;
      from += connections_of(t, spread, in, &steps);
      sends += t->runs[0][out] + t->runs[1][out];
      receives += t->runs[0][in] + t->runs[1][in];
    }
    int blocks = apart ? to + from : to > from ? to : from;
    int all = !job->style.fused ? sends + receives : sends > receives ? sends : receives;
    if (over(m, "thread blocks", (int)r, blocks, job->options.max_blocks) ||
        over(m, "elements in the executors' parser", (int)r, 1 + (int)n + blocks + all,
             COPSE_MSCCL_MAX_NODES) ||
        over(m, "steps in one thread block", (int)r, fullest, COPSE_MSCCL_MAX_STEPS) ||
        over(m, "steps", (int)r, all, COPSE_MSCCL_MAX_STEPS * job->options.max_blocks))
      return false;
  }
  return true;
}

/* ---- the search ----------------------------------------------------------------------- */

/* Makes room for the program, and sets the channels that pairs may use. */
static copse_status start(const struct traffic *t, struct spreading spread,
                          struct copse_msccl_program *p, struct copse_err *err) {
  const struct job *job = t->job;
  size_t n = (size_t)job->schedule->n_ranks;
  COPSE_DO(copse_msccl_program_start(p, job->schedule->n_ranks, job->options.max_blocks, err));
  p->end_channel = spread.channels;
  p->sharing = spread.sharing;
  COPSE_DO(COPSE_ARRAYS(&p->arena, n * n, int, err, &p->shares[0], &p->shares[1]));
  for (int kind = 0; kind < 2; kind++)
    for (size_t pair = 0; pair < n * n; pair++)
      p->shares[kind][pair] = share_of(t, spread, kind, t->runs[kind][pair]);
  return COPSE_OK;
}

/* Makes one attempt; COPSE_UNSUPPORTED with *m where it doesn't fit. */
static copse_status attempt(const struct traffic *t, struct spreading spread,
                            struct copse_msccl_program *p, struct copse_msccl_misfit *m,
                            struct copse_err *err) {
  copse_status status = start(t, spread, p, err);
  if (status == COPSE_OK) {
    copse_msccl_emit(&t->job->cut, t->job->style, p);
    status = p->status;
  }
  *m = p->misfit;
  if (status == COPSE_OK && !fits(p, m)) status = COPSE_UNSUPPORTED;
  if (status != COPSE_OK) copse_msccl_program_free(p);
  return status;
}

static bool is_closer(const struct copse_msccl_misfit *a, const struct copse_msccl_misfit *b) {
  if (!b->what || b->need == 0) return a->need > 0 || !b->what;
  return a->need > 0 && a->need - a->limit <= b->need - b->limit;
}

/* Searches for the most channels up to `most` that fit the cut at hand: sends and receives in
 * blocks of their own run at once, so sharing a block comes after fewer channels. */
static copse_status search(const struct job *job, struct copse_msccl_program *p,
                           struct copse_msccl_misfit *m, struct copse_err *err) {
  COPSE_AT_END(free_traffic) struct traffic traffic = {.job = job};
  const struct spreading sparing = {1, COPSE_MSCCL_SHARE_ALL};
  struct copse_msccl_misfit first = {0}, peers;
  int most = job->options.channels ? job->options.channels : COPSE_MSCCL_MAX_CHANNELS;
  COPSE_DO(count_traffic(&traffic, err));
  if (!might_fit(&traffic, sparing, &peers) && strcmp(peers.what, "steps in one thread block")) {
    *m = peers; /* however it is spread */
    return COPSE_UNSUPPORTED;
  }
  for (int sharing = COPSE_MSCCL_SHARE_NONE; sharing <= COPSE_MSCCL_SHARE_ALL; sharing++) {
    struct spreading spread = {most, (enum copse_msccl_sharing)sharing};
    for (; spread.channels >= 1; spread.channels = fewer_channels(spread)) {
      copse_status status = COPSE_UNSUPPORTED;
      if (might_fit(&traffic, spread, m)) status = attempt(&traffic, spread, p, m, err);
      if (status != COPSE_UNSUPPORTED) return status;
      if (is_closer(m, &first)) first = *m;
    }
  }
  *m = first;
  return COPSE_UNSUPPORTED;
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

/* Adds a unit's links. The ways of an alltoall's unit differ in relays alone, which are the
 * executor's choice. */
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

/* Computes the most that the cut at hand adds to a link, as a part of what it carries with exact
 * shares. No link takes longer than the schedule says by more, whatever its bandwidth. */
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
  bool spread; /* copse_chunks_cut */
  double more;
};

static double price(const struct candidate *c) {
  return c->more + (c->block & (c->block - 1) ? COPSE_POLICY_USUAL_SIZES_WORTH : 0);
}

COPSE_ORDER(less_first, struct candidate,
            COPSE_COMPARE(price(a), price(b)) ?: COPSE_UP(block) ?: COPSE_UP(spread))

/* Lists powers of two, which serve the usual sizes, and multiples of them that odd numbers of ranks
 * and trees ask for. */
static int list_candidates(const struct job *job, struct candidate *to) {
  const int factors[] = {1, 3, 5, 7, job->schedule->n_ranks};
  int n = 0, most = COPSE_MSCCL_MAX_CHUNKS / job->cut.blocks;
  if (most > COPSE_POLICY_MOST_ROUNDED) most = COPSE_POLICY_MOST_ROUNDED;
  for (size_t f = 0; f < sizeof factors / sizeof *factors; f++)
    for (int block = factors[f]; block <= most && n < COPSE_POLICY_MOST_CANDIDATES; block *= 2) {
      bool known = false;
      for (int i = 0; i < n; i++) known = known || to[i].block == block;
      if (!known) to[n++] = (struct candidate){.block = block};
    }
  for (int i = 0, all = n; i < all && job->cut.blocks > 1 && job->schedule->n_flows == 0; i++)
    to[n++] = (struct candidate){.block = to[i].block, .spread = true};
  return n;
}

/* Whether so many chunks per block are of no use where `exact` ones do not fit (0: they are too
 * many to be tried): parts that are rounded up to more chunks need as many connections. */
static bool is_finer(int chunks, int exact) { return exact > 0 && chunks >= exact; }

/* Lists the numbers of chunks to round to, those first that add least to links. */
static copse_status list_rounded(struct job *job, struct candidate *list, int *n,
                                 struct copse_err *err) {
  int exact = job->cut.block, n_all = list_candidates(job, list);
  *n = 0;
  for (int i = 0; i < n_all; i++)
    if (!is_finer(list[i].block, exact)) list[(*n)++] = list[i];
  for (int i = 0; i < *n; i++) {
    COPSE_DO(copse_chunks_cut(&job->cut, list[i].block, list[i].spread, err));
    COPSE_DO(added_by_cut(job, &list[i].more, err));
  }
  COPSE_SORT(list, *n, less_first);
  return COPSE_OK;
}

/* Cuts the job into the number of chunks that fits and adds least to links; COPSE_UNSUPPORTED with
 * *m, the closest miss, where none does. */
static copse_status round_shares(struct job *job, struct copse_msccl_program *p,
                                 struct copse_msccl_misfit *m, struct copse_err *err) {
  struct candidate list[2 * COPSE_POLICY_MOST_CANDIDATES];
  struct copse_msccl_misfit miss;
  int n;
  *m = (struct copse_msccl_misfit){0};
  COPSE_DO(list_rounded(job, list, &n, err));
  for (int i = 0; i < n; i++) {
    COPSE_DO(copse_chunks_cut(&job->cut, list[i].block, list[i].spread, err));
    copse_status status = search(job, p, &miss, err);
    if (status != COPSE_UNSUPPORTED) return status;
    if (is_closer(&miss, m)) *m = miss;
  }
  return COPSE_UNSUPPORTED;
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

/* Cuts into the chunks asked for, or as few as the shares need; cut.block is 0 where they need too
 * many. */
static copse_status cut(struct job *job, struct copse_err *err) {
  int64_t block = job->options.chunks;
  COPSE_DO(copse_chunks_start(&job->cut, job->schedule, job->options.instances,
                              COPSE_MSCCL_MAX_COUNT, err));
  if (block == 0) COPSE_DO(copse_chunks_exact(&job->cut, COPSE_MSCCL_MAX_CHUNKS, &block, err));
  if (block * job->cut.blocks <= COPSE_MSCCL_MAX_CHUNKS)
    return copse_chunks_cut(&job->cut, (int)block, false, err);
  if (job->options.chunks == 0) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "%d chunks of each of %d blocks are more than the %d that MSCCL numbers",
                    job->options.chunks, job->cut.blocks, COPSE_MSCCL_MAX_CHUNKS);
}

/* Bounds the bytes: the loop counter of the executors ends at 65536 slots of this size for every
 * chunk. */
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

static copse_status say_misfit(const struct copse_msccl_misfit *m, bool rounded,
                               struct copse_err *err) {
  const char *even = rounded ? ", however its shares are rounded" : "";
  if (m->need > 0)
    return copse_fail(err, COPSE_UNSUPPORTED, "rank %d needs %d %s and may have %d%s", m->rank,
                      m->need, m->what, m->limit, even);
  return copse_fail(err, COPSE_UNSUPPORTED, "rank %d needs more than %d %s%s", m->rank, m->limit,
                    m->what, even);
}

/* Makes the program of exact shares, or of rounded ones. */
static copse_status make_program(struct job *job, struct copse_msccl_program *p, bool *rounded,
                                 struct copse_err *err) {
  struct copse_msccl_misfit misfit = {0}, other;
  copse_status status = COPSE_UNSUPPORTED;
  COPSE_DO(cut(job, err));
  bool too_fine = job->cut.block == 0;
  *rounded = false;
  if (!too_fine) status = search(job, p, &misfit, err);
  if (status == COPSE_UNSUPPORTED && job->options.chunks == 0) {
    status = round_shares(job, p, &other, err);
    *rounded = status == COPSE_OK;
    if (too_fine) misfit = other;
  }
  if (status == COPSE_UNSUPPORTED) return say_misfit(&misfit, too_fine, err);
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
  bool rounded;
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

/* ---- what would fit ------------------------------------------------------------------- */

static int blocks_of(const struct copse_msccl_program *p) {
  int most = 1;
  for (int r = 0; r < p->n_ranks; r++)
    if (p->ranks[r].n > most) most = p->ranks[r].n;
  return most;
}

/* Lowers options.max_blocks to the least with which the cut at hand fits, less one. */
static copse_status spare_blocks(struct job *job, struct copse_err *err) {
  COPSE_AT_END(free_traffic) struct traffic traffic = {.job = job};
  int most = job->options.channels ? job->options.channels : COPSE_MSCCL_MAX_CHANNELS;
  COPSE_DO(count_traffic(&traffic, err));
  for (int sharing = COPSE_MSCCL_SHARE_ALL; sharing >= COPSE_MSCCL_SHARE_NONE; sharing--) {
    struct spreading spread = {most, (enum copse_msccl_sharing)sharing};
    for (; spread.channels >= 1; spread.channels = fewer_channels(spread)) {
      struct copse_msccl_program p;
      struct copse_msccl_misfit m;
      if (job->options.max_blocks < 1 || !might_fit(&traffic, spread, &m)) continue;
      copse_status status = attempt(&traffic, spread, &p, &m, err);
      if (status == COPSE_UNSUPPORTED) continue;
      COPSE_DO(status);
      job->options.max_blocks = blocks_of(&p) - 1;
      copse_msccl_program_free(&p);
    }
  }
  return COPSE_OK;
}

copse_status copse_msccl_least_blocks(const struct copse_schedule *schedule,
                                      const struct copse_msccl_options *options, int most,
                                      int *least_blocks, struct copse_err *err) {
  COPSE_AT_END(end_job) struct job job = {.schedule = schedule, .options = *options};
  struct candidate list[2 * COPSE_POLICY_MOST_CANDIDATES];
  int n = 0;
  *least_blocks = 0;
  struct copse_err why = COPSE_ERR_INIT;
  COPSE_DO(check_options(&job, err));
  copse_status status = cut(&job, &why);
  if (status == COPSE_UNSUPPORTED) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  job.options.max_blocks = most;
  if (job.cut.block > 0) COPSE_DO(spare_blocks(&job, err));
  if (job.options.chunks == 0) COPSE_DO(list_rounded(&job, list, &n, err));
  for (int i = 0; i < n; i++) {
    COPSE_DO(copse_chunks_cut(&job.cut, list[i].block, list[i].spread, err));
    COPSE_DO(spare_blocks(&job, err));
  }
  if (job.options.max_blocks < most) *least_blocks = job.options.max_blocks + 1;
  return COPSE_OK;
}

/* Whether there is a program with other options; *channels and *chunks of it. */
static copse_status try_other(const struct copse_schedule *schedule,
                              const struct copse_msccl_options *options, bool *is, int *channels,
                              int *chunks, struct copse_err *err) {
  COPSE_AT_END(end_job) struct job job = {.schedule = schedule, .options = *options};
  COPSE_AT_END(copse_msccl_program_free) struct copse_msccl_program p = {0};
  struct copse_err why = COPSE_ERR_INIT;
  bool rounded;
  COPSE_DO(check_options(&job, err));
  copse_status status = make_program(&job, &p, &rounded, &why);
  *is = status == COPSE_OK;
  *channels = p.end_channel;
  *chunks = job.cut.block;
  if (*is || status == COPSE_UNSUPPORTED) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

copse_status copse_msccl_advise(const struct copse_schedule *schedule,
                                const struct copse_msccl_options *options, char *advice,
                                size_t size, struct copse_err *err) {
  struct copse_msccl_options other = *options;
  bool is = false;
  int channels, chunks, blocks = 0, most = copse_msccl_default_blocks(options);
  snprintf(advice, size, "only a native plan (--to plan) has no such limit");
  other.channels = 0;
  if (options->channels > 0) COPSE_DO(try_other(schedule, &other, &is, &channels, &chunks, err));
  if (is) snprintf(advice, size, "--channels %d fits", channels);
  if (is) return COPSE_OK;
  other = *options;
  other.chunks = 0;
  if (options->chunks > 0) COPSE_DO(try_other(schedule, &other, &is, &channels, &chunks, err));
  if (is) snprintf(advice, size, "--chunks %d fits", chunks);
  if (is) return COPSE_OK;
  if (options->max_blocks > 0 && options->max_blocks < most)
    COPSE_DO(copse_msccl_least_blocks(schedule, options, most, &blocks, err));
  if (blocks > 0)
    snprintf(advice, size, "--workers %d fits%s", blocks,
             options->chunks == 0 || schedule->no_forward
                 ? ""
                 : " this schedule as it is; others may fit fewer, above all without --chunks");
  if (blocks > 0 || options->instances < 2) return COPSE_OK;
  other = *options;
  other.instances = 1;
  COPSE_DO(try_other(schedule, &other, &is, &channels, &chunks, err));
  if (is) snprintf(advice, size, "--instances 1 fits");
  return COPSE_OK;
}
