/*
 * Copies of a topology with something changed: every part is left as it is, scaled or left out, and
 * what remains goes through the builder as if it had been read.
 */
#include "topology/modify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "topology/topology.h"

/* A copy under construction: which nodes stay, and as what number. */
struct copy {
  const struct copse_topology *from;
  struct copse_topology_builder *builder;
  int *number; /* [n_nodes of from], -1: left out */
  struct copse_arena scratch;
  struct copse_err *err;
};

static copse_status start(struct copy *c) {
  COPSE_DO(copse_arena_array(&c->scratch, (size_t)c->from->n_nodes, sizeof *c->number, &c->number,
                             c->err));
  return copse_builder_like(c->from, c->from->name, &c->builder, c->err);
}

static copse_status add_link(struct copy *c, int link, struct copse_q bandwidth) {
  const struct copse_link *l = &c->from->links[link];
  if (c->number[l->src] < 0 || c->number[l->dst] < 0) return COPSE_OK;
  return copse_builder_add_link(c->builder, 0, c->number[l->src], c->number[l->dst], bandwidth,
                                l->latency, c->err);
}

static void end(struct copy *c) {
  copse_builder_free(c->builder);
  copse_arena_free(&c->scratch);
}

/* ---- what is broken ---------------------------------------------------------------------- */

/* What is left of each part. */
struct left {
  struct copse_q *of_link; /* [n_links] */
  bool *node_down;         /* [n_nodes] */
};

static copse_status break_node(const struct copse_topology *t, int node, struct copse_q rate,
                               struct left *left, struct copse_err *err) {
  if (rate.num == 0) left->node_down[node] = true;
  for (int i = 0; i < t->n_links; i++)
    if (t->links[i].src == node || t->links[i].dst == node)
      COPSE_DO(copse_q_mul(left->of_link[i], rate, &left->of_link[i], err));
  return COPSE_OK;
}

/* Ids may have ">" in them: the split is where both halves are nodes. */
static bool find_ends(const struct copse_topology *t, char *what, int *src, int *dst) {
  for (char *at = strchr(what, '>'); at; at = strchr(at + 1, '>')) {
    *at = '\0';
    *src = copse_topology_find(t, what);
    *at = '>';
    *dst = copse_topology_find(t, at + 1);
    if (*src >= 0 && *dst >= 0) return true;
  }
  return false;
}

static copse_status break_link(const struct copse_topology *t, const char *label,
                               const struct copse_fault *fault, struct left *left,
                               struct copse_err *err) {
  int src, dst, there, back;
  char *what = strdup(fault->what);
  if (!what) return copse_fail_nomem(err);
  bool found = find_ends(t, what, &src, &dst);
  free(what);
  if (!found)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "no node \"%.120s\", nor a link: a link is SRC>DST, two ids of nodes",
                         fault->what);
  there = copse_topology_find_link(t, src, dst);
  back = copse_topology_find_link(t, dst, src);
  if (there < 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0, "no link from \"%.80s\" to \"%.80s\"%s",
                         t->nodes[src].id, t->nodes[dst].id,
                         back < 0 ? "" : ", only the other way round");
  struct copse_q *of = left->of_link;
  COPSE_DO(copse_q_mul(of[there], fault->left, &of[there], err));
  return back < 0 ? COPSE_OK : copse_q_mul(of[back], fault->left, &of[back], err);
}

static copse_status measure(struct copy *c, const char *label, const struct copse_fault *faults,
                            int n, struct left *left) {
  const struct copse_topology *t = c->from;
  struct copse_err *err = c->err;
  size_t links = (size_t)t->n_links, nodes = (size_t)t->n_nodes;
  COPSE_DO(copse_arena_array(&c->scratch, links, sizeof *left->of_link, &left->of_link, err));
  COPSE_DO(copse_arena_array(&c->scratch, nodes, sizeof *left->node_down, &left->node_down, err));
  for (int i = 0; i < t->n_links; i++) left->of_link[i] = COPSE_Q_ONE;
  for (int f = 0; f < n; f++) {
    int node = copse_topology_find(t, faults[f].what);
    if (node >= 0)
      COPSE_DO(break_node(t, node, faults[f].left, left, err));
    else
      COPSE_DO(break_link(t, label, &faults[f], left, err));
  }
  return COPSE_OK;
}

static int by_name(const void *a, const void *b) {
  const struct copse_fault *one = a, *other = b;
  int order = strcmp(one->what, other->what);
  return order ? order : copse_q_cmp(one->left, other->left);
}

/* "a100-x2 without h0.nic3, with h1.nic0 at 50%": plans and logs show nothing else of it. In
 * whatever order the faults are given, since the name is part of the checksum. */
#define NAMED_FAULTS 3
static copse_status name_broken(struct copy *c, const struct copse_fault *given, int n) {
  struct copse_text name = {0};
  struct copse_q percent, hundred = {100, 1};
  struct copse_fault *faults;
  char text[COPSE_Q_TEXT];
  copse_status status;
  COPSE_TRY(copse_arena_array(&c->scratch, (size_t)n, sizeof *faults, &faults, c->err));
  if (n > 0) memcpy(faults, given, (size_t)n * sizeof *faults);
  qsort(faults, (size_t)n, sizeof *faults, by_name);
  copse_text_add(&name, "%s", c->from->name);
  for (int f = 0; f < n && f < NAMED_FAULTS; f++) {
    copse_text_add(&name, "%s %s %s", f > 0 ? "," : "", faults[f].left.num ? "with" : "without",
                   faults[f].what);
    if (faults[f].left.num == 0) continue;
    COPSE_TRY(copse_q_mul(faults[f].left, hundred, &percent, c->err));
    copse_text_add(&name, " at %s%%", copse_q_text(percent, text));
  }
  if (n > NAMED_FAULTS) copse_text_add(&name, " and %d more faults", n - NAMED_FAULTS);
  COPSE_TRY(copse_text_status(&name, c->err));
  status = copse_builder_set_name(c->builder, name.data, c->err);
out:
  copse_text_free(&name);
  return status;
}

static copse_status copy_rest(struct copy *c, const struct left *left) {
  const struct copse_topology *t = c->from;
  int lost = 0, *moved; /* [n_ranks] what a rank becomes */
  COPSE_DO(copse_arena_array(&c->scratch, (size_t)t->n_ranks, sizeof *moved, &moved, c->err));
  for (int r = 0; r < t->n_ranks; r++) {
    moved[r] = r - lost;
    lost += left->node_down[t->rank_nodes[r]];
  }
  for (int i = 0; i < t->n_nodes; i++) {
    struct copse_node node = t->nodes[i];
    c->number[i] = -1;
    if (left->node_down[i]) continue;
    if (node.rank >= 0) node.rank = moved[node.rank];
    COPSE_DO(copse_builder_add_node(c->builder, 0, &node, &c->number[i], c->err));
  }
  for (int i = 0; i < t->n_links; i++) {
    struct copse_q bandwidth;
    if (left->of_link[i].num == 0) continue;
    COPSE_DO(copse_q_mul(t->links[i].bandwidth, left->of_link[i], &bandwidth, c->err));
    COPSE_DO(add_link(c, i, bandwidth));
  }
  return COPSE_OK;
}

copse_status copse_topology_break(const struct copse_topology *topology, const char *label,
                                  const struct copse_fault *faults, int n_faults,
                                  struct copse_topology **out, struct copse_err *err) {
  struct copy c = {.from = topology, .err = err};
  struct left left = {0};
  copse_status status;
  *out = NULL;
  COPSE_TRY(start(&c));
  COPSE_TRY(measure(&c, label, faults, n_faults, &left));
  COPSE_TRY(name_broken(&c, faults, n_faults));
  COPSE_TRY(copy_rest(&c, &left));
  status = copse_builder_finish(c.builder, out, err);
out:
  end(&c);
  return status;
}

/* ---- a choice of ranks ------------------------------------------------------------------- */

struct list {
  const struct copse_topology *topology;
  const char *label;
  bool *taken; /* [n_nodes] */
  int *nodes;  /* [n_ranks] */
  int n;
  struct copse_err *err;
};

static copse_status take(struct list *l, int node) {
  if (l->taken[node])
    return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, 0,
                         "rank %d ('%.80s') twice in the list of ranks",
                         l->topology->nodes[node].rank, l->topology->nodes[node].id);
  l->taken[node] = true;
  l->nodes[l->n++] = node;
  return COPSE_OK;
}

/* "5" or "0-3". */
static bool read_range(const char *at, int64_t *first, int64_t *last) {
  if (!copse_text_number(&at, 9, first)) return false;
  *last = *first;
  return !*at || (*at++ == '-' && copse_text_number(&at, 9, last) && !*at);
}

static copse_status take_item(struct list *l, const char *item) {
  const struct copse_topology *t = l->topology;
  int64_t first, last;
  if (!read_range(item, &first, &last)) {
    int node = copse_topology_find(t, item);
    if (node >= 0 && t->nodes[node].rank >= 0) return take(l, node);
    return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, 0,
                         "\"%.80s\" in the list of ranks is %s; list ranks (0 to %d), ranges such "
                         "as 0-3, or ids of GPUs",
                         item, node < 0 ? "no node" : "no GPU", t->n_ranks - 1);
  }
  if (first > last)
    return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, 0,
                         "the range %.40s in the list of ranks runs backwards", item);
  if (last >= t->n_ranks)
    return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, 0,
                         "%.40s in the list of ranks; the topology has ranks 0 to %d", item,
                         t->n_ranks - 1);
  for (int64_t r = first; r <= last; r++) COPSE_DO(take(l, t->rank_nodes[r]));
  return COPSE_OK;
}

copse_status copse_topology_parse_ranks(const struct copse_topology *topology, const char *label,
                                        const char *list, int **nodes, int *n,
                                        struct copse_err *err) {
  struct list l = {.topology = topology, .label = label, .err = err};
  char *text = strdup(list), *rest = text, *item;
  copse_status status = text ? COPSE_OK : copse_fail_nomem(err);
  *nodes = NULL;
  *n = 0;
  if (status != COPSE_OK) return status;
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, sizeof *l.taken, &l.taken, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_ranks, sizeof *l.nodes, &l.nodes, err));
  while ((item = strsep(&rest, ","))) COPSE_TRY(take_item(&l, item));
  *nodes = l.nodes;
  *n = l.n;
  l.nodes = NULL;
out:
  free(l.taken);
  free(l.nodes);
  free(text);
  return status;
}

static copse_status copy_chosen(struct copy *c, const int *nodes, int n, bool exclude) {
  const struct copse_topology *t = c->from;
  int *rank; /* [n_nodes] */
  COPSE_DO(copse_arena_array(&c->scratch, (size_t)t->n_nodes, sizeof *rank, &rank, c->err));
  for (int i = 0; i < t->n_nodes; i++) rank[i] = -1;
  for (int r = 0; r < n; r++) rank[nodes[r]] = r;
  for (int i = 0; i < t->n_nodes; i++) {
    struct copse_node node = t->nodes[i];
    bool other = node.rank >= 0 && rank[i] < 0;
    c->number[i] = -1;
    if (other && exclude) continue;
    if (other) node.type = "relay";
    node.rank = rank[i];
    COPSE_DO(copse_builder_add_node(c->builder, 0, &node, &c->number[i], c->err));
  }
  for (int i = 0; i < t->n_links; i++) COPSE_DO(add_link(c, i, t->links[i].bandwidth));
  return COPSE_OK;
}

copse_status copse_topology_choose_ranks(const struct copse_topology *topology, const int *nodes,
                                         int n, bool exclude, struct copse_topology **out,
                                         struct copse_err *err) {
  struct copy c = {.from = topology, .err = err};
  char sha256[COPSE_SHA256_HEX];
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_topology_sha256(topology, sha256, err));
  COPSE_TRY(start(&c));
  COPSE_TRY(copy_chosen(&c, nodes, n, exclude));
  COPSE_TRY(copse_builder_set_choice(c.builder, sha256, exclude && n < topology->n_ranks, err));
  status = copse_builder_finish(c.builder, out, err);
out:
  end(&c);
  return status;
}

/* ---- relays that are out of balance -------------------------------------------------------- */

/* A relay's bandwidth in less that out. */
static copse_status surplus_of(const struct copse_topology *t, const struct copse_q *bandwidth,
                               int relay, struct copse_q *surplus, struct copse_err *err) {
  *surplus = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    if (t->links[i].dst == relay) COPSE_DO(copse_q_add(*surplus, bandwidth[i], surplus, err));
    if (t->links[i].src == relay) COPSE_DO(copse_q_sub(*surplus, bandwidth[i], surplus, err));
  }
  return COPSE_OK;
}

/* The link that gives: the widest of those from or to ranks, else of all. */
static int wide_link(const struct copse_topology *t, const struct copse_q *bandwidth, int relay,
                     bool in) {
  int best = -1;
  bool best_rank = false;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if ((in ? l->dst : l->src) != relay) continue;
    bool rank = t->nodes[in ? l->src : l->dst].rank >= 0;
    if (best >= 0 && (rank != best_rank ? !rank : copse_q_cmp(bandwidth[i], bandwidth[best]) <= 0))
      continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

/* One pass over all relays; *changed: some link has given. */
static copse_status balance_once(const struct copse_topology *t, struct copse_q *bandwidth,
                                 bool *changed, struct copse_err *err) {
  *changed = false;
  for (int v = 0; v < t->n_nodes; v++) {
    struct copse_q surplus, half;
    if (t->nodes[v].rank >= 0) continue;
    COPSE_DO(surplus_of(t, bandwidth, v, &surplus, err));
    if (surplus.num == 0) continue;
    int link = wide_link(t, bandwidth, v, surplus.num > 0);
    if (link < 0) return copse_fail(err, COPSE_UNSUPPORTED, "a relay without a way in or out");
    if (surplus.num < 0) COPSE_DO(copse_q_sub(COPSE_Q_ZERO, surplus, &surplus, err));
    COPSE_DO(copse_q_div(bandwidth[link], (struct copse_q){2, 1}, &half, err));
    if (copse_q_cmp(surplus, half) > 0) surplus = half;
    COPSE_DO(copse_q_sub(bandwidth[link], surplus, &bandwidth[link], err));
    *changed = true;
  }
  return COPSE_OK;
}

#define BALANCE_PASSES 64

copse_status copse_topology_balance(const struct copse_topology *topology,
                                    struct copse_topology **out, struct copse_err *err) {
  struct copy c = {.from = topology, .err = err};
  struct copse_q *bandwidth;
  bool changed = true;
  copse_status status;
  *out = NULL;
  COPSE_TRY(start(&c));
  COPSE_TRY(copse_arena_array(&c.scratch, (size_t)topology->n_links, sizeof *bandwidth, &bandwidth,
                              err));
  for (int i = 0; i < topology->n_links; i++) bandwidth[i] = topology->links[i].bandwidth;
  for (int pass = 0; changed && pass < BALANCE_PASSES; pass++)
    COPSE_TRY(balance_once(topology, bandwidth, &changed, err));
  if (changed)
    COPSE_TRY(copse_fail(err, COPSE_UNSUPPORTED, "its relays can't be balanced in a few steps"));
  for (int i = 0; i < topology->n_nodes; i++)
    COPSE_TRY(copse_builder_add_node(c.builder, 0, &topology->nodes[i], &c.number[i], err));
  for (int i = 0; i < topology->n_links; i++) COPSE_TRY(add_link(&c, i, bandwidth[i]));
  status = copse_builder_finish(c.builder, out, err);
out:
  end(&c);
  return status;
}
