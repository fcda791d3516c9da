/*
 * What the drop-in hands on as it is. It must define these too: a program that is linked with the
 * drop-in, or that loads it by name and asks for functions (as ctypes users do), expects all of
 * NCCL.
 */
#include "dropin/exports.h"
#include "dropin/real.h"

#define FORWARD(type, missing, name, params, args) \
  type nccl##name params { return copse_nccl_real_##name args; }
COPSE_NCCL_FORWARDED(FORWARD)
COPSE_NCCL_DEVICE_API(FORWARD)

#define FORWARD_PROFILING(type, missing, name, params, args)                         \
  type pnccl##name params {                                                          \
    static void *_Atomic cache;                                                      \
    type(*function) params = (type(*) params)copse_nccl_find("pnccl" #name, &cache); \
    if (!function) return missing;                                                   \
    return function args;                                                            \
  }
COPSE_NCCL_SERVED(FORWARD_PROFILING)
COPSE_NCCL_FORWARDED(FORWARD_PROFILING)
COPSE_NCCL_DEVICE_API(FORWARD_PROFILING)

/* Exported by NCCL without a twin. */
COPSE_NCCL_EXPORT void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) {
  static void *_Atomic cache;
  void (*function)(void) = (void (*)(void))copse_nccl_find("ncclResetDebugInitInternal", &cache);
  if (function) function();
}
