#include "schedule/verify_groups.h"

#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "schedule/verify_internal.h"
#include "topology/modify.h"

struct checker {
  const struct copse_groups *groups;
  const struct copse_topology *topology;
  const char *label;
  int n_links, n_nodes, n_ranks; /* of the topology */
  mpq_t *loads;                  /* [n_links] of all groups */
  mpq_t *most;                   /* [n_links] what a unit of the link counts in the bound */
  mpq_t *crossed;                /* [n_links] of the phase at hand */
  mpq_t *potential;              /* [n_nodes] of the phase at hand */
  mpq_t *around;                 /* [n_ranks] of the group at hand, by its ranks */
  mpq_t due;                     /* of all groups */
  int *member;                   /* [n_nodes] 1 + rank in the group at hand */
  char *inside;                  /* [n_nodes] of the cut at hand */
  struct copse_err *err;
};

/* ---- schedules ----------------------------------------------------------------------------- */

static copse_status compare_member(struct checker *c, int g, int *nodes) {
  const struct copse_groups_member *member = &c->groups->members[g];
  const struct copse_schedule *s = member->schedule;
  if (s->collective != member->collective || s->n_ranks != member->n_ranks)
    return refute(c, "group %d: '%s' is of another collective or number of ranks", g, member->file);
  if (s->demand) return refute(c, "group %d: an alltoall among groups is uniform", g);
  for (int r = 0; r < s->n_ranks; r++) {
    const char *id = s->nodes[s->rank_nodes[r]];
    if (strcmp(id, member->ranks[r]) != 0)
      return refute(c, "group %d: rank %d is '%s' here and '%s' in '%s'", g, r, member->ranks[r],
                    id, member->file);
    nodes[r] = copse_topology_find(c->topology, id);
    if (nodes[r] < 0 || c->topology->nodes[nodes[r]].rank < 0)
      return refute(c, "group %d: '%s' is no GPU of the topology", g, id);
  }
  return COPSE_OK;
}

/* The loads of a topology with fewer ranks, which may lack links, to those of the whole. */
static void add_loads(struct checker *c, const struct copse_topology *from, mpq_t *loads) {
  for (int e = 0; e < from->n_links; e++) {
    const char *src = from->nodes[from->links[e].src].id, *dst = from->nodes[from->links[e].dst].id;
    int link = copse_topology_find_link(c->topology, copse_topology_find(c->topology, src),
                                        copse_topology_find(c->topology, dst));
    mpq_add(c->loads[link], c->loads[link], loads[e]);
  }
}

static copse_status check_member(struct checker *c, int g) {
  const struct copse_groups_member *member = &c->groups->members[g];
  const struct copse_schedule *s = member->schedule;
  struct copse_verify_report report;
  struct copse_topology *chosen = NULL;
  int *nodes = NULL;
  mpq_t *loads = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)s->n_ranks, sizeof *nodes, &nodes, c->err));
  COPSE_TRY(compare_member(c, g, nodes));
  COPSE_TRY(copse_topology_choose_ranks(c->topology, nodes, s->n_ranks, s->others_excluded, &chosen,
                                        c->err));
  if (!(loads = copse_verify_rationals(chosen->n_links))) {
    status = copse_fail_nomem(c->err);
    goto out;
  }
  COPSE_TRY(copse_verify_schedule_loads(s, chosen, member->file, &report, loads, c->err));
  add_loads(c, chosen, loads);
out:
  if (chosen) copse_verify_rationals_free(loads, chosen->n_links);
  copse_topology_release(chosen);
  free(nodes);
  return status;
}

static copse_status check_time(struct checker *c, struct copse_verify_groups_report *report) {
  char claimed[COPSE_Q_TEXT], found[COPSE_Q_TEXT];
  mpq_t most, time, bandwidth;
  copse_status status;
  mpq_inits(most, time, bandwidth, NULL);
  report->busiest_src = report->busiest_dst = -1;
  for (int e = 0; e < c->n_links; e++) {
    set_q(bandwidth, c->topology->links[e].bandwidth);
    mpq_div(time, c->loads[e], bandwidth);
    if (mpq_cmp(time, most) <= 0) continue;
    mpq_set(most, time);
    report->busiest_src = c->topology->links[e].src;
    report->busiest_dst = c->topology->links[e].dst;
  }
  status = copse_verify_get_q(most, c->label, &report->time_per_GB, c->err);
  if (status == COPSE_OK && !copse_q_eq(report->time_per_GB, c->groups->time_per_GB))
    status = refute(c, "time_per_GB is %s, the link most loaded by all groups gives %s",
                    copse_q_text(c->groups->time_per_GB, claimed),
                    copse_q_text(report->time_per_GB, found));
  mpq_clears(most, time, bandwidth, NULL);
  return status;
}

/* ---- the bound ----------------------------------------------------------------------------- */

static copse_status mark_cut(struct checker *c, int index, const struct copse_groups_cut *cut) {
  memset(c->inside, 0, (size_t)c->n_nodes);
  for (int i = 0; i < cut->n_nodes; i++) {
    int node = copse_topology_find(c->topology, cut->nodes[i]);
    if (node < 0)
      return refute(c, "cut %d of the bound names '%s', which the topology lacks", index,
                    cut->nodes[i]);
    if (c->inside[node])
      return refute(c, "cut %d of the bound names '%s' twice", index, cut->nodes[i]);
    c->inside[node] = 1;
  }
  return COPSE_OK;
}

static copse_status add_cut(struct checker *c, int index) {
  const struct copse_groups_cut *cut = &c->groups->cuts[index];
  const struct copse_schedule *s = c->groups->members[cut->group].schedule;
  int ranks_inside = 0;
  mpq_t weight;
  copse_status status = mark_cut(c, index, cut);
  if (status != COPSE_OK) return status;
  if (cut->weight.num <= 0)
    return refute(c, "cut %d of the bound: its weight is not positive", index);
  mpq_init(weight);
  set_q(weight, cut->weight);
  for (int v = 0; v < c->n_nodes; v++) {
    if (!c->inside[v] || !c->member[v]) continue;
    ranks_inside++;
    mpq_add(c->around[c->member[v] - 1], c->around[c->member[v] - 1], weight);
  }
  for (int e = 0; e < c->n_links; e++) {
    const struct copse_link *link = &c->topology->links[e];
    bool src = c->inside[link->src], dst = c->inside[link->dst];
    if (cut->phase == COPSE_PHASE_REDUCE ? !src && dst : src && !dst)
      mpq_add(c->crossed[e], c->crossed[e], weight);
  }
  mpq_clear(weight);
  if (cut->sink >= 0 &&
      c->inside[copse_topology_find(c->topology, s->nodes[s->rank_nodes[cut->sink]])])
    return refute(c, "cut %d of the bound holds its sink, rank %d", index, cut->sink);
  if (ranks_inside == 0 || ranks_inside == s->n_ranks)
    return refute(
        c, "cut %d of the bound separates nothing: it must hold a rank of its group and miss one",
        index);
  return COPSE_OK;
}

static copse_status add_potential(struct checker *c, int index) {
  const struct copse_groups_potential *p = &c->groups->potentials[index];
  int node = copse_topology_find(c->topology, p->node);
  if (node < 0) return refute(c, "a potential names '%s', which the topology lacks", p->node);
  if (c->member[node])
    return refute(c, "a potential of group %d names '%s', one of its ranks", p->group, p->node);
  if (mpq_sgn(c->potential[node]) != 0)
    return refute(c, "'%s' has two potentials in a phase of group %d", p->node, p->group);
  set_q(c->potential[node], p->value);
  return COPSE_OK;
}

/* Whether the group may load the link at all. */
static bool is_open(const struct checker *c, const struct copse_schedule *s, int link) {
  int ends[2] = {c->topology->links[link].src, c->topology->links[link].dst};
  for (int i = 0; i < 2 && s->others_excluded; i++)
    if (c->topology->nodes[ends[i]].rank >= 0 && !c->member[ends[i]]) return false;
  return true;
}

/* Of an alltoall what goes to rank `sink`; else -1. */
static copse_status check_phase(struct checker *c, int g, enum copse_phase phase, int sink) {
  const struct copse_groups *all = c->groups;
  const struct copse_schedule *s = all->members[g].schedule;
  bool has =
      sink >= 0 || (phase == COPSE_PHASE_REDUCE ? copse_collective_reduces(s->collective)
                                                : copse_collective_broadcasts(s->collective));
  mpq_t q;
  copse_status status = COPSE_OK;
  for (int e = 0; e < c->n_links; e++) mpq_set_ui(c->crossed[e], 0, 1);
  for (int v = 0; v < c->n_nodes; v++) mpq_set_ui(c->potential[v], 0, 1);
  for (int i = 0; i < all->n_cuts; i++) {
    if (all->cuts[i].group != g || all->cuts[i].phase != phase || all->cuts[i].sink != sink)
      continue;
    if (!has) return refute(c, "cut %d of the bound is of a phase that its group lacks", i);
    COPSE_TRY(add_cut(c, i));
  }
  for (int i = 0; i < all->n_potentials; i++)
    if (all->potentials[i].group == g && all->potentials[i].phase == phase)
      COPSE_TRY(sink >= 0 ? refute(c, "group %d, an alltoall, has potentials", g)
                          : add_potential(c, i));
  mpq_init(q);
  for (int e = 0; e < c->n_links && has; e++) {
    const struct copse_link *link = &c->topology->links[e];
    mpq_sub(q, c->potential[link->src], c->potential[link->dst]);
    mpq_add(q, q, c->crossed[e]);
    if (is_open(c, s, e) && mpq_cmp(q, c->most[e]) > 0) mpq_set(c->most[e], q);
  }
  mpq_clear(q);
out:
  return status;
}

/* The least weight around a rank, or the mean around the roots. */
static void add_due(struct checker *c, const struct copse_schedule *s) {
  bool free_shares = s->collective == COPSE_ALLREDUCE;
  int roots = copse_collective_rooted(s->collective) ? 1 : s->n_ranks;
  mpq_t due, q;
  mpq_inits(due, q, NULL);
  for (int r = 0; r < s->n_ranks; r++) {
    if (roots == 1 && r != s->root) continue;
    if (!free_shares)
      mpq_add(due, due, c->around[r]);
    else if (r == 0 || mpq_cmp(c->around[r], due) < 0)
      mpq_set(due, c->around[r]);
  }
  mpq_set_si(q, free_shares ? 1 : roots, 1);
  mpq_div(due, due, q);
  mpq_add(c->due, c->due, due);
  mpq_clears(due, q, NULL);
}

static copse_status add_group(struct checker *c, int g) {
  const struct copse_schedule *s = c->groups->members[g].schedule;
  copse_status status;
  memset(c->member, 0, (size_t)c->n_nodes * sizeof *c->member);
  for (int r = 0; r < s->n_ranks; r++) {
    c->member[copse_topology_find(c->topology, s->nodes[s->rank_nodes[r]])] = r + 1;
    mpq_set_ui(c->around[r], 0, 1);
  }
  if (s->collective == COPSE_ALLTOALL) {
    for (int r = 0; r < s->n_ranks; r++) COPSE_TRY(check_phase(c, g, COPSE_PHASE_BROADCAST, r));
  } else {
    COPSE_TRY(check_phase(c, g, COPSE_PHASE_BROADCAST, -1));
    COPSE_TRY(check_phase(c, g, COPSE_PHASE_REDUCE, -1));
  }
  add_due(c, s);
out:
  return status;
}

static copse_status refuse_clever_switch(struct checker *c) {
  for (int v = 0; v < c->n_nodes && c->groups->n_potentials > 0; v++)
    if (c->topology->nodes[v].multicast || c->topology->nodes[v].aggregation)
      return refute(c,
                    "the bound has potentials, which prove nothing beside '%s', a switch that "
                    "copies or adds",
                    c->topology->nodes[v].id);
  return COPSE_OK;
}

static copse_status check_bound(struct checker *c, struct copse_verify_groups_report *report) {
  char claimed[COPSE_Q_TEXT], found[COPSE_Q_TEXT];
  mpq_t sum, q;
  copse_status status;
  mpq_inits(sum, q, NULL);
  COPSE_TRY(refuse_clever_switch(c));
  for (int g = 0; g < c->groups->n; g++) COPSE_TRY(add_group(c, g));
  for (int e = 0; e < c->n_links; e++) {
    set_q(q, c->topology->links[e].bandwidth);
    mpq_mul(q, q, c->most[e]);
    mpq_add(sum, sum, q);
  }
  if (mpq_sgn(sum) == 0) {
    status = refute(c, "nothing crosses the bound's cuts");
    goto out;
  }
  mpq_div(sum, c->due, sum);
  COPSE_TRY(copse_verify_get_q(sum, c->label, &report->bound, c->err));
  if (!copse_q_eq(report->bound, c->groups->bound_time_per_GB))
    status = refute(c, "the bound is %s, its certificate proves %s",
                    copse_q_text(c->groups->bound_time_per_GB, claimed),
                    copse_q_text(report->bound, found));
  else if (copse_q_cmp(report->time_per_GB, report->bound) < 0)
    status = refute(c, "the time %s is below the bound %s",
                    copse_q_text(report->time_per_GB, claimed), copse_q_text(report->bound, found));
  report->optimal = copse_q_eq(report->time_per_GB, report->bound);
out:
  mpq_clears(sum, q, NULL);
  return status;
}

static copse_status check(struct checker *c, struct copse_verify_groups_report *report) {
  char sha256[COPSE_SHA256_HEX];
  copse_status status;
  COPSE_TRY(copse_topology_sha256(c->topology, sha256, c->err));
  report->same_topology = strcmp(sha256, c->groups->topology_sha256) == 0;
  for (int g = 0; g < c->groups->n; g++) COPSE_TRY(check_member(c, g));
  COPSE_TRY(check_time(c, report));
  COPSE_TRY(check_bound(c, report));
out:
  return status;
}

copse_status copse_verify_groups(const struct copse_groups *groups,
                                 const struct copse_topology *topology, const char *label,
                                 struct copse_verify_groups_report *report, struct copse_err *err) {
  struct checker c = {.groups = groups,
                      .topology = topology,
                      .label = label,
                      .n_links = topology->n_links,
                      .n_nodes = topology->n_nodes,
                      .n_ranks = topology->n_ranks,
                      .err = err};
  copse_status status = COPSE_OK;
  *report = (struct copse_verify_groups_report){0};
  mpq_init(c.due);
  COPSE_TRY(copse_calloc((size_t)c.n_nodes, sizeof *c.member, &c.member, err));
  COPSE_TRY(copse_calloc((size_t)c.n_nodes, 1, &c.inside, err));
  c.loads = copse_verify_rationals(c.n_links);
  c.most = copse_verify_rationals(c.n_links);
  c.crossed = copse_verify_rationals(c.n_links);
  c.potential = copse_verify_rationals(c.n_nodes);
  c.around = copse_verify_rationals(c.n_ranks);
  if (c.loads && c.most && c.crossed && c.potential && c.around)
    status = check(&c, report);
  else
    status = copse_fail_nomem(err);
out:
  mpq_clear(c.due);
  free(c.member);
  free(c.inside);
  copse_verify_rationals_free(c.loads, c.n_links);
  copse_verify_rationals_free(c.most, c.n_links);
  copse_verify_rationals_free(c.crossed, c.n_links);
  copse_verify_rationals_free(c.potential, c.n_nodes);
  copse_verify_rationals_free(c.around, c.n_ranks);
  return status;
}
