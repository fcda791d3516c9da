/*
 * The table of schedule quality that `copse quality` keeps in a repository: one line per
 * topology and collective, made to be read and to be diffed by line.
 *
 *   # copse-quality/1
 *   TOPOLOGY SHA256 COLLECTIVE RANKS OUTCOME BOUND ACHIEVED K TREES HEIGHT US US US US [RATIO x 11]
 *
 * Fields are separated by blanks; what does not print in a topology's name, blanks, '#' and
 * '%' are written %XX. A '-' stands for a value that there is none of. Times are s/GB as exact
 * fractions, predictions microseconds. A ratio is the predicted time of the schedule that is made
 * for a size over the bound for that size, 1 KiB to 1 GiB in powers of 4; a row without them, as
 * older tables have, has all '-'. How long solving took is not in the table.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"
#include "base/text.h"
#include "base/types.h"

/* The message sizes of the predictions, in bytes. */
#define COPSE_QUALITY_SIZES 4
extern const uint64_t copse_quality_sizes[COPSE_QUALITY_SIZES];
extern const char *const copse_quality_size_names[COPSE_QUALITY_SIZES];

/* The sizes of the ratios: 1 KiB times 4 to the power of i; from which on they are 1 MiB or more.
 */
#define COPSE_QUALITY_RATIOS 11
#define COPSE_QUALITY_FROM_1M 5
extern const char *const copse_quality_ratio_names[COPSE_QUALITY_RATIOS];
static inline double copse_quality_ratio_bytes(int i) { return (double)((uint64_t)1024 << 2 * i); }

enum copse_quality_outcome {
  COPSE_QUALITY_OK,
  COPSE_QUALITY_REFUSED,    /* the topology can't have such a schedule: an unbalanced relay */
  COPSE_QUALITY_INFEASIBLE, /* a rank that can't be reached */
  COPSE_QUALITY_OVERFLOW,   /* the exact result doesn't fit 64 bits */
  COPSE_QUALITY_UNREADABLE, /* the file is no topology; one row, no collective */
  /* never in a table: */
  COPSE_QUALITY_SKIPPED, /* more ranks than asked for */
  COPSE_QUALITY_TIMEOUT,
  COPSE_QUALITY_FAILED /* out of memory, killed, an error of copse */
};
const char *copse_quality_outcome_name(enum copse_quality_outcome outcome);

/* What was found out about one topology and collective. The values count for _OK only. */
struct copse_quality_result {
  enum copse_quality_outcome outcome;
  struct copse_q bound, achieved;      /* s/GB */
  int64_t k;                           /* 0: none (alltoall) */
  int trees;                           /* alltoall: paths */
  int height;                          /* hops between ranks */
  double us[COPSE_QUALITY_SIZES];      /* predicted */
  double ratios[COPSE_QUALITY_RATIOS]; /* 0: not measured, or no bound */
  double seconds;                      /* of solving; not in the table */
  struct copse_q nccl; /* s/GB by the best rings that NCCL can run; not positive: not looked for, or
                          none. Not in the table */
  char reason[256];    /* of other outcomes; not in the table */
};

#define COPSE_QUALITY_SHA 17 /* the first 16 hex digits of the topology's sha256 */
#define COPSE_QUALITY_NO_COLLECTIVE (-1)
struct copse_quality_row {
  const char *topology; /* file name */
  char sha256[COPSE_QUALITY_SHA];
  int collective; /* copse_collective, or COPSE_QUALITY_NO_COLLECTIVE */
  int ranks;
  long line; /* in the file it was read from */
  struct copse_quality_result result;
};

/* Zero-initialise; free with copse_quality_table_free. Rows have copies of all they name. */
struct copse_quality_table {
  struct copse_quality_row *rows;
  size_t n_rows, capacity;
  struct copse_arena arena;
};
static inline void copse_quality_table_free(struct copse_quality_table *table) {
  free(table->rows);
  copse_arena_free(&table->arena);
  *table = (struct copse_quality_table){0};
}

/* Appends a copy of `row`. */
copse_status copse_quality_table_add(struct copse_quality_table *table,
                                     const struct copse_quality_row *row,
                                     struct copse_err *err) COPSE_CHECKED;

/* Sorts by topology and collective. Returns the first of two rows of the same, which stand side by
 * side then; or NULL. */
const struct copse_quality_row *copse_quality_table_sort(struct copse_quality_table *table);

/* Returns M over the time achieved, GB/s; copse_quality_busbw gives nccl-tests' bus bandwidth. 0:
 * nothing is sent. */
static inline double copse_quality_algbw(const struct copse_quality_row *row) {
  return row->result.achieved.num > 0 ? 1 / copse_q_to_double(row->result.achieved) : 0;
}

static inline double copse_quality_busbw(const struct copse_quality_row *row) {
  return copse_quality_algbw(row) *
         copse_collective_bus_factor((copse_collective)row->collective, row->ranks);
}

/* Finds a row in a sorted table; NULL if there is none. O(log rows). */
const struct copse_quality_row *copse_quality_table_find(const struct copse_quality_table *table,
                                                         const struct copse_quality_row *like);

/*
 * Reads a table and sorts it. COPSE_BAD_INPUT with file and line for anything that
 * copse_quality_table_write does not write, and for two rows of the same topology and
 * collective.
 */
copse_status copse_quality_table_parse(const char *label, char *data, size_t size,
                                       struct copse_quality_table *table,
                                       struct copse_err *err) COPSE_CHECKED;

/* What the ratios of sizes from 1 MiB on come to. */
struct copse_quality_summary {
  size_t n, high; /* of which above COPSE_QUALITY_HIGH */
  double median, most;
};
#define COPSE_QUALITY_HIGH 1.5
copse_status copse_quality_table_sum_up(const struct copse_quality_table *table,
                                        struct copse_quality_summary *out,
                                        struct copse_err *err) COPSE_CHECKED;

/* Appends the table as a file has it, rows as they stand. Reading it back gives the same. */
void copse_quality_table_write(const struct copse_quality_table *table, struct copse_text *text);

/* What a row of schedule quality is beside the table's, and reports of it for other programs. */

/* From harmless to bad: everything from NEW on fails the check. */
enum copse_quality_verdict {
  COPSE_QUALITY_SAME,
  COPSE_QUALITY_UNCOMPARED, /* skipped, or out of time without a row to compare with */
  COPSE_QUALITY_GAIN,       /* something better, nothing worse */
  COPSE_QUALITY_NEW,        /* not in the table, so not watched */
  COPSE_QUALITY_GONE,       /* in the table, but there is no such topology any more */
  COPSE_QUALITY_CHANGED,    /* the topology is another one */
  COPSE_QUALITY_LOSS
};
extern const char *const copse_quality_verdicts[]; /* "same", ... */

/*
 * Compares two rows. A loss is a longer achieved time, a lower bound (less is proved), more trees,
 * a larger k or height, a longer predicted time, or no schedule where there was one; the other way
 * round it is a gain. Of another topology a longer bound is worse. A file that can't be read is a
 * loss. was: NULL where the table has none. `text` gets a line for each difference, " achieved
 * 3/1040 -> ...", or the reason why there is no schedule.
 */
enum copse_quality_verdict copse_quality_compare(const struct copse_quality_row *now,
                                                 const struct copse_quality_row *was,
                                                 struct copse_text *text);

/* Counts, of rows counted by verdict, how many fail the check; and makes a line of how many there
 * are of each, "ok: 7 files, 42 results: 41 as before, ..". */
static inline int copse_quality_failures(const int counts[COPSE_QUALITY_LOSS + 1]) {
  int n = 0;
  for (int v = COPSE_QUALITY_NEW; v <= COPSE_QUALITY_LOSS; v++) n += counts[v];
  return n;
}

void copse_quality_count(const int counts[COPSE_QUALITY_LOSS + 1], int n_files,
                         struct copse_text *out);

/* A row as reports have it. */
struct copse_quality_case {
  const char *topology, *collective; /* as the table has them */
  const char *file;                  /* the topology's; of one that has gone the table */
  const char *text;                  /* lines that say what differs, or why it was not measured */
  enum copse_quality_verdict verdict;
  double seconds; /* of solving */
};
/* Returns a case's text in one line: "another topology ..; worse bound 1 -> 2 s/GB"; NULL: none, or
 * no memory. */
const char *copse_quality_reason(const struct copse_quality_case *it, struct copse_arena *arena);
/* Writes JUnit's XML: a test case for each row, a failure for each that fails the check. */
void copse_quality_to_junit(const struct copse_quality_case *cases, size_t n,
                            struct copse_text *out);
/* Writes "::error title=copse quality::MESSAGE". */
void copse_quality_annotate(const char *level, const char *message, struct copse_text *out);
/* Writes workflow commands of GitHub: for each topology of which something differs one line with
 * all that does, an ::error where anything fails the check, else a ::notice; at the end one line
 * with `summary`. What is as before has none: GitHub shows ten of a kind for each step. */
void copse_quality_to_annotations(const struct copse_quality_case *cases, size_t n,
                                  const char *summary, struct copse_text *out);
