/* What has become better or worse since a table was written. */
#ifndef COPSE_CLI_QUALITY_COMPARE_H
#define COPSE_CLI_QUALITY_COMPARE_H

#include <stdbool.h>

#include "cli/quality_table.h"

/* From harmless to bad: everything from COPSE_QUALITY_NEW on fails the check. */
enum copse_quality_verdict {
  COPSE_QUALITY_SAME,
  COPSE_QUALITY_UNCOMPARED, /* skipped, or out of time without a row to compare with */
  COPSE_QUALITY_GAIN,       /* something better, nothing worse */
  COPSE_QUALITY_NEW,        /* not in the table, so not watched */
  COPSE_QUALITY_GONE,       /* in the table, but there is no such topology any more */
  COPSE_QUALITY_CHANGED,    /* the topology is another one */
  COPSE_QUALITY_LOSS
};
const char *copse_quality_verdict_name(enum copse_quality_verdict verdict);

/*
 * Compares a row with the table's (NULL: it has none). A loss is a longer achieved time, a lower
 * bound (less is proved), more trees, a larger k or height, a longer predicted time, or no
 * schedule where there was one; the other way round it is a gain. Exact, but for predictions
 * and an alltoall's times, which come from floating point: those count from 1e-4 and 1e-6 on.
 * `text` gets a line for each difference, "        achieved  3/1040 -> ...".
 */
enum copse_quality_verdict copse_quality_compare(const struct copse_quality_row *now,
                                                 const struct copse_quality_row *was,
                                                 struct copse_text *text);

#endif
