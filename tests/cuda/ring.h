/* What both stand-ins for NCCL move messages with: rings in shared memory, and naps. */
#ifndef COPSE_TESTS_RING_H
#define COPSE_TESTS_RING_H

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Copies n bytes into the ring, or out of it, from where *count, of all bytes ever, says; adds them
 * to it. There must be so much room, or so many bytes. */
static inline void ring_copy(unsigned char *ring, uint64_t ring_bytes, uint64_t *count, bool into,
                             unsigned char *own, uint64_t n) {
  for (uint64_t span; n > 0; n -= span, own += span, *count += span) {
    const uint64_t at = *count % ring_bytes;
    span = n < ring_bytes - at ? n : ring_bytes - at;
    memcpy(into ? ring + at : own, into ? own : ring + at, span);
  }
}

/* The first of a row of naps; each is longer than the one before, since others need the core. */
#define FIRST_NAP_US 50u
static inline void nap(unsigned *us) {
  usleep(*us);
  if (*us < 800) *us *= 2;
}

#endif
