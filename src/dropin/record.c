/*
 * Records of ranks: what this rank sends, and the pure function by which all conclude alike.
 */
#include "dropin/record.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "runtime/plan/plan_abi.h"

static_assert(sizeof(struct copse_nccl_record) == 128, "the size is part of the protocol");

/* ---- the folder ------------------------------------------------------------------------ */

static int is_plan(const struct dirent *entry) {
  size_t n = strlen(entry->d_name);
  return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".plan") == 0;
}

/* Not alphasort: ranks may have different locales. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

/* A file that is no plan counts too, so that loading says what is wrong with it. */
static bool is_for(const char *bytes, size_t size, int n_ranks) {
  struct copse_plan_header header;
  if (size < sizeof header || memcmp(bytes, "COPSEPLN", 8) != 0) return true;
  memcpy(&header, bytes, sizeof header);
  return header.n_ranks == (uint32_t)n_ranks;
}

static copse_status add_plan(struct copse_nccl_record *mine, const char *folder, const char *name,
                             int n_ranks, struct copse_text *sums, struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_text path = {0};
  char *bytes = NULL;
  size_t size = 0;
  copse_text_add(&path, "%s/%s", folder, name);
  COPSE_TRY(copse_text_status(&path, err));
  COPSE_TRY(copse_file_read(path.data, &bytes, &size, err));
  if (is_for(bytes, size, n_ranks)) mine->n_plans++;
  char hex[COPSE_SHA256_HEX];
  copse_sha256_hex(bytes, size, hex);
  copse_text_add(sums, "%s  %s\n", hex, name);
out:
  free(bytes);
  copse_text_free(&path);
  return status;
}

static copse_status look_into(struct copse_nccl_record *mine, const char *folder, int n_ranks,
                              struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_text sums = {0};
  struct dirent **entries = NULL;
  int n = scandir(folder, &entries, is_plan, by_name);
  if (n < 0) return copse_fail(err, COPSE_IO, "%s: %s", folder, strerror(errno));
  copse_text_add(&sums, "%s", "plans\n");
  for (int i = 0; i < n; i++)
    COPSE_TRY(add_plan(mine, folder, entries[i]->d_name, n_ranks, &sums, err));
  COPSE_TRY(copse_text_status(&sums, err));
  copse_sha256(sums.data, sums.size, mine->folder);
out:
  for (int i = 0; i < n; i++) free(entries[i]);
  free(entries);
  copse_text_free(&sums);
  return status;
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

/* The kernel draws its boot id anew at every start: containers share it, hosts don't. */
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

static const char *trouble_text(uint32_t trouble) {
  switch (trouble) {
    case COPSE_NCCL_NO_FOLDER: return "has no COPSE_PLAN_DIR";
    case COPSE_NCCL_UNREADABLE: return "can't read its COPSE_PLAN_DIR";
    default: return "has some trouble";
  }
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

enum copse_nccl_way copse_nccl_judge(const struct copse_nccl_record *all, int n_ranks, char *why,
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
