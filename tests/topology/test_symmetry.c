/*
 * Symmetries: what is found on clusters and fabrics whose symmetries are known, each generator
 * checked here once more in the simplest way, and damaged ones refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "support/random_topology.h"
#include "support/support.h"
#include "support/symmetric_topology.h"
#include "topology/symmetry/symmetry.h"

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

static void check_permutation(const struct copse_topology *t, const int *image) {
  char *hit = calloc((size_t)t->n_nodes, 1);
  ck_assert_ptr_nonnull(hit);
  for (int v = 0; v < t->n_nodes; v++) {
    ck_assert_int_eq(hit[image[v]]++, 0);
    ck_assert_int_eq(t->nodes[v].rank >= 0, t->nodes[image[v]].rank >= 0);
  }
  for (int e = 0; e < t->n_links; e++)
    ck_assert(copse_q_eq(t->links[e].bandwidth,
                         bandwidth(t, image[t->links[e].src], image[t->links[e].dst])));
  free(hit);
}

static void check_generator(const struct copse_topology *t, const struct copse_permutation *g) {
  check_permutation(t, g->image);
  for (int v = 0; v < t->n_nodes; v++) {
    int at = v;
    for (int i = 0; i < g->order; i++) at = g->image[at];
    ck_assert_int_eq(at, v);
  }
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

static void check_claims(const struct copse_topology *t, const struct copse_symmetry *s) {
  for (int g = 0; g < s->n; g++) check_generator(t, &s->generators[g]);
  check_products(t, s);
  for (int g = 0; g < s->n_others; g++) check_permutation(t, s->generators[s->n + g].image);
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
  check_claims(t, &s);
  copse_symmetry_free(&s);
  copse_topology_free(t);
}
END_TEST

/* The same fabrics under other names and in another order. */
START_TEST(shuffled_symmetries_are_found_whole) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = (uint64_t)_i + 7;
  struct copse_topology *t = synthetic(known[_i].line);
  for (int i = 0; i < 5; i++) {
    struct copse_symmetry s;
    struct copse_topology *shuffled = copse_test_shuffled(t, &state, false);
    ASSERT_OK(copse_topology_symmetry(shuffled, &s, &err), &err);
    ck_assert_int_eq(s.n_products, known[_i].products);
    check_claims(shuffled, &s);
    copse_symmetry_free(&s);
    copse_topology_free(shuffled);
  }
  copse_topology_free(t);
}
END_TEST

/* ---- against all permutations --------------------------------------------------------------- */

/* Every way to go on with the images of nodes 0 .. v-1, by looking at all links between them. */
static bool extends(const struct copse_topology *t, struct copse_q *const *width, int *image,
                    int v) {
  if (v == t->n_nodes) return true;
  for (int to = 0; to < t->n_nodes; to++) {
    bool fits = (t->nodes[v].rank >= 0) == (t->nodes[to].rank >= 0);
    for (int u = 0; u < v && fits; u++)
      fits = image[u] != to && copse_q_eq(width[u][v], width[image[u]][to]) &&
             copse_q_eq(width[v][u], width[to][image[u]]);
    image[v] = to;
    if (fits && extends(t, width, image, v + 1)) return true;
  }
  return false;
}

/* Whether any automorphism takes rank a to rank b: the nodes are renumbered to start from a. */
static bool are_alike(const struct copse_topology *t, struct copse_q *const *width, int a, int b) {
  int image[16];
  struct copse_q *swapped[16], rows[16][16];
  struct copse_node nodes[16];
  struct copse_topology u = *t;
  ck_assert_int_le(t->n_nodes, 16);
  memcpy(nodes, t->nodes, (size_t)t->n_nodes * sizeof *nodes);
  u.nodes = nodes;
  nodes[0] = t->nodes[a];
  nodes[a] = t->nodes[0];
  for (int i = 0; i < t->n_nodes; i++) {
    swapped[i] = rows[i];
    for (int j = 0; j < t->n_nodes; j++)
      rows[i][j] = width[i == 0 ? a : i == a ? 0 : i][j == 0 ? a : j == a ? 0 : j];
  }
  image[0] = b == a ? 0 : b == 0 ? a : b;
  return extends(&u, swapped, image, 1);
}

static int find_orbits(const struct copse_topology *t, const struct copse_symmetry *s, int *orbit) {
  int n_orbits = 0;
  for (int r = 0; r < t->n_ranks; r++) orbit[r] = r;
  for (bool again = true; again;) {
    again = false;
    for (int g = 0; g < s->n + s->n_others; g++) {
      const int *image = s->generators[g].image;
      for (int r = 0; r < t->n_ranks; r++) {
        int to = t->nodes[image[t->rank_nodes[r]]].rank;
        int least = orbit[r] < orbit[to] ? orbit[r] : orbit[to];
        again = again || orbit[r] != orbit[to];
        orbit[r] = orbit[to] = least;
      }
    }
  }
  for (int r = 0; r < t->n_ranks; r++) n_orbits += orbit[r] == r;
  return n_orbits;
}

/* No rank is joined with one that no permutation takes it to; returns how many orbits the search
 * left apart. */
static int check_orbits(const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_symmetry s;
  struct copse_q width_rows[16][16], *width[16];
  int orbit[16], n_true = 0;
  ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
  check_claims(t, &s);
  for (int a = 0; a < t->n_nodes; a++) {
    width[a] = width_rows[a];
    for (int b = 0; b < t->n_nodes; b++) width_rows[a][b] = bandwidth(t, a, b);
  }
  int n_found = find_orbits(t, &s, orbit);
  for (int r = 0; r < t->n_ranks; r++) {
    bool first = true;
    for (int q = 0; q < r; q++) {
      bool alike = are_alike(t, width, t->rank_nodes[q], t->rank_nodes[r]);
      if (alike) first = false;
      if (orbit[q] == orbit[r]) ck_assert(alike);
    }
    n_true += first;
  }
  copse_symmetry_free(&s);
  return n_found - n_true;
}

/* Symmetric fabrics, shuffled, and such with one slower link, which leaves few or none. */
START_TEST(orbits_are_those_of_all_permutations) {
  uint64_t state = (uint64_t)_i + 1;
  for (int i = 0; i < 30; i++) {
    struct copse_topology *whole = copse_test_symmetric_topology(&state, 13);
    struct copse_topology *t = copse_test_shuffled(whole, &state, i % 2);
    ck_assert_int_eq(check_orbits(t), 0);
    copse_topology_free(t);
    copse_topology_free(whole);
  }
}
END_TEST

/* Where colours tell nothing: a ring of six beside two of three; two graphs of 16 that have the
 * same number of common neighbours everywhere (Shrikhande's and the rook's). */
START_TEST(what_only_looks_alike_is_left_apart) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_text text = {0};
  copse_text_add(&text, "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[");
  int n = _i == 0 ? 12 : 32;
  for (int v = 0; v < n; v++) copse_text_add(&text, "{\"id\":\"n%d\",\"type\":\"gpu\"},", v);
  copse_text_add(&text, "{\"id\":\"s\",\"type\":\"switch\"}],\"links\":[");
  for (int a = 0; a < n; a++) {
    copse_text_add(&text, "%s{\"src\":\"n%d\",\"dst\":\"s\",\"bandwidth\":1}", a ? "," : "", a);
    for (int b = 0; b < a; b++) {
      int dx = (a % 4 - b % 4 + 4) % 4, dy = (a / 4 - b / 4 + 8) % 4;
      bool joined;
      if (_i == 0)
        joined = a < 6 ? a - b == 1 || a - b == 5 : b >= 6 && a / 3 == b / 3;
      else if ((a < 16) != (b < 16))
        joined = false;
      else if (a < 16)
        joined = dx == dy ? dx % 2 == 1 : dx * dy == 0 && (dx + dy) % 2 == 1;
      else
        joined = dx == 0 || dy == 0;
      if (joined) copse_text_add(&text, ",{\"src\":\"n%d\",\"dst\":\"n%d\",\"bandwidth\":1}", a, b);
    }
  }
  copse_text_add(&text, "]}");
  ck_assert_int_eq(copse_text_status(&text, &err), COPSE_OK);
  struct copse_topology *plain, *t;
  uint64_t state = 5;
  ASSERT_OK(copse_topology_parse("t", text.data, text.size, NULL, &plain, &err), &err);
  t = copse_test_shuffled(plain, &state, false);
  struct copse_symmetry s;
  int orbit[32];
  ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
  check_claims(t, &s);
  ck_assert_int_eq(find_orbits(t, &s, orbit), 2);
  copse_symmetry_free(&s);
  copse_text_free(&text);
  copse_topology_free(t);
  copse_topology_free(plain);
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
    check_claims(t, &s);
    copse_symmetry_free(&s);
    copse_topology_free(t);
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
  int *image = (int *)(uintptr_t)s.generators[0].image;
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
  copse_topology_free(t);
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
    copse_topology_free(t);
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
    copse_topology_free(t);
  }
}
END_TEST

/* ---- symmetries that keep sets -------------------------------------------------------------- */

static void find_with_sets(const struct copse_topology *t, const struct copse_node_set *sets,
                           int n_sets, struct copse_symmetry *out) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_set_symmetries(t, sets, n_sets, out, &err), &err);
  ck_assert_int_eq(out->n, 0);
  for (int i = 0; i < out->n_others; i++) {
    const int *image = out->generators[i].image, *to = out->generators[i].groups;
    check_permutation(t, image);
    for (int g = 0; g < n_sets; g++) {
      const struct copse_node_set *a = &sets[g], *b = &sets[to[g]];
      ck_assert(a->n == b->n && a->kind == b->kind);
      for (int k = 0; k < a->n; k++) {
        int found = 0;
        for (int j = 0; j < b->n; j++)
          found += b->nodes[j] == image[a->nodes[k]] && (k == a->root) == (j == b->root);
        ck_assert_int_eq(found, 1);
      }
    }
  }
}

/* Whether they commute or not, and with all ranks as one set or none: the same orbits of ranks. */
static void compare_searches(const struct copse_topology *t) {
  const struct copse_node_set all = {.root = -1, .n = t->n_ranks, .nodes = t->rank_nodes};
  struct copse_err err = COPSE_ERR_INIT;
  size_t bytes = (size_t)t->n_ranks * sizeof(int);
  int *orbit[3] = {malloc(bytes), malloc(bytes), malloc(bytes)};
  struct copse_symmetry s;
  ck_assert(orbit[0] && orbit[1] && orbit[2]);
  ASSERT_OK(copse_topology_symmetry(t, &s, &err), &err);
  find_orbits(t, &s, orbit[0]);
  copse_symmetry_free(&s);
  for (int n = 0; n < 2; n++) {
    find_with_sets(t, &all, n, &s);
    find_orbits(t, &s, orbit[1 + n]);
    copse_symmetry_free(&s);
    ck_assert_int_eq(memcmp(orbit[0], orbit[1 + n], bytes), 0);
  }
  for (int i = 0; i < 3; i++) free(orbit[i]);
}

START_TEST(both_searches_find_the_same_orbits) {
  uint64_t state = (uint64_t)_i + 3;
  struct copse_topology *t = synthetic(known[_i].line);
  struct copse_topology *shuffled = copse_test_shuffled(t, &state, false);
  compare_searches(t);
  compare_searches(shuffled);
  copse_topology_free(shuffled);
  copse_topology_free(t);
}
END_TEST

/* The generators that schedules of groups were written with when this search had colours of its
 * own: a change here changes files that users have. */
START_TEST(sets_turn_by_number) {
  static const int images[][16] = {
      {1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12},
      {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3},
  };
  struct copse_topology *t = synthetic("hosts:4 gpus:4@300 nics:4@25 rails");
  struct copse_node_set sets[4];
  struct copse_symmetry s;
  for (int g = 0; g < 4; g++)
    sets[g] =
        (struct copse_node_set){.root = -1, .n = 4, .nodes = t->rank_nodes + 4 * (ptrdiff_t)g};
  find_with_sets(t, sets, 4, &s);
  ck_assert_int_eq(s.n_others, (int)(sizeof images / sizeof *images));
  for (int i = 0; i < s.n_others; i++)
    for (int r = 0; r < 16; r++)
      ck_assert_int_eq(t->nodes[s.generators[i].image[t->rank_nodes[r]]].rank, images[i][r]);
  copse_symmetry_free(&s);
  copse_topology_free(t);
}
END_TEST

/* A root goes to a root; sets of another kind are none to go to; the same set twice changes. */
START_TEST(roots_and_kinds_of_sets_count) {
  static const int a[] = {0, 1}, b[] = {2, 3};
  struct copse_node_set sets[2] = {{.root = -1, .n = 2, .nodes = a},
                                   {.root = -1, .n = 2, .nodes = b}};
  struct copse_topology *t = synthetic("full:4@30");
  struct copse_symmetry s;
  int orbit[4];
  for (int odd = 0; odd < 4; odd++) {
    sets[1].kind = odd == 1;
    sets[0].root = sets[1].root = odd == 2 ? 0 : -1;
    sets[1].nodes = odd == 3 ? a : b;
    find_with_sets(t, sets, 2, &s);
    ck_assert_int_eq(find_orbits(t, &s, orbit), odd == 0 ? 1 : 2);
    copse_symmetry_free(&s);
  }
  copse_topology_free(t);
}
END_TEST

/* ---- hosts by name ------------------------------------------------------------------------- */

START_TEST(ids_tell_their_host) {
  static const struct {
    const char *id;
    size_t length;
    int host;
  } ids[] = {{"h0.gpu0", 3, 0},     {"h12.nic@mlx5_0", 4, 12}, {"h4194304.x", 9, 4194304},
             {"h4194305.x", 9, -1}, {"h01.gpu0", 4, 1},        {"h99999999999999999999.x", 22, -1},
             {"gpu0", 0, -1},       {"h.gpu0", 0, -1},         {"h1", 0, -1},
             {"h1gpu.0", 0, -1},    {"host1.gpu0", 0, -1},     {"", 0, -1}};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    int host = -2;
    ck_assert_uint_eq(copse_host_prefix(ids[i].id, &host), ids[i].length);
    ck_assert_int_eq(host, ids[i].host);
    ck_assert_uint_eq(copse_host_prefix(ids[i].id, NULL), ids[i].length);
  }
}
END_TEST

/* Names tell of hosts in turn; the longest generator is taken where they tell nothing. */
START_TEST(rotations_of_hosts_are_proved) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t state = 5;
  struct copse_topology *t = synthetic("hosts:6 gpus:2@300 nics:2@25 rails");
  struct copse_topology *shuffled = copse_test_shuffled(t, &state, false);
  struct copse_permutation by;
  struct copse_arena arena = {0};
  ASSERT_OK(copse_topology_host_rotation(t, &arena, &by, &err), &err);
  ck_assert_int_eq(by.order, 6);
  check_generator(t, &by);
  for (int r = 0; r < 12; r++)
    ck_assert_int_eq(t->nodes[by.image[t->rank_nodes[r]]].rank, (r + 2) % 12);
  copse_arena_free(&arena);
  ASSERT_OK(copse_topology_host_rotation(shuffled, &arena, &by, &err), &err);
  ck_assert_int_eq(by.order, 1);
  ck_assert_ptr_null(by.image);
  ASSERT_OK(copse_topology_rotation(shuffled, &arena, &by, &err), &err);
  ck_assert_int_gt(by.order, 1);
  check_generator(shuffled, &by);
  copse_arena_free(&arena);
  copse_topology_free(shuffled);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("symmetry");
  TCase *tc = tcase_create("symmetry");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, known_symmetries_are_found_whole, 0, sizeof known / sizeof *known);
  tcase_add_loop_test(tc, shuffled_symmetries_are_found_whole, 0, sizeof known / sizeof *known);
  tcase_add_loop_test(tc, orbits_are_those_of_all_permutations, 0, 6);
  tcase_add_loop_test(tc, what_only_looks_alike_is_left_apart, 0, 2);
  tcase_add_loop_test(tc, claims_on_random_fabrics_hold, 0, 5);
  tcase_add_test(tc, damaged_permutations_are_refused);
  tcase_add_test(tc, bandwidths_and_kinds_of_nodes_count);
  tcase_add_test(tc, a_difference_anywhere_is_seen);
  tcase_add_loop_test(tc, both_searches_find_the_same_orbits, 0, sizeof known / sizeof *known);
  tcase_add_test(tc, sets_turn_by_number);
  tcase_add_test(tc, roots_and_kinds_of_sets_count);
  tcase_add_test(tc, ids_tell_their_host);
  tcase_add_test(tc, rotations_of_hosts_are_proved);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
