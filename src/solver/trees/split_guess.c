#include "solver/trees/split_internal.h"

#include <stdlib.h>

#include "base/memory.h"

static int find_group(struct copse_splitter *s, int v) {
  while (s->group[v] != v) v = s->group[v] = s->group[s->group[v]];
  return v;
}

int64_t copse_splitter_fastest_link(struct copse_splitter *s, int w) {
  int64_t fastest = 0;
  struct copse_flow_neighbours in = copse_flow_entering(s->flow, w);
  for (int i = 0; i < in.n; i++)
    if (in.capacities[i] > fastest) fastest = in.capacities[i];
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++)
    if (leaving.capacities[i] > fastest) fastest = leaving.capacities[i];
  return fastest;
}

/* `groups` [n_nodes]: the smallest node of each. */
static int by_group(const void *a, const void *b, void *groups) {
  const int *group = groups, u = *(const int *)a, v = *(const int *)b;
  return group[u] != group[v] ? group[u] - group[v] : u - v;
}

/*
 * Groups w's neighbours by what is joined through links faster than any of w's: for a
 * network switch these are the hosts, for an NVSwitch every GPU is alone. Leaves the
 * neighbours in s->members, group by group; returns the number of groups. They come by their
 * smallest nodes, whatever neighbours w has of them: in the same order at every relay, on which
 * part_by_turn builds.
 */
static int group_neighbours(struct copse_splitter *s, int w, int n) {
  int64_t fastest = copse_splitter_fastest_link(s, w);
  for (int v = 0; v < s->network->n_nodes; v++) s->group[v] = v;
  for (int v = 0; v < s->network->n_nodes; v++) {
    struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, v);
    for (int i = 0; i < leaving.n; i++) {
      if (leaving.capacities[i] <= fastest) continue;
      int a = find_group(s, v), b = find_group(s, leaving.nodes[i]);
      if (a < b) s->group[b] = a;
      if (b < a) s->group[a] = b;
    }
  }
  for (int v = 0; v < s->network->n_nodes; v++) s->group[v] = find_group(s, v);
  qsort_r(s->members, (size_t)n, sizeof *s->members, by_group, s->group);
  int n_groups = 0;
  for (int i = 0; i < n; i++)
    if (i == 0 || s->group[s->members[i]] != s->group[s->members[i - 1]])
      s->group_start[n_groups++] = i;
  s->group_start[n_groups] = n;
  if (n_groups == 1) { /* all joined by faster links: treat each as its own group */
    for (int i = 0; i <= n; i++) s->group_start[i] = i;
    n_groups = n;
  }
  return n_groups;
}

/* Of `capacity`, what goes to the group r places on: equal parts, the rest spread evenly. */
static int64_t part_for_offset(int64_t capacity, int64_t r, int64_t n_offsets) {
  int64_t rest = capacity % n_offsets;
  return capacity / n_offsets + (r * rest / n_offsets - (r - 1) * rest / n_offsets);
}

/*
 * The same for a single root and less than one unit for each group: the number `turn` of
 * the relays of a kind sends it to other groups than the others do, by quadratic residues, sums of
 * which rarely coincide, so that few hops reach many groups. All alike, the 8 rails of 128 hosts
 * would make one chain of hosts for a broadcast, 127 hops long.
 */
static int64_t part_by_turn(int64_t capacity, int64_t r, int64_t n_offsets, int64_t turn) {
  int64_t part = 0;
  for (int64_t i = turn * capacity; i < (turn + 1) * capacity; i++)
    part += r == 1 + (i % n_offsets) * (i % n_offsets) % n_offsets;
  return part;
}

/* The guess: each neighbour spreads its capacity over the others' groups, like to like. */
static copse_status make_guess(struct copse_splitter *s, int w, int n_groups,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n_offsets = n_groups - 1;
  s->n_steps = 0;
  for (int r = 1; r < n_groups; r++) {
    for (int g = 0; g < n_groups; g++) {
      int target = (g + r) % n_groups;
      int size = s->group_start[target + 1] - s->group_start[target];
      for (int i = s->group_start[g]; i < s->group_start[g + 1]; i++) {
        int u = s->members[i];
        int t = s->members[s->group_start[target] + (i - s->group_start[g]) % size];
        int64_t capacity = copse_flow_capacity(s->flow, u, w);
        bool by_turn = capacity < n_offsets && s->network->n_roots == 1;
        struct copse_split_step step = {u, t,
                                        by_turn ? part_by_turn(capacity, r, n_offsets, s->turn[w])
                                                : part_for_offset(capacity, r, n_offsets)};
        if (step.amount == 0 || copse_flow_capacity(s->flow, w, t) == 0) continue;
        COPSE_TRY(copse_grow(&s->steps, &s->steps_capacity, s->n_steps + 1, sizeof *s->steps, err));
        s->steps[s->n_steps++] = step;
      }
    }
  }
out:
  return status;
}

/* Where groups differ in size a neighbour may be asked for more than it has: cap that. */
static void cap_guess(struct copse_splitter *s, int w) {
  size_t kept = 0;
  int64_t *room = calloc((size_t)s->network->n_nodes, sizeof *room);
  if (!room) {
    s->n_steps = 0; /* the pairwise rule works without a guess */
    return;
  }
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++) room[leaving.nodes[i]] = leaving.capacities[i];
  for (size_t i = 0; i < s->n_steps; i++) {
    struct copse_split_step step = s->steps[i];
    step.amount = copse_smaller(step.amount, room[step.t]);
    room[step.t] -= step.amount;
    if (step.amount > 0) s->steps[kept++] = step;
  }
  s->n_steps = kept;
  free(room);
}

copse_status copse_splitter_guess(struct copse_splitter *s, int w, int n, struct copse_err *err) {
  copse_status status = make_guess(s, w, group_neighbours(s, w, n), err);
  if (status == COPSE_OK) cap_guess(s, w);
  return status;
}
