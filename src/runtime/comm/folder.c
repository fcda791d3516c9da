#include "runtime/comm/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "runtime/comm/debug.h"

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
    copse_plan_release(plan);
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
  for (size_t i = 0; i < list->n; i++) copse_plan_release(list->plans[i]);
  free(list->plans);
  memset(list, 0, sizeof *list);
}
