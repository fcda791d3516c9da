/*
 * Expert placement on a topology: routing traces, their generator, the cuts that bound an
 * all-to-all, and the search for a placement.
 *
 *   question                                        function
 *   ---------------------------------------------   -----------------------------------
 *   read, write, make up a trace                    copse_trace_parse, _to_json, _generate
 *   which cuts limit an all-to-all here?            copse_place_cuts_find
 *   which expert on which rank?                     copse_place_experts
 *   the answer as a file                            copse_place_report_to_json
 */
#pragma once

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"
#include "solver/placement/place.h"
#include "topology/topology.h"

/*
 * A routing trace: how many tokens each rank had for each expert, step by step.
 *
 *   {"format": "copse-trace/1", "token_bytes": 8192, "experts": 4, "comment": "...",
 *    "steps": [{"counts": [[7, 0, 1, 0], [2, 2, 2, 2]]},
 *              {"counts": [[8, 0, 0, 0], [0, 1, 3, 4]]}]}
 *
 * One row per rank, one number per expert. token_bytes: what one token sends to one expert, and
 * gets back. experts and comment are optional. A token for k experts counts k times.
 */
struct copse_trace {
  int n_steps, n_ranks, n_experts;
  int64_t token_bytes; /* 1 .. 2^40 */
  int64_t *counts;     /* [n_steps * n_ranks * n_experts], each 0 .. 2^40 */
};

/*
 * Parses a trace. n_ranks, n_experts: what it must have, 0 for whatever it has. The caller frees
 * *out with copse_trace_free. COPSE_BAD_INPUT with the line for rows or steps of other sizes,
 * entries that are negative, fractional or too large, unknown keys, no step, no token at all, and
 * more than COPSE_PLACE_MAX_COUNTS entries; COPSE_NOMEM.
 */
copse_status copse_trace_parse(const char *label, const char *data, size_t size, int n_ranks,
                               int n_experts, struct copse_trace *out,
                               struct copse_err *err) COPSE_CHECKED;
static inline void copse_trace_free(struct copse_trace *trace) {
  free(trace->counts);
  *trace = (struct copse_trace){0};
}

/* Writes a trace; the caller frees *text. */
copse_status copse_trace_to_json(const struct copse_trace *trace, char **text, size_t *size,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * A synthetic trace. Experts stand in an order of popularity, a random one; the i-th is wanted
 * in proportion to i^-zipf. A token goes to top_k different experts. For `locality` percent
 * of tokens the order is the rank's own: the common one, turned by the rank's share of it.
 * After each step `drift` percent of the experts change places with another.
 */
struct copse_trace_spec {
  int n_ranks, n_experts, n_steps; /* > 0 */
  int tokens;                      /* per rank and step, > 0 */
  int top_k;                       /* 1 .. n_experts */
  int locality, drift;             /* percent, 0 .. 100 */
  double zipf;                     /* 0 .. 8; 0: all alike */
  int64_t token_bytes;
  uint64_t seed;
};
/* Generates a trace; the same spec gives the same one. COPSE_INVALID, COPSE_NOMEM. */
copse_status copse_trace_generate(const struct copse_trace_spec *spec, struct copse_trace *out,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Sets of ranks and the most that can leave and enter each: the value of a maximum flow from
 * the set to the other ranks, and back. The sets: each rank; the ranks whose ids begin with
 * the same "hN."; and for every bandwidth b, the ranks that stay together when all links of
 * bandwidth <= b are taken away. Each set once. Any set gives a valid bound. Where narrow
 * places are not around any of these (a ring of equal links) the bound is a weak one.
 */
struct copse_place_cuts {
  int n_cuts;
  struct copse_place_group *groups; /* [n_cuts] costs in units */
  struct copse_q *out, *in;         /* [n_cuts] GB/s */
  struct copse_arena arena;
};
/*
 * Finds the cuts and their costs. tokens: how many a trace has in all, so that costs fit. A time
 * of 1 unit is *unit_us microseconds for tokens of one byte. Where a common denominator would not
 * fit, costs are rounded down, to about 9 digits: the bound stays one. COPSE_INFEASIBLE naming a
 * rank that can't reach the others or be reached; COPSE_OVERFLOW; COPSE_NOMEM.
 */
copse_status copse_place_cuts_find(const struct copse_topology *topology, int64_t tokens,
                                   struct copse_place_cuts *out, double *unit_us,
                                   struct copse_err *err) COPSE_CHECKED;
void copse_place_cuts_free(struct copse_place_cuts *cuts);

struct copse_place_options {
  int capacity;   /* experts per rank at most; 0: ceil(experts / ranks) */
  const struct copse_progress *progress;
};

/* Times are the trace's: dispatch and combine of all steps, over the cuts above. */
struct copse_place_report {
  struct copse_placement placement;
  int n_ranks, n_experts, n_steps, capacity, n_cuts;
  int64_t tokens; /* of all steps */
  double default_us, time_us, bound_us;
};

/* Finds a placement for a trace whose ranks are the topology's. The caller frees the report.
 * Errors as copse_place_cuts_find and copse_place_solve; COPSE_INVALID for a capacity that is
 * too small. */
copse_status copse_place_experts(const struct copse_topology *topology,
                                 const struct copse_trace *trace,
                                 const struct copse_place_options *options,
                                 struct copse_place_report *out,
                                 struct copse_err *err) COPSE_CHECKED;
static inline void copse_place_report_free(struct copse_place_report *report) {
  free(report->placement.rank_of);
  *report = (struct copse_place_report){0};
}

/* Returns "certificate", "branch and cut" or "none". */
const char *copse_place_proof_name(enum copse_place_proof proof);

/* Writes {"format": "copse-placement/1", ..., "rank_of": [...], "experts_of": {"gpu0": [...]}}. The
 * caller frees *text. */
copse_status copse_place_report_to_json(const struct copse_place_report *report,
                                        const struct copse_topology *topology, char **text,
                                        size_t *size, struct copse_err *err) COPSE_CHECKED;
