/*
 * What nvbandwidth (NVIDIA/nvbandwidth v0.4 to v0.8) prints, as text or JSON (-j): a matrix of
 * bandwidths for each test, between GPUs or between GPUs and their host, one pair at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"

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
 * Tests that did not run are left out, and so is text that isn't nvbandwidth's. COPSE_BAD_INPUT
 * where there is no matrix at all. Release with copse_nvbandwidth_free, whatever the outcome.
 */
copse_status copse_nvbandwidth_parse(const char *label, const char *data, size_t size,
                                     struct copse_nvbandwidth *out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_nvbandwidth_free(struct copse_nvbandwidth *report);

/*
 * GB/s from GPU i to GPU j, one pair at a time, at pairs[i * n_devices + j]; num < 0: not measured.
 * The best of the tests that copy one way between devices, of which "read" prints the copy from its
 * column to its row, "write" from row to column.
 */
void copse_nvbandwidth_pairs(const struct copse_nvbandwidth *report, struct copse_q *pairs);
/* The same between the host and each GPU, in to_gpu[n_devices] and to_host[n_devices]. */
void copse_nvbandwidth_hosts(const struct copse_nvbandwidth *report, struct copse_q *to_gpu,
                             struct copse_q *to_host);
