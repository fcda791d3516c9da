/*
 * The completion of bash, zsh and fish: scripts that `copse help --completion SHELL` makes from the
 * tables of options, and that `make install` puts where the shells look. What the scripts may say:
 * the Bash manual, section "Programmable Completion"; zshcompsys(1); fish's manual, `complete`.
 */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

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
    const struct copse_option_rows rows = copse_option_rows_of(commands[c]);
    printf("    *:%s) options='", commands[c]->name);
    for (int i = 0; i < rows.n; i++)
      if (!copse_option_continues(&rows, i)) printf("%s ", rows.list[i]->name);
    printf("--help' ;;\n");
  }
  printf("  esac\n  case $command:$before in\n    :) ;;\n");
  for (int c = 0; c < n; c++) {
    const struct copse_option_rows rows = copse_option_rows_of(commands[c]);
    for (int i = 0; i < rows.n; i++)
      if (rows.list[i]->argument && !copse_option_continues(&rows, i))
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
    const struct copse_option_rows rows = copse_option_rows_of(commands[c]);
    printf("    %s)\n      _arguments -S \\\n", commands[c]->name);
    for (int i = 0; i < rows.n; i++)
      if (!copse_option_continues(&rows, i)) print_zsh_row(rows.list[i]);
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
    const struct copse_option_rows rows = copse_option_rows_of(commands[c]);
    for (int i = 0; i < rows.n; i++)
      if (!copse_option_continues(&rows, i)) print_fish_row(commands[c]->name, rows.list[i]);
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
