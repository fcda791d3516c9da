#include "predict/baseline_birkhoff.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"

struct work {
  int n;
  int64_t *left;  /* [n * n] of the matrix */
  int64_t *empty; /* [n * n] what fills up all rows and columns to the same sum */
  int *row_of;    /* [n] the row matched to a column, -1: none */
  char *tried;    /* [n] columns of this search */
  int64_t least;  /* entries below it don't count */
  int step;
  size_t amounts_capacity, to_capacity, sent_capacity;
  struct copse_birkhoff *out;
  struct copse_err *err;
};

static size_t at(const struct work *w, int row, int column) {
  return (size_t)row * (size_t)w->n + (size_t)column;
}

static int64_t entry(const struct work *w, int row, int column) {
  return w->left[at(w, row, column)] + w->empty[at(w, row, column)];
}

/* Row and column sums, rows first; *most is the largest. */
static copse_status add_up(const struct work *w, int64_t *sums, int64_t *most) {
  *most = 0;
  for (int i = 0; i < w->n; i++) {
    for (int j = 0; j < w->n; j++) {
      int64_t v = w->left[at(w, i, j)];
      if (v < 0) return copse_fail(w->err, COPSE_INVALID, "an amount to send is negative");
      if (copse_add_overflows(sums[i], v, &sums[i]) ||
          copse_add_overflows(sums[w->n + j], v, &sums[w->n + j]))
        return copse_fail(w->err, COPSE_OVERFLOW, "the amounts to send need over 63 bits");
    }
  }
  for (int i = 0; i < 2 * w->n; i++)
    if (sums[i] > *most) *most = sums[i];
  return COPSE_OK;
}

static copse_status fill_up(struct work *w, int64_t *most) {
  int64_t *sums = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(2 * (size_t)w->n, sizeof *sums, &sums, w->err));
  COPSE_TRY(add_up(w, sums, most));
  for (int i = 0, j = 0; i < w->n && j < w->n;) {
    int64_t row = *most - sums[i], column = *most - sums[w->n + j];
    int64_t v = row < column ? row : column;
    w->empty[at(w, i, j)] += v;
    sums[i] += v;
    sums[w->n + j] += v;
    if (sums[i] == *most)
      i++;
    else
      j++;
  }
out:
  free(sums);
  return status;
}

/* Augmenting paths; each row begins further right than the one before, and with each step. */
static bool match_row(struct work *w, int row) {
  for (int k = 0; k < w->n; k++) {
    int column = (row + 1 + w->step + k) % w->n;
    if (w->tried[column] || entry(w, row, column) < w->least) continue;
    w->tried[column] = 1;
    if (w->row_of[column] >= 0 && !match_row(w, w->row_of[column])) continue;
    w->row_of[column] = row;
    return true;
  }
  return false;
}

static bool match_all(struct work *w) {
  for (int c = 0; c < w->n; c++) w->row_of[c] = -1;
  for (int r = 0; r < w->n; r++) {
    memset(w->tried, 0, (size_t)w->n);
    if (!match_row(w, r)) return false;
  }
  return true;
}

/* Takes the matching out of the matrix, its least entry everywhere; *amount is that. */
static copse_status take_step(struct work *w, int64_t *amount) {
  struct copse_birkhoff *b = w->out;
  size_t n = (size_t)w->n, s = (size_t)b->n_steps;
  copse_status status;
  COPSE_TRY(copse_grow(&b->amounts, &w->amounts_capacity, s + 1, sizeof *b->amounts, w->err));
  COPSE_TRY(copse_grow(&b->to, &w->to_capacity, (s + 1) * n, sizeof *b->to, w->err));
  COPSE_TRY(copse_grow(&b->sent, &w->sent_capacity, (s + 1) * n, sizeof *b->sent, w->err));
  *amount = INT64_MAX;
  for (int c = 0; c < w->n; c++)
    if (entry(w, w->row_of[c], c) < *amount) *amount = entry(w, w->row_of[c], c);
  for (int c = 0; c < w->n; c++) {
    int row = w->row_of[c];
    int64_t *left = &w->left[at(w, row, c)], sent = *left < *amount ? *left : *amount;
    b->to[s * n + (size_t)row] = c;
    b->sent[s * n + (size_t)row] = sent;
    *left -= sent;
    w->empty[at(w, row, c)] -= *amount - sent;
  }
  b->amounts[s] = *amount;
  b->n_steps++;
out:
  return status;
}

static copse_status decompose(struct work *w) {
  int64_t rest, amount;
  copse_status status;
  COPSE_TRY(fill_up(w, &rest));
  for (w->least = 1; w->least <= rest / 2;) w->least *= 2;
  while (rest > 0) {
    /* All sums are equal, so with least = 1 there is a matching (Birkhoff, Hall). */
    if (!match_all(w)) {
      if (w->least == 1)
        return copse_fail(w->err, COPSE_INTERNAL, "Birkhoff: a matrix without a permutation");
      w->least /= 2;
      continue;
    }
    COPSE_TRY(take_step(w, &amount));
    rest -= amount;
    w->step++;
  }
out:
  return status;
}

copse_status copse_birkhoff_decompose(const int64_t *matrix, int n, struct copse_birkhoff *out,
                                      struct copse_err *err) {
  struct work w = {.n = n, .out = out, .err = err};
  size_t size = (size_t)n * (size_t)n;
  copse_status status;
  *out = (struct copse_birkhoff){.n = n};
  COPSE_TRY(copse_calloc(size, sizeof *w.left, &w.left, err));
  COPSE_TRY(copse_calloc(size, sizeof *w.empty, &w.empty, err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *w.row_of, &w.row_of, err));
  COPSE_TRY(copse_calloc((size_t)n, 1, &w.tried, err));
  memcpy(w.left, matrix, size * sizeof *matrix);
  status = decompose(&w);
out:
  free(w.left);
  free(w.empty);
  free(w.row_of);
  free(w.tried);
  if (status != COPSE_OK) copse_birkhoff_free(out);
  return status;
}

void copse_birkhoff_free(struct copse_birkhoff *b) {
  free(b->amounts);
  free(b->to);
  free(b->sent);
  *b = (struct copse_birkhoff){0};
}
