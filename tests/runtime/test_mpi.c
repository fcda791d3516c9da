/* Plans between processes: over MPI, under mpirun, and over UCX; `copse run` and copse_comm_init_*,
 * and what goes wrong in jobs. Skips where there is no Open MPI, or no UCX. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "support/command.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

#define MPIRUN "mpirun --oversubscribe --allow-run-as-root "

static char job[PATH_MAX + 64], hang[PATH_MAX + 64], ucx[PATH_MAX + 64];

/* What is missing, or NULL. */
static const char *missing(void) {
  if (system("command -v mpirun >/dev/null 2>&1") != 0) return "mpirun";
  return access(job, X_OK) == 0 ? NULL : "MPI in this build";
}
#define NEED_MPI() \
  if (missing()) COPSE_SKIP("no %s", missing())

/* Loops of tests are over wires. */
enum wire { MPI, UCX, N_WIRES };
#define NEED(wire)                                                \
  if ((wire) == MPI && missing()) COPSE_SKIP("no %s", missing()); \
  if ((wire) == UCX && access(ucx, R_OK) != 0) COPSE_SKIP("no UCX in this build")

/* What starts n processes of a command, each with mpirun's variable for its rank. */
static const char *start(int wire, int n) {
  static char text[200];
  if (wire == MPI) {
    snprintf(text, sizeof text, MPIRUN "-n %d ", n);
    return text;
  }
  copse_test_write("launch",
                   "n=$1 worst=0; shift\n"
                   "for r in $(seq 0 $((n - 1))); do\n"
                   "  OMPI_COMM_WORLD_RANK=$r \"$@\" --rank $r & pids=\"$pids $!\"\n"
                   "done\n"
                   "for p in $pids; do wait $p; s=$?; [ $s -gt $worst ] && worst=$s; done\n"
                   "exit $worst\n");
  snprintf(text, sizeof text, "rm -f %%/meet; sh %%/launch %d ", n);
  return text;
}

static const char *backend(int wire) {
  return wire == MPI ? "@ run --backend mpi" : "@ run --backend ucx --rendezvous %/meet";
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void write_plan(const char *folder, copse_collective collective, uint32_t n) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[512], *bytes;
  size_t size;
  bool rooted = collective == COPSE_BROADCAST || collective == COPSE_REDUCE;
  struct copse_plan *plan =
      pb_tree_plan(collective, n, rooted ? (int32_t)n - 1 : -1, PB_OPTIONS_DEFAULT);
  snprintf(path, sizeof path, "%s/%s/%s.plan", copse_test_folder(), folder,
           copse_collective_name(collective));
  ASSERT_OK(copse_plan_encode(plan, &bytes, &size, &err), &err);
  ASSERT_OK(copse_file_write(path, bytes, size, &err), &err);
  free(bytes);
  pb_free(plan);
}

/* Plans by hand for all collectives. */
static void write_plans(const char *folder, uint32_t n) {
  ck_assert_int_eq(copse_test_command("mkdir -p %%/%s", folder), 0);
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) write_plan(folder, (copse_collective)c, n);
}

static void lower(const char *folder, const char *collective, uint32_t n, const char *options) {
  bool rooted = collective[0] == 'b' || strcmp(collective, "reduce") == 0;
  char root[32] = "";
  if (rooted) snprintf(root, sizeof root, "--root %u", n - 1);
  int status = copse_test_command(
      "mkdir -p %%/%s && @ solve --synthetic ring:%u@50 -c %s %s -o %%/s.json && "
      "@ lower %%/s.json --to plan %s -o %%/%s/%s.plan",
      folder, n, collective, root, options, folder, collective);
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
}

/* ---- the library ---------------------------------------------------------------------------- */

/* By hand, and by the solver: bandwidth and low latency. */
static void write_folders(uint32_t n) {
  static const char *const names[] = {"allgather", "reduce_scatter", "allreduce",
                                      "broadcast", "reduce",         "alltoall"};
  write_plans("trees", n);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) lower("solved", names[i], n, "");
  lower("packets", "allreduce", n, "--low-latency");
  lower("packets", "broadcast", n, "--low-latency");
}

static const char *wire_variable(int wire) {
  return wire == UCX ? "COPSE_JOB_WIRE=ucx UCX_LOG_LEVEL=fatal " : "";
}

static void check_library(int wire, uint32_t n, const char *placed, const char *folders) {
  int status = copse_test_command("%s" MPIRUN "%s -n %u %s all %s", wire_variable(wire), placed, n,
                                  job, folders);
  ck_assert_msg(status == 0, "%u ranks: exit status %d\n%s%s", n, status, copse_test_result.out,
                copse_test_result.err);
  for (uint32_t r = 0; r < n; r++) {
    char line[64];
    snprintf(line, sizeof line, "job: rank %u of %u: ", r, n);
    ck_assert_msg(strstr(copse_test_result.out, line) != NULL, "%s", copse_test_result.out);
  }
}

START_TEST(all_collectives_give_the_cpu_backends_bits) {
  static const uint32_t sizes[] = {2, 4, 8};
  NEED_MPI();
  NEED(_i % N_WIRES);
  write_plans("trees", sizes[_i / N_WIRES]);
  check_library(_i % N_WIRES, sizes[_i / N_WIRES], "", "%/trees");
}
END_TEST

START_TEST(plans_of_the_solver_run_too) {
  NEED_MPI();
  NEED(_i);
  write_folders(3);
  check_library(_i, 3, "", "%/trees %/solved %/packets");
}
END_TEST

/* One rank on one host and three on another: this machine, under two names. */
START_TEST(hosts_may_have_different_numbers_of_ranks) {
  NEED_MPI();
  if (system("unshare --map-root-user --uts true 2>/dev/null") != 0)
    COPSE_SKIP("no host names of one's own");
  copse_test_write("agent",
                   "host=$1; shift\n"
                   "exec unshare --map-root-user --uts sh -c \"hostname $host; $*\"\n");
  write_plans("trees", 4);
  check_library(
      MPI, 4,
      "--host alpha:1,beta:3 --mca plm_rsh_agent 'sh %/agent' --mca plm_rsh_no_tree_spawn 1 "
      "--mca oob_tcp_if_include lo --mca btl_tcp_if_include lo",
      "%/trees");
}
END_TEST

/* By hand, alone: CK_RUN_CASE=ranks COPSE_TEST_MPI_RANKS=32 build/tests/runtime/test_mpi */
START_TEST(as_many_ranks_as_wanted) {
  const char *ranks = getenv("COPSE_TEST_MPI_RANKS");
  if (!ranks) return;
  NEED_MPI();
  write_folders((uint32_t)atoi(ranks));
  check_library(MPI, (uint32_t)atoi(ranks), "", "%/trees %/solved %/packets");
}
END_TEST

START_TEST(calls_that_go_wrong_name_the_rank_at_all_others) {
  NEED_MPI();
  write_plans("trees", 3);
  NEED(_i);
  int status = copse_test_command("%s" MPIRUN "-n 3 %s faults %%/trees", wire_variable(_i), job);
  ck_assert_msg(status == 0, "exit status %d\n%s%s", status, copse_test_result.out,
                copse_test_result.err);
}
END_TEST

/* ---- the tool -------------------------------------------------------------------------------- */

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)) != NULL; text += strlen(part)) n++;
  return n;
}

/* Before there is a communicator of copse's. */
START_TEST(ranks_that_do_not_come_are_named) {
  NEED_MPI();
  (void)copse_test_command(MPIRUN "-n 4 %s late %%/trees", job);
  ck_assert_msg(count_of(copse_test_result.out, ": they are named") == 2, "%s%s",
                copse_test_result.out, copse_test_result.err);
}
END_TEST

START_TEST(one_process_prints_the_table_for_all) {
  NEED(_i);
  write_plans("trees", 3);
  int status = copse_test_command("%s%s -b 64 -e 64K -f 32 -d all -n 2 %%/trees/allreduce.plan",
                                  start(_i, 3), backend(_i));
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
  const char *out = copse_test_result.out;
  ck_assert_int_eq(count_of(out, "# copse run: allreduce, 3 ranks"), 1);
  ck_assert_int_eq(count_of(out, _i == MPI ? "backend mpi" : "backend ucx"), 1);
  ck_assert_int_eq(count_of(out, "# Out of bounds values : 0 OK"), 1);
  ck_assert_int_eq(count_of(out, " bfloat16 "), 3);
}
END_TEST

/* A plan that is valid and wrong: rank 0 keeps what it should have sent. */
START_TEST(wrong_elements_of_any_rank_fail_the_run) {
  NEED(_i);
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  struct copse_err err = COPSE_ERR_INIT;
  char path[512], *bytes;
  size_t size;
  uint32_t worker = pb_worker(b, 0), piece = pb_piece(b, 0, 1, 1, 1);
  pb_move(b, worker, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  struct copse_plan *plan = pb_finish(b);
  snprintf(path, sizeof path, "%s/wrong.plan", copse_test_folder());
  ASSERT_OK(copse_plan_encode(plan, &bytes, &size, &err), &err);
  ASSERT_OK(copse_file_write(path, bytes, size, &err), &err);
  free(bytes);
  pb_free(plan);
  int status = copse_test_command("%s%s -b 64 -e 64 --out-of-place %%/wrong.plan", start(_i, 2),
                                  backend(_i));
  ck_assert_msg(status == 1, "exit status %d %s", status, copse_test_result.err);
  ck_assert_int_eq(count_of(copse_test_result.out, "# Out of bounds values : 16 FAILED"), 1);
}
END_TEST

START_TEST(different_plans_and_wrong_numbers_are_refused_by_all) {
  NEED_MPI();
  write_plans("trees", 3);
  int status = copse_test_command(MPIRUN
                                  "-n 2 @ run --backend mpi -e 64 %%/trees/allreduce.plan : "
                                  "-n 1 @ run --backend mpi -e 64 %%/trees/allgather.plan");
  ck_assert_int_eq(status, 1);
  ck_assert_msg(count_of(copse_test_result.err, ": no plan is added: rank 2 has not") == 3, "%s",
                copse_test_result.err);
  status = copse_test_command(MPIRUN "-n 2 @ run --backend mpi -e 64 %%/trees/allreduce.plan");
  ck_assert_int_eq(status, 2);
  ck_assert_msg(count_of(copse_test_result.err, "mpirun -n 3") == 2, "%s", copse_test_result.err);
  status = copse_test_command(MPIRUN "-n 2 @ run --backend mpi %%/nowhere.plan");
  ck_assert_int_eq(status, 2);
  ck_assert_msg(count_of(copse_test_result.err, "nowhere.plan: cannot open") == 2, "%s",
                copse_test_result.err);
}
END_TEST

/* ---- ranks that die or don't come ------------------------------------------------------------
 * Open MPI ends the whole job when a process dies, unless an option lets it go on; only then the
 * survivors' own words are seen. */

/* `sh %/act OUTPUT RANK ACTION COMMAND`: that rank does it when the job has begun, as its output
 * shows. */
static void write_act(void) {
  copse_test_write(
      "act",
      "output=$1 rank=$2 action=$3; shift 3\n"
      "[ \"$OMPI_COMM_WORLD_RANK\" = \"$rank\" ] && {\n"
      "  for i in $(seq 1000); do grep -q 'copse run' $output && break; sleep 0.1; done\n"
      "  sleep 0.3; eval \"$action\"\n"
      "} &\n"
      "exec \"$@\"\n");
}

/* `before` --timeout N `after`. A machine may be so busy that the start alone takes longer than
 * the limit: then with a longer one. Returns the last. Ranks poll while they wait: a second costs as many CPU seconds
 * as there are cores. */
static int run_with_limit(int limit, const char *before, const char *after) {
  for (;; limit *= 4) {
    copse_test_command("%s --timeout %d %s", before, limit, after);
    if (limit >= 64 || !(strstr(copse_test_result.err, "MPI_Init did not end") ||
                         strstr(copse_test_result.err, "nothing has come from rank")))
      return limit;
  }
}

START_TEST(survivors_of_a_killed_rank_name_it_in_time) {
  char before[600];
  NEED(_i);
  write_plans("trees", 4);
  write_act();
  snprintf(before, sizeof before,
           "%s%s sh %%/act %%/.out 2 'kill -9 $$' %s -b 64K -e 64K -n 100000000", start(_i, 4),
           _i == MPI ? "--enable-recovery" : "", backend(_i));
  double begun = seconds();
  int limit = run_with_limit(2, before, "%/trees/allreduce.plan");
  double took = seconds() - begun;
  for (int r = 0; r < 4; r++) {
    char line[64];
    snprintf(line, sizeof line, "copse: rank %d: rank 2 does not answer", r);
    ck_assert_msg(count_of(copse_test_result.err, line) == (r != 2), "rank %d: %s", r,
                  copse_test_result.err);
  }
  ck_assert_int_eq(count_of(copse_test_result.out, "Out of bounds"), 0);
  ck_assert_msg(took < 10 * limit, "%g s with limits up to %d s", took, limit);
}
END_TEST

/* Rank 1 does not come back from MPI: _i 0, while all others live; 1, after the death of rank 2. It
 * names the rank that has been silent for longest as a guess; rank 0, to which nothing comes, none.
 */
START_TEST(a_call_of_mpi_that_does_not_return_is_left) {
  char before[PATH_MAX + 600], line[160];
  NEED_MPI();
  write_plans("trees", _i ? 3 : 2);
  write_act();
  snprintf(before, sizeof before,
           "rm -f %%/hang; ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=%s "
           "COPSE_TEST_HANG=%%/hang " MPIRUN
           "--enable-recovery -x LD_PRELOAD -x COPSE_TEST_HANG -n %d sh %%/act %%/.out %d "
           "'touch %%/hang%s' @ run --backend mpi -b 64K -e 64K -n 100000000",
           hang, _i ? 3 : 2, _i ? 2 : 0, _i ? "; kill -9 $$" : "");
  int limit = run_with_limit(2, before, "%/trees/allreduce.plan");
  snprintf(line, sizeof line,
           "copse: rank 1: MPI has not returned for %d s from a call that doesn't wait: %s",
           limit * 3 / 2, "another process has died, maybe the one silent for longest, rank ");
  ck_assert_msg(count_of(copse_test_result.err, line) == 1, "no '%s' in %s", line,
                copse_test_result.err);
  const char *silent =
      _i ? "copse: rank 0: no rank answers rank 0" : "copse: rank 0: rank 1 does not answer";
  ck_assert_msg(count_of(copse_test_result.err, silent) == 1, "%s", copse_test_result.err);
}
END_TEST

START_TEST(a_rank_that_never_starts_ends_the_others_in_time) {
  NEED_MPI();
  write_plans("trees", 3);
  for (int limit = 3;; limit *= 4) { /* until the machine is fast enough for the others to start */
    int status = copse_test_command(MPIRUN
                                    "-n 2 @ run --backend mpi -e 64 --timeout %d "
                                    "%%/trees/allreduce.plan : -n 1 sleep 90",
                                    limit);
    ck_assert_int_eq(status, 4);
    if (count_of(copse_test_result.err, "MPI_Init did not end within ") == 2 &&
        count_of(copse_test_result.err, ": a process of the job has not started\n") == 2)
      break;
    ck_assert_msg(limit < 48, "%s", copse_test_result.err);
  }
}
END_TEST

/* Slower than all others by less than the limit, at the start and in the midst of a launch. */
START_TEST(a_slow_rank_is_waited_for) {
  NEED(_i);
  write_plans("trees", 3);
  copse_test_write(
      "slow",
      "[ \"$OMPI_COMM_WORLD_RANK\" = 2 ] && {\n"
      "  sleep 0.5\n"
      "  { for i in 1 2; do kill -STOP $$; sleep 0.4; kill -CONT $$; sleep 0.1; done; } &\n"
      "}\n"
      "exec \"$@\"\n");
  int status = copse_test_command(
      "%ssh %%/slow %s -b 512K -e 1M -n 30 --timeout 60 "
      "%%/trees/allreduce.plan",
      start(_i, 3), backend(_i));
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
  ck_assert_int_eq(count_of(copse_test_result.out, "# Out of bounds values : 0 OK"), 1);
}
END_TEST

/* Rank 1 is killed and all others stand still for longer than the limit, as in a machine that is
 * paused; rank 0 goes on before rank 2, from which it has received nothing for so long. Messages
 * are short: who is killed within a longer one may cut another rank off. */
START_TEST(a_pause_of_all_ranks_is_nobodys_fault) {
  char before[800];
  NEED(_i);
  write_plans("trees", 3);
  write_act();
  copse_test_write("noted", "echo $$ >$1.$OMPI_COMM_WORLD_RANK; shift; exec \"$@\"\n");
  snprintf(before, sizeof before,
           "%s%s sh %%/act %%/.out 1 'kill -9 $$; sleep 0.1; kill -STOP $(cat %%/pid.0 %%/pid.2); "
           "sleep 3; kill -CONT $(cat %%/pid.0); sleep 0.4; kill -CONT $(cat %%/pid.2)' "
           "sh %%/noted %%/pid %s -b 64 -e 64 -n 100000000",
           start(_i, 3), _i == MPI ? "--enable-recovery" : "", backend(_i));
  run_with_limit(2, before, "%/trees/allreduce.plan");
  const char *err = copse_test_result.err;
  ck_assert_msg(count_of(err, "rank 1 does not answer") == 2 && count_of(err, "nor does") == 0,
                "%s", err);
}
END_TEST

/* ---- UCX alone ------------------------------------------------------------------------------- */

START_TEST(ranks_that_do_not_come_to_the_rendezvous_are_named) {
  NEED(UCX);
  write_plans("trees", 3);
  int status = copse_test_command(
      "%s @ run --backend ucx --rendezvous %%/meet --timeout 2 %%/trees/allreduce.plan",
      start(UCX, 2));
  ck_assert_int_eq(status, 4);
  const char *missing_two = "/meet: nothing has come from rank 2 within 2 s";
  ck_assert_msg(count_of(copse_test_result.err, missing_two) == 1, "%s", copse_test_result.err);
  ck_assert_msg(count_of(copse_test_result.err, "rank 0 has left before the job began") == 1, "%s",
                copse_test_result.err);
}
END_TEST

START_TEST(different_plans_are_refused_over_ucx_too) {
  NEED(UCX);
  write_plans("trees", 3);
  write_plans("fewer", 2);
  int status = copse_test_command(
      "%s sh -c 'shift; [ $OMPI_COMM_WORLD_RANK = 2 ] && p=allgather || p=allreduce; exec \"$@\" "
      "%%/trees/$p.plan' - - %s -e 64",
      start(UCX, 3), backend(UCX));
  ck_assert_int_eq(status, 1);
  ck_assert_msg(count_of(copse_test_result.err, ": no plan is added: rank 2 has not") == 3, "%s",
                copse_test_result.err);
  status = copse_test_command(
      "%s sh -c 'shift; [ $OMPI_COMM_WORLD_RANK = 1 ] && p=trees || p=fewer; exec \"$@\" "
      "%%/$p/allreduce.plan --timeout 3' - - %s -e 64",
      start(UCX, 2), backend(UCX));
  ck_assert_msg(status == 2 || status == 4, "%d: %s", status, copse_test_result.err);
  ck_assert_msg(
      count_of(copse_test_result.err, "rank 1 has a plan for another number of ranks") == 1, "%s",
      copse_test_result.err);
}
END_TEST

/* Killed at the start, in the rendezvous and in the midst of launches. */
START_TEST(nothing_is_left_in_shared_memory_after_a_kill) {
  NEED(UCX);
  write_plans("trees", 3);
  /* of UCX; segments that nobody is attached to */
  const char *list = "ls -A /dev/shm | grep ucx; awk \"\\$7 == 0 {print \\$2}\" /proc/sysvipc/shm";
  char script[400];
  snprintf(script, sizeof script,
           "for d in %s; do\n"
           "  for r in 0 1 2; do\n"
           "    \"$@\" --rank $r >/dev/null 2>&1 & pids=\"$pids $!\"\n"
           "  done\n"
           "  sleep $d; kill -9 $pids; wait; pids=\n"
           "done\n",
           COPSE_TEST_SWEEPS ? "0.02 0.1 0.2 0.3 0.5 0.7 1 1.5" : "0.02 0.1 0.3 0.7");
  copse_test_write("kill_all", script);
  int status = copse_test_command(
      "sh -c '%s' >%%/before; rm -f %%/meet; sh %%/kill_all %s -b 64K -e 64K -n 100000000 "
      "%%/trees/allreduce.plan 2>/dev/null; sh -c '%s' >%%/after; diff %%/before %%/after",
      list, backend(UCX), list);
  ck_assert_msg(status == 0, "%s", copse_test_result.out);
}
END_TEST

START_TEST(without_mpi_the_backend_is_refused_in_one_line) {
  ck_assert_int_eq(copse_test_command("cp @ %%/copse"), 0);
  write_plans("trees", 2);
  /* away from its library, unless one is installed */
  if (system("ldconfig -p 2>/dev/null | grep -q libcopse-mpi") == 0)
    COPSE_SKIP("libcopse-mpi is installed");
  int status = copse_test_command("%%/copse run --backend mpi %%/trees/allreduce.plan");
  copse_test_refused(status, "backend mpi: no MPI here");
  ck_assert_int_eq(status, 2);
}
END_TEST

/* Between hosts made of namespaces, where this user can make some. On a busy machine making plans
 * may take longer than a short job has after the cut. */
START_TEST(a_job_goes_on_with_repaired_plans_when_a_cable_is_cut) {
  NEED_MPI();
  int before = 0, after = 0;
  const char *repaired = NULL;
  for (int seconds = 4; seconds <= 20 && after == 0; seconds += 16) {
    ck_assert_int_eq(copse_test_command("scripts/demo_repair -h 3 -b 300000 -n %d", seconds), 0);
    if (strstr(copse_test_result.out, "skipped: ")) COPSE_SKIP("%s", copse_test_result.out);
    const char *old = strstr(copse_test_result.out, "old plans:");
    repaired = strstr(copse_test_result.out, "repaired plans:");
    ck_assert_msg(repaired && old, "%s", copse_test_result.out);
    ck_assert_int_eq(
        sscanf(repaired, "repaired plans: %d allreduces before the cut, %*d ms each; %d", &before,
               &after),
        2);
    ck_assert_int_gt(before, 0);
  }
  ck_assert_int_gt(after, 0);
  ck_assert_ptr_nonnull(strstr(repaired, "; 0 elements wrong"));
  ck_assert_ptr_nonnull(strstr(repaired, "must load it"));
}
END_TEST

static void find_job(void) {
  const char *bin = getenv("COPSE_BIN");
  char path[PATH_MAX];
  if (!realpath(bin ? bin : "build/copse", path)) return;
  *strrchr(path, '/') = '\0';
  snprintf(job, sizeof job, "%s/tests/runtime/mpi/job", path);
  snprintf(hang, sizeof hang, "%s/tests/runtime/mpi/hang.so", path);
  snprintf(ucx, sizeof ucx, "%s/libcopse-ucx.so", path);
}

int main(void) {
  copse_test_folder();
  find_job();
  /* Open MPI leaves much at its end, and sanitizers' memory is not for others to read */
  setenv("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1", 1);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  Suite *suite = suite_create("runtime/mpi");
  TCase *tc = tcase_create("mpi");
  tcase_add_loop_test(tc, all_collectives_give_the_cpu_backends_bits, 0,
                      N_WIRES * (COPSE_TEST_SWEEPS ? 3 : 1));
  tcase_add_test(tc, hosts_may_have_different_numbers_of_ranks);
  tcase_add_loop_test(tc, calls_that_go_wrong_name_the_rank_at_all_others, 0, N_WIRES);
  tcase_add_test(tc, ranks_that_do_not_come_are_named);
  tcase_add_test(tc, different_plans_and_wrong_numbers_are_refused_by_all);
  tcase_add_loop_test(tc, survivors_of_a_killed_rank_name_it_in_time, 0, N_WIRES);
  tcase_add_test(tc, ranks_that_do_not_come_to_the_rendezvous_are_named);
  tcase_add_test(tc, different_plans_are_refused_over_ucx_too);
  tcase_add_test(tc, nothing_is_left_in_shared_memory_after_a_kill);
  if (COPSE_TEST_RESULTS) { /* these mostly wait, or take the same ways with other numbers */
    tcase_add_loop_test(tc, plans_of_the_solver_run_too, 0, COPSE_TEST_SWEEPS ? N_WIRES : 1);
    tcase_add_loop_test(tc, one_process_prints_the_table_for_all, 0, N_WIRES);
    tcase_add_loop_test(tc, wrong_elements_of_any_rank_fail_the_run, 0,
                        COPSE_TEST_SWEEPS ? N_WIRES : 1);
    tcase_add_loop_test(tc, a_call_of_mpi_that_does_not_return_is_left, COPSE_TEST_SWEEPS ? 0 : 1, 2);
    tcase_add_test(tc, a_rank_that_never_starts_ends_the_others_in_time);
    if (COPSE_TEST_SWEEPS)
      tcase_add_test(tc, a_job_goes_on_with_repaired_plans_when_a_cable_is_cut);
    tcase_add_loop_test(tc, a_slow_rank_is_waited_for, 0, N_WIRES);
    tcase_add_loop_test(tc, a_pause_of_all_ranks_is_nobodys_fault, 0, N_WIRES);
  }
  tcase_add_test(tc, without_mpi_the_backend_is_refused_in_one_line);
  suite_add_tcase(suite, tc);
  TCase *ranks = tcase_create("ranks");
  tcase_add_test(ranks, as_many_ranks_as_wanted);
  suite_add_tcase(suite, ranks);
  return copse_test_run(suite);
}
