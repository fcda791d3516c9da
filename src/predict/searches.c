/*
 * The schedules that `copse plans` searches for, each for a message size (sizes.h), beginning with
 * the candidates that there are (candidates.h): some sizes first, and then those where most may be
 * gained.
 */
#include <math.h>
#include <stdio.h>

#include "predict/candidates.h"
#include "predict/policy.h"
#include "predict/sizes.h"

struct searching {
  struct copse_candidates *c;
  struct copse_solve_options solve; /* whose progress is that of parts */
  struct copse_predict_options packets;
  uint64_t most_packets;
  struct copse_progress_parts parts;
  struct copse_progress progress;
  struct copse_err *err;
};

static bool can_search(const struct copse_candidates *c) {
  return c->topology->n_ranks > 1 && !copse_prediction_is_coarse(&c->predictions[0]);
}

static void begin_searching(struct searching *s, const struct copse_solve_options *options,
                            int64_t n_parts) {
  s->packets = s->c->options;
  copse_predict_alpha(&s->packets, PACKET_HOP * s->packets.sim.alpha_us);
  s->progress = copse_progress_begin_parts(
      &s->parts, options->progress, copse_collective_name(options->collective), "search", n_parts);
  s->solve = *options;
  s->solve.progress = &s->progress;
}

static const struct copse_predict_options *costs_at(const struct searching *s, double bytes) {
  return bytes <= (double)s->most_packets ? &s->packets : &s->c->options;
}

struct timed {
  double us;
  int candidate;
};

COPSE_ORDER(faster, struct timed, COPSE_UP(us) ?: COPSE_UP(candidate))

/* Lists what a search begins with, each schedule once: the first candidate's, then those that are
 * fastest at the size. */
static copse_status list_fastest_first(const struct copse_candidates *c, double bytes,
                                       struct copse_proposal *from, int *n, struct copse_err *err) {
  double us[1][COPSE_MAX_CANDIDATES];
  struct timed list[COPSE_MAX_CANDIDATES];
  *n = 0;
  COPSE_DO(copse_candidates_time_near(c, &bytes, 1, SEARCHED_REACH, us, err));
  for (int i = 0; i < c->n; i++) list[i] = (struct timed){i > 0 ? us[0][i] : -1, i};
  COPSE_SORT(list, c->n, faster);
  for (int i = 0; i < c->n; i++) {
    const struct copse_candidate *it = &c->list[list[i].candidate];
    int k = 0;
    while (k < *n && from[k].schedule != it->schedule) k++;
    if (k < *n) continue; /* in packets, or in chunks */
    from[k].schedule = it->schedule;
    snprintf(from[k].name, sizeof from[k].name, "%s", it->name);
    ++*n;
  }
  return COPSE_OK;
}

static copse_status search_size(const struct searching *s, double bytes, double work,
                                struct copse_size_answer *found) {
  struct copse_proposal from[COPSE_MAX_CANDIDATES];
  struct copse_solve_seconds ignored;
  struct copse_size_question question = {.solve = &s->solve,
                                         .predict = costs_at(s, bytes),
                                         .bytes = bytes,
                                         .work = work,
                                         .from = from};
  COPSE_DO(list_fastest_first(s->c, bytes, from, &question.n_from, s->err));
  return copse_solve_for_size(s->c->topology, &question, found, &ignored, s->err);
}

static copse_status find_least(const struct copse_candidates *c, double bytes, double *us,
                               struct copse_err *err) {
  double times[1][COPSE_MAX_CANDIDATES];
  COPSE_DO(copse_candidates_time(c, &bytes, 1, times, err));
  *us = times[0][0];
  for (int i = 1; i < c->n; i++) *us = fmin(*us, times[0][i]);
  return COPSE_OK;
}

/* Whether the fastest takes, but for the model's error, no longer than the healthy one or the
 * bound. */
static copse_status is_enough(const struct copse_candidates *c,
                              const struct copse_candidates *healthy, double bytes, bool *enough,
                              struct copse_err *err) {
  const struct copse_schedule *of = c->list[0].schedule;
  const struct copse_bounds_question question = {of->collective, of->root, of,
                                                 c->predictions[0].sim.alpha_us};
  double here, there, bound_us;
  *enough = false;
  if (!healthy || healthy->n == 0) return COPSE_OK;
  COPSE_DO(find_least(c, bytes, &here, err));
  COPSE_DO(find_least(healthy, bytes, &there, err));
  COPSE_DO(copse_bounds_predict(c->topology, &question, &bytes, 1, &bound_us, err));
  *enough = here <= fmax(there, bound_us) * (1 + MODEL_ERROR);
  return COPSE_OK;
}

/* Adds it as "64K: k=4". */
static copse_status add_found(struct searching *s, const struct copse_size_answer *found,
                              double bytes) {
  char name[COPSE_PROPOSAL_NAME], unit = bytes < 1 << 20 ? 'K' : 'M';
  copse_proposal_name_print(name, sizeof name, "%.0f%c: %s",
                            bytes / (unit == 'K' ? 1 << 10 : 1 << 20), unit,
                            copse_proposal_without_size(found->name));
  return copse_candidates_add(s->c, found->schedule, name, &s->c->options.lower, s->err);
}

/* Adds it, but not where it is large and, of chunks, no faster than what there was. */
static copse_status add_unless_large(struct searching *s, const struct copse_size_answer *found,
                                     double bytes) {
  double least = INFINITY;
  copse_status status = COPSE_OK;
  if (costs_at(s, bytes) != &s->packets &&
      copse_schedule_edges(found->schedule) > s->c->limits.edges_alike)
    status = find_least(s->c, bytes, &least, s->err);
  if (status == COPSE_OK && found->us <= least * (1 - CLOSE_TIME))
    return add_found(s, found, bytes);
  copse_schedule_free(found->schedule);
  return status;
}

copse_status copse_candidates_search(struct copse_candidates *c,
                                     const struct copse_candidates *healthy,
                                     const struct copse_solve_options *options,
                                     uint64_t most_packets, struct copse_err *err) {
  static const uint64_t of_many[] = PLAN_SIZES, of_few[] = PLAN_SIZES_OF_FEW;
  const bool few = c->topology->n_ranks <= FEW_RANKS;
  const uint64_t *sizes = few ? of_few : of_many;
  const size_t n_sizes = few ? sizeof of_few / sizeof *of_few : sizeof of_many / sizeof *of_many;
  struct searching s = {.c = c, .most_packets = most_packets, .err = err};
  const double work = c->limits.search_work / (healthy ? 2 : 1); /* with what it found */
  begin_searching(&s, options, (int64_t)n_sizes);
  if (!can_search(c) || work <= 0) return COPSE_OK;
  for (size_t i = 0; i < n_sizes; i++) {
    struct copse_size_answer found;
    bool enough;
    s.parts.i = (int64_t)i;
    COPSE_DO(is_enough(c, healthy, (double)sizes[i], &enough, err));
    if (enough || c->n == COPSE_MAX_CANDIDATES) continue;
    COPSE_DO(search_size(&s, (double)sizes[i], work, &found));
    COPSE_DO(add_unless_large(&s, &found, (double)sizes[i]));
  }
  return COPSE_OK;
}

/* A size that may be searched again. */
struct hope {
  double bytes, enough_us; /* what is not to be beaten */
  double least_us;         /* of what is there */
  double part;             /* that may be gained, of least_us */
  double work;             /* of the next search */
};

/* Lists powers of two from 1 KiB, and what nothing beats there. */
static copse_status list_hopes(const struct searching *s, const struct copse_candidates *like,
                               struct hope hopes[MOST_HOPES], int *n) {
  const struct copse_schedule *of = s->c->list[0].schedule;
  *n = 0;
  for (double bytes = 1 << 10; bytes <= 256 << 20; bytes *= 2) {
    struct hope *h = &hopes[(*n)++];
    const struct copse_bounds_question question = {of->collective, of->root, of,
                                                   costs_at(s, bytes)->sim.alpha_us};
    double like_us = 0;
    *h = (struct hope){
        .bytes = bytes, .part = INFINITY, .work = MORE_TIMES * s->c->limits.search_work};
    COPSE_DO(copse_bounds_predict(s->c->topology, &question, &bytes, 1, &h->enough_us, s->err));
    if (like) COPSE_DO(find_least(like, bytes, &like_us, s->err));
    h->enough_us = fmax(h->enough_us, like_us);
  }
  return COPSE_OK;
}

/* Finds the size where most may be gained: no more than what is above the bound. */
static copse_status find_hope(const struct searching *s, struct hope *hopes, int n, int *best) {
  *best = 0;
  for (int i = 0; i < n; i++) {
    COPSE_DO(find_least(s->c, hopes[i].bytes, &hopes[i].least_us, s->err));
    hopes[i].part = fmin(hopes[i].part, 1 - hopes[i].enough_us / hopes[i].least_us);
    if (hopes[i].part > hopes[*best].part) *best = i;
  }
  return COPSE_OK;
}

/* Searches a size, and adds what is found if it is faster. Little gained is little hope, also for
 * the sizes beside it; what is searched once more is searched twice as long. */
static copse_status search_again(struct searching *s, struct hope *hopes, int n, int which,
                                 double *left) {
  struct hope *h = &hopes[which];
  struct copse_size_answer found;
  double least_us;
  const int before = s->c->n;
  const bool packets = costs_at(s, h->bytes) == &s->packets;
  COPSE_DO(search_size(s, h->bytes, fmin(h->work, *left), &found));
  *left -= found.work;
  if (packets || found.us < h->least_us * (1 - MORE_GAIN))
    COPSE_DO(add_found(s, &found, h->bytes));
  else
    copse_schedule_free(found.schedule);
  if (packets) COPSE_DO(copse_candidates_add_packets(s->c, before, s->most_packets, false, s->err));
  COPSE_DO(find_least(s->c, h->bytes, &least_us, s->err));
  const double gain = 1 - least_us / h->least_us;
  h->part = fmax(h->part * HOPE_LEFT, gain);
  h->work *= 2;
  for (int i = which - 1; i <= which + 1 && gain < MORE_GAIN; i += 2)
    if (i >= 0 && i < n) hopes[i].part /= 2;
  return COPSE_OK;
}

copse_status copse_candidates_search_more(struct copse_candidates *c,
                                          const struct copse_candidates *like,
                                          const struct copse_solve_options *options,
                                          uint64_t most_packets, struct copse_err *err) {
  struct searching s = {.c = c, .most_packets = most_packets, .err = err};
  const double all = c->limits.more_work;
  struct hope hopes[MOST_HOPES];
  int n, best;
  begin_searching(&s, options, 100);
  if (!can_search(c) || all <= 0) return COPSE_OK;
  COPSE_DO(list_hopes(&s, like, hopes, &n));
  for (double left = all; left > 0 && c->n + 2 <= COPSE_MAX_CANDIDATES;) {
    COPSE_DO(find_hope(&s, hopes, n, &best));
    if (hopes[best].part < LEAST_HOPE) break;
    s.parts.i = (int64_t)(100 * (1 - left / all));
    COPSE_DO(search_again(&s, hopes, n, best, &left));
  }
  return COPSE_OK;
}
