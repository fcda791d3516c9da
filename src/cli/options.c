/*
 * What is made of a command's table of options: the parser, --help and the options of the manual
 * page. The completion of shells is in completion.c.
 *
 *   table of options --+-- getopt_long --> the command's struct, or one line of what is wrong
 *                      +-- --help, copse help inputs
 *                      +-- copse help --man                --> copse.1
 *                      +-- copse help --completion SHELL   --> completion of bash, zsh and fish
 */
#include "cli/options.h"

#include <ctype.h>
#include <dirent.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/rational.h"
#include "base/text.h"
#include "cli/cli.h"
#include "codegen/lower/lower.h"
#include "nccl/reports.h"

/* ==== kinds of files ====================================================================== */

/* In the order of the bits; JSON by its "format". */
static const struct {
  const char *name, *format;
} kinds[] = {{"a topology", "copse-topology"},
             {"a profile", "copse-profile"},
             {"a demand matrix", "copse-demand"},
             {"a schedule", "copse-schedule"},
             {"an index of groups", "copse-groups"},
             {"an index of schedules for failures", "copse-failures"},
             {"an index of plans", "copse-plans"},
             {"a plan", NULL},
             {"the text form of a plan", "copse-plan-text"},
             {"an MSCCL program", NULL},
             {"an MSCCL++ plan", NULL},
             {"a certificate of rings", "copse-rings"},
             {"a graph dump of NCCL", NULL},
             {"a log or report of NCCL", NULL},
             {"a routing trace", "copse-trace"},
             {"a placement of experts", "copse-placement"},
             {"a table of compute times", "copse-compute"},
             {"a table of copse quality", NULL},
             {"a picture or page", NULL}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- telling ------------------------------------------------------------------------------- */

static bool has(const char *data, size_t size, const char *text) {
  return memmem(data, size, text, strlen(text)) != NULL;
}

/* Returns the kind of what stands after "format":, its version aside. */
static unsigned kind_of_format(const char *name, size_t n) {
  static const char *const others[] = {"copse-cluster", "copse-synthetic"}; /* topologies too */
  for (int i = 0; i < N_KINDS; i++)
    if (kinds[i].format && strlen(kinds[i].format) == n && memcmp(kinds[i].format, name, n) == 0)
      return 1u << i;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strlen(others[i]) == n && memcmp(others[i], name, n) == 0) return COPSE_KIND_TOPOLOGY;
  return COPSE_KIND_UNKNOWN;
}

static unsigned kind_of_json(const char *data, size_t size) {
  static const char key[] = "\"format\"";
  const char *end = data + size, *at = data;
  while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
    at += sizeof key - 1;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at++ != ':') continue;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at++ != '"') continue;
    size_t n = 0;
    while (at + n < end && at[n] && !strchr("/\"", at[n])) n++;
    return kind_of_format(at, n);
  }
  return has(data, size, "\"threadblocks\"") ? COPSE_KIND_MSCCLPP : COPSE_KIND_UNKNOWN;
}

static unsigned kind_of_xml(const char *data, size_t size) {
  static const struct {
    const char *text;
    unsigned kind;
  } marks[] = {{"<algo", COPSE_KIND_MSCCL},
               {"<graphs", COPSE_KIND_GRAPHS},
               {"<system", COPSE_KIND_TOPOLOGY},
               {"<svg", COPSE_KIND_PICTURE},
               {"<html", COPSE_KIND_PICTURE}};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (has(data, size < 4096 ? size : 4096, marks[i].text)) return marks[i].kind;
  return COPSE_KIND_UNKNOWN;
}

enum copse_cli_kind copse_cli_kind_of(const char *data, size_t size) {
  size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  unsigned kind = COPSE_KIND_UNKNOWN;
  if (size >= 8 && memcmp(data, "COPSEPLN", 8) == 0) return COPSE_KIND_PLAN;
  while (at < size && data[at] && strchr(" \t\r\n", data[at])) at++;
  if (at == size || memchr(data, '\0', size)) return COPSE_KIND_UNKNOWN;
  if (data[at] == '<') kind = kind_of_xml(data + at, size - at);
  if (data[at] == '{') kind = kind_of_json(data + at, size - at);
  if (size - at > 15 && memcmp(data + at, "# copse-quality", 15) == 0) return COPSE_KIND_QUALITY;
  if (kind) return (enum copse_cli_kind)kind;
  unsigned theirs = copse_nccl_detect(data, size);
  if (theirs & COPSE_NCCL_IS_TOPOLOGY) return COPSE_KIND_TOPOLOGY;
  if (theirs & (COPSE_NCCL_IS_NVBANDWIDTH | COPSE_NCCL_IS_PROFILE)) return COPSE_KIND_PROFILE;
  return theirs ? COPSE_KIND_LOG : COPSE_KIND_UNKNOWN;
}

/* ---- what is expected ---------------------------------------------------------------------- */

enum { MOST_INPUTS = 64 };
static struct {
  const char *path, *option;
  unsigned kinds;
} inputs[MOST_INPUTS];
static int n_inputs;

/* Puts a file of the same content in place of a pipe. What can't be done is left. */
static void make_stdin_readable_again(void) {
  static char piece[65536];
  struct stat about;
  if (fstat(STDIN_FILENO, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
  int copy = memfd_create("stdin", MFD_CLOEXEC);
  if (copy < 0) return;
  size_t all = 0;
  for (ssize_t n; all <= COPSE_FILE_MAX_BYTES && (n = read(STDIN_FILENO, piece, sizeof piece)) > 0;
       all += (size_t)n)
    for (ssize_t done = 0, m; done < n; done += m)
      if ((m = write(copy, piece + done, (size_t)(n - done))) <= 0) break;
  if (lseek(copy, 0, SEEK_SET) == 0) dup2(copy, STDIN_FILENO);
  close(copy);
}

/* Notes an input of the command line and what may stand there, of what `option` takes, or NULL.
 * Kinds 0: any. What is piped into standard input stays readable, at the cost of a copy. */
static void expect_kinds(const char *path, unsigned expected, const char *option) {
  if (expected == 0 || n_inputs == MOST_INPUTS) return;
  if (strcmp(path, "-") == 0) make_stdin_readable_again();
  inputs[n_inputs].path = path;
  inputs[n_inputs].kinds = expected;
  inputs[n_inputs++].option = option;
}

static struct {
  const char *path, *option;
} outputs[4];
static int n_outputs;

/* Notes a file that `option` writes. */
static void note_output(const char *path, const char *option) {
  if (n_outputs == sizeof outputs / sizeof *outputs) return;
  outputs[n_outputs].path = path;
  outputs[n_outputs++].option = option;
}

/* Finds the option whose file is an input, `*input`, by whatever path; NULL: none is. A device,
 * such as /dev/stdout, is no file that would be lost, nor is a folder. */
static const char *find_overwritten(const char **input) {
  for (int o = 0; o < n_outputs; o++)
    for (int i = 0; i < n_inputs; i++) {
      struct stat in, out;
      if (stat(outputs[o].path, &out) != 0 || stat(inputs[i].path, &in) != 0) continue;
      if (!S_ISREG(out.st_mode) || in.st_dev != out.st_dev || in.st_ino != out.st_ino) continue;
      *input = inputs[i].path;
      return outputs[o].option;
    }
  return NULL;
}

/* ---- the answer ---------------------------------------------------------------------------- */

static unsigned kind_of_file(const char *path) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  struct stat about;
  bool is_stdin = strcmp(path, "-") == 0;
  if (is_stdin ? fstat(STDIN_FILENO, &about) != 0 : stat(path, &about) != 0) return 0;
  if (!S_ISREG(about.st_mode)) return COPSE_KIND_UNKNOWN;
  if (is_stdin && (clearerr(stdin), fseek(stdin, 0, SEEK_SET)) != 0) return COPSE_KIND_UNKNOWN;
  if (copse_file_read(path, &data, &size, NULL) != COPSE_OK) return COPSE_KIND_UNKNOWN;
  return copse_cli_kind_of(data, size);
}

void copse_cli_kinds_add_names(struct copse_line *line, unsigned expected) {
  const char *before = "";
  for (int i = 0; i < N_KINDS; i++) {
    if (!(expected & 1u << i)) continue;
    expected &= ~(1u << i);
    copse_line_add(line, "%s%s", before, kinds[i].name);
    before = expected & (expected - 1) ? ", " : " or ";
  }
}

bool copse_cli_kinds_find_misplaced(struct copse_cli_misplaced *out) {
  for (int i = 0; i < n_inputs; i++) {
    unsigned kind = kind_of_file(inputs[i].path);
    if (kind == COPSE_KIND_UNKNOWN || kind & inputs[i].kinds) continue;
    *out = (struct copse_cli_misplaced){inputs[i].path, inputs[i].option, kind, inputs[i].kinds};
    return true;
  }
  return false;
}

/* Finds the first by name whose content may stand in place of the folder. */
static void find_inside(const char *folder, unsigned expected, char inside[256]) {
  struct dirent **entries = NULL;
  char path[PATH_MAX];
  int n = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    const char *name = entries[i]->d_name;
    bool fits = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path;
    if (!*inside && fits && kind_of_file(path) & expected) snprintf(inside, 256, "%s", name);
    free(entries[i]);
  }
  free(entries);
}

bool copse_cli_kinds_find_folder(struct copse_cli_misplaced *out, char inside[256]) {
  struct stat about;
  *inside = '\0';
  for (int i = 0; i < n_inputs; i++) {
    if (stat(inputs[i].path, &about) != 0 || !S_ISDIR(about.st_mode)) continue;
    *out = (struct copse_cli_misplaced){inputs[i].path, inputs[i].option, COPSE_KIND_UNKNOWN,
                                        inputs[i].kinds};
    find_inside(inputs[i].path, inputs[i].kinds, inside);
    return true;
  }
  return false;
}

enum { NO_LETTER = 256, LINE = 80, COLUMN = 26 };

/* ---- tables -------------------------------------------------------------------------------- */

static int ask_progress(void *options, const char *command, char *value) {
  (void)options;
  (void)command;
  (void)value;
  copse_cli_asked.progress = true;
  return COPSE_EXIT_DONE;
}

static int ask_verbose(void *options, const char *command, char *value) {
  (void)options;
  (void)command;
  (void)value;
  copse_cli_asked.verbose = true;
  return COPSE_EXIT_DONE;
}

static int ask_exact(void *options, const char *command, char *value) {
  (void)options;
  (void)command;
  (void)value;
  copse_cli_asked.exact = true;
  return COPSE_EXIT_DONE;
}

/* For all commands. */
static const struct copse_option general_options[] = {
    {"--exact", 0, NULL, "fractions in text, as JSON always has them", .take = ask_exact},
    {"--progress", 0, NULL, "show progress even where standard error is no terminal",
     .take = ask_progress},
    {"--verbose", 'v', NULL, "say on standard error what is tried, and what it came to",
     .take = ask_verbose},
    {0}};

static void add_rows(struct copse_option_rows *rows, const struct copse_option *from, size_t at) {
  for (; from->name && rows->n < COPSE_MOST_ROWS; from++) {
    rows->list[rows->n] = from;
    rows->at[rows->n++] = at;
  }
}

struct copse_option_rows copse_option_rows_of(const struct copse_command *command) {
  struct copse_option_rows rows = {.n = 0};
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    add_rows(&rows, s->options, s->at);
  add_rows(&rows, general_options, 0);
  return rows;
}

/* ---- parsing ------------------------------------------------------------------------------- */

/* Says "must be plan or links; did you mean plan?". */
static int refuse_word(const struct copse_command *command, const struct copse_option *it,
                       const char *value) {
  struct copse_near_name near = {.given = value};
  struct copse_line list = {.used = 0};
  for (int i = 0; it->words[i]; i++) {
    copse_near_name_consider(&near, it->words[i]);
    copse_line_add(&list, "%s%s", i == 0 ? "" : it->words[i + 1] ? ", " : " or ", it->words[i]);
  }
  return copse_cli_usage(command->name, "%s must be %s%s%s%s", it->name, list.text,
                         near.name ? "; did you mean " : "", near.name ? near.name : "",
                         near.name ? "?" : "");
}

static int refuse(const struct copse_command *command, const struct copse_option *it,
                  const char *value) {
  char range[64];
  if (it->words && !it->must) return refuse_word(command, it, value);
  const char *name = it->spelled ? it->spelled : it->name, *must = it->must ? it->must : range;
  const char *unit = it->bytes && strchr("bB", value[strlen(value) - !!*value]) && *value
                         ? ": K is times 1024, and the B is left out"
                         : "";
  snprintf(range, sizeof range, "from %llu to %llu", (unsigned long long)it->min,
           (unsigned long long)it->max);
  if (command->quotes_values)
    return copse_cli_usage(command->name, "%s '%s' must be %s%s", name, value, must, unit);
  return copse_cli_usage(command->name, "%s must be %s%s", name, must, unit);
}

static bool take_number(const struct copse_option *it, const char *value, int64_t *out) {
  uint64_t bytes;
  if (!it->bytes) return copse_cli_parse_int(value, (int64_t)it->min, (int64_t)it->max, out);
  if (!copse_cli_parse_size(value, it->max, &bytes) || bytes < it->min) return false;
  memcpy(out, &bytes, sizeof *out);
  return true;
}

static bool take_int(const struct copse_option *it, const char *value, int *out) {
  int64_t number;
  for (int i = 0; it->words && it->words[i]; i++)
    if (strcmp(value, it->words[i]) == 0) {
      *out = i;
      return true;
    }
  if (it->words || !take_number(it, value, &number)) return false;
  *out = (int)number;
  return true;
}

int copse_cli_take_instances(const char *command, const char *value, int *out) {
  int64_t number = COPSE_LOWER_AUTO;
  if (strcmp(value, "auto") != 0 &&
      !copse_cli_parse_int(value, 1, COPSE_LOWER_MOST_INSTANCES, &number))
    return copse_cli_usage(command, "--instances must be from 1 to %d, or auto",
                           COPSE_LOWER_MOST_INSTANCES);
  *out = (int)number;
  return COPSE_EXIT_DONE;
}

static bool take_decimal(const struct copse_option *it, const char *value, double *out) {
  struct copse_q q;
  if (copse_q_parse_decimal(value, &q, NULL) != COPSE_OK || q.num < 0) return false;
  *out = copse_q_to_double(q);
  return *out >= (double)it->min && *out <= (double)it->max;
}

/* Refuses a missing value: lists the words that it may be, where they are few. */
static int refuse_missing(const char *command, const struct copse_option *it, const char *given) {
  struct copse_line list = {.used = 0};
  if (it && it->words && it->must) copse_line_add(&list, ": %s", it->must);
  for (int i = 0; it && it->words && !it->must && it->words[i]; i++)
    copse_line_add(&list, "%s%s", i == 0 ? ": " : it->words[i + 1] ? ", " : " or ", it->words[i]);
  return copse_cli_usage(command, "option '%s' needs a value%s", given, list.used ? list.text : "");
}

/* Takes an option's value. Returns 0, or the exit status after it has said what is wrong. `into`:
 * the struct of the row's table. */
static int take(const struct copse_command *command, const struct copse_option *it, char *into,
                char *value) {
  void *to = into + it->at;
  bool good = true;
  if (it->argument && !*value) return refuse_missing(command->name, it, it->name);
  if (it->mark) *(const char **)(void *)(into + it->mark - 1) = it->name;
  if (it->takes) expect_kinds(value, it->takes, it->name);
  if (it->writes) note_output(value, it->name);
  switch (it->type) {
    case COPSE_OPTION_TAKEN: return it->take(into, command->name, value);
    case COPSE_OPTION_FLAG:
      *(bool *)to = true;
      copse_cli_asked.json = copse_cli_asked.json || strcmp(it->name, "--json") == 0;
      break;
    case COPSE_OPTION_TEXT: *(const char **)to = value; break;
    case COPSE_OPTION_INT: good = take_int(it, value, to); break;
    case COPSE_OPTION_INT64: good = take_number(it, value, to); break;
    case COPSE_OPTION_DOUBLE: good = take_decimal(it, value, to); break;
  }
  return good ? COPSE_EXIT_DONE : refuse(command, it, value);
}

/* Whether several options begin so: "--tok" of --tokens and --token-bytes. */
static bool is_ambiguous(const struct copse_option_rows *rows, const char *given, char list[120]) {
  int n = 0, used = 0;
  for (int i = 0; i < rows->n; i++) {
    const char *name = rows->list[i]->name;
    if (copse_option_continues(rows, i) || strncmp(name, given, strlen(given)) != 0) continue;
    if (used < 100)
      used += snprintf(list + used, 120 - (size_t)used, "%s%s", n > 0 ? ", " : "", name);
    n++;
  }
  return n > 1;
}

/* Finds an option's row; NULL: a letter of none. */
static const struct copse_option *find_row(const struct copse_option_rows *rows, int option,
                                           int *at) {
  for (*at = 0; *at < rows->n; ++*at)
    if (option >= NO_LETTER ? *at == option - NO_LETTER : rows->list[*at]->letter == option)
      return rows->list[*at];
  return NULL;
}

/* Says what was wrong after getopt_long returned '?' or ':'. */
static int refuse_unknown(const char *command, const struct copse_option_rows *rows, char **argv,
                          int option) {
  const char *given = argv[optind - 1];
  char name[80], list[120];
  int at;
  bool is_long = strncmp(given, "--", 2) == 0;
  if (option == ':') return refuse_missing(command, find_row(rows, optopt, &at), given);
  if (!(is_long && strchr(given, '=')) && optopt && optopt < NO_LETTER)
    return copse_cli_usage(command, "unknown option '-%c'", optopt);
  snprintf(name, sizeof name, "%.*s", (int)strcspn(given, "="), given);
  if (is_ambiguous(rows, name, list))
    return copse_cli_usage(command, "option '%s' may be any of %s", name, list);
  struct copse_near_name nearest = {.given = name};
  for (int i = 0; i < rows->n; i++) copse_near_name_consider(&nearest, rows->list[i]->name);
  if (optopt) /* a known option: getopt_long refuses its value */
    return copse_cli_usage(command, "option '%s' takes no value", name);
  if (nearest.name)
    return copse_cli_usage(command, "unknown option '%s'; did you mean %s?", given, nearest.name);
  return copse_cli_usage(command, "unknown option '%s'", given);
}

/* Makes the tables of getopt_long; a row without a letter has the value NO_LETTER and its place. */
static void make_getopt_tables(const struct copse_option_rows *rows, struct option *longs,
                               char *shorts) {
  *shorts++ = ':';
  for (int i = 0; i < rows->n; i++) {
    const struct copse_option *it = rows->list[i];
    if (copse_option_continues(rows, i)) continue;
    *longs++ = (struct option){it->name + 2, it->argument ? required_argument : no_argument, NULL,
                               it->letter ? it->letter : NO_LETTER + i};
    if (it->letter) *shorts++ = it->letter;
    if (it->letter && it->argument) *shorts++ = ':';
  }
  *longs++ = (struct option){"help", no_argument, NULL, 'h'};
  *longs = (struct option){0};
  *shorts++ = 'h';
  *shorts = '\0';
}

static int refuse_second(const char *command, const struct copse_option *it, const char *first,
                         const char *second) {
  return copse_cli_usage(command, "%s is given twice, as %s and %s", it->name, first, second);
}

static int parse_and_run(const struct copse_command *command, int argc, char **argv,
                         char *options) {
  const struct copse_option_rows rows = copse_option_rows_of(command);
  struct option longs[COPSE_MOST_ROWS + 2];
  char shorts[4 * COPSE_MOST_ROWS + 3];
  make_getopt_tables(&rows, longs, shorts);
  const char *given[COPSE_MOST_ROWS] = {NULL};
  opterr = 0;
  for (int c, i; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
    if (c == '?' || c == ':') return refuse_unknown(command->name, &rows, argv, c);
    if (c == 'h') {
      copse_command_print_help(command);
      return COPSE_EXIT_DONE;
    }
    const struct copse_option *it = find_row(&rows, c, &i);
    if (it->type != COPSE_OPTION_TAKEN && given[i] && strcmp(given[i], optarg) != 0)
      return refuse_second(command->name, it, given[i], optarg);
    given[i] = it->argument ? optarg : NULL;
    int exit = take(command, it, options + rows.at[i], optarg);
    if (exit != COPSE_EXIT_DONE) return exit;
  }
  for (int i = optind; i < argc; i++) expect_kinds(argv[i], command->takes, NULL);
  const char *input, *output = find_overwritten(&input);
  if (output)
    return copse_cli_usage(command->name, "%s would overwrite the input %.200s: name another file",
                           output, input);
  return command->run(options, argc - optind, argv + optind);
}

/* Keeps the command line as a shell takes it, for the pages that say what made them. */
static void keep_line(int argc, char **argv) {
  struct copse_line line = {.used = 0};
  copse_line_add(&line, "copse");
  for (int i = 0; i < argc; i++) {
    const char *quote = argv[i][strcspn(argv[i], " \t\n>&;|*?[]$<'\"()")] || !argv[i][0] ? "'" : "";
    copse_line_add(&line, " %s%s%s", quote, argv[i], quote);
  }
  snprintf(copse_cli_asked.line, sizeof copse_cli_asked.line, "%s", line.text);
}

int copse_command_run(const struct copse_command *command, int argc, char **argv) {
  struct copse_err err = COPSE_ERR_INIT;
  char *options;
  if (copse_calloc(1, command->size, &options, &err) != COPSE_OK) return copse_cli_fail(&err);
  copse_cli_asked.command = command->name;
  keep_line(argc, argv);
  for (int i = 1; i < argc; i++) /* before what is wrong with the options can be said */
    if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0) copse_cli_asked.json = true;
  if (command->begin) command->begin(options);
  int exit = parse_and_run(command, argc, argv, options);
  free(options);
  return exit;
}

/* ---- who takes what ------------------------------------------------------------------------ */

void copse_commands_add_takers(const struct copse_command *const *commands, unsigned kind,
                               struct copse_line *line) {
  enum { MOST = 4 };
  int n = 0;
  for (int i = 0; commands[i] && n < MOST; i++) {
    const struct copse_command *command = commands[i];
    const struct copse_option_rows rows = copse_option_rows_of(command);
    const char *option = "";
    bool takes = command->takes & kind;
    for (int r = 0; r < rows.n && !takes; r++) {
      takes = rows.list[r]->takes & kind;
      option = rows.list[r]->name;
    }
    if (!takes) continue;
    bool named = !(command->takes & kind);
    copse_line_add(line, "%s%s%s%s", n == 0 ? ", for copse " : ", ", command->name,
                   named ? " " : "", named ? option : "");
    n++;
  }
}

/* ---- --help -------------------------------------------------------------------------------- */

/* Prints a line's words from the place `at`, further lines from `indent`; blanks and ends of lines
 * part them. Where the last line ends. */
static int print_words(const char *text, size_t size, int indent, int at) {
  bool starts = true;
  for (const char *end = text + size; text < end;) {
    size_t n = strcspn(text, " \n");
    if (n > (size_t)(end - text)) n = (size_t)(end - text);
    if (n > 0) {
      if (!starts && at + 1 + (int)n > LINE) {
        printf("\n%*s", indent, "");
        at = indent;
        starts = true;
      }
      at += printf("%s%.*s", starts ? "" : " ", (int)n, text);
      starts = false;
    }
    text += n + (text + n < end);
  }
  return at;
}

/* Prints paragraphs, which empty lines part. A line that starts with a blank or "usage:" stays as
 * it is. */
static void print_paragraphs(const char *text) {
  while (*text) {
    const char *p = text;
    size_t line = strcspn(p, "\n");
    bool as_it_is = *p == ' ' || strncmp(p, "usage:", 6) == 0;
    while (!as_it_is && line > 0 && p[line] == '\n' && !strchr(" \n", p[line + 1]))
      line += 1 + strcspn(p + line + 1, "\n");
    if (as_it_is)
      printf("%.*s", (int)line, p);
    else
      (void)print_words(p, line, 0, 0);
    printf("\n");
    text += line + (text[line] == '\n');
  }
}

static void print_row(const struct copse_option *it) {
  char letter[] = "-x, ";
  letter[1] = it->letter;
  int used = printf("  %4s%s%s%s", it->letter ? letter : "", it->name, it->argument ? " " : "",
                    it->argument ? it->argument : "");
  if (used < COLUMN)
    printf("%*s", COLUMN - used, "");
  else
    printf("\n%*s", COLUMN, "");
  (void)print_words(it->help, strlen(it->help), COLUMN, COLUMN);
  printf("\n");
}

static void print_common(const struct copse_command *command) {
  const struct copse_option_rows rows = copse_option_rows_of(command);
  const char *title = "common options:\n";
  for (int i = 0; i < rows.n; i++) {
    if (!rows.list[i]->common) continue;
    printf("%s", title);
    title = "";
    print_row(rows.list[i]);
  }
}

/* Prints the options of a section that are not among the common ones. */
static void print_section(const struct copse_option_section *s) {
  bool any = s->after != NULL;
  for (const struct copse_option *it = s->options; it->name; it++) any = any || !it->common;
  if (!any) return;
  printf("\n%s:\n", s->title);
  if (s->about) print_paragraphs(s->about);
  for (const struct copse_option *it = s->options; it->name; it++)
    if (!it->common) print_row(it);
  if (s->after && s->after[0] != ' ') printf("\n");
  if (s->after) print_paragraphs(s->after);
}

/* Prints the names of sections that 'copse help inputs' has. */
static void print_input_names(const struct copse_command *command) {
  COPSE_AT_END(copse_text_free) struct copse_text names = {0};
  const struct copse_option *before = NULL;
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    for (const struct copse_option *it = s->options; s->of_inputs && it->name; before = it++) {
      if (before && strcmp(before->name, it->name) == 0) continue;
      copse_text_add(&names, "%s%s", before ? ", " : "", it->name);
    }
  if (!names.data) return;
  printf("\nTopology options, which 'copse help inputs' explains:\n  ");
  (void)print_words(names.data, names.size, 2, 2);
  printf("\n");
}

void copse_command_print_help(const struct copse_command *command) {
  static const struct copse_option_section general = {.title = "General options",
                                                      .options = general_options};
  static const struct copse_option help = {.name = "--help", .letter = 'h', .help = "this text"};
  print_paragraphs(command->usage);
  print_common(command);
  if (command->example) printf("\n%s", command->example);
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    if (!s->of_inputs) print_section(s);
  print_input_names(command);
  print_section(&general);
  print_row(&help);
}

void copse_command_print_inputs(const struct copse_command *command) {
  printf("What commands read as TOPO, and options of how they read it.\n");
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    if (s->of_inputs) print_section(s);
}

/* ---- the manual page ----------------------------------------------------------------------- */

/* Prints text as troff takes it. An empty line starts a paragraph, an indented word a line. */
static void print_troff(const char *text) {
  bool starts = true;
  for (const char *p = text; *p; p++) {
    if (starts && *p == ' ') {
      while (p[1] == ' ') p++;
      if (isalpha((unsigned char)p[1])) printf(".br\n");
      continue;
    }
    if (starts && *p == '\n') printf(".PP");
    if (starts && (*p == '.' || *p == '\'')) printf("\\&");
    starts = *p == '\n';
    switch (*p) {
      case '\'': printf("\\(aq"); break;
      case '\\': printf("\\e"); break;
      case '-': printf("\\-"); break;
      case ' ':
        if (p[1] == ' ') break; /* columns of --help are none here */
        /* fall through */
      default: putchar(*p);
    }
  }
}

static void print_manual_row(const struct copse_option *it) {
  printf(".TP\n");
  if (it->letter) printf("\\fB\\-%c\\fP, ", it->letter);
  printf("\\fB");
  print_troff(it->name);
  printf("\\fP");
  if (it->argument) {
    printf(" \\fI");
    print_troff(it->argument);
    printf("\\fP");
  }
  printf("\n");
  print_troff(it->help);
  printf("\n");
}

static void print_manual_section(const struct copse_option_section *s) {
  if (s->about) {
    printf(".PP\n");
    print_troff(s->about);
  }
  for (const struct copse_option *it = s->options; it->name; it++) print_manual_row(it);
  if (s->after) {
    printf(".PP\n");
    print_troff(s->after);
  }
}

/* Prints the options that are its own, then the titles of others. */
static void print_manual_command(const struct copse_command *command) {
  printf(".SS copse %s\n", command->name);
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    if (!s->shared) {
      printf(".PP\n");
      print_troff(s->title);
      printf(":\n");
      print_manual_section(s);
    }
  const char *between = ".PP\nAnd, below: ";
  for (const struct copse_option_section *s = command->sections; s->options; s++) {
    if (!s->shared) continue;
    printf("%s", between);
    print_troff(s->title);
    between = "; ";
  }
  if (between[0] == ';') printf(".\n");
}

/* Whether the section is in an earlier command as well. */
static bool is_repeated(const struct copse_command *const *commands, int c,
                        const struct copse_option *options) {
  for (int i = 0; i < c; i++)
    for (const struct copse_option_section *s = commands[i]->sections; s->options; s++)
      if (s->options == options) return true;
  return false;
}

void copse_commands_print_manual(const struct copse_command *const *commands, int n) {
  for (int c = 0; c < n; c++) print_manual_command(commands[c]);
  for (int c = 0; c < n; c++)
    for (const struct copse_option_section *s = commands[c]->sections; s->options; s++) {
      if (!s->shared || is_repeated(commands, c, s->options)) continue;
      printf(".SS ");
      print_troff(s->title);
      printf("\n");
      print_manual_section(s);
    }
  const struct copse_option_section general = {.options = general_options};
  printf(".SS All commands\n");
  print_manual_section(&general);
}
