/*
 * What tools around NCCL print: nccl-tests and rccl-tests (text, JSON, CSV), NCCL's RAS service
 * (text and JSON). Recorded calls are read by nccl/calls.h, nvbandwidth by
 * topology/input/profile.h, as a profile is made of it.
 *
 * Each reader takes the whole text, passes over what isn't the tool's and counts what is damaged in
 * n_damaged; it is COPSE_BAD_INPUT where nothing is left. Texts stay as long as the report.
 * Sources: NVIDIA/nccl-tests src/common.cu and util.cu, ROCm/rccl-tests, NVIDIA/nccl
 * src/ras/client_support.cc.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"

/* What a text is, told by its content. A job's output may hold NCCL's log and a test's table. */
enum copse_nccl_kind {
  COPSE_NCCL_IS_TOPOLOGY = 1, /* topology JSON or XML, or a connection matrix */
  COPSE_NCCL_IS_GRAPHS = 2,   /* a graph dump */
  COPSE_NCCL_IS_LOG = 4,
  COPSE_NCCL_IS_TESTS = 8,
  COPSE_NCCL_IS_NVBANDWIDTH = 16,
  COPSE_NCCL_IS_RAS = 32,
  COPSE_NCCL_IS_CALLS = 64,   /* calls.h: Inspector, flight recorder */
  COPSE_NCCL_IS_PROFILE = 128 /* copse-profile/1 */
};
/* Returns the kinds of a text together; 0: none that is known. Linear time. */
unsigned copse_nccl_detect(const char *data, size_t size);
/* Returns "NCCL's log", of the first kind. */
const char *copse_nccl_kind_name(unsigned kinds);

/* ---- nccl-tests ------------------------------------------------------------------------------ */

struct copse_tests_time {
  bool present;
  struct copse_q time_us, algbw, busbw; /* GB/s */
  int64_t wrong;                        /* elements; -1: not checked */
};

struct copse_tests_row {
  const char *collective; /* "allreduce", as the command line has it; "" where not said */
  int64_t bytes, count;   /* bytes: the size column, which is the whole buffer */
  const char *type, *redop;
  int root;                        /* -1: none */
  struct copse_tests_time out, in; /* out of place, in place */
};

struct copse_tests_device {
  int rank, device;
  const char *host, *bus, *name; /* "node-a", "0000:1b:00" as printed, "NVIDIA H100 80GB HBM3" */
  int64_t pid;
};

struct copse_tests {
  const char *version; /* of the tests; "" where not said */
  int n_ranks;         /* 0: not said */
  int n_rows, n_devices;
  struct copse_tests_row *rows;
  struct copse_tests_device *devices; /* JSON names the first of each process only */
  int64_t n_wrong;                    /* wrong results, as the footer has it; -1: not said */
  struct copse_q average_busbw;       /* num < 0: not said */
  int64_t n_damaged;
  bool is_cut; /* a text with the tool's head and not its end */
  size_t row_capacity, device_capacity;
  struct copse_arena arena;
};

copse_status copse_tests_parse(const char *label, const char *data, size_t size,
                               struct copse_tests *out, struct copse_err *err) COPSE_CHECKED;
static inline void copse_tests_free(struct copse_tests *tests) {
  free(tests->rows);
  free(tests->devices);
  copse_arena_free(&tests->arena);
  *tests = (struct copse_tests){0};
}

/* ---- RAS ------------------------------------------------------------------------------------- */

struct copse_ras_comm {
  const char *id; /* "0x6f1d", or "group 0" of the text, which has `times` alike */
  int64_t n_ranks, n_missing, times;
  const char *status, *errors; /* "RUNNING", "OK"; JSON: what ranks say together */
};

struct copse_ras {
  const char *version; /* "" where not said */
  int n_comms, n_lines;
  int64_t n_events; /* of the monitor */
  struct copse_ras_comm *comms;
  const char **lines; /* under "Errors" and "Warnings", of missing ranks, of peers that died */
  int64_t n_damaged;
  size_t comm_capacity, line_capacity;
  struct copse_arena arena;
};

copse_status copse_ras_parse(const char *label, const char *data, size_t size,
                             struct copse_ras *out, struct copse_err *err) COPSE_CHECKED;
static inline void copse_ras_free(struct copse_ras *ras) {
  copse_arena_free(&ras->arena);
  *ras = (struct copse_ras){0};
}
