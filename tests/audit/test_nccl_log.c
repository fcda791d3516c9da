/* NCCL's logs: communicators, rings, trees, graphs, transports and choices of several versions, and
 * text that is cut, mixed or not NCCL's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "nccl/log.h"
#include "support/support.h"

static char notes_seen[4096];

static void take_note(void *ctx, const char *text) {
  (void)ctx;
  size_t used = strlen(notes_seen);
  snprintf(notes_seen + used, sizeof notes_seen - used, "%s\n", text);
}

static void read_text(const char *text, size_t size, struct copse_nccl_log *log) {
  struct copse_err err = COPSE_ERR_INIT;
  const struct copse_notes notes = {take_note, NULL};
  notes_seen[0] = '\0';
  ASSERT_OK(copse_nccl_log_open(log, &err), &err);
  ASSERT_OK(copse_nccl_log_add(log, text, size, &err), &err);
  ASSERT_OK(copse_nccl_log_finish(log, "l", &notes, &err), &err);
}

/* The file's text, with a NUL behind it; free it. */
static void read_file(const char *name, struct copse_nccl_log *log) {
  size_t size = 0;
  char *data = copse_test_load(copse_test_data(name), &size);
  read_text(data, size, log);
  free(data); /* nothing points into it */
}

/* A ring as "0 3 2 1", "cut" where it isn't whole. */
static const char *ring_text(const struct copse_log_comm *comm, int channel) {
  static char text[1024];
  for (int i = 0; i < comm->n_rings; i++) {
    if (comm->rings[i].channel != channel) continue;
    if (!comm->rings[i].order) return "cut";
    text[0] = '\0';
    for (int r = 0; r < comm->n_ranks; r++)
      sprintf(text + strlen(text), "%s%d", r ? " " : "", comm->rings[i].order[r]);
    return text;
  }
  return "none";
}

/* A rank's place in a tree as NCCL prints it: "1/-1/-1->0->-1". */
static const char *tree_text(const struct copse_log_comm *comm, int channel, int rank) {
  static char text[64];
  for (int i = 0; i < comm->n_trees; i++) {
    const struct copse_log_tree *t = &comm->trees[i];
    if (t->channel != channel || t->rank != rank) continue;
    snprintf(text, sizeof text, "%d/%d/%d->%d->%d", t->down[0], t->down[1], t->down[2], t->rank,
             t->up);
    return text;
  }
  return "none";
}

START_TEST(a_log_without_init_start) {
  struct copse_nccl_log log;
  read_file("nccl/nccl-2.18.1.log", &log);
  ck_assert_int_eq(log.n_comms, 1);
  const struct copse_log_comm *c = &log.comms[0];
  ck_assert_str_eq(c->id, "0x6f1d2c9b");
  ck_assert_str_eq(c->version, "2.18.1+cuda12.1");
  ck_assert_int_eq(c->n_ranks, 2);
  ck_assert_int_eq(c->n_known, 2);
  ck_assert_int_eq(c->n_channels, 2);
  ck_assert_str_eq(c->ranks[1].host, "node-a");
  ck_assert_int_eq(c->ranks[1].pid, 4121);
  ck_assert_uint_eq(c->ranks[1].bus, 0x43000);
  ck_assert_int_eq(c->ranks[1].cuda_dev, 1);
  ck_assert_int_eq(c->ranks[1].nvml_dev, -1);
  ck_assert_str_eq(ring_text(c, 1), "0 1");
  ck_assert_str_eq(tree_text(c, 1, 1), "0/-1/-1->1->-1");
  ck_assert_int_eq(c->n_edges, 4);
  ck_assert_int_eq(c->edges[0].via, COPSE_VIA_P2P);
  ck_assert_str_eq(c->edges[0].net, "P2P/IPC/read");
  ck_assert_int_eq(c->edges[3].via, COPSE_VIA_SHM);
  ck_assert_int_eq(c->edges[3].connection, -1);
  ck_assert_int_eq(log.n_nics, 1);
  ck_assert_str_eq(log.nics[0].net, "Socket");
  ck_assert_int_eq(log.n_cut + log.n_foreign + log.n_unowned, 0);
  ck_assert_str_eq(notes_seen, "");
  copse_nccl_log_free(&log);
}
END_TEST

static void expect_edge(const struct copse_log_edge *e, enum copse_log_via via, const char *net,
                        int dev, int proxy, bool receive, bool gdr) {
  ck_assert_int_eq(e->via, via);
  ck_assert_str_eq(e->net, net);
  ck_assert_int_eq(e->net_dev, dev);
  ck_assert_int_eq(e->proxy, proxy);
  ck_assert_int_eq(e->receive, receive);
  ck_assert_int_eq(e->gdr, gdr);
}

START_TEST(two_hosts_under_a_launcher) {
  struct copse_nccl_log log;
  read_file("nccl/nccl-2.20.5-2hosts.log", &log);
  ck_assert_int_eq(log.n_comms, 1);
  const struct copse_log_comm *c = &log.comms[0];
  ck_assert_str_eq(c->id, "0x77");
  ck_assert_str_eq(c->version, "2.20.5+cuda12.4");
  ck_assert_int_eq(c->n_hosts, 2);
  ck_assert_int_eq(c->n_channels, 2);
  ck_assert_str_eq(c->ranks[2].host, "node-b");
  ck_assert_str_eq(ring_text(c, 0), "0 1 2 3");
  ck_assert_str_eq(ring_text(c, 1), "0 1 3 2"); /* its Channel line is cut: by Ring lines */
  ck_assert_str_eq(tree_text(c, 0, 2), "3/-1/-1->2->0");
  ck_assert_int_eq(c->n_edges, 6);
  expect_edge(&c->edges[1], COPSE_VIA_NET, "IB", 0, 0, false, true);
  expect_edge(&c->edges[2], COPSE_VIA_NET, "AWS Libfabric", 1, -1, true, false);
  expect_edge(&c->edges[4], COPSE_VIA_INDIRECT, "P2P/indirect/2[0]", -1, -1, false, false);
  ck_assert_int_eq(c->edges[4].connection, 1);
  expect_edge(&c->edges[5], COPSE_VIA_COLLNET, "SHARP", 2, -1, false, true);
  ck_assert_int_eq(c->n_graphs, 1);
  const struct copse_log_graph *g = &c->graphs[0];
  ck_assert_int_eq(g->pattern, 4);
  ck_assert_int_eq(g->n_listed, 1);
  ck_assert_int_eq(g->n_hops[0], 4);
  ck_assert(g->channels[0][0].is_net && g->channels[0][0].id == 1);
  ck_assert(!g->channels[0][2].is_net && g->channels[0][2].id == 1 &&
            g->channels[0][2].system == -1);
  ck_assert_str_eq(g->type_inter, "PIX");
  ck_assert(copse_q_eq(g->bw_intra, (struct copse_q){12, 1}));
  copse_nccl_log_free(&log);
}
END_TEST

START_TEST(choices_nics_and_settings) {
  struct copse_nccl_log log;
  read_file("nccl/nccl-2.20.5-2hosts.log", &log);
  const struct copse_log_comm *c = &log.comms[0];
  ck_assert_int_eq(c->n_picks, 1);
  ck_assert_str_eq(c->picks[0].algorithm, "RING");
  ck_assert_str_eq(c->picks[0].protocol, "LL");
  ck_assert_int_eq(c->picks[0].times, 2);
  ck_assert(copse_q_eq(c->picks[0].time_us, (struct copse_q){161, 4}));
  ck_assert_int_eq(log.n_nics, 3);
  ck_assert_str_eq(log.nics[1].name, "mlx5_1:1");
  ck_assert_str_eq(log.nics[1].link, "RoCE");
  ck_assert_str_eq(log.nics[2].host, "node-b");
  ck_assert_int_eq(log.n_settings, 1);
  ck_assert_str_eq(log.settings[0].text, "NCCL_ALGO=RING");
  ck_assert_int_eq(log.n_foreign, 1);
  ck_assert_ptr_nonnull(strstr(notes_seen, "1 of 36 lines are not of NCCL"));
  copse_nccl_log_free(&log);
}
END_TEST

START_TEST(splits_threads_and_cut_lines) {
  struct copse_nccl_log log;
  read_file("nccl/nccl-2.29-split.log", &log);
  ck_assert_int_eq(log.n_comms, 4); /* the first, two splits of one rank each, one of two */
  ck_assert_str_eq(log.comms[0].id, "0x9");
  const struct copse_log_comm *c = &log.comms[1];
  ck_assert_str_eq(c->id, "a split of 0x9, color 5");
  ck_assert_int_eq(c->n_known, 2);
  ck_assert_int_eq(c->ranks[0].pid, 11);
  ck_assert_str_eq(ring_text(c, 0), "0 1");
  ck_assert_int_eq(c->n_edges, 1); /* by a thread that no line names: rank 1 of node-a:10 is here */
  ck_assert_int_eq(log.comms[2].n_ranks, 1);
  ck_assert_int_eq(log.n_warnings, 1);
  ck_assert_int_eq(log.warnings[0].times, 2);
  ck_assert_str_eq(log.warnings[0].text, "Call to ibv_reg_mr failed");
  ck_assert_int_eq(log.n_cut, 1);
  ck_assert_int_eq(log.comms[2].n_rings, 1); /* the line behind the cut one is whole */
  ck_assert_int_eq(log.comms[0].n_picks, 1);
  ck_assert_int_eq(log.comms[0].picks[0].channels, 24);
  copse_nccl_log_free(&log);
}
END_TEST

START_TEST(rings_by_connections_where_lists_are_cut) {
  COPSE_AT_END(copse_free_at) char *text = calloc(1, 1 << 16);
  struct copse_nccl_log log;
  int n = 40; /* more than the 20 that 2.22 prints */
  for (int r = 0; r < n; r++)
    sprintf(text + strlen(text),
            "h:%d:1 [0] NCCL INFO comm 0xa rank %d nranks %d cudaDev 0 nvmlDev 0 busId 1000 commId "
            "0x5 - Init START\n",
            100 + r, r, n);
  strcat(text, "h:100:1 [0] NCCL INFO Channel 00/01 :    0   7  14\n");
  for (int r = 0; r < n; r++)
    sprintf(text + strlen(text),
            "h:%d:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] via P2P/IPC\n"
            "h:%d:1 [0] NCCL INFO Connected all rings\n"
            "h:%d:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] via P2P/IPC\n",
            100 + r, r, (r + 7) % n, 100 + r, 100 + r, r, (r + 1) % n); /* the last: a tree's */
  read_text(text, strlen(text), &log);
  ck_assert_int_eq(log.n_comms, 1);
  ck_assert_ptr_nonnull(log.comms[0].rings[0].order);
  for (int i = 0; i < n; i++) ck_assert_int_eq(log.comms[0].rings[0].order[i], i * 7 % n);
  copse_nccl_log_free(&log);
  char *line = strstr(text, "h:105:1 [0] NCCL INFO Channel");
  memset(line, 'x', 20); /* one connection less: the ring is not known */
  read_text(text, strlen(text), &log);
  ck_assert_str_eq(ring_text(&log.comms[0], 0), "cut");
  ck_assert_ptr_nonnull(strstr(notes_seen, "the rings of 1 of 1 channels are not in the log"));
  copse_nccl_log_free(&log);
}
END_TEST

/* Two communicators of a process, connected at the first call by threads that name neither: ranks
 * tell them apart, also where a thread's number comes again. */
START_TEST(rings_connected_by_other_threads) {
  static const char start[] =
      "h:%d:%d [0] NCCL INFO ncclCommInitRank comm 0x%s rank %d nranks 2 cudaDev 0 nvmlDev 0 busId "
      "1000 commId 0x%s - Init START\n";
  static const char edge[] = "h:%d:9 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] via P2P/CUMEM\n";
  char text[4096] = "";
  struct copse_nccl_log log;
  for (int r = 0; r < 2; r++) {
    sprintf(text + strlen(text), start, 10 + r, 1, "a", r, "5");
    sprintf(text + strlen(text), start, 10 + r, 2, "b", 1 - r, "6");
  }
  for (int r = 0; r < 2; r++)
    for (int second = 0; second < 2; second++) { /* thread 9 of each process connects both */
      int rank = second ? 1 - r : r;
      sprintf(text + strlen(text), edge, 10 + r, rank, 1 - rank);
      sprintf(text + strlen(text), "h:%d:9 [0] NCCL INFO Connected all rings\n", 10 + r);
      sprintf(text + strlen(text), edge, 10 + r, rank, 1 - rank);
    }
  read_text(text, strlen(text), &log);
  ck_assert_int_eq(log.n_comms, 2);
  for (int c = 0; c < 2; c++) {
    ck_assert_int_eq(log.comms[c].n_edges, 4);
    ck_assert_str_eq(ring_text(&log.comms[c], 0), "0 1");
  }
  ck_assert_int_eq(log.n_unowned, 0);
  copse_nccl_log_free(&log);
}
END_TEST

START_TEST(trees_that_nccl_cut_lose_the_last) {
  COPSE_AT_END(copse_free_at) char *text = calloc(1, 4096);
  struct copse_nccl_log log;
  strcpy(text,
         "h:1:1 [0] NCCL INFO comm 0xa rank 100 nranks 200 cudaDev 0 busId 1000 commId 0x5 - "
         "Init START\nh:1:1 [0] NCCL INFO Trees");
  size_t start = strlen(text) - strlen("Trees");
  for (int c = 0; c < 64; c++) sprintf(text + strlen(text), " [%d] 101/-1/-1->100->199", c);
  text[start + 1022] = '\0';
  read_text(text, strlen(text), &log);
  ck_assert_int_eq(log.n_cut, 1);
  for (int c = 0; c < log.comms[0].n_trees; c++)
    ck_assert_str_eq(tree_text(&log.comms[0], c, 100), "101/-1/-1->100->199");
  ck_assert_int_gt(log.comms[0].n_trees, 30);
  copse_nccl_log_free(&log);
}
END_TEST

static const char *const samples[] = {"nccl/nccl-2.18.1.log", "nccl/nccl-2.20.5-2hosts.log",
                                      "nccl/nccl-2.29-split.log"};

/* Every ring that is given is a permutation that begins at 0. */
static void check_rings(const struct copse_nccl_log *log) {
  for (int c = 0; c < log->n_comms; c++)
    for (int i = 0; i < log->comms[c].n_rings; i++) {
      const int *order = log->comms[c].rings[i].order;
      for (int r = 0; order && r < log->comms[c].n_ranks; r++)
        ck_assert(order[r] >= 0 && order[r] < log->comms[c].n_ranks);
    }
}

START_TEST(a_log_that_ends_anywhere) {
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *data = copse_test_load(copse_test_data(samples[_i]), &size);
  struct copse_nccl_log log;
  for (size_t end = 0; end <= size; end += 1 + end % 3) {
    read_text(data, end, &log);
    check_rings(&log);
    copse_nccl_log_free(&log);
  }
}
END_TEST

START_TEST(damaged_logs_are_read) {
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *data = copse_test_load(copse_test_data(samples[_i]), &size);
  COPSE_AT_END(copse_free_at) char *text = malloc(size);
  uint64_t state = 5 + (uint64_t)_i;
  struct copse_nccl_log log;
  for (int round = 0; round < 300; round++) {
    memcpy(text, data, size);
    for (int k = 0; k < 1 + round % 20; k++) {
      size_t at = copse_test_random(&state) % size, from = copse_test_random(&state) % size;
      size_t n = copse_test_random(&state) % 40;
      if (round % 3 == 0)
        text[at] = (char)copse_test_random(&state);
      else if (round % 3 == 1)
        text[at] = "0123456789-/[]: \n"[copse_test_random(&state) % 17];
      else
        memmove(text + at, data + from, at + n < size && from + n < size ? n : 0);
    }
    read_text(text, size, &log);
    check_rings(&log);
    copse_nccl_log_free(&log);
  }
}
END_TEST

/* RCCL names the communicator behind most messages; srun and torchrun mark lines. */
START_TEST(rccl_and_other_launchers) {
  static const char text[] =
      "0: n:1:1 [0] NCCL INFO RCCL version 2.21.5+hip6.3 HEAD:0123456\n"
      "[rank0]:n:1:1 [0] NCCL INFO comm 0xa rank 0 nranks 2 cudaDev 0 busId c1000 commId 0x5 "
      "localSize 280 used 0 - Init START\n"
      "1: n:2:2 [1] NCCL INFO comm 0xb rank 1 nranks 2 cudaDev 1 busId c6000 commId 0x5 - Init "
      "START\n"
      "0: n:1:1 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1 comm 0xa nRanks 02 busId c1000\n"
      "1: n:2:2 [1] NCCL INFO Ring 00 : 0 -> 1 -> 0 comm 0xb nRanks 02 busId c6000\n"
      "0: n:1:1 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1 comm 0xa nRanks 02 "
      "busId c1000\n"
      "0: n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0xa nRanks 02\n"
      "0: n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/3/GDRDMA comm 0xa "
      "nRanks 02\n";
  struct copse_nccl_log log;
  read_text(text, strlen(text), &log);
  ck_assert_int_eq(log.n_comms, 1);
  const struct copse_log_comm *c = &log.comms[0];
  ck_assert_str_eq(c->version, "2.21.5+hip6.3");
  ck_assert_int_eq(c->n_known, 2);
  ck_assert_str_eq(ring_text(c, 0), "0 1");
  ck_assert_str_eq(tree_text(c, 1, 0), "-1/-1/-1->0->1");
  ck_assert_str_eq(c->edges[0].net, "P2P/IPC");
  expect_edge(&c->edges[1], COPSE_VIA_NET, "IB", 3, -1, false, true);
  ck_assert_int_eq(log.n_cut + log.n_foreign + log.n_unowned, 0);
  copse_nccl_log_free(&log);
}
END_TEST

START_TEST(numbers_beyond_all_limits) {
  static const char *const lines[] = {
      "h:1:1 [0] NCCL INFO comm 0xa rank 1 nranks 99999999999 cudaDev 0 busId 1 - Init START",
      "h:1:1 [0] NCCL INFO comm 0xa rank 4000000 nranks 4194304 cudaDev 0 busId 1 - Init START",
      "h:1:1 [0] NCCL INFO comm 0xa rank 7 nranks 2 cudaDev 0 busId 1 - Init START",
      "h:1:1 [0] NCCL INFO Ring 4095 : 0 -> 2147483647 -> 3",
      "h:1:1 [0] NCCL INFO Ring 99999 : 0 -> 1 -> 3",
      "h:99999999999999999999:1 [0] NCCL INFO Ring 0 : 0 -> 1 -> 3",
      "h:1:1 [0] NCCL INFO Trees [0] 1/-1/-1->0->99999999999",
      "h:1:1 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2147483646, bw 1e300/1, type X, "
      "sameChannels 0",
      "h:1:1 [0] NCCL INFO  0 : GPU/99999999999999999999",
      "NCCL INFO",
      "::: NCCL INFO NCCL INFO NCCL WARN",
      "h:1:1 [0] NCCL WARN"};
  char text[4096] = "";
  struct copse_nccl_log log;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    strcat(text, lines[i]);
    strcat(text, "\n");
    read_text(text, strlen(text), &log);
    check_rings(&log);
    copse_nccl_log_free(&log);
  }
}
END_TEST

/* The sample logs beside the checkout: rings and trees are those of NCCL's own joining. */
START_TEST(shared_logs) {
  static const struct {
    const char *path;
    int ranks, hosts, channels, edges, graphs;
    const char *ring0, *tree3;
  } logs[] = {{COPSE_TEST_OUTSIDE "/nccl/logs/nccl-2.22.3-a100x16.log", 16, 2, 16, 608, 0,
               "0 7 6 5 4 3 2 1 8 15 14 13 12 11 10 9", "4/-1/-1->3->2"},
              {COPSE_TEST_OUTSIDE "/nccl/logs/nccl-2.30.7-h100x8.log", 8, 1, 24, 192, 24,
               "0 1 2 3 4 5 6 7", "4/-1/-1->3->2"}};
  struct copse_nccl_log log;
  size_t size = 0;
  if (access(logs[_i].path, R_OK) != 0) COPSE_SKIP("no %s", logs[_i].path);
  COPSE_AT_END(copse_free_at) char *data = copse_test_load(logs[_i].path, &size);
  read_text(data, size, &log);
  ck_assert_int_eq(log.n_comms, 1);
  ck_assert_str_eq(notes_seen, "");
  const struct copse_log_comm *c = &log.comms[0];
  ck_assert_int_eq(c->n_known, logs[_i].ranks);
  ck_assert_int_eq(c->n_hosts, logs[_i].hosts);
  ck_assert_int_eq(c->n_channels, logs[_i].channels);
  ck_assert_int_eq(c->n_rings, logs[_i].channels);
  ck_assert_int_eq(c->n_trees, logs[_i].channels * logs[_i].ranks);
  ck_assert_int_eq(c->n_edges, logs[_i].edges);
  ck_assert_int_eq(c->n_graphs, logs[_i].graphs);
  ck_assert_str_eq(ring_text(c, 0), logs[_i].ring0);
  ck_assert_str_eq(tree_text(c, 0, 3), logs[_i].tree3);
  copse_nccl_log_free(&log);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("audit/nccl_log");
  TCase *all = tcase_create("logs");
  tcase_set_timeout(all, 120);
  tcase_add_test(all, a_log_without_init_start);
  tcase_add_test(all, two_hosts_under_a_launcher);
  tcase_add_test(all, choices_nics_and_settings);
  tcase_add_test(all, splits_threads_and_cut_lines);
  tcase_add_test(all, rings_by_connections_where_lists_are_cut);
  tcase_add_test(all, rings_connected_by_other_threads);
  tcase_add_test(all, trees_that_nccl_cut_lose_the_last);
  tcase_add_loop_test(all, a_log_that_ends_anywhere, 0, 3);
  tcase_add_loop_test(all, damaged_logs_are_read, 0, 3);
  tcase_add_test(all, rccl_and_other_launchers);
  tcase_add_test(all, numbers_beyond_all_limits);
  tcase_add_loop_test(all, shared_logs, 0, 2);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
