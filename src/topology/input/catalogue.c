/* The catalogue: a name such as "dgx-a100" becomes the path of a file in one of its folders. */
#include "topology/input/catalogue.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static const char *const endings[] = {".json", ".xml", ".txt"};
#define N_ENDINGS (sizeof endings / sizeof *endings)

static copse_status join(const char *folder, const char *name, const char *ending, char **out,
                         struct copse_err *err) {
  size_t bytes = strlen(folder) + strlen(name) + strlen(ending) + 2;
  copse_status status = copse_calloc(bytes, 1, out, err);
  if (status == COPSE_OK) snprintf(*out, bytes, "%s/%s%s", folder, name, ending);
  return status;
}

copse_status copse_catalogue_find(const char *path, const char *const *folders, char **out,
                                  struct copse_err *err) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  bool is_file = strcmp(path, "-") == 0 || access(path, F_OK) == 0;
  *out = NULL;
  for (; !is_file && name[0] && name[0] != '.' && folders && *folders; folders++)
    for (size_t i = 0; i < N_ENDINGS; i++) {
      copse_status status = join(*folders, name, endings[i], out, err);
      if (status != COPSE_OK || access(*out, F_OK) == 0) return status;
      free(*out);
      *out = NULL;
    }
  *out = strdup(path);
  return *out ? COPSE_OK : copse_fail_nomem(err);
}

/* ---- the list ------------------------------------------------------------------------------ */

void copse_catalogue_free(struct copse_catalogue *catalogue) {
  for (int i = 0; i < catalogue->n; i++) {
    free(catalogue->entries[i].name);
    free(catalogue->entries[i].path);
  }
  free(catalogue->entries);
  *catalogue = (struct copse_catalogue){0};
}

static size_t ending_length(const char *file) {
  size_t n = strlen(file);
  for (size_t i = 0; i < N_ENDINGS; i++) {
    size_t m = strlen(endings[i]);
    if (file[0] != '.' && n > m && strcmp(file + n - m, endings[i]) == 0) return m;
  }
  return 0;
}

static bool has(const struct copse_catalogue *catalogue, const char *file, size_t n) {
  for (int i = 0; i < catalogue->n; i++) {
    const char *name = catalogue->entries[i].name;
    if (strlen(name) == n && memcmp(name, file, n) == 0) return true;
  }
  return false;
}

static copse_status add(struct copse_catalogue *catalogue, const char *folder, const char *file,
                        struct copse_err *err) {
  size_t ending = ending_length(file), n = strlen(file) - ending;
  struct copse_catalogue_entry entry = {0};
  copse_status status;
  if (ending == 0 || has(catalogue, file, n)) return COPSE_OK;
  COPSE_TRY(copse_grow(&catalogue->entries, &catalogue->capacity, (size_t)catalogue->n + 1,
                       sizeof entry, err));
  COPSE_TRY(join(folder, file, "", &entry.path, err));
  entry.name = strndup(file, n);
  if (entry.name) {
    catalogue->entries[catalogue->n++] = entry;
    return COPSE_OK;
  }
  status = copse_fail_nomem(err);
out:
  free(entry.path);
  return status;
}

static int by_name(const void *a, const void *b) {
  const struct copse_catalogue_entry *x = a, *y = b;
  return strcmp(x->name, y->name);
}

copse_status copse_catalogue_list(const char *const *folders, struct copse_catalogue *out,
                                  struct copse_err *err) {
  copse_status status = COPSE_OK;
  *out = (struct copse_catalogue){0};
  for (; folders && *folders && status == COPSE_OK; folders++) {
    DIR *dir = opendir(*folders);
    for (struct dirent *e; dir && status == COPSE_OK && (e = readdir(dir));)
      status = add(out, *folders, e->d_name, err);
    if (dir) closedir(dir);
  }
  if (out->n > 0) qsort(out->entries, (size_t)out->n, sizeof *out->entries, by_name);
  if (status != COPSE_OK) copse_catalogue_free(out);
  return status;
}
