/* Inside src/schedule only: what simulations of the same transfers share, whatever the size. */
#ifndef COPSE_PREDICT_SIMULATE_FRAME_H
#define COPSE_PREDICT_SIMULATE_FRAME_H

#include "predict/simulate_dag.h"
#include "predict/simulate_queue.h"

struct copse_sim_wire {
  double us_per_byte, latency_us;
  double free_us, taken_us; /* when it is free again, for how long it was taken */
};

enum { COPSE_SIM_NO_STREAM = -1, COPSE_SIM_SEVERAL_STREAMS = -2 };

/* A transfer at work; a cache line of its own. */
struct copse_sim_flight {
  double chunk_bytes;
  double free_us;      /* when the first link has taken the chunk before */
  size_t first_link;   /* into dag->ints */
  int n_links, n_chunks;
  int issued, arrived; /* chunks that asked for their first link, that arrived */
  int waits;           /* transfers in `after` that haven't arrived */
  int streams_from;    /* the place of the only one, or one of the above */
  int first_dependent; /* into the frame's list */
  int n_dependents;
  int transfer;        /* its number in the dag */
};

_Static_assert(sizeof(struct copse_sim_flight) == 64, "a cache line");

/* Flights stand by the transfers' `order` and then by number: that is how events of the same
 * moment come, and so mostly how memory is read. */
struct copse_sim_frame {
  const struct copse_topology *topology; /* borrowed, as the dag */
  const struct copse_sim_dag *dag;
  struct copse_sim_flight *flights; /* [n_transfers + 1] before anything moves, in no chunks */
  int *places;                      /* [n_transfers] of each transfer; NULL: its number */
  int *dependents;                  /* of all flights; ~p: p streams from it, p: comes after it */
  struct copse_sim_wire *wires;     /* [n_links of the topology] free */
  double largest;                   /* amount of a transfer */
  int64_t n_links;                  /* of all transfers */
  int longest;                      /* links of a transfer, the most */
  int levels;                       /* transfers that stream from one another, the most: of those
                                       that reduce, and of those that don't, as plans count them */
  bool delays;                      /* some transfer has a delay */
  bool only_streams;                /* chunk c of any waits for nobody's later ones */
};

static inline int copse_sim_place(const struct copse_sim_frame *frame, int transfer) {
  return frame->places ? frame->places[transfer] : transfer;
}

/* COPSE_INVALID for a link that the topology lacks; COPSE_OVERFLOW, COPSE_NOMEM. Free with
 * copse_sim_frame_free in every case. */
copse_status copse_sim_frame_make(const struct copse_topology *topology,
                                  const struct copse_sim_dag *dag, struct copse_sim_frame *frame,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_sim_frame_free(struct copse_sim_frame *frame);

/* Memory of a run, kept for the next one: large blocks fresh from the system cost more than what
 * is done with them. Zero-initialise to start. */
struct copse_sim_scratch {
  struct copse_sim_flight *flights;
  size_t n_flights;
  struct copse_sim_queue queue; /* empty between runs */
};

void copse_sim_scratch_free(struct copse_sim_scratch *scratch);

/* As copse_simulate, of which this is the inside; `frame` is only read. */
copse_status copse_sim_frame_run(const struct copse_sim_frame *frame,
                                 const struct copse_sim_options *options, double unit_bytes,
                                 struct copse_sim_scratch *scratch,
                                 struct copse_sim_result *result, double *arrival_us,
                                 struct copse_err *err) COPSE_CHECKED;

#endif
