/*
 * Ranks that differ must decide alike: some without plans, with other plans, with trouble; and a
 * process per rank. Linked with --wrap: each rank's thread may have an environment and a
 * process of its own, and copse_comm_init_rank makes ranks on the CPU.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copse/comm.h"
#include "nccl/nccl_support.h"
#include "dropin/join.h"
#include "runtime/backend/nccl_source.h"

/* ---- what is wrapped ------------------------------------------------------------------------- */

static _Thread_local const char *plan_folder; /* NULL: the process's; "": not set */
static _Thread_local const char *exchanges;
static _Thread_local const char *graph_path; /* COPSE_NCCL_GRAPHS */
static _Thread_local int process;            /* 0: the real one */

char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name);
char *__wrap_getenv(const char *name) {
  if (plan_folder && strcmp(name, "COPSE_PLAN_DIR") == 0)
    return *plan_folder ? (char *)(uintptr_t)plan_folder : NULL;
  if (strcmp(name, "COPSE_NCCL_GRAPHS") == 0) return (char *)(uintptr_t)graph_path;
  if (exchanges && strcmp(name, "COPSE_NCCL_ALLTOALL") == 0) return (char *)(uintptr_t)exchanges;
  return __real_getenv(name);
}

/* The host is the scene's too. */
static _Thread_local uint64_t host;
void __real_copse_nccl_record_fill(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                                   int device, struct copse_err *err);
void __wrap_copse_nccl_record_fill(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                                   int device, struct copse_err *err);
void __wrap_copse_nccl_record_fill(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                                   int device, struct copse_err *err) {
  __real_copse_nccl_record_fill(mine, folder, n_ranks, device, err);
  mine->host += host;
}

pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void) { return process ? process : __real_getpid(); }

/* The ranks' communicators are made by the first of them, or fail at `failing_rank`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static copse_comm *comms[N];
static copse_bootstrap bootstraps[N];
static int failing_rank = -1, n_inits;
static atomic_int n_barriers;

/* What a machine needs for messages between hosts: the real NCCL's functions. */
static void check_source(const copse_bootstrap *bootstrap) {
  const copse_bootstrap other = {NULL, bootstrap->context};
  const copse_nccl_find_type find = copse_nccl_source_of(bootstrap);
  ck_assert(!copse_nccl_source_of(&other) && find);
  ck_assert(find("ncclSend") == dlsym(RTLD_NEXT, "ncclSend"));
  ck_assert_ptr_nonnull(find("ncclSend"));
  ck_assert_ptr_null(find("ncclOfNoVersion"));
}

copse_status __wrap_copse_comm_init_rank(copse_comm **comm, int n, int rank, int device,
                                         const copse_bootstrap *bootstrap);
copse_status __wrap_copse_comm_init_rank(copse_comm **comm, int n, int rank, int device,
                                         const copse_bootstrap *bootstrap) {
  int32_t ranks[N], turned = 10 * rank;
  *comm = NULL;
  ck_assert_int_eq(n, N);
  ck_assert_int_eq(device, COPSE_DEVICE_CPU);
  ck_assert_int_eq(bootstrap->all_gather(bootstrap->context, &turned, ranks, sizeof turned),
                   COPSE_OK);
  for (int r = 0; r < N; r++) ck_assert_int_eq(ranks[r], 10 * r);
  check_source(bootstrap);
  pthread_mutex_lock(&lock);
  copse_status status = COPSE_OK;
  if (!comms[0]) status = copse_comm_init_all(comms, n, NULL);
  bootstraps[rank] = *bootstrap;
  n_inits++;
  pthread_mutex_unlock(&lock);
  if (rank == failing_rank) return copse_comm_load_plans(comms[rank], "/nowhere", &n);
  if (status == COPSE_OK) *comm = comms[rank];
  return status;
}

/* Ends with a barrier of all processes, as copse's does. */
copse_status __real_copse_comm_destroy(copse_comm *comm);
copse_status __wrap_copse_comm_destroy(copse_comm *comm);
copse_status __wrap_copse_comm_destroy(copse_comm *comm) {
  char here = 0, all[N];
  int rank = 0;
  if (comm) ck_assert_int_eq(copse_comm_user_rank(comm, &rank), COPSE_OK);
  if (comm && comm == comms[rank] && failing_rank < 0) {
    const copse_bootstrap *it = &bootstraps[rank];
    ck_assert_int_eq(it->all_gather(it->context, &here, all, 1), COPSE_OK);
    n_barriers++;
  }
  return __real_copse_comm_destroy(comm);
}

/* ---- a job of ranks that differ -----------------------------------------------------------------
 */

struct scene {
  const char *folders[N], *exchanges[N], *graphs[N];
  bool end_in_group;
  int processes[N];
  uint64_t hosts[N];
  ncclUniqueId id;
};

static void sum_once(struct nccl_rank *it) {
  const struct scene *scene = it->context;
  float in = (float)it->rank + 1, out = 0;
  plan_folder = scene->folders[it->rank];
  exchanges = scene->exchanges[it->rank];
  graph_path = scene->graphs[it->rank];
  process = scene->processes[it->rank];
  host = scene->hosts[it->rank];
  NCCL_OK(ncclCommInitRank(&it->comm, N, scene->id, it->rank));
  NCCL_OK(ncclAllReduce(&in, &out, 1, NCCL_FLOAT, NCCL_SUM, it->comm, NULL));
  ck_assert(out == 10);
  if (!scene->end_in_group) return;
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclCommFinalize(it->comm));
  NCCL_OK(ncclGroupEnd());
}

static void run(struct scene *scene) {
  NCCL_OK(ncclGetUniqueId(&scene->id));
  nccl_run_bare(N, sum_once, scene);
}

static void assert_all_pass(const char *reason) {
  ck_assert_int_eq(fake_nccl_calls("AllReduce"), N);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: passed", reason), N);
  ck_assert_int_eq(nccl_logged("served by", ""), 0);
}

static const struct scene one_process;
static const struct scene four_processes = {.processes = {1, 2, 3, 4}};

START_TEST(one_rank_without_plans_makes_all_pass) {
  struct scene scene = _i ? four_processes : one_process;
  scene.folders[2] = "";
  run(&scene);
  assert_all_pass("rank 2 has no COPSE_PLAN_DIR");
}
END_TEST

START_TEST(one_rank_with_an_unreadable_folder_makes_all_pass) {
  struct scene scene = _i ? four_processes : one_process;
  scene.folders[1] = "/nowhere/at/all";
  run(&scene);
  assert_all_pass("rank 1 can't read its COPSE_PLAN_DIR");
  ck_assert_int_eq(nccl_logged("WARN", "/nowhere/at/all"), 1);
}
END_TEST

START_TEST(one_rank_with_other_plans_makes_all_pass) {
  struct scene scene = _i ? four_processes : one_process;
  scene.folders[3] = "/";
  run(&scene);
  assert_all_pass("the plans in COPSE_PLAN_DIR of ranks 0 and 3 differ");
}
END_TEST

START_TEST(one_rank_that_promises_more_makes_all_pass) {
  struct scene scene = _i ? four_processes : one_process;
  scene.exchanges[3] = "1";
  run(&scene);
  assert_all_pass("COPSE_NCCL_ALLTOALL of ranks 0 and 3 differs");
}
END_TEST

START_TEST(two_ranks_in_one_process_of_several_make_all_pass) {
  struct scene scene = four_processes;
  scene.processes[3] = scene.processes[2];
  run(&scene);
  assert_all_pass("some have more than one rank");
}
END_TEST

START_TEST(a_damaged_plan_makes_all_pass) {
  struct scene scene = _i ? four_processes : one_process;
  char path[128];
  snprintf(path, sizeof path, "%s/damaged.plan", nccl_plan_folder());
  FILE *file = fopen(path, "w");
  ck_assert(file && fputs("not a plan", file) > 0 && fclose(file) == 0);
  run(&scene);
  assert_all_pass("damaged.plan");
}
END_TEST

START_TEST(one_rank_that_fails_makes_all_pass) {
  struct scene scene = four_processes;
  failing_rank = 1;
  run(&scene);
  ck_assert_int_eq(n_inits, N);
  ck_assert_int_eq(fake_nccl_calls("AllReduce"), N);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: passed", "/nowhere"), 1); /* its own reason */
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: passed", "rank 1: "), N - 1);
  if (comms[1]) (void)copse_comm_destroy(comms[1]);
}
END_TEST

START_TEST(a_process_each_is_served) {
  struct scene scene = four_processes;
  scene.end_in_group = _i == 1;
  run(&scene);
  ck_assert_int_eq(n_inits, N);
  ck_assert_int_eq(n_barriers, N);
  ck_assert_int_eq(fake_nccl_calls("AllReduce"), 0);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: served by", ""), N);
}
END_TEST

START_TEST(several_hosts_are_served) {
  struct scene scene = four_processes;
  scene.hosts[1] = scene.hosts[2] = 7;
  run(&scene);
  ck_assert_int_eq(n_inits, N);
  ck_assert_int_eq(fake_nccl_calls("AllReduce"), 0);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: served by", ""), N);
  ck_assert_int_eq(nccl_logged("NCCL communicator of 4 ranks on 2 hosts", ""), N);
}
END_TEST

START_TEST(a_rank_on_another_host_without_plans_makes_all_pass) {
  struct scene scene = four_processes;
  scene.hosts[3] = 1;
  scene.folders[3] = "";
  run(&scene);
  ck_assert_int_eq(n_inits, 0);
  assert_all_pass("rank 3 has no COPSE_PLAN_DIR");
}
END_TEST

/* ---- NCCL's graph for the communicators that it fits
 * --------------------------------------------- */

#define NETS "<net dev=\"0\"/>"
#define TWO_GPUS "<gpu dev=\"0x1\"/><gpu dev=\"0\"/>"
#define GRAPH(parts)                                                      \
  "<graphs version=\"1\"><graph id=\"0\" nchannels=\"1\"><channel>" parts \
  "</channel></graph></graphs>"

/* A file beside the plans, for all ranks of a scene of two hosts with two processes each. */
static struct scene two_hosts(const char *name, const char *text) {
  static char path[128];
  struct scene scene = four_processes;
  snprintf(path, sizeof path, "%s/%s", nccl_plan_folder(), name);
  FILE *file = fopen(path, "w");
  ck_assert(file && fputs(text, file) > 0 && fclose(file) == 0);
  scene.hosts[2] = scene.hosts[3] = 5;
  for (int r = 0; r < N; r++) scene.graphs[r] = path;
  return scene;
}

static void assert_no_graph(const struct scene *scene, const char *reason) {
  (void)scene;
  ck_assert_int_eq(fake_nccl_calls("CommSplit"), 0);
  ck_assert_int_eq(nccl_logged("the graph of COPSE_NCCL_GRAPHS is not for it", reason), N);
}

START_TEST(a_graph_that_fits_is_nccl_s_while_it_makes_the_communicator) {
  struct scene scene = two_hosts("graph.xml", GRAPH(NETS TWO_GPUS NETS));
  if (_i) scene.folders[0] = ""; /* also where no call is served */
  run(&scene);
  ck_assert_int_eq(fake_nccl_calls("CommSplit"), N);
  ck_assert_str_eq(fake_nccl_graph_file(), scene.graphs[0]);
  ck_assert_ptr_null(__real_getenv("NCCL_GRAPH_FILE"));
  ck_assert_int_eq(nccl_logged("4 ranks: made again with the graph", ""), N);
  ck_assert_int_eq(fake_nccl_calls("CommDestroy"), 2 * N);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: served by", ""), _i ? 0 : N);
}
END_TEST

START_TEST(a_graph_of_other_hosts_is_left_out) {
  struct scene scene = two_hosts("graph.xml", GRAPH(NETS TWO_GPUS NETS));
  scene.hosts[2] = 0;
  run(&scene);
  assert_no_graph(&scene, "it is for 2 GPUs of a host, the host of rank 0 has 3 ranks");
}
END_TEST

START_TEST(a_graph_of_one_host_has_no_nics) {
  struct scene scene = two_hosts("graph.xml", GRAPH(TWO_GPUS));
  run(&scene);
  assert_no_graph(&scene, "has no NICs");
}
END_TEST

/* Hosts of two kinds have files of one set; another set's file is another graph. */
START_TEST(graphs_of_one_set_go_together) {
  const char *own =
      _i == 0 ? "<graphs version=\"1\" set=\"a1\">" : "<graphs version=\"1\" set=\"b2\">";
  static char text[300];
  static const char rest[] =
      "<graph id=\"0\" nchannels=\"1\"><channel>" NETS "<gpu dev=\"0\"/><gpu dev=\"0x1\"/>" NETS
      "</channel></graph></graphs>";
  struct scene scene = two_hosts(
      "first.xml",
      "<graphs version=\"1\" set=\"a1\"><graph id=\"0\" nchannels=\"1\"><channel>" NETS TWO_GPUS
          NETS "</channel></graph></graphs>");
  static char first[128];
  snprintf(first, sizeof first, "%s", scene.graphs[0]);
  snprintf(text, sizeof text, "%s%s", own, rest);
  struct scene other = two_hosts("second.xml", text);
  scene.graphs[0] = scene.graphs[1] = first;
  scene.graphs[2] = scene.graphs[3] = other.graphs[0];
  run(&scene);
  if (_i == 0)
    ck_assert_int_eq(fake_nccl_calls("CommSplit"), N);
  else
    assert_no_graph(&scene, "have different ones");
}
END_TEST

START_TEST(ranks_of_different_graphs_have_none) {
  struct scene scene = two_hosts("graph.xml", GRAPH(NETS TWO_GPUS NETS));
  scene.graphs[2] = NULL;
  run(&scene);
  assert_no_graph(&scene, "ranks 0 and 2 have different ones");
}
END_TEST

START_TEST(ranks_of_one_process_have_none) {
  struct scene scene = two_hosts("graph.xml", GRAPH(NETS TWO_GPUS NETS));
  memset(scene.processes, 0, sizeof scene.processes);
  run(&scene);
  assert_no_graph(&scene, "shares its process");
}
END_TEST

START_TEST(a_file_that_is_no_graph_is_none) {
  static const char *const texts[] = {GRAPH("<gpu dev=\"0x1\"/><gpu dev=\"0x2\"/>"),
                                      GRAPH("<gpu dev=\"0x1\"/><gpu dev=\"0x1\"/>"),
                                      GRAPH("<gpu dev=\"0xffffffffffffffff\"/>"), "<channel>", "x"};
  struct scene scene = two_hosts("graph.xml", texts[_i]);
  run(&scene);
  ck_assert_int_eq(fake_nccl_calls("CommSplit"), 0);
  ck_assert_int_eq(nccl_logged("WARN", "no graph of the GPUs 0 to n - 1"), N);
}
END_TEST

START_TEST(where_nccl_fails_with_it_the_communicator_stays) {
  struct scene scene = two_hosts("graph.xml", GRAPH(NETS TWO_GPUS NETS));
  fake_nccl_fail("CommSplit");
  run(&scene);
  ck_assert_int_eq(nccl_logged("WARN", "NCCL fails to make it with"), N);
  ck_assert_int_eq(nccl_logged("NCCL AllReduce: served by", ""), N);
  ck_assert_int_eq(fake_nccl_calls("CommDestroy"), N);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl/agree");
  TCase *tc = tcase_create("agree");
  tcase_add_checked_fixture(tc, nccl_setup, nccl_teardown);
  tcase_add_loop_test(tc, one_rank_without_plans_makes_all_pass, 0, 2);
  tcase_add_loop_test(tc, one_rank_with_an_unreadable_folder_makes_all_pass, 0, 2);
  tcase_add_loop_test(tc, one_rank_with_other_plans_makes_all_pass, 0, 2);
  tcase_add_loop_test(tc, one_rank_that_promises_more_makes_all_pass, 0, 2);
  tcase_add_test(tc, two_ranks_in_one_process_of_several_make_all_pass);
  tcase_add_loop_test(tc, a_damaged_plan_makes_all_pass, 0, 2);
  tcase_add_test(tc, one_rank_that_fails_makes_all_pass);
  tcase_add_loop_test(tc, a_process_each_is_served, 0, 2);
  tcase_add_test(tc, several_hosts_are_served);
  tcase_add_test(tc, a_rank_on_another_host_without_plans_makes_all_pass);
  suite_add_tcase(suite, tc);
  TCase *graphs = tcase_create("graphs");
  tcase_add_checked_fixture(graphs, nccl_setup, nccl_teardown);
  tcase_add_loop_test(graphs, a_graph_that_fits_is_nccl_s_while_it_makes_the_communicator, 0, 2);
  tcase_add_test(graphs, a_graph_of_other_hosts_is_left_out);
  tcase_add_test(graphs, a_graph_of_one_host_has_no_nics);
  tcase_add_loop_test(graphs, graphs_of_one_set_go_together, 0, 2);
  tcase_add_test(graphs, ranks_of_different_graphs_have_none);
  tcase_add_test(graphs, ranks_of_one_process_have_none);
  tcase_add_loop_test(graphs, a_file_that_is_no_graph_is_none, 0, 5);
  tcase_add_test(graphs, where_nccl_fails_with_it_the_communicator_stays);
  suite_add_tcase(suite, graphs);
  return copse_test_run(suite);
}
