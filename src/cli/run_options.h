/* The options of `copse run`, as in nccl-tests where there is a counterpart. */
#ifndef COPSE_CLI_RUN_OPTIONS_H
#define COPSE_CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/executor.h"

struct copse_run_options {
  const char *plan; /* path or "-" */
  uint64_t min_bytes, max_bytes;
  bool max_is_default; /* nobody asked for max_bytes */
  uint64_t step_bytes; /* 0: by the factor */
  uint64_t step_factor;
  uint32_t iters, warmup_iters, checks;
  bool types[COPSE_N_TYPES];
  bool redops[COPSE_N_REDOPS];
  enum copse_backend backend;
  bool out_of_place, in_place;
  bool json;
  double timeout; /* seconds without progress; 0: the backend's own */
  uint64_t max_memory; /* bytes; 0: what the machine has available */
};

/* What to do after parsing: go on, or leave with the status. */
enum copse_run_parse { COPSE_RUN_GO, COPSE_RUN_LEAVE };
enum copse_run_parse copse_run_options_parse(int argc, char **argv,
                                             struct copse_run_options *options, int *status);

/* Seconds, also where none were given: for backends whose ranks are processes. */
double copse_run_timeout(const struct copse_run_options *options);

const char *copse_run_backend_name(enum copse_backend backend);

/* The size after `size`; beyond max_bytes when there is none. */
uint64_t copse_run_next_size(const struct copse_run_options *options, uint64_t size);

#endif
