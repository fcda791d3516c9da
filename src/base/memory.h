/* Memory: checked allocation, growable arrays, and an arena for objects that are freed
 * whole. No function aborts; every failure is COPSE_NOMEM. */
#pragma once

#include <stdlib.h>

#include "base/err.h"

/* Allocates a zeroed array of n elements; n * size is checked. n = 0 gives a valid pointer. */
copse_status copse_calloc(size_t n, size_t size, void *out_pointer,
                          struct copse_err *err) COPSE_CHECKED;

/* Allocates the same at an address that `alignment`, a power of two, divides. */
copse_status copse_calloc_aligned(size_t alignment, size_t n, size_t size, void *out_pointer,
                                  struct copse_err *err) COPSE_CHECKED;

/* Makes room for `need` elements in the array at *array (a T **), doubling *capacity.
 * The array is malloc's: release it with free(). On failure nothing changes. */
copse_status copse_grow(void *array, size_t *capacity, size_t need, size_t size,
                        struct copse_err *err) COPSE_CHECKED;

/* The same for an array and its capacity, each named once. */
#define COPSE_GROW(array, capacity, need, err) \
  copse_grow(&(array), &(capacity), need, sizeof *(array), err)
/* Puts an item behind the n of an array that grows: array[n++] = item. */
#define COPSE_PUSH(array, n, capacity, err, ...) \
  (COPSE_GROW(array, capacity, (size_t)(n) + 1, err) ?: ((array)[(n)++] = __VA_ARGS__, COPSE_OK))

/*
 * Defines `name`, an order for COPSE_SORT: how *a and *b, two items of `type`, compare. Keys are
 * joined by ?: of GCC and Clang, so that the next one decides between equals. For links by source,
 * the widest first of those with the same one:
 *
 *   COPSE_ORDER(by_source, struct link, COPSE_UP(src) ?: COPSE_DOWN(width))
 */
#define COPSE_ORDER(name, type, order)              \
  static int name(const void *a_, const void *b_) { \
    const type *a = a_, *b = b_;                    \
    return order;                                   \
  }
#define COPSE_COMPARE(x, y) (((x) > (y)) - ((x) < (y)))
/* By a member, the smallest or the largest first. */
#define COPSE_UP(member) COPSE_COMPARE(a->member, b->member)
#define COPSE_DOWN(member) COPSE_COMPARE(b->member, a->member)
/* Sorts n items, a pointer that may be NULL where there are none. */
#define COPSE_SORT(items, n, order) copse_sort(items, (size_t)(n), sizeof *(items), order)
static inline void copse_sort(void *items, size_t n, size_t size,
                              int (*order)(const void *, const void *)) {
  if (n > 1) qsort(items, n, size, order);
}

/*
 * Before a declaration: release(&variable) is called where the variable's block ends, whichever way
 * (an attribute of GCC and Clang). The variable must be initialised. The last declared goes first.
 */
#define COPSE_AT_END(release) __attribute__((cleanup(release)))
/* Frees a pointer (a T *, by its address) from malloc, copse_calloc or copse_grow. */
void copse_free_at(void *pointer);

/* A chain of blocks, freed whole. Zero-initialise to start. */
struct copse_arena {
  struct copse_arena_block *head;
};

/* Returns zeroed memory, aligned for any type, NULL when memory ran out. */
void *copse_arena_alloc(struct copse_arena *arena, size_t n, size_t size);
/* Does the same with a status, the pointer at *out_pointer: for the scratch memory of a function,
 * which frees it all by copse_arena_free at its end. n = 0 gives a valid pointer. */
copse_status copse_arena_array(struct copse_arena *arena, size_t n, size_t size, void *out_pointer,
                               struct copse_err *err) COPSE_CHECKED;
/* The same for n elements of what `array`, a pointer, is to point to. */
#define COPSE_ARRAY(arena, n, array, err) \
  copse_arena_array(arena, n, sizeof *(array), &(array), err)
/* COPSE_GROW for an array of the arena; what it outgrows stays there until the end. */
#define COPSE_GROW_IN(arena, array, capacity, need, err) \
  copse_arena_grow(arena, &(array), &(capacity), need, sizeof *(array), err)
#define COPSE_PUSH_IN(arena, array, n, capacity, err, ...)     \
  (COPSE_GROW_IN(arena, array, capacity, (size_t)(n) + 1, err) \
       ?: ((array)[(n)++] = __VA_ARGS__, COPSE_OK))
copse_status copse_arena_grow(struct copse_arena *arena, void *array, size_t *capacity, size_t need,
                              size_t size, struct copse_err *err) COPSE_CHECKED;
/* As COPSE_ARRAY for several pointers to `type`, each given by its address: n elements each. */
#define COPSE_ARRAYS(arena, n, type, err, ...) \
  copse_arena_arrays(arena, n, sizeof(type), (type **[]){__VA_ARGS__, NULL}, err)
copse_status copse_arena_arrays(struct copse_arena *arena, size_t n, size_t size,
                                const void *out_pointers, struct copse_err *err) COPSE_CHECKED;
char *copse_arena_strdup(struct copse_arena *arena, const char *text);
/* Does the same with a status. */
copse_status copse_arena_text(struct copse_arena *arena, const char *text, const char **out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_arena_free(struct copse_arena *arena);

/* Returns the bytes that can be taken without swapping and within limits of the control group and
 * the address space; UINT64_MAX where the system doesn't tell. */
uint64_t copse_memory_available(void);

/* Fails with COPSE_NOMEM where that is less than `bytes`, before what takes them is begun: "PLACE:
 * WHAT takes about 5 bytes of memory, and 4 are available; more memory, or MEND, would do". mend:
 * NULL, none. Little (1 MiB) is not asked about, which costs as much as reading three short files.
 */
copse_status copse_memory_check(uint64_t bytes, const char *place, const char *mend,
                                struct copse_err *err, const char *what, ...)
    __attribute__((format(printf, 5, 6))) COPSE_CHECKED;
