/*
 * What NCCL's graphs can reach: the channels and speeds are NCCL's own summary's; what links allow
 * is figured by hand, by another finder of routes, and never below what NCCL's search, which counts
 * bandwidths as well, states.
 */
#include "nccl/judge.h"

#include <math.h>

#include "base/file.h"
#include "base/text.h"
#include "base/types.h"
#include "nccl_files.h"
#include "topology/route.h"

struct opened {
  struct copse_topology *t;
  struct copse_nccl_machine machine;
  struct copse_nccl_graphs graphs;
  const struct copse_nccl_graphs *all; /* hosts' */
  struct copse_nccl_judge judge;
};

static void open_machine(struct opened *o, const char *folder, const char *name, int hosts) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[256];
  ck_assert(machine_file(folder, name, hosts, "graph.xml", path));
  o->t = load_machine(folder, name, hosts);
  ASSERT_OK(copse_nccl_machine_open(o->t, &o->machine, &err), &err);
  ASSERT_OK(copse_nccl_graphs_load(path, NULL, &o->graphs, &err), &err);
  o->all = &o->graphs;
  ASSERT_OK(copse_nccl_judge_open(path, &o->all, 1, &o->machine, &o->judge, &err), &err);
}

static void close_machine(struct opened *o) {
  copse_nccl_judge_close(&o->judge);
  copse_nccl_graphs_free(&o->graphs);
  copse_nccl_machine_free(&o->machine);
  copse_topology_free(o->t);
}

static struct copse_nccl_verdict judge(struct opened *o, enum copse_nccl_graph_id algorithm,
                                       copse_collective collective, int root) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_nccl_verdict v;
  ASSERT_OK(copse_nccl_judge(&o->judge, algorithm, collective, root, &v, &err), &err);
  return v;
}

static void expect(const char *name, int hosts, enum copse_nccl_graph_id algorithm,
                   copse_collective collective, const char *time) {
  struct opened o;
  open_machine(&o, OWN_MACHINES, name, hosts);
  struct copse_nccl_verdict v = judge(&o, algorithm, collective, 0);
  ck_assert_msg(strcmp(COPSE_Q_STRING(v.links_time), time) == 0, "%s of %d hosts, %s: %s, not %s",
                name, hosts, copse_nccl_algorithm_name(algorithm), COPSE_Q_STRING(v.links_time),
                time);
  close_machine(&o);
}

/* Sockets at 10 GB/s: a ring crosses them once each way with 7/8 of the data, twice for an
 * allreduce; a chain once each way with all of them. */
START_TEST(sockets_are_figured_by_hand) {
  expect("pcie-8-2s-skl", 1, COPSE_NCCL_RING, COPSE_ALLREDUCE, "7/40");
  expect("pcie-8-2s-skl", 1, COPSE_NCCL_RING, COPSE_ALLGATHER, "7/80");
  expect("pcie-8-2s-skl", 1, COPSE_NCCL_RING, COPSE_REDUCE_SCATTER, "7/80");
  expect("pcie-8-2s-skl", 1, COPSE_NCCL_RING, COPSE_BROADCAST, "1/10");
  expect("pcie-8-2s-skl", 1, COPSE_NCCL_RING, COPSE_REDUCE, "1/10");
  expect("pcie-8-2s-skl", 1, COPSE_NCCL_TREE, COPSE_ALLREDUCE, "1/10");
}
END_TEST

/*
 * NCCL states 2 channels of 10 GB/s on two hosts. On odd hosts a GPU that is not the first of its
 * own channel takes the second NIC: GPU 7 sends over NIC 0 at the other socket, whose link carries
 * both channels then: 30/16 of half the data twice, over 10 GB/s.
 */
START_TEST(a_nic_at_the_wrong_socket_shows) {
  expect("pcie-8-2s-skl", 2, COPSE_NCCL_RING, COPSE_ALLREDUCE, "3/16");
}
END_TEST

/* 5 GPUs with 18 NVLinks of 103/5 GB/s: the switch takes all, and a fifth for the head's part. */
START_TEST(nvls_is_figured_by_hand) {
  expect("h100-5gpu", 1, COPSE_NCCL_NVLS, COPSE_ALLREDUCE, "1/309"); /* 6/5 / (1854/5) */
  expect("h100-5gpu", 1, COPSE_NCCL_RING, COPSE_ALLREDUCE, "4/927"); /* 8/5 / (1854/5) */
  expect("h100-5gpu", 2, COPSE_NCCL_RING, COPSE_ALLREDUCE, "3/400"); /* 18/10 / (5 * 48) */
}
END_TEST

/* Two hosts with this many channels of a CollNet graph in place of none: channel c is all GPUs from
 * GPU c on, which is its head, with NIC c. */
static void expect_collnet(enum copse_nccl_graph_id algorithm, int pattern, int channels,
                           const char *time) {
  static const int devs[] = {0, 2, 3, 5, 6};
  struct opened o;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_text text = {0};
  char path[256], *data;
  size_t size;
  open_machine(&o, OWN_MACHINES, "h100-5gpu", 2);
  copse_nccl_judge_close(&o.judge);
  copse_nccl_graphs_free(&o.graphs);
  ck_assert(machine_file(OWN_MACHINES, "h100-5gpu", 2, "graph.xml", path));
  ASSERT_OK(copse_file_read(path, &data, &size, &err), &err);
  const char *none = strstr(data, "<graph id=\"4\""), *rest = strstr(data, "<graph id=\"3\"");
  copse_text_add(&text, "%.*s<graph id=\"%d\" pattern=\"%d\" crossnic=\"0\" nchannels=\"%d\" ",
                 (int)(none - data), data, algorithm, pattern, channels);
  copse_text_add(&text,
                 "speedintra=\"48\" speedinter=\"48\" latencyinter=\"0\" typeintra=\"NVL\" "
                 "typeinter=\"PIX\" samechannels=\"0\">");
  for (int c = 0; c < channels; c++) {
    copse_text_add(&text, "<channel><net dev=\"%d\"/>", c);
    for (int i = 0; i < 5; i++)
      copse_text_add(&text, "<gpu dev=\"%d\" rank=\"%d\"/>", devs[(c + i) % 5], (c + i) % 5);
    copse_text_add(&text, "<net dev=\"%d\"/></channel>", c);
  }
  copse_text_add(&text, "</graph>%s", rest);
  ASSERT_OK(copse_nccl_graphs_parse(path, text.data, text.size, NULL, &o.graphs, &err), &err);
  ASSERT_OK(copse_nccl_judge_open(path, &o.all, 1, &o.machine, &o.judge, &err), &err);
  struct copse_nccl_verdict v = judge(&o, algorithm, COPSE_ALLREDUCE, 0);
  ck_assert_str_eq(COPSE_Q_STRING(v.links_time), time);
  copse_text_free(&text);
  free(data);
  close_machine(&o);
}

/*
 * A head's part goes over its NIC at 48 GB/s, to the switch of the network and back. 5 heads: a
 * GPU's NVLinks (1854/5 GB/s) carry a fifth to each of 4 heads and a fifth of the sum to each of 4
 * GPUs, or a fifth to each of 8 neighbours in 5 chains: 8/5, longer than a fifth takes on a NIC.
 * 2 heads: half of the data over each one's NIC, longer than at most 5/2 over its NVLinks.
 */
START_TEST(collnet_is_figured_by_hand) {
  expect_collnet(COPSE_NCCL_COLLNET_DIRECT, COPSE_NCCL_PATTERN_COLLNET_DIRECT, 5, "4/927");
  expect_collnet(COPSE_NCCL_COLLNET_DIRECT, COPSE_NCCL_PATTERN_COLLNET_DIRECT, 2, "1/96");
  expect_collnet(COPSE_NCCL_COLLNET_CHAIN, COPSE_NCCL_PATTERN_TREE, 5, "4/927");
  expect_collnet(COPSE_NCCL_COLLNET_CHAIN, COPSE_NCCL_PATTERN_TREE, 2, "1/96");
}
END_TEST

/* A ring's load, by the routes that baselines take. */
static void check_by_routes(struct opened *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_routes routes = {0};
  struct copse_hosts hosts;
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(&o->graphs, COPSE_NCCL_RING);
  int n = o->t->n_ranks;
  double *load = calloc((size_t)o->t->n_links, sizeof *load), worst = 0;
  ASSERT_OK(copse_hosts_find(o->t, &hosts, &err), &err);
  if (hosts.n_hosts > 1) { /* trays of one domain: those routes stay inside of a tray */
    copse_hosts_free(&hosts);
    free(load);
    return;
  }
  ASSERT_OK(copse_routes_find(o->t, &hosts, 1, true, &routes, &err), &err);
  for (int c = 0; c < ring->n_channels; c++)
    for (int i = 0; i < n; i++) {
      int a = copse_nccl_find_rank(&o->machine, 0, ring->channels[c].devs[i]), length;
      int b = copse_nccl_find_rank(&o->machine, 0, ring->channels[c].devs[(i + 1) % n]);
      const int *route = copse_route(&routes, a, b, &length);
      for (int k = 0; k + 1 < length; k++)
        load[copse_topology_find_link(o->t, route[k], route[k + 1])] +=
            2.0 * (n - 1) / n / ring->n_channels;
    }
  for (int i = 0; i < o->t->n_links; i++)
    worst = fmax(worst, load[i] / copse_q_to_double(o->t->links[i].bandwidth));
  struct copse_nccl_verdict v = judge(o, COPSE_NCCL_RING, COPSE_ALLREDUCE, 0);
  ck_assert_msg(fabs(worst - copse_q_to_double(v.links_time)) <= 1e-9 * worst, "%s: %g, not %s",
                o->t->name, worst, COPSE_Q_STRING(v.links_time));
  copse_routes_free(&routes);
  copse_hosts_free(&hosts);
  free(load);
}

/* Rings of crossnic 2 whose pairs are not mirrored: the NIC changes sides (above). */
static bool pairs_are_mirrored(const struct copse_nccl_graph_search *ring) {
  for (int c = 0; ring->crossnic == 2 && c + 1 < ring->n_channels; c += 2) {
    const struct copse_nccl_channel *a = &ring->channels[c], *b = &ring->channels[c + 1];
    if (a->devs[0] != b->devs[b->n_gpus - 1] || b->devs[0] != a->devs[a->n_gpus - 1]) return false;
  }
  return true;
}

/* What the search found, it counted: the links allow it, except that trees' parts for the way up
 * and NVLS over more hosts are counted in another way. */
static int check_folder(const char *folder) {
  static char names[256][64];
  int n = list_machines(folder, names, 256), checked = 0;
  for (int i = 0; i < n; i++)
    for (int hosts = 1; hosts <= 4; hosts *= 2) {
      struct opened o;
      char path[256];
      if (strncmp(names[i], "gb200-nvl72", 11) == 0 && hosts > 1) continue;
      if (!machine_file(folder, names[i], hosts, "graph.xml", path)) continue;
      open_machine(&o, folder, names[i], hosts);
      if (hosts == 1) check_by_routes(&o);
      const struct copse_nccl_graph_search *ring = copse_nccl_graph(&o.graphs, COPSE_NCCL_RING);
      for (int a = 0; a < COPSE_NCCL_GRAPHS; a++) {
        enum copse_nccl_graph_id algorithm = (enum copse_nccl_graph_id)a;
        if (!copse_nccl_judge_has(&o.judge, algorithm, COPSE_ALLREDUCE)) continue;
        struct copse_nccl_verdict v = judge(&o, algorithm, COPSE_ALLREDUCE, 0);
        bool mirrored = algorithm != COPSE_NCCL_RING || pairs_are_mirrored(ring);
        ck_assert_msg((copse_q_cmp(v.links_time, v.stated_time) <= 0) == mirrored,
                      "%s of %d hosts, %s: links allow %s, stated is %s", names[i], hosts,
                      copse_nccl_algorithm_name(algorithm), COPSE_Q_STRING(v.links_time),
                      COPSE_Q_STRING(v.stated_time));
      }
      checked++;
      close_machine(&o);
    }
  return checked;
}

START_TEST(what_is_stated_fits_the_links) { ck_assert_int_ge(check_folder(OWN_MACHINES), 6); }
END_TEST

START_TEST(all_that_is_stated_fits_the_links) {
  if (access(SHARED_MACHINES, R_OK) != 0) COPSE_SKIP("no %s", SHARED_MACHINES);
  ck_assert_int_ge(check_folder(SHARED_MACHINES), 70);
}
END_TEST

/* The summary of NCCL's search: channels, and the sum of their speeds as bus bandwidth. */
START_TEST(the_summary_is_met) {
  FILE *file = fopen(SHARED_MACHINES "/results.tsv", "r");
  if (!file) COPSE_SKIP("no %s/results.tsv", SHARED_MACHINES);
  char line[512], name[64], crossnic[8], same[8], type[32];
  int hosts, gpus, nics, channels, checked = 0;
  double intra, inter;
  while (fgets(line, sizeof line, file)) {
    char path[256];
    if (sscanf(line, "%63s shared %d %d %d %d %lf %lf %31s %7s %7s", name, &hosts, &gpus, &nics,
               &channels, &intra, &inter, type, crossnic, same) != 10)
      continue;
    snprintf(path, sizeof path, "%s/%s.topo.xml", SHARED_MACHINES, name);
    if (access(path, R_OK) != 0 || gpus * hosts < 2) continue;
    if (strncmp(name, "gb200-nvl72", 11) == 0 && hosts > 1) continue; /* a second of joining */
    struct opened o;
    open_machine(&o, SHARED_MACHINES, name, hosts);
    struct copse_nccl_verdict v = judge(&o, COPSE_NCCL_RING, COPSE_ALLREDUCE, 0);
    double busbw = copse_collective_bus_factor(COPSE_ALLREDUCE, o.t->n_ranks) /
                   copse_q_to_double(v.stated_time);
    double sum = channels * (hosts > 1 ? inter : intra);
    ck_assert_int_eq(copse_nccl_graph(&o.graphs, COPSE_NCCL_RING)->n_channels, channels);
    ck_assert_int_eq(o.t->n_ranks, gpus * hosts);
    ck_assert_msg(fabs(busbw - sum) < 1e-9 * sum, "%s of %d hosts: %g, not %g", name, hosts, busbw,
                  sum);
    checked++;
    close_machine(&o);
  }
  fclose(file);
  ck_assert_int_ge(checked, 70);
}
END_TEST

/* Ring or tree for 8 GiB, as NCCL 2.30.7's own code chose them. */
START_TEST(the_choice_is_nccls) {
  FILE *file = fopen(SHARED_MACHINES "/picks.tsv", "r");
  if (!file) COPSE_SKIP("no %s/picks.tsv", SHARED_MACHINES);
  char line[512], name[64], algorithm[32];
  int hosts, checked = 0;
  while (fgets(line, sizeof line, file)) {
    char path[256];
    struct copse_err err = COPSE_ERR_INIT;
    struct opened o;
    struct copse_nccl_verdict v;
    if (sscanf(line, "%63s %d 8589934592 %31s", name, &hosts, algorithm) != 3) continue;
    snprintf(path, sizeof path, "%s/%s.topo.xml", SHARED_MACHINES, name);
    if (access(path, R_OK) != 0 || strncmp(algorithm, "NVLS", 4) == 0) continue;
    open_machine(&o, SHARED_MACHINES, name, hosts);
    ASSERT_OK(copse_nccl_judge_choice(&o.judge, COPSE_ALLREDUCE, &v, &err), &err);
    ck_assert_msg(strcmp(copse_nccl_algorithm_name(v.algorithm), algorithm) == 0,
                  "%s of %d hosts: %s, not %s", name, hosts, copse_nccl_algorithm_name(v.algorithm),
                  algorithm);
    checked++;
    close_machine(&o);
  }
  fclose(file);
  ck_assert_int_ge(checked, 50);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("judge");
  TCase *by_hand = tcase_create("by hand"), *machines = tcase_create("machines");
  tcase_add_test(by_hand, sockets_are_figured_by_hand);
  tcase_add_test(by_hand, a_nic_at_the_wrong_socket_shows);
  tcase_add_test(by_hand, nvls_is_figured_by_hand);
  tcase_add_test(by_hand, collnet_is_figured_by_hand);
  tcase_add_test(machines, what_is_stated_fits_the_links);
  tcase_add_test(machines, all_that_is_stated_fits_the_links);
  tcase_add_test(machines, the_summary_is_met);
  tcase_add_test(machines, the_choice_is_nccls);
  suite_add_tcase(suite, by_hand);
  suite_add_tcase(suite, machines);
  return copse_test_run(suite);
}
