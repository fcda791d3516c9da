#include "support/oracle_groups.h"

#include <glpk.h>
#include <gmp.h>
#include <stdlib.h>

#include "support/oracle.h"
#include "support/support.h"

/* ---- linear programmes --------------------------------------------------------------------- */

struct program {
  const struct copse_network *network;
  glp_prob *lp;
  int *rows, *columns, n, capacity;
  double *values, most; /* of a link that one phase may have */
};

static void put(struct program *p, int row, int column, double value) {
  if (p->n + 2 > p->capacity) {
    p->capacity = 2 * p->capacity + 1000;
    p->rows = realloc(p->rows, (size_t)p->capacity * sizeof *p->rows);
    p->columns = realloc(p->columns, (size_t)p->capacity * sizeof *p->columns);
    p->values = realloc(p->values, (size_t)p->capacity * sizeof *p->values);
    ck_assert(p->rows && p->columns && p->values);
  }
  p->n++;
  p->rows[p->n] = row;
  p->columns[p->n] = column;
  p->values[p->n] = value;
}

static bool is_member(const struct copse_joint_group *g, int node) {
  for (int i = 0; i < g->n_members; i++)
    if (g->members[i] == node) return true;
  return false;
}

static bool is_open(const struct copse_joint_group *g, const struct copse_net_link *link) {
  return !g->closed || (!g->closed[link->src] && !g->closed[link->dst]);
}

/* Columns of each member's share; rows that make them add up to the rate (column 1). */
static int add_shares(struct program *p, const struct copse_joint_group *g) {
  int first = glp_add_cols(p->lp, g->n_members), row = glp_add_rows(p->lp, 1 + g->n_members);
  bool equal = !(g->broadcasts && g->reduces);
  glp_set_row_bnds(p->lp, row, GLP_FX, 0, 0);
  put(p, row, 1, -1);
  for (int i = 0; i < g->n_members; i++) {
    bool root = g->root < 0 || g->members[i] == g->root;
    glp_set_col_bnds(p->lp, first + i, root ? GLP_LO : GLP_FX, 0, 0);
    put(p, row, first + i, 1);
    glp_set_row_bnds(p->lp, row + 1 + i, equal && g->root < 0 ? GLP_FX : GLP_FR, 0, 0);
    put(p, row + 1 + i, first + i, g->n_members);
    put(p, row + 1 + i, 1, -1);
  }
  return first;
}

static void add_flow(struct program *p, const struct copse_joint_group *g, int share, int reserved,
                     int sink, bool reduce) {
  const struct copse_network *n = p->network;
  int first = glp_add_cols(p->lp, n->n_links), row = glp_add_rows(p->lp, n->n_nodes);
  int limit = glp_add_rows(p->lp, n->n_links);
  for (int v = 0; v < n->n_nodes; v++)
    glp_set_row_bnds(p->lp, row + v, v == sink ? GLP_FR : GLP_FX, 0, 0);
  for (int i = 0; i < g->n_members; i++) put(p, row + g->members[i], share + i, -1);
  for (int e = 0; e < n->n_links; e++) {
    const struct copse_net_link *link = &n->links[e];
    glp_set_col_bnds(p->lp, first + e, GLP_LO, 0, 0);
    put(p, row + (reduce ? link->dst : link->src), first + e, 1);
    put(p, row + (reduce ? link->src : link->dst), first + e, -1);
    put(p, limit + e, first + e, 1);
    put(p, limit + e, reserved + e, -1);
    glp_set_row_bnds(p->lp, limit + e, GLP_UP, 0, 0);
  }
}

/* sink: the member that all goes to, or -1. */
static void add_cut(struct program *p, const struct copse_joint_group *g, int share, int reserved,
                    unsigned set, bool reduce, int sink) {
  int held = 0, row;
  for (int i = 0; i < g->n_members; i++) held += set >> g->members[i] & 1;
  if (held == 0 || held == g->n_members || (sink >= 0 && set >> g->members[sink] & 1)) return;
  row = glp_add_rows(p->lp, 1);
  glp_set_row_bnds(p->lp, row, GLP_UP, 0, 0);
  for (int i = 0; i < g->n_members; i++)
    if (set >> g->members[i] & 1) put(p, row, share + i, 1);
  for (int e = 0; e < p->network->n_links; e++) {
    const struct copse_net_link *link = &p->network->links[e];
    bool src = set >> link->src & 1, dst = set >> link->dst & 1;
    if (reduce ? !src && dst : src && !dst) put(p, row, reserved + e, -1);
  }
}

static void add_phase(struct program *p, const struct copse_joint_group *g, int share,
                      int first_limit, bool reduce, int sink, bool all_cuts) {
  const struct copse_network *n = p->network;
  int reserved = glp_add_cols(p->lp, n->n_links), balance = glp_add_rows(p->lp, n->n_nodes);
  for (int e = 0; e < n->n_links; e++) {
    glp_set_col_bnds(p->lp, reserved + e, is_open(g, &n->links[e]) ? GLP_DB : GLP_FX, 0,
                     p->most * (double)n->links[e].capacity);
    put(p, first_limit + e, reserved + e, 1);
    put(p, balance + n->links[e].src, reserved + e, -1);
    put(p, balance + n->links[e].dst, reserved + e, 1);
  }
  for (int v = 0; v < n->n_nodes; v++)
    glp_set_row_bnds(p->lp, balance + v, is_member(g, v) ? GLP_FR : GLP_FX, 0, 0);
  for (unsigned set = 1; all_cuts && set < 1u << n->n_nodes; set++)
    add_cut(p, g, share, reserved, set, reduce, sink);
  for (int i = 0; i < g->n_members && !all_cuts; i++)
    if (sink < 0 || i == sink) add_flow(p, g, share, reserved, g->members[i], reduce);
}

double copse_test_lp_groups_rate(const struct copse_network *network,
                                 const struct copse_joint_group *groups, int n_groups, double most,
                                 bool all_cuts) {
  struct program p = {.network = network, .lp = glp_create_prob(), .most = most};
  glp_smcp options;
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(p.lp, GLP_MAX);
  glp_add_cols(p.lp, 1);
  glp_set_col_bnds(p.lp, 1, GLP_LO, 0, 0);
  glp_set_obj_coef(p.lp, 1, 1);
  int limit = glp_add_rows(p.lp, network->n_links);
  for (int e = 0; e < network->n_links; e++)
    glp_set_row_bnds(p.lp, limit + e, GLP_UP, 0, (double)network->links[e].capacity);
  for (int g = 0; g < n_groups; g++) {
    int share = add_shares(&p, &groups[g]);
    if (groups[g].broadcasts) add_phase(&p, &groups[g], share, limit, false, -1, all_cuts);
    if (groups[g].reduces) add_phase(&p, &groups[g], share, limit, true, -1, all_cuts);
    for (int i = 0; groups[g].exchanges && i < groups[g].n_members; i++)
      add_phase(&p, &groups[g], share, limit, false, i, all_cuts);
  }
  glp_load_matrix(p.lp, p.n, p.rows, p.columns, p.values);
  glp_init_smcp(&options);
  options.msg_lev = GLP_MSG_OFF;
  options.tol_bnd = options.tol_dj = 1e-10;
  ck_assert_int_eq(glp_simplex(p.lp, &options), 0);
  ck_assert_int_eq(glp_get_status(p.lp), GLP_OPT);
  double rate = glp_get_obj_val(p.lp);
  glp_delete_prob(p.lp);
  glp_free_env();
  free(p.rows);
  free(p.columns);
  free(p.values);
  return rate;
}

/* ---- results ------------------------------------------------------------------------------- */

struct result {
  long within; /* one part in so many may be wrong; 0: none */
  const struct copse_network *network;
  const struct copse_joint_group *groups;
  int n_groups;
  const struct copse_joint *joint;
};

/* Phase 0 broadcasts, 1 reduces, 2 + i is what goes to member i; NULL where there is none. */
static const int64_t *part_of(const struct result *r, int g, int phase) {
  const struct copse_joint_part *part = &r->joint->parts[g];
  if (phase > 1) return part->exchange ? part->exchange[phase - 2] : NULL;
  return phase ? part->reduce : part->broadcast;
}

static int n_phases(const struct result *r, int g) { return 2 + r->groups[g].n_members; }

/* Whether a is at most b, or a little more. */
static bool at_most(const struct result *r, const mpq_t a, const mpq_t b) {
  mpq_t limit;
  mpq_init(limit);
  mpq_set_si(limit, r->within + 1, r->within > 0 ? (unsigned long)r->within : 1);
  mpq_canonicalize(limit);
  mpq_mul(limit, limit, b);
  bool is = mpq_cmp(a, limit) <= 0;
  mpq_clear(limit);
  return is;
}

/* rate * amount / whole, summed over the phases, is at most the capacity */
static bool links_hold(const struct result *r, mpq_t sum, mpq_t q) {
  for (int e = 0; e < r->network->n_links; e++) {
    mpq_set_ui(sum, 0, 1);
    for (int g = 0; g < r->n_groups; g++)
      for (int phase = 0; phase < n_phases(r, g); phase++) {
        if (!part_of(r, g, phase)) continue;
        mpq_set_si(q, part_of(r, g, phase)[e], (unsigned long)r->joint->parts[g].whole);
        mpq_canonicalize(q);
        mpq_add(sum, sum, q);
      }
    copse_test_set_q(q, r->joint->rate);
    mpq_mul(sum, sum, q);
    mpq_set_si(q, r->network->links[e].capacity, 1);
    if (!at_most(r, sum, q)) return false;
  }
  return true;
}

/* A phase's balance and all of its cuts. */
static const char *phase_defect(const struct result *r, int g, int phase) {
  const struct copse_network *n = r->network;
  const struct copse_joint_group *group = &r->groups[g];
  const int64_t *amounts = part_of(r, g, phase);
  bool reduce = phase == 1;
  for (int v = 0; v < n->n_nodes; v++) {
    int64_t gain = 0;
    for (int e = 0; e < n->n_links; e++)
      gain += (n->links[e].dst == v ? amounts[e] : 0) - (n->links[e].src == v ? amounts[e] : 0);
    if (gain != 0 && phase < 2 && !is_member(group, v)) return "a relay is out of balance";
  }
  for (unsigned set = 1; set < 1u << n->n_nodes; set++) {
    int64_t due = 0, crossing = 0;
    int held = 0;
    for (int i = 0; i < group->n_members; i++) {
      if (!(set >> group->members[i] & 1)) continue;
      held++;
      due += r->joint->parts[g].weights[i];
    }
    for (int e = 0; e < n->n_links; e++) {
      bool src = set >> n->links[e].src & 1, dst = set >> n->links[e].dst & 1;
      if (reduce ? !src && dst : src && !dst) crossing += amounts[e];
    }
    bool binds = phase < 2 ? held < group->n_members : !(set >> group->members[phase - 2] & 1);
    if (binds && crossing < due) return "a part breaks a cut";
  }
  return NULL;
}

/* Least weight around a member, or the mean over roots: what the cuts ask of the group. */
static void add_due(const struct result *r, int g, mpq_t due, mpq_t around, mpq_t q) {
  const struct copse_joint_group *group = &r->groups[g];
  bool free_shares = group->broadcasts && group->reduces;
  mpq_t least;
  int roots = 0;
  mpq_init(least);
  for (int i = 0; i < group->n_members; i++) {
    if (group->root >= 0 && group->members[i] != group->root) continue;
    mpq_set_ui(around, 0, 1);
    for (int c = 0; c < r->joint->n_cuts; c++) {
      if (r->joint->cuts[c].group != g || !r->joint->cuts[c].inside[group->members[i]]) continue;
      copse_test_set_q(q, r->joint->cuts[c].weight);
      mpq_add(around, around, q);
    }
    if (!free_shares)
      mpq_add(least, least, around);
    else if (roots == 0 || mpq_cmp(around, least) < 0)
      mpq_set(least, around);
    roots++;
  }
  mpq_set_si(q, free_shares ? 1 : roots, 1);
  mpq_div(least, least, q);
  mpq_add(due, due, least);
  mpq_clear(least);
}

/* The most that a unit of the link's capacity counts in any phase. */
static void count_link(const struct result *r, int e, mpq_t most, mpq_t sum, mpq_t q) {
  const struct copse_net_link *link = &r->network->links[e];
  mpq_set_ui(most, 0, 1);
  for (int g = 0; g < r->n_groups; g++)
    for (int phase = 0; phase < n_phases(r, g); phase++) {
      bool reduce = phase == 1;
      const struct copse_q *p =
          reduce ? r->joint->parts[g].reduce_potentials : r->joint->parts[g].broadcast_potentials;
      if (!part_of(r, g, phase) || !is_open(&r->groups[g], link)) continue;
      copse_test_set_q(sum, phase < 2 ? p[link->src] : COPSE_Q_ZERO);
      copse_test_set_q(q, phase < 2 ? p[link->dst] : COPSE_Q_ZERO);
      mpq_sub(sum, sum, q);
      for (int c = 0; c < r->joint->n_cuts; c++) {
        const struct copse_joint_cut *cut = &r->joint->cuts[c];
        bool src = cut->inside[link->src], dst = cut->inside[link->dst];
        if (cut->group != g || cut->reduce != reduce || cut->sink != (phase < 2 ? -1 : phase - 2))
          continue;
        if (reduce ? src || !dst : !src || dst) continue;
        copse_test_set_q(q, cut->weight);
        mpq_add(sum, sum, q);
      }
      if (mpq_cmp(sum, most) > 0) mpq_set(most, sum);
    }
}

static bool proof_holds(const struct result *r) {
  mpq_t due, bound, sum, most, q;
  mpq_inits(due, bound, sum, most, q, NULL);
  for (int g = 0; g < r->n_groups; g++) add_due(r, g, due, sum, q);
  for (int e = 0; e < r->network->n_links; e++) {
    count_link(r, e, most, sum, q);
    mpq_set_si(q, r->network->links[e].capacity, 1);
    mpq_mul(most, most, q);
    mpq_add(bound, bound, most);
  }
  copse_test_set_q(q, r->joint->rate);
  mpq_mul(q, q, due);
  bool good = at_most(r, q, bound) && at_most(r, bound, q) && mpq_sgn(due) > 0;
  for (int c = 0; c < r->joint->n_cuts; c++) {
    const struct copse_joint_cut *cut = &r->joint->cuts[c];
    good = good && cut->weight.num > 0;
    if (cut->sink >= 0) good = good && !cut->inside[r->groups[cut->group].members[cut->sink]];
  }
  mpq_clears(due, bound, sum, most, q, NULL);
  return good;
}

const char *copse_test_joint_defect(const struct copse_network *network,
                                    const struct copse_joint_group *groups, int n_groups,
                                    const struct copse_joint *joint, long within) {
  struct result r = {within, network, groups, n_groups, joint};
  const char *defect = NULL;
  mpq_t sum, q;
  mpq_inits(sum, q, NULL);
  if (!links_hold(&r, sum, q)) defect = "a link takes more than it has";
  for (int g = 0; g < n_groups && !defect; g++)
    for (int phase = 0; phase < n_phases(&r, g) && !defect; phase++)
      if (part_of(&r, g, phase)) defect = phase_defect(&r, g, phase);
  if (!defect && !proof_holds(&r)) defect = "the proof does not come to the rate";
  mpq_clears(sum, q, NULL);
  return defect;
}
