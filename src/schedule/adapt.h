/* A schedule and another topology: the choice of its ranks, its image under a renaming, and its
 * numbers where parts are gone. */
#pragma once

#include "schedule/images.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

/*
 * Replaces *topology, where the schedule is for some of its GPUs, or for all in another order, by
 * its choice of those ranks (topology/modify.h), the other GPUs relays or left out as the schedule
 * says. A topology that is a choice already, or lacks a rank of the schedule, stays as it is: the
 * checks that follow say what is wrong.
 */
copse_status copse_schedule_choose_ranks(const struct copse_schedule *schedule,
                                         struct copse_topology **topology,
                                         struct copse_err *err) COPSE_CHECKED;

/* Fails with COPSE_BAD_INPUT, naming `label`, where the topology's ranks are not the schedule's. */
copse_status copse_schedule_check_ranks(const struct copse_schedule *schedule, const char *label,
                                        const struct copse_topology *topology,
                                        struct copse_err *err) COPSE_CHECKED;

/* Whether the topology has the schedule's ranks, and all its nodes. */
bool copse_schedule_has_nodes_of(const struct copse_schedule *schedule,
                                 const struct copse_topology *topology);

/*
 * Numbers the nodes of an expanded, verified schedule as the topology does; a file may number them
 * otherwise. Its bound for one size and the proof of its routes are left out. COPSE_NOMEM.
 */
copse_status copse_schedule_place(struct copse_schedule *schedule,
                                  const struct copse_topology *topology,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Makes the schedule's image by ids [schedule->n_nodes], nodes of `target`, each once: what the
 * schedule's nodes become. Where that takes links to links of the same bandwidth and ranks to
 * ranks, the image is as good there as the schedule is; nothing of it is checked here. The
 * schedule must be without a demand, and expanded. Ranks are target's, a root too. The caller
 * releases *out before `schedule`, whose paths and bound it borrows. COPSE_INVALID for an id that
 * target lacks, and for a schedule of another kind.
 */
copse_status copse_schedule_image(const struct copse_schedule *schedule, const char *const *ids,
                                  const struct copse_topology *target, struct copse_schedule **out,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Adapts a schedule to `topology`, in which parts are down of the topology it was made for, with as
 * few changes as possible. Trees that cross no such part stay as they are. In the others a rank
 * that has lost its parent is hung, with all below it, on the nearest rank of its tree by a way
 * over relays, where loaded links count as long ones. Or the nearest rank below it is hung there,
 * and it hangs on that rank. Shares, weights, the order of trees and of the edges that stay are as
 * before. time_per_GB is the exact time of the loads, without a claim that it is the optimum.
 * *repaired is false where ranks are missing, a rank can't be hung anywhere, a tree of stages is
 * hit, of an alltoall, and where switches copy or add; then only the numbers of nodes may have
 * changed. The bound doesn't hold any more; the caller sets it. The schedule is expanded.
 * COPSE_NOMEM, COPSE_OVERFLOW. Deterministic. O((ranks without a parent + 1) * links * log) for
 * each tree that is hit.
 */
copse_status copse_schedule_repair(struct copse_schedule *schedule,
                                   const struct copse_topology *topology, bool *repaired,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * A compact schedule in the numbers of `topology`, in which parts are gone of the topology it was
 * made for. Nodes that are gone have the numbers after the topology's; ranks likewise. Trees lead
 * away from their roots: an allreduce's are the trees that broadcast, a reduction's are turned
 * around.
 */
struct copse_numbering {
  const struct copse_topology *healthy;
  int n_nodes;     /* gone ones included */
  int *healthy_of; /* [n_nodes] */
  int *all_of;     /* [healthy nodes] */
  int *rank_of;    /* [n_nodes] -1: a relay */
  struct copse_schedule schedule;
};

/* Makes the numbers; *fits: the schedule is one of all nodes of `healthy`. The arena owns the
 * arrays. COPSE_NOMEM; COPSE_INTERNAL where `topology` has a node that `healthy` lacks. */
copse_status copse_numbering_make(const struct copse_schedule *from,
                                  const struct copse_topology *healthy,
                                  const struct copse_topology *topology, struct copse_arena *arena,
                                  struct copse_numbering *out, bool *fits,
                                  struct copse_err *err) COPSE_CHECKED;

/* Returns the healthy topology's link between two nodes, or -1. */
static inline int copse_numbering_link(const struct copse_numbering *numbers, int src, int dst) {
  return copse_topology_find_link(numbers->healthy, numbers->healthy_of[src],
                                  numbers->healthy_of[dst]);
}
/* The way to a rank of a base tree, which crosses a link of the healthy topology. */
struct copse_tree_user {
  int link, tree, rank;
};
/* Lists those of all links, and by link where they are. COPSE_NOMEM. */
copse_status copse_numbering_users(const struct copse_numbering *numbers, struct copse_arena *arena,
                                   struct copse_tree_user **users, struct copse_adjacency *by_link,
                                   struct copse_err *err) COPSE_CHECKED;

/* Users of a link in all images, by image. */
struct copse_image_user {
  int image, user;
};
struct copse_image_users {
  struct copse_image_user *item;
  int n;
};
/* Lists those of the link between two nodes. by_link: of copse_numbering_users. COPSE_NOMEM. */
copse_status copse_numbering_image_users(const struct copse_numbering *numbers,
                                         const struct copse_images *images,
                                         const struct copse_adjacency *by_link, int src, int dst,
                                         struct copse_arena *arena, struct copse_image_users *out,
                                         struct copse_err *err) COPSE_CHECKED;

/* Finds the least multiple of *k by which every tree's weight is a whole number of trees of a root:
 * each [trees]. COPSE_OVERFLOW. */
copse_status copse_numbering_each(const struct copse_numbering *numbers, int64_t *k, int64_t *each,
                                  struct copse_err *err) COPSE_CHECKED;
/* Computes the loads [n_links] of all images on the healthy topology's links, each receiver's copy
 * counted. each [trees]: how many equal trees a base tree stands for. *fits, true before: whether
 * the topology has all links of the trees. */
copse_status copse_numbering_loads(const struct copse_numbering *numbers, const int64_t *each,
                                   struct copse_q *loads, bool *fits,
                                   struct copse_err *err) COPSE_CHECKED;
/*
 * Makes a schedule of the numbering, of which collective and k are known: nodes, ranks, symmetries,
 * the trees of each phase, each [trees] of k for a root, and n changes of those that broadcast,
 * whose edges have paths alone and weights are parts of a root's. COPSE_NOMEM; COPSE_OVERFLOW.
 */
copse_status copse_numbering_keep(const struct copse_numbering *numbers, const int64_t *each,
                                  const struct copse_schedule_change *changes, int n,
                                  struct copse_schedule *s, struct copse_err *err) COPSE_CHECKED;
