#include "nccl/nccl_support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/plan_builder.h"

static char folder[64], log_path[96];

const char *nccl_plan_folder(void) { return folder; }

static void write_plan(copse_collective collective, uint32_t n, uint64_t max_bytes) {
  char path[128];
  int32_t root = collective == COPSE_BROADCAST || collective == COPSE_REDUCE ? 0 : -1;
  struct copse_plan *plan = pb_tree_plan(collective, n, root, PB_OPTIONS_DEFAULT);
  plan->header.max_bytes = max_bytes;
  snprintf(path, sizeof path, "%s/%d-%u.plan", folder, (int)collective, n);
  ck_assert_int_eq(copse_plan_write(plan, path), COPSE_OK);
  pb_free(plan);
}

void nccl_setup(void) {
  strcpy(folder, "/tmp/copse-nccl-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++)
    write_plan((copse_collective)c, N,
               c == COPSE_ALLREDUCE || c == COPSE_ALLTOALL ? 1 << 20 : (uint64_t)1 << 40);
  write_plan(COPSE_ALLREDUCE, 2, (uint64_t)1 << 40);
  snprintf(log_path, sizeof log_path, "%s/log", folder);
  ck_assert_ptr_nonnull(freopen(log_path, "w", stderr));
  setenv("COPSE_DEBUG", "INFO", 1);
  setenv("COPSE_PLAN_DIR", folder, 1);
  unsetenv("COPSE_NCCL_ALLTOALL");
}

void nccl_teardown(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

int nccl_logged(const char *part, const char *other) {
  char line[2048];
  int n = 0;
  FILE *file = fopen(log_path, "r");
  ck_assert_ptr_nonnull(file);
  while (fgets(line, sizeof line, file)) n += strstr(line, part) && strstr(line, other);
  fclose(file);
  return n;
}

struct thread {
  pthread_t thread;
  struct nccl_rank rank;
  void (*work)(struct nccl_rank *);
  const ncclUniqueId *id; /* NULL: makes its communicator itself */
};

static void *run(void *context) {
  struct thread *it = context;
  if (it->id) NCCL_OK(ncclCommInitRank(&it->rank.comm, it->rank.n, *it->id, it->rank.rank));
  it->work(&it->rank);
  if (it->rank.comm) NCCL_OK(ncclCommDestroy(it->rank.comm));
  return NULL;
}

static void run_threads(int n, void (*work)(struct nccl_rank *), void *context,
                        const ncclUniqueId *id) {
  struct thread threads[16];
  for (int r = 0; r < n; r++) {
    threads[r] = (struct thread){.rank = {r, n, NULL, context}, .work = work, .id = id};
    ck_assert_int_eq(pthread_create(&threads[r].thread, NULL, run, &threads[r]), 0);
  }
  for (int r = 0; r < n; r++) pthread_join(threads[r].thread, NULL);
}

void nccl_run(int n, void (*work)(struct nccl_rank *), void *context) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  run_threads(n, work, context, &id);
}

void nccl_run_bare(int n, void (*work)(struct nccl_rank *), void *context) {
  run_threads(n, work, context, NULL);
}
