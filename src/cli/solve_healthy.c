#include "cli/solve_healthy.h"

#include <stdio.h>

#include "base/types.h"
#include "cli/solve_checked.h"

/* Trees reach the optimum exactly, so the optimum alone will do; the phases of an allreduce may
 * do better than their bounds one after the other. */
static bool bound_is_time(const struct copse_solve_options *o, bool has_tolerance) {
  return o->bound_only || (o->collective != COPSE_ALLREDUCE && o->collective != COPSE_ALLTOALL &&
                           o->k == 0 && !has_tolerance);
}

copse_status copse_cli_compare_healthy(const struct copse_topology *healthy,
                                       const struct copse_topology *broken,
                                       const struct copse_solve_options *options,
                                       bool has_tolerance, struct copse_q time_per_GB,
                                       struct copse_cli_healthy *out, struct copse_err *err) {
  struct copse_solve_options like = *options;
  struct copse_solve_seconds ignored;
  struct copse_schedule *schedule = NULL;
  struct copse_err local = COPSE_ERR_INIT;
  copse_status status;
  *out = (struct copse_cli_healthy){.n_ranks = healthy->n_ranks};
  if (options->demand && healthy->n_ranks != broken->n_ranks) {
    out->why = "the demand is for the ranks that are left";
    return COPSE_OK;
  }
  like.bound_only = bound_is_time(options, has_tolerance);
  if (options->root >= 0 && options->root < broken->n_ranks) {
    const char *root = broken->nodes[broken->rank_nodes[options->root]].id;
    like.root = healthy->nodes[copse_topology_find(healthy, root)].rank;
  }
  status =
      copse_cli_solve_checked(healthy, &like, has_tolerance, &schedule, &ignored, NULL, &local);
  if (status == COPSE_INFEASIBLE) {
    out->why = "a rank can't be reached there either";
    return COPSE_OK;
  }
  if (status == COPSE_BAD_INPUT) { /* such as a relay that is balanced only without what is down */
    out->why = "no such schedule can be made there";
    return COPSE_OK;
  }
  if (status == COPSE_OVERFLOW || status == COPSE_NOMEM) { /* what was asked for is there */
    out->why = status == COPSE_NOMEM ? "there is too little memory for it"
                                     : "its numbers don't fit into 64 bits";
    return COPSE_OK;
  }
  if (status != COPSE_OK) return copse_fail(err, status, "the healthy fabric: %s", local.text);
  out->time_per_GB = schedule->time_per_GB;
  out->known = schedule->time_per_GB.num > 0; /* a single rank: nothing moves */
  if (out->known)
    out->slowdown = copse_q_to_double(time_per_GB) / copse_q_to_double(schedule->time_per_GB);
  copse_schedule_release(schedule);
  return COPSE_OK;
}

void copse_cli_print_healthy(const struct copse_cli_healthy *h) {
  char time[COPSE_Q_TEXT];
  if (h->known)
    printf("healthy: %s s/GB, %.10g GB/s on %d ranks; what is left takes %.4g times as long\n",
           copse_q_text(h->time_per_GB, time), 1 / copse_q_to_double(h->time_per_GB), h->n_ranks,
           h->slowdown);
  else if (h->why)
    printf("healthy: no comparison: %s\n", h->why);
}

void copse_cli_add_healthy(struct copse_text *text, const struct copse_cli_healthy *h) {
  char time[COPSE_Q_TEXT];
  if (!h->known && !h->why) return;
  copse_text_add(text, ",\n \"healthy\": {\"nranks\": %d", h->n_ranks);
  if (h->known) {
    copse_text_add(
        text, ", \"time_per_GB\": \"%s\", \"algbw_GBps\": ", copse_q_text(h->time_per_GB, time));
    copse_text_add_json_number(text, 1 / copse_q_to_double(h->time_per_GB));
    copse_text_add(text, ", \"slowdown\": ");
    copse_text_add_json_number(text, h->slowdown);
  } else {
    copse_text_add(text, ", \"not_comparable\": ");
    copse_text_add_json_string(text, h->why);
  }
  copse_text_add(text, "}");
}
