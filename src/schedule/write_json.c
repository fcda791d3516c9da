#include <inttypes.h>

#include "base/text.h"
#include "schedule/collective.h"
#include "schedule/schedule.h"

static void add_rational(struct copse_text *text, struct copse_q q) {
  char buffer[COPSE_Q_TEXT];
  copse_text_add(text, "\"%s\"", copse_q_text(q, buffer));
}

static void add_nodes(struct copse_text *text, const struct copse_schedule *schedule,
                      const int *nodes, int n) {
  copse_text_add(text, "[");
  for (int i = 0; i < n; i++) {
    if (i > 0) copse_text_add(text, ",");
    copse_text_add_json_string(text, schedule->nodes[nodes[i]]);
  }
  copse_text_add(text, "]");
}

static void add_bound(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_bound *bound = &schedule->bound;
  copse_text_add(text, " \"bound\": {\"time_per_GB\": ");
  add_rational(text, bound->time_per_GB);
  copse_text_add(text, ", \"cut\": ");
  add_nodes(text, schedule, bound->cut, bound->n_cut);
  if (bound->kind == COPSE_BOUND_PHASES) {
    copse_text_add(text, ",\n  \"kind\": \"phases\", \"reduce_cut\": ");
    add_nodes(text, schedule, bound->reduce_cut, bound->n_reduce_cut);
  }
  copse_text_add(text, "},\n");
}

static void add_tree(struct copse_text *text, const struct copse_schedule *schedule,
                     const struct copse_schedule_tree *tree) {
  copse_text_add(text, "  {\"root\": %d, \"phase\": \"%s\", \"weight\": ", tree->root,
                 tree->phase == COPSE_PHASE_REDUCE ? "reduce" : "broadcast");
  add_rational(text, tree->weight);
  copse_text_add(text, ", \"edges\": [");
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *edge = &tree->edges[i];
    copse_text_add(text, "%s\n   {\"src\": %d, \"dst\": %d, \"path\": ", i > 0 ? "," : "",
                   edge->src, edge->dst);
    add_nodes(text, schedule, edge->path, edge->n_path);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]}");
}

copse_status copse_schedule_to_json(const struct copse_schedule *schedule, char **out, size_t *size,
                                    struct copse_err *err) {
  struct copse_text text = {0};
  copse_text_add(&text, "{\"format\": \"copse-schedule/1\", \"collective\": \"%s\",",
                 copse_schedule_collective_name(schedule->collective));
  if (schedule->root >= 0) copse_text_add(&text, " \"root\": %d,", schedule->root);
  copse_text_add(&text, "\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&text, schedule->topology_name);
  copse_text_add(&text, ", \"sha256\": \"%s\"},\n \"ranks\": ", schedule->topology_sha256);
  add_nodes(&text, schedule, schedule->rank_nodes, schedule->n_ranks);
  copse_text_add(&text, ", \"k\": %" PRId64 ",\n \"time_per_GB\": ", schedule->k);
  add_rational(&text, schedule->time_per_GB);
  copse_text_add(&text, ", \"algbw_GBps\": ");
  copse_text_add_json_number(&text, copse_schedule_algbw(schedule));
  copse_text_add(&text, ",\n");
  add_bound(&text, schedule);
  copse_text_add(&text, " \"trees\": [");
  for (int i = 0; i < schedule->n_trees; i++) {
    copse_text_add(&text, "%s\n", i > 0 ? "," : "");
    add_tree(&text, schedule, &schedule->trees[i]);
  }
  copse_text_add(&text, "\n ]}\n");
  copse_status status = copse_text_status(&text, err);
  if (status != COPSE_OK) {
    copse_text_free(&text);
    return status;
  }
  *out = text.data;
  *size = text.size;
  return COPSE_OK;
}
