/*
 * The page of `copse report`, section by section:
 *
 *   header       name, cards: bandwidth, time, bound, trees, topology
 *   #topology    picture of the bandwidths
 *   #load        picture of the load and the cut; the cut's ranks
 *   #steps       picture to step through (report.js), the hops as a table
 *   #predictions two charts over message sizes, the same as a table
 *   #links       every link, the busiest first
 *   data         JSON that report.js reads
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "predict/predict.h"
#include "schedule/loads.h"
#include "topology/words.h"
#include "view/draw_schedule.h"
#include "view/report.h"

/* Adds a JSON string without '<', '>' and '&', which neither HTML nor XML then sees as markup. */
static void add_string(struct copse_text *text, const char *s) {
  struct copse_text json = {0};
  copse_text_add_json_string(&json, s);
  if (json.failed) text->failed = true;
  for (const char *p = json.data; p && *p; p++) {
    if (strchr("<>&", *p))
      copse_text_add(text, "\\u%04x", (unsigned char)*p);
    else
      copse_text_append(text, p, 1);
  }
  copse_text_free(&json);
}

/* Adds {"name": ..., "root": rank, "hops": [[src, dst, step, [links]], ...]}. */
static void add_part(const struct copse_report *r, int part, const struct copse_schedule_hops *hops,
                     struct copse_text *text) {
  const struct copse_schedule *s = r->schedule;
  if (s->collective == COPSE_ALLTOALL) {
    copse_text_add(text, "{\"name\":\"all that rank %d sends\",\"root\":%d", part, part);
  } else {
    const struct copse_schedule_tree *tree = &s->trees[part];
    bool reduce = tree->phase == COPSE_PHASE_REDUCE;
    copse_text_add(text, "{\"name\":\"tree %d: %s %s rank %d, %s\",\"root\":%d", part,
                   reduce ? "reduce" : "broadcast", reduce ? "to" : "from", tree->root,
                   COPSE_QUANTITY(tree->weight, "of M"), tree->root);
  }
  copse_text_add(text, ",\"hops\":[");
  for (size_t h = 0; h < hops->n; h++) {
    const struct copse_schedule_hop *hop = &hops->list[h];
    copse_text_add(text, "%s[%d,%d,%d,[", h > 0 ? "," : "", hop->src, hop->dst, hop->step);
    for (int i = 0; i + 1 < hop->n_path; i++)
      copse_text_add(text, "%s%d", i > 0 ? "," : "",
                     copse_topology_find_link(r->topology, hop->path[i], hop->path[i + 1]));
    copse_text_add(text, "]]");
  }
  copse_text_add(text, "]}");
}

static const char *size_name(int i, char text[16]) {
  static const char units[] = "KMG";
  snprintf(text, 16, "%d%c", 1 << (2 * i % 10), units[2 * i / 10]);
  return text;
}

/* Adds the data that the page's script steps through, as JSON that is safe inside <script>. */
static copse_status add_data(const struct copse_report *r, struct copse_text *text,
                             struct copse_err *err) {
  const struct copse_topology *t = r->topology;
  COPSE_AT_END(copse_schedule_hops_free) struct copse_schedule_hops hops = {0};
  copse_text_add(text, "{\"nodes\":[");
  for (int v = 0; v < t->n_nodes; v++) {
    if (v > 0) copse_text_add(text, ",");
    add_string(text, t->nodes[v].id);
  }
  copse_text_add(text, "],\"ranks\":[");
  for (int i = 0; i < t->n_ranks; i++) copse_text_add(text, "%s%d", i ? "," : "", t->rank_nodes[i]);
  copse_text_add(text, "],\"links\":[");
  for (int i = 0; i < t->n_links; i++)
    copse_text_add(text, "%s[%d,%d]", i ? "," : "", t->links[i].src, t->links[i].dst);
  copse_text_add(text, "],\"parts\":[");
  for (int part = 0; part < copse_schedule_parts(r->schedule); part++) {
    COPSE_DO(copse_schedule_hops_find(r->schedule, part, &hops, err));
    copse_text_add(text, part > 0 ? ",\n" : "\n");
    add_part(r, part, &hops, text);
  }
  copse_text_add(text, "]}");
  return copse_text_status(text, err);
}

/* ---- charts: bandwidth, linear; time, logarithmic ---- */

/* Of a chart, in pixels: its size and the margins around the plot. */
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

/* Returns 1, 2 or 5 times a power of ten, so that there are at most eight steps. */
static double round_step(double range) {
  double step = pow(10, floor(log10(range / 8)));
  for (int i = 0; range / step > 8; i++) step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

static void add_axes(const struct chart *c, const char *title) {
  if (c->logarithmic)
    for (double v = c->least; v <= c->most * 1.001; v *= 10) add_gridline(c, v);
  else
    for (double v = 0, step = round_step(c->most); v <= c->most; v += step) add_gridline(c, v);
  for (int i = 0; i < COPSE_REPORT_SIZES; i++)
    copse_text_add(c->text,
                   "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                   x_of(i), HEIGHT - BOTTOM + 18, size_name(i, (char[16]){0}));
  copse_text_add(c->text,
                 "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">message size "
                 "M</text><text class=\"axis\" x=\"%.1f\" y=\"13\">%s</text>\n",
                 (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, 8.0, title);
}

static void add_series(const struct chart *c, int algorithm) {
  const struct copse_report *r = c->report;
  const char *colour = colours[(size_t)algorithm % N_COLOURS];
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
                   r->predictions[algorithm].name, size_name(i, (char[16]){0}), r->us[algorithm][i],
                   gbps(r, algorithm, i));
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

static void add_bandwidth_chart(const struct copse_report *r, struct copse_text *text) {
  struct chart c = {.report = r, .text = text};
  for (int a = 0; a < r->n_predictions; a++)
    for (int i = 0; i < COPSE_REPORT_SIZES; i++) c.most = fmax(c.most, gbps(r, a, i));
  if (r->schedule->bound.time_per_GB.num > 0)
    c.most = fmax(c.most, 1 / copse_q_to_double(r->schedule->bound.time_per_GB));
  c.most = c.most > 0 ? 1.06 * c.most : 1;
  add_chart(&c, "algbw (GB/s)");
}

/* Adds charts over message sizes as <svg>: bandwidth, linear; time, logarithmic. */
static void add_time_chart(const struct copse_report *r, struct copse_text *text) {
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

/* Rows of the table of links; the rest is said to be left out. */
#define MAX_LINK_ROWS 2000

/* Adds "3/1040 s/GB" with the decimal in small print beside it. */
static void add_exact(struct copse_text *text, struct copse_q q, const char *unit) {
  copse_text_add(text, "<span class=\"exact\">%s</span> %s", COPSE_Q_STRING(q), unit);
  if (q.den != 1) copse_text_add(text, " <small>= %.6g</small>", copse_q_to_double(q));
}

/* ---- the head ------------------------------------------------------------------------------ */

static void add_card(struct copse_text *text, const char *title) {
  copse_text_add(text, "<div class=\"card\"><h3>%s</h3><p>", title);
}

static const char *standing(const struct copse_schedule *s) {
  if (!copse_q_eq(s->time_per_GB, s->bound.time_per_GB)) return NULL;
  return s->bound.kind == COPSE_BOUND_PHASES    ? "both phases optimal: no reduce_scatter and "
                                                  "allgather in turn, equal shares, are faster"
         : s->bound.kind == COPSE_BOUND_FORESTS ? "optimal among forests with common shares"
                                                : "optimal: equal to the bound";
}

static double bus_factor(const struct copse_report *r) {
  return copse_collective_bus_factor(r->schedule->collective, r->topology->n_ranks);
}

static void add_cards(struct copse_text *text, const struct copse_report *r) {
  const struct copse_schedule *s = r->schedule;
  const char *good = standing(s);
  copse_text_add(text, "<div class=\"cards\">\n");
  add_card(text, "Bandwidth");
  if (s->time_per_GB.num > 0)
    copse_text_add(text,
                   "<b>%.6g</b> GB/s <small>algbw, M / time</small><br/><b>%.6g</b> GB/s "
                   "<small>busbw</small></p></div>\n",
                   copse_schedule_algbw(s), copse_schedule_algbw(s) * bus_factor(r));
  else
    copse_text_add(text, "nothing to send</p></div>\n");
  add_card(text, "Time");
  add_exact(text, s->time_per_GB, "s/GB");
  copse_text_add(text, "</p></div>\n");
  add_card(text, "Lower bound");
  add_exact(text, s->bound.time_per_GB, "s/GB");
  if (good)
    copse_text_add(text, "<br/><span class=\"good\">%s</span></p></div>\n", good);
  else
    copse_text_add(
        text, "<br/><span class=\"gap\">%.3g %% above it</span></p></div>\n",
        100 * (copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1));
  add_card(text, s->collective == COPSE_ALLTOALL ? "Flows" : "Trees");
  if (s->collective == COPSE_ALLTOALL)
    copse_text_add(text, "<b>%d</b> flow%s", s->n_flows, COPSE_S(s->n_flows));
  else
    copse_text_add(text, "<b>%d</b> tree%s, k = %" PRId64, s->n_trees, COPSE_S(s->n_trees), s->k);
  const int hops = copse_schedule_height(s);
  copse_text_add(text, "<br/><small>at most %d hop%s from rank to rank", hops, COPSE_S(hops));
  if (s->n_trees > 0) copse_text_add(text, ", %.3g on average", copse_schedule_mean_height(s));
  copse_text_add(text, "</small></p></div>\n");
  add_card(text, "Topology");
  const struct copse_topology *t = r->topology;
  copse_text_add(text, "<b>%d</b> rank%s<br/><small>%d node%s, %d link%s</small></p></div>\n",
                 t->n_ranks, COPSE_S(t->n_ranks), t->n_nodes, COPSE_S(t->n_nodes), t->n_links,
                 COPSE_S(t->n_links));
  copse_text_add(text, "</div>\n");
}

void copse_page_begin(const char *title, const char *nav, struct copse_text *text) {
  copse_text_add(text,
                 "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n"
                 "<head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
                 "content=\"width=device-width, initial-scale=1\"/><meta name=\"color-scheme\" "
                 "content=\"light dark\"/>" COPSE_PAGE_MARK "\n<title>");
  copse_text_add_xml(text, title);
  copse_text_add(text, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<header><h1>",
                 copse_report_css, copse_draw_css);
  copse_text_add_xml(text, title);
  copse_text_add(text, "</h1>%s</header>\n<main>\n", nav);
}

void copse_page_end(const char *made_by, const char *more, struct copse_text *text) {
  copse_text_add(text, "</main>\n<footer>copse %s%s", copse_version(), more);
  if (made_by) {
    copse_text_add(text, "<br/><code>");
    copse_text_add_xml(text, made_by);
    copse_text_add(text, "</code>");
  }
  copse_text_add(text, "</footer>\n");
}

static copse_status begin_page(struct copse_text *text, const struct copse_report *r,
                               struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text title = {0}, nav = {0};
  copse_text_add(&title, "%s of %s", copse_collective_name(r->schedule->collective),
                 r->topology->name);
  copse_text_add(&nav,
                 "\n<nav><a href=\"#topology\">topology</a> <a href=\"#load\">load and "
                 "cut</a> <a href=\"#steps\">%s</a> <a href=\"#predictions\">predictions</a> "
                 "<a href=\"#links\">all links</a></nav>",
                 r->schedule->collective == COPSE_ALLTOALL ? "flows" : "trees");
  COPSE_DO(copse_text_status(&title, err));
  COPSE_DO(copse_text_status(&nav, err));
  copse_page_begin(title.data, nav.data, text);
  add_cards(text, r);
  return COPSE_OK;
}

static void begin_section(struct copse_text *text, const char *id, const char *title,
                          const char *about) {
  copse_text_add(text, "<section id=\"%s\"><h2>%s</h2>\n<p>%s</p>\n", id, title, about);
}

/* ---- pictures ------------------------------------------------------------------------------ */

static void begin_picture(struct copse_text *text) {
  copse_text_add(text,
                 "<div class=\"picture\"><button type=\"button\" class=\"zoom\">actual "
                 "size</button>\n");
}

static copse_status add_topology(struct copse_text *text, const struct copse_report *r,
                                 struct copse_err *err) {
  begin_section(text, "topology", "Topology",
                "Hosts are framed. Colour and width of a link are its bandwidth in each direction; "
                "point at a link or node for its full name and exact numbers.");
  begin_picture(text);
  COPSE_DO(copse_topology_draw(r->topology, r->arrangement, true, text, err));
  copse_text_add(text, "</div></section>\n");
  return COPSE_OK;
}

static const char *load_about(const struct copse_schedule *s) {
  return s->bound.kind == COPSE_BOUND_LENGTHS
             ? "Each direction of a link by how long it is busy: red links are busy all the time "
               "and decide the speed. The pink ones count most in the certificate of the bound: no "
               "routing is faster than (sum of demand times distance) over (sum of bandwidth times "
               "length)."
             : "Each direction of a link by how long it is busy: red links are busy all the time "
               "and decide the speed. The dashed nodes are one side of the cut that proves it: "
               "everything that they have to hand on, or must get, passes the pink links.";
}

/* Adds the cut's smaller side, and what crosses it. */
static copse_status add_cut(struct copse_text *text, const struct copse_report *r, const int *cut,
                            int n_cut, bool reduces, const char *of, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  if (n_cut == 0) return COPSE_OK;
  const char *words = copse_cut_words(r->topology, cut, n_cut, reduces, &arena);
  if (!words) return copse_fail_nomem(err);
  copse_text_add(text, "<p class=\"cut\"><b>Bottleneck%s</b> ", of);
  copse_text_add_xml(text, words);
  copse_text_add(text, "</p>\n");
  return COPSE_OK;
}

/* Adds the guesses on which the bound rests. */
static copse_status add_guessed(struct copse_text *text, const struct copse_report *r,
                                struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_AT_END(copse_text_free) struct copse_text lines = {0};
  struct copse_guessed guessed;
  COPSE_DO(copse_guessed_find(r->topology, r->schedule, &arena, &guessed, err));
  if (guessed.n == 0) return COPSE_OK;
  copse_guessed_text(r->topology, &guessed, "The bound rests on a guess: ", &lines);
  COPSE_DO(copse_text_status(&lines, err));
  copse_text_add(text, "<p class=\"guess\">");
  copse_text_add_xml(text, lines.data);
  copse_text_add(text, "</p>\n");
  return COPSE_OK;
}

static copse_status add_load(struct copse_text *text, const struct copse_report *r,
                             struct copse_err *err) {
  const struct copse_bound *bound = &r->schedule->bound;
  begin_section(text, "load", "Load and cut", load_about(r->schedule));
  begin_picture(text);
  COPSE_DO(copse_schedule_draw_load(r->schedule, r->topology, r->arrangement, true, text, err));
  copse_text_add(text, "</div>\n");
  bool two = bound->kind == COPSE_BOUND_PHASES;
  bool reduces = !two && r->schedule->collective != COPSE_ALLREDUCE &&
                 copse_collective_reduces(r->schedule->collective);
  COPSE_DO(
      add_cut(text, r, bound->cut, bound->n_cut, reduces, two ? " of the broadcast" : "", err));
  COPSE_DO(
      add_cut(text, r, bound->reduce_cut, bound->n_reduce_cut, true, " of the reduction", err));
  COPSE_DO(add_guessed(text, r, err));
  copse_text_add(text, "</section>\n");
  return COPSE_OK;
}

static copse_status add_steps(struct copse_text *text, const struct copse_report *r,
                              struct copse_err *err) {
  bool alltoall = r->schedule->collective == COPSE_ALLTOALL;
  if (copse_schedule_parts(r->schedule) == 0 || r->topology->n_ranks < 2) return COPSE_OK;
  begin_section(text, "steps", alltoall ? "Flows, rank by rank" : "Trees, step by step",
                "Choose one and go through its steps (arrow keys work too). A step waits for the "
                "one before; chunks follow each other, so all steps run at the same time on a long "
                "message.");
  copse_text_add(text,
                 "<div class=\"controls\"><button type=\"button\" id=\"previous\">&#9664;</button>"
                 "<select id=\"part\"></select><button type=\"button\" id=\"next\">&#9654;</button>"
                 "<label>up to step <input type=\"range\" id=\"step\" min=\"1\" max=\"1\" "
                 "value=\"1\"/> <output id=\"shown\"></output></label>"
                 "<button type=\"button\" id=\"play\">play</button></div>\n"
                 "<div id=\"stepper\">");
  begin_picture(text);
  COPSE_DO(copse_schedule_draw_part(r->schedule, r->topology, r->arrangement, -1, true, text, err));
  copse_text_add(text,
                 "</div></div>\n<noscript><p>Only the first is shown: stepping needs "
                 "JavaScript.</p></noscript>\n<details><summary>its hops</summary><table "
                 "id=\"hops\"><thead><tr><th>step</th><th>from</th><th>to</th><th>over"
                 "</th></tr></thead><tbody></tbody></table></details></section>\n");
  return COPSE_OK;
}

/* ---- predictions --------------------------------------------------------------------------- */

static void add_prediction_rows(struct copse_text *text, const struct copse_report *r) {
  char gap[COPSE_GAP_TEXT];
  for (int i = 0; i < COPSE_REPORT_SIZES; i++) {
    double best = 0;
    copse_text_add(text, "<tr><th>%s</th>", size_name(i, (char[16]){0}));
    for (int a = 0; a < r->n_predictions; a++) {
      double us = r->us[a][i];
      if (!copse_prediction_exists(&r->predictions[a])) continue;
      if (a > 0 && (best == 0 || us < best)) best = us;
      double algbw = gbps(r, a, i);
      copse_text_add(text, "<td>%.5g</td><td>%.5g</td><td>%.5g</td>", us, algbw,
                     algbw * bus_factor(r));
    }
    if (best > 0)
      copse_text_add(text, "<td>%.3f</td>", r->us[0][i] / best);
    else
      copse_text_add(text, "<td>-</td>");
    copse_text_add(text, "<td>%s</td></tr>\n", copse_gap_text(r->us[0][i], r->bound_us[i], gap));
  }
}

static void add_prediction_table(struct copse_text *text, const struct copse_report *r) {
  copse_text_add(text, "<table class=\"numbers\"><thead><tr><th>size</th>");
  for (int a = 0; a < r->n_predictions; a++)
    if (copse_prediction_exists(&r->predictions[a]))
      copse_text_add(text, "<th colspan=\"3\">%s</th>", r->predictions[a].name);
  copse_text_add(text, "<th>copse to</th><th>above</th></tr>\n<tr><th>(B)</th>");
  for (int a = 0; a < r->n_predictions; a++)
    if (copse_prediction_exists(&r->predictions[a]))
      copse_text_add(text, "<th>us</th><th>algbw</th><th>busbw</th>");
  copse_text_add(text, "<th>best other</th><th>the bound</th></tr></thead><tbody>\n");
  add_prediction_rows(text, r);
  copse_text_add(text, "</tbody></table>\n");
  if (r->schedule->collective == COPSE_ALLREDUCE)
    copse_text_add(text,
                   "<p>The bound of this table is for an allreduce of any kind at that size. "
                   "Whether one is as fast isn't known.</p>\n");
  if (r->on_routes.num == 0) return;
  int last = COPSE_REPORT_SIZES - 1;
  double us = 1e-3 * copse_q_to_double(r->on_routes) * (double)copse_report_size(last);
  copse_text_add(text,
                 "<p>Trees on the fabric's own routes, which plans' messages take, need at least ");
  add_exact(text, r->on_routes, "s/GB");
  copse_text_add(text, ": at %s this is %s above that.</p>\n", size_name(last, (char[16]){0}),
                 copse_gap_text(r->us[0][last], us, (char[COPSE_GAP_TEXT]){0}));
}

static void add_predictions(struct copse_text *text, const struct copse_report *r) {
  const struct copse_sim_options *sim = &r->predictions[0].sim;
  char about[400], detour[COPSE_DETOUR_TEXT];
  snprintf(
      about, sizeof about,
      "A model, not a measurement: each link costs its latency and bytes / bandwidth with "
      "a queue, each hop from rank to rank %g us, of which %g us for each message at its sender. "
      "Schedules are predicted as the plans that they lower to. Beside copse what today's "
      "libraries do, on the same topology.",
      sim->alpha_us, sim->message_us);
  begin_section(text, "predictions", "Predicted bandwidth and time", about);
  copse_text_add(text, "<div class=\"charts\">\n");
  add_bandwidth_chart(r, text);
  add_time_chart(r, text);
  copse_text_add(text, "</div>\n<ul class=\"asymptotes\">\n");
  for (int a = 0; a < r->n_predictions; a++) {
    const struct copse_prediction *p = &r->predictions[a];
    copse_text_add(text, "<li><b>%s</b>: ", p->name);
    if (copse_prediction_exists(p)) {
      add_exact(text, p->time_per_GB, "s/GB");
      if (p->time_per_GB.num > 0)
        copse_text_add(text, ", %.6g GB/s at most", 1 / copse_q_to_double(p->time_per_GB));
      if (p->instead[0]) copse_text_add(text, "; predicted without a plan: ");
      copse_text_add_xml(text, p->instead);
      if (p->note[0]) copse_text_add(text, "; ");
      copse_text_add_xml(text, p->note);
      if (copse_prediction_detour(p, r->topology, detour)) {
        copse_text_add(text, "; ");
        copse_text_add_xml(text, detour);
      }
    } else {
      copse_text_add(text, "not applicable: ");
      copse_text_add_xml(text, p->why.text);
    }
    copse_text_add(text, "</li>\n");
  }
  copse_text_add(text, "</ul>\n");
  add_prediction_table(text, r);
  copse_text_add(text, "</section>\n");
}

/* ---- all links ----------------------------------------------------------------------------- */

struct link_row {
  int link;
  struct copse_q load, seconds;
};

COPSE_ORDER(busiest_first, struct link_row, copse_q_cmp(b->seconds, a->seconds) ?: COPSE_UP(link))

static copse_status find_rows(const struct copse_report *r, struct copse_q *loads,
                              struct link_row *rows, struct copse_err *err) {
  COPSE_DO(copse_schedule_loads(r->topology, r->schedule, loads, err));
  for (int i = 0; i < r->topology->n_links; i++) {
    rows[i] = (struct link_row){.link = i, .load = loads[i]};
    COPSE_DO(copse_q_div(loads[i], r->topology->links[i].bandwidth, &rows[i].seconds, err));
  }
  COPSE_SORT(rows, r->topology->n_links, busiest_first);
  return COPSE_OK;
}

static void add_link_row(struct copse_text *text, const struct copse_report *r,
                         const struct link_row *row) {
  const struct copse_link *l = &r->topology->links[row->link];
  copse_text_add(text, "<tr><td>");
  copse_text_add_xml(text, r->topology->nodes[l->src].id);
  copse_text_add(text, " &#8594; ");
  copse_text_add_xml(text, r->topology->nodes[l->dst].id);
  copse_text_add(text, "</td><td>");
  add_exact(text, l->bandwidth, "");
  copse_text_add(text, "</td><td>");
  add_exact(text, row->load, "");
  copse_text_add(text, "</td><td>");
  add_exact(text, row->seconds, "");
  copse_text_add(text, "</td><td>%.4g %%</td></tr>\n",
                 r->schedule->time_per_GB.num > 0 ? 100 * copse_q_to_double(row->seconds) /
                                                        copse_q_to_double(r->schedule->time_per_GB)
                                                  : 0.0);
}

static copse_status add_links(struct copse_text *text, const struct copse_report *r,
                              struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  size_t n = (size_t)r->topology->n_links;
  struct copse_q *loads;
  struct link_row *rows;
  COPSE_DO(COPSE_ARRAY(&arena, n, loads, err));
  COPSE_DO(COPSE_ARRAY(&arena, n, rows, err));
  COPSE_DO(find_rows(r, loads, rows, err));
  begin_section(
      text, "links", "All links, the busiest first",
      "Load is the part of M that crosses the link; load over bandwidth is how long it is "
      "busy for each GB of M.");
  copse_text_add(text,
                 "<details><summary>%d links</summary><table class=\"numbers\"><thead><tr>"
                 "<th>link</th><th>GB/s</th><th>load (of M)</th><th>s/GB</th><th>of the time"
                 "</th></tr></thead><tbody>\n",
                 r->topology->n_links);
  for (int i = 0; i < r->topology->n_links && i < MAX_LINK_ROWS; i++)
    add_link_row(text, r, &rows[i]);
  copse_text_add(text, "</tbody></table>\n");
  if (r->topology->n_links > MAX_LINK_ROWS)
    copse_text_add(text, "<p>and %d more</p>\n", r->topology->n_links - MAX_LINK_ROWS);
  copse_text_add(text, "</details></section>\n");
  return COPSE_OK;
}

/* ---- all together -------------------------------------------------------------------------- */

copse_status copse_report_page(const struct copse_report *r, struct copse_text *text,
                               struct copse_err *err) {
  char sha256[COPSE_SHA256_HEX], topology[COPSE_SHA256_HEX + 32];
  COPSE_DO(copse_topology_sha256(r->topology, sha256, err));
  snprintf(topology, sizeof topology, ", topology sha256 %.16s", sha256);
  COPSE_DO(begin_page(text, r, err));
  COPSE_DO(add_topology(text, r, err));
  COPSE_DO(add_load(text, r, err));
  COPSE_DO(add_steps(text, r, err));
  add_predictions(text, r);
  COPSE_DO(add_links(text, r, err));
  copse_page_end(r->made_by, topology, text);
  copse_text_add(text, "<script type=\"application/json\" id=\"data\">");
  COPSE_DO(add_data(r, text, err));
  copse_text_add(text, "</script>\n<script>//<![CDATA[\n%s//]]></script>\n</body>\n</html>\n",
                 copse_report_js);
  return copse_text_status(text, err);
}

/* ---- many ---------------------------------------------------------------------------------- */

static void add_index_row(const struct copse_report_row *row, struct copse_text *text) {
  const char *failure = row->failure ? row->failure : row->page ? NULL : "not made";
  copse_text_add(text, "<tr><td>");
  if (!failure) {
    copse_text_add(text, "<a href=\"");
    copse_text_add_xml(text, row->page);
    copse_text_add(text, "\">");
  }
  copse_text_add_xml(text, row->name);
  copse_text_add(text, failure ? "</td><td colspan=\"5\" class=\"failed\">" : "</a></td>");
  if (failure) {
    copse_text_add_xml(text, failure);
    copse_text_add(text, "</td></tr>\n");
    return;
  }
  copse_text_add(text, "<td>%d</td><td>%.6g</td><td>%.6g</td><td><span class=\"%s\">", row->n_ranks,
                 row->algbw, row->busbw, row->above > 0 ? "gap" : "good");
  if (row->above > 0)
    copse_text_add(text, "%.3g %% above", 100 * row->above);
  else
    copse_text_add(text, "reached");
  copse_text_add(text, "</span></td><td class=\"words\">");
  copse_text_add_xml(text, row->bottleneck ? row->bottleneck : "");
  copse_text_add(text, "</td></tr>\n");
}

void copse_report_index(const char *title, const struct copse_report_row *rows, int n,
                        const char *made_by, struct copse_text *text) {
  int failed = 0;
  for (int i = 0; i < n; i++) failed += rows[i].failure || !rows[i].page;
  copse_page_begin(title, "", text);
  copse_text_add(text, "<section><h2>%d topologies", n);
  if (failed > 0) copse_text_add(text, ", <span class=\"gap\">%d failed</span>", failed);
  copse_text_add(text,
                 "</h2>\n<table class=\"numbers\"><thead><tr><th>topology</th><th>ranks</th>"
                 "<th>algbw GB/s</th><th>busbw GB/s</th><th>bound</th>"
                 "<th class=\"words\">bottleneck</th></tr>"
                 "</thead><tbody>\n");
  for (int i = 0; i < n; i++) add_index_row(&rows[i], text);
  copse_text_add(text, "</tbody></table></section>\n");
  copse_page_end(made_by, "", text);
  copse_text_add(text, "</body>\n</html>\n");
}
