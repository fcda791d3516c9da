/* What a row of schedule quality is beside the table's, and reports of it for other programs. */
#pragma once

#include "cli/quality/quality_table.h"

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
 * A loss is a longer achieved time, a lower bound (less is proved), more trees, a larger k or
 * height, a longer predicted time, or no schedule where there was one; the other way round it is a
 * gain. Of another topology a longer bound is worse. A file that can't be read is a loss.
 * was: NULL where the table has none. `text` gets a line for each difference,
 * " achieved 3/1040 -> ...", or the reason why there is no schedule.
 */
enum copse_quality_verdict copse_quality_compare(const struct copse_quality_row *now,
                                                 const struct copse_quality_row *was,
                                                 struct copse_text *text);

/* Of rows counted by verdict: how many fail the check; and a line of how many there are of each,
 * "ok: 7 files, 42 results: 41 as before, ..". */
int copse_quality_failures(const int counts[COPSE_QUALITY_LOSS + 1]);
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
/* Its text in one line: "worse bound 1 -> 2 s/GB; another topology .."; NULL: none, or no memory. */
const char *copse_quality_reason(const struct copse_quality_case *it, struct copse_arena *arena);
/* JUnit's XML: a test case for each row, a failure for each that fails the check. */
void copse_quality_to_junit(const struct copse_quality_case *cases, size_t n,
                            struct copse_text *out);
/* Workflow commands of GitHub: for each topology of which something differs one line with all that
 * does, an ::error where anything fails the check, else a ::notice; at the end one line with
 * `summary`. What is as before has none: GitHub shows ten of a kind for each step. */
void copse_quality_to_annotations(const struct copse_quality_case *cases, size_t n,
                                  const char *summary, struct copse_text *out);
