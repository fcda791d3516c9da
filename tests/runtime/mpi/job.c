/*
 * A job of one process a rank, for test_mpi.c under mpirun: `job MODE FOLDER...`, folders of
 * plans. Every process checks its own rank; what is wrong is one line and exit status 1.
 * COPSE_JOB_WIRE=ucx: over UCX, with MPI for nothing but its bootstrap.
 */
#include "copse/mpi.h"
#ifdef COPSE_HAVE_UCX
#include "copse/ucx.h"
#endif

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/executor.h"
#include "runtime/interpreter/expected.h"
#include "support/comm_support.h"

static int rank, n;
static long n_calls;

static void fail(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  printf("job: rank %d: ", rank);
  vprintf(fmt, ap);
  printf("\n");
  fflush(stdout);
  va_end(ap);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

#define OK(call)                                                                                  \
  do {                                                                                            \
    copse_status ok_ = (call);                                                                    \
    if (ok_ != COPSE_OK) fail("%s: %s: %s", #call, copse_status_string(ok_), copse_last_error()); \
  } while (0)

static copse_status gather_by_mpi(void *context, const void *mine, void *all, size_t bytes) {
  int code =
      MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm *)context);
  return code == MPI_SUCCESS ? COPSE_OK : COPSE_DEVICE;
}

static copse_status init_comm(copse_comm **comm, MPI_Comm mpi) {
  const char *wire = getenv("COPSE_JOB_WIRE");
  if (!wire) return copse_comm_init_mpi(comm, mpi);
  const copse_bootstrap bootstrap = {gather_by_mpi, &mpi};
  int own, all;
  MPI_Comm_rank(mpi, &own);
  MPI_Comm_size(mpi, &all);
#ifdef COPSE_HAVE_UCX
  return copse_comm_init_ucx(comm, all, own, &bootstrap);
#else
  fail("%s: not in this build (%p, rank %d of %d)", wire, (const void *)&bootstrap, own, all);
  return COPSE_UNSUPPORTED;
#endif
}

static void new_buffers(const struct copse_data *data, struct copse_buffers *buffers, int some) {
  uint64_t bytes = data->n_ranks * data->count * copse_type_bytes(data->type);
  OK(copse_buffers_new_some(data->n_ranks, some ? (uint32_t)rank : 0, some ? 1 : data->n_ranks,
                            bytes, bytes, buffers, NULL));
}

static void check_exact(copse_comm *comm, const struct copse_data *data, bool in_place) {
  struct copse_buffers buffers;
  new_buffers(data, &buffers, 1);
  copse_buffers_fill(&buffers, data, in_place);
  OK(comm_call(comm, data, buffers.inputs[rank], buffers.outputs[rank]));
  uint64_t wrong = copse_buffers_count_wrong(&buffers);
  if (wrong > 0)
    fail("%s %s %s, count %llu%s: %llu wrong", copse_collective_name(data->collective),
         copse_type_name(data->type), copse_redop_name(data->redop),
         (unsigned long long)data->count, in_place ? ", in place" : "", (unsigned long long)wrong);
  copse_buffers_free(&buffers);
  n_calls++;
}

/* Data whose sums are rounded: the result depends on the order, and must be the cpu backend's. */
static void check_bits(copse_comm *comm, const struct copse_data *data) {
  struct copse_buffers all;
  struct copse_exec *exec;
  const copse_plan *plan;
  uint32_t seed = 1;
  OK(copse_comm_find_plan(comm, data->collective, data->root, data->count, data->type, &plan));
  new_buffers(data, &all, 0);
  copse_buffers_fill(&all, data, false);
  uint64_t in = plan->header.input_blocks * data->count;
  uint64_t out = plan->header.output_blocks * data->count * sizeof(float);
  for (int r = 0; r < n; r++)
    for (uint64_t i = 0; i < in; i++) {
      seed = seed * 1664525u + 1013904223u;
      ((float *)all.inputs[r])[i] = (float)(seed >> 8) / 1000 - 8000;
    }
  float *mine = calloc(1, out);
  if (!mine) fail("no memory");
  OK(comm_call(comm, data, all.inputs[rank], mine));
  const struct copse_launch launch = {.count = data->count,
                                      .type = data->type,
                                      .redop = data->redop,
                                      .inputs = all.inputs,
                                      .outputs = all.outputs};
  OK(copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, NULL));
  OK(copse_exec_run(exec, &launch, NULL));
  if (copse_data_is_promised(data, (uint32_t)rank) && memcmp(mine, all.outputs[rank], out) != 0)
    fail("%s: other bits than the cpu backend's", copse_collective_name(data->collective));
  copse_exec_free(exec);
  copse_buffers_free(&all);
  free(mine);
  n_calls++;
}

static void check_uneven(copse_comm *comm) {
  uint64_t *counts = calloc((size_t)n * (size_t)n, sizeof *counts);
  if (!counts) fail("no memory");
  for (int i = 0; i < n * n; i++) counts[i] = (uint64_t)(i * 37) % 101;
  const struct copse_data data = {.collective = COPSE_ALLTOALL,
                                  .n_ranks = (uint32_t)n,
                                  .root = -1,
                                  .count = 101,
                                  .type = COPSE_INT32,
                                  .pair_counts = counts,
                                  .seed = 5};
  check_exact(comm, &data, false);
  free(counts);
}

static void check_collective(copse_comm *comm, copse_collective collective, int root) {
  static const copse_type types[] = {COPSE_INT8, COPSE_FLOAT, COPSE_BFLOAT16};
  static const uint64_t counts[] = {1, 3001, 100003};
  bool reduces = copse_collective_reduces(collective);
  struct copse_data data = {.collective = collective, .n_ranks = (uint32_t)n, .root = root};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
      for (int in_place = 0; in_place <= copse_buffers_has_in_place(collective); in_place++) {
        data.type = types[t];
        data.redop = reduces ? (copse_redop)((t + c) % COPSE_N_REDOPS) : COPSE_SUM;
        data.count = counts[c];
        data.seed++;
        const copse_plan *plan = NULL; /* one of packets takes no long messages */
        OK(copse_comm_find_plan(comm, collective, root, data.count, data.type, &plan));
        if (plan && (counts[c] < 100000 || types[t] == COPSE_FLOAT))
          check_exact(comm, &data, in_place);
      }
  data.type = COPSE_FLOAT;
  data.redop = COPSE_SUM;
  data.count = 4099;
  if (reduces) check_bits(comm, &data);
}

/* All that the plans of a folder serve. */
static void check_folder(MPI_Comm mpi, const char *folder) {
  copse_comm *comm;
  int loaded, own, all;
  MPI_Comm_rank(mpi, &rank);
  MPI_Comm_size(mpi, &n);
  OK(init_comm(&comm, mpi));
  OK(copse_comm_user_rank(comm, &own));
  OK(copse_comm_count(comm, &all));
  if (own != rank || all != n) fail("another rank");
  OK(copse_comm_set_timeout(comm, 60));
  OK(copse_comm_load_plans(comm, folder, &loaded));
  if (loaded == 0) fail("no plans in %s", folder);
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
    const copse_plan *plan = NULL;
    bool rooted = c == COPSE_BROADCAST || c == COPSE_REDUCE;
    int root = rooted ? n - 1 : -1;
    OK(copse_comm_find_plan(comm, (copse_collective)c, root, 1000, COPSE_FLOAT, &plan));
    if (plan) check_collective(comm, (copse_collective)c, root);
    if (plan && c == COPSE_ALLTOALL && plan->header.protocol == COPSE_PROTOCOL_BANDWIDTH)
      check_uneven(comm);
  }
  OK(copse_comm_destroy(comm));
}

static void expect(copse_status status, copse_status expected, const char *part) {
  if (status != expected || !strstr(copse_last_error(), part))
    fail("got %s: %s; expected %s: %s", copse_status_string(status), copse_last_error(),
         copse_status_string(expected), part);
}

/* Calls that go wrong, in communicators of their own; the last rank is at fault. */
static void check_faults(const char *folder) {
  static const copse_status statuses[] = {COPSE_REFUTED, COPSE_TIMEOUT, COPSE_ABORTED};
  char parts[3][64];
  float data[2][1000] = {{0}};
  bool guilty = rank == n - 1;
  snprintf(parts[0], sizeof parts[0], "rank %d", n - 1);
  snprintf(parts[1], sizeof parts[1], "rank %d does not answer", n - 1);
  snprintf(parts[2], sizeof parts[2], "copse_comm_abort was called on rank %d", n - 1);
  for (int fault = 0; fault < 3; fault++) {
    copse_comm *comm;
    int loaded;
    OK(init_comm(&comm, MPI_COMM_WORLD));
    OK(copse_comm_load_plans(comm, folder, &loaded));
    OK(copse_comm_set_timeout(comm, 3));
    /* reasons overtake: one that still waits for the others' plans would see it there */
    MPI_Barrier(MPI_COMM_WORLD);
    if (guilty && fault == 1) sleep(7); /* a slow rank: elsewhere for too long */
    if (guilty && fault == 2) OK(copse_comm_abort(comm));
    copse_status status = copse_all_reduce(data[0], data[1], guilty && fault == 0 ? 999 : 1000,
                                           COPSE_FLOAT, COPSE_SUM, comm, NULL);
    expect(status, statuses[fault], parts[fault]);
    /* broken for good, and it can be destroyed */
    expect(copse_all_reduce(data[0], data[1], 1, COPSE_FLOAT, COPSE_SUM, comm, NULL),
           statuses[fault], parts[fault]);
    OK(copse_comm_destroy(comm));
    n_calls++;
  }
}

/* Ranks 1 and 3 do something else for longer than the others wait. */
static void check_late(void) {
  copse_wire wire;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1 || rank == 3) {
    sleep(6);
  } else {
    copse_status status = copse_wire_new_mpi(MPI_COMM_WORLD, 2, &wire);
    const char *why = wire.why(wire.context);
    if (status != COPSE_TIMEOUT || wire.n_ranks != 0 ||
        !strstr(why, "nothing has come from ranks 1, 3 of the MPI communicator within 2 s"))
      fail("%s: %s", copse_status_string(status), why);
    printf("job: rank %d: they are named\n", rank);
    fflush(stdout);
    sleep(60); /* until the late ones end the job: what was begun here never ends */
  }
  MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(int argc, char **argv) {
  copse_comm *comm;
  if (argc < 3) return 2;
  if (copse_comm_init_mpi(&comm, MPI_COMM_WORLD) != COPSE_INVALID ||
      !strstr(copse_last_error(), "MPI_Init")) {
    printf("job: without MPI_Init: %s\n", copse_last_error());
    return 1;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  if (strcmp(argv[1], "late") == 0) check_late();
  if (strcmp(argv[1], "faults") == 0) {
    check_faults(argv[2]);
  } else {
    for (int i = 2; i < argc; i++) check_folder(MPI_COMM_WORLD, argv[i]);
    if (argc > 3) { /* ranks in the opposite order, in a communicator of the caller's */
      MPI_Comm turned;
      MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
      check_folder(turned, argv[2]);
      MPI_Comm_free(&turned);
    }
  }
  printf("job: rank %d of %d: %ld calls are right\n", rank, n, n_calls);
  MPI_Finalize();
  return 0;
}
