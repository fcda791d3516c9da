/*
 * Edge splitting: relays are taken out of the network, pair by pair of links, so that every
 * terminal receives what it did. A split of `amount` at relay w:
 *
 *       u --5--> w --5--> t               u --2--> w --2--> t
 *                                  =>      \_______3_______/
 *
 * A cut loses the amount if it has w on one side, u and t on the other, and keeps its value else.
 * In this file from the ground up: moves of capacity with their proof, the guess for one relay, the
 * pairwise rule, one relay, all relays. W. Mader, "A reduction method for edge-connectivity in
 * graphs", Ann. Discrete Math. 3 (1978); J. Bang-Jensen, A. Frank and B. Jackson, "Preserving and
 * increasing local edge-connectivity in mixed graphs", SIAM J. Discrete Math. 8 (1995).
 */
#include "solver/trees/general.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/cuts.h"
#include "solver/network/flow.h"
#include "solver/policy.h"

/* `amount` of (u, w) and (w, t) to be replaced by (u, t), w the relay. */
struct step {
  int u, w, t;
  int64_t amount;
};

struct splitter {
  const struct copse_network *network;
  struct copse_flow *flow; /* node n_nodes is the source of all roots */
  struct copse_paths *paths;
  struct copse_sinks sinks;
  int64_t demand;     /* what every terminal must be able to receive */
  int *order;         /* [n_terminals] terminals, those that failed lately first */
  bool *is_terminal;  /* [n_nodes] */
  bool trusts;        /* known cuts are trusted: many relays under one proof */
  bool many_pairs;    /* the pairwise rule takes many pairs under one proof */
  struct step *steps; /* the guess for one relay */
  size_t n_steps, steps_capacity;
  struct step *taken; /* steps that the graph has seen and the paths have not: to be proved, to be
                         undone if that fails */
  size_t n_taken, taken_capacity;
  struct copse_cuts cuts;  /* with what they can spare now */
  int *entering, *leaving; /* [n_nodes] neighbours of the relay at hand */
  int *group;              /* [n_nodes] disjoint sets by fast links */
  int *turn;               /* [n_nodes] of relays: how many before it have as many links */
  int *members;            /* [n_nodes] neighbours sorted by group */
  int *group_start;        /* [n_nodes + 1] */
  int64_t *room;           /* [n_nodes] what a guess has left of the links out of the relay */
  struct copse_arena arena;
  struct copse_err *err;
};

/* ---- moves with their proof ---------------------------------------------------------------- */

/* Copies neighbours, kept beyond the next query; returns how many. */
static int copy_neighbours(struct copse_flow_neighbours list, int *nodes) {
  memcpy(nodes, list.nodes, (size_t)list.n * sizeof *nodes);
  return list.n;
}

/* Whether relay w has no links left. */
static bool is_empty(struct splitter *s, int w) {
  return copse_flow_entering(s->flow, w).n == 0 && copse_flow_leaving(s->flow, w).n == 0;
}

/* Changes the flow graph by +-amount of a step; loops (u = t) just vanish. A cut loses the
 * amount if it has w on one side, u and t on the other. */
static copse_status change(struct splitter *s, const struct step *step, int64_t amount) {
  COPSE_DO(copse_flow_change(s->flow, step->u, step->w, -amount, s->err));
  COPSE_DO(copse_flow_change(s->flow, step->w, step->t, -amount, s->err));
  if (step->u != step->t) COPSE_DO(copse_flow_change(s->flow, step->u, step->t, amount, s->err));
  const unsigned char *of_u = copse_cuts_flags(&s->cuts, step->u);
  const unsigned char *of_w = copse_cuts_flags(&s->cuts, step->w);
  const unsigned char *of_t = copse_cuts_flags(&s->cuts, step->t);
  for (int c = 0; c < s->cuts.n; c++)
    if ((of_u[c] ^ of_w[c]) & (of_t[c] ^ of_w[c])) s->cuts.slack[c] -= amount;
  return COPSE_OK;
}

/* Returns what the known cuts leave of a step. */
static int64_t spared(const struct splitter *s, const struct step *step) {
  const unsigned char *of_u = copse_cuts_flags(&s->cuts, step->u);
  const unsigned char *of_w = copse_cuts_flags(&s->cuts, step->w);
  const unsigned char *of_t = copse_cuts_flags(&s->cuts, step->t);
  int64_t amount = step->amount;
  for (int c = 0; c < s->cuts.n; c++)
    if (((of_u[c] ^ of_w[c]) & (of_t[c] ^ of_w[c])) && s->cuts.slack[c] < amount)
      amount = s->cuts.slack[c];
  return amount > 0 ? amount : 0;
}

/* Takes a step on trust: proved, then committed, or undone. */
static copse_status take(struct splitter *s, struct step step) {
  if (step.amount == 0) return COPSE_OK;
  COPSE_DO(change(s, &step, step.amount));
  return COPSE_PUSH(s->taken, s->n_taken, s->taken_capacity, s->err, step);
}

/* Makes the steps taken part of the paths. */
static copse_status commit(struct splitter *s) {
  for (size_t i = 0; i < s->n_taken; i++) {
    const struct step *step = &s->taken[i];
    COPSE_DO(copse_paths_split(s->paths, step->u, step->w, step->t, step->amount, s->err));
  }
  s->n_taken = 0;
  return COPSE_OK;
}

/* Takes back all steps but the first `keep`. */
static copse_status undo(struct splitter *s, size_t keep) {
  while (s->n_taken > keep) {
    const struct step *step = &s->taken[--s->n_taken];
    COPSE_DO(change(s, step, -step->amount));
  }
  return COPSE_OK;
}

/* Learns a cut, and the same with relay w on the other side if that has no links (w >= 0). */
static copse_status learn(struct splitter *s, const struct copse_sink_cut *cut, int w) {
  int64_t slack = cut->flows - s->demand;
  COPSE_DO(copse_cuts_add_flags(&s->cuts, cut->inside, slack, NULL, s->err));
  if (w < 0) return COPSE_OK;
  cut->inside[w] = !cut->inside[w];
  return copse_cuts_add_flags(&s->cuts, cut->inside, slack, NULL, s->err);
}

/* Puts a terminal that failed to the front: it is likely to fail again, so ask it first next
 * time. */
static void to_front(struct splitter *s, int i) {
  int terminal = s->order[i];
  memmove(s->order + 1, s->order, (size_t)i * sizeof *s->order);
  s->order[0] = terminal;
}

/* Asks which terminals from place `from` on receive less than the demand; so many of them. */
static copse_status ask(struct splitter *s, int from, int most, bool tight) {
  struct copse_sink_question question = {.source = s->network->n_nodes,
                                         .demand = s->demand,
                                         .sinks = s->order + from,
                                         .n_sinks = s->network->n_terminals - from,
                                         .most = most,
                                         .tight = tight,
                                         .threads = s->network->threads};
  return copse_sinks_ask(&s->sinks, s->flow, &question, s->err);
}

/* Whether every terminal still receives its demand. */
static copse_status all_served(struct splitter *s, bool *served) {
  COPSE_DO(ask(s, 0, 1, false));
  *served = s->sinks.n_cuts == 0;
  if (!*served) {
    if (s->many_pairs) COPSE_DO(learn(s, &s->sinks.cuts[0], -1));
    to_front(s, s->sinks.cuts[0].place);
  }
  return COPSE_OK;
}

/*
 * Splits by the largest safe amount, at most step->amount. A split lowers a cut by the
 * amount or leaves it, so a terminal that comes up short by d is served again exactly
 * when the amount is lowered by d.
 */
static copse_status take_largest(struct splitter *s, struct step step) {
  step.amount = spared(s, &step);
  if (step.amount == 0) return COPSE_OK;
  COPSE_DO(change(s, &step, step.amount));
  for (int from = 0; from < s->network->n_terminals && step.amount > 0;) {
    COPSE_DO(ask(s, from, 1, false));
    if (s->sinks.n_cuts == 0) break;
    const struct copse_sink_cut *cut = &s->sinks.cuts[0];
    int64_t less = s->demand - cut->flows;
    COPSE_DO(learn(s, cut, -1));
    if (less > step.amount)
      return copse_fail(s->err, COPSE_INTERNAL,
                        "edge splitting: the network can't carry its trees");
    COPSE_DO(change(s, &step, -less));
    step.amount -= less;
    to_front(s, from + cut->place);
    from += cut->place + 1;
  }
  if (step.amount > 0)
    COPSE_DO(copse_paths_split(s->paths, step.u, step.w, step.t, step.amount, s->err));
  return COPSE_OK;
}

/* Whether a known cut is broken: no flow need be asked then. */
static bool breaks_known_cut(const struct splitter *s) {
  for (int c = 0; c < s->cuts.n; c++)
    if (s->cuts.slack[c] < 0) return true;
  return false;
}

/* Does steps [from, to) if they are safe together; else tries both halves. A single unsafe step is
 * undone. */
static copse_status try_steps(struct splitter *s, size_t from, size_t to) {
  bool served;
  if (from == to) return COPSE_OK;
  for (size_t i = from; i < to; i++) COPSE_DO(take(s, s->steps[i]));
  served = !breaks_known_cut(s);
  if (served) COPSE_DO(all_served(s, &served));
  if (served) return commit(s);
  COPSE_DO(undo(s, 0));
  if (to - from == 1) return COPSE_OK; /* left for the pairwise rule */
  COPSE_DO(try_steps(s, from, from + (to - from) / 2));
  return try_steps(s, from + (to - from) / 2, to);
}

/* ---- the guess for one relay --------------------------------------------------------------- */

/* Returns the capacity of the fastest link into relay w or out of it. */
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

/* Compares by groups; `groups` [n_nodes]: the smallest node of each. */
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
static int group_neighbours(struct splitter *s, int w, int n) {
  int64_t fastest = fastest_link(s, w);
  copse_sets_init(s->group, s->network->n_nodes);
  for (int v = 0; v < s->network->n_nodes; v++) {
    struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, v);
    for (int i = 0; i < leaving.n; i++)
      if (leaving.capacities[i] > fastest) copse_sets_unite(s->group, v, leaving.nodes[i]);
  }
  for (int v = 0; v < s->network->n_nodes; v++) s->group[v] = copse_sets_find(s->group, v);
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

/* Returns what of `capacity` goes to the group r places on: equal parts, the rest spread evenly. */
static int64_t part_for_offset(int64_t capacity, int64_t r, int64_t n_offsets) {
  int64_t rest = capacity % n_offsets;
  return capacity / n_offsets + (r * rest / n_offsets - (r - 1) * rest / n_offsets);
}

/*
 * Returns the same for a single root and less than one unit for each group: the relay number `turn`
 * of a kind sends the unit to other groups than the other relays of its kind do. The groups are
 * chosen by quadratic residues, whose sums rarely coincide, so that few hops reach many groups. All
 * alike, the 8 rails of 128 hosts would make one chain of hosts for a broadcast, 127 hops long.
 */
static int64_t part_by_turn(int64_t capacity, int64_t r, int64_t n_offsets, int64_t turn) {
  int64_t part = 0;
  for (int64_t i = turn * capacity; i < (turn + 1) * capacity; i++)
    part += r == 1 + (i % n_offsets) * (i % n_offsets) % n_offsets;
  return part;
}

/*
 * Guesses for relay w, whose n distinct neighbours are sorted in s->members, what of its capacity
 * each sends to which other: s->steps. Each spreads it over the others' groups, like to like; where
 * groups differ in size one may be asked for more than it has, which is capped.
 */
static copse_status guess(struct splitter *s, int w, int n) {
  int n_groups = group_neighbours(s, w, n), n_offsets = n_groups - 1;
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  memset(s->room, 0, (size_t)s->network->n_nodes * sizeof *s->room);
  for (int i = 0; i < leaving.n; i++) s->room[leaving.nodes[i]] = leaving.capacities[i];
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
        int64_t part = by_turn ? part_by_turn(capacity, r, n_offsets, s->turn[w])
                               : part_for_offset(capacity, r, n_offsets);
        struct step step = {u, w, t, copse_smaller(part, s->room[t])};
        if (step.amount == 0) continue;
        s->room[t] -= step.amount;
        COPSE_DO(COPSE_PUSH(s->steps, s->n_steps, s->steps_capacity, s->err, step));
      }
    }
  }
  return COPSE_OK;
}

/* ---- pairs --------------------------------------------------------------------------------- */

/* The pairs of links into w and out of it, each once: those that lead back last. */
struct pairs {
  int w, n_in, n_out; /* in s->entering, s->leaving */
  int n;
};

static struct pairs list_pairs(struct splitter *s, int w) {
  struct pairs pairs = {.w = w};
  pairs.n_in = copy_neighbours(copse_flow_entering(s->flow, w), s->entering);
  pairs.n_out = copy_neighbours(copse_flow_leaving(s->flow, w), s->leaving);
  pairs.n = 2 * pairs.n_in * pairs.n_out;
  return pairs;
}

static struct step step_of_pair(const struct splitter *s, const struct pairs *pairs, int at) {
  int i = at / pairs->n_out % pairs->n_in, j = at % pairs->n_out;
  int u = s->entering[i], t = s->leaving[(i + pairs->n_out / 2 + j) % pairs->n_out];
  struct step step = {u, pairs->w, t, 0};
  if ((u == t) == (at >= pairs->n_in * pairs->n_out))
    step.amount = copse_smaller(copse_flow_capacity(s->flow, u, pairs->w),
                                copse_flow_capacity(s->flow, pairs->w, t));
  return step;
}

/* Takes as much of each pair as the known cuts spare; unproved. */
static copse_status take_pairs(struct splitter *s, const struct pairs *pairs, int from, int to) {
  for (int at = from; at < to; at++) {
    struct step step = step_of_pair(s, pairs, at);
    if (step.amount > 0) step.amount = spared(s, &step);
    COPSE_DO(take(s, step));
  }
  return COPSE_OK;
}

/* Tries the same with one proof for all. Where it holds, each alone would have been safe, for
 * splitting never widens a cut; else nothing is changed. */
static copse_status try_pairs(struct splitter *s, const struct pairs *pairs, int from, int to,
                              bool *served) {
  *served = true;
  COPSE_DO(take_pairs(s, pairs, from, to));
  if (s->n_taken == 0) return COPSE_OK;
  COPSE_DO(all_served(s, served));
  if (*served) return commit(s);
  return undo(s, 0);
}

/* Applies the pairwise rule to whatever the guess left of relay w; pairs u = t only when nothing
 * else goes. All of it: what the network carried it carries without w. */
static copse_status split_pairwise(struct splitter *s, int w) {
  struct pairs pairs = list_pairs(s, w);
  for (int at = 0, many = s->many_pairs ? COPSE_SPLIT_PAIRS_AT_ONCE : 1; at < pairs.n;) {
    int to = pairs.n - at > many ? at + many : pairs.n;
    bool served = false;
    if (s->many_pairs) COPSE_DO(try_pairs(s, &pairs, at, to, &served));
    if (!served && to - at > 1) {
      many = (to - at) / 2;
      continue;
    }
    if (!served) COPSE_DO(take_largest(s, step_of_pair(s, &pairs, at)));
    if (s->many_pairs) many = served ? 2 * (to - at) : COPSE_SPLIT_PAIRS_AT_ONCE;
    at = to;
  }
  if (!is_empty(s, w))
    return copse_fail(s->err, COPSE_INTERNAL, "edge splitting: relay %d keeps links", w);
  return COPSE_OK;
}

/* ---- one relay ----------------------------------------------------------------------------- */

COPSE_ORDER(compare_int, int, COPSE_COMPARE(*a, *b))

/* Collects the distinct neighbours of w, in or out, sorted; in s->members. */
static int collect_neighbours(struct splitter *s, int w) {
  int n = copy_neighbours(copse_flow_entering(s->flow, w), s->members);
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++)
    if (copse_flow_capacity(s->flow, leaving.nodes[i], w) == 0) s->members[n++] = leaving.nodes[i];
  COPSE_SORT(s->members, n, compare_int);
  return n;
}

/* Takes the most that is left for u -> w -> t, by trust. */
static copse_status take_all(struct splitter *s, int u, int w, int t) {
  int64_t in = copse_flow_capacity(s->flow, u, w), out = copse_flow_capacity(s->flow, w, t);
  return take(s, (struct step){u, w, t, copse_smaller(in, out)});
}

/*
 * Contracts a balanced relay with at most two neighbours: passing through is all it is good for,
 * and every cut keeps its value, so no flow is asked.
 */
static copse_status contract(struct splitter *s, int w, int n) {
  int a = s->members[0], b = s->members[n - 1];
  if (n == 2) {
    COPSE_DO(take_all(s, a, w, b));
    COPSE_DO(take_all(s, b, w, a));
  }
  COPSE_DO(take_all(s, a, w, a));
  if (n == 2) COPSE_DO(take_all(s, b, w, b));
  return COPSE_OK;
}

/* Contracts until none is left: contracting one relay can leave the next with two neighbours. */
static copse_status contract_chains(struct splitter *s) {
  for (bool again = true; again;) {
    again = false;
    for (int w = 0; w < s->network->n_nodes; w++) {
      if (s->is_terminal[w]) continue;
      int n = collect_neighbours(s, w);
      if (n == 0 || n > 2) continue;
      COPSE_DO(contract(s, w, n));
      COPSE_DO(commit(s));
      again = true;
    }
  }
  copse_flow_compact(s->flow);
  return COPSE_OK;
}

/* Takes the guess as far as the known cuts allow, then any pairs; unproved. */
static copse_status take_within_cuts(struct splitter *s, int w) {
  for (size_t i = 0; i < s->n_steps; i++) {
    struct step step = s->steps[i];
    step.amount = spared(s, &step);
    COPSE_DO(take(s, step));
  }
  struct pairs pairs = list_pairs(s, w);
  return take_pairs(s, &pairs, 0, pairs.n);
}

/* Whether all terminals are served with relay w gone; the cuts that are broken are learned. */
static copse_status check_and_learn(struct splitter *s, int w, bool *served) {
  COPSE_DO(ask(s, 0, COPSE_SPLIT_CUTS_PER_ATTEMPT, false));
  for (int i = 0; i < s->sinks.n_cuts; i++) {
    COPSE_DO(learn(s, &s->sinks.cuts[i], w));
    to_front(s, s->sinks.cuts[i].place);
  }
  *served = s->sinks.n_cuts == 0;
  return COPSE_OK;
}

/* Learns the tight cuts nearest to the terminals: hosts, mostly. Nothing is split yet, or all that
 * is has been proved. */
static copse_status learn_tight(struct splitter *s) {
  COPSE_DO(ask(s, 0, s->network->n_terminals, true));
  for (int i = 0; i < s->sinks.n_cuts; i++) COPSE_DO(learn(s, &s->sinks.cuts[i], -1));
  return COPSE_OK;
}

/*
 * Splits the whole relay at once within the known cuts, proved; again with the cuts that the proof
 * found broken. Leaves the relay as it was where that does not get there.
 */
static copse_status split_by_cuts(struct splitter *s, int w, bool *done) {
  *done = false;
  for (int attempt = 0; attempt < COPSE_SPLIT_ATTEMPTS; attempt++) {
    COPSE_DO(take_within_cuts(s, w));
    bool empty = is_empty(s, w), served;
    COPSE_DO(check_and_learn(s, empty ? w : -1, &served));
    *done = served; /* proved, though perhaps not all of the relay */
    if (served) return commit(s);
    COPSE_DO(undo(s, 0));
  }
  return COPSE_OK;
}

static copse_status split_relay(struct splitter *s, int w) {
  int n = collect_neighbours(s, w);
  bool done = false;
  if (n == 0) return COPSE_OK;
  if (n > 2) {
    COPSE_DO(guess(s, w, n));
    if (s->trusts) COPSE_DO(split_by_cuts(s, w, &done));
    if (!done) COPSE_DO(try_steps(s, 0, s->n_steps));
    COPSE_DO(split_pairwise(s, w));
  } else {
    COPSE_DO(contract(s, w, n));
    COPSE_DO(commit(s));
  }
  copse_flow_compact(s->flow);
  return COPSE_OK;
}

/* ---- all relays ---------------------------------------------------------------------------- */

/* Returns the slowest relay: a network switch is split while its hosts still are small stars. */
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
static copse_status take_turns(struct splitter *s) {
  const struct copse_network *network = s->network;
  int *links, *seen;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)network->n_nodes, links, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)network->n_links + 1, seen, s->err));
  for (int i = 0; i < network->n_links; i++) links[network->links[i].dst]++;
  for (int v = 0; v < network->n_nodes; v++)
    if (!s->is_terminal[v]) s->turn[v] = seen[links[v]]++;
  return COPSE_OK;
}

static copse_status prepare(struct splitter *s) {
  const struct copse_network *network = s->network;
  struct copse_arena *arena = &s->arena;
  size_t n = (size_t)network->n_nodes;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_terminals, s->order, s->err));
  COPSE_DO(copse_network_terminals(network, arena, &s->is_terminal, s->err));
  COPSE_DO(COPSE_ARRAYS(arena, n, int, s->err, &s->entering, &s->leaving, &s->group, &s->turn,
                        &s->members));
  COPSE_DO(COPSE_ARRAY(arena, n + 1, s->group_start, s->err));
  COPSE_DO(COPSE_ARRAY(arena, n, s->room, s->err));
  COPSE_DO(copse_cuts_new(network->n_nodes, COPSE_CUTS_MOST, &s->cuts, s->err));
  for (int i = 0; i < network->n_terminals; i++) s->order[i] = network->terminals[i];
  return take_turns(s);
}

static void release(struct splitter *s) {
  copse_flow_free(s->flow);
  free(s->steps);
  free(s->taken);
  copse_cuts_free(&s->cuts);
  copse_sinks_free(&s->sinks);
  copse_arena_free(&s->arena);
}

/* Takes a relay by its guess, or within the known cuts; unproved. */
static copse_status take_relay(struct splitter *s, int w, bool within_cuts) {
  int n = collect_neighbours(s, w);
  if (n <= 2) return contract(s, w, n);
  COPSE_DO(guess(s, w, n));
  if (within_cuts) return take_within_cuts(s, w);
  for (size_t i = 0; i < s->n_steps; i++) COPSE_DO(take(s, s->steps[i]));
  return COPSE_OK;
}

/* Splits all relays by their guesses and one proof for all; or nothing is changed. */
static copse_status split_all(struct splitter *s) {
  bool complete = true, served = false;
  for (int w; complete && (w = slowest_relay(s)) >= 0;) {
    COPSE_DO(take_relay(s, w, false));
    complete = is_empty(s, w);
    copse_flow_compact(s->flow);
  }
  if (complete) COPSE_DO(all_served(s, &served));
  if (served) return commit(s);
  COPSE_DO(undo(s, 0));
  copse_flow_compact(s->flow);
  return COPSE_OK;
}

static void report(const struct splitter *s, const struct copse_progress *progress, int done) {
  copse_progress_report(progress, "split", done, s->network->n_nodes - s->network->n_terminals);
}

/*
 * Puts relays that are gone, which a cut that was found broken has outside, where it is narrowest:
 * while they were there, each made it so on the side where the steps lose least by it; that cut
 * must be known too.
 */
static void put_relays_where_narrow(const struct splitter *s, unsigned char *inside) {
  for (size_t end = s->n_taken, first; end > 0; end = first) {
    int w = s->taken[end - 1].w;
    int64_t lost_outside = 0, lost_inside = 0;
    for (first = end; first > 0 && s->taken[first - 1].w == w; first--) {
      const struct step *step = &s->taken[first - 1];
      if (inside[step->u] != inside[step->t]) continue;
      *(inside[step->u] ? &lost_outside : &lost_inside) += step->amount;
    }
    inside[w] = lost_inside < lost_outside;
  }
}

/* Learns the cuts that the batch at hand breaks. */
static copse_status learn_from_batch(struct splitter *s) {
  for (int i = 0; i < s->sinks.n_cuts; i++) {
    const struct copse_sink_cut *cut = &s->sinks.cuts[i];
    COPSE_DO(learn(s, cut, -1));
    put_relays_where_narrow(s, cut->inside);
    COPSE_DO(learn(s, cut, -1));
    to_front(s, cut->place);
  }
  return COPSE_OK;
}

/* Takes relays within the known cuts, up to `most`; stops before one of which something is left.
 * So many are taken, unproved. */
static copse_status take_batch(struct splitter *s, int most, int *n) {
  *n = 0;
  for (int w; *n < most && (w = slowest_relay(s)) >= 0; ++*n) {
    size_t before = s->n_taken;
    COPSE_DO(take_relay(s, w, true));
    copse_flow_compact(s->flow);
    if (is_empty(s, w)) continue;
    COPSE_DO(undo(s, before));
    break;
  }
  return COPSE_OK;
}

/*
 * Splits many relays under one proof. Where that fails the cuts found broken join, and at last
 * fewer relays are tried at once; one that does not go is left to split_relay.
 */
static copse_status split_batches(struct splitter *s, const struct copse_progress *progress) {
  int batch = s->network->n_nodes, tries = 0, done = 0, taken;
  for (int w; (w = slowest_relay(s)) >= 0;) {
    COPSE_DO(take_batch(s, batch, &taken));
    if (taken > 0) COPSE_DO(ask(s, 0, COPSE_SPLIT_CUTS_PER_ATTEMPT, false));
    if (taken > 0 && s->sinks.n_cuts == 0) {
      COPSE_DO(commit(s));
      batch = 2 * taken;
      tries = 0;
    } else if (taken > 1 || (taken > 0 && tries < COPSE_SPLIT_TRIES)) {
      COPSE_DO(learn_from_batch(s));
      COPSE_DO(undo(s, 0));
      copse_flow_compact(s->flow);
      batch = tries++ < COPSE_SPLIT_TRIES ? taken : (taken + 1) / 2;
      continue;
    } else {
      COPSE_DO(undo(s, 0));
      COPSE_DO(split_relay(s, w));
      taken = 1;
    }
    done += taken;
    report(s, progress, done);
  }
  return COPSE_OK;
}

/* Drops the roots' source, which has done its work: what is left is the relay-free graph alone. */
static copse_status drop_source(struct splitter *s, int64_t k) {
  for (int i = 0; i < s->network->n_roots; i++)
    COPSE_DO(copse_flow_change(s->flow, s->network->n_nodes, s->network->roots[i].node,
                               -s->network->roots[i].weight * k, s->err));
  copse_flow_compact(s->flow);
  return COPSE_OK;
}

copse_status copse_split_relays(const struct copse_tree_problem *problem, struct copse_paths *paths,
                                struct copse_flow **flow, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(release)
  struct splitter s = {.network = network,
                       .paths = paths,
                       .trusts = network->n_terminals >= problem->trust_from,
                       .err = err};
  /* unequal shares were found by a linear programme: capacities that no guess fits */
  s.many_pairs = !s.trusts && !copse_network_equal_weights(network);
  *flow = NULL;
  COPSE_DO(prepare(&s));
  COPSE_DO(copse_sinks_graph(network, problem->capacities, 1, problem->k, &s.flow, &s.demand, err));
  COPSE_DO(contract_chains(&s));
  if (s.trusts) COPSE_DO(split_all(&s));
  if (s.trusts && slowest_relay(&s) >= 0) {
    COPSE_DO(learn_tight(&s));
    COPSE_DO(split_batches(&s, problem->progress));
  }
  if (s.many_pairs && slowest_relay(&s) >= 0) COPSE_DO(learn_tight(&s));
  for (int w, done = 0; (w = slowest_relay(&s)) >= 0;) {
    COPSE_DO(split_relay(&s, w));
    report(&s, problem->progress, ++done);
  }
  COPSE_DO(drop_source(&s, problem->k));
  *flow = s.flow;
  s.flow = NULL;
  return COPSE_OK;
}
