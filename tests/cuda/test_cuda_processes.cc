/*
 * One rank per process, on emulated GPUs: memory shared by CUDA IPC, outputs staged in parts or
 * registered, peers that die. The program runs itself once per rank; the ranks find each other
 * through a file that they map.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/device_case.h"
#include "emulation/emulation.h"

extern "C" {
#include "support/support.h"
}

extern uint32_t copse_cuda_threads;
extern uint64_t copse_cuda_staging_bytes;

enum { MAX_PROCESSES = 4, MAX_GATHER = 1 << 16 };

struct meeting_place {
  pthread_barrier_t barrier;
  unsigned char gathered[MAX_PROCESSES][MAX_GATHER];
};

struct meeting {
  struct meeting_place *place;
  int rank, n;
};

static copse_status all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct meeting *m = (struct meeting *)context;
  if (bytes > MAX_GATHER) return COPSE_NOMEM;
  memcpy(m->place->gathered[m->rank], mine, bytes);
  pthread_barrier_wait(&m->place->barrier);
  for (int r = 0; r < m->n; r++) memcpy((char *)all + r * bytes, m->place->gathered[r], bytes);
  pthread_barrier_wait(&m->place->barrier);
  return COPSE_OK;
}

/* ---- one rank ---------------------------------------------------------------------------- */

struct process {
  struct meeting meeting;
  const struct copse_plan *plan;
  void *machine, *prepared;
  cudaStream_t stream;
};

static void process_open(struct process *p, copse_collective collective) {
  static const struct pb_options small = {2, 2, 2, 3, 512, 64};
  struct copse_err err = COPSE_ERR_INIT;
  uint32_t n = (uint32_t)p->meeting.n, rank = (uint32_t)p->meeting.rank;
  const int device = 0;
  const copse_bootstrap bootstrap = {all_gather, &p->meeting};
  const struct copse_clique_shape shape = {n, rank, 1, &device, &bootstrap};
  p->plan = pb_tree_plan(collective, n, exec_case_root(collective, n), small);
  COPSE_SUCCEEDS(copse_cuda_machine.new_machine(&shape, &p->machine, &err), &err);
  copse_cuda_machine.set_timeout(p->machine, 60);
  COPSE_SUCCEEDS(copse_cuda_machine.prepare(p->machine, p->plan, &p->prepared, &err), &err);
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
}

static void process_close(struct process *p) {
  copse_cuda_machine.free_machine(p->machine);
  CUDA_OK(cudaStreamDestroy(p->stream));
  pb_free((struct copse_plan *)p->plan);
}

static copse_status process_launch(struct process *p, const struct copse_data *data, void *send,
                                   void *recv, struct copse_err *err) {
  struct copse_call call;
  memset(&call, 0, sizeof call);
  call.collective = data->collective;
  call.root = data->root;
  call.count = data->count;
  call.type = data->type;
  call.redop = data->redop;
  call.send = send;
  call.recv = recv;
  call.stream = p->stream;
  return copse_cuda_machine.launch(p->machine, p->prepared, &call, err);
}

static struct copse_data data_of(const struct process *p, uint64_t count, uint64_t seed) {
  const struct copse_plan_header *h = &p->plan->header;
  struct copse_data data;
  memset(&data, 0, sizeof data);
  data.collective = (copse_collective)h->collective;
  data.n_ranks = h->n_ranks;
  data.root = h->root;
  data.count = count;
  data.type = seed % 2 ? COPSE_FLOAT : COPSE_HALF;
  data.redop = COPSE_SUM;
  data.seed = seed;
  return data;
}

/* One collective; the output, poisoned before, must be right to the last element. */
static void check_one(struct process *p, uint64_t count, uint64_t seed, bool in_place,
                      unsigned char *memory, uint64_t room) {
  const struct copse_plan_header *h = &p->plan->header;
  const struct copse_data data = data_of(p, count, seed);
  struct copse_err err = COPSE_ERR_INIT;
  uint32_t rank = (uint32_t)p->meeting.rank;
  uint64_t bytes = copse_type_bytes(data.type), in = h->input_blocks * count * bytes,
           out = h->output_blocks * count * bytes;
  unsigned char *host = (unsigned char *)calloc(in + 2 * out + 1, 1), *recv = memory;
  unsigned char *send = memory + room;
  if (in_place && h->collective == COPSE_ALLGATHER) send = recv + rank * count * bytes;
  if (in_place && h->collective == COPSE_ALLREDUCE) send = recv;
  copse_data_input(&data, rank, 0, h->input_blocks * count, host);
  CUDA_OK(cudaMemset(recv, 0xa5, out));
  CUDA_OK(cudaMemcpy(send, host, in, cudaMemcpyHostToDevice));
  CUDA_OK(cudaDeviceSynchronize());
  COPSE_SUCCEEDS(process_launch(p, &data, send, recv, &err), &err);
  COPSE_SUCCEEDS(copse_cuda_machine.finish(p->machine, &err), &err);
  CUDA_OK(cudaMemcpy(host + in, recv, out, cudaMemcpyDeviceToHost));
  if (copse_data_is_promised(&data, rank)) {
    copse_data_output(&data, rank, 0, h->output_blocks * count, host + in + out);
    DEVICE_ASSERT(memcmp(host + in, host + in + out, out) == 0,
                  "rank %u: wrong %s of %llu elements, in place %d", rank,
                  copse_collective_name(data.collective), (unsigned long long)count, in_place);
  }
  free(host);
}

/* An alltoall of uneven blocks: right up to each count, untouched behind. */
static void check_uneven(struct process *p, unsigned char *memory, uint64_t room) {
  const uint32_t n = (uint32_t)p->meeting.n, rank = (uint32_t)p->meeting.rank;
  const uint64_t count = 700;
  uint64_t counts[MAX_PROCESSES * MAX_PROCESSES], *on_device;
  struct copse_data data = data_of(p, count, 9);
  struct copse_err err = COPSE_ERR_INIT;
  const uint64_t bytes = copse_type_bytes(data.type), all = n * count * bytes;
  unsigned char *host = (unsigned char *)calloc(3 * all, 1), *send = memory + room;
  for (uint32_t i = 0; i < n * n; i++) counts[i] = i % 3 == 0 ? 0 : (i * 211) % (count + 1);
  CUDA_OK(cudaMalloc((void **)&on_device, sizeof counts));
  CUDA_OK(cudaMemcpy(on_device, counts, sizeof counts, cudaMemcpyHostToDevice));
  copse_data_input(&data, rank, 0, n * count, host);
  CUDA_OK(cudaMemset(memory, 0xa5, all));
  CUDA_OK(cudaMemcpy(send, host, all, cudaMemcpyHostToDevice));
  CUDA_OK(cudaDeviceSynchronize());
  struct copse_call call;
  memset(&call, 0, sizeof call);
  call.collective = COPSE_ALLTOALL;
  call.root = -1;
  call.count = count;
  call.type = data.type;
  call.send = send;
  call.recv = memory;
  call.pair_counts = on_device;
  call.stream = p->stream;
  COPSE_SUCCEEDS(copse_cuda_machine.launch(p->machine, p->prepared, &call, &err), &err);
  COPSE_SUCCEEDS(copse_cuda_machine.finish(p->machine, &err), &err);
  CUDA_OK(cudaMemcpy(host + all, memory, all, cudaMemcpyDeviceToHost));
  copse_data_output(&data, rank, 0, n * count, host + 2 * all);
  for (uint32_t i = 0; i < n; i++) {
    unsigned char *got = host + all + i * count * bytes;
    uint64_t there = counts[i * n + rank] * bytes;
    DEVICE_ASSERT(memcmp(got, got + all, there) == 0, "rank %u: wrong block from %u", rank, i);
    for (uint64_t b = there; b < count * bytes; b++)
      DEVICE_ASSERT(got[b] == 0xa5, "rank %u: byte %llu of the block from %u was written", rank,
                    (unsigned long long)b, i);
  }
  free(host);
  CUDA_OK(cudaFree(on_device));
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  struct process p;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  process_open(&p, collective);
  const uint64_t room = 64 << 10;
  unsigned char *memory;
  void *handle = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room + 512));
  /* not at the start of the allocation, and at another place in every rank's memory */
  unsigned char *buffer = memory + 256;
  if (strcmp(mode, "registered") == 0)
    COPSE_SUCCEEDS(copse_cuda_machine.add_buffer(p.machine, 0, buffer, room, &handle, &err), &err);
  if (strcmp(mode, "unregistered") == 0) { /* what fails at one rank fails at all */
    if (meeting.rank == 1) copse_emulated_fail("cudaIpcOpenMemHandle", 1, cudaErrorUnknown);
    copse_status status =
        copse_cuda_machine.add_buffer(p.machine, 0, buffer, room, &handle, &err);
    DEVICE_ASSERT(status == COPSE_DEVICE && !handle, "%s", copse_status_string(status));
  }
  static const uint64_t counts[] = {1, 100, 1023, 3000};
  for (uint64_t i = 0; i < 8; i++)
    check_one(&p, counts[i / 2], i, i % 2 == 1, buffer, room);
  if (collective == COPSE_ALLTOALL) check_uneven(&p, buffer, room);
  if (strcmp(mode, "dies") == 0) {
    if (meeting.rank == 1) _exit(0);
    copse_cuda_machine.set_timeout(p.machine, 0.3);
    const struct copse_data data = data_of(&p, 500, 1);
    COPSE_SUCCEEDS(process_launch(&p, &data, buffer, buffer + room, &err), &err);
    copse_status status = copse_cuda_machine.finish(p.machine, &err);
    DEVICE_ASSERT(status == COPSE_TIMEOUT && strstr(err.text, "waited over 0.3 s for rank"),
                  "%s: %s", copse_status_string(status), err.text);
  }
  if (handle)
    COPSE_SUCCEEDS(copse_cuda_machine.remove_buffer(p.machine, 0, handle, &err), &err);
  process_close(&p);
  CUDA_OK(cudaFree(memory));
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static struct meeting_place *map_place(int file) {
  void *p = mmap(NULL, sizeof(struct meeting_place), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) abort();
  return (struct meeting_place *)p;
}

static void start_rank(int file, int rank, int n, copse_collective collective, const char *mode,
                       pid_t *child) {
  *child = fork();
  if (*child != 0) return;
  char texts[4][16];
  const int numbers[] = {file, rank, n, (int)collective};
  for (int i = 0; i < 4; i++) snprintf(texts[i], sizeof texts[i], "%d", numbers[i]);
  execl("/proc/self/exe", "rank", texts[0], texts[1], texts[2], texts[3], mode, (char *)NULL);
  _exit(127);
}

/* Runs n processes; all must leave with 0. */
static void run_all(copse_collective collective, const char *mode, int n) {
  int file = memfd_create("meeting", 0);
  ck_assert(file >= 0 && ftruncate(file, sizeof(struct meeting_place)) == 0);
  struct meeting_place *place = map_place(file);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&place->barrier, &shared, (unsigned)n);
  pid_t children[MAX_PROCESSES];
  for (int r = 0; r < n; r++) start_rank(file, r, n, collective, mode, &children[r]);
  for (int r = 0; r < n; r++) {
    int status = -1;
    ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d: status 0x%x", r, status);
  }
  munmap(place, sizeof *place);
  close(file);
}

START_TEST(outputs_that_are_not_registered_are_staged) {
  run_all((copse_collective)_i, "staged", 3);
}
END_TEST

/* CUDA copies in rows only up to some distance between them. */
START_TEST(blocks_far_apart_are_copied_one_by_one) {
  setenv("COPSE_EMULATED_PITCH", "4000", 1);
  run_all((copse_collective)_i, "staged", 2);
  unsetenv("COPSE_EMULATED_PITCH");
}
END_TEST

START_TEST(registered_outputs_are_written_straight) {
  run_all((copse_collective)_i, "registered", 2);
}
END_TEST

START_TEST(a_registration_that_fails_at_one_rank_is_none) {
  run_all(COPSE_ALLGATHER, "unregistered", 3);
}
END_TEST

START_TEST(a_process_that_dies_is_a_timeout_for_the_others) { run_all(COPSE_ALLREDUCE, "dies", 3); }
END_TEST

int main(int argc, char **argv) {
  if (argc == 6 && strcmp(argv[0], "rank") == 0) {
    alarm(120);
    const struct meeting meeting = {map_place(atoi(argv[1])), atoi(argv[2]), atoi(argv[3])};
    run_rank(meeting, (copse_collective)atoi(argv[4]), argv[5]);
    return 0;
  }
  Suite *suite = suite_create("cuda/processes");
  TCase *tc = tcase_create("processes");
  tcase_set_timeout(tc, 150);
  tcase_add_loop_test(tc, outputs_that_are_not_registered_are_staged, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, blocks_far_apart_are_copied_one_by_one, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, registered_outputs_are_written_straight, 0, COPSE_N_COLLECTIVES);
  tcase_add_test(tc, a_registration_that_fails_at_one_rank_is_none);
  tcase_add_test(tc, a_process_that_dies_is_a_timeout_for_the_others);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
