/*
 * A program of somebody who knows NCCL and not copse; tests/nccl/test_preload.c runs it.
 *
 *   job sum            4 ranks, a thread each: one allreduce
 *   job version        ncclGetVersion
 *   job names LIBRARY  loads the library by name and asks it for every function of NCCL
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nccl/fake_nccl.h"

#define N 4

struct rank {
  pthread_t thread;
  int rank;
  ncclUniqueId id;
  ncclResult_t result;
  float in, out;
};

static void *run(void *context) {
  struct rank *it = context;
  ncclComm_t comm;
  it->result = ncclCommInitRank(&comm, N, it->id, it->rank);
  if (it->result != ncclSuccess) return NULL;
  it->result = ncclAllReduce(&it->in, &it->out, 1, 7, 0, comm, NULL);
  ncclResult_t ended = ncclCommDestroy(comm);
  if (it->result == ncclSuccess) it->result = ended;
  return NULL;
}

static int sum(void) {
  struct rank ranks[N];
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
  for (int r = 0; r < N; r++) {
    ranks[r] = (struct rank){.rank = r, .id = id, .in = (float)(r + 1)};
    if (pthread_create(&ranks[r].thread, NULL, run, &ranks[r]) != 0) return 1;
  }
  for (int r = 0; r < N; r++) {
    pthread_join(ranks[r].thread, NULL);
    printf("rank %d: result %d, sum %g\n", r, ranks[r].result, (double)ranks[r].out);
  }
  printf("AllReduce of the real NCCL: %d\n", fake_nccl_calls("AllReduce"));
  return 0;
}

static int version(void) {
  int number = 0;
  ncclResult_t result = ncclGetVersion(&number);
  printf("result %d, version %d\n", result, number);
  return 0;
}

static int n_missing;

static void ask(void *library, const char *name) {
  Dl_info info;
  void *function = dlsym(library, name);
  if (function && dladdr(function, &info) && strstr(info.dli_fname, "libcopse-nccl")) return;
  printf("no %s\n", name);
  n_missing++;
}

static int names(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
#define ASK(type, missing, name, params, args) \
  ask(library, "nccl" #name);                  \
  ask(library, "pnccl" #name);
  COPSE_NCCL_SERVED(ASK)
  COPSE_NCCL_FORWARDED(ASK)
  COPSE_NCCL_DEVICE_API(ASK)
  int number = 0;
  ncclResult_t (*get_version)(int *) = (ncclResult_t(*)(int *))dlsym(library, "ncclGetVersion");
  ncclResult_t result = get_version ? get_version(&number) : ncclInvalidUsage;
  printf("result %d, version %d, %d missing\n", result, number, n_missing);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "sum") == 0) return sum();
  if (argc == 2 && strcmp(argv[1], "version") == 0) return version();
  if (argc == 3 && strcmp(argv[1], "names") == 0) return names(argv[2]);
  return 2;
}
