/*
 * What is made of a command's table of options: the parser, --help, the options of the manual page
 * and the completion of bash.
 *
 *   table of options --+-- getopt_long --> the command's struct, or one line of what is wrong
 *                      +-- --help
 *                      +-- copse help --man         --> copse.1
 *                      +-- copse help --completion  --> share/bash-completion/completions/copse
 */
#include "cli/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "cli/cli.h"

enum { MOST_ROWS = 64, NO_LETTER = 256 };

/* All rows of a command, one after the other. */
struct rows {
  const struct copse_option *list[MOST_ROWS];
  size_t at[MOST_ROWS]; /* the struct of each row in the command's */
  int n;
};

static struct rows rows_of(const struct copse_command *command) {
  struct rows rows = {.n = 0};
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    for (const struct copse_option *it = s->options; it->name && rows.n < MOST_ROWS; it++) {
      rows.list[rows.n] = it;
      rows.at[rows.n++] = s->at;
    }
  return rows;
}

/* Whether this row goes on with the option of the one before. */
static bool continues(const struct rows *rows, int i) {
  return i > 0 && strcmp(rows->list[i]->name, rows->list[i - 1]->name) == 0;
}

/* ---- parsing ------------------------------------------------------------------------------- */

static int refuse(const struct copse_command *command, const struct copse_option *it,
                  const char *value) {
  char range[64];
  const char *name = it->spelled ? it->spelled : it->name, *must = it->must ? it->must : range;
  snprintf(range, sizeof range, "from %llu to %llu", (unsigned long long)it->min,
           (unsigned long long)it->max);
  if (command->quotes_values)
    return copse_cli_usage(command->name, "%s '%s' must be %s", name, value, must);
  return copse_cli_usage(command->name, "%s must be %s", name, must);
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

static bool take_decimal(const struct copse_option *it, const char *value, double *out) {
  struct copse_q q;
  if (copse_q_parse_decimal(value, &q, NULL) != COPSE_OK || q.num < 0) return false;
  *out = copse_q_to_double(q);
  return *out >= (double)it->min && *out <= (double)it->max;
}

/* 0, or the exit status after what was wrong has been said. `into`: the struct of the row's table.
 */
static int take(const struct copse_command *command, const struct copse_option *it, char *into,
                char *value) {
  void *to = into + it->at;
  bool good = true;
  if (it->mark) *(const char **)(void *)(into + it->mark - 1) = it->name;
  switch (it->type) {
    case COPSE_OPTION_TAKEN: return it->take(into, command->name, value);
    case COPSE_OPTION_FLAG: *(bool *)to = true; break;
    case COPSE_OPTION_TEXT: *(const char **)to = value; break;
    case COPSE_OPTION_INT: good = take_int(it, value, to); break;
    case COPSE_OPTION_INT64: good = take_number(it, value, to); break;
    case COPSE_OPTION_DOUBLE: good = take_decimal(it, value, to); break;
  }
  return good ? COPSE_EXIT_DONE : refuse(command, it, value);
}

/* After getopt_long returned '?' or ':': says what was wrong. */
static int refuse_unknown(const char *command, char **argv, int option) {
  const char *given = argv[optind - 1];
  bool is_long = strncmp(given, "--", 2) == 0;
  if (option == ':') return copse_cli_usage(command, "option '%s' needs a value", given);
  if (!(is_long && strchr(given, '=')) && optopt && optopt < NO_LETTER)
    return copse_cli_usage(command, "unknown option '-%c'", optopt);
  return copse_cli_usage(command, "option '%s' is unknown or takes no value", given);
}

/* The tables of getopt_long; a row without a letter has the value NO_LETTER and its place. */
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
  memcpy(shorts, "h", 2);
}

static int find_row(const struct rows *rows, int option) {
  int i = 0;
  if (option >= NO_LETTER) return option - NO_LETTER;
  while (rows->list[i]->letter != option) i++;
  return i;
}

static int parse_and_run(const struct copse_command *command, int argc, char **argv,
                         char *options) {
  const struct rows rows = rows_of(command);
  struct option longs[MOST_ROWS + 2];
  char shorts[2 * MOST_ROWS + 3];
  make_getopt_tables(&rows, longs, shorts);
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
    if (c == '?' || c == ':') return refuse_unknown(command->name, argv, c);
    if (c == 'h') {
      copse_command_print_help(command);
      return COPSE_EXIT_DONE;
    }
    int i = find_row(&rows, c);
    int exit = take(command, rows.list[i], options + rows.at[i], optarg);
    if (exit != COPSE_EXIT_DONE) return exit;
  }
  return command->run(options, argc - optind, argv + optind);
}

int copse_command_run(const struct copse_command *command, int argc, char **argv) {
  struct copse_err err = COPSE_ERR_INIT;
  char *options;
  if (copse_calloc(1, command->size, &options, &err) != COPSE_OK) return copse_cli_fail(&err);
  if (command->begin) command->begin(options);
  int exit = parse_and_run(command, argc, argv, options);
  free(options);
  return exit;
}

/* ---- --help -------------------------------------------------------------------------------- */

static void print_row(const struct copse_option *it, int column) {
  char letter[] = "-x, ";
  letter[1] = it->letter;
  int used = printf("  %4s%s%s%s", it->letter ? letter : "", it->name, it->argument ? " " : "",
                    it->argument ? it->argument : "");
  bool fits = used < column;
  for (const char *line = it->help; line; fits = false) {
    const char *end = strchr(line, '\n');
    int width = end ? (int)(end - line) : (int)strlen(line);
    if (!fits) printf("\n");
    printf("%*s%.*s", fits ? column - used : column, "", width, line);
    line = end ? end + 1 : NULL;
  }
  printf("\n");
}

void copse_command_print_help(const struct copse_command *command) {
  fputs(command->usage, stdout);
  for (const struct copse_option_section *s = command->sections; s->options; s++) {
    if (s->before) fputs(s->before, stdout);
    for (const struct copse_option *it = s->options; it->name; it++) print_row(it, s->column);
    if (s->after) fputs(s->after, stdout);
  }
  if (command->example) fputs(command->example, stdout);
}

/* ---- the manual page ----------------------------------------------------------------------- */

/* Text as troff takes it. An empty line starts a paragraph, an indented word a line. */
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
  if (s->before) print_troff(s->before);
  for (const struct copse_option *it = s->options; it->name; it++) print_manual_row(it);
  if (s->after) print_troff(s->after);
}

/* The options that are its own, then the titles of others. */
static void print_manual_command(const struct copse_command *command) {
  printf(".SS copse %s\n", command->name);
  for (const struct copse_option_section *s = command->sections; s->options; s++)
    if (!s->title) print_manual_section(s);
  const char *between = ".PP\nAnd, below: ";
  for (const struct copse_option_section *s = command->sections; s->options; s++) {
    if (!s->title) continue;
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
      if (!s->title || is_repeated(commands, c, s->options)) continue;
      printf(".SS ");
      print_troff(s->title);
      printf("\n");
      print_manual_section(s);
    }
}

/* ---- completion ---------------------------------------------------------------------------- */

static const char completion_head[] =
    "# Completion of copse in bash, made by 'copse help --completion'.\n"
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
static const char completion_tail[] =
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

/* Of an option with a value: "SOLVE:--links|solve:-l) words='nvlink all default' ;;". */
static void print_values(const char *command, const struct copse_option *it) {
  printf("    %s:%s", command, it->name);
  if (it->letter) printf("|%s:-%c", command, it->letter);
  printf(") ");
  if (it->words) {
    printf("words='");
    for (int i = 0; it->words[i]; i++) printf("%s%s", i > 0 ? " " : "", it->words[i]);
    printf("' ;;\n");
  } else if (strcmp(it->name, "--topology") == 0) {
    printf("topologies=yes files=yes ;;\n");
  } else if (strncmp(it->argument, "FILE", 4) == 0 || strcmp(it->argument, "FOLDER") == 0) {
    printf("files=yes ;;\n");
  } else {
    printf("return ;;\n"); /* a number, say */
  }
}

void copse_commands_print_completion(const struct copse_command *const *commands, int n) {
  fputs(completion_head, stdout);
  printf("  case $COMP_CWORD:$command in\n    1:*|2:help) words='");
  for (int c = 0; c < n; c++) printf("%s ", commands[c]->name);
  printf("help --help --version'; command='' before='' ;;\n");
  for (int c = 0; c < n; c++) {
    const struct rows rows = rows_of(commands[c]);
    printf("    *:%s) options='", commands[c]->name);
    for (int i = 0; i < rows.n; i++)
      if (!continues(&rows, i) && rows.list[i]->letter != 'h') printf("%s ", rows.list[i]->name);
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
  fputs(completion_tail, stdout);
}
