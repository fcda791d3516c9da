/*
 * What check_gpu and bench_gpu share. Both are built with nvcc for `make check-gpu` and `make
 * bench-gpu`, and, so that they are known to work, with the emulation for `make check`.
 */
#ifndef COPSE_TESTS_GPU_SUPPORT_H
#define COPSE_TESTS_GPU_SUPPORT_H

#include <dirent.h>

#include "cuda/device_case.h"

#if defined(COPSE_CUDA_EMULATED)
#define GPU_IS_REAL 0
#else
#define GPU_IS_REAL 1
#endif

extern uint32_t copse_cuda_threads;

#if defined(COPSE_CUDA_EMULATED)
#include "emulation/emulation.h"
#endif

/* Before the first call of CUDA: an emulated GPU large enough for the plans, few threads. */
static inline void gpu_make_small(void) {
#if defined(COPSE_CUDA_EMULATED)
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 64;
  copse_emulated_configure(&config);
  copse_cuda_threads = 2;
#endif
}

/* So many emulated GPUs from here on, where they are not real and nothing is alive. */
static inline void gpu_make_several(int n) {
#if defined(COPSE_CUDA_EMULATED)
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 64;
  config.devices = n;
  copse_emulated_configure(&config);
#endif
  (void)n;
}

/* The first of comma-separated words; where the next one is, or NULL. */
static inline const char *next_word(const char *list, char *word, size_t room) {
  size_t n = strcspn(list, ",");
  snprintf(word, room, "%.*s", (int)n, list);
  return list[n] ? list + n + 1 : NULL;
}

static inline bool has_word(const char *list, const char *wanted) {
  for (char word[64]; list;) {
    list = next_word(list, word, sizeof word);
    if (strcmp(word, wanted) == 0) return true;
  }
  return false;
}

/* Plans of a folder, in order of name. */
struct plan_folder {
  int n;
  struct {
    char name[100];
    struct copse_plan *plan;
  } files[100];
};

static inline int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline bool is_plan(const char *name) {
  size_t n = strlen(name);
  return n > 5 && n < 100 && strcmp(name + n - 5, ".plan") == 0;
}

static inline void plan_folder_open(struct plan_folder *folder, const char *path) {
  char *names[100];
  int n = 0;
  memset(folder, 0, sizeof *folder);
  DIR *dir = opendir(path);
  if (!dir) return;
  for (struct dirent *it; n < 100 && (it = readdir(dir)) != NULL;)
    if (is_plan(it->d_name)) names[n++] = strdup(it->d_name);
  closedir(dir);
  qsort(names, (size_t)n, sizeof *names, by_name);
  for (int i = 0; i < n; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    char file[400];
    snprintf(file, sizeof file, "%s/%s", path, names[i]);
    snprintf(folder->files[i].name, sizeof folder->files[i].name, "%.99s", names[i]);
    COPSE_SUCCEEDS(copse_plan_open(file, &folder->files[i].plan, &err), &err);
    free(names[i]);
  }
  folder->n = n;
}

static inline void plan_folder_close(struct plan_folder *folder) {
  for (int i = 0; i < folder->n; i++) copse_plan_free(folder->files[i].plan);
}

static inline const struct copse_plan *plan_named(const struct plan_folder *folder,
                                                  const char *name) {
  for (int i = 0; i < folder->n; i++)
    if (strcmp(folder->files[i].name, name) == 0) return folder->files[i].plan;
  return NULL;
}

/* Says what runs it, or that nothing can: then false. */
static inline bool gpu_is_there(const char *program) {
  int n = 0;
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error != cudaSuccess || n == 0) {
    printf("SKIP %s: no usable GPU (%s)\n", program, cudaGetErrorString(error));
    return false;
  }
  for (int i = 0; i < n; i++) {
    cudaDeviceProp properties;
    CUDA_OK(cudaGetDeviceProperties(&properties, i));
    printf("# GPU %d: %s, %d multiprocessors, %.0f GiB\n", i, properties.name,
           properties.multiProcessorCount, (double)properties.totalGlobalMem / (1 << 30));
  }
  return true;
}

#endif
