/*
 * Cuts the matrix of bytes between hosts into stages: in each, a host sends to at most one host and
 * receives from at most one. Birkhoff's decomposition with open filling, matchings by thresholds
 * and augmenting paths on bit sets, the tail by greedy edge colouring; sources are in planner.h.
 */
#include <string.h>

#include "base/rational.h"
#include "solver/online/internal.h"

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
  memset(o->edges, 0, (size_t)o->h * (size_t)o->words * sizeof *o->edges);
  memset(o->slack_rows, 0, (size_t)o->words * sizeof *o->slack_rows);
  memset(o->slack_cols, 0, (size_t)o->words * sizeof *o->slack_cols);
  for (int a = 0; a < o->h; a++) {
    const int64_t *rest = rest_of(o, a);
    uint64_t *edges = edges_of(o, a);
    for (int b = 0; b < o->h; b++) edges[b >> 6] |= (uint64_t)(rest[b] >= threshold) << (b & 63);
    if (o->row_slack[a] >= threshold) set_bit(o->slack_rows, a);
    if (o->col_slack[a] >= threshold) set_bit(o->slack_cols, a);
  }
}

/* ---- matching ---------------------------------------------------------------------------- */

/* A column of a & b & c, going round from `from`; -1 if there is none. */
static int first_common(const uint64_t *a, const uint64_t *b, const uint64_t *c, int words,
                        int from) {
  int w = from >> 6;
  uint64_t mask = ~(uint64_t)0 << (from & 63);
  for (int k = 0; k <= words; k++) {
    uint64_t hit = a[w] & b[w] & c[w] & mask;
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
    int col = first_common(edges, o->free_cols, o->unseen, words, from);
    if (col < 0 && idle) col = first_common(o->slack_cols, o->free_cols, o->unseen, words, from);
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

static bool complete_matching(struct copse_online *o) {
  for (int a = 0; a < o->h; a++)
    if (o->match_row[a] < 0 && !augment(o, a, o->n_stages + 1)) return false;
  return true;
}

/* Drops the pairs that the threshold no longer allows, and idle ones, which may do better. */
static void drop_pairs(struct copse_online *o) {
  for (int a = 0; a < o->h; a++) {
    int b = o->match_row[a];
    if (b < 0 || has_bit(edges_of(o, a), b)) continue;
    o->match_row[a] = -1;
    o->match_col[b] = -1;
    set_bit(o->free_cols, b);
  }
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

/* Uses the matching for `length`. */
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
    if (*rest < threshold) clear_bit(edges_of(o, a), b);
    if (sent == length) continue;
    o->row_slack[a] -= length - sent;
    o->col_slack[b] -= length - sent;
    if (o->row_slack[a] < threshold) clear_bit(o->slack_rows, a);
    if (o->col_slack[b] < threshold) clear_bit(o->slack_cols, b);
  }
  drop_pairs(o);
}

/* ---- the tail -------------------------------------------------------------------------------- */

/* Lists the pairs with bytes left, keyed by their upper 32 bits, inverted: heaviest first. */
static int list_tail(struct copse_online *o) {
  size_t hh = (size_t)o->h * (size_t)o->h;
  int n = 0, shift = 0;
  uint64_t all = 0;
  for (size_t i = 0; i < hh; i++) all |= (uint64_t)o->rest[i];
  while (all >> shift > UINT32_MAX) shift++;
  for (size_t i = 0; i < hh; i++) {
    o->order[n] = (int32_t)i;
    o->keys[n] = ~(uint32_t)((uint64_t)o->rest[i] >> shift);
    n += o->rest[i] > 0;
  }
  return n;
}

/* A radix sort: stable, so equal weights stay in the order of their indices. */
static void sort_tail(struct copse_online *o, int n) {
  for (int shift = 0; shift < 32; shift += 8) {
    int start_of[257] = {0};
    for (int i = 0; i < n; i++) start_of[(o->keys[i] >> shift & 255) + 1]++;
    for (int d = 0; d < 256; d++) start_of[d + 1] += start_of[d];
    for (int i = 0; i < n; i++) {
      int to = start_of[o->keys[i] >> shift & 255]++;
      o->keys_swap[to] = o->keys[i];
      o->order_swap[to] = o->order[i];
    }
    uint32_t *keys = o->keys;
    int32_t *order = o->order;
    o->keys = o->keys_swap;
    o->order = o->order_swap;
    o->keys_swap = keys;
    o->order_swap = order;
  }
}

/* Every pair that is left gets, whole, the first stage that neither of its hosts has yet: at
 * most 2 h - 1 of them, together at most twice the time left. */
static void add_tail(struct copse_online *o) {
  int n = list_tail(o), first = o->n_stages, words = o->tail_words;
  if (n == 0) return;
  sort_tail(o, n);
  uint64_t *by_row = o->used, *by_col = o->used + (size_t)o->h * (size_t)words;
  memset(o->used, 0, 2 * (size_t)o->h * (size_t)words * sizeof *o->used);
  for (int i = 0; i < n; i++) {
    int a = o->order[i] / o->h, b = o->order[i] % o->h, w = 0;
    uint64_t *row = by_row + (size_t)a * (size_t)words, *col = by_col + (size_t)b * (size_t)words;
    while ((row[w] | col[w]) == ~(uint64_t)0) w++;
    int colour = w * 64 + __builtin_ctzll(~(row[w] | col[w]));
    set_bit(row, colour);
    set_bit(col, colour);
    int stage = first + colour;
    if (stage == o->n_stages) open_stage(o, o->n_stages++);
    put_pair(o, stage, a, b);
    int64_t bytes = rest_of(o, a)[b];
    if (bytes > o->duration[stage]) o->duration[stage] = bytes;
  }
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

/* Cuts stages into steps, for pipelining with the traffic inside the hosts. */
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
  if (o->n_stages == 0) o->n_steps = o->options.steps;
}

void copse_online_cut(struct copse_online *o) {
  int64_t most = start(o), left = o->needed, threshold = 1;
  int64_t tail = o->options.tail_divisor < 0 ? 0 : o->needed / o->options.tail_divisor;
  int last_stage = o->max_stages - 2 * o->h;
  while (threshold <= most / 2) threshold *= 2;
  if (left > tail) set_threshold(o, threshold);
  while (left > tail && o->n_stages < last_stage && threshold > 0) {
    if (!complete_matching(o)) {
      threshold /= 2;
      if (threshold > 0) set_threshold(o, threshold);
      continue;
    }
    int64_t length = longest(o);
    add_stage(o, length, threshold);
    left -= length;
  }
  add_tail(o);
  cut_steps(o);
}
