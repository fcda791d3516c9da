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
  bool flat;
  int64_t *bytes;
  struct copse_online *online;
  struct pieces pieces;
};

/* How a planner is made. BYTES: no latency at all. SHORT, LONG: hops take 100 ns, which is 2500
 * bytes of a NIC, or 1 ms. FLAT: LONG, on a fabric that joins all NICs. */
enum how { ONE_TO_ONE, BYTES, SHORT, LONG, FLAT, HOWS };

static const struct copse_online_model rails = {.intra_out = 300,
                                                .intra_in = 300,
                                                .nic = 25,
                                                .scale = 1,
                                                .hub_ns = 7,
                                                .fabric_ns = 30,
                                                .separate = true};

static struct copse_online *planner(int h, int g, enum how how) {
  struct copse_online_model model = rails;
  struct copse_online_options options = {
      .steps = 16, .min_message = 64, .one_to_one = how == ONE_TO_ONE};
  model.hosts = h;
  model.ranks_per_host = g;
  model.hop_ns = how >= LONG ? 1000000 : how == SHORT ? 100 : 0;
  model.flat = how == FLAT;
  if (how < SHORT) model.hub_ns = model.fabric_ns = 0;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_online *online;
  ASSERT_OK(copse_online_create(&model, &options, &online, &err), &err);
  return online;
}

static void set_up(struct fixture *f, int h, int g, enum how how) {
  *f = (struct fixture){.h = h, .g = g, .n = h * g, .flat = how == FLAT};
  f->bytes = calloc((size_t)f->n * (size_t)f->n, sizeof *f->bytes);
  ck_assert_ptr_nonnull(f->bytes);
  f->online = planner(h, g, how);
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
  copse_online_walk(f->online, keep, &f->pieces);
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

static bool direct(const struct fixture *f) {
  return copse_online_form_of(f->online) == COPSE_ONLINE_DIRECT;
}

static void check_route(const struct fixture *f, const struct copse_online_piece *p) {
  REQUIRE(p->step >= 0 && p->step < copse_online_steps(f->online, NULL));
  if (p->origin / f->g == p->final / f->g) {
    REQUIRE(p->via_src == -1 && p->via_dst == -1);
    return;
  }
  REQUIRE(p->via_src / f->g == p->origin / f->g);
  REQUIRE(p->via_dst / f->g == p->final / f->g);
  bool straight = f->flat && p->via_src == p->origin && p->via_dst == p->final;
  REQUIRE(straight || p->via_src % f->g == p->via_dst % f->g); /* rails join equal indices */
  if (direct(f)) REQUIRE(p->via_src == p->origin || p->via_dst == p->final); /* two hops at most */
}

static int by_lane(const void *x, const void *y) {
  const struct copse_online_piece *a = x, *b = y;
  if (a->via_src != b->via_src) return compare64(a->via_src, b->via_src);
  if (a->via_dst != b->via_dst) return compare64(a->via_dst, b->via_dst);
  return compare64(a->lane_offset, b->lane_offset);
}

/* EVEN: a lane's places are taken once, in the order of steps; lanes of a pair of hosts are even.
 */
static void check_lanes(struct fixture *f) {
  const struct copse_online_piece *p = f->pieces.all;
  for (size_t k = 0; k < f->pieces.n; k++) check_route(f, &p[k]);
  if (f->pieces.n == 0 || direct(f)) return;
  qsort(f->pieces.all, f->pieces.n, sizeof *p, by_lane);
  for (size_t k = 0; k < f->pieces.n;) {
    size_t first = k;
    int64_t at = 0, total = 0;
    if (p[k].via_src < 0) {
      k++;
      continue;
    }
    for (; k < f->pieces.n && p[k].via_src == p[first].via_src && p[k].via_dst == p[first].via_dst;
         k++) {
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

/* In a step that is not combined no NIC sends to two, and none receives from two. */
static void check_no_incast(const struct fixture *f, bool one_to_one) {
  int combined;
  size_t cells = (size_t)copse_online_steps(f->online, &combined) * (size_t)f->n;
  int *to = malloc(cells * sizeof *to), *from = malloc(cells * sizeof *from);
  REQUIRE(to && from);
  memset(to, 0xff, cells * sizeof *to);
  memset(from, 0xff, cells * sizeof *from);
  for (size_t k = 0; k < f->pieces.n; k++) {
    const struct copse_online_piece *p = &f->pieces.all[k];
    if (p->via_src < 0 || (!one_to_one && p->step >= combined)) continue;
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

/* Stages are one-to-one. No host has more left, out or in, than the bound less the stages: what
 * combined steps carry; one to one nothing. Returns the sum of the stages. */
static int64_t check_stages(const struct fixture *f, bool one_to_one) {
  int64_t *rest = calloc((size_t)(f->h * f->h), sizeof *rest), bound, nic, total = 0;
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
  copse_online_inter(f->online, &bound, &nic);
  REQUIRE(bound == host_bound(f));
  for (int a = 0; a < f->h; a++) {
    int64_t out = 0, in = 0;
    for (int b = 0; b < f->h; b++) {
      out += rest[a * f->h + b];
      in += rest[b * f->h + a];
    }
    REQUIRE(out <= bound - total && in <= bound - total);
  }
  REQUIRE(total <= bound && (total == bound || !one_to_one));
  free(rest);
  return total;
}

/* From the pieces: what a NIC sends and receives in all is what the planner says, and of EVEN the
 * bound's part; step by step, the longest of each stage, added up, is the sum of the stages. */
static void check_nic_time(const struct fixture *f, int64_t stages) {
  int combined, steps = copse_online_steps(f->online, &combined);
  size_t n = (size_t)f->n;
  int64_t *load = calloc(((size_t)steps + 2) * n, sizeof *load), total = 0, bound, nic, most = 0;
  int64_t *out = load + (size_t)steps * n, *in = out + n;
  ck_assert_ptr_nonnull(load);
  for (size_t k = 0; k < f->pieces.n; k++) {
    const struct copse_online_piece *p = &f->pieces.all[k];
    if (p->via_src < 0) continue;
    load[(size_t)p->step * n + (size_t)p->via_src] += p->bytes;
    out[p->via_src] += p->bytes;
    in[p->via_dst] += p->bytes;
  }
  for (int s = 0; s < combined; s++) {
    int64_t longest = 0;
    for (size_t i = 0; i < n; i++)
      if (load[(size_t)s * n + i] > longest) longest = load[(size_t)s * n + i];
    total += longest;
  }
  REQUIRE(total <= stages / f->g + 2 * combined); /* rounding: 2 bytes a step */
  for (size_t i = 0; i < n; i++) {
    most = out[i] > most ? out[i] : most;
    most = in[i] > most ? in[i] : most;
  }
  copse_online_inter(f->online, &bound, &nic);
  REQUIRE(most >= bound / f->g);
  if (direct(f))
    REQUIRE(most <= nic + 16 * f->n && most >= nic - 16 * f->n); /* halves are aligned */
  else
    REQUIRE(most <= nic + f->h && nic == (bound + f->g - 1) / f->g);
  free(load);
}

static void check_plan(struct fixture *f, bool one_to_one) {
  plan(f);
  check_no_incast(f, one_to_one);
  check_nic_time(f, check_stages(f, one_to_one));
  check_lanes(f);
  check_every_byte_once(f);
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
      set_up(&f, h, g, ONE_TO_ONE);
      for (int which = 0; which < DEMANDS; which++) {
        fill(&f, which, 100000, &state);
        check_plan(&f, true);
      }
      tear_down(&f);
    }
}
END_TEST

/* From all in one step to hundreds of stages, by the size. */
START_TEST(every_byte_goes_once_at_every_size) {
  uint64_t state = 8;
  int forms[2] = {0};
  for (int how = BYTES; how < HOWS; how++)
    for (int h = 2; h <= (COPSE_TEST_SWEEPS ? 66 : 35); h += h < 4 ? 1 : 31) {
      struct fixture f;
      set_up(&f, h, h < 4 ? 8 : 3, (enum how)how);
      for (int which = 0; which < DEMANDS; which++)
        for (int64_t m = 10; m <= 1000000; m *= 100) {
          fill(&f, which, m, &state);
          check_plan(&f, false);
          forms[copse_online_form_of(f.online)]++;
        }
      tear_down(&f);
    }
  ck_assert_int_gt(forms[COPSE_ONLINE_EVEN], 50);
  ck_assert_int_gt(forms[COPSE_ONLINE_DIRECT], 50);
}
END_TEST

START_TEST(random_shapes_hold) {
  uint64_t state = 9;
  for (int round = 0; round < 200; round++) {
    struct fixture f;
    enum how how = (enum how)(round % HOWS);
    set_up(&f, copse_test_random_int(&state, 1, 14), copse_test_random_int(&state, 1, 8), how);
    int fullness = copse_test_random_int(&state, 1, 10);
    int shift = copse_test_random_int(&state, 0, 12);
    for (int i = 0; i < f.n * f.n; i++)
      if (copse_test_random_int(&state, 1, 10) <= fullness)
        f.bytes[i] = (int64_t)(copse_test_random(&state) % 1000000) >>
                     copse_test_random_int(&state, shift, 19);
    check_plan(&f, how == ONE_TO_ONE);
    tear_down(&f);
  }
}
END_TEST

/* ---- latency --------------------------------------------------------------------------------- */

/* Where hops take long, few of them; and never longer, as predicted, than with the other form. */
START_TEST(small_messages_take_one_or_two_steps) {
  uint64_t state = 16;
  for (int which = 2; which < DEMANDS; which++) {
    struct fixture f, even;
    set_up(&f, 20, 4, LONG);
    set_up(&even, 20, 4, ONE_TO_ONE);
    fill(&f, which, 60 / f.g, &state);
    memcpy(even.bytes, f.bytes, (size_t)(f.n * f.n) * sizeof *f.bytes);
    check_plan(&f, false);
    check_plan(&even, true);
    ck_assert_int_le(copse_online_steps(f.online, NULL), 2 + (int)(host_bound(&f) / f.g / 16));
    tear_down(&f);
    tear_down(&even);
  }
}
END_TEST

/* One byte from every rank to every other is at its bound: two hops and the way between hosts, one
 * hop on a flat fabric. */
START_TEST(slivers_take_no_hop_too_many) {
  for (int round = 0; round < 4; round++) {
    struct fixture f;
    struct copse_online_bound bound;
    int local = round % 2 * 100000, flat = round / 2, ns = flat ? 1000030 : 2000037;
    set_up(&f, 5, 8, flat ? FLAT : LONG);
    for (int i = 0; i < f.n; i++)
      for (int j = 0; j < f.n; j++) *cell(&f, i, j) = i / f.g == j / f.g ? local : 1;
    check_plan(&f, false);
    copse_online_bound(f.online, &bound);
    ck_assert(bound.with_latency >= ns * 1e-9 && bound.with_latency < (ns + 8 + local) * 1e-9);
    ck_assert_int_le(copse_online_predicted_ns(f.online), ns + 10 + local);
    tear_down(&f);
  }
}
END_TEST

/* What `at` ns of T are enough for of a host's bytes, one way: each NIC has the first `hop` ns
 * (into a host the last) for its own rank's bytes alone, and then all; bytes that change their
 * index can use neither the last nor, without a hop before, the first. */
static bool suffices(const struct fixture *f, int host, bool out, double t, double hop,
                     double way) {
  double window = t - way, all = 0, turned = 0, room = 0, turning = window - hop;
  if (window < 0) return false;
  for (int i = host * f->g; i < (host + 1) * f->g; i++) {
    double own = 0, early = 25 * (window < hop ? window : hop);
    for (int j = 0; j < f->n; j++) {
      int64_t v = out ? *cell(f, i, j) : *cell(f, j, i);
      if (j / f->g == host) continue;
      own += (double)v;
      if (i % f->g != j % f->g) turned += (double)v;
    }
    all += own;
    room += (own < early ? own : early) + 25 * (window > hop ? window - hop : 0);
  }
  if (turned > 0 && turning < 0) return false;
  double ways = 2 * turning < window ? 2 * turning : window;
  return all <= room && all <= 25 * f->g * window && (turned == 0 || turned <= 25 * f->g * ways);
}

/* By bisection over T. */
static double latency_bound_by_hand(const struct fixture *f, double hop, double way) {
  double low = 0, high = 1e12;
  for (int round = 0; round < 200; round++) {
    double t = (low + high) / 2;
    bool enough = true;
    for (int a = 0; a < f->h && enough; a++)
      enough = suffices(f, a, true, t, hop, way) && suffices(f, a, false, t, hop, way);
    *(enough ? &high : &low) = t;
  }
  return high;
}

/* Demands between hosts alone, for which hosts and not ranks bind. */
START_TEST(the_bound_with_latency_is_what_the_windows_allow) {
  uint64_t state = 17;
  for (int round = 0; round < 200; round++) {
    struct fixture f;
    struct copse_online_bound bound;
    bool slow = round % 2;
    set_up(&f, copse_test_random_int(&state, 2, 4), copse_test_random_int(&state, 2, 4),
           slow ? LONG : SHORT);
    int shift = copse_test_random_int(&state, 0, 24), rare = copse_test_random_int(&state, 0, 5);
    for (int i = 0; i < f.n; i++)
      for (int j = 0; j < f.n; j++)
        if (i / f.g != j / f.g && copse_test_random_int(&state, 0, rare) == 0)
          *cell(&f, i, j) = (int64_t)(copse_test_random(&state) % 100000000) >> shift;
    plan(&f);
    copse_online_bound(f.online, &bound);
    double hop = slow ? 1000007 : 107, want = latency_bound_by_hand(&f, hop, hop + 23);
    if (host_bound(&f) == 0) want = 0;
    double got = bound.with_latency * 1e9;
    ck_assert_msg(got >= want * (1 - 1e-9) && got <= want * (1 + 1e-9), "%d: %.3f, not %.3f", round,
                  got, want);
    ck_assert(bound.with_latency >= bound.seconds);
    tear_down(&f);
  }
}
END_TEST

/* ---- delivery, byte by byte ----------------------------------------------------------------- */

/* Every rank does its sends, step by step and kind by kind: a byte must be where it is sent from,
 * and in the end where it belongs. */
static void deliver(struct fixture *f) {
  enum { MOST = 600 };
  size_t cells = (size_t)f->n * (size_t)f->n;
  unsigned char *at = malloc(cells * MOST); /* the rank that has each byte */
  struct copse_err err = COPSE_ERR_INIT;
  REQUIRE(at != NULL && f->n < 256);
  for (size_t c = 0; c < cells; c++) memset(at + c * MOST, (int)(c / (size_t)f->n), MOST);
  for (int step = 0; step < copse_online_steps(f->online, NULL); step++)
    for (int kind = COPSE_ONLINE_SELF; kind <= COPSE_ONLINE_SCATTER; kind++)
      for (int r = 0; r < f->n; r++) {
        static struct copse_online_transfer out[20000];
        int64_t n;
        ASSERT_OK(copse_online_transfers(f->online, r, COPSE_ONLINE_SENDS, out, 20000, &n, &err),
                  &err);
        REQUIRE(n <= 20000);
        for (int64_t k = 0; k < n; k++) {
          const struct copse_online_piece *p = &out[k].piece;
          if (p->step != step || (int)out[k].kind != kind) continue;
          unsigned char *bytes = at + ((size_t)p->origin * (size_t)f->n + (size_t)p->final) * MOST;
          for (int64_t b = p->offset; b < p->offset + p->bytes; b++) {
            REQUIRE(b < *cell(f, p->origin, p->final) && bytes[b] == out[k].from);
            bytes[b] = (unsigned char)out[k].to;
          }
        }
      }
  for (size_t c = 0; c < cells; c++)
    for (int64_t b = 0; b < f->bytes[c]; b++) REQUIRE(at[c * MOST + (size_t)b] == c % (size_t)f->n);
  free(at);
}

START_TEST(every_byte_arrives) {
  uint64_t state = 18;
  for (int round = 0; round < 30; round++) {
    struct fixture f;
    set_up(&f, copse_test_random_int(&state, 1, 5), copse_test_random_int(&state, 1, 4),
           (enum how)(round % HOWS));
    int fullness = copse_test_random_int(&state, 1, 4), shift = copse_test_random_int(&state, 0, 6);
    for (int i = 0; i < f.n * f.n; i++)
      if (copse_test_random_int(&state, 1, 4) <= fullness)
        f.bytes[i] = copse_test_random_int(&state, 0, 599) >> shift;
    plan(&f);
    deliver(&f);
    tear_down(&f);
  }
}
END_TEST

START_TEST(nothing_to_send_is_an_empty_plan) {
  struct fixture f;
  struct copse_online_bound bound;
  set_up(&f, 3, 2, SHORT);
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
    set_up(&f, 5, 3, (enum how)(which % HOWS));
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
  set_up(&f, 3, 3, SHORT);
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
  set_up(&f, 9, 4, SHORT);
  set_up(&other, 9, 4, SHORT);
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
  set_up(&f, 8, 8, SHORT);
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

/* max over ranks and hosts, and over all switches together, in seconds at 1 unit = 1 GB/s, by
 * floating point. */
static double bound_by_hand(const struct fixture *f) {
  double best = (double)host_bound(f) / (25.0 * f->g), turned = 0;
  for (int i = 0; i < f->n * f->n; i++)
    if (i / f->n % f->g != i % f->n % f->g) turned += (double)f->bytes[i];
  if (turned / (300.0 * f->n) > best) best = turned / (300.0 * f->n);
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
      set_up(&f, h, which % 2 ? 8 : 3, BYTES); /* 8 a host are read by code of their own */
      fill(&f, which, 1 << 20, &state);
      plan(&f);
      copse_online_bound(f.online, &bound);
      double want = bound_by_hand(&f);
      ck_assert(bound.seconds >= want * (1 - 1e-12) && bound.seconds <= want * (1 + 1e-12));
      tear_down(&f);
    }
}
END_TEST

/* All, all to one, one pair, every other, in different shapes. */
START_TEST(counts_up_to_the_limit_are_exact) {
  static const int shapes[][2] = {{1, 1}, {1, 4}, {2, 1}, {2, 8}, {3, 2}, {17, 1}, {9, 8}};
  struct fixture f;
  struct copse_online_bound bound;
  for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
    for (int how = 0; how < HOWS; how++) {
      set_up(&f, shapes[shape][0], shapes[shape][1], (enum how)how);
      int64_t most = ((int64_t)1 << 62) / ((int64_t)f.n * f.g);
      for (int which = 0; which < 4; which++) {
        for (int i = 0; i < f.n; i++)
          for (int j = 0; j < f.n; j++) {
            const bool sends[] = {true, j == f.n - 1, i == 0 && j == f.n - 1, (i + j) % 2 == 1};
            *cell(&f, i, j) = sends[which] ? most : 0;
          }
        check_plan(&f, how == ONE_TO_ONE);
        copse_online_bound(f.online, &bound);
        ck_assert(bound.seconds >= 0 && bound.with_latency >= bound.seconds);
        ck_assert(copse_online_predicted_ns(f.online) >= 0);
      }
      tear_down(&f);
    }
}
END_TEST

START_TEST(a_count_above_the_limit_leaves_no_plan) {
  struct fixture f;
  struct copse_err err = COPSE_ERR_INIT;
  set_up(&f, 3, 2, SHORT);
  f.bytes[35] = ((int64_t)1 << 62) / (6 * 2) + 1;
  ASSERT_FAILS(copse_online_plan(f.online, f.bytes, &err), COPSE_OVERFLOW, &err, "rank 5 sends");
  f.pieces.n = 0;
  copse_online_walk(f.online, keep, &f.pieces);
  ck_assert_uint_eq(f.pieces.n, 0); /* no plan after a failure */
  tear_down(&f);
}
END_TEST

START_TEST(a_negative_count_is_named) {
  for (int g = 1; g <= 8; g += 7) { /* 8 ranks a host are read by code of their own */
    struct fixture f;
    struct copse_err err = COPSE_ERR_INIT;
    set_up(&f, 2, g, SHORT);
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
    set_up(&f, 4, 3, (enum how)(which % HOWS));
    fill(&f, 3, 10000, &state);
    plan(&f);
    fill(&f, which, 20000, &state);
    copse_online_walk(f.online, keep, &f.pieces);
    for (int r = 0; r < f.n; r++)
      ASSERT_OK(copse_online_transfers(f.online, r, 3, out, 50, &n, &err), &err);
    tear_down(&f);
  }
}
END_TEST

START_TEST(models_out_of_range_are_refused) {
  struct copse_online_model good = {
      .hosts = 2, .ranks_per_host = 2, .intra_out = 3, .intra_in = 3, .nic = 1, .scale = 1};
  struct copse_online_options options = {.min_message = -2};
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
  bad = good;
  bad.fabric_ns = -1;
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_online_create(&bad, NULL, &online, &err), COPSE_INVALID, &err, "latency");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_online_create(&good, &options, &online, &err), COPSE_INVALID, &err, "option");
  copse_online_free(NULL);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("solver/online");
  TCase *tests = tcase_create("all");
  tcase_add_test(tests, every_byte_goes_once_without_incast_at_the_bound);
  tcase_add_test(tests, every_byte_goes_once_at_every_size);
  tcase_add_test(tests, random_shapes_hold);
  tcase_add_test(tests, small_messages_take_one_or_two_steps);
  tcase_add_test(tests, slivers_take_no_hop_too_many);
  tcase_add_test(tests, the_bound_with_latency_is_what_the_windows_allow);
  tcase_add_test(tests, every_byte_arrives);
  tcase_add_test(tests, nothing_to_send_is_an_empty_plan);
  tcase_add_test(tests, sends_and_receives_are_the_hops_of_the_pieces);
  tcase_add_test(tests, a_small_capacity_is_kept);
  tcase_add_test(tests, every_rank_computes_the_same_plan);
  tcase_add_test(tests, the_bound_is_the_worst_port_or_host);
  tcase_add_test(tests, counts_up_to_the_limit_are_exact);
  tcase_add_test(tests, a_count_above_the_limit_leaves_no_plan);
  tcase_add_test(tests, a_negative_count_is_named);
  tcase_add_test(tests, counts_changed_after_planning_do_no_harm);
  tcase_add_test(tests, models_out_of_range_are_refused);
  suite_add_tcase(suite, tests);
  tcase_add_test(copse_test_plain(suite, 60), planning_allocates_nothing);
  return copse_test_run(suite);
}
