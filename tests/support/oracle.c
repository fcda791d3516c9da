#include "support/oracle.h"

#include <glpk.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

static void *zeroed(size_t n, size_t size) {
  void *p = calloc(n > 0 ? n : 1, size);
  ck_assert_ptr_nonnull(p);
  return p;
}

void copse_test_set_q(mpq_t to, struct copse_q from) {
  mpz_set_si(mpq_numref(to), from.num);
  mpz_set_si(mpq_denref(to), from.den);
  mpq_canonicalize(to);
}

bool copse_test_equals_q(const mpq_t a, struct copse_q b) {
  mpq_t q;
  mpq_init(q);
  copse_test_set_q(q, b);
  bool equal = mpq_equal(a, q);
  mpq_clear(q);
  return equal;
}

/* ---- graphs -------------------------------------------------------------------------- */

static struct copse_test_graph *new_graph(int n_nodes, int n_links) {
  struct copse_test_graph *graph = zeroed(1, sizeof *graph);
  graph->n_nodes = n_nodes;
  graph->n_links = n_links;
  graph->src = zeroed((size_t)n_links, sizeof(int));
  graph->dst = zeroed((size_t)n_links, sizeof(int));
  graph->bandwidth = zeroed((size_t)n_links, sizeof(mpq_t));
  graph->terminal = zeroed((size_t)n_nodes, sizeof(bool));
  graph->weight = zeroed((size_t)n_nodes, sizeof(long));
  for (int i = 0; i < n_links; i++) mpq_init(graph->bandwidth[i]);
  return graph;
}

void copse_test_graph_free(struct copse_test_graph *graph) {
  for (int i = 0; i < graph->n_links; i++) mpq_clear(graph->bandwidth[i]);
  free(graph->src);
  free(graph->dst);
  free(graph->bandwidth);
  free(graph->terminal);
  free(graph->weight);
  free(graph);
}

struct copse_test_graph *copse_test_graph_of_topology(const struct copse_topology *topology,
                                                      int root, bool reversed) {
  struct copse_test_graph *graph = new_graph(topology->n_nodes, topology->n_links);
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    graph->src[i] = reversed ? link->dst : link->src;
    graph->dst[i] = reversed ? link->src : link->dst;
    copse_test_set_q(graph->bandwidth[i], link->bandwidth);
  }
  for (int v = 0; v < topology->n_nodes; v++) {
    int rank = topology->nodes[v].rank;
    graph->terminal[v] = rank >= 0;
    graph->weight[v] = rank >= 0 && (root < 0 || rank == root);
  }
  return graph;
}

struct copse_test_graph *copse_test_graph_of_network(const struct copse_network *network) {
  struct copse_test_graph *graph = new_graph(network->n_nodes, network->n_links);
  for (int i = 0; i < network->n_links; i++) {
    graph->src[i] = network->links[i].src;
    graph->dst[i] = network->links[i].dst;
    mpq_set_si(graph->bandwidth[i], network->links[i].capacity, 1);
  }
  for (int i = 0; i < network->n_terminals; i++) graph->terminal[network->terminals[i]] = true;
  for (int i = 0; i < network->n_roots; i++)
    graph->weight[network->roots[i].node] = (long)network->roots[i].weight;
  return graph;
}

static long total_weight(const struct copse_test_graph *graph) {
  long sum = 0;
  for (int v = 0; v < graph->n_nodes; v++) sum += graph->weight[v];
  return sum;
}

void copse_test_cut_leaving(const struct copse_test_graph *graph, const bool *in_cut, mpq_t leaving,
                            long *weight) {
  mpq_set_ui(leaving, 0, 1);
  *weight = 0;
  for (int i = 0; i < graph->n_links; i++)
    if (in_cut[graph->src[i]] && !in_cut[graph->dst[i]])
      mpq_add(leaving, leaving, graph->bandwidth[i]);
  for (int v = 0; v < graph->n_nodes; v++)
    if (in_cut[v]) *weight += graph->weight[v];
}

/* ---- every cut ----------------------------------------------------------------------- */

/* Cuts one after the other in Gray code, so that each differs by one node. */
struct sweep {
  const struct copse_test_graph *graph;
  mpq_t leaving; /* bandwidth that leaves the cut at hand */
  bool in_cut[16];
  long weight;
  int missed; /* terminals outside */
};

static void flip(struct sweep *s, int v) {
  const struct copse_test_graph *g = s->graph;
  bool joins = !s->in_cut[v];
  for (int i = 0; i < g->n_links; i++) {
    bool from = g->src[i] == v, to = g->dst[i] == v;
    if (!from && !to) continue;
    bool other = s->in_cut[from ? g->dst[i] : g->src[i]];
    /* v -> outside leaves when v joins; inside -> v no longer does */
    bool leaves = joins == from;
    if (other == from) continue;
    if (leaves)
      mpq_add(s->leaving, s->leaving, g->bandwidth[i]);
    else
      mpq_sub(s->leaving, s->leaving, g->bandwidth[i]);
  }
  s->in_cut[v] = joins;
  s->weight += joins ? g->weight[v] : -g->weight[v];
  s->missed += g->terminal[v] ? (joins ? -1 : 1) : 0;
}

bool copse_test_cut_time(const struct copse_test_graph *graph, mpq_t time) {
  struct sweep s = {.graph = graph};
  bool reachable = true;
  mpq_t q, whole;
  ck_assert_int_le(graph->n_nodes, 16);
  mpq_inits(s.leaving, q, whole, NULL);
  mpq_set_ui(time, 0, 1);
  mpq_set_si(whole, total_weight(graph), 1);
  for (int v = 0; v < graph->n_nodes; v++) s.missed += graph->terminal[v];
  for (unsigned code = 1; code < 1u << graph->n_nodes && reachable; code++) {
    flip(&s, __builtin_ctz(code));
    if (s.weight == 0 || s.missed == 0) continue;
    reachable = mpq_sgn(s.leaving) > 0;
    if (!reachable) break;
    mpq_set_si(q, s.weight, 1);
    mpq_div(q, q, s.leaving);
    if (mpq_cmp(q, time) > 0) mpq_set(time, q);
  }
  mpq_div(time, time, whole);
  mpq_clears(s.leaving, q, whole, NULL);
  return reachable;
}

/* ---- the LP -------------------------------------------------------------------------- */

struct program {
  const struct copse_test_graph *graph;
  glp_prob *lp;
  int *rows, *columns; /* 1-based triplets */
  double *values;
  int n, row;
};

static void put(struct program *p, int row, int column, double value) {
  p->n++;
  p->rows[p->n] = row;
  p->columns[p->n] = column;
  p->values[p->n] = value;
}

/* Flow to one sink: at every other node out - in = x * weight. Column 1 is x. */
static void add_sink(struct program *p, int sink) {
  const struct copse_test_graph *g = p->graph;
  int first = glp_add_cols(p->lp, g->n_links);
  int row = glp_add_rows(p->lp, g->n_nodes);
  for (int i = 0; i < g->n_links; i++)
    glp_set_col_bnds(p->lp, first + i, GLP_DB, 0, mpq_get_d(g->bandwidth[i]));
  for (int v = 0; v < g->n_nodes; v++) {
    glp_set_row_bnds(p->lp, row + v, v == sink ? GLP_FR : GLP_FX, 0, 0);
    if (g->weight[v]) put(p, row + v, 1, -(double)g->weight[v]);
  }
  for (int i = 0; i < g->n_links; i++) {
    put(p, row + g->src[i], first + i, 1);
    put(p, row + g->dst[i], first + i, -1);
  }
}

double copse_test_lp_time(const struct copse_test_graph *graph) {
  struct program p = {.graph = graph, .lp = glp_create_prob()};
  int sinks = 0;
  for (int v = 0; v < graph->n_nodes; v++) sinks += graph->terminal[v];
  size_t most = 1 + (size_t)sinks * (size_t)(2 * graph->n_links + graph->n_nodes);
  p.rows = zeroed(most, sizeof(int));
  p.columns = zeroed(most, sizeof(int));
  p.values = zeroed(most, sizeof(double));
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(p.lp, GLP_MAX);
  glp_add_cols(p.lp, 1);
  glp_set_col_bnds(p.lp, 1, GLP_LO, 0, 0);
  glp_set_obj_coef(p.lp, 1, 1);
  for (int v = 0; v < graph->n_nodes; v++)
    if (graph->terminal[v] && graph->weight[v] < total_weight(graph)) add_sink(&p, v);
  glp_load_matrix(p.lp, p.n, p.rows, p.columns, p.values);
  glp_smcp options;
  glp_init_smcp(&options);
  options.msg_lev = GLP_MSG_OFF;
  options.tol_bnd = options.tol_dj = 1e-10;
  int failed = p.n == 0 ? 0 : glp_simplex(p.lp, &options);
  ck_assert_int_eq(failed, 0);
  double x = p.n == 0 ? 0 : glp_get_obj_val(p.lp);
  glp_delete_prob(p.lp);
  glp_free_env();
  free(p.rows);
  free(p.columns);
  free(p.values);
  return x > 0 ? 1 / (x * (double)total_weight(graph)) : 0;
}

/* ---- allreduce with free shares ------------------------------------------------------- */

/* Columns: x of the ranks, then a of the links, then flows. At most `most` entries. */
static void start_allreduce(struct program *p, const struct copse_topology *t, size_t most) {
  p->rows = zeroed(most, sizeof(int));
  p->columns = zeroed(most, sizeof(int));
  p->values = zeroed(most, sizeof(double));
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(p->lp, GLP_MAX);
  glp_add_cols(p->lp, t->n_ranks + t->n_links);
  for (int r = 0; r < t->n_ranks; r++) {
    glp_set_col_bnds(p->lp, r + 1, GLP_LO, 0, 0);
    glp_set_obj_coef(p->lp, r + 1, 1);
  }
  for (int e = 0; e < t->n_links; e++)
    glp_set_col_bnds(p->lp, t->n_ranks + e + 1, GLP_DB, 0,
                     copse_q_to_double(t->links[e].bandwidth));
  for (int v = 0; v < t->n_nodes; v++) { /* relays pass on what they get */
    if (t->nodes[v].rank >= 0) continue;
    int row = glp_add_rows(p->lp, 1);
    glp_set_row_bnds(p->lp, row, GLP_FX, 0, 0);
    for (int e = 0; e < t->n_links; e++) {
      if (t->links[e].dst == v) put(p, row, t->n_ranks + e + 1, 1);
      if (t->links[e].src == v) put(p, row, t->n_ranks + e + 1, -1);
    }
  }
}

/* Every rank but the sink feeds in its share, and all of it reaches the sink, over links whose
 * flow is at most a, or what a leaves of them. */
static void add_allreduce_sink(struct program *p, const struct copse_topology *t, int sink,
                               bool reduce) {
  int first = glp_add_cols(p->lp, t->n_links), row = glp_add_rows(p->lp, t->n_nodes);
  int limit = glp_add_rows(p->lp, t->n_links);
  for (int v = 0; v < t->n_nodes; v++) {
    glp_set_row_bnds(p->lp, row + v, v == sink ? GLP_FR : GLP_FX, 0, 0);
    if (t->nodes[v].rank >= 0) put(p, row + v, t->nodes[v].rank + 1, -1);
  }
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *link = &t->links[e];
    glp_set_col_bnds(p->lp, first + e, GLP_LO, 0, 0);
    put(p, row + (reduce ? link->dst : link->src), first + e, 1);
    put(p, row + (reduce ? link->src : link->dst), first + e, -1);
    put(p, limit + e, first + e, 1);
    put(p, limit + e, t->n_ranks + e + 1, reduce ? 1 : -1);
    glp_set_row_bnds(p->lp, limit + e, GLP_UP, 0, reduce ? copse_q_to_double(link->bandwidth) : 0);
  }
}

static void add_allreduce_cut(struct program *p, const struct copse_topology *t, unsigned set,
                              bool reduce) {
  int ranks = 0, row;
  double right = 0;
  for (int r = 0; r < t->n_ranks; r++) ranks += set >> t->rank_nodes[r] & 1;
  if (ranks == 0 || ranks == t->n_ranks) return;
  row = glp_add_rows(p->lp, 1);
  for (int r = 0; r < t->n_ranks; r++)
    if (set >> t->rank_nodes[r] & 1) put(p, row, r + 1, 1);
  for (int e = 0; e < t->n_links; e++) {
    bool src = set >> t->links[e].src & 1, dst = set >> t->links[e].dst & 1;
    if (!reduce && src && !dst) put(p, row, t->n_ranks + e + 1, -1);
    if (!reduce || src || !dst) continue;
    put(p, row, t->n_ranks + e + 1, 1);
    right += copse_q_to_double(t->links[e].bandwidth);
  }
  glp_set_row_bnds(p->lp, row, GLP_UP, 0, right);
}

double copse_test_lp_allreduce_time(const struct copse_topology *t, bool all_cuts) {
  struct program p = {.lp = glp_create_prob()};
  size_t columns = (size_t)(t->n_ranks + t->n_links), n = (size_t)t->n_nodes;
  glp_smcp options;
  if (all_cuts) ck_assert_int_le(t->n_nodes, 10);
  start_allreduce(
      &p, t,
      1 + n * columns +
          (all_cuts ? (2 * columns) << n : 2 * (size_t)t->n_ranks * (4 * (size_t)t->n_links + n)));
  for (int reduce = 0; reduce < 2; reduce++) {
    for (unsigned set = 1; all_cuts && set < 1u << t->n_nodes; set++)
      add_allreduce_cut(&p, t, set, reduce);
    for (int r = 0; r < t->n_ranks && !all_cuts; r++)
      add_allreduce_sink(&p, t, t->rank_nodes[r], reduce);
  }
  glp_load_matrix(p.lp, p.n, p.rows, p.columns, p.values);
  glp_init_smcp(&options);
  options.msg_lev = GLP_MSG_OFF;
  options.presolve = GLP_ON;
  ck_assert_int_eq(glp_simplex(p.lp, &options), 0);
  ck_assert_int_eq(glp_get_status(p.lp), GLP_OPT);
  double rate = glp_get_obj_val(p.lp);
  glp_delete_prob(p.lp);
  free(p.rows);
  free(p.columns);
  free(p.values);
  return 1 / rate;
}

/* ---- maximum flow -------------------------------------------------------------------- */

static bool find_way(int n, const int64_t *capacities, int s, int t, int *from, int *queue) {
  for (int v = 0; v < n; v++) from[v] = -1;
  int head = 0, tail = 0;
  queue[tail++] = s;
  from[s] = s;
  while (head < tail && from[t] < 0) {
    int u = queue[head++];
    for (int v = 0; v < n; v++) {
      if (from[v] >= 0 || capacities[u * n + v] == 0) continue;
      from[v] = u;
      queue[tail++] = v;
    }
  }
  return from[t] >= 0;
}

int64_t copse_test_simple_flow(int n, int64_t *capacities, int s, int t) {
  int64_t total = 0;
  int *from = zeroed((size_t)n, sizeof(int)), *queue = zeroed((size_t)n, sizeof(int));
  while (find_way(n, capacities, s, t, from, queue)) {
    int64_t amount = INT64_MAX;
    for (int v = t; v != s; v = from[v])
      if (capacities[from[v] * n + v] < amount) amount = capacities[from[v] * n + v];
    for (int v = t; v != s; v = from[v]) {
      capacities[from[v] * n + v] -= amount;
      capacities[v * n + from[v]] += amount;
    }
    total += amount;
  }
  free(from);
  free(queue);
  return total;
}

/* ---- forests ------------------------------------------------------------------------- */

static int find_link(const struct copse_network *network, int src, int dst) {
  for (int i = 0; i < network->n_links; i++)
    if (network->links[i].src == src && network->links[i].dst == dst) return i;
  return -1;
}

static bool is_terminal(const struct copse_network *network, int node) {
  for (int i = 0; i < network->n_terminals; i++)
    if (network->terminals[i] == node) return true;
  return false;
}

static const char *lay_path(const struct copse_network *network,
                            const struct copse_forest_edge *edge, mpq_t share, mpq_t *loads) {
  if (edge->n_path < 2 || edge->path[0] != edge->src || edge->path[edge->n_path - 1] != edge->dst)
    return "a path does not join the ends of its edge";
  for (int i = 0; i + 1 < edge->n_path; i++) {
    int link = find_link(network, edge->path[i], edge->path[i + 1]);
    if (link < 0) return "a path takes a link that is not there";
    if (i > 0 && is_terminal(network, edge->path[i])) return "a path passes through a terminal";
    for (int j = 0; j < i; j++)
      if (edge->path[j] == edge->path[i]) return "a path comes back to a node";
    mpq_add(loads[link], loads[link], share);
  }
  return NULL;
}

static const char *lay_tree(const struct copse_network *network,
                            const struct copse_forest_tree *tree, mpq_t share, mpq_t *loads) {
  int *depth = zeroed((size_t)network->n_nodes, sizeof *depth), height = 0;
  const char *defect = NULL;
  for (int v = 0; v < network->n_nodes; v++) depth[v] = -1;
  depth[tree->root] = 0;
  for (int e = 0; e + 1 < network->n_terminals && !defect; e++) {
    const struct copse_forest_edge *edge = &tree->edges[e];
    if (!is_terminal(network, edge->dst)) defect = "an edge leads to a relay";
    if (depth[edge->src] < 0) defect = "an edge starts where the data is not yet";
    if (depth[edge->dst] >= 0) defect = "an edge leads to where the data is already";
    if (defect) break;
    depth[edge->dst] = depth[edge->src] + 1;
    if (depth[edge->dst] > height) height = depth[edge->dst];
    defect = lay_path(network, edge, share, loads);
  }
  free(depth);
  if (!defect && height != tree->height) defect = "a tree's height is wrong";
  return defect; /* n - 1 edges to n - 1 new terminals: it spans */
}

static const char *count_roots(const struct copse_network *network,
                               const struct copse_forest *forest) {
  const char *defect = NULL;
  int64_t *left = zeroed((size_t)network->n_nodes, sizeof *left);
  for (int i = 0; i < network->n_roots; i++)
    left[network->roots[i].node] = network->roots[i].weight * forest->k;
  for (int i = 0; i < forest->n_trees; i++) {
    if (forest->trees[i].multiplicity <= 0) defect = "a multiplicity is not positive";
    left[forest->trees[i].root] -= forest->trees[i].multiplicity;
  }
  for (int v = 0; v < network->n_nodes; v++)
    if (left[v] != 0) defect = "the trees of a root do not add up to k";
  free(left);
  return defect;
}

const char *copse_test_forest_defect(const struct copse_network *network,
                                     const struct copse_forest *forest, mpq_t time) {
  const char *defect = count_roots(network, forest);
  mpq_t *loads = zeroed((size_t)network->n_links, sizeof(mpq_t));
  mpq_t q, whole;
  mpq_inits(q, whole, NULL);
  mpq_set_ui(time, 0, 1);
  for (int i = 0; i < network->n_roots; i++) {
    mpq_set_si(q, network->roots[i].weight, 1);
    mpq_add(whole, whole, q);
  }
  mpq_set_si(q, forest->k, 1);
  mpq_mul(whole, whole, q);
  for (int i = 0; i < network->n_links; i++) mpq_init(loads[i]);
  for (int i = 0; i < forest->n_trees && !defect; i++) {
    mpq_set_si(q, forest->trees[i].multiplicity, 1);
    mpq_div(q, q, whole);
    defect = lay_tree(network, &forest->trees[i], q, loads);
  }
  for (int i = 0; i < network->n_links; i++) {
    mpq_set_si(q, network->links[i].capacity, 1);
    mpq_div(q, loads[i], q);
    if (mpq_cmp(q, time) > 0) mpq_set(time, q);
    mpq_clear(loads[i]);
  }
  mpq_clears(q, whole, NULL);
  free(loads);
  return defect;
}

/* ---- schedules ----------------------------------------------------------------------- */

struct judge {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  int *node_of;  /* [schedule->n_nodes] by comparing every id */
  mpq_t *loads;  /* [n_links] */
  bool *crossed; /* [n_links] by the tree at hand */
  mpq_t *shares; /* [2 * n_ranks]: of broadcast trees, then of reduce trees */
};

static int find_topology_link(const struct copse_topology *topology, int src, int dst) {
  for (int i = 0; i < topology->n_links; i++)
    if (topology->links[i].src == src && topology->links[i].dst == dst) return i;
  return -1;
}

static const char *judge_path(struct judge *j, const struct copse_schedule_tree *tree,
                              const struct copse_schedule_edge *edge) {
  const struct copse_topology *topology = j->topology;
  mpq_t weight;
  const char *defect = NULL;
  if (edge->n_path < 2 || edge->path[0] != j->schedule->rank_nodes[edge->src] ||
      edge->path[edge->n_path - 1] != j->schedule->rank_nodes[edge->dst])
    return "a path does not join its ranks";
  mpq_init(weight);
  copse_test_set_q(weight, tree->weight);
  for (int i = 0; i + 1 < edge->n_path && !defect; i++) {
    int src = j->node_of[edge->path[i]], dst = j->node_of[edge->path[i + 1]];
    int link = find_topology_link(topology, src, dst);
    if (src < 0 || dst < 0 || link < 0) {
      defect = "a path takes a link that is not there";
    } else if (i > 0 && strcmp(topology->nodes[src].type, "gpu") == 0) {
      defect = "a path passes through a rank";
    } else {
      bool shared = tree->phase == COPSE_PHASE_BROADCAST ? topology->nodes[dst].multicast
                                                         : topology->nodes[src].aggregation;
      if (!shared || !j->crossed[link]) mpq_add(j->loads[link], j->loads[link], weight);
      j->crossed[link] = true;
    }
  }
  mpq_clear(weight);
  return defect;
}

/* A broadcast tree must grow from its root; a reduce tree, read backwards, likewise. */
static const char *judge_tree(struct judge *j, const struct copse_schedule_tree *tree) {
  int n_ranks = j->schedule->n_ranks;
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  bool *has = zeroed((size_t)n_ranks, sizeof *has);
  const char *defect = NULL;
  memset(j->crossed, 0, (size_t)j->topology->n_links * sizeof *j->crossed);
  has[tree->root] = true;
  if (j->schedule->trees[0].stage == 0 && tree->n_edges != n_ranks - 1)
    defect = "a tree has the wrong number of edges";
  if (tree->weight.num <= 0) defect = "a weight is not positive";
  for (int i = 0; i < tree->n_edges && !defect; i++) {
    const struct copse_schedule_edge *edge = &tree->edges[reduce ? tree->n_edges - 1 - i : i];
    int parent = reduce ? edge->dst : edge->src, child = reduce ? edge->src : edge->dst;
    if (!has[parent] || has[child]) defect = "edges are out of order or no tree";
    has[child] = true;
    if (!defect) defect = judge_path(j, tree, edge);
  }
  free(has);
  mpq_t weight;
  mpq_init(weight);
  copse_test_set_q(weight, tree->weight);
  mpq_t *share = &j->shares[tree->root + (reduce ? n_ranks : 0)];
  mpq_add(*share, *share, weight);
  mpq_clear(weight);
  return defect;
}

static const char *judge_shares(struct judge *j) {
  const struct copse_schedule *s = j->schedule;
  bool reduces = s->collective == COPSE_REDUCE || s->collective == COPSE_REDUCE_SCATTER ||
                 s->collective == COPSE_ALLREDUCE;
  bool broadcasts = s->collective == COPSE_BROADCAST || s->collective == COPSE_ALLGATHER ||
                    s->collective == COPSE_ALLREDUCE;
  bool rooted = s->collective == COPSE_BROADCAST || s->collective == COPSE_REDUCE;
  const char *defect = NULL;
  mpq_t due, sums[2];
  mpq_inits(due, sums[0], sums[1], NULL);
  for (int i = 0; i < 2 * s->n_ranks; i++) {
    bool used = i < s->n_ranks ? broadcasts : reduces;
    mpq_add(sums[i / s->n_ranks], sums[i / s->n_ranks], j->shares[i]);
    if (s->collective == COPSE_ALLREDUCE) continue;
    mpq_set_ui(due, 0, 1);
    if (used && rooted) mpq_set_si(due, i % s->n_ranks == s->root, 1);
    if (used && !rooted) mpq_set_si(due, 1, (unsigned long)s->n_ranks);
    if (!mpq_equal(due, j->shares[i])) defect = "a root's share is wrong";
  }
  if (broadcasts && mpq_cmp_ui(sums[0], 1, 1) != 0) defect = "broadcast shares do not add up";
  if (reduces && mpq_cmp_ui(sums[1], 1, 1) != 0) defect = "reduce shares do not add up";
  for (int r = 0; r < s->n_ranks && broadcasts && reduces; r++)
    if (!mpq_equal(j->shares[r], j->shares[r + s->n_ranks])) defect = "the phases' shares differ";
  mpq_clears(due, sums[0], sums[1], NULL);
  return defect;
}

static void busiest(struct judge *j, mpq_t time) {
  mpq_t q;
  mpq_init(q);
  mpq_set_ui(time, 0, 1);
  for (int i = 0; i < j->topology->n_links; i++) {
    copse_test_set_q(q, j->topology->links[i].bandwidth);
    mpq_div(q, j->loads[i], q);
    if (mpq_cmp(q, time) > 0) mpq_set(time, q);
  }
  mpq_clear(q);
}

/* Adds what a cut proves: (share of the data inside) / bandwidth that leaves it. */
static const char *judge_cut(struct judge *j, const int *cut, int n, bool reversed, mpq_t time) {
  const struct copse_schedule *s = j->schedule;
  bool any = s->collective == COPSE_ALLREDUCE && s->bound.kind == COPSE_BOUND_CUT;
  struct copse_test_graph *graph = copse_test_graph_of_topology(j->topology, s->root, reversed);
  bool *inside = zeroed((size_t)graph->n_nodes, sizeof *inside);
  const char *defect = NULL;
  long weight;
  int missed = 0;
  mpq_t leaving, q;
  mpq_inits(leaving, q, NULL);
  for (int i = 0; i < n && !defect; i++) {
    int node = j->node_of[cut[i]];
    if (node < 0 || inside[node]) defect = "the cut names a node twice or one that is not there";
    if (!defect) inside[node] = true;
  }
  copse_test_cut_leaving(graph, inside, leaving, &weight);
  for (int v = 0; v < graph->n_nodes; v++) missed += graph->terminal[v] && !inside[v];
  if (s->n_ranks > 1 && (weight == 0 || missed == 0)) defect = "the cut separates nothing";
  if (s->n_ranks > 1 && mpq_sgn(leaving) == 0) defect = "nothing leaves the cut";
  if (!defect && s->n_ranks > 1) {
    mpq_set_si(q, any ? 1 : weight, any ? 1 : (unsigned long)total_weight(graph));
    mpq_canonicalize(q);
    mpq_div(q, q, leaving);
    mpq_add(time, time, q);
  }
  mpq_clears(leaving, q, NULL);
  free(inside);
  copse_test_graph_free(graph);
  return defect;
}

/* What a cut of either phase counts on a link: its weight, if the link crosses it. */
static void crossing(struct judge *j, const struct copse_schedule_cut *cut, int src, int dst,
                     mpq_t sum) {
  bool reduce = cut->phase == COPSE_PHASE_REDUCE, from = false, to = false;
  mpq_t weight;
  for (int i = 0; i < cut->n_nodes; i++) {
    if (j->node_of[cut->nodes[i]] == src) from = true;
    if (j->node_of[cut->nodes[i]] == dst) to = true;
  }
  if (reduce ? from || !to : !from || to) return;
  mpq_init(weight);
  copse_test_set_q(weight, cut->weight);
  mpq_add(sum, sum, weight);
  mpq_clear(weight);
}

static const char *judge_weights(struct judge *j) {
  const struct copse_bound *bound = &j->schedule->bound;
  const char *defect = NULL;
  mpq_t around, q;
  mpq_inits(around, q, NULL);
  for (int r = 0; r < j->schedule->n_ranks; r++) {
    mpq_set_ui(around, 0, 1);
    for (int i = 0; i < bound->n_cuts; i++) {
      int ranks = 0, hits = 0;
      for (int v = 0; v < bound->cuts[i].n_nodes; v++) {
        int node = j->node_of[bound->cuts[i].nodes[v]];
        if (node < 0) defect = "a cut names a node that is not there";
        if (node >= 0 && j->topology->nodes[node].rank >= 0) ranks++;
        hits += node == j->topology->rank_nodes[r];
        for (int u = 0; u < v; u++)
          if (bound->cuts[i].nodes[u] == bound->cuts[i].nodes[v]) defect = "a cut repeats a node";
      }
      if (ranks == 0 || ranks == j->schedule->n_ranks) defect = "a cut separates nothing";
      if (bound->cuts[i].weight.num <= 0) defect = "a cut's weight is not positive";
      copse_test_set_q(q, bound->cuts[i].weight);
      if (hits > 0) mpq_add(around, around, q);
    }
    if (mpq_cmp_ui(around, 1, 1) < 0) defect = "the cuts around a rank weigh less than 1";
  }
  mpq_clears(around, q, NULL);
  return defect;
}

/* 1 / sum of bandwidth * max(reduce cuts entered, broadcast cuts left - rise of potential) */
static const char *judge_forests(struct judge *j, mpq_t time) {
  const struct copse_bound *bound = &j->schedule->bound;
  const char *defect = judge_weights(j);
  mpq_t left, entered, q;
  if (defect) return defect;
  mpq_inits(left, entered, q, NULL);
  for (int e = 0; e < j->topology->n_links; e++) {
    const struct copse_link *link = &j->topology->links[e];
    mpq_set_ui(left, 0, 1);
    mpq_set_ui(entered, 0, 1);
    for (int i = 0; i < bound->n_cuts; i++)
      crossing(j, &bound->cuts[i], link->src, link->dst,
               bound->cuts[i].phase == COPSE_PHASE_REDUCE ? entered : left);
    for (int i = 0; i < bound->n_potentials; i++) {
      int node = j->node_of[bound->potentials[i].node];
      if (node < 0 || j->topology->nodes[node].rank >= 0) defect = "a potential is not a relay's";
      copse_test_set_q(q, bound->potentials[i].value);
      if (node == link->src) mpq_add(left, left, q);
      if (node == link->dst) mpq_sub(left, left, q);
    }
    copse_test_set_q(q, link->bandwidth);
    mpq_mul(q, q, mpq_cmp(left, entered) > 0 ? left : entered);
    mpq_add(time, time, q);
  }
  if (mpq_sgn(time) > 0) mpq_inv(time, time);
  mpq_clears(left, entered, q, NULL);
  return defect;
}

static const char *judge_times(struct judge *j) {
  const struct copse_schedule *s = j->schedule;
  bool reversed = s->collective == COPSE_REDUCE || s->collective == COPSE_REDUCE_SCATTER;
  const char *defect = NULL;
  mpq_t time, bound;
  mpq_inits(time, bound, NULL);
  busiest(j, time);
  if (!copse_test_equals_q(time, s->time_per_GB)) defect = "the time is not the busiest link's";
  if (!defect && s->bound.kind == COPSE_BOUND_FORESTS)
    defect = judge_forests(j, bound);
  else if (!defect)
    defect = judge_cut(j, s->bound.cut, s->bound.n_cut, reversed, bound);
  if (!defect && s->bound.kind == COPSE_BOUND_PHASES)
    defect = judge_cut(j, s->bound.reduce_cut, s->bound.n_reduce_cut, true, bound);
  if (!defect && !copse_test_equals_q(bound, s->bound.time_per_GB))
    defect = "the bound is not what its cut proves";
  if (!defect && mpq_cmp(time, bound) < 0) defect = "the time is below the bound";
  mpq_clears(time, bound, NULL);
  return defect;
}

/* One piece of an allreduce in stages, trees [t, end): how often each rank's sum has each input. */
static const char *judge_piece(const struct copse_schedule *s, int t, int end) {
  size_t n = (size_t)s->n_ranks;
  int *sums = zeroed(n * n, sizeof *sums), *before = zeroed(n * n, sizeof *before);
  int *reduced =
      zeroed(n, sizeof *reduced); /* the last stage in which a rank was in a reduce tree */
  const char *defect = NULL;
  for (size_t r = 0; r < n; r++) sums[r * n + r] = 1;
  for (int stage = 1; t < end && !defect; stage++) {
    enum copse_phase phase = s->trees[t].phase;
    bool reduce = phase == COPSE_PHASE_REDUCE;
    if (s->trees[t].stage != stage) defect = "a stage is missing";
    memcpy(before, sums, n * n * sizeof *sums);
    for (; t < end && s->trees[t].stage == stage; t++) {
      size_t root = (size_t)s->trees[t].root;
      if (s->trees[t].phase != phase) defect = "a stage of two phases";
      if (reduce && reduced[root] == stage) defect = "a rank is in two reduce trees";
      if (reduce) reduced[root] = stage;
      for (int e = 0; e < s->trees[t].n_edges; e++) {
        size_t src = (size_t)s->trees[t].edges[e].src, dst = (size_t)s->trees[t].edges[e].dst;
        if (reduce && reduced[src] == stage) defect = "a rank is in two reduce trees";
        if (reduce) reduced[src] = stage;
        for (size_t i = 0; i < n; i++) {
          sums[(reduce ? root : dst) * n + i] += before[(reduce ? src : root) * n + i];
          if (reduce) sums[src * n + i] = 0;
        }
      }
    }
  }
  for (size_t i = 0; i < n * n && !defect; i++)
    if (sums[i] != 1) defect = "an input is missing or there twice";
  free(sums);
  free(before);
  free(reduced);
  return defect;
}

static const char *judge_stages(const struct copse_schedule *s) {
  const char *defect = NULL;
  mpq_t whole, q;
  mpq_inits(whole, q, NULL);
  for (int t = 0, end, piece = 0; t < s->n_trees && !defect; t = end, piece++) {
    if (s->trees[t].piece != piece) defect = "a piece is missing";
    for (end = t; end < s->n_trees && s->trees[end].piece == piece; end++) {
      if (!copse_q_eq(s->trees[end].weight, s->trees[t].weight))
        defect = "weights of a piece differ";
      for (int i = t; i < end; i++)
        if (s->trees[i].stage == s->trees[end].stage && s->trees[i].root >= s->trees[end].root)
          defect = "trees of a stage are out of order";
    }
    copse_test_set_q(q, s->trees[t].weight);
    mpq_add(whole, whole, q);
    if (!defect) defect = judge_piece(s, t, end);
  }
  if (!defect && mpq_cmp_ui(whole, 1, 1) != 0) defect = "the pieces do not add up";
  mpq_clears(whole, q, NULL);
  return defect;
}

static const char *judge_all(struct judge *j) {
  const struct copse_schedule *s = j->schedule;
  const struct copse_topology *topology = j->topology;
  const char *defect = NULL;
  for (int i = 0; i < s->n_nodes; i++) {
    j->node_of[i] = -1;
    for (int v = 0; v < topology->n_nodes; v++)
      if (strcmp(s->nodes[i], topology->nodes[v].id) == 0) j->node_of[i] = v;
  }
  if (s->n_ranks != topology->n_ranks) return "the number of ranks differs";
  for (int r = 0; r < s->n_ranks; r++)
    if (j->node_of[s->rank_nodes[r]] != topology->rank_nodes[r]) return "a rank is another node";
  for (int t = 0; t < s->n_trees && !defect; t++) defect = judge_tree(j, &s->trees[t]);
  bool stages = s->n_trees > 0 && s->trees[0].stage > 0;
  if (!defect) defect = stages ? judge_stages(s) : judge_shares(j);
  if (!defect) defect = judge_times(j);
  return defect;
}

const char *copse_test_schedule_defect(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology) {
  size_t links = (size_t)topology->n_links, shares = 2 * (size_t)schedule->n_ranks;
  struct judge j = {.schedule = schedule, .topology = topology};
  j.node_of = zeroed((size_t)schedule->n_nodes, sizeof(int));
  j.loads = zeroed(links, sizeof(mpq_t));
  j.crossed = zeroed(links, sizeof(bool));
  j.shares = zeroed(shares, sizeof(mpq_t));
  for (size_t i = 0; i < links; i++) mpq_init(j.loads[i]);
  for (size_t i = 0; i < shares; i++) mpq_init(j.shares[i]);
  const char *defect = judge_all(&j);
  for (size_t i = 0; i < links; i++) mpq_clear(j.loads[i]);
  for (size_t i = 0; i < shares; i++) mpq_clear(j.shares[i]);
  free(j.node_of);
  free(j.loads);
  free(j.crossed);
  free(j.shares);
  return defect;
}
