/*
 * What bench_gpu compares in one run: plans of other folders, other widths of blocks, other chunks.
 */
#ifndef COPSE_TESTS_GPU_BENCH_VARIANTS_H
#define COPSE_TESTS_GPU_BENCH_VARIANTS_H

#include <unistd.h>

#include "gpu/gpu_support.h"
#include "runtime/gpu/cuda_backend.h"

#define MOST_VARIANTS 16

struct variant {
  char name[24], plans[200];           /* plans: a folder */
  uint32_t threads;                    /* of a block; 0: as it is */
  uint64_t chunk, min_chunk, pipeline; /* 0: as the plan says */
};

struct variant_list {
  const char *plans; /* of variants that name no folder */
  int n;
  struct variant of[MOST_VARIANTS];
};

/* "512K" */
static inline uint64_t bytes_of(const char *text, char **end) {
  uint64_t value = strtoull(text, end, 10);
  if (*end == text) return 0;
  const char *const units = "KMG", *unit = **end ? strchr(units, **end) : NULL;
  if (!unit) return value;
  ++*end;
  return value << 10 * (unit - units + 1);
}

static inline void variant_set(struct variant *v, const char *word) {
  const char *value = strchr(word, '=');
  char key[16], *end = NULL;
  DEVICE_ASSERT(value, "bench_gpu: variant %s: no value for %s", v->name, word);
  snprintf(key, sizeof key, "%.*s", (int)(value++ - word), word);
  if (strcmp(key, "plans") == 0) {
    snprintf(v->plans, sizeof v->plans, "%s", value);
    return;
  }
  uint64_t number = bytes_of(value, &end);
  DEVICE_ASSERT(*end == 0 && number > 0, "bench_gpu: variant %s: %s", v->name, word);
  if (strcmp(key, "threads") == 0)
    v->threads = (uint32_t)number;
  else if (strcmp(key, "chunk") == 0)
    v->chunk = number;
  else if (strcmp(key, "min-chunk") == 0)
    v->min_chunk = number;
  else if (strcmp(key, "pipeline") == 0)
    v->pipeline = number;
  else
    DEVICE_ASSERT(false,
                  "bench_gpu: variant %s: none of plans, threads, chunk, min-chunk, pipeline: %s",
                  v->name, word);
}

static inline void variants_add(struct variant_list *list, const char *text) {
  DEVICE_ASSERT(list->n < MOST_VARIANTS, "bench_gpu: more than %d variants", MOST_VARIANTS);
  struct variant *v = &list->of[list->n++];
  memset(v, 0, sizeof *v);
  size_t n = strcspn(text, ":");
  snprintf(v->name, sizeof v->name, "%.*s", (int)n, text);
  snprintf(v->plans, sizeof v->plans, "%s", list->plans);
  for (const char *at = text[n] ? text + n + 1 : NULL; at;) {
    char word[240];
    at = next_word(at, word, sizeof word);
    variant_set(v, word);
  }
}

/* Lines of a file; # begins a comment. */
static inline void variants_read(struct variant_list *list, const char *path) {
  char line[400];
  FILE *file = fopen(path, "r");
  DEVICE_ASSERT(file, "bench_gpu: can't read %s", path);
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, " \t\n#")] = 0;
    if (*line) variants_add(list, line);
  }
  fclose(file);
}

static inline void variants_print_names(const struct variant_list *list, const char *format) {
  for (int i = 0; i < list->n; i++) printf(format, list->of[i].name);
}

/* A plan of the variant's, with its chunks; NULL: there is none of this name. */
static inline struct copse_plan *variant_plan(const struct variant *v, const char *name) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = NULL;
  char path[400];
  snprintf(path, sizeof path, "%s/%s", v->plans, name);
  if (access(path, R_OK) != 0) return NULL;
  COPSE_SUCCEEDS(copse_plan_open(path, &plan, &err), &err);
  struct copse_plan_header *h = &plan->header;
  if (v->chunk) h->chunk_bytes = v->chunk;
  if (v->min_chunk) h->min_chunk_bytes = v->min_chunk;
  if (v->pipeline) h->pipeline_chunks = (uint32_t)v->pipeline;
  if (h->min_chunk_bytes > h->chunk_bytes) h->min_chunk_bytes = h->chunk_bytes;
  COPSE_SUCCEEDS(copse_plan_validate(plan, path, &err), &err);
  return plan;
}

/* Whether its blocks are resident together; else no launch is tried. */
static inline bool variant_fits(const struct variant *v, const struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  cudaDeviceProp properties;
  CUDA_OK(cudaGetDeviceProperties(&properties, 0));
  struct copse_cuda_device device = {};
  device.n_multiprocessors = (uint32_t)properties.multiProcessorCount;
  uint32_t threads = v->threads && GPU_IS_REAL ? v->threads : copse_cuda_threads, room = 0;
  const bool reduces = copse_collective_reduces((copse_collective)plan->header.collective);
  for (;; threads /= 2) {
    COPSE_SUCCEEDS(copse_cuda_room(reduces, &device, threads, &room, &err), &err);
    if (plan->header.n_workers <= room) return true;
    if (threads / 2 < COPSE_CUDA_LEAST_THREADS) return false;
  }
}

static uint32_t variant_usual_threads;

static inline void variant_enter(const struct variant *v) {
  variant_usual_threads = copse_cuda_threads;
  if (v->threads && GPU_IS_REAL) copse_cuda_threads = v->threads;
}

static inline void variant_leave(void) { copse_cuda_threads = variant_usual_threads; }

#endif
