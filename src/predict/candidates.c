/*
 * Several ways to run one collective, timed by the simulator, and which is best for which message
 * sizes: as few ranges as there can be, each with a way close to the fastest.
 */
#include "predict/candidates.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "codegen/lower/work.h"
#include "predict/baseline.h"
#include "predict/policy.h"
#include "schedule/adapt.h"
#include "verify/verify.h"

/* ---- what simulations say -------------------------------------------------------------------- */

struct copse_candidate_times {
  struct copse_known_times of;   /* those that are like none before them; best: of all */
  double border_work, most_work; /* for borders; done in all to add no more sizes after */
};

/* The row must be there. */
static struct copse_known *known_of(const struct copse_candidates *c, int candidate, double bytes) {
  return &copse_known_row(&c->times->of, bytes, NULL)->of[c->list[candidate].like];
}

static copse_status ask(const struct copse_candidates *c, struct copse_wish *wishes, int *n,
                        struct copse_err *err) {
  return copse_predictions_ask(c->topology, c->predictions, &c->times->of, wishes, n, err);
}

/* Returns the best one at the nearest size at which they were compared; 0: there is none. */
static int guess_best(const struct copse_known_times *times, double bytes) {
  double least = INFINITY;
  int best = 0;
  for (size_t i = 0; i < times->n; i++) {
    double away = fabs(log2(times->rows[i].bytes / bytes));
    if (times->rows[i].best < 0 || !(away < least)) continue;
    least = away;
    best = times->rows[i].best;
  }
  return best;
}

/* Whether a candidate is for so many bytes. */
static bool is_for(const struct copse_candidates *c, int i, double bytes) {
  return c->list[i].most_bytes == 0 || bytes <= (double)c->list[i].most_bytes;
}

/* Returns what was simulated to its end: infinite where it is slow. */
static double known_us(const struct copse_candidates *c, int i, double bytes) {
  const struct copse_known *known = known_of(c, i, bytes);
  return is_for(c, i, bytes) && copse_is_known(known, INFINITY) ? known->us : INFINITY;
}

/* Returns by how much a candidate's time counts as shorter. */
static double kept_part(const struct copse_candidates *c, int i) {
  return c->list[i].kept ? 1 + KEPT_WORTH : 1;
}

/* Returns a candidate's time, to be compared with others' when one is taken. */
static double cost(const struct copse_candidates *c, const double *us, int i) {
  return us[i] / kept_part(c, i);
}

static double least_cost(const struct copse_candidates *c, const double *us) {
  double least = INFINITY;
  for (int i = 0; i < c->n; i++) least = fmin(least, cost(c, us, i));
  return least;
}

/* Of one size, as far as it is known: the least time; copse_candidates_best, -1: nothing is known;
 * and its time, as cost() has it. */
struct nearest {
  double least;
  int best;
  double cost;
};

/* Returns up to what time a candidate matters: where it is not slower than `reach` times the
 * fastest, may be taken, be close to what is (_best, _lasting), or be the fastest. */
static double limit_of(const struct copse_candidates *c, int i, const struct nearest *near,
                       double reach) {
  int more = near->best < 0 ? -1 : c->list[i].hops - c->list[near->best].hops;
  if (more < 0) reach = fmax(reach, (1 + MODEL_ERROR) * (1 + SAME_TIME));
  double most = near->least * fmax(reach, 1);
  if (more == 0) most = fmax(most, near->cost * (1 + CLOSE_TIME) * (1 + SAME_TIME));
  return most * kept_part(c, i);
}

static void find_nearest(const struct copse_candidates *c, const double *us, struct nearest *near) {
  *near = (struct nearest){INFINITY, -1, INFINITY};
  for (int i = 0; i < c->n; i++) near->least = fmin(near->least, us[i]);
  if (near->least == INFINITY) return;
  near->best = copse_candidates_best(c, us);
  near->cost = cost(c, us, near->best);
}

/* Simulates candidates from `first` to before `end`, or of each size its guess, at sizes [n] as far
 * as they matter by what is known; *done: there was nothing to do. */
static copse_status time_some(const struct copse_candidates *c, struct copse_wish *wishes,
                              int first, int end, const int *guesses, const double *bytes, int n,
                              double reach, double (*us)[COPSE_MAX_CANDIDATES],
                              struct nearest *near, bool *done, struct copse_err *err) {
  int n_wishes = 0;
  for (int i = first; i < end; i++)
    for (int b = 0; b < n; b++) {
      if (guesses && guesses[b] != i) continue;
      double limit = limit_of(c, i, &near[b], reach),
             least = copse_q_to_double(c->predictions[i].runs_per_GB) * bytes[b] * 1e-3;
      if (is_for(c, i, bytes[b]) && least <= limit)
        wishes[n_wishes++] = (struct copse_wish){c->list[i].like, bytes[b], limit};
    }
  COPSE_DO(ask(c, wishes, &n_wishes, err));
  *done = *done && n_wishes == 0;
  for (int b = 0; b < n; b++) {
    for (int i = first; i < end; i++) us[b][i] = known_us(c, i, bytes[b]);
    find_nearest(c, us[b], &near[b]);
  }
  return COPSE_OK;
}

/* Times those that matter: a guess at the best first, then the last ones (searched for, packets),
 * so that others need not be simulated to their ends; what is found does not depend on it. */
copse_status copse_candidates_time_near(const struct copse_candidates *c, const double *bytes,
                                        int n, double reach, double (*us)[COPSE_MAX_CANDIDATES],
                                        struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_wish *wishes;
  struct nearest *near;
  int *guesses;
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)(n * c->n), wishes, err));
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)n, near, err));
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)n, guesses, err));
  for (int b = 0; b < n; b++) {
    if (!copse_known_row(&c->times->of, bytes[b], err)) return copse_fail_nomem(err);
    near[b] = (struct nearest){INFINITY, -1, INFINITY};
    guesses[b] = guess_best(&c->times->of, bytes[b]);
    for (int i = 0; i < c->n; i++) us[b][i] = INFINITY;
  }
  for (bool done = false; !done;) {
    done = true;
    COPSE_DO(time_some(c, wishes, 0, c->n, guesses, bytes, n, reach, us, near, &done, err));
    for (int end = c->n, first; end > 0; end = first) {
      first = end > TIMED_TOGETHER ? end - TIMED_TOGETHER : 0;
      COPSE_DO(time_some(c, wishes, first, end, NULL, bytes, n, reach, us, near, &done, err));
      copse_progress_report(c->progress, "compare", c->n - first, c->n);
    }
  }
  for (int b = 0; b < n; b++) {
    copse_known_row(&c->times->of, bytes[b], NULL)->best = near[b].best;
    for (int i = 0; i < c->n; i++)
      if (us[b][i] > limit_of(c, i, &near[b], reach)) us[b][i] = INFINITY;
  }
  return COPSE_OK;
}

copse_status copse_candidates_time(const struct copse_candidates *c, const double *bytes,
                                   int n_sizes, double (*us)[COPSE_MAX_CANDIDATES],
                                   struct copse_err *err) {
  return copse_candidates_time_near(c, bytes, n_sizes, 0, us, err);
}

/* Times these however slow they are. */
static copse_status time_these(const struct copse_candidates *c, const int *which, int n_which,
                               const double *bytes, int n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_wish *wishes;
  int n_wishes = n_which * n;
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)n_wishes, wishes, err));
  for (int i = 0; i < n_wishes; i++)
    wishes[i] = (struct copse_wish){c->list[which[i / n]].like, bytes[i % n], INFINITY};
  return ask(c, wishes, &n_wishes, err);
}

copse_status copse_candidates_time_of(const struct copse_candidates *c, int which,
                                      const double *bytes, int n, double *us,
                                      struct copse_err *err) {
  COPSE_DO(time_these(c, &which, 1, bytes, n, err));
  for (int b = 0; b < n; b++) us[b] = known_of(c, which, bytes[b])->us;
  return COPSE_OK;
}

/* ---- what there is --------------------------------------------------------------------------- */

/* Predicts what the last of the list takes. */
static copse_status predict_last(struct copse_candidates *c, struct copse_err *err) {
  struct copse_predict_options options = c->options;
  struct copse_candidate *it = &c->list[c->n - 1];
  struct copse_prediction *own = &c->predictions[c->n - 1];
  options.lower = it->lower;
  COPSE_DO(copse_predict_schedule(c->topology, it->schedule, &options, own, err));
  it->like = 0;
  while (!copse_predictions_alike(&c->predictions[it->like], own)) it->like++;
  return COPSE_OK;
}

copse_status copse_candidates_add(struct copse_candidates *c, struct copse_schedule *schedule,
                                  const char *name, const struct copse_lower_options *lower,
                                  struct copse_err *err) {
  struct copse_candidate *it = &c->list[c->n];
  if (c->n == COPSE_MAX_CANDIDATES) {
    copse_schedule_free(schedule);
    return copse_fail(err, COPSE_UNSUPPORTED, "more than %d candidates", COPSE_MAX_CANDIDATES);
  }
  *it = (struct copse_candidate){
      .schedule = schedule, .owned = true, .hops = copse_proposal_hops(schedule), .lower = *lower};
  snprintf(it->name, sizeof it->name, "%s", name);
  c->n++;
  return predict_last(c, err);
}

/* Takes a proposal, but not a large forest that one which is there beats. */
static copse_status take(void *context, struct copse_schedule *schedule, const char *name,
                         struct copse_err *err) {
  struct copse_candidates *c = context;
  bool beaten = false;
  for (int i = 0; i < c->n && !beaten; i++)
    beaten = copse_proposal_beats(c->list[i].schedule, schedule, c->limits.edges_alike);
  if (c->n == COPSE_MAX_CANDIDATES || beaten ||
      (strcmp(name, "equal shares") == 0 &&
       copse_q_eq(schedule->time_per_GB, c->list[0].schedule->time_per_GB))) {
    copse_schedule_free(schedule);
    return COPSE_OK;
  }
  return copse_candidates_add(c, schedule, name, &c->options.lower, err);
}

copse_status copse_candidates_begin(const struct copse_topology *topology,
                                    const struct copse_predict_options *predict,
                                    struct copse_candidates *out, struct copse_err *err) {
  *out = (struct copse_candidates){
      .topology = topology,
      .options = predict ? *predict : copse_predict_defaults,
      .limits = {MOST_EDGES_ALIKE, MOST_STEPPED, MOST_IN_TWOS, BORDER_WORK,
                 PLAN_WORK(topology->n_ranks), PLAN_MORE_WORK(topology->n_ranks)}};
  out->times = calloc(1, sizeof *out->times);
  if (!out->times) return copse_fail_nomem(err);
  return copse_predict_routes(topology, &out->routes, &out->options, err);
}

copse_status copse_candidates_propose(struct copse_candidates *c,
                                      const struct copse_solve_options *options,
                                      struct copse_solve_seconds *seconds, struct copse_err *err) {
  const struct copse_proposer proposer = {.topology = c->topology,
                                          .solve = options,
                                          .context = c,
                                          .take = take,
                                          .routes = c->options.routes,
                                          .shared = c->options.shared};
  return copse_propose(&proposer, seconds, err);
}

copse_status copse_candidates_make(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   const struct copse_predict_options *predict,
                                   struct copse_candidates *out,
                                   struct copse_solve_seconds *seconds, struct copse_err *err) {
  COPSE_DO(copse_candidates_begin(topology, predict, out, err));
  return copse_candidates_propose(out, options, seconds, err);
}

/* ---- those of the healthy topology ----------------------------------------------------------- */

/* Takes the last one back. */
static void drop_last(struct copse_candidates *c) {
  struct copse_candidate *it = &c->list[--c->n];
  copse_prediction_free(&c->predictions[c->n]);
  if (it->owned) copse_schedule_free(it->schedule);
}

/* Adopts a candidate; *found: whether it is one of this topology that way. */
static copse_status adopt_one(struct copse_candidates *c, const struct copse_candidate *from,
                              enum copse_proposal_way way, bool keep, bool *found,
                              struct copse_err *err) {
  static const char *const suffixes[COPSE_PROPOSAL_WAYS] = {"", ", rerouted", ", mended"};
  const struct copse_lower_options *lower = keep ? &from->lower : &c->options.lower;
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_schedule *s;
  char name[COPSE_PROPOSAL_NAME];
  int before = c->n;
  COPSE_DO(copse_schedule_borrow(from->schedule, &s, err));
  copse_status status =
      copse_proposal_adopt(c->topology, way, c->options.routes, c->list[0].schedule, s, &why);
  if (status != COPSE_OK) copse_schedule_free(s);
  copse_proposal_name_print(name, sizeof name, "%s%s%s", keep ? "" : "healthy: ", from->name,
                            keep ? suffixes[way] : "");
  if (status == COPSE_OK) status = copse_candidates_add(c, s, name, lower, &why);
  *found = status == COPSE_OK && (!keep || c->predictions[before].instead[0] == '\0');
  if (*found) {
    c->list[before].kept = keep;
    c->list[before].most_bytes = keep ? from->most_bytes : 0;
  } else if (c->n > before) {
    drop_last(c);
  }
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW)
    return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

copse_status copse_candidates_adopt(struct copse_candidates *c, struct copse_candidates *healthy,
                                    bool keep, struct copse_err *err) {
  for (int i = 0; i < healthy->n; i++) {
    int before = c->n;
    for (enum copse_proposal_way way = COPSE_PROPOSAL_AS_IT_IS;
         healthy->list[i].owned && way < COPSE_PROPOSAL_WAYS; way++) {
      bool found;
      COPSE_DO(adopt_one(c, &healthy->list[i], way, keep, &found, err));
      if (found && (way == COPSE_PROPOSAL_AS_IT_IS || !keep)) break;
    }
    healthy->list[i].left_out = c->n == before;
  }
  return COPSE_OK;
}

/* ---- those of another root ------------------------------------------------------------------- */

/* Makes the image of a schedule, in the topology's numbers; *out NULL: it is none of this root. */
static copse_status make_image(const struct copse_candidates *c, const struct copse_candidate *of,
                               const int *image, struct copse_schedule **out,
                               struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *made = NULL;
  const struct copse_topology *t = c->topology;
  const struct copse_schedule *from = of->schedule;
  struct copse_err why = COPSE_ERR_INIT;
  const char **ids;
  *out = NULL;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)from->n_nodes, ids, err));
  for (int v = 0; v < from->n_nodes; v++)
    ids[v] = t->nodes[image[copse_topology_find(t, from->nodes[v])]].id;
  COPSE_DO(copse_schedule_image(from, ids, t, &made, err));
  if (made->root != c->list[0].schedule->root) return COPSE_OK;
  COPSE_DO(copse_schedule_place(made, t, err));
  copse_status status = copse_proposal_check(t, made, of->name, &why);
  if (status == COPSE_OVERFLOW) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  *out = made;
  made = NULL;
  return COPSE_OK;
}

copse_status copse_candidates_adopt_images(struct copse_candidates *c,
                                           const struct copse_candidates *like, const bool *taken,
                                           const int *image, struct copse_err *err) {
  for (int i = 0; i < like->n && c->n < COPSE_MAX_CANDIDATES; i++) {
    struct copse_schedule *made;
    bool wanted = false;
    for (int k = i; k < like->n; k++)
      wanted = wanted || (taken[k] && like->list[k].schedule == like->list[i].schedule);
    if (!wanted || !like->list[i].owned) continue;
    COPSE_DO(make_image(c, &like->list[i], image, &made, err));
    if (made) COPSE_DO(copse_candidates_add(c, made, like->list[i].name, &c->options.lower, err));
  }
  return COPSE_OK;
}

/* ---- packets --------------------------------------------------------------------------------- */

copse_status copse_candidates_add_packets(struct copse_candidates *c, int of, uint64_t most,
                                          bool one_hop, struct copse_err *err) {
  struct copse_candidate *it = &c->list[c->n];
  struct copse_err why = COPSE_ERR_INIT;
  if (c->n == COPSE_MAX_CANDIDATES) return COPSE_OK;
  *it = c->list[of];
  it->owned = it->kept = false;
  it->most_bytes = most;
  it->lower.low_latency = true;
  it->lower.one_hop = one_hop;
  it->lower.max_bytes = (int64_t)most;
  if (one_hop) it->lower.instances = 0; /* the ones given are a tree's */
  if (one_hop) snprintf(it->name, sizeof it->name, "one hop");
  copse_proposal_name_add(it->name, sizeof it->name, "packets", 1);
  c->n++;
  copse_status status = predict_last(c, &why);
  if (status == COPSE_OK && c->predictions[c->n - 1].instead[0] == '\0') return COPSE_OK;
  drop_last(c);
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

copse_status copse_candidates_packets(struct copse_candidates *c, uint64_t most_bytes,
                                      struct copse_err *err) {
  int n = c->n;
  if (c->topology->n_ranks == 1 || copse_prediction_is_coarse(&c->predictions[0])) return COPSE_OK;
  for (int i = 0; i < n; i++)
    if (!c->list[i].lower.low_latency)
      COPSE_DO(copse_candidates_add_packets(c, i, most_bytes, false, err));
  if (c->list[0].schedule->collective != COPSE_ALLREDUCE) return COPSE_OK;
  for (int i = 0, before = c->n; i < n && c->n == before; i++)
    COPSE_DO(copse_candidates_add_packets(c, i, most_bytes, true, err));
  return COPSE_OK;
}

void copse_candidates_free(struct copse_candidates *candidates) {
  for (int i = 0; i < candidates->n; i++)
    if (candidates->list[i].owned) copse_schedule_free(candidates->list[i].schedule);
  copse_predictions_free(candidates->predictions, candidates->n);
  copse_routes_free(&candidates->routes);
  if (candidates->times) free(candidates->times->of.rows);
  free(candidates->times);
  *candidates = (struct copse_candidates){0};
}

/* ---- which is best --------------------------------------------------------------------------- */

int copse_candidates_best(const struct copse_candidates *candidates, const double *us) {
  double least = least_cost(candidates, us);
  int best = -1;
  for (int i = 0; i < candidates->n; i++) {
    int more = best >= 0 ? candidates->list[i].hops - candidates->list[best].hops : -1;
    double at = cost(candidates, us, i);
    if (at > least * (1 + MODEL_ERROR) || more > 0) continue;
    if (more < 0 || at * (1 + SAME_TIME) < cost(candidates, us, best)) best = i;
  }
  return best;
}

/* Whether a candidate does where the best one would be taken: it is close to that, and within
 * MODEL_ERROR of the fastest. */
static bool is_close(const struct copse_candidates *candidates, const double *us, int i) {
  int best = copse_candidates_best(candidates, us);
  double most = fmin(cost(candidates, us, best) * (1 + CLOSE_TIME),
                     least_cost(candidates, us) * (1 + MODEL_ERROR));
  return cost(candidates, us, i) <= most && candidates->list[i].hops <= candidates->list[best].hops;
}

int copse_candidates_lasting(const struct copse_candidates *candidates,
                             double (*us)[COPSE_MAX_CANDIDATES], int n_sizes, int *n_close) {
  int best = 0;
  *n_close = 0;
  for (int i = 0; i < candidates->n; i++) {
    int n = 0;
    while (n < n_sizes && is_close(candidates, us[n], i)) n++;
    if (n <= *n_close) continue;
    best = i;
    *n_close = n;
  }
  return best;
}

/* Returns the fastest one at a size at which they were compared; `fastest` where that is within
 * SAME_TIME of it. */
static int fastest_at(const struct copse_candidates *c, double bytes, int fastest) {
  for (int i = 0; i < c->n; i++)
    if (known_us(c, i, bytes) < known_us(c, fastest, bytes) * (1 - SAME_TIME)) fastest = i;
  return fastest;
}

/* Finds what the range's candidate costs at a size that it is for. */
static void find_loss(const struct copse_candidates *c, double bytes,
                      struct copse_candidate_range *range) {
  int fastest = fastest_at(c, bytes, range->candidate);
  double loss = known_us(c, range->candidate, bytes) / known_us(c, fastest, bytes) - 1;
  if (!(loss > range->loss)) return; /* nor where one rank takes no time at all */
  range->loss = loss;
  range->loss_bytes = (uint64_t)bytes;
  range->fastest = fastest;
  range->fewer_hops = c->list[fastest].hops - c->list[range->candidate].hops;
}

/* Returns which to take of those that are known there, and the least cost of them. */
static int known_best(const struct copse_candidates *c, double bytes, double *least) {
  double us[COPSE_MAX_CANDIDATES];
  for (int i = 0; i < c->n; i++) us[i] = known_us(c, i, bytes);
  *least = least_cost(c, us);
  return copse_candidates_best(c, us);
}

/* Returns what a candidate costs beside another, or a bound of that. With more hops than that one
 * it must be faster by MODEL_ERROR, or a third one be so. */
static double known_cost(const struct copse_candidates *c, int i, int other, double bytes) {
  const struct copse_known *known = known_of(c, i, bytes);
  double least = copse_q_to_double(c->predictions[i].runs_per_GB) * bytes * 1e-3;
  double at = (known->any ? known->us : least) / kept_part(c, i);
  if (c->list[i].hops <= c->list[other].hops) return at;
  (void)known_best(c, bytes, &least);
  return fmin(at, least) * (1 + MODEL_ERROR);
}

/* A size at which one of two candidates is taken: what that one costs, and how much more the other.
 */
struct side {
  double bytes, us, more;
};

static struct side side_of(const struct copse_candidates *c, int here, int beyond, double bytes) {
  double us = known_cost(c, here, beyond, bytes);
  return (struct side){bytes, us, known_cost(c, beyond, here, bytes) - us};
}

/* Between the last size where one is taken and the first where the next is: both there. `slow`: how
 * long the first takes at `high` is not known. */
struct border {
  int which[4], n, turn; /* both, and what is fastest at the ends if that matters; times compared */
  bool slow;
  struct side low, high;
};

/* Whether it is known that the first of two is ahead at a size. */
static bool is_ahead(const struct copse_candidates *c, int first, int other, double bytes) {
  return copse_is_known(known_of(c, first, bytes), INFINITY) && known_of(c, other, bytes)->any &&
         side_of(c, first, other, bytes).more >= 0;
}

/* Within BORDER_WIDTH the second begins where it costs BORDER_LOSS more at most. */
static void settle(struct border *b) {
  bool narrow = b->high.bytes - b->low.bytes <= b->high.bytes * BORDER_WIDTH,
       lossy = b->slow || b->high.more > b->high.us * BORDER_LOSS;
  if (lossy && b->low.more <= (narrow ? b->low.us * BORDER_LOSS : 0))
    b->high.bytes = b->low.bytes + 1;
}

/* Begins a border with all that is known: where the second is ahead at first; not by a byte off
 * what was found before, both sides of which were compared. */
static struct border begin_border(const struct copse_candidates *c, int before, int after,
                                  double from, double to) {
  struct border b = {
      .which = {before, after, fastest_at(c, from, before), fastest_at(c, to, after)},
      .n = c->list[before].hops == c->list[after].hops ? 2 : 4};
  for (size_t i = 0; i < c->times->of.n; i++) {
    double at = c->times->of.rows[i].bytes;
    if (from < at && at < to - 1 && is_ahead(c, after, before, at)) to = at;
  }
  for (size_t i = 0; i < c->times->of.n; i++) {
    double at = c->times->of.rows[i].bytes;
    if (from < at - 1 && at < to && is_ahead(c, before, after, at)) from = at;
  }
  b.low = side_of(c, before, after, from);
  b.high = side_of(c, after, before, to);
  b.slow = !copse_is_known(known_of(c, before, to), INFINITY);
  settle(&b);
  return b;
}

/* Returns what the first costs more just before the second begins; 0: it is where it is to be. */
static double loss_before(const struct border *b) {
  if (b->high.bytes - b->low.bytes <= 1) return 0;
  if (b->slow) return INFINITY;
  return b->high.more > b->high.us * BORDER_LOSS ? b->high.more / b->high.us : 0;
}

/* Compares both at `high` if it is slow; else where lines would cross, a little after it; of three
 * times once in the middle; within BORDER_WIDTH, and at first just after `low`, where a number of
 * chunks changes, or just before it. */
static copse_status try_between(const struct copse_candidates *c, struct border *b,
                                struct copse_err *err) {
  double low = b->low.bytes, high = b->high.bytes, jump = high + 1;
  bool narrow = high - low <= high * BORDER_WIDTH, first = b->turn == 0;
  double part = (b->low.more + b->high.us * BORDER_LOSS / 2) / (b->low.more + b->high.more);
  double middle = low + (high - low) * (b->turn % 3 < 2 ? part : 0.5);
  middle = floor(fmin(fmax(middle, low + 1), high - 1));
  for (int i = 0; i < b->n && (narrow || first); i++) {
    const struct copse_prediction *p = &c->predictions[b->which[i]];
    COPSE_DO(copse_predictions_jump(p, p, low, jump - 1, &jump, err));
  }
  if ((narrow && jump <= high) || (first && jump == low + 1)) middle = fmin(jump, high - 1);
  if (b->slow) middle = high;
  b->turn += !b->slow;
  b->slow = false;
  COPSE_DO(time_these(c, b->which, b->n, &middle, 1, err));
  struct side before = side_of(c, b->which[0], b->which[1], middle),
              after = side_of(c, b->which[1], b->which[0], middle);
  *(before.more > 0 ? &b->low : &b->high) = before.more > 0 ? before : after;
  settle(b);
  return COPSE_OK;
}

/* Finds where the second of each two is to be taken, first where most is lost. Either the first
 * costs BORDER_LOSS more at most just before; or within BORDER_WIDTH, since a time jumps, the
 * second costs BORDER_LOSS more at most where the first is ahead at last; else to the byte. */
static copse_status find_borders(const struct copse_candidates *c, struct border *borders, int n,
                                 struct copse_err *err) {
  for (double most; c->times->border_work > 0; c->times->border_work -= c->times->of.work - most) {
    struct border *worst = borders;
    for (int i = 1; i < n; i++)
      if (loss_before(&borders[i]) > loss_before(worst)) worst = &borders[i];
    if (n == 0 || loss_before(worst) == 0) break;
    most = c->times->of.work;
    COPSE_DO(try_between(c, worst, err));
  }
  return COPSE_OK;
}

_Static_assert(MOST_SIZES <= COPSE_MAX_RANGES, "each size may be a range");

/* The sizes that are compared, in rising order. */
struct sizes {
  int n;
  double bytes[MOST_SIZES], us[MOST_SIZES][COPSE_MAX_CANDIDATES];
  struct border borders[MOST_SIZES]; /* of ranges, but for the first */
};

/* Lists powers of two or COARSE_POWER, steps between if transfers are few, of long messages powers
 * of four if they are many, what comes where one ends. */
static void list_sizes(const struct copse_candidates *c, uint64_t smallest, uint64_t largest,
                       struct sizes *sizes) {
  double transfers = 0;
  for (int i = 0; i < c->n; i++) transfers += c->predictions[i].dag.n_transfers;
  uint64_t cuts = transfers > c->limits.stepped ? 1 : STEPS_A_POWER, size = smallest, power = size;
  uint64_t times = copse_prediction_is_coarse(&c->predictions[0]) ? COARSE_POWER : 2;
  for (uint64_t next; size <= largest && sizes->n < MOST_SIZES - 1; size = next) {
    bool ends = false;
    if (size == times * power) power = size;
    if (transfers > c->limits.in_twos && power >= LONG_FROM && times < 4) times = 4;
    next = size + (times - 1) * power / cuts;
    for (int i = 0; i < c->n; i++) ends = ends || c->list[i].most_bytes == size;
    sizes->bytes[sizes->n++] = (double)size;
    if (ends && size < largest) sizes->bytes[sizes->n++] = (double)size + 1;
  }
}

static bool add_size(struct sizes *sizes, double bytes) {
  int at = sizes->n;
  for (int i = 0; i < sizes->n; i++)
    if (sizes->bytes[i] == bytes) return false;
  if (at == MOST_SIZES) return false;
  for (sizes->n++; at > 0 && sizes->bytes[at - 1] > bytes; at--)
    sizes->bytes[at] = sizes->bytes[at - 1];
  sizes->bytes[at] = bytes;
  return true;
}

/* Times at the last size of a range that has a next what may be better there: all if a time of one
 * of both candidates jumps to the next size, else what is no slower there. */
static copse_status time_last(const struct copse_candidates *c,
                              const struct copse_candidate_range *range, double last,
                              struct copse_err *err) {
  double us[1][COPSE_MAX_CANDIDATES], next = last + 1;
  int which[COPSE_MAX_CANDIDATES] = {range[0].candidate, range[1].candidate}, n = 0;
  bool jumps = false;
  COPSE_DO(time_these(c, which, 2, &last, 1, err));
  for (int i = 0; i < 2; i++)
    jumps |= !(fabs(known_us(c, which[i], last) / known_us(c, which[i], next) - 1) <= BORDER_LOSS);
  if (jumps) return copse_candidates_time(c, &last, 1, us, err);
  for (int i = 0; i < c->n; i++)
    if (known_us(c, i, next) <= known_us(c, range->candidate, next)) which[n++] = i;
  return time_these(c, which, n, &last, 1, err);
}

/* Times candidates at the first and last size of a range, and where its own one's number of chunks
 * changes by a large part, since times jump there, and states what is lost. Where that is more than
 * the model's own error another one does better, and the size is to be compared like others:
 * *added. The next range came before. */
static copse_status compare_within(const struct copse_candidates *c, double first, double last,
                                   bool has_next, struct copse_candidate_range *range,
                                   struct sizes *sizes, bool *added, struct copse_err *err) {
  double us[2 + MOST_JUMPS][COPSE_MAX_CANDIDATES], bytes[2 + MOST_JUMPS] = {first};
  const struct copse_prediction *p = &c->predictions[range->candidate];
  int n = 1;
  for (double at = first, jump; n < 1 + MOST_JUMPS && at < last; at = jump) {
    COPSE_DO(copse_predictions_jump(p, p, at, last, &jump, err));
    if (jump > last || jump - at < at * LEAST_JUMP) break;
    bytes[n++] = jump;
  }
  bytes[n++] = last;
  COPSE_DO(copse_candidates_time(c, bytes, has_next ? n - 1 : n, us, err));
  if (has_next) COPSE_DO(time_last(c, range, last, err));
  COPSE_DO(time_these(c, &range->candidate, 1, bytes, n, err));
  for (int i = 0; i < n; i++) {
    double own = known_us(c, range->candidate, bytes[i]) / kept_part(c, range->candidate), least;
    int best = known_best(c, bytes[i], &least), fastest = fastest_at(c, bytes[i], range->candidate);
    find_loss(c, bytes[i], range);
    if (i == n - 1 && has_next && (best == range[1].candidate || fastest == range[1].candidate))
      break; /* it would move the border by a byte */
    if (c->times->of.work < c->times->most_work && own > least * (1 + MOST_LOSS))
      *added = add_size(sizes, bytes[i]) || *added;
  }
  return COPSE_OK;
}

/* Makes as few ranges as there can be. */
static copse_status make_ranges(const struct copse_candidates *c, struct sizes *sizes,
                                struct copse_candidate_range ranges[COPSE_MAX_RANGES], int *n,
                                struct copse_err *err) {
  const double *bytes = sizes->bytes;
  int n_close;
  *n = 0;
  for (int i = 0; i < sizes->n; i += n_close) {
    struct copse_candidate_range *range = &ranges[*n];
    int best = copse_candidates_lasting(c, sizes->us + i, sizes->n - i, &n_close);
    *range =
        (struct copse_candidate_range){.max_bytes = INT64_MAX, .candidate = best, .fastest = best};
    for (int b = i; b < i + n_close; b++) find_loss(c, bytes[b], range);
    if ((*n)++ == 0) continue;
    sizes->borders[*n - 2] = begin_border(c, range[-1].candidate, best, bytes[i - 1], bytes[i]);
  }
  COPSE_DO(find_borders(c, sizes->borders, *n - 1, err));
  for (int i = 1; i < *n; i++) {
    ranges[i].min_bytes = (uint64_t)sizes->borders[i - 1].high.bytes;
    ranges[i - 1].max_bytes = ranges[i].min_bytes - 1;
  }
  return COPSE_OK;
}

copse_status copse_candidates_ranges(const struct copse_candidates *candidates, uint64_t smallest,
                                     uint64_t largest,
                                     struct copse_candidate_range ranges[COPSE_MAX_RANGES], int *n,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_candidate_times *times = candidates->times;
  struct sizes *sizes;
  bool added = true;
  *n = 0;
  times->border_work = candidates->limits.border_work;
  times->most_work = times->border_work > 0 ? INFINITY : 0; /* the first time */
  COPSE_DO(COPSE_ARRAY(&scratch, 1, sizes, err));
  list_sizes(candidates, smallest, largest, sizes);
  for (int round = 0; round < BORDER_ROUNDS && added; round++) {
    COPSE_DO(copse_candidates_time(candidates, sizes->bytes, sizes->n, sizes->us, err));
    COPSE_DO(make_ranges(candidates, sizes, ranges, n, err));
    added = false;
    for (int i = *n - 1; i >= 0; i--)
      COPSE_DO(compare_within(candidates, fmax((double)ranges[i].min_bytes, (double)smallest),
                              fmin((double)ranges[i].max_bytes, (double)largest), i + 1 < *n,
                              &ranges[i], sizes, &added, err));
    if (round == 0) times->most_work = times->of.work + candidates->limits.border_work;
  }
  return COPSE_OK;
}

/* ---- the switch -------------------------------------------------------------------------------
 */

/* Finds from which bytes on a range's candidate is slower than `by`; false: not at its last. */
static copse_status find_switch(const struct copse_candidates *c, int by, uint64_t smallest,
                                uint64_t largest, const struct copse_candidate_range *range,
                                uint64_t *from, bool *found, struct copse_err *err) {
  *found = false;
  for (uint64_t size = largest; size >= smallest; size /= 2) {
    const double bytes = (double)size;
    double us[2];
    if (size > range->max_bytes || size < range->min_bytes) continue;
    COPSE_DO(copse_candidates_time_of(c, by, &bytes, 1, &us[0], err));
    COPSE_DO(copse_candidates_time_of(c, range->candidate, &bytes, 1, &us[1], err));
    if (us[0] >= us[1]) return COPSE_OK;
    *found = true;
    *from = size / 2 < range->min_bytes || size == smallest ? range->min_bytes : size;
  }
  return COPSE_OK;
}

copse_status copse_candidates_switch(struct copse_candidates *c,
                                     const struct copse_solve_options *options, uint64_t smallest,
                                     uint64_t largest, struct copse_candidate_range *ranges, int *n,
                                     struct copse_err *err) {
  struct copse_schedule *schedule = NULL;
  if (c->n == COPSE_MAX_CANDIDATES) return COPSE_OK;
  COPSE_DO(copse_propose_switch(c->topology, options, &schedule, err));
  if (!schedule) return COPSE_OK;
  COPSE_DO(take(c, schedule, "by the switch", err));
  for (int i = 0, others = *n; i < others; i++) {
    struct copse_candidate_range *it = &ranges[*n];
    bool faster = false;
    *it = (struct copse_candidate_range){.max_bytes = ranges[i].max_bytes, .candidate = c->n - 1};
    COPSE_DO(
        find_switch(c, it->candidate, smallest, largest, &ranges[i], &it->min_bytes, &faster, err));
    it->fastest = it->candidate;
    *n += faster;
  }
  return COPSE_OK;
}
