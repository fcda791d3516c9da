/*
 * The two-tier planner: reads the counts into the host matrix, has it cut into stages (stages.c),
 * and turns stages into pieces: who has which bytes, over which lane, in which step. Nothing is
 * stored per message; a pair of hosts is walked when somebody asks. The method is in planner.h.
 */
#include "solver/online/planner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/online/internal.h"
#include "solver/policy.h"

/* value * k / n for k <= n without overflow. */
static int64_t part(int64_t value, int64_t k, int64_t n) {
  return value / n * k + value % n * k / n;
}

/* ---- visits: the stages of each pair ----------------------------------------------------- */

/* Lists the visits of all pairs that leave (or enter) `host`, by partner. */
static void list_visits(struct copse_online *o, int host, bool leaving) {
  size_t h = (size_t)o->h;
  const int16_t *partners = (leaving ? o->dst : o->src) + host;
  o->leaving = leaving;
  for (size_t b = 0; b < h; b++) {
    o->head[b] = -1;
    o->last[b] = -1;
    o->done[b] = 0;
  }
  for (int s = 0; s < o->n_stages; s++) {
    int b = partners[(size_t)s * h];
    if (b < 0) continue;
    size_t a = leaving ? (size_t)host * h + (size_t)b : (size_t)b * h + (size_t)host;
    int64_t bytes = copse_smaller(o->duration[s], o->total[a] - o->done[b]);
    o->visits[s] = (struct copse_online_visit){
        .stage = s, .next = -1, .begin = o->done[b], .end = o->done[b] + bytes};
    o->done[b] += bytes;
    if (o->last[b] < 0)
      o->head[b] = s;
    else
      o->visits[o->last[b]].next = s;
    o->last[b] = s;
  }
}

/* ---- one lane ------------------------------------------------------------------------------ */

/*
 * A pair's stream is dealt to its lanes so that of its first x bytes lane i has
 * floor((x + turn_i) / G), where turn is a permutation of 0..G-1: together always x.
 */
struct lane {
  struct copse_online *o;
  copse_online_sink *sink; /* NULL: only counts */
  void *ctx;
  int turn, steps;             /* steps of the visit */
  int visit;                   /* current visit */
  int step;                    /* within the visit */
  int64_t at, until;           /* place in the lane; where the step ends */
  struct copse_online_piece p; /* what stays the same from piece to piece */
};

static void end_step(struct lane *l) {
  const struct copse_online_visit *v = &l->o->visits[l->visit];
  int64_t x = v->begin + part(v->end - v->begin, l->step + 1, l->steps);
  l->until = (x + l->turn) / l->o->g;
  l->p.step = l->o->first_step[v->stage] + l->step;
}

static void begin_visit(struct lane *l, int visit) {
  l->visit = visit;
  l->step = 0;
  if (visit < 0) return;
  int stage = l->o->visits[visit].stage;
  l->steps = l->o->first_step[stage + 1] - l->o->first_step[stage];
  end_step(l);
}

/* Puts a run of bytes of one message on the lane, cut where steps end. (The plan has room for all
 * of them; were the caller to change the counts after planning, what is too much is dropped.) */
static void put_run(struct lane *l, int origin, int final, int64_t offset, int64_t bytes) {
  l->p.origin = origin;
  l->p.final = final;
  while (bytes > 0) {
    while (l->at >= l->until) {
      if (l->visit < 0) return;
      if (++l->step < l->steps)
        end_step(l);
      else
        begin_visit(l, l->o->visits[l->visit].next);
    }
    int64_t n = copse_smaller(bytes, l->until - l->at);
    l->p.offset = offset;
    l->p.bytes = n;
    l->p.lane_offset = l->at;
    l->sink(l->ctx, &l->p);
    l->at += n;
    offset += n;
    bytes -= n;
  }
}

/* ---- a pair of hosts ----------------------------------------------------------------------------
 */

/*
 * What rank i of a sends to b is a line: first for index i+1, i+2, ... of b, round to i itself
 * last. A rank with too much gives away the line's front (the surplus); the tail, which needs
 * no SCATTER, it keeps. A lane carries its own bytes first, so that it can start before any
 * BALANCE, then those it was given, and what stays on its index last.
 */
struct pair {
  struct copse_online *o;
  int a, b;
  int giver;       /* walks the surplus of all ranks, in order */
  int k;           /* place in the giver's line: index (giver + 1 + k) % g */
  int64_t offset;  /* within that message */
  int64_t to_give; /* of the giver's surplus */
};

static int64_t message(const struct pair *p, int i, int j) {
  const struct copse_online *o = p->o;
  size_t row = (size_t)(p->a * o->g + i), col = (size_t)(p->b * o->g + j);
  return o->bytes[row * (size_t)o->n + col];
}

static int64_t has(const struct pair *p, int i) {
  const struct copse_online *o = p->o;
  return o->to_host[(size_t)(p->a * o->g + i) * (size_t)o->h + (size_t)p->b];
}

static int turn_of(const struct pair *p, int i) { return (i + p->a + p->b) % p->o->g; }

static int64_t quota(const struct pair *p, int i) {
  const struct copse_online *o = p->o;
  int64_t total = o->total[(size_t)p->a * (size_t)o->h + (size_t)p->b];
  return (total + turn_of(p, i)) / o->g;
}

static void start_giver(struct pair *p, int i) {
  p->giver = i;
  p->k = 0;
  p->offset = 0;
  p->to_give = i < p->o->g ? has(p, i) - quota(p, i) : 0;
}

/* Hands `need` bytes of surplus to lane `l`; a NULL lane skips them. */
static void put_given(struct pair *p, struct lane *l, int64_t need) {
  int g = p->o->g;
  while (need > 0) {
    while (p->to_give <= 0 || p->k == g) { /* k == g: only if counts changed after planning */
      if (p->giver + 1 == g) return;
      start_giver(p, p->giver + 1);
    }
    int j = (p->giver + 1 + p->k) % g;
    int64_t n = copse_smaller(copse_smaller(need, p->to_give), message(p, p->giver, j) - p->offset);
    if (l && n > 0) put_run(l, p->a * g + p->giver, p->b * g + j, p->offset, n);
    need -= n;
    p->to_give -= n;
    p->offset += n;
    if (p->offset >= message(p, p->giver, j)) {
      p->k++;
      p->offset = 0;
    }
  }
}

/* Lane i's own bytes but those for index i; returns how many of the latter were given away. */
static int64_t put_own(const struct pair *p, struct lane *l, int i, int64_t surplus) {
  int g = p->o->g;
  for (int k = 0; k < g - 1; k++) {
    int j = (i + 1 + k) % g;
    int64_t bytes = message(p, i, j), gone = copse_smaller(surplus, bytes);
    surplus -= gone;
    put_run(l, p->a * g + i, p->b * g + j, gone, bytes - gone);
  }
  return surplus;
}

/* Pieces from host a to host b, of one lane or of all (-1); the visits of a's or b's pairs are in
 * place. */
static void walk_pair(struct copse_online *o, int a, int b, int lane, copse_online_sink *sink,
                      void *ctx) {
  struct pair pair = {.o = o, .a = a, .b = b};
  struct lane l = {.o = o, .sink = sink, .ctx = ctx};
  int first = o->head[o->leaving ? b : a];
  if (first < 0) return;
  start_giver(&pair, 0);
  for (int i = 0; i < o->g && (lane < 0 || i <= lane); i++) {
    int64_t surplus = has(&pair, i) - quota(&pair, i);
    if (lane >= 0 && i != lane) {
      put_given(&pair, NULL, -surplus);
      continue;
    }
    l.p.via_src = a * o->g + i;
    l.p.via_dst = b * o->g + i;
    l.turn = turn_of(&pair, i);
    l.at = 0;
    begin_visit(&l, first);
    int64_t gone = put_own(&pair, &l, i, surplus > 0 ? surplus : 0);
    put_given(&pair, &l, -surplus);
    put_run(&l, a * o->g + i, b * o->g + i, gone, message(&pair, i, i) - gone);
  }
}

/* ---- within a host ---- */

/* A message within a host is spread over the steps, in parts not too small, each pair starting
 * elsewhere. */
static void walk_local_message(const struct copse_online *o, int a, int i, int j,
                               copse_online_sink *sink, void *ctx) {
  struct copse_online_piece p = {
      .origin = a * o->g + i, .final = a * o->g + j, .via_src = -1, .via_dst = -1};
  int64_t bytes = o->bytes[(size_t)p.origin * (size_t)o->n + (size_t)p.final];
  int64_t parts = bytes / o->options.min_message;
  int turn = (j - i + o->g) % o->g;
  if (bytes == 0) return;
  if (parts < 1 || i == j) parts = 1;
  if (parts > o->n_steps) parts = o->n_steps;
  for (int64_t k = 0; k < parts; k++) {
    p.offset = part(bytes, k, parts);
    p.bytes = part(bytes, k + 1, parts) - p.offset;
    p.lane_offset = p.offset;
    p.step = i == j ? 0 : (int)((k * o->n_steps + (int64_t)turn * o->n_steps / o->g) / parts);
    sink(ctx, &p);
  }
}

static void walk_local(struct copse_online *o, int a, copse_online_sink *sink, void *ctx) {
  for (int i = 0; i < o->g; i++)
    for (int k = 0; k < o->g; k++) walk_local_message(o, a, i, (i + k) % o->g, sink, ctx);
}

void copse_online_walk(struct copse_online *o, int host, copse_online_sink *sink, void *ctx) {
  if (!o->bytes) return;
  for (int a = 0; a < o->h; a++) {
    if (host >= 0 && a != host) continue;
    walk_local(o, a, sink, ctx);
    list_visits(o, a, true);
    for (int b = 0; b < o->h; b++)
      if (b != a) walk_pair(o, a, b, -1, sink, ctx);
  }
}

/* ---- what one rank does ---- */

enum { KINDS = 5 };

struct picker {
  struct copse_online *o;
  int rank, which;
  struct copse_online_transfer *out; /* NULL: counts */
  int64_t capacity;
};

static void pick(struct picker *c, enum copse_online_kind kind, int from, int to,
                 const struct copse_online_piece *piece) {
  if (!((from == c->rank && (c->which & COPSE_ONLINE_SENDS)) ||
        (to == c->rank && (c->which & COPSE_ONLINE_RECEIVES))))
    return;
  int64_t *count = &c->o->counts[(int64_t)piece->step * KINDS + kind];
  if (c->out && *count < c->capacity)
    c->out[*count] = (struct copse_online_transfer){kind, from, to, *piece};
  ++*count;
}

static void pick_local(void *ctx, const struct copse_online_piece *p) {
  bool self = p->origin == p->final;
  pick(ctx, self ? COPSE_ONLINE_SELF : COPSE_ONLINE_LOCAL, p->origin, p->final, p);
}

static void pick_leaving(void *ctx, const struct copse_online_piece *p) {
  if (p->origin != p->via_src) pick(ctx, COPSE_ONLINE_BALANCE, p->origin, p->via_src, p);
  pick(ctx, COPSE_ONLINE_INTER, p->via_src, p->via_dst, p);
}

/* INTER of this host's own pairs was picked on leaving: it can't enter the same host. */
static void pick_entering(void *ctx, const struct copse_online_piece *p) {
  pick(ctx, COPSE_ONLINE_INTER, p->via_src, p->via_dst, p);
  if (p->final != p->via_dst) pick(ctx, COPSE_ONLINE_SCATTER, p->via_dst, p->final, p);
}

/* What a rank sends is on its own lane but for what it gives away; it receives from all. */
static void pick_all(struct picker *c) {
  struct copse_online *o = c->o;
  int host = c->rank / o->g, own = c->rank % o->g;
  bool receives = c->which & COPSE_ONLINE_RECEIVES;
  walk_local(o, host, pick_local, c);
  list_visits(o, host, true);
  for (int b = 0; b < o->h; b++) {
    struct pair pair = {.o = o, .a = host, .b = b};
    bool gives = has(&pair, own) > quota(&pair, own);
    if (b != host) walk_pair(o, host, b, gives ? -1 : own, pick_leaving, c);
  }
  list_visits(o, host, false);
  for (int a = 0; a < o->h; a++)
    if (a != host) walk_pair(o, a, host, receives ? -1 : own, pick_entering, c);
}

copse_status copse_online_transfers(struct copse_online *o, int rank, int which,
                                    struct copse_online_transfer *out, int64_t capacity, int64_t *n,
                                    struct copse_err *err) {
  struct picker c = {.o = o, .rank = rank, .which = which};
  size_t cells = (size_t)o->n_steps * KINDS;
  *n = 0;
  if (rank < 0 || rank >= o->n)
    return copse_fail(err, COPSE_INVALID, "rank %d is not in 0..%d", rank, o->n - 1);
  if (!o->bytes) return COPSE_OK;
  /* counted first, then put where they belong: sorted without memory of its own */
  memset(o->counts, 0, cells * sizeof *o->counts);
  pick_all(&c);
  for (size_t i = 0; i < cells; i++) {
    int64_t count = o->counts[i];
    o->counts[i] = *n;
    *n += count;
  }
  if (!out || capacity <= 0) return COPSE_OK;
  c.out = out;
  c.capacity = capacity;
  pick_all(&c);
  return COPSE_OK;
}

/* ---- creation ----------------------------------------------------------------------- */

static copse_status check_model(const struct copse_online_model *m,
                                const struct copse_online_options *o, struct copse_err *err) {
  const int64_t all[] = {m->intra_out, m->intra_in, m->nic, m->scale};
  if (m->hosts < 1 || m->hosts > COPSE_ONLINE_MAX_HOSTS || m->ranks_per_host < 1 ||
      m->ranks_per_host > COPSE_ONLINE_MAX_LOCAL)
    return copse_fail(err, COPSE_INVALID, "%d hosts of %d ranks: 1 to %d of 1 to %d are planned",
                      m->hosts, m->ranks_per_host, COPSE_ONLINE_MAX_HOSTS, COPSE_ONLINE_MAX_LOCAL);
  for (int i = 0; i < 4; i++)
    if (all[i] <= 0 || all[i] > (int64_t)1 << 48)
      return copse_fail(err, COPSE_INVALID, "a bandwidth must be in 1..2^48, not %" PRId64, all[i]);
  if (m->rank_out < 0 || m->rank_in < 0 || m->host_out < 0 || m->host_in < 0)
    return copse_fail(err, COPSE_INVALID, "the bandwidth of a cut can't be negative");
  if (o && (o->steps < 0 || o->steps > COPSE_ONLINE_MAX_STEPS || o->min_message < 0 ||
            o->min_message > (int64_t)1 << 40 || o->tail_divisor < -1))
    return copse_fail(err, COPSE_INVALID, "a planner option is out of range");
  return COPSE_OK;
}

static void set_up(struct copse_online *o, const struct copse_online_model *model,
                   const struct copse_online_options *options) {
  o->model = *model;
  if (options) o->options = *options;
  if (o->options.steps == 0) o->options.steps = COPSE_ONLINE_DEFAULT_STEPS;
  if (o->options.min_message == 0) o->options.min_message = COPSE_ONLINE_DEFAULT_MIN_MESSAGE;
  if (o->options.tail_divisor == 0) o->options.tail_divisor = COPSE_ONLINE_DEFAULT_TAIL_DIVISOR;
  struct copse_online_model *m = &o->model;
  o->h = m->hosts;
  o->g = m->ranks_per_host;
  o->n = o->h * o->g;
  o->words = (o->h + 63) / 64;
  o->tail_words = (2 * o->h + 63) / 64;
  if (m->rank_out == 0) m->rank_out = m->intra_out + m->nic;
  if (m->rank_in == 0) m->rank_in = m->intra_in + m->nic;
  if (m->host_out == 0) m->host_out = o->g * m->nic;
  if (m->host_in == 0) m->host_in = o->g * m->nic;
  int64_t exact = (int64_t)o->h * o->h + 2 * o->h;
  int64_t cap = COPSE_ONLINE_STAGES_PER_HOST * (int64_t)o->h;
  if (cap < COPSE_ONLINE_STAGES_FEWEST) cap = COPSE_ONLINE_STAGES_FEWEST;
  if (o->options.tail_divisor < 0) cap = exact;
  o->max_stages = (int)((exact < cap ? exact : cap) + 2 * o->h);
}

static copse_status allocate_cut(struct copse_online *o, struct copse_err *err) {
  size_t h = (size_t)o->h, words = (size_t)o->words, hh = h * h;
  COPSE_DO(COPSE_ARRAY(&o->arena, hh, o->rest, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int64_t, err, &o->row_slack, &o->col_slack));
  COPSE_DO(COPSE_ARRAY(&o->arena, h * words, o->edges, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, words, uint64_t, err, &o->slack_rows, &o->slack_cols,
                        &o->free_cols, &o->unseen));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int16_t, err, &o->match_row, &o->match_col, &o->parent,
                        &o->queue));
  COPSE_DO(COPSE_ARRAY(&o->arena, 2 * h * (size_t)o->tail_words, o->used, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, hh, uint32_t, err, &o->keys, &o->keys_swap));
  return COPSE_ARRAYS(&o->arena, hh, int32_t, err, &o->order, &o->order_swap);
}

static copse_status allocate(struct copse_online *o, struct copse_err *err) {
  size_t h = (size_t)o->h, n = (size_t)o->n, stages = (size_t)o->max_stages;
  size_t steps = (size_t)o->options.steps;
  COPSE_DO(COPSE_ARRAY(&o->arena, n * h, o->to_host, err));
  COPSE_DO(COPSE_ARRAY(&o->arena, n, o->into, err));
  COPSE_DO(COPSE_ARRAY(&o->arena, h * h, o->total, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int64_t, err, &o->row, &o->col));
  COPSE_DO(allocate_cut(o, err));
  COPSE_DO(COPSE_ARRAY(&o->arena, stages, o->duration, err));
  COPSE_DO(COPSE_ARRAY(&o->arena, stages + 1, o->first_step, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, stages * h, int16_t, err, &o->dst, &o->src));
  COPSE_DO(COPSE_ARRAY(&o->arena, stages, o->visits, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int, err, &o->head, &o->last));
  COPSE_DO(COPSE_ARRAY(&o->arena, h, o->done, err));
  /* the sum of the stages is below 20 times what is needed, even if all of them are tail */
  COPSE_DO(COPSE_ARRAY(&o->arena, 5 * (stages + 20 * steps + 1), o->counts, err));
  return COPSE_OK;
}

static void free_at(struct copse_online **online) { copse_online_free(*online); }

copse_status copse_online_create(const struct copse_online_model *model,
                                 const struct copse_online_options *options,
                                 struct copse_online **out, struct copse_err *err) {
  COPSE_AT_END(free_at) struct copse_online *o = NULL;
  *out = NULL;
  COPSE_DO(check_model(model, options, err));
  COPSE_DO(copse_calloc(1, sizeof *o, &o, err));
  set_up(o, model, options);
  COPSE_DO(allocate(o, err));
  o->bound.bandwidth = 1;
  o->n_steps = 1;
  *out = o;
  o = NULL;
  return COPSE_OK;
}

void copse_online_free(struct copse_online *o) {
  if (!o) return;
  copse_arena_free(&o->arena);
  free(o);
}

/* ---- reading the counts --------------------------------------------------------------- */

/* Sums are taken unsigned, so that bad counts, found afterwards by `seen`, do no harm before. */

/* A host's eight rows at once: a rank's counts for one host are one cache line. */
typedef uint64_t pair_of_counts __attribute__((vector_size(16), aligned(8), may_alias));

static uint64_t read_host_of_8(struct copse_online *o, int a) {
  size_t n = (size_t)o->n, h = (size_t)o->h;
  const int64_t *rows = o->bytes + (size_t)a * 8 * n;
  int64_t *to_host = o->to_host + (size_t)a * 8 * h;
  pair_of_counts seen = {0, 0};
  for (size_t b = 0; b < h; b++) {
    pair_of_counts *into = (pair_of_counts *)(o->into + 8 * b);
    pair_of_counts c0 = into[0], c1 = into[1], c2 = into[2], c3 = into[3];
    uint64_t total = 0;
    for (size_t i = 0; i < 8; i++) {
      const pair_of_counts *p = (const pair_of_counts *)(rows + i * n + 8 * b);
      pair_of_counts v0 = p[0], v1 = p[1], v2 = p[2], v3 = p[3];
      c0 += v0, c1 += v1, c2 += v2, c3 += v3;
      seen |= (v0 | v1) | (v2 | v3);
      pair_of_counts sum = (v0 + v1) + (v2 + v3);
      to_host[i * h + b] = (int64_t)(sum[0] + sum[1]);
      total += sum[0] + sum[1];
    }
    into[0] = c0, into[1] = c1, into[2] = c2, into[3] = c3;
    o->total[(size_t)a * h + b] = (int64_t)total;
  }
  return seen[0] | seen[1];
}

static uint64_t read_host(struct copse_online *o, int a) {
  size_t n = (size_t)o->n, h = (size_t)o->h, g = (size_t)o->g;
  uint64_t seen = 0;
  for (size_t b = 0; b < h; b++) o->total[(size_t)a * h + b] = 0;
  for (size_t i = (size_t)a * g; i < ((size_t)a + 1) * g; i++)
    for (size_t b = 0; b < h; b++) {
      const int64_t *block = o->bytes + i * n + b * g;
      uint64_t sum = 0;
      for (size_t j = 0; j < g; j++) {
        uint64_t v = (uint64_t)block[j];
        o->into[b * g + j] = (int64_t)((uint64_t)o->into[b * g + j] + v);
        seen |= v;
        sum += v;
      }
      o->to_host[i * h + b] = (int64_t)sum;
      o->total[(size_t)a * h + b] = (int64_t)((uint64_t)o->total[(size_t)a * h + b] + sum);
    }
  return seen;
}

copse_status copse_online_check_count(int64_t bytes, int64_t most, int src, int dst,
                                      struct copse_err *err) {
  if (bytes < 0)
    return copse_fail(err, COPSE_INVALID, "rank %d sends %" PRId64 " bytes to rank %d", src, bytes,
                      dst);
  if (bytes > most)
    return copse_fail(err, COPSE_OVERFLOW,
                      "rank %d sends %" PRId64 " bytes to rank %d; at most %" PRId64 " are planned",
                      src, bytes, dst, most);
  return COPSE_OK;
}

/* `seen` has the bits of all counts: only if it is too large need single ones be looked at. */
static copse_status check_counts(const struct copse_online *o, uint64_t seen,
                                 struct copse_err *err) {
  int64_t most = ((int64_t)1 << 62) / ((int64_t)o->n * o->g);
  if (seen <= (uint64_t)most) return COPSE_OK;
  for (int i = 0; i < o->n; i++)
    for (int j = 0; j < o->n; j++)
      COPSE_DO(copse_online_check_count(o->bytes[(size_t)i * (size_t)o->n + (size_t)j], most, i, j,
                                        err));
  return COPSE_OK;
}

static void sum_hosts(struct copse_online *o) {
  size_t h = (size_t)o->h;
  memset(o->row, 0, h * sizeof *o->row);
  memset(o->col, 0, h * sizeof *o->col);
  o->needed = 0;
  for (size_t a = 0; a < h; a++) {
    o->total[a * h + a] = 0;
    int64_t sum = 0;
    for (size_t b = 0; b < h; b++) {
      sum += o->total[a * h + b];
      o->col[b] += o->total[a * h + b];
    }
    o->row[a] = sum;
  }
  for (size_t a = 0; a < h; a++) {
    if (o->row[a] > o->needed) o->needed = o->row[a];
    if (o->col[a] > o->needed) o->needed = o->col[a];
  }
}

/* ---- the lower bound -------------------------------------------------------------------- */

void copse_online_raise_bound(struct copse_online_bound *best, enum copse_online_limit limit,
                              int index, int64_t bytes, int64_t bandwidth) {
  if ((__int128)bytes * best->bandwidth <= (__int128)best->bytes * bandwidth) return;
  best->limit = limit;
  best->index = index;
  best->bytes = bytes;
  best->bandwidth = bandwidth;
}

static void find_bound(struct copse_online *o) {
  const struct copse_online_model *m = &o->model;
  size_t h = (size_t)o->h, n = (size_t)o->n;
  struct copse_online_bound best = {.index = -1, .bandwidth = 1};
  for (size_t i = 0; i < n; i++) {
    int64_t own = o->bytes[i * n + i], out = 0;
    for (size_t b = 0; b < h; b++) out += o->to_host[i * h + b];
    copse_online_raise_bound(&best, COPSE_ONLINE_RANK_OUT, (int)i, out - own, m->rank_out);
    copse_online_raise_bound(&best, COPSE_ONLINE_RANK_IN, (int)i, o->into[i] - own, m->rank_in);
  }
  for (size_t a = 0; a < h; a++) {
    copse_online_raise_bound(&best, COPSE_ONLINE_HOST_OUT, (int)a, o->row[a], m->host_out);
    copse_online_raise_bound(&best, COPSE_ONLINE_HOST_IN, (int)a, o->col[a], m->host_in);
  }
  o->bound = best;
}

/* ---- planning ---------------------------------------------------------------------------- */

copse_status copse_online_plan(struct copse_online *o, const int64_t *bytes,
                               struct copse_err *err) {
  uint64_t seen = 0;
  o->bytes = bytes;
  memset(o->into, 0, (size_t)o->n * sizeof *o->into);
  for (int a = 0; a < o->h; a++) seen |= o->g == 8 ? read_host_of_8(o, a) : read_host(o, a);
  copse_status status = check_counts(o, seen, err);
  if (status != COPSE_OK) {
    o->bytes = NULL;
    o->needed = 0;
    o->n_stages = 0;
    o->n_steps = 1;
    o->bound = (struct copse_online_bound){.index = -1, .bandwidth = 1};
    return status;
  }
  sum_hosts(o);
  find_bound(o);
  copse_online_cut(o);
  return COPSE_OK;
}

void copse_online_bound(const struct copse_online *o, struct copse_online_bound *bound) {
  *bound = o->bound;
  double GBps_seconds = (double)bound->bandwidth / (double)o->model.scale;
  bound->seconds = (double)bound->bytes / 1e9 / GBps_seconds;
}

void copse_online_inter(const struct copse_online *o, int64_t *bound_bytes, int64_t *stage_bytes) {
  *bound_bytes = o->needed;
  *stage_bytes = 0;
  for (int s = 0; s < o->n_stages; s++) *stage_bytes += o->duration[s];
}

int copse_online_stages(const struct copse_online *o) { return o->n_stages; }

int copse_online_steps(const struct copse_online *o) { return o->n_steps; }

void copse_online_stage(const struct copse_online *o, int stage, int64_t *bytes,
                        const int16_t **dst) {
  *bytes = o->duration[stage];
  *dst = o->dst + (size_t)stage * (size_t)o->h;
}
