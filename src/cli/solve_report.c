#include "cli/solve_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/types.h"
#include "base/clock.h"
#include "base/text.h"

static void add_cut(struct copse_text *text, const struct copse_schedule *s, const int *cut,
                    int n) {
  copse_text_add(text, "[");
  for (int i = 0; i < n; i++) {
    if (i > 0) copse_text_add(text, ", ");
    copse_text_add_json_string(text, s->nodes[cut[i]]);
  }
  copse_text_add(text, "]");
}

static const char *const bound_kinds[] = {"cut", "phases", "lengths", "forests"};

static int count_paths(const struct copse_schedule *s) {
  int n = 0;
  for (int f = 0; f < s->n_flows; f++) n += s->flows[f].n_paths;
  return n;
}

copse_status copse_cli_solve_print_json(const struct copse_cli_solve_report *r,
                                        struct copse_err *err) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  const struct copse_cli_solve_seconds *sec = &r->seconds;
  struct copse_text text = {0};
  char time[COPSE_Q_TEXT], bound[COPSE_Q_TEXT];
  copse_text_add(&text, "{\"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n",
                 copse_collective_name(s->collective), t->n_ranks, t->n_nodes, t->n_links);
  copse_text_add(&text,
                 " \"time_per_GB\": \"%s\", \"algbw_GBps\": ", copse_q_text(s->time_per_GB, time));
  copse_text_add_json_number(&text, copse_schedule_algbw(s));
  copse_text_add(&text, ", \"bound_time_per_GB\": \"%s\", \"bound_kind\": \"%s\",\n",
                 copse_q_text(s->bound.time_per_GB, bound), bound_kinds[s->bound.kind]);
  if (r->bound_only)
    copse_text_add(&text, " \"k\": null, \"trees\": null, \"max_height\": null,\n");
  else if (s->collective == COPSE_ALLTOALL)
    copse_text_add(&text,
                   " \"k\": null, \"trees\": null, \"flows\": %d, \"images\": %" PRId64
                   ", \"paths\": %d, "
                   "\"max_height\": %d,\n",
                   s->n_flows, copse_schedule_images(s), count_paths(s), copse_schedule_height(s));
  else
    copse_text_add(&text,
                   " \"k\": %" PRId64 ", \"trees\": %d, \"images\": %" PRId64
                   ", \"max_height\": %d, \"mean_height\": %.6g,\n",
                   s->k, s->n_trees, copse_schedule_images(s), copse_schedule_height(s),
                   copse_schedule_mean_height(s));
  if (sec->solve.orbits > 0) copse_text_add(&text, " \"orbits\": %d,\n", sec->solve.orbits);
  copse_text_add(&text, " \"cut\": ");
  add_cut(&text, s, s->bound.cut, s->bound.n_cut);
  if (s->bound.kind == COPSE_BOUND_PHASES) {
    copse_text_add(&text, ",\n \"reduce_cut\": ");
    add_cut(&text, s, s->bound.reduce_cut, s->bound.n_reduce_cut);
  }
  copse_cli_add_healthy(&text, &r->healthy);
  copse_cli_add_objective(&text, r->objective);
  copse_cli_add_prediction(&text, &r->prediction);
  copse_text_add(
      &text,
      ",\n \"seconds\": {\"read\": %.6f, \"optimum\": %.6f, \"split\": %.6f, \"pack\": "
      "%.6f, \"verify\": %.6f, \"write\": %.6f, \"total\": %.6f},\n \"peak_MiB\": %ld}\n",
      sec->read, sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->write,
      sec->total, copse_peak_mib());
  copse_status status = copse_text_status(&text, err);
  if (status == COPSE_OK) fputs(text.data, stdout);
  copse_text_free(&text);
  return status;
}

/* The smaller side of the cut, by ranks: what a reader looks for on the machine. */
static void print_cut(const struct copse_topology *t, const struct copse_schedule *s) {
  char *inside = calloc((size_t)t->n_nodes, 1);
  int ranks_inside = 0, shown = 0;
  if (!inside) return;
  for (int i = 0; i < s->bound.n_cut; i++) inside[s->bound.cut[i]] = 1;
  for (int r = 0; r < t->n_ranks; r++) ranks_inside += inside[t->rank_nodes[r]];
  bool show_inside = 2 * ranks_inside <= t->n_ranks;
  int ranks = show_inside ? ranks_inside : t->n_ranks - ranks_inside;
  bool reduces = copse_collective_reduces(s->collective) && s->collective != COPSE_ALLREDUCE;
  struct copse_q through = COPSE_Q_ZERO;
  bool exact = true;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    bool crosses = reduces ? !inside[l->src] && inside[l->dst] : inside[l->src] && !inside[l->dst];
    if (crosses && copse_q_add(through, l->bandwidth, &through, NULL) != COPSE_OK) exact = false;
  }
  printf("bottleneck: the links %s", show_inside == reduces ? "into" : "out of");
  for (int r = 0; r < t->n_ranks; r++) {
    if ((bool)inside[t->rank_nodes[r]] != show_inside) continue;
    if (shown < 8) printf("%s%s", shown ? ", " : " ", t->nodes[t->rank_nodes[r]].id);
    shown++;
  }
  if (shown > 8) printf(", ... (%d ranks)", ranks);
  if (exact) printf(": %.10g GB/s", copse_q_to_double(through));
  printf("\n");
  free(inside);
}

/* The links that bound an alltoall: those of the greatest length. */
static void print_busy_lengths(const struct copse_topology *t, const struct copse_schedule *s) {
  struct copse_q most = COPSE_Q_ZERO;
  int n = 0, first = -1;
  for (int i = 0; i < s->bound.n_lengths; i++)
    if (copse_q_cmp(s->bound.lengths[i].length, most) > 0) most = s->bound.lengths[i].length;
  for (int i = 0; i < s->bound.n_lengths; i++) {
    if (!copse_q_eq(s->bound.lengths[i].length, most)) continue;
    if (n++ == 0) first = i;
  }
  if (first < 0) return;
  printf("bottleneck: %s -> %s", s->nodes[s->bound.lengths[first].src],
         s->nodes[s->bound.lengths[first].dst]);
  if (n > 1) printf(" and %d links like it", n - 1);
  printf(" (%d of %d links count in the bound)\n", s->bound.n_lengths, t->n_links);
}

/* How good it is, and by which bound. */
static void print_standing(const struct copse_schedule *s, bool bound_only) {
  char bound[COPSE_Q_TEXT];
  bool equal = copse_q_eq(s->time_per_GB, s->bound.time_per_GB);
  copse_q_text(s->bound.time_per_GB, bound);
  if (s->bound.kind == COPSE_BOUND_PHASES && equal)
    printf("reduce_scatter and allgather, equal shares, each at its bound%s\n",
           bound_only ? "; overlapped they may be faster" : "");
  else if (s->bound.kind == COPSE_BOUND_FORESTS && equal)
    printf("optimal among all reduce and broadcast forests with common shares, run together\n");
  else if (equal)
    printf("optimal: equal to the bound\n");
  else if (s->collective == COPSE_ALLREDUCE && s->bound.kind == COPSE_BOUND_CUT)
    printf(
        "reduce_scatter and allgather load different links, so they are faster than in turn;\n"
        "no allreduce is faster than %s s/GB\n",
        bound);
  else
    printf("bound: %s s/GB; this is %.3g %% above it\n", bound,
           100 * (copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1));
}

static void print_flows(const struct copse_cli_solve_report *r) {
  const struct copse_schedule *s = r->schedule;
  const struct copse_cli_solve_seconds *sec = &r->seconds;
  print_busy_lengths(r->topology, s);
  if (!r->bound_only)
    printf("%d flows%s over %d paths, at most %d hops\n", s->n_flows,
           s->n_rotations > 0 ? " of base ranks" : "", count_paths(s), copse_schedule_height(s));
  if (!r->bound_only && s->n_rotations > 0)
    printf("the others are their images under a rotation of order %d\n", s->rotations[0].order);
  printf("seconds: flow %.3f, paths %.3f, verify %.3f, total %.3f\n", sec->solve.optimum,
         sec->solve.pack, sec->verify, sec->total);
}

static void print_trees(const struct copse_cli_solve_report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  const struct copse_cli_solve_seconds *sec = &r->seconds;
  if (s->bound.kind == COPSE_BOUND_FORESTS)
    printf("bottleneck: %d cuts, of both phases\n", s->bound.n_cuts);
  else
    print_cut(t, s);
  if (sec->solve.orbits > 0 && sec->solve.orbits < t->n_ranks)
    printf("symmetry: the %d ranks are of %d kind%s\n", t->n_ranks, sec->solve.orbits,
           sec->solve.orbits == 1 ? "" : "s");
  if (!r->bound_only)
    printf("k = %" PRId64 ", %d trees%s, at most %d hops high, %.3g on average\n", s->k, s->n_trees,
           s->n_rotations > 0 ? " of base ranks" : "", copse_schedule_height(s),
           copse_schedule_mean_height(s));
  if (!r->bound_only && s->n_rotations > 0)
    printf("the others are their images under %d symmetr%s: %" PRId64 " trees in all\n",
           s->n_rotations, s->n_rotations == 1 ? "y" : "ies",
           s->n_trees * copse_schedule_images(s));
  if (s->n_copying + s->n_adding > 0)
    printf("the time counts on %d switches to copy, on %d to add, which no plan can ask of them\n",
           s->n_copying, s->n_adding);
  printf("seconds: optimum %.3f, split %.3f, pack %.3f, verify %.3f, total %.3f\n",
         sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->total);
}

void copse_cli_solve_print_text(const struct copse_cli_solve_report *r) {
  const struct copse_topology *t = r->topology;
  const struct copse_schedule *s = r->schedule;
  char time[COPSE_Q_TEXT], rate[COPSE_RATE_TEXT];
  printf("%s of %s: %s s/GB, %s\n", copse_collective_name(s->collective), t->name,
         copse_q_text(s->time_per_GB, time), copse_rate_text(s->time_per_GB, 10, rate));
  if (t->n_ranks == 1) {
    printf("a single rank: nothing moves\n");
  } else {
    print_standing(s, r->bound_only);
    copse_cli_print_healthy(&r->healthy);
    if (s->collective == COPSE_ALLTOALL)
      print_flows(r);
    else
      print_trees(r);
  }
  copse_cli_print_objective(r->objective);
  copse_cli_print_prediction(&r->prediction);
}
