/*
 * Cuts the matrix of bytes between hosts into stages: in each, a host sends to at most one host and
 * receives from at most one. Birkhoff's decomposition with open filling, matchings by thresholds
 * and augmenting paths on bit sets; sources are in planner.h.
 */
#include <string.h>

#include "base/rational.h"
#include "solver/online/internal.h"
#include "solver/policy.h"

static bool has_bit(const uint64_t *set, int i) { return set[i >> 6] >> (i & 63) & 1; }
static void set_bit(uint64_t *set, int i) { set[i >> 6] |= (uint64_t)1 << (i & 63); }
static void clear_bit(uint64_t *set, int i) { set[i >> 6] &= ~((uint64_t)1 << (i & 63)); }
static uint64_t *edges_of(const struct copse_online *o, int row) {
  return o->edges + (size_t)row * (size_t)o->words;
}
static int64_t *rest_of(const struct copse_online *o, int row) {
  return o->rest + (size_t)row * (size_t)o->h;
}

/*
 * The state: `rest` bytes per pair, and for each row and column the slack, time left minus
 * bytes left. A stage of length d takes d from the time left; a pair that has fewer bytes
 * than d takes the difference from the slack of its row and column. While no slack is
 * negative the time left suffices, by Birkhoff's theorem for the matrix filled up with slack.
 * At a threshold t a pair may be matched if it has t bytes, or if both sides have t of slack
 * (then it idles, or sends the little that it has). A perfect matching of such pairs gives a
 * stage of at least t; at t = 1 there is one as long as any byte is left.
 */

/* Takes over the matrix; returns its largest entry. */
static int64_t start(struct copse_online *o) {
  size_t h = (size_t)o->h;
  int64_t most = 0;
  memcpy(o->rest, o->total, h * h * sizeof *o->rest);
  for (size_t i = 0; i < h * h; i++)
    if (o->rest[i] > most) most = o->rest[i];
  for (size_t a = 0; a < h; a++) {
    o->row_slack[a] = o->needed - o->row[a];
    o->col_slack[a] = o->needed - o->col[a];
    o->match_row[a] = -1;
    o->match_col[a] = -1;
  }
  memset(o->free_cols, 0, (size_t)o->words * sizeof *o->free_cols);
  for (int b = 0; b < o->h; b++) set_bit(o->free_cols, b);
  o->n_stages = 0;
  return most;
}

static void set_threshold(struct copse_online *o, int64_t threshold) {
  memset(o->slack_rows, 0, (size_t)o->words * sizeof *o->slack_rows);
  memset(o->slack_cols, 0, (size_t)o->words * sizeof *o->slack_cols);
  for (int a = 0; a < o->h; a++) {
    const int64_t *rest = rest_of(o, a);
    uint64_t *edges = edges_of(o, a);
    for (int w = 0; w < o->words; w++) {
      uint64_t word = 0;
      int n = o->h - 64 * w < 64 ? o->h - 64 * w : 64;
      for (int k = 0; k < n; k++) word |= (uint64_t)(rest[64 * w + k] >= threshold) << k;
      edges[w] = word;
    }
    if (o->row_slack[a] >= threshold) set_bit(o->slack_rows, a);
    if (o->col_slack[a] >= threshold) set_bit(o->slack_cols, a);
  }
}

/* ---- matching ---------------------------------------------------------------------------- */

/* A column of a & b, going round from `from`; -1 if there is none. */
static inline int first_common(const uint64_t *a, const uint64_t *b, int words, int from) {
  int w = from >> 6;
  uint64_t mask = ~(uint64_t)0 << (from & 63);
  for (int k = 0; k <= words; k++) {
    uint64_t hit = a[w] & b[w] & mask;
    if (hit) return w * 64 + __builtin_ctzll(hit);
    mask = ~(uint64_t)0;
    if (++w == words) w = 0;
  }
  return -1;
}

static void flip_path(struct copse_online *o, int root, int col) {
  clear_bit(o->free_cols, col);
  for (int row = -1; row != root;) {
    row = o->parent[col];
    int next = o->match_row[row];
    o->match_row[row] = (int16_t)col;
    o->match_col[col] = (int16_t)row;
    col = next;
  }
}

/* Breadth first from an unmatched row. Pairs with bytes come before idle ones, and the search
 * for a column starts at row + turn, so that an even matrix comes apart in rotations. */
static bool augment(struct copse_online *o, int root, int turn) {
  int words = o->words, n = 0;
  memset(o->unseen, 0xff, (size_t)words * sizeof *o->unseen);
  o->queue[n++] = (int16_t)root;
  for (int k = 0; k < n; k++) {
    int row = o->queue[k];
    const uint64_t *edges = edges_of(o, row);
    bool idle = has_bit(o->slack_rows, row);
    int from = (row + turn) % o->h;
    int col = first_common(edges, o->free_cols, words, from);
    if (col < 0 && idle) col = first_common(o->slack_cols, o->free_cols, words, from);
    if (col >= 0) {
      o->parent[col] = (int16_t)row;
      flip_path(o, root, col);
      return true;
    }
    for (int w = 0; w < words; w++) {
      uint64_t next = (edges[w] | (idle ? o->slack_cols[w] : 0)) & o->unseen[w];
      o->unseen[w] &= ~next;
      for (; next; next &= next - 1) {
        int c = w * 64 + __builtin_ctzll(next);
        o->parent[c] = (int16_t)row;
        o->queue[n++] = o->match_col[c];
      }
    }
  }
  return false;
}

/* Free columns first, then paths. */
static bool complete_matching(struct copse_online *o) {
  int turn = (o->n_stages + 1) % o->h;
  for (int a = 0; a < o->h; a++) {
    if (o->match_row[a] >= 0) continue;
    int from = a + turn < o->h ? a + turn : a + turn - o->h;
    int col = first_common(edges_of(o, a), o->free_cols, o->words, from);
    if (col >= 0) {
      clear_bit(o->free_cols, col);
      o->match_row[a] = (int16_t)col;
      o->match_col[col] = (int16_t)a;
    } else if (!augment(o, a, turn)) {
      return false;
    }
  }
  return true;
}

/* ---- stages -------------------------------------------------------------------------------- */

/* A new stage in which nobody sends. */
static void open_stage(struct copse_online *o, int stage) {
  size_t h = (size_t)o->h;
  memset(o->dst + (size_t)stage * h, 0xff, h * sizeof *o->dst);
  memset(o->src + (size_t)stage * h, 0xff, h * sizeof *o->src);
  o->duration[stage] = 0;
}

static void put_pair(struct copse_online *o, int stage, int a, int b) {
  size_t at = (size_t)stage * (size_t)o->h;
  o->dst[at + (size_t)a] = (int16_t)b;
  o->src[at + (size_t)b] = (int16_t)a;
}

/* The longest stage that the matching allows. */
static int64_t longest(const struct copse_online *o) {
  int64_t length = INT64_MAX;
  for (int a = 0; a < o->h; a++) {
    int b = o->match_row[a];
    int64_t spare = copse_smaller(o->row_slack[a], o->col_slack[b]);
    length = copse_smaller(length, rest_of(o, a)[b] + spare);
  }
  return length;
}

/* Uses the matching for `length`, and drops the pairs that the threshold no longer allows, and idle
 * ones, which may do better. */
static void add_stage(struct copse_online *o, int64_t length, int64_t threshold) {
  int stage = o->n_stages++;
  open_stage(o, stage);
  o->duration[stage] = length;
  for (int a = 0; a < o->h; a++) {
    int b = o->match_row[a];
    int64_t *rest = rest_of(o, a) + b;
    int64_t sent = copse_smaller(*rest, length);
    if (sent > 0) put_pair(o, stage, a, b);
    *rest -= sent;
    if (*rest < threshold) {
      clear_bit(edges_of(o, a), b);
      o->match_row[a] = -1;
      o->match_col[b] = -1;
      set_bit(o->free_cols, b);
    }
    if (sent == length) continue;
    o->row_slack[a] -= length - sent;
    o->col_slack[b] -= length - sent;
    if (o->row_slack[a] < threshold) clear_bit(o->slack_rows, a);
    if (o->col_slack[b] < threshold) clear_bit(o->slack_cols, b);
  }
}

/* ---- the whole ---- */

int64_t copse_online_shortest_stage(const struct copse_online *o) {
  int64_t message = o->options.min_message * o->g, half = o->needed / (2 * o->h);
  if (o->options.one_to_one) return 1;
  return copse_smaller(2 * message, copse_larger(half, message / COPSE_ONLINE_LEAST_STAGE + 1));
}

/* Cuts stages into steps, for pipelining with the traffic inside the hosts; what stages leave goes
 * in combined steps, in which a NIC sends and receives about a message in all. */
static void cut_steps(struct copse_online *o) {
  int64_t step = o->needed / o->options.steps + 1;
  int64_t least = o->options.min_message * o->g;
  if (step < least) step = least;
  o->n_steps = 0;
  for (int s = 0; s < o->n_stages; s++) {
    o->first_step[s] = o->n_steps;
    o->n_steps += (int)((o->duration[s] - 1) / step) + 1;
  }
  o->first_step[o->n_stages] = o->n_steps;
  o->combined_first = o->n_steps;
  if (o->left > 0) o->n_steps += (int)copse_smaller((o->left - 1) / least + 1, o->h);
  if (o->n_steps == 0) o->n_steps = 1;
}

void copse_online_cut(struct copse_online *o) {
  int64_t most = start(o), threshold = 1, shortest = copse_online_shortest_stage(o);
  o->left = o->needed;
  /* longer ones would be few, and each threshold is a search */
  if (!o->options.one_to_one && most / 4 > o->needed / o->h) most = o->needed / o->h * 4;
  while (threshold <= most / 2) threshold *= 2;
  if (threshold >= shortest) set_threshold(o, threshold);
  while (o->left > 0 && o->n_stages < o->max_stages && threshold >= shortest) {
    if (!complete_matching(o)) {
      threshold /= 2;
      if (threshold >= shortest) set_threshold(o, threshold);
      continue;
    }
    int64_t length = longest(o);
    add_stage(o, length, threshold);
    o->left -= length;
  }
  cut_steps(o);
}
