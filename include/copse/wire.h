/*
 * Ranks on CPUs in different processes: a communicator over anything that carries messages.
 * MPI is one such wire (copse/mpi.h); sockets, or another library's messages, can be others.
 */
#ifndef COPSE_WIRE_H
#define COPSE_WIRE_H

#include <stddef.h>

#include "copse/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What copse needs of it. Nothing here blocks. Messages from one rank to another arrive in the
 * order in which they were sent, whatever their tags; nothing is said of those of different
 * senders. One thread at a time calls, but not always the same one. Tags are 0 .. most_tag.
 * Anything but COPSE_OK means that the wire is of no use any more; why() then tells in a line.
 */
typedef struct copse_wire {
  void *context;
  int n_ranks, rank;
  unsigned most_tag;

  /* Starts sending; the bytes stay as they are until the request is done. Never to itself. */
  copse_status (*send)(void *context, int to, unsigned tag, const void *bytes, size_t n,
                       void **request);
  /* The next message that nobody has looked at, of any sender; *message is NULL where there is
   * none yet. It is received, once, later on or at once. */
  copse_status (*next)(void *context, int *from, unsigned *tag, size_t *n, void **message);
  /* Starts receiving it into memory for all its n bytes. */
  copse_status (*receive)(void *context, void *message, void *bytes, size_t n, void **request);
  /* The request is gone when it is done. */
  copse_status (*test)(void *context, void *request, int *done);
  const char *(*why)(void *context);
  /* Ends the wire. orderly 0: others may be gone, or have messages on their way; don't wait. */
  void (*end)(void *context, int orderly);
  /* Sleeps until a message may have come or left, or for so long; may return at once. NULL: there
   * is no such thing, and copse yields and naps. */
  void (*wait)(void *context, unsigned microseconds);
  /* Makes all that was sent independent of further calls of the wire: its requests may be done
   * while a part waits in buffers that only a call empties. *done 0: not yet, ask again. NULL: a
   * request that is done needs nothing more. */
  copse_status (*flush)(void *context, int *done);
} copse_wire;

/*
 * Makes the communicator of one rank on CPUs, the rank and size being the wire's. Collective over
 * the wire. copse_comm_destroy ends the wire; when this fails, it has ended already.
 *
 * All of copse/comm.h holds, and: the processes must run the same version of copse. Each
 * collective is checked against the others' calls (COPSE_REFUTED where they differ). A rank that
 * is dead, stopped or elsewhere is named, on every other rank, after the time of
 * copse_comm_set_timeout without progress (COPSE_TIMEOUT); a reason found by one rank is sent to
 * all. After an error the wire may still use the call's buffers, until it is called no more.
 * copse's progress is made within its calls: there is no thread of its own. timeout_seconds: the
 * same, from the start on; 0 is copse_comm_set_timeout's default.
 */
COPSE_API copse_status copse_comm_init_wire(copse_comm **comm, const copse_wire *wire,
                                            double timeout_seconds) COPSE_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
