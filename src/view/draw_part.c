/* One tree, or all that one rank sends, on the picture of the topology. */
#include <stdio.h>
#include <stdlib.h>

#include "base/collective.h"
#include "view/draw_internal.h"

int copse_schedule_parts(const struct copse_schedule *s) {
  return s->collective == COPSE_ALLTOALL ? s->n_ranks : s->n_trees;
}

/* ---- the hops of a part ---------------------------------------------------------------------- */

/* A broadcast hop waits for the one that reached its source, a reduce hop for all into it: both
 * have been seen before, and `ready` has the last step into each rank. */
static copse_status walk_tree(const struct copse_schedule *s,
                              const struct copse_schedule_tree *tree,
                              copse_status (*hop)(void *, const struct copse_schedule_hop *),
                              void *ctx, struct copse_err *err) {
  int *ready = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)s->n_ranks, sizeof *ready, &ready, err));
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *e = &tree->edges[i];
    struct copse_schedule_hop now = {e->src, e->dst, ready[e->src] + 1, e->path, e->n_path};
    if (ready[e->dst] < now.step) ready[e->dst] = now.step;
    COPSE_TRY(hop(ctx, &now));
  }
out:
  free(ready);
  return status;
}

/* A path is cut at the ranks that it goes through. */
static copse_status walk_path(const int *rank_of, const struct copse_schedule_path *path,
                              copse_status (*hop)(void *, const struct copse_schedule_hop *),
                              void *ctx) {
  int from = 0, step = 0;
  for (int i = 1; i < path->n_nodes; i++) {
    if (rank_of[path->nodes[i]] < 0) continue;
    struct copse_schedule_hop now = {rank_of[path->nodes[from]], rank_of[path->nodes[i]], ++step,
                                     path->nodes + from, i - from + 1};
    copse_status status = hop(ctx, &now);
    if (status != COPSE_OK) return status;
    from = i;
  }
  return COPSE_OK;
}

copse_status copse_schedule_walk(const struct copse_schedule *s, int part,
                                 copse_status (*hop)(void *, const struct copse_schedule_hop *),
                                 void *ctx, struct copse_err *err) {
  int *rank_of = NULL;
  copse_status status;
  if (part < 0 || part >= copse_schedule_parts(s))
    return copse_fail(err, COPSE_INVALID, "there is no %s %d: they are from 0 to %d",
                      s->collective == COPSE_ALLTOALL ? "rank" : "tree", part,
                      copse_schedule_parts(s) - 1);
  if (s->collective != COPSE_ALLTOALL) return walk_tree(s, &s->trees[part], hop, ctx, err);
  COPSE_TRY(copse_calloc((size_t)s->n_nodes, sizeof *rank_of, &rank_of, err));
  for (int v = 0; v < s->n_nodes; v++) rank_of[v] = -1;
  for (int r = 0; r < s->n_ranks; r++) rank_of[s->rank_nodes[r]] = r;
  for (int f = 0; f < s->n_flows; f++)
    for (int i = 0; s->flows[f].src == part && i < s->flows[f].n_paths; i++)
      COPSE_TRY(walk_path(rank_of, &s->flows[f].paths[i], hop, ctx));
out:
  free(rank_of);
  return status;
}

/* ---- the picture ----------------------------------------------------------------------------- */

struct marking {
  struct copse_schedule_picture *picture;
  int *uses; /* [n_links] hops of the part that cross it */
  int counts[COPSE_LINK_HOPS + 1];
  int last; /* step */
};

static copse_status mark_hop(void *ctx, const struct copse_schedule_hop *hop) {
  struct marking *m = ctx;
  struct copse_schedule_picture *p = m->picture;
  int colour = hop->step <= COPSE_LINK_HOPS ? hop->step - 1 : COPSE_LINK_HOPS - 1;
  m->counts[colour]++;
  if (hop->step > m->last) m->last = hop->step;
  for (int i = 0; i + 1 < hop->n_path; i++) {
    int link = copse_topology_find_link(p->topology, hop->path[i], hop->path[i + 1]);
    if (link < 0) return copse_fail(p->err, COPSE_INVALID, "a hop over a link that there isn't");
    if (m->uses[link]++ == 0) p->links[link].style = COPSE_LINK_HOP + colour;
    if (m->uses[link] > 1)
      p->links[link].note = copse_picture_format(p, "%d hops over it", m->uses[link]);
    else
      p->links[link].note =
          copse_picture_format(p, "step %d: rank %d to rank %d", hop->step, hop->src, hop->dst);
  }
  return COPSE_OK;
}

static void describe_part(struct copse_schedule_picture *p, int part) {
  const struct copse_schedule *s = p->schedule;
  char weight[COPSE_DRAW_QUANTITY];
  const char *collective = copse_collective_name(s->collective);
  if (s->collective == COPSE_ALLTOALL) {
    p->title = copse_picture_format(p, "%s of %s: what rank %d sends", collective,
                                    p->topology->name, part);
    p->nodes[s->rank_nodes[part]].solid = true;
    p->subtitle = "each colour a step from rank to rank";
    return;
  }
  const struct copse_schedule_tree *tree = &s->trees[part];
  p->nodes[s->rank_nodes[tree->root]].solid = true;
  p->title = copse_picture_format(p, "%s of %s: %s tree %d of %d", collective, p->topology->name,
                                  tree->phase == COPSE_PHASE_REDUCE ? "reduce" : "broadcast", part,
                                  s->n_trees);
  p->subtitle = copse_picture_format(p, "%s rank %d, carries %s",
                                     tree->phase == COPSE_PHASE_REDUCE ? "to" : "from", tree->root,
                                     copse_draw_quantity(tree->weight, "of M", weight));
}

static copse_status start_part(struct marking *m, int part) {
  struct copse_schedule_picture *p = m->picture;
  copse_status status;
  COPSE_TRY(copse_picture_start(p));
  m->uses = copse_arena_alloc(&p->arena, (size_t)p->topology->n_links, sizeof *m->uses);
  if (!m->uses) return copse_fail_nomem(p->err);
  status = copse_schedule_walk(p->schedule, part, mark_hop, m, p->err);
out:
  return status;
}

static const char *last_colour(int i) { return i + 1 == COPSE_LINK_HOPS ? " and later" : ""; }

copse_status copse_schedule_draw_part(const struct copse_schedule *schedule,
                                      const struct copse_topology *topology,
                                      const struct copse_arrangement *arrangement, int part,
                                      bool inlined, struct copse_text *text,
                                      struct copse_err *err) {
  struct copse_schedule_picture p = {.schedule = schedule, .topology = topology, .err = err};
  struct marking m = {.picture = &p};
  copse_status status;
  COPSE_TRY(start_part(&m, part));
  describe_part(&p, part);
  for (int i = 0; i < COPSE_LINK_HOPS && i < m.last; i++)
    copse_picture_explain(
        &p, COPSE_LEGEND_LINK, COPSE_LINK_HOP + i,
        copse_picture_format(&p, "step %d%s \xc3\x97 %d", i + 1, last_colour(i), m.counts[i]));
  status = copse_picture_finish(&p, arrangement, inlined, text);
out:
  copse_arena_free(&p.arena);
  return status;
}

static copse_status find_last(void *ctx, const struct copse_schedule_hop *hop) {
  int *last = ctx;
  if (hop->step > *last) *last = hop->step;
  return COPSE_OK;
}

copse_status copse_schedule_draw_stepper(const struct copse_schedule *schedule,
                                         const struct copse_topology *topology,
                                         const struct copse_arrangement *arrangement,
                                         struct copse_text *text, struct copse_err *err) {
  struct copse_schedule_picture p = {.schedule = schedule, .topology = topology, .err = err};
  struct marking m = {.picture = &p};
  copse_status status;
  int last = 0;
  COPSE_TRY(start_part(&m, 0));
  for (int part = 0; part < copse_schedule_parts(schedule); part++)
    COPSE_TRY(copse_schedule_walk(schedule, part, find_last, &last, err));
  describe_part(&p, 0);
  p.title = copse_picture_format(&p, "%s of %s, step by step",
                                 copse_collective_name(schedule->collective), topology->name);
  p.subtitle = "a colour is a step from rank to rank; dark blue: the root";
  for (int i = 0; i < COPSE_LINK_HOPS && i < last; i++)
    copse_picture_explain(&p, COPSE_LEGEND_LINK, COPSE_LINK_HOP + i,
                          copse_picture_format(&p, "step %d%s", i + 1, last_colour(i)));
  status = copse_picture_finish(&p, arrangement, true, text);
out:
  copse_arena_free(&p.arena);
  return status;
}
