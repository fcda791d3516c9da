/* The parts of a picture: which nodes belong together (a host's, or all), their labels and sizes,
 * and the inside of each part, by Graphviz; hosts that are alike are laid out once. */
#include <math.h>
#include <string.h>

#include "topology/words.h"
#include "view/arrangement_internal.h"

/* ---- labels -------------------------------------------------------------------------------- */

#define LABEL_CHARACTERS 16
#define CHARACTER_WIDTH 6.4 /* of the 11 pixel font */

/* Shortens an id: "h3.gpu0" to "gpu0"; "gpu@0000:c1:00.0" to "c1:00.0"; what is still too long to
 * its end. */
static const char *short_label(struct copse_arena *arena, const char *id, bool in_host) {
  const char *text = id + (in_host ? copse_id_prefix(id) : 0), *at = strrchr(text, '@');
  if (at && at[1]) text = at + 1;
  if (strncmp(text, "0000:", 5) == 0 && text[5]) text += 5;
  size_t n = copse_text_characters(text);
  if (n <= LABEL_CHARACTERS) return copse_arena_strdup(arena, text);
  for (; n > LABEL_CHARACTERS - 1; text++) n -= ((unsigned char)text[1] & 0xc0) != 0x80;
  return copse_arena_printf(arena, "\xe2\x80\xa6%s", text); /* an ellipsis */
}

static struct copse_arrangement_box size_of(const struct copse_node *node, const char *label) {
  static const struct {
    const char *type;
    double width, height;
  } sizes[] = {{"gpu", 54, 36},  {"nvswitch", 110, 26}, {"nic", 44, 22},
               {"pcie", 56, 22}, {"cpu", 60, 28},       {"switch", 72, 26}};
  struct copse_arrangement_box box = {0, 0, 56, 24};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strcmp(sizes[i].type, node->type) == 0)
      box = (struct copse_arrangement_box){0, 0, sizes[i].width, sizes[i].height};
  double text = (double)copse_text_characters(label) * CHARACTER_WIDTH + 12;
  if (text > box.width) box.width = text;
  return box;
}

static copse_status make_labels(struct copse_arrangement_work *w,
                                const struct copse_places *hosts) {
  for (int v = 0; v < w->topology->n_nodes; v++) {
    const struct copse_node *node = &w->topology->nodes[v];
    w->labels[v] = node->rank >= 0
                       ? copse_arena_printf(w->arena, "GPU %d", hosts->numbers[v])
                       : short_label(w->arena, node->id, w->framed && w->group_of[v] >= 0);
    if (!w->labels[v]) return copse_fail_nomem(w->err);
    w->nodes[v] = size_of(node, w->labels[v]);
  }
  return COPSE_OK;
}

/* ---- hosts --------------------------------------------------------------------------------- */

static copse_status make_parts(struct copse_arrangement_work *w, const struct copse_places *hosts) {
  const struct copse_topology *t = w->topology;
  size_t n = (size_t)t->n_nodes;
  struct copse_arrangement_box *boxes;
  int *members;
  COPSE_DO(COPSE_ARRAY(w->arena, (size_t)w->n_parts, w->parts, w->err));
  COPSE_DO(COPSE_ARRAY(w->arena, n, members, w->err));
  COPSE_DO(COPSE_ARRAY(w->arena, n, boxes, w->err));
  for (int v = 0; v < t->n_nodes; v++)
    if (w->group_of[v] >= 0) w->local[v] = w->parts[w->group_of[v]].n_members++;
  for (int g = 0, from = 0; g < w->n_parts; from += w->parts[g++].n_members) {
    w->parts[g].members = members + from;
    w->parts[g].boxes = boxes + from;
    w->parts[g].name = "";
  }
  for (int v = 0; v < t->n_nodes; v++) {
    int g = w->group_of[v];
    if (g < 0) continue;
    members[w->parts[g].members - members + w->local[v]] = v;
    if (w->framed) w->parts[g].name = hosts->names[g];
  }
  return COPSE_OK;
}

static copse_status find_parts(struct copse_arrangement_work *w) {
  struct copse_places hosts;
  COPSE_DO(copse_places_find(w->topology, w->arena, &hosts, w->err));
  w->framed = hosts.n > 0;
  w->n_parts = w->framed ? hosts.n : 1; /* one part of everything */
  for (int v = 0; v < w->topology->n_nodes; v++) w->group_of[v] = w->framed ? hosts.of[v] : 0;
  COPSE_DO(make_parts(w, &hosts));
  return make_labels(w, &hosts);
}

struct parts {
  struct copse_arrangement_work *w;
  int *graph_of; /* [n_parts] which graph shows it */
  int *part_of;  /* [n_graphs] the part that it was made from */
  int n_graphs;
  struct copse_text *texts;     /* [n_parts] */
  struct copse_graph_layout *layouts; /* [n_graphs] */
};

static bool inside(const struct copse_arrangement_work *w, const struct copse_link *l, int g) {
  return w->group_of[l->src] == g && w->group_of[l->dst] == g;
}

/* In a circle up to this many ranks: every link is a straight chord. */
#define MOST_IN_A_CIRCLE 16
/* Up to so many ranks stand in a row; more stand in a ring around what joins them. */
#define MOST_IN_A_ROW 24

static bool has_fabric(const struct copse_arrangement_work *w) {
  for (int v = 0; v < w->topology->n_nodes; v++)
    if (w->group_of[v] < 0) return true;
  return false;
}

/* Chooses the shape. Where ranks are joined directly and by no switch, they are a circle in rank
 * order, with what else hangs on them around it; but of a host at a fabric a row with arcs over it,
 * so that its NICs face the fabric. Tori of many ranks show best by springs. */
static enum copse_arrangement_shape choose_shape(const struct copse_arrangement_work *w, int g,
                                                 int n_ranks) {
  const struct copse_topology *t = w->topology;
  int direct = 0;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (!inside(w, l, g)) continue;
    direct += t->nodes[l->src].rank >= 0 && t->nodes[l->dst].rank >= 0;
  }
  if (direct == 0 && n_ranks > MOST_IN_A_ROW) return COPSE_SHAPE_RINGS;
  if (direct == 0 || has_fabric(w)) return COPSE_SHAPE_ROWS;
  return n_ranks <= MOST_IN_A_CIRCLE ? COPSE_SHAPE_CIRCLE : COPSE_SHAPE_SPRINGS;
}

/* Numbers layers: NVSwitches 0, ranks 1, everything else by its distance from the ranks. */
static void find_layers(const struct copse_arrangement_work *w, int g, int *layer) {
  const struct copse_topology *t = w->topology;
  const struct copse_arrangement_part *part = &w->parts[g];
  for (int i = 0; i < part->n_members; i++) {
    const struct copse_node *node = &t->nodes[part->members[i]];
    layer[part->members[i]] = node->rank >= 0 ? 1 : strcmp(node->type, "nvswitch") == 0 ? 0 : -1;
  }
  for (int depth = 1; depth <= part->n_members; depth++)
    for (int i = 0; i < t->n_links; i++) {
      const struct copse_link *l = &t->links[i];
      if (inside(w, l, g) && layer[l->src] == depth && layer[l->dst] < 0) layer[l->dst] = depth + 1;
    }
}

static void add_layers(struct copse_text *text, const struct copse_arrangement_part *part,
                       const int *layer) {
  for (int depth = 0; depth <= part->n_members + 1; depth++) {
    int n = 0;
    for (int i = 0; i < part->n_members; i++) {
      if (layer[part->members[i]] != depth) continue;
      copse_text_add(text, "%s %d;", n++ ? "" : " { rank=same;", i);
    }
    if (n > 0) copse_text_add(text, " }\n");
  }
}

/* ---- a circle -------------------------------------------------------------------------------- */

#define CIRCLE_ROOM 92.0 /* of the circle for a rank */
#define CIRCLE_STEP 84.0 /* from a circle to the one around it */

/* Returns where a node on the circle `depth` + 1 is drawn to: the middle of its neighbours on
 * `depth`. */
static double wished_angle(const struct copse_arrangement_work *w, int g, int v, const int *layer,
                           const double *angle) {
  const struct copse_topology *t = w->topology;
  double x = 0, y = 0;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (!inside(w, l, g) || l->dst != v || layer[l->src] != layer[v] - 1) continue;
    x += cos(angle[l->src]);
    y += sin(angle[l->src]);
  }
  return hypot(x, y) < 1e-6 ? 0 : atan2(y, x);
}

/* Finds the first angle from `wished` on that no other of the circle is near to. */
static double free_angle(const struct copse_arrangement_part *part, int v, const int *layer,
                         const double *angle, double wished, double apart) {
  for (int tries = 0; tries <= 4 * part->n_members; tries++) {
    double at = wished + (tries % 2 ? 1 : -1) * ((tries + 1) / 2) * apart / 2;
    bool taken = false;
    for (int i = 0; i < part->n_members && !taken; i++) {
      int u = part->members[i];
      taken = u != v && layer[u] == layer[v] && !isnan(angle[u]) &&
              fabs(remainder(angle[u] - at, 2 * M_PI)) < 0.95 * apart;
    }
    if (!taken) return at;
  }
  return wished;
}

/* Pins ranks in rank order from the top, clockwise; each depth of the others on a circle around
 * them. */
static copse_status pin_circle(const struct copse_arrangement_work *w, int g, int n_ranks,
                               const int *layer, struct copse_text *text) {
  const struct copse_arrangement_part *part = &w->parts[g];
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  double *angle, radius = fmax(96, n_ranks * CIRCLE_ROOM / (2 * M_PI));
  int placed = 0, last = 1;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)w->topology->n_nodes, angle, w->err));
  for (int v = 0; v < w->topology->n_nodes; v++) angle[v] = NAN;
  for (int r = 0; r < w->topology->n_ranks; r++) {
    int v = w->topology->rank_nodes[r];
    if (w->group_of[v] == g) angle[v] = M_PI / 2 - 2 * M_PI * placed++ / n_ranks;
  }
  for (int i = 0; i < part->n_members; i++)
    if (layer[part->members[i]] > last) last = layer[part->members[i]];
  for (int depth = 1; depth <= last; depth++)
    for (int i = 0; i < part->n_members; i++) {
      int v = part->members[i];
      double circle = radius + (depth - 1) * CIRCLE_STEP;
      if (layer[v] != depth) continue;
      if (depth > 1)
        angle[v] = free_angle(part, v, layer, angle, wished_angle(w, g, v, layer, angle),
                              (w->nodes[v].width + 10) / circle);
      copse_arrangement_graph_pin(text, i, circle * cos(angle[v]), circle * sin(angle[v]));
    }
  return COPSE_OK;
}

/* Whether link i is the first of its pair: each pair of joined nodes counts once, by link i, or its
 * reverse if that comes first. */
static bool is_first_of_pair(const struct copse_topology *t, int i) {
  int reverse = copse_topology_find_link(t, t->links[i].dst, t->links[i].src);
  return reverse < 0 || reverse > i;
}

static void add_edges(struct copse_text *text, const struct copse_arrangement_work *w, int g,
                      const int *layer) {
  const struct copse_topology *t = w->topology;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (!inside(w, l, g) || !is_first_of_pair(t, i)) continue;
    bool direct = t->nodes[l->src].rank >= 0 && t->nodes[l->dst].rank >= 0;
    if (layer && direct) continue; /* arcs */
    int a = w->local[l->src], b = w->local[l->dst];
    bool down = !layer || layer[l->src] <= layer[l->dst];
    copse_text_add(text, " %d -- %d", down ? a : b, down ? b : a);
    if (layer)
      copse_text_add(text, ";\n");
    else
      copse_text_add(text, " [len=%.2f];\n", direct ? 1.5 + w->parts[g].n_members / 40.0 : 1.0);
  }
}

static copse_status describe(struct parts *p, int g, int *layer) {
  struct copse_arrangement_work *w = p->w;
  const struct copse_arrangement_part *part = &w->parts[g];
  struct copse_text *text = &p->texts[g];
  int n_ranks = 0;
  for (int i = 0; i < part->n_members; i++)
    n_ranks += w->topology->nodes[part->members[i]].rank >= 0;
  enum copse_arrangement_shape shape = choose_shape(w, g, n_ranks);
  bool layered = shape == COPSE_SHAPE_ROWS;
  copse_arrangement_graph_begin(text, shape, n_ranks);
  for (int i = 0; i < part->n_members; i++)
    copse_arrangement_graph_node(text, i, w->nodes[part->members[i]].width,
                                 w->nodes[part->members[i]].height);
  if (layered || shape == COPSE_SHAPE_CIRCLE) find_layers(w, g, layer);
  if (layered) add_layers(text, part, layer);
  if (shape == COPSE_SHAPE_CIRCLE) COPSE_DO(pin_circle(w, g, n_ranks, layer, text));
  add_edges(text, w, g, layered ? layer : NULL);
  copse_text_add(text, "}\n");
  return copse_text_status(text, w->err);
}

/* ---- reading Graphviz's answer ------------------------------------------------------------- */

static copse_status take_curve(struct copse_arrangement_work *w, int link,
                               const struct copse_arrangement_curve *curve, bool turned) {
  struct copse_point *copy;
  int n = curve->n_points;
  if (link < 0) return COPSE_OK; /* one direction only */
  COPSE_DO(COPSE_ARRAY(w->arena, (size_t)n, copy, w->err));
  for (int i = 0; i < n; i++) copy[i] = curve->points[turned ? n - 1 - i : i];
  w->curves[link] = (struct copse_arrangement_curve){n, copy};
  return COPSE_OK;
}

static copse_status take_layout(struct copse_arrangement_work *w, int g,
                                const struct copse_graph_layout *layout) {
  struct copse_arrangement_part *part = &w->parts[g];
  part->width = layout->width;
  part->height = layout->height;
  for (int i = 0; i < part->n_members; i++) {
    if (isnan(layout->nodes[i].x)) return copse_fail(w->err, COPSE_IO, "dot: a node has no place");
    part->boxes[i] = w->nodes[part->members[i]];
    part->boxes[i].x = layout->nodes[i].x;
    part->boxes[i].y = layout->nodes[i].y;
  }
  for (size_t i = 0; i < layout->n_edges; i++) {
    const struct copse_layout_edge *e = &layout->edges[i];
    int a = part->members[e->from], b = part->members[e->to];
    COPSE_DO(take_curve(w, copse_topology_find_link(w->topology, a, b), &e->curve, false));
    COPSE_DO(take_curve(w, copse_topology_find_link(w->topology, b, a), &e->curve, true));
  }
  return COPSE_OK;
}

/* ---- arcs over a row of ranks ---------------------------------------------------------------- */

static double arc_height(double from, double to) { return 12 + 0.28 * fabs(to - from); }

static bool is_arc(const struct copse_arrangement_work *w, int i, int g) {
  return inside(w, &w->topology->links[i], g) && w->curves[i].n_points == 0;
}

/* Adds links that Graphviz did not get, with room for them above everything else. */
static copse_status add_arcs(struct copse_arrangement_work *w, int g) {
  struct copse_arrangement_part *part = &w->parts[g];
  const struct copse_topology *t = w->topology;
  double lowest = 0;
  for (int i = 0; i < t->n_links; i++) {
    if (!is_arc(w, i, g)) continue;
    const struct copse_arrangement_box *a = &part->boxes[w->local[t->links[i].src]];
    const struct copse_arrangement_box *b = &part->boxes[w->local[t->links[i].dst]];
    struct copse_point *p;
    COPSE_DO(COPSE_ARRAY(w->arena, 4, p, w->err));
    double ya = a->y - a->height / 2, yb = b->y - b->height / 2, up = arc_height(a->x, b->x);
    /* ends apart from each other, towards where they go */
    double side = b->x > a->x ? 1 : -1, apart = fmin(0.3 * a->width, 0.04 * fabs(b->x - a->x));
    p[0] = (struct copse_point){a->x + side * apart, ya};
    p[1] = (struct copse_point){p[0].x, ya - up};
    p[3] = (struct copse_point){b->x - side * apart, yb};
    p[2] = (struct copse_point){p[3].x, yb - up};
    w->curves[i] = (struct copse_arrangement_curve){4, p};
    lowest = fmin(lowest, fmin(ya, yb) - 0.75 * up); /* the top of the curve itself */
  }
  for (int i = 0; i < part->n_members; i++) part->boxes[i].y -= lowest;
  for (int i = 0; i < t->n_links; i++)
    for (int j = 0; inside(w, &t->links[i], g) && j < w->curves[i].n_points; j++)
      ((struct copse_point *)w->curves[i].points)[j].y -= lowest;
  part->height -= lowest;
  return COPSE_OK;
}

/* ---- all together -------------------------------------------------------------------------- */

/* Shares one graph among parts with the same text. */
static void share(struct parts *p, struct copse_text *all) {
  for (int g = 0; g < p->w->n_parts; g++) {
    int same = 0;
    while (same < p->n_graphs && strcmp(p->texts[p->part_of[same]].data, p->texts[g].data) != 0)
      same++;
    p->graph_of[g] = same;
    if (same < p->n_graphs) continue;
    p->layouts[same].n_nodes = p->w->parts[g].n_members;
    p->part_of[p->n_graphs++] = g;
    copse_text_append(all, p->texts[g].data, p->texts[g].size);
  }
}

static void end_parts(struct parts *p) {
  for (int g = 0; p->texts && g < p->w->n_parts; g++) copse_text_free(&p->texts[g]);
}

copse_status copse_arrangement_parts(struct copse_arrangement_work *w) {
  COPSE_AT_END(copse_text_free) struct copse_text all = {0};
  COPSE_AT_END(end_parts) struct parts p = {.w = w};
  int *layer;
  COPSE_DO(find_parts(w));
  size_t n = (size_t)w->n_parts;
  COPSE_DO(COPSE_ARRAYS(w->arena, n, int, w->err, &p.graph_of, &p.part_of));
  COPSE_DO(COPSE_ARRAY(w->arena, n, p.texts, w->err));
  COPSE_DO(COPSE_ARRAY(w->arena, n, p.layouts, w->err));
  COPSE_DO(COPSE_ARRAY(w->arena, (size_t)w->topology->n_nodes, layer, w->err));
  for (int g = 0; g < w->n_parts; g++) COPSE_DO(describe(&p, g, layer));
  share(&p, &all);
  COPSE_DO(copse_text_status(&all, w->err));
  COPSE_DO(copse_arrangement_run(&all, p.layouts, p.n_graphs, w->arena, w->err));
  for (int g = 0; g < w->n_parts; g++) COPSE_DO(take_layout(w, g, &p.layouts[p.graph_of[g]]));
  for (int g = 0; g < w->n_parts; g++) COPSE_DO(add_arcs(w, g));
  return COPSE_OK;
}
