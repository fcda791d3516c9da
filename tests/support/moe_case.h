/*
 * Random Mixture-of-Experts routings and what must come of them, worked out choice by choice
 * from the words of copse/moe.h. Nothing here is shared with the runtime but the conversions of
 * single elements (tests/runtime/test_element.c). Needs no Check, so that `make check-gpu` has it
 * too: what is wrong is said on standard error, and the program ends.
 */
#ifndef COPSE_TESTS_MOE_CASE_H
#define COPSE_TESTS_MOE_CASE_H

#include <stdbool.h>

#include "copse/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

enum moe_routing {
  MOE_UNIFORM, /* any expert, the same one twice too */
  MOE_ZIPF,    /* a few experts are popular */
  MOE_ONE,     /* all to one expert */
  MOE_NONE,    /* every choice dropped */
  MOE_DROPPED, /* some choices dropped, some ids that name no expert */
  MOE_N_ROUTINGS
};

struct moe_options {
  uint32_t n_ranks;
  copse_moe_config config;
  enum moe_routing routing;
  bool scales, weights, order; /* else NULL */
  bool idle;                   /* some ranks have no tokens; rank 0 never */
  bool full;                   /* all ranks have max_tokens tokens */
  bool echo;                   /* the experts answer with what they get; combined as dispatched */
  /* And all weights are 1 / top_k and all elements small integers: combining must give back the
   * tokens where nothing is dropped and top_k is 1, 2 or 4. For float rows, not scaled. */
  bool identity;
};

/* One rank: what it gives, and what it must get. */
struct moe_rank {
  int64_t n_tokens;
  int32_t *expert_ids, *order; /* order, scales, weights: NULL where not given */
  unsigned char *tokens;
  void *scales, *weights;

  uint32_t first_expert, n_local;
  int32_t *expert_counts, *expert_offsets, *chosen; /* as in copse_moe_view */
  int64_t n_rows;                                   /* padding included */
  unsigned char *rows;                              /* [n_rows] */
  unsigned char *answers;                           /* [n_rows] what its experts make of them */
  unsigned char *combined;                          /* [n_tokens] */
};

struct moe_case {
  struct moe_options options;
  copse_moe_row combined_row;
  size_t row_bytes, combined_bytes;
  int32_t *taken; /* [n_ranks][n_experts] */
  struct moe_rank *ranks;
};

/* Repeatable: the state is a seed and moves on. Values are finite, and their sums round. */
struct moe_case *moe_case_new(const struct moe_options *options, uint64_t *state);
void moe_case_free(struct moe_case *c);

/* A random configuration and routing, small enough for thousands of them. */
struct moe_options moe_options_random(uint64_t *state);

void moe_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* ---- what a rank got; each fails with what is wrong -------------------------- */

#define MOE_POISON 0xa5

void moe_check_counts(const struct moe_case *c, uint32_t rank, const int32_t *expert_counts,
                      const int32_t *expert_offsets, const int32_t *taken, const int32_t *chosen);
/* rows: [n] poisoned before the dispatch. */
void moe_check_rows(const struct moe_case *c, uint32_t rank, const unsigned char *rows, int64_t n);
void moe_check_combined(const struct moe_case *c, uint32_t rank, const unsigned char *tokens);

#ifdef __cplusplus
}
#endif
#endif
