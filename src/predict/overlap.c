/*
 * A Mixture-of-Experts layer cut into parts, so that the all-to-all of one runs beside the experts'
 * work on another, simulated for several numbers of parts (Tutel, arXiv 2206.03382, section 4.2).
 */
#include "predict/overlap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  static const char *const keys[] = {"tokens", "us", NULL};
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
  static const char *const keys[] = {"format",       "points",  "alpha_us",
                                     "us_per_token", "comment", NULL};
  const cJSON *root = json->root, *list = NULL;
  const char *format;
  COPSE_DO(copse_json_expect_object(json, root, NULL, "a table of compute times", keys, err));
  COPSE_DO(copse_json_get_string(json, root, "format", &format, err));
  if (strcmp(format, "copse-compute/1") != 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(root, NULL),
                         "unknown \"format\"; this version reads copse-compute/1");
  if (!copse_json_get(root, "points")) {
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
 * From event to event. Left: work of the oldest dispatch and combine, and time of the part in
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
  if (!(isfinite(p->bytes) && p->bytes > 0) || !(isfinite(p->tokens) && p->tokens > 0))
    return copse_fail(err, COPSE_INVALID, "bytes and tokens must be positive");
  for (int i = 0; i < p->n_degrees; i++)
    if (p->degrees[i] < 1 || p->degrees[i] > COPSE_OVERLAP_MAX_DEGREE)
      return copse_fail(err, COPSE_INVALID, "a degree must be 1 to %d, not %d",
                        COPSE_OVERLAP_MAX_DEGREE, p->degrees[i]);
  return check_compute(&p->compute, err);
}

static copse_status predict(const struct copse_overlap_problem *p, int degree,
                            struct copse_overlap_row *row, struct copse_err *err) {
  struct copse_sim_result result;
  double bytes = p->bytes / degree;
  row->degree = degree;
  COPSE_DO(copse_simulate(p->topology, p->dispatch, p->sim, bytes, &result, NULL, err));
  row->dispatch_us = row->combine_us = result.us;
  if (p->combine) {
    COPSE_DO(copse_simulate(p->topology, p->combine, p->sim, bytes, &result, NULL, err));
    row->combine_us = result.us;
  }
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

static copse_status add_reversed(const struct copse_schedule *s, const struct copse_topology *t,
                                 const struct copse_schedule_flow *flow, int *nodes,
                                 struct copse_sim_dag *dag, struct copse_err *err) {
  for (int p = 0; p < flow->n_paths; p++) {
    const struct copse_schedule_path *path = &flow->paths[p];
    /* the order of an alltoall from dst's side: its right-hand neighbour first */
    struct copse_sim_transfer transfer = {
        .amount = copse_q_to_double(path->weight),
        .order = (flow->src - flow->dst + s->n_ranks) % s->n_ranks};
    for (int i = 0; i < path->n_nodes; i++) {
      nodes[i] = copse_topology_find(t, s->nodes[path->nodes[path->n_nodes - 1 - i]]);
      if (nodes[i] < 0)
        return copse_fail(err, COPSE_INVALID, "the schedule's node '%s' is not in the topology",
                          s->nodes[path->nodes[path->n_nodes - 1 - i]]);
      if (i > 0 && copse_topology_find_link(t, nodes[i - 1], nodes[i]) < 0)
        return copse_fail(err, COPSE_UNSUPPORTED,
                          "the combine takes the dispatch's paths the other way round, and "
                          "there is no link '%s' -> '%s'",
                          t->nodes[nodes[i - 1]].id, t->nodes[nodes[i]].id);
    }
    COPSE_DO(copse_sim_dag_add_path(dag, t, nodes, path->n_nodes, &transfer, NULL, err));
  }
  return COPSE_OK;
}

copse_status copse_overlap_add_combine(const struct copse_schedule *s,
                                       const struct copse_topology *t, struct copse_sim_dag *dag,
                                       struct copse_err *err) {
  size_t longest = 1;
  int *nodes = NULL;
  copse_status status;
  if (s->collective != COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "only an alltoall has a combine");
  if (s->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "a compact schedule must be expanded first");
  if (!s->demand) return copse_sim_dag_of_schedule(s, t, true, dag, err);
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      if ((size_t)s->flows[f].paths[p].n_nodes > longest)
        longest = (size_t)s->flows[f].paths[p].n_nodes;
  COPSE_TRY(copse_calloc(longest, sizeof *nodes, &nodes, err));
  for (int f = 0; f < s->n_flows; f++) COPSE_TRY(add_reversed(s, t, &s->flows[f], nodes, dag, err));
out:
  free(nodes);
  return status;
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
