/* What the parts of copse_verify_schedule share. */
#pragma once

#include "base/exact.h"
#include "verify/verify.h"

/* The rotations of a schedule on the topology's own numbers. */
struct copse_verify_symmetry {
  int n;
  int orders[COPSE_SCHEDULE_MAX_ROTATIONS];
  int *nodes[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_nodes] images */
  int *links[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_links] */
  int *ranks[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_ranks] */
};

/* Memory and rationals of a check, given back together. Zero-initialise to start. */
struct copse_verify_scratch {
  struct copse_arena arena;
  struct copse_verify_block {
    struct copse_verify_block *next;
    mpq_t *rationals;
    int n;
  } * blocks;
};
/* Makes n zeros. */
copse_status copse_verify_rationals(struct copse_verify_scratch *scratch, int n, mpq_t **out,
                                    struct copse_err *err) COPSE_CHECKED;
void copse_verify_scratch_free(struct copse_verify_scratch *scratch);

/* One schedule under check. */
struct copse_verify_checker {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  const char *label;
  int *node_of; /* [schedule->n_nodes] topology node, -1: unknown */
  mpq_t *loads; /* [n_links] */
  struct copse_verify_symmetry symmetry;
  int *last_tree; /* [n_links] 1 + the tree that crossed it last */
  char *reached;  /* [n_ranks] by the tree at hand */
  char *covered;  /* [n_ranks * n_ranks] pairs that have a flow */
  int *visited;   /* [topology->n_nodes] the path, of n_walked, that was there last */
  int n_walked;
  struct copse_verify_scratch scratch;
  struct copse_err *err;
};

/* Returns COPSE_REFUTED with "LABEL: TEXT". */
copse_status copse_verify_refute(struct copse_err *err, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a checker c, whichever: it has a label and an err. */
#define refute(c, ...) copse_verify_refute((c)->err, (c)->label, __VA_ARGS__)

/* Puts a node, -1 for one that the topology lacks, inside [n_nodes] of a bound's cut. Refuses it a
 * second time. */
copse_status copse_verify_mark(const char *label, int cut, const char *id, int node, char *inside,
                               struct copse_err *err) COPSE_CHECKED;

/* Refuses a potential of a relay that is a switch which copies or adds, or beside one: a link of it
 * may count once for several copies, and then the relay's loads do not balance. */
copse_status copse_verify_potential(const struct copse_topology *topology, const char *label,
                                    int relay, struct copse_err *err) COPSE_CHECKED;

/* Verifies as copse_verify_schedule, and adds each link's load to loads [n_links of the topology]:
 * zeros. */
copse_status copse_verify_schedule_loads(const struct copse_schedule *schedule,
                                         const struct copse_topology *topology, const char *label,
                                         struct copse_verify_report *report, mpq_t *loads,
                                         struct copse_err *err) COPSE_CHECKED;

/* The largest load over bandwidth of loads [n_links], and the first link that has it; nodes -1
 * where nothing moves. */
struct copse_verify_busiest {
  int src, dst, links; /* nodes; how many links are that loaded */
};
copse_status copse_verify_most_loaded(const struct copse_topology *topology, mpq_t *loads,
                                      const char *label, struct copse_q *time_per_GB,
                                      struct copse_verify_busiest *busiest,
                                      struct copse_err *err) COPSE_CHECKED;

/* Returns COPSE_REFUTED where the bound is not what the file claims, or above the time. */
copse_status copse_verify_compare_bound(const char *label, struct copse_q claim,
                                        struct copse_q bound, struct copse_q time,
                                        struct copse_err *err) COPSE_CHECKED;

/* Converts a number to one that a report can carry; COPSE_OVERFLOW beyond. */
copse_status copse_verify_get_q(const mpq_t from, const char *label, struct copse_q *to,
                                struct copse_err *err) COPSE_CHECKED;

/* Adds the bandwidth of the links that leave (enter) the nodes inside [n_nodes] to *sum. */
void copse_verify_cut_bandwidth(const struct copse_topology *topology, const char *inside,
                                bool entering, mpq_t sum);

/* ---- alltoalls: flows.c ---- */

/* Checks that the flows (with their images, in the compact form) carry the demand exactly,
 * over links that exist, and adds up the load of every link that is listed. COPSE_REFUTED. */
copse_status copse_verify_flows(struct copse_verify_checker *c) COPSE_CHECKED;

/* Computes what the schedule's lengths (or its cut) prove about an alltoall: sum of share *
 * distance over sum of bandwidth * length, in GMP rationals over integer distances. */
copse_status copse_verify_flow_bound(struct copse_verify_checker *c, mpq_t bound) COPSE_CHECKED;

/* Checks the bound for a size, which the schedule has, after its other bound: COPSE_REFUTED where
 * the times of nodes don't add up to what must move. */
copse_status copse_verify_bound_at(struct copse_verify_checker *c) COPSE_CHECKED;

/* ---- routes: routes.c ---- */

/* Checks that every edge takes a route of its pair, and the bound for such forests, of a schedule
 * that has "routes". COPSE_REFUTED; COPSE_UNSUPPORTED where routes are not listed. */
copse_status copse_verify_routes(struct copse_verify_checker *c,
                                 struct copse_verify_report *report) COPSE_CHECKED;

/* ---- compact schedules: verify.c ---- */

/* How a map of nodes is no automorphism. */
struct copse_verify_defect {
  enum { COPSE_KEPT, COPSE_NOT_ONE_TO_ONE, COPSE_OTHER_NODE, COPSE_OTHER_LINK } what;
  int at; /* the first such node or link */
};

/* Checks, exactly, that image [n_nodes] is an automorphism of the topology: each node the image of
 * one; ranks to ranks; switches that copy or reduce to such; every link to a link of the same
 * bandwidth, its number in link_image [n_links]. hit [n_nodes]: zeros. */
struct copse_verify_defect copse_verify_automorphism(const struct copse_topology *topology,
                                                     const int *image, char *hit, int *link_image);

/* Checks a schedule with changes or absent ranks: its trees, loads, and what the trees of each root
 * carry in each phase, added to zeros [n_ranks]. COPSE_REFUTED, COPSE_NOMEM. Complexity: (images of
 * base trees) + (edges that change) * (height); a pass over ranks for each absent one that
 * something hung on. */
copse_status copse_verify_changes(struct copse_verify_checker *c, mpq_t *broadcast_shares,
                                  mpq_t *reduce_shares) COPSE_CHECKED;
