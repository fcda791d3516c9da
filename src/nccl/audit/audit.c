/*
 * Puts bound, NCCL's choice and measurement beside each other and has causes looked for:
 *
 *   bounds (proved)    --\
 *   judge (exact)      ----> rows: bus bandwidth, each as a share of the one before
 *   measurements       --/   causes.c: findings, in falling order of what they cost
 *
 * What the figures are: docs/nccl.md, "What the figures are".
 */
#include "nccl/audit/audit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/types.h"
#include "topology/words.h"

void copse_audit_free(struct copse_audit *audit) {
  copse_arena_free(&audit->arena);
  *audit = (struct copse_audit){0};
}

copse_status copse_audit_add(struct copse_audit *audit, enum copse_audit_step step, double share,
                             const char *what, const char *evidence, const char *mend,
                             struct copse_err *err) {
  if (!what || !evidence || !mend) return copse_fail_nomem(err);
  COPSE_DO(COPSE_GROW_IN(&audit->arena, audit->findings, audit->finding_capacity,
                         (size_t)audit->n_findings + 1, err));
  audit->findings[audit->n_findings++] =
      (struct copse_audit_finding){.what = what,
                                   .evidence = evidence,
                                   .mend = mend,
                                   .step = step,
                                   .share = share > 0 ? fmin(share, 1) : 0,
                                   .within = -1};
  return COPSE_OK;
}

const char *copse_audit_link(const struct copse_audit_input *in, struct copse_audit *audit,
                             int link) {
  const char *words = copse_link_words(in->topology, link, &audit->arena);
  enum copse_guess guess = in->topology->links[link].guess;
  if (!words || guess == COPSE_GUESS_NONE) return words;
  /* "cpu@0 -> cpu@1 (link between sockets, 10 GB/s; a guess: ..)" */
  int n = (int)strlen(words) - 1;
  return copse_arena_printf(&audit->arena, "%.*s; a guess: %s)", n, words,
                            copse_guess_reason(guess));
}

static copse_status add_gap(struct copse_audit *audit, const char *what, const char *command,
                                  struct copse_err *err) {
  if (!what || !command) return copse_fail_nomem(err);
  return COPSE_PUSH_IN(&audit->arena, audit->gaps, audit->n_gaps, audit->gap_capacity, err,
                       (struct copse_audit_gap){what, command});
}

static copse_status add_note(struct copse_audit *audit, const char *note,
                                   struct copse_err *err) {
  if (!note) return copse_fail_nomem(err);
  return COPSE_PUSH_IN(&audit->arena, audit->notes, audit->n_notes, audit->note_capacity, err,
                       note);
}

/* ---- rows ------------------------------------------------------------------------------------ */

double copse_audit_busbw(const struct copse_topology *t, copse_collective collective,
                         struct copse_q time) {
  if (time.num <= 0) return NAN;
  return copse_collective_bus_factor(collective, t->n_ranks) / copse_q_to_double(time);
}

/* Makes the text "Ring, 12 channels x 30 GB/s = 360; its links allow 370.8, gpu0 -> nvswitch (..)
 * is the busiest". */
static const char *verdict_text(const struct copse_audit_input *in, struct copse_audit *audit,
                                const struct copse_nccl_verdict *v,
                                const struct copse_audit_row *row) {
  const struct copse_nccl_graph_search *g = copse_nccl_graph(in->judge->graphs, v->algorithm);
  bool inter = in->machine->n_hosts > 1;
  const char *busiest = v->link < 0 ? "none" : copse_audit_link(in, audit, v->link);
  if (!busiest) return NULL;
  if (v->stated_time.num <= 0)
    return copse_arena_printf(&audit->arena,
                              "%s, %d channels as the log has them; their links allow %.4g, the "
                              "busiest is %s",
                              copse_nccl_algorithm_name(v->algorithm), in->judge->joined.n_channels,
                              row->links, busiest);
  return copse_arena_printf(
      &audit->arena, "%s, %d channel%s x %.4g GB/s %s; its links allow %.4g, the busiest is %s",
      copse_nccl_algorithm_name(v->algorithm), g->n_channels, COPSE_S(g->n_channels),
      copse_q_to_double(inter ? g->speed_inter : g->speed_intra),
      copse_nccl_path_name(inter ? g->type_inter : g->type_intra), row->links, busiest);
}

/* Finds the fastest that was measured of a collective, by tests of these ranks and by Inspector. */
static void find_measured(const struct copse_audit_input *in, struct copse_audit_row *row) {
  for (int i = 0; i < in->n_tests; i++) {
    const struct copse_tests *t = &in->tests[i];
    bool others = t->n_ranks > 0 && t->n_ranks != in->topology->n_ranks;
    for (int r = 0; r < t->n_rows && !others; r++) {
      const struct copse_tests_row *from = &t->rows[r];
      const struct copse_tests_time *const times[] = {&from->out, &from->in};
      copse_collective collective;
      if (!copse_collective_from_name(from->collective, &collective) ||
          collective != row->collective)
        continue;
      for (int k = 0; k < 2; k++) {
        double busbw = times[k]->present ? copse_q_to_double(times[k]->busbw) : 0;
        if (busbw <= 0 || row->measured >= busbw) continue;
        row->measured = busbw;
        row->bytes = from->bytes;
      }
    }
  }
  for (int i = 0; in->calls && i < in->calls->n_calls; i++) {
    const struct copse_recorded_call *call = &in->calls->calls[i];
    double busbw = copse_q_to_double(call->busbw);
    copse_collective collective;
    if (!copse_collective_from_name(call->collective, &collective) ||
        collective != row->collective || call->n_ranks != in->topology->n_ranks || busbw <= 0 ||
        row->measured >= busbw)
      continue;
    row->measured = busbw;
    row->bytes = call->bytes;
  }
}

static copse_status fill_row(const struct copse_audit_input *in, struct copse_audit *audit,
                             const struct copse_audit_bound *bound, struct copse_audit_row *row,
                             struct copse_err *err) {
  const struct copse_topology *t = in->topology;
  struct copse_nccl_verdict v;
  *row = (struct copse_audit_row){.collective = bound->collective,
                                  .bound = copse_audit_busbw(t, bound->collective, bound->time),
                                  .nccl = NAN,
                                  .measured = NAN,
                                  .links = NAN,
                                  .stated = NAN};
  if (bound->n_cut > 0) {
    const char *cut =
        copse_cut_words(bound->topology, bound->cut, bound->n_cut, bound->into, &audit->arena);
    row->cut =
        cut && bound->n_cuts > 1
            ? copse_arena_printf(&audit->arena, "%d cuts, of both phases; of most weight: %s",
                                 bound->n_cuts, cut)
            : cut;
    if (!row->cut) return copse_fail_nomem(err);
  }
  find_measured(in, row);
  if (!in->judge || t->n_ranks < 2) return COPSE_OK;
  COPSE_DO(copse_nccl_judge_choice(in->judge, bound->collective, &v, err));
  row->algorithm = v.algorithm;
  row->links = copse_audit_busbw(t, bound->collective, v.links_time);
  row->stated = copse_audit_busbw(t, bound->collective, v.stated_time);
  row->nccl = copse_audit_busbw(t, bound->collective, copse_nccl_verdict_time(&v));
  row->how = verdict_text(in, audit, &v, row);
  return row->how ? COPSE_OK : copse_fail_nomem(err);
}

/* Adds a remark on sums in switches, which the bound leaves out: it is of data that GPUs add. */
static copse_status add_in_network(const struct copse_audit_input *in, struct copse_audit *audit,
                                   struct copse_err *err) {
  const struct copse_audit_row *row = &audit->rows[0]; /* of allreduce, if it is there */
  bool is_above = audit->n_rows > 0 && row->measured > row->nccl;
  bool taken = copse_nccl_judge_prefers_nvls(in->judge);
  const char *above = is_above ? "; what was measured is above the row's, so by this" : "";
  for (int a = COPSE_NCCL_COLLNET_CHAIN; a < COPSE_NCCL_GRAPHS; a++) {
    enum copse_nccl_graph_id algorithm = (enum copse_nccl_graph_id)a;
    struct copse_nccl_verdict v;
    if (!copse_nccl_judge_has(in->judge, algorithm, COPSE_ALLREDUCE)) continue;
    COPSE_DO(copse_nccl_judge(in->judge, algorithm, COPSE_ALLREDUCE, 0, &v, err));
    COPSE_DO(add_note(
        audit,
        copse_arena_printf(&audit->arena,
                           "%s, which sums in switches (the bound is of sums by GPUs): %.4g GB/s "
                           "stated, its links allow %.4g%s%s",
                           copse_nccl_algorithm_name(algorithm),
                           copse_audit_busbw(in->topology, COPSE_ALLREDUCE, v.stated_time),
                           copse_audit_busbw(in->topology, COPSE_ALLREDUCE, v.links_time), above,
                           taken && algorithm == COPSE_NCCL_NVLS
                               ? "; NCCL's model takes it for long messages"
                               : ""),
        err));
  }
  return COPSE_OK;
}

COPSE_ORDER(by_share, struct copse_audit_finding, COPSE_DOWN(share) ?: strcmp(a->what, b->what))

/* Puts what costs most first; a loss that several findings explain is the first one's. */
static void count_losses(struct copse_audit *audit) {
  double bound = audit->n_rows > 0 && isfinite(audit->rows[0].bound) ? audit->rows[0].bound : 0;
  COPSE_SORT(audit->findings, audit->n_findings, by_share);
  for (int i = 0; i < audit->n_findings; i++) {
    struct copse_audit_finding *f = &audit->findings[i];
    f->cost = f->share * bound;
    for (int k = 0; k < i && f->step != COPSE_STEP_OWN && f->share > 0 && f->within < 0; k++)
      if (audit->findings[k].step == f->step) f->within = k;
  }
}

/* Adds links of the bounds' cuts whose speed is a guess, one for each kind of guess. */
static copse_status add_guesses(const struct copse_audit_input *in, struct copse_audit *audit,
                                struct copse_err *err) {
  bool said[COPSE_GUESS_CLASS + 1] = {false};
  for (int b = 0; b < in->n_bounds; b++)
    for (int i = 0; i < in->bounds[b].n_guessed; i++) {
      int link = in->bounds[b].guessed[i];
      enum copse_guess guess = in->bounds[b].topology->links[link].guess;
      if (said[guess]) continue;
      said[guess] = true;
      const char *text = copse_link_words(in->bounds[b].topology, link, &audit->arena);
      if (!text) return copse_fail_nomem(err);
      COPSE_DO(add_gap(
          audit,
          copse_arena_printf(
              &audit->arena, "whether the bound of %s holds, which rests on a guess: %s has %s",
              copse_collective_name(in->bounds[b].collective), text, copse_guess_reason(guess)),
          copse_guess_remedy(guess), err));
    }
  return COPSE_OK;
}

/* Adds what NCCL misreads of the topology: it may be why its search states less than the links
 * allow. */
static copse_status add_remarks(const struct copse_audit_input *in, struct copse_audit *audit,
                                struct copse_err *err) {
  const struct copse_audit_row *row = &audit->rows[0];
  double lost = audit->n_rows > 0 ? fmin(row->links, row->bound) - row->stated : 0;
  for (int i = 0; i < in->n_remarks; i++)
    COPSE_DO(copse_audit_add(
        audit, COPSE_STEP_STATED,
        lost > 0 && strncmp(in->remarks[i], in->topology_path, strlen(in->topology_path)) == 0
            ? lost / row->bound
            : 0,
        "NCCL reads a file otherwise than it is meant", in->remarks[i],
        copse_arena_printf(&audit->arena, "%s: topo.xml and graph.xml in NCCL's words", in->tune),
        err));
  return COPSE_OK;
}

static copse_status add_gaps(const struct copse_audit_input *in, struct copse_audit *audit,
                             struct copse_err *err) {
  bool measured = false;
  for (int i = 0; i < in->n_doubts; i++)
    COPSE_DO(add_gap(audit, in->doubts[i].what, in->doubts[i].command, err));
  for (int i = 0; i < audit->n_rows; i++) measured = measured || isfinite(audit->rows[i].measured);
  if (!in->judge)
    COPSE_DO(add_gap(
        audit, "what NCCL chose: no graph dump",
        "run the job with NCCL_GRAPH_DUMP_FILE=graph.xml, and give that file too", err));
  if (!measured)
    COPSE_DO(add_gap(
        audit, "what it took: no measured times of these ranks",
        "run all_reduce_perf -b 1K -e 8G -f 2 of nccl-tests on them, and give its output", err));
  if (!in->log)
    COPSE_DO(add_gap(
        audit, "what ran: transports, choices for each size, other groups",
        "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,NET, and give "
        "its output",
        err));
  if (in->nvbandwidth) return COPSE_OK;
  return add_gap(audit, "whether links have the speeds that the topology says",
                       "run nvbandwidth -j, and give its output", err);
}

copse_status copse_audit_make(const struct copse_audit_input *in, struct copse_audit *out,
                              struct copse_err *err) {
  const struct copse_nccl_machine *m = in->machine;
  int hosts = m->n_hosts, ranks = in->topology->n_ranks;
  *out = (struct copse_audit){0};
  out->headline = copse_arena_printf(
      &out->arena, "%s: %d GPU%s on %d host%s, %d NIC%s%s", in->topology->name, ranks,
      COPSE_S(ranks), hosts, COPSE_S(hosts), m->n_ports, COPSE_S(m->n_ports),
      in->repeated ? "; the network between them taken as no limit" : "");
  if (!out->headline) return copse_fail_nomem(err);
  for (int i = 0; i < in->n_bounds; i++)
    COPSE_DO(fill_row(in, out, &in->bounds[i], &out->rows[out->n_rows++], err));
  if (in->judge && ranks > 1) COPSE_DO(add_in_network(in, out, err));
  if (in->judge) COPSE_DO(copse_audit_graph_causes(in, out, err));
  COPSE_DO(copse_audit_measured_causes(in, out, err));
  COPSE_DO(add_remarks(in, out, err));
  COPSE_DO(add_guesses(in, out, err));
  COPSE_DO(add_gaps(in, out, err));
  count_losses(out);
  return COPSE_OK;
}
