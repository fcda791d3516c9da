#include "support/comm_support.h"

#include <pthread.h>
#include <string.h>

#include "runtime/comm/executor.h"
#include "runtime/plan/plan.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

int comm_job_root(copse_collective collective, int n) {
  return exec_case_root(collective, (uint32_t)n);
}

void comm_job_add(struct comm_job *job, struct copse_plan *plan) {
  ck_assert_int_lt(job->n_plans, COMM_MAX_PLANS);
  job->plans[job->n_plans++] = plan;
  COMM_OK(copse_comm_add_plan(job->comms[0], plan));
}

void comm_job_new(struct comm_job *job, int n, bool with_plans) {
  memset(job, 0, sizeof *job);
  job->n = n;
  COMM_OK(copse_comm_init_all(job->comms, n, NULL));
  for (int c = 0; with_plans && c < COPSE_N_COLLECTIVES; c++) {
    copse_collective collective = (copse_collective)c;
    comm_job_add(job, pb_tree_plan(collective, (uint32_t)n, comm_job_root(collective, n),
                                   PB_OPTIONS_DEFAULT));
  }
}

void comm_job_free(struct comm_job *job) {
  for (int r = 0; r < job->n; r++) COMM_OK(copse_comm_destroy(job->comms[r]));
  for (int i = 0; i < job->n_plans; i++) pb_free(job->plans[i]);
}

copse_status comm_call(copse_comm *comm, const struct copse_data *d, const void *send, void *recv) {
  switch (d->collective) {
    case COPSE_ALLGATHER: return copse_all_gather(send, recv, d->count, d->type, comm, NULL);
    case COPSE_REDUCE_SCATTER:
      return copse_reduce_scatter(send, recv, d->count, d->type, d->redop, comm, NULL);
    case COPSE_ALLREDUCE:
      return copse_all_reduce(send, recv, d->count, d->type, d->redop, comm, NULL);
    case COPSE_BROADCAST:
      return copse_broadcast(send, recv, d->count, d->type, d->root, comm, NULL);
    case COPSE_REDUCE:
      return copse_reduce(send, recv, d->count, d->type, d->redop, d->root, comm, NULL);
    default:
      if (d->pair_counts)
        return copse_all_to_all_v(send, recv, d->count, d->pair_counts, d->type, comm, NULL);
      return copse_all_to_all(send, recv, d->count, d->type, comm, NULL);
  }
}

static void new_buffers(const struct copse_data *data, bool in_place,
                        struct copse_buffers *buffers) {
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t bytes = data->n_ranks * data->count * copse_type_bytes(data->type);
  ASSERT_OK(copse_buffers_new(data->n_ranks, bytes, bytes, buffers, &err), &err);
  copse_buffers_fill(buffers, data, in_place);
}

/* What NCCL lets be NULL is. */
static const void *input_of(const struct copse_buffers *b, int r) {
  bool ignored = b->data.collective == COPSE_BROADCAST && r != b->data.root && !b->in_place;
  return ignored ? NULL : b->inputs[r];
}

static uint64_t count_and_free(struct copse_buffers *buffers) {
  uint64_t wrong = copse_buffers_count_wrong(buffers);
  copse_buffers_free(buffers);
  return wrong;
}

uint64_t comm_run_group(struct comm_job *job, const struct copse_data *data, bool in_place) {
  struct copse_buffers buffers;
  new_buffers(data, in_place, &buffers);
  COMM_OK(copse_group_start());
  for (int r = 0; r < job->n; r++)
    COMM_OK(comm_call(job->comms[r], data, input_of(&buffers, r), buffers.outputs[r]));
  COMM_OK(copse_group_end());
  return count_and_free(&buffers);
}

struct caller {
  pthread_t thread;
  copse_comm *comm;
  const struct copse_data *data;
  const void *send;
  void *recv;
  copse_status status;
  char text[512];
};

static void *call_in_thread(void *context) {
  struct caller *caller = context;
  caller->status = comm_call(caller->comm, caller->data, caller->send, caller->recv);
  strcpy(caller->text, copse_last_error());
  return NULL;
}

uint64_t comm_run_threads(struct comm_job *job, const struct copse_data *data, bool in_place) {
  struct copse_buffers buffers;
  struct caller callers[COMM_MAX_RANKS];
  new_buffers(data, in_place, &buffers);
  for (int r = 0; r < job->n; r++) {
    callers[r] = (struct caller){.comm = job->comms[r],
                                 .data = data,
                                 .send = input_of(&buffers, r),
                                 .recv = buffers.outputs[r]};
    ck_assert_int_eq(pthread_create(&callers[r].thread, NULL, call_in_thread, &callers[r]), 0);
  }
  for (int r = 0; r < job->n; r++) pthread_join(callers[r].thread, NULL);
  for (int r = 0; r < job->n; r++)
    ck_assert_msg(callers[r].status == COPSE_OK, "rank %d: %s", r, callers[r].text);
  return count_and_free(&buffers);
}

void comm_check_all(struct comm_job *job, copse_collective collective,
                    uint64_t (*run)(struct comm_job *job, const struct copse_data *data,
                                    bool in_place)) {
  static const uint64_t counts[] = {1, 17, 1000};
  int n_redops = copse_collective_reduces(collective) ? COPSE_N_REDOPS : 1;
  int n_places = copse_buffers_has_in_place(collective) ? 2 : 1;
  struct copse_data data = {.collective = collective,
                            .n_ranks = (uint32_t)job->n,
                            .root = comm_job_root(collective, job->n)};
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < n_redops; redop++)
      for (int c = 0; c < 3; c++)
        for (int in_place = 0; in_place < n_places; in_place++) {
          data.type = (copse_type)type;
          data.redop = (copse_redop)redop;
          data.count = counts[c];
          data.seed++;
          uint64_t wrong = run(job, &data, in_place);
          ck_assert_msg(wrong == 0, "%s %s %s, count %llu, %s: %llu wrong",
                        copse_collective_name(collective), copse_type_name(data.type),
                        copse_redop_name(data.redop), (unsigned long long)data.count,
                        in_place ? "in place" : "out of place", (unsigned long long)wrong);
        }
}
