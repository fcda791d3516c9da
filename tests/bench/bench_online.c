/*
 * Online alltoallv: planning time on one core, and the plan's simulated time over the lower
 * bound, latencies included. Run by scripts/bench_online from the root of the repository.
 *
 *   plan   copse_online_plan: reads all N * N counts, cuts the host matrix into stages, finds the
 *          lower bound. Every rank does all of it.
 *   start  plan, and all hops that one rank sends, in order: what a rank needs to run.
 *          "warm": counts and planner in the cache from the last run; "cold": 64 MiB of other
 *          memory written in between, outside of the timed part.
 *   all    the pieces of all ranks (nobody needs that; a simulator does).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "schedule/online/online.h"
#include "support/online_simulation.h"

#define MIB ((double)(1 << 20))

/* The processor's time of this thread: what else runs on the machine counts as little as it can. */
static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static uint64_t state = 1;
static double uniform(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 11) / 9007199254740992.0;
}

static void *must(void *p) {
  if (p) return p;
  fputs("bench_online: out of memory\n", stderr);
  exit(4);
}

static void ok(copse_status status, const struct copse_err *err) {
  if (status == COPSE_OK) return;
  fprintf(stderr, "bench_online: %s\n", err->text);
  exit(4);
}

/* ---- demands ------------------------------------------------------------------------------- */

static const char *const demands[] = {
    "uniform",  "random",    "zipf 1.0",   "zipf 1.5",   "hot rank",  "one host", "one host, zipf",
    "one rank", "hot pairs", "empty rows", "heavy tail", "all tight", "slivers"};
enum { N_DEMANDS = sizeof demands / sizeof *demands };

/* Popularity of the experts: rank^-s in a random order, adding up to 1. */
static void zipf(double *share, int n, double s) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += share[i] = pow(i + 1, -s);
  for (int i = n - 1; i > 0; i--) {
    int j = (int)(uniform() * (i + 1));
    double t = share[i];
    share[i] = share[j];
    share[j] = t;
  }
  for (int i = 0; i < n; i++) share[i] /= sum;
}

/* Each sender sends about m bytes in all. */
static double entry(const char *what, const double *share, int n, int i, int j, double m) {
  if (strcmp(what, "uniform") == 0) return m / n;
  if (strcmp(what, "random") == 0) return m / n * 2 * uniform();
  if (strncmp(what, "zipf", 4) == 0) return m * share[j] * (0.75 + 0.5 * uniform());
  if (strcmp(what, "hot rank") == 0) return j == n / 2 + 3 ? m : 0;
  if (strcmp(what, "one host") == 0) return i < 8 ? m / n : 0;
  if (strcmp(what, "one host, zipf") == 0) return i < 8 ? m * share[j] : 0;
  if (strcmp(what, "one rank") == 0) return i == 5 ? m / n : 0;
  if (strcmp(what, "hot pairs") == 0) return j == (i * 7 + 11) % n ? m : 0;
  if (strcmp(what, "slivers") == 0) return i / 8 == j / 8 ? m / 8 : 1;
  if (strcmp(what, "empty rows") == 0) return i % 3 == 0 ? m * share[j] : 0;
  return m / n / 3 * pow(uniform() + 1e-6, -0.7); /* heavy tail */
}

/* Every host sends and receives the same: 400 permutations of hosts, added up. No NIC may ever
 * rest. */
static void add_permutations(int64_t *bytes, int n, double m) {
  int h = n / 8, *p = must(malloc((size_t)h * sizeof *p));
  for (int a = 0; a < h; a++) p[a] = a;
  for (int round = 0; round < 400; round++) {
    double each = m / 200 * uniform();
    for (int a = h - 1; a > 0; a--) {
      int b = (int)(uniform() * (a + 1)), t = p[a];
      p[a] = p[b];
      p[b] = t;
    }
    for (int i = 0; i < n; i++)
      bytes[(size_t)i * (size_t)n + (size_t)(p[i / 8] * 8 + (i * 5 + round) % 8)] += (int64_t)each;
  }
  free(p);
}

static void fill(int64_t *bytes, int n, const char *what, double m) {
  double *share = must(malloc((size_t)n * sizeof *share));
  state = 42;
  if (strcmp(what, "all tight") == 0) {
    memset(bytes, 0, (size_t)n * (size_t)n * sizeof *bytes);
    add_permutations(bytes, n, m);
    free(share);
    return;
  }
  zipf(share, n, strstr(what, "1.5") ? 1.5 : 1.0);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      bytes[(size_t)i * (size_t)n + (size_t)j] = (int64_t)entry(what, share, n, i, j, m);
  free(share);
}

/* ---- planning time ------------------------------------------------------------------------- */

struct times {
  double min, median, max;
};

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static struct times summary(double *us, int n) {
  qsort(us, (size_t)n, sizeof *us, compare);
  return (struct times){us[0], us[n / 2], us[n - 1]};
}

static void count_piece(void *ctx, const struct copse_online_piece *piece) {
  *(int64_t *)ctx += piece->bytes > 0;
}

struct bench {
  struct copse_online *online;
  int64_t *bytes;
  int n, runs;
  struct copse_online_transfer *out;
  int64_t capacity;
  char *flush;
};

static void time_starts(const struct bench *b, bool cold, struct times *plan, struct times *start) {
  double *p = must(malloc((size_t)b->runs * sizeof *p)),
         *s = must(malloc((size_t)b->runs * sizeof *s));
  struct copse_err err = COPSE_ERR_INIT;
  for (int i = 0; i < b->runs; i++) {
    int64_t n;
    if (cold) memset(b->flush, i, 64 << 20);
    double t0 = now_us();
    ok(copse_online_plan(b->online, b->bytes, &err), &err);
    double t1 = now_us();
    ok(copse_online_transfers(b->online, 3 % b->n, COPSE_ONLINE_SENDS, b->out, b->capacity, &n,
                              &err),
       &err);
    p[i] = t1 - t0;
    s[i] = now_us() - t0;
  }
  *plan = summary(p, b->runs);
  *start = summary(s, b->runs);
  free(p);
  free(s);
}

static void bench_demand(struct bench *b, const char *what) {
  struct times plan, start, cold_plan, cold_start;
  int64_t pieces = 0, bound, nic;
  fill(b->bytes, b->n, what, 64 * MIB);
  time_starts(b, false, &plan, &start);
  time_starts(b, true, &cold_plan, &cold_start);
  copse_online_inter(b->online, &bound, &nic);
  double t = now_us();
  copse_online_walk(b->online, count_piece, &pieces);
  t = now_us() - t;
  printf("%5d %-15s %6d %6d %8.3f%% | %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f | %8.1f | %9.1f %9lld\n",
         b->n, what, copse_online_stages(b->online), copse_online_steps(b->online, NULL),
         bound ? 100.0 * (8 * (double)nic / (double)bound - 1) : 0.0, plan.median, start.min,
         start.median, start.max, cold_plan.median, cold_start.median, cold_start.max, t,
         (long long)pieces);
  fflush(stdout);
}

static void bench_planning(int hosts, int runs) {
  struct copse_online_model model = {.hosts = hosts,
                                     .ranks_per_host = 8,
                                     .intra_out = 300,
                                     .intra_in = 300,
                                     .nic = 25,
                                     .scale = 1};
  struct copse_err err = COPSE_ERR_INIT;
  struct bench b = {.n = hosts * 8, .runs = runs, .capacity = 1 << 18};
  b.bytes = must(calloc((size_t)b.n * (size_t)b.n, sizeof *b.bytes));
  b.out = must(calloc((size_t)b.capacity, sizeof *b.out));
  b.flush = must(malloc(64 << 20));
  ok(copse_online_create(&model, NULL, &b.online, &err), &err);
  for (int d = 0; d < N_DEMANDS; d++) bench_demand(&b, demands[d]);
  copse_online_free(b.online);
  free(b.bytes);
  free(b.out);
  free(b.flush);
}

/* ---- simulated time -------------------------------------------------------------------------- */

static struct copse_topology *cluster(int hosts, const char *fabric) {
  char text[300];
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  snprintf(text, sizeof text,
           "{\"format\": \"copse-cluster/1\", \"name\": \"bench\", \"host\": \"a100-host.json\","
           " \"hosts\": %d, \"fabric\": {\"type\": \"%s\", \"bandwidth\": 25, \"latency\": 1}}",
           hosts, fabric);
  ok(copse_topology_parse("topologies/bench.json", text, strlen(text), NULL, &t, &err), &err);
  return t;
}

static double median_plan_us(struct copse_planner *p, const int64_t *bytes, int runs) {
  struct copse_err err = COPSE_ERR_INIT;
  double *us = must(malloc((size_t)runs * sizeof *us));
  for (int i = 0; i < runs; i++) {
    double t = now_us();
    ok(copse_planner_plan(p, bytes, &err), &err);
    us[i] = now_us() - t;
  }
  double median = summary(us, runs).median;
  free(us);
  return median;
}

static void simulate(struct copse_planner *p, const struct copse_topology *t, int64_t *bytes,
                     const char *what, double mib, int runs) {
  /* the plan's own messages are its chunks */
  struct copse_sim_options options = {.alpha_us = 2,
                                      .min_chunk_bytes = 1e15,
                                      .max_chunk_bytes = 1e15,
                                      .pipeline_chunks = 1,
                                      .max_steps = (int64_t)1 << 40};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_sim_dag dag = {0};
  struct copse_sim_result result;
  struct copse_online_bound bound;
  struct copse_online *online = copse_planner_two_tier(p);
  fill(bytes, t->n_ranks, what, mib * MIB);
  double plan_us = median_plan_us(p, bytes, runs);
  copse_planner_bound(p, &bound);
  ok(copse_test_online_simulation(t, online, &dag, &err), &err);
  ok(copse_simulate(t, &dag, &options, 1, &result, NULL, &err), &err);
  printf("%5d %-15s %8.0f KiB | %11.1f %11.1f %11.1f %9.4f | %-6s %5d %10d %8.1f\n", t->n_ranks,
         what, mib * 1024, bound.seconds * 1e6, bound.with_latency * 1e6, result.us,
         bound.with_latency > 0 ? result.us / (bound.with_latency * 1e6) : 1.0,
         copse_online_form_of(online) == COPSE_ONLINE_EVEN ? "even" : "direct",
         copse_online_steps(online, NULL), dag.n_transfers, plan_us);
  fflush(stdout);
  copse_sim_dag_free(&dag);
}

static void bench_simulated(int hosts, const char *fabric, int runs) {
  static const double sizes[] = {0.0625, 0.25, 1, 4, 64};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_planner *p = NULL;
  struct copse_topology *t = cluster(hosts, fabric);
  int64_t *bytes = must(calloc((size_t)t->n_ranks * (size_t)t->n_ranks, sizeof *bytes));
  ok(copse_planner_create(t, NULL, &p, &err), &err);
  for (int d = 0; d < N_DEMANDS; d++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      simulate(p, t, bytes, demands[d], sizes[s], runs);
  copse_planner_release(p);
  copse_topology_free(t);
  free(bytes);
}

int main(int argc, char **argv) {
  int runs = argc > 1 ? atoi(argv[1]) : 51;
  printf("microseconds of one core, %d runs; plan, start: see tests/bench/bench_online.c\n", runs);
  printf("%5s %-15s %6s %6s %9s | %8s %8s %8s %8s %8s %8s | %8s | %9s %9s\n", "ranks", "demand",
         "stages", "steps", "over R", "plan", "start", "start", "start", "cold", "cold", "cold",
         "all", "pieces");
  printf("%5s %-15s %6s %6s %9s | %8s %8s %8s %8s %8s %8s | %8s |\n", "", "", "", "", "", "median",
         "min", "median", "max", "plan", "start", "max");
  bench_planning(8, runs);
  bench_planning(40, runs);
  bench_planning(128, runs);
  puts("\nsimulated (a100 hosts, alpha 2 us, 1 us a fabric link); 64 ranks also on a flat fabric");
  printf("%5s %-15s %12s | %11s %11s %11s %9s | %-6s %5s %10s %8s\n", "ranks", "demand", "a GPU",
         "bytes' us", "bound us", "time us", "ratio", "form", "steps", "transfers", "plan us");
  static const int hosts[] = {1, 8, 40, 128};
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
    bench_simulated(hosts[i], "rails", runs);
  bench_simulated(8, "flat", runs);
  return 0;
}
