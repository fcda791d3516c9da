#include "view/draw_schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "view/draw_internal.h"
#include "schedule/loads.h"

/* ---- what all pictures share -------------------------------------------------------------------
 */

copse_status copse_picture_start(struct copse_schedule_picture *p) {
  const struct copse_schedule *s = p->schedule;
  const struct copse_topology *t = p->topology;
  bool same = s->n_nodes == t->n_nodes && s->n_ranks == t->n_ranks && s->n_rotations == 0;
  for (int v = 0; same && v < t->n_nodes; v++) same = strcmp(s->nodes[v], t->nodes[v].id) == 0;
  if (!same) return copse_fail(p->err, COPSE_INVALID, "the schedule is not of this topology");
  p->links = copse_arena_alloc(&p->arena, (size_t)t->n_links, sizeof *p->links);
  p->nodes = copse_arena_alloc(&p->arena, (size_t)t->n_nodes, sizeof *p->nodes);
  return p->links && p->nodes ? COPSE_OK : copse_fail_nomem(p->err);
}

const char *copse_picture_format(struct copse_schedule_picture *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  char *text = n < 0 ? NULL : copse_arena_alloc(&p->arena, (size_t)n + 1, 1);
  if (!text) {
    p->failed = true;
    return "";
  }
  va_start(ap, fmt);
  vsnprintf(text, (size_t)n + 1, fmt, ap);
  va_end(ap);
  return text;
}

void copse_picture_explain(struct copse_schedule_picture *p, int kind, int style,
                           const char *text) {
  if (p->n_legend == COPSE_PICTURE_LEGEND) return;
  struct copse_legend_entry *entry = &p->legend[p->n_legend++];
  memset(entry, 0, sizeof *entry);
  entry->kind = kind;
  entry->style = style;
  entry->text = text;
}

copse_status copse_picture_finish(struct copse_schedule_picture *p,
                                  const struct copse_arrangement *arrangement, bool inlined,
                                  struct copse_text *text) {
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

/* ---- loads -------------------------------------------------------------------------------------
 */

static const struct {
  int percent; /* more than this of the time */
  const char *text;
} levels[COPSE_LINK_LOADS] = {
    {-1, "idle"},    {0, "to 25 %"},      {25, "to 50 %"},
    {50, "to 75 %"}, {75, "below 100 %"}, {100, "100 %: the bottleneck"},
};

/* How a link's load compares with the time: the last level is exact. */
static copse_status level_of(const struct copse_schedule_picture *p, struct copse_q seconds,
                             int *level) {
  struct copse_q part;
  copse_status status;
  *level = 0;
  if (seconds.num == 0) return COPSE_OK;
  COPSE_TRY(copse_q_div(seconds, p->schedule->time_per_GB, &part, p->err));
  *level = COPSE_LINK_LOADS - 1;
  while (*level > 1 &&
         (*level == COPSE_LINK_LOADS - 1
              ? copse_q_cmp(part, COPSE_Q_ONE) < 0
              : copse_q_cmp(part, (struct copse_q){levels[*level].percent, 100}) <= 0))
    --*level;
out:
  return status;
}

static copse_status mark_loads(struct copse_schedule_picture *p, const struct copse_q *loads) {
  int counts[COPSE_LINK_LOADS] = {0};
  copse_status status = COPSE_OK;
  for (int i = 0; i < p->topology->n_links; i++) {
    char load[COPSE_DRAW_QUANTITY], time[COPSE_DRAW_QUANTITY];
    struct copse_q seconds;
    int level;
    COPSE_TRY(copse_q_div(loads[i], p->topology->links[i].bandwidth, &seconds, p->err));
    COPSE_TRY(level_of(p, seconds, &level));
    counts[level]++;
    p->links[i].style = COPSE_LINK_LOAD + level;
    p->links[i].note =
        copse_picture_format(p, "load %s, takes %s", copse_draw_quantity(loads[i], "of M", load),
                             copse_draw_quantity(seconds, "s/GB", time));
  }
  for (int level = COPSE_LINK_LOADS - 1; level >= 0; level--)
    if (counts[level] > 0)
      copse_picture_explain(
          p, COPSE_LEGEND_LINK, COPSE_LINK_LOAD + level,
          copse_picture_format(p, "%s \xc3\x97 %d", levels[level].text, counts[level]));
out:
  return status;
}

/* ---- the bound ---------------------------------------------------------------------------------
 */

static copse_status mark_inside(struct copse_schedule_picture *p, const int *cut, int n,
                                bool **inside) {
  *inside = copse_arena_alloc(&p->arena, (size_t)p->topology->n_nodes, sizeof **inside);
  if (!*inside) return copse_fail_nomem(p->err);
  for (int i = 0; i < n; i++) (*inside)[cut[i]] = true;
  return COPSE_OK;
}

/* Links that leave the set, or enter it where a reduction is bounded. */
static void glow(struct copse_schedule_picture *p, const bool *inside, bool entering) {
  const struct copse_topology *t = p->topology;
  struct copse_q through = COPSE_Q_ZERO;
  char text[COPSE_DRAW_QUANTITY];
  bool exact = true;
  int n = 0;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (inside[l->src] == entering || inside[l->dst] != entering) continue;
    p->links[i].glow = true;
    n++;
    exact = exact && copse_q_add(through, l->bandwidth, &through, NULL) == COPSE_OK;
  }
  copse_picture_explain(
      p, COPSE_LEGEND_GLOW, 0,
      copse_picture_format(p, "across the cut%s: %s, links \xc3\x97 %d",
                           p->schedule->collective == COPSE_ALLREDUCE
                               ? entering ? " of the reduction" : " of the broadcast"
                               : "",
                           exact ? copse_draw_quantity(through, "GB/s", text) : "", n));
}

static copse_status mark_cut(struct copse_schedule_picture *p) {
  const struct copse_bound *bound = &p->schedule->bound;
  const struct copse_topology *t = p->topology;
  bool *inside, *reduce_inside;
  int ranks = 0;
  copse_status status;
  if (bound->n_cut == 0) return COPSE_OK; /* a single rank */
  COPSE_TRY(mark_inside(p, bound->cut, bound->n_cut, &inside));
  for (int r = 0; r < t->n_ranks; r++) ranks += inside[t->rank_nodes[r]];
  bool smaller = 2 * ranks <= t->n_ranks;
  for (int v = 0; v < t->n_nodes; v++) p->nodes[v].ring = inside[v] == smaller;
  copse_picture_explain(p, COPSE_LEGEND_RING, 0,
                        copse_picture_format(p, "one side of the cut: %d of %d ranks",
                                             smaller ? ranks : t->n_ranks - ranks, t->n_ranks));
  bool reduces = copse_collective_reduces(p->schedule->collective);
  glow(p, inside, reduces && p->schedule->collective != COPSE_ALLREDUCE);
  if (bound->kind != COPSE_BOUND_PHASES) return COPSE_OK;
  COPSE_TRY(mark_inside(p, bound->reduce_cut, bound->n_reduce_cut, &reduce_inside));
  glow(p, reduce_inside, true);
out:
  return status;
}

static void mark_lengths(struct copse_schedule_picture *p) {
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
  copse_picture_explain(
      p, COPSE_LEGEND_GLOW, 0,
      copse_picture_format(p, "of the greatest length in the bound \xc3\x97 %d", n));
}

static void describe_load(struct copse_schedule_picture *p) {
  const struct copse_schedule *s = p->schedule;
  char time[COPSE_DRAW_QUANTITY], bound[COPSE_DRAW_QUANTITY], rate[COPSE_RATE_TEXT];
  p->title = copse_picture_format(p, "%s of %s: load of the links",
                                  copse_collective_name(s->collective), p->topology->name);
  p->subtitle = copse_picture_format(
      p, "%s, %s; bound %s: %s", copse_draw_quantity(s->time_per_GB, "s/GB", time),
      copse_rate_text(s->time_per_GB, 6, rate),
      copse_draw_quantity(s->bound.time_per_GB, "s/GB", bound),
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
  struct copse_schedule_picture p = {.schedule = schedule, .topology = topology, .err = err};
  copse_status status;
  COPSE_TRY(copse_picture_start(&p));
  struct copse_q *loads = copse_arena_alloc(&p.arena, (size_t)topology->n_links, sizeof *loads);
  if (!loads) {
    status = copse_fail_nomem(err);
    goto out;
  }
  if (schedule->collective == COPSE_ALLTOALL)
    COPSE_TRY(copse_flow_loads(topology, schedule->flows, schedule->n_flows, loads, err));
  else
    COPSE_TRY(copse_tree_loads(topology, schedule->trees, (size_t)schedule->n_trees, loads, err));
  COPSE_TRY(mark_loads(&p, loads));
  if (schedule->bound.kind == COPSE_BOUND_LENGTHS)
    mark_lengths(&p);
  else
    COPSE_TRY(mark_cut(&p));
  describe_load(&p);
  status = copse_picture_finish(&p, arrangement, inlined, text);
out:
  copse_arena_free(&p.arena);
  return status;
}
