#include "solver/online/stages_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/online/internal.h"

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
  if (o && (o->steps < 0 || o->steps > COPSE_ONLINE_MAX_STEPS || o->min_message < 0 ||
            o->min_message > (int64_t)1 << 40 || o->tail_divisor < -1))
    return copse_fail(err, COPSE_INVALID, "a planner option is out of range");
  return COPSE_OK;
}

static void set_up(struct copse_online *o, const struct copse_online_model *model,
                   const struct copse_online_options *options) {
  o->model = *model;
  if (options) o->options = *options;
  if (o->options.steps == 0) o->options.steps = 128;
  if (o->options.min_message == 0) o->options.min_message = 131072;
  if (o->options.tail_divisor == 0) o->options.tail_divisor = 4096;
  struct copse_online_model *m = &o->model;
  o->h = m->hosts;
  o->g = m->ranks_per_host;
  o->n = o->h * o->g;
  o->words = (o->h + 63) / 64;
  o->tail_words = (2 * o->h + 63) / 64;
  if (m->rank_out == 0) m->rank_out = m->intra_out + m->nic;
  if (m->rank_in == 0) m->rank_in = m->intra_in + m->nic;
  if (m->host_out == 0) m->host_out = o->g * m->nic;
  if (m->host_in == 0) m->host_in = o->g * m->nic;
  /* Every stage empties an entry or uses up a slack, so that h^2 + 2 h always suffice. More than
     some thousands only shred messages: then the tail begins earlier. */
  int64_t exact = (int64_t)o->h * o->h + 2 * o->h;
  int64_t cap = 16 * (int64_t)o->h > 8192 ? 16 * (int64_t)o->h : 8192;
  if (o->options.tail_divisor < 0) cap = exact;
  o->max_stages = (int)((exact < cap ? exact : cap) + 2 * o->h);
}

static copse_status allocate_cut(struct copse_online *o, struct copse_err *err) {
  size_t h = (size_t)o->h, words = (size_t)o->words, hh = h * h;
  copse_status status;
  COPSE_TRY(copse_calloc(hh, sizeof *o->rest, &o->rest, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->row_slack, &o->row_slack, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->col_slack, &o->col_slack, err));
  COPSE_TRY(copse_calloc(h * words, sizeof *o->edges, &o->edges, err));
  COPSE_TRY(copse_calloc(words, sizeof *o->slack_rows, &o->slack_rows, err));
  COPSE_TRY(copse_calloc(words, sizeof *o->slack_cols, &o->slack_cols, err));
  COPSE_TRY(copse_calloc(words, sizeof *o->free_cols, &o->free_cols, err));
  COPSE_TRY(copse_calloc(words, sizeof *o->unseen, &o->unseen, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->match_row, &o->match_row, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->match_col, &o->match_col, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->parent, &o->parent, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->queue, &o->queue, err));
  COPSE_TRY(copse_calloc(2 * h * (size_t)o->tail_words, sizeof *o->used, &o->used, err));
  COPSE_TRY(copse_calloc(hh, sizeof *o->keys, &o->keys, err));
  COPSE_TRY(copse_calloc(hh, sizeof *o->keys_swap, &o->keys_swap, err));
  COPSE_TRY(copse_calloc(hh, sizeof *o->order, &o->order, err));
  COPSE_TRY(copse_calloc(hh, sizeof *o->order_swap, &o->order_swap, err));
out:
  return status;
}

static copse_status allocate(struct copse_online *o, struct copse_err *err) {
  size_t h = (size_t)o->h, n = (size_t)o->n, stages = (size_t)o->max_stages;
  size_t steps = (size_t)o->options.steps;
  copse_status status;
  COPSE_TRY(copse_calloc(n * h, sizeof *o->to_host, &o->to_host, err));
  COPSE_TRY(copse_calloc(n, sizeof *o->into, &o->into, err));
  COPSE_TRY(copse_calloc(h * h, sizeof *o->total, &o->total, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->row, &o->row, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->col, &o->col, err));
  COPSE_TRY(allocate_cut(o, err));
  COPSE_TRY(copse_calloc(stages, sizeof *o->duration, &o->duration, err));
  COPSE_TRY(copse_calloc(stages + 1, sizeof *o->first_step, &o->first_step, err));
  COPSE_TRY(copse_calloc(stages * h, sizeof *o->dst, &o->dst, err));
  COPSE_TRY(copse_calloc(stages * h, sizeof *o->src, &o->src, err));
  COPSE_TRY(copse_calloc(stages, sizeof *o->visits, &o->visits, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->head, &o->head, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->last, &o->last, err));
  COPSE_TRY(copse_calloc(h, sizeof *o->done, &o->done, err));
  /* the sum of the stages is below 20 times what is needed, even if all of them are tail */
  COPSE_TRY(copse_calloc(5 * (stages + 20 * steps + 1), sizeof *o->counts, &o->counts, err));
out:
  return status;
}

copse_status copse_online_create(const struct copse_online_model *model,
                                 const struct copse_online_options *options,
                                 struct copse_online **out, struct copse_err *err) {
  struct copse_online *o = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(check_model(model, options, err));
  COPSE_TRY(copse_calloc(1, sizeof *o, &o, err));
  set_up(o, model, options);
  COPSE_TRY(allocate(o, err));
  o->bound.bandwidth = 1;
  o->n_steps = 1;
  *out = o;
  o = NULL;
out:
  copse_online_free(o);
  return status;
}

void copse_online_free(struct copse_online *o) {
  if (!o) return;
  void *all[] = {o->to_host,   o->into,       o->total,      o->row,       o->col,
                 o->rest,      o->row_slack,  o->col_slack,  o->edges,     o->slack_rows,
                 o->free_cols, o->slack_cols, o->unseen,     o->match_row, o->match_col,
                 o->parent,    o->queue,      o->used,       o->keys,      o->keys_swap,
                 o->order,     o->order_swap, o->duration,   o->dst,       o->src,
                 o->visits,    o->head,       o->first_step, o->last,      o->done,
                 o->counts};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  free(o);
}

/* ---- reading the counts --------------------------------------------------------------- */

/* Sums are taken unsigned, so that bad counts, found afterwards by `seen`, do no harm before. */

/* A host's eight rows at once: a rank's counts for one host are one cache line. */
typedef uint64_t pair_of_counts __attribute__((vector_size(16), aligned(8), may_alias));

static uint64_t read_host_of_8(struct copse_online *o, int a) {
  size_t n = (size_t)o->n, h = (size_t)o->h;
  const int64_t *rows = o->bytes + (size_t)a * 8 * n;
  int64_t *to_host = o->to_host + (size_t)a * 8 * h;
  pair_of_counts seen = {0, 0};
  for (size_t b = 0; b < h; b++) {
    pair_of_counts *into = (pair_of_counts *)(o->into + 8 * b);
    pair_of_counts c0 = into[0], c1 = into[1], c2 = into[2], c3 = into[3];
    uint64_t total = 0;
    for (size_t i = 0; i < 8; i++) {
      const pair_of_counts *p = (const pair_of_counts *)(rows + i * n + 8 * b);
      pair_of_counts v0 = p[0], v1 = p[1], v2 = p[2], v3 = p[3];
      c0 += v0, c1 += v1, c2 += v2, c3 += v3;
      seen |= (v0 | v1) | (v2 | v3);
      pair_of_counts sum = (v0 + v1) + (v2 + v3);
      to_host[i * h + b] = (int64_t)(sum[0] + sum[1]);
      total += sum[0] + sum[1];
    }
    into[0] = c0, into[1] = c1, into[2] = c2, into[3] = c3;
    o->total[(size_t)a * h + b] = (int64_t)total;
  }
  return seen[0] | seen[1];
}

static uint64_t read_host(struct copse_online *o, int a) {
  size_t n = (size_t)o->n, h = (size_t)o->h, g = (size_t)o->g;
  uint64_t seen = 0;
  for (size_t b = 0; b < h; b++) o->total[(size_t)a * h + b] = 0;
  for (size_t i = (size_t)a * g; i < ((size_t)a + 1) * g; i++)
    for (size_t b = 0; b < h; b++) {
      const int64_t *block = o->bytes + i * n + b * g;
      uint64_t sum = 0;
      for (size_t j = 0; j < g; j++) {
        uint64_t v = (uint64_t)block[j];
        o->into[b * g + j] = (int64_t)((uint64_t)o->into[b * g + j] + v);
        seen |= v;
        sum += v;
      }
      o->to_host[i * h + b] = (int64_t)sum;
      o->total[(size_t)a * h + b] = (int64_t)((uint64_t)o->total[(size_t)a * h + b] + sum);
    }
  return seen;
}

/* `seen` has the bits of all counts: only if it is too large need single ones be looked at. */
static copse_status check_counts(const struct copse_online *o, uint64_t seen,
                                 struct copse_err *err) {
  int64_t most = ((int64_t)1 << 62) / ((int64_t)o->n * o->g);
  if (seen <= (uint64_t)most) return COPSE_OK;
  for (int i = 0; i < o->n; i++)
    for (int j = 0; j < o->n; j++) {
      int64_t v = o->bytes[(size_t)i * (size_t)o->n + (size_t)j];
      if (v < 0)
        return copse_fail(err, COPSE_INVALID, "rank %d sends %" PRId64 " bytes to rank %d", i, v,
                          j);
      if (v > most)
        return copse_fail(err, COPSE_OVERFLOW,
                          "rank %d sends %" PRId64 " bytes to rank %d; at most %" PRId64
                          " are planned",
                          i, v, j, most);
    }
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

/* ---- the lower bound -------------------------------------------------------------------- */

static void raise_bound(struct copse_online_bound *best, enum copse_online_limit limit, int index,
                        int64_t bytes, int64_t bandwidth) {
  if ((__int128)bytes * best->bandwidth <= (__int128)best->bytes * bandwidth) return;
  best->limit = limit;
  best->index = index;
  best->bytes = bytes;
  best->bandwidth = bandwidth;
}

static void find_bound(struct copse_online *o) {
  const struct copse_online_model *m = &o->model;
  size_t h = (size_t)o->h, n = (size_t)o->n;
  struct copse_online_bound best = {.index = -1, .bandwidth = 1};
  for (size_t i = 0; i < n; i++) {
    int64_t own = o->bytes[i * n + i], out = 0;
    for (size_t b = 0; b < h; b++) out += o->to_host[i * h + b];
    raise_bound(&best, COPSE_ONLINE_RANK_OUT, (int)i, out - own, m->rank_out);
    raise_bound(&best, COPSE_ONLINE_RANK_IN, (int)i, o->into[i] - own, m->rank_in);
  }
  for (size_t a = 0; a < h; a++) {
    raise_bound(&best, COPSE_ONLINE_HOST_OUT, (int)a, o->row[a], m->host_out);
    raise_bound(&best, COPSE_ONLINE_HOST_IN, (int)a, o->col[a], m->host_in);
  }
  o->bound = best;
}

/* ---- planning ---------------------------------------------------------------------------- */

copse_status copse_online_plan(struct copse_online *o, const int64_t *bytes,
                               struct copse_err *err) {
  uint64_t seen = 0;
  o->bytes = bytes;
  memset(o->into, 0, (size_t)o->n * sizeof *o->into);
  for (int a = 0; a < o->h; a++) seen |= o->g == 8 ? read_host_of_8(o, a) : read_host(o, a);
  copse_status status = check_counts(o, seen, err);
  if (status != COPSE_OK) {
    o->bytes = NULL;
    o->needed = 0;
    o->n_stages = 0;
    o->n_steps = 1;
    o->bound = (struct copse_online_bound){.index = -1, .bandwidth = 1};
    return status;
  }
  sum_hosts(o);
  find_bound(o);
  copse_online_cut(o);
  return COPSE_OK;
}

void copse_online_bound(const struct copse_online *o, struct copse_online_bound *bound) {
  *bound = o->bound;
  double GBps_seconds = (double)bound->bandwidth / (double)o->model.scale;
  bound->seconds = (double)bound->bytes / 1e9 / GBps_seconds;
}

void copse_online_inter(const struct copse_online *o, int64_t *bound_bytes, int64_t *stage_bytes) {
  *bound_bytes = o->needed;
  *stage_bytes = 0;
  for (int s = 0; s < o->n_stages; s++) *stage_bytes += o->duration[s];
}

int copse_online_stages(const struct copse_online *o) { return o->n_stages; }

int copse_online_steps(const struct copse_online *o) { return o->n_steps; }

void copse_online_stage(const struct copse_online *o, int stage, int64_t *bytes,
                        const int16_t **dst) {
  *bytes = o->duration[stage];
  *dst = o->dst + (size_t)stage * (size_t)o->h;
}
