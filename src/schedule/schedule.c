/* Schedules: rates, units and sums over cycles. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "schedule/chunks.h"
#include "schedule/schedule.h"

void copse_schedule_free(struct copse_schedule *schedule) {
  if (!schedule) return;
  copse_arena_free(&schedule->arena);
  free(schedule);
}

int64_t copse_schedule_unit_k(const struct copse_schedule *schedule) {
  int64_t whole = 1;
  for (int t = 0; t < schedule->n_trees; t++)
    if (copse_lcm(whole, schedule->trees[t].weight.den, &whole, NULL) != COPSE_OK) return 0;
  if (copse_collective_rooted(schedule->collective)) return whole;
  return whole / copse_gcd(whole, schedule->n_ranks);
}

bool copse_schedule_fits_k(const struct copse_schedule *s) {
  bool broadcasts = copse_collective_broadcasts(s->collective);
  int64_t roots = copse_collective_rooted(s->collective) ? 1 : s->n_ranks, whole;
  for (int t = 0; t < s->n_trees && s->k > 0; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t];
    if (broadcasts && tree->phase == COPSE_PHASE_REDUCE) continue;
    if (copse_mul_overflows(s->k, roots, &whole) || whole % tree->weight.den != 0) return false;
  }
  for (int c = 0; c < s->n_changes && s->k > 0; c++)
    if (copse_mul_overflows(s->k, roots, &whole) || whole % s->changes[c].weight.den != 0)
      return false;
  return true;
}

/* A place that is done is marked in `done`: its cycle's least place comes first. */
copse_status copse_sum_cycles(int order, const int *image, int n, struct copse_q *values,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *done = NULL;
  COPSE_DO(copse_calloc((size_t)n, 1, &done, err));
  for (int first = 0; first < n; first++) {
    struct copse_q sum = COPSE_Q_ZERO;
    int length = 0, at = first;
    if (done[first]) continue;
    do {
      COPSE_DO(copse_q_add(sum, values[at], &sum, err));
      at = image[at];
      length++;
    } while (at != first);
    if (order % length != 0) {
      return copse_fail(err, COPSE_INVALID, "a cycle does not divide the order");
    }
    COPSE_DO(copse_q_mul(sum, (struct copse_q){order / length, 1}, &sum, err));
    do {
      values[at] = sum;
      done[at] = 1;
      at = image[at];
    } while (at != first);
  }
  return COPSE_OK;
}

int copse_schedule_paths(const struct copse_schedule *schedule) {
  int n = 0;
  for (int f = 0; f < schedule->n_flows; f++) n += schedule->flows[f].n_paths;
  return n;
}

double copse_schedule_algbw(const struct copse_schedule *schedule) {
  struct copse_q t = schedule->time_per_GB;
  return t.num == 0 ? (double)INFINITY : (double)t.den / (double)t.num;
}

struct copse_schedule_cut copse_bound_main_cut(const struct copse_bound *bound) {
  bool one = bound->kind != COPSE_BOUND_FORESTS;
  struct copse_schedule_cut most = {.nodes = bound->cut, .n_nodes = one ? bound->n_cut : 0};
  for (int i = 0; i < bound->n_cuts; i++)
    if (i == 0 || copse_q_cmp(bound->cuts[i].weight, most.weight) > 0) most = bound->cuts[i];
  return most;
}

int64_t copse_schedule_chunk_bytes(const struct copse_schedule *s) {
  struct copse_q most = COPSE_Q_ZERO;
  for (int t = 0; t < s->n_trees; t++)
    if (copse_q_cmp(s->trees[t].weight, most) > 0) most = s->trees[t].weight;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      if (copse_q_cmp(s->flows[f].paths[p].weight, most) > 0) most = s->flows[f].paths[p].weight;
  /* up to a unit more for each end of a piece, which falls on a multiple of 16 bytes */
  __int128 whole = (__int128)s->objective.bytes * most.num, part = (__int128)most.den;
  int64_t bytes = (int64_t)(whole / (part * s->objective.chunks)) + 2 * COPSE_LEAST_CHUNK_BYTES;
  return bytes > COPSE_CHUNK_BYTES ? bytes : COPSE_CHUNK_BYTES;
}

int64_t copse_schedule_images(const struct copse_schedule *schedule) {
  int64_t images = 1;
  for (int i = 0; i < schedule->n_rotations; i++)
    if (__builtin_mul_overflow(images, schedule->rotations[i].order, &images)) return INT64_MAX;
  return images;
}
