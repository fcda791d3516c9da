/*
 * Processes of a host among themselves: shared memory, a barrier, open files.
 *
 * The barrier never waits for a process that is gone: it is locks on a file in POSIX shared memory.
 *
 *   new, open      each process holds a read lock        R R R
 *   arrive         a process gives up its lock           - R R
 *   all_arrived    nobody else holds one: a write lock   - - -   true
 *                  would be granted
 *
 * The file's name is removed as soon as all have opened it. A process that dies loses its lock, and
 * children that it forked don't keep it.
 */
#pragma once

#include "base/err.h"

struct copse_peer_barrier;

#define COPSE_PEER_BARRIER_NAME 56 /* bytes of a name with its terminator */

/* Makes a new, empty file in shared memory, and its name. COPSE_IO. */
copse_status copse_peer_shared_new(char name[COPSE_PEER_BARRIER_NAME], int *file,
                                   struct copse_err *err);

/* Creates the barrier in one process, which sends the others its name; they open it. COPSE_IO where
 * there is no shared memory, where it is another container's, or where it takes no locks;
 * COPSE_NOMEM. */
copse_status copse_peer_barrier_new(char name[COPSE_PEER_BARRIER_NAME],
                                    struct copse_peer_barrier **out, struct copse_err *err);
copse_status copse_peer_barrier_open(const char *name, struct copse_peer_barrier **out,
                                     struct copse_err *err);
/* Removes the name. Called by the creator when nobody will open it any more. */
void copse_peer_barrier_unlink(const char *name);

/* Arrives, after all have opened it. Whoever sees this process arrived also sees what it did
 * before. */
void copse_peer_barrier_arrive(struct copse_peer_barrier *barrier);
/* Whether all others have arrived or are gone. */
bool copse_peer_barrier_all_arrived(const struct copse_peer_barrier *barrier);
void copse_peer_barrier_free(struct copse_peer_barrier *barrier); /* takes NULL; arrives first */

/* ---- open files
 * ---------------------------------------------------------------------------------- Descriptors go
 * in messages between sockets (unix(7), SCM_RIGHTS), as NCCL's do: a descriptor of memory of a GPU
 * can't be opened again through /proc, and pidfd_getfd(2) is forbidden in many containers. Names of
 * sockets are abstract, so nothing of them is left in a file system; processes must share a network
 * namespace. */

enum { COPSE_PEER_FILES = 2, COPSE_PEER_MOST = 128 }; /* of a process; processes */

/* Of a process's socket. Whoever sends there must know the secret. */
struct copse_peer_address {
  uint64_t name, secret;
};

copse_status copse_peer_socket_new(struct copse_peer_address *address, int *out,
                                   struct copse_err *err);
/* Sends `mine` (those that aren't -1) to each of n processes and receives theirs: theirs[r][i],
 * which the caller closes also after an error; -1 for none and for its own. `all`: their addresses.
 * Each process calls this, within `seconds` of the first one. COPSE_IO. */
copse_status copse_peer_files_swap(int socket, const struct copse_peer_address *all, uint32_t n,
                                   uint32_t own, const int mine[COPSE_PEER_FILES],
                                   int (*theirs)[COPSE_PEER_FILES], double seconds,
                                   struct copse_err *err);
