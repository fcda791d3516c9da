/*
 * Memory: checked allocation, growable arrays, and an arena for objects that are freed
 * whole. No function aborts; every failure is COPSE_NOMEM.
 */
#ifndef COPSE_BASE_MEMORY_H
#define COPSE_BASE_MEMORY_H

#include <stddef.h>

#include "base/err.h"

/* Zeroed array of n elements; n * size is checked. n = 0 gives a valid pointer. */
copse_status copse_calloc(size_t n, size_t size, void *out_pointer,
                          struct copse_err *err) COPSE_CHECKED;

/*
 * Makes room for `need` elements in the array at *array (a T **), doubling *capacity.
 * The array is malloc's: release it with free(). On failure nothing changes.
 */
copse_status copse_grow(void *array, size_t *capacity, size_t need, size_t size,
                        struct copse_err *err) COPSE_CHECKED;

/* A chain of blocks, freed whole. Zero-initialise to start. */
struct copse_arena {
  struct copse_arena_block *head;
};

/* Zeroed, aligned for any type, NULL when memory ran out. */
void *copse_arena_alloc(struct copse_arena *arena, size_t n, size_t size);
/* The same with a status, the pointer at *out_pointer: for the scratch memory of a function, which
 * frees it all by copse_arena_free at its end. n = 0 gives a valid pointer. */
copse_status copse_arena_array(struct copse_arena *arena, size_t n, size_t size, void *out_pointer,
                               struct copse_err *err) COPSE_CHECKED;
char *copse_arena_strdup(struct copse_arena *arena, const char *text);
/* The same with a status. */
copse_status copse_arena_text(struct copse_arena *arena, const char *text, const char **out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_arena_free(struct copse_arena *arena);

#endif
