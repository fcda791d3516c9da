/* Pictures as SVG: what a marked arrangement looks like (boxes, curves, legend, colours), and the
 * picture of a topology by itself, its bandwidths. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "view/draw.h"

#define HEADER 58.0
#define LEGEND_ROW 22.0
#define CHARACTER_WIDTH 6.9 /* of the legend's font */
#define LEGEND_SAMPLE 44.0
#define DENSE 300       /* links; beyond, lines are thinner */
#define LARGE_WIDTH 9.0 /* of a character of a box's label in large letters */
#define LEGIBLE                                                                          \
  1300.0          /* pixels; a wider picture will be looked at smaller, so its title and \
                     legend are larger */
#define APART 2.3 /* how far each direction of a link is from the middle */

const char *copse_draw_quantity(struct copse_q q, const char *unit,
                                char text[COPSE_DRAW_QUANTITY]) {
  const char *exact = COPSE_Q_STRING(q);
  if (q.den == 1)
    snprintf(text, COPSE_DRAW_QUANTITY, "%s %s", exact, unit);
  else
    snprintf(text, COPSE_DRAW_QUANTITY, "%s %s (%.6g)", exact, unit, copse_q_to_double(q));
  return text;
}

/* ---- what has a place --------------------------------------------------------------------------
 */

/* Returns a node's place in the arrangement, which may be of the healthy topology. */
static int place_of_node(const struct copse_drawing *d, int v) {
  const struct copse_topology *healthy = d->arrangement->topology;
  return healthy == d->topology ? v : copse_topology_find(healthy, d->topology->nodes[v].id);
}

static const struct copse_arrangement_curve *curve_of(const struct copse_drawing *d, int i) {
  const struct copse_topology *healthy = d->arrangement->topology;
  const struct copse_link *l = &d->topology->links[i];
  if (healthy == d->topology) return &d->arrangement->curves[i];
  return &d->arrangement->curves[copse_topology_find_link(healthy, place_of_node(d, l->src),
                                                          place_of_node(d, l->dst))];
}

/* ---- links --------------------------------------------------------------------------------- */

static const char *style_name(int style, char name[16]) {
  if (style >= COPSE_LINK_HOP)
    snprintf(name, 16, "h%d", style - COPSE_LINK_HOP);
  else if (style >= COPSE_LINK_LOAD)
    snprintf(name, 16, "u%d", style - COPSE_LINK_LOAD);
  else if (style >= COPSE_LINK_BAND)
    snprintf(name, 16, "b%d", style - COPSE_LINK_BAND);
  else
    snprintf(name, 16, "faint");
  return name;
}

/* Moves p sideways, to the right of the way from `from` to `to`. */
static struct copse_point beside(struct copse_point p, struct copse_point from,
                                 struct copse_point to, double distance) {
  double dx = to.x - from.x, dy = to.y - from.y, length = hypot(dx, dy);
  if (length < 1e-9) return p;
  return (struct copse_point){p.x - distance * dy / length, p.y + distance * dx / length};
}

static struct copse_point point_of(const struct copse_arrangement_curve *c, int i,
                                   double distance) {
  int before = i > 0 ? i - 1 : 0, after = i + 1 < c->n_points ? i + 1 : i;
  return beside(c->points[i], c->points[before], c->points[after], distance);
}

static void add_curve(struct copse_text *text, const struct copse_arrangement_curve *c,
                      double distance) {
  for (int i = 0; i < c->n_points; i++) {
    struct copse_point p = point_of(c, i, distance);
    copse_text_add(text, "%s%.1f,%.1f", i == 0 ? "M" : i == 1 ? " C" : " ", p.x, p.y);
  }
}

static void add_head(struct copse_text *text, const struct copse_arrangement_curve *c,
                     double distance) {
  int n = c->n_points;
  struct copse_point tip = point_of(c, n - 1, distance), before = c->points[n - 2];
  double dx = c->points[n - 1].x - before.x, dy = c->points[n - 1].y - before.y;
  double length = hypot(dx, dy);
  if (length < 1e-9) return;
  dx *= 7 / length;
  dy *= 7 / length;
  copse_text_add(text, "<path class=\"head\" d=\"M%.1f,%.1f L%.1f,%.1f L%.1f,%.1f Z\"/>", tip.x,
                 tip.y, tip.x - dx - 0.42 * dy, tip.y - dy + 0.42 * dx, tip.x - dx + 0.42 * dy,
                 tip.y - dy - 0.42 * dx);
}

static void add_link_title(struct copse_text *text, const struct copse_drawing *d, int i,
                           const char *arrow) {
  const struct copse_link *l = &d->topology->links[i];
  copse_text_add_xml(text, d->topology->nodes[l->src].id);
  copse_text_add(text, " %s ", arrow);
  copse_text_add_xml(text, d->topology->nodes[l->dst].id);
  copse_text_add(text, ": %s", COPSE_QUANTITY(l->bandwidth, "GB/s"));
  if (l->latency.num > 0) copse_text_add(text, ", %s", COPSE_QUANTITY(l->latency, "us"));
  if (d->links[i].note) {
    copse_text_add(text, "\n");
    copse_text_add_xml(text, d->links[i].note);
  }
}

static bool alike(const struct copse_drawing *d, int a, int b) {
  const struct copse_link *x = &d->topology->links[a], *y = &d->topology->links[b];
  return d->links[a].style == d->links[b].style && copse_q_eq(x->bandwidth, y->bandwidth) &&
         copse_q_eq(x->latency, y->latency);
}

/* Returns the link of the other direction where one line is to stand for both; else -1. */
static int partner(const struct copse_drawing *d, int i) {
  const struct copse_link *l = &d->topology->links[i];
  int reverse = d->directed ? -1 : copse_topology_find_link(d->topology, l->dst, l->src);
  return reverse >= 0 && alike(d, i, reverse) ? reverse : -1;
}

static void add_link(struct copse_text *text, const struct copse_drawing *d, int i) {
  const struct copse_arrangement_curve *curve = curve_of(d, i);
  const struct copse_link *l = &d->topology->links[i];
  int other = partner(d, i);
  bool two_ways = copse_topology_find_link(d->topology, l->dst, l->src) >= 0;
  double distance = other < 0 && two_ways ? APART : 0;
  if (other >= 0 && other < i) return;
  copse_text_add(text, "<g class=\"%s\" data-links=\"%d",
                 style_name(d->links[i].style, (char[16]){0}), i);
  if (other >= 0) copse_text_add(text, " %d", other);
  copse_text_add(text, "\"><title>");
  add_link_title(text, d, i, other >= 0 ? "\xe2\x87\x84" : "\xe2\x86\x92");
  copse_text_add(text, "</title><path class=\"line\" d=\"");
  add_curve(text, curve, distance);
  copse_text_add(text, "\"/>");
  if (other < 0) add_head(text, curve, distance);
  copse_text_add(text, "</g>\n");
}

static void add_links(struct copse_text *text, const struct copse_drawing *d) {
  int n = d->topology->n_links;
  for (int i = 0; i < n; i++) {
    if (!d->links[i].glow) continue;
    copse_text_add(text, "<path class=\"glow\" d=\"");
    add_curve(text, curve_of(d, i), d->directed ? APART : 0);
    copse_text_add(text, "\"/>\n");
  }
  for (int style = 0; style < COPSE_LINK_STYLES; style++) {
    /* bands: the slowest first; later loads and hops over earlier ones */
    bool band = style >= COPSE_LINK_BAND && style < COPSE_LINK_BAND + COPSE_LINK_BANDS;
    int now = band ? 2 * COPSE_LINK_BAND + COPSE_LINK_BANDS - 1 - style : style;
    for (int i = 0; i < n; i++)
      if (d->links[i].style == now) add_link(text, d, i);
  }
}

/* ---- nodes --------------------------------------------------------------------------------- */

static const char *const types[] = {"gpu", "nvswitch", "switch", "nic", "pcie", "cpu", "net"};
static const char *const type_texts[] = {"GPU (a rank)", "NVSwitch", "network switch", "NIC",
                                         "PCIe",         "CPU",      "network port"};
enum { N_TYPES = sizeof types / sizeof *types };

static int type_of(const struct copse_node *node) {
  for (int i = 0; i < N_TYPES; i++)
    if (strcmp(types[i], node->type) == 0) return i;
  return -1;
}

static bool fits_large(const char *label, double width) {
  return (double)copse_text_characters(label) * LARGE_WIDTH + 8 <= width;
}

static void add_text(struct copse_text *text, const char *css, int digits, double x, double y,
                     const char *what) {
  copse_text_add(text, "<text class=\"%s\" x=\"%.*f\" y=\"%.*f\">", css, digits, x, digits, y);
  copse_text_add_xml(text, what);
  copse_text_add(text, "</text>");
}

static void add_box(struct copse_text *text, const char *css, double x, double y, double width,
                    double height, double round) {
  copse_text_add(text,
                 "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                 "rx=\"%.1f\"/>",
                 css, x - width / 2, y - height / 2, width, height, round);
}

static void add_node(struct copse_text *text, const struct copse_drawing *d, int v) {
  const struct copse_node *node = &d->topology->nodes[v];
  int place = place_of_node(d, v);
  const struct copse_arrangement_box *b = &d->arrangement->nodes[place];
  const char *label = d->arrangement->labels[place];
  int type = type_of(node);
  bool rank = node->rank >= 0, pill = strstr(node->type, "switch") != NULL;
  bool clever = node->multicast || node->aggregation;
  copse_text_add(text, "<g class=\"%s%s%s\" data-node=\"%d\"><title>",
                 type >= 0 ? types[type] : "relay", clever ? " clever" : "",
                 d->nodes && d->nodes[v].solid ? " solid" : "", v);
  copse_text_add_xml(text, node->id);
  copse_text_add(text, " (");
  copse_text_add_xml(text, node->type);
  if (rank) copse_text_add(text, ", rank %d", node->rank);
  copse_text_add(text, "%s%s)</title>", node->multicast ? ", multicast" : "",
                 node->aggregation ? ", aggregation" : "");
  if (d->nodes && d->nodes[v].ring)
    add_box(text, "ring", b->x, b->y, b->width + 8, b->height + 8, pill ? b->height / 2 + 4 : 8);
  add_box(text, "box", b->x, b->y, b->width, b->height, pill ? b->height / 2 : rank ? 6 : 2);
  add_text(text, fits_large(label, b->width) ? "label big" : "label", 1, b->x,
           b->y + (rank ? -1 : 4.5), label);
  if (rank)
    copse_text_add(text, "<text class=\"rank\" x=\"%.1f\" y=\"%.1f\">rank %d</text>", b->x,
                   b->y + 12, node->rank);
  copse_text_add(text, "</g>\n");
}

/* Adds numbers on links, over all of them. */
static void add_link_labels(struct copse_text *text, const struct copse_drawing *d) {
  for (int i = 0; i < d->topology->n_links; i++) {
    const struct copse_arrangement_curve *c = curve_of(d, i);
    if (!d->links[i].label || c->n_points < 4) continue;
    struct copse_point a = c->points[c->n_points / 2 - 1], b = c->points[c->n_points / 2];
    add_text(text, "number", 1, (a.x + b.x) / 2, (a.y + b.y) / 2 + 4, d->links[i].label);
    copse_text_add(text, "\n");
  }
}

/* ---- parts that are down --------------------------------------------------------------------- */

static void add_dead_link(struct copse_text *text, const struct copse_drawing *d, int i) {
  const struct copse_topology *healthy = d->arrangement->topology;
  const struct copse_link *l = &healthy->links[i];
  int back = copse_topology_find_link(healthy, l->dst, l->src);
  int src = copse_topology_find(d->topology, healthy->nodes[l->src].id);
  int dst = copse_topology_find(d->topology, healthy->nodes[l->dst].id);
  if ((src >= 0 && dst >= 0 && copse_topology_find_link(d->topology, src, dst) >= 0) ||
      (back >= 0 && back < i))
    return;
  copse_text_add(text, "<g class=\"dead\"><title>");
  copse_text_add_xml(text, healthy->nodes[l->src].id);
  copse_text_add(text, " \xe2\x87\x84 ");
  copse_text_add_xml(text, healthy->nodes[l->dst].id);
  copse_text_add(text, ": down</title><path class=\"line\" d=\"");
  add_curve(text, &d->arrangement->curves[i], 0);
  copse_text_add(text, "\"/></g>\n");
}

static void add_dead_node(struct copse_text *text, const struct copse_drawing *d, int v) {
  const struct copse_node *node = &d->arrangement->topology->nodes[v];
  const struct copse_arrangement_box *b = &d->arrangement->nodes[v];
  double x = b->width / 2, y = b->height / 2;
  if (copse_topology_find(d->topology, node->id) >= 0) return;
  copse_text_add(text, "<g class=\"dead\"><title>");
  copse_text_add_xml(text, node->id);
  copse_text_add(text, ": down</title>");
  add_box(text, "box", b->x, b->y, b->width, b->height, 2);
  add_text(text, "label", 1, b->x, b->y + 4.5, d->arrangement->labels[v]);
  copse_text_add(text,
                 "<path class=\"cross\" d=\"M%.1f,%.1f L%.1f,%.1f M%.1f,%.1f L%.1f,%.1f\"/></g>\n",
                 b->x - x, b->y - y, b->x + x, b->y + y, b->x - x, b->y + y, b->x + x, b->y - y);
}

static void add_dead(struct copse_text *text, const struct copse_drawing *d, bool links) {
  const struct copse_topology *healthy = d->arrangement->topology;
  if (healthy == d->topology) return;
  for (int i = 0; links && i < healthy->n_links; i++) add_dead_link(text, d, i);
  for (int v = 0; !links && v < healthy->n_nodes; v++) add_dead_node(text, d, v);
}

static void add_hosts(struct copse_text *text, const struct copse_drawing *d) {
  for (int g = 0; g < d->arrangement->n_groups; g++) {
    const struct copse_arrangement_box *box = &d->arrangement->groups[g].box;
    add_box(text, "host", box->x, box->y, box->width, box->height, 10);
    copse_text_add(text, "\n");
  }
}

/* Adds the hosts' names, over the links that cross them. */
static void add_host_names(struct copse_text *text, const struct copse_drawing *d) {
  for (int g = 0; g < d->arrangement->n_groups; g++) {
    const struct copse_arrangement_group *group = &d->arrangement->groups[g];
    add_text(text, "hostname", 1, group->box.x - group->box.width / 2 + 10,
             group->box.y - group->box.height / 2 + 18, group->name);
    copse_text_add(text, "\n");
  }
}

/* ---- the legend ---------------------------------------------------------------------------- */

struct legend {
  struct copse_text *text; /* NULL: measure only */
  double width, x, y;
};

static void next_row(struct legend *l) {
  if (l->x == 0) return;
  l->x = 0;
  l->y += LEGEND_ROW;
}

/* Adds the sample of an entry, and its text; on the next row where there is no room. */
static void add_entry(struct legend *l, const struct copse_legend_entry *e) {
  double need = LEGEND_SAMPLE + (double)copse_text_characters(e->text) * CHARACTER_WIDTH + 18;
  bool text_only = e->kind == COPSE_LEGEND_TEXT;
  if (text_only || l->x + need > l->width) next_row(l);
  double x = l->x - (text_only ? LEGEND_SAMPLE - 6 : 0), y = l->y;
  l->x += need;
  if (!l->text) return;
  if (e->kind == COPSE_LEGEND_LINK)
    copse_text_add(l->text, "<g class=\"%s\"><path class=\"line\" d=\"M%.1f,%.1f h30\"/></g>",
                   style_name(e->style, (char[16]){0}), x, y);
  else if (e->kind == COPSE_LEGEND_GLOW)
    copse_text_add(l->text, "<path class=\"glow\" d=\"M%.1f,%.1f h30\"/>", x, y);
  else if (e->kind == COPSE_LEGEND_RING)
    add_box(l->text, "ring", x + 15, y, 28, 14, 5);
  if (e->kind == COPSE_LEGEND_DEAD) {
    copse_text_add(l->text, "<g class=\"dead\">");
    add_box(l->text, "box", x + 15, y, 28, 14, 2);
    copse_text_add(l->text, "<path class=\"cross\" d=\"M%.1f,%.1f l28,14 m-28,0 l28,-14\"/></g>",
                   x + 1, y - 7);
  }
  if (e->kind == COPSE_LEGEND_TYPE) {
    const char *type = types[e->style];
    copse_text_add(l->text, "<g class=\"%s\">", type);
    add_box(l->text, "box", x + 15, y, 28, 14, strstr(type, "switch") ? 7 : 3);
    copse_text_add(l->text, "</g>");
  }
  add_text(l->text, "legend", 1, x + LEGEND_SAMPLE - 6, y + 4, e->text);
  copse_text_add(l->text, "\n");
}

/* Adds node types, then the entries from a new row on; returns the height. */
static double add_legend(const struct copse_drawing *d, struct copse_text *text, double width) {
  struct legend l = {.text = text, .width = width, .y = LEGEND_ROW / 2};
  bool seen[N_TYPES] = {false};
  for (int v = 0; v < d->topology->n_nodes; v++) {
    int type = type_of(&d->topology->nodes[v]);
    if (type >= 0) seen[type] = true;
  }
  for (int i = 0; i < N_TYPES; i++)
    if (seen[i]) add_entry(&l, &(struct copse_legend_entry){COPSE_LEGEND_TYPE, i, type_texts[i]});
  if (d->arrangement->topology != d->topology)
    add_entry(&l, &(struct copse_legend_entry){COPSE_LEGEND_DEAD, 0, "down"});
  if (d->n_legend > 0) next_row(&l);
  for (int i = 0; i < d->n_legend; i++) add_entry(&l, &d->legend[i]);
  return l.y + LEGEND_ROW;
}

/* ---- all together -------------------------------------------------------------------------- */

void copse_draw(const struct copse_drawing *d, bool inlined, struct copse_text *text) {
  const double margin = 24;
  double width = fmax(d->arrangement->width, 640), scale = fmax(1, width / LEGIBLE);
  double inside = width / scale - 2 * margin;
  double legend = add_legend(d, NULL, inside);
  double height = d->arrangement->height + scale * (HEADER + legend + margin);
  if (!inlined) copse_text_add(text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  copse_text_add(text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cp%s\" viewBox=\"0 0 %.0f "
                 "%.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\">\n<title>",
                 d->topology->n_links > DENSE ? " dense" : "", width, height, width, height);
  copse_text_add_xml(text, d->title);
  copse_text_add(text, "</title>\n");
  /* on a page report.css fits it to the width */
  if (!inlined)
    copse_text_add(text, "<style>\nsvg.cp{max-width:100%%;height:auto}\n%s</style>\n",
                   copse_draw_css);
  copse_text_add(text,
                 "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n"
                 "<g transform=\"scale(%.3f)\">\n",
                 scale);
  add_text(text, "title", 0, margin, 30, d->title);
  copse_text_add(text, "\n");
  add_text(text, "subtitle", 0, margin, 50, d->subtitle);
  copse_text_add(text, "\n</g>\n<g transform=\"translate(%.1f,%.1f)\">\n",
                 (width - d->arrangement->width) / 2, scale * HEADER);
  add_hosts(text, d);
  add_dead(text, d, true);
  add_links(text, d);
  add_host_names(text, d);
  for (int v = 0; v < d->topology->n_nodes; v++) add_node(text, d, v);
  add_dead(text, d, false);
  add_link_labels(text, d);
  copse_text_add(text, "</g>\n<g transform=\"translate(%.1f,%.1f) scale(%.3f)\">\n", scale * margin,
                 scale * HEADER + d->arrangement->height, scale);
  add_legend(d, text, inside);
  copse_text_add(text, "</g>\n</svg>\n");
}

/* Links of a band, the same in all pictures: from 800 GB/s on, from 400 on, half of that each. */
struct band {
  struct copse_q least, most; /* of its links */
  int n;
};

static int band_of(struct copse_q bandwidth) {
  static const struct copse_q from[COPSE_LINK_BANDS - 1] = {{800, 1}, {400, 1}, {200, 1}, {100, 1},
                                                            {50, 1},  {25, 1},  {25, 2}};
  int b = 0;
  while (b + 1 < COPSE_LINK_BANDS && copse_q_cmp(bandwidth, from[b]) < 0) b++;
  return b;
}

static void find_bands(const struct copse_topology *t, struct band bands[COPSE_LINK_BANDS],
                       struct copse_link_mark *marks) {
  for (int i = 0; i < t->n_links; i++) {
    struct copse_q bandwidth = t->links[i].bandwidth;
    struct band *b = &bands[band_of(bandwidth)];
    if (b->n == 0 || copse_q_cmp(bandwidth, b->least) < 0) b->least = bandwidth;
    if (b->n == 0 || copse_q_cmp(bandwidth, b->most) > 0) b->most = bandwidth;
    b->n++;
    marks[i] = (struct copse_link_mark){.style = COPSE_LINK_BAND + band_of(bandwidth)};
  }
}

/* Makes the text of a band; NULL when memory ran out. */
static const char *band_text(struct copse_arena *arena, const struct band *band) {
  bool one = copse_q_eq(band->least, band->most);
  double least = copse_q_to_double(band->least), most = copse_q_to_double(band->most);
  return one ? copse_arena_printf(arena, "%.6g GB/s \xc3\x97 %d", most, band->n)
             : copse_arena_printf(arena, "%.6g to %.6g GB/s \xc3\x97 %d", least, most, band->n);
}

copse_status copse_topology_draw(const struct copse_topology *t,
                                 const struct copse_arrangement *arrangement, bool inlined,
                                 struct copse_text *text, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct band bands[COPSE_LINK_BANDS] = {{.n = 0}};
  struct copse_legend_entry legend[COPSE_LINK_BANDS + 1];
  struct copse_link_mark *marks;
  char subtitle[128];
  int n = 0;
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)t->n_links, marks, err));
  find_bands(t, bands, marks);
  for (int b = 0; b < COPSE_LINK_BANDS; b++) {
    if (bands[b].n == 0) continue;
    legend[n] = (struct copse_legend_entry){COPSE_LEGEND_LINK, COPSE_LINK_BAND + b,
                                            band_text(&arena, &bands[b])};
    if (!legend[n++].text) COPSE_DO(copse_fail_nomem(err));
  }
  if (n > 0)
    legend[n] = (struct copse_legend_entry){
        COPSE_LEGEND_TEXT, 0, "bandwidth per direction \xc3\x97 links; an arrow: that way only"};
  snprintf(subtitle, sizeof subtitle, "%d rank%s, %d node%s, %d link%s (directed)", t->n_ranks,
           COPSE_S(t->n_ranks), t->n_nodes, COPSE_S(t->n_nodes), t->n_links, COPSE_S(t->n_links));
  struct copse_drawing drawing = {.topology = t,
                                  .arrangement = arrangement,
                                  .title = t->name,
                                  .subtitle = subtitle,
                                  .links = marks,
                                  .legend = legend,
                                  .n_legend = n > 0 ? n + 1 : 0};
  copse_draw(&drawing, inlined, text);
  return copse_text_status(text, err);
}
