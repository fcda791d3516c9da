/* The picture of a topology by itself: its bandwidths. */
#include <stdio.h>
#include <stdlib.h>

#include "view/draw.h"

/* Links of one bandwidth, or of a range where there are too many values. */
struct band {
  struct copse_q least, most;
  int n;
};

static int faster_first(const void *a, const void *b) {
  return copse_q_cmp(*(const struct copse_q *)b, *(const struct copse_q *)a);
}

/* Distinct values, the fastest first; returns how many. */
static int find_values(const struct copse_topology *t, struct copse_q *values) {
  int n = 0;
  for (int i = 0; i < t->n_links; i++) values[i] = t->links[i].bandwidth;
  if (t->n_links > 0) qsort(values, (size_t)t->n_links, sizeof *values, faster_first);
  for (int i = 0; i < t->n_links; i++)
    if (n == 0 || !copse_q_eq(values[i], values[n - 1])) values[n++] = values[i];
  return n;
}

static int find_bands(const struct copse_topology *t, struct copse_q *values,
                      struct band bands[COPSE_LINK_BANDS], struct copse_link_mark *marks) {
  int n_values = find_values(t, values);
  int n = n_values < COPSE_LINK_BANDS ? n_values : COPSE_LINK_BANDS;
  for (int b = 0; b < n; b++)
    bands[b] = (struct band){values[(b + 1) * n_values / n - 1], values[b * n_values / n], 0};
  for (int i = 0; i < t->n_links; i++) {
    int b = 0;
    while (copse_q_cmp(t->links[i].bandwidth, bands[b].least) < 0) b++;
    bands[b].n++;
    marks[i] = (struct copse_link_mark){.style = COPSE_LINK_BAND + b};
  }
  return n;
}

static char *band_text(struct copse_arena *arena, const struct band *band) {
  char least[COPSE_DRAW_QUANTITY], most[COPSE_DRAW_QUANTITY];
  size_t size = 2 * COPSE_DRAW_QUANTITY + 48;
  char *text = copse_arena_alloc(arena, size, 1);
  if (!text) return NULL;
  copse_draw_quantity(band->least, "GB/s", least);
  copse_draw_quantity(band->most, "GB/s", most);
  if (copse_q_eq(band->least, band->most))
    snprintf(text, size, "%s \xc3\x97 %d", most, band->n);
  else
    snprintf(text, size, "%s to %s \xc3\x97 %d", least, most, band->n);
  return text;
}

copse_status copse_topology_draw(const struct copse_topology *t,
                                 const struct copse_arrangement *arrangement, bool inlined,
                                 struct copse_text *text, struct copse_err *err) {
  struct copse_arena arena = {0};
  struct band bands[COPSE_LINK_BANDS];
  struct copse_legend_entry legend[COPSE_LINK_BANDS + 1];
  char subtitle[128];
  copse_status status = COPSE_OK;
  size_t n_links = (size_t)t->n_links;
  struct copse_q *values = copse_arena_alloc(&arena, n_links, sizeof *values);
  struct copse_link_mark *marks = copse_arena_alloc(&arena, n_links, sizeof *marks);
  if (!values || !marks) goto nomem;
  int n = find_bands(t, values, bands, marks);
  for (int b = 0; b < n; b++) {
    char *entry = band_text(&arena, &bands[b]);
    if (!entry) goto nomem;
    legend[b] = (struct copse_legend_entry){COPSE_LEGEND_LINK, COPSE_LINK_BAND + b, entry};
  }
  if (n > 0)
    legend[n] = (struct copse_legend_entry){
        COPSE_LEGEND_TEXT, 0, "bandwidth per direction \xc3\x97 links; an arrow: that way only"};
  snprintf(subtitle, sizeof subtitle, "%d ranks, %d nodes, %d links (directed)", t->n_ranks,
           t->n_nodes, t->n_links);
  struct copse_drawing drawing = {.topology = t,
                                  .arrangement = arrangement,
                                  .title = t->name,
                                  .subtitle = subtitle,
                                  .links = marks,
                                  .legend = legend,
                                  .n_legend = n > 0 ? n + 1 : 0};
  copse_draw(&drawing, inlined, text);
  status = copse_text_status(text, err);
  goto out;
nomem:
  status = copse_fail_nomem(err);
out:
  copse_arena_free(&arena);
  return status;
}
