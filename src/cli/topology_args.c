/*
 * How every command takes its topology, and what may be changed of it before it is used:
 *
 *   file, name or line --> read (--links, --profile ...) --> --down, --derate --> --ranks, --others
 *
 * and where the catalogue of names is.
 */
#include "cli/topology_args.h"
#include "cli/options.h"
#include "cli/policy.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "nccl/best.h"
#include "schedule/adapt.h"

bool copse_cli_parse_part(const char *text, struct copse_q *out) {
  char number[64];
  size_t n = strcspn(text, " %");
  struct copse_q hundred = {100, 1};
  struct copse_err ignored = COPSE_ERR_INIT;
  if (n >= sizeof number || (text[n] && strcmp(text + n, "%") != 0 && strcmp(text + n, " %") != 0))
    return false;
  memcpy(number, text, n);
  number[n] = '\0';
  bool fraction = strchr(number, '/') != NULL; /* "333/10%", as names of topologies have it */
  copse_status status = fraction ? copse_q_parse_fraction(number, out, &ignored)
                                 : copse_q_parse_decimal(number, out, &ignored);
  if (status != COPSE_OK || out->num < 0) return false;
  return !text[n] || copse_q_div(*out, hundred, out, &ignored) == COPSE_OK;
}

/* ---- options ------------------------------------------------------------------------------- */

static int take_links(void *options, const char *command, char *value) {
  struct copse_cli_topology *args = options;
  if (copse_link_mode_from_name(value, &args->options.links)) return COPSE_EXIT_DONE;
  return copse_cli_usage(command, "--links must be nvlink, all or default");
}

static int take_nvlink_switch(void *options, const char *command, char *value) {
  struct copse_q *bw = &((struct copse_cli_topology *)options)->options.nvlink_switch;
  if (copse_q_parse_decimal(value, bw, NULL) == COPSE_OK && bw->num > 0) return COPSE_EXIT_DONE;
  if (copse_q_parse_fraction(value, bw, NULL) == COPSE_OK && bw->num > 0) return COPSE_EXIT_DONE;
  return copse_cli_usage(command, "--nvlink-switch must be GB/s above 0, such as 240");
}

/* Takes "2.31" or "2.27.5": 22705. */
static int take_nccl_version(void *options, const char *command, char *value) {
  struct copse_cli_topology *args = options;
  const char *at = value;
  int64_t part[3] = {0, 0, 0};
  bool good = copse_text_number(&at, 1, &part[0]) && part[0] == 2;
  for (int i = 1; good && i < 3 && *at; i++)
    good = *at++ == '.' && copse_text_number(&at, 2, &part[i]);
  if (!good || *at || part[1] < 4)
    return copse_cli_usage(command,
                           "--nccl-version must be a version of NCCL such as 2.31 or 2.27.5");
  args->options.nccl_version = (int)(part[0] * 10000 + part[1] * 100 + part[2]);
  return COPSE_EXIT_DONE;
}

static int take_others(void *options, const char *command, char *value) {
  struct copse_cli_topology *args = options;
  args->has_others = true;
  args->exclude_others = strcmp(value, "exclude") == 0;
  if (args->exclude_others || strcmp(value, "relay") == 0) return COPSE_EXIT_DONE;
  return copse_cli_usage(command, "--others must be relay or exclude");
}

static int add_fault(struct copse_cli_topology *args, const char *command, const char *what,
                     struct copse_q left) {
  if (args->n_faults == COPSE_CLI_MAX_FAULTS)
    return copse_cli_usage(command, "at most %d --down and --derate in all", COPSE_CLI_MAX_FAULTS);
  for (int i = 0; i < args->n_faults; i++)
    if (strcmp(args->faults[i].what, what) == 0 && !args->faults[i].left.num != !left.num)
      return copse_cli_usage(command, "--down and --derate of %.80s: what is down has no bandwidth "
                             "left, give one of them", what);
  args->faults[args->n_faults++] = (struct copse_fault){what, left};
  return COPSE_EXIT_DONE;
}

static int take_down(void *options, const char *command, char *value) {
  return add_fault(options, command, value, COPSE_Q_ZERO);
}

/* Takes WHAT=PART; ids may have "=" in them. */
static int take_derate(void *options, const char *command, char *value) {
  struct copse_q left;
  char *equals = strrchr(value, '=');
  if (!equals || !copse_cli_parse_part(equals + 1, &left) || left.num == 0 ||
      copse_q_cmp(left, COPSE_Q_ONE) > 0)
    return copse_cli_usage(command,
                           "--derate must be NODE=50%% or SRC>DST=50%%, above 0 and at "
                           "most 100%%; --down takes all");
  *equals = '\0';
  return add_fault(options, command, value, left);
}

#define TO(member) COPSE_OPTION_TO(struct copse_cli_topology, member)
static const char *const link_modes[] = {"nvlink", "all", "default", NULL};
static const char *const others[] = {"relay", "exclude", NULL};

const char copse_cli_topology_intro[] =
    "The topology is a file (topology, cluster or synthetic JSON, NCCL or RCCL XML, what\n"
    "'nvidia-smi topo -m' or 'rocm-smi --showtopo' print), - or a name that 'copse topo --list'\n"
    "shows. A file of that name wins.\n";
const struct copse_option copse_cli_topology_options[] = {
    {"--synthetic", 0, "SPEC",
     "a topology from one line instead of a file: ring:8@50, line:,\n"
     "full:, switch:, hypercube:6@50, torus:4x4x4@100, mesh:, or\n"
     "'hosts:4 gpus:8@300 nics:8@25 rails' (or flat, clos:2/4,\n"
     "rails spine@100, torus:2x2@50, dragonfly:4@50/100)",
     TO(synthetic)},
    {"--links", 'l', "MODE",
     "what to keep of XML and matrices: nvlink (GPU links and\n"
     "NVSwitch only), all, or default (GPU links if they join all\n"
     "GPUs, with the PCIe ways to the NICs; else all)",
     .words = link_modes, .take = take_links},
    {"--nvlink-switch", 0, "BW",
     "XML without NVLinks (cloud images): every GPU has BW GB/s to an\n"
     "NVSwitch of its host",
     .take = take_nvlink_switch},
    {"--gpu", 0, "CLASS", "the GPUs of a matrix, which has no speeds: a100, h100, mi300x ..",
     TO(options.gpu)},
    {"--profile", 0, "FILE",
     "measured bandwidths over nominal ones: copse-profile/1, or what\n"
     "nvbandwidth prints",
     TO(profile), .takes = COPSE_KIND_PROFILE},
    {"--nccl-version", 0, "V", "whose constants XML is read by, such as 2.31 (default 2.30.7)",
     .take = take_nccl_version},
    {0}};

const char copse_cli_choice_intro[] =
    "For some of the GPUs (verify, simulate and lower see from the schedule which its ranks "
    "are):\n";
const struct copse_option copse_cli_choice_options[] = {
    {"--ranks", 0, "LIST", "only these GPUs are ranks, in this order: 0-3,8 or their ids",
     TO(ranks)},
    {"--others", 0, "relay", "the other GPUs forward as switches do (default), or", .words = others,
     .take = take_others},
    {"--others", 0, "exclude", "are left out with their links", .words = others,
     .take = take_others},
    {0}};

const struct copse_option copse_cli_fault_options[] = {
    {"--down", 0, "WHAT",
     "without a node (its id), or a link SRC>DST, both directions of it;\n"
     "as often as needed",
     .take = take_down},
    {"--derate", 0, "WHAT=50%", "with so much of the bandwidth of a node's links, or of a link's",
     .take = take_derate},
    {0}};

#undef TO
#define TO(member) COPSE_OPTION_TO(struct copse_cli_costs, member)
static int take_reduce(void *options, const char *command, char *value) {
  struct copse_q rate;
  if (copse_q_parse_decimal(value, &rate, NULL) != COPSE_OK || rate.num <= 0)
    return copse_cli_usage(command, "--reduce must be GB/s, more than 0");
  ((struct copse_cli_costs *)options)->reduce_GBps = copse_q_to_double(rate);
  return COPSE_EXIT_DONE;
}

const char copse_cli_costs_intro[] =
    "Beside links (--profile may have all of them, as \"costs\"):\n";
const struct copse_option copse_cli_costs_options[] = {
    {"--alpha", 'a', "US", "software cost of a hop from rank to rank (default 2 us)", TO(alpha_us),
     COPSE_OPTION_RANGE(0, 1000000000), .must = "microseconds, from 0 to 1000000000"},
    {"--alpha-occupies", 0, NULL,
     "a link is busy for its latency, and for alpha where it leads to a\n"
     "rank, with each chunk (TACCL, TACOS; default: for its bytes alone)",
     TO(alpha_occupies)},
    {"--message", 0, "US",
     "what of that keeps the sending worker busy with each message, and\n"
     "so the next one waiting (default 0.18 us, at most alpha)",
     TO(message_us), COPSE_OPTION_RANGE(0, 1000000000),
     .must = "microseconds, from 0 to 1000000000"},
    {"--reduce", 0, "GBPS",
     "at which a rank adds what comes in, one byte after the other\n"
     "(default: free)",
     .take = take_reduce},
    {"--duplex", 0, "D",
     "what goes both ways between two ranks at once takes D times as long\n"
     "as one way alone (default 1; measure it: scripts/bench_mpi -o PROFILE)",
     TO(duplex), COPSE_OPTION_RANGE(1, INT64_MAX), .must = "a number from 1, such as 1.9"},
    {0}};

/* Reads a profile; the caller frees *out. COPSE_BAD_INPUT with file and line, COPSE_IO,
 * COPSE_NOMEM. */
static copse_status load_profile(const char *path, struct copse_profile **out,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size = 0;
  *out = NULL;
  COPSE_DO(copse_file_read(path, &data, &size, err));
  return copse_profile_parse(copse_file_label(path), data, size, out, err);
}

copse_status copse_cli_costs(const struct copse_cli_topology *args,
                             const struct copse_cli_costs *costs, struct copse_predict_options *out,
                             struct copse_err *err) {
  const struct copse_q none = {-1, 1};
  COPSE_AT_END(copse_profile_free_at) struct copse_profile *profile = NULL;
  struct copse_sim_options *sim = &out->sim;
  const double given[] = {costs->alpha_us, costs->message_us, costs->reduce_GBps, costs->duplex};
  double to[COPSE_N_COSTS] = {sim->alpha_us, sim->message_us, -1, -1};
  bool said = false;
  if (args->profile) COPSE_DO(load_profile(args->profile, &profile, err));
  for (int i = 0; i < COPSE_N_COSTS; i++) {
    struct copse_q cost = profile ? copse_profile_cost(profile, (enum copse_cost)i) : none;
    if (cost.num >= 0) to[i] = copse_q_to_double(cost);
    if (given[i] >= 0) to[i] = given[i];
    said = said || (i == COPSE_COST_MESSAGE && (cost.num >= 0 || given[i] >= 0));
  }
  if (said && to[COPSE_COST_MESSAGE] > to[COPSE_COST_HOP])
    copse_note(&copse_cli_notes,
               "a message costs its sender the %g us of a hop, not %g: it is a part",
               to[COPSE_COST_HOP], to[COPSE_COST_MESSAGE]);
  sim->alpha_occupies = costs->alpha_occupies;
  sim->message_us = to[COPSE_COST_MESSAGE];
  copse_predict_alpha(out, to[COPSE_COST_HOP]);
  if (to[COPSE_COST_REDUCE] > 0) sim->reduce_us_per_byte = 1e-3 / to[COPSE_COST_REDUCE];
  if (to[COPSE_COST_DUPLEX] > 0) sim->duplex = to[COPSE_COST_DUPLEX];
  return COPSE_OK;
}

/* ---- a profile from measured times --------------------------------------------------------- */

#undef TO
#define TO(member) COPSE_OPTION_TO(struct copse_cli_profile, member)
const struct copse_option copse_cli_profile_options[] = {
    {"--write-profile", 0, "FILE",
     "write what the times say that hops and links take: a profile, as\n"
     "--profile of the commands that predict takes it; 2 to 64 sizes, small and\n"
     "large ones; of times out of place where there are both",
     TO(write), .writes = true},
    {"--topology", 0, "FILE", "the topology that the plan was made for, in any input format",
     TO(topology.path), .takes = COPSE_KIND_TOPOLOGY},
    {0}};
const char copse_cli_profile_after[] =
    "The profile has the cost of a hop and the scale of all links' bandwidth with which\n"
    "'copse simulate' gives the times back best; the table says how well. Times that don't tell\n"
    "the two apart, or fall with the size, are refused. Where ranks share a GPU or processor, it\n"
    "says what they take together.\n";

copse_status copse_cli_profile_begin(struct copse_cli_profile *profile, const char *path,
                                     const struct copse_plan *plan, struct copse_err *err) {
  char sha256[COPSE_SHA256_HEX], made_for[COPSE_SHA256_HEX];
  COPSE_DO(copse_cli_load_topology(&profile->topology, &profile->read, &profile->whole, err));
  if (profile->read->n_ranks != (int)plan->header.n_ranks)
    return copse_fail(err, COPSE_INVALID, "the plan is for %u ranks, and %.80s has %d",
                      plan->header.n_ranks, copse_cli_topology_label(&profile->topology),
                      profile->read->n_ranks);
  COPSE_DO(copse_topology_sha256(profile->read, sha256, err));
  copse_sha256_text(plan->header.topology_sha256, made_for);
  if (strcmp(sha256, made_for) != 0)
    copse_note(&copse_cli_notes, "%s; the profile is fitted to the one given",
               copse_cli_other_topology(&profile->topology, path, plan->name, made_for,
                                        profile->read, (char[COPSE_CLI_OTHER_TEXT]){0}));
  return COPSE_OK;
}

void copse_cli_profile_add(struct copse_cli_profile *profile, uint64_t bytes, double us) {
  if (bytes == 0 || (profile->n > 0 && (double)bytes <= profile->bytes[profile->n - 1])) return;
  profile->bytes[profile->n] = (double)bytes;
  profile->us[profile->n++] = us;
}

void copse_cli_profile_end(struct copse_cli_profile *profile) {
  copse_topology_free(profile->read);
  copse_topology_free(profile->whole);
}

/* What the fit says nothing of. */
static const char *not_measured(const struct copse_calibration *fit, char text[96]) {
  snprintf(text, 96, "%s%smessage_us, reduce_GBps, duplex", fit->has_hop ? "" : "hop_us, ",
           fit->has_scale ? "" : "links, ");
  return text;
}

/* Says where the numbers of a profile are from, in one line. */
static void add_source(const struct copse_cli_profile *profile, const char *path,
                       const struct copse_plan *plan, const char *by,
                       const struct copse_calibration *fit, struct copse_line *line) {
  char host[65] = "", date[16] = "";
  time_t now = time(NULL);
  struct tm day;
  (void)gethostname(host, sizeof host - 1);
  if (gmtime_r(&now, &day)) (void)strftime(date, sizeof date, "%Y-%m-%d", &day);
  copse_line_add(line, "copse run %.60s (%s of %.60s), %s, %.64s, %s", copse_file_label(path),
                 copse_collective_name((copse_collective)plan->header.collective), plan->name, by,
                 host, date);
  copse_line_add(line, "; %d sizes from %.0f to %.0f bytes, at most %.3g %% off; not measured: %s",
                 profile->n, profile->bytes[0], profile->bytes[profile->n - 1], 100 * fit->off,
                 not_measured(fit, (char[96]){0}));
}

static void print_fit(const struct copse_cli_profile *profile, const struct copse_calibration *fit,
                      const double *simulated_us) {
  printf("# profile %s:", profile->write);
  if (fit->has_hop) printf(" hop_us %.10g%s", fit->hop_us, fit->has_scale ? "," : "");
  if (fit->has_scale) printf(" links scaled by %.10g", copse_q_to_double(fit->scale));
  printf("\n# not measured, so as by default: %s\n# %10s  %12s  %12s  %8s\n# %10s  %12s  %12s\n",
         not_measured(fit, (char[96]){0}), "size", "measured", "simulated", "off", "(B)", "(us)",
         "(us)");
  for (int i = 0; i < profile->n; i++)
    printf("# %10.0f  %12.2f  %12.2f  %+7.1f%%%s\n", profile->bytes[i], profile->us[i],
           simulated_us[i], 100 * (simulated_us[i] / profile->us[i] - 1),
           i == fit->worst ? "  the worst" : "");
}

static void add_fit_json(const struct copse_cli_profile *profile,
                         const struct copse_calibration *fit, const double *simulated_us,
                         struct copse_text *json) {
  double scale = fit->has_scale ? copse_q_to_double(fit->scale) : NAN;
  copse_text_add(json, ",\n \"profile\": {\"file\": %s, \"hop_us\": %s, \"scale\": %s, ",
                 copse_cli_quoted(profile->write),
                 COPSE_CLI_NUMBER(fit->has_hop ? fit->hop_us : NAN), COPSE_CLI_NUMBER(scale));
  copse_text_add(json, "\"worst_percent\": %s, \"sizes\": [", COPSE_CLI_NUMBER(100 * fit->off));
  for (int i = 0; i < profile->n; i++)
    copse_text_add(json, "%s\n  {\"size\": %.0f, \"measured_us\": %s, \"simulated_us\": %s}",
                   i > 0 ? "," : "", profile->bytes[i], COPSE_CLI_NUMBER(profile->us[i]),
                   COPSE_CLI_NUMBER(simulated_us[i]));
  copse_text_add(json, "]}");
}

copse_status copse_cli_profile_write(const struct copse_cli_profile *profile, const char *path,
                                     const struct copse_plan *plan, const char *by,
                                     struct copse_text *json, struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  struct copse_line source = {0};
  struct copse_calibration fit;
  double simulated_us[COPSE_CALIBRATED_SIZES];
  (void)copse_cli_progress_start();
  copse_cli_phase("fit costs");
  copse_status status = copse_calibrate(copse_file_label(path), profile->read, plan, profile->bytes,
                                        profile->us, profile->n, &fit, simulated_us, err);
  copse_cli_progress_end();
  if (status != COPSE_OK) return status;
  add_source(profile, path, plan, by, &fit, &source);
  copse_calibration_add_profile(&fit, source.text, &text);
  COPSE_DO(copse_text_status(&text, err));
  COPSE_DO(copse_cli_write(profile->write, text.data, text.size, err));
  if (fit.is_far)
    copse_note(
        &copse_cli_notes,
        "%.200s: with it %.0f bytes take %.0f %% %s than measured: no cost of hops and links "
        "gives these times; measure again, longer (-n), or the sizes that count alone",
        profile->write, profile->bytes[fit.worst], 100 * fit.off,
        simulated_us[fit.worst] < profile->us[fit.worst] ? "less" : "more");
  if (json)
    add_fit_json(profile, &fit, simulated_us, json);
  else
    print_fit(profile, &fit, simulated_us);
  return COPSE_OK;
}

int copse_cli_take_nccl(struct copse_cli_nccl *nccl, const char *command, const char *path) {
  if (nccl->n == COPSE_CLI_MAX_NCCL)
    return copse_cli_usage(command, "at most %d --nccl, one for each kind of hosts",
                           COPSE_CLI_MAX_NCCL);
  nccl->paths[nccl->n++] = path;
  return COPSE_EXIT_DONE;
}

void copse_cli_nccl_free(struct copse_cli_nccl_graphs *graphs) {
  for (int i = 0; i < COPSE_CLI_MAX_NCCL; i++) copse_nccl_graphs_free(&graphs->of[i]);
}

copse_status copse_cli_load_nccl(const struct copse_cli_nccl *nccl,
                                 struct copse_cli_nccl_graphs *graphs,
                                 struct copse_predict_options *predict, struct copse_err *err) {
  if (nccl->n == 0) return COPSE_OK;
  graphs->n = nccl->n;
  graphs->label = nccl->n > 1 ? COPSE_NCCL_GRAPH_FILES : copse_file_label(nccl->paths[0]);
  for (int i = 0; i < nccl->n; i++)
    COPSE_DO(copse_nccl_graphs_load(nccl->paths[i], &copse_cli_notes, &graphs->of[i], err));
  if (!predict) return COPSE_OK;
  predict->nccl = graphs->of;
  predict->n_nccl = graphs->n;
  predict->nccl_label = graphs->label;
  return COPSE_OK;
}

copse_status copse_cli_repeat_host(struct copse_topology **topology, int hosts,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_nccl_machine_free) struct copse_nccl_machine machine = {0};
  struct copse_topology *repeated = NULL;
  if (hosts == 0) return COPSE_OK;
  COPSE_DO(copse_nccl_machine_open(*topology, &machine, err));
  if (hosts == machine.n_hosts) return COPSE_OK;
  if (machine.n_hosts > 1)
    return copse_fail(err, COPSE_INVALID,
                      "%s has %d hosts: %d of them are for a topology of a single host",
                      (*topology)->name, machine.n_hosts, hosts);
  COPSE_DO(copse_nccl_repeat_host(*topology, hosts, &repeated, err));
  copse_topology_free(*topology);
  *topology = repeated;
  return COPSE_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

bool copse_cli_has_topology(const struct copse_cli_topology *args) {
  return args->path || args->synthetic;
}

int copse_cli_take_topology(struct copse_cli_topology *args, const char *command, int n_left,
                            char *const *left) {
  if (n_left != (args->synthetic ? 0 : 1))
    return copse_cli_usage(command, "give one topology: a file, a name or --synthetic");
  args->path = args->synthetic ? NULL : left[0];
  return COPSE_EXIT_DONE;
}

void copse_cli_topology_words(const struct copse_cli_topology *args, struct copse_text *text) {
  const struct copse_topology_options *o = &args->options;
  char number[COPSE_Q_TEXT];
  int version = o->nccl_version;
  copse_text_add(text, "%s", args->synthetic ? "--synthetic " : "");
  copse_text_add_shell(text, args->synthetic ? args->synthetic : args->path);
  if (o->links != COPSE_LINKS_DEFAULT)
    copse_text_add(text, " --links %s", link_modes[o->links == COPSE_LINKS_ALL]);
  if (o->nvlink_switch.num > 0)
    copse_text_add(text, " --nvlink-switch %s", copse_q_text(o->nvlink_switch, number));
  const char *const words[][2] = {{" --gpu ", o->gpu}, {" --profile ", args->profile}};
  for (int i = 0; i < 2; i++) {
    copse_text_add(text, "%s", words[i][1] ? words[i][0] : "");
    if (words[i][1]) copse_text_add_shell(text, words[i][1]);
  }
  if (version > 0)
    copse_text_add(text, " --nccl-version %d.%d", version / 10000, version / 100 % 100);
  if (version % 100 > 0) copse_text_add(text, ".%d", version % 100);
  for (int i = 0; i < args->n_faults; i++) {
    bool down = args->faults[i].left.num == 0;
    copse_text_add(text, down ? " --down " : " --derate ");
    copse_text_add_shell(text, args->faults[i].what);
    if (!down) copse_text_add(text, "=%.9g%%", 100 * copse_q_to_double(args->faults[i].left));
  }
  if (args->ranks) {
    copse_text_add(text, " --ranks ");
    copse_text_add_shell(text, args->ranks);
  }
}

const char *copse_cli_topology_label(const struct copse_cli_topology *args) {
  return args->synthetic ? args->synthetic : copse_file_label(args->path);
}

copse_status copse_cli_load_whole(const struct copse_cli_topology *args,
                                  struct copse_topology **out, struct copse_err *err) {
  struct copse_topology_options options = args->options;
  COPSE_AT_END(copse_profile_free_at) struct copse_profile *profile = NULL;
  *out = NULL;
  if (args->path && args->synthetic)
    return copse_fail(err, COPSE_INVALID, "both a topology file (%.80s) and --synthetic; give one",
                      args->path);
  if (args->has_others && !args->ranks && !args->has_groups)
    return copse_fail(err, COPSE_INVALID,
                      "--others is for --ranks, which says what the others are");
  if (args->profile) COPSE_DO(load_profile(args->profile, &profile, err));
  options.profile = profile;
  if (!options.notes) options.notes = &copse_cli_notes;
  options.catalogue = copse_cli_catalogue();
  return args->synthetic ? copse_topology_synthetic(args->synthetic, &options, out, err)
                         : copse_topology_load(args->path, &options, out, err);
}

copse_status copse_cli_change_topology(const struct copse_cli_topology *args,
                                       const struct copse_topology *whole,
                                       const struct copse_fault *faults, int n_faults,
                                       struct copse_topology **out, struct copse_err *err) {
  const struct copse_change change = {faults, n_faults, args->ranks, args->exclude_others};
  return copse_topology_changed(whole, copse_cli_topology_label(args), &change, out, err);
}

copse_status copse_cli_load_topology(const struct copse_cli_topology *args,
                                     struct copse_topology **out, struct copse_topology **healthy,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *whole = NULL;
  *out = *healthy = NULL;
  COPSE_DO(copse_cli_load_whole(args, &whole, err));
  bool changed = args->n_faults > 0 || args->ranks;
  if (changed)
    COPSE_DO(copse_cli_change_topology(args, whole, args->faults, args->n_faults, out, err));
  if (args->ranks && !args->has_others && (*out)->n_ranks < whole->n_ranks)
    copse_note(&copse_cli_notes,
               "the GPUs that are no ranks forward as switches do; --others exclude leaves them "
               "out");
  if (args->n_faults > 0 && args->ranks)
    COPSE_DO(copse_cli_change_topology(args, whole, NULL, 0, healthy, err));
  if (!changed || !args->ranks) { /* `whole` itself is handed out as one of the two */
    *(changed ? healthy : out) = whole;
    whole = NULL;
  }
  return COPSE_OK;
}

copse_status copse_cli_load_for(const struct copse_cli_topology *args, const char *file,
                                const char *use, struct copse_cli_work *w) {
  const struct copse_schedule *s = w->schedule;
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_cli_load_topology(args, &w->topology, &w->whole, &w->err));
  COPSE_DO(copse_schedule_choose_ranks(s, &w->topology, &w->err));
  COPSE_DO(copse_schedule_check_ranks(s, w->place, w->topology, &w->err));
  COPSE_DO(copse_topology_sha256(w->topology, sha256, &w->err));
  if (strcmp(sha256, s->topology_sha256) == 0) return COPSE_OK;
  copse_note(&copse_cli_notes, "%s; %s the one given",
             copse_cli_other_topology(args, file, s->topology_name, s->topology_sha256, w->topology,
                                      (char[COPSE_CLI_OTHER_TEXT]){0}),
             use);
  return COPSE_OK;
}

/* ---- files of another topology -------------------------------------------------------------- */

/* Adds an option with a value that a shell may take for something else. */
static void add_option(struct copse_text *out, const char *option, const char *value) {
  copse_text_add(out, " %s ", option);
  copse_text_add_shell(out, value);
}

/* A part that is down or slower, as the name of a topology says it (modify.c). */
struct named_fault {
  char what[256], left[64]; /* left: "50%", "" of what is down */
};

/* Reads the next one of a name; returns what follows, NULL where there is no other. */
static const char *next_fault(const char *at, struct named_fault *fault) {
  bool down = strncmp(at, " without ", 9) == 0;
  if (!down && strncmp(at, " with ", 6) != 0) return NULL;
  const char *what = at + (down ? 9 : 6), *end = strstr(what, ", with"), *part;
  if (!end) end = strstr(what, " and ");
  if (!end) end = what + strlen(what);
  part = down ? end : memmem(what, (size_t)(end - what), " at ", 4);
  if (!part) return NULL;
  snprintf(fault->what, sizeof fault->what, "%.*s", (int)(part - what), what);
  snprintf(fault->left, sizeof fault->left, "%.*s", down ? 0 : (int)(end - part) - 4, part + 4);
  return end + (*end == ',');
}

void copse_cli_faults_between(const char *made_for, const char *given, struct copse_text *out) {
  struct named_fault fault;
  char value[sizeof fault + 1];
  if (!made_for || strncmp(made_for, given, strlen(given)) != 0) return;
  for (const char *at = made_for + strlen(given); (at = next_fault(at, &fault));) {
    snprintf(value, sizeof value, "%s%s%s", fault.what, fault.left[0] ? "=" : "", fault.left);
    add_option(out, fault.left[0] ? "--derate" : "--down", value);
    if (strncmp(at, " and ", 5) == 0) copse_text_add(out, "%s", at); /* " and 2 more faults" */
  }
}

/* ---- the topology that a schedule names, and its routes -------------------------------------- */

/* Loads the topology of a name: `base`, and what follows of parts down or slower. */
static copse_status load_by_name(const char *base, const char *faults, struct copse_cli_work *w,
                                 struct copse_err *err) {
  static const struct copse_notes silent = {0};
  struct named_fault parts[COPSE_TOPOLOGY_NAMED_FAULTS], *part = parts;
  bool line = strchr(base, ':') != NULL;
  struct copse_cli_topology named = {.path = line ? NULL : base, .synthetic = line ? base : NULL};
  struct stat st;
  if (strcmp(base, "-") == 0 || (!line && stat(base, &st) == 0 && !S_ISREG(st.st_mode)))
    return copse_fail(err, COPSE_BAD_INPUT, "no name, but what is read once or not at all");
  named.options.notes = &silent; /* they speak of a file that nobody named here */
  for (; *faults; part++) {
    struct copse_q left = COPSE_Q_ZERO;
    const char *next = part < parts + COPSE_TOPOLOGY_NAMED_FAULTS ? next_fault(faults, part) : NULL;
    if (!next || (part->left[0] && !copse_cli_parse_part(part->left, &left)))
      return copse_fail(err, COPSE_BAD_INPUT, "more faults, or what is no fault");
    named.faults[named.n_faults++] = (struct copse_fault){part->what, left};
    faults = next;
  }
  return copse_cli_load_topology(&named, &w->topology, &w->whole, err);
}

void copse_cli_load_named(int most, struct copse_cli_work *w) {
  const struct copse_schedule *s = w->schedule;
  const char *name = s->topology_name ? s->topology_name : "", *faults = strstr(name, " with");
  struct copse_err unknown = COPSE_ERR_INIT;
  char base[512], sha256[COPSE_SHA256_HEX];
  w->unnamed = "of so many ranks only -t TOPO does it, since it takes a while";
  if (s->n_ranks > most) return;
  w->unnamed =
      "its topology is neither of the catalogue nor synthetic, or its name does not say "
      "all that is down or slower; -t TOPO does it";
  if (!faults) faults = name + strlen(name);
  snprintf(base, sizeof base, "%.*s", (int)(faults - name), name);
  copse_status status = load_by_name(base, faults, w, &unknown);
  if (status == COPSE_OK) status = copse_schedule_choose_ranks(s, &w->topology, &unknown);
  if (status == COPSE_OK) status = copse_topology_sha256(w->topology, sha256, &unknown);
  bool same = status == COPSE_OK && strcmp(sha256, s->topology_sha256) == 0;
  if (same && w->topology->n_ranks == s->n_ranks) {
    w->unnamed = NULL;
    return;
  }
  copse_topology_free(w->topology);
  copse_topology_free(w->whole);
  w->topology = w->whole = NULL;
}

void copse_cli_note_routes(const struct copse_cli_work *w, const char *more) {
  char text[COPSE_DETOUR_TEXT];
  if (w->n_columns > 0 && copse_prediction_detour(w->columns, w->topology, text))
    copse_note(&copse_cli_notes, "%s%s", text, more);
  if (w->unnamed && w->schedule->n_ranks > 1)
    copse_note(&copse_cli_notes,
               "what links carry on the fabric's own routes was not compared with the schedule: %s",
               w->unnamed);
}

/* Takes a failure that came of what nobody asked for as the reason why nothing was compared. */
static copse_status leave_out(struct copse_cli_work *w, copse_status status) {
  if (status == COPSE_NOMEM) return status;
  COPSE_DO(copse_arena_text(&w->arena, w->err.text, &w->unnamed, &w->err));
  w->err = (struct copse_err)COPSE_ERR_INIT;
  copse_predictions_free(w->columns, w->n_columns);
  w->n_columns = 0;
  return COPSE_OK;
}

copse_status copse_cli_compare_routes(const struct copse_cli_topology *args, const char *file,
                                      const char *more, struct copse_cli_work *w) {
  struct copse_foreign what = {0};
  const char *label = copse_file_label(file);
  copse_status status = COPSE_OK;
  w->n_columns = w->topology ? 1 : 0;
  if (w->topology && w->plan)
    status = copse_predict_plan(label, w->topology, w->plan, NULL, w->columns, &what, &w->err);
  else if (w->topology)
    status = copse_predict_mscclpp(label, w->made, w->made_size, w->topology, w->columns, &w->err);
  free(what.demand);
  if (status != COPSE_OK && !copse_cli_has_topology(args)) status = leave_out(w, status);
  if (status != COPSE_OK) return status;
  w->columns->time_per_GB = w->schedule->time_per_GB;
  copse_cli_note_routes(w, more);
  return COPSE_OK;
}

void copse_cli_add_routes(struct copse_cli_work *w) {
  const struct copse_prediction *it = w->columns;
  double says = copse_q_to_double(it->time_per_GB), runs = copse_q_to_double(it->runs_per_GB);
  copse_text_add(&w->text, ", \"routes\": ");
  if (w->n_columns == 0 || says <= 0) {
    copse_text_add(&w->text, "null");
    return;
  }
  const struct copse_link *l = &w->topology->links[it->worst_link];
  const struct copse_node *nodes = w->topology->nodes;
  copse_text_add(&w->text, "{\"time_per_GB\": \"%s\", \"factor\": %.6g, \"most_loaded\": [%s, %s]}",
                 COPSE_Q_STRING(it->runs_per_GB), runs / says, copse_cli_quoted(nodes[l->src].id),
                 copse_cli_quoted(nodes[l->dst].id));
}

/* Whether it is the topology of that checksum but for its name, which the checksum covers. */
static bool is_renamed(const struct copse_topology *given, const char *made_for,
                       const char *sha256) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *copy = NULL;
  struct copse_topology named = *given;
  struct copse_err ignored = COPSE_ERR_INIT;
  char own[COPSE_SHA256_HEX];
  if (!made_for || !sha256) return false;
  named.name = made_for;
  return copse_topology_copy(&named, made_for, &copy, &ignored) == COPSE_OK &&
         copse_topology_sha256(copy, own, &ignored) == COPSE_OK && strcmp(own, sha256) == 0;
}

/* Whether it is the topology of that checksum with bandwidths of --profile. */
static bool is_measured(const struct copse_cli_topology *args, const char *sha256) {
  static const struct copse_notes silent = {0};
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *whole = NULL, *nominal = NULL;
  struct copse_cli_topology without = *args;
  struct copse_err ignored = COPSE_ERR_INIT;
  char own[COPSE_SHA256_HEX];
  without.profile = NULL;
  without.options.notes = &silent;
  if (!args->profile || !sha256 || (args->path && strcmp(args->path, "-") == 0)) return false;
  return copse_cli_load_whole(&without, &whole, &ignored) == COPSE_OK &&
         copse_cli_change_topology(args, whole, args->faults, args->n_faults, &nominal, &ignored) ==
             COPSE_OK &&
         copse_topology_sha256(nominal, own, &ignored) == COPSE_OK && strcmp(own, sha256) == 0;
}

const char *copse_cli_other_topology(const struct copse_cli_topology *args, const char *file,
                                     const char *made_for, const char *sha256,
                                     const struct copse_topology *given,
                                     char text[COPSE_CLI_OTHER_TEXT]) {
  COPSE_AT_END(copse_text_free) struct copse_text missing = {0}, extra = {0};
  const char *label = copse_cli_topology_label(args);
  file = copse_file_label(file);
  copse_cli_faults_between(made_for, given->name, &missing);
  if (made_for) copse_cli_faults_between(given->name, made_for, &extra);
  if (missing.size > 0 && !missing.failed)
    snprintf(text, COPSE_CLI_OTHER_TEXT,
             "%s was made for %.100s with parts down or slower: add%s to mean that", file,
             given->name, missing.data);
  else if (extra.size > 0 && !extra.failed)
    snprintf(text, COPSE_CLI_OTHER_TEXT, "%s was made for %.100s as a whole, without%s", file,
             made_for, extra.data);
  else if (is_measured(args, sha256))
    snprintf(text, COPSE_CLI_OTHER_TEXT,
             "%s was made for %.100s with its nominal bandwidths, which --profile changes", file,
             given->name);
  else if (is_renamed(given, made_for, sha256))
    snprintf(text, COPSE_CLI_OTHER_TEXT,
             "%s was made for %.100s, the same topology by another name", file, made_for);
  else if (made_for && made_for[0])
    snprintf(text, COPSE_CLI_OTHER_TEXT, "%s was made for another topology (%.100s) than %s", file,
             made_for, label);
  else
    snprintf(text, COPSE_CLI_OTHER_TEXT, "%s was made for another topology than %s, or names none",
             file, label);
  return text;
}

copse_status copse_cli_check_made_for(const struct copse_topology *whole, const char *file,
                                      const struct copse_schedule *s, struct copse_err *err) {
  const char *name = s->topology_name ? s->topology_name : "none";
  size_t length = strlen(whole->name);
  if (strncmp(name, whole->name, length) == 0 && strncmp(name + length, " with", 5) == 0)
    return COPSE_OK; /* "rack without h0.nic3", "rack with h0.nic3 at 50%" */
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_topology_sha256(whole, sha256, err));
  if (strcmp(s->topology_sha256, sha256) == 0) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                       "was made for another topology (%.100s) than this %.100s: leave out --keep "
                       "to make new plans",
                       name, whole->name);
}

/* ---- where the catalogue is -------------------------------------------------------------- */

/* Beside the program: $PREFIX/bin/copse, build/copse or build/VARIANT/copse. */
static const char *const beside[] = {"../share/copse/topologies", "../topologies",
                                     "../../topologies"};
#define N_BESIDE (sizeof beside / sizeof *beside)

const char *const *copse_cli_catalogue(void) {
  static char paths[N_BESIDE][PATH_MAX + 32];
  static const char *found[N_BESIDE + 1];
  static bool done;
  char program[PATH_MAX];
  const char *own = getenv("COPSE_TOPOLOGIES");
  if (done) return found;
  done = true;
  if (own && own[0]) {
    found[0] = own;
    return found;
  }
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0) return found;
  program[n] = '\0';
  char *slash = strrchr(program, '/');
  if (slash) *slash = '\0';
  for (size_t i = 0, k = 0; i < N_BESIDE; i++) {
    /* topologies/ beside an installed program is not the catalogue */
    if (i > 0 && !strstr(program, "/build")) continue;
    snprintf(paths[i], sizeof paths[i], "%s/%s", program, beside[i]);
    if (access(paths[i], F_OK) == 0) found[k++] = paths[i];
  }
  return found;
}
