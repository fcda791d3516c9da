#include "solver/online/planner.h"

#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* ---- an allocation counter ------------------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
static volatile long allocations;
#else
#define COUNTS_ALLOCATIONS 1
static volatile long allocations; /* volatile: the compiler knows that malloc changes nothing */
#define HOOK __attribute__((visibility("default")))
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
HOOK void *malloc(size_t size) {
  allocations++;
  return __libc_malloc(size);
}
HOOK void *calloc(size_t n, size_t size) {
  allocations++;
  return __libc_calloc(n, size);
}
HOOK void *realloc(void *p, size_t size) {
  allocations++;
  return __libc_realloc(p, size);
}
#endif

/* Check's own assertions talk to the parent each time; these hold for every single piece. */
#define REQUIRE(what)                               \
  do {                                              \
    if (!(what)) ck_abort_msg("not so: %s", #what); \
  } while (0)

/* ---- what every plan must satisfy, computed from its pieces alone ---------------------------- */

struct pieces {
  struct copse_online_piece *all;
  size_t n, capacity;
};

static void keep(void *ctx, const struct copse_online_piece *piece) {
  struct pieces *p = ctx;
  if (p->n == p->capacity) {
    p->capacity = p->capacity ? 2 * p->capacity : 1024;
    p->all = realloc(p->all, p->capacity * sizeof *p->all);
    ck_assert_ptr_nonnull(p->all);
  }
  p->all[p->n++] = *piece;
}

struct fixture {
  int h, g, n;
  int64_t *bytes;
  struct copse_online *online;
  struct pieces pieces;
};

static struct copse_online *planner(int h, int g, int tail_divisor) {
  struct copse_online_model model = {
      .hosts = h, .ranks_per_host = g, .intra_out = 300, .intra_in = 300, .nic = 25, .scale = 1};
  struct copse_online_options options = {
      .steps = 16, .min_message = 64, .tail_divisor = tail_divisor};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_online *online;
  ASSERT_OK(copse_online_create(&model, &options, &online, &err), &err);
  return online;
}

static void set_up(struct fixture *f, int h, int g, int tail_divisor) {
  *f = (struct fixture){.h = h, .g = g, .n = h * g};
  f->bytes = calloc((size_t)f->n * (size_t)f->n, sizeof *f->bytes);
  ck_assert_ptr_nonnull(f->bytes);
  f->online = planner(h, g, tail_divisor);
}

static void tear_down(struct fixture *f) {
  copse_online_free(f->online);
  free(f->bytes);
  free(f->pieces.all);
}

static int64_t *cell(const struct fixture *f, int i, int j) {
  return &f->bytes[(size_t)i * (size_t)f->n + (size_t)j];
}

static void plan(struct fixture *f) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_online_plan(f->online, f->bytes, &err), &err);
  f->pieces.n = 0;
  copse_online_walk(f->online, -1, keep, &f->pieces);
}

static int compare64(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

static int by_message(const void *x, const void *y) {
  const struct copse_online_piece *a = x, *b = y;
  if (a->origin != b->origin) return compare64(a->origin, b->origin);
  if (a->final != b->final) return compare64(a->final, b->final);
  return compare64(a->offset, b->offset);
}

/* Each byte of each message is in exactly one piece. */
static void check_every_byte_once(struct fixture *f) {
  const struct copse_online_piece *p = f->pieces.all;
  size_t k = 0;
  if (f->pieces.n > 0) qsort(f->pieces.all, f->pieces.n, sizeof *p, by_message);
  for (int i = 0; i < f->n; i++)
    for (int j = 0; j < f->n; j++) {
      int64_t at = 0;
      for (; k < f->pieces.n && p[k].origin == i && p[k].final == j; k++) {
        REQUIRE(p[k].offset == at);
        REQUIRE(p[k].bytes > 0);
        at += p[k].bytes;
      }
      REQUIRE(at == *cell(f, i, j));
    }
  REQUIRE(k == f->pieces.n);
}

static void check_route(const struct fixture *f, const struct copse_online_piece *p) {
  REQUIRE(p->step >= 0 && p->step < copse_online_steps(f->online));
  if (p->origin / f->g == p->final / f->g) {
    REQUIRE(p->via_src == -1 && p->via_dst == -1);
    return;
  }
  REQUIRE(p->via_src / f->g == p->origin / f->g);
  REQUIRE(p->via_dst / f->g == p->final / f->g);
  REQUIRE(p->via_src % f->g == p->via_dst % f->g); /* rails join equal indices */
}

static int by_lane(const void *x, const void *y) {
  const struct copse_online_piece *a = x, *b = y;
  if (a->via_src != b->via_src) return compare64(a->via_src, b->via_src);
  if (a->via_dst != b->via_dst) return compare64(a->via_dst, b->via_dst);
  return compare64(a->lane_offset, b->lane_offset);
}

/* A lane's places are taken once, in the order of steps; lanes of a pair of hosts are even. */
static void check_lanes(struct fixture *f) {
  const struct copse_online_piece *p = f->pieces.all;
  if (f->pieces.n > 0) qsort(f->pieces.all, f->pieces.n, sizeof *p, by_lane);
  for (size_t k = 0; k < f->pieces.n;) {
    size_t first = k;
    int64_t at = 0, total = 0;
    check_route(f, &p[k]);
    if (p[k].via_src < 0) {
      k++;
      continue;
    }
    for (; k < f->pieces.n && p[k].via_src == p[first].via_src && p[k].via_dst == p[first].via_dst;
         k++) {
      check_route(f, &p[k]);
      REQUIRE(p[k].lane_offset == at);
      if (k > first) REQUIRE(p[k].step >= p[k - 1].step);
      at += p[k].bytes;
    }
    int a = p[first].via_src / f->g, b = p[first].via_dst / f->g;
    for (int i = 0; i < f->g * f->g; i++)
      total += *cell(f, a * f->g + i / f->g, b * f->g + i % f->g);
    REQUIRE(at == total / f->g || at == total / f->g + (total % f->g > 0));
  }
}

/* In a step no NIC sends to two, and none receives from two. */
static void check_no_incast(const struct fixture *f) {
  size_t cells = (size_t)copse_online_steps(f->online) * (size_t)f->n;
  int *to = malloc(cells * sizeof *to), *from = malloc(cells * sizeof *from);
  REQUIRE(to && from);
  memset(to, 0xff, cells * sizeof *to);
  memset(from, 0xff, cells * sizeof *from);
  for (size_t k = 0; k < f->pieces.n; k++) {
    const struct copse_online_piece *p = &f->pieces.all[k];
    if (p->via_src < 0) continue;
    int *t = &to[(size_t)p->step * (size_t)f->n + (size_t)p->via_src];
    int *s = &from[(size_t)p->step * (size_t)f->n + (size_t)p->via_dst];
    REQUIRE(*t == -1 || *t == p->via_dst);
    REQUIRE(*s == -1 || *s == p->via_src);
    *t = p->via_dst;
    *s = p->via_src;
  }
  free(to);
  free(from);
}

/* The largest row or column sum between hosts, from the counts alone. */
static int64_t host_bound(const struct fixture *f) {
  int64_t best = 0;
  for (int a = 0; a < f->h; a++) {
    int64_t out = 0, in = 0;
    for (int i = 0; i < f->n; i++)
      for (int j = 0; j < f->n; j++) {
        if (i / f->g == a && j / f->g != a) out += *cell(f, i, j);
        if (i / f->g != a && j / f->g == a) in += *cell(f, i, j);
      }
    if (out > best) best = out;
    if (in > best) best = in;
  }
  return best;
}

/* Stages are one-to-one, carry every host's bytes, and together last as long as they must, and
 * at most so many percent longer. */
static void check_stages(const struct fixture *f, int percent) {
  int64_t *rest = calloc((size_t)(f->h * f->h), sizeof *rest), bound, sum, total = 0;
  ck_assert_ptr_nonnull(rest);
  for (int i = 0; i < f->n; i++)
    for (int j = 0; j < f->n; j++)
      if (i / f->g != j / f->g) rest[i / f->g * f->h + j / f->g] += *cell(f, i, j);
  for (int s = 0; s < copse_online_stages(f->online); s++) {
    uint64_t seen[(COPSE_ONLINE_MAX_HOSTS + 63) / 64] = {0};
    const int16_t *dst;
    int64_t bytes;
    copse_online_stage(f->online, s, &bytes, &dst);
    for (int a = 0; a < f->h; a++) {
      if (dst[a] < 0) continue;
      int64_t *r = &rest[a * f->h + dst[a]];
      REQUIRE(dst[a] != a && !(seen[dst[a] / 64] >> dst[a] % 64 & 1));
      seen[dst[a] / 64] |= (uint64_t)1 << dst[a] % 64;
      *r -= *r < bytes ? *r : bytes;
    }
    total += bytes;
  }
  for (int i = 0; i < f->h * f->h; i++) REQUIRE(rest[i] == 0);
  copse_online_inter(f->online, &bound, &sum);
  REQUIRE(bound == host_bound(f));
  REQUIRE(sum == total);
  REQUIRE(total >= bound);
  REQUIRE(total - bound <= bound / 100 * percent + percent);
  free(rest);
}

/* The same from the pieces: a NIC's bytes per step, the longest of each step added up. */
static void check_nic_time(const struct fixture *f) {
  size_t steps = (size_t)copse_online_steps(f->online), n = (size_t)f->n;
  int64_t *load = calloc(steps * n, sizeof *load), total = 0, bound, stage_bytes;
  ck_assert_ptr_nonnull(load);
  for (size_t k = 0; k < f->pieces.n; k++)
    if (f->pieces.all[k].via_src >= 0)
      load[(size_t)f->pieces.all[k].step * n + (size_t)f->pieces.all[k].via_src] +=
          f->pieces.all[k].bytes;
  for (size_t s = 0; s < steps; s++) {
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
      if (load[s * n + i] > most) most = load[s * n + i];
    total += most;
  }
  copse_online_inter(f->online, &bound, &stage_bytes);
  REQUIRE(total <= stage_bytes / f->g + 2 * (int64_t)steps); /* rounding: 2 bytes a step */
  free(load);
}

static void check_plan(struct fixture *f, int percent) {
  plan(f);
  check_no_incast(f);
  check_nic_time(f);
  check_lanes(f);
  check_every_byte_once(f);
  check_stages(f, percent);
}

/* ---- demands ------------------------------------------------------------------------------------
 */

enum { DEMANDS = 13 };

static void fill(struct fixture *f, int which, int64_t m, uint64_t *state) {
  for (int i = 0; i < f->n; i++)
    for (int j = 0; j < f->n; j++) {
      int64_t v = 0, some = (int64_t)(copse_test_random(state) % (uint64_t)(2 * m));
      switch (which) {
        case 0: break;                                              /* nothing */
        case 1: v = i == j ? m : 0; break;                          /* diagonal only */
        case 2: v = m; break;                                       /* uniform */
        case 3: v = some; break;                                    /* random */
        case 4: v = m / ((j * 7 + 3) % f->n + 1); break;            /* Zipf's experts */
        case 5: v = j == f->n / 2 ? some : 0; break;                /* one hot expert */
        case 6: v = i < f->g ? some : 0; break;                     /* one host sends all */
        case 7: v = i == f->n - 1 ? some : 0; break;                /* one rank sends all */
        case 8: v = i % 3 == 0 ? some : 0; break;                   /* empty rows */
        case 9: v = j % 3 == 0 ? some : 0; break;                   /* empty columns */
        case 10: v = some % 4; break;                               /* 0 to 3 bytes */
        case 11: v = some % 5 == 0 ? m << some % 12 : 0; break;     /* sparse, of all sizes */
        default: v = i / f->g == j / f->g ? some : some % 2; break; /* mostly inside */
      }
      *cell(f, i, j) = v;
    }
}

START_TEST(every_byte_goes_once_without_incast_at_the_bound) {
  uint64_t state = 7;
  for (int h = 1; h <= 9; h++)
    for (int g = 1; g <= 9; g += g == 3 ? 2 : h % 2 + 1) {
      struct fixture f;
      set_up(&f, h, g, -1);
      for (int which = 0; which < DEMANDS; which++) {
        fill(&f, which, 100000, &state);
        check_plan(&f, 0);
      }
      tear_down(&f);
    }
}
END_TEST

START_TEST(with_a_tail_the_excess_stays_small) {
  uint64_t state = 8;
  for (int h = 8; h <= 66; h += 29)
    for (int which = 0; which < DEMANDS; which++) {
      struct fixture f;
      set_up(&f, h, 4, 0);
      fill(&f, which, 1000000, &state);
      check_plan(&f, 1);
      tear_down(&f);
    }
}
END_TEST

/* At most twice the harmonic number of 33 hosts, 4.09; a plan of one message per pair of hosts. */
START_TEST(a_plan_that_is_all_tail_has_few_stages) {
  uint64_t state = 14;
  for (int which = 0; which < DEMANDS; which++) {
    struct fixture f;
    set_up(&f, 33, 2, 1);
    fill(&f, which, 1000000, &state);
    check_plan(&f, 718);
    ck_assert_int_le(copse_online_stages(f.online), 2 * 32 - 1);
    tear_down(&f);
  }
}
END_TEST

START_TEST(random_shapes_hold) {
  uint64_t state = 9;
  for (int round = 0; round < 150; round++) {
    struct fixture f;
    set_up(&f, copse_test_random_int(&state, 1, 14), copse_test_random_int(&state, 1, 8),
           round % 2 ? -1 : 0);
    int fullness = copse_test_random_int(&state, 1, 10);
    for (int i = 0; i < f.n * f.n; i++)
      if (copse_test_random_int(&state, 1, 10) <= fullness)
        f.bytes[i] =
            (int64_t)(copse_test_random(&state) % 1000000) >> copse_test_random_int(&state, 0, 19);
    check_plan(&f, round % 2 ? 0 : 1);
    tear_down(&f);
  }
}
END_TEST

START_TEST(nothing_to_send_is_an_empty_plan) {
  struct fixture f;
  struct copse_online_bound bound;
  set_up(&f, 3, 2, 0);
  plan(&f);
  copse_online_bound(f.online, &bound);
  ck_assert_uint_eq(f.pieces.n, 0);
  ck_assert_int_eq(copse_online_stages(f.online), 0);
  ck_assert(bound.limit == COPSE_ONLINE_NOTHING && bound.bytes == 0 && bound.seconds == 0);
  tear_down(&f);
}
END_TEST

/* ---- hops by rank
 * ---------------------------------------------------------------------------------- */

static uint64_t hash(const struct copse_online_transfer *t) {
  uint64_t z = (uint64_t)t->kind * 31 + (uint64_t)t->from * 1009 + (uint64_t)t->to;
  const int64_t all[] = {t->piece.step,   t->piece.origin, t->piece.final,
                         t->piece.offset, t->piece.bytes,  t->piece.lane_offset};
  for (int i = 0; i < 6; i++) z = copse_test_random(&z) ^ (uint64_t)all[i];
  return copse_test_random(&z);
}

static void add_hop(struct copse_online_transfer t, enum copse_online_kind kind, int from, int to,
                    uint64_t *sum, int64_t *n) {
  t.kind = kind;
  t.from = from;
  t.to = to;
  *sum += hash(&t);
  ++*n;
}

/* All hops that the pieces need, as a sum that does not depend on their order. */
static uint64_t needed_hops(const struct fixture *f, int64_t *n) {
  uint64_t sum = 0;
  *n = 0;
  for (size_t k = 0; k < f->pieces.n; k++) {
    struct copse_online_transfer t = {.piece = f->pieces.all[k]};
    const struct copse_online_piece *p = &t.piece;
    if (p->via_src < 0) {
      add_hop(t, p->origin == p->final ? COPSE_ONLINE_SELF : COPSE_ONLINE_LOCAL, p->origin,
              p->final, &sum, n);
      continue;
    }
    if (p->origin != p->via_src) add_hop(t, COPSE_ONLINE_BALANCE, p->origin, p->via_src, &sum, n);
    add_hop(t, COPSE_ONLINE_INTER, p->via_src, p->via_dst, &sum, n);
    if (p->final != p->via_dst) add_hop(t, COPSE_ONLINE_SCATTER, p->via_dst, p->final, &sum, n);
  }
  return sum;
}

static uint64_t listed_hops(const struct fixture *f, int which, int64_t *n) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t sum = 0;
  *n = 0;
  for (int r = 0; r < f->n; r++) {
    int64_t m, again;
    ASSERT_OK(copse_online_transfers(f->online, r, which, NULL, 0, &m, &err), &err);
    struct copse_online_transfer *out = calloc((size_t)m + 1, sizeof *out);
    ck_assert_ptr_nonnull(out);
    out[m].from = -77; /* must stay */
    ASSERT_OK(copse_online_transfers(f->online, r, which, out, m, &again, &err), &err);
    REQUIRE(m == again);
    REQUIRE(out[m].from == -77);
    for (int64_t k = 0; k < m; k++) {
      REQUIRE((which == COPSE_ONLINE_SENDS ? out[k].from : out[k].to) == r);
      if (k > 0)
        REQUIRE(out[k].piece.step * 8 + (int)out[k].kind >=
                out[k - 1].piece.step * 8 + (int)out[k - 1].kind);
      sum += hash(&out[k]);
    }
    *n += m;
    free(out);
  }
  return sum;
}

START_TEST(sends_and_receives_are_the_hops_of_the_pieces) {
  uint64_t state = 10;
  for (int which = 0; which < DEMANDS; which++) {
    struct fixture f;
    int64_t n, sends, receives;
    set_up(&f, 5, 3, 0);
    fill(&f, which, 5000, &state);
    plan(&f);
    uint64_t sum = needed_hops(&f, &n);
    ck_assert_uint_eq(listed_hops(&f, COPSE_ONLINE_SENDS, &sends), sum);
    ck_assert_uint_eq(listed_hops(&f, COPSE_ONLINE_RECEIVES, &receives), sum);
    ck_assert(sends == n && receives == n);
    tear_down(&f);
  }
}
END_TEST

START_TEST(a_small_capacity_is_kept) {
  struct fixture f;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_online_transfer out[4];
  int64_t n;
  uint64_t state = 3;
  set_up(&f, 3, 3, 0);
  fill(&f, 3, 5000, &state);
  plan(&f);
  memset(out, 0x55, sizeof out);
  ASSERT_OK(copse_online_transfers(f.online, 4, COPSE_ONLINE_SENDS, out, 3, &n, &err), &err);
  ck_assert_int_gt(n, 4);
  ck_assert_int_eq(out[2].from, 4);
  ck_assert_int_eq(out[3].from, 0x55555555);
  ASSERT_FAILS(copse_online_transfers(f.online, 9, 1, NULL, 0, &n, &err), COPSE_INVALID, &err,
               "not in 0..8");
  tear_down(&f);
}
END_TEST

/* ---- determinism, memory
 * ------------------------------------------------------------------------------ */

START_TEST(every_rank_computes_the_same_plan) {
  uint64_t state = 11;
  struct fixture f, other;
  set_up(&f, 9, 4, 0);
  set_up(&other, 9, 4, 0);
  fill(&other, 4, 1 << 20, &state); /* another past */
  plan(&other);
  for (int which = 0; which < DEMANDS; which++) {
    fill(&f, which, 30000, &state);
    memcpy(other.bytes, f.bytes, (size_t)(f.n * f.n) * sizeof *f.bytes);
    plan(&f);
    plan(&other);
    ck_assert_uint_eq(f.pieces.n, other.pieces.n);
    for (size_t k = 0; k < f.pieces.n; k++) {
      struct copse_online_transfer a = {.piece = f.pieces.all[k]},
                                   b = {.piece = other.pieces.all[k]};
      REQUIRE(hash(&a) == hash(&b));
      REQUIRE(a.piece.via_src == b.piece.via_src && a.piece.via_dst == b.piece.via_dst);
    }
  }
  tear_down(&f);
  tear_down(&other);
}
END_TEST

START_TEST(planning_allocates_nothing) {
  static struct copse_online_transfer out[100000];
  uint64_t state = 12;
  struct fixture f;
  struct copse_err err = COPSE_ERR_INIT;
  if (!COUNTS_ALLOCATIONS) COPSE_SKIP("allocations are not counted under a sanitizer");
  set_up(&f, 8, 8, 0);
  long before = allocations;
  void *volatile p = malloc(16);
  free(p);
  ck_assert_int_gt(allocations, before); /* the counter counts */
  for (int which = 0; which < DEMANDS; which++) {
    int64_t n;
    fill(&f, which, 1 << 20, &state);
    before = allocations;
    copse_status status = copse_online_plan(f.online, f.bytes, &err);
    copse_status listed = copse_online_transfers(f.online, 5, 3, out, 100000, &n, &err);
    long after = allocations;
    ck_assert(status == COPSE_OK && listed == COPSE_OK);
    ck_assert_int_eq(after, before);
  }
  tear_down(&f);
}
END_TEST

/* ---- the bound, and counts that are too large
 * ------------------------------------------------------------ */

/* max over ranks and hosts, in seconds at 1 unit = 1 GB/s, by floating point. */
static double bound_by_hand(const struct fixture *f) {
  double best = (double)host_bound(f) / (25.0 * f->g);
  for (int r = 0; r < f->n; r++) {
    double out = 0, in = 0;
    for (int i = 0; i < f->n; i++) {
      if (i == r) continue;
      out += (double)*cell(f, r, i);
      in += (double)*cell(f, i, r);
    }
    if (out / 325 > best) best = out / 325;
    if (in / 325 > best) best = in / 325;
  }
  return best / 1e9;
}

START_TEST(the_bound_is_the_worst_port_or_host) {
  uint64_t state = 13;
  for (int h = 1; h <= 6; h++)
    for (int which = 0; which < DEMANDS; which++) {
      struct fixture f;
      struct copse_online_bound bound;
      set_up(&f, h, which % 2 ? 8 : 3, 0); /* 8 a host are read by code of their own */
      fill(&f, which, 1 << 20, &state);
      plan(&f);
      copse_online_bound(f.online, &bound);
      double want = bound_by_hand(&f);
      ck_assert(bound.seconds >= want * (1 - 1e-12) && bound.seconds <= want * (1 + 1e-12));
      tear_down(&f);
    }
}
END_TEST

START_TEST(counts_up_to_the_limit_are_exact) {
  struct fixture f;
  struct copse_err err = COPSE_ERR_INIT;
  int64_t most = ((int64_t)1 << 62) / (6 * 2), bound, sum;
  set_up(&f, 3, 2, 0);
  for (int i = 0; i < 36; i++) f.bytes[i] = most;
  check_plan(&f, 0);
  copse_online_inter(f.online, &bound, &sum);
  ck_assert_int_eq(bound, 8 * most);
  f.bytes[35] = most + 1;
  ASSERT_FAILS(copse_online_plan(f.online, f.bytes, &err), COPSE_OVERFLOW, &err, "rank 5 sends");
  f.pieces.n = 0;
  copse_online_walk(f.online, -1, keep, &f.pieces);
  ck_assert_uint_eq(f.pieces.n, 0); /* no plan after a failure */
  tear_down(&f);
}
END_TEST

START_TEST(a_negative_count_is_named) {
  for (int g = 1; g <= 8; g += 7) { /* 8 ranks a host are read by code of their own */
    struct fixture f;
    struct copse_err err = COPSE_ERR_INIT;
    set_up(&f, 2, g, 0);
    *cell(&f, 1, 0) = -5;
    *cell(&f, 0, 1) = INT64_MAX;
    ASSERT_FAILS(copse_online_plan(f.online, f.bytes, &err), COPSE_OVERFLOW, &err, "rank 0 sends");
    err = (struct copse_err)COPSE_ERR_INIT;
    *cell(&f, 0, 1) = 0;
    ASSERT_FAILS(copse_online_plan(f.online, f.bytes, &err), COPSE_INVALID, &err,
                 "rank 1 sends -5 bytes to rank 0");
    *cell(&f, 1, 0) = 5;
    plan(&f);
    ck_assert_uint_gt(f.pieces.n, 0); /* and the planner works on */
    tear_down(&f);
  }
}
END_TEST

START_TEST(counts_changed_after_planning_do_no_harm) {
  uint64_t state = 15;
  for (int which = 0; which < DEMANDS; which++) {
    struct fixture f;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_online_transfer out[50];
    int64_t n;
    set_up(&f, 4, 3, 0);
    fill(&f, 3, 10000, &state);
    plan(&f);
    fill(&f, which, 20000, &state);
    copse_online_walk(f.online, -1, keep, &f.pieces);
    for (int r = 0; r < f.n; r++)
      ASSERT_OK(copse_online_transfers(f.online, r, 3, out, 50, &n, &err), &err);
    tear_down(&f);
  }
}
END_TEST

START_TEST(models_out_of_range_are_refused) {
  struct copse_online_model good = {
      .hosts = 2, .ranks_per_host = 2, .intra_out = 3, .intra_in = 3, .nic = 1, .scale = 1};
  struct copse_online_options options = {.tail_divisor = -2};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_online *online;
  struct copse_online_model bad = good;
  bad.hosts = 0;
  ASSERT_FAILS(copse_online_create(&bad, NULL, &online, &err), COPSE_INVALID, &err, "0 hosts");
  ck_assert_ptr_null(online);
  bad = good;
  bad.nic = 0;
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_online_create(&bad, NULL, &online, &err), COPSE_INVALID, &err, "bandwidth");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_online_create(&good, &options, &online, &err), COPSE_INVALID, &err, "option");
  copse_online_free(NULL);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/online");
  TCase *tests = tcase_create("all");
  tcase_add_test(tests, every_byte_goes_once_without_incast_at_the_bound);
  tcase_add_test(tests, with_a_tail_the_excess_stays_small);
  tcase_add_test(tests, a_plan_that_is_all_tail_has_few_stages);
  tcase_add_test(tests, random_shapes_hold);
  tcase_add_test(tests, nothing_to_send_is_an_empty_plan);
  tcase_add_test(tests, sends_and_receives_are_the_hops_of_the_pieces);
  tcase_add_test(tests, a_small_capacity_is_kept);
  tcase_add_test(tests, every_rank_computes_the_same_plan);
  tcase_add_test(tests, planning_allocates_nothing);
  tcase_add_test(tests, the_bound_is_the_worst_port_or_host);
  tcase_add_test(tests, counts_up_to_the_limit_are_exact);
  tcase_add_test(tests, a_negative_count_is_named);
  tcase_add_test(tests, counts_changed_after_planning_do_no_harm);
  tcase_add_test(tests, models_out_of_range_are_refused);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
