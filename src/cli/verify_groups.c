#include "cli/verify_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "verify/groups.h"

bool copse_cli_is_groups(const char *path) {
  char *data = NULL;
  size_t size;
  struct stat st;
  /* what can be read only once is a schedule: an index has others beside it */
  if (strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  if (copse_file_read(path, &data, &size, NULL) != COPSE_OK) return false;
  bool is = copse_groups_is_index(data, size);
  free(data);
  return is;
}

static void print_text(const struct copse_groups *groups, const struct copse_topology *t,
                       const struct copse_verify_groups_report *r) {
  char time[COPSE_Q_TEXT], bound[COPSE_Q_TEXT];
  int64_t trees = 0, flows = 0;
  for (int g = 0; g < groups->n; g++) {
    const struct copse_schedule *s = groups->members[g].schedule;
    trees += s->n_trees * copse_schedule_images(s);
    flows += s->n_flows * copse_schedule_images(s);
  }
  printf("%d groups of %s: verified, %" PRId64 " trees and %" PRId64 " flows\n", groups->n, t->name,
         trees, flows);
  printf("all at the same time %s s/GB (%.10g GB/s each), bound %s s/GB: ",
         copse_q_text(r->time_per_GB, time), 1 / copse_q_to_double(r->time_per_GB),
         copse_q_text(r->bound, bound));
  if (r->optimal)
    printf("optimal among all trees and flows of these groups that run together\n");
  else
    printf("above it by %.3g %%\n",
           100 * (copse_q_to_double(r->time_per_GB) / copse_q_to_double(r->bound) - 1));
  if (r->busiest_src >= 0)
    printf("most loaded: %s -> %s\n", t->nodes[r->busiest_src].id, t->nodes[r->busiest_dst].id);
}

static void print_json(const struct copse_groups *groups,
                       const struct copse_verify_groups_report *r) {
  char time[COPSE_Q_TEXT], bound[COPSE_Q_TEXT];
  printf(
      "{\"verified\": true, \"groups\": %d, \"time_per_GB\": \"%s\", \"bound_time_per_GB\": "
      "\"%s\", \"groups_optimal\": %s, \"same_topology\": %s}\n",
      groups->n, copse_q_text(r->time_per_GB, time), copse_q_text(r->bound, bound),
      r->optimal ? "true" : "false", r->same_topology ? "true" : "false");
}

int copse_cli_verify_groups(const char *path, struct copse_cli_topology *args, bool json) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_groups *groups = NULL;
  struct copse_topology *topology = NULL;
  struct copse_verify_groups_report report;
  copse_status status;
  COPSE_TRY(copse_groups_load(path, &groups, &err));
  COPSE_TRY(copse_cli_load_topology(args, &topology, &err));
  COPSE_TRY(copse_verify_groups(groups, topology, copse_file_label(path), &report, &err));
  if (!report.same_topology)
    copse_note(&copse_cli_notes,
               "%s was made for another topology than %s; it is checked against the one given",
               copse_file_label(path), copse_cli_topology_label(args));
  if (json)
    print_json(groups, &report);
  else
    print_text(groups, topology, &report);
out:
  if (json && status == COPSE_REFUTED) copse_cli_print_refuted("verified", &err);
  copse_groups_release(groups);
  copse_topology_release(topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}
