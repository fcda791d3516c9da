/* A wire between threads of one process, which delivers late, and reports what the test asks for. */
#ifndef COPSE_TESTS_THREAD_WIRE_H
#define COPSE_TESTS_THREAD_WIRE_H

#include "copse/wire.h"

struct thread_wires;

/* `latest`: tests of a request that may say "not yet", at random. */
struct thread_wires *thread_wires_new(int n_ranks, unsigned latest);
copse_wire thread_wire(struct thread_wires *wires, int rank);
/* From now on what is sent stays with its sender until that flushes or has looked for messages
 * many times. */
void thread_wires_hold(struct thread_wires *wires);
/* From now on sends to the rank fail with COPSE_DEVICE, "the cable is cut". */
void thread_wires_cut(struct thread_wires *wires, int rank);
/* From now on nothing comes to the rank, as where its queue is broken. */
void thread_wires_deafen(struct thread_wires *wires, int rank);
/* Bytes of the longest message so far. */
size_t thread_wires_longest(const struct thread_wires *wires);
/* Messages so far. */
size_t thread_wires_messages(const struct thread_wires *wires);
/* After the ends of all. */
void thread_wires_free(struct thread_wires *wires);

#endif
