/* What symmetries make one: links, and nodes and links of phases. */
#include <stdlib.h>
#include <string.h>

#include "solver/joint/joint_internal.h"

/* Sets of numbers, each named by its least. */
struct sets {
  int n, *parent;
};

static int find(struct sets *sets, int i) {
  while (sets->parent[i] != i) i = sets->parent[i] = sets->parent[sets->parent[i]];
  return i;
}

static void join(struct sets *sets, int i, int j) {
  i = find(sets, i);
  j = find(sets, j);
  sets->parent[i > j ? i : j] = i > j ? j : i;
}

static copse_status sets_new(int n, struct sets *sets, struct copse_err *err) {
  copse_status status = copse_calloc((size_t)n, sizeof(int), &sets->parent, err);
  sets->n = n;
  for (int i = 0; status == COPSE_OK && i < n; i++) sets->parent[i] = i;
  return status;
}

/* The places of nodes and links in phases, phase by phase. */
struct orbits {
  struct copse_joint_search *s;
  struct sets groups, links, phase_nodes, phase_links;
  struct copse_err *err;
};

static copse_status refuse(const struct orbits *o) {
  return copse_fail(o->err, COPSE_INTERNAL, "a claimed symmetry of groups is none");
}

static int place_of(const struct copse_joint_group *group, int node) {
  int i = 0;
  while (i < group->n_members && group->members[i] != node) i++;
  return i < group->n_members ? i : -1;
}

/* The phase that takes the place of q, or -1. */
static int phase_image(const struct copse_joint_search *s,
                       const struct copse_permutation *symmetry, int q) {
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
    join(&o->groups, g, symmetry->groups[g]);
  }
  for (int q = 0; q < s->n_phases; q++) {
    int p = phase_image(s, symmetry, q);
    if (p < 0) return refuse(o);
    for (int v = 0; v < n_nodes; v++)
      join(&o->phase_nodes, q * n_nodes + v, p * n_nodes + symmetry->image[v]);
    for (int e = 0; e < n_links; e++) {
      if ((s->phases[q].column[e] < 0) != (s->phases[p].column[link_image[e]] < 0))
        return refuse(o);
      join(&o->phase_links, q * n_links + e, p * n_links + link_image[e]);
    }
  }
  return COPSE_OK;
}

static copse_status join_all(struct orbits *o, const struct copse_joint_options *options) {
  copse_status status = COPSE_OK;
  int *link_image = NULL;
  for (int i = 0; i < options->n_symmetries; i++) {
    const struct copse_permutation *symmetry = &options->symmetries[i];
    COPSE_TRY(copse_links_image(o->s->network, symmetry, &link_image, o->err));
    for (int e = 0; e < o->s->network->n_links; e++) join(&o->links, e, link_image[e]);
    COPSE_TRY(join_phases(o, symmetry, link_image));
    free(link_image);
    link_image = NULL;
  }
out:
  free(link_image);
  return status;
}

static void mark_leaders(struct orbits *o) {
  struct copse_joint_search *s = o->s;
  int n_nodes = s->network->n_nodes;
  for (int e = 0; e < s->network->n_links; e++) s->leads[e] = find(&o->links, e) == e;
  for (int q = 0; q < s->n_phases; q++)
    for (int v = 0; v < n_nodes; v++) {
      int first = find(&o->phase_nodes, q * n_nodes + v);
      s->phases[q].leader[v] = first >= q * n_nodes ? first - q * n_nodes : -1;
    }
}

static copse_status count_uses(struct copse_joint_search *s, struct copse_err *err) {
  copse_status status = copse_calloc((size_t)s->n_columns, sizeof *s->uses, &s->uses, err);
  for (int q = 0; status == COPSE_OK && q < s->n_phases; q++)
    for (int e = 0; e < s->network->n_links; e++)
      if (s->phases[q].column[e] >= 0) s->uses[s->phases[q].column[e]]++;
  return status;
}

/* A column for every orbit of a member's free share, then of a link of use. */
static copse_status number_columns(struct orbits *o) {
  struct copse_joint_search *s = o->s;
  int n_nodes = s->network->n_nodes, n_links = s->network->n_links, q = 0;
  copse_status status = COPSE_OK;
  int *share = NULL;
  COPSE_TRY(copse_calloc((size_t)s->n_phases * (size_t)n_nodes, sizeof *share, &share, o->err));
  s->n_columns = s->n_rates;
  for (int g = 0; g < s->n_groups; g++) {
    while (q < s->n_phases && s->phases[q].group < g) q++;
    if (copse_joint_roots(s, g) > 0) continue;
    COPSE_TRY(copse_calloc((size_t)s->groups[g].n_members, sizeof(int), &s->share[g], o->err));
    for (int i = 0; i < s->groups[g].n_members; i++) {
      int *column = &share[find(&o->phase_nodes, q * n_nodes + s->groups[g].members[i])];
      if (*column == 0) *column = s->n_columns++;
      s->share[g][i] = *column;
    }
  }
  for (q = 0; q < s->n_phases; q++)
    for (int e = 0; e < n_links; e++) {
      if (s->phases[q].column[e] < 0) continue;
      int first = find(&o->phase_links, q * n_links + e);
      s->phases[q].column[e] = first == q * n_links + e
                                   ? s->n_columns++
                                   : s->phases[first / n_links].column[first % n_links];
    }
out:
  free(share);
  return status;
}

copse_status copse_joint_orbits(struct copse_joint_search *s,
                                const struct copse_joint_options *options, struct copse_err *err) {
  struct orbits o = {.s = s, .err = err};
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)s->n_groups, sizeof *s->twin, &s->twin, err));
  COPSE_TRY(sets_new(s->n_groups, &o.groups, err));
  COPSE_TRY(sets_new(s->network->n_links, &o.links, err));
  COPSE_TRY(sets_new(s->n_phases * s->network->n_nodes, &o.phase_nodes, err));
  COPSE_TRY(sets_new(s->n_phases * s->network->n_links, &o.phase_links, err));
  COPSE_TRY(join_all(&o, options));
  for (int g = 0; g < s->n_groups; g++) s->twin[g] = find(&o.groups, g);
  mark_leaders(&o);
  COPSE_TRY(number_columns(&o));
  status = count_uses(s, err);
out:
  free(o.groups.parent);
  free(o.links.parent);
  free(o.phase_nodes.parent);
  free(o.phase_links.parent);
  return status;
}
