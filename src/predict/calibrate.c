/*
 * Profiles from measured times: a least-squares fit of two costs (K. Levenberg, A method for the
 * solution of certain non-linear problems in least squares, 1944; D. W. Marquardt 1963) to the
 * logarithms of a plan's times, which are simulated as 'copse simulate' does.
 */
#include "predict/calibrate.h"

#include <math.h>

#include "base/memory.h"
#include "predict/policy.h"

/* What is fitted, as logarithms: us of a hop, and how often the nominal time bytes take on links.
 */
enum { HOP, LINKS, N_COSTS };

static const double least[N_COSTS] = {LEAST_FITTED, 1 / MOST_FITTED};

struct fit {
  const struct copse_topology *nominal;
  struct copse_topology scaled; /* what a simulation looks at, and nothing else */
  struct copse_link *links;     /* of `scaled` */
  struct copse_prediction plan;
  double packets;           /* what a hop costs of hop_us: less with packets */
  const double *bytes, *us; /* [n] */
  int n;
  bool fixed[N_COSTS];
  double at[N_COSTS], sum; /* the best so far, and the squares there */
  struct copse_err *err;
};

/* Per size: the logarithm of simulated over measured time, or its slope. */
typedef double each_size[COPSE_CALIBRATED_SIZES];

/* Simulates all sizes with these costs. */
static copse_status simulate(struct fit *f, double hop_us, double scale, double *us) {
  struct copse_predict_options costs = copse_predict_defaults;
  struct copse_q q;
  COPSE_DO(copse_q_from_double(scale, &q, f->err));
  for (int i = 0; i < f->nominal->n_links; i++)
    COPSE_DO(copse_q_mul(f->nominal->links[i].bandwidth, q, &f->links[i].bandwidth, f->err));
  copse_predict_alpha(&costs, hop_us);
  f->plan.sim.alpha_us = hop_us * f->packets;
  f->plan.sim.message_us = fmin(costs.sim.message_us, f->plan.sim.alpha_us);
  return copse_predictions_time(&f->scaled, &f->plan, 1, f->bytes, f->n, false, us, f->err);
}

static copse_status compare(struct fit *f, const double at[N_COSTS], each_size off, double *sum) {
  COPSE_DO(simulate(f, exp(at[HOP]), exp(-at[LINKS]), off));
  *sum = 0;
  for (int i = 0; i < f->n; i++) {
    off[i] = log(fmax(off[i], LEAST_FITTED) / f->us[i]);
    *sum += off[i] * off[i];
  }
  return COPSE_OK;
}

/* Finds how the times at f->at change with each cost; 0 for one that is fixed. */
static copse_status find_slopes(struct fit *f, const each_size off, each_size slopes[N_COSTS]) {
  for (int c = 0; c < N_COSTS; c++) {
    double moved[N_COSTS] = {f->at[HOP], f->at[LINKS]}, ignored;
    moved[c] += FIT_STEP;
    if (!f->fixed[c]) COPSE_DO(compare(f, moved, slopes[c], &ignored));
    for (int i = 0; i < f->n; i++)
      slopes[c][i] = f->fixed[c] ? 0 : (slopes[c][i] - off[i]) / FIT_STEP;
  }
  return COPSE_OK;
}

static double product(const double *a, const double *b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* Moves by the damped normal equations from f->at to `to`. */
static void move(const struct fit *f, const each_size off, each_size slopes[N_COSTS],
                 double damping, double to[N_COSTS]) {
  double a = product(slopes[HOP], slopes[HOP], f->n) * (1 + damping);
  double b = product(slopes[HOP], slopes[LINKS], f->n);
  double c = product(slopes[LINKS], slopes[LINKS], f->n) * (1 + damping);
  double x = -product(slopes[HOP], off, f->n), y = -product(slopes[LINKS], off, f->n);
  if (a < LEAST_FITTED) a = 1; /* fixed, or without effect: stays */
  if (c < LEAST_FITTED) c = 1;
  double det = a * c - b * b;
  const double step[N_COSTS] = {(x * c - y * b) / det, (y * a - x * b) / det};
  for (int i = 0; i < N_COSTS; i++)
    to[i] = fmin(fmax(f->at[i] + (f->fixed[i] ? 0 : fmin(fmax(step[i], -FIT_STRIDE), FIT_STRIDE)),
                      log(least[i])),
                 log(MOST_FITTED));
}

/* Goes from f->at to where the squares are least nearby. */
static copse_status descend(struct fit *f) {
  each_size off, tried, slopes[N_COSTS];
  double damping = FIT_DAMPING;
  COPSE_DO(compare(f, f->at, off, &f->sum));
  for (int turn = 0; turn < FIT_TURNS; turn++) {
    double before = f->sum;
    COPSE_DO(find_slopes(f, off, slopes));
    for (int try = 0; try < FIT_TRIES && f->sum == before; try++) {
      double to[N_COSTS], sum;
      move(f, off, slopes, damping, to);
      COPSE_DO(compare(f, to, tried, &sum));
      damping = sum < f->sum ? damping / FIT_FACTOR : damping * FIT_FACTOR;
      if (sum >= f->sum) continue;
      f->sum = sum;
      for (int i = 0; i < f->n; i++) off[i] = tried[i];
      for (int i = 0; i < N_COSTS; i++) f->at[i] = to[i];
    }
    if (f->sum > before * (1 - FIT_GAIN)) break;
  }
  return COPSE_OK;
}

/* How near simulated times come to the measured ones, on average. */
static bool is_close(const struct fit *f) { return sqrt(f->sum / f->n) < FIT_CLOSE; }

/* Finds costs that are no less than the best: of a hop, with which hops alone take as long as the
 * smallest message, and of links, with which bytes alone take as long as the largest. */
static copse_status find_most(struct fit *f, double most[N_COSTS]) {
  double us[COPSE_CALIBRATED_SIZES];
  COPSE_DO(simulate(f, ALPHA_US, MOST_FITTED, us));
  most[HOP] = log(ALPHA_US) + log(f->us[0] / fmax(us[0], LEAST_FITTED));
  COPSE_DO(simulate(f, LEAST_FITTED, 1, us));
  most[LINKS] = log(f->us[f->n - 1] / fmax(us[f->n - 1], LEAST_FITTED));
  for (int c = 0; c < N_COSTS; c++)
    most[c] = fmin(fmax(f->fixed[c] ? f->at[c] : most[c], log(least[c])), log(MOST_FITTED));
  return COPSE_OK;
}

/* Descends once more, from the best of a grid of costs below those: where hops take all the time
 * links have no slope, and the reverse, so a descent from far away ends there. */
static copse_status start_again(struct fit *f) {
  struct fit other = *f;
  int side = f->plan.dag.n_transfers > MOST_FITTED_AGAIN ? 2 : FIT_GRID;
  double most[N_COSTS], best = INFINITY, sum;
  each_size off;
  COPSE_DO(find_most(f, most));
  for (int i = 0; i < side * side; i++) {
    const int below[N_COSTS] = {i / side, i % side};
    double at[N_COSTS];
    if ((f->fixed[HOP] && below[HOP]) || (f->fixed[LINKS] && below[LINKS])) continue;
    for (int c = 0; c < N_COSTS; c++)
      at[c] = fmax(most[c] - FIT_GRID_STEP * below[c], log(least[c]));
    COPSE_DO(compare(f, at, off, &sum));
    if (sum >= best) continue;
    best = sum;
    for (int c = 0; c < N_COSTS; c++) other.at[c] = at[c];
  }
  COPSE_DO(descend(&other));
  if (other.sum < f->sum) *f = other;
  return COPSE_OK;
}

/* Descends from f->at, from the best of a grid, and from beside the better: times jump a little
 * where chunks come to a link in another order, so there are several places of least squares. */
static copse_status search(struct fit *f) {
  static const double beside[][N_COSTS] = {{0.4, 0}, {-0.4, 0}, {0.2, 0.1}, {-0.2, -0.1}};
  COPSE_DO(descend(f));
  if (!is_close(f)) COPSE_DO(start_again(f));
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
    struct fit other = *f;
    if (f->plan.dag.n_transfers > MOST_FITTED_AGAIN || is_close(f)) break;
    for (int c = 0; c < N_COSTS; c++) other.at[c] += f->fixed[c] ? 0 : beside[i][c];
    COPSE_DO(descend(&other));
    if (other.sum < f->sum) *f = other;
  }
  return COPSE_OK;
}

/* ---- what times tell ----------------------------------------------------------------------- */

/* Fixes a cost at its default where that does as well, and times hardly depend on it. */
static copse_status leave_out(struct fit *f, int cost, const each_size slope) {
  static const double defaults[N_COSTS] = {ALPHA_US, 1};
  struct fit without = *f;
  if (product(slope, slope, f->n) * FIT_BLUR * FIT_BLUR > 1) return COPSE_OK;
  without.fixed[cost] = true;
  without.at[cost] = log(defaults[cost]);
  COPSE_DO(search(&without));
  if (sqrt(without.sum / f->n) <= sqrt(f->sum / f->n) + FIT_LOSS) *f = without;
  return COPSE_OK;
}

/* Fits what the times tell; refuses where that is a sum of both costs alone. */
static copse_status fit_costs(struct fit *f) {
  each_size off, slopes[N_COSTS];
  double sum;
  f->at[HOP] = log(ALPHA_US);
  COPSE_DO(search(f));
  COPSE_DO(compare(f, f->at, off, &sum));
  COPSE_DO(find_slopes(f, off, slopes));
  for (int c = 0; c < N_COSTS; c++)
    if (!f->fixed[1 - c]) COPSE_DO(leave_out(f, c, slopes[c]));
  if (f->fixed[HOP] || f->fixed[LINKS]) return COPSE_OK;
  double a = product(slopes[HOP], slopes[HOP], f->n),
         b = product(slopes[LINKS], slopes[LINKS], f->n);
  double both = product(slopes[HOP], slopes[LINKS], f->n);
  double apart = a * b - both * both; /* a cost's variance is that of a time * b / apart */
  if (fmax(a, b) <= FIT_BLUR * FIT_BLUR * apart) return COPSE_OK;
  return copse_fail(f->err, COPSE_INVALID,
                    "times of %.15g to %.15g bytes do not tell what hops take from what links do: "
                    "measure smaller messages, or larger ones",
                    f->bytes[0], f->bytes[f->n - 1]);
}

static copse_status check_times(const double *bytes, const double *us, int n,
                                struct copse_err *err) {
  if (n < 2)
    return copse_fail(err, COPSE_INVALID,
                      "one size does not tell what hops take from what links do: measure several");
  if (n > COPSE_CALIBRATED_SIZES)
    return copse_fail(err, COPSE_INVALID, "more than %d sizes", COPSE_CALIBRATED_SIZES);
  for (int i = 0; i < n; i++) {
    if (!(us[i] > 0) || !isfinite(us[i]))
      return copse_fail(err, COPSE_INVALID, "%.15g bytes took no measurable time", bytes[i]);
    for (int j = 0; j < i; j++)
      if (us[i] < us[j] * LEAST_FALL || (i == n - 1 && j == 0 && us[i] <= us[j]))
        return copse_fail(err, COPSE_INVALID,
                          "%.15g bytes took %.4g us and %.15g bytes %.4g us: times that fall with "
                          "the size are not those of links; measure longer",
                          bytes[j], us[j], bytes[i], us[i]);
  }
  return COPSE_OK;
}

/* Rounds a cost to the digits that a profile gets: to the same bits as reading them gives. */
static copse_status round_cost(double value, struct copse_q *out, struct copse_err *err) {
  double unit = pow(10, floor(log10(value)) - PROFILE_DIGITS + 1);
  return copse_q_from_double(round(value / unit) * unit, out, err);
}

/* Predicts the plan anew, as with the costs' profile: of equally good routes scaled bandwidths may
 * make it another one. */
static copse_status predict_anew(struct fit *f, const char *label, const struct copse_plan *plan,
                                 double *us) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *scaled = NULL;
  struct copse_foreign what = {0};
  struct copse_sim_options sim = f->plan.sim;
  COPSE_DO(copse_topology_copy(&f->scaled, label, &scaled, f->err));
  copse_prediction_free(&f->plan);
  copse_status status = copse_predict_plan(label, scaled, plan, NULL, &f->plan, &what, f->err);
  free(what.demand);
  COPSE_DO(status);
  f->plan.sim = sim;
  return copse_predictions_time(scaled, &f->plan, 1, f->bytes, f->n, false, us, f->err);
}

static copse_status finish(struct fit *f, const char *label, const struct copse_plan *plan,
                           struct copse_calibration *out, double *simulated_us) {
  struct copse_q hop = {ALPHA_US, 1};
  out->has_hop = !f->fixed[HOP];
  out->has_scale = !f->fixed[LINKS];
  out->scale = COPSE_Q_ONE;
  if (out->has_hop) COPSE_DO(round_cost(exp(f->at[HOP]), &hop, f->err));
  if (out->has_scale) COPSE_DO(round_cost(exp(-f->at[LINKS]), &out->scale, f->err));
  out->hop_us = copse_q_to_double(hop);
  COPSE_DO(simulate(f, out->hop_us, copse_q_to_double(out->scale), simulated_us));
  COPSE_DO(predict_anew(f, label, plan, simulated_us));
  for (int i = 0; i < f->n; i++) {
    double off = fabs(simulated_us[i] / f->us[i] - 1);
    if (i > 0 && off <= out->off) continue;
    out->off = off;
    out->worst = i;
  }
  out->is_far = out->off > FIT_FAR;
  return COPSE_OK;
}

copse_status copse_calibrate(const char *label, const struct copse_topology *topology,
                             const struct copse_plan *plan, const double *bytes, const double *us,
                             int n, struct copse_calibration *out, double *simulated_us,
                             struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_foreign what = {0};
  struct fit f = {
      .nominal = topology, .scaled = *topology, .bytes = bytes, .us = us, .n = n, .err = err};
  *out = (struct copse_calibration){0};
  COPSE_DO(check_times(bytes, us, n, err));
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)topology->n_links, f.links, err));
  for (int i = 0; i < topology->n_links; i++) f.links[i] = topology->links[i];
  f.scaled.links = f.links;
  copse_status status = copse_predict_plan(label, topology, plan, NULL, &f.plan, &what, err);
  f.packets = f.plan.sim.alpha_us / ALPHA_US;
  if (status == COPSE_OK) status = fit_costs(&f);
  if (status == COPSE_OK) status = finish(&f, label, plan, out, simulated_us);
  copse_prediction_free(&f.plan);
  free(what.demand);
  return status;
}

void copse_calibration_add_profile(const struct copse_calibration *it, const char *source,
                                   struct copse_text *text) {
  copse_text_add(text, COPSE_JSON_HEAD("profile") ",\n \"source\": ");
  copse_text_add_json_string(text, source);
  if (it->has_scale)
    copse_text_add(text, ",\n \"links\": [{\"scale\": %.10g}]", copse_q_to_double(it->scale));
  if (it->has_hop) copse_text_add(text, ",\n \"costs\": {\"hop_us\": %.10g}", it->hop_us);
  copse_text_add(text, "}\n");
}
