/*
 * The ranks of one communicator in this process: their plans, making and ending them,
 * registered buffers, the launch of a batch of calls that the gathering has brought together, and
 * groups of calls.
 */
#include "runtime/comm/local_ranks.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/types.h"
#include "runtime/comm/gather.h"

/* ==== plans =================================================================================== */

/* The plans of a communicator: reading a folder of them, and the choice of the plan for a call. */

#define SUFFIX ".plan"

static int is_plan_file(const struct dirent *entry) {
  const char *name = entry->d_name;
  size_t n = strlen(name), suffix = sizeof SUFFIX - 1;
  return name[0] != '.' && n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* Compares names so that the order is the same on every host, whatever its locale. */
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

static void plans_free(struct copse_plans *plans) {
  drop_from(plans, 0);
  free(plans->read);
  free(plans->entries);
}

/*
 * Reads every *.plan of the folder (as a shell would list them: no hidden ones) for n_ranks, in
 * byte order of name; plans for other numbers of ranks and alltoalls by demand are passed over.
 * COPSE_INVALID for no folder (NULL or ""), COPSE_IO, or what is wrong with a file; then none is
 * kept.
 */
static copse_status plans_read(struct copse_plans *plans, const char *folder, uint32_t n_ranks,
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

static bool fits(const struct copse_plan_header *h, const struct copse_call *call,
                 uint64_t message_bytes) {
  if (h->collective != (uint32_t)call->collective) return false;
  if (copse_collective_rooted(call->collective) && h->root != call->root) return false;
  if (call->pair_counts && h->protocol != COPSE_PROTOCOL_BANDWIDTH) return false;
  return h->min_bytes <= message_bytes && message_bytes <= h->max_bytes;
}

struct plan_choice {
  const struct copse_plan_entry *entry; /* NULL: none fits */
  size_t n_fitting;                     /* to choose from */
  uint64_t message_bytes;
};

/*
 * Finds the best entry. Fitting are plans for the collective and root whose range holds the
 * message's size. The narrowest range comes first, then a multicast plan, which `plans` makes
 * beside plans that need no switch, then the plan added first. Uneven all-to-alls are not served by
 * the low-latency protocol, whose packets are laid out for full blocks. Complexity: linear in the
 * number of plans, of which a job has a few dozen.
 */
static copse_status plans_find(const struct copse_plans *plans, uint32_t n_ranks,
                               const struct copse_call *call, struct plan_choice *choice,
                               struct copse_err *err) {
  uint64_t narrowest = UINT64_MAX;
  *choice = (struct plan_choice){NULL, 0, 0};
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

/* Finds the first operand in a buffer that a caller may leave NULL, or NULL. */
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

/*
 * Whether a communicator can serve calls with the plan at all. COPSE_INVALID for another number
 * of ranks. COPSE_UNSUPPORTED for an alltoall by demand (it moves only the parts of blocks
 * that its own demand names, so it serves neither all_to_all nor all_to_all_v of other counts;
 * `copse run` runs it), and for a plan that touches what NCCL's arguments let be NULL: the
 * input of a broadcast but at its root, the output of a reduce but at its root.
 */
static copse_status plan_check_servable(const struct copse_plan *plan, uint32_t n_ranks,
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

/* ==== ranks =================================================================================== */

/* Prepares plans; those that fit become entries. *n_fit: how many. */
static copse_status prepare_all(struct copse_local_ranks *local,
                                const struct copse_plan *const *added, size_t n, void **prepared,
                                size_t *n_fit, struct copse_err *err) {
  struct copse_plans *plans = &local->plans;
  *n_fit = 0;
  COPSE_DO(local->ops->prepare(local->backend, added, n, prepared, err));
  for (size_t i = 0; i < n; i++) {
    if (!prepared[i]) continue;
    plans->entries[plans->n++] =
        (struct copse_plan_entry){added[i], prepared[i], copse_plan_has_groups(added[i])};
    ++*n_fit;
  }
  return COPSE_OK;
}

/* Adds plans, with the backend's lock held. `mine`: how reading the plans went here. What may fail
 * here alone comes before the agreement: after it the other ranks count on this one. */
static copse_status add_all(struct copse_local_ranks *local, copse_status mine,
                            const struct copse_plan *const *plans, size_t n, size_t *n_fit,
                            struct copse_err *err) {
  COPSE_AT_END(copse_free_at) void **prepared = NULL;
  struct copse_plans *all = &local->plans;
  for (size_t i = 0; i < n && mine == COPSE_OK; i++)
    mine = plan_check_servable(plans[i], local->shape.n_ranks, err);
  if (mine == COPSE_OK) mine = COPSE_GROW(all->entries, all->capacity, all->n + n, err);
  if (mine == COPSE_OK) mine = copse_calloc(n, sizeof *prepared, &prepared, err);
  COPSE_DO(copse_agree(&local->shape, mine, plans, n, err));
  return prepare_all(local, plans, n, prepared, n_fit, err);
}

copse_status copse_local_add_plan(struct copse_local_ranks *local, const struct copse_plan *plan,
                                  struct copse_err *err) {
  copse_status mine = copse_gather_broken(&local->gather, err);
  COPSE_HOLD(&local->backend_lock);
  size_t n_fit;
  return add_all(local, mine, &plan, 1, &n_fit, err);
}

copse_status copse_local_load_plans(struct copse_local_ranks *local, const char *folder,
                                    uint32_t *n_loaded, struct copse_err *err) {
  struct copse_plans *plans = &local->plans;
  *n_loaded = 0;
  copse_status mine = copse_gather_broken(&local->gather, err);
  COPSE_HOLD(&local->backend_lock);
  const size_t first = plans->n_read;
  if (mine == COPSE_OK) mine = plans_read(plans, folder, local->shape.n_ranks, err);
  const size_t n = plans->n_read - first;
  size_t n_fit = 0;
  COPSE_DO(add_all(local, mine, n ? (const struct copse_plan *const *)plans->read + first : NULL, n,
                   &n_fit, err));
  *n_loaded = (uint32_t)n_fit;
  copse_debug(n_fit ? COPSE_DEBUG_INFO : COPSE_DEBUG_WARN, (int)local->shape.first_local,
              "%zu plans for %u ranks loaded from %s", n_fit, local->shape.n_ranks, folder);
  return COPSE_OK;
}

copse_status copse_local_find_plan(struct copse_local_ranks *local, const struct copse_call *call,
                                   const struct copse_plan **plan, struct copse_err *err) {
  struct plan_choice choice;
  COPSE_HOLD(&local->backend_lock);
  copse_status status = plans_find(&local->plans, local->shape.n_ranks, call, &choice, err);
  *plan = choice.entry ? choice.entry->plan : NULL;
  return status;
}

static void trace(const struct copse_local_ranks *local, const struct copse_call *call,
                  const struct plan_choice *choice) {
  if (!copse_debug_wants(COPSE_DEBUG_TRACE)) return;
  const struct copse_plan_header *h = &choice->entry->plan->header;
  char text[COPSE_CALL_TEXT];
  copse_call_describe(call, text);
  copse_debug(COPSE_DEBUG_TRACE, (int)local->shape.first_local,
              "%s, %llu bytes over %u ranks: plan %zu of %zu (%s, %s, messages of %llu to %llu "
              "bytes), %s",
              text, (unsigned long long)choice->message_bytes, local->shape.n_ranks,
              (size_t)(choice->entry - local->plans.entries) + 1, local->plans.n,
              choice->entry->plan->name,
              h->protocol == COPSE_PROTOCOL_LOW_LATENCY ? "low latency" : "bandwidth",
              (unsigned long long)h->min_bytes, (unsigned long long)h->max_bytes,
              choice->n_fitting == 1 ? "the only one for it" : "the narrowest range that holds it");
}

/* Adds ", of these for 0 to 4096 bytes, 65536 bytes and more": what serves the call's collective
 * and root. */
static void name_sizes(const struct copse_plans *plans, const struct copse_call *call,
                       struct copse_line *line) {
  int n = 0, n_of_roots = 0;
  for (size_t i = 0; i < plans->n; i++) {
    const struct copse_plan_header *h = &plans->entries[i].plan->header;
    if (h->collective != (uint32_t)call->collective) continue;
    n_of_roots++;
    if (copse_collective_rooted(call->collective) && h->root != call->root) continue;
    if (n++ == 4) copse_line_add(line, " ..");
    if (n > 4) continue;
    copse_line_add(line, "%s %llu", n == 1 ? ", of these for" : ",",
                   (unsigned long long)h->min_bytes);
    if (h->max_bytes < INT64_MAX)
      copse_line_add(line, " to %llu bytes", (unsigned long long)h->max_bytes);
    else
      copse_line_add(line, " bytes and more");
  }
  if (n == 0)
    copse_line_add(line, ", none of these for this %s", n_of_roots > 0 ? "root" : "collective");
}

static copse_status lacks_plan(const struct copse_local_ranks *local, const struct copse_call *call,
                               uint64_t bytes, struct copse_err *err) {
  char text[COPSE_CALL_TEXT], others[96] = "", root[32] = "";
  const struct copse_plans *plans = &local->plans;
  struct copse_line sizes = {.used = 0};
  if (plans->n > 0) name_sizes(plans, call, &sizes);
  copse_call_describe(call, text);
  if (plans->n_others)
    snprintf(others, sizeof others, ", and %u files for other numbers of ranks, such as %u",
             plans->n_others, plans->other_ranks);
  if (copse_collective_rooted(call->collective)) snprintf(root, sizeof root, " -r %d", call->root);
  return copse_fail(
      err, COPSE_UNSUPPORTED,
      "no plan for %s, %llu bytes over %u ranks: there are %zu plans for %u ranks%s%s "
      "(copse plans -c %s%s makes a folder of them, which copse_comm_load_plans adds)",
      text, (unsigned long long)bytes, local->shape.n_ranks, plans->n, local->shape.n_ranks,
      sizes.used ? sizes.text : "", others, copse_collective_name(call->collective), root);
}

/* Returns COPSE_UNSUPPORTED, with what would help, where no plan covers the call. */
static copse_status local_covers(struct copse_local_ranks *local, const struct copse_call *call,
                                 struct copse_err *err) {
  struct plan_choice choice;
  COPSE_HOLD(&local->backend_lock);
  COPSE_DO(plans_find(&local->plans, local->shape.n_ranks, call, &choice, err));
  return choice.entry ? COPSE_OK : lacks_plan(local, call, choice.message_bytes, err);
}

/* Whether ranks may be out of step after a launch with this status. Refused arguments are so
 * everywhere, but memory runs out on one host alone. */
static bool is_breaking(const struct copse_local_ranks *local, copse_status status) {
  if (status == COPSE_NOMEM) return local->shape.n_local < local->shape.n_ranks;
  return status != COPSE_OK && status != COPSE_INVALID && status != COPSE_UNSUPPORTED;
}

/* Picks the batch's plan. */
static copse_status choose(struct copse_local_ranks *local, const struct copse_call *calls,
                           struct plan_choice *choice, struct copse_batch *batch,
                           struct copse_err *err) {
  COPSE_DO(plans_find(&local->plans, local->shape.n_ranks, &calls[0], choice, err));
  if (!choice->entry) return lacks_plan(local, &calls[0], choice->message_bytes, err);
  *batch = (struct copse_batch){choice->entry->prepared, calls};
  return COPSE_OK;
}

/* Hands the first batch to the backend, with those behind it that are not refused. Returns how many
 * the status is of. */
static uint32_t launch_locked(struct copse_local_ranks *local,
                              const struct copse_gather_batch *batches, uint32_t n,
                              copse_status *status, struct copse_err *err) {
  struct plan_choice choices[COPSE_GATHER_MOST];
  struct copse_batch ready[COPSE_GATHER_MOST];
  uint32_t n_ready = 1, n_taken = 1;
  *status = local->ops->poll(local->backend, err);
  if (*status == COPSE_OK) *status = choose(local, batches[0].calls, &choices[0], &ready[0], err);
  if (*status != COPSE_OK) return 1;
  while (n_ready < n && batches[n_ready].result.status == COPSE_OK &&
         choose(local, batches[n_ready].calls, &choices[n_ready], &ready[n_ready], NULL) ==
             COPSE_OK)
    n_ready++;
  *status = local->ops->launch(local->backend, ready, n_ready, &n_taken, err);
  for (uint32_t i = 0; i < n_taken; i++) trace(local, batches[i].calls, &choices[i]);
  return n_taken;
}

/* Launches the gathering's batches. */
static void local_launch(void *context, struct copse_gather_batch *batches, uint32_t n,
                         struct copse_err *breaks) {
  struct copse_local_ranks *local = context;
  COPSE_HOLD(&local->backend_lock);
  for (uint32_t i = 0, n_taken; i < n && breaks->status == COPSE_OK; i += n_taken) {
    struct copse_err result = COPSE_ERR_INIT;
    n_taken = 1;
    if (batches[i].result.status != COPSE_OK) continue;
    copse_status status;
    n_taken = launch_locked(local, &batches[i], n - i, &status, &result);
    result.status = status; /* also where a launch gave no text */
    for (uint32_t k = i; k < i + n_taken; k++) batches[k].result = result;
    if (is_breaking(local, status)) *breaks = result;
  }
  /* what a failed launch has started on some GPUs would wait for the rest */
  if (breaks->status != COPSE_OK) local->ops->abort(local->backend);
}

/* Takes what is half made. */
static void free_local_ranks(struct copse_local_ranks *local) {
  if (!local) return;
  while (local->registrations) {
    struct copse_registration *next = local->registrations->next;
    free(local->registrations);
    local->registrations = next;
  }
  if (local->backend) local->ops->destroy(local->backend);
  plans_free(&local->plans);
  copse_gather_destroy(&local->gather);
  pthread_mutex_destroy(&local->backend_lock);
  if (local->free_bootstrap) local->free_bootstrap(&local->bootstrap);
  copse_arena_free(&local->memory);
  free(local);
}

static void drop_local_ranks(struct copse_local_ranks **local) { free_local_ranks(*local); }

static copse_status copy_shape(struct copse_local_ranks *local,
                               const struct copse_comm_shape *shape, struct copse_err *err) {
  int *devices;
  local->shape = *shape;
  COPSE_DO(COPSE_ARRAY(&local->memory, shape->n_local, devices, err));
  memcpy(devices, shape->devices, shape->n_local * sizeof *devices);
  local->shape.devices = devices;
  if (shape->bootstrap) {
    local->bootstrap = *shape->bootstrap;
    local->shape.bootstrap = &local->bootstrap;
  }
  return COPSE_OK;
}

static copse_status make_handles(struct copse_local_ranks *local, struct copse_comm **comms,
                                 struct copse_err *err) {
  struct copse_comm *handles;
  const uint32_t n = local->shape.n_local;
  COPSE_DO(COPSE_ARRAY(&local->memory, n, handles, err));
  for (uint32_t i = 0; i < n; i++) {
    handles[i] = (struct copse_comm){local, local->shape.first_local + i};
    comms[i] = &handles[i];
  }
  local->n_handles = n;
  return COPSE_OK;
}

/* Makes what may fail at this rank alone. */
static copse_status make_all(struct copse_local_ranks *local, const struct copse_comm_shape *shape,
                             struct copse_comm **comms, struct copse_err *err) {
  COPSE_DO(copse_gather_init(&local->gather, shape->first_local, shape->n_local, err));
  COPSE_DO(copy_shape(local, shape, err));
  COPSE_DO(make_handles(local, comms, err));
  return local->ops->create(&local->shape, &local->backend, err);
}

copse_status copse_local_new(const struct copse_comm_shape *shape,
                             const struct copse_backend_ops *ops,
                             void (*free_bootstrap)(copse_bootstrap *), struct copse_comm **comms,
                             struct copse_err *err) {
  COPSE_AT_END(drop_local_ranks) struct copse_local_ranks *local = NULL;
  copse_status mine = copse_calloc(1, sizeof *local, &local, err);
  if (mine == COPSE_OK) {
    local->ops = ops;
    local->gather.launch = local_launch;
    local->gather.context = local;
    pthread_mutex_init(&local->backend_lock, NULL);
    mine = make_all(local, shape, comms, err);
  }
  mine = copse_agree(shape, mine, NULL, 0, err);
  if (mine != COPSE_OK) {
    memset(comms, 0, shape->n_local * sizeof *comms);
    return mine;
  }
  ops->set_timeout(local->backend, local->gather.timeout_seconds);
  local->free_bootstrap = free_bootstrap;
  copse_debug(COPSE_DEBUG_INFO, (int)shape->first_local, "communicator %p: %u of %u ranks here",
              (void *)local, shape->n_local, shape->n_ranks);
  local = NULL; /* its handles' now */
  return COPSE_OK;
}

copse_status copse_local_leave(struct copse_comm *comm, struct copse_err *err) {
  struct copse_local_ranks *local = comm->local;
  uint32_t rank = comm->rank;
  copse_gather_leave(&local->gather, rank - local->shape.first_local);
  bool broken = copse_gather_broken(&local->gather, NULL) != COPSE_OK;
  pthread_mutex_lock(&local->backend_lock);
  /* the reason has been reported; nothing enqueued may keep this waiting */
  if (broken) local->ops->abort(local->backend);
  copse_status status = local->ops->finish(local->backend, broken ? NULL : err);
  bool last = --local->n_handles == 0;
  pthread_mutex_unlock(&local->backend_lock);
  copse_debug(COPSE_DEBUG_INFO, (int)rank, "communicator %p: rank ends%s", (void *)local,
              last ? ", the last one here" : "");
  if (last) free_local_ranks(local);
  return broken ? COPSE_OK : status;
}

/* ==== groups of calls ========================================================================= */

/* Groups of calls: what a thread calls between group start and group end is checked at once, queued
 * at the end, and waited for together. The interface is that of NCCL's ncclGroupStart and
 * ncclGroupEnd. */

struct queued {
  struct copse_comm *comm;
  struct copse_pending pending;
};

static _Thread_local struct {
  unsigned depth;
  struct queued *calls;
  size_t n, capacity;
  struct copse_err refused; /* the first */
} group;

void copse_call_group_open(void) { group.depth++; }

void copse_call_group_refuse(const struct copse_err *err) {
  if (group.depth > 0 && group.refused.status == COPSE_OK) group.refused = *err;
}

bool copse_call_group_is_open(void) { return group.depth > 0; }

bool copse_call_group_holds(const struct copse_comm *comm) {
  for (size_t i = 0; i < group.n; i++)
    if (group.calls[i].comm == comm) return true;
  return false;
}

static void queue(struct copse_comm *comm, struct copse_pending *pending) {
  struct copse_local_ranks *local = comm->local;
  copse_gather_queue(&local->gather, comm->rank - local->shape.first_local, pending);
}

/* Submits the group: calls of one communicator in a row go together. A call of another one between
 * two keeps them apart: a rank that doesn't group them has it between them in its stream. */
static void submit_group(void) {
  for (size_t i = 0; i < group.n; i++) {
    struct copse_gather *gather = &group.calls[i].comm->local->gather;
    queue(group.calls[i].comm, &group.calls[i].pending);
    if (i + 1 == group.n || &group.calls[i + 1].comm->local->gather != gather)
      copse_gather_run(gather);
  }
}

static copse_status take_result(const struct copse_pending *pending, struct copse_err *err) {
  copse_status status = pending->result.status;
  return status == COPSE_OK ? COPSE_OK : copse_fail(err, status, "%s", pending->result.text);
}

static copse_status take_call(struct copse_comm *comm, const struct copse_call *call,
                              struct copse_err *err) {
  if (group.depth == 0) {
    struct copse_pending pending = {.call = *call};
    queue(comm, &pending);
    copse_gather_run(&comm->local->gather);
    copse_gather_wait(&comm->local->gather, &pending);
    return take_result(&pending, err);
  }
  return COPSE_PUSH(group.calls, group.n, group.capacity, err,
                    (struct queued){.comm = comm, .pending = {.call = *call}});
}

static copse_status try_call(struct copse_comm *comm, const struct copse_call *call,
                             struct copse_err *err) {
  if (!comm) return copse_fail(err, COPSE_INVALID, "comm is NULL");
  COPSE_DO(copse_call_check(call, comm->local->shape.n_ranks, comm->rank, err));
  COPSE_DO(copse_gather_broken(&comm->local->gather, err));
  /* what no rank can be served is said at once, not when the last rank has called */
  if (call->count > 0 && group.depth == 0 && comm->local->shape.n_local > 1)
    COPSE_DO(local_covers(comm->local, call, err));
  if (call->count > 0) COPSE_DO(take_call(comm, call, err));
  return COPSE_OK;
}

copse_status copse_call_group_add(struct copse_comm *comm, const struct copse_call *call,
                                  struct copse_err *err) {
  copse_status status = try_call(comm, call, err);
  if (status == COPSE_OK) return COPSE_OK;
  err->status = status;
  copse_call_group_refuse(err);
  return status;
}

copse_status copse_call_group_close(struct copse_err *err) {
  copse_status status = COPSE_OK;
  if (group.depth == 0) return copse_fail(err, COPSE_INVALID, "a group ends that was not started");
  if (--group.depth > 0) return COPSE_OK;
  if (group.refused.status != COPSE_OK)
    status = copse_fail(err, group.refused.status, "%s", group.refused.text);
  /* from here on the calls must stay where they are: others point to them */
  if (status == COPSE_OK) submit_group();
  for (size_t i = 0; group.refused.status == COPSE_OK && i < group.n; i++) {
    copse_gather_wait(&group.calls[i].comm->local->gather, &group.calls[i].pending);
    copse_status result = take_result(&group.calls[i].pending, err);
    if (status == COPSE_OK) status = result;
  }
  free(group.calls);
  group.calls = NULL;
  group.n = group.capacity = 0;
  group.refused = (struct copse_err)COPSE_ERR_INIT;
  return status;
}
