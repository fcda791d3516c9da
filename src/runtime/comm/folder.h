/*
 * Inside src/runtime: plan files of a folder.
 */
#ifndef COPSE_RUNTIME_COMM_FOLDER_H
#define COPSE_RUNTIME_COMM_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "runtime/plan/plan.h"

/* Plans that somebody must free. */
struct copse_plan_list {
  struct copse_plan **plans;
  size_t n, capacity;
};

/*
 * Every *.plan of the folder (as a shell would list them: no hidden ones) for n_ranks, in byte
 * order of name; plans for other numbers of ranks and alltoalls by demand are passed over.
 * COPSE_INVALID for no folder (NULL or ""), COPSE_IO, or what is wrong with a file; then the list
 * is empty.
 */
copse_status copse_folder_read_plans(const char *folder, uint32_t n_ranks,
                                     struct copse_plan_list *list,
                                     struct copse_err *err) COPSE_CHECKED;
/* Frees the plans too. */
void copse_plan_list_free(struct copse_plan_list *list);

#endif
