/* A topology with something changed: broken or slow parts, or fewer ranks. Each makes a new one;
 * the old stays as it is. */
#pragma once

#include "topology/topology.h"

/* The id of a node, with all its links, or a pattern of ids (copse_id_matches); or "SRC>DST", a
 * cable: both directions, where both are. */
struct copse_fault {
  const char *what;
  struct copse_q left; /* what is left of the bandwidth: 0 is down, else at most 1 */
};

/* Faults that the name of a broken topology has; of more it has their number. */
#define COPSE_TOPOLOGY_NAMED_FAULTS 3

/*
 * Makes the topology without what is down and with the bandwidths that are left. Faults of the
 * same link multiply. A GPU that is down is no rank any more: those behind it move up. The name
 * says what is broken, the checksum is that of what is left. Relays may come out unbalanced where
 * the two directions of a cable differ; trees refuse them as ever. COPSE_BAD_INPUT naming a fault
 * that fits no node and no link (`label` is the place), or when no GPU is left; COPSE_OVERFLOW.
 * The caller releases *out.
 */
copse_status copse_topology_break(const struct copse_topology *topology, const char *label,
                                  const struct copse_fault *faults, int n_faults,
                                  struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;

/* Parses a list such as "0-3,8,h1.gpu2": ranks of the topology, ranges of them, ids of GPUs or
 * patterns of ids. *nodes, [*n] in the order of the list, is the caller's to free. COPSE_BAD_INPUT
 * for what isn't there and for a GPU named twice. An id of digits, or of two numbers and a dash, is
 * taken for ranks. */
copse_status copse_topology_parse_ranks(const struct copse_topology *topology, const char *label,
                                        const char *list, int **nodes, int *n,
                                        struct copse_err *err) COPSE_CHECKED;

/*
 * Makes the same fabric with these GPUs, nodes [n], as ranks 0 .. n-1 in this order. n-1 in this
 * order. The others become relays (type "relay"), or with `exclude` leave with their links.
 * Choosing ranks makes no other fabric: the name stays, and copse_topology_sha256 gives that of
 * `topology`. The caller releases *out.
 */
copse_status copse_topology_choose_ranks(const struct copse_topology *topology, const int *nodes,
                                         int n, bool exclude, struct copse_topology **out,
                                         struct copse_err *err) COPSE_CHECKED;

/* Makes the same fabric, whose switches neither copy nor add. The caller releases *out. */
copse_status copse_topology_unmark(const struct copse_topology *topology,
                                   struct copse_topology **out,
                                   struct copse_err *err) COPSE_CHECKED;

/* What is changed of a topology: first what is down or slow, then the choice of ranks. */
struct copse_change {
  const struct copse_fault *faults; /* [n_faults] */
  int n_faults;
  const char *ranks; /* a list of ranks as the topology has them before anything broke; NULL: all */
  bool exclude;      /* the GPUs that are no ranks leave with their links */
};

/* Does both of them. COPSE_BAD_INPUT also for a rank that is down. The caller releases *out. */
copse_status copse_topology_changed(const struct copse_topology *topology, const char *label,
                                   const struct copse_change *change, struct copse_topology **out,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * Makes the same fabric, in which no GPU sends to more than `most` others over a switch that joins
 * GPUs alone: in place of such a switch of more GPUs, alike, each has links to as many, at even
 * distances around the switch, that have its bandwidth together. What these carry the switch
 * carries too, and as trees of many roots find as much bandwidth, higher ones (every set of GPUs
 * has as much out as before or more than one GPU). Fewer where bandwidths then have fewer units.
 * A NIC, or another relay that GPUs share, is left to one of them where that has as much bandwidth
 * as the NIC. *peers: the most there are at a switch. *out: NULL where nothing changes; the caller
 * releases it.
 */
copse_status copse_topology_sparse(const struct copse_topology *topology, int most, int *peers,
                                   struct copse_topology **out,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * Makes the same with links narrowed until every relay takes in as much as it lets out, which
 * trees need. A schedule for it is one for the whole topology too. The widest link of the wider
 * side gives, one to or from a rank before others. The caller releases *out. COPSE_UNSUPPORTED
 * where that does not end soon; COPSE_OVERFLOW.
 */
copse_status copse_topology_balance(const struct copse_topology *topology,
                                    struct copse_topology **out,
                                    struct copse_err *err) COPSE_CHECKED;
