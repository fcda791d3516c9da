/*
 * The two-tier planner: its memory, the sums of the counts, and bounds. The method is in planner.h.
 * docs/theory.md, "src/solver/online/".
 */
#include "solver/online/planner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/online/internal.h"
#include "solver/policy.h"

/* ---- bounds --------------------------------------------------------------------------------- */

/*
 * Lower bounds of a demand on two tiers: cuts around a rank or a host, exact; and with latencies,
 * for reports. The arguments are in docs/theory.md.
 */

void copse_online_raise_bound(struct copse_online_bound *best, enum copse_online_limit limit,
                              int index, int64_t bytes, int64_t bandwidth) {
  if ((__int128)bytes * best->bandwidth <= (__int128)best->bytes * bandwidth) return;
  best->limit = limit;
  best->index = index;
  best->bytes = bytes;
  best->bandwidth = bandwidth;
}

/* Finds the largest cut of the demand; exact. */
static void find_bound(struct copse_online *o) {
  const struct copse_online_model *m = &o->model;
  size_t h = (size_t)o->h, n = (size_t)o->n;
  struct copse_online_bound best = {.index = -1, .bandwidth = 1};
  for (size_t i = 0; i < n; i++) {
    int64_t own = o->bytes[i * n + i], sent = o->to_host[i * h + i / (size_t)o->g];
    o->local = copse_larger(o->local, copse_larger(sent, o->within[i]) - own);
    copse_online_raise_bound(&best, COPSE_ONLINE_RANK_OUT, (int)i, o->out[i] - own, m->rank_out);
    copse_online_raise_bound(&best, COPSE_ONLINE_RANK_IN, (int)i, o->into[i] - own, m->rank_in);
  }
  for (size_t a = 0; a < h; a++) {
    copse_online_raise_bound(&best, COPSE_ONLINE_HOST_OUT, (int)a, o->row[a], m->host_out);
    copse_online_raise_bound(&best, COPSE_ONLINE_HOST_IN, (int)a, o->col[a], m->host_in);
  }
  o->bound = best;
}

/* ---- with latencies ------------------------------------------------------------------------- */

/* Bytes over the NICs of one host, in one direction. */
struct crossing {
  double bytes;
  double turned;  /* of that, to another index than the sender's */
  double at_once; /* of that, what NICs can carry while only bytes of their own rank are there */
  double most;    /* of one rank */
};

static double largest(double a, double b) { return a > b ? a : b; }

/* Sums the bytes of a rank to its like in all other hosts, or from them. */
static int64_t straight(const struct copse_online *o, int rank, bool out) {
  size_t n = (size_t)o->n, r = (size_t)rank;
  int64_t sum = -o->bytes[r * n + r];
  for (size_t other = r % (size_t)o->g; other < n; other += (size_t)o->g)
    sum += out ? o->bytes[r * n + other] : o->bytes[other * n + r];
  return sum;
}

static struct crossing cross(const struct copse_online *o, int host, bool out) {
  const struct copse_online_model *m = &o->model;
  struct crossing c = {.bytes = (double)(out ? o->row[host] : o->col[host])};
  double hop = (double)(m->hop_ns + m->hub_ns) * (double)m->nic / (double)m->scale;
  c.turned = c.bytes;
  for (int r = host * o->g; r < (host + 1) * o->g; r++) {
    int64_t own = out ? o->out[r] - o->to_host[(size_t)r * (size_t)o->h + (size_t)host]
                      : o->into[r] - o->within[r];
    c.turned -= (double)straight(o, r, out);
    c.at_once += (double)own < hop ? (double)own : hop;
    c.most = largest(c.most, (double)own);
  }
  return c;
}

/*
 * Bounds what crosses between hosts. For a hop inside the host after the first bytes leave (before
 * the last arrive), a NIC has only what is its own rank's. On rails, what changes its index takes
 * a hop inside before or after: with f ns for the NIC beside these, it carries f by each of both
 * ways, which overlap but for that hop.
 */
static double crossing_ns(const struct copse_online *o, const struct crossing *c) {
  const struct copse_online_model *m = &o->model;
  double per_byte = (double)m->scale / (double)m->nic / o->g;
  double hop = (double)(m->hop_ns + m->hub_ns), way = (double)(m->hop_ns + m->fabric_ns);
  double ns = c->bytes > 0 ? way + c->bytes * per_byte : 0;
  if (!m->separate || c->bytes <= 0) return ns;
  double after = hop + (c->bytes - c->at_once) * per_byte, before = c->most * per_byte * o->g;
  ns = largest(ns, way + (c->bytes > c->at_once ? after : before));
  if (m->flat || c->turned <= 0) return ns;
  double t = c->turned * per_byte;
  return largest(ns, way + hop + largest(t / 2, t - hop));
}

/* Raises the bound on rails by all bytes that change their index: they cross a switch inside some
 * host. */
static void raise_by_turns(const struct copse_online *o, struct copse_online_bound *bound) {
  const struct copse_online_model *m = &o->model;
  int64_t width = copse_smaller(m->intra_out, m->intra_in), all;
  __int128 bytes = 0;
  if (!o->bytes || !m->separate || m->flat || copse_mul_overflows(width, o->n, &all)) return;
  for (int r = 0; r < o->n; r++)
    bytes += o->out[r] - straight(o, r, true) - o->bytes[(size_t)r * (size_t)o->n + (size_t)r];
  if (bytes <= INT64_MAX)
    copse_online_raise_bound(bound, COPSE_ONLINE_TURNS, 0, (int64_t)bytes, all);
}

static double floor_ns(const struct copse_online *o, const struct copse_online_bound *bound) {
  const struct copse_online_model *m = &o->model;
  double ns = 0;
  if (bound->bytes > 0)
    ns = (double)bound->bytes * (double)m->scale / (double)bound->bandwidth +
         (double)(m->hop_ns + (o->h == 1 ? m->hub_ns : copse_smaller(m->hub_ns, m->fabric_ns)));
  for (int a = 0; a < o->h && o->h > 1; a++)
    for (int out = 0; out < 2; out++) {
      struct crossing c = cross(o, a, out);
      ns = largest(ns, crossing_ns(o, &c));
    }
  return ns;
}

void copse_online_bound(const struct copse_online *o, struct copse_online_bound *bound) {
  *bound = o->bound;
  raise_by_turns(o, bound);
  double GBps_seconds = (double)bound->bandwidth / (double)o->model.scale;
  bound->seconds = (double)bound->bytes / 1e9 / GBps_seconds;
  bound->with_latency = o->bytes ? floor_ns(o, bound) / 1e9 : 0;
}

/* ---- creation ----------------------------------------------------------------------- */

static copse_status check_model(const struct copse_online_model *m,
                                const struct copse_online_options *o, struct copse_err *err) {
  const int64_t all[] = {m->intra_out, m->intra_in, m->nic, m->scale};
  if (m->hosts < 1 || m->hosts > COPSE_ONLINE_MAX_HOSTS || m->ranks_per_host < 1 ||
      m->ranks_per_host > COPSE_ONLINE_MAX_LOCAL)
    return copse_fail(err, COPSE_INVALID, "%d hosts of %d ranks: 1 to %d of 1 to %d are planned",
                      m->hosts, m->ranks_per_host, COPSE_ONLINE_MAX_HOSTS, COPSE_ONLINE_MAX_LOCAL);
  for (int i = 0; i < 4; i++)
    if (all[i] <= 0 || all[i] > (int64_t)1 << 48)
      return copse_fail(err, COPSE_INVALID, "a bandwidth must be in 1..2^48, not %" PRId64, all[i]);
  if (m->rank_out < 0 || m->rank_in < 0 || m->host_out < 0 || m->host_in < 0)
    return copse_fail(err, COPSE_INVALID, "the bandwidth of a cut can't be negative");
  const int64_t times[] = {m->hop_ns, m->hub_ns, m->fabric_ns, m->message_ns};
  for (int i = 0; i < 4; i++)
    if (times[i] < 0 || times[i] > (int64_t)1 << 40)
      return copse_fail(err, COPSE_INVALID, "a latency must be in 0..2^40 ns, not %" PRId64,
                        times[i]);
  if (o && (o->steps < 0 || o->steps > COPSE_ONLINE_MAX_STEPS || o->min_message < 0 ||
            o->min_message > (int64_t)1 << 40))
    return copse_fail(err, COPSE_INVALID, "a planner option is out of range");
  return COPSE_OK;
}

static void set_up(struct copse_online *o, const struct copse_online_model *model,
                   const struct copse_online_options *options) {
  o->model = *model;
  if (options) o->options = *options;
  if (o->options.steps == 0) o->options.steps = COPSE_ONLINE_DEFAULT_STEPS;
  if (o->options.min_message == 0) o->options.min_message = COPSE_ONLINE_DEFAULT_MIN_MESSAGE;
  struct copse_online_model *m = &o->model;
  o->h = m->hosts;
  o->g = m->ranks_per_host;
  o->n = o->h * o->g;
  o->words = (o->h + 63) / 64;
  if (m->rank_out == 0) m->rank_out = m->intra_out + m->nic;
  if (m->rank_in == 0) m->rank_in = m->intra_in + m->nic;
  if (m->host_out == 0) m->host_out = o->g * m->nic;
  if (m->host_in == 0) m->host_in = o->g * m->nic;
  int64_t exact = (int64_t)o->h * o->h + 2 * o->h;
  int64_t cap = COPSE_ONLINE_STAGES_PER_HOST * (int64_t)o->h;
  if (cap < COPSE_ONLINE_STAGES_FEWEST) cap = COPSE_ONLINE_STAGES_FEWEST;
  o->max_stages = (int)(exact < cap || o->options.one_to_one ? exact : cap);
}

static copse_status allocate_cut(struct copse_online *o, struct copse_err *err) {
  size_t h = (size_t)o->h, words = (size_t)o->words, hh = h * h;
  COPSE_DO(COPSE_ARRAY(&o->arena, hh, o->rest, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int64_t, err, &o->row_slack, &o->col_slack));
  COPSE_DO(COPSE_ARRAY(&o->arena, h * words, o->edges, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, words, uint64_t, err, &o->slack_rows, &o->slack_cols,
                        &o->free_cols, &o->unseen));
  COPSE_DO(COPSE_ARRAY(&o->arena, h, o->queue.items, err));
  return COPSE_ARRAYS(&o->arena, h, int16_t, err, &o->match_row, &o->match_col, &o->parent);
}

static copse_status allocate(struct copse_online *o, struct copse_err *err) {
  size_t h = (size_t)o->h, n = (size_t)o->n, stages = (size_t)o->max_stages;
  size_t steps = (size_t)o->options.steps;
  COPSE_DO(COPSE_ARRAY(&o->arena, n * h, o->to_host, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, n, int64_t, err, &o->out, &o->into, &o->within, &o->by_index,
                        &o->by_lane));
  COPSE_DO(COPSE_ARRAY(&o->arena, h * h, o->total, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int64_t, err, &o->row, &o->col));
  COPSE_DO(allocate_cut(o, err));
  COPSE_DO(COPSE_ARRAY(&o->arena, stages, o->duration, err));
  COPSE_DO(COPSE_ARRAY(&o->arena, stages + 1, o->first_step, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, stages * h, int16_t, err, &o->dst, &o->src));
  COPSE_DO(COPSE_ARRAY(&o->arena, stages + h, o->visits, err));
  COPSE_DO(COPSE_ARRAYS(&o->arena, h, int, err, &o->head, &o->last));
  COPSE_DO(COPSE_ARRAY(&o->arena, h, o->done, err));
  return COPSE_ARRAY(&o->arena, 5 * (stages + steps + 2 * h), o->counts, err);
}

/* Clears the planner before a plan, and after one that failed. */
static void forget_plan(struct copse_online *o) {
  o->bytes = NULL;
  o->local = o->needed = o->left = o->nic_bytes = o->predicted_ns = 0;
  o->n_stages = o->combined_first = 0;
  o->n_steps = 1;
  o->form = COPSE_ONLINE_EVEN;
  o->bound = (struct copse_online_bound){.index = -1, .bandwidth = 1};
}

static void free_at(struct copse_online **online) { copse_online_free(*online); }

copse_status copse_online_create(const struct copse_online_model *model,
                                 const struct copse_online_options *options,
                                 struct copse_online **out, struct copse_err *err) {
  COPSE_AT_END(free_at) struct copse_online *o = NULL;
  *out = NULL;
  COPSE_DO(check_model(model, options, err));
  COPSE_DO(copse_calloc(1, sizeof *o, &o, err));
  set_up(o, model, options);
  COPSE_DO(allocate(o, err));
  forget_plan(o);
  *out = o;
  o = NULL;
  return COPSE_OK;
}

void copse_online_free(struct copse_online *o) {
  if (!o) return;
  copse_arena_free(&o->arena);
  free(o);
}

/* ---- reading the counts --------------------------------------------------------------- */

/* Sums are taken unsigned, so that bad counts, found afterwards by `seen`, do no harm before. */

/* A host's eight rows at once: a rank's counts for one host are one cache line. */
typedef uint64_t pair_of_counts __attribute__((vector_size(16), aligned(8), may_alias));

static void add_to(int64_t *sums, const pair_of_counts add[4]) {
  pair_of_counts *to = (pair_of_counts *)sums;
  for (int k = 0; k < 4; k++) to[k] += add[k];
}

/* Adds a block of eight to `columns`, its bits to *seen; returns the sum, to be added up in
 * itself. */
static inline pair_of_counts add_block(const int64_t *block, pair_of_counts columns[4],
                                       pair_of_counts *seen) {
  const pair_of_counts *p = (const pair_of_counts *)block;
  pair_of_counts v0 = p[0], v1 = p[1], v2 = p[2], v3 = p[3];
  columns[0] += v0, columns[1] += v1, columns[2] += v2, columns[3] += v3;
  *seen |= (v0 | v1) | (v2 | v3);
  return (v0 + v1) + (v2 + v3);
}

static void end_block(struct copse_online *o, size_t a, size_t b, const pair_of_counts columns[4]) {
  pair_of_counts sum = (columns[0] + columns[1]) + (columns[2] + columns[3]);
  add_to(o->into + 8 * b, columns);
  add_to((b == a ? o->within : o->by_index) + 8 * a, columns);
  o->total[a * (size_t)o->h + b] = (int64_t)(sum[0] + sum[1]);
}

static uint64_t read_host_of_8(struct copse_online *o, int host) {
  size_t n = (size_t)o->n, h = (size_t)o->h, a = (size_t)host, b = 0;
  const int64_t *rows = o->bytes + a * 8 * n;
  int64_t *to_host = o->to_host + a * 8 * h;
  pair_of_counts seen = {0, 0}, out[8] = {{0}};
  for (; b + 1 < h; b += 2) { /* two hosts at once, whose sums are one store */
    pair_of_counts here[4] = {{0}}, next[4] = {{0}};
    for (size_t i = 0; i < 8; i++) {
      pair_of_counts x = add_block(rows + i * n + 8 * b, here, &seen);
      pair_of_counts y = add_block(rows + i * n + 8 * b + 8, next, &seen);
      pair_of_counts sums = (pair_of_counts){x[0], y[0]} + (pair_of_counts){x[1], y[1]};
      *(pair_of_counts *)(to_host + i * h + b) = sums;
      out[i] += sums;
    }
    end_block(o, a, b, here);
    end_block(o, a, b + 1, next);
  }
  if (b < h) {
    pair_of_counts here[4] = {{0}};
    for (size_t i = 0; i < 8; i++) {
      pair_of_counts sum = add_block(rows + i * n + 8 * b, here, &seen);
      to_host[i * h + b] = (int64_t)(sum[0] + sum[1]);
      out[i][0] += sum[0] + sum[1];
    }
    end_block(o, a, b, here);
  }
  for (size_t i = 0; i < 8; i++) o->out[8 * a + i] = (int64_t)(out[i][0] + out[i][1]);
  return seen[0] | seen[1];
}

static void add(int64_t *sum, uint64_t v) { *sum = (int64_t)((uint64_t)*sum + v); }

static uint64_t read_host(struct copse_online *o, int a) {
  size_t n = (size_t)o->n, h = (size_t)o->h, g = (size_t)o->g, first = (size_t)a * g;
  uint64_t seen = 0;
  for (size_t b = 0; b < h; b++) o->total[(size_t)a * h + b] = 0;
  for (size_t i = first; i < first + g; i++)
    for (size_t b = 0; b < h; b++) {
      const int64_t *block = o->bytes + i * n + b * g;
      int64_t *by_index = (b == (size_t)a ? o->within : o->by_index) + first;
      uint64_t sum = 0;
      for (size_t j = 0; j < g; j++) {
        uint64_t v = (uint64_t)block[j];
        add(&o->into[b * g + j], v);
        add(&by_index[j], v);
        seen |= v;
        sum += v;
      }
      o->to_host[i * h + b] = (int64_t)sum;
      add(&o->out[i], sum);
      add(&o->total[(size_t)a * h + b], sum);
    }
  return seen;
}

copse_status copse_online_check_count(int64_t bytes, int64_t most, int src, int dst,
                                      struct copse_err *err) {
  if (bytes < 0)
    return copse_fail(err, COPSE_INVALID, "rank %d sends %" PRId64 " bytes to rank %d", src, bytes,
                      dst);
  if (bytes > most)
    return copse_fail(err, COPSE_OVERFLOW,
                      "rank %d sends %" PRId64 " bytes to rank %d; at most %" PRId64 " are planned",
                      src, bytes, dst, most);
  return COPSE_OK;
}

/* Checks the counts; `seen` has the bits of all: only if it is too large need single ones be looked
 * at. */
static copse_status check_counts(const struct copse_online *o, uint64_t seen,
                                 struct copse_err *err) {
  int64_t most = ((int64_t)1 << 62) / ((int64_t)o->n * o->g);
  if (seen <= (uint64_t)most) return COPSE_OK;
  for (int i = 0; i < o->n; i++)
    for (int j = 0; j < o->n; j++)
      COPSE_DO(copse_online_check_count(o->bytes[(size_t)i * (size_t)o->n + (size_t)j], most, i, j,
                                        err));
  return COPSE_OK;
}

static void sum_hosts(struct copse_online *o) {
  size_t h = (size_t)o->h;
  memset(o->row, 0, h * sizeof *o->row);
  memset(o->col, 0, h * sizeof *o->col);
  o->needed = 0;
  for (size_t a = 0; a < h; a++) {
    o->total[a * h + a] = 0;
    int64_t sum = 0;
    for (size_t b = 0; b < h; b++) {
      sum += o->total[a * h + b];
      o->col[b] += o->total[a * h + b];
    }
    o->row[a] = sum;
  }
  for (size_t a = 0; a < h; a++) {
    if (o->row[a] > o->needed) o->needed = o->row[a];
    if (o->col[a] > o->needed) o->needed = o->col[a];
  }
}

/* ---- planning ---------------------------------------------------------------------------- */

copse_status copse_online_plan(struct copse_online *o, const int64_t *bytes,
                               struct copse_err *err) {
  uint64_t seen = 0;
  size_t sums = (size_t)o->n * sizeof(int64_t);
  forget_plan(o);
  o->bytes = bytes;
  memset(o->out, 0, sums);
  memset(o->into, 0, sums);
  memset(o->within, 0, sums);
  memset(o->by_index, 0, sums);
  for (int a = 0; a < o->h; a++) seen |= o->g == 8 ? read_host_of_8(o, a) : read_host(o, a);
  copse_status status = check_counts(o, seen, err);
  if (status != COPSE_OK) {
    forget_plan(o);
    return status;
  }
  sum_hosts(o);
  find_bound(o);
  copse_online_choose(o);
  return COPSE_OK;
}

void copse_online_inter(const struct copse_online *o, int64_t *bound_bytes, int64_t *nic_bytes) {
  *bound_bytes = o->needed;
  *nic_bytes = o->nic_bytes;
}

enum copse_online_form copse_online_form_of(const struct copse_online *o) { return o->form; }

int64_t copse_online_predicted_ns(const struct copse_online *o) { return o->predicted_ns; }

int copse_online_stages(const struct copse_online *o) { return o->n_stages; }

int copse_online_steps(const struct copse_online *o, int *combined_first) {
  if (combined_first) *combined_first = o->combined_first;
  return o->n_steps;
}

void copse_online_stage(const struct copse_online *o, int stage, int64_t *bytes,
                        const int16_t **dst) {
  *bytes = o->duration[stage];
  *dst = o->dst + (size_t)stage * (size_t)o->h;
}
