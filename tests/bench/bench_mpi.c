/*
 * copse's plans beside MPI's own collectives, in one job over the same links, turn about:
 * `bench_mpi allgather|allreduce FOLDER MIN MAX FACTOR RUNS` under mpirun; FOLDER has the plan. A
 * line for each run: bytes, microseconds of copse over MPI, of copse over UCX (0: built without)
 * and of MPI, elements in which the results differ. Each counts until the last rank is done.
 * scripts/bench_mpi makes hosts, plans, medians and the table.
 *
 * `bench_mpi pairs STEPS RUNS BYTES...`: what messages from rank to rank take, before. STEPS as
 * 1,2,4: a rank's partners are that far away, up or down, one after the other as in the steps of
 * recursive doubling, but with as much for each. A line for each of BYTES: microseconds of messages
 * one way, of one each way at once, and of adding as much once, all ranks at the same time. With
 * BYTES as TOTAL/CHUNK, of TOTAL bytes in messages of CHUNK.
 *
 * `bench_mpi ping RUNS BYTES DISTANCE...`: a line for each DISTANCE of two ranks, the distance and
 * half of what a message of so many bytes takes there and back, in microseconds: the median of what
 * the slowest pair takes, all pairs at the same time.
 *
 * `bench_mpi copies RUNS BYTES...`: a line for each of BYTES, microseconds of filling that much new
 * memory and of a copy as long, all ranks at the same time.
 *
 * `bench_mpi repair PLANS NEW BYTES SECONDS COMMAND`: allreduces one after the other for so long, a
 * line for each: microseconds since 1970 when it was done, microseconds that it took, wrong
 * elements. Rank r is on host r, whose link to host s is the device "to<s>". When the system says
 * that a rank's link is down, that rank ends the call on all; they agree on which links are down,
 * rank 0 runs COMMAND with a --down for each, and all go on with the plans in NEW. An empty
 * COMMAND: nobody looks at links. scripts/demo_repair makes hosts and cuts a link.
 */
#include "copse/mpi.h"
#ifdef COPSE_HAVE_UCX
#include "copse/ucx.h"
#endif

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_SECONDS 120
#define MOST_RUNS 1000

/* What does a collective: copse over a wire, or MPI itself. */
enum { OVER_MPI, OVER_UCX, MPI, N_WAYS };

struct bench {
  copse_comm *comm[N_WAYS]; /* NULL for MPI, and where copse was built without UCX */
  int rank, n;
  bool reduces;
  float *in, *out[N_WAYS];
};

static void die(const char *fmt, ...) {
  char text[600];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fprintf(stderr, "bench_mpi: %s\n", text);
  MPI_Abort(MPI_COMM_WORLD, 4);
  exit(4);
}

static void ok(copse_status status) {
  if (status != COPSE_OK) die("%s", copse_last_error());
}

static float *new_floats(size_t n) {
  float *it = calloc(n, sizeof *it);
  if (!it) die("out of memory");
  return it;
}

/* Small integers: their sums are the same in any order. */
static void fill(struct bench *b, size_t in_count, size_t out_count, int seed) {
  for (size_t i = 0; i < in_count; i++)
    b->in[i] = (float)((i * 7 + (size_t)b->rank * 13 + (size_t)seed) % 1021);
  for (int k = 0; k < N_WAYS; k++) memset(b->out[k], 0xff, out_count * sizeof(float));
}

static void call(struct bench *b, int way, size_t count) {
  int code = MPI_SUCCESS;
  float *out = b->out[way];
  copse_comm *comm = b->comm[way];
  if (way != MPI && b->reduces)
    ok(copse_all_reduce(b->in, out, count, COPSE_FLOAT, COPSE_SUM, comm, NULL));
  else if (way != MPI)
    ok(copse_all_gather(b->in, out, count, COPSE_FLOAT, comm, NULL));
  else if (b->reduces)
    code = MPI_Allreduce(b->in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else
    code = MPI_Allgather(b->in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) die("MPI: error %d", code);
}

/* Microseconds until the last rank is done. */
static double time_call(struct bench *b, int way, size_t count) {
  double took, slowest;
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  call(b, way, count);
  took = 1e6 * (MPI_Wtime() - start);
  MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *times, int n) {
  qsort(times, (size_t)n, sizeof *times, compare);
  return (times[(n - 1) / 2] + times[n / 2]) / 2;
}

/* The first size also warms up, with a run that doesn't count. */
static void run_size(struct bench *b, size_t bytes, int runs, bool warm) {
  size_t parts = b->reduces ? 1 : (size_t)b->n;
  size_t count = bytes / sizeof(float) / parts, out_count = count * parts;
  if (count == 0 || count > INT32_MAX) die("%zu bytes: too few or too many", bytes);
  b->in = new_floats(count);
  for (int k = 0; k < N_WAYS; k++) b->out[k] = new_floats(out_count);
  for (int run = warm ? 0 : -1; run < runs; run++) {
    long long wrong = 0, all_wrong = 0;
    double took[N_WAYS] = {0};
    fill(b, count, out_count, run + 1);
    for (int way = 0; way < N_WAYS; way++) {
      if (way != MPI && !b->comm[way]) continue;
      took[way] = time_call(b, way, count);
    }
    for (int way = 0; way < MPI; way++)
      for (size_t i = 0; b->comm[way] && i < out_count; i++)
        wrong += b->out[way][i] != b->out[MPI][i];
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (b->rank == 0 && (run >= 0 || all_wrong > 0))
      printf("%zu %.0f %.0f %.0f %lld\n", out_count * sizeof(float), took[OVER_MPI], took[OVER_UCX],
             took[MPI], all_wrong);
    fflush(stdout);
  }
  free(b->in);
  for (int k = 0; k < N_WAYS; k++) free(b->out[k]);
}

/* ---- from rank to rank ------------------------------------------------------------------- */

/* Messages of one rank that are on their way at once: those of copse's plans, see --fifo. */
#define MOST_UNDER_WAY 32

#define MOST_STEPS 64

struct pairs {
  int rank, n, n_steps, distance[MOST_STEPS];
  size_t bytes, message;
  char *in, *out;
};

/* -1: none. */
static int partner_at(const struct pairs *p, int distance) {
  int partner = p->rank / distance % 2 ? p->rank - distance : p->rank + distance;
  return partner < p->n ? partner : -1;
}

/* Sends, receives, or both, message by message. */
static void exchange(const struct pairs *p, int partner, bool sends, bool receives) {
  MPI_Request requests[2 * MOST_UNDER_WAY];
  int n = 0;
  for (int i = 0; i < 2 * MOST_UNDER_WAY; i++) requests[i] = MPI_REQUEST_NULL;
  for (size_t at = 0; at < p->bytes; at += p->message, n = (n + 1) % MOST_UNDER_WAY) {
    int part = (int)(p->bytes - at < p->message ? p->bytes - at : p->message);
    MPI_Waitall(2, requests + 2 * n, MPI_STATUSES_IGNORE); /* the place's last */
    if (receives)
      MPI_Irecv(p->in + at, part, MPI_BYTE, partner, 0, MPI_COMM_WORLD, &requests[2 * n]);
    if (sends)
      MPI_Isend(p->out + at, part, MPI_BYTE, partner, 0, MPI_COMM_WORLD, &requests[2 * n + 1]);
  }
  MPI_Waitall(2 * MOST_UNDER_WAY, requests, MPI_STATUSES_IGNORE);
}

/* A collective finds most connections idle for a while, and TCP is slower then. */
#define IDLE_US 300000
#define SUM_BYTES (32 << 20)

/* Microseconds until the last pair is done. Nobody waits between the steps: that a rank comes to
 * one late, since others had its link before, is part of what steps take. */
static double time_steps(const struct pairs *p, bool upwards, bool downwards) {
  double took, slowest;
  usleep(IDLE_US);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int step = 0; step < p->n_steps; step++) {
    int partner = partner_at(p, p->distance[step]);
    bool is_low = p->rank < partner;
    if (partner >= 0)
      exchange(p, partner, is_low ? upwards : downwards, is_low ? downwards : upwards);
  }
  took = 1e6 * (MPI_Wtime() - start);
  MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/* Microseconds of a sum, all ranks at it at once: they may share cores. */
static double time_sum(const struct pairs *p) {
  int runs = p->bytes < SUM_BYTES ? (int)(SUM_BYTES / p->bytes) : 1;
  double took, slowest;
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int run = 0; run < runs; run++)
    for (size_t at = 0; at < p->bytes; at += p->message) { /* the message just came, and is near */
      int n = (int)((p->bytes - at < p->message ? p->bytes - at : p->message) / sizeof(float));
      if (MPI_Reduce_local(p->in, p->out + at, n, MPI_FLOAT, MPI_SUM) != MPI_SUCCESS)
        die("MPI_Reduce_local");
    }
  took = 1e6 * (MPI_Wtime() - start) / runs;
  MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/* The mean of the middle half: who of two begins, and so what a transport makes of both ways at
 * once, is a matter of luck, and a collective has many exchanges; but not what else the machine
 * did. */
static double middle(double *times, int n) {
  int first = n / 4, last = n - n / 4;
  double sum = 0;
  qsort(times, (size_t)n, sizeof *times, compare);
  for (int i = first; i < last; i++) sum += times[i];
  return sum / (last - first);
}

/* The first message between two ranks also makes their connection, and finds it slow to start. */
static void connect_and_touch(const struct pairs *p) {
  struct pairs first = *p;
  if (first.bytes > 1 << 20) first.bytes = 1 << 20;
  if (first.message > first.bytes) first.message = first.bytes;
  memset(p->in, 1, p->bytes); /* zeros might stay one page of the system's */
  memset(p->out, 1, p->bytes);
  time_steps(&first, true, true);
}

static void run_pairs(struct pairs *p, int runs) {
  static double one[2], both[MOST_RUNS];
  p->in = (char *)new_floats(p->bytes / sizeof(float) + 1);
  p->out = (char *)new_floats(p->bytes / sizeof(float) + 1);
  connect_and_touch(p);
  for (int run = 0; run < 2; run++) one[run] = time_steps(p, run == 0, run != 0);
  for (int run = 0; run < runs; run++) both[run] = time_steps(p, true, true);
  double sum = time_sum(p);
  if (p->rank == 0)
    printf("%zu %.0f %.0f %.0f\n", p->message, middle(one, 2), middle(both, runs), sum);
  fflush(stdout);
  free(p->in);
  free(p->out);
}

static int number_of(const char *text, const char *what, int most) {
  int n = atoi(text);
  if (n < 1 || n > most) die("%s from 1 to %d", what, most);
  return n;
}

static void all_pairs(struct pairs *p, int argc, char **argv) {
  const char *step = argv[2];
  int runs = number_of(argv[3], "RUNS", MOST_RUNS);
  do {
    if (p->n_steps == MOST_STEPS) die("more than %d steps", MOST_STEPS);
    p->distance[p->n_steps++] = number_of(step, "a step", p->n);
    step = strchr(step, ',');
  } while (step++);
  for (int i = 4; i < argc; i++) {
    char *chunk;
    p->bytes = p->message = strtoull(argv[i], &chunk, 10);
    if (*chunk == '/') p->message = strtoull(chunk + 1, NULL, 10);
    if (p->message == 0 || p->message > p->bytes || p->bytes > INT32_MAX)
      die("BYTES and CHUNK: from 1 to 2^31-1");
    run_pairs(p, runs);
  }
}

/* ---- there and back ------------------------------------------------------------------------ */

#define PINGS 100

/* Microseconds of half a round trip, the mean of several. */
static double time_ping(const struct pairs *p, int partner) {
  char *in = p->in, *out = p->out;
  int bytes = (int)p->bytes;
  double took = 0, slowest;
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < PINGS && partner >= 0; i++) {
    if (p->rank < partner) MPI_Send(out, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (p->rank > partner) MPI_Send(out, bytes, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
  }
  took = 1e6 * (MPI_Wtime() - start) / PINGS / 2;
  if (partner < 0) took = 0;
  MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static void run_pings(struct pairs *p, int argc, char **argv) {
  static double times[MOST_RUNS];
  int runs = number_of(argv[2], "RUNS", MOST_RUNS);
  p->bytes = (size_t)number_of(argv[3], "BYTES", 1 << 20);
  p->in = (char *)new_floats(p->bytes / sizeof(float) + 1);
  p->out = (char *)new_floats(p->bytes / sizeof(float) + 1);
  for (int i = 4; i < argc; i++) {
    int distance = number_of(argv[i], "a distance", p->n), partner = partner_at(p, distance);
    (void)time_ping(p, partner); /* makes the connections */
    for (int run = 0; run < runs; run++) times[run] = time_ping(p, partner);
    if (p->rank == 0) printf("%d %.2f\n", distance, median(times, runs));
    fflush(stdout);
  }
  free(p->in);
  free(p->out);
}

/* ---- memory ------------------------------------------------------------------------------ */

static void run_copies(int rank, size_t bytes, int runs) {
  static double times[MOST_RUNS];
  char *in = (char *)new_floats(bytes / sizeof(float) + 1);
  char *out = (char *)new_floats(bytes / sizeof(float) + 1);
  memset(in, 1, bytes);
  memset(out, 1, bytes);
  for (int run = 0; run < runs; run++) {
    double took;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    char *fresh = malloc(bytes);
    if (!fresh) die("out of memory");
    memset(fresh, run, bytes);
    memcpy(out, in, bytes);
    out[0] = fresh[bytes - 1 - (size_t)in[0]]; /* the memory is used */
    free(fresh);
    took = 1e6 * (MPI_Wtime() - start);
    MPI_Allreduce(&took, &times[run], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
  if (rank == 0) printf("%zu %.0f\n", bytes, median(times, runs));
  fflush(stdout);
  free(in);
  free(out);
}

/* ---- a link that is cut ------------------------------------------------------------------- */

#define MOST_HOSTS 8
#define LOOK_EVERY_NS 1000000

/* Of a rank. What the watching thread shares: `comm` under `lock`, `down` a bit for each host. */
struct watch {
  pthread_mutex_t lock;
  copse_comm *comm;
  atomic_uint down;
  atomic_bool ends;
  int rank, n;
};

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static bool is_up(int host) {
  char path[64], state[16] = "";
  snprintf(path, sizeof path, "/sys/class/net/to%d/operstate", host);
  FILE *in = fopen(path, "r");
  if (!in) return false;
  bool up = fgets(state, sizeof state, in) && strcmp(state, "up\n") == 0;
  fclose(in);
  return up;
}

static void *watch_links(void *context) {
  static const struct timespec nap = {0, LOOK_EVERY_NS};
  struct watch *w = context;
  while (!atomic_load(&w->ends)) {
    for (int h = 0; h < w->n; h++) {
      unsigned bit = 1u << h;
      if (h == w->rank || (atomic_load(&w->down) & bit) || is_up(h)) continue;
      atomic_fetch_or(&w->down, bit);
      pthread_mutex_lock(&w->lock);
      if (w->comm) ok(copse_comm_abort(w->comm));
      pthread_mutex_unlock(&w->lock);
    }
    nanosleep(&nap, NULL);
  }
  return NULL;
}

static copse_comm *join(const char *plans) {
  copse_comm *comm;
  copse_wire wire;
  int loaded = 0;
  (void)!copse_wire_new_mpi(MPI_COMM_WORLD, TIMEOUT_SECONDS, &wire);
  ok(copse_comm_init_wire(&comm, &wire, TIMEOUT_SECONDS));
  ok(copse_comm_load_plans(comm, plans, &loaded));
  if (loaded == 0) die("no plan in %s", plans);
  return comm;
}

/* COMMAND with what is down, run by rank 0; the others wait for it. */
static void make_plans(const struct watch *w, const unsigned *down, const char *command) {
  char text[4096];
  int status = 0;
  size_t used = (size_t)snprintf(text, sizeof text, "%s", command);
  for (int a = 0; a < w->n; a++)
    for (int b = a + 1; b < w->n; b++)
      if ((down[a] >> b & 1u) || (down[b] >> a & 1u))
        used += (size_t)snprintf(text + used, sizeof text - used, " --down 'h%d>h%d'", a, b);
  if (used >= sizeof text) die("the command is too long");
  if (w->rank == 0) status = system(text);
  MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (status != 0) die("failed: %s", text);
}

/* Ends it here. A rank that waits in a call sees it; so this comes before all else that waits
 * for others. */
static void leave(struct watch *w) {
  pthread_mutex_lock(&w->lock);
  copse_comm *broken = w->comm;
  w->comm = NULL;
  pthread_mutex_unlock(&w->lock);
  if (!broken) return;
  ok(copse_comm_abort(broken));      /* where it isn't broken yet: others don't come to free it */
  (void)!copse_comm_destroy(broken); /* says again why it is broken */
}

/* After a call that ended with the communicator. */
static void go_on(struct watch *w, const char *plans, const char *command) {
  unsigned mine, down[MOST_HOSTS];
  double at[4] = {now_us()};
  leave(w);
  mine = atomic_load(&w->down);
  MPI_Allgather(&mine, 1, MPI_UNSIGNED, down, 1, MPI_UNSIGNED, MPI_COMM_WORLD);
  at[1] = now_us();
  make_plans(w, down, command);
  at[2] = now_us();
  copse_comm *comm = join(plans);
  at[3] = now_us();
  pthread_mutex_lock(&w->lock);
  w->comm = comm;
  pthread_mutex_unlock(&w->lock);
  if (w->rank == 0) printf("repair %.0f %.0f %.0f %.0f\n", at[0], at[1], at[2], at[3]);
}

/* One allreduce; false: it ended with the communicator. */
static bool reduce_once(struct watch *w, float *data, size_t count, int seed) {
  long long wrong = 0, all_wrong = 0;
  int failed, any_failed = 0;
  for (size_t i = 0; i < count; i++) data[i] = (float)((i + (size_t)seed) % 1000 + (size_t)w->rank);
  double start = now_us();
  failed = copse_all_reduce(data, data, count, COPSE_FLOAT, COPSE_SUM, w->comm, NULL) != COPSE_OK;
  double end = now_us();
  if (failed) {
    printf("# rank %d: %s\n", w->rank, copse_last_error());
    leave(w);
  }
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (any_failed) return false;
  for (size_t i = 0; i < count; i++)
    wrong += data[i] !=
             (float)((size_t)w->n * ((i + (size_t)seed) % 1000) + (size_t)(w->n * (w->n - 1) / 2));
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (w->rank == 0) printf("done %.0f %.0f %lld\n", end, end - start, all_wrong);
  fflush(stdout);
  return true;
}

static void run_repair(int rank, int n, char **argv) {
  struct watch w = {.rank = rank, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
  size_t count = strtoull(argv[4], NULL, 10) / sizeof(float);
  double end = now_us() + 1e6 * atof(argv[5]);
  pthread_t watcher;
  if (n > MOST_HOSTS) die("more than %d hosts", MOST_HOSTS);
  w.comm = join(argv[2]);
  float *data = new_floats(count);
  bool watches = argv[6][0] != '\0';
  if (watches && pthread_create(&watcher, NULL, watch_links, &w) != 0) die("no thread");
  for (int seed = 0, goes_on = 1; goes_on; seed++) {
    if (!reduce_once(&w, data, count, seed)) {
      if (!watches) die("%s", copse_last_error());
      double start = now_us();
      go_on(&w, argv[3], argv[6]);
      end += now_us() - start; /* on a busy machine plans may take longer than the job */
    }
    goes_on = now_us() < end;
    MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  atomic_store(&w.ends, true);
  if (watches) pthread_join(watcher, NULL);
  ok(copse_comm_destroy(w.comm));
  free(data);
}

/* ---- collectives -------------------------------------------------------------------------- */

static void load(copse_comm *comm, const char *folder) {
  int loaded = 0;
  ok(copse_comm_set_timeout(comm, TIMEOUT_SECONDS));
  ok(copse_comm_load_plans(comm, folder, &loaded));
  if (loaded == 0) die("no plan for this number of ranks in %s", folder);
}

#ifdef COPSE_HAVE_UCX
static copse_status gather(void *context, const void *mine, void *all, size_t n) {
  (void)context;
  bool failed = MPI_Allgather(mine, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, MPI_COMM_WORLD);
  return failed ? COPSE_DEVICE : COPSE_OK;
}

static void join_over_ucx(struct bench *b, const char *folder) {
  copse_bootstrap bootstrap = {.all_gather = gather};
  ok(copse_comm_init_ucx(&b->comm[OVER_UCX], b->n, b->rank, &bootstrap));
  load(b->comm[OVER_UCX], folder);
}
#else
static void join_over_ucx(struct bench *b, const char *folder) {
  (void)b, (void)folder;
}
#endif

int main(int argc, char **argv) {
  struct bench b = {.comm = {NULL}};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &b.n);
  if (argc >= 5 && strcmp(argv[1], "pairs") == 0) {
    all_pairs(&(struct pairs){.rank = b.rank, .n = b.n}, argc, argv);
    MPI_Finalize();
    return 0;
  }
  if (argc >= 5 && strcmp(argv[1], "ping") == 0) {
    run_pings(&(struct pairs){.rank = b.rank, .n = b.n}, argc, argv);
    MPI_Finalize();
    return 0;
  }
  if (argc >= 4 && strcmp(argv[1], "copies") == 0) {
    int runs = number_of(argv[2], "RUNS", MOST_RUNS);
    for (int i = 3; i < argc; i++) run_copies(b.rank, strtoull(argv[i], NULL, 10), runs);
    MPI_Finalize();
    return 0;
  }
  if (argc == 7 && strcmp(argv[1], "repair") == 0) {
    run_repair(b.rank, b.n, argv);
    MPI_Finalize();
    return 0;
  }
  if (argc != 7) die("usage: bench_mpi allgather|allreduce FOLDER MIN MAX FACTOR RUNS");
  b.reduces = strcmp(argv[1], "allreduce") == 0;
  if (!b.reduces && strcmp(argv[1], "allgather") != 0) die("no collective '%s'", argv[1]);
  size_t most = strtoull(argv[4], NULL, 10), factor = strtoull(argv[5], NULL, 10);
  int runs = number_of(argv[6], "RUNS", MOST_RUNS);
  if (factor < 2) die("FACTOR from 2");
  ok(copse_comm_init_mpi(&b.comm[OVER_MPI], MPI_COMM_WORLD));
  load(b.comm[OVER_MPI], argv[2]);
  join_over_ucx(&b, argv[2]);
  size_t least = strtoull(argv[3], NULL, 10);
  for (size_t bytes = least; bytes <= most; bytes *= factor)
    run_size(&b, bytes, runs, bytes > least);
  for (int way = 0; way < MPI; way++)
    if (b.comm[way]) ok(copse_comm_destroy(b.comm[way]));
  MPI_Finalize();
  return 0;
}
