/*
 * Chooses between the forms of a plan (planner.h) by the time that each is predicted to take: bytes
 * of the busiest NIC over its bandwidth, and the latency of the hops that nothing hides. Makes EVEN
 * first: its stages. docs/theory.md, "src/solver/online/".
 */
#include <string.h>

#include "base/rational.h"
#include "solver/online/internal.h"
#include "solver/policy.h"

/* ---- stages -----------------------------------------------------------------------------------
 */

/*
 * Cuts the matrix of bytes between hosts into stages: in each, a host sends to at most one host and
 * receives from at most one. Birkhoff's decomposition with open filling, matchings by thresholds
 * and augmenting paths on bit sets; sources are in planner.h.
 */

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

/* Returns a column of a & b, going round from `from`; -1 if there is none. */
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

/* Augments breadth first from an unmatched row. Pairs with bytes come before idle ones, and the
 * search for a column starts at row + turn, so that an even matrix comes apart in rotations. */
static bool augment(struct copse_online *o, int root, int turn) {
  int words = o->words;
  memset(o->unseen, 0xff, (size_t)words * sizeof *o->unseen);
  copse_queue_reset(&o->queue);
  copse_queue_push(&o->queue, root);
  while (!copse_queue_is_empty(&o->queue)) {
    int row = copse_queue_pop(&o->queue);
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
        copse_queue_push(&o->queue, o->match_col[c]);
      }
    }
  }
  return false;
}

/* Completes the matching: free columns first, then paths. */
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

/* Opens a new stage in which nobody sends. */
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

/* Returns the longest stage that the matching allows. */
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

/* Returns the shortest stage worth one to one: half of what an even matrix would have in each,
 * between a quarter of a message of each NIC and two. */
static int64_t shortest_stage(const struct copse_online *o) {
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

/* Cuts o->total into stages and steps: the form EVEN. */
static void cut(struct copse_online *o) {
  int64_t most = start(o), threshold = 1, shortest = shortest_stage(o);
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

/* ---- predicted times ------------------------------------------------------------------------ */

static int64_t ns_of(const struct copse_online *o, int64_t bytes, int64_t bandwidth) {
  __int128 ns = ((__int128)bytes * o->model.scale + bandwidth - 1) / bandwidth;
  return ns > INT64_MAX / 8 ? INT64_MAX / 8 : (int64_t)ns;
}

static int64_t nic_ns(const struct copse_online *o, int64_t bytes) {
  return ns_of(o, bytes, o->model.nic);
}

/* Returns what a hop inside the host takes beside its bytes. */
static int64_t inside_ns(const struct copse_online *o) { return o->model.hop_ns + o->model.hub_ns; }

static int64_t between_ns(const struct copse_online *o) {
  return o->model.hop_ns + o->model.fabric_ns;
}

static int64_t inside_bytes_ns(const struct copse_online *o, int64_t bytes) {
  return ns_of(o, bytes, copse_smaller(o->model.intra_out, o->model.intra_in));
}

/* Returns what a message inside the host takes, with its bytes. */
static int64_t handed_ns(const struct copse_online *o, int64_t bytes) {
  return inside_ns(o) + inside_bytes_ns(o, bytes);
}

/* Returns what a message to every other host costs its sender. */
static int64_t messages_ns(const struct copse_online *o) {
  return o->model.message_ns * (o->h - 1);
}

/* ---- EVEN ---- */

/* Predicts EVEN. The first step may wait for BALANCE, the last one's SCATTER comes after all: at
 * worst from one rank to all others of the host, and to one. */
static int64_t predict_even(const struct copse_online *o) {
  int64_t bytes = (o->needed - 1) / o->g + 1;
  return nic_ns(o, bytes) + between_ns(o) + messages_ns(o) +
         2 * handed_ns(o, copse_smaller(bytes, o->options.min_message) * (o->g - 1));
}

/* ---- DIRECT ---- */

enum { WAYS = COPSE_ONLINE_STRAIGHT + 1 };

/* Sums bytes into each host by the sender's index. */
static void sum_lanes(struct copse_online *o) {
  size_t h = (size_t)o->h, g = (size_t)o->g;
  memset(o->by_lane, 0, (size_t)o->n * sizeof *o->by_lane);
  for (size_t r = 0; r < (size_t)o->n; r++) {
    int64_t *into = o->by_lane + r % g * h;
    for (size_t b = 0; b < h; b++) into[b] += o->to_host[r * h + b];
    into[r / g] -= o->to_host[r * h + r / g];
  }
}

static void raise(int64_t most[WAYS], int64_t by_sender, int64_t by_receiver, int64_t straight) {
  const int64_t all[WAYS] = {[COPSE_ONLINE_BY_SENDER] = by_sender,
                             [COPSE_ONLINE_BY_BOTH] = by_sender / 2 + by_receiver / 2,
                             [COPSE_ONLINE_BY_RECEIVER] = by_receiver,
                             [COPSE_ONLINE_STRAIGHT] = straight};
  for (int k = 0; k < WAYS; k++) most[k] = copse_larger(most[k], all[k]);
}

/* Finds the most that a NIC sends, by each way. */
static void most_out(const struct copse_online *o, int64_t most[WAYS]) {
  for (int r = 0; r < o->n; r++) {
    int64_t own = o->out[r] - o->to_host[(size_t)r * (size_t)o->h + (size_t)(r / o->g)];
    raise(most, own, o->by_index[r], own);
  }
}

/* Finds the most that a NIC receives, by each way. */
static void most_in(const struct copse_online *o, int64_t most[WAYS]) {
  for (int r = 0; r < o->n; r++) {
    int64_t lane = o->by_lane[(size_t)(r % o->g) * (size_t)o->h + (size_t)(r / o->g)];
    int64_t own = o->into[r] - o->within[r];
    raise(most, lane, own, own);
  }
}

/* Adds up the bytes that each host sends to the hosts first..end-1 rotations on. Returns the
 * largest sum that one host sends or receives. */
static int64_t busiest(struct copse_online *o, int first, int end) {
  size_t h = (size_t)o->h;
  int64_t most = 0, *in = o->col_slack; /* not in use yet */
  memset(in, 0, h * sizeof *in);
  for (size_t a = 0; a < h; a++) {
    int64_t out = 0;
    for (int r = first; r < end; r++) {
      size_t b = a + (size_t)r < h ? a + (size_t)r : a + (size_t)r - h;
      out += o->total[a * h + b];
      in[b] += o->total[a * h + b];
    }
    most = copse_larger(most, out);
  }
  for (size_t b = 0; b < h; b++) most = copse_larger(most, in[b]);
  return most;
}

/* Returns by how much the longest sums of hosts in each of so many groups of rotations exceed,
 * added up, the longest sum of all, for a NIC: a host that sends less than others in one step and
 * more in the next waits for them in part. */
static int64_t unevenness(struct copse_online *o, int groups) {
  __int128 sum = 0; /* of many groups: up to hosts times what fits */
  int end = 1;
  for (int group = 0; group < groups; group++) {
    int first = end;
    while (end < o->h && (int64_t)(end - 1) * groups / (o->h - 1) == group) end++;
    sum += busiest(o, first, end);
  }
  __int128 lost = (sum - o->needed) / COPSE_ONLINE_UNEVENNESS;
  return (lost < o->needed / 8 ? (int64_t)lost : o->needed / 8) / o->g;
}

static bool has_stages(const struct copse_online *o) {
  int64_t shortest = shortest_stage(o);
  for (int i = 0; i < o->h * o->h; i++)
    if (o->total[i] >= shortest) return true;
  return false;
}

struct direct {
  bool found;
  enum copse_online_way way;
  int early, late; /* steps */
  int64_t bytes;   /* of the busiest NIC */
  int64_t ns;
};

/* Sets as many steps as messages of the busiest NIC, at most one for each rotation of the hosts.
 * Where all wait for a BALANCE, the first of the rank that gives most is to take half a hop. */
static void set_steps(const struct copse_online *o, int64_t given, struct direct *d) {
  int64_t most = o->h - 1, n = (d->bytes - 1) / o->options.min_message + 1, early = n, late = 1;
  if (d->way == COPSE_ONLINE_STRAIGHT) late = 0;
  if (d->way == COPSE_ONLINE_BY_BOTH) {
    early = (n + 1) / 2;
    late = copse_larger(n / 2, 1);
  }
  if (d->way == COPSE_ONLINE_BY_RECEIVER) {
    early = 0;
    late = copse_larger(n, 2 * inside_bytes_ns(o, given) / (inside_ns(o) + 1));
  }
  d->early = (int)copse_smaller(early, most);
  d->late = (int)copse_smaller(late, most);
}

/* Returns what SCATTER of the last early step has to hand on, or BALANCE of the first late one,
 * for the rank that gets or gives most. */
static int64_t handed_on(const int64_t most[WAYS], const struct direct *d) {
  int64_t bytes = copse_larger(most[COPSE_ONLINE_BY_SENDER], most[COPSE_ONLINE_BY_RECEIVER]);
  if (d->way == COPSE_ONLINE_BY_BOTH) return bytes / 2 / copse_smaller(d->early, d->late);
  return bytes / (d->way == COPSE_ONLINE_BY_SENDER ? d->early : d->late);
}

static void predict_direct(const struct copse_online *o, const int64_t most[WAYS],
                           struct direct *d) {
  d->bytes = most[d->way];
  set_steps(o, most[COPSE_ONLINE_BY_SENDER], d);
  int64_t nic = nic_ns(o, d->bytes), messages = (d->early > 0) + (d->late > 0);
  if (d->way == COPSE_ONLINE_STRAIGHT) {
    messages = o->g;
  } else if (d->way == COPSE_ONLINE_BY_BOTH) {
    /* early bytes need a SCATTER after, late ones a BALANCE before: each hides the other's */
    int64_t half = copse_larger(most[COPSE_ONLINE_BY_SENDER], most[COPSE_ONLINE_BY_RECEIVER]) / 2;
    nic = copse_larger(nic, nic_ns(o, half) + handed_ns(o, handed_on(most, d)));
  } else {
    nic += handed_ns(o, handed_on(most, d));
  }
  d->ns = nic + between_ns(o) + messages * messages_ns(o);
}

/* Returns the fastest that is faster than `limit`. */
static struct direct best_direct(const struct copse_online *o, const int64_t most[WAYS],
                                 int64_t limit) {
  static const enum copse_online_way order[] = {COPSE_ONLINE_BY_BOTH, COPSE_ONLINE_BY_SENDER,
                                                COPSE_ONLINE_BY_RECEIVER, COPSE_ONLINE_STRAIGHT};
  struct direct best = {.ns = limit};
  for (int k = 0; k < WAYS - !o->model.flat; k++) { /* on rails nothing goes straight */
    struct direct d = {.found = true, .way = order[k]};
    predict_direct(o, most, &d);
    if (d.ns < best.ns) best = d; /* of equals the first */
  }
  return best;
}

/* Tries it directly; what senders have rules it out mostly, and is known. */
static struct direct try_direct(struct copse_online *o, int64_t limit) {
  int64_t most[WAYS] = {0};
  most_out(o, most);
  struct direct d = best_direct(o, most, limit);
  if (!d.found) return d;
  sum_lanes(o);
  most_in(o, most);
  d = best_direct(o, most, limit);
  int groups = d.early > d.late ? d.early : d.late;
  if (!d.found || groups == 1 || !has_stages(o)) return d;
  d.ns += nic_ns(o, unevenness(o, groups));
  d.found = d.ns < limit;
  return d;
}

static void take_even(struct copse_online *o, int64_t ns) {
  o->predicted_ns = ns;
  o->nic_bytes = (o->needed - 1) / o->g + 1;
  cut(o);
}

static void take_direct(struct copse_online *o, struct direct d) {
  o->form = COPSE_ONLINE_DIRECT;
  o->predicted_ns = d.ns;
  o->nic_bytes = d.bytes;
  o->left = o->needed;
  o->way = d.way;
  o->early = d.early;
  o->late = d.late;
  o->n_steps = d.early + d.late;
}

void copse_online_choose(struct copse_online *o) {
  struct direct d = {.found = false};
  if (o->needed > 0) {
    int64_t even = predict_even(o);
    if (!o->options.one_to_one) d = try_direct(o, even);
    if (d.found)
      take_direct(o, d);
    else
      take_even(o, even);
  } else {
    /* LOCAL alone: in the turns that it would have beside others */
    int64_t turns = o->local / o->options.min_message;
    o->n_steps = (int)copse_larger(1, copse_smaller(turns, o->options.steps));
  }
  if (o->local > 0) o->predicted_ns = copse_larger(o->predicted_ns, handed_ns(o, o->local));
}
