#include "support/random_topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "support/support.h"

#define MAX_NODES 64

const struct copse_test_random_options copse_test_random_small = {1, 9, 6, true, true};

struct maker {
  uint64_t *state;
  const struct copse_test_random_options *options;
  int n_ranks, n_nodes; /* nodes from n_ranks on are relays */
  int palette;          /* the kind of bandwidths of this fabric */
  struct copse_text links;
};

static int dice(struct maker *m, int low, int high) {
  return low < high ? copse_test_random_int(m->state, low, high) : low;
}

static const char *id_of(const struct maker *m, int node, char text[16]) {
  snprintf(text, 16, node < m->n_ranks ? "g%d" : "s%d",
           node < m->n_ranks ? node : node - m->n_ranks);
  return text;
}

/* A bandwidth as JSON: whole numbers, a few standard ones, decimals or fractions. */
static const char *bandwidth(struct maker *m, char text[24]) {
  static const int standard[] = {25, 25, 50, 100, 300};
  int kind = m->options->rational ? m->palette : m->palette % 2;
  if (kind == 0)
    snprintf(text, 24, "%d", dice(m, 1, 12));
  else if (kind == 1)
    snprintf(text, 24, "%d", standard[dice(m, 0, 4)]);
  else if (kind == 2)
    snprintf(text, 24, "\"%d/%d\"", dice(m, 1, 12), dice(m, 1, 4));
  else
    snprintf(text, 24, "%d.%d", dice(m, 1, 30), 5 * dice(m, 0, 1));
  return text;
}

static void add_link(struct maker *m, int src, int dst, const char *rate, bool duplex) {
  char a[16], b[16];
  copse_text_add(&m->links,
                 "%s\n  {\"src\": \"%s\", \"dst\": \"%s\", \"bandwidth\": %s, \"duplex\": %s}",
                 m->links.size ? "," : "", id_of(m, src, a), id_of(m, dst, b), rate,
                 duplex ? "true" : "false");
}

static void duplex(struct maker *m, int src, int dst) {
  char rate[24];
  if (src != dst) add_link(m, src, dst, bandwidth(m, rate), true);
}

/* A one-way walk from a rank through some relays to another rank keeps relays balanced. */
static void one_way_walk(struct maker *m) {
  char rate[24];
  int from = dice(m, 0, m->n_ranks - 1), to = dice(m, 0, m->n_ranks - 1), at = from;
  if (from == to) return;
  bandwidth(m, rate);
  for (int hops = dice(m, 0, 2); hops > 0 && m->n_nodes > m->n_ranks; hops--) {
    int relay = dice(m, m->n_ranks, m->n_nodes - 1);
    if (relay == at) continue;
    add_link(m, at, relay, rate, false);
    at = relay;
  }
  add_link(m, at, to, rate, false);
}

static void one_way_walks(struct maker *m) {
  if (!m->options->asymmetric || dice(m, 0, 2) == 0) return;
  for (int n = dice(m, 0, m->n_ranks); n > 0; n--) one_way_walk(m);
}

/* A random spanning tree of duplex links and more of them on top. */
static void mesh(struct maker *m) {
  m->n_ranks = dice(m, m->options->min_ranks, m->options->max_ranks);
  m->n_nodes = m->n_ranks + dice(m, 0, m->options->max_relays);
  for (int v = 1; v < m->n_nodes; v++) duplex(m, v, dice(m, 0, v - 1));
  for (int n = dice(m, 0, 2 * m->n_nodes); n > 0; n--)
    duplex(m, dice(m, 0, m->n_nodes - 1), dice(m, 0, m->n_nodes - 1));
  one_way_walks(m);
}

/* A GPU (or a host's switch) to a network switch, with a NIC between where there's room. */
static void uplink(struct maker *m, int node, int network, bool with_nic, int *next_relay) {
  if (with_nic && *next_relay < m->n_nodes) {
    duplex(m, node, *next_relay);
    node = (*next_relay)++;
  }
  duplex(m, node, network);
}

/* Equal hosts: a switch each, rails or one network switch between them. */
static void hosts(struct maker *m) {
  int most = m->options->max_ranks, relays = m->options->max_relays;
  int n_hosts = dice(m, 2, most / 2 < 3 ? most / 2 : 3), gpus = dice(m, 1, most / n_hosts);
  if (n_hosts * gpus < m->options->min_ranks) gpus = most / n_hosts;
  bool rails = dice(m, 0, 1) && n_hosts + gpus <= relays, nics = dice(m, 0, 1);
  int networks = rails ? gpus : 1;
  m->n_ranks = n_hosts * gpus;
  m->n_nodes = m->n_ranks + n_hosts + networks;
  int next_relay = m->n_nodes;
  if (nics) m->n_nodes = m->n_ranks + relays;
  char inner[24], outer[24];
  bandwidth(m, inner);
  bandwidth(m, outer);
  for (int h = 0; h < n_hosts; h++) {
    int host_switch = m->n_ranks + h;
    for (int g = 0; g < gpus; g++) {
      add_link(m, h * gpus + g, host_switch, inner, true);
      if (rails) uplink(m, h * gpus + g, m->n_ranks + n_hosts + g, nics, &next_relay);
    }
    if (!rails && dice(m, 0, 1))
      uplink(m, host_switch, m->n_ranks + n_hosts, nics, &next_relay);
    else if (!rails)
      for (int g = 0; g < gpus; g++) add_link(m, h * gpus + g, m->n_ranks + n_hosts, outer, true);
  }
  m->n_nodes =
      next_relay > m->n_ranks + n_hosts + networks ? next_relay : m->n_ranks + n_hosts + networks;
}

/* Two halves, a chain of relays between them, relays that lead nowhere. */
static void bridges(struct maker *m) {
  int relays = m->options->max_relays, chain = dice(m, 1, relays - 1), next;
  m->n_ranks =
      dice(m, m->options->min_ranks < 2 ? 2 : m->options->min_ranks, m->options->max_ranks);
  m->n_nodes = m->n_ranks + relays;
  int half = m->n_ranks / 2;
  for (int v = 1; v < half; v++) duplex(m, v, dice(m, 0, v - 1));
  for (int v = half + 1; v < m->n_ranks; v++) duplex(m, v, dice(m, half, v - 1));
  duplex(m, dice(m, 0, half - 1), m->n_ranks);
  for (next = m->n_ranks + 1; next < m->n_ranks + chain; next++) duplex(m, next - 1, next);
  duplex(m, next - 1, dice(m, half, m->n_ranks - 1));
  for (; next < m->n_nodes; next++) { /* leaves, some with a second link */
    duplex(m, next, dice(m, 0, next - 1));
    if (dice(m, 0, 2) == 0) duplex(m, next, dice(m, 0, next - 1));
  }
  one_way_walks(m);
}

/* Nodes in a random order, so that relays stand between ranks. */
static void add_nodes(struct maker *m, struct copse_text *text) {
  int order[MAX_NODES];
  for (int i = 0; i < m->n_nodes; i++) order[i] = i;
  for (int i = m->n_nodes - 1; i > 0; i--) {
    int j = dice(m, 0, i), swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  for (int i = 0; i < m->n_nodes; i++) {
    char id[16];
    copse_text_add(text, "%s\n  {\"id\": \"%s\", \"type\": \"%s\"}", i ? "," : "",
                   id_of(m, order[i], id), order[i] < m->n_ranks ? "gpu" : "switch");
  }
}

char *copse_test_random_json(uint64_t *state, const struct copse_test_random_options *options) {
  struct maker m = {.state = state, .options = options};
  struct copse_text text = {0};
  ck_assert_int_le(options->max_ranks + options->max_relays, MAX_NODES);
  m.palette = dice(&m, 0, 3);
  int shape = dice(&m, 0, 3);
  if (shape == 2 && options->max_relays >= 4 && options->max_ranks >= 4)
    hosts(&m);
  else if (shape == 3 && options->max_relays >= 2 && options->max_ranks >= 2)
    bridges(&m);
  else
    mesh(&m);
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": \"random\", \"nodes\": [");
  add_nodes(&m, &text);
  copse_text_add(&text, "],\n \"links\": [%s]}\n", m.links.data ? m.links.data : "");
  ck_assert_int_eq(copse_text_status(&text, NULL), COPSE_OK);
  copse_text_free(&m.links);
  return text.data;
}

struct copse_topology *copse_test_random_topology(uint64_t *state,
                                                  const struct copse_test_random_options *options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  char *text = copse_test_random_json(state, options);
  ASSERT_OK(copse_topology_parse("random.json", text, strlen(text), NULL, &topology, &err), &err);
  free(text);
  return topology;
}
