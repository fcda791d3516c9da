/* Local exchange for an alltoall: its flows in equal pieces, each with a path, and the flows'
 * order, improved under the simulator's rules for one message size. */
#pragma once

#include "topology/route.h"
#include "schedule/schedule.h"

struct copse_exchange_paths {
  const struct copse_topology *topology;
  const struct copse_routes *routes; /* of plans: a way over relays alone is a hop */
  const struct copse_schedule_flow *flows;
  int n_flows; /* to begin with */
  double bytes, alpha_us;
  bool alpha_occupies; /* as in simulate.h */
  bool by_loads;       /* begins with paths on which little is, not with those of the flows */
  int pieces;          /* of each flow */
  double enough_us;    /* no schedule is faster */
  uint64_t seed;       /* another one tries other moves */
  double work;         /* stop after so much, in steps of the simulator: chunks times links */
};

/*
 * Sets *flows [n_flows], in `arena`, to the same demand in another order, over paths that were
 * there, or of one hop more than the fewest at most. What it took is added to *work. Only floats
 * choose: what comes out is right by construction. COPSE_UNSUPPORTED for too many ranks.
 */
copse_status copse_exchange_flows(const struct copse_exchange_paths *exchange,
                                  struct copse_arena *arena,
                                  const struct copse_schedule_flow **flows, double *work,
                                  struct copse_err *err) COPSE_CHECKED;
