/*
 * copse lower SCHEDULE --to FORMAT -o FILE: a plan, or a program for another executor.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/policy.h"
#include "codegen/lower/lower.h"
#include "codegen/lower/work.h"
#include "codegen/msccl/lower.h"
#include "codegen/mscclpp/lower.h"
#include "cli/solve_args.h"
#include "cli/topology_args.h"
#include "predict/propose.h"
#include "predict/simulate_programs.h"
#include "schedule/adapt.h"
#include "schedule/chunks.h"
#include "schedule/schedule.h"
#include "base/file.h"

#define BYTES "a number of bytes, such as 1000, 64K or 1G"

struct options {
  const char *input, *output, *to;
  struct copse_cli_topology topology;
  struct copse_lower_options lower;
  struct copse_msccl_options msccl; /* mscclpp takes what it has of these */
  int ranks_per_host;
  int64_t pipeline_bytes; /* -1: not given */
  bool text, json;
  /* an option that only this format has, or both foreign ones; NULL: none was given */
  const char *for_plan, *for_msccl, *for_mscclpp, *for_foreign, *layout;
};

/* Begins to say what has been made; the rest of the line, or of the JSON object, follows. */
static void begin_said(const struct options *o, struct copse_cli_work *w) {
  const struct copse_schedule *s = w->schedule;
  const char *collective = copse_collective_name(s->collective);
  if (o->json)
    copse_text_add(&w->text,
                   "{\"format\": \"%s\", \"collective\": \"%s\", \"topology\": %s, \"nranks\": %d",
                   o->to, collective, copse_cli_quoted(s->topology_name), s->n_ranks);
  else
    copse_text_add(&w->text, "%s of %s: %d rank%s", collective, s->topology_name, s->n_ranks,
                   COPSE_S(s->n_ranks));
}

static copse_status to_plan(const struct options *o, struct copse_cli_work *w) {
  struct copse_lower_options options = o->lower;
  options.min_bytes = o->msccl.min_bytes;
  options.max_bytes = o->msccl.max_bytes;
  if (options.instances == 0) options.instances = COPSE_LOWER_AUTO;
  COPSE_DO(copse_lower_schedule(w->schedule, &options, &w->plan, &w->err));
  if (o->text)
    COPSE_DO(copse_plan_to_text(w->plan, &w->made, &w->made_size, &w->err));
  else
    COPSE_DO(copse_plan_encode(w->plan, &w->made, &w->made_size, &w->err));
  if (!options.low_latency) COPSE_DO(copse_cli_compare_routes(&o->topology, o->output, "", w));
  const struct copse_plan_header *h = &w->plan->header;
  uint32_t each = 0; /* workers of a rank, at most */
  for (uint32_t r = 0; r < h->n_ranks; r++)
    if (w->plan->ranks[r].n_workers > each) each = w->plan->ranks[r].n_workers;
  if (o->json)
    copse_text_add(&w->text, ", \"workers\": %u, \"operations\": %u, \"channels\": %u", each,
                   h->n_ops, h->n_channels);
  else
    copse_text_add(&w->text, ", %u worker%s each, %u operation%s, %u channel%s", each,
                   COPSE_S(each), h->n_ops, COPSE_S(h->n_ops), h->n_channels,
                   COPSE_S(h->n_channels));
  if (o->json) copse_cli_add_routes(w);
  copse_text_add(&w->text, o->json ? ", \"bytes\": %zu}\n" : ", %zu bytes\n", w->made_size);
  return COPSE_OK;
}

/* Sizes at which programs are compared; the last one stands for long messages. */
static const double compared[] = {1 << 20, 16 << 20, 1 << 30};
static const char *const compared_names[] = {"1 MiB", "16 MiB", "1 GiB"};
enum { COMPARED = sizeof compared / sizeof *compared, LONG = COMPARED - 1 };

/* Predicts an MSCCL program where the topology is known; us[COMPARED] or NULL. */
static copse_status time_msccl(struct copse_cli_work *w, const char *text, size_t size, bool quick,
                               struct copse_prediction *it, double *us) {
  *it = (struct copse_prediction){.time_per_GB = w->schedule->time_per_GB};
  if (!w->topology) return COPSE_OK;
  return copse_predict_msccl(text, size, w->topology, compared, us ? COMPARED : 0, quick, it, us,
                             &w->err);
}

/* ---- where a schedule does not fit MSCCL's limits, or only at a cost: another one ---- */

/* A program that fits. */
struct found {
  char name[COPSE_PROPOSAL_NAME];
  char *text;
  size_t size;
  struct copse_msccl_summary sum;
  struct copse_q time; /* of its schedule */
  double us[COMPARED]; /* with rounding: of trees as simulated, first quickly, which tells those
                          apart that differ much */
};

struct fitting {
  struct copse_cli_work *work;
  const struct copse_msccl_options *options;
  const struct copse_schedule *given;
  struct copse_schedule *first; /* which the proposer needs to its end */
  int peers;   /* of the one at hand, at least, where it is made with fewer of them; else 0 */
  int workers; /* the least with which any fits, where that is asked for; 0: unknown */
  bool only_counted;              /* workers; no program is made */
  bool is_its;                    /* the topology at hand is the schedule's */
  double given_us[COMPARED];      /* of the schedule itself, simulated; 0: unknown */
  bool fits;                      /* the given one does, with a rounding */
  struct found quick, rounded;    /* where it does: quickly simulated, and by all steps */
  struct found *found;            /* [n_found] others */
  size_t n_found, capacity, made; /* bytes of programs that were made */
  double quickest;     /* of LONG, quickly simulated, of those found and the given one; 0: none */
  struct found *taken; /* NULL: the given one is written */
};

static void end_fitting(struct fitting *it) {
  copse_schedule_free(it->first);
  for (size_t i = 0; i < it->n_found; i++) free(it->found[i].text);
  free(it->found);
}

/* Returns us of a long message of so many s per GB, and back. */
static double long_us(double per_GB) { return per_GB * compared[LONG] / 1e3; }
static double per_GB(const double *us) { return us[LONG] * 1e3 / compared[LONG]; }

/* Whether the search goes on: until a program is as fast as any can be, or many were made. What
 * libraries do (chains, all data over each link) is no better than trees in place of rounded ones.
 */
static bool wants_more(void *context, enum copse_proposal_kind kind, const char *name) {
  const struct fitting *it = context;
  const struct copse_schedule *best = it->first ? it->first : it->given;
  double enough = it->given->n_flows > 0 ? ENOUGH_COST_OF_FLOWS : ENOUGH_COST;
  (void)name;
  if (it->fits && kind == COPSE_PROPOSAL_BASELINE) return false;
  return it->n_found == 0 ||
         (it->made < (it->peers > 0 ? 2 : 1) * MOST_MADE &&
          it->quickest > long_us(copse_q_to_double(best->time_per_GB)) * (1 + enough));
}

static double product(const double *us) { return us[0] * us[1] * us[LONG]; }

/* Whether a program may stand in for the given one, whose rounding takes us[]: it takes less for
 * long messages, and no size loses more by it than those gain, nor all together; `slack`: of these
 * factors. */
static bool may_replace(const double *other, const double *us, double slack) {
  double gain = us[LONG] / other[LONG] * slack, loss = 1;
  for (int i = 0; i < COMPARED; i++) loss = fmax(loss, other[i] / us[i]);
  return gain > 1 + WORTH_REPLACING && loss <= gain && product(other) < product(us) * slack;
}

static int blocks_of(const struct copse_msccl_options *o) {
  return o->max_blocks > 0 ? o->max_blocks : copse_msccl_default_blocks(o);
}

/* Returns how many workers there may be at most, where the options ask for fewer; else 0. */
static int limited_workers(const struct copse_msccl_options *o) {
  int most = copse_msccl_default_blocks(o);
  return o->max_blocks > 0 && o->max_blocks < most ? most : 0;
}

/* Counts how many workers would do for one that does not fit. */
static copse_status count_workers(struct fitting *it, const struct copse_schedule *schedule,
                                  struct copse_err *err) {
  int most = limited_workers(it->options), n;
  if (it->workers > 0) most = it->workers - 1;
  if (it->options->chunks > 0) return COPSE_OK; /* others may do, which advice tries first */
  if (most <= it->options->max_blocks || most < it->peers) return COPSE_OK;
  COPSE_DO(copse_msccl_least_blocks(schedule, it->options, most, &n, err));
  if (n > 0) it->workers = n > it->peers ? n : it->peers;
  return COPSE_OK;
}

static bool is_given(const struct fitting *it, const struct copse_schedule *s) {
  return it->peers == 0 && s->n_trees == it->given->n_trees && s->n_flows == it->given->n_flows &&
         s->k == it->given->k && copse_q_eq(s->time_per_GB, it->given->time_per_GB);
}

/* Finds what messages take, of an alltoall by its links. */
static copse_status time_found(struct fitting *it, struct found *f, bool quick) {
  double per_byte = copse_q_to_double(f->time) * (1 + f->sum.more) / 1e3;
  for (int i = 0; i < COMPARED; i++) f->us[i] = per_byte * compared[i];
  if (it->given->n_flows > 0) return COPSE_OK;
  return time_msccl(it->work, f->text, f->size, quick, &(struct copse_prediction){0}, f->us);
}

/* Keeps its program where it fits and may be the one to take. */
static copse_status try_program(struct fitting *it, const struct copse_schedule *schedule,
                                const char *name, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *text = NULL;
  struct found f = {.time = schedule->time_per_GB};
  struct copse_err why = COPSE_ERR_INIT;
  double least = copse_q_to_double(schedule->time_per_GB);
  bool any = it->quickest > 0;
  /* the one that is known not to fit is often made again */
  if (is_given(it, schedule) || (any && long_us(least) >= it->quickest)) return COPSE_OK;
  copse_status status = copse_lower_msccl(schedule, it->options, &text, &f.size, &f.sum, &why);
  if (status == COPSE_UNSUPPORTED) return any ? COPSE_OK : count_workers(it, schedule, err);
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  it->made += f.size;
  if (it->fits && copse_msccl_serves_usual(&it->rounded.sum) && !copse_msccl_serves_usual(&f.sum))
    return COPSE_OK;
  f.text = text;
  COPSE_DO(time_found(it, &f, true));
  for (size_t i = 0; i < it->n_found; i++) /* k=1 and k=2 may be the same */
    if (memcmp(it->found[i].us, f.us, sizeof f.us) == 0) return COPSE_OK;
  if (it->fits && !may_replace(f.us, it->quick.us, QUICK_ERROR)) return COPSE_OK;
  snprintf(f.name, sizeof f.name, "%s", name);
  COPSE_DO(COPSE_PUSH(it->found, it->n_found, it->capacity, err, f));
  text = NULL;
  if (!any || f.us[LONG] < it->quickest) it->quickest = f.us[LONG];
  return COPSE_OK;
}

static copse_status take_proposal(void *context, struct copse_schedule *schedule, const char *name,
                                  struct copse_err *err) {
  struct fitting *it = context;
  copse_status status = try_program(it, schedule, name, err);
  if (it->first || it->peers > 0)
    copse_schedule_free(schedule);
  else
    it->first = schedule;
  return status;
}

static copse_status take_thinned(void *context, struct copse_schedule *schedule, int peers,
                                 struct copse_err *err) {
  struct fitting *it = context;
  char name[COPSE_PROPOSAL_NAME];
  it->peers = peers;
  snprintf(name, sizeof name, "at most %d peers", peers);
  copse_status status =
      it->only_counted ? count_workers(it, schedule, err) : try_program(it, schedule, name, err);
  copse_schedule_free(schedule);
  return status;
}

/* Tries an alltoall of ranks with fewer peers. */
static copse_status try_thin(struct fitting *it, const struct copse_topology *topology,
                             struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *base = NULL;
  int most = limited_workers(it->options), blocks = blocks_of(it->options);
  COPSE_DO(copse_schedule_borrow(it->given, &base, err));
  COPSE_DO(copse_schedule_place(base, topology, err));
  COPSE_DO(copse_alltoall_thin(base, topology, blocks, take_thinned, it, err));
  it->only_counted = true;
  if (it->fits || it->n_found > 0 || most == 0) return COPSE_OK;
  return copse_alltoall_thin(base, topology, most, take_thinned, it, err);
}

/* Finds out whether the topology is known and the schedule's: else no other one can be found. */
static copse_status find_topology(struct copse_cli_work *w, struct fitting *it) {
  char sha256[COPSE_SHA256_HEX];
  if (!w->topology) return COPSE_OK;
  COPSE_DO(copse_topology_sha256(w->topology, sha256, &w->err));
  it->is_its = strcmp(sha256, w->schedule->topology_sha256) == 0;
  return COPSE_OK;
}

/* Tries what has rotations: repaired, it may have fewer trees than all listed. */
static copse_status try_compact(struct fitting *it, const struct copse_solve_options *solve) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *compact = NULL;
  COPSE_DO(copse_propose_compact(it->work->topology, solve, &compact, &it->work->err));
  return compact ? try_program(it, compact, "compact", &it->work->err) : COPSE_OK;
}

/* Finds fewer trees, rings and the like, where the topology is known to be the schedule's. */
static copse_status find_fitting(struct copse_cli_work *w, struct fitting *it) {
  const struct copse_schedule *s = w->schedule;
  struct copse_solve_options solve = {
      .collective = s->collective, .root = -1, .tolerance = COPSE_Q_ZERO, .progress = &w->progress};
  struct copse_proposer proposer = {
      .solve = &solve, .context = it, .wants = wants_more, .take = take_proposal};
  struct copse_solve_seconds ignored;
  COPSE_DO(find_topology(w, it));
  if (!it->is_its) return COPSE_OK;
  proposer.topology = w->topology;
  solve.healthy = w->whole;
  bool flows = s->collective == COPSE_ALLTOALL;
  if (it->fits && !flows) COPSE_DO(try_compact(it, &solve));
  it->peers = 1;
  if (!it->fits) COPSE_DO(copse_propose_sparse(&proposer, blocks_of(it->options) - 1, &w->err));
  it->peers = 0;
  it->made = 0;
  COPSE_DO(copse_propose(&proposer, &ignored, &w->err));
  if (!wants_more(it, COPSE_PROPOSAL_SOLVED, NULL)) return COPSE_OK;
  if (flows) return try_thin(it, w->topology, &w->err);
  return it->fits ? COPSE_OK : try_compact(it, &solve);
}

/* Says why there is no program, and what to do. */
static copse_status refuse(struct copse_cli_work *w, struct fitting *it, const char *why) {
  const char *name = it->is_its    ? ""
                     : w->topology ? "; or name with -t the topology that it was made for, not "
                                     "another, and lower looks for one that fits"
                                   : "; or name its topology with -t, and lower looks for one that "
                                     "fits";
  char advice[160];
  it->peers = 0;
  COPSE_DO(count_workers(it, w->schedule, &w->err));
  if (it->workers > 0)
    snprintf(advice, sizeof advice, "--workers %d fits", it->workers);
  else
    COPSE_DO(copse_msccl_advise(w->schedule, it->options, advice, sizeof advice, &w->err));
  return copse_fail_at(&w->err, COPSE_UNSUPPORTED, w->place, 0, "%s; %s%s", why, advice, name);
}

/* Returns how much longer one takes than the schedule that was given: per cent. */
static double slower_percent(double time, const struct copse_schedule *s) {
  double given = copse_q_to_double(s->time_per_GB);
  return given > 0 ? 100 * (time / given - 1) : 0;
}

/* Simulates the schedule that was given, where its topology is at hand; no alltoall. */
static copse_status time_given(struct fitting *it) {
  struct copse_cli_work *w = it->work;
  struct copse_err why = COPSE_ERR_INIT;
  if (it->given_us[LONG] > 0 || !it->is_its || it->given->n_flows > 0) return COPSE_OK;
  copse_status status =
      copse_predict(w->topology, it->given, NULL, compared, COMPARED, it->given_us, &why);
  return status == COPSE_NOMEM ? copse_fail(&w->err, status, "%s", why.text) : COPSE_OK;
}

/* "5.4 % slower": a simulated program beside the schedule, at a size. */
enum { COMPARISON = 40, COST = 100 };
static const char *beside(const struct fitting *it, const double *us, int i,
                          char text[COMPARISON]) {
  double more = 100 * (us[i] / it->given_us[i] - 1);
  snprintf(text, COMPARISON, "%.3g %% %s", fabs(more), more < 0 ? "faster" : "slower");
  return fabs(more) < 0.05 ? "as fast" : text;
}

/* Says what long messages lose with a program. */
static const char *cost_of(const struct fitting *it, const double *us, char text[COST]) {
  double more = slower_percent(per_GB(us), it->given);
  if (it->given_us[LONG] > 0)
    snprintf(text, COST, "%s at 1 GiB, simulated beside the schedule itself",
             beside(it, us, LONG, (char[COMPARISON]){0}));
  else
    snprintf(text, COST, "at most %.3g %% slower for long messages", more);
  return it->given_us[LONG] > 0 || more > 1e-7 ? text : "no slower for long messages";
}

/* Whether a rounding may be worth another schedule: not asked for, of messages of any size. */
static bool may_cost(const struct fitting *it, const struct copse_msccl_summary *sum) {
  return sum->rounded && it->given->objective.bytes == 0 && it->options->max_bytes == 0;
}

/* Looks for a schedule that is faster than the given one rounded, where that shows. */
static copse_status replace_rounded(struct copse_cli_work *w, struct fitting *it,
                                    const struct copse_msccl_summary *sum,
                                    struct copse_err *misfit) {
  const struct copse_schedule *s = w->schedule;
  double shows = long_us(copse_q_to_double(s->time_per_GB)) * (1 + ROUNDING_SHOWS);
  COPSE_DO(find_topology(w, it));
  if (!it->is_its) return COPSE_OK;
  it->quick = it->rounded =
      (struct found){.text = w->made, .size = w->made_size, .sum = *sum, .time = s->time_per_GB};
  COPSE_DO(time_found(it, &it->quick, true));
  if (it->quick.us[LONG] <= shows) return COPSE_OK;
  COPSE_DO(time_found(it, &it->rounded, false));
  if (it->rounded.us[LONG] <= shows) return COPSE_OK;
  COPSE_DO(time_given(it));
  snprintf(misfit->text, sizeof misfit->text, "rounded to %d chunks it is %s", sum->multiple,
           cost_of(it, it->rounded.us, (char[COST]){0}));
  it->quickest = it->quick.us[LONG];
  it->fits = true;
  return find_fitting(w, it);
}

COPSE_ORDER(quickest_first, struct found, COPSE_COMPARE(a->us[LONG], b->us[LONG]))

/* Chooses among those that were found, of which the first by quick simulations are simulated by all
 * steps: of the fastest for long messages the one that is so for all sizes. */
static copse_status choose(struct fitting *it) {
  double best = 0;
  size_t n = 0; /* that are simulated by all steps and may be taken; they go first */
  COPSE_SORT(it->found, it->n_found, quickest_first);
  for (size_t i = 0; i < it->n_found && i < MOST_FINALISTS; i++) {
    struct found f = it->found[i];
    if (best > 0 && f.us[LONG] > best * QUICK_ERROR) break;
    COPSE_DO(time_found(it, &f, false));
    if (it->fits && !may_replace(f.us, it->rounded.us, 1)) continue;
    if (best == 0 || f.us[LONG] < best) best = f.us[LONG];
    it->found[i] = it->found[n];
    it->found[n++] = f;
  }
  for (struct found *f = it->found; f < it->found + n; f++)
    if (f->us[LONG] <= best * (1 + ROUNDING_SHOWS) &&
        (!it->taken || product(f->us) < product(it->taken->us)))
      it->taken = f;
  return COPSE_OK;
}

/* Makes the program of the schedule, or of another instead; *misfit has why one was looked for. */
static copse_status make_msccl(struct copse_cli_work *w, struct fitting *it,
                               struct copse_msccl_summary *sum, struct copse_err *misfit) {
  const struct copse_schedule *s = w->schedule;
  copse_status status = copse_lower_msccl(s, it->options, &w->made, &w->made_size, sum, misfit);
  bool none = copse_collective_rooted(s->collective) || s->demand, fits = status == COPSE_OK;
  if (fits && (s->no_forward || none || !may_cost(it, sum))) return COPSE_OK;
  if (!fits && (status != COPSE_UNSUPPORTED || none))
    return copse_fail(&w->err, status, "%s", misfit->text);
  if (fits)
    status = replace_rounded(w, it, sum, misfit);
  else if (s->no_forward)
    it->is_its = true; /* no other will do */
  else
    status = find_fitting(w, it);
  bool skips =
      status == COPSE_UNSUPPORTED || (status == COPSE_OVERFLOW && (fits || it->n_found > 0));
  if (status != COPSE_OK && !skips) return status;
  w->err = (struct copse_err)COPSE_ERR_INIT;
  COPSE_DO(choose(it));
  if (it->taken) {
    free(w->made);
    w->made = it->taken->text;
    w->made_size = it->taken->size;
    it->taken->text = NULL;
    *sum = it->taken->sum;
  }
  if (w->made) return COPSE_OK;
  if (s->n_copying + s->n_adding == 0) return refuse(w, it, misfit->text);
  return copse_fail(&w->err, COPSE_UNSUPPORTED, "%s", misfit->text);
}

/* Notes that another schedule is written, why, and what it costs; of a rounded one also the size
 * that loses most by that. */
static void note_other(const struct copse_schedule *s, const struct fitting *it,
                       const struct copse_err *misfit) {
  const double *us = it->taken->us, *was = it->rounded.us;
  char shorter[80] = "short ones may lose more";
  int worst = us[0] / was[0] > us[1] / was[1] ? 0 : 1;
  if (it->fits && us[worst] > was[worst])
    snprintf(shorter, sizeof shorter, "%d MiB take %.3g %% longer than rounded", worst ? 16 : 1,
             100 * (us[worst] / was[worst] - 1));
  else if (it->fits)
    snprintf(shorter, sizeof shorter, "1 and 16 MiB take no longer than rounded");
  copse_note(&copse_cli_notes,
             "the schedule does not fit MSCCL's limits (%.*s); written is \"%s\", within 2 %% the "
             "fastest found for %s that does: %s, and %s",
             (int)strcspn(misfit->text, ";"), misfit->text, it->taken->name, s->topology_name,
             cost_of(it, us, (char[COST]){0}), shorter);
}

/* Notes where the fabric's own routes make the program slower than the rounded schedule says. */
static copse_status note_msccl_detour(struct copse_cli_work *w, double rounded, double *us) {
  double says = copse_q_to_double(w->schedule->time_per_GB) * rounded;
  COPSE_DO(time_msccl(w, w->made, w->made_size, false, w->columns, us));
  w->n_columns = w->topology ? 1 : 0;
  if (w->unnamed || copse_q_to_double(w->columns->runs_per_GB) > says * (1 + NEAR_COST))
    copse_cli_note_routes(w, "");
  return COPSE_OK;
}

/* Notes what shares are rounded to and adds to links, and what it costs at sizes that are asked
 * for, where that was not said of another schedule. */
static void note_rounding(const struct fitting *it, const struct copse_msccl_summary *sum,
                          const double *us, bool tried) {
  const copse_collective what = it->given->collective;
  const double most = it->options->max_bytes > 0 ? (double)it->options->max_bytes : INFINITY;
  char costs[200] = "", one[COMPARISON];
  size_t n = 0;
  for (int i = COMPARED - 1; i >= 0 && !it->taken && it->given_us[LONG] > 0; i--)
    if (compared[i] >= (double)it->options->min_bytes && compared[i] <= most)
      n += (size_t)snprintf(costs + n, sizeof costs - n, "%s%s at %s",
                            n ? ", " : "; simulated beside the schedule itself the file is ",
                            beside(it, us, i, one), compared_names[i]);
  copse_note(&copse_cli_notes,
             "%sshares are rounded to %d chunk%s of a %s, which adds at most %.3g %% to what any "
             "%s carries%s%s",
             sum->rounded ? "exact shares do not fit MSCCL's limits: " : "", sum->multiple,
             COPSE_S(sum->multiple), what == COPSE_ALLREDUCE ? "message" : "block", 100 * sum->more,
             what == COPSE_ALLTOALL ? "connection of two ranks" : "link", costs,
             tried ? "" : "; a schedule with a smaller --k may lose less");
}

static copse_status to_msccl(const struct options *o, struct copse_cli_work *w) {
  struct copse_msccl_options options = o->msccl;
  struct copse_msccl_summary sum;
  options.max_blocks = o->lower.max_workers;
  options.instances = o->lower.instances;
  struct copse_err misfit = COPSE_ERR_INIT;
  COPSE_AT_END(end_fitting)
  struct fitting other = {.work = w, .options = &options, .given = w->schedule};
  COPSE_DO(make_msccl(w, &other, &sum, &misfit));
  const bool rounded = sum.more > 0 || sum.rounded;
  COPSE_DO(find_topology(w, &other));
  COPSE_DO(time_given(&other));
  double made_us[COMPARED] = {0}, *us = other.taken ? other.taken->us : made_us;
  if (other.taken)
    note_other(w->schedule, &other, &misfit);
  else
    COPSE_DO(note_msccl_detour(w, 1 + sum.more, other.given_us[LONG] > 0 ? us : NULL));
  if (o->json) {
    copse_text_add(&w->text,
                   ", \"thread_blocks\": %d, \"channels\": %d, \"chunks\": %d, \"scratch\": %d, "
                   "\"elements_multiple\": %d, \"rounding_percent\": %.4g",
                   sum.blocks, sum.channels, sum.chunks, sum.scratch, sum.multiple, 100 * sum.more);
    if (other.taken)
      copse_text_add(&w->text, ", \"instead\": %s, \"slower_percent\": %.4g",
                     copse_cli_quoted(other.taken->name),
                     slower_percent(copse_q_to_double(other.taken->time), w->schedule));
    if (other.given_us[LONG] > 0)
      copse_text_add(&w->text, ", \"simulated_percent\": %.4g",
                     100 * (us[LONG] / other.given_us[LONG] - 1));
    if (other.taken) {
      COPSE_DO(time_msccl(w, w->made, w->made_size, false, w->columns, NULL));
      w->n_columns = 1;
    }
    copse_cli_add_routes(w);
    copse_text_add(&w->text, ", \"bytes\": %zu}\n", w->made_size);
  } else {
    copse_text_add(&w->text,
                   ", up to %d thread block%s each, %d channel%s, %d chunk%s "
                   "(%d of scratch), %zu bytes\n",
                   sum.blocks, COPSE_S(sum.blocks), sum.channels, COPSE_S(sum.channels), sum.chunks,
                   COPSE_S(sum.chunks), sum.scratch, w->made_size);
  }
  const copse_collective what = w->schedule->collective;
  const bool tried = what == COPSE_ALLTOALL || misfit.text[0];
  if (rounded) note_rounding(&other, &sum, us, tried);
  if (!rounded && !other.taken && us[LONG] > other.given_us[LONG] * (1 + ROUNDING_SHOWS))
    copse_note(&copse_cli_notes,
               "shares are exact, but the file is %s: its thread blocks and steps",
               cost_of(&other, us, (char[COST]){0}));
  if (!copse_msccl_serves_usual(&sum))
    copse_note(&copse_cli_notes,
               "the executor takes this file only for element counts that are multiples of %d; "
               "--chunks with a power of two%s serves the usual sizes",
               sum.multiple, what == COPSE_ALLTOALL ? "" : ", or a schedule with another --k,");
  return COPSE_OK;
}

/* Lowers to MSCCL++; without --pipeline in pieces where that helps and the format has room. */
static copse_status lower_to_mscclpp(const struct options *o, struct copse_cli_work *w,
                                     struct copse_mscclpp_options *options,
                                     struct copse_mscclpp_summary *sum) {
  const struct copse_schedule *s = w->schedule;
  struct copse_err why = COPSE_ERR_INIT;
  bool chosen = o->pipeline_bytes >= 0;
  if (!chosen && copse_schedule_height(s) > 1 && !copse_schedule_is_group(s)) {
    options->pipeline_bytes = COPSE_CHUNK_BYTES;
    copse_status status = copse_lower_mscclpp(s, options, &w->made, &w->made_size, sum, &why);
    if (status == COPSE_OK) return COPSE_OK;
    if (status != COPSE_UNSUPPORTED) return copse_fail(&w->err, status, "%s", why.text);
  }
  options->pipeline_bytes = chosen ? o->pipeline_bytes : 0;
  COPSE_DO(copse_lower_mscclpp(s, options, &w->made, &w->made_size, sum, &w->err));
  if (why.text[0])
    copse_note(&copse_cli_notes,
               "ranks pass on whole chunks, which costs long messages a multiple: in pieces (%s)",
               why.text);
  return COPSE_OK;
}

static copse_status to_mscclpp(const struct options *o, struct copse_cli_work *w) {
  struct copse_mscclpp_options options = {
      .out_of_place = o->msccl.layout == COPSE_MSCCL_OUT_OF_PLACE,
      .max_blocks = o->lower.max_workers,
      .instances = o->lower.instances,
      .chunks = o->msccl.chunks,
      .ranks_per_host = o->ranks_per_host,
      .min_bytes = o->msccl.min_bytes,
      .max_bytes = o->msccl.max_bytes};
  struct copse_mscclpp_summary sum;
  COPSE_DO(lower_to_mscclpp(o, w, &options, &sum));
  COPSE_DO(copse_cli_compare_routes(
      &o->topology, o->output,
      options.chunks > 0 ? "; shares rounded by --chunks are part of it" : "", w));
  if (o->json) {
    copse_text_add(&w->text,
                   ", \"hosts\": %d, \"thread_blocks\": %d, \"operations\": %d, \"chunks\": %d, "
                   "\"scratch\": %d, \"bytes_multiple\": %lld",
                   sum.hosts, sum.blocks, sum.ops, sum.chunks, sum.scratch,
                   (long long)sum.multiple);
    copse_cli_add_routes(w);
    copse_text_add(&w->text, ", \"bytes\": %zu}\n", w->made_size);
    return COPSE_OK;
  }
  copse_text_add(&w->text,
                 " on %d host%s, %d thread block%s each, at most %d operation%s, "
                 "%d chunk%s (%d of scratch), %zu bytes\n",
                 sum.hosts, COPSE_S(sum.hosts), sum.blocks, COPSE_S(sum.blocks), sum.ops,
                 COPSE_S(sum.ops), sum.chunks, COPSE_S(sum.chunks), sum.scratch, w->made_size);
  copse_note(&copse_cli_notes,
             "the executor takes this plan only for messages that are multiples of %lld bytes",
             (long long)sum.multiple);
  return COPSE_OK;
}

static copse_status lower(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  w->place = copse_file_label(o->input);
  copse_cli_phase("read");
  COPSE_DO(copse_schedule_load(o->input, &w->schedule, &w->err));
  bool plan = strcmp(o->to, "plan") == 0;
  COPSE_DO(copse_lower_check_size(w->schedule, plan ? &o->lower : NULL, w->place, &w->err));
  if (copse_cli_has_topology(&o->topology))
    COPSE_DO(copse_cli_load_for(&o->topology, o->input, "its routes are those of", w));
  else if (!o->lower.low_latency)
    copse_cli_load_named(plan ? MOST_ROUTED_RANKS : MOST_PROGRAMMED_RANKS, w);
  COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
  copse_cli_phase("lower");
  begin_said(o, w);
  bool msccl = strcmp(o->to, "msccl") == 0;
  COPSE_DO(plan ? to_plan(o, w) : msccl ? to_msccl(o, w) : to_mscclpp(o, w));
  COPSE_DO(copse_text_status(&w->text, &w->err));
  COPSE_DO(copse_cli_announce(o->output, w->made_size, "fewer --instances would do", &w->err));
  COPSE_DO(copse_cli_write(o->output, w->made, w->made_size, &w->err));
  if (!copse_cli_is_stdout(o->output)) fputs(w->text.data, stdout);
  return COPSE_OK;
}

/* ---- options ------------------------------------------------------------------------------- */

static int check(const struct options *o) {
  if (!o->to)
    return copse_cli_usage("lower", "name the format with --to plan, --to msccl or --to mscclpp");
  bool plan = strcmp(o->to, "plan") == 0, msccl = strcmp(o->to, "msccl") == 0;
  bool mscclpp = strcmp(o->to, "mscclpp") == 0;
  if (!plan && !msccl && !mscclpp)
    return copse_cli_usage("lower", "unknown format '%.40s'; plan, msccl and mscclpp are there",
                           o->to);
  bool given = copse_cli_has_topology(&o->topology);
  const struct copse_cli_rule rules[] = {
      {(o->topology.n_faults > 0 || o->topology.ranks) && !given,
       "--down, --derate and --ranks change the topology that -t or --synthetic names"},
      {o->for_plan && !plan,
       "--text, --fifo, --chunk, --min-chunk, --pipeline-chunks, --low-latency and "
       "--one-hop are for --to plan"},
      {o->lower.one_hop && !o->lower.low_latency, "--one-hop is for --low-latency"},
      {o->for_msccl && !msccl, "--executor, --channels and --protocol are for --to msccl"},
      {o->for_mscclpp && !mscclpp, "--ranks-per-host and --pipeline are for --to mscclpp"},
      {(o->for_foreign || o->layout) && plan,
       "--chunks and --layout are for --to msccl and --to mscclpp"},
      {mscclpp && o->layout && o->msccl.layout == COPSE_MSCCL_BOTH,
       "an MSCCL++ plan has one --layout, in-place or out-of-place"},
      {!o->output, "name the output with -o"},
      {o->json && copse_cli_is_stdout(o->output),
       "of --json and -o - only one can have standard output"}};
  return COPSE_CLI_CHECK("lower", rules);
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  if (n_left != 1) return copse_cli_usage("lower", "give one schedule file");
  o->input = left[0];
  int bad = check(o);
  return bad ? bad : copse_cli_do(lower, o);
}

static int take_instances(void *options, const char *command, char *value) {
  struct options *o = options;
  if (strcmp(value, "auto") == 0) o->for_plan = "--instances auto";
  return copse_cli_take_instances(command, value, &o->lower.instances);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
#define MARK(member) COPSE_OPTION_MARK(struct options, member)
#define SIZE_TO(member) TO(member), COPSE_OPTION_RANGE(0, INT64_MAX), .bytes = true, .must = BYTES
#define CHUNK_TO(member)                                              \
  TO(member), COPSE_OPTION_RANGE(COPSE_PLAN_ALIGN_BYTES, 1ULL << 40), \
      .bytes = true, .must = "a number of bytes from 16 to 1T"

/* In the order of their enumerations. */
static const char *const executors[] = {"any", "nccl", NULL};
static const char *const protocols[] = {"Simple", "LL", "LL128", NULL};
static const char *const layouts[] = {"both", "in-place", "out-of-place", NULL};
static const char *const formats[] = {"plan", "msccl", "mscclpp", NULL};
static const char *const automatic[] = {"auto", NULL};

static const struct copse_option common[] = {
    {"--to", 0, "FORMAT",
     "plan (the native format), msccl (algorithm XML for MSCCL, its NCCL\n"
     "executor and RCCL) or mscclpp (execution plan JSON for MSCCL++)",
     TO(to), .words = formats, .common = true},
    {"--output", 'o', "FILE", "where to write it (- for standard output)", TO(output),
     .writes = true, .common = true},
    {"--workers", 'w', "N",
     "at most N workers per rank: thread blocks on a GPU, which all\n"
     "must be resident at once (an H100 has 132 SMs); default 32,\n"
     "msccl: 64, or 108 with --executor nccl",
     TO(lower.max_workers), COPSE_OPTION_RANGE(1, 1024), .common = true},
    {"--instances", 'I', "N",
     "cut each tree, or an alltoall's path, into N parts, for more\n"
     "workers; default 1, plan: auto, the fewest with which all workers\n"
     "have about as much to move, 1 of a schedule by --objective",
     .words = automatic, .take = take_instances, .must = "a number, or auto", .common = true},
    {"--topology", 't', "TOPO",
     "say whether the fabric's own routes, which messages take, load links\n"
     "more than the schedule's paths; of msccl, where the schedule does not\n"
     "fit, or a rounding slows it by over 2 %, look for another one;\n"
     "default: the one that the schedule names, if it is in the catalogue\n"
     "or synthetic, also with parts down or slower, and of up to 1024 ranks\n"
     "(msccl, mscclpp: 160)",
     TO(topology.path), .takes = COPSE_KIND_TOPOLOGY},
    {"--min-bytes", 0, "N", "smallest message that it is for (K, M, G: times 1024, ...)",
     SIZE_TO(msccl.min_bytes)},
    {"--max-bytes", 0, "N",
     "largest; default: any; msccl, mscclpp: as far as the executor\n"
     "goes; with --low-latency 256K, at most 16M",
     SIZE_TO(msccl.max_bytes)},
    {"--json", 'j', NULL, "what was made as one JSON object on standard output", TO(json),
     .common = true},
    {0}};

static const struct copse_option of_plan[] = {
    {"--text", 0, NULL, "JSON for people instead of the binary file", TO(text), MARK(for_plan)},
    {"--fifo", 'F', "N", "slots of a staged edge; default 4", TO(lower.fifo),
     COPSE_OPTION_RANGE(1, 64), MARK(for_plan)},
    {"--chunk", 'C', "BYTES", "largest chunk; default 524288", MARK(for_plan),
     CHUNK_TO(lower.chunk_bytes)},
    {"--min-chunk", 0, "BYTES", "smallest chunk for the sake of pipelining; default 32768",
     MARK(for_plan), CHUNK_TO(lower.min_chunk_bytes)},
    {"--pipeline-chunks", 0, "N",
     "chunks to aim for on shorter messages; default 8 for each hop after\n"
     "the first",
     TO(lower.pipeline_chunks), COPSE_OPTION_RANGE(1, 1 << 20), MARK(for_plan)},
    {"--low-latency", 'L', NULL,
     "packets, 4 bytes and a flag each, instead of chunks and signals:\n"
     "for small messages; larger ones than --max-bytes are refused, and\n"
     "--chunk, --fifo and the like have no effect",
     TO(lower.low_latency), MARK(for_plan)},
    {"--one-hop", 0, NULL,
     "with -L, an allreduce in one hop: every rank sends all it has to\n"
     "every other and adds for itself; --max-bytes is 16K if not given,\n"
     "--instances the parts of the message",
     TO(lower.one_hop), MARK(for_plan)},
    {0}};

static const struct copse_option of_foreign[] = {
    {"--chunks", 0, "N",
     "chunks of a rank's block (allreduce: of the message); shares are\n"
     "rounded to them; default: as many as the shares need exactly;\n"
     "msccl: where those do not fit, the number that adds least to links",
     TO(msccl.chunks), COPSE_OPTION_RANGE(1, 32767), MARK(for_foreign)},
    {"--layout", 0, "L",
     "calls that it serves: in-place, out-of-place or (msccl) both;\n"
     "default both, mscclpp: in-place; an alltoall is out-of-place",
     TO(msccl.layout), .words = layouts, .must = "both, in-place or out-of-place", MARK(layout)},
    {0}};

static const struct copse_option of_msccl[] = {
    {"--executor", 0, "E",
     "any: steps that RCCL has as well (s, r, cpy, re, nop); nccl: also\n"
     "rcs, rrs, rrc, which receive and send at once; default any",
     TO(msccl.executor), .words = executors, .must = "any or nccl", MARK(for_msccl)},
    {"--channels", 0, "N", "at most N channels, 1 to 32; default 32", TO(msccl.channels),
     COPSE_OPTION_RANGE(1, 32), MARK(for_msccl)},
    {"--protocol", 0, "P", "Simple, LL or LL128; default Simple", TO(msccl.protocol),
     .words = protocols, .must = "Simple, LL or LL128", MARK(for_msccl)},
    {0}};

static const struct copse_option of_mscclpp[] = {
    {"--ranks-per-host", 0, "N",
     "ranks of one host write to each other's memory, others go through\n"
     "ports; default: by the ids, h3.gpu0 being on host h3",
     TO(ranks_per_host), COPSE_OPTION_RANGE(1, 1 << 20), MARK(for_mscclpp)},
    {"--pipeline", 0, "BYTES",
     "pass data on in pieces of so many bytes, a multiple of 16; 0: whole\n"
     "chunks; default 512K where ranks pass on and the format has room",
     SIZE_TO(pipeline_bytes), MARK(for_mscclpp)},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){.pipeline_bytes = -1};
}

static const char choice[] =
    "The library picks among plans by the message's size: the narrowest range that holds it.\n";

const struct copse_command copse_cmd_lower = {
    .name = "lower",
    .does = "turn a schedule into an executable plan",
    .usage =
        "usage: copse lower SCHEDULE --to FORMAT -o FILE [options]\n\n"
        "Turns a schedule into a plan that 'copse run' and the library execute, or into a program\n"
        "for another executor (allgather, reduce_scatter, allreduce, alltoall).\n\n",
    .example =
        "example: copse lower a100-x2.allreduce.json --to plan -o a100-x2.allreduce.plan\n"
        "         copse lower mi300x.allgather.json --to msccl -o allgather.xml\n",
    .sections = {{.title = "For all formats", .options = common, .after = choice},
                 {.title = "For --to plan", .options = of_plan},
                 {.title = "For --to msccl and --to mscclpp", .options = of_foreign},
                 {.title = "For --to msccl", .options = of_msccl},
                 {.title = "For --to mscclpp", .options = of_mscclpp},
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .takes = COPSE_KIND_SCHEDULE,
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
