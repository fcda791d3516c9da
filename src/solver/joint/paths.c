/*
 * Several groups over paths from member to member, where sets of members are few: a row for each
 * set, a column for a path once it gains (column generation; the rows are those of Edmonds 1973).
 * By edge splitting at relays, which are balanced, trees over links are trees of such paths, so
 * that sets of members say all that cuts of nodes do.
 *
 *   maximise R, or R and short ways
 *   on every link e:                             paths over e <= capacity[e]
 *   for sets S of members, not all, of a phase:  x_g(S) <= paths from S to the others
 *
 * A path gains if it is shorter, by the links' multipliers, than the sets between its ends are
 * worth. The optimum's multipliers become cuts of nodes and potentials, phase by phase ("the proof"
 * below). docs/theory.md, "Groups at the same time".
 */
#include <math.h>
#include <string.h>

#include "solver/joint/internal.h"
#include "solver/policy.h"

struct path {
  int phase, n;
  const int *links; /* [n] */
};

struct paths {
  struct copse_joint_search *s;
  struct copse_lp *lp; /* columns: the rate, free shares, as in s; then the paths */
  int n_fixed;         /* columns that are not paths */
  int *link_row;       /* [n_links] */
  int **set_row;       /* [n_phases][2^members], -1: none */
  int64_t **weight;    /* [n_phases][2^members] what they are worth in the end, whole */
  double **worth;      /* [n_phases][2^members] what the sets' rows are worth now */
  struct copse_net_link *turned_links;
  struct copse_network turned;    /* all links the other way: ways of reductions are found there */
  struct copse_shortest shortest; /* in the network, */
  struct copse_shortest back;     /* and in the other */
  double *price;                  /* [n_links] of a path, in units of the objective */
  int64_t *lengths;               /* [n_links] the same for integers */
  struct path *paths;
  size_t n_paths, capacity;
  struct copse_lp_term *terms;
  struct copse_lp_entry *entries;
  struct copse_arena arena;
};

/* ---- sets of members ----------------------------------------------------------------------- */

static const struct copse_joint_group *group_of(const struct paths *p, int phase) {
  return &p->s->groups[p->s->phases[phase].group];
}

static int n_sets(const struct copse_joint_group *group) { return 1 << group->n_members; }

/* Returns whether few enough sets of members say all that there is to say of cuts. */
static bool may_use_paths(const struct copse_joint_search *s,
                          const struct copse_joint_options *options) {
  int sets = 0;
  if (s->n_groups < 2 || s->n_rates > 1 || s->whole || s->limits || options->n_symmetries > 0 ||
      options->most.num > 0)
    return false;
  for (int g = 0; g < s->n_groups; g++) {
    const struct copse_joint_group *group = &s->groups[g];
    if (group->exchanges || group->unbalanced || group->n_extra[0] > 0 || group->n_extra[1] > 0 ||
        group->n_members > COPSE_PATHS_MEMBERS)
      return false;
    sets += (group->broadcasts + group->reduces) * n_sets(group);
    if (sets > COPSE_PATHS_SETS) return false;
  }
  return true;
}

/* Returns whether a phase has paths of its own: turned, a reduction has its group's the other way,
 * which take of the links back. */
static bool has_paths(const struct paths *p, int phase) {
  return !p->s->turned || !p->s->phases[phase].reduce;
}

/* Returns how many roots a set holds. */
static int roots_in(const struct copse_joint_group *group, int set) {
  int n = 0;
  for (int i = 0; i < group->n_members; i++) n += (set >> i & 1) && copse_joint_is_root(group, i);
  return n;
}

/* Returns whether a path between two members, by their places, crosses the cut around a set. */
static bool leaves(int set, int from, int to) { return (set >> from & 1) && !(set >> to & 1); }

/* ---- rows ---------------------------------------------------------------------------------- */

/* Adds the row of a set: what goes round from its roots, paths are to take out of it. */
static copse_status add_set_row(struct paths *p, int phase, int set) {
  const struct copse_joint_search *s = p->s;
  const struct copse_joint_group *group = group_of(p, phase);
  int g = s->phases[phase].group, held = roots_in(group, set), n = 0;
  p->set_row[phase][set] = -1;
  if (held == 0 || set == n_sets(group) - 1) return COPSE_OK;
  if (copse_joint_roots(s, g) > 0) p->terms[n++] = (struct copse_lp_term){0, held};
  for (int i = 0; s->share[g] && i < group->n_members; i++)
    if (set >> i & 1) p->terms[n++] = (struct copse_lp_term){s->share[g][i], 1};
  p->set_row[phase][set] = copse_lp_rows(p->lp);
  return copse_lp_add_row(p->lp, p->terms, n, 0, false, s->err);
}

static copse_status add_share_row(struct paths *p, int g) {
  const struct copse_joint_search *s = p->s;
  int n = 1;
  if (!s->share[g]) return COPSE_OK;
  p->terms[0] = (struct copse_lp_term){0, -1};
  for (int i = 0; i < s->groups[g].n_members; i++)
    p->terms[n++] = (struct copse_lp_term){s->share[g][i], 1};
  return copse_lp_add_row(p->lp, p->terms, n, 0, true, s->err);
}

static copse_status add_rows(struct paths *p) {
  const struct copse_joint_search *s = p->s;
  for (int e = 0; e < s->network->n_links; e++) {
    if (s->turned && s->back[e] < e) { /* has as much to carry */
      p->link_row[e] = p->link_row[s->back[e]];
      continue;
    }
    p->link_row[e] = copse_lp_rows(p->lp);
    COPSE_DO(copse_lp_add_row(p->lp, p->terms, 0, s->network->links[e].capacity, false, s->err));
  }
  for (int g = 0; g < s->n_groups; g++) COPSE_DO(add_share_row(p, g));
  for (int q = 0; q < s->n_phases; q++) {
    if (!has_paths(p, q)) continue;
    size_t sets = (size_t)n_sets(group_of(p, q));
    COPSE_DO(COPSE_ARRAY(&p->arena, sets, p->set_row[q], s->err));
    COPSE_DO(COPSE_ARRAY(&p->arena, sets, p->worth[q], s->err));
    COPSE_DO(COPSE_ARRAY(&p->arena, sets, p->weight[q], s->err));
    for (int set = 0; set < (int)sets; set++) COPSE_DO(add_set_row(p, q, set));
  }
  return COPSE_OK;
}

static copse_status prepare_ways(struct paths *p) {
  const struct copse_network *network = p->s->network;
  size_t links = (size_t)network->n_links;
  COPSE_DO(COPSE_ARRAY(&p->arena, links, p->turned_links, p->s->err));
  for (size_t e = 0; e < links; e++)
    p->turned_links[e] = (struct copse_net_link){network->links[e].dst, network->links[e].src,
                                                 network->links[e].capacity};
  p->turned = *network;
  p->turned.links = p->turned_links;
  COPSE_DO(copse_shortest_prepare(network, &p->arena, &p->shortest, p->s->err));
  return copse_shortest_prepare(&p->turned, &p->arena, &p->back, p->s->err);
}

static copse_status prepare(struct paths *p) {
  const struct copse_joint_search *s = p->s;
  size_t links = (size_t)s->network->n_links, most = 1;
  int64_t largest = 1;
  for (int g = 0; g < s->n_groups; g++) {
    if (s->share[g]) p->n_fixed += s->groups[g].n_members;
    most = (size_t)copse_larger((int64_t)most, n_sets(&s->groups[g]));
  }
  p->n_fixed++;
  for (size_t e = 0; e < links; e++) largest = copse_larger(largest, s->network->links[e].capacity);
  COPSE_DO(COPSE_ARRAY(&p->arena, links, p->link_row, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, links, p->price, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, links, p->lengths, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, most + 1, p->terms, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, most + links, p->entries, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)s->n_phases, p->set_row, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)s->n_phases, p->worth, s->err));
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)s->n_phases, p->weight, s->err));
  COPSE_DO(prepare_ways(p));
  COPSE_DO(copse_lp_new(p->n_fixed, COPSE_PATHS_MOST, largest, false, &p->lp, s->err));
  return add_rows(p);
}

/* ---- columns ------------------------------------------------------------------------------- */

/* Adds the way that the last run found from a member to another. */
static copse_status add_path(struct paths *p, int phase, const struct copse_shortest *ways,
                             int from, int to, bool lean) {
  const struct copse_joint_search *s = p->s;
  const struct copse_joint_group *group = group_of(p, phase);
  int roots = copse_joint_roots(s, s->phases[phase].group), n = 0, *links;
  struct path path = {.phase = phase};
  const struct copse_net_link *ends = ways->network->links;
  for (int v = group->members[to]; v != group->members[from]; v = ends[ways->via[v]].src)
    p->entries[n++] = (struct copse_lp_entry){p->link_row[ways->via[v]], 1};
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)n, links, s->err));
  for (int v = group->members[to]; v != group->members[from]; v = ends[ways->via[v]].src)
    links[path.n++] = ways->via[v];
  path.links = links;
  for (int set = 1; set < n_sets(group) - 1; set++)
    if (leaves(set, from, to) && p->set_row[phase][set] >= 0)
      p->entries[n++] = (struct copse_lp_entry){p->set_row[phase][set], roots > 0 ? -roots : -1};
  COPSE_DO(COPSE_PUSH_IN(&p->arena, p->paths, p->n_paths, p->capacity, s->err, path));
  return copse_lp_add_column(p->lp, p->entries, n, lean ? -path.n : 0, s->err);
}

/* Returns what a unit from a member to another is worth. */
static double worth_between(const struct paths *p, int phase, int from, int to) {
  const struct copse_joint_group *group = group_of(p, phase);
  int roots = copse_joint_roots(p->s, p->s->phases[phase].group);
  double sum = 0;
  for (int set = 1; set < n_sets(group) - 1; set++)
    if (leaves(set, from, to)) sum += p->worth[phase][set];
  return roots > 0 ? roots * sum : sum;
}

static double price_of(const struct paths *p, const struct copse_shortest *ways, int from, int to) {
  double sum = 0;
  for (int v = to; v != from; v = ways->network->links[ways->via[v]].src)
    sum += p->price[ways->via[v]];
  return sum;
}

/* Adds the shortest ways of a phase that gain at least so much; `all`: the others too. */
static copse_status add_phase_paths(struct paths *p, int phase, bool lean, bool all, double least) {
  const struct copse_joint_group *group = group_of(p, phase);
  struct copse_shortest *ways = p->s->phases[phase].reduce ? &p->back : &p->shortest;
  for (int i = 0; i < group->n_members; i++) {
    copse_shortest_run(ways, group->members[i], p->lengths, group->closed);
    for (int k = 0; k < group->n_members && p->n_paths < COPSE_PATHS_MOST; k++) {
      int to = group->members[k];
      if (k == i || ways->via[to] < 0) continue;
      double gain = worth_between(p, phase, i, k) - price_of(p, ways, group->members[i], to);
      if (all || gain > least) COPSE_DO(add_path(p, phase, ways, i, k, lean));
    }
  }
  return COPSE_OK;
}

/* Takes over the multipliers. */
static void take_prices(struct paths *p, bool lean) {
  const struct copse_joint_search *s = p->s;
  double most = 0;
  for (int e = 0; e < s->network->n_links; e++) {
    p->price[e] = fmax(0, copse_lp_price(p->lp, p->link_row[e])) + lean;
    most = fmax(most, p->price[e]);
  }
  for (int e = 0; e < s->network->n_links; e++)
    p->lengths[e] = most > 0 ? llround(p->price[e] / most * (double)COPSE_PATHS_LENGTH) : 0;
  for (int q = 0; q < s->n_phases; q++)
    for (int set = 0; has_paths(p, q) && set < n_sets(group_of(p, q)); set++) {
      int row = p->set_row[q][set];
      p->worth[q][set] = row < 0 ? 0 : fmax(0, copse_lp_price(p->lp, row));
    }
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* Adds paths until none gains; *done says whether that was reached. */
static copse_status generate(struct paths *p, bool lean, const struct copse_progress *progress,
                             int *rounds, bool *done) {
  const struct copse_joint_search *s = p->s;
  int64_t worth = lean ? (int64_t)COPSE_JOINT_GROUPS_WORTH * s->n_phases * s->network->n_links : 1;
  copse_lp_set_objective(p->lp, 0, worth);
  for (size_t i = 0; i < p->n_paths; i++)
    copse_lp_set_objective(p->lp, p->n_fixed + (int)i, lean ? -p->paths[i].n : 0);
  for (*done = false; !*done && *rounds < COPSE_JOINT_ROUNDS && p->n_paths < COPSE_PATHS_MOST;) {
    size_t before = p->n_paths;
    ++*rounds;
    if (!copse_lp_solve(p->lp)) return COPSE_OK;
    copse_progress_report(progress, "groups", *rounds, 0);
    take_prices(p, lean);
    for (int q = 0; q < s->n_phases; q++)
      if (has_paths(p, q))
        COPSE_DO(add_phase_paths(p, q, lean, before == 0, COPSE_LP_GAIN * (double)worth));
    *done = p->n_paths == before;
  }
  return COPSE_OK;
}

/* ---- rationals ----------------------------------------------------------------------------- */

struct found {
  mpq_t *solution, *multipliers; /* of paths; of rows */
  mpq_t *whole;                  /* [s->n_columns] the same in s's columns */
  struct copse_lp_proof proof;
};

static void found_free(struct found *f) {
  copse_rationals_free(&f->solution);
  copse_rationals_free(&f->multipliers);
  copse_rationals_free(&f->whole);
}

static copse_status work_out(const struct paths *p, struct found *f) {
  const struct copse_joint_search *s = p->s;
  COPSE_DO(copse_rationals_new((size_t)p->n_fixed + p->n_paths, &f->solution, s->err));
  COPSE_DO(copse_rationals_new((size_t)copse_lp_rows(p->lp), &f->multipliers, s->err));
  COPSE_DO(copse_rationals_new((size_t)s->n_columns, &f->whole, s->err));
  COPSE_DO(
      copse_lp_exact(p->lp, COPSE_JOINT_EQUATIONS, f->solution, f->multipliers, &f->proof, s->err));
  for (int j = 0; j < p->n_fixed; j++) mpq_set(f->whole[j], f->solution[j]);
  for (size_t i = 0; i < p->n_paths; i++)
    for (int k = 0; k < p->paths[i].n; k++) {
      int column = s->phases[p->paths[i].phase].column[p->paths[i].links[k]];
      mpq_add(f->whole[column], f->whole[column], f->solution[p->n_fixed + (int)i]);
    }
  return COPSE_OK;
}

/* Sets *out to value * factor, which is whole; false where it has too many bits. */
static bool scale(const mpq_t value, const mpz_t factor, size_t bits, int64_t *out) {
  COPSE_MPZ(t);
  mpz_divexact(t, factor, mpq_denref(value));
  mpz_mul(t, t, mpq_numref(value));
  *out = mpz_get_si(t);
  return mpz_sizeinbase(t, 2) <= bits;
}

/* Turns multipliers of rows of sets into what paths out of the sets pay for. */
static void take_weights(const struct paths *p, mpq_t *multipliers) {
  const struct copse_joint_search *s = p->s;
  for (int q = 0; q < s->n_phases; q++) {
    int roots = copse_joint_roots(s, s->phases[q].group);
    for (int set = 0; has_paths(p, q) && roots > 1 && set < n_sets(group_of(p, q)); set++) {
      if (p->set_row[q][set] < 0) continue;
      mpq_ptr weight = multipliers[p->set_row[q][set]];
      mpz_mul_si(mpq_numref(weight), mpq_numref(weight), roots);
      mpq_canonicalize(weight);
    }
  }
}

/* Sets prices of links and weights of sets, the multipliers times a common denominator; false where
 * a way's price would leave what distances may be. Turned, the multiplier of a link is of the link
 * back, too, and half of it of each; so is that of a set. */
static bool set_prices(struct paths *p, mpq_t *multipliers) {
  const struct copse_joint_search *s = p->s;
  COPSE_MPZ(factor);
  size_t bits = COPSE_PATHS_DISTANCE_BITS;
  bool fits = true;
  for (int n = s->network->n_nodes; n > 1; n = (n + 1) / 2) bits--;
  take_weights(p, multipliers);
  mpz_set_ui(factor, 1);
  for (int e = 0; e < s->network->n_links; e++)
    mpz_lcm(factor, factor, mpq_denref(multipliers[p->link_row[e]]));
  for (int q = 0; q < s->n_phases; q++)
    for (int set = 0; has_paths(p, q) && set < n_sets(group_of(p, q)); set++)
      if (p->set_row[q][set] >= 0)
        mpz_lcm(factor, factor, mpq_denref(multipliers[p->set_row[q][set]]));
  for (int e = 0; e < s->network->n_links && fits; e++)
    fits = scale(multipliers[p->link_row[e]], factor, bits, &p->lengths[e]);
  for (int q = 0; q < s->n_phases; q++)
    for (int set = 0; has_paths(p, q) && set < n_sets(group_of(p, q)) && fits; set++) {
      p->weight[q][set] = 0;
      if (p->set_row[q][set] >= 0)
        fits = scale(multipliers[p->set_row[q][set]], factor, COPSE_PATHS_DISTANCE_BITS,
                     &p->weight[q][set]);
    }
  return fits;
}

static copse_status set_parts(struct paths *p, struct found *f, struct copse_joint *out,
                              bool *found) {
  COPSE_DO(copse_joint_parts(p->s, f->whole, out, found));
  p->s->rounded = !*found;
  if (!*found) return copse_joint_round(p->s, f->whole, out, found);
  return COPSE_OK;
}

static void release(struct paths *p) {
  copse_lp_free(p->lp);
  copse_arena_free(&p->arena);
}

/* ---- the proof ----------------------------------------------------------------------------- */

/*
 * Prices of links y, and weights of sets of members, of which those between two members are no more
 * than the shortest way at these prices: that is the programme's dual solution. For the proof sets
 * of members become sets of nodes, and nodes get potentials p, so that on every link (a, b)
 *
 *   weight of the cuts that it leaves <= y + p(b) - p(a)
 *
 * Sets that cross are uncrossed, so that they are the edges of a tree, of the length of their
 * weights (Edmonds and Giles 1977). Members are points of it, and relays become such one after the
 * other: with c = 2 p + (the sum of a node's coordinates), what r must keep from every x before it
 * says that the distance in the tree is at most c(r) + 2 d(x, r) - c(x), and at most c(x) + 2 d(r,
 * x) - c(r), for the shortest ways d. The least c(r) for which balls of the first kind meet in
 * pairs lets all of them meet in pairs, by the four-point condition, and then all in one point, as
 * subtrees do. All is in whole numbers: what is compared has equal parity, or has one to spare.
 */
struct tree {
  struct paths *p;
  int phase, n; /* coordinates: sets that do not cross */
  int *set;     /* [n] */
  int64_t *length;
  int64_t *at;         /* [n_nodes][n] 0..length: outside of the set or in it */
  int64_t *c;          /* [n_nodes] */
  int *known, n_known; /* nodes that have a point */
  int64_t *to, *from;  /* [n_known] ways to the relay at hand, and from it; -1: none */
  struct copse_arena arena;
};

/* Puts in place of two sets that cross what they have in common, and all of both. */
static bool uncross(int64_t *weight, int full) {
  for (int steps = 0; steps < COPSE_PATHS_UNCROSSINGS;) {
    bool crossed = false;
    for (int a = 1; a < full; a++)
      for (int b = a + 1; b < full && weight[a] > 0; b++) {
        if (weight[b] == 0 || (a & b) == 0 || (a & b) == a || (a & b) == b || (a | b) == full)
          continue;
        int64_t least = copse_smaller(weight[a], weight[b]);
        weight[a] -= least;
        weight[b] -= least;
        weight[a & b] += least;
        weight[a | b] += least;
        crossed = true;
        steps++;
      }
    if (!crossed) return true;
  }
  return false;
}

static int64_t *point(const struct tree *t, int node) {
  return t->at + (size_t)node * (size_t)t->n;
}

static int64_t sum_of(const struct tree *t, const int64_t *point) {
  int64_t sum = 0;
  for (int i = 0; i < t->n; i++) sum += point[i];
  return sum;
}

static int64_t distance(const struct tree *t, const int64_t *a, const int64_t *b) {
  int64_t sum = 0;
  for (int i = 0; i < t->n; i++) sum += a[i] < b[i] ? b[i] - a[i] : a[i] - b[i];
  return sum;
}

/* Returns whether a coordinate of a point of the tree can change that way: it is then on the edge
 * that the point is on, or at one that leaves it. */
static bool can_move(const struct tree *t, const int64_t *at, int i, bool up) {
  int full = n_sets(group_of(t->p, t->phase)) - 1;
  for (int k = 0; k < t->n; k++) {
    int a = t->set[i], b = t->set[k];
    if (k == i) continue;
    if ((a & b) == a) { /* inside the other one */
      if (up && at[k] < t->length[k]) return false;
    } else if ((a & b) == b) {
      if (!up && at[k] > 0) return false;
    } else if ((a & b) == 0) {
      if (up && at[k] > 0) return false;
    } else if ((a | b) == full && !up && at[k] < t->length[k]) {
      return false;
    }
  }
  return true;
}

/* Moves a point so far towards another one. */
static void move(const struct tree *t, int64_t *at, const int64_t *to, int64_t far) {
  for (bool moved = true; moved && far > 0;) {
    moved = false;
    for (int i = 0; i < t->n && far > 0; i++) {
      bool up = to[i] > at[i];
      if (at[i] == to[i] || !can_move(t, at, i, up)) continue;
      int64_t by = copse_smaller(far, up ? to[i] - at[i] : at[i] - to[i]);
      at[i] += up ? by : -by;
      far -= by;
      moved = true;
    }
  }
}

/* Returns how much a point's distance from a node is above what the node's way to the relay allows
 * if the relay's c is 0, at most; *which: from which node. */
static int64_t farthest(const struct tree *t, const int64_t *at, int *which) {
  int64_t most = INT64_MIN;
  for (int i = 0; i < t->n_known; i++) {
    int x = t->known[i];
    if (t->to[i] < 0) continue;
    int64_t beyond = distance(t, at, point(t, x)) - 2 * t->to[i] + t->c[x];
    if (beyond <= most) continue;
    most = beyond;
    *which = x;
  }
  return most;
}

/* Sets c of a relay to the least for which the balls of ways to it meet in pairs: half the widest
 * distance in the tree with a pendant edge at each, twice over, found from any end on. */
static bool set_least(const struct tree *t, int64_t *c) {
  int first = -1, last = -1;
  farthest(t, point(t, t->known[0]), &first);
  if (first < 0) return false;
  int64_t widest = farthest(t, point(t, first), &last);
  for (int i = 0; i < t->n_known; i++)
    if (t->known[i] == first) widest += t->c[first] - 2 * t->to[i];
  *c = widest / 2;
  return true;
}

/* Moves a point into all balls: to the one that is farthest off. */
static void meet(const struct tree *t, int64_t c, int64_t *at) {
  const int64_t *centre = at;
  int64_t most = 0;
  for (int i = 0; i < t->n_known; i++) {
    int x = t->known[i];
    int64_t off = distance(t, at, point(t, x));
    int64_t in = t->to[i] < 0 ? 0 : off - (c + 2 * t->to[i] - t->c[x]);
    int64_t out = t->from[i] < 0 ? 0 : off - (t->c[x] + 2 * t->from[i] - c);
    int64_t beyond = copse_larger(in, out);
    if (beyond <= most) continue;
    most = beyond;
    centre = point(t, x);
  }
  move(t, at, centre, most);
}

/* Gives a relay its point and c; false where no way leads to it. */
static bool place(struct tree *t, int node) {
  struct paths *p = t->p;
  const bool *closed = group_of(p, t->phase)->closed;
  bool reduce = p->s->phases[t->phase].reduce;
  struct copse_shortest *there = reduce ? &p->back : &p->shortest,
                        *back = reduce ? &p->shortest : &p->back;
  int64_t *at = point(t, node), c;
  copse_shortest_run(there, node, p->lengths, closed);
  for (int i = 0; i < t->n_known; i++) t->from[i] = copse_shortest_length(there, t->known[i]);
  copse_shortest_run(back, node, p->lengths, closed);
  for (int i = 0; i < t->n_known; i++) t->to[i] = copse_shortest_length(back, t->known[i]);
  memcpy(at, point(t, t->known[0]), (size_t)t->n * sizeof *at);
  if (!set_least(t, &c)) return false;
  meet(t, c, at);
  t->c[node] = c - ((c - sum_of(t, at)) & 1); /* p is whole */
  t->known[t->n_known++] = node;
  return true;
}

static int64_t potential(const struct tree *t, int node) {
  return (t->c[node] - sum_of(t, point(t, node))) / 2;
}

/* Returns whether no link is left by cuts of more weight than its price and potentials come to. */
static bool holds(const struct tree *t) {
  const struct copse_joint_search *s = t->p->s;
  const bool *closed = group_of(t->p, t->phase)->closed;
  bool reduce = s->phases[t->phase].reduce;
  for (int e = 0; e < s->network->n_links; e++) {
    const struct copse_net_link *link = &s->network->links[e];
    int a = reduce ? link->dst : link->src, b = reduce ? link->src : link->dst;
    int64_t sum = 0;
    if (closed && (closed[a] || closed[b])) continue;
    for (int i = 0; i < t->n; i++) sum += copse_larger(0, point(t, a)[i] - point(t, b)[i]);
    if (sum > t->p->lengths[e] + potential(t, b) - potential(t, a)) return false;
  }
  return true;
}

static copse_status prepare_tree(struct tree *t) {
  const struct copse_joint_search *s = t->p->s;
  const struct copse_joint_group *group = group_of(t->p, t->phase);
  const int64_t *weight = t->p->weight[t->phase];
  size_t nodes = (size_t)s->network->n_nodes;
  for (int set = 1; set < n_sets(group) - 1; set++) t->n += weight[set] > 0;
  size_t n = (size_t)t->n;
  COPSE_DO(COPSE_ARRAY(&t->arena, n, t->set, s->err));
  COPSE_DO(COPSE_ARRAY(&t->arena, n, t->length, s->err));
  COPSE_DO(COPSE_ARRAY(&t->arena, nodes * n, t->at, s->err));
  COPSE_DO(COPSE_ARRAY(&t->arena, nodes, t->known, s->err));
  COPSE_DO(COPSE_ARRAYS(&t->arena, nodes, int64_t, s->err, &t->c, &t->to, &t->from));
  t->n = 0;
  for (int set = 1; set < n_sets(group) - 1; set++) {
    if (weight[set] == 0) continue;
    t->set[t->n] = set;
    t->length[t->n++] = weight[set];
  }
  for (int i = 0; i < group->n_members; i++) {
    int node = group->members[i];
    for (int k = 0; k < t->n; k++) point(t, node)[k] = t->set[k] >> i & 1 ? t->length[k] : 0;
    t->c[node] = sum_of(t, point(t, node));
    t->known[t->n_known++] = node;
  }
  return COPSE_OK;
}

/* Adds the cut of nodes whose coordinate is at least so much. */
static copse_status add_cut(struct tree *t, int coordinate, int64_t least, int64_t weight,
                            bool reduce, struct copse_joint *out, size_t *capacity) {
  const struct copse_joint_search *s = t->p->s;
  struct copse_joint_cut cut = {
      .group = s->phases[t->phase].group, .reduce = reduce, .sink = -1, .weight = {weight, 1}};
  struct copse_joint_cut *cuts = (struct copse_joint_cut *)out->cuts;
  bool *inside;
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)s->network->n_nodes, inside, s->err));
  for (int v = 0; v < s->network->n_nodes; v++) inside[v] = point(t, v)[coordinate] >= least;
  cut.inside = inside;
  COPSE_DO(COPSE_PUSH_IN(&out->arena, cuts, out->n_cuts, *capacity, s->err, cut));
  out->cuts = cuts;
  return COPSE_OK;
}

/* Adds the cuts between every two coordinates that nodes have, and the potentials. */
static copse_status hand_over(struct tree *t, bool reduce, struct copse_joint *out,
                              size_t *capacity) {
  const struct copse_joint_search *s = t->p->s;
  struct copse_joint_part *part = &out->parts[s->phases[t->phase].group];
  struct copse_q *potentials;
  for (int i = 0; i < t->n; i++)
    for (int64_t last = 0, next; last < t->length[i]; last = next) {
      next = t->length[i];
      for (int v = 0; v < s->network->n_nodes; v++)
        if (point(t, v)[i] > last) next = copse_smaller(next, point(t, v)[i]);
      COPSE_DO(add_cut(t, i, next, next - last, reduce, out, capacity));
    }
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)s->network->n_nodes, potentials, s->err));
  for (int v = 0; v < s->network->n_nodes; v++)
    potentials[v] = (struct copse_q){reduce ? -potential(t, v) : potential(t, v), 1};
  *(reduce ? &part->reduce_potentials : &part->broadcast_potentials) = potentials;
  return COPSE_OK;
}

static void tree_free(struct tree *t) { copse_arena_free(&t->arena); }

static copse_status prove_phase(struct paths *p, int phase, struct copse_joint *out,
                                size_t *capacity, bool *proved) {
  const struct copse_joint_group *group = group_of(p, phase);
  COPSE_AT_END(tree_free) struct tree t = {.p = p, .phase = phase};
  *proved = uncross(p->weight[phase], n_sets(group) - 1);
  if (!*proved) return COPSE_OK;
  COPSE_DO(prepare_tree(&t));
  for (int v = 0; v < p->s->network->n_nodes && *proved; v++) {
    bool member = false;
    for (int i = 0; i < group->n_members; i++) member = member || group->members[i] == v;
    if (!member && !(group->closed && group->closed[v])) *proved = place(&t, v);
  }
  *proved = *proved && holds(&t);
  if (!*proved) return COPSE_OK;
  if (p->s->turned) COPSE_DO(hand_over(&t, true, out, capacity));
  return hand_over(&t, p->s->phases[phase].reduce, out, capacity);
}

static copse_status prove(struct paths *p, mpq_t *multipliers, struct copse_joint *out,
                          bool *proved) {
  size_t capacity = 0;
  *proved = set_prices(p, multipliers);
  for (int q = 0; q < p->s->n_phases && *proved; q++)
    if (has_paths(p, q)) COPSE_DO(prove_phase(p, q, out, &capacity, proved));
  return COPSE_OK;
}

/* ---- both stages ---------------------------------------------------------------------------- */

static copse_status search(struct paths *p, const struct copse_progress *progress,
                           struct copse_joint *out, bool *done) {
  COPSE_AT_END(found_free) struct found lean = {0};
  COPSE_AT_END(found_free) struct found best = {0};
  size_t before = p->s->n_cuts;
  COPSE_DO(prepare(p));
  COPSE_DO(generate(p, true, progress, &out->rounds, done));
  if (*done) COPSE_DO(work_out(p, &lean));
  if (*done) COPSE_DO(generate(p, false, progress, &out->rounds, done));
  if (!*done) return COPSE_OK;
  COPSE_DO(work_out(p, &best));
  *done = best.proof.optimal && mpq_sgn(best.solution[0]) > 0;
  bool short_ways = lean.proof.feasible && mpq_equal(lean.solution[0], best.solution[0]);
  if (*done) COPSE_DO(set_parts(p, short_ways ? &lean : &best, out, done));
  if (*done) COPSE_DO(copse_joint_separate_parts(p->s, out));
  *done = *done && p->s->n_cuts == before;
  if (*done) COPSE_DO(prove(p, best.multipliers, out, done));
  return COPSE_OK;
}

copse_status copse_joint_by_paths(struct copse_joint_search *s,
                                  const struct copse_joint_options *options,
                                  struct copse_joint *out, bool *done) {
  COPSE_AT_END(release) struct paths p = {.s = s};
  *done = false;
  if (!may_use_paths(s, options)) return COPSE_OK;
  COPSE_DO(search(&p, options->progress, out, done));
  if (*done) {
    out->outcome = s->rounded ? COPSE_JOINT_CLOSE : COPSE_JOINT_PROVED;
    return COPSE_OK;
  }
  s->rounded = false;
  out->n_cuts = 0;
  out->cuts = NULL;
  out->parts = NULL;
  return COPSE_OK;
}
