/*
 * The independent check of groups that share a fabric: each schedule by itself, the load of all
 * together, and the bound from cuts and potentials (the inequality is in schedule/groups.h).
 * Where symmetries are given, a number at a place counts at all its images alike, as their mean:
 * an orbit, named by its least member, keeps one number. docs/theory.md, "src/verify/".
 */
#include "verify/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "base/graph.h"
#include "base/memory.h"
#include "topology/modify.h"
#include "verify/internal.h"

struct means {
  int n;
  int *parent; /* [n] the orbits as disjoint sets, named by their least place */
  int *value;  /* [n] of such: 1 + index in `values`, 0: none */
  mpq_t *values;
  size_t n_values, capacity;
};

static copse_status means_new(struct copse_arena *arena, int n, struct means *out,
                              struct copse_err *err) {
  *out = (struct means){.n = n};
  COPSE_DO(COPSE_ARRAYS(arena, (size_t)n, int, err, &out->parent, &out->value));
  copse_sets_init(out->parent, n);
  return COPSE_OK;
}

static void means_free(struct means *means) {
  for (size_t i = 0; i < means->n_values; i++) mpq_clear(means->values[i]);
  free(means->values);
}

/* Joins two places before anything is added. */
static void means_join(struct means *means, int place, int image) {
  (void)copse_sets_unite(means->parent, place, image);
}

static copse_status means_add(struct means *means, int place, const mpq_t amount,
                              struct copse_err *err) {
  int *value = &means->value[copse_sets_find(means->parent, place)];
  if (*value == 0) {
    COPSE_DO(COPSE_GROW(means->values, means->capacity, means->n_values + 1, err));
    mpq_init(means->values[means->n_values]);
    *value = (int)++means->n_values;
  }
  mpq_add(means->values[*value - 1], means->values[*value - 1], amount);
  return COPSE_OK;
}

/* Divides sums, when all is added, into means. */
static copse_status means_divide(struct copse_arena *arena, struct means *means,
                                 struct copse_err *err) {
  unsigned long *size;
  COPSE_DO(COPSE_ARRAY(arena, means->n_values, size, err));
  for (int i = 0; i < means->n; i++) {
    int value = means->value[copse_sets_find(means->parent, i)];
    if (value > 0) size[value - 1]++;
  }
  for (size_t i = 0; i < means->n_values; i++) {
    mpz_mul_ui(mpq_denref(means->values[i]), mpq_denref(means->values[i]), size[i]);
    mpq_canonicalize(means->values[i]);
  }
  return COPSE_OK;
}

/* Returns a mean; NULL: 0. */
static const mpq_t *means_get(struct means *means, int place) {
  int value = means->value[copse_sets_find(means->parent, place)];
  return value > 0 ? (const mpq_t *)&means->values[value - 1] : NULL;
}

#define MAX_PLACES (1 << 28)
#define BOUND_BITS 50 /* of a bound's fraction that is rounded */

/* Phases: of each group the broadcast and the reduction, whether it has them or not; of an alltoall
 * what goes to each rank. */
struct checker {
  const struct copse_groups *groups;
  const struct copse_topology *topology;
  const char *label;
  int n_links, n_nodes;   /* of the topology */
  int n_phases, n_ranks;  /* over all groups */
  int *first_phase;       /* [n groups] */
  int *first_rank;        /* [n groups] */
  struct means crossed;   /* [n_phases * n_links] weight of the cuts */
  struct means potential; /* [n_phases * n_nodes] */
  struct means around;    /* [n_ranks] weight of the cuts around each rank */
  char *has_potential;    /* [n_phases * n_nodes] */
  int *member;            /* [n_nodes] 1 + rank in the group at hand */
  char *inside;           /* [n_nodes] of the cut at hand */
  mpq_t *loads;           /* [n_links] sum over all groups */
  struct copse_verify_scratch scratch;
  struct copse_err *err;
};

static const struct copse_schedule *schedule_of(const struct checker *c, int g) {
  return c->groups->members[g].schedule;
}

static int find_rank(const struct checker *c, int g, int rank) {
  const struct copse_schedule *s = schedule_of(c, g);
  return copse_topology_find(c->topology, s->nodes[s->rank_nodes[rank]]);
}

static bool exchanges(const struct checker *c, int g) {
  return schedule_of(c, g)->collective == COPSE_ALLTOALL;
}

static void mark_members(struct checker *c, int g) {
  memset(c->member, 0, (size_t)c->n_nodes * sizeof *c->member);
  for (int r = 0; r < schedule_of(c, g)->n_ranks; r++) c->member[find_rank(c, g, r)] = r + 1;
}

/* ---- symmetries ---------------------------------------------------------------------------- */

/* Names to numbers; -1 for what the topology lacks. */
static bool read_nodes(const struct checker *c, int i, int *image) {
  const struct copse_groups *all = c->groups;
  if (all->n_symmetry_nodes != c->n_nodes) return false;
  for (int v = 0; v < c->n_nodes; v++) image[v] = -1;
  for (int k = 0; k < c->n_nodes; k++) {
    int from = copse_topology_find(c->topology, all->symmetry_nodes[k]);
    if (from < 0) return false;
    image[from] = copse_topology_find(c->topology, all->generators[i].images[k]);
  }
  return true;
}

static bool is_symmetry(struct checker *c, int i, int *image, int *link_image) {
  if (!read_nodes(c, i, image)) return false;
  memset(c->inside, 0, (size_t)c->n_nodes);
  return copse_verify_automorphism(c->topology, image, c->inside, link_image).what == COPSE_KEPT;
}

static bool same_kind(const struct copse_schedule *a, const struct copse_schedule *b) {
  return a->collective == b->collective && a->n_ranks == b->n_ranks &&
         a->others_excluded == b->others_excluded;
}

/* Joins group g, which takes the place of group h, and its ranks those of h's. */
static copse_status join_group(struct checker *c, int i, int g, int h, const int *image) {
  const struct copse_schedule *from = schedule_of(c, g), *to = schedule_of(c, h);
  bool is = same_kind(from, to);
  mark_members(c, h);
  for (int r = 0; r < from->n_ranks && is; r++) {
    int rank = c->member[image[find_rank(c, g, r)]] - 1;
    is = rank >= 0 &&
         (!copse_collective_rooted(from->collective) || (r == from->root) == (rank == to->root));
    if (is) means_join(&c->around, c->first_rank[g] + r, c->first_rank[h] + rank);
  }
  if (is) return COPSE_OK;
  return refute(c, "generator %d of the bound does not take group %d to group %d", i, g, h);
}

static void join_phase(struct checker *c, int from, int to, const int *image,
                       const int *link_image) {
  for (int v = 0; v < c->n_nodes; v++)
    means_join(&c->potential, from * c->n_nodes + v, to * c->n_nodes + image[v]);
  for (int e = 0; e < c->n_links; e++)
    means_join(&c->crossed, from * c->n_links + e, to * c->n_links + link_image[e]);
}

static copse_status join_images(struct checker *c, int i, const int *image, const int *link_image) {
  char *hit = NULL;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->groups->n, hit, c->err));
  for (int g = 0; g < c->groups->n; g++) {
    int h = c->groups->generators[i].groups[g];
    if (hit[h]++) return refute(c, "generator %d of the bound takes two groups to group %d", i, h);
    COPSE_DO(join_group(c, i, g, h, image));
    int n = exchanges(c, g) ? schedule_of(c, g)->n_ranks : 2;
    for (int phase = 0; phase < n; phase++) {
      int to = exchanges(c, g) ? c->member[image[find_rank(c, g, phase)]] - 1 : phase;
      join_phase(c, c->first_phase[g] + phase, c->first_phase[h] + to, image, link_image);
    }
  }
  return COPSE_OK;
}

static copse_status take_symmetries(struct checker *c) {
  int *image = NULL, *link_image = NULL;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->n_nodes, image, c->err));
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->n_links, link_image, c->err));
  for (int i = 0; i < c->groups->n_generators; i++) {
    if (!is_symmetry(c, i, image, link_image))
      return refute(c, "generator %d of the bound is no symmetry of the topology", i);
    COPSE_DO(join_images(c, i, image, link_image));
  }
  return COPSE_OK;
}

/* ---- cuts and potentials ------------------------------------------------------------------- */

static bool has_phase(const struct checker *c, int g, enum copse_phase phase, int sink) {
  copse_collective collective = schedule_of(c, g)->collective;
  if (sink >= 0) return true;
  return phase == COPSE_PHASE_REDUCE ? copse_collective_reduces(collective)
                                     : copse_collective_broadcasts(collective);
}

static int number_of(const struct checker *c, int g, enum copse_phase phase, int sink) {
  return c->first_phase[g] + (sink >= 0 ? sink : phase == COPSE_PHASE_REDUCE);
}

/* Checks that the cut stands around ranks of its group, but not all, and not around its sink. */
static copse_status check_sides(struct checker *c, int index) {
  const struct copse_groups_cut *cut = &c->groups->cuts[index];
  int n = schedule_of(c, cut->group)->n_ranks, held = 0;
  if (cut->weight.num <= 0)
    return refute(c, "cut %d of the bound: its weight is not positive", index);
  if (!has_phase(c, cut->group, cut->phase, cut->sink))
    return refute(c, "cut %d of the bound is of a phase that its group lacks", index);
  for (int r = 0; r < n; r++) held += c->inside[find_rank(c, cut->group, r)];
  if (cut->sink >= 0 && c->inside[find_rank(c, cut->group, cut->sink)])
    return refute(c, "cut %d of the bound holds its sink, rank %d", index, cut->sink);
  if (held == 0 || held == n)
    return refute(
        c, "cut %d of the bound separates nothing: it must hold a rank of its group and miss one",
        index);
  return COPSE_OK;
}

static copse_status add_cut(struct checker *c, int index) {
  const struct copse_groups_cut *cut = &c->groups->cuts[index];
  int place = number_of(c, cut->group, cut->phase, cut->sink) * c->n_links;
  COPSE_MPQ(weight);
  memset(c->inside, 0, (size_t)c->n_nodes);
  for (int i = 0; i < cut->n_nodes; i++)
    COPSE_DO(copse_verify_mark(c->label, index, cut->nodes[i],
                               copse_topology_find(c->topology, cut->nodes[i]), c->inside, c->err));
  COPSE_DO(check_sides(c, index));
  copse_mpq_set(weight, cut->weight);
  for (int r = 0; r < schedule_of(c, cut->group)->n_ranks; r++)
    if (c->inside[find_rank(c, cut->group, r)])
      COPSE_DO(means_add(&c->around, c->first_rank[cut->group] + r, weight, c->err));
  for (int e = 0; e < c->n_links; e++) {
    const struct copse_link *link = &c->topology->links[e];
    bool src = c->inside[link->src], dst = c->inside[link->dst];
    if (cut->phase == COPSE_PHASE_REDUCE ? !src && dst : src && !dst)
      COPSE_DO(means_add(&c->crossed, place + e, weight, c->err));
  }
  return COPSE_OK;
}

static copse_status add_potential(struct checker *c, int index) {
  const struct copse_groups_potential *p = &c->groups->potentials[index];
  int node = copse_topology_find(c->topology, p->node);
  if (exchanges(c, p->group)) return refute(c, "group %d, an alltoall, has potentials", p->group);
  if (!has_phase(c, p->group, p->phase, -1))
    return refute(c, "a potential is of a phase that group %d lacks", p->group);
  if (node < 0) return refute(c, "a potential names '%s', which the topology lacks", p->node);
  for (int r = 0; r < schedule_of(c, p->group)->n_ranks; r++)
    if (find_rank(c, p->group, r) == node)
      return refute(c, "a potential of group %d names '%s', one of its ranks", p->group, p->node);
  COPSE_DO(copse_verify_potential(c->topology, c->label, node, c->err));
  int place = number_of(c, p->group, p->phase, -1) * c->n_nodes + node;
  if (c->has_potential[place]++)
    return refute(c, "'%s' has two potentials in a phase of group %d", p->node, p->group);
  COPSE_MPQ(value);
  copse_mpq_set(value, p->value);
  return means_add(&c->potential, place, value, c->err);
}

/* ---- the sum ------------------------------------------------------------------------------- */

/* Adds the least weight around a rank, or the mean around the roots. */
static void add_due(struct checker *c, int g, mpq_t sum) {
  const struct copse_schedule *s = schedule_of(c, g);
  bool free_shares = s->collective == COPSE_ALLREDUCE;
  int roots = copse_collective_rooted(s->collective) ? 1 : s->n_ranks;
  COPSE_MPQ(due);
  COPSE_MPQ(q);
  for (int r = 0; r < s->n_ranks; r++) {
    const mpq_t *around = means_get(&c->around, c->first_rank[g] + r);
    if (roots == 1 && r != s->root) continue;
    mpq_set_ui(q, 0, 1);
    if (around) mpq_set(q, *around);
    if (!free_shares)
      mpq_add(due, due, q);
    else if (r == 0 || mpq_cmp(q, due) < 0)
      mpq_set(due, q);
  }
  mpq_set_si(q, free_shares ? 1 : roots, 1);
  mpq_div(due, due, q);
  mpq_add(sum, sum, due);
}

/* Whether the group at hand may load the link at all. */
static bool is_open(const struct checker *c, const struct copse_schedule *s, int link) {
  int ends[2] = {c->topology->links[link].src, c->topology->links[link].dst};
  for (int i = 0; i < 2 && s->others_excluded; i++)
    if (c->topology->nodes[ends[i]].rank >= 0 && !c->member[ends[i]]) return false;
  return true;
}

/* Computes each link's factor in the phases of the group at hand. most[e] becomes the largest so
 * far. */
static void count_links(struct checker *c, int g, mpq_t *most) {
  const struct copse_schedule *s = schedule_of(c, g);
  int end = g + 1 < c->groups->n ? c->first_phase[g + 1] : c->n_phases;
  COPSE_MPQ(q);
  mark_members(c, g);
  for (int phase = c->first_phase[g]; phase < end; phase++)
    for (int e = 0; e < c->n_links; e++) {
      const struct copse_link *link = &c->topology->links[e];
      const mpq_t *crossed = means_get(&c->crossed, phase * c->n_links + e);
      const mpq_t *src = means_get(&c->potential, phase * c->n_nodes + link->src);
      const mpq_t *dst = means_get(&c->potential, phase * c->n_nodes + link->dst);
      if ((!crossed && !src && !dst) || !is_open(c, s, e)) continue;
      mpq_set_ui(q, 0, 1);
      if (crossed) mpq_set(q, *crossed);
      if (src) mpq_add(q, q, *src);
      if (dst) mpq_sub(q, q, *dst);
      if (mpq_cmp(q, most[e]) > 0) mpq_set(most[e], q);
    }
}

/* Takes the bound, or a little less of it where 64 bits are too few. */
static copse_status take_bound(struct checker *c, const mpq_t from, struct copse_q *to) {
  COPSE_MPQ(q);
  if (copse_mpq_get(from, to)) return COPSE_OK;
  mpz_mul_2exp(mpq_numref(q), mpq_numref(from), BOUND_BITS);
  mpz_fdiv_q(mpq_numref(q), mpq_numref(q), mpq_denref(from));
  mpz_set_ui(mpq_denref(q), 1);
  mpz_mul_2exp(mpq_denref(q), mpq_denref(q), BOUND_BITS);
  mpq_canonicalize(q);
  return copse_verify_get_q(q, c->label, to, c->err);
}

static copse_status add_up(struct checker *c, struct copse_q *bound) {
  COPSE_MPQ(q);
  COPSE_MPQ(due);
  COPSE_MPQ(sum);
  mpq_t *most;
  COPSE_DO(copse_verify_rationals(&c->scratch, c->n_links, &most, c->err));
  for (int g = 0; g < c->groups->n; g++) {
    add_due(c, g, due);
    count_links(c, g, most);
  }
  for (int e = 0; e < c->n_links; e++) {
    copse_mpq_set(q, c->topology->links[e].bandwidth);
    mpq_mul(q, q, most[e]);
    mpq_add(sum, sum, q);
  }
  if (mpq_sgn(sum) == 0) return refute(c, "nothing crosses the bound's cuts");
  mpq_div(sum, due, sum);
  return take_bound(c, sum, bound);
}

static copse_status number_phases(struct checker *c) {
  COPSE_DO(COPSE_ARRAYS(&c->scratch.arena, (size_t)c->groups->n, int, c->err, &c->first_phase,
                        &c->first_rank));
  for (int g = 0; g < c->groups->n; g++) {
    c->first_phase[g] = c->n_phases;
    c->first_rank[g] = c->n_ranks;
    c->n_phases += exchanges(c, g) ? schedule_of(c, g)->n_ranks : 2;
    c->n_ranks += schedule_of(c, g)->n_ranks;
    if (c->n_phases > MAX_PLACES / (c->n_links + c->n_nodes))
      return copse_fail_at(c->err, COPSE_NOMEM, c->label, 0, "more groups than can be looked at");
  }
  return COPSE_OK;
}

static copse_status prepare(struct checker *c) {
  COPSE_DO(number_phases(c));
  COPSE_DO(means_new(&c->scratch.arena, c->n_phases * c->n_links, &c->crossed, c->err));
  COPSE_DO(means_new(&c->scratch.arena, c->n_phases * c->n_nodes, &c->potential, c->err));
  COPSE_DO(means_new(&c->scratch.arena, c->n_ranks, &c->around, c->err));
  COPSE_DO(
      COPSE_ARRAY(&c->scratch.arena, (size_t)(c->n_phases * c->n_nodes), c->has_potential, c->err));
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->n_nodes, c->member, c->err));
  return COPSE_ARRAY(&c->scratch.arena, (size_t)c->n_nodes, c->inside, c->err);
}

/* Proves what the index's cuts and potentials prove. */
static copse_status prove(struct checker *c, struct copse_verify_groups_report *report) {
  COPSE_DO(prepare(c));
  COPSE_DO(take_symmetries(c));
  for (int i = 0; i < c->groups->n_cuts; i++) COPSE_DO(add_cut(c, i));
  for (int i = 0; i < c->groups->n_potentials; i++) COPSE_DO(add_potential(c, i));
  COPSE_DO(means_divide(&c->scratch.arena, &c->crossed, c->err));
  COPSE_DO(means_divide(&c->scratch.arena, &c->potential, c->err));
  COPSE_DO(means_divide(&c->scratch.arena, &c->around, c->err));
  return add_up(c, &report->bound);
}

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

/* Adds the loads of a topology with fewer ranks, which may lack links, to those of the whole. */
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
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *chosen = NULL;
  COPSE_AT_END(copse_verify_scratch_free) struct copse_verify_scratch scratch = {0};
  int *nodes;
  mpq_t *loads;
  COPSE_DO(COPSE_ARRAY(&scratch.arena, (size_t)s->n_ranks, nodes, c->err));
  COPSE_DO(compare_member(c, g, nodes));
  COPSE_DO(copse_topology_choose_ranks(c->topology, nodes, s->n_ranks, s->others_excluded, &chosen,
                                       c->err));
  COPSE_DO(copse_verify_rationals(&scratch, chosen->n_links, &loads, c->err));
  COPSE_DO(copse_verify_schedule_loads(s, chosen, member->file, &report, loads, c->err));
  add_loads(c, chosen, loads);
  return COPSE_OK;
}

static copse_status add_members(struct checker *c, struct copse_verify_groups_report *report) {
  struct copse_verify_busiest busiest;
  COPSE_DO(copse_verify_rationals(&c->scratch, c->n_links, &c->loads, c->err));
  for (int g = 0; g < c->groups->n; g++) COPSE_DO(check_member(c, g));
  COPSE_DO(copse_verify_most_loaded(c->topology, c->loads, c->label, &report->time_per_GB, &busiest,
                                    c->err));
  report->busiest_src = busiest.src;
  report->busiest_dst = busiest.dst;
  return COPSE_OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

static copse_status check(struct checker *c, struct copse_verify_groups_report *report) {
  const struct copse_groups *all = c->groups;
  char sha256[COPSE_SHA256_HEX], claimed[COPSE_Q_TEXT], found[COPSE_Q_TEXT];
  COPSE_DO(copse_topology_sha256(c->topology, sha256, c->err));
  report->same_topology = strcmp(sha256, all->topology_sha256) == 0;
  COPSE_DO(add_members(c, report));
  if (!copse_q_eq(report->time_per_GB, all->time_per_GB))
    return refute(c, "time_per_GB is %s, the link most loaded by all groups gives %s",
                  copse_q_text(all->time_per_GB, claimed),
                  copse_q_text(report->time_per_GB, found));
  COPSE_DO(prove(c, report));
  report->optimal = copse_q_eq(report->time_per_GB, report->bound);
  return copse_verify_compare_bound(c->label, all->bound_time_per_GB, report->bound,
                                    report->time_per_GB, c->err);
}

static void release(struct checker *c) {
  means_free(&c->crossed);
  means_free(&c->potential);
  means_free(&c->around);
  copse_verify_scratch_free(&c->scratch);
}

static copse_status run(const struct copse_groups *groups, const struct copse_topology *topology,
                        const char *label,
                        copse_status (*what)(struct checker *, struct copse_verify_groups_report *),
                        struct copse_verify_groups_report *report, struct copse_err *err) {
  COPSE_AT_END(release)
  struct checker c = {.groups = groups,
                      .topology = topology,
                      .label = label,
                      .n_links = topology->n_links,
                      .n_nodes = topology->n_nodes,
                      .err = err};
  *report = (struct copse_verify_groups_report){0};
  return what(&c, report);
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

copse_status copse_verify_groups_bound(const struct copse_groups *groups,
                                       const struct copse_topology *topology, const char *label,
                                       struct copse_q *bound, struct copse_err *err) {
  struct copse_verify_groups_report report;
  copse_status status = run(groups, topology, label, prove, &report, err);
  if (status == COPSE_OK) *bound = report.bound;
  return status;
}
