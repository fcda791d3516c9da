#include "codegen/check/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct copse_sets {
  int n_ranks;
  uint8_t **counts; /* [n] of n_ranks each */
  size_t n, capacity;
  int *table; /* set + 1 by hash, 0: free */
  size_t table_size;
  uint8_t *scratch; /* [n_ranks] */
  char text[256];
};

copse_status copse_sets_new(int n_ranks, struct copse_sets **out, struct copse_err *err) {
  struct copse_sets *sets = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *sets, &sets, err));
  sets->n_ranks = n_ranks;
  COPSE_TRY(copse_calloc((size_t)n_ranks, 1, &sets->scratch, err));
  *out = sets;
  return COPSE_OK;
out:
  copse_sets_free(sets);
  return status;
}

void copse_sets_free(struct copse_sets *sets) {
  if (!sets) return;
  for (size_t i = 0; i < sets->n; i++) free(sets->counts[i]);
  free(sets->counts);
  free(sets->table);
  free(sets->scratch);
  free(sets);
}

static size_t slot_of(const struct copse_sets *sets, const uint8_t *counts) {
  uint64_t h = 0xcbf29ce484222325u;
  for (int i = 0; i < sets->n_ranks; i++) h = (h ^ counts[i]) * 0x100000001b3u;
  size_t i = (size_t)(h ^ (h >> 32)) & (sets->table_size - 1);
  while (sets->table[i] &&
         memcmp(sets->counts[sets->table[i] - 1], counts, (size_t)sets->n_ranks) != 0)
    i = (i + 1) & (sets->table_size - 1);
  return i;
}

static copse_status grow_table(struct copse_sets *sets, struct copse_err *err) {
  size_t size = sets->table_size ? 2 * sets->table_size : 1024;
  int *table;
  copse_status status = copse_calloc(size, sizeof *table, &table, err);
  if (status != COPSE_OK) return status;
  free(sets->table);
  sets->table = table;
  sets->table_size = size;
  for (size_t i = 0; i < sets->n; i++) table[slot_of(sets, sets->counts[i])] = (int)i + 1;
  return COPSE_OK;
}

/* The number of the multiset in `scratch`. */
static copse_status intern(struct copse_sets *sets, int *set, struct copse_err *err) {
  copse_status status = COPSE_OK;
  if (2 * (sets->n + 1) > sets->table_size) COPSE_TRY(grow_table(sets, err));
  size_t slot = slot_of(sets, sets->scratch);
  if (sets->table[slot] == 0) {
    uint8_t *copy;
    COPSE_TRY(copse_grow(&sets->counts, &sets->capacity, sets->n + 1, sizeof *sets->counts, err));
    COPSE_TRY(copse_calloc((size_t)sets->n_ranks, 1, &copy, err));
    memcpy(copy, sets->scratch, (size_t)sets->n_ranks);
    sets->counts[sets->n++] = copy;
    sets->table[slot] = (int)sets->n;
  }
  *set = sets->table[slot] - 1;
out:
  return status;
}

copse_status copse_sets_single(struct copse_sets *sets, int rank, int *set, struct copse_err *err) {
  memset(sets->scratch, 0, (size_t)sets->n_ranks);
  sets->scratch[rank] = 1;
  return intern(sets, set, err);
}

copse_status copse_sets_everyone(struct copse_sets *sets, int *set, struct copse_err *err) {
  memset(sets->scratch, 1, (size_t)sets->n_ranks);
  return intern(sets, set, err);
}

copse_status copse_sets_sum(struct copse_sets *sets, const int *terms, int n, int *set,
                            struct copse_err *err) {
  if (n == 1) {
    *set = terms[0];
    return COPSE_OK;
  }
  memset(sets->scratch, 0, (size_t)sets->n_ranks);
  for (int t = 0; t < n; t++) {
    const uint8_t *counts = sets->counts[terms[t]];
    for (int i = 0; i < sets->n_ranks; i++) {
      int sum = sets->scratch[i] + counts[i];
      sets->scratch[i] = (uint8_t)(sum > 255 ? 255 : sum);
    }
  }
  return intern(sets, set, err);
}

bool copse_sets_repeats(const struct copse_sets *sets, int set) {
  for (int i = 0; i < sets->n_ranks; i++)
    if (sets->counts[set][i] > 1) return true;
  return false;
}

const char *copse_sets_text(struct copse_sets *sets, int set) {
  const uint8_t *counts = sets->counts[set];
  size_t used = (size_t)snprintf(sets->text, sizeof sets->text, "ranks");
  const char *separator = " ";
  for (int from = 0, to; from < sets->n_ranks && used + 40 < sizeof sets->text; from = to) {
    for (to = from + 1; to < sets->n_ranks && counts[to] == counts[from];) to++;
    if (counts[from] == 0) continue;
    used += (size_t)snprintf(sets->text + used, sizeof sets->text - used, "%s%d", separator, from);
    if (to - from > 1)
      used += (size_t)snprintf(sets->text + used, sizeof sets->text - used, "-%d", to - 1);
    if (counts[from] > 1)
      used += (size_t)snprintf(sets->text + used, sizeof sets->text - used, " (%d times)",
                               counts[from]);
    separator = ", ";
  }
  return sets->text;
}
