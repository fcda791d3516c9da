/*
 * Documents show what the tool prints: every command in them is run, those of a document in one
 * folder and in order, and what it prints is compared with the lines below it. A line "..." stands
 * for any number of lines; "<<'END'" takes the lines up to END. The files of docs/examples are in
 * the folder. Files that documents name must exist, and names of schedules be explained.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "predict/propose.h"
#include "support/command.h"
#include "support/support.h"

#define INDENT "    "

/* With how many commands and names of files at least: the test must have found them. */
static const struct {
  const char *path;
  int commands, files;
  bool times; /* shows measured times: numbers with a point are alike, in rows of tables all numbers
               */
} documents[] = {{"docs/architecture.md", 8, 20, false},
                 {"README.md", 6, 0, true},
                 {"docs/cluster.md", 8, 0, false},
                 {"docs/ci.md", 6, 0, false},
                 {"docs/formats.md", 60, 1, false},
                 {"docs/solving.md", 2, 0, false},
                 {"docs/alltoall.md", 1, 0, true},
                 {"docs/nccl-rings.md", 2, 0, false}};
enum { N_DOCUMENTS = sizeof documents / sizeof *documents };

/* The document, its line ends replaced by NULs; lines [n + 1] ends with NULL. */
struct document {
  char *text, **lines;
  size_t n;
};

static struct document read_document(const char *path) {
  struct copse_err err = COPSE_ERR_INIT;
  struct document d = {0};
  size_t size;
  ASSERT_OK(copse_file_read(path, &d.text, &size, &err), &err);
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

/* A line without what may vary: in `out`, of `size`. */
static void without_times(const char *line, size_t n, char *out, size_t size) {
  size_t at = 0;
  for (size_t i = 0; i < n && at + 2 < size;) {
    size_t number = i;
    while (number < n && (isdigit((unsigned char)line[number]) || line[number] == '.')) number++;
    bool varies = number > i && (line[0] == ' ' || memchr(line + i, '.', number - i));
    if (varies) {
      while (at > 0 && out[at - 1] == ' ') at--; /* columns are as wide as their numbers */
      out[at++] = '#';
      i = number;
    } else {
      out[at++] = line[i++];
    }
  }
  out[length(out, at)] = '\0';
}

static bool is_line(const char *want, const char *have, size_t n, bool times) {
  char a[512], b[512];
  if (!times)
    return length(have, n) == length(want, strlen(want)) &&
           memcmp(want, have, length(have, n)) == 0;
  without_times(want, strlen(want), a, sizeof a);
  without_times(have, n, b, sizeof b);
  return strcmp(a, b) == 0;
}

/* Whether expected [n] lines match what follows at `out`. */
static bool matches(char *const *expected, size_t n, const char *out, bool times) {
  if (n == 0) return *out == '\0';
  const char *line = expected[0] + strlen(INDENT), *end = strchr(out, '\n');
  if (strcmp(line, "...") == 0) {
    for (;; out = end + 1) {
      if (matches(expected + 1, n - 1, out, times)) return true;
      if (*out == '\0') return false;
      end = strchr(out, '\n');
    }
  }
  return end && is_line(line, out, (size_t)(end - out), times) &&
         matches(expected + 1, n - 1, end + 1, times);
}

static void run(const char *command) {
  char bin[PATH_MAX];
  const char *given = getenv("COPSE_BIN");
  ck_assert_ptr_nonnull(realpath(given ? given : "build/copse", bin));
  *strrchr(bin, '/') = '\0';
  copse_test_command("cd %% && PATH=%s:$PATH && %s", bin, command);
}

/* The command in line *i and, of a here-document, the lines to its END, where *i is left. */
static void read_command(const struct document *d, size_t *i, char *command, size_t size) {
  size_t at = (size_t)snprintf(command, size, "%s", d->lines[*i] + strlen(INDENT) + 2);
  if (!strstr(command, "<<'END'")) return;
  do {
    ck_assert_msg(is_block(d->lines[++*i]), "%s has no END", command);
    at += (size_t)snprintf(command + at, size - at, "\n%s", d->lines[*i] + strlen(INDENT));
    ck_assert_uint_lt(at, size);
  } while (strcmp(d->lines[*i], INDENT "END") != 0);
}

/* Of seconds, and read by no later command: with COPSE_TEST_ALL alone. */
static bool waits_for_all(const char *command) {
  static const char *const list[] = {"copse simulate four.allreduce.json -t four.json -b 64K -e 1G -f 16",
                                     "copse solve mi300x-x4 -c allgather --pareto"};
  return !COPSE_TEST_SWEEPS && (strcmp(command, list[0]) == 0 || strcmp(command, list[1]) == 0);
}

START_TEST(the_tool_prints_what_the_document_shows) {
  const char *document = documents[_i].path;
  struct document d = read_document(document);
  int commands = 0;
  ck_assert_int_eq(copse_test_command("cp docs/examples/* %%"), 0);
  for (size_t i = 0; i < d.n; i++) {
    char command[4096];
    if (!is_command(d.lines[i])) continue;
    read_command(&d, &i, command, sizeof command);
    commands++;
    if (waits_for_all(command)) continue;
    size_t n = 0;
    while (is_block(d.lines[i + 1 + n]) && !is_command(d.lines[i + 1 + n])) n++;
    run(command);
    ck_assert_msg(copse_test_result.status == 0, "%s: %s", command, copse_test_result.err);
    ck_assert_msg(matches(&d.lines[i + 1], n, copse_test_result.out, documents[_i].times),
                  "%s:%zu: %s prints\n%s", document, i + 1, command, copse_test_result.out);
  }
  ck_assert_int_ge(commands, documents[_i].commands);
  free_document(&d);
}
END_TEST

/* `src/...` and `tests/...` between backquotes. */
START_TEST(files_that_the_document_names_exist) {
  const char *document = documents[_i].path;
  struct document d = read_document(document);
  int found = 0;
  for (size_t i = 0; i < d.n; i++)
    for (const char *at = d.lines[i]; (at = strchr(at, '`'));) {
      char path[256];
      size_t n = strcspn(++at, "`");
      snprintf(path, sizeof path, "%.*s", (int)n, at);
      bool is_path = strncmp(path, "src/", 4) == 0 || strncmp(path, "tests/", 6) == 0;
      if (is_path && !strpbrk(path, " *N")) {
        ck_assert_msg(access(path, F_OK) == 0, "%s:%zu names %s, which is not there", document,
                      i + 1, path);
        found++;
      }
      at += n;
      if (*at) at++;
    }
  ck_assert_int_ge(found, documents[_i].files);
  if (strcmp(document, "README.md") == 0) ck_assert_uint_le(d.n, 180); /* read in a few minutes */
  free_document(&d);
}
END_TEST

/* ---- names of schedules --------------------------------------------------------------------- */

/* Whether a name in the first column of a table of docs/solving.md has the word. */
static bool is_explained(const struct document *d, const char *word) {
  bool names = false;
  size_t n = strlen(word);
  for (size_t i = 0; i < d->n; i++) {
    const char *line = d->lines[i], *at = line;
    const char *end = strncmp(line, "| `", 3) == 0 ? strchr(line + 3, '|') : NULL;
    if (line[0] == '#') names = strcmp(line, "### Names of schedules") == 0;
    for (; names && end && (at = strstr(at, word)) && at < end; at++)
      if (!isalnum((unsigned char)at[-1]) && !isalnum((unsigned char)at[n])) return true;
  }
  return false;
}

/* Each word that the format prints beside its conversions; returns how many. */
static int check_words(const struct document *d, const char *format, size_t n) {
  int found = 0;
  for (size_t i = 0, from; i < n; i++) {
    char word[64];
    if (format[i] == '%') {
      while (i + 1 < n && strchr(".*0123456789", format[i + 1])) i++;
      i += i + 1 < n && isalpha((unsigned char)format[i + 1]);
      continue;
    }
    for (from = i; i < n && islower((unsigned char)format[i]);) i++;
    if (i < from + 2) continue; /* "x%d" */
    snprintf(word, sizeof word, "%.*s", (int)(i - from), format + from);
    ck_assert_msg(is_explained(d, word), "docs/solving.md has no name with '%s'", word);
    found++;
    i--;
  }
  return found;
}

/* Literals in lines that make names. */
static int check_source(const struct document *d, const char *path) {
  static const char *const makers[] = {
      "name, sizeof",       "proposal_name_add(", "DOUBLING_NAME", "suffixes[",
      "COPSE_NEAR_NAME \"", "offer_solved(",      "offer(g,",      "take(c, "};
  struct document source = read_document(path);
  int found = 0;
  for (size_t i = 0; i < source.n; i++) {
    bool makes = false;
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++)
      makes = makes || strstr(source.lines[i], makers[m]);
    for (char *at = source.lines[i], *end; makes && (at = strchr(at, '"')); at = end + 1) {
      end = strchr(at + 1, '"');
      ck_assert_ptr_nonnull(end);
      found += check_words(d, at + 1, (size_t)(end - at - 1));
    }
  }
  free_document(&source);
  return found;
}

/* Of what solve --objective and plans print: by the sources, and by the names of baselines. */
START_TEST(names_of_schedules_are_explained) {
  struct document d = read_document("docs/solving.md");
  ck_assert_int_ge(check_source(&d, "src/predict/sizes.c"), 8);
  ck_assert_int_ge(check_source(&d, "src/predict/candidates.c"), 9);
  ck_assert_int_ge(check_source(&d, "src/predict/propose.c"), 9);
  ck_assert_int_ge(check_source(&d, "src/predict/propose.h"), 1);
  for (int kind = 0; kind < COPSE_N_ARRANGEMENTS; kind++) {
    const char *name = copse_proposal_name((enum copse_baseline)kind);
    ck_assert_msg(is_explained(&d, name), "docs/solving.md has no name '%s'", name);
  }
  ck_assert(is_explained(&d, "k") && is_explained(&d, "x4") && is_explained(&d, "64K"));
  ck_assert(!is_explained(&d, "member"));
  free_document(&d);
}
END_TEST

int main(void) {
  copse_test_folder();
  Suite *suite = suite_create("docs/documents");
  TCase *tc = tcase_create("documents");
  tcase_set_timeout(tc, 120); /* the commands of a whole guide, on a busy machine */
  tcase_add_loop_test(tc, the_tool_prints_what_the_document_shows, 0, N_DOCUMENTS);
  tcase_add_loop_test(tc, files_that_the_document_names_exist, 0, N_DOCUMENTS);
  tcase_add_test(tc, names_of_schedules_are_explained);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
