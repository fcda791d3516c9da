/* Assignment with capacities: the oracle of the relaxation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/placement/internal.h"

copse_status copse_place_assign_new(int n_experts, int n_ranks, int capacity,
                                    struct copse_place_assign *out, struct copse_err *err) {
  struct copse_place_assign *a = out;
  size_t ranks = (size_t)n_ranks;
  copse_status status;
  if (capacity > n_experts) capacity = n_experts;
  *a =
      (struct copse_place_assign){.n_experts = n_experts, .n_ranks = n_ranks, .capacity = capacity};
  COPSE_TRY(copse_calloc((size_t)n_experts, sizeof *a->rank_of, &a->rank_of, err));
  COPSE_TRY(copse_calloc(ranks, sizeof *a->prices, &a->prices, err));
  COPSE_TRY(copse_calloc(ranks, sizeof *a->distance, &a->distance, err));
  COPSE_TRY(copse_calloc(ranks, sizeof *a->via, &a->via, err));
  COPSE_TRY(copse_calloc(ranks, sizeof *a->done, &a->done, err));
  COPSE_TRY(copse_calloc(ranks, sizeof *a->n_held, &a->n_held, err));
  COPSE_TRY(copse_calloc(ranks * (size_t)capacity, sizeof *a->held, &a->held, err));
out:
  if (status != COPSE_OK) copse_place_assign_free(a);
  return status;
}

void copse_place_assign_free(struct copse_place_assign *a) {
  free(a->rank_of);
  free(a->prices);
  free(a->distance);
  free(a->via);
  free(a->done);
  free(a->n_held);
  free(a->held);
  *a = (struct copse_place_assign){0};
}

/* Reduced cost of putting an expert on a rank; prices are <= 0 and make full ranks dear. */
static double reduced(const struct copse_place_assign *a, const double *cost, int e, int r) {
  return cost[(size_t)e * (size_t)a->n_ranks + (size_t)r] - a->prices[r];
}

static void relax(struct copse_place_assign *a, const double *cost, int e, double base) {
  for (int r = 0; r < a->n_ranks; r++) {
    double d = base + reduced(a, cost, e, r);
    if (!a->done[r] && d < a->distance[r]) {
      a->distance[r] = d;
      a->via[r] = e;
    }
  }
}

static int nearest(const struct copse_place_assign *a) {
  int best = -1;
  for (int r = 0; r < a->n_ranks; r++)
    if (!a->done[r] && (best < 0 || a->distance[r] < a->distance[best])) best = r;
  return best;
}

/* Hands the places along the path: the last rank has room, each expert moves one on. */
static void shift(struct copse_place_assign *a, int last, int expert) {
  for (int r = last;;) {
    int e = a->via[r], from = a->rank_of[e];
    a->held[(size_t)r * (size_t)a->capacity + (size_t)a->n_held[r]++] = e;
    a->rank_of[e] = r;
    if (e == expert) return;
    int *held = a->held + (size_t)from * (size_t)a->capacity;
    for (int i = 0; i < a->n_held[from]; i++)
      if (held[i] == e) {
        held[i] = held[--a->n_held[from]];
        break;
      }
    r = from;
  }
}

static void add_expert(struct copse_place_assign *a, const double *cost, int expert) {
  int r;
  for (int i = 0; i < a->n_ranks; i++) a->distance[i] = INFINITY;
  memset(a->done, 0, (size_t)a->n_ranks);
  relax(a, cost, expert, 0);
  for (r = nearest(a); a->n_held[r] >= a->capacity; r = nearest(a)) {
    const int *held = a->held + (size_t)r * (size_t)a->capacity;
    a->done[r] = 1;
    for (int i = 0; i < a->n_held[r]; i++)
      relax(a, cost, held[i], a->distance[r] - reduced(a, cost, held[i], r));
  }
  for (int i = 0; i < a->n_ranks; i++)
    if (a->done[i]) a->prices[i] += a->distance[i] - a->distance[r];
  shift(a, r, expert);
}

void copse_place_assign_run(struct copse_place_assign *a, const double *cost) {
  memset(a->n_held, 0, (size_t)a->n_ranks * sizeof *a->n_held);
  for (int r = 0; r < a->n_ranks; r++) a->prices[r] = 0;
  for (int e = 0; e < a->n_experts; e++) a->rank_of[e] = -1;
  for (int e = 0; e < a->n_experts; e++) add_expert(a, cost, e);
}
