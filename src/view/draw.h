/*
 * Pictures as SVG. Every node and every direction of every link is in the picture, as an
 * element with data-node or data-links and a <title> (what a browser shows on hovering) that
 * names it in full with its exact numbers. Names are escaped, whatever they are.
 *
 *   question                                          function
 *   -----------------------------------------------   -------------------------------
 *   a picture of a topology, links by bandwidth       copse_topology_draw
 *   a picture with other marks on links and nodes     copse_draw
 */
#pragma once

#include "base/text.h"
#include "view/arrangement.h"

/* How a link is drawn: a class of copse_draw_css. Later ones are drawn over earlier ones. */
enum copse_link_style {
  COPSE_LINK_FAINT,
  COPSE_LINK_BAND, /* + 0 (the fastest) .. COPSE_LINK_BANDS - 1 */
#define COPSE_LINK_BANDS 8
  COPSE_LINK_LOAD = COPSE_LINK_BAND + COPSE_LINK_BANDS, /* + 0 (idle) .. , the last: the most */
#define COPSE_LINK_LOADS 8
  COPSE_LINK_HOP = COPSE_LINK_LOAD + COPSE_LINK_LOADS, /* + 0 (the first) .. */
#define COPSE_LINK_HOPS 8
  COPSE_LINK_STYLES = COPSE_LINK_HOP + COPSE_LINK_HOPS
};

struct copse_link_mark {
  int style;         /* enum copse_link_style */
  bool glow;         /* of a cut */
  const char *note;  /* after the link's own line in its title; NULL for none */
  const char *label; /* on the link; NULL for none */
};

struct copse_node_mark {
  bool ring;  /* inside a cut */
  bool solid; /* the root */
};

struct copse_legend_entry {
  enum {
    COPSE_LEGEND_LINK,
    COPSE_LEGEND_GLOW,
    COPSE_LEGEND_RING,
    COPSE_LEGEND_TEXT, /* on a row of its own */
    COPSE_LEGEND_TYPE, /* of nodes: those of a picture come by themselves */
    COPSE_LEGEND_DEAD  /* likewise */
  } kind;
  int style; /* of a COPSE_LEGEND_LINK */
  const char *text;
};

struct copse_drawing {
  const struct copse_topology *topology;
  /* The arrangement of the topology, or of the topology before parts of it went down; these parts
   * are crossed out. */
  const struct copse_arrangement *arrangement;
  const char *title, *subtitle;
  bool directed; /* each direction a line of its own; else one line for two alike */
  const struct copse_link_mark *links; /* [n_links] */
  const struct copse_node_mark *nodes; /* [n_nodes], or NULL */
  const struct copse_legend_entry *legend;
  int n_legend;
};

/* draw.css, made into a string by the Makefile; each picture has it in itself unless it is inlined
 * in a page. */
extern const char copse_draw_css[];

/* Appends one <svg> element; `inlined`: as part of a page that has copse_draw_css. */
void copse_draw(const struct copse_drawing *drawing, bool inlined, struct copse_text *text);

/* Draws the picture of a topology: widths and colours by bandwidth, the same in all pictures, with
 * a legend of the values and how many links have them. `inlined` as above. COPSE_NOMEM. */
copse_status copse_topology_draw(const struct copse_topology *topology,
                                 const struct copse_arrangement *arrangement, bool inlined,
                                 struct copse_text *text, struct copse_err *err) COPSE_CHECKED;

/* "625/2 GB/s (312.5)": exact, with the decimal beside where it differs. */
#define COPSE_DRAW_QUANTITY (COPSE_Q_TEXT + 40)
const char *copse_draw_quantity(struct copse_q q, const char *unit, char text[COPSE_DRAW_QUANTITY]);
/* The same for printf; lasts as long as the block it stands in. */
#define COPSE_QUANTITY(q, unit) copse_draw_quantity((q), (unit), (char[COPSE_DRAW_QUANTITY]){0})
