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

/* Moves n bytes of a message, of which *moved have gone before: its header, then its body. Whether that
 * was the header's last. */
static inline bool ring_move(unsigned char *ring, uint64_t ring_bytes, uint64_t *count, bool into,
                             unsigned char *header, size_t head, unsigned char *body, size_t *moved,
                             uint64_t n) {
  const size_t in_head = *moved < head ? head - *moved : 0;
  const uint64_t first = n < in_head ? n : in_head;
  ring_copy(ring, ring_bytes, count, into, header + head - in_head, first);
  if (first < n) ring_copy(ring, ring_bytes, count, into, body + (*moved + first - head), n - first);
  *moved += n;
  return first > 0 && first == in_head;
}

/* The first of a row of naps; each is longer than the one before, since others need the core. */
#define FIRST_NAP_US 50u
static inline void nap(unsigned *us) {
  usleep(*us);
  if (*us < 800) *us *= 2;
}

#endif
