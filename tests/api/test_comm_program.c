/*
 * tests/api/comm_program.c, built against the public headers and the shared library of this
 * build: as C11, and the headers as C++.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/support.h"

static const char four[] =
    "{\"format\":\"copse-topology/1\",\"name\":\"four\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"},"
    "{\"id\":\"b\",\"type\":\"gpu\"},{\"id\":\"c\",\"type\":\"gpu\"},{\"id\":\"d\",\"type\":"
    "\"gpu\"}],"
    "\"links\":[{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":10},{\"src\":\"b\",\"dst\":\"c\","
    "\"bandwidth\":10},{\"src\":\"c\",\"dst\":\"d\",\"bandwidth\":10},{\"src\":\"d\",\"dst\":\"a\","
    "\"bandwidth\":10}]}";

/* This program's own build, the folder of $COPSE_BIN, with the flags that its library needs. */
static char folder[512] = "build";
static const char *flags = "";

static void find_build(void) {
  const char *bin = getenv("COPSE_BIN"), *end = bin ? strrchr(bin, '/') : NULL;
  if (end) snprintf(folder, sizeof folder, "%.*s", (int)(end - bin), bin);
  if (strstr(folder, "build/asan")) flags = "-fsanitize=address,undefined";
}

static int shell(const char *command) {
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(four_threads_sum_through_the_shared_library) {
  char dir[] = "/tmp/copse-program-XXXXXX", command[2048];
  ck_assert_ptr_nonnull(mkdtemp(dir));
  snprintf(command, sizeof command,
           "cc -std=c11 -Wall -Wextra -Werror %s -pthread -Iinclude tests/api/comm_program.c "
           "-o %s/program -L%s -lcopse -Wl,-rpath,\"$(cd %s && pwd)\"",
           flags, dir, folder, folder);
  ck_assert_int_eq(shell(command), 0);
  snprintf(command, sizeof command, "%s/four.json", dir);
  FILE *f = fopen(command, "w");
  ck_assert_ptr_nonnull(f);
  fputs(four, f);
  ck_assert_int_eq(fclose(f), 0);
  snprintf(command, sizeof command, "%s/program %s/four.json >/dev/null", dir, dir);
  ck_assert_int_eq(shell(command), 0);
  snprintf(command, sizeof command, "rm -rf %s", dir);
  ck_assert_int_eq(shell(command), 0);
}
END_TEST

START_TEST(the_headers_are_cpp_too) {
  if (shell("command -v c++ >/dev/null") != 0) COPSE_SKIP("no C++ compiler");
  ck_assert_int_eq(shell("echo '#include <copse/copse.h>' | c++ -std=c++17 -Wall -Wextra -Werror "
                         "-pedantic -Iinclude -fsyntax-only -x c++ -"),
                   0);
}
END_TEST

int main(void) {
  find_build();
  Suite *suite = suite_create("api/comm_program");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, four_threads_sum_through_the_shared_library);
  tcase_add_test(tc, the_headers_are_cpp_too);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
