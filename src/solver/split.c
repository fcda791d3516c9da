#include "solver/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/cuts.h"
#include "solver/sinks.h"

/* `amount` of (u, w) and (w, t) to be replaced by (u, t). */
struct step {
  int u, t;
  int64_t amount;
};

/* A step that the flow graph has seen and the paths have not. */
struct taken {
  int w;
  struct step step;
};

struct splitter {
  const struct copse_network *network;
  struct copse_flow *flow; /* node n_nodes is the source of all roots */
  struct copse_paths *paths;
  struct copse_sinks sinks;
  int64_t demand;    /* what every terminal must be able to receive */
  int *order;        /* [n_terminals] terminals, those that failed lately first */
  bool *is_terminal; /* [n_nodes] */
  bool trusts;
  struct step *steps; /* the guess for one relay */
  size_t n_steps, steps_capacity;
  struct taken *taken; /* steps to be proved, to be undone if that fails */
  size_t n_taken, taken_capacity;
  struct copse_cuts cuts;  /* with what they can spare now */
  int *entering, *leaving; /* [n_nodes] neighbours of the relay at hand */
  int *group;              /* [n_nodes] union-find by fast links */
  int *turn;               /* [n_nodes] of relays: how many before it have as many links */
  int *members;            /* [n_nodes] neighbours sorted by group */
  int *group_start;        /* [n_nodes + 1] */
};

/* Changes the flow graph by +-amount of a step; loops (u = t) just vanish. A cut loses the
 * amount if it has w on one side, u and t on the other. */
static copse_status change(struct splitter *s, int w, const struct step *step, int64_t amount,
                           struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_flow_change(s->flow, step->u, w, -amount, err));
  COPSE_TRY(copse_flow_change(s->flow, w, step->t, -amount, err));
  if (step->u != step->t) COPSE_TRY(copse_flow_change(s->flow, step->u, step->t, amount, err));
  const unsigned char *of_u = copse_cuts_of(&s->cuts, step->u), *of_w = copse_cuts_of(&s->cuts, w),
                      *of_t = copse_cuts_of(&s->cuts, step->t);
  for (int c = 0; c < s->cuts.n; c++)
    if ((of_u[c] ^ of_w[c]) & (of_t[c] ^ of_w[c])) s->cuts.slack[c] -= amount;
out:
  return status;
}

/* What the known cuts leave of a step. */
static int64_t spared_by_cuts(const struct splitter *s, int w, const struct step *step) {
  const unsigned char *of_u = copse_cuts_of(&s->cuts, step->u), *of_w = copse_cuts_of(&s->cuts, w),
                      *of_t = copse_cuts_of(&s->cuts, step->t);
  int64_t amount = step->amount;
  for (int c = 0; c < s->cuts.n; c++)
    if (((of_u[c] ^ of_w[c]) & (of_t[c] ^ of_w[c])) && s->cuts.slack[c] < amount)
      amount = s->cuts.slack[c];
  return amount > 0 ? amount : 0;
}

/* A step on trust: proved, then committed, or undone. */
static copse_status take(struct splitter *s, int w, struct step step, struct copse_err *err) {
  copse_status status = COPSE_OK;
  if (step.amount == 0) return COPSE_OK;
  COPSE_TRY(change(s, w, &step, step.amount, err));
  COPSE_TRY(copse_grow(&s->taken, &s->taken_capacity, s->n_taken + 1, sizeof *s->taken, err));
  s->taken[s->n_taken++] = (struct taken){w, step};
out:
  return status;
}

static copse_status commit(struct splitter *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < s->n_taken; i++) {
    const struct taken *taken = &s->taken[i];
    COPSE_TRY(copse_paths_split(s->paths, taken->step.u, taken->w, taken->step.t,
                                taken->step.amount, err));
  }
  s->n_taken = 0;
out:
  return status;
}

/* All steps taken but the first `keep`. */
static copse_status undo(struct splitter *s, size_t keep, struct copse_err *err) {
  copse_status status = COPSE_OK;
  while (s->n_taken > keep) {
    const struct taken *taken = &s->taken[--s->n_taken];
    COPSE_TRY(change(s, taken->w, &taken->step, -taken->step.amount, err));
  }
out:
  return status;
}

/* A cut, and the same with relay w on the other side if that has no links (w >= 0). */
static void learn(struct splitter *s, const struct copse_sink_cut *cut, int w) {
  int64_t slack = cut->flows - s->demand;
  copse_cuts_add(&s->cuts, cut->inside, slack);
  if (w < 0) return;
  cut->inside[w] = !cut->inside[w];
  copse_cuts_add(&s->cuts, cut->inside, slack);
}

/* A terminal that failed is likely to fail again: ask it first next time. */
static void move_to_front(struct splitter *s, int i) {
  int terminal = s->order[i];
  memmove(s->order + 1, s->order, (size_t)i * sizeof *s->order);
  s->order[0] = terminal;
}

/* Which terminals from place `from` on receive less than the demand; so many of them. */
static copse_status ask(struct splitter *s, int from, int most, bool tight, struct copse_err *err) {
  struct copse_sink_question question = {.source = s->network->n_nodes,
                                         .demand = s->demand,
                                         .sinks = s->order + from,
                                         .n_sinks = s->network->n_terminals - from,
                                         .most = most,
                                         .tight = tight};
  return copse_sinks_ask(&s->sinks, s->flow, &question, err);
}

/* Whether every terminal still receives its demand. */
static copse_status all_served(struct splitter *s, bool *served, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(ask(s, 0, 1, false, err));
  *served = s->sinks.n_cuts == 0;
  if (!*served) move_to_front(s, s->sinks.cuts[0].place);
out:
  return status;
}

/*
 * Splits by the largest safe amount, at most step->amount. A split lowers a cut by the
 * amount or leaves it, so a terminal that comes up short by d is served again exactly
 * when the amount is lowered by d.
 */
static copse_status split_largest(struct splitter *s, int w, struct step step,
                                  struct copse_err *err) {
  copse_status status;
  step.amount = spared_by_cuts(s, w, &step);
  if (step.amount == 0) return COPSE_OK;
  COPSE_TRY(change(s, w, &step, step.amount, err));
  for (int from = 0; from < s->network->n_terminals && step.amount > 0;) {
    COPSE_TRY(ask(s, from, 1, false, err));
    if (s->sinks.n_cuts == 0) break;
    const struct copse_sink_cut *cut = &s->sinks.cuts[0];
    int64_t less = s->demand - cut->flows;
    learn(s, cut, -1);
    if (less > step.amount)
      return copse_fail(err, COPSE_INTERNAL, "edge splitting: the network can't carry its trees");
    COPSE_TRY(change(s, w, &step, -less, err));
    step.amount -= less;
    move_to_front(s, from + cut->place);
    from += cut->place + 1;
  }
  if (step.amount > 0) COPSE_TRY(copse_paths_split(s->paths, step.u, w, step.t, step.amount, err));
out:
  return status;
}

/* Does steps [from, to) if all together are safe; else halves, down to none for one. */
static copse_status try_steps(struct splitter *s, int w, size_t from, size_t to,
                              struct copse_err *err) {
  copse_status status = COPSE_OK;
  bool served;
  if (from == to) return COPSE_OK;
  for (size_t i = from; i < to; i++) COPSE_TRY(change(s, w, &s->steps[i], s->steps[i].amount, err));
  COPSE_TRY(all_served(s, &served, err));
  if (served) {
    for (size_t i = from; i < to; i++)
      COPSE_TRY(
          copse_paths_split(s->paths, s->steps[i].u, w, s->steps[i].t, s->steps[i].amount, err));
    return COPSE_OK;
  }
  for (size_t i = from; i < to; i++)
    COPSE_TRY(change(s, w, &s->steps[i], -s->steps[i].amount, err));
  if (to - from == 1) return COPSE_OK; /* left for the pairwise rule */
  COPSE_TRY(try_steps(s, w, from, from + (to - from) / 2, err));
  COPSE_TRY(try_steps(s, w, from + (to - from) / 2, to, err));
out:
  return status;
}

static int copy_neighbours(struct copse_flow_neighbours list, int *nodes) {
  memcpy(nodes, list.nodes, (size_t)list.n * sizeof *nodes);
  return list.n;
}

static int compare_int(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The distinct neighbours of w, in or out, sorted; in s->members. */
static int collect_neighbours(struct splitter *s, int w) {
  int n = copy_neighbours(copse_flow_entering(s->flow, w), s->members);
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++)
    if (copse_flow_capacity(s->flow, leaving.nodes[i], w) == 0) s->members[n++] = leaving.nodes[i];
  qsort(s->members, (size_t)n, sizeof *s->members, compare_int);
  return n;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The most that is left for u -> w -> t, by trust; within the known cuts where asked. */
static copse_status take_all(struct splitter *s, int u, int w, int t, bool within_cuts,
                             struct copse_err *err) {
  struct step step = {
      u, t, smaller(copse_flow_capacity(s->flow, u, w), copse_flow_capacity(s->flow, w, t))};
  if (step.amount > 0 && within_cuts) step.amount = spared_by_cuts(s, w, &step);
  return take(s, w, step, err);
}

/*
 * A balanced relay with at most two neighbours: passing through is all it is good for,
 * and every cut keeps its value, so no flow is asked.
 */
static copse_status contract(struct splitter *s, int w, int n, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int a = s->members[0], b = s->members[n - 1];
  if (n == 2) {
    COPSE_TRY(take_all(s, a, w, b, false, err));
    COPSE_TRY(take_all(s, b, w, a, false, err));
  }
  COPSE_TRY(take_all(s, a, w, a, false, err));
  if (n == 2) COPSE_TRY(take_all(s, b, w, b, false, err));
out:
  return status;
}

/* Contracting one relay can leave the next with two neighbours, hence the repetition. */
static copse_status contract_chains(struct splitter *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (bool again = true; again;) {
    again = false;
    for (int w = 0; w < s->network->n_nodes; w++) {
      if (s->is_terminal[w]) continue;
      int n = collect_neighbours(s, w);
      if (n == 0 || n > 2) continue;
      COPSE_TRY(contract(s, w, n, err));
      COPSE_TRY(commit(s, err));
      again = true;
    }
  }
  copse_flow_compact(s->flow);
out:
  return status;
}

static int find_group(struct splitter *s, int v) {
  while (s->group[v] != v) v = s->group[v] = s->group[s->group[v]];
  return v;
}

static int64_t fastest_link(struct splitter *s, int w) {
  int64_t fastest = 0;
  struct copse_flow_neighbours in = copse_flow_entering(s->flow, w);
  for (int i = 0; i < in.n; i++)
    if (in.capacities[i] > fastest) fastest = in.capacities[i];
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++)
    if (leaving.capacities[i] > fastest) fastest = leaving.capacities[i];
  return fastest;
}

/*
 * Groups w's neighbours by what is joined through links faster than any of w's: for a
 * network switch these are the hosts, for an NVSwitch every GPU is alone. Leaves the
 * neighbours in s->members, group by group; returns the number of groups.
 */
static int group_neighbours(struct splitter *s, int w, int n) {
  int64_t fastest = fastest_link(s, w);
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
  int n_groups = 0, placed = 0;
  for (int i = 0; i < n; i++) s->entering[i] = s->members[i];
  for (int i = 0; i < n; i++) { /* members are sorted, so groups come by smallest member */
    if (s->entering[i] < 0) continue;
    int group = find_group(s, s->entering[i]);
    s->group_start[n_groups++] = placed;
    for (int j = i; j < n; j++) {
      if (s->entering[j] < 0 || find_group(s, s->entering[j]) != group) continue;
      s->members[placed++] = s->entering[j];
      s->entering[j] = -1;
    }
  }
  s->group_start[n_groups] = placed;
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
static copse_status make_guess(struct splitter *s, int w, int n_groups, struct copse_err *err) {
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
        struct step step = {u, t,
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
static void cap_guess(struct splitter *s, int w) {
  size_t kept = 0;
  int64_t *room = calloc((size_t)s->network->n_nodes, sizeof *room);
  if (!room) {
    s->n_steps = 0; /* the pairwise rule works without a guess */
    return;
  }
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++) room[leaving.nodes[i]] = leaving.capacities[i];
  for (size_t i = 0; i < s->n_steps; i++) {
    struct step step = s->steps[i];
    step.amount = smaller(step.amount, room[step.t]);
    room[step.t] -= step.amount;
    if (step.amount > 0) s->steps[kept++] = step;
  }
  s->n_steps = kept;
  free(room);
}

static bool is_empty(struct splitter *s, int w) {
  return copse_flow_entering(s->flow, w).n == 0 && copse_flow_leaving(s->flow, w).n == 0;
}

/* The pairwise rule on whatever the guess left; pairs u = t only when nothing else goes. */
static copse_status split_pairwise(struct splitter *s, int w, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n_in = copy_neighbours(copse_flow_entering(s->flow, w), s->entering);
  int n_out = copy_neighbours(copse_flow_leaving(s->flow, w), s->leaving);
  for (int loops = 0; loops < 2; loops++) {
    for (int i = 0; i < n_in; i++) {
      for (int j = 0; j < n_out; j++) {
        int u = s->entering[i], t = s->leaving[(i + n_out / 2 + j) % n_out];
        struct step step = {
            u, t, smaller(copse_flow_capacity(s->flow, u, w), copse_flow_capacity(s->flow, w, t))};
        if ((u == t) != (loops == 1) || step.amount == 0) continue;
        COPSE_TRY(split_largest(s, w, step, err));
      }
    }
  }
  if (!is_empty(s, w))
    return copse_fail(err, COPSE_INTERNAL, "edge splitting: relay %d keeps links", w);
out:
  return status;
}

/* The guess as far as the known cuts allow, then any pairs; unproved. */
static copse_status take_within_cuts(struct splitter *s, int w, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < s->n_steps; i++) {
    struct step step = s->steps[i];
    step.amount = spared_by_cuts(s, w, &step);
    COPSE_TRY(take(s, w, step, err));
  }
  int n_in = copy_neighbours(copse_flow_entering(s->flow, w), s->entering);
  int n_out = copy_neighbours(copse_flow_leaving(s->flow, w), s->leaving);
  for (int loops = 0; loops < 2; loops++)
    for (int i = 0; i < n_in; i++)
      for (int j = 0; j < n_out; j++) {
        int u = s->entering[i], t = s->leaving[(i + n_out / 2 + j) % n_out];
        if ((u == t) == (loops == 1)) COPSE_TRY(take_all(s, u, w, t, true, err));
      }
out:
  return status;
}

/* So many broken cuts are learned from one attempt, and so many attempts made for a relay. */
#define CUTS_PER_ATTEMPT 16
#define MOST_ATTEMPTS 24

/* Whether all terminals are served with relay w gone; the cuts that are broken are learned. */
static copse_status check_and_learn(struct splitter *s, int w, bool *served,
                                    struct copse_err *err) {
  copse_status status;
  COPSE_TRY(ask(s, 0, CUTS_PER_ATTEMPT, false, err));
  for (int i = 0; i < s->sinks.n_cuts; i++) {
    learn(s, &s->sinks.cuts[i], w);
    move_to_front(s, s->sinks.cuts[i].place);
  }
  *served = s->sinks.n_cuts == 0;
out:
  return status;
}

/* The tight cuts nearest to the terminals: hosts, as a rule. Nothing is split yet, or all
 * that is has been proved. */
static copse_status learn_tight(struct splitter *s, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(ask(s, 0, s->network->n_terminals, true, err));
  for (int i = 0; i < s->sinks.n_cuts; i++) learn(s, &s->sinks.cuts[i], -1);
out:
  return status;
}

/*
 * The whole relay at once within the known cuts, proved; again with the cuts that the proof
 * found broken. Leaves the relay as it was where that does not get there.
 */
static copse_status split_by_cuts(struct splitter *s, int w, bool *done, struct copse_err *err) {
  copse_status status = COPSE_OK;
  *done = false;
  for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
    COPSE_TRY(take_within_cuts(s, w, err));
    bool empty = is_empty(s, w), served;
    COPSE_TRY(check_and_learn(s, empty ? w : -1, &served, err));
    *done = served; /* proved, though perhaps not all of the relay */
    if (served) return commit(s, err);
    COPSE_TRY(undo(s, 0, err));
  }
out:
  return status;
}

static copse_status split_relay(struct splitter *s, int w, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n = collect_neighbours(s, w);
  bool done = false;
  if (n == 0) return COPSE_OK;
  if (n > 2) {
    COPSE_TRY(make_guess(s, w, group_neighbours(s, w, n), err));
    cap_guess(s, w);
    if (s->trusts) COPSE_TRY(split_by_cuts(s, w, &done, err));
    if (!done) COPSE_TRY(try_steps(s, w, 0, s->n_steps, err));
    COPSE_TRY(split_pairwise(s, w, err));
  } else {
    COPSE_TRY(contract(s, w, n, err));
    COPSE_TRY(commit(s, err));
  }
  copse_flow_compact(s->flow);
out:
  return status;
}

/* Slowest first: a network switch is split while its hosts still are small stars. */
static int slowest_relay(struct splitter *s) {
  int slowest = -1;
  int64_t least = 0;
  for (int w = 0; w < s->network->n_nodes; w++) {
    if (s->is_terminal[w] || copse_flow_entering(s->flow, w).n == 0) continue;
    int64_t fastest = fastest_link(s, w);
    if (slowest >= 0 && fastest >= least) continue;
    slowest = w;
    least = fastest;
  }
  return slowest;
}

/* Numbers relays of equally many links. */
static copse_status take_turns(struct splitter *s, struct copse_err *err) {
  const struct copse_network *network = s->network;
  int *links = NULL, *seen = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *links, &links, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links + 1, sizeof *seen, &seen, err));
  for (int i = 0; i < network->n_links; i++) links[network->links[i].dst]++;
  for (int v = 0; v < network->n_nodes; v++)
    if (!s->is_terminal[v]) s->turn[v] = seen[links[v]]++;
out:
  free(links);
  free(seen);
  return status;
}

static copse_status prepare(struct splitter *s, const int64_t *capacities, int64_t k,
                            struct copse_err *err) {
  const struct copse_network *network = s->network;
  size_t n = (size_t)network->n_nodes;
  copse_status status;
  COPSE_TRY(copse_flow_new(network->n_nodes + 1, &s->flow, err));
  COPSE_TRY(copse_calloc((size_t)network->n_terminals, sizeof(int), &s->order, err));
  COPSE_TRY(copse_calloc(n, 1, &s->is_terminal, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->entering, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->leaving, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->group, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->turn, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->members, err));
  COPSE_TRY(copse_calloc(n + 1, sizeof(int), &s->group_start, err));
  COPSE_TRY(copse_cuts_new(network->n_nodes, &s->cuts, err));
  for (int i = 0; i < network->n_terminals; i++) {
    s->order[i] = network->terminals[i];
    s->is_terminal[network->terminals[i]] = true;
  }
  COPSE_TRY(take_turns(s, err));
  for (int i = 0; i < network->n_links; i++)
    if (capacities[i] > 0)
      COPSE_TRY(copse_flow_change(s->flow, network->links[i].src, network->links[i].dst,
                                  capacities[i], err));
  for (int i = 0; i < network->n_roots; i++) {
    int64_t amount;
    if (copse_mul_overflows(network->roots[i].weight, k, &amount) ||
        copse_add_overflows(s->demand, amount, &s->demand))
      return copse_fail(err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
    COPSE_TRY(copse_flow_change(s->flow, network->n_nodes, network->roots[i].node, amount, err));
  }
out:
  return status;
}

static void release(struct splitter *s) {
  copse_flow_free(s->flow);
  free(s->order);
  free(s->is_terminal);
  free(s->steps);
  free(s->entering);
  free(s->leaving);
  free(s->group);
  free(s->turn);
  free(s->members);
  free(s->group_start);
  free(s->taken);
  copse_cuts_free(&s->cuts);
  copse_sinks_free(&s->sinks);
}

/* A relay by its guess, or within the known cuts; unproved. */
static copse_status take_relay(struct splitter *s, int w, bool within_cuts, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n = collect_neighbours(s, w);
  if (n <= 2) return contract(s, w, n, err);
  COPSE_TRY(make_guess(s, w, group_neighbours(s, w, n), err));
  cap_guess(s, w);
  if (within_cuts) return take_within_cuts(s, w, err);
  for (size_t i = 0; i < s->n_steps; i++) COPSE_TRY(take(s, w, s->steps[i], err));
out:
  return status;
}

/* All relays by their guesses and one proof for all; or nothing is changed. */
static copse_status split_all(struct splitter *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  bool complete = true, served = false;
  for (int w; complete && (w = slowest_relay(s)) >= 0;) {
    COPSE_TRY(take_relay(s, w, false, err));
    complete = is_empty(s, w);
    copse_flow_compact(s->flow);
  }
  if (complete) COPSE_TRY(all_served(s, &served, err));
  if (served) return commit(s, err);
  COPSE_TRY(undo(s, 0, err));
  copse_flow_compact(s->flow);
out:
  return status;
}

static void report(const struct splitter *s, const struct copse_progress *progress, int done) {
  copse_progress_report(progress, "split", done, s->network->n_nodes - s->network->n_terminals);
}

/*
 * A cut that was found broken has the relays that are gone outside. While they were there, each
 * made it narrowest on the side where the steps lose least by it; that cut must be known too.
 */
static void put_relays_where_narrow(const struct splitter *s, unsigned char *inside) {
  for (size_t end = s->n_taken, first; end > 0; end = first) {
    int w = s->taken[end - 1].w;
    int64_t lost_outside = 0, lost_inside = 0;
    for (first = end; first > 0 && s->taken[first - 1].w == w; first--) {
      const struct step *step = &s->taken[first - 1].step;
      if (inside[step->u] != inside[step->t]) continue;
      *(inside[step->u] ? &lost_outside : &lost_inside) += step->amount;
    }
    inside[w] = lost_inside < lost_outside;
  }
}

/* The cuts that the batch at hand breaks. */
static void learn_from_batch(struct splitter *s) {
  for (int i = 0; i < s->sinks.n_cuts; i++) {
    const struct copse_sink_cut *cut = &s->sinks.cuts[i];
    learn(s, cut, -1);
    put_relays_where_narrow(s, cut->inside);
    learn(s, cut, -1);
    move_to_front(s, cut->place);
  }
}

/* Takes relays within the known cuts, up to `most`; stops before one of which something is left.
 * So many are taken, unproved. */
static copse_status take_batch(struct splitter *s, int most, int *n, struct copse_err *err) {
  copse_status status = COPSE_OK;
  *n = 0;
  for (int w; *n < most && (w = slowest_relay(s)) >= 0; ++*n) {
    size_t before = s->n_taken;
    COPSE_TRY(take_relay(s, w, true, err));
    copse_flow_compact(s->flow);
    if (is_empty(s, w)) continue;
    COPSE_TRY(undo(s, before, err));
    break;
  }
out:
  return status;
}

/* How often the same number of relays is tried again, with the cuts found broken. */
#define MOST_TRIES 4

/*
 * Many relays under one proof. Where that fails the cuts found broken join, and at last fewer
 * relays are tried at once; one that does not go is left to split_relay.
 */
static copse_status split_batches(struct splitter *s, const struct copse_progress *progress,
                                  struct copse_err *err) {
  copse_status status = COPSE_OK;
  int batch = s->network->n_nodes, tries = 0, done = 0, taken;
  for (int w; (w = slowest_relay(s)) >= 0;) {
    COPSE_TRY(take_batch(s, batch, &taken, err));
    if (taken > 0) COPSE_TRY(ask(s, 0, CUTS_PER_ATTEMPT, false, err));
    if (taken > 0 && s->sinks.n_cuts == 0) {
      COPSE_TRY(commit(s, err));
      batch = 2 * taken;
      tries = 0;
    } else if (taken > 1 || (taken > 0 && tries < MOST_TRIES)) {
      learn_from_batch(s);
      COPSE_TRY(undo(s, 0, err));
      copse_flow_compact(s->flow);
      batch = tries++ < MOST_TRIES ? taken : (taken + 1) / 2;
      continue;
    } else {
      COPSE_TRY(undo(s, 0, err));
      COPSE_TRY(split_relay(s, w, err));
      taken = 1;
    }
    done += taken;
    report(s, progress, done);
  }
out:
  return status;
}

/* The roots' source has done its work: what is left is the relay-free graph alone. */
static copse_status drop_source(struct splitter *s, int64_t k, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < s->network->n_roots; i++)
    COPSE_TRY(copse_flow_change(s->flow, s->network->n_nodes, s->network->roots[i].node,
                                -s->network->roots[i].weight * k, err));
  copse_flow_compact(s->flow);
out:
  return status;
}

copse_status copse_split_relays(const struct copse_network *network, const int64_t *capacities,
                                int64_t k, struct copse_paths *paths,
                                const struct copse_progress *progress, struct copse_flow **flow,
                                struct copse_err *err) {
  struct splitter s = {
      .network = network, .paths = paths, .trusts = network->n_terminals >= copse_trust_from};
  copse_status status;
  *flow = NULL;
  COPSE_TRY(prepare(&s, capacities, k, err));
  COPSE_TRY(contract_chains(&s, err));
  if (s.trusts) COPSE_TRY(split_all(&s, err));
  if (s.trusts && slowest_relay(&s) >= 0) {
    COPSE_TRY(learn_tight(&s, err));
    COPSE_TRY(split_batches(&s, progress, err));
  }
  for (int w, done = 0; (w = slowest_relay(&s)) >= 0;) {
    COPSE_TRY(split_relay(&s, w, err));
    report(&s, progress, ++done);
  }
  COPSE_TRY(drop_source(&s, k, err));
  *flow = s.flow;
  s.flow = NULL;
out:
  release(&s);
  return status;
}
