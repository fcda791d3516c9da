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

/* ---- what a folder of plans takes -------------------------------------------------------------
 */

/* All ranks are like this one. The last gather before memory is opened fails, and says how much
 * there is. */
struct alone {
  int n, calls;
  size_t used;
};
static copse_status alone_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct alone *it = (struct alone *)context;
  size_t left = 0, total = 0;
  for (int r = 0; r < it->n; r++) memcpy((char *)all + (size_t)r * bytes, mine, bytes);
  if (++it->calls < 3) return COPSE_OK; /* hosts, and whether all plans fit */
  CUDA_OK(cudaMemGetInfo(&left, &total));
  if (it->calls == 3) it->used = total - left;
  return COPSE_IO;
}

/* What the plans' tables will take beside: their records, and some bytes for each. */
static size_t table_bytes(const struct copse_plan_header *h) {
  return h->n_ops * sizeof(struct copse_plan_op) +
         h->n_operands * sizeof(struct copse_plan_operand) +
         h->n_pieces * sizeof(struct copse_plan_piece) + h->n_regions * 32u + h->n_channels * 24u +
         h->n_workers * 64u + h->n_ranks * 32u + 12 * 256;
}

/* The memory of a communicator is bounded, whatever plans it has: two shared allocations. */
START_TEST(plans_share_their_memory) {
  static const struct {
    int n_ranks, n_plans;
    size_t most;
  } sets[] = {{8, 6, (size_t)256 << 20}, {64, 3, (size_t)384 << 20}};
  struct copse_err err = COPSE_ERR_INIT;
  struct alone alone = {sets[_i].n_ranks, 0, 0};
  const copse_bootstrap bootstrap = {alone_all_gather, &alone};
  const int device = 0;
  const struct copse_comm_shape shape = {(uint32_t)alone.n, 0, 1, &device, &bootstrap, NULL, NULL};
  struct copse_lower_options options = {};
  options.chunk_bytes = 8 << 20;
  struct copse_plan *plans[COPSE_N_COLLECTIVES];
  void *backend, *prepared[COPSE_N_COLLECTIVES];
  uint64_t wanted = 0;
  size_t tables = 0;
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 132;
  copse_emulated_configure(&config);
  for (int i = 0; i < sets[_i].n_plans; i++) {
    struct copse_layout layout;
    plans[i] = process_lower((copse_collective)i, alone.n, &options);
    tables += table_bytes(&plans[i]->header);
    COPSE_SUCCEEDS(copse_layout_new(plans[i], &layout, &err), &err);
    wanted += copse_layout_most_slot_bytes(&layout, 0);
    copse_layout_free(&layout);
  }
  COPSE_SUCCEEDS(copse_cuda_backend.create(&shape, &backend, &err), &err);
  const copse_status status = copse_cuda_backend.prepare(
      backend, (const struct copse_plan *const *)plans, (size_t)sets[_i].n_plans, prepared, &err);
  ck_assert_msg(status == COPSE_IO, "%s: %s", copse_status_string(status), err.text);
  copse_cuda_backend.abort(backend);
  copse_cuda_backend.destroy(backend);
  ck_assert_msg(alone.used + tables <= sets[_i].most, "%zu MiB and %zu of tables", alone.used >> 20,
                tables >> 20);
  ck_assert_uint_gt(alone.used, copse_cuda_staging_bytes);
  ck_assert_uint_gt(wanted, sets[_i].most); /* so that it is the sharing which is bounded */
  ck_assert_int_eq(copse_emulated_calls_of("cudaIpcGetMemHandle"),
                   1 + 2); /* the first of a few bytes */
  for (int i = 0; i < sets[_i].n_plans; i++) copse_plan_free(plans[i]);
  ck_assert_int_eq(copse_emulated_leaks(), 0);
}
END_TEST

struct counted {
  struct meeting meeting;
  int calls;
};
static copse_status counted_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct counted *it = (struct counted *)context;
  it->calls++;
  return meeting_all_gather(&it->meeting, mine, all, bytes);
}

/* The second of three plans takes more blocks than rank 1's GPU holds. */
static void run_too_large(struct process *p) {
  struct copse_err err = COPSE_ERR_INIT;
  struct counted counted = {p->meeting, 0};
  const copse_bootstrap bootstrap = {counted_all_gather, &counted};
  struct pb_options many = PROCESS_TREES;
  copse_emulated_config config = copse_emulated_defaults();
  many.n_trees = 64;
  config.multiprocessors = p->meeting.rank == 1 ? 4 : 80;
  copse_emulated_configure(&config);
  copse_cuda_threads = COPSE_CUDA_LEAST_THREADS;
  process_meet(p, &bootstrap);
  const uint32_t n = (uint32_t)p->meeting.n;
  struct copse_plan *plans[] = {pb_tree_plan(COPSE_ALLGATHER, n, -1, PROCESS_TREES),
                                pb_tree_plan(COPSE_ALLREDUCE, n, -1, many),
                                pb_tree_plan(COPSE_ALLREDUCE, n, -1, PROCESS_TREES)};
  void *prepared[3], *none;
  COPSE_SUCCEEDS(copse_cuda_backend.prepare(p->backend, (const struct copse_plan *const *)plans, 3,
                                            prepared, &err),
                 &err);
  DEVICE_ASSERT(prepared[0] && !prepared[1] && prepared[2], "rank %d: not the second one",
                p->meeting.rank);
  DEVICE_ASSERT(counted.calls == 4, "%d all-gathers", counted.calls);
  const copse_status status = copse_cuda_backend.prepare(
      p->backend, (const struct copse_plan *const *)plans + 1, 1, &none, &err);
  DEVICE_ASSERT(status == COPSE_UNSUPPORTED && !none && *err.text, "%s",
                copse_status_string(status));
  CUDA_OK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
  copse_cuda_threads = 3;
  unsigned char *memory;
  CUDA_OK(cudaMalloc((void **)&memory, 64 << 10));
  for (uint64_t i = 0; i < 6; i++) { /* both in turn, in the same slots and staging */
    const struct process_call check = {900 + i, i, false, 0};
    p->plan = plans[i % 2 ? 0 : 2];
    p->prepared = prepared[i % 2 ? 0 : 2];
    process_check(p, &check, memory, 32 << 10);
  }
  CUDA_OK(cudaFree(memory));
  process_stop(p);
  for (struct copse_plan *plan : plans) pb_free(plan);
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

/* The nth call of a function from now on fails at rank 1, while a plan is prepared: all ranks
 * succeed, or none, and nothing is left. How many calls there were at rank 1. */
static int prepare_failing(struct process *p, const struct copse_plan *plan, const char *function,
                           int nth, int *n_failed) {
  const copse_bootstrap bootstrap = {meeting_all_gather, &p->meeting};
  struct copse_err err = COPSE_ERR_INIT;
  int mine[2], all[MAX_PROCESSES][2];
  void *prepared = NULL;
  process_meet(p, &bootstrap);
  const int before = copse_emulated_calls_of(function);
  if (p->meeting.rank == 1) copse_emulated_fail(function, nth, cudaErrorMemoryAllocation);
  const copse_status status = copse_cuda_backend.prepare(p->backend, &plan, 1, &prepared, &err);
  copse_emulated_fail(NULL, 0, cudaSuccess);
  mine[0] = status == COPSE_OK;
  mine[1] = copse_emulated_calls_of(function) - before;
  (void)meeting_all_gather(&p->meeting, mine, all, sizeof mine);
  for (int r = 0; r < p->meeting.n; r++)
    DEVICE_ASSERT(all[r][0] == mine[0], "%s, call %d: ranks %d and %d differ: %s", function, nth, r,
                  p->meeting.rank, err.text);
  DEVICE_ASSERT(mine[0] == (prepared != NULL) && (mine[0] || *err.text), "%s, call %d", function,
                nth);
  *n_failed += !mine[0];
  copse_cuda_backend.destroy(p->backend);
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "%s, call %d: something leaks", function, nth);
  return all[1][1];
}

/* Each call that makes something, in turn. */
static void run_any_failure(struct process *p, bool mirrored) {
  static const char *const functions[] = {"cudaMalloc",
                                          "cudaIpcGetMemHandle",
                                          "cudaIpcOpenMemHandle",
                                          "cudaStreamCreateWithFlags",
                                          "cudaMemsetAsync",
                                          "cudaMemcpyAsync",
                                          "cudaStreamSynchronize",
                                          "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                                          "cudaHostRegister",
                                          "cudaHostGetDevicePointer"};
  struct copse_plan *plan =
      pb_tree_plan(COPSE_ALLREDUCE, (uint32_t)p->meeting.n, -1, PROCESS_TREES);
  for (size_t f = 0; f < sizeof functions / sizeof *functions - (mirrored ? 0 : 2); f++) {
    int n_failed = 0;
    for (int nth = 1, n = 1; nth <= n; nth++)
      n = prepare_failing(p, plan, functions[f], nth, &n_failed);
    DEVICE_ASSERT(n_failed > 0, "no call of %s failed", functions[f]);
  }
  pb_free(plan);
}

/* A host of GPUs, each `reach` of which have access to each other's memory. */
static void configure_apart(int rank, int reach) {
  copse_emulated_config config = copse_emulated_defaults();
  config.reach = reach;
  config.first = rank;
  copse_emulated_configure(&config);
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  struct process p;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  const bool is_mirrored = strncmp(mode, "host ", 5) == 0;
  if (is_mirrored) {
    configure_apart(meeting.rank, mode[5] - '0');
    mode += 7;
  }
  copse_cuda_threads = 3;
  copse_cuda_staging_bytes = 1024;
  if (strcmp(mode, "large") == 0) {
    run_too_large(&p);
    return;
  }
  if (strcmp(mode, "any") == 0) {
    run_any_failure(&p, is_mirrored);
    return;
  }
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
    copse_status status = copse_cuda_backend.add_buffer(p.backend, 0, buffer, room, &handle, &err);
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
  if (strcmp(mode, "mirrored") == 0) { /* registering is without effect */
    DEVICE_ASSERT(((const struct copse_cuda *)p.backend)->has_mirrors, "peer access after all");
    COPSE_SUCCEEDS(copse_cuda_backend.add_buffer(p.backend, 0, buffer, room, &handle, &err), &err);
    DEVICE_ASSERT(!handle, "registered");
    const struct process_call graph = {1500, 3, false, 2};
    process_check(&p, &graph, buffer, room);
  }
  if (handle) COPSE_SUCCEEDS(copse_cuda_backend.remove_buffer(p.backend, 0, handle, &err), &err);
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

START_TEST(a_plan_that_does_not_fit_is_left_out_everywhere) {
  processes_run(COPSE_ALLREDUCE, "large", 3);
}
END_TEST

START_TEST(a_process_that_dies_is_a_timeout_for_the_others) {
  processes_run(COPSE_ALLREDUCE, "dies", 3);
}
END_TEST

START_TEST(nobody_waits_for_one_that_leaves_late) { processes_run(COPSE_ALLREDUCE, "late", 3); }
END_TEST

/* Where processes share no files either, they leave together. */
START_TEST(leaving_needs_no_shared_files) { processes_run(COPSE_ALLREDUCE, "apart", 3); }
END_TEST

/* GPUs that don't reach each other's memory: none, or pairs only. */
START_TEST(processes_without_peer_access) {
  processes_run((copse_collective)(_i / 2), _i % 2 ? "host 2 mirrored" : "host 1 mirrored", 4);
}
END_TEST

START_TEST(a_process_without_peer_access_dies) { processes_run(COPSE_ALLREDUCE, "host 1 dies", 3); }
END_TEST

START_TEST(any_call_may_fail_at_one_rank) {
  processes_run(COPSE_ALLREDUCE, _i == 0 ? "any" : _i == 1 ? "host 1 any" : "host 2 any", 3);
}
END_TEST

START_TEST(peer_access_can_be_denied) {
  setenv("NCCL_P2P_DISABLE", "1", 1);
  processes_run(COPSE_ALLREDUCE, "mirrored", 2);
  unsetenv("NCCL_P2P_DISABLE");
}
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
  /* Threads are the same in all collectives. */
  const int first = COPSE_TEST_RACES && !copse_test_all() ? COPSE_N_COLLECTIVES - 2 : 0;
  tcase_add_loop_test(tc, outputs_that_are_not_registered_are_staged, first, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, blocks_far_apart_are_copied_one_by_one, first, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, registered_outputs_are_written_straight, first, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, processes_without_peer_access, 2 * first, 2 * COPSE_N_COLLECTIVES);
  tcase_add_test(tc, a_process_without_peer_access_dies);
  tcase_add_loop_test(tc, any_call_may_fail_at_one_rank, 0, 3);
  tcase_add_test(tc, peer_access_can_be_denied);
  tcase_add_test(tc, a_registration_that_fails_at_one_rank_is_none);
  if (first == 0) tcase_add_test(tc, a_plan_that_does_not_fit_is_left_out_everywhere); /* much memory, no new threads */
  tcase_add_loop_test(tc, plans_share_their_memory, 0, COPSE_TEST_UP_TO(2, 1));
  tcase_add_test(tc, a_process_that_dies_is_a_timeout_for_the_others);
  tcase_add_test(tc, nobody_waits_for_one_that_leaves_late);
  tcase_add_test(tc, leaving_needs_no_shared_files);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
