/*
 * copse verify SCHEDULE -t TOPO: an exact check that shares no code with the solver, of a schedule
 * or of the index of groups that run at the same time, or of rings and chains. And copse check, the
 * symbolic proof of a plan, and copse expand, which writes a schedule in compact form out in full.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/solve_args.h"
#include "cli/topology_args.h"
#include "codegen/check/proof.h"
#include "codegen/msccl/check.h"
#include "codegen/mscclpp/check.h"
#include "schedule/adapt.h"
#include "topology/words.h"
#include "verify/groups.h"
#include "verify/rings.h"
#include "verify/verify.h"
#include "view/draw_schedule.h"

struct options {
  const char *schedule;
  struct copse_cli_topology topology;
  const char *draw;
  bool json;
};

/* Prints of how many GPUs, where the schedule is not for all of them. */
static void print_ranks(const struct copse_topology *t, int n_gpus) {
  if (t->n_ranks == n_gpus)
    printf("%d ranks%s\n", n_gpus, t->chosen_from ? ", in an order of their own" : "");
  else
    printf("%d of %d GPUs, the others %s\n", t->n_ranks, n_gpus,
           t->others_excluded ? "left out" : "relays");
}

/* Prints "most loaded: GPU 0 of h0 -> h0.nvswitch (GPU's NVLinks, 300 GB/s) and others alike". */
static copse_status print_busiest(const struct copse_topology *t, int src, int dst, bool others,
                                  struct copse_cli_work *w) {
  struct copse_places places;
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  if (src < 0) return COPSE_OK;
  COPSE_DO(copse_places_find(t, &w->arena, &places, &w->err));
  copse_node_words(t, &places, src, &text);
  copse_text_add(&text, " -> ");
  copse_node_words(t, &places, dst, &text);
  for (int e = 0, found = 0; e < t->n_links && !found; e++) {
    const struct copse_link *l = &t->links[e];
    found = l->src == src && l->dst == dst;
    if (found)
      copse_text_add(&text, " (%s, %.6g GB/s)", copse_link_kind(t, e, false),
                     copse_q_to_double(l->bandwidth));
  }
  COPSE_DO(copse_text_status(&text, &w->err));
  printf("most loaded: %s%s\n", text.data, others ? " and others alike" : "");
  return COPSE_OK;
}

static copse_status print_report(const struct copse_schedule *s, const struct copse_topology *t,
                                 int n_gpus, const struct copse_verify_report *r,
                                 struct copse_cli_work *w) {
  bool flows = s->collective == COPSE_ALLTOALL;
  const int64_t n = copse_schedule_count_all(s);
  printf("%s of %s: verified, %" PRId64 " %s%s on ", copse_collective_name(s->collective), t->name,
         n, flows ? "flow" : "tree", COPSE_S(n));
  print_ranks(t, n_gpus);
  printf("%s, ", COPSE_CLI_RATES(r->time_per_GB, s->collective, t->n_ranks));
  if (s->bound.kind == COPSE_BOUND_PHASES)
    printf("reduce_scatter and allgather in turn at least %s s/GB: ", COPSE_CLI_Q(r->bound));
  else
    printf("bound %s s/GB: ", COPSE_CLI_Q(r->bound));
  if (r->optimal)
    printf("optimal\n");
  else if (r->phases_optimal)
    printf("both phases optimal\n");
  else if (r->forests_optimal)
    printf("optimal among all reduce and broadcast forests with common shares, run together\n");
  else
    printf("above it by %.3g %%\n",
           100 * (copse_q_to_double(r->time_per_GB) / copse_q_to_double(r->bound) - 1));
  if (r->on_routes && r->routes_optimal)
    printf("on the fabric's own routes: optimal among trees of such edges\n");
  else if (r->on_routes)
    printf("on the fabric's own routes: no trees of such edges take less than %s s/GB\n",
           COPSE_CLI_Q(r->routes_bound));
  copse_cli_print_bottleneck(t, s);
  return print_busiest(t, r->busiest_links > 0 ? r->busiest_src : -1, r->busiest_dst,
                       r->busiest_links > 1, w);
}

static void print_json(const struct copse_schedule *s, const struct copse_topology *t, int n_gpus,
                       const struct copse_verify_report *r) {
  const bool flows = s->collective == COPSE_ALLTOALL;
  char routes[COPSE_Q_TEXT + 48] = "";
  if (r->on_routes)
    snprintf(routes, sizeof routes, "\"routes_time_per_GB\": \"%s\", \"routes_optimal\": %s, ",
             COPSE_Q_STRING(r->routes_bound), COPSE_CLI_BOOL(r->routes_optimal));
  printf(
      "{\"verified\": true, \"topology\": %s, \"bound_kind\": \"%s\", \"gap_percent\": %s, "
      "\"cut\": [",
      copse_cli_quoted(t->name), copse_cli_bound_kinds[s->bound.kind],
         COPSE_CLI_NUMBER(copse_cli_gap_percent(r->time_per_GB, r->bound)));
  for (int i = 0; i < s->bound.n_cut; i++)
    printf("%s%s", i > 0 ? ", " : "", copse_cli_quoted(s->nodes[s->bound.cut[i]]));
  printf(
      "], \"collective\": \"%s\", \"nranks\": %d, \"gpus\": %d, \"trees\": "
      "%" PRId64
      ", "
      "\"flows\": %" PRId64
      ", "
      "\"time_per_GB\": \"%s\", \"bound_time_per_GB\": \"%s\", \"optimal\": %s, "
      "\"phases_optimal\": %s, \"forests_optimal\": %s, %s\"same_topology\": %s, \"bound_at_us\": "
      "%s, "
      "\"peak_MiB\": %ld}\n",
      copse_collective_name(s->collective), s->n_ranks, n_gpus,
      flows ? 0 : copse_schedule_count_all(s), flows ? copse_schedule_count_all(s) : 0,
      COPSE_Q_STRING(r->time_per_GB), COPSE_Q_STRING(r->bound), COPSE_CLI_BOOL(r->optimal),
      COPSE_CLI_BOOL(r->phases_optimal), COPSE_CLI_BOOL(r->forests_optimal), routes,
      COPSE_CLI_BOOL(r->same_topology),
      COPSE_CLI_NUMBER(s->bound_at ? copse_q_to_double(s->bound_at->us) : NAN), copse_peak_mib());
}

/* Notes that what was checked is of another topology, of this name and checksum, or NULL. */
static void note_other(const struct options *o, const char *made_for, const char *sha256,
                       const struct copse_topology *given) {
  copse_note(&copse_cli_notes, "%s; it is checked against the one given",
             copse_cli_other_topology(&o->topology, o->schedule, made_for, sha256, given,
                                      (char[COPSE_CLI_OTHER_TEXT]){0}));
}

/* Puts the cause before the error where the schedule was made for another topology, or for this one
 * with other parts down. */
static copse_status explain(const struct options *o, struct copse_cli_work *w, copse_status status,
                            const struct copse_err *why) {
  COPSE_AT_END(copse_text_free) struct copse_text faults = {0};
  const struct copse_topology *given = w->topology;
  const char *made_for = w->schedule->topology_name, *file = copse_file_label(o->schedule);
  const char *wrong = why->text + (strncmp(why->text, file, strlen(file)) == 0 ? strlen(file) : 0);
  char sha256[COPSE_SHA256_HEX];
  wrong += wrong > why->text && strncmp(wrong, ": ", 2) == 0 ? 2 : 0;
  copse_cli_faults_between(made_for, given->name, &faults);
  bool whole = faults.size == 0 && made_for;
  if (whole) copse_cli_faults_between(given->name, made_for, &faults);
  COPSE_DO(copse_text_status(&faults, &w->err));
  if (faults.size > 0)
    return copse_fail_at(&w->err, status, file, 0, "it was made for %.100s %s%s (%s)",
                         whole ? made_for : given->name,
                         whole ? "as a whole: leave out" : "with parts down or slower: add",
                         faults.data, wrong);
  COPSE_DO(copse_topology_sha256(given, sha256, &w->err));
  if (!made_for || strcmp(sha256, w->schedule->topology_sha256) == 0)
    return copse_fail(&w->err, status, "%s", why->text);
  return copse_fail_at(&w->err, status, file, 0,
                       "it was made for another topology (%.100s) than %s: %s", made_for,
                       copse_cli_topology_label(&o->topology), wrong);
}

static copse_status check(const struct options *o, struct copse_cli_work *w,
                          struct copse_verify_report *report, struct copse_err *err) {
  COPSE_DO(copse_schedule_choose_ranks(w->schedule, &w->topology, err));
  return copse_verify_schedule(w->schedule, w->topology, copse_file_label(o->schedule), report,
                               err);
}

/* Draws the load of the links, of a schedule that is verified. */
static copse_status draw(const char *path, struct copse_cli_work *w) {
  COPSE_DO(copse_arrangement_make(w->whole ? w->whole : w->topology, &w->arrangement, &w->err));
  COPSE_DO(copse_schedule_expand(w->schedule, &w->err));
  COPSE_DO(copse_schedule_place(w->schedule, w->topology, &w->err));
  COPSE_DO(
      copse_schedule_draw_load(w->schedule, w->topology, w->arrangement, false, &w->text, &w->err));
  return copse_cli_write(path, w->text.data, w->text.size, &w->err);
}

static copse_status verify(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  w->refuted = o->json ? "verified" : NULL;
  copse_cli_phase("read");
  COPSE_DO(copse_schedule_load_claim(o->schedule, &w->schedule, &w->err));
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  int n_gpus = w->topology->n_ranks;
  copse_cli_phase("verify");
  copse_status status = check(o, w, &report, &why);
  copse_cli_progress_end();
  if (status != COPSE_OK) return explain(o, w, status, &why);
  if (!report.same_topology) 
    note_other(o, w->schedule->topology_name, w->schedule->topology_sha256, w->topology);
  bool says = !copse_cli_is_stdout(o->draw);
  if (o->json)
    print_json(w->schedule, w->topology, n_gpus, &report);
  else if (says)
    COPSE_DO(print_report(w->schedule, w->topology, n_gpus, &report, w));
  const struct copse_bound_at *at = w->schedule->bound_at;
  if (!o->json && says && at)
    printf("at %" PRId64 " bytes and %.10g us a hop no schedule takes less than %.10g us\n",
           at->bytes, copse_q_to_double(at->alpha_us), copse_q_to_double(at->us));
  return o->draw ? draw(o->draw, w) : COPSE_OK;
}

/* ---- groups -------------------------------------------------------------------------------- */

typedef copse_status verification(void *options, struct copse_cli_work *w);
static verification verify, verify_groups, verify_rings;

/* Chooses the check: a file is a schedule, or an index of groups, or a certificate of rings. */
static verification *kind_of(const char *path) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  struct stat st;
  /* what can be read only once is a schedule: an index has others beside it */
  if (strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return verify;
  if (copse_file_read(path, &data, &size, NULL) != COPSE_OK) return verify;
  switch (copse_cli_kind_of(data, size)) {
    case COPSE_KIND_RINGS: return verify_rings;
    case COPSE_KIND_GROUPS: return verify_groups;
    default: return verify;
  }
}

static copse_status print_groups(const struct copse_groups *groups, const struct copse_topology *t,
                                 const struct copse_verify_groups_report *r,
                                 struct copse_cli_work *w) {
  int64_t trees = 0, flows = 0;
  for (int g = 0; g < groups->n; g++) {
    const struct copse_schedule *s = groups->members[g].schedule;
    *(s->collective == COPSE_ALLTOALL ? &flows : &trees) += copse_schedule_count_all(s);
  }
  printf("%d group%s of %s: verified, %" PRId64 " tree%s and %" PRId64 " flow%s\n", groups->n,
         COPSE_S(groups->n), t->name, trees, COPSE_S(trees), flows, COPSE_S(flows));
  printf("all at the same time %s s/GB (algbw %.6g GB/s each), bound %s s/GB: ",
         COPSE_CLI_Q(r->time_per_GB), 1 / copse_q_to_double(r->time_per_GB), COPSE_CLI_Q(r->bound));
  if (r->optimal)
    printf("optimal among all trees and flows of these groups that run together\n");
  else
    printf("above it by %.3g %%\n",
           100 * (copse_q_to_double(r->time_per_GB) / copse_q_to_double(r->bound) - 1));
  return print_busiest(t, r->busiest_src, r->busiest_dst, false, w);
}

static void print_groups_json(const struct copse_groups *groups, const struct copse_topology *t,
                              const struct copse_verify_groups_report *r) {
  printf(
      "{\"verified\": true, \"topology\": %s, \"groups\": %d, \"time_per_GB\": \"%s\", "
      "\"bound_time_per_GB\": "
      "\"%s\", \"groups_optimal\": %s, \"same_topology\": %s}\n",
      copse_cli_quoted(t->name), groups->n, COPSE_Q_STRING(r->time_per_GB),
      COPSE_Q_STRING(r->bound), COPSE_CLI_BOOL(r->optimal), COPSE_CLI_BOOL(r->same_topology));
}

static copse_status verify_groups(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct copse_verify_groups_report report;
  struct copse_groups *groups = NULL;
  copse_status status;
  w->refuted = o->json ? "verified" : NULL;
  COPSE_TRY(copse_groups_load(o->schedule, &groups, &w->err));
  COPSE_TRY(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  COPSE_TRY(
      copse_verify_groups(groups, w->topology, copse_file_label(o->schedule), &report, &w->err));
  if (!report.same_topology) 
    note_other(o, groups->topology_name, groups->topology_sha256, w->topology);
  if (o->json)
    print_groups_json(groups, w->topology, &report);
  else
    COPSE_TRY(print_groups(groups, w->topology, &report, w));
out:
  copse_groups_release(groups);
  return status;
}

/* ---- rings and chains ---------------------------------------------------------------------- */

/* Prints a part of rings' certificate; such: what the bound is for. */
static void print_rings_part(const char *what, const char *such,
                             const struct copse_verify_rings_part *p) {
  printf("%s: %d channel%s of %s GB/s: %.10g GB/s, ", what, p->n, COPSE_S(p->n),
         COPSE_CLI_Q(p->speed), copse_q_to_double(p->GBps));
  if (copse_q_eq(p->GBps, p->bound))
    printf("and no set of %s has more", such);
  else
    printf("and no set of %s has more than %s", such, COPSE_CLI_Q(p->bound));
  printf(" (by %s)\n", p->all_orders ? "all orders" : "assignments, which orders may not reach");
}

static void print_rings_json_part(const char *what, const struct copse_verify_rings_part *p) {
  printf(
      ", \"%s\": {\"channels\": %d, \"GBps\": \"%s\", \"bound_GBps\": \"%s\", \"optimal\": %s, "
      "\"all_orders\": %s}",
      what, p->n, COPSE_Q_STRING(p->GBps), COPSE_Q_STRING(p->bound),
      COPSE_CLI_BOOL(copse_q_eq(p->GBps, p->bound)), COPSE_CLI_BOOL(p->all_orders));
}

static copse_status verify_rings(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct copse_verify_rings_report r;
  w->refuted = o->json ? "verified" : NULL;
  COPSE_DO(copse_file_read(o->schedule, &w->data, &w->size, &w->err));
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  COPSE_DO(copse_verify_rings(copse_file_label(o->schedule), w->data, w->size, w->topology, &r,
                              &w->err));
  if (!r.same_topology) note_other(o, NULL, NULL, w->topology);
  if (o->json) {
    printf("{\"verified\": true, \"topology\": %s, \"hosts\": %d, \"gpus\": %d",
           copse_cli_quoted(w->topology->name), r.n_hosts, r.n_gpus / r.n_hosts);
    print_rings_json_part("rings", &r.rings);
    print_rings_json_part("chains", &r.chains);
    printf(", \"same_topology\": %s}\n", COPSE_CLI_BOOL(r.same_topology));
    return COPSE_OK;
  }
  if (r.n_groups > 1)
    printf("rings and chains of %s: verified, %d hosts of %d kinds, %d GPUs\n", w->topology->name,
           r.n_hosts, r.n_groups, r.n_gpus);
  else
    printf("rings and chains of %s: verified, %d host%s of %d GPUs\n", w->topology->name, r.n_hosts,
           COPSE_S(r.n_hosts), r.n_gpus / r.n_hosts);
  char chains[32] = "chains";
  if (r.n_hosts > 1 && r.n_groups == 1)
    snprintf(chains, sizeof chains, "chains of pattern %d", r.chains.kind);
  if (r.n_groups > 1) snprintf(chains, sizeof chains, "chains of these patterns");
  print_rings_part("rings", "rings", &r.rings);
  print_rings_part("chains", chains, &r.chains);
  return COPSE_OK;
}

/* ---- options ------------------------------------------------------------------------------- */

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  if (n_left != 1) return copse_cli_usage("verify", "give one schedule file");
  if (!copse_cli_has_topology(&o->topology))
    return copse_cli_usage("verify", "name the topology with -t or --synthetic");
  o->schedule = left[0];
  verification *kind = kind_of(o->schedule);
  const struct copse_cli_rule rules[] = {
      {o->draw && kind != verify, "--draw is for one schedule, not for groups or rings"},
      {!copse_cli_may_be(o->draw, ".svg"), "--draw writes SVG: give it a name that ends in .svg"},
      {o->json && copse_cli_is_stdout(o->draw),
       "of --json and --draw - only one can have standard output"}};
  int bad = COPSE_CLI_CHECK("verify", rules);
  return bad ? bad : copse_cli_do(kind, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--topology", 't', "FILE", "the topology, in any input format", TO(topology.path),
     .common = true, .takes = COPSE_KIND_TOPOLOGY},
    {"--draw", 0, "FILE",
     "a picture of the links' loads as SVG, as of 'copse solve' (- for standard output)", TO(draw),
     .writes = true},
    {"--json", 'j', NULL, "the report as one JSON object", TO(json), .common = true},
    {0}};

static const char usage[] =
    "usage: copse verify SCHEDULE -t TOPO [--links MODE] [--draw FILE] [--json]\n\n"
    "Checks a schedule exactly and independently of the solver: trees, order, paths,\n"
    "shares, loads, time, and the bound from its cut; not k, which counts the solver's trees.\n"
    "Exit status 1 if anything is wrong.\n"
    "Of an index.json of 'copse solve --groups' all schedules, and what they load together.\n"
    "Of a certificate of 'copse rings' channels, loads and both bounds.\n\n";

const struct copse_command copse_cmd_verify = {
    .name = "verify",
    .does = "prove a schedule and its bound against a topology",
    .usage = usage,
    .example = "example: copse verify a100-x2.allreduce.json -t a100-x2\n",
    .sections = {{.title = "More options", .options = own},
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .takes = COPSE_KIND_SCHEDULE | COPSE_KIND_GROUPS | COPSE_KIND_RINGS,
    .size = sizeof(struct options),
    .run = run};

/* ==== copse check ========================================================================= */

/* copse check FILE: the symbolic proof of a plan, native or foreign. */

static void print_proof(const struct copse_plan *plan, const struct copse_proof_report *report,
                        bool json) {
  const char *name = copse_collective_name((copse_collective)plan->header.collective);
  if (json)
    printf(
        "{\"proved\": true, \"format\": \"plan\", \"topology\": %s, \"collective\": \"%s\", "
        "\"nranks\": %u, \"workers\": %u, "
        "\"operations\": %u, \"channels\": %u, \"runs\": %d, \"symbolic_operations\": %" PRIu64
        "}\n",
        copse_cli_quoted(plan->name), name, plan->header.n_ranks, plan->header.n_workers,
        plan->header.n_ops, plan->header.n_channels, report->runs, report->operations);
  else
    printf(
        "%s of %s: proved for %u rank%s, %s: result, no deadlock, no race\n"
        "%u operation%s of %u worker%s over %u channel%s, %" PRIu64 " steps followed\n",
        name, plan->name, plan->header.n_ranks, COPSE_S(plan->header.n_ranks),
        plan->header.collective == COPSE_ALLTOALL ? "out of place" : "in place and out of place",
        plan->header.n_ops, COPSE_S(plan->header.n_ops), plan->header.n_workers,
        COPSE_S(plan->header.n_workers), plan->header.n_channels, COPSE_S(plan->header.n_channels),
        report->operations);
}

static copse_status check_plan(const char *label, bool json, struct copse_cli_work *w) {
  struct copse_proof_report report;
  COPSE_DO(copse_plan_decode(label, w->data, w->size, &w->plan, &w->err));
  COPSE_DO(copse_prove_plan(w->plan, label, &report, &w->err));
  print_proof(w->plan, &report, json);
  return COPSE_OK;
}

static void print_msccl(const struct copse_check_msccl_report *r, bool json) {
  const char *layout = !r->in_place      ? "out of place"
                       : r->out_of_place ? "in place and out of place"
                                         : "in place";
  if (json) {
    printf(
        "{\"proved\": true, \"format\": \"msccl\", \"collective\": \"%s\", \"nranks\": %d, "
        "\"thread_blocks\": %d, \"steps\": %d, \"channels\": %d, \"chunks\": %d, "
        "\"in_place\": %s, \"out_of_place\": %s, \"runs_on_rccl\": %s}\n",
        copse_collective_name(r->collective), r->n_ranks, r->n_tbs, r->n_steps, r->n_channels,
        r->chunks, COPSE_CLI_BOOL(r->in_place), COPSE_CLI_BOOL(r->out_of_place),
        COPSE_CLI_BOOL(r->on_rccl));
    return;
  }
  printf("%s (MSCCL XML): proved for %d rank%s, %s: result, no deadlock, no race\n",
         copse_collective_name(r->collective), r->n_ranks, COPSE_S(r->n_ranks), layout);
  printf(
      "%d step%s of %d thread block%s over %d channel%s; runs on %s\n", r->n_steps,
      COPSE_S(r->n_steps), r->n_tbs, COPSE_S(r->n_tbs), r->n_channels, COPSE_S(r->n_channels),
      r->on_rccl ? "MSCCL, its NCCL executor and RCCL" : "MSCCL and its NCCL executor, not RCCL");
}

static copse_status check_msccl(const char *label, bool json, struct copse_cli_work *w) {
  struct copse_check_msccl_report report;
  COPSE_DO(copse_check_msccl(label, w->data, w->size, &report, &w->err));
  if (report.missing)
    copse_note(
        &copse_cli_notes,
        "%s: today's executors refuse it for want of %s=\"...\", which MSCCL once did without",
        label, report.missing);
  print_msccl(&report, json);
  return COPSE_OK;
}

static copse_status check_mscclpp(const char *label, bool json, struct copse_cli_work *w) {
  struct copse_check_mscclpp_report r;
  COPSE_DO(copse_check_mscclpp(label, w->data, w->size, &r, &w->err));
  const char *name = copse_collective_name(r.collective);
  if (json)
    printf(
        "{\"proved\": true, \"format\": \"mscclpp\", \"collective\": \"%s\", \"nranks\": %d, "
        "\"thread_blocks\": %d, \"operations\": %d, \"chunks\": %d, \"in_place\": %s, "
        "\"out_of_place\": %s}\n",
        name, r.n_ranks, r.n_blocks, r.n_ops, r.chunks, COPSE_CLI_BOOL(r.in_place),
        r.in_place ? "false" : "true");
  else
    printf(
        "%s (MSCCL++ JSON): proved for %d rank%s, %s: result, no deadlock, no race\n"
        "%d operation%s of %d thread block%s\n",
        name, r.n_ranks, COPSE_S(r.n_ranks), r.in_place ? "in place" : "out of place", r.n_ops,
        COPSE_S(r.n_ops), r.n_blocks, COPSE_S(r.n_blocks));
  return COPSE_OK;
}

struct check_options {
  const char *file;
  bool json;
};

static copse_status prove(void *options, struct copse_cli_work *w) {
  const struct check_options *o = options;
  const char *label = copse_file_label(o->file);
  w->refuted = o->json ? "proved" : NULL;
  copse_cli_phase("prove");
  COPSE_DO(copse_file_read(o->file, &w->data, &w->size, &w->err));
  switch (copse_cli_kind_of(w->data, w->size)) {
    case COPSE_KIND_MSCCL: return check_msccl(label, o->json, w);
    case COPSE_KIND_MSCCLPP: return check_mscclpp(label, o->json, w);
    default: break;
  }
  switch (w->data[strspn(w->data, " \t\r\n")]) { /* of no known kind: perhaps damaged */
    case '<': return check_msccl(label, o->json, w);
    case '{': return check_mscclpp(label, o->json, w);
    default: return check_plan(label, o->json, w);
  }
}

static int run_check(void *options, int n_left, char **left) {
  if (n_left != 1) return copse_cli_usage("check", "give one file");
  ((struct check_options *)options)->file = left[0];
  return copse_cli_do(prove, options);
}

static const struct copse_option check_own[] = {
    {"--json", 'j', NULL, "the report as one JSON object",
     COPSE_OPTION_TO(struct check_options, json), .common = true},
    {0}};

static const char check_usage[] =
    "usage: copse check FILE [--json]\n\n"
    "Proves a plan for every interleaving: right result at every rank, no deadlock, no race,\n"
    "channels balanced. Exit status 1 with the place of the first defect otherwise. FILE, told\n"
    "apart by content, is a native plan (proved for every message size, in place and out of\n"
    "place), MSCCL algorithm XML or an MSCCL++ execution plan (JSON), of any origin.\n\n";

const struct copse_command copse_cmd_check = {
    .name = "check",
    .does = "prove a plan: right result, no deadlock, no race",
    .usage = check_usage,
    .example =
        "example: copse check a100-x2.allreduce.plan\n"
        "         copse check msccl-algorithms/allreduce.xml\n",
    .sections = {{.title = "More options", .options = check_own}},
    .takes = COPSE_KIND_PLAN | COPSE_KIND_MSCCL | COPSE_KIND_MSCCLPP,
    .size = sizeof(struct check_options),
    .run = run_check};

/* ---- expand -------------------------------------------------------------------------------------
 */

struct expand_options {
  const char *input, *output;
  bool json;
};

static copse_status expand(void *options, struct copse_cli_work *w) {
  const struct expand_options *o = options;
  w->place = copse_file_label(o->input);
  COPSE_DO(copse_schedule_load(o->input, &w->schedule, &w->err));
  struct copse_schedule *s = w->schedule;
  long long listed = s->n_trees + s->n_flows;
  COPSE_DO(copse_schedule_expand(s, &w->err));
  COPSE_DO(copse_cli_write_schedule(o->output, s, NULL, &w->made_size, &w->err));
  if (o->json)
    printf(
        "{\"topology\": %s, \"collective\": \"%s\", \"nranks\": %d, \"listed\": %lld, \"trees\": "
        "%d, \"flows\": %d, \"bytes\": %zu}\n",
        copse_cli_quoted(s->topology_name ? s->topology_name : ""),
        copse_collective_name(s->collective), s->n_ranks, listed, s->n_trees, s->n_flows,
        w->made_size);
  else if (!copse_cli_is_stdout(o->output))
    printf("%lld %s of base ranks became %d, %zu bytes\n", listed,
           s->n_flows > 0 ? "flows" : "trees", s->n_trees + s->n_flows, w->made_size);
  return COPSE_OK;
}

static int run_expand(void *arguments, int n_left, char **left) {
  struct expand_options *o = arguments;
  if (n_left != 1) return copse_cli_usage("expand", "give one schedule file");
  if (!o->output) return copse_cli_usage("expand", "say where to write it with -o");
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("expand", "of --json and -o - only one can have standard output");
  o->input = left[0];
  return copse_cli_do(expand, o);
}

static const struct copse_option expand_own[] = {
    {"--output", 'o', "FILE", "where to write it (- for standard output)",
     COPSE_OPTION_TO(struct expand_options, output), .writes = true, .common = true},
    {"--json", 'j', NULL, "what was written as one JSON object on standard output",
     COPSE_OPTION_TO(struct expand_options, json), .common = true},
    {0}};

static const char expand_usage[] =
    "usage: copse expand SCHEDULE -o FILE [--json]\n\n"
    "Lists every tree or flow of a schedule in compact form (the orbit trees of base ranks and\n"
    "the symmetries that move them). verify reads the compact form as it is; lower and simulate\n"
    "expand it themselves. A schedule that is not compact is written again as it is.\n\n";

const struct copse_command copse_cmd_expand = {
    .name = "expand",
    .does = "write out a compact schedule tree by tree",
    .usage = expand_usage,
    .example = "example: copse expand h100-x128.compact.json -o h100-x128.json\n",
    .sections = {{.title = "More options", .options = expand_own}},
    .takes = COPSE_KIND_SCHEDULE,
    .size = sizeof(struct expand_options),
    .run = run_expand};
