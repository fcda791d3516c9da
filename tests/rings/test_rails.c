/*
 * Rails: NICs that reach each other without passing a host. By hand, and of random networks, where
 * the test walks from each NIC itself; found alike by what searches and by what verifies. Rings and
 * their certificates go by them.
 */
#include "nccl/best.h"
#include "support/fabric.h"
#include "support/support.h"
#include "verify/rings.h"
#include "verify/ways.h"

#include <ctype.h>

/* Hosts of two GPUs, each at an NVSwitch and at all NICs of its host. `cables`: "0.1-2.0" joins NIC
 * 1 of host 0 and NIC 0 of host 2, ">" only in this direction; "0.1-s" leads to switch s. A host
 * "h9" has NIC 0 only, and no GPU. */
static struct copse_topology *make(int hosts, int nics, const char *cables) {
  struct copse_text nodes = {0}, links = {0}, all = {0};
  char list[500], *cable, *rest = list;
  for (int h = 0; h < hosts; h++) {
    copse_text_add(&nodes, "{'id': 'h%d.s', 'type': 'nvswitch'},", h);
    for (int g = 0; g < 2; g++) {
      copse_text_add(&nodes, "{'id': 'h%d.g%d', 'type': 'gpu'},", h, g);
      copse_text_add(&links, "{'src': 'h%d.g%d', 'dst': 'h%d.s', 'bandwidth': 100},", h, g, h);
    }
    for (int i = 0; i < nics; i++) {
      copse_text_add(&nodes, "{'id': 'h%d.n%d', 'type': 'nic'},", h, i);
      for (int g = 0; g < 2; g++)
        copse_text_add(&links, "{'src': 'h%d.g%d', 'dst': 'h%d.n%d', 'bandwidth': 50},", h, g, h,
                       i);
    }
  }
  copse_text_add(&nodes, "{'id': 'h9.n0', 'type': 'nic'}");
  for (char s = 's'; s <= 'u'; s++)
    if (strchr(cables, s)) copse_text_add(&nodes, ", {'id': '%c', 'type': 'switch'}", s);
  snprintf(list, sizeof list, "%s 9.0-0.0", cables);
  for (int n = 0; (cable = strtok_r(rest, " ", &rest)); n++) {
    copse_text_add(&links,
                   "%s{'src': 'h%c.n%c', 'bandwidth': 50, 'duplex': %s, 'dst': ", n > 0 ? "," : "",
                   cable[0], cable[2], cable[3] == '>' ? "false" : "true");
    if (isdigit((unsigned char)cable[4]))
      copse_text_add(&links, "'h%c.n%c'}", cable[4], cable[6]);
    else
      copse_text_add(&links, "'%c'}", cable[4]);
  }
  copse_text_add(&all, "{'format': 'copse-topology/1', 'name': 'rails', 'nodes': [%s], ",
                 nodes.data);
  copse_text_add(&all, "'links': [%s]}", links.data);
  for (size_t i = 0; i < all.size; i++)
    if (all.data[i] == '\'') all.data[i] = '"';
  struct copse_topology *t = copse_test_topology(all.data);
  copse_text_free(&nodes);
  copse_text_free(&links);
  copse_text_free(&all);
  return t;
}

static void open_both(const struct copse_topology *t, struct copse_nccl_machine *m,
                      struct copse_verify_ways *w) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_machine_open(t, m, &err), &err);
  ASSERT_OK(copse_verify_ways_open(t, w, &err), &err);
  ck_assert_int_eq(m->n_ports, w->first_nic[w->n_hosts]);
}

static void free_both(struct copse_topology *t, struct copse_nccl_machine *m,
                      struct copse_verify_ways *w) {
  copse_nccl_machine_free(m);
  copse_verify_ways_free(w);
  copse_topology_free(t);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* A letter for each NIC, host by host: its rail; a capital one where all hosts have the rail. */
static const struct {
  int hosts, nics;
  const char *cables, *rails;
} cases[] = {
    {2, 1, "0.0-1.0", "A A"},
    {3, 1, "0.0-1.0 1.0-2.0", "a b c"},                   /* a chain */
    {3, 1, "0.0-1.0 1.0-2.0 2.0-0.0", "A A A"},           /* a triangle */
    {3, 1, "0.0>1.0 1.0>2.0 2.0>0.0", "a b c"},           /* one way round */
    {4, 1, "0.0-1.0 1.0-2.0 2.0-3.0 3.0-0.0", "a b c d"}, /* a ring of four */
    {4, 1, "0.0-1.0 0.0-2.0 0.0-3.0 1.0-2.0 1.0-3.0 2.0-3.0", "A A A A"},
    {3, 2, "0.0-1.0 1.0-2.0 2.0-0.0 0.1-1.1 1.1-2.1", "Ab Ac Ad"}, /* a triangle and a chain */
    {3, 2, "0.0-1.0 1.0-2.0 2.1-0.0 0.1-s 1.1-s", "ac ac bd"},     /* a ring over a host */
    {2, 2, "0.0-1.0 0.0-1.1 0.1-1.0 0.1-1.1", "AB AB"},
    {3, 2, "0.1-1.1 1.1-2.1 2.1-0.1 0.1-1.0 0.0-s 2.0-s", "cA bA cA"}, /* and a cable more */
    {3, 2, "0.0-s 1.0-s 2.0-s 0.1-t 1.1-t 2.1-t 0.0-1.1", "AB AB AB"}, /* across two rails */
    {3, 1, "0.0-s 1.0-s 2.0-s 0.0-1.0", "A A A"},
    {3, 1, "0.0-s 1.0-s 1.0-t 2.0-t", "a a b"}, /* over a NIC from switch to switch */
    {3, 1, "0.0-s 0.0-t 1.0-t 2.0-s 2.0-t", "A A A"},
    {2, 1, "0.0-9.0 9.0-1.0", "a b"}, /* over a NIC of a host without a GPU */
};

START_TEST(rails_are_those_by_hand) {
  struct copse_topology *t = make(cases[_i].hosts, cases[_i].nics, cases[_i].cables);
  struct copse_nccl_machine m;
  struct copse_verify_ways w;
  char letters[32];
  int n = 0;
  open_both(t, &m, &w);
  for (const char *c = cases[_i].rails; *c; c++)
    if (*c != ' ') letters[n++] = *c;
  ck_assert_int_eq(n, cases[_i].hosts * cases[_i].nics);
  ck_assert_int_eq(m.n_ports, n);
  for (int p = 0; p < n; p++) {
    ck_assert_int_eq(m.ports[p].shared, isupper((unsigned char)letters[p]) != 0);
    ck_assert_int_eq(w.shared[p], isupper((unsigned char)letters[p]) != 0);
    for (int q = 0; q < p; q++) {
      bool same = letters[p] == letters[q];
      ck_assert_msg((m.ports[p].rail == m.ports[q].rail) == same, "%s: %d %d", cases[_i].cables, p,
                    q);
      ck_assert_msg((w.rail[p] == w.rail[q]) == same, "verify: %s: %d %d", cases[_i].cables, p, q);
    }
  }
  free_both(t, &m, &w);
}
END_TEST

/* ---- random networks ------------------------------------------------------------------------- */

/* Whether links lead from a node to another, over switches of the network alone. */
static bool reaches(const struct copse_topology *t, int from, int to) {
  bool seen[64] = {false}, more = true;
  ck_assert_int_le(t->n_nodes, 64);
  seen[from] = true;
  while (more) {
    more = false;
    for (int i = 0; i < t->n_links; i++) {
      const struct copse_link *l = &t->links[i];
      bool on = l->src == from || strcmp(t->nodes[l->src].type, "switch") == 0;
      if (!seen[l->src] || seen[l->dst] || !on) continue;
      seen[l->dst] = more = true;
    }
  }
  return seen[to];
}

START_TEST(nics_of_a_rail_reach_each_other) {
  uint64_t state = (uint64_t)_i + 1;
  char cables[400] = "";
  int hosts = copse_test_random_int(&state, 2, 4), nics = copse_test_random_int(&state, 1, 2);
  int n = snprintf(cables, sizeof cables, "0.0-1.0 ");
  for (int k = copse_test_random_int(&state, 3, 12); k > 0; k--) {
    int a = copse_test_random_int(&state, 1, hosts - 1),
        b = copse_test_random_int(&state, 0, a - 1);
    int i = copse_test_random_int(&state, 0, nics - 1),
        j = copse_test_random_int(&state, 0, nics - 1);
    if (copse_test_random_int(&state, 0, 2) == 0)
      n += snprintf(cables + n, sizeof cables - (size_t)n, "%d.%d-%c ", a, i, "stu"[j]);
    else
      n += snprintf(cables + n, sizeof cables - (size_t)n, "%d.%d-%d.%d ", a, i, b, j);
  }
  struct copse_topology *t = make(hosts, nics, cables);
  struct copse_nccl_machine m;
  struct copse_verify_ways w;
  open_both(t, &m, &w);
  for (int p = 0; p < m.n_ports; p++) {
    ck_assert_int_eq(m.ports[p].shared, w.shared[p]);
    for (int q = 0; q < m.n_ports; q++) {
      bool same = m.ports[p].rail == m.ports[q].rail;
      ck_assert_msg(same == (w.rail[p] == w.rail[q]), "%s: %d %d", cables, p, q);
      ck_assert_msg(!same || reaches(t, m.ports[p].node, m.ports[q].node), "%s: %d %d", cables, p,
                    q);
    }
  }
  free_both(t, &m, &w);
}
END_TEST

/* ---- rings ----------------------------------------------------------------------------------- */

/* The certificate of rings of a topology, which is freed; NULL, and why, where there are none. */
static char *certify(struct copse_topology *t, struct copse_nccl_best *best,
                     struct copse_err *err) {
  char *text = NULL;
  size_t size;
  copse_status status = copse_nccl_best_find(t, &(struct copse_nccl_best_options){0}, best, err);
  if (status == COPSE_OK) ASSERT_OK(copse_nccl_best_to_json(best, t, &text, &size, err), err);
  if (status != COPSE_OK) ck_assert_int_eq(status, COPSE_INFEASIBLE);
  copse_topology_free(t);
  return text;
}

#define TWO_TRIANGLES "0.0-1.0 1.0-2.0 2.0-0.0 0.1-1.1 1.1-2.1 2.1-0.1"
#define TRIANGLE_AND_CHAIN "0.0-1.0 1.0-2.0 2.0-0.0 0.1-1.1 0.1-1.1 1.1-2.1 1.1-2.1"

/* A NIC of two cables of 50 GB/s in a triangle, and none in a chain. What was found over the second
 * triangle is refused where that is a chain, of two cables
 * each. */
START_TEST(rings_pass_no_chain_of_nics) {
  struct copse_nccl_best best;
  struct copse_verify_rings_report report;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *chained = make(3, 2, TRIANGLE_AND_CHAIN);
  char *text = certify(make(3, 2, TWO_TRIANGLES), &best, &err);
  ck_assert_ptr_nonnull(text);
  ck_assert_str_eq(COPSE_Q_STRING(best.ring.GBps), "200");
  copse_nccl_best_free(&best);
  ck_assert_int_eq(copse_verify_rings("two", text, strlen(text), chained, &report, &err),
                   COPSE_REFUTED);
  ck_assert_msg(strstr(err.text, "doesn't reach") != NULL, "%s", err.text);
  free(text);
  text = certify(make(3, 2, TRIANGLE_AND_CHAIN), &best, &err);
  ck_assert_ptr_nonnull(text);
  ck_assert_str_eq(COPSE_Q_STRING(best.ring.GBps), "100");
  copse_nccl_best_free(&best);
  ASSERT_OK(copse_verify_rings("one", text, strlen(text), chained, &report, &err), &err);
  free(text);
  copse_topology_free(chained);
}
END_TEST

START_TEST(without_a_rail_of_all_hosts_there_are_no_rings) {
  static const char *const cables[] = {"0.0-1.0 1.0-2.0", "0.0-1.0 1.0-2.0 2.1-0.0",
                                       "0.0-1.0 1.0-2.0 0.1-1.1 1.1-2.1"};
  struct copse_nccl_best best;
  struct copse_err err = COPSE_ERR_INIT;
  ck_assert_ptr_null(certify(make(3, 2, cables[_i]), &best, &err));
  ck_assert_msg(strstr(err.text, "over the network alone") != NULL, "%s", err.text);
  ck_assert_ptr_null(strchr(err.text, '\n'));
  copse_nccl_best_free(&best);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("rails");
  TCase *all = tcase_create("rails");
  tcase_add_loop_test(all, rails_are_those_by_hand, 0, (int)(sizeof cases / sizeof *cases));
  tcase_add_loop_test(all, nics_of_a_rail_reach_each_other, 0, 200);
  tcase_add_test(all, rings_pass_no_chain_of_nics);
  tcase_add_loop_test(all, without_a_rail_of_all_hosts_there_are_no_rings, 0, 3);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
