#include "support/moe_driver.h"

#include <stdlib.h>
#include <string.h>

static void must(copse_status status, const struct copse_err *err) {
  if (status != COPSE_OK) moe_fail("%s (%s)", err->text, copse_status_string(status));
}

/* One rank's memory on the machine. */
struct seat {
  struct copse_moe_job job;
  void *memory; /* the layer's */
  int64_t n_rows;
};

static void *take(const struct moe_driver *driver, const void *from, size_t bytes) {
  struct copse_err err = COPSE_ERR_INIT;
  void *p;
  if (!from) return NULL;
  must(driver->ops->take(driver->device, bytes, &p, &err), &err);
  driver->copy(p, from, bytes);
  return p;
}

static void *take_poisoned(const struct moe_driver *driver, size_t bytes) {
  unsigned char *poison = malloc(bytes + 1);
  if (!poison) abort();
  memset(poison, MOE_POISON, bytes);
  void *p = take(driver, poison, bytes);
  free(poison);
  return p;
}

static void give_back(const struct moe_driver *driver, const void *memory) {
  driver->ops->give_back(driver->device, (void *)memory);
}

static void *fetch(const struct moe_driver *driver, const void *from, size_t bytes) {
  void *p = malloc(bytes + 1);
  if (!p) abort();
  driver->copy(p, from, bytes);
  return p;
}

static void run(const struct moe_driver *driver, struct seat *seats, uint32_t n,
                enum copse_moe_step step) {
  struct copse_err err = COPSE_ERR_INIT;
  for (uint32_t r = 0; r < n; r++)
    must(driver->ops->run(driver->device, step, &seats[r].job, NULL, &err), &err);
}

/* ---- in place of the collectives --------------------------------------------------------- */

static void gather_counts(const struct moe_driver *driver, struct seat *seats, uint32_t n) {
  const size_t n_experts = seats[0].job.n_experts;
  for (uint32_t from = 0; from < n; from++) {
    size_t offset = from * n_experts;
    uint32_t *row = fetch(driver, seats[from].job.taken + offset, n_experts * sizeof *row);
    for (uint32_t to = 0; to < n; to++)
      driver->copy(seats[to].job.taken + offset, row, n_experts * sizeof *row);
    free(row);
  }
}

/* pairs: the same at all ranks. Elements of `bytes`, rows of `row_bytes`. */
static void exchange(const struct moe_driver *driver, struct seat *seats, uint32_t n, bool back) {
  const struct copse_moe_job *any = &seats[0].job;
  const uint64_t elements = back ? any->combined_elements : any->dispatched_elements;
  const uint64_t block = any->block_rows * any->row_bytes;
  for (uint32_t from = 0; n > 1 && from < n; from++) {
    struct copse_moe_job *job = &seats[from].job;
    uint64_t *pairs = fetch(driver, back ? job->pairs_back : job->pairs, n * n * sizeof *pairs);
    for (uint32_t to = 0; to < n; to++) {
      const uint64_t bytes = pairs[from * n + to] * (job->row_bytes / elements);
      if (bytes > block) moe_fail("rank %u sends more to rank %u than fits", from, to);
      unsigned char *source = (back ? job->far_rows : job->near_rows) + to * block;
      unsigned char *target =
          (back ? seats[to].job.near_rows : seats[to].job.far_rows) + from * block;
      unsigned char *rows = fetch(driver, source, bytes);
      driver->copy(target, rows, bytes);
      free(rows);
    }
    free(pairs);
  }
}

/* ---- one rank ---------------------------------------------------------------------------- */

static void begin_dispatch(const struct moe_driver *driver, const struct moe_case *c, uint32_t rank,
                           struct seat *seat) {
  const struct moe_rank *r = &c->ranks[rank];
  struct copse_moe_job *job = &seat->job;
  const size_t choices = (size_t)r->n_tokens * (size_t)c->options.config.top_k;
  const size_t weight = c->options.config.row.type == COPSE_DOUBLE ? sizeof(double) : sizeof(float);
  job->n_tokens = (uint32_t)r->n_tokens;
  job->expert_ids = take(driver, r->expert_ids, choices * sizeof(int32_t));
  job->order = take(driver, r->order, (size_t)r->n_tokens * sizeof(int32_t));
  job->weights = take(driver, r->scales, choices * weight);
  job->tokens_in = take(driver, r->tokens, (size_t)r->n_tokens * c->row_bytes);
  job->rows = take_poisoned(driver, (size_t)seat->n_rows * c->row_bytes);
  copse_moe_set_row(job, &c->options.config.row, job->tokens_in, job->rows);
}

static void end_dispatch(const struct moe_driver *driver, const struct moe_case *c, uint32_t rank,
                         struct seat *seat) {
  struct copse_moe_job *job = &seat->job;
  const size_t word = sizeof(int32_t), n_experts = job->n_experts;
  int32_t *counts = fetch(driver, job->expert_counts, job->n_local * word);
  int32_t *offsets = fetch(driver, job->expert_offsets, (job->n_local + 1) * word);
  int32_t *taken = fetch(driver, job->taken, job->n_ranks * n_experts * word);
  int32_t *chosen = fetch(driver, job->chosen, (n_experts + 2) * word);
  unsigned char *rows = fetch(driver, job->rows, (size_t)seat->n_rows * c->row_bytes);
  moe_check_counts(c, rank, counts, offsets, taken, chosen);
  moe_check_rows(c, rank, rows, seat->n_rows);
  free(counts);
  free(offsets);
  free(taken);
  free(chosen);
  free(rows);
  give_back(driver, job->expert_ids);
  give_back(driver, job->order);
  give_back(driver, job->weights);
  give_back(driver, job->tokens_in);
  give_back(driver, job->rows);
}

static void begin_combine(const struct moe_driver *driver, const struct moe_case *c, uint32_t rank,
                          struct seat *seat) {
  const struct moe_rank *r = &c->ranks[rank];
  struct copse_moe_job *job = &seat->job;
  const size_t choices = (size_t)r->n_tokens * (size_t)c->options.config.top_k;
  const size_t weight = c->combined_row.type == COPSE_DOUBLE ? sizeof(double) : sizeof(float);
  job->rows = take(driver, r->answers, (size_t)r->n_rows * c->combined_bytes);
  job->weights = take(driver, r->weights, choices * weight);
  job->tokens_out = take_poisoned(driver, (size_t)r->n_tokens * c->combined_bytes);
  copse_moe_set_row(job, &c->combined_row, job->tokens_out, job->rows);
}

static void end_combine(const struct moe_driver *driver, const struct moe_case *c, uint32_t rank,
                        struct seat *seat) {
  struct copse_moe_job *job = &seat->job;
  unsigned char *tokens = fetch(driver, job->tokens_out, job->n_tokens * c->combined_bytes);
  moe_check_combined(c, rank, tokens);
  free(tokens);
  give_back(driver, job->rows);
  give_back(driver, job->weights);
  give_back(driver, job->tokens_out);
}

/* ---- all ranks --------------------------------------------------------------------------- */

static void dispatch(const struct moe_driver *driver, const struct moe_case *c,
                     struct seat *seats) {
  const uint32_t n = c->options.n_ranks;
  for (uint32_t r = 0; r < n; r++) begin_dispatch(driver, c, r, &seats[r]);
  run(driver, seats, n, COPSE_MOE_LOCATE);
  gather_counts(driver, seats, n);
  run(driver, seats, n, COPSE_MOE_PLAN);
  run(driver, seats, n, COPSE_MOE_PACK);
  exchange(driver, seats, n, false);
  run(driver, seats, n, COPSE_MOE_UNPACK);
  for (uint32_t r = 0; r < n; r++) end_dispatch(driver, c, r, &seats[r]);
}

static void combine(const struct moe_driver *driver, const struct moe_case *c, struct seat *seats) {
  const uint32_t n = c->options.n_ranks;
  for (uint32_t r = 0; r < n; r++) begin_combine(driver, c, r, &seats[r]);
  run(driver, seats, n, COPSE_MOE_COLLECT);
  exchange(driver, seats, n, true);
  run(driver, seats, n, COPSE_MOE_REDUCE);
  for (uint32_t r = 0; r < n; r++) end_combine(driver, c, r, &seats[r]);
}

void moe_drive(const struct moe_driver *driver, const struct moe_options *options,
               uint64_t *state) {
  struct copse_err err = COPSE_ERR_INIT;
  const copse_moe_config *config = &options->config;
  struct seat *seats = calloc(options->n_ranks, sizeof *seats);
  if (!seats) abort();
  for (uint32_t r = 0; r < options->n_ranks; r++) {
    struct seat *seat = &seats[r];
    must(copse_moe_shape(config, options->n_ranks, r, &seat->job, &err), &err);
    must(copse_moe_furnish(&seat->job, config, driver->ops, driver->device, &seat->memory, &err),
         &err);
    seat->n_rows = copse_moe_rows_at_most(&seat->job);
  }
  for (int round = 0; round < 2; round++) {
    struct moe_case *c = moe_case_new(options, state);
    dispatch(driver, c, seats);
    combine(driver, c, seats);
    moe_case_free(c);
  }
  for (uint32_t r = 0; r < options->n_ranks; r++) give_back(driver, seats[r].memory);
  free(seats);
}
