/* Multisets of ranks: how often each rank's input went into a value. All proofs compute with them
 * in place of numbers, so that no wrong sum passes for a right one. */
#include "codegen/check/multisets.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/text.h"

/* Ranks are listed up to here, with room for one more. */
#define MOST_TEXT 216u

/* A sum as it was asked for. */
struct sum {
  int set, n;
  const int *terms;
};

struct copse_multisets {
  int n_ranks;
  uint8_t **counts; /* [n] of n_ranks each */
  size_t n, capacity;
  struct copse_index_map by_counts;
  struct sum *sums; /* [n_sums] */
  size_t n_sums, sums_capacity;
  struct copse_index_map by_terms;
  uint8_t *sum; /* [n_ranks] the multiset at hand */
  struct copse_arena arena;
  struct copse_line line; /* for messages */
};

copse_status copse_multisets_new(int n_ranks, struct copse_multisets **out, struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  (*out)->n_ranks = n_ranks;
  return COPSE_ARRAY(&(*out)->arena, (size_t)n_ranks, (*out)->sum, err);
}

void copse_multisets_free(struct copse_multisets *sets) {
  if (!sets) return;
  copse_index_map_free(&sets->by_counts);
  copse_index_map_free(&sets->by_terms);
  copse_arena_free(&sets->arena);
  free(sets);
}

/* The number of the multiset in `sum`. */
static copse_status intern(struct copse_multisets *sets, int *set, struct copse_err *err) {
  size_t n = (size_t)sets->n_ranks, cursor = 0;
  uint64_t key = 0xcbf29ce484222325u; /* FNV-1a */
  uint8_t *copy;
  for (size_t i = 0; i < n; i++) key = (key ^ sets->sum[i]) * 0x100000001b3u;
  while ((*set = copse_index_map_next(&sets->by_counts, key, &cursor)) >= 0)
    if (memcmp(sets->counts[*set], sets->sum, n) == 0) return COPSE_OK;
  COPSE_DO(COPSE_GROW_IN(&sets->arena, sets->counts, sets->capacity, sets->n + 1, err));
  COPSE_DO(COPSE_ARRAY(&sets->arena, n, copy, err));
  COPSE_DO(copse_index_map_add(&sets->by_counts, key, (int)sets->n, err));
  memcpy(copy, sets->sum, n);
  *set = (int)sets->n;
  sets->counts[sets->n++] = copy;
  return COPSE_OK;
}

copse_status copse_multisets_single(struct copse_multisets *sets, int rank, int *set,
                                    struct copse_err *err) {
  memset(sets->sum, 0, (size_t)sets->n_ranks);
  sets->sum[rank] = 1;
  return intern(sets, set, err);
}

copse_status copse_multisets_everyone(struct copse_multisets *sets, int *set,
                                      struct copse_err *err) {
  memset(sets->sum, 1, (size_t)sets->n_ranks);
  return intern(sets, set, err);
}

static uint64_t key_of_terms(const int *terms, int n) {
  uint64_t key = (uint64_t)n;
  for (int i = 0; i < n; i++) key = copse_mix(key ^ (uint32_t)terms[i]);
  return key;
}

/* The sum of these terms if it has been asked for before, or -1. */
static int known_sum(const struct copse_multisets *sets, uint64_t key, const int *terms, int n) {
  size_t cursor = 0, bytes = (size_t)n * sizeof *terms;
  for (int i; (i = copse_index_map_next(&sets->by_terms, key, &cursor)) >= 0;) {
    const struct sum *s = &sets->sums[i];
    if (s->n == n && memcmp(s->terms, terms, bytes) == 0) return s->set;
  }
  return -1;
}

static copse_status remember_sum(struct copse_multisets *sets, uint64_t key, const int *terms,
                                 int n, int set, struct copse_err *err) {
  int *copy;
  COPSE_DO(COPSE_ARRAY(&sets->arena, (size_t)n, copy, err));
  memcpy(copy, terms, (size_t)n * sizeof *terms);
  COPSE_DO(COPSE_GROW_IN(&sets->arena, sets->sums, sets->sums_capacity, sets->n_sums + 1, err));
  COPSE_DO(copse_index_map_add(&sets->by_terms, key, (int)sets->n_sums, err));
  sets->sums[sets->n_sums++] = (struct sum){set, n, copy};
  return COPSE_OK;
}

copse_status copse_multisets_sum(struct copse_multisets *sets, const int *terms, int n, int *set,
                                 struct copse_err *err) {
  uint64_t key = key_of_terms(terms, n);
  *set = n == 1 ? terms[0] : known_sum(sets, key, terms, n);
  if (*set >= 0) return COPSE_OK;
  memset(sets->sum, 0, (size_t)sets->n_ranks);
  for (int t = 0; t < n; t++) {
    const uint8_t *counts = sets->counts[terms[t]];
    for (int i = 0; i < sets->n_ranks; i++) {
      int sum = sets->sum[i] + counts[i];
      sets->sum[i] = (uint8_t)(sum > 255 ? 255 : sum);
    }
  }
  COPSE_DO(intern(sets, set, err));
  return remember_sum(sets, key, terms, n, *set, err);
}

bool copse_multisets_has(const struct copse_multisets *sets, int set, int rank) {
  return sets->counts[set][rank] > 0;
}

bool copse_multisets_repeats(const struct copse_multisets *sets, int set) {
  for (int i = 0; i < sets->n_ranks; i++)
    if (sets->counts[set][i] > 1) return true;
  return false;
}

const char *copse_multisets_text(struct copse_multisets *sets, int set) {
  const uint8_t *counts = sets->counts[set];
  const char *separator = " ";
  sets->line = (struct copse_line){.text = "ranks", .used = 5};
  for (int from = 0, to; from < sets->n_ranks && sets->line.used < MOST_TEXT; from = to) {
    for (to = from + 1; to < sets->n_ranks && counts[to] == counts[from];) to++;
    if (counts[from] == 0) continue;
    copse_line_add(&sets->line, "%s%d", separator, from);
    if (to - from > 1) copse_line_add(&sets->line, "-%d", to - 1);
    if (counts[from] > 1) copse_line_add(&sets->line, " (%d times)", counts[from]);
    separator = ", ";
  }
  return sets->line.text;
}
