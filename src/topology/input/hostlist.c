/* Slurm's host lists: "a1,b[01-03,7]c[0-1]". */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/fabric/map.h"

#define MAX_NAME 255
#define MAX_BRACKETS 8

struct list {
  const char *file, *text;
  long line;
  int limit, n;
  copse_status (*each)(void *ctx, const char *name);
  void *ctx;
  struct copse_err *err;
  char name[MAX_NAME + 1];
};

static copse_status refuse(const struct list *l, const char *what) {
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->file, l->line,
                       "host list \"%.80s\": %s; it is such as \"node[01-04],login1\"", l->text,
                       what);
}

static copse_status expand(struct list *l, const char *p, size_t used, int brackets);

/* One number of a range, as wide as the range's first was written. */
static copse_status with_number(struct list *l, long v, int width, const char *rest, size_t used,
                                int brackets) {
  int n = snprintf(l->name + used, sizeof l->name - used, "%0*ld", width, v);
  if (n < 0 || (size_t)n >= sizeof l->name - used) return refuse(l, "a name of over 255 letters");
  return expand(l, rest, used + (size_t)n, brackets + 1);
}

static bool parse_number(const char **p, long *v, int *width) {
  size_t digits = strspn(*p, "0123456789");
  if (digits == 0 || digits > 9) return false;
  *v = strtol(*p, NULL, 10);
  *width = (int)digits;
  *p += digits;
  return true;
}

static copse_status with_bracket(struct list *l, const char *p, size_t used, int brackets) {
  const char *end = strchr(p, ']');
  copse_status status = COPSE_OK;
  if (!end) return refuse(l, "a [ without ]");
  if (brackets == MAX_BRACKETS) return refuse(l, "more than 8 brackets in a name");
  for (;;) {
    long low, high;
    int width, ignored;
    if (!parse_number(&p, &low, &width)) return refuse(l, "a range without a number");
    high = low;
    if (*p == '-' && (p++, !parse_number(&p, &high, &ignored)))
      return refuse(l, "a range without an end");
    if (high < low) return refuse(l, "a range that ends before it begins");
    if (high - low >= l->limit - l->n) return refuse(l, "too many hosts");
    for (long v = low; v <= high; v++) COPSE_TRY(with_number(l, v, width, end + 1, used, brackets));
    if (p == end) break;
    if (*p++ != ',') return refuse(l, "something else than numbers in brackets");
  }
out:
  return status;
}

/* The rest of one name, from p to the next comma outside of brackets; `used` letters are made. */
static copse_status expand(struct list *l, const char *p, size_t used, int brackets) {
  size_t n = strcspn(p, "[,");
  if (memchr(p, ']', n)) return refuse(l, "a ] without [");
  if (used + n > MAX_NAME) return refuse(l, "a name of over 255 letters");
  memcpy(l->name + used, p, n);
  if (p[n] == '[') return with_bracket(l, p + n + 1, used + n, brackets);
  l->name[used + n] = '\0';
  if (used + n == 0) return refuse(l, "an empty name");
  if (++l->n > l->limit) return refuse(l, "too many hosts");
  return l->each(l->ctx, l->name);
}

copse_status copse_hostlist(const char *file, long line, const char *text, int limit,
                            copse_status (*each)(void *ctx, const char *name), void *ctx,
                            struct copse_err *err) {
  struct list l = {file, text, line, limit, 0, each, ctx, err, ""};
  copse_status status = COPSE_OK;
  for (const char *p = text;; p++) {
    COPSE_TRY(expand(&l, p, 0, 0));
    bool inside = false;
    for (; *p && (inside || *p != ','); p++) inside = *p == '[' || (inside && *p != ']');
    if (!*p) break;
  }
out:
  return status;
}
