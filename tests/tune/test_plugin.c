/*
 * The tuner plugin as NCCL drives it: loaded by dlopen, called through each version of the
 * interface as declared here, from the descriptions of these versions and not from the plugin's
 * header.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "nccl/tuner_table.h"
#include "support/command.h"
#include "support/support.h"

/* ---- the interface
 * ------------------------------------------------------------------------------- */

typedef void (*logger)(int level, unsigned long flags, const char *file, int line, const char *fmt,
                       ...);
struct v1 {
  const char *name;
  int (*init)(size_t ranks, size_t nodes, logger log);
  int (*get)(int coll, size_t bytes, int collnet, int nvls, int ops, int *algo, int *proto,
             int *channels);
  int (*destroy)(void);
};
struct v2 {
  const char *name;
  int (*init)(size_t ranks, size_t nodes, logger log, void **context);
  int (*get)(void *context, int coll, size_t bytes, int collnet, int nvls, int ops, int *algo,
             int *proto, int *channels);
  int (*destroy)(void *context);
};
struct v3 {
  const char *name;
  int (*init)(size_t ranks, size_t nodes, logger log, void **context);
  int (*get)(void *context, int coll, size_t bytes, int ops, float **costs, int n_algo, int n_proto,
             int *channels);
  int (*destroy)(void *context);
};
struct v4 {
  const char *name;
  int (*init)(size_t ranks, size_t nodes, logger log, void **context);
  int (*get)(void *context, int coll, size_t bytes, int ops, float **costs, int n_algo, int n_proto,
             int reg_buff, int *channels);
  int (*destroy)(void *context);
};
struct domains {
  int n, least, most;
};
struct constants {
  double base[7][3], hw[3][7][3], ll[4][3], ring_ll128[4][3], tree_ll128[4][3], tree[4][3],
      nvls_tree[4][3];
};
struct v6 { /* v5: without get_chunk_size */
  const char *name;
  int (*init)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, logger log,
              struct domains *domains, struct constants *constants);
  int (*get)(void *context, int coll, size_t bytes, int ops, float **costs, int n_algo, int n_proto,
             int reg_buff, int *channels);
  int (*finalize)(void *context);
  int (*get_chunk_size)(void *context, int coll, size_t bytes, int algo, int proto, int channels,
                        size_t *chunk);
};

enum { BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLREDUCE };
enum { TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT };
enum { LL, LL128, SIMPLE };

/* ---- a stand-in for NCCL
 * ------------------------------------------------------------------------- */

static char logged[4096];
static int warnings, lines;

static void take_log(int level, unsigned long flags, const char *file, int line, const char *fmt,
                     ...) {
  va_list ap;
  size_t used = strlen(logged);
  (void)flags, (void)file, (void)line;
  va_start(ap, fmt);
  vsnprintf(logged + used, sizeof logged - used, fmt, ap);
  va_end(ap);
  warnings += level == 2;
  lines++;
}

static void *library;

static const void *symbol(const char *name) {
  if (!library) {
    char path[600];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 40);
    ck_assert_int_gt(n, 0);
    path[n] = '\0';
    for (int up = 0; up < 3; up++) *strrchr(path, '/') = '\0'; /* tests/tune/test_plugin */
    strcat(path, "/libnccl-tuner-copse.so");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
  }
  const void *found = dlsym(library, name);
  ck_assert_msg(found != NULL, "no %s", name);
  return found;
}

/* Writes the table and names it, as env.sh does. */
static void use_table(const char *text) {
  char path[600];
  copse_test_write("tuner.csv", text);
  snprintf(path, sizeof path, "%s/tuner.csv", copse_test_folder());
  setenv("NCCL_TUNER_CONFIG_FILE", path, 1);
  logged[0] = '\0';
  warnings = lines = 0;
}

/* A choice, as NCCL makes it of what the plugin leaves: the pair of the least cost. */
struct choice {
  int algo, proto, channels;
};

static struct choice cheapest(const float *costs, int n_algo, int n_proto, int channels) {
  struct choice c = {-1, -1, channels};
  float least = 1e30f;
  for (int i = 0; i < n_algo * n_proto; i++) {
    if (costs[i] < 0 || costs[i] >= least) continue;
    least = costs[i];
    c.algo = i / n_proto;
    c.proto = i % n_proto;
  }
  return c;
}

/* Versions 3 to 6 over a table of 7 algorithms, or so many; ring and simple are NCCL's choice. */
struct asked {
  int version, coll;
  size_t bytes;
  int ranks, nodes, ops, reg;
  int n_algo;                      /* 0: 7 */
  int without_algo, without_proto; /* a pair that NCCL can't use; 0, 0: tree, ll is there too */
  bool no_pair;
};

static int call_table(const struct asked *q, void *context, float **costs, int n_algo,
                      int *channels) {
  char name[40];
  snprintf(name, sizeof name, "ncclTunerPlugin_v%d", q->version);
  const void *plugin = symbol(name);
  if (q->version == 3)
    return ((const struct v3 *)plugin)
        ->get(context, q->coll, q->bytes, q->ops, costs, n_algo, 3, channels);
  if (q->version == 4)
    return ((const struct v4 *)plugin)
        ->get(context, q->coll, q->bytes, q->ops, costs, n_algo, 3, q->reg, channels);
  return ((const struct v6 *)plugin)
      ->get(context, q->coll, q->bytes, q->ops, costs, n_algo, 3, q->reg, channels);
}

static void *begin(const struct asked *q) {
  char name[40];
  void *context = NULL;
  struct domains domains = {1, 8, 8};
  struct constants constants;
  struct constants before;
  memset(&constants, 7, sizeof constants);
  before = constants;
  snprintf(name, sizeof name, "ncclTunerPlugin_v%d", q->version);
  const void *plugin = symbol(name);
  size_t ranks = (size_t)q->ranks, nodes = (size_t)q->nodes;
  if (q->version < 5)
    ck_assert_int_eq(((const struct v4 *)plugin)->init(ranks, nodes, take_log, &context), 0);
  else
    ck_assert_int_eq(((const struct v6 *)plugin)
                         ->init(&context, 99, ranks, nodes, take_log, &domains, &constants),
                     0);
  ck_assert_mem_eq(&constants, &before, sizeof before);
  return context;
}

static void end(const struct asked *q, void *context) {
  char name[40];
  snprintf(name, sizeof name, "ncclTunerPlugin_v%d", q->version);
  const void *plugin = symbol(name);
  if (q->version < 5)
    ck_assert_int_eq(((const struct v4 *)plugin)->destroy(context), 0);
  else
    ck_assert_int_eq(((const struct v6 *)plugin)->finalize(context), 0);
}

/* The costs end at the end of the block: ASan sees what goes beyond. */
static struct choice ask(const struct asked *q) {
  int n_algo = q->n_algo ? q->n_algo : 7, channels = 0;
  float *costs = malloc(sizeof(float) * (size_t)n_algo * 3);
  ck_assert_ptr_nonnull(costs);
  for (int i = 0; i < n_algo * 3; i++) costs[i] = 100;
  costs[RING * 3 + SIMPLE] = 50;
  if (q->no_pair) costs[q->without_algo * 3 + q->without_proto] = -1;
  void *context = begin(q);
  ck_assert_int_eq(call_table(q, context, (float **)costs, n_algo, &channels), 0);
  struct choice c = cheapest(costs, n_algo, 3, channels);
  end(q, context);
  free(costs);
  return c;
}

static void assert_choice(struct choice c, int algo, int proto, int channels) {
  ck_assert_int_eq(c.algo, algo);
  ck_assert_int_eq(c.proto, proto);
  ck_assert_int_eq(c.channels, channels);
}

static const char table[] =
    "# colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n"
    "allreduce,0,65536,tree,ll,4,-1,-1,-1,-1\n"
    "\n"
    "allreduce,65537,8388608,tree,ll128,16,2,16\r\n"
    "allreduce,65537,8388608,nvls,simple,-1,1,8,-1\n"
    "allreduce,8388609,18446744073709551615,ring,ll128,0,-1,-1,3,1\n"
    "allgather,0,18446744073709551615,pat,simple,2,-1,-1,-1,-1\n"
    "allgather,0,18446744073709551615,ring,ll,0,-1,-1,-1,-1\n";

/* ---- versions 3 to 6
 * ----------------------------------------------------------------------------- */

START_TEST(every_version_with_costs_takes_the_first_rule_that_fits) {
  int v = _i;
  use_table(table);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 1024, 8, 1, 1, 0, 0, 0, 0, false}), TREE, LL, 4);
  ck_assert_msg(strstr(logged, "6 rules of ") != NULL, "%s", logged);
  ck_assert_int_eq(warnings, 0);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 65536, 8, 1, 1, 0, 0, 0, 0, false}), TREE, LL, 4);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 65537, 16, 2, 1, 0, 0, 0, 0, false}), TREE, LL128,
                16);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 65537, 8, 1, 1, 0, 0, 0, 0, false}), NVLS, SIMPLE,
                0);
  /* no rule: as it came */
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 65537, 32, 4, 1, 0, 0, 0, 0, false}), RING,
                SIMPLE, 0);
  assert_choice(ask(&(struct asked){v, BROADCAST, 1024, 8, 1, 1, 0, 0, 0, 0, false}), RING, SIMPLE,
                0);
  assert_choice(ask(&(struct asked){v, 17, 1024, 8, 1, 1, 0, 0, 0, 0, false}), RING, SIMPLE, 0);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, (size_t)-1, 8, 1, 3, 0, 0, 0, 0, false}), RING,
                SIMPLE, 0);
}
END_TEST

START_TEST(registration_is_compared_where_the_version_says_it) {
  int v = _i;
  use_table(table);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 1 << 24, 8, 1, 3, 1, 0, 0, 0, false}), RING,
                v == 3 ? SIMPLE : LL128, 0);
}
END_TEST

START_TEST(what_nccl_cannot_use_is_passed_over) {
  int v = _i;
  use_table(table);
  assert_choice(ask(&(struct asked){v, ALLGATHER, 5, 8, 1, 1, 0, 0, 0, 0, false}), PAT, SIMPLE, 2);
  assert_choice(ask(&(struct asked){v, ALLGATHER, 5, 8, 1, 1, 0, 0, PAT, SIMPLE, true}), RING, LL,
                0);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 1024, 8, 1, 1, 0, 0, TREE, LL, true}), RING,
                SIMPLE, 0);
}
END_TEST

START_TEST(fewer_algorithms_than_the_table_names_are_no_harm) {
  int v = _i;
  use_table(table);
  assert_choice(ask(&(struct asked){v, ALLGATHER, 5, 8, 1, 1, 0, 6, 0, 0, false}), RING, LL, 0);
  assert_choice(ask(&(struct asked){v, ALLREDUCE, 70000, 8, 1, 1, 0, 2, 0, 0, false}), RING, SIMPLE,
                0);
}
END_TEST

/* One table for the process: a communicator made after the file has changed answers as the others.
 */
START_TEST(communicators_share_one_table) {
  struct asked q = {_i, ALLREDUCE, 1024, 8, 1, 1, 0, 0, 0, 0, false};
  use_table(table);
  void *first = begin(&q);
  use_table("allreduce,0,65536,ring,ll,0,-1,-1\n");
  assert_choice(ask(&q), TREE, LL, 4);
  end(&q, first);
  assert_choice(ask(&q), RING, LL, 0);
}
END_TEST

START_TEST(the_sixth_leaves_chunks_alone) {
  ck_assert_ptr_null(((const struct v6 *)symbol("ncclTunerPlugin_v6"))->get_chunk_size);
}
END_TEST

/* ---- versions 1 and 2
 * ---------------------------------------------------------------------------- */

static struct choice ask_v2(int coll, size_t bytes, int ranks, int nodes, int collnet, int nvls) {
  const struct v2 *plugin = symbol("ncclTunerPlugin_v2");
  struct choice c = {-1, -1, 0};
  void *context = NULL;
  ck_assert_int_eq(plugin->init((size_t)ranks, (size_t)nodes, take_log, &context), 0);
  ck_assert_int_eq(
      plugin->get(context, coll, bytes, collnet, nvls, 1, &c.algo, &c.proto, &c.channels), 0);
  ck_assert_int_eq(plugin->destroy(context), 0);
  return c;
}

START_TEST(the_second_sets_only_what_nccl_surely_has) {
  use_table(table);
  assert_choice(ask_v2(ALLREDUCE, 1024, 8, 1, 0, 0), TREE, LL, 4);
  assert_choice(ask_v2(ALLREDUCE, 70000, 8, 1, 0, 1), NVLS, SIMPLE, 0);
  assert_choice(ask_v2(ALLREDUCE, 70000, 8, 1, 0, 0), -1, -1, 0);  /* no NVLS */
  assert_choice(ask_v2(ALLREDUCE, 70000, 16, 2, 0, 0), -1, -1, 0); /* LL128: unknown */
  assert_choice(ask_v2(ALLGATHER, 5, 8, 1, 0, 0), RING, LL, 0);    /* PAT: none yet */
  assert_choice(ask_v2(REDUCE, 5, 8, 1, 0, 0), -1, -1, 0);
  use_table("broadcast,0,9,tree,ll,4,-1,-1\nbroadcast,0,9,ring,simple,3,-1,-1\n");
  assert_choice(ask_v2(BROADCAST, 9, 8, 1, 1, 1), RING, SIMPLE, 3);
}
END_TEST

static struct choice ask_v1(int coll, size_t bytes) {
  const struct v1 *plugin = symbol("ncclTunerPlugin_v1");
  struct choice c = {-1, -1, 0};
  ck_assert_int_eq(plugin->get(coll, bytes, 0, 1, 1, &c.algo, &c.proto, &c.channels), 0);
  return c;
}

START_TEST(the_first_knows_no_communicator) {
  const struct v1 *plugin = symbol("ncclTunerPlugin_v1");
  use_table(table);
  ck_assert_int_eq(plugin->init(8, 1, take_log), 0);
  ck_assert_int_eq(plugin->init(16, 2, take_log), 0);
  assert_choice(ask_v1(ALLREDUCE, 1024), TREE, LL, 4);
  assert_choice(ask_v1(ALLREDUCE, 70000), -1, -1, 0);
  ck_assert_int_eq(plugin->destroy(), 0);
  assert_choice(ask_v1(ALLREDUCE, 1024), TREE, LL, 4);
  ck_assert_int_eq(plugin->destroy(), 0);
}
END_TEST

/* ---- tables that are none
 * ------------------------------------------------------------------------ */

static const struct {
  const char *text, *says;
} broken[] = {
    {"colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks\n", "begins with #"},
    {"allreduce,0,1,ring,simple,0,-1,-1\nAllReduces,0,1,ring,ll,0,-1,-1\n", ":2: colltype \"AllRed"},
    {"allreduce,0,1,rings,simple,0,-1,-1\n", ":1: algorithm \"rings\" is none of: tree ring"},
    {"allreduce,0,1,ring, simple,0,-1,-1\n", "protocol \" simple\""},
    {"allreduce,0,1,ring,simple,,-1,-1\n", "column 6 (channels) is empty"},
    {"allreduce,0,1,ring,simple,0,-1,-1,\n", "column 9"},
    {"allreduce,0,1,ring,simple,0,-1\n", "7 columns"},
    {"allreduce,0,1,ring,simple,0,-1,-1,-1,-1,any\n", "more than 10 columns"},
    {"allreduce,5,4,ring,simple,0,-1,-1\n", "minbytes 5 is more than maxbytes 4"},
    {"allreduce,-5,4,ring,simple,0,-1,-1\n", "minbytes \"-5\""},
    {"allreduce,0,18446744073709551616,ring,simple,0,-1,-1\n", "maxbytes"},
    {"allreduce,0,1K,ring,simple,0,-1,-1\n", "maxbytes \"1K\""},
    {"allreduce,0,1,ring,simple,4294967297,-1,-1\n", "channels"},
    {"allreduce,0,1,ring,simple,0,0,-1\n", "nNodes \"0\""},
    {"allreduce,0,1,ring,simple,0,-1,99999999999\n", "nRanks"},
    {"allreduce,0,1,ring,simple,0,-1,-1,-1,2\n", "regBuff \"2\""},
    {"allreduce,0,1,ring,simple,0,-1,-1\n\xff\xfe%n%s%n\n", "1 columns"},
    {",,,,,,,,,,,,,,,,\n", "column 1"},
};

START_TEST(a_broken_table_is_one_warning_and_no_rule) {
  struct asked q = {_i, ALLREDUCE, 1, 8, 1, 1, 0, 0, 0, 0, false};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    use_table(broken[i].text);
    if (_i == 2)
      assert_choice(ask_v2(ALLREDUCE, 1, 8, 1, 0, 0), -1, -1, 0);
    else
      assert_choice(ask(&q), RING, SIMPLE, 0);
    ck_assert_int_eq(warnings, 1);
    ck_assert_int_eq(lines, 1);
    ck_assert_msg(strstr(logged, broken[i].says) != NULL, "%zu: %s", i, logged);
    ck_assert_ptr_null(strchr(logged, '\n'));
  }
  use_table("All_Reduce,0,1,tree,ll,0,-1,-1\nreduce-scatter,0,1,ring,ll,0,-1,-1\n");
  if (_i == 2) /* collectives in any spelling */
    (void)ask_v2(ALLREDUCE, 1, 8, 1, 0, 0);
  else
    (void)ask(&q);
  ck_assert_int_eq(warnings, 0);
}
END_TEST

START_TEST(long_and_binary_tables_are_refused) {
  struct asked q = {4, ALLREDUCE, 1, 8, 1, 1, 0, 0, 0, 0, false};
  char text[400] = "allreduce,0,1,tree,ll,0,-1,-1,";
  memset(text + strlen(text), '0', 300);
  use_table(text);
  assert_choice(ask(&q), RING, SIMPLE, 0);
  ck_assert_msg(strstr(logged, "at most 255") != NULL, "%s", logged);
  COPSE_AT_END(copse_text_free) struct copse_text many = {0};
  for (int i = 0; i < 5000; i++) copse_text_add(&many, "allreduce,0,1,tree,ll,0,-1,-1\n");
  use_table(many.data);
  assert_choice(ask(&q), RING, SIMPLE, 0);
  ck_assert_msg(strstr(logged, "more than 4096 rules") != NULL, "%s", logged);
}
END_TEST

START_TEST(a_missing_table_is_a_warning_if_it_was_named) {
  struct asked q = {4, ALLREDUCE, 1, 8, 1, 1, 0, 0, 0, 0, false};
  use_table("");
  setenv("NCCL_TUNER_CONFIG_FILE", "/nonexistent/tuner.csv", 1);
  assert_choice(ask(&q), RING, SIMPLE, 0);
  ck_assert_int_eq(warnings, 1);
  ck_assert_ptr_nonnull(strstr(logged, "/nonexistent/tuner.csv: cannot open"));
  use_table("");
  unsetenv("NCCL_TUNER_CONFIG_FILE");
  assert_choice(ask(&q), RING, SIMPLE, 0);
  ck_assert_int_eq(warnings, 0);
  ck_assert_int_eq(lines, 1);
  use_table(""); /* an empty one is fine */
  assert_choice(ask(&q), RING, SIMPLE, 0);
  ck_assert_int_eq(warnings, 0);
}
END_TEST

/* Whatever a table is damaged to: no crash, and the costs are those of a rule or unchanged. */
START_TEST(damaged_tables_do_no_harm) {
  struct asked q = {5, ALLREDUCE, 1024, 8, 1, 1, 0, 0, 0, 0, false};
  uint64_t random = (uint64_t)_i;
  char text[sizeof table];
  for (int i = 0; i < 40; i++) {
    memcpy(text, table, sizeof table);
    for (int hits = 0; hits < 3; hits++)
      text[copse_test_random_int(&random, 0, (int)sizeof table - 2)] =
          (char)copse_test_random_int(&random, 1, 255);
    use_table(text);
    struct choice c = ask(&q);
    ck_assert_int_ge(c.algo, 0);
    ck_assert_int_le(warnings, 1);
  }
}
END_TEST

/* ---- the reader and the printer
 * ------------------------------------------------------------------ */

START_TEST(what_is_printed_reads_back) {
  struct copse_tuner_table first, second;
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  ASSERT_OK(copse_tuner_table_parse("t", table, strlen(table), &first, &err), &err);
  ck_assert_uint_eq(first.n, 6);
  ck_assert_int_eq(first.rules[2].channels, 0); /* -1 in the file */
  copse_tuner_table_print(&first, -1, &text);
  ck_assert_ptr_nonnull(strstr(text.data, "nvls,simple,-1,1,8,-1,-1"));
  ck_assert_int_eq(strncmp(text.data, table, (size_t)(strchr(table, '\n') - table)), 0);
  ASSERT_OK(copse_tuner_table_parse("t", text.data, text.size, &second, &err), &err);
  ck_assert_uint_eq(second.n, first.n);
  COPSE_AT_END(copse_text_free) struct copse_text again = {0};
  copse_tuner_table_print(&second, -1, &again);
  ck_assert_str_eq(again.data, text.data);
  copse_tuner_table_free(&first);
  copse_tuner_table_free(&second);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("tune/plugin");
  TCase *t = tcase_create("plugin");
  copse_test_folder();
  tcase_add_loop_test(t, every_version_with_costs_takes_the_first_rule_that_fits, 3, 7);
  tcase_add_loop_test(t, registration_is_compared_where_the_version_says_it, 3, 7);
  tcase_add_loop_test(t, what_nccl_cannot_use_is_passed_over, 3, 7);
  tcase_add_loop_test(t, fewer_algorithms_than_the_table_names_are_no_harm, 3, 7);
  tcase_add_loop_test(t, communicators_share_one_table, 3, 7);
  tcase_add_test(t, the_sixth_leaves_chunks_alone);
  tcase_add_test(t, the_second_sets_only_what_nccl_surely_has);
  tcase_add_test(t, the_first_knows_no_communicator);
  tcase_add_loop_test(t, a_broken_table_is_one_warning_and_no_rule, 2, 7);
  tcase_add_test(t, long_and_binary_tables_are_refused);
  tcase_add_test(t, a_missing_table_is_a_warning_if_it_was_named);
  tcase_add_loop_test(t, damaged_tables_do_no_harm, 0, 5);
  tcase_add_test(t, what_is_printed_reads_back);
  suite_add_tcase(suite, t);
  return copse_test_run(suite);
}
