/*
 * The best sets of rings, and of chains, under the bandwidths of links, as NCCL runs them: n
 * channels of one speed s, each an order of all GPUs; n * s is to be large.
 *
 *   ring           g0 -> g1 -> .. -> g0             a Hamiltonian cycle
 *   host of many   NIC -> g0 -> g1 -> .. -> NIC     a Hamiltonian path from NIC to NIC
 *   chain          g0 -> g1 -> ..                   a Hamiltonian path
 *
 * A port is where a channel may enter and leave a host: a NIC, as rings of several hosts have it.
 * The depot, as in vehicle routing, is the node at which the search lets every cycle begin: the
 * ports together, or without ports the last GPU.
 *
 * An instance says what a step from one GPU to another loads; the links are rows. The fractional
 * optimum is found by column generation (Gilmore and Gomory 1961; Dantzig and Wolfe 1960), a column
 * for each order, the cheapest order found by Held and Karp's dynamic programme (1962) up to
 * COPSE_RINGS_EXACT_GPUS, by the assignment relaxation and patched cycles (Karp 1979) beyond. There
 * the first columns are a Hamiltonian decomposition where the links are alike and one is found.
 * Lengths on rows prove a bound: every channel of speed 1 has at least length L, all links have
 * bandwidth * length W in all, so all channels together have at most W / L.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/graph.h"
#include "base/memory.h"
#include "base/rational.h"

/* GPUs of the dynamic programme at most; it has 2^16 sets of them. */
#define COPSE_RINGS_EXACT_GPUS 16
#define COPSE_RINGS_MAX_GPUS 256

/* What a channel of speed 1 puts on rows by one step. */
struct copse_ring_load {
  int row, amount; /* > 0 */
};
struct copse_ring_step {
  bool exists;
  int n;
  const struct copse_ring_load *loads; /* [n] a row at most once */
};

struct copse_ring_instance {
  int n_gpus, n_rows;
  const struct copse_q *bandwidth;             /* [n_rows] > 0 */
  const struct copse_ring_step *move;          /* [n_gpus * n_gpus] from i to j at i * n_gpus + j */
  bool closed;                                 /* the last GPU goes to the first; without ports */
  int n_ports;                                 /* 0: cycles or chains */
  const struct copse_ring_step *enter, *leave; /* [n_ports * n_gpus] by port; leave may be NULL */
  const struct copse_ring_step *second; /* [n_ports * n_gpus] at the second GPU, beside the move to
                                           it; may be NULL, and is for same_port alone */
  bool same_port;                       /* a channel enters and leaves by one */
  bool quick; /* comparisons to improve orders of many GPUs count as steps of a packing */
};

/* One order. */
struct copse_ring {
  const int *gpus; /* [n_gpus] */
  int ports[2];    /* of the first GPU, of the last; -1 without */
};

/* Every channel loads rows by lengths at least `least`, so n * s <= GBps = sum of bandwidth *
 * length / least. */
struct copse_ring_bound {
  int64_t *lengths; /* [n_rows] >= 0 */
  int64_t least;
  bool exact; /* `least` is the length of a ring; else of a relaxation */
  struct copse_q GBps;
};

/* Orders worth having, and what is proved of all. */
struct copse_ring_set {
  struct copse_ring *rings;
  double *weights; /* [n_rings] of the fractional optimum; their sum is 1 */
  double GBps;     /* which is this */
  int n_rings;
  size_t capacity, weights_capacity;
  int64_t steps; /* that packings have taken */
  struct copse_ring_bound bound;
  struct copse_arena arena;
};

/* Finds rings and their bound. COPSE_INFEASIBLE where there is no ring; COPSE_UNSUPPORTED beyond
 * COPSE_RINGS_MAX_GPUS; COPSE_OVERFLOW. The caller frees *out, whatever the outcome. */
copse_status copse_rings_solve(const struct copse_ring_instance *instance,
                               struct copse_ring_set *out, struct copse_err *err) COPSE_CHECKED;
static inline void copse_ring_set_free(struct copse_ring_set *set) {
  free(set->rings);
  free(set->weights);
  copse_arena_free(&set->arena);
  *set = (struct copse_ring_set){0};
}

/* n channels, copies of the rings; their speed is the exact quotient. */
struct copse_ring_packing {
  int n;
  const int *channels;  /* [n] ring of each */
  struct copse_q speed; /* of each; zero: none was found */
};
#define COPSE_RINGS_MAX_CHANNELS 32

/* Packs n = 1 .. most (at most COPSE_RINGS_MAX_CHANNELS) channels, packings[n - 1], from the
 * fractional optimum rounded and from copies. Their arrays are the set's. */
copse_status copse_rings_pack(const struct copse_ring_instance *instance,
                              struct copse_ring_set *set, int most,
                              struct copse_ring_packing *packings,
                              struct copse_err *err) COPSE_CHECKED;
/* Looks for a better packing of n channels: from copies of those that have become better, else new
 * rings, which are added to the set, at the bound's speed; `thorough`: else at the highest speed
 * found. */
copse_status copse_rings_improve(const struct copse_ring_instance *instance,
                                 struct copse_ring_set *set, int n, bool thorough,
                                 struct copse_ring_packing *packings,
                                 struct copse_err *err) COPSE_CHECKED;

/* Lengths beyond could overflow sums. */
#define COPSE_RINGS_LONGEST ((int64_t)1 << 30)

/* ---- parts, for tests too ---------------------------------------------------------------------
 */

/* Adds what a ring of speed 1 loads to load [n_rows]. */
void copse_ring_add_load(const struct copse_ring_instance *instance, const struct copse_ring *ring,
                         int64_t *load);

/*
 * Finds orders of small total length, by lengths on rows [n_rows] from 0 to COPSE_RINGS_LONGEST:
 * at most n_gpus of them in `out`, shortest first, their GPUs in the arena; *n is 0 without any.
 * No order is shorter than *least; *exact: the first is as short. The comparisons by
 * which a long order was improved are added to *steps.
 */
copse_status copse_rings_shortest(const struct copse_ring_instance *instance,
                                  const int64_t *lengths, struct copse_arena *arena,
                                  struct copse_ring *out, int *n, int64_t *least, bool *exact,
                                  int64_t *steps, struct copse_err *err) COPSE_CHECKED;
