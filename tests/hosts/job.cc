#include "hosts/job.h"

#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include "emulation/emulation.h"
#include "runtime/internode/internode.h"

extern "C" {
#include "dropin/join.h"
#include "support/support.h"
}

/* ---- the parent's part ------------------------------------------------------------------------- */

static char folder[64];

static void write_plan(struct copse_plan *plan, const char *name, uint64_t max_bytes) {
  char path[160];
  plan->header.max_bytes = max_bytes;
  snprintf(path, sizeof path, "%s/%u-%s.plan", folder, plan->header.n_ranks, name);
  ck_assert_int_eq(copse_plan_write(plan, path), COPSE_OK);
}

/* Lowered from a schedule, or built by hand: both kinds come over hosts. */
static void write_plans(int n) {
  static const uint64_t any = (uint64_t)1 << 40;
  struct copse_lower_options options = {};
  options.chunk_bytes = 512;
  options.max_workers = 3;
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
    const copse_collective collective = (copse_collective)c;
    const uint64_t most = collective == COPSE_ALLREDUCE  ? JOB_ALLREDUCE_BYTES
                          : collective == COPSE_ALLTOALL ? JOB_ALLTOALL_BYTES
                                                         : any;
    if (collective == COPSE_ALLGATHER || collective == COPSE_ALLTOALL) {
      struct copse_plan *plan = process_lower(collective, n, &options);
      write_plan(plan, copse_collective_name(collective), most);
      copse_plan_free(plan);
      continue;
    }
    struct pb_options trees = PROCESS_TREES;
    if (n > 4) trees.n_trees = 1;
    struct copse_plan *plan =
        pb_tree_plan(collective, (uint32_t)n, copse_collective_rooted(collective) ? 0 : -1, trees);
    write_plan(plan, copse_collective_name(collective), most);
    pb_free(plan);
  }
  options.low_latency = true;
  options.max_bytes = JOB_LOW_LATENCY_BYTES;
  struct copse_plan *plan = process_lower(COPSE_ALLREDUCE, n, &options);
  write_plan(plan, "ll", JOB_LOW_LATENCY_BYTES);
  copse_plan_free(plan);
}

void job_run(const char *mode) {
  const int n = (int)strcspn(mode, ".");
  char command[96];
  strcpy(folder, "/tmp/copse-job-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  /* and for communicators that are split off: of two, and of half the ranks */
  write_plans(2);
  if (n / 2 > 2) write_plans(n / 2);
  if (n != 2) write_plans(n);
  setenv("COPSE_PLAN_DIR", folder, 1);
  setenv("JOB_FOLDER", folder, 1);
  setenv("COPSE_DEBUG", "INFO", 1);
  job_nccl_begin();
  processes_run(ALL_COLLECTIVES, mode, n);
  job_nccl_end();
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

/* ---- a rank's log --------------------------------------------------------------------------------- */

static char log_path[96];
static int words = 2; /* where this process's own errors go */

int job_logged(const char *part, const char *other) {
  char line[2048];
  int n = 0;
  FILE *file = fopen(log_path, "r");
  if (!file) job_fail(__FILE__, __LINE__, "no %s", log_path);
  while (fgets(line, sizeof line, file)) n += strstr(line, part) && strstr(line, other);
  fclose(file);
  return n;
}

void job_fail(const char *file, int line, const char *format, ...) {
  char text[1 << 14];
  va_list arguments;
  dprintf(words, "%s:%d: ", file, line);
  va_start(arguments, format);
  vdprintf(words, format, arguments);
  va_end(arguments);
  FILE *log = *log_path ? fopen(log_path, "r") : NULL;
  if (log && fseek(log, -(long)sizeof text + 1, SEEK_END) != 0) rewind(log);
  size_t n = log ? fread(text, 1, sizeof text - 1, log) : 0;
  dprintf(words, "\n--- %s:\n%.*s---\n", log_path, (int)n, text);
  abort();
}

/* ---- a rank ---------------------------------------------------------------------------------------- */

/* The host of the log's line is the mode's too. */
static uint64_t own_host;
extern "C" {
void __real_copse_nccl_record_fill(struct copse_nccl_record *mine, const char *plans, int n_ranks,
                                   int device, struct copse_err *err);
void __wrap_copse_nccl_record_fill(struct copse_nccl_record *mine, const char *plans, int n_ranks,
                                   int device, struct copse_err *err);
void __wrap_copse_nccl_record_fill(struct copse_nccl_record *mine, const char *plans, int n_ranks,
                                   int device, struct copse_err *err) {
  __real_copse_nccl_record_fill(mine, plans, n_ranks, device, err);
  mine->host = own_host;
}
}

char job_host(const struct job *job, int rank) { return job->mode[rank]; }

void job_meet(struct job *job) {
  char word = 0, all[MAX_PROCESSES];
  JOB_ASSERT(meeting_all_gather(&job->meeting, &word, all, 1) == COPSE_OK, "no meeting");
}

ncclComm_t job_comm(struct job *job) {
  ncclUniqueId id, all[MAX_PROCESSES];
  ncclComm_t comm;
  memset(&id, 0, sizeof id);
  if (job->rank == 0) JOB_NCCL(ncclGetUniqueId(&id));
  JOB_ASSERT(meeting_all_gather(&job->meeting, &id, all, sizeof id) == COPSE_OK, "no meeting");
  JOB_NCCL(ncclCommInitRank(&comm, job->n, all[0], job->rank));
  return comm;
}

static void open_log(int rank) {
  snprintf(log_path, sizeof log_path, "%s/log.%d", getenv("JOB_FOLDER"), rank);
  words = dup(2);
  int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  JOB_ASSERT(words >= 0 && log >= 0 && dup2(log, 2) == 2, "no %s", log_path);
  close(log);
}

/* Room for all blocks of the plans. */
void job_begin(struct job *job, struct meeting meeting, const char *mode) {
  copse_emulated_config config = copse_emulated_defaults();
  bool seen[10] = {};
  memset(job, 0, sizeof *job);
  job->meeting = meeting;
  job->mode = mode;
  job->rank = meeting.rank;
  job->n = meeting.n;
  open_log(job->rank);
  for (int r = 0; r < job->n; r++) {
    job->n_hosts += !seen[mode[r] - '0'];
    seen[mode[r] - '0'] = true;
  }
  setenv("COPSE_SEVERAL_HOSTS", "1", 1);
  own_host = copse_cuda_host = 1 + (uint64_t)(mode[job->rank] - '0');
  config.devices = 2;
  config.multiprocessors = 80;
  config.memory = (size_t)2 << 30;
  copse_emulated_configure(&config);
  copse_cuda_threads = job->n > 4 ? 1 : 2;
  copse_cuda_staging_bytes = 2048;
  copse_cuda_leave_seconds = 60; /* nothing is kept, and so nothing leaks */
  job->device = job->rank % 2;
  JOB_CUDA(cudaSetDevice(job->device));
  JOB_CUDA(cudaStreamCreateWithFlags(&job->stream, cudaStreamNonBlocking));
  job->world = job_comm(job);
}

void job_end(struct job *job) {
  int device = -1;
  if (job->world) JOB_NCCL(ncclCommDestroy(job->world));
  JOB_CUDA(cudaStreamDestroy(job->stream));
  JOB_CUDA(cudaGetDevice(&device));
  JOB_ASSERT(device == job->device, "device %d is current, not %d", device, job->device);
  JOB_ASSERT(job_nccl_alive() == 0, "%d communicators of NCCL are left", job_nccl_alive());
  JOB_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  JOB_ASSERT(copse_emulated_leaks() == 0, "something leaks");
  job_nccl_free();
}
