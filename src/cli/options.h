/*
 * One table of options for each command. It is what parsing goes by, what --help prints, and what
 * the manual page and the completion of shells are made from.
 *
 * A letter means the same in every command; in `run` letters are those of nccl-tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* Where an option's value goes: what COPSE_OPTION_TO finds the member to be. */
enum copse_option_type {
  COPSE_OPTION_TAKEN, /* nowhere: the row has a function for it */
  COPSE_OPTION_FLAG,  /* bool, set to true */
  COPSE_OPTION_TEXT,  /* const char *, the argument itself */
  COPSE_OPTION_INT,   /* 32 bits: a whole number, or with words the place of one among them */
  COPSE_OPTION_INT64, /* 64 bits: a whole number, or a number of bytes such as 64K */
  COPSE_OPTION_DOUBLE /* a decimal number */
};

struct copse_option {
  const char *name;     /* "--output"; rows of one name that follow each other are one option */
  char letter;          /* 'o' for -o, or '\0' */
  const char *argument; /* name of its value in --help; NULL: it takes none */
  const char *help;     /* as running text: --help splits it into lines */
  enum copse_option_type type;
  size_t at;                /* the member: offset in the struct that the table is for */
  size_t mark;              /* 0, or 1 + the offset of a const char * that becomes `name` */
  uint64_t min, max;        /* of a number, both included */
  bool bytes;               /* K, M, G, T count 1024 times as much each */
  const char *const *words; /* NULL-terminated; of other types than _INT for completion only */
  const char *must;         /* "--name must be ..."; NULL: "from MIN to MAX" */
  const char *spelled;      /* the option's name in that message, such as "-b" */
  bool common;              /* --help shows it first, before the example */
  unsigned takes;           /* kinds of files (below) that the value names; 0: any, or none */
  bool writes;              /* the value names a file that is written */
  /* Takes the value of a COPSE_OPTION_TAKEN into the table's struct: 0, or the exit status after
   * what is wrong with it has been said. */
  int (*take)(void *options, const char *command, char *value);
};

/* The type and place of a member of `struct_type`, and what is marked. */
#define COPSE_OPTION_TO(struct_type, member) \
  .type = _Generic(((struct_type *)NULL)->member,                  \
      bool: COPSE_OPTION_FLAG,                                     \
      const char *: COPSE_OPTION_TEXT,                             \
      int: COPSE_OPTION_INT,                                       \
      unsigned: COPSE_OPTION_INT,                                  \
      int64_t: COPSE_OPTION_INT64,                                 \
      uint64_t: COPSE_OPTION_INT64,                                \
      double: COPSE_OPTION_DOUBLE),                                \
  .at = offsetof(struct_type, member)
#define COPSE_OPTION_MARK(struct_type, member) .mark = 1 + offsetof(struct_type, member)
#define COPSE_OPTION_RANGE(least, most) .min = (least), .max = (most)

/* Rows that stand together under a title, and are in no other section. */
struct copse_option_section {
  const char *title;
  const char *about, *after;          /* paragraphs around the rows, or NULL */
  const struct copse_option *options; /* up to a row without a name */
  size_t at;                          /* of their struct in the command's */
  bool shared;                        /* between commands: the manual has it once */
  bool of_inputs; /* 'copse help inputs' has it, and of each --help only the options' names */
};

enum { COPSE_MAX_SECTIONS = 10 };
struct copse_command {
  const char *name;
  const char *does;    /* a line for 'copse help' */
  const char *usage;   /* what --help starts with: lines "usage: ...", then paragraphs */
  const char *example; /* lines of the shell */
  struct copse_option_section sections[COPSE_MAX_SECTIONS]; /* up to one without options */
  unsigned takes;               /* kinds of files (below) that arguments name; 0: any */
  bool takes_topology;          /* TOPO stands among the arguments: for completion */
  bool quotes_values;           /* "-b '1x' must be ..." */
  size_t size;                  /* of the struct that options go into */
  void (*begin)(void *options); /* sets what is not zero at first; or NULL */
  /* With what the options left of the arguments; the exit status. */
  int (*run)(void *options, int n_left, char **left);
};

/*
 * Parses and runs; argv[0] is the command's name. Long options may be abbreviated and stand after
 * other arguments, as getopt_long has it. The exit status, also of --help and of what is wrong.
 */
int copse_command_run(const struct copse_command *command, int argc, char **argv);

/* Prints the text of --help. copse_command_print_inputs prints the text of 'copse help inputs',
 * from the first command's sections. */
void copse_command_print_help(const struct copse_command *command);
void copse_command_print_inputs(const struct copse_command *command);

/* Prints on standard output, of commands [n]: the OPTIONS of the manual page, in troff's man
 * macros; and what makes a shell complete them, false for an unknown shell. */
void copse_commands_print_manual(const struct copse_command *const *commands, int n);
bool copse_commands_print_completion(const char *shell, const struct copse_command *const *commands,
                                     int n);

/* Adds ", for copse check, run, simulate --nccl": at most four of the commands (NULL-terminated)
 * that take a kind of file, as an argument or by an option. */
void copse_commands_add_takers(const struct copse_command *const *commands, unsigned kind,
                               struct copse_line *line);

/* The commands, each in its cmd_NAME.c. */
extern const struct copse_command copse_cmd_topo, copse_cmd_solve, copse_cmd_verify,
    copse_cmd_expand, copse_cmd_lower, copse_cmd_plans, copse_cmd_check, copse_cmd_run,
    copse_cmd_simulate, copse_cmd_place, copse_cmd_quality, copse_cmd_report, copse_cmd_audit,
    copse_cmd_rings, copse_cmd_tune;

/*
 * What kind of file an input is, by its content, and which commands take it: a file of another kind
 * than an argument or option takes is answered by that, not by the first byte that a reader
 * stumbles over.
 */

/* Kinds of files, as bits. */
enum copse_cli_kind {
  COPSE_KIND_TOPOLOGY = 1 << 0,
  COPSE_KIND_PROFILE = 1 << 1, /* copse-profile/1, or what nvbandwidth prints */
  COPSE_KIND_DEMAND = 1 << 2,
  COPSE_KIND_SCHEDULE = 1 << 3,
  COPSE_KIND_GROUPS = 1 << 4, /* an index of solve --groups */
  COPSE_KIND_FAILURES = 1 << 5,
  COPSE_KIND_PLANS = 1 << 6, /* an index of plans */
  COPSE_KIND_PLAN = 1 << 7,
  COPSE_KIND_PLAN_TEXT = 1 << 8,
  COPSE_KIND_MSCCL = 1 << 9,
  COPSE_KIND_MSCCLPP = 1 << 10,
  COPSE_KIND_RINGS = 1 << 11,
  COPSE_KIND_GRAPHS = 1 << 12,
  COPSE_KIND_LOG = 1 << 13, /* NCCL's log, nccl-tests, RAS, Inspector */
  COPSE_KIND_TRACE = 1 << 14,
  COPSE_KIND_PLACEMENT = 1 << 15,
  COPSE_KIND_COMPUTE = 1 << 16,
  COPSE_KIND_QUALITY = 1 << 17,
  COPSE_KIND_PICTURE = 1 << 18,
  COPSE_KIND_UNKNOWN = 0
};

/* Recognises the kind of an input in O(size). */
enum copse_cli_kind copse_cli_kind_of(const char *data, size_t size);

/* Notes an input of the command line and the kinds that may stand there, of what `option` takes, or
 * NULL. Kinds 0: any. What is piped into standard input stays readable, at the cost of a copy. */
void copse_cli_expect_kinds(const char *path, unsigned expected, const char *option);
/* Notes a file that `option` writes. */
void copse_cli_note_output(const char *path, const char *option);
/* Finds the option whose file is an input, `*input`, by whatever path; NULL: none is. A device,
 * such as /dev/stdout, is no file that would be lost, nor is a folder. */
const char *copse_cli_find_overwritten(const char **input);

/* The first input that is of another kind than expected; false: none is known to be. */
struct copse_cli_misplaced {
  const char *path, *option;
  unsigned kind, expected;
};
bool copse_cli_kinds_find_misplaced(struct copse_cli_misplaced *out);

/* Finds the first input that is a folder, and the name of a file in it that may stand in its place,
 * or "". */
bool copse_cli_kinds_find_folder(struct copse_cli_misplaced *out, char inside[256]);

/* Adds "a schedule, a plan or an MSCCL program" of bits. */
void copse_cli_kinds_add_names(struct copse_line *line, unsigned kinds);
