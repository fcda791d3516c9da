/*
 * The Python module of python/: its tests and docstrings over this build's libcopse, and the wheel,
 * installed into an environment of its own.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/support.h"

/* A sanitized library needs its runtime before Python's own allocations. */
#ifdef __SANITIZE_ADDRESS__
#define PRELOAD                                                          \
  "LD_PRELOAD=\"$(${CC:-gcc} -print-file-name=libasan.so) $(${CC:-gcc} " \
  "-print-file-name=libubsan.so)\" ASAN_OPTIONS=detect_leaks=0 "
#else
#define PRELOAD ""
#endif

static const char *bin(void) { return getenv("COPSE_BIN") ? getenv("COPSE_BIN") : "build/copse"; }

START_TEST(the_module_does_what_its_tests_and_docstrings_say) {
  if (copse_test_command("python3 -c 'import sys, ctypes; sys.exit(sys.version_info < (3, 9))'"))
    COPSE_SKIP("python3, 3.9 or later, is missing");
  int status = copse_test_command(
      "COPSE_BIN=$(realpath %s) COPSE_LIBRARY=$(dirname $(realpath %s))/libcopse.so "
      "COPSE_TOPOLOGIES=$PWD/topologies PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 " PRELOAD
      "python3 -m unittest discover -s python/tests",
      bin(), bin());
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
}
END_TEST

/* As a user does it, with nothing of this tree in the environment. */
START_TEST(the_wheel_is_built_and_used_without_network) {
  if (strcmp(bin(), "build/copse") != 0) COPSE_SKIP("the wheel is of the release build");
  if (copse_test_command("python3 -m venv %%/env")) COPSE_SKIP("python3-venv is missing");
  int status = copse_test_command("%%/env/bin/pip wheel -q --no-index ./python -w %%");
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
  status = copse_test_command("%%/env/bin/pip install -q --no-index %%/copse-*.whl");
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
  status = copse_test_command(
      "cd %% && unset COPSE_BIN COPSE_LIBRARY COPSE_TOPOLOGIES PYTHONPATH && "
      "env/bin/copse solve a100-x2 -c allreduce -o s.json && env/bin/python -c 'import copse; "
      "t = copse.Topology.catalogue(\"a100-x2\"); s = copse.Schedule.read(\"s.json\"); "
      "print(s.verify(t), s.json() == copse.solve(t, \"allreduce\").json(), \"<svg\" in "
      "t._repr_svg_())'");
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "both phases optimal True True"));
  ck_assert_int_eq(copse_test_command("%%/env/bin/pip uninstall -q -y copse && "
                                      "! test -e %%/env/bin/copse"),
                   0);
}
END_TEST

int main(void) {
  if (!copse_test_folder()) return EXIT_FAILURE;
  Suite *suite = suite_create("api/python");
  TCase *tc = tcase_create("all");
  tcase_add_test(tc, the_module_does_what_its_tests_and_docstrings_say);
  tcase_set_timeout(tc, 300);
  if (COPSE_TEST_SWEEPS) tcase_add_test(tc, the_wheel_is_built_and_used_without_network);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
