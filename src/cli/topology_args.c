#include "cli/topology_args.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char copse_cli_topology_help[] =
    "\nThe topology is a file (topology, cluster or synthetic JSON, NCCL or RCCL XML, what\n"
    "'nvidia-smi topo -m' or 'rocm-smi --showtopo' print), - or a name that 'copse topo --list'\n"
    "shows. A file of that name wins.\n"
    "      --synthetic SPEC    a topology from one line instead of a file: ring:8@50, line:,\n"
    "                          full:, switch:, hypercube:6@50, torus:4x4x4@100, mesh:, or\n"
    "                          'hosts:4 gpus:8@300 nics:8@25 rails' (or flat, clos:2/4,\n"
    "                          rails spine@100, torus:2x2@50, dragonfly:4@50/100)\n"
    "  -l, --links MODE        what to keep of XML and matrices: nvlink (GPU links and\n"
    "                          NVSwitch only), all, or default (GPU links if they join all\n"
    "                          GPUs, with the PCIe ways to the NICs; else all)\n"
    "      --nvlink-switch BW  XML without NVLinks (cloud images): every GPU has BW GB/s to an\n"
    "                          NVSwitch of its host\n"
    "      --gpu CLASS         the GPUs of a matrix, which has no speeds: a100, h100, mi300x ..\n"
    "      --profile FILE      measured bandwidths over nominal ones (copse-profile/1)\n";

int copse_cli_topology_option(struct copse_cli_topology *args, const char *command, char **argv,
                              int option) {
  struct copse_q *bw = &args->options.nvlink_switch;
  switch (option) {
    case 'l':
      if (copse_link_mode_from_name(optarg, &args->options.links)) return 0;
      return copse_cli_usage(command, "--links must be nvlink, all or default");
    case COPSE_CLI_SYNTHETIC: args->synthetic = optarg; return 0;
    case COPSE_CLI_PROFILE: args->profile = optarg; return 0;
    case COPSE_CLI_GPU: args->options.gpu = optarg; return 0;
    case COPSE_CLI_NVLINK_SWITCH:
      if (copse_q_parse_decimal(optarg, bw, NULL) == COPSE_OK && bw->num > 0) return 0;
      if (copse_q_parse_fraction(optarg, bw, NULL) == COPSE_OK && bw->num > 0) return 0;
      return copse_cli_usage(command, "--nvlink-switch must be GB/s above 0, such as 240");
    default: return copse_cli_bad_option(command, argv, option);
  }
}

bool copse_cli_has_topology(const struct copse_cli_topology *args) {
  return args->path || args->synthetic;
}

const char *copse_cli_topology_label(const struct copse_cli_topology *args) {
  return args->synthetic ? args->synthetic : copse_file_label(args->path);
}

copse_status copse_cli_load_topology(const struct copse_cli_topology *args,
                                     struct copse_topology **out, struct copse_err *err) {
  struct copse_topology_options options = args->options;
  struct copse_profile *profile = NULL;
  copse_status status;
  *out = NULL;
  if (args->path && args->synthetic)
    return copse_fail(err, COPSE_INVALID, "both a topology file (%.80s) and --synthetic; give one",
                      args->path);
  if (args->profile) COPSE_TRY(copse_profile_load(args->profile, &profile, err));
  options.profile = profile;
  options.notes = &copse_cli_notes;
  options.catalogue = copse_cli_catalogue();
  status = args->synthetic ? copse_topology_synthetic(args->synthetic, &options, out, err)
                           : copse_topology_load(args->path, &options, out, err);
out:
  copse_profile_free(profile);
  return status;
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
    /* what merely lies near an installed program is none of ours */
    if (i > 0 && !strstr(program, "/build")) continue;
    snprintf(paths[i], sizeof paths[i], "%s/%s", program, beside[i]);
    if (access(paths[i], F_OK) == 0) found[k++] = paths[i];
  }
  return found;
}
