/*
 * Where things go in a picture: Graphviz as a filter (graphs of numbered boxes in, places and
 * curves out), then hosts in rows with the levels of the fabric between them.
 *
 *     [h0] [h1] [h2]      hosts above
 *     ===============     rows of the fabric, nearest to its hosts first
 *     [h3] [h4] [h5]      hosts below, turned over
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "view/arrangement.h"
#include "view/arrangement_internal.h"

#define PIXELS_PER_INCH 72.0
#define RING_PIXELS 66.0 /* of a ring for a rank */
#define SECONDS 60
#define MAX_BYTES ((size_t)64 << 20)
#define MAX_POINTS 4096 /* of one curve */

void copse_arrangement_graph_begin(struct copse_text *text, enum copse_arrangement_shape shape,
                                   int ring) {
  static const char *const settings[] = {
      [COPSE_SHAPE_ROWS] = "layout=dot; rankdir=TB; nodesep=0.11; ranksep=0.5; splines=true;",
      [COPSE_SHAPE_CIRCLE] = "layout=neato; inputscale=72; splines=line;",
      [COPSE_SHAPE_SPRINGS] =
          "layout=neato; mode=KK; overlap=false; splines=true; sep=\"+9\"; esep=\"+4\";",
      [COPSE_SHAPE_RINGS] = "layout=twopi; splines=line;"};
  copse_text_add(text, "graph g {\n %s\n node [shape=box, fixedsize=true, label=\"\"];\n",
                 settings[shape]);
  if (shape == COPSE_SHAPE_RINGS)
    copse_text_add(text, " ranksep=\"%.2f:1.0\";\n",
                   ring * RING_PIXELS / (2 * M_PI * PIXELS_PER_INCH));
}

void copse_arrangement_graph_node(struct copse_text *text, int i, double width, double height) {
  copse_text_add(text, " %d [width=%.3f, height=%.3f];\n", i, width / PIXELS_PER_INCH,
                 height / PIXELS_PER_INCH);
}

/* ---- reading the "plain" format -------------------------------------------------------------- */

struct parser {
  char *at;
  struct copse_graph_layout *layouts, *now; /* NULL: before the first */
  int n, n_read;
  struct copse_arena *arena;
  struct copse_err *err;
};

static copse_status unexpected(const struct parser *p, const char *what) {
  return copse_fail(p->err, COPSE_IO, "dot: unexpected output: %s", what);
}

static bool next_number(struct parser *p, double *out) {
  char *end;
  *out = strtod(p->at, &end);
  bool found = end != p->at && *out > -1e9 && *out < 1e9;
  p->at = end;
  return found;
}

static bool next_int(struct parser *p, int *out) {
  double value;
  if (!next_number(p, &value)) return false;
  *out = (int)value;
  return *out == value;
}

static copse_status read_graph(struct parser *p) {
  double scale;
  if (p->n_read == p->n) return copse_fail(p->err, COPSE_IO, "dot: one graph too many");
  struct copse_graph_layout *l = p->now = &p->layouts[p->n_read++];
  if (!next_number(p, &scale) || !next_number(p, &l->width) || !next_number(p, &l->height))
    return unexpected(p, "a graph without a size");
  l->width *= PIXELS_PER_INCH;
  l->height *= PIXELS_PER_INCH;
  return COPSE_OK;
}

/* Reads a point, from inches and upwards to pixels and downwards. */
static bool next_point(struct parser *p, struct copse_point *out) {
  if (!next_number(p, &out->x) || !next_number(p, &out->y)) return false;
  out->x *= PIXELS_PER_INCH;
  out->y = p->now->height - out->y * PIXELS_PER_INCH;
  return true;
}

static bool is_name(const struct parser *p, int node) {
  return node >= 0 && node < p->now->n_nodes;
}

static copse_status read_node(struct parser *p) {
  struct copse_point at;
  int node;
  if (!p->now || !next_int(p, &node) || !next_point(p, &at))
    return unexpected(p, "a node without a place");
  if (!is_name(p, node)) return copse_fail(p->err, COPSE_IO, "dot: a node that was not asked for");
  p->now->nodes[node] = at;
  return COPSE_OK;
}

static copse_status read_edge(struct parser *p) {
  struct copse_graph_layout *l = p->now;
  struct copse_point *points;
  int from, to, n;
  if (!l || !next_int(p, &from) || !next_int(p, &to) || !next_int(p, &n) || n < 4 ||
      n > MAX_POINTS || n % 3 != 1)
    return unexpected(p, "an edge without a curve");
  if (!is_name(p, from) || !is_name(p, to))
    return copse_fail(p->err, COPSE_IO, "dot: an edge that was not asked for");
  COPSE_DO(COPSE_ARRAY(p->arena, (size_t)n, points, p->err));
  for (int i = 0; i < n; i++)
    if (!next_point(p, &points[i])) return unexpected(p, "a curve that ends early");
  return COPSE_PUSH_IN(p->arena, l->edges, l->n_edges, l->edges_capacity, p->err,
                       (struct copse_layout_edge){from, to, {n, points}});
}

static copse_status read_plain(struct parser *p, char *data) {
  char *rest = NULL;
  for (int i = 0; i < p->n; i++) {
    struct copse_graph_layout *l = &p->layouts[i];
    COPSE_DO(COPSE_ARRAY(p->arena, (size_t)l->n_nodes, l->nodes, p->err));
    for (int v = 0; v < l->n_nodes; v++) l->nodes[v].x = NAN;
  }
  for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    p->at = line + strcspn(line, " ");
    if (strncmp(line, "graph ", 6) == 0)
      COPSE_DO(read_graph(p));
    else if (strncmp(line, "node ", 5) == 0)
      COPSE_DO(read_node(p));
    else if (strncmp(line, "edge ", 5) == 0)
      COPSE_DO(read_edge(p));
  }
  return COPSE_OK;
}

copse_status copse_arrangement_run(const struct copse_text *graphs,
                                   struct copse_graph_layout *layouts, int n,
                                   struct copse_arena *arena, struct copse_err *err) {
  static char name[] = "dot", format[] = "-Tplain";
  char *const argv[] = {name, format, NULL};
  struct copse_err why = COPSE_ERR_INIT;
  struct parser p = {.layouts = layouts, .n = n, .arena = arena, .err = err};
  COPSE_AT_END(copse_free_at) char *out = NULL;
  size_t size;
  copse_status status =
      copse_process_filter(argv, graphs->data, graphs->size, SECONDS, MAX_BYTES, &out, &size, &why);
  if (status == COPSE_UNSUPPORTED)
    return copse_fail(err, status,
                      "pictures are laid out by Graphviz, and there is %s: install it (Debian and "
                      "Ubuntu: apt-get install graphviz)",
                      why.text);
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  return read_plain(&p, out);
}

#define MARGIN 24.0
#define FRAME 12.0    /* between a host's frame and what is in it */
#define TITLE 18.0    /* above it */
#define GAP 18.0      /* between hosts */
#define ROW 88.0      /* between rows of the fabric */
#define MAX_LEVELS 4  /* fabrics of more are left to Graphviz */
#define ASPECT 1.7    /* wished for */
#define ROW_COST 0.35 /* links from a second row run behind the hosts of the first */

/* ---- the fabric's levels ------------------------------------------------------------------- */

struct placing {
  struct copse_arrangement_work *w;
  int *level;   /* [n_nodes] of the fabric: links to the next host; 0 for nodes of hosts */
  int *row;     /* [n_nodes] of the fabric */
  int n_levels; /* the largest */
  int n_fabric;
  int columns; /* of hosts */
  int above;   /* hosts above the fabric */
  double cell_width, cell_height;
  double width, height;
};

static void find_levels(struct placing *p) {
  const struct copse_topology *t = p->w->topology;
  for (int v = 0; v < t->n_nodes; v++) {
    bool fabric = p->w->group_of[v] < 0;
    p->level[v] = fabric ? -1 : 0;
    p->n_fabric += fabric;
  }
  for (int depth = 0; depth <= p->n_fabric; depth++)
    for (int i = 0; i < t->n_links; i++) {
      const struct copse_link *l = &t->links[i];
      if (p->level[l->src] == depth && p->level[l->dst] < 0) p->level[l->dst] = depth + 1;
      if (p->level[l->dst] == depth && p->level[l->src] < 0) p->level[l->src] = depth + 1;
    }
  for (int v = 0; v < t->n_nodes; v++) {
    if (p->level[v] < 0) p->level[v] = 1; /* joined to nothing */
    if (p->level[v] > p->n_levels) p->n_levels = p->level[v];
  }
}

/* ---- hosts in rows, the fabric between ------------------------------------------------------- */

static void measure_cells(struct placing *p) {
  for (int g = 0; g < p->w->n_parts; g++) {
    p->cell_width = fmax(p->cell_width, p->w->parts[g].width + 2 * FRAME);
    p->cell_height = fmax(p->cell_height, p->w->parts[g].height + 2 * FRAME + TITLE);
  }
  p->cell_width = fmax(p->cell_width, 120);
}

static int rows_of(int n, int columns) { return (n + columns - 1) / columns; }

/* Returns how far a layout is from the wished aspect. */
static double cost(const struct placing *p, int above, int columns) {
  int rows = rows_of(above, columns) + rows_of(p->w->n_parts - above, columns);
  double width = columns * (p->cell_width + GAP);
  double height = rows * (p->cell_height + GAP) + ROW * (p->n_levels + 1);
  return fabs(log(width / height / ASPECT)) + ROW_COST * rows;
}

/* Chooses the columns, and how many hosts go above the fabric: half, or all in one row where hosts
 * are high. */
static void choose_columns(struct placing *p) {
  int n = p->w->n_parts, half = (n + 1) / 2;
  bool high = p->cell_height > 0.8 * p->cell_width;
  double best = INFINITY;
  for (int above = half; above <= n; above += high && half < n ? n - half : n)
    for (int columns = above > half ? above : 1; columns <= above; columns++) {
      double now = cost(p, above, columns);
      if (now >= best) continue;
      best = now;
      p->above = above;
      p->columns = columns;
    }
  p->width = p->columns * (p->cell_width + GAP) - GAP;
}

static void put_part(struct placing *p, int g, double x, double y, bool turned) {
  struct copse_arrangement_work *w = p->w;
  const struct copse_arrangement_part *part = &w->parts[g];
  double left = x - part->width / 2, top = y - part->height / 2;
  for (int i = 0; i < part->n_members; i++) {
    struct copse_arrangement_box *box = &w->nodes[part->members[i]];
    box->x = left + part->boxes[i].x;
    box->y = top + (turned ? part->height - part->boxes[i].y : part->boxes[i].y);
  }
  for (int i = 0; i < w->topology->n_links; i++) {
    const struct copse_link *l = &w->topology->links[i];
    if (w->group_of[l->src] != g || w->group_of[l->dst] != g) continue;
    struct copse_point *points = (struct copse_point *)w->curves[i].points;
    for (int j = 0; j < w->curves[i].n_points; j++) {
      points[j].x += left;
      points[j].y = top + (turned ? part->height - points[j].y : points[j].y);
    }
  }
}

/* Places the centre of what is in each of some hosts. */
static double put_hosts(struct placing *p, int from, int to, double top, bool turned) {
  for (int g = from; g < to; g++) {
    int column = (g - from) % p->columns, row = (g - from) / p->columns;
    int in_row =
        to - from - row * p->columns < p->columns ? to - from - row * p->columns : p->columns;
    double indent = (p->width - in_row * (p->cell_width + GAP) + GAP) / 2;
    double x = indent + column * (p->cell_width + GAP) + p->cell_width / 2;
    double y = top + row * (p->cell_height + GAP) + (p->cell_height + TITLE) / 2;
    put_part(p, g, MARGIN + x, MARGIN + y, turned);
  }
  return top + rows_of(to - from, p->columns) * (p->cell_height + GAP);
}

/* Chooses the fabric's rows. A switch of hosts of one side only goes to that side. */
static void choose_rows(struct placing *p) {
  const struct copse_topology *t = p->w->topology;
  for (int v = 0; v < t->n_nodes; v++) p->row[v] = p->level[v] == 1 ? 0 : -1;
  for (int i = 0; i < t->n_links; i++) { /* bit 0: hosts above, bit 1: below */
    int g = p->w->group_of[t->links[i].src], v = t->links[i].dst;
    if (g >= 0 && p->w->group_of[v] < 0) p->row[v] |= g < p->above ? 1 : 2;
  }
  bool sided = false, both = false;
  for (int v = 0; v < t->n_nodes; v++) {
    if (p->level[v] != 1) continue;
    sided = sided || p->row[v] == 1 || p->row[v] == 2;
    both = both || p->row[v] == 3;
  }
  /* rows: those above, those of both sides, further levels, those below */
  for (int v = 0; v < t->n_nodes; v++) {
    if (p->w->group_of[v] >= 0) continue;
    if (p->level[v] > 1)
      p->row[v] = sided + both + p->level[v] - 2;
    else
      p->row[v] = p->row[v] == 1 ? 0 : p->row[v] == 2 ? sided + both + p->n_levels - 1 : (int)sided;
  }
}

struct slot {
  int node;
  double wish;
};

COPSE_ORDER(by_wish, struct slot, COPSE_UP(wish) ?: COPSE_UP(node))

/* Returns the middle of what a node is joined to and has a place already. */
static double wish_of(const struct placing *p, int v, int rows_done) {
  const struct copse_arrangement_work *w = p->w;
  double sum = 0;
  int n = 0;
  for (int i = 0; i < w->topology->n_links; i++) {
    const struct copse_link *l = &w->topology->links[i];
    int other = l->dst;
    if (l->src != v || (w->group_of[other] < 0 && p->row[other] >= rows_done)) continue;
    sum += w->nodes[other].x;
    n++;
  }
  return n > 0 ? sum / n : p->width / 2;
}

static void place_row(struct placing *p, struct slot *slots, int row, double y) {
  int n = 0;
  for (int v = 0; v < p->w->topology->n_nodes; v++)
    if (p->w->group_of[v] < 0 && p->row[v] == row)
      slots[n++] = (struct slot){v, wish_of(p, v, row)};
  COPSE_SORT(slots, n, by_wish);
  for (int i = 0; i < n; i++) {
    struct copse_arrangement_box *box = &p->w->nodes[slots[i].node];
    double room = p->width / n;
    box->width = fmax(box->width, fmin(0.7 * room, 420));
    box->x = MARGIN + (i + 0.5) * room;
    box->y = MARGIN + y;
  }
}

static int count_rows(const struct placing *p) {
  int n = 0;
  for (int v = 0; v < p->w->topology->n_nodes; v++)
    if (p->w->group_of[v] < 0 && p->row[v] >= n) n = p->row[v] + 1;
  return n;
}

/* Widens the picture until each row has room for its boxes. */
static void widen_for_rows(struct placing *p, int n_rows) {
  for (int row = 0; row < n_rows; row++) {
    double need = 0;
    for (int v = 0; v < p->w->topology->n_nodes; v++)
      if (p->w->group_of[v] < 0 && p->row[v] == row) need += p->w->nodes[v].width + 12;
    p->width = fmax(p->width, need);
  }
}

static copse_status place_around_fabric(struct placing *p) {
  struct copse_arrangement_work *w = p->w;
  struct slot *slots;
  COPSE_DO(COPSE_ARRAY(w->arena, (size_t)w->topology->n_nodes, slots, w->err));
  choose_columns(p);
  choose_rows(p);
  int n_rows = count_rows(p);
  widen_for_rows(p, n_rows);
  double y = put_hosts(p, 0, p->above, 0, false) - GAP;
  for (int row = 0; row < n_rows; row++) place_row(p, slots, row, y + (row + 1) * ROW);
  y += (n_rows + 1) * ROW;
  y = put_hosts(p, p->above, w->n_parts, y, true);
  p->height = y - GAP;
  return COPSE_OK;
}

/* ---- hosts joined directly: Graphviz places them as boxes --------------------------------- */

/* Takes the places from a layout. Boxes 0 .. n_parts - 1 are hosts, n_parts + v is node v of the
 * fabric. Links are drawn from node to node. */
static void take_places(struct placing *p, const struct copse_graph_layout *layout) {
  struct copse_arrangement_work *w = p->w;
  p->width = layout->width;
  p->height = layout->height;
  for (int i = 0; i < layout->n_nodes; i++) {
    double x = MARGIN + layout->nodes[i].x, y = MARGIN + layout->nodes[i].y;
    if (isnan(x)) continue;
    if (i < w->n_parts) {
      put_part(p, i, x, y + TITLE / 2, false);
    } else {
      w->nodes[i - w->n_parts].x = x;
      w->nodes[i - w->n_parts].y = y;
    }
  }
}

static copse_status place_by_graphviz(struct placing *p) {
  struct copse_arrangement_work *w = p->w;
  const struct copse_topology *t = w->topology;
  struct copse_graph_layout layout = {.n_nodes = w->n_parts + t->n_nodes};
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  copse_arrangement_graph_begin(&text, COPSE_SHAPE_SPRINGS, 0);
  for (int g = 0; g < w->n_parts; g++)
    copse_arrangement_graph_node(&text, g, fmax(w->parts[g].width + 2 * FRAME, 120) + GAP,
                                 w->parts[g].height + 2 * FRAME + TITLE + GAP);
  for (int v = 0; v < t->n_nodes; v++)
    if (w->group_of[v] < 0)
      copse_arrangement_graph_node(&text, w->n_parts + v, w->nodes[v].width, w->nodes[v].height);
  for (int i = 0; i < t->n_links; i++) {
    int a = w->group_of[t->links[i].src], b = w->group_of[t->links[i].dst];
    if (a >= 0 && a == b) continue;
    if (a < 0) a = w->n_parts + t->links[i].src;
    if (b < 0) b = w->n_parts + t->links[i].dst;
    if (a < b) copse_text_add(&text, " %d -- %d [len=6];\n", a, b);
  }
  copse_text_add(&text, "}\n");
  COPSE_DO(copse_text_status(&text, w->err));
  COPSE_DO(copse_arrangement_run(&text, &layout, 1, w->arena, w->err));
  take_places(p, &layout);
  return COPSE_OK;
}

static copse_status place(struct placing *p) {
  const struct copse_arrangement_work *w = p->w;
  size_t n = (size_t)w->topology->n_nodes;
  COPSE_DO(COPSE_ARRAYS(w->arena, n, int, w->err, &p->level, &p->row));
  if (!w->framed) {
    p->width = w->parts[0].width;
    p->height = w->parts[0].height;
    put_part(p, 0, MARGIN + p->width / 2, MARGIN + p->height / 2, false);
    return COPSE_OK;
  }
  find_levels(p);
  measure_cells(p);
  return p->n_levels >= 1 && p->n_levels <= MAX_LEVELS ? place_around_fabric(p)
                                                       : place_by_graphviz(p);
}

/* ---- links between hosts ------------------------------------------------------------------ */

/* Returns where on a wide box a link to something at x ends: spread as what it is joined to. */
static double port(const struct copse_arrangement_box *box, double x, double width) {
  double room = box->width / 2 - 16;
  return room > 40 ? box->x + room * fmax(-1, fmin(1, (x - box->x) / (0.5 * width))) : box->x;
}

/* Routes a link upright at both ends; in a bow between neighbours in a row. */
static void route(const struct copse_arrangement_box *a, const struct copse_arrangement_box *b,
                  double width, struct copse_point *to) {
  double dx = b->x - a->x, dy = b->y - a->y;
  if (fabs(dy) >= (a->height + b->height) / 2 + 16) {
    double side = dy > 0 ? 1 : -1;
    double y0 = a->y + side * a->height / 2, y1 = b->y - side * b->height / 2;
    double xa = port(a, b->x, width), xb = port(b, a->x, width);
    to[0] = (struct copse_point){xa, y0};
    to[1] = (struct copse_point){xa, y0 + 0.45 * (y1 - y0)};
    to[2] = (struct copse_point){xb, y1 - 0.45 * (y1 - y0)};
    to[3] = (struct copse_point){xb, y1};
    return;
  }
  double side = dx > 0 ? 1 : -1, bow = fmin(0.14 * fabs(dx) - 6, 0.8 * ROW);
  double x0 = a->x + side * a->width / 2, x1 = b->x - side * b->width / 2;
  if (bow < 0) bow = 0;
  to[0] = (struct copse_point){x0, a->y};
  to[1] = (struct copse_point){x0 + side * bow, a->y + bow};
  to[2] = (struct copse_point){x1 - side * bow, b->y + bow};
  to[3] = (struct copse_point){x1, b->y};
}

static copse_status route_links(struct copse_arrangement_work *w, double width) {
  const struct copse_topology *t = w->topology;
  for (int i = 0; i < t->n_links; i++) {
    if (w->curves[i].n_points > 0) continue;
    int src = t->links[i].src, dst = t->links[i].dst;
    struct copse_point *points, there[4];
    COPSE_DO(COPSE_ARRAY(w->arena, 4, points, w->err));
    /* of the two directions one has the curve of the other, turned around */
    route(&w->nodes[src < dst ? src : dst], &w->nodes[src < dst ? dst : src], width, there);
    for (int j = 0; j < 4; j++) points[j] = there[src < dst ? j : 3 - j];
    w->curves[i] = (struct copse_arrangement_curve){4, points};
  }
  return COPSE_OK;
}

/* ---- all together ------------------------------------------------------------------------- */

/* What is inside of a host: boxes, and the arcs over them. */
struct extent {
  double left, right, top, bottom;
};

static void extend(struct extent *e, double x, double y, double width, double height) {
  e->left = fmin(e->left, x - width / 2);
  e->right = fmax(e->right, x + width / 2);
  e->top = fmin(e->top, y - height / 2);
  e->bottom = fmax(e->bottom, y + height / 2);
}

static struct extent find_extent(const struct copse_arrangement_work *w, int g) {
  struct extent e = {INFINITY, -INFINITY, INFINITY, -INFINITY};
  for (int i = 0; i < w->parts[g].n_members; i++) {
    const struct copse_arrangement_box *box = &w->nodes[w->parts[g].members[i]];
    extend(&e, box->x, box->y, box->width, box->height);
  }
  for (int i = 0; i < w->topology->n_links; i++) {
    const struct copse_link *l = &w->topology->links[i];
    const struct copse_point *p = w->curves[i].points;
    if (w->group_of[l->src] != g || w->group_of[l->dst] != g) continue;
    for (int j = 0; j + 3 < w->curves[i].n_points; j += 3) /* the middle of each curve */
      extend(&e, (p[j].x + 3 * p[j + 1].x + 3 * p[j + 2].x + p[j + 3].x) / 8,
             (p[j].y + 3 * p[j + 1].y + 3 * p[j + 2].y + p[j + 3].y) / 8, 0, 0);
  }
  return e;
}

static copse_status make_frames(const struct copse_arrangement_work *w,
                                struct copse_arrangement *arrangement) {
  if (!w->framed) return COPSE_OK;
  struct copse_arrangement_group *groups;
  COPSE_DO(COPSE_ARRAY(w->arena, (size_t)w->n_parts, groups, w->err));
  for (int g = 0; g < w->n_parts; g++) {
    struct extent e = find_extent(w, g);
    e.top -= TITLE;
    e.right = fmax(e.right, e.left + 92); /* room for the name */
    groups[g].name = w->parts[g].name;
    groups[g].box =
        (struct copse_arrangement_box){(e.left + e.right) / 2, (e.top + e.bottom) / 2,
                                       e.right - e.left + 2 * FRAME, e.bottom - e.top + 2 * FRAME};
  }
  arrangement->n_groups = w->n_parts;
  arrangement->groups = groups;
  return COPSE_OK;
}

static void drop_arrangement(struct copse_arrangement **it) { copse_arrangement_free(*it); }

copse_status copse_arrangement_make(const struct copse_topology *t, struct copse_arrangement **out,
                                    struct copse_err *err) {
  COPSE_AT_END(drop_arrangement) struct copse_arrangement *arrangement = NULL;
  size_t n = (size_t)t->n_nodes;
  *out = NULL;
  if (t->n_nodes > COPSE_ARRANGEMENT_MAX_NODES || t->n_links > COPSE_ARRANGEMENT_MAX_LINKS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "%d nodes and %d links are too many for a picture: at most %d and %d",
                      t->n_nodes, t->n_links, COPSE_ARRANGEMENT_MAX_NODES,
                      COPSE_ARRANGEMENT_MAX_LINKS);
  COPSE_DO(copse_calloc(1, sizeof *arrangement, &arrangement, err));
  struct copse_arrangement_work w = {.topology = t, .arena = &arrangement->arena, .err = err};
  struct placing p = {.w = &w};
  COPSE_DO(COPSE_ARRAY(w.arena, n, w.nodes, err));
  COPSE_DO(COPSE_ARRAY(w.arena, n, w.labels, err));
  COPSE_DO(COPSE_ARRAY(w.arena, (size_t)t->n_links, w.curves, err));
  COPSE_DO(COPSE_ARRAYS(w.arena, n, int, err, &w.group_of, &w.local));
  COPSE_DO(copse_arrangement_parts(&w));
  COPSE_DO(place(&p));
  COPSE_DO(route_links(&w, p.width));
  COPSE_DO(make_frames(&w, arrangement));
  arrangement->topology = t;
  arrangement->width = p.width + 2 * MARGIN;
  arrangement->height = p.height + 2 * MARGIN;
  arrangement->nodes = w.nodes;
  arrangement->labels = w.labels;
  arrangement->curves = w.curves;
  arrangement->group_of = w.group_of;
  *out = arrangement;
  arrangement = NULL;
  return COPSE_OK;
}

void copse_arrangement_free(struct copse_arrangement *arrangement) {
  if (!arrangement) return;
  copse_arena_free(&arrangement->arena);
  free(arrangement);
}
