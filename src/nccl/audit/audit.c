/*
 * Puts bound, NCCL's choice and measurement beside each other, and finds the causes of the gaps:
 *
 *   bounds (proved)    --\
 *   judge (exact)      ----> rows: bus bandwidth, each as a share of the one before
 *   measurements       --/   findings, in falling order of what they cost
 *
 * Causes here are what the exact loads on links of the ring, or tree, that NCCL takes for an
 * allreduce show; causes_measured.c has the others. docs/nccl.md, "What the figures are" and
 * "Causes that it looks for".
 */
#include "nccl/audit/audit.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/types.h"
#include "nccl/policy.h"
#include "nccl/tune/order.h"
#include "topology/words.h"

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
  const struct copse_audit_row *row = &audit->rows[0]; /* that of allreduce, where n_rows > 0 */
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

/* ---- causes that graphs show ----------------------------------------------------------------- */

struct causes {
  const struct copse_audit_input *in;
  struct copse_audit *audit;
  const struct copse_audit_row *row; /* of allreduce */
  const struct copse_nccl_graph_search *ring;
  struct copse_nccl_verdict verdict; /* of the ring */
  double ring_links, ring_stated;    /* bus bandwidth, GB/s */
  double links;                      /* of what NCCL takes, ring or tree */
  struct copse_err *err;
};

#define say(c, ...) copse_arena_printf(&(c)->audit->arena, __VA_ARGS__)

static double share_of(const struct causes *c, double lost) {
  return c->row->bound > 0 ? lost / c->row->bound : 0;
}

static const char *link_text(const struct causes *c, int link) {
  return copse_audit_link(c->in, c->audit, link);
}

/* Returns what other rings could add to what NCCL takes, as far as that is known. */
static double room(const struct causes *c) {
  const struct copse_nccl_best *best = c->in->best;
  double limit = best && best->ring.n > 0 ? copse_q_to_double(best->ring.GBps) : c->row->bound;
  return fmax(limit - c->links, 0);
}

/* ---- what the search states ------------------------------------------------------------------ */

/* Finds the narrowest way between two GPUs of a channel that follow each other. */
static copse_status find_narrowest(const struct causes *c, int *link, struct copse_q *width) {
  const struct copse_nccl_joined *j = &c->in->judge->joined;
  const struct copse_topology *t = c->in->topology;
  *link = -1;
  for (int ch = 0; ch < j->n_channels; ch++)
    for (int r = 0; r < j->n_ranks; r++) {
      const struct copse_nccl_route *route;
      int next = copse_nccl_role_of(j, ch, r)->next;
      if (c->in->machine->host_of_rank[r] != c->in->machine->host_of_rank[next]) continue;
      COPSE_DO(copse_nccl_find_route(c->in->machine, t->rank_nodes[r], t->rank_nodes[next], &route,
                                     c->err));
      for (int i = 0; i < route->n_hops; i++) {
        struct copse_q b = t->links[route->hops[i].link].bandwidth;
        if (*link >= 0 && copse_q_cmp(b, *width) >= 0) continue;
        *link = route->hops[i].link;
        *width = b;
      }
    }
  return COPSE_OK;
}

/* Returns the slowest speed inside a host that NCCL's search tries for the GPUs, from sm_100 on 18
 * GB/s (2.30). */
static double least_speed(const struct causes *c) {
  const struct copse_topology *t = c->in->topology;
  for (int r = 0; r < t->n_ranks; r++)
    if (t->nodes[t->rank_nodes[r]].sm < 100) return 3;
  return 18;
}

static copse_status find_last_resort(struct causes *c) {
  const struct copse_nccl_graph_search *g = c->ring;
  double speed = copse_q_to_double(g->speed_intra), least = least_speed(c);
  struct copse_q width = COPSE_Q_ZERO;
  int narrowest;
  COPSE_DO(find_narrowest(c, &narrowest, &width));
  bool no_step = narrowest >= 0 && copse_q_to_double(width) < least;
  const char *why =
      no_step ? say(c,
                    "; for these GPUs (sm_100 and up) the search of NCCL tries no speed below %.4g "
                    "GB/s in a host, and %s is on the way",
                    least, link_text(c, narrowest))
              : "";
  return copse_audit_add(
      c->audit, COPSE_STEP_STATED, share_of(c, fmin(c->ring_links, c->row->bound) - c->ring_stated),
      say(c,
          "NCCL's search found nothing and took its last resort: %d channel of %.4g GB/s over %s",
          g->n_channels, speed, copse_nccl_path_name(g->type_intra)),
      say(c,
          "%.4g GB/s of bus bandwidth stated, where the links of this ring allow %.4g and the "
          "fabric %.4g%s",
          c->ring_stated, c->ring_links, c->row->bound, why ? why : ""),
      say(c, "%s: a graph file (NCCL_GRAPH_FILE) with rings that the links carry", c->in->tune),
      c->err);
}

/* Finds a stated speed below what the links allow. Speeds come in steps; the stated one steers
 * NCCL's choice of algorithms, not the data's pace. */
static copse_status find_stated_below(struct causes *c) {
  const struct copse_nccl_graph_search *g =
      copse_nccl_graph(c->in->judge->graphs, c->row->algorithm);
  bool ring = c->row->algorithm == COPSE_NCCL_RING;
  const char *name = ring ? "ring" : "tree";
  double lost = fmin(c->links, c->row->bound) - c->row->stated;
  if (!(c->row->stated > 0)) return COPSE_OK;
  if (ring && g->n_channels == 1 && c->ring_stated < 0.5 * c->ring_links)
    return find_last_resort(c);
  if (share_of(c, lost) < GAP_WORTH) return COPSE_OK;
  return copse_audit_add(
      c->audit, COPSE_STEP_STATED, share_of(c, lost),
      say(c, "the %s is rated below what its links allow", name),
      say(c,
          "%d channel%s x %.4g GB/s state %.4g GB/s of bus bandwidth; the links of these %ss allow "
          "%.4g (NCCL tries speeds in steps)",
          g->n_channels, COPSE_S(g->n_channels),
          copse_q_to_double(c->in->machine->n_hosts > (ring ? 1 : 2) ? g->speed_inter
                                                                     : g->speed_intra),
          c->row->stated, name, c->links),
      say(c, "%s: a graph file with the true speeds", c->in->tune), c->err);
}

/* ---- what its links allow -------------------------------------------------------------------- */

/* What lies between the links of NCCL's choice and the bound: better rings, trees, or neither. */
struct reach {
  double chain, chain_load; /* NCCL's own trees (NAN: it has none), what they put on the link */
  double rings, rings_bound, chains; /* the best, as bus bandwidth; NAN where not known */
  bool tuned_to_trees; /* the tuner's table has trees for long messages with the best graphs */
};

/* Computes what the best rings and chains reach on all links: they are found for hosts whose NICs
 * alone limit them, and the network between hosts may be narrower. */
static copse_status judge_best(const struct causes *c, struct reach *r) {
  const struct copse_topology *t = c->in->topology;
  COPSE_AT_END(copse_nccl_judge_close) struct copse_nccl_judge judge = {0};
  struct copse_nccl_verdict rings, chains;
  COPSE_DO(copse_nccl_judge_open(t->name, c->in->best->graphs, c->in->best->n_hosts, c->in->machine,
                                 &judge, c->err));
  COPSE_DO(copse_nccl_judge(&judge, COPSE_NCCL_RING, COPSE_ALLREDUCE, 0, &rings, c->err));
  COPSE_DO(copse_nccl_judge(&judge, COPSE_NCCL_TREE, COPSE_ALLREDUCE, 0, &chains, c->err));
  r->rings = copse_audit_busbw(t, COPSE_ALLREDUCE, rings.links_time);
  r->chains = copse_audit_busbw(t, COPSE_ALLREDUCE, chains.links_time);
  r->rings_bound = copse_q_to_double(c->in->best->ring.bound);
  struct copse_nccl_model model;
  int algorithm, protocol;
  COPSE_DO(copse_nccl_judge_model(&judge, &model, c->err));
  r->tuned_to_trees =
      copse_nccl_choose(&model, COPSE_TUNER_ALLREDUCE, MODEL_BYTES, &algorithm, &protocol) &&
      algorithm == COPSE_TUNER_TREE;
  return COPSE_OK;
}

static copse_status find_reach(const struct causes *c, struct reach *r) {
  *r = (struct reach){NAN, NAN, NAN, NAN, NAN, false};
  if (c->in->best && c->in->best->ring.n > 0) COPSE_DO(judge_best(c, r));
  if (!copse_nccl_judge_has(c->in->judge, COPSE_NCCL_TREE, COPSE_ALLREDUCE)) return COPSE_OK;
  struct copse_nccl_verdict tree;
  COPSE_DO(copse_nccl_judge(c->in->judge, COPSE_NCCL_TREE, COPSE_ALLREDUCE, 0, &tree, c->err));
  r->chain = copse_audit_busbw(c->in->topology, COPSE_ALLREDUCE, tree.links_time);
  r->chain_load = copse_q_to_double(tree.load[c->verdict.link]);
  return COPSE_OK;
}

static copse_status find_better_rings(struct causes *c, const struct reach *r) {
  const struct copse_nccl_optimum *o = &c->in->best->ring;
  return copse_audit_add(
      c->audit, COPSE_STEP_LINKS, share_of(c, r->rings - c->links),
      "there are better rings for these links",
      say(c,
          "the links of NCCL's rings allow %.4g GB/s, %s is the busiest; %d channels of %.4g GB/s "
          "that fit them have %.4g, and no rings have more than %.4g",
          c->ring_links, link_text(c, c->verdict.link), o->n, copse_q_to_double(o->speed), r->rings,
          r->rings_bound),
      say(c, "%s: a graph file (NCCL_GRAPH_FILE) with those", c->in->tune), c->err);
}

/* Finds chains that are faster than the trees that NCCL takes. */
static copse_status find_better_chains(struct causes *c, const struct reach *r) {
  const struct copse_nccl_optimum *o = &c->in->best->chain;
  double bound = copse_q_to_double(o->bound) *
                 copse_collective_bus_factor(COPSE_ALLREDUCE, c->in->topology->n_ranks);
  return copse_audit_add(
      c->audit, COPSE_STEP_LINKS, share_of(c, r->chains - c->links),
      "there are better chains for these links",
      say(c,
          "the links of NCCL's trees allow %.4g GB/s of bus bandwidth; %d channels of %.4g GB/s "
          "that fit them have %.4g, and no chains of this kind have more than %.4g",
          c->links, o->n, copse_q_to_double(o->speed), r->chains, bound),
      say(c, "%s: a graph file (NCCL_GRAPH_FILE) with those", c->in->tune), c->err);
}

/* Returns the variable; forms for one collective are known from 2.24 on. The ring alone is switched
 * off, so that what may be faster than trees stays. */
static const char *trees_variable(const struct causes *c) {
  return c->in->nccl_version >= 22400 ? "NCCL_ALGO=allreduce:^ring" : "NCCL_ALGO=^Ring";
}

/* Finds where NVLS runs, as NCCL's model has it: what limits rings is no loss then; that only a log
 * or a measurement shows. */
static copse_status find_nvls_above(struct causes *c, const struct reach *r, const char *where,
                                    double trees) {
  const struct copse_audit_row *row = c->row;
  struct copse_nccl_verdict v;
  bool several = c->in->machine->n_hosts > 1, measured = isfinite(row->measured);
  const char *nvls = several ? "NVLSTree" : "NVLS";
  COPSE_DO(copse_nccl_judge(c->in->judge, COPSE_NCCL_NVLS, COPSE_ALLREDUCE, 0, &v, c->err));
  double stated = copse_audit_busbw(c->in->topology, COPSE_ALLREDUCE, copse_nccl_verdict_time(&v));
  double lost = measured ? fmin(trees, row->bound) - fmax(c->ring_links, fmax(r->rings, 0)) : 0;
  return copse_audit_add(
      c->audit, COPSE_STEP_OWN, share_of(c, lost),
      measured ? say(c, "%s, which NCCL's model takes, did not run as fast as it should", nvls)
               : say(c, "rings are the wrong shape for these links; %s, if it runs, is not", nvls),
      say(c,
          "%s carries %.4g GB for each GB of the buffer, which holds rings to %.4g GB/s; %s may "
          "have %.4g, the best chains for these links %.4g%s",
          where, copse_q_to_double(c->verdict.load[c->verdict.link]), c->ring_links, nvls, stated,
          trees, measured ? say(c, "; %.4g were measured", row->measured) : ""),
      say(c,
          "a log with NCCL_DEBUG_SUBSYS=INIT,TUNING, which says whether %s runs; where it can't "
          "(no fabric manager, NCCL_NVLS_ENABLE=0) %s%s",
          nvls,
          r->chain >= trees * (1 - GAP_WORTH) ? ""
                                              : say(c, "the graph file of %s with ", c->in->tune),
          trees_variable(c)),
      c->err);
}

static copse_status find_better_trees(struct causes *c, const struct reach *r, const char *where,
                                      double trees) {
  const char *rings = isfinite(r->rings_bound)
                          ? say(c, "; no rings have more than %.4g here (proved)", r->rings_bound)
                          : "";
  const char *own = r->chain > c->ring_links * (1 + GAP_WORTH)
                        ? say(c,
                              "NCCL's own chains (graph 1) put %.4g GB on it, and their links "
                              "allow %.4g",
                              r->chain_load, r->chain)
                        : say(c, "the best chains for these links have %.4g", trees);
  return copse_audit_add(
      c->audit, COPSE_STEP_OWN, share_of(c, trees - fmax(c->ring_links, fmax(r->rings, 0))),
      "rings are the wrong shape for these links; trees do better",
      say(c, "%s carries %.4g GB for each GB of the buffer, which holds rings to %.4g GB/s; %s%s",
          where, copse_q_to_double(c->verdict.load[c->verdict.link]), c->ring_links, own ? own : "",
          rings ? rings : ""),
      r->tuned_to_trees
          ? say(c, "%s, or the table that %s writes; measure both", trees_variable(c), c->in->tune)
      : r->chain >= trees * (1 - GAP_WORTH)
          ? say(c,
                "%s, and measure both: NCCL's model, which takes a part off trees, has the ring "
                "as fast",
                trees_variable(c))
          : say(c,
                "the graph file of %s with %s, and measure both: NCCL's model, which takes a part "
                "off trees, has the ring as fast",
                c->in->tune, trees_variable(c)),
      c->err);
}

static const char *plans_mend(struct causes *c) {
  const char *hosts = c->in->machine->n_hosts > 1
                          ? "; over several hosts they are experimental, and "
                            "run only with COPSE_SEVERAL_HOSTS=1"
                          : "";
  if (c->in->repeated)
    return say(c,
               "plans of copse, whose trees are not held to rings: copse plans CLUSTER -o FOLDER, "
               "and the drop-in, where CLUSTER is these %d hosts and their network (copse topo "
               "--example cluster is such a file)%s",
               c->in->machine->n_hosts, hosts);
  return say(c,
             "plans of copse (copse plans %s -o FOLDER, and the drop-in), whose trees are not held "
             "to rings%s",
             c->in->topology_path, hosts);
}

static copse_status find_limit(struct causes *c) {
  struct reach r;
  int link = c->verdict.link;
  bool ring = c->row->algorithm == COPSE_NCCL_RING;
  if (link < 0 || share_of(c, c->row->bound - c->links) < GAP_WORTH) return COPSE_OK;
  if (c->row->measured > c->links * (1 + GAP_WORTH))
    return COPSE_OK; /* more was measured: the links are no limit */
  const char *where = link_text(c, link);
  if (!where) return copse_fail_nomem(c->err);
  COPSE_DO(find_reach(c, &r));
  double trees = fmax(r.chain, r.chains), found = fmax(c->links, fmax(r.rings, trees));
  if (share_of(c, r.rings - c->links) >= GAP_WORTH) COPSE_DO(find_better_rings(c, &r));
  if (!ring && share_of(c, r.chains - c->links) >= GAP_WORTH) COPSE_DO(find_better_chains(c, &r));
  if (ring && trees > fmax(c->ring_links, r.rings) * (1 + GAP_WORTH))
    COPSE_DO(copse_nccl_judge_prefers_nvls(c->in->judge) ? find_nvls_above(c, &r, where, trees)
                                                         : find_better_trees(c, &r, where, trees));
  if (share_of(c, c->row->bound - found) < GAP_WORTH || !isfinite(r.rings_bound)) return COPSE_OK;
  return copse_audit_add(
      c->audit, COPSE_STEP_BOUND, share_of(c, c->row->bound - found),
      "what no rings or chains of NCCL's can reach",
      say(c,
          "the best rings have %.4g GB/s (none more than %.4g, proved), the best chains %.4g; the "
          "bound of all schedules is %.4g",
          r.rings, r.rings_bound, r.chains, c->row->bound),
      plans_mend(c), c->err);
}

/* ---- links that are left out ----------------------------------------------------------------- */

/* Finds how full direct links between GPUs are while the busiest link is full. */
static copse_status find_idle_links(struct causes *c) {
  const struct copse_topology *t = c->in->topology;
  double capacity = 0, carried = 0, time = copse_q_to_double(c->verdict.links_time);
  int n = 0, idle = 0, first = -1;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (t->nodes[l->src].rank < 0 || t->nodes[l->dst].rank < 0) continue;
    n++;
    capacity += copse_q_to_double(t->links[i].bandwidth);
    carried += copse_q_to_double(c->verdict.load[i]) / time;
    if (c->verdict.load[i].num > 0) continue;
    idle++;
    if (first < 0) first = i;
  }
  double share = fmin(1 - carried / capacity, share_of(c, room(c)));
  if (n == 0 || !(share >= GAP_WORTH)) return COPSE_OK;
  const char *unused =
      idle > 0 ? say(c, "; %d of %d carry nothing, such as %s", idle, n, link_text(c, first)) : "";
  return copse_audit_add(
      c->audit, COPSE_STEP_LINKS, share, "rings share NVLinks and leave others idle",
      say(c, "the NVLinks between GPUs are %.0f %% full when %s is full%s",
          100 * carried / capacity, link_text(c, c->verdict.link), unused ? unused : ""),
      say(c, "%s: rings that use all of them", c->in->tune), c->err);
}

/* Whether anything goes through a port. */
static bool port_is_used(const struct causes *c, int port) {
  const struct copse_topology *t = c->in->topology;
  int node = c->in->machine->ports[port].node;
  for (int i = 0; i < t->n_links; i++)
    if ((t->links[i].src == node || t->links[i].dst == node) && c->verdict.load[i].num > 0)
      return true;
  return false;
}

static copse_status find_idle_nics(struct causes *c) {
  const struct copse_nccl_machine *m = c->in->machine;
  int idle = 0, first = -1;
  COPSE_AT_END(copse_text_free) struct copse_text names = {0};
  if (m->n_hosts < 2) return COPSE_OK;
  for (int p = 0; p < m->n_ports; p++) {
    if (port_is_used(c, p)) continue;
    if (idle < 4)
      copse_text_add(&names, "%s%s", idle > 0 ? ", " : "",
                     c->in->topology->nodes[m->ports[p].node].id);
    if (first < 0) first = p;
    idle++;
  }
  double gap = share_of(c, room(c));
  if (idle == 0 || gap < GAP_WORTH) return COPSE_OK;
  return copse_audit_add(
      c->audit, COPSE_STEP_LINKS, fmin((double)idle / m->n_ports, gap), "NICs without work",
      say(c, "%d of %d NICs carry nothing in NCCL's rings: %s%s", idle, m->n_ports,
          names.data ? names.data : "", idle > 4 ? ", .." : ""),
      say(c, "%s: channels on every NIC (and see that NCCL_IB_HCA leaves none out)", c->in->tune),
      c->err);
}

/* ---- ways between hosts ---------------------------------------------------------------------- */

/* A GPU that uses a NIC across the CPU where it has a nearer one. */
struct far {
  int n, edges, rank, port, near;
  enum copse_nccl_path type, near_type;
};

/* Finds the nearest port of a GPU's host, and the kind of path there. */
static copse_status find_near_port(const struct causes *c, int rank, int *port,
                                   enum copse_nccl_path *type) {
  struct copse_nccl_machine *m = c->in->machine;
  int host = m->host_of_rank[rank];
  *port = -1;
  *type = COPSE_NCCL_PATH_DIS;
  for (int p = m->first_port[host]; p < m->first_port[host + 1]; p++) {
    const struct copse_nccl_route *route;
    COPSE_DO(copse_nccl_find_route(m, c->in->topology->rank_nodes[rank], m->ports[p].node, &route,
                                   c->err));
    if (*port >= 0 && route->type >= *type) continue;
    *port = p;
    *type = route->type;
  }
  return COPSE_OK;
}

static copse_status look_at_end(const struct causes *c, int rank, int port, bool sends,
                                struct far *far) {
  const struct copse_nccl_route *first = NULL, *last;
  enum copse_nccl_path near_type;
  int relay = -1, near, node = c->in->topology->rank_nodes[rank];
  if (port < 0) return COPSE_OK;
  far->edges++;
  if (sends)
    COPSE_DO(copse_nccl_find_way_out(c->in->machine, rank, port, &relay, &first, &last, c->err));
  else
    COPSE_DO(copse_nccl_find_route(c->in->machine, c->in->machine->ports[port].node, node, &last,
                                   c->err));
  if (relay >= 0 || last->type < COPSE_NCCL_PATH_PHB) return COPSE_OK;
  COPSE_DO(find_near_port(c, rank, &near, &near_type));
  if (near_type >= last->type) return COPSE_OK;
  if (far->n++ == 0)
    *far = (struct far){far->n, far->edges, rank, port, near, last->type, near_type};
  return COPSE_OK;
}

static copse_status find_far_nics(struct causes *c) {
  const struct copse_nccl_joined *j = &c->in->judge->joined;
  const struct copse_topology *t = c->in->topology;
  const struct copse_nccl_port *ports = c->in->machine->ports;
  struct far far = {0};
  for (int ch = 0; ch < j->n_channels; ch++)
    for (int r = 0; r < j->n_ranks; r++) {
      const struct copse_nccl_role *s = copse_nccl_role_of(j, ch, r);
      COPSE_DO(look_at_end(c, r, s->send_port, true, &far));
      COPSE_DO(look_at_end(c, r, s->receive_port, false, &far));
    }
  if (far.n == 0 || share_of(c, room(c)) < GAP_WORTH) return COPSE_OK;
  double lost = fmax(c->ring_stated - c->ring_links, 0);
  const char *stated = lost > 0 ? say(c, "; NCCL states %.4g GB/s, the links allow %.4g",
                                      c->ring_stated, c->ring_links)
                                : "";
  const char *why = c->ring->crossnic == 2
                        ? "; channels 2k and 2k+1 exchange lists on odd hosts and are no mirrors"
                        : "";
  return copse_audit_add(
      c->audit, COPSE_STEP_LINKS, share_of(c, room(c)),
      "GPUs use NICs across the CPU, with a nearer one idle or taken",
      say(c, "%d of %d ends of links between hosts; %s uses %s (%s), beside it is %s (%s)%s%s",
          far.n, far.edges, t->nodes[t->rank_nodes[far.rank]].id, t->nodes[ports[far.port].node].id,
          copse_nccl_path_name(far.type), t->nodes[ports[far.near].node].id,
          copse_nccl_path_name(far.near_type), why, stated ? stated : ""),
      say(c, "%s: a graph whose first and last GPUs are beside their NICs", c->in->tune), c->err);
}

/* Whether a link is one of the network's own, between switches. */
static bool is_network(const struct causes *c, int link) {
  const struct copse_link *l = &c->in->topology->links[link];
  return c->in->machine->host_of_node[l->src] < 0 && c->in->machine->host_of_node[l->dst] < 0;
}

static copse_status add_crossed_rails(struct causes *c, int over, int edges, int unlike) {
  return copse_audit_add(
      c->audit, COPSE_STEP_LINKS, share_of(c, room(c)),
      "rings cross rails: they leave on one NIC and arrive on another",
      say(c,
          "%d of %d links between hosts pass from switch to switch, %d of them between unlike "
          "NICs; %s carries %.4g GB for each GB of the buffer",
          over, edges, unlike, link_text(c, c->verdict.link),
          copse_q_to_double(c->verdict.load[c->verdict.link])),
      say(c, "NCCL_CROSS_NIC=0, or the graph file of %s", c->in->tune), c->err);
}

/* Adds the cause only where hosts in another order are nearer to each other. */
static copse_status add_order(struct causes *c, int over, int edges) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_nccl_order order;
  COPSE_DO(copse_nccl_order_hosts(c->in->machine, &scratch, &order, c->err));
  if (!order.matters || order.best >= order.given) return COPSE_OK;
  return copse_audit_add(
      c->audit, COPSE_STEP_BOUND, share_of(c, c->row->bound - c->links),
      "the order of ranks goes against the network",
      say(c,
          "%d of %d links between hosts pass from switch to switch; %s carries %.4g GB for each GB "
          "of the buffer; once round all hosts is %" PRId64 " links, in another order %" PRId64,
          over, edges, link_text(c, c->verdict.link),
          copse_q_to_double(c->verdict.load[c->verdict.link]), order.given, order.best),
      say(c, "the order of ranks in the hostfile of %s", c->in->tune), c->err);
}

/* Finds edges between hosts that pass links between switches, and those between unlike NICs. */
static copse_status find_crossings(struct causes *c) {
  const struct copse_nccl_joined *j = &c->in->judge->joined;
  const struct copse_nccl_machine *m = c->in->machine;
  int edges = 0, over = 0, unlike = 0;
  if (c->verdict.link < 0 || !is_network(c, c->verdict.link)) return COPSE_OK;
  for (int ch = 0; ch < j->n_channels; ch++)
    for (int r = 0; r < j->n_ranks; r++) {
      const struct copse_nccl_role *s = copse_nccl_role_of(j, ch, r);
      const struct copse_nccl_route *route;
      int in = copse_nccl_role_of(j, ch, s->next)->receive_port;
      if (s->send_port < 0 || in < 0) continue;
      COPSE_DO(copse_nccl_find_route(c->in->machine, m->ports[s->send_port].node, m->ports[in].node,
                                     &route, c->err));
      bool passes = false;
      for (int i = 0; i < route->n_hops; i++) passes = passes || is_network(c, route->hops[i].link);
      edges++;
      over += passes;
      unlike += passes && m->ports[s->send_port].dev != m->ports[in].dev;
    }
  return 2 * unlike > over ? add_crossed_rails(c, over, edges, unlike) : add_order(c, over, edges);
}

static copse_status find_causes(const struct copse_audit_input *in, struct copse_audit *audit,
                                struct copse_err *err) {
  struct causes causes = {.in = in, .audit = audit, .err = err}, *c = &causes;
  for (int i = 0; i < audit->n_rows; i++)
    if (audit->rows[i].collective == COPSE_ALLREDUCE) c->row = &audit->rows[i];
  c->ring = copse_nccl_graph(in->judge->graphs, COPSE_NCCL_RING);
  if (!c->row || !c->ring || in->topology->n_ranks < 2) return COPSE_OK;
  COPSE_DO(copse_nccl_judge(in->judge, COPSE_NCCL_RING, COPSE_ALLREDUCE, 0, &c->verdict, err));
  c->ring_links = copse_audit_busbw(c->in->topology, COPSE_ALLREDUCE, c->verdict.links_time);
  c->ring_stated = copse_audit_busbw(c->in->topology, COPSE_ALLREDUCE, c->verdict.stated_time);
  c->links = c->row->links;
  COPSE_DO(find_stated_below(c));
  COPSE_DO(find_limit(c));
  COPSE_DO(find_idle_links(c));
  COPSE_DO(find_idle_nics(c));
  COPSE_DO(find_far_nics(c));
  return find_crossings(c);
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
  if (in->judge) COPSE_DO(find_causes(in, out, err));
  COPSE_DO(copse_audit_measured_causes(in, out, err));
  COPSE_DO(add_remarks(in, out, err));
  COPSE_DO(add_guesses(in, out, err));
  COPSE_DO(add_gaps(in, out, err));
  count_losses(out);
  return COPSE_OK;
}
