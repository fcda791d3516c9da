/* A machine as text, as lstopo draws one: hosts, what is in them and on which switch, bandwidths.
 */
#pragma once

#include "base/text.h"
#include "topology/topology.h"

/*
 * Appends a topology as text. Hosts that are alike are drawn once, with how many there are,
 * switches of the fabric on one row where they join alike things. A row has the bandwidth to the
 * row that it stands under, then what else it is joined to. COPSE_NOMEM. Complexity O(n_nodes * d),
 * where d is the number of links of a node.
 */
copse_status copse_outline(const struct copse_topology *topology, struct copse_text *text,
                           struct copse_err *err) COPSE_CHECKED;

/*
 * Appends the table of `nvidia-smi topo -m` for the first of the hosts that are alike: from each
 * GPU and NIC to each GPU the way of the fewest links, in GB/s of its narrowest link, and what it
 * leads through. COPSE_NOMEM. With `json` an object instead: {"name", "host" or null, "gpus":
 * number, "columns": [id], "rows": [{"id", "GBps": [number or null], "through": [text or null]}]}.
 */
copse_status copse_outline_matrix(const struct copse_topology *topology, bool json,
                                  struct copse_text *text, struct copse_err *err) COPSE_CHECKED;
