/* The planner's inside: planner.c reads the counts and turns stages into pieces, stages.c cuts the
 * host matrix into stages. */
#ifndef COPSE_SOLVER_ONLINE_INTERNAL_H
#define COPSE_SOLVER_ONLINE_INTERNAL_H

#include "base/memory.h"
#include "solver/online/planner.h"

/* A part of a pair's stream that one stage carries: from `begin` (of all lanes) on. */
struct copse_online_visit {
  int stage, next; /* next visit of the same pair, or -1 */
  int64_t begin, end;
};

struct copse_online {
  struct copse_online_model model;
  struct copse_online_options options;
  int h, g, n; /* hosts, ranks per host, ranks */
  int words;   /* 64-bit words of a set of hosts */
  int max_stages;

  const int64_t *bytes; /* [n * n] the caller's; NULL: no plan */
  int64_t *to_host;     /* [n * h] bytes of each rank to each host */
  int64_t *into;        /* [n] column sums */
  int64_t *total;       /* [h * h] between hosts; diagonal 0 */
  int64_t *row, *col;   /* [h] sums of total */
  int64_t needed;       /* the largest of row and col */
  struct copse_online_bound bound;

  /* cutting into stages */
  int64_t *rest;                     /* [h * h] */
  int64_t *row_slack, *col_slack;    /* [h] time left minus bytes left */
  uint64_t *edges;                   /* [h * words] rest >= threshold */
  uint64_t *slack_rows, *slack_cols; /* [words] slack >= threshold */
  uint64_t *free_cols, *unseen;      /* [words] */
  int16_t *match_row, *match_col;    /* [h] partner, or -1 */
  int16_t *parent, *queue;           /* [h] of an augmenting search */
  uint64_t *used;                    /* [2 * h * tail_words] colours taken, by row, by column */
  int tail_words;                    /* 64-bit words of a set of 2 h colours */
  uint32_t *keys, *keys_swap;        /* [h * h] sorting the tail */
  int32_t *order, *order_swap;       /* [h * h] */

  int n_stages, n_steps;
  int64_t *duration;  /* [max_stages] bytes of the longest pair */
  int *first_step;    /* [max_stages + 1] */
  int16_t *dst, *src; /* [max_stages * h] partner, or -1 */

  /* expansion */
  struct copse_online_visit *visits; /* [max_stages] */
  int *head, *last;                  /* [h] first and last visit, by partner */
  bool leaving;                      /* visits of the pairs that leave the host, or enter */
  int64_t *done;                     /* [h] */
  int64_t *counts;                   /* [5 * (max_stages + 20 * steps + 1)] hops by step and kind */
  struct copse_arena arena;
};

/* Cuts online->total into stages and steps. */
void copse_online_cut(struct copse_online *online);

#endif
