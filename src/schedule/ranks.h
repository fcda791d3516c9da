/* A schedule's ranks against a topology's. */
#ifndef COPSE_SCHEDULE_RANKS_H
#define COPSE_SCHEDULE_RANKS_H

#include "schedule/schedule.h"
#include "topology/topology.h"

/*
 * Where the schedule is for some of the topology's GPUs, or for all in another order, *topology is
 * replaced by its choice of those ranks (topology/modify.h), the other GPUs relays or left out as
 * the schedule says. A topology that is a choice already, and one that lacks a rank of the
 * schedule, stay as they are, for the checks that follow to say what is wrong.
 */
copse_status copse_schedule_choose_ranks(const struct copse_schedule *schedule,
                                         struct copse_topology **topology,
                                         struct copse_err *err) COPSE_CHECKED;

#endif
