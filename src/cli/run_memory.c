#include "cli/run_memory.h"

#include <stdio.h>
#include <string.h>

#include "runtime/plan/layout.h"
#include "runtime/interpreter/expected.h"

/* One number from a file such as cgroup's memory.max; false for "max" and no file. */
static bool read_number(const char *path, unsigned long long *out) {
  FILE *in = fopen(path, "re");
  if (!in) return false;
  bool ok = fscanf(in, "%llu", out) == 1;
  fclose(in);
  return ok;
}

/* What can be taken without swapping; UINT64_MAX where the system doesn't tell. */
static uint64_t available_memory(void) {
  uint64_t available = UINT64_MAX;
  char line[256];
  unsigned long long kib, most, used;
  FILE *in = fopen("/proc/meminfo", "re");
  while (in && fgets(line, sizeof line, in))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) available = (uint64_t)kib << 10;
  if (in) fclose(in);
  if (read_number("/sys/fs/cgroup/memory.max", &most) &&
      read_number("/sys/fs/cgroup/memory.current", &used)) {
    uint64_t left = most > used ? most - used : 0;
    if (left < available) available = left;
  }
  return available;
}

/* Inputs, outputs and scratch for messages of `bytes`, with the type that takes most. */
static copse_status needed_memory(const struct copse_run_options *options,
                                  const struct copse_plan *plan, uint32_t ranks_here,
                                  uint64_t bytes, uint64_t *needed, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  uint64_t block = copse_plan_block_bytes(plan, bytes), most = 0;
  for (int t = 0; t < COPSE_N_TYPES; t++) {
    uint64_t scratch;
    if (!options->types[t]) continue;
    copse_status status = copse_exec_scratch_bytes(
        plan, block / copse_type_bytes((enum copse_type)t), (enum copse_type)t, &scratch, err);
    if (status != COPSE_OK) return status;
    if (scratch > most) most = scratch;
  }
  *needed = (uint64_t)((unsigned __int128)most * ranks_here / h->n_ranks) +
            copse_buffers_bytes(ranks_here, h->input_blocks * block, h->output_blocks * block);
  return COPSE_OK;
}

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

copse_status copse_run_check_memory(const struct copse_run_options *options,
                                    const struct copse_plan *plan, uint32_t ranks_here,
                                    struct copse_err *err) {
  uint64_t limit = options->max_memory ? options->max_memory : available_memory(), needed;
  copse_status status = needed_memory(options, plan, ranks_here, options->max_bytes, &needed, err);
  if (status != COPSE_OK || needed <= limit) return status;
  uint64_t fits = options->max_bytes, bytes = needed;
  while (bytes > limit && fits > 0) {
    fits /= 2;
    status = needed_memory(options, plan, ranks_here, fits, &bytes, err);
    if (status != COPSE_OK) return status;
  }
  char advice[64] = "";
  if (fits > 0) snprintf(advice, sizeof advice, "; -e %llu fits", (unsigned long long)fits);
  return copse_fail(err, COPSE_NOMEM,
                    "-e %llu needs %.3g GiB of memory (inputs, outputs and scratch of %u ranks), "
                    "%.3g GiB are %s%s",
                    (unsigned long long)options->max_bytes, gib(needed), ranks_here, gib(limit),
                    options->max_memory ? "allowed" : "available", advice);
}
