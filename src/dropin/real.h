/* The drop-in's functions under NCCL's names, and the real NCCL behind them. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "dropin/functions.h"

/*
 * Finds the real function of that name, or NULL (said at WARN). It is looked for in the library
 * that the environment variable COPSE_NCCL_LIBRARY names; without it in the libraries that come
 * after this one, then in a libnccl.so.2 that the process has loaded, then by loading one. *cache,
 * zero at first, belongs to the caller. Any thread.
 */
void *copse_nccl_find(const char *name, void *_Atomic *cache);

#define COPSE_NCCL_EXPORT __attribute__((visibility("default")))

/* What is exported; and copse_nccl_real_AllReduce(...) and so on: the real function, or the table's
 * result without. */
#define COPSE_NCCL_DECLARE(type, missing, name, params, args) \
  COPSE_NCCL_EXPORT type nccl##name params;                   \
  COPSE_NCCL_EXPORT type pnccl##name params;                  \
  type copse_nccl_real_##name params;
COPSE_NCCL_SERVED(COPSE_NCCL_DECLARE)
COPSE_NCCL_CONFIGURED(COPSE_NCCL_DECLARE)
COPSE_NCCL_FORWARDED(COPSE_NCCL_DECLARE)
COPSE_NCCL_DEVICE_API(COPSE_NCCL_DECLARE)
#undef COPSE_NCCL_DECLARE

/* Enters: while a thread is inside (copse uses NCCL; or NCCL one of its own public functions, as
 * its ncclBcast does) all functions of the drop-in hand on to the real ones. Nests. */
void copse_nccl_enter(void);
void copse_nccl_leave(void);
