/* The public API: opaque handles over the modules, errors kept for copse_last_error(); the planner
 * of alltoallv at run time; adaptive pipelining. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "predict/overlap.h"
#include "predict/predict.h"
#include "predict/sizes.h"
#include "schedule/adapt.h"
#include "schedule/demand.h"
#include "schedule/loads.h"
#include "schedule/online/online.h"
#include "schedule/solve/solve.h"
#include "topology/modify.h"
#include "topology/topology.h"
#include "verify/verify.h"

#define MAX_PREDICTED_BYTES 0x1p48 /* as of `copse simulate` */
#define MAX_ALPHA_US 1e9

/* Ends every function here: keeps the text of an error for copse_last_error. */
static copse_status done(copse_status status, const struct copse_err *err) {
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(err);
}

static copse_status reject(const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  (void)copse_fail(&err, COPSE_INVALID, "%s", what);
  return copse_publish_error(&err);
}

static copse_status missing(const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  (void)copse_fail(&err, COPSE_INVALID, "%s is NULL", what);
  return copse_publish_error(&err);
}

static copse_status parse_links(const char *links, struct copse_topology_options *options) {
  options->links = COPSE_LINKS_DEFAULT;
  return !links || copse_link_mode_from_name(links, &options->links)
             ? COPSE_OK
             : reject("links must be nvlink, all or default");
}

copse_status copse_topology_read(const char *path, const char *links, copse_topology **out) {
  struct copse_topology_options options = {0};
  struct copse_err err = COPSE_ERR_INIT;
  if (!path || !out) return missing(path ? "out" : "path");
  *out = NULL;
  COPSE_DO(parse_links(links, &options));
  return done(copse_topology_load(path, &options, out, &err), &err);
}

static copse_status find_named(const char *name, const char *folder, char **path,
                               struct copse_err *err) {
  const char *const folders[] = {folder, NULL};
  COPSE_DO(copse_catalogue_path(name, folders, path, err));
  if (*path) return COPSE_OK;
  return copse_fail(err, COPSE_INVALID, "%s: no topology of this name in %s", name, folder);
}

copse_status copse_topology_named(const char *name, const char *folder, const char *links,
                                  copse_topology **out) {
  struct copse_topology_options options = {0};
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_free_at) char *path = NULL;
  if (!name || !folder || !out) return missing(!name ? "name" : folder ? "out" : "folder");
  *out = NULL;
  COPSE_DO(parse_links(links, &options));
  copse_status status = find_named(name, folder, &path, &err);
  if (status == COPSE_OK) status = copse_topology_load(path, &options, out, &err);
  return done(status, &err);
}

static copse_status list_names(const char *folder, char **text, struct copse_err *err) {
  COPSE_AT_END(copse_catalogue_free) struct copse_catalogue all = {0};
  COPSE_AT_END(copse_text_free) struct copse_text names = {0};
  const char *const folders[] = {folder, NULL};
  size_t size;
  COPSE_DO(copse_catalogue_list(folders, &all, err));
  copse_text_add(&names, "%s", "");
  for (int i = 0; i < all.n; i++) copse_text_add(&names, "%s\n", all.entries[i].name);
  return copse_text_take(&names, text, &size, err);
}

copse_status copse_topology_names(const char *folder, char **text) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!folder || !text) return missing(folder ? "text" : "folder");
  *text = NULL;
  return done(list_names(folder, text, &err), &err);
}

copse_status copse_topology_generate(const char *line, copse_topology **out) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!line || !out) return missing(line ? "out" : "line");
  *out = NULL;
  return done(copse_topology_synthetic(line, NULL, out, &err), &err);
}

copse_status copse_topology_json(const copse_topology *topology, char **text) {
  struct copse_err err = COPSE_ERR_INIT;
  size_t size;
  if (!topology || !text) return missing(topology ? "text" : "topology");
  *text = NULL;
  return done(copse_topology_to_json(topology, text, &size, &err), &err);
}

void copse_string_free(char *text) { free(text); }

int copse_topology_ranks(const copse_topology *topology) { return topology->n_ranks; }

static copse_status take_faults(const copse_fault_at *faults, int n, struct copse_fault **out,
                                struct copse_err *err) {
  COPSE_DO(copse_calloc((size_t)n, sizeof **out, out, err));
  for (int f = 0; f < n; f++) {
    struct copse_fault *fault = &(*out)[f];
    if (!faults[f].what) return copse_fail(err, COPSE_INVALID, "faults[%d].what is NULL", f);
    fault->what = faults[f].what;
    if (faults[f].left_den <= 0 || faults[f].left_num < 0 ||
        faults[f].left_num > faults[f].left_den)
      return copse_fail(err, COPSE_INVALID, "what is left of %.80s must be a fraction from 0 to 1",
                        fault->what);
    COPSE_DO(copse_q_make(faults[f].left_num, faults[f].left_den, &fault->left, err));
  }
  return COPSE_OK;
}

copse_status copse_topology_change(const copse_topology *topology, const copse_fault_at *faults,
                                   int n_faults, const char *ranks, int exclude_others,
                                   copse_topology **out) {
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_free_at) struct copse_fault *parts = NULL;
  if (!topology || !out) return missing(topology ? "out" : "topology");
  *out = NULL;
  if (n_faults < 0 || (n_faults > 0 && !faults)) return reject("n_faults without faults");
  copse_status status = take_faults(faults, n_faults, &parts, &err);
  const struct copse_change change = {parts, n_faults, ranks, exclude_others != 0};
  if (status == COPSE_OK)
    status = copse_topology_changed(topology, topology->name, &change, out, &err);
  return done(status, &err);
}

/* ---- solving ------------------------------------------------------------------------------ */

static copse_status solve_for_size(const copse_topology *topology, const copse_request *request,
                                   const struct copse_solve_options *options, copse_schedule **out,
                                   struct copse_err *err) {
  struct copse_predict_options predict = copse_predict_defaults;
  struct copse_size_answer answer = {0};
  struct copse_solve_seconds seconds;
  copse_predict_alpha(&predict, request->alpha_us);
  const struct copse_size_question question = {
      .solve = options,
      .predict = &predict,
      .bytes = request->objective_bytes,
      .tolerance = request->tolerance_den > 0 ? options->tolerance : COPSE_NEAR_OPTIMUM,
      .work = COPSE_SIZES_WORK(topology->n_ranks)};
  COPSE_DO(copse_solve_for_size(topology, &question, &answer, &seconds, err));
  copse_status status = copse_bound_state(topology, answer.schedule, request->objective_bytes,
                                          request->alpha_us, err);
  if (status == COPSE_OK)
    *out = answer.schedule;
  else
    copse_schedule_free(answer.schedule);
  return status;
}

static copse_status check_request(const copse_request *r, struct copse_err *err) {
  if ((int)r->collective < COPSE_ALLGATHER || (int)r->collective > COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "no such collective");
  if (r->tolerance_den < 0 || (r->tolerance_den > 0 && r->tolerance_num < 0))
    return copse_fail(err, COPSE_INVALID, "the tolerance must be a fraction of 0 or more");
  if (r->objective_bytes != 0 &&
      !(r->objective_bytes >= 1 && r->objective_bytes <= MAX_PREDICTED_BYTES))
    return copse_fail(err, COPSE_INVALID, "objective_bytes must be 0, or from 1 to 2^48");
  if (!(r->alpha_us >= 0 && r->alpha_us <= MAX_ALPHA_US))
    return copse_fail(err, COPSE_INVALID, "alpha_us must be from 0 to 10^9");
  return COPSE_OK;
}

/* Refuses with a line on options of the command ("--in-network is .."), said in the names of
 * copse_request. */
static copse_status refuse_clash(const char *line, struct copse_err *err) {
  static const char *const other[][2] = {{"--routes fabric", "on_routes"},
                                         {"--objective", "objective_bytes"}};
  char text[200];
  size_t n = 0;
  bool name = false;
  for (const char *p = line; *p && n + sizeof "objective_bytes" < sizeof text; p++) {
    bool begins = strncmp(p, "--", 2) == 0;
    size_t i = begins ? 0 : 2;
    while (i < 2 && strncmp(p, other[i][0], strlen(other[i][0])) != 0) i++;
    name = begins || (name && (*p == '-' || (*p >= 'a' && *p <= 'z')));
    if (i < 2) {
      memcpy(text + n, other[i][1], strlen(other[i][1]));
      n += strlen(other[i][1]);
      p += strlen(other[i][0]) - 1;
    } else if (begins) {
      p++;
    } else {
      text[n++] = name && *p == '-' ? '_' : *p;
    }
  }
  text[n] = '\0';
  return copse_fail(err, COPSE_INVALID, "%s", text);
}

static copse_status check_demand(const copse_topology *topology, const int64_t *bytes,
                                 struct copse_err *err) {
  int64_t most;
  int n = topology->n_ranks;
  for (int i = 0; bytes && i < n * n; i++)
    if (bytes[i] < 0)
      return copse_fail(err, COPSE_INVALID, "demand from rank %d to rank %d: %" PRId64 " bytes",
                        i / n, i % n, bytes[i]);
  if (!bytes) return COPSE_OK;
  COPSE_DO(copse_demand_total(bytes, n, &most, err));
  return most > 0 ? COPSE_OK : copse_fail(err, COPSE_INVALID, "the demand is 0 everywhere");
}

static copse_status solve(const copse_topology *topology, const copse_request *r,
                          copse_schedule **out, struct copse_err *err) {
  struct copse_solve_seconds seconds;
  const struct copse_progress progress = {.report = r->progress, .ctx = r->progress_ctx};
  struct copse_solve_options options = {.collective = r->collective,
                                        .root = r->root,
                                        .k = r->k,
                                        .demand = r->demand,
                                        .no_forward = r->no_forward,
                                        .on_routes = r->on_routes,
                                        .in_network = r->in_network,
                                        .label = topology->name,
                                        .progress = &progress};
  COPSE_DO(check_request(r, err));
  const char *clash = copse_solve_clash(&options, r->tolerance_den > 0, r->objective_bytes > 0);
  if (clash) return refuse_clash(clash, err);
  COPSE_DO(check_demand(topology, r->demand, err));
  if (r->tolerance_den > 0)
    COPSE_DO(copse_q_make(r->tolerance_num, r->tolerance_den, &options.tolerance, err));
  return r->objective_bytes > 0 ? solve_for_size(topology, r, &options, out, err)
                                : copse_solve_schedule(topology, &options, out, &seconds, err);
}

copse_status copse_solve_request(const copse_topology *topology, const copse_request *request,
                                 copse_schedule **out) {
  struct copse_err err = COPSE_ERR_INIT;
  copse_request known = {0};
  if (!topology || !request || !out) return reject("a NULL argument");
  *out = NULL;
  if (request->size < sizeof request->size || request->size > sizeof known)
    return reject("the request's size is none of this version: begin with COPSE_REQUEST_INIT");
  memcpy(&known, request, request->size);
  return done(solve(topology, &known, out, &err), &err);
}

copse_status copse_solve(const copse_topology *topology, copse_collective collective, int root,
                         int64_t k, copse_schedule **out) {
  copse_request request = COPSE_REQUEST_INIT;
  if (!topology || !out) return missing(topology ? "out" : "topology");
  request.collective = collective;
  request.root = root;
  request.k = k;
  return copse_solve_request(topology, &request, out);
}

copse_status copse_schedule_read(const char *path, copse_schedule **out) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!path || !out) return missing(path ? "out" : "path");
  return done(copse_schedule_load(path, out, &err), &err);
}

copse_status copse_schedule_write(const copse_schedule *schedule, const char *path) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!schedule || !path) return missing(schedule ? "path" : "schedule");
  return done(copse_file_print(path, copse_schedule_print, schedule, &err), &err);
}

copse_status copse_schedule_verify(const copse_schedule *schedule, const copse_topology *topology,
                                   int *optimal) {
  struct copse_verify_report report;
  struct copse_err err = COPSE_ERR_INIT;
  if (!schedule || !topology) return missing(schedule ? "topology" : "schedule");
  copse_status status = copse_verify_schedule(schedule, topology, "schedule", &report, &err);
  if (status != COPSE_OK) return copse_publish_error(&err);
  if (optimal)
    *optimal = report.optimal ? 1 : report.phases_optimal ? 2 : report.forests_optimal ? 3 : 0;
  return COPSE_OK;
}

/* Expands a schedule of the caller's own, from the JSON of another, with all trees or flows
 * listed. */
static copse_status expand_copy(const copse_schedule *schedule, struct copse_schedule **out,
                                struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *text = NULL;
  size_t size;
  COPSE_DO(copse_schedule_to_json(schedule, &text, &size, err));
  COPSE_DO(copse_schedule_parse("schedule", text, size, out, err));
  return copse_schedule_expand(*out, err);
}

copse_status copse_schedule_json(const copse_schedule *schedule, int expand, char **text) {
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *copy = NULL;
  copse_status status = COPSE_OK;
  size_t size;
  if (!schedule || !text) return missing(schedule ? "text" : "schedule");
  *text = NULL;
  if (expand && schedule->n_rotations > 0) status = expand_copy(schedule, &copy, &err);
  if (status == COPSE_OK)
    status = copse_schedule_to_json(copy ? copy : schedule, text, &size, &err);
  return done(status, &err);
}

static copse_status link_loads(const copse_schedule *schedule, const copse_topology *topology,
                               copse_link_load *out, int64_t n, struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *copy = NULL;
  COPSE_AT_END(copse_free_at) struct copse_q *loads = NULL;
  struct copse_verify_report report;
  struct copse_q time;
  COPSE_DO(copse_verify_schedule(schedule, topology, "schedule", &report, err));
  COPSE_DO(expand_copy(schedule, &copy, err));
  COPSE_DO(copse_schedule_place(copy, topology, err));
  COPSE_DO(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  COPSE_DO(copse_schedule_loads(topology, copy, loads, err));
  for (int i = 0; i < n; i++) {
    const struct copse_link *l = &topology->links[i];
    COPSE_DO(copse_q_div(loads[i], l->bandwidth, &time, err));
    out[i] = (copse_link_load){topology->nodes[l->src].id,
                               topology->nodes[l->dst].id,
                               loads[i].num,
                               loads[i].den,
                               time.num,
                               time.den};
  }
  return COPSE_OK;
}

copse_status copse_schedule_link_loads(const copse_schedule *schedule,
                                       const copse_topology *topology, copse_link_load *out,
                                       int64_t capacity, int64_t *n) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!schedule || !topology || !n || (!out && capacity > 0)) return reject("a NULL argument");
  if (capacity < 0) return reject("capacity must be 0 or more");
  *n = topology->n_links;
  if (capacity == 0) return COPSE_OK;
  return done(link_loads(schedule, topology, out, capacity < *n ? capacity : *n, &err), &err);
}

void copse_schedule_time(const copse_schedule *schedule, int64_t *num, int64_t *den) {
  *num = schedule->time_per_GB.num;
  *den = schedule->time_per_GB.den;
}

copse_status copse_lower(const copse_schedule *schedule, int max_workers, copse_plan **out) {
  struct copse_lower_options options = {.max_workers = max_workers, .instances = COPSE_LOWER_AUTO};
  struct copse_err err = COPSE_ERR_INIT;
  if (!schedule || !out) return missing(schedule ? "out" : "schedule");
  return done(copse_lower_schedule(schedule, &options, out, &err), &err);
}

copse_status copse_plan_load(const char *path, copse_plan **out) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!path || !out) return missing(path ? "out" : "path");
  return done(copse_plan_open(path, out, &err), &err);
}

copse_status copse_plan_write(const copse_plan *plan, const char *path) {
  struct copse_err err = COPSE_ERR_INIT;
  char *bytes = NULL;
  size_t size = 0;
  if (!plan || !path) return missing(plan ? "path" : "plan");
  copse_status status = copse_plan_encode(plan, &bytes, &size, &err);
  if (status == COPSE_OK) status = copse_file_write(path, bytes, size, &err);
  free(bytes);
  return done(status, &err);
}

copse_status copse_plan_check(const copse_plan *plan) {
  struct copse_proof_report report;
  struct copse_err err = COPSE_ERR_INIT;
  if (!plan) return missing("plan");
  return done(copse_prove_plan(plan, "plan", &report, &err), &err);
}

static copse_status predict_plan(const copse_plan *plan, const copse_topology *topology,
                                 const double *bytes, int n, double *us, struct copse_err *err) {
  COPSE_AT_END(copse_prediction_free) struct copse_prediction it = {0};
  struct copse_foreign what = {0};
  copse_status status = copse_predict_plan("plan", topology, plan, NULL, &it, &what, err);
  free(what.demand);
  COPSE_DO(status);
  return copse_predictions_time(topology, &it, 1, bytes, n, false, us, err);
}

copse_status copse_plan_predict(const copse_plan *plan, const copse_topology *topology,
                                const double *bytes, int n, double *us) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!plan || !topology || !bytes || !us) return reject("a NULL argument");
  if (n < 1) return reject("n must be 1 or more");
  for (int i = 0; i < n; i++)
    if (!(bytes[i] > 0 && bytes[i] <= MAX_PREDICTED_BYTES))
      return reject("bytes must be more than 0 and at most 2^48");
  return done(predict_plan(plan, topology, bytes, n, us, &err), &err);
}

struct copse_alltoallv {
  struct copse_planner *planner;
  int n_ranks;
  struct copse_online_transfer *hops; /* grows to the longest list asked for, then stays */
  size_t capacity;
};

copse_status copse_alltoallv_create(const copse_topology *topology, const copse_schedule *offline,
                                    copse_alltoallv **out) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_alltoallv *a = NULL;
  copse_status status;
  if (!topology || !out) return missing(topology ? "out" : "topology");
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *a, &a, &err));
  a->n_ranks = topology->n_ranks;
  COPSE_TRY(copse_planner_create(topology, offline, &a->planner, &err));
  *out = a;
  return COPSE_OK;
out:
  free(a);
  return copse_publish_error(&err);
}

copse_status copse_alltoallv_plan(copse_alltoallv *planner, const int64_t *bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!planner || !bytes) return missing(planner ? "bytes" : "planner");
  return done(copse_planner_plan(planner->planner, bytes, &err), &err);
}

void copse_alltoallv_bound(const copse_alltoallv *planner, double *bound_seconds,
                           double *busiest_seconds) {
  struct copse_online_bound bound;
  copse_planner_bound(planner->planner, &bound);
  if (bound_seconds) *bound_seconds = bound.seconds;
  if (busiest_seconds) *busiest_seconds = copse_planner_busiest_seconds(planner->planner);
}

void copse_alltoallv_predicted(const copse_alltoallv *planner, double *bound_seconds,
                               double *predicted_seconds) {
  struct copse_online_bound bound;
  copse_planner_bound(planner->planner, &bound);
  if (bound_seconds) *bound_seconds = bound.with_latency;
  if (predicted_seconds) *predicted_seconds = copse_planner_predicted_seconds(planner->planner);
}

static copse_status list_hops(copse_alltoallv *a, int rank, int which, copse_transfer *out,
                              int64_t capacity, int64_t *n) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!a || !n || (!out && capacity > 0)) return reject("a NULL argument");
  if (rank < 0 || rank >= a->n_ranks || capacity < 0)
    return reject("rank or capacity out of range");
  copse_status status = COPSE_GROW(a->hops, a->capacity, (size_t)capacity, &err);
  if (status == COPSE_OK)
    status = copse_planner_transfers(a->planner, rank, which, a->hops, capacity, n, &err);
  if (status != COPSE_OK) return copse_publish_error(&err);
  for (int64_t i = 0; i < *n && i < capacity; i++) {
    const struct copse_online_transfer *h = &a->hops[i];
    out[i] = (copse_transfer){h->from,       h->to,           h->piece.origin, h->piece.final,
                              h->piece.step, h->piece.offset, h->piece.bytes};
  }
  return COPSE_OK;
}

copse_status copse_alltoallv_sends(copse_alltoallv *planner, int rank, copse_transfer *out,
                                   int64_t capacity, int64_t *n) {
  return list_hops(planner, rank, COPSE_ONLINE_SENDS, out, capacity, n);
}

copse_status copse_alltoallv_receives(copse_alltoallv *planner, int rank, copse_transfer *out,
                                      int64_t capacity, int64_t *n) {
  return list_hops(planner, rank, COPSE_ONLINE_RECEIVES, out, capacity, n);
}

void copse_alltoallv_free(copse_alltoallv *planner) {
  if (!planner) return;
  copse_planner_release(planner->planner);
  free(planner->hops);
  free(planner);
}

static void free_both(struct copse_prediction (*both)[2]) { copse_predictions_free(*both, 2); }

static copse_status predict(const copse_topology *topology, const copse_schedule *alltoall,
                            const copse_moe_layer *layer, struct copse_overlap_row *rows, int *best,
                            struct copse_err *err) {
  static const int degrees[] = {1, 2, 4, 8, 16, 32, 64};
  COPSE_AT_END(free_both) struct copse_prediction both[2] = {{0}};
  double share;
  int n;
  if (alltoall->collective != COPSE_ALLTOALL || alltoall->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "the schedule must be an alltoall's, and not compact");
  COPSE_DO(copse_overlap_predict(alltoall, topology, NULL, both, &n, err));
  COPSE_DO(copse_overlap_busiest_share(alltoall, &share, err));
  struct copse_overlap_problem problem = {
      .topology = topology,
      .dispatch = &both[0],
      .combine = n > 1 ? &both[1] : NULL,
      .bytes = layer->bytes,
      .combine_bytes = layer->bytes * share,
      .tokens = layer->tokens * share,
      .compute = {.alpha_us = layer->alpha_us, .us_per_token = layer->us_per_token},
      .network = COPSE_OVERLAP_ONE,
      .degrees = degrees,
      .n_degrees = (int)(sizeof degrees / sizeof *degrees)};
  return copse_overlap_choose(&problem, rows, best, err);
}

copse_status copse_overlap_degree(const copse_topology *topology, const copse_schedule *alltoall,
                                  const copse_moe_layer *layer, int *degree, double *step_us,
                                  double *plain_us) {
  struct copse_overlap_row rows[8];
  struct copse_err err = COPSE_ERR_INIT;
  copse_status status;
  int best;
  if (!topology || !alltoall || !layer || !degree)
    status = copse_fail(&err, COPSE_INVALID, "a NULL argument");
  else
    status = predict(topology, alltoall, layer, rows, &best, &err);
  if (status != COPSE_OK) return copse_publish_error(&err);
  *degree = rows[best].degree;
  if (step_us) *step_us = rows[best].total_us;
  if (plain_us) *plain_us = rows[0].total_us;
  return COPSE_OK;
}
