/*
 * Symmetry in the solver of trees: the same optimum with and without, on random symmetric
 * clusters, beside every cut or a linear programme; compact schedules against the ordinary
 * verifier and an independent one once expanded; damaged ones, which must be refused.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/support.h"
#include "support/symmetric_topology.h"
#include "topology/modify.h"
#include "topology/symmetry/symmetry.h"

struct text {
  char *data;
  size_t n, room;
  bool comma;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(t->data + t->n, t->room - t->n, fmt, ap);
  va_end(ap);
  ck_assert(n >= 0 && t->n + (size_t)n < t->room);
  t->n += (size_t)n;
}

__attribute__((format(printf, 2, 3))) static void add_item(struct text *t, const char *fmt, ...) {
  va_list ap;
  add(t, "%s", t->comma ? "," : "");
  t->comma = true;
  va_start(ap, fmt);
  int n = vsnprintf(t->data + t->n, t->room - t->n, fmt, ap);
  va_end(ap);
  ck_assert(n >= 0 && t->n + (size_t)n < t->room);
  t->n += (size_t)n;
}

/* Rank i to i + d, bandwidths by d. */
static void add_circulant(struct text *t, uint64_t *state, int most_nodes) {
  int n = copse_test_random_int(state, 3, most_nodes < 12 ? most_nodes : 12);
  for (int i = 0; i < n; i++) add_item(t, "{\"id\":\"n%d\",\"type\":\"gpu\"}", i);
  add(t, "],\"links\":[");
  t->comma = false;
  for (int d = 1; d < n; d++) {
    int bw = copse_test_random_int(state, d == 1 ? 1 : -6, 9);
    for (int i = 0; i < n && bw > 0; i++)
      add_item(t, "{\"src\":\"n%d\",\"dst\":\"n%d\",\"bandwidth\":%d,\"duplex\":false}", i,
               (i + d) % n, bw);
  }
}

/* Alike hosts with a switch or a chain inside, each GPU on a rail or all on one switch. */
static void add_cluster(struct text *t, uint64_t *state, int most_nodes) {
  int gpus = copse_test_random_int(state, 1, 4);
  bool box = copse_test_random_int(state, 0, 1), rails = copse_test_random_int(state, 0, 1);
  int switches = rails ? gpus : 1, most_hosts = (most_nodes - switches) / (gpus + box);
  int hosts = copse_test_random_int(state, 2, most_hosts < 6 ? most_hosts : 6);
  int inner = copse_test_random_int(state, 1, 30), outer = copse_test_random_int(state, 1, 9);
  bool uneven = copse_test_random_int(state, 0, 2) == 0;
  for (int h = 0; h < hosts; h++) {
    for (int g = 0; g < gpus; g++) add_item(t, "{\"id\":\"g%d-%d\",\"type\":\"gpu\"}", h, g);
    if (box) add_item(t, "{\"id\":\"b%d\",\"type\":\"nvswitch\"}", h);
  }
  for (int s = 0; s < switches; s++) add_item(t, "{\"id\":\"s%d\",\"type\":\"switch\"}", s);
  add(t, "],\"links\":[");
  t->comma = false;
  for (int h = 0; h < hosts; h++) {
    for (int g = 0; g < gpus; g++) {
      add_item(t, "{\"src\":\"g%d-%d\",\"dst\":\"s%d\",\"bandwidth\":%d}", h, g, rails ? g : 0,
               outer + (uneven && g == 0));
      if (box)
        add_item(t, "{\"src\":\"g%d-%d\",\"dst\":\"b%d\",\"bandwidth\":%d}", h, g, h, inner);
      else if (g > 0)
        add_item(t, "{\"src\":\"g%d-%d\",\"dst\":\"g%d-%d\",\"bandwidth\":%d}", h, g, h, g - 1,
                 inner);
    }
  }
}

/* Hosts alike but uneven inside: GPUs with links of any bandwidth, one of them, perhaps all, on a
 * switch. The narrowest cut may be around any of them. */
static void add_uneven_hosts(struct text *t, uint64_t *state, int most_nodes) {
  int gpus = copse_test_random_int(state, 3, 5), most_hosts = (most_nodes - 1) / gpus, links[5][5];
  int hosts = copse_test_random_int(state, 2, most_hosts < 5 ? most_hosts : 5), up[5];
  for (int a = 0; a < gpus; a++) {
    up[a] = copse_test_random_int(state, a == 0 ? 4 : -6, 9);
    for (int b = 0; b < a; b++) links[a][b] = copse_test_random_int(state, b == a - 1 ? 1 : -8, 9);
  }
  for (int h = 0; h < hosts; h++)
    for (int g = 0; g < gpus; g++) add_item(t, "{\"id\":\"g%d-%d\",\"type\":\"gpu\"}", h, g);
  add_item(t, "{\"id\":\"s\",\"type\":\"switch\"}");
  add(t, "],\"links\":[");
  t->comma = false;
  for (int h = 0; h < hosts; h++) {
    for (int a = 0; a < gpus; a++) {
      if (up[a] > 0)
        add_item(t, "{\"src\":\"g%d-%d\",\"dst\":\"s\",\"bandwidth\":%d}", h, a, up[a]);
      for (int b = 0; b < a; b++)
        if (links[a][b] > 0)
          add_item(t, "{\"src\":\"g%d-%d\",\"dst\":\"g%d-%d\",\"bandwidth\":%d}", h, a, h, b,
                   links[a][b]);
    }
  }
}

/* Two halves on a switch each, joined by a link that every symmetry leaves in place. */
static void add_halves(struct text *t, uint64_t *state, int most_nodes) {
  int most = (most_nodes - 2) / 2, n = copse_test_random_int(state, 2, most < 6 ? most : 6);
  int leaf = copse_test_random_int(state, 3, 9), trunk = copse_test_random_int(state, 1, 3 * n);
  for (int i = 0; i < 2 * n; i++) add_item(t, "{\"id\":\"n%d\",\"type\":\"gpu\"}", i);
  for (int h = 0; h < 2; h++) add_item(t, "{\"id\":\"s%d\",\"type\":\"switch\"}", h);
  add(t, "],\"links\":[");
  t->comma = false;
  for (int i = 0; i < 2 * n; i++)
    add_item(t, "{\"src\":\"n%d\",\"dst\":\"s%d\",\"bandwidth\":%d}", i, i / n, leaf);
  add_item(t, "{\"src\":\"s0\",\"dst\":\"s1\",\"bandwidth\":%d}", trunk);
}

/* One of the above by chance; ids say nothing of hosts, but ranks are numbered in order. */
static struct copse_topology *random_in_order(uint64_t *state, int most_nodes) {
  static void (*const kinds[])(struct text *, uint64_t *, int) = {add_circulant, add_cluster,
                                                                  add_uneven_hosts, add_halves};
  static char data[1 << 16];
  struct text t = {.data = data, .room = sizeof data};
  add(&t, "{\"format\":\"copse-topology/1\",\"name\":\"r\",\"nodes\":[");
  kinds[copse_test_random_int(state, 0, 3)](&t, state, most_nodes);
  add(&t, "]}");
  return copse_test_topology(data);
}

/* Those, and others; every other one shuffled, so that numbers say nothing either. */
static struct copse_topology *random_symmetric(uint64_t *state, int most_nodes) {
  struct copse_topology *t = copse_test_random_int(state, 0, 2) == 0
                                 ? copse_test_symmetric_topology(state, most_nodes)
                                 : random_in_order(state, most_nodes);
  if (copse_test_random_int(state, 0, 1)) return t;
  struct copse_topology *shuffled = copse_test_shuffled(t, state, false);
  copse_topology_free(t);
  return shuffled;
}

static struct copse_schedule *solve(const struct copse_topology *t,
                                    struct copse_solve_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *s = NULL;
  options.root = -1;
  options.label = "test";
  ASSERT_OK(copse_solve_schedule(t, &options, &s, &seconds, &err), &err);
  return s;
}

static struct copse_verify_report verify(const struct copse_schedule *s,
                                         const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  ASSERT_OK(copse_verify_schedule(s, t, "test", &report, &err), &err);
  return report;
}

/* ---- the optimum ------------------------------------------------------------------------- */

START_TEST(the_optimum_is_that_without_symmetry_and_of_every_cut) {
  uint64_t state = (uint64_t)_i + 77;
  int symmetric = 0;
  for (int i = 0; i < 50; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = random_symmetric(&state, 16);
    if (i % 5 == 4) { /* one slower link, and some symmetry may be left */
      struct copse_topology *slower = copse_test_shuffled(t, &state, true);
      copse_topology_free(t);
      t = slower;
    }
    copse_collective c = i % 2 ? COPSE_ALLGATHER : COPSE_REDUCE_SCATTER;
    struct copse_schedule *with =
        solve(t, (struct copse_solve_options){.collective = c, .bound_only = true});
    struct copse_schedule *without = solve(
        t, (struct copse_solve_options){.collective = c, .bound_only = true, .no_symmetry = true});
    ck_assert(copse_q_eq(with->time_per_GB, without->time_per_GB));
    struct copse_symmetry symmetry;
    ASSERT_OK(copse_topology_symmetry(t, &symmetry, &err), &err);
    symmetric += symmetry.n > 0;
    struct copse_test_graph *graph = copse_test_graph_of_topology(t, -1, c == COPSE_REDUCE_SCATTER);
    mpq_t time;
    mpq_init(time);
    ck_assert(copse_test_cut_time(graph, time));
    ck_assert(copse_test_equals_q(time, with->time_per_GB));
    mpq_clear(time);
    copse_test_graph_free(graph);
    copse_symmetry_free(&symmetry);
    copse_schedule_free(with);
    copse_schedule_free(without);
    copse_topology_free(t);
  }
  ck_assert_int_gt(symmetric, 30);
}
END_TEST

/* Larger ones, beside the linear programme. */
START_TEST(the_optimum_is_that_of_a_linear_programme) {
  uint64_t state = (uint64_t)_i + 177;
  for (int i = 0; i < 4; i++) {
    struct copse_topology *t = random_symmetric(&state, 26);
    struct copse_schedule *s =
        solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .bound_only = true});
    struct copse_test_graph *graph = copse_test_graph_of_topology(t, -1, false);
    double lp = copse_test_lp_time(graph), found = copse_q_to_double(s->time_per_GB);
    ck_assert_msg(fabs(lp / found - 1) < 1e-7, "%.12g by LP, %.12g", lp, found);
    copse_test_graph_free(graph);
    copse_schedule_free(s);
    copse_topology_free(t);
  }
}
END_TEST

/* ---- trees of base ranks -------------------------------------------------------------------- */

/* Compact, read back, verified, expanded, verified by two verifiers. Returns whether it was. */
static bool check_compact(const struct copse_topology *t, copse_collective c, int64_t k) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  struct copse_schedule *back;
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.collective = c, .compact = true, .k = k});
  struct copse_verify_report report = verify(s, t);
  bool compact = s->n_rotations > 0;
  ck_assert(copse_q_eq(report.time_per_GB, s->time_per_GB));
  if (k == 0 && c != COPSE_ALLREDUCE) ck_assert(report.optimal);
  if (k > 0) ck_assert_int_eq(s->k, k);
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  ASSERT_OK(copse_schedule_parse("compact.json", text, size, &back, &err), &err);
  ck_assert_int_eq(back->n_rotations, s->n_rotations);
  verify(back, t);
  int64_t all = back->n_trees * copse_schedule_images(back);
  ASSERT_OK(copse_schedule_expand(back, &err), &err);
  ck_assert_int_eq(back->n_trees, all);
  ck_assert_int_eq(back->n_rotations, 0);
  ck_assert(fabs(copse_schedule_mean_height(back) - copse_schedule_mean_height(s)) < 1e-9);
  verify(back, t);
  const char *defect = copse_test_schedule_defect(back, t);
  ck_assert_msg(!defect, "%s", defect);
  free(text);
  copse_schedule_free(back);
  copse_schedule_free(s);
  return compact;
}

START_TEST(compact_schedules_hold_on_random_clusters) {
  static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                                 COPSE_ALLREDUCE};
  uint64_t state = (uint64_t)_i + 277;
  int compact = 0;
  for (int i = 0; i < 30; i++) {
    struct copse_topology *t = random_symmetric(&state, 24);
    compact += check_compact(t, collectives[i % 3], i % 5 == 4 ? 1 + i % 4 : 0);
    copse_topology_free(t);
  }
  ck_assert_int_gt(compact, 12);
}
END_TEST

/* Under other names and in another order: the same time, and trees of base ranks again. */
START_TEST(shuffled_clusters_have_the_same_optimum) {
  static const char *const lines[] = {"hosts:4 gpus:8@300 nics:8@25 rails", "torus:4x4@100",
                                      "hosts:6 gpus:4@300 nics:4@25",       "hypercube:4@50",
                                      "hosts:3 gpus:6@450 nics:6@50 rails", "ring:12@50"};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  uint64_t state = (uint64_t)_i + 377;
  ASSERT_OK(copse_topology_synthetic(lines[_i], NULL, &t, &err), &err);
  struct copse_solve_options options = {.collective = COPSE_ALLGATHER, .compact = true};
  struct copse_schedule *s = solve(t, options);
  for (int i = 0; i < 3; i++) {
    struct copse_topology *other = copse_test_shuffled(t, &state, false);
    struct copse_schedule *shuffled = solve(other, options);
    ck_assert(copse_q_eq(s->time_per_GB, shuffled->time_per_GB));
    ck_assert(check_compact(other, COPSE_ALLGATHER, 0));
    copse_schedule_free(shuffled);
    copse_topology_free(other);
  }
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

static const struct {
  const char *line;
  int base_trees; /* what the template comes down to */
} clusters[] = {
    {"hosts:4 gpus:8@300 nics:8@25 rails", 1},
    {"hosts:16 gpus:8@450 nics:8@50 rails", 1},
    {"torus:4x4x4@100", 2},
    {"full:8@25", 1},
};
START_TEST(clusters_come_down_to_few_base_trees) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic(clusters[_i].line, NULL, &t, &err), &err);
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .compact = true});
  ck_assert_int_eq(s->n_trees, clusters[_i].base_trees);
  ck_assert_int_eq(copse_schedule_images(s), t->n_ranks);
  copse_schedule_free(s);
  ck_assert(check_compact(t, COPSE_ALLGATHER, 0));
  ck_assert(check_compact(t, COPSE_ALLREDUCE, 0));
  copse_topology_free(t);
}
END_TEST

/* Ranks of several kinds, whose base trees get stuck when they grow one after the other: side by
 * side they are found, no more than a hop higher than listed ones. In the first one links that stay
 * in place make k a multiple. */
static const struct {
  const char *line;
  int images;
} dragonflies[] = {
    {"hosts:15 gpus:4@300 nics:2@25 dragonfly:5@50/60", 6},
    {"hosts:21 gpus:3@100 nics:3@25 dragonfly:7@25/60", 9},
    {"hosts:32 gpus:8@300 nics:8@25 dragonfly:8@100/200", 32},
};
START_TEST(base_trees_that_get_stuck_one_by_one_grow_side_by_side) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic(dragonflies[_i].line, NULL, &t, &err), &err);
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .compact = true});
  struct copse_schedule *listed =
      solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .no_symmetry = true});
  ck_assert_int_ge(copse_schedule_images(s), dragonflies[_i].images);
  ck_assert_int_le(copse_schedule_height(s), copse_schedule_height(listed) + 1);
  copse_schedule_free(listed);
  copse_schedule_free(s);
  ck_assert(check_compact(t, COPSE_ALLGATHER, 0));
  ck_assert(check_compact(t, COPSE_ALLREDUCE, 0));
  copse_topology_free(t);
}
END_TEST

/* From COPSE_TRUST_FROM ranks on base trees are made for a listed schedule as well. */
START_TEST(listed_schedules_of_large_clusters_are_expanded) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic("hosts:20 gpus:8@300 nics:8@25 rails", NULL, &t, &err), &err);
  struct copse_schedule *s = solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER});
  ck_assert_int_eq(s->n_rotations, 0);
  ck_assert_int_eq(s->n_trees, 160);
  ck_assert_int_le(copse_schedule_height(s), 2);
  ck_assert(verify(s, t).optimal);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* ---- damage ---------------------------------------------------------------------------------- */

static struct copse_schedule *compact_of(const struct copse_topology *t, char **text) {
  struct copse_err err = COPSE_ERR_INIT;
  size_t size;
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .compact = true});
  ck_assert_int_eq(s->n_rotations, 2);
  ASSERT_OK(copse_schedule_to_json(s, text, &size, &err), &err);
  return s;
}

/* Every two images of every symmetry exchanged, every order changed, a tree dropped, a weight
 * moved: whatever is not right any more is refused. */
START_TEST(damaged_symmetries_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t;
  char *text;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:2@300 nics:2@25 rails", NULL, &t, &err), &err);
  struct copse_schedule *s = compact_of(t, &text);
  struct copse_permutation *rotations =
      (struct copse_permutation *)(uintptr_t)s->rotations;
  for (int g = 0; g < 2; g++) {
    int *image = (int *)(uintptr_t)rotations[g].image;
    for (int a = 0; a < s->n_nodes; a++) {
      for (int b = 0; b < a; b++) {
        int swap = image[a];
        image[a] = image[b];
        image[b] = swap;
        ck_assert_int_eq(copse_verify_schedule(s, t, "bad", &report, &err), COPSE_REFUTED);
        image[b] = image[a];
        image[a] = swap;
      }
      int kept = image[a];
      image[a] = image[(a + 1) % s->n_nodes]; /* not one to one */
      ck_assert_int_eq(copse_verify_schedule(s, t, "bad", &report, &err), COPSE_REFUTED);
      image[a] = kept;
    }
    for (int order = 1; order < 9; order++) {
      int kept = rotations[g].order;
      if (order == kept) continue;
      rotations[g].order = order;
      ck_assert_int_eq(copse_verify_schedule(s, t, "bad", &report, &err), COPSE_REFUTED);
      rotations[g].order = kept;
    }
  }
  s->n_rotations = 1; /* one symmetry left out: not every rank is a root */
  ck_assert_int_eq(copse_verify_schedule(s, t, "bad", &report, &err), COPSE_REFUTED);
  s->n_rotations = 2;
  verify(s, t);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* A schedule for a healthy cluster, against one with a slower link anywhere: the symmetries are
 * none there, whatever the loads. */
START_TEST(symmetries_of_another_cluster_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t;
  char *text, *healthy;
  size_t size;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:2@300 nics:2@25 rails", NULL, &t, &err), &err);
  struct copse_schedule *s = compact_of(t, &text);
  ASSERT_OK(copse_topology_to_json(t, &healthy, &size, &err), &err);
  int changed = 0;
  for (char *at = healthy; (at = strstr(at, "\"bandwidth\": ")); changed++) {
    at += strlen("\"bandwidth\": ");
    char kept = *at;
    *at = kept == '9' ? '8' : (char)(kept + 1);
    struct copse_topology *other = copse_test_topology(healthy);
    ASSERT_FAILS(copse_verify_schedule(s, other, "other", &report, &err), COPSE_REFUTED, &err,
                 "to none like it");
    copse_topology_free(other);
    *at = kept;
  }
  ck_assert_int_eq(changed, t->n_links / 2);
  free(healthy);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Two switches alike folded into one: every link has an image like it, and it is no permutation. */
START_TEST(a_folded_cluster_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *t = copse_test_topology(
      "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
      "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"s\",\"type\":\"switch\"},"
      "{\"id\":\"z\",\"type\":\"switch\"}],\"links\":["
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":1},{\"src\":\"b\",\"dst\":\"s\",\"bandwidth\":1},"
      "{\"src\":\"a\",\"dst\":\"z\",\"bandwidth\":1},{\"src\":\"b\",\"dst\":\"z\",\"bandwidth\":1}]"
      "}");
  struct copse_schedule *s =
      solve(t, (struct copse_solve_options){.collective = COPSE_ALLGATHER, .compact = true});
  ck_assert_int_eq(s->n_rotations, 1);
  int *image = (int *)(uintptr_t)s->rotations[0].image;
  for (int v = 2; v < 4; v++) {
    int kept = image[v];
    image[v] = image[5 - v];
    ASSERT_FAILS(copse_verify_schedule(s, t, "bad", &report, &err), COPSE_REFUTED, &err,
                 "one to one");
    image[v] = kept;
  }
  verify(s, t);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

static char *replaced(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  ck_assert_msg(at != NULL, "the file lacks %s", from);
  size_t before = (size_t)(at - text), n = strlen(text) + strlen(to) + 1;
  char *out = malloc(n);
  ck_assert_ptr_nonnull(out);
  snprintf(out, n, "%.*s%s%s", (int)before, text, to, at + strlen(from));
  return out;
}

/* Returns a repaired allreduce, of which trees were pushed off full links piece by piece. */
static struct copse_schedule *repaired(struct copse_topology **whole, struct copse_topology **t) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_fault faults[] = {{"h0.nic0", {0, 1}}};
  ASSERT_OK(copse_topology_synthetic("hosts:12 gpus:4@300 nics:4@25 rails", NULL, whole, &err),
            &err);
  ASSERT_OK(copse_topology_break(*whole, "t.json", faults, 1, t, &err), &err);
  struct copse_schedule *s = solve(*t, (struct copse_solve_options){.collective = COPSE_ALLREDUCE,
                                                                    .compact = true,
                                                                    .healthy = *whole,
                                                                    .root = -1,
                                                                    .label = "t.json"});
  ck_assert(s->excepted);
  return s;
}

static bool same_edge(const struct copse_schedule_edge *a, const struct copse_schedule_edge *b) {
  return a->n_path == b->n_path &&
         memcmp(a->path, b->path, (size_t)a->n_path * sizeof *a->path) == 0;
}

/* An image goes another way in one change, however many pieces went it, and the file has each edge
 * of changes once: of 1,024 GPUs on rails without three parts it took 41 MB, and takes 12. */
START_TEST(changes_of_a_file_share_their_edges) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *whole, *t;
  struct copse_schedule *s = repaired(&whole, &t), *again;
  char *text;
  size_t size;
  int n_edges = 0, n_paths = 0;
  for (const struct copse_schedule_change *c = s->changes; c < s->changes + s->n_changes; c++) {
    n_edges += c->n_edges;
    for (const struct copse_schedule_change *b = c - 1;
         b >= s->changes && b->tree == c->tree && b->image == c->image; b--) {
      bool same = b->n_edges == c->n_edges;
      for (int e = 0; same && e < c->n_edges; e++) same = same_edge(&b->edges[e], &c->edges[e]);
      ck_assert_msg(!same, "two changes of image %d of tree %d are equal", (int)c->image, c->tree);
    }
  }
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  for (const char *at = strstr(text, "\n \"edges\": ["); (at = strstr(at, "\"path\"")); at++)
    n_paths++;
  ck_assert_int_gt(n_paths, 0);
  ck_assert_int_lt(2 * n_paths, n_edges);
  ASSERT_OK(copse_schedule_parse("s.json", text, size, &again, &err), &err);
  ASSERT_OK(copse_verify_schedule(again, t, "s.json", &report, &err), &err);
  ck_assert_int_eq(again->n_changes, s->n_changes);
  for (int c = 0; c < s->n_changes; c++)
    for (int e = 0; e < s->changes[c].n_edges; e++) {
      ck_assert_int_eq(again->changes[c].edges[e].src, s->changes[c].edges[e].src);
      ck_assert_int_eq(again->changes[c].edges[e].dst, s->changes[c].edges[e].dst);
    }
  free(text);
  copse_schedule_free(again);
  copse_schedule_free(s);
  copse_topology_free(t);
  copse_topology_free(whole);
}
END_TEST

/* Edges of changes may stand in them, as until 2026-11-30; a number must be that of an edge. */
START_TEST(edges_of_changes_are_numbers_or_edges) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *whole, *t;
  struct copse_schedule *s = repaired(&whole, &t), *read;
  char *text, edge[256];
  size_t size;
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  const char *first = strstr(text, "\n \"edges\": [\n  ") + strlen("\n \"edges\": [\n  ");
  snprintf(edge, sizeof edge, "\"edges\": [%.*s", (int)(strchr(first, '}') + 1 - first), first);
  char *listed = replaced(text, "\"edges\": [0", edge);
  ASSERT_OK(copse_schedule_parse("s.json", listed, strlen(listed), &read, &err), &err);
  ASSERT_OK(copse_verify_schedule(read, t, "s.json", &report, &err), &err);
  copse_schedule_free(read);
  static const char *const bad[] = {"-1", "0.5", "1000000", "\"0\"", "[0]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(edge, sizeof edge, "\"edges\": [%s", bad[i]);
    char *damaged = replaced(text, "\"edges\": [0", edge);
    ck_assert_int_eq(copse_schedule_parse("s.json", damaged, strlen(damaged), &read, &err),
                     COPSE_BAD_INPUT);
    free(damaged);
  }
  free(listed);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
  copse_topology_free(whole);
}
END_TEST

/* Files: each change is refused by the reader, as every command sees it. */
static const struct {
  const char *from, *to;
} changes[] = {
    {"\"order\": 3", "\"order\": 2"},
    {"\"order\": 3", "\"order\": 1"},
    {"\"order\": 3", "\"order\": 4194305"},
    {"\"order\": 3", "\"order\": 3.5"},
    {"\"order\": 3", "\"turns\": 3"},
    {"\"order\": 3, ", ""},
    {"\"generators\": [", "\"generators\": [7,"},
    {"\"nodes\": [", "\"nodes\": [\"elsewhere\","},
    {"\"images\": [", "\"images\": [\"elsewhere\","},
    {"\"images\": [\"", "\"images\": [\"h0.gpu0\",\""},
    {"\"images\": [\"", "\"images\": [\"un"},
    {"\"symmetry\"", "\"rotation\""},
};
START_TEST(damaged_files_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *bad;
  struct copse_topology *t;
  char *text;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:2@300 nics:2@25 rails", NULL, &t, &err), &err);
  struct copse_schedule *s = compact_of(t, &text);
  char *changed = replaced(text, changes[_i].from, changes[_i].to);
  copse_status status = copse_schedule_parse("bad.json", changed, strlen(changed), &bad, &err);
  ck_assert_msg(status == COPSE_BAD_INPUT, "%s -> %s: %s (%s)", changes[_i].from, changes[_i].to,
                copse_status_string(status), err.text);
  ck_assert_ptr_null(bad);
  free(changed);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* A file may claim more images than any memory holds: said, not tried. */
START_TEST(what_is_too_large_to_list_is_not_tried) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  char *text;
  ASSERT_OK(copse_topology_synthetic("hosts:3 gpus:2@300 nics:2@25 rails", NULL, &t, &err), &err);
  struct copse_schedule *s = compact_of(t, &text);
  struct copse_permutation *rotations =
      (struct copse_permutation *)(uintptr_t)s->rotations;
  rotations[0].order = rotations[1].order = 3 << 20;
  ASSERT_FAILS(copse_schedule_expand(s, &err), COPSE_NOMEM, &err, "GiB");
  ck_assert_int_eq(s->n_rotations, 2);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/compact");
  TCase *tc = tcase_create("compact");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, the_optimum_is_that_without_symmetry_and_of_every_cut, 0, 4);
  tcase_add_loop_test(tc, the_optimum_is_that_of_a_linear_programme, 0, 3);
  tcase_add_loop_test(tc, compact_schedules_hold_on_random_clusters, 0, 6);
  tcase_add_loop_test(tc, shuffled_clusters_have_the_same_optimum, 0, 6);
  tcase_add_loop_test(tc, clusters_come_down_to_few_base_trees, 0,
                      sizeof clusters / sizeof *clusters);
  tcase_add_loop_test(tc, base_trees_that_get_stuck_one_by_one_grow_side_by_side, 0,
                      sizeof dragonflies / sizeof *dragonflies);
  tcase_add_test(tc, listed_schedules_of_large_clusters_are_expanded);
  tcase_add_test(tc, damaged_symmetries_are_refused);
  tcase_add_test(tc, symmetries_of_another_cluster_are_refused);
  tcase_add_test(tc, a_folded_cluster_is_refused);
  tcase_add_test(tc, changes_of_a_file_share_their_edges);
  tcase_add_test(tc, edges_of_changes_are_numbers_or_edges);
  tcase_add_loop_test(tc, damaged_files_are_refused, 0, sizeof changes / sizeof *changes);
  tcase_add_test(tc, what_is_too_large_to_list_is_not_tried);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
