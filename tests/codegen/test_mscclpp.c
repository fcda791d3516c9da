/*
 * MSCCL++ plans: everything that is written is proved and runs right in a second model (numbers,
 * blocks that move in random order); changed plans are refuted with the operation named, or
 * still run right.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/mscclpp/check.h"
#include "codegen/mscclpp/lower.h"
#include "support/fabric.h"
#include "support/support.h"

static const copse_collective collectives[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER,
                                               COPSE_ALLREDUCE, COPSE_ALLTOALL};

/* ---- a second model -------------------------------------------------------------------- */

enum { MAX_RANKS = 16, WIDTH = 2048, MAX_BLOCKS = 64 };

struct model {
  const cJSON *gpus;
  const char *coll;
  int n, chunks, block;
  bool in_place;
  uint64_t cells[MAX_RANKS][3][WIDTH];
  int signals[MAX_RANKS][2][MAX_BLOCKS * 8]; /* on their way to a flat channel */
  const cJSON *next[MAX_RANKS][MAX_BLOCKS];
};

static int number(const cJSON *object, const char *key) {
  return cJSON_GetObjectItem(object, key)->valueint;
}

static const cJSON *at(const cJSON *object, const char *key, int i) {
  return cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), i);
}

/* Entry i over all lists of a type: a block's channels or remote buffers, a rank's channels. */
static int nth(const cJSON *lists, const char *type_key, const char *type, const char *key, int i) {
  const cJSON *list;
  cJSON_ArrayForEach(list, lists) {
    int n = cJSON_GetArraySize(cJSON_GetObjectItem(list, key));
    if (strcmp(cJSON_GetObjectItem(list, type_key)->valuestring, type) != 0) continue;
    if (i < n) return at(list, key, i)->valueint;
    i -= n;
  }
  return -1;
}

static uint64_t *cell(struct model *m, int rank, char letter, int index) {
  int l = letter == 'i' ? 0 : letter == 'o' ? 1 : 2;
  if (m->in_place && l < 2) {
    if (strcmp(m->coll, "allgather") == 0 && l == 0) index += rank * m->block;
    if (strcmp(m->coll, "reducescatter") == 0 && l == 1) index += rank * m->block;
    l = strcmp(m->coll, "reducescatter") == 0 ? 0 : 1;
  }
  return index >= 0 && index < WIDTH ? &m->cells[rank][l][index] : NULL;
}

static uint64_t *entry(struct model *m, int rank, const cJSON *tb, const cJSON *op, const cJSON *e,
                       int chunk) {
  const cJSON *id = cJSON_GetObjectItem(e, "buffer_id");
  int index = number(e, "index") + chunk;
  if (!id) return cell(m, rank, cJSON_GetObjectItem(e, "type")->valuestring[0], index);
  int flat =
      nth(cJSON_GetObjectItem(tb, "remote_buffer_refs"), "access_channel_type",
          cJSON_GetObjectItem(op, "channel_type")->valuestring, "remote_buffer_ids", id->valueint);
  const cJSON *remote = at(cJSON_GetArrayItem(m->gpus, rank), "remote_buffers", flat);
  return remote ? cell(m, number(remote, "rank"),
                       cJSON_GetObjectItem(remote, "type")->valuestring[0], index)
                : NULL;
}

/* The k-th channel of a type to a peer is the peer's k-th to the rank. */
static int *signals_to(struct model *m, int rank, const char *type, int flat, int *at_rank) {
  const cJSON *own = cJSON_GetObjectItem(cJSON_GetArrayItem(m->gpus, rank), "channels");
  int peer = nth(own, "channel_type", type, "connected_to", flat), k = 0, i = 0, p;
  const cJSON *theirs = cJSON_GetObjectItem(cJSON_GetArrayItem(m->gpus, peer), "channels");
  for (int j = 0; j < flat; j++) k += nth(own, "channel_type", type, "connected_to", j) == peer;
  for (; (p = nth(theirs, "channel_type", type, "connected_to", i)) >= 0; i++)
    if (p == rank && k-- == 0) break;
  *at_rank = peer;
  return &m->signals[peer][type[0] == 'p'][i];
}

static bool sync_op(struct model *m, int rank, const cJSON *tb, const cJSON *op, bool waits) {
  const char *type = cJSON_GetObjectItem(op, "channel_type")->valuestring;
  const cJSON *id;
  int peer;
  for (int pass = 0; pass < 2; pass++)
    cJSON_ArrayForEach(id, cJSON_GetObjectItem(op, "channel_ids")) {
      int flat = nth(cJSON_GetObjectItem(tb, "channels"), "channel_type", type, "channel_ids",
                     id->valueint);
      if (flat < 0) return false;
      int *own = &m->signals[rank][type[0] == 'p'][flat];
      if (waits && pass == 0 && *own == 0) return false;
      if (waits && pass == 1) --*own;
      if (!waits && pass == 1) ++*signals_to(m, rank, type, flat, &peer);
    }
  return true;
}

static bool data_op(struct model *m, int rank, const cJSON *tb, const cJSON *op, bool sums) {
  const cJSON *src = cJSON_GetObjectItem(op, "src_buff"),
              *dst = cJSON_GetObjectItem(op, "dst_buff");
  int size = number(cJSON_GetArrayItem(src, 0), "size");
  for (int j = 0; j < size; j++) {
    uint64_t sum = 0;
    for (int i = 0; i < cJSON_GetArraySize(src); i++) {
      uint64_t *from = entry(m, rank, tb, op, cJSON_GetArrayItem(src, i), j);
      if (!from) return false;
      sum = sums ? sum + *from : *from;
      if (sums) continue;
      uint64_t *to = entry(m, rank, tb, op, cJSON_GetArrayItem(dst, i), j);
      if (!to) return false;
      *to = sum;
    }
    for (int i = 0; sums && i < cJSON_GetArraySize(dst); i++) {
      uint64_t *to = entry(m, rank, tb, op, cJSON_GetArrayItem(dst, i), j);
      if (!to) return false;
      *to = sum;
    }
  }
  return true;
}

/* The sum over all members of a switch channel, to all. */
static bool switch_op(struct model *m, int rank, const cJSON *tb, const cJSON *op) {
  const cJSON *places[] = {at(op, "src_buff", 0), at(op, "dst_buff", 0)}, *own = NULL, *it;
  cJSON_ArrayForEach(
      it, cJSON_GetObjectItem(cJSON_GetArrayItem(m->gpus, rank),
                              "channels")) if (cJSON_GetObjectItem(it, "rank_groups")) own = it;
  int group = nth(cJSON_GetObjectItem(tb, "channels"), "channel_type", "switch", "channel_ids", 0);
  const cJSON *ranks = own ? cJSON_GetObjectItem(at(own, "rank_groups", group), "ranks") : NULL;
  for (int j = 0; ranks && j < number(places[0], "size"); j++) {
    uint64_t sum = 0;
    for (int k = 0; k < 2; k++)
      for (int i = 0; i < cJSON_GetArraySize(ranks); i++) {
        uint64_t *x = cell(m, cJSON_GetArrayItem(ranks, i)->valueint,
                           cJSON_GetObjectItem(own, "buffer_type")->valuestring[0],
                           number(places[k], "index") + j);
        if (!x) return false;
        if (k == 0)
          sum += *x;
        else
          *x = sum;
      }
  }
  return ranks != NULL;
}

static bool try_op(struct model *m, int rank, int block) {
  const cJSON *op = m->next[rank][block];
  const cJSON *tb = at(cJSON_GetArrayItem(m->gpus, rank), "threadblocks", block);
  const char *name = cJSON_GetObjectItem(op, "name")->valuestring;
  bool ok = true;
  if (strstr(name, "wait"))
    ok = sync_op(m, rank, tb, op, true);
  else if (strstr(name, "signal"))
    ok = sync_op(m, rank, tb, op, false);
  else if (strcmp(name, "glres") == 0)
    ok = switch_op(m, rank, tb, op);
  else if (strcmp(name, "nop") != 0)
    ok = data_op(m, rank, tb, op, strcmp(name, "re") == 0);
  if (ok && strcmp(name, "pws") == 0) ok = sync_op(m, rank, tb, op, false);
  if (ok) m->next[rank][block] = op->next;
  return ok;
}

static uint64_t input_of(int rank, int chunk) {
  uint64_t state = (uint64_t)(rank * 100003 + chunk);
  return copse_test_random(&state);
}

static uint64_t expected(const struct model *m, int rank, int j) {
  bool gathers = strcmp(m->coll, "allgather") == 0,
       scatters = strcmp(m->coll, "reducescatter") == 0;
  uint64_t sum = 0;
  if (gathers) return input_of(j / m->block, j % m->block);
  if (strcmp(m->coll, "alltoall") == 0)
    return input_of(j / m->block, rank * m->block + j % m->block);
  for (int q = 0; q < m->n; q++) sum += input_of(q, scatters ? rank * m->block + j : j);
  return sum;
}

/* One run in random order: it ends, the results are right, no signal is left. */
static bool runs_right(const cJSON *plan, uint64_t *seed) {
  struct model *m = calloc(1, sizeof *m);
  int left = 1, n_out;
  bool right = true;
  m->gpus = cJSON_GetObjectItem(plan, "gpus");
  m->coll = cJSON_GetObjectItem(plan, "collective")->valuestring;
  m->n = cJSON_GetArraySize(m->gpus);
  m->in_place = cJSON_IsTrue(cJSON_GetObjectItem(plan, "inplace"));
  const cJSON *gpu = m->gpus->child;
  bool gathers = strcmp(m->coll, "allgather") == 0,
       scatters = strcmp(m->coll, "reducescatter") == 0;
  m->chunks = number(gpu, gathers ? "output_chunks" : "input_chunks");
  m->block = strcmp(m->coll, "allreduce") == 0 ? m->chunks : m->chunks / m->n;
  n_out = scatters ? m->block : m->chunks;
  for (int r = 0; r < m->n; r++) {
    for (int j = 0; j < 3 * WIDTH; j++) m->cells[r][j / WIDTH][j % WIDTH] = copse_test_random(seed);
    for (int j = 0; j < (gathers ? m->block : m->chunks); j++) *cell(m, r, 'i', j) = input_of(r, j);
    for (int b = 0; at(cJSON_GetArrayItem(m->gpus, r), "threadblocks", b); b++)
      m->next[r][b] =
          cJSON_GetObjectItem(at(cJSON_GetArrayItem(m->gpus, r), "threadblocks", b), "ops")->child;
  }
  while (left) {
    int first = copse_test_random_int(seed, 0, MAX_RANKS * MAX_BLOCKS - 1), i;
    left = 0;
    for (i = 0; i < MAX_RANKS * MAX_BLOCKS; i++) {
      int rank = (first + i) % MAX_RANKS, b = (first + i) / MAX_RANKS % MAX_BLOCKS;
      if (!m->next[rank][b]) continue;
      left = 1;
      if (try_op(m, rank, b)) break;
    }
    if (i == MAX_RANKS * MAX_BLOCKS && left) break;
  }
  right = !left;
  for (int r = 0; r < m->n && right; r++) {
    for (int j = 0; j < n_out; j++) right = right && *cell(m, r, 'o', j) == expected(m, r, j);
    for (int j = 0; j < MAX_BLOCKS * 8; j++)
      right = right && m->signals[r][0][j] == 0 && m->signals[r][1][j] == 0;
  }
  free(m);
  return right;
}

/* ---- what is written ------------------------------------------------------------------- */

static char *lower(const char *fabric, copse_collective collective,
                   struct copse_mscclpp_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_mscclpp_summary summary;
  struct copse_schedule *schedule = copse_test_solve(fabric, collective, 0);
  char *text = NULL;
  size_t size;
  if (options.chunks == 0) options.chunks = 8;
  ASSERT_OK(copse_lower_mscclpp(schedule, &options, &text, &size, &summary, &err), &err);
  copse_schedule_free(schedule);
  return text;
}

static void prove(const char *fabric, copse_collective collective,
                  struct copse_mscclpp_options options) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_mscclpp_report report;
  uint64_t seed = 3;
  char *text = lower(fabric, collective, options);
  ASSERT_OK(copse_check_mscclpp("p.json", text, strlen(text), &report, &err), &err);
  ck_assert_int_eq(report.in_place, !options.out_of_place && collective != COPSE_ALLTOALL);
  cJSON *plan = cJSON_Parse(text);
  for (int i = 0; i < 3; i++) ck_assert(runs_right(plan, &seed));
  cJSON_Delete(plan);
  free(text);
}

START_TEST(what_is_written_is_proved_and_runs_right) {
  for (int f = 0; f < copse_test_n_fabrics; f += COPSE_TEST_SWEEPS ? 1 : 2)
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++)
      for (int ranks_per_host = 0; ranks_per_host < 4; ranks_per_host++) {
        struct copse_mscclpp_options o = {.ranks_per_host = ranks_per_host};
        prove(copse_test_fabrics[f], collectives[c], o);
        o.out_of_place = true;
        o.max_blocks = 2;
        o.chunks = 4;
        prove(copse_test_fabrics[f], collectives[c], o);
        o.max_blocks = 40;
        o.instances = 2;
        prove(copse_test_fabrics[f], collectives[c], o);
      }
}
END_TEST

/* One switch of all ranks, which copies and adds: MSCCL++'s operation for it, right and proved;
 * without any one of the operations refuted, or right all the same (a nop). */
START_TEST(a_switch_copies_and_adds) {
  static const char json[] =
      "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"a\", \"type\": \"gpu\"},"
      "{\"id\": \"b\", \"type\": \"gpu\"}, {\"id\": \"c\", \"type\": \"gpu\"},"
      "{\"id\": \"s\", \"type\": \"switch\", \"multicast\": true, \"aggregation\": true}],"
      "\"links\": [{\"src\": \"a\", \"dst\": \"s\", \"bandwidth\": 100},"
      "{\"src\": \"b\", \"dst\": \"s\", \"bandwidth\": 100},"
      "{\"src\": \"c\", \"dst\": \"s\", \"bandwidth\": 100}]}";
  struct copse_topology *t = copse_test_topology(json);
  struct copse_schedule *s = copse_test_solve_as(
      t, (struct copse_solve_options){
             .collective = COPSE_ALLREDUCE, .root = -1, .in_network = true, .label = "t.json"});
  int n_refuted = 0;
  for (int k = 0; k < 4; k++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_mscclpp_options options = {
        .out_of_place = k % 2 != 0, .instances = 1 + k / 2, .max_blocks = 2};
    struct copse_mscclpp_summary summary;
    struct copse_check_mscclpp_report report;
    uint64_t seed = 3;
    char *text;
    size_t size;
    ASSERT_OK(copse_lower_mscclpp(s, &options, &text, &size, &summary, &err), &err);
    ASSERT_OK(copse_check_mscclpp("p.json", text, size, &report, &err), &err);
    ck_assert_ptr_nonnull(strstr(text, "glres"));
    for (int i = -1; i < summary.ops; i++) {
      cJSON *plan = cJSON_Parse(text);
      cJSON *ops = cJSON_GetObjectItem(
          (cJSON *)(uintptr_t)at(at(plan, "gpus", 0), "threadblocks", 0), "ops");
      if (i >= 0) cJSON_DeleteItemFromArray(ops, i);
      char *changed = cJSON_PrintUnformatted(plan);
      err = (struct copse_err)COPSE_ERR_INIT;
      const copse_status status =
          copse_check_mscclpp("p.json", changed, strlen(changed), &report, &err);
      for (int n = 0; n < 3 && status == COPSE_OK; n++) ck_assert(runs_right(plan, &seed));
      ck_assert_int_eq(i < 0 && status != COPSE_OK, 0);
      n_refuted += status != COPSE_OK;
      free(changed);
      cJSON_Delete(plan);
    }
    options.ranks_per_host = 2;
    ASSERT_FAILS(copse_lower_mscclpp(s, &options, &text, &size, &summary, &err), COPSE_UNSUPPORTED,
                 &err, "a switch channel is for one host");
    free(text);
  }
  ck_assert_int_ge(n_refuted, 16);
  copse_schedule_free(s);
  copse_topology_free(t);
}
END_TEST

/* Piece by piece; the proof runs pipelines one, two and three times. */
START_TEST(pipelines_are_proved) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_mscclpp_report report;
  for (int f = 0; f < copse_test_n_fabrics; f++)
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++)
      for (int k = 0; k < 4; k++) {
        struct copse_mscclpp_options o = {.ranks_per_host = k / 2 * 2,
                                          .out_of_place = k % 2,
                                          .pipeline_bytes = 4096,
                                          .max_blocks = 8};
        char *text = lower(copse_test_fabrics[f], collectives[c], o);
        ASSERT_OK(copse_check_mscclpp("p.json", text, strlen(text), &report, &err), &err);
        char *wait = strstr(text, "\"wait\""); /* what it waited for is left over */
        if (wait) {
          memcpy(wait, "\"nop\" ", 6);
          struct copse_err e = COPSE_ERR_INIT;
          ASSERT_FAILS(copse_check_mscclpp("p.json", text, strlen(text), &report, &e),
                       COPSE_REFUTED, &e, "gpu ");
        }
        free(text);
      }
}
END_TEST

/* A star of 40: more than an op's eight peers, more than a block's sixteen channels. */
START_TEST(what_does_not_fit_is_refused_with_what_would) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_mscclpp_summary summary;
  struct copse_mscclpp_options options = {.max_blocks = 1};
  struct copse_schedule *schedule = copse_test_star(40, COPSE_BROADCAST);
  char *text = NULL;
  size_t size;
  ASSERT_FAILS(copse_lower_mscclpp(schedule, &options, &text, &size, &summary, &err),
               COPSE_UNSUPPORTED, &err, "has no root");
  copse_schedule_free(schedule);
  schedule = copse_test_solve(copse_test_fabrics[2], COPSE_ALLREDUCE, 0);
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_lower_mscclpp(schedule, &options, &text, &size, &summary, &err),
               COPSE_UNSUPPORTED, &err, "--workers ");
  int workers = atoi(strstr(err.text, "--workers ") + 10);
  options.max_blocks = workers;
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_OK(copse_lower_mscclpp(schedule, &options, &text, &size, &summary, &err), &err);
  ck_assert_int_le(summary.ops, 64);
  free(text);
  copse_schedule_free(schedule);
}
END_TEST

/* ---- mutants --------------------------------------------------------------------------- */

struct tally {
  int refuted, harmless;
};

static void judge(const cJSON *plan, struct tally *tally) {
  static uint64_t seed = 11;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_mscclpp_report report;
  char *text = cJSON_Print(plan);
  copse_status status = copse_check_mscclpp("p.json", text, strlen(text), &report, &err);
  if (status == COPSE_OK) {
    for (int i = 0; i < 8; i++)
      ck_assert_msg(runs_right(plan, &seed), "accepted, but it runs wrong:\n%s", text);
    tally->harmless++;
  } else {
    ck_assert_msg(status == COPSE_REFUTED || status == COPSE_BAD_INPUT, "%s", err.text);
    ck_assert_msg(strstr(err.text, "p.json") && strstr(err.text, "gpu "), "%s", err.text);
    ck_assert_msg(strstr(err.text, " tb ") || strstr(err.text, "port") ||
                      strstr(err.text, "never written") || strstr(err.text, "\""),
                  "%s", err.text);
    tally->refuted++;
  }
  cJSON_free(text);
}

/* Changes the op at place i of ops; false where it does not apply. */
typedef bool change_fn(cJSON *ops, int i);

static struct tally mutate(change_fn *change) {
  struct tally tally = {0, 0};
  int n = 0;
  for (int f = 0; f < 5; f++)
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
      struct copse_mscclpp_options options = {.chunks = 4, .out_of_place = f % 2, .max_blocks = 3};
      if (f == 2) options.ranks_per_host = 3;
      char *text = lower(copse_test_fabrics[f], collectives[c], options);
      cJSON *plan = cJSON_Parse(text);
      for (int g = 0; g < 2; g++)
        for (int b = 0; at(at(plan, "gpus", g), "threadblocks", b); b++) {
          cJSON *gpu = cJSON_GetArrayItem(cJSON_GetObjectItem(plan, "gpus"), g);
          cJSON *block = cJSON_GetArrayItem(cJSON_GetObjectItem(gpu, "threadblocks"), b);
          for (int i = 0; i < cJSON_GetArraySize(cJSON_GetObjectItem(block, "ops")); i++) {
            cJSON *ops = cJSON_GetObjectItem(block, "ops"), *unchanged = cJSON_Duplicate(ops, true);
            if (change(ops, i) && n++ % COPSE_TEST_ONE_IN == 0) judge(plan, &tally);
            cJSON_ReplaceItemInObject(block, "ops", unchanged);
          }
        }
      cJSON_Delete(plan);
      free(text);
    }
  tally.refuted *= COPSE_TEST_ONE_IN;
  tally.harmless *= COPSE_TEST_ONE_IN;
  return tally;
}

static bool is(cJSON *ops, int i, const char *name) {
  return strcmp(cJSON_GetObjectItem(cJSON_GetArrayItem(ops, i), "name")->valuestring, name) == 0;
}

/* cJSON's own insertion fails but at the front in some versions. */
static void insert(cJSON *ops, int i, cJSON *item) {
  int n = cJSON_GetArraySize(ops);
  cJSON_AddItemToArray(ops, item);
  for (int j = i; j < n; j++) cJSON_AddItemToArray(ops, cJSON_DetachItemFromArray(ops, i));
}

static bool drop(cJSON *ops, int i) {
  if (is(ops, i, "nop")) return false;
  cJSON_DeleteItemFromArray(ops, i);
  return true;
}

START_TEST(a_dropped_operation_is_refuted) {
  struct tally t = mutate(drop);
  ck_assert_int_gt(t.refuted, 500);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

static bool drop_nop(cJSON *ops, int i) {
  if (!is(ops, i, "nop")) return false;
  cJSON_DeleteItemFromArray(ops, i);
  return true;
}

/* Most of them order what a block's threads do; some stand before what touches nothing of it. */
START_TEST(a_dropped_nop_is_refuted_or_harmless) {
  struct tally t = mutate(drop_nop);
  ck_assert_int_gt(t.refuted, 200);
  ck_assert_int_gt(t.refuted, 2 * t.harmless);
}
END_TEST

static bool repeat(cJSON *ops, int i) {
  if (is(ops, i, "nop") || is(ops, i, "copy") || is(ops, i, "put")) return false;
  insert(ops, i, cJSON_Duplicate(cJSON_GetArrayItem(ops, i), true));
  return true;
}

START_TEST(a_doubled_operation_is_refuted) {
  struct tally t = mutate(repeat);
  ck_assert_int_gt(t.refuted, 400);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

static bool swap(cJSON *ops, int i) {
  if (i + 1 == cJSON_GetArraySize(ops)) return false;
  insert(ops, i + 1, cJSON_DetachItemFromArray(ops, i));
  return true;
}

START_TEST(swapped_operations_are_refuted_or_harmless) {
  struct tally t = mutate(swap);
  ck_assert_int_gt(t.refuted, 400);
}
END_TEST

static bool bump(cJSON *ops, int i, const char *list, const char *key) {
  cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetArrayItem(ops, i), list), 0);
  cJSON *value = first ? cJSON_GetObjectItem(first, key) : NULL;
  if (value) cJSON_SetNumberValue(value, value->valueint + 1);
  return value != NULL;
}

static bool move_source(cJSON *ops, int i) { return bump(ops, i, "src_buff", "index"); }
static bool move_destination(cJSON *ops, int i) { return bump(ops, i, "dst_buff", "index"); }
static bool grow(cJSON *ops, int i) { return bump(ops, i, "src_buff", "size"); }
static bool redirect(cJSON *ops, int i) { return bump(ops, i, "dst_buff", "buffer_id"); }
/* What goes through a port was copied to scratch from the very place that this names. */
static bool other_buffer(cJSON *ops, int i) {
  if (is(ops, i, "pws")) return false;
  cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetArrayItem(ops, i), "src_buff"), 0);
  cJSON *type = first ? cJSON_GetObjectItem(first, "type") : NULL;
  if (type) cJSON_SetValuestring(type, type->valuestring[0] == 's' ? "i" : "s");
  return type != NULL;
}

START_TEST(moved_and_redirected_data_are_refuted) {
  change_fn *changes[] = {move_source, move_destination, grow, redirect, other_buffer};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    struct tally t = mutate(changes[i]);
    ck_assert_int_gt(t.refuted, 60);
    ck_assert_int_eq(t.harmless, 0);
  }
}
END_TEST

static cJSON *index_in(cJSON *ops, int i, const char *list, int entry) {
  cJSON *places = cJSON_GetObjectItem(cJSON_GetArrayItem(ops, i), list);
  return cJSON_GetObjectItem(cJSON_GetArrayItem(places, entry), "index");
}

/* Sums stand where the first child's came in, and a port reads them there. */
static int sum_in_place(cJSON *ops) {
  int changed = 0;
  for (int i = 0; i < cJSON_GetArraySize(ops); i++) {
    if (!is(ops, i, "re")) continue;
    cJSON *dst = index_in(ops, i, "dst_buff", 0);
    int own = dst->valueint, slot = index_in(ops, i, "src_buff", 1)->valueint;
    for (int k = i + 1; k < cJSON_GetArraySize(ops); k++)
      if (is(ops, k, "pws") && index_in(ops, k, "src_buff", 0)->valueint == own) {
        cJSON_SetNumberValue(index_in(ops, k, "src_buff", 0), slot);
        cJSON_SetNumberValue(dst, slot);
        changed++;
        break;
      }
  }
  return changed;
}

/* A port may read when its rank has left; the child's sum of the next launch is then too early. */
START_TEST(what_a_port_reads_must_outlast_the_launch) {
  struct copse_mscclpp_options options = {.ranks_per_host = 2, .out_of_place = true};
  for (int pipelined = 0; pipelined < 2; pipelined++) {
    struct copse_check_mscclpp_report report;
    struct copse_err err = COPSE_ERR_INIT;
    int changed = 0;
    options.pipeline_bytes = pipelined * 4096;
    char *text = lower(copse_test_fabrics[1], COPSE_REDUCE_SCATTER, options);
    cJSON *plan = cJSON_Parse(text), *gpu, *block, *op;
    free(text);
    cJSON_ArrayForEach(gpu, cJSON_GetObjectItem(plan, "gpus")) {
      cJSON_ArrayForEach(block, cJSON_GetObjectItem(gpu, "threadblocks")) {
        changed += sum_in_place(cJSON_GetObjectItem(block, "ops"));
        cJSON_ArrayForEach(op, cJSON_GetObjectItem(block, "ops")) {
          if (cJSON_HasObjectItem(op, "ops"))
            changed += sum_in_place(cJSON_GetObjectItem(op, "ops"));
        }
      }
    }
    ck_assert_int_gt(changed, 0);
    text = cJSON_PrintUnformatted(plan);
    cJSON_Delete(plan);
    ASSERT_FAILS(copse_check_mscclpp("p.json", text, strlen(text), &report, &err), COPSE_REFUTED,
                 &err, "of the launch before may still read through its port");
    free(text);
  }
}
END_TEST

static bool other_channel(cJSON *ops, int i) {
  cJSON *id = cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetArrayItem(ops, i), "channel_ids"), 0);
  if (id) cJSON_SetNumberValue(id, id->valueint + 1);
  return id != NULL;
}

START_TEST(another_channel_is_refuted) {
  struct tally t = mutate(other_channel);
  ck_assert_int_gt(t.refuted, 200);
  ck_assert_int_eq(t.harmless, 0);
}
END_TEST

/* Every prefix, and bytes changed: an answer, not a crash. */
START_TEST(damaged_files_are_answered) {
  struct copse_mscclpp_options options = {.chunks = 1};
  char *text = lower(copse_test_fabrics[4], COPSE_ALLREDUCE, options);
  struct copse_check_mscclpp_report report;
  size_t n = strlen(text);
  for (size_t i = 0; i < n; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    char *copy = strdup(text);
    copy[i] = "9-{\"]"[i % 5];
    (void)!copse_check_mscclpp("p.json", copy, n, &report, &err);
    copy[i] = '\0';
    if (i + 2 < n)
      ck_assert_int_ne(copse_check_mscclpp("p.json", copy, i, &report, &err), COPSE_OK);
    free(copy);
  }
  free(text);
}
END_TEST

/* ---- plans of others --------------------------------------------------------------------- */

/* Packets, a barrier of two blocks, a semaphore (tests/data/README.md): copse writes none of them.
 * What each change of the first place of `from` is refuted for. */
static const struct {
  const char *file, *from, *to, *says;
} changed[] = {
    {"mscclpp/allgather-packets.json", "\"upkt\"", "\"copy\"", "gpu 0 tb 0 op 2"},
    {"mscclpp/allgather-packets.json", "\"LL\"", "\"Simple\"", "unless \"protocol\" is \"LL\""},
    {"mscclpp/allgather-packets.json", "\"ppkt\"", "\"put\"", "gpu 0 tb 0 op 0"},
    {"mscclpp/allgather-packets.json", "scratch_buffer\": true", "scratch_buffer\": false", "gpu "},
    {"mscclpp/allgather-packets.json", "\"rank\": 1, \"type\": \"s\"",
     "\"rank\": 1, \"type\": \"o\"", "outside scratch"},
    {"mscclpp/allreduce-barrier.json", "\"num_threadblocks\": 2", "\"num_threadblocks\": 3",
     "different counts"},
    {"mscclpp/allreduce-barrier.json", "\"barrier_id\": 0", "\"barrier_id\": 1", "gpu 0 tb "},
    {"mscclpp/allreduce-barrier.json", "\"repkt\"", "\"re\"", "gpu 0 tb 1 op 2"},
    {"mscclpp/allreduce-semaphore.json", "\"init_value\": 0", "\"init_value\": 1",
     "gpu 0 tb 1 op "},
    {"mscclpp/allreduce-semaphore.json", "\"semaphore_ids\": [0]", "\"semaphore_ids\": [0, 0]",
     "ends at 1 and starts at 0"},
    {"mscclpp/allreduce-semaphore.json", "{\"name\": \"nop\"}", "{\"name\": \"flush\"}",
     "gpu 0 tb "},
};

START_TEST(packets_barriers_and_semaphores_of_others) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_check_mscclpp_report report;
  COPSE_AT_END(copse_free_at) char *text = copse_test_load(copse_test_data(changed[_i].file), NULL);
  ASSERT_OK(copse_check_mscclpp("p.json", text, strlen(text), &report, &err), &err);
  const char *at = strstr(text, changed[_i].from);
  char other[8192];
  ck_assert_ptr_nonnull(at);
  snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text), text, changed[_i].to,
           at + strlen(changed[_i].from));
  const copse_status status = copse_check_mscclpp("p.json", other, strlen(other), &report, &err);
  ck_assert_msg(status == COPSE_REFUTED, "%s: status %d", changed[_i].to, (int)status);
  ck_assert_msg(strstr(err.text, changed[_i].says) != NULL, "%s", err.text);
}
END_TEST

/* Without any one of its operations none of them is right. */
START_TEST(no_operation_of_others_is_idle) {
  static const char *const files[] = {"mscclpp/allgather-packets.json",
                                      "mscclpp/allreduce-barrier.json",
                                      "mscclpp/allreduce-semaphore.json"};
  struct copse_check_mscclpp_report report;
  COPSE_AT_END(copse_free_at) char *text = copse_test_load(copse_test_data(files[_i]), NULL);
  int n_blocks = 0;
  for (int b = 0; b < 2; b++)
    for (int i = 0; i < 4; i++) {
      struct copse_err err = COPSE_ERR_INIT;
      cJSON *plan = cJSON_Parse(text);
      const cJSON *block = at(at(plan, "gpus", 1), "threadblocks", b);
      cJSON *ops = cJSON_GetObjectItem(block, "ops");
      n_blocks += i == 0 && block != NULL;
      if (i < cJSON_GetArraySize(ops)) {
        cJSON_DeleteItemFromArray(ops, i);
        char *without = cJSON_PrintUnformatted(plan);
        ASSERT_FAILS(copse_check_mscclpp("p.json", without, strlen(without), &report, &err),
                     COPSE_REFUTED, &err, "gpu ");
        cJSON_free(without);
      }
      cJSON_Delete(plan);
    }
  ck_assert_int_eq(n_blocks, _i == 0 ? 1 : 2);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/mscclpp");
  TCase *tc = tcase_create("all");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, what_is_written_is_proved_and_runs_right);
  tcase_add_test(tc, a_switch_copies_and_adds);
  tcase_add_test(tc, pipelines_are_proved);
  tcase_add_test(tc, what_does_not_fit_is_refused_with_what_would);
  tcase_add_test(tc, a_dropped_operation_is_refuted);
  tcase_add_test(tc, a_dropped_nop_is_refuted_or_harmless);
  tcase_add_test(tc, a_doubled_operation_is_refuted);
  tcase_add_test(tc, swapped_operations_are_refuted_or_harmless);
  tcase_add_test(tc, moved_and_redirected_data_are_refuted);
  tcase_add_test(tc, what_a_port_reads_must_outlast_the_launch);
  tcase_add_test(tc, another_channel_is_refuted);
  tcase_add_test(tc, damaged_files_are_answered);
  tcase_add_loop_test(tc, packets_barriers_and_semaphores_of_others, 0,
                      sizeof changed / sizeof *changed);
  tcase_add_loop_test(tc, no_operation_of_others_is_idle, 0, 3);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
