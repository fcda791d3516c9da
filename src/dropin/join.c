/*
 * A new NCCL communicator: its ranks exchange records, conclude alike whether its calls are served
 * (a pure function of all records), and open copse's communicator of the same ranks. Where all
 * ranks are in this process, one thread opens it for all and the other ranks' threads take theirs.
 *
 * Ranks exchange records by ncclAllGather over a few bytes of device memory (gather.h). Of what
 * fails at one rank the others are notified in the next one; the records and outcomes are always
 * exchanged.
 */
#include "dropin/join.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "copse/comm.h"
#include "dropin/calls.h"
#include "dropin/comms.h"
#include "dropin/gather.h"
#include "dropin/real.h"
#include "runtime/backend/nccl_source.h"
#include "runtime/plan/plan_abi.h"

/* ==== NCCL's graph file ======================================================================= */

/*
 * Communicators with NCCL's graph file. The variable is set while NCCL makes them and only then:
 * NCCL looks at NCCL_GRAPH_FILE whenever it searches for a graph (NVIDIA/nccl src/graph/search.cc).
 * The file is looked into by its tags alone: a preloaded library brings no XML parser.
 */

static const char graphs_variable[] = "COPSE_NCCL_GRAPHS", of_nccl[] = "NCCL_GRAPH_FILE";
#define MAX_GPUS 64 /* of a host */

/* ---- the file -------------------------------------------------------------------------------- */

/* Counts the GPUs of the first channel; 0 where they are not 0 to n - 1, as NVML numbers those of a
 * host. */
static uint32_t count_gpus(const char *text) {
  const char *channel = strstr(text, "<channel>");
  const char *end = channel ? strstr(channel, "</channel>") : NULL;
  uint64_t seen = 0;
  uint32_t n = 0;
  for (const char *p = channel; end && (p = strstr(p, "<gpu dev=\"")) && p < end; n++) {
    p += strlen("<gpu dev=\"");
    unsigned long dev = strtoul(p, NULL, 16);
    if (dev >= MAX_GPUS) return 0;
    seen |= UINT64_C(1) << dev;
  }
  return n > 0 && n < MAX_GPUS && seen == (UINT64_C(1) << n) - 1 ? n : 0;
}

/* Returns what files of one job have in common: their set's name, where hosts of several kinds
 * have a file each, or all that is in the one file. */
static uint64_t identity_of(const char *text, size_t size) {
  const char *set = strstr(text, " set=\""), *end = strchr(text, '>');
  uint8_t digest[COPSE_SHA256_BYTES];
  uint64_t identity;
  if (set && end && set < end) {
    set += strlen(" set=\"");
    copse_sha256(set, strcspn(set, "\""), digest);
  } else {
    copse_sha256(text, size, digest);
  }
  memcpy(&identity, digest, sizeof identity);
  return identity;
}

/* Notes in the record which graph COPSE_NCCL_GRAPHS is; a file that can't be used is none, and *err
 * says why. Without the graphs_variable nothing. */
static void nccl_graph_note(struct copse_nccl_record *mine, struct copse_err *err) {
  const char *path = getenv(graphs_variable);
  COPSE_AT_END(copse_free_at) char *text = NULL;
  size_t size;
  if (!path || !*path || copse_file_read(path, &text, &size, err) != COPSE_OK) return;
  mine->graph_gpus = count_gpus(text);
  mine->graph_nets = strstr(text, "<net ") != NULL;
  mine->graph = identity_of(text, size);
  if (mine->graph_gpus > 0) return;
  mine->graph = 0;
  (void)copse_fail_at(err, COPSE_BAD_INPUT, path, 0,
                      "no graph of the GPUs 0 to n - 1 of a host, such as copse tune makes");
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static int ranks_on(const struct copse_nccl_record *all, int n_ranks, uint64_t host) {
  int n = 0;
  for (int r = 0; r < n_ranks; r++) n += all[r].host == host;
  return n;
}

static bool shares_process(const struct copse_nccl_record *all, int rank) {
  for (int r = 0; r < rank; r++)
    if (memcmp(all[r].process, all[rank].process, sizeof all[r].process) == 0) return true;
  return false;
}

/*
 * Whether the graph fits a communicator of these ranks: all name the same one, each rank has a
 * process of its own (the graphs_variable is the process's), and every host has as many ranks as
 * the graph has GPUs. A pure function of what all ranks have. why: the reason if not, "" where
 * nobody has a graph.
 */
static bool nccl_graph_fits(const struct copse_nccl_record *all, int n_ranks, char *why,
                            size_t n_why) {
  bool any = false;
  for (int r = 0; r < n_ranks; r++) any = any || all[r].graph != 0;
  snprintf(why, n_why, "%s", "");
  for (int r = 0; any && r < n_ranks; r++) {
    int here = ranks_on(all, n_ranks, all[r].host);
    if (all[r].graph != all[0].graph)
      snprintf(why, n_why, "ranks 0 and %d have different ones", r);
    else if (shares_process(all, r))
      snprintf(why, n_why, "rank %d shares its process with another", r);
    else if (here != (int)all[r].graph_gpus)
      snprintf(why, n_why, "it is for %u GPUs of a host, the host of rank %d has %d ranks",
               all[r].graph_gpus, r, here);
    else if (here < n_ranks && !all[r].graph_nets)
      snprintf(why, n_why, "it is for one host and has no NICs");
    else
      continue;
    return false;
  }
  return any;
}

/* ---- making it again ------------------------------------------------------------------------- */

/* Threads that are in nccl_graph_split, and what the graphs_variable was before the first. */
static pthread_mutex_t split_lock = PTHREAD_MUTEX_INITIALIZER;
static int n_inside;
static char *before;

static void enter(void) {
  pthread_mutex_lock(&split_lock);
  const char *path = getenv(graphs_variable), *was = getenv(of_nccl);
  if (n_inside++ == 0) {
    before = was ? strdup(was) : NULL;
    if (path) (void)setenv(of_nccl, path, 1);
  }
  pthread_mutex_unlock(&split_lock);
}

static void leave(void) {
  pthread_mutex_lock(&split_lock);
  if (--n_inside == 0) {
    if (before)
      (void)setenv(of_nccl, before, 1);
    else
      (void)unsetenv(of_nccl);
    free(before);
    before = NULL;
  }
  pthread_mutex_unlock(&split_lock);
}

/* Makes a communicator of the same ranks with the graph. Collective. The caller owns both
 * communicators. */
static ncclResult_t nccl_graph_split(ncclComm_t comm, int rank, ncclComm_t *out) {
  *out = NULL;
  enter();
  ncclResult_t result = copse_nccl_real_CommSplit(comm, 0, rank, out, NULL);
  leave();
  return result;
}

/* ==== joining ================================================================================= */

/*
 * What the public API doesn't give. The number of ranks of a plan in a file, before there is a
 * communicator that could load it (here), and what a plan is called in the log (comms.c): the API
 * keeps plans opaque, as their format changes. Where the backend finds this NCCL's functions: only
 * a library that has NCCL's names itself needs to say so.
 */

/* Sent between ranks as it is. All versions have 128 bytes and begin with `version`: 1 served one
 * host only. */
#define COPSE_NCCL_RECORD_VERSION 2u

static_assert(sizeof(struct copse_nccl_record) == 128, "the size is part of the protocol");

/* ---- the folder ------------------------------------------------------------------------ */

static int is_plan(const struct dirent *entry) {
  size_t n = strlen(entry->d_name);
  return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".plan") == 0;
}

/* Compares names by bytes; not alphasort, as ranks may have different locales. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

/* Whether a file is for so many ranks. True also for a file that is no plan, so that it is loaded
 * and the error says what is wrong with it. */
static bool is_for(const char *bytes, size_t size, int n_ranks) {
  struct copse_plan_header header;
  if (size < sizeof header || memcmp(bytes, "COPSEPLN", 8) != 0) return true;
  memcpy(&header, bytes, sizeof header);
  return header.n_ranks == (uint32_t)n_ranks;
}

static copse_status add_plan(struct copse_nccl_record *mine, const char *path, int n_ranks,
                             struct copse_text *sums, struct copse_err *err) {
  char hex[COPSE_SHA256_HEX], *bytes;
  size_t size;
  COPSE_DO(copse_file_read(path, &bytes, &size, err));
  if (is_for(bytes, size, n_ranks)) mine->n_plans++;
  copse_sha256_hex(bytes, size, hex);
  copse_text_add(sums, "%s  %s\n", hex, strrchr(path, '/') + 1);
  free(bytes);
  return COPSE_OK;
}

static copse_status look_into(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                              struct copse_err *err) {
  copse_status status = COPSE_OK;
  COPSE_AT_END(copse_text_free) struct copse_text sums = {0};
  COPSE_AT_END(copse_arena_free) struct copse_arena paths = {0};
  struct dirent **entries = NULL;
  int n = scandir(folder, &entries, is_plan, by_name);
  if (n < 0) return copse_fail(err, COPSE_IO, "%s: %s", folder, strerror(errno));
  copse_text_add(&sums, "%s", "plans\n");
  for (int i = 0; i < n && status == COPSE_OK; i++) {
    const char *path = copse_arena_printf(&paths, "%s/%s", folder, entries[i]->d_name);
    status = path ? add_plan(mine, path, n_ranks, &sums, err) : copse_fail_nomem(err);
  }
  for (int i = 0; i < n; i++) free(entries[i]);
  free(entries);
  COPSE_DO(status);
  COPSE_DO(copse_text_status(&sums, err));
  copse_sha256(sums.data, sums.size, mine->folder);
  return COPSE_OK;
}

/* ---- this rank -------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t process_number, host_number;

static uint64_t random_number(void) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
    number = (uint64_t)(uintptr_t)&number; /* addresses are random too */
  return number;
}

/* Derives a number from the boot id, which the kernel draws anew at every start: containers share
 * it, hosts don't. */
static uint64_t number_of_host(void) {
  char id[64] = "";
  uint8_t digest[COPSE_SHA256_BYTES];
  uint64_t number;
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  bool known = file && fgets(id, sizeof id, file);
  if (file) fclose(file);
  if (!known && gethostname(id, sizeof id - 1) != 0) return random_number();
  copse_sha256(id, strlen(id), digest);
  memcpy(&number, digest, sizeof number);
  return number;
}

static void find_identity(void) {
  process_number = random_number();
  host_number = number_of_host();
}

void copse_nccl_record_fill(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                            int device, struct copse_err *err) {
  (void)pthread_once(&once, find_identity);
  const char *exchanges = getenv("COPSE_NCCL_ALLTOALL");
  *mine = (struct copse_nccl_record){.version = COPSE_NCCL_RECORD_VERSION,
                                     .process = {process_number, (uint64_t)getpid()},
                                     .number = random_number(),
                                     .host = host_number,
                                     .device = device,
                                     .exchanges = exchanges && strcmp(exchanges, "1") == 0};
  if (!folder || !*folder)
    mine->trouble = COPSE_NCCL_NO_FOLDER;
  else if (look_into(mine, folder, n_ranks, err) != COPSE_OK)
    mine->trouble = COPSE_NCCL_UNREADABLE;
}

/* ---- all ranks --------------------------------------------------------------------------- */

/* Describes a rank's trouble; a later version may have others. */
static const char *trouble_text(uint32_t trouble) {
  if (trouble == COPSE_NCCL_NO_FOLDER) return "has no COPSE_PLAN_DIR";
  return trouble == COPSE_NCCL_UNREADABLE ? "can't read its COPSE_PLAN_DIR" : "has some trouble";
}

static bool same_process(const struct copse_nccl_record *a, const struct copse_nccl_record *b) {
  return memcmp(a->process, b->process, sizeof a->process) == 0;
}

static enum copse_nccl_way way_of_processes(const struct copse_nccl_record *all, int n_ranks,
                                            char *why, size_t n_why) {
  int n_like_rank_0 = 1, n_pairs = 0;
  for (int i = 1; i < n_ranks; i++) {
    n_like_rank_0 += same_process(&all[0], &all[i]);
    for (int j = 0; j < i; j++) n_pairs += same_process(&all[j], &all[i]);
  }
  if (n_like_rank_0 == n_ranks) return COPSE_NCCL_ONE_PROCESS;
  if (n_pairs == 0) return COPSE_NCCL_PROCESS_EACH;
  snprintf(why, n_why, "several processes, and some have more than one rank");
  return COPSE_NCCL_PASS;
}

int copse_nccl_count_hosts(const struct copse_nccl_record *all, int n_ranks) {
  int n_hosts = 0;
  for (int r = 0; r < n_ranks; r++) {
    int first = 0;
    while (all[first].host != all[r].host) first++;
    n_hosts += first == r;
  }
  return n_hosts;
}

enum copse_nccl_way copse_nccl_way_of(const struct copse_nccl_record *all, int n_ranks, char *why,
                                      size_t n_why) {
  for (int r = 0; r < n_ranks; r++) {
    const struct copse_nccl_record *it = &all[r];
    if (it->version != all[0].version)
      snprintf(why, n_why, "ranks 0 and %d have different versions of copse", r);
    else if (it->trouble != COPSE_NCCL_NO_TROUBLE)
      snprintf(why, n_why, "rank %d %s", r, trouble_text(it->trouble));
    else if (memcmp(it->folder, all[0].folder, sizeof it->folder) != 0)
      snprintf(why, n_why, "the plans in COPSE_PLAN_DIR of ranks 0 and %d differ", r);
    else if (it->exchanges != all[0].exchanges)
      snprintf(why, n_why, "COPSE_NCCL_ALLTOALL of ranks 0 and %d differs", r);
    else
      continue;
    return COPSE_NCCL_PASS;
  }
  if (all[0].n_plans == 0) {
    snprintf(why, n_why, "COPSE_PLAN_DIR has no plan for %d ranks", n_ranks);
    return COPSE_NCCL_PASS;
  }
  return way_of_processes(all, n_ranks, why, n_why);
}

struct in_process {
  struct in_process *next;
  uint64_t number;
  copse_comm **comms; /* [n_ranks], none after an error */
  int n_plans, n_taken;
  struct copse_arena arena;
  struct copse_err err; /* why no communicators were made, the same at all ranks */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct in_process *waiting; /* results that some rank has still to take */

static copse_status last_error(copse_status status, struct copse_err *err) {
  return status == COPSE_OK ? status : copse_fail(err, status, "%s", copse_last_error());
}

static copse_status make_comms(struct in_process *it, const struct copse_nccl_record *all,
                               int n_ranks, const char *folder, struct copse_err *err) {
  copse_status status;
  int *devices;
  size_t n = (size_t)n_ranks;
  COPSE_TRY(COPSE_ARRAY(&it->arena, n, it->comms, err));
  COPSE_TRY(COPSE_ARRAY(&it->arena, n, devices, err));
  for (int r = 0; r < n_ranks; r++) devices[r] = all[r].device;
  COPSE_TRY(last_error(copse_comm_init_all(it->comms, n_ranks, devices), err));
  COPSE_TRY(last_error(copse_comm_load_plans(it->comms[0], folder, &it->n_plans), err));
out:
  for (int r = 0; status != COPSE_OK && it->comms && r < n_ranks; r++)
    (void)copse_comm_destroy(it->comms[r]);
  return status;
}

static copse_status add(const struct copse_nccl_record *all, int n_ranks, const char *folder,
                        struct in_process **out, struct copse_err *err) {
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  (*out)->number = all[0].number;
  (void)make_comms(*out, all, n_ranks, folder, &(*out)->err);
  (*out)->next = waiting;
  waiting = *out;
  return COPSE_OK;
}

static void remove_taken(struct in_process *it) {
  struct in_process **at = &waiting;
  while (*at != it) at = &(*at)->next;
  *at = it->next;
  copse_arena_free(&it->arena);
  free(it);
}

/* Takes rank `rank`'s communicator of the communicator that all[0].number names, with the plans of
 * `folder` loaded; each rank takes its own once. All ranks get the same status. */
static copse_status take_local(const struct copse_nccl_record *all, int n_ranks, int rank,
                               const char *folder, copse_comm **comm, int *n_plans,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  *comm = NULL;
  *n_plans = 0;
  COPSE_HOLD(&lock);
  struct in_process *it = waiting;
  while (it && it->number != all[0].number) it = it->next;
  if (!it) {
    for (int try = 0; try == 0 || copse_nccl_tries_again(status, try - 1); try++)
      status = add(all, n_ranks, folder, &it, err);
    if (status != COPSE_OK) return status;
  }
  if (it->err.status != COPSE_OK) {
    status = copse_fail(err, it->err.status, "%s", it->err.text);
  } else {
    *comm = it->comms[rank];
    *n_plans = it->n_plans;
  }
  if (++it->n_taken == n_ranks) remove_taken(it);
  return status;
}

/* ---- new communicators -------------------------------------------------------------------- */

#define FOREVER_SECONDS 1e9 /* 30 years */

/* How making copse's communicator went at a rank. Sent between ranks as it is. */
struct outcome {
  uint32_t status, n_plans;
};

/* A communicator on its way. */
struct newcomer {
  struct copse_nccl_comm *comm;
  ncclComm_t *where; /* the caller's handle */
  struct copse_nccl_record mine, *all;
  struct outcome outcome, *outcomes;
  enum copse_nccl_way way;
  bool gathered; /* `all` is complete */
};

/* How long a communicator in the making waits for its ranks where COPSE_JOIN_TIMEOUT doesn't say.
 */
#define JOIN_SECONDS 120.0

/* Returns what an environment variable says in seconds. */
static double seconds_of(const char *variable, double otherwise, int rank) {
  const char *text = getenv(variable);
  char *end;
  if (!text || !*text) return otherwise;
  double seconds = strtod(text, &end);
  if (seconds > 0 && !*end && isfinite(seconds)) return seconds;
  copse_debug(COPSE_DEBUG_WARN, rank, "%s=%.40s is no number of seconds above 0: passed over",
              variable, text);
  return otherwise;
}

static double join_seconds(int rank) {
  return seconds_of("COPSE_JOIN_TIMEOUT", JOIN_SECONDS, rank);
}

static void pass(struct newcomer *it, const char *why) {
  it->way = COPSE_NCCL_PASS;
  snprintf(it->comm->why_not, sizeof it->comm->why_not, "%s", why);
}

/* Asks NCCL for its ranks and device. It can't be asked while a non-blocking communicator is in the
 * making. */
static copse_status identify(struct copse_arena *arena, struct newcomer *it, ncclComm_t nccl,
                             bool blocking, struct copse_err *err) {
  int n_ranks = 1, rank = -1, device = -1;
  if (blocking && (copse_nccl_real_CommCount(nccl, &n_ranks) != ncclSuccess ||
                   copse_nccl_real_CommUserRank(nccl, &rank) != ncclSuccess ||
                   copse_nccl_real_CommCuDevice(nccl, &device) != ncclSuccess))
    return copse_fail(err, COPSE_DEVICE, "NCCL doesn't say who is in its communicator");
  COPSE_DO(copse_calloc(1, sizeof *it->comm, &it->comm, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n_ranks, it->all, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n_ranks, it->outcomes, err));
  it->comm->nccl = nccl;
  it->comm->n_ranks = n_ranks;
  it->comm->rank = rank;
  it->comm->device = device;
  it->comm->blocking = blocking;
  it->way = COPSE_NCCL_PROCESS_EACH; /* until it is known */
  if (!blocking)
    pass(it, "a non-blocking communicator (config.blocking or NCCL_COMM_BLOCKING is 0)");
  else if (n_ranks == 1)
    pass(it, "one rank");
  return COPSE_OK;
}

/* The communicators that a thread has made, and memory for gathering over them. */
struct arrivals {
  struct newcomer *fresh;          /* [n] */
  struct copse_nccl_gather *items; /* [n] */
  struct copse_nccl_scratch *scratch;
  size_t n;
};

/* Marks a communicator whose all-gather failed at this rank; other ranks do not know. */
static void lose(struct newcomer *it, const struct copse_err *err) {
  it->comm->lost = true;
  it->comm->aborted = err->status == COPSE_TIMEOUT;
  pass(it, err->text);
}

/* Gathers records or outcomes of those that are not passed yet. */
static copse_status gather_from(const struct arrivals *in, bool outcomes, struct copse_err *err) {
  size_t n_items = 0;
  for (size_t i = 0; i < in->n; i++) {
    struct newcomer *it = &in->fresh[i];
    if (it->way == COPSE_NCCL_PASS) continue;
    in->items[n_items++] = (struct copse_nccl_gather){
        .comm = it->comm->nccl,
        .device = it->comm->device,
        .n_ranks = it->comm->n_ranks,
        .mine = outcomes ? (const void *)&it->outcome : &it->mine,
        .all = outcomes ? (void *)it->outcomes : it->all,
        .bytes = outcomes ? sizeof it->outcome : sizeof it->mine,
    };
  }
  copse_status status = n_items > 0
                            ? copse_nccl_gather_all(in->items, in->scratch, n_items,
                                                    join_seconds(in->fresh->comm->rank), err)
                            : COPSE_OK;
  for (size_t i = 0; i < in->n && status != COPSE_OK; i++)
    if (in->fresh[i].way != COPSE_NCCL_PASS) lose(&in->fresh[i], err);
  return status;
}

static void judge(const struct arrivals *in, const char *folder) {
  struct newcomer *fresh = in->fresh;
  const size_t n = in->n;
  struct copse_err err = COPSE_ERR_INIT;
  for (size_t i = 0; i < n; i++) {
    struct newcomer *it = &fresh[i];
    struct copse_err reading = COPSE_ERR_INIT;
    if (it->way == COPSE_NCCL_PASS) continue;
    copse_nccl_record_fill(&it->mine, folder, it->comm->n_ranks, it->comm->device, &reading);
    if (reading.status != COPSE_OK)
      copse_debug(COPSE_DEBUG_WARN, it->comm->rank, "COPSE_PLAN_DIR: %s", reading.text);
    reading = (struct copse_err)COPSE_ERR_INIT;
    nccl_graph_note(&it->mine, &reading);
    if (reading.status != COPSE_OK)
      copse_debug(COPSE_DEBUG_WARN, it->comm->rank, "COPSE_NCCL_GRAPHS: %s", reading.text);
  }
  if (gather_from(in, false, &err) != COPSE_OK) return;
  for (size_t i = 0; i < n; i++) {
    struct newcomer *it = &fresh[i];
    if (it->way == COPSE_NCCL_PASS) continue;
    char why[160] = "";
    it->gathered = true;
    it->way = copse_nccl_way_of(it->all, it->comm->n_ranks, why, sizeof why);
    if (it->way == COPSE_NCCL_PASS) pass(it, why);
    it->comm->exchanges = it->mine.exchanges != 0;
  }
}

/* Orders by numbers, which all ranks have: they may make several communicators at once in different
 * orders. */
static int by_number(const void *a, const void *b) {
  const struct newcomer *x = a, *y = b;
  if (x->way == COPSE_NCCL_PASS || y->way == COPSE_NCCL_PASS)
    return (x->way == COPSE_NCCL_PASS) - (y->way == COPSE_NCCL_PASS);
  if (!x->gathered || !y->gathered) return 0;
  return (x->all[0].number > y->all[0].number) - (x->all[0].number < y->all[0].number);
}

/* Makes a communicator again with the graph file, at all ranks or at none. Collective. */
static void remake(struct newcomer *it) {
  struct copse_err err = COPSE_ERR_INIT;
  ncclComm_t old = it->comm->nccl, anew = NULL;
  ncclResult_t made = nccl_graph_split(old, it->comm->rank, &anew);
  it->outcome.status = made == ncclSuccess ? COPSE_OK : COPSE_DEVICE;
  struct copse_nccl_gather item = {old,          it->comm->device, it->comm->n_ranks,
                                   &it->outcome, it->outcomes,     sizeof it->outcome};
  bool all = copse_nccl_gather_one(&item, join_seconds(it->comm->rank), &err) == COPSE_OK;
  if (!all) lose(it, &err);
  for (int r = 0; r < it->comm->n_ranks; r++) all = all && it->outcomes[r].status == COPSE_OK;
  if (all) {
    it->comm->nccl = *it->where = anew;
    anew = old;
  }
  copse_debug(all ? COPSE_DEBUG_INFO : COPSE_DEBUG_WARN, it->comm->rank,
              "NCCL communicator of %d ranks: %s the graph of COPSE_NCCL_GRAPHS", it->comm->n_ranks,
              all ? "made again with" : "NCCL fails to make it with");
  if (anew && it->comm->lost)
    (void)copse_nccl_real_CommAbort(anew);
  else if (anew)
    (void)copse_nccl_real_CommDestroy(anew);
}

/* Makes those communicators again that the graph file fits, one at a time, in an order that is the
 * same at all ranks. */
static void remake_all(struct newcomer *fresh, size_t n) {
  COPSE_SORT(fresh, n, by_number);
  for (size_t i = 0; i < n; i++) {
    char why[160] = "";
    if (!fresh[i].gathered) continue;
    if (nccl_graph_fits(fresh[i].all, fresh[i].comm->n_ranks, why, sizeof why))
      remake(&fresh[i]);
    else if (*why)
      copse_debug(COPSE_DEBUG_INFO, fresh[i].comm->rank,
                  "NCCL communicator of %d ranks: the graph of COPSE_NCCL_GRAPHS is not for it, %s",
                  fresh[i].comm->n_ranks, why);
  }
}

/* Gathers for copse's bootstrap by the very NCCL that made the communicator. A communicator may
 * also end in a group. */
static copse_status all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct copse_nccl_comm *comm = context;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_nccl_gather item = {comm->nccl, comm->device, comm->n_ranks, mine, all, bytes};
  if (comm->lost) return COPSE_DEVICE; /* the other ranks wait in the all-gather that failed here */
  const double seconds = comm->made ? 0 : join_seconds(comm->rank);
  copse_status status = copse_nccl_in_group() ? copse_nccl_gather_apart(&item, seconds, &err)
                                              : copse_nccl_gather_one(&item, seconds, &err);
  comm->lost = status != COPSE_OK;
  comm->aborted = status == COPSE_TIMEOUT;
  return status == COPSE_OK ? status : copse_publish_error(&err);
}

/* Finds the real NCCL's functions, for messages between hosts: not ours of the same names. Few are
 * asked for, once for each communicator. */
static void *find_real(const char *name) {
  void *_Atomic found = NULL;
  return copse_nccl_find(name, &found);
}

static copse_nccl_find_type source_of(const copse_bootstrap *bootstrap) {
  return bootstrap->all_gather == all_gather ? find_real : NULL;
}

/* Returns the time limit. As with NCCL itself a rank that is late is waited for, however long: when
 * it is too long is for the job's watchdog to say, which aborts. A call that gives up lets the
 * stream run on, over results that aren't there. */
static double time_limit(int rank) { return seconds_of("COPSE_TIMEOUT", FOREVER_SECONDS, rank); }

static copse_status open_copse(struct newcomer *it, const char *folder, int *n_plans,
                               struct copse_err *err) {
  struct copse_nccl_comm *comm = it->comm;
  if (it->way == COPSE_NCCL_ONE_PROCESS)
    return take_local(it->all, comm->n_ranks, comm->rank, folder, &comm->copse, n_plans, err);
  const copse_bootstrap bootstrap = {all_gather, comm};
  copse_nccl_source_set(source_of);
  copse_status status =
      copse_comm_init_rank(&comm->copse, comm->n_ranks, comm->rank, comm->device, &bootstrap);
  if (status == COPSE_OK) status = copse_comm_load_plans(comm->copse, folder, n_plans);
  return status == COPSE_OK ? status : copse_fail(err, status, "%s", copse_last_error());
}

static void close_copse(struct newcomer *it) {
  if (!it->comm->copse) return;
  (void)copse_comm_abort(it->comm->copse); /* peers may not be there to end it with us */
  (void)copse_comm_destroy(it->comm->copse);
  it->comm->copse = NULL;
}

static void conclude(struct newcomer *it) {
  char why[sizeof it->comm->why_not] = "";
  for (int r = 0; r < it->comm->n_ranks && !*why; r++) {
    const struct outcome *theirs = &it->outcomes[r];
    if (theirs->status != COPSE_OK)
      snprintf(why, sizeof why, "rank %d: %s", r,
               copse_status_string((copse_status)theirs->status));
    else if (theirs->n_plans != it->outcomes[0].n_plans)
      snprintf(why, sizeof why, "ranks 0 and %d have loaded %u and %u plans", r,
               it->outcomes[0].n_plans, theirs->n_plans);
  }
  if (!*why && it->outcome.n_plans == 0) snprintf(why, sizeof why, "no plan was loaded");
  if (!*why) return;
  close_copse(it);
  if (it->outcome.status == COPSE_OK) pass(it, why); /* else why_not has this rank's own reason */
  it->way = COPSE_NCCL_PASS;
}

static void open_all(const struct arrivals *in, const char *folder) {
  struct newcomer *fresh = in->fresh;
  const size_t n = in->n;
  COPSE_SORT(fresh, n, by_number);
  for (size_t i = 0; i < n && fresh[i].way != COPSE_NCCL_PASS; i++) {
    struct newcomer *it = &fresh[i];
    struct copse_err err = COPSE_ERR_INIT;
    int n_plans = 0;
    copse_status status = open_copse(it, folder, &n_plans, &err);
    if (status == COPSE_OK)
      status = copse_comm_set_timeout(it->comm->copse, time_limit(it->comm->rank));
    it->outcome = (struct outcome){(uint32_t)status, (uint32_t)n_plans};
    if (status != COPSE_OK) snprintf(it->comm->why_not, sizeof it->comm->why_not, "%s", err.text);
    if (it->comm->lost) it->way = COPSE_NCCL_PASS;
  }
  struct copse_err err = COPSE_ERR_INIT;
  if (gather_from(in, true, &err) != COPSE_OK) return;
  for (size_t i = 0; i < n; i++)
    if (fresh[i].way != COPSE_NCCL_PASS) conclude(&fresh[i]);
}

/* Fails for a rank whose peers wait for it and can't be notified: as where NCCL itself fails at one
 * rank, making the communicator fails here, which the job sees. At the peers it fails at their time
 * limit. */
static void drop_lost(struct newcomer *it) {
  copse_debug(COPSE_DEBUG_WARN, it->comm->rank, "NCCL communicator of %d ranks: given up, %s",
              it->comm->n_ranks, it->comm->why_not);
  close_copse(it);
  if (!it->comm->aborted) (void)copse_nccl_real_CommAbort(it->comm->nccl);
  *it->where = NULL;
}

/* Registers all communicators; false where one was lost. */
static bool register_all(const struct arrivals *in) {
  bool all = true;
  for (size_t i = 0; i < in->n; i++) {
    struct copse_nccl_comm *comm = in->fresh[i].comm;
    if (comm->lost) {
      drop_lost(&in->fresh[i]);
      all = false;
      continue;
    }
    if (comm->copse)
      copse_debug(COPSE_DEBUG_INFO, comm->rank,
                  "NCCL communicator of %d ranks on %d hosts: %u plans", comm->n_ranks,
                  copse_nccl_count_hosts(in->fresh[i].all, comm->n_ranks),
                  in->fresh[i].outcome.n_plans);
    else
      copse_debug(COPSE_DEBUG_INFO, comm->rank, "NCCL communicator: calls are passed, %s",
                  comm->why_not);
    comm->made = true;
    copse_nccl_register(comm);
    in->fresh[i].comm = NULL;
  }
  return all;
}

static void forget_arrivals(struct arrivals *in, struct copse_arena *arena, size_t n) {
  for (size_t i = 0; in->fresh && i < n; i++) free(in->fresh[i].comm); /* those not registered */
  *in = (struct arrivals){0};
  copse_arena_free(arena);
}

static copse_status collect(const struct copse_nccl_made *made, size_t n, struct arrivals *in,
                            struct copse_arena *arena, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, n, in->fresh, err));
  COPSE_DO(COPSE_ARRAY(arena, n, in->items, err));
  COPSE_DO(COPSE_ARRAY(arena, n, in->scratch, err));
  for (size_t i = 0; i < n; i++) {
    struct newcomer *it = &in->fresh[in->n];
    if (!*made[i].where) continue;
    COPSE_DO(identify(arena, it, *made[i].where, made[i].blocking, err));
    it->where = made[i].where;
    in->n++;
  }
  return COPSE_OK;
}

bool copse_nccl_comms_made(const struct copse_nccl_made *made, size_t n) {
  copse_status status;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_arena arena = {0};
  struct arrivals in = {0};
  bool all = false;
  const char *folder = getenv("COPSE_PLAN_DIR");
  int mode = copse_nccl_capture_mode(COPSE_NCCL_CAPTURE_RELAXED);
  copse_nccl_enter();
  for (int try = 0;; try++) {
    status = collect(made, n, &in, &arena, &err);
    if (!copse_nccl_tries_again(status, try)) break;
    forget_arrivals(&in, &arena, n);
  }
  if (status == COPSE_OK) {
    judge(&in, folder);
    remake_all(in.fresh, in.n);
    open_all(&in, folder);
    all = register_all(&in);
  } else {
    copse_debug(COPSE_DEBUG_WARN, -1, "NCCL communicators given up: %s", err.text);
    for (size_t i = 0; i < n; i++) {
      if (*made[i].where) (void)copse_nccl_real_CommAbort(*made[i].where);
      *made[i].where = NULL;
    }
  }
  forget_arrivals(&in, &arena, n);
  copse_nccl_leave();
  (void)copse_nccl_capture_mode(mode);
  return all;
}
