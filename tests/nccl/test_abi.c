/*
 * src/dropin/functions.h against the nccl.h at hand when this is compiled, and against the
 * real libnccl.so.2 where there is one: everything it exports can be reached through the drop-in.
 */
#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif
#endif

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copse/types.h"
#include "dropin/functions.h"
#include "support/support.h"

/* ---- nccl.h ---------------------------------------------------------------------------------- */

#if defined(NCCL_MAJOR) && NCCL_VERSION_CODE >= 22800
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#if NCCL_VERSION_CODE >= 23000 /* still exported; in nccl.h a macro that does nothing */
#undef ncclResetDebugInit
#undef pncclResetDebugInit
void ncclResetDebugInit(void);
void pncclResetDebugInit(void);
#endif

#define SAME_PROTOTYPE(type, missing, name, params, args)                                       \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&nccl##name), type(*) params), #name); \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&pnccl##name), type(*) params), #name);
COPSE_NCCL_SERVED(SAME_PROTOTYPE)
COPSE_NCCL_FORWARDED(SAME_PROTOTYPE)
#if NCCL_VERSION_CODE >= 23100
COPSE_NCCL_CONFIGURED(SAME_PROTOTYPE)
#endif

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(ncclInt8, COPSE_INT8);
SAME(ncclUint8, COPSE_UINT8);
SAME(ncclInt32, COPSE_INT32);
SAME(ncclUint32, COPSE_UINT32);
SAME(ncclInt64, COPSE_INT64);
SAME(ncclUint64, COPSE_UINT64);
SAME(ncclFloat16, COPSE_HALF);
SAME(ncclFloat32, COPSE_FLOAT);
SAME(ncclFloat64, COPSE_DOUBLE);
SAME(ncclBfloat16, COPSE_BFLOAT16);
SAME(ncclFloat8e4m3, COPSE_FLOAT8_E4M3);
SAME(ncclFloat8e5m2, COPSE_FLOAT8_E5M2);
SAME(ncclSum, COPSE_SUM);
SAME(ncclProd, COPSE_PROD);
SAME(ncclMax, COPSE_MAX);
SAME(ncclMin, COPSE_MIN);
SAME(ncclAvg, COPSE_AVG);
SAME(ncclNumOps, COPSE_N_REDOPS);
/* abi.h, which is not in force here */
SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);
SAME(NCCL_WIN_COLL_SYMMETRIC, COPSE_NCCL_WINDOW_SYMMETRIC);
SAME(NCCL_SHRINK_ABORT, COPSE_NCCL_SHRINK_ABORT);
SAME(offsetof(ncclConfig_t, blocking), sizeof(size_t) + 2 * sizeof(int));
SAME(sizeof(ncclUniqueId), 128);
SAME(sizeof(ncclDataType_t), sizeof(int));
SAME(sizeof(ncclRedOp_t), sizeof(int));

START_TEST(prototypes_and_values_are_those_of_nccl_h) {
  ck_assert_int_ge(NCCL_VERSION_CODE, 22800); /* the rest was checked by the compiler */
}
END_TEST
#else
START_TEST(prototypes_and_values_are_those_of_nccl_h) {
  COPSE_SKIP("no nccl.h of 2.28 or later was there to compare with");
}
END_TEST
#endif

/* ---- libnccl.so.2 ------------------------------------------------------------------------------
 */

/* Where toolkits and packages put it; the fake one of the tests is not meant. */
static const char *find_real(void) {
  static const char *const places[] = {
      "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/lib/aarch64-linux-gnu/libnccl.so.2",
      "/usr/local/cuda/lib64/libnccl.so.2",     "/usr/local/cuda/lib/libnccl.so.2",
      "/usr/local/cuda-13.0/lib/libnccl.so.2",  "/usr/lib64/libnccl.so.2"};
  const char *named = getenv("COPSE_TEST_NCCL");
  if (named) return named;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (access(places[i], R_OK) == 0) return places[i];
  return NULL;
}

static void *open_drop_in(void) {
  char path[600];
  ssize_t n = readlink("/proc/self/exe", path, 500);
  ck_assert_int_gt(n, 0);
  path[n] = '\0';
  for (int up = 0; up < 3; up++) *strrchr(path, '/') = '\0';
  strcat(path, "/libcopse-nccl.so");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", dlerror());
  return library;
}

START_TEST(all_that_the_real_nccl_exports_is_there) {
  const char *real = find_real();
  char command[700], name[256];
  int n = 0;
  if (!real) COPSE_SKIP("no libnccl.so.2 here (COPSE_TEST_NCCL may name one)");
  void *library = open_drop_in(), *theirs = dlopen(real, RTLD_LAZY | RTLD_LOCAL);
  ck_assert_msg(theirs != NULL, "%s", dlerror());
  int (*version_of)(int *) = (int (*)(int *))dlsym(theirs, "ncclGetVersion"), version = 0;
  ck_assert_int_eq(version_of(&version), 0);
  if (version >= 22900) COPSE_SKIP("a newer NCCL has more: scripts/check_nccl looks where they lead");
  snprintf(command, sizeof command, "nm -D --defined-only %s", real);
  FILE *symbols = popen(command, "r");
  ck_assert_ptr_nonnull(symbols);
  while (fscanf(symbols, "%*s %*s %255s", name) == 1) {
    if (strncmp(name, "nccl", 4) != 0 && strncmp(name, "pnccl", 5) != 0) continue;
    ck_assert_msg(dlsym(library, name) != NULL, "no %s", name);
    n++;
  }
  ck_assert_int_eq(pclose(symbols), 0);
  ck_assert_int_ge(n, 60);
}
END_TEST

/* What needs no GPU gives the real one's answer. */
START_TEST(calls_reach_the_real_nccl) {
  const char *path = find_real();
  if (!path) COPSE_SKIP("no libnccl.so.2 here (COPSE_TEST_NCCL may name one)");
  setenv("COPSE_NCCL_LIBRARY", path, 1);
  void *ours = open_drop_in(), *real = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  ck_assert_msg(real != NULL, "%s", dlerror());
  static const char *const texts[] = {"ncclGetErrorString", "pncclGetErrorString"};
  for (int i = 0; i < 2; i++) {
    const char *(*mine)(int) = (const char *(*)(int))dlsym(ours, texts[i]);
    const char *(*theirs)(int) = (const char *(*)(int))dlsym(real, texts[i]);
    for (int result = 0; result < 8; result++) ck_assert_str_eq(mine(result), theirs(result));
  }
  int a = 0, b = 1;
  int (*my_version)(int *) = (int (*)(int *))dlsym(ours, "ncclGetVersion");
  int (*their_version)(int *) = (int (*)(int *))dlsym(real, "ncclGetVersion");
  ck_assert_int_eq(my_version(&a), 0);
  ck_assert_int_eq(their_version(&b), 0);
  ck_assert_int_eq(a, b);
  /* NCCL's own refusal, with its own text */
  int (*init_all)(void **, int, const int *) =
      (int (*)(void **, int, const int *))dlsym(ours, "ncclCommInitAll");
  void *comm = NULL;
  ck_assert_int_ne(init_all(&comm, -1, NULL), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl/abi");
  TCase *tc = tcase_create("abi");
  tcase_add_test(tc, prototypes_and_values_are_those_of_nccl_h);
  tcase_add_test(tc, all_that_the_real_nccl_exports_is_there);
  tcase_add_test(tc, calls_reach_the_real_nccl);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
