/*
 * Bounds for every size: below what can be done (linear programmes over a network with a copy for
 * each moment, simulated schedules, others' results), proved in the file, refused when damaged.
 */
#include "schedule/solve/bound_at.h"

#include <cJSON.h>
#include <glpk.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/types.h"
#include "predict/predict.h"
#include "support/command.h"
#include "solver/network/quickest.h"
#include "support/fabric.h"
#include "support/support.h"
#include "verify/verify.h"

/* ---- fabrics with latencies --------------------------------------------------------------------
 */

/* A ring of ranks, some over a relay, with chords; whole bandwidths, latencies in 1/`parts` us. */
static char *random_fabric(uint64_t *state, int max_ranks, int parts) {
  struct copse_text text = {0};
  int n = copse_test_random_int(state, 2, max_ranks), relays = copse_test_random_int(state, 0, 2);
  bool taken[16][16] = {{false}};
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"random\", \"nodes\": [");
  for (int v = 0; v < n + relays; v++)
    copse_text_add(&text, "%s{\"id\": \"%c%d\", \"type\": \"%s\"}", v ? ", " : "",
                   v < n ? 'g' : 'w', v, v < n ? "gpu" : "switch");
  copse_text_add(&text, "], \"links\": [");
  int chords = copse_test_random_int(state, 0, n), first = 1;
  for (int i = 0; i < n + chords + 2 * relays; i++) {
    int u = i < n ? i : copse_test_random_int(state, 0, n - 1);
    int v = i < n ? (i + 1) % n : copse_test_random_int(state, 0, n - 1);
    if (i >= n + chords) v = n + (i - n - chords) / 2;
    if (u == v || taken[u][v] || taken[v][u]) continue;
    taken[u][v] = true;
    copse_text_add(&text,
                   "%s{\"src\": \"%c%d\", \"dst\": \"%c%d\", \"bandwidth\": %d, \"latency\": "
                   "\"%d/%d\"}",
                   first ? "" : ", ", 'g', u, v < n ? 'g' : 'w', v,
                   copse_test_random_int(state, 1, 4), copse_test_random_int(state, 0, 3), parts);
    first = 0;
  }
  copse_text_add(&text, "]}");
  return text.data;
}

static struct copse_bound_at bound_of(const struct copse_topology *t, copse_collective collective,
                                      int64_t bytes, struct copse_q alpha,
                                      struct copse_arena *arena) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_bound_at at;
  ASSERT_OK(copse_bound_at(t, collective, copse_collective_rooted(collective) ? 0 : -1, bytes,
                           alpha, arena, &at, &err),
            &err);
  return at;
}

/* ---- linear programmes over moments
 * ---------------------------------------------------------------- */

/*
 * Everything that any schedule of copies and paths does within `moments` us, latencies whole: of
 * each origin, on each link at each moment, an amount; what goes to each rank of it is a flow
 * within that amount. An alltoall has an origin for each pair.
 */
struct programme {
  const struct copse_topology *t;
  int moments, alpha, n, at, capacity;
  int *rows, *columns;
  double *values;
  glp_prob *lp;
};

static void put(struct programme *p, int row, int column, double value) {
  if (++p->n >= p->capacity) {
    p->capacity = 2 * p->n + 1024;
    p->rows = realloc(p->rows, (size_t)p->capacity * sizeof *p->rows);
    p->columns = realloc(p->columns, (size_t)p->capacity * sizeof *p->columns);
    p->values = realloc(p->values, (size_t)p->capacity * sizeof *p->values);
  }
  p->rows[p->n] = row;
  p->columns[p->n] = column;
  p->values[p->n] = value;
}

static int delay_of(const struct programme *p, int e) {
  const struct copse_link *l = &p->t->links[e];
  return (int)(l->latency.num / l->latency.den) + (p->t->nodes[l->dst].rank >= 0 ? p->alpha : 0);
}

/* Columns of a flow: link e at moment m is first + e * moments + m, then what waits at nodes.
 * `share` times the objective goes from `src` to `dst`. */
static int add_flow(struct programme *p, int src, int dst, double share) {
  const struct copse_topology *t = p->t;
  int k = p->moments, first = glp_add_cols(p->lp, (t->n_links + t->n_nodes) * k);
  int row = glp_add_rows(p->lp, t->n_nodes * (k + 1));
  for (int c = 0; c < (t->n_links + t->n_nodes) * k; c++)
    glp_set_col_bnds(p->lp, first + c, GLP_LO, 0, 0);
  for (int i = 0; i < t->n_nodes * (k + 1); i++) glp_set_row_bnds(p->lp, row + i, GLP_FX, 0, 0);
  for (int e = 0; e < t->n_links; e++)
    for (int m = 0; m < k; m++) {
      int column = first + e * k + m, there = m + delay_of(p, e);
      if (there >= k) {
        glp_set_col_bnds(p->lp, column, GLP_FX, 0, 0);
        continue;
      }
      put(p, row + t->links[e].src * (k + 1) + m, column, -1);
      put(p, row + t->links[e].dst * (k + 1) + there, column, 1);
    }
  for (int v = 0; v < t->n_nodes; v++)
    for (int m = 0; m < k; m++) {
      put(p, row + v * (k + 1) + m, first + (t->n_links + v) * k + m, -1);
      put(p, row + v * (k + 1) + m + 1, first + (t->n_links + v) * k + m, 1);
    }
  put(p, row + src * (k + 1), 1, share);
  put(p, row + dst * (k + 1) + k, 1, -share);
  return first;
}

/* The most, in times what must go, that can within so many us. */
static double most_within(const struct copse_topology *t, copse_collective collective, double bytes,
                          int alpha, int moments) {
  struct programme p = {.t = t, .moments = moments, .alpha = alpha, .lp = glp_create_prob()};
  int k = moments;
  glp_smcp how;
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(p.lp, GLP_MAX);
  glp_add_cols(p.lp, 1);
  glp_set_col_bnds(p.lp, 1, GLP_DB, 0, 2);
  glp_set_obj_coef(p.lp, 1, 1);
  int room = glp_add_rows(p.lp, t->n_links * k);
  for (int e = 0; e < t->n_links; e++)
    for (int m = 0; m < k; m++)
      glp_set_row_bnds(p.lp, room + e * k + m, GLP_UP, 0,
                       1000 * copse_q_to_double(t->links[e].bandwidth));
  for (int s = 0; s < t->n_ranks && (s == 0 || collective != COPSE_BROADCAST); s++) {
    double share = collective == COPSE_BROADCAST ? bytes : bytes / t->n_ranks;
    int carried = 0;
    if (collective != COPSE_ALLTOALL) {
      carried = glp_add_cols(p.lp, t->n_links * k);
      for (int c = 0; c < t->n_links * k; c++) {
        glp_set_col_bnds(p.lp, carried + c, GLP_LO, 0, 0);
        put(&p, room + c, carried + c, 1);
      }
    }
    for (int d = 0; d < t->n_ranks; d++) {
      if (d == s) continue;
      int flow = add_flow(&p, t->rank_nodes[s], t->rank_nodes[d], share), within = 0;
      if (carried) within = glp_add_rows(p.lp, t->n_links * k);
      for (int c = 0; c < t->n_links * k; c++) {
        put(&p, carried ? within + c : room + c, flow + c, 1);
        if (!carried) continue;
        put(&p, within + c, carried + c, -1);
        glp_set_row_bnds(p.lp, within + c, GLP_UP, 0, 0);
      }
    }
  }
  glp_load_matrix(p.lp, p.n, p.rows, p.columns, p.values);
  glp_init_smcp(&how);
  how.presolve = GLP_ON;
  ck_assert_int_eq(glp_simplex(p.lp, &how), 0);
  double most = glp_get_status(p.lp) == GLP_OPT ? glp_get_obj_val(p.lp) : 0;
  glp_delete_prob(p.lp);
  glp_free_env();
  free(p.rows);
  free(p.columns);
  free(p.values);
  return most;
}

/* No schedule of copies and paths is done before the bound, and some in the moment after it,
 * mostly. */
START_TEST(below_linear_programmes) {
  static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_ALLTOALL, COPSE_BROADCAST};
  uint64_t state = (uint64_t)_i + 77;
  struct copse_arena arena = {0};
  char *json = random_fabric(&state, 4, 1);
  struct copse_topology *t = copse_test_topology(json);
  copse_collective collective = collectives[_i % 3];
  int alpha = copse_test_random_int(&state, 0, 1);
  int64_t bytes = 500 * copse_test_random_int(&state, 1, 24);
  struct copse_bound_at at = bound_of(t, collective, bytes, (struct copse_q){alpha, 1}, &arena);
  int before = (int)(at.us.num / at.us.den) - (at.us.num % at.us.den == 0);
  for (int k = before; k >= 1 && k >= before - 1 && k <= 12; k--)
    ck_assert_msg(most_within(t, collective, (double)bytes, alpha, k) < 1 - 1e-7,
                  "%s: done in %d us, bound %g us", json, k, copse_q_to_double(at.us));
  copse_arena_free(&arena);
  copse_topology_free(t);
  free(json);
}
END_TEST

/* ---- all sets of senders ------------------------------------------------------------------- */

/* The most that any set of senders proves for any rank of an allgather, in whole latencies. */
static struct copse_q best_of_all_sets(const struct copse_topology *t, int64_t bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_quickest_link links[64];
  struct copse_quickest *quickest = NULL;
  struct copse_q best = COPSE_Q_ZERO;
  ck_assert_int_le(t->n_links, 64);
  for (int e = 0; e < t->n_links; e++)
    links[e] = (struct copse_quickest_link){t->links[e].src, t->links[e].dst,
                                            t->links[e].bandwidth.num, t->links[e].latency.num};
  ASSERT_OK(copse_quickest_new(t->n_nodes, links, t->n_links, &quickest, &err), &err);
  for (int sink = 0; sink < t->n_ranks; sink++)
    for (int set = 1; set < 1 << t->n_ranks; set++) {
      struct copse_quickest_end from[16], to = {t->rank_nodes[sink], 0};
      struct copse_q amount, time;
      int n = 0;
      if (set >> sink & 1) continue;
      for (int r = 0; r < t->n_ranks; r++)
        if (set >> r & 1) from[n++] = (struct copse_quickest_end){t->rank_nodes[r], 0};
      ASSERT_OK(copse_q_make(bytes * n, 1000 * (int64_t)t->n_ranks, &amount, &err), &err);
      const struct copse_quickest_question question = {from, &to, n, 1, amount, &best};
      ASSERT_OK(copse_quickest_run(quickest, &question, &time, NULL, &err), &err);
      if (time.num > 0) best = time;
    }
  copse_quickest_free(quickest);
  return best;
}

/* What is found is never more, and here never less than nine tenths of it. */
START_TEST(near_the_best_of_all_sets) {
  static const int64_t sizes[] = {1000, 8000, 40000, 400000};
  uint64_t state = (uint64_t)_i + 4000;
  char *json = random_fabric(&state, 7, 1);
  struct copse_topology *t = copse_test_topology(json);
  for (int i = 0; i < 4; i++) {
    struct copse_arena arena = {0};
    struct copse_bound_at at = bound_of(t, COPSE_ALLGATHER, sizes[i], COPSE_Q_ZERO, &arena);
    struct copse_q best = best_of_all_sets(t, sizes[i]);
    ck_assert_int_le(copse_q_cmp(at.us, best), 0);
    ck_assert_msg(copse_q_to_double(at.us) >= 0.9 * copse_q_to_double(best), "%s: %g of %g us",
                  json, copse_q_to_double(at.us), copse_q_to_double(best));
    copse_arena_free(&arena);
  }
  copse_topology_free(t);
  free(json);
}
END_TEST

/* ---- the proof in a file
 * ----------------------------------------------------------------------------- */

static struct copse_schedule *with_bound(const struct copse_topology *t,
                                         copse_collective collective, double bytes, double alpha) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = copse_test_solve_as(
      t, (struct copse_solve_options){.collective = collective,
                                      .root = copse_collective_rooted(collective) ? 0 : -1,
                                      .label = "t"});
  ASSERT_OK(copse_bound_state(t, s, bytes, alpha, &err), &err);
  return s;
}

/* What somebody gets who verifies the text. */
static copse_status verdict_of(const char *text, const struct copse_topology *t,
                               struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_schedule *back = NULL;
  *err = (struct copse_err)COPSE_ERR_INIT;
  copse_status status = copse_schedule_parse("s.json", text, strlen(text), &back, err);
  if (status == COPSE_OK) status = copse_verify_schedule(back, t, "s.json", &report, err);
  copse_schedule_free(back);
  return status;
}

static char *text_of(const struct copse_schedule *s) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size;
  ASSERT_OK(copse_schedule_to_json(s, &text, &size, &err), &err);
  return text;
}

enum damage { BYTES, LONGER, KIND, ROUNDS, RANKS, N_DAMAGES };

static void damage_bound(cJSON *at, enum damage damage) {
  struct copse_q us;
  char longer[COPSE_Q_TEXT];
  ck_assert_int_eq(copse_q_parse_fraction(cJSON_GetObjectItem(at, "us")->valuestring, &us, NULL),
                   COPSE_OK);
  us.num++;
  if (damage == BYTES)
    cJSON_ReplaceItemInObject(
        at, "bytes", cJSON_CreateNumber(cJSON_GetObjectItem(at, "bytes")->valuedouble - 1));
  if (damage == LONGER)
    cJSON_ReplaceItemInObject(at, "us", cJSON_CreateString(copse_q_text(us, longer)));
  if (damage == KIND) cJSON_ReplaceItemInObject(at, "kind", cJSON_CreateString("other"));
  if (damage == RANKS) {
    cJSON_DeleteItemFromObject(at, "part_ranks");
    cJSON_AddNumberToObject(at, "part_ranks", 7);
  }
  if (damage == ROUNDS) cJSON_ReplaceItemInObject(at, "kind", cJSON_CreateString("rounds"));
}

/* Whether that makes another claim: among two parts, messages that nobody sends on count alike in
 * rounds. */
static bool damages(const cJSON *at, enum damage damage, int n_ranks) {
  const char *kind = cJSON_GetObjectItem(at, "kind")->valuestring;
  bool rounds = strcmp(kind, "rounds") == 0, messages = rounds || strcmp(kind, "volume") == 0;
  int n_parts = cJSON_GetArraySize(cJSON_GetObjectItem(at, "parts"));
  if (damage == RANKS) return messages;
  return damage != ROUNDS || (!rounds && (n_parts ? n_parts : n_ranks) > 2);
}

/* Fewer bytes, a longer time, another kind, more ranks than parts have are refused. */
static void check_damage(const char *text, const struct copse_topology *t) {
  struct copse_err err;
  for (int i = 0; i < N_DAMAGES; i++) {
    cJSON *file = cJSON_Parse(text), *at = cJSON_GetObjectItem(file, "bound_at");
    bool damaging = damages(at, (enum damage)i, t->n_ranks);
    damage_bound(at, (enum damage)i);
    char *damaged = cJSON_Print(file);
    copse_status status = verdict_of(damaged, t, &err);
    ck_assert_msg(status == COPSE_REFUTED || status == COPSE_BAD_INPUT || !damaging,
                  "damage %d: %s", i, damaged);
    cJSON_Delete(file);
    free(damaged);
  }
}

/* sum of b max(0, p(dst) - p(src) - latency) of a cut, by the file alone, in floating point. */
static double add_up(const cJSON *at, const struct copse_topology *t) {
  struct copse_q us, alpha;
  double *p = calloc((size_t)t->n_nodes, sizeof *p), sum = 0;
  bool reversed = cJSON_IsTrue(cJSON_GetObjectItem(at, "reversed"));
  ck_assert_int_eq(copse_q_parse_fraction(cJSON_GetObjectItem(at, "us")->valuestring, &us, NULL),
                   COPSE_OK);
  ck_assert_int_eq(
      copse_q_parse_fraction(cJSON_GetObjectItem(at, "alpha_us")->valuestring, &alpha, NULL),
      COPSE_OK);
  for (int v = 0; v < t->n_nodes; v++) p[v] = copse_q_to_double(us);
  const cJSON *one, *id;
  cJSON_ArrayForEach(one, cJSON_GetObjectItem(at, "times")) {
    struct copse_q time;
    ck_assert_int_eq(
        copse_q_parse_fraction(cJSON_GetObjectItem(one, "us")->valuestring, &time, NULL), COPSE_OK);
    cJSON_ArrayForEach(id, cJSON_GetObjectItem(one, "nodes"))
        p[copse_topology_find(t, id->valuestring)] = copse_q_to_double(time);
  }
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    double open = (p[l->dst] - p[l->src]) * (reversed ? -1 : 1) - copse_q_to_double(l->latency);
    if (t->nodes[l->dst].rank >= 0) open -= copse_q_to_double(alpha);
    if (open > 0) sum += 1000 * copse_q_to_double(l->bandwidth) * open;
  }
  free(p);
  return sum;
}

/* A node's time changed: refused, unless the sum is none the less what it was. */
static void check_other_times(const char *text, const struct copse_topology *t, uint64_t *state) {
  cJSON *file = cJSON_Parse(text), *at = cJSON_GetObjectItem(file, "bound_at");
  cJSON *times = cJSON_GetObjectItem(at, "times");
  struct copse_err err;
  if (strcmp(cJSON_GetObjectItem(at, "kind")->valuestring, "cut") == 0) {
    double before = add_up(at, t);
    cJSON *one =
        cJSON_GetArrayItem(times, copse_test_random_int(state, 0, cJSON_GetArraySize(times) - 1));
    cJSON *nodes = cJSON_GetObjectItem(one, "nodes");
    cJSON_DeleteItemFromArray(nodes,
                              copse_test_random_int(state, 0, cJSON_GetArraySize(nodes) - 1));
    char *damaged = cJSON_Print(file);
    copse_status status = verdict_of(damaged, t, &err);
    double after = add_up(at, t);
    if (after > before * (1 + 1e-9)) ck_assert_int_eq(status, COPSE_REFUTED);
    free(damaged);
  }
  cJSON_Delete(file);
}

START_TEST(proofs_hold_and_damage_is_refused) {
  static const double sizes[] = {1, 1000, 65536, 16777216};
  static const double alphas[] = {0, 0.5, 2};
  uint64_t state = (uint64_t)_i + 5;
  struct copse_err err;
  char *json = random_fabric(&state, 6, 2);
  struct copse_topology *t = copse_test_topology(json);
  for (int c = 0; c <= COPSE_ALLTOALL; c++) {
    struct copse_schedule *s =
        with_bound(t, (copse_collective)c, sizes[copse_test_random_int(&state, 0, 3)],
                   alphas[copse_test_random_int(&state, 0, 2)]);
    ck_assert_ptr_nonnull(s->bound_at);
    char *text = text_of(s);
    copse_status status = verdict_of(text, t, &err);
    ck_assert_msg(status == COPSE_OK, "%s: %s\n%s", copse_collective_name((copse_collective)c),
                  err.text, text);
    check_damage(text, t);
    check_other_times(text, t, &state);
    free(text);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
  free(json);
}
END_TEST

/* ---- what is simulated
 * --------------------------------------------------------------------------------- */

/* No predicted time is below, of schedules, rings, trees and direct exchanges. */
static void check_simulated(void) {
  cJSON *file = cJSON_Parse(copse_test_result.out);
  const cJSON *row, *algorithm;
  ck_assert_msg(file != NULL, "%s%s", copse_test_result.out, copse_test_result.err);
  cJSON_ArrayForEach(row, cJSON_GetObjectItem(file, "rows")) {
    const cJSON *bound = cJSON_GetObjectItem(row, "bound_us");
    ck_assert(cJSON_IsNumber(bound));
    cJSON_ArrayForEach(algorithm, cJSON_GetObjectItem(row, "times")) {
      double us = cJSON_GetObjectItem(algorithm, "time")->valuedouble;
      ck_assert_msg(us >= bound->valuedouble * (1 - 1e-9), "%s of %g bytes: %g us, bound %g us",
                    algorithm->string, cJSON_GetObjectItem(row, "size")->valuedouble, us,
                    bound->valuedouble);
    }
  }
  cJSON_Delete(file);
}

START_TEST(never_above_simulated_times) {
  static const char *const alphas[] = {"0", "0.7", "2"};
  uint64_t state = (uint64_t)_i + 900;
  char *json = random_fabric(&state, 6, 2);
  copse_test_write("t.json", json);
  for (int c = 0; c <= COPSE_ALLTOALL; c++) {
    const char *name = copse_collective_name((copse_collective)c);
    ck_assert_int_eq(
        copse_test_command("@ solve %%/t.json -c %s%s -o %%/s.json", name,
                           copse_collective_rooted((copse_collective)c) ? " --root 0" : ""),
        0);
    ck_assert_int_eq(
        copse_test_command("@ simulate %%/s.json -t %%/t.json -b 1 -e 16M -f 16 -j -a %s",
                           alphas[_i % 3]),
        0);
    check_simulated();
  }
  free(json);
}
END_TEST

/* Replaces the first `from` of the text, which the caller frees. */
static char *replaced(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  ck_assert_msg(at != NULL, "no %s in %s", from, text);
  size_t size = strlen(text) + strlen(to) + 1;
  char *out = malloc(size);
  ck_assert_ptr_nonnull(out);
  snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return out;
}

/* Four ranks on a switch: 1 us to it, 1 us from it, 10 GB/s = 10,000 bytes per us. */
static struct copse_topology *make_four(void) {
  return copse_test_topology(
      "{\"format\": \"copse-topology/1\", \"name\": \"four\", \"nodes\": [{\"id\": \"a\", "
      "\"type\": "
      "\"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"}, {\"id\": "
      "\"d\", \"type\": \"gpu\"}, {\"id\": \"s\", \"type\": \"switch\"}], \"links\": ["
      "{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 10, \"latency\": 1}, {\"src\": \"b\", "
      "\"dst\": \"s\", \"bandwidth\": 10, \"latency\": 1}, {\"src\": \"c\", \"dst\": \"s\", "
      "\"bandwidth\": 10, \"latency\": 1}, {\"src\": \"d\", \"dst\": \"s\", \"bandwidth\": 10, "
      "\"latency\": 1}]}");
}

/* Nor among hosts of several ranks, where messages cost a worker nothing: each rank sends its own
 * to all others of all hosts, or hosts add up before. */
START_TEST(never_above_times_across_hosts) {
  const char *const hosts[] = {
      COPSE_TEST_SWEEPS ? "hosts:8 gpus:4@300 nics:4@40 flat" : "hosts:4 gpus:3@300 nics:3@40 flat",
      "hosts:4 gpus:2@300 nics:2@40 clos:2/5",
      "hosts:6 gpus:2@300 nics:2@25 flat",
      "hosts:4 gpus:4@300 nics:4@25 rails",
      "hosts:3 gpus:3@100 nics:1@50 flat",
      "hosts:8 gpus:3@300 nics:3@40 clos:4/7",
      "hosts:9 gpus:1@300 nics:1@25 clos:3/3"};
  static const char *const collectives[] = {"allreduce", "broadcast --root 0", "reduce --root 0",
                                            "allgather", "reduce_scatter"};
  for (int c = 0; c < 5; c++) {
    ck_assert_int_eq(copse_test_command("@ solve --synthetic '%s' -c %s -o %%/s.json", hosts[_i],
                                        collectives[c]),
                     0);
    ck_assert_int_eq(
        copse_test_command("@ simulate %%/s.json --synthetic '%s' -b 1K -e 1M -f 16 -j "
                           "--message 0",
                           hosts[_i]),
        0);
    check_simulated();
  }
}
END_TEST

/* More levels of links of different bandwidth and latency than of hosts. */
START_TEST(all_links_differ) {
  struct copse_text text = {0};
  struct copse_arena arena = {0};
  int n = 0;
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"many\", \"nodes\": [");
  for (int r = 0; r < 24; r++)
    copse_text_add(&text, "%s{\"id\": \"g%d\", \"type\": \"gpu\"}", r ? ", " : "", r);
  copse_text_add(&text, "], \"links\": [");
  for (int step = 1; step < 24; step *= 2)
    for (int r = 0; r + step < 24; r += 2 * step, n++)
      copse_text_add(&text,
                     "%s{\"src\": \"g%d\", \"dst\": \"g%d\", \"bandwidth\": %d, \"latency\": %d}",
                     n ? ", " : "", r, r + step, 100 - n, 1 + (7 * n) % 24);
  copse_text_add(&text, "]}");
  struct copse_topology *t = copse_test_topology(text.data);
  for (int64_t bytes = 1000; bytes <= 1000000000; bytes *= 100) {
    struct copse_bound_at at = bound_of(t, COPSE_ALLREDUCE, bytes, COPSE_Q_ONE, &arena);
    ck_assert_int_gt(at.us.num, 0);
  }
  copse_arena_free(&arena);
  copse_topology_free(t);
  copse_text_free(&text);
}
END_TEST

/* Takes up to 3 % off each bandwidth, at random, the same both ways. */
static void take_off(cJSON *topology, uint64_t *state) {
  cJSON *link;
  cJSON_ArrayForEach(link, cJSON_GetObjectItem(topology, "links")) {
    char text[64];
    int width = (int)(10 * cJSON_GetObjectItem(link, "bandwidth")->valuedouble);
    snprintf(text, sizeof text, "%d/10000", width * copse_test_random_int(state, 970, 1000));
    cJSON_ReplaceItemInObject(link, "bandwidth", cJSON_CreateString(text));
  }
}

/* Where all links differ a little the parts are those of links that don't. The first eight
 * partitions by width, one link apart, lost up to half of an allreduce's bound. */
START_TEST(links_differ_a_little) {
  static const struct {
    const char *name;
    copse_collective collective;
  } cases[] = {{"a100-x8-spine", COPSE_ALLREDUCE},
               {"aws-p4d-x4", COPSE_ALLREDUCE},
               {"aws-p4d-x4", COPSE_BROADCAST},
               {"azure-ndv5-x8", COPSE_REDUCE},
               {"dgx2-x2", COPSE_ALLTOALL}};
  uint64_t state = 77;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_arena arena = {0};
    ck_assert_int_eq(copse_test_command("@ topo %s -o %%/t.json", cases[i].name), 0);
    char *text = copse_test_read("t.json");
    cJSON *json = cJSON_Parse(text);
    struct copse_topology *even = copse_test_topology(text);
    take_off(json, &state);
    char *other = cJSON_PrintUnformatted(json);
    struct copse_topology *t = copse_test_topology(other);
    for (int64_t bytes = 1024; bytes <= 1 << 30; bytes *= 64) {
      double us =
          copse_q_to_double(bound_of(t, cases[i].collective, bytes, COPSE_Q_ONE, &arena).us);
      double of_even =
          copse_q_to_double(bound_of(even, cases[i].collective, bytes, COPSE_Q_ONE, &arena).us);
      ck_assert_msg(us > 0.99 * of_even && us < 1.035 * of_even,
                    "%s, %s of %lld bytes: %g us, of links alike %g us", cases[i].name,
                    copse_collective_name(cases[i].collective), (long long)bytes, us, of_even);
    }
    copse_topology_free(t);
    copse_topology_free(even);
    free(other);
    cJSON_Delete(json);
    free(text);
    copse_arena_free(&arena);
  }
}
END_TEST

/* Ranks alone are parts of one rank each, whatever the file says. */
START_TEST(ranks_of_parts_that_are_not_there) {
  struct copse_err err;
  struct copse_topology *t = make_four();
  struct copse_schedule *s = with_bound(t, COPSE_BROADCAST, 120000, 0.5);
  char *text = text_of(s);
  ck_assert_ptr_nonnull(strstr(text, "\"volume\""));
  char *forged = replaced(text, "\"kind\": \"volume\"",
                          "\"kind\": \"volume\", \"part_ranks\": 4, \"later\": [[]]");
  ck_assert_int_eq(verdict_of(text, t, &err), COPSE_OK);
  ck_assert_int_eq(verdict_of(forged, t, &err), COPSE_REFUTED);
  free(forged);
  free(text);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* A file with a member that its kind's proof does not read is refused, by the member's name. */
static void check_unread(const struct copse_topology *t, const char *text, const char *kind,
                         const char *member, const char *value) {
  struct copse_err err = COPSE_ERR_INIT;
  char of[40], more[120], said[80];
  snprintf(of, sizeof of, "\"kind\": \"%s\"", kind);
  snprintf(more, sizeof more, "%s, \"%s\": %s", of, member, value);
  snprintf(said, sizeof said, "of kind \"%s\" has no \"%s\"", kind, member);
  ck_assert_ptr_nonnull(strstr(text, of));
  char *forged = replaced(text, of, more);
  ck_assert_int_eq(verdict_of(forged, t, &err), COPSE_BAD_INPUT);
  ck_assert_msg(strstr(err.text, said) != NULL, "%s", err.text);
  free(forged);
}

START_TEST(members_that_no_proof_reads) {
  struct copse_topology *t = make_four();
  struct copse_schedule *volume = with_bound(t, COPSE_BROADCAST, 120000, 0.5),
                        *cut = with_bound(t, COPSE_ALLGATHER, 120000, 0.5);
  char *text = text_of(volume);
  check_unread(t, text, "volume", "rank", "1");
  free(text);
  text = text_of(cut);
  check_unread(t, text, "cut", "parts", "[{\"nodes\": [\"gpu0\"]}]");
  check_unread(t, text, "cut", "part_ranks", "1");
  check_unread(t, text, "cut", "later", "[]");
  free(text);
  copse_schedule_free(volume);
  copse_schedule_free(cut);
  copse_topology_free(t);
}
END_TEST

static void check_said(const struct copse_topology *t, const char *text, const char *from,
                       const char *to, const char *said) {
  struct copse_err err = COPSE_ERR_INIT;
  char *forged = replaced(text, from, to);
  ck_assert_int_ne(verdict_of(forged, t, &err), COPSE_OK);
  ck_assert_msg(strstr(err.text, said) != NULL, "%s -> %s: %s", from, to, err.text);
  free(forged);
}

/* What is wrong is named by the file's own words. */
START_TEST(refusals_say_what_is_wrong) {
  static const char volume[] = "\"kind\": \"volume\"";
  struct copse_topology *t = make_four();
  struct copse_schedule *s = with_bound(t, COPSE_ALLREDUCE, 120000, 0.5);
  char *text = text_of(s);
  copse_schedule_free(s);
  check_said(t, text, volume, "\"kind\": \"volume\", \"reversed\": true",
             "\"reversed\" must be false for allreduce");
  check_said(t, text, volume, "\"kind\": \"volume\", \"part_ranks\": 2, \"parts\": []",
             "\"parts\" is empty");
  check_said(t, text, volume, "\"kind\": \"volume\", \"part_ranks\": 2",
             "has \"part_ranks\" and no \"parts\"");
  check_said(t, text, "\"bytes\": 120000", "\"bytes\": 119999",
             "the links can carry more than must cross them");
  free(text);
  s = with_bound(t, COPSE_REDUCE, 120000, 0.5);
  text = text_of(s);
  copse_schedule_free(s);
  check_said(t, text, "\"reversed\": true", "\"reversed\": false",
             "\"reversed\" must be true for reduce");
  free(text);
  s = with_bound(t, COPSE_ALLGATHER, 120000, 0.5);
  text = text_of(s);
  copse_schedule_free(s);
  check_said(t, text, "\"kind\": \"cut\", \"rank\": 0", volume,
             "of kind \"volume\" is not for allgather");
  char *times = strdup(strstr(text, "\"rank\": 0,"));
  *strstr(times, "},\n \"trees\"") = '\0';
  check_said(t, text, times, "\"times\": []", "no rank has the time 0 in \"times\"");
  check_said(t, text, times, "\"times\": [{\"us\": 0, \"nodes\": [\"a\", \"b\", \"c\", \"d\"]}]",
             "no rank has the time \"us\", as those have that \"times\" leaves out");
  free(times);
  free(text);
  copse_topology_free(t);
}
END_TEST

/* ---- parts in parts ------------------------------------------------------------------------- */

/*
 * Pods of 4 hosts of 8 GPUs; between pods U = 1600/7 GB/s, 1,600 GB/s of NICs in each; 2 us a
 * message. In hosts and between them data take 4 us once they are in a pod. What comes later comes
 * into a host each, in 2 us, or to a GPU each, in the last 2 us: (2 U + 2 * 1600 / 8) / 4 in all.
 * With M/2 from the other pod (allgather) that is 2 + 4 + M/2/U - 15/16 us, with M of an allreduce,
 * where it is so on both sides, 2 + 8 + M/U - 15/8. A broadcast's root has one of 8 NICs for 2 us:
 * 2 (1 - 50/U) us more. Of 64 KiB data take 2 us more once they are in a pod, but for 2 U / 32.
 * These are the times of a linear programme over moments (docs/measurements.md).
 */
START_TEST(pods_of_hosts) {
  static const struct {
    copse_collective collective;
    int64_t bytes;
    double us;
    int part_ranks;
  } cases[] = {{COPSE_ALLGATHER, 1 << 20, 7.35626, 8},  {COPSE_REDUCE_SCATTER, 1 << 20, 7.35626, 8},
               {COPSE_ALLREDUCE, 1 << 20, 12.71252, 8}, {COPSE_BROADCAST, 1 << 20, 11.21252, 8},
               {COPSE_REDUCE, 1 << 20, 11.21252, 8},    {COPSE_ALLGATHER, 1 << 16, 4.08086, 1}};
  ck_assert_int_eq(copse_test_command("@ topo h100-x8-clos7 -o %%/t.json"), 0);
  char *text = copse_test_read("t.json");
  struct copse_topology *t = copse_test_topology(text);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_arena arena = {0};
    struct copse_bound_at at =
        bound_of(t, cases[i].collective, cases[i].bytes, (struct copse_q){2, 1}, &arena);
    ck_assert_int_eq(at.kind, COPSE_BOUND_AT_NESTED);
    ck_assert_msg(fabs(copse_q_to_double(at.us) - cases[i].us) < 1e-9, "%zu: %.9f us", i,
                  copse_q_to_double(at.us));
    ck_assert_int_eq(at.part_ranks, cases[i].part_ranks);
    copse_arena_free(&arena);
  }
  copse_topology_free(t);
  free(text);
}
END_TEST

/*
 * With a root, all hosts but the root's: seven of eight hosts of 8 GPUs with a NIC of 50 GB/s each.
 * For 2 us the root sends by one NIC, then its host by eight, 400 GB/s in all; data that have come
 * to a host take 4 us more, but for what can come otherwise, (2 * 400 + 2 * 2800 / 8) / 7.
 */
START_TEST(hosts_beside_the_roots) {
  static const copse_collective collectives[] = {COPSE_BROADCAST, COPSE_REDUCE};
  const double otherwise = 1000 * (2 * 400 + 2 * 2800 / 8.0) / 7,
               us = 2 + 2 + 4 - 2 * 50 / 400.0 + ((1 << 20) - otherwise) / 400e3;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  ASSERT_OK(copse_topology_synthetic("hosts:8 gpus:8@450 nics:8@50 flat", NULL, &t, &err), &err);
  for (int i = 0; i < 2; i++) {
    struct copse_schedule *s = with_bound(t, collectives[i], 1 << 20, 2);
    char *text = text_of(s);
    double found = copse_q_to_double(s->bound_at->us);
    ck_assert_int_eq(s->bound_at->kind, COPSE_BOUND_AT_NESTED);
    ck_assert_msg(fabs(found - us) < 1e-9, "%.9f us, not %.9f", found, us);
    ck_assert_int_eq(verdict_of(text, t, &err), COPSE_OK);
    free(text);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

/* Moves the first node of a list from one set to another, of times or parts. */
static void move_node(cJSON *from, cJSON *to) {
  cJSON *nodes = cJSON_GetObjectItem(from, "nodes");
  cJSON_AddItemToArray(cJSON_GetObjectItem(to, "nodes"), cJSON_DetachItemFromArray(nodes, 0));
}

enum nested_damage {
  LONGER_TIME,
  OTHER_KIND,
  MORE_RANKS,
  A_PART_LESS,
  TORN,
  LATE_RANK,
  A_HOST_LESS
};

static void damage_nested(cJSON *at, int damage) {
  cJSON *parts = cJSON_GetObjectItem(at, "parts"), *times = cJSON_GetObjectItem(at, "times");
  cJSON *late = cJSON_CreateObject(), *first = cJSON_GetArrayItem(times, 0);
  cJSON_AddStringToObject(late, "us", "1/9");
  cJSON_AddArrayToObject(late, "nodes");
  if (damage == LONGER_TIME) damage_bound(at, LONGER);
  if (damage == OTHER_KIND) cJSON_ReplaceItemInObject(at, "kind", cJSON_CreateString("volume"));
  if (damage == MORE_RANKS) cJSON_ReplaceItemInObject(at, "part_ranks", cJSON_CreateNumber(5));
  if (damage == A_PART_LESS) cJSON_DeleteItemFromArray(parts, 0);
  if (damage == TORN) move_node(cJSON_GetArrayItem(parts, 0), first);
  if (damage == LATE_RANK) move_node(first, late);
  cJSON_AddItemToArray(times, late);
  cJSON *id, *nodes = cJSON_GetObjectItem(cJSON_GetArrayItem(parts, 0), "nodes");
  cJSON_ArrayForEach(id, nodes) /* a host more outside: less must come, and to fewer hosts */
      if (damage == A_HOST_LESS)
          cJSON_AddItemToArray(cJSON_GetObjectItem(first, "nodes"), cJSON_Duplicate(id, true));
}

/* What says that hosts are in a pod is checked in all its parts. */
START_TEST(pods_in_a_file) {
  static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                                 COPSE_ALLREDUCE, COPSE_BROADCAST, COPSE_REDUCE};
  struct copse_err err;
  ck_assert_int_eq(
      copse_test_command("@ topo --synthetic 'hosts:4 gpus:4@300 nics:4@40 clos:2/4' -o %%/t.json"),
      0);
  char *json = copse_test_read("t.json");
  struct copse_topology *t = copse_test_topology(json);
  for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
    struct copse_schedule *s = with_bound(t, collectives[c], 1048576, 2);
    char *text = text_of(s);
    ck_assert_int_eq(s->bound_at->kind, COPSE_BOUND_AT_NESTED);
    ck_assert_int_eq(s->bound_at->part_ranks, 4);
    copse_status status = verdict_of(text, t, &err);
    ck_assert_msg(status == COPSE_OK, "%s", err.text);
    check_unread(t, text, "nested", "rank", "1");
    check_unread(t, text, "nested", "later", "[[]]");
    for (int damage = LONGER_TIME; damage <= A_HOST_LESS; damage++) {
      cJSON *file = cJSON_Parse(text);
      damage_nested(cJSON_GetObjectItem(file, "bound_at"), damage);
      char *damaged = cJSON_Print(file);
      ck_assert_msg(verdict_of(damaged, t, &err) == COPSE_REFUTED, "%s, damage %d: %s",
                    copse_collective_name(collectives[c]), damage, damaged);
      cJSON_Delete(file);
      free(damaged);
    }
    free(text);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
  free(json);
}
END_TEST

START_TEST(commands_show_it) {
  ck_assert_int_eq(
      copse_test_command(
          "@ solve --synthetic switch:4@100 -c allgather --objective 64K -o %%/o.json"),
      0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "above the bound of"));
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "which any allgather takes at least:"));
  ck_assert_ptr_null(strstr(copse_test_result.out, "in turn"));
  ck_assert_ptr_null(strstr(copse_test_result.out, "does not count"));
  ck_assert_int_eq(copse_test_command("@ verify %%/o.json --synthetic switch:4@100"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "no schedule takes less than"));
  ck_assert_int_eq(copse_test_command("@ simulate %%/o.json --synthetic switch:4@100"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "above the"));
  ck_assert_int_eq(copse_test_command("@ solve --synthetic switch:4@100 -c allgather --objective "
                                      "64K --alpha-occupies -o %%/o.json"),
                   0);
  ck_assert_ptr_nonnull(
      strstr(copse_test_result.out, "that bound does not count how long latency keeps links busy"));
  ck_assert_int_eq(
      copse_test_command("@ simulate %%/o.json --synthetic switch:4@100 --alpha-occupies"), 0);
  ck_assert_ptr_nonnull(
      strstr(copse_test_result.out, "alpha occupies links (bounds do not count that)"));
  ck_assert_int_eq(copse_test_command("@ plans --search 0.05 --synthetic switch:4@100 -c allgather -o %%/plans"),
                   0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "above bound"));
  ck_assert_int_eq(
      copse_test_command("@ report --synthetic switch:4@100 -c allgather -o %%/r.html"), 0);
  char *page = copse_test_read("r.html");
  ck_assert_ptr_nonnull(strstr(page, "the bound</th>"));
  free(page);
}
END_TEST

/*
 * From a to b 1 GB/s directly and 1 GB/s over s, where the message is 10 us longer under way.
 * 20,000 bytes take 17 us: (17 - 2) + (17 - 12) us at 1,000 bytes per us. With the length of a>s
 * counted twice it would be 56/3 us: (t - 2) + 2 (t - 12) = 30.
 */
START_TEST(a_length_that_stands_twice_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = copse_test_topology(
      "{\"format\": \"copse-topology/1\", \"name\": \"two\", \"nodes\": [{\"id\": \"a\", "
      "\"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"s\", \"type\": "
      "\"switch\"}], \"links\": [{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 1}, {\"src\": "
      "\"a\", \"dst\": \"s\", \"bandwidth\": 1, \"latency\": 5}, {\"src\": \"s\", \"dst\": "
      "\"b\", \"bandwidth\": 1, \"latency\": 5}]}");
  static const char text[] =
      "{\"format\": \"copse-schedule/1\", \"collective\": \"alltoall\", \"topology\": {\"name\": "
      "\"two\", \"sha256\": \"9c009d8e32319fa19eed194ba1d142d2bcfdecd314550ec9644dcf956b1cb453\"}, "
      "\"ranks\": [\"a\", \"b\"], \"time_per_GB\": \"1/4\", \"algbw_GBps\": 4, \"bound\": "
      "{\"time_per_GB\": \"1/4\", \"lengths\": {\"a>b\": 1, \"a>s\": 1}}, \"bound_at\": "
      "{\"bytes\": 40000, \"alpha_us\": \"2\", \"us\": \"17\", \"kind\": \"lengths\"}, "
      "\"flows\": [{\"src\": 0, \"dst\": 1, \"paths\": [{\"path\": [\"a\", \"b\"], \"weight\": "
      "\"1/4\"}, {\"path\": [\"a\", \"s\", \"b\"], \"weight\": \"1/4\"}]}, {\"src\": 1, "
      "\"dst\": 0, \"paths\": [{\"path\": [\"b\", \"a\"], \"weight\": \"1/4\"}, {\"path\": "
      "[\"b\", \"s\", \"a\"], \"weight\": \"1/4\"}]}]}";
  ck_assert_msg(verdict_of(text, t, &err) == COPSE_OK, "%s", err.text);
  check_unread(t, text, "lengths", "times", "[]");
  check_unread(t, text, "lengths", "rank", "0");
  check_unread(t, text, "lengths", "reversed", "true");
  check_unread(t, text, "lengths", "reversed", "false");
  check_unread(t, text, "lengths", "part_ranks", "1");
  check_unread(t, text, "lengths", "later", "[[]]");
  char *twice = replaced(text, "\"a>s\": 1", "\"a>s\": 1, \"a>s\": 1");
  char *later = replaced(twice, "\"us\": \"17\"", "\"us\": \"56/3\"");
  ck_assert_int_eq(verdict_of(later, t, &err), COPSE_REFUTED);
  ck_assert_msg(strstr(err.text, "the bound's lengths name 'a' -> 's' twice") != NULL, "%s",
                err.text);
  free(later);
  free(twice);
  copse_topology_free(t);
}
END_TEST

/* ---- others' results
 * ------------------------------------------------------------------------------------- */

#define PEERS COPSE_TEST_OUTSIDE "/peers/"

struct row {
  char topology[64], collective[32], root[16];
  double bytes, lower, best, reference;
};

/* The columns by their names in the first line. */
static void read_row(char *line, char *const *names, int n, struct row *row) {
  *row = (struct row){.best = 1e300, .reference = 1e300};
  for (int i = 0; i < n; i++) {
    const char *cell = strsep(&line, "\t");
    if (!cell || !*cell) continue;
    if (strcmp(names[i], "topology") == 0)
      snprintf(row->topology, sizeof row->topology, "%s", cell);
    if (strcmp(names[i], "collective") == 0)
      snprintf(row->collective, sizeof row->collective, "%s", cell);
    if (strcmp(names[i], "root") == 0) snprintf(row->root, sizeof row->root, "%s", cell);
    if (strcmp(names[i], "M_bytes") == 0) row->bytes = strtod(cell, NULL);
    if (strcmp(names[i], "lower_bound_us") == 0) row->lower = strtod(cell, NULL);
    if (strcmp(names[i], "copse_best_us") == 0) row->best = strtod(cell, NULL);
    if (strcmp(names[i], "reference_us") == 0) row->reference = strtod(cell, NULL);
  }
}

static void check_row(const struct row *row) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  struct copse_bounds_question question = {.root = row->root[0] ? atoi(row->root) : -1};
  char path[128];
  double us;
  ck_assert(copse_collective_from_name(row->collective, &question.collective));
  snprintf(path, sizeof path, PEERS "%s", row->topology);
  ASSERT_OK(copse_topology_load(path, NULL, &t, &err), &err);
  ASSERT_OK(copse_bounds_predict(t, &question, &row->bytes, 1, &us, &err), &err);
  /* lengths of an alltoall are found within 5 % here */
  double loss = question.collective == COPSE_ALLTOALL ? 0.05 : 1e-6;
  ck_assert_msg(us >= row->lower * (1 - loss) && us <= row->best * (1 + 1e-6) &&
                    us <= row->reference * (1 + 1e-6),
                "%s %s of %g bytes: %g us, between %g and %g, %g", row->topology, row->collective,
                row->bytes, us, row->lower, row->best, row->reference);
  copse_topology_free(t);
}

START_TEST(others_results) {
  if (access(PEERS "table.tsv", R_OK) != 0) COPSE_SKIP("no " PEERS "table.tsv");
  FILE *file = fopen(PEERS "table.tsv", "r");
  char line[4096], head[4096], *names[64], *rest = head;
  int n = 0, rows = 0;
  ck_assert(fgets(head, sizeof head, file) != NULL);
  head[strcspn(head, "\n")] = '\0';
  while (n < 64 && (names[n] = strsep(&rest, "\t")) != NULL) n++;
  while (fgets(line, sizeof line, file)) {
    struct row row;
    line[strcspn(line, "\n")] = '\0';
    read_row(line, names, n, &row);
    check_row(&row);
    rows++;
  }
  ck_assert_int_ge(rows, 171);
  fclose(file);
}
END_TEST

/* ---- by hand
 * ------------------------------------------------------------------------------------------------
 */

START_TEST(four_on_a_switch) {
  struct copse_topology *t = make_four();
  static const struct {
    copse_collective collective;
    int64_t bytes;
    struct copse_q us;
  } cases[] = {
      {COPSE_ALLGATHER, 40000, {11, 2}},      /* 30,000 bytes into each, 2.5 us */
      {COPSE_REDUCE_SCATTER, 40000, {11, 2}}, /* out of each */
      {COPSE_ALLTOALL, 40000, {11, 2}},
      {COPSE_ALLREDUCE, 40000, {17, 2}}, /* 6 messages, 240,000 bytes into four */
      {COPSE_ALLREDUCE, 10000, {41, 8}}, /* 40,000 ((t - 5/2) + 3 (t - 5)) are 12 messages */
      {COPSE_ALLREDUCE, 1000, {14, 5}},  /* 12 messages: no time to send anything on */
      {COPSE_REDUCE,
       120000,
       {97, 6}}, /* 360,000 in all; the root alone takes for the last 2.5 us */
      {COPSE_BROADCAST, 120000, {97, 6}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_arena arena = {0};
    struct copse_bound_at at =
        bound_of(t, cases[i].collective, cases[i].bytes, (struct copse_q){1, 2}, &arena);
    ck_assert_msg(copse_q_eq(at.us, cases[i].us), "%s: %lld/%lld us",
                  copse_collective_name(cases[i].collective), (long long)at.us.num,
                  (long long)at.us.den);
    copse_arena_free(&arena);
  }
  copse_topology_free(t);
}
END_TEST

/* The least late messages to a part that knows `own` by `of` parts that know the others: how few
 * cover `all`. */
static int fewest(const int *knows, int k, int own, int all) {
  int least = k;
  for (int set = 0; set < 1 << k; set++) {
    int known = own;
    for (int p = 0; p < k; p++)
      if (set >> p & 1) known |= knows[p];
    if (known == all && __builtin_popcount((unsigned)set) < least)
      least = __builtin_popcount((unsigned)set);
  }
  return least;
}

/* The least messages in all after `early` more of them, one after the other, to whom one likes. */
static int fewest_in_all(const int *knows, int k, int early) {
  int least = k * k, late = 0;
  if (early == 0) {
    for (int p = 0; p < k; p++) late += fewest(knows, k, knows[p], (1 << k) - 1);
    return late;
  }
  for (int from = 0; from < k; from++)
    for (int to = 0; to < k; to++) {
      int then[8];
      if (from == to) continue;
      memcpy(then, knows, (size_t)k * sizeof *then);
      then[to] |= then[from];
      int all = 1 + fewest_in_all(then, k, early - 1);
      if (all < least) least = all;
    }
  return least;
}

/* What rounds rest on: whoever sends what it knew after `early` messages, all of an allreduce's
 * messages are at least early + k (k - 1 - early), by trying all ways. */
START_TEST(messages_of_an_allreduce) {
  for (int k = 2; k <= 5; k++)
    for (int early = 0; early < k; early++) {
      int knows[8];
      for (int p = 0; p < k; p++) knows[p] = 1 << p;
      ck_assert_int_ge(fewest_in_all(knows, k, early), early + k * (k - 1 - early));
    }
}
END_TEST

/* A file of before rounds calls those of an allreduce that sends nothing on a volume: that is right
 * as long as there is no time for it, and wrong beyond. */
START_TEST(a_volume_without_time_to_send_on) {
  static const struct {
    double bytes;
    copse_status status;
  } cases[] = {{1000, COPSE_OK}, {10000, COPSE_REFUTED}};
  struct copse_topology *t = make_four();
  for (int i = 0; i < 2; i++) {
    struct copse_err err;
    struct copse_schedule *s = with_bound(t, COPSE_ALLREDUCE, cases[i].bytes, 0.5);
    char *text = text_of(s);
    cJSON *file = cJSON_Parse(text), *at = cJSON_GetObjectItem(file, "bound_at");
    ck_assert_str_eq(cJSON_GetObjectItem(at, "kind")->valuestring, "rounds");
    cJSON_ReplaceItemInObject(at, "kind", cJSON_CreateString("volume"));
    cJSON_DeleteItemFromObject(at, "later");
    char *then = cJSON_Print(file);
    ck_assert_int_eq(verdict_of(text, t, &err), COPSE_OK);
    ck_assert_msg(verdict_of(then, t, &err) == cases[i].status, "%g: %s", cases[i].bytes, then);
    free(text);
    free(then);
    cJSON_Delete(file);
    copse_schedule_free(s);
  }
  copse_topology_free(t);
}
END_TEST

/* Messages of three hosts of two ranks, one latency each, in rounds: sends[t] has bit 6 a + b where
 * rank a sends to b, of another host, what it knows at t. What the rest lacks at the end counts
 * too. All of a host know in a round what one of them knew. */
static double weigh_rounds(const uint64_t *sends, int rounds) {
  int knows[8][6] = {{0}};
  double weight = 0;
  for (int r = 0; r < 6; r++) knows[0][r] = 1 << r;
  for (int t = 0; t < rounds; t++) {
    for (int r = 0; r < 6; r++) knows[t + 1][r] = knows[t][r] | knows[t][r ^ 1];
    for (int i = 0; i < 36; i++) {
      double early = t == 0 ? 0.5 : 1;
      if (!(sends[t] >> i & 1)) continue;
      knows[t + 1][i % 6] |= knows[t][i / 6];
      weight += early * (t == rounds - 1 ? 0.5 : 1) + (t < rounds - 1 ? 2 * early : 0);
    }
  }
  for (int r = 0; r < 6; r++) weight += 2 * (6 - __builtin_popcount((unsigned)knows[rounds][r]));
  return weight;
}

/* Annealed from random ones: what rounds weigh is never less than the 6 that the bound takes, and
 * comes down to that. */
START_TEST(messages_of_three_hosts) {
  int rounds = 2 + _i;
  uint64_t state = (uint64_t)_i + 31, sends[8] = {0};
  double now = weigh_rounds(sends, rounds), least = now;
  for (int step = 0; step < 100000; step++) {
    int turns = copse_test_random_int(&state, 1, 2);
    uint64_t before[8];
    memcpy(before, sends, sizeof before);
    for (int i = 0; i < turns; i++) {
      int a = copse_test_random_int(&state, 0, 5), b = copse_test_random_int(&state, 0, 5);
      if (a / 2 != b / 2)
        sends[copse_test_random_int(&state, 0, rounds - 1)] ^= UINT64_C(1) << (6 * a + b);
    }
    double then = weigh_rounds(sends, rounds), heat = 2.0 * (100000 - step) / 100000;
    if (then > now + heat * copse_test_random_int(&state, 0, 1000) / 1000)
      memcpy(sends, before, sizeof before);
    else
      now = then;
    if (now < least) least = now;
  }
  ck_assert_msg(least == 6, "%d rounds: %g", rounds, least);
}
END_TEST

/* Three hosts of two ranks and a relay, which both reach at more than the relay's 10 GB/s. */
static struct copse_topology *make_hosts(const char *inside, const char *to_relay) {
  struct copse_text text = {0};
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"hosts\", \"nodes\": [");
  for (char h = 'a'; h <= 'c'; h++)
    copse_text_add(&text,
                   "{\"id\": \"%c0\", \"type\": \"gpu\"}, {\"id\": \"%c1\", \"type\": \"gpu\"}, "
                   "{\"id\": \"%cp\", \"type\": \"switch\"}, ",
                   h, h, h);
  copse_text_add(&text, "{\"id\": \"s\", \"type\": \"switch\"}], \"links\": [");
  for (char h = 'a'; h <= 'c'; h++)
    copse_text_add(&text,
                   "%s{\"src\": \"%c0\", \"dst\": \"%c1\", \"bandwidth\": 100, \"latency\": %s}, "
                   "{\"src\": \"%c0\", \"dst\": \"%cp\", \"bandwidth\": 20, \"latency\": %s}, "
                   "{\"src\": \"%c1\", \"dst\": \"%cp\", \"bandwidth\": 20, \"latency\": %s}, "
                   "{\"src\": \"%cp\", \"dst\": \"s\", \"bandwidth\": 10}",
                   h == 'a' ? "" : ", ", h, h, inside, h, h, to_relay, h, h, to_relay, h);
  copse_text_add(&text, "]}");
  struct copse_topology *t = copse_test_topology(text.data);
  copse_text_free(&text);
  return t;
}

/* An allreduce's four messages of 30,000 bytes between hosts take 4 us over all three relays. */
START_TEST(relays_belong_to_their_hosts) {
  struct copse_arena arena = {0};
  struct copse_topology *t = make_hosts("0", "0");
  struct copse_bound_at at = bound_of(t, COPSE_ALLREDUCE, 30000, COPSE_Q_ZERO, &arena);
  ck_assert_msg(at.kind == COPSE_BOUND_AT_VOLUME && copse_q_eq(at.us, (struct copse_q){4, 1}),
                "%lld/%lld us", (long long)at.us.num, (long long)at.us.den);
  ck_assert_int_eq(at.n_parts, 3);
  for (int i = 0; i < at.n_parts; i++) ck_assert_int_eq(at.parts[i].n_nodes, 3);
  copse_arena_free(&arena);
  copse_topology_free(t);
}
END_TEST

/*
 * With 1 us to every other rank, half of it to a relay, A(T) is 30,000 (T - 1) of an allreduce:
 * A(T) + 2 A(T-1) + A(T-2) = 4 * 4 * 30,000. A broadcast's is 20,000 (T - 1), into two hosts: A(T)
 * + A(T-1) = 2 * 2 * 30,000 in 9/2 us. Longer takes what leaves the root's host: what comes in the
 * last 1 us serves one of four ranks, 10,000 (T - 2) + 10,000 / 4 = 30,000.
 */
START_TEST(ranks_of_a_host_take_turns) {
  static const copse_collective collectives[] = {COPSE_ALLREDUCE, COPSE_BROADCAST, COPSE_REDUCE};
  struct copse_topology *t = make_hosts("1", "\"1/2\"");
  static const struct copse_q us[] = {{6, 1}, {19, 4}, {19, 4}};
  for (int i = 0; i < 3; i++) {
    struct copse_arena arena = {0};
    struct copse_bound_at at = bound_of(t, collectives[i], 30000, COPSE_Q_ZERO, &arena);
    ck_assert_msg(at.kind == (i == 0 ? COPSE_BOUND_AT_VOLUME : COPSE_BOUND_AT_NESTED) &&
                      at.part_ranks == (i == 0 ? 2 : 1) && copse_q_eq(at.us, us[i]),
                  "%s: %lld/%lld us", copse_collective_name(collectives[i]), (long long)at.us.num,
                  (long long)at.us.den);
    copse_arena_free(&arena);
  }
  copse_topology_free(t);
}
END_TEST

/* What four ranks know, four bits each, once all have it from the other of their host. */
static int shared_by_hosts(int state) {
  int swapped = (state >> 4 & 0x0f0f) | (state << 4 & 0xf0f0);
  return state | swapped;
}

/* The least, in quarters of a message, that crosses in so many rounds of two hosts of two ranks: in
 * a round all that a rank knew comes to the other of its host for nothing, and over any of the
 * eight ways between hosts as a message. What is sent in the first round and what comes in the last
 * count a half each. */
static int least_crossing(int rounds) {
  int *cost = malloc((1 << 16) * sizeof *cost), *next = malloc((1 << 16) * sizeof *next);
  for (int i = 0; i < 1 << 16; i++) cost[i] = i == 0x8421 ? 0 : 1000;
  for (int round = 0; round < rounds; round++) {
    int each = 4 / (round == 0 ? 2 : 1) / (round == rounds - 1 ? 2 : 1);
    for (int i = 0; i < 1 << 16; i++) next[i] = 1000;
    for (int i = 0; i < 1 << 16; i++)
      for (int ways = 0; cost[i] < 1000 && ways < 1 << 8; ways++) {
        int then = shared_by_hosts(i), total = cost[i] + each * __builtin_popcount((unsigned)ways);
        for (int w = 0; w < 8; w++) {
          int from = w / 2, to = 2 * (from < 2) + w % 2;
          if (ways >> w & 1) then |= (i >> 4 * from & 15) << 4 * to;
        }
        if (total < next[then]) next[then] = total;
      }
    memcpy(cost, next, (1 << 16) * sizeof *cost);
  }
  int least = cost[0xffff];
  free(cost);
  free(next);
  return least;
}

/* Never less than the two whole messages that the bound takes, and in three rounds just those. */
START_TEST(messages_of_two_hosts) {
  for (int rounds = 1; rounds <= 4; rounds++) {
    int least = least_crossing(rounds);
    ck_assert_msg(rounds < 3 ? least >= 8 : least == 8, "%d rounds: %d quarters", rounds, least);
  }
}
END_TEST

int main(void) {
  copse_test_folder();
  Suite *suite = suite_create("bound_at");
  TCase *bounds = tcase_create("bounds");
  tcase_set_timeout(bounds, 120);
  tcase_add_test(bounds, four_on_a_switch);
  tcase_add_test(bounds, relays_belong_to_their_hosts);
  tcase_add_test(bounds, messages_of_an_allreduce);
  tcase_add_test(bounds, a_volume_without_time_to_send_on);
  tcase_add_test(bounds, ranks_of_a_host_take_turns);
  tcase_add_test(bounds, messages_of_two_hosts);
  tcase_add_loop_test(bounds, messages_of_three_hosts, 0, 3);
  tcase_add_test(bounds, a_length_that_stands_twice_is_refused);
  tcase_add_loop_test(bounds, below_linear_programmes, 0, COPSE_TEST_UP_TO(60, 6));
  tcase_add_loop_test(bounds, near_the_best_of_all_sets, 0, COPSE_TEST_UP_TO(100, 10));
  tcase_add_loop_test(bounds, proofs_hold_and_damage_is_refused, 0,
                      COPSE_TEST_SWEEPS ? 60 : COPSE_TEST_UP_TO(30, 6));
  tcase_add_loop_test(bounds, never_above_simulated_times, 0,
                      COPSE_TEST_SWEEPS ? 30 : COPSE_TEST_UP_TO(6, 3));
  tcase_add_loop_test(bounds, never_above_times_across_hosts, 0, COPSE_TEST_UP_TO(7, 2));
  tcase_add_test(bounds, all_links_differ);
  tcase_add_test(bounds, links_differ_a_little);
  tcase_add_test(bounds, ranks_of_parts_that_are_not_there);
  tcase_add_test(bounds, members_that_no_proof_reads);
  tcase_add_test(bounds, refusals_say_what_is_wrong);
  tcase_add_test(bounds, pods_of_hosts);
  tcase_add_test(bounds, hosts_beside_the_roots);
  tcase_add_test(bounds, pods_in_a_file);
  tcase_add_test(bounds, commands_show_it);
  tcase_add_test(bounds, others_results);
  suite_add_tcase(suite, bounds);
  return copse_test_run(suite);
}
