/*
 * The numbers that steer predictions: the model's defaults, and limits on work. The model's own
 * parameters of a machine (links, latencies) are the topology's.
 */
#ifndef COPSE_PREDICT_POLICY_H
#define COPSE_PREDICT_POLICY_H

/* Software cost of a hop from rank to rank, in us: put, signal, wait. A round default, not measured;
 * `copse simulate --alpha` takes a measured one. */
#define ALPHA_US 2

/* Chunks times links of a simulation: fewer chunks where it would be more, to bound the simulator's
 * own time. Predictions that only rank schedules (`quick`) do 1 / QUICK_PART of it. */
#define MAX_STEPS 4000000
#define QUICK_PART 8

/* Several simulations of fewer links than this are over before threads have started. */
#define STEPS_FOR_THREADS 50000

/* Relative differences of predicted times: equal but for rounding; and too small for a model to
 * tell, where changing costs something (a plan more to load). */
#define SAME_TIME 1e-9
#define CLOSE_TIME 0.01

/* Routes: the first pass goes pair by pair, the others route each pair anew among all the rest. */
#define ROUTE_PASSES 4

/* Steps of the search for a ring where neighbours by number have no link; then the ring is in rank
 * order, whatever its links. */
#define RING_TRIES 200000

/* Trees of a baseline with more edges are not tried: the simulator's time, and the reader's. */
#define MOST_EDGES 2000000

/* Lengths for the bound of an alltoall's plan, which has none of its own, are found to 1 in so many:
 * to 1 in 100 an 8x8 torus takes 6 s, to 1 in 20 1.4 s, and the lengths are those of the optimum. */
#define LENGTHS_WITHIN 20

#endif
