/*
 * A second opinion on MSCCL XML that copse wrote: reads it line by line, changes it, and runs it
 * on numbers with blocks that move in random order. Nothing here is shared with the checker.
 */
#ifndef COPSE_TESTS_MSCCL_MODEL_H
#define COPSE_TESTS_MSCCL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct copse_test_mx_step {
  char type[8], src, dst;
  int srcoff, dstoff, cnt, depid, deps, hasdep;
};

struct copse_test_mx_tb {
  int gpu, id, send, recv, chan, n;
  struct copse_test_mx_step steps[80];
};

struct copse_test_mx {
  char head[400]; /* the algo element */
  char coll[16];
  int n_ranks, chunks, in_place, out_of_place;
  int sizes[64][3]; /* i, o, s chunks by gpu */
  int n_tbs;
  struct copse_test_mx_tb *tbs; /* by gpu, then by id */
};

/* Fails the running test where the text is not as copse writes it. */
struct copse_test_mx *copse_test_mx_read(const char *xml);
/* Takes back what was changed since it was read from the same text as m. */
void copse_test_mx_restore(struct copse_test_mx *changed, const struct copse_test_mx *m);
void copse_test_mx_free(struct copse_test_mx *m);
/* The caller frees the text; steps are numbered anew. */
char *copse_test_mx_write(const struct copse_test_mx *m);

/* Takes out a step, or puts it there twice; waits for later steps of the tb follow them. */
void copse_test_mx_drop(struct copse_test_mx *m, int tb, int step);
void copse_test_mx_double(struct copse_test_mx *m, int tb, int step);

/* Whether `rounds` runs in random order, of both layouts where both are served, all end, with
 * right results. */
bool copse_test_mx_runs(const struct copse_test_mx *m, int rounds, uint64_t *seed);

#endif
