/*
 * All-to-all: optima against an independent linear programme (source-aggregated edge flows
 * on GLPK) and against every cut, exactness, demand files, the compact form, and mutants of
 * schedules, which the verifier must refuse.
 */
#include <glpk.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "schedule/demand.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/alltoall/concurrent.h"
#include "verify/verify.h"
#include "support/fabric.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "support/symmetric_topology.h"
#include "topology/symmetry/symmetry.h"

static struct copse_schedule *solve(const struct copse_topology *t,
                                    struct copse_solve_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *s = NULL;
  options.collective = COPSE_ALLTOALL;
  options.root = -1;
  options.label = "test";
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  return s;
}

static double demand_share(const int64_t *demand, int n, int i, int j) {
  double most = 0;
  if (i == j) return 0;
  if (!demand) return 1.0 / n;
  for (int a = 0; a < n; a++) {
    double row = 0;
    for (int b = 0; b < n; b++) row += (double)demand[a * n + b];
    if (row > most) most = row;
  }
  return (double)demand[i * n + j] / most;
}

/* ---- the independent linear programme: flow of source i on link e, column 1 + i m + e ---- */

struct lp {
  glp_prob *p;
  int rows, *ia, *ja, n;
  double *ar;
};

static void put(struct lp *lp, int row, int column, double value) {
  lp->n++;
  lp->ia[lp->n] = row;
  lp->ja[lp->n] = column;
  lp->ar[lp->n] = value;
}

/* Maximise theta: every rank j takes theta * share(i, j) of source i's flow; T = 1 / theta. */
static double lp_time(const struct copse_topology *t, const int64_t *demand, bool forward) {
  int n = t->n_ranks, m = t->n_links, size = 3 * n * m + n * t->n_nodes + 10 + m;
  struct lp lp = {.p = glp_create_prob()};
  lp.ia = calloc((size_t)size, sizeof(int));
  lp.ja = calloc((size_t)size, sizeof(int));
  lp.ar = calloc((size_t)size, sizeof(double));
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(lp.p, GLP_MAX);
  glp_add_cols(lp.p, 1 + n * m);
  for (int c = 1; c <= 1 + n * m; c++) glp_set_col_bnds(lp.p, c, GLP_LO, 0, 0);
  glp_set_obj_coef(lp.p, 1, 1);
  glp_add_rows(lp.p, m + n * t->n_nodes);
  for (int e = 0; e < m; e++) {
    glp_set_row_bnds(lp.p, e + 1, GLP_UP, 0, copse_q_to_double(t->links[e].bandwidth));
    for (int i = 0; i < n; i++) put(&lp, e + 1, 2 + i * m + e, 1);
  }
  for (int i = 0; i < n; i++) {
    for (int v = 0; v < t->n_nodes; v++) {
      int row = m + i * t->n_nodes + v + 1, rank = t->nodes[v].rank;
      bool source = rank == i;
      glp_set_row_bnds(lp.p, row, source ? GLP_FR : GLP_FX, 0, 0);
      if (!source && rank >= 0 && demand_share(demand, n, i, rank) > 0)
        put(&lp, row, 1, -demand_share(demand, n, i, rank));
      for (int e = 0; e < m; e++) {
        bool out = t->links[e].src == v, in = t->links[e].dst == v;
        bool barred = out && !source && rank >= 0 && !forward;
        if (barred) glp_set_col_bnds(lp.p, 2 + i * m + e, GLP_FX, 0, 0);
        if (in || out) put(&lp, row, 2 + i * m + e, in ? 1 : -1);
      }
    }
  }
  glp_load_matrix(lp.p, lp.n, lp.ia, lp.ja, lp.ar);
  glp_smcp parameters;
  glp_init_smcp(&parameters);
  parameters.msg_lev = GLP_MSG_OFF;
  ck_assert_int_eq(glp_simplex(lp.p, &parameters), 0);
  double theta = glp_get_obj_val(lp.p);
  glp_delete_prob(lp.p);
  free(lp.ia);
  free(lp.ja);
  free(lp.ar);
  return 1 / theta;
}

/* No cut is beaten: what must leave S over the bandwidth that leaves S. */
static double cut_time(const struct copse_topology *t, const int64_t *demand) {
  double worst = 0;
  for (unsigned cut = 1; cut + 1 < 1u << t->n_nodes; cut++) {
    double need = 0, room = 0;
    for (int i = 0; i < t->n_ranks; i++)
      for (int j = 0; j < t->n_ranks; j++)
        if ((cut >> t->rank_nodes[i] & 1) && !(cut >> t->rank_nodes[j] & 1))
          need += demand_share(demand, t->n_ranks, i, j);
    for (int e = 0; e < t->n_links; e++)
      if ((cut >> t->links[e].src & 1) && !(cut >> t->links[e].dst & 1))
        room += copse_q_to_double(t->links[e].bandwidth);
    if (need > 0 && need / room > worst) worst = need / room;
  }
  return worst;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-7 * b; }

static void check_against_lp(const struct copse_topology *t, const int64_t *demand, bool forward) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.demand = demand, .no_forward = !forward});
  ASSERT_OK(copse_verify_schedule(s, t, "schedule", &report, &err), &err);
  double time = copse_q_to_double(s->time_per_GB), bound = copse_q_to_double(s->bound.time_per_GB);
  double expected = lp_time(t, demand, forward);
  ck_assert_msg(near(time, expected), "time %.12g, LP %.12g", time, expected);
  ck_assert_msg(near(bound, expected), "bound %.12g, LP %.12g", bound, expected);
  if (t->n_nodes <= 12) ck_assert(time >= cut_time(t, demand) * (1 - 1e-12));
  copse_schedule_free(s);
}

static int64_t *random_demand(uint64_t *seed, int n) {
  int64_t *d = calloc((size_t)n * (size_t)n, sizeof *d);
  ck_assert_ptr_nonnull(d);
  for (int i = 0; i < n * n; i++)
    d[i] = copse_test_random_int(seed, 0, 3) ? copse_test_random_int(seed, 0, 1000) : 0;
  d[1] += 1; /* never all zero */
  return d;
}

START_TEST(optimum_is_the_linear_programmes_and_no_cut_is_beaten) {
  struct copse_test_random_options options = {2, 7, 5, true, true};
  uint64_t seed = 11 + (uint64_t)_i;
  for (int round = 0; round < 12; round++) {
    struct copse_topology *t = copse_test_random_topology(&seed, &options);
    check_against_lp(t, NULL, true);
    int64_t *demand = random_demand(&seed, t->n_ranks);
    check_against_lp(t, demand, true);
    free(demand);
    copse_topology_free(t);
  }
}
END_TEST

/* What paths make of links, and what they bring, added up again: `orbit` counts links. */
static double time_of_paths(const struct copse_balance *b, const struct copse_network *network,
                            const int64_t *demand) {
  int n = network->n_terminals;
  int64_t *left = calloc((size_t)n * (size_t)n, sizeof *left);
  int64_t *load = calloc((size_t)network->n_links, sizeof *load);
  double most = 0;
  for (int i = 0; i < n * n; i++) left[i] = i / n == i % n ? 0 : demand[i] * b->whole;
  for (size_t p = 0; p < b->n_paths; p++) {
    const struct copse_concurrent_path *path = &b->paths[p];
    ck_assert_int_eq(path->nodes[0], network->terminals[path->source]);
    ck_assert_int_eq(path->nodes[path->n_nodes - 1], network->terminals[path->sink]);
    left[path->source * n + path->sink] -= path->amount;
    for (int i = 1; i < path->n_nodes; i++) {
      int e = 0;
      while (e < network->n_links && (network->links[e].src != path->nodes[i - 1] ||
                                      network->links[e].dst != path->nodes[i]))
        e++;
      ck_assert_int_lt(e, network->n_links);
      load[e] += path->amount;
    }
  }
  for (int i = 0; i < n * n; i++) ck_assert_int_eq(left[i], 0);
  for (int e = 0; e < network->n_links; e++) {
    ck_assert_int_eq(load[e], b->load[e]);
    most = fmax(most, (double)load[e] / (double)network->links[e].capacity / (double)b->whole);
  }
  free(left);
  free(load);
  return most;
}

/* In units of M and GB/s, as the linear programme has it. */
static void check_balance(const struct copse_topology *t, const int64_t *demand) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_instance instance;
  ASSERT_OK(copse_instance_scale(t, &instance, &err), &err);
  int links = instance.network.n_links, n = t->n_ranks;
  int64_t capacity[256], factor[256], row = 0;
  int orbit[256], base[16];
  bool blocked[64] = {false};
  ck_assert(links <= 256 && n <= 16 && t->n_nodes <= 64);
  for (int e = 0; e < links; e++) {
    orbit[e] = e;
    capacity[e] = instance.network.links[e].capacity;
    factor[e] = 1;
  }
  for (int i = 0; i < n; i++) base[i] = i;
  struct copse_balance_problem problem = {.network = &instance.network,
                                          .blocked = blocked,
                                          .demand = demand,
                                          .base = base,
                                          .orbit = orbit,
                                          .capacity = capacity,
                                          .factor = factor,
                                          .n_bases = n,
                                          .n_orbits = links,
                                          .enough = 1 + 1e-9};
  struct copse_balance found;
  ASSERT_OK(copse_balance_paths(&problem, &arena, &found, &err), &err);
  for (int i = 0; i < n; i++) {
    int64_t sum = 0;
    for (int j = 0; j < n; j++) sum += i == j ? 0 : demand[i * n + j];
    if (sum > row) row = sum;
  }
  double unit = (double)instance.scale / (double)row, least = lp_time(t, demand, true);
  double time = time_of_paths(&found, &instance.network, demand);
  ck_assert(near(time, found.time));
  ck_assert_msg(time * unit >= least * (1 - 1e-7), "%g is less than the LP's %g", time * unit,
                least);
  ck_assert_msg(time * unit <= least * 1.3, "%g is much more than the LP's %g", time * unit, least);
  ck_assert_msg(found.bound * unit <= least * (1 + 1e-7), "a bound of %g is more than the LP's %g",
                found.bound * unit, least);
  copse_instance_free(&instance);
}

START_TEST(balanced_paths_carry_all_demand_nearly_as_fast_as_the_linear_programme) {
  struct copse_test_random_options options = {2, 7, 5, true, true};
  uint64_t seed = 71 + (uint64_t)_i;
  for (int round = 0; round < 12; round++) {
    struct copse_topology *t = copse_test_random_topology(&seed, &options);
    int64_t *demand = random_demand(&seed, t->n_ranks);
    for (int i = 0; i < t->n_ranks; i++) demand[i * t->n_ranks + i] = 0;
    demand[1] += 1; /* never all zero */
    check_balance(t, demand);
    free(demand);
    copse_topology_free(t);
  }
}
END_TEST

/* Four GPUs in a ring, `relays` switches in a row between neighbours. */
static struct copse_topology *long_ring(int relays, const int64_t bandwidth[4]) {
  static char text[1 << 19];
  size_t n = 0, room = sizeof text;
  n += (size_t)snprintf(text, room,
                        "{\"format\":\"copse-topology/1\",\"name\":\"ring\",\"nodes\":[");
  for (int g = 0; g < 4; g++)
    for (int i = 0; i <= relays; i++)
      n += (size_t)snprintf(text + n, room - n, "%s{\"id\":\"g%d.%d\",\"type\":\"%s\"}",
                            g + i ? "," : "", g, i, i ? "switch" : "gpu");
  n += (size_t)snprintf(text + n, room - n, "],\"links\":[");
  for (int g = 0; g < 4; g++)
    for (int i = 0; i <= relays; i++)
      n += (size_t)snprintf(text + n, room - n,
                            "%s{\"src\":\"g%d.%d\",\"dst\":\"g%d.%d\",\"bandwidth\":%lld}",
                            g + i ? "," : "", g, i, i < relays ? g : (g + 1) % 4,
                            i < relays ? i + 1 : 0, (long long)bandwidth[g]);
  snprintf(text + n, room - n, "]}");
  return copse_test_topology(text);
}

/* Links in a row are as one: the optimum is that of a ring of eight links. Of more than 1,024 links
 * the paths of all pairs are balanced without a linear programme first, and within a tolerance they
 * are what is written. */
START_TEST(long_rows_of_links_are_as_one) {
  uint64_t seed = 5 + (uint64_t)_i;
  int64_t bandwidth[4];
  for (int g = 0; g < 4; g++) bandwidth[g] = copse_test_random_int(&seed, 20, 60);
  int64_t *demand = random_demand(&seed, 4);
  struct copse_topology *t = long_ring(128, bandwidth), *few = long_ring(0, bandwidth);
  ck_assert_int_gt(t->n_links, 1024);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  double least = lp_time(few, demand, true);
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.demand = demand, .tolerance = {1, 20}});
  ASSERT_OK(copse_verify_schedule(s, t, "schedule", &report, &err), &err);
  double time = copse_q_to_double(s->time_per_GB), bound = copse_q_to_double(s->bound.time_per_GB);
  ck_assert_msg(time >= least * (1 - 1e-7) && time <= 1.05 * bound * (1 + 1e-12),
                "time %.12g, LP %.12g, bound %.12g", time, least, bound);
  ck_assert_double_le(bound, least * (1 + 1e-7));
  copse_schedule_free(s);
  free(demand);
  copse_topology_free(t);
  copse_topology_free(few);
}
END_TEST

/* Where every pair is joined through relays alone, ranks need not forward. */
static void count_rounds(void *ctx, const char *phase, int64_t done, int64_t total) {
  (void)done, (void)total;
  *(int *)ctx += strcmp(phase, "flow") == 0;
}

/* Within 5 % of the linear programme's `least`, proved, though no master programme was solved:
 * `image` goes round in `order` steps. */
static void check_without_master(struct copse_topology *t, int order, const int *image,
                                 double least) {
  int rounds = 0;
  struct copse_instance instance;
  struct copse_concurrent found;
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_progress progress = {.report = count_rounds, .ctx = &rounds};
  ASSERT_OK(copse_instance_scale(t, &instance, &err), &err);
  const struct copse_concurrent_problem problem = {.network = &instance.network,
                                                   .forward = true,
                                                   .rotation = {order, image, NULL},
                                                   .total = t->n_ranks,
                                                   .time_unit = instance.scale,
                                                   .tolerance = {1, 20},
                                                   .progress = &progress};
  ASSERT_OK(copse_concurrent_solve(&problem, &found, &err), &err);
  double time = copse_q_to_double(found.time), bound = copse_q_to_double(found.bound);
  ck_assert_int_eq(rounds, 0);
  ck_assert_msg(time >= least * (1 - 1e-7) && time <= 1.05 * bound * (1 + 1e-12),
                "time %.12g, LP %.12g, bound %.12g", time, least, bound);
  ck_assert_double_le(bound, least * (1 + 1e-7));
  copse_concurrent_free(&found);
  copse_instance_free(&instance);
  copse_topology_free(t);
}

/* Of more than 1,024 links, or sets of alike ones, balanced paths end the search: by the prices
 * of the first trees, which prove the optimum of an even ring, or by their own. */
START_TEST(balanced_paths_within_the_tolerance_end_the_search) {
  static const struct {
    int64_t bandwidth[4];
    int relays, order;
  } rings[] = {{{25, 25, 25, 25}, 600, 1}, {{25, 25, 25, 25}, 600, 2}, {{40, 20, 20, 20}, 150, 1}};
  struct copse_topology *few = long_ring(0, rings[_i].bandwidth);
  struct copse_topology *t = long_ring(rings[_i].relays, rings[_i].bandwidth);
  int *image = calloc((size_t)t->n_nodes, sizeof *image);
  for (int v = 0; v < t->n_nodes; v++) image[v] = (v + t->n_nodes / rings[_i].order) % t->n_nodes;
  check_without_master(t, rings[_i].order, image, lp_time(few, NULL, true));
  copse_topology_free(few);
  free(image);
}
END_TEST

/* Eight GPUs send into one end of a row of relays and receive from the other. Turned by one, each
 * GPU is the next, and the row stays: it carries what all eight send, 7 M over 100 GB/s. */
START_TEST(links_that_stay_in_place_carry_what_all_images_send) {
  enum { ROW = 1100, GPUS = 8 };
  struct copse_text json = {0};
  int image[GPUS + ROW];
  copse_text_add(&json, "{\"format\":\"copse-topology/1\",\"nodes\":[");
  for (int v = 0; v < GPUS + ROW; v++) {
    copse_text_add(&json, "%s{\"id\":\"n%d\",\"type\":\"%s\"}", v ? "," : "", v,
                   v < GPUS ? "gpu" : "switch");
    image[v] = v < GPUS ? (v + 1) % GPUS : v;
  }
  copse_text_add(&json, "],\"links\":[");
  for (int i = 0; i < 2 * GPUS + ROW - 1; i++) {
    int row = GPUS + i - 2 * GPUS, last = GPUS + ROW - 1;
    copse_text_add(&json, "%s{\"src\":\"n%d\",\"dst\":\"n%d\",\"bandwidth\":100,\"duplex\":false}",
                   i ? "," : "",
                   i < GPUS       ? i
                   : i < 2 * GPUS ? last
                                  : row,
                   i < GPUS       ? GPUS
                   : i < 2 * GPUS ? i - GPUS
                                  : row + 1);
  }
  copse_text_add(&json, "]}");
  check_without_master(copse_test_topology(json.data), GPUS, image, 0.07);
  copse_text_free(&json);
}
END_TEST

START_TEST(without_forwarding_the_optimum_is_the_restricted_programmes) {
  for (int f = 0; f < 3; f += 2) {
    struct copse_topology *t = copse_test_topology(copse_test_fabrics[f]);
    check_against_lp(t, NULL, false);
    uint64_t seed = 5;
    int64_t *demand = random_demand(&seed, t->n_ranks);
    check_against_lp(t, demand, false);
    free(demand);
    copse_topology_free(t);
  }
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *s = NULL;
  struct copse_topology *ring = copse_test_topology(copse_test_fabrics[1]);
  struct copse_solve_options options = {
      .collective = COPSE_ALLTOALL, .root = -1, .no_forward = true, .label = "ring.json"};
  ASSERT_FAILS(copse_solve_schedule(ring, &options, &s, &seconds, &err), COPSE_INFEASIBLE, &err,
               "without passing through ranks");
  copse_topology_free(ring);
}
END_TEST

/* ---- exactness, symmetry --------------------------------------------------------------- */

/* Hosts in a row of NICs on one switch, named so that the rotation is found. */
static struct copse_topology *cluster(int hosts, int gpus, int odd_bandwidth) {
  static char text[1 << 20];
  size_t n = 0, room = sizeof text;
  n += (size_t)snprintf(text + n, room - n,
                        "{\"format\":\"copse-topology/1\",\"name\":\"c\",\"nodes\":[");
  for (int h = 0; h < hosts; h++)
    for (int g = 0; g < gpus; g++)
      n += (size_t)snprintf(text + n, room - n, "{\"id\":\"h%d.gpu%d\",\"type\":\"gpu\"},", h, g);
  for (int h = 0; h < hosts; h++)
    n += (size_t)snprintf(text + n, room - n, "{\"id\":\"h%d.sw\",\"type\":\"nvswitch\"},", h);
  n += (size_t)snprintf(text + n, room - n, "{\"id\":\"ib\",\"type\":\"switch\"}],\"links\":[");
  for (int h = 0; h < hosts; h++)
    for (int g = 0; g < gpus; g++)
      n += (size_t)snprintf(text + n, room - n,
                            "%s{\"src\":\"h%d.gpu%d\",\"dst\":\"h%d.sw\",\"bandwidth\":300},"
                            "{\"src\":\"h%d.gpu%d\",\"dst\":\"ib\",\"bandwidth\":%d}",
                            h + g ? "," : "", h, g, h, h, g, h == 0 && g == 0 ? odd_bandwidth : 25);
  snprintf(text + n, room - n, "]}");
  return copse_test_topology(text);
}

START_TEST(a_rotation_of_hosts_is_found_proved_and_changes_nothing) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_permutation rotation;
  struct copse_arena arena = {0};
  struct copse_topology *t = cluster(5, 3, 25);
  ASSERT_OK(copse_topology_host_rotation(t, &arena, &rotation, &err), &err);
  ck_assert_int_eq(rotation.order, 5);
  copse_arena_free(&arena);
  struct copse_schedule *with = solve(t, (struct copse_solve_options){.collective = 0});
  struct copse_schedule *without = solve(t, (struct copse_solve_options){.no_symmetry = true});
  ck_assert(copse_q_eq(with->time_per_GB, without->time_per_GB));
  ck_assert(copse_q_eq(with->time_per_GB, with->bound.time_per_GB));
  /* 12 of 15 shares leave each host through 3 NICs of 25 GB/s: 12/15 * 3 / 75 */
  ck_assert(copse_q_eq(with->time_per_GB, (struct copse_q){4, 125}));
  copse_schedule_free(with);
  copse_schedule_free(without);
  copse_topology_free(t);
  t = cluster(5, 3, 24); /* one NIC is slower: the hosts are not alike */
  ASSERT_OK(copse_topology_host_rotation(t, &arena, &rotation, &err), &err);
  ck_assert_int_eq(rotation.order, 1);
  ck_assert_ptr_null(rotation.image);
  copse_arena_free(&arena);
  copse_topology_free(t);
}
END_TEST

/* Under names that tell of no hosts: a rotation is found all the same. */
START_TEST(a_rotation_is_found_where_names_tell_nothing) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  uint64_t state = 11;
  struct copse_topology *t = cluster(36, 4, 25), *other = copse_test_shuffled(t, &state, false);
  struct copse_schedule *named = solve(t, (struct copse_solve_options){.collective = 0});
  struct copse_schedule *found = solve(other, (struct copse_solve_options){.collective = 0});
  ck_assert_int_eq(copse_schedule_images(found), 36);
  ck_assert(copse_q_eq(named->time_per_GB, found->time_per_GB));
  ASSERT_OK(copse_verify_schedule(found, other, "shuffled", &report, &err), &err);
  ck_assert(report.optimal);
  copse_schedule_free(named);
  copse_schedule_free(found);
  copse_topology_free(t);
  copse_topology_free(other);
}
END_TEST

/* More ranks than are listed: the file holds base flows and a rotation, and reads back. */
START_TEST(the_compact_form_is_verified_and_expands_to_the_same) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t = cluster(36, 4, 25);
  struct copse_schedule *s = solve(t, (struct copse_solve_options){.collective = 0}), *back;
  char *text;
  size_t size;
  ck_assert_int_eq(copse_schedule_images(s), 36);
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  ASSERT_OK(copse_schedule_parse("compact.json", text, size, &back, &err), &err);
  ASSERT_OK(copse_verify_schedule(back, t, "compact", &report, &err), &err);
  ck_assert(report.optimal);
  ck_assert_int_eq(back->n_flows, 4 * 143);
  ASSERT_OK(copse_schedule_expand(back, &err), &err);
  ck_assert_int_eq(back->n_flows, 144 * 143);
  ASSERT_OK(copse_verify_schedule(back, t, "expanded", &report, &err), &err);
  ck_assert(report.optimal);
  /* a permutation that is no automorphism is refused */
  struct copse_schedule *bad;
  ASSERT_OK(copse_schedule_parse("compact.json", text, size, &bad, &err), &err);
  int *image = (int *)(uintptr_t)bad->rotations[0].image, swap = image[0];
  image[0] = image[1];
  image[1] = swap;
  ck_assert_int_eq(copse_verify_schedule(bad, t, "bad", &report, &err), COPSE_REFUTED);
  free(text);
  copse_schedule_free(bad);
  copse_schedule_free(back);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Of a torus, whose weights do not fit 48 bits. */
START_TEST(a_tolerance_that_is_missed_is_refused_where_it_was_asked_for) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_topology *t;
  struct copse_schedule *s = NULL;
  struct copse_solve_options options = {.collective = COPSE_ALLTOALL,
                                        .root = -1,
                                        .label = "test",
                                        .tolerance = {1, INT64_C(1000000000000000)}};
  ASSERT_OK(copse_topology_synthetic("torus:4x5@7", NULL, &t, &err), &err);
  ck_assert_int_eq(copse_solve_schedule(t, &options, &s, &seconds, &err), COPSE_OVERFLOW);
  ck_assert_ptr_nonnull(strstr(err.text, "the tolerance is not met"));
  options.may_miss = true;
  s = solve(t, options);
  ck_assert(!copse_q_eq(s->time_per_GB, s->bound.time_per_GB));
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

START_TEST(small_and_irregular_fabrics_are_exact) {
  struct copse_test_random_options options = {2, 8, 4, true, false};
  uint64_t seed = 77;
  int exact = 0;
  for (int round = 0; round < 60; round++) {
    struct copse_topology *t = copse_test_random_topology(&seed, &options);
    struct copse_schedule *s = solve(t, (struct copse_solve_options){.collective = 0});
    double gap = copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1;
    exact += copse_q_eq(s->time_per_GB, s->bound.time_per_GB);
    ck_assert_msg(gap < 1e-6, "gap %g", gap);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
  ck_assert_int_ge(exact, 55); /* the rest: weights whose denominators outgrow 48 bits */
}
END_TEST

/* Bandwidths and demands many orders of magnitude apart: the master is scaled row by row, and
 * amounts are rounded pair by pair, so the gap stays tiny. */
START_TEST(wide_ranges_of_figures_leave_no_gap) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  const char *text =
      "{\"format\":\"copse-topology/1\",\"name\":\"w\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
      "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"c\",\"type\":\"gpu\"},{\"id\":\"d\",\"type\":"
      "\"gpu\"}],"
      "\"links\":[{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":1},{\"src\":\"a\",\"dst\":\"c\","
      "\"bandwidth\":1},{\"src\":\"c\",\"dst\":\"b\",\"bandwidth\":1},{\"src\":\"c\",\"dst\":\"d\","
      "\"bandwidth\":1000000000}]}";
  int64_t demand[16] = {0, 1000000000, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3};
  struct copse_topology *t = copse_test_topology(text);
  struct copse_schedule *s = solve(t, (struct copse_solve_options){.demand = demand});
  ASSERT_OK(copse_verify_schedule(s, t, "schedule", &report, &err), &err);
  ck_assert(copse_q_to_double(s->time_per_GB) <=
            copse_q_to_double(s->bound.time_per_GB) * (1 + 1e-8));
  copse_schedule_free(s);
  copse_topology_free(t);
  uint64_t seed = 17;
  struct copse_test_random_options options = {3, 8, 4, true, true};
  for (int round = 0; round < 40; round++) {
    t = copse_test_random_topology(&seed, &options);
    int n = t->n_ranks;
    int64_t *big = random_demand(&seed, n);
    for (int i = 0; i < n * n; i++)
      big[i] = big[i] * 1000000007 + copse_test_random_int(&seed, 0, 1000000); /* up to 1e12 */
    s = solve(t, (struct copse_solve_options){.demand = big});
    ASSERT_OK(copse_verify_schedule(s, t, "schedule", &report, &err), &err);
    double gap = copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1;
    ck_assert_msg(gap < 1e-6, "round %d: gap %g", round, gap);
    copse_schedule_free(s);
    copse_topology_free(t);
    free(big);
  }
}
END_TEST

START_TEST(reference_optima_are_met) {
  static const struct {
    const char *name;
    double time;
    bool exact;
  } cases[] = {{"ring-8", 0.02, true},          {"full-8", 0.005, true},
               {"torus-4x4", 0.005, false},     {"hypercube-4", 0.01, false},
               {"dgx1-v100", 1 / 75.0, true},   {"a100-x1", 7 / 2400.0, true},
               {"a100-x2", 0.02, true},         {"a100-x4", 0.03, true},
               {"mi250-x1", 1 / 75.0, true},    {"mi250-x2", 1 / 32.0, true},
               {"dgx2-x2", 0.08, true},         {"h100-x2", 0.01, true},
               {"random-1", 0.064, true},       {"random-2", 8 / 85.0, true},
               {"mixed-a100-h100", 0.02, true}, {"a100-x2-degraded", 4 / 175.0, true}};
  struct copse_err err = COPSE_ERR_INIT;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[64];
    struct copse_topology *t;
    snprintf(name, sizeof name, "reference/%s.json", cases[i].name);
    const char *path = copse_test_data(name);
    ASSERT_OK(copse_topology_load(path, NULL, &t, &err), &err);
    struct copse_schedule *s = solve(t, (struct copse_solve_options){.collective = 0});
    ck_assert_msg(fabs(copse_q_to_double(s->time_per_GB) / cases[i].time - 1) < 1e-7, "%s", name);
    if (cases[i].exact)
      ck_assert_msg(copse_q_eq(s->time_per_GB, s->bound.time_per_GB), "%s is not exact", name);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

/* ---- demand files ---------------------------------------------------------------------- */

#define DEMAND "{\"format\":\"copse-demand/1\",\"bytes\":"
static const struct {
  const char *text, *part;
} bad_demands[] = {
    {DEMAND "[[0,1],[1,0],[1,1]]}", "2 rows"},
    {DEMAND "[[0,1,2],[1,0,2]]}", "2 numbers"},
    {DEMAND "[[0,1],[1]]}", "2 numbers"},
    {DEMAND "[[0,-1],[1,0]]}", "from 0 to"},
    {DEMAND "[[0,NaN],[1,0]]}", "not JSON"},
    {DEMAND "[[0,1.5],[1,0]]}", "from 0 to"},
    {DEMAND "[[0,1e400],[1,0]]}", "from 0 to"},
    {DEMAND "[[0,\"1\"],[1,0]]}", "from 0 to"},
    {DEMAND "[[0,0],[0,0]]}", "all entries of \"bytes\" are zero"},
    {DEMAND "7}", "must be an array"},
    {"{\"format\":\"copse-demand/2\",\"bytes\":[[0,1],[1,0]]}", "copse-demand/1"},
    {"", "empty"},
};

START_TEST(bad_demands_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  int64_t *bytes;
  ASSERT_FAILS(copse_demand_parse("d.json", bad_demands[_i].text, strlen(bad_demands[_i].text), 2,
                                  &bytes, &err),
               COPSE_BAD_INPUT, &err, bad_demands[_i].part);
  ck_assert_ptr_null(bytes);
}
END_TEST

/* What a rank keeps moves over no link, and still counts in M. */
START_TEST(a_rank_sending_to_itself_costs_nothing_but_counts) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[4]); /* two ranks, 10 GB/s */
  int64_t demand[] = {30, 10, 5, 0};
  struct copse_schedule *s = solve(t, (struct copse_solve_options){.demand = demand});
  /* M = 40; a quarter of it takes 1/40 s per GB at 10 GB/s */
  ck_assert(copse_q_eq(s->time_per_GB, (struct copse_q){1, 40}));
  ASSERT_OK(copse_verify_schedule(s, t, "schedule", &report, &err), &err);
  copse_schedule_free(s);
  int64_t own[] = {30, 0, 0, 7};
  s = solve(t, (struct copse_solve_options){.demand = own});
  ck_assert(copse_q_eq(s->time_per_GB, COPSE_Q_ZERO));
  ck_assert_int_eq(s->n_flows, 0);
  ASSERT_OK(copse_verify_schedule(s, t, "schedule", &report, &err), &err);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* ---- mutants --------------------------------------------------------------------------- */

/* Changes one number or name of a schedule file: the reader or the verifier must refuse it. */
static bool still_accepted(const char *text, const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_schedule *s;
  copse_status status = copse_schedule_parse("mutant", text, strlen(text), &s, &err);
  if (status != COPSE_OK) return false;
  status = copse_verify_schedule(s, t, "mutant", &report, &err);
  copse_schedule_free(s);
  return status == COPSE_OK;
}

/* The k-th occurrence of `from` replaced; NULL when there are fewer. */
static char *replace(const char *text, const char *from, const char *to, int k) {
  const char *at = text;
  for (int i = 0; (at = strstr(at, from)) != NULL && i < k; i++) at++;
  if (!at) return NULL;
  size_t before = (size_t)(at - text), n = strlen(text) + strlen(to) + 1;
  char *copy = malloc(n);
  ck_assert_ptr_nonnull(copy);
  snprintf(copy, n, "%.*s%s%s", (int)before, text, to, at + strlen(from));
  return copy;
}

START_TEST(mutants_are_refused) {
  static const char *const changes[][2] = {
      {"\"weight\": \"1/6\"", "\"weight\": \"1/7\""},
      {"\"weight\": \"1/6\"", "\"weight\": \"2/6\""},
      {"\"weight\": \"1/12\"", "\"weight\": \"1/13\""},
      {"\"weight\": \"1/6\"", "\"weight\": \"-1/6\""},
      {"\"src\": 1", "\"src\": 2"},
      {"\"dst\": 0", "\"dst\": 3"},
      {"\"a\",\"s\",\"b\"", "\"a\",\"t\",\"b\""},
      {"\"a\",\"s\",\"b\"", "\"a\",\"b\""},
      {"\"a\",\"s\",\"b\"", "\"a\",\"s\",\"c\",\"s\",\"b\""},
      {"\"time_per_GB\": \"3/125\"", "\"time_per_GB\": \"3/126\""},
      {"\"time_per_GB\": \"3/125\"", "\"time_per_GB\": \"1/40\""},
      {"n>x\": 1", "n>x\": 2"},
      {"n>x\": 1", "s>x\": 1"},
      {"\"flows\"", "\"forward\": false, \"flows\""},
      {"\"flows\"",
       "\"demand\": [[0,1,1,1,1,1],[1,0,1,1,1,1],[1,1,0,1,1,1],[1,1,1,0,1,1],"
       "[1,1,1,1,0,1],[1,1,1,1,2,0]], \"flows\""},
  };
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_topology(copse_test_fabrics[2]);
  struct copse_schedule *s = solve(t, (struct copse_solve_options){.collective = 0});
  char *text;
  size_t size;
  int tried = 0;
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  ck_assert(still_accepted(text, t));
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    for (int k = 0; k < 4; k++) {
      char *mutant = replace(text, changes[i][0], changes[i][1], k);
      if (!mutant) break;
      tried++;
      ck_assert_msg(!still_accepted(mutant, t), "%s -> %s (%d) is accepted", changes[i][0],
                    changes[i][1], k);
      free(mutant);
    }
  }
  ck_assert_int_ge(tried, 20);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/alltoall");
  TCase *tc = tcase_create("all");
  tcase_add_loop_test(tc, optimum_is_the_linear_programmes_and_no_cut_is_beaten, 0, 8);
  tcase_add_loop_test(tc, balanced_paths_carry_all_demand_nearly_as_fast_as_the_linear_programme, 0,
                      4);
  tcase_add_loop_test(tc, long_rows_of_links_are_as_one, 0, 2);
  tcase_add_loop_test(tc, balanced_paths_within_the_tolerance_end_the_search, 0, 3);
  tcase_add_test(tc, links_that_stay_in_place_carry_what_all_images_send);
  tcase_add_test(tc, without_forwarding_the_optimum_is_the_restricted_programmes);
  tcase_add_test(tc, a_rotation_of_hosts_is_found_proved_and_changes_nothing);
  tcase_add_test(tc, a_rotation_is_found_where_names_tell_nothing);
  tcase_add_test(tc, the_compact_form_is_verified_and_expands_to_the_same);
  tcase_add_test(tc, a_tolerance_that_is_missed_is_refused_where_it_was_asked_for);
  tcase_add_test(tc, small_and_irregular_fabrics_are_exact);
  tcase_add_test(tc, wide_ranges_of_figures_leave_no_gap);
  tcase_add_test(tc, reference_optima_are_met);
  tcase_add_loop_test(tc, bad_demands_are_refused, 0,
                      (int)(sizeof bad_demands / sizeof *bad_demands));
  tcase_add_test(tc, a_rank_sending_to_itself_costs_nothing_but_counts);
  tcase_add_test(tc, mutants_are_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
