/* Names and kinds of the collectives. */
#include "base/collective.h"

#include <string.h>

static const struct {
  const char *name;
  bool broadcasts, aggregates, rooted;
} table[] = {
    [COPSE_ALLGATHER] = {"allgather", true, false, false},
    [COPSE_REDUCE_SCATTER] = {"reduce_scatter", false, true, false},
    [COPSE_ALLREDUCE] = {"allreduce", true, true, false},
    [COPSE_BROADCAST] = {"broadcast", true, false, true},
    [COPSE_REDUCE] = {"reduce", false, true, true},
    [COPSE_ALLTOALL] = {"alltoall", false, false, false},
};

const char *copse_collective_name(copse_collective collective) {
  return (unsigned)collective < COPSE_N_COLLECTIVES ? table[collective].name : "unknown";
}

bool copse_collective_from_name(const char *name, copse_collective *out) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, name) != 0) continue;
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
