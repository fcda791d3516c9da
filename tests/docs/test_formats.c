/*
 * docs/schemas says what the readers accept, and what the tool writes: examples and outputs are
 * valid by their schemas, and of each file damaged in many ways schema and reader think the same.
 * The schemas are followed by the Python package jsonschema (tests/docs/schemas.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "predict/overlap.h"
#include "schedule/demand.h"
#include "schedule/groups.h"
#include "schedule/placement/place.h"
#include "schedule/schedule.h"
#include "support/command.h"
#include "support/support.h"
#include "topology/input/profile.h"
#include "topology/topology.h"
#include "verify/rings.h"

#define EXAMPLES "docs/examples/"
#define NO_JSONSCHEMA 77
#define NEEDS_JSONSCHEMA "schemas: python3 has no jsonschema (apt-get install python3-jsonschema)"

/* ---- readers, all alike -------------------------------------------------------------------- */

typedef copse_status reader(const char *label, const char *data, size_t size,
                            struct copse_err *err);

static const char *const catalogue[] = {"topologies", NULL};
static const struct copse_topology_options options = {.catalogue = catalogue};

static copse_status read_topology(const char *label, const char *data, size_t size,
                                  struct copse_err *err) {
  struct copse_topology *t = NULL;
  copse_status status = copse_topology_parse(label, data, size, &options, &t, err);
  copse_topology_free(t);
  return status;
}

static copse_status read_profile(const char *label, const char *data, size_t size,
                                 struct copse_err *err) {
  struct copse_profile *profile = NULL;
  copse_status status = copse_profile_parse(label, data, size, &profile, err);
  copse_profile_free(profile);
  return status;
}

static copse_status read_demand(const char *label, const char *data, size_t size,
                                struct copse_err *err) {
  int64_t *bytes = NULL;
  copse_status status = copse_demand_parse(label, data, size, 4, &bytes, err);
  free(bytes);
  return status;
}

static copse_status read_trace(const char *label, const char *data, size_t size,
                               struct copse_err *err) {
  struct copse_trace trace = {0};
  copse_status status = copse_trace_parse(label, data, size, 0, 0, &trace, err);
  copse_trace_free(&trace);
  return status;
}

static copse_status read_compute(const char *label, const char *data, size_t size,
                                 struct copse_err *err) {
  struct copse_compute compute;
  struct copse_compute_point *points = NULL;
  copse_status status = copse_compute_parse(label, data, size, &compute, &points, err);
  free(points);
  return status;
}

static copse_status read_schedule(const char *label, const char *data, size_t size,
                                  struct copse_err *err) {
  struct copse_schedule *s = NULL;
  copse_status status = copse_schedule_parse(label, data, size, &s, err);
  copse_schedule_free(s);
  return status;
}

/* An index names files beside it, so it is read from a file there. */
static copse_status read_groups(const char *label, const char *data, size_t size,
                                struct copse_err *err) {
  struct copse_groups *groups = NULL;
  struct copse_err ignored = COPSE_ERR_INIT;
  char path[4200];
  (void)label;
  snprintf(path, sizeof path, "%s/groups/variant.json", copse_test_folder());
  ASSERT_OK(copse_file_write(path, data, size, &ignored), &ignored);
  copse_status status = copse_groups_load(path, &groups, err);
  copse_groups_release(groups);
  return status;
}

#define RAILS "hosts:2 gpus:2@300 nics:2@25 rails"
static struct copse_topology *rails; /* whose rings they are */

static copse_status read_rings(const char *label, const char *data, size_t size,
                               struct copse_err *err) {
  struct copse_verify_rings_report report;
  return copse_verify_rings(label, data, size, rails, &report, err);
}

/* ---- schemas and readers ------------------------------------------------------------------- */

/* Files that are read: examples, and what the command makes in the test's folder. */
static const struct {
  const char *file, *made_by;
  reader *read;
  int least; /* so many variants at least, of all */
} inputs[] = {
    {EXAMPLES "topology.json", NULL, read_topology, 150},
    {EXAMPLES "synthetic.json", NULL, read_topology, 25},
    {EXAMPLES "cluster.json", NULL, read_topology, 80},
    {EXAMPLES "cluster-rails.json", NULL, read_topology, 60},
    {EXAMPLES "cluster-clos.json", NULL, read_topology, 80},
    {EXAMPLES "cluster-dragonfly.json", NULL, read_topology, 80},
    {EXAMPLES "cluster-torus.json", NULL, read_topology, 80},
    {EXAMPLES "cluster-mixed.json", NULL, read_topology, 100},
    {EXAMPLES "cluster-ibnetdiscover.json", NULL, read_topology, 60},
    {EXAMPLES "cluster-slurm.json", NULL, read_topology, 60},
    {EXAMPLES "profile.json", NULL, read_profile, 150},
    {EXAMPLES "demand.json", NULL, read_demand, 50},
    {EXAMPLES "trace.json", NULL, read_trace, 100},
    {EXAMPLES "compute.json", NULL, read_compute, 60},
    {EXAMPLES "compute-line.json", NULL, read_compute, 25},
    {"trees.json", "@ solve " EXAMPLES "topology.json -c allreduce -o %/trees.json", read_schedule,
     120},
    {"flows.json",
     "@ solve " EXAMPLES "topology.json -c alltoall --no-forward --demand " EXAMPLES
     "demand.json -o %/flows.json",
     read_schedule, 90},
    {"forests.json",
     "@ solve " EXAMPLES "topology.json -c allreduce --derate gpu1=0.4 -o %/forests.json",
     read_schedule, 120},
    {"compact.json", "@ solve dgx-h100 -c allgather --compact -o %/compact.json", read_schedule,
     90},
    {"stages.json", "@ solve --synthetic full:4@100 -c allreduce --objective 1K -o %/stages.json",
     read_schedule, 90},
    {"groups/index.json",
     "@ solve " EXAMPLES "topology.json -c allreduce --groups " EXAMPLES "groups.txt -o %/groups",
     read_groups, 80},
    {"rings.json", "@ rings --synthetic '" RAILS "' -o %/rings.json", read_rings, 80},
};

#define N_INPUTS (sizeof inputs / sizeof *inputs)

static bool is_about_shape(const char *message) {
  static const char *const words[] = {"unknown key", " needs \"", "\" must be ",
                                      "must not be negative", "\" is missing"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strstr(message, words[i])) return true;
  return false;
}

/* Whether the key is one of a list: not an id, as those of lengths are, nor what decides on the
 * list. */
static bool is_listed(const char *what, const char *key) {
  return !strstr(what, "lengths/") && strcmp(key, "format") != 0 && strcmp(key, "type") != 0 &&
         strcmp(key, "collective") != 0;
}

/* A line of schemas.py variants. Whatever the schema refuses the reader refuses, in one line; what
 * the reader refuses for its shape, not for what it says, the schema refuses. Messages name the
 * key, and of a misspelt one the right one. Returns the input. */
static int compare(char *line) {
  struct copse_err err = COPSE_ERR_INIT;
  char *fields[4], *rest = line;
  for (int i = 0; i < 4; i++) ck_assert_ptr_nonnull(fields[i] = strsep(&rest, "\t"));
  int input = atoi(fields[0]);
  const char *file = inputs[input].file, *what = fields[2], *data = fields[3];
  copse_status status = inputs[input].read(file, data, strlen(data), &err);
  char key[80], near[120];
  size_t colon = strcspn(what, ":"), at = colon;
  while (at > 0 && what[at - 1] != '/') at--;
  snprintf(key, sizeof key, "%.*s", (int)(colon - at), what + at);
  snprintf(near, sizeof near, "did you mean \"%s\"?", key);
  bool names_key = key[0] && !strchr("0123456789", key[0]) && !strstr(what, "lengths/");
  if (strcmp(what + colon, ": misspelt") == 0 && is_listed(what, key))
    ck_assert_msg(strstr(err.text, near) != NULL, "%s: %s: %s", file, what, err.text);
  else if (fields[1][0] == '0' && names_key)
    ck_assert_msg(strstr(err.text, key) != NULL, "%s: %s: %s", file, what, err.text);
  if (fields[1][0] == '0')
    ck_assert_msg(status == COPSE_BAD_INPUT || status == COPSE_REFUTED || status == COPSE_IO,
                  "%s: %s: the schema refuses what the reader accepts (%s)", file, what, err.text);
  else
    ck_assert_msg(status == COPSE_OK || !is_about_shape(err.text),
                  "%s: %s: the schema accepts what the reader refuses: %s", file, what, err.text);
  ck_assert_ptr_null(strchr(err.text, '\n'));
  return input;
}

START_TEST(schemas_and_readers_agree_on_what_is_damaged) {
  int n[N_INPUTS] = {0};
  struct copse_text files = {0};
  for (size_t i = 0; i < N_INPUTS; i++) {
    copse_text_add(&files, " %s%s", inputs[i].made_by ? "%/" : "", inputs[i].file);
    if (inputs[i].made_by && copse_test_command("%s", inputs[i].made_by) != 0)
      ck_abort_msg("%s: %s", inputs[i].made_by, copse_test_result.err);
  }
  int status = copse_test_command("python3 tests/docs/schemas.py variants %s", files.data);
  copse_text_free(&files);
  if (status == NO_JSONSCHEMA) COPSE_SKIP(NEEDS_JSONSCHEMA);
  ck_assert_msg(status == 0, "%s", copse_test_result.err);
  char *rest = copse_test_result.out;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_synthetic(RAILS, NULL, &rails, &err), &err);
  for (char *line; (line = strsep(&rest, "\n")) && *line;) n[compare(line)]++;
  for (size_t i = 0; i < N_INPUTS; i++)
    ck_assert_msg(n[i] * (copse_test_all() ? 1 : 6) >= inputs[i].least, "%s: %d variants",
                  inputs[i].file, n[i]);
  copse_topology_free(rails);
}
END_TEST

/* ---- what the tool writes ------------------------------------------------------------------ */

#define TOPOLOGY EXAMPLES "topology.json"
static const char *const outputs[] = {
    "@ topo " TOPOLOGY " -o %/topo.json --json >%/a.json=report-topo",
    "@ topo --list --json >%/a.json=report-topo",
    "@ topo a100-x2 --ids nic --json >%/a.json=report-topo",
    "@ topo a100-x2 --matrix --json >%/a.json=report-topo",
    "! @ topo nothing.json --json >%/a.json=report-error",
    "@ solve " TOPOLOGY " -c allgather -o %/s.json --json >%/a.json=report-solve",
    "@ solve " TOPOLOGY " -c alltoall -o %/f.json --json >%/a.json=report-solve",
    "@ solve " TOPOLOGY " -c allreduce --groups " EXAMPLES
    "groups.txt -o %/g --json >%/a.json=report-solve",
    "@ solve " TOPOLOGY " -c allgather --pareto --json >%/a.json=report-solve",
    "@ solve " TOPOLOGY " -c allgather --bound-only --json >%/a.json=report-solve",
    "@ solve " TOPOLOGY " -c allgather --each-failure nic -o %/failures --json >%/a.json=written",
    "@ verify %/s.json -t " TOPOLOGY " --json >%/a.json=report-verify",
    "@ verify %/f.json -t " TOPOLOGY " --json >%/a.json=report-verify",
    "@ verify %/g/index.json -t " TOPOLOGY " --json >%/a.json=report-verify",
    "@ lower %/s.json --to plan -o %/s.plan --json >%/a.json=report-lower",
    "@ lower %/s.json --to plan --text -o %/a.json=written",
    "@ check %/s.plan --json >%/a.json=report-check",
    "@ lower %/s.json --to msccl -o %/s.xml --json >%/a.json=report-lower",
    "@ check %/s.xml --json >%/a.json=report-check",
    "@ lower %/s.json --to mscclpp -o %/spp.json --json >%/a.json=report-lower",
    "@ check %/spp.json --json >%/a.json=report-check",
    "@ expand %/s.json -o %/expanded.json --json >%/a.json=report-expand",
    "@ report " TOPOLOGY " -c allreduce -o %/r.html --json >%/a.json=report-report",
    "@ report " TOPOLOGY " ring-8 -c allreduce -o %/r --json >%/a.json=report-report",
    "@ solve --synthetic 'hosts:2 gpus:2@300 nics:2@25 rails' -c allgather --down h0.nic0 "
    "--predict --json >%/a.json=report-solve",
    "@ solve hgx-a100-4 -c allgather --objective 1M --json >%/a.json=report-solve",
    "! @ verify %/s.json -t a100-x2 --json >%/a.json=report-verify",
    "@ run %/s.plan -b 64 -e 64 -n 1 --json >%/a.json=report-run",
    "@ run %/s.plan -b 4K -e 16M -f 4096 --backend threads --topology " TOPOLOGY
    " --write-profile %/p.json --json >%/a.json=report-run",
    "@ simulate %/s.json -t " TOPOLOGY " -b 1M -e 1M --json >%/a.json=report-simulate",
    "@ simulate %/f.json -t " TOPOLOGY " --overlap tokens=16384,token-bytes=8192,compute=" EXAMPLES
    "compute.json --json >%/a.json=report-simulate",
    "@ place --demand " EXAMPLES "trace.json -t " TOPOLOGY
    " -o %/placement.json --json >%/a.json=report-place",
    "@ place --generate --experts 8 --ranks 4 --steps 1 -o %/a.json=written",
    "@ plans --search 0.05 " TOPOLOGY " -c broadcast -o %/plans --json >%/a.json=written",
    "@ simulate %/plans -t " TOPOLOGY " --json >%/a.json=report-simulate",
    "@ rings " EXAMPLES "cluster-rails.json -o %/r.json --json >%/a.json=report-rings",
    "@ tune " EXAMPLES "cluster-rails.json -o %/tuned --json >%/a.json=report-tune",
    "@ verify %/r.json -t " EXAMPLES "cluster-rails.json --json >%/a.json=report-verify",
    "@ audit " EXAMPLES "nccl-topology.xml --json >%/a.json=report-audit",
    "@ quality " TOPOLOGY " -c allgather --table %/quality.txt --update=",
    "@ quality " TOPOLOGY " -c allgather --table %/quality.txt --json >%/a.json=report-quality",
};

/* Each command, then all that it made that is not read back above. */
START_TEST(what_the_tool_writes_is_valid) {
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    const char *equals = strrchr(outputs[i], '=');
    int n = (int)(equals - outputs[i]);
    int status = copse_test_command("%.*s", n, outputs[i]);
    /* A busy machine's times may tell nothing, and are refused. */
    for (int tries = 0; tries < 10 && status != 0 && strstr(copse_test_result.err, "times");
         tries++)
      status = copse_test_command("%.*s", n, outputs[i]);
    ck_assert_msg(status == 0, "%s: %s", outputs[i], copse_test_result.err);
    if (equals[1]) copse_test_command("mv %%/a.json %%/%zu.json", i);
  }
  struct copse_text files = {0};
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    const char *name = strrchr(outputs[i], '=') + 1;
    if (*name) copse_text_add(&files, " %%/%zu.json=%s", i, name);
  }
  int status = copse_test_command(
      "python3 tests/docs/schemas.py check %s %%/topo.json %%/s.json=written %%/f.json=written "
      "%%/g/index.json=written "
      "%%/failures/index.json=written %%/placement.json=written %%/plans/index.json=written "
      "%%/r.json=written %%/p.json=written " EXAMPLES "*.json",
      files.data);
  copse_text_free(&files);
  if (status == NO_JSONSCHEMA) COPSE_SKIP(NEEDS_JSONSCHEMA);
  ck_assert_msg(status == 0, "%s%s", copse_test_result.out, copse_test_result.err);
}
END_TEST

START_TEST(the_page_has_every_key_of_every_schema) {
  int status = copse_test_command("python3 tests/docs/schemas.py page docs/formats.md");
  if (status == NO_JSONSCHEMA) COPSE_SKIP(NEEDS_JSONSCHEMA);
  ck_assert_msg(status == 0, "%s%s", copse_test_result.out, copse_test_result.err);
}
END_TEST

/* ---- copse topo --example ------------------------------------------------------------------ */

START_TEST(an_example_is_printed_and_works) {
  static const char *const uses[][2] = {
      {"topology.json", "@ topo %/topology.json"},
      {"synthetic.json", "@ topo %/synthetic.json"},
      {"cluster.json", "@ topo %/cluster.json"},
      {"cluster-rails.json", "@ topo %/cluster-rails.json"},
      {"cluster-clos.json", "@ topo %/cluster-clos.json"},
      {"cluster-dragonfly.json", "@ topo %/cluster-dragonfly.json"},
      {"cluster-torus.json", "@ topo %/cluster-torus.json"},
      {"cluster-mixed.json", "@ topo %/cluster-mixed.json"},
      {"profile.json", "@ topo %/topology.json --profile %/profile.json"},
      {"demand.json", "@ solve %/topology.json -c alltoall --demand %/demand.json"},
      {"groups.txt", "@ solve %/topology.json -c allreduce --groups %/groups.txt"},
      {"trace.json", "@ place --demand %/trace.json -t %/topology.json"},
      {"compute.json", "@ topo --list"}, /* what_the_tool_writes_is_valid uses it */
  };
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
    int kind = (int)strcspn(uses[i][0], ".");
    ck_assert_int_eq(copse_test_command("@ topo --example %.*s | cmp - " EXAMPLES "%s", kind,
                                        uses[i][0], uses[i][0]),
                     0);
    copse_test_command("@ topo --example %.*s -o %%/%s", kind, uses[i][0], uses[i][0]);
    ck_assert_msg(copse_test_command("%s", uses[i][1]) == 0, "%s: %s", uses[i][1],
                  copse_test_result.err);
  }
  copse_test_all_refused(
      (const char *const[][2]){{"topo --example clutser", "did you mean cluster?"},
                               {"topo --example x", "no example of 'x'; there are "},
                               {"topo --example cluster dgx-h100", "--example takes a kind"}},
      3);
}
END_TEST

int main(void) {
  copse_test_folder();
  Suite *suite = suite_create("docs/formats");
  TCase *tc = tcase_create("formats");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, schemas_and_readers_agree_on_what_is_damaged);
  tcase_add_test(tc, what_the_tool_writes_is_valid);
  tcase_add_test(tc, the_page_has_every_key_of_every_schema);
  tcase_add_test(tc, an_example_is_printed_and_works);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
