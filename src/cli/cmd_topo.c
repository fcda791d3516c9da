/*
 * copse topo FILE: reads any topology input and its changes (topology_args.h), checks it and prints
 * a summary: ranks, types of nodes, links, bandwidths, which nodes get more than they give. It also
 * writes canonical JSON, draws (view/draw.h), says which ids are what, and lists the catalogue.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/examples.h"
#include "cli/options.h"
#include "cli/topology_args.h"
#include "topology/topology.h"
#include "topology/words.h"
#include "view/draw.h"
#include "view/outline.h"

struct options {
  const char *output, *draw, *ids, *example;
  struct copse_cli_topology topology;
  bool json, list, matrix;
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

static void print_json(const struct copse_topology *t, const struct summary *s) {
  printf(
      "{\"name\": %s, \"ranks\": %d, \"nodes\": %d, \"links\": %d, \"bandwidth_GBps\": %s, "
      "\"eulerian\": %s}\n",
      copse_cli_quoted(t->name), t->n_ranks, t->n_nodes, t->n_links,
      COPSE_CLI_NUMBER(total_bandwidth(t, s)), COPSE_CLI_BOOL(s->unbalanced < 0));
}

/* "8 gpu, 1 nvswitch, ...", types in order of appearance. Files may name types of their own: of
 * many the last are counted together. */
#define MOST_TYPES 32

static void print_types(const struct copse_topology *t) {
  const char *types[MOST_TYPES];
  int counts[MOST_TYPES] = {0}, n = 0, others = 0;
  for (int i = 0; i < t->n_nodes; i++) {
    int at = 0;
    while (at < n && strcmp(types[at], t->nodes[i].type) != 0) at++;
    if (at == n && n < MOST_TYPES) types[n++] = t->nodes[i].type;
    if (at < n)
      counts[at]++;
    else
      others++;
  }
  for (int at = 0; at < n; at++) printf("%s%d %s", at ? ", " : "", counts[at], types[at]);
  if (others) printf(", %d of other types", others);
}

static void print_text(const struct copse_topology *t, const struct summary *s) {
  printf("%s: %d rank%s, %d node%s (", t->name, t->n_ranks, COPSE_S(t->n_ranks), t->n_nodes,
         COPSE_S(t->n_nodes));
  print_types(t);
  printf(")\n");
  if (t->n_links == 0) {
    printf("links: none\n");
    return;
  }
  printf("links: %d directed, %.10g GB/s in all, each ", t->n_links, total_bandwidth(t, s));
  if (copse_q_cmp(s->slowest, s->fastest) != 0)
    printf("from %.10g to ", copse_q_to_double(s->slowest));
  printf("%.10g GB/s\n", copse_q_to_double(s->fastest));
  if (t->n_routes > 0) printf("routes: %d stated, from GPU to GPU\n", t->n_routes);
  if (s->unbalanced < 0)
    printf("relays: balanced (as much in as out)\n");
  else
    printf("relays: '%s' takes in %s GB/s and lets out %s GB/s, so no trees can be packed\n",
           t->nodes[s->unbalanced].id, COPSE_CLI_Q(s->in), COPSE_CLI_Q(s->out));
}

/* ---- ids ----------------------------------------------------------------------------------- */

/* Whether a pattern of ids, or a type of nodes, names the node. */
static bool is_asked_for(const struct copse_node *node, const char *pattern) {
  return strcmp(pattern, node->type) == 0 || strcmp(pattern, node->id) == 0 ||
         copse_id_matches(pattern, node->id);
}

static void print_id(const struct copse_node *node, bool json, bool first) {
  if (json) {
    printf("%s\n  {\"id\": %s, \"type\": %s", first ? "" : ",", copse_cli_quoted(node->id),
           copse_cli_quoted(node->type));
    if (node->rank >= 0) printf(", \"rank\": %d", node->rank);
    printf("}");
  } else if (node->rank >= 0) {
    printf("%-32s %s, rank %d\n", node->id, node->type, node->rank);
  } else {
    printf("%-32s %s\n", node->id, node->type);
  }
}

static copse_status list_ids(const struct options *o, struct copse_cli_work *w) {
  const struct copse_topology *t = w->topology;
  int n = 0;
  for (int v = 0; v < t->n_nodes; v++) n += is_asked_for(&t->nodes[v], o->ids);
  if (n == 0)
    return copse_fail_at(&w->err, COPSE_BAD_INPUT, copse_cli_topology_label(&o->topology), 0,
                         "no id matches \"%.80s\"%s", o->ids, COPSE_NEAR_ID(t, o->ids));
  if (o->json) printf("{\"name\": %s, \"ids\": [", copse_cli_quoted(t->name));
  for (int v = 0, i = 0; v < t->n_nodes; v++)
    if (is_asked_for(&t->nodes[v], o->ids)) print_id(&t->nodes[v], o->json, i++ == 0);
  if (o->json) printf("]}\n");
  return COPSE_OK;
}

/* ---- one topology -------------------------------------------------------------------------- */

static copse_status print_drawn(const struct options *o, const struct summary *s,
                                struct copse_cli_work *w) {
  copse_text_free(&w->text); /* of a picture */
  COPSE_DO(o->matrix ? copse_outline_matrix(w->topology, o->json, &w->text, &w->err)
                     : copse_outline(w->topology, &w->text, &w->err));
  if (!o->json) print_text(w->topology, s);
  fputs(w->text.data ? w->text.data : "", stdout);
  return COPSE_OK;
}

static copse_status show(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct summary summary;
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  if (o->ids) return list_ids(o, w);
  COPSE_DO(summarise(w->topology, &summary, &w->err));
  if (o->output) {
    COPSE_DO(copse_topology_to_json(w->topology, &w->made, &w->made_size, &w->err));
    COPSE_DO(copse_cli_write(o->output, w->made, w->made_size, &w->err));
  }
  if (o->draw) {
    COPSE_DO(copse_arrangement_make(w->whole ? w->whole : w->topology, &w->arrangement, &w->err));
    COPSE_DO(copse_topology_draw(w->topology, w->arrangement, false, &w->text, &w->err));
    COPSE_DO(copse_cli_write(o->draw, w->text.data, w->text.size, &w->err));
  }
  if (copse_cli_is_stdout(o->output) || copse_cli_is_stdout(o->draw)) return COPSE_OK;
  bool drawn = o->matrix || (!o->json && !o->output && !o->draw);
  if (drawn) return print_drawn(o, &summary, w);
  (o->json ? print_json : print_text)(w->topology, &summary);
  return COPSE_OK;
}

/* ---- the catalogue ---------------------------------------------------------------------- */

/* Lists an entry; one that can't be read is said to be so, and the others are listed. */
static bool list_entry(const struct copse_catalogue_entry *entry, bool json, bool first) {
  const struct copse_topology_options options = {.catalogue = copse_cli_catalogue()};
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  bool good = copse_topology_load(entry->path, &options, &t, &err) == COPSE_OK;
  const char *about = good ? t->description : err.text;
  if (!about) about = "";
  if (json) {
    printf("%s\n  {\"name\": %s, \"file\": %s", first ? "" : ",", copse_cli_quoted(entry->name),
           copse_cli_quoted(entry->path));
    if (good) printf(", \"ranks\": %d", t->n_ranks);
    printf(", \"%s\": %s, \"source\": %s}", good ? "description" : "error", copse_cli_quoted(about),
           copse_cli_quoted(good && t->source ? t->source : ""));
  } else {
    printf("%-24s %5d  %s\n", entry->name, good ? t->n_ranks : 0, about);
  }
  copse_topology_free(t);
  return good;
}

static copse_status list_catalogue(void *options, struct copse_cli_work *w) {
  bool json = ((const struct options *)options)->json;
  struct copse_catalogue catalogue = {0};
  COPSE_DO(copse_catalogue_list(copse_cli_catalogue(), &catalogue, &w->err));
  copse_status status = COPSE_OK;
  if (catalogue.n == 0) {
    copse_catalogue_free(&catalogue);
    return copse_fail(&w->err, COPSE_IO,
                      "no catalogue beside this program; COPSE_TOPOLOGIES can name its folder");
  }
  printf(json ? "{\"topologies\": [" : "%-24s %5s  %s\n", "name", "ranks", "what");
  for (int i = 0; i < catalogue.n; i++)
    if (!list_entry(&catalogue.entries[i], json, i == 0))
      status =
          copse_fail(&w->err, COPSE_BAD_INPUT, "entries of the catalogue can't be read (above)");
  if (json) printf("]}\n");
  copse_cli_asked.json = false;
  copse_catalogue_free(&catalogue);
  return status;
}

static copse_status print_example(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  struct copse_near_name near = {.given = o->example};
  struct copse_line kinds = {.used = 0};
  for (const struct copse_example *e = copse_examples; e->kind; e++) {
    if (strcmp(e->kind, o->example) == 0)
      return copse_cli_write(o->output ? o->output : "-", e->text, strlen(e->text), &w->err);
    copse_near_name_consider(&near, e->kind);
    copse_line_add(&kinds, "%s%s", e == copse_examples ? "" : ", ", e->kind);
  }
  if (near.name)
    return copse_fail(&w->err, COPSE_INVALID, "no example of '%.60s'; did you mean %s?", o->example,
                      near.name);
  return copse_fail(&w->err, COPSE_INVALID, "no example of '%.60s'; there are %s", o->example,
                    kinds.text);
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  if (o->example) {
    if (n_left > 0 || o->list || o->json || o->draw || o->topology.synthetic)
      return copse_cli_usage("topo", "--example takes a kind of file, and -o at most");
    return copse_cli_do(print_example, o);
  }
  if (o->list) {
    if (n_left > 0 || o->output || o->draw || o->ids || o->matrix || o->topology.synthetic)
      return copse_cli_usage("topo", "--list takes no topology and no output file");
    return copse_cli_do(list_catalogue, o);
  }
  int bad = copse_cli_take_topology(&o->topology, "topo", n_left, left);
  if (bad) return bad;
  int on_stdout = copse_cli_is_stdout(o->output) + copse_cli_is_stdout(o->draw);
  if (o->json + on_stdout > 1)
    return copse_cli_usage("topo",
                           "of --json, -o - and --draw - only one can have standard output");
  if (o->matrix && on_stdout > 0)
    return copse_cli_usage("topo",
                           "of --matrix, -o - and --draw - only one can have standard output");
  if (!copse_cli_may_be(o->draw, ".svg"))
    return copse_cli_usage("topo", "--draw writes SVG: give it a name that ends in .svg");
  if (o->ids && (o->output || o->draw || o->matrix))
    return copse_cli_usage("topo", "--ids lists ids, nothing else: leave out -o, --draw, --matrix");
  return copse_cli_do(show, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--output", 'o', "FILE", "write it as canonical topology JSON", TO(output), .writes = true,
     .common = true},
    {"--draw", 0, "FILE",
     "a picture as SVG, laid out by Graphviz (the program 'dot'); at\n"
     "most 2500 nodes",
     TO(draw), .writes = true, .common = true},
    {"--ids", 0, "PATTERN",
     "the ids that match, such as '*', 'h0.*', 'net@mlx5_*', or of a type,\n"
     "such as nic; --down and --ranks take the ids",
     TO(ids), .common = true},
    {"--matrix", 0, NULL,
     "instead of the text drawing what 'nvidia-smi topo -m' shows, with\n"
     "GB/s, of one host",
     TO(matrix)},
    {"--list", 0, NULL, "the names of the catalogue: usable wherever a file is", TO(list),
     .common = true},
    {"--example", 0, "KIND",
     "print a file to start from, or write it with -o: cluster, topology, profile, demand, "
     "groups, trace ..",
     TO(example), .words = copse_example_kinds, .common = true},
    {"--json", 'j', NULL, "one JSON object: the summary, ids, matrix or list", TO(json),
     .common = true},
    {0}};

const struct copse_command copse_cmd_topo = {
    .name = "topo",
    .does = "read a topology, check it, draw it",
    .usage =
        "usage: copse topo TOPO [-o FILE.json] [--draw FILE.svg] [--json] [options]\n"
        "       copse topo TOPO --ids PATTERN|--matrix [--json]\n"
        "       copse topo --list [--json]\n"
        "       copse topo --example KIND [-o FILE]\n\n"
        "Reads a topology in any input format, checks it and draws it as text: hosts,\n"
        "switches, GPUs, NICs and the bandwidth of their links. Where it writes a file it\n"
        "prints a summary.\n\n",
    .example =
        "example: copse topo dgx-a100 --links nvlink -o dgx-a100.json\n"
        "         copse topo dgx-h100 --draw dgx-h100.svg\n"
        "         copse topo --synthetic 'torus:4x4x4@100'\n"
        "         copse topo --example cluster -o rack.json\n"
        "         nvidia-smi topo -m | copse topo - --gpu h100 --json\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "More options", .options = own},
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .size = sizeof(struct options),
    .run = run};
