/* copse topo FILE: reads any topology input, checks it, prints a summary. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "topology/draw.h"

static const char help[] =
    "usage: copse topo FILE [--links nvlink|all|default] [-o FILE.json] [--draw FILE.svg] [--json]\n\n"
    "Reads topology JSON, cluster JSON or an NCCL/RCCL topology XML, checks it and prints\n"
    "a summary.\n\n"
    "  -o, --output FILE  write it as canonical topology JSON\n"
    "  -d, --draw FILE    a picture as SVG, laid out by Graphviz (the program 'dot'), at most\n"
    "                     2500 nodes\n"
    "  -l, --links MODE   what to keep of an XML file: nvlink (GPU links and NVSwitch only),\n"
    "                     all, or default (GPU links if they join all GPUs, with the PCIe\n"
    "                     ways to the NICs; else all)\n"
    "  -j, --json         the summary as one JSON object\n\n"
    "example: copse topo topologies/dgx-a100.xml --links nvlink -o dgx-a100.json\n";

struct options {
  const char *input, *output, *draw;
  struct copse_topology_options topology;
  bool json;
};

struct summary {
  struct copse_q bandwidth, slowest, fastest;
  bool exact; /* the sum fits 64 bits */
  int unbalanced;
  struct copse_q in, out;
};

static copse_status summarise(const struct copse_topology *t, struct summary *s,
                              struct copse_err *err) {
  s->bandwidth = COPSE_Q_ZERO;
  s->exact = true;
  for (int i = 0; i < t->n_links; i++) {
    struct copse_q b = t->links[i].bandwidth;
    if (i == 0 || copse_q_cmp(b, s->slowest) < 0) s->slowest = b;
    if (i == 0 || copse_q_cmp(b, s->fastest) > 0) s->fastest = b;
    if (s->exact && copse_q_add(s->bandwidth, b, &s->bandwidth, NULL) != COPSE_OK) s->exact = false;
  }
  return copse_topology_find_unbalanced(t, &s->unbalanced, &s->in, &s->out, err);
}

static double total_bandwidth(const struct copse_topology *t, const struct summary *s) {
  double sum = 0;
  if (s->exact) return copse_q_to_double(s->bandwidth);
  for (int i = 0; i < t->n_links; i++) sum += copse_q_to_double(t->links[i].bandwidth);
  return sum;
}

static copse_status print_json(const struct copse_topology *t, const struct summary *s,
                               struct copse_err *err) {
  struct copse_text text = {0};
  copse_text_add(&text, "{\"name\": ");
  copse_text_add_json_string(&text, t->name);
  copse_text_add(&text,
                 ", \"ranks\": %d, \"nodes\": %d, \"links\": %d, \"bandwidth_GBps\": ", t->n_ranks,
                 t->n_nodes, t->n_links);
  copse_text_add_json_number(&text, total_bandwidth(t, s));
  copse_text_add(&text, ", \"eulerian\": %s}\n", s->unbalanced < 0 ? "true" : "false");
  copse_status status = copse_text_status(&text, err);
  if (status == COPSE_OK) fputs(text.data, stdout);
  copse_text_free(&text);
  return status;
}

/* "8 gpu, 1 nvswitch, ...", types in order of appearance. */
static void print_types(const struct copse_topology *t) {
  const char *separator = "";
  for (int i = 0; i < t->n_nodes; i++) {
    int n = 0;
    bool first = true;
    for (int j = 0; j < i && first; j++) first = strcmp(t->nodes[j].type, t->nodes[i].type) != 0;
    if (!first) continue;
    for (int j = i; j < t->n_nodes; j++) n += strcmp(t->nodes[j].type, t->nodes[i].type) == 0;
    printf("%s%d %s", separator, n, t->nodes[i].type);
    separator = ", ";
  }
}

static void print_text(const struct copse_topology *t, const struct summary *s) {
  char a[COPSE_Q_TEXT], b[COPSE_Q_TEXT];
  printf("%s: %d ranks, %d nodes (", t->name, t->n_ranks, t->n_nodes);
  print_types(t);
  printf(")\n");
  if (t->n_links == 0) {
    printf("links: none\n");
    return;
  }
  printf("links: %d directed, %.10g GB/s in all, each from %.10g to %.10g GB/s\n", t->n_links,
         total_bandwidth(t, s), copse_q_to_double(s->slowest), copse_q_to_double(s->fastest));
  if (s->unbalanced < 0)
    printf("relays: balanced (as much in as out)\n");
  else
    printf("relays: '%s' takes in %s GB/s and lets out %s GB/s, so no trees can be packed\n",
           t->nodes[s->unbalanced].id, copse_q_text(s->in, a), copse_q_text(s->out, b));
}

static copse_status draw(const struct copse_topology *t, const char *path, struct copse_err *err) {
  struct copse_arrangement *arrangement = NULL;
  struct copse_text text = {0};
  copse_status status;
  COPSE_TRY(copse_arrangement_make(t, &arrangement, err));
  COPSE_TRY(copse_topology_draw(t, arrangement, false, &text, err));
  status = copse_file_write(path, text.data, text.size, err);
out:
  copse_text_free(&text);
  copse_arrangement_free(arrangement);
  return status;
}

static bool to_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

static int run(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct summary summary;
  char *text = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_topology_load(o->input, &o->topology, &topology, &err));
  COPSE_TRY(summarise(topology, &summary, &err));
  if (o->output) {
    COPSE_TRY(copse_topology_to_json(topology, &text, &size, &err));
    COPSE_TRY(copse_file_write(o->output, text, size, &err));
  }
  if (o->draw) COPSE_TRY(draw(topology, o->draw, &err));
  if (to_stdout(o->output) || to_stdout(o->draw)) goto out; /* that is the output */
  if (o->json)
    status = print_json(topology, &summary, &err);
  else
    print_text(topology, &summary);
out:
  free(text);
  copse_topology_release(topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}

int copse_cmd_topo(int argc, char **argv) {
  static const struct option longs[] = {{"output", required_argument, NULL, 'o'},
                                        {"draw", required_argument, NULL, 'd'},
                                        {"links", required_argument, NULL, 'l'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {.topology = {COPSE_LINKS_DEFAULT, &copse_cli_notes}};
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":o:d:l:jh", longs, NULL)) != -1;) {
    switch (c) {
      case 'o': o.output = optarg; break;
      case 'd': o.draw = optarg; break;
      case 'l':
        if (!copse_cli_parse_links(optarg, &o.topology.links))
          return copse_cli_usage("topo", "--links must be nvlink, all or default");
        break;
      case 'j': o.json = true; break;
      case 'h': fputs(help, stdout); return COPSE_EXIT_DONE;
      default: return copse_cli_bad_option("topo", argv, c);
    }
  }
  if (argc - optind != 1) return copse_cli_usage("topo", "give one topology file");
  o.input = argv[optind];
  if (o.json + to_stdout(o.output) + to_stdout(o.draw) > 1)
    return copse_cli_usage("topo", "of --json, -o - and --draw - only one can have standard output");
  return run(&o);
}
