/* Inside src/nccl/log*.c only: what is read before ranks are joined to communicators. */
#pragma once

#include "base/graph.h"
#include "base/memory.h"
#include "nccl/log.h"
#include "base/text.h"

/* Values of one type, each of a member (below); member -1: of none. */
struct copse_log_list {
  void *values;
  int *members;
  size_t size, capacity, member_capacity;
  int n;
};

struct copse_log_process {
  const char *host;
  int64_t pid;
  const char *version; /* or NULL */
  int first_member, last_member, n_members;
  int same_pid, last_same; /* the next of this pid, or -1; of the first of a pid: the last */
  bool has_starts;         /* it prints "Init START": a thread is known before its first lines */
};

struct copse_log_thread {
  int process, member; /* the communicator that its last line named; -1: none yet */
  int64_t tid;
  int graph, graph_left;     /* its last "Pattern", or -1, and how many channels are to follow */
};

/* A process's part in a communicator. */
struct copse_log_member {
  struct copse_log_rank rank; /* rank.rank < 0: lines came before it was named */
  int process, next;          /* the process's next member, or -1 */
  int n_ranks, n_hosts, n_channels;
  uint64_t pointer, id; /* of the communicator in the process; commId, 0: not said */
  int parent;           /* the member that it was split from, or -1 */
  int64_t color, split; /* of the parent's splits, the number of this one */
  int64_t n_splits;
  bool gone, rings_connected;
  int comm; /* given when ranks are joined; -1: none */
};

/* What a process calls a communicator, and the member that it last was. */
struct copse_log_pointer {
  int process;
  uint64_t pointer;
  int latest;
};

/* A "Channel" line. */
struct copse_log_listed {
  int channel, n;
  const int *order; /* [n] */
};
/* A "Ring" line, or an edge that was connected before rings were complete. */
struct copse_log_pass {
  int channel, src, dst;
};
/* A graph's channel. */
struct copse_log_hops {
  int graph, n;
  const struct copse_log_hop *hops;
};

struct copse_log_reader {
  struct copse_arena arena;
  struct copse_log_process *processes;
  struct copse_log_thread *threads;
  struct copse_log_member *members;
  struct copse_log_pointer *pointers;
  struct copse_names names;
  size_t process_capacity, thread_capacity, member_capacity, pointer_capacity;
  int n_processes, n_threads, n_members, n_pointers;
  struct copse_index_map process_map, thread_map, pointer_map, said_map, nic_map, pid_map;
  struct copse_log_list listed, passes, trees, graphs, hops, edges, picks;
  struct copse_log_list nics, settings, warnings;
  const char *version; /* of a line without a prefix */
  int64_t n_lines, n_foreign, n_cut;
};

/* Reads a line's message, which may be changed, and who wrote it. */
copse_status copse_log_message(struct copse_log_reader *r, int thread, bool is_warning,
                               struct copse_scan message, struct copse_err *err) COPSE_CHECKED;

/* Keeps each text once: two that are equal have the same address. At most 255 bytes of it. */
copse_status copse_log_name(struct copse_log_reader *r, const struct copse_scan *piece,
                            const char **out, struct copse_err *err) COPSE_CHECKED;
