/* Giving a clique its plans. */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/comm/clique.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/folder.h"
#include "runtime/comm/debug.h"

/* The machine's own part; all or none enter the table. */
static copse_status prepare_all(struct copse_clique *clique, const struct copse_plan *const *plans,
                                size_t n, struct copse_err *err) {
  struct copse_plan_table *table = &clique->plans;
  size_t end = table->n;
  copse_status status;
  COPSE_TRY(copse_grow(&table->entries, &table->capacity, end + n, sizeof *table->entries, err));
  for (size_t i = 0; i < n; i++, end++) {
    struct copse_plan_entry *entry = &table->entries[end];
    entry->plan = plans[i];
    COPSE_TRY(clique->ops->prepare(clique->machine, plans[i], &entry->prepared, err));
  }
  table->n = end;
out:
  return status;
}

static copse_status check_all(const struct copse_clique *clique,
                              const struct copse_plan *const *plans, size_t n,
                              struct copse_err *err) {
  for (size_t i = 0; i < n; i++) {
    copse_status status = copse_plan_check_servable(plans[i], clique->shape.n_ranks, err);
    if (status != COPSE_OK) return status;
  }
  return COPSE_OK;
}

/* With the machine's lock held. `mine`: how reading the plans went here. */
static copse_status add_all(struct copse_clique *clique, copse_status mine,
                            const struct copse_plan *const *plans, size_t n,
                            struct copse_err *err) {
  copse_status status;
  if (mine == COPSE_OK) mine = check_all(clique, plans, n, err);
  COPSE_TRY(copse_agree(&clique->shape, mine, plans, n, err));
  COPSE_TRY(prepare_all(clique, plans, n, err));
out:
  return status;
}

copse_status copse_clique_add_plan(struct copse_clique *clique, const struct copse_plan *plan,
                                   struct copse_err *err) {
  copse_status mine = copse_gather_broken(&clique->gather, err);
  pthread_mutex_lock(&clique->machine_lock);
  copse_status status = add_all(clique, mine, &plan, 1, err);
  pthread_mutex_unlock(&clique->machine_lock);
  return status;
}

/* The plans become the clique's: whether or not they enter the table, as the machine may have
 * seen some of them. */
static copse_status own_all(struct copse_clique *clique, struct copse_plan_list *list,
                            struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_grow(&clique->owned, &clique->owned_capacity, clique->n_owned + list->n,
                       sizeof *clique->owned, err));
  for (size_t i = 0; i < list->n; i++) clique->owned[clique->n_owned++] = list->plans[i];
  list->n = 0;
out:
  return status;
}

copse_status copse_clique_load_plans(struct copse_clique *clique, const char *folder,
                                     uint32_t *n_loaded, struct copse_err *err) {
  struct copse_plan_list list = {NULL, 0, 0};
  *n_loaded = 0;
  copse_status mine = copse_gather_broken(&clique->gather, err);
  if (mine == COPSE_OK) mine = copse_folder_read_plans(folder, clique->shape.n_ranks, &list, err);
  pthread_mutex_lock(&clique->machine_lock);
  size_t first = clique->n_owned, n = list.n;
  if (mine == COPSE_OK) mine = own_all(clique, &list, err);
  if (mine != COPSE_OK) n = 0;
  const struct copse_plan *const *plans =
      n ? (const struct copse_plan *const *)clique->owned + first : NULL;
  copse_status status = add_all(clique, mine, plans, n, err);
  pthread_mutex_unlock(&clique->machine_lock);
  copse_plan_list_free(&list);
  if (status != COPSE_OK) return status;
  *n_loaded = (uint32_t)n;
  copse_debug(n ? COPSE_DEBUG_INFO : COPSE_DEBUG_WARN, (int)clique->shape.first_local,
              "%zu plans for %u ranks loaded from %s", n, clique->shape.n_ranks, folder);
  return COPSE_OK;
}
