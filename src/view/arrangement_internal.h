/* What the parts of the arrangement share. */
#pragma once

#include "base/text.h"
#include "view/arrangement.h"

/* A group's nodes: those of a host, or all nodes where there are no hosts. */
struct copse_arrangement_part {
  const char *name; /* "" for no frame */
  int n_members;
  const int *members;                  /* node indices */
  struct copse_arrangement_box *boxes; /* [n_members] inside the part, set by Graphviz */
  double width, height;
};

struct copse_arrangement_work {
  const struct copse_topology *topology;
  struct copse_arena *arena;
  struct copse_arrangement_box *nodes;
  const char **labels;
  struct copse_arrangement_curve *curves;
  int *group_of;
  int *local; /* [n_nodes] index in its part */
  int n_parts;
  struct copse_arrangement_part *parts;
  bool framed; /* parts are hosts */
  struct copse_err *err;
};

/* Sets group_of, parts and labels, and sizes of nodes; then lays each part out: boxes, size, and
 * the curves of links inside of it, all relative to it. */
copse_status copse_arrangement_parts(struct copse_arrangement_work *work) COPSE_CHECKED;

/* A graph of boxes, node i being named i, and how Graphviz is to lay it out: in rows, where the
 * boxes of a circle are pinned, by springs (the length of an edge in inches as its `len`), or in
 * rings around the middle, the first of which has room for so many boxes. */
enum copse_arrangement_shape {
  COPSE_SHAPE_ROWS,
  COPSE_SHAPE_CIRCLE,
  COPSE_SHAPE_SPRINGS,
  COPSE_SHAPE_RINGS
};
void copse_arrangement_graph_begin(struct copse_text *text, enum copse_arrangement_shape shape,
                                   int ring);
void copse_arrangement_graph_node(struct copse_text *text, int i, double width, double height);
/* Pins a node, in pixels, y upwards. */
static inline void copse_arrangement_graph_pin(struct copse_text *text, int i, double x, double y) {
  copse_text_add(text, " %d [pos=\"%.2f,%.2f!\"];\n", i, x, y);
}

/* What Graphviz makes of a graph: its size, centres of boxes by name (y downwards), and Bezier
 * curves from box to box. */
struct copse_layout_edge {
  int from, to;
  struct copse_arrangement_curve curve;
};
struct copse_graph_layout {
  double width, height;
  int n_nodes;               /* set by the caller: names are 0 .. n_nodes - 1 */
  struct copse_point *nodes; /* [n_nodes] NAN for a name that the graph lacks */
  struct copse_layout_edge *edges;
  size_t n_edges, edges_capacity;
};

/* Runs Graphviz over graphs [n] in one text. COPSE_IO for output that isn't what was asked for.
 * `arena` has the points and edges. */
copse_status copse_arrangement_run(const struct copse_text *graphs,
                                   struct copse_graph_layout *layouts, int n,
                                   struct copse_arena *arena, struct copse_err *err) COPSE_CHECKED;
