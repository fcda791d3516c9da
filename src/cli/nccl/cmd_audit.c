/*
 * copse audit [FILE ...]: files told apart by content, then what the fabric can do, what NCCL can,
 * what was measured, and the causes of the gaps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/solve_args.h"
#include "cli/topology_args.h"
#include "nccl/audit/audit.h"
#include "nccl/best.h"
#include "nccl/from_log.h"
#include "schedule/loads.h"
#include "topology/input/nccl_bandwidth.h"
#include "view/audit_page.h"

#define MOST_TESTS 64
#define MOST_GRAPHS COPSE_CLI_MAX_NCCL
#define MOST_REMARKS 8
#define MOST_DOUBTS 32

struct options {
  struct copse_cli_topology topology;
  const char *output;
  int hosts, n_files;
  char **files;
  bool json;
};

/* What the files held, and what is made of it. */
struct inputs {
  /* ---- graphs ---- */
  struct copse_nccl_graphs *graphs; /* [n_graphs] of dumps, else of the log's hosts */
  int n_graphs;
  const char *graphs_path;               /* the first; NULL: none */
  const char *dumps[MOST_GRAPHS];        /* of graphs that are no log's */
  const struct copse_nccl_graphs **each; /* [n_each] as a judge takes them */
  int n_each;

  /* ---- a job's log ---- */
  struct copse_nccl_log log;
  const char *log_path;              /* the first; NULL: none */
  const char *tree_path;             /* of the first log that prints a topology */
  const struct copse_log_comm *comm; /* of `log` */
  struct copse_nccl_log_unlike unlike;
  int *place; /* [n_ranks] of the communicator on the machine */

  /* ---- what was measured and recorded ---- */
  struct copse_tests tests[MOST_TESTS];
  const char *tests_paths[MOST_TESTS], *nvbandwidth_path;
  int n_tests;
  struct copse_calls calls;
  struct copse_ras ras;
  struct copse_nvbandwidth nvbandwidth;
  bool has_calls, has_ras, has_nvbandwidth;

  /* ---- what the fabric and NCCL can do ---- */
  struct copse_nccl_machine machine;
  struct copse_nccl_judge judge;
  bool has_judge;
  struct copse_schedule *schedules[COPSE_ALLTOALL]; /* without trees: bounds */
  struct copse_audit_bound bounds[COPSE_ALLTOALL];
  int n_bounds;
  struct copse_nccl_best best;
  struct copse_topology *all; /* with all links that NCCL sees, where bounds leave some out */
  bool has_best, repeated;

  /* ---- findings --------- */
  struct copse_notes notes;          /* for readers; it keeps */
  const char *remarks[MOST_REMARKS]; /* remarks on what NCCL misreads */
  int n_remarks;
  struct copse_audit_gap doubts[MOST_DOUBTS];
  int n_doubts;
  const char *tune; /* the command that mends */
  struct copse_audit audit;

  struct copse_arena arena;
};

static void free_inputs(struct inputs *in) {
  copse_audit_free(&in->audit);
  copse_nccl_best_free(&in->best);
  copse_nccl_judge_close(&in->judge);
  copse_nccl_machine_free(&in->machine);
  for (int i = 0; i < in->n_graphs; i++) copse_nccl_graphs_free(&in->graphs[i]);
  copse_nccl_log_free(&in->log);
  for (int i = 0; i < in->n_tests; i++) copse_tests_free(&in->tests[i]);
  copse_calls_free(&in->calls);
  copse_ras_free(&in->ras);
  copse_nvbandwidth_free(&in->nvbandwidth);
  free(in->place);
  copse_topology_free(in->all);
  for (int i = 0; i < COPSE_ALLTOALL; i++) copse_schedule_free(in->schedules[i]);
  copse_arena_free(&in->arena); /* the graphs' own array is in it */
}

/* Takes notes of readers: those on what NCCL takes something for are findings, the others go on. */
static void take_note(void *ctx, const char *text) {
  struct inputs *in = ctx;
  bool misread = strstr(text, "NCCL") && strstr(text, " takes ");
  const char *copy =
      misread && in->n_remarks < MOST_REMARKS ? copse_arena_strdup(&in->arena, text) : NULL;
  if (copy)
    in->remarks[in->n_remarks++] = copy;
  else
    copse_note(&copse_cli_notes, "%s", text);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Takes a text of a kind of which only one may be given. */
static copse_status take_once(bool *has, const char *path, unsigned kind, struct copse_err *err) {
  if (*has)
    return copse_fail(err, COPSE_INVALID, "%s: a second file with %s; give one", path,
                      copse_nccl_kind_name(kind));
  *has = true;
  return COPSE_OK;
}

static copse_status take_graphs(struct inputs *in, const char *path, const char *data, size_t size,
                                struct copse_err *err) {
  if (!in->graphs) COPSE_DO(COPSE_ARRAY(&in->arena, MOST_GRAPHS, in->graphs, err));
  if (in->n_graphs == MOST_GRAPHS)
    return copse_fail(err, COPSE_INVALID, "%s: more than %d graph files", path, MOST_GRAPHS);
  if (!in->graphs_path) in->graphs_path = path;
  in->dumps[in->n_graphs] = path;
  return copse_nccl_graphs_parse(path, data, size, &in->notes, &in->graphs[in->n_graphs++], err);
}

static void note_damaged(const char *path, int64_t n, unsigned kind) {
  if (n > 0)
    copse_note(&copse_cli_notes, "%s: %lld damaged records are passed over in %s", path,
               (long long)n, copse_nccl_kind_name(kind));
}

static copse_status take_tests(struct inputs *in, const char *path, const char *data, size_t size,
                               struct copse_err *err) {
  if (in->n_tests == MOST_TESTS)
    return copse_fail(err, COPSE_INVALID, "%s: more than %d files of nccl-tests", path, MOST_TESTS);
  in->tests_paths[in->n_tests] = path;
  struct copse_tests *t = &in->tests[in->n_tests++];
  COPSE_DO(copse_tests_parse(path, data, size, t, err));
  note_damaged(path, t->n_damaged, COPSE_NCCL_IS_TESTS);
  return COPSE_OK;
}

/* Takes a file of no other kind as a topology, or as a name of the catalogue. */
static copse_status take_topology(struct options *o, const char *path, struct copse_err *err) {
  if (copse_cli_has_topology(&o->topology))
    return copse_fail(err, COPSE_INVALID,
                      "%s: after %s a second topology, or a file of a kind that audit doesn't know",
                      path, copse_cli_topology_label(&o->topology));
  o->topology.path = path;
  return COPSE_OK;
}

/* Whether a rank's lines of the subsystem GRAPH print a topology, to its end. */
static copse_status find_tree(const struct options *o, struct inputs *in, const char *path,
                              const char *data, size_t size, struct copse_err *err) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *tree = NULL;
  struct copse_topology_options options = o->topology.options;
  struct copse_err why = COPSE_ERR_INIT;
  if (in->tree_path || strcmp(path, "-") == 0 || !memmem(data, size, "=== System ", 11))
    return COPSE_OK;
  options.notes = NULL;
  options.profile = NULL;
  copse_status status = copse_topology_parse(path, data, size, &options, &tree, &why);
  if (status == COPSE_OK) in->tree_path = path;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

static copse_status take_file(struct options *o, struct inputs *in, const char *path,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size = 0;
  if (access(path, F_OK) != 0) return take_topology(o, path, err);
  COPSE_DO(copse_file_read(path, &data, &size, err));
  unsigned kinds = copse_nccl_detect(data, size);
  if (kinds & COPSE_NCCL_IS_GRAPHS) return take_graphs(in, path, data, size, err);
  if (kinds & COPSE_NCCL_IS_TOPOLOGY) return take_topology(o, path, err);
  if (kinds & COPSE_NCCL_IS_PROFILE)
    return copse_fail(err, COPSE_INVALID, "%s is a profile; give it by --profile", path);
  if (kinds & COPSE_NCCL_IS_LOG) {
    if (!in->log_path) COPSE_DO(copse_nccl_log_open(&in->log, err));
    if (!in->log_path) in->log_path = path;
    COPSE_DO(copse_nccl_log_add(&in->log, data, size, err));
    COPSE_DO(find_tree(o, in, path, data, size, err));
  }
  if (kinds & COPSE_NCCL_IS_TESTS) COPSE_DO(take_tests(in, path, data, size, err));
  if (kinds & COPSE_NCCL_IS_NVBANDWIDTH) {
    COPSE_DO(take_once(&in->has_nvbandwidth, path, COPSE_NCCL_IS_NVBANDWIDTH, err));
    in->nvbandwidth_path = path;
    COPSE_DO(copse_nvbandwidth_parse(path, data, size, &in->nvbandwidth, err));
    note_damaged(path, in->nvbandwidth.n_damaged, COPSE_NCCL_IS_NVBANDWIDTH);
  }
  if (kinds & COPSE_NCCL_IS_RAS) {
    COPSE_DO(take_once(&in->has_ras, path, COPSE_NCCL_IS_RAS, err));
    COPSE_DO(copse_ras_parse(path, data, size, &in->ras, err));
    note_damaged(path, in->ras.n_damaged, COPSE_NCCL_IS_RAS);
  }
  if (kinds & COPSE_NCCL_IS_CALLS) {
    in->has_calls = true;
    int64_t damaged = in->calls.n_damaged;
    COPSE_DO(copse_calls_add(&in->calls, path, data, size, err));
    note_damaged(path, in->calls.n_damaged - damaged, COPSE_NCCL_IS_CALLS);
  }
  return kinds ? COPSE_OK : take_topology(o, path, err);
}

/* Finds a topology where none is given: what the log prints, what NCCL dumped, or what nvidia-smi
 * says of this machine. */
static copse_status look_at_machine(struct options *o, struct inputs *in,
                                    struct copse_cli_work *w) {
  char program[] = "nvidia-smi", topo[] = "topo", matrix[] = "-m";
  char *argv[] = {program, topo, matrix, NULL};
  const char *dump = getenv("NCCL_TOPO_DUMP_FILE");
  struct copse_topology_options options = o->topology.options;
  if (in->tree_path) {
    copse_note(&copse_cli_notes, "no topology was given; that which %s prints is taken",
               in->tree_path);
    o->topology.path = in->tree_path;
    return copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err);
  }
  if (dump && access(dump, R_OK) == 0) {
    copse_note(&copse_cli_notes, "no topology was given; %s is taken, as NCCL_TOPO_DUMP_FILE says",
               dump);
    o->topology.path = dump;
    return copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err);
  }
  if (copse_process_filter(argv, "", 0, 20, 1 << 20, &w->data, &w->size, NULL) != COPSE_OK)
    return copse_fail(
        &w->err, COPSE_INVALID,
        "no topology: give one (NCCL_TOPO_DUMP_FILE=topo.xml makes NCCL write it), or "
        "run this where nvidia-smi topo -m works");
  copse_note(&copse_cli_notes, "no topology was given; nvidia-smi topo -m was run for it");
  return copse_topology_parse("nvidia-smi topo -m", w->data, w->size, &options, &w->topology,
                              &w->err);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Counts the ranks that were at work, by the log, else by the tests; 0: not said. */
static int ranks_at_work(const struct inputs *in) {
  if (in->log_path && in->log.n_comms > 0) return in->log.comms[0].n_ranks;
  for (int i = 0; i < in->n_tests; i++)
    if (in->tests[i].n_ranks > 0) return in->tests[i].n_ranks;
  return 0;
}

/* Returns how many hosts of the topology's kind there are; 0: as the topology has them. A graph
 * with NICs is of several, two for all that it says. */
static int hosts_of(const struct options *o, const struct inputs *in, int n_gpus) {
  const struct copse_nccl_graph_search *ring =
      in->n_graphs > 0 ? copse_nccl_graph(&in->graphs[0], COPSE_NCCL_RING) : NULL;
  int ranks = ranks_at_work(in);
  if (o->hosts > 0) return o->hosts;
  if (in->machine.n_hosts > 1) return 0;
  if (ranks > n_gpus && ranks % n_gpus == 0) return ranks / n_gpus;
  if (ranks > 0 || !ring || ring->channels[0].n_nets == 0) return 0;
  copse_note(&copse_cli_notes,
             "%s is a graph of several hosts, taken for two alike; --hosts says how many",
             in->graphs_path);
  return 2;
}

/* Returns the topology that NCCL's choice is judged on. */
static struct copse_topology *whole_of(const struct inputs *in, const struct copse_cli_work *w) {
  return in->all ? in->all : w->topology;
}

/* Loads the topology with all links, as NCCL sees all of its XML, also those over the CPUs beside
 * NVLinks, and takes such ways to NICs; bounds are of what `copse solve` takes. */
static copse_status load_all_links(const struct options *o, struct inputs *in,
                                   struct copse_cli_work *w) {
  struct copse_cli_topology args = o->topology;
  const struct copse_topology *t = w->topology;
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *healthy = NULL;
  if (!args.path || args.options.links != COPSE_LINKS_DEFAULT ||
      !t->nodes[t->rank_nodes[0]].has_dev)
    return COPSE_OK;
  args.options.links = COPSE_LINKS_ALL;
  args.options.notes = NULL;
  return copse_cli_load_topology(&args, &in->all, &healthy, &w->err);
}

static copse_status repeat_host(const struct options *o, struct inputs *in,
                                struct copse_cli_work *w) {
  int hosts = hosts_of(o, in, w->topology->n_ranks);
  if (hosts == 0 || hosts == in->machine.n_hosts) return COPSE_OK;
  copse_nccl_machine_free(&in->machine);
  COPSE_DO(copse_cli_repeat_host(&w->topology, hosts, &w->err));
  if (in->all) COPSE_DO(copse_cli_repeat_host(&in->all, hosts, &w->err));
  in->repeated = true;
  return copse_nccl_machine_open(whole_of(in, w), &in->machine, &w->err);
}

/* Finds the best rings and chains that NCCL could run; where there is no answer the audit goes on
 * without. */
static copse_status find_best(struct inputs *in, const struct copse_topology *t,
                              struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  const struct copse_nccl_best_options options = {0};
  copse_status status = copse_nccl_best_find(t, &options, &in->best, &why);
  in->has_best = status == COPSE_OK;
  return status == COPSE_NOMEM ? copse_fail_nomem(err) : COPSE_OK;
}

/* ---- whether files belong together ----------------------------------------------------------- */

static void doubt_it(struct inputs *in, const char *command, const char *what) {
  if (what && in->n_doubts < MOST_DOUBTS)
    in->doubts[in->n_doubts++] = (struct copse_audit_gap){what, command};
}
#define doubt(in, command, ...) \
  doubt_it((in), (command), copse_arena_printf(&(in)->arena, __VA_ARGS__))

/* Whether any name in one list is in the other; empty names are not said, and so no difference. */
static bool have_common(const char *const *a, int n_a, const char *const *b, int n_b) {
  bool said[2] = {false, false};
  for (int i = 0; i < n_a; i++) said[0] = said[0] || a[i][0];
  for (int k = 0; k < n_b; k++) said[1] = said[1] || b[k][0];
  if (!said[0] || !said[1]) return true;
  for (int i = 0; i < n_a; i++)
    for (int k = 0; k < n_b; k++)
      if (a[i][0] && strcasecmp(a[i], b[k]) == 0) return true;
  return false;
}

struct names {
  int n;
  const char **hosts, **gpus, **buses; /* [n] */
};

static copse_status names_of_tests(struct inputs *in, const struct copse_tests *t,
                                   struct names *out, struct copse_err *err) {
  size_t n = (size_t)t->n_devices;
  out->n = t->n_devices;
  COPSE_DO(COPSE_ARRAYS(&in->arena, n, const char *, err, &out->hosts, &out->gpus, &out->buses));
  for (size_t i = 0; i < n; i++) {
    out->hosts[i] = t->devices[i].host;
    out->gpus[i] = t->devices[i].name;
    out->buses[i] = t->devices[i].bus;
  }
  return COPSE_OK;
}

static copse_status names_of_nvbandwidth(struct inputs *in, struct names *out,
                                         struct copse_err *err) {
  size_t n = (size_t)in->nvbandwidth.n_devices;
  out->n = in->nvbandwidth.n_devices;
  COPSE_DO(COPSE_ARRAYS(&in->arena, n, const char *, err, &out->gpus, &out->buses));
  for (size_t i = 0; i < n; i++) {
    out->gpus[i] = in->nvbandwidth.devices[i].name;
    out->buses[i] = in->nvbandwidth.devices[i].bus;
  }
  return COPSE_OK;
}

/* Counts how many of the bus ids are said, and how many of them the topology has; what it has not,
 * named once. */
static int count_known(const struct inputs *in, const struct names *names, int *said,
                       const char **other) {
  int known = 0;
  *said = 0;
  *other = NULL;
  for (int i = 0; i < names->n && copse_nccl_has_buses(&in->machine); i++) {
    if (!names->buses[i][0]) continue;
    bool has = copse_nccl_rank_of_bus(&in->machine, names->buses[i]) >= 0;
    ++*said;
    known += has;
    if (!has && !*other) *other = names->buses[i];
  }
  return known;
}

static const char on_this[] = "make all files on the machine of the topology, in one job";

/* Compares with nvbandwidth. GPUs that the topology lacks have no place there: what nvbandwidth
 * says of them counts nowhere. */
static copse_status compare_nvbandwidth(struct inputs *in, struct names *nvb,
                                        struct copse_err *err) {
  int said, known;
  const char *other;
  if (!in->has_nvbandwidth) return COPSE_OK;
  COPSE_DO(names_of_nvbandwidth(in, nvb, err));
  known = count_known(in, nvb, &said, &other);
  if (known < said)
    doubt(in, on_this,
          "%d of %d GPUs of %s, which the topology lacks (such as %s): what it says of them is not "
          "used",
          said - known, said, in->nvbandwidth_path, other);
  if (said > 0 && known == 0) in->has_nvbandwidth = false;
  return COPSE_OK;
}

static copse_status compare_tests(struct inputs *in, int i, const struct names *nvb,
                                  const struct copse_topology *t, struct copse_err *err) {
  const char *path = in->tests_paths[i], *other;
  const struct copse_tests *tests = &in->tests[i];
  struct names names, log = {0};
  int said, known;
  COPSE_DO(names_of_tests(in, tests, &names, err));
  known = count_known(in, &names, &said, &other);
  if (tests->n_ranks > 0 && tests->n_ranks != t->n_ranks)
    doubt(in, on_this, "%s: nccl-tests of %d ranks are not compared with a topology of %d GPUs",
          path, tests->n_ranks, t->n_ranks);
  else if (known < said)
    doubt(in, on_this,
          "whether %s was measured on this machine: the topology has %d of its %d bus ids, and not "
          "%s",
          path, known, said, other);
  if (tests->is_cut)
    doubt(in, "give all of its output, to \"Avg bus bandwidth\"",
          "%s after its last row: it ends before the summary", path);
  if (in->has_nvbandwidth && !have_common(names.gpus, names.n, nvb->gpus, nvb->n))
    doubt(in, on_this, "whether %s and %s are of one machine: their GPUs are %s and %s", path,
          in->nvbandwidth_path, names.gpus[0], nvb->gpus[0]);
  if (!in->comm) return COPSE_OK;
  log.n = in->comm->n_known;
  COPSE_DO(COPSE_ARRAY(&in->arena, (size_t)log.n, log.hosts, err));
  for (int r = 0; r < log.n; r++) log.hosts[r] = in->comm->ranks[r].host;
  if (!have_common(names.hosts, names.n, log.hosts, log.n))
    doubt(in, on_this, "whether %s and %s are of one job: it ran on %s, the log is of %s", path,
          in->log_path, names.hosts[0], log.hosts[0]);
  return COPSE_OK;
}

/* Logs of libraries of unlike versions are of several jobs. */
static void doubt_versions(struct inputs *in) {
  for (int i = 1; i < in->log.n_comms; i++) {
    const char *a = in->log.comms[0].version, *b = in->log.comms[i].version;
    if (!a || !b || strcmp(a, b) == 0) continue;
    doubt(in, "give the logs of one job",
          "logs of several jobs: communicators of NCCL %s and of %s; the largest, of %s, is judged",
          a, b, a);
    break;
  }
}

static copse_status compare_files(struct inputs *in, const struct copse_topology *t,
                                  struct copse_err *err) {
  struct names nvb = {0};
  COPSE_DO(compare_nvbandwidth(in, &nvb, err));
  for (int i = 0; i < in->n_tests; i++) COPSE_DO(compare_tests(in, i, &nvb, t, err));
  const struct copse_log_comm *comm = in->comm;
  if (comm && in->unlike.guessed > 0)
    doubt(in, "run it with NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET on all ranks, or give the graph dump",
          "which NICs the channels use: %s does not say it of %d ends of links between hosts%s",
          in->log_path, in->unlike.guessed,
          in->has_judge ? "; the nearest are taken" : ", so its rings are not judged");
  doubt_versions(in);
  if (comm && (comm->n_known < comm->n_ranks || comm->n_rings == 0))
    doubt(in, "run it with NCCL_DEBUG_SUBSYS=INIT,GRAPH on all ranks, and give all their output",
          "what all ranks of %s ran: it has %d of %d ranks and %d rings", in->log_path,
          comm->n_known, comm->n_ranks, comm->n_rings);
  return COPSE_OK;
}

/* ---- versions and commands ------------------------------------------------------------------- */

/* Reads "2.22.3+cuda12.4" as 22203; 0: none such. */
static int version_of(const char *text) {
  int part[3] = {0, 0, 0};
  if (!text || sscanf(text, "%d.%d.%d", &part[0], &part[1], &part[2]) < 2 || part[0] != 2 ||
      part[1] < 4 || part[1] > 99 || part[2] < 0 || part[2] > 99)
    return 0;
  return part[0] * 10000 + part[1] * 100 + part[2];
}

/* Returns the library's version by the log's largest communicator. RCCL's version names hip
 * ("2.22.3+hip6.3"). */
static int version_of_log(const struct inputs *in, bool *rccl) {
  const char *version = in->log_path && in->log.n_comms > 0 ? in->log.comms[0].version : NULL;
  *rccl = version && strstr(version, "hip");
  return version_of(version);
}

/* Takes the version that ran, where one is known: a topology is read by its constants. */
static void take_version(const struct inputs *in, struct options *o) {
  bool rccl;
  int version = version_of_log(in, &rccl);
  if (version == 0 || rccl || o->topology.options.nccl_version > 0) return;
  if (version != COPSE_NCCL_USUAL)
    copse_note(&copse_cli_notes,
               "%s: its largest communicator is of NCCL %d.%d.%d, by whose constants XML is read",
               in->log_path, version / 10000, version / 100 % 100, version % 100);
  o->topology.options.nccl_version = version;
}

/* Makes the command that makes files for these hosts, by what was given here. */
static copse_status make_tune(struct inputs *in, const struct options *o, struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  bool rccl, dump = in->graphs_path && in->graphs_path != in->log_path;
  (void)version_of_log(in, &rccl);
  copse_text_add(&text, "copse tune ");
  if (copse_cli_has_topology(&o->topology))
    copse_cli_topology_words(&o->topology, &text);
  else
    copse_text_add(&text, "TOPO");
  copse_text_add(&text, " -o FOLDER --for %s", rccl ? "rccl" : "nccl");
  if (in->repeated) copse_text_add(&text, " --hosts %d", in->machine.n_hosts);
  for (int i = 0; dump && !rccl && i < in->n_graphs; i++) {
    copse_text_add(&text, " --nccl ");
    copse_text_add_shell(&text, in->dumps[i]);
  }
  COPSE_DO(copse_text_status(&text, err));
  return copse_arena_text(&in->arena, text.data, &in->tune, err);
}

/* ---- graphs and rings ------------------------------------------------------------------------ */

/* Says, where ranks could not be placed by bus id, which of them the topology lacks. */
static void doubt_buses(struct inputs *in) {
  char bus[32], other[32] = "";
  int unknown = 0;
  for (int r = 0; r < in->comm->n_known && copse_nccl_has_buses(&in->machine); r++) {
    uint64_t id = in->comm->ranks[r].bus;
    snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", (unsigned)(id >> 20), (unsigned)(id >> 12 & 255),
             (unsigned)(id >> 4 & 255), (unsigned)(id & 15));
    if (copse_nccl_rank_of_bus(&in->machine, bus) >= 0) continue;
    if (unknown++ == 0) memcpy(other, bus, sizeof other);
  }
  if (unknown > 0)
    doubt(in, on_this,
          "whether %s is of this machine: %d of the bus ids of its %d ranks are none of the "
          "topology's (such as %s), and its GPUs are taken by their NVML indices or in order",
          in->log_path, unknown, in->comm->n_known, other);
  else
    copse_note(&copse_cli_notes, "%s: its GPUs are taken by their NVML indices or in order",
               in->log_path);
}

/* Takes the graphs that a rank of each host printed; where not all hosts have some, the graphs of
 * the first that has. */
static copse_status graphs_of_log(struct inputs *in, struct copse_err *err) {
  int hosts = in->machine.n_hosts;
  bool all = hosts > 1;
  COPSE_DO(COPSE_ARRAY(&in->arena, (size_t)hosts, in->graphs, err));
  for (int h = 0; h < hosts && all; h++) {
    in->n_graphs++;
    COPSE_DO(copse_nccl_graphs_of_log(in->comm, &in->machine, in->place, h, &in->graphs[h], err));
    all = copse_nccl_graph(&in->graphs[h], COPSE_NCCL_RING) != NULL;
  }
  if (!all) {
    while (in->n_graphs > 0) copse_nccl_graphs_free(&in->graphs[--in->n_graphs]);
    in->n_graphs = 1;
    COPSE_DO(copse_nccl_graphs_of_log(in->comm, &in->machine, in->place, -1, in->graphs, err));
  }
  if (copse_nccl_graph(in->graphs, COPSE_NCCL_RING)) in->graphs_path = in->log_path;
  return COPSE_OK;
}

/* Reads the log's communicator of these ranks, and graphs from it where there is no dump. */
static copse_status read_log(struct inputs *in, const struct copse_topology *t,
                             struct copse_err *err) {
  bool by_bus;
  if (!in->log_path || in->log.n_comms == 0) return COPSE_OK;
  if (in->log.comms[0].n_ranks != t->n_ranks) {
    copse_note(&copse_cli_notes, "%s: its largest communicator has %d ranks, the topology %d",
               in->log_path, in->log.comms[0].n_ranks, t->n_ranks);
    return COPSE_OK;
  }
  in->comm = &in->log.comms[0];
  COPSE_DO(copse_calloc((size_t)t->n_ranks, sizeof *in->place, &in->place, err));
  COPSE_DO(copse_nccl_place_ranks(in->comm, &in->machine, in->place, &by_bus, err));
  if (!by_bus) doubt_buses(in);
  return in->graphs_path ? COPSE_OK : graphs_of_log(in, err);
}

/* Chooses one graph for all hosts, or one for each group of them. */
static copse_status choose_graphs(struct inputs *in, struct copse_err *err) {
  int hosts = in->machine.n_hosts;
  in->n_each = in->n_graphs > 1 ? hosts : in->n_graphs;
  COPSE_DO(COPSE_ARRAY(&in->arena, (size_t)hosts, in->each, err));
  if (in->graphs_path == in->log_path || in->n_graphs == 1) {
    for (int i = 0; i < in->n_each; i++) in->each[i] = &in->graphs[i];
    return COPSE_OK;
  }
  return copse_nccl_graphs_by_host(&in->machine, in->graphs, in->n_graphs, in->each, err);
}

static copse_status open_judge(struct inputs *in, const struct copse_topology *t,
                               struct copse_err *err) {
  COPSE_DO(read_log(in, t, err));
  in->judge = (struct copse_nccl_judge){.machine = &in->machine, .label = in->log_path};
  in->has_judge = in->graphs_path != NULL;
  if (in->has_judge) {
    COPSE_DO(choose_graphs(in, err));
    const char *label = in->graphs_path;
    if (in->n_graphs > 1 && in->graphs_path != in->log_path)
      label = COPSE_NCCL_GRAPH_FILES;
    COPSE_DO(copse_nccl_judge_open(label, in->each, in->n_each, &in->machine, &in->judge, err));
  }
  if (!in->comm) return COPSE_OK;
  bool used;
  COPSE_DO(copse_nccl_judge_log(&in->judge, in->comm, in->place, &used, &in->unlike, err));
  in->has_judge = in->has_judge || (used && in->unlike.guessed == 0);
  return COPSE_OK;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static copse_status find_bounds(struct inputs *in, const struct options *o,
                                struct copse_cli_work *w) {
  static const copse_collective order[COPSE_ALLTOALL] = {
      COPSE_ALLREDUCE, COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_BROADCAST, COPSE_REDUCE};
  const char *label =
      copse_cli_has_topology(&o->topology) ? copse_cli_topology_label(&o->topology) : NULL;
  for (int i = 0; i < COPSE_ALLTOALL; i++) {
    bool rooted = copse_collective_rooted(order[i]);
    COPSE_DO(copse_cli_solve_bound(w->topology, order[i], rooted ? 0 : -1, label,
                                   &in->schedules[i], &w->err));
    const struct copse_schedule *s = in->schedules[i];
    const struct copse_schedule_cut cut = copse_bound_main_cut(&s->bound);
    bool into = s->bound.n_cuts > 0
                    ? cut.phase == COPSE_PHASE_REDUCE
                    : order[i] != COPSE_ALLREDUCE && copse_collective_reduces(order[i]);
    struct copse_guessed guessed;
    COPSE_DO(copse_guessed_find(w->topology, s, &in->arena, &guessed, &w->err));
    in->bounds[in->n_bounds++] = (struct copse_audit_bound){
        order[i],        w->topology, s->time_per_GB, cut.nodes, cut.n_nodes,
        s->bound.n_cuts, into,        guessed.links,  guessed.n};
  }
  return COPSE_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static copse_status print(const struct options *o, const struct copse_audit *audit,
                          struct copse_cli_work *w) {
  if (o->output) {
    copse_audit_to_page(audit, copse_cli_asked.line, &w->text);
    COPSE_DO(copse_text_status(&w->text, &w->err));
    COPSE_DO(copse_cli_write(o->output, w->text.data, w->text.size, &w->err));
    if (copse_cli_is_stdout(o->output)) return COPSE_OK;
    w->text.size = 0;
  }
  (o->json ? copse_audit_to_json : copse_audit_to_text)(audit, &w->text);
  COPSE_DO(copse_text_status(&w->text, &w->err));
  fwrite(w->text.data, 1, w->text.size, stdout);
  return COPSE_OK;
}

/* Reads the files, and the topology that they are about. */
static copse_status take_all(struct options *o, struct inputs *in, struct copse_cli_work *w) {
  o->topology.options.notes = &in->notes;
  for (int i = 0; i < o->n_files; i++) COPSE_DO(take_file(o, in, o->files[i], &w->err));
  if (in->log_path)
    COPSE_DO(copse_nccl_log_finish(&in->log, in->log_path, &copse_cli_notes, &w->err));
  take_version(in, o);
  copse_calls_finish(&in->calls);
  if (copse_cli_has_topology(&o->topology))
    COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  else
    COPSE_DO(look_at_machine(o, in, w));
  w->solved = copse_cli_has_topology(&o->topology) ? copse_cli_topology_label(&o->topology)
                                                   : w->topology->name;
  COPSE_DO(load_all_links(o, in, w));
  COPSE_DO(copse_nccl_machine_open(whole_of(in, w), &in->machine, &w->err));
  return repeat_host(o, in, w);
}

static copse_status audit(void *options, struct copse_cli_work *w) {
  struct options *o = options;
  COPSE_AT_END(free_inputs) struct inputs inputs = {0};
  struct inputs *in = &inputs;
  in->notes = (struct copse_notes){take_note, in};
  COPSE_DO(take_all(o, in, w));
  const struct copse_topology *all = whole_of(in, w);
  copse_cli_phase("bounds");
  COPSE_DO(find_bounds(in, o, w));
  copse_cli_phase("rings");
  COPSE_DO(find_best(in, all, &w->err));
  copse_cli_phase("channels");
  COPSE_DO(open_judge(in, all, &w->err));
  COPSE_DO(compare_files(in, all, &w->err));
  COPSE_DO(make_tune(in, o, &w->err));
  const char *path =
      copse_cli_has_topology(&o->topology) ? copse_cli_topology_label(&o->topology) : "TOPO";
  const struct copse_audit_input input = {
      .topology_path = path,
      .tune = in->tune,
      .nccl_version = copse_nccl_version(&o->topology.options),
      .doubts = in->doubts,
      .n_doubts = in->n_doubts,
      .topology = all,
      .machine = &in->machine,
      .judge = in->has_judge ? &in->judge : NULL,
      .log = in->log_path ? &in->log : NULL,
      .comm = in->comm,
      .channels_differ = in->unlike.channels,
      .tests = in->tests,
      .n_tests = in->n_tests,
      .calls = in->has_calls ? &in->calls : NULL,
      .ras = in->has_ras ? &in->ras : NULL,
      .nvbandwidth = in->has_nvbandwidth ? &in->nvbandwidth : NULL,
      .best = in->has_best ? &in->best : NULL,
      .remarks = in->remarks,
      .n_remarks = in->n_remarks,
      .bounds = in->bounds,
      .n_bounds = in->n_bounds,
      .repeated = in->repeated};
  copse_cli_phase("causes");
  COPSE_DO(copse_audit_make(&input, &in->audit, &w->err));
  copse_cli_progress_end();
  return print(o, &in->audit, w);
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  o->files = left;
  o->n_files = n_left;
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("audit", "of --json and -o - only one can have standard output");
  return copse_cli_do(audit, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--hosts", 0, "N", "hosts of this kind, on a network taken as no limit", TO(hosts),
     COPSE_OPTION_RANGE(1, 65536), .common = true},
    {"--output", 'o', "FILE", "the same as a page of HTML", TO(output), .writes = true,
     .common = true},
    {"--json", 'j', NULL, "as one JSON object", TO(json), .common = true},
    {0}};

const struct copse_command copse_cmd_audit = {
    .name = "audit",
    .does = "how far NCCL is from the best on a machine, and why",
    .usage =
        "usage: copse audit [FILE ...] [--hosts N] [--json] [-o FILE.html] [options]\n\n"
        "Reads a topology (NCCL_TOPO_DUMP_FILE or any other input) and, in any order, what there\n"
        "is of: NCCL's choice (NCCL_GRAPH_DUMP_FILE), its logs (NCCL_DEBUG=INFO), what\n"
        "nccl-tests, nvbandwidth, NCCL's RAS service and Inspector and PyTorch's flight recorder\n"
        "write. Says what the fabric can do, what NCCL's rings and trees can do, what was\n"
        "measured, and what lies between: causes with their evidence and what mends them. What\n"
        "is missing is named, with the command that makes it. Without a topology it looks at\n"
        "this machine.\n\n",
    .example =
        "example: copse audit topo.xml graph.xml\n"
        "         copse audit topo.xml graph.xml nccl.log all_reduce_perf.txt\n"
        "         copse audit topo.xml graph.xml --hosts 4 -o audit.html\n",
    .takes = COPSE_KIND_TOPOLOGY | COPSE_KIND_GRAPHS | COPSE_KIND_LOG | COPSE_KIND_PROFILE,
    .takes_topology = true,
    .sections = {{.title = "More options", .options = own},
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .size = sizeof(struct options),
    .run = run};
