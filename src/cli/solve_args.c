#include "cli/solve_args.h"

#include <getopt.h>
#include <string.h>

#include "base/collective.h"

const char copse_cli_solve_help[] =
    "  -c, --collective C  allgather, reduce_scatter, allreduce, broadcast, reduce or\n"
    "                      alltoall\n"
    "  -r, --root R        the root rank of a broadcast or reduce\n"
    "  -k, --k K           exactly K trees per root (the optimum may need many)\n"
    "  -d, --demand FILE   what each rank sends to each, for alltoall; default: all the same\n"
    "      --no-forward    ranks do not relay what is not theirs (alltoall)\n"
    "      --no-symmetry   do not look for a rotation of the hosts (alltoall)\n"
    "      --equal-shares  allreduce: a reduce_scatter and an allgather with equal shares per root\n"
    "                      also where other shares, or links shared out otherwise, are faster;\n"
    "                      its trees are lower, and short messages often faster\n"
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
    case COPSE_CLI_EQUAL_SHARES: a->solve.equal_shares = true; break;
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
  if (collective != COPSE_ALLTOALL && (a->demand || a->solve.no_forward || a->solve.no_symmetry))
    return copse_cli_usage(command, "--demand, --no-forward and --no-symmetry are for alltoall");
  if (collective != COPSE_ALLREDUCE && a->solve.equal_shares)
    return copse_cli_usage(command, "--equal-shares is for allreduce");
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
