/* The planner's inside: planner.c reads the counts and has the bounds, forms.c cuts the host matrix
 * into stages and chooses the form of the plan, walk.c turns all that into pieces. */
#pragma once

#include "base/graph.h"
#include "base/memory.h"
#include "solver/online/planner.h"

/* A part of a pair's stream that one stage, or the combined steps, carry: from `begin` (of all
 * lanes) on. */
struct copse_online_visit {
  int stage; /* -1: the combined steps */
  int next;  /* next visit of the same pair, or -1 */
  int64_t begin, end;
};

/* How DIRECT sends a message between hosts. */
enum copse_online_way {
  COPSE_ONLINE_BY_SENDER,   /* by the lane of its sender */
  COPSE_ONLINE_BY_BOTH,     /* half by each */
  COPSE_ONLINE_BY_RECEIVER, /* by the lane of its receiver's index */
  COPSE_ONLINE_STRAIGHT     /* from its sender's NIC to its receiver's: not on rails */
};

struct copse_online {
  struct copse_online_model model;
  struct copse_online_options options;
  int h, g, n; /* hosts, ranks per host, ranks */
  int words;   /* 64-bit words of a set of hosts */
  int max_stages;

  const int64_t *bytes; /* [n * n] the caller's; NULL: no plan */
  int64_t *to_host;     /* [n * h] bytes of each rank to each host */
  int64_t *out;         /* [n] row sums */
  int64_t *into;        /* [n] column sums */
  int64_t *within;      /* [n] column sums of the rank's own host */
  int64_t *by_index;    /* [n] bytes of each host to ranks of an index in other hosts */
  int64_t *by_lane;     /* [n] bytes into each host, by the sender's index */
  int64_t *total;       /* [h * h] between hosts; diagonal 0 */
  int64_t *row, *col;   /* [h] sums of total */
  int64_t needed;       /* the largest of row and col */
  int64_t local;        /* the most that a rank sends to others of its host, or gets from them */
  struct copse_online_bound bound;

  /* cutting into stages */
  int64_t *rest;                     /* [h * h] */
  int64_t *row_slack, *col_slack;    /* [h] time left minus bytes left */
  uint64_t *edges;                   /* [h * words] rest >= threshold */
  uint64_t *slack_rows, *slack_cols; /* [words] slack >= threshold */
  uint64_t *free_cols, *unseen;      /* [words] */
  int16_t *match_row, *match_col;    /* [h] partner, or -1 */
  int16_t *parent;                   /* [h] of an augmenting search */
  struct copse_queue queue;          /* [h] its rows */

  int n_stages, n_steps;
  int64_t left;       /* bytes of the busiest host that the combined steps carry */
  int combined_first; /* the first combined step: all that follow are combined */

  enum copse_online_form form;
  enum copse_online_way way; /* of DIRECT */
  int early, late;           /* DIRECT: combined steps of sender's lanes, of receiver's */
  int64_t nic_bytes;         /* of the busiest NIC, one way */
  int64_t predicted_ns;      /* see copse_online_predicted_ns */
  int64_t *duration;         /* [max_stages] bytes of the longest pair */
  int *first_step;           /* [max_stages + 1] */
  int16_t *dst, *src;        /* [max_stages * h] partner, or -1 */

  /* expansion */
  struct copse_online_visit *visits; /* [max_stages + h] */
  int *head, *last;                  /* [h] first and last visit, by partner */
  bool leaving;                      /* visits of the pairs that leave the host, or enter */
  int64_t *done;                     /* [h] */
  int64_t *counts;                   /* [5 * (max_stages + steps + 2 * h)] hops by step and kind */
  struct copse_arena arena;
};

/* Chooses the form that is predicted to be fastest, and plans it. */
void copse_online_choose(struct copse_online *online);
