/*
 * The dynamic programme over sets of GPUs (Bellman; Held and Karp 1962), forwards from the first
 * GPU; for many GPUs the assignment problem, by shortest augmenting paths that Bellman and Ford's
 * method finds. Written apart from solver/rings, which it checks.
 */
#include "verify/orders.h"

#include "base/memory.h"

#define NONE COPSE_VERIFY_NO_STEP

static int64_t sum(int64_t a, int64_t b) { return a == NONE || b == NONE ? NONE : a + b; }

static void lower(int64_t *least, int64_t value) {
  if (value < *least) *least = value;
}

/* What doors `from` to `to` add at a GPU: the least. */
static int64_t at_doors(const struct copse_verify_orders *o, const int64_t *lengths, int from,
                        int to, int gpu) {
  int64_t least = lengths && o->n_doors > 0 ? NONE : 0;
  for (int d = from; lengths && d < to; d++) lower(&least, lengths[d * o->n + gpu]);
  return least;
}

/* Orders by these doors; best [2^n * n] by set and last GPU. */
static int64_t search_sets(const struct copse_verify_orders *o, int from, int to, int64_t *best) {
  int n = o->n;
  size_t sets = (size_t)1 << n;
  int64_t least = NONE;
  for (size_t i = 0; i < sets * (size_t)n; i++) best[i] = NONE;
  for (int g = 0; g < (o->closed ? 1 : n); g++)
    best[((size_t)1 << g) * (size_t)n + (size_t)g] = at_doors(o, o->first, from, to, g);
  for (size_t set = 1; set < sets; set++) {
    bool alone = (set & (set - 1)) == 0;
    for (int g = 0; g < n; g++) {
      int64_t so_far = best[set * (size_t)n + (size_t)g];
      for (int h = 0; so_far != NONE && h < n; h++) {
        size_t with = set | (size_t)1 << h;
        int64_t length = sum(so_far, o->move[g * n + h]);
        if (with == set) continue;
        if (alone) length = sum(length, at_doors(o, o->second, from, to, h));
        lower(&best[with * (size_t)n + (size_t)h], length);
      }
    }
  }
  for (int g = 0; g < n; g++) {
    int64_t end = o->closed ? o->move[g * n] : at_doors(o, o->last, from, to, g);
    lower(&least, sum(best[(sets - 1) * (size_t)n + (size_t)g], end));
  }
  return least;
}

static copse_status over_sets(const struct copse_verify_orders *o, int64_t *least,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int64_t *best = NULL;
  bool each = o->same_door && o->n_doors > 0;
  COPSE_DO(copse_calloc(((size_t)1 << o->n) * (size_t)o->n, sizeof *best, &best, err));
  *least = NONE;
  for (int d = 0; d < (each ? o->n_doors : 1); d++)
    lower(least, search_sets(o, each ? d : 0, each ? d + 1 : o->n_doors, best));
  return COPSE_OK;
}

/* ---- assignments ----------------------------------------------------------------------------- */

struct assignment {
  const struct copse_verify_orders *orders;
  int m;         /* GPUs, and a depot for the doors */
  int *row_of;   /* [m] which goes to it, or -1 */
  int *before;   /* [m] the column before on the path, or -1 */
  int64_t *path; /* [m] length of the shortest path to the column */
};

static int64_t step(const struct assignment *a, int i, int j) {
  const struct copse_verify_orders *o = a->orders;
  if (i == j) return NONE;
  if (i == o->n) return at_doors(o, o->first, 0, o->n_doors, j);
  if (j == o->n) return at_doors(o, o->last, 0, o->n_doors, i);
  return o->move[i * o->n + j];
}

/* Paths from a row over columns that others have, which take others instead. */
static void find_paths(struct assignment *a, int row) {
  bool changed = true;
  for (int j = 0; j < a->m; j++) {
    a->path[j] = step(a, row, j);
    a->before[j] = -1;
  }
  while (changed) {
    changed = false;
    for (int x = 0; x < a->m; x++) {
      if (a->row_of[x] < 0 || a->path[x] == NONE) continue;
      int64_t without = a->path[x] - step(a, a->row_of[x], x);
      for (int z = 0; z < a->m; z++) {
        int64_t length = sum(without, step(a, a->row_of[x], z));
        if (z == x || length >= a->path[z]) continue;
        a->path[z] = length;
        a->before[z] = x;
        changed = true;
      }
    }
  }
}

static bool add_row(struct assignment *a, int row) {
  int end = -1;
  find_paths(a, row);
  for (int j = 0; j < a->m; j++)
    if (a->row_of[j] < 0 && a->path[j] != NONE && (end < 0 || a->path[j] < a->path[end])) end = j;
  if (end < 0) return false;
  for (; a->before[end] >= 0; end = a->before[end]) a->row_of[end] = a->row_of[a->before[end]];
  a->row_of[end] = row;
  return true;
}

static copse_status over_assignments(const struct copse_verify_orders *o, int64_t *least,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct assignment a = {.orders = o, .m = o->n + !o->closed};
  COPSE_DO(COPSE_ARRAYS(&arena, (size_t)a.m, int, err, &a.row_of, &a.before));
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)a.m, a.path, err));
  for (int j = 0; j < a.m; j++) a.row_of[j] = -1;
  *least = 0;
  for (int i = 0; i < a.m; i++) {
    if (add_row(&a, i)) continue;
    *least = NONE;
    return COPSE_OK;
  }
  for (int j = 0; j < a.m; j++) *least += step(&a, a.row_of[j], j);
  return COPSE_OK;
}

copse_status copse_verify_least_order(const struct copse_verify_orders *o, int64_t *least,
                                      bool *all, struct copse_err *err) {
  *all = o->n <= COPSE_VERIFY_ALL_ORDERS;
  COPSE_DO(*all ? over_sets(o, least, err) : over_assignments(o, least, err));
  if (*least == NONE)
    return copse_fail(err, COPSE_REFUTED, "there is no order of the %d GPUs", o->n);
  return COPSE_OK;
}
