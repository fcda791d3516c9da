/* Quickest flows: links that take time. How long must a flow over time last until it has brought an
 * amount from sources to sinks, and which times of nodes prove it? */
#pragma once

#include "base/err.h"
#include "base/rational.h"

/* Carries up to `capacity` in a unit of time, each bit of it `delay` under way. */
struct copse_quickest_link {
  int src, dst;
  int64_t capacity; /* > 0 */
  int64_t delay;    /* >= 0 */
};

/* A source has all that it may send from `delay` on; of a sink what comes counts `delay` later. */
struct copse_quickest_end {
  int node;
  int64_t delay; /* >= 0 */
};

/* What is asked of a flow; see copse_quickest_run. */
struct copse_quickest_question {
  const struct copse_quickest_end *sources, *sinks; /* [n_sources], [n_sinks] */
  int n_sources, n_sinks;
  struct copse_q amount;         /* > 0 */
  const struct copse_q *give_up; /* may be NULL */
};

/* Sums of delays may be up to this. */
#define COPSE_DELAY_MAX ((int64_t)1 << 56)

struct copse_quickest;

/* Prepares the search. The links are borrowed. COPSE_NOMEM. The caller frees *out in every case. */
copse_status copse_quickest_new(int n_nodes, const struct copse_quickest_link *links, int n_links,
                                struct copse_quickest **out, struct copse_err *err) COPSE_CHECKED;
void copse_quickest_free(struct copse_quickest *quickest);

/*
 * Finds the least time in which `amount` (of capacity times delay) can come from the sources
 * to the sinks, whichever gives and takes how much. No node may be both.
 *
 * L. Ford, D. Fulkerson, "Constructing maximal dynamic flows from static flows", Operations
 * Research 6 (1958): within time T the most is what a static flow of value F and cost C (delays)
 * of least T F - C sends by repeating its paths, the largest of T F - C. As a function of T that
 * is convex and piecewise linear, with a breakpoint at each length of a shortest augmenting path;
 * they are followed upwards until the amount is reached (Burkard, Dlaska, Klinz 1993).
 *
 * times (may be NULL, [n_nodes]): the proof, by duality. Every node's is from 0 to *time, a
 * source's at most its delay, a sink's at least *time - delay, and the sum of capacity * max(0,
 * times[dst] - times[src] - delay) over all links is the amount.
 *
 * give_up: stop as soon as the time is known to be at most that; *time is then
 * COPSE_Q_ZERO. COPSE_INFEASIBLE without a message where no sink can be reached; COPSE_OVERFLOW.
 * Complexity: (breakpoints + 1) * (a run of Dijkstra and a maximum flow over links that fit).
 */
copse_status copse_quickest_run(struct copse_quickest *quickest,
                                const struct copse_quickest_question *question,
                                struct copse_q *time, struct copse_q *times,
                                struct copse_err *err) COPSE_CHECKED;
