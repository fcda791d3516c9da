/*
 * Prints an audit: the figures of each collective, each as a share of the one before; the causes,
 * what costs most first; what could not be judged. The page's style is report.css. docs/nccl.md,
 * "What the figures are".
 */
#include "view/audit_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "view/report.h"

#define COLUMNS 100

/* ---- text ------------------------------------------------------------------------------------ */

/* Adds a paragraph in lines of COLUMNS characters, the first behind `label`, all indented. */
static void add_wrapped(struct copse_text *text, const char *label, int indent, const char *words) {
  int at = indent;
  copse_text_add(text, "%-*s", indent, label);
  for (bool first = true; *words; first = false) {
    int n = (int)strcspn(words, " ");
    bool wraps = !first && at + 1 + n > COLUMNS;
    if (wraps) copse_text_add(text, "\n%*s", indent, "");
    if (!wraps && !first) copse_text_append(text, " ", 1);
    copse_text_append(text, words, (size_t)n);
    at = (wraps ? indent : at + !first) + n;
    words += n;
    words += strspn(words, " ");
  }
  copse_text_append(text, "\n", 1);
}

/* Returns "370.8", or "-". */
static const char *figure(double v, char buffer[24]) {
  if (!isfinite(v)) return "-";
  snprintf(buffer, 24, "%.4g", v);
  return buffer;
}

/* Returns "57 %" of what stands before it; "" where one is missing. */
static const char *percent(double v, double of, char buffer[24]) {
  if (!isfinite(v) || !(of > 0)) return "";
  if (v > 10 * of)
    snprintf(buffer, 24, "%.0f x", v / of);
  else
    snprintf(buffer, 24, v < 0.0095 * of ? "%.2g %%" : "%.0f %%", 100 * v / of);
  return buffer;
}

static double before_measured(const struct copse_audit_row *row) {
  return isfinite(row->nccl) ? row->nccl : row->bound;
}

static void add_row(const struct copse_audit_row *row, struct copse_text *text) {
  char bound[24], nccl[24], measured[24], of_bound[24], of_nccl[24];
  copse_text_add(text, "  %-16s %9s  %9s %7s  %9s %7s\n", copse_collective_name(row->collective),
                 figure(row->bound, bound), figure(row->nccl, nccl),
                 percent(row->nccl, row->bound, of_bound), figure(row->measured, measured),
                 percent(row->measured, before_measured(row), of_nccl));
}

static void add_reasons(const struct copse_audit *a, struct copse_text *text) {
  if (a->n_rows == 0) return;
  const struct copse_audit_row *row = &a->rows[0];
  if (!row->cut && !row->how && a->n_notes == 0) return;
  copse_text_add(text, "\nof %s:\n", copse_collective_name(row->collective));
  if (row->cut) add_wrapped(text, "  bound", 13, row->cut);
  if (row->how) add_wrapped(text, "  NCCL", 13, row->how);
  for (int i = 0; i < a->n_notes; i++) add_wrapped(text, "", 13, a->notes[i]);
}

/* "at most 7.5 GB/s, 43 % of the bound"; false: it has none. */
#define COST_TEXT 96
static bool cost_text(const struct copse_audit_finding *f, char text[COST_TEXT]) {
  if (f->within >= 0)
    snprintf(text, COST_TEXT, "%.4g GB/s at most, within that of cause %d", f->cost, f->within + 1);
  else
    snprintf(text, COST_TEXT,
             f->share < 0.095 ? "%.4g GB/s at most, %.2g %% of the bound"
                              : "%.4g GB/s at most, %.0f %% of the bound",
             f->cost, 100 * f->share);
  return f->share > 0;
}

void copse_audit_to_text(const struct copse_audit *a, struct copse_text *text) {
  copse_text_add(text, "%s\nbus bandwidth of long messages, GB/s:\n\n", a->headline);
  copse_text_add(text, "  %-16s %9s  %9s %7s  %9s %7s\n", "", "bound", "NCCL", "", "measured", "");
  for (int i = 0; i < a->n_rows; i++) add_row(&a->rows[i], text);
  add_reasons(a, text);
  copse_text_add(text, a->n_findings > 0 ? "\ncauses, what costs most first:\n"
                                         : "\nno cause found in what was given\n");
  for (int i = 0; i < a->n_findings; i++) {
    const struct copse_audit_finding *f = &a->findings[i];
    char label[24], cost[COST_TEXT];
    snprintf(label, sizeof label, "%3d.", i + 1);
    add_wrapped(text, label, 5, f->what);
    add_wrapped(text, "     seen:", 11, f->evidence);
    if (cost_text(f, cost)) add_wrapped(text, "     cost:", 11, cost);
    add_wrapped(text, "     mend:", 11, f->mend);
  }
  if (a->n_gaps > 0) copse_text_add(text, "\nnot judged:\n");
  for (int i = 0; i < a->n_gaps; i++) {
    add_wrapped(text, "  -", 4, a->gaps[i].what);
    add_wrapped(text, "    to get it:", 15, a->gaps[i].command);
  }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_member(struct copse_text *text, const char *key, double v) {
  copse_text_add(text, ", \"%s\": ", key);
  copse_text_add_json_number(text, v);
}

static void add_words(struct copse_text *text, const char *before, const char *key,
                      const char *words) {
  copse_text_add(text, "%s\"%s\": ", before, key);
  if (words)
    copse_text_add_json_string(text, words);
  else
    copse_text_add(text, "null");
}

static void add_json_row(const struct copse_audit_row *row, struct copse_text *text) {
  bool judged = isfinite(row->nccl);
  add_words(text, "\n  {", "collective", copse_collective_name(row->collective));
  add_member(text, "bound_busbw_GBps", row->bound);
  add_member(text, "nccl_busbw_GBps", row->nccl);
  add_member(text, "measured_busbw_GBps", row->measured);
  add_words(text, ", ", "algorithm", judged ? copse_nccl_algorithm_name(row->algorithm) : NULL);
  add_member(text, "stated_busbw_GBps", row->stated);
  add_member(text, "links_busbw_GBps", row->links);
  add_words(text, ",\n   ", "bound", row->cut);
  add_words(text, ",\n   ", "nccl", row->how);
  copse_text_add(text, "}");
}

void copse_audit_to_json(const struct copse_audit *a, struct copse_text *text) {
  add_words(text, "{", "audit", a->headline);
  copse_text_add(text, ",\n \"collectives\": [");
  for (int i = 0; i < a->n_rows; i++) {
    if (i > 0) copse_text_add(text, ",");
    add_json_row(&a->rows[i], text);
  }
  copse_text_add(text, "],\n \"findings\": [");
  for (int i = 0; i < a->n_findings; i++) {
    const struct copse_audit_finding *f = &a->findings[i];
    add_words(text, i > 0 ? ",\n  {" : "\n  {", "what", f->what);
    add_words(text, ",\n   ", "evidence", f->evidence);
    add_words(text, ",\n   ", "mend", f->mend);
    add_member(text, "share_of_bound", f->share);
    add_member(text, "cost_busbw_GBps", f->cost);
    add_member(text, "within", f->within >= 0 ? f->within + 1 : NAN);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "],\n \"not_judged\": [");
  for (int i = 0; i < a->n_gaps; i++) {
    add_words(text, i > 0 ? ",\n  {" : "\n  {", "what", a->gaps[i].what);
    add_words(text, ", ", "command", a->gaps[i].command);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "],\n \"notes\": [");
  for (int i = 0; i < a->n_notes; i++) {
    if (i > 0) copse_text_add(text, ",");
    copse_text_add(text, "\n  ");
    copse_text_add_json_string(text, a->notes[i]);
  }
  copse_text_add(text, "]}\n");
}

/* ---- a page ---------------------------------------------------------------------------------- */

static void add_element(struct copse_text *text, const char *name, const char *words) {
  copse_text_add(text, "<%s>", name);
  copse_text_add_xml(text, words);
  copse_text_add(text, "</%s>", name);
}

static void add_cells(const struct copse_audit_row *row, struct copse_text *text) {
  char buffer[5][24];
  const char *const cells[] = {figure(row->bound, buffer[0]), figure(row->nccl, buffer[1]),
                               percent(row->nccl, row->bound, buffer[2]),
                               figure(row->measured, buffer[3]),
                               percent(row->measured, before_measured(row), buffer[4])};
  copse_text_add(text, "<tr>");
  add_element(text, "td", copse_collective_name(row->collective));
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) add_element(text, "td", cells[i]);
  copse_text_add(text, "</tr>\n");
}

static void add_figures(const struct copse_audit *a, struct copse_text *text) {
  copse_text_add(text,
                 "<section><h2>Bus bandwidth of long messages, GB/s</h2>\n<table "
                 "class=\"numbers\"><thead><tr><th></th><th>bound</th><th>NCCL</th><th>of the "
                 "bound</th><th>measured</th><th>of NCCL's</th></tr></thead>\n");
  for (int i = 0; i < a->n_rows; i++) add_cells(&a->rows[i], text);
  copse_text_add(text, "</table>\n");
  for (int i = 0; i < a->n_rows && i < 1; i++) {
    if (a->rows[i].cut) {
      copse_text_add(text, "<p class=\"cut\"><b>Bound</b> ");
      copse_text_add_xml(text, a->rows[i].cut);
      copse_text_add(text, "</p>");
    }
    if (a->rows[i].how) {
      copse_text_add(text, "<p class=\"cut\"><b>NCCL</b> ");
      copse_text_add_xml(text, a->rows[i].how);
      copse_text_add(text, "</p>");
    }
  }
  for (int i = 0; i < a->n_notes; i++) add_element(text, "p", a->notes[i]);
  copse_text_add(text, "</section>\n");
}

void copse_audit_to_page(const struct copse_audit *a, const char *made_by,
                         struct copse_text *text) {
  copse_page_begin(a->headline, "", text);
  add_figures(a, text);
  copse_text_add(text, "<section><h2>Causes, what costs most first</h2>\n<ol>\n");
  for (int i = 0; i < a->n_findings; i++) {
    const struct copse_audit_finding *f = &a->findings[i];
    char cost[COST_TEXT];
    copse_text_add(text, "<li>");
    add_element(text, "b", f->what);
    copse_text_add(text, "<br/>seen: ");
    copse_text_add_xml(text, f->evidence);
    if (cost_text(f, cost)) copse_text_add(text, "<br/>cost: %s", cost);
    copse_text_add(text, "<br/>mend: ");
    copse_text_add_xml(text, f->mend);
    copse_text_add(text, "</li>\n");
  }
  copse_text_add(text, "</ol>%s</section>\n",
                 a->n_findings == 0 ? "<p>None found in what was given.</p>" : "");
  if (a->n_gaps > 0) copse_text_add(text, "<section><h2>Not judged</h2>\n<ul>\n");
  for (int i = 0; i < a->n_gaps; i++) {
    copse_text_add(text, "<li>");
    copse_text_add_xml(text, a->gaps[i].what);
    copse_text_add(text, "<br/>to get it: ");
    copse_text_add_xml(text, a->gaps[i].command);
    copse_text_add(text, "</li>\n");
  }
  if (a->n_gaps > 0) copse_text_add(text, "</ul></section>\n");
  copse_page_end(made_by, "", text);
  copse_text_add(text, "</body>\n</html>\n");
}
