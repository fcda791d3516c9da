#include "schedule/placement/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

static copse_status count_tokens(const struct copse_trace *t, int64_t *sum, struct copse_err *err) {
  size_t n = (size_t)t->n_steps * (size_t)t->n_ranks * (size_t)t->n_experts;
  *sum = 0;
  for (size_t i = 0; i < n; i++)
    if (copse_add_overflows(*sum, t->counts[i], sum))
      return copse_fail(err, COPSE_OVERFLOW, "the trace's tokens add up to over 63 bits");
  return COPSE_OK;
}

copse_status copse_place_experts(const struct copse_topology *topology,
                                 const struct copse_trace *trace,
                                 const struct copse_place_options *options,
                                 struct copse_place_report *out, struct copse_err *err) {
  struct copse_place_cuts cuts = {0};
  double unit_us = 0;
  int least = (int)(((int64_t)trace->n_experts + trace->n_ranks - 1) / trace->n_ranks);
  copse_status status;
  *out = (struct copse_place_report){.n_ranks = trace->n_ranks,
                                     .n_experts = trace->n_experts,
                                     .n_steps = trace->n_steps,
                                     .capacity = options->capacity ? options->capacity : least};
  if (trace->n_ranks != topology->n_ranks)
    return copse_fail(err, COPSE_INVALID, "the trace has %d ranks, the topology %d", trace->n_ranks,
                      topology->n_ranks);
  if (out->capacity < least)
    return copse_fail(err, COPSE_INVALID,
                      "%d experts on %d ranks need a capacity of at least %d, not %d",
                      trace->n_experts, trace->n_ranks, least, out->capacity);
  COPSE_TRY(count_tokens(trace, &out->tokens, err));
  COPSE_TRY(copse_place_cuts_find(topology, out->tokens, &cuts, &unit_us, err));
  out->n_cuts = cuts.n_cuts;
  struct copse_place_problem problem = {.n_ranks = trace->n_ranks,
                                        .n_experts = trace->n_experts,
                                        .n_steps = trace->n_steps,
                                        .capacity = out->capacity,
                                        .counts = trace->counts,
                                        .n_groups = cuts.n_cuts,
                                        .groups = cuts.groups,
                                        .seconds = options->seconds,
                                        .progress = options->progress};
  COPSE_TRY(copse_place_solve(&problem, &out->placement, err));
  unit_us *= (double)trace->token_bytes;
  out->default_us = unit_us * (double)out->placement.default_time;
  out->time_us = unit_us * (double)out->placement.time;
  out->bound_us = unit_us * (double)out->placement.bound;
out:
  copse_place_cuts_free(&cuts);
  return status;
}

void copse_place_report_free(struct copse_place_report *report) {
  free(report->placement.rank_of);
  *report = (struct copse_place_report){0};
}

const char *copse_place_proof_name(enum copse_place_proof proof) {
  switch (proof) {
    case COPSE_PLACE_GAP: return "none";
    case COPSE_PLACE_CERTIFIED: return "certificate";
    case COPSE_PLACE_ILP: return "branch and cut";
  }
  return "none";
}

static void add_number(struct copse_text *text, const char *key, double v) {
  copse_text_add(text, " \"%s\": ", key);
  copse_text_add_json_number(text, v);
  copse_text_add(text, ",\n");
}

copse_status copse_place_report_to_json(const struct copse_place_report *r,
                                        const struct copse_topology *topology, char **out,
                                        size_t *size, struct copse_err *err) {
  struct copse_text text = {0};
  char sha[COPSE_SHA256_HEX];
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_topology_sha256(topology, sha, err));
  copse_text_add(&text, "{\"format\": \"copse-placement/1\",\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&text, topology->name);
  copse_text_add(&text, ", \"sha256\": \"%s\"},\n \"experts\": %d, \"capacity\": %d,\n", sha,
                 r->n_experts, r->capacity);
  add_number(&text, "time_us", r->time_us);
  add_number(&text, "default_time_us", r->default_us);
  add_number(&text, "bound_us", r->bound_us);
  copse_text_add(&text, " \"proof\": \"%s\",\n \"rank_of\": [",
                 copse_place_proof_name(r->placement.proof));
  for (int e = 0; e < r->n_experts; e++)
    copse_text_add(&text, "%s%d", e > 0 ? ", " : "", r->placement.rank_of[e]);
  copse_text_add(&text, "],\n \"experts_of\": {");
  for (int rank = 0; rank < r->n_ranks; rank++) {
    bool comma = false;
    copse_text_add(&text, "%s\n  ", rank > 0 ? "," : "");
    copse_text_add_json_string(&text, topology->nodes[topology->rank_nodes[rank]].id);
    copse_text_add(&text, ": [");
    for (int e = 0; e < r->n_experts; e++)
      if (r->placement.rank_of[e] == rank) {
        copse_text_add(&text, "%s%d", comma ? ", " : "", e);
        comma = true;
      }
    copse_text_add(&text, "]");
  }
  copse_text_add(&text, "}}\n");
  status = copse_text_take(&text, out, size, err);
out:
  copse_text_free(&text);
  return status;
}
