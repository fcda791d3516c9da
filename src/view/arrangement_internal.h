/* What the parts of the arrangement share. */
#ifndef COPSE_VIEW_ARRANGEMENT_INTERNAL_H
#define COPSE_VIEW_ARRANGEMENT_INTERNAL_H

#include <stdbool.h>

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

/* Sets group_of, parts and labels; sizes of nodes. */
copse_status copse_arrangement_find_parts(struct copse_arrangement_work *work) COPSE_CHECKED;

/* Lays each part out: boxes, size, and the curves of links inside of it, all relative to it. */
copse_status copse_arrangement_parts(struct copse_arrangement_work *work) COPSE_CHECKED;

/* A graph of boxes, node i being named i, and how Graphviz is to lay it out: in rows, in a
 * circle, by springs (the length of an edge in inches as its `len`), or in rings around the
 * middle, the first of which has room for so many boxes. */
enum copse_arrangement_shape {
  COPSE_SHAPE_ROWS,
  COPSE_SHAPE_CIRCLE,
  COPSE_SHAPE_SPRINGS,
  COPSE_SHAPE_RINGS
};
void copse_arrangement_graph_begin(struct copse_text *text, enum copse_arrangement_shape shape,
                                   int ring);
void copse_arrangement_graph_node(struct copse_text *text, int i, double width, double height);

/*
 * Runs Graphviz over graphs in one text; calls node (centre, y downwards) and edge (points of a
 * Bezier curve) for each. COPSE_IO for output that isn't what was asked for.
 */
struct copse_arrangement_reader {
  void *ctx;
  copse_status (*graph)(void *ctx, int graph, double width, double height);
  copse_status (*node)(void *ctx, int graph, int node, double x, double y);
  copse_status (*edge)(void *ctx, int graph, int from, int to, const struct copse_point *points,
                       int n_points);
};
copse_status copse_arrangement_run(const struct copse_text *graphs,
                                   const struct copse_arrangement_reader *reader,
                                   struct copse_err *err) COPSE_CHECKED;

#endif
