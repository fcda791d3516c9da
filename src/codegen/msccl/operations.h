/*
 * Inside src/codegen and the simulator: an MSCCL file as the executors run it. Steps become
 * operations: a real step with the waits of the nops before it, or several `re` that run as one.
 */
#ifndef COPSE_CODEGEN_MSCCL_OPERATIONS_H
#define COPSE_CODEGEN_MSCCL_OPERATIONS_H

#include "codegen/msccl/file.h"

/* Another thread block's operation that must have been published. */
struct copse_mx_wait {
  int tb, op; /* global tb, index of the op there */
  int step;   /* the step that asks, for messages */
};

/* A real step with the waits of the nops before it, or several `re` that run as one. */
struct copse_mx_run_op {
  const struct copse_mx_step *step; /* [n_steps] consecutive */
  int n_steps, first;               /* first: number of `step` in the file */
  int number;                       /* what is published when it is done */
  bool published;
  struct copse_mx_wait *waits;
  int n_waits;
  int waiters; /* ops that wait for this one */
};

struct copse_mx_run_tb {
  int gpu, id;
  const struct copse_mx_tb *tb;
  struct copse_mx_run_op *ops;
  int n_ops;
  int in, out; /* connections, -1: none */
};

struct copse_mx_connection {
  int sender, receiver; /* global tbs */
};

struct copse_mx_operations {
  const struct copse_mx_file *file;
  int n_tbs, *first_tb; /* [n_ranks + 1] */
  struct copse_mx_run_tb *tbs;
  struct copse_mx_connection *connections;
  int n_connections;
  bool on_rccl;
  struct copse_arena arena;
};

/* Folds, fuses, resolves waits, pairs connections; COPSE_REFUTED for what can't be run. The file is
 * borrowed. O(steps^2 of a block). */
copse_status copse_mx_operations_make(const struct copse_mx_file *file,
                                      struct copse_mx_operations *out,
                                      struct copse_err *err) COPSE_CHECKED;
void copse_mx_operations_free(struct copse_mx_operations *operations);

#endif
