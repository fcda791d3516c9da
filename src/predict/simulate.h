/*
 * An alpha-beta simulator with a queue at every link: predicts how long a set of transfers
 * takes on a topology. Event driven, deterministic; floating point, for reports only.
 *
 *   question                                            function
 *   -------------------------------------------------   --------------------------------
 *   collect transfers: trees, flows, steps, plans       copse_sim_dag_add, _add_path
 *   how long do they take for a message of this size?   copse_simulate
 *   the same for many sizes and sets of transfers       copse_simulate_all
 *   the transfers of a schedule                         copse_sim_dag_of_schedule
 *
 * What is modelled. A transfer moves bytes from one rank to another over links and relays,
 * cut into equal chunks. A chunk takes each link for bytes / bandwidth, one chunk at a time,
 * in the order in which chunks come to that link (FIFO). Relays cut through: the head of a
 * chunk goes on after the link's latency while its tail still follows, so alone it takes
 * sum of latencies + bytes / narrowest bandwidth. Ranks store and forward, whole chunks. At a
 * rank a chunk arrives `alpha_us` after its last link delivered it (put, signal, wait): that
 * is latency and takes no link's time. A transfer asks for its first link again only when that
 * link has taken its previous chunk: transfers that leave over the same link take turns, chunk
 * by chunk (round robin), in the order of `order` and then of their numbers. With `fifo` F a chunk
 * asks for its first link only when the F-th chunk before it has left its last one: a transfer that
 * is held up at a busy link holds back there, and leaves the links before to others, as buffers
 * between two ranks that have so many slots make it. What `reduces` also keeps its slot at the end,
 * until all transfers that stream from it have asked for the same chunk's first link: a rank adds
 * when all that it adds is there. (Among transfers of which some only come `after` others, or are
 * empty, that could stand still, and is left out.)
 *
 * With `message_us` a worker of a rank (`worker` of a transfer) sends one chunk after the other:
 * the next one asks for its first link so much later. One message alone takes no longer for it.
 *
 * With `alpha_occupies` latencies keep links busy: after a chunk's bytes a link is taken for its
 * own latency too, and for `alpha_us` where it leads to a rank, before the next chunk has it. That
 * is the model of TACCL (arXiv 2111.04867) and TACOS (arXiv 2304.05301): alpha + m/b for m bytes.
 *
 * With `duplex` D > 1 a chunk takes its links D times as long while there is also something on its
 * way from where it goes to where it comes from: transports whose connections of two ranks don't
 * carry both directions at their full rate at once. D is what an exchange of two ranks takes over
 * what one way takes, and 2 a transport that goes one way at a time.
 *
 * With `reduce_us_per_byte` a rank adds what comes in by transfers that `reduces` at that speed,
 * one chunk after the other, and a chunk has arrived when it is added. Elsewhere a reduction is
 * free. A transfer without links that `reduces` is an addition alone.
 *
 * What is not modelled: bounded buffers of links (a chunk waits at a link without blocking those of
 * other transfers at the one before, and incast costs no more than the queue), routing other than
 * the given paths, memory, how fast a worker moves data.
 *
 * No time is ever below a link's bytes / bandwidth, so none below a valid bound.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "predict/simulate_dag.h"
#include "topology/topology.h"

/*
 * Chunks, cut by the rule of plans, and by default with the limits that they have by default
 * (schedule/chunks.h): the largest transfer is cut into chunks of at most
 * max_chunk_bytes, and for the sake of pipelining into pipeline_chunks, but not below
 * min_chunk_bytes; all others into as many, where they have min_chunk_bytes for each. Equal
 * numbers of chunks that take turns share a link in proportion to their bytes.
 */
#define COPSE_SIM_MAX_FIFO 1024

struct copse_sim_options {
  double alpha_us;           /* software cost of one hop from rank to rank, >= 0 */
  bool alpha_occupies;       /* see above */
  double message_us;         /* for how long a worker is busy with each chunk that it sends, >= 0 */
  double reduce_us_per_byte; /* >= 0 */
  double duplex;             /* see above: >= 1, or 0, which is 1 */
  double min_chunk_bytes;    /* > 0 */
  double max_chunk_bytes;    /* > 0 */
  int fifo;                  /* see above: >= 0; 0: any number of chunks */
  int pipeline_chunks;       /* >= 0; 0: copse_pipeline_chunks of the levels that transfers stream
                                through: the longest chain of those that reduce and the longest of
                                those that don't, together */
  int64_t max_steps;         /* chunks times links in all: fewer chunks where it would be more
                                (never below 1 per transfer); bounds the simulator's own time */
  int quick_part;            /* > 1: a part of max_steps, where chunks need not be larger than
                                max_chunk_bytes for it */
};

/* Pure links with 2 us for a hop (no message_us), full duplex, chunks and slots as plans have them,
 * 4 million steps. */
extern const struct copse_sim_options copse_sim_defaults;

struct copse_sim_result {
  double us;         /* when the last transfer arrived */
  double busiest_us; /* for how long the busiest link was taken; <= us */
  int64_t chunks;    /* of all transfers */
  bool coarse;       /* there were not steps enough for chunks of max_chunk_bytes */
};

/*
 * Runs `dag` with amounts in units of unit_bytes (M for shares of a message, 1 for bytes).
 * options NULL: the defaults. arrival_us, if not NULL, gets [n_transfers] arrival times.
 * COPSE_INVALID for a link that the topology lacks, COPSE_NOMEM. O(S log S) for S steps,
 * mostly less: a step is moved a few times on its way through the queue.
 * The same input gives the same bits on the same build.
 */
copse_status copse_simulate(const struct copse_topology *topology, const struct copse_sim_dag *dag,
                            const struct copse_sim_options *options, double unit_bytes,
                            struct copse_sim_result *result, double *arrival_us,
                            struct copse_err *err) COPSE_CHECKED;

/* Returns into how many chunks transfers of this shape are cut; *coarse: as a result's. */
int copse_sim_chunks(const struct copse_sim_shape *shape, const struct copse_sim_options *options,
                     double unit_bytes, bool *coarse);

/* What copse_simulate is asked, and its answer. */
struct copse_sim_question {
  const struct copse_sim_dag *dag;         /* borrowed */
  const struct copse_sim_options *options; /* borrowed; NULL: the defaults */
  double unit_bytes;
  double most_us; /* > 0: what takes longer is of no interest: then us is INFINITY, found as soon as
                     a link can't carry in time what it still has to, and the rest says nothing */
  struct copse_sim_result result;
};

/* Threads for copse_simulate_all; 0: as many as there are processors where the work is worth it. */
extern int copse_simulate_threads;

/*
 * Answers questions [n] as copse_simulate would, by several threads; those about one dag should
 * follow each other, which saves work. The answers are the same for any number of threads. As
 * copse_simulate: if some questions fail, the first one's status.
 */
copse_status copse_simulate_all(const struct copse_topology *topology,
                                struct copse_sim_question *questions, int n,
                                struct copse_err *err) COPSE_CHECKED;
