/*
 * The fractional optimum by column generation. The master mixes orders so that the fullest row is
 * as low as possible (solver/lp, the dual of packing); its prices over bandwidths are lengths; the
 * shortest orders under these are the next columns. Every such search proves a bound, since its
 * lengths are integers: the best is kept. Last, lengths are tried that are small multiples of each
 * other, as the optimum's are.
 *
 * Tori, hypercubes and the like: links alike, equally many at each GPU. Their links fall apart into
 * Hamiltonian cycles (Alspach, Bermond and Sotteau 1990 for products of cycles), which are the
 * optimum. Found by local search: first into factors, in which each GPU has one next; two factors
 * exchange what comes after the GPUs of an alternating cycle of both, which leaves them factors,
 * until each is one cycle. Exchanges keep the parity of the number of cycles, so factors of the
 * wrong one are not searched.
 */
#include "solver/rings/rings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/lp/linear_programme.h"
#include "solver/policy.h"

struct generation {
  const struct copse_ring_instance *instance;
  struct copse_ring_set *set;
  struct copse_mixture *master;
  struct copse_mixture_load *column;
  int64_t *load, *lengths; /* [n_rows] */
  double *price, *inverse; /* [n_rows] length of each row; unit / bandwidth */
  double unit;             /* the least bandwidth */
  struct copse_ring *found;
  int n_found;
  bool decomposed; /* the first columns are a Hamiltonian decomposition */
  struct copse_arena scratch;
};

/* ---- loads ---------------------------------------------------------------------------------- */

static void add_step(const struct copse_ring_step *step, int64_t *load) {
  for (int i = 0; i < step->n; i++) load[step->loads[i].row] += step->loads[i].amount;
}

void copse_ring_add_load(const struct copse_ring_instance *instance, const struct copse_ring *ring,
                         int64_t *load) {
  int n = instance->n_gpus, first = ring->gpus[0], last = ring->gpus[n - 1];
  for (int i = 0; i + 1 < n; i++)
    add_step(&instance->move[ring->gpus[i] * n + ring->gpus[i + 1]], load);
  if (instance->closed) add_step(&instance->move[last * n + first], load);
  if (instance->n_ports == 0) return;
  add_step(&instance->enter[ring->ports[0] * n + first], load);
  if (instance->leave) add_step(&instance->leave[ring->ports[1] * n + last], load);
  if (instance->second && n > 1)
    add_step(&instance->second[ring->ports[1] * n + ring->gpus[1]], load);
}

/* ---- bounds --------------------------------------------------------------------------------- */

/* Offers lengths on rows of this sum over bandwidths, whose least order is known: kept if they are
 * the best bound so far. One whose numbers leave 64 bits is none. */
static copse_status offer_bound(struct generation *g, int64_t least, bool exact,
                                struct copse_err *err) {
  const struct copse_ring_instance *instance = g->instance;
  struct copse_ring_bound *bound = &g->set->bound;
  struct copse_q sum = COPSE_Q_ZERO, term;
  bool fits = least > 0;
  for (int r = 0; fits && r < instance->n_rows; r++)
    fits = copse_q_mul(instance->bandwidth[r], (struct copse_q){g->lengths[r], 1}, &term, NULL) ==
               COPSE_OK &&
           copse_q_add(sum, term, &sum, NULL) == COPSE_OK;
  fits = fits && copse_q_div(sum, (struct copse_q){least, 1}, &sum, NULL) == COPSE_OK;
  if (!fits || (bound->lengths && copse_q_cmp(sum, bound->GBps) >= 0)) return COPSE_OK;
  if (!bound->lengths)
    COPSE_DO(COPSE_ARRAY(&g->set->arena, (size_t)instance->n_rows, bound->lengths, err));
  int64_t common = least;
  for (int r = 0; r < instance->n_rows; r++) common = copse_gcd(common, g->lengths[r]);
  for (int r = 0; r < instance->n_rows; r++) bound->lengths[r] = g->lengths[r] / common;
  bound->least = least / common;
  bound->exact = exact;
  bound->GBps = sum;
  return COPSE_OK;
}

/* Searches for the shortest orders under g->price times `scale`, rounded, and their bound. */
static copse_status search(struct generation *g, double scale, int64_t *least,
                           struct copse_err *err) {
  int64_t ignored = 0;
  bool exact;
  for (int r = 0; r < g->instance->n_rows; r++) g->lengths[r] = llround(g->price[r] * scale);
  COPSE_DO(copse_rings_shortest(g->instance, g->lengths, &g->set->arena, g->found, &g->n_found,
                                least, &exact, &ignored, err));
  return offer_bound(g, *least, exact, err);
}

static double highest(const struct generation *g) {
  double most = 0;
  for (int r = 0; r < g->instance->n_rows; r++) most = fmax(most, g->price[r]);
  return most;
}

/* ---- columns --------------------------------------------------------------------------------- */

static int64_t length_under(const struct generation *g) {
  int64_t sum = 0;
  for (int r = 0; r < g->instance->n_rows; r++) sum += g->load[r] * g->lengths[r];
  return sum;
}

static copse_status add_column(struct generation *g, const struct copse_ring *ring,
                               struct copse_err *err) {
  struct copse_ring_set *set = g->set;
  size_t need = (size_t)set->n_rings + 1;
  int n = 0;
  COPSE_DO(COPSE_GROW(set->rings, set->capacity, need, err));
  COPSE_DO(COPSE_GROW(set->weights, set->weights_capacity, need, err));
  for (int r = 0; r < g->instance->n_rows; r++)
    if (g->load[r] > 0)
      g->column[n++] = (struct copse_mixture_load){r, (double)g->load[r] * g->inverse[r]};
  COPSE_DO(copse_mixture_add(g->master, 0, g->column, n, err));
  set->weights[set->n_rings] = 0;
  set->rings[set->n_rings++] = *ring;
  return COPSE_OK;
}

/* Adds columns for the orders found that are shorter than `than`; how many. */
static copse_status add_shorter(struct generation *g, double than, int *added,
                                struct copse_err *err) {
  *added = 0;
  for (int i = 0; i < g->n_found; i++) {
    memset(g->load, 0, (size_t)g->instance->n_rows * sizeof *g->load);
    copse_ring_add_load(g->instance, &g->found[i], g->load);
    if ((double)length_under(g) >= than) break;
    COPSE_DO(add_column(g, &g->found[i], err));
    ++*added;
  }
  return COPSE_OK;
}

/* Takes the prices of the master as lengths: a row's price over its bandwidth. */
static void take_prices(struct generation *g) {
  for (int r = 0; r < g->instance->n_rows; r++)
    g->price[r] = fmax(0, copse_mixture_price(g->master, r)) * g->inverse[r];
}

/* ---- Hamiltonian decompositions -------------------------------------------------------------- */

struct factors {
  int n, degree, k; /* GPUs; links of each; factors */
  bool both;        /* a factor stands for its reverse too: links are taken in one direction */
  uint8_t *links;   /* [n * n] how many of a unit's bandwidth from i to j */
  uint8_t *left;    /* [n * n] of these in no factor */
  int *next;        /* [k * n] */
  int *from, *way;  /* [n] of a matching; GPUs of an alternating cycle */
  bool *seen;       /* [n] */
  int64_t work;     /* left to do */
  uint64_t state;
};

/* Returns the bandwidth of the direct link that a step is; zero: it is none. */
static struct copse_q link_of(const struct copse_ring_instance *instance, int i, int j) {
  const struct copse_ring_step *step = &instance->move[i * instance->n_gpus + j];
  struct copse_q least = COPSE_Q_ZERO;
  if (i == j || !step->exists || step->n != (instance->closed ? 1 : 2)) return least;
  for (int l = 0; l < step->n; l++) {
    struct copse_q each;
    if (copse_q_div(instance->bandwidth[step->loads[l].row],
                    (struct copse_q){step->loads[l].amount, 1}, &each, NULL) != COPSE_OK)
      return COPSE_Q_ZERO;
    if (l == 0 || copse_q_cmp(each, least) < 0) least = each;
  }
  return least;
}

/* Counts links in units of the slowest. False where GPUs have unlike numbers, or no whole ones. */
static bool count_links(const struct copse_ring_instance *instance, struct factors *f) {
  struct copse_q unit = COPSE_Q_ZERO;
  bool alike = true;
  for (int i = 0; i < f->n * f->n; i++) {
    struct copse_q link = link_of(instance, i / f->n, i % f->n);
    if (link.num > 0 && (unit.num == 0 || copse_q_cmp(link, unit) < 0)) unit = link;
  }
  for (int i = 0; i < f->n && alike && unit.num > 0; i++) {
    int out = 0, in = 0;
    for (int j = 0; j < f->n && alike; j++) {
      struct copse_q there, back;
      alike = copse_q_div(link_of(instance, i, j), unit, &there, NULL) == COPSE_OK &&
              copse_q_div(link_of(instance, j, i), unit, &back, NULL) == COPSE_OK &&
              there.den == 1 && back.den == 1 && there.num <= COPSE_RINGS_MAX_DEGREE &&
              back.num <= COPSE_RINGS_MAX_DEGREE;
      if (!alike) break;
      f->links[i * f->n + j] = (uint8_t)there.num;
      f->both = f->both && there.num == back.num;
      out += (int)there.num;
      in += (int)back.num;
    }
    if (i == 0) f->degree = out;
    alike = alike && out == f->degree && in == f->degree && out <= COPSE_RINGS_MAX_DEGREE;
  }
  bool symmetric = f->both; /* a cycle and its reverse, or as a chain, load links that there are */
  f->both = symmetric && f->degree % 2 == 0;
  f->k = f->both ? f->degree / 2 : f->degree;
  return alike && f->degree > 0 && (symmetric || instance->closed);
}

/* Returns a link out of i that is left, from a random place on; -1. */
static int any_left(struct factors *f, const uint8_t *left, int i) {
  int turn = copse_random_below(&f->state, f->n);
  for (int j = 0; j < f->n; j++)
    if (left[i * f->n + (j + turn) % f->n] > 0) return (j + turn) % f->n;
  return -1;
}

/* Gives each link a direction by walking on until there is none left: as many into a GPU as out. */
static void direct_links(struct factors *f, uint8_t *undirected) {
  memset(f->left, 0, (size_t)f->n * (size_t)f->n);
  for (int start = 0; start < f->n; start++)
    for (int i = start, j; (j = any_left(f, undirected, i)) >= 0; i = j) {
      undirected[i * f->n + j]--;
      undirected[j * f->n + i]--;
      f->left[i * f->n + j]++;
    }
}

/* Looks for an augmenting path from GPU i of the matching f->from. */
static bool match(struct factors *f, int i) {
  int turn = copse_random_below(&f->state, f->n);
  for (int k = 0; k < f->n; k++) {
    int j = (k + turn) % f->n;
    if (f->left[i * f->n + j] == 0 || f->seen[j]) continue;
    f->seen[j] = true;
    if (f->from[j] >= 0 && !match(f, f->from[j])) continue;
    f->from[j] = i;
    return true;
  }
  return false;
}

static int count_cycles(struct factors *f, const int *next) {
  int cycles = 0;
  memset(f->seen, 0, (size_t)f->n * sizeof *f->seen);
  for (int i = 0; i < f->n; i++) {
    if (f->seen[i]) continue;
    cycles++;
    for (int at = i; !f->seen[at]; at = next[at]) f->seen[at] = true;
  }
  return cycles;
}

/* Draws random factors of the links that are left (Koenig 1916: there are some); returns their
 * cycles. */
static int draw_factors(struct factors *f) {
  int cycles = 0;
  for (int c = 0; c < f->k; c++) {
    int *next = f->next + c * f->n;
    for (int j = 0; j < f->n; j++) f->from[j] = -1;
    for (int i = 0; i < f->n; i++) {
      memset(f->seen, 0, (size_t)f->n * sizeof *f->seen);
      if (!match(f, i)) return 0;
    }
    for (int j = 0; j < f->n; j++) {
      next[f->from[j]] = j;
      f->left[f->from[j] * f->n + j]--;
    }
    cycles += count_cycles(f, next);
  }
  return cycles;
}

static void exchange(const struct factors *f, int n, int *a, int *b) {
  for (int i = 0; i < n; i++) {
    int after = a[f->way[i]];
    a[f->way[i]] = b[f->way[i]];
    b[f->way[i]] = after;
  }
}

static void turn_around(int *next, int from) {
  int before = from, at = next[from];
  while (at != from) {
    int after = next[at];
    next[at] = before;
    before = at;
    at = after;
  }
  next[from] = before;
}

/* Exchanges between factors until each is one cycle, or for a while. */
static bool join_factors(struct factors *f, int cycles) {
  int most = COPSE_RINGS_EXCHANGES * f->n * f->n;
  for (int round = 0; cycles > f->k && round < most && f->work > 0 && f->k > 1; round++) {
    f->work -= f->n;
    int i = copse_random_below(&f->state, f->k), n = 0;
    int j = (i + 1 + copse_random_below(&f->state, f->k - 1)) % f->k;
    int *a = f->next + i * f->n, *b = f->next + j * f->n;
    int start = copse_random_below(&f->state, f->n), at = start;
    if (f->both && copse_random_below(&f->state, 2)) turn_around(a, start);
    for (int g = 0; g < f->n; g++) f->from[b[g]] = g;
    do {
      f->way[n++] = at;
      at = f->from[a[at]];
    } while (at != start);
    int was = count_cycles(f, a) + count_cycles(f, b);
    exchange(f, n, a, b);
    int more = count_cycles(f, a) + count_cycles(f, b) - was;
    if (more <= 0 || (more <= 2 && copse_random_below(&f->state, COPSE_RINGS_UPHILL) == 0))
      cycles += more;
    else
      exchange(f, n, a, b);
  }
  return cycles == f->k;
}

/* Adds columns for the cycles of the factors, and for their reverse; opened somewhere for
 * chains. */
static copse_status add_factors(struct generation *g, const struct factors *f,
                                struct copse_err *err) {
  bool twice = f->both && g->instance->closed;
  for (int c = 0; c < f->k * (twice ? 2 : 1); c++) {
    const int *next = f->next + (twice ? c / 2 : c) * f->n;
    int *gpus;
    COPSE_DO(COPSE_ARRAY(&g->set->arena, (size_t)f->n, gpus, err));
    for (int i = 0, at = 0; i < f->n; i++, at = next[at])
      gpus[twice && c % 2 == 1 ? f->n - 1 - i : i] = at;
    struct copse_ring ring = {gpus, {-1, -1}};
    memset(g->load, 0, (size_t)g->instance->n_rows * sizeof *g->load);
    copse_ring_add_load(g->instance, &ring, g->load);
    COPSE_DO(add_column(g, &ring, err));
  }
  return COPSE_OK;
}

static copse_status decompose(struct generation *g, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct factors f = {
      .n = g->instance->n_gpus, .both = true, .work = COPSE_RINGS_EXCHANGE_WORK, .state = 1};
  size_t n = (size_t)f.n;
  uint8_t *copy;
  COPSE_DO(COPSE_ARRAYS(&scratch, n * n, uint8_t, err, &f.links, &f.left, &copy));
  COPSE_DO(COPSE_ARRAYS(&scratch, n, int, err, &f.from, &f.way));
  COPSE_DO(COPSE_ARRAY(&scratch, n, f.seen, err));
  if (!count_links(g->instance, &f)) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, n * (size_t)f.k, f.next, err));
  for (int i = 0; i < COPSE_RINGS_TRIES; i++) {
    memcpy(f.both ? copy : f.left, f.links, n * n);
    if (f.both) direct_links(&f, copy);
    int cycles = draw_factors(&f);
    g->decomposed = cycles > 0 && (cycles - f.k) % 2 == 0 && join_factors(&f, cycles);
    if (g->decomposed) return add_factors(g, &f, err);
  }
  return COPSE_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Whether the columns there are reach the bound; chains of a decomposition need only be near, as
 * they have a link less than cycles. */
static bool is_enough(const struct generation *g) {
  const struct copse_ring_bound *bound = &g->set->bound;
  bool cycles = g->instance->closed || !g->decomposed;
  double part = cycles ? COPSE_RINGS_GAIN : 1.0 / g->instance->n_gpus + COPSE_RINGS_GAIN;
  return bound->lengths &&
         g->unit / copse_mixture_most(g->master) >= copse_q_to_double(bound->GBps) * (1 - part);
}

static copse_status generate(struct generation *g, struct copse_err *err) {
  int64_t least;
  int added;
  double than = INFINITY;
  bool large = g->instance->n_gpus > COPSE_RINGS_EXACT_GPUS;
  if (g->instance->n_ports == 0) COPSE_DO(decompose(g, err));
  for (int r = 0; r < g->instance->n_rows; r++)
    g->price[r] = g->decomposed ? 1 : g->inverse[r]; /* a cycle passes n links, full ones */
  int most = large ? COPSE_RINGS_LONG_ROUNDS : COPSE_RINGS_ROUNDS;
  for (int round = 0; round < most; round++) {
    double scale = (double)COPSE_RINGS_LONGEST / highest(g);
    COPSE_DO(search(g, scale, &least, err));
    if (g->n_found == 0)
      return copse_fail(err, COPSE_INFEASIBLE,
                        "no order of the %d GPUs is found in which each "
                        "reaches the next",
                        g->instance->n_gpus);
    if (round > 0) than = copse_mixture_share_price(g->master, 0) * scale * (1 - COPSE_RINGS_GAIN);
    COPSE_DO(add_shorter(g, than, &added, err));
    if (added == 0) break;
    if (!copse_mixture_solve(g->master, COPSE_LP_MIXTURE_SLACK))
      return copse_fail(err, COPSE_INTERNAL, "GLPK gives up on a mixture of %d rings",
                        g->set->n_rings);
    take_prices(g);
    if (large && is_enough(g)) break;
  }
  return COPSE_OK;
}

/* Searches by lengths that are fractions of the largest with a small common denominator. */
static copse_status search_fractions(struct generation *g, struct copse_err *err) {
  double most = highest(g);
  int64_t least;
  for (int r = 0; r < g->instance->n_rows; r++) g->price[r] /= most;
  int64_t common =
      copse_common_denominator(g->price, g->instance->n_rows, COPSE_RINGS_DENOMINATOR, COPSE_NEAR);
  return common > 0 ? search(g, (double)common, &least, err) : COPSE_OK;
}

static copse_status start(struct generation *g, struct copse_err *err) {
  const struct copse_ring_instance *instance = g->instance;
  size_t rows = (size_t)instance->n_rows;
  COPSE_DO(COPSE_ARRAYS(&g->scratch, rows, int64_t, err, &g->load, &g->lengths));
  COPSE_DO(COPSE_ARRAYS(&g->scratch, rows, double, err, &g->price, &g->inverse));
  COPSE_DO(COPSE_ARRAY(&g->scratch, rows, g->column, err));
  COPSE_DO(COPSE_ARRAY(&g->scratch, (size_t)instance->n_gpus, g->found, err));
  g->unit = INFINITY;
  for (size_t r = 0; r < rows; r++)
    g->unit = fmin(g->unit, copse_q_to_double(instance->bandwidth[r]));
  for (size_t r = 0; r < rows; r++)
    g->inverse[r] = g->unit / copse_q_to_double(instance->bandwidth[r]);
  return copse_mixture_new(instance->n_rows, 1, INT64_MAX, &g->master, err);
}

static copse_status solve(struct generation *g, struct copse_err *err) {
  struct copse_ring_set *set = g->set;
  COPSE_DO(start(g, err));
  COPSE_DO(generate(g, err));
  set->GBps = g->unit / copse_mixture_most(g->master);
  for (int i = 0; i < set->n_rings; i++)
    set->weights[i] = fmax(0, copse_mixture_weight(g->master, (size_t)i));
  COPSE_DO(search_fractions(g, err));
  if (!set->bound.lengths)
    return copse_fail(err, COPSE_OVERFLOW, "the bound of rings does not fit into 64 bits");
  return COPSE_OK;
}

copse_status copse_rings_solve(const struct copse_ring_instance *instance,
                               struct copse_ring_set *out, struct copse_err *err) {
  struct generation g = {.instance = instance, .set = out};
  *out = (struct copse_ring_set){0};
  if (instance->n_gpus > COPSE_RINGS_MAX_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED, "rings of %d GPUs: at most %d", instance->n_gpus,
                      COPSE_RINGS_MAX_GPUS);
  if (instance->second && instance->n_gpus > COPSE_RINGS_EXACT_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED, "links at the second of %d GPUs: at most %d",
                      instance->n_gpus, COPSE_RINGS_EXACT_GPUS);
  copse_status status = solve(&g, err);
  copse_mixture_free(g.master);
  copse_arena_free(&g.scratch);
  return status;
}

/* ==== channels of one speed =============================================================== */

/*
 * Whole channels of one speed: for each number n of them orders, some more than once, such that the
 * fullest link is as little full as possible. From the fractional optimum rounded; from copies of
 * what a divisor of n has; and by negotiated congestion (McMurchie and Ebeling, PathFinder, 1995):
 * at a speed every link has room for so many channels, each channel in turn gives up its order and
 * takes the shortest one where crowded links are long, until no link has too many. What is taken is
 * counted again in rationals.
 */

struct packer {
  const struct copse_ring_instance *instance;
  struct copse_ring_set *set;
  struct copse_ring_packing *packings;
  int *counts;                               /* [n_rings] channels of each ring */
  int64_t *total, *room, *history, *lengths; /* [n_rows] */
  int64_t *widest;                           /* [n_rows] most that a channel takes */
  struct copse_ring *routed, *best, *found; /* [n] channels, and when they were fastest; [n_gpus] of
                                               a search */
  double speed;                             /* of the best */
  struct copse_arena scratch;
};

/* Computes the speed at which counts' channels fill a row. */
static copse_status speed_of(struct packer *p, struct copse_q *speed, struct copse_err *err) {
  int rows = p->instance->n_rows;
  *speed = COPSE_Q_ZERO;
  memset(p->total, 0, (size_t)rows * sizeof *p->total);
  for (int c = 0; c < p->set->n_rings; c++)
    for (int i = 0; i < p->counts[c]; i++)
      copse_ring_add_load(p->instance, &p->set->rings[c], p->total);
  for (int r = 0; r < rows; r++) {
    struct copse_q limit;
    if (p->total[r] == 0) continue;
    COPSE_DO(copse_q_div(p->instance->bandwidth[r], (struct copse_q){p->total[r], 1}, &limit, err));
    if (speed->num == 0 || copse_q_cmp(limit, *speed) < 0) *speed = limit;
  }
  return COPSE_OK;
}

/* Takes counts for n channels if they are faster than what is there. */
static copse_status offer(struct packer *p, int n, struct copse_err *err) {
  struct copse_ring_packing *packing = &p->packings[n - 1];
  struct copse_q speed;
  int *channels, k = 0;
  COPSE_DO(speed_of(p, &speed, err));
  if (copse_q_cmp(speed, packing->speed) <= 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&p->set->arena, (size_t)n, channels, err));
  for (int c = 0; c < p->set->n_rings; c++)
    for (int i = 0; i < p->counts[c]; i++) channels[k++] = c;
  *packing = (struct copse_ring_packing){n, channels, speed};
  return COPSE_OK;
}

/* Returns the part of the fullest row's bandwidth that is taken when p->total is added to by a
 * ring. */
static double fullness_with(struct packer *p, const struct copse_ring *ring) {
  double most = 0;
  memcpy(p->lengths, p->total, (size_t)p->instance->n_rows * sizeof *p->total);
  copse_ring_add_load(p->instance, ring, p->lengths);
  for (int r = 0; r < p->instance->n_rows; r++)
    most = fmax(most, (double)p->lengths[r] / copse_q_to_double(p->instance->bandwidth[r]));
  return most;
}

/* Rounds n times the weights down, and adds channels until there are n: each time the ring of the
 * optimum with the largest remainder, or, with by_fullness, the ring that fills its links least. */
static void round_weights(struct packer *p, int n, bool by_fullness) {
  const struct copse_ring_set *set = p->set;
  int sum = 0;
  memset(p->total, 0, (size_t)p->instance->n_rows * sizeof *p->total);
  for (int c = 0; c < set->n_rings; c++) {
    sum += p->counts[c] = (int)floor(set->weights[c] * n + 1e-6);
    for (int i = 0; i < p->counts[c]; i++)
      copse_ring_add_load(p->instance, &set->rings[c], p->total);
  }
  for (; sum < n; sum++) {
    double least = INFINITY, remainder = -1;
    int best = 0;
    for (int c = 0; c < set->n_rings; c++) {
      double rest = set->weights[c] * n - p->counts[c];
      double full = set->weights[c] > 0 ? 0 : INFINITY;
      if (by_fullness && full == 0) full = fullness_with(p, &set->rings[c]);
      if (full > least || (full == least && rest <= remainder)) continue;
      least = full;
      remainder = rest;
      best = c;
    }
    p->counts[best]++;
    copse_ring_add_load(p->instance, &set->rings[best], p->total);
  }
}

/* Whether all its channels together are the set's bound. */
static bool rings_is_bound(const struct copse_ring_set *set,
                           const struct copse_ring_packing *packing) {
  struct copse_q all;
  return packing->n > 0 &&
         copse_q_mul(packing->speed, (struct copse_q){packing->n, 1}, &all, NULL) == COPSE_OK &&
         copse_q_cmp(all, set->bound.GBps) >= 0;
}

/* ---- negotiated congestion ------------------------------------------------------------------- */

/* Sets how many channels of a speed have room on each row. False where lengths prove that n have
 * not. */
static bool set_room(struct packer *p, int n, double speed) {
  const struct copse_ring_bound *bound = &p->set->bound;
  double sum = 0;
  for (int r = 0; r < p->instance->n_rows; r++) {
    p->room[r] = (int64_t)floor(copse_q_to_double(p->instance->bandwidth[r]) / speed + 1e-9);
    sum += (double)p->room[r] * (double)bound->lengths[r];
  }
  return sum >= (double)n * (double)bound->least * (1 - COPSE_RINGS_GAIN);
}

/* Sets the bound's lengths, what crowding there was and is, and noise between equal ones. */
static void set_lengths(struct packer *p, int64_t longest, int noise, uint64_t *state) {
  for (int r = 0; r < p->instance->n_rows; r++) {
    int64_t base =
        (int64_t)((double)p->set->bound.lengths[r] / (double)longest * COPSE_RINGS_BASE_LENGTH);
    int64_t over = p->total[r] + p->widest[r] - p->room[r];
    int64_t length = base + p->history[r] + copse_random_below(state, noise);
    if (over > 0) length += over * COPSE_RINGS_CROWDED;
    p->lengths[r] = copse_smaller(length, COPSE_RINGS_LONGEST);
  }
}

static void count_routed(struct packer *p, int n, int without) {
  memset(p->total, 0, (size_t)p->instance->n_rows * sizeof *p->total);
  for (int c = 0; c < n; c++)
    if (c != without && p->routed[c].gpus)
      copse_ring_add_load(p->instance, &p->routed[c], p->total);
}

static bool is_crowded(const struct packer *p) {
  for (int r = 0; r < p->instance->n_rows; r++)
    if (p->total[r] > p->room[r]) return true;
  return false;
}

/* Whether channels are searched with one port at a time, as for many GPUs. */
static bool takes_one_port(const struct copse_ring_instance *instance) {
  return instance->same_port && instance->n_ports > 1 && instance->n_gpus > COPSE_RINGS_PORT_GPUS;
}

static int64_t step_length(const struct packer *p, const struct copse_ring_step *step) {
  int64_t sum = 0;
  for (int i = 0; i < step->n; i++) sum += p->lengths[step->loads[i].row] * step->loads[i].amount;
  return step->exists ? sum : INT64_MAX;
}

/* Chooses the port that is nearest to a GPU: with one of them the search is as much shorter. */
static int choose_port(const struct packer *p) {
  const struct copse_ring_instance *instance = p->instance;
  int64_t least = INT64_MAX;
  int best = 0;
  for (int i = 0; i < instance->n_ports * instance->n_gpus; i++) {
    int64_t length = step_length(p, &instance->enter[i]);
    if (length < least) least = length, best = i / instance->n_gpus;
  }
  return best;
}

static copse_status reroute(struct packer *p, int n, int c, int64_t longest, int noise,
                            uint64_t *state, struct copse_err *err) {
  struct copse_ring_instance instance = *p->instance;
  int64_t least, compared = 0;
  int found, port = 0;
  bool exact;
  count_routed(p, n, c);
  set_lengths(p, longest, noise, state);
  if (takes_one_port(p->instance)) {
    port = choose_port(p);
    instance.n_ports = 1;
    instance.enter += port * instance.n_gpus;
    if (instance.leave) instance.leave += port * instance.n_gpus;
    if (instance.second) instance.second += port * instance.n_gpus;
  }
  COPSE_DO(copse_rings_shortest(&instance, p->lengths, &p->scratch, p->found, &found, &least,
                                &exact, &compared, err));
  p->set->steps += instance.quick ? compared : 0;
  if (found == 0) return COPSE_OK;
  p->routed[c] = p->found[0];
  if (p->routed[c].ports[0] >= 0) p->routed[c].ports[0] += port, p->routed[c].ports[1] += port;
  return COPSE_OK;
}

/* Takes the best channels routed as new rings of the set. */
static copse_status take_best(struct packer *p, int n, struct copse_err *err) {
  struct copse_ring_set *set = p->set;
  size_t gpus = (size_t)p->instance->n_gpus, all = (size_t)(set->n_rings + n);
  COPSE_DO(COPSE_GROW(set->rings, set->capacity, all, err));
  COPSE_DO(COPSE_GROW(set->weights, set->weights_capacity, all, err));
  COPSE_DO(COPSE_ARRAY(&p->scratch, all, p->counts, err));
  for (int c = 0; c < n; c++) {
    int *copy;
    COPSE_DO(COPSE_ARRAY(&set->arena, gpus, copy, err));
    memcpy(copy, p->best[c].gpus, gpus * sizeof *copy);
    set->rings[set->n_rings] = p->best[c];
    set->rings[set->n_rings].gpus = copy;
    set->weights[set->n_rings] = 0;
    p->counts[set->n_rings++] = 1;
  }
  return offer(p, n, err);
}

/* Estimates how many steps a search for the shortest order has, but for what it says itself. */
static int64_t count_steps(const struct copse_ring_instance *instance) {
  int64_t m = instance->n_gpus + !instance->closed;
  if (instance->n_gpus > COPSE_RINGS_EXACT_GPUS) return m * m * m;
  bool each = instance->same_port && instance->n_ports > 1 && !takes_one_port(instance);
  return ((m * m) << (m - 1)) / 4 * (each ? instance->n_ports : 1);
}

/* Keeps the n channels routed, whose loads are p->total, if they are the fastest so far. */
static void keep_fastest(struct packer *p, int n) {
  double full = 0;
  for (int r = 0; r < p->instance->n_rows; r++)
    full = fmax(full, (double)p->total[r] / copse_q_to_double(p->instance->bandwidth[r]));
  if (full * p->speed >= 1) return;
  p->speed = 1 / full;
  memcpy(p->best, p->routed, (size_t)n * sizeof *p->best);
}

/* Routes n channels anew by turns until none is crowded. */
static copse_status negotiate(struct packer *p, int n, int noise, uint64_t *state, bool *done,
                              struct copse_err *err) {
  int rows = p->instance->n_rows;
  int64_t longest = 1, steps = count_steps(p->instance);
  *done = false;
  memset(p->history, 0, (size_t)rows * sizeof *p->history);
  for (int r = 0; r < rows; r++) longest = copse_larger(longest, p->set->bound.lengths[r]);
  int most = p->instance->n_gpus > COPSE_RINGS_EXACT_GPUS ? COPSE_RINGS_LONG_REROUTES
                                                          : COPSE_RINGS_REROUTES;
  for (int i = 0; i < most && p->set->steps < COPSE_RINGS_STEPS; i++) {
    int c = i % n;
    count_routed(p, n, -1);
    if (p->routed[n - 1].gpus) keep_fastest(p, n);
    *done = p->routed[n - 1].gpus && !is_crowded(p);
    if (*done) break;
    for (int r = 0; c == 0 && r < rows; r++)
      if (p->total[r] > p->room[r])
        p->history[r] += (p->total[r] - p->room[r]) * COPSE_RINGS_HISTORY;
    COPSE_DO(reroute(p, n, c, longest, noise, state, err));
    p->set->steps += steps;
  }
  return COPSE_OK;
}

/* Routes n channels of the speed, if there is room, or finds the fastest met on the way; with more
 * noise each time. */
static copse_status route(struct packer *p, int n, double speed, struct copse_err *err) {
  uint64_t state = 1;
  bool done = false;
  if (!set_room(p, n, speed)) return COPSE_OK;
  COPSE_DO(COPSE_ARRAYS(&p->scratch, (size_t)n, struct copse_ring, err, &p->routed, &p->best));
  p->speed = copse_q_to_double(p->packings[n - 1].speed) * (1 + COPSE_RINGS_GAIN);
  for (int i = 0; i < COPSE_RINGS_NOISES && !done; i++)
    COPSE_DO(negotiate(p, n, COPSE_RINGS_NOISE << 2 * i, &state, &done, err));
  return p->best[0].gpus ? take_best(p, n, err) : COPSE_OK;
}

/* Searches for a packing at the bound's speed; if thorough, then at speeds between it and the best
 * so far. */
static copse_status search_packing(struct packer *p, int n, bool thorough, struct copse_err *err) {
  double high = copse_q_to_double(p->set->bound.GBps) / n;
  for (int step = 0; step <= (thorough ? COPSE_RINGS_BISECTIONS : 0); step++) {
    double low = copse_q_to_double(p->packings[n - 1].speed);
    double speed = step == 0 ? high : (low + high) / 2;
    COPSE_DO(route(p, n, speed, err));
    if (rings_is_bound(p->set, &p->packings[n - 1])) break;
    if (copse_q_to_double(p->packings[n - 1].speed) < speed * (1 - COPSE_RINGS_GAIN)) high = speed;
  }
  return COPSE_OK;
}

/* ---- from the outside ------------------------------------------------------------------------ */

/* Copies packings of divisors of n. */
static copse_status copy_divisors(struct packer *p, int n, struct copse_err *err) {
  for (int d = 1; d < n; d++) {
    const struct copse_ring_packing *packing = &p->packings[d - 1];
    if (n % d != 0 || packing->n == 0) continue;
    memset(p->counts, 0, (size_t)p->set->n_rings * sizeof *p->counts);
    for (int i = 0; i < d; i++) p->counts[packing->channels[i]] += n / d;
    COPSE_DO(offer(p, n, err));
  }
  return COPSE_OK;
}

static copse_status start_packing(struct packer *p, struct copse_err *err) {
  size_t rows = (size_t)p->instance->n_rows;
  COPSE_DO(COPSE_ARRAY(&p->scratch, (size_t)p->set->n_rings, p->counts, err));
  COPSE_DO(COPSE_ARRAY(&p->scratch, (size_t)p->instance->n_gpus, p->found, err));
  COPSE_DO(COPSE_ARRAYS(&p->scratch, rows, int64_t, err, &p->total, &p->room, &p->history,
                        &p->lengths, &p->widest));
  for (int c = 0; c < p->set->n_rings; c++) {
    if (p->set->weights[c] == 0) continue;
    memset(p->total, 0, rows * sizeof *p->total);
    copse_ring_add_load(p->instance, &p->set->rings[c], p->total);
    for (size_t r = 0; r < rows; r++) p->widest[r] = copse_larger(p->widest[r], p->total[r]);
  }
  return COPSE_OK;
}

static copse_status pack(struct packer *p, int most, struct copse_err *err) {
  COPSE_DO(start_packing(p, err));
  for (int n = 1; n <= most; n++) {
    p->packings[n - 1] = (struct copse_ring_packing){.speed = COPSE_Q_ZERO};
    COPSE_DO(copy_divisors(p, n, err));
    for (int by_fullness = 0; by_fullness < 2; by_fullness++) {
      round_weights(p, n, by_fullness);
      COPSE_DO(offer(p, n, err));
    }
  }
  return COPSE_OK;
}

copse_status copse_rings_pack(const struct copse_ring_instance *instance,
                              struct copse_ring_set *set, int most,
                              struct copse_ring_packing *packings, struct copse_err *err) {
  struct packer p = {.instance = instance, .set = set, .packings = packings};
  copse_status status = pack(&p, most, err);
  copse_arena_free(&p.scratch);
  return status;
}

copse_status copse_rings_improve(const struct copse_ring_instance *instance,
                                 struct copse_ring_set *set, int n, bool thorough,
                                 struct copse_ring_packing *packings, struct copse_err *err) {
  struct packer p = {.instance = instance, .set = set, .packings = packings};
  copse_status status = start_packing(&p, err);
  if (status == COPSE_OK) status = copy_divisors(&p, n, err);
  if (status == COPSE_OK && !rings_is_bound(set, &packings[n - 1]))
    status = search_packing(&p, n, thorough, err);
  copse_arena_free(&p.scratch);
  return status;
}
