/*
 * The plans of a communicator: reading a folder of them, and the choice of the plan for a call.
 */
#include "runtime/comm/plans.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/err.h"
#include "base/types.h"
#include "runtime/plan/layout.h"

#define SUFFIX ".plan"

static bool is_plan_file(const char *name) {
  size_t n = strlen(name), suffix = sizeof SUFFIX - 1;
  return name[0] != '.' && n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* The same order on every host, whatever its locale. */
static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
  char **at;
  size_t n, capacity;
};

static void free_names(struct names *names) {
  for (size_t i = 0; i < names->n; i++) free(names->at[i]);
  free(names->at);
}

static copse_status join(const char *folder, const char *name, char **out, struct copse_err *err) {
  size_t bytes = strlen(folder) + strlen(name) + 2;
  copse_status status = copse_calloc(bytes, 1, out, err);
  if (status == COPSE_OK) snprintf(*out, bytes, "%s/%s", folder, name);
  return status;
}

/* Paths of the plan files, sorted. */
static copse_status list_files(const char *folder, struct names *names, struct copse_err *err) {
  copse_status status = COPSE_OK;
  DIR *dir = opendir(folder);
  if (!dir)
    return copse_fail(err, COPSE_IO, "%s: cannot open the folder of plans: %s", folder,
                      strerror(errno));
  for (;;) {
    errno = 0;
    const struct dirent *it = readdir(dir);
    if (!it) break;
    if (!is_plan_file(it->d_name)) continue;
    COPSE_TRY(copse_grow(&names->at, &names->capacity, names->n + 1, sizeof *names->at, err));
    COPSE_TRY(join(folder, it->d_name, &names->at[names->n], err));
    names->n++;
  }
  if (errno != 0)
    status = copse_fail(err, COPSE_IO, "%s: cannot read the folder of plans: %s", folder,
                        strerror(errno));
  if (names->n > 0) qsort(names->at, names->n, sizeof *names->at, compare_names);
out:
  closedir(dir);
  return status;
}

/* Whether a communicator of so many ranks has a use for it. */
static bool is_wanted(const struct copse_plan *plan, const char *path, uint32_t n_ranks) {
  if (plan->header.n_ranks != n_ranks) {
    copse_debug(COPSE_DEBUG_INFO, -1, "%s is for %u ranks, not %u: passed over", path,
                plan->header.n_ranks, n_ranks);
    return false;
  }
  if (plan->header.n_extents != 0) {
    copse_debug(COPSE_DEBUG_INFO, -1, "%s is an alltoall for one demand: passed over", path);
    return false;
  }
  return true;
}

static copse_status read_plan(const char *path, uint32_t n_ranks, struct copse_plan_list *list,
                              struct copse_err *err) {
  struct copse_plan *plan;
  struct stat st;
  /* to open a pipe would wait for somebody to write into it */
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    return copse_fail(err, COPSE_IO, "%s: is no regular file, plans must be", path);
  copse_status status =
      copse_grow(&list->plans, &list->capacity, list->n + 1, sizeof *list->plans, err);
  if (status == COPSE_OK) status = copse_plan_open(path, &plan, err);
  if (status != COPSE_OK) return status;
  if (is_wanted(plan, path, n_ranks))
    list->plans[list->n++] = plan;
  else
    copse_plan_free(plan);
  return COPSE_OK;
}

copse_status copse_folder_read_plans(const char *folder, uint32_t n_ranks,
                                     struct copse_plan_list *list, struct copse_err *err) {
  struct names names = {NULL, 0, 0};
  copse_status status;
  memset(list, 0, sizeof *list);
  if (!folder || !*folder)
    return copse_fail(err, COPSE_INVALID, "no folder of plans is given and COPSE_PLAN_DIR not set");
  COPSE_TRY(list_files(folder, &names, err));
  for (size_t i = 0; i < names.n; i++) COPSE_TRY(read_plan(names.at[i], n_ranks, list, err));
out:
  free_names(&names);
  if (status != COPSE_OK) copse_plan_list_free(list);
  return status;
}

void copse_plan_list_free(struct copse_plan_list *list) {
  for (size_t i = 0; i < list->n; i++) copse_plan_free(list->plans[i]);
  free(list->plans);
  memset(list, 0, sizeof *list);
}

copse_status copse_message_bytes(copse_collective collective, uint32_t n_ranks, uint64_t count,
                                 copse_type type, uint64_t *bytes, struct copse_err *err) {
  bool per_rank = collective == COPSE_ALLGATHER || collective == COPSE_REDUCE_SCATTER ||
                  collective == COPSE_ALLTOALL;
  uint64_t blocks = per_rank ? n_ranks : 1;
  if (__builtin_mul_overflow(count, copse_type_bytes(type), bytes) ||
      __builtin_mul_overflow(*bytes, blocks, bytes) || *bytes > COPSE_BUFFER_MAX_BYTES)
    return copse_fail(err, COPSE_INVALID,
                      "%llu blocks of %llu %s: a buffer may have up to 2^48 bytes",
                      (unsigned long long)blocks, (unsigned long long)count, copse_type_name(type));
  return COPSE_OK;
}

static bool fits(const struct copse_plan_header *h, const struct copse_plan_want *want) {
  if (h->collective != (uint32_t)want->collective) return false;
  if (copse_collective_rooted(want->collective) && h->root != want->root) return false;
  if (want->uneven && h->protocol != COPSE_PROTOCOL_BANDWIDTH) return false;
  return h->min_bytes <= want->message_bytes && want->message_bytes <= h->max_bytes;
}

const struct copse_plan_entry *copse_plan_table_find(const struct copse_plan_table *table,
                                                     const struct copse_plan_want *want,
                                                     size_t *n_fitting) {
  const struct copse_plan_entry *best = NULL;
  uint64_t narrowest = 0;
  size_t n = 0;
  for (size_t i = 0; i < table->n; i++) {
    const struct copse_plan_header *h = &table->entries[i].plan->header;
    if (!fits(h, want)) continue;
    uint64_t width = h->max_bytes - h->min_bytes;
    if (!best || width < narrowest) {
      best = &table->entries[i];
      narrowest = width;
    }
    n++;
  }
  if (n_fitting) *n_fitting = n;
  return best;
}

/* The first operand in a buffer that a caller may leave NULL, or NULL. */
static const struct copse_plan_operand *find_unpromised(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  if (!copse_collective_rooted((copse_collective)h->collective)) return NULL;
  uint32_t unpromised = h->collective == COPSE_BROADCAST ? COPSE_BUFFER_INPUT : COPSE_BUFFER_OUTPUT;
  for (uint32_t i = 0; i < h->n_operands; i++) {
    const struct copse_plan_operand *it = &plan->operands[i];
    if (it->buffer == unpromised && it->rank != (uint32_t)h->root) return it;
  }
  return NULL;
}

copse_status copse_plan_check_servable(const struct copse_plan *plan, uint32_t n_ranks,
                                       struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  if (h->n_ranks != n_ranks)
    return copse_fail(err, COPSE_INVALID, "a plan for %u ranks, the communicator has %u",
                      h->n_ranks, n_ranks);
  if (h->n_extents != 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall plan for one demand serves no calls of a communicator; "
                      "lower a schedule that was solved without --demand");
  const struct copse_plan_operand *it = find_unpromised(plan);
  if (it)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "the plan touches the %s of rank %u, which in a %s with root %d may be NULL",
                      it->buffer == COPSE_BUFFER_INPUT ? "input" : "output", it->rank,
                      copse_collective_name((copse_collective)h->collective), h->root);
  return COPSE_OK;
}
