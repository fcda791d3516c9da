/*
 * One rank per process, on emulated GPUs: memory shared by CUDA IPC, outputs staged in parts or
 * registered, peers that die.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/process_case.h"
#include "emulation/emulation.h"
#include "runtime/gpu/cuda_backend.h"

extern "C" {
#include "support/support.h"
}

/* In a container of its own a process finds no file of the others. */
static bool is_apart;

extern "C" int shm_open(const char *name, int flags, mode_t mode) {
  char path[300];
  snprintf(path, sizeof path, "/dev/shm%s", name);
  if (!is_apart) return open(path, flags | O_CLOEXEC, mode);
  errno = ENOENT;
  return -1;
}

/* Rank 1 leaves only when the others are back from leaving; what they shared stays until then. */
static void leave_late(struct process *p) {
  pthread_barrier_t *barrier = &p->meeting.place->barrier;
  copse_cuda_leave_seconds = 0.05;
  if (p->meeting.rank == 1) pthread_barrier_wait(barrier);
  process_close(p);
  if (p->meeting.rank != 1) {
    DEVICE_ASSERT(copse_emulated_leaks() > 0, "freed although rank 1 may use it");
    pthread_barrier_wait(barrier);
  }
  pthread_barrier_wait(barrier);
  copse_cuda_leave_sweep(); /* as with the process's next communicator */
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  struct process p;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  const copse_bootstrap bootstrap = {meeting_all_gather, &p.meeting};
  is_apart = strcmp(mode, "apart") == 0 && meeting.rank == 1;
  process_open(&p, collective, PROCESS_TREES, &bootstrap);
  const bool meets_again = !((const struct copse_cuda *)p.backend)->peer_barrier;
  DEVICE_ASSERT(meets_again == (strcmp(mode, "apart") == 0), "leaves in another way");
  const uint64_t room = 64 << 10;
  unsigned char *memory;
  void *handle = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room + 512));
  /* not at the start of the allocation, and at another place in every rank's memory */
  unsigned char *buffer = memory + 256;
  if (strcmp(mode, "registered") == 0)
    COPSE_SUCCEEDS(copse_cuda_backend.add_buffer(p.backend, 0, buffer, room, &handle, &err), &err);
  if (strcmp(mode, "unregistered") == 0) { /* what fails at one rank fails at all */
    if (meeting.rank == 1) copse_emulated_fail("cudaIpcOpenMemHandle", 1, cudaErrorUnknown);
    copse_status status =
        copse_cuda_backend.add_buffer(p.backend, 0, buffer, room, &handle, &err);
    DEVICE_ASSERT(status == COPSE_DEVICE && !handle, "%s", copse_status_string(status));
  }
  static const uint64_t counts[] = {1, 100, 1023, 3000};
  for (uint64_t i = 0; i < 8; i++) {
    const struct process_call check = {counts[i / 2], i, i % 2 == 1, 0};
    process_check(&p, &check, buffer, room);
  }
  const struct process_uneven uneven[] = {{700, 0, false}, {700, 0, true}};
  for (const struct process_uneven &it : uneven)
    if (collective == COPSE_ALLTOALL) process_check_uneven(&p, &it, buffer, room);
  if (strcmp(mode, "dies") == 0) {
    if (meeting.rank == 1) _exit(0);
    copse_cuda_backend.set_timeout(p.backend, 0.3);
    const struct copse_data data = process_data(&p, 500, 1);
    COPSE_SUCCEEDS(process_launch(&p, &data, buffer, buffer + room, &err), &err);
    copse_status status = copse_cuda_backend.finish(p.backend, &err);
    DEVICE_ASSERT(status == COPSE_TIMEOUT && strstr(err.text, "waited over 0.3 s for rank"),
                  "%s: %s", copse_status_string(status), err.text);
  }
  if (handle)
    COPSE_SUCCEEDS(copse_cuda_backend.remove_buffer(p.backend, 0, handle, &err), &err);
  CUDA_OK(cudaFree(memory));
  if (strcmp(mode, "late") == 0)
    leave_late(&p);
  else
    process_close(&p);
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

START_TEST(outputs_that_are_not_registered_are_staged) {
  processes_run((copse_collective)_i, "staged", 3);
}
END_TEST

/* CUDA copies in rows only up to some distance between them. */
START_TEST(blocks_far_apart_are_copied_one_by_one) {
  setenv("COPSE_EMULATED_PITCH", "4000", 1);
  processes_run((copse_collective)_i, "staged", 2);
  unsetenv("COPSE_EMULATED_PITCH");
}
END_TEST

START_TEST(registered_outputs_are_written_straight) {
  processes_run((copse_collective)_i, "registered", 2);
}
END_TEST

START_TEST(a_registration_that_fails_at_one_rank_is_none) {
  processes_run(COPSE_ALLGATHER, "unregistered", 3);
}
END_TEST

START_TEST(a_process_that_dies_is_a_timeout_for_the_others) { processes_run(COPSE_ALLREDUCE, "dies", 3); }
END_TEST

START_TEST(nobody_waits_for_one_that_leaves_late) { processes_run(COPSE_ALLREDUCE, "late", 3); }
END_TEST

/* Where processes share no files either, they leave together. */
START_TEST(leaving_needs_no_shared_files) { processes_run(COPSE_ALLREDUCE, "apart", 3); }
END_TEST

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.collective, arguments.mode);
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
  tcase_add_test(tc, nobody_waits_for_one_that_leaves_late);
  tcase_add_test(tc, leaving_needs_no_shared_files);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
