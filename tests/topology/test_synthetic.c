/* Synthetic one-liners. */
#include "helpers.h"
#include "topology/modify.h"

static struct copse_topology *make(const char *spec) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(copse_topology_synthetic(spec, NULL, &t, &err), &err);
  ck_assert_str_eq(t->name, spec);
  return t;
}

/* Nodes, ranks and one-way links, and the sum of bandwidths, worked out by hand. */
static const struct {
  const char *spec;
  int nodes, ranks, links;
  const char *total;
} sizes[] = {
    {"ring:8@50", 8, 8, 16, "800"},
    {"ring:2@50", 2, 2, 2, "200"},
    {"ring:1@50", 1, 1, 0, "0"},
    {"line:3@1", 3, 3, 4, "4"},
    {"full:8@25", 8, 8, 56, "1400"},
    {"switch:4@25/2", 5, 4, 8, "100"},
    {"hypercube:6@50", 64, 64, 384, "19200"},
    {"torus:4x4x4@100", 64, 64, 384, "38400"},
    {"torus:4x4x2@100", 32, 32, 160, "19200"},
    {"torus:5@0.5", 5, 5, 10, "5"},
    {"torus:1x3@1", 3, 3, 6, "6"},
    {"mesh:2x3@4", 6, 6, 14, "56"},
    {"gpus:8@300", 9, 8, 16, "4800"},
    {"hosts:1 gpus:8@300", 9, 8, 16, "4800"},
    {"hosts:4 gpus:8@300 nics:8@25 rails", 76, 32, 192, "22400"},
    {"hosts:4 gpus:8@300 nics:8@25 rails spine@100", 77, 32, 208, "24000"},
    {"hosts:2 gpus:2@10 nics:1@5", 9, 4, 20, "140"},
    {"hosts:4 gpus:2@100 nics:1@10 clos:2/2", 19, 8, 44, "1880"},
    {"hosts:8 gpus:1@100 nics:1@10 dragonfly:2@50/100", 32, 8, 68, "3520"},
    {"hosts:4 gpus:1@5 nics:2@10 torus:2x2@9", 20, 4, 48, "504"},
};

START_TEST(sizes_and_sums_are_as_counted_by_hand) {
  struct copse_topology *t = make(sizes[_i].spec);
  ck_assert_int_eq(t->n_nodes, sizes[_i].nodes);
  ck_assert_int_eq(t->n_ranks, sizes[_i].ranks);
  ck_assert_int_eq(t->n_links, sizes[_i].links);
  ck_assert_str_eq(total_bandwidth(t), sizes[_i].total);
  copse_topology_free(t);
}
END_TEST

START_TEST(neighbours_are_the_right_ones) {
  struct copse_topology *t = make("torus:4x3@7");
  ck_assert_str_eq(bandwidth(t, "gpu0_0", "gpu3_0"), "7");
  ck_assert_str_eq(bandwidth(t, "gpu0_2", "gpu0_0"), "7");
  ck_assert_str_eq(bandwidth(t, "gpu0_0", "gpu2_0"), "none");
  copse_topology_free(t);
  t = make("mesh:4x3@7");
  ck_assert_str_eq(bandwidth(t, "gpu0_0", "gpu3_0"), "none");
  ck_assert_str_eq(bandwidth(t, "gpu0_2", "gpu0_0"), "none");
  ck_assert_str_eq(bandwidth(t, "gpu1_1", "gpu2_1"), "7");
  copse_topology_free(t);
  t = make("torus:2x2@7");
  ck_assert_str_eq(bandwidth(t, "gpu0_0", "gpu1_0"), "14");
  copse_topology_free(t);
  t = make("hypercube:3@1.5");
  ck_assert_str_eq(bandwidth(t, "gpu5", "gpu7"), "3/2");
  ck_assert_str_eq(bandwidth(t, "gpu5", "gpu6"), "none");
  copse_topology_free(t);
  t = make("hosts:2 gpus:4@300 nics:2@25");
  ck_assert_str_eq(bandwidth(t, "h1.gpu1", "h1.nic0"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.gpu2", "h1.nic1"), "25");
  ck_assert_str_eq(bandwidth(t, "h1.nic1", "fabric"), "25");
  copse_topology_free(t);
  t = make("gpus:2@300 nics:4@25");
  ck_assert_str_eq(bandwidth(t, "gpu0", "nic1"), "25");
  ck_assert_str_eq(bandwidth(t, "gpu1", "nic2"), "25");
  copse_topology_free(t);
}
END_TEST

/* The node ids and links of a topology as one sorted text, whatever their order. */
static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}
static char *sorted_text(const struct copse_topology *t) {
  size_t n = (size_t)(t->n_nodes + t->n_links), used = 0;
  char **lines = calloc(n, sizeof *lines), *text = malloc(n * 160 + 1);
  for (int i = 0; i < t->n_nodes; i++) lines[i] = strdup(t->nodes[i].id);
  for (int i = 0; i < t->n_links; i++) {
    char line[160], q[COPSE_Q_TEXT];
    const struct copse_link *l = &t->links[i];
    snprintf(line, sizeof line, "%s>%s %s", t->nodes[l->src].id, t->nodes[l->dst].id,
             copse_q_text(l->bandwidth, q));
    lines[t->n_nodes + i] = strdup(line);
  }
  qsort(lines, n, sizeof *lines, by_text);
  text[0] = '\0';
  for (size_t i = 0; i < n; i++) {
    used += (size_t)sprintf(text + used, "%s\n", lines[i]);
    free(lines[i]);
  }
  free(lines);
  return text;
}

static const struct {
  const char *spec, *file;
} references[] = {{"ring:8@50", "ring-8"},
                  {"full:8@25", "full-8"},
                  {"torus:4x4@100", "torus-4x4"},
                  {"torus:4x4x2@100", "torus-4x4x2"},
                  {"hypercube:4@50", "hypercube-4"}};

START_TEST(reference_topologies_are_the_same_graphs) {
  char name[64];
  snprintf(name, sizeof name, "reference/%s.json", references[_i].file);
  const char *path = copse_test_data(name);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *theirs = NULL, *ours = make(references[_i].spec);
  ASSERT_OK(copse_topology_load(path, NULL, &theirs, &err), &err);
  char *a = sorted_text(theirs), *b = sorted_text(ours);
  ck_assert_str_eq(a, b);
  free(a);
  free(b);
  copse_topology_free(theirs);
  copse_topology_free(ours);
}
END_TEST

START_TEST(hosts_are_the_cluster_of_the_catalogue) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *theirs = NULL, *ours = make("hosts:4 gpus:8@300 nics:8@25 rails");
  ASSERT_OK(copse_topology_load("topologies/a100-x4.json", NULL, &theirs, &err), &err);
  char *a = to_json(theirs), *b = to_json(ours);
  ck_assert_str_eq(strchr(a, '\n'), strchr(b, '\n')); /* all but the name */
  free(a);
  free(b);
  copse_topology_free(theirs);
  copse_topology_free(ours);
}
END_TEST

START_TEST(a_file_can_hold_one) {
  struct copse_topology *t = read_good(
      "{\"format\": \"copse-synthetic/1\", \"name\": \"mine\", \"synthetic\": \"ring:3@2\","
      " \"description\": \"three\", \"source\": \"none\"}",
      COPSE_LINKS_ALL);
  ck_assert_str_eq(t->name, "mine");
  ck_assert_str_eq(t->description, "three");
  ck_assert_str_eq(t->source, "none");
  ck_assert_int_eq(t->n_links, 6);
  copse_topology_free(t);
  expect_refusal("{\"format\": \"copse-synthetic/1\",\n \"synthetic\": \"ring:x@2\"}",
                 "t:1: \"ring:x@2\": a size");
  expect_refusal("{\"format\": \"copse-synthetic/1\"}", "needs \"synthetic\": ");
  expect_refusal("{\"format\": \"copse-synthetic/2\"}", "reads \"copse-synthetic/1\"");
}
END_TEST

static const struct {
  const char *spec, *part;
} refusals[] = {
    {"", "empty"},
    {"   ", "empty"},
    {"ring", "a bandwidth is missing"},
    {"ring:8", "a bandwidth is missing"},
    {"ring:8@", "no positive number"},
    {"ring:8@0", "no positive number"},
    {"ring:8@-5", "no positive number"},
    {"ring:8@1e400", "no positive number"},
    {"ring:8@5GB", "no positive number"},
    {"ring:8@1/0", "no positive number"},
    {"ring@5", "a size is missing"},
    {"ring:@5", "a size that makes no sense"},
    {"ring:0@5", "a size that makes no sense"},
    {"ring:-1@5", "a size that makes no sense"},
    {"ring: 8@5", "more than one word"},
    {"ring:8x@5", "a size that makes no sense"},
    {"ring:99999999999999999999@5", "a size that makes no sense"},
    {"ring:8@5 flat", "more than one word"},
    {"hosts:2 hosts:4 gpus:2@3 nics:1@1", "stands there twice"},
    {"hosts:2 gpus:2@3 nics:1@1 nics:2@1", "stands there twice"},
    {"star:8@5", "an unknown kind"},
    {"full:5000@5", "too many links"},
    {"hypercube:23@5", "too many nodes"},
    {"hypercube:22@5", "too many links"},
    {"torus:4x@5", "sizes that make no sense"},
    {"torus:x4@5", "sizes that make no sense"},
    {"torus:4xx4@5", "sizes that make no sense"},
    {"torus:@5", "sizes that make no sense"},
    {"torus:1x1x1x1x1x1x1x1x1@5", "too many dimensions"},
    {"torus:4000x4000@5", "too many nodes"},
    {"hosts:4", "gpus: is missing"},
    {"hosts:4 gpus:8@300", "hosts without NICs"},
    {"hosts:4 gpus:8@300 rails", "hosts without NICs"},
    {"hosts:4 gpus:8@300 nics:8@25 rails flat", "two fabrics"},
    {"hosts:4 gpus:8@300 nics:8@25 tree", "the word \"tree\""},
    {"hosts:4 gpus:8@300 nics:8@25 rails:2", "the word \"rails\""},
    {"hosts:4 gpus:8@300 nics:8@25 spine@5", "a spine without rails"},
    {"hosts:4 gpus:8@300 nics:8@25 clos", "a size is missing"},
    {"hosts:4 gpus:8@300 nics:8@25 clos:2/0", "no positive number"},
    {"hosts:4 gpus:8@300 nics:8@25 dragonfly:2@5", "a bandwidth is missing"},
    {"hosts:4 gpus:8@300 nics:8@25 torus:3x2@5", "need a torus of 4 routers"},
    {"hosts:4000000 gpus:8@300 nics:8@25", "4000000 hosts make"},
    {"hosts:4 gpus:8@300 nics:8@25 a b c d e f", "too many words"},
};

START_TEST(nonsense_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(copse_topology_synthetic(refusals[_i].spec, NULL, &t, &err), COPSE_BAD_INPUT, &err,
               refusals[_i].part);
  ck_assert_ptr_null(t);
}
END_TEST

#define N(a) (int)(sizeof(a) / sizeof *(a))
/* Counts hops from GPU 0 to the farthest; -1: some is not reached. */
static int farthest(const struct copse_topology *t) {
  int hops[64], most = 0;
  for (int v = 0; v < t->n_nodes; v++) hops[v] = v == t->rank_nodes[0] ? 0 : -1;
  for (int hop = 0; hop < t->n_nodes; hop++)
    for (int e = 0; e < t->n_links; e++)
      if (hops[t->links[e].src] == hop && hops[t->links[e].dst] < 0)
        most = hops[t->links[e].dst] = hop + 1;
  for (int r = 0; r < t->n_ranks; r++)
    if (hops[t->rank_nodes[r]] < 0) return -1;
  return most;
}

/* Few peers at a switch: as many for each GPU, with all of its bandwidth; all are reached, in two
 * hops with twice the root of the GPUs as peers. */
START_TEST(a_switch_is_opened_for_few_peers) {
  char line[40];
  for (int n = 2; n < 50; n++)
    for (int most = 1; most <= n; most++) {
      struct copse_err err = COPSE_ERR_INIT;
      struct copse_topology *t, *few;
      int peers, root = 1;
      snprintf(line, sizeof line, "switch:%d@60", n);
      ASSERT_OK(copse_topology_synthetic(line, NULL, &t, &err), &err);
      ASSERT_OK(copse_topology_sparse(t, most, &peers, &few, &err), &err);
      copse_topology_free(t);
      ck_assert_int_eq(few != NULL, n - 1 > most);
      if (!few) continue;
      ck_assert_int_le(peers, most);
      ck_assert_int_eq(few->n_nodes, n);
      ck_assert_int_eq(few->n_links, n * peers);
      struct copse_q out = COPSE_Q_ZERO, in = COPSE_Q_ZERO;
      for (int e = 0; e < few->n_links; e++) {
        if (few->links[e].src == 0)
          ASSERT_OK(copse_q_add(out, few->links[e].bandwidth, &out, &err), &err);
        if (few->links[e].dst == 0)
          ASSERT_OK(copse_q_add(in, few->links[e].bandwidth, &in, &err), &err);
      }
      ck_assert(copse_q_eq(out, (struct copse_q){60, 1}) && copse_q_eq(in, out));
      while (root * root < n) root++;
      int hops = farthest(few);
      ck_assert_int_gt(hops, 0);
      if (peers >= 2 * root - 2) ck_assert_int_le(hops, 2);
      copse_topology_free(few);
    }
}
END_TEST

/* NICs that two GPUs share are left to one; the switch of four GPUs stays as it is. */
START_TEST(a_shared_nic_is_left_to_one) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t, *few;
  int peers, at[2] = {0}, shared = 0;
  ASSERT_OK(copse_topology_synthetic("hosts:2 gpus:4@300 nics:2@25 flat", NULL, &t, &err), &err);
  ASSERT_OK(copse_topology_sparse(t, 8, &peers, &few, &err), &err);
  ck_assert_ptr_nonnull(few);
  ck_assert_int_eq(peers, 3);
  for (int e = 0; e < few->n_links; e++) {
    const struct copse_link *l = &few->links[e];
    bool nic = strstr(few->nodes[l->src].id, "nic") != NULL;
    if (!nic || few->nodes[l->dst].rank < 0) continue;
    if (strncmp(few->nodes[l->src].id, "h0.", 3) == 0 && shared < 2) at[shared++] = l->dst;
    ck_assert_int_ge(copse_topology_find_link(few, l->dst, l->src), 0);
  }
  ck_assert_int_eq(shared, 2);
  ck_assert_int_ne(at[0], at[1]);
  ck_assert_int_eq(few->n_links, t->n_links - 2 * 4 /* both ways of four NICs */);
  copse_topology_free(few);
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/synthetic");
  TCase *all = tcase_create("synthetic");
  tcase_add_loop_test(all, sizes_and_sums_are_as_counted_by_hand, 0, N(sizes));
  tcase_add_test(all, neighbours_are_the_right_ones);
  tcase_add_loop_test(all, reference_topologies_are_the_same_graphs, 0, N(references));
  tcase_add_test(all, hosts_are_the_cluster_of_the_catalogue);
  tcase_add_test(all, a_file_can_hold_one);
  tcase_add_test(all, a_switch_is_opened_for_few_peers);
  tcase_add_test(all, a_shared_nic_is_left_to_one);
  tcase_add_loop_test(all, nonsense_is_refused, 0, N(refusals));
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
