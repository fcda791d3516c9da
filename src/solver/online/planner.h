/*
 * Alltoallv with demands known only at run time, on two tiers: hosts of equally many ranks,
 * a fast switch inside each host, one NIC per rank between them. Plain integers; sees no GPU.
 *
 *   question                                          function
 *   -----------------------------------------------   --------------------------------
 *   make a planner, with all the memory it will need  copse_online_create, _free
 *   plan a demand                                     copse_online_plan
 *   how fast can any schedule be? how fast is this?   copse_online_bound, _predicted_ns, _inter
 *   what does a rank send and receive, in order?      copse_online_transfers
 *   what goes where, over which NICs?                 copse_online_walk
 *   what runs side by side?                           copse_online_stages, _stage
 *
 * How. All bytes from host a to host b are a stream over the G NICs of a ("lanes"): lane g leaves
 * a by the NIC of its rank g and enters b by that of b's rank g, so that a fabric of rails, which
 * joins equal indices only, is enough and a flat one is served as well. A byte that a rank hands to
 * another lane goes there inside the host first (BALANCE), lanes cross (INTER), and what came in
 * for another rank of the host is passed on (SCATTER). There are two forms of plans; the one with
 * the shorter predicted time is taken: bytes of the busiest NIC, and the latency of hops that
 * nothing hides.
 *
 * DIRECT: a byte takes two hops at most. A part of each message goes by the lane of its sender, in
 * the early steps, and is passed on while the late steps run. The rest goes by the lane of its
 * receiver's index: handed over while the early steps run, sent in the late ones, and then it is
 * there. All go by senders' lanes, by receivers', or half by each; on a flat fabric also straight
 * from the sender's NIC to the receiver's, in one hop and many messages. No lane is evened out;
 * there is nothing to search. As many steps as the busiest NIC has messages of min_message, at most
 * one for each rotation of the hosts (host a to host a + r).
 *
 * EVEN: every stream is dealt out evenly to its lanes: a rank with more than its lane's share hands
 * the excess to ranks that have less. Between hosts the H x H matrix of bytes is cut into stages:
 * in a stage every host sends to at most one host and receives from at most one. Stages are
 * Birkhoff's permutations of the matrix filled up to equal row and column sums, but the filling is
 * left open until it is used: a pair may end early within a stage as long as both hosts can spare
 * the time. Each permutation is a matching whose smallest entry is within a factor of two of the
 * largest possible (thresholds that are halved, from four times an even matrix's entry on), kept
 * from stage to stage and repaired by augmenting paths on bit sets. Once there is no stage of about
 * min_message a NIC, one to one is worth no more: what is left goes in combined steps, in each of
 * which a NIC sends and receives about min_message in all, by several messages. Long stages are cut
 * into steps, so that BALANCE of the next step and SCATTER of the last run beside INTER of this
 * one; the hosts' own traffic (LOCAL) is spread over all steps.
 *
 * Source: balance inside the host and one-to-one between hosts after FAST (Lei et al., arXiv
 * 2505.09764); preemptive open shop (Gonzalez and Sahni, Open shop scheduling to minimize
 * finish time, J. ACM 23(4), 1976, doi 10.1145/321978.321985) for the early ends. The combined
 * steps are spread-out exchanges of what is small. The two ways of DIRECT are those of Tutel's 2DH
 * (arXiv 2206.03382), half a demand by each.
 *
 * Guarantees. Integers only: the same counts give the same plan on every rank and machine. No
 * allocation after creation. Every byte is in exactly one piece. EVEN: let R be the largest row or
 * column sum of the host matrix. The stages take R - L, where L is the largest that is left; with
 * one_to_one L is 0. No NIC sends or receives more than R / G and a byte per pair of hosts. DIRECT:
 * no NIC sends or receives more than copse_online_inter says and 16 bytes a message, and the
 * predicted time is no longer than that of EVEN.
 * Threads: one planner, one thread at a time; different planners share nothing.
 * Proof: tests/solver/test_online.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Ranks are numbered host by host: rank = host * ranks_per_host + index. */
#define COPSE_ONLINE_MAX_HOSTS 2048
#define COPSE_ONLINE_MAX_LOCAL 256

/* Bandwidths are integers in one unit: `scale` of them are 1 GB/s. All > 0. */
struct copse_online_model {
  int hosts, ranks_per_host;
  int64_t intra_out, intra_in; /* of a rank to and from its host's switch */
  int64_t nic;                 /* of a rank to and from the fabric, each way */
  int64_t scale;
  /* What leaves and enters any set of one rank, of one host: for the bound. 0: intra + nic, and
     ranks_per_host * nic (without limit where there is one host). */
  int64_t rank_out, rank_in, host_out, host_in;
  /* Latencies: of a hop from rank to rank, by software; of the links inside a host, between hosts.
   */
  int64_t hop_ns, hub_ns, fabric_ns;
  int64_t message_ns; /* a message's cost for its sender with all workers at work */
  bool flat;      /* a NIC reaches those of any index, not only its own */
  bool separate;  /* nothing comes to a NIC from its host but by its rank: for the bound */
};

/* Zeros mean the defaults. */
struct copse_online_options {
  int steps;           /* steps that the whole is cut into, about; default 128 */
  int64_t min_message; /* bytes on a NIC below which steps are not cut; default 131072 */
  bool one_to_one;     /* EVEN, in stages to the last byte: no NIC ever has two senders */
};

struct copse_online;

/*
 * Allocates everything. COPSE_INVALID for a model with a value out of range, COPSE_NOMEM.
 * Owned by the caller. Memory: O(ranks * hosts + stages * hosts); pages of stages that no
 * demand needs are never touched.
 */
copse_status copse_online_create(const struct copse_online_model *model,
                                 const struct copse_online_options *options,
                                 struct copse_online **out, struct copse_err *err) COPSE_CHECKED;
void copse_online_free(struct copse_online *online);

/*
 * Plans bytes[sender * ranks + receiver] >= 0. The diagonal is each rank's own copy. `bytes`
 * is borrowed until the next plan: the functions below read it. COPSE_INVALID for a negative
 * count; COPSE_OVERFLOW for one above 2^62 / (ranks * ranks_per_host), so that no sum can leave
 * 63 bits. After a failure there is no plan: the demand counts as empty.
 * Complexity: O(ranks^2) to read the counts, then O(hosts^2) per halving of the threshold
 * and O(hosts) plus repairs per stage.
 */
copse_status copse_online_plan(struct copse_online *online, const int64_t *bytes,
                               struct copse_err *err) COPSE_CHECKED;

enum copse_online_limit {
  COPSE_ONLINE_NOTHING, /* no bytes between ranks */
  COPSE_ONLINE_RANK_OUT,
  COPSE_ONLINE_RANK_IN,
  COPSE_ONLINE_HOST_OUT,
  COPSE_ONLINE_HOST_IN,
  COPSE_ONLINE_TURNS, /* on rails: all switches inside hosts, which all bytes cross that change
                         their index; index 0 */
  COPSE_ONLINE_CUT    /* another set of nodes (schedule/online/online.h) */
};

/* No schedule whatsoever is faster than bytes / bandwidth: a cut around one rank or host, or what
 * switches inside hosts can take. */
struct copse_online_bound {
  enum copse_online_limit limit;
  int index;         /* the rank or host */
  int64_t bytes;     /* that must cross */
  int64_t bandwidth; /* in the model's unit; 1 where nothing moves */
  double seconds;    /* the same, for reports */
  /* At least that, latencies included: no schedule whatsoever is faster, if latencies and costs of
     hops are those of the model. For reports. */
  double with_latency;
};
void copse_online_bound(const struct copse_online *online, struct copse_online_bound *bound);

/* Takes, for planners of any kind, a cut into a bound, which starts with bandwidth 1, where it is
 * worse than what the bound has. */
void copse_online_raise_bound(struct copse_online_bound *bound, enum copse_online_limit limit,
                              int index, int64_t bytes, int64_t bandwidth);
/* Refuses what rank `src` sends to `dst` where it is negative (COPSE_INVALID) or above `most`
 * (COPSE_OVERFLOW). */
copse_status copse_online_check_count(int64_t bytes, int64_t most, int src, int dst,
                                      struct copse_err *err) COPSE_CHECKED;

enum copse_online_form { COPSE_ONLINE_EVEN, COPSE_ONLINE_DIRECT };
enum copse_online_form copse_online_form_of(const struct copse_online *online);
/* Returns the predicted time by which the form was chosen: of NICs and hops alone. */
int64_t copse_online_predicted_ns(const struct copse_online *online);

/* Returns the largest row or column sum of bytes between hosts; and bytes of the busiest NIC, one
 * way (of EVEN up to a byte per pair of hosts). */
void copse_online_inter(const struct copse_online *online, int64_t *bound_bytes,
                        int64_t *nic_bytes);

/* Counts stages, which are in order (copse_online_stage has one); dst[h] is where host h sends, or
 * -1; `bytes` is the longest pair's. */
int copse_online_stages(const struct copse_online *online);
void copse_online_stage(const struct copse_online *online, int stage, int64_t *bytes,
                        const int16_t **dst);
/* Counts the steps of the whole plan: at least 1. From *combined_first on (may be NULL) a host may
 * send to, and receive from, several in one step. */
int copse_online_steps(const struct copse_online *online, int *combined_first);

/*
 * Bytes offset..offset+bytes-1 of what `origin` sends to `final`. Within a host via_src and
 * via_dst are -1; else the piece goes origin -> via_src -> via_dst -> final, where hops from a
 * rank to itself fall away. EVEN: lane_offset is its place in the stream of the lane from host
 * to host: all places from 0 on are taken once, in the order of steps. DIRECT: 0.
 */
struct copse_online_piece {
  int step;
  int origin, final;
  int via_src, via_dst;
  int64_t offset, bytes, lane_offset;
};
typedef void copse_online_sink(void *ctx, const struct copse_online_piece *piece);

/*
 * Hands out all pieces, lane by lane, of one in the order of steps, for each pair of hosts; a
 * host's own pieces, diagonal included, come before those that leave it.
 */
void copse_online_walk(struct copse_online *online, copse_online_sink *sink, void *ctx);

enum copse_online_kind {
  COPSE_ONLINE_SELF,    /* a rank's own copy */
  COPSE_ONLINE_BALANCE, /* origin -> via_src */
  COPSE_ONLINE_LOCAL,   /* origin -> final, same host */
  COPSE_ONLINE_INTER,   /* via_src -> via_dst */
  COPSE_ONLINE_SCATTER, /* via_dst -> final */
  COPSE_ONLINE_ROUTE    /* along an offline path (schedule/online/online.h) */
};

/* One hop of a piece. */
struct copse_online_transfer {
  enum copse_online_kind kind;
  int from, to;
  struct copse_online_piece piece;
};

enum copse_online_which { COPSE_ONLINE_SENDS = 1, COPSE_ONLINE_RECEIVES = 2 };

/*
 * Lists the hops that `rank` sends (from == rank), receives, or both, by step and within a step by
 * kind. A hop may start when the hop before it of the same piece has arrived; hops of one kind go
 * in this order, kinds do not wait for each other. Writes at most `capacity`; *n gets how many
 * there are (out may be NULL with capacity 0). Complexity: O(hosts * ranks_per_host^2) and the
 * hops.
 */
copse_status copse_online_transfers(struct copse_online *online, int rank, int which,
                                    struct copse_online_transfer *out, int64_t capacity, int64_t *n,
                                    struct copse_err *err) COPSE_CHECKED;
