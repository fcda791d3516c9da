/* The rows of `copse run` as nccl-tests prints them, or as JSON. */
#include "cli/run_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/cli.h"

struct copse_run_report {
  const struct copse_run_options *options;
  const struct copse_plan *plan;
  uint64_t wrong;
  double busbw_sum;
  uint64_t n_busbw;
  uint64_t n_rows;
  struct copse_text json; /* the rows */
};

/* GB/s with GB = 1e9; a launch that took no measurable time has none. */
static double algbw(const struct copse_run_row *row, const struct copse_run_result *result) {
  return result->us > 0 ? (double)row->size / 1e3 / result->us : 0;
}

/* nccl-tests' factors from algorithm to bus bandwidth. */
static double bus_factor(const struct copse_plan_header *h) {
  double n = h->n_ranks;
  switch ((copse_collective)h->collective) {
    case COPSE_ALLREDUCE: return 2 * (n - 1) / n;
    case COPSE_BROADCAST:
    case COPSE_REDUCE: return 1;
    default: return (n - 1) / n;
  }
}

static const char *redop_name(const struct copse_run_report *report, enum copse_redop redop) {
  bool reduces = copse_collective_reduces((copse_collective)report->plan->header.collective);
  return reduces ? copse_redop_name(redop) : "none";
}

static void print_head(const struct copse_run_report *report) {
  const struct copse_plan_header *h = &report->plan->header;
  const struct copse_run_options *o = report->options;
  printf("# copse run: %s, %u ranks, %u workers, topology ",
         copse_collective_name((copse_collective)h->collective), h->n_ranks, h->n_workers);
  for (const char *p = report->plan->name; *p; p++) putchar((unsigned char)*p < ' ' ? '?' : *p);
  printf(", backend %s\n", copse_run_backend_name(o->backend));
  printf("# minBytes %llu maxBytes %llu step: %llu(%s) warmup iters: %u iters: %u validation: %u\n",
         (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes,
         (unsigned long long)(o->step_bytes ? o->step_bytes : (uint64_t)o->step_factor),
         o->step_bytes ? "bytes" : "factor", o->warmup_iters, o->iters, o->checks);
  printf("#\n");
  printf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place\n", "",
         "", "", "", "");
  printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size", "count",
         "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
         "#wrong");
  printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)",
         "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  fflush(stdout);
}

copse_status copse_run_report_new(const struct copse_run_options *options,
                                  const struct copse_plan *plan, struct copse_run_report **out,
                                  struct copse_err *err) {
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  (*out)->options = options;
  (*out)->plan = plan;
  if (!options->json) print_head(*out);
  return COPSE_OK;
}

void copse_run_report_free(struct copse_run_report *report) {
  if (!report) return;
  copse_text_free(&report->json);
  free(report);
}

/* As many decimals, up to two, as the width has room for. */
static const char *fit(double value, int width, char text[32]) {
  for (int decimals = 2; decimals >= 0; decimals--)
    if (snprintf(text, 32, "%*.*f", width, decimals, value) <= width) return text;
  snprintf(text, 32, width >= 7 ? "%*.1e" : "%*.0e", width, value);
  return text;
}

static void print_result(const struct copse_run_report *report, const struct copse_run_row *row,
                         const struct copse_run_result *result) {
  char us[32], alg[32], bus[32];
  if (!result->was_run) {
    printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  double bandwidth = algbw(row, result);
  printf("  %7s  %6s  %6s", fit(result->us, 7, us), fit(bandwidth, 6, alg),
         fit(bandwidth * bus_factor(&report->plan->header), 6, bus));
  if (report->options->checks > 0)
    printf("  %6g", (double)result->wrong);
  else
    printf("  %6s", "N/A");
}

static void print_row(const struct copse_run_report *report, const struct copse_run_row *row) {
  printf("%12llu  %12llu  %8s  %6s  %6d", (unsigned long long)row->size,
         (unsigned long long)row->count, copse_type_name(row->type), redop_name(report, row->redop),
         report->plan->header.root);
  print_result(report, row, &row->out_of_place);
  print_result(report, row, &row->in_place);
  printf("\n");
  fflush(stdout); /* rows are watched, and kept when a later one fails */
}

static void add_json_result(struct copse_run_report *report, const char *key,
                            const struct copse_run_row *row,
                            const struct copse_run_result *result) {
  struct copse_text *json = &report->json;
  if (!result->was_run) {
    copse_text_add(json, ", \"%s\": null", key);
    return;
  }
  double bandwidth = algbw(row, result);
  copse_text_add(json, ", \"%s\": {\"time_us\": %s, \"algbw_GBps\": %s, \"busbw_GBps\": %s", key,
                 COPSE_CLI_NUMBER(result->us), COPSE_CLI_NUMBER(bandwidth),
                 COPSE_CLI_NUMBER(bandwidth * bus_factor(&report->plan->header)));
  if (report->options->checks > 0)
    copse_text_add(json, ", \"wrong\": %llu}", (unsigned long long)result->wrong);
  else
    copse_text_add(json, ", \"wrong\": null}");
}

static void add_json_row(struct copse_run_report *report, const struct copse_run_row *row) {
  struct copse_text *json = &report->json;
  copse_text_add(json, "%s\n  {\"size\": %llu, \"count\": %llu", report->n_rows ? "," : "",
                 (unsigned long long)row->size, (unsigned long long)row->count);
  copse_text_add(json, ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %d",
                 copse_type_name(row->type), redop_name(report, row->redop),
                 report->plan->header.root);
  add_json_result(report, "out_of_place", row, &row->out_of_place);
  add_json_result(report, "in_place", row, &row->in_place);
  copse_text_add(json, "}");
}

void copse_run_report_add(struct copse_run_report *report, const struct copse_run_row *row) {
  const struct copse_run_result *halves[] = {&row->out_of_place, &row->in_place};
  for (int i = 0; i < 2; i++) {
    if (!halves[i]->was_run) continue;
    report->wrong += halves[i]->wrong;
    report->busbw_sum += algbw(row, halves[i]) * bus_factor(&report->plan->header);
    report->n_busbw++;
  }
  if (report->options->json)
    add_json_row(report, row);
  else
    print_row(report, row);
  report->n_rows++;
}

static copse_status print_json(struct copse_run_report *report, double busbw,
                               struct copse_err *err) {
  const struct copse_plan_header *h = &report->plan->header;
  struct copse_text text = {0};
  copse_text_add(&text, "{\"collective\": \"%s\", \"nranks\": %u, \"topology\": ",
                 copse_collective_name((copse_collective)h->collective), h->n_ranks);
  copse_text_add_json_string(&text, report->plan->name);
  copse_text_add(&text, ", \"backend\": \"%s\", \"workers\": %u, \"results\": [",
                 copse_run_backend_name(report->options->backend), h->n_workers);
  if (report->json.data) copse_text_append(&text, report->json.data, report->json.size);
  copse_text_add(&text, "],\n \"out_of_bounds\": %llu, \"avg_busbw_GBps\": %s}\n",
                 (unsigned long long)report->wrong, COPSE_CLI_NUMBER(busbw));
  if (report->json.failed) text.failed = true;
  return copse_cli_print(&text, err);
}

copse_status copse_run_report_end(struct copse_run_report *report, uint64_t *wrong,
                                  struct copse_err *err) {
  double busbw = report->n_busbw ? report->busbw_sum / (double)report->n_busbw : 0;
  copse_status status = COPSE_OK;
  *wrong = report->wrong;
  if (report->options->json) {
    status = print_json(report, busbw, err);
  } else {
    printf("# Out of bounds values : %llu %s\n", (unsigned long long)report->wrong,
           report->wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", busbw);
  }
  if (status == COPSE_OK && (fflush(stdout) != 0 || ferror(stdout)))
    status = copse_fail(err, COPSE_IO, "cannot write to standard output");
  return status;
}
