/*
 * Texts of a folder of copse tune: env.sh and README; RCCL's variables (ROCm/rccl
 * src/graph/rome_models.cc); topology XML that is there, written anew in the syntax of NCCL's
 * reader, which is no XML parser, and with values that it takes for others mended. What it
 * misreads: NVIDIA/nccl src/graph/topo.cc (kvDictPciGen, kvDictCpuArch) and xml.cc, seen
 * with 2.30.7.
 */
#include "nccl/tune/texts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xml.h"
#include "nccl/tune/topo_write.h"

#define MAX_DEPTH 4096 /* of a tree in RCCL_TREES */

/* Adds a word of the shell, whatever is in it. */
static void add_quoted(struct copse_text *out, const char *text) {
  copse_text_add(out, "'");
  for (const char *p = text; *p; p++)
    if (*p == '\'')
      copse_text_add(out, "'\\''");
    else
      copse_text_append(out, p, 1);
  copse_text_add(out, "'");
}

static bool trees_win(const struct copse_tune_facts *f) {
  return f->tree_busbw > f->ring_busbw * 1.0001;
}

/* ---- env.sh
 * -------------------------------------------------------------------------------------- */

void copse_tune_graph_name(int group, char name[COPSE_TUNE_NAME]) {
  if (group == 0)
    snprintf(name, COPSE_TUNE_NAME, "graph.xml");
  else
    snprintf(name, COPSE_TUNE_NAME, "graph-%d.xml", group);
}

/* Adds a setting. COPSE_TUNE_SET lists what is set here, for the env.sh after this one to unset:
 * another's settings, such as a cloud's NCCL_TOPO_FILE, are left. */
static void add_export(const char *name, const char *value, struct copse_text *out) {
  copse_text_add(out, "export %s=%s COPSE_TUNE_SET=\"$COPSE_TUNE_SET %s\"\n", name, value, name);
}

/* Finds the host's place among those of the job, and sets `name` by its kind: to the graph's file,
 * or to RCCL's rings. */
static void add_kinds(const struct copse_tune_facts *f, const char *name, struct copse_text *out) {
  copse_text_add(
      out,
      "# Hosts of %d kinds have a graph each. Which this host is: COPSE_HOST, its place from 0 in\n"
      "# the order of ranks; else as Slurm, torchrun, Open MPI or MPICH say.\n"
      "COPSE_PLACE=${COPSE_HOST:-${SLURM_NODEID:-${GROUP_RANK:-}}}\n",
      f->n_groups);
  if (f->even)
    copse_text_add(
        out,
        "if [ -z \"$COPSE_PLACE\" ] && [ -n \"${OMPI_COMM_WORLD_LOCAL_SIZE:-}\" ]; then\n"
        "  COPSE_PLACE=$((OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_LOCAL_SIZE))\n"
        "elif [ -z \"$COPSE_PLACE\" ] && [ -n \"${MPI_LOCALNRANKS:-}\" ]; then\n"
        "  COPSE_PLACE=$((PMI_RANK / MPI_LOCALNRANKS))\n"
        "fi\n");
  copse_text_add(out, "%s=\ncase $COPSE_PLACE in\n", name);
  for (int g = 0; g < f->n_groups; g++) {
    char file[COPSE_TUNE_NAME];
    const char *bar = "";
    for (int h = 0; h < f->hosts; h++) {
      if (f->group_of[h] != g) continue;
      copse_text_add(out, "%s%d", bar, h);
      bar = "|";
    }
    copse_tune_graph_name(g, file);
    copse_text_add(out, ") %s=", name);
    if (f->rccl)
      add_quoted(out, f->rings[g]);
    else
      copse_text_add(out, "$COPSE_TUNE/%s", file);
    copse_text_add(out, " ;;\n");
  }
  copse_text_add(
      out,
      "*) echo \"copse tune: COPSE_HOST must say which host of the job this is, from 0 to %d;"
      " it gets no graph\" >&2 ;;\nesac\n",
      f->hosts - 1);
}

static void add_nccl_env(const struct copse_tune_facts *f, struct copse_text *out) {
  const char *graph = f->n_groups > 1 ? "$COPSE_GRAPH" : "$COPSE_TUNE/graph.xml";
  if (f->n_groups > 1) add_kinds(f, "COPSE_GRAPH", out);
  copse_text_add(
      out,
      "# Under copse's drop-in only the communicators that the graph fits get it; without, "
      "every one.\n"
      "unset NCCL_GRAPH_FILE COPSE_NCCL_GRAPHS\n"
      "%scase ${LD_PRELOAD:-} in\n"
      "*libcopse-nccl.so*) export COPSE_NCCL_GRAPHS=\"%s\" ;;\n"
      "*) export NCCL_GRAPH_FILE=\"%s\" ;;\n"
      "esac\n%s",
      f->n_groups > 1 ? "if [ -n \"$COPSE_GRAPH\" ]; then\n" : "", graph, graph,
      f->n_groups > 1 ? "fi\n" : "");
  if (!f->same_nics) {
    copse_text_add(out,
                   "# Hosts have unlike numbers of NICs, with which NCCL from 2.30.3 on does not "
                   "start unless:\n");
    add_export("NCCL_IGNORE_NET_MISMATCH", "1", out);
  }
  if (f->has_table)
    add_export("NCCL_TUNER_PLUGIN",
               f->has_plugin ? "\"$COPSE_TUNE/libnccl-tuner-copse.so\"" : "copse", out);
}

static void add_rccl_env(const struct copse_tune_facts *f, struct copse_text *out) {
  bool trees = f->trees && trees_win(f);
  copse_text_add(out, "unset NCCL_RINGS RCCL_TREES\n");
  if (!trees && f->rings && f->n_groups > 1) {
    add_kinds(f, "NCCL_RINGS", out);
    copse_text_add(
        out, "if [ -n \"$NCCL_RINGS\" ]; then export NCCL_RINGS; else unset NCCL_RINGS; fi\n");
  } else if (f->rings || trees) {
    copse_text_add(out, "export %s=", trees ? "RCCL_TREES" : "NCCL_RINGS");
    add_quoted(out, trees ? f->trees : f->rings[0]);
    copse_text_add(out, "\n");
  }
}

void copse_tune_write_env(const struct copse_tune_facts *f, struct copse_text *out) {
  copse_text_add(
      out,
      "# To be sourced by every rank of a job: . %s/env.sh    (README says what it does)\n"
      "if [ -n \"${BASH_SOURCE:-}\" ]; then\n"
      "  COPSE_TUNE=$(cd \"$(dirname \"$BASH_SOURCE\")\" && pwd)\n"
      "else\n"
      "  COPSE_TUNE=",
      strpbrk(f->folder, "\n\r") ? "FOLDER" : f->folder);
  add_quoted(out, f->folder);
  copse_text_add(out,
                 "\nfi\n"
                 "eval \"unset ${COPSE_TUNE_SET:-COPSE_TUNE_SET}\" # what another env.sh has set\n"
                 "export COPSE_TUNE_SET='%s'\n",
                 f->rccl ? "NCCL_RINGS RCCL_TREES" : "NCCL_GRAPH_FILE COPSE_NCCL_GRAPHS");
  if (f->rccl)
    add_rccl_env(f, out);
  else
    add_nccl_env(f, out);
  if (f->has_topo && f->topo_is_real)
    add_export("NCCL_TOPO_FILE", "\"$COPSE_TUNE/topo.xml\"", out);
  if (f->has_table) add_export("NCCL_TUNER_CONFIG_FILE", "\"$COPSE_TUNE/tuner.csv\"", out);
}

/* ---- README
 * -------------------------------------------------------------------------------------- */

static void add_busbw(struct copse_text *out, double busbw) {
  if (busbw > 0)
    copse_text_add(out, " %.4g |", busbw);
  else
    copse_text_add(out, " - |");
}

static void add_figure_json(const struct copse_tune_figure *f, struct copse_text *text) {
  copse_text_add(text, "{\"collective\": \"%s\", \"busbw_GBps\": %.10g, \"algorithm\": \"%s\"",
                 f->collective, f->ours, f->algorithm);
  if (f->bound > 0) copse_text_add(text, ", \"bound_busbw_GBps\": %.10g", f->bound);
  if (f->theirs > 0)
    copse_text_add(text, ", \"nccl_busbw_GBps\": %.10g, \"nccl_algorithm\": \"%s\"",
                   f->theirs, f->theirs_algorithm);
  copse_text_add(text, "}");
}

void copse_tune_write_figures_json(const struct copse_tune_facts *f, struct copse_text *out) {
  for (int i = 0; i < f->n_figures; i++) {
    copse_text_add(out, "%s\n  ", i > 0 ? "," : "");
    add_figure_json(&f->figures[i], out);
  }
}

int copse_tune_find_times(const struct copse_nccl_model *model,
                          struct copse_tune_time times[COPSE_TUNE_TIMES]) {
  int n = 0, algorithm, protocol;
  for (int i = 0; i < COPSE_TUNE_TIMES; i++) {
    uint64_t bytes = (uint64_t)1024 << (2 * i);
    if (!copse_nccl_choose(model, COPSE_TUNER_ALLREDUCE, bytes, &algorithm, &protocol)) continue;
    times[n++] = (struct copse_tune_time){
        bytes, copse_tuner_algorithms[algorithm], copse_tuner_protocols[protocol],
        copse_nccl_model_us(model, COPSE_TUNER_ALLREDUCE, algorithm, protocol, bytes)};
  }
  return n;
}

void copse_tune_write_times(const struct copse_tune_facts *f, enum copse_tune_times_form form,
                            struct copse_text *out) {
  static const char *const heads[] = {
      "allreduce by NCCL's own model, with these graphs:\n       bytes           us  takes\n",
      "\nWhat NCCL's own model predicts of an allreduce with these graphs, and what NCCL takes by "
      "it:\n\n| bytes | us | algorithm | protocol |\n| --- | --- | --- | --- |\n",
      ""};
  if (f->n_times > 0) copse_text_add(out, "%s", heads[form]);
  for (int i = 0; i < f->n_times; i++) {
    const struct copse_tune_time *t = &f->times[i];
    if (form == COPSE_TUNE_TIMES_JSON)
      copse_text_add(out,
                     "%s\n  {\"bytes\": %" PRIu64
                     ", \"us\": %.10g, \"algorithm\": \"%s\", \"protocol\": \"%s\"}",
                     i > 0 ? "," : "", t->bytes, t->us, t->algorithm, t->protocol);
    else
      copse_text_add(out,
                     form == COPSE_TUNE_TIMES_TABLE ? "%12" PRIu64 " %12.4g  %s, %s\n"
                                                    : "| %" PRIu64 " | %.4g | %s | %s |\n",
                     t->bytes, t->us, t->algorithm, t->protocol);
  }
}

/* Says that trees are faster by the links; NCCL's model, and the table by it, may still take
 * rings. */
static void add_trees(const struct copse_tune_facts *f, struct copse_text *out) {
  const struct copse_tune_time *longest = f->n_times > 0 ? &f->times[f->n_times - 1] : NULL;
  bool takes_rings = f->has_table && longest && strcmp(longest->algorithm, "tree") != 0;
  copse_text_add(
      out,
      "\nTrees beat rings on this machine (%.4g to %.4g GB/s for an allreduce): a ring "
      "crosses the narrow links\nwith nearly all data in each direction, a tree with "
      "half as much.%s\n",
      f->tree_busbw, f->ring_busbw,
      f->rccl        ? " So RCCL_TREES is set."
      : takes_rings  ? " NCCL's own model puts rings first for large messages,\nand tuner.csv "
                       "follows it, so that rings are what runs. To try trees: run all_reduce_perf "
                       "also with\n`NCCL_ALGO=allreduce:tree`, without tuner.csv, and keep what is "
                       "faster."
      : f->has_table ? " tuner.csv takes trees where they are faster."
                     : " Which of them runs NCCL chooses by the speeds that graph.xml states.");
}

static void add_figures(const struct copse_tune_facts *f, struct copse_text *out) {
  copse_text_add(
      out,
      "\n## Expected bus bandwidth, large messages\n\n"
      "Upper limits by the loads of links, GB/s as nccl-tests counts it; nothing of it is "
      "measured. What NCCL\nreaches is less: protocols and kernels take their part.\n\n"
      "| collective | with this folder | by | at most, by such channels | %s |\n"
      "| --- | ---: | --- | ---: | ---: |\n",
      f->has_theirs ? "NCCL's own graph" : "without it");
  for (int i = 0; i < f->n_figures; i++) {
    const struct copse_tune_figure *it = &f->figures[i];
    copse_text_add(out, "| %s |", it->collective);
    add_busbw(out, it->ours);
    copse_text_add(out, " %s |", it->algorithm);
    add_busbw(out, it->bound);
    if (f->has_theirs && it->theirs > 0)
      copse_text_add(out, " %.4g (%s) |\n", it->theirs, it->theirs_algorithm);
    else
      copse_text_add(out, " %s |\n", f->has_theirs ? "-" : "not known");
  }
  copse_text_add(out,
                 "\nThe column \"at most\" is proved: `copse rings TOPO -o rings.json` writes the "
                 "proof, `copse verify\nrings.json -t TOPO` checks it.\n");
  if (!f->has_theirs && !f->rccl)
    copse_text_add(
        out,
        "\nFor what NCCL does without: run a job with NCCL_GRAPH_DUMP_FILE=nccl-graph.xml, "
        "then\n`copse tune ... --nccl nccl-graph.xml`.\n");
  if (trees_win(f)) add_trees(f, out);
}

static void add_row(struct copse_text *out, bool there, const char *file, const char *text) {
  if (there) copse_text_add(out, "| `%s` | %s |\n", file, text);
}

static void add_nccl_files(const struct copse_tune_facts *f, struct copse_text *out) {
  copse_text_add(
      out,
      "| `graph.xml` | `NCCL_GRAPH_FILE`: %d rings and as many chains for the %d GPUs of a host. "
      "NCCL makes %d channels of them. NCCL %ld.%ld and later read it as it is meant |\n",
      f->channels, f->gpus, f->joined, f->version / 10000, f->version / 100 % 100);
  if (f->n_groups > 1)
    copse_text_add(
        out,
        "| `graph-1.xml` .. `graph-%d.xml` | the same for the other kinds of hosts, with "
        "as many channels of the same speed. env.sh takes the host's own by COPSE_HOST, "
        "its place from 0 in the order of ranks, or what Slurm, torchrun, Open MPI or "
        "MPICH say |\n",
        f->n_groups - 1);
  add_row(out, f->has_topo, "topo.xml",
          f->topo_is_real
              ? "`NCCL_TOPO_FILE`: the topology as NCCL reads it"
              : "the topology as NCCL reads it, for searches elsewhere. Bus ids are made "
                "up, so env.sh does not set it");
  if (f->has_table)
    copse_text_add(
        out,
        "| `tuner.csv` | algorithm and protocol by size of %s, for communicators of all these "
        "ranks; other calls are NCCL's own choice. By NCCL's model of its own latencies (constants "
        "of 2.30.7) and what the links allow: a model, not measured |\n",
        f->calls);
  add_row(
      out, f->has_table && f->has_plugin, "libnccl-tuner-copse.so",
      "`NCCL_TUNER_PLUGIN`: reads tuner.csv; NCCL 2.19 and later. NCCL's example plugin of 2.27.7 "
      "to 2.29.7 crashes at its first match: don't use that");
}

static void add_rccl_files(const struct copse_tune_facts *f, struct copse_text *out) {
  bool trees = f->trees && trees_win(f);
  add_row(out, f->has_topo, "topo.xml", "`NCCL_TOPO_FILE`: the topology as RCCL reads it");
  add_row(
      out, f->has_table, "tuner.csv",
      "`NCCL_TUNER_CONFIG_FILE` of RCCL 2.30 and later: algorithm and protocol of an allreduce by "
      "size, by a model of latencies and what the links allow; not measured");
  copse_text_add(out, "\n`env.sh` sets %s%s. RCCL prefers it to its table of known machines.\n",
                 trees ? "`RCCL_TREES`" : "`NCCL_RINGS`",
                 trees ? ", trees of the ranks of one communicator of all GPUs" : "");
}

static void add_files(const struct copse_tune_facts *f, struct copse_text *out) {
  copse_text_add(out,
                 "\n## Files\n\n| file | what it is for |\n| --- | --- |\n"
                 "| `env.sh` | sets the variables below; source it on every rank |\n");
  add_row(out, f->has_hostfile, "hostfile",
          "hosts in the order in which ranks should be numbered; put your hosts' names in place of "
          "h0, h1");
  if (f->rccl)
    add_rccl_files(f, out);
  else
    add_nccl_files(f, out);
  if (!f->has_topo) copse_text_add(out, "\nNo topo.xml: %s.\n", f->no_topo);
  if (!f->has_table) copse_text_add(out, "\nNo tuner.csv: %s.\n", f->no_table);
  if (f->has_hostfile)
    copse_text_add(
        out,
        "\nThe order of hosts matters on this network: from host to host and back are %" PRId64
        " links in the order\nof the topology, %" PRId64 " in that of hostfile.\n",
        f->hops_given, f->hops_best);
  else if (f->hosts > 1)
    copse_text_add(out, f->n_groups > 1 ? "\nNumber the ranks in the topology's order of hosts.\n"
                                        : "\nAll hosts are equally far apart: their order does not "
                                          "matter.\n");
}

static void add_limits(const struct copse_tune_facts *f, struct copse_text *out) {
  copse_text_add(out, "\n## Limits\n\n");
  if (!f->rccl)
    copse_text_add(
        out,
        "- NCCL reads graph.xml for every communicator of a process. It fits those that have all "
        "%d "
        "GPUs of each of\n  their hosts%s. For others (tensor-parallel groups, one GPU of each "
        "host) "
        "NCCL's init fails with\n  \"does not contain rank\", or its trees hang. A job with such "
        "communicators preloads `libcopse-nccl.so`\n  before it sources env.sh: that gives the "
        "graph "
        "only to those that it fits, and says so (COPSE_DEBUG=INFO).\n"
        "- %s and hosts%s the same GPUs and NICs by NVML's and NCCL's numbers.\n"
        "- A file that NCCL can't open ends the job's init. Keep the folder where every host sees "
        "it.\n",
        f->gpus, f->hosts > 1 ? "" : ", on one host",
        f->n_groups > 1 ? "Hosts of one kind need the same files,"
                        : "All ranks need the same files,",
        f->n_groups > 1 ? " of a kind" : "");
  else
    copse_text_add(
        out,
        "- The variables are for communicators of all %d GPUs%s. RCCL drops rings and trees "
        "that don't fit\n  without an error, and searches.\n"
        "- Odd hosts run rings backwards, as RCCL does unless RCCL_MODEL_REVERSAL_DISABLE "
        "is 1.\n",
        f->gpus, f->hosts > 1 ? " of every host" : "");
  if (!f->same_nics && !f->rccl)
    copse_text_add(out,
                   "- Hosts have unlike numbers of NICs. NCCL from 2.30.3 on refuses that at init "
                   "(\"mixed local Net device\n  counts\"); env.sh sets "
                   "NCCL_IGNORE_NET_MISMATCH=1, which allows it.\n");
  if (f->n_groups > 1)
    copse_text_add(
        out,
        "- The order of hosts is that of the topology: rings and trees were found for it. A "
        "host that lacks its graph\n  searches its own; NCCL then has the fewest channels "
        "and the least speed of all hosts.\n");
  if (f->domain)
    copse_text_add(out,
                   "- GPUs of several trays are named by the tray's number, which follows the "
                   "order of ranks: number the\n  ranks tray by tray.\n");
}

void copse_tune_write_readme(const struct copse_tune_facts *f, struct copse_text *out) {
  copse_text_add(out,
                 "# %s for %s: %d host%s of %d GPUs\n\nMade by copse %s. On every rank:\n\n    . ",
                 f->rccl ? "RCCL" : "NCCL", f->topology, f->hosts, COPSE_S(f->hosts), f->gpus,
                 f->version_text);
  copse_text_add(out, "./env.sh\n");
  add_figures(f, out);
  copse_tune_write_times(f, COPSE_TUNE_TIMES_MARKDOWN, out);
  add_files(f, out);
  add_limits(f, out);
  copse_text_add(out,
                 "\n## To check\n\n"
                 "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING: `Channel 00/%d` and the "
                 "rings are those of the files; no\n`falling back to 0`, no `Ignoring`%s.\n",
                 f->joined,
                 f->has_table && !f->rccl ? "; a line `TUNER/copse: .. rules of ..`" : "");
  copse_text_add(out,
                 "\n## To undo\n\n    unset %s COPSE_TUNE_SET\n\nor start a shell that has not "
                 "sourced env.sh. "
                 "Nothing else was changed. env.sh of\nanother folder unsets these first.\n",
                 f->rccl ? "NCCL_RINGS RCCL_TREES NCCL_TOPO_FILE NCCL_TUNER_CONFIG_FILE"
                         : "NCCL_GRAPH_FILE COPSE_NCCL_GRAPHS NCCL_TOPO_FILE NCCL_TUNER_PLUGIN "
                           "NCCL_TUNER_CONFIG_FILE NCCL_IGNORE_NET_MISMATCH");
}

/* ---- RCCL's variables
 * ---------------------------------------------------------------------------- */

/* Writes the lists that the graph's writer has checked, since RCCL drops a ring that it can't use
 * without a word, and with it the channel. */
copse_status copse_rccl_rings(const struct copse_nccl_graphs *graphs, int hosts,
                              struct copse_text *out, struct copse_err *err) {
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(graphs, COPSE_NCCL_RING);
  if (!ring)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "no rings for NCCL_RINGS: hosts of one GPU have none");
  for (int c = 0; c < ring->n_channels; c++) {
    const struct copse_nccl_channel *channel = &ring->channels[c];
    copse_text_add(out, c > 0 ? "|" : "");
    if (hosts > 1) copse_text_add(out, "N%" PRIu64 " ", channel->nets[0]);
    for (int i = 0; i < channel->n_gpus; i++) {
      if (copse_nccl_dev_system(channel->devs[i]) != 0)
        return copse_fail(err, COPSE_UNSUPPORTED,
                          "NCCL_RINGS is for GPUs of one host, and this domain is "
                          "of several: leave RCCL its own rings, or give one host's topology");
      copse_text_add(out, "%s%" PRIu64, i > 0 ? " " : "", channel->devs[i]);
    }
    if (hosts > 1) copse_text_add(out, " N%" PRIu64, channel->nets[1]);
  }
  return copse_text_status(out, err);
}

static copse_status add_tree(const struct copse_nccl_joined *joined, int channel, int rank,
                             int depth, struct copse_text *out, struct copse_err *err) {
  const struct copse_nccl_role *role = copse_nccl_role_of(joined, channel, rank);
  if (depth == MAX_DEPTH)
    return copse_fail(err, COPSE_UNSUPPORTED, "a tree of more than %d ranks in a row", MAX_DEPTH);
  copse_text_add(out, "(%d", rank);
  for (int d = 0; d < COPSE_NCCL_DOWNS; d++)
    if (role->down[d] >= 0) COPSE_DO(add_tree(joined, channel, role->down[d], depth + 1, out, err));
  copse_text_add(out, ")");
  return COPSE_OK;
}

copse_status copse_rccl_trees(const struct copse_nccl_joined *joined, int channels,
                              struct copse_text *out, struct copse_err *err) {
  if (!joined->has_tree) return copse_fail(err, COPSE_UNSUPPORTED, "no trees for RCCL_TREES");
  for (int c = 0; c < channels && c < joined->n_channels; c++) {
    int root = 0;
    while (root < joined->n_ranks && copse_nccl_role_of(joined, c, root)->up >= 0) root++;
    if (root == joined->n_ranks) return copse_fail(err, COPSE_INTERNAL, "a tree without a root");
    copse_text_add(out, c > 0 ? "|" : "");
    COPSE_DO(add_tree(joined, c, root, 0, out, err));
  }
  return copse_text_status(out, err);
}

/* ---- topology XML, mended ---------------------------------------------------------------- */

#define MAX_ELEMENTS 256
#define MAX_ATTRIBUTES 16
#define MAX_LENGTH 254

struct mender {
  const struct copse_xml *xml;
  const struct copse_notes *notes;
  struct copse_text text;
  const char *host; /* the first CPU's host_hash */
  int n_elements;
  struct copse_err *err;
};

#define REFUSE(m, status, element, ...) \
  copse_fail_at((m)->err, status, (m)->xml->file, copse_xml_line(element), __VA_ARGS__)

/* ---- values
 * -------------------------------------------------------------------------------------- */

/* Speeds as NCCL knows them; any other string is 8 GT/s to it. The first of a rate is written. */
static const struct {
  const char *rate, *as[2];
} speeds[] = {{"2.5", {"2.5 GT/s PCIe", "2.5 GT/s"}},  {"5.0", {"5.0 GT/s PCIe", "5 GT/s"}},
              {"8.0", {"8.0 GT/s PCIe", "8 GT/s"}},    {"16.0", {"16.0 GT/s PCIe", "16 GT/s"}},
              {"32.0", {"32.0 GT/s PCIe", "32 GT/s"}}, {"64.0", {"64.0 GT/s PCIe", NULL}}};
enum { N_SPEEDS = sizeof speeds / sizeof *speeds };

/* Returns what NCCL reads as the speed that `value` means; itself where that is it, or unknown. */
static const char *mend_speed(const char *value) {
  char rate[16];
  size_t n = strspn(value, "0123456789.");
  if (n == 0 || n > 8) return value;
  snprintf(rate, sizeof rate, "%.*s%s", (int)n, value, memchr(value, '.', n) ? "" : ".0");
  for (int i = 0; i < N_SPEEDS; i++) {
    if (strcmp(rate, speeds[i].rate) != 0) continue;
    for (int k = 0; k < 2; k++)
      if (speeds[i].as[k] && strcmp(value, speeds[i].as[k]) == 0) return value;
    return speeds[i].as[0];
  }
  return value;
}

static bool is_bus_id(const char *key) {
  return strcmp(key, "busid") == 0 || strcmp(key, "target") == 0;
}

/* Returns the value to write instead, in `lower` or static. */
static const char *mend_value(const char *key, const char *value, char lower[MAX_LENGTH + 1]) {
  if (strcmp(key, "link_speed") == 0) return mend_speed(value);
  if (strcmp(key, "arch") == 0 && strcmp(value, "aarch64") == 0) return "arm64";
  if (!is_bus_id(key)) return value;
  for (size_t i = 0; i <= strlen(value); i++) lower[i] = (char)tolower((unsigned char)value[i]);
  return lower;
}

/* Whether NCCL's reader takes the text as it is: it has no entities, and ends a value at the
 * quote. */
static bool is_plain(const char *text) {
  for (const unsigned char *p = (const unsigned char *)text; *p; p++)
    if (*p < 0x20 || *p > 0x7e || strchr("\"<>&", *p)) return false;
  return strlen(text) <= MAX_LENGTH;
}

static copse_status add_attribute(struct mender *m, const xmlNode *element, const char *key,
                                  const char *value) {
  char lower[MAX_LENGTH + 1];
  if (!is_plain(key) || !is_plain(value))
    return REFUSE(m, COPSE_UNSUPPORTED, element,
                  "%.40s: NCCL reads values of up to %d printing characters without markup", key,
                  MAX_LENGTH);
  const char *mended = mend_value(key, value, lower);
  if (strcmp(mended, value) != 0)
    copse_note(m->notes, "%s:%ld: %s=\"%s\", which NCCL misreads, is written as \"%s\"",
               m->xml->file, copse_xml_line(element), key, value, mended);
  copse_text_add(&m->text, " %s=\"%s\"", key, mended);
  return COPSE_OK;
}

/* ---- elements
 * ------------------------------------------------------------------------------------ */

static copse_status add_attributes(struct mender *m, const xmlNode *element) {
  int n = 0;
  for (const xmlAttr *a = element->properties; a; a = a->next) {
    const char *key = (const char *)a->name, *value = copse_xml_attribute(element, key);
    if (strcmp(key, "keep") == 0) continue; /* NCCL would keep devices that do not exist */
    if (++n > MAX_ATTRIBUTES)
      return REFUSE(m, COPSE_UNSUPPORTED, element, "more than %d attributes, which NCCL reads",
                    MAX_ATTRIBUTES);
    COPSE_DO(add_attribute(m, element, key, value ? value : ""));
  }
  return COPSE_OK;
}

static copse_status check_host(struct mender *m, const xmlNode *element) {
  const char *hash = copse_xml_attribute(element, "host_hash");
  if (!copse_xml_is(element, "cpu")) return COPSE_OK;
  if (!m->host) m->host = hash ? hash : "";
  if (strcmp(m->host, hash ? hash : "") == 0) return COPSE_OK;
  return REFUSE(m, COPSE_UNSUPPORTED, element,
                "several hosts, as NCCL fuses them; it loads a file of one host");
}

/* Adds an element with what is in it. Nesting is bounded by libxml2 (256). */
static copse_status add_element(struct mender *m, const xmlNode *element, int depth) {
  if (++m->n_elements > MAX_ELEMENTS)
    return REFUSE(m, COPSE_UNSUPPORTED, element, "more than %d elements, which NCCL reads",
                  MAX_ELEMENTS);
  if (!is_plain(copse_xml_name(element)))
    return REFUSE(m, COPSE_UNSUPPORTED, element, "an element that NCCL can't read");
  COPSE_DO(check_host(m, element));
  copse_text_add(&m->text, "%*s<%s", 2 * depth, "", copse_xml_name(element));
  COPSE_DO(add_attributes(m, element));
  const xmlNode *child = copse_xml_first(element);
  copse_text_add(&m->text, child ? ">\n" : "/>\n");
  if (!child) return COPSE_OK;
  for (; child; child = copse_xml_next(child)) COPSE_DO(add_element(m, child, depth + 1));
  copse_text_add(&m->text, "%*s</%s>\n", 2 * depth, "", copse_xml_name(element));
  return COPSE_OK;
}

copse_status copse_nccl_topo_mend(const char *label, const char *data, size_t size,
                                  const struct copse_notes *notes, char **text, size_t *out_size,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_xml_free) struct copse_xml xml = {0};
  struct mender m = {.xml = &xml, .notes = notes, .err = err};
  *text = NULL;
  COPSE_DO(copse_xml_parse(label, data, size, &xml, err));
  const xmlNode *root = copse_xml_root(&xml);
  if (!copse_xml_is(root, "system"))
    return REFUSE(&m, COPSE_BAD_INPUT, root,
                  "the root element is <%.40s>; an NCCL topology has <system>",
                  copse_xml_name(root));
  copse_status status = add_element(&m, root, 0);
  if (status == COPSE_OK) status = copse_text_take(&m.text, text, out_size, err);
  copse_text_free(&m.text);
  return status;
}
