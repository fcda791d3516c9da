/* copse tune TOPO -o FOLDER: the files with which an unmodified NCCL or RCCL runs the best rings
 * and chains, and a table of algorithms. The folder is made beside and renamed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/topology_args.h"
#include "nccl/best.h"
#include "nccl/judge.h"
#include "nccl/model.h"
#include "nccl/tune/order.h"
#include "nccl/tune/texts.h"
#include "nccl/tune/topo_write.h"
#include "topology/input/nccl_bandwidth.h"

#define PLUGIN "libnccl-tuner-copse.so"
/* Linux has room for 128 KiB in one variable. */
#define MAX_VARIABLE 100000
#define MAX_FIGURES 5
#define MAX_GROUPS 64 /* kinds of hosts */

struct options {
  struct copse_cli_topology topology;
  const char *output;
  struct copse_cli_nccl nccl;
  int target; /* 0 nccl, 1 rccl */
  int hosts;  /* 0: the topology's */
  bool json;
};

/* What the files are made from. */
struct job {
  const struct options *o;
  struct copse_cli_work *work;
  struct copse_topology *topology; /* the work's: all hosts */
  struct copse_nccl_best best;
  struct copse_nccl_graphs *graphs; /* [best.n_groups] the best's, and NVLS; they own nothing */
  const struct copse_nccl_graphs **each; /* [n_each] of hosts, where there are groups */
  int n_each;
  struct copse_nccl_machine machine;
  struct copse_nccl_judge judge;
  struct copse_cli_nccl_graphs theirs; /* NCCL's own */
  struct copse_nccl_judge judge_theirs;
  struct copse_nccl_model model;
  struct copse_nccl_order order;
  struct copse_tuner_table table;
  struct copse_tune_figure figures[MAX_FIGURES];
  struct copse_tune_time times[COPSE_TUNE_TIMES];
  struct copse_tune_facts facts;
  struct copse_text trees;
  char folder[PATH_MAX], beside[PATH_MAX + 8]; /* "": none was made */
  char *input;                                 /* XML that was given; or NULL */
  bool is_log;                                 /* a log with NCCL's tree was */
  size_t input_size;
  struct copse_err *err;
};

/* Returns the version by whose constants the topology is read, and that is to read the files. */
static long version_of(const struct job *j) { return copse_nccl_version(&j->o->topology.options); }

/* ---- the folder ------------------------------------------------------------------------------ */

static const char *const file_names[] = {"env.sh", "graph.xml", "topo.xml", "tuner.csv",
                                         PLUGIN,   "hostfile",  "README"};
enum { N_FILES = sizeof file_names / sizeof *file_names };

/* Whether a folder has the file of this name. */
static bool is_made(const struct copse_tune_facts *f, int file) {
  const bool made[N_FILES] = {true,          !f->rccl,        f->has_topo, f->has_table,
                              f->has_plugin, f->has_hostfile, true};
  return made[file];
}

/* Whether the name is graph-1.xml and so on, of hosts of several kinds. */
static bool is_graph(const char *name) {
  char other[COPSE_TUNE_NAME];
  int group = 0;
  if (sscanf(name, "graph-%d.xml", &group) != 1 || group < 1 || group >= MAX_GROUPS) return false;
  copse_tune_graph_name(group, other);
  return strcmp(name, other) == 0;
}

static bool is_ours(const char *name) {
  if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || is_graph(name)) return true;
  for (int i = 0; i < N_FILES; i++)
    if (strcmp(name, file_names[i]) == 0) return true;
  return false;
}

/* Checks that the folder holds no other files, since it is replaced as a whole. */
static copse_status check_folder(const char *folder, struct copse_err *err) {
  DIR *there = opendir(folder);
  copse_status status = COPSE_OK;
  if (!there && errno == ENOENT) return COPSE_OK;
  if (!there) return copse_fail_at(err, COPSE_IO, folder, 0, "no folder: %s", strerror(errno));
  for (struct dirent *entry; status == COPSE_OK && (entry = readdir(there));)
    if (!is_ours(entry->d_name))
      status = copse_fail_at(
          err, COPSE_IO, folder, 0,
          "holds %.80s, which is none of copse tune's files; give another folder", entry->d_name);
  closedir(there);
  return status;
}

static void remove_folder(const char *folder) {
  char path[PATH_MAX + 64];
  for (int i = 0; i < N_FILES; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, file_names[i]);
    (void)unlink(path);
  }
  for (int g = 1; g < MAX_GROUPS; g++) {
    char name[COPSE_TUNE_NAME];
    copse_tune_graph_name(g, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
  }
  (void)rmdir(folder);
}

/* Makes the folder's path absolute. The folder itself may not be there yet: its parent must be. */
static copse_status make_absolute(char folder[PATH_MAX], struct copse_err *err) {
  char parent[PATH_MAX], real[PATH_MAX];
  const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
  snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - folder) : 1, slash ? folder : ".");
  if (realpath(folder, real)) {
    snprintf(folder, PATH_MAX, "%s", real);
    return COPSE_OK;
  }
  if (!realpath(*parent ? parent : "/", real) || strlen(real) + strlen(name) + 40 > PATH_MAX)
    return copse_fail_at(err, COPSE_IO, folder, 0, "cannot be made a folder: %s", strerror(errno));
  size_t n = strlen(real);
  memmove(folder + n + 1, name, strlen(name) + 1);
  memcpy(folder, real, n);
  folder[n] = '/';
  return COPSE_OK;
}

static copse_status begin_folder(struct job *j) {
  const char *output = j->o->output;
  size_t n = strlen(output);
  while (n > 1 && output[n - 1] == '/') n--;
  if (n + 40 > sizeof j->folder) return copse_fail(j->err, COPSE_IO, "%.80s..: too long", output);
  snprintf(j->folder, sizeof j->folder, "%.*s", (int)n, output);
  COPSE_DO(make_absolute(j->folder, j->err));
  COPSE_DO(check_folder(j->folder, j->err));
  snprintf(j->beside, sizeof j->beside, "%s.XXXXXX", j->folder);
  if (!mkdtemp(j->beside)) {
    j->beside[0] = '\0';
    return copse_fail_at(j->err, COPSE_IO, j->folder, 0, "cannot be made a folder: %s",
                         strerror(errno));
  }
  mode_t mask = umask(0);
  (void)umask(mask);
  (void)chmod(j->beside, 0777 & ~mask);
  return COPSE_OK;
}

/* Puts the new folder in place of an older one in one step; that goes then. */
static copse_status end_folder(struct job *j) {
  if (rename(j->beside, j->folder) == 0) {
    j->beside[0] = '\0';
    return COPSE_OK;
  }
  if (renameat2(AT_FDCWD, j->beside, AT_FDCWD, j->folder, RENAME_EXCHANGE) == 0) return COPSE_OK;
  return copse_fail_at(j->err, COPSE_IO, j->folder, 0, "cannot be replaced: %s", strerror(errno));
}

static copse_status write_file(struct job *j, const char *name, const char *data, size_t size) {
  return copse_cli_write_in(j->beside, name, data, size, j->err);
}

static copse_status write_text(struct job *j, const char *name, const struct copse_text *text) {
  COPSE_DO(copse_text_status(text, j->err));
  return write_file(j, name, text->data, text->size);
}

/* ---- the topology ---------------------------------------------------------------------------- */

/* Reads the file's text where it is XML, which says more than the topology keeps of it. */
static copse_status read_input(struct job *j) {
  COPSE_AT_END(copse_free_at) char *path = NULL;
  const char *given = j->o->topology.path;
  if (!given || strcmp(given, "-") == 0) return COPSE_OK;
  COPSE_DO(copse_catalogue_find(given, copse_cli_catalogue(), &path, j->err));
  COPSE_DO(copse_file_read(path, &j->input, &j->input_size, j->err));
  const char *text = j->input + strspn(j->input, " \t\r\n");
  if (*text == '<') return COPSE_OK;
  j->is_log = strstr(text, "NCCL INFO === System ") != NULL;
  free(j->input);
  j->input = NULL;
  return COPSE_OK;
}

/* Refuses a file without GPUs: rings of a machine's PCIe alone would be the worst that could happen
 * to its NVLinks. */
static copse_status check_image(const struct job *j) {
  const struct copse_topology_options *options = &j->o->topology.options;
  if (!j->input || strstr(j->input, "<gpu") || options->nvlink_switch.num > 0 ||
      options->links == COPSE_LINKS_ALL)
    return COPSE_OK;
  return copse_fail_at(j->err, COPSE_INVALID, j->o->topology.path, 0,
                       "has no links of GPUs, as cloud images don't: say --nvlink-switch BW, or "
                       "--links all if the machine has none");
}

/* Loads the topology with all links, as NCCL sees it: also the PCIe from a GPU to the NIC of the
 * next one. */
static copse_status load_topology(struct job *j) {
  struct copse_cli_topology args = j->o->topology;
  COPSE_DO(read_input(j));
  COPSE_DO(check_image(j));
  if (args.options.links == COPSE_LINKS_DEFAULT && args.path && (j->input || j->is_log))
    args.options.links = COPSE_LINKS_ALL;
  COPSE_DO(copse_cli_load_topology(&args, &j->work->topology, &j->work->whole, j->err));
  COPSE_DO(copse_cli_repeat_host(&j->work->topology, j->o->hosts, j->err));
  j->topology = j->work->topology;
  return COPSE_OK;
}

/* ---- graphs and what they reach -------------------------------------------------------------- */

/* Whether every GPU is on an NVSwitch. */
static bool all_switched(const struct copse_topology *t) {
  for (int r = 0; r < t->n_ranks; r++) {
    bool on = false;
    for (int i = 0; i < t->n_links && !on; i++)
      on = t->links[i].src == t->rank_nodes[r] &&
           strcmp(t->nodes[t->links[i].dst].type, "nvswitch") == 0;
    if (!on) return false;
  }
  return true;
}

static void add_head(const struct job *j, struct copse_nccl_graph_search *g, int rank,
                     uint64_t net) {
  struct copse_nccl_channel *head = &g->channels[g->n_channels];
  for (int c = 0; c < g->n_channels; c++)
    if (*g->channels[c].devs == j->machine.devs[rank]) return;
  if (g->n_channels == COPSE_NCCL_MAX_CHANNELS) return;
  *head = (struct copse_nccl_channel){.n_gpus = 1, .n_nets = 2, .nets = {net, net}};
  head->devs = &j->machine.devs[rank];
  g->n_channels++;
}

/*
 * Adds NVLS, which NCCL has on an NVSwitch of Hopper or later: each GPU of a host alone is a head,
 * of several hosts the GPU next to each NIC. That search stays NCCL's; its graph is for figures
 * and the model.
 */
static copse_status add_nvls(struct job *j, int group) {
  struct copse_nccl_graphs *graphs = &j->graphs[group];
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(graphs, COPSE_NCCL_RING);
  struct copse_nccl_graph_search *g = &graphs->graph[COPSE_NCCL_NVLS];
  const struct copse_nccl_machine *m = &j->machine;
  int h = j->best.groups[group].host;
  if (!ring || j->o->target == 1 || j->model.sm < 90 || m->first[h + 1] - m->first[h] < 3 ||
      !all_switched(j->topology))
    return COPSE_OK;
  *g = *ring;
  g->id = COPSE_NCCL_NVLS;
  g->pattern = COPSE_NCCL_PATTERN_NVLS;
  g->n_channels = 0;
  COPSE_DO(COPSE_ARRAY(&j->work->arena, COPSE_NCCL_MAX_CHANNELS, g->channels, j->err));
  graphs->present[COPSE_NCCL_NVLS] = true;
  for (int i = m->first[h]; m->n_hosts == 1 && i < m->first[h + 1]; i++)
    add_head(j, g, m->members[i], 0);
  for (int p = m->first_port[h]; m->n_hosts > 1 && p < m->first_port[h + 1]; p++) {
    int rank = -1;
    COPSE_DO(copse_nccl_find_own_gpu(&j->machine, p, &rank, j->err));
    if (rank >= 0) add_head(j, g, rank, m->ports[p].dev);
  }
  return COPSE_OK;
}

/* Returns the busbw of a collective of algbw 1. */
static double factor_of(const struct job *j, copse_collective collective) {
  return copse_collective_bus_factor(collective, j->topology->n_ranks);
}

/* Finds the algbw in GB/s that the links allow an algorithm; 0: none. */
static copse_status judge_links(struct job *j, enum copse_nccl_graph_id id,
                                copse_collective collective, double *GBps) {
  struct copse_nccl_verdict verdict;
  *GBps = 0;
  if (!copse_nccl_judge_has(&j->judge, id, collective)) return COPSE_OK;
  COPSE_DO(copse_nccl_judge(&j->judge, id, collective, 0, &verdict, j->err));
  if (verdict.links_time.num > 0) *GBps = 1 / copse_q_to_double(verdict.links_time);
  return COPSE_OK;
}

static copse_status fill_model(struct job *j) {
  int sm = j->model.sm; /* guessed where the input does not say it */
  COPSE_DO(copse_nccl_judge_model(&j->judge, &j->model, j->err));
  j->model.sm = sm;
  j->model.amd = j->input && strstr(j->input, "AuthenticAMD");
  j->facts.ring_busbw = j->model.links[COPSE_NCCL_RING];
  j->facts.tree_busbw = j->model.links[COPSE_NCCL_TREE] / 2 * factor_of(j, COPSE_ALLREDUCE);
  return COPSE_OK;
}

/*
 * States the speeds of channels as NCCL counts them: of rings what passes a GPU, of trees twice an
 * allreduce's data, since NCCL takes half of a tree's bandwidth for each direction.
 */
static copse_status state_speed(struct job *j, enum copse_nccl_graph_id id) {
  int64_t n = j->topology->n_ranks;
  struct copse_nccl_verdict verdict;
  struct copse_q speed;
  if (!copse_nccl_judge_has(&j->judge, id, COPSE_ALLREDUCE)) return COPSE_OK;
  COPSE_DO(copse_nccl_judge(&j->judge, id, COPSE_ALLREDUCE, 0, &verdict, j->err));
  if (verdict.links_time.num == 0) return COPSE_OK;
  COPSE_DO(copse_q_make(2 * (id == COPSE_NCCL_RING ? n - 1 : n),
                        n * j->graphs[0].graph[id].n_channels, &speed, j->err));
  COPSE_DO(copse_q_div(speed, verdict.links_time, &speed, j->err));
  for (int i = 0; i < j->best.n_groups; i++) {
    struct copse_nccl_graph_search *g = &j->graphs[i].graph[id];
    g->speed_intra = g->speed_inter = speed;
    /* Where a host's links to others are matters on several only; NCCL ranks pattern 3 lower. */
    if (id == COPSE_NCCL_TREE && j->machine.n_hosts == 1)
      g->pattern = COPSE_NCCL_PATTERN_BALANCED_TREE;
  }
  return COPSE_OK;
}

static copse_status open_judge(struct job *j) {
  copse_nccl_judge_close(&j->judge);
  return copse_nccl_judge_open("graph.xml", j->each, j->n_each, &j->machine, &j->judge, j->err);
}

static copse_status find_graphs(struct job *j) {
  const struct copse_nccl_best_options options = {.max_channels = version_of(j) < 22500 ? 16 : 0};
  COPSE_DO(copse_nccl_best_find(j->topology, &options, &j->best, j->err));
  int groups = j->best.n_groups;
  if (groups > MAX_GROUPS)
    return copse_fail(j->err, COPSE_UNSUPPORTED, "hosts of %d kinds: at most %d have a graph each",
                      groups, MAX_GROUPS);
  j->n_each = groups > 1 ? j->best.n_hosts : 1;
  COPSE_DO(COPSE_ARRAY(&j->work->arena, (size_t)groups, j->graphs, j->err));
  COPSE_DO(COPSE_ARRAY(&j->work->arena, (size_t)j->n_each, j->each, j->err));
  for (int h = 0; h < j->n_each; h++) j->each[h] = &j->graphs[j->best.group_of[h]];
  j->model.sm = copse_nccl_topo_sm(j->topology);
  COPSE_DO(copse_nccl_machine_open(j->topology, &j->machine, j->err));
  for (int i = 0; i < groups; i++) {
    j->graphs[i] = j->best.groups[i].graphs;
    COPSE_DO(add_nvls(j, i));
  }
  COPSE_DO(open_judge(j));
  COPSE_DO(state_speed(j, COPSE_NCCL_RING));
  COPSE_DO(state_speed(j, COPSE_NCCL_TREE));
  return groups > 1 ? open_judge(j) : COPSE_OK; /* by what is stated now */
}

/* Loads NCCL's own graphs, one for all hosts or one for each kind of them. */
static copse_status load_theirs(struct job *j) {
  int n = j->o->nccl.n, n_each = n > 1 ? j->machine.n_hosts : 1;
  const struct copse_nccl_graphs **each;
  if (n == 0) return COPSE_OK;
  COPSE_DO(copse_cli_load_nccl(&j->o->nccl, &j->theirs, NULL, j->err));
  COPSE_DO(COPSE_ARRAY(&j->work->arena, (size_t)n_each, each, j->err));
  each[0] = j->theirs.of;
  if (n > 1) COPSE_DO(copse_nccl_graphs_by_host(&j->machine, j->theirs.of, n, each, j->err));
  return copse_nccl_judge_open(j->theirs.label, each, n_each, &j->machine, &j->judge_theirs,
                               j->err);
}

static copse_status judge_theirs(struct job *j, copse_collective collective,
                                 struct copse_tune_figure *figure) {
  struct copse_nccl_verdict verdict, nvls;
  struct copse_nccl_judge *judge = &j->judge_theirs;
  if (j->theirs.n == 0) return COPSE_OK;
  COPSE_DO(copse_nccl_judge_choice(judge, collective, &verdict, j->err));
  if (copse_nccl_judge_has(judge, COPSE_NCCL_NVLS, collective)) {
    COPSE_DO(copse_nccl_judge(judge, COPSE_NCCL_NVLS, collective, 0, &nvls, j->err));
    if (copse_q_cmp(copse_nccl_verdict_time(&nvls), copse_nccl_verdict_time(&verdict)) < 0)
      verdict = nvls;
  }
  double time = copse_q_to_double(copse_nccl_verdict_time(&verdict));
  if (time > 0) figure->theirs = factor_of(j, collective) / time;
  figure->theirs_algorithm = copse_nccl_algorithm_name(verdict.algorithm);
  return COPSE_OK;
}

/* Adds the best of ring, tree and NVLS by links. */
static copse_status add_figure(struct job *j, copse_collective collective) {
  static const enum copse_nccl_graph_id ids[] = {COPSE_NCCL_RING, COPSE_NCCL_TREE, COPSE_NCCL_NVLS};
  struct copse_tune_figure *figure = &j->figures[j->facts.n_figures++];
  enum copse_nccl_graph_id best = COPSE_NCCL_RING;
  double most = 0, GBps;
  *figure = (struct copse_tune_figure){.collective = copse_collective_name(collective)};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    COPSE_DO(judge_links(j, ids[i], collective, &GBps));
    if (GBps <= most) continue;
    most = GBps;
    best = ids[i];
  }
  figure->ours = most * factor_of(j, collective);
  figure->algorithm = best != COPSE_NCCL_NVLS  ? copse_nccl_algorithm_name(best)
                      : j->machine.n_hosts > 1 ? "NVLSTree, NCCL's own"
                                               : "NVLS, NCCL's own";
  if (best == COPSE_NCCL_TREE)
    figure->bound = copse_q_to_double(j->best.chain.bound) * factor_of(j, COPSE_ALLREDUCE);
  else if (best == COPSE_NCCL_RING && j->best.ring.n > 0)
    figure->bound = copse_q_to_double(j->best.ring.bound);
  return judge_theirs(j, collective, figure);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns the oldest version for which the very same text is written. */
static long oldest_reader(const struct job *j, const struct copse_nccl_graphs *graphs,
                          const char *text) {
  static const long steps[] = {21800, 22000, 22100, 22500, 22700, 22907}; /* graph.c's */
  for (size_t i = 0; i < sizeof steps / sizeof *steps && steps[i] < version_of(j); i++) {
    COPSE_AT_END(copse_free_at) char *other = NULL;
    size_t size;
    if (copse_nccl_graphs_write(graphs, j->machine.n_hosts, steps[i], &other, &size, NULL) ==
            COPSE_OK &&
        strcmp(other, text) == 0)
      return steps[i];
  }
  return version_of(j);
}

/* Returns what a file holds of a group's graphs: NCCL's own search for NVLS is as good. */
static struct copse_nccl_graphs searched(const struct job *j, int group) {
  struct copse_nccl_graphs graphs = j->graphs[group];
  graphs.present[COPSE_NCCL_NVLS] = false;
  return graphs;
}

/* Makes a name of the files of all kinds of hosts together, for the drop-in: by what is in them. */
static copse_status name_set(struct job *j, char name[17]) {
  COPSE_AT_END(copse_text_free) struct copse_text all = {0};
  char digest[COPSE_SHA256_HEX];
  for (int i = 0; i < j->best.n_groups; i++) {
    COPSE_AT_END(copse_free_at) char *text = NULL;
    const struct copse_nccl_graphs graphs = searched(j, i);
    size_t size;
    COPSE_DO(
        copse_nccl_graphs_write(&graphs, j->machine.n_hosts, version_of(j), &text, &size, j->err));
    copse_text_append(&all, text, size);
  }
  COPSE_DO(copse_text_status(&all, j->err));
  copse_sha256_hex(all.data, all.size, digest);
  snprintf(name, 17, "%.16s", digest);
  return COPSE_OK;
}

static copse_status write_graphs(struct job *j) {
  char set[17] = "";
  if (j->best.n_groups > 1) COPSE_DO(name_set(j, set));
  for (int i = 0; i < j->best.n_groups; i++) {
    COPSE_AT_END(copse_free_at) char *text = NULL;
    struct copse_nccl_graphs graphs = searched(j, i);
    char name[COPSE_TUNE_NAME];
    size_t size;
    if (*set) graphs.set = set;
    COPSE_DO(
        copse_nccl_graphs_write(&graphs, j->machine.n_hosts, version_of(j), &text, &size, j->err));
    long oldest = oldest_reader(j, &graphs, text);
    if (oldest > j->facts.version) j->facts.version = oldest;
    copse_tune_graph_name(i, name);
    if (j->o->target != 1) COPSE_DO(write_file(j, name, text, size));
  }
  return COPSE_OK;
}

/* Makes the topology's file. NCCL's version of the format is 1, RCCL's 2, and neither reads the
 * other's. */
static copse_status make_topo(struct job *j, char **text, size_t *size, struct copse_err *why) {
  const struct copse_nccl_topo_options options = {.notes = &copse_cli_notes};
  if (j->o->topology.n_faults > 0 || j->o->topology.ranks)
    return copse_fail(why, COPSE_UNSUPPORTED, "it would not say what is down or left out");
  if (!j->input && j->o->target == 1)
    return copse_fail(why, COPSE_UNSUPPORTED, "RCCL's form of a topology is from RCCL's own dump");
  if (!j->input) return copse_nccl_topo_write(j->topology, &options, text, size, why);
  COPSE_DO(copse_nccl_topo_mend(j->o->topology.path, j->input, j->input_size, &copse_cli_notes,
                                text, size, why));
  bool of_rccl = strstr(*text, "<system version=\"2\"") != NULL;
  if (of_rccl == (j->o->target == 1)) return COPSE_OK;
  return copse_fail(why, COPSE_UNSUPPORTED, "the file is %s, which %s refuses",
                    of_rccl ? "RCCL's" : "NCCL's", of_rccl ? "NCCL" : "RCCL");
}

static copse_status write_topo(struct job *j) {
  COPSE_AT_END(copse_free_at) char *text = NULL;
  struct copse_err why = COPSE_ERR_INIT;
  size_t size;
  copse_status status = make_topo(j, &text, &size, &why);
  if (status == COPSE_UNSUPPORTED) {
    j->facts.no_topo = copse_arena_strdup(&j->work->arena, why.text);
    return j->facts.no_topo ? COPSE_OK : copse_fail_nomem(j->err);
  }
  if (status != COPSE_OK) return copse_fail(j->err, status, "%s", why.text);
  j->facts.has_topo = true;
  j->facts.topo_is_real = j->input != NULL;
  return write_file(j, "topo.xml", text, size);
}

/* RCCL's latencies are its own: rules are for messages so large that links alone count. */
#define RCCL_LARGE ((uint64_t)64 << 20)

static copse_status add_rccl_rules(struct job *j) {
  struct copse_tuner_rule rule = {.collective = COPSE_TUNER_ALLREDUCE,
                                  .algorithm = COPSE_TUNER_TREE,
                                  .protocol = COPSE_TUNER_SIMPLE,
                                  .min_bytes = RCCL_LARGE,
                                  .max_bytes = UINT64_MAX,
                                  .nodes = j->machine.n_hosts,
                                  .ranks = j->topology->n_ranks,
                                  .pipe_ops = COPSE_TUNER_ANY,
                                  .registered = COPSE_TUNER_ANY};
  return copse_tuner_table_add(&j->table, &rule, j->err);
}

/* Whether all that NCCL may run for these calls is in the model, which lacks PAT (allgather and
 * reduce_scatter of hosts of one GPU). */
static bool is_modelled(const struct job *j, copse_collective collective) {
  return collective == COPSE_ALLREDUCE || copse_collective_rooted(collective) ||
         j->topology->n_ranks > j->machine.n_hosts;
}

static copse_status add_nccl_rules(struct job *j) {
  static const struct {
    int call;
    copse_collective collective;
  } all[] = {{COPSE_TUNER_ALLREDUCE, COPSE_ALLREDUCE},
             {COPSE_TUNER_ALLGATHER, COPSE_ALLGATHER},
             {COPSE_TUNER_REDUCE_SCATTER, COPSE_REDUCE_SCATTER},
             {COPSE_TUNER_BROADCAST, COPSE_BROADCAST},
             {COPSE_TUNER_REDUCE, COPSE_REDUCE}};
  COPSE_AT_END(copse_text_free) struct copse_text names = {0};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!is_modelled(j, all[i].collective)) continue;
    copse_text_add(&names, "%s%s", names.size > 0 ? ", " : "",
                   copse_collective_name(all[i].collective));
    COPSE_DO(judge_links(j, COPSE_NCCL_NVLS, all[i].collective, &j->model.links[COPSE_NCCL_NVLS]));
    COPSE_DO(copse_nccl_choose_rules(&j->model, all[i].call, &j->table, j->err));
  }
  COPSE_DO(copse_text_status(&names, j->err));
  return copse_arena_text(&j->work->arena, names.data, &j->facts.calls, j->err);
}

static copse_status write_table(struct job *j) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  bool rccl = j->o->target == 1;
  if (rccl && j->facts.tree_busbw <= j->facts.ring_busbw)
    j->facts.no_table = "rings are the best for large messages, as RCCL takes them anyway";
  if (j->facts.no_table) return COPSE_OK;
  COPSE_DO(rccl ? add_rccl_rules(j) : add_nccl_rules(j));
  copse_tuner_table_print(&j->table, rccl ? -1 : 0, &text);
  j->facts.has_table = true;
  return write_text(j, "tuner.csv", &text);
}

static copse_status find_times(struct job *j) {
  j->facts.times = j->times;
  if (j->o->target == 1) return COPSE_OK;
  COPSE_DO(judge_links(j, COPSE_NCCL_NVLS, COPSE_ALLREDUCE, &j->model.links[COPSE_NCCL_NVLS]));
  j->facts.n_times = copse_tune_find_times(&j->model, j->times);
  return COPSE_OK;
}

static copse_status copy_plugin(struct job *j) {
  char path[PATH_MAX + 64];
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  if (!j->facts.has_table || j->o->target == 1) return COPSE_OK;
  if (!copse_cli_library(PLUGIN, path, sizeof path)) {
    copse_note(&copse_cli_notes, "%s is not beside this program: it must be where the loader looks",
               PLUGIN);
    return COPSE_OK;
  }
  COPSE_DO(copse_file_read(path, &data, &size, j->err));
  j->facts.has_plugin = true;
  return write_file(j, PLUGIN, data, size);
}

static copse_status write_hostfile(struct job *j) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  COPSE_DO(copse_nccl_order_hosts(&j->machine, &j->work->arena, &j->order, j->err));
  j->facts.hops_given = j->order.given;
  j->facts.hops_best = j->order.best;
  j->facts.has_hostfile = j->order.matters && j->best.n_groups == 1; /* whose graphs have places */
  if (!j->facts.has_hostfile) return COPSE_OK;
  for (int i = 0; i < j->machine.n_hosts; i++)
    copse_text_add(&text, "h%d slots=%d\n", j->order.hosts[i], j->machine.first[1]);
  return write_text(j, "hostfile", &text);
}

/* Makes RCCL's variables. */
static copse_status make_variables(struct job *j) {
  int channels = j->best.ring.n * (j->machine.n_hosts > 1 ? 2 : 1);
  if (j->o->target != 1) return COPSE_OK;
  const char **rings;
  bool fits = true;
  COPSE_DO(COPSE_ARRAY(&j->work->arena, (size_t)j->best.n_groups, rings, j->err));
  for (int i = 0; i < j->best.n_groups; i++) {
    COPSE_AT_END(copse_text_free) struct copse_text text = {0};
    COPSE_DO(copse_rccl_rings(&j->graphs[i], j->machine.n_hosts, &text, j->err));
    fits = fits && text.size <= MAX_VARIABLE;
    COPSE_DO(copse_arena_text(&j->work->arena, text.data, &rings[i], j->err));
  }
  if (fits) j->facts.rings = rings;
  COPSE_DO(copse_rccl_trees(&j->judge.joined, channels, &j->trees, j->err));
  if (j->trees.size <= MAX_VARIABLE) j->facts.trees = j->trees.data;
  return COPSE_OK;
}

static copse_status write_texts(struct job *j) {
  COPSE_AT_END(copse_text_free) struct copse_text env = {0}, readme = {0};
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(&j->graphs[0], COPSE_NCCL_RING);
  j->facts.topology = j->topology->name;
  j->facts.folder = j->folder;
  j->facts.version_text = copse_version();
  j->facts.rccl = j->o->target == 1;
  j->facts.hosts = j->machine.n_hosts;
  j->facts.gpus = j->machine.first[1];
  j->facts.n_groups = j->best.n_groups;
  j->facts.group_of = j->best.group_of;
  j->facts.even = j->machine.even;
  j->facts.same_nics = j->machine.same_nics;
  j->facts.channels = ring ? ring->n_channels : 0;
  j->facts.joined = j->judge.joined.n_channels;
  j->facts.figures = j->figures;
  j->facts.has_theirs = j->theirs.n > 0;
  for (int i = 0; ring && i < ring->channels[0].n_gpus; i++)
    j->facts.domain = j->facts.domain || copse_nccl_dev_system(ring->channels[0].devs[i]) > 0;
  copse_tune_write_env(&j->facts, &env);
  copse_tune_write_readme(&j->facts, &readme);
  COPSE_DO(write_text(j, "env.sh", &env));
  return write_text(j, "README", &readme);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_summary(const struct job *j) {
  const struct copse_tune_facts *f = &j->facts;
  const struct copse_tune_figure *allreduce = &j->figures[0];
  printf("%s for %s: %d host%s of %d GPU%s, %d channel%s\n", f->rccl ? "RCCL" : "NCCL", f->topology,
         f->hosts, COPSE_S(f->hosts), f->gpus, COPSE_S(f->gpus), f->channels, COPSE_S(f->channels));
  printf("allreduce, busbw by the links: rings %.4g GB/s, trees %.4g GB/s\n", f->ring_busbw,
         f->tree_busbw);
  if (f->has_theirs && allreduce->theirs > 0)
    printf("NCCL's own graph: %.4g GB/s (%s)\n", allreduce->theirs, allreduce->theirs_algorithm);
  COPSE_AT_END(copse_text_free) struct copse_text times = {0};
  copse_tune_write_times(f, COPSE_TUNE_TIMES_TABLE, &times);
  if (times.data && !times.failed) fputs(times.data, stdout);
  printf("%s:", j->o->output);
  for (int i = 0; i < N_FILES; i++)
    if (is_made(f, i)) printf(" %s", file_names[i]);
  for (int g = 1; g < f->n_groups && !f->rccl; g++) {
    char name[COPSE_TUNE_NAME];
    copse_tune_graph_name(g, name);
    printf(" %s", name);
  }
  printf("\n");
}

static copse_status print_json(const struct job *j) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  const struct copse_tune_facts *f = &j->facts;
  copse_text_add(&text, "{\"library\": \"%s\", \"topology\": ", f->rccl ? "rccl" : "nccl");
  copse_text_add_json_string(&text, f->topology);
  copse_text_add(&text, ", \"folder\": ");
  copse_text_add_json_string(&text, j->o->output);
  copse_text_add(&text,
                 ",\n \"hosts\": %d, \"gpus\": %d, \"channels\": %d, \"rings_busbw_GBps\": %s, "
                 "\"chains_busbw_GBps\": %s,\n \"files\": [",
                 f->hosts, f->gpus, f->channels, COPSE_CLI_NUMBER(f->ring_busbw),
                 COPSE_CLI_NUMBER(f->tree_busbw));
  for (int i = 0; i < N_FILES; i++)
    if (is_made(f, i)) copse_text_add(&text, "%s\"%s\"", i > 0 ? ", " : "", file_names[i]);
  for (int g = 1; g < f->n_groups && !f->rccl; g++) {
    char name[COPSE_TUNE_NAME];
    copse_tune_graph_name(g, name);
    copse_text_add(&text, ", \"%s\"", name);
  }
  copse_text_add(&text, "],\n \"collectives\": [");
  copse_tune_write_figures_json(f, &text);
  copse_text_add(&text, "],\n \"allreduce_by_nccl\": [");
  copse_tune_write_times(f, COPSE_TUNE_TIMES_JSON, &text);
  copse_text_add(&text, "]}\n");
  COPSE_DO(copse_text_status(&text, j->err));
  fwrite(text.data, 1, text.size, stdout);
  return COPSE_OK;
}

static copse_status make_files(struct job *j) {
  static const copse_collective collectives[] = {
      COPSE_ALLREDUCE, COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_BROADCAST, COPSE_REDUCE};
  j->work->place = copse_cli_topology_label(&j->o->topology);
  COPSE_DO(load_topology(j));
  if (j->topology->n_ranks < 2)
    return copse_fail(j->err, COPSE_UNSUPPORTED,
                      "one GPU alone has nothing to tune: give several, or --hosts");
  copse_cli_phase("rings");
  COPSE_DO(find_graphs(j));
  COPSE_DO(load_theirs(j));
  copse_cli_phase("model");
  COPSE_DO(fill_model(j));
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
    COPSE_DO(add_figure(j, collectives[i]));
  COPSE_DO(begin_folder(j));
  COPSE_DO(write_graphs(j));
  COPSE_DO(write_topo(j));
  COPSE_DO(write_table(j));
  COPSE_DO(copy_plugin(j));
  COPSE_DO(write_hostfile(j));
  COPSE_DO(make_variables(j));
  COPSE_DO(find_times(j));
  COPSE_DO(write_texts(j));
  copse_cli_progress_end();
  return end_folder(j);
}

static copse_status tune(void *options, struct copse_cli_work *work) {
  struct job j = {.o = options, .work = work, .err = &work->err};
  copse_status status = make_files(&j);
  if (j.beside[0]) remove_folder(j.beside);
  if (status == COPSE_OK && !j.o->json) print_summary(&j);
  if (status == COPSE_OK && j.o->json) status = print_json(&j);
  copse_nccl_judge_close(&j.judge);
  copse_nccl_judge_close(&j.judge_theirs);
  copse_nccl_machine_free(&j.machine);
  copse_cli_nccl_free(&j.theirs);
  copse_nccl_best_free(&j.best);
  copse_tuner_table_free(&j.table);
  copse_text_free(&j.trees);
  free(j.input);
  return status;
}

static int run(void *options, int n_left, char **left) {
  struct options *o = options;
  int exit = copse_cli_take_topology(&o->topology, "tune", n_left, left);
  if (exit != COPSE_EXIT_DONE) return exit;
  const struct copse_cli_rule rules[] = {
      {!o->output, "give -o FOLDER, where the files go"},
      {o->output && (copse_cli_is_stdout(o->output) || !*o->output), "-o must be a folder"},
      {o->nccl.n > 0 && o->target == 1, "--nccl is a dump of NCCL's, for --for nccl"},
  };
  exit = COPSE_CLI_CHECK("tune", rules);
  return exit == COPSE_EXIT_DONE ? copse_cli_do(tune, o) : exit;
}

static int take_nccl(void *options, const char *command, char *value) {
  return copse_cli_take_nccl(&((struct options *)options)->nccl, command, value);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const char *const targets[] = {"nccl", "rccl", NULL};
static const struct copse_option own[] = {
    {"--output", 'o', "FOLDER", "where the files go; what copse tune has made there is replaced",
     TO(output), .common = true},
    {"--for", 0, "LIBRARY", "nccl (default) or rccl", TO(target), .words = targets,
     .must = "nccl or rccl", .common = true},
    {"--hosts", 0, "N", "so many hosts like the topology, on a network without bottlenecks",
     TO(hosts), COPSE_OPTION_RANGE(1, 4096), .common = true},
    {"--nccl", 0, "GRAPH",
     "NCCL's own graph (NCCL_GRAPH_DUMP_FILE), to say what it reaches without\nthis; where hosts "
     "differ, once for each kind of host",
     .take = take_nccl, .common = true, .takes = COPSE_KIND_GRAPHS},
    {"--json", 'j', NULL, "what was made and what it reaches, as one JSON object", TO(json),
     .common = true},
    {0}};

static const char usage[] =
    "usage: copse tune TOPO -o FOLDER [options]\n\n"
    "Makes a folder that a job sources, for an NCCL or RCCL as it is: the best rings and chains "
    "for\n"
    "its channels (graph.xml), the topology as it reads it (topo.xml), a table of algorithms by "
    "size\n"
    "with the plugin that reads it, the order of hosts where that matters, env.sh, which sets the\n"
    "variables, and README: what each file is for, what to expect, how to undo it. The files are "
    "for\n"
    "the NCCL of --nccl-version and later.\n\n";

const struct copse_command copse_cmd_tune = {
    .name = "tune",
    .does = "make files with which NCCL or RCCL runs the best rings and trees",
    .usage = usage,
    .example = "example: copse tune pcie-8-2s -o tuned && . tuned/env.sh\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "More options", .options = own},
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .size = sizeof(struct options),
    .run = run};
