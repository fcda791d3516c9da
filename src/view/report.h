/* The page of `copse report`: one file, nothing fetched from anywhere, well-formed as XML too.
 * Its style and script are report.css and report.js, made into strings by the Makefile. */
#pragma once

#include "base/text.h"
#include "predict/predict.h"
#include "view/arrangement.h"

extern const char copse_report_css[], copse_report_js[];

/* From 1 KiB in steps of four. */
#define COPSE_REPORT_SIZES 12
uint64_t copse_report_size(int i);

struct copse_report {
  const struct copse_topology *topology;
  const struct copse_schedule *schedule; /* expanded, solved on this topology */
  const struct copse_arrangement *arrangement;
  const struct copse_prediction *predictions; /* [n_predictions] */
  int n_predictions;
  double us[COPSE_MAX_PREDICTIONS][COPSE_REPORT_SIZES];
  double bound_us[COPSE_REPORT_SIZES]; /* what no schedule beats; 0: not known */
};

/* Appends the whole page. COPSE_NOMEM, COPSE_OVERFLOW. */
copse_status copse_report_page(const struct copse_report *report, struct copse_text *text,
                               struct copse_err *err) COPSE_CHECKED;
