/*
 * Allreduces in stages (recursive doubling, in groups of any size; codegen/lower/doubling.c): the
 * ranks' numbers are read in digits of several bases, and in each stage the ranks that differ in
 * one digit alone send each other their sums. For longer messages the first digits are scattered:
 * of M each rank of a group adds up a part (recursive halving, R. Rabenseifner 2004), the stages of
 * the other digits go over parts, and the ranks of the group send each other the results. Where
 * only some ranks of a host reach others in one hop, stages may be among these alone, with the
 * others' sums.
 */
#pragma once

#include "schedule/schedule.h"
#include "topology/route.h"

struct copse_baseline_shared;

#define COPSE_MOST_DOUBLINGS 24
#define COPSE_DOUBLING_DIGITS 9

/* Digits from the last one on: rank = d0 + base0 (d1 + base1 (...)). */
struct copse_doubling {
  int n_digits, bases[COPSE_DOUBLING_DIGITS];
  int n_scattered; /* of the first digits, fewer than n_digits */
  bool turned;     /* M in as many pieces as digits, each beginning with another */
  bool gateways;   /* the numbers are those of the ranks that reach other hosts in one hop, alike
                      many of each host; the others of the host hang below them */
  int copies;      /* above 1: each piece in so many, which take other ways where there are */
};

/*
 * Finds ways of doing it that may be the best for some size, *n of at most COPSE_MOST_DOUBLINGS:
 * none has both less latency and less load on its busiest links than another. Within a group sums
 * go from rank to rank, where two that are joined straight or over relays by `routes` (of plans)
 * make a hop. None for too many ranks.
 */
copse_status copse_doublings_find(const struct copse_topology *topology,
                                  const struct copse_routes *routes, struct copse_doubling *list,
                                  int *n, struct copse_err *err) COPSE_CHECKED;

/* Makes the schedule, whose bound is a cut. shared: NULL, or of the topology (baseline.h). The
 * caller releases *out. Errors as of copse_baseline_make; COPSE_UNSUPPORTED where copies make too
 * many pieces. */
copse_status copse_doubling_make(const struct copse_topology *topology,
                                 const struct copse_routes *routes,
                                 const struct copse_doubling *doubling,
                                 struct copse_baseline_shared *shared, struct copse_schedule **out,
                                 struct copse_err *err) COPSE_CHECKED;

/* Writes "stages 4x4", "stages 4x4 turned", "stages 8x2, 1 scattered x4", "stages 4x8 of gateways".
 */
#define COPSE_DOUBLING_NAME 64
