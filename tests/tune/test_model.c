/*
 * NCCL's tuning model: every latency, bandwidth and choice that NCCL 2.30.7 printed for 28 machines
 * on 1, 2 and 4 hosts (OUTSIDE/nccl/data/tuning.tsv, picks.tsv), where they are there.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "nccl/model.h"
#include "support/support.h"

#define DATA COPSE_TEST_OUTSIDE "/nccl/data/"

/* ---- tables
 * -------------------------------------------------------------------------------------- */

struct table {
  char *text;
  char *at;
};

static struct table open_table(const char *name) {
  struct table t = {0};
  char path[200];
  size_t size;
  snprintf(path, sizeof path, DATA "%s", name);
  if (copse_file_read(path, &t.text, &size, NULL) != COPSE_OK) return t;
  t.at = strchr(t.text, '\n') + 1; /* the header */
  return t;
}

static bool next_row(struct table *t, char *fields[32]) {
  if (!*t->at) return false;
  char *end = strchr(t->at, '\n');
  ck_assert_ptr_nonnull(end);
  *end = '\0';
  int n = 0;
  for (char *p = t->at; p && n < 32; n++) {
    fields[n] = p;
    p = strchr(p, '\t');
    if (p) *p++ = '\0';
  }
  t->at = end + 1;
  return true;
}

static int number_in(const char *word, const char *const *words, int n) {
  char lower[32] = "";
  size_t k = 0;
  for (const char *p = word; *p; p++) {
    if (strcmp(p, "Tree") == 0 && p != word) lower[k++] = '_'; /* NVLSTree */
    lower[k++] = (char)tolower((unsigned char)*p);
  }
  for (int i = 0; i < n; i++)
    if (strcmp(lower, words[i]) == 0) return i;
  ck_abort_msg("%s", lower);
  return -1;
}

/* ---- machines
 * ------------------------------------------------------------------------------------ */

static struct machine {
  char name[40];
  int hosts;
  struct copse_nccl_graphs graphs;
  struct copse_nccl_model model;
} machines[100];
static int n_machines;

static struct copse_q number(const char *text) {
  struct copse_q q = COPSE_Q_ZERO;
  ck_assert_int_eq(copse_q_parse_decimal(text, &q, NULL), COPSE_OK);
  return q;
}

static void set_graph(struct copse_nccl_graphs *graphs, int id, char *const *f, int pattern) {
  static struct copse_nccl_channel channels[1];
  if (strcmp(f[0], "-") == 0) return;
  graphs->present[id] = true;
  graphs->graph[id] = (struct copse_nccl_graph_search){.id = id,
                                                       .pattern = pattern,
                                                       .n_channels = atoi(f[0]),
                                                       .speed_intra = number(f[1]),
                                                       .speed_inter = number(f[2]),
                                                       .latency_inter = {0, 1},
                                                       .channels = channels};
}

static void set_types(struct copse_nccl_graph_search *g, const char *types) {
  ck_assert(copse_nccl_path_from_name(types, &g->type_intra));
  ck_assert(copse_nccl_path_from_name(strchr(types, '/') + 1, &g->type_inter));
}

/* The least sm of the topology, and whether the CPUs are AMD's. */
static void set_gpus(struct machine *m) {
  char path[200], *text = NULL;
  size_t size;
  snprintf(path, sizeof path, DATA "%s.topo.xml", m->name);
  if (strcmp(m->name, "proj-dgx-a100") == 0) strcpy(path, "topologies/dgx-a100.xml");
  if (strcmp(m->name, "ibm_h100_gx3d") == 0)
    strcpy(path, COPSE_TEST_OUTSIDE "/topologies/ibm_h100_gx3d.xml");
  ck_assert_int_eq(copse_file_read(path, &text, &size, NULL), COPSE_OK);
  m->model.sm = 1000;
  for (char *p = strstr(text, " sm=\""); p; p = strstr(p + 1, " sm=\""))
    if (atoi(p + 5) < m->model.sm) m->model.sm = atoi(p + 5);
  m->model.amd = strstr(text, "AuthenticAMD") != NULL;
  free(text);
}

static bool load_machines(void) {
  n_machines = 0;
  struct table t = open_table("results.tsv");
  char *f[32];
  if (!t.text) return false;
  while (next_row(&t, f)) {
    struct machine *m = &machines[n_machines++];
    snprintf(m->name, sizeof m->name, "%s", f[0]);
    m->hosts = atoi(f[2]);
    int nodes = strcmp(f[19], "-") == 0 ? m->hosts : atoi(f[19]);
    set_graph(&m->graphs, COPSE_NCCL_RING, &f[5], 4);
    set_graph(&m->graphs, COPSE_NCCL_TREE, &f[12], atoi(f[11]));
    set_graph(&m->graphs, COPSE_NCCL_NVLS, &f[16], 5);
    set_types(&m->graphs.graph[COPSE_NCCL_RING], f[8]);
    set_types(&m->graphs.graph[COPSE_NCCL_TREE], f[15]);
    m->graphs.graph[COPSE_NCCL_RING].same_channels = f[10][0] == '1';
    m->model = (struct copse_nccl_model){
        .graphs = &m->graphs, .nodes = nodes, .ranks = nodes * atoi(f[3]), .channels = atoi(f[20])};
    set_gpus(m);
  }
  free(t.text);
  return true;
}

static struct machine *find_machine(const char *name, int hosts) {
  for (int i = 0; i < n_machines; i++)
    if (strcmp(machines[i].name, name) == 0 && machines[i].hosts == hosts) return &machines[i];
  ck_abort_msg("no %s on %d hosts", name, hosts);
  return NULL;
}

/* ---- comparisons
 * --------------------------------------------------------------------------------- */

static bool is_modelled(int algorithm, int nodes) {
  return algorithm <= COPSE_TUNER_RING || (algorithm == COPSE_TUNER_NVLS && nodes == 1) ||
         (algorithm == COPSE_TUNER_NVLS_TREE && nodes > 1);
}

START_TEST(latencies_and_bandwidths_are_nccl_s) {
  if (!load_machines()) COPSE_SKIP("no " DATA);
  static bool seen[100][COPSE_TUNER_N_COLLECTIVES][COPSE_TUNER_N_ALGORITHMS][3];
  struct table t = open_table("tuning.tsv");
  char *f[32];
  int rows = 0;
  while (next_row(&t, f)) {
    struct machine *m = find_machine(f[0], atoi(f[1]));
    int collective = number_in(f[2], copse_tuner_collectives, COPSE_TUNER_N_COLLECTIVES);
    int algorithm = number_in(f[3], copse_tuner_algorithms, COPSE_TUNER_N_ALGORITHMS);
    int protocol = number_in(f[4], copse_tuner_protocols, 3);
    if (!is_modelled(algorithm, m->model.nodes)) continue;
    struct copse_nccl_cost c = copse_nccl_model_cost(&m->model, collective, algorithm, protocol);
    double latency = atof(f[5]), bw = atof(f[6]);
    ck_assert_msg(fabs(c.latency_us - latency) < 0.051 && fabs(c.GBps - bw) < 0.001 * bw + 0.001,
                  "%s on %s, %s %s %s: %g us %g GB/s, NCCL has %s %s", f[0], f[1], f[2], f[3], f[4],
                  c.latency_us, c.GBps, f[5], f[6]);
    seen[m - machines][collective][algorithm][protocol] = true;
    rows++;
  }
  ck_assert_int_gt(rows, 1200);
  /* and it has none that NCCL has not */
  for (int i = 0; i < n_machines; i++)
    for (int k = 0; k < COPSE_TUNER_N_COLLECTIVES * COPSE_TUNER_N_ALGORITHMS * 3; k++) {
      int c = k / 3 / COPSE_TUNER_N_ALGORITHMS, a = k / 3 % COPSE_TUNER_N_ALGORITHMS, p = k % 3;
      if (strcmp(machines[i].name, "gb200-nvl72") == 0 && machines[i].hosts > 1) continue;
      bool there = copse_nccl_model_cost(&machines[i].model, c, a, p).GBps > 0;
      ck_assert_msg(!there || seen[i][c][a][p], "%s on %d: %s %s %s", machines[i].name,
                    machines[i].hosts, copse_tuner_collectives[c], copse_tuner_algorithms[a],
                    copse_tuner_protocols[p]);
    }
  free(t.text);
}
END_TEST

START_TEST(choices_and_their_times_are_nccl_s) {
  if (!load_machines()) COPSE_SKIP("no " DATA);
  struct table t = open_table("picks.tsv");
  char *f[32];
  int rows = 0;
  while (next_row(&t, f)) {
    struct machine *m = find_machine(f[0], atoi(f[1]));
    int algorithm = number_in(f[3], copse_tuner_algorithms, COPSE_TUNER_N_ALGORITHMS);
    int protocol = number_in(f[4], copse_tuner_protocols, 3);
    uint64_t bytes = strtoull(f[2], NULL, 10);
    if (!is_modelled(algorithm, m->model.nodes)) continue;
    double us = copse_nccl_model_us(&m->model, COPSE_TUNER_ALLREDUCE, algorithm, protocol, bytes);
    ck_assert_msg(fabs(us - atof(f[5])) < 0.002 * us, "%s on %s, %s bytes, %s %s: %g, NCCL has %s",
                  f[0], f[1], f[2], f[3], f[4], us, f[5]);
    for (int k = 0; k < COPSE_TUNER_N_ALGORITHMS * 3; k++)
      ck_assert_msg(
          us <= 1.002 * copse_nccl_model_us(&m->model, COPSE_TUNER_ALLREDUCE, k / 3, k % 3, bytes),
          "%s on %s, %s bytes: not %s %s but %s %s", f[0], f[1], f[2], f[3], f[4],
          copse_tuner_algorithms[k / 3], copse_tuner_protocols[k % 3]);
    rows++;
  }
  ck_assert_int_gt(rows, 1700);
  free(t.text);
}
END_TEST

/* By hand, from NCCL's formulas: eight GPUs on NVSwitch. */
START_TEST(a_ring_of_eight_is_as_by_hand) {
  static struct copse_nccl_channel channels[1];
  struct copse_nccl_graphs graphs = {0};
  graphs.present[COPSE_NCCL_RING] = true;
  graphs.graph[COPSE_NCCL_RING] =
      (struct copse_nccl_graph_search){.n_channels = 12,
                                       .pattern = 4,
                                       .speed_intra = {20, 1},
                                       .speed_inter = {20, 1},
                                       .latency_inter = {0, 1},
                                       .type_intra = COPSE_NCCL_PATH_NVL,
                                       .channels = channels};
  struct copse_nccl_model model = {
      .graphs = &graphs, .nodes = 1, .ranks = 8, .sm = 80, .channels = 24};
  struct copse_nccl_cost c =
      copse_nccl_model_cost(&model, COPSE_TUNER_ALLREDUCE, COPSE_TUNER_RING, COPSE_TUNER_SIMPLE);
  ck_assert_double_eq_tol(c.GBps, 12 * 20 * 8 / 14.0, 1e-9);
  ck_assert_double_eq_tol(c.latency_us, 8.4 + 14 * 3.4, 1e-9);
  c = copse_nccl_model_cost(&model, COPSE_TUNER_ALLGATHER, COPSE_TUNER_RING, COPSE_TUNER_SIMPLE);
  ck_assert_double_eq_tol(c.GBps, 12 * 20 * 8 / 7.0, 1e-9);
  c = copse_nccl_model_cost(&model, COPSE_TUNER_BROADCAST, COPSE_TUNER_RING, COPSE_TUNER_SIMPLE);
  ck_assert_double_eq_tol(c.GBps, 12 * 20, 1e-9);
  model.links[COPSE_NCCL_RING] = 120; /* the links allow half */
  c = copse_nccl_model_cost(&model, COPSE_TUNER_ALLREDUCE, COPSE_TUNER_RING, COPSE_TUNER_SIMPLE);
  ck_assert_double_eq_tol(c.GBps, 120 * 8 / 14.0, 1e-9);
  ck_assert(isinf(copse_nccl_model_us(&model, COPSE_TUNER_ALLREDUCE, COPSE_TUNER_TREE, 0, 64)));
  ck_assert(isinf(copse_nccl_model_us(&model, COPSE_TUNER_ALLREDUCE, COPSE_TUNER_PAT, 2, 64)));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("tune/model");
  TCase *t = tcase_create("model");
  tcase_add_test(t, latencies_and_bandwidths_are_nccl_s);
  tcase_add_test(t, choices_and_their_times_are_nccl_s);
  tcase_add_test(t, a_ring_of_eight_is_as_by_hand);
  suite_add_tcase(suite, t);
  return copse_test_run(suite);
}
