#include "cli/solve_args.h"

#include <getopt.h>
#include <string.h>

#include "base/types.h"

const char copse_cli_solve_help[] =
    "  -c, --collective C  allgather, reduce_scatter, allreduce, broadcast, reduce or\n"
    "                      alltoall\n"
    "  -r, --root R        the root rank of a broadcast or reduce\n"
    "  -k, --k K           exactly K trees per root (the optimum may need many)\n"
    "  -d, --demand FILE   what each rank sends to each, for alltoall; default: all the same\n"
    "      --no-forward    ranks do not relay what is not theirs (alltoall)\n"
    "      --no-symmetry   do not look for symmetries of the cluster, which make solving faster\n"
    "      --compact       write the trees of one rank of each orbit and the symmetries that move\n"
    "                      them, of equal shares, where such reach the optimum; beyond 4096\n"
    "                      ranks always\n"
    "      --equal-shares  allreduce: a reduce_scatter and an allgather with equal shares per root\n"
    "                      also where other shares, or links shared out otherwise, are faster;\n"
    "                      its trees are lower, and short messages often faster\n"
    "      --in-network    allreduce: switches that are marked copy (multicast) and add\n"
    "                      (aggregation), as NVLink SHARP and SHARP do; plans can't yet\n"
    "  -e, --tolerance P%  trees: the fewest per root within P per cent of the bound; alltoall:\n"
    "                      stop within P per cent (default: as exact as 64-bit fractions\n"
    "                      allow, beyond 64 ranks 1%)\n";

int copse_cli_solve_option(struct copse_cli_solve *a, const char *command, char **argv, int c) {
  int64_t value;
  switch (c) {
    case 'c':
      a->has_collective = copse_collective_from_name(optarg, &a->solve.collective);
      if (!a->has_collective)
        return copse_cli_usage(command,
                               "unknown collective '%.40s': allgather, reduce_scatter, "
                               "allreduce, broadcast, reduce or alltoall",
                               optarg);
      break;
    case 'r':
      if (!copse_cli_parse_int(optarg, 0, INT32_MAX, &value))
        return copse_cli_usage(command, "--root must be a rank");
      a->solve.root = (int)value;
      break;
    case 'k':
      if (!copse_cli_parse_int(optarg, 1, 1 << 20, &a->solve.k))
        return copse_cli_usage(command, "--k must be from 1 to %d", 1 << 20);
      break;
    case 'd': a->demand = optarg; break;
    case COPSE_CLI_NO_FORWARD: a->solve.no_forward = true; break;
    case COPSE_CLI_NO_SYMMETRY: a->solve.no_symmetry = true; break;
    case COPSE_CLI_COMPACT: a->solve.compact = true; break;
    case COPSE_CLI_EQUAL_SHARES: a->solve.equal_shares = true; break;
    case COPSE_CLI_IN_NETWORK: a->solve.in_network = true; break;
    case 'e':
      a->has_tolerance = copse_cli_parse_part(optarg, &a->solve.tolerance);
      if (!a->has_tolerance)
        return copse_cli_usage(command, "--tolerance must be a part such as 1%% or 0.01");
      break;
    default: return copse_cli_topology_option(&a->topology, command, argv, c);
  }
  return COPSE_EXIT_DONE;
}

int copse_cli_solve_check(struct copse_cli_solve *a, const char *command, int n_left,
                          char *const *left) {
  copse_collective collective = a->solve.collective;
  if (n_left != (a->topology.synthetic ? 0 : 1))
    return copse_cli_usage(command, "give one topology: a file, a name or --synthetic");
  a->topology.path = a->topology.synthetic ? NULL : left[0];
  if (!a->has_collective) return copse_cli_usage(command, "name a collective with -c");
  if (copse_collective_rooted(collective) && a->solve.root < 0)
    return copse_cli_usage(command, "%s needs --root", copse_collective_name(collective));
  if (!copse_collective_rooted(collective) && a->solve.root >= 0)
    return copse_cli_usage(command, "--root is for broadcast and reduce");
  if (collective != COPSE_ALLTOALL && (a->demand || a->solve.no_forward))
    return copse_cli_usage(command, "--demand and --no-forward are for alltoall");
  if (a->solve.compact && (collective == COPSE_ALLTOALL || a->solve.root >= 0))
    return copse_cli_usage(command, "--compact is for allgather, reduce_scatter and allreduce");
  if (a->solve.compact && (a->solve.no_symmetry || a->solve.bound_only))
    return copse_cli_usage(command,
                           "--compact needs symmetries and trees: leave out "
                           "--no-symmetry and --bound-only");
  if (a->solve.compact && a->solve.in_network)
    return copse_cli_usage(command,
                           "--compact is for trees through plain switches: leave out --in-network");
  if (collective != COPSE_ALLREDUCE && a->solve.equal_shares)
    return copse_cli_usage(command, "--equal-shares is for allreduce");
  if (collective != COPSE_ALLREDUCE && a->solve.in_network)
    return copse_cli_usage(command,
                           "--in-network is for allreduce; collectives of one phase are no faster "
                           "with it");
  if (a->solve.in_network && (a->has_tolerance || a->solve.k > 0))
    return copse_cli_usage(command, "--in-network is exact: leave out --k and --tolerance");
  if (a->has_tolerance && a->solve.k > 0)
    return copse_cli_usage(command, "--k and --tolerance both choose the number of trees");
  if (collective == COPSE_ALLTOALL && a->solve.k > 0)
    return copse_cli_usage(command, "--k is for trees; an alltoall has flows");
  return COPSE_EXIT_DONE;
}

int copse_cli_solve_fail(const struct copse_cli_solve *a, const struct copse_err *err) {
  struct copse_err placed = COPSE_ERR_INIT;
  if (err->status != COPSE_OVERFLOW) return copse_cli_fail(err);
  (void)copse_fail_at(&placed, err->status, copse_cli_topology_label(&a->topology), 0, "%s%s",
                      err->text,
                      strstr(err->text, "fewer digits") || strstr(err->text, "tolerance")
                          ? ""
                          : "; bandwidths and demands of fewer digits would fit");
  return copse_cli_fail(&placed);
}
