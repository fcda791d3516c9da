/*
 * Loads of links under trees and flows, in exact fractions of M, and the time they give. Neighbours
 * in a list mostly weigh the same, so crossings are counted and their weight is added once.
 * The time is the largest load over bandwidth: docs/theory.md, "src/verify/".
 */
#include "schedule/loads.h"

#include <string.h>

#include "base/types.h"

struct summing {
  const struct copse_topology *topology;
  struct copse_q weight; /* of what is counted */
  int64_t *counts;       /* [n_links] */
  int *counted;          /* [n_counted] links that `counts` is not 0 of */
  int n_counted;
  int *stamps; /* [n_links] the number of the tree that last crossed each link */
  struct copse_q *loads;
  struct copse_arena scratch;
  struct copse_err *err;
};

static copse_status start_summing(struct summing *s) {
  size_t n = (size_t)s->topology->n_links;
  for (size_t i = 0; i < n; i++) s->loads[i] = COPSE_Q_ZERO;
  COPSE_DO(COPSE_ARRAY(&s->scratch, n, s->counts, s->err));
  return COPSE_ARRAYS(&s->scratch, n, int, s->err, &s->counted, &s->stamps);
}

static copse_status add_counted(struct summing *s) {
  for (int i = 0; i < s->n_counted; i++) {
    int link = s->counted[i];
    struct copse_q sum;
    COPSE_DO(copse_q_mul((struct copse_q){s->counts[link], 1}, s->weight, &sum, s->err));
    COPSE_DO(copse_q_add(s->loads[link], sum, &s->loads[link], s->err));
    s->counts[link] = 0;
  }
  s->n_counted = 0;
  return COPSE_OK;
}

static copse_status set_weight(struct summing *s, struct copse_q weight) {
  copse_status status = copse_q_eq(s->weight, weight) ? COPSE_OK : add_counted(s);
  s->weight = weight;
  return status;
}

/* Counts a path's loads; with a tree, once where switches copy or combine; `stamp` is the tree's
 * number from 1 on. */
static void count_path(struct summing *s, const int *nodes, int n,
                       const struct copse_schedule_tree *tree, int stamp) {
  const struct copse_node *all = s->topology->nodes;
  for (int i = 0; i + 1 < n; i++) {
    int link = copse_topology_find_link(s->topology, nodes[i], nodes[i + 1]);
    bool once = tree && (tree->phase == COPSE_PHASE_BROADCAST ? all[nodes[i + 1]].multicast
                                                              : all[nodes[i]].aggregation);
    if (once && s->stamps[link] == stamp) continue;
    if (once) s->stamps[link] = stamp;
    if (s->counts[link]++ == 0) s->counted[s->n_counted++] = link;
  }
}

/* Adds all images of what was counted. */
static copse_status add_images(struct summing *s, const struct copse_schedule *schedule) {
  const struct copse_topology *t = s->topology;
  int *image = NULL;
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)t->n_links, image, s->err));
  for (int i = 0; i < schedule->n_rotations; i++) {
    const struct copse_permutation *rotation = &schedule->rotations[i];
    for (int e = 0; e < t->n_links; e++)
      image[e] = copse_topology_find_link(t, rotation->image[t->links[e].src],
                                          rotation->image[t->links[e].dst]);
    COPSE_DO(copse_sum_cycles(rotation->order, image, t->n_links, s->loads, s->err));
  }
  return COPSE_OK;
}

static void end_summing(struct summing *s) { copse_arena_free(&s->scratch); }

copse_status copse_schedule_loads(const struct copse_topology *topology,
                                  const struct copse_schedule *schedule, struct copse_q *loads,
                                  struct copse_err *err) {
  COPSE_AT_END(end_summing)
  struct summing s = {.topology = topology, .weight = COPSE_Q_ZERO, .loads = loads, .err = err};
  COPSE_DO(start_summing(&s));
  for (int t = 0; t < schedule->n_trees; t++) {
    const struct copse_schedule_tree *tree = &schedule->trees[t];
    COPSE_DO(set_weight(&s, tree->weight));
    for (int e = 0; e < tree->n_edges; e++)
      count_path(&s, tree->edges[e].path, tree->edges[e].n_path, tree, t + 1);
  }
  for (int f = 0; f < schedule->n_flows; f++)
    for (int p = 0; p < schedule->flows[f].n_paths; p++) {
      const struct copse_schedule_path *path = &schedule->flows[f].paths[p];
      COPSE_DO(set_weight(&s, path->weight));
      count_path(&s, path->nodes, path->n_nodes, NULL, 0);
    }
  COPSE_DO(add_counted(&s));
  return add_images(&s, schedule);
}

static copse_status most_loaded(const struct copse_topology *topology, const struct copse_q *loads,
                                struct copse_q *time, struct copse_err *err) {
  *time = COPSE_Q_ZERO;
  for (int i = 0; i < topology->n_links; i++) {
    struct copse_q t;
    COPSE_DO(copse_q_div(loads[i], topology->links[i].bandwidth, &t, err));
    if (copse_q_cmp(t, *time) > 0) *time = t;
  }
  return COPSE_OK;
}

copse_status copse_loads_time(const struct copse_topology *topology,
                              const struct copse_schedule *schedule, struct copse_q *time,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct copse_q *loads = NULL;
  COPSE_DO(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  COPSE_DO(copse_schedule_loads(topology, schedule, loads, err));
  return most_loaded(topology, loads, time, err);
}

copse_status copse_whole_trees_time(const struct copse_topology *topology,
                                    copse_collective collective, const int64_t *trees, int64_t k,
                                    int n_ranks, struct copse_q *time, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct copse_q *loads = NULL;
  struct copse_q whole = {n_ranks, 1};
  COPSE_DO(copse_calloc((size_t)topology->n_links, sizeof *loads, &loads, err));
  for (int e = 0; e < topology->n_links; e++) {
    const struct copse_link *link = &topology->links[e];
    int back = copse_collective_reduces(collective)
                   ? copse_topology_find_link(topology, link->dst, link->src)
                   : -1;
    loads[e] = (struct copse_q){copse_collective_broadcasts(collective) ? trees[e] : 0, 1};
    if (back >= 0) loads[e].num += trees[back];
  }
  COPSE_DO(most_loaded(topology, loads, time, err));
  COPSE_DO(copse_q_mul(whole, (struct copse_q){k, 1}, &whole, err));
  return copse_q_div(*time, whole, time, err);
}

copse_status copse_tree_time(const struct copse_topology *topology,
                             const struct copse_schedule_tree *trees, size_t n_trees,
                             struct copse_q *time, struct copse_err *err) {
  const struct copse_schedule all = {.trees = trees, .n_trees = (int)n_trees};
  return copse_loads_time(topology, &all, time, err);
}

copse_status copse_flow_time(const struct copse_topology *topology,
                             const struct copse_schedule_flow *flows, int n_flows,
                             struct copse_q *time, struct copse_err *err) {
  const struct copse_schedule all = {.flows = flows, .n_flows = n_flows};
  return copse_loads_time(topology, &all, time, err);
}

/* Adds every copy, and the switches for which count_path would have left some out. */
static copse_status add_copies(const struct copse_topology *topology,
                               const struct copse_schedule_tree *tree, int *stamps, int stamp,
                               struct copse_q *loads, bool *used, struct copse_err *err) {
  const struct copse_node *all = topology->nodes;
  bool broadcast = tree->phase == COPSE_PHASE_BROADCAST;
  for (int e = 0; e < tree->n_edges; e++)
    for (int i = 0; i + 1 < tree->edges[e].n_path; i++) {
      int src = tree->edges[e].path[i], dst = tree->edges[e].path[i + 1];
      int link = copse_topology_find_link(topology, src, dst), at = broadcast ? dst : src;
      bool once = broadcast ? all[dst].multicast : all[src].aggregation;
      COPSE_DO(copse_q_add(loads[link], tree->weight, &loads[link], err));
      if (once && stamps[link] == stamp) used[at] = true;
      stamps[link] = stamp;
    }
  return COPSE_OK;
}

copse_status copse_tree_switches(const struct copse_topology *topology,
                                 const struct copse_schedule_tree *trees, size_t n_trees,
                                 struct copse_q time, bool *copies, bool *adds, bool *counts,
                                 struct copse_err *err) {
  struct copse_q *loads, with_copies;
  int *stamps;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t n_links = (size_t)topology->n_links;
  COPSE_DO(COPSE_ARRAY(&scratch, n_links, loads, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n_links, stamps, err));
  for (int i = 0; i < topology->n_links; i++) loads[i] = COPSE_Q_ZERO;
  for (size_t t = 0; t < n_trees; t++)
    COPSE_DO(add_copies(topology, &trees[t], stamps, (int)t + 1, loads,
                        trees[t].phase == COPSE_PHASE_BROADCAST ? copies : adds, err));
  COPSE_DO(most_loaded(topology, loads, &with_copies, err));
  *counts = copse_q_cmp(with_copies, time) > 0;
  return COPSE_OK;
}

/* ==== guessed links =========================================================================== */

/* Finds guessed links in the certificate of a schedule's bound. */

/* Marks links that lead out of a set of nodes, or into it. */
static void cross(const struct copse_topology *t, const int *nodes, int n, bool into, bool *inside,
                  bool *counts) {
  memset(inside, 0, (size_t)t->n_nodes * sizeof *inside);
  for (int i = 0; i < n; i++) inside[nodes[i]] = true;
  for (int i = 0; i < t->n_links && n > 0; i++)
    counts[i] |= inside[t->links[i].src] != into && inside[t->links[i].dst] == into;
}

copse_status copse_guessed_find(const struct copse_topology *topology,
                                const struct copse_schedule *schedule, struct copse_arena *arena,
                                struct copse_guessed *out, struct copse_err *err) {
  const struct copse_bound *bound = &schedule->bound;
  size_t n_links = (size_t)topology->n_links;
  bool *inside, *counts;
  int *links;
  *out = (struct copse_guessed){0};
  COPSE_DO(COPSE_ARRAY(arena, (size_t)topology->n_nodes, inside, err));
  COPSE_DO(COPSE_ARRAY(arena, n_links, counts, err));
  COPSE_DO(COPSE_ARRAY(arena, n_links, links, err));
  bool reduces = copse_collective_reduces(schedule->collective);
  cross(topology, bound->cut, bound->n_cut, reduces && schedule->collective != COPSE_ALLREDUCE,
        inside, counts);
  cross(topology, bound->reduce_cut, bound->n_reduce_cut, true, inside, counts);
  for (int i = 0; i < bound->n_cuts; i++)
    cross(topology, bound->cuts[i].nodes, bound->cuts[i].n_nodes,
          bound->cuts[i].phase == COPSE_PHASE_REDUCE, inside, counts);
  for (int i = 0; i < bound->n_lengths; i++) {
    int link = copse_topology_find_link(topology, bound->lengths[i].src, bound->lengths[i].dst);
    if (link >= 0) counts[link] = true;
  }
  for (int i = 0; i < topology->n_links; i++)
    if (counts[i] && topology->links[i].guess != COPSE_GUESS_NONE) links[out->n++] = i;
  out->links = links;
  return COPSE_OK;
}

/* Adds a line for the links with one kind of guess. False where there is none; then nothing is
 * added. */
static bool add_kind(const struct copse_topology *topology, const struct copse_guessed *guessed,
                     enum copse_guess guess, struct copse_text *text) {
  const struct copse_link *first = NULL;
  int n = 0;
  for (int i = guessed->n - 1; i >= 0; i--) {
    const struct copse_link *link = &topology->links[guessed->links[i]];
    if (link->guess != guess) continue;
    first = link;
    n++;
  }
  if (!first) return false;
  copse_text_add(text, "%s -> %s", topology->nodes[first->src].id, topology->nodes[first->dst].id);
  if (n > 1) copse_text_add(text, " and %d like it", n - 1);
  copse_text_add(text, ", %.10g GB/s: %s", copse_q_to_double(first->bandwidth),
                 copse_guess_reason(guess));
  return true;
}

void copse_guessed_text(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        const char *before, struct copse_text *text) {
  for (enum copse_guess guess = COPSE_GUESS_NONE + 1; guess <= COPSE_GUESS_CLASS; guess++) {
    size_t start = text->size;
    copse_text_add(text, "%s", before);
    if (add_kind(topology, guessed, guess, text))
      copse_text_add(text, ". To measure it: %s\n", copse_guess_remedy(guess));
    else
      text->size = start;
  }
}

void copse_guessed_json(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        struct copse_text *text) {
  copse_text_add(text, "[");
  for (int i = 0; i < guessed->n; i++) {
    const struct copse_link *link = &topology->links[guessed->links[i]];
    copse_text_add(text, "%s{\"src\": ", i ? ", " : "");
    copse_text_add_json_string(text, topology->nodes[link->src].id);
    copse_text_add(text, ", \"dst\": ");
    copse_text_add_json_string(text, topology->nodes[link->dst].id);
    copse_text_add(text, ", \"bandwidth_GBps\": ");
    copse_text_add_json_number(text, copse_q_to_double(link->bandwidth));
    copse_text_add(text, ", \"reason\": ");
    copse_text_add_json_string(text, copse_guess_reason(link->guess));
    copse_text_add(text, ", \"remedy\": ");
    copse_text_add_json_string(text, copse_guess_remedy(link->guess));
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]");
}
