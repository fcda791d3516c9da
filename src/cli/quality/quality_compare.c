/* Comparing a row of schedule quality with the table's: what became worse, what better. */
#include "cli/quality/quality_compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

const char *const copse_quality_verdicts[] = {"same", "not compared", "better", "new",
                                              "gone", "changed",      "LOSS"};

/* Relative; predictions are doubles that the table has six digits of. */
#define SAME_PREDICTION 1e-4
/* Of ratios: searches are cut short, and less than this is too small for a model to tell. */
#define SAME_RATIO 1e-2
/* Linear programmes may end in another vertex with another library. */
#define SAME_ALLTOALL 1e-6

struct comparison {
  struct copse_text *text;
  bool
      another; /* topology: a longer bound is one that can do less, not one that is proved better */
  bool worse, better;
};

static void note(struct comparison *c, bool worse, const char *what, const char *was,
                 const char *now, const char *remark) {
  *(worse ? &c->worse : &c->better) = true;
  copse_text_add(c->text, "        %-8s %s %s -> %s%s\n", worse ? "worse" : "better", what, was,
                 now, remark);
}

/* -1, 0, 1 as memcmp; `slack` relative. */
static int order_of(double now, double was, double slack) {
  if (now > was * (1 + slack)) return 1;
  return now < was * (1 - slack) ? -1 : 0;
}

static void compare_time(struct comparison *c, const char *what, struct copse_q now,
                         struct copse_q was, double slack, bool less_is_worse) {
  char remark[48] = "";
  double x = copse_q_to_double(now), y = copse_q_to_double(was);
  int difference = slack > 0 ? order_of(x, y, slack) : copse_q_cmp(now, was);
  if (difference == 0) return;
  if (y > 0) snprintf(remark, sizeof remark, " s/GB (%+.4g %%)", 100 * (x / y - 1));
  bool shown = strcmp(COPSE_CLI_Q(was), COPSE_CLI_Q(now)) != 0; /* with 6 digits */
  note(c, less_is_worse ? difference < 0 : difference > 0, what,
       shown ? COPSE_CLI_Q(was) : COPSE_Q_STRING(was),
       shown ? COPSE_CLI_Q(now) : COPSE_Q_STRING(now), remark);
}

static void compare_count(struct comparison *c, const char *what, int64_t now, int64_t was) {
  char a[24], b[24];
  if (now == was) return;
  snprintf(a, sizeof a, "%" PRId64, was);
  snprintf(b, sizeof b, "%" PRId64, now);
  note(c, now > was, what, a, b, "");
}

static void compare_prediction(struct comparison *c, const char *size, double now, double was) {
  char what[32], a[32], b[32], remark[48];
  int difference = order_of(now, was, SAME_PREDICTION);
  if (difference == 0) return;
  snprintf(what, sizeof what, "time at %s", size);
  snprintf(a, sizeof a, "%.6g", was);
  snprintf(b, sizeof b, "%.6g", now);
  snprintf(remark, sizeof remark, " us (%+.3g %%)", was > 0 ? 100 * (now / was - 1) : 0.0);
  note(c, difference > 0, what, a, b, remark);
}

/* Where both have one: runs without --sizes don't, nor do older tables. */
static void compare_ratio(struct comparison *c, const char *size, double now, double was) {
  char what[32], a[32], b[32];
  int difference = now > 0 && was > 0 ? order_of(now, was, SAME_RATIO) : 0;
  if (difference == 0) return;
  snprintf(what, sizeof what, "over the bound at %s", size);
  snprintf(a, sizeof a, "%.3f", was);
  snprintf(b, sizeof b, "%.3f", now);
  note(c, difference > 0, what, a, b, "");
}

static void compare_schedules(struct comparison *c, const struct copse_quality_row *now,
                              const struct copse_quality_row *was) {
  const struct copse_quality_result *n = &now->result, *w = &was->result;
  double slack = now->collective == COPSE_ALLTOALL ? SAME_ALLTOALL : 0;
  compare_time(c, "achieved", n->achieved, w->achieved, slack, false);
  compare_time(c, "bound", n->bound, w->bound, slack, !c->another);
  compare_count(c, "k", n->k, w->k);
  compare_count(c, now->collective == COPSE_ALLTOALL ? "paths" : "trees", n->trees, w->trees);
  compare_count(c, "height", n->height, w->height);
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
    compare_prediction(c, copse_quality_size_names[i], n->us[i], w->us[i]);
  for (int i = 0; i < COPSE_QUALITY_RATIOS; i++)
    compare_ratio(c, copse_quality_ratio_names[i], n->ratios[i], w->ratios[i]);
}

/* A schedule is better than none, any other outcome than that copse broke. */
static int rank_of(enum copse_quality_outcome outcome) {
  if (outcome == COPSE_QUALITY_OK) return 0;
  return outcome == COPSE_QUALITY_TIMEOUT || outcome == COPSE_QUALITY_FAILED ? 2 : 1;
}

static void compare_outcomes(struct comparison *c, const struct copse_quality_row *now,
                             const struct copse_quality_row *was) {
  enum copse_quality_outcome n = now->result.outcome, w = was->result.outcome;
  char remark[sizeof now->result.reason + 4] = "";
  if (now->result.reason[0]) snprintf(remark, sizeof remark, ": %s", now->result.reason);
  note(c, rank_of(n) >= rank_of(w), "outcome", copse_quality_outcome_name(w),
       copse_quality_outcome_name(n), remark);
}

enum copse_quality_verdict copse_quality_compare(const struct copse_quality_row *now,
                                                 const struct copse_quality_row *was,
                                                 struct copse_text *text) {
  struct comparison c = {.text = text};
  c.another = was && strcmp(now->sha256, was->sha256) != 0;
  enum copse_quality_outcome outcome = now->result.outcome;
  if (outcome == COPSE_QUALITY_SKIPPED || (outcome == COPSE_QUALITY_TIMEOUT && !was)) {
    copse_text_add(text, "        %s\n", now->result.reason);
    if (!c.another) return COPSE_QUALITY_UNCOMPARED;
    copse_text_add(text, "        another topology than when the table was written\n");
    return COPSE_QUALITY_CHANGED;
  }
  bool unread = outcome == COPSE_QUALITY_UNREADABLE; /* also where an older table took that */
  if (outcome == COPSE_QUALITY_FAILED || unread || (outcome != COPSE_QUALITY_OK && !was)) {
    copse_text_add(text, "        %s: %s\n", copse_quality_outcome_name(outcome),
                   now->result.reason);
    return outcome == COPSE_QUALITY_FAILED || unread ? COPSE_QUALITY_LOSS : COPSE_QUALITY_NEW;
  }
  if (!was) return COPSE_QUALITY_NEW;
  if (outcome != was->result.outcome)
    compare_outcomes(&c, now, was);
  else if (outcome == COPSE_QUALITY_OK)
    compare_schedules(&c, now, was);
  if (c.another) {
    copse_text_add(text, "        another topology than when the table was written\n");
    return COPSE_QUALITY_CHANGED;
  }
  if (c.worse) return COPSE_QUALITY_LOSS;
  return c.better ? COPSE_QUALITY_GAIN : COPSE_QUALITY_SAME;
}

/* ---- reports for other programs ------------------------------------------------------------- */

static bool fails(const struct copse_quality_case *it) { return it->verdict >= COPSE_QUALITY_NEW; }

/* Without the blanks that the table of a terminal has. */
static const char *text_of(const struct copse_quality_case *it) {
  return it->text ? it->text + strspn(it->text, " ") : "";
}

const char *copse_quality_reason(const struct copse_quality_case *it, struct copse_arena *arena) {
  char *to = *text_of(it) ? copse_arena_strdup(arena, text_of(it)) : NULL, *out = to;
  for (const char *p = to; p && *p; p++) {
    bool blank = *p == ' ' && (p[1] == ' ' || p[1] == '\n' || out == to || out[-1] == ' ');
    if (*p == '\n' && p[1]) *out++ = ';';
    if (*p == '\n' ? p[1] != '\0' : !blank) *out++ = *p == '\n' ? ' ' : *p;
  }
  if (out) *out = '\0';
  return to;
}

int copse_quality_failures(const int counts[COPSE_QUALITY_LOSS + 1]) {
  int n = 0;
  for (int v = COPSE_QUALITY_NEW; v <= COPSE_QUALITY_LOSS; v++) n += counts[v];
  return n;
}

void copse_quality_count(const int n[COPSE_QUALITY_LOSS + 1], int n_files,
                         struct copse_text *out) {
  int all = 0;
  for (int v = 0; v <= COPSE_QUALITY_LOSS; v++) all += v == COPSE_QUALITY_GONE ? 0 : n[v];
  copse_text_add(
      out,
      "%s: %d files, %d results: %d as before, %d better, %d lost, %d changed, %d new, %d gone, "
      "%d not compared",
      copse_quality_failures(n) > 0 ? "NOT OK" : "ok", n_files, all, n[COPSE_QUALITY_SAME],
      n[COPSE_QUALITY_GAIN], n[COPSE_QUALITY_LOSS], n[COPSE_QUALITY_CHANGED], n[COPSE_QUALITY_NEW],
      n[COPSE_QUALITY_GONE], n[COPSE_QUALITY_UNCOMPARED]);
}

static void add_junit_case(const struct copse_quality_case *it, struct copse_text *out) {
  copse_text_add(out, "  <testcase classname=\"");
  copse_text_add_xml(out, it->topology);
  copse_text_add(out, "\" name=\"%s\" file=\"", it->collective);
  copse_text_add_xml(out, it->file);
  copse_text_add(out, "\" time=\"%.3f\"", it->seconds);
  if (fails(it)) {
    copse_text_add(out, "><failure type=\"%s\" message=\"%s of ",
                   copse_quality_verdicts[it->verdict], it->collective);
    copse_text_add_xml(out, it->topology);
    copse_text_add(out, ": %s\">", copse_quality_verdicts[it->verdict]);
    copse_text_add_xml(out, text_of(it));
    copse_text_add(out, "</failure></testcase>\n");
  } else if (it->verdict == COPSE_QUALITY_UNCOMPARED) {
    copse_text_add(out, "><skipped message=\"");
    copse_text_add_xml(out, text_of(it));
    copse_text_add(out, "\"/></testcase>\n");
  } else {
    copse_text_add(out, "/>\n");
  }
}

void copse_quality_to_junit(const struct copse_quality_case *cases, size_t n,
                            struct copse_text *out) {
  size_t failed = 0, skipped = 0;
  double seconds = 0;
  for (size_t i = 0; i < n; i++) {
    failed += fails(&cases[i]);
    skipped += cases[i].verdict == COPSE_QUALITY_UNCOMPARED;
    seconds += cases[i].seconds;
  }
  copse_text_add(out,
                 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n <testsuite "
                 "name=\"copse quality\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" "
                 "skipped=\"%zu\" time=\"%.3f\">\n",
                 n, failed, skipped, seconds);
  for (size_t i = 0; i < n; i++) add_junit_case(&cases[i], out);
  copse_text_add(out, " </testsuite>\n</testsuites>\n");
}

/* What GitHub's runner unescapes; of properties also ':' and ','. */
static void add_escaped(struct copse_text *out, const char *text, bool property) {
  for (const char *p = text; *p; p++)
    if (strchr("%\r\n", *p) || (property && strchr(":,", *p)))
      copse_text_add(out, "%%%02X", (unsigned char)*p);
    else
      copse_text_append(out, p, 1);
}

static bool is_noted(const struct copse_quality_case *it) {
  return fails(it) || it->verdict == COPSE_QUALITY_GAIN;
}

/* "allgather: worse  height 3 -> 4" of a case, in as many lines as its text has. */
static void add_annotated(struct copse_text *out, const struct copse_quality_case *it) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  size_t length = strlen(text_of(it));
  while (length > 0 && text_of(it)[length - 1] == '\n') length--;
  copse_text_append(&text, text_of(it), length);
  copse_text_add(out, "%s: ", it->collective);
  if (text.data && length > 0)
    add_escaped(out, text.data, false);
  else
    copse_text_add(out, "%s", copse_quality_verdicts[it->verdict]);
}

/* All of a topology that differs, from case `first` on, which is one. */
static void annotate(const struct copse_quality_case *cases, size_t first, size_t n,
                     struct copse_text *out) {
  const struct copse_quality_case *worst = &cases[first];
  bool more = false;
  for (size_t i = first; i < n; i++)
    if (strcmp(cases[i].topology, worst->topology) == 0 && cases[i].verdict > worst->verdict)
      worst = &cases[i];
  copse_text_add(out, "::%s file=", fails(worst) ? "error" : "notice");
  add_escaped(out, worst->file, true);
  copse_text_add(out, ",title=copse quality%%3A %s::", copse_quality_verdicts[worst->verdict]);
  add_escaped(out, worst->topology, false);
  copse_text_add(out, "%%0A");
  for (size_t i = first; i < n; i++) {
    if (!is_noted(&cases[i]) || strcmp(cases[i].topology, worst->topology) != 0) continue;
    copse_text_add(out, "%s", more ? "%0A" : "");
    add_annotated(out, &cases[i]);
    more = true;
  }
  copse_text_add(out, "\n");
}

void copse_quality_to_annotations(const struct copse_quality_case *cases, size_t n,
                                  const char *summary, struct copse_text *out) {
  size_t failed = 0;
  for (size_t i = 0; i < n; i++) {
    bool first = is_noted(&cases[i]);
    failed += fails(&cases[i]);
    for (size_t j = 0; first && j < i; j++)
      first = !is_noted(&cases[j]) || strcmp(cases[i].topology, cases[j].topology) != 0;
    if (first) annotate(cases, i, n, out);
  }
  copse_text_add(out, "::%s title=copse quality::", failed > 0 ? "error" : "notice");
  add_escaped(out, summary, false);
  copse_text_add(out, "\n");
}
