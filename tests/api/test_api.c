/*
 * The public C API, through include/copse/copse.h alone, and an installed copy: header,
 * shared library, pkg-config file and manual page, as a user would build against them.
 */
#include "copse/copse.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

static const char ring[] =
    "{\"format\":\"copse-topology/1\",\"name\":\"ring\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
    "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"c\",\"type\":\"gpu\"}],\"links\":["
    "{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":10},{\"src\":\"b\",\"dst\":\"c\",\"bandwidth\":10},"
    "{\"src\":\"c\",\"dst\":\"a\",\"bandwidth\":10}]}";

static char dir[] = "/tmp/copse-api-XXXXXX";
static char path[256];

static const char *in_dir(const char *name) {
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return path;
}

static copse_topology *read_ring(void) {
  copse_topology *t;
  FILE *f = fopen(in_dir("ring.json"), "w");
  ck_assert_ptr_nonnull(f);
  fputs(ring, f);
  fclose(f);
  ck_assert_int_eq(copse_topology_read(in_dir("ring.json"), NULL, &t), COPSE_OK);
  ck_assert_int_eq(copse_topology_ranks(t), 3);
  return t;
}

START_TEST(the_chain_from_topology_to_proved_plan) {
  copse_topology *t = read_ring();
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLTOALL; c++) {
    copse_schedule *s, *back;
    copse_plan *plan, *again;
    int root = c == COPSE_BROADCAST || c == COPSE_REDUCE ? 1 : -1, optimal = 0;
    int64_t num, den;
    ck_assert_msg(copse_solve(t, (copse_collective)c, root, 0, &s) == COPSE_OK, "%s",
                  copse_last_error());
    ck_assert_int_eq(copse_schedule_write(s, in_dir("s.json")), COPSE_OK);
    ck_assert_int_eq(copse_schedule_read(in_dir("s.json"), &back), COPSE_OK);
    ck_assert_int_eq(copse_schedule_verify(back, t, &optimal), COPSE_OK);
    ck_assert_int_eq(optimal, c == COPSE_ALLREDUCE ? 2 : 1);
    copse_schedule_time(back, &num, &den);
    /* each rank takes in two of three shards over two links of 10 GB/s: 2/3 / 20 */
    if (c == COPSE_ALLGATHER) ck_assert(num == 1 && den == 30);
    ck_assert_int_eq(copse_lower(back, 0, &plan), COPSE_OK);
    ck_assert_int_eq(copse_plan_write(plan, in_dir("p.plan")), COPSE_OK);
    ck_assert_int_eq(copse_plan_load(in_dir("p.plan"), &again), COPSE_OK);
    ck_assert_int_eq(copse_plan_check(again), COPSE_OK);
    copse_plan_free(again);
    copse_plan_free(plan);
    copse_schedule_free(back);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

/* The ring's figures: 1/30 s per GB, two of three shards over each link of 10 GB/s. */
START_TEST(loads_predictions_and_texts_are_those_of_the_ring) {
  copse_topology *t = read_ring(), *named, *made;
  copse_schedule *s;
  copse_plan *plan;
  copse_link_load loads[4] = {{0}};
  const double bytes[] = {1e3, 1e9};
  double us[2];
  int64_t n;
  char *text, *again;
  ck_assert_int_eq(copse_solve(t, COPSE_ALLGATHER, -1, 0, &s), COPSE_OK);
  ck_assert_int_eq(copse_schedule_link_loads(s, t, NULL, 0, &n), COPSE_OK);
  ck_assert_int_eq(n, 6);
  ck_assert_int_eq(copse_schedule_link_loads(s, t, loads, 3, &n), COPSE_OK);
  for (int i = 0; i < 3; i++) {
    ck_assert(loads[i].load_num == 1 && loads[i].load_den == 3);
    ck_assert(loads[i].time_num == 1 && loads[i].time_den == 30);
  }
  ck_assert_str_eq(loads[0].src, "a");
  ck_assert_ptr_null(loads[3].src);
  ck_assert_int_eq(copse_lower(s, 0, &plan), COPSE_OK);
  ck_assert_int_eq(copse_plan_predict(plan, t, bytes, 2, us), COPSE_OK);
  ck_assert(us[0] > 0 && us[0] < us[1] && us[1] >= 1e6 / 30);
  ck_assert_int_eq(copse_plan_predict(plan, t, bytes, 0, us), COPSE_INVALID);
  ck_assert_int_eq(copse_topology_json(t, &text), COPSE_OK);
  ck_assert_int_eq(copse_topology_named("ring", dir, NULL, &named), COPSE_OK);
  ck_assert_int_eq(copse_topology_json(named, &again), COPSE_OK);
  ck_assert_str_eq(text, again);
  copse_string_free(text);
  copse_string_free(again);
  ck_assert_int_eq(copse_topology_named("../ring", dir, NULL, &made), COPSE_INVALID);
  ck_assert_ptr_null(made);
  ck_assert_int_eq(copse_topology_names("/no/such/folder", &text), COPSE_OK);
  ck_assert_str_eq(text, "");
  copse_string_free(text);
  ck_assert_int_eq(copse_topology_generate("ring:3@20", &made), COPSE_OK);
  ck_assert_int_eq(copse_schedule_link_loads(s, made, loads, 3, &n), COPSE_REFUTED);
  ck_assert_int_eq(copse_schedule_json(s, 1, &text), COPSE_OK);
  ck_assert_ptr_nonnull(strstr(text, "\"collective\": \"allgather\""));
  copse_string_free(text);
  copse_string_free(NULL);
  copse_plan_free(plan);
  copse_schedule_free(s);
  copse_topology_free(made);
  copse_topology_free(named);
  copse_topology_free(t);
}
END_TEST

START_TEST(errors_leave_null_and_a_text) {
  copse_topology *t = (copse_topology *)(uintptr_t)1;
  copse_schedule *s = (copse_schedule *)(uintptr_t)1;
  copse_plan *p = (copse_plan *)(uintptr_t)1;
  ck_assert_int_eq(copse_topology_read(in_dir("no-such-file"), NULL, &t), COPSE_IO);
  ck_assert_ptr_null(t);
  ck_assert_ptr_nonnull(strstr(copse_last_error(), "no-such-file"));
  ck_assert_int_eq(copse_schedule_read(in_dir("no-such-file"), &s), COPSE_IO);
  ck_assert_ptr_null(s);
  ck_assert_int_eq(copse_plan_load(in_dir("no-such-file"), &p), COPSE_IO);
  ck_assert_ptr_null(p);
  ck_assert_int_eq(copse_topology_read(NULL, NULL, &t), COPSE_INVALID);
  ck_assert_int_eq(copse_topology_read("x", "some", &t), COPSE_INVALID);
  ck_assert_int_eq(copse_topology_read("x", NULL, NULL), COPSE_INVALID);
  t = read_ring();
  ck_assert_int_eq(copse_solve(t, COPSE_BROADCAST, 3, 0, &s), COPSE_INVALID);
  ck_assert_ptr_null(s);
  ck_assert_int_eq(copse_solve(t, COPSE_BROADCAST, -1, 0, &s), COPSE_INVALID);
  ck_assert_int_eq(copse_solve(t, COPSE_ALLGATHER, 0, 0, &s), COPSE_INVALID);
  ck_assert_int_eq(copse_solve(t, COPSE_ALLGATHER, -1, -5, &s), COPSE_INVALID);
  ck_assert_int_eq(copse_solve(t, (copse_collective)99, -1, 0, &s), COPSE_INVALID);
  ck_assert_int_eq(copse_solve(NULL, COPSE_ALLGATHER, -1, 0, &s), COPSE_INVALID);
  copse_topology_free(t);
  copse_topology_free(NULL);
  copse_schedule_free(NULL);
  copse_plan_free(NULL);
  ck_assert_str_eq(copse_version(), COPSE_VERSION_STRING);
  for (int i = COPSE_OK; i <= COPSE_INTERNAL; i++)
    ck_assert_str_ne(copse_status_string((copse_status)i), "unknown status");
}
END_TEST

/* Requests and changes that the Python module, whose tests compare both with the command, can't
 * make. */
START_TEST(requests_and_changes_are_checked) {
  copse_topology *t = read_ring(), *made = (copse_topology *)(uintptr_t)1;
  copse_schedule *s = (copse_schedule *)(uintptr_t)1;
  const copse_request good = COPSE_REQUEST_INIT;
  copse_request r = good;
  const copse_fault_at faults[] = {{NULL, 0, 1}, {"a", 1, 0}, {"a", -1, 2}, {"a", 3, 2}};
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
    ck_assert_int_eq(copse_topology_change(t, &faults[f], 1, NULL, 0, &made), COPSE_INVALID);
  ck_assert_ptr_null(made);
  ck_assert_int_eq(copse_topology_change(t, NULL, 1, NULL, 0, &made), COPSE_INVALID);
  ck_assert_int_eq(copse_topology_change(NULL, NULL, 0, NULL, 0, &made), COPSE_INVALID);
  const copse_fault_at all_left = {"a", 2, 2};
  ck_assert_int_eq(copse_topology_change(t, &all_left, 1, NULL, 0, &made), COPSE_OK);
  ck_assert_int_eq(copse_topology_ranks(made), copse_topology_ranks(t));
  copse_topology_free(made);
  ck_assert_int_eq(copse_topology_change(t, NULL, 0, "0-1", 1, &made), COPSE_OK);
  ck_assert_int_eq(copse_topology_ranks(made), 2);
  copse_topology_free(made);
  r.size = 0;
  ck_assert_int_eq(copse_solve_request(t, &r, &s), COPSE_INVALID);
  ck_assert_ptr_null(s);
  r.size = sizeof r + 8;
  ck_assert_int_eq(copse_solve_request(t, &r, &s), COPSE_INVALID);
  r = good;
  r.tolerance_den = -1;
  ck_assert_int_eq(copse_solve_request(t, &r, &s), COPSE_INVALID);
  r = good;
  r.objective_bytes = NAN;
  ck_assert_int_eq(copse_solve_request(t, &r, &s), COPSE_INVALID);
  r = good;
  static const int64_t negative[9] = {0, -1}, nothing[9] = {0};
  const copse_request apart[] = {
      {.collective = COPSE_ALLGATHER, .no_forward = 1},
      {.collective = COPSE_ALLTOALL, .demand = negative},
      {.collective = COPSE_ALLTOALL, .demand = nothing},
      {.collective = COPSE_ALLTOALL, .on_routes = 1},
      {.collective = COPSE_ALLREDUCE, .on_routes = 1, .k = 1},
      {.collective = COPSE_ALLGATHER, .in_network = 1},
      {.collective = COPSE_ALLREDUCE, .in_network = 1, .objective_bytes = 8},
      {.collective = COPSE_ALLREDUCE, .in_network = 1, .k = 1},
      {.collective = COPSE_ALLGATHER, .k = 3, .objective_bytes = 1024},
      {.collective = COPSE_ALLTOALL, .k = 1},
      {.collective = COPSE_ALLGATHER, .k = 1, .tolerance_num = 1, .tolerance_den = 100}};
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
    r = apart[i];
    r.size = sizeof r;
    r.root = -1;
    ck_assert_int_eq(copse_solve_request(t, &r, &s), COPSE_INVALID);
    ck_assert_msg(!strstr(copse_last_error(), "--"), "options of the command: %s",
                  copse_last_error());
    if (r.on_routes) ck_assert_ptr_nonnull(strstr(copse_last_error(), "on_routes"));
    if (r.objective_bytes > 0)
      ck_assert_ptr_nonnull(strstr(copse_last_error(), "objective_bytes"));
  }
  r = good;
  r.size = offsetof(copse_request, tolerance_num); /* a caller of before */
  ck_assert_int_eq(copse_solve_request(t, &r, &s), COPSE_OK);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Three ranks in a ring are no two tiers: the planner wants offline paths, and splits by them. */
START_TEST(an_alltoallv_is_planned_at_run_time) {
  copse_topology *t = read_ring();
  copse_schedule *offline;
  copse_alltoallv *planner;
  copse_transfer hops[64];
  int64_t bytes[9] = {5, 1000, 1, 0, 7, 300, 64, 0, 9}, n, got[9] = {0};
  double bound, busiest, latest, predicted;
  ck_assert_int_eq(copse_solve(t, COPSE_ALLTOALL, -1, 0, &offline), COPSE_OK);
  ck_assert_int_eq(copse_alltoallv_create(t, NULL, &planner), COPSE_UNSUPPORTED);
  ck_assert_ptr_null(planner);
  ck_assert_int_eq(copse_alltoallv_create(t, offline, &planner), COPSE_OK);
  ck_assert_int_eq(copse_alltoallv_plan(planner, bytes), COPSE_OK);
  copse_alltoallv_bound(planner, &bound, &busiest);
  ck_assert(bound > 0 && bound <= busiest);
  copse_alltoallv_predicted(planner, &latest, &predicted);
  ck_assert(latest > bound && predicted > busiest && latest <= predicted);
  ck_assert(predicted > 2e-6); /* a hop at least */
  for (int rank = 0; rank < 3; rank++) {
    ck_assert_int_eq(copse_alltoallv_receives(planner, rank, hops, 64, &n), COPSE_OK);
    for (int64_t i = 0; i < n; i++)
      if (hops[i].to == hops[i].final) got[3 * hops[i].origin + hops[i].final] += hops[i].bytes;
  }
  ck_assert_mem_eq(got, bytes, sizeof got); /* every byte arrives once */
  ck_assert_int_eq(copse_alltoallv_sends(planner, 3, hops, 64, &n), COPSE_INVALID);
  ck_assert_int_eq(copse_alltoallv_sends(planner, 0, NULL, 0, &n), COPSE_OK);
  ck_assert_int_gt(n, 0);
  bytes[1] = -1;
  ck_assert_int_eq(copse_alltoallv_plan(planner, bytes), COPSE_INVALID);
  copse_alltoallv_free(planner);
  copse_alltoallv_free(NULL);
  copse_schedule_free(offline);
  copse_topology_free(t);
}
END_TEST

/* Much computing per byte: cutting hides the all-to-all. None at all: nothing is hidden, and
 * every further part costs latency, so one is best. */
START_TEST(the_degree_of_overlap_follows_the_computing) {
  copse_topology *t = read_ring();
  copse_schedule *s;
  copse_moe_layer layer = {64 << 20, 8192, 10, 0.5};
  int degree;
  double step, plain;
  ck_assert_int_eq(copse_solve(t, COPSE_ALLTOALL, -1, 0, &s), COPSE_OK);
  ck_assert_msg(copse_overlap_degree(t, s, &layer, &degree, &step, &plain) == COPSE_OK, "%s",
                copse_last_error());
  ck_assert_int_gt(degree, 1);
  ck_assert(step < plain);
  layer.alpha_us = layer.us_per_token = 0;
  layer.bytes = 3000;
  ck_assert_int_eq(copse_overlap_degree(t, s, &layer, &degree, &step, NULL), COPSE_OK);
  ck_assert_int_eq(degree, 1);
  layer.tokens = -1;
  ck_assert_int_eq(copse_overlap_degree(t, s, &layer, &degree, NULL, NULL), COPSE_INVALID);
  ck_assert_int_eq(copse_overlap_degree(t, NULL, &layer, &degree, NULL, NULL), COPSE_INVALID);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

static const char program[] =
    "#include <copse/copse.h>\n#include <stdio.h>\n#include <string.h>\n"
    "int main(int argc, char **argv) {\n"
    "  copse_topology *t; copse_schedule *s; int optimal;\n"
    "  if (argc != 2 || strcmp(copse_version(), COPSE_VERSION_STRING)) return 2;\n"
    "  if (copse_topology_read(argv[1], NULL, &t) || copse_solve(t, COPSE_ALLREDUCE, -1, 0, &s) "
    "||\n"
    "      copse_schedule_verify(s, t, &optimal)) return puts(copse_last_error()), 1;\n"
    "  copse_schedule_free(s); copse_topology_free(t);\n  return optimal != 2;\n}\n";

static int shell(const char *fmt, const char *a, const char *b) {
  char command[2048];
  snprintf(command, sizeof command, fmt, a, b);
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Only the release build is installed. */
START_TEST(an_installed_copy_builds_and_runs_a_program) {
  const char *bin = getenv("COPSE_BIN");
  if (bin && strcmp(bin, "build/copse") != 0) COPSE_SKIP("only the release build is installed");
  copse_topology_free(read_ring());
  FILE *f = fopen(in_dir("user.c"), "w");
  ck_assert_ptr_nonnull(f);
  fputs(program, f);
  fclose(f);
  ck_assert_int_eq(shell("make -s install PREFIX=%s/usr >%s/log 2>&1", dir, dir), 0);
  ck_assert_int_eq(
      shell("cd %s && PKG_CONFIG_PATH=%s/usr/lib/pkgconfig && export PKG_CONFIG_PATH && "
            "cc -Wall -Werror user.c -o user $(pkg-config --cflags --libs copse)",
            dir, dir),
      0);
  ck_assert_int_eq(shell("cd %s && LD_LIBRARY_PATH=%s/usr/lib ./user ring.json", dir, dir), 0);
  ck_assert_int_eq(shell("%s/usr/bin/copse topo %s/ring.json >/dev/null", dir, dir), 0);
  ck_assert_int_eq(shell("grep -q '^.TH COPSE 1' %s/usr/share/man/man1/copse.1 %s", dir, ""), 0);
  /* so does one that finds the library by itself, and one that has it inside */
  ck_assert_int_eq(
      shell(
          "cd %s && PKG_CONFIG_PATH=%s/usr/lib/pkgconfig && export PKG_CONFIG_PATH && cc user.c -o "
          "user $(pkg-config --cflags --libs copse) -Wl,-rpath,$(pkg-config --variable=libdir "
          "copse) && ./user ring.json && cc user.c -o user $(pkg-config --cflags copse) "
          "-l:libcopse.a $(pkg-config --static --libs copse | sed s/-lcopse//) && "
          "! ldd user | grep libcopse && ./user ring.json",
          dir, dir),
      0);
  /* documents link to what is installed */
  ck_assert_int_eq(
      shell("cd %s/usr/share/doc/copse && test -s topologies.md && for f in *.md; do for to in $("
            "grep -o '][(][^):]*[./][^):]*[)]' $f | sed 's/^](//; s/[#)].*//'); do test -e \"$to\" || "
            "{ echo $f: $to; exit 1; }; done; done",
            dir, ""),
      0);
  ck_assert_int_eq(shell("make -s uninstall PREFIX=%s/usr && test ! -e %s/usr/bin/copse", dir, dir),
                   0);
}
END_TEST

int main(void) {
  if (!mkdtemp(dir)) return EXIT_FAILURE;
  Suite *suite = suite_create("api/api");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, the_chain_from_topology_to_proved_plan);
  tcase_add_test(tc, loads_predictions_and_texts_are_those_of_the_ring);
  tcase_add_test(tc, errors_leave_null_and_a_text);
  tcase_add_test(tc, requests_and_changes_are_checked);
  tcase_add_test(tc, an_alltoallv_is_planned_at_run_time);
  tcase_add_test(tc, the_degree_of_overlap_follows_the_computing);
  tcase_add_test(tc, an_installed_copy_builds_and_runs_a_program);
  suite_add_tcase(suite, tc);
  int status = copse_test_run(suite);
  return shell("rm -rf %s %s", dir, "") == 0 ? status : EXIT_FAILURE;
}
