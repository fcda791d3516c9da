/* What the script of the report steps through. */
#include <string.h>

#include "base/collective.h"
#include "view/report.h"
#include "view/draw_schedule.h"

/* A JSON string without '<', '>' and '&', which neither HTML nor XML then sees as markup. */
static void add_string(struct copse_text *text, const char *s) {
  struct copse_text json = {0};
  copse_text_add_json_string(&json, s);
  if (json.failed) text->failed = true;
  for (const char *p = json.data; p && *p; p++) {
    if (strchr("<>&", *p))
      copse_text_add(text, "\\u%04x", (unsigned char)*p);
    else
      copse_text_append(text, p, 1);
  }
  copse_text_free(&json);
}

struct writer {
  const struct copse_report *report;
  struct copse_text *text;
  bool first;
};

/* [src, dst, step, [links]] */
static copse_status add_hop(void *ctx, const struct copse_schedule_hop *hop) {
  struct writer *w = ctx;
  copse_text_add(w->text, "%s[%d,%d,%d,[", w->first ? "" : ",", hop->src, hop->dst, hop->step);
  for (int i = 0; i + 1 < hop->n_path; i++)
    copse_text_add(w->text, "%s%d", i > 0 ? "," : "",
                   copse_topology_find_link(w->report->topology, hop->path[i], hop->path[i + 1]));
  copse_text_add(w->text, "]]");
  w->first = false;
  return COPSE_OK;
}

static void add_part_head(struct writer *w, int part) {
  const struct copse_schedule *s = w->report->schedule;
  char weight[COPSE_DRAW_QUANTITY];
  if (s->collective == COPSE_ALLTOALL) {
    copse_text_add(w->text, "{\"name\":\"all that rank %d sends\",\"root\":%d,\"hops\":[", part,
                   part);
    return;
  }
  const struct copse_schedule_tree *tree = &s->trees[part];
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  copse_text_add(w->text, "{\"name\":\"tree %d: %s %s rank %d, %s\",\"root\":%d,\"hops\":[", part,
                 reduce ? "reduce" : "broadcast", reduce ? "to" : "from", tree->root,
                 copse_draw_quantity(tree->weight, "of M", weight), tree->root);
}

copse_status copse_report_data(const struct copse_report *r, struct copse_text *text,
                               struct copse_err *err) {
  struct writer w = {.report = r, .text = text};
  const struct copse_topology *t = r->topology;
  copse_status status;
  copse_text_add(text, "{\"nodes\":[");
  for (int v = 0; v < t->n_nodes; v++) {
    if (v > 0) copse_text_add(text, ",");
    add_string(text, t->nodes[v].id);
  }
  copse_text_add(text, "],\"ranks\":[");
  for (int i = 0; i < t->n_ranks; i++) copse_text_add(text, "%s%d", i ? "," : "", t->rank_nodes[i]);
  copse_text_add(text, "],\"links\":[");
  for (int i = 0; i < t->n_links; i++)
    copse_text_add(text, "%s[%d,%d]", i ? "," : "", t->links[i].src, t->links[i].dst);
  copse_text_add(text, "],\"parts\":[");
  for (int part = 0; part < copse_schedule_parts(r->schedule); part++) {
    copse_text_add(text, part > 0 ? ",\n" : "\n");
    add_part_head(&w, part);
    w.first = true;
    COPSE_TRY(copse_schedule_walk(r->schedule, part, add_hop, &w, err));
    copse_text_add(text, "]}");
  }
  copse_text_add(text, "]}");
  status = copse_text_status(text, err);
out:
  return status;
}
