/*
 * Whole channels of one speed: for each number n of them orders, some more than once, such that the
 * fullest link is as little full as possible. From the fractional optimum rounded; from copies of
 * what a divisor of n has; and by negotiated congestion (McMurchie and Ebeling, PathFinder, 1995):
 * at a speed every link has room for so many channels, each channel in turn gives up its order and
 * takes the shortest one where crowded links are long, until no link has too many. What is taken is
 * counted again in rationals.
 */
#include <math.h>
#include <string.h>

#include "solver/policy.h"
#include "solver/rings/rings.h"

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

/* The speed at which counts' channels fill a row. */
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

/* The part of the fullest row's bandwidth that is taken when p->total is added to by a ring. */
static double fullness_with(struct packer *p, const struct copse_ring *ring) {
  double most = 0;
  memcpy(p->lengths, p->total, (size_t)p->instance->n_rows * sizeof *p->total);
  copse_ring_add_load(p->instance, ring, p->lengths);
  for (int r = 0; r < p->instance->n_rows; r++)
    most = fmax(most, (double)p->lengths[r] / copse_q_to_double(p->instance->bandwidth[r]));
  return most;
}

/* The weights times n, rounded down; then, by turns, the ring of the optimum with the largest
 * remainder, or of those that fill least the one. */
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

/* How many channels of a speed have room on each row. False where lengths prove that n have not. */
static bool set_room(struct packer *p, int n, double speed) {
  const struct copse_ring_bound *bound = &p->set->bound;
  double sum = 0;
  for (int r = 0; r < p->instance->n_rows; r++) {
    p->room[r] = (int64_t)floor(copse_q_to_double(p->instance->bandwidth[r]) / speed + 1e-9);
    sum += (double)p->room[r] * (double)bound->lengths[r];
  }
  return sum >= (double)n * (double)bound->least * (1 - COPSE_RINGS_GAIN);
}

/* The bound's lengths, what crowding there was and is, and noise between equal ones. */
static void set_lengths(struct packer *p, int64_t longest, uint32_t noise, uint32_t *state) {
  for (int r = 0; r < p->instance->n_rows; r++) {
    int64_t base =
        (int64_t)((double)p->set->bound.lengths[r] / (double)longest * COPSE_RINGS_BASE_LENGTH);
    int64_t over = p->total[r] + p->widest[r] - p->room[r];
    int64_t length = base + p->history[r] + copse_ring_draw(state, noise);
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

/* Many GPUs are searched with one door at a time. */
static bool takes_one_door(const struct copse_ring_instance *instance) {
  return instance->same_door && instance->n_doors > 1 && instance->n_gpus > COPSE_RINGS_DOOR_GPUS;
}

static int64_t step_length(const struct packer *p, const struct copse_ring_step *step) {
  int64_t sum = 0;
  for (int i = 0; i < step->n; i++) sum += p->lengths[step->loads[i].row] * step->loads[i].amount;
  return step->exists ? sum : INT64_MAX;
}

/* The door that is nearest to a GPU: with one of them the search is as much shorter. */
static int choose_door(const struct packer *p) {
  const struct copse_ring_instance *instance = p->instance;
  int64_t least = INT64_MAX;
  int best = 0;
  for (int i = 0; i < instance->n_doors * instance->n_gpus; i++) {
    int64_t length = step_length(p, &instance->enter[i]);
    if (length < least) least = length, best = i / instance->n_gpus;
  }
  return best;
}

static copse_status reroute(struct packer *p, int n, int c, int64_t longest, uint32_t noise,
                            uint32_t *state, struct copse_err *err) {
  struct copse_ring_instance instance = *p->instance;
  int64_t least;
  int found, door = 0;
  bool exact;
  count_routed(p, n, c);
  set_lengths(p, longest, noise, state);
  if (takes_one_door(p->instance)) {
    door = choose_door(p);
    instance.n_doors = 1;
    instance.enter += door * instance.n_gpus;
    if (instance.leave) instance.leave += door * instance.n_gpus;
    if (instance.second) instance.second += door * instance.n_gpus;
  }
  COPSE_DO(copse_rings_shortest(&instance, p->lengths, &p->scratch, p->found, &found, &least,
                                &exact, err));
  if (found == 0) return COPSE_OK;
  p->routed[c] = p->found[0];
  if (p->routed[c].doors[0] >= 0) p->routed[c].doors[0] += door, p->routed[c].doors[1] += door;
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

/* About how many steps a search for the shortest order has. */
static int64_t count_steps(const struct copse_ring_instance *instance) {
  int64_t m = instance->n_gpus + !instance->closed;
  if (instance->n_gpus > COPSE_RINGS_EXACT_GPUS) return m * m * m;
  bool each = instance->same_door && instance->n_doors > 1 && !takes_one_door(instance);
  return ((m * m) << (m - 1)) / 4 * (each ? instance->n_doors : 1);
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
static copse_status negotiate(struct packer *p, int n, uint32_t noise, uint32_t *state, bool *done,
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

/* n channels of the speed, if there is room, or the fastest met on the way; with more noise each
 * time.
 */
static copse_status route(struct packer *p, int n, double speed, struct copse_err *err) {
  uint32_t state = 1;
  bool done = false;
  if (!set_room(p, n, speed)) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&p->scratch, (size_t)n, p->routed, err));
  COPSE_DO(COPSE_ARRAY(&p->scratch, (size_t)n, p->best, err));
  p->speed = copse_q_to_double(p->packings[n - 1].speed) * (1 + COPSE_RINGS_GAIN);
  for (int i = 0; i < COPSE_RINGS_NOISES && !done; i++)
    COPSE_DO(negotiate(p, n, (uint32_t)COPSE_RINGS_NOISE << 2 * i, &state, &done, err));
  return p->best[0].gpus ? take_best(p, n, err) : COPSE_OK;
}

/* At the bound's speed; in a thorough search else at others between it and the one there is. */
static copse_status search(struct packer *p, int n, bool thorough, struct copse_err *err) {
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

/* Copies of packings of divisors of n. */
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

static copse_status start(struct packer *p, struct copse_err *err) {
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
  COPSE_DO(start(p, err));
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
  copse_status status = start(&p, err);
  if (status == COPSE_OK) status = copy_divisors(&p, n, err);
  if (status == COPSE_OK && !rings_is_bound(set, &packings[n - 1]))
    status = search(&p, n, thorough, err);
  copse_arena_free(&p.scratch);
  return status;
}
