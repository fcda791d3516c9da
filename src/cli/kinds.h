/*
 * What kind of file an input is, by its content, and which commands take it: a file of another kind
 * than an argument or option takes is answered by that, not by the first byte that a reader
 * stumbles over.
 */
#pragma once

#include "base/text.h"

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

/* O(size). */
enum copse_cli_kind copse_cli_kind_of(const char *data, size_t size);

/* An input of the command line and what may stand there, of what `option` takes, or NULL. Kinds 0:
 * any. What is piped into standard input stays readable, at the cost of a copy. */
void copse_cli_kinds_expect(const char *path, unsigned kinds, const char *option);

/* A file that `option` writes. */
void copse_cli_kinds_write(const char *path, const char *option);

/* The option whose file is an input, `*input`, by whatever path; NULL: none is. */
const char *copse_cli_kinds_find_overwritten(const char **input);

/* The first input that is of another kind than expected; false: none is known to be. */
struct copse_cli_misplaced {
  const char *path, *option;
  unsigned kind, expected;
};
bool copse_cli_kinds_find_misplaced(struct copse_cli_misplaced *out);

/* The first input that is a folder, and the name of a file in it that may stand in its place, or
 * "".
 */
bool copse_cli_kinds_find_folder(struct copse_cli_misplaced *out, char inside[256]);

/* "a schedule, a plan or an MSCCL program" of bits. */
void copse_cli_kinds_add_names(struct copse_line *line, unsigned kinds);
