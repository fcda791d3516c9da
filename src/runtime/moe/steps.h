/*
 * The steps of a Mixture-of-Experts layer's dispatch and combination, in the common subset of
 * C11, C++17 and CUDA C++: a GPU's threads and the CPU's one thread run the same code.
 *
 * Calling threads: functions that take `thread` and `n_threads` are called by the threads of
 * one block; between two that follow each other the block synchronises. Functions that take
 * a lane are called by all threads of a launch and need no order.
 */
#pragma once

#include "runtime/moe/elements.h"

/* ---- LOCATE --------------------------------------------------------------------------------
 * A bin is an expert, or the choices that are -1, or those that name no expert. */

COPSE_HD static inline uint32_t copse_moe_bins(const struct copse_moe_job *job) {
  return job->n_experts + 2;
}

COPSE_HD static inline uint32_t copse_moe_bin_of(const struct copse_moe_job *job, int32_t id) {
  if (id >= 0 && (uint32_t)id < job->n_experts) return (uint32_t)id;
  return job->n_experts + (id != -1);
}

/* Returns the token at `position` of the order; n_tokens where the caller's order is no
 * permutation. */
COPSE_HD static inline uint32_t copse_moe_token_at(const struct copse_moe_job *job,
                                                   uint32_t position) {
  if (!job->order) return position;
  int32_t token = job->order[position];
  return token >= 0 && (uint32_t)token < job->n_tokens ? (uint32_t)token : job->n_tokens;
}

/* Records that `bin` has `total` choices. */
COPSE_HD static inline void copse_moe_set_chosen(const struct copse_moe_job *job, uint32_t bin,
                                                 uint32_t total) {
  job->chosen[bin] = total;
  if (bin >= job->n_experts) return;
  job->taken[(uint64_t)job->rank * job->n_experts + bin] =
      total < job->capacity ? total : job->capacity;
}

/* Returns where a thread's run of positions starts. A block locates the choices of one bin. `sums`
 * is [top_k][n_threads], in the order of choices within an expert (k, then thread): first counts,
 * then how many choices come before. */
COPSE_HD static inline uint32_t copse_moe_run_start(const struct copse_moe_job *job,
                                                    uint32_t thread, uint32_t n_threads) {
  return (uint32_t)((uint64_t)job->n_tokens * thread / n_threads);
}

COPSE_HD static inline void copse_moe_count_run(const struct copse_moe_job *job, uint32_t bin,
                                                uint32_t *sums, uint32_t thread,
                                                uint32_t n_threads) {
  const uint32_t end = copse_moe_run_start(job, thread + 1, n_threads);
  for (uint32_t k = 0; k < job->top_k; k++) sums[k * n_threads + thread] = 0;
  for (uint32_t p = copse_moe_run_start(job, thread, n_threads); p < end; p++) {
    const uint32_t token = copse_moe_token_at(job, p);
    if (token == job->n_tokens) continue;
    const int32_t *ids = job->expert_ids + (uint64_t)token * job->top_k;
    for (uint32_t k = 0; k < job->top_k; k++)
      sums[k * n_threads + thread] += copse_moe_bin_of(job, ids[k]) == bin;
  }
}

/* Returns the sum of this thread's part of `sums`, top_k entries from thread * top_k on. */
COPSE_HD static inline uint32_t copse_moe_add_part(const struct copse_moe_job *job,
                                                   const uint32_t *sums, uint32_t thread) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < job->top_k; i++) total += sums[thread * job->top_k + i];
  return total;
}

/* Replaces this thread's part of `sums` by how many come before each; `before` come before the
 * part. */
COPSE_HD static inline void copse_moe_scan_part(const struct copse_moe_job *job, uint32_t *sums,
                                                uint32_t before, uint32_t thread) {
  for (uint32_t i = 0; i < job->top_k; i++) {
    uint32_t n = sums[thread * job->top_k + i];
    sums[thread * job->top_k + i] = before;
    before += n;
  }
}

COPSE_HD static inline void copse_moe_place_run(const struct copse_moe_job *job, uint32_t bin,
                                                uint32_t *sums, uint32_t thread,
                                                uint32_t n_threads) {
  const uint32_t end = copse_moe_run_start(job, thread + 1, n_threads);
  for (uint32_t p = copse_moe_run_start(job, thread, n_threads); p < end; p++) {
    const uint32_t token = copse_moe_token_at(job, p);
    if (token == job->n_tokens) continue;
    const uint64_t first = (uint64_t)token * job->top_k;
    for (uint32_t k = 0; k < job->top_k; k++)
      if (copse_moe_bin_of(job, job->expert_ids[first + k]) == bin)
        job->location[first + k] = sums[k * n_threads + thread]++;
  }
}

/* Locates all bins in one pass, for one thread. `chosen` is the counter. */
COPSE_HD static inline void copse_moe_locate_alone(const struct copse_moe_job *job) {
  const uint32_t n_bins = copse_moe_bins(job);
  for (uint32_t bin = 0; bin < n_bins; bin++) job->chosen[bin] = 0;
  for (uint32_t k = 0; k < job->top_k; k++)
    for (uint32_t p = 0; p < job->n_tokens; p++) {
      const uint32_t token = copse_moe_token_at(job, p);
      if (token == job->n_tokens) continue;
      const uint64_t choice = (uint64_t)token * job->top_k + k;
      job->location[choice] = job->chosen[copse_moe_bin_of(job, job->expert_ids[choice])]++;
    }
  for (uint32_t bin = 0; bin < n_bins; bin++) copse_moe_set_chosen(job, bin, job->chosen[bin]);
}

/* ---- PLAN -------------------------------------------------------------------------------- */

/* Counts what rank `source` sends to experts lo .. hi - 1. */
COPSE_HD static inline uint32_t copse_moe_taken_of(const struct copse_moe_job *job, uint32_t source,
                                                   uint32_t lo, uint32_t hi) {
  const uint32_t *row = job->taken + (uint64_t)source * job->n_experts;
  uint32_t total = 0;
  for (uint32_t e = lo; e < hi; e++) total += row[e];
  return total;
}

COPSE_HD static inline uint32_t copse_moe_owner_of(const struct copse_moe_job *job,
                                                   uint32_t expert) {
  return (uint32_t)((((uint64_t)expert + 1) * job->n_ranks - 1) / job->n_experts);
}

/* Computes what follows from `taken` alone: pairs of ranks, first rows, counts of experts. */
COPSE_HD static inline void copse_moe_plan_pairs(const struct copse_moe_job *job, uint32_t thread,
                                                 uint32_t n_threads) {
  const uint32_t n = job->n_ranks;
  for (uint32_t i = thread; i < n * n; i += n_threads) {
    const uint32_t from = i / n, to = i % n;
    const uint64_t rows = copse_moe_taken_of(job, from, copse_moe_first_of(to, n, job->n_experts),
                                             copse_moe_first_of(to + 1, n, job->n_experts));
    job->pairs[i] = rows * job->dispatched_elements;
    job->pairs_back[to * n + from] = rows * job->combined_elements;
  }
  for (uint32_t e = thread; e < job->n_experts; e += n_threads) {
    const uint32_t first = copse_moe_first_of(copse_moe_owner_of(job, e), n, job->n_experts);
    job->send_first[e] = copse_moe_taken_of(job, job->rank, first, e);
  }
  for (uint32_t e = thread; e < job->n_local; e += n_threads) {
    uint32_t total = 0;
    for (uint32_t s = 0; s < n; s++)
      total += copse_moe_taken_of(job, s, job->first_expert + e, job->first_expert + e + 1);
    job->expert_counts[e] = total;
  }
}

/* Computes where this rank's experts begin, from their counts. */
COPSE_HD static inline void copse_moe_plan_offsets(const struct copse_moe_job *job, uint32_t thread,
                                                   uint32_t n_threads) {
  for (uint32_t e = thread; e <= job->n_local; e += n_threads) {
    uint32_t offset = 0;
    if (job->padded)
      offset = e * job->n_ranks * job->capacity;
    else
      for (uint32_t i = 0; i < e; i++) offset += job->expert_counts[i];
    job->expert_offsets[e] = offset;
  }
}

/* Computes where each source's rows begin, here and in its block of far. */
COPSE_HD static inline void copse_moe_plan_places(const struct copse_moe_job *job, uint32_t thread,
                                                  uint32_t n_threads) {
  for (uint32_t p = thread; p < job->n_places; p += n_threads) {
    const uint32_t local = p / job->n_ranks, source = p % job->n_ranks;
    const uint32_t expert = job->first_expert + local;
    uint32_t row = job->expert_offsets[local];
    if (job->padded)
      row += source * job->capacity;
    else
      for (uint32_t s = 0; s < source; s++) row += copse_moe_taken_of(job, s, expert, expert + 1);
    job->place_row[p] = row;
    job->place_from[p] =
        source * job->block_rows + copse_moe_taken_of(job, source, job->first_expert, expert);
  }
  if (thread == 0) job->place_row[job->n_places] = job->expert_offsets[job->n_local];
}

/* ---- PACK -------------------------------------------------------------------------------- */

/* Returns the row of near that a choice goes to. Where the caller's order is no permutation some
 * choices were never located: they go to some row of the block, or to none. */
COPSE_HD static inline uint32_t copse_moe_slot_of(const struct copse_moe_job *job,
                                                  uint64_t choice) {
  const uint32_t expert = copse_moe_bin_of(job, job->expert_ids[choice]);
  if (expert >= job->n_experts) return COPSE_MOE_NONE;
  const uint32_t location = job->location[choice];
  if (location >= job->taken[(uint64_t)job->rank * job->n_experts + expert]) return COPSE_MOE_NONE;
  return copse_moe_owner_of(job, expert) * job->block_rows + job->send_first[expert] + location;
}

COPSE_HD static inline void copse_moe_pack(const struct copse_moe_job *job,
                                           struct copse_moe_lane at) {
  for (uint64_t token = at.first; token < job->n_tokens; token += at.step) {
    const unsigned char *from = job->tokens_in + token * job->row_bytes;
    for (uint32_t k = 0; k < job->top_k; k++) {
      const uint64_t choice = token * job->top_k + k;
      const uint32_t slot = copse_moe_slot_of(job, choice);
      if (at.lane == 0) job->slot[choice] = slot;
      if (slot == COPSE_MOE_NONE) continue;
      unsigned char *to = job->near_rows + slot * job->row_bytes;
      if (job->weights)
        copse_moe_scale_row(job, to, from, choice, at);
      else
        copse_moe_copy_row(job, to, from, at);
    }
  }
}

/* ---- UNPACK, COLLECT --------------------------------------------------------------------- */

/* Returns the row of far that belongs to a row of `rows`; COPSE_MOE_NONE for padding. */
COPSE_HD static inline uint32_t copse_moe_far_of(const struct copse_moe_job *job, uint32_t row) {
  uint32_t lo = 0,
           hi = job->n_places; /* searches the last place that begins at or before the row */
  while (hi - lo > 1) {
    const uint32_t middle = lo + (hi - lo) / 2;
    if (job->place_row[middle] <= row)
      lo = middle;
    else
      hi = middle;
  }
  const uint32_t expert = job->first_expert + lo / job->n_ranks, source = lo % job->n_ranks;
  const uint32_t location = row - job->place_row[lo];
  if (location >= job->taken[(uint64_t)source * job->n_experts + expert]) return COPSE_MOE_NONE;
  return job->place_from[lo] + location;
}

COPSE_HD static inline void copse_moe_unpack(const struct copse_moe_job *job,
                                             struct copse_moe_lane at) {
  const uint64_t n_rows = job->place_row[job->n_places];
  for (uint64_t row = at.first; row < n_rows; row += at.step) {
    const uint32_t far_row = copse_moe_far_of(job, (uint32_t)row);
    unsigned char *to = job->rows + row * job->row_bytes;
    if (far_row == COPSE_MOE_NONE)
      copse_moe_clear_row(job, to, at);
    else
      copse_moe_copy_row(job, to, job->far_rows + far_row * job->row_bytes, at);
  }
}

COPSE_HD static inline void copse_moe_collect(const struct copse_moe_job *job,
                                              struct copse_moe_lane at) {
  const uint64_t n_rows = job->place_row[job->n_places];
  for (uint64_t row = at.first; row < n_rows; row += at.step) {
    const uint32_t far_row = copse_moe_far_of(job, (uint32_t)row);
    if (far_row != COPSE_MOE_NONE)
      copse_moe_copy_row(job, job->far_rows + far_row * job->row_bytes,
                         job->rows + row * job->row_bytes, at);
  }
}

/* ---- REDUCE ------------------------------------------------------------------------------ */

COPSE_HD static inline void copse_moe_reduce(const struct copse_moe_job *job,
                                             struct copse_moe_lane at) {
  for (uint64_t token = at.first; token < job->n_tokens; token += at.step)
    copse_moe_reduce_row(job, token, at);
}
