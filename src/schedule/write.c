/*
 * Writes schedule JSON, "copse-schedule/1"; read.c reads it.
 */
#include <inttypes.h>

#include "base/text.h"
#include "base/types.h"
#include "schedule/schedule.h"

/* Their ids; nodes NULL: the first n of all. */
static void add_nodes(struct copse_text *text, const struct copse_schedule *schedule,
                      const int *nodes, int n) {
  copse_text_add(text, "[");
  for (int i = 0; i < n; i++) {
    if (i > 0) copse_text_add(text, ",");
    copse_text_add_json_string(text, schedule->nodes[nodes ? nodes[i] : i]);
  }
  copse_text_add(text, "]");
}

static const char *phase_name(enum copse_phase phase) {
  return phase == COPSE_PHASE_REDUCE ? "reduce" : "broadcast";
}

/* "src>dst": length, integers as numbers. */
static void add_lengths(struct copse_text *text, const struct copse_schedule *schedule,
                        const struct copse_schedule_length *lengths, int n) {
  copse_text_add(text, ",\n  \"lengths\": {");
  for (int i = 0; i < n; i++) {
    const struct copse_schedule_length *l = &lengths[i];
    struct copse_text key = {0};
    copse_text_add(&key, "%s>%s", schedule->nodes[l->src], schedule->nodes[l->dst]);
    if (key.failed) text->failed = true;
    copse_text_add(text, "%s\n   ", i > 0 ? "," : "");
    if (!key.failed) copse_text_add_json_string(text, key.data);
    copse_text_add(text, ": ");
    if (l->length.den == 1)
      copse_text_add(text, "%" PRId64, l->length.num);
    else
      copse_text_add(text, "\"%s\"", COPSE_Q_STRING(l->length));
    copse_text_free(&key);
  }
  copse_text_add(text, "}");
}

/* The certificate over all forests with common shares: cuts with weights, and potentials. */
static void add_cuts(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_bound *bound = &schedule->bound;
  copse_text_add(text, ", \"kind\": \"forests\",\n  \"cuts\": [");
  for (int i = 0; i < bound->n_cuts; i++) {
    const struct copse_schedule_cut *cut = &bound->cuts[i];
    copse_text_add(text,
                   "%s\n   {\"phase\": \"%s\", \"weight\": \"%s\", \"cut\": ", i > 0 ? "," : "",
                   phase_name(cut->phase), COPSE_Q_STRING(cut->weight));
    add_nodes(text, schedule, cut->nodes, cut->n_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "],\n  \"potentials\": [");
  for (int i = 0; i < bound->n_potentials; i++) {
    copse_text_add(text, "%s\n   {\"node\": ", i > 0 ? "," : "");
    copse_text_add_json_string(text, schedule->nodes[bound->potentials[i].node]);
    copse_text_add(text, ", \"value\": \"%s\"}", COPSE_Q_STRING(bound->potentials[i].value));
  }
  copse_text_add(text, "]");
}

static void add_bound(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_bound *bound = &schedule->bound;
  copse_text_add(text, " \"bound\": {\"time_per_GB\": \"%s\"", COPSE_Q_STRING(bound->time_per_GB));
  if (bound->kind != COPSE_BOUND_LENGTHS &&
      (bound->kind != COPSE_BOUND_FORESTS || bound->n_cut > 0)) {
    copse_text_add(text, ", \"cut\": ");
    add_nodes(text, schedule, bound->cut, bound->n_cut);
  }
  if (bound->kind == COPSE_BOUND_PHASES) {
    copse_text_add(text, ",\n  \"kind\": \"phases\", \"reduce_cut\": ");
    add_nodes(text, schedule, bound->reduce_cut, bound->n_reduce_cut);
  }
  if (bound->kind == COPSE_BOUND_LENGTHS)
    add_lengths(text, schedule, bound->lengths, bound->n_lengths);
  if (bound->kind == COPSE_BOUND_FORESTS) add_cuts(text, schedule);
  copse_text_add(text, "},\n");
}

static void add_routes(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_schedule_routes *routes = schedule->routes;
  copse_text_add(text, " \"routes\": {\"time_per_GB\": \"%s\"",
                 COPSE_Q_STRING(routes->time_per_GB));
  add_lengths(text, schedule, routes->lengths, routes->n_lengths);
  copse_text_add(text, "},\n");
}

static void add_objective(struct copse_text *text, const struct copse_schedule_objective *o) {
  if (o->bytes == 0) return;
  copse_text_add(text, " \"objective\": {\"bytes\": %" PRId64 ", \"chunks\": %d", o->bytes,
                 o->chunks);
  if (o->fifo > 0) copse_text_add(text, ", \"fifo\": %d", o->fifo);
  copse_text_add(text, ", \"alpha_us\": \"%s\"%s%s},\n", COPSE_Q_STRING(o->alpha_us),
                 o->alpha_occupies ? ", \"alpha_occupies\": true" : "",
                 o->far_first ? ", \"far_first\": true" : "");
}

static void add_parts(struct copse_text *text, const struct copse_schedule *schedule,
                      const char *key, const struct copse_schedule_part *parts, int n, bool timed) {
  for (int i = 0; i < n; i++) {
    if (i == 0) copse_text_add(text, ",\n  \"%s\": [", key);
    copse_text_add(text, "%s\n   {", i > 0 ? "," : "");
    if (timed) copse_text_add(text, "\"us\": \"%s\", ", COPSE_Q_STRING(parts[i].us));
    copse_text_add(text, "\"nodes\": ");
    add_nodes(text, schedule, parts[i].nodes, parts[i].n_nodes);
    copse_text_add(text, i + 1 < n ? "}" : "}]");
  }
}

static void add_bound_at(struct copse_text *text, const struct copse_schedule *schedule) {
  static const char *const kinds[] = {"cut", "volume", "lengths"};
  const struct copse_bound_at *at = schedule->bound_at;
  copse_text_add(text,
                 " \"bound_at\": {\"bytes\": %" PRId64
                 ", \"alpha_us\": \"%s\", \"us\": \"%s\", \"kind\": \"%s\"",
                 at->bytes, COPSE_Q_STRING(at->alpha_us), COPSE_Q_STRING(at->us), kinds[at->kind]);
  if (at->rank >= 0) copse_text_add(text, ", \"rank\": %d", at->rank);
  if (at->reversed) copse_text_add(text, ", \"reversed\": true");
  add_parts(text, schedule, "parts", at->parts, at->n_parts, false);
  add_parts(text, schedule, "times", at->times, at->n_times, true);
  copse_text_add(text, "},\n");
}

static void add_edges(struct copse_text *text, const struct copse_schedule *schedule,
                      const struct copse_schedule_edge *edges, int n) {
  copse_text_add(text, ", \"edges\": [");
  for (int i = 0; i < n; i++) {
    copse_text_add(text, "%s\n   {\"src\": %d, \"dst\": %d, \"path\": ", i > 0 ? "," : "",
                   edges[i].src, edges[i].dst);
    add_nodes(text, schedule, edges[i].path, edges[i].n_path);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]}");
}

static void add_tree(struct copse_text *text, const struct copse_schedule *schedule,
                     const struct copse_schedule_tree *tree) {
  copse_text_add(text, "  {\"root\": %d, \"phase\": \"%s\", \"weight\": \"%s\"", tree->root,
                 phase_name(tree->phase), COPSE_Q_STRING(tree->weight));
  if (tree->stage > 0)
    copse_text_add(text, ", \"piece\": %d, \"stage\": %d", tree->piece, tree->stage);
  add_edges(text, schedule, tree->edges, tree->n_edges);
}

static void add_change(struct copse_text *text, const struct copse_schedule *schedule,
                       const struct copse_schedule_change *change) {
  copse_text_add(text, "  {\"tree\": %d, \"image\": %" PRId64 ", \"weight\": \"%s\"", change->tree,
                 change->image, COPSE_Q_STRING(change->weight));
  add_edges(text, schedule, change->edges, change->n_edges);
}

static void add_flow(struct copse_text *text, const struct copse_schedule *schedule,
                     const struct copse_schedule_flow *flow) {
  copse_text_add(text, "  {\"src\": %d, \"dst\": %d, \"paths\": [", flow->src, flow->dst);
  for (int i = 0; i < flow->n_paths; i++) {
    copse_text_add(text, "%s\n   {\"path\": ", i > 0 ? "," : "");
    add_nodes(text, schedule, flow->paths[i].nodes, flow->paths[i].n_nodes);
    copse_text_add(text, ", \"weight\": \"%s\"}", COPSE_Q_STRING(flow->paths[i].weight));
  }
  copse_text_add(text, "]}");
}

static void add_demand(struct copse_text *text, const struct copse_schedule *schedule) {
  int n = schedule->n_ranks;
  copse_text_add(text, " \"demand\": [");
  for (int i = 0; i < n; i++) {
    copse_text_add(text, "%s\n  [", i > 0 ? "," : "");
    for (int j = 0; j < n; j++)
      copse_text_add(text, "%s%" PRId64, j > 0 ? "," : "",
                     schedule->demand[(size_t)i * (size_t)n + (size_t)j]);
    copse_text_add(text, "]");
  }
  copse_text_add(text, "],\n");
}

/* The compact form's permutation: a list of nodes and the list of their images. */
static void add_rotation(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_permutation *rotation = &schedule->rotations[0];
  copse_text_add(text, " \"rotation\": {\"order\": %d,\n  \"nodes\": ", rotation->order);
  add_nodes(text, schedule, NULL, schedule->n_nodes);
  copse_text_add(text, ",\n  \"images\": ");
  add_nodes(text, schedule, rotation->image, schedule->n_nodes);
  copse_text_add(text, "},\n");
}

static void add_symmetry(struct copse_text *text, const struct copse_schedule *schedule) {
  copse_text_add(text, " \"symmetry\": {\"nodes\": ");
  add_nodes(text, schedule, NULL, schedule->n_nodes);
  if (schedule->n_absent > 0) {
    copse_text_add(text, ",\n  \"absent\": ");
    add_nodes(text, schedule, schedule->rank_nodes + schedule->n_ranks, schedule->n_absent);
  }
  copse_text_add(text, ",\n  \"generators\": [");
  for (int i = 0; i < schedule->n_rotations; i++) {
    copse_text_add(text, "%s\n   {\"order\": %d, \"images\": ", i > 0 ? "," : "",
                   schedule->rotations[i].order);
    add_nodes(text, schedule, schedule->rotations[i].image, schedule->n_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]},\n");
}

static void add_flows(struct copse_text *text, const struct copse_schedule *schedule) {
  if (schedule->demand) add_demand(text, schedule);
  if (schedule->no_forward) copse_text_add(text, " \"forward\": false,\n");
  if (schedule->n_rotations > 0) add_rotation(text, schedule);
  copse_text_add(text, " \"flows\": [");
  for (int i = 0; i < schedule->n_flows; i++) {
    copse_text_add(text, "%s\n", i > 0 ? "," : "");
    add_flow(text, schedule, &schedule->flows[i]);
  }
  copse_text_add(text, "\n ]}\n");
}

static void add_switches(struct copse_text *text, const struct copse_schedule *schedule) {
  copse_text_add(text, ",\n \"in_network\": {\"multicast\": ");
  add_nodes(text, schedule, schedule->copying, schedule->n_copying);
  copse_text_add(text, ", \"aggregation\": ");
  add_nodes(text, schedule, schedule->adding, schedule->n_adding);
  copse_text_add(text, "}");
}

static void add_trees(struct copse_text *text, const struct copse_schedule *schedule) {
  if (schedule->n_rotations > 0) add_symmetry(text, schedule);
  copse_text_add(text, " \"trees\": [");
  for (int i = 0; i < schedule->n_trees; i++) {
    copse_text_add(text, "%s\n", i > 0 ? "," : "");
    add_tree(text, schedule, &schedule->trees[i]);
  }
  if (schedule->excepted) copse_text_add(text, "\n ],\n \"changes\": [");
  for (int i = 0; i < schedule->n_changes; i++) {
    copse_text_add(text, "%s\n", i > 0 ? "," : "");
    add_change(text, schedule, &schedule->changes[i]);
  }
  copse_text_add(text, "\n ]}\n");
}

copse_status copse_schedule_to_json(const struct copse_schedule *schedule, char **out, size_t *size,
                                    struct copse_err *err) {
  struct copse_text text = {0};
  copse_text_add(&text, COPSE_JSON_HEAD("schedule") ", \"collective\": \"%s\",",
                 copse_collective_name(schedule->collective));
  if (schedule->root >= 0) copse_text_add(&text, " \"root\": %d,", schedule->root);
  copse_text_add(&text, "\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&text, schedule->topology_name);
  copse_text_add(&text, ", \"sha256\": \"%s\"},\n \"ranks\": ", schedule->topology_sha256);
  add_nodes(&text, schedule, schedule->rank_nodes, schedule->n_ranks);
  if (schedule->others_excluded) copse_text_add(&text, ", \"others\": \"exclude\"");
  if (schedule->n_copying + schedule->n_adding > 0) add_switches(&text, schedule);
  if (schedule->collective != COPSE_ALLTOALL)
    copse_text_add(&text, ", \"k\": %" PRId64, schedule->k);
  copse_text_add(&text, ",\n \"time_per_GB\": \"%s\", \"algbw_GBps\": ",
                 COPSE_Q_STRING(schedule->time_per_GB));
  copse_text_add_json_number(&text, copse_schedule_algbw(schedule));
  copse_text_add(&text, ",\n");
  add_objective(&text, &schedule->objective);
  add_bound(&text, schedule);
  if (schedule->bound_at) add_bound_at(&text, schedule);
  if (schedule->routes) add_routes(&text, schedule);
  if (schedule->collective == COPSE_ALLTOALL)
    add_flows(&text, schedule);
  else
    add_trees(&text, schedule);
  return copse_text_take(&text, out, size, err);
}
