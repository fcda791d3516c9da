/* The options of `copse run`, as in nccl-tests where there is a counterpart, and what it prints:
 * nccl-tests' table, or JSON. */
#ifndef COPSE_CLI_RUN_TABLE_H
#define COPSE_CLI_RUN_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/executor.h"
#include "runtime/plan/plan.h"

struct copse_run_options {
  const char *plan; /* path or "-" */
  uint64_t min_bytes, max_bytes;
  uint64_t step_bytes; /* 0: by the factor */
  int64_t step_factor;
  uint32_t iters, warmup_iters, checks;
  const char *min_given, *max_given, *step_given, *factor_given; /* options, or NULL */
  bool types[COPSE_N_TYPES];
  bool redops[COPSE_N_REDOPS];
  enum copse_backend backend;
  bool out_of_place, in_place;
  bool json, trace;
  double timeout;      /* seconds without progress; 0: the backend's own */
  uint64_t max_memory; /* bytes; 0: what the machine has available */
};

const char *copse_run_backend_name(enum copse_backend backend);

/* One half of a row. */
struct copse_run_result {
  bool was_run; /* else the half is N/A: asked so, or alltoall in place */
  double us;    /* per launch */
  uint64_t wrong;
};

struct copse_run_row {
  uint64_t size;  /* bytes of the whole message */
  uint64_t count; /* elements: of a block, as in the library call */
  enum copse_type type;
  enum copse_redop redop;
  struct copse_run_result out_of_place, in_place;
};

struct copse_run_report;

/* Prints the table's head (nothing for JSON). The caller frees *out. */
copse_status copse_run_report_new(const struct copse_run_options *options,
                                  const struct copse_plan *plan, struct copse_run_report **out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_run_report_add(struct copse_run_report *report, const struct copse_run_row *row);
/* The footer, or the JSON object. *wrong: wrong elements in all rows. */
copse_status copse_run_report_end(struct copse_run_report *report, uint64_t *wrong,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_run_report_free(struct copse_run_report *report);

#endif
