/*
 * The search for the schedule of one message size. Forests are made (propose.h), put in order and
 * cut in several ways, mixed, and improved by exchange (exchange.h); the simulator times each as
 * the plan that it would be, and the fastest is handed over.
 *
 *   proposals --> orders, parts, chunks --> exchange, round by round --> the best
 * Source of the orders: Hu, Parallel sequencing and assembly line problems, 1961.
 */
#include "predict/sizes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "predict/baseline.h"
#include "predict/predict.h"
#include "predict/exchange.h"
#include "predict/exchange_paths.h"
#include "predict/policy.h"
#include "predict/propose.h"
#include "schedule/chunks.h"
#include "schedule/loads.h"

/* One way to run: trees (in the arena of `of`) or flows, and the number of chunks. */
struct variant {
  struct copse_schedule *of;
  const struct copse_schedule_tree *trees;
  int n_trees;
  const struct copse_schedule_flow *flows; /* as many as `of` has */
  int chunks;                              /* 0: as by default */
  int fifo;                                /* as in a schedule's objective */
  bool far_first;
  double grown; /* > 0: exchange begins with other trees, of the same roots and shares: the work */
  double us;
  int hops; /* copse_proposal_hops of what it would be */
  char name[COPSE_PROPOSAL_NAME];
};

struct search {
  const struct copse_topology *topology;
  const struct copse_size_question *question;
  struct copse_predict_options predict;
  struct copse_routes routes;
  struct copse_q alpha_us;
  struct copse_schedule **bases; /* [n_bases] verified */
  size_t n_bases, bases_capacity;
  struct variant best;
  struct variant (*by_shape)[TREE_STEPS]; /* [MOST_HEIGHT + 1] the fastest of each height and number
                                             of trees, in powers of two; of == NULL: none */
  double first_us, least_latency_us; /* of a link */
  /* done, and to stop at: not by the clock, so that all machines find the same */
  double work, most_work;
  double bound_us; /* no schedule is faster; 0: none is known */
  double trees_us; /* the best of trees that are no stages */
  struct variant starts[MOST_STARTS]; /* for exchanges, but for the best */
  int n_starts, n_tried;
  struct copse_symmetry symmetry;
  struct copse_arena scratch;
  struct copse_err *err;
};

/* Whether there is reason to look for a better one; and time. */
static bool has_reason(const struct search *s) { return s->best.us > s->bound_us * (1 + ENOUGH); }
static bool has_time(const struct search *s) { return has_reason(s) && s->work < s->most_work; }

/* Whether a variant has its turn: what is cheap and may be the best while there is reason; not
 * where what is fastest came first, and exchange has more to gain. */
static bool has_turn(const struct search *s, const struct variant *v) {
  return copse_schedule_doubles(v->of) && !s->question->from ? has_reason(s) : has_time(s);
}

/* ---- chunks --------------------------------------------------------------------------------- */

static double largest_transfer(const struct variant *v) {
  double largest = 0;
  for (int t = 0; t < v->n_trees; t++)
    largest = fmax(largest, copse_q_to_double(v->trees[t].weight));
  for (int f = 0; f < v->of->n_flows; f++)
    for (int p = 0; p < v->flows[f].n_paths; p++)
      largest = fmax(largest, copse_q_to_double(v->flows[f].paths[p].weight));
  return largest;
}

/* Sets the schedule to what it would be. */
static void set_objective(const struct search *s, const struct variant *v, int chunks, int fifo) {
  struct copse_schedule *of = v->of;
  of->trees = v->trees;
  of->n_trees = v->n_trees;
  of->flows = v->flows;
  of->objective.bytes = chunks > 0 ? (int64_t)s->question->bytes : 0;
  of->objective.chunks = chunks;
  of->objective.fifo = chunks > 0 ? fifo : 0;
  of->objective.alpha_us = s->alpha_us;
  of->objective.alpha_occupies = s->predict.sim.alpha_occupies;
  of->objective.far_first = chunks > 0 && v->far_first;
}

/* Times a variant in so many chunks; 0: as plans are cut by default. *us: INFINITY where that takes
 * more than `reach` times the variant's best so far. */
static copse_status time_in_chunks(struct search *s, const struct copse_prediction *prediction,
                                   struct variant *v, int chunks, int fifo, double reach,
                                   double *us) {
  struct copse_sim_options options = prediction->sim;
  struct copse_sim_question question = {.dag = &prediction->dag,
                                        .options = &options,
                                        .unit_bytes = s->question->bytes,
                                        .most_us = v->us < INFINITY ? v->us * reach : 0};
  set_objective(s, v, chunks, fifo);
  if (chunks > 0) copse_sim_options_of_schedule(v->of, &options);
  COPSE_DO(copse_simulate_all(s->topology, &question, 1, s->err));
  s->n_tried++;
  s->work += STEPS_OF_PLAN(prediction->dag.n_ints) * (chunks > 0 ? chunks : 1);
  *us = question.result.us;
  if (chunks == 0) s->first_us = *us;
  if (*us >= v->us) return COPSE_OK;
  v->us = *us, v->chunks = chunks, v->fifo = fifo;
  return COPSE_OK;
}

/* Tries few slots: with many slots trees that run ahead fill the queues of links that other trees
 * have to cross. Where few slots gain something they are tried in more chunks too. */
static copse_status try_few_slots(struct search *s, const struct copse_prediction *prediction,
                                  struct variant *v, int most, double end) {
  double us = v->us;
  for (int c = v->chunks; c > COPSE_FIFO && c <= most && us <= v->us; c *= 2) {
    if (!has_time(s) || s->work >= end) break;
    COPSE_DO(time_in_chunks(s, prediction, v, c, COPSE_FIFO, 1, &us));
  }
  return COPSE_OK;
}

/* Returns its time; another order than that of trees must be worth it, and counts as slower. */
static double cost(const struct variant *v) { return v->us * (v->far_first ? 1 + FAR_GAIN : 1); }

static double score(const struct variant *v) {
  return cost(v) * (1 + DOUBLING_GAIN * log2(v->n_trees + 1));
}

/* Keeps a variant while the schedule is its own, see set_objective. */
static void keep(struct search *s, const struct variant *v) {
  int step = 0;
  while (step < TREE_STEPS - 1 && v->n_trees >> step > 1) step++;
  struct variant *like = &s->by_shape[v->hops < MOST_HEIGHT ? v->hops : MOST_HEIGHT][step];
  if (!like->of || cost(v) < cost(like)) *like = *v;
  if (score(v) < score(&s->best)) s->best = *v;
  if (!copse_schedule_doubles(v->of) && v->us < s->trees_us) s->trees_us = v->us;
}

/* A schedule while it stands for variants of it. */
struct lent {
  struct copse_schedule *schedule;
  const struct copse_schedule_tree *trees;
  const struct copse_schedule_flow *flows;
  int n_trees;
};

static void give_back(struct lent *it) {
  it->schedule->trees = it->trees;
  it->schedule->n_trees = it->n_trees;
  it->schedule->flows = it->flows;
}

static copse_status predict(struct search *s, const struct variant *v, int chunks,
                            struct copse_prediction *out) {
  copse_prediction_free(out);
  set_objective(s, v, chunks, 0);
  return copse_predict_schedule(s->topology, v->of, &s->predict, out, s->err);
}

/* Doubles the number of chunks while that may help, then looks beside the best. More chunks take
 * less latency and more messages: once they cost more than they bring, they go on doing so. */
static copse_status try_chunks(struct search *s, const struct copse_prediction *prediction,
                               struct variant *v, double end) {
  int64_t room = MAX_STEPS / (int64_t)(prediction->dag.n_ints + 1);
  double largest = largest_transfer(v) * s->question->bytes;
  int most = (int)fmax(1, fmin(fmin(MOST_CHUNKS, largest / COPSE_LEAST_CHUNK_BYTES), (double)room));
  double us;
  for (int c = 1; c <= most; c *= 2) {
    COPSE_DO(time_in_chunks(s, prediction, v, c, 0, 1 + CHUNKS_WORSE, &us));
    if (us > v->us * (1 + CHUNKS_WORSE) || c > 8 * (v->chunks + 1)) break;
    if (!has_turn(s, v) || s->work > end) break;
  }
  int around = v->chunks;
  if (v->us < FEW_SLOTS_REACH * s->best.us) COPSE_DO(try_few_slots(s, prediction, v, most, end));
  if (around == 0 || v->fifo > 0 || v->us >= BESIDE_REACH * s->best.us) return COPSE_OK;
  if (!has_turn(s, v) || s->work >= end) return COPSE_OK;
  if (around % 4 == 0) COPSE_DO(time_in_chunks(s, prediction, v, around * 3 / 4, 0, 1, &us));
  if (around * 3 / 2 <= most && around % 2 == 0)
    COPSE_DO(time_in_chunks(s, prediction, v, around * 3 / 2, 0, 1, &us));
  if (around == 1 && most >= 3) COPSE_DO(time_in_chunks(s, prediction, v, 3, 0, 1, &us));
  return COPSE_OK;
}

/* Tells people who look on. */
static void tell(const struct search *s, const struct variant *v) {
  const struct copse_progress *progress = s->question->solve->progress;
  char text[COPSE_PROPOSAL_NAME + 120];
  if (!progress || !progress->tried) return;
  snprintf(text, sizeof text, "%s: %d trees, %d chunks, %.6g us at %.0f bytes%s", v->name,
           v->n_trees, v->chunks, v->us, s->question->bytes,
           v->us < s->best.us ? ", the fastest so far" : "");
  progress->tried(progress->ctx, text);
}

/* Tries numbers of chunks, the first variant also as it is without an objective, and takes the
 * variant if it is the fastest so far. */
static copse_status consider(struct search *s, struct variant *v) {
  const struct copse_schedule *of = v->of;
  COPSE_AT_END(give_back) struct lent lent = {v->of, of->trees, of->flows, of->n_trees};
  COPSE_AT_END(copse_prediction_free) struct copse_prediction prediction = {0};
  double end = s->work + s->question->work * FOREST_PART;
  v->us = INFINITY, v->chunks = 0;
  COPSE_DO(predict(s, v, s->n_tried > 0, &prediction));
  v->hops = copse_proposal_hops(v->of);
  s->work += STEPS_OF_LOWERING * (double)prediction.dag.n_transfers;
  copse_progress_report(s->question->solve->progress, "search", (int64_t)s->work,
                        (int64_t)s->question->work);
  if (s->n_tried == 0) {
    double us;
    COPSE_DO(time_in_chunks(s, &prediction, v, 0, 0, 1, &us));
    keep(s, v);
    COPSE_DO(predict(s, v, 1, &prediction));
  }
  COPSE_DO(try_chunks(s, &prediction, v, end));
  tell(s, v);
  keep(s, v);
  return COPSE_OK;
}

/* ---- orders --------------------------------------------------------------------------------- */

struct placed {
  const struct copse_schedule_tree *tree;
  double reach; /* latency from the root to the farthest rank */
  int copy, number;
};

COPSE_ORDER(far_first, struct placed, COPSE_DOWN(reach) ?: COPSE_UP(copy) ?: COPSE_UP(number))

struct reach {
  double us;
  int edge, turn; /* turn: of the same reach, parents first */
};

COPSE_ORDER(by_reach, struct reach, COPSE_DOWN(us) ?: COPSE_UP(turn))

static double path_latency(const struct search *s, const int *nodes, int n) {
  double us = 0;
  for (int i = 0; i + 1 < n; i++) {
    int link = copse_topology_find_link(s->topology, nodes[i], nodes[i + 1]);
    us += copse_q_to_double(s->topology->links[link].latency);
    if (s->topology->nodes[nodes[i + 1]].rank >= 0) us += s->predict.sim.alpha_us;
  }
  return us;
}

/*
 * Sorts a tree's edges into an order in which those with the most latency beyond come first. A
 * broadcast's parents still come before their children: beyond the parent there is more.
 */
static copse_status sort_edges(struct search *s, struct copse_schedule *of,
                               const struct copse_schedule_tree *from,
                               struct copse_schedule_tree *to, double *reach) {
  int n = from->n_edges;
  bool reduce = from->phase == COPSE_PHASE_REDUCE;
  struct copse_schedule_edge *edges;
  struct reach *list;
  double *beyond; /* [n_ranks] latency from here to the farthest below */
  COPSE_DO(COPSE_ARRAY(&of->arena, (size_t)n + 1, edges, s->err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)n + 1, list, s->err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)n + 1, beyond, s->err));
  for (int i = 0; i < n; i++) { /* children before their parents */
    int e = reduce ? i : n - 1 - i;
    const struct copse_schedule_edge *edge = &from->edges[e];
    int child = reduce ? edge->src : edge->dst, parent = reduce ? edge->dst : edge->src;
    list[e] = (struct reach){beyond[child] + path_latency(s, edge->path, edge->n_path), e,
                             reduce ? -e : e};
    if (list[e].us > beyond[parent]) beyond[parent] = list[e].us;
  }
  *reach = beyond[from->root];
  COPSE_SORT(list, n, by_reach);
  *to = *from;
  to->edges = edges;
  for (int i = 0; i < n; i++) edges[i] = from->edges[list[i].edge];
  for (int i = 0; i < n && reduce; i++) edges[i] = from->edges[list[n - 1 - i].edge];
  return COPSE_OK;
}

/* Cuts every tree into `copies` equal parts, those of the farthest reach first. */
static copse_status far_trees_first(struct search *s, const struct variant *from, int copies,
                                    struct variant *to) {
  struct copse_schedule *of = from->of;
  size_t n = (size_t)from->n_trees, all = n * (size_t)copies;
  struct copse_schedule_tree *sorted, *trees;
  struct placed *list;
  *to = *from;
  COPSE_DO(COPSE_ARRAY(&s->scratch, n, sorted, s->err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, all, list, s->err));
  COPSE_DO(COPSE_ARRAY(&of->arena, all, trees, s->err));
  for (size_t t = 0; t < n; t++) {
    double reach;
    COPSE_DO(sort_edges(s, of, &from->trees[t], &sorted[t], &reach));
    COPSE_DO(copse_q_div(sorted[t].weight, (struct copse_q){copies, 1}, &sorted[t].weight, s->err));
    for (int c = 0; c < copies; c++)
      list[t * (size_t)copies + (size_t)c] = (struct placed){&sorted[t], reach, c, (int)t};
  }
  COPSE_SORT(list, all, far_first);
  for (size_t i = 0; i < all; i++) trees[i] = *list[i].tree;
  to->trees = trees;
  to->n_trees = (int)all;
  copse_proposal_name_add(to->name, sizeof to->name, "far first", copies);
  return COPSE_OK;
}

struct placed_flow {
  struct copse_schedule_flow flow;
  double reach;
  int distance; /* from sender to receiver, by number */
};

COPSE_ORDER(by_distance, struct placed_flow, COPSE_UP(distance) ?: COPSE_UP(flow.src))

COPSE_ORDER(far_flows_first, struct placed_flow, COPSE_DOWN(reach) ?: by_distance(a, b))

/* Cuts every path into so many equal parts, one after the other. */
static copse_status cut_flow(struct search *s, struct copse_arena *arena, int copies,
                             struct copse_schedule_flow *flow) {
  struct copse_schedule_path *paths;
  const struct copse_schedule_path *from = flow->paths;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)flow->n_paths * (size_t)copies, paths, s->err));
  for (int p = 0; p < flow->n_paths * copies; p++) {
    paths[p] = from[p / copies];
    COPSE_DO(copse_q_div(paths[p].weight, (struct copse_q){copies, 1}, &paths[p].weight, s->err));
  }
  flow->paths = paths;
  flow->n_paths *= copies;
  return COPSE_OK;
}

/* Considers flows in another order, and in several parts: from one distance to the next, so that
 * not all ranks send to the same one, or flows with farther to go first. */
static copse_status consider_flows(struct search *s, struct variant *v, bool far, int copies) {
  struct copse_schedule *of = v->of;
  struct copse_schedule_flow *flows;
  struct placed_flow *list;
  size_t n = (size_t)of->n_flows;
  struct variant sorted = *v;
  COPSE_DO(COPSE_ARRAY(&s->scratch, n, list, s->err));
  COPSE_DO(COPSE_ARRAY(&of->arena, n, flows, s->err));
  for (size_t i = 0; i < n; i++) {
    const struct copse_schedule_flow *f = &of->flows[i];
    list[i] = (struct placed_flow){*f, 0, (f->dst - f->src + of->n_ranks) % of->n_ranks};
    for (int p = 0; p < f->n_paths; p++)
      list[i].reach = fmax(list[i].reach, path_latency(s, f->paths[p].nodes, f->paths[p].n_nodes));
  }
  COPSE_SORT(list, n, far ? far_flows_first : by_distance);
  for (size_t i = 0; i < n; i++) {
    flows[i] = list[i].flow;
    COPSE_DO(cut_flow(s, &of->arena, copies, &flows[i]));
  }
  sorted.flows = flows;
  copse_proposal_name_add(sorted.name, sizeof sorted.name, far ? "far first" : "", copies);
  return consider(s, &sorted);
}

/* Considers a forest in several orders and cuts. */
static copse_status consider_all(struct search *s, struct variant *v) {
  double end = s->work + s->question->work * FOREST_PART;
  if (v->of->collective == COPSE_ALLTOALL) {
    COPSE_DO(consider_flows(s, v, false, 1));
    for (int copies = 1; copies <= MOST_COPIES && has_time(s) && s->work < end; copies *= 2)
      COPSE_DO(consider_flows(s, v, true, copies));
    return COPSE_OK;
  }
  COPSE_DO(consider(s, v));
  if (copse_schedule_doubles(v->of)) return COPSE_OK;
  for (int copies = 1; copies <= MOST_COPIES; copies *= 2) {
    struct variant sorted;
    if (!has_time(s) || s->work > end) break;
    if ((int64_t)v->n_trees * copies * (s->topology->n_ranks - 1) > MAX_STEPS / 16) break;
    COPSE_DO(far_trees_first(s, v, copies, &sorted));
    COPSE_DO(consider(s, &sorted));
    if (sorted.us > COPIES_REACH * s->best.us) break;
  }
  return COPSE_OK;
}

/* ---- forests -------------------------------------------------------------------------------- */

/* Whether exchange begins with it: the optimum, the one of the fewest trees, the flattest. */
static bool is_start(const struct search *s, const char *name) {
  return s->n_bases == 0 || strcmp(name, "k=1") == 0 || strcmp(name, "direct") == 0;
}

/* Returns what so many hops take at least. */
static double least_hops_us(const struct search *s, int hops) {
  return hops * (s->predict.sim.alpha_us + s->least_latency_us);
}

static double least_us(const struct search *s, const struct copse_schedule *of) {
  return fmax(copse_q_to_double(of->time_per_GB) * s->question->bytes * 1e-3,
              least_hops_us(s, copse_proposal_hops(of)));
}

/* Whether rings may be what is chosen: they have the most hops that there are, see choose(). */
static bool wants_rings(const struct search *s) {
  int phases = s->question->solve->collective == COPSE_ALLREDUCE ? 2 : 1;
  if (least_hops_us(s, phases * (s->topology->n_ranks - 1)) >= s->best.us) return false;
  return s->predict.sim.alpha_us == 0 || s->best.us > s->bound_us * (1 + MODEL_ERROR);
}

/* Whether to make it: what is cheap and may be the best while there is reason, the rest while there
 * is time. */
static bool wants(void *context, enum copse_proposal_kind kind, const char *name) {
  (void)kind;
  const struct search *s = context;
  if (strcmp(name, copse_proposal_name(COPSE_BASELINE_RINGS)) == 0 && !wants_rings(s)) return false;
  if (!strncmp(name, "scatter,", 8) && s->best.us < s->bound_us * (1 + MODEL_ERROR)) return false;
  if (strcmp(name, "equal shares") == 0) return true;
  bool is_cheap = is_start(s, name) || !strncmp(name, "stages", 6) || !strcmp(name, "hosts");
  return is_cheap ? has_reason(s) : has_time(s);
}

/* Whether the same trees were offered before, in the same order: under another name. */
static bool is_known(const struct search *s, const struct copse_schedule *schedule) {
  for (size_t i = 0; i < s->n_bases; i++)
    if (copse_schedule_same_trees(s->bases[i], schedule)) return true;
  return false;
}

static copse_status take(void *context, struct copse_schedule *schedule, const char *name,
                         struct copse_err *err) {
  struct search *s = context;
  struct variant v = {schedule, schedule->trees, schedule->n_trees, .flows = schedule->flows};
  copse_status status = COPSE_GROW(s->bases, s->bases_capacity, s->n_bases + 1, err);
  if (status != COPSE_OK) {
    copse_schedule_free(schedule);
    return status;
  }
  if (s->n_bases == 0) { /* an alltoall's has the demand, and lengths */
    const struct copse_bounds_question bounds = {schedule->collective, schedule->root, schedule,
                                                 s->predict.sim.alpha_us};
    status = copse_bounds_predict(s->topology, &bounds, &s->question->bytes, 1, &s->bound_us, err);
    if (status != COPSE_OK) {
      copse_schedule_free(schedule);
      return status;
    }
  }
  snprintf(v.name, sizeof v.name, "%s", name);
  if (s->n_starts < MOST_STARTS && is_start(s, name)) s->starts[s->n_starts++] = v;
  bool known = is_known(s, schedule);
  s->bases[s->n_bases++] = schedule;
  return !known && least_us(s, schedule) < s->best.us ? consider_all(s, &v) : COPSE_OK;
}

/* ---- exchange ------------------------------------------------------------------------------- */

/* Improves the variant's forest for so much work, as a schedule of its own. */
static copse_status exchange(struct search *s, struct variant *from, int pieces, int most,
                             double work, int seed, bool fold) {
  const struct copse_solve_options *o = s->question->solve;
  struct copse_exchange x = {.topology = s->topology,
                             .routes = s->predict.routes,
                             .symmetry = o->root < 0 && !o->no_symmetry ? &s->symmetry : NULL,
                             .root = o->root,
                             .trees = from->trees,
                             .n_trees = from->n_trees,
                             .bytes = s->question->bytes,
                             .alpha_us = s->predict.sim.alpha_us,
                             .alpha_occupies = s->predict.sim.alpha_occupies,
                             .far_first = from->far_first,
                             .grow = from->grown,
                             .enough_us = s->bound_us * (1 + ENOUGH),
                             .beat_us = s->best.us,
                             .message_us = s->predict.sim.message_us,
                             .pieces = pieces,
                             .fold = fold && !s->question->from, /* for plans fewer trees */
                             .most_transfers = most,
                             .counts_more = !s->question->from && o->root >= 0,
                             .work = work,
                             .seed = (uint64_t)seed + 1};
  struct variant v = *from;
  double us = 0;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status =
      copse_exchange_edges(&x, &from->of->arena, &v.trees, &v.n_trees, &us, &s->work, &why);
  if (status == COPSE_UNSUPPORTED && x.symmetry) { /* shares are not alike */
    x.symmetry = NULL;
    why = (struct copse_err)COPSE_ERR_INIT;
    status = copse_exchange_edges(&x, &from->of->arena, &v.trees, &v.n_trees, &us, &s->work, &why);
  }
  if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW || us == INFINITY) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(s->err, status, "%s", why.text);
  v.grown = 0;
  if (work > 0) copse_proposal_name_add(v.name, sizeof v.name, "exchanged", 1);
  COPSE_DO(consider(s, &v));
  if (v.us < from->us || from->chunks == 0) *from = v;
  return COPSE_OK;
}

/* Mixes a part of the message by one forest with the rest by another: where one is high and carries
 * much, the other flat, the high one goes first. Finds the fastest mixture, us infinite if there is
 * none. */
static copse_status mix(struct search *s, const struct variant *one, const struct variant *other,
                        struct variant *best) {
  best->us = INFINITY;
  for (int eighths = 1; eighths < 8 && has_time(s); eighths++) {
    struct variant mixed = *one, sorted;
    struct copse_schedule_tree *trees;
    mixed.n_trees += other->n_trees;
    COPSE_DO(COPSE_ARRAY(&one->of->arena, (size_t)mixed.n_trees, trees, s->err));
    for (int t = 0; t < mixed.n_trees; t++) {
      const bool first = t < one->n_trees;
      COPSE_DO(copse_tree_copy(first ? &one->trees[t] : &other->trees[t - one->n_trees],
                               (struct copse_q){first ? eighths : 8 - eighths, 8}, &one->of->arena,
                               &trees[t], s->err));
    }
    mixed.trees = trees;
    copse_proposal_name_print(mixed.name, sizeof mixed.name, "%.*s and %.*s",
                              (int)strcspn(one->name, ","), one->name,
                              (int)strcspn(other->name, ","), other->name);
    for (int c = 1; c <= MIXED_COPIES && mixed.n_trees * c <= MOST_MIXED; c *= 4) {
      COPSE_DO(far_trees_first(s, &mixed, c, &sorted));
      COPSE_DO(consider(s, &sorted));
      if (sorted.us < best->us) *best = sorted;
    }
  }
  return COPSE_OK;
}

/* Adds mixtures of the first start with the others; for plans not with what takes far longer. */
static copse_status add_mixtures(struct search *s, struct variant *starts, int *n) {
  int n_starts = *n;
  for (int i = 1; i < n_starts && s->question->solve->collective != COPSE_ALLREDUCE; i++) {
    double most = s->most_work;
    if (s->question->from && least_us(s, starts[i].of) > s->best.us * EXCHANGE_REACH) continue;
    s->most_work = s->work + (most - s->work) * FOREST_PART;
    COPSE_DO(mix(s, &starts[0], &starts[i], &starts[*n]));
    s->most_work = most;
    if (starts[*n].us < MIXTURE_REACH * s->best.us) ++*n;
  }
  return COPSE_OK;
}

/* Whether a round goes by what has the most hops to go: some do where that may be worth it. */
static bool goes_far_first(const struct search *s, int round) {
  return s->topology->n_ranks <= MOST_FAR_RANKS && round % 2 == 1 &&
         s->best.us > s->bound_us * (1 + FAR_GAIN);
}

/* Returns the pieces of a share that a round begins with; trees that grow begin with fewer. */
static int pieces_at(const struct search *s, int round, bool grown) {
  if (!s->predict.sim.alpha_occupies) return (grown ? 1 : 2) << round % 3;
  return copse_pieces_at_turn(s->topology, s->question->solve->root, s->question->bytes,
                              s->predict.sim.alpha_us, s->best.us, round);
}

/* Exchanges from all starts for a while each, then for as long from the one that came out best.
 * Drops the starts that are far behind from further rounds. */
static copse_status exchange_round(struct search *s, struct variant *starts, int *n, int round) {
  double left = s->most_work - s->work, work = left * STARTS_PART / *n;
  int most = s->question->from ? MOST_TRANSFERS / 4 : MOST_TRANSFERS, kept = 0;
  struct variant best = {.us = INFINITY};
  for (int i = 0; i < *n && has_time(s); i++) {
    struct variant v = starts[i];
    v.us = INFINITY;
    v.far_first = goes_far_first(s, round);
    if (v.grown > 0) v.grown = work / 2;
    COPSE_DO(exchange(s, &v, pieces_at(s, round, v.grown > 0), most, work, round, true));
    if (v.us < best.us) best = v;
    if (v.us < s->best.us * EXCHANGE_REACH) starts[kept++] = starts[i];
  }
  if (best.us == INFINITY || !has_time(s)) return COPSE_OK;
  *n = kept;
  return exchange(s, &best, 1, MOST_TRANSFERS, (s->most_work - s->work) / 2, round, round % 2 == 0);
}

/* Lists the starts and, of the roots and shares of the one of fewest trees, trees that grow: first
 * those as they come, which mixtures have to beat. */
static copse_status list_starts(struct search *s, struct variant *starts, int *n) {
  static const int of_both[GROWN_ROUNDS] = GROWN_OF_BOTH;
  struct variant few;
  *n = !copse_schedule_doubles(s->best.of);
  starts[0] = s->best, starts[0].trees = s->best.of->trees; /* before they were cut */
  starts[0].n_trees = s->best.of->n_trees;
  for (int i = 0; i < s->n_starts; i++)
    if (s->starts[i].of != s->best.of) starts[(*n)++] = s->starts[i];
  few = starts[0];
  for (int i = 1; i < *n; i++)
    if (starts[i].n_trees < few.n_trees) few = starts[i];
  snprintf(few.name, sizeof few.name, "grown");
  double end = s->work + s->most_work * GROWN_PART;
  for (int round = 0; round < GROWN_ROUNDS && s->work < end && has_time(s); round++) {
    struct variant v = few;
    v.us = INFINITY;
    v.grown = few.grown = (end - s->work) / (GROWN_ROUNDS - round);
    bool both = !s->predict.sim.alpha_occupies && v.of->collective == COPSE_ALLREDUCE;
    int pieces = both ? of_both[round] : pieces_at(s, round, true);
    COPSE_DO(exchange(s, &v, pieces, MOST_TRANSFERS, 0, round, true));
  }
  COPSE_DO(add_mixtures(s, starts, n));
  starts[(*n)++] = few;
  return COPSE_OK;
}

/* Exchanges from the fastest forest, and others that may have more to gain; round by round with
 * other moves, and in the end once more from what was best, until the work is done or nothing comes
 * of it. */
static copse_status exchange_best(struct search *s) {
  struct variant starts[2 * MOST_STARTS + 2];
  int n, most_vain = VAIN_ROUNDS + (s->topology->n_ranks <= MOST_FAR_RANKS);
  COPSE_DO(list_starts(s, starts, &n));
  for (int round = 0, vain = 0; round < MOST_ROUNDS && vain < most_vain && has_time(s); round++) {
    double before = s->best.us;
    COPSE_DO(exchange_round(s, starts, &n, round));
    struct variant best = s->best;
    if (round % 2 == 1 && has_time(s) && !copse_schedule_doubles(best.of))
      COPSE_DO(exchange(s, &best, 1, MOST_TRANSFERS, (s->most_work - s->work) / 2, round, false));
    vain = s->best.us < before ? 0 : vain + 1;
  }
  return COPSE_OK;
}

/* Tries the best as it is, but that a link serves first what has the most hops to go. */
static copse_status try_far_first(struct search *s) {
  struct variant v = s->best;
  if (v.n_trees == 0 || v.chunks == 0 || v.far_first || copse_schedule_doubles(v.of) ||
      s->best.us <= s->bound_us * (1 + FAR_GAIN))
    return COPSE_OK;
  v.far_first = true;
  return consider(s, &v);
}

/* Exchanges paths of an alltoall: from the best, in ever more pieces, each for as long; every other
 * time from paths of its own. */
static copse_status exchange_paths(struct search *s) {
  double part = (s->question->work - s->work) / PATH_SEARCHES;
  for (int pieces = 1, seed = 1; seed <= PATH_SEARCHES && has_time(s); seed++) {
    struct variant v = s->best;
    const struct copse_exchange_paths x = {.topology = s->topology,
                                           .routes = s->predict.routes,
                                           .flows = v.flows,
                                           .n_flows = v.of->n_flows,
                                           .bytes = s->question->bytes,
                                           .alpha_us = s->predict.sim.alpha_us,
                                           .alpha_occupies = s->predict.sim.alpha_occupies,
                                           .by_loads = seed % 2 == 0,
                                           .pieces = pieces,
                                           .enough_us = s->bound_us * (1 + ENOUGH),
                                           .seed = (uint64_t)seed,
                                           .work = part};
    COPSE_DO(copse_exchange_flows(&x, &v.of->arena, &v.flows, &s->work, s->err));
    copse_proposal_name_add(v.name, sizeof v.name, "exchanged", 1);
    COPSE_DO(consider(s, &v));
    if (x.by_loads) pieces = pieces < MOST_PIECES ? 2 * pieces : 4;
  }
  return COPSE_OK;
}

/* ---- all together --------------------------------------------------------------------------- */

static bool exchanges(const struct search *s) {
  int n = s->topology->n_ranks;
  if (s->question->solve->collective == COPSE_ALLTOALL)
    return n > 2 && n <= MOST_PATH_RANKS && s->predict.routes && !s->question->solve->no_forward;
  return n > 2 && n <= MOST_EXCHANGED && s->trees_us < s->best.us * EXCHANGE_REACH;
}

/* Returns the first of a row that is as fast; NULL: none is. */
static const struct variant *first_within(const struct variant *row, double us) {
  for (int i = 0; i < TREE_STEPS; i++)
    if (row[i].of && row[i].us <= us) return &row[i];
  return NULL;
}

/* Chooses if hops cost: more hops gain over MODEL_ERROR, more trees over the tolerance, both over
 * the larger one. *least: the least time in as few hops. */
static const struct variant *choose(const struct search *s, double *least) {
  const struct copse_q tolerance = s->question->tolerance;
  const double part = tolerance.num > 0 ? copse_q_to_double(tolerance) : 0;
  for (int h = 0; h <= MOST_HEIGHT && s->predict.sim.alpha_us > 0; h++) {
    const struct variant *row = s->by_shape[h];
    *least = INFINITY;
    for (int i = 0; i < TREE_STEPS; i++)
      if (row[i].of) *least = fmin(*least, row[i].us);
    if (*least <= s->best.us * (1 + MODEL_ERROR))
      return first_within(
          row, fmin(*least * (1 + part + SAME_TIME), s->best.us * (1 + fmax(part, MODEL_ERROR))));
  }
  *least = s->best.us;
  return &s->best;
}

/* Hands over the winner as the schedule that it is a variant of. */
static copse_status hand_over(struct search *s, struct copse_size_answer *answer) {
  const struct variant *best = choose(s, &answer->least_us);
  struct copse_schedule *schedule = best->of;
  if (best->trees != schedule->trees) schedule->routes = NULL; /* edges may have moved */
  schedule->trees = best->trees;
  schedule->n_trees = best->n_trees;
  if (best->n_trees > 0) {
    schedule->k = copse_schedule_unit_k(schedule);
    COPSE_DO(copse_tree_time(s->topology, best->trees, (size_t)best->n_trees,
                             &schedule->time_per_GB, s->err));
    COPSE_DO(copse_bound_mend(s->topology, s->question->solve, schedule, s->err));
  } else if (schedule->n_flows > 0) {
    COPSE_DO(copse_flow_time(s->topology, best->flows, schedule->n_flows, &schedule->time_per_GB,
                             s->err));
  }
  set_objective(s, best, best->chunks, best->fifo);
  COPSE_DO(copse_proposal_check(s->topology, schedule, best->name, s->err));
  for (size_t i = 0; i < s->n_bases; i++)
    if (s->bases[i] == schedule) s->bases[i] = NULL;
  answer->schedule = schedule;
  answer->chunks = best->chunks;
  answer->us = best->us;
  answer->hops = best->hops;
  answer->fastest_us = s->best.us;
  answer->fastest_hops = s->best.hops;
  answer->fastest_trees = s->best.n_trees;
  answer->bound_us = s->bound_us;
  answer->first_us = s->first_us;
  answer->n_tried = s->n_tried;
  answer->work = s->work;
  memcpy(answer->name, best->name, sizeof answer->name);
  return COPSE_OK;
}

/* Copies the schedules that are there: what the search changes are its own. */
static copse_status take_all(struct search *s, const struct copse_proposal *from, int n) {
  for (int i = 0; i < n; i++) {
    struct copse_schedule *copy;
    if (i > 0 && !wants(s, COPSE_PROPOSAL_SOLVED, from[i].name)) continue;
    COPSE_DO(copse_schedule_borrow(from[i].schedule, &copy, s->err));
    COPSE_DO(take(s, copy, from[i].name, s->err));
  }
  return COPSE_OK;
}

static void release(struct search *s) {
  for (size_t i = 0; i < s->n_bases; i++) copse_schedule_free(s->bases[i]);
  free(s->bases);
  copse_symmetry_free(&s->symmetry);
  copse_routes_free(&s->routes);
  copse_arena_free(&s->scratch);
}

copse_status copse_solve_for_size(const struct copse_topology *topology,
                                  const struct copse_size_question *question,
                                  struct copse_size_answer *answer,
                                  struct copse_solve_seconds *seconds, struct copse_err *err) {
  COPSE_AT_END(release)
  struct search s = {.topology = topology,
                     .question = question,
                     .predict = *question->predict,
                     .best = {.us = INFINITY},
                     .trees_us = INFINITY,
                     .least_latency_us = INFINITY,
                     .most_work = question->work * (1 - EXCHANGE_PART),
                     .err = err};
  *answer = (struct copse_size_answer){0};
  COPSE_DO(COPSE_ARRAY(&s.scratch, MOST_HEIGHT + 1, s.by_shape, err));
  COPSE_DO(copse_q_make((int64_t)llround(s.predict.sim.alpha_us * 1e6), 1000000, &s.alpha_us, err));
  for (int i = 0; i < topology->n_links; i++)
    s.least_latency_us = fmin(s.least_latency_us, copse_q_to_double(topology->links[i].latency));
  COPSE_DO(copse_predict_routes(topology, &s.routes, &s.predict, err));
  const double hop = 1e3 * s.predict.sim.alpha_us / question->bytes; /* s per GB */
  const struct copse_proposer proposer = {topology,         question->solve,   question->solved,
                                          s.predict.routes, .least_gain = hop, .context = &s,
                                          .wants = wants,   .take = take};
  COPSE_DO(question->from ? take_all(&s, question->from, question->n_from)
                          : copse_propose(&proposer, seconds, err));
  if (exchanges(&s)) {
    if (!question->solve->no_symmetry)
      COPSE_DO(copse_topology_symmetry(topology, &s.symmetry, err));
    s.most_work = question->work;
    COPSE_DO(question->solve->collective == COPSE_ALLTOALL ? exchange_paths(&s)
                                                           : exchange_best(&s));
  }
  COPSE_DO(try_far_first(&s));
  return hand_over(&s, answer);
}
