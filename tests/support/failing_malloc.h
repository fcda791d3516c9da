/*
 * The C library's allocator replaced by one that counts what is live and fails on demand, for
 * the whole program: only for tests of what happens without memory, each of which includes this
 * once. The sanitizers don't allow it; under them REPLACES_MALLOC is 0 and such a test is skipped.
 */
#ifndef COPSE_TESTS_SUPPORT_FAILING_MALLOC_H
#define COPSE_TESTS_SUPPORT_FAILING_MALLOC_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACES_MALLOC 0
#else
#define REPLACES_MALLOC 1
#endif

/* Blocks allocated and not freed; so many allocations succeed before one fails, -1: all do. */
static long live, until_failure = -1;

#if REPLACES_MALLOC
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

/* Seen by the libraries too, whatever the build's default visibility. */
#define EVERYWHERE __attribute__((visibility("default")))

/* GLPK and GMP end the program where they get no memory: theirs doesn't fail here. */
static bool ends_the_program(const void *caller) {
  static const char *const libraries[] = {"libglpk", "libgmp", "libamd", "libcolamd"};
  Dl_info about;
  if (!dladdr(caller, &about) || !about.dli_fname) return false;
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
    if (strstr(about.dli_fname, libraries[i])) return true;
  return false;
}

/* errno as malloc(3) has it: the C library's own functions look at it. */
static bool fails_for(const void *caller) {
  if (until_failure < 0 || ends_the_program(caller)) return false;
  const bool it = until_failure-- == 0;
  if (it) errno = ENOMEM;
  return it;
}

#define fails() fails_for(__builtin_return_address(0))

static void *counted(void *p) {
  live += p != NULL;
  return p;
}

EVERYWHERE void *malloc(size_t size) { return fails() ? NULL : counted(__libc_malloc(size)); }
EVERYWHERE void *calloc(size_t n, size_t size) {
  return fails() ? NULL : counted(__libc_calloc(n, size));
}
EVERYWHERE void *aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : counted(__libc_memalign(alignment, size));
}
EVERYWHERE void *realloc(void *old, size_t size) {
  void *p = fails() ? NULL : __libc_realloc(old, size);
  live += p != NULL && old == NULL;
  return p;
}
EVERYWHERE void free(void *p) {
  live -= p != NULL;
  __libc_free(p);
}
#endif

#endif
