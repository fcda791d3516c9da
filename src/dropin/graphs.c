/*
 * Communicators with NCCL's graph file. The variable is set while NCCL makes them and only then:
 * NCCL looks at NCCL_GRAPH_FILE whenever it searches for a graph (NVIDIA/nccl src/graph/search.cc).
 * The file is looked into by its tags alone: a preloaded library brings no XML parser.
 */
#include "dropin/graphs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "dropin/real.h"

static const char variable[] = "COPSE_NCCL_GRAPHS", of_nccl[] = "NCCL_GRAPH_FILE";
#define MAX_GPUS 64 /* of a host */

/* ---- the file ----------------------------------------------------------------------------------
 */

/* GPUs of the first channel; 0 where they are not 0 to n - 1, as NVML numbers those of a host. */
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

/* What files of one job have in common: their set's name, where hosts of several kinds have a file
 * each, or all that is in the one file. */
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

void copse_nccl_graph_note(struct copse_nccl_record *mine, struct copse_err *err) {
  const char *path = getenv(variable);
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

/* ---- the ranks ---------------------------------------------------------------------------------
 */

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

bool copse_nccl_graph_fits(const struct copse_nccl_record *all, int n_ranks, char *why,
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

/* ---- making it again ---------------------------------------------------------------------------
 */

/* Threads that are in copse_nccl_graph_split, and what the variable was before the first. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_inside;
static char *before;

static void enter(void) {
  pthread_mutex_lock(&lock);
  const char *path = getenv(variable), *was = getenv(of_nccl);
  if (n_inside++ == 0) {
    before = was ? strdup(was) : NULL;
    if (path) (void)setenv(of_nccl, path, 1);
  }
  pthread_mutex_unlock(&lock);
}

static void leave(void) {
  pthread_mutex_lock(&lock);
  if (--n_inside == 0) {
    if (before)
      (void)setenv(of_nccl, before, 1);
    else
      (void)unsetenv(of_nccl);
    free(before);
    before = NULL;
  }
  pthread_mutex_unlock(&lock);
}

ncclResult_t copse_nccl_graph_split(ncclComm_t comm, int rank, ncclComm_t *out) {
  *out = NULL;
  enter();
  ncclResult_t result = copse_nccl_real_CommSplit(comm, 0, rank, out, NULL);
  leave();
  return result;
}
