/*
 * The real NCCL and the functions that are only passed on to it; and those that the drop-in looks
 * at: collectives, send and receive; groups; how communicators begin and end, and what they report
 * when they break. Their prototypes are those of NCCL's nccl.h (abi.h, functions.h).
 *
 * Where an NCCL call is answered: answer_call decides from what all ranks have alike, counts the
 * call, and serves it with copse, holds it until the group's end, or passes it to the real NCCL.
 *
 *   ncclAllReduce -> answer_call -> decide -> serve: copse_all_reduce
 *                                          -> hold:  ncclGroupEnd, then as serve
 *                                          -> pass:  the real ncclAllReduce
 */
#include "dropin/calls.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/types.h"
#include "dropin/gather.h"
#include "dropin/real.h"

/* ==== the real NCCL ======================================================================= */

static _Thread_local int inside;

void copse_nccl_enter(void) { inside++; }
void copse_nccl_leave(void) { inside--; }
static bool is_inside(void) { return inside > 0; }

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool named;     /* COPSE_NCCL_LIBRARY is set: nothing else counts */
static void *by_name;  /* that library, or NULL */
static void *fallback; /* libnccl.so.2; set under `lock` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_named(void) {
  const char *path = getenv("COPSE_NCCL_LIBRARY");
  if (!path || !*path) return;
  named = true;
  by_name = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!by_name) copse_debug(COPSE_DEBUG_WARN, -1, "COPSE_NCCL_LIBRARY: %s", dlerror());
}

/* Opens NCCL by name. What is loaded already comes first: a second NCCL in the process would know
 * none of the first one's communicators. */
static void *open_fallback(void) {
  COPSE_HOLD(&lock);
  if (!fallback) fallback = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!fallback) fallback = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  return fallback;
}

/* Whether a function is of this library: a link named libnccl.so.2 may lead back here. */
static bool is_ours(void *function) {
  Dl_info theirs, ours;
  return dladdr(function, &theirs) && dladdr((void *)&once, &ours) &&
         theirs.dli_fbase == ours.dli_fbase;
}

void *copse_nccl_find(const char *name, void *_Atomic *cache) {
  void *function = atomic_load_explicit(cache, memory_order_acquire);
  if (function) return function;
  (void)pthread_once(&once, open_named);
  if (named) {
    if (by_name) function = dlsym(by_name, name);
  } else {
    function = dlsym(RTLD_NEXT, name);
    void *library = function ? NULL : open_fallback();
    if (library) function = dlsym(library, name);
  }
  if (function && is_ours(function)) function = NULL;
  if (function)
    atomic_store_explicit(cache, function, memory_order_release);
  else
    copse_debug(COPSE_DEBUG_WARN, -1,
                "no %s: COPSE_NCCL_LIBRARY may name a libnccl.so.2 that has it", name);
  return function;
}

#define DEFINE(prefix, symbol, type, missing, name, params, args)                   \
  type prefix##name params {                                                        \
    static void *_Atomic cache;                                                     \
    type(*function) params = (type(*) params)copse_nccl_find(symbol #name, &cache); \
    if (!function) return missing;                                                  \
    return function args;                                                           \
  }
#define DEFINE_REAL(...) DEFINE(copse_nccl_real_, "nccl", __VA_ARGS__)
#define DEFINE_PROFILING(...) DEFINE(pnccl, "pnccl", __VA_ARGS__)
COPSE_NCCL_SERVED(DEFINE_REAL)
COPSE_NCCL_CONFIGURED(DEFINE_REAL)
COPSE_NCCL_FORWARDED(DEFINE_REAL)
COPSE_NCCL_DEVICE_API(DEFINE_REAL)
COPSE_NCCL_SERVED(DEFINE_PROFILING)
COPSE_NCCL_CONFIGURED(DEFINE_PROFILING)
COPSE_NCCL_FORWARDED(DEFINE_PROFILING)
COPSE_NCCL_DEVICE_API(DEFINE_PROFILING)

#define FORWARD(type, missing, name, params, args) \
  type nccl##name params { return copse_nccl_real_##name args; }
COPSE_NCCL_FORWARDED(FORWARD)
COPSE_NCCL_DEVICE_API(FORWARD)

/* Hands on to a function that NCCL exports without a twin. */
COPSE_NCCL_EXPORT void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) {
  static void *_Atomic cache;
  void (*function)(void) = (void (*)(void))copse_nccl_find("ncclResetDebugInitInternal", &cache);
  if (function) function();
}

/* The calls sorted by round, by direction (send, receive) and by peer. */
struct grid {
  const struct copse_nccl_call **calls; /* [n_rounds][2][n_ranks] */
  size_t *n_seen;                       /* [2][n_ranks] */
  size_t n_rounds, n_ranks;
};

static bool sort_calls(struct grid *grid, const struct copse_nccl_call *calls, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t direction = calls[i].function == COPSE_NCCL_RECV;
    if (calls[i].root < 0 || (size_t)calls[i].root >= grid->n_ranks) return false;
    size_t column = direction * grid->n_ranks + (size_t)calls[i].root;
    size_t round = grid->n_seen[column]++;
    if (round >= grid->n_rounds) return false;
    grid->calls[round * 2 * grid->n_ranks + column] = &calls[i];
  }
  return true; /* n calls, none too often: every place is taken */
}

static uintptr_t address(const struct copse_nccl_call *call) {
  return (uintptr_t)(call->function == COPSE_NCCL_SEND ? call->send : call->recv);
}

static bool is_uniform(const struct copse_nccl_call **round, size_t n_ranks) {
  const struct copse_nccl_call *first = round[0];
  uintptr_t block;
  if (first->count == 0 ||
      __builtin_mul_overflow(first->count, copse_type_bytes((copse_type)first->type), &block))
    return false;
  for (size_t i = 0; i < 2 * n_ranks; i++) {
    const struct copse_nccl_call *it = round[i];
    uintptr_t base = address(round[i < n_ranks ? 0 : n_ranks]);
    if (it->count != first->count || it->type != first->type || it->stream != first->stream ||
        address(it) - base != (i % n_ranks) * block)
      return false;
  }
  return true;
}

copse_status copse_nccl_find_exchanges(const struct copse_nccl_call *calls, size_t n, int n_ranks,
                                       struct copse_nccl_call *all_to_alls, size_t *n_found,
                                       struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct grid grid = {.n_ranks = (size_t)n_ranks, .n_rounds = n / (2 * (size_t)n_ranks)};
  *n_found = 0;
  if (n == 0 || n % (2 * grid.n_ranks) != 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, n, grid.calls, err));
  COPSE_DO(COPSE_ARRAY(&scratch, 2 * grid.n_ranks, grid.n_seen, err));
  bool all = sort_calls(&grid, calls, n);
  for (size_t i = 0; all && i < grid.n_rounds; i++) {
    const struct copse_nccl_call **round = &grid.calls[i * 2 * grid.n_ranks];
    all = is_uniform(round, grid.n_ranks);
    all_to_alls[i] = *round[0];
    all_to_alls[i].function = COPSE_NCCL_ALL_TO_ALL;
    all_to_alls[i].recv = round[grid.n_ranks]->recv;
    all = all && all_to_alls[i].send != all_to_alls[i].recv;
  }
  if (all) *n_found = grid.n_rounds;
  return COPSE_OK;
}

/* Returns one of the six collectives, COPSE_NCCL_SEND_RECV or COPSE_NCCL_OTHER. */
static int kind_of(const struct copse_nccl_call *call) {
  if (call->function == COPSE_NCCL_BCAST) return COPSE_BROADCAST;
  if (call->function >= COPSE_NCCL_GATHER) return COPSE_NCCL_OTHER;
  return call->function <= COPSE_NCCL_ALL_TO_ALL ? (int)call->function : COPSE_NCCL_SEND_RECV;
}

/* With the call's configuration or without. */
#define REAL(name, ...)                                                    \
  (c->config ? copse_nccl_real_##name##Config(__VA_ARGS__, c->config) : \
               copse_nccl_real_##name(__VA_ARGS__))

static ncclResult_t run_real(const struct copse_nccl_call *c) {
  switch (c->function) {
    case COPSE_NCCL_ALL_REDUCE:
      return REAL(AllReduce, c->send, c->recv, c->count, c->type, c->op, c->nccl, c->stream);
    case COPSE_NCCL_ALL_GATHER:
      return REAL(AllGather, c->send, c->recv, c->count, c->type, c->nccl, c->stream);
    case COPSE_NCCL_REDUCE_SCATTER:
      return REAL(ReduceScatter, c->send, c->recv, c->count, c->type, c->op, c->nccl, c->stream);
    case COPSE_NCCL_BROADCAST:
      return REAL(Broadcast, c->send, c->recv, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_BCAST:
      return copse_nccl_real_Bcast(c->recv, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_REDUCE:
      return REAL(Reduce, c->send, c->recv, c->count, c->type, c->op, c->root, c->nccl, c->stream);
    case COPSE_NCCL_ALL_TO_ALL:
      return REAL(AlltoAll, c->send, c->recv, c->count, c->type, c->nccl, c->stream);
    case COPSE_NCCL_SEND:
      return copse_nccl_real_Send(c->send, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_RECV:
      return copse_nccl_real_Recv(c->recv, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_GATHER:
      return REAL(Gather, c->send, c->recv, c->count, c->type, c->root, c->nccl, c->stream);
    case COPSE_NCCL_SCATTER:
      return REAL(Scatter, c->send, c->recv, c->count, c->type, c->root, c->nccl, c->stream);
  }
  return ncclInternalError;
}

/* Passes the call to the real NCCL. */
static ncclResult_t run_nccl(const struct copse_nccl_call *call) {
  copse_nccl_enter();
  ncclResult_t result = run_real(call);
  copse_nccl_leave();
  return result;
}

static copse_status run_copse(const struct copse_nccl_call *c, copse_comm *comm) {
  copse_type type = (copse_type)c->type;
  copse_redop op = (copse_redop)c->op;
  switch (kind_of(c)) {
    case COPSE_ALLREDUCE:
      return copse_all_reduce(c->send, c->recv, c->count, type, op, comm, c->stream);
    case COPSE_ALLGATHER:
      return copse_all_gather(c->send, c->recv, c->count, type, comm, c->stream);
    case COPSE_REDUCE_SCATTER:
      return copse_reduce_scatter(c->send, c->recv, c->count, type, op, comm, c->stream);
    case COPSE_BROADCAST:
      return copse_broadcast(c->send, c->recv, c->count, type, c->root, comm, c->stream);
    case COPSE_REDUCE:
      return copse_reduce(c->send, c->recv, c->count, type, op, c->root, comm, c->stream);
    case COPSE_ALLTOALL: return copse_all_to_all(c->send, c->recv, c->count, type, comm, c->stream);
    default: return COPSE_INTERNAL;
  }
}

/* Runs a collective with copse. The text of a failure is kept for ncclGetLastError. */
static ncclResult_t run_served(const struct copse_nccl_call *call, copse_comm *comm) {
  copse_nccl_enter();
  copse_status status = run_copse(call, comm);
  copse_nccl_leave();
  return copse_nccl_failed(status);
}

struct held {
  struct copse_nccl_call call;
  struct copse_nccl_comm *comm; /* used; NULL once the call is settled */
};

/* The stream of a communicator's last call that was passed to NCCL. NCCL lets the streams of all
 * calls that a group has of a communicator wait for all of them, so one stands for all. */
struct passed {
  struct copse_nccl_comm *comm; /* used */
  cudaStream_t stream;
};

/* A registration whose window NCCL gives at the group's end. */
struct registered {
  struct copse_nccl_comm *comm; /* used */
  struct copse_nccl_window *window;
  ncclWindow_t *where;
};

struct group {
  int depth;
  struct held *held;
  size_t n_held, held_capacity;
  struct passed *passed; /* of communicators that copse serves too */
  size_t n_passed, passed_capacity;
  struct copse_nccl_made *made;
  size_t n_made, made_capacity;
  struct registered *registered;
  size_t n_registered, registered_capacity;
};

static _Thread_local struct group open_group;

bool copse_nccl_in_group(void) { return open_group.depth > 0; }

/* Keeps a call for the end of the group; takes over the caller's use of comm if it succeeds. */
static copse_status hold(struct group *group, const struct copse_nccl_call *call,
                         struct copse_nccl_comm *comm) {
  return COPSE_PUSH(group->held, group->n_held, group->held_capacity, NULL,
                    (struct held){*call, comm});
}

static ncclResult_t note_passed(struct group *group, const struct copse_nccl_call *call,
                                struct copse_nccl_comm *comm) {
  size_t i = 0;
  while (i < group->n_passed && group->passed[i].comm != comm) i++;
  if (i == group->n_passed) {
    if (COPSE_GROW(group->passed, group->passed_capacity, i + 1, NULL) != COPSE_OK)
      return ncclSystemError;
    group->n_passed++;
    copse_nccl_use(comm);
  }
  group->passed[i] = (struct passed){comm, call->stream};
  return ncclSuccess;
}

/* Lets copse's next launches follow what NCCL has in the stream. */
static ncclResult_t lead(const struct copse_nccl_comm *comm, cudaStream_t stream) {
  return copse_nccl_failed(copse_comm_lead(comm->copse, stream));
}

/* Passes a call of a communicator that is registered to NCCL, in order with the calls that
 * copse serves. group: the one that is open or ends, or NULL. */
static ncclResult_t pass(struct group *group, const struct copse_nccl_call *call,
                         struct copse_nccl_comm *comm) {
  if (!comm->copse) return run_nccl(call);
  ncclResult_t result = copse_nccl_failed(copse_comm_follow(comm->copse, call->stream));
  if (result == ncclSuccess && group) result = note_passed(group, call, comm);
  if (result == ncclSuccess) result = run_nccl(call);
  return result == ncclSuccess && !group ? lead(comm, call->stream) : result;
}

/* Whether all that this rank gives lies in symmetric windows. NCCL demands of programs that a
 * collective's buffers do so at all ranks or at none. */
static bool is_in_windows(struct copse_nccl_comm *comm, const struct copse_nccl_call *c) {
  const int kind = kind_of(c);
  const uint64_t n = (uint64_t)comm->n_ranks,
                 block = c->count * copse_type_bytes((copse_type)c->type);
  const bool wide = kind == COPSE_ALLTOALL;
  if (!comm->windows) return false;
  return copse_nccl_window_holds(comm, c->send,
                                 wide || kind == COPSE_REDUCE_SCATTER ? n * block : block) &&
         copse_nccl_window_holds(comm, c->recv,
                                 wide || kind == COPSE_ALLGATHER ? n * block : block);
}

/*
 * Looks only at what is the same on all ranks of the communicator, so that all decide alike. The
 * exceptions: an all-to-all in place is wrong on all ranks or none of a sane program, and so is one
 * in symmetric windows; sends and receives are looked at only where the user has promised that they
 * are alike (COPSE_NCCL_ALLTOALL). Of rooted collectives only the root need give all buffers.
 */
static enum copse_nccl_reason decide(struct copse_nccl_comm *comm,
                                     const struct copse_nccl_call *call, const copse_plan **plan) {
  int kind = kind_of(call);
  copse_collective collective = (copse_collective)kind; /* unless it is a pair */
  bool pair = kind == COPSE_NCCL_SEND_RECV;
  if (!comm->copse) return COPSE_NCCL_NO_COPSE;
  if (kind == COPSE_NCCL_OTHER) return COPSE_NCCL_NO_COLLECTIVE;
  if (call->config) return COPSE_NCCL_CONFIGURED;
  if (pair && !comm->exchanges) return COPSE_NCCL_NOT_PROMISED;
  if (pair && !copse_nccl_in_group()) return COPSE_NCCL_ALONE;
  if (call->type >= COPSE_N_TYPES) return COPSE_NCCL_OTHER_TYPE;
  if (pair) return COPSE_NCCL_SERVE; /* perhaps: the end of the group decides */
  if (call->count == 0) return COPSE_NCCL_EMPTY;
  if (copse_collective_reduces(collective) && call->op >= COPSE_N_REDOPS)
    return COPSE_NCCL_OTHER_REDOP;
  if (kind == COPSE_ALLTOALL && call->send == call->recv) return COPSE_NCCL_IN_PLACE;
  if (!copse_collective_rooted(collective) && is_in_windows(comm, call))
    return COPSE_NCCL_IN_WINDOWS;
  copse_status status = copse_comm_find_plan(comm->copse, collective,
                                             copse_collective_rooted(collective) ? call->root : -1,
                                             call->count, (copse_type)call->type, plan);
  if (status != COPSE_OK || !*plan) return COPSE_NCCL_NO_PLAN;
  return COPSE_NCCL_SERVE;
}

/* Decides, counts and logs, then serves, holds or passes it. */
static ncclResult_t answer_call(const struct copse_nccl_call *call) {
  struct copse_nccl_comm *comm = is_inside() ? NULL : copse_nccl_acquire(call->nccl);
  if (!comm) return run_nccl(call);
  ncclResult_t result;
  int kind = kind_of(call);
  const copse_plan *plan = NULL;
  enum copse_nccl_reason reason = decide(comm, call, &plan);
  if (reason != COPSE_NCCL_SERVE) {
    copse_nccl_tally_passed(comm, kind, reason, call->count, call->type);
    result = pass(copse_nccl_in_group() ? &open_group : NULL, call, comm);
  } else {
    if (kind != COPSE_NCCL_SEND_RECV) copse_nccl_tally_served(comm, kind, plan);
    if (copse_nccl_in_group()) {
      copse_status status = hold(&open_group, call, comm);
      if (status == COPSE_OK) return ncclSuccess; /* the group holds comm now */
      result = copse_nccl_result(status);
    } else {
      result = run_served(call, comm->copse);
    }
  }
  (void)copse_nccl_release(comm);
  return result;
}

/* ---- collectives, send and receive --------------------------------------------------------- */

/* The function, and the one that also takes a configuration. */
#define BOTH(name, function, op, root, ...)                                                      \
  ncclResult_t nccl##name(__VA_ARGS__, ncclComm_t comm, cudaStream_t stream) {                   \
    return answer_call(&(struct copse_nccl_call){function, send, recv, count, type, op, root,    \
                                                 comm, stream, NULL});                           \
  }                                                                                              \
  ncclResult_t nccl##name##Config(__VA_ARGS__, ncclComm_t comm, cudaStream_t stream,             \
                                  const ncclCollConfig_t *config) {                              \
    return answer_call(&(struct copse_nccl_call){function, send, recv, count, type, op, root,    \
                                                 comm, stream, config});                         \
  }
#define DATA const void *send, void *recv, size_t count, ncclDataType_t type

BOTH(AllReduce, COPSE_NCCL_ALL_REDUCE, op, -1, DATA, ncclRedOp_t op)
BOTH(AllGather, COPSE_NCCL_ALL_GATHER, 0, -1, DATA)
BOTH(ReduceScatter, COPSE_NCCL_REDUCE_SCATTER, op, -1, DATA, ncclRedOp_t op)
BOTH(Broadcast, COPSE_NCCL_BROADCAST, 0, root, DATA, int root)
BOTH(Reduce, COPSE_NCCL_REDUCE, op, root, DATA, ncclRedOp_t op, int root)
BOTH(AlltoAll, COPSE_NCCL_ALL_TO_ALL, 0, -1, DATA)
BOTH(Gather, COPSE_NCCL_GATHER, 0, root, DATA, int root)
BOTH(Scatter, COPSE_NCCL_SCATTER, 0, root, DATA, int root)

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return answer_call(&(struct copse_nccl_call){COPSE_NCCL_BCAST, buffer, buffer, count, type, 0,
                                               root, comm, stream, NULL});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return answer_call(&(struct copse_nccl_call){COPSE_NCCL_SEND, send, NULL, count, type, 0, peer,
                                               comm, stream, NULL});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return answer_call(&(struct copse_nccl_call){COPSE_NCCL_RECV, NULL, recv, count, type, 0, peer,
                                               comm, stream, NULL});
}

/* ---- groups ------------------------------------------------------------------------------- */

/* Makes communicators of NCCL's known: now, or where a group is open, at its end. */
static ncclResult_t group_made(ncclComm_t *where, bool blocking) {
  struct group *group = &open_group;
  struct copse_nccl_made made = {where, blocking};
  if (is_inside()) return ncclSuccess;
  if (group->depth == 0) return copse_nccl_comms_made(&made, 1) ? ncclSuccess : ncclSystemError;
  copse_status status;
  for (int try = 0;; try++) {
    status = COPSE_GROW(group->made, group->made_capacity, group->n_made + 1, NULL);
    if (!copse_nccl_tries_again(status, try)) break;
  }
  if (status != COPSE_OK) return ncclSystemError; /* it would be unknown here alone */
  group->made[group->n_made++] = made;
  return ncclSuccess;
}

static void free_group(struct group *group) {
  for (size_t i = 0; i < group->n_held; i++) (void)copse_nccl_release(group->held[i].comm);
  for (size_t i = 0; i < group->n_passed; i++) (void)copse_nccl_release(group->passed[i].comm);
  for (size_t i = 0; i < group->n_registered; i++) {
    (void)copse_nccl_release(group->registered[i].comm);
    free(group->registered[i].window);
  }
  free(group->held);
  free(group->passed);
  free(group->made);
  free(group->registered);
}

/* ---- symmetric windows --------------------------------------------------------------------- */

/* Adds a window; NULL where NCCL can't have such windows, at all ranks then. */
static void know_window(struct registered *it) {
  it->window->window = *it->where;
  if (!*it->where) return;
  copse_nccl_window_add(it->comm, it->window);
  it->window = NULL;
}

static copse_status prepare_window(struct registered *it) {
  struct group *group = &open_group;
  for (int try = 0;; try++) {
    copse_status status =
        it->window ? COPSE_OK : copse_calloc(1, sizeof *it->window, &it->window, NULL);
    if (status == COPSE_OK && group->depth > 0)
      status =
          COPSE_GROW(group->registered, group->registered_capacity, group->n_registered + 1, NULL);
    if (!copse_nccl_tries_again(status, try)) return status;
  }
}

/* Allocates the window's record before it registers the window: a rank without the record would
 * serve a call that the others pass. */
ncclResult_t ncclCommWindowRegister(ncclComm_t nccl, void *buffer, size_t bytes,
                                    ncclWindow_t *window, int flags) {
  const bool symmetric = (flags & COPSE_NCCL_WINDOW_SYMMETRIC) != 0 && !is_inside();
  struct registered it = {symmetric ? copse_nccl_acquire(nccl) : NULL, NULL, window};
  ncclResult_t result = ncclSystemError;
  if (!it.comm || prepare_window(&it) == COPSE_OK)
    result = copse_nccl_real_CommWindowRegister(nccl, buffer, bytes, window, flags);
  if (it.comm && result == ncclSuccess) {
    *it.window = (struct copse_nccl_window){NULL, NULL, (uintptr_t)buffer, bytes};
    if (open_group.depth > 0) {
      open_group.registered[open_group.n_registered++] = it; /* the group holds comm now */
      return result;
    }
    know_window(&it);
  }
  (void)copse_nccl_release(it.comm);
  free(it.window);
  return result;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t nccl, ncclWindow_t window) {
  struct copse_nccl_comm *comm = is_inside() ? NULL : copse_nccl_acquire(nccl);
  if (comm && window) copse_nccl_window_remove(comm, window);
  (void)copse_nccl_release(comm);
  return copse_nccl_real_CommWindowDeregister(nccl, window);
}

/* ---- sends and receives ------------------------------------------------------------------ */

static bool is_open_pair(const struct held *it) {
  return it->comm && kind_of(&it->call) == COPSE_NCCL_SEND_RECV;
}

/* Finds all-to-alls among calls[0 .. n-1], a communicator's. Returns why they are not all served,
 * or COPSE_NCCL_SERVE. */
static enum copse_nccl_reason find_all_to_alls(const struct copse_nccl_comm *comm,
                                               const struct copse_nccl_call *calls, size_t n,
                                               struct copse_nccl_call *found,
                                               const copse_plan **plans, size_t *n_found) {
  if (copse_nccl_find_exchanges(calls, n, comm->n_ranks, found, n_found, NULL) != COPSE_OK ||
      *n_found == 0)
    return COPSE_NCCL_NO_EXCHANGE;
  for (size_t i = 0; i < *n_found; i++)
    if (copse_comm_find_plan(comm->copse, COPSE_ALLTOALL, -1, found[i].count,
                             (copse_type)found[i].type, &plans[i]) != COPSE_OK ||
        !plans[i])
      return COPSE_NCCL_NO_PLAN;
  return COPSE_NCCL_SERVE;
}

static ncclResult_t pass_all(struct group *group, struct copse_nccl_comm *comm,
                             const struct copse_nccl_call *calls, size_t n,
                             enum copse_nccl_reason reason) {
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < n; i++) {
    copse_nccl_tally_passed(comm, COPSE_NCCL_SEND_RECV, reason, calls[i].count, calls[i].type);
    ncclResult_t sent = pass(group, &calls[i], comm);
    if (result == ncclSuccess) result = sent;
  }
  return result;
}

/* Settles the sends and receives of one communicator, that of the group's i-th call: all-to-alls
 * that are held in their place, or NCCL's. */
static ncclResult_t settle(struct group *group, size_t i, struct copse_arena *scratch) {
  struct copse_nccl_comm *comm = group->held[i].comm;
  size_t most = group->n_held - i, n = 0, n_found = 0;
  struct copse_nccl_call *calls = copse_arena_alloc(scratch, most, sizeof *calls);
  struct copse_nccl_call *found = copse_arena_alloc(scratch, most, sizeof *found);
  const copse_plan **plans = copse_arena_alloc(scratch, most, sizeof *plans);
  if (!calls || !found || !plans) return ncclSystemError;
  for (size_t k = i; k < group->n_held; k++) {
    struct held *it = &group->held[k];
    if (it->comm != comm || !is_open_pair(it)) continue;
    calls[n++] = it->call;
    if (k != i) (void)copse_nccl_release(it->comm);
    it->comm = NULL;
  }
  ncclResult_t result = ncclSuccess;
  enum copse_nccl_reason reason = find_all_to_alls(comm, calls, n, found, plans, &n_found);
  if (reason != COPSE_NCCL_SERVE) result = pass_all(group, comm, calls, n, reason);
  for (size_t k = 0; k < n_found && reason == COPSE_NCCL_SERVE && result == ncclSuccess; k++) {
    copse_nccl_tally_served(comm, COPSE_ALLTOALL, plans[k]);
    if (hold(group, &found[k], comm) == COPSE_OK)
      copse_nccl_use(comm);
    else
      result = ncclSystemError;
  }
  (void)copse_nccl_release(comm);
  return result;
}

static ncclResult_t settle_pairs(struct group *group) {
  ncclResult_t result = ncclSuccess;
  size_t n = group->n_held; /* settle() appends all-to-alls, which need no settling */
  for (size_t i = 0; i < n && result == ncclSuccess; i++) {
    struct copse_arena scratch = {0};
    if (is_open_pair(&group->held[i])) result = settle(group, i, &scratch);
    copse_arena_free(&scratch);
  }
  return result;
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Serves first the collectives, then the all-to-alls that were found: the same order on all
 * ranks. */
static ncclResult_t serve(const struct group *group) {
  ncclResult_t result = ncclSuccess;
  if (group->n_held == 0) return result;
  copse_nccl_enter();
  result = copse_nccl_failed(copse_group_start());
  for (size_t i = 0; i < group->n_held; i++) {
    const struct held *it = &group->held[i];
    if (!it->comm) continue;
    ncclResult_t called = run_served(&it->call, it->comm->copse);
    if (result == ncclSuccess) result = called;
  }
  ncclResult_t ended = copse_nccl_failed(copse_group_end());
  copse_nccl_leave();
  return result == ncclSuccess ? ended : result;
}

static ncclResult_t end_group(struct group *group) {
  ncclResult_t settled = settle_pairs(group);
  ncclResult_t result = copse_nccl_real_GroupEnd(); /* in any case: ncclGroupStart was called */
  if (result == ncclSuccess) result = settled;
  if (result != ncclSuccess && result != ncclInProgress) return result;
  for (size_t i = 0; i < group->n_registered; i++) know_window(&group->registered[i]);
  for (size_t i = 0; i < group->n_passed; i++) {
    const ncclResult_t led = lead(group->passed[i].comm, group->passed[i].stream);
    if (led != ncclSuccess) return led;
  }
  ncclResult_t served = serve(group);
  if (served != ncclSuccess) return served;
  /* one non-blocking communicator makes the whole group so */
  for (size_t i = 0; i < group->n_made; i++) group->made[i].blocking &= result == ncclSuccess;
  if (group->n_made > 0 && !copse_nccl_comms_made(group->made, group->n_made))
    return ncclSystemError;
  return result;
}

ncclResult_t ncclGroupStart(void) {
  ncclResult_t result = copse_nccl_real_GroupStart();
  if (result == ncclSuccess && !is_inside()) open_group.depth++;
  return result;
}

ncclResult_t ncclGroupEnd(void) {
  if (is_inside() || open_group.depth == 0) return copse_nccl_real_GroupEnd();
  if (--open_group.depth > 0) return copse_nccl_real_GroupEnd();
  struct group group = open_group;
  open_group = (struct group){0};
  ncclResult_t result = end_group(&group);
  free_group(&group);
  return result;
}

/* Ends the group without running anything; NCCL estimates only its own part. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  if (!is_inside() && open_group.depth > 0 && --open_group.depth == 0) {
    struct group group = open_group;
    open_group = (struct group){0};
    free_group(&group);
  }
  return copse_nccl_real_GroupSimulateEnd(info);
}

/* ---- beginning --------------------------------------------------------------------------- */

/* Whether a communicator blocks. NCCL's default is to block; a split without a config does as its
 * parent. NCCL_COMM_BLOCKING, 0 or 1, overrules all of that. */
static bool blocks(bool by_call) {
  const char *text = getenv("NCCL_COMM_BLOCKING");
  if (!text || !*text) return by_call;
  char *end;
  long value = strtol(text, &end, 0);
  return *end || value < 0 || value > 1 ? by_call : value == 1;
}

static bool wants_blocking(const ncclConfig_t *config) {
  return blocks(!config || config->blocking != 0);
}

/* Makes a communicator known where NCCL has made it; result: the real function's. */
static ncclResult_t made(ncclResult_t result, ncclComm_t *where, bool blocking) {
  if (result != ncclSuccess && result != ncclInProgress) return result;
  const ncclResult_t known = group_made(where, blocking && result == ncclSuccess);
  return known == ncclSuccess ? result : known;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank) {
  return made(copse_nccl_real_CommInitRank(comm, n_ranks, id, rank), comm, blocks(true));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  return made(copse_nccl_real_CommInitRankConfig(comm, n_ranks, id, rank, config), comm,
              wants_blocking(config));
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n_ranks, int rank, int n_ids,
                                      ncclUniqueId *ids, ncclConfig_t *config) {
  return made(copse_nccl_real_CommInitRankScalable(comm, n_ranks, rank, n_ids, ids, config), comm,
              wants_blocking(config));
}

/* Opens a group, so that all ranks of this thread are made known at once. */
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n_devices, const int *devices) {
  ncclResult_t result = copse_nccl_real_CommInitAll(comms, n_devices, devices);
  if (result != ncclSuccess) return result;
  result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  ncclResult_t known = ncclSuccess;
  for (int i = 0; i < n_devices && known == ncclSuccess; i++)
    known = group_made(&comms[i], blocks(true));
  result = ncclGroupEnd();
  return known == ncclSuccess ? result : known;
}

static bool child_blocks(ncclComm_t parent, const ncclConfig_t *config) {
  if (config) return wants_blocking(config);
  struct copse_nccl_comm *comm = copse_nccl_acquire(parent);
  bool parent_blocks = !comm || comm->blocking;
  (void)copse_nccl_release(comm);
  return blocks(parent_blocks);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child,
                           ncclConfig_t *config) {
  return made(copse_nccl_real_CommSplit(comm, color, key, child, config), child,
              child_blocks(comm, config));
}

static void abort_copse(ncclComm_t nccl) {
  struct copse_nccl_comm *comm = copse_nccl_acquire(nccl);
  if (comm && comm->copse) (void)copse_comm_abort(comm->copse);
  (void)copse_nccl_release(comm);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *without, int n_without, ncclComm_t *child,
                            ncclConfig_t *config, int flags) {
  if (flags & COPSE_NCCL_SHRINK_ABORT) abort_copse(comm);
  return made(copse_nccl_real_CommShrink(comm, without, n_without, child, config, flags), child,
              child_blocks(comm, config));
}

/* ---- end ---------------------------------------------------------------------------------- */

/* Ends copse's communicator first: NCCL's is its bootstrap. */
static ncclResult_t end(ncclComm_t nccl, ncclResult_t (*real)(ncclComm_t)) {
  ncclResult_t ours = copse_nccl_failed(copse_nccl_release(copse_nccl_forget(nccl)));
  ncclResult_t result = real(nccl);
  return result == ncclSuccess ? ours : result;
}

/* Ends copse's communicator too: no collectives may follow. */
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return end(comm, copse_nccl_real_CommFinalize); }

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, copse_nccl_real_CommDestroy); }

/* Asks both to end before either is waited for: copse's kernels may wait behind NCCL's on a
 * stream. Once aborted, copse's communicator needs NCCL's no more. */
ncclResult_t ncclCommAbort(ncclComm_t nccl) {
  struct copse_nccl_comm *comm = copse_nccl_forget(nccl);
  if (comm && comm->copse) (void)copse_comm_abort(comm->copse);
  ncclResult_t result = copse_nccl_real_CommAbort(nccl);
  copse_nccl_release_aside(comm);
  return result;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  abort_copse(comm);
  return copse_nccl_real_CommRevoke(comm, flags);
}

/* ---- errors -------------------------------------------------------------------------------- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t nccl, ncclResult_t *async) {
  ncclResult_t result = copse_nccl_real_CommGetAsyncError(nccl, async);
  if (result != ncclSuccess || *async != ncclSuccess || is_inside()) return result;
  struct copse_nccl_comm *comm = copse_nccl_acquire(nccl);
  copse_status broken = COPSE_OK;
  if (comm && comm->copse && copse_comm_get_async_error(comm->copse, &broken) == COPSE_OK)
    *async = copse_nccl_failed(broken);
  (void)copse_nccl_release(comm);
  return result;
}

const char *ncclGetLastError(ncclComm_t comm) {
  return copse_nccl_last_error(copse_nccl_real_GetLastError(comm));
}
