/* Graphviz as a filter: graphs of numbered boxes in, places and curves out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
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
      [COPSE_SHAPE_CIRCLE] = "layout=circo; mindist=0.75; splines=line;",
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
  int graph;
  double height; /* of the graph, to turn y around */
  const struct copse_arrangement_reader *reader;
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
  double scale, width, height;
  if (!next_number(p, &scale) || !next_number(p, &width) || !next_number(p, &height))
    return unexpected(p, "a graph without a size");
  p->height = height;
  return p->reader->graph(p->reader->ctx, ++p->graph, width * PIXELS_PER_INCH,
                          height * PIXELS_PER_INCH);
}

static copse_status read_node(struct parser *p) {
  int node;
  double x, y;
  if (p->graph < 0 || !next_int(p, &node) || !next_number(p, &x) || !next_number(p, &y))
    return unexpected(p, "a node without a place");
  return p->reader->node(p->reader->ctx, p->graph, node, x * PIXELS_PER_INCH,
                         (p->height - y) * PIXELS_PER_INCH);
}

static copse_status read_edge(struct parser *p) {
  struct copse_point points[MAX_POINTS];
  int from, to, n;
  if (p->graph < 0 || !next_int(p, &from) || !next_int(p, &to) || !next_int(p, &n) || n < 4 ||
      n > MAX_POINTS || n % 3 != 1)
    return unexpected(p, "an edge without a curve");
  for (int i = 0; i < n; i++) {
    if (!next_number(p, &points[i].x) || !next_number(p, &points[i].y))
      return unexpected(p, "a curve that ends early");
    points[i].x *= PIXELS_PER_INCH;
    points[i].y = (p->height - points[i].y) * PIXELS_PER_INCH;
  }
  return p->reader->edge(p->reader->ctx, p->graph, from, to, points, n);
}

static copse_status read_plain(char *data, const struct copse_arrangement_reader *reader,
                               struct copse_err *err) {
  struct parser p = {.graph = -1, .reader = reader, .err = err};
  copse_status status = COPSE_OK;
  char *rest = NULL;
  for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    p.at = line + strcspn(line, " ");
    if (strncmp(line, "graph ", 6) == 0)
      COPSE_TRY(read_graph(&p));
    else if (strncmp(line, "node ", 5) == 0)
      COPSE_TRY(read_node(&p));
    else if (strncmp(line, "edge ", 5) == 0)
      COPSE_TRY(read_edge(&p));
  }
out:
  return status;
}

copse_status copse_arrangement_run(const struct copse_text *graphs,
                                   const struct copse_arrangement_reader *reader,
                                   struct copse_err *err) {
  static char name[] = "dot", format[] = "-Tplain";
  char *const argv[] = {name, format, NULL};
  struct copse_err why = COPSE_ERR_INIT;
  char *out = NULL;
  size_t size;
  copse_status status =
      copse_process_filter(argv, graphs->data, graphs->size, SECONDS, MAX_BYTES, &out, &size, &why);
  if (status == COPSE_UNSUPPORTED)
    return copse_fail(err, status,
                      "pictures are laid out by Graphviz, and there is %s: install it (Debian and "
                      "Ubuntu: apt-get install graphviz)",
                      why.text);
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  status = read_plain(out, reader, err);
  free(out);
  return status;
}
