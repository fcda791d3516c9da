/* Baselines as schedules: verified independently, simulated, and what they are known for. */
#include "predict/baseline.h"
#include "predict/propose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "predict/baseline_internal.h"
#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/fabric.h"
#include "support/failing_malloc.h"
#include "support/random_topology.h"
#include "support/sim_fabric.h"
#include "support/support.h"

static struct copse_baseline_options options_of(copse_collective collective,
                                                const int64_t *demand) {
  bool rooted = copse_collective_rooted(collective);
  return (struct copse_baseline_options){
      .collective = collective, .root = rooted ? 0 : -1, .demand = demand};
}

static struct copse_schedule *make(const struct copse_topology *t, enum copse_baseline kind,
                                   const struct copse_baseline_options *options,
                                   struct copse_sim_dag *dag) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  ASSERT_OK(copse_baseline_make(t, kind, options, &schedule, dag, &err), &err);
  return schedule;
}

static void verify(const struct copse_topology *t, const struct copse_schedule *s,
                   const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  copse_status status = copse_verify_schedule(s, t, what, &report, &err);
  ck_assert_msg(status == COPSE_OK, "%s", err.text);
  ck_assert(report.same_topology);
}

static struct copse_sim_result simulate(const struct copse_topology *t,
                                        const struct copse_sim_dag *dag, double m) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_result result;
  ASSERT_OK(copse_simulate(t, dag, NULL, m, &result, NULL, &err), &err);
  return result;
}

/* The transfers carry what the schedule says: the same busiest link; with two tiers perhaps
 * more, where the schedule leaves out loops. */
static void check_transfers(const struct copse_topology *t, const struct copse_schedule *s,
                            const struct copse_sim_dag *dag, enum copse_baseline kind) {
  double m = 1e8, exact = m * 1e-3 * copse_q_to_double(s->time_per_GB);
  struct copse_sim_result r = simulate(t, dag, m);
  bool loops = kind == COPSE_BASELINE_2DH || kind == COPSE_BASELINE_BIRKHOFF;
  ck_assert_double_ge(r.busiest_us, exact * (1 - 1e-9));
  if (!loops) ck_assert_double_le(r.busiest_us, exact * (1 + 1e-9) + 1e-9);
  ck_assert_double_ge(r.us, r.busiest_us);
}

/* One that there is such a baseline of. */
static copse_collective collective_of(enum copse_baseline kind) {
  if (copse_baseline_exists(kind, COPSE_ALLTOALL)) return COPSE_ALLTOALL;
  return copse_baseline_exists(kind, COPSE_BROADCAST) ? COPSE_BROADCAST : COPSE_ALLGATHER;
}

/* All baselines of a collective, verified and simulated; how many apply. */
static int check_all(const struct copse_topology *t, const struct copse_baseline_options *options,
                     const char *what) {
  int n = 0;
  for (int k = 0; k < COPSE_N_ARRANGEMENTS; k++) {
    enum copse_baseline kind = (enum copse_baseline)k;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *s = NULL;
    struct copse_sim_dag dag = {0};
    char label[120];
    snprintf(label, sizeof label, "%s: %s", what, copse_baseline_name(kind));
    copse_status status = copse_baseline_make(t, kind, options, &s, &dag, &err);
    if (status == COPSE_UNSUPPORTED) {
      ck_assert_ptr_null(s);
      ck_assert_int_eq(dag.n_transfers, 0);
      continue;
    }
    ck_assert_msg(status == COPSE_OK, "%s: %s", label, err.text);
    verify(t, s, label);
    check_transfers(t, s, &dag, kind);
    copse_schedule_free(s);
    copse_sim_dag_free(&dag);
    n++;
  }
  return n;
}

/* ---- every collective ------------------------------------------------------------------ */

static const copse_collective all[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                       COPSE_BROADCAST, COPSE_REDUCE,         COPSE_ALLTOALL};
#define N_ALL ((int)(sizeof all / sizeof *all))

START_TEST(baselines_verify_on_random_fabrics) {
  struct copse_baseline_options options = options_of(all[_i], NULL);
  for (int seed = 0; seed < COPSE_TEST_SOME(60); seed++) {
    uint64_t state = (uint64_t)seed;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    char what[60];
    snprintf(what, sizeof what, "%s, seed %d", copse_collective_name(all[_i]), seed);
    if (copse_collective_rooted(all[_i]))
      options.root = copse_test_random_int(&state, 0, t->n_ranks - 1);
    ck_assert_int_ge(check_all(t, &options, what), 2);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(baselines_verify_on_hosts) {
  struct copse_baseline_options options = options_of(all[_i], NULL);
  for (int hosts = 2; hosts <= 5; hosts++) {
    for (int gpus = 1; gpus <= 4; gpus++) {
      struct copse_topology *t = copse_test_sim_hosts(hosts, gpus, gpus % 2 == 0);
      char what[60];
      snprintf(what, sizeof what, "%s, %d hosts of %d", copse_collective_name(all[_i]), hosts,
               gpus);
      /* best rings of several hosts need NICs, which these have none of */
      int n = all[_i] == COPSE_ALLTOALL ? 4 : 3;
      ck_assert_int_eq(check_all(t, &options, what), n);
      copse_topology_free(t);
    }
  }
}
END_TEST

/* Beside an optimal schedule: its bound is taken over, and holds. */
START_TEST(the_bound_of_the_optimum_binds_every_baseline) {
  for (int f = 0; f + 1 < copse_test_n_fabrics; f++) {
    struct copse_topology *t = copse_test_topology(copse_test_fabrics[f]);
    struct copse_baseline_options options = options_of(all[_i], NULL);
    struct copse_solve_options solve = {
        .collective = all[_i], .root = options.root, .label = "test.json"};
    struct copse_solve_seconds seconds;
    struct copse_schedule *like = NULL;
    struct copse_err err = COPSE_ERR_INIT;
    ASSERT_OK(copse_solve_schedule(t, &solve, &like, &seconds, &err), &err);
    options.like = like;
    for (int k = 0; k < COPSE_N_ARRANGEMENTS; k++) {
      if (!copse_baseline_exists((enum copse_baseline)k, all[_i])) continue;
      if (k == COPSE_BASELINE_2DH || k == COPSE_BASELINE_BIRKHOFF || k == COPSE_BASELINE_HOSTS)
        continue; /* one host */
      struct copse_schedule *s = make(t, (enum copse_baseline)k, &options, NULL);
      verify(t, s, copse_baseline_name((enum copse_baseline)k));
      ck_assert_int_ge(copse_q_cmp(s->time_per_GB, like->time_per_GB), 0);
      copse_schedule_free(s);
    }
    copse_schedule_free(like);
    copse_topology_free(t);
  }
}
END_TEST

/* A broadcast that is scattered and gathered goes once over the root's links and into each rank,
 * and once over the NICs of each host; a reduction backwards. No rank is more than two hops away in
 * a host, four in several. */
START_TEST(a_scattered_broadcast_takes_what_the_narrowest_links_take) {
  static const struct {
    const char *fabric;
    int root, n_trees, hops;
    struct copse_q time; /* s per GB */
  } cases[] = {{"switch:9@50", 4, 8, 2, {1, 50}},
               {"hosts:4 gpus:4@300 nics:4@25 rails", 5, 12, 4, {1, 100}},
               {"hosts:2 gpus:3@300 nics:3@25 rails", 0, 3, 3, {1, 75}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_topology *t;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_baseline_options options = options_of(all[_i], NULL);
    ASSERT_OK(copse_topology_synthetic(cases[i].fabric, NULL, &t, &err), &err);
    options.root = cases[i].root;
    struct copse_schedule *s = make(t, COPSE_BASELINE_SCATTER, &options, NULL);
    verify(t, s, cases[i].fabric);
    ck_assert_int_eq(s->n_trees, cases[i].n_trees);
    ck_assert(copse_q_eq(s->time_per_GB, cases[i].time));
    ck_assert_int_eq(copse_proposal_hops(s), cases[i].hops);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

/* Over hosts each tree is two hops high, and each NIC takes in once what each rank of its place in
 * another host has: of 12 of 16 ranks' parts, by four NICs, the ranks of 3. A reduction goes
 * backwards. One host has no such trees. */
START_TEST(trees_over_hosts_are_two_hops_high) {
  const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER};
  struct copse_topology *t;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_synthetic("hosts:4 gpus:4@300 nics:4@25 rails", NULL, &t, &err), &err);
  for (int i = 0; i < 2; i++) {
    struct copse_baseline_options options = options_of(collectives[i], NULL);
    struct copse_schedule *s = make(t, COPSE_BASELINE_HOSTS, &options, NULL);
    verify(t, s, "four hosts");
    ck_assert_int_eq(s->n_trees, 16);
    ck_assert_int_eq(copse_proposal_hops(s), 2);
    ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){3, 16 * 25}));
    copse_schedule_free(s);
  }
  copse_topology_free(t);
  ASSERT_OK(copse_topology_synthetic("switch:4@50", NULL, &t, &err), &err);
  struct copse_baseline_options options = options_of(COPSE_ALLGATHER, NULL);
  struct copse_schedule *none;
  ck_assert_int_eq(copse_baseline_make(t, COPSE_BASELINE_HOSTS, &options, &none, NULL, &err),
                   COPSE_UNSUPPORTED);
  ck_assert_str_eq(err.text, "hosts needs at least two hosts");
  copse_topology_free(t);
}
END_TEST

/* Over a switch nobody forwards: the bound for schedules that don't is taken over, with its rule.
 * In a ring ranks must, so the bound is a cut of our own. */
START_TEST(a_bound_without_forwarding_binds_only_its_like) {
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[0]);
  struct copse_baseline_options options = options_of(COPSE_ALLTOALL, NULL);
  struct copse_solve_options solve = {
      .collective = COPSE_ALLTOALL, .root = -1, .no_forward = true, .label = "test.json"};
  struct copse_solve_seconds seconds;
  struct copse_schedule *like = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_solve_schedule(t, &solve, &like, &seconds, &err), &err);
  options.like = like;
  struct copse_schedule *s = make(t, COPSE_BASELINE_SPREAD_OUT, &options, NULL);
  ck_assert(s->no_forward);
  verify(t, s, "switch");
  copse_schedule_free(s);
  copse_topology_free(t);
  t = copse_test_topology(copse_test_fabrics[1]);
  s = make(t, COPSE_BASELINE_SPREAD_OUT, &options, NULL);
  ck_assert(!s->no_forward);
  verify(t, s, "ring");
  copse_schedule_free(s);
  copse_schedule_free(like);
  copse_topology_free(t);
}
END_TEST

static void check_time(const struct copse_topology *t, enum copse_baseline kind,
                       copse_collective collective, int64_t num, int64_t den) {
  struct copse_baseline_options options = options_of(collective, NULL);
  struct copse_schedule *s = make(t, kind, &options, NULL);
  char text[COPSE_Q_TEXT];
  ck_assert_msg(s->time_per_GB.num == num && s->time_per_GB.den == den, "%s of %s: %s",
                copse_baseline_name(kind), copse_collective_name(collective),
                copse_q_text(s->time_per_GB, text));
  copse_schedule_free(s);
}

/* A switch of 300 GB/s a rank: a ring's rank receives 3/4 M, direct sends each shard 3 times;
 * an allreduce does so twice; a broadcast in a chain sends M over each link once. Five ranks in
 * a ring of 50 GB/s: 4/5 M, half each way round. */
START_TEST(times_are_those_of_the_textbook) {
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[0]);
  check_time(t, COPSE_BASELINE_RINGS, COPSE_ALLGATHER, 1, 400);
  check_time(t, COPSE_BASELINE_DIRECT, COPSE_ALLGATHER, 1, 400);
  check_time(t, COPSE_BASELINE_RINGS, COPSE_ALLREDUCE, 1, 200);
  check_time(t, COPSE_BASELINE_RINGS, COPSE_BROADCAST, 1, 300);
  check_time(t, COPSE_BASELINE_DIRECT, COPSE_BROADCAST, 1, 100);
  check_time(t, COPSE_BASELINE_SPREAD_OUT, COPSE_ALLTOALL, 1, 400);
  copse_topology_free(t);
  t = copse_test_topology(copse_test_fabrics[1]);
  check_time(t, COPSE_BASELINE_RINGS, COPSE_ALLGATHER, 1, 125);
  copse_topology_free(t);
}
END_TEST

/* Two hosts of eight, a rail and a NIC of 25 GB/s a GPU: 15/16 M takes every edge of a ring, so it
 * leaves a host once a channel; the channels share eight NICs. */
START_TEST(rings_use_every_nic) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_load("topologies/a100-x2.json", NULL, &t, &err), &err);
  struct copse_baseline_options options = options_of(COPSE_ALLGATHER, NULL);
  options.pass_on = true;
  struct copse_schedule *s = make(t, COPSE_BASELINE_RINGS, &options, NULL);
  ck_assert_str_eq(COPSE_Q_STRING(s->time_per_GB), "3/640"); /* 15/16 / (8 * 25) */
  copse_schedule_free(s);
  options.pass_on = false; /* GPUs that keep what they pass on: a forest, and faster */
  s = make(t, COPSE_BASELINE_RINGS, &options, NULL);
  verify(t, s, "rings");
  ck_assert_int_lt(copse_q_cmp(s->time_per_GB, (struct copse_q){3, 640}), 0);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Hosts of two GPUs, each GPU on an NVSwitch and all of its host's NICs; what cables join. */
static struct copse_topology *make_cabled(int hosts, int nics_of_last, const char *cables) {
  static const char link[] = "{\"src\": \"h%d.%s%d\", \"dst\": \"h%d.%s%d\", \"bandwidth\": %d},";
  char nodes[1000] = "", links[4000] = "", json[6000];
  int n = 0, m = 0;
  for (int h = 0; h < hosts; h++) {
    int nics = h + 1 < hosts ? 1 : nics_of_last;
    n +=
        snprintf(nodes + n, sizeof nodes - (size_t)n,
                 "{\"id\": \"h%d.g0\", \"type\": \"gpu\"}, {\"id\": \"h%d.g1\", \"type\": \"gpu\"},"
                 "{\"id\": \"h%d.sw0\", \"type\": \"nvswitch\"},",
                 h, h, h);
    for (int g = 0; g < 2; g++)
      m += snprintf(links + m, sizeof links - (size_t)m, link, h, "g", g, h, "sw", 0, 100);
    for (int i = 0; i < nics; i++) {
      n += snprintf(nodes + n, sizeof nodes - (size_t)n,
                    "{\"id\": \"h%d.n%d\", \"type\": \"nic\"},", h, i);
      for (int g = 0; g < 2; g++)
        if (nics == 1 || g == i)
          m += snprintf(links + m, sizeof links - (size_t)m, link, h, "g", g, h, "n", i, 50);
    }
  }
  nodes[n - 1] = '\0';
  snprintf(json, sizeof json,
           "{\"format\": \"copse-topology/1\", \"name\": \"cabled\", \"nodes\": [%s],"
           "\"links\": [%s %s]}",
           nodes, links, cables);
  return copse_test_topology(json);
}

#define CABLE(a, b) "{\"src\": \"" a "\", \"dst\": \"" b "\", \"bandwidth\": 50}"

/* NICs cabled to each other pass nothing on to a third host, so they are no rail of three hosts.
 * Two hosts have rings, and three have all other baselines. */
START_TEST(cables_between_nics_are_no_network) {
  static const struct {
    int hosts, nics_of_last;
    const char *cables, *why;
  } cases[] = {
      {2, 1, CABLE("h0.n0", "h1.n0"), NULL},
      {3, 1, CABLE("h0.n0", "h1.n0") "," CABLE("h1.n0", "h2.n0"), "over the network alone"},
      {3, 2, CABLE("h0.n0", "h1.n0") "," CABLE("h1.n0", "h2.n0") "," CABLE("h2.n1", "h0.n0"),
       "over the network alone"},
  };
  struct copse_baseline_options options = options_of(all[_i], NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_topology *t = make_cabled(cases[i].hosts, cases[i].nics_of_last, cases[i].cables);
    for (int pass_on = 0; pass_on < 2; pass_on++) {
      struct copse_schedule *s = NULL;
      struct copse_err err = COPSE_ERR_INIT;
      options.pass_on = pass_on == 1;
      copse_status status = copse_baseline_make(t, COPSE_BASELINE_RINGS, &options, &s, NULL, &err);
      ck_assert_int_eq(status, cases[i].why ? COPSE_UNSUPPORTED : COPSE_OK);
      if (cases[i].why) ck_assert_msg(strstr(err.text, cases[i].why), "%s", err.text);
      copse_schedule_free(s);
    }
    options.pass_on = false;
    ck_assert_int_eq(check_all(t, &options, "cabled"), cases[i].why ? 3 : 4);
    copse_topology_free(t);
  }
}
END_TEST

/* NICs without GPUDirect RDMA: what leaves a host or comes in crosses the link from its PCIe switch
 * to the CPU, 96 GB/s, so rings have 48 and 3/4 M takes 1/64 s. Trees need not go there. */
START_TEST(rings_without_gpudirect_pass_the_cpu) {
  char json[4000];
  int n = snprintf(json, sizeof json,
                   "{\"format\": \"copse-topology/1\", \"name\": \"plain\", \"nodes\": [");
  for (int h = 0; h < 2; h++)
    n +=
        snprintf(json + n, sizeof json - (size_t)n,
                 "{\"id\": \"h%d.g0\", \"type\": \"gpu\"}, {\"id\": \"h%d.g1\", \"type\": \"gpu\"},"
                 "{\"id\": \"h%d.p\", \"type\": \"pcie\"}, {\"id\": \"h%d.c\", \"type\": \"cpu\"},"
                 "{\"id\": \"h%d.n0\", \"type\": \"nic\", \"gdr\": false},",
                 h, h, h, h, h);
  n += snprintf(json + n, sizeof json - (size_t)n,
                "{\"id\": \"leaf\", \"type\": \"switch\"}], \"links\": [");
  for (int h = 0; h < 2; h++)
    n += snprintf(json + n, sizeof json - (size_t)n,
                  "{\"src\": \"h%d.g0\", \"dst\": \"h%d.p\", \"bandwidth\": 48},"
                  "{\"src\": \"h%d.g1\", \"dst\": \"h%d.p\", \"bandwidth\": 48},"
                  "{\"src\": \"h%d.g0\", \"dst\": \"h%d.g1\", \"bandwidth\": 100},"
                  "{\"src\": \"h%d.p\", \"dst\": \"h%d.c\", \"bandwidth\": 96},"
                  "{\"src\": \"h%d.n0\", \"dst\": \"h%d.p\", \"bandwidth\": 96},"
                  "{\"src\": \"h%d.n0\", \"dst\": \"leaf\", \"bandwidth\": 96}%s",
                  h, h, h, h, h, h, h, h, h, h, h, h == 0 ? "," : "]}");
  struct copse_topology *t = copse_test_topology(json);
  struct copse_baseline_options options = options_of(COPSE_ALLGATHER, NULL);
  options.pass_on = true;
  struct copse_schedule *s = make(t, COPSE_BASELINE_RINGS, &options, NULL);
  ck_assert_str_eq(COPSE_Q_STRING(s->time_per_GB), "1/64");
  copse_schedule_free(s);
  options.pass_on = false;
  ck_assert_int_eq(check_all(t, &options, "plain"), 4);
  copse_topology_free(t);
}
END_TEST

/* NCCL's own rings on a machine of two sockets, from its dump: a ring crosses
 * each way over 10 GB/s, twice 7/8 M. */
START_TEST(nccls_rings_come_from_a_dump) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  struct copse_nccl_graphs graphs;
  struct copse_baseline_options options = options_of(COPSE_ALLREDUCE, NULL);
  ASSERT_OK(copse_topology_load(copse_test_data("nccl/pcie-8-2s-skl.topo.xml"), NULL, &t, &err),
            &err);
  ASSERT_OK(copse_nccl_graphs_load(copse_test_data("nccl/pcie-8-2s-skl.1.graph.xml"), NULL, &graphs,
                                   &err),
            &err);
  options.nccl = &graphs;
  struct copse_schedule *s = make(t, COPSE_BASELINE_RINGS, &options, NULL);
  verify(t, s, "nccl");
  ck_assert_str_eq(COPSE_Q_STRING(s->time_per_GB), "7/40");
  copse_schedule_free(s);
  copse_nccl_graphs_free(&graphs);
  copse_topology_free(t);
}
END_TEST

/* ---- alltoall -------------------------------------------------------------------------- */

/* A mesh of 10 GB/s: M/N takes one link; pairwise does N - 1 such rounds of itself and alpha,
 * spread-out all at once. Four ranks (XOR) and five (rotation). */
START_TEST(pairwise_pays_for_every_round) {
  for (int n = 4; n <= 5; n++) {
    struct copse_topology *t = copse_test_sim_mesh(n);
    struct copse_baseline_options options = options_of(COPSE_ALLTOALL, NULL);
    double m = 1e6, one = m / n / 1e4 + 2;
    struct copse_sim_dag rounds = {0}, at_once = {0};
    copse_schedule_free(make(t, COPSE_BASELINE_PAIRWISE, &options, &rounds));
    copse_schedule_free(make(t, COPSE_BASELINE_SPREAD_OUT, &options, &at_once));
    ck_assert_int_eq(rounds.n_transfers, n * (n - 1));
    ck_assert_double_eq_tol(simulate(t, &rounds, m).us, (n - 1) * one, 1e-6);
    ck_assert_double_eq_tol(simulate(t, &at_once, m).us, one, 1e-6);
    copse_sim_dag_free(&rounds);
    copse_sim_dag_free(&at_once);
    copse_topology_free(t);
  }
}
END_TEST

static bool passes(const struct copse_schedule *s, const struct copse_schedule_path *path,
                   int rank) {
  for (int i = 0; i < path->n_nodes; i++)
    if (path->nodes[i] == s->rank_nodes[rank]) return true;
  return false;
}

/* Ranks of places a and b in different hosts meet at place b of the sender's host. */
START_TEST(a_2dh_path_turns_at_the_receivers_place) {
  int gpus = 3;
  struct copse_topology *t = copse_test_sim_hosts(3, gpus, true);
  struct copse_baseline_options options = options_of(COPSE_ALLTOALL, NULL);
  struct copse_schedule *s = make(t, COPSE_BASELINE_2DH, &options, NULL);
  ck_assert_int_eq(s->n_flows, 9 * 8);
  for (int f = 0; f < s->n_flows; f++) {
    const struct copse_schedule_flow *flow = &s->flows[f];
    int turn = flow->src / gpus * gpus + flow->dst % gpus;
    ck_assert_int_eq(flow->n_paths, 1);
    ck_assert(passes(s, &flow->paths[0], turn));
    for (int r = 0; r < s->n_ranks; r++)
      ck_assert(passes(s, &flow->paths[0], r) == (r == flow->src || r == flow->dst || r == turn));
  }
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* All of M is to go from one GPU to one of another host: over all rails, a third each. */
START_TEST(birkhoff_spreads_one_hot_pair_over_the_rails) {
  int64_t demand[36] = {[0 * 6 + 4] = 700};
  struct copse_topology *t = copse_test_sim_hosts(2, 3, true);
  struct copse_baseline_options options = options_of(COPSE_ALLTOALL, demand);
  struct copse_schedule *s = make(t, COPSE_BASELINE_BIRKHOFF, &options, NULL);
  verify(t, s, "birkhoff");
  ck_assert_int_eq(s->n_flows, 1);
  ck_assert_int_eq(s->flows[0].n_paths, 3);
  ck_assert_int_eq(s->time_per_GB.num, 1);
  ck_assert_int_eq(s->time_per_GB.den, 75);
  ck_assert(s->bound.time_per_GB.num == 1);
  copse_schedule_free(s);
  s = make(t, COPSE_BASELINE_2DH, &options, NULL); /* one NIC */
  ck_assert_int_eq(s->time_per_GB.den, 25);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

static void check_demand(const struct copse_topology *t, const int64_t *demand, const char *what) {
  struct copse_baseline_options options = options_of(COPSE_ALLTOALL, demand);
  ck_assert_int_ge(check_all(t, &options, what), 2);
}

START_TEST(demands_of_every_shape_are_served) {
  enum { N = 6 };
  struct copse_topology *hosts = copse_test_sim_hosts(2, 3, _i == 0);
  int64_t d[N * N];
  uint64_t state = 7;
  memset(d, 0, sizeof d); /* one hot column, and its own rank */
  for (int i = 0; i < N; i++) d[i * N + 2] = 1000 + i;
  check_demand(hosts, d, "hot column");
  for (int j = 0; j < N; j++) d[1 * N + j] = d[4 * N + j] = 0;
  check_demand(hosts, d, "empty rows");
  memset(d, 0, sizeof d);
  for (int i = 0; i < N; i++) d[i * N + i] = 5;
  check_demand(hosts, d, "diagonal");
  d[5] = (int64_t)1 << 41;
  check_demand(hosts, d, "one pair");
  for (int round = 0; round < 30; round++) {
    for (int i = 0; i < N * N; i++)
      d[i] = copse_test_random_int(&state, 0, 3) == 0 ? 0 : copse_test_random_int(&state, 1, 99999);
    check_demand(hosts, d, "random");
  }
  for (int i = 0; i < N * N; i++) d[i] = i / N < 3 ? 100 : 0;
  check_demand(hosts, d, "one host sends all");
  copse_topology_free(hosts);
}
END_TEST

static void check_refused(const struct copse_topology *t, enum copse_baseline kind,
                          const struct copse_baseline_options *options, copse_status expected,
                          const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = (struct copse_schedule *)&err;
  struct copse_sim_dag dag = {0};
  ASSERT_FAILS(copse_baseline_make(t, kind, options, &s, &dag, &err), expected, &err, part);
  ck_assert_ptr_null(s);
  ck_assert_int_eq(dag.n_transfers, 0);
}

START_TEST(what_does_not_apply_is_refused) {
  struct copse_topology *mesh = copse_test_sim_mesh(2);
  int64_t nothing[4] = {0}, less[4] = {1, -1, 0, 0};
  struct copse_baseline_options o = options_of(COPSE_ALLTOALL, nothing);
  check_refused(mesh, COPSE_BASELINE_PAIRWISE, &o, COPSE_INVALID, "zero");
  o.demand = less;
  check_refused(mesh, COPSE_BASELINE_SPREAD_OUT, &o, COPSE_INVALID, "negative");
  o.demand = NULL;
  check_refused(mesh, COPSE_BASELINE_2DH, &o, COPSE_UNSUPPORTED, "two hosts");
  check_refused(mesh, COPSE_BASELINE_BIRKHOFF, &o, COPSE_UNSUPPORTED, "two hosts");
  check_refused(mesh, COPSE_BASELINE_RINGS, &o, COPSE_UNSUPPORTED, "alltoall");
  copse_topology_free(mesh);
  struct copse_topology *one_way = copse_test_sim_parse(
      "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
      "{\"id\":\"b\",\"type\":\"gpu\"}],\"links\":[{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":1,"
      "\"duplex\":false}]}");
  check_refused(one_way, COPSE_BASELINE_PAIRWISE, &o, COPSE_INFEASIBLE, "rank 0 (a)");
  copse_topology_free(one_way);
}
END_TEST

/* Small demands or large, the same bytes: the schedule's JSON does not change. */
START_TEST(the_same_input_gives_the_same_schedule) {
  struct copse_topology *t = copse_test_sim_hosts(3, 2, true);
  for (int k = 0; k < COPSE_N_ARRANGEMENTS; k++) {
    enum copse_baseline kind = (enum copse_baseline)k;
    if (kind == COPSE_BASELINE_RINGS) continue; /* these hosts have no NICs */
    struct copse_baseline_options options = options_of(collective_of(kind), NULL);
    struct copse_schedule *a = make(t, kind, &options, NULL), *b = make(t, kind, &options, NULL);
    struct copse_err err = COPSE_ERR_INIT;
    char *text_a = NULL, *text_b = NULL;
    size_t size_a, size_b;
    ASSERT_OK(copse_schedule_to_json(a, &text_a, &size_a, &err), &err);
    ASSERT_OK(copse_schedule_to_json(b, &text_b, &size_b, &err), &err);
    ck_assert_uint_eq(size_a, size_b);
    ck_assert_mem_eq(text_a, text_b, size_a);
    struct copse_schedule *read = NULL;
    ASSERT_OK(copse_schedule_parse("b.json", text_a, size_a, &read, &err), &err);
    verify(t, read, "as read back");
    copse_schedule_free(read);
    free(text_a);
    free(text_b);
    copse_schedule_free(a);
    copse_schedule_free(b);
  }
  copse_topology_free(t);
}
END_TEST

/* ---- Birkhoff -------------------------------------------------------------------------- */

static int64_t largest_sum(const int64_t *m, int n) {
  int64_t most = 0;
  for (int i = 0; i < n; i++) {
    int64_t row = 0, column = 0;
    for (int j = 0; j < n; j++) {
      row += m[i * n + j];
      column += m[j * n + i];
    }
    if (row > most) most = row;
    if (column > most) most = column;
  }
  return most;
}

static void check_decomposition(const int64_t *m, int n) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_birkhoff b;
  int64_t left[64], total = 0;
  ASSERT_OK(copse_birkhoff_decompose(m, n, &b, &err), &err);
  memcpy(left, m, (size_t)(n * n) * sizeof *left);
  for (int s = 0; s < b.n_steps; s++) {
    unsigned columns = 0;
    ck_assert_int_gt(b.amounts[s], 0);
    total += b.amounts[s];
    for (int i = 0; i < n; i++) {
      ck_assert(b.sent[s * n + i] >= 0 && b.sent[s * n + i] <= b.amounts[s]);
      columns |= 1u << b.to[s * n + i];
      left[i * n + b.to[s * n + i]] -= b.sent[s * n + i];
    }
    ck_assert_uint_eq(columns, (1u << n) - 1); /* a permutation */
  }
  for (int i = 0; i < n * n; i++) ck_assert_int_eq(left[i], 0);
  ck_assert_int_eq(total, largest_sum(m, n));
  ck_assert_int_le(b.n_steps, n * n - 2 * n + 2);
  copse_birkhoff_free(&b);
}

START_TEST(a_decomposition_sends_all_in_the_shortest_time) {
  uint64_t state = 3;
  for (int round = 0; round < 300; round++) {
    int n = copse_test_random_int(&state, 2, 8);
    int64_t m[64];
    int most = round % 3 == 0 ? 3 : 1000000;
    for (int i = 0; i < n * n; i++)
      m[i] = i % (n + 1) == 0 && round % 2 ? 0 : copse_test_random_int(&state, 0, most);
    check_decomposition(m, n);
  }
}
END_TEST

START_TEST(uniform_demand_gives_rotations) {
  for (int n = 2; n <= 8; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_birkhoff b;
    int64_t m[64];
    for (int i = 0; i < n * n; i++) m[i] = i % (n + 1) == 0 ? 0 : 12;
    check_decomposition(m, n);
    ASSERT_OK(copse_birkhoff_decompose(m, n, &b, &err), &err);
    ck_assert_int_eq(b.n_steps, n - 1);
    for (int s = 0; s < b.n_steps; s++)
      for (int i = 0; i < n; i++)
        ck_assert_int_eq((b.to[s * n + i] - i + n) % n, (b.to[s * n] + n) % n);
    copse_birkhoff_free(&b);
  }
}
END_TEST

START_TEST(nothing_to_send_takes_no_step) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_birkhoff b;
  int64_t zero[4] = {0}, less[4] = {0, -1, 0, 0};
  ASSERT_OK(copse_birkhoff_decompose(zero, 2, &b, &err), &err);
  ck_assert_int_eq(b.n_steps, 0);
  copse_birkhoff_free(&b);
  ASSERT_FAILS(copse_birkhoff_decompose(less, 2, &b, &err), COPSE_INVALID, &err, "negative");
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------- */

static copse_status make_and_simulate(const struct copse_topology *t, enum copse_baseline kind,
                                      struct copse_err *err) {
  struct copse_baseline_options options = options_of(collective_of(kind), NULL);
  struct copse_schedule *s = NULL;
  struct copse_sim_dag dag = {0};
  struct copse_sim_result result;
  copse_status status;
  COPSE_TRY(copse_baseline_make(t, kind, &options, &s, &dag, err));
  status = copse_simulate(t, &dag, NULL, 1e6, &result, NULL, err);
out:
  copse_schedule_free(s);
  copse_sim_dag_free(&dag);
  return status;
}

START_TEST(every_failing_allocation_is_reported_and_nothing_leaks) {
  if (!REPLACES_MALLOC) COPSE_SKIP("the sanitizer has its own allocator");
  if (_i == COPSE_BASELINE_RINGS) COPSE_SKIP("GLPK ends a process that it has no memory for");
  struct copse_topology *t = copse_test_sim_hosts(2, 2, true);
  int failures = 0;
  for (bool reached = true; reached; failures++) {
    long before = live;
    struct copse_err err = COPSE_ERR_INIT;
    until_failure = failures;
    copse_status status = make_and_simulate(t, (enum copse_baseline)_i, &err);
    reached = until_failure < 0;
    until_failure = -1;
    ck_assert_int_eq(live, before);
    ck_assert_msg(status == (reached ? COPSE_NOMEM : COPSE_OK), "allocation %d: %s", failures,
                  err.text);
  }
  ck_assert_int_gt(failures, 20);
  copse_topology_free(t);
}
END_TEST

/* ---- reference fabrics ----------------------------------------------------------------- */

/* The last two take longest. */
static const char *const references[] = {
    "reference/a100-x2.json",         "reference/mi250-x2.json", "reference/dgx1-v100.json",
    "reference/mixed-a100-h100.json", "reference/random-1.json", "reference/torus-4x4.json",
    "reference/a100-x2-degraded.json"};
#define N_REFERENCES ((int)(sizeof references / sizeof *references) - (COPSE_TEST_SWEEPS ? 0 : 2))

START_TEST(baselines_verify_on_reference_fabrics) {
  const char *path = copse_test_data(references[_i]);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_load(path, NULL, &t, &err), &err);
  for (int c = 0; c < N_ALL; c++) {
    struct copse_baseline_options options = options_of(all[c], NULL);
    ck_assert_int_ge(check_all(t, &options, references[_i]), 2);
  }
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/baseline");
  TCase *fabrics = tcase_create("fabrics"), *alltoall = tcase_create("alltoall");
  TCase *birkhoff = tcase_create("birkhoff");
  tcase_set_timeout(fabrics, 240);
  tcase_set_timeout(alltoall, 120);
  tcase_set_timeout(birkhoff, 60);
  tcase_add_loop_test(fabrics, baselines_verify_on_random_fabrics, 0, N_ALL);
  tcase_add_loop_test(fabrics, baselines_verify_on_hosts, 0, N_ALL);
  tcase_add_loop_test(fabrics, the_bound_of_the_optimum_binds_every_baseline, 0, N_ALL);
  tcase_add_loop_test(fabrics, a_scattered_broadcast_takes_what_the_narrowest_links_take, 3, 5);
  tcase_add_test(fabrics, trees_over_hosts_are_two_hops_high);
  tcase_add_test(fabrics, a_bound_without_forwarding_binds_only_its_like);
  tcase_add_test(fabrics, times_are_those_of_the_textbook);
  tcase_add_test(fabrics, rings_use_every_nic);
  tcase_add_loop_test(fabrics, cables_between_nics_are_no_network, 0, N_ALL - 1);
  tcase_add_test(fabrics, rings_without_gpudirect_pass_the_cpu);
  tcase_add_test(fabrics, nccls_rings_come_from_a_dump);
  tcase_add_test(alltoall, pairwise_pays_for_every_round);
  tcase_add_test(alltoall, a_2dh_path_turns_at_the_receivers_place);
  tcase_add_test(alltoall, birkhoff_spreads_one_hot_pair_over_the_rails);
  tcase_add_loop_test(alltoall, demands_of_every_shape_are_served, 0, 2);
  tcase_add_test(alltoall, what_does_not_apply_is_refused);
  tcase_add_test(alltoall, the_same_input_gives_the_same_schedule);
  tcase_add_test(birkhoff, a_decomposition_sends_all_in_the_shortest_time);
  tcase_add_test(birkhoff, uniform_demand_gives_rotations);
  tcase_add_test(birkhoff, nothing_to_send_takes_no_step);
  suite_add_tcase(suite, fabrics);
  TCase *plain = copse_test_plain(suite, 240);
  tcase_add_loop_test(plain, baselines_verify_on_reference_fabrics, COPSE_TEST_UP_TO(0, 4),
                      COPSE_TEST_UP_TO(N_REFERENCES, 5));
  tcase_add_loop_test(plain, every_failing_allocation_is_reported_and_nothing_leaks, 0,
                      COPSE_N_ARRANGEMENTS);
  suite_add_tcase(suite, alltoall);
  suite_add_tcase(suite, birkhoff);
  return copse_test_run(suite);
}
