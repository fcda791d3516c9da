#include "cli/solve_pareto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/types.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/solve_checked.h"

struct row {
  int64_t k;
  struct copse_q time_per_GB;
  int trees, height;
  bool best; /* faster than with any fewer trees */
};

struct curve {
  const struct copse_topology *topology;
  struct copse_solve_options options;
  struct copse_q bound;
  int64_t exact_k;
  struct row *rows;
  int n;
};

static copse_status add_row(struct curve *c, int64_t k, struct copse_err *err) {
  struct copse_schedule *schedule = NULL;
  struct copse_solve_seconds ignored;
  struct row *row = &c->rows[c->n];
  copse_status status;
  c->options.k = k;
  COPSE_TRY(
      copse_cli_solve_checked(c->topology, &c->options, false, &schedule, &ignored, NULL, err));
  *row = (struct row){schedule->k, schedule->time_per_GB, schedule->n_trees,
                      copse_schedule_height(schedule), true};
  if (k == 0) {
    c->bound = schedule->bound.time_per_GB;
    c->exact_k = schedule->k;
  } else {
    c->n++;
  }
out:
  copse_schedule_release(schedule);
  return status;
}

static copse_status trace(struct curve *c, int64_t most, const struct copse_progress *progress,
                          struct copse_err *err) {
  struct row exact;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)most + 1, sizeof *c->rows, &c->rows, err));
  COPSE_TRY(add_row(c, 0, err));
  exact = c->rows[0];
  for (int64_t k = 1; k < exact.k && k <= most; k++) {
    COPSE_TRY(add_row(c, k, err));
    copse_progress_report(progress, "k", k, exact.k < most ? exact.k : most);
  }
  c->rows[c->n++] = exact;
  for (int i = 1; i < c->n; i++)
    for (int j = 0; j < i && c->rows[i].best; j++)
      c->rows[i].best = copse_q_cmp(c->rows[i].time_per_GB, c->rows[j].time_per_GB) < 0;
out:
  return status;
}

/* Over the bound, as a part of it. */
static double above(const struct curve *c, const struct row *row) {
  return copse_q_to_double(row->time_per_GB) / copse_q_to_double(c->bound) - 1;
}

static void print_table(const struct curve *c) {
  char text[COPSE_Q_TEXT];
  printf("%s of %s: bound %s s/GB, %.10g GB/s; the exact optimum is built with k = %" PRId64 "\n",
         copse_collective_name(c->options.collective), c->topology->name,
         copse_q_text(c->bound, text), 1 / copse_q_to_double(c->bound), c->exact_k);
  printf("%8s %22s %14s %10s %8s %7s\n", "k", "s/GB", "GB/s", "above", "trees", "height");
  for (int i = 0; i < c->n; i++) {
    const struct row *row = &c->rows[i];
    printf("%8" PRId64 " %22s %14.10g %8.3f %% %8d %7d%s\n", row->k,
           copse_q_text(row->time_per_GB, text), 1 / copse_q_to_double(row->time_per_GB),
           100 * above(c, row), row->trees, row->height, row->best ? "" : "  (fewer do as well)");
  }
}

static copse_status print_json(const struct curve *c, struct copse_err *err) {
  struct copse_text text = {0};
  char q[COPSE_Q_TEXT];
  copse_text_add(&text,
                 "{\"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n"
                 " \"bound_time_per_GB\": \"%s\", \"exact_k\": %" PRId64 ", \"rows\": [",
                 copse_collective_name(c->options.collective), c->topology->n_ranks,
                 c->topology->n_nodes, c->topology->n_links, copse_q_text(c->bound, q), c->exact_k);
  for (int i = 0; i < c->n; i++) {
    const struct row *row = &c->rows[i];
    copse_text_add(&text, "%s\n  {\"k\": %" PRId64 ", \"time_per_GB\": \"%s\", \"algbw_GBps\": ",
                   i > 0 ? "," : "", row->k, copse_q_text(row->time_per_GB, q));
    copse_text_add_json_number(&text, 1 / copse_q_to_double(row->time_per_GB));
    copse_text_add(&text, ", \"above_bound\": ");
    copse_text_add_json_number(&text, above(c, row));
    copse_text_add(&text, ", \"trees\": %d, \"max_height\": %d, \"pareto\": %s}", row->trees,
                   row->height, row->best ? "true" : "false");
  }
  copse_text_add(&text, "\n ]}\n");
  copse_status status = copse_text_status(&text, err);
  if (status == COPSE_OK) fputs(text.data, stdout);
  copse_text_free(&text);
  return status;
}

int copse_cli_solve_pareto(struct copse_cli_solve *args, bool json, bool show_progress) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, show_progress);
  struct curve c = {.options = args->solve};
  copse_status status;
  c.options.label = copse_cli_topology_label(&args->topology);
  COPSE_TRY(copse_cli_load_topology(&args->topology, &topology, &err));
  c.topology = topology;
  if (topology->n_ranks == 1) {
    status = copse_fail(&err, COPSE_INVALID, "%s has a single rank: nothing moves, and no trees",
                        c.options.label);
    goto out;
  }
  COPSE_TRY(trace(&c, args->solve.k > 0 ? args->solve.k : COPSE_CLI_PARETO_MOST, &progress, &err));
  copse_cli_progress_end(&bar);
  if (json)
    status = print_json(&c, &err);
  else
    print_table(&c);
out:
  if (status != COPSE_OK) copse_cli_progress_end(&bar);
  free(c.rows);
  copse_topology_release(topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(args, &err);
}
