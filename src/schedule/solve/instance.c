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
    for (int v = 0; v < t->n_nodes; v++) set[v] = copse_sets_find(j.parent, v);
    levels[(*n)++] = set;
  }
  return COPSE_OK;
}

copse_status copse_timed_parts(struct copse_timed_instance *instance, int most, int ***levels,
                               int *n, struct copse_err *err) {
  size_t n_links = (size_t)instance->topology->n_links;
  COPSE_AT_END(copse_free_at) struct keyed *keyed = NULL;
  *n = 0;
  COPSE_DO(copse_arena_array(&instance->arena, 2 * (size_t)most, sizeof **levels, levels, err));
  COPSE_DO(copse_calloc(n_links, sizeof *keyed, &keyed, err));
  for (int by_delay = 0; by_delay < 2; by_delay++) {
    for (size_t e = 0; e < n_links; e++)
      keyed[e] =
          (struct keyed){by_delay ? instance->delay[e] : -instance->links[e].capacity, (int)e};
    COPSE_SORT(keyed, n_links, by_key);
    COPSE_DO(list_levels(instance, keyed, most, *levels, n, err));
  }
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
