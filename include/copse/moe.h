/*
 * The data movement of a Mixture-of-Experts layer: tokens to the ranks of their experts and
 * back, over a communicator's allgather and alltoall plans.
 *
 *   question                                          function
 *   -----------------------------------------------   ------------------------------------
 *   a layer's memory and shape                        copse_moe_create, copse_moe_free
 *   tokens -> rows by expert, at the experts' ranks   copse_moe_dispatch
 *   how many rows has each expert, and where?         copse_moe_get_view
 *   rows by expert -> weighted sums, in token order   copse_moe_combine
 *   one thread that drives several ranks              copse_moe_dispatch_all, _combine_all
 *   a capacity as Tutel computes it                   copse_moe_tutel_capacity
 *
 * Experts. Rank r owns the experts from floor(r * n_experts / n_ranks) up to, not including,
 * floor((r + 1) * n_experts / n_ranks): the same number each where the ranks divide it.
 *
 * Choices. A token names top_k experts; -1 drops a choice. Within an expert the choices of one
 * rank are in Tutel's order (arXiv 2206.03382): all first choices in the order of the tokens,
 * then all second choices, and so on. With a capacity (per expert and source rank, as in Tutel)
 * the choices beyond it in this order are dropped; without, none is. An id of n_experts or more,
 * or below -1, is dropped too and counted apart.
 *
 * Rows. What a rank's experts get lies by expert, then by source rank, then in the order above:
 * closely packed (copse_moe_view says where each expert starts), or, where the configuration
 * says `padded`, with room for `capacity` rows of every source, the unused ones zero.
 *
 * Numbers. Dispatching copies bits unless it scales. A combined token is the sum of weight *
 * row over its choices that were not dropped, in the order of the choices; each product and each
 * sum is rounded to the accumulator's type (float, for double rows double), the total
 * once to the element's; without any choice it is +0. The bits are the same on every backend, but
 * for which NaN an operation gives.
 *
 * Streams, threads, errors: as in copse/comm.h. Dispatching and combining allocate nothing and
 * never wait for the GPU, so both may be captured into a CUDA graph. All ranks make the same
 * calls on layers of the same configuration in the same order; only the routing differs. No call
 * may stand between copse_group_start and copse_group_end.
 *
 * Several hosts. The host sizes the messages between hosts, and doesn't know the counts that the
 * GPUs have exchanged. So whole blocks travel (copse_all_to_all_v), each as large as it might be.
 * With a capacity that is a little more than is needed, without one up to n_ranks times as much.
 * Where the configuration says exact_messages, dispatching copies the counts to the host and waits
 * for them: for what is in the stream before, the exchange of counts and nothing after it. Then
 * only rows that exist travel, in combining too, which doesn't wait. A wait can't be captured: with
 * exact_messages both are COPSE_UNSUPPORTED, with nothing enqueued, while one of their streams is
 * in a capture. Where ranks share a host, and on the CPU, exact_messages changes nothing.
 */
#ifndef COPSE_MOE_H
#define COPSE_MOE_H

#include "copse/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's part of a layer; opaque. */
typedef struct copse_moe copse_moe;

/* A row: what a token, or an expert's answer to it, consists of. */
typedef struct copse_moe_row {
  int64_t elements;
  copse_type type;
} copse_moe_row;

#define COPSE_MOE_EXACT (-1) /* a capacity: nothing is dropped */
#define COPSE_MOE_MAX_TOP_K 256

/* The same on every rank. */
typedef struct copse_moe_config {
  int n_experts;      /* of all ranks, >= 1 */
  int top_k;          /* choices of a token, 1 .. COPSE_MOE_MAX_TOP_K */
  int64_t max_tokens; /* of a rank in one call */
  int64_t capacity;   /* rows that an expert takes from one rank, or COPSE_MOE_EXACT */
  int padded;         /* rows at fixed places, zero where unused; needs a capacity */
  copse_moe_row row;  /* of a dispatched token; scaled or combined only if a float */
  /* Of a combined token where it differs (fp8 out, bfloat16 back); elements 0: as `row`. */
  copse_moe_row combined;
  int exact_messages; /* between hosts only rows that exist travel; dispatching waits for counts */
} copse_moe_config;

/*
 * Makes a layer on a communicator, which must outlive it and must have its plans already: an
 * allgather (of n_experts uint32) and an alltoall, unless it has one rank. All memory is taken
 * here, on the communicator's device: 2 * n_ranks blocks of min(max_tokens * top_k, the most
 * experts of a rank * capacity) rows, and a little; with exact_messages a little page-locked. Not
 * collective. COPSE_INVALID for numbers out of range, COPSE_UNSUPPORTED where a plan is missing,
 * COPSE_OVERFLOW where rows don't fit int32, COPSE_NOMEM, COPSE_DEVICE.
 */
COPSE_API copse_status copse_moe_create(copse_comm *comm, const copse_moe_config *config,
                                        copse_moe **out) COPSE_CHECKED;

/* Frees the layer after what is enqueued has run. Takes NULL. */
COPSE_API void copse_moe_free(copse_moe *moe);

/* One rank's dispatch. Memory is that of the rank's device, rows aligned to their elements. */
typedef struct copse_moe_dispatch_args {
  const void *tokens;        /* [n_tokens][row.elements] */
  int64_t n_tokens;          /* 0 .. max_tokens */
  const int32_t *expert_ids; /* [n_tokens][top_k] */
  /* [n_tokens][top_k] factors of what is sent (float; for double rows double), or NULL: copies.
   * Tutel's is_postscore=False; also the backward pass of a combination. */
  const void *scales;
  /* [n_tokens] a permutation: the tokens in the order in which experts take them, as in Tutel's
   * batch-prioritised routing; or NULL: as they come. Which tokens arrive is undefined for
   * what is no permutation. */
  const int32_t *order;
  void *rows; /* out: [copse_moe_max_rows][row.elements]; what no row needs is left as it is */
  copse_stream stream;
} copse_moe_dispatch_args;

/* Sends each token's row to the ranks of its experts. Doesn't change expert_ids, scales and order,
 * and needs none of them once it has run. */
COPSE_API copse_status copse_moe_dispatch(copse_moe *moe,
                                          const copse_moe_dispatch_args *args) COPSE_CHECKED;

/* One rank's combination of the rows of the last dispatch, with as many tokens as that had. */
typedef struct copse_moe_combine_args {
  const void *rows;    /* as dispatch laid them out, combined.elements each; padding is not read */
  const void *weights; /* [n_tokens][top_k] float (double for double rows); NULL: all one */
  void *tokens;        /* out: [n_tokens][combined.elements] */
  copse_stream stream;
} copse_moe_combine_args;

/* Brings the experts' rows back to their tokens. Several combinations may follow one dispatch;
 * COPSE_INVALID before any. */
COPSE_API copse_status copse_moe_combine(copse_moe *moe,
                                         const copse_moe_combine_args *args) COPSE_CHECKED;

/* Does the same for n ranks of one process from one thread, each on its stream: all of the
 * communicator's ranks of this process, once each. */
COPSE_API copse_status copse_moe_dispatch_all(copse_moe *const *moes,
                                              const copse_moe_dispatch_args *args,
                                              int n) COPSE_CHECKED;
COPSE_API copse_status copse_moe_combine_all(copse_moe *const *moes,
                                             const copse_moe_combine_args *args,
                                             int n) COPSE_CHECKED;

/*
 * What the last dispatch found, in the memory of the rank's device and in the order of its
 * stream. The pointers are valid as long as the layer.
 */
typedef struct copse_moe_view {
  const int32_t *expert_counts;  /* [n_local] rows of this rank's experts, padding left out */
  const int32_t *expert_offsets; /* [n_local + 1] their first rows, and the end of the last */
  const int32_t *taken;          /* [n_ranks][n_experts] choices that were sent */
  /* [n_experts + 2] this rank's choices by expert before the capacity cut them; then those
   * that were -1, then those that name no expert */
  const int32_t *chosen;
  int first_expert, n_local; /* this rank's experts */
} copse_moe_view;
COPSE_API copse_status copse_moe_get_view(const copse_moe *moe, copse_moe_view *view);

/* Returns the most rows that this rank can get: how large `rows` must be. */
COPSE_API int64_t copse_moe_max_rows(const copse_moe *moe);

/*
 * Returns top_k * floor(factor * ceil(n_tokens / n_experts)) rounded up to a multiple of
 * `alignment`: what Tutel gives an expert for a positive or negative capacity_factor (its absolute
 * value counts); for 0, which means "whatever is needed", n_tokens * top_k. Saturates at
 * INT32_MAX. Numbers out of range give 0.
 */
COPSE_API int64_t copse_moe_tutel_capacity(int64_t n_tokens, int n_experts, int top_k,
                                           double factor, int alignment);

#ifdef __cplusplus
}
#endif
#endif
