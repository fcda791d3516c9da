/*
 * Graph XML that is written for NCCL, read back by a reader that follows NCCL's own: rings,
 * channels, NICs, speeds and types are those that were meant, and what NCCL would misread is
 * refused.
 */
#include <glob.h>

#include "nccl/graph.h"
#include "tune/nccl_reader.h"

static struct read_graph read_back[5];

/* A graph of random orders of n GPUs; crossnic 2: pairs of mirrored channels. */
static void make_graph(struct copse_nccl_graphs *graphs, int id, int n_gpus, int n_channels,
                       int crossnic, uint64_t *random) {
  struct copse_nccl_graph_search *g = &graphs->graph[id];
  *g = (struct copse_nccl_graph_search){.id = id,
                                        .pattern = id == 0 ? 4 : 1 + id % 3,
                                        .crossnic = crossnic,
                                        .n_channels = n_channels,
                                        .speed_intra = {451, 10},
                                        .speed_inter = {24, 1},
                                        .latency_inter = {0, 1},
                                        .type_intra = COPSE_NCCL_PATH_NVL,
                                        .type_inter = COPSE_NCCL_PATH_PXB};
  graphs->present[id] = true;
  g->channels = copse_arena_alloc(&graphs->arena, (size_t)n_channels, sizeof *g->channels);
  ck_assert_ptr_nonnull(g->channels);
  for (int c = 0; c < n_channels; c++) {
    struct copse_nccl_channel *channel = &g->channels[c];
    *channel = (struct copse_nccl_channel){.n_gpus = n_gpus, .n_nets = 2};
    channel->devs = copse_arena_alloc(&graphs->arena, (size_t)n_gpus, sizeof(uint64_t));
    ck_assert_ptr_nonnull(channel->devs);
    channel->nets[0] = (uint64_t)copse_test_random_int(random, 0, 20);
    channel->nets[1] = crossnic ? channel->nets[0] + 1 : channel->nets[0];
    for (int i = 0; i < n_gpus; i++) channel->devs[i] = (uint64_t)i;
    for (int i = n_gpus - 1; i > 0; i--) {
      int j = copse_test_random_int(random, 0, i);
      uint64_t dev = channel->devs[i];
      channel->devs[i] = channel->devs[j];
      channel->devs[j] = dev;
    }
    if (!crossnic || c % 2 == 0) continue;
    for (int i = 0; i < n_gpus; i++) channel->devs[i] = g->channels[c - 1].devs[n_gpus - 1 - i];
    channel->nets[0] = g->channels[c - 1].nets[1];
    channel->nets[1] = g->channels[c - 1].nets[0];
  }
}

/* What NCCL of that version reads is what was meant. */
static void assert_reads(const struct copse_nccl_graphs *graphs, int hosts, long version) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size = 0;
  ASSERT_OK(copse_nccl_graphs_write(graphs, hosts, version, &text, &size, &err), &err);
  ck_assert_uint_eq(strlen(text), size);
  reader_graphs(text, version, read_back);
  free(text);
  for (int id = 0; id < 5; id++) {
    const struct copse_nccl_graph_search *g = copse_nccl_graph(graphs, id);
    const struct read_graph *r = &read_back[id];
    ck_assert_int_eq(r->there, g != NULL);
    if (!g) continue;
    ck_assert_int_eq(r->n_channels, g->n_channels);
    ck_assert_int_eq(r->pattern, g->pattern);
    ck_assert_int_eq(r->crossnic, hosts > 1 ? g->crossnic : 0);
    ck_assert_float_eq(r->speed_intra, (float)copse_q_to_double(g->speed_intra));
    ck_assert_float_eq(r->speed_inter, (float)copse_q_to_double(g->speed_inter));
    for (int c = 0; c < g->n_channels; c++) {
      for (int i = 0; i < r->n_gpus; i++) ck_assert_uint_eq(r->devs[c][i], g->channels[c].devs[i]);
      ck_assert_int_eq(r->n_nets, hosts > 1 ? 2 : 0);
      for (int i = 0; i < r->n_nets; i++) ck_assert_uint_eq(r->nets[c][i], g->channels[c].nets[i]);
    }
    ck_assert_int_eq(r->n_gpus, id == COPSE_NCCL_NVLS ? 1 : g->channels[0].n_gpus);
  }
}

static void refuses(const struct copse_nccl_graphs *graphs, int hosts, long version,
                    const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size = 0;
  ASSERT_FAILS(copse_nccl_graphs_write(graphs, hosts, version, &text, &size, &err), COPSE_INVALID,
               &err, part);
  ck_assert_ptr_null(text);
}

START_TEST(random_graphs_read_back) {
  uint64_t random = (uint64_t)_i;
  struct copse_nccl_graphs graphs = {0};
  int gpus = copse_test_random_int(&random, 1, 20), pairs = copse_test_random_int(&random, 1, 8);
  int crossnic = copse_test_random_int(&random, 0, 1) * 2;
  make_graph(&graphs, COPSE_NCCL_RING, gpus, 2 * pairs, crossnic, &random);
  make_graph(&graphs, COPSE_NCCL_TREE, gpus, 2 * pairs, 0, &random);
  for (int hosts = 1; hosts < 4; hosts++) {
    assert_reads(&graphs, hosts, 22000);
    assert_reads(&graphs, hosts, 22304);
    assert_reads(&graphs, hosts, 23007);
  }
  copse_nccl_graphs_free(&graphs);
}
END_TEST

START_TEST(domains_of_72_gpus_read_back) {
  uint64_t random = 1;
  struct copse_nccl_graphs graphs = {0};
  for (int id = 0; id < 2; id++) {
    make_graph(&graphs, id, 72, 32, 0, &random);
    for (int c = 0; c < 32; c++)
      for (int i = 0; i < 72; i++) {
        uint64_t *dev = &graphs.graph[id].channels[c].devs[i];
        *dev = copse_nccl_dev(*dev / 4, *dev % 4);
      }
  }
  refuses(&graphs, 2, 22000, "32 channels in graph 0; NCCL 2.20 has room for 16");
  refuses(&graphs, 2, 22800, "elements; NCCL 2.28 reads 4096");
  assert_reads(&graphs, 2, 22907);
  copse_nccl_graphs_free(&graphs);
}
END_TEST

static struct copse_nccl_graphs eight(uint64_t *random) {
  struct copse_nccl_graphs graphs = {0};
  make_graph(&graphs, COPSE_NCCL_RING, 8, 4, 2, random);
  make_graph(&graphs, COPSE_NCCL_TREE, 8, 4, 0, random);
  return graphs;
}

START_TEST(types_become_words_that_the_version_knows) {
  uint64_t random = 2;
  struct copse_nccl_graphs graphs = eight(&random);
  struct copse_nccl_graph_search *ring = &graphs.graph[COPSE_NCCL_RING];
  static const struct {
    enum copse_nccl_path type;
    long version;
    const char *word;
  } cases[] = {
      {COPSE_NCCL_PATH_P2C, 22700, "P2C"}, {COPSE_NCCL_PATH_P2C, 22600, "PXN"},
      {COPSE_NCCL_PATH_C2C, 23007, "PIX"}, {COPSE_NCCL_PATH_DIS, 23007, "SYS"},
      {COPSE_NCCL_PATH_NVB, 22000, "NVB"}, {COPSE_NCCL_PATH_PHB, 22000, "PHB"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ring->type_intra = ring->type_inter = cases[i].type;
    assert_reads(&graphs, 2, cases[i].version);
    ck_assert_str_eq(read_back[0].type_intra, cases[i].word);
    ck_assert_str_eq(read_back[0].type_inter, cases[i].word);
  }
  copse_nccl_graphs_free(&graphs);
}
END_TEST

/* Sets a bit of the system in all numbers of GPUs. */
static void name_systems(struct copse_nccl_graphs *graphs) {
  for (int id = 0; id < 2; id++)
    for (int c = 0; c < 4; c++)
      for (int i = 0; i < 8; i++)
        graphs->graph[id].channels[c].devs[i] |= UINT64_C(1) << COPSE_NCCL_SYSTEM_SHIFT;
}

/* What is refused, of so many hosts and for which version. */
static const struct {
  int hosts;
  long version;
  const char *why;
} misread[] = {
    {2, 23007, "no tree"},
    {2, 23007, "4 rings and 3 trees"},
    {1, 23007, "channel 2 of graph 1 lacks GPU"},
    {1, 23007, "has 7 GPUs"},
    {1, 23007, "twice in a ring"},
    {2, 23007, "has 1 NICs"},
    {2, 23007, "channel 1 is not"},
    {2, 23007, "crossnic 1"},
    {2, 23007, "crossnic 0"},
    {2, 21900, "needs NCCL 2.20"},
    {2, 23007, "pattern 1"},
    {2, 23007, "pattern 0"},
    {2, 23007, "speed"},
    {1, 22000, "need NCCL 2.21"},
};

/* Changes one thing of a good pair of graphs; case 9: nothing. */
static void spoil(struct copse_nccl_graphs *graphs, int which) {
  struct copse_nccl_graph_search *ring = &graphs->graph[0], *tree = &graphs->graph[1];
  switch (which) {
    case 0: graphs->present[1] = false; break;
    case 1: tree->n_channels = 3; break;
    case 2: tree->channels[2].devs[0] = tree->channels[2].devs[1]; break;
    case 3: tree->channels[1].n_gpus = 7; break;
    case 4: ring->channels[0].devs[0] = ring->channels[0].devs[1]; break;
    case 5: tree->channels[0].n_nets = 1; break;
    case 6: ring->channels[1].nets[0]++; break;
    case 7: ring->crossnic = 1; break;
    case 8: ring->crossnic = 0; break;
    case 10: ring->pattern = 1; break;
    case 11: tree->pattern = 0; break;
    case 12: ring->speed_intra = COPSE_Q_ZERO; break;
    case 13: name_systems(graphs); break;
    default: break;
  }
}

START_TEST(what_nccl_would_misread_is_refused) {
  uint64_t random = 3;
  struct copse_nccl_graphs graphs = eight(&random);
  assert_reads(&graphs, 2, 23007);
  spoil(&graphs, _i);
  refuses(&graphs, misread[_i].hosts, misread[_i].version, misread[_i].why);
  copse_nccl_graphs_free(&graphs);
}
END_TEST

/* NCCL's own search exchanges NICs and not always the GPUs at them (one of two below a switch): the
 * odd hosts then send over a NIC far from the GPU. That is not written. */
static bool exchanges_gpus(const struct copse_nccl_graph_search *ring) {
  for (int c = 0; ring->crossnic == 2 && c < ring->n_channels; c += 2) {
    const struct copse_nccl_channel *a = &ring->channels[c], *b = &ring->channels[c + 1];
    if (a->devs[0] != b->devs[b->n_gpus - 1] || a->devs[a->n_gpus - 1] != b->devs[0]) return false;
  }
  return true;
}

/* Every dump of NCCL 2.30.7 that is at hand: what is written of it is what it says. */
START_TEST(dumps_of_nccl_read_back) {
  glob_t files = {0};
  if (glob(COPSE_TEST_OUTSIDE "/nccl/data/*.graph.xml", 0, NULL, &files) != 0)
    COPSE_SKIP("no " COPSE_TEST_OUTSIDE "/nccl/data");
  for (size_t i = 0; i < files.gl_pathc; i++) {
    struct copse_nccl_graphs graphs;
    struct copse_err err = COPSE_ERR_INIT;
    ASSERT_OK(copse_nccl_graphs_load(files.gl_pathv[i], NULL, &graphs, &err), &err);
    if (exchanges_gpus(&graphs.graph[COPSE_NCCL_RING]))
      assert_reads(&graphs, strstr(files.gl_pathv[i], ".1.graph") ? 1 : 4, 23007);
    else
      refuses(&graphs, 4, 23007, "not the one before mirrored");
    copse_nccl_graphs_free(&graphs);
  }
  globfree(&files);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("tune/graph_write");
  TCase *t = tcase_create("graphs");
  tcase_add_loop_test(t, random_graphs_read_back, 0, 20);
  tcase_add_test(t, domains_of_72_gpus_read_back);
  tcase_add_test(t, types_become_words_that_the_version_knows);
  tcase_add_loop_test(t, what_nccl_would_misread_is_refused, 0, 14);
  tcase_add_test(t, dumps_of_nccl_read_back);
  suite_add_tcase(suite, t);
  return copse_test_run(suite);
}
