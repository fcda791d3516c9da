#include "cli/quality_compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "copse/copse.h"

/* Relative; predictions are doubles that the table has six digits of. */
#define SAME_PREDICTION 1e-4
/* Linear programmes may end in another vertex with another library. */
#define SAME_ALLTOALL 1e-6

const char *copse_quality_verdict_name(enum copse_quality_verdict verdict) {
  static const char *const names[] = {"same", "not compared", "better", "new",
                                      "gone", "changed",      "LOSS"};
  return names[verdict];
}

struct comparison {
  struct copse_text *text;
  bool worse, better;
};

static void note(struct comparison *c, bool worse, const char *what, const char *was,
                 const char *now, const char *remark) {
  *(worse ? &c->worse : &c->better) = true;
  copse_text_add(c->text, "        %-8s %s %s -> %s%s\n", worse ? "worse" : "better", what, was,
                 now, remark);
}

/* -1, 0, 1 as memcmp; `slack` relative. */
static int order(double now, double was, double slack) {
  if (now > was * (1 + slack)) return 1;
  return now < was * (1 - slack) ? -1 : 0;
}

static void compare_time(struct comparison *c, const char *what, struct copse_q now,
                         struct copse_q was, double slack, bool less_is_worse) {
  char a[COPSE_Q_TEXT], b[COPSE_Q_TEXT], remark[48] = "";
  double x = copse_q_to_double(now), y = copse_q_to_double(was);
  int difference = slack > 0 ? order(x, y, slack) : copse_q_cmp(now, was);
  if (difference == 0) return;
  if (y > 0) snprintf(remark, sizeof remark, " s/GB (%+.4g %%)", 100 * (x / y - 1));
  note(c, less_is_worse ? difference < 0 : difference > 0, what, copse_q_text(was, a),
       copse_q_text(now, b), remark);
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
  int difference = order(now, was, SAME_PREDICTION);
  if (difference == 0) return;
  snprintf(what, sizeof what, "time at %s", size);
  snprintf(a, sizeof a, "%.6g", was);
  snprintf(b, sizeof b, "%.6g", now);
  snprintf(remark, sizeof remark, " us (%+.3g %%)", was > 0 ? 100 * (now / was - 1) : 0.0);
  note(c, difference > 0, what, a, b, remark);
}

static void compare_schedules(struct comparison *c, const struct copse_quality_row *now,
                              const struct copse_quality_row *was) {
  const struct copse_quality_result *n = &now->result, *w = &was->result;
  double slack = now->collective == COPSE_ALLTOALL ? SAME_ALLTOALL : 0;
  compare_time(c, "achieved", n->achieved, w->achieved, slack, false);
  compare_time(c, "bound", n->bound, w->bound, slack, true);
  compare_count(c, "k", n->k, w->k);
  compare_count(c, now->collective == COPSE_ALLTOALL ? "paths" : "trees", n->trees, w->trees);
  compare_count(c, "height", n->height, w->height);
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
    compare_prediction(c, copse_quality_size_names[i], n->us[i], w->us[i]);
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
  enum copse_quality_outcome outcome = now->result.outcome;
  if (outcome == COPSE_QUALITY_SKIPPED || (outcome == COPSE_QUALITY_TIMEOUT && !was)) {
    copse_text_add(text, "        %s\n", now->result.reason);
    return COPSE_QUALITY_UNCOMPARED;
  }
  if (outcome == COPSE_QUALITY_FAILED) {
    copse_text_add(text, "        failed: %s\n", now->result.reason);
    return COPSE_QUALITY_LOSS;
  }
  if (!was) return COPSE_QUALITY_NEW;
  if (outcome != was->result.outcome)
    compare_outcomes(&c, now, was);
  else if (outcome == COPSE_QUALITY_OK)
    compare_schedules(&c, now, was);
  if (strcmp(now->sha256, was->sha256) != 0) {
    copse_text_add(text, "        another topology than when the table was written\n");
    return COPSE_QUALITY_CHANGED;
  }
  if (c.worse) return COPSE_QUALITY_LOSS;
  return c.better ? COPSE_QUALITY_GAIN : COPSE_QUALITY_SAME;
}
