/*
 * The public API of Mixture-of-Experts layers: checks of arguments, and the steps and collectives
 * that a call consists of. runtime/moe/job.h draws their order, runtime/moe/steps.h is the steps.
 */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/comm/local_ranks.h"
#include "base/err.h"
#include "base/parallel.h"
#include "base/types.h"
#include "runtime/gpu/gpu.h"
#include "runtime/moe/job.h"

struct copse_moe {
  copse_comm *comm; /* borrowed */
  const struct copse_moe_ops *ops;
  int device;
  void *memory; /* of the device; the job's arrays lie in it */
  struct copse_moe_config config;
  struct copse_moe_job job; /* the members of a call are those of the last dispatch */
  /* How the host reads the counts by which it sizes messages; NULL: it need not. */
  const struct copse_moe_counts_ops *counts_ops;
  struct copse_moe_counts counts; /* of the last dispatch */
  copse_stream stream;
  bool dispatched;
};

/* Ends every public function: logs an error and keeps its text for copse_last_error. */
static copse_status done(const struct copse_comm *comm, struct copse_err *err) {
  int rank = -1;
  if (comm) (void)copse_comm_user_rank(comm, &rank);
  copse_debug(COPSE_DEBUG_WARN, rank, "%s: %s", copse_status_string(err->status), err->text);
  return copse_publish_error(err);
}

static copse_status missing(const struct copse_comm *comm, const char *what) {
  struct copse_err err = COPSE_ERR_INIT;
  (void)copse_fail(&err, COPSE_INVALID, "%s is NULL", what);
  return done(comm, &err);
}

/* ---- making ------------------------------------------------------------------------------ */

static copse_status need_plan(const copse_comm *comm, copse_collective collective, size_t count,
                              copse_type type, const char *name, struct copse_err *err) {
  const copse_plan *plan;
  copse_status status = copse_comm_find_plan(comm, collective, -1, count, type, &plan);
  if (status != COPSE_OK) return copse_fail(err, status, "%s", copse_last_error());
  if (plan) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "a layer needs %s plan for %zu elements of type %s to or from a rank: add one "
                    "to the communicator first",
                    name, count, copse_type_name(type));
}

/* Checks that the communicator has plans for the layer's collectives. */
static copse_status need_plans(const struct copse_moe *moe, struct copse_err *err) {
  const struct copse_moe_job *job = &moe->job;
  const struct copse_moe_row back = copse_moe_combined_row(&moe->config);
  if (job->n_ranks == 1) return COPSE_OK;
  COPSE_DO(
      need_plan(moe->comm, COPSE_ALLGATHER, job->n_experts, COPSE_UINT32, "an allgather", err));
  if (job->block_rows == 0) return COPSE_OK;
  COPSE_DO(need_plan(moe->comm, COPSE_ALLTOALL, job->block_rows * job->dispatched_elements,
                     moe->config.row.type, "an alltoall", err));
  return need_plan(moe->comm, COPSE_ALLTOALL, job->block_rows * job->combined_elements, back.type,
                   "an alltoall", err);
}

/* Whether the host sizes messages between hosts (backend.h). */
static bool sizes_messages(struct copse_local_ranks *local) {
  COPSE_HOLD(&local->backend_lock);
  return local->ops->sizes_messages && local->ops->sizes_messages(local->backend);
}

/* Makes room for the host's copy of counts, where exact messages are wanted and the host sizes
 * any. */
static copse_status furnish_counts(struct copse_moe *moe, struct copse_err *err) {
  const struct copse_moe_counts_ops *counts_ops = moe->ops->counts;
  if (!moe->config.exact_messages || !counts_ops || moe->job.block_rows == 0 ||
      !sizes_messages(moe->comm->local))
    return COPSE_OK;
  copse_status status = counts_ops->take(moe->device, moe->job.n_ranks, &moe->counts, err);
  if (status == COPSE_OK) moe->counts_ops = counts_ops;
  return status;
}

copse_status copse_moe_create(copse_comm *comm, const copse_moe_config *config, copse_moe **out) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_moe *moe = NULL;
  int n_ranks = 0, rank = 0;
  copse_status status;
  if (out) *out = NULL;
  if (!comm) return missing(NULL, "comm");
  if (!config || !out) return missing(comm, config ? "out" : "config");
  COPSE_TRY(copse_calloc(1, sizeof *moe, &moe, &err));
  moe->comm = comm;
  (void)copse_comm_count(comm, &n_ranks); /* can't fail on a communicator */
  (void)copse_comm_user_rank(comm, &rank);
  (void)copse_comm_device(comm, &moe->device);
  /* there are communicators on GPUs only in builds with CUDA */
  moe->ops = moe->device == COPSE_DEVICE_CPU ? &copse_moe_cpu : copse_gpu()->moe;
  moe->config = *config;
  COPSE_TRY(copse_moe_shape(config, (uint32_t)n_ranks, (uint32_t)rank, &moe->job, &err));
  COPSE_TRY(need_plans(moe, &err));
  COPSE_TRY(furnish_counts(moe, &err));
  COPSE_TRY(copse_moe_furnish(&moe->job, config, moe->ops, moe->device, &moe->memory, &err));
  *out = moe;
  return COPSE_OK;
out:
  if (moe && moe->counts_ops) moe->counts_ops->give_back(moe->device, &moe->counts);
  free(moe);
  return done(comm, &err);
}

void copse_moe_free(copse_moe *moe) {
  if (!moe) return;
  moe->ops->give_back(moe->device, moe->memory); /* waits for what is enqueued */
  if (moe->counts_ops) moe->counts_ops->give_back(moe->device, &moe->counts);
  free(moe);
}

/* ---- queries ------------------------------------------------------------------------------ */

copse_status copse_moe_get_view(const copse_moe *moe, copse_moe_view *view) {
  if (!moe || !view) return missing(moe ? moe->comm : NULL, moe ? "view" : "moe");
  const struct copse_moe_job *job = &moe->job;
  /* all counts fit int32: copse_moe_shape */
  *view = (copse_moe_view){(const int32_t *)job->expert_counts,
                           (const int32_t *)job->expert_offsets,
                           (const int32_t *)job->taken,
                           (const int32_t *)job->chosen,
                           (int)job->first_expert,
                           (int)job->n_local};
  return COPSE_OK;
}

int64_t copse_moe_max_rows(const copse_moe *moe) {
  return (int64_t)copse_moe_rows_at_most(&moe->job);
}

int64_t copse_moe_tutel_capacity(int64_t n_tokens, int n_experts, int top_k, double factor,
                                 int alignment) {
  if (n_tokens < 0 || n_experts < 1 || top_k < 1 || alignment < 1 || !isfinite(factor)) return 0;
  double each = ceil((double)n_tokens / n_experts), capacity;
  if (factor == 0)
    capacity = (double)n_tokens * top_k;
  else
    capacity = top_k * floor(fabs(factor) * each);
  capacity = ceil(capacity / alignment) * alignment;
  return capacity < INT32_MAX ? (int64_t)capacity : INT32_MAX;
}

/* ---- calling ----------------------------------------------------------------------------- */

static bool is_float(copse_type type) {
  return type == COPSE_HALF || type == COPSE_FLOAT || type == COPSE_DOUBLE ||
         type == COPSE_BFLOAT16 || type == COPSE_FLOAT8_E4M3 || type == COPSE_FLOAT8_E5M2;
}

static copse_status need_memory(const void *memory, bool used, size_t alignment, const char *name,
                                struct copse_err *err) {
  if (used && !memory) return copse_fail(err, COPSE_INVALID, "%s is NULL", name);
  if ((uintptr_t)memory % alignment != 0)
    return copse_fail(err, COPSE_INVALID, "%s is not aligned to its elements of %zu bytes", name,
                      alignment);
  return COPSE_OK;
}

/* Returns the bytes of a weight, which is of the accumulator's type. */
static size_t weight_bytes(copse_type type) {
  return type == COPSE_DOUBLE ? sizeof(double) : sizeof(float);
}

static copse_status check_stream(const struct copse_moe *moe, copse_stream stream,
                                 struct copse_err *err) {
  if (!moe->counts_ops || !moe->counts_ops->is_captured(moe->device, stream)) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "a layer over several hosts with exact_messages waits for counts, which a "
                    "graph can't: what is captured needs a layer without");
}

static copse_status begin_dispatch(struct copse_moe *moe, const copse_moe_dispatch_args *args,
                                   struct copse_err *err) {
  const struct copse_moe_row *row = &moe->config.row;
  struct copse_moe_job *job = &moe->job;
  const bool some = args->n_tokens > 0;
  const size_t element = copse_type_bytes(row->type);
  if (args->n_tokens < 0 || args->n_tokens > moe->config.max_tokens)
    return copse_fail(err, COPSE_INVALID,
                      "n_tokens is %lld, must be 0 to %lld, the max_tokens "
                      "that the layer was made for",
                      (long long)args->n_tokens, (long long)moe->config.max_tokens);
  if (args->scales && !is_float(row->type))
    return copse_fail(err, COPSE_INVALID, "scales need rows of a float type, not %s",
                      copse_type_name(row->type));
  COPSE_DO(check_stream(moe, args->stream, err));
  COPSE_DO(need_memory(args->tokens, some, element, "tokens", err));
  COPSE_DO(need_memory(args->expert_ids, some, sizeof(int32_t), "expert_ids", err));
  COPSE_DO(need_memory(args->scales, false, weight_bytes(row->type), "scales", err));
  COPSE_DO(need_memory(args->order, false, sizeof(int32_t), "order", err));
  COPSE_DO(need_memory(args->rows, copse_moe_max_rows(moe) > 0, element, "rows", err));
  moe->dispatched = false; /* until this is enqueued, combining would mix rows of two dispatches */
  job->n_tokens = (uint32_t)args->n_tokens;
  job->expert_ids = args->expert_ids;
  job->order = args->order;
  job->weights = args->scales;
  job->tokens_in = args->tokens;
  job->rows = args->rows;
  moe->stream = args->stream;
  copse_moe_set_row(job, row, args->tokens, args->rows);
  return COPSE_OK;
}

static copse_status begin_combine(struct copse_moe *moe, const copse_moe_combine_args *args,
                                  struct copse_err *err) {
  const struct copse_moe_row row = copse_moe_combined_row(&moe->config);
  struct copse_moe_job *job = &moe->job;
  const size_t element = copse_type_bytes(row.type);
  if (!moe->dispatched)
    return copse_fail(err, COPSE_INVALID, "copse_moe_combine needs a copse_moe_dispatch before it");
  if (!is_float(row.type))
    return copse_fail(err, COPSE_INVALID, "combining needs rows of a float type, not %s",
                      copse_type_name(row.type));
  COPSE_DO(check_stream(moe, args->stream, err));
  COPSE_DO(need_memory(args->rows, copse_moe_max_rows(moe) > 0, element, "rows", err));
  COPSE_DO(need_memory(args->weights, false, weight_bytes(row.type), "weights", err));
  COPSE_DO(need_memory(args->tokens, job->n_tokens > 0, element, "tokens", err));
  job->weights = args->weights;
  job->tokens_out = args->tokens;
  job->rows = (unsigned char *)args->rows; /* COLLECT and REDUCE only read them */
  moe->stream = args->stream;
  copse_moe_set_row(job, &row, args->tokens, args->rows);
  return COPSE_OK;
}

/* ---- steps and collectives of n ranks --------------------------------------------------------
 * Between two collectives every rank runs its steps; a collective of several ranks from one
 * thread is a group. */

static copse_status run_step(copse_moe *const *moes, int n, enum copse_moe_step step,
                             struct copse_err *err) {
  for (int i = 0; i < n; i++)
    COPSE_DO(moes[i]->ops->run(moes[i]->device, step, &moes[i]->job, moes[i]->stream, err));
  return COPSE_OK;
}

/* Gathers every rank's row of `taken` to every rank. */
static copse_status gather_counts(struct copse_moe *moe, struct copse_err *err) {
  const struct copse_moe_job *job = &moe->job;
  const struct copse_call call = {.collective = COPSE_ALLGATHER,
                                  .root = -1,
                                  .count = job->n_experts,
                                  .type = COPSE_UINT32,
                                  .send = job->taken + (size_t)job->rank * job->n_experts,
                                  .recv = job->taken,
                                  .stream = moe->stream};
  return copse_call_group_add(moe->comm, &call, err);
}

/* Moves rows to the experts' ranks (near to far), or back. */
static copse_status move_rows(struct copse_moe *moe, bool back, struct copse_err *err) {
  const struct copse_moe_job *job = &moe->job;
  const struct copse_moe_row combined = copse_moe_combined_row(&moe->config);
  const struct copse_call call = {
      .collective = COPSE_ALLTOALL,
      .root = -1,
      .count = job->block_rows * (back ? job->combined_elements : job->dispatched_elements),
      .type = back ? combined.type : moe->config.row.type,
      .send = back ? job->far_rows : job->near_rows,
      .recv = back ? job->near_rows : job->far_rows,
      .pair_counts = back ? job->pairs_back : job->pairs,
      .stream = moe->stream,
      .host_counts = back ? moe->counts.pairs_back : moe->counts.pairs};
  return copse_call_group_add(moe->comm, &call, err);
}

static copse_status send_rows(struct copse_moe *moe, struct copse_err *err) {
  return move_rows(moe, false, err);
}

static copse_status return_rows(struct copse_moe *moe, struct copse_err *err) {
  return move_rows(moe, true, err);
}

/* Enqueues the copy of the counts to the host, if the host needs them. */
static copse_status fetch_counts(struct copse_moe *moe, struct copse_err *err) {
  if (!moe->counts_ops) return COPSE_OK;
  return moe->counts_ops->fetch(moe->device, &moe->job, &moe->counts, moe->stream, err);
}

static copse_status wait_for_counts(struct copse_moe *moe, struct copse_err *err) {
  if (!moe->counts_ops) return COPSE_OK;
  return moe->counts_ops->wait(moe->device, &moe->counts, err);
}

typedef copse_status (*rank_action)(struct copse_moe *moe, struct copse_err *err);

static copse_status run_action(copse_moe *const *moes, int n, rank_action action,
                               struct copse_err *err) {
  for (int i = 0; i < n; i++) COPSE_DO(action(moes[i], err));
  return COPSE_OK;
}

static copse_status run_collective(copse_moe *const *moes, int n, rank_action collective,
                                   struct copse_err *err) {
  copse_status ended = COPSE_OK;
  if (moes[0]->job.n_ranks == 1) return COPSE_OK;
  if (n > 1) copse_call_group_open();
  copse_status status = run_action(moes, n, collective, err);
  if (n > 1) ended = copse_call_group_close(err);
  return status != COPSE_OK ? status : ended;
}

/* ---- a call of n ranks ---------------------------------------------------------------------- */

static bool same_configuration(const struct copse_moe *a, const struct copse_moe *b) {
  const struct copse_moe_row row_a = copse_moe_combined_row(&a->config);
  const struct copse_moe_row row_b = copse_moe_combined_row(&b->config);
  return a->job.n_ranks == b->job.n_ranks && a->job.n_experts == b->job.n_experts &&
         a->job.top_k == b->job.top_k && a->job.capacity == b->job.capacity &&
         a->job.padded == b->job.padded && a->config.max_tokens == b->config.max_tokens &&
         !a->config.exact_messages == !b->config.exact_messages &&
         a->config.row.type == b->config.row.type &&
         a->config.row.elements == b->config.row.elements && row_a.type == row_b.type &&
         row_a.elements == row_b.elements;
}

static copse_status check_ranks(copse_moe *const *moes, const void *args, int n,
                                struct copse_err *err) {
  if (n < 1) return copse_fail(err, COPSE_INVALID, "n must be at least 1");
  if (!moes || !args) return copse_fail(err, COPSE_INVALID, "%s is NULL", moes ? "args" : "moes");
  for (int i = 0; i < n; i++) {
    if (!moes[i]) return copse_fail(err, COPSE_INVALID, "layer %d of %d is NULL", i, n);
    if (!same_configuration(moes[0], moes[i]))
      return copse_fail(err, COPSE_INVALID, "layers 0 and %d differ in their configuration", i);
    for (int k = 0; k < i; k++)
      if (moes[k]->job.rank == moes[i]->job.rank)
        return copse_fail(err, COPSE_INVALID, "layers %d and %d are both of rank %u", k, i,
                          moes[i]->job.rank);
  }
  if (copse_call_group_is_open() && moes[0]->job.n_ranks > 1)
    return copse_fail(err, COPSE_INVALID,
                      "a layer can't run between copse_group_start and copse_group_end: "
                      "copse_moe_dispatch_all and copse_moe_combine_all take several ranks");
  return COPSE_OK;
}

static copse_status dispatch(copse_moe *const *moes, const copse_moe_dispatch_args *args, int n,
                             struct copse_err *err) {
  COPSE_DO(check_ranks(moes, args, n, err));
  for (int i = 0; i < n; i++) COPSE_DO(begin_dispatch(moes[i], &args[i], err));
  COPSE_DO(run_step(moes, n, COPSE_MOE_LOCATE, err));
  COPSE_DO(run_collective(moes, n, gather_counts, err));
  COPSE_DO(run_step(moes, n, COPSE_MOE_PLAN, err));
  COPSE_DO(run_action(moes, n, fetch_counts, err));
  COPSE_DO(run_step(moes, n, COPSE_MOE_PACK, err));
  COPSE_DO(run_action(moes, n, wait_for_counts, err));
  if (moes[0]->job.block_rows > 0) COPSE_DO(run_collective(moes, n, send_rows, err));
  COPSE_DO(run_step(moes, n, COPSE_MOE_UNPACK, err));
  for (int i = 0; i < n; i++) moes[i]->dispatched = true;
  return COPSE_OK;
}

static copse_status combine(copse_moe *const *moes, const copse_moe_combine_args *args, int n,
                            struct copse_err *err) {
  COPSE_DO(check_ranks(moes, args, n, err));
  for (int i = 0; i < n; i++) COPSE_DO(begin_combine(moes[i], &args[i], err));
  COPSE_DO(run_step(moes, n, COPSE_MOE_COLLECT, err));
  if (moes[0]->job.block_rows > 0) COPSE_DO(run_collective(moes, n, return_rows, err));
  return run_step(moes, n, COPSE_MOE_REDUCE, err);
}

/* Returns the communicator whose rank an error's log line names. */
static const struct copse_comm *any_comm(copse_moe *const *moes, int n) {
  return moes && n > 0 && moes[0] ? moes[0]->comm : NULL;
}

copse_status copse_moe_dispatch_all(copse_moe *const *moes, const copse_moe_dispatch_args *args,
                                    int n) {
  struct copse_err err = COPSE_ERR_INIT;
  if (dispatch(moes, args, n, &err) == COPSE_OK) return COPSE_OK;
  return done(any_comm(moes, n), &err);
}

copse_status copse_moe_combine_all(copse_moe *const *moes, const copse_moe_combine_args *args,
                                   int n) {
  struct copse_err err = COPSE_ERR_INIT;
  if (combine(moes, args, n, &err) == COPSE_OK) return COPSE_OK;
  return done(any_comm(moes, n), &err);
}

copse_status copse_moe_dispatch(copse_moe *moe, const copse_moe_dispatch_args *args) {
  return copse_moe_dispatch_all(&moe, args, 1);
}

copse_status copse_moe_combine(copse_moe *moe, const copse_moe_combine_args *args) {
  return copse_moe_combine_all(&moe, args, 1);
}
