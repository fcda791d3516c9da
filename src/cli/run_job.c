#include "cli/run_job.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "runtime/comm/agree.h"

#define LIBRARY "libcopse-mpi.so"
#define SYSTEM_LIBRARY LIBRARY ".0"

typedef copse_status start_function(const char *version, double timeout_seconds, copse_wire *wire,
                                    char *text, size_t size);

/* Beside the program (a build), in lib beside its bin (an installation), or where the system
 * looks. Never closed: MPI doesn't come twice into a process. */
static void *open_library(void) {
  static const char *const places[] = {"/" LIBRARY, "/../lib/" LIBRARY};
  char path[PATH_MAX + 32];
  ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
  while (n > 0 && path[n - 1] != '/') n--;
  for (size_t i = 0; n > 0 && i < sizeof places / sizeof *places; i++) {
    snprintf(path + n - 1, sizeof path - (size_t)n + 1, "%s", places[i]);
    if (access(path, R_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  }
  return dlopen(SYSTEM_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
}

static copse_status find_start(start_function **start, struct copse_err *err) {
  void *library = open_library(), *found = library ? dlsym(library, "copse_mpi_start") : NULL;
  const char *why = found ? "" : dlerror();
  memcpy(start, &found, sizeof found); /* ISO C knows no such cast */
  if (found) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "backend mpi: no MPI here, or copse was built without it (scripts/bootstrap "
                    "installs Open MPI): %s",
                    why ? why : LIBRARY);
}

static void add_rank(const struct copse_job *job, struct copse_err *err) {
  struct copse_err text = COPSE_ERR_INIT;
  (void)copse_fail(&text, err->status, "rank %u: %s", job->rank, err->text);
  *err = text;
}

copse_status copse_job_start(struct copse_job *job, double timeout_seconds, struct copse_err *err) {
  start_function *start;
  copse_wire wire;
  char text[300] = "";
  copse_status status = find_start(&start, err);
  if (status != COPSE_OK) return status;
  status = start(COPSE_VERSION_STRING, timeout_seconds, &wire, text, sizeof text);
  if (status != COPSE_OK) return copse_fail(err, status, "backend mpi: %s", text);
  job->rank = (uint32_t)wire.rank;
  status = copse_transport_new(&wire, timeout_seconds, &job->transport, err);
  if (status != COPSE_OK) add_rank(job, err);
  return status;
}

void copse_job_fail(const struct copse_job *job, struct copse_err *err) {
  if (!job->transport) return;
  (void)copse_transport_fail(job->transport, err);
  add_rank(job, err);
}

void copse_job_end(struct copse_job *job) {
  if (job->transport) copse_transport_free(job->transport);
}

void copse_job_linger(void) {
  static const struct timespec while_others_speak = {1, 0};
  nanosleep(&while_others_speak, NULL);
}

copse_status copse_job_agree(const struct copse_job *job, copse_status mine,
                             const struct copse_plan *plan, struct copse_err *err) {
  if (!job->transport) return mine;
  copse_bootstrap bootstrap;
  struct copse_comm_shape shape;
  copse_transport_shape(job->transport, &bootstrap, &shape);
  return copse_agree(&shape, mine, &plan, plan ? 1 : 0, err);
}

copse_status copse_job_meet(const struct copse_job *job, struct copse_err *err) {
  struct copse_run_result nothing = {0};
  return copse_job_combine(job, &nothing, err);
}

copse_status copse_job_combine(const struct copse_job *job, struct copse_run_result *result,
                               struct copse_err *err) {
  struct copse_run_result *all;
  if (!job->transport) return COPSE_OK;
  uint32_t n = copse_transport_size(job->transport);
  copse_status status = copse_calloc(n, sizeof *all, &all, err);
  if (status != COPSE_OK) return status;
  status = copse_transport_all_gather(job->transport, result, all, sizeof *all);
  if (status != COPSE_OK) status = copse_transport_status(job->transport, err);
  for (uint32_t r = 0; r < n && status == COPSE_OK; r++) {
    if (r == job->rank) continue;
    if (all[r].us > result->us) result->us = all[r].us;
    result->wrong += all[r].wrong;
  }
  free(all);
  return status;
}

/* Open MPI says how many of its processes share a host; others: as if all did. */
uint32_t copse_job_ranks_here(const struct copse_job *job, uint32_t n_ranks) {
  const char *text = job->transport ? getenv("OMPI_COMM_WORLD_LOCAL_SIZE") : NULL;
  long n = text ? strtol(text, NULL, 10) : 0;
  return n > 0 && n < (long)n_ranks ? (uint32_t)n : n_ranks;
}
