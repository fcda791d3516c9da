/* From stages to pieces: who has which bytes, over which lane, in which step. Nothing here is
 * stored per message; a pair of hosts is walked when somebody asks. */
#include <inttypes.h>
#include <string.h>

#include "base/rational.h"
#include "solver/online/internal.h"

/* value * k / n for k <= n without overflow. */
static int64_t part(int64_t value, int64_t k, int64_t n) {
  return value / n * k + value % n * k / n;
}

/* ---- visits: the stages of each pair ----------------------------------------------------- */

void copse_online_list_visits(struct copse_online *o, int host, bool leaving) {
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

void copse_online_walk_pair(struct copse_online *o, int a, int b, int lane, copse_online_sink *sink,
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

/* ---- within a host
 * --------------------------------------------------------------------------------- */

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

void copse_online_walk_local(struct copse_online *o, int a, copse_online_sink *sink, void *ctx) {
  for (int i = 0; i < o->g; i++)
    for (int k = 0; k < o->g; k++) walk_local_message(o, a, i, (i + k) % o->g, sink, ctx);
}

void copse_online_walk(struct copse_online *o, int host, copse_online_sink *sink, void *ctx) {
  if (!o->bytes) return;
  for (int a = 0; a < o->h; a++) {
    if (host >= 0 && a != host) continue;
    copse_online_walk_local(o, a, sink, ctx);
    copse_online_list_visits(o, a, true);
    for (int b = 0; b < o->h; b++)
      if (b != a) copse_online_walk_pair(o, a, b, -1, sink, ctx);
  }
}

/* ---- what one rank does
 * ------------------------------------------------------------------------------- */

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
  copse_online_walk_local(o, host, pick_local, c);
  copse_online_list_visits(o, host, true);
  for (int b = 0; b < o->h; b++) {
    struct pair pair = {.o = o, .a = host, .b = b};
    bool gives = has(&pair, own) > quota(&pair, own);
    if (b != host) copse_online_walk_pair(o, host, b, gives ? -1 : own, pick_leaving, c);
  }
  copse_online_list_visits(o, host, false);
  for (int a = 0; a < o->h; a++)
    if (a != host) copse_online_walk_pair(o, a, host, receives ? -1 : own, pick_entering, c);
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
