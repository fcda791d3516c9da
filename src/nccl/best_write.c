/* Certificates of rings and chains (docs/nccl-rings.md): one channel, and one length, a line. */
#include "nccl/best.h"

#include <inttypes.h>

#include "base/text.h"

struct writer {
  const struct copse_nccl_best *best;
  const struct copse_topology *topology;
  struct copse_nccl_machine machine;
  struct copse_text text;
};

static void add_node(struct writer *w, int node) {
  copse_text_add_json_string(&w->text, w->topology->nodes[node].id);
}

static void add_channel(struct writer *w, const struct copse_nccl_channel *channel) {
  const int *nodes = w->topology->rank_nodes;
  copse_text_add(&w->text, "    {\"gpus\": [");
  for (int i = 0; i < channel->n_gpus; i++) {
    copse_text_add(&w->text, "%s", i > 0 ? "," : "");
    add_node(w, nodes[copse_nccl_find_rank(&w->machine, 0, channel->devs[i])]);
  }
  copse_text_add(&w->text, "]");
  for (int i = 0; i < channel->n_nets; i++) {
    int port = copse_nccl_find_port(&w->machine, 0, channel->nets[i]);
    copse_text_add(&w->text, "%s", i == 0 ? ", \"nics\": [" : ",");
    add_node(w, w->machine.ports[port].node);
  }
  copse_text_add(&w->text, "%s}", channel->n_nets > 0 ? "]" : "");
}

/* "a>b"; "*" is the network; "#2": in the place of host 2 in the trees. */
static copse_status add_row(struct writer *w, const struct copse_nccl_row *row,
                            struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text name = {0};
  const struct copse_node *nodes = w->topology->nodes;
  if (row->link >= 0) {
    const struct copse_link *link = &w->topology->links[row->link];
    copse_text_add(&name, "%s>%s", nodes[link->src].id, nodes[link->dst].id);
  } else {
    const char *port = nodes[w->machine.ports[row->port].node].id;
    copse_text_add(&name, row->outward ? "%s>*" : "*>%s", port);
  }
  if (row->host > 0) copse_text_add(&name, "#%d", row->host);
  COPSE_DO(copse_text_status(&name, err));
  copse_text_add_json_string(&w->text, name.data);
  return COPSE_OK;
}

static copse_status add_part(struct writer *w, const char *what, const char *kind, int value,
                             const struct copse_nccl_graph_search *graph,
                             const struct copse_nccl_optimum *optimum, struct copse_err *err) {
  copse_text_add(&w->text, ",\n \"%s\": {\"%s\": %d, \"speed\": \"%s\", \"GBps\": \"%s\",\n", what,
                 kind, value, COPSE_Q_STRING(optimum->speed), COPSE_Q_STRING(optimum->GBps));
  copse_text_add(&w->text, "  \"channels\": [\n");
  for (int c = 0; c < graph->n_channels; c++) {
    add_channel(w, &graph->channels[c]);
    copse_text_add(&w->text, "%s\n", c + 1 < graph->n_channels ? "," : "],");
  }
  copse_text_add(&w->text, "  \"bound\": {\"GBps\": \"%s\", \"least\": \"%s\", \"lengths\": {",
                 COPSE_Q_STRING(optimum->bound), COPSE_Q_STRING(optimum->least));
  for (int i = 0; i < optimum->n_lengths; i++) {
    copse_text_add(&w->text, "%s\n    ", i > 0 ? "," : "");
    COPSE_DO(add_row(w, &optimum->lengths[i].row, err));
    copse_text_add(&w->text, ": %" PRId64, optimum->lengths[i].length);
  }
  copse_text_add(&w->text, "}}}");
  return COPSE_OK;
}

static copse_status write(struct writer *w, char **text, size_t *size, struct copse_err *err) {
  const struct copse_nccl_best *best = w->best;
  const struct copse_nccl_graph_search *graphs = best->graphs.graph;
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_nccl_machine_open(w->topology, &w->machine, err));
  COPSE_DO(copse_topology_sha256(w->topology, sha256, err));
  copse_text_add(&w->text, COPSE_JSON_HEAD("rings") ",\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&w->text, w->topology->name);
  copse_text_add(&w->text, ", \"sha256\": \"%s\"},\n \"hosts\": %d", sha256, best->n_hosts);
  COPSE_DO(add_part(w, "rings", "crossnic", graphs[COPSE_NCCL_RING].crossnic,
                    &graphs[COPSE_NCCL_RING], &best->ring, err));
  COPSE_DO(add_part(w, "chains", "pattern", graphs[COPSE_NCCL_TREE].pattern,
                    &graphs[COPSE_NCCL_TREE], &best->chain, err));
  copse_text_add(&w->text, "}\n");
  return copse_text_take(&w->text, text, size, err);
}

copse_status copse_nccl_best_to_json(const struct copse_nccl_best *best,
                                     const struct copse_topology *topology, char **text,
                                     size_t *size, struct copse_err *err) {
  struct writer w = {.best = best, .topology = topology};
  *text = NULL;
  if (best->ring.n == 0)
    return copse_fail(err, COPSE_INFEASIBLE,
                      "one GPU makes no ring: give two GPUs or, by "
                      "--hosts, several hosts");
  copse_status status = write(&w, text, size, err);
  copse_nccl_machine_free(&w.machine);
  copse_text_free(&w.text);
  return status;
}
