/* Schedule JSON: what is written is read back, and everything else is refused with its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/schedule.h"
#include "schedule/solve/solve.h"
#include "verify/verify.h"
#include "support/oracle.h"
#include "support/random_topology.h"
#include "support/support.h"

static const copse_collective all[] = {COPSE_ALLGATHER, COPSE_REDUCE_SCATTER, COPSE_ALLREDUCE,
                                       COPSE_BROADCAST, COPSE_REDUCE};

static struct copse_schedule *solve(const struct copse_topology *topology,
                                    copse_collective collective) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_solve_seconds seconds;
  struct copse_schedule *schedule = NULL;
  bool rooted = collective == COPSE_BROADCAST || collective == COPSE_REDUCE;
  struct copse_solve_options options = {.collective = collective, .root = rooted ? 0 : -1};
  ASSERT_OK(copse_solve_schedule(topology, &options, &schedule, &seconds, &err), &err);
  return schedule;
}

static char *write(const struct copse_schedule *schedule, size_t *size) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  ASSERT_OK(copse_schedule_to_json(schedule, &text, size, &err), &err);
  ck_assert_uint_eq(strlen(text), *size);
  return text;
}

static void check_same(const struct copse_schedule *a, const struct copse_schedule *b) {
  ck_assert(a->collective == b->collective && a->root == b->root && a->k == b->k);
  ck_assert(a->n_ranks == b->n_ranks && a->n_trees == b->n_trees);
  ck_assert(copse_q_eq(a->time_per_GB, b->time_per_GB));
  ck_assert(copse_q_eq(a->bound.time_per_GB, b->bound.time_per_GB));
  ck_assert(a->bound.kind == b->bound.kind && a->bound.n_cut == b->bound.n_cut);
  ck_assert_str_eq(a->topology_sha256, b->topology_sha256);
  for (int r = 0; r < a->n_ranks; r++)
    ck_assert_str_eq(a->nodes[a->rank_nodes[r]], b->nodes[b->rank_nodes[r]]);
  for (int t = 0; t < a->n_trees; t++) {
    const struct copse_schedule_tree *x = &a->trees[t], *y = &b->trees[t];
    ck_assert(x->root == y->root && x->phase == y->phase && x->n_edges == y->n_edges);
    ck_assert(copse_q_eq(x->weight, y->weight));
    for (int e = 0; e < x->n_edges; e++) {
      ck_assert(x->edges[e].src == y->edges[e].src && x->edges[e].dst == y->edges[e].dst);
      ck_assert_int_eq(x->edges[e].n_path, y->edges[e].n_path);
      for (int i = 0; i < x->edges[e].n_path; i++)
        ck_assert_str_eq(a->nodes[x->edges[e].path[i]], b->nodes[y->edges[e].path[i]]);
    }
  }
}

START_TEST(written_schedules_read_back_the_same_and_write_the_same_bytes) {
  for (uint64_t seed = 0; seed < 100; seed++) {
    uint64_t state = seed;
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *topology = copse_test_random_topology(&state, &copse_test_random_small);
    struct copse_schedule *first = solve(topology, all[seed % 5]), *second = NULL;
    size_t one_size, two_size;
    char *one = write(first, &one_size);
    ASSERT_OK(copse_schedule_parse("s.json", one, one_size, &second, &err), &err);
    char *two = write(second, &two_size);
    ck_assert_str_eq(one, two);
    check_same(first, second);
    free(one);
    free(two);
    copse_schedule_free(first);
    copse_schedule_free(second);
    copse_topology_free(topology);
  }
}
END_TEST

/* ---- refusals, each with its line -------------------------------------------------------- */

/* A small schedule, one thing a line; every case below changes one of its lines. */
static const char *const good[] = {
    "{\"format\": \"copse-schedule/1\",",                                          /* 1 */
    " \"collective\": \"allgather\",",                                             /* 2 */
    " \"topology\": {\"name\": \"t\", \"sha256\": \"\"},",                         /* 3 */
    " \"ranks\": [\"a\", \"b\"],",                                                 /* 4 */
    " \"k\": 1,",                                                                  /* 5 */
    " \"time_per_GB\": \"1/20\",",                                                 /* 6 */
    " \"algbw_GBps\": 20,",                                                        /* 7 */
    " \"bound\": {\"time_per_GB\": \"1/20\", \"cut\": [\"a\"]},",                  /* 8 */
    " \"trees\": [",                                                               /* 9 */
    "  {\"root\": 0, \"phase\": \"broadcast\", \"weight\": \"1/2\", \"edges\": [", /* 10 */
    "   {\"src\": 0, \"dst\": 1, \"path\": [\"a\", \"b\"]}]},",                    /* 11 */
    "  {\"root\": 1, \"phase\": \"broadcast\", \"weight\": \"1/2\", \"edges\": [", /* 12 */
    "   {\"src\": 1, \"dst\": 0, \"path\": [\"b\", \"a\"]}]}",                     /* 13 */
    " ]}"};                                                                        /* 14 */
#define N_LINES ((int)(sizeof good / sizeof *good))
#define TOPOLOGY                                                                                \
  "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":[{\"id\":\"a\",\"type\":\"gpu\"}," \
  "{\"id\":\"b\",\"type\":\"gpu\"}],\"links\":[{\"src\":\"a\",\"dst\":\"b\",\"bandwidth\":10}]}"

/* The schedule with line `changed` (from 1) replaced. */
static void compose(char text[2000], int changed, const char *line) {
  *text = '\0';
  for (int i = 0; i < N_LINES; i++) {
    strcat(text, i + 1 == changed ? line : good[i]);
    strcat(text, "\n");
  }
}

START_TEST(the_small_schedule_is_right_and_verifies) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = NULL;
  struct copse_topology *topology = NULL;
  struct copse_verify_report report;
  char text[2000];
  compose(text, 0, "");
  ASSERT_OK(copse_schedule_parse("s.json", text, strlen(text), &s, &err), &err);
  ASSERT_OK(copse_topology_parse("t.json", TOPOLOGY, strlen(TOPOLOGY), NULL, &topology, &err),
            &err);
  ASSERT_OK(copse_verify_schedule(s, topology, "s.json", &report, &err), &err);
  ck_assert(report.optimal);
  copse_schedule_free(s);
  copse_topology_free(topology);
}
END_TEST

#define TREE(root, phase, weight) \
  "  {\"root\": " root ", \"phase\": " phase ", \"weight\": " weight ", \"edges\": ["
#define EDGE(src, dst, path) "   {\"src\": " src ", \"dst\": " dst ", \"path\": " path "}]},"

static const struct {
  int changed; /* the line that is replaced */
  const char *line;
  int named; /* the line that the message must name */
  const char *part;
} refusals[] = {
    {1, "{\"format\": \"copse-schedule/2\",", 1, "copse-schedule/1"},
    {1, "{\"format\": 1,", 1, "\"format\" must be a string"},
    {1, "{", 1, "\"format\" must be a string"},
    {1, "{\"format\": \"copse-schedule/1\", \"extra\": 1,", 1, "unknown key \"extra\""},
    {1, "{\"format\": \"copse-schedule/1\", \"k\": 1,", 1, "\"k\" twice"},
    {1, "{\"format\": \"copse-schedule/1\", \"root\": 0,", 1, "\"root\" is for"},
    {1, "[", 0, ""},
    {2, "\"collective\": \"gather\",", 1, "\"collective\" must be"},
    {2, "\"collective\": \"reduce_scatter\",", 10, "\"phase\""},
    {2, "\"collective\": \"broadcast\",", 10, "share"},
    {2, "\"collective\": null,", 1, "\"collective\" must be a string"},
    {2, "", 1, "needs \"collective\": "},
    {3, "", 1, "\"topology\""},
    {3, "\"topology\": \"t\",", 1, "\"topology\" must be an object"},
    {3, "\"topology\": {},", 3, "needs \"name\": "},
    {3, "\"topology\": {\"name\": 5},", 3, "\"name\" must be a string"},
    {3, "\"topology\": {\"name\": \"t\", \"sha256\": 7},", 3, "\"sha256\" must be a string"},
    {3, "\"topology\": {\"name\": \"t\", \"sha\": \"\"},", 3, "unknown key \"sha\""},
    {4, "", 1, "\"ranks\""},
    {4, "\"ranks\": [],", 1, "empty"},
    {4, "\"ranks\": {},", 4, "\"ranks\" must be an array"},
    {4, "\"ranks\": [\"a\", \"a\"],", 1, "twice"},
    {4, "\"ranks\": [\"a\", 5],", 4, "\"ranks\" must be"},
    {4, "\"ranks\": [\"a\"],", 11, "\"dst\""},
    {4, "\"ranks\": [\"a\", \"b\", \"c\"],", 10, "span"},
    {4, "\"ranks\": [\"a\", \"c\"],", 11, "\"path\" must lead"},
    {5, "\"k\": -1,", 5, "\"k\" must be an integer"},
    {5, "\"k\": 1.5,", 5, "\"k\" must be an integer"},
    {5, "\"k\": \"1\",", 1, "\"k\" must be an integer"},
    {6, "", 1, "needs \"time_per_GB\": "},
    {6, "\"time_per_GB\": \"1/0\",", 1, "\"time_per_GB\""},
    {6, "\"time_per_GB\": true,", 1, "\"time_per_GB\" must be a number"},
    {6, "\"time_per_GB\": 1e400,", 6, "\"time_per_GB\""},
    {6, "\"time_per_GB\": \"nan\",", 1, "\"time_per_GB\""},
    {8, "", 1, "\"bound\""},
    {8, "\"bound\": {\"cut\": [\"a\"]},", 8, "needs \"time_per_GB\": "},
    {8, "\"bound\": {\"time_per_GB\": \"1/20\"},", 8, "\"cut\" must be an array"},
    {8, "\"bound\": {\"time_per_GB\": \"1/20\", \"cut\": [1]},", 8, "\"cut\" must be an array"},
    {8, "\"bound\": {\"time_per_GB\": \"1/20\", \"cut\": [\"a\"], \"kind\": \"phases\"},", 8,
     "\"kind\""},
    {8, "\"bound\": {\"time_per_GB\": \"1/20\", \"cut\": [\"a\"], \"kind\": 3},", 8, "\"kind\""},
    {8, "\"bound\": {\"time_per_GB\": \"1/20\", \"cut\": [\"a\"], \"proof\": 3},", 8, "\"proof\""},
    {9, "\"trees\": {", 0, ""},
    {10, TREE("2", "\"broadcast\"", "\"1/2\""), 10, "\"root\" must be an integer from 0 to 1"},
    {10, TREE("\"0\"", "\"broadcast\"", "\"1/2\""), 10, "\"root\""},
    {10, TREE("0", "\"reduce\"", "\"1/2\""), 10, "\"phase\""},
    {10, TREE("0", "7", "\"1/2\""), 10, "\"phase\" must be a string"},
    {10, TREE("0", "\"broadcast\"", "\"-1/2\""), 10, "\"weight\" must be positive"},
    {10, TREE("0", "\"broadcast\"", "0"), 10, "\"weight\" must be positive"},
    {10, TREE("0", "\"broadcast\"", "\"1/3\""), 10, "share"},
    {10, TREE("0", "\"broadcast\"", "[]"), 10, "\"weight\" must be a number"},
    {10, TREE("1", "\"broadcast\"", "\"1/2\""), 10, "reach every rank once"},
    {10, "  {\"root\": 0, \"phase\": \"broadcast\", \"edges\": [", 10, "needs \"weight\": "},
    {10, "  {\"root\": 0, \"phase\": \"broadcast\", \"weight\": \"1/2\", \"edge\": [", 10,
     "unknown key \"edge\""},
    {11, "   ]},", 10, "span"},
    {11, EDGE("0", "0", "[\"a\", \"a\"]"), 10, "reach every rank once"},
    {11, EDGE("0", "2", "[\"a\", \"b\"]"), 11, "\"dst\" must be an integer from 0 to 1"},
    {11, EDGE("0", "-1", "[\"a\", \"b\"]"), 11, "\"dst\""},
    {11, EDGE("0", "1e99", "[\"a\", \"b\"]"), 11, "\"dst\""},
    {11, EDGE("0", "1", "[\"b\", \"a\"]"), 11, "\"path\" must lead"},
    {11, EDGE("0", "1", "[\"a\"]"), 11, "\"path\" must lead"},
    {11, EDGE("0", "1", "[]"), 11, "\"path\" must lead"},
    {11, EDGE("0", "1", "\"a\""), 11, "\"path\" must be an array"},
    {11, EDGE("0", "1", "[\"a\", null, \"b\"]"), 11, "\"path\" must be an array"},
    {11, EDGE("0", "1", "[\"a\", \"b\"], \"via\": 1"), 11, "unknown key \"via\""},
    {11, "   {\"src\": 0, \"dst\": 1}]},", 11, "an edge needs \"path\": "},
    {11, "   7]},", 11, "an edge must be an object"},
    {14, " ]", 0, "ends inside"},
    {14, " ]}}", 14, "closes nothing"},
    {14, " ]} x", 14, "not JSON"},
};
#define N_REFUSALS ((int)(sizeof refusals / sizeof *refusals))

START_TEST(refusals_name_the_line_and_the_cause) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = (struct copse_schedule *)&err;
  char text[2000], place[40];
  compose(text, refusals[_i].changed, refusals[_i].line);
  copse_status status = copse_schedule_parse("s.json", text, strlen(text), &s, &err);
  ck_assert_msg(status == COPSE_BAD_INPUT, "%s: %s (%s)", refusals[_i].line,
                copse_status_string(status), err.text);
  ck_assert_ptr_null(s);
  snprintf(place, sizeof place, refusals[_i].named ? "s.json:%d: " : "s.json:", refusals[_i].named);
  ck_assert_msg(strncmp(err.text, place, strlen(place)) == 0, "line %d, \"%s\": %s",
                refusals[_i].changed, refusals[_i].line, err.text);
  ck_assert_msg(strstr(err.text, refusals[_i].part), "%s: \"%s\" lacks \"%s\"", refusals[_i].line,
                err.text, refusals[_i].part);
  ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

START_TEST(shares_that_differ_between_the_phases_are_refused) {
#define PHASE(phase, first, second, src, dst)                                    \
  "{\"root\":0,\"phase\":\"" phase "\",\"weight\":\"" first "\",\"edges\":[" src \
  "]},"                                                                          \
  "{\"root\":1,\"phase\":\"" phase "\",\"weight\":\"" second "\",\"edges\":[" dst "]}"
#define A_TO_B "{\"src\":0,\"dst\":1,\"path\":[\"a\",\"b\"]}"
#define B_TO_A "{\"src\":1,\"dst\":0,\"path\":[\"b\",\"a\"]}"
  static const char text[] =
      "{\"format\":\"copse-schedule/1\",\"collective\":\"allreduce\",\n"
      "\"topology\":{\"name\":\"t\"},\"ranks\":[\"a\",\"b\"],\"time_per_GB\":1,\n"
      "\"bound\":{\"time_per_GB\":1,\"cut\":[\"a\"]},\"trees\":[" PHASE(
          "reduce", "1/2", "1/2", B_TO_A, A_TO_B) "," PHASE("broadcast", "1/3", "2/3", A_TO_B,
                                                            B_TO_A) "]}";
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = NULL;
  ASSERT_FAILS(copse_schedule_parse("s.json", text, strlen(text), &s, &err), COPSE_BAD_INPUT, &err,
               "differ between");
}
END_TEST

START_TEST(white_space_moves_the_lines_and_nothing_else) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = NULL;
  char text[2000], spread[4000], *out = spread;
  compose(text, 10, TREE("0", "\"broadcast\"", "0"));
  for (const char *p = text; *p; p++) { /* every line feed becomes three, with blanks */
    *out++ = *p;
    if (*p == '\n') out += sprintf(out, "\t \r\n\n");
  }
  *out = '\0';
  /* line 10 of 1-based lines is now 3 * 9 + 1 */
  ASSERT_FAILS(copse_schedule_parse("s.json", spread, strlen(spread), &s, &err), COPSE_BAD_INPUT,
               &err, "s.json:28: a tree: \"weight\" must be positive");
}
END_TEST

START_TEST(optional_members_may_be_missing) {
  static const struct {
    int line;
    const char *text;
  } cases[] = {{3, "\"topology\": {\"name\": \"t\"},"},
               {5, ""},
               {7, ""},
               {8, "\"bound\": {\"kind\": \"cut\", \"time_per_GB\": 0.05, \"cut\": [\"a\"]},"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *s = NULL;
    char text[2000];
    compose(text, cases[i].line, cases[i].text);
    ASSERT_OK(copse_schedule_parse("s.json", text, strlen(text), &s, &err), &err);
    ck_assert(s->bound.time_per_GB.num == 1 && s->bound.time_per_GB.den == 20);
    copse_schedule_free(s);
  }
}
END_TEST

/* ---- hostile files ------------------------------------------------------------------------- */

/*
 * Whatever a file says: refused, or read and then accepted by the verifier exactly when
 * the judge finds nothing wrong. The exact-size copy lets ASan see a read past the end.
 */
static void check_bytes(const char *text, size_t size, const struct copse_topology *topology) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = NULL;
  struct copse_verify_report report;
  char *copy = malloc(size ? size : 1);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, text, size);
  copse_status status = copse_schedule_parse("s.json", copy, size, &s, &err);
  if (status == COPSE_OK) {
    status = copse_verify_schedule(s, topology, "s.json", &report, &err);
    bool right = copse_test_schedule_defect(s, topology) == NULL;
    ck_assert_msg(status == (right ? COPSE_OK : COPSE_REFUTED), "%s (%s):\n%.*s",
                  copse_status_string(status), err.text, (int)size, text);
  } else {
    ck_assert_ptr_null(s);
    ck_assert_msg(status == COPSE_BAD_INPUT || status == COPSE_UNSUPPORTED, "%s (%s):\n%.*s",
                  copse_status_string(status), err.text, (int)size, text);
    ck_assert_msg(strncmp(err.text, "s.json:", 7) == 0, "no place: %s", err.text);
  }
  copse_schedule_free(s);
  free(copy);
}

/* Three ranks and a switch, an allreduce of both phases: all that the format has. */
static char *victim(struct copse_topology **topology, size_t *size) {
  static const char json[] =
      "{\"format\":\"copse-topology/1\",\"name\":\"t\",\"nodes\":["
      "{\"id\":\"a\",\"type\":\"gpu\"},{\"id\":\"b\",\"type\":\"gpu\"},"
      "{\"id\":\"c\",\"type\":\"gpu\"},{\"id\":\"s\",\"type\":\"switch\",\"multicast\":true}],"
      "\"links\":[{\"src\":\"a\",\"dst\":\"s\",\"bandwidth\":2},"
      "{\"src\":\"b\",\"dst\":\"s\",\"bandwidth\":2},{\"src\":\"c\",\"dst\":\"b\",\"bandwidth\":1}]"
      "}";
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_topology_parse("t.json", json, strlen(json), NULL, topology, &err), &err);
  struct copse_schedule *schedule = solve(*topology, COPSE_ALLREDUCE);
  char *text = write(schedule, size);
  copse_schedule_free(schedule);
  return text;
}

START_TEST(any_byte_changed_is_refused_or_still_right) {
  static const unsigned char values[] = {'0',  '1',  '2', '9', '-',  '"',  '{', '}', '[',
                                         ']',  ',',  ':', '/', 'a',  'b',  's', 'e', ' ',
                                         '\n', '\\', 0,   1,   0x7f, 0x80, 0xff};
  struct copse_topology *topology;
  size_t size;
  char *text = victim(&topology, &size);
  check_bytes(text, size, topology);
  for (size_t i = 0; i < size; i++) {
    char was = text[i];
    const size_t step = copse_test_all() ? 1 : 3;
    for (size_t v = i % step; v < sizeof values; v += step) {
      text[i] = (char)values[v];
      check_bytes(text, size, topology);
    }
    text[i] = (char)(was ^ 1); /* the neighbour: digits and letters of the same kind */
    check_bytes(text, size, topology);
    text[i] = (char)(was + 1);
    check_bytes(text, size, topology);
    text[i] = was;
  }
  free(text);
  copse_topology_free(topology);
}
END_TEST

START_TEST(a_truncated_file_is_refused_at_every_length) {
  struct copse_topology *topology;
  size_t size;
  char *text = victim(&topology, &size);
  size_t end = size;
  while (text[end - 1] == '\n') end--; /* the closing brace is the last byte that counts */
  for (size_t n = 0; n < end; n++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_schedule *s = NULL;
    char *copy = malloc(n ? n : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, n);
    ASSERT_FAILS(copse_schedule_parse("s.json", copy, n, &s, &err), COPSE_BAD_INPUT, &err,
                 "s.json:");
    free(copy);
  }
  free(text);
  copse_topology_free(topology);
}
END_TEST

START_TEST(bytes_dropped_doubled_and_shuffled_are_refused_or_still_right) {
  struct copse_topology *topology;
  size_t size;
  char *text = victim(&topology, &size), *changed = malloc(2 * size);
  ck_assert_ptr_nonnull(changed);
  for (uint64_t seed = 0; seed < (copse_test_all() ? 3000 : 800); seed++) {
    uint64_t state = seed;
    size_t from = copse_test_random(&state) % size, to = copse_test_random(&state) % size;
    size_t n = 1 + copse_test_random(&state) % 40;
    if (from + n > size) n = size - from;
    if (to + n > size) to = size - n;
    memcpy(changed, text, size);
    switch (seed % 3) {
      case 0: /* dropped */
        memmove(changed + from, text + from + n, size - from - n);
        check_bytes(changed, size - n, topology);
        break;
      case 1: /* doubled */
        memcpy(changed + from + n, text + from, size - from);
        check_bytes(changed, size + n, topology);
        break;
      default: /* copied over another place */
        memcpy(changed + to, text + from, n);
        check_bytes(changed, size, topology);
    }
  }
  free(changed);
  free(text);
  copse_topology_free(topology);
}
END_TEST

START_TEST(numbers_at_the_edge_of_64_bits_do_no_harm) {
  static const char *const weights[] = {"\"9223372036854775807/9223372036854775806\"",
                                        "\"1/9223372036854775807\"",
                                        "\"9223372036854775807\"",
                                        "9223372036854775807",
                                        "1e-18",
                                        "\"-9223372036854775808/3\"",
                                        "\"1/9223372036854775783\"",
                                        "\"4611686018427387904/9223372036854775807\""};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  ASSERT_OK(copse_topology_parse("t.json", TOPOLOGY, strlen(TOPOLOGY), NULL, &topology, &err),
            &err);
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
    char text[2000], line[300];
    snprintf(line, sizeof line,
             "  {\"root\": 0, \"phase\": \"broadcast\", \"weight\": %s, \"edges\": [", weights[i]);
    compose(text, 10, line);
    check_bytes(text, strlen(text), topology);
    snprintf(line, sizeof line, " \"time_per_GB\": %s,", weights[i]);
    compose(text, 6, line);
    check_bytes(text, strlen(text), topology);
    snprintf(line, sizeof line, "\"bound\": {\"time_per_GB\": %s, \"cut\": [\"a\"]},", weights[i]);
    compose(text, 8, line);
    check_bytes(text, strlen(text), topology);
  }
  copse_topology_free(topology);
}
END_TEST

START_TEST(deep_nesting_and_huge_arrays_are_refused_quickly) {
  size_t n = 4u << 20;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *s = NULL;
  char *text = malloc(n);
  ck_assert_ptr_nonnull(text);
  memset(text, '[', n);
  ASSERT_FAILS(copse_schedule_parse("s.json", text, n, &s, &err), COPSE_BAD_INPUT, &err,
               "s.json:1:");
  memset(text, 0, n);
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_schedule_parse("s.json", text, n, &s, &err), COPSE_BAD_INPUT, &err,
               "s.json:1:");
  err = (struct copse_err)COPSE_ERR_INIT;
  ASSERT_FAILS(copse_schedule_parse("s.json", text, 0, &s, &err), COPSE_BAD_INPUT, &err, "empty");
  free(text);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("schedule/schedule_json");
  TCase *tests = tcase_create("schedule_json");
  tcase_add_test(tests, written_schedules_read_back_the_same_and_write_the_same_bytes);
  tcase_add_test(tests, the_small_schedule_is_right_and_verifies);
  tcase_add_loop_test(tests, refusals_name_the_line_and_the_cause, 0, N_REFUSALS);
  tcase_add_test(tests, shares_that_differ_between_the_phases_are_refused);
  tcase_add_test(tests, white_space_moves_the_lines_and_nothing_else);
  tcase_add_test(tests, optional_members_may_be_missing);
  tcase_add_test(tests, any_byte_changed_is_refused_or_still_right);
  tcase_add_test(tests, a_truncated_file_is_refused_at_every_length);
  tcase_add_test(tests, bytes_dropped_doubled_and_shuffled_are_refused_or_still_right);
  tcase_add_test(tests, numbers_at_the_edge_of_64_bits_do_no_harm);
  tcase_add_test(tests, deep_nesting_and_huge_arrays_are_refused_quickly);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
