/* Every allocation of what copse rings and copse tune make fails once: it must say so and free what
 * it has. */
#include <string.h>

#include "nccl/best.h"
#include "nccl/judge.h"
#include "nccl/model.h"
#include "nccl/tune/order.h"
#include "nccl/tune/texts.h"
#include "nccl/tune/topo_write.h"
#include "support/failing_malloc.h"
#include "support/libxml_aside.h"
#include "support/support.h"
#include "verify/rings.h"

static struct copse_topology *topology;
static struct copse_nccl_graphs graphs;

/* Two GPUs of two hosts, a ring and a chain each. */
static void prepare(void) {
  static uint64_t devs[] = {0, 1};
  static struct copse_nccl_channel channel = {.n_gpus = 2, .n_nets = 2, .devs = devs};
  struct copse_err err = COPSE_ERR_INIT;
  for (int id = 0; id < 2; id++) {
    graphs.present[id] = true;
    graphs.graph[id] = (struct copse_nccl_graph_search){.id = id,
                                                        .pattern = id == 0 ? 4 : 1,
                                                        .n_channels = 1,
                                                        .speed_intra = {20, 1},
                                                        .speed_inter = {20, 1},
                                                        .latency_inter = {0, 1},
                                                        .channels = &channel};
  }
  ASSERT_OK(
      copse_topology_synthetic("hosts:4 gpus:2@300 nics:1@25 torus:2x2@25", NULL, &topology, &err),
      &err);
}

static copse_status make_table(struct copse_err *err) {
  const struct copse_nccl_model model = {
      .graphs = &graphs, .nodes = 2, .ranks = 4, .sm = 80, .channels = 2};
  struct copse_tuner_table table = {0}, again = {0};
  struct copse_text text = {0};
  copse_status status = copse_nccl_choose_rules(&model, COPSE_TUNER_ALLREDUCE, &table, err);
  copse_tuner_table_print(&table, 0, &text);
  if (status == COPSE_OK) status = copse_text_status(&text, err);
  if (status == COPSE_OK) status = copse_tuner_table_parse("t", text.data, text.size, &again, err);
  copse_text_free(&text);
  copse_tuner_table_free(&table);
  copse_tuner_table_free(&again);
  return status;
}

static copse_status make_order(struct copse_err *err) {
  struct copse_arena arena = {0};
  struct copse_nccl_machine machine;
  struct copse_nccl_order order;
  copse_status status = copse_nccl_machine_open(topology, &machine, err);
  if (status == COPSE_OK) status = copse_nccl_order_hosts(&machine, &arena, &order, err);
  copse_nccl_machine_free(&machine);
  copse_arena_free(&arena);
  return status;
}

static copse_status make_variables(struct copse_err *err) {
  struct copse_text text = {0};
  struct copse_nccl_machine machine;
  struct copse_nccl_joined joined = {0};
  copse_status status = copse_nccl_machine_open(topology, &machine, err);
  if (status == COPSE_OK) status = copse_nccl_join("g", &(const struct copse_nccl_graphs *){&graphs}, 1, &machine, &joined, err);
  if (status == COPSE_OK) status = copse_rccl_rings(&graphs, 4, &text, err);
  if (status == COPSE_OK) status = copse_rccl_trees(&joined, 2, &text, err);
  copse_nccl_joined_free(&joined);
  copse_nccl_machine_free(&machine);
  copse_text_free(&text);
  return status;
}

static copse_status make_xml(int which, struct copse_err *err) {
  static const char xml[] =
      "<system version='1'><cpu numaid='0' arch='x86_64'><pci busid='1'/>"
      "</cpu></system>";
  const struct copse_nccl_topo_options options = {0};
  char *text = NULL;
  size_t size;
  copse_status status = which == 0 ? copse_nccl_graphs_write(&graphs, 4, 23007, &text, &size, err)
                        : which == 1
                            ? copse_nccl_topo_write(topology, &options, &text, &size, err)
                            : copse_nccl_topo_mend("t", xml, strlen(xml), NULL, &text, &size, err);
  ck_assert((status == COPSE_OK) == (text != NULL));
  free(text);
  return status;
}

/* The best rings and chains, their certificate, and its proof. */
static copse_status make_rings(struct copse_err *err) {
  const struct copse_nccl_best_options options = {.max_channels = 2};
  struct copse_nccl_best best;
  struct copse_verify_rings_report report;
  char *text = NULL;
  size_t size;
  copse_status status = copse_nccl_best_find(topology, &options, &best, err);
  if (status == COPSE_OK) status = copse_nccl_best_to_json(&best, topology, &text, &size, err);
  if (status == COPSE_OK) status = copse_verify_rings("r", text, size, topology, &report, err);
  copse_nccl_best_free(&best);
  free(text);
  return status;
}

static copse_status make(int which, struct copse_err *err) {
  if (which < 3) return make_xml(which, err);
  if (which == 6) return make_rings(err);
  return which == 3 ? make_table(err) : which == 4 ? make_order(err) : make_variables(err);
}

START_TEST(a_failed_allocation_is_reported_and_leaks_nothing) {
  if (!REPLACES_MALLOC) COPSE_SKIP("malloc can't be replaced under a sanitizer");
  struct copse_err warm = COPSE_ERR_INIT;
  set_libxml_aside();
  prepare();
  ASSERT_OK(make(_i, &warm), &warm);
  long failures = 0;
  for (long n = 0;; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    long before = live;
    until_failure = n;
    copse_status status = make(_i, &err);
    bool reached = until_failure < 0;
    until_failure = -1;
    ck_assert_msg(live == before, "allocation %ld: %ld blocks leaked", n, live - before);
    /* cJSON doesn't say that it lacks memory, and here the next allocation has some again */
    bool said = status == COPSE_NOMEM || strstr(err.text, "not valid JSON");
    ck_assert_msg(status == COPSE_OK || said, "allocation %ld: %s", n, err.text);
    if (!reached) break;
    failures += status != COPSE_OK;
  }
  ck_assert_int_gt(failures, 0);
  copse_topology_free(topology);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("tune/out_of_memory");
  TCase *t = tcase_create("memory");
  tcase_add_loop_test(t, a_failed_allocation_is_reported_and_leaks_nothing, 0, 7);
  suite_add_tcase(suite, t);
  return copse_test_run(suite);
}
