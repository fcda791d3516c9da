/*
 * Runs the steps of a layer for all ranks of a case on one machine, with a plain exchange in
 * place of the collectives, and checks every result.
 */
#ifndef COPSE_TESTS_MOE_DRIVER_H
#define COPSE_TESTS_MOE_DRIVER_H

#include "runtime/moe/job.h"
#include "support/moe_case.h"

#ifdef __cplusplus
extern "C" {
#endif

struct moe_driver {
  const struct copse_moe_ops *ops;
  int device;
  /* Between the host's memory and the device's, after what was run there. */
  void (*copy)(void *to, const void *from, size_t bytes);
};

/* Dispatches and combines twice on the same memory: nothing of the first must matter. */
void moe_drive(const struct moe_driver *driver, const struct moe_options *options, uint64_t *state);

#ifdef __cplusplus
}
#endif
#endif
