/*
 * libnccl-tuner-copse.so: a tuner plugin for NCCL that reads a table of rules (tuner_table.h) from
 * NCCL_TUNER_CONFIG_FILE, or else from the file tuner.csv beside the library, and gives each call
 * the algorithm and protocol of the first rule that fits and is available, at no cost, and the
 * rule's channel count if it has one. A call without a rule is left to NCCL as it came.
 *
 * A rank that chooses otherwise than its peers hangs them all. So what a call gets follows only
 * from the table and from what NCCL hands to all ranks alike. A table that can't be read is none,
 * with one line in NCCL's log, and no function ever fails: an error would end the communicator.
 *
 * What NCCL does with the answers: nccl/plugin/tuner.h of each version. NCCL's own example plugin
 * (2.27.7 to 2.29.7) takes the cost table for rows of pointers, and runs calls without a rule on
 * one channel.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "nccl/plugin/abi.h"
#include "nccl/tuner_table.h"

#define EXPORT __attribute__((visibility("default")))
static const char name[] = "copse";
static const char default_file[] = "tuner.csv";

/* ---- the table, one for the process: read by its first communicator, freed by the last ----------
 */

static struct {
  pthread_mutex_t lock;
  int users;
  struct copse_tuner_table table;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns the default file's path, or NULL; the caller frees it. */
static char *path_beside_library(void) {
  Dl_info about;
  char *path = NULL;
  if (dladdr(name, &about) == 0 || !about.dli_fname) return NULL;
  return copse_file_beside(about.dli_fname, default_file, &path, NULL) == COPSE_OK ? path : NULL;
}

static void say_refused(ncclDebugLogger_t log, const struct copse_err *err) {
  if (log)
    log(NCCL_LOG_WARN, NCCL_SUBSYS_TUNING, __FILE__, __LINE__,
        "TUNER/copse: %s; no rule is used, NCCL chooses", err->text);
}

static void say_loaded(ncclDebugLogger_t log, const char *path, const char *data, size_t size) {
  char hash[COPSE_SHA256_HEX];
  copse_sha256_hex(data, size, hash);
  if (log)
    log(NCCL_LOG_INFO, NCCL_SUBSYS_INIT | NCCL_SUBSYS_TUNING, __FILE__, __LINE__,
        "TUNER/copse: %zu rules of %s (sha256 %.12s, the same on every rank)", shared.table.n, path,
        hash);
}

static void read_table(const char *path, ncclDebugLogger_t log) {
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size = 0;
  copse_status status = copse_file_read(path, &data, &size, &err);
  if (status == COPSE_OK) status = copse_tuner_table_parse(path, data, size, &shared.table, &err);
  if (status != COPSE_OK)
    say_refused(log, &err);
  else
    say_loaded(log, path, data, size);
}

static void load_table(ncclDebugLogger_t log) {
  const char *given = getenv("NCCL_TUNER_CONFIG_FILE");
  if (given && *given) {
    read_table(given, log);
    return;
  }
  COPSE_AT_END(copse_free_at) char *path = path_beside_library();
  FILE *there = path ? fopen(path, "re") : NULL;
  if (there) fclose(there);
  if (there)
    read_table(path, log);
  else if (log)
    log(NCCL_LOG_INFO, NCCL_SUBSYS_INIT | NCCL_SUBSYS_TUNING, __FILE__, __LINE__,
        "TUNER/copse: no NCCL_TUNER_CONFIG_FILE and no %s beside the library; NCCL chooses",
        default_file);
}

static void take_table(ncclDebugLogger_t log) {
  pthread_mutex_lock(&shared.lock);
  if (shared.users++ == 0) load_table(log);
  pthread_mutex_unlock(&shared.lock);
}

static void leave_table(void) {
  pthread_mutex_lock(&shared.lock);
  if (--shared.users == 0) copse_tuner_table_free(&shared.table);
  pthread_mutex_unlock(&shared.lock);
}

/* ---- a communicator -----------------------------------------------------------------------------
 */

struct communicator {
  int ranks, nodes;
};

static int to_int(size_t n) { return n > INT_MAX ? INT_MAX : (int)n; }

/* Begins a communicator; *context is NULL, and no rule is used, where memory runs out. */
static ncclResult_t init(size_t n_ranks, size_t n_nodes, ncclDebugLogger_t log, void **context) {
  struct communicator *comm = malloc(sizeof *comm);
  *context = comm;
  if (!comm) return ncclSuccess;
  *comm = (struct communicator){to_int(n_ranks), to_int(n_nodes)};
  take_table(log);
  return ncclSuccess;
}

static ncclResult_t finalize(void *context) {
  if (context) leave_table();
  free(context);
  return ncclSuccess;
}

static struct copse_tuner_call call_of(const struct communicator *comm, ncclFunc_t coll,
                                       size_t bytes, int pipe_ops, int registered) {
  return (struct copse_tuner_call){.collective = coll < COPSE_TUNER_N_COLLECTIVES ? (int)coll : -1,
                                   .bytes = bytes,
                                   .nodes = comm->nodes,
                                   .ranks = comm->ranks,
                                   .pipe_ops = pipe_ops,
                                   .registered = registered};
}

/* ---- v3 to v6: a table of costs
 * ------------------------------------------------------------------ */

/* Finds the pair's cost in NCCL's table, NULL where NCCL can't use it or does not know it. */
static float *find_cost(const struct copse_tuner_rule *rule, float *costs, int n_algorithms,
                        int n_protocols) {
  if (rule->algorithm >= n_algorithms || rule->protocol >= n_protocols) return NULL;
  float *cost = &costs[(ptrdiff_t)rule->algorithm * n_protocols + rule->protocol];
  return *cost < 0 ? NULL : cost;
}

static ncclResult_t get_v4(void *context, ncclFunc_t coll, size_t bytes, int pipe_ops,
                           float **cost_table, int n_algorithms, int n_protocols, int registered,
                           int *channels) {
  if (!context || !cost_table) return ncclSuccess;
  struct copse_tuner_call call = call_of(context, coll, bytes, pipe_ops, registered);
  const struct copse_tuner_rule *rule;
  for (size_t at = 0; (rule = copse_tuner_table_find(&shared.table, &call, at, &at)); at++) {
    float *cost = find_cost(rule, (float *)cost_table, n_algorithms, n_protocols);
    if (!cost) continue;
    *cost = 0;
    if (rule->channels > 0) *channels = rule->channels;
    break;
  }
  return ncclSuccess;
}

static ncclResult_t get_v3(void *context, ncclFunc_t coll, size_t bytes, int pipe_ops,
                           float **cost_table, int n_algorithms, int n_protocols, int *channels) {
  return get_v4(context, coll, bytes, pipe_ops, cost_table, n_algorithms, n_protocols,
                COPSE_TUNER_ANY, channels);
}

/* Does the same in v5. Chunks are NCCL's choice, and so are the constants of its model. */
static ncclResult_t init_v5(void **context, uint64_t comm_id, size_t n_ranks, size_t n_nodes,
                            ncclDebugLogger_t log, ncclNvlDomainInfo_t *domains,
                            ncclTunerConstants_t *constants) {
  (void)comm_id, (void)domains, (void)constants;
  return init(n_ranks, n_nodes, log, context);
}

/* ---- v1 and v2: NCCL takes what it is told, unchecked -------------------------------------------
 */

/*
 * Whether NCCL surely has the pair, by what these versions say. Whether LL128 is safe on the
 * machine's links they do not say, so its rules are passed over.
 */
static bool surely_has(const struct copse_tuner_rule *rule, int nodes, bool collnet, bool nvls) {
  bool simple = rule->protocol == COPSE_TUNER_SIMPLE;
  bool allreduce = rule->collective == COPSE_TUNER_ALLREDUCE;
  bool rooted = rule->collective == COPSE_TUNER_BROADCAST || rule->collective == COPSE_TUNER_REDUCE;
  if (rule->protocol == COPSE_TUNER_LL128) return false;
  switch (rule->algorithm) {
    case COPSE_TUNER_RING: return true;
    case COPSE_TUNER_TREE: return allreduce;
    case COPSE_TUNER_COLLNET_DIRECT: return simple && !rooted && collnet && nodes > 1;
    case COPSE_TUNER_COLLNET_CHAIN: return simple && allreduce && collnet && nodes > 1;
    case COPSE_TUNER_NVLS: return simple && !rooted && nvls && (nodes == 1 || collnet);
    case COPSE_TUNER_NVLS_TREE: return simple && allreduce && nvls && nodes > 1;
    default: return false;
  }
}

static ncclResult_t get_v2(void *context, ncclFunc_t coll, size_t bytes, int collnet, int nvls,
                           int pipe_ops, int *algorithm, int *protocol, int *channels) {
  if (!context) return ncclSuccess;
  const struct communicator *comm = context;
  struct copse_tuner_call call = call_of(comm, coll, bytes, pipe_ops, COPSE_TUNER_ANY);
  const struct copse_tuner_rule *rule;
  for (size_t at = 0; (rule = copse_tuner_table_find(&shared.table, &call, at, &at)); at++) {
    if (!surely_has(rule, comm->nodes, collnet, nvls)) continue;
    *algorithm = rule->algorithm;
    *protocol = rule->protocol;
    if (rule->channels > 0) *channels = rule->channels;
    break;
  }
  return ncclSuccess;
}

/*
 * Begins in v1, which has no context: a call does not say which communicator it is of, and two
 * ranks of one may have different others. So only rules for any number of nodes and ranks fit, of
 * algorithms that one host and several have.
 */
static ncclResult_t init_v1(size_t n_ranks, size_t n_nodes, ncclDebugLogger_t log) {
  (void)n_ranks, (void)n_nodes;
  take_table(log);
  return ncclSuccess;
}

static ncclResult_t get_v1(ncclFunc_t coll, size_t bytes, int collnet, int nvls, int pipe_ops,
                           int *algorithm, int *protocol, int *channels) {
  struct communicator unknown = {COPSE_TUNER_ANY, COPSE_TUNER_ANY};
  return get_v2(&unknown, coll, bytes, collnet, nvls, pipe_ops, algorithm, protocol, channels);
}

static ncclResult_t destroy_v1(void) {
  leave_table();
  return ncclSuccess;
}

/* ---- what NCCL looks up
 * -------------------------------------------------------------------------- */

EXPORT extern const ncclTuner_v1_t ncclTunerPlugin_v1;
EXPORT extern const ncclTuner_v2_t ncclTunerPlugin_v2;
EXPORT extern const ncclTuner_v3_t ncclTunerPlugin_v3;
EXPORT extern const ncclTuner_v4_t ncclTunerPlugin_v4;
EXPORT extern const ncclTuner_v5_t ncclTunerPlugin_v5;
EXPORT extern const ncclTuner_v6_t ncclTunerPlugin_v6;

const ncclTuner_v1_t ncclTunerPlugin_v1 = {name, init_v1, get_v1, destroy_v1};
const ncclTuner_v2_t ncclTunerPlugin_v2 = {name, init, get_v2, finalize};
const ncclTuner_v3_t ncclTunerPlugin_v3 = {name, init, get_v3, finalize};
const ncclTuner_v4_t ncclTunerPlugin_v4 = {name, init, get_v4, finalize};
const ncclTuner_v5_t ncclTunerPlugin_v5 = {name, init_v5, get_v4, finalize};
const ncclTuner_v6_t ncclTunerPlugin_v6 = {name, init_v5, get_v4, finalize, NULL};
