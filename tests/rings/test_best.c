/*
 * The best rings and chains of machines: what their channels load is judged by nccl/judge, which
 * joins them over hosts as NCCL does and knows nothing of how they were found; they are no slower
 * than NCCL's own; their certificates are verified, and changed ones refused.
 */
#include "nccl/best.h"

#include "audit/nccl_files.h"
#include "nccl/judge.h"
#include "topology/modify.h"
#include "verify/rings.h"
#include "verify/ways.h"

#define MACHINES 64

static struct copse_topology *load_named(const char *name) {
  static const char *const folders[] = {"topologies", NULL};
  struct copse_topology_options options = {.catalogue = folders};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_load(name, &options, &t, &err), &err);
  return t;
}

/* The time of an allreduce that the judge finds for a graph. */
static struct copse_q judged(struct copse_nccl_machine *machine,
                             const struct copse_nccl_graphs *const *graphs, int n_graphs,
                             enum copse_nccl_graph_id id) {
  struct copse_nccl_judge judge;
  struct copse_nccl_verdict verdict;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_judge_open("best", graphs, n_graphs, machine, &judge, &err), &err);
  ASSERT_OK(copse_nccl_judge(&judge, id, COPSE_ALLREDUCE, 0, &verdict, &err), &err);
  copse_nccl_judge_close(&judge);
  return verdict.links_time;
}

/* Rings of n * s: 2 (N - 1) / N over that; chains: 1 over it. */
static void expect_judged(const struct copse_topology *topology,
                          const struct copse_nccl_best *best) {
  int ranks = best->n_ranks;
  struct copse_nccl_machine machine;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_q ring, chain, part = {2 * (ranks - 1), ranks};
  ASSERT_OK(copse_q_make(part.num, part.den, &part, &err), &err);
  ASSERT_OK(copse_q_div(part, best->ring.GBps, &ring, &err), &err);
  ASSERT_OK(copse_q_div(COPSE_Q_ONE, best->chain.GBps, &chain, &err), &err);
  ASSERT_OK(copse_nccl_machine_open(topology, &machine, &err), &err);
  struct copse_q by_rings = judged(&machine, best->graphs, best->n_hosts, COPSE_NCCL_RING);
  struct copse_q by_chains = judged(&machine, best->graphs, best->n_hosts, COPSE_NCCL_TREE);
  ck_assert_msg(copse_q_eq(by_rings, ring), "%s: rings take %s, not %s", topology->name,
                COPSE_Q_STRING(by_rings), COPSE_Q_STRING(ring));
  ck_assert_msg(copse_q_eq(by_chains, chain), "%s: chains take %s, not %s", topology->name,
                COPSE_Q_STRING(by_chains), COPSE_Q_STRING(chain));
  copse_nccl_machine_free(&machine);
}

static void expect_verified(const struct copse_topology *topology,
                            const struct copse_nccl_best *best) {
  struct copse_verify_rings_report report;
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  ASSERT_OK(copse_nccl_best_to_json(best, topology, &text, &size, &err), &err);
  ASSERT_OK(copse_verify_rings("best", text, size, topology, &report, &err), &err);
  ck_assert(report.same_topology);
  ck_assert(copse_q_eq(report.rings.bound, best->ring.bound));
  ck_assert(copse_q_eq(report.chains.bound, best->chain.bound));
  free(text);
}

static void expect_best(struct copse_topology *topology) {
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_best_find(topology, &(struct copse_nccl_best_options){0}, &best, &err),
            &err);
  expect_judged(topology, &best);
  expect_verified(topology, &best);
  copse_nccl_best_free(&best);
  copse_topology_free(topology);
}

/* Direct links, switches, PCIe, GPUs that relay, clusters with rails and without. No network with
 * narrow places: rings are found as if NICs were the only ones. */
static const char *const named[] = {"dgx1-v100",    "dgx1-p100",    "pcie-8-2s",  "frontier-node",
                                    "mi300x-8",     "ring-8",       "alps-node",  "a100-x2",
                                    "pcie-8-x2",    "dgx1-v100-x2", "aws-p4d-x4", "gb200-nvl72",
                                    "torus-a100-x4"};
#define N_NAMED ((int)(sizeof named / sizeof *named))

START_TEST(catalogue_machines_are_judged_and_verified_alike) { expect_best(load_named(named[_i])); }
END_TEST

/* A NIC beside one GPU of three: rings come in there, and no pairs that are mirrors of each other
 * exist. The NIC limits them. */
START_TEST(one_nic_beside_one_gpu_is_enough) {
  static const char text[] =
      "{'format': 'copse-topology/1', 'name': 'one', 'nodes': [{'id': 'g0', 'type': 'gpu'}, "
      "{'id': 'g1', 'type': 'gpu'}, {'id': 'g2', 'type': 'gpu'}, {'id': 's', 'type': 'nvswitch'}, "
      "{'id': 'n', 'type': 'nic'}], 'links': [{'src': 'g0', 'dst': 's', 'bandwidth': 300}, "
      "{'src': 'g1', 'dst': 's', 'bandwidth': 300}, {'src': 'g2', 'dst': 's', 'bandwidth': 300}, "
      "{'src': 'g0', 'dst': 'n', 'bandwidth': 25}]}";
  char quoted[sizeof text];
  for (size_t i = 0; i < sizeof text; i++) quoted[i] = text[i] == '\'' ? '"' : text[i];
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *host, *all;
  struct copse_nccl_best best;
  ASSERT_OK(copse_topology_parse("one", quoted, strlen(quoted), &(struct copse_topology_options){0},
                                 &host, &err),
            &err);
  for (int hosts = 2; hosts <= 3; hosts++) {
    ASSERT_OK(copse_nccl_repeat_host(host, hosts, &all, &err), &err);
    ASSERT_OK(copse_nccl_best_find(all, &(struct copse_nccl_best_options){0}, &best, &err), &err);
    ck_assert(copse_q_eq(best.ring.GBps, (struct copse_q){25, 1}));
    copse_nccl_best_free(&best);
    expect_best(all);
  }
  copse_topology_free(host);
}
END_TEST

START_TEST(own_machines_on_several_hosts_are_judged_and_verified_alike) {
  static const int hosts[] = {1, 2, 3, 4, 5};
  char names[MACHINES][64];
  int n = list_machines(OWN_MACHINES, names, MACHINES);
  ck_assert_int_gt(n, 3);
  for (int i = 0; i < n; i++)
    if (hosts[_i] == 1 || strncmp(names[i], "turin", 5) != 0) /* which has no NIC */
      expect_best(load_machine(OWN_MACHINES, names[i], hosts[_i]));
}
END_TEST

/* ---- ways ------------------------------------------------------------------------------------ */

/* One way, found by what searches and by what verifies: the same links, parts, width and type. */
static void expect_same_way(struct copse_nccl_machine *machine, struct copse_verify_ways *ways,
                            int from, int to) {
  const struct copse_nccl_route *route;
  const struct copse_verify_way *way;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_find_route(machine, from, to, &route, &err), &err);
  ASSERT_OK(copse_verify_find_way(ways, from, to, &way, &err), &err);
  ck_assert_int_eq(route->n_hops, way->n);
  ck_assert_int_eq((int)route->type, way->type);
  ck_assert(copse_q_eq(route->width, way->width));
  for (int i = 0; i < way->n; i++) {
    int at = 0;
    while (at < route->n_hops && route->hops[at].link != way->links[i]) at++;
    ck_assert_int_lt(at, route->n_hops);
    ck_assert(copse_q_eq(route->hops[at].share, way->parts[i]));
  }
}

static void expect_same_ways(struct copse_topology *t) {
  struct copse_nccl_machine m;
  struct copse_verify_ways ways;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_machine_open(t, &m, &err), &err);
  ASSERT_OK(copse_verify_ways_open(t, &ways, &err), &err);
  ck_assert_int_eq(m.n_hosts, ways.n_hosts);
  for (int r = 0; r < t->n_ranks; r++) {
    int host = m.host_of_rank[r], node = t->rank_nodes[r];
    ck_assert_int_eq(host, ways.host[node]);
    for (int i = m.first[host]; i < m.first[host + 1]; i++)
      expect_same_way(&m, &ways, node, t->rank_nodes[m.members[i]]);
    ck_assert_int_eq(m.first_port[host + 1], ways.first_nic[host + 1]);
    for (int p = m.first_port[host]; p < m.first_port[host + 1]; p++) {
      const struct copse_nccl_route *first, *last;
      const struct copse_verify_way *ahead, *rest;
      int relay;
      ck_assert_int_eq(m.ports[p].node, ways.nics[p]);
      ck_assert_int_eq(m.ports[p].shared, ways.shared[p]);
      for (int q = m.first_port[host]; q < p; q++)
        ck_assert((m.ports[p].rail == m.ports[q].rail) == (ways.rail[p] == ways.rail[q]));
      expect_same_way(&m, &ways, node, ways.nics[p]);
      expect_same_way(&m, &ways, ways.nics[p], node);
      ASSERT_OK(copse_nccl_find_way_out(&m, r, p, &relay, &first, &last, &err), &err);
      ASSERT_OK(copse_verify_find_way_out(&ways, node, ways.nics[p], &ahead, &rest, &err), &err);
      ck_assert((first != NULL) == (ahead != NULL));
      ck_assert_int_eq(first ? first->hops[0].link : -1, ahead ? ahead->links[0] : -1);
      ck_assert_int_eq(last->hops[0].link, rest->links[0]);
    }
  }
  copse_verify_ways_free(&ways);
  copse_nccl_machine_free(&m);
  copse_topology_free(t);
}

START_TEST(named_ways_are_found_alike) { expect_same_ways(load_named(named[_i])); }
END_TEST

START_TEST(own_machines_ways_are_found_alike) {
  static const char *const folders[] = {OWN_MACHINES, "schedules/nccl"};
  char names[MACHINES][64];
  for (int k = 0; k < 2; k++) {
    int n = list_machines(folders[k], names, MACHINES);
    ck_assert_int_gt(n, 3);
    for (int i = 0; i < n; i++)
      for (int hosts = 1; hosts <= 2; hosts++)
        if (hosts == 1 || strncmp(names[i], "turin", 5) != 0) /* which has no NIC */
          expect_same_ways(load_machine(folders[k], names[i], hosts));
  }
}
END_TEST

/* What machines seldom have: C2C alone between GPUs, a NIC with a cable in one direction, nodes of
 * type "net" beside "nic", a GPU three links of NVLink away, links in one direction, NICs of a rail that
 * only some hosts have, a cable from NIC to NIC, NVLink between hosts. */
static const char *const odd[] = {
    "{'id': 'a', 'type': 'gpu'}, {'id': 'b', 'type': 'gpu'}, {'id': 'c', 'type': 'cpu'}, {'id': 'n', 'type': 'nic'}|"
    "{'src': 'a', 'dst': 'c', 'bandwidth': 200}, {'src': 'b', 'dst': 'c', 'bandwidth': 96}, "
    "{'src': 'c', 'dst': 'n', 'bandwidth': 25}",
    "{'id': 'a', 'type': 'gpu'}, {'id': 'b', 'type': 'gpu'}, {'id': 'c', 'type': 'cpu'}, {'id': 'n', 'type': 'nic'}|"
    "{'src': 'a', 'dst': 'c', 'bandwidth': 200}, {'src': 'b', 'dst': 'c', 'bandwidth': 97}, "
    "{'src': 'c', 'dst': 'n', 'bandwidth': 25}",
    "{'id': 'a', 'type': 'gpu'}, {'id': 'b', 'type': 'gpu'}, {'id': 'c', 'type': 'gpu'}, {'id': 'd', 'type': 'gpu'}, {'id': 'n', 'type': 'nic'}, "
    "{'id': 'm', 'type': 'net'}|{'src': 'a', 'dst': 'b', 'bandwidth': 3}, "
    "{'src': 'b', 'dst': 'c', 'bandwidth': 2}, {'src': 'c', 'dst': 'd', 'bandwidth': 1}, "
    "{'src': 'd', 'dst': 'n', 'bandwidth': 1}, {'src': 'n', 'dst': 'm', 'bandwidth': 1}, "
    "{'src': 'a', 'dst': 'd', 'bandwidth': 1, 'duplex': false}",
    "{'id': 'h0.a', 'type': 'gpu'}, {'id': 'h0.n', 'type': 'nic'}, {'id': 'h0.o', 'type': 'nic'}, {'id': 'h1.a', 'type': 'gpu'}, "
    "{'id': 'h1.n', 'type': 'nic'}, {'id': 'h1.o', 'type': 'nic'}, {'id': 's', 'type': 'switch'}, "
    "{'id': 'r', 'type': 'switch'}|{'src': 'h0.a', 'dst': 'h0.n', 'bandwidth': 1}, "
    "{'src': 'h0.a', 'dst': 'h0.o', 'bandwidth': 1}, {'src': 'h1.a', 'dst': 'h1.n', 'bandwidth': 1}, "
    "{'src': 'h1.a', 'dst': 'h1.o', 'bandwidth': 1}, {'src': 'h0.n', 'dst': 's', 'bandwidth': 1}, "
    "{'src': 'h1.n', 'dst': 's', 'bandwidth': 1}, {'src': 'h0.o', 'dst': 'r', 'bandwidth': 1}, "
    "{'src': 'h1.o', 'dst': 'r', 'bandwidth': 1, 'duplex': false}",
    "{'id': 'h0.a', 'type': 'gpu'}, {'id': 'h0.n', 'type': 'nic'}, {'id': 'h1.a', 'type': 'gpu'}, "
    "{'id': 'h1.n', 'type': 'nic'}|{'src': 'h0.a', 'dst': 'h0.n', 'bandwidth': 1}, "
    "{'src': 'h1.a', 'dst': 'h1.n', 'bandwidth': 1}, {'src': 'h0.n', 'dst': 'h1.n', 'bandwidth': 1}",
    "{'id': 'h0.a', 'type': 'gpu'}, {'id': 'h0.n', 'type': 'nic'}, {'id': 'h1.a', 'type': 'gpu'}|"
    "{'src': 'h0.a', 'dst': 'h0.n', 'bandwidth': 1}, {'src': 'h0.a', 'dst': 'h1.a', 'bandwidth': 1}",
    "{'id': 'h0.a', 'type': 'gpu'}, {'id': 'h0.p', 'type': 'pcie'}, {'id': 'h1.b', 'type': 'gpu'}, "
    "{'id': 's', 'type': 'nvswitch'}|{'src': 'h0.a', 'dst': 's', 'bandwidth': 1}, "
    "{'src': 's', 'dst': 'h1.b', 'bandwidth': 1, 'duplex': false}, "
    "{'src': 'h0.a', 'dst': 'h0.p', 'bandwidth': 1}, {'src': 'h0.p', 'dst': 'h1.b', 'bandwidth': 1}",
    "{'id': 'a', 'type': 'gpu', 'gdr': false}, {'id': 'b', 'type': 'gpu'}, {'id': 'p', 'type': 'pcie'}, {'id': 'c', 'type': 'cpu'}, "
    "{'id': 'd', 'type': 'cpu'}, {'id': 'n', 'type': 'nic'}, {'id': 'o', 'type': 'nic', 'gdr': false}|"
    "{'src': 'a', 'dst': 'b', 'bandwidth': 50}, {'src': 'a', 'dst': 'p', 'bandwidth': 12}, "
    "{'src': 'b', 'dst': 'p', 'bandwidth': 24}, {'src': 'n', 'dst': 'p', 'bandwidth': 24}, "
    "{'src': 'o', 'dst': 'p', 'bandwidth': 24}, {'src': 'p', 'dst': 'd', 'bandwidth': 24}, "
    "{'src': 'd', 'dst': 'c', 'bandwidth': 40}",
    "{'id': 'a', 'type': 'gpu', 'gdr': false}, {'id': 'b', 'type': 'gpu'}, {'id': 'p', 'type': 'pcie'}, {'id': 'c', 'type': 'cpu'}, "
    "{'id': 'n', 'type': 'nic'}|{'src': 'a', 'dst': 'c', 'bandwidth': 400}, {'src': 'b', 'dst': 'c', 'bandwidth': 24}, "
    "{'src': 'a', 'dst': 'p', 'bandwidth': 24}, {'src': 'n', 'dst': 'p', 'bandwidth': 24}, "
    "{'src': 'p', 'dst': 'c', 'bandwidth': 24}"};

/* Of nodes and links of copse-topology/1, with ' for ". */
static void expect_same_ways_of(const char *nodes, int n_nodes, const char *links) {
  struct copse_text text = {0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  copse_text_add(&text, "{'format': 'copse-topology/1', 'name': 'odd', 'nodes': [%.*s], 'links': [%s]}",
                 n_nodes, nodes, links);
  for (size_t i = 0; i < text.size; i++)
    if (text.data[i] == '\'') text.data[i] = '"';
  ASSERT_OK(copse_topology_parse("odd", text.data, text.size, &(struct copse_topology_options){0}, &t,
                                 &err),
            &err);
  copse_text_free(&text);
  expect_same_ways(t);
}

START_TEST(odd_ways_are_found_alike) {
  const char *bar = strchr(odd[_i], '|');
  expect_same_ways_of(odd[_i], (int)(bar - odd[_i]), bar + 1);
}
END_TEST

/* Any nodes joined anyhow: many ways of unlike types, lengths and widths. */
START_TEST(random_ways_are_found_alike) {
  static const char *const types[] = {"gpu", "gpu", "gpu", "pcie", "pcie", "cpu", "nvswitch", "nic"};
  static const int widths[] = {1, 1, 2, 50, 96, 97, 200};
  uint64_t state = 77 + (uint64_t)_i;
  struct copse_text nodes = {0}, links = {0};
  bool joined[14][14] = {{false}};
  for (int v = 0; v < 14; v++) {
    const char *type = types[v < 3 ? 0 : v == 3 ? 7 : copse_random_below(&state, 8)];
    copse_text_add(&nodes, "%s{'id': 'v%d', 'type': '%s'}", v > 0 ? ", " : "", v, type);
    for (int k = 0; v > 0 && k < 3; k++) { /* the first keeps all in one piece */
      int other = copse_random_below(&state, v);
      if (joined[v][other]) continue;
      joined[v][other] = true;
      bool turned = k > 0 && copse_random_below(&state, 2) == 1;
      copse_text_add(&links, "%s{'src': 'v%d', 'dst': 'v%d', 'bandwidth': %d, 'duplex': %s}",
                     v > 1 || k > 0 ? ", " : "", turned ? other : v, turned ? v : other,
                     widths[copse_random_below(&state, 7)],
                     k > 0 && copse_random_below(&state, 4) == 0 ? "false" : "true");
    }
  }
  expect_same_ways_of(nodes.data, (int)nodes.size, links.data);
  copse_text_free(&nodes);
  copse_text_free(&links);
}
END_TEST

/* Two GPUs and a NIC at one PCIe switch: NCCL 2.30.7 itself, without GPUDirect RDMA at the NIC (or
 * at a GPU), goes up to the CPU and down again, and says PHB. */
START_TEST(without_gpudirect_data_pass_the_cpu) {
  bool at_gpu = _i & 1, at_nic = _i & 2;
  struct copse_text text = {0};
  struct copse_nccl_machine m;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  const char *pci = "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"";
  copse_text_add(&text,
                 "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
                 "familyid=\"143\" modelid=\"49\"><pci busid=\"0000:01:00.0\" class=\"0x060400\" %s>",
                 pci);
  for (int g = 0; g < 2; g++)
    copse_text_add(&text,
                   "<pci busid=\"0000:1%d:00.0\" class=\"0x030200\" %s><gpu dev=\"%d\" sm=\"80\" "
                   "rank=\"%d\" gdr=\"%d\"/></pci>",
                   g, pci, g, g, g == 0 && at_gpu ? 0 : 1);
  copse_text_add(&text,
                 "<pci busid=\"0000:20:00.0\" class=\"0x020700\" %s><nic><net name=\"n\" dev=\"0\" "
                 "speed=\"100000\" port=\"1\" gdr=\"%d\"/></nic></pci></pci></cpu></system>",
                 pci, at_nic ? 0 : 1);
  const struct copse_topology_options options = {.links = COPSE_LINKS_ALL};
  ASSERT_OK(copse_topology_parse("two.xml", text.data, text.size, &options, &t, &err), &err);
  ASSERT_OK(copse_nccl_machine_open(t, &m, &err), &err);
  for (int r = 0; r < 2; r++)
    for (int outward = 0; outward < 2; outward++) {
      const struct copse_nccl_route *route;
      int gpu = t->rank_nodes[r], port = m.ports[0].node;
      bool staged = at_nic || (at_gpu && r == 0);
      ASSERT_OK(copse_nccl_find_route(&m, outward ? gpu : port, outward ? port : gpu, &route, &err),
                &err);
      ck_assert_int_eq(route->type, staged ? COPSE_NCCL_PATH_PHB : COPSE_NCCL_PATH_PIX);
      ck_assert_int_eq(route->n_hops, staged ? 5 : 3); /* GPU, switch, (CPU, switch,) NIC, port */
    }
  copse_nccl_machine_free(&m);
  copse_text_free(&text);
  expect_same_ways(t);
}
END_TEST

/*
 * Two sockets, each with a PCIe switch, two GPUs and two NICs; all GPUs at an NVSwitch. Over which GPUs
 * NCCL 2.30.7 itself sends (PXN): each NIC belongs to one GPU of its switch. Where a socket's NICs are slower
 * than the way over the sockets to the others' they belong to none, and are not sent to by way of any.
 */
START_TEST(nccl_sends_by_these_relays) {
  static const int relays[3][4][4] = {
      {{-1, -1, 2, 3}, {-1, -1, 2, 3}, {0, 1, -1, -1}, {0, 1, -1, -1}},
      {{-1, -1, -1, -1}, {-1, -1, -1, -1}, {0, 1, -1, -1}, {0, 1, -1, -1}},
      {{-1, -1, 2, -1}, {-1, -1, 2, -1}, {0, 1, -1, -1}, {0, 1, -1, -1}}};
  struct copse_text text = {0};
  struct copse_nccl_machine m;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  copse_text_add(&text, "<system version=\"1\">");
  for (int c = 0; c < 2; c++) {
    copse_text_add(&text,
                   "<cpu numaid=\"%d\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
                   "modelid=\"85\"><pci busid=\"0000:%d0:00.0\" class=\"0x060400\" "
                   "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">",
                   c, c + 1);
    for (int g = 0; g < 2; g++)
      copse_text_add(&text,
                     "<pci busid=\"0000:%d%d:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
                     "link_width=\"16\"><gpu dev=\"%d\" sm=\"80\" rank=\"%d\" gdr=\"1\"><nvlink "
                     "target=\"0000:05:00.0\" count=\"12\" tclass=\"0x068000\"/></gpu></pci>",
                     c + 1, g + 1, 2 * c + g, 2 * c + g);
    for (int n = 0; n < (_i == 2 && c == 1 ? 1 : 2); n++)
      copse_text_add(&text,
                     "<pci busid=\"0000:%d%d:00.0\" class=\"0x020700\" link_speed=\"%s GT/s PCIe\" "
                     "link_width=\"%d\"><nic><net name=\"n%d\" dev=\"%d\" speed=\"200000\" "
                     "port=\"1\" guid=\"0x%d\" gdr=\"1\"/></nic></pci>",
                     c + 1, n + 5, _i == 1 && c == 1 ? "8.0" : "32.0", _i == 1 && c == 1 ? 4 : 16,
                     2 * c + n, 2 * c + n, 2 * c + n + 1);
    copse_text_add(&text, "</pci></cpu>");
  }
  copse_text_add(&text, "</system>");
  const struct copse_topology_options options = {.links = COPSE_LINKS_ALL};
  ASSERT_OK(copse_topology_parse("relays.xml", text.data, text.size, &options, &t, &err), &err);
  ASSERT_OK(copse_nccl_machine_open(t, &m, &err), &err);
  ck_assert_int_eq(m.n_ports, _i == 2 ? 3 : 4);
  for (int r = 0; r < 4; r++)
    for (int p = 0; p < m.n_ports; p++) {
      const struct copse_nccl_route *first, *last;
      int relay;
      ASSERT_OK(copse_nccl_find_way_out(&m, r, p, &relay, &first, &last, &err), &err);
      ck_assert_int_eq(relay, relays[_i][r][p]);
    }
  copse_nccl_machine_free(&m);
  copse_text_free(&text);
  expect_same_ways(t);
}
END_TEST

/*
 * What NCCL 2.30.7 itself finds on these four GPUs: NVLink over another GPU goes before one PCIe
 * switch; of the GPUs between, that counts to which the end has its widest link, of equals the first.
 */
START_TEST(nccl_takes_these_ways) {
  static const struct {
    int a, b, count;
  } links[] = {{0, 1, 1}, {0, 2, 1}, {1, 3, 2}, {2, 3, 1}};
  static const int over[4][4] = {{-1, -1, -1, 1}, {-1, -1, 0, -1}, {-1, 3, -1, -1}, {1, -1, -1, -1}};
  struct copse_text text = {0};
  struct copse_nccl_machine m;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  copse_text_add(&text,
                 "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
                 "familyid=\"143\" modelid=\"49\"><pci busid=\"0000:01:00.0\" class=\"0x060400\" "
                 "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">");
  for (int g = 0; g < 4; g++) {
    copse_text_add(&text,
                   "<pci busid=\"0000:1%d:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
                   "link_width=\"16\"><gpu dev=\"%d\" sm=\"80\" rank=\"%d\" gdr=\"1\">",
                   g, g, g);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
      if (links[i].a == g || links[i].b == g)
        copse_text_add(&text, "<nvlink target=\"0000:1%d:00.0\" count=\"%d\" tclass=\"0x030200\"/>",
                       links[i].a == g ? links[i].b : links[i].a, links[i].count);
    copse_text_add(&text, "</gpu></pci>");
  }
  copse_text_add(&text, "</pci></cpu></system>");
  const struct copse_topology_options options = {.links = COPSE_LINKS_ALL};
  ASSERT_OK(copse_topology_parse("four.xml", text.data, text.size, &options, &t, &err), &err);
  ASSERT_OK(copse_nccl_machine_open(t, &m, &err), &err);
  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 4; b++) {
      const struct copse_nccl_route *route;
      if (over[a][b] < 0) continue;
      ASSERT_OK(copse_nccl_find_route(&m, t->rank_nodes[a], t->rank_nodes[b], &route, &err), &err);
      ck_assert_int_eq(route->type, COPSE_NCCL_PATH_NVB);
      ck_assert_int_eq(route->n_hops, 2);
      ck_assert_int_eq(t->links[route->hops[0].link].src, t->rank_nodes[over[a][b]]);
    }
  copse_nccl_machine_free(&m);
  copse_text_free(&text);
  expect_same_ways(t);
}
END_TEST

/* A GPU at a CPU by C2C, and a card with two ports at the CPU. NCCL 2.30.7 itself has P2C to the wider
 * port, to both where they are alike, and PHB to the other. */
START_TEST(p2c_is_for_the_nearest_ports) {
  static const int speeds[2][2] = {{100000, 200000}, {200000, 200000}};
  struct copse_text text = {0};
  struct copse_nccl_machine m;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t;
  copse_text_add(&text,
                 "<system version=\"1\"><cpu numaid=\"0\" arch=\"arm64\"><pci busid=\"0000:10:00.0\" "
                 "class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" "
                 "sm=\"100\" rank=\"0\" gdr=\"1\"><c2c bw=\"40000\" count=\"10\"/></gpu></pci><pci "
                 "busid=\"0000:20:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
                 "link_width=\"16\"><nic>");
  for (int p = 0; p < 2; p++)
    copse_text_add(&text,
                   "<net name=\"n%d\" dev=\"%d\" speed=\"%d\" port=\"%d\" guid=\"0x1\" gdr=\"1\"/>", p, p,
                   speeds[_i][p], p + 1);
  copse_text_add(&text, "</nic></pci></cpu></system>");
  const struct copse_topology_options options = {.links = COPSE_LINKS_ALL};
  ASSERT_OK(copse_topology_parse("c2c.xml", text.data, text.size, &options, &t, &err), &err);
  ASSERT_OK(copse_nccl_machine_open(t, &m, &err), &err);
  ck_assert_int_eq(m.n_ports, 2);
  for (int p = 0; p < 2; p++) {
    const struct copse_nccl_route *route;
    bool nearest = speeds[_i][p] == 200000;
    ASSERT_OK(copse_nccl_find_route(&m, t->rank_nodes[0], m.ports[p].node, &route, &err), &err);
    ck_assert_int_eq(route->type, nearest ? COPSE_NCCL_PATH_P2C : COPSE_NCCL_PATH_PHB);
  }
  copse_nccl_machine_free(&m);
  copse_text_free(&text);
  expect_same_ways(t);
}
END_TEST

/* Two trays of GB200 that are one host to NCCL: it has no path from a NIC to a GPU of the other tray, so
 * that no channel may come in or go out by one. */
START_TEST(channels_use_nics_of_their_gpus_trays) {
  struct copse_topology *t = load_machine("schedules/nccl", "gb200-mnnvl-2trays", 2);
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_best_find(t, &(struct copse_nccl_best_options){0}, &best, &err), &err);
  ck_assert_int_eq(best.n_hosts, 2);
  for (int id = COPSE_NCCL_RING; id <= COPSE_NCCL_TREE; id++)
    for (int c = 0; c < best.graphs[0]->graph[id].n_channels; c++) {
      const struct copse_nccl_channel *channel = &best.graphs[0]->graph[id].channels[c];
      int pattern = best.graphs[0]->graph[id].pattern;
      int last = id == COPSE_NCCL_RING ? channel->n_gpus - 1 : pattern != 3;
      ck_assert_uint_eq(channel->devs[0] >> 56, channel->nets[0] >> 56);
      ck_assert_uint_eq(channel->devs[last] >> 56, channel->nets[1] >> 56);
    }
  copse_nccl_best_free(&best);
  expect_best(t);
}
END_TEST

/* ---- beside NCCL ------------------------------------------------------------------------------
 */

/* No ring or tree of NCCL's, as far as links allow, beats ours; what it states for its rings is no
 * more than their bound. */
static void expect_no_slower(const char *folder, const char *name, int hosts) {
  struct copse_nccl_graphs theirs = {0};
  struct copse_nccl_machine machine;
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  char path[256];
  if (!machine_file(folder, name, hosts, "graph.xml", path)) return;
  struct copse_topology *t = load_machine(folder, name, hosts);
  if (t->n_ranks / hosts > 1 || hosts > 1) {
    ASSERT_OK(copse_nccl_best_find(t, &(struct copse_nccl_best_options){0}, &best, &err), &err);
    ASSERT_OK(copse_nccl_machine_open(t, &machine, &err), &err);
    ASSERT_OK(copse_nccl_graphs_load(path, NULL, &theirs, &err), &err);
    for (int id = COPSE_NCCL_RING; id <= COPSE_NCCL_TREE; id++) {
      const struct copse_nccl_graphs *all = &theirs;
      struct copse_q time = judged(&machine, &all, 1, (enum copse_nccl_graph_id)id);
      struct copse_q ours =
          judged(&machine, best.graphs, best.n_hosts, (enum copse_nccl_graph_id)id);
      ck_assert_msg(copse_q_cmp(ours, time) <= 0, "%s of %d: graph %d takes %s, NCCL's %s", name,
                    hosts, id, COPSE_Q_STRING(ours), COPSE_Q_STRING(time));
    }
    const struct copse_nccl_graph_search *ring = &theirs.graph[COPSE_NCCL_RING];
    double stated =
        ring->n_channels * copse_q_to_double(hosts > 1 ? ring->speed_inter : ring->speed_intra);
    ck_assert_msg(stated <= copse_q_to_double(best.ring.GBps), "%s of %d: %g, NCCL states %g", name,
                  hosts, copse_q_to_double(best.ring.GBps), stated);
    copse_nccl_graphs_free(&theirs);
    copse_nccl_machine_free(&machine);
    copse_nccl_best_free(&best);
  }
  copse_topology_free(t);
}

START_TEST(rings_and_chains_are_no_slower_than_nccls) {
  static const int hosts[] = {1, 2, 4};
  char names[MACHINES][64];
  const char *folder = _i < 3 ? OWN_MACHINES : SHARED_MACHINES;
  int n = list_machines(folder, names, MACHINES);
  if (n == 0) COPSE_SKIP("%s is not there", folder);
  for (int i = 0; i < n; i++)
    if (COPSE_TEST_SWEEPS || (i + _i) % 3 == 0) expect_no_slower(folder, names[i], hosts[_i % 3]);
}
END_TEST

/* ---- changed certificates ----------------------------------------------------------------------
 */

static copse_status verify_text(const char *text, struct copse_topology *t, struct copse_err *err) {
  struct copse_verify_rings_report report;
  return copse_verify_rings("changed", text, strlen(text), t, &report, err);
}

/* The certificate with the first `from` after `after` replaced; NULL without one. */
static char *replace(const char *text, const char *after, const char *from, const char *to) {
  const char *start = strstr(text, after), *at = start ? strstr(start, from) : NULL;
  if (!at) return NULL;
  char *out = malloc(strlen(text) + strlen(to) + 1);
  ck_assert_ptr_nonnull(out);
  sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return out;
}

static char *certificate(const char *name, struct copse_topology **t) {
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  char *text;
  size_t size;
  *t = load_named(name);
  ASSERT_OK(copse_nccl_best_find(*t, &(struct copse_nccl_best_options){0}, &best, &err), &err);
  ASSERT_OK(copse_nccl_best_to_json(&best, *t, &text, &size, &err), &err);
  copse_nccl_best_free(&best);
  return text;
}

/* In this part of the file; what is said. */
static const struct change {
  const char *name, *after, *from, *to, *said;
} changes[] = {
    {"dgx1-v100", "\"rings\"", "25/2", "13", "are 156, not 150"},
    {"dgx1-v100", "\"rings\"", "\"25/2\", \"GBps\": \"150\"", "\"13\", \"GBps\": \"156\"", "of"},
    {"dgx1-v100", "\"rings\"", "\"gpu0\"", "\"gpu1\"", "twice"},
    {"dgx1-v100", "\"rings\"", "\"gpu0\"", "\"gpu8\"", "no GPU of host 0"},
    {"dgx1-v100", "\"rings\"", "\"gpu0\",", "", "7 of the 8 GPUs"},
    {"dgx1-v100", "\"bound\"", "150", "149", "the bound is 150 GB/s, not 149"},
    {"dgx1-v100", "\"lengths\"", ": 1", ": 0", "length"},
    {"dgx1-v100", "\"lengths\"", ": 1", ": 2", "the bound is"},
    {"dgx1-v100", "\"lengths\"", "gpu", "gpux", "no link"},
    {"dgx1-v100", "\"least\"", "\"1\"", "\"2\"", "has length 1, not 2"},
    {"dgx1-v100", "\"hosts\"", "1", "2", "NICs"},
    {"dgx1-v100", "\"hosts\"", "1", "0", "hosts"},
    {"dgx1-v100", "\"rings\"", "\"crossnic\": 0", "\"crossnic\": 1", "crossnic"},
    {"dgx1-v100", "\"format\"", "copse-rings/1", "copse-rings/2", "copse-rings"},
    {"dgx1-v100-x2", "\"nics\"", "nic1", "nic0", "leaves by another NIC"},
    {"dgx1-v100-x2", "\"nics\"", "\"h0.nic1\",", "", "1 NICs"},
    {"dgx1-v100-x2", "\"hosts\"", "2", "3", "has 2"},
    {"dgx1-v100-x2", "\"rings\"", "h0.gpu", "h1.gpu", "no GPU of host 0"},
    {"dgx1-v100-x2", "\"rings\"", "\"crossnic\": 0", "\"crossnic\": 2", "mirror"},
};

START_TEST(changed_certificates_are_refused) {
  const struct change *c = &changes[_i];
  struct copse_topology *t;
  struct copse_err err = COPSE_ERR_INIT;
  char *text = certificate(c->name, &t), *changed = replace(text, c->after, c->from, c->to);
  ck_assert_msg(changed != NULL, "no %s in\n%s", c->from, text);
  copse_status status = verify_text(changed, t, &err);
  ck_assert_msg(status == COPSE_REFUTED || status == COPSE_BAD_INPUT, "%s -> %s: status %d %s",
                c->from, c->to, (int)status, err.text);
  ck_assert_msg(strstr(err.text, c->said) != NULL, "%s", err.text);
  free(changed);
  free(text);
  copse_topology_free(t);
}
END_TEST

/* The second channel by the NICs of the first one, but not over its GPUs backwards. */
START_TEST(twins_of_the_same_nics_are_refused_if_their_gpus_are_no_mirror) {
  struct copse_topology *t;
  struct copse_err err = COPSE_ERR_INIT;
  char *text = certificate("dgx1-v100-x2", &t);
  char *changed = replace(text, "\"rings\"", "\"crossnic\": 0", "\"crossnic\": 2");
  char *first = strstr(strstr(changed, "\"rings\""), "\"nics\""),
       *second = strstr(first + 1, "\"nics\"");
  size_t n = strcspn(first, "]");
  ck_assert_uint_eq(strcspn(second, "]"), n);
  memcpy(second, first, n);
  ck_assert_int_eq(verify_text(changed, t, &err), COPSE_REFUTED);
  ck_assert_msg(strstr(err.text, "channel 1 is not the mirror") != NULL, "%s", err.text);
  free(changed);
  free(text);
  copse_topology_free(t);
}
END_TEST

/* Any byte changed: refused, or it says the same or less; never a crash. */
START_TEST(damaged_certificates_do_no_harm) {
  struct copse_topology *t;
  char *text = certificate("dgx1-v100-x2", &t);
  size_t size = strlen(text);
  uint64_t state = 7;
  for (int i = 0; i < COPSE_TEST_SOME(300); i++) {
    struct copse_err err = COPSE_ERR_INIT;
    size_t at = (size_t)copse_test_random_int(&state, 0, (int)size - 1);
    char was = text[at];
    text[at] = (char)copse_test_random_int(&state, 1, 127);
    copse_status status = verify_text(text, t, &err);
    ck_assert_int_ne(status, COPSE_INTERNAL);
    ck_assert(status == COPSE_OK || err.text[0] != '\0');
    text[at] = was;
  }
  free(text);
  copse_topology_free(t);
}
END_TEST

/* ---- hosts that differ -------------------------------------------------------------------------
 */

static struct copse_topology *broken(struct copse_topology *whole, const struct copse_fault *faults,
                                     int n) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_break(whole, whole->name, faults, n, &t, &err), &err);
  copse_topology_free(whole);
  return t;
}

/* Two A100 and two H100 hosts: the A100s' NICs are the slowest, and no rings of all can do more
 * than theirs alone. A rail that is down everywhere carries nothing. */
START_TEST(the_slowest_hosts_bound_all) {
  static const struct {
    const char *name, *down;
    int groups, channels;
    struct copse_q GBps;
  } cases[] = {{"mixed-a100-h100", NULL, 2, 16, {200, 1}},
               {"a100-x2", "rail0", 1, 14, {175, 1}},
               {"a100-x2", "h1.nic3", 2, 14, {175, 1}}};
  struct copse_topology *t = load_named(cases[_i].name);
  struct copse_fault fault = {cases[_i].down, COPSE_Q_ZERO};
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  if (fault.what) t = broken(t, &fault, 1);
  ASSERT_OK(copse_nccl_best_find(t, &(struct copse_nccl_best_options){0}, &best, &err), &err);
  ck_assert_int_eq(best.n_groups, cases[_i].groups);
  ck_assert_int_eq(best.ring.n, cases[_i].channels);
  ck_assert(copse_q_eq(best.ring.GBps, cases[_i].GBps));
  ck_assert(copse_q_eq(best.ring.bound, cases[_i].GBps));
  expect_judged(t, &best);
  expect_verified(t, &best);
  copse_nccl_best_free(&best);
  copse_topology_free(t);
}
END_TEST

/* Random parts of random hosts down or slow: judged as joined, verified; or refused because rails
 * are apart, or what is left is not connected. */
START_TEST(hosts_with_random_faults_are_judged_and_verified) {
  static const char *const names[] = {"pcie-8-x2", "dgx1-v100-x2", "a100-x2", "mixed-a100-h100"};
  uint64_t state = (uint64_t)_i + 100;
  struct copse_topology *t = load_named(names[_i % 4]);
  struct copse_fault faults[3];
  char what[3][256];
  int n = copse_test_random_int(&state, 1, 3);
  for (int i = 0; i < n; i++) {
    const struct copse_link *l = &t->links[copse_test_random_int(&state, 0, t->n_links - 1)];
    bool node = copse_test_random_int(&state, 0, 2) == 0;
    snprintf(what[i], sizeof what[i], node ? "%s" : "%s>%s", t->nodes[l->src].id,
             t->nodes[l->dst].id);
    faults[i] = (struct copse_fault){what[i], COPSE_Q_ZERO};
    if (copse_test_random_int(&state, 0, 1) == 0)
      faults[i].left = (struct copse_q){copse_test_random_int(&state, 1, 3), 4};
  }
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  t = broken(t, faults, n);
  copse_status status = copse_nccl_best_find(t, &(struct copse_nccl_best_options){0}, &best, &err);
  copse_nccl_best_free(&best);
  if (status == COPSE_OK) {
    expect_best(t);
    return;
  }
  ck_assert_msg((status == COPSE_UNSUPPORTED && strstr(err.text, "same rails")) ||
                    (status == COPSE_INFEASIBLE && *err.text),
                "%s: %s", t->name, err.text);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("best rings");
  TCase *cases = tcase_create("machines");
  tcase_add_loop_test(cases, catalogue_machines_are_judged_and_verified_alike, 0, N_NAMED);
  tcase_add_test(cases, one_nic_beside_one_gpu_is_enough);
  tcase_add_loop_test(cases, named_ways_are_found_alike, 0, N_NAMED);
  tcase_add_test(cases, own_machines_ways_are_found_alike);
  tcase_add_loop_test(cases, odd_ways_are_found_alike, 0, (int)(sizeof odd / sizeof *odd));
  tcase_add_loop_test(cases, random_ways_are_found_alike, 0, 60);
  tcase_add_test(cases, nccl_takes_these_ways);
  tcase_add_loop_test(cases, without_gpudirect_data_pass_the_cpu, 0, 4);
  tcase_add_loop_test(cases, nccl_sends_by_these_relays, 0, 3);
  tcase_add_loop_test(cases, p2c_is_for_the_nearest_ports, 0, 2);
  tcase_add_test(cases, channels_use_nics_of_their_gpus_trays);
  tcase_add_loop_test(cases, own_machines_on_several_hosts_are_judged_and_verified_alike, 0,
                      COPSE_TEST_UP_TO(5, 3));
  suite_add_tcase(suite, cases);
  cases = tcase_create("certificates");
  tcase_add_loop_test(cases, changed_certificates_are_refused, 0,
                      (int)(sizeof changes / sizeof *changes));
  tcase_add_test(cases, twins_of_the_same_nics_are_refused_if_their_gpus_are_no_mirror);
  tcase_add_test(cases, damaged_certificates_do_no_harm);
  suite_add_tcase(suite, cases);
  cases = tcase_create("hosts that differ");
  tcase_add_loop_test(cases, the_slowest_hosts_bound_all, 0, COPSE_TEST_SWEEPS ? 3 : 2);
  tcase_add_loop_test(cases, hosts_with_random_faults_are_judged_and_verified, 0,
                      COPSE_TEST_SOME(24));
  suite_add_tcase(suite, cases);
  if (COPSE_TEST_RESULTS)
    tcase_add_loop_test(copse_test_plain(suite, 60), rings_and_chains_are_no_slower_than_nccls, 0,
                        6);
  return copse_test_run(suite);
}
