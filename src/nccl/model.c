/*
 * NCCL's tuning model: ncclTopoTuneModel and ncclTopoGetAlgoTime of NVIDIA/nccl
 * src/graph/tuning.cc, 2.30.7. Names of constants are NCCL's.
 */
#include "nccl/model.h"

#include <math.h>

enum { NVLINK, PCI, NET };
enum { VOLTA, AMPERE, HOPPER, BLACKWELL };
#define TREE COPSE_TUNER_TREE
#define RING COPSE_TUNER_RING
#define LL COPSE_TUNER_LL
#define LL128 COPSE_TUNER_LL128
#define SIMPLE COPSE_TUNER_SIMPLE

/* Microseconds: of a call, and of a step; by algorithm (tree, ring) and protocol. */
static const double base_latencies[2][3] = {{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}};
static const double hw_latencies[3][2][3] = {
    [NVLINK] = {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}},
    [PCI] = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}},
    [NET] = {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}},
};
static const double nvls_latency = 25;
static const double nvls_tree_latency = 41.8; /* of a level of the trees over nodes, up and down */

/* GB/s, by generation and by nodes: 1, 2, more. */
static const double ll_max_bws[4][3] = {
    {39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}};
static const double per_ch_max_ring_ll128_bws[4] = {20.0, 20.0, 36.7, 40.0};
static const double per_ch_max_tree_ll128_bws[4][3] = {
    {20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}};
static const double per_ch_max_tree_bws[4][3] = {
    {26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}};
static const double per_ch_max_nvls_tree_bws[4][3] = {
    {0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96.0, 80.0}};
static const double nvls_efficiency[4] = {0, 0, 0.85, 0.74};

/* What trees have of their bandwidth at 64 bytes, 128, ..: protocols' chunks are coarse. */
#define N_CORRECTIONS 23
static const double tree_correction[3][N_CORRECTIONS] = {
    {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7,  .7,  .7,  .6, .5,
     .4,  .4,  .5,  .6,  .7, .8, .9, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7,  .6, .6,
     .6,  .6,  .6,  .6,  .8,  .9, .9, .9, .9, 1.0, 1.0},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};

static int generation_of(int sm) {
  return sm >= 100 ? BLACKWELL : sm >= 90 ? HOPPER : sm >= 80 ? AMPERE : VOLTA;
}

static int nodes_index(const struct copse_nccl_model *m) {
  return m->nodes <= 2 ? m->nodes - 1 : 2;
}

static const struct copse_nccl_graph_search *graph_of(const struct copse_nccl_model *m,
                                                      int algorithm) {
  static const enum copse_nccl_graph_id ids[COPSE_TUNER_N_ALGORITHMS] = {
      [COPSE_TUNER_TREE] = COPSE_NCCL_TREE,
      [COPSE_TUNER_RING] = COPSE_NCCL_RING,
      [COPSE_TUNER_NVLS] = COPSE_NCCL_NVLS,
      [COPSE_TUNER_NVLS_TREE] = COPSE_NCCL_NVLS};
  bool modelled = algorithm == TREE || algorithm == RING || algorithm == COPSE_TUNER_NVLS ||
                  algorithm == COPSE_TUNER_NVLS_TREE;
  return modelled ? copse_nccl_graph(m->graphs, ids[algorithm]) : NULL;
}

static bool is_rooted(int collective) {
  return collective == COPSE_TUNER_BROADCAST || collective == COPSE_TUNER_REDUCE;
}

/* Whether stores of 128 bytes arrive whole, as LL128 needs: by NVLink, and at a NIC below the GPU's
 * switches. */
static bool allows_ll128(const struct copse_nccl_model *m,
                         const struct copse_nccl_graph_search *g) {
  enum copse_nccl_path most = m->sm >= 90 ? COPSE_NCCL_PATH_PXN : COPSE_NCCL_PATH_PXB;
  return m->sm >= 70 && g->type_intra <= COPSE_NCCL_PATH_NVB &&
         (m->nodes == 1 || g->type_inter <= most);
}

static bool has(const struct copse_nccl_model *m, int collective, int algorithm, int protocol) {
  const struct copse_nccl_graph_search *g = graph_of(m, algorithm);
  if (!g || m->ranks < 2) return false;
  if (algorithm == TREE && collective != COPSE_TUNER_ALLREDUCE) return false;
  if (algorithm == COPSE_TUNER_NVLS || algorithm == COPSE_TUNER_NVLS_TREE) {
    bool fits = algorithm == COPSE_TUNER_NVLS ? m->nodes == 1 && !is_rooted(collective)
                                              : m->nodes > 1 && collective == COPSE_TUNER_ALLREDUCE;
    return fits && protocol == SIMPLE && m->sm >= 90 && g->n_channels > 1 && m->ranks > 2;
  }
  return protocol != LL128 || allows_ll128(m, g);
}

/* Returns the GB/s of all channels together. */
static double channels_bw(const struct copse_nccl_model *m, int algorithm) {
  const struct copse_nccl_graph_search *g = graph_of(m, algorithm);
  if (m->links[g->id] > 0) return m->links[g->id];
  return g->n_channels * copse_q_to_double(m->nodes <= 2 ? g->speed_intra : g->speed_inter);
}

static int steps(const struct copse_nccl_model *m, int collective) {
  if (collective == COPSE_TUNER_ALLREDUCE) return 2 * (m->ranks - 1);
  return is_rooted(collective) ? m->ranks : m->ranks - 1;
}

/* ---- bandwidth ------------------------------------------------------------------------------- */

/* Returns what LL has at most: half of its bytes are flags, and the GPU's (on several nodes the
 * CPU's) rate of stores limits it. */
static double ll_max(const struct copse_nccl_model *m) {
  int by = m->nodes == 1 ? generation_of(m->sm) : m->amd ? AMPERE : VOLTA;
  return ll_max_bws[by][nodes_index(m)];
}

static double ring_bw(const struct copse_nccl_model *m, int collective, int protocol) {
  int channels = graph_of(m, RING)->n_channels;
  double bw = channels_bw(m, RING);
  if (protocol == LL) bw = fmin(ll_max(m), bw * 0.5);
  if (protocol == LL128)
    bw = fmin(bw * 0.92, channels * per_ch_max_ring_ll128_bws[generation_of(m->sm)]);
  return bw * m->ranks / steps(m, collective);
}

static double tree_bw(const struct copse_nccl_model *m, int protocol) {
  const struct copse_nccl_graph_search *g = graph_of(m, TREE);
  int generation = generation_of(m->sm), nodes = nodes_index(m);
  double bw = channels_bw(m, TREE);
  bw = fmin(bw * 0.92, g->n_channels * per_ch_max_tree_bws[generation][nodes]);
  if (protocol == LL) bw = fmin(bw / 3.8, ll_max(m));
  if (protocol == LL128)
    bw = fmin(bw * (m->nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
              g->n_channels * per_ch_max_tree_ll128_bws[generation][nodes]);
  if (g->pattern == COPSE_NCCL_PATTERN_TREE) bw *= 0.85;
  return bw * 0.5;
}

/* Returns the GB/s of NVLS, where a head's own data does not go over the switch. */
static double nvls_bw(const struct copse_nccl_model *m, int collective) {
  const struct copse_nccl_graph_search *g = graph_of(m, COPSE_TUNER_NVLS);
  double n = m->ranks, heads = g->n_channels, intra = copse_q_to_double(g->speed_intra);
  double bw = nvls_efficiency[generation_of(m->sm)] * (heads - 1) * intra;
  if (m->links[g->id] > 0) return m->links[g->id] * nvls_efficiency[generation_of(m->sm)];
  if (collective != COPSE_TUNER_ALLREDUCE) return bw * (n - 1) / n;
  return fmin(bw * n / (n - 1), heads * copse_q_to_double(g->speed_inter) * n / (2 * (n - 1)));
}

static double nvls_tree_most(const struct copse_nccl_model *m) {
  double n = m->ranks, heads = graph_of(m, COPSE_TUNER_NVLS_TREE)->n_channels;
  return heads * per_ch_max_nvls_tree_bws[generation_of(m->sm)][nodes_index(m)] / 2 * n / (n - 1);
}

/* Returns the GB/s of heads of several nodes in trees: NVLink, the network, and what a channel has
 * at most. */
static double nvls_tree_bw(const struct copse_nccl_model *m) {
  const struct copse_nccl_graph_search *g = graph_of(m, COPSE_TUNER_NVLS_TREE);
  int generation = generation_of(m->sm);
  double n = m->ranks, heads = g->n_channels, own = n / (n - 1), most = nvls_tree_most(m);
  double inside = (heads - 1) * copse_q_to_double(g->speed_intra);
  double between = heads * copse_q_to_double(g->speed_inter) / (m->nodes <= 2 ? 1 : 2);
  if (m->links[g->id] > 0) return fmin(m->links[g->id] * nvls_efficiency[generation], most);
  return fmin(fmin(inside * nvls_efficiency[generation], between) * own, most);
}

/* Whether channels are the limit on Blackwell: what is predicted climbs then with the size as
 * trees' does; of machines compared it is those with NICs of 800 Gb/s. */
static bool nvls_tree_climbs(const struct copse_nccl_model *m) {
  return m->sm >= 100 && nvls_tree_bw(m) >= nvls_tree_most(m);
}

static int log2_nodes(const struct copse_nccl_model *m) {
  int depth = 0;
  while (m->nodes >> (depth + 1)) depth++;
  return depth;
}

/* ---- latency --------------------------------------------------------------------------------- */

static int link_kind(const struct copse_nccl_graph_search *g) {
  return g->type_intra <= COPSE_NCCL_PATH_NVL ? NVLINK : PCI;
}

static double rooted_ring_latency(const struct copse_nccl_model *m, int collective, int protocol) {
  const struct copse_nccl_graph_search *g = graph_of(m, RING);
  int kind = m->nodes > 1 ? NET : link_kind(g);
  if (g->same_channels) return hw_latencies[kind][RING][protocol];
  return steps(m, collective) * hw_latencies[kind][protocol == SIMPLE ? TREE : RING][protocol];
}

/* Returns the latency of steps between nodes; of several nodes also the others wait for a post to
 * the network. */
static double ring_latency(const struct copse_nccl_model *m, int collective, int protocol) {
  if (is_rooted(collective)) return rooted_ring_latency(m, collective, protocol);
  double intra = hw_latencies[link_kind(graph_of(m, RING))][RING][protocol];
  double inter = hw_latencies[NET][m->ranks > m->nodes ? RING : TREE][protocol];
  double post = (m->nodes == 1 ? 0 : m->amd ? 2 : 1) * (protocol == SIMPLE ? 3 : 1);
  int between = m->nodes == 1                         ? 0
                : collective == COPSE_TUNER_ALLREDUCE ? 2 * (m->nodes - 1)
                                                      : m->nodes - 1;
  inter += (protocol == SIMPLE ? 2 : 1) * copse_q_to_double(graph_of(m, RING)->latency_inter);
  return (steps(m, collective) - between) * fmax(intra, post) + between * inter;
}

static double tree_latency(const struct copse_nccl_model *m, int protocol) {
  const struct copse_nccl_graph_search *g = graph_of(m, TREE);
  double inter = hw_latencies[NET][TREE][protocol] +
                 (protocol == SIMPLE ? 2 : 1) * copse_q_to_double(g->latency_inter);
  return 2 * ((m->ranks / m->nodes - 1) * hw_latencies[link_kind(g)][TREE][protocol] +
              log2_nodes(m) * inter);
}

/* ---- both ------------------------------------------------------------------------------------ */

struct copse_nccl_cost copse_nccl_model_cost(const struct copse_nccl_model *model, int collective,
                                             int algorithm, int protocol) {
  if (!has(model, collective, algorithm, protocol)) return (struct copse_nccl_cost){0, 0};
  if (algorithm == COPSE_TUNER_NVLS)
    return (struct copse_nccl_cost){nvls_latency, nvls_bw(model, collective)};
  if (algorithm == COPSE_TUNER_NVLS_TREE)
    return (struct copse_nccl_cost){nvls_latency + nvls_tree_latency * log2_nodes(model),
                                    nvls_tree_bw(model)};
  bool tree = algorithm == TREE;
  return (struct copse_nccl_cost){
      base_latencies[tree ? TREE : RING][protocol] +
          (tree ? tree_latency(model, protocol) : ring_latency(model, collective, protocol)),
      tree ? tree_bw(model, protocol) : ring_bw(model, collective, protocol)};
}

double copse_nccl_model_us(const struct copse_nccl_model *model, int collective, int algorithm,
                           int protocol, uint64_t bytes) {
  struct copse_nccl_cost cost = copse_nccl_model_cost(model, collective, algorithm, protocol);
  if (cost.GBps <= 0) return INFINITY;
  int size = -1;
  for (uint64_t left = bytes >> 6; left > 0; left >>= 1) size++;
  if (algorithm == TREE && size >= 0 && size < N_CORRECTIONS)
    cost.GBps *= tree_correction[protocol][size];
  if (algorithm == COPSE_TUNER_NVLS_TREE && nvls_tree_climbs(model) && size >= 0 &&
      size <= N_CORRECTIONS)
    cost.GBps *= size == N_CORRECTIONS ? 0.9 : tree_correction[SIMPLE][size];
  /* rings of several nodes climb to their bandwidth slowly */
  if (algorithm == RING && protocol == SIMPLE && model->nodes > 1 &&
      collective == COPSE_TUNER_ALLREDUCE &&
      bytes / (uint64_t)model->channels / (uint64_t)model->ranks >= 64)
    cost.latency_us *= model->sm < 80 ? 1.9 : 1.4;
  return cost.latency_us + (double)bytes / (1000 * cost.GBps);
}

/* ---- choices: the ranges of sizes are halved until both ends of each choose alike. Beyond the
 * largest that is tried bandwidth alone counts, so that the last choice stays. ------------------
 */

#define LARGEST ((uint64_t)1 << 40)

bool copse_nccl_choose(const struct copse_nccl_model *model, int collective, uint64_t bytes,
                       int *algorithm, int *protocol) {
  double least = INFINITY;
  for (int a = 0; a < COPSE_TUNER_N_ALGORITHMS; a++)
    for (int p = 0; p < COPSE_TUNER_N_PROTOCOLS; p++) {
      double us = copse_nccl_model_us(model, collective, a, p, bytes);
      if (us >= least) continue;
      least = us;
      *algorithm = a;
      *protocol = p;
    }
  return isfinite(least);
}

struct chooser {
  const struct copse_nccl_model *model;
  struct copse_tuner_table *table;
  struct copse_tuner_rule rule; /* being extended */
  int collective;
  struct copse_err *err;
};

static copse_status end_rule(struct chooser *c) {
  struct copse_tuner_rule other = c->rule;
  COPSE_DO(copse_tuner_table_add(c->table, &c->rule, c->err));
  if (c->rule.algorithm == COPSE_TUNER_RING && c->rule.protocol != COPSE_TUNER_LL128)
    return COPSE_OK;
  other.algorithm = COPSE_TUNER_RING;
  other.protocol = COPSE_TUNER_SIMPLE;
  return copse_tuner_table_add(c->table, &other, c->err);
}

static copse_status take(struct chooser *c, uint64_t from, uint64_t to, int algorithm,
                         int protocol) {
  if (from > 0 && c->rule.algorithm == algorithm && c->rule.protocol == protocol) {
    c->rule.max_bytes = to;
    return COPSE_OK;
  }
  if (from > 0) COPSE_DO(end_rule(c));
  c->rule = (struct copse_tuner_rule){.collective = c->collective,
                                      .algorithm = algorithm,
                                      .protocol = protocol,
                                      .min_bytes = from,
                                      .max_bytes = to,
                                      .nodes = c->model->nodes,
                                      .ranks = c->model->ranks,
                                      .pipe_ops = COPSE_TUNER_ANY,
                                      .registered = COPSE_TUNER_ANY};
  return COPSE_OK;
}

/* Splits sizes from..to, within a factor of two, where the model's curves have no steps. */
static copse_status split(struct chooser *c, uint64_t from, uint64_t to) {
  int algorithm[2] = {0}, protocol[2] = {0};
  (void)copse_nccl_choose(c->model, c->collective, from, &algorithm[0], &protocol[0]);
  (void)copse_nccl_choose(c->model, c->collective, to, &algorithm[1], &protocol[1]);
  if (from == to || (algorithm[0] == algorithm[1] && protocol[0] == protocol[1]))
    return take(c, from, to, algorithm[0], protocol[0]);
  COPSE_DO(split(c, from, from + (to - from) / 2));
  return split(c, from + (to - from) / 2 + 1, to);
}

copse_status copse_nccl_choose_rules(const struct copse_nccl_model *model, int collective,
                                     struct copse_tuner_table *table, struct copse_err *err) {
  struct chooser c = {.model = model, .table = table, .collective = collective, .err = err};
  int algorithm, protocol;
  if (!copse_nccl_choose(model, collective, 0, &algorithm, &protocol)) return COPSE_OK;
  COPSE_DO(split(&c, 0, 63));
  for (uint64_t from = 64; from < LARGEST; from *= 2) COPSE_DO(split(&c, from, 2 * from - 1));
  c.rule.max_bytes = UINT64_MAX;
  return end_rule(&c);
}
