/*
 * A bandwidth profile: measured numbers over nominal ones.
 *
 *   {"format": "copse-profile/1", "source": "nvbandwidth and ib_write_bw, 2026-03-01",
 *    "rates": {"nvlink": 22.5, "net": 24.1},
 *    "links": [{"src": "h*.gpu*", "dst": "h*.nvswitch", "bandwidth": 270, "latency": 0.9},
 *              {"src_type": "nic", "dst_type": "switch", "scale": "0.95"}],
 *    "costs": {"hop_us": 2, "message_us": 0.18, "reduce_GBps": 400, "duplex": 1.6}}
 *
 * rates replace the constants by which XML and matrices are read: nvlink and xgmi of one link,
 * pcie of a device's or bridge's link, inter_cpu between two CPUs, net of a port. links are
 * rules for the finished topology: of the rules that match a link the last one counts. src and
 * dst are patterns of node ids as in file names (*, ?, [a-z]), src_type and dst_type types;
 * what is left out matches everything. A rule holds for both directions unless "duplex" is
 * false. It sets the bandwidth, or scales it, and may set the latency.
 *
 * What nvbandwidth prints, as text or JSON, stands for a profile: a link from GPU to GPU gets what
 * a copy between the two took; one to an NVSwitch the best of the GPU's copies, one to a PCIe
 * switch or CPU those with the host, the less of both ways. GPUs are told by bus id, or by number.
 * All hosts are taken for alike.
 *
 * costs are what predictions count beside links (predict/simulate.h): a hop's software cost from
 * rank to rank, what of it keeps the sender busy with each message, at what rate a rank adds, and
 * what both ways at once take over one.
 */
#pragma once

#include "topology/topology.h"

struct copse_profile;

enum copse_rate {
  COPSE_RATE_NVLINK,
  COPSE_RATE_XGMI,
  COPSE_RATE_PCIE,
  COPSE_RATE_INTER_CPU,
  COPSE_RATE_NET,
  COPSE_N_RATES
};

enum copse_cost {
  COPSE_COST_HOP,
  COPSE_COST_MESSAGE,
  COPSE_COST_REDUCE,
  COPSE_COST_DUPLEX,
  COPSE_N_COSTS
};

copse_status copse_profile_parse(const char *label, const char *data, size_t size,
                                 struct copse_profile **out, struct copse_err *err) COPSE_CHECKED;
void copse_profile_free(struct copse_profile *profile);
/* Frees at the end of a scope (COPSE_AT_END). */
static inline void copse_profile_free_at(struct copse_profile **profile) {
  copse_profile_free(*profile);
}

/* Returns the profile's number, or `nominal` where it has none. profile may be NULL. */
struct copse_q copse_profile_rate(const struct copse_profile *profile, enum copse_rate rate,
                                  struct copse_q nominal);

/* Returns the profile's cost, num < 0 where it has none. */
struct copse_q copse_profile_cost(const struct copse_profile *profile, enum copse_cost cost);

/*
 * Puts the rules over a topology: *topology is replaced by its changed copy. A rule that
 * matches no link is noted. Complexity O(links * rules).
 */
copse_status copse_profile_apply(const struct copse_profile *profile,
                                 const struct copse_notes *notes, struct copse_topology **topology,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * What nvbandwidth (NVIDIA/nvbandwidth v0.4 to v0.8) prints, as text or JSON (-j): a matrix of
 * bandwidths for each test, between GPUs or between GPUs and their host, one pair at a time.
 */

struct copse_nvbandwidth_test {
  const char *name; /* "device_to_device_memcpy_write_ce" */
  bool is_latency;  /* ns; else GB/s */
  int n_rows, n_columns;
  const int *rows, *columns;   /* their devices; a host's row is 0 */
  const struct copse_q *cells; /* [n_rows * n_columns] as printed; num < 0: none */
};

struct copse_nvbandwidth {
  int n_devices, n_tests; /* all devices of a matrix are below n_devices */
  struct copse_nvbandwidth_device {
    const char *bus, *name; /* "0000:1b:00", "" where not said */
  } * devices;
  struct copse_nvbandwidth_test *tests;
  int n_damaged; /* matrices or lines that were left out, as they are cut or foreign */
  size_t device_capacity, test_capacity;
  struct copse_arena arena;
};

/* Whether a text is nvbandwidth's. */
bool copse_nvbandwidth_is(const char *data, size_t size);

/*
 * Parses nvbandwidth's output. Tests that did not run are left out, and so is text that isn't its.
 * COPSE_BAD_INPUT where there is no matrix at all. Release with copse_nvbandwidth_free, whatever
 * the outcome.
 */
copse_status copse_nvbandwidth_parse(const char *label, const char *data, size_t size,
                                     struct copse_nvbandwidth *out,
                                     struct copse_err *err) COPSE_CHECKED;
static inline void copse_nvbandwidth_free(struct copse_nvbandwidth *report) {
  copse_arena_free(&report->arena);
  *report = (struct copse_nvbandwidth){0};
}

/*
 * Finds the GB/s from GPU i to GPU j, one pair at a time, at pairs[i * n_devices + j]; num < 0:
 * not measured. Takes the best of the tests that copy one way between devices, of which "read"
 * prints the copy from its column to its row, "write" from row to column.
 */
void copse_nvbandwidth_pairs(const struct copse_nvbandwidth *report, struct copse_q *pairs);
/* Finds the GB/s between the host and each GPU, in to_gpu[n_devices] and to_host[n_devices]. */
void copse_nvbandwidth_hosts(const struct copse_nvbandwidth *report, struct copse_q *to_gpu,
                             struct copse_q *to_host);
