/*
 * Predictions of schedules, plans and baselines: lowers a schedule in memory, has its plan's
 * messages laid on routes, and asks the simulator (its model and sources: simulate.h). What can't
 * be a plan is simulated as the schedule's own transfers, with the reason.
 */
#include "predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "codegen/lower/lower.h"
#include "predict/policy.h"
#include "schedule/solve/bound_at.h"
#include "schedule/solve/solve.h"

const struct copse_predict_options copse_predict_defaults = {
    .sim = COPSE_SIM_DEFAULTS(COPSE_MESSAGE_US), .fifo = -1};

void copse_predict_alpha(struct copse_predict_options *options, double alpha_us) {
  options->sim.alpha_us = alpha_us;
  if (options->sim.message_us > alpha_us) options->sim.message_us = alpha_us;
}

void copse_sim_options_of_schedule(const struct copse_schedule *schedule,
                                   struct copse_sim_options *sim) {
  const struct copse_schedule_objective *o = &schedule->objective;
  if (o->bytes == 0) return;
  sim->pipeline_chunks = o->chunks;
  sim->min_chunk_bytes = COPSE_LEAST_CHUNK_BYTES;
  sim->max_chunk_bytes = (double)copse_schedule_chunk_bytes(schedule);
  sim->fifo = copse_objective_fifo(o->chunks, o->fifo);
}

/* ---- one --------------------------------------------------------------------------------- */

void copse_predict_cut(const struct copse_predict_options *o, struct copse_sim_options *sim) {
  if (o->fifo >= 0) sim->fifo = o->fifo;
  if (o->chunk_bytes <= 0) return;
  sim->min_chunk_bytes = sim->max_chunk_bytes = o->chunk_bytes;
  sim->pipeline_chunks = 0;
}

/* Sets how a native plan cuts its messages, and its slots: one chunk, which nothing holds back, and
 * a hop that costs less, with the low-latency protocol. */
static void cut_as_plan(const struct copse_plan_header *h, struct copse_sim_options *options) {
  bool packets = h->protocol == COPSE_PROTOCOL_LOW_LATENCY;
  options->fifo = packets ? 0 : (int)h->fifo;
  options->max_chunk_bytes = packets ? 1e18 : (double)h->chunk_bytes;
  options->min_chunk_bytes = packets ? 1e18 : (double)h->min_chunk_bytes;
  options->pipeline_chunks = packets ? 1 : (int)h->pipeline_chunks;
  if (!packets) return;
  options->alpha_us *= PACKET_HOP;
  if (options->message_us > options->alpha_us) options->message_us = options->alpha_us;
}

copse_status copse_predict_plan(const char *label, const struct copse_topology *topology,
                                const struct copse_plan *plan,
                                const struct copse_predict_options *options,
                                struct copse_prediction *out, struct copse_foreign *what,
                                struct copse_err *err) {
  const struct copse_predict_options *o = options ? options : &copse_predict_defaults;
  *out = (struct copse_prediction){.name = "plan", .sim = o->sim};
  *what = (struct copse_foreign){0};
  COPSE_DO(copse_sim_dag_of_plan(label, plan, topology, o->routes, &out->dag, what, err));
  cut_as_plan(&plan->header, &out->sim);
  copse_predict_cut(o, &out->sim);
  out->time_per_GB = out->runs_per_GB = what->time_per_GB;
  out->worst_link = what->worst_link;
  out->multicast = copse_plan_has_groups(plan);
  if (what->n_passed > 0)
    snprintf(out->note, sizeof out->note,
             "%d messages lead through other ranks, such as %.40s, which a plan does not have pass "
             "them on",
             what->n_passed, topology->nodes[what->passed_by].id);
  return COPSE_OK;
}

copse_status copse_predict_mscclpp(const char *label, const char *text, size_t size,
                                   const struct copse_topology *topology,
                                   struct copse_prediction *out, struct copse_err *err) {
  struct copse_foreign what = {0};
  *out = (struct copse_prediction){.name = "program", .sim = copse_predict_defaults.sim};
  COPSE_DO(copse_sim_dag_of_mscclpp(label, text, size, topology, &out->dag, &what, err));
  out->time_per_GB = out->runs_per_GB = what.time_per_GB;
  out->worst_link = what.worst_link;
  return COPSE_OK;
}

copse_status copse_predict_msccl(const char *text, size_t size,
                                 const struct copse_topology *topology, const double *bytes,
                                 int n_sizes, bool quick, struct copse_prediction *out, double *us,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_prediction_free)
  struct copse_prediction p = {.sim = copse_predict_defaults.sim};
  struct copse_foreign what = {0};
  copse_predict_cut(&copse_predict_defaults, &p.sim);
  COPSE_DO(copse_sim_dag_of_msccl("program", text, size, topology, &p.dag, &what, err));
  out->runs_per_GB = what.time_per_GB;
  out->worst_link = what.worst_link;
  return copse_predictions_time(topology, &p, n_sizes > 0, bytes, n_sizes, quick, us, err);
}

static bool has_too_many_pairs(int64_t n_ranks) { return n_ranks * n_ranks > MOST_LOWERED; }

copse_status copse_predict_routes(const struct copse_topology *topology,
                                  struct copse_routes *routes,
                                  struct copse_predict_options *options, struct copse_err *err) {
  if (options->routes || has_too_many_pairs(topology->n_ranks)) return COPSE_OK;
  if (options->shared) routes = &options->shared->plans_routes;
  if (!routes->first) COPSE_DO(copse_plan_routes_find(topology, routes, err));
  options->routes = routes;
  return COPSE_OK;
}

/* Whether a plan of it is more than a prediction is worth. */
static bool is_too_large(const struct copse_schedule *s) {
  return has_too_many_pairs(s->n_ranks) || s->n_flows + copse_schedule_edges(s) > MOST_LOWERED;
}

static void free_plan(struct copse_plan **plan) { copse_plan_free(*plan); }

static void free_foreign(struct copse_foreign *what) { free(what->demand); }

bool copse_prediction_is_coarse(const struct copse_prediction *it) {
  return it->instead[0] != '\0' && it->dag.n_transfers > MOST_LOWERED;
}

/* Predicts a schedule as its plan. COPSE_UNSUPPORTED and COPSE_OVERFLOW where there is no such
 * plan; `why` has the reason. */
static copse_status as_plan(const struct copse_topology *topology,
                            const struct copse_schedule *schedule,
                            const struct copse_predict_options *o, struct copse_prediction *out,
                            struct copse_err *why) {
  struct copse_lower_options lower = o->lower;
  COPSE_AT_END(free_foreign) struct copse_foreign what = {0};
  COPSE_AT_END(free_plan) struct copse_plan *plan = NULL;
  if (is_too_large(schedule))
    return copse_fail(why, COPSE_UNSUPPORTED,
                      "more than %d edges of trees, or pairs of ranks, are too many to lower for a "
                      "prediction",
                      MOST_LOWERED);
  if (lower.instances == 0 && !lower.low_latency) lower.instances = COPSE_LOWER_AUTO;
  COPSE_DO(copse_lower_schedule(schedule, &lower, &plan, why));
  return copse_predict_plan("plan", topology, plan, o, out, &what, why);
}

#define OWN_TRANSFERS "as its own transfers, over its own paths"

copse_status copse_predict_schedule(const struct copse_topology *topology,
                                    const struct copse_schedule *schedule,
                                    const struct copse_predict_options *options,
                                    struct copse_prediction *out, struct copse_err *err) {
  const struct copse_predict_options *o = options ? options : &copse_predict_defaults;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = COPSE_UNSUPPORTED;
  *out = (struct copse_prediction){0};
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "a compact schedule must be expanded to be simulated");
  if (o->links)
    copse_fail(&why, status, OWN_TRANSFERS);
  else
    status = as_plan(topology, schedule, o, out, &why);
  if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW) {
    copse_predictions_free(out, 1);
    *out = (struct copse_prediction){.sim = o->sim, .runs_per_GB = schedule->time_per_GB};
    copse_sim_options_of_schedule(schedule, &out->sim);
    copse_predict_cut(o, &out->sim);
    snprintf(out->instead, sizeof out->instead, "%.150s", why.text);
    why = (struct copse_err)COPSE_ERR_INIT;
    status = copse_sim_dag_of_schedule(schedule, topology, !o->links, &out->dag, &why);
  }
  out->name = "copse";
  out->time_per_GB = schedule->time_per_GB;
  return status == COPSE_OK ? COPSE_OK : copse_fail(err, status, "%s", why.text);
}

copse_status copse_predict(const struct copse_topology *topology,
                           const struct copse_schedule *schedule,
                           const struct copse_predict_options *options, const double *bytes, int n,
                           double *us, struct copse_err *err) {
  COPSE_AT_END(copse_prediction_free) struct copse_prediction it = {0};
  COPSE_DO(copse_predict_schedule(topology, schedule, options, &it, err));
  return copse_predictions_time(topology, &it, 1, bytes, n, false, us, err);
}

bool copse_prediction_detour(const struct copse_prediction *p,
                             const struct copse_topology *topology, char text[COPSE_DETOUR_TEXT]) {
  if (!copse_prediction_exists(p) || p->runs_per_GB.num == 0) return false; /* no routes of plans */
  double says = copse_q_to_double(p->time_per_GB), runs = copse_q_to_double(p->runs_per_GB);
  const struct copse_link *l = &topology->links[p->worst_link];
  if (says <= 0 || !(runs > says * (1 + CLOSE_TIME))) return false;
  snprintf(
      text, COPSE_DETOUR_TEXT,
      "as a plan it takes %.6g s/GB at least, %.3g times as long: %s, and load %.80s -> %.80s most",
      runs, runs / says,
      p->multicast ? "ranks send their own part to the switch too, and get it back"
                   : "ranks send over the fabric's own routes, not the schedule's paths",
      topology->nodes[l->src].id, topology->nodes[l->dst].id);
  return true;
}

/* ---- baselines --------------------------------------------------------------------------- */

static void keep_note(void *ctx, const char *text) {
  struct copse_prediction *p = ctx;
  snprintf(p->note, sizeof p->note, "%s", text);
}

static copse_status make_baseline(const struct copse_baseline_options *like,
                                  const struct copse_topology *topology, enum copse_baseline kind,
                                  const struct copse_predict_options *options,
                                  struct copse_prediction *p, struct copse_err *why) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *schedule = NULL;
  bool steps = like->collective == COPSE_ALLTOALL;
  struct copse_baseline_options own = *like;
  struct copse_predict_options o = *options;
  struct copse_prediction said = {0};
  const struct copse_notes notes = {keep_note, &said};
  own.pass_on = true; /* what NCCL does is no plan of ours */
  own.notes = &notes;
  o.links = o.links || kind == COPSE_BASELINE_RINGS;
  COPSE_DO(copse_baseline_make(topology, kind, &own, &schedule, steps ? &p->dag : NULL, why));
  if (!steps) {
    COPSE_DO(copse_predict_schedule(topology, schedule, &o, p, why));
    if (o.links && !options->links)
      snprintf(p->instead, sizeof p->instead,
               OWN_TRANSFERS ": NCCL runs its rings itself, not as a plan");
  } else {
    p->sim = options->sim;
    copse_predict_cut(options, &p->sim);
  }
  if (options->chunk_bytes <= 0)
    p->slots = options->fifo < 0    ? BASELINE_SLOTS
               : options->fifo == 0 ? COPSE_SIM_MAX_FIFO
                                    : options->fifo;
  p->time_per_GB = schedule->time_per_GB;
  memcpy(p->note, said.note, sizeof p->note);
  return COPSE_OK;
}

copse_status copse_predict_baselines(const struct copse_baseline_options *like,
                                     const struct copse_topology *topology,
                                     const struct copse_predict_options *options,
                                     struct copse_prediction predictions[COPSE_MAX_PREDICTIONS],
                                     int *n, struct copse_err *err) {
  struct copse_predict_options o = options ? *options : copse_predict_defaults;
  struct copse_baseline_options shared_like = *like;
  COPSE_AT_END(copse_baseline_shared_free) struct copse_baseline_shared shared = {0};
  COPSE_AT_END(copse_routes_free) struct copse_routes routes = {0};
  struct copse_err unreached = COPSE_ERR_INIT;
  bool any = like->like != NULL;
  if (!like->shared) shared_like.shared = &shared;
  shared_like.nccl = o.nccl;
  shared_like.n_nccl = o.n_nccl;
  shared_like.nccl_label = o.nccl_label;
  if (like->collective != COPSE_ALLTOALL)
    COPSE_DO(copse_predict_routes(topology, &routes, &o, err));
  for (int kind = 0; kind < COPSE_N_BASELINES; kind++) {
    struct copse_prediction *p = &predictions[*n];
    struct copse_err why = COPSE_ERR_INIT;
    if (!copse_baseline_exists((enum copse_baseline)kind, like->collective)) continue;
    *p = (struct copse_prediction){0};
    ++*n;
    copse_status status =
        make_baseline(&shared_like, topology, (enum copse_baseline)kind, &o, p, &why);
    p->name = kind == COPSE_BASELINE_RINGS && o.nccl
                  ? "nccl"
                  : copse_baseline_name((enum copse_baseline)kind);
    p->why = why;
    any = any || status == COPSE_OK;
    if (status == COPSE_INFEASIBLE) unreached = why;
    if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW || status == COPSE_INFEASIBLE)
      continue; /* said beside others */
    if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  }
  if (any || unreached.status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, unreached.status, "%s", unreached.text);
}

copse_status copse_predict_all(const struct copse_topology *topology,
                               const struct copse_schedule *schedule,
                               const struct copse_predict_options *options,
                               struct copse_prediction predictions[COPSE_MAX_PREDICTIONS], int *n,
                               struct copse_err *err) {
  const struct copse_baseline_options like = {.collective = schedule->collective,
                                              .root = schedule->root,
                                              .demand = schedule->demand,
                                              .like = schedule};
  *n = 1;
  COPSE_DO(copse_predict_schedule(topology, schedule, options, &predictions[0], err));
  return copse_predict_baselines(&like, topology, options, predictions, n, err);
}

/* ---- the same twice ---------------------------------------------------------------------- */

static bool costs_alike(const struct copse_sim_options *a, const struct copse_sim_options *b) {
  return a->alpha_us == b->alpha_us && a->alpha_occupies == b->alpha_occupies &&
         a->message_us == b->message_us && a->reduce_us_per_byte == b->reduce_us_per_byte &&
         a->duplex == b->duplex && a->min_chunk_bytes == b->min_chunk_bytes &&
         a->max_chunk_bytes == b->max_chunk_bytes && a->fifo == b->fifo &&
         a->pipeline_chunks == b->pipeline_chunks && a->max_steps == b->max_steps &&
         a->quick_part == b->quick_part;
}

bool copse_predictions_alike(const struct copse_prediction *a, const struct copse_prediction *b) {
  return a == b || (a->slots == b->slots && costs_alike(&a->sim, &b->sim) &&
                    copse_sim_dags_equal(&a->dag, &b->dag));
}

static copse_status lower_jump(const struct copse_prediction *p, double from, double *jump,
                               struct copse_err *err) {
  struct copse_sim_options options = p->sim;
  struct copse_sim_shape shape;
  bool ignored;
  options.quick_part = QUICK_PART;
  COPSE_DO(copse_sim_dag_shape(&p->dag, &shape, err));
  int chunks = copse_sim_chunks(&shape, &options, from, &ignored);
  for (double low = from, middle; *jump - low > 1;) {
    middle = floor((low + *jump) / 2);
    if (copse_sim_chunks(&shape, &options, middle, &ignored) == chunks)
      low = middle;
    else
      *jump = middle;
  }
  return COPSE_OK;
}

copse_status copse_predictions_jump(const struct copse_prediction *a,
                                    const struct copse_prediction *b, double from, double to,
                                    double *jump, struct copse_err *err) {
  *jump = to + 1;
  COPSE_DO(lower_jump(a, from, jump, err));
  return lower_jump(b, from, jump, err);
}

/* ---- times ------------------------------------------------------------------------------- */

/* Questions about several predictions at several sizes, each of which is asked or not. */
struct asking {
  const struct copse_topology *topology;
  const struct copse_prediction *predictions; /* [n] */
  const double *bytes;                        /* [n_sizes] */
  int n, n_sizes;
  bool *asks;                           /* [n * n_sizes] */
  struct copse_sim_options *options;    /* [n] for the questions at hand */
  struct copse_sim_question *questions; /* [n * n_sizes] of which those asked come first */
  double *us;                           /* [n * n_sizes] the last answers */
};

/* Asks all questions at once, those of one prediction one after the other. */
static copse_status ask(struct asking *q, struct copse_err *err) {
  int asked = 0;
  for (int i = 0; i < q->n * q->n_sizes; i++)
    if (q->asks[i])
      q->questions[asked++] =
          (struct copse_sim_question){.dag = &q->predictions[i / q->n_sizes].dag,
                                      .options = &q->options[i / q->n_sizes],
                                      .unit_bytes = q->bytes[i % q->n_sizes]};
  COPSE_DO(copse_simulate_all(q->topology, q->questions, asked, err));
  for (int i = q->n * q->n_sizes - 1; i >= 0; i--)
    if (q->asks[i]) q->us[i] = q->questions[--asked].result.us;
  return COPSE_OK;
}

/* Returns the next number of chunks to try. */
static int more_chunks(int chunks) { return chunks + (chunks > 1 ? chunks / 2 : 1); }

static void cut_all(struct asking *q, int chunks) {
  for (int i = 0; i < q->n; i++) {
    q->options[i].min_chunk_bytes = COPSE_LEAST_CHUNK_BYTES;
    q->options[i].max_chunk_bytes = INFINITY;
    q->options[i].pipeline_chunks = chunks;
    q->options[i].fifo = q->predictions[i].slots;
  }
}

/* Asks for the least of baselines: more and more chunks until two numbers in a row gain nothing. */
static copse_status ask_for_best_cuts(struct asking *q, struct copse_err *err) {
  int all = q->n * q->n_sizes, left = 0, *vain;
  double *own, *least;
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)all, vain, err));
  COPSE_DO(COPSE_ARRAYS(&arena, (size_t)all, double, err, &own, &least));
  for (int i = 0; i < all; i++) {
    own[i] = q->us[i];
    least[i] = INFINITY;
    q->asks[i] = q->asks[i] && q->predictions[i / q->n_sizes].slots > 0;
    left += q->asks[i];
  }
  for (int chunks = 1; left > 0; chunks = more_chunks(chunks)) {
    cut_all(q, chunks);
    COPSE_DO(ask(q, err));
    for (int i = 0; i < all; i++) {
      int64_t ints = (int64_t)q->predictions[i / q->n_sizes].dag.n_ints;
      if (!q->asks[i]) continue;
      vain[i] = q->us[i] < least[i] * (1 - CUT_GAIN) ? 0 : vain[i] + 1;
      least[i] = fmin(least[i], q->us[i]);
      q->asks[i] = vain[i] < 2 && chunks * ints < q->options[i / q->n_sizes].max_steps;
      left -= !q->asks[i];
    }
  }
  for (int i = 0; i < all; i++) q->us[i] = fmin(own[i], least[i]);
  return COPSE_OK;
}

copse_status copse_predictions_time(const struct copse_topology *topology,
                                    const struct copse_prediction *predictions, int n,
                                    const double *bytes, int n_sizes, bool quick, double *us,
                                    struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct asking q = {topology, predictions, bytes, n, n_sizes, .us = us};
  size_t all = (size_t)n * (size_t)n_sizes;
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)n, q.options, err));
  COPSE_DO(COPSE_ARRAY(&arena, all, q.asks, err));
  COPSE_DO(COPSE_ARRAY(&arena, all, q.questions, err));
  for (int i = 0; i < n; i++) {
    q.options[i] = predictions[i].sim;
    if (quick) q.options[i].max_steps /= QUICK_PART;
  }
  for (size_t i = 0; i < all; i++) {
    q.asks[i] = copse_prediction_exists(&predictions[i / (size_t)n_sizes]);
    us[i] = q.asks[i] ? INFINITY : 0;
  }
  COPSE_DO(ask(&q, err));
  return ask_for_best_cuts(&q, err);
}

void copse_predictions_free(struct copse_prediction *predictions, int n) {
  for (int i = 0; i < n; i++) copse_sim_dag_free(&predictions[i].dag);
}

/* ---- each once a size -------------------------------------------------------------------- */

struct copse_known_row *copse_known_row(struct copse_known_times *times, double bytes,
                                        struct copse_err *err) {
  for (size_t i = 0; i < times->n; i++)
    if (times->rows[i].bytes == bytes) return &times->rows[i];
  if (COPSE_GROW(times->rows, times->capacity, times->n + 1, err) != COPSE_OK) return NULL;
  times->rows[times->n] = (struct copse_known_row){.bytes = bytes, .best = -1};
  return &times->rows[times->n++];
}

/* Keeps of the wishes those about what is not known yet, each once: *n of them. */
static copse_status choose_wishes(struct copse_known_times *times, struct copse_wish *wishes,
                                  int *n, struct copse_err *err) {
  int kept = 0;
  for (int w = 0; w < *n; w++) {
    const struct copse_wish it = wishes[w];
    const struct copse_known_row *row = copse_known_row(times, it.bytes, err);
    int i = 0;
    if (!row) return copse_fail_nomem(err);
    if (copse_is_known(&row->of[it.prediction], it.most_us)) continue;
    while (i < kept && (wishes[i].prediction != it.prediction || wishes[i].bytes != it.bytes)) i++;
    if (i < kept)
      wishes[i].most_us = fmax(wishes[i].most_us, it.most_us);
    else
      wishes[kept++] = it;
  }
  *n = kept;
  return COPSE_OK;
}

copse_status copse_predictions_ask(const struct copse_topology *topology,
                                   const struct copse_prediction *predictions,
                                   struct copse_known_times *times, struct copse_wish *wishes,
                                   int *n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_sim_question *questions;
  struct copse_sim_options *options;
  COPSE_DO(choose_wishes(times, wishes, n, err));
  if (*n == 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)*n, questions, err));
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)*n, options, err));
  for (int i = 0; i < *n; i++) {
    const struct copse_prediction *of = &predictions[wishes[i].prediction];
    options[i] = of->sim;
    options[i].quick_part = QUICK_PART;
    questions[i] = (struct copse_sim_question){.dag = &of->dag,
                                               .options = &options[i],
                                               .unit_bytes = wishes[i].bytes,
                                               .most_us = wishes[i].most_us};
  }
  COPSE_DO(copse_simulate_all(topology, questions, *n, err));
  for (int i = 0; i < *n; i++) {
    const struct copse_sim_question *q = &questions[i];
    double us = q->result.us, chunks = (double)q->result.chunks / (q->dag->n_transfers + 1);
    times->work += STEPS_OF_PLAN(q->dag->n_ints) * chunks;
    copse_known_row(times, wishes[i].bytes, NULL)->of[wishes[i].prediction] =
        (struct copse_known){isinf(us) ? wishes[i].most_us : us, isinf(us), true};
  }
  return COPSE_OK;
}

/* ---- bounds --------------------------------------------------------------------------------- */

/* Bounds in floating point, for tables beside predicted times: docs/theory.md, "Every size". */

/* Makes bounds; COPSE_OK without them (*out NULL) where they would leave 64 bits. */
static copse_status make_bounds(const struct copse_topology *topology,
                                const struct copse_bounds_question *question,
                                const struct copse_schedule *schedule, struct copse_bounds **out,
                                struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_q alpha;
  *out = NULL;
  copse_status status = copse_q_from_double(question->alpha_us, &alpha, &why);
  if (status == COPSE_OK)
    status = copse_bounds_new(topology, question->collective, question->root, alpha, schedule, out,
                              &why);
  if (status == COPSE_OK || status == COPSE_OVERFLOW) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

/* Finds the bound of one size; 0 where none is known. */
static copse_status bound_at(struct copse_bounds *bounds, double bytes, double *us,
                             struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_bound_at at;
  copse_status status = copse_bounds_at(bounds, (int64_t)bytes, &arena, &at, NULL);
  *us = status == COPSE_OK ? copse_q_to_double(at.us) : 0;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

/* Returns for how long a piece keeps a link into a rank busy. */
static double busy_us(const struct copse_link *link, double bytes, double alpha_us) {
  return bytes * 1e-3 / copse_q_to_double(link->bandwidth) + copse_q_to_double(link->latency) +
         alpha_us;
}

/* Whether every rank can have taken in n pieces by then. */
static bool have_come(const struct copse_topology *t, double bytes, double alpha_us, int n,
                      double us) {
  double taken[MOST_RANKS] = {0};
  for (int l = 0; l < t->n_links; l++) {
    int rank = t->nodes[t->links[l].dst].rank;
    if (rank >= 0) taken[rank] += floor(us / busy_us(&t->links[l], bytes, alpha_us));
  }
  for (int rank = 0; rank < t->n_ranks; rank++)
    if (taken[rank] < n) return false;
  return true;
}

int copse_pieces_at_turn(const struct copse_topology *t, int root, double bytes, double alpha_us,
                         double beat_us, int turn) {
  double us[MOST_WHOLE_PIECES];
  int n_faster = 0;
  for (int i = 0; i < MOST_WHOLE_PIECES; i++) {
    int n = (i + 1) * (root >= 0 ? 1 : t->n_ranks - 1);
    double piece = bytes / (i + 1) / (root >= 0 ? 1 : t->n_ranks), least = 0;
    us[i] = 1;
    while (us[i] < INFINITY && !have_come(t, piece, alpha_us, n, us[i])) us[i] *= 2;
    while (us[i] - least > us[i] * SAME_TIME) { /* halves what is between */
      double mean = (least + us[i]) / 2;
      *(have_come(t, piece, alpha_us, n, mean) ? &us[i] : &least) = mean;
    }
    n_faster += us[i] < beat_us;
  }
  if (n_faster > 0) turn %= n_faster;
  for (int i = 0; i < MOST_WHOLE_PIECES; i++) {
    int before = 0;
    for (int k = 0; k < MOST_WHOLE_PIECES; k++)
      before += us[k] < us[i] || (us[k] == us[i] && k < i);
    if (before == turn % MOST_WHOLE_PIECES) return i + 1;
  }
  return 1;
}

copse_status copse_bound_mend(const struct copse_topology *topology,
                              const struct copse_solve_options *options,
                              struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_bound *bound = &schedule->bound;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *whole = NULL;
  struct copse_solve_seconds ignored = {0};
  int *cut;
  if (bound->kind != COPSE_BOUND_PHASES ||
      copse_q_cmp(schedule->time_per_GB, bound->time_per_GB) >= 0)
    return COPSE_OK;
  COPSE_DO(copse_solve_in_part(topology, options, NULL, &whole, &ignored, err));
  COPSE_DO(COPSE_ARRAY(&schedule->arena, (size_t)whole->bound.n_cut, cut, err));
  memcpy(cut, whole->bound.cut, (size_t)whole->bound.n_cut * sizeof *cut);
  *bound = (struct copse_bound){.kind = COPSE_BOUND_CUT,
                                .time_per_GB = whole->bound.time_per_GB,
                                .cut = cut,
                                .n_cut = whole->bound.n_cut};
  return COPSE_OK;
}

copse_status copse_bounds_predict(const struct copse_topology *topology,
                                  const struct copse_bounds_question *question, const double *bytes,
                                  int n, double *us, struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *lengths = NULL;
  COPSE_AT_END(copse_bounds_free_at) struct copse_bounds *bounds = NULL;
  struct copse_solve_seconds ignored;
  for (int i = 0; i < n; i++) us[i] = 0;
  if (!question->schedule && question->collective == COPSE_ALLTOALL) {
    struct copse_solve_options options = {.collective = COPSE_ALLTOALL,
                                          .root = -1,
                                          .bound_only = true,
                                          .tolerance = {1, LENGTHS_WITHIN},
                                          .label = topology->name};
    COPSE_DO(copse_solve_schedule(topology, &options, &lengths, &ignored, err));
  }
  COPSE_DO(make_bounds(topology, question, question->schedule ? question->schedule : lengths,
                       &bounds, err));
  for (int i = 0; i < n && bounds; i++) COPSE_DO(bound_at(bounds, bytes[i], &us[i], err));
  return COPSE_OK;
}

copse_status copse_bound_state(const struct copse_topology *topology,
                               struct copse_schedule *schedule, double bytes, double alpha_us,
                               struct copse_err *err) {
  const struct copse_bounds_question question = {schedule->collective, schedule->root, schedule,
                                                 alpha_us};
  struct copse_bound_at *at = copse_arena_alloc(&schedule->arena, 1, sizeof *at);
  COPSE_AT_END(copse_bounds_free_at) struct copse_bounds *bounds = NULL;
  if (!at) return copse_fail_nomem(err);
  COPSE_DO(make_bounds(topology, &question, schedule, &bounds, err));
  copse_status status =
      bounds ? copse_bounds_at(bounds, (int64_t)bytes, &schedule->arena, at, NULL) : COPSE_OVERFLOW;
  schedule->bound_at = status == COPSE_OK && at->us.num > 0 ? at : NULL;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

/* Finds whether there are so few routes that trees on them are looked for: *few. */
static copse_status has_few_ways(const struct copse_topology *t, bool *few, struct copse_err *err) {
  COPSE_AT_END(copse_routes_free) struct copse_routes routes = {0};
  COPSE_DO(copse_plan_routes_find(t, &routes, err));
  *few = copse_routes_count(&routes) <= MOST_ROUTED_WAYS;
  return COPSE_OK;
}

copse_status copse_bound_on_routes(const struct copse_topology *t, const struct copse_schedule *s,
                                   struct copse_q runs, struct copse_q *time,
                                   struct copse_err *err) {
  const struct copse_solve_options options = {.collective = s->collective,
                                              .root = s->root,
                                              .label = t->name,
                                              .tolerance = COPSE_Q_ZERO,
                                              .on_routes = true,
                                              .bound_only = true};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *best = NULL;
  struct copse_solve_seconds ignored;
  struct copse_err why = COPSE_ERR_INIT;
  double any = copse_q_to_double(s->bound.time_per_GB);
  bool marked = false, few;
  *time = COPSE_Q_ZERO;
  for (int v = 0; v < t->n_nodes; v++)
    marked = marked || t->nodes[v].multicast || t->nodes[v].aggregation;
  if (s->n_trees == 0 || copse_schedule_doubles(s) || marked ||
      (int64_t)t->n_ranks * (t->n_ranks - 1) > MOST_ROUTED_WAYS ||
      copse_q_to_double(runs) <= any * (1 + CLOSE_TIME))
    return COPSE_OK; /* they need not, or can't be slower */
  COPSE_DO(has_few_ways(t, &few, err));
  if (!few) return COPSE_OK;
  copse_status status = copse_solve_schedule(t, &options, &best, &ignored, &why);
  if (status == COPSE_NOMEM) return copse_fail_nomem(err);
  if (status == COPSE_OK && copse_q_to_double(best->routes->time_per_GB) > any * (1 + CLOSE_TIME))
    *time = best->routes->time_per_GB;
  return COPSE_OK;
}

const char *copse_gap_text(double us, double bound_us, char buffer[COPSE_GAP_TEXT]) {
  double percent = bound_us > 0 ? 100 * (us / bound_us - 1) : 0;
  if (bound_us <= 0) return "-";
  if (percent < 0 && percent > -1e-6) percent = 0; /* by rounding alone; below that shows a fault */
  snprintf(buffer, COPSE_GAP_TEXT, "%.*f %%", percent < 100 ? 1 : 0, percent);
  return buffer;
}
