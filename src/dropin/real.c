/* Finding the real NCCL, and the functions that are passed on to it as they are. */
#include <dlfcn.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "dropin/real.h"

static _Thread_local int inside;

void copse_nccl_enter(void) { inside++; }
void copse_nccl_leave(void) { inside--; }
bool copse_nccl_is_inside(void) { return inside > 0; }

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool named;     /* COPSE_NCCL_LIBRARY is set: nothing else counts */
static void *by_name;  /* that library, or NULL */
static void *fallback; /* libnccl.so.2; set under `lock` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_named(void) {
  const char *path = getenv("COPSE_NCCL_LIBRARY");
  if (!path || !*path) return;
  named = true;
  by_name = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!by_name) copse_debug(COPSE_DEBUG_WARN, -1, "COPSE_NCCL_LIBRARY: %s", dlerror());
}

/* What is loaded already comes first: a second NCCL in the process would know none of the first
 * one's communicators. */
static void *open_fallback(void) {
  COPSE_HOLD(&lock);
  if (!fallback) fallback = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!fallback) fallback = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  return fallback;
}

/* A link named libnccl.so.2 may lead back here. */
static bool is_ours(void *function) {
  Dl_info theirs, ours;
  return dladdr(function, &theirs) && dladdr((void *)&once, &ours) &&
         theirs.dli_fbase == ours.dli_fbase;
}

void *copse_nccl_find(const char *name, void *_Atomic *cache) {
  void *function = atomic_load_explicit(cache, memory_order_acquire);
  if (function) return function;
  (void)pthread_once(&once, open_named);
  if (named) {
    if (by_name) function = dlsym(by_name, name);
  } else {
    function = dlsym(RTLD_NEXT, name);
    void *library = function ? NULL : open_fallback();
    if (library) function = dlsym(library, name);
  }
  if (function && is_ours(function)) function = NULL;
  if (function)
    atomic_store_explicit(cache, function, memory_order_release);
  else
    copse_debug(COPSE_DEBUG_WARN, -1,
                "no %s: COPSE_NCCL_LIBRARY may name a libnccl.so.2 that has it", name);
  return function;
}

#define DEFINE(prefix, symbol, type, missing, name, params, args)                   \
  type prefix##name params {                                                        \
    static void *_Atomic cache;                                                     \
    type(*function) params = (type(*) params)copse_nccl_find(symbol #name, &cache); \
    if (!function) return missing;                                                  \
    return function args;                                                           \
  }
#define DEFINE_REAL(...) DEFINE(copse_nccl_real_, "nccl", __VA_ARGS__)
#define DEFINE_PROFILING(...) DEFINE(pnccl, "pnccl", __VA_ARGS__)
COPSE_NCCL_SERVED(DEFINE_REAL)
COPSE_NCCL_CONFIGURED(DEFINE_REAL)
COPSE_NCCL_FORWARDED(DEFINE_REAL)
COPSE_NCCL_DEVICE_API(DEFINE_REAL)
COPSE_NCCL_SERVED(DEFINE_PROFILING)
COPSE_NCCL_CONFIGURED(DEFINE_PROFILING)
COPSE_NCCL_FORWARDED(DEFINE_PROFILING)
COPSE_NCCL_DEVICE_API(DEFINE_PROFILING)

#define FORWARD(type, missing, name, params, args) \
  type nccl##name params { return copse_nccl_real_##name args; }
COPSE_NCCL_FORWARDED(FORWARD)
COPSE_NCCL_DEVICE_API(FORWARD)

/* Exported by NCCL without a twin. */
COPSE_NCCL_EXPORT void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) {
  static void *_Atomic cache;
  void (*function)(void) = (void (*)(void))copse_nccl_find("ncclResetDebugInitInternal", &cache);
  if (function) function();
}
