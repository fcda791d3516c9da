/* The public API: opaque handles over the modules, errors kept for copse_last_error(). */
#include <stdlib.h>
#include <string.h>

#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "topology/topology.h"

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

copse_status copse_topology_read(const char *path, const char *links, copse_topology **out) {
  struct copse_topology_options options = {.links = COPSE_LINKS_DEFAULT};
  struct copse_err err = COPSE_ERR_INIT;
  if (!path || !out) return missing(path ? "out" : "path");
  *out = NULL;
  if (links && strcmp(links, "nvlink") == 0)
    options.links = COPSE_LINKS_NVLINK;
  else if (links && strcmp(links, "all") == 0)
    options.links = COPSE_LINKS_ALL;
  else if (links && strcmp(links, "default") != 0)
    return reject("links must be nvlink, all or default");
  copse_status status = copse_topology_load(path, &options, out, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

int copse_topology_ranks(const copse_topology *topology) { return topology->n_ranks; }

void copse_topology_free(copse_topology *topology) { copse_topology_release(topology); }

copse_status copse_solve(const copse_topology *topology, copse_collective collective, int root,
                         int64_t k, copse_schedule **out) {
  struct copse_solve_seconds seconds;
  struct copse_err err = COPSE_ERR_INIT;
  if (!topology || !out) return missing(topology ? "out" : "topology");
  *out = NULL;
  if ((int)collective < COPSE_ALLGATHER || (int)collective > COPSE_ALLTOALL)
    return reject("no such collective");
  struct copse_solve_options options = {
      .collective = collective, .root = root, .k = k, .label = topology->name};
  copse_status status = copse_solve_schedule(topology, &options, out, &seconds, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

copse_status copse_schedule_read(const char *path, copse_schedule **out) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!path || !out) return missing(path ? "out" : "path");
  copse_status status = copse_schedule_load(path, out, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

/* The tail of both writers: the file, then the buffer's end. */
static copse_status write_and_free(copse_status status, char *bytes, size_t size, const char *path,
                                   struct copse_err *err) {
  if (status == COPSE_OK) status = copse_file_write(path, bytes, size, err);
  free(bytes);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(err);
}

copse_status copse_schedule_write(const copse_schedule *schedule, const char *path) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size = 0;
  if (!schedule || !path) return missing(schedule ? "path" : "schedule");
  copse_status status = copse_schedule_to_json(schedule, &text, &size, &err);
  return write_and_free(status, text, size, path, &err);
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

void copse_schedule_time(const copse_schedule *schedule, int64_t *num, int64_t *den) {
  *num = schedule->time_per_GB.num;
  *den = schedule->time_per_GB.den;
}

void copse_schedule_free(copse_schedule *schedule) { copse_schedule_release(schedule); }

copse_status copse_lower(const copse_schedule *schedule, int max_workers, copse_plan **out) {
  struct copse_lower_options options = {.max_workers = max_workers, .instances = COPSE_LOWER_AUTO};
  struct copse_err err = COPSE_ERR_INIT;
  if (!schedule || !out) return missing(schedule ? "out" : "schedule");
  copse_status status = copse_lower_schedule(schedule, &options, out, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

copse_status copse_plan_load(const char *path, copse_plan **out) {
  struct copse_err err = COPSE_ERR_INIT;
  if (!path || !out) return missing(path ? "out" : "path");
  copse_status status = copse_plan_open(path, out, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

copse_status copse_plan_write(const copse_plan *plan, const char *path) {
  struct copse_err err = COPSE_ERR_INIT;
  char *bytes = NULL;
  size_t size = 0;
  if (!plan || !path) return missing(plan ? "path" : "plan");
  copse_status status = copse_plan_encode(plan, &bytes, &size, &err);
  return write_and_free(status, bytes, size, path, &err);
}

copse_status copse_plan_check(const copse_plan *plan) {
  struct copse_proof_report report;
  struct copse_err err = COPSE_ERR_INIT;
  if (!plan) return missing("plan");
  copse_status status = copse_prove_plan(plan, "plan", &report, &err);
  return status == COPSE_OK ? COPSE_OK : copse_publish_error(&err);
}

void copse_plan_free(copse_plan *plan) { copse_plan_release(plan); }
