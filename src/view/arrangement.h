/*
 * Where things go in a picture of a topology. Graphviz (its program `dot`, as a filter) lays
 * out the inside of each host, or a topology without hosts as a whole; hosts and the fabric
 * between them are placed so that the fabric lies in the middle and hosts above and below.
 * Graphviz sees numbers only, never a name of the file.
 */
#pragma once

#include "base/memory.h"
#include "topology/topology.h"

/* Pictures of more than this are no use to anybody. */
#define COPSE_ARRANGEMENT_MAX_NODES 2500
#define COPSE_ARRANGEMENT_MAX_LINKS 20000

struct copse_point {
  double x, y;
};

struct copse_arrangement_box {
  double x, y; /* of the centre, in pixels; y grows downwards */
  double width, height;
};

/* Bezier curves in a row: points[0], and three more for each. */
struct copse_arrangement_curve {
  int n_points; /* 4, 7, 10, ... */
  const struct copse_point *points;
};

struct copse_arrangement_group {
  struct copse_arrangement_box box;
  const char *name;
};

struct copse_arrangement {
  const struct copse_topology *topology; /* the topology that it shows; borrowed */
  double width, height;
  const struct copse_arrangement_box *nodes;    /* [n_nodes of the topology] */
  const char *const *labels;                    /* [n_nodes] what fits into the box: a short id */
  const struct copse_arrangement_curve *curves; /* [n_links], from src to dst; the other direction
                                              of a link has the same curve turned around */
  int n_groups;                                 /* hosts; 0 where there are none to tell */
  const struct copse_arrangement_group *groups;
  const int *group_of; /* [n_nodes], -1: in the fabric */
  struct copse_arena arena;
};

/*
 * Arranges a topology; the caller frees *out with copse_arrangement_free. COPSE_UNSUPPORTED
 * without Graphviz, saying what to install, and for a topology beyond the limits above;
 * COPSE_NOMEM (also if Graphviz takes longer than a minute), COPSE_IO. The same topology gives the
 * same arrangement with the same version of Graphviz.
 */
copse_status copse_arrangement_make(const struct copse_topology *topology,
                                    struct copse_arrangement **out,
                                    struct copse_err *err) COPSE_CHECKED;
void copse_arrangement_free(struct copse_arrangement *arrangement);
