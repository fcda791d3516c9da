/* What the tests that read NCCL's files share: machines of tests/data/nccl and, where it is there,
 * of OUTSIDE/nccl/data. */
#ifndef COPSE_TESTS_NCCL_FILES_H
#define COPSE_TESTS_NCCL_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "nccl/machine.h"
#include "support/support.h"

#define SHARED_MACHINES COPSE_TEST_OUTSIDE "/nccl/data"
#define OWN_MACHINES "tests/data/nccl"

/* The names of the machines with a topology in a folder, sorted; their number. */
static inline int list_machines(const char *folder, char names[][64], int most) {
  struct dirent **found;
  int n = 0, all = scandir(folder, &found, NULL, alphasort);
  for (int i = 0; i < all; i++) {
    size_t length = strlen(found[i]->d_name);
    const char *end = ".topo.xml";
    bool topology = length > strlen(end) && length < 64 + strlen(end) &&
                    strcmp(found[i]->d_name + length - strlen(end), end) == 0;
    if (topology && n < most)
      snprintf(names[n++], 64, "%.*s", (int)(length - strlen(end)), found[i]->d_name);
    free(found[i]);
  }
  if (all >= 0) free(found);
  return n;
}

/* The machine, `hosts` of it. */
static inline struct copse_topology *load_machine(const char *folder, const char *name, int hosts) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *host = NULL, *all = NULL;
  char path[256];
  snprintf(path, sizeof path, "%s/%s.topo.xml", folder, name);
  ASSERT_OK(copse_topology_load(path, NULL, &host, &err), &err);
  if (hosts == 1) return host;
  ASSERT_OK(copse_nccl_repeat_host(host, hosts, &all, &err), &err);
  copse_topology_free(host);
  return all;
}

/* The name of a machine's file of N hosts, such as "graph.xml"; whether it is there. */
static inline bool machine_file(const char *folder, const char *name, int hosts, const char *what,
                                char path[256]) {
  snprintf(path, 256, "%s/%s.%d.%s", folder, name, hosts, what);
  return access(path, R_OK) == 0;
}

#endif
