/* Copies of a topology with something changed: a draft has nodes and links to write to, and what is
 * left of them is copied as if it had been read. */
#include "topology/modify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "topology/policy.h"
#include "topology/words.h"

/* A topology that is to be changed and copied. */
struct draft {
  struct copse_topology view; /* of these parts */
  struct copse_node *nodes;
  struct copse_link *links;
  struct copse_arena *arena;
  struct copse_err *err;
};

static copse_status start(struct draft *d, const struct copse_topology *from) {
  size_t nodes = (size_t)from->n_nodes, links = (size_t)from->n_links;
  COPSE_DO(COPSE_ARRAY(d->arena, nodes, d->nodes, d->err));
  COPSE_DO(COPSE_ARRAY(d->arena, links, d->links, d->err));
  memcpy(d->nodes, from->nodes, nodes * sizeof *d->nodes);
  if (links > 0) memcpy(d->links, from->links, links * sizeof *d->links);
  d->view = *from;
  d->view.nodes = d->nodes;
  d->view.links = d->links;
  return COPSE_OK;
}

/* ---- parts that are down or slow --------------------------------------------------------- */

/* Finds the ends in "SRC>DST". Ids may have ">" in them: the split is where both halves are
 * nodes. */
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

static copse_status scale(struct draft *d, int link, struct copse_q rate) {
  struct copse_q *bandwidth = &d->links[link].bandwidth;
  return copse_q_mul(*bandwidth, rate, bandwidth, d->err);
}

/* Refuses a link that does not exist, and names the end that is missing. */
static copse_status no_such_link(struct draft *d, const struct copse_topology *t, const char *label,
                                 char *what) {
  char *arrow = strchr(what, '>');
  const char *missing = what;
  if (!arrow)
    return copse_fail_at(d->err, COPSE_BAD_INPUT, label, 0,
                         "no node \"%.100s\", nor a link, which is SRC>DST%s", what,
                         COPSE_NEAR_ID(t, what));
  *arrow = '\0';
  if (copse_topology_find(t, what) >= 0) missing = arrow + 1;
  return copse_fail_at(d->err, COPSE_BAD_INPUT, label, 0, "no node \"%.100s\" that a link joins%s",
                       missing, COPSE_NEAR_ID(t, missing));
}

static copse_status break_link(struct draft *d, const struct copse_topology *t, const char *label,
                               const struct copse_fault *fault) {
  int src, dst;
  char *what;
  COPSE_DO(COPSE_ARRAY(d->arena, strlen(fault->what) + 1, what, d->err));
  if (!find_ends(t, strcpy(what, fault->what), &src, &dst)) return no_such_link(d, t, label, what);
  int there = copse_topology_find_link(t, src, dst), back = copse_topology_find_link(t, dst, src);
  if (there < 0)
    return copse_fail_at(d->err, COPSE_BAD_INPUT, label, 0, "no link from \"%.80s\" to \"%.80s\"%s",
                         t->nodes[src].id, t->nodes[dst].id,
                         back < 0 ? "" : ", only the other way round");
  COPSE_DO(scale(d, there, fault->left));
  return back < 0 ? COPSE_OK : scale(d, back, fault->left);
}

static copse_status break_node(struct draft *d, const struct copse_topology *t, int node,
                               struct copse_q left) {
  if (left.num == 0) d->nodes[node].id = NULL;
  for (int i = 0; i < t->n_links; i++)
    if (t->links[i].src == node || t->links[i].dst == node) COPSE_DO(scale(d, i, left));
  return COPSE_OK;
}

static copse_status break_part(struct draft *d, const struct copse_topology *t, const char *label,
                               const struct copse_fault *fault) {
  int node = copse_topology_find(t, fault->what), n = 0;
  if (node >= 0) return break_node(d, t, node, fault->left);
  for (int v = 0; copse_id_is_pattern(fault->what) && v < t->n_nodes; v++) {
    if (!copse_id_matches(fault->what, t->nodes[v].id)) continue;
    COPSE_DO(break_node(d, t, v, fault->left));
    n++;
  }
  return n > 0 ? COPSE_OK : break_link(d, t, label, fault);
}

/* Moves up the ranks behind a GPU that is down. */
static copse_status close_ranks(struct draft *d) {
  int lost = 0, *moved; /* [n_ranks] what a rank becomes */
  COPSE_DO(COPSE_ARRAY(d->arena, (size_t)d->view.n_ranks, moved, d->err));
  for (int r = 0; r < d->view.n_ranks; r++) {
    moved[r] = r - lost;
    lost += d->nodes[d->view.rank_nodes[r]].id == NULL;
  }
  for (int v = 0; v < d->view.n_nodes; v++)
    if (d->nodes[v].rank >= 0) d->nodes[v].rank = moved[d->nodes[v].rank];
  return COPSE_OK;
}

COPSE_ORDER(by_name, struct copse_fault, strcmp(a->what, b->what) ?: copse_q_cmp(a->left, b->left))

/* Drops from sorted faults what is down twice; what is slow twice is slower. */
static int drop_twice(struct copse_fault *faults, int n) {
  int kept = 0;
  for (int f = 0; f < n; f++)
    if (f == 0 || faults[f].left.num != 0 || by_name(&faults[f - 1], &faults[f]) != 0)
      faults[kept++] = faults[f];
  return kept;
}

/* "a100-x2 without h0.nic3, with h1.nic0 at 50%": plans and logs show nothing else of it. In
 * whatever order the faults are given, since the name is part of the checksum. */
static copse_status name_broken(struct draft *d, const struct copse_fault *given, int n,
                                struct copse_text *name) {
  struct copse_q percent, hundred = {100, 1};
  struct copse_fault *faults;
  char text[COPSE_Q_TEXT];
  COPSE_DO(COPSE_ARRAY(d->arena, (size_t)n, faults, d->err));
  if (n > 0) memcpy(faults, given, (size_t)n * sizeof *faults);
  COPSE_SORT(faults, n, by_name);
  n = drop_twice(faults, n);
  copse_text_add(name, "%s", d->view.name);
  for (int f = 0; f < n && f < COPSE_TOPOLOGY_NAMED_FAULTS; f++) {
    copse_text_add(name, "%s %s %s", f > 0 ? "," : "", faults[f].left.num ? "with" : "without",
                   faults[f].what);
    if (faults[f].left.num == 0) continue;
    COPSE_DO(copse_q_mul(faults[f].left, hundred, &percent, d->err));
    copse_text_add(name, " at %s%%", copse_q_text(percent, text));
  }
  int more = n - COPSE_TOPOLOGY_NAMED_FAULTS;
  if (more > 0) copse_text_add(name, " and %d more fault%s", more, COPSE_S(more));
  d->view.name = name->data;
  return copse_text_status(name, d->err);
}

copse_status copse_topology_break(const struct copse_topology *topology, const char *label,
                                  const struct copse_fault *faults, int n_faults,
                                  struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_AT_END(copse_text_free) struct copse_text name = {0};
  struct draft d = {.arena = &arena, .err = err};
  *out = NULL;
  COPSE_DO(start(&d, topology));
  d.view.chosen_from = NULL;
  d.view.others_excluded = false;
  for (int f = 0; f < n_faults; f++) COPSE_DO(break_part(&d, topology, label, &faults[f]));
  COPSE_DO(close_ranks(&d));
  COPSE_DO(name_broken(&d, faults, n_faults, &name));
  return copse_topology_copy(&d.view, topology->name, out, err);
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

/* Reads "5" or "0-3". */
static bool read_range(const char *at, int64_t *first, int64_t *last) {
  if (!copse_text_number(&at, 9, first)) return false;
  *last = *first;
  return !*at || (*at++ == '-' && copse_text_number(&at, 9, last) && !*at);
}

static copse_status take_matching(struct list *l, const char *pattern) {
  const struct copse_topology *t = l->topology;
  int before = l->n;
  for (int r = 0; r < t->n_ranks; r++)
    if (copse_id_matches(pattern, t->nodes[t->rank_nodes[r]].id))
      COPSE_DO(take(l, t->rank_nodes[r]));
  if (l->n > before) return COPSE_OK;
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, 0,
                       "no GPU's id matches \"%.80s\" in the list of ranks; 'copse topo TOPO --ids "
                       "gpu' lists them",
                       pattern);
}

static copse_status take_item(struct list *l, const char *item) {
  const struct copse_topology *t = l->topology;
  int64_t first, last;
  if (!read_range(item, &first, &last)) {
    int node = copse_topology_find(t, item);
    if (node >= 0 && t->nodes[node].rank >= 0) return take(l, node);
    if (copse_id_is_pattern(item)) return take_matching(l, item);
    return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, 0,
                         "\"%.80s\" in the list of ranks is %s; list ranks (0 to %d), ranges such "
                         "as 0-3, or ids of GPUs%s",
                         item, node < 0 ? "no node" : "no GPU", t->n_ranks - 1,
                         node < 0 ? COPSE_NEAR_ID(t, item) : "");
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
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(copse_free_at) int *chosen = NULL;
  char *rest, *item;
  *nodes = NULL;
  *n = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, strlen(list) + 1, rest, err));
  strcpy(rest, list);
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)topology->n_nodes, l.taken, err));
  COPSE_DO(copse_calloc((size_t)topology->n_ranks, sizeof *chosen, &chosen, err));
  l.nodes = chosen;
  while ((item = strsep(&rest, ","))) COPSE_DO(take_item(&l, item));
  *nodes = l.nodes;
  *n = l.n;
  chosen = NULL;
  return COPSE_OK;
}

copse_status copse_topology_choose_ranks(const struct copse_topology *topology, const int *nodes,
                                         int n, bool exclude, struct copse_topology **out,
                                         struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct draft d = {.arena = &arena, .err = err};
  char sha256[COPSE_SHA256_HEX];
  *out = NULL;
  COPSE_DO(copse_topology_sha256(topology, sha256, err));
  COPSE_DO(start(&d, topology));
  d.view.chosen_from = sha256;
  d.view.others_excluded = exclude && n < topology->n_ranks;
  for (int v = 0; v < topology->n_nodes; v++) d.nodes[v].rank = -1;
  for (int r = 0; r < n; r++) d.nodes[nodes[r]].rank = r;
  for (int r = 0; r < topology->n_ranks; r++) {
    struct copse_node *node = &d.nodes[topology->rank_nodes[r]];
    if (node->rank >= 0) continue;
    node->type = "relay";
    if (exclude) node->id = NULL;
  }
  return copse_topology_copy(&d.view, topology->name, out, err);
}

copse_status copse_topology_unmark(const struct copse_topology *topology,
                                   struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct draft d = {.arena = &arena, .err = err};
  *out = NULL;
  COPSE_DO(start(&d, topology));
  for (int v = 0; v < topology->n_nodes; v++) d.nodes[v].multicast = d.nodes[v].aggregation = false;
  return copse_topology_copy(&d.view, topology->name, out, err);
}

copse_status copse_topology_changed(const struct copse_topology *topology, const char *label,
                                    const struct copse_change *change, struct copse_topology **out,
                                    struct copse_err *err) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *left = NULL;
  COPSE_AT_END(copse_free_at) int *nodes = NULL;
  int n;
  *out = NULL;
  if (!change->ranks)
    return copse_topology_break(topology, label, change->faults, change->n_faults, out, err);
  COPSE_DO(copse_topology_break(topology, label, change->faults, change->n_faults, &left, err));
  COPSE_DO(copse_topology_parse_ranks(topology, label, change->ranks, &nodes, &n, err));
  for (int r = 0; r < n; r++) {
    const char *id = topology->nodes[nodes[r]].id;
    nodes[r] = copse_topology_find(left, id);
    if (nodes[r] < 0)
      return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                           "'%.80s' can't be down and one of the ranks", id);
  }
  return copse_topology_choose_ranks(left, nodes, n, change->exclude, out, err);
}

/* ---- relays that are out of balance -------------------------------------------------------- */

/* Computes a relay's bandwidth in less that out. */
static copse_status surplus_of(const struct copse_topology *t, const struct copse_q *bandwidth,
                               int relay, struct copse_q *surplus, struct copse_err *err) {
  *surplus = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    if (t->links[i].dst == relay) COPSE_DO(copse_q_add(*surplus, bandwidth[i], surplus, err));
    if (t->links[i].src == relay) COPSE_DO(copse_q_sub(*surplus, bandwidth[i], surplus, err));
  }
  return COPSE_OK;
}

/* Chooses the link that gives: the widest of those from or to ranks, else of all. */
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

/* Visits every relay once; where more comes in than goes out, or less, reduces the widest link on
 * that side. *changed: some link was reduced. */
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

copse_status copse_topology_balance(const struct copse_topology *topology,
                                    struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct draft d = {.arena = &arena, .err = err};
  struct copse_q *bandwidth;
  bool changed = true;
  *out = NULL;
  COPSE_DO(start(&d, topology));
  COPSE_DO(COPSE_ARRAY(d.arena, (size_t)topology->n_links, bandwidth, err));
  for (int i = 0; i < topology->n_links; i++) bandwidth[i] = topology->links[i].bandwidth;
  for (int pass = 0; changed && pass < BALANCE_PASSES; pass++)
    COPSE_DO(balance_once(topology, bandwidth, &changed, err));
  if (changed)
    return copse_fail(err, COPSE_UNSUPPORTED, "its relays can't be balanced in a few steps");
  for (int i = 0; i < topology->n_links; i++) d.links[i].bandwidth = bandwidth[i];
  d.view.chosen_from = NULL;
  return copse_topology_copy(&d.view, topology->name, out, err);
}

/* ---- few peers at a switch ----------------------------------------------------------------- */

struct hub {
  int n;                    /* GPUs, 0: it is not such a switch */
  int *members;             /* [n] nodes */
  struct copse_q bandwidth; /* of each, both ways */
};

/* Finds the GPUs of a relay that joins GPUs alone, all alike, over the links of the topology. */
static copse_status find_hub(const struct copse_topology *t, int relay, struct copse_arena *arena,
                             struct hub *hub, struct copse_err *err) {
  *hub = (struct hub){0};
  if (t->nodes[relay].rank >= 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)t->n_ranks, hub->members, err));
  int in = 0;
  bool alike = true;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    if (l->src != relay && l->dst != relay) continue;
    if (in == 0 && hub->n == 0) hub->bandwidth = l->bandwidth;
    alike = alike && t->nodes[l->src == relay ? l->dst : l->src].rank >= 0 &&
            copse_q_eq(l->bandwidth, hub->bandwidth);
    in += l->dst == relay;
    if (alike && l->src == relay) hub->members[hub->n++] = l->dst;
    alike = alike && copse_topology_find_link(t, l->dst, l->src) >= 0;
  }
  if (!alike || in != hub->n) hub->n = 0;
  return COPSE_OK;
}

/* Returns how many units a bandwidth has of which all others are multiples; 1 where that leaves 64
 * bits. */
static int64_t units_of(const struct copse_topology *t, struct copse_q bandwidth) {
  int64_t common = 1, unit = 0, amount;
  for (int e = 0; e < t->n_links; e++)
    if (copse_lcm(common, t->links[e].bandwidth.den, &common, NULL) != COPSE_OK) return 1;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_q b = t->links[e].bandwidth;
    if (copse_mul_overflows(b.num, common / b.den, &amount)) return 1;
    unit = copse_gcd(unit, amount);
  }
  return bandwidth.num * (common / bandwidth.den) / unit;
}

/* Takes the distances that are a digit of a number below n; returns how many there are. */
static int take_digits(int n, int digits, bool *taken) {
  int radix = 2, count = 0;
  for (int64_t power = 1; radix < n; radix++) {
    power = 1;
    for (int i = 0; i < digits && power < n; i++) power *= radix;
    if (power >= n) break;
  }
  memset(taken, 0, (size_t)n * sizeof *taken);
  for (int64_t base = 1; base < n; base *= radix)
    for (int64_t at = base; at < n && at < base * radix; at += base) {
      taken[at] = true;
      count++;
    }
  return count;
}

/* Takes so many distances of 1 .. n-1, 1 among them: those of a number's digits, of which few make
 * every distance, then others. */
static void take_distances(int n, int peers, bool *taken) {
  int count = n, digits = 2;
  for (; count > peers && 1 << (digits - 2) < n; digits++) count = take_digits(n, digits, taken);
  for (int x = n - 1; count > peers; x--) {
    count -= taken[x];
    taken[x] = false;
  }
  for (int x = 1; count < peers; x++) {
    count += !taken[x];
    taken[x] = true;
  }
}

/* Puts links from GPU to GPU in place of those of a switch, which get no bandwidth. */
static copse_status open_hub(struct draft *d, const struct hub *hub, int relay, int peers) {
  bool *taken;
  struct copse_q each;
  COPSE_DO(COPSE_ARRAY(d->arena, (size_t)hub->n, taken, d->err));
  COPSE_DO(copse_q_div(hub->bandwidth, (struct copse_q){peers, 1}, &each, d->err));
  take_distances(hub->n, peers, taken);
  for (int e = 0; e < d->view.n_links; e++)
    if (d->links[e].src == relay || d->links[e].dst == relay) d->links[e].bandwidth = COPSE_Q_ZERO;
  d->nodes[relay].id = NULL; /* left out */
  for (int i = 0; i < hub->n; i++)
    for (int x = 1; x < hub->n; x++)
      if (taken[x])
        d->links[d->view.n_links++] = (struct copse_link){
            .src = hub->members[i], .dst = hub->members[(i + x) % hub->n], .bandwidth = each};
  return COPSE_OK;
}

/* Leaves a relay that GPUs share, such as a NIC, to one of them, that with the fewest such, where
 * it has as much bandwidth there as its other links have. */
static copse_status leave_to_one(struct draft *d, const struct copse_topology *t, int relay,
                                 int *served, bool *changed) {
  struct copse_q in = COPSE_Q_ZERO, out = COPSE_Q_ZERO;
  int n = 0, kept = -1;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    if (l->dst == relay && t->nodes[l->src].rank < 0)
      COPSE_DO(copse_q_add(in, l->bandwidth, &in, d->err));
    if (l->src == relay && t->nodes[l->dst].rank < 0)
      COPSE_DO(copse_q_add(out, l->bandwidth, &out, d->err));
  }
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    if (l->src != relay || t->nodes[l->dst].rank < 0) continue;
    int back = copse_topology_find_link(t, l->dst, relay);
    n++;
    if (back < 0 || copse_q_cmp(l->bandwidth, in) < 0 ||
        copse_q_cmp(t->links[back].bandwidth, out) < 0 ||
        !copse_q_eq(l->bandwidth, t->links[back].bandwidth))
      continue;
    if (kept < 0 || served[l->dst] < served[kept]) kept = l->dst;
  }
  if (kept < 0 || n < 2 || in.num == 0 || out.num == 0) return COPSE_OK;
  served[kept]++;
  *changed = true;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    int other = l->src == relay ? l->dst : l->dst == relay ? l->src : kept;
    if (other != kept && t->nodes[other].rank >= 0) d->links[e].bandwidth = COPSE_Q_ZERO;
  }
  return COPSE_OK;
}

copse_status copse_topology_sparse(const struct copse_topology *topology, int most, int *peers,
                                   struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct draft d = {.arena = &arena, .err = err};
  struct copse_link *links;
  struct hub hub;
  bool changed = false;
  int *served;
  *out = NULL;
  *peers = 0;
  COPSE_DO(start(&d, topology));
  COPSE_DO(COPSE_ARRAY(d.arena, (size_t)topology->n_nodes, served, err));
  size_t room = (size_t)topology->n_links * (size_t)(most + 1);
  COPSE_DO(COPSE_ARRAY(d.arena, room, links, err));
  memcpy(links, d.links, (size_t)topology->n_links * sizeof *links);
  d.view.links = d.links = links;
  for (int v = 0; v < topology->n_nodes; v++) {
    COPSE_DO(find_hub(topology, v, d.arena, &hub, err));
    int n = hub.n - 1 < most ? hub.n - 1 : most;
    int64_t units = hub.n > 0 ? units_of(topology, hub.bandwidth) : 1;
    while (hub.n - 1 > most && n > 1 && units % n != 0 && n % units != 0) n--;
    if (hub.n - 1 > most) COPSE_DO(open_hub(&d, &hub, v, n));
    changed = changed || hub.n - 1 > most;
    if (n > *peers) *peers = n;
    if (topology->nodes[v].rank < 0) COPSE_DO(leave_to_one(&d, topology, v, served, &changed));
  }
  d.view.chosen_from = NULL;
  return changed ? copse_topology_copy(&d.view, topology->name, out, err) : COPSE_OK;
}
