/* The plans of a communicator: reading a folder of them, and the choice of the plan for a call. */
#include "runtime/comm/plans.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/types.h"
#include "runtime/plan/layout.h"

#define SUFFIX ".plan"

static int is_plan_file(const struct dirent *entry) {
  const char *name = entry->d_name;
  size_t n = strlen(name), suffix = sizeof SUFFIX - 1;
  return name[0] != '.' && n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* The same order on every host, whatever its locale. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
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

static copse_status read_plan(struct copse_plans *plans, const char *folder, const char *name,
                              uint32_t n_ranks, struct copse_err *err) {
  char path[PATH_MAX];
  struct copse_plan *plan;
  struct stat st;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
    return copse_fail(err, COPSE_IO, "%s: %s", folder, strerror(ENAMETOOLONG));
  /* to open a pipe would wait for somebody to write into it */
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    return copse_fail(err, COPSE_IO, "%s: is no regular file, plans must be", path);
  COPSE_DO(COPSE_GROW(plans->read, plans->read_capacity, plans->n_read + 1, err));
  COPSE_DO(copse_plan_open(path, &plan, err));
  if (plan->header.n_ranks != n_ranks) {
    plans->n_others++;
    plans->other_ranks = plan->header.n_ranks;
  }
  if (is_wanted(plan, path, n_ranks))
    plans->read[plans->n_read++] = plan;
  else
    copse_plan_free(plan);
  return COPSE_OK;
}

static void drop_from(struct copse_plans *plans, size_t first) {
  while (plans->n_read > first) copse_plan_free(plans->read[--plans->n_read]);
}

void copse_plans_free(struct copse_plans *plans) {
  drop_from(plans, 0);
  free(plans->read);
  free(plans->entries);
}

copse_status copse_plans_read(struct copse_plans *plans, const char *folder, uint32_t n_ranks,
                              struct copse_err *err) {
  struct dirent **entries;
  const size_t first = plans->n_read;
  copse_status status = COPSE_OK;
  if (!folder || !*folder)
    return copse_fail(err, COPSE_INVALID, "no folder of plans is given and COPSE_PLAN_DIR not set");
  int n = scandir(folder, &entries, is_plan_file, by_name);
  if (n < 0 && errno == ENOMEM) return copse_fail_nomem(err);
  if (n < 0)
    return copse_fail(err, COPSE_IO, "%s: cannot open the folder of plans: %s", folder,
                      strerror(errno));
  for (int i = 0; i < n; i++) {
    if (status == COPSE_OK) status = read_plan(plans, folder, entries[i]->d_name, n_ranks, err);
    free(entries[i]);
  }
  free(entries);
  if (status != COPSE_OK) drop_from(plans, first);
  return status;
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

static bool fits(const struct copse_plan_header *h, const struct copse_call *call,
                 uint64_t message_bytes) {
  if (h->collective != (uint32_t)call->collective) return false;
  if (copse_collective_rooted(call->collective) && h->root != call->root) return false;
  if (call->pair_counts && h->protocol != COPSE_PROTOCOL_BANDWIDTH) return false;
  return h->min_bytes <= message_bytes && message_bytes <= h->max_bytes;
}

copse_status copse_plans_find(const struct copse_plans *plans, uint32_t n_ranks,
                              const struct copse_call *call, struct copse_plan_choice *choice,
                              struct copse_err *err) {
  uint64_t narrowest = UINT64_MAX;
  *choice = (struct copse_plan_choice){NULL, 0, 0};
  COPSE_DO(copse_message_bytes(call->collective, n_ranks, call->count, call->type,
                               &choice->message_bytes, err));
  for (size_t i = 0; i < plans->n; i++) {
    const struct copse_plan_header *h = &plans->entries[i].plan->header;
    if (!fits(h, call, choice->message_bytes)) continue;
    uint64_t width = h->max_bytes - h->min_bytes;
    const bool better = width < narrowest || (width == narrowest && plans->entries[i].grouped &&
                                              !choice->entry->grouped);
    if (choice->n_fitting++ > 0 && !better) continue;
    choice->entry = &plans->entries[i];
    narrowest = width;
  }
  return COPSE_OK;
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
