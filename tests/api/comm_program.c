/*
 * A program as a user writes it: the public headers and libcopse.so, nothing else. From a
 * topology file to an allreduce in four threads, one per rank. tests/api/test_comm_program.c
 * builds and runs it.
 */
#include <copse/copse.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define N_RANKS 4
#define COUNT 100000

static copse_comm *comms[N_RANKS];

static void must(copse_status status) {
  if (status == COPSE_OK) return;
  fprintf(stderr, "%s: %s\n", copse_status_string(status), copse_last_error());
  exit(1);
}

/* Element i of rank r is r + i; of the sum 0 + 1 + 2 + 3 + 4 i. */
static void *rank_main(void *context) {
  int rank;
  must(copse_comm_user_rank(comms[*(int *)context], &rank));
  float *data = malloc(COUNT * sizeof *data);
  if (!data) exit(1);
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rank + i);
    must(copse_all_reduce(data, data, COUNT, COPSE_FLOAT, COPSE_SUM, comms[rank], NULL));
    for (int i = 0; i < COUNT; i++)
      if (data[i] != (float)(6 + 4 * i)) {
        fprintf(stderr, "rank %d: element %d is %g\n", rank, i, data[i]);
        exit(1);
      }
  }
  free(data);
  return NULL;
}

int main(int argc, char **argv) {
  copse_topology *topology;
  copse_schedule *schedule;
  copse_plan *plan;
  pthread_t threads[N_RANKS];
  int ranks[N_RANKS];
  if (argc != 2) {
    fprintf(stderr, "usage: %s TOPOLOGY, a file of %d GPUs\n", argv[0], N_RANKS);
    return 2;
  }
  must(copse_topology_read(argv[1], NULL, &topology));
  must(copse_solve(topology, COPSE_ALLREDUCE, -1, 0, &schedule));
  must(copse_lower(schedule, 0, &plan));
  must(copse_comm_init_all(comms, N_RANKS, NULL));
  must(copse_comm_add_plan(comms[0], plan));
  for (int r = 0; r < N_RANKS; r++) {
    ranks[r] = r;
    if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0) return 1;
  }
  for (int r = 0; r < N_RANKS; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < N_RANKS; r++) must(copse_comm_destroy(comms[r]));
  copse_plan_free(plan);
  copse_schedule_free(schedule);
  copse_topology_free(topology);
  puts("all ranks have the sum");
  return 0;
}
