/*
 * copse plans TOPO -o FOLDER: plans that cover all message sizes. predict/candidates.h says which
 * schedule is fastest at which sizes; each range's plan is lowered, proved and written beside its
 * schedule; index.json tells all, also what --from and --keep took over where parts are down.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/policy.h"
#include "cli/solve_args.h"
#include "cli/topology_args.h"
#include "codegen/check/proof.h"
#include "codegen/lower/lower.h"
#include "predict/predict.h"
#include "predict/candidates.h"
#include "predict/policy.h"
#include "schedule/adapt.h"
#include "topology/symmetry/symmetry.h"

struct options {
  struct copse_cli_topology topology;
  const char *output;
  const char *from; /* the plans that a job has, or NULL */
  bool wanted[COPSE_ALLTOALL + 1];
  const char *roots; /* a list of ranks, or NULL */
  struct copse_lower_options lower;
  struct copse_cli_costs costs;
  bool no_low_latency, json, keep;
  double search;   /* how many times the work by default */
  bool by_default; /* the collectives are those that are made without -c */
};

/* What there is for a root, and the ranks that symmetries take it to. */
struct model {
  struct copse_candidates candidates;
  bool taken[COPSE_MAX_CANDIDATES]; /* those that ranges have */
  struct copse_orbit orbit;
};

struct job {
  const struct options *o;
  bool wanted[COPSE_ALLTOALL + 1];
  int *roots, n_roots; /* of the collective at hand; {-1} where it has none */
  struct copse_cli_plan *old;
  int n_old;
  struct copse_cli_work *work;
  struct copse_topology *topology;
  const struct copse_topology *whole; /* with nothing down */
  struct copse_predict_options predicted, whole_predicted; /* of `topology`, of `whole` */
  struct copse_candidates candidates, healthy; /* of the collective at hand */
  const struct copse_cli_plan
      *before[COPSE_MAX_CANDIDATES]; /* [n_before] what `healthy` has of --from */
  int n_before;
  struct model
      *models; /* [n_models] of the roots so far, but for those that are like one of them */
  int n_models;
  struct copse_text index, table; /* rows of the plans made so far */
  struct copse_text losses;     /* what fewer hops and fewer plans cost, a line each */
  struct copse_text difference; /* of the plan at hand, for the index */
  struct copse_text changes;    /* what ranks must load again, a line for each plan */
  struct copse_cli_set set;     /* the folder's files */
  int n_plans;
  struct copse_err *err;
};

/* ---- what ranks have already --------------------------------------------------------------- */

static bool has_part(const struct copse_cli_plan *it, uint8_t (*parts)[COPSE_SHA256_BYTES],
                     uint32_t r) {
  return it && memcmp(it->parts[r], parts[r], sizeof parts[r]) == 0;
}

/* Finds the old plan in which most ranks do the same, and how many; NULL: none is of that size. */
static const struct copse_cli_plan *find_like(const struct job *j,
                                              const struct copse_plan_header *h,
                                              uint8_t (*parts)[COPSE_SHA256_BYTES],
                                              uint32_t *same) {
  const struct copse_cli_plan *like = NULL;
  *same = 0;
  for (int i = 0; i < j->n_old; i++) {
    const struct copse_cli_plan *it = &j->old[i];
    uint32_t n = 0;
    if (it->header.collective != h->collective || it->header.n_ranks != h->n_ranks ||
        it->header.root != h->root)
      continue;
    for (uint32_t r = 0; r < h->n_ranks; r++) n += has_part(it, parts, r);
    if (like && n <= *same) continue;
    like = it;
    *same = n;
  }
  return like;
}

/* Lists the ranks whose part has changed: "0-3, 7" or as JSON "0, 1, 2, 3, 7". */
static void add_changed(struct copse_text *text, const struct copse_cli_plan *like,
                        uint8_t (*parts)[COPSE_SHA256_BYTES], uint32_t n, bool ranges) {
  const char *before = "";
  for (uint32_t r = 0, last; r < n; r = last + 1) {
    last = r;
    if (has_part(like, parts, r)) continue;
    while (ranges && last + 1 < n && !has_part(like, parts, last + 1)) last++;
    copse_text_add(text, last > r ? "%s%u-%u" : "%s%u", before, r, last);
    before = ", ";
  }
}

/* Says which ranks must load their part of the new plan, and which have it. */
static copse_status compare_parts(struct job *j, const struct copse_plan *plan, const char *name) {
  const uint32_t n = plan->header.n_ranks;
  uint8_t(*parts)[COPSE_SHA256_BYTES];
  uint32_t same;
  j->difference.size = 0;
  if (!j->o->from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&j->work->arena, n, parts, j->err));
  COPSE_DO(copse_plan_digest_parts(plan, parts, j->err));
  const struct copse_cli_plan *like = find_like(j, &plan->header, parts, &same);
  copse_text_add(&j->difference, ",\n   \"like\": %s, \"changed_ranks\": [",
                 like ? copse_cli_quoted(like->name) : "null");
  add_changed(&j->difference, like, parts, n, false);
  copse_text_add(&j->difference, "]");
  copse_text_add(&j->changes, "%s: ", name);
  if (same == n) {
    copse_text_add(&j->changes, "no rank does anything else than in the old %s\n", like->name);
    return COPSE_OK;
  }
  copse_text_add(&j->changes, "rank%s ", COPSE_S(n - same));
  add_changed(&j->changes, like, parts, n, true);
  if (like && same == 0)
    copse_text_add(&j->changes, " must load it\n");
  else if (like)
    copse_text_add(&j->changes, " must load it, %u of %u do as in the old %s\n", same, n,
                   like->name);
  else
    copse_text_add(&j->changes, " must load it, there was none for %u ranks\n", n);
  return COPSE_OK;
}

/* ---- one plan ---------------------------------------------------------------------------- */

/* Labels a schedule: "broadcast 4", "allreduce". */
static const char *label_of(const struct copse_schedule *s, char text[40]) {
  const char *name = copse_collective_name(s->collective);
  snprintf(text, 40, copse_collective_rooted(s->collective) ? "%s %d" : "%s", name, s->root);
  return text;
}

/* Makes a file's stem: "allreduce-1", and where there are several roots "broadcast-root4-1". */
static const char *stem_of(const struct job *j, const struct copse_schedule *s, int number,
                           char text[64]) {
  char root[24] = "";
  if (j->n_roots > 1) snprintf(root, sizeof root, "-root%d", s->root);
  snprintf(text, 64, "%s%s-%d", copse_collective_name(s->collective), root, number);
  return text;
}

/* Lowers, proves and writes one plan for the sizes of `range`. */
static copse_status write_plan(struct job *j, const struct copse_candidate_range *range,
                               const char *name) {
  const struct copse_candidate *candidate = &j->candidates.list[range->candidate];
  struct copse_lower_options options = candidate->lower;
  struct copse_proof_report report;
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_plan *plan = NULL;
  COPSE_AT_END(copse_free_at) char *bytes = NULL;
  size_t size;
  copse_status status;
  options.min_bytes = (int64_t)range->min_bytes;
  options.max_bytes = (int64_t)range->max_bytes;
  COPSE_TRY(copse_lower_schedule(candidate->schedule, &options, &plan, j->err));
  COPSE_TRY(copse_cli_own(copse_prove_plan(plan, name, &report, &why),
                          "a plan of ours fails its proof", &why, j->err));
  COPSE_TRY(copse_plan_encode(plan, &bytes, &size, j->err));
  COPSE_TRY(copse_cli_set_add(&j->set, name, bytes, size, j->err));
  COPSE_TRY(compare_parts(j, plan, name));
  j->n_plans++;
out:
  copse_plan_free(plan);
  return status;
}

static copse_status write_schedule(struct job *j, const struct copse_schedule *schedule,
                                   const char *name) {
  COPSE_AT_END(copse_free_at) char *text = NULL;
  size_t size;
  COPSE_DO(copse_schedule_to_json(schedule, &text, &size, j->err));
  return copse_cli_set_add(&j->set, name, text, size, j->err);
}

/* ---- the table and the index -------------------------------------------------------------- */

static const char *most_of(const struct copse_candidate_range *range, const char *any,
                           char text[24]) {
  if (range->max_bytes == INT64_MAX) return any;
  snprintf(text, 24, "%" PRIu64, range->max_bytes);
  return text;
}

/* What a range's first and last message take, of the sizes that are compared, and at least, the
 * first also with the optimum for long ones; and how much slower its plan is than what there was
 * before anything was down. */
struct range_times {
  double at[2], us[2], bound_us[2], optimal_us;
  double part; /* 0: no slower, or nothing to compare with */
  uint64_t bytes;
  const char *by; /* the plan of before */
};

static void add_to_table(struct job *j, const struct copse_candidate_range *range,
                         const struct range_times *times) {
  const struct copse_candidate *it = &j->candidates.list[range->candidate];
  copse_text_add(&j->table, "%-14s %12" PRIu64 " %12s %6d %12.6g %12s %12s %12.6g  %s\n",
                 label_of(it->schedule, (char[40]){0}), range->min_bytes,
                 most_of(range, "any", (char[24]){0}), it->hops, times->us[0],
                 copse_gap_text(times->us[0], times->bound_us[0], (char[COPSE_GAP_TEXT]){0}),
                 copse_gap_text(times->us[1], times->bound_us[1], (char[COPSE_GAP_TEXT]){0}),
                 times->optimal_us, it->name);
}

static void add_slower(struct job *j, const struct copse_candidate_range *range, double part,
                       uint64_t bytes, const char *than) {
  copse_text_add(&j->losses,
                 "%s from %" PRIu64 " bytes: up to %.1f %% slower (at %" PRIu64 " bytes) than %s",
                 label_of(j->candidates.list[range->candidate].schedule, (char[40]){0}),
                 range->min_bytes, 100 * part, bytes, than);
}

/* Explains why a plan that is not the fastest was taken, by how much, and if slower than before. */
static void add_losses(struct job *j, const struct copse_candidate_range *range,
                       const struct range_times *before) {
  const struct copse_candidate *list = j->candidates.list;
  if (range->loss > WORTH_SAYING) {
    add_slower(j, range, range->loss, range->loss_bytes, list[range->fastest].name);
    if (list[range->candidate].kept && !list[range->fastest].kept)
      copse_text_add(&j->losses, ", for being kept\n");
    else if (range->fewer_hops > 0 && range->loss <= MOST_LOSS)
      copse_text_add(&j->losses, ", for %d hop%s less\n", range->fewer_hops,
                     COPSE_S(range->fewer_hops));
    else
      copse_text_add(&j->losses, ", which would be one plan more, or begins or ends close by\n");
  }
  if (before->part <= WORTH_SAYING) return;
  add_slower(j, range, before->part, before->bytes, before->by);
  copse_text_add(&j->losses, " was with nothing down\n");
}

/* Lists sizes of a range, as MOST_OF_RANGE has them. */
static int sizes_of(const struct copse_candidate_range *range, double bytes[MOST_OF_RANGE]) {
  uint64_t first = range->min_bytes > SMALLEST ? range->min_bytes : SMALLEST,
           last = range->max_bytes < LARGEST ? range->max_bytes : LARGEST;
  int n = 0;
  bytes[n++] = (double)first;
  for (uint64_t size = SMALLEST; size < last; size *= 2)
    if (size > first) bytes[n++] = (double)size;
  if (last > first) bytes[n++] = (double)last;
  return n;
}

/* Returns the earlier plan for so many bytes, as a candidate of the healthy topology; -1: none. */
static int served_before(const struct job *j, double bytes) {
  for (int i = 0; i < j->n_before; i++)
    if (bytes >= (double)j->before[i]->header.min_bytes &&
        bytes <= (double)j->before[i]->header.max_bytes)
      return i;
  return -1;
}

/* Finds where the plan is slowest beside what the messages took before, with nothing down. */
static copse_status compare_before(const struct job *j, const struct copse_candidate_range *range,
                                   struct range_times *loss) {
  double bytes[MOST_OF_RANGE], us[MOST_OF_RANGE];
  int n = sizes_of(range, bytes);
  loss->part = 0;
  if (j->n_before == 0) return COPSE_OK;
  COPSE_DO(copse_candidates_time_of(&j->candidates, range->candidate, bytes, n, us, j->err));
  for (int i = 0; i < n; i++) {
    double was;
    int by = served_before(j, bytes[i]);
    if (by < 0) continue;
    COPSE_DO(copse_candidates_time_of(&j->healthy, by, &bytes[i], 1, &was, j->err));
    double part = us[i] / was - 1;
    if (part <= loss->part) continue;
    loss->part = part;
    loss->bytes = (uint64_t)bytes[i];
    loss->by = j->before[by]->name;
  }
  return COPSE_OK;
}

static void add_to_index(struct job *j, const struct copse_candidate_range *range,
                         const struct range_times *times, const char *stem) {
  const struct copse_candidate *it = &j->candidates.list[range->candidate];
  const struct copse_schedule *s = it->schedule;
  copse_text_add(&j->index, "%s\n  {\"collective\": \"%s\", ", j->index.size ? "," : "",
                 copse_collective_name(s->collective));
  if (copse_collective_rooted(s->collective)) copse_text_add(&j->index, "\"root\": %d, ", s->root);
  copse_text_add(&j->index,
                 "\"min_bytes\": %" PRIu64
                 ", \"max_bytes\": %s,\n"
                 "   \"plan\": \"%s.plan\", \"schedule\": \"%s.json\",",
                 range->min_bytes, most_of(range, "null", (char[24]){0}), stem, stem);
  if (it->lower.low_latency)
    copse_text_add(&j->index, " \"low_latency\": true,%s",
                   it->lower.one_hop ? " \"one_hop\": true," : "");
  copse_text_add(&j->index, "\n   \"chosen\": %s, \"time_per_GB\": \"%s\", \"max_height\": %d",
                 copse_cli_quoted(it->name), COPSE_Q_STRING(s->time_per_GB),
                 copse_schedule_height(s));
  if (s->n_trees > 0)
    copse_text_add(&j->index, ", \"mean_height\": %.6g", copse_schedule_mean_height(s));
  copse_text_add(&j->index, ",\n   \"above_fastest\": %.6g", range->loss);
  if (range->loss > 0)
    copse_text_add(&j->index, ", \"fastest\": %s, \"at_bytes\": %" PRIu64 ", \"fewer_hops\": %d",
                   copse_cli_quoted(j->candidates.list[range->fastest].name), range->loss_bytes,
                   range->fewer_hops);
  copse_text_add(&j->index, ",\n   \"predicted\": [");
  for (int i = 0; i < 1 + (times->at[1] > times->at[0]); i++)
    copse_text_add(&j->index, "%s{\"bytes\": %.0f, \"us\": %s, %s}", i > 0 ? ", " : "",
                   times->at[i], COPSE_CLI_NUMBER(times->us[i]),
                   COPSE_CLI_BOUND(times->us[i], times->bound_us[i]));
  copse_text_add(&j->index, "]");
  if (times->part > 0)
    copse_text_add(&j->index, ",\n   \"above_before\": %.6g, \"before_at_bytes\": %" PRIu64,
                   times->part, times->bytes);
  copse_text_append(&j->index, j->difference.data, j->difference.size);
  copse_text_add(&j->index, "}");
}

/* ---- all of them ------------------------------------------------------------------------- */

static copse_status time_range(struct job *j, const struct copse_candidate_range *range,
                               struct range_times *times) {
  const struct copse_candidates *c = &j->candidates;
  const struct copse_schedule *schedule = c->list[range->candidate].schedule;
  double bytes[MOST_OF_RANGE];
  const struct copse_bounds_question question = {schedule->collective, schedule->root, schedule,
                                                 c->predictions[range->candidate].sim.alpha_us};
  times->at[1] = bytes[sizes_of(range, bytes) - 1];
  times->at[0] = bytes[0];
  COPSE_DO(copse_candidates_time_of(c, range->candidate, times->at, 2, times->us, j->err));
  COPSE_DO(copse_candidates_time_of(c, 0, times->at, 1, &times->optimal_us, j->err));
  COPSE_DO(copse_bounds_predict(j->topology, &question, times->at, 2, times->bound_us, j->err));
  return compare_before(j, range, times);
}

static copse_status make_range(struct job *j, const struct copse_candidate_range *range,
                               const struct range_times *times, int number, int n) {
  const struct copse_schedule *schedule = j->candidates.list[range->candidate].schedule;
  char name[80], stem[64];
  copse_progress_report(&j->work->progress, "prove", number, n);
  snprintf(name, sizeof name, "%s.json", stem_of(j, schedule, number, stem));
  COPSE_DO(write_schedule(j, schedule, name));
  snprintf(name, sizeof name, "%s.plan", stem);
  COPSE_DO(write_plan(j, range, name));
  add_to_table(j, range, times);
  add_losses(j, range, times);
  add_to_index(j, range, times, stem);
  return COPSE_OK;
}

/* Lists the candidates, with --verbose. */
static copse_status say_candidates(const struct job *j) {
  static const double bytes[] = {4096, 1 << 20, 1 << 30};
  double us[3];
  for (int i = 0; i < j->candidates.n && copse_cli_asked.verbose; i++) {
    COPSE_DO(copse_candidates_time_of(&j->candidates, i, bytes, 3, us, j->err));
    if (j->candidates.list[i].most_bytes > 0) us[1] = us[2] = INFINITY;
    copse_cli_say(
        "%s by %s: %s us at 4 KiB, %s at 1 MiB, %s at 1 GiB (null: not for so many bytes)",
        label_of(j->candidates.list[i].schedule, (char[40]){0}), j->candidates.list[i].name,
        COPSE_CLI_NUMBER(us[0]), COPSE_CLI_NUMBER(us[1]), COPSE_CLI_NUMBER(us[2]));
  }
  return COPSE_OK;
}

/* Returns which rank an old plan's root is now; -1: its GPU is down. */
static int root_now(const struct job *j, const struct copse_plan_header *old) {
  const struct copse_topology *was = j->whole, *t = j->topology;
  if (old->root < 0 || old->n_ranks != (uint32_t)was->n_ranks) return old->root;
  int node = copse_topology_find(t, was->nodes[was->rank_nodes[old->root]].id);
  return node < 0 ? -1 : t->nodes[node].rank;
}

/* ---- what the job has, as schedules ------------------------------------------------------- */

/* Adds an old plan to `healthy`, as it was lowered from its schedule, where that can be found. */
static copse_status take_before(struct job *j, const struct copse_cli_plan *old, bool *foreign) {
  struct copse_candidates *h = &j->healthy;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *s = NULL;
  struct copse_lower_options lower = j->o->lower;
  bool known = false;
  if (!old->schedule || h->n == COPSE_MAX_CANDIDATES) return COPSE_OK;
  COPSE_DO(copse_schedule_load(old->schedule, &s, j->err));
  copse_status made_for = copse_cli_check_made_for(j->whole, old->schedule, s, j->err);
  *foreign = made_for != COPSE_OK;
  COPSE_DO(made_for);
  COPSE_DO(copse_schedule_expand(s, j->err));
  if (s->n_copying == 0 && s->n_adding == 0 && copse_schedule_has_nodes_of(s, h->topology))
    COPSE_DO(
        copse_lower_find(s, &old->header, old->parts, &j->work->arena, &lower, &known, j->err));
  if (!known) return COPSE_OK;
  lower.min_bytes = 0;
  if (lower.low_latency && !lower.one_hop) /* one hop is cut by the largest message */
    lower.max_bytes = (int64_t)LARGEST_PACKETS;
  lower.pipeline_chunks = (int)old->header.pipeline_chunks; /* else by the height, at all ranks */
  COPSE_DO(copse_schedule_place(s, h->topology, j->err));
  struct copse_schedule *taken = s;
  s = NULL;
  COPSE_DO(copse_candidates_add(h, taken, old->name, &lower, j->err));
  if (lower.low_latency) h->list[h->n - 1].most_bytes = (uint64_t)lower.max_bytes;
  j->before[j->n_before++] = old;
  return COPSE_OK;
}

/* Finds what is best with nothing down: of the plans that the job has, or else, where parts are
 * down, found. With --keep plans of another cluster are an error. */
static copse_status find_healthy(struct job *j, const struct copse_solve_options *options) {
  struct copse_solve_seconds ignored;
  j->n_before = 0;
  COPSE_DO(copse_candidates_begin(j->whole, &j->whole_predicted, &j->healthy, j->err));
  for (int i = 0; i < j->n_old; i++) {
    bool foreign = false;
    if (j->old[i].header.collective != (uint32_t)options->collective) continue;
    if (options->root >= 0 && root_now(j, &j->old[i].header) != options->root) continue;
    copse_status status = take_before(j, &j->old[i], &foreign);
    if (status != COPSE_OK && (j->o->keep || !foreign)) return status;
  }
  bool known = j->n_before > 0 || j->o->keep || !j->work->whole;
  if (known || !copse_topology_has_ranks_of(j->topology, j->whole)) return COPSE_OK;
  copse_candidates_free(&j->healthy);
  COPSE_DO(copse_candidates_make(j->work->whole, options, &j->whole_predicted, &j->healthy,
                                 &ignored, j->err));
  j->healthy.limits.search_work *= j->o->search;
  return copse_candidates_search(&j->healthy, NULL, options,
                                 j->o->no_low_latency ? 0 : LARGEST_PACKETS, j->err);
}

/* Marks a candidate as kept where some rank has its part of the plan already. */
static copse_status find_kept(struct job *j, struct copse_candidate *it) {
  struct copse_cli_plan plan;
  uint32_t same;
  COPSE_DO(copse_lower_digest(it->schedule, &it->lower, &j->work->arena, &plan.header, &plan.parts,
                              j->err));
  (void)find_like(j, &plan.header, plan.parts, &same);
  it->kept = same > 0;
  return COPSE_OK;
}

/* Adds what was taken for a root that symmetries take to this one; *like: all that there was for
 * it; NULL: there is none. */
static copse_status adopt_like(struct job *j, int root, const struct copse_candidates **like) {
  *like = NULL;
  for (int m = 0; m < j->n_models && !*like; m++)
    for (int i = 1; i < j->models[m].orbit.n && !*like; i++) {
      if (j->models[m].orbit.members[i] != j->topology->rank_nodes[root]) continue;
      *like = &j->models[m].candidates;
      COPSE_DO(copse_candidates_adopt_images(&j->candidates, *like, j->models[m].taken,
                                             j->models[m].orbit.images[i], j->err));
    }
  return COPSE_OK;
}

/* Keeps the candidates for roots that are alike. */
static copse_status keep_model(struct job *j, int root, const struct copse_candidate_range *ranges,
                               int n) {
  COPSE_AT_END(copse_symmetry_free) struct copse_symmetry symmetry = {0};
  struct model *it = &j->models[j->n_models];
  if (root < 0 || j->n_roots == 1 || j->work->whole || j->o->keep) return COPSE_OK;
  COPSE_DO(copse_topology_symmetry(j->topology, &symmetry, j->err));
  j->n_models++;
  COPSE_DO(copse_orbit_find(&symmetry, j->topology->n_nodes, j->topology->rank_nodes[root],
                            &it->orbit, j->err));
  for (int i = 0; i < n; i++) it->taken[ranges[i].candidate] = true;
  it->candidates = j->candidates;
  if (it->candidates.options.routes) it->candidates.options.routes = &it->candidates.routes;
  j->candidates = (struct copse_candidates){0};
  return COPSE_OK;
}

static void free_models(struct job *j) {
  for (int m = 0; m < j->n_models; m++) {
    copse_candidates_free(&j->models[m].candidates);
    copse_orbit_free(&j->models[m].orbit);
  }
  j->n_models = 0;
}

/* Makes the candidates. With --keep there is no search where something can be kept. */
static copse_status make_candidates(struct job *j, const struct copse_solve_options *options,
                                    const struct copse_candidates **like) {
  struct copse_candidates *c = &j->candidates;
  struct copse_solve_seconds ignored;
  COPSE_DO(find_healthy(j, options));
  COPSE_DO(copse_candidates_make(j->topology, options, &j->predicted, c, &ignored, j->err));
  c->limits.search_work *= j->o->search;
  c->limits.more_work *= j->o->search;
  COPSE_DO(adopt_like(j, options->root, like));
  const int n = c->n;
  if (copse_prediction_is_coarse(&c->predictions[0]))
    copse_note(&copse_cli_notes, "%s: no search for sizes and no packets: %s",
               copse_collective_name(options->collective), c->predictions[0].instead);
  if (copse_topology_has_ranks_of(j->topology, j->whole) && (j->o->keep || j->work->whole))
    COPSE_DO(copse_candidates_adopt(c, &j->healthy, j->o->keep, j->err));
  for (int i = n; i < c->n && j->o->keep; i++) COPSE_DO(find_kept(j, &c->list[i]));
  if (j->o->keep && c->n == n)
    copse_note(&copse_cli_notes, "plans of %s can't be kept with what is down: made anew",
               copse_collective_name(options->collective));
  for (int i = 0; i < j->n_before && c->n > n && j->o->keep; i++)
    if (j->healthy.list[i].left_out)
      copse_note(&copse_cli_notes,
                 "%s can't be kept: with what is down there is no schedule of its trees",
                 j->before[i]->name);
  const struct copse_candidates *healthy = j->work->whole ? &j->healthy : NULL;
  const bool searches = !j->o->keep || c->n == n;
  const uint64_t packets = j->o->no_low_latency ? 0 : LARGEST_PACKETS;
  if (!*like && searches) COPSE_DO(copse_candidates_search(c, healthy, options, packets, j->err));
  if (packets > 0) COPSE_DO(copse_candidates_packets(c, packets, j->err));
  return searches ? copse_candidates_search_more(c, *like, options, packets, j->err) : COPSE_OK;
}

static copse_status make_collective(struct job *j, copse_collective collective, int root) {
  struct copse_solve_options options = {.collective = collective,
                                        .root = root,
                                        .tolerance = COPSE_Q_ZERO,
                                        .label = copse_cli_topology_label(&j->o->topology),
                                        .progress = &j->work->progress};
  struct copse_candidate_range ranges[2 * COPSE_MAX_RANGES];
  struct range_times times[2 * COPSE_MAX_RANGES];
  const struct copse_candidates *like;
  int n;
  copse_status status;
  copse_cli_set_default_tolerance(j->topology, &options);
  COPSE_TRY(make_candidates(j, &options, &like));
  COPSE_TRY(say_candidates(j));
  j->candidates.progress = &j->work->progress;
  COPSE_TRY(copse_candidates_ranges(&j->candidates, SMALLEST, LARGEST, ranges, &n, j->err));
  COPSE_TRY(
      copse_candidates_switch(&j->candidates, &options, SMALLEST, LARGEST, ranges, &n, j->err));
  for (int i = 0; i < n; i++) COPSE_TRY(time_range(j, &ranges[i], &times[i]));
  if (j->n_roots == 1) {
    copse_predictions_free(j->candidates.predictions, j->candidates.n); /* room for proofs */
    copse_predictions_free(j->healthy.predictions, j->healthy.n);
  }
  for (int i = 0; i < n; i++) COPSE_TRY(make_range(j, &ranges[i], &times[i], i + 1, n));
  if (!like) COPSE_TRY(keep_model(j, root, ranges, n));
out:
  copse_candidates_free(&j->candidates);
  copse_candidates_free(&j->healthy);
  return status;
}

/* Lists the roots: those of --root, else those of the old plans in rising order, else rank 0. */
static copse_status find_roots(struct job *j, copse_collective collective) {
  COPSE_AT_END(copse_free_at) int *nodes = NULL;
  const char *list = j->o->roots;
  const struct copse_topology *t = j->topology;
  const bool rooted = copse_collective_rooted(collective);
  COPSE_DO(COPSE_ARRAY(&j->work->arena, (size_t)t->n_ranks + 1, j->roots, j->err));
  j->roots[0] = rooted ? 0 : -1;
  if (rooted && list) {
    COPSE_DO(copse_topology_parse_ranks(t, "--root", strcmp(list, "all") == 0 ? "*" : list, &nodes,
                                        &j->n_roots, j->err));
    for (int i = 0; i < j->n_roots; i++) j->roots[i] = t->nodes[nodes[i]].rank;
    return COPSE_OK;
  }
  int n = 0;
  for (int i = 0; rooted && i < j->n_old; i++) {
    int root = root_now(j, &j->old[i].header), k = 0;
    if (j->old[i].header.collective != (uint32_t)collective) continue;
    bool gone = root < 0 || root >= t->n_ranks;
    if (gone && j->old[i].header.min_bytes == 0)
      copse_note(&copse_cli_notes, "%s: its root is no more a rank: no plans of it",
                 j->old[i].name);
    while (k < n && j->roots[k] < root) k++;
    if (gone || (k < n && j->roots[k] == root)) continue;
    memmove(j->roots + k + 1, j->roots + k, (size_t)(n++ - k) * sizeof *j->roots);
    j->roots[k] = root;
  }
  j->n_roots = n > 0 ? n : 1;
  return COPSE_OK;
}

static copse_status finish(struct job *j) {
  struct copse_text *text = &j->work->text;
  copse_text_add(text,
                 COPSE_JSON_HEAD("plans") ", \"topology\": %s, \"nranks\": %d,%s%s%s\n"
                 " \"ranges\": [%s\n ]}\n",
                 copse_cli_quoted(j->topology->name), j->topology->n_ranks,
                 j->o->from ? " \"since\": " : "",
                 j->o->from ? copse_cli_quoted(j->o->from) : "", j->o->from ? "," : "",
                 j->index.data ? j->index.data : "");
  COPSE_DO(copse_text_status(&j->index, j->err));
  COPSE_DO(copse_text_status(text, j->err));
  COPSE_DO(copse_cli_set_add(&j->set, "index.json", text->data, text->size, j->err));
  COPSE_DO(copse_cli_set_place(&j->set, j->err));
  if (j->o->json) {
    fputs(text->data, stdout);
  } else {
    COPSE_DO(copse_text_status(&j->table, j->err));
    COPSE_DO(copse_text_status(&j->losses, j->err));
    COPSE_DO(copse_text_status(&j->changes, j->err));
    printf("%-14s %12s %12s %6s %12s %12s %12s %12s  %s\n", "collective", "from bytes", "to",
           "hops", "us there", "above bound", "at the end", "optimal", "schedule");
    printf("%s%s%s%d plan%s for %s in %s, all proved%s\n", j->table.data,
           j->losses.data ? j->losses.data : "", j->changes.data ? j->changes.data : "", j->n_plans,
           COPSE_S(j->n_plans), j->topology->name, j->o->output,
           j->o->by_default && !j->o->from ? " (-c makes those of broadcast, reduce and alltoall)"
                                           : "");
  }
  return COPSE_OK;
}

static copse_status make_all(struct job *j) {
  COPSE_DO(copse_cli_set_begin(j->o->output, ".plan", &j->set, j->err));
  for (int c = 0; c <= COPSE_ALLTOALL; c++) {
    if (!j->wanted[c]) continue;
    COPSE_DO(find_roots(j, (copse_collective)c));
    COPSE_DO(COPSE_ARRAY(&j->work->arena, (size_t)j->n_roots, j->models, j->err));
    for (int i = 0; i < j->n_roots; i++)
      COPSE_DO(make_collective(j, (copse_collective)c, j->roots[i]));
    free_models(j);
  }
  copse_cli_progress_end();
  return finish(j);
}

static copse_status make_plans(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  COPSE_AT_END(copse_baseline_shared_free) struct copse_baseline_shared shared = {0};
  COPSE_AT_END(copse_baseline_shared_free) struct copse_baseline_shared of_whole = {0};
  struct job j = {.o = o, .work = w, .predicted = copse_predict_defaults, .err = &w->err};
  memcpy(j.wanted, o->wanted, sizeof j.wanted);
  j.predicted.lower = o->lower;
  COPSE_DO(copse_cli_costs(&o->topology, &o->costs, &j.predicted, &w->err));
  if (o->from) COPSE_DO(copse_cli_read_plans(o->from, &o->lower, w, &j.old, &j.n_old, &w->err));
  if (o->from && o->by_default) memset(j.wanted, 0, sizeof j.wanted);
  for (int i = 0; i < j.n_old && o->by_default; i++) j.wanted[j.old[i].header.collective] = true;
  w->place = copse_cli_topology_label(&o->topology);
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  j.topology = w->topology;
  j.whole = w->whole ? w->whole : w->topology;
  j.predicted.shared = &shared;
  j.whole_predicted = j.predicted;
  j.whole_predicted.shared = w->whole ? &of_whole : &shared;
  copse_status status = make_all(&j);
  free_models(&j); /* where it failed */
  copse_cli_set_end(&j.set);
  copse_text_free(&j.index);
  copse_text_free(&j.table);
  copse_text_free(&j.losses);
  copse_text_free(&j.changes);
  copse_text_free(&j.difference);
  return status;
}

/* ---- options ----------------------------------------------------------------------------- */

static int check(struct options *o, int n_left, char *const *left) {
  bool any = false;
  int bad = copse_cli_take_topology(&o->topology, "plans", n_left, left);
  if (bad) return bad;
  if (!o->output) return copse_cli_usage("plans", "name the folder with -o");
  if (o->keep && !o->from) return copse_cli_usage("plans", "--keep is for --from");
  if (o->roots && !o->wanted[COPSE_BROADCAST] && !o->wanted[COPSE_REDUCE])
    return copse_cli_usage("plans", "--root is for broadcast and reduce");
  for (int c = 0; c <= COPSE_ALLTOALL; c++) any = any || o->wanted[c];
  o->by_default = !any;
  for (int c = COPSE_ALLGATHER; c <= COPSE_ALLREDUCE && !any; c++) o->wanted[c] = true;
  return COPSE_EXIT_DONE;
}

static int run(void *arguments, int n_left, char **left) {
  int bad = check(arguments, n_left, left);
  return bad ? bad : copse_cli_do(make_plans, arguments);
}

static int take_collectives(void *options, const char *command, char *value) {
  return copse_cli_take_collectives(command, value, ((struct options *)options)->wanted);
}

static int take_instances(void *options, const char *command, char *value) {
  return copse_cli_take_instances(command, value, &((struct options *)options)->lower.instances);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const char *const automatic[] = {"auto", NULL};
static const struct copse_option own[] = {
    {"--collective", 'c', "C",
     "one or more of allgather, reduce_scatter, allreduce, broadcast, reduce,\n"
     "alltoall: with commas between, or several times (default: allreduce,\n"
     "allgather and reduce_scatter)",
     .words = copse_cli_collectives, .take = take_collectives, .common = true},
    {"--root", 'r', "LIST",
     "the roots of a broadcast or reduce, a set of plans for each: 0,4-7, ids\n"
     "of GPUs, all (default: those of --from, else 0)",
     TO(roots)},
    {"--output", 'o', "FOLDER", "made if it is not there; must hold no plans", TO(output),
     .common = true},
    {"--from", 0, "PLANS",
     "what the job has, before parts went --down: a folder of plans, a plan or\n"
     "a schedule; says which ranks must load what, and which have it; without\n"
     "-c makes plans of the collectives in it",
     TO(from)},
    {"--keep", 0, NULL,
     "keep the plans of --from of which some rank keeps its part, trees that\n"
     "crossed what is down mended, if they are slower than new ones by some\n"
     "10 % at most; needs their schedules beside them; new ones are made without\n"
     "the search, so sooner, and may be slower than those without --keep",
     TO(keep)},
    {"--workers", 'w', "N", "at most N workers per rank (default 32; see 'copse lower')",
     TO(lower.max_workers), COPSE_OPTION_RANGE(1, 1024), .must = "a number up to 1024",
     .common = true},
    {"--instances", 'I', "N",
     "cut each tree into N parts, for more workers (default auto, as\n"
     "'copse lower' has it)",
     .words = automatic, .take = take_instances, .must = "a number, or auto"},
    {"--fifo", 'F', "N", "slots of a staged edge; default 4", TO(lower.fifo),
     COPSE_OPTION_RANGE(1, 64), .must = "a number up to 64"},
    {"--chunk", 'C', "BYTES", "largest chunk; default 524288", TO(lower.chunk_bytes),
     COPSE_OPTION_RANGE(1, INT64_MAX), .bytes = true,
     .must = "a number of bytes, such as 61440 or 64K"},
    {"--search", 0, "F",
     "F times as much work in searches for sizes as by default (1), which is\n"
     "some 10 s for a collective at most; 0: no search, up to some 30 % slower",
     TO(search), COPSE_OPTION_RANGE(0, 1000), .must = "a number from 0 to 1000"},
    {"--no-low-latency", 0, NULL,
     "no plans of packets for messages of up to 256 KiB, nor, below those,\n"
     "of one hop for an allreduce, where all ranks join each other",
     TO(no_low_latency)},
    {"--json", 'j', NULL, "the index on standard output instead of a table", TO(json),
     .common = true},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){
      .lower.instances = COPSE_LOWER_AUTO, .search = 1, .costs = COPSE_CLI_COSTS_INIT};
}

static const char columns[] =
    "The table has for each plan the collective and its root, the sizes it is for (of the\n"
    "whole message, as nccl-tests counts them), its hops from the first send to the last\n"
    "(of both phases of an allreduce, of all stages), the predicted time at the first of\n"
    "the sizes, how far that is above what nothing beats, and so at the last (1 KiB to 1 GiB),\n"
    "the time of the optimum for long messages at the first, and the schedule. docs/solving.md\n"
    "says what each name means, under \"Names of schedules\": \"64K: ..\" was searched for that\n"
    "size, \"stages\" are recursive doubling, \"packets\" carry data and flag together, \"by the\n"
    "switch\" is multicast, beside the others, which serve where it can't.\n";
static const char usage[] =
    "usage: copse plans TOPO -o FOLDER [options]\n\n"
    "Makes plans for all message sizes: for each collective it solves for the optimum, for few\n"
    "trees, the best rings, double binary tree and direct exchange, searches as 'copse solve\n"
    "--objective' for some sizes, longest where most may be gained (--search), finds by 'copse\n"
    "simulate' which is fastest where, in chunks or packets, and lowers, proves and writes\n"
    "those, each with the sizes that it is for. For the\n"
    "sake of few plans one that is predicted within 1 % of the best will do, which is the\n"
    "fastest or, within some 3 % of that, one with fewer hops; what costs more than 1 % is said.\n"
    "The folder is what COPSE_PLAN_DIR and copse_comm_load_plans take; beside each plan is its\n"
    "schedule, and index.json tells all. It is made beside and renamed at the end, so that a call\n"
    "that is interrupted leaves nothing that loads.\n\n";

const struct copse_command copse_cmd_plans = {
    .name = "plans",
    .does = "make a set of plans for all message sizes",
    .usage = usage,
    .example =
        "example: copse plans a100-x2 -c allreduce -o plans\n"
        "         copse plans a100-x2 -c broadcast,reduce --root all -o plans-rooted\n"
        "         copse plans a100-x2 --down h0.nic3 --from plans -o plans-without-nic3\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "More options", .options = own, .after = columns},
                 COPSE_CLI_COSTS_SECTION(struct options, costs),
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
