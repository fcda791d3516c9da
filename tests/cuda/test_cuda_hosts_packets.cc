/*
 * Low-latency plans over several hosts, one rank per process on emulated GPUs: packets within a
 * host, messages by a stand-in for NCCL between hosts. The modes are those of test_cuda_hosts.cc.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cuda/stand_in_nccl.h"
#include "emulation/emulation.h"
#include "runtime/internode/internode.h"

extern "C" {
#include "support/support.h"
}

/* ---- one rank ---------------------------------------------------------------------------- */

#define API_OK(call) DEVICE_ASSERT((call) == COPSE_OK, "%s: %s", #call, copse_last_error())

static const uint64_t room = 64 << 10;

static const struct copse_lower_options packets = [] {
  struct copse_lower_options options;
  memset(&options, 0, sizeof options);
  options.low_latency = true;
  options.max_workers = 4;
  options.max_bytes = 64 << 10;
  return options;
}();

static void check_calls(struct process *p, unsigned char *buffer) {
  const uint64_t counts[] = {1, 7, 100, 1500, 3, 1024};
  for (uint64_t i = 0; i < 6; i++) {
    const struct process_call call = {counts[i], i, i % 2 == 1, i == 2 ? 3 : 0};
    process_check(p, &call, buffer, room);
  }
  const struct process_call rough = {777, 5, false, 0};
  process_compare(p, &rough, buffer, room);
}

/* Where launch numbers start again: alike at all workers, whichever rounds they run in, and no
 * packets of long ago are taken for new ones. */
static void check_numbers(struct process *p, unsigned char *buffer) {
  const struct copse_cuda_plan *plan = (const struct copse_cuda_plan *)p->prepared;
  const uint32_t rank = (uint32_t)p->meeting.rank;
  const struct copse_plan_rank *own = &p->plan->ranks[rank];
  uint32_t *epochs = plan->devices[0].plan.epochs + own->first_worker;
  const uint64_t bytes = own->n_workers * sizeof *epochs;
  uint32_t *host = (uint32_t *)malloc(bytes);
  CUDA_OK(cudaMemcpy(host, epochs, bytes, cudaMemcpyDeviceToHost));
  for (uint32_t w = 0; w < own->n_workers; w++) {
    DEVICE_ASSERT(host[w] == 9, "rank %u: %u launches counted, of 9", rank, host[w]);
    host[w] = UINT32_MAX - 2; /* as even as it should be next */
  }
  CUDA_OK(cudaMemcpy(epochs, host, bytes, cudaMemcpyHostToDevice));
  for (uint64_t i = 0; i < 4; i++) {
    const struct process_call call = {i < 2 ? 2u : 1500u, 20 + i, false, 0};
    process_check(p, &call, buffer, room);
    if (i != 1) continue;
    char word = 0, words[MAX_PROCESSES]; /* nobody is ahead */
    meeting_all_gather(&p->meeting, &word, words, 1);
    uint64_t n = 2 * plan->segment.packets_copy / 8, found = 0,
             *copy = (uint64_t *)malloc(8 * n + 8);
    CUDA_OK(cudaMemcpy(copy, plan->segments[rank] + plan->segment.signals_bytes, 8 * n,
                       cudaMemcpyDeviceToHost));
    for (uint64_t k = 0; k < n; k++) found += copy[k] != 0;
    DEVICE_ASSERT(found == 0, "rank %u: %llu packets are left", rank, (unsigned long long)found);
    free(copy);
    meeting_all_gather(&p->meeting, &word, words, 1);
  }
  free(host);
}

/* Rank 2 leaves the job before a call; it shares its host with rank 3. */
static void miss(struct process *p, unsigned char *buffer) {
  struct copse_err err = COPSE_ERR_INIT;
  if (p->meeting.rank == 2) _exit(0);
  copse_cuda_backend.set_timeout(p->backend, process_limit(0.5));
  const struct copse_data data = process_data(p, 500, 1);
  COPSE_SUCCEEDS(process_launch(p, &data, buffer, buffer + room, &err), &err);
  copse_status status = copse_cuda_backend.finish(p->backend, &err);
  DEVICE_ASSERT(status == COPSE_TIMEOUT || status == COPSE_ABORTED, "rank %d: %s: %s",
                p->meeting.rank, copse_status_string(status), err.text);
  /* those of the other host get nothing from there, or a notice from rank 3 or a neighbour */
  if (p->meeting.rank == 3)
    DEVICE_ASSERT(strstr(err.text, "for rank 2"), "rank 3: %s", err.text);
  else
    DEVICE_ASSERT(strstr(err.text, "gone: 2") || strstr(err.text, "rank 3, on another host") ||
                      process_waited(&err, 0.5, "rank"),
                  "rank %d: %s", p->meeting.rank, err.text);
}

static void configure(int n_ranks) {
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 68;
  copse_emulated_configure(&config);
  copse_cuda_threads = n_ranks > 4 ? 1 : 3; /* the CPU's time goes into the blocks' barriers */
  copse_cuda_staging_bytes = 1024;
  copse_cuda_leave_seconds = 60;
}

/* COPSE_PLAN_DIR has a plan of packets for up to 4 KiB and another for all: see write_folder. */
static void check_folder(struct stand_in_comm *nccl) {
  copse_comm *comm;
  const copse_plan *plan[2];
  int n_loaded;
  float in[5000], *device;
  API_OK(copse_comm_init_nccl(&comm, nccl));
  /* one rank looks in the wrong place: no rank has plans, and all may try again */
  const bool lost = nccl->meeting->rank == 2;
  copse_status status = copse_comm_load_plans(comm, lost ? "/nowhere" : NULL, &n_loaded);
  DEVICE_ASSERT(status == (lost ? COPSE_IO : COPSE_REFUTED) && n_loaded == 0, "%s: %s",
                copse_status_string(status), copse_last_error());
  DEVICE_ASSERT(lost || strstr(copse_last_error(), "rank 2 failed"), "%s", copse_last_error());
  API_OK(copse_comm_load_plans(comm, NULL, &n_loaded));
  DEVICE_ASSERT(n_loaded == 2, "%d plans", n_loaded);
  API_OK(copse_comm_find_plan(comm, COPSE_ALLREDUCE, -1, 1000, COPSE_FLOAT, &plan[0]));
  API_OK(copse_comm_find_plan(comm, COPSE_ALLREDUCE, -1, 5000, COPSE_FLOAT, &plan[1]));
  DEVICE_ASSERT(plan[0] && plan[1] && plan[0] != plan[1], "one plan for all sizes");
  CUDA_OK(cudaMalloc((void **)&device, sizeof in));
  for (size_t count : {1000, 5000, 20}) {
    for (size_t i = 0; i < count; i++) in[i] = (float)(nccl->meeting->rank + (int)i);
    CUDA_OK(cudaMemcpy(device, in, count * sizeof *in, cudaMemcpyHostToDevice));
    API_OK(copse_all_reduce(device, device, count, COPSE_FLOAT, COPSE_SUM, comm, NULL));
    CUDA_OK(cudaStreamSynchronize(NULL));
    CUDA_OK(cudaMemcpy(in, device, count * sizeof *in, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
      DEVICE_ASSERT(in[i] == (float)(6 + 4 * (int)i), "%zu: %g", i, (double)in[i]);
  }
  API_OK(copse_comm_destroy(comm));
  CUDA_OK(cudaFree(device));
}

static const struct copse_doubling one_stage = {1, {4}, 0, false, false},
                                   two_stages = {2, {2, 2}, 0, true, false};

static void run_collective(struct meeting meeting, copse_collective collective, const char *what) {
  struct process p;
  copse_bootstrap bootstrap;
  struct copse_err err = COPSE_ERR_INIT;
  int n, rank, device;
  memset(&p, 0, sizeof p);
  p.meeting = meeting;
  struct stand_in_comm comm(&p.meeting);
  stand_in_meet(&p.meeting);
  COPSE_SUCCEEDS(copse_nccl_bootstrap_new(&comm, &n, &rank, &device, &bootstrap, &err), &err);
  struct copse_lower_options options = packets;
  options.one_hop = strncmp(what, "one-hop", 7) == 0;
  const struct copse_doubling *stages = strncmp(what, "stages 4", 8) == 0      ? &one_stage
                                        : strncmp(what, "stages 2x2", 10) == 0 ? &two_stages
                                                                               : NULL;
  struct copse_plan *plan = process_lower(collective, n, &options, stages);
  process_start(&p, plan, &bootstrap);
  const struct copse_cuda_plan *prepared = (const struct copse_cuda_plan *)p.prepared;
  const bool one_host = strstr(what, "one-host") != NULL;
  DEVICE_ASSERT(!prepared->split == one_host, "%s", prepared->split ? "split" : "not split");
  unsigned char *memory;
  CUDA_OK(cudaMalloc((void **)&memory, 2 * room + 512));
  unsigned char *buffer = memory + 256;
  check_calls(&p, buffer);
  check_numbers(&p, buffer);
  if (strcmp(what, "misses") == 0) miss(&p, buffer);
  process_stop(&p);
  copse_plan_free(plan);
  copse_nccl_bootstrap_free(&bootstrap);
  CUDA_OK(cudaFree(memory));
  stand_in_free();
  DEVICE_ASSERT(copse_emulated_misuses() == 0, "CUDA was misused");
  DEVICE_ASSERT(copse_emulated_leaks() == 0, "something leaks");
}

static void run_rank(struct meeting meeting, copse_collective collective, const char *mode) {
  const char *what = strchr(mode, '.') + 1;
  configure(meeting.n);
  setenv("COPSE_SEVERAL_HOSTS", "1", 1);
  copse_cuda_host = 1 + (uint64_t)(mode[meeting.rank] - '0');
  if (strcmp(what, "folder") == 0) {
    struct stand_in_comm comm(&meeting);
    stand_in_meet(&meeting);
    check_folder(&comm);
    stand_in_free();
    return;
  }
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++)
    if (collective == ALL_COLLECTIVES || collective == (copse_collective)c)
      run_collective(meeting, (copse_collective)c, what);
}

/* ---- all ranks ------------------------------------------------------------------------------ */

static void run_hosts(copse_collective collective, const char *hosts, const char *what) {
  char mode[40];
  snprintf(mode, sizeof mode, "%s.%s", hosts, what);
  processes_run(collective, mode, (int)strlen(hosts));
}

START_TEST(two_hosts_of_two) { run_hosts(ALL_COLLECTIVES, "0011", "calls"); }
END_TEST
START_TEST(three_hosts_and_ranks_in_no_order) { run_hosts(ALL_COLLECTIVES, "01021", "calls"); }
END_TEST
START_TEST(two_hosts_of_four) { run_hosts(ALL_COLLECTIVES, "00001111", "calls"); }
END_TEST
START_TEST(four_hosts_of_two) { run_hosts(ALL_COLLECTIVES, "00112233", "calls"); }
END_TEST
/* Everybody sends to everybody, within and between hosts. */
START_TEST(allreduces_in_one_hop) {
  run_hosts(COPSE_ALLREDUCE, "0000", "one-hop one-host");
  run_hosts(COPSE_ALLREDUCE, "00101", "one-hop");
}
END_TEST
/* Own sums in slots, what comes in packets; in one stage the input is put by three workers. */
START_TEST(allreduces_in_stages) {
  run_hosts(COPSE_ALLREDUCE, "0000", "stages 2x2 one-host");
  run_hosts(COPSE_ALLREDUCE, "0011", "stages 2x2");
  run_hosts(COPSE_ALLREDUCE, "0000", "stages 4 one-host");
  run_hosts(COPSE_ALLREDUCE, "0011", "stages 4");
}
END_TEST
START_TEST(a_rank_that_is_gone_ends_the_wait) {
  processes_run_in_time(COPSE_ALLREDUCE, "0011.misses", 4);
}
END_TEST

static void write_folder(const char *folder) {
  for (int i = 0; i < 2; i++) {
    struct copse_lower_options options = packets;
    options.max_bytes = 4096;
    if (i == 1) memset(&options, 0, sizeof options);
    struct copse_plan *plan = process_lower(COPSE_ALLREDUCE, 4, &options);
    char path[96];
    snprintf(path, sizeof path, "%s/%d.plan", folder, i);
    ck_assert_int_eq(copse_plan_write(plan, path), COPSE_OK);
    copse_plan_free(plan);
  }
}

START_TEST(a_folders_packets_serve_small_messages) {
  char folder[] = "/tmp/copse-hosts-XXXXXX", command[64];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  write_folder(folder);
  setenv("COPSE_PLAN_DIR", folder, 1);
  run_hosts(COPSE_ALLREDUCE, "0011", "folder");
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(int argc, char **argv) {
  struct process_arguments arguments;
  if (process_is_rank(argc, argv, &arguments)) {
    run_rank(arguments.meeting, arguments.collective, arguments.mode);
    return 0;
  }
  Suite *suite = suite_create("cuda/hosts_packets");
  TCase *tc = tcase_create("packets");
  tcase_set_timeout(tc, 150);
  tcase_add_test(tc, two_hosts_of_two);
  if (!COPSE_TEST_RACES) { /* the same threads */
    tcase_add_test(tc, three_hosts_and_ranks_in_no_order);
    tcase_add_test(tc, allreduces_in_stages);
  }
  /* A sanitizer sees a process at a time: more of them show it nothing. */
  if (COPSE_TEST_SWEEPS) {
    tcase_add_test(tc, two_hosts_of_four);
    tcase_add_test(tc, four_hosts_of_two);
  }
  tcase_add_test(tc, allreduces_in_one_hop);
  tcase_add_test(tc, a_rank_that_is_gone_ends_the_wait);
  tcase_add_test(tc, a_folders_packets_serve_small_messages);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
