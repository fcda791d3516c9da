/*
 * The drop-in's functions under NCCL's names.
 */
#ifndef COPSE_DROPIN_EXPORTS_H
#define COPSE_DROPIN_EXPORTS_H

#include "dropin/functions.h"

#define COPSE_NCCL_EXPORT __attribute__((visibility("default")))

#define COPSE_NCCL_DECLARE(type, missing, name, params, args) \
  COPSE_NCCL_EXPORT type nccl##name params;                   \
  COPSE_NCCL_EXPORT type pnccl##name params;
COPSE_NCCL_SERVED(COPSE_NCCL_DECLARE)
COPSE_NCCL_FORWARDED(COPSE_NCCL_DECLARE)
COPSE_NCCL_DEVICE_API(COPSE_NCCL_DECLARE)
#undef COPSE_NCCL_DECLARE

#endif
