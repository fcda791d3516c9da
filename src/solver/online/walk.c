/*
 * Turns stages and steps into pieces: who has which bytes, over which lane, in which step. Nothing
 * is stored for a message; a pair of hosts is walked when somebody asks. The forms of plans are in
 * planner.h. docs/theory.md, "src/solver/online/".
 */
#include <string.h>

#include "base/rational.h"
#include "solver/online/internal.h"
#include "solver/policy.h"

/* Returns value * k / n for 0 <= k <= n without overflow. */
static int64_t online_part(int64_t value, int64_t k, int64_t n) {
  return value / n * k + value % n * k / n;
}

/* ---- visits: the stages of each pair ----------------------------------------------------- */

static void add_visit(struct copse_online *o, int at, int partner, int stage, int64_t bytes) {
  o->visits[at] = (struct copse_online_visit){
      .stage = stage, .next = -1, .begin = o->done[partner], .end = o->done[partner] + bytes};
  o->done[partner] += bytes;
  if (o->last[partner] < 0)
    o->head[partner] = at;
  else
    o->visits[o->last[partner]].next = at;
  o->last[partner] = at;
}

/* Lists the visits of all pairs that leave (or enter) `host`, by partner: stages, and the combined
 * steps for what stages leave. */
static void list_visits(struct copse_online *o, int host, bool leaving) {
  size_t h = (size_t)o->h, row = (size_t)host * h;
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
    int64_t all = o->total[leaving ? row + (size_t)b : (size_t)b * h + (size_t)host];
    add_visit(o, s, b, s, copse_smaller(o->duration[s], all - o->done[b]));
  }
  for (int b = 0; b < o->h; b++) {
    int64_t all = o->total[leaving ? row + (size_t)b : (size_t)b * h + (size_t)host];
    if (all > o->done[b]) add_visit(o, o->n_stages + b, b, -1, all - o->done[b]);
  }
}

/* ---- one lane ------------------------------------------------------------------------------ */

/*
 * A pair's stream is dealt to its lanes so that of its first x bytes lane i has
 * floor((x + turn_i) / G), where turn is a permutation of 0..G-1: together always x.
 */
struct lane {
  const struct copse_online *o;
  copse_online_sink *sink; /* NULL: only counts */
  void *ctx;
  int rotation;                /* from host to host */
  int turn, steps;             /* steps of the visit */
  int visit;                   /* current visit */
  int step;                    /* within the visit */
  int64_t at, until;           /* place in the lane; where the step ends */
  struct copse_online_piece p; /* what stays the same from piece to piece */
};

/*
 * Returns the combined step of slice k of n of what one host sends to another. Hosts that go round
 * as far send in one step, so that all send and receive about the same in each; slices of a pair
 * are as far apart as they can be.
 */
static int combined_step(const struct copse_online *o, int rotation, int n, int k) {
  int64_t steps = o->n_steps - o->combined_first, h = o->h;
  return o->combined_first + (int)((k * h + (int64_t)rotation * n % h) * steps / (n * h));
}

/* Returns the slices of what the combined steps carry of a pair: none that is small. */
static int slices(const struct copse_online *o, int64_t bytes) {
  int64_t steps = o->n_steps - o->combined_first;
  int64_t n = bytes / (o->options.min_message * o->g / COPSE_ONLINE_SLICES + 1) + 1;
  return (int)copse_smaller(n, steps);
}

static void end_step(struct lane *l) {
  const struct copse_online_visit *v = &l->o->visits[l->visit];
  int64_t x = v->end;
  if (l->step + 1 < l->steps) x = v->begin + online_part(v->end - v->begin, l->step + 1, l->steps);
  l->until = (x + l->turn) / l->o->g;
  l->p.step = v->stage < 0 ? combined_step(l->o, l->rotation, l->steps, l->step)
                           : l->o->first_step[v->stage] + l->step;
}

static void begin_visit(struct lane *l, int visit) {
  l->visit = visit;
  l->step = 0;
  if (visit < 0) return;
  const struct copse_online_visit *v = &l->o->visits[visit];
  l->steps = v->stage < 0 ? slices(l->o, v->end - v->begin)
                          : l->o->first_step[v->stage + 1] - l->o->first_step[v->stage];
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
 * last. A rank with too much gives away the line's front (the surplus); the tail, which needs no
 * SCATTER, it keeps. A lane carries its own bytes first, so that it can start before any BALANCE,
 * then the bytes that other ranks gave it, and last the bytes that keep their index.
 */
struct pair {
  const struct copse_online *o;
  int a, b;
  int64_t share;   /* total / G of the pair's bytes */
  int odd, shift;  /* total % G, (a + b) % G */
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

static int turn_of(const struct pair *p, int i) {
  return i + p->shift < p->o->g ? i + p->shift : i + p->shift - p->o->g;
}

/* Returns (total + turn) / G. */
static int64_t quota(const struct pair *p, int i) {
  return p->share + (p->odd + turn_of(p, i) >= p->o->g);
}

static struct pair pair_of(const struct copse_online *o, int a, int b) {
  int64_t total = o->total[(size_t)a * (size_t)o->h + (size_t)b];
  return (struct pair){.o = o,
                       .a = a,
                       .b = b,
                       .share = total / o->g,
                       .odd = (int)(total % o->g),
                       .shift = (a + b) % o->g};
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

/* Puts lane i's own bytes but those for index i; returns how many of the latter were given away. */
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

/* Which pieces of a pair of hosts: of all lanes, or of `lane`; of other lanes what its rank gives.
 */
struct wanted {
  int lane; /* -1: all */
  bool gives;
  copse_online_sink *sink;
  void *ctx;
};

/* Walks lane i with all that it carries. */
static void walk_even_lane(struct pair *pair, struct lane *l, int i) {
  int64_t surplus = has(pair, i) - quota(pair, i);
  int64_t gone = put_own(pair, l, i, surplus > 0 ? surplus : 0);
  put_given(pair, l, -surplus);
  put_run(l, pair->a * pair->o->g + i, pair->b * pair->o->g + i, gone, message(pair, i, i) - gone);
}

/* Walks, with the visits of a's or b's pairs in place. */
static void walk_even(struct pair *pair, const struct wanted *want) {
  const struct copse_online *o = pair->o;
  struct lane l = {.o = o, .sink = want->sink, .ctx = want->ctx};
  int first = o->head[o->leaving ? pair->b : pair->a], own = want->lane;
  if (first < 0) return;
  l.rotation = (pair->b - pair->a + o->h) % o->h;
  start_giver(pair, 0);
  for (int i = 0; i < o->g && (own < 0 || want->gives || i <= own); i++) {
    int64_t needs = quota(pair, i) - has(pair, i);
    bool all = own < 0 || i == own;
    if (!all && !(want->gives && needs > 0)) {
      put_given(pair, NULL, needs);
      continue;
    }
    l.p.via_src = pair->a * o->g + i;
    l.p.via_dst = pair->b * o->g + i;
    l.turn = turn_of(pair, i);
    l.at = all ? 0 : has(pair, i) - message(pair, i, i);
    begin_visit(&l, first);
    if (all)
      walk_even_lane(pair, &l, i);
    else
      put_given(pair, &l, needs);
  }
}

/* ---- the form DIRECT ---- */

/* Returns what of a message goes by the sender's lane, in the early steps; the rest is its end. */
static int64_t early_part(const struct copse_online *o, int i, int j, int64_t bytes) {
  if (o->way == COPSE_ONLINE_STRAIGHT) return bytes;
  if (i == j || o->way == COPSE_ONLINE_BY_RECEIVER) return 0;
  if (o->way == COPSE_ONLINE_BY_SENDER) return bytes;
  return bytes - (bytes / 2 & ~(int64_t)15); /* both parts start aligned */
}

/* Puts the early or the late part of a message. */
static void put_direct(const struct pair *pair, int i, int j, bool late,
                       const struct wanted *want) {
  const struct copse_online *o = pair->o;
  int64_t bytes = message(pair, i, j), early = early_part(o, i, j, bytes);
  int64_t rotation = (pair->b - pair->a + o->h) % o->h - 1;
  struct copse_online_piece p = {.origin = pair->a * o->g + i, .final = pair->b * o->g + j};
  p.bytes = late ? bytes - early : early;
  if (p.bytes <= 0) return;
  p.offset = late ? early : 0;
  p.step = (int)(rotation * (late ? o->late : o->early) / (o->h - 1)) + (late ? o->early : 0);
  p.via_src = pair->a * o->g + (late ? j : i);
  p.via_dst = pair->b * o->g + (late || o->way == COPSE_ONLINE_STRAIGHT ? j : i);
  want->sink(want->ctx, &p);
}

/* Walks directly: a lane's early part is of its own rank; its late part is for its own index. */
static void walk_direct(const struct pair *pair, const struct wanted *want) {
  int g = pair->o->g, own = want->lane;
  for (int x = 0; x < g; x++) {
    if (own >= 0 && x != own) {
      if (want->gives) put_direct(pair, own, x, true, want);
      continue;
    }
    for (int k = 1; k <= g; k++) put_direct(pair, x, (x + k) % g, false, want);
    for (int k = 1; k <= g; k++) put_direct(pair, (x + k) % g, x, true, want);
  }
}

static void walk_pair(struct copse_online *o, int a, int b, const struct wanted *want) {
  struct pair pair = pair_of(o, a, b);
  if (o->form == COPSE_ONLINE_EVEN)
    walk_even(&pair, want);
  else
    walk_direct(&pair, want);
}

/* ---- within a host ---- */

/* Walks a message within a host, which is spread over the steps, in parts not too small, each pair
 * starting elsewhere. */
static void walk_local_message(const struct copse_online *o, int a, int i, int j,
                               copse_online_sink *sink, void *ctx) {
  struct copse_online_piece p = {
      .origin = a * o->g + i, .final = a * o->g + j, .via_src = -1, .via_dst = -1};
  int64_t bytes = o->bytes[(size_t)p.origin * (size_t)o->n + (size_t)p.final];
  int64_t parts = bytes / o->options.min_message;
  int turn = (j - i + o->g) % o->g;
  if (bytes == 0) return;
  if (parts < 1 || i == j) parts = 1;
  if (parts > o->options.steps) parts = o->options.steps;
  for (int64_t k = 0; k < parts; k++) {
    p.offset = online_part(bytes, k, parts);
    p.bytes = online_part(bytes, k + 1, parts) - p.offset;
    p.lane_offset = p.offset;
    p.step = i == j ? 0 : (int)((k * o->n_steps + (int64_t)turn * o->n_steps / o->g) / parts);
    sink(ctx, &p);
  }
}

static void walk_local(struct copse_online *o, int a, copse_online_sink *sink, void *ctx) {
  for (int i = 0; i < o->g; i++)
    for (int k = 0; k < o->g; k++) walk_local_message(o, a, i, (i + k) % o->g, sink, ctx);
}

void copse_online_walk(struct copse_online *o, copse_online_sink *sink, void *ctx) {
  const struct wanted all = {.lane = -1, .sink = sink, .ctx = ctx};
  if (!o->bytes) return;
  for (int a = 0; a < o->h; a++) {
    walk_local(o, a, sink, ctx);
    list_visits(o, a, true);
    for (int b = 0; b < o->h; b++)
      if (b != a) walk_pair(o, a, b, &all);
  }
}

/* ---- pieces of one rank ---- */

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

/* Picks what enters. INTER of this host's own pairs was picked on leaving: it can't enter the same
 * host. */
static void pick_entering(void *ctx, const struct copse_online_piece *p) {
  pick(ctx, COPSE_ONLINE_INTER, p->via_src, p->via_dst, p);
  if (p->final != p->via_dst) pick(ctx, COPSE_ONLINE_SCATTER, p->via_dst, p->final, p);
}

/* Picks all pieces of a rank: it sends on its own lane, except for what it hands to others, and
 * receives from all. */
static void pick_all(struct picker *c) {
  struct copse_online *o = c->o;
  int host = c->rank / o->g, own = c->rank % o->g;
  bool receives = c->which & COPSE_ONLINE_RECEIVES;
  const struct wanted leaving = {own, c->which & COPSE_ONLINE_SENDS, pick_leaving, c};
  const struct wanted entering = {receives ? -1 : own, false, pick_entering, c};
  walk_local(o, host, pick_local, c);
  list_visits(o, host, true);
  for (int b = 0; b < o->h; b++)
    if (b != host) walk_pair(o, host, b, &leaving);
  list_visits(o, host, false);
  for (int a = 0; a < o->h; a++)
    if (a != host) walk_pair(o, a, host, &entering);
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
