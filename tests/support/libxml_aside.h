/* libxml2 keeps what it has once set up, and isn't what such tests are of: after set_libxml_aside
 * it goes uncounted. Beside failing_malloc.h; does nothing where that does not replace malloc. */
#ifndef COPSE_TESTS_SUPPORT_LIBXML_ASIDE_H
#define COPSE_TESTS_SUPPORT_LIBXML_ASIDE_H

#include "support/failing_malloc.h"
#include "support/support.h"

#if REPLACES_MALLOC
#include <libxml/parser.h>
#include <libxml/xmlmemory.h>
#include <string.h>

static char *uncounted_strdup(const char *text) {
  size_t n = strlen(text) + 1;
  char *copy = __libc_malloc(n);
  return copy ? memcpy(copy, text, n) : NULL;
}
static void set_libxml_aside(void) {
  ck_assert_int_eq(xmlMemSetup(__libc_free, __libc_malloc, __libc_realloc, uncounted_strdup), 0);
  xmlInitParser();
}
#else
static void set_libxml_aside(void) {}
#endif

#endif
