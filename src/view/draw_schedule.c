/* Pictures of a schedule on its topology: the load of the links with the bound, and one tree, or
 * all that one rank sends, hop by hop. */
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "schedule/loads.h"
#include "view/draw_schedule.h"

#define LEGEND_ENTRIES 24

struct picture {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  struct copse_link_mark *links; /* [n_links], faint at first */
  struct copse_node_mark *nodes;
  const char *title, *subtitle;
  struct copse_legend_entry legend[LEGEND_ENTRIES];
  int n_legend;
  bool failed;  /* memory ran out */
  int *percent; /* [n_links] of the time, for loads */
  /* of a part: its hops, how many have each colour, and how many cross each link */
  struct copse_schedule_hops hops;
  int counts[COPSE_LINK_HOPS], *uses; /* [n_links] */
  struct copse_arena arena;
  struct copse_err *err;
};

/* ---- what all pictures share -------------------------------------------------------------- */

/* Makes the marks, and checks that the schedule's nodes are the topology's. */
static copse_status start_picture(struct picture *p) {
  const struct copse_schedule *s = p->schedule;
  const struct copse_topology *t = p->topology;
  bool same = s->n_nodes == t->n_nodes && s->n_ranks == t->n_ranks && s->n_rotations == 0;
  for (int v = 0; same && v < t->n_nodes; v++) same = strcmp(s->nodes[v], t->nodes[v].id) == 0;
  if (!same) return copse_fail(p->err, COPSE_INVALID, "the schedule is not of this topology");
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)t->n_links, p->links, p->err));
  return COPSE_ARRAY(&p->arena, (size_t)t->n_nodes, p->nodes, p->err);
}

/* A text in the arena; "" when memory ran out, which finish_picture reports. */
#define picture_text(p, ...) keep_text((p), copse_arena_printf(&(p)->arena, __VA_ARGS__))
static const char *keep_text(struct picture *p, const char *text) {
  if (!text) p->failed = true;
  return text ? text : "";
}

static void free_picture(struct picture *p) {
  copse_schedule_hops_free(&p->hops);
  copse_arena_free(&p->arena);
}

static void explain(struct picture *p, int kind, int style, const char *text) {
  if (p->n_legend == LEGEND_ENTRIES) return;
  p->legend[p->n_legend++] =
      (struct copse_legend_entry){.kind = kind, .style = style, .text = text};
}

static copse_status finish_picture(struct picture *p, const struct copse_arrangement *arrangement,
                                   bool inlined, struct copse_text *text) {
  const struct copse_drawing drawing = {.topology = p->topology,
                                        .arrangement = arrangement,
                                        .title = p->title,
                                        .subtitle = p->subtitle,
                                        .directed = true,
                                        .links = p->links,
                                        .nodes = p->nodes,
                                        .legend = p->legend,
                                        .n_legend = p->n_legend};
  if (p->failed) return copse_fail_nomem(p->err);
  copse_draw(&drawing, inlined, text);
  return copse_text_status(text, p->err);
}

/* ---- loads -------------------------------------------------------------------------------- */

static const struct {
  int percent; /* more than this of the time */
  const char *text;
} levels[COPSE_LINK_LOADS] = {
    {-1, "idle"},    {0, "to 10 %"},  {10, "to 25 %"},     {25, "to 50 %"},
    {50, "to 75 %"}, {75, "to 90 %"}, {90, "below 100 %"}, {100, "100 %: the bottleneck"},
};

/* Finds how a link's load compares with the time: the last level is exact. */
static copse_status level_of(const struct picture *p, struct copse_q seconds, int *level) {
  struct copse_q part;
  *level = 0;
  if (seconds.num == 0) return COPSE_OK;
  COPSE_DO(copse_q_div(seconds, p->schedule->time_per_GB, &part, p->err));
  *level = COPSE_LINK_LOADS - 1;
  while (*level > 1 &&
         (*level == COPSE_LINK_LOADS - 1
              ? copse_q_cmp(part, COPSE_Q_ONE) < 0
              : copse_q_cmp(part, (struct copse_q){levels[*level].percent, 100}) <= 0))
    --*level;
  return COPSE_OK;
}

#define NUMBERED 6 /* of the busiest links */

/* Labels the busiest links with their share of the time, the busiest first. */
static void number_busiest(struct picture *p) {
  int n = 0;
  for (int level = COPSE_LINK_LOADS - 1; level > 0; level--)
    for (int i = 0; i < p->topology->n_links && n < NUMBERED; i++) {
      const struct copse_link *l = &p->topology->links[i];
      int back = copse_topology_find_link(p->topology, l->dst, l->src);
      if (p->links[i].style != COPSE_LINK_LOAD + level || (back >= 0 && p->links[back].label))
        continue;
      p->links[i].label = picture_text(p, "%d %%", p->percent[i]);
      n++;
    }
}

static copse_status mark_loads(struct picture *p, const struct copse_q *loads) {
  int counts[COPSE_LINK_LOADS] = {0};
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)p->topology->n_links, p->percent, p->err));
  for (int i = 0; i < p->topology->n_links; i++) {
    struct copse_q seconds;
    int level;
    COPSE_DO(copse_q_div(loads[i], p->topology->links[i].bandwidth, &seconds, p->err));
    COPSE_DO(level_of(p, seconds, &level));
    counts[level]++;
    p->links[i].style = COPSE_LINK_LOAD + level;
    p->percent[i] =
        level + 1 == COPSE_LINK_LOADS
            ? 100
            : (int)(100 * copse_q_to_double(seconds) / copse_q_to_double(p->schedule->time_per_GB));
    p->links[i].note = picture_text(p, "load %s, takes %s", COPSE_QUANTITY(loads[i], "of M"),
                                    COPSE_QUANTITY(seconds, "s/GB"));
  }
  number_busiest(p);
  for (int level = COPSE_LINK_LOADS - 1; level >= 0; level--)
    if (counts[level] > 0)
      explain(p, COPSE_LEGEND_LINK, COPSE_LINK_LOAD + level,
              picture_text(p, "%s \xc3\x97 %d", levels[level].text, counts[level]));
  return COPSE_OK;
}

/* ---- the bound ---------------------------------------------------------------------------- */

static copse_status mark_inside(struct picture *p, const int *cut, int n, bool **inside) {
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)p->topology->n_nodes, *inside, p->err));
  for (int i = 0; i < n; i++) (*inside)[cut[i]] = true;
  return COPSE_OK;
}

/* Marks links that leave the set, or enter it where a reduction is bounded. */
static void glow(struct picture *p, const bool *inside, bool entering) {
  const struct copse_topology *t = p->topology;
  double through = 0;
  int n = 0;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (inside[l->src] == entering || inside[l->dst] != entering) continue;
    p->links[i].glow = true;
    n++;
    through += copse_q_to_double(l->bandwidth);
  }
  explain(p, COPSE_LEGEND_GLOW, 0,
          picture_text(p, "across the cut%s: %.6g GB/s, links \xc3\x97 %d",
                       p->schedule->collective == COPSE_ALLREDUCE
                           ? entering ? " of the reduction" : " of the broadcast"
                           : "",
                       through, n));
}

static copse_status mark_cut(struct picture *p) {
  const struct copse_bound *bound = &p->schedule->bound;
  const struct copse_topology *t = p->topology;
  bool *inside, *reduce_inside;
  int ranks = 0;
  if (bound->n_cut == 0) return COPSE_OK; /* a single rank */
  COPSE_DO(mark_inside(p, bound->cut, bound->n_cut, &inside));
  for (int r = 0; r < t->n_ranks; r++) ranks += inside[t->rank_nodes[r]];
  bool smaller = 2 * ranks <= t->n_ranks;
  for (int v = 0; v < t->n_nodes; v++) p->nodes[v].ring = inside[v] == smaller;
  explain(p, COPSE_LEGEND_RING, 0,
          picture_text(p, "one side of the cut: %d of %d ranks",
                       smaller ? ranks : t->n_ranks - ranks, t->n_ranks));
  bool reduces = copse_collective_reduces(p->schedule->collective);
  glow(p, inside, reduces && p->schedule->collective != COPSE_ALLREDUCE);
  if (bound->kind != COPSE_BOUND_PHASES) return COPSE_OK;
  COPSE_DO(mark_inside(p, bound->reduce_cut, bound->n_reduce_cut, &reduce_inside));
  glow(p, reduce_inside, true);
  return COPSE_OK;
}

static void mark_lengths(struct picture *p) {
  const struct copse_bound *bound = &p->schedule->bound;
  struct copse_q most = COPSE_Q_ZERO;
  int n = 0;
  for (int i = 0; i < bound->n_lengths; i++)
    if (copse_q_cmp(bound->lengths[i].length, most) > 0) most = bound->lengths[i].length;
  for (int i = 0; i < bound->n_lengths; i++) {
    const struct copse_schedule_length *l = &bound->lengths[i];
    int link = copse_topology_find_link(p->topology, l->src, l->dst);
    if (link < 0 || !copse_q_eq(l->length, most)) continue;
    p->links[link].glow = true;
    n++;
  }
  explain(p, COPSE_LEGEND_GLOW, 0,
          picture_text(p, "of the greatest length in the bound \xc3\x97 %d", n));
}

static void describe_load(struct picture *p) {
  const struct copse_schedule *s = p->schedule;
  p->title = picture_text(p, "%s of %s: load of the links", copse_collective_name(s->collective),
                          p->topology->name);
  if (s->time_per_GB.num == 0) {
    p->subtitle = "nothing to send";
    return;
  }
  double algbw = copse_schedule_algbw(s);
  p->subtitle = picture_text(
      p, "algbw %.6g GB/s, busbw %.6g GB/s; %.6g s/GB, bound %.6g s/GB: %s", algbw,
      algbw * copse_collective_bus_factor(s->collective, s->n_ranks),
      copse_q_to_double(s->time_per_GB), copse_q_to_double(s->bound.time_per_GB),
      copse_q_eq(s->time_per_GB, s->bound.time_per_GB)
          ? s->bound.kind == COPSE_BOUND_PHASES    ? "both phases optimal"
            : s->bound.kind == COPSE_BOUND_FORESTS ? "optimal among forests with common shares"
                                                   : "optimal"
          : "not reached");
}

copse_status copse_schedule_draw_load(const struct copse_schedule *schedule,
                                      const struct copse_topology *topology,
                                      const struct copse_arrangement *arrangement, bool inlined,
                                      struct copse_text *text, struct copse_err *err) {
  COPSE_AT_END(free_picture)
  struct picture p = {.schedule = schedule, .topology = topology, .err = err};
  struct copse_q *loads;
  COPSE_DO(start_picture(&p));
  COPSE_DO(COPSE_ARRAY(&p.arena, (size_t)topology->n_links, loads, err));
  COPSE_DO(copse_schedule_loads(topology, schedule, loads, err));
  COPSE_DO(mark_loads(&p, loads));
  if (schedule->bound.kind == COPSE_BOUND_LENGTHS)
    mark_lengths(&p);
  else
    COPSE_DO(mark_cut(&p));
  describe_load(&p);
  return finish_picture(&p, arrangement, inlined, text);
}

/* ---- the hops of a part ---------------------------------------------------------------------- */

static copse_status add_hop(struct copse_schedule_hops *hops, struct copse_schedule_hop hop,
                            struct copse_err *err) {
  return COPSE_PUSH(hops->list, hops->n, hops->capacity, err, hop);
}

/* Finds the hops of a tree. A broadcast hop waits for the one that reached its source, a reduce hop
 * for all into it: both have been seen before, and `ready` has the last step into each rank. */
static copse_status find_tree_hops(const struct copse_schedule *s,
                                   const struct copse_schedule_tree *tree,
                                   struct copse_schedule_hops *hops, struct copse_err *err) {
  int *ready = hops->scratch;
  memset(ready, 0, (size_t)s->n_ranks * sizeof *ready);
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *e = &tree->edges[i];
    int step = ready[e->src] + 1;
    if (ready[e->dst] < step) ready[e->dst] = step;
    COPSE_DO(
        add_hop(hops, (struct copse_schedule_hop){e->src, e->dst, step, e->path, e->n_path}, err));
  }
  return COPSE_OK;
}

/* Finds the hops of a path, which is cut at the ranks that it goes through. */
static copse_status find_path_hops(const struct copse_schedule_path *path,
                                   struct copse_schedule_hops *hops, struct copse_err *err) {
  const int *rank_of = hops->scratch;
  int from = 0, step = 0;
  for (int i = 1; i < path->n_nodes; i++) {
    if (rank_of[path->nodes[i]] < 0) continue;
    COPSE_DO(
        add_hop(hops,
                (struct copse_schedule_hop){rank_of[path->nodes[from]], rank_of[path->nodes[i]],
                                            ++step, path->nodes + from, i - from + 1},
                err));
    from = i;
  }
  return COPSE_OK;
}

copse_status copse_schedule_hops_find(const struct copse_schedule *s, int part,
                                      struct copse_schedule_hops *hops, struct copse_err *err) {
  if (part < 0 || part >= copse_schedule_parts(s))
    return copse_fail(err, COPSE_INVALID, "there is no %s %d: they are from 0 to %d",
                      s->collective == COPSE_ALLTOALL ? "rank" : "tree", part,
                      copse_schedule_parts(s) - 1);
  hops->n = 0;
  if (!hops->scratch)
    COPSE_DO(copse_calloc((size_t)s->n_nodes, sizeof *hops->scratch, &hops->scratch, err));
  if (s->collective != COPSE_ALLTOALL) return find_tree_hops(s, &s->trees[part], hops, err);
  for (int v = 0; v < s->n_nodes; v++) hops->scratch[v] = -1;
  for (int r = 0; r < s->n_ranks; r++) hops->scratch[s->rank_nodes[r]] = r;
  for (int f = 0; f < s->n_flows; f++)
    for (int i = 0; s->flows[f].src == part && i < s->flows[f].n_paths; i++)
      COPSE_DO(find_path_hops(&s->flows[f].paths[i], hops, err));
  return COPSE_OK;
}

/* ---- the picture ----------------------------------------------------------------------------- */

static copse_status mark_hop(struct picture *p, const struct copse_schedule_hop *hop) {
  int colour = hop->step <= COPSE_LINK_HOPS ? hop->step - 1 : COPSE_LINK_HOPS - 1;
  p->counts[colour]++;
  for (int i = 0; i + 1 < hop->n_path; i++) {
    int link = copse_topology_find_link(p->topology, hop->path[i], hop->path[i + 1]);
    if (link < 0) return copse_fail(p->err, COPSE_INVALID, "a hop over a link that there isn't");
    if (p->uses[link]++ == 0) p->links[link].style = COPSE_LINK_HOP + colour;
    if (p->uses[link] > 1)
      p->links[link].note = picture_text(p, "%d hops over it", p->uses[link]);
    else
      p->links[link].note =
          picture_text(p, "step %d: rank %d to rank %d", hop->step, hop->src, hop->dst);
  }
  return COPSE_OK;
}

static void describe_part(struct picture *p, int part) {
  const struct copse_schedule *s = p->schedule;
  const char *collective = copse_collective_name(s->collective);
  if (s->collective == COPSE_ALLTOALL) {
    p->title = picture_text(p, "%s of %s: what rank %d sends", collective, p->topology->name, part);
    p->nodes[s->rank_nodes[part]].solid = true;
    p->subtitle = "each colour a step from rank to rank";
    return;
  }
  const struct copse_schedule_tree *tree = &s->trees[part];
  p->nodes[s->rank_nodes[tree->root]].solid = true;
  p->title =
      picture_text(p, "%s of %s: %s tree %d of %d", collective, p->topology->name,
                   tree->phase == COPSE_PHASE_REDUCE ? "reduce" : "broadcast", part, s->n_trees);
  p->subtitle =
      picture_text(p, "%s rank %d, carries %s", tree->phase == COPSE_PHASE_REDUCE ? "to" : "from",
                   tree->root, COPSE_QUANTITY(tree->weight, "of M"));
}

static copse_status start_part(struct picture *p, int part) {
  COPSE_DO(start_picture(p));
  COPSE_DO(COPSE_ARRAY(&p->arena, (size_t)p->topology->n_links, p->uses, p->err));
  COPSE_DO(copse_schedule_hops_find(p->schedule, part, &p->hops, p->err));
  for (size_t i = 0; i < p->hops.n; i++) COPSE_DO(mark_hop(p, &p->hops.list[i]));
  describe_part(p, part);
  return COPSE_OK;
}

static const char *last_colour(int i) { return i + 1 == COPSE_LINK_HOPS ? " and later" : ""; }

/* Explains the steps of one part, whose legend counts its hops. */
static void explain_steps(struct picture *p) {
  for (int i = 0; i < COPSE_LINK_HOPS && p->counts[i] > 0; i++)
    explain(p, COPSE_LEGEND_LINK, COPSE_LINK_HOP + i,
            picture_text(p, "step %d%s \xc3\x97 %d", i + 1, last_colour(i), p->counts[i]));
}

/* Explains the steps of the longest part, for the legend of all. */
static copse_status explain_all(struct picture *p) {
  int last = 0;
  for (int part = 0; part < copse_schedule_parts(p->schedule); part++) {
    COPSE_DO(copse_schedule_hops_find(p->schedule, part, &p->hops, p->err));
    for (size_t i = 0; i < p->hops.n; i++)
      if (p->hops.list[i].step > last) last = p->hops.list[i].step;
  }
  p->title = picture_text(p, "%s of %s, step by step",
                          copse_collective_name(p->schedule->collective), p->topology->name);
  p->subtitle = "a colour is a step from rank to rank; dark blue: the root";
  for (int i = 0; i < COPSE_LINK_HOPS && i < last; i++)
    explain(p, COPSE_LEGEND_LINK, COPSE_LINK_HOP + i,
            picture_text(p, "step %d%s", i + 1, last_colour(i)));
  return COPSE_OK;
}

copse_status copse_schedule_draw_part(const struct copse_schedule *schedule,
                                      const struct copse_topology *topology,
                                      const struct copse_arrangement *arrangement, int part,
                                      bool inlined, struct copse_text *text,
                                      struct copse_err *err) {
  COPSE_AT_END(free_picture)
  struct picture p = {.schedule = schedule, .topology = topology, .err = err};
  COPSE_DO(start_part(&p, part < 0 ? 0 : part));
  if (part < 0)
    COPSE_DO(explain_all(&p));
  else
    explain_steps(&p);
  return finish_picture(&p, arrangement, inlined, text);
}
