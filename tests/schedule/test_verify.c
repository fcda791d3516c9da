/* The verifier beside an independent judge: right schedules pass, damaged ones do not. */
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "schedule/solve/solve.h"
#include "support/fabric.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

static char *solve_text(const struct copse_topology *topology, copse_collective collective,
                        int root, int64_t k) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  struct copse_solve_options options = {
      .collective = collective,
      .root = collective == COPSE_BROADCAST || collective == COPSE_REDUCE ? root : -1,
      .k = k};
  char *text;
  size_t size;
  ASSERT_OK(copse_solve_schedule(topology, &options, &schedule, &seconds, &err), &err);
  ASSERT_OK(copse_schedule_to_json(schedule, &text, &size, &err), &err);
  copse_schedule_free(schedule);
  return text;
}

/* A schedule of our own: its arena's memory may be written to. */
static struct copse_schedule *read_text(const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  ASSERT_OK(copse_schedule_parse("s.json", text, strlen(text), &schedule, &err), &err);
  return schedule;
}

/* What a user gets who verifies this schedule's file: the reader first, then the verifier. */
static copse_status verdict(const struct copse_schedule *schedule,
                            const struct copse_topology *topology, struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_schedule *back = NULL;
  char *text = NULL;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(schedule, &text, &size, err), err);
  copse_status status = copse_schedule_parse("s.json", text, size, &back, err);
  if (status == COPSE_OK) status = copse_verify_schedule(back, topology, "s.json", &report, err);
  copse_schedule_free(back);
  free(text);
  return status;
}

/* ---- damage ------------------------------------------------------------------------------ */

struct mutant {
  uint64_t *state;
  struct copse_schedule *s;
  int tree, edge; /* chosen by chance */
};

static int dice(struct mutant *m, int low, int high) {
  return low < high ? copse_test_random_int(m->state, low, high) : low;
}
static struct copse_schedule_tree *tree_of(struct mutant *m) {
  return (struct copse_schedule_tree *)&m->s->trees[m->tree];
}
static struct copse_schedule_edge *edge_of(struct mutant *m) {
  return (struct copse_schedule_edge *)&tree_of(m)->edges[m->edge];
}
static int *new_nodes(struct mutant *m, int n) {
  int *nodes = copse_arena_alloc(&m->s->arena, n > 0 ? (size_t)n : 1, sizeof *nodes);
  ck_assert_ptr_nonnull(nodes);
  return nodes;
}

static void nudge(struct mutant *m, struct copse_q *q) {
  int64_t num = q->num * 1000 + (dice(m, 0, 1) ? 1 : -1);
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_q_make(num, q->den * 1000, q, &err), &err);
}

static void change_weight(struct mutant *m) { nudge(m, &tree_of(m)->weight); }
static void negate_weight(struct mutant *m) { tree_of(m)->weight.num *= -1; }
static void move_weight(struct mutant *m) { /* sums per root may stay right */
  m->s->k = 0; /* the new weights are no multiples of the old part; the judge knows no k */
  struct copse_schedule_tree *a = tree_of(m);
  m->tree = dice(m, 0, m->s->n_trees - 1);
  struct copse_schedule_tree *b = tree_of(m);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q part;
  if (a == b) return;
  ASSERT_OK(copse_q_make(a->weight.num, a->weight.den * 7, &part, &err), &err);
  ASSERT_OK(copse_q_sub(a->weight, part, &a->weight, &err), &err);
  ASSERT_OK(copse_q_add(b->weight, part, &b->weight, &err), &err);
}
static void change_root(struct mutant *m) { tree_of(m)->root = dice(m, 0, m->s->n_ranks - 1); }
/* Another like a tree, of some weight. */
static void add_like(struct mutant *m, struct copse_q weight) {
  int n = m->s->n_trees;
  struct copse_schedule_tree *trees = copse_arena_alloc(&m->s->arena, (size_t)n + 1, sizeof *trees);
  ck_assert_ptr_nonnull(trees);
  memcpy(trees, m->s->trees, (size_t)n * sizeof *trees);
  trees[n] = trees[m->tree];
  trees[n].weight = weight;
  m->s->trees = trees;
  m->s->n_trees++;
}
/* One tree as two of weights w + 1 and -1: sums and loads stay, the sign alone is wrong. */
static void split_into_negative(struct mutant *m) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q *weight;
  add_like(m, (struct copse_q){-1, 1});
  weight = &tree_of(m)->weight;
  ASSERT_OK(copse_q_add(*weight, COPSE_Q_ONE, weight, &err), &err);
}
static void add_empty(struct mutant *m) { add_like(m, COPSE_Q_ZERO); }
static void flip_phase(struct mutant *m) {
  struct copse_schedule_tree *tree = tree_of(m);
  tree->phase = tree->phase == COPSE_PHASE_REDUCE ? COPSE_PHASE_BROADCAST : COPSE_PHASE_REDUCE;
}
static void redirect_edge(struct mutant *m) { edge_of(m)->dst = dice(m, 0, m->s->n_ranks - 1); }
static void move_edge_to_other_source(struct mutant *m) {
  /* with a path that fits: a direct one, which may or may not be a link */
  struct copse_schedule_edge *edge = edge_of(m);
  int *path = new_nodes(m, 2);
  edge->src = dice(m, 0, m->s->n_ranks - 1);
  path[0] = m->s->rank_nodes[edge->src];
  path[1] = m->s->rank_nodes[edge->dst];
  edge->path = path;
  edge->n_path = 2;
}
static void turn_edge(struct mutant *m) {
  struct copse_schedule_edge *edge = edge_of(m);
  int src = edge->src, *path = new_nodes(m, edge->n_path);
  for (int i = 0; i < edge->n_path; i++) path[i] = edge->path[edge->n_path - 1 - i];
  edge->src = edge->dst;
  edge->dst = src;
  edge->path = path;
}
static void swap_edges(struct mutant *m) {
  struct copse_schedule_edge *a = edge_of(m), copy = *a;
  m->edge = dice(m, 0, tree_of(m)->n_edges - 1);
  *a = *edge_of(m);
  *edge_of(m) = copy;
}
static void repeat_edge(struct mutant *m) {
  struct copse_schedule_edge copy = *edge_of(m);
  m->edge = dice(m, 0, tree_of(m)->n_edges - 1);
  *edge_of(m) = copy;
}
static void drop_edge(struct mutant *m) {
  struct copse_schedule_tree *tree = tree_of(m);
  ((struct copse_schedule_edge *)tree->edges)[m->edge] = tree->edges[tree->n_edges - 1];
  tree->n_edges--;
}
static void replace_node(struct mutant *m) { /* also the ends */
  struct copse_schedule_edge *edge = edge_of(m);
  ((int *)edge->path)[dice(m, 0, edge->n_path - 1)] = dice(m, 0, m->s->n_nodes - 1);
}
static void insert_node(struct mutant *m) {
  struct copse_schedule_edge *edge = edge_of(m);
  int *path = new_nodes(m, edge->n_path + 1), at = dice(m, 1, edge->n_path - 1);
  for (int i = 0; i < edge->n_path; i++) path[i < at ? i : i + 1] = edge->path[i];
  path[at] = dice(m, 0, m->s->n_nodes - 1);
  edge->path = path;
  edge->n_path++;
}
static void drop_node(struct mutant *m) {
  struct copse_schedule_edge *edge = edge_of(m);
  int at = dice(m, 0, edge->n_path - 1);
  int *path = new_nodes(m, edge->n_path);
  for (int i = 0, j = 0; i < edge->n_path; i++)
    if (i != at) path[j++] = edge->path[i];
  edge->path = path;
  edge->n_path--;
}
static void take_other_path(struct mutant *m) { /* from another edge: right nodes, wrong ends */
  struct copse_schedule_edge *edge = edge_of(m);
  m->edge = dice(m, 0, tree_of(m)->n_edges - 1);
  edge->path = edge_of(m)->path;
  edge->n_path = edge_of(m)->n_path;
}
static void drop_tree(struct mutant *m) {
  *tree_of(m) = m->s->trees[m->s->n_trees - 1];
  m->s->n_trees--;
}
static void double_tree(struct mutant *m) {
  struct copse_schedule_tree copy = *tree_of(m);
  m->tree = dice(m, 0, m->s->n_trees - 1);
  *tree_of(m) = copy;
}
static void change_time(struct mutant *m) { nudge(m, &m->s->time_per_GB); }
static void change_bound(struct mutant *m) { nudge(m, &m->s->bound.time_per_GB); }
static void bound_zero(struct mutant *m) { m->s->bound.time_per_GB = COPSE_Q_ZERO; }
static void time_to_bound(struct mutant *m) { /* right where it is optimal */
  m->s->time_per_GB = m->s->bound.time_per_GB;
}
static void flip_cut_node(struct mutant *m) {
  struct copse_bound *b = &m->s->bound;
  int node = dice(m, 0, m->s->n_nodes - 1), n = 0, *cut = new_nodes(m, b->n_cut + 1);
  bool there = false;
  for (int i = 0; i < b->n_cut; i++) {
    there |= b->cut[i] == node;
    if (b->cut[i] != node) cut[n++] = b->cut[i];
  }
  if (!there) cut[n++] = node;
  b->cut = cut;
  b->n_cut = n;
}
static void empty_cut(struct mutant *m) { m->s->bound.n_cut = 0; }
static void whole_cut(struct mutant *m) {
  int *cut = new_nodes(m, m->s->n_nodes);
  for (int i = 0; i < m->s->n_nodes; i++) cut[i] = i;
  m->s->bound.cut = cut;
  m->s->bound.n_cut = m->s->n_nodes;
}
static void repeat_cut_node(struct mutant *m) {
  struct copse_bound *b = &m->s->bound;
  int *cut = new_nodes(m, b->n_cut + 1);
  if (b->n_cut == 0) return;
  for (int i = 0; i < b->n_cut; i++) cut[i] = b->cut[i];
  cut[b->n_cut] = cut[dice(m, 0, b->n_cut - 1)];
  b->cut = cut;
  b->n_cut++;
}
static void swap_cuts(struct mutant *m) {
  struct copse_bound *b = &m->s->bound, copy = *b;
  if (b->kind != COPSE_BOUND_PHASES) return;
  b->cut = copy.reduce_cut;
  b->n_cut = copy.n_reduce_cut;
  b->reduce_cut = copy.cut;
  b->n_reduce_cut = copy.n_cut;
}
static void permute_ranks(struct mutant *m) {
  int *ranks = (int *)m->s->rank_nodes, i = dice(m, 0, m->s->n_ranks - 1);
  int j = dice(m, 0, m->s->n_ranks - 1), copy = ranks[i];
  ranks[i] = ranks[j];
  ranks[j] = copy;
}
static void swap_ids(struct mutant *m) { /* ranks and paths renamed alike: another numbering */
  const char **ids = (const char **)m->s->nodes, *copy;
  int i = m->s->rank_nodes[dice(m, 0, m->s->n_ranks - 1)];
  int j = m->s->rank_nodes[dice(m, 0, m->s->n_ranks - 1)];
  copy = ids[i];
  ids[i] = ids[j];
  ids[j] = copy;
}
static void change_id(struct mutant *m) { /* a node that the topology lacks, if it is used */
  ((const char **)m->s->nodes)[dice(m, 0, m->s->n_nodes - 1)] = "nowhere";
}

static const struct {
  void (*damage)(struct mutant *);
  const char *name;
} damages[] = {
#define DAMAGE(f) \
  { f, #f }
    DAMAGE(change_weight),
    DAMAGE(negate_weight),
    DAMAGE(move_weight),
    DAMAGE(add_empty),
    DAMAGE(change_root),
    DAMAGE(flip_phase),
    DAMAGE(redirect_edge),
    DAMAGE(move_edge_to_other_source),
    DAMAGE(turn_edge),
    DAMAGE(swap_edges),
    DAMAGE(repeat_edge),
    DAMAGE(drop_edge),
    DAMAGE(replace_node),
    DAMAGE(insert_node),
    DAMAGE(drop_node),
    DAMAGE(take_other_path),
    DAMAGE(drop_tree),
    DAMAGE(double_tree),
    DAMAGE(change_time),
    DAMAGE(change_bound),
    DAMAGE(bound_zero),
    DAMAGE(time_to_bound),
    DAMAGE(flip_cut_node),
    DAMAGE(empty_cut),
    DAMAGE(whole_cut),
    DAMAGE(repeat_cut_node),
    DAMAGE(swap_cuts),
    DAMAGE(permute_ranks),
    DAMAGE(change_id),
    DAMAGE(swap_ids),
    DAMAGE(split_into_negative)};
#undef DAMAGE
#define N_DAMAGES ((int)(sizeof damages / sizeof *damages))

static const struct copse_test_random_options fabrics = {2, 6, 5, true, true};
static const copse_collective all[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                       COPSE_BROADCAST, COPSE_REDUCE};

/* Reader and verifier must agree with the judge, either way; true: the mutant was wrong. */
static bool check_mutant(const struct copse_schedule *s, const struct copse_topology *topology,
                         const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  const char *defect = copse_test_schedule_defect(s, topology);
  copse_status status = verdict(s, topology, &err);
  if (!defect) ck_assert_msg(status == COPSE_OK, "%s: refused, though right: %s", what, err.text);
  if (defect)
    ck_assert_msg(status == COPSE_BAD_INPUT || status == COPSE_REFUTED, "%s: %s, though %s", what,
                  copse_status_string(status), defect);
  return defect != NULL;
}

/*
 * The verifier by itself: what the reader would have refused, it must refuse as well. Only
 * a schedule with ids of its own goes round: the others never reach a verifier unread.
 */
static void check_unread(const struct copse_schedule *s, const struct copse_topology *topology,
                         const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  const char *defect = copse_test_schedule_defect(s, topology);
  copse_status status = copse_verify_schedule(s, topology, "s.json", &report, &err);
  ck_assert_msg(status == (defect ? COPSE_REFUTED : COPSE_OK), "%s unread: %s (%s), judge: %s",
                what, copse_status_string(status), err.text, defect ? defect : "right");
}

START_TEST(mutants_are_refused_unless_they_are_right) {
  int refused = 0;
  for (uint64_t seed = 0; seed < COPSE_TEST_UP_TO(60u, 10u); seed++) {
    uint64_t state = 60 * (uint64_t)_i + seed;
    struct copse_topology *topology = copse_test_random_topology(&state, &fabrics);
    char *text = solve_text(topology, all[seed % 5], 0, (int64_t)(seed / 5 % 3));
    struct mutant m = {.state = &state, .s = read_text(text)};
    char what[80];
    snprintf(what, sizeof what, "%s, seed %d", damages[_i].name, (int)seed);
    ck_assert(!check_mutant(m.s, topology, "undamaged"));
    m.tree = dice(&m, 0, m.s->n_trees - 1);
    m.edge = dice(&m, 0, m.s->trees[m.tree].n_edges - 1);
    damages[_i].damage(&m);
    refused += check_mutant(m.s, topology, what);
    check_unread(m.s, topology, what);
    copse_schedule_free(m.s);
    free(text);
    copse_topology_free(topology);
  }
  /* each kind of damage does harm, except where it can't */
  if (COPSE_TEST_RESULTS && damages[_i].damage != time_to_bound) ck_assert_int_gt(refused, 0);
}
END_TEST

/* One bandwidth changed: loads over it or the cut through it change, or nothing does. */
START_TEST(another_topology_is_refused_unless_it_makes_no_difference) {
  int refused = 0;
  for (uint64_t seed = 0; seed < (COPSE_TEST_SWEEPS ? 200 : 80); seed++) {
    uint64_t state = seed;
    struct copse_topology *topology = copse_test_random_topology(&state, &fabrics);
    char *text = solve_text(topology, all[seed % 5], 0, 0), what[40];
    struct copse_schedule *s = read_text(text);
    struct copse_link *link = (struct copse_link *)&topology
                                  ->links[copse_test_random_int(&state, 0, topology->n_links - 1)];
    link->bandwidth.num *= copse_test_random_int(&state, 2, 9);
    link->bandwidth.den *= 5;
    struct copse_err err = COPSE_ERR_INIT;
    ASSERT_OK(copse_q_make(link->bandwidth.num, link->bandwidth.den, &link->bandwidth, &err), &err);
    snprintf(what, sizeof what, "seed %d", (int)seed);
    refused += check_mutant(s, topology, what);
    copse_schedule_free(s);
    free(text);
    copse_topology_free(topology);
  }
  ck_assert_int_gt(refused, COPSE_TEST_SWEEPS ? 20 : 4);
}
END_TEST

START_TEST(a_schedule_for_another_fabric_is_refused) {
  for (uint64_t seed = 0; seed < 60; seed++) {
    uint64_t state = seed;
    struct copse_topology *topology = copse_test_random_topology(&state, &fabrics);
    struct copse_topology *other = copse_test_random_topology(&state, &fabrics);
    char *text = solve_text(topology, all[seed % 5], 0, 0), what[40];
    struct copse_schedule *s = read_text(text);
    snprintf(what, sizeof what, "seed %d", (int)seed);
    check_mutant(s, other, what);
    copse_schedule_free(s);
    free(text);
    copse_topology_free(topology);
    copse_topology_free(other);
  }
}
END_TEST

/* ---- cases worked out by hand -------------------------------------------------------------- */

#define HEAD "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":["
#define GPU(id) "{\"id\":\"" id "\",\"type\":\"gpu\"}"
#define SWITCH(flags) "{\"id\":\"s\",\"type\":\"switch\"" flags "}"
#define STAR(flags) \
  HEAD GPU("a") "," GPU("b") "," GPU("c") "," SWITCH(flags) "],\"links\":["          \
      "{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":10},"                              \
      "{\"src\":\"b\",\"dst\":\"s\",\"bandwidth\":10},"                              \
      "{\"src\":\"c\",\"dst\":\"s\",\"bandwidth\":10}]}"

#define EDGE(src, dst, a, b) \
  "{\"src\":" #src ",\"dst\":" #dst ",\"path\":[\"" a "\",\"s\",\"" b "\"]}"
#define SCHEDULE(collective, root, phase, time, cut, edges)                              \
  "{\"format\":\"copse-schedule/1\",\"collective\":\"" collective "\"" root              \
  ",\"topology\":{\"name\":\"t\"},\"ranks\":[\"a\",\"b\",\"c\"],\"time_per_GB\":\"" time \
  "\",\"bound\":{\"time_per_GB\":\"1/10\",\"cut\":[" cut                                 \
  "]},\"trees\":[{\"root\":0,\"phase\":\"" phase "\",\"weight\":1,\"edges\":[" edges "]}]}"

static void check_case(const char *topology_json, const char *schedule_json, copse_status expected,
                       const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *topology = copse_test_topology(topology_json);
  struct copse_schedule *s = read_text(schedule_json);
  copse_status status = copse_verify_schedule(s, topology, "s.json", &report, &err);
  ck_assert_msg(status == expected, "got %s (%s)", copse_status_string(status), err.text);
  ck_assert_msg(strstr(err.text, part) != NULL, "\"%s\" lacks \"%s\"", err.text, part);
  ck_assert((copse_test_schedule_defect(s, topology) == NULL) == (expected == COPSE_OK));
  copse_schedule_free(s);
  copse_topology_free(topology);
}

/*
 * A broadcast of weight 1 from a to b and to c through a switch, all links at 10 GB/s. Both
 * edges cross a -> s: load 2, time 2/10 = 1/5 of a second per GB. At a multicast switch one
 * copy goes in: load 1, time 1/10, which is what the cut {a} proves: 1 / 10.
 */
START_TEST(a_multicast_switch_takes_one_copy_in) {
  const char *edges = SCHEDULE("broadcast", ",\"root\":0", "broadcast", "1/5", "\"a\"",
                               EDGE(0, 1, "a", "b") "," EDGE(0, 2, "a", "c"));
  const char *once = SCHEDULE("broadcast", ",\"root\":0", "broadcast", "1/10", "\"a\"",
                              EDGE(0, 1, "a", "b") "," EDGE(0, 2, "a", "c"));
  check_case(STAR(""), edges, COPSE_OK, "");
  check_case(STAR(""), once, COPSE_REFUTED, "1/5");
  check_case(STAR(",\"multicast\":true"), once, COPSE_OK, "");
  check_case(STAR(",\"multicast\":true"), edges, COPSE_REFUTED, "1/10");
  check_case(STAR(",\"aggregation\":true"), edges, COPSE_OK, ""); /* the other way only */
}
END_TEST

/*
 * The mirror image: b and c reduce to a. Both edges cross s -> a: load 2, 1/5; at an
 * aggregation switch one sum comes out: load 1, 1/10. The cut is read for what must
 * enter it.
 */
START_TEST(an_aggregation_switch_lets_one_sum_out) {
  const char *edges = SCHEDULE("reduce", ",\"root\":0", "reduce", "1/5", "\"a\"",
                               EDGE(1, 0, "b", "a") "," EDGE(2, 0, "c", "a"));
  const char *once = SCHEDULE("reduce", ",\"root\":0", "reduce", "1/10", "\"a\"",
                              EDGE(1, 0, "b", "a") "," EDGE(2, 0, "c", "a"));
  check_case(STAR(""), edges, COPSE_OK, "");
  check_case(STAR(""), once, COPSE_REFUTED, "1/5");
  check_case(STAR(",\"aggregation\":true"), once, COPSE_OK, "");
  check_case(STAR(",\"aggregation\":true"), edges, COPSE_REFUTED, "1/10");
  check_case(STAR(",\"multicast\":true"), edges, COPSE_OK, "");
}
END_TEST

/* A cut holds relays too, and must hold the root: {a, s} lets 20 out, {b} holds no root. */
START_TEST(a_bound_is_what_its_cut_proves_and_no_more) {
#define WITH_CUT(cut)                                           \
  SCHEDULE("broadcast", ",\"root\":0", "broadcast", "1/5", cut, \
           EDGE(0, 1, "a", "b") "," EDGE(0, 2, "a", "c"))
  check_case(STAR(""), WITH_CUT("\"a\",\"s\""), COPSE_REFUTED, "proves 1/20");
  check_case(STAR(""), WITH_CUT("\"a\",\"s\",\"b\""), COPSE_OK, "");
  check_case(STAR(""), WITH_CUT("\"b\""), COPSE_REFUTED, "separates nothing");
  check_case(STAR(""), WITH_CUT(""), COPSE_REFUTED, "separates nothing");
  check_case(STAR(""), WITH_CUT("\"a\",\"b\",\"c\""), COPSE_REFUTED, "separates nothing");
  check_case(STAR(""), WITH_CUT("\"a\",\"a\""), COPSE_REFUTED, "twice");
  check_case(STAR(""), WITH_CUT("\"a\",\"x\""), COPSE_REFUTED, "'x'");
}
END_TEST

/* On a symmetric fabric everything else about it is right. */
START_TEST(ranks_in_another_order_are_refused) {
  check_case(STAR(""),
             "{\"format\":\"copse-schedule/1\",\"collective\":\"broadcast\",\"root\":0,"
             "\"topology\":{\"name\":\"t\"},\"ranks\":[\"b\",\"a\",\"c\"],"
             "\"time_per_GB\":\"1/5\",\"bound\":{\"time_per_GB\":\"1/10\","
             "\"cut\":[\"a\",\"b\",\"s\"]},\"trees\":[{\"root\":0,\"phase\":\"broadcast\","
             "\"weight\":1,\"edges\":[" EDGE(0, 1, "b", "a") "," EDGE(0, 2, "b", "c") "]}]}",
             COPSE_REFUTED, "rank 0 is 'b'");
}
END_TEST

START_TEST(a_refusal_names_tree_edge_and_nodes) {
#define PATHS(path)                                                 \
  SCHEDULE("broadcast", ",\"root\":0", "broadcast", "1/5", "\"a\"", \
           EDGE(0, 1, "a", "b") ",{\"src\":1,\"dst\":2,\"path\":[" path "]}")
  check_case(STAR(""), PATHS("\"b\",\"c\""), COPSE_REFUTED, "tree 0, edge 1");
  check_case(STAR(""), PATHS("\"b\",\"c\""), COPSE_REFUTED, "'b' -> 'c'");
  check_case(STAR(""), PATHS("\"b\",\"s\",\"a\",\"s\",\"c\""), COPSE_REFUTED, "rank 0 ('a')");
  check_case(STAR(""), PATHS("\"b\",\"t\",\"c\""), COPSE_REFUTED, "'b' -> 't'");
}
END_TEST

START_TEST(the_report_names_the_busiest_link_and_the_topology) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_verify_report report;
  struct copse_topology *topology = copse_test_topology(STAR(""));
  struct copse_schedule *s =
      read_text(SCHEDULE("broadcast", ",\"root\":0", "broadcast", "1/5", "\"a\"",
                         EDGE(0, 1, "a", "b") "," EDGE(0, 2, "a", "c")));
  ASSERT_OK(copse_verify_schedule(s, topology, "s.json", &report, &err), &err);
  ck_assert(!report.same_topology && !report.optimal); /* no sha256; 1/5 is not 1/10 */
  ck_assert_str_eq(topology->nodes[report.busiest_src].id, "a");
  ck_assert_str_eq(topology->nodes[report.busiest_dst].id, "s");
  ck_assert_int_eq(report.busiest_links, 1);
  ck_assert(report.time_per_GB.num == 1 && report.time_per_GB.den == 5);
  ck_assert(report.bound.num == 1 && report.bound.den == 10);
  copse_schedule_free(s);
  copse_topology_free(topology);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/verify");
  TCase *tests = tcase_create("verify");
  tcase_add_test(tests, another_topology_is_refused_unless_it_makes_no_difference);
  tcase_add_test(tests, a_schedule_for_another_fabric_is_refused);
  tcase_add_test(tests, a_multicast_switch_takes_one_copy_in);
  tcase_add_test(tests, an_aggregation_switch_lets_one_sum_out);
  tcase_add_test(tests, a_bound_is_what_its_cut_proves_and_no_more);
  tcase_add_test(tests, ranks_in_another_order_are_refused);
  tcase_add_test(tests, a_refusal_names_tree_edge_and_nodes);
  tcase_add_test(tests, the_report_names_the_busiest_link_and_the_topology);
  suite_add_tcase(suite, tests);
  tcase_add_loop_test(copse_test_plain(suite, 60), mutants_are_refused_unless_they_are_right, 0, N_DAMAGES);
  return copse_test_run(suite);
}
