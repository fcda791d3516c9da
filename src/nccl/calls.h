/*
 * Calls of collectives as a job recorded them: NCCL's Inspector plugin (JSON, an object a line, or
 * Prometheus text of means by size) and PyTorch's flight recorder (pickle or JSON). Each process
 * writes a file of its own; calls are joined over all files that are added.
 *
 * What isn't a tool's is passed over, and what is damaged counted. Texts stay as long as the calls.
 * Sources: NVIDIA/nccl plugins/profiler/inspector; pytorch/pytorch
 * torch/csrc/distributed/c10d/FlightRecorder.
 */
#pragma once

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"

/* One call, or (number -1) the mean of those of its size. */
struct copse_recorded_call {
  const char *comm, *collective; /* "0x7f8c", "default_pg"; "AllReduce", "all_reduce" */
  const char *choice;            /* "RING_LL128"; "" where not said */
  int64_t number, bytes;         /* of means: the least size that they are of */
  int n_ranks, n_seen;
  struct copse_q time_us, busbw; /* of the slowest rank; GB/s, negative: not known */
};

/* How far a process is in a group of ranks, by its flight recorder. */
struct copse_flight {
  const char *file, *group;
  int n_ranks;               /* 0: not said */
  int64_t enqueued, done;    /* numbers of the last calls; -1: none */
  const char *waits, *state; /* for the first call after `done`: "all_reduce", "started"; "" */
  int64_t waits_bytes;
};

struct copse_calls {
  int n_calls, n_flights;
  struct copse_recorded_call *calls; /* by communicator, then number */
  struct copse_flight *flights; /* by group, in order of the files */
  int64_t n_damaged;
  size_t call_capacity, flight_capacity;
  struct copse_calls_reader *reader;
  struct copse_arena arena;
};

/* Whether a text holds calls that Inspector or the flight recorder wrote. */
bool copse_calls_are(const char *data, size_t size);

/* Adds a file's calls. Zero-initialise; free with copse_calls_free, whatever the outcome.
 * COPSE_BAD_INPUT for a file without any call. */
copse_status copse_calls_add(struct copse_calls *calls, const char *label, const char *data,
                             size_t size, struct copse_err *err) COPSE_CHECKED;
/* Sorts; to be called once, after all files. */
void copse_calls_finish(struct copse_calls *calls);
void copse_calls_free(struct copse_calls *calls);

/*
 * Converts a pickle of dicts, lists, tuples, texts, numbers, booleans and None to JSON, for the
 * caller to free. Values of the key "frames" (stacks, which share their parts) become null.
 * COPSE_BAD_INPUT for everything else, above all for what would import or call something, and for
 * a pickle that grows out of proportion.
 */
copse_status copse_pickle_to_json(const char *label, const char *data, size_t size, char **text,
                                  size_t *text_size, struct copse_err *err) COPSE_CHECKED;
