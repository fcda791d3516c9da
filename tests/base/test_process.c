/* Another program as a filter: whole text both ways, and every way in which it can go wrong. Files
 * that are written in pieces. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/file.h"
#include "base/text.h"
#include "support/support.h"

static copse_status filter(const char *script, const char *input, size_t size, size_t most,
                           char **out, size_t *out_size, struct copse_err *err) {
  char shell[] = "sh", option[] = "-c", text[256];
  char *const argv[] = {shell, option, text, NULL};
  snprintf(text, sizeof text, "%s", script);
  return copse_process_filter(argv, input, size, 1, most, out, out_size, err);
}

START_TEST(more_than_a_pipe_holds_goes_through_whole) {
  struct copse_err err = COPSE_ERR_INIT;
  size_t size = (size_t)3 << 20, n;
  char *input = malloc(size), *out;
  for (size_t i = 0; i < size; i++) input[i] = (char)('a' + i * i % 23);
  ASSERT_OK(filter("cat", input, size, size, &out, &n, &err), &err);
  ck_assert_uint_eq(n, size);
  ck_assert_int_eq(memcmp(out, input, size), 0);
  ck_assert_int_eq(out[n], '\0');
  free(out);
  ASSERT_FAILS(filter("cat", input, size, size - 1, &out, &n, &err), COPSE_IO, &err, "wrote more");
  ck_assert_ptr_null(out);
  free(input);
}
END_TEST

START_TEST(no_input_and_no_output_are_fine) {
  struct copse_err err = COPSE_ERR_INIT;
  char *out;
  size_t n;
  ASSERT_OK(filter("cat", "", 0, 10, &out, &n, &err), &err);
  ck_assert_uint_eq(n, 0);
  free(out);
  /* one that does not read is no broken pipe of ours */
  char *input = calloc(1, 1 << 20);
  ASSERT_OK(filter("exec 0<&-; echo x", input, 1 << 20, 10, &out, &n, &err), &err);
  ck_assert_str_eq(out, "x\n");
  free(out);
  free(input);
}
END_TEST

START_TEST(failures_are_told_apart) {
  struct copse_err err = COPSE_ERR_INIT;
  char none[] = "no-such-program-of-copse", *out;
  char *const argv[] = {none, NULL};
  size_t n;
  ASSERT_FAILS(copse_process_filter(argv, "", 0, 1, 10, &out, &n, &err), COPSE_UNSUPPORTED, &err,
               "no-such-program-of-copse");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(filter("echo x; exit 3", "", 0, 10, &out, &n, &err), COPSE_IO, &err, "failed");
  ck_assert_ptr_null(out);
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(filter("kill -9 $$", "", 0, 10, &out, &n, &err), COPSE_IO, &err, "failed");
}
END_TEST

START_TEST(what_takes_too_long_is_ended) {
  struct copse_err err = COPSE_ERR_INIT;
  char *out;
  size_t n;
  double start = copse_clock_seconds();
  ASSERT_FAILS(filter("exec sleep 60", "", 0, 10, &out, &n, &err), COPSE_NOMEM, &err,
               "not done within 1 s");
  ck_assert(copse_clock_seconds() - start < 30);
}
END_TEST

/* A signal that ends the program waits for the file: it is there whole, and nothing beside it. */
START_TEST(a_file_that_is_being_written_is_finished_first) {
  enum { BYTES = 64 << 20 };
  char folder[] = "/tmp/copse-interrupted-XXXXXX", path[64], line[128];
  struct copse_err err = COPSE_ERR_INIT;
  char *data;
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/file", folder);
  snprintf(line, sizeof line, "test \"$(ls -A %s)\" = file", folder);
  ASSERT_OK(copse_calloc(BYTES, 1, &data, &err), &err);
  memset(data, 1, BYTES);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGTERM, SIG_DFL);
    _exit(copse_file_write(path, data, BYTES, &err) == COPSE_OK ? 1 : 2);
  }
  char beside[128];
  snprintf(beside, sizeof beside, "ls -A %s | grep -q file\\.", folder);
  for (int i = 0; i < 1000 && system(beside) != 0 && access(path, F_OK) != 0; i++) usleep(1000);
  kill(child, SIGTERM);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGTERM : WEXITSTATUS(status) == 1);
  int left = system(line);
  struct stat about;
  ck_assert_int_eq(stat(path, &about), 0);
  ck_assert_int_eq(about.st_size, BYTES);
  snprintf(line, sizeof line, "rm -r %s", folder);
  ck_assert_int_eq(system(line), 0);
  ck_assert_int_eq(left, 0);
  free(data);
}
END_TEST

/* As many lines as `thing` says, of all lengths, one longer than any buffer. */
static void print_lines(const void *thing, struct copse_text *text) {
  static char line[200001];
  memset(line, 'x', sizeof line - 1);
  for (int i = 0; i < *(const int *)thing; i++) {
    copse_text_add(text, "%d %.*s\n", i * i, i % 977, line);
    if (i == 5000) copse_text_append(text, line, sizeof line - 1);
  }
}

/* Loop: lines. What passes through in pieces is what is gathered in memory, packed or not, and a
 * write that fails leaves no file. */
START_TEST(what_is_printed_is_written_whole_or_not_at_all) {
  static const int lines[] = {0, 1, 100, 12000};
  static const char *const names[] = {"file", "file.gz"};
  char folder[] = "/tmp/copse-printed-XXXXXX", path[64], line[128];
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_text whole = {0};
  ck_assert_ptr_nonnull(mkdtemp(folder));
  print_lines(&lines[_i], &whole);
  ck_assert_uint_eq(copse_text_measure(print_lines, &lines[_i]), whole.size);
  for (int i = 0; i < 2; i++) {
    char *data;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    ASSERT_OK(copse_file_print(path, print_lines, &lines[_i], &err), &err);
    ASSERT_OK(copse_file_read(path, &data, &size, &err), &err);
    ck_assert_uint_eq(size, whole.size);
    ck_assert(size == 0 || memcmp(data, whole.data, size) == 0);
    free(data);
    unlink(path);
    if (whole.size < 1 << 20) continue;
    const struct rlimit little = {1 << 13, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    copse_status status = copse_file_print(path, print_lines, &lines[_i], &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    ck_assert_int_eq(status, COPSE_IO);
    err = (struct copse_err)COPSE_ERR_INIT;
  }
  copse_text_free(&whole);
  snprintf(line, sizeof line, "rmdir %s", folder); /* nothing is left in it */
  ck_assert_int_eq(system(line), 0);
}
END_TEST

START_TEST(xml_text_is_escaped_and_valid) {
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"a<b>&\"c'", "a&lt;b&gt;&amp;&quot;c&#39;"},
      {"\xe6\xbc\xa2 \xf0\x9f\x8c\xb3", "\xe6\xbc\xa2 \xf0\x9f\x8c\xb3"},
      {"\x01x\x1b", "\xef\xbf\xbdx\xef\xbf\xbd"},
      {"\xff\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xef\xbf\xbf!", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!"},
      {"\xe6\xbc", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_text text = {0};
    copse_text_append(&text, "", 0);
    copse_text_add_xml(&text, cases[i].in);
    ck_assert_str_eq(text.data, cases[i].out);
    copse_text_free(&text);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("base/process");
  TCase *tests = tcase_create("process");
  tcase_add_test(tests, more_than_a_pipe_holds_goes_through_whole);
  tcase_add_test(tests, no_input_and_no_output_are_fine);
  tcase_add_test(tests, failures_are_told_apart);
  tcase_add_test(tests, what_takes_too_long_is_ended);
  tcase_add_test(tests, a_file_that_is_being_written_is_finished_first);
  tcase_add_loop_test(tests, what_is_printed_is_written_whole_or_not_at_all, 0, 4);
  tcase_add_test(tests, xml_text_is_escaped_and_valid);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
