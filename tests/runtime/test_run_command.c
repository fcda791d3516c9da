/* `copse run` from outside: table, JSON, exit statuses. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/plan/plan.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

static char folder[] = "/tmp/copse-run-XXXXXX";

static const char *binary(void) {
  const char *path = getenv("COPSE_BIN");
  return path ? path : "build/copse";
}
#define NEED_BINARY() \
  if (access(binary(), X_OK) != 0) COPSE_SKIP("no %s", binary())

static char *slurp(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return copse_test_load(path, NULL);
}

struct outcome {
  int exit_status;
  char *out, *errors; /* valid until the next run */
};

/* Runs `copse run ARGUMENTS` in the folder of the plans. */
static struct outcome run(const char *arguments) {
  static struct outcome it;
  char command[1024], here[512];
  const char *bin = binary();
  ck_assert_ptr_nonnull(getcwd(here, sizeof here));
  snprintf(command, sizeof command, "cd %s && %s%s%s run %s >out 2>errors", folder,
           bin[0] == '/' ? "" : here, bin[0] == '/' ? "" : "/", bin, arguments);
  int status = system(command);
  ck_assert(WIFEXITED(status));
  free(it.out);
  free(it.errors);
  it = (struct outcome){WEXITSTATUS(status), slurp("out"), slurp("errors")};
  return it;
}

static void write_plan(struct copse_plan *plan, const char *name) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[256], *bytes;
  size_t size;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  ASSERT_OK(copse_plan_encode(plan, &bytes, &size, &err), &err);
  ASSERT_OK(copse_file_write(path, bytes, size, &err), &err);
  free(bytes);
  pb_free(plan);
}

static void setup(void) {
  ck_assert_ptr_nonnull(mkdtemp(folder));
  for (int c = 0; c < 6; c++) {
    copse_collective collective = (copse_collective)c;
    int32_t root = exec_case_root(collective, 4);
    write_plan(pb_tree_plan(collective, 4, root, PB_OPTIONS_DEFAULT),
               copse_collective_name(collective));
  }
}

static void teardown(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command) != 0) abort();
}

static int count_lines(const char *text) {
  int n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

static void expect_failure(const char *arguments, int exit_status, const char *text) {
  struct outcome it = run(arguments);
  ck_assert_msg(it.exit_status == exit_status, "%s: exit status %d, %s", arguments, it.exit_status,
                it.errors);
  ck_assert_msg(strstr(it.errors, text) != NULL, "%s: %s", arguments, it.errors);
  ck_assert_int_eq(count_lines(it.errors), 1);
  ck_assert_int_eq(strncmp(it.errors, "copse: ", 7), 0);
}

/* ---- the table ---------------------------------------------------------------------------- */

struct row {
  long long size, count;
  char type[16], redop[16];
  int root;
  double us[2], algbw[2], busbw[2], wrong[2];
};

/* The n-th line that isn't a comment. */
static bool read_row(const char *table, int n, struct row *r) {
  for (const char *line = table; line && *line;
       line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    if (*line == '#' || n-- > 0) continue;
    return sscanf(line, "%lld %lld %15s %15s %d %lf %lf %lf %lf %lf %lf %lf %lf", &r->size,
                  &r->count, r->type, r->redop, &r->root, &r->us[0], &r->algbw[0], &r->busbw[0],
                  &r->wrong[0], &r->us[1], &r->algbw[1], &r->busbw[1], &r->wrong[1]) == 13;
  }
  return false;
}

START_TEST(the_table_is_that_of_nccl_tests) {
  NEED_BINARY();
  struct outcome it = run("-b 1000 -e 64K -f 8 -n 2 allreduce");
  struct row r;
  ck_assert_int_eq(it.exit_status, 0);
  ck_assert_str_eq(it.errors, "");
  const long long sizes[] = {1000, 8000, 64000};
  for (int i = 0; i < 3; i++) {
    ck_assert(read_row(it.out, i, &r));
    ck_assert_int_eq(r.size, sizes[i]);
    ck_assert_int_eq(r.count, sizes[i] / 4);
    ck_assert_str_eq(r.type, "float");
    ck_assert_str_eq(r.redop, "sum");
    ck_assert_int_eq(r.root, -1);
    ck_assert(r.us[0] > 0 && r.us[1] > 0 && r.wrong[0] == 0 && r.wrong[1] == 0);
  }
  ck_assert(!read_row(it.out, 3, &r));
  ck_assert_ptr_nonnull(strstr(it.out,
                               "\n#       size         count      type   redop    root     time   "
                               "algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"));
  ck_assert_ptr_nonnull(strstr(it.out, "\n# Out of bounds values : 0 OK\n"));
  ck_assert_ptr_nonnull(strstr(it.out, "\n# Avg bus bandwidth    : "));
}
END_TEST

START_TEST(sizes_are_of_the_whole_message_and_round_down) {
  NEED_BINARY();
  const struct {
    const char *plan;
    long long size, count;
    const char *redop;
    int root;
  } cases[] = {{"allgather", 96, 12, "none", -1},
               {"reduce_scatter", 96, 12, "sum", -1},
               {"alltoall", 96, 12, "none", -1},
               {"broadcast", 102, 51, "none", 2},
               {"reduce", 102, 51, "sum", 2}};
  for (int i = 0; i < 5; i++) {
    char arguments[100];
    /* 103 bytes of half: 51 elements, or 4 times 12 bytes and more */
    snprintf(arguments, sizeof arguments, "-b 103 -e 103 -d half --out-of-place --json %s",
             cases[i].plan);
    struct outcome it = run(arguments);
    ck_assert_msg(it.exit_status == 0, "%s", it.errors);
    cJSON *json = cJSON_Parse(it.out);
    ck_assert_ptr_nonnull(json);
    cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "results"), 0);
    ck_assert_str_eq(cJSON_GetObjectItem(row, "redop")->valuestring, cases[i].redop);
    ck_assert_int_eq(cJSON_GetObjectItem(row, "root")->valueint, cases[i].root);
    ck_assert_int_eq(cJSON_GetObjectItem(row, "size")->valueint, cases[i].size);
    ck_assert_int_eq(cJSON_GetObjectItem(row, "count")->valueint, cases[i].count);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(row, "in_place")));
    cJSON_Delete(json);
  }
}
END_TEST

START_TEST(bus_bandwidth_has_the_factors_of_nccl_tests) {
  NEED_BINARY();
  const double factors[] = {0.75, 0.75, 1.5, 1, 1, 0.75}; /* by collective; 4 ranks */
  for (int c = 0; c < 6; c++) {
    char arguments[100];
    snprintf(arguments, sizeof arguments, "-b 64K -e 64K --json %s",
             copse_collective_name((copse_collective)c));
    struct outcome it = run(arguments);
    cJSON *json = cJSON_Parse(it.out);
    ck_assert_ptr_nonnull(json);
    cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "results"), 0);
    cJSON *half = cJSON_GetObjectItem(row, "out_of_place");
    double us = cJSON_GetObjectItem(half, "time_us")->valuedouble;
    double alg = cJSON_GetObjectItem(half, "algbw_GBps")->valuedouble;
    double bus = cJSON_GetObjectItem(half, "busbw_GBps")->valuedouble;
    ck_assert_double_eq_tol(alg, 65536 / us / 1e3, 1e-6 * alg);
    ck_assert_double_eq_tol(bus, factors[c] * alg, 1e-6 * alg);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(row, "in_place")) == (c == COPSE_ALLTOALL));
    cJSON_Delete(json);
  }
}
END_TEST

START_TEST(all_types_and_operations_run) {
  NEED_BINARY();
  struct outcome it = run("-b 0 -e 300 -i 300 -d all -o all -n 1 -w 0 --json reduce_scatter");
  ck_assert_int_eq(it.exit_status, 0);
  cJSON *json = cJSON_Parse(it.out);
  ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "results")), 12 * 5 * 2);
  ck_assert_int_eq(cJSON_GetObjectItem(json, "out_of_bounds")->valueint, 0);
  cJSON_Delete(json);
}
END_TEST

START_TEST(the_threads_backend_runs) {
  NEED_BINARY();
  struct outcome it = run("--backend threads -b 1K -e 64K -f 8 -d bfloat16 -o avg allreduce");
  ck_assert_msg(it.exit_status == 0, "%s", it.errors);
  ck_assert_ptr_nonnull(strstr(it.out, "backend threads"));
}
END_TEST

/* ---- failures ---------------------------------------------------------------------------- */

START_TEST(bad_usage_is_one_line_and_exit_status_2) {
  NEED_BINARY();
  static const char *const cases[][2] = {
      {"", "no plan given"},
      {"allreduce reduce", "more than one plan"},
      {"-b 2K -e 1K allreduce", "-b 2048 is larger than -e 1024"},
      {"-f 1 allreduce", "-f '1'"},
      {"-f 2.5 allreduce", "-f '2.5'"},
      {"-i 0 allreduce", "-i '0'"},
      {"-i 8 -f 2 allreduce", "-i or -f"},
      {"-b -8 allreduce", "-b '-8'"},
      {"-e 1X allreduce", "-e '1X'"},
      {"-e 99999999999999999999 allreduce", "-e '9999"},
      {"-e 1000000T allreduce", "-e '1000000T'"},
      {"-n 0 allreduce", "-n '0'"},
      {"-w nan allreduce", "-w 'nan'"},
      {"-d float16 allreduce", "-d 'float16'"},
      {"-o mean allreduce", "-o 'mean'"},
      {"--backend gpu allreduce", "no backend 'gpu'; there are cpu, threads, cuda, mpi and ucx"},
      {"--nonsense allreduce", "--nonsense"},
      {"-b", "needs a value"},
      {"/does/not/exist", "/does/not/exist: cannot open"},
      {"/", "/ is a folder; copse run takes a file: a plan"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    expect_failure(cases[i][0], 2, cases[i][1]);
}
END_TEST

START_TEST(a_damaged_plan_is_refused) {
  NEED_BINARY();
  char *plan = slurp("reduce"), path[256];
  struct copse_err err = COPSE_ERR_INIT;
  snprintf(path, sizeof path, "%s/damaged", folder);
  plan[200] ^= 4;
  ASSERT_OK(copse_file_write(path, plan, 1000, &err), &err);
  free(plan);
  expect_failure("damaged", 2, "copse: damaged: the plan has 1000 bytes");
  expect_failure("- <damaged", 2, "copse: <stdin>: the plan has 1000 bytes");
}
END_TEST

START_TEST(too_little_memory_is_told_before_anything_runs) {
  NEED_BINARY();
  expect_failure("-e 64M --max-memory 100M allreduce", 4, "; -e 8388608 fits");
  expect_failure("-e 200T allreduce", 4, "are available");
  ck_assert_str_eq(run("-e 64M --max-memory 100M allreduce").out, "");
}
END_TEST

START_TEST(wrong_elements_are_counted_and_fail_the_run) {
  NEED_BINARY();
  /* broadcast that stops half way */
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w = pb_worker(b, 0), half = pb_piece(b, 0, 1, 1, 2);
  pb_move(b, w, half, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_output(1, 0));
  write_plan(pb_finish(b), "half");
  struct outcome it = run("-b 4096 -e 4096 half");
  struct row r;
  ck_assert_int_eq(it.exit_status, 1);
  ck_assert(read_row(it.out, 0, &r));
  ck_assert_double_eq(r.wrong[0], 1024); /* 512 at each of two ranks */
  ck_assert_double_eq(r.wrong[1], 512);  /* in place the root has it all */
  ck_assert_ptr_nonnull(strstr(it.out, "# Out of bounds values : 1536 FAILED\n"));
  it = run("-b 4096 -e 4096 -c 0 half");
  ck_assert_int_eq(it.exit_status, 0);
  ck_assert_ptr_nonnull(strstr(it.out, "N/A"));
}
END_TEST

START_TEST(a_deadlock_fails_the_run_with_names) {
  NEED_BINARY();
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  pb_wait(b, w0, pb_channel(b, w1, w0), COPSE_WHEN_ALWAYS);
  write_plan(pb_finish(b), "stuck");
  expect_failure("-e 64 stuck", 1,
                 "copse: deadlock: rank 0 worker 0 waits for rank 1 worker 0 (channel 0, chunk 0), "
                 "which has finished");
}
END_TEST

START_TEST(help_has_an_example) {
  NEED_BINARY();
  struct outcome it = run("--help");
  ck_assert_int_eq(it.exit_status, 0);
  ck_assert_ptr_nonnull(strstr(it.out, "example: copse run "));
}
END_TEST

/* ---- a profile ---------------------------------------------------------------------------- */

/* Of `copse simulate --json`: what it says of a size, us. */
static double simulated_us(const char *bytes) {
  char command[1280];
  const char *bin = binary(), *key = "{\"plan\": {\"time\": ";
  char here[512];
  ck_assert_ptr_nonnull(getcwd(here, sizeof here));
  snprintf(
      command, sizeof command,
      "cd %s && %s%s%s simulate allgather --synthetic switch:4@10 --profile p.json -b %s -e %s "
      "--no-baselines --json >out 2>errors",
      folder, bin[0] == '/' ? "" : here, bin[0] == '/' ? "" : "/", bin, bytes, bytes);
  ck_assert_int_eq(system(command), 0);
  char *text = slurp("out"), *at = strstr(text, key);
  ck_assert_ptr_nonnull(at);
  double us = atof(at + strlen(key));
  free(text);
  return us;
}

/* What is measured is fitted and written, and `copse simulate` gives with it what run says. */
START_TEST(times_make_a_profile_that_simulate_takes) {
  NEED_BINARY();
  struct outcome it = {.exit_status = -1};
  for (int tries = 0; tries < 10 && it.exit_status != 0; tries++) { /* busy: times tell nothing */
    it =
        run("-b 4K -e 16M -f 4096 -n 3 --backend threads allgather --synthetic "
            "switch:4@10 --write-profile p.json --json");
    if (!strstr(it.errors, "times")) break;
  }
  ck_assert_msg(it.exit_status == 0, "%s", it.errors);
  ck_assert_ptr_nonnull(strstr(it.errors, "; the profile is fitted to the one given"));
  cJSON *said = cJSON_Parse(it.out);
  const cJSON *profile = cJSON_GetObjectItem(said, "profile"), *row;
  const cJSON *results = cJSON_GetObjectItem(said, "results");
  int n = 0;
  ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(profile, "file")), "p.json");
  cJSON_ArrayForEach(row, cJSON_GetObjectItem(profile, "sizes")) {
    const cJSON *result = cJSON_GetArrayItem(results, n);
    double us = cJSON_GetNumberValue(cJSON_GetObjectItem(row, "simulated_us"));
    ck_assert_double_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "measured_us")),
                        cJSON_GetNumberValue(cJSON_GetObjectItem(
                            cJSON_GetObjectItem(result, "out_of_place"), "time_us")));
    ck_assert_double_eq_tol(simulated_us(n == 0 ? "4K" : "16M"), us, 1e-3 * us);
    n++;
  }
  ck_assert_int_eq(n, 2);
  cJSON_Delete(said);
  char *text = slurp("p.json");
  ck_assert_ptr_nonnull(strstr(text, "copse run allgather (allgather of "));
  ck_assert_ptr_nonnull(strstr(text, "2 sizes from 4096 to 16777216 bytes"));
  ck_assert_ptr_nonnull(strstr(text, "not measured: message_us, reduce_GBps, duplex"));
  free(text);
}
END_TEST

START_TEST(what_makes_no_profile_is_said_before_it_is_measured) {
  NEED_BINARY();
#define WRITES "--write-profile q.json "
#define WITH "--backend threads --synthetic switch:4@10 " WRITES
  expect_failure("allgather " WRITES, 2, "go together");
  expect_failure("allgather --synthetic switch:4@10", 2, "go together");
  expect_failure("allgather --synthetic switch:4@10 " WRITES, 2, "one thread for all ranks");
  expect_failure("allgather --profile p.json " WITH, 2, "measures what --profile says");
  expect_failure("allreduce -o all " WITH, 2, "one -d and one -o");
  expect_failure("allgather -i 8 " WITH, 2, "2 to 64 sizes");
  expect_failure("allgather --backend threads --synthetic switch:5@10 " WRITES, 2,
                 "the plan is for 4 ranks, and switch:5@10 has 5");
  struct outcome it = run("allgather -b 64 -e 64 -n 1 " WITH);
  ck_assert_int_eq(it.exit_status, 2);
  ck_assert_ptr_nonnull(strstr(it.errors, "one size does not tell"));
  ck_assert_str_eq(it.out, "");
  ck_assert_int_eq(access("q.json", F_OK), -1);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/run_command");
  TCase *tc = tcase_create("run_command");
  tcase_add_unchecked_fixture(tc, setup, teardown);
  tcase_add_test(tc, the_table_is_that_of_nccl_tests);
  tcase_add_test(tc, sizes_are_of_the_whole_message_and_round_down);
  tcase_add_test(tc, bus_bandwidth_has_the_factors_of_nccl_tests);
  tcase_add_test(tc, all_types_and_operations_run);
  tcase_add_test(tc, the_threads_backend_runs);
  tcase_add_test(tc, bad_usage_is_one_line_and_exit_status_2);
  tcase_add_test(tc, a_damaged_plan_is_refused);
  tcase_add_test(tc, too_little_memory_is_told_before_anything_runs);
  tcase_add_test(tc, wrong_elements_are_counted_and_fail_the_run);
  tcase_add_test(tc, a_deadlock_fails_the_run_with_names);
  tcase_add_test(tc, help_has_an_example);
  tcase_add_test(tc, times_make_a_profile_that_simulate_takes);
  tcase_add_test(tc, what_makes_no_profile_is_said_before_it_is_measured);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
