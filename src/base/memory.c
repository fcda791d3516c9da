/*
 * Checked allocation, growable arrays, and the arena: a chain of blocks of 64 KiB, from which
 * requests are cut; a larger request has a block of its own.
 *
 *   head -> [used|  free  ] -> [used   ] -> [one large request] -> NULL
 */
#include "base/memory.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

copse_status copse_calloc(size_t n, size_t size, void *out_pointer, struct copse_err *err) {
  void *p = calloc(n ? n : 1, size);
  if (!p) return copse_fail_nomem(err);
  *(void **)out_pointer = p;
  return COPSE_OK;
}

copse_status copse_calloc_aligned(size_t alignment, size_t n, size_t size, void *out_pointer,
                                  struct copse_err *err) {
  size_t bytes;
  if (__builtin_mul_overflow(n ? n : 1, size, &bytes) || bytes > SIZE_MAX - alignment)
    return copse_fail_nomem(err);
  bytes = (bytes + alignment - 1) / alignment * alignment; /* as C11 wants it */
  void *p = aligned_alloc(alignment, bytes);
  if (!p) return copse_fail_nomem(err);
  *(void **)out_pointer = memset(p, 0, bytes);
  return COPSE_OK;
}

copse_status copse_grow(void *array, size_t *capacity, size_t need, size_t size,
                        struct copse_err *err) {
  if (need <= *capacity) return COPSE_OK;
  size_t grown = *capacity < 8 ? 8 : *capacity;
  size_t bytes;
  while (grown < need)
    if (__builtin_mul_overflow(grown, (size_t)2, &grown)) return copse_fail_nomem(err);
  if (__builtin_mul_overflow(grown, size, &bytes)) return copse_fail_nomem(err);
  void *p = realloc(*(void **)array, bytes);
  if (!p) return copse_fail_nomem(err);
  *(void **)array = p;
  *capacity = grown;
  return COPSE_OK;
}

void copse_free_at(void *pointer) { free(*(void **)pointer); }

struct copse_arena_block {
  struct copse_arena_block *next;
  size_t used, size;
  alignas(max_align_t) char data[];
};

#define ARENA_BLOCK_BYTES ((size_t)64 << 10)

/* Under AddressSanitizer each request has a block of its own, so that neighbours are guarded. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_SHARES_BLOCKS 0
#else
#define ARENA_SHARES_BLOCKS 1
#endif

void *copse_arena_alloc(struct copse_arena *arena, size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
  if (__builtin_add_overflow(bytes, alignof(max_align_t) - 1, &bytes)) return NULL;
  bytes &= ~(alignof(max_align_t) - 1);
  struct copse_arena_block *block = arena->head;
  if (!ARENA_SHARES_BLOCKS || !block || block->size - block->used < bytes) {
    size_t room = ARENA_SHARES_BLOCKS && bytes < ARENA_BLOCK_BYTES ? ARENA_BLOCK_BYTES : bytes;
    if (room > SIZE_MAX - sizeof *block) return NULL;
    block = calloc(1, sizeof *block + room);
    if (!block) return NULL;
    block->size = room;
    block->next = arena->head;
    arena->head = block;
  }
  void *p = block->data + block->used;
  block->used += bytes;
  return p;
}

copse_status copse_arena_array(struct copse_arena *arena, size_t n, size_t size, void *out_pointer,
                               struct copse_err *err) {
  void *p = copse_arena_alloc(arena, n ? n : 1, size);
  if (!p) return copse_fail_nomem(err);
  *(void **)out_pointer = p;
  return COPSE_OK;
}

copse_status copse_arena_arrays(struct copse_arena *arena, size_t n, size_t size,
                                const void *out_pointers, struct copse_err *err) {
  for (void *const *out = out_pointers; *out; out++)
    COPSE_DO(copse_arena_array(arena, n, size, *out, err));
  return COPSE_OK;
}

copse_status copse_arena_grow(struct copse_arena *arena, void *array, size_t *capacity, size_t need,
                              size_t size, struct copse_err *err) {
  void *grown = NULL, **old = array;
  size_t n = *capacity < 8 ? 8 : 2 * *capacity; /* of what is in memory: no overflow */
  if (need <= *capacity) return COPSE_OK;
  if (n < need) n = need;
  COPSE_DO(copse_arena_array(arena, n, size, &grown, err));
  if (*capacity > 0) memcpy(grown, *old, *capacity * size);
  *old = grown;
  *capacity = n;
  return COPSE_OK;
}

char *copse_arena_strdup(struct copse_arena *arena, const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = copse_arena_alloc(arena, bytes, 1);
  if (copy) memcpy(copy, text, bytes);
  return copy;
}

copse_status copse_arena_text(struct copse_arena *arena, const char *text, const char **out,
                              struct copse_err *err) {
  *out = copse_arena_strdup(arena, text);
  return *out ? COPSE_OK : copse_fail_nomem(err);
}

void copse_arena_free(struct copse_arena *arena) {
  while (arena->head) {
    struct copse_arena_block *next = arena->head->next;
    free(arena->head);
    arena->head = next;
  }
}

/* Reads one number from a file such as cgroup's memory.max; false for "max" and no file. */
static bool read_number(const char *path, unsigned long long *out) {
  FILE *in = fopen(path, "re");
  if (!in) return false;
  bool ok = fscanf(in, "%llu", out) == 1;
  fclose(in);
  return ok;
}

/* Returns what a limit on the address space (ulimit -v) leaves; UINT64_MAX without one. */
static uint64_t address_space_left(void) {
  struct rlimit limit;
  unsigned long long pages = 0;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ||
      !read_number("/proc/self/statm", &pages))
    return UINT64_MAX;
  uint64_t used = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t copse_memory_available(void) {
  uint64_t available = address_space_left();
  char line[256];
  unsigned long long kib, most, used;
  FILE *in = fopen("/proc/meminfo", "re");
  while (in && fgets(line, sizeof line, in))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1 && (uint64_t)kib << 10 < available)
      available = (uint64_t)kib << 10;
  if (in) fclose(in);
  if (read_number("/sys/fs/cgroup/memory.max", &most) &&
      read_number("/sys/fs/cgroup/memory.current", &used)) {
    uint64_t left = most > used ? most - used : 0;
    if (left < available) available = left;
  }
  return available;
}

#define LITTLE_BYTES ((uint64_t)1 << 20)

copse_status copse_memory_check(uint64_t bytes, const char *place, const char *mend,
                                struct copse_err *err, const char *what, ...) {
  char text[160];
  uint64_t available = bytes > LITTLE_BYTES ? copse_memory_available() : UINT64_MAX;
  va_list arguments;
  if (bytes <= available) return COPSE_OK;
  va_start(arguments, what);
  vsnprintf(text, sizeof text, what, arguments);
  va_end(arguments);
  return copse_fail_at(
      err, COPSE_NOMEM, place, 0,
      "%s takes about %llu bytes of memory, and %llu are available; more memory%s%s"
      "%s would do",
      text, (unsigned long long)bytes, (unsigned long long)available, mend ? ", or " : "",
      mend ? mend : "", mend ? "," : "");
}
