/*
 * Chooses between the forms of a plan (planner.h) by the time that each is predicted to take: bytes
 * of the busiest NIC over its bandwidth, and the latency of the hops that nothing hides.
 */
#include <string.h>

#include "base/rational.h"
#include "solver/online/internal.h"
#include "solver/policy.h"

static int64_t ns_of(const struct copse_online *o, int64_t bytes, int64_t bandwidth) {
  __int128 ns = ((__int128)bytes * o->model.scale + bandwidth - 1) / bandwidth;
  return ns > INT64_MAX / 8 ? INT64_MAX / 8 : (int64_t)ns;
}

static int64_t nic_ns(const struct copse_online *o, int64_t bytes) {
  return ns_of(o, bytes, o->model.nic);
}

/* What a hop inside the host takes beside its bytes. */
static int64_t inside_ns(const struct copse_online *o) { return o->model.hop_ns + o->model.hub_ns; }

static int64_t between_ns(const struct copse_online *o) {
  return o->model.hop_ns + o->model.fabric_ns;
}

static int64_t inside_bytes_ns(const struct copse_online *o, int64_t bytes) {
  return ns_of(o, bytes, copse_smaller(o->model.intra_out, o->model.intra_in));
}

/* What a message inside the host takes, with its bytes. */
static int64_t handed_ns(const struct copse_online *o, int64_t bytes) {
  return inside_ns(o) + inside_bytes_ns(o, bytes);
}

/* What a message to every other host costs its sender. */
static int64_t messages_ns(const struct copse_online *o) {
  return o->model.message_ns * (o->h - 1);
}

/* ---- EVEN ---- */

/* The first step may wait for BALANCE, the last one's SCATTER comes after all: at worst from one
 * rank to all others of the host, and to one. */
static int64_t predict_even(const struct copse_online *o) {
  int64_t bytes = (o->needed - 1) / o->g + 1;
  return nic_ns(o, bytes) + between_ns(o) + messages_ns(o) +
         2 * handed_ns(o, copse_smaller(bytes, o->options.min_message) * (o->g - 1));
}

/* ---- DIRECT ---- */

enum { WAYS = COPSE_ONLINE_STRAIGHT + 1 };

/* Bytes into each host by the sender's index. */
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

/* The most that a NIC sends, by each way. */
static void most_out(const struct copse_online *o, int64_t most[WAYS]) {
  for (int r = 0; r < o->n; r++) {
    int64_t own = o->out[r] - o->to_host[(size_t)r * (size_t)o->h + (size_t)(r / o->g)];
    raise(most, own, o->by_index[r], own);
  }
}

/* The same for what it receives. */
static void most_in(const struct copse_online *o, int64_t most[WAYS]) {
  for (int r = 0; r < o->n; r++) {
    int64_t lane = o->by_lane[(size_t)(r % o->g) * (size_t)o->h + (size_t)(r / o->g)];
    int64_t own = o->into[r] - o->within[r];
    raise(most, lane, own, own);
  }
}

/* What every host sends to those that are first..end-1 rotations on; returns the largest sum of
 * what one sends or receives. */
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

/* A host that sends less than others in one step and more in the next waits for them in part: of
 * how much the longest sums of hosts in each of so many groups of rotations exceed the longest sum
 * of all, for a NIC. */
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
  int64_t shortest = copse_online_shortest_stage(o);
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

/* As many steps as messages of the busiest NIC, at most one for each rotation of the hosts. Where
 * all wait for a BALANCE, the first of the rank that gives most is to take half a hop. */
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

/* What SCATTER of the last early step has to hand on, or BALANCE of the first late one, for the
 * rank that gets or gives most. */
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

/* The fastest that is faster than `limit`. */
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

/* What senders have rules it out mostly, and is known. */
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
  copse_online_cut(o);
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
