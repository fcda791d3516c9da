/*
 * What is made of a command's table of options: the parser, --help, the options of the manual page
 * and the completion of shells.
 *
 *   table of options --+-- getopt_long --> the command's struct, or one line of what is wrong
 *                      +-- --help, copse help inputs
 *                      +-- copse help --man                --> copse.1
 *                      +-- copse help --completion SHELL   --> completion of bash, zsh and fish
 */
#include "cli/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/rational.h"
#include "base/text.h"
#include "cli/cli.h"
#include "codegen/lower/lower.h"

enum { NO_LETTER = 256, LINE = 80, COLUMN = 26 };

/* All rows of a command, one after the other, the general ones last. Rows of one name that follow
 * each other are one option. */
enum { MOST_ROWS = 64 };
struct rows {
  const struct copse_option *list[MOST_ROWS];
  size_t at[MOST_ROWS]; /* the struct of each row in the command's */
  int n;
};

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

static void add_rows(struct rows *rows, const struct copse_option *from, size_t at) {
  for (; from->name && rows->n < MOST_ROWS; from++) {
    rows->list[rows->n] = from;
    rows->at[rows->n++] = at;
  }
}

static struct rows rows_of(const struct copse_command *command) {
  struct rows rows = {.n = 0};
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    add_rows(&rows, s->options, s->at);
  add_rows(&rows, general_options, 0);
  return rows;
}

/* Whether this row goes on with the option of the one before. */
static bool continues(const struct rows *rows, int i) {
  return i > 0 && strcmp(rows->list[i]->name, rows->list[i - 1]->name) == 0;
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
  if (it->takes) copse_cli_expect_kinds(value, it->takes, it->name);
  if (it->writes) copse_cli_note_output(value, it->name);
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
static bool is_ambiguous(const struct rows *rows, const char *given, char list[120]) {
  int n = 0, used = 0;
  for (int i = 0; i < rows->n; i++) {
    const char *name = rows->list[i]->name;
    if (continues(rows, i) || strncmp(name, given, strlen(given)) != 0) continue;
    if (used < 100)
      used += snprintf(list + used, 120 - (size_t)used, "%s%s", n > 0 ? ", " : "", name);
    n++;
  }
  return n > 1;
}

/* Finds an option's row; NULL: a letter of none. */
static const struct copse_option *find_row(const struct rows *rows, int option, int *at) {
  for (*at = 0; *at < rows->n; ++*at)
    if (option >= NO_LETTER ? *at == option - NO_LETTER : rows->list[*at]->letter == option)
      return rows->list[*at];
  return NULL;
}

/* Says what was wrong after getopt_long returned '?' or ':'. */
static int refuse_unknown(const char *command, const struct rows *rows, char **argv, int option) {
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
static void make_getopt_tables(const struct rows *rows, struct option *longs, char *shorts) {
  *shorts++ = ':';
  for (int i = 0; i < rows->n; i++) {
    const struct copse_option *it = rows->list[i];
    if (continues(rows, i)) continue;
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
  const struct rows rows = rows_of(command);
  struct option longs[MOST_ROWS + 2];
  char shorts[4 * MOST_ROWS + 3];
  make_getopt_tables(&rows, longs, shorts);
  const char *given[MOST_ROWS] = {NULL};
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
  for (int i = optind; i < argc; i++) copse_cli_expect_kinds(argv[i], command->takes, NULL);
  const char *input, *output = copse_cli_find_overwritten(&input);
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

/* ---- commands that take a kind of file ----------------------------------------------------- */

void copse_commands_add_takers(const struct copse_command *const *commands, unsigned kind,
                               struct copse_line *line) {
  enum { MOST = 4 };
  int n = 0;
  for (int i = 0; commands[i] && n < MOST; i++) {
    const struct copse_command *command = commands[i];
    const struct rows rows = rows_of(command);
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
  const struct rows rows = rows_of(command);
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

/* Prints the command's own options, then the titles of shared ones. */
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

/* ==== completion of shells =================================================================== */

/* What the scripts may say: the Bash manual, section "Programmable Completion"; zshcompsys(1); the
 * manual of fish, `complete`. `make install` puts them where the shells look. */

/* What may stand for a value. */
enum values { WORDS, TOPOLOGIES, FILES, ANYTHING };

static enum values values_of(const struct copse_option *it) {
  if (it->words) return WORDS;
  if (strcmp(it->name, "--topology") == 0) return TOPOLOGIES;
  bool files = strncmp(it->argument, "FILE", 4) == 0 || strcmp(it->argument, "FOLDER") == 0 ||
               strcmp(it->argument, "GRAPH") == 0;
  return files ? FILES : ANYTHING;
}

static void print_list(const char *const *words) {
  for (int i = 0; words[i]; i++) printf("%s%s", i > 0 ? " " : "", words[i]);
}

/* ---- bash ---------------------------------------------------------------------------------- */

static const char bash_head[] =
    "# Completion of copse in bash, made by 'copse help --completion bash'.\n"
    "_copse() {\n"
    "  local command=${COMP_WORDS[1]} current=${COMP_WORDS[COMP_CWORD]} options='' words='' "
    "files=''\n"
    "  local before=${COMP_WORDS[COMP_CWORD - 1]} topologies=''\n"
    "  COMPREPLY=()\n"
    "  if [ \"$current\" = = ]; then # bash takes --links=all apart\n"
    "    current=\n"
    "  elif [ \"$before\" = = ]; then\n"
    "    before=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "  fi\n";
static const char bash_tail[] =
    "      *) files=yes ;;\n"
    "      esac ;;\n"
    "  esac\n"
    "  [ -z \"$topologies\" ] || words=$(copse topo --list 2>/dev/null | sed '1d; s/ .*//')\n"
    "  [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
    "  [ -z \"$files\" ] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "
    "\"$current\")\n"
    "  [ -z \"$files\" ] || compopt -o filenames 2>/dev/null\n"
    "}\n"
    "complete -F _copse copse\n";

/* Prints the values of an option: "solve:--links|solve:-l) words='nvlink all default' ;;". */
static void print_values(const char *command, const struct copse_option *it) {
  printf("    %s:%s", command, it->name);
  if (it->letter) printf("|%s:-%c", command, it->letter);
  printf(") ");
  switch (values_of(it)) {
    case WORDS:
      printf("words='");
      print_list(it->words);
      printf("' ;;\n");
      break;
    case TOPOLOGIES: printf("topologies=yes files=yes ;;\n"); break;
    case FILES: printf("files=yes ;;\n"); break;
    case ANYTHING: printf("return ;;\n"); break; /* a number, say */
  }
}

static void print_bash(const struct copse_command *const *commands, int n) {
  fputs(bash_head, stdout);
  printf("  case $COMP_CWORD:$command in\n    1:*|2:help) words='");
  for (int c = 0; c < n; c++) printf("%s ", commands[c]->name);
  printf("help --help --version'; command='' before='' ;;\n");
  for (int c = 0; c < n; c++) {
    const struct rows rows = rows_of(commands[c]);
    printf("    *:%s) options='", commands[c]->name);
    for (int i = 0; i < rows.n; i++)
      if (!continues(&rows, i)) printf("%s ", rows.list[i]->name);
    printf("--help' ;;\n");
  }
  printf("  esac\n  case $command:$before in\n    :) ;;\n");
  for (int c = 0; c < n; c++) {
    const struct rows rows = rows_of(commands[c]);
    for (int i = 0; i < rows.n; i++)
      if (rows.list[i]->argument && !continues(&rows, i))
        print_values(commands[c]->name, rows.list[i]);
  }
  printf("    *)\n      case $current:$command in\n      -*) words=$options ;;\n      ");
  const char *between = "";
  for (int c = 0; c < n; c++)
    if (commands[c]->takes_topology) {
      printf("%s*:%s", between, commands[c]->name);
      between = "|";
    }
  printf(") topologies=yes files=yes ;;\n");
  fputs(bash_tail, stdout);
}

/* ---- zsh ----------------------------------------------------------------------------------- */

/* Prints help within brackets within single quotes, the first sentence of it. */
static void print_zsh_text(const char *text) {
  for (const char *p = text; *p && !(strchr(".;:", *p) && strchr(" \n", p[1])); p++) {
    if (strchr("[]:\\", *p)) putchar('\\');
    if (*p == '\'')
      printf("'\\''");
    else
      putchar(*p == '\n' ? ' ' : *p);
  }
}

/* Prints "'(-l --links)'{-l,--links}'[what to keep ...]:MODE:(nvlink all default)'". */
static void print_zsh_row(const struct copse_option *it) {
  const char *longer = it->argument ? "=" : "", *shorter = it->argument ? "+" : "";
  if (it->letter)
    printf("        '*'{-%c%s,%s%s}'[", it->letter, shorter, it->name, longer);
  else
    printf("        '*%s%s[", it->name, longer);
  print_zsh_text(it->help);
  printf("]");
  if (it->argument) {
    printf(":");
    print_zsh_text(it->argument);
    switch (values_of(it)) {
      case WORDS:
        printf(":(");
        print_list(it->words);
        printf(")");
        break;
      case TOPOLOGIES: printf(":_copse_topologies"); break;
      case FILES: printf(":_files"); break;
      case ANYTHING: printf(": "); break;
    }
  }
  printf("' \\\n");
}

static void print_zsh(const struct copse_command *const *commands, int n) {
  printf(
      "#compdef copse\n"
      "# Completion of copse in zsh, made by 'copse help --completion zsh'.\n"
      "_copse_topologies() {\n"
      "  local -a names\n"
      "  names=(${(f)\"$(copse topo --list 2>/dev/null | sed '1d; s/ .*//')\"})\n"
      "  _alternative 'names:topology:compadd -a names' 'files:file:_files'\n"
      "}\n"
      "_copse() {\n"
      "  local -a commands\n"
      "  commands=(\n");
  for (int c = 0; c < n; c++) {
    printf("    '%s:", commands[c]->name);
    print_zsh_text(commands[c]->does);
    printf("'\n");
  }
  printf(
      "    'help:a command in detail, or its inputs'\n"
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe 'command' commands\n"
      "    return\n"
      "  fi\n"
      "  local command=${words[2]}\n"
      "  (( CURRENT-- ))\n"
      "  shift words\n"
      "  case $command in\n"
      "    help) _describe 'command' commands ;;\n");
  for (int c = 0; c < n; c++) {
    const struct rows rows = rows_of(commands[c]);
    printf("    %s)\n      _arguments -S \\\n", commands[c]->name);
    for (int i = 0; i < rows.n; i++)
      if (!continues(&rows, i)) print_zsh_row(rows.list[i]);
    printf(
        "        '(-h --help)'{-h,--help}'[what the command does]' \\\n        '*:input:%s' ;;\n",
        commands[c]->takes_topology ? "_copse_topologies" : "_files");
  }
  printf("  esac\n}\n_copse \"$@\"\n");
}

/* ---- fish ---------------------------------------------------------------------------------- */

/* Prints help within single quotes, the first sentence of it. */
static void print_fish_text(const char *text) {
  for (const char *p = text; *p && !(strchr(".;:", *p) && strchr(" \n", p[1])); p++) {
    if (strchr("'\\", *p)) putchar('\\');
    putchar(*p == '\n' ? ' ' : *p);
  }
}

static void print_fish_row(const char *command, const struct copse_option *it) {
  printf("complete -c copse -n '__fish_seen_subcommand_from %s' -l %s", command, it->name + 2);
  if (it->letter) printf(" -s %c", it->letter);
  if (it->argument) switch (values_of(it)) {
      case WORDS:
        printf(" -x -a '");
        print_list(it->words);
        printf("'");
        break;
      case TOPOLOGIES: printf(" -r -F -a '(__copse_topologies)'"); break;
      case FILES: printf(" -r -F"); break;
      case ANYTHING: printf(" -x"); break;
    }
  printf(" -d '");
  print_fish_text(it->help);
  printf("'\n");
}

static void print_fish(const struct copse_command *const *commands, int n) {
  printf(
      "# Completion of copse in fish, made by 'copse help --completion fish'.\n"
      "function __copse_topologies\n"
      "  copse topo --list 2>/dev/null | sed '1d; s/ .*//'\n"
      "end\n");
  for (int c = 0; c < n; c++) {
    printf("complete -c copse -f -n __fish_use_subcommand -a %s -d '", commands[c]->name);
    print_fish_text(commands[c]->does);
    printf("'\n");
  }
  printf("complete -c copse -f -n __fish_use_subcommand -a help -d 'a command in detail'\n");
  for (int c = 0; c < n; c++) {
    const struct rows rows = rows_of(commands[c]);
    for (int i = 0; i < rows.n; i++)
      if (!continues(&rows, i)) print_fish_row(commands[c]->name, rows.list[i]);
    if (commands[c]->takes_topology)
      printf("complete -c copse -n '__fish_seen_subcommand_from %s' -a '(__copse_topologies)'\n",
             commands[c]->name);
    printf("complete -c copse -n __fish_seen_subcommand_from\\ help -f -a %s\n", commands[c]->name);
  }
}

bool copse_commands_print_completion(const char *shell, const struct copse_command *const *commands,
                                     int n) {
  static const struct {
    const char *shell;
    void (*print)(const struct copse_command *const *commands, int n);
  } known[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(shell, known[i].shell) == 0) {
      known[i].print(commands, n);
      return true;
    }
  return false;
}
