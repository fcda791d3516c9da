/*
 * copse: a compiler for collective communication. The public C API.
 *
 *   question                                        function
 *   ---------------------------------------------   -----------------------------
 *   what went wrong in my last call?                copse_last_error
 *   read a topology (JSON, NCCL XML, cluster)       copse_topology_read
 *   take one of a catalogue, or a synthetic one     copse_topology_named, _generate
 *   take some of its ranks; parts down or slow      copse_topology_change
 *   compute an exactly optimal schedule             copse_solve
 *   the best one for messages of some size          copse_solve_request
 *   read or write a schedule                        copse_schedule_read, _write
 *   prove a schedule against a topology             copse_schedule_verify
 *   what does it put on each link?                  copse_schedule_link_loads
 *   a topology or schedule as JSON text             copse_topology_json, copse_schedule_json
 *   turn a schedule into an executable plan         copse_lower
 *   load or write a plan                            copse_plan_load, _write
 *   prove a plan                                    copse_plan_check
 *   predict a plan's times                          copse_plan_predict
 *   plan an alltoallv at run time                   copse_alltoallv_create, _plan
 *   overlap it with the experts' computing          copse_overlap_degree
 *   run collectives inside a job                    copse/comm.h
 *   dispatch and combine the tokens of a MoE layer  copse/moe.h
 *
 * Conventions. Every function that can fail returns a copse_status; on anything but COPSE_OK the
 * calling thread's copse_last_error() has one line of text, `T **out` is NULL and
 * nothing was written. No function prints, exits or reads the environment (communicators
 * do when asked: copse/comm.h). Objects are immutable once made and may be shared between
 * threads; whoever receives one frees it with the matching _free, which takes NULL.
 */
#ifndef COPSE_COPSE_H
#define COPSE_COPSE_H

#include <stddef.h>
#include <stdint.h>

#include "copse/types.h"

#define COPSE_VERSION_MAJOR 0
#define COPSE_VERSION_MINOR 1
#define COPSE_VERSION_PATCH 0
#define COPSE_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define COPSE_API __attribute__((visibility("default")))
#define COPSE_CHECKED __attribute__((warn_unused_result))
#else
#define COPSE_API
#define COPSE_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Values are stable: new ones are added at the end. */
typedef enum copse_status {
  COPSE_OK = 0,
  COPSE_REFUTED = 1,     /* a check ran to its end and failed (verify, check, run) */
  COPSE_INVALID = 2,     /* the caller's argument makes no sense */
  COPSE_BAD_INPUT = 3,   /* a file's content is wrong; the text names the place */
  COPSE_IO = 4,          /* a file can't be opened, read or written */
  COPSE_INFEASIBLE = 5,  /* the problem has no solution: a rank can't be reached */
  COPSE_OVERFLOW = 6,    /* exact arithmetic would leave 64 bits */
  COPSE_NOMEM = 7,       /* memory or another resource ran out */
  COPSE_UNSUPPORTED = 8, /* valid, and not covered by this version */
  COPSE_INTERNAL = 9,    /* a bug in copse */
  COPSE_DEVICE = 10,     /* CUDA, NCCL or a GPU failed; the text says which call */
  COPSE_TIMEOUT = 11,    /* a rank waited longer than the communicator's limit */
  COPSE_ABORTED = 12     /* somebody called copse_comm_abort */
} copse_status;

/* Returns the enum's name in words, such as "bad input"; never NULL. */
COPSE_API const char *copse_status_string(copse_status status);

/* Returns the version, such as "0.1.0". */
COPSE_API const char *copse_version(void);

/*
 * Returns the text of this thread's last failed call, "" before any. Valid until the thread's next
 * copse call.
 */
COPSE_API const char *copse_last_error(void);

typedef enum copse_collective {
  COPSE_ALLGATHER = 0,
  COPSE_REDUCE_SCATTER = 1,
  COPSE_ALLREDUCE = 2,
  COPSE_BROADCAST = 3,
  COPSE_REDUCE = 4,
  COPSE_ALLTOALL = 5
} copse_collective;

/* ---- topologies ------------------------------------------------------------------- */

typedef struct copse_topology copse_topology;

/*
 * Reads a file: topology, cluster or synthetic JSON, an NCCL/RCCL topology XML, or what nvidia-smi
 * topo -m or rocm-smi --showtopo print, told apart by content. (Names of the catalogue are the
 * tool's: `copse topo NAME -o FILE` writes one.)
 * links: what to keep of XML and matrices, "nvlink", "all" or "default" (NULL: default).
 * COPSE_BAD_INPUT names file and line; COPSE_IO; COPSE_INVALID for another `links`.
 */
COPSE_API copse_status copse_topology_read(const char *path, const char *links,
                                           copse_topology **out) COPSE_CHECKED;
/*
 * Reads the topology of this name in a catalogue: the file NAME.json, NAME.xml or NAME.txt of
 * `folder`. copse's own is PREFIX/share/copse/topologies. links as above. COPSE_INVALID where the
 * folder has none of that name, else as copse_topology_read.
 */
COPSE_API copse_status copse_topology_named(const char *name, const char *folder, const char *links,
                                            copse_topology **out) COPSE_CHECKED;
/* Lists the names of a catalogue, sorted, one a line. The caller frees *text with
 * copse_string_free. "" where the folder has none, or can't be read. */
COPSE_API copse_status copse_topology_names(const char *folder, char **text) COPSE_CHECKED;

/* Makes a synthetic topology from its line, such as "torus:4x4@50" (`copse help inputs` has all
 * kinds). COPSE_BAD_INPUT says what is wrong with the line. */
COPSE_API copse_status copse_topology_generate(const char *line,
                                               copse_topology **out) COPSE_CHECKED;
COPSE_API int copse_topology_ranks(const copse_topology *topology);

/* What is down or slow: a node with all its links, by its id or a pattern of ids such as "h1.*", or
 * a cable "SRC>DST". left_num / left_den of the bandwidth is left: 0 / 1 is down, at most 1. */
typedef struct copse_fault_at {
  const char *what;
  int64_t left_num, left_den;
} copse_fault_at;

/*
 * Makes another topology: without what is down, slower where faults [n_faults] (may be NULL with
 * 0) say so, and with the ranks of a list such as "0-3,8,h1.gpu2" (NULL: all), numbered as they
 * were before anything broke. exclude_others: the GPUs that are no ranks leave with their links;
 * 0: they forward as switches do. What `copse solve` does for --down, --derate, --ranks and
 * --others. COPSE_BAD_INPUT for an id that isn't there, a rank that is down, or when no GPU is
 * left, COPSE_INVALID for a part that is no fraction from 0 to 1, COPSE_OVERFLOW.
 */
COPSE_API copse_status copse_topology_change(const copse_topology *topology,
                                             const copse_fault_at *faults, int n_faults,
                                             const char *ranks, int exclude_others,
                                             copse_topology **out) COPSE_CHECKED;

/* Writes topology JSON, "copse-topology/1", byte for byte what `copse topo -o` writes. The caller
 * frees *text with copse_string_free. */
COPSE_API copse_status copse_topology_json(const copse_topology *topology,
                                           char **text) COPSE_CHECKED;
COPSE_API void copse_topology_free(copse_topology *topology);

/* Frees a text that a function here made. Takes NULL. */
COPSE_API void copse_string_free(char *text);

/* ---- schedules -------------------------------------------------------------------- */

typedef struct copse_schedule copse_schedule;

/*
 * Finds the exactly optimal schedule of a collective, deterministic. root: of a broadcast or
 * reduce, else -1. k: 0 for as many trees per root as the optimum needs, and for an alltoall, else
 * the best schedule of exactly k trees per root. An allreduce is a reduce_scatter and an
 * allgather; with k = 0 its roots have unequal shares where those are faster
 * (copse_schedule_verify says what is proved). COPSE_INFEASIBLE when a rank can't be reached,
 * COPSE_BAD_INPUT for a relay whose ingress and egress differ, COPSE_OVERFLOW, COPSE_NOMEM.
 * Complexity: ranks * trees maximum flows. Method: ForestColl (Zhao et al., arXiv 2402.06787) with
 * Newton iteration and guess-and-prove edge splitting.
 */
COPSE_API copse_status copse_solve(const copse_topology *topology, copse_collective collective,
                                   int root, int64_t k, copse_schedule **out) COPSE_CHECKED;

/* What else can be asked of the solver. Begin with COPSE_REQUEST_INIT: all 0 but size, root
 * and alpha_us. */
typedef struct copse_request {
  size_t size; /* sizeof(copse_request): fields that a caller doesn't know are 0 */
  copse_collective collective;
  int root;  /* as of copse_solve; -1: none */
  int64_t k; /* as of copse_solve; 0 with an objective */
  /* How far from the optimum it may be, for the sake of fewer trees; of an alltoall, of fewer
   * steps of the solver. tolerance_den 0: 0, or with an objective 1 %. */
  int64_t tolerance_num, tolerance_den;
  /* 0: messages without an end. Else the schedule that the simulator finds fastest for messages of
   * so many bytes, at most 2^48, with alpha_us (0: 2) for each hop from rank to rank; as `copse
   * solve --objective SIZE --alpha US`. It says so itself, and a
   * bound for that size (copse_schedule_json). */
  double objective_bytes, alpha_us;
  /* May be NULL. Called now and then with the name of a phase and how much of it is done (total 0:
   * not known), by the calling thread or by others, also by several at once. */
  void (*progress)(void *ctx, const char *phase, int64_t done, int64_t total);
  void *progress_ctx;
  /* Of an alltoall. demand: [n * n] bytes that each rank sends to each, row by row, at least 0 and
   * not all 0, read before the call returns (NULL: all alike). no_forward: nonzero where ranks
   * relay nothing. */
  const int64_t *demand;
  int no_forward;
  int on_routes;  /* nonzero: trees along the fabric's own routes, `--routes fabric` */
  int in_network; /* nonzero: an allreduce by switches that copy or add, `--in-network` */
} copse_request;
#define COPSE_REQUEST_INIT \
  { sizeof(copse_request), COPSE_ALLGATHER, -1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0 }

/* Solves as copse_solve does, by a request. COPSE_INVALID also for a size of request that is none,
 * for numbers out of range, and for what `copse solve` does not take together. */
COPSE_API copse_status copse_solve_request(const copse_topology *topology,
                                           const copse_request *request,
                                           copse_schedule **out) COPSE_CHECKED;

/* Reads schedule JSON, "copse-schedule/1"; copse_schedule_write writes it, beside the old file and
 * renamed. */
COPSE_API copse_status copse_schedule_read(const char *path, copse_schedule **out) COPSE_CHECKED;
COPSE_API copse_status copse_schedule_write(const copse_schedule *schedule,
                                            const char *path) COPSE_CHECKED;

/*
 * Checks trees or flows, paths, shares, loads and the bound exactly, independently of the
 * solver. COPSE_REFUTED with the first defect. *optimal (may be NULL): 1 if the time equals
 * a bound that holds for any algorithm; 2 for an allreduce whose reduce_scatter and
 * allgather both are at their bounds; 3 for an allreduce that no pair of a reduce and a
 * broadcast forest with common shares, run together, is faster than; else 0.
 */
COPSE_API copse_status copse_schedule_verify(const copse_schedule *schedule,
                                             const copse_topology *topology,
                                             int *optimal) COPSE_CHECKED;

/*
 * Writes the same as text. expand: nonzero lists all trees or flows of a compact schedule, as
 * `copse expand` does. The caller frees *text with copse_string_free. COPSE_NOMEM also for an
 * expansion of more than 8 GiB.
 */
COPSE_API copse_status copse_schedule_json(const copse_schedule *schedule, int expand,
                                           char **text) COPSE_CHECKED;

/* What a schedule puts on a link: load_num / load_den of the message M, and time_num / time_den
 * seconds per GB of M for it. */
typedef struct copse_link_load {
  const char *src, *dst; /* ids of nodes, as long as the topology */
  int64_t load_num, load_den;
  int64_t time_num, time_den;
} copse_link_load;

/*
 * Computes the loads of all links of the topology, in its order, those of load 0 too: at most
 * `capacity` go into out, *n gets how many there are. out may be NULL with capacity 0, which
 * computes nothing. A link into a switch that copies counts once per broadcast tree, one out of a
 * switch that adds once per reduce tree. The largest time is copse_schedule_time's. The schedule
 * is verified first: COPSE_REFUTED as from copse_schedule_verify. COPSE_OVERFLOW, COPSE_NOMEM.
 */
COPSE_API copse_status copse_schedule_link_loads(const copse_schedule *schedule,
                                                 const copse_topology *topology,
                                                 copse_link_load *out, int64_t capacity,
                                                 int64_t *n) COPSE_CHECKED;

/* Returns the schedule's time in seconds per GB as a fraction: M / T = den / num GB/s. */
COPSE_API void copse_schedule_time(const copse_schedule *schedule, int64_t *num, int64_t *den);
COPSE_API void copse_schedule_free(copse_schedule *schedule);

/* ---- plans ------------------------------------------------------------------------ */

typedef struct copse_plan copse_plan;

/* Makes the executable plan of a schedule, as `copse lower` does; at most max_workers workers per
 * rank (0: 32), as many as have something to do. */
COPSE_API copse_status copse_lower(const copse_schedule *schedule, int max_workers,
                                   copse_plan **out) COPSE_CHECKED;

/* Reads the native plan file, which is versioned, checksummed and fully validated when read;
 * copse_plan_write writes it. */
COPSE_API copse_status copse_plan_load(const char *path, copse_plan **out) COPSE_CHECKED;
COPSE_API copse_status copse_plan_write(const copse_plan *plan, const char *path) COPSE_CHECKED;

/* Proves result, deadlock-freedom and absence of races. COPSE_REFUTED with the place. */
COPSE_API copse_status copse_plan_check(const copse_plan *plan) COPSE_CHECKED;

/*
 * Predicts by simulation the times for messages of bytes [n] (> 0, n >= 1): microseconds into us
 * [n], by the costs that `copse simulate` has by default. What it costs, and what not, is in
 * `copse simulate --help`. COPSE_BAD_INPUT for a topology with another number of ranks,
 * COPSE_INVALID for bytes that make no sense, COPSE_INFEASIBLE for ranks that nothing joins.
 */
COPSE_API copse_status copse_plan_predict(const copse_plan *plan, const copse_topology *topology,
                                          const double *bytes, int n, double *us) COPSE_CHECKED;
COPSE_API void copse_plan_free(copse_plan *plan);

/* ---- alltoallv, planned at run time ----------------------------------------------- */

typedef struct copse_alltoallv copse_alltoallv;

/*
 * One hop: `bytes` of what rank `origin` sends to rank `final`, from byte `offset` of it on,
 * go from rank `from` to rank `to`. A hop may start when the hop before it of the same bytes
 * has arrived; a rank does its hops in the order given. `step` numbers rounds between hosts: in a
 * round each NIC has one partner, or several with which it exchanges 128 KiB or so in all.
 */
typedef struct copse_transfer {
  int from, to, origin, final, step;
  int64_t offset, bytes;
} copse_transfer;

/*
 * Makes a planner for demands that change with every step, as in a Mixture-of-Experts layer. On
 * clusters of alike hosts with a NIC per GPU it balances inside the host and sends between hosts
 * one to one (after FAST, arXiv 2505.09764), or, where that is predicted to be faster, as small
 * demands are, in few steps of at most two hops for each byte; on other topologies it splits every
 * pair's bytes over the paths of `offline`, an alltoall schedule, which may be NULL for the
 * former. The topology must outlive the planner. All memory is taken here: planning allocates
 * nothing. COPSE_UNSUPPORTED where offline is needed and missing; the text says why.
 */
COPSE_API copse_status copse_alltoallv_create(const copse_topology *topology,
                                              const copse_schedule *offline,
                                              copse_alltoallv **out) COPSE_CHECKED;

/*
 * Makes the plan for bytes[src * n_ranks + dst], which is the planner's until the next one.
 * Deterministic: the same counts give the same plan on every rank. One thread at a time per
 * planner.
 */
COPSE_API copse_status copse_alltoallv_plan(copse_alltoallv *planner,
                                            const int64_t *bytes) COPSE_CHECKED;

/* Returns the seconds that no schedule of this demand can beat, and those for which the plan keeps
 * its busiest NIC or link: how far from optimal each step is. Either may be NULL. */
COPSE_API void copse_alltoallv_bound(const copse_alltoallv *planner, double *bound_seconds,
                                     double *busiest_seconds);

/* Returns the same with latencies, by which the plan was chosen: of links as the topology has them,
 * and 2 us for each hop from rank to rank. They are the seconds that no schedule can beat then, and
 * those that the plan is predicted to take. Either may be NULL. */
COPSE_API void copse_alltoallv_predicted(const copse_alltoallv *planner, double *bound_seconds,
                                         double *predicted_seconds);

/*
 * Lists what `rank` sends (copse_alltoallv_receives: what it receives), in order: at most
 * `capacity` hops into out, *n gets how many there are. out may be NULL with capacity 0.
 */
COPSE_API copse_status copse_alltoallv_sends(copse_alltoallv *planner, int rank,
                                             copse_transfer *out, int64_t capacity,
                                             int64_t *n) COPSE_CHECKED;
COPSE_API copse_status copse_alltoallv_receives(copse_alltoallv *planner, int rank,
                                                copse_transfer *out, int64_t capacity,
                                                int64_t *n) COPSE_CHECKED;
COPSE_API void copse_alltoallv_free(copse_alltoallv *planner);

/* ---- overlapping all-to-all and experts --------------------------------------------- */

/* A Mixture-of-Experts layer: what one rank sends, and how long its experts compute. */
typedef struct copse_moe_layer {
  double bytes;                  /* that a rank dispatches: tokens * bytes of a token */
  double tokens;                 /* of a rank; the busiest expert's follow from the schedule */
  double alpha_us, us_per_token; /* time of the experts of a rank: alpha + tokens * this */
} copse_moe_layer;

/*
 * Chooses in how many parts (1, 2, 4, ... 64) to cut the tokens, so that the all-to-all of one
 * part runs while the experts compute another (Tutel, arXiv 2206.03382): the degree of the
 * shortest step as the simulator predicts it, one all-to-all on the network at a time. 64) to cut
 * the tokens, so that the all-to-all of one part runs while the experts compute another (Tutel,
 * arXiv 2206.03382): the degree of the shortest step as the simulator predicts it, one all-to-all
 * on the network at a time. `alltoall` is a schedule for `topology`, not compact. *step_us and
 * *plain_us (either may be NULL): the predicted step with that degree, and without overlap.
 * COPSE_INVALID for another collective, a compact schedule or figures that make no sense.
 */
COPSE_API copse_status copse_overlap_degree(const copse_topology *topology,
                                            const copse_schedule *alltoall,
                                            const copse_moe_layer *layer, int *degree,
                                            double *step_us, double *plain_us) COPSE_CHECKED;

#ifdef __cplusplus
}
#endif

#include "copse/comm.h"

#endif
