/*
 * What tests ask of the emulation itself. The environment sets the same things for programs
 * that don't call copse_emulated_configure: COPSE_EMULATED_DEVICES, _MULTIPROCESSORS, _THREADS
 * (of a multiprocessor), _MEMORY (bytes of a device), _PITCH, _REACH and _MULTICAST.
 *
 * What holds as on a GPU:
 * - Work starts after what its stream, its events and the NULL stream's legacy order demand, and
 *   never before; everything else runs at the same time, branches of a graph too. Host memory is
 *   read and written when the work runs, as if it were pinned. cudaMemcpy between devices, and
 *   fills, may end after the call.
 * - Blocks take room on the multiprocessors (threads in warps, shared memory, 32 blocks). A
 *   cooperative launch that can never fit is refused, one that doesn't fit now waits for all its
 *   room; other launches start blocks as there is room. Two kernels that wait for each other but
 *   have no room together hang, as they do on a GPU.
 * - New device memory and shared memory are full of rubbish, freed device memory is forbidden to
 *   kernels under ASan. Memory has an end: cudaErrorMemoryAllocation.
 * - Capture forbids what CUDA forbids, by thread and mode, and an offence ends the capture.
 * - Mistakes print a line and count: unknown or freed pointers, copies that leave an allocation,
 *   destroyed handles, streams of another device, calls from kernels, host functions or forked
 *   children. Memory freed before pending work came to it is a fault that stays.
 *
 * What doesn't:
 * - Stricter than CUDA: cudaStreamSynchronize, the queries and cudaEventSynchronize count as
 *   unsafe during capture; masks of warps must be full; cudaFreeAsync takes its own memory only.
 * - Laxer: the host may touch device memory; kernels may touch peers' without
 *   cudaDeviceEnablePeerAccess; a CPU orders memory more strongly than a GPU, so only TSan sees
 *   that an acquire or release is missing (fences are all ordered for it, and hide some races).
 * - Not there: clusters, memory pools' attributes, memory nodes, graph updates, managed memory,
 *   events between processes, textures, static shared memory, half.
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
