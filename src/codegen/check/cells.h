/* Inside src/codegen: what a foreign program's threads know of each other, and its memory on names
 * instead of numbers. A cell is one chunk; it holds the multiset of ranks whose chunk of the same
 * position went into it. Every access is checked against all conflicting ones for an order. */
#pragma once

#include "base/types.h"
#include "base/memory.h"

/* ---- histories: happened-before for threads that are numbered 0 .. n-1 --------------------- */

/* Something a thread did: its `time`-th action, from 1; time 0 is nothing. */
struct copse_action {
  int thread;
  uint32_t time;
};

struct copse_history; /* a snapshot; owned by the threads, and freed with them at the latest */
/* Threads are made with the cells that they use (copse_cells_new). The first n_groups are groups of
 * threads that are ordered only where the group meets: a member's action comes before the group's
 * next actions, and into its history, once they have met. */
struct copse_threads;

/* Starts the thread's next action, and returns it. */
struct copse_action copse_threads_act(struct copse_threads *threads, int thread);
uint32_t copse_threads_time(const struct copse_threads *threads, int thread);

/* Notes that a group's members meet. */
void copse_threads_meet(struct copse_threads *threads, int thread);

/* Returns the history of a thread so far: its own operations and those it knows of. Kept until
 * copse_history_drop or the threads' end. */
copse_status copse_history_take(struct copse_threads *threads, int thread,
                                struct copse_history **out, struct copse_err *err) COPSE_CHECKED;
void copse_history_drop(struct copse_history *history);
/* Lets the thread learn all that the history holds (copse_history_learn_action: one action
 * alone). */
copse_status copse_history_learn(struct copse_threads *threads, int thread,
                                 struct copse_history *history,
                                 struct copse_err *err) COPSE_CHECKED;
copse_status copse_history_learn_action(struct copse_threads *threads, int thread,
                                        struct copse_action action,
                                        struct copse_err *err) COPSE_CHECKED;

/* Whether the action came before what the thread does now. */
bool copse_threads_before(const struct copse_threads *threads, struct copse_action action,
                          int thread);

/* ---- cells -------------------------------------------------------------------------------- */

enum { COPSE_SET_UNDEFINED = -1, COPSE_SET_MIXED = -2 };

/* `position`: of a chunk in the whole vector of the rank that brought it in. */
struct copse_value {
  int set; /* or COPSE_SET_ ... */
  int position;
  struct copse_action fault; /* what made it undefined, mixed or double; time 0: nothing did */
};

enum copse_buffer_letter { COPSE_LETTER_I, COPSE_LETTER_O, COPSE_LETTER_S, COPSE_N_LETTERS };

struct copse_cells;

/* What the cells belong to, and how messages name places in it. */
struct copse_cells_of {
  int n_ranks, n_threads;
  int n_groups; /* the first so many threads are groups (copse_threads_new) */
  int slices;   /* cells of a chunk; 0: 1. Offsets count cells, `block` and the like chunks */
  copse_collective collective;
  int block; /* chunks of a rank's part of the message */
  bool in_place;
  const int *scratch; /* [n_ranks] chunks */
  const char *label;
  /* "gpu 3 tb 1 step 2" of an action into text; returns its line, 0 if unknown. */
  long (*name)(const void *ctx, struct copse_action action, char text[64]);
  const void *ctx;
};

/* Makes the cells as the collective finds them, in the arena. COPSE_UNSUPPORTED beyond 2^25 cells.
 * Ends with copse_cells_free, also after a failure. */
copse_status copse_cells_new(struct copse_arena *arena, const struct copse_cells_of *of,
                             struct copse_cells **out, struct copse_threads **threads,
                             struct copse_err *err) COPSE_CHECKED;
void copse_cells_free(struct copse_cells *cells);

/* Returns how many chunks the buffer has at the rank. */
int copse_cells_size(const struct copse_cells *cells, int rank, enum copse_buffer_letter letter);

/* A chunk of a rank's memory; must be there (copse_cells_size). */
struct copse_cell_at {
  int rank;
  enum copse_buffer_letter letter;
  int offset;
};

/* Whether both cells are the same bytes. */
bool copse_cells_same(const struct copse_cells *cells, struct copse_cell_at a,
                      struct copse_cell_at b);

/* Reads or writes as part of `action`. COPSE_REFUTED for a race. */
copse_status copse_cells_read(struct copse_cells *cells, struct copse_action action,
                              struct copse_cell_at at, struct copse_value *value,
                              struct copse_err *err) COPSE_CHECKED;
copse_status copse_cells_write(struct copse_cells *cells, struct copse_action action,
                               struct copse_cell_at at, struct copse_value value,
                               struct copse_err *err) COPSE_CHECKED;
/* Adds: a += b, as done by `action`. */
copse_status copse_cells_add(struct copse_cells *cells, struct copse_action action,
                             struct copse_value *a, struct copse_value b,
                             struct copse_err *err) COPSE_CHECKED;

/* Returns COPSE_REFUTED where something done to a rank's memory may still go on when the rank
 * leaves: thread first_end + r is the end of rank r. Reads by threads from `exempt` on don't count;
 * see below. */
copse_status copse_cells_check_left(struct copse_cells *cells, int first_end, int exempt,
                                    struct copse_err *err) COPSE_CHECKED;

/*
 * What `exempt` reads mean for the next launch: they may still go on when the place is first
 * written then. The writer must know that a rank has entered which, when it left before, knew of
 * the read. Take the reads of threads [first, first_end) when all is done; a second run of the
 * same program, on cells that guard them, refutes a writer that need not know.
 */
struct copse_late_reads {        /* zero-initialise; ends with its arena */
  struct copse_late_read *first; /* by cell; NULL: none */
  struct copse_arena arena;
};
copse_status copse_late_reads_take(const struct copse_cells *cells, int first, int first_end,
                                   struct copse_late_reads *out,
                                   struct copse_err *err) COPSE_CHECKED;
/* Guards cells against late reads; thread first_entry + r stands for the entry of rank r. `late` is
 * borrowed; NULL: none. */
void copse_cells_guard(struct copse_cells *cells, const struct copse_late_reads *late,
                       int first_entry);

/* Returns COPSE_REFUTED where an output is not what the collective promises, with the step. A
 * broadcast or reduce may have any one root. */
copse_status copse_cells_check_result(struct copse_cells *cells,
                                      struct copse_err *err) COPSE_CHECKED;
