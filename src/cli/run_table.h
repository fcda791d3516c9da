/* What `copse run` prints: nccl-tests' table, or JSON. */
#ifndef COPSE_CLI_RUN_TABLE_H
#define COPSE_CLI_RUN_TABLE_H

#include "cli/run_options.h"
#include "runtime/plan/plan.h"

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
