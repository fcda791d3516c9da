/*
 * Symmetries: what is found on clusters and fabrics whose symmetries are known, each generator
 * checked here once more in the simplest way, and damaged ones refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random_topology.h"
#include "support/support.h"
#include "topology/symmetry.h"

static struct copse_topology *synthetic(const char *line) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic(line, NULL, &t, &err), &err);
  return t;
}

/* The bandwidth src -> dst by looking at all links; 0/1 where there is none. */
static struct copse_q bandwidth(const struct copse_topology *t, int src, int dst) {
  for (int e = 0; e < t->n_links; e++)
    if (t->links[e].src == src && t->links[e].dst == dst) return t->links[e].bandwidth;
  return COPSE_Q_ZERO;
}

static void check_generator(const struct copse_topology *t,
                            const struct copse_symmetry_generator *g) {
  for (int v = 0; v < t->n_nodes; v++) {
    int at = v;
    ck_assert_int_eq(t->nodes[v].rank >= 0, t->nodes[g->image[v]].rank >= 0);
    for (int i = 0; i < g->order; i++) at = g->image[at];
    ck_assert_int_eq(at, v); /* so it is a permutation, too */
  }
  for (int e = 0; e < t->n_links; e++)
    ck_assert(copse_q_eq(t->links[e].bandwidth,
                         bandwidth(t, g->image[t->links[e].src], g->image[t->links[e].dst])));
}

/* The products move no rank onto itself, but one: by listing all images of all ranks. */
static void check_products(const struct copse_topology *t, const struct copse_symmetry *s) {
  int products = 1, *power = calloc((size_t)t->n_nodes, sizeof *power);
  ck_assert_ptr_nonnull(power);
  for (int g = 0; g < s->n; g++) products *= s->generators[g].order;
  ck_assert_int_eq(products, s->n_products);
  for (int p = 0; p < products; p++) {
    for (int v = 0; v < t->n_nodes; v++) power[v] = v;
    for (int g = 0, rest = p; g < s->n; rest /= s->generators[g++].order)
      for (int i = 0; i < rest % s->generators[g].order; i++)
        for (int v = 0; v < t->n_nodes; v++) power[v] = s->generators[g].image[power[v]];
    for (int r = 0; r < t->n_ranks; r++)
      ck_assert_int_eq(power[t->rank_nodes[r]] == t->rank_nodes[r], p == 0);
  }
  free(power);
}

static const struct {
  const char *line;
  int products; /* 0: whatever is found must hold */
} known[] = {
    {"ring:8@50", 8},
    {"torus:4x4x4@100", 64},
    {"torus:3x5@100", 15},
    {"full:8@25", 8},
    {"hypercube:5@50", 32},
    {"hosts:4 gpus:8@300 nics:8@25 rails", 32},
    {"hosts:6 gpus:4@300 nics:4@25 rails", 24},
    {"hosts:5 gpus:3@300 nics:3@25 rails", 15},
    {"hosts:1 gpus:8@300", 8},
};
START_TEST(known_symmetries_are_found_whole) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_symmetry s;
  struct copse_topology *t = synthetic(known[_i].line);
  ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
  ck_assert_int_eq(s.n_products, known[_i].products);
  for (int g = 0; g < s.n; g++) check_generator(t, &s.generators[g]);
  check_products(t, &s);
  copse_symmetry_free(&s);
  copse_topology_release(t);
}
END_TEST

/* Random fabrics: mostly none; whatever is claimed holds. */
START_TEST(claims_on_random_fabrics_hold) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = (uint64_t)_i + 1;
  for (int i = 0; i < 40; i++) {
    struct copse_symmetry s;
    struct copse_topology *t = copse_test_random_topology(&state, &copse_test_random_small);
    ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
    for (int g = 0; g < s.n; g++) check_generator(t, &s.generators[g]);
    check_products(t, &s);
    copse_symmetry_free(&s);
    copse_topology_release(t);
  }
}
END_TEST

static bool is_automorphism(const struct copse_topology *t, const int *image) {
  struct copse_err err = COPSE_ERR_INIT;
  bool is;
  ASSERT_OK(copse_topology_is_automorphism(t, image, &is, &err), &err);
  return is;
}

/* Any two images exchanged: refused unless the result happens to be an automorphism, which the
 * simple check knows. */
START_TEST(damaged_permutations_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_symmetry s;
  struct copse_topology *t = synthetic("hosts:4 gpus:4@300 nics:4@25 rails");
  int refused = 0;
  ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
  int *image = s.generators[0].image;
  for (int a = 0; a < t->n_nodes; a++) {
    for (int b = 0; b < a; b++) {
      int swap = image[a];
      image[a] = image[b];
      image[b] = swap;
      bool holds = true;
      for (int v = 0; v < t->n_nodes; v++)
        holds = holds && (t->nodes[v].rank >= 0) == (t->nodes[image[v]].rank >= 0);
      for (int e = 0; e < t->n_links && holds; e++)
        holds = copse_q_eq(t->links[e].bandwidth,
                           bandwidth(t, image[t->links[e].src], image[t->links[e].dst]));
      ck_assert_int_eq(is_automorphism(t, image), holds);
      refused += !holds;
      image[b] = image[a];
      image[a] = swap;
    }
  }
  ck_assert_int_gt(refused, t->n_nodes * (t->n_nodes - 1) / 2 - 8);
  int kept = image[0];
  image[0] = image[1]; /* no permutation */
  ck_assert(!is_automorphism(t, image));
  image[0] = t->n_nodes;
  ck_assert(!is_automorphism(t, image));
  image[0] = -1;
  ck_assert(!is_automorphism(t, image));
  image[0] = kept;
  ck_assert(is_automorphism(t, image));
  copse_symmetry_free(&s);
  copse_topology_release(t);
}
END_TEST

/* The right links, but one of them faster: turning such a ring is no automorphism; nor is turning
 * a switch that copies into one that doesn't, or a rank into a relay. */
START_TEST(bandwidths_and_kinds_of_nodes_count) {
  static const char *const rings[] = {"\"bandwidth\":1", "\"bandwidth\":2"};
  static const char *const kinds[] = {"\"gpu\"", "\"switch\"", "\"gpu\",\"multicast\":true",
                                      "\"gpu\",\"aggregation\":true"};
  int turned[] = {1, 2, 3, 0};
  for (int odd = 0; odd < 5; odd++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t;
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":["
                     "{\"id\":\"a\",\"type\":\"gpu\"},{\"id\":\"b\",\"type\":\"gpu\"},"
                     "{\"id\":\"c\",\"type\":\"gpu\"},{\"id\":\"d\",\"type\":%s}],\"links\":["
                     "{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":1},"
                     "{\"src\":\"b\",\"dst\":\"c\",\"bandwidth\":1},"
                     "{\"src\":\"c\",\"dst\":\"d\",\"bandwidth\":1},"
                     "{\"src\":\"d\",\"dst\":\"a\",%s}]}",
                     kinds[odd < 4 ? odd : 0], rings[odd == 4]);
    ASSERT_OK(copse_topology_parse("t", text, (size_t)n, NULL, &t, &err), &err);
    ck_assert_int_eq(is_automorphism(t, turned), odd == 0);
    copse_topology_release(t);
  }
}
END_TEST

/* A switch that copies is none like one that doesn't; a slower link is no link like another. */
START_TEST(a_difference_anywhere_is_seen) {
  static const char *const fabrics[] = {
      "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
      "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"s\",\"type\":\"switch\",\"multicast\":true},"
      "{\"id\":\"t\",\"type\":\"switch\"}],\"links\":["
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":1},{\"src\":\"b\",\"dst\":\"t\",\"bandwidth\":1},"
      "{\"src\":\"s\",\"dst\":\"t\",\"bandwidth\":1}]}",
      "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
      "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"s\",\"type\":\"switch\"},"
      "{\"id\":\"t\",\"type\":\"switch\"}],\"links\":["
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":1},{\"src\":\"b\",\"dst\":\"t\",\"bandwidth\":"
      "\"4/3\"},"
      "{\"src\":\"s\",\"dst\":\"t\",\"bandwidth\":1}]}",
  };
  for (size_t i = 0; i < 2; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_symmetry s;
    struct copse_topology *t;
    ASSERT_OK(copse_topology_parse("t", fabrics[i], strlen(fabrics[i]), NULL, &t, &err), &err);
    ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
    ck_assert_int_eq(s.n, 0);
    ck_assert_int_eq(s.n_products, 1);
    copse_symmetry_free(&s);
    copse_topology_release(t);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("symmetry");
  TCase *tc = tcase_create("symmetry");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, known_symmetries_are_found_whole, 0, sizeof known / sizeof *known);
  tcase_add_loop_test(tc, claims_on_random_fabrics_hold, 0, 5);
  tcase_add_test(tc, damaged_permutations_are_refused);
  tcase_add_test(tc, bandwidths_and_kinds_of_nodes_count);
  tcase_add_test(tc, a_difference_anywhere_is_seen);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
