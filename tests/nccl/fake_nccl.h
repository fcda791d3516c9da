/*
 * A "real NCCL" for tests without a GPU: ranks are threads of one process, device memory is the
 * host's, streams are not looked at. It counts calls. Beside it a libcuda.so.1.
 *
 * All devices are COPSE_DEVICE_CPU, so that copse's communicators are made on the CPU.
 */
#ifndef COPSE_TESTS_FAKE_NCCL_H
#define COPSE_TESTS_FAKE_NCCL_H

#include <stdbool.h>

#include "dropin/functions.h"

#define FAKE __attribute__((visibility("default")))

/* The functions of nccl.h that tests call. */
#define FAKE_DECLARE(type, missing, name, params, args) \
  type nccl##name params;                               \
  type pnccl##name params;
COPSE_NCCL_SERVED(FAKE_DECLARE)
COPSE_NCCL_FORWARDED(FAKE_DECLARE)
#undef FAKE_DECLARE

/* How often the function ("AllReduce") of this library was called. */
FAKE int fake_nccl_calls(const char *name);
/* All calls of the function fail with ncclInternalError from now on; NULL: none. */
FAKE void fake_nccl_fail(const char *name);

/* What NCCL_GRAPH_FILE was when ncclCommSplit was last called; "": not set, or never called. */
FAKE const char *fake_nccl_graph_file(void);

/* In libcuda.so.1; not linked: ask dlsym. */
FAKE void fake_driver_run_out_of_memory(bool yes); /* the device */
FAKE void fake_driver_fill_host(bool yes);         /* no page-locked memory */
FAKE int fake_driver_allocated(void);

#endif
