/* The simulator against times worked out by hand, and against exact loads. */
#include "predict/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "codegen/lower/lower.h"
#include "runtime/plan/plan_math.h"
#include "predict/simulate_dag.h"
#include "support/fabric.h"
#include "support/random_topology.h"
#include "support/sim_fabric.h"
#include "support/support.h"

/* Exactly n chunks for the largest transfer; alpha 2 us. 10 GB/s are 10^4 bytes a us. */
static struct copse_sim_options cut_in(int n) {
  return (struct copse_sim_options){.alpha_us = 2,
                                    .min_chunk_bytes = 1,
                                    .max_chunk_bytes = 1e18,
                                    .pipeline_chunks = n,
                                    .max_steps = 100000000};
}

static struct copse_sim_result simulate_with(const struct copse_sim_options *options,
                                             const struct copse_topology *topology,
                                             const struct copse_sim_dag *dag, double unit_bytes,
                                             double *arrivals) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_result result;
  ASSERT_OK(copse_simulate(topology, dag, options, unit_bytes, &result, arrivals, &err), &err);
  ck_assert_double_ge(result.us, result.busiest_us);
  return result;
}

static struct copse_sim_result simulate(const struct copse_topology *topology,
                                        const struct copse_sim_dag *dag, int chunks,
                                        double unit_bytes, double *arrivals) {
  struct copse_sim_options options = cut_in(chunks);
  return simulate_with(&options, topology, dag, unit_bytes, arrivals);
}

/* A transfer from node to node of one link each, "a-b-c"; ids of one letter. */
static int add(struct copse_sim_dag *dag, const struct copse_topology *topology, const char *path,
               struct copse_sim_transfer transfer) {
  struct copse_err err = COPSE_ERR_INIT;
  int nodes[16], n = 0, id;
  for (const char *p = path; *p; p += p[1] ? 2 : 1) {
    char name[] = {*p, '\0'};
    nodes[n++] = copse_topology_find(topology, name);
    ck_assert_int_ge(nodes[n - 1], 0);
  }
  ASSERT_OK(copse_sim_dag_add_path(dag, topology, nodes, n, &transfer, &id, &err), &err);
  return id;
}

#define TOL 1e-6
#define NODES                                                                                   \
  "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"}," \
  "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"c\",\"type\":\"gpu\"},"                            \
  "{\"id\":\"d\",\"type\":\"gpu\"},"
#define LINK(a, b, bw, us) \
  "{\"src\":\"" a "\",\"dst\":\"" b "\",\"bandwidth\":" bw ",\"latency\":" us "}"

/* Ranks in a row, 10 GB/s; the first link has 3 us of latency. */
static const char row[] =
    NODES "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[" LINK("a", "b", "10", "3") "," LINK(
        "b", "c", "10", "0") "," LINK("c", "d", "10", "0") "," LINK("a", "s", "10", "0") "]}";

/* a and b at 10 GB/s, c and d at 20, around a switch; latencies 1, 0, 2, 0. */
static const char star[] =
    NODES "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[" LINK("a", "s", "10", "1") "," LINK(
        "b", "s", "10", "0") "," LINK("c", "s", "20", "2") "," LINK("d", "s", "20", "0") "]}";

/* 10^6 bytes over 10^4 bytes a us, then 3 us and alpha; chunks of one transfer follow at once. */
START_TEST(one_link_takes_latency_plus_bytes_over_bandwidth) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_sim_dag dag = {0};
  add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1});
  ck_assert_double_eq_tol(simulate(t, &dag, 1, 1e6, NULL).us, 105, TOL);
  ck_assert_double_eq_tol(simulate(t, &dag, 16, 1e6, NULL).us, 105, TOL);
  ck_assert_double_eq_tol(simulate(t, &dag, 16, 0, NULL).us, 5, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* 4 chunks each of 25 us take turns, the lower order first: the one ends at 175, the other
 * at 200, plus 5. */
START_TEST(two_transfers_on_a_link_take_turns) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_sim_dag dag = {0};
  double at[2];
  add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1, .order = 1});
  add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1, .order = 0});
  struct copse_sim_result r = simulate(t, &dag, 4, 1e6, at);
  ck_assert_double_eq_tol(at[1], 180, TOL);
  ck_assert_double_eq_tol(at[0], 205, TOL);
  ck_assert_double_eq_tol(r.busiest_us, 200, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* As above, the link taken for 3 us of its own and 2 of alpha with each of 8 chunks: the ones end
 * at 7 * 30 + 25, less what the last but one waits for, plus 5. Over a switch, 1 us into it and 2
 * out of it, 25 us a chunk: the last one waits for neither. */
START_TEST(latencies_that_occupy_links_delay_what_follows) {
  struct copse_topology *t = copse_test_sim_parse(row), *u = copse_test_sim_parse(star);
  struct copse_sim_dag dag = {0}, relayed = {0};
  struct copse_sim_options options = cut_in(4);
  double at[2];
  options.alpha_occupies = true;
  add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1, .order = 1});
  add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1, .order = 0});
  struct copse_sim_result r = simulate_with(&options, t, &dag, 1e6, at);
  ck_assert_double_eq_tol(at[1], 6 * 30 + 30, TOL);
  ck_assert_double_eq_tol(at[0], 7 * 30 + 30, TOL);
  ck_assert_double_eq_tol(r.busiest_us, 8 * 30, TOL);
  /* the link into b is taken for 25 + 2 us by a chunk, the one before for 25 + 1 */
  add(&relayed, u, "a-s-b", (struct copse_sim_transfer){.amount = 1});
  ck_assert_double_eq_tol(simulate_with(&options, u, &relayed, 1e6, NULL).us, 1 + 4 * 27, TOL);
  copse_sim_dag_free(&dag);
  copse_sim_dag_free(&relayed);
  copse_topology_free(t);
  copse_topology_free(u);
}
END_TEST

/* Duplex 1.5: 150 us both ways at once, 100 for one way or for others' ways; where less goes back
 * than forth, the rest goes alone. */
START_TEST(what_goes_both_ways_at_once_may_take_longer) {
  struct copse_topology *t = copse_test_sim_parse(star);
  struct copse_sim_dag even = {0}, uneven = {0}, apart = {0};
  struct copse_sim_options options = cut_in(100);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_result r;
  double at[2];
  options.duplex = 1.5;
  add(&even, t, "a-s-b", (struct copse_sim_transfer){.amount = 1});
  add(&even, t, "b-s-a", (struct copse_sim_transfer){.amount = 1});
  ASSERT_OK(copse_simulate(t, &even, &options, 1e6, &r, NULL, &err), &err);
  ck_assert_double_eq_tol(r.us, 153, TOL);
  ck_assert_double_eq_tol(r.busiest_us, 150, TOL);
  add(&uneven, t, "a-s-b", (struct copse_sim_transfer){.amount = 1});
  add(&uneven, t, "b-s-a", (struct copse_sim_transfer){.amount = 0.5});
  ASSERT_OK(copse_simulate(t, &uneven, &options, 1e6, &r, at, &err), &err);
  ck_assert_double_eq_tol(at[1], 78, TOL);
  ck_assert_double_ge(at[0], 128);
  ck_assert_double_le(at[0], 130.5); /* a chunk, and those started before at[1] */
  add(&apart, t, "a-s-b", (struct copse_sim_transfer){.amount = 1});
  add(&apart, t, "c-s-a", (struct copse_sim_transfer){.amount = 1});
  ASSERT_OK(copse_simulate(t, &apart, &options, 1e6, &r, NULL, &err), &err);
  ck_assert_double_le(r.us, 105 + TOL);
  copse_sim_dag_free(&even);
  copse_sim_dag_free(&uneven);
  copse_sim_dag_free(&apart);
  copse_topology_free(t);
}
END_TEST

/* 10 chunks to c, 1 us on a's link and 10 on c's; 10 to d, 1 us on both. Without slots they take
 * turns on a's link, and what is for d waits for what is only queued for c: 20 us. With 2 slots c's
 * third chunk comes after 10 us, when 2 of c's and 8 of d's have left a; then one each, and d's
 * last. c's link is busy all the time in any case. */
START_TEST(what_is_held_up_leaves_the_links_before_to_others) {
  static const char narrow[] =
      NODES "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[" LINK("a", "s", "10", "0") "," LINK(
          "c", "s", "1", "0") "," LINK("d", "s", "10", "0") "," LINK("a", "b", "10", "0") "]}";
  struct copse_topology *t = copse_test_sim_parse(narrow);
  struct copse_sim_dag dag = {0};
  struct copse_sim_options options = cut_in(10);
  double at[2];
  add(&dag, t, "a-s-c", (struct copse_sim_transfer){.amount = 1, .order = 0});
  add(&dag, t, "a-s-d", (struct copse_sim_transfer){.amount = 1, .order = 1});
  for (options.fifo = 0; options.fifo <= 20; options.fifo += 2) {
    simulate_with(&options, t, &dag, 1e5, at);
    ck_assert_double_eq_tol(at[0], 102, TOL);
    if (options.fifo == 0 || options.fifo >= 10) ck_assert_double_eq_tol(at[1], 22, TOL);
    if (options.fifo == 2) ck_assert_double_eq_tol(at[1], 15, TOL);
    if (options.fifo == 4) ck_assert_double_eq_tol(at[1], 17, TOL); /* 4 and one of c's */
  }
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* b adds what a and c send and passes the sum on to d: 10 chunks each, 1 us on a link, from c 10.
 * With 2 slots at b, a's third chunk waits until b passes the first one on, at 10 us and alpha;
 * until then a's link is d's, which has its 10 chunks after 12. Without slots they take turns. */
START_TEST(a_reduction_does_not_run_ahead_of_its_sum) {
  static const char slow[] =
      NODES "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[" LINK("a", "s", "10", "0") "," LINK(
          "b", "s", "10", "0") "," LINK("c", "s", "1", "0") "," LINK("d", "s", "10", "0") "]}";
  struct copse_topology *t = copse_test_sim_parse(slow);
  struct copse_sim_dag dag = {0};
  struct copse_sim_options options = cut_in(10);
  int both[2];
  double at[4];
  both[0] = add(&dag, t, "a-s-b", (struct copse_sim_transfer){.amount = 1, .reduces = true});
  both[1] = add(&dag, t, "c-s-b", (struct copse_sim_transfer){.amount = 1, .reduces = true});
  add(&dag, t, "b-s-d",
      (struct copse_sim_transfer){.amount = 1, .streams = both, .n_streams = 2, .reduces = true});
  add(&dag, t, "a-s-d", (struct copse_sim_transfer){.amount = 1, .order = 1});
  simulate_with(&options, t, &dag, 1e5, at);
  ck_assert_double_eq_tol(at[0], 21, TOL);
  ck_assert_double_eq_tol(at[3], 22, TOL);
  options.fifo = 2;
  simulate_with(&options, t, &dag, 1e5, at);
  ck_assert_double_eq_tol(at[3], 14, TOL);
  ck_assert_double_eq_tol(at[0], 85, TOL); /* the last, when b passes the 8th on: 80 + 2, 1, 2 */
  ck_assert_double_eq_tol(at[1], 102, TOL);
  ck_assert_double_eq_tol(at[2], 105, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* Two that a rank adds at 4000 bytes a us: whole, 250 us each after the other, the first from 105
 * on. In 100 chunks, adding begins with the first chunk. What doesn't reduce takes no part. */
START_TEST(a_rank_adds_what_comes_in_one_after_the_other) {
  struct copse_topology *t = copse_test_sim_parse(star);
  struct copse_sim_dag dag = {0};
  struct copse_sim_options options = cut_in(1);
  struct copse_sim_result r;
  struct copse_err err = COPSE_ERR_INIT;
  double at[3];
  options.reduce_us_per_byte = 1 / 4e3;
  add(&dag, t, "a-s-c", (struct copse_sim_transfer){.amount = 1, .reduces = true});
  add(&dag, t, "b-s-c", (struct copse_sim_transfer){.amount = 1, .reduces = true});
  add(&dag, t, "c-s-d", (struct copse_sim_transfer){.amount = 1});
  ASSERT_OK(copse_simulate(t, &dag, &options, 1e6, &r, at, &err), &err);
  ck_assert_double_eq_tol(at[2], 54, TOL);
  ck_assert_double_ge(at[0] < at[1] ? at[0] : at[1], 354);
  ck_assert_double_ge(r.us, 604);
  ck_assert_double_le(r.us, 655); /* c's link has both after 100 us, and its chunks are whole */
  options = cut_in(100);
  options.reduce_us_per_byte = 1 / 4e3;
  ASSERT_OK(copse_simulate(t, &dag, &options, 1e6, &r, at, &err), &err);
  ck_assert_double_ge(r.us, 500);
  ck_assert_double_le(r.us, 510);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* 100 us at 10 GB/s whichever link is the narrow one; 1 + 2 us of latency, one alpha. */
START_TEST(relays_cut_through) {
  struct copse_topology *t = copse_test_sim_parse(star);
  struct copse_sim_dag up = {0}, down = {0};
  add(&up, t, "a-s-c", (struct copse_sim_transfer){.amount = 1});
  add(&down, t, "c-s-a", (struct copse_sim_transfer){.amount = 1});
  for (int chunks = 1; chunks < 20; chunks += 6) {
    ck_assert_double_eq_tol(simulate(t, &up, chunks, 1e6, NULL).us, 105, TOL);
    ck_assert_double_eq_tol(simulate(t, &down, chunks, 1e6, NULL).us, 105, TOL);
  }
  copse_sim_dag_free(&up);
  copse_sim_dag_free(&down);
  copse_topology_free(t);
}
END_TEST

/* Two slow senders fill one fast link together: 10 + 10 = 20 GB/s, so both end as if alone. */
START_TEST(slow_links_share_a_fast_one_without_loss) {
  struct copse_topology *t = copse_test_sim_parse(star);
  struct copse_sim_dag dag = {0};
  add(&dag, t, "a-s-d", (struct copse_sim_transfer){.amount = 1});
  add(&dag, t, "b-s-d", (struct copse_sim_transfer){.amount = 1});
  struct copse_sim_result r = simulate(t, &dag, 100, 1e6, NULL);
  ck_assert_double_ge(r.us, 102);
  ck_assert_double_le(r.us, 102 + 2); /* two chunks of 0.5 us on the fast link */
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* Incast: 1 + 1/2 M into a link of 10 GB/s is 150 us, whoever queues. */
START_TEST(incast_queues_at_the_last_link) {
  struct copse_topology *t = copse_test_sim_parse(star);
  struct copse_sim_dag dag = {0};
  add(&dag, t, "c-s-b", (struct copse_sim_transfer){.amount = 1});
  add(&dag, t, "d-s-b", (struct copse_sim_transfer){.amount = 0.5});
  struct copse_sim_result r = simulate(t, &dag, 50, 1e6, NULL);
  ck_assert_double_eq_tol(r.busiest_us, 150, TOL);
  ck_assert_double_ge(r.us, 152);
  ck_assert_double_le(r.us, 155);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* b to d over the rank c, in n chunks of 100/n us: n + 1 of them one after the other, and two
 * alphas. */
START_TEST(ranks_store_and_forward_chunk_by_chunk) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_sim_dag dag = {0};
  add(&dag, t, "b-c-d", (struct copse_sim_transfer){.amount = 1});
  ck_assert_int_eq(dag.n_transfers, 2);
  for (int n = 1; n < 20; n += 4)
    ck_assert_double_eq_tol(simulate(t, &dag, n, 1e6, NULL).us, 100.0 * (n + 1) / n + 4, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* The second starts when the first (100 + 2 us) is there, and 7 us later: 102 + 7 + 102. */
START_TEST(a_dependent_waits_for_the_whole_and_then_its_delay) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_sim_dag dag = {0};
  int first = add(&dag, t, "b-c", (struct copse_sim_transfer){.amount = 1});
  add(&dag, t, "c-d",
      (struct copse_sim_transfer){.amount = 1, .after = &first, .n_after = 1, .delay_us = 7});
  ck_assert_double_eq_tol(simulate(t, &dag, 10, 1e6, NULL).us, 211, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* A reduction of c's (50 us) and a's (101 us, 1 latency) at b: in one piece, what goes on from b
 * starts with the later: 103 + 100 + 2. In many pieces it streams behind the slower one. */
START_TEST(a_reduction_waits_for_all_children) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_sim_dag dag = {0};
  int from[2];
  from[0] = add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1});
  from[1] = add(&dag, t, "c-b", (struct copse_sim_transfer){.amount = 0.5});
  add(&dag, t, "b-c", (struct copse_sim_transfer){.amount = 1, .streams = from, .n_streams = 2});
  ck_assert_double_eq_tol(simulate(t, &dag, 1, 1e6, NULL).us, 105 + 102, TOL);
  ck_assert_double_eq_tol(simulate(t, &dag, 100, 1e6, NULL).us, 1 + 5 + 102, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_barrier_joins_and_costs_nothing) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0};
  int from[2], barrier;
  from[0] = add(&dag, t, "a-b", (struct copse_sim_transfer){.amount = 1});
  from[1] = add(&dag, t, "c-d", (struct copse_sim_transfer){.amount = 1});
  struct copse_sim_transfer join = {.after = from, .n_after = 2};
  ASSERT_OK(copse_sim_dag_add(&dag, &join, &barrier, &err), &err);
  add(&dag, t, "c-d", (struct copse_sim_transfer){.amount = 1, .after = &barrier, .n_after = 1});
  ck_assert_double_eq_tol(simulate(t, &dag, 3, 1e6, NULL).us, 105 + 102, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* A star of one tree: rank 0 to both others over the switch. Without multicast both copies go
 * up one after the other, 200 us; with it one goes up and the switch copies. */
START_TEST(a_multicast_switch_is_fed_once) {
  static const char text[] =
      "{\"format\":\"copse-topology/1\",\"name\":\"m\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
      "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"c\",\"type\":\"gpu\"},"
      "{\"id\":\"s\",\"type\":\"switch\",\"multicast\":%s,\"aggregation\":%s}],\"links\":["
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":10},{\"src\":\"b\",\"dst\":\"s\","
      "\"bandwidth\":10},{\"src\":\"c\",\"dst\":\"s\",\"bandwidth\":10}]}";
  static const char *const ids[] = {"a", "b", "c", "s"};
  static const int ranks[] = {0, 1, 2}, ab[] = {0, 3, 1}, ac[] = {0, 3, 2};
  static const int ba[] = {1, 3, 0}, ca[] = {2, 3, 0};
  static const struct copse_schedule_edge out[] = {{0, 1, ab, 3}, {0, 2, ac, 3}};
  static const struct copse_schedule_edge in[] = {{1, 0, ba, 3}, {2, 0, ca, 3}};
  for (int reduce = 0; reduce < 2; reduce++) {
    for (int able = 0; able < 2; able++) {
      char json[800];
      struct copse_err err = COPSE_ERR_INIT;
      struct copse_sim_dag dag = {0};
      struct copse_schedule_tree tree = {
          .phase = reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST,
          .weight = COPSE_Q_ONE,
          .n_edges = 2,
          .edges = reduce ? in : out};
      struct copse_schedule schedule = {.collective = reduce ? COPSE_REDUCE : COPSE_BROADCAST,
                                        .rank_nodes = ranks,
                                        .n_ranks = 3,
                                        .nodes = ids,
                                        .n_nodes = 4,
                                        .n_trees = 1,
                                        .trees = &tree};
      snprintf(json, sizeof json, text, able && !reduce ? "true" : "false",
               able && reduce ? "true" : "false");
      struct copse_topology *t = copse_test_sim_parse(json);
      ASSERT_OK(copse_sim_dag_of_schedule(&schedule, t, false, &dag, &err), &err);
      ck_assert_double_eq_tol(simulate(t, &dag, 4, 1e6, NULL).us, able ? 102 : 202, TOL);
      copse_sim_dag_free(&dag);
      copse_topology_free(t);
    }
  }
}
END_TEST

/* ---- schedules ------------------------------------------------------------------------- */

static struct copse_sim_dag dag_of(const struct copse_schedule *s, const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0};
  ASSERT_OK(copse_sim_dag_of_schedule(s, t, false, &dag, &err), &err);
  return dag;
}

static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                               COPSE_ALLREDUCE, COPSE_BROADCAST, COPSE_REDUCE};

/* Loads are exact, so the busiest link is taken for M * time_per_GB; and with enough chunks the
 * fill of the pipeline is small beside it. */
START_TEST(large_messages_approach_the_exact_time) {
  for (int f = 0; f < copse_test_n_fabrics; f++) {
    struct copse_topology *t = copse_test_topology(copse_test_fabrics[f]);
    struct copse_schedule *s = copse_test_solve(copse_test_fabrics[f], collectives[_i], 0);
    struct copse_sim_dag dag = dag_of(s, t);
    double exact = 1e11 * 1e-3 * copse_q_to_double(s->time_per_GB);
    struct copse_sim_result r = simulate(t, &dag, 400, 1e11, NULL);
    ck_assert_double_eq_tol(r.busiest_us, exact, 1e-9 * (exact + 1));
    ck_assert_double_le(r.us, 1.04 * exact + 100);
    copse_sim_dag_free(&dag);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(no_size_is_faster_than_the_bound) {
  for (int f = 0; f < copse_test_n_fabrics; f++) {
    struct copse_topology *t = copse_test_topology(copse_test_fabrics[f]);
    struct copse_schedule *s = copse_test_solve(copse_test_fabrics[f], collectives[_i], 0);
    struct copse_sim_dag dag = dag_of(s, t);
    struct copse_err err = COPSE_ERR_INIT;
    double last = 0;
    for (double m = 1; m < 1e10; m *= 7) {
      struct copse_sim_result r;
      ASSERT_OK(copse_simulate(t, &dag, NULL, m, &r, NULL, &err), &err);
      ck_assert_double_ge(r.us * (1 + 1e-12), m * 1e-3 * copse_q_to_double(s->bound.time_per_GB));
      if (s->n_ranks > 1) ck_assert_double_ge(r.us, 2 * copse_schedule_height(s));
      ck_assert_double_ge(r.us * 1.05, last); /* more chunks may make up for a little more data */
      last = r.us;
    }
    copse_sim_dag_free(&dag);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

START_TEST(the_same_input_gives_the_same_bits) {
  const char *json = copse_test_fabrics[2];
  struct copse_topology *t = copse_test_topology(json);
  struct copse_schedule *s = copse_test_solve(json, collectives[_i], 0);
  struct copse_sim_dag a = dag_of(s, t), b = dag_of(s, t);
  size_t n = (size_t)a.n_transfers;
  double *at_a = calloc(n, sizeof *at_a), *at_b = calloc(n, sizeof *at_b);
  ck_assert(at_a && at_b);
  struct copse_sim_result ra = simulate(t, &a, 37, 1e8, at_a), rb = simulate(t, &b, 37, 1e8, at_b);
  ck_assert(ra.us == rb.us && ra.chunks == rb.chunks && ra.busiest_us == rb.busiest_us);
  ck_assert_mem_eq(at_a, at_b, n * sizeof *at_a);
  free(at_a);
  free(at_b);
  copse_sim_dag_free(&a);
  copse_sim_dag_free(&b);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* What is simulated is what a plan of the schedule does: so many chunks of every tree. */
START_TEST(by_default_messages_are_cut_as_plans_cut_them) {
  static const struct copse_test_random_options shape = {2, 9, 5, true, true};
  uint64_t state = 31 * (uint64_t)_i + 7;
  int several = 0;
  for (int i = 0; i < 12; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = copse_test_random_topology(&state, &shape);
    int root = copse_collective_rooted(collectives[_i]) ? 0 : -1;
    struct copse_schedule *s = copse_test_solve_as(
        t, (struct copse_solve_options){.collective = collectives[_i], .root = root});
    struct copse_sim_dag dag = dag_of(s, t);
    struct copse_plan *plan;
    double largest = 0; /* of an allreduce, pieces of trees: what one reduces and one broadcasts */
    ASSERT_OK(copse_lower_schedule(s, NULL, &plan, &err), &err);
    for (int k = 0; k < dag.n_transfers; k++)
      if (dag.items[k].amount > largest) largest = dag.items[k].amount;
    for (double m = 1e3; m < 1e9; m *= 7) {
      struct copse_sim_result r;
      double piece = ceil(m * largest);
      uint32_t n = copse_chunk_count(&plan->header, (uint64_t)piece);
      ASSERT_OK(copse_simulate(t, &dag, NULL, m, &r, NULL, &err), &err);
      ck_assert_int_eq(r.chunks, (int64_t)n * dag.n_transfers);
      several += n > 1 && n % 4 == 0;
    }
    copse_plan_free(plan);
    copse_sim_dag_free(&dag);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
  ck_assert_int_gt(several, 3);
}
END_TEST

/* A binomial broadcast of a few bytes: its depth in alphas. Rank 0 next to all: one. */
START_TEST(small_messages_cost_the_depth_of_the_tree) {
  struct copse_topology *t = copse_test_sim_mesh(8);
  struct copse_sim_dag dag = {0};
  struct copse_err err = COPSE_ERR_INIT;
  int arrival[8] = {-1};
  for (int step = 1; step < 8; step *= 2) {
    for (int r = 0; r < step; r++) {
      int nodes[] = {r, r + step};
      struct copse_sim_transfer x = {.streams = &arrival[r], .n_streams = arrival[r] >= 0};
      ASSERT_OK(copse_sim_dag_add_path(&dag, t, nodes, 2, &x, &arrival[r + step], &err), &err);
    }
  }
  ck_assert_double_eq_tol(simulate(t, &dag, 4, 1, NULL).us, 3 * 2, TOL);
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------- */

START_TEST(what_makes_no_sense_is_refused) {
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_sim_dag dag = {0};
  struct copse_sim_result r;
  int later = 3, link = 1000, nodes[] = {0, 2};
  struct copse_err e1 = COPSE_ERR_INIT, e2 = COPSE_ERR_INIT, e3 = COPSE_ERR_INIT,
                   e4 = COPSE_ERR_INIT, e5 = COPSE_ERR_INIT;
  struct copse_sim_transfer waits = {.after = &later, .n_after = 1}, less = {.amount = -1};
  struct copse_sim_transfer lost = {.links = &link, .n_links = 1}, plain = {.amount = 1};
  struct copse_sim_options none = cut_in(-1), half = cut_in(1), owed = cut_in(1);
  half.duplex = 0.5;
  owed.fifo = -1;
  ASSERT_FAILS(copse_sim_dag_add(&dag, &waits, NULL, &e1), COPSE_INVALID, &e1, "before");
  ASSERT_FAILS(copse_sim_dag_add(&dag, &less, NULL, &e2), COPSE_INVALID, &e2, "amount");
  ASSERT_FAILS(copse_sim_dag_add_path(&dag, t, nodes, 2, &plain, NULL, &e3), COPSE_INVALID, &e3,
               "'a' -> 'c'");
  ASSERT_FAILS(copse_simulate(t, &dag, &none, 1, &r, NULL, &e4), COPSE_INVALID, &e4, "positive");
  ck_assert_int_eq(copse_simulate(t, &dag, &half, 1, &r, NULL, NULL), COPSE_INVALID);
  ck_assert_int_eq(copse_simulate(t, &dag, &owed, 1, &r, NULL, NULL), COPSE_INVALID);
  ck_assert_int_eq(dag.n_transfers, 0);
  ck_assert_int_eq(copse_sim_dag_add(&dag, &lost, NULL, NULL), COPSE_OK);
  ASSERT_FAILS(copse_simulate(t, &dag, NULL, 1, &r, NULL, &e5), COPSE_INVALID, &e5, "link 1000");
  copse_sim_dag_free(&dag);
  copse_topology_free(t);
}
END_TEST

START_TEST(a_schedule_of_another_topology_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_sim_parse(row);
  struct copse_schedule *s = copse_test_solve(copse_test_fabrics[1], COPSE_ALLGATHER, 0);
  struct copse_sim_dag dag = {0};
  ASSERT_FAILS(copse_sim_dag_of_schedule(s, t, false, &dag, &err), COPSE_INVALID, &err, "topology");
  copse_sim_dag_free(&dag);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/simulate");
  TCase *hand = tcase_create("by hand"), *schedules = tcase_create("schedules");
  tcase_set_timeout(schedules, 120);
  tcase_add_test(hand, one_link_takes_latency_plus_bytes_over_bandwidth);
  tcase_add_test(hand, two_transfers_on_a_link_take_turns);
  tcase_add_test(hand, latencies_that_occupy_links_delay_what_follows);
  tcase_add_test(hand, what_goes_both_ways_at_once_may_take_longer);
  tcase_add_test(hand, what_is_held_up_leaves_the_links_before_to_others);
  tcase_add_test(hand, a_reduction_does_not_run_ahead_of_its_sum);
  tcase_add_test(hand, a_rank_adds_what_comes_in_one_after_the_other);
  tcase_add_test(hand, relays_cut_through);
  tcase_add_test(hand, slow_links_share_a_fast_one_without_loss);
  tcase_add_test(hand, incast_queues_at_the_last_link);
  tcase_add_test(hand, ranks_store_and_forward_chunk_by_chunk);
  tcase_add_test(hand, a_dependent_waits_for_the_whole_and_then_its_delay);
  tcase_add_test(hand, a_reduction_waits_for_all_children);
  tcase_add_test(hand, a_barrier_joins_and_costs_nothing);
  tcase_add_test(hand, a_multicast_switch_is_fed_once);
  tcase_add_test(hand, small_messages_cost_the_depth_of_the_tree);
  tcase_add_test(hand, what_makes_no_sense_is_refused);
  tcase_add_test(hand, a_schedule_of_another_topology_is_refused);
  tcase_add_loop_test(schedules, large_messages_approach_the_exact_time, 0, 5);
  tcase_add_loop_test(schedules, by_default_messages_are_cut_as_plans_cut_them, 0, 5);
  tcase_add_loop_test(schedules, no_size_is_faster_than_the_bound, 0, 5);
  tcase_add_loop_test(schedules, the_same_input_gives_the_same_bits, 0, 5);
  suite_add_tcase(suite, hand);
  suite_add_tcase(suite, schedules);
  return copse_test_run(suite);
}
