/*
 * Every allocation of a reading fails once: the reader must say so and free what it has.
 * Under the sanitizers the test is skipped.
 */
#include "helpers.h"
#include "support/failing_malloc.h"

#if REPLACES_MALLOC
#include <libxml/parser.h>
#include <libxml/xmlmemory.h>

/* libxml2 keeps what it has once set up, and isn't what is tested: it goes uncounted. */
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

static const char *const texts[] = {
    "{\"format\": \"copse-topology/1\", \"name\": \"n\", \"nodes\": ["
    "{\"id\": \"a\", \"type\": \"gpu\", \"rank\": 0}, {\"id\": \"b\", \"type\": \"odd\"}],"
    "\"links\": [{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": 1}]}",
    "{\"format\": \"copse-cluster/1\", \"host\": \"topologies/a100-host.json\", \"hosts\": 2,"
    " \"fabric\": {\"type\": \"rails\", \"bandwidth\": 25, \"spine_bandwidth\": 5}}",
    "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"1\" class=\"0x0604\"><pci busid=\"2\">"
    "<gpu sm=\"80\" rank=\"0\"><nvlink target=\"3\" count=\"1\" tclass=\"0x068000\"/></gpu></pci>"
    "<pci busid=\"4\"><nic><net name=\"x\"/><net name=\"x\"/></nic></pci></pci></cpu>"
    "<cpu numaid=\"1\"/></system>",
};

START_TEST(a_failed_allocation_is_reported_and_leaks_nothing) {
  if (!REPLACES_MALLOC) COPSE_SKIP("malloc can't be replaced under a sanitizer");
  set_libxml_aside();
  struct copse_topology *warm = read_good(texts[_i], COPSE_LINKS_DEFAULT);
  copse_topology_release(warm);
  long failures = 0;
  for (long n = 0;; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    long before = live;
    until_failure = n;
    copse_status status = copse_topology_parse("t", texts[_i], strlen(texts[_i]), NULL, &t, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert((status == COPSE_OK) == (t != NULL));
    if (status == COPSE_OK) copse_topology_release(t);
    ck_assert_msg(live == before, "allocation %ld: %ld blocks leaked", n, live - before);
    if (!reached) break;
    failures += status != COPSE_OK;
  }
  ck_assert_int_gt(failures, 10);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/out_of_memory");
  TCase *tc = tcase_create("readers");
  tcase_add_loop_test(tc, a_failed_allocation_is_reported_and_leaks_nothing, 0,
                      (int)(sizeof texts / sizeof *texts));
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
