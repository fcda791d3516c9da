/* copse COMMAND [options] [files] */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *does;
} commands[] = {
    {"topo", copse_cmd_topo, "read a topology, check it, print a summary"},
    {"solve", copse_cmd_solve, "compute an exactly optimal schedule"},
    {"verify", copse_cmd_verify, "prove a schedule and its bound against a topology"},
    {"expand", copse_cmd_expand, "write out a compact schedule tree by tree"},
    {"lower", copse_cmd_lower, "turn a schedule into an executable plan"},
    {"plans", copse_cmd_plans, "make a set of plans for all message sizes"},
    {"check", copse_cmd_check, "prove a plan: right result, no deadlock, no race"},
    {"simulate", copse_cmd_simulate, "predict times over message sizes, beside baselines"},
    {"place", copse_cmd_place, "put experts on GPUs for a routing trace"},
    {"report", copse_cmd_report, "write a page: topology, proof, trees, predictions"},
    {"quality", copse_cmd_quality, "compare the schedules of many topologies with a table"},
    {"run", copse_cmd_run, "execute a plan and compare every element"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to) {
  fprintf(to,
          "usage: copse COMMAND [options] [files]\n\n"
          "copse compiles collective communication: from a cluster's topology to provably\n"
          "optimal schedules, to plans that run.\n\ncommands:\n");
  for (int i = 0; i < N_COMMANDS; i++)
    fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].does);
  fprintf(to,
          "\n'copse COMMAND --help', or 'copse help COMMAND', shows a command's options and an\n"
          "example. 'copse --version' says which this is.\n"
          "A file named - is standard input or output.\n"
          "exit status: 0 done, 1 a check failed, 2 bad usage or input, 3 no solution,\n"
          "4 out of resources or an internal error\n");
}

static int run_command(int argc, char **argv) {
  const char *name = argv[1];
  char option[] = "--help", *asked[] = {argv[0], NULL, option, NULL};
  if (strcmp(name, "help") == 0 && argc == 3) { /* of a command */
    name = asked[1] = argv[2];
    argv = asked;
    argc = 3;
  } else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
    print_help(stdout);
    return COPSE_EXIT_DONE;
  }
  if (strcmp(name, "--version") == 0) {
    printf("copse %s\n", copse_version());
    return COPSE_EXIT_DONE;
  }
  for (int i = 0; i < N_COMMANDS; i++)
    if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  struct copse_err err = COPSE_ERR_INIT; /* for its care with what does not print */
  (void)copse_fail(&err, COPSE_INVALID, "unknown command '%.60s' (see 'copse --help')", name);
  return copse_cli_fail(&err);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "copse: a command is missing (see 'copse --help')\n");
    return COPSE_EXIT_USAGE;
  }
  int status = run_command(argc, argv);
  bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (lost && status <= COPSE_EXIT_REFUTED) { /* else a line has been printed already */
    fprintf(stderr, "copse: <stdout>: cannot write\n");
    return COPSE_EXIT_INTERNAL;
  }
  if (status <= COPSE_EXIT_REFUTED) copse_cli_print_notes();
  return status;
}
