/* The charts of predictions. */
#include <math.h>

#include "view/report.h"

#define WIDTH 620.0
#define HEIGHT 340.0
#define LEFT 62.0
#define RIGHT 16.0
#define TOP 20.0
#define BOTTOM 46.0

/* Okabe and Ito's colours, which people with colour blindness can tell apart. */
static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                      "#d55e00", "#56b4e9", "#6b7280", "#000000"};
#define N_COLOURS (sizeof colours / sizeof *colours)

struct chart {
  const struct copse_report *report;
  struct copse_text *text;
  bool logarithmic;
  double least, most; /* of the values */
};

static double x_of(int size) {
  return LEFT + size * (WIDTH - LEFT - RIGHT) / (COPSE_REPORT_SIZES - 1);
}

static double y_of(const struct chart *c, double value) {
  double part = c->logarithmic ? log(value / c->least) / log(c->most / c->least)
                               : (value - c->least) / (c->most - c->least);
  return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static double gbps(const struct copse_report *r, int algorithm, int size) {
  double us = r->us[algorithm][size];
  return us > 0 ? 1e-3 * (double)copse_report_size(size) / us : 0;
}

static double value_of(const struct chart *c, int algorithm, int size) {
  return c->logarithmic ? c->report->us[algorithm][size] : gbps(c->report, algorithm, size);
}

static void add_gridline(const struct chart *c, double value) {
  static const char *const units[] = {"", " us", " ms", " s"};
  double y = y_of(c, value);
  int unit = !c->logarithmic ? 0 : value < 999 ? 1 : value < 999e3 ? 2 : 3;
  copse_text_add(c->text,
                 "<path class=\"grid\" d=\"M%.1f,%.1f H%.1f\"/><text class=\"tick\" x=\"%.1f\" "
                 "y=\"%.1f\" text-anchor=\"end\">%.4g%s</text>\n",
                 LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4,
                 unit > 1 ? value / pow(1000, unit - 1) : value, units[unit]);
}

/* 1, 2 or 5 times a power of ten, at most eight steps. */
static double round_step(double range) {
  double step = pow(10, floor(log10(range / 8)));
  for (int i = 0; range / step > 8; i++) step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

static void add_axes(const struct chart *c, const char *title) {
  char name[16];
  if (c->logarithmic)
    for (double v = c->least; v <= c->most * 1.001; v *= 10) add_gridline(c, v);
  else
    for (double v = 0, step = round_step(c->most); v <= c->most; v += step) add_gridline(c, v);
  for (int i = 0; i < COPSE_REPORT_SIZES; i++)
    copse_text_add(c->text,
                   "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                   x_of(i), HEIGHT - BOTTOM + 18, copse_report_size_name(i, name));
  copse_text_add(c->text,
                 "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">message size "
                 "M</text><text class=\"axis\" x=\"%.1f\" y=\"13\">%s</text>\n",
                 (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, 8.0, title);
}

static void add_series(const struct chart *c, int algorithm) {
  const struct copse_report *r = c->report;
  const char *colour = colours[(size_t)algorithm % N_COLOURS];
  char name[16];
  copse_text_add(c->text,
                 "<g class=\"series\" data-name=\"%s\"><path fill=\"none\" stroke=\"%s\" "
                 "stroke-width=\"%s\" d=\"",
                 r->predictions[algorithm].name, colour, algorithm == 0 ? "3" : "1.8");
  for (int i = 0; i < COPSE_REPORT_SIZES; i++)
    copse_text_add(c->text, "%s%.1f,%.1f", i == 0 ? "M" : " L", x_of(i),
                   y_of(c, value_of(c, algorithm, i)));
  copse_text_add(c->text, "\"/>\n");
  for (int i = 0; i < COPSE_REPORT_SIZES; i++)
    copse_text_add(c->text,
                   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"><title>%s, %s: %.5g us, "
                   "%.5g GB/s</title></circle>",
                   x_of(i), y_of(c, value_of(c, algorithm, i)), algorithm == 0 ? "4" : "3", colour,
                   r->predictions[algorithm].name, copse_report_size_name(i, name),
                   r->us[algorithm][i], gbps(r, algorithm, i));
  copse_text_add(c->text, "</g>\n");
}

static void add_chart_legend(const struct chart *c) {
  const struct copse_report *r = c->report;
  double x = LEFT + 14, y = TOP + 40; /* below the bound's line */
  for (int a = 0; a < r->n_predictions; a++) {
    if (!copse_prediction_exists(&r->predictions[a])) continue;
    copse_text_add(c->text,
                   "<path d=\"M%.1f,%.1f h22\" stroke=\"%s\" stroke-width=\"%s\"/><text "
                   "class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                   x, y, colours[(size_t)a % N_COLOURS], a == 0 ? "3" : "1.8", x + 28, y + 4,
                   r->predictions[a].name);
    y += 17;
  }
  if (!c->logarithmic && r->schedule->bound.time_per_GB.num > 0)
    copse_text_add(c->text,
                   "<path class=\"bound\" d=\"M%.1f,%.1f h22\"/><text class=\"tick\" x=\"%.1f\" "
                   "y=\"%.1f\">bound</text>\n",
                   x, y, x + 28, y + 4);
}

static void add_chart(struct chart *c, const char *title) {
  const struct copse_report *r = c->report;
  copse_text_add(c->text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 %.0f "
                 "%.0f\" role=\"img\"><title>%s over message size</title>\n",
                 WIDTH, HEIGHT, title);
  add_axes(c, title);
  if (!c->logarithmic && r->schedule->bound.time_per_GB.num > 0)
    copse_text_add(c->text, "<path class=\"bound\" d=\"M%.1f,%.1f H%.1f\"/>\n", LEFT,
                   y_of(c, 1 / copse_q_to_double(r->schedule->bound.time_per_GB)), WIDTH - RIGHT);
  for (int a = r->n_predictions - 1; a >= 0; a--)
    if (copse_prediction_exists(&r->predictions[a])) add_series(c, a);
  add_chart_legend(c);
  copse_text_add(c->text, "</svg>\n");
}

void copse_report_bandwidth_chart(const struct copse_report *r, struct copse_text *text) {
  struct chart c = {.report = r, .text = text};
  for (int a = 0; a < r->n_predictions; a++)
    for (int i = 0; i < COPSE_REPORT_SIZES; i++) c.most = fmax(c.most, gbps(r, a, i));
  if (r->schedule->bound.time_per_GB.num > 0)
    c.most = fmax(c.most, 1 / copse_q_to_double(r->schedule->bound.time_per_GB));
  c.most = c.most > 0 ? 1.06 * c.most : 1;
  add_chart(&c, "algbw (GB/s)");
}

void copse_report_time_chart(const struct copse_report *r, struct copse_text *text) {
  struct chart c = {.report = r, .text = text, .logarithmic = true, .least = INFINITY, .most = 0};
  for (int a = 0; a < r->n_predictions; a++)
    for (int i = 0; i < COPSE_REPORT_SIZES; i++) {
      if (r->us[a][i] <= 0) continue;
      c.least = fmin(c.least, r->us[a][i]);
      c.most = fmax(c.most, r->us[a][i]);
    }
  if (c.most <= 0) return; /* a single rank: nothing moves */
  c.least = pow(10, floor(log10(c.least)));
  c.most = fmax(pow(10, ceil(log10(c.most))), 10 * c.least);
  add_chart(&c, "time");
}
