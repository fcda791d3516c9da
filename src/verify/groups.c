#include "verify/groups.h"

#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "verify/internal.h"
#include "topology/modify.h"

struct checker {
  const struct copse_groups *groups;
  const struct copse_topology *topology;
  const char *label;
  int n_links;  /* of the topology */
  mpq_t *loads; /* [n_links] of all groups */
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

static copse_status find_time(struct checker *c, struct copse_verify_groups_report *report) {
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
  mpq_clears(most, time, bandwidth, NULL);
  return status;
}

static copse_status add_members(struct checker *c, struct copse_verify_groups_report *report) {
  copse_status status = COPSE_OK;
  for (int g = 0; g < c->groups->n; g++) COPSE_TRY(check_member(c, g));
  status = find_time(c, report);
out:
  return status;
}

static copse_status check_time(struct checker *c, const struct copse_verify_groups_report *report) {
  char claimed[COPSE_Q_TEXT], found[COPSE_Q_TEXT];
  if (copse_q_eq(report->time_per_GB, c->groups->time_per_GB)) return COPSE_OK;
  return refute(c, "time_per_GB is %s, the link most loaded by all groups gives %s",
                copse_q_text(c->groups->time_per_GB, claimed),
                copse_q_text(report->time_per_GB, found));
}

/* ---- all ----------------------------------------------------------------------------------- */

static copse_status check_bound(struct checker *c, struct copse_verify_groups_report *report) {
  char claimed[COPSE_Q_TEXT], found[COPSE_Q_TEXT];
  copse_status status =
      copse_verify_groups_bound(c->groups, c->topology, c->label, &report->bound, c->err);
  if (status != COPSE_OK) return status;
  report->optimal = copse_q_eq(report->time_per_GB, report->bound);
  if (!copse_q_eq(report->bound, c->groups->bound_time_per_GB))
    return refute(c, "the bound is %s, its certificate proves %s",
                  copse_q_text(c->groups->bound_time_per_GB, claimed),
                  copse_q_text(report->bound, found));
  if (copse_q_cmp(report->time_per_GB, report->bound) < 0)
    return refute(c, "the time %s is below the bound %s",
                  copse_q_text(report->time_per_GB, claimed), copse_q_text(report->bound, found));
  return COPSE_OK;
}

static copse_status check(struct checker *c, struct copse_verify_groups_report *report) {
  char sha256[COPSE_SHA256_HEX];
  copse_status status;
  COPSE_TRY(copse_topology_sha256(c->topology, sha256, c->err));
  report->same_topology = strcmp(sha256, c->groups->topology_sha256) == 0;
  COPSE_TRY(add_members(c, report));
  COPSE_TRY(check_time(c, report));
  COPSE_TRY(check_bound(c, report));
out:
  return status;
}

static copse_status run(const struct copse_groups *groups, const struct copse_topology *topology,
                        const char *label,
                        copse_status (*what)(struct checker *, struct copse_verify_groups_report *),
                        struct copse_verify_groups_report *report, struct copse_err *err) {
  struct checker c = {.groups = groups,
                      .topology = topology,
                      .label = label,
                      .n_links = topology->n_links,
                      .loads = copse_verify_rationals(topology->n_links),
                      .err = err};
  *report = (struct copse_verify_groups_report){0};
  copse_status status = c.loads ? what(&c, report) : copse_fail_nomem(err);
  copse_verify_rationals_free(c.loads, c.n_links);
  return status;
}

copse_status copse_verify_groups(const struct copse_groups *groups,
                                 const struct copse_topology *topology, const char *label,
                                 struct copse_verify_groups_report *report, struct copse_err *err) {
  return run(groups, topology, label, check, report, err);
}

copse_status copse_verify_groups_time(const struct copse_groups *groups,
                                      const struct copse_topology *topology, const char *label,
                                      struct copse_q *time, struct copse_err *err) {
  struct copse_verify_groups_report report;
  copse_status status = run(groups, topology, label, add_members, &report, err);
  *time = report.time_per_GB;
  return status;
}
