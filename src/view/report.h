/* The page of `copse report`: one file, nothing fetched from anywhere, well-formed as XML too.
 * Its style and script are report.css and report.js, made into strings by the Makefile. */
#pragma once

#include "base/text.h"
#include "predict/predict.h"
#include "view/arrangement.h"

extern const char copse_report_css[], copse_report_js[];

/* From 1 KiB in steps of four. */
#define COPSE_REPORT_SIZES 12
static inline uint64_t copse_report_size(int i) { return (uint64_t)1024 << (2 * i); }

struct copse_report {
  const struct copse_topology *topology;
  const struct copse_schedule *schedule; /* expanded, solved on this topology */
  const struct copse_arrangement *arrangement;
  const struct copse_prediction *predictions; /* [n_predictions] */
  int n_predictions;
  double us[COPSE_MAX_PREDICTIONS][COPSE_REPORT_SIZES];
  double bound_us[COPSE_REPORT_SIZES]; /* what no schedule beats; 0: not known */
  struct copse_q
      on_routes; /* s per GB that trees on the fabric's own routes take at least; 0: no more */
  const char *made_by;                 /* the command; or NULL */
};

/* Writes the beginning of a page, title and style up to <main>. copse_page_end writes its end, a
 * footer with the versions and the command that made it (or NULL). `nav` and `more` are markup. */
void copse_page_begin(const char *title, const char *nav, struct copse_text *text);
void copse_page_end(const char *made_by, const char *more, struct copse_text *text);

/* In the first 4 KiB of every page; and whether the file is such a page. */
#define COPSE_PAGE_MARK "<meta name=\"generator\" content=\"copse\"/>"

/* One topology of an index. */
struct copse_report_row {
  const char *name, *page; /* page: the file beside the index */
  const char *failure;     /* one line, and then nothing below holds; or NULL */
  int n_ranks;
  double algbw, busbw; /* GB/s */
  double above;        /* of the bound; 0: reached */
  const char *bottleneck;
};
/* Appends the page that leads to those of rows [n]. */
void copse_report_index(const char *title, const struct copse_report_row *rows, int n,
                        const char *made_by, struct copse_text *text);

/* Appends the whole page. COPSE_NOMEM, COPSE_OVERFLOW. */
copse_status copse_report_page(const struct copse_report *report, struct copse_text *text,
                               struct copse_err *err) COPSE_CHECKED;
