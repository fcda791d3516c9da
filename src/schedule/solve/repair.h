/*
 * Trees of a broken cluster from those of the healthy one: symmetric except where they met what
 * broke.
 */
#pragma once

#include "schedule/schedule.h"
#include "solver/joint/joint.h"
#include "topology/topology.h"

/* What is broken, and what is to be reached. */
struct copse_repair {
  const struct copse_topology *topology, *healthy;
  const struct copse_schedule *from;   /* of `healthy`: compact trees, of equal shares */
  const struct copse_network *network; /* of `topology`, links in its order, all ranks roots */
  struct copse_q x;                    /* the rate of each root that links are to carry */
  int64_t k;                           /* trees of a root are a multiple of this */
  /* Whether an allreduce's reduction runs at the same time, the broadcast turned round, so that a
   * link's load is that of its way back too. Then there is one try, by prices: no tree is more than
   * COPSE_REPAIR_HIGHEST hops higher than the healthy ones, and it ends where it has looked at
   * `looks` nodes for each rank. */
  bool together;
  int looks;
  bool leaving; /* what leaves ranks by links with too much is detached before */
};

/*
 * Makes `schedule`, of which collective and names are known, one of `topology` at that rate, with
 * the trees, symmetries and changes of the compact form. *made: whether all trees found a place;
 * else it is as it was.
 *
 * A tree of the healthy schedule serves as it is unless it crosses a link that is gone, or one of
 * more load than is left of it. There the rank beyond hangs nowhere; it takes the shortest way over
 * links that have room from the highest rank of its tree around it, or if there is none, a rank
 * that hangs below it does, and it hangs on that, over others that turn around likewise:
 *
 *     nic 3 of host B is down    ... > A3 ==x==> B3 > B1       B1 had hung on B3:
 *                                ... > A1 -----> B1 > B3       now B3 hangs on B1
 *
 * Where no way has room it takes one over full links, and of the other trees there some give way:
 * they find other places likewise.
 *
 * Where that is too high, a tree that lost many ways is cut
 * into pieces, each of which enters another host first and branches there: of a root whose NIC is
 * down they have the room of several hosts for all that it sent by itself.
 *
 * Places inside the host come first: what has come in serves all there, and another way in is
 * another tree's. Trees that lost many ways come first, and where links have too much other trees
 * leave them first: what such a tree branches at near its root needs room there, while a single way
 * finds some at many places. In the end ranks of trees that are too high move nearer to their
 * roots, over what room is left. Where that is not low enough no way is taken by which a tree is
 * too high; rather others give way on full links, and a tree that is stuck is made anew. At last
 * ways cross one link at most that was full: on a torus whose links are all full a way through
 * another host's switch takes room without which no tree can be repaired.
 *
 * Where phases run together nearly all links are full, and places are found by prices
 * (repair_prices.c).
 *
 * The optimum is no matter of trust: trees are held against the capacities that reach it, and
 * whoever reads the schedule adds them up again. That they are found is a heuristic. It is local:
 * where one host is worse off than all others, those have room. Deterministic.
 * COPSE_NOMEM, COPSE_OVERFLOW. Complexity: (links that are gone) * (images) to find the trees that
 * cross them, and for each a search of the links around. Memory: some 100 bytes for each such tree,
 * and for each edge of base trees.
 */
copse_status copse_repair_trees(const struct copse_repair *repair, struct copse_schedule *schedule,
                                bool *made, struct copse_err *err) COPSE_CHECKED;
