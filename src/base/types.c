/* Names and kinds of collectives, names of element types and reductions. */
#include "base/types.h"

#include <ctype.h>
#include <string.h>

static const char *const type_names[COPSE_N_TYPES] = {"int8",   "uint8",    "int32",  "uint32",
                                                      "int64",  "uint64",   "half",   "float",
                                                      "double", "bfloat16", "f8e4m3", "f8e5m2"};
static const char *const redop_names[COPSE_N_REDOPS] = {"sum", "prod", "max", "min", "avg"};

const char *copse_type_name(enum copse_type type) { return type_names[type]; }

const char *copse_redop_name(enum copse_redop redop) { return redop_names[redop]; }

static const struct {
  const char *name;
  bool broadcasts, aggregates, rooted, many_inputs, many_outputs;
} table[] = {
    [COPSE_ALLGATHER] = {"allgather", true, false, false, false, true},
    [COPSE_REDUCE_SCATTER] = {"reduce_scatter", false, true, false, true, false},
    [COPSE_ALLREDUCE] = {"allreduce", true, true, false, false, false},
    [COPSE_BROADCAST] = {"broadcast", true, false, true, false, false},
    [COPSE_REDUCE] = {"reduce", false, true, true, false, false},
    [COPSE_ALLTOALL] = {"alltoall", false, false, false, true, true},
};

const char *copse_collective_name(copse_collective collective) {
  return (unsigned)collective < COPSE_N_COLLECTIVES ? table[collective].name : "unknown";
}

/* Whether both are spelled with the same letters: without case, '_', '-' and blanks. */
static bool is_spelled(const char *name, const char *given) {
  for (;; name++, given++) {
    while (*name == '_') name++;
    while (*given && strchr("_- ", *given)) given++;
    if (tolower((unsigned char)*given) != *name) return false;
    if (!*name) return true;
  }
}

bool copse_collective_from_name(const char *name, copse_collective *out) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!is_spelled(table[i].name, name)) continue;
    *out = (copse_collective)i;
    return true;
  }
  return false;
}

bool copse_collective_broadcasts(copse_collective collective) {
  return table[collective].broadcasts;
}
bool copse_collective_reduces(copse_collective collective) { return table[collective].aggregates; }
bool copse_collective_rooted(copse_collective collective) { return table[collective].rooted; }
double copse_collective_bus_factor(copse_collective collective, int n_ranks) {
  double others = (double)(n_ranks - 1) / n_ranks;
  if (collective == COPSE_ALLREDUCE) return 2 * others;
  return copse_collective_rooted(collective) ? 1 : others;
}

int copse_collective_inputs(copse_collective collective, int n_ranks) {
  return table[collective].many_inputs ? n_ranks : 1;
}
int copse_collective_outputs(copse_collective collective, int n_ranks) {
  return table[collective].many_outputs ? n_ranks : 1;
}
