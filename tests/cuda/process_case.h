/*
 * One rank per process, on GPUs, emulated or not: the program runs itself once per rank, and the ranks
 * find each other through a file that they map.
 */
#ifndef COPSE_TESTS_PROCESS_CASE_H
#define COPSE_TESTS_PROCESS_CASE_H

#include <pthread.h>

#include "cuda/device_case.h"

extern "C" {
#include "codegen/lower/lower.h"
#include "predict/doubling.h"
}

enum { MAX_PROCESSES = 8, MAX_GATHER = 1 << 16, MAX_RING = 1 << 12 };

/* Bytes on their way from one rank to another. */
struct meeting_ring {
  uint64_t put, taken; /* ever; atomically */
  unsigned char bytes[MAX_RING];
};

struct meeting_place {
  pthread_barrier_t barrier;
  unsigned char gathered[MAX_PROCESSES][MAX_GATHER];
  struct meeting_ring rings[MAX_PROCESSES][MAX_PROCESSES]; /* from, to */
};

struct meeting {
  struct meeting_place *place;
  int rank, n;
};

/* Of a copse_bootstrap whose context is a struct meeting. */
copse_status meeting_all_gather(void *context, const void *mine, void *all, size_t bytes);

/* A rank's backend with one plan. */
struct process {
  struct meeting meeting;
  const struct copse_plan *plan;
  void *backend, *prepared;
  cudaStream_t stream;
};
void process_open(struct process *p, copse_collective collective, struct pb_options trees,
                  const copse_bootstrap *bootstrap);
#define PROCESS_TREES ((struct pb_options){2, 2, 2, 3, 512, 64}) /* small chunks */
void process_close(struct process *p);
/* Its backend alone. */
void process_meet(struct process *p, const copse_bootstrap *bootstrap);
/* The same with a plan of the caller's, who frees it. */
void process_start(struct process *p, const struct copse_plan *plan,
                   const copse_bootstrap *bootstrap);
void process_stop(struct process *p);
/* A lowered plan for n ranks at a switch, of an allreduce in stages if they are given;
 * copse_plan_free frees it. */
struct copse_plan *process_lower(copse_collective collective, int n,
                                 const struct copse_lower_options *options,
                                 const struct copse_doubling *stages = NULL);

struct copse_data process_data(const struct process *p, uint64_t count, uint64_t seed);
copse_status process_launch(struct process *p, const struct copse_data *data, void *send,
                            void *recv, struct copse_err *err);

/*
 * One collective on `memory`, twice `room` bytes, or `launches` times as one graph; the output,
 * poisoned before, must be right to the last element.
 */
struct process_call {
  uint64_t count, seed;
  bool in_place;
  int graph_launches; /* 0: no graph */
  bool typed = false; /* false: a type by the seed, sums */
  copse_type type = COPSE_UINT8;
  copse_redop redop = COPSE_SUM;
};
void process_check(struct process *p, const struct process_call *it, unsigned char *memory,
                   uint64_t room);
/* The same in two: enqueued, with others beside it, and awaited and compared. */
struct process_running {
  struct process_call it;
  struct copse_data data;
  unsigned char *host, *memory; /* host: input, what came, what should have */
  uint64_t in, out;             /* bytes */
};
void process_begin(struct process *p, struct process_call it, unsigned char *memory, uint64_t room,
                   struct process_running *running);
void process_end(struct process *p, struct process_running *running);

/* One collective on floats that round at every step: the CPU executor's bits, in place or not. */
void process_compare(struct process *p, const struct process_call *it, unsigned char *memory,
                     uint64_t room);

/* An alltoall of uneven blocks: right up to each count, untouched behind. In a graph its launches
 * find other counts each time. on_host: counts in page-locked memory, no graph. */
struct process_uneven {
  uint64_t count;
  int graph_launches;
  bool on_host;
};
void process_check_uneven(struct process *p, const struct process_uneven *it, unsigned char *memory,
                          uint64_t room);

/* For processes_run: one set of processes does all, one after the other. */
#define ALL_COLLECTIVES ((copse_collective)COPSE_N_COLLECTIVES)

/* Runs the program n times as argv {"rank", ...}; all must leave with 0. */
void processes_run(copse_collective collective, const char *mode, int n);

/* The same for calls that a time limit ends. On a loaded machine a rank may come too late to see
 * first what the test expects: where a rank fails, all run again with limits 4, then 16 times as
 * long. */
void processes_run_in_time(copse_collective collective, const char *mode, int n);
double process_limit(double seconds); /* in a rank: the limit for this try */
/* Whether the error says "waited over LIMIT s for WHAT". */
bool process_waited(const struct copse_err *err, double seconds, const char *what);

/* What argv says in such a process. */
struct process_arguments {
  struct meeting meeting;
  copse_collective collective;
  const char *mode;
};
bool process_is_rank(int argc, char **argv, struct process_arguments *out);

#endif
