/*
 * From a topology to the solver's network, and from its symmetries to permutations of nodes and
 * links (docs/theory.md, "src/schedule").
 *
 *   bandwidths 25, 12.5 GB/s, 1/3  --times the LCM of the denominators, 6-->  capacities 150, 75, 2
 *
 * For bounds of one message size also delays, in one unit of time, and the sets of ranks that few
 * links join.
 */
#include "schedule/solve/instance.h"

#include <stdlib.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/types.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/solve.h"

static copse_status refuse_unbalanced(const struct copse_topology *topology, const char *label,
                                      struct copse_err *err) {
  int node;
  struct copse_q in, out;
  char in_text[COPSE_Q_TEXT], out_text[COPSE_Q_TEXT];
  copse_status status = copse_topology_find_unbalanced(topology, &node, &in, &out, err);
  if (status != COPSE_OK || node < 0) return status;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "relay '%s' takes in %s GB/s and lets out %s GB/s; trees need them equal",
                       topology->nodes[node].id, copse_q_text(in, in_text),
                       copse_q_text(out, out_text));
}

static copse_status scale_links(const struct copse_topology *topology, bool reversed,
                                struct copse_instance *instance, struct copse_err *err) {
  instance->scale = 1;
  for (int i = 0; i < topology->n_links; i++)
    COPSE_DO(copse_lcm(instance->scale, topology->links[i].bandwidth.den, &instance->scale, err));
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    struct copse_net_link *out = &instance->links[i];
    out->src = reversed ? link->dst : link->src;
    out->dst = reversed ? link->src : link->dst;
    if (copse_mul_overflows(link->bandwidth.num, instance->scale / link->bandwidth.den,
                            &out->capacity))
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths need more than 63 bits once brought to a common "
                        "denominator; use fewer digits");
  }
  return COPSE_OK;
}

static copse_status make(const struct copse_topology *topology, bool reversed,
                         struct copse_instance *out, struct copse_err *err) {
  size_t links = (size_t)topology->n_links, ranks = (size_t)topology->n_ranks;
  *out = (struct copse_instance){0};
  COPSE_DO(COPSE_ARRAY(&out->arena, links, out->links, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, ranks, out->roots, err));
  COPSE_DO(scale_links(topology, reversed, out, err));
  out->network = (struct copse_network){
      .n_nodes = topology->n_nodes,
      .n_links = topology->n_links,
      .n_terminals = topology->n_ranks,
      .links = out->links,
      .terminals = topology->rank_nodes,
      .roots = out->roots,
  };
  return COPSE_OK;
}

copse_status copse_instance_make(const struct copse_topology *topology, const char *label, int root,
                                 bool reversed, struct copse_instance *out, struct copse_err *err) {
  *out = (struct copse_instance){0};
  COPSE_DO(refuse_unbalanced(topology, label, err));
  COPSE_DO(make(topology, reversed, out, err));
  for (int r = 0; r < topology->n_ranks; r++)
    if (root < 0 || r == root)
      out->roots[out->network.n_roots++] = (struct copse_net_root){topology->rank_nodes[r], 1};
  return COPSE_OK;
}

copse_status copse_instance_scale(const struct copse_topology *topology, struct copse_instance *out,
                                  struct copse_err *err) {
  return make(topology, false, out, err);
}

bool copse_is_symmetric(const struct copse_topology *topology) {
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    int back = copse_topology_find_link(topology, link->dst, link->src);
    if (back < 0 || !copse_q_eq(topology->links[back].bandwidth, link->bandwidth)) return false;
  }
  for (int i = 0; i < topology->n_nodes; i++)
    if (topology->nodes[i].multicast != topology->nodes[i].aggregation) return false;
  return true;
}

void copse_instance_free(struct copse_instance *instance) {
  copse_arena_free(&instance->arena);
  *instance = (struct copse_instance){0};
}

copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_symmetry *out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_node_set *sets;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, sets, err));
  for (int g = 0; g < n; g++)
    sets[g] = (struct copse_node_set){.kind = (int)groups[g].collective,
                                      .root = groups[g].root,
                                      .n = groups[g].n,
                                      .nodes = groups[g].nodes};
  return copse_topology_set_symmetries(topology, sets, n, out, err);
}

copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_symmetry *out, struct copse_err *err) {
  const struct copse_group all = {.collective = COPSE_ALLREDUCE,
                                  .root = -1,
                                  .nodes = (int *)topology->rank_nodes,
                                  .n = topology->n_ranks};
  return copse_groups_symmetries(topology, &all, 1, out, err);
}

/* ---- links that take time ------------------------------------------------------------------- */

static copse_status set_delays(struct copse_timed_instance *out, struct copse_q alpha_us,
                               struct copse_err *err) {
  const struct copse_topology *t = out->topology;
  out->delay_scale = alpha_us.den;
  for (int e = 0; e < t->n_links; e++)
    COPSE_DO(copse_lcm(out->delay_scale, t->links[e].latency.den, &out->delay_scale, err));
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_net_link *l = &out->instance.links[e];
    struct copse_q us = t->links[e].latency;
    if (t->nodes[t->links[e].dst].rank >= 0) COPSE_DO(copse_q_add(us, alpha_us, &us, err));
    if (copse_mul_overflows(us.num, out->delay_scale / us.den, &out->delay[e]) ||
        out->delay[e] > COPSE_LENGTH_MAX)
      return copse_fail(err, COPSE_OVERFLOW,
                        "the latencies need more than 36 bits once brought to a common "
                        "denominator; use fewer digits");
    out->links[e] = (struct copse_quickest_link){l->src, l->dst, l->capacity, out->delay[e]};
  }
  return COPSE_OK;
}

copse_status copse_timed_instance_make(const struct copse_topology *topology,
                                       struct copse_q alpha_us, bool reversed,
                                       struct copse_timed_instance *out, struct copse_err *err) {
  size_t n = (size_t)topology->n_links;
  *out = (struct copse_timed_instance){.topology = topology};
  COPSE_DO(make(topology, reversed, &out->instance, err));
  COPSE_DO(copse_arena_array(&out->arena, n, sizeof *out->links, &out->links, err));
  COPSE_DO(copse_arena_array(&out->arena, n, sizeof *out->delay, &out->delay, err));
  COPSE_DO(set_delays(out, alpha_us, err));
  COPSE_DO(
      copse_quickest_new(topology->n_nodes, out->links, topology->n_links, &out->quickest, err));
  COPSE_DO(copse_shortest_prepare(&out->instance.network, &out->arena, &out->shortest, err));
  return copse_timed_nearest(out, -1, &out->nearest, err);
}

void copse_timed_instance_free(struct copse_timed_instance *instance) {
  copse_quickest_free(instance->quickest);
  copse_instance_free(&instance->instance);
  copse_arena_free(&instance->arena);
}

/* Finds the least delays by correcting labels until they settle (Bellman 1958, Ford 1956, Moore
 * 1959). */
copse_status copse_timed_nearest(struct copse_timed_instance *instance, int root, int64_t **out,
                                 struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  int64_t *least;
  bool changed = true;
  COPSE_DO(copse_arena_array(&instance->arena, (size_t)t->n_nodes, sizeof *least, &least, err));
  for (int v = 0; v < t->n_nodes; v++) {
    int rank = t->nodes[v].rank;
    least[v] = rank >= 0 && (root < 0 || rank == root) ? 0 : INT64_MAX;
  }
  while (changed) {
    changed = false;
    for (int e = 0; e < t->n_links; e++) {
      const struct copse_quickest_link *l = &instance->links[e];
      if (least[l->src] == INT64_MAX || least[l->src] + l->delay >= least[l->dst]) continue;
      least[l->dst] = least[l->src] + l->delay;
      changed = true;
    }
  }
  *out = least;
  return COPSE_OK;
}

struct keyed {
  int64_t key;
  int link;
};

COPSE_ORDER(by_key, struct keyed, COPSE_UP(key) ?: COPSE_UP(link))

__extension__ typedef __int128 wide;

/* A partition: what the first `end` links join, each at least as wide, or as quick, as the last. */
struct level {
  int64_t key, next; /* of its last link, and of the one that changes it; negative: of widths */
  int end, parts, covered; /* parts that have ranks, and the nodes in them */
};

/* Compares by how much narrower, or later, the next link is. */
static int compare_drops(const struct level *a, const struct level *b) {
  wide of_a = (wide)a->next * b->key, of_b = (wide)b->next * a->key;
  return a->key < 0 ? COPSE_COMPARE(of_a, of_b) : COPSE_COMPARE(of_b, of_a);
}

COPSE_ORDER(by_drop, struct level, compare_drops(a, b) ?: COPSE_UP(end))
COPSE_ORDER(by_end, struct level, COPSE_UP(end))

/* Sets of nodes that links join; of each set's name its nodes and ranks. */
struct joined {
  int *parent, *nodes, *ranks, parts, covered;
};

static copse_status start_joining(const struct copse_topology *t, struct copse_arena *arena,
                                  struct joined *j, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAYS(arena, (size_t)t->n_nodes, int, err, &j->parent, &j->nodes, &j->ranks));
  copse_sets_init(j->parent, t->n_nodes);
  for (int v = 0; v < t->n_nodes; v++) {
    j->nodes[v] = 1;
    j->ranks[v] = t->nodes[v].rank >= 0;
  }
  j->parts = j->covered = t->n_ranks;
  return COPSE_OK;
}

static void join(struct joined *j, const struct copse_link *link) {
  int a = copse_sets_find(j->parent, link->src), b = copse_sets_find(j->parent, link->dst);
  if (!copse_sets_unite(j->parent, a, b)) return;
  int to = copse_smaller(a, b), gone = a + b - to;
  if (j->ranks[to] == 0)
    j->covered += j->ranks[gone] > 0 ? j->nodes[to] : 0;
  else if (j->ranks[gone] == 0)
    j->covered += j->nodes[gone];
  else
    j->parts--;
  j->nodes[to] += j->nodes[gone];
  j->ranks[to] += j->ranks[gone];
}

/* Joins links by keys [n_links], the least first, and lists each partition. */
static copse_status find_levels(const struct copse_topology *t, const struct keyed *keyed,
                                struct level *levels, int *n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct joined j;
  struct level now = {.parts = t->n_ranks, .covered = t->n_ranks};
  COPSE_DO(start_joining(t, &scratch, &j, err));
  *n = 0;
  for (int e = 0; e < t->n_links && j.parts > 1;) {
    int64_t key = keyed[e].key;
    for (; e < t->n_links && keyed[e].key == key; e++) join(&j, &t->links[keyed[e].link]);
    if (j.parts == now.parts && j.covered == now.covered) continue;
    if (*n > 0) levels[*n - 1].next = key;
    now = (struct level){key, key < 0 ? 0 : INT64_MAX, e, j.parts, j.covered};
    if (j.parts == 1) break;
    levels[(*n)++] = now;
  }
  return COPSE_OK;
}

/* Lists the partitions after which the next links are the least alike: where all links differ a
 * little, most partitions are one link apart. */
static copse_status list_levels(struct copse_timed_instance *instance, const struct keyed *keyed,
                                int most, int **levels, int *n, struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct level *found;
  struct joined j;
  int n_found;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_links, found, err));
  COPSE_DO(find_levels(t, keyed, found, &n_found, err));
  COPSE_SORT(found, n_found, by_drop);
  if (n_found > most) n_found = most;
  COPSE_SORT(found, n_found, by_end);
  COPSE_DO(start_joining(t, &scratch, &j, err));
  for (int i = 0, e = 0; i < n_found; i++) {
    int *set;
    for (; e < found[i].end; e++) join(&j, &t->links[keyed[e].link]);
    COPSE_DO(copse_arena_array(&instance->arena, (size_t)t->n_nodes, sizeof *set, &set, err));
    for (int v = 0; v < t->n_nodes; v++) {
      int name = copse_sets_find(j.parent, v);
      set[v] = j.ranks[name] > 0 ? name : -1;
    }
    levels[(*n)++] = set;
  }
  return COPSE_OK;
}

/* Counts links from the nearest rank to each node, either way; INT64_MAX: none lead there. */
static void count_hops(const struct copse_topology *t, int64_t *hops) {
  bool changed = true;
  for (int v = 0; v < t->n_nodes; v++) hops[v] = t->nodes[v].rank >= 0 ? 0 : INT64_MAX;
  while (changed) {
    changed = false;
    for (int e = 0; e < t->n_links; e++) {
      int64_t *a = &hops[t->links[e].src], *b = &hops[t->links[e].dst];
      if (*a < INT64_MAX && *a + 1 < *b) *b = *a + 1, changed = true;
      if (*b < INT64_MAX && *b + 1 < *a) *a = *b + 1, changed = true;
    }
  }
}

copse_status copse_timed_parts(struct copse_timed_instance *instance, int most, int ***levels,
                               int *n, int *n_by_hops, struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  size_t n_links = (size_t)t->n_links;
  COPSE_AT_END(copse_free_at) struct keyed *keyed = NULL;
  COPSE_AT_END(copse_free_at) int64_t *hops = NULL;
  *n = 0;
  COPSE_DO(copse_arena_array(&instance->arena, 3 * (size_t)most, sizeof **levels, levels, err));
  COPSE_DO(copse_calloc(n_links, sizeof *keyed, &keyed, err));
  COPSE_DO(copse_calloc((size_t)t->n_nodes, sizeof *hops, &hops, err));
  count_hops(t, hops);
  for (int by = 0; by < 3; by++) {
    for (size_t e = 0; e < n_links; e++) {
      int64_t a = hops[t->links[e].src], b = hops[t->links[e].dst];
      int64_t keys[] = {-instance->links[e].capacity, instance->delay[e], a > b ? a : b};
      keyed[e] = (struct keyed){keys[by], (int)e};
    }
    COPSE_SORT(keyed, n_links, by_key);
    *n_by_hops = *n;
    COPSE_DO(list_levels(instance, keyed, most, *levels, n, err));
  }
  *n_by_hops = *n - *n_by_hops;
  return COPSE_OK;
}

/* ---- questions ---------------------------------------------------------------------------------
 */

struct candidate {
  int node;
  int64_t width; /* of links at it */
};

COPSE_ORDER(by_width, struct candidate, COPSE_UP(width) ?: COPSE_UP(node))

/* Adds capacities of the links at each node, as far as they fit. */
static void add_widths(const struct copse_timed_instance *instance, int64_t *width) {
  for (int e = 0; e < instance->topology->n_links; e++) {
    const struct copse_quickest_link *l = &instance->links[e];
    if (copse_add_overflows(width[l->src], l->capacity, &width[l->src])) width[l->src] = INT64_MAX;
    if (copse_add_overflows(width[l->dst], l->capacity, &width[l->dst])) width[l->dst] = INT64_MAX;
  }
}

copse_status copse_timed_asked(struct copse_timed_instance *instance, int **asked, int *n_asked,
                               struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  COPSE_AT_END(copse_symmetry_free) struct copse_symmetry symmetry = {0};
  struct candidate *candidates;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int64_t *width;
  int *orbit, n = 0;
  int most = t->n_ranks <= COPSE_SYMMETRY_RANKS ? COPSE_BOUND_RANKS : COPSE_BOUND_RANKS_OF_MANY;
  COPSE_DO(copse_arena_array(&instance->arena, (size_t)t->n_ranks, sizeof **asked, asked, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks, candidates, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_nodes, width, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks, orbit, err));
  if (t->n_ranks > COPSE_BOUND_ALL_RANKS && t->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_DO(copse_topology_symmetry(t, &symmetry, err));
  add_widths(instance, width);
  copse_sets_init(orbit, t->n_ranks);
  for (int g = 0; g < symmetry.n + symmetry.n_others; g++)
    for (int r = 0; r < t->n_ranks; r++)
      copse_sets_unite(orbit, r, t->nodes[symmetry.generators[g].image[t->rank_nodes[r]]].rank);
  for (int r = 0; r < t->n_ranks; r++)
    if (orbit[r] == r)
      candidates[n++] = (struct candidate){t->rank_nodes[r], width[t->rank_nodes[r]]};
  COPSE_SORT(candidates, n, by_width);
  *n_asked = n < most ? n : most;
  int narrow = n <= most ? n : most / 2;
  for (int i = 0; i < *n_asked; i++) {
    int place = i;
    if (i >= narrow)
      place = narrow + (int)((int64_t)(i - narrow) * (n - narrow) / (*n_asked - narrow));
    (*asked)[i] = candidates[place].node;
  }
  return COPSE_OK;
}

static int64_t sum_of(int64_t a, int64_t b) {
  return a < COPSE_DELAY_MAX && b < COPSE_DELAY_MAX - a ? a + b : COPSE_DELAY_MAX;
}

void copse_timed_messages(const struct copse_timed_instance *instance,
                          const struct copse_timed_instance *turned, const int *part, int64_t *any,
                          int64_t *cross) {
  int64_t leaving = COPSE_DELAY_MAX, entering = COPSE_DELAY_MAX;
  *any = *cross = COPSE_DELAY_MAX;
  for (int e = 0; e < instance->topology->n_links; e++) {
    const struct copse_quickest_link *l = &instance->links[e];
    int from = part[l->src], to = part[l->dst];
    int64_t by_here = sum_of(instance->nearest[l->src], l->delay),
            from_here = sum_of(l->delay, turned->nearest[l->dst]),
            whole = sum_of(by_here, turned->nearest[l->dst]);
    *any = copse_smaller(*any, whole);
    if (from >= 0 && to >= 0 && from != to) *cross = copse_smaller(*cross, whole);
    if (from >= 0 && to < 0) leaving = copse_smaller(leaving, by_here);
    if (from < 0 && to >= 0) entering = copse_smaller(entering, from_here);
  }
  *cross = copse_smaller(*cross, sum_of(leaving, entering));
}

COPSE_ORDER(by_window, struct copse_window, COPSE_UP(key) ?: COPSE_UP(weight))

copse_status copse_windows_make(struct copse_timed_instance *instance,
                                const struct copse_timed_instance *turned, const int64_t *length,
                                struct copse_windows *out, struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  size_t n_links = (size_t)t->n_links;
  *out = (struct copse_windows){0};
  COPSE_DO(copse_arena_array(&instance->arena, n_links, sizeof *out->list, &out->list, err));
  bool fits = true;
  for (int e = 0; e < t->n_links; e++) {
    int64_t opens = instance->nearest[t->links[e].src], closes = turned->nearest[t->links[e].dst];
    struct copse_window *w = &out->list[out->n];
    if (length[e] == 0) continue;
    fits = fits && opens < COPSE_DELAY_MAX && closes < COPSE_DELAY_MAX &&
           !copse_mul_overflows(length[e], instance->links[e].capacity, &w->weight) &&
           !copse_add_overflows(out->sum, w->weight, &out->sum);
    if (fits) w->key = opens + instance->delay[e] + closes;
    out->n++;
  }
  COPSE_SORT(out->list, out->n, by_window);
  if (!fits) out->sum = 0;
  return COPSE_OK;
}

copse_status copse_windows_fill(const struct copse_windows *windows, struct copse_q time,
                                struct copse_q *out) {
  struct copse_q above = COPSE_Q_ZERO, part;
  int64_t below = 0;
  COPSE_DO(copse_q_mul(time, (struct copse_q){windows->sum, 1}, &above, NULL));
  for (int i = 0; i < windows->n; i++) {
    const struct copse_window *w = &windows->list[i];
    COPSE_DO(copse_q_mul((struct copse_q){w->weight, 1}, (struct copse_q){w->key, 1}, &part, NULL));
    COPSE_DO(copse_q_add(above, part, &above, NULL));
    below += w->weight; /* at most the sum */
    COPSE_DO(copse_q_div(above, (struct copse_q){below, 1}, out, NULL));
    if (i + 1 < windows->n && copse_q_cmp(*out, (struct copse_q){w[1].key, 1}) <= 0) break;
  }
  return COPSE_OK;
}

/* ---- parts whose ranks are in parts ---------------------------------------------------------- */

/* Finds from which part's ranks relays alone lead to each relay: -1 from none, n_nodes from several
 * or from ranks in no part. */
static void find_origins(const struct copse_timed_instance *instance, const int *part, int *from) {
  const struct copse_topology *t = instance->topology;
  bool changed = true;
  for (int v = 0; v < t->n_nodes; v++) {
    bool is_rank = t->nodes[v].rank >= 0;
    from[v] = is_rank && part[v] >= 0 ? part[v] : is_rank ? t->n_nodes : -1;
  }
  while (changed) {
    changed = false;
    for (int e = 0; e < t->n_links; e++) {
      const struct copse_quickest_link *l = &instance->links[e];
      if (t->nodes[l->dst].rank >= 0 || from[l->src] < 0 || from[l->dst] == from[l->src] ||
          from[l->dst] == t->n_nodes)
        continue;
      from[l->dst] = from[l->dst] < 0 ? from[l->src] : t->n_nodes;
      changed = true;
    }
  }
}

/* Adds capacities of the links into ranks, inside or outside, over which something may come from
 * other parts; INT64_MAX: they don't fit. */
static copse_status add_entries(const struct copse_timed_instance *instance,
                                const struct copse_timed_nested *n, bool inside, int64_t *sum,
                                struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  COPSE_AT_END(copse_free_at) int *from = NULL;
  COPSE_DO(copse_calloc((size_t)t->n_nodes, sizeof *from, &from, err));
  find_origins(instance, n->part, from);
  *sum = 0;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_quickest_link *l = &instance->links[e];
    if (t->nodes[l->dst].rank < 0 || n->inside[l->dst] != inside || from[l->src] < 0 ||
        from[l->src] == n->part[l->dst])
      continue;
    if (copse_add_overflows(*sum, l->capacity, sum)) *sum = INT64_MAX;
  }
  return COPSE_OK;
}

/* Counts parts inside or outside, and the ranks of the smallest; outside, where those do not count,
 * one of many. */
static copse_status count_parts(const struct copse_topology *t, const struct copse_timed_nested *n,
                                int64_t count[2], int64_t *least, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int *n_ranks = NULL;
  COPSE_DO(copse_calloc((size_t)t->n_nodes, sizeof *n_ranks, &n_ranks, err));
  for (int r = 0; r < t->n_ranks; r++)
    if (n->part[t->rank_nodes[r]] >= 0) n_ranks[n->part[t->rank_nodes[r]]]++;
  count[0] = count[1] = 0;
  *least = t->n_ranks;
  for (int v = 0; v < t->n_nodes; v++) {
    if (n_ranks[v] == 0) continue;
    count[n->inside[v] != 0]++;
    *least = copse_smaller(*least, n_ranks[v]);
  }
  return COPSE_OK;
}

/* Adds (mid wide + late entries / ranks) / parts, the least that parts can get otherwise. */
static copse_status add_otherwise(struct copse_timed_nested *n, int64_t mid, int64_t wide_sum,
                                  int64_t late, int64_t entries, int64_t parts) {
  struct copse_q a, b;
  COPSE_DO(copse_q_mul((struct copse_q){mid, 1}, (struct copse_q){wide_sum, 1}, &a, NULL));
  COPSE_DO(copse_q_mul((struct copse_q){late, 1}, (struct copse_q){entries, 1}, &b, NULL));
  COPSE_DO(copse_q_div(b, (struct copse_q){n->part_ranks, 1}, &b, NULL));
  COPSE_DO(copse_q_add(a, b, &a, NULL));
  COPSE_DO(copse_q_div(a, (struct copse_q){parts, 1}, &a, NULL));
  return copse_q_add(n->otherwise, a, &n->otherwise, NULL);
}

/* Marks a part of a level, or the rest, and in it (with `both` outside too) parts of another level,
 * NULL: its ranks. *finer: these are whole in it. */
static copse_status mark_nested(struct copse_timed_instance *instance, const int *level, int name,
                                bool rest, const int *inner, bool both,
                                struct copse_timed_nested *out, bool *finer,
                                struct copse_err *err) {
  const struct copse_topology *t = instance->topology;
  int *part;
  char *inside;
  COPSE_DO(COPSE_ARRAY(&instance->arena, (size_t)t->n_nodes, part, err));
  COPSE_DO(COPSE_ARRAY(&instance->arena, (size_t)t->n_nodes, inside, err));
  *out = (struct copse_timed_nested){.part = part, .inside = inside, .of_ranks = !inner};
  *finer = true;
  for (int v = 0; v < t->n_nodes; v++) {
    inside[v] = (level[v] == name) != rest;
    part[v] = inner ? inner[v] : t->nodes[v].rank >= 0 ? v : -1;
    *finer = *finer && (part[v] < 0 || ((level[part[v]] == name) != rest) == inside[v]);
    if (!inside[v] && !both) part[v] = -1;
  }
  return COPSE_OK;
}

copse_status copse_timed_nested(struct copse_timed_instance *instance,
                                const struct copse_timed_instance *turned, const int *level,
                                int name, bool rest, const int *inner, bool whole, bool both,
                                struct copse_timed_nested *n, bool *fits, struct copse_err *err) {
  int64_t parts[2], least, any, cross, wide_sum = 0, entries[2] = {0};
  bool finer;
  *fits = false;
  COPSE_DO(mark_nested(instance, level, name, rest, inner, both, n, &finer, err));
  if (!finer) return COPSE_OK;
  COPSE_DO(count_parts(instance->topology, n, parts, &least, err));
  if (parts[1] < 2 || (both && parts[0] == 0)) return COPSE_OK;
  n->part_ranks = whole ? 1 : (int)least;
  copse_timed_messages(instance, turned, n->part, &any, &cross);
  if (n->part_ranks == 1) any = 0;
  if (cross >= COPSE_DELAY_MAX / 4 || (!whole && any == 0)) return COPSE_OK;
  for (int e = 0; e < instance->topology->n_links; e++) {
    const struct copse_quickest_link *l = &instance->links[e];
    if (n->inside[l->src] || !n->inside[l->dst]) continue;
    if (copse_add_overflows(wide_sum, l->capacity, &wide_sum)) return COPSE_OK;
  }
  if (any > 0) COPSE_DO(add_entries(instance, n, true, &entries[1], err));
  if (any > 0 && both) COPSE_DO(add_entries(turned, n, false, &entries[0], err));
  n->later = (both ? 2 : 1) * (any + cross);
  n->otherwise = COPSE_Q_ZERO;
  copse_status status = add_otherwise(n, cross, wide_sum, any, entries[1], parts[1]);
  if (status == COPSE_OK && both)
    status = add_otherwise(n, cross, wide_sum, any, entries[0], parts[0]);
  *fits = status == COPSE_OK;
  return COPSE_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

const char *copse_solve_clash(const struct copse_solve_options *o, bool has_tolerance,
                              bool for_size) {
  const bool alltoall = o->collective == COPSE_ALLTOALL;
  const bool allreduce = o->collective == COPSE_ALLREDUCE;
  const struct {
    bool clash;
    const char *words;
  } rules[] = {
      {!alltoall && (o->demand || o->no_forward), "--demand and --no-forward are for alltoall"},
      {o->compact && (alltoall || copse_collective_rooted(o->collective)),
       "--compact is for allgather, reduce_scatter and allreduce"},
      {o->compact && (o->no_symmetry || o->bound_only),
       "--compact needs symmetries and trees: leave out --no-symmetry and --bound-only"},
      {o->compact && o->in_network,
       "--compact is for trees through plain switches: leave out --in-network"},
      {!allreduce && o->equal_shares, "--equal-shares is for allreduce"},
      {!allreduce && o->in_network,
       "--in-network is for allreduce; collectives of one phase are no faster with it"},
      {o->in_network && (has_tolerance || o->k > 0),
       "--in-network is exact: leave out --k and --tolerance"},
      {o->in_network && for_size,
       "--objective is for trees that no switch copies for, as plans have them: leave out "
       "--in-network"},
      {o->on_routes && (alltoall || o->k > 0 || o->equal_shares || o->in_network || o->compact),
       "--routes fabric is for the best trees of all ranks: leave out alltoall, --k, "
       "--equal-shares, --in-network and --compact"},
      {o->on_routes && for_size,
       "--routes fabric makes one schedule: leave out --objective, which "
       "tries it"},
      {o->k > 0 && for_size, "--objective chooses the number of trees itself: leave out --k"},
      {o->equal_shares && for_size,
       "--objective tries equal shares beside others: leave out --equal-shares"},
      {has_tolerance && o->k > 0, "--k and --tolerance both choose the number of trees"},
      {alltoall && o->k > 0, "--k is for trees; an alltoall has flows"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].clash) return rules[i].words;
  return NULL;
}
