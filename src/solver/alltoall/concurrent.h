/* Maximum concurrent multi-commodity flow, for all-to-all: every source sends its demand
 * to every sink at once; how fast can all of it go? */
#pragma once

#include "base/memory.h"
#include "base/rational.h"
#include "solver/alltoall/paths.h"

struct copse_concurrent_problem {
  const struct copse_network *network; /* roots are not used */
  const int64_t *demand; /* [n_terminals * n_terminals], row = source, >= 0; NULL: all 1 */
  bool forward;          /* terminals may pass on what is not theirs */
  struct copse_permutation rotation; /* keeps the demand, too: only base sources are routed, the
                                     others are their images */
  int64_t total;     /* M in units of the demand: path amounts are fractions of it, exact in 64
                        bits; > 0 */
  int64_t time_unit; /* times are load * time_unit / (capacity * total); > 0 */
  struct copse_q tolerance; /* stop when time <= (1 + tolerance) * bound; 0: go for exact */
  /* [n_links] that prove the bound, known from elsewhere: it alone is worked out; NULL: none */
  const int64_t *lengths;
  int64_t work; /* of the master's simplex method, counted as there; 0: what it is good for */
  const struct copse_progress *progress;
};

/*
 * `time` is the largest load / capacity, in the problem's unit of time; no routing is faster
 * than `bound`, by duality with the lengths: sum demand * distance / sum capacity * length.
 * Both are exact whatever the rounding inside. Paths are those of base sources, and for
 * each pair the amounts add up to its demand * whole.
 */
struct copse_concurrent {
  struct copse_q time, bound;
  struct copse_q bound_in_units; /* load over capacity; 0 where that doesn't fit */
  int64_t whole;
  int n_paths;
  const struct copse_concurrent_path *paths; /* by source, then sink */
  int64_t *lengths;                          /* [n_links] */
  bool finished; /* the search ended by itself, before its work was used up */
  int unreached_source, unreached_sink;      /* terminals without a way, or -1 */
  struct copse_arena arena;
};

/*
 * Solves by Dantzig-Wolfe decomposition: a column is a shortest-path tree that carries all of one
 * source's demand, priced by integer Dijkstra; the master problem (GLPK's simplex) mixes the
 * trees, with one row per orbit of links. Each round gives a dual bound; at the end weights and
 * lengths are made rational and the two sides compared exactly. In floating point only the search
 * happens, never the result. Basu et al., arXiv 2309.13541, solve the same programme by
 * source-aggregated edge flows; trees need no decomposition into paths and keep the master small
 * where orbits are few. Where there are many orbits of links, copse_balance_paths goes first: what
 * it finds stands where the master, whose work is counted and limited, finds nothing better.
 * COPSE_OK with unreached_source >= 0 where a demand has no way. COPSE_OVERFLOW. The caller frees
 * *out in every case.
 */
copse_status copse_concurrent_solve(const struct copse_concurrent_problem *problem,
                                    struct copse_concurrent *out,
                                    struct copse_err *err) COPSE_CHECKED;
static inline void copse_concurrent_free(struct copse_concurrent *result) {
  free(result->lengths);
  result->lengths = NULL;
  copse_arena_free(&result->arena);
}
