#include "dropin/clique.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"

struct clique {
  struct clique *next;
  uint64_t number;
  copse_comm **comms; /* [n_ranks] */
  int n_plans, n_taken;
  struct copse_err err; /* why there are none, the same for all ranks */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clique *cliques; /* that not all ranks have taken */

static copse_status last_error(copse_status status, struct copse_err *err) {
  return status == COPSE_OK ? status : copse_fail(err, status, "%s", copse_last_error());
}

static copse_status make_comms(struct clique *it, const struct copse_nccl_record *all, int n_ranks,
                               const char *folder, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int *devices = NULL;
  COPSE_TRY(copse_calloc((size_t)n_ranks, sizeof *devices, &devices, err));
  for (int r = 0; r < n_ranks; r++) devices[r] = all[r].device;
  COPSE_TRY(last_error(copse_comm_init_all(it->comms, n_ranks, devices), err));
  COPSE_TRY(last_error(copse_comm_load_plans(it->comms[0], folder, &it->n_plans), err));
out:
  free(devices);
  for (int r = 0; status != COPSE_OK && r < n_ranks; r++) {
    (void)copse_comm_destroy(it->comms[r]);
    it->comms[r] = NULL;
  }
  return status;
}

static copse_status add_clique(const struct copse_nccl_record *all, int n_ranks, const char *folder,
                               struct clique **out, struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct clique *it = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *it, &it, err));
  COPSE_TRY(copse_calloc((size_t)n_ranks, sizeof(copse_comm *), &it->comms, err));
  it->number = all[0].clique;
  (void)make_comms(it, all, n_ranks, folder, &it->err);
  it->next = cliques;
  cliques = it;
  *out = it;
out:
  if (status != COPSE_OK) free(it);
  return status;
}

static void remove_clique(struct clique *it) {
  struct clique **at = &cliques;
  while (*at != it) at = &(*at)->next;
  *at = it->next;
  free(it->comms);
  free(it);
}

copse_status copse_nccl_clique_take(const struct copse_nccl_record *all, int n_ranks, int rank,
                                    const char *folder, copse_comm **comm, int *n_plans,
                                    struct copse_err *err) {
  copse_status status = COPSE_OK;
  *comm = NULL;
  *n_plans = 0;
  pthread_mutex_lock(&lock);
  struct clique *it = cliques;
  while (it && it->number != all[0].clique) it = it->next;
  if (!it) COPSE_TRY(add_clique(all, n_ranks, folder, &it, err));
  if (it->err.status != COPSE_OK) {
    status = copse_fail(err, it->err.status, "%s", it->err.text);
  } else {
    *comm = it->comms[rank];
    *n_plans = it->n_plans;
  }
  if (++it->n_taken == n_ranks) remove_clique(it);
out:
  pthread_mutex_unlock(&lock);
  return status;
}
