#include "support/symmetric_topology.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "support/fabric.h"
#include "support/support.h"

/* ---- making --------------------------------------------------------------------------------- */

struct maker {
  uint64_t *state;
  int most, n_nodes;
  struct copse_text nodes, links;
};

static int dice(struct maker *m, int low, int high) {
  return low < high ? copse_test_random_int(m->state, low, high) : low;
}

static int add_node(struct maker *m, bool rank) {
  copse_text_add(&m->nodes, "%s{\"id\": \"n%d\", \"type\": \"%s\"}", m->n_nodes ? ", " : "",
                 m->n_nodes, rank ? "gpu" : "switch");
  return m->n_nodes++;
}

static void add_link(struct maker *m, int src, int dst, int bandwidth, bool duplex) {
  copse_text_add(&m->links,
                 "%s{\"src\": \"n%d\", \"dst\": \"n%d\", \"bandwidth\": %d, \"duplex\": %s}",
                 m->links.size ? ", " : "", src, dst, bandwidth, duplex ? "true" : "false");
}

static void add_product(struct maker *m) {
  int sizes[3], n = 1, dims = dice(m, 1, 3), common = dice(m, 0, 1) ? dice(m, 1, 9) : 0;
  for (int d = 0; d < dims; d++) {
    int most = m->most / n < 7 ? m->most / n : 7;
    sizes[d] = most < 2 ? 1 : dice(m, 2, most);
    n *= sizes[d];
  }
  for (int v = 0; v < n; v++) add_node(m, true);
  for (int d = 0, step = 1; d < dims; step *= sizes[d++]) {
    int bandwidth = common ? common : dice(m, 1, 9);
    for (int v = 0; v < n && sizes[d] > 1; v++) {
      bool last = v / step % sizes[d] == sizes[d] - 1;
      if (last && sizes[d] == 2) continue; /* one link joins the two */
      add_link(m, v, last ? v - step * (sizes[d] - 1) : v + step, bandwidth, true);
    }
  }
}

static void add_circulant(struct maker *m) {
  int n = dice(m, 3, m->most < 13 ? m->most : 13);
  for (int v = 0; v < n; v++) add_node(m, true);
  for (int step = 1; step < n; step++) {
    int bandwidth = dice(m, step == 1 ? 1 : -9, 9);
    for (int v = 0; v < n && bandwidth > 0; v++) add_link(m, v, (v + step) % n, bandwidth, false);
  }
}

/* A box with what is in it; returns its switch, or the GPU that it is. */
static int add_box(struct maker *m, int depth, const int *sizes, const int *bandwidths) {
  if (depth == 0) return add_node(m, true);
  int box = add_node(m, false);
  for (int i = 0; i < sizes[depth - 1]; i++)
    add_link(m, add_box(m, depth - 1, sizes, bandwidths), box, bandwidths[depth - 1], true);
  return box;
}

static void add_boxes(struct maker *m) {
  int sizes[2], bandwidths[3], groups, tops, group[4];
  do {
    sizes[0] = dice(m, 2, 4);
    sizes[1] = dice(m, 1, 4);
    groups = dice(m, 1, 4);
    tops = dice(m, 1, 2);
  } while (groups * (1 + sizes[1] * (1 + sizes[0])) + tops > m->most);
  for (int i = 0; i < 3; i++) bandwidths[i] = dice(m, 1, 9);
  for (int g = 0; g < groups; g++) group[g] = add_box(m, 2, sizes, bandwidths);
  for (; tops > 0; tops--) {
    int top = add_node(m, false);
    for (int g = 0; g < groups; g++) add_link(m, group[g], top, bandwidths[2], true);
  }
}

struct copse_topology *copse_test_symmetric_topology(uint64_t *state, int max_nodes) {
  static void (*const kinds[])(struct maker *) = {add_product, add_circulant, add_boxes};
  struct maker m = {.state = state, .most = max_nodes};
  struct copse_text text = {0};
  kinds[dice(&m, 0, 2)](&m);
  copse_text_add(&text,
                 "{\"format\": \"copse-topology/1\", \"name\": \"symmetric\",\n"
                 " \"nodes\": [%s],\n \"links\": [%s]}",
                 m.nodes.data, m.links.data);
  ck_assert_int_eq(copse_text_status(&text, NULL), COPSE_OK);
  struct copse_topology *made = copse_test_topology(text.data);
  copse_text_free(&m.nodes);
  copse_text_free(&m.links);
  copse_text_free(&text);
  return made;
}

/* ---- shuffling ------------------------------------------------------------------------------ */

static int *random_order(uint64_t *state, int n) {
  int *order = malloc((size_t)(n ? n : 1) * sizeof *order);
  ck_assert_ptr_nonnull(order);
  for (int i = 0; i < n; i++) order[i] = i;
  for (int i = n - 1; i > 0; i--) {
    int j = copse_test_random_int(state, 0, i), swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  return order;
}

static void add_shuffled_links(const struct copse_topology *t, const int *id, const int *order,
                               int slower, struct copse_text *text) {
  int back =
      slower < 0 ? -1 : copse_topology_find_link(t, t->links[slower].dst, t->links[slower].src);
  if (back < 0 || !copse_q_eq(t->links[back].bandwidth, t->links[slower].bandwidth)) slower = -1;
  for (int i = 0; i < t->n_links; i++) {
    int e = order[i];
    const struct copse_link *l = &t->links[e];
    int64_t num = l->bandwidth.num * 9, den = l->bandwidth.den * 9;
    if (slower >= 0 && (e == slower || e == back)) num--;
    copse_text_add(text,
                   "%s{\"src\": \"x%d\", \"dst\": \"x%d\", \"bandwidth\": \"%" PRId64 "/%" PRId64
                   "\", \"duplex\": false}",
                   i ? ",\n" : "", id[l->src], id[l->dst], num, den);
  }
}

struct copse_topology *copse_test_shuffled(const struct copse_topology *topology, uint64_t *state,
                                           bool slower) {
  int n = topology->n_nodes, m = topology->n_links;
  int *nodes = random_order(state, n), *id = random_order(state, n),
      *links = random_order(state, m);
  struct copse_text text = {0};
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"shuffled\", \"nodes\": [");
  for (int i = 0; i < n; i++) {
    const struct copse_node *node = &topology->nodes[nodes[i]];
    copse_text_add(&text,
                   "%s{\"id\": \"x%d\", \"type\": \"%s\", \"multicast\": %s, \"aggregation\": %s}",
                   i ? ",\n" : "", id[nodes[i]], node->type, node->multicast ? "true" : "false",
                   node->aggregation ? "true" : "false");
  }
  copse_text_add(&text, "],\n\"links\": [");
  add_shuffled_links(topology, id, links,
                     slower && m > 0 ? copse_test_random_int(state, 0, m - 1) : -1, &text);
  copse_text_add(&text, "]}");
  ck_assert_int_eq(copse_text_status(&text, NULL), COPSE_OK);
  struct copse_topology *made = copse_test_topology(text.data);
  copse_text_free(&text);
  free(nodes);
  free(id);
  free(links);
  return made;
}
