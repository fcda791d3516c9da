/* What the pictures of schedules share: marks and a legend that grow in an arena. */
#ifndef COPSE_VIEW_DRAW_INTERNAL_H
#define COPSE_VIEW_DRAW_INTERNAL_H

#include "view/draw_schedule.h"

#define COPSE_PICTURE_LEGEND 24

struct copse_schedule_picture {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  struct copse_link_mark *links; /* [n_links], faint at first */
  struct copse_node_mark *nodes;
  const char *title, *subtitle;
  struct copse_legend_entry legend[COPSE_PICTURE_LEGEND];
  int n_legend;
  bool failed; /* memory ran out */
  struct copse_arena arena;
  struct copse_err *err;
};

/* Makes the marks, and checks that the schedule's nodes are the topology's. */
copse_status copse_picture_start(struct copse_schedule_picture *picture) COPSE_CHECKED;

/* A text in the arena; "" when memory ran out, which copse_picture_finish reports. */
const char *copse_picture_format(struct copse_schedule_picture *picture, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

void copse_picture_explain(struct copse_schedule_picture *picture, int kind, int style,
                           const char *text);

copse_status copse_picture_finish(struct copse_schedule_picture *picture,
                                  const struct copse_arrangement *arrangement, bool inlined,
                                  struct copse_text *text) COPSE_CHECKED;

#endif
