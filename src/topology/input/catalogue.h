/*
 * The catalogue: topologies that can be named instead of a file. A name such as "dgx-a100" is
 * the file dgx-a100.json, .xml or .txt in one of the catalogue's folders. A file of the name
 * wins over it.
 */
#ifndef COPSE_TOPOLOGY_INPUT_CATALOGUE_H
#define COPSE_TOPOLOGY_INPUT_CATALOGUE_H

#include "base/memory.h"

/*
 * The path to read for `path`: itself if it is a file, "-" or no name of the catalogue, else
 * the catalogue's file. What a name is, is what stands behind the last slash: a cluster's host
 * that doesn't lie beside its file is found too. folders may be NULL. The caller frees *out.
 */
copse_status copse_catalogue_find(const char *path, const char *const *folders, char **out,
                                  struct copse_err *err) COPSE_CHECKED;

/* Every entry, sorted; the caller frees it with copse_catalogue_free. */
struct copse_catalogue {
  struct copse_catalogue_entry {
    const char *name, *path;
  } * entries;
  size_t capacity;
  struct copse_arena arena;
  int n;
};
copse_status copse_catalogue_list(const char *const *folders, struct copse_catalogue *out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_catalogue_free(struct copse_catalogue *catalogue);

#endif
