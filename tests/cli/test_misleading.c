/* What could be taken for something else: links listed twice, tolerances of 100 %, paths that fall
 * back to names, folders of plans that are not finished, verdicts of another topology. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result

static void expect(const char *where, const char *part) {
  ck_assert_msg(strstr(where, part) != NULL, "\"%s\" lacks \"%s\"", where, part);
}

#define BOTH(rest)                                                                       \
  "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},\n" \
  "{\"id\": \"b\", \"type\": \"gpu\"}], \"links\": [\n"                                  \
  "{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 25" rest                              \
  "},\n"                                                                                 \
  "{\"src\": \"b\", \"dst\": \"a\", \"bandwidth\": 25" rest "}]}"

START_TEST(links_listed_both_ways_must_say_what_they_are) {
  copse_test_write("both.json", BOTH(""));
  copse_test_refused(run("@ topo %%/both.json"),
                     "both.json:4: \"b\" to \"a\" has a link, and so has "
                     "the way back (line 3)");
  expect(result.err, "\"duplex\": false for one direction each");
  expect(result.err, "list the pair once for both directions");
  copse_test_write("one.json", BOTH(", \"duplex\": false"));
  ck_assert_int_eq(run("@ topo %%/one.json --json"), 0);
  expect(result.out, "\"bandwidth_GBps\": 50");
  copse_test_write("two.json", BOTH(", \"duplex\": true"));
  ck_assert_int_eq(run("@ topo %%/two.json --json"), 0);
  expect(result.out, "\"bandwidth_GBps\": 100");
}
END_TEST

START_TEST(a_bare_tolerance_of_one_is_refused) {
  static const char *const cases[][2] = {
      {"solve dgx-a100 -c allgather --tolerance 1", "for per cent write 1%"},
      {"solve dgx-a100 -c allgather --tolerance 1.5", "must be below it, such as 0.01"},
      {"solve dgx-a100 -c allgather --tolerance 1e2", "must be below it"}};
  char *first;
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
  ck_assert_int_eq(run("@ solve a100-x2 -c allgather --tolerance $(printf '1\\045') -o %%/a.json"),
                   0);
  first = copse_test_read("a.json");
  ck_assert_int_eq(run("@ solve a100-x2 -c allgather --tolerance 0.01 -o %%/b.json"), 0);
  char *second = copse_test_read("b.json");
  ck_assert_str_eq(first, second);
  free(first);
  free(second);
}
END_TEST

/* Fewer trees than the default has are slower, each number of them; -e 0% means the same. */
START_TEST(the_default_has_the_fewest_trees_at_the_optimum) {
  char *at;
  ck_assert_int_eq(run("@ solve a100-x2 -c allgather --json -o %%/d.json"), 0);
  ck_assert_ptr_nonnull(at = strstr(result.out, "\"k\": "));
  int k = atoi(at + 5);
  expect(result.out, "\"time_per_GB\": \"3/1040\"");
  ck_assert_int_gt(k, 1);
  for (int fewer = 1; fewer < k; fewer++) {
    ck_assert_int_eq(run("@ solve a100-x2 -c allgather --k %d --json", fewer), 0);
    expect(result.out, "\"optimal\": false");
  }
  ck_assert_int_eq(run("@ solve a100-x2 -c allgather --tolerance $(printf '0\\045') -o %%/z.json"), 0);
  char *first = copse_test_read("d.json"), *second = copse_test_read("z.json");
  ck_assert_str_eq(first, second);
  free(first);
  free(second);
}
END_TEST

/* Ranks at g0 by 5 GB/s each, and at each other by a third of one: by hand equal shares take 1/4
 * s/GB, and 29, 1 and 1 of 31 parts 6/31. */
START_TEST(equal_shares_are_no_optimum_where_unequal_ones_are_faster) {
  copse_test_write(
      "three.json",
      "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"g0\", \"type\": \"gpu\"},"
      "{\"id\": \"g1\", \"type\": \"gpu\"}, {\"id\": \"g2\", \"type\": \"gpu\"}], \"links\": ["
      "{\"src\": \"g0\", \"dst\": \"g1\", \"bandwidth\": 5},"
      "{\"src\": \"g0\", \"dst\": \"g2\", \"bandwidth\": 5},"
      "{\"src\": \"g1\", \"dst\": \"g2\", \"bandwidth\": \"1/3\"}]}");
  ck_assert_int_eq(run("@ solve %%/three.json -c allreduce --compact --json"), 0);
  expect(result.out, "\"time_per_GB\": \"1/4\"");
  expect(result.out, "\"bound_time_per_GB\": \"6/31\", \"bound_kind\": \"forests\"");
  expect(result.out,
         "\"optimal\": false, \"phases_optimal\": false, \"forests_optimal\": false, "
         "\"gap_percent\": 29.16666667");
  ck_assert_int_eq(run("@ solve %%/three.json -c allreduce --compact -o %%/three-s.json"), 0);
  expect(result.out, "less than 0.193548 s/GB; this is 29.2 % above it");
  ck_assert_int_eq(run("@ verify %%/three-s.json -t %%/three.json --json"), 0);
  expect(result.out, "\"forests_optimal\": false");
}
END_TEST

START_TEST(only_bare_names_are_of_the_catalogue) {
  static const char *const cases[][2] = {
      {"topo /nonexistent/dgx-h100", "/nonexistent/dgx-h100: cannot open"},
      {"topo ./dgx-h100", "./dgx-h100: cannot open"},
      {"solve elsewhere/dgx1-v100 -c allgather", "elsewhere/dgx1-v100: cannot open"},
      {"topo %/c.json", "\"host\": "}};
  copse_test_write("c.json",
                   "{\"format\": \"copse-cluster/1\", \"host\": \"sub/dgx-h100\", "
                   "\"hosts\": 2, \"fabric\": {\"type\": \"flat\", \"bandwidth\": 50}}");
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
  ck_assert_int_eq(run("@ topo dgx-h100"), 0);
  /* a host's bare name is one of the catalogue where no such file lies beside the document, also
   * where one lies in the current folder */
  copse_test_write("d.json",
                   "{\"format\": \"copse-cluster/1\", \"host\": \"dgx-h100\", "
                   "\"hosts\": 2, \"fabric\": {\"type\": \"flat\", \"bandwidth\": 50}}");
  ck_assert_int_eq(run("@ topo %%/d.json"), 0);
  expect(result.out, "16 ranks");
}
END_TEST

/* The folder appears whole, at the end. What SIGINT and SIGTERM end leaves nothing at all. */
static void interrupt_plans(const int signals[2]) {
  char set[300], inside[300];
  int status;
  snprintf(set, sizeof set, "%s/killed", copse_test_folder());
  snprintf(inside, sizeof inside, "%s/killed-inside", copse_test_folder());
  ck_assert_int_eq(run("mkdir -p %%/killed-inside"), 0);
  for (int i = 0; i < 2; i++) {
    const char *output = i ? inside : set;
    pid_t child = fork();
    if (child == 0) {
      ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
      signal(SIGINT, SIG_DFL); /* ignored where a shell put this test into the background */
      execl(getenv("COPSE_BIN"), "copse", "plans", "--synthetic",
            "hosts:2 gpus:2@300 nics:2@25 rails", "-c",
            "allgather,reduce_scatter,allreduce,broadcast,reduce,alltoall", "-o", output, (char *)NULL);
      _exit(127);
    }
    int tries = 0; /* until there is a first plan somewhere */
    while (run("find %%/ -path '*making-*' -name '*.plan' | grep .") != 0 && tries++ < 600)
      usleep(50000);
    ck_assert(access(set, F_OK) != 0);
    ck_assert(run("ls %%/killed-inside/*.plan") != 0);
    kill(child, signals[i]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
    ck_assert_msg(tries < 600, "no plan was made");
    if (signals[i] != SIGKILL)
      ck_assert(run("ls -d %%/killed.making-* %%/killed-inside/.making-*") != 0 && result.out[0] == '\0');
    ck_assert(access(set, F_OK) != 0);
    ck_assert(run("ls %%/killed-inside/*.plan") != 0);
    run("rm -rf %%/killed.making-* %%/killed-inside/.making-*");
  }
}

START_TEST(an_interrupted_plans_leaves_nothing_that_loads) {
  interrupt_plans((const int[2]){SIGKILL, SIGTERM});
  if (COPSE_TEST_SWEEPS) interrupt_plans((const int[2]){SIGINT, SIGKILL});
  ck_assert_int_eq(run("@ plans --search 0.05 --synthetic ring:3@50 -c broadcast -r 0 -o %%/killed/"), 0);
  ck_assert_int_eq(run("ls %%/killed/index.json %%/killed/*.plan"), 0);
  ck_assert_int_eq(run("@ plans --search 0.05 --synthetic ring:3@50 -c broadcast -r 0 -o %%/killed-inside"), 0);
  ck_assert_int_eq(run("ls %%/killed-inside/index.json %%/killed-inside/*.plan"), 0);
  ck_assert_int_eq(
      run("test -z \"$(ls -A %% | grep making)$(ls -A %%/killed-inside | grep making)\""), 0);
}
END_TEST

/* Every way of failing leaves no folder of its own. */
START_TEST(plans_that_fail_leave_nothing) {
  copse_test_write("file", "");
  copse_test_refused(run("@ plans ring-8 -c broadcast -r 0 -o %%/file"), "cannot be made a folder");
  copse_test_refused(run("@ plans ring-8 -c broadcast -r 0 -o %%/no/such"),
                     "cannot be made a folder");
  ck_assert_int_eq(run("mkdir %%/old && touch %%/old/x.plan"), 0);
  copse_test_refused(run("@ plans ring-8 -c broadcast -r 0 -o %%/old"), "holds plans already");
  ck_assert_int_eq(run("test -z \"$(ls -A %% | grep making)$(ls -A %%/old | grep making)\""), 0);
}
END_TEST

START_TEST(a_loop_of_links_is_refused_and_stays) {
  ck_assert_int_eq(run("ln -s two %%/one && ln -s one %%/two && ln -s later %%/now"), 0);
  copse_test_refused(run("@ topo ring-8 -o %%/one >/dev/null"), "cannot write: Too many levels");
  ck_assert_int_eq(run("test -L %%/one && test -L %%/two"), 0);
  ck_assert_int_eq(run("@ topo ring-8 -o %%/now"), 0); /* a link to a file that isn't there yet */
  ck_assert_int_eq(run("test -L %%/now && test -s %%/later"), 0);
}
END_TEST

START_TEST(a_worse_topology_has_no_better_bound) {
  static const char line[] = "{\"format\": \"copse-synthetic/1\", \"synthetic\": \"ring:4@%s\"}";
  char text[100];
  run("mkdir -p %%/q");
  snprintf(text, sizeof text, line, "100");
  copse_test_write("q/t.json", text);
  ck_assert_int_eq(run("@ quality %%/q --table %%/q.txt -c allgather --update"), 0);
  snprintf(text, sizeof text, line, "50");
  copse_test_write("q/t.json", text);
  ck_assert_int_eq(run("@ quality %%/q --table %%/q.txt -c allgather"), 1);
  expect(result.out, "worse    bound 0.00375 -> 0.0075 s/GB (+100 %)");
  expect(result.out, "another topology than when the table was written\n        worse"); /* first */
  ck_assert_ptr_null(strstr(result.out, "better   bound"));
}
END_TEST

START_TEST(verify_knows_what_was_down) {
  static const struct {
    const char *faults, *said;
  } cases[] = {
      {"--down h0.nic0", ": add --down h0.nic0 ("},
      {"--down h0.gpu1 --derate h1.nic3=0.5", ": add --down h0.gpu1 --derate h1.nic3=50% ("},
      {"--down 'h0.gpu0>h0.nvswitch'", ": add --down 'h0.gpu0>h0.nvswitch' ("}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *faults = cases[i].faults;
    ck_assert_int_eq(run("@ solve a100-x2 -c allgather %s -o %%/f.json", faults), 0);
    ck_assert_int_eq(run("@ verify %%/f.json -t a100-x2"), 1);
    expect(result.err, cases[i].said);
    expect(result.err, "f.json: it was made for a100-x2 with parts down or slower"); /* cause first */
    ck_assert_int_eq(run("@ verify %%/f.json -t a100-x2 %s", faults), 0);
    ck_assert_int_eq(run("@ verify %%/f.json -t dgx-a100"), 1); /* another: no advice */
    ck_assert_ptr_null(strstr(result.err, "add --"));
    expect(result.err, "f.json: it was made for another topology (a100-x2 with");
  }
}
END_TEST

/* A schedule's paths go round what is down, a plan's messages on the fabric's own routes. */
START_TEST(what_a_failure_costs_a_plan_is_said) {
  ck_assert_int_eq(run("@ solve dgx1-v100 -c allreduce --down 'gpu0>gpu1'"), 0);
  expect(result.out, "\nas a plan it takes ");
  expect(result.out, "ranks send over the fabric's own routes, not the schedule's paths");
  ck_assert_int_eq(run("@ solve dgx1-v100 -c allreduce --down 'gpu0>gpu1' --json"), 0);
  expect(result.out, "\n \"plan\": {\"time_per_GB\": \"");
  expect(result.out, "\"why\": \"as a plan it takes ");
  ck_assert_int_eq(run("@ solve a100-x2 -c allreduce --down h0.nic3"), 0);
  ck_assert_ptr_null(strstr(result.out, "as a plan"));
}
END_TEST

/* --in-network is for marked switches; the starter topology has one, the catalogue's A100 none. */
START_TEST(in_network_without_a_marked_switch_is_remarked_on) {
  ck_assert_int_eq(run("@ solve dgx-a100 -c allreduce --in-network"), 0);
  expect(result.err, "no switch is marked \"multicast\" or \"aggregation\": --in-network changes nothing");
  ck_assert_int_eq(run("@ topo --example topology -o %%/marked.json && "
                       "@ solve %%/marked.json -c allreduce --in-network"),
                   0);
  ck_assert_str_eq(result.err, "");
}
END_TEST

/* A command in ever more memory, until it has enough: too little is said before it starts, with
 * the bytes. These are about what it then turns out to take of the limit, of which arrays that grow
 * take more than they use. */
static void check_too_little(const char *command, int step, const char *what, const char *mend) {
  double bytes = 0, available = 0, lacks;
  int said = 0, status = 1, kib = 40000;
  for (; kib <= 300000 && status != 0; kib += step) {
    status = run("ulimit -v %d; %s", kib, command);
    const char *at = strstr(result.err, what);
    if (!at || said > 0) continue;
    ck_assert_int_eq(status, 4);
    expect(result.err, mend);
    ck_assert_int_eq(
        sscanf(at + strlen(what), " %lf bytes of memory, and %lf are", &bytes, &available), 2);
    said = kib;
  }
  ck_assert_int_eq(status, 0);
  ck_assert_msg(said > 0, "%s: %s", command, what);
  lacks = (kib - step - said) * 1024.0 + available;
  ck_assert_msg(bytes < 2 * lacks && lacks < 2.5 * bytes, "%s: says %.0f bytes, and takes %.0f",
                command, bytes, lacks);
}

/* Loop: cases. */
static const struct {
  const char *collective, *hosts, *make, *command; /* after solve and make */
  int step;
  const char *what, *mend;
} too_little[] = {
    {"allreduce", "16", "@ lower %/s.json --to plan -o %/s.plan", "@ check %/s.plan", 10000,
     "s.plan: the proof of 296704 operations takes about", "a plan of fewer --instances, would do"},
    {"alltoall", "32", "true", "@ lower %/s.json --to plan -o %/s.plan", 10000,
     "s.json: the plan of 65280 flows takes about", "a schedule of fewer ranks, would do"},
    {"allgather", "16", "true", "@ lower %/s.json --to plan -o %/s.plan", 5000,
     "the plan of 512 pieces takes about", "or fewer --instances, would do"},
    {"reduce_scatter", "8", "true", "@ lower %/s.json --to plan -I 8 -o %/s.plan", 5000,
     "s.json: the plan of 64 trees takes about", "a schedule of fewer ranks, would do"},
    {"allgather", "32", "@ topo --synthetic 'hosts:32 gpus:8@300 nics:8@25 rails' -o %/t.json",
     "@ verify %/s.json -t %/t.json", 2000, "s.json: what is listed in it takes about",
     "a schedule of fewer ranks, would do"},
    {"allgather", "32", "gzip -c %/s.json >%/z", "@ expand %/z -o /dev/null", 2000,
     "z: reading it takes about", "more memory would do"},
};

START_TEST(what_will_not_fit_says_so) {
  if (COPSE_TEST_SANITIZED) return; /* shadow memory leaves no room for a limit */
  ck_assert_int_eq(run("@ solve --synthetic 'hosts:%s gpus:8@300 nics:8@25 rails' -c %s -o "
                       "%%/s.json",
                       too_little[_i].hosts, too_little[_i].collective),
                   0);
  ck_assert_int_eq(run("%s", too_little[_i].make), 0);
  check_too_little(too_little[_i].command, too_little[_i].step, too_little[_i].what,
                   too_little[_i].mend);
}
END_TEST

/* 64 ranks on a switch with ids of so many bytes: each of the 64 * 63 edges of an allgather's trees
 * names three nodes, two of them by such ids. */
static void write_long_ids(size_t bytes) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  char *x = malloc(bytes + 1);
  ck_assert_ptr_nonnull(x);
  memset(x, 'x', bytes);
  x[bytes] = '\0';
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"nodes\": [");
  for (int i = 0; i < 64; i++)
    copse_text_add(&text, "{\"id\": \"%02d%s\", \"type\": \"gpu\"},", i, x);
  copse_text_add(&text, "{\"id\": \"s\", \"type\": \"switch\"}], \"links\": [");
  for (int i = 0; i < 64; i++)
    copse_text_add(&text, "%s{\"src\": \"%02d%s\", \"dst\": \"s\", \"bandwidth\": 10}",
                   i > 0 ? "," : "", i, x);
  copse_text_add(&text, "]}");
  copse_test_write("long.json", text.data);
  free(x);
}

/* The size is said before anything is written: here nothing can be, for files may not grow. Beyond
 * what copse reads nothing is tried. */
START_TEST(a_large_schedule_is_announced) {
  double gigabytes = 0;
  write_long_ids(35000);
  int status = run("ulimit -f 2; @ solve %%/long.json -c allgather -o %%/l.json");
  ck_assert_int_eq(status, 2);
  expect(result.err, "l.json: cannot write: File too large");
  const char *at = strstr(result.err, "l.json: 0.");
  ck_assert_msg(at && sscanf(at, "l.json: %lf GB are written; as FILE.gz", &gigabytes) == 1, "%s",
                result.err);
  ck_assert(gigabytes * 1e9 > 64 * 63 * 2 * 35000.0 && gigabytes * 1e9 < 64 * 67 * 2 * 35000.0);
  ck_assert(!copse_test_exists("l.json"));
  ck_assert_int_eq(run("@ solve %%/long.json -c broadcast -r 0 -o %%/l.json"), 0);
  ck_assert_str_eq(result.err, "");
  if (!COPSE_TEST_SWEEPS) return;
  write_long_ids(140000);
  ck_assert_int_eq(run("@ solve %%/long.json -c allgather -o %%/m.json"), 4);
  expect(result.err, "m.json: would have 1.1 GB, more than copse reads (1 GiB); --k 1 or");
  ck_assert(!copse_test_exists("m.json"));
}
END_TEST

/* From a compact schedule of 1 MB, and before its 4,096 trees are listed. */
START_TEST(a_plan_larger_than_a_file_is_refused) {
  ck_assert_int_eq(run("@ solve --synthetic 'hosts:512 gpus:8@300 nics:8@25 rails' -c allgather -o "
                       "%%/h.json"),
                   0);
  ck_assert_int_eq(run("ulimit -v %s; @ lower %%/h.json --to plan -o %%/h.plan",
                       COPSE_TEST_SANITIZED ? "unlimited" : "100000"),
                   4);
  expect(result.err, "h.json: the plan of 4096 trees of 4096 ranks takes over 1535 MiB, and a "
                     "plan's file at most 1024; a schedule of fewer ranks would do");
}
END_TEST

/* What is surely mistyped has one note, which names the link and the likely mistake; what machines
 * print and the catalogue has none. */
START_TEST(mistyped_topologies_are_remarked_on) {
  static const struct {
    const char *topology, *note, *also;
  } cases[] = {
      {"hosts:4 gpus:8@300 nics:8@400 rails",
       "h0.nic0 -> rail0 has 400 GB/s (and 31 links alike), 1.6 Tb/s or more",
       "400 Gb/s are 50 GB/s"},
      {"hosts:4 gpus:8@300 nics:8@200 rails", "h0.nic0 -> rail0 has 200 GB/s (and 31 links alike)",
       "Gb/s typed for GB/s?"},
      {"hosts:4 gpus:8@300 nics:4@400 rails", "h0.nic0 -> rail0 has 400 GB/s (and 15 links alike)",
       "Gb/s typed for GB/s?"},
      {"hosts:2 gpus:4@300 nics:4@50 clos:8/2", "a leaf joins 8 hosts, and there are 2",
       "one leaf"},
      {"hosts:4 gpus:4@300 nics:4@50 clos:2/0.5",
       "oversubscription 0.5: leaves send up more than they take in", "half as much up, is 2"},
      {"hosts:5 gpus:4@300 nics:4@50 clos:2/2", "5 hosts on leaves of 2: the last leaf joins 1",
       "as much narrower"},
      {"ring:4@0.0001", "gpu0 -> gpu1 has 0.0001 GB/s (and 7 links alike), less than 8 Mb/s",
       "bandwidth is in GB/s"},
      {"full:4@25000000000", "more than any link; bandwidth is in GB/s", "gpu0 -> gpu1"},
      {"hosts:4 gpus:8@300 nics:8@25 clos:2/2", NULL, NULL},
      {"hosts:2 gpus:8@900 nics:8@100 rails", NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_int_eq(run("@ topo --synthetic '%s'", cases[i].topology), 0);
    const char *line = strchr(result.err, '\n'); /* no more than one */
    ck_assert_msg(cases[i].note ? line && !line[1] : !line, "%s", result.err);
    if (cases[i].note) expect(result.err, cases[i].note);
    if (cases[i].note) expect(result.err, cases[i].also);
  }
  copse_test_write("wide.json",
                   "{\"format\": \"copse-cluster/1\", \"host\": \"dgx-h100\", \"hosts\": 4,\n"
                   "\"fabric\": {\"type\": \"flat\", \"bandwidth\": 400}}");
  ck_assert_int_eq(run("@ topo %%/wide.json"), 0);
  expect(result.err,
         "wide.json: h0.nic0 -> fabric has 400 GB/s (and 31 links alike), and its NIC 63 "
         "GB/s within the host; Gb/s typed for GB/s?");
  copse_test_write(
      "types.json",
      "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},\n"
      "{\"id\": \"b\", \"type\": \"GPU\"}, {\"id\": \"c\", \"type\": \"Switch\"}], \"links\": [\n"
      "{\"src\": \"a\", \"dst\": \"c\", \"bandwidth\": 25},\n"
      "{\"src\": \"b\", \"dst\": \"c\", \"bandwidth\": 25}]}");
  ck_assert_int_eq(run("@ topo %%/types.json"), 0);
  expect(result.err,
         "types.json: 1 node, b first, has type \"GPU\", a relay as any unknown type is: "
         "write \"gpu\"");
  expect(result.err, "write \"switch\"");
  ck_assert_int_eq(
      run("@ topo --list >%%/list; for t in $(cut -d ' ' -f 1 %%/list) tests/data/dumps/*.xml; do "
          "@ topo $t 2>&1 >%%/summary && echo read $t; done >%%/all; grep -c ^read %%/all"),
      0);
  ck_assert_msg(atoi(result.out) > 60, "%s", result.out);
  ck_assert_int_eq(run("grep 'typed\\|bandwidth is in\\|a leaf joins\\| type ' %%/all"), 1);
}
END_TEST

/* M is the largest row with its diagonal: where that is most of it, rates say little of links. */
START_TEST(a_diagonal_that_is_most_of_m_is_remarked_on) {
  copse_test_write("d.json",
                   "{\"format\": \"copse-demand/1\", \"bytes\": [[100000, 10, 10], [1, 0, 1],\n"
                   "[1, 1, 0]]}");
  ck_assert_int_eq(run("@ solve --synthetic full:3@25 -c alltoall --demand %%/d.json"), 0);
  expect(result.err,
         "d.json: rank 0 sends itself 100000 bytes, and M, which algbw and busbw count, is "
         "100020");
  ck_assert_int_eq(run("sed -i s/100000/10/ %%/d.json; "
                       "@ solve --synthetic full:3@25 -c alltoall --demand %%/d.json"),
                   0);
  ck_assert_str_eq(result.err, "");
  copse_test_refused(run("sed -i s/10,/4398046511105,/ %%/d.json; "
                         "@ solve --synthetic full:3@25 -c alltoall --demand %%/d.json"),
                     "an entry of \"bytes\"");
  expect(result.err, "4398046511104");
}
END_TEST

/* The checksum of a topology covers its name. */
START_TEST(a_renamed_topology_is_no_other_one) {
  ck_assert_int_eq(
      run("@ topo --synthetic full:4@25 -o %%/a.json && sed s/full:4@25/mine/ %%/a.json "
          ">%%/b.json && @ solve %%/a.json -c allgather -o %%/s.json && "
          "@ verify %%/s.json -t %%/b.json"),
      0);
  expect(result.err,
         "s.json was made for full:4@25, the same topology by another name; it is checked");
  ck_assert_int_eq(run("@ simulate %%/s.json -t %%/b.json -b 1M -e 1M"), 0);
  expect(result.err, "the same topology by another name; it is simulated");
  ck_assert_int_eq(run("@ lower %%/s.json -t %%/b.json --to plan -o %%/s.plan"), 0);
  expect(result.err, "the same topology by another name; its routes");
  ck_assert_int_eq(
      run("sed -i s/25}/26}/ %%/b.json; @ simulate %%/s.json -t %%/b.json -b 1M -e 1M"), 0);
  expect(result.err, "made for another topology (full:4@25)");
}
END_TEST

/* lower -t names the schedule's ranks, and another topology gives no schedules for MSCCL. */
START_TEST(lower_takes_the_topology_of_its_schedule) {
  ck_assert_int_eq(run("@ solve --synthetic switch:66@100 -c allgather -o %%/star.json && "
                       "@ topo --synthetic switch:66@50 -o %%/slow.json"),
                   0);
  copse_test_refused(run("@ lower %%/star.json --synthetic switch:8@100 --to plan -o %%/x.plan"),
                     "star.json: the schedule has 66 ranks, the topology 8: it was made for switch:66@100, and "
                     "this is switch:8@100");
  copse_test_refused(run("@ lower %%/star.json -t %%/slow.json --to msccl -o %%/x.xml"),
                     "rank 0 needs 65 thread blocks");
  expect(result.err, "or name with -t the topology that it was made for, not another");
  copse_test_refused(run("@ simulate %%/star.json --synthetic full:66@100 -b 1M -e 1M"),
                     "name with -t the topology that it was solved for");
  ck_assert_ptr_null(strstr(result.err, "--down"));
  copse_test_refused(run("@ simulate %%/star.json --synthetic switch:66@100 -e 64KB"),
                     "64K or 1G: K is times 1024, and the B is left out");
}
END_TEST

#define LOWER(form) "@ lower %%/s.json --to " form " -o %%/made --json"
static const char *const lowered[] = {LOWER("plan"), LOWER("msccl"), LOWER("mscclpp")};

/* Parts that a schedule's name says are down or slower are so for its plans and programs too. */
START_TEST(lower_knows_what_was_down) {
  ck_assert_int_eq(run("@ solve dgx1-v100 -c allgather --down pcie0 -o %%/s.json"), 0);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(run(lowered[i]), 0);
    expect(result.err, "1.43 times as long: ranks send over the fabric's own routes");
    expect(result.out, "\"factor\": 1.42857, \"most_loaded\": [\"gpu4\", \"gpu5\"]}");
  }
  static const char *const faults[] = {"--ranks 0-3", "--derate 'gpu0>gpu1=0.333'",
                                       "--derate gpu7=1/7 --down 'gpu2>gpu3' --ranks 1-6"};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    ck_assert_int_eq(run("@ solve dgx1-v100 -c allgather %s -o %%/s.json", faults[i]), 0);
    ck_assert_int_eq(run(lowered[i]), 0);
    expect(result.out, "\"routes\": {");
  }
  ck_assert_int_eq(run("@ verify %%/s.json -t dgx1-v100 --derate gpu7=$(printf '100/7\\045') --down "
                       "'gpu2>gpu3'"), /* as names have it, and advice */
                   0);
  ck_assert_int_eq(run("@ solve --synthetic switch:10@100 -c allgather --down gpu3 -o %%/s.json"),
                   0);
  ck_assert_int_eq(run("@ lower %%/s.json --to msccl --workers 7 -o %%/made --json"), 0);
  expect(result.out, "\"instead\": ");
  ck_assert_int_eq(run("@ solve --synthetic switch:10@100 -c allgather --down gpu3 --down gpu4 "
                       "--down gpu5 --down gpu6 -o %%/s.json"),
                   0);
  ck_assert_int_eq(run(lowered[0]), 0);
  expect(result.out, "\"routes\": null");
  expect(result.err, "its name does not say all that is down or slower; -t TOPO does it");
}
END_TEST

/* Routes of the named topology are compared of up to 1,024 ranks; of more that is not done, which
 * is said. */
START_TEST(lower_takes_large_topologies_that_are_named) {
  static const char *const cases[][2] = {{"129", "\"factor\": 1, "}, {"1025", "null"}};
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(
        run("@ solve --synthetic switch:%s@100 -c broadcast --root 0 -o %%/s.json", cases[i][0]),
        0);
    ck_assert_int_eq(run(LOWER("plan --instances 1")), 0);
    expect(result.out, cases[i][1]);
  }
  expect(result.err, "of so many ranks only -t TOPO does it");
}
END_TEST

/* A pair has a direct link of 5 GB/s and a way over a switch of 45: half of an allgather takes
 * 1/100 s over both, and 1/10 on the direct one, which is the fabric's own route. */
START_TEST(detours_on_a_topology_of_ones_own_are_said) {
  copse_test_write("pair.json",
                   "{\"format\": \"copse-topology/1\", \"name\": \"pair\", \"nodes\": ["
                   "{\"id\": \"a\", \"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, "
                   "{\"id\": \"s\", \"type\": \"switch\"}], \"links\": ["
                   "{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 5}, "
                   "{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 45}, "
                   "{\"src\": \"s\", \"dst\": \"b\", \"bandwidth\": 45}]}");
  ck_assert_int_eq(run("@ solve %%/pair.json -c allgather -o %%/s.json"), 0);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(run(lowered[i]), 0);
    expect(result.out, "\"routes\": null");
    const char *note = strstr(result.err, "own routes was not compared with the schedule: its ");
    ck_assert_msg(note && !strstr(note + 1, "own routes"), "%s", result.err);
    char line[200];
    snprintf(line, sizeof line, "%s -t %%%%/pair.json", lowered[i]);
    ck_assert_int_eq(run(line), 0);
    expect(result.out,
           "\"routes\": {\"time_per_GB\": \"1/10\", \"factor\": 10, \"most_loaded\": [");
    expect(result.err, "as a plan it takes 0.1 s/GB at least, 10 times as long: ranks send over");
  }
  ck_assert_int_eq(run(LOWER("plan --low-latency")), 0);
  ck_assert_str_eq(result.err, "");
  /* a name that nothing comes from is not waited for */
  ck_assert_int_eq(run("mkfifo %%/queue && sed -i 's#\"pair\"#\"%%/queue\"#' %%/s.json"), 0);
  ck_assert_int_eq(run("timeout 20 @ lower %%/s.json --to plan -o %%/made"), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/misleading");
  TCase *all = tcase_create("misleading");
  copse_test_folder();
  tcase_set_timeout(all, 180);
  tcase_add_test(all, links_listed_both_ways_must_say_what_they_are);
  tcase_add_test(all, a_bare_tolerance_of_one_is_refused);
  tcase_add_loop_test(all, what_will_not_fit_says_so, 0, sizeof too_little / sizeof *too_little);
  tcase_add_test(all, a_large_schedule_is_announced);
  tcase_add_test(all, a_plan_larger_than_a_file_is_refused);
  tcase_add_test(all, the_default_has_the_fewest_trees_at_the_optimum);
  tcase_add_test(all, equal_shares_are_no_optimum_where_unequal_ones_are_faster);
  tcase_add_test(all, only_bare_names_are_of_the_catalogue);
  if (COPSE_TEST_RESULTS) tcase_add_test(all, an_interrupted_plans_leaves_nothing_that_loads);
  tcase_add_test(all, plans_that_fail_leave_nothing);
  tcase_add_test(all, a_loop_of_links_is_refused_and_stays);
  tcase_add_test(all, a_worse_topology_has_no_better_bound);
  tcase_add_test(all, verify_knows_what_was_down);
  tcase_add_test(all, what_a_failure_costs_a_plan_is_said);
  tcase_add_test(all, lower_knows_what_was_down);
  tcase_add_test(all, lower_takes_large_topologies_that_are_named);
  tcase_add_test(all, detours_on_a_topology_of_ones_own_are_said);
  tcase_add_test(all, in_network_without_a_marked_switch_is_remarked_on);
  tcase_add_test(all, mistyped_topologies_are_remarked_on);
  tcase_add_test(all, a_diagonal_that_is_most_of_m_is_remarked_on);
  tcase_add_test(all, a_renamed_topology_is_no_other_one);
  if (COPSE_TEST_RESULTS) tcase_add_test(all, lower_takes_the_topology_of_its_schedule);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
