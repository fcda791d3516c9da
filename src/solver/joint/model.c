/*
 * The linear programme of joint.h: its columns, one for all that symmetries make one, and its rows.
 * Cuts are added to it while it is solved (joint.c).
 *
 *   columns:  rates | free shares of members | links of use, phase by phase
 *   rows:     shares add up to the rate; links' capacities; balance at relays; cuts
 *
 * Of whole links there are no rates, and one column for both phases, which its capacity bounds.
 * docs/theory.md, "Unequal shares".
 */
#include <math.h>
#include <string.h>

#include "base/graph.h"
#include "solver/joint/internal.h"
#include "solver/policy.h"
#include "solver/network/flow.h"

/* ---- symmetries ---------------------------------------------------------------------------- */

/* Disjoint sets (base/graph.h) of what they make one: the places of nodes and links in phases,
 * phase by phase. */
struct orbits {
  struct copse_joint_search *s;
  int *groups, *links, *phase_nodes, *phase_links;
};

static copse_status refuse(const struct orbits *o) {
  return copse_fail(o->s->err, COPSE_INTERNAL, "a claimed symmetry of groups is none");
}

static int place_of(const struct copse_joint_group *group, int node) {
  int i = 0;
  while (i < group->n_members && group->members[i] != node) i++;
  return i < group->n_members ? i : -1;
}

/* Returns the phase that takes the place of q, or -1. */
static int phase_image(const struct copse_joint_search *s, const struct copse_permutation *symmetry,
                       int q) {
  const struct copse_joint_phase *phase = &s->phases[q];
  int group = symmetry->groups[phase->group], sink = -1;
  if (phase->sink >= 0) {
    int node = s->groups[phase->group].members[phase->sink];
    sink = place_of(&s->groups[group], symmetry->image[node]);
    if (sink < 0) return -1;
  }
  for (int i = 0; i < s->n_phases; i++)
    if (s->phases[i].group == group && s->phases[i].reduce == phase->reduce &&
        s->phases[i].sink == sink)
      return i;
  return -1;
}

static bool is_extra(const struct copse_joint_group *group, int reduce, int node) {
  int k = 0;
  while (k < group->n_extra[reduce] && group->extra[reduce][k] != node) k++;
  return k < group->n_extra[reduce];
}

static bool group_holds(const struct copse_joint_search *s,
                        const struct copse_permutation *symmetry, int g) {
  const struct copse_joint_group *from = &s->groups[g], *to = &s->groups[symmetry->groups[g]];
  if (from->n_members != to->n_members || from->broadcasts != to->broadcasts ||
      from->reduces != to->reduces || from->exchanges != to->exchanges)
    return false;
  for (int i = 0; i < from->n_members; i++)
    if (place_of(to, symmetry->image[from->members[i]]) < 0) return false;
  for (int i = 0; i < 2; i++) {
    if (from->n_extra[i] != to->n_extra[i]) return false;
    for (int k = 0; k < from->n_extra[i]; k++)
      if (!is_extra(to, i, symmetry->image[from->extra[i][k]])) return false;
  }
  return from->root < 0 ? to->root < 0 : symmetry->image[from->root] == to->root;
}

static copse_status join_phases(struct orbits *o, const struct copse_permutation *symmetry,
                                const int *link_image) {
  const struct copse_joint_search *s = o->s;
  int n_nodes = s->network->n_nodes, n_links = s->network->n_links;
  for (int g = 0; g < s->n_groups; g++) {
    if (!group_holds(s, symmetry, g)) return refuse(o);
    copse_sets_unite(o->groups, g, symmetry->groups[g]);
  }
  for (int q = 0; q < s->n_phases; q++) {
    int p = phase_image(s, symmetry, q);
    if (p < 0) return refuse(o);
    for (int v = 0; v < n_nodes; v++)
      copse_sets_unite(o->phase_nodes, q * n_nodes + v, p * n_nodes + symmetry->image[v]);
    for (int e = 0; e < n_links; e++) {
      if ((s->phases[q].column[e] < 0) != (s->phases[p].column[link_image[e]] < 0))
        return refuse(o);
      copse_sets_unite(o->phase_links, q * n_links + e, p * n_links + link_image[e]);
    }
  }
  return COPSE_OK;
}

static copse_status join_all(struct orbits *o, const struct copse_joint_options *options) {
  for (int i = 0; i < options->n_symmetries; i++) {
    COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
    int *link_image;
    const struct copse_permutation *symmetry = &options->symmetries[i];
    COPSE_DO(copse_links_image(o->s->network, symmetry, &scratch, &link_image, o->s->err));
    for (int e = 0; e < o->s->network->n_links; e++) copse_sets_unite(o->links, e, link_image[e]);
    COPSE_DO(join_phases(o, symmetry, link_image));
  }
  return COPSE_OK;
}

/* Finds the link back of each. *all: there is one for each, of the same capacity. */
static copse_status find_links_back(const struct copse_network *network, int *back, bool *all,
                                    struct copse_err *err) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map by_ends = {0};
  for (int e = 0; e < network->n_links; e++)
    COPSE_DO(copse_index_map_add(&by_ends,
                                 copse_key_pair(network->links[e].src, network->links[e].dst), e,
                                 err));
  *all = true;
  for (int e = 0; e < network->n_links && *all; e++) {
    const struct copse_net_link *link = &network->links[e];
    size_t cursor = 0;
    back[e] = copse_index_map_next(&by_ends, copse_key_pair(link->dst, link->src), &cursor);
    *all = back[e] >= 0 && network->links[back[e]].capacity == link->capacity;
  }
  for (int e = 0; e < network->n_links && *all; e++)
    *all = back[back[e]] == e; /* none in parallel */
  return COPSE_OK;
}

/*
 * Joins phases with their group's other, turned round. Where all groups broadcast and reduce over
 * links that are the same both ways, any solution turned round, each phase in the place of the
 * other of its group, is a solution too, and so is the mean of both: one in which each link has of
 * the reduction what the link back has of the broadcast. This is one more symmetry, of phases and
 * links and not of nodes.
 */
static copse_status join_turned(struct orbits *o) {
  struct copse_joint_search *s = o->s;
  int n_nodes = s->network->n_nodes, n_links = s->network->n_links;
  bool all = s->n_groups > 1 && s->n_rates == 1 && !s->limits;
  for (int g = 0; g < s->n_groups; g++)
    all = all && s->groups[g].broadcasts && s->groups[g].reduces && s->groups[g].n_extra[0] == 0 &&
          s->groups[g].n_extra[1] == 0;
  if (!all) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)n_links, s->back, s->err));
  COPSE_DO(find_links_back(s->network, s->back, &s->turned, s->err));
  for (int e = 0; e < n_links && s->turned; e++) copse_sets_unite(o->links, e, s->back[e]);
  for (int q = 0; q < s->n_phases && s->turned; q += 2) { /* the reduction follows the broadcast */
    for (int v = 0; v < n_nodes; v++)
      copse_sets_unite(o->phase_nodes, q * n_nodes + v, (q + 1) * n_nodes + v);
    for (int e = 0; e < n_links; e++)
      copse_sets_unite(o->phase_links, q * n_links + e, (q + 1) * n_links + s->back[e]);
  }
  return COPSE_OK;
}

static void mark_leaders(struct orbits *o) {
  struct copse_joint_search *s = o->s;
  int n_nodes = s->network->n_nodes;
  for (int e = 0; e < s->network->n_links; e++) s->leads[e] = copse_sets_find(o->links, e) == e;
  for (int q = 0; q < s->n_phases; q++)
    for (int v = 0; v < n_nodes; v++) {
      int first = copse_sets_find(o->phase_nodes, q * n_nodes + v);
      s->phases[q].leader[v] = first >= q * n_nodes ? first - q * n_nodes : -1;
    }
}

static copse_status count_uses(struct copse_joint_search *s) {
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_columns, s->uses, s->err));
  for (int q = 0; q < s->n_phases; q++)
    for (int e = 0; e < s->network->n_links; e++)
      if (s->phases[q].column[e] >= 0) s->uses[s->phases[q].column[e]]++;
  if (!s->limits) return COPSE_OK;
  s->n_places = 0; /* what a link takes of all that is limited */
  for (int q = 0; q < s->n_phases; q++)
    for (int e = 0; e < s->network->n_links; e++) {
      if (s->phases[q].column[e] < 0) continue;
      s->uses[s->phases[q].column[e]] += s->limits->first[e + 1] - s->limits->first[e];
      s->n_places += s->uses[s->phases[q].column[e]];
    }
  return COPSE_OK;
}

/* Numbers columns: one for every orbit of a member's free share, then of a link of use. */
static copse_status number_columns(struct orbits *o) {
  struct copse_joint_search *s = o->s;
  int n_nodes = s->network->n_nodes, n_links = s->network->n_links, q = 0;
  COPSE_AT_END(copse_free_at) int *share = NULL;
  COPSE_DO(copse_calloc((size_t)s->n_phases * (size_t)n_nodes, sizeof *share, &share, o->s->err));
  s->n_columns = s->whole ? 0 : s->n_rates;
  for (int g = 0; g < s->n_groups; g++) {
    while (q < s->n_phases && s->phases[q].group < g) q++;
    if (copse_joint_roots(s, g) > 0) continue;
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->groups[g].n_members, s->share[g], o->s->err));
    for (int i = 0; i < s->groups[g].n_members; i++) {
      int *column = &share[copse_sets_find(o->phase_nodes, q * n_nodes + s->groups[g].members[i])];
      if (*column == 0) *column = s->n_columns++;
      s->share[g][i] = *column;
    }
  }
  for (q = 0; q < s->n_phases; q++)
    for (int e = 0; e < n_links; e++) {
      if (s->phases[q].column[e] < 0) continue;
      if (s->phases[q].rest) {
        s->phases[q].column[e] = s->phases[q - 1].column[e];
        continue;
      }
      int first = copse_sets_find(o->phase_links, q * n_links + e);
      s->phases[q].column[e] = first == q * n_links + e
                                   ? s->n_columns++
                                   : s->phases[first / n_links].column[first % n_links];
    }
  return COPSE_OK;
}

static copse_status sets_new(struct copse_arena *arena, int n, int **sets, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, *sets, err));
  copse_sets_init(*sets, n);
  return COPSE_OK;
}

/* Numbers the columns; those of phases are >= 0 before where links are of use. */
static copse_status find_orbits(struct copse_joint_search *s,
                                const struct copse_joint_options *options) {
  struct orbits o = {.s = s};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_groups, s->twin, s->err));
  COPSE_DO(sets_new(&scratch, s->n_groups, &o.groups, s->err));
  COPSE_DO(sets_new(&scratch, s->network->n_links, &o.links, s->err));
  COPSE_DO(sets_new(&scratch, s->n_phases * s->network->n_nodes, &o.phase_nodes, s->err));
  COPSE_DO(sets_new(&scratch, s->n_phases * s->network->n_links, &o.phase_links, s->err));
  COPSE_DO(join_all(&o, options));
  COPSE_DO(join_turned(&o));
  for (int g = 0; g < s->n_groups; g++) s->twin[g] = copse_sets_find(o.groups, g);
  mark_leaders(&o);
  COPSE_DO(number_columns(&o));
  return count_uses(s);
}

/* ---- columns ----------------------------------------------------------------------------- */

/* Whether the links of a phase at a node all lead to one place. */
struct ends {
  int n, neighbour;
  bool several;
};

static void add_end(struct ends *end, int neighbour) {
  if (end->n++ == 0) end->neighbour = neighbour;
  end->several = end->several || end->neighbour != neighbour;
}

/* Leaves out links at closed nodes, and, again and again, relays from which the only way leads
 * back: anchor[v] is then where to. */
static copse_status prune(const struct copse_joint_search *s, struct copse_joint_phase *phase) {
  const struct copse_network *network = s->network;
  const bool *closed = s->groups[phase->group].closed;
  int *anchor = phase->anchor;
  COPSE_AT_END(copse_free_at) struct ends *ends = NULL;
  COPSE_DO(copse_calloc((size_t)network->n_nodes, sizeof *ends, &ends, s->err));
  for (int v = 0; v < network->n_nodes; v++) anchor[v] = -1;
  for (int e = 0; e < network->n_links; e++)
    if (closed && (closed[network->links[e].src] || closed[network->links[e].dst]))
      phase->column[e] = -1;
  for (bool again = true; again;) {
    again = false;
    memset(ends, 0, (size_t)network->n_nodes * sizeof *ends);
    for (int e = 0; e < network->n_links; e++) {
      if (phase->column[e] < 0) continue;
      add_end(&ends[network->links[e].src], network->links[e].dst);
      add_end(&ends[network->links[e].dst], network->links[e].src);
    }
    for (int v = 0; v < network->n_nodes; v++) {
      if (phase->terminal[v] || ends[v].n == 0 || ends[v].several) continue;
      if (anchor[ends[v].neighbour] == v) continue; /* two relays with nothing but each other */
      anchor[v] = ends[v].neighbour;
      again = true;
    }
    for (int e = 0; e < network->n_links && again; e++)
      if (anchor[network->links[e].src] >= 0 || anchor[network->links[e].dst] >= 0)
        phase->column[e] = -1;
  }
  return COPSE_OK;
}

static copse_status add_phase(struct copse_joint_search *s, int group, bool reduce, int sink) {
  struct copse_joint_phase *phase = &s->phases[s->n_phases++];
  size_t nodes = (size_t)s->network->n_nodes;
  phase->group = group;
  phase->reduce = reduce;
  phase->sink = sink;
  phase->rest = s->whole && reduce;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->network->n_links, phase->column, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, nodes, int, s->err, &phase->relay_row, &phase->anchor,
                        &phase->leader));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, phase->terminal, s->err));
  for (int i = 0; i < copse_joint_terminals(s, phase); i++)
    phase->terminal[copse_joint_terminal(s, phase, i)] = true;
  COPSE_DO(prune(s, phase));
  for (int e = 0; e < s->network->n_links; e++) s->n_places += phase->column[e] >= 0;
  for (int v = 0; v < s->network->n_nodes; v++) phase->relay_row[v] = -1;
  return COPSE_OK;
}

/* ---- columns to begin with --------------------------------------------------------------- */

/* Whether a way goes on: in trees one from a terminal ends at the next; what goes to a member
 * passes through others. */
static bool leads_on(const struct copse_joint_phase *phase, int from, int node) {
  return node == from || !phase->terminal[node] || phase->sink >= 0;
}

/* Searches breadth-first from one terminal over links of use: hops [n_nodes], -1: not reached. */
static void count_hops(const struct copse_joint_search *s, const struct copse_joint_phase *phase,
                       int from, int *hops) {
  for (int v = 0; v < s->network->n_nodes; v++) hops[v] = -1;
  hops[from] = 0;
  bool more = true;
  for (int hop = 0; more; hop++) {
    more = false;
    for (int e = 0; e < s->network->n_links; e++) {
      const struct copse_net_link *link = &s->network->links[e];
      if (phase->column[e] < 0 || hops[link->src] != hop || hops[link->dst] >= 0 ||
          !leads_on(phase, from, link->src))
        continue;
      hops[link->dst] = hop + 1;
      more = true;
    }
  }
}

/* Opens the columns of the links of all shortest ways from `from` to other terminals. wanted
 * [n_nodes] is used. */
static void mark_ways(const struct copse_joint_search *s, const struct copse_joint_phase *phase,
                      int from, const int *hops, bool *wanted, bool *open) {
  int most = 0, sink = phase->sink < 0 ? -1 : copse_joint_terminal(s, phase, phase->sink);
  for (int v = 0; v < s->network->n_nodes; v++) {
    wanted[v] = phase->terminal[v] && v != from && hops[v] > 0 && (sink < 0 || v == sink);
    if (hops[v] > most) most = hops[v];
  }
  for (int hop = most; hop > 0; hop--)
    for (int e = 0; e < s->network->n_links; e++) {
      const struct copse_net_link *link = &s->network->links[e];
      if (phase->column[e] < 0 || hops[link->dst] != hop || hops[link->src] != hop - 1 ||
          !wanted[link->dst] || !leads_on(phase, from, link->src))
        continue;
      open[phase->column[e]] = true;
      wanted[link->src] = true;
    }
}

/* Closes all but few links' columns: those of shortest ways are of use in the end, and what the
 * programme asks for. */
static copse_status close_columns(struct copse_joint_search *s) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t nodes = (size_t)s->network->n_nodes;
  bool *wanted, *open;
  int *hops, n_closed = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, nodes, wanted, s->err));
  COPSE_DO(COPSE_ARRAY(&scratch, nodes, hops, s->err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)s->n_columns, open, s->err));
  for (int q = 0; q < s->n_phases; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    for (int i = 0; i < copse_joint_terminals(s, phase); i++) {
      int from = copse_joint_terminal(s, phase, i);
      if (!copse_joint_leads(phase, from)) continue;
      count_hops(s, phase, from, hops);
      mark_ways(s, phase, from, hops, wanted, open);
    }
  }
  for (int j = 0; j < s->n_columns; j++) n_closed += s->uses[j] > 0 && !open[j];
  int part = s->n_groups > 1 ? COPSE_JOINT_GROUPS_CLOSED_PART : COPSE_JOINT_CLOSED_PART;
  if (n_closed < s->n_columns / part) return COPSE_OK;
  for (int j = 0; j < s->n_columns; j++)
    if (s->uses[j] > 0 && !open[j]) copse_lp_close(s->lp, j);
  return COPSE_OK;
}

/* ---- all columns ------------------------------------------------------------------------- */

static copse_status add_phases(struct copse_joint_search *s, int group) {
  const struct copse_joint_group *g = &s->groups[group];
  if (g->broadcasts) COPSE_DO(add_phase(s, group, false, -1));
  if (g->reduces) COPSE_DO(add_phase(s, group, true, -1));
  for (int i = 0; g->exchanges && i < g->n_members && s->n_places <= COPSE_JOINT_PLACES; i++)
    COPSE_DO(add_phase(s, group, false, i));
  return COPSE_OK;
}

static copse_status add_columns(struct copse_joint_search *s,
                                const struct copse_joint_options *options, bool *small) {
  size_t most = 0, nodes = (size_t)s->network->n_nodes, links = (size_t)s->network->n_links;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_groups, s->share, s->err));
  for (int g = 0; g < s->n_groups; g++)
    most += s->groups[g].exchanges ? (size_t)s->groups[g].n_members : 2;
  *small = most <= COPSE_JOINT_CELLS / (nodes + links);
  s->n_columns = COPSE_JOINT_PLACES;
  if (!*small) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&s->arena, most, s->phases, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, links, s->leads, s->err));
  for (int g = 0; g < s->n_groups && s->n_places <= COPSE_JOINT_PLACES; g++)
    COPSE_DO(add_phases(s, g));
  *small = s->n_places <= COPSE_JOINT_PLACES;
  if (!*small) return COPSE_OK;
  COPSE_DO(find_orbits(s, options));
  *small = s->n_columns <= options->max_columns;
  return COPSE_OK;
}

/* ---- rows -------------------------------------------------------------------------------- */

static void count(struct copse_joint_search *s, int column, int64_t value) {
  int *at = &s->term_at[column];
  if (*at == 0) {
    *at = ++s->n_terms;
    s->terms[*at - 1] = (struct copse_lp_term){column, 0};
  }
  s->terms[*at - 1].value += value;
}

/* Adds what was counted; *row is its number, -1 where all comes to nothing. */
static copse_status add_row(struct copse_joint_search *s, int64_t right, bool exactly, int *row) {
  int n = 0;
  for (int i = 0; i < s->n_terms; i++) {
    s->term_at[s->terms[i].column] = 0;
    if (s->terms[i].value != 0) s->terms[n++] = s->terms[i];
  }
  s->n_terms = 0;
  *row = n > 0 ? copse_lp_rows(s->lp) : -1;
  return n > 0 ? copse_lp_add_row(s->lp, s->terms, n, right, exactly, s->err) : COPSE_OK;
}

static bool group_leads(const struct copse_joint_search *s, int group) {
  for (int q = 0; q < s->n_phases; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    for (int i = 0; phase->group == group && i < copse_joint_terminals(s, phase); i++)
      if (copse_joint_leads(phase, copse_joint_terminal(s, phase, i))) return true;
  }
  return false;
}

static copse_status add_share_rows(struct copse_joint_search *s) {
  int row;
  for (int g = 0; g < s->n_groups; g++) {
    if (!s->share[g] || !group_leads(s, g)) continue;
    count(s, copse_joint_rate_column(s, g), -1);
    for (int i = 0; i < s->groups[g].n_members; i++) count(s, s->share[g][i], 1);
    COPSE_DO(add_row(s, 0, true, &row));
  }
  return COPSE_OK;
}

/* Adds rows of limits. A share column may stand for several members, but comes first at one of
 * them. */
static copse_status add_limit_rows(struct copse_joint_search *s, struct copse_q most) {
  int row, last = -1; /* columns are numbered in this order */
  for (int g = 0; g < s->n_groups && most.num > 0; g++)
    for (int i = 0; s->share[g] && i < s->groups[g].n_members; i++) {
      if (s->share[g][i] <= last) continue;
      last = s->share[g][i];
      count(s, last, most.den);
      count(s, copse_joint_rate_column(s, g), -most.num);
      COPSE_DO(add_row(s, 0, false, &row));
    }
  return COPSE_OK;
}

/* Whether a link counts in a limit. */
static bool is_limited(const struct copse_joint_limits *limits, int link, int limit) {
  int i = limits->first[link];
  while (i < limits->first[link + 1] && limits->of[i] != limit) i++;
  return i < limits->first[link + 1];
}

static copse_status add_limit_sums(struct copse_joint_search *s) {
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->limits->n, s->limit_row, s->err));
  for (int i = 0; i < s->limits->n; i++) {
    for (int e = 0; e < s->network->n_links; e++)
      for (int q = 0; q < s->n_phases && is_limited(s->limits, e, i); q++)
        if (s->phases[q].column[e] >= 0) count(s, s->phases[q].column[e], 1);
    COPSE_DO(add_row(s, s->limits->capacities[i], false, &s->limit_row[i]));
  }
  return COPSE_OK;
}

static copse_status add_link_rows(struct copse_joint_search *s) {
  if (s->limits) return add_limit_sums(s);
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->network->n_links, s->link_row, s->err));
  for (int e = 0; e < s->network->n_links; e++) {
    for (int q = 0; s->leads[e] && q < s->n_phases; q++)
      if (s->phases[q].column[e] >= 0) count(s, s->phases[q].column[e], 1);
    COPSE_DO(add_row(s, s->network->links[e].capacity, false, &s->link_row[e]));
  }
  return COPSE_OK;
}

/* Adds to the row the flow that enters a node less the flow that leaves it, times `factor`. */
static void count_gain(struct copse_joint_search *s, const struct copse_joint_phase *phase,
                       int node, int64_t factor) {
  for (int e = 0; e < s->network->n_links; e++) {
    const struct copse_net_link *link = &s->network->links[e];
    if (phase->column[e] >= 0 && (link->src == node || link->dst == node))
      count(s, phase->column[e], link->dst == node ? factor : -factor);
  }
}

static copse_status add_relay_rows(struct copse_joint_search *s, struct copse_joint_phase *phase) {
  const bool *unbalanced = s->groups[phase->group].unbalanced;
  for (int w = 0; w < s->network->n_nodes; w++) {
    if (phase->terminal[w] || !copse_joint_leads(phase, w) || (unbalanced && unbalanced[w]))
      continue;
    count_gain(s, phase, w, 1);
    COPSE_DO(add_row(s, 0, true, &phase->relay_row[w]));
  }
  return COPSE_OK;
}

/* Adds the rows of a flow to one member, to which every other member adds its share. */
static copse_status add_flow_rows(struct copse_joint_search *s, struct copse_joint_phase *phase) {
  int roots = copse_joint_roots(s, phase->group),
      sink = copse_joint_terminal(s, phase, phase->sink);
  for (int v = 0; v < s->network->n_nodes; v++) {
    if (v == sink || !copse_joint_leads(phase, v)) continue;
    count_gain(s, phase, v, -roots);
    if (phase->terminal[v]) count(s, copse_joint_rate_column(s, phase->group), -1);
    COPSE_DO(add_row(s, 0, true, &phase->relay_row[v]));
  }
  return COPSE_OK;
}

static copse_status add_node_rows(struct copse_joint_search *s) {
  for (int q = 0; q < s->n_phases; q++) {
    struct copse_joint_phase *phase = &s->phases[q];
    if (phase->rest) continue; /* links together are balanced, so is the rest */
    COPSE_DO(phase->sink >= 0 ? add_flow_rows(s, phase) : add_relay_rows(s, phase));
  }
  return COPSE_OK;
}

copse_status copse_joint_add_cut(struct copse_joint_search *s, int phase, const bool *set,
                                 size_t first) {
  const struct copse_joint_phase *q = &s->phases[phase];
  const struct copse_joint_group *group = &s->groups[q->group];
  int roots = copse_joint_roots(s, q->group), held = 0;
  int64_t right = 0; /* capacities of a phase that has the rest */
  bool *inside = s->set;
  struct copse_joint_row cut = {phase, -1, NULL};
  for (int v = 0; v < s->network->n_nodes; v++) inside[v] = set[copse_joint_anchor(q, v)];
  for (size_t i = first; i < s->n_cuts; i++)
    if (s->cuts[i].phase == phase &&
        memcmp(s->cuts[i].inside, inside, (size_t)s->network->n_nodes * sizeof *inside) == 0)
      return COPSE_OK;
  for (int i = 0; i < group->n_members; i++) {
    if (!inside[group->members[i]] || !copse_joint_is_root(group, i)) continue;
    held++;
    if (roots == 0) count(s, s->share[q->group][i], 1);
  }
  if (roots > 0 && held > 0) count(s, copse_joint_rate_column(s, q->group), held);
  for (int e = 0; e < s->network->n_links; e++) {
    const struct copse_net_link *link = &s->network->links[e];
    int from = q->reduce ? link->dst : link->src, to = q->reduce ? link->src : link->dst;
    if (q->column[e] < 0 || !inside[from] || inside[to]) continue;
    count(s, q->column[e], q->rest ? 1 : roots > 0 ? -roots : -1);
    if (q->rest && (copse_add_overflows(right, link->capacity, &right) || right > COPSE_FLOW_MAX))
      return copse_fail(s->err, COPSE_OVERFLOW,
                        "the bandwidths need more than 61 bits once brought to a common "
                        "denominator; use fewer digits");
  }
  COPSE_DO(add_row(s, right, false, &cut.row));
  if (cut.row < 0) return COPSE_OK;
  COPSE_DO(COPSE_GROW(s->cuts, s->cuts_capacity, s->n_cuts + 1, s->err));
  cut.inside = inside;
  s->cuts[s->n_cuts++] = cut;
  return COPSE_ARRAY(&s->arena, (size_t)s->network->n_nodes, s->set, s->err);
}

/* Adds the cut around all terminals but one, which often binds: what that one must receive (send).
 */
static copse_status add_first_cut(struct copse_joint_search *s, int q, int i) {
  const struct copse_joint_phase *phase = &s->phases[q];
  int terminal = copse_joint_terminal(s, phase, i);
  if (terminal == s->groups[phase->group].root || !copse_joint_leads(phase, terminal))
    return COPSE_OK;
  for (int v = 0; v < s->network->n_nodes; v++) s->side[v] = v != terminal;
  return copse_joint_add_cut(s, q, s->side, s->n_cuts);
}

static copse_status add_first_cuts(struct copse_joint_search *s) {
  for (int i = 0; s->whole && i < s->groups[0].n_members; i++)
    for (int q = 0; q < s->n_phases; q++) COPSE_DO(add_first_cut(s, q, i));
  for (int q = 0; !s->whole && q < s->n_phases; q++)
    for (int i = 0; s->phases[q].sink < 0 && i < copse_joint_terminals(s, &s->phases[q]); i++)
      COPSE_DO(add_first_cut(s, q, i));
  return COPSE_OK;
}

/* ---- a basis to begin with ----------------------------------------------------------------- */

/* For every phase a tree of short ways to its member: [n_phases * n_nodes] the link by which a node
 * sends, -1. */
struct trees {
  int *via, *hops, *order; /* hops and order [n_nodes]: of one phase, to its member */
  double *load, *flow;     /* [n_links], [n_nodes], in rates of a group */
  int n_order;
};

/* Searches breadth-first, over links backwards, from the phase's member. */
static void count_hops_to(const struct copse_joint_search *s, const struct copse_joint_phase *phase,
                          struct trees *t) {
  for (int v = 0; v < s->network->n_nodes; v++) t->hops[v] = -1;
  t->order[0] = copse_joint_terminal(s, phase, phase->sink);
  t->hops[t->order[0]] = 0;
  t->n_order = 1;
  for (int i = 0; i < t->n_order; i++)
    for (int e = 0; e < s->network->n_links; e++) {
      const struct copse_net_link *link = &s->network->links[e];
      if (phase->column[e] < 0 || link->dst != t->order[i] || t->hops[link->src] >= 0) continue;
      t->hops[link->src] = t->hops[link->dst] + 1;
      t->order[t->n_order++] = link->src;
    }
}

/* Lets each node send by the link of a shortest way that has the most room. */
static void choose_tree(const struct copse_joint_search *s, int q, struct trees *t) {
  const struct copse_joint_phase *phase = &s->phases[q];
  int n_nodes = s->network->n_nodes, roots = copse_joint_roots(s, phase->group);
  int *via = &t->via[q * n_nodes];
  count_hops_to(s, phase, t);
  for (int v = 0; v < n_nodes; v++) {
    t->flow[v] = phase->terminal[v] ? 1.0 / roots : 0;
    via[v] = -1;
  }
  for (int i = t->n_order - 1; i > 0; i--) {
    int v = t->order[i];
    double least = INFINITY;
    for (int e = 0; e < s->network->n_links; e++) {
      const struct copse_net_link *link = &s->network->links[e];
      if (phase->column[e] < 0 || link->src != v || t->hops[link->dst] != t->hops[v] - 1) continue;
      double full = (t->load[e] + t->flow[v]) / (double)link->capacity;
      if (full >= least) continue;
      least = full;
      via[v] = e;
    }
    t->load[via[v]] += t->flow[v];
    t->flow[s->network->links[via[v]].dst] += t->flow[v];
  }
}

/* Begins, where all is from each member to each, with a basis of trees and the rate that the
 * fullest link allows: from nothing, the simplex method takes a step for nearly every link of
 * such trees. */
static copse_status begin_with_trees(struct copse_joint_search *s,
                                     const struct copse_joint_options *options) {
  const struct copse_network *network = s->network;
  size_t nodes = (size_t)network->n_nodes;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct trees t;
  int full = -1;
  bool all = s->n_rates == 1 && !s->limits && options->n_symmetries == 0;
  for (int g = 0; g < s->n_groups; g++) all = all && s->groups[g].exchanges;
  if (!all) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)s->n_phases * nodes, t.via, s->err));
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, s->err, &t.hops, &t.order));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_links, t.load, s->err));
  COPSE_DO(COPSE_ARRAY(&scratch, nodes, t.flow, s->err));
  for (int q = 0; q < s->n_phases; q++) choose_tree(s, q, &t);
  for (int e = 0; e < network->n_links; e++)
    if (t.load[e] > 0 && (full < 0 || t.load[e] / (double)network->links[e].capacity >
                                          t.load[full] / (double)network->links[full].capacity))
      full = e;
  if (full < 0) return COPSE_OK;
  for (int q = 0; q < s->n_phases; q++)
    for (int v = 0; v < network->n_nodes; v++) {
      int via = t.via[(size_t)q * nodes + (size_t)v], row = s->phases[q].relay_row[v];
      if (via >= 0 && row >= 0) copse_lp_enter(s->lp, s->phases[q].column[via], row);
    }
  copse_lp_enter(s->lp, 0, s->link_row[full]);
  return COPSE_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Sets uppers where one column is for both phases: link e's is at most its capacity. */
static void set_uppers(struct copse_joint_search *s) {
  for (int e = 0; e < s->network->n_links; e++)
    if (s->phases[0].column[e] >= 0)
      copse_lp_set_upper(s->lp, s->phases[0].column[e],
                         (struct copse_q){s->network->links[e].capacity, 1});
}

copse_status copse_joint_model(struct copse_joint_search *s,
                               const struct copse_joint_options *options, bool *small) {
  int64_t largest = 1;
  for (int e = 0; e < s->network->n_links; e++)
    if (s->network->links[e].capacity > largest) largest = s->network->links[e].capacity;
  COPSE_DO(add_columns(s, options, small));
  if (!*small) return COPSE_OK;
  size_t columns = (size_t)s->n_columns;
  COPSE_DO(COPSE_ARRAY(&s->arena, columns, s->terms, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, columns, s->term_at, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, columns, int64_t, s->err, &s->value, &s->inner, &s->end,
                        &s->middle));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->network->n_nodes, s->shares, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, (size_t)s->network->n_nodes, bool, s->err, &s->side, &s->set));
  COPSE_DO(COPSE_ARRAYS(&s->arena, (size_t)s->network->n_links, int64_t, s->err, &s->capacities,
                        &s->units));
  for (int e = 0; e < s->network->n_links; e++)
    s->units[e] =
        llround((double)s->network->links[e].capacity / (double)largest * (double)COPSE_LP_UNITS);
  COPSE_DO(copse_lp_new(s->n_columns, 0, largest, s->whole, &s->lp, s->err));
  if (s->whole) {
    set_uppers(s);
  } else {
    COPSE_DO(add_share_rows(s));
    COPSE_DO(add_limit_rows(s, options->most));
    COPSE_DO(add_link_rows(s));
  }
  COPSE_DO(add_node_rows(s));
  COPSE_DO(add_first_cuts(s));
  if (s->whole) return COPSE_OK;
  COPSE_DO(close_columns(s));
  return begin_with_trees(s, options);
}
