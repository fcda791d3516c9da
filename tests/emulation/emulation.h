/*
 * What tests ask of the emulation itself. The environment sets the same things for programs
 * that don't call copse_emulated_configure: COPSE_EMULATED_DEVICES, _MULTIPROCESSORS, _THREADS
 * (of a multiprocessor), _MEMORY (bytes of a device), _PITCH, _REACH and _MULTICAST.
 */
#ifndef COPSE_EMULATION_H
#define COPSE_EMULATION_H

#include "cuda_runtime_api.h"

struct copse_emulated_config {
  int devices;         /* 1; 0 for a machine without a GPU */
  int multiprocessors; /* 8, of each device */
  int threads;         /* 2048, resident on one multiprocessor */
  size_t memory;       /* 1 GiB, of each device */
  int pitch;           /* 2^31 - 1, bytes from row to row of a copy, at most */
  /* Devices without peer access: each so many reach each other and no others, also in other
   * processes; 0: all do. The first device's number among those of all processes. */
  int reach, first;
  bool alone; /* the process plays all others too: it may open handles of its own */
  bool multicast; /* true: devices are at a switch that adds and copies (NVLink SHARP) */
};
copse_emulated_config copse_emulated_defaults(void);

/* Starts afresh with these devices. Ends the program when something of the old ones is alive. */
void copse_emulated_configure(const copse_emulated_config *config);

/* How many allocations, mappings, streams, events, graphs and peers' memory are alive; each is
 * named on standard error. Waits for the devices first. */
int copse_emulated_leaks(void);

/* How often the runtime was misused so far: each time is one line on standard error. */
int copse_emulated_misuses(void);

/* The `nth` call from now (1: the next) of the named function, or of any where it is NULL,
 * does nothing but fail with `error`; COPSE_EMULATED_EVERY: all of them. cudaSuccess takes the order
 * back. */
#define COPSE_EMULATED_EVERY (-1)
void copse_emulated_fail(const char *function, int nth, cudaError_t error);

/* How many calls of the runtime there have been: what a test that lets each call fail in turn
 * counts to. */
int copse_emulated_calls(void);
/* Those of one function, such as "cudaStreamWaitEvent". */
int copse_emulated_calls_of(const char *function);
/* Of the launches so far, those whose blocks start all together. */
int copse_emulated_cooperative(void);

/* How often a multimem instruction has looked for the members of a group. */
long copse_emulated_multimems(void);

/* Of a captured graph: kernels, copies, and copies that no kernel of it can run beside. */
struct copse_emulated_graph_shape {
  int kernels, copies, lone_copies;
};
copse_emulated_graph_shape copse_emulated_graph(cudaGraph_t graph);

/* From now on the memory there is as if of a pool, or mapped, and so many of the first devices may use
 * it, as its owner said; the kernels of the emulation don't ask. */
void copse_emulated_grant(const void *memory, bool pool, int n_devices);

#endif
