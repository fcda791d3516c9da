/*
 * A Mixture-of-Experts layer cut into parts, so that the all-to-all of one runs beside the experts'
 * work on another, simulated for several numbers of parts (Tutel, arXiv 2206.03382, section 4.2).
 */
#include "predict/overlap.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "schedule/demand.h"

/* ---- compute time -------------------------------------------------------------------------- */

static bool is_time(double v) { return isfinite(v) && v >= 0; }

static copse_status check_compute(const struct copse_compute *c, struct copse_err *err) {
  if (!is_time(c->alpha_us) || !is_time(c->us_per_token))
    return copse_fail(err, COPSE_INVALID, "compute times must be finite and not negative");
  for (int i = 0; i < c->n_points; i++) {
    const struct copse_compute_point *p = &c->points[i];
    if (!is_time(p->tokens) || !is_time(p->us))
      return copse_fail(err, COPSE_INVALID, "compute times must be finite and not negative");
    if (i > 0 && (p->tokens <= p[-1].tokens || p->us < p[-1].us))
      return copse_fail(err, COPSE_INVALID,
                        "point %d of the compute times must have more tokens than the one before, "
                        "and no less time",
                        i);
  }
  return COPSE_OK;
}

double copse_compute_us(const struct copse_compute *c, double tokens) {
  const struct copse_compute_point *p = c->points;
  int i = 1;
  if (c->n_points == 0) return c->alpha_us + c->us_per_token * tokens;
  if (tokens <= p[0].tokens) return p[0].us;
  if (c->n_points == 1) return p[0].tokens > 0 ? p[0].us * (tokens / p[0].tokens) : p[0].us;
  while (i + 1 < c->n_points && p[i].tokens < tokens) i++;
  return p[i - 1].us +
         (p[i].us - p[i - 1].us) * ((tokens - p[i - 1].tokens) / (p[i].tokens - p[i - 1].tokens));
}

static copse_status get_number(const struct copse_json *json, const cJSON *object, const char *key,
                               double *out, struct copse_err *err) {
  struct copse_q q;
  if (!copse_json_get(object, key))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(object, NULL),
                         "\"%s\" is missing", key);
  COPSE_DO(copse_json_get_rational(json, object, key, &q, err));
  if (q.num < 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(object, NULL),
                         "\"%s\" must not be negative", key);
  *out = copse_q_to_double(q);
  return COPSE_OK;
}

static copse_status read_points(const struct copse_json *json, const cJSON *list,
                                struct copse_compute *out, struct copse_compute_point **points,
                                struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"tokens", COPSE_JSON_NEEDED | COPSE_JSON_NOT_NEGATIVE, "a number of tokens, such as 1024"},
      {"us", COPSE_JSON_NEEDED | COPSE_JSON_NOT_NEGATIVE,
       "the time that they take in us, such as 150.5"},
      {0}};
  int n = cJSON_GetArraySize(list), i = 0;
  if (n == 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(json->root, NULL),
                         "\"points\" is empty; give at least one");
  COPSE_DO(copse_calloc((size_t)n, sizeof **points, points, err));
  COPSE_JSON_EACH (item, list) {
    struct copse_compute_point *p = &(*points)[i++];
    COPSE_DO(copse_json_expect_object(json, item, json->root, "a point", keys, err));
    COPSE_DO(get_number(json, item, "tokens", &p->tokens, err));
    COPSE_DO(get_number(json, item, "us", &p->us, err));
    if (i > 1 && (p->tokens <= p[-1].tokens || p->us < p[-1].us))
      return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(item, NULL),
                           "each point must have more tokens than the one before, and no less "
                           "time");
  }
  out->points = *points;
  out->n_points = n;
  return COPSE_OK;
}

static copse_status read_compute(const struct copse_json *json, struct copse_compute *out,
                                 struct copse_compute_point **points, struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-compute/1\""},
      {"points", COPSE_JSON_ARRAY,
       "measured times, such as [{\"tokens\": 0, \"us\": 12.5}, {\"tokens\": 1024, \"us\": "
       "150.5}]"},
      {"alpha_us", COPSE_JSON_NOT_NEGATIVE, "us of a step without tokens, such as 12.5"},
      {"us_per_token", COPSE_JSON_NOT_NEGATIVE, "us for each token, such as 0.12"},
      {"comment", COPSE_JSON_STRING, "a text for readers"},
      {0}};
  const cJSON *root = json->root, *list = NULL;
  COPSE_DO(copse_json_expect_format(json, "copse-compute/1", err));
  COPSE_DO(copse_json_expect_object(json, root, NULL, "a table of compute times", keys, err));
  if (!copse_json_get(root, "points")) {
    if (!copse_json_get(root, "alpha_us") || !copse_json_get(root, "us_per_token"))
      return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(root, NULL),
                           "a table of compute times needs \"points\", such as [{\"tokens\": 1024, "
                           "\"us\": 150}], or \"alpha_us\" and \"us_per_token\"");
    COPSE_DO(get_number(json, root, "alpha_us", &out->alpha_us, err));
    return get_number(json, root, "us_per_token", &out->us_per_token, err);
  }
  if (copse_json_get(root, "alpha_us") || copse_json_get(root, "us_per_token"))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(root, NULL),
                         "give either \"points\" or \"alpha_us\" and \"us_per_token\"");
  COPSE_DO(copse_json_get_array(json, root, "points", &list, err));
  return read_points(json, list, out, points, err);
}

copse_status copse_compute_parse(const char *label, const char *data, size_t size,
                                 struct copse_compute *out, struct copse_compute_point **points,
                                 struct copse_err *err) {
  struct copse_json json = {0};
  copse_status status;
  *out = (struct copse_compute){0};
  *points = NULL;
  COPSE_TRY(copse_json_parse(label, data, size, &json, err));
  status = read_compute(&json, out, points, err);
out:
  copse_json_free(&json);
  if (status != COPSE_OK) {
    free(*points);
    *points = NULL;
    *out = (struct copse_compute){0};
  }
  return status;
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static double later(double a, double b) { return a > b ? a : b; }

/* Dispatches back to back, then combines; a part is computed when it is there and the one
 * before is done. */
static double one_at_a_time(int d, double dispatch, double compute, double combine) {
  double computed = 0, network = d * dispatch;
  for (int i = 1; i <= d; i++) {
    computed = later(computed, i * dispatch) + compute;
    network = later(network, computed) + combine;
  }
  return network;
}

/*
 * Runs from event to event. Left: work of the oldest dispatch and combine, and time of the part in
 * computation. A combine is under way when its part is computed and the one before is combined.
 */
static double shared(int d, double dispatch, double compute, double combine) {
  int dispatched = 0, computed = 0, combined = 0;
  double left[3] = {dispatch, compute, combine}, now = 0;
  while (combined < d) {
    bool busy[3] = {dispatched < d, computed < dispatched, combined < computed};
    double slow = busy[0] && busy[2] ? 2 : 1, step = INFINITY;
    const double pace[3] = {slow, 1, slow};
    int first = 0;
    for (int k = 2; k >= 0; k--) /* of events at the same time the last stage's first */
      if (busy[k] && left[k] * pace[k] < step) {
        step = left[k] * pace[k];
        first = k;
      }
    now += step;
    for (int k = 0; k < 3; k++)
      if (busy[k]) left[k] = k == first ? 0 : later(left[k] - step / pace[k], 0);
    if (first == 0) {
      dispatched++;
      left[0] = dispatch;
    } else if (first == 1) {
      computed++;
      left[1] = compute;
    } else {
      combined++;
      left[2] = combine;
    }
  }
  return now;
}

double copse_overlap_pipeline(int d, double dispatch_us, double compute_us, double combine_us,
                              enum copse_overlap_network network) {
  return network == COPSE_OVERLAP_SHARED ? shared(d, dispatch_us, compute_us, combine_us)
                                         : one_at_a_time(d, dispatch_us, compute_us, combine_us);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static copse_status check_problem(const struct copse_overlap_problem *p, struct copse_err *err) {
  if (!p->topology || !p->dispatch || !p->degrees || p->n_degrees <= 0)
    return copse_fail(err, COPSE_INVALID, "a topology, a dispatch and degrees must be given");
  if (!(isfinite(p->bytes) && p->bytes > 0) || !(isfinite(p->tokens) && p->tokens > 0) ||
      (p->combine && !(isfinite(p->combine_bytes) && p->combine_bytes > 0)))
    return copse_fail(err, COPSE_INVALID, "bytes and tokens must be positive");
  for (int i = 0; i < p->n_degrees; i++)
    if (p->degrees[i] < 1 || p->degrees[i] > COPSE_OVERLAP_MAX_DEGREE)
      return copse_fail(err, COPSE_INVALID, "a degree must be 1 to %d, not %d",
                        COPSE_OVERLAP_MAX_DEGREE, p->degrees[i]);
  return check_compute(&p->compute, err);
}

static copse_status predict(const struct copse_overlap_problem *p, int degree,
                            struct copse_overlap_row *row, struct copse_err *err) {
  double bytes = p->bytes / degree;
  row->degree = degree;
  COPSE_DO(copse_predictions_time(p->topology, p->dispatch, 1, &bytes, 1, false, &row->dispatch_us,
                                  err));
  row->combine_us = row->dispatch_us;
  bytes = p->combine_bytes / degree;
  if (p->combine)
    COPSE_DO(copse_predictions_time(p->topology, p->combine, 1, &bytes, 1, false, &row->combine_us,
                                    err));
  row->compute_us = copse_compute_us(&p->compute, p->tokens / degree);
  row->total_us = copse_overlap_pipeline(degree, row->dispatch_us, row->compute_us, row->combine_us,
                                         p->network);
  return COPSE_OK;
}

copse_status copse_overlap_choose(const struct copse_overlap_problem *problem,
                                  struct copse_overlap_row *rows, int *best,
                                  struct copse_err *err) {
  *best = 0;
  COPSE_DO(check_problem(problem, err));
  for (int i = 0; i < problem->n_degrees; i++) {
    COPSE_DO(predict(problem, problem->degrees[i], &rows[i], err));
    const struct copse_overlap_row *now = &rows[*best];
    if (rows[i].total_us < now->total_us ||
        (rows[i].total_us == now->total_us && rows[i].degree < now->degree))
      *best = i;
  }
  return COPSE_OK;
}

/* ---- the way back ---------------------------------------------------------------------------- */

COPSE_ORDER(by_pair, struct copse_schedule_flow, COPSE_UP(src) ?: COPSE_UP(dst))

/* Turns a path from its end to its start, of which `part` times the weight is a fraction of the
 * combine's M. */
static copse_status turn_path(const struct copse_schedule *s, const struct copse_topology *t,
                              const struct copse_schedule_path *path, struct copse_q part,
                              struct copse_arena *arena, struct copse_schedule_path *out,
                              struct copse_err *err) {
  int n = path->n_nodes, *nodes = NULL;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, nodes, err));
  for (int i = 0; i < n; i++) {
    nodes[i] = path->nodes[n - 1 - i];
    if (i == 0) continue;
    int a = copse_topology_find(t, s->nodes[nodes[i - 1]]);
    int b = copse_topology_find(t, s->nodes[nodes[i]]);
    if (a < 0 || b < 0)
      return copse_fail(err, COPSE_INVALID, "the schedule's node '%s' is not in the topology",
                        s->nodes[nodes[a < 0 ? i - 1 : i]]);
    if (copse_topology_find_link(t, a, b) < 0)
      return copse_fail(err, COPSE_UNSUPPORTED,
                        "the combine takes the dispatch's paths the other way round, and there is "
                        "no link '%s' -> '%s'",
                        s->nodes[nodes[i - 1]], s->nodes[nodes[i]]);
  }
  *out = (struct copse_schedule_path){.nodes = nodes, .n_nodes = n};
  return copse_q_mul(path->weight, part, &out->weight, err);
}

static copse_status transpose(const struct copse_schedule *s, struct copse_arena *arena,
                              struct copse_schedule *out, struct copse_q *part,
                              struct copse_err *err) {
  size_t n = (size_t)s->n_ranks;
  int64_t *demand = NULL, there, back;
  COPSE_DO(COPSE_ARRAY(arena, n * n, demand, err));
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < n; j++) demand[i * n + j] = s->demand[j * n + i];
  COPSE_DO(copse_demand_total(s->demand, s->n_ranks, &there, err));
  COPSE_DO(copse_demand_total(demand, s->n_ranks, &back, err));
  out->demand = demand;
  return copse_q_make(there, back > 0 ? back : 1, part, err);
}

/* Turns the transposed alltoall; only what a prediction needs of it. */
static copse_status turn_around(const struct copse_schedule *s, const struct copse_topology *t,
                                struct copse_arena *arena, struct copse_schedule *out,
                                struct copse_err *err) {
  struct copse_schedule_flow *flows = NULL;
  struct copse_q part;
  *out = *s;
  COPSE_DO(transpose(s, arena, out, &part, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->n_flows, flows, err));
  for (int f = 0; f < s->n_flows; f++) {
    const struct copse_schedule_flow *flow = &s->flows[f];
    struct copse_schedule_path *paths = NULL;
    COPSE_DO(COPSE_ARRAY(arena, (size_t)flow->n_paths, paths, err));
    for (int p = 0; p < flow->n_paths; p++)
      COPSE_DO(turn_path(s, t, &flow->paths[p], part, arena, &paths[p], err));
    flows[f] = (struct copse_schedule_flow){flow->dst, flow->src, flow->n_paths, paths};
  }
  COPSE_SORT(flows, s->n_flows, by_pair);
  out->flows = flows;
  return COPSE_OK;
}

copse_status copse_overlap_predict(const struct copse_schedule *s, const struct copse_topology *t,
                                   const struct copse_predict_options *options,
                                   struct copse_prediction predictions[2], int *n,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_schedule back;
  predictions[0] = predictions[1] = (struct copse_prediction){0};
  *n = s->demand ? 2 : 1;
  if (s->collective != COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "only an alltoall has a combine");
  if (s->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "a compact schedule must be expanded first");
  COPSE_DO(copse_predict_schedule(t, s, options, &predictions[0], err));
  if (!s->demand) return COPSE_OK;
  COPSE_DO(turn_around(s, t, &arena, &back, err));
  return copse_predict_schedule(t, &back, options, &predictions[1], err);
}

copse_status copse_overlap_busiest_share(const struct copse_schedule *s, double *share,
                                         struct copse_err *err) {
  int64_t m, most = 0;
  *share = 1;
  if (!s->demand) return COPSE_OK;
  COPSE_DO(copse_demand_total(s->demand, s->n_ranks, &m, err));
  for (int j = 0; j < s->n_ranks; j++) {
    int64_t sum = 0;
    for (int i = 0; i < s->n_ranks; i++)
      if (copse_add_overflows(sum, s->demand[(size_t)i * (size_t)s->n_ranks + (size_t)j], &sum))
        return copse_fail(err, COPSE_OVERFLOW, "a column of the demand is over 63 bits");
    if (sum > most) most = sum;
  }
  if (m > 0) *share = (double)most / (double)m;
  return COPSE_OK;
}
