/*
 * Several groups of ranks at work on one fabric at the same time, as the tensor, data and expert
 * parallel parts of a job are: which they are, and their schedules with what they reach together.
 */
#pragma once

#include "schedule/schedule.h"
#include "topology/topology.h"

/* One group, as a user lists it. */
struct copse_group {
  copse_collective collective;
  int root;   /* rank of the group, for broadcast and reduce; else -1 */
  int *nodes; /* [n] of the topology: the group's ranks 0 .. n-1, at least 2 */
  int n;
  long line; /* in the file */
};

/*
 * Parses a file of groups, one a line:
 *
 *     # tensor parallel groups, then data parallel ones
 *     0-7
 *     8-15
 *     allreduce 0,8
 *     broadcast:1 1,9
 *
 * A line is a list of ranks as copse_topology_parse_ranks takes it (without blanks), before it, if
 * it is another than `collective`, the collective, with the root's place in the list for broadcast
 * and reduce (else `root`). '#' starts a remark; empty lines don't count. COPSE_BAD_INPUT with
 * file and line; the caller frees *out [*n] with copse_group_list_free.
 */
copse_status copse_group_list_parse(const char *file, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    copse_collective collective, int root, struct copse_group **out,
                                    int *n, struct copse_err *err) COPSE_CHECKED;
static inline void copse_group_list_free(struct copse_group *groups, int n) {
  for (int g = 0; groups && g < n; g++) free(groups[g].nodes);
  free(groups);
}

/* A node set S of the bound below, for a phase of a group. */
struct copse_groups_cut {
  int group;
  enum copse_phase phase;   /* broadcast where `sink` is given */
  int sink;                 /* of an alltoall: what goes to this rank, which S misses; else -1 */
  struct copse_q weight;    /* > 0 */
  const char *const *nodes; /* [n_nodes] ids */
  int n_nodes;
};

/* Of a relay, for a phase of a group; the others' are 0. */
struct copse_groups_potential {
  int group;
  enum copse_phase phase;
  const char *node;
  struct copse_q value;
};

/* A permutation of the nodes that keeps links, and takes each group to one of the same kind. */
struct copse_groups_generator {
  const char *const *images; /* [n_symmetry_nodes] ids */
  const int *groups;         /* [n] */
};

/* One group's schedule: a plain one (schedule.h), as if it were alone. */
struct copse_groups_member {
  const char *file; /* name beside the index; NULL: none */
  copse_collective collective;
  int n_ranks;
  const char *const *ranks; /* [n_ranks] ids */
  struct copse_schedule *schedule;
};

/*
 * time_per_GB: T/M of every group while all of them run, the largest load of all together over
 * bandwidth. The bound holds for any schedules of these groups made of trees and flows, an
 * allreduce's of a reduce and a broadcast forest with common shares. An alltoall has a phase for
 * what goes to each rank, and no potentials. With Y_q(e) the weight of the cuts of phase q
 * that link e leaves (broadcast) or enters (reduce), and p_q the potentials of its relays,
 *
 *   T/M >= sum_groups due / sum_links bandwidth * max(0, max_q Y_q(e) - (p_q(dst) - p_q(src)))
 *
 * where a group's due is the least weight of its cuts of both phases around one of its ranks for
 * an allreduce, else the mean weight around its roots. For a tree of root v crosses each cut that
 * holds v and misses a rank (the flow to a rank each cut that misses it), and what trees load
 * relays with is balanced, but at or beside switches that copy or add, where there are no
 * potentials. The maximum is over phases that may use the link at all.
 *
 * With symmetries, each cut and potential stands for the mean over its images: Y_q(e), p_q and the
 * weight around a rank become the means over what the generators, one after the other in any order,
 * take them to. Any cuts and potentials are a proof, so their images are, and so is the mean.
 */
struct copse_groups {
  const char *topology_name, *topology_sha256;
  struct copse_q time_per_GB;
  struct copse_q bound_time_per_GB;
  int n_cuts, n_potentials;
  const struct copse_groups_cut *cuts;
  const struct copse_groups_potential *potentials;
  int n_symmetry_nodes, n_generators; /* 0: no symmetries */
  const char *const *symmetry_nodes;  /* [n_symmetry_nodes] ids, all of the topology's */
  const struct copse_groups_generator *generators; /* [n_generators] */
  int n;
  struct copse_groups_member *members; /* [n] */
  struct copse_arena arena;
};

void copse_groups_release(struct copse_groups *groups);

/* Writes the index, "copse-groups/1": all but the schedules, which are files of their own. The
 * caller frees *text. */
copse_status copse_groups_to_json(const struct copse_groups *groups, char **text, size_t *size,
                                  struct copse_err *err) COPSE_CHECKED;

/* Reads an index, and the schedules beside `path`, as claims (copse_schedule_load_claim). */
copse_status copse_groups_load(const char *path, struct copse_groups **out,
                               struct copse_err *err) COPSE_CHECKED;
