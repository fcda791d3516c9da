/*
 * The independent check of a certificate of rings and chains, "copse-rings/1" (docs/nccl-rings.md).
 * It shares no code with solver/rings and src/nccl: how data go from one GPU to another, and to
 * NICs, is read from the topology anew (ways.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "topology/topology.h"

struct copse_verify_rings_part {
  int n, kind;          /* channels; crossnic of rings, pattern of chains */
  struct copse_q speed; /* GB/s of each */
  struct copse_q GBps;  /* of all */
  struct copse_q bound; /* recomputed from the lengths */
  bool all_orders;      /* by the shortest of all orders; else by assignments, which may be
                           shorter than any order */
};

struct copse_verify_rings_report {
  bool same_topology; /* the certificate's sha256 is this topology's */
  int n_hosts, n_gpus, n_groups; /* GPUs of all hosts; groups of hosts alike */
  struct copse_verify_rings_part rings, chains;
};

/*
 * Checks, exactly:
 * - every channel has every GPU of a host once, and on several hosts two NICs, as its crossnic
 * says;
 * - no link of any host has more than its bandwidth at the speed stated: of rings over hosts in
 * rank order, of chains joined by two binary trees, half in each;
 * - GBps is channels times speed;
 * - the bound follows from its lengths: the least length of an order, and bandwidth times length;
 * - of hosts in groups each is in one, all have as many channels of one speed; the report has the
 *   least bound.
 * COPSE_REFUTED with the first defect; COPSE_BAD_INPUT for what is no certificate;
 * COPSE_UNSUPPORTED for hosts of over 256 GPUs; COPSE_OVERFLOW, COPSE_NOMEM.
 */
copse_status copse_verify_rings(const char *label, const char *data, size_t size,
                                const struct copse_topology *topology,
                                struct copse_verify_rings_report *report,
                                struct copse_err *err) COPSE_CHECKED;
