/*
 * docs/architecture.md shows what the tool prints: every command in it is run, in one folder and in
 * order, and what it prints is compared with the lines below it. A line "..." stands for any number
 * of lines. Files that the document names must exist.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "support/command.h"
#include "support/support.h"

#define DOCUMENT "docs/architecture.md"
#define INDENT "    "

/* The document, its line ends replaced by NULs; lines [n + 1] ends with NULL. */
struct document {
  char *text, **lines;
  size_t n;
};

static struct document read_document(void) {
  struct copse_err err = COPSE_ERR_INIT;
  struct document d = {0};
  size_t size;
  ASSERT_OK(copse_file_read(DOCUMENT, &d.text, &size, &err), &err);
  for (size_t i = 0; i < size; i++) d.n += d.text[i] == '\n';
  d.lines = calloc(d.n + 1, sizeof *d.lines);
  ck_assert_ptr_nonnull(d.lines);
  char *at = d.text;
  for (size_t i = 0; i < d.n; i++) {
    d.lines[i] = at;
    at = strchr(at, '\n');
    *at++ = '\0';
  }
  return d;
}

static void free_document(struct document *d) {
  free(d->lines);
  free(d->text);
}

static bool is_block(const char *line) {
  return line && strncmp(line, INDENT, strlen(INDENT)) == 0;
}

static bool is_command(const char *line) {
  return is_block(line) && strncmp(line + strlen(INDENT), "$ ", 2) == 0;
}

/* Without trailing blanks, which an editor may take away. */
static size_t length(const char *line, size_t n) {
  while (n > 0 && line[n - 1] == ' ') n--;
  return n;
}

/* Whether expected [n] lines match what follows at `out`. */
static bool matches(char *const *expected, size_t n, const char *out) {
  if (n == 0) return *out == '\0';
  const char *line = expected[0] + strlen(INDENT), *end = strchr(out, '\n');
  if (strcmp(line, "...") == 0) {
    for (;; out = end + 1) {
      if (matches(expected + 1, n - 1, out)) return true;
      if (*out == '\0') return false;
      end = strchr(out, '\n');
    }
  }
  size_t have = end ? length(out, (size_t)(end - out)) : 0;
  size_t want = length(line, strlen(line));
  return end && have == want && memcmp(line, out, have) == 0 &&
         matches(expected + 1, n - 1, end + 1);
}

static void run(const char *command) {
  char bin[PATH_MAX];
  const char *given = getenv("COPSE_BIN");
  ck_assert_ptr_nonnull(realpath(given ? given : "build/copse", bin));
  if (strncmp(command, "copse ", 6) == 0)
    copse_test_command("cd %% && %s %s", bin, command + 6);
  else
    copse_test_command("cd %% && %s", command);
}

START_TEST(the_tool_prints_what_the_document_shows) {
  struct document d = read_document();
  int commands = 0;
  for (size_t i = 0; i < d.n; i++) {
    if (!is_command(d.lines[i])) continue;
    const char *command = d.lines[i] + strlen(INDENT) + 2;
    size_t n = 0;
    while (is_block(d.lines[i + 1 + n]) && !is_command(d.lines[i + 1 + n])) n++;
    run(command);
    ck_assert_msg(copse_test_result.status == 0, "%s: %s", command, copse_test_result.err);
    ck_assert_msg(matches(&d.lines[i + 1], n, copse_test_result.out), "%s:%zu: %s prints\n%s",
                  DOCUMENT, i + 1, command, copse_test_result.out);
    commands++;
  }
  ck_assert_int_ge(commands, 8);
  free_document(&d);
}
END_TEST

/* `src/...` and `tests/...` between backquotes. */
START_TEST(files_that_the_document_names_exist) {
  struct document d = read_document();
  int found = 0;
  for (size_t i = 0; i < d.n; i++)
    for (const char *at = d.lines[i]; (at = strchr(at, '`'));) {
      char path[256];
      size_t n = strcspn(++at, "`");
      snprintf(path, sizeof path, "%.*s", (int)n, at);
      bool is_path = strncmp(path, "src/", 4) == 0 || strncmp(path, "tests/", 6) == 0;
      if (is_path && !strpbrk(path, " *N")) {
        ck_assert_msg(access(path, F_OK) == 0, "%s:%zu names %s, which is not there", DOCUMENT,
                      i + 1, path);
        found++;
      }
      at += n;
      if (*at) at++;
    }
  ck_assert_int_gt(found, 20);
  free_document(&d);
}
END_TEST

int main(void) {
  copse_test_folder();
  Suite *suite = suite_create("docs/architecture");
  TCase *tc = tcase_create("architecture");
  tcase_add_test(tc, the_tool_prints_what_the_document_shows);
  tcase_add_test(tc, files_that_the_document_names_exist);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
