/*
 * Reads the topology.conf of Slurm's plugin topology/tree (slurm.schedmd.com/topology.conf.html),
 * and Slurm's host lists, such as "a1,b[01-03,7]c[0-1]":
 *
 *     SwitchName=leaf1 Nodes=node[01-16]
 *     SwitchName=spine Switches=leaf[1-4]   # LinkSpeed= is accepted and ignored
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/graph.h"
#include "base/text.h"
#include "topology/fabric/fabric.h"
#include "topology/input/readers.h"
#include "topology/topology.h"

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

static copse_status refuse_list(const struct list *l, const char *what) {
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->file, l->line,
                       "host list \"%.80s\": %s; it is such as \"node[01-04],login1\"", l->text,
                       what);
}

static copse_status expand(struct list *l, const char *p, size_t used, int brackets);

/* Appends one number of a range, padded with zeros to the width of the range's first number. */
static copse_status with_number(struct list *l, int64_t v, int width, const char *rest, size_t used,
                                int brackets) {
  int n = snprintf(l->name + used, sizeof l->name - used, "%0*" PRId64, width, v);
  if (n < 0 || (size_t)n >= sizeof l->name - used)
    return refuse_list(l, "a name of over 255 letters");
  return expand(l, rest, used + (size_t)n, brackets + 1);
}

static copse_status with_bracket(struct list *l, const char *p, size_t used, int brackets) {
  const char *end = strchr(p, ']');
  if (!end) return refuse_list(l, "a [ without ]");
  if (brackets == MAX_BRACKETS) return refuse_list(l, "more than 8 brackets in a name");
  for (;;) {
    const char *first = p;
    int64_t low, high;
    if (!copse_text_number(&p, 9, &low)) return refuse_list(l, "a range without a number");
    int width = (int)(p - first);
    high = low;
    if (*p == '-' && (p++, !copse_text_number(&p, 9, &high)))
      return refuse_list(l, "a range without an end");
    if (high < low) return refuse_list(l, "a range that ends before it begins");
    if (high - low >= l->limit - l->n) return refuse_list(l, "too many hosts");
    for (int64_t v = low; v <= high; v++)
      COPSE_DO(with_number(l, v, width, end + 1, used, brackets));
    if (p == end) break;
    if (*p++ != ',') return refuse_list(l, "something else than numbers in brackets");
  }
  return COPSE_OK;
}

/* Expands the rest of one name, from p to the next comma outside of brackets. l->name has `used`
 * letters so far. */
static copse_status expand(struct list *l, const char *p, size_t used, int brackets) {
  size_t n = strcspn(p, "[,");
  if (memchr(p, ']', n)) return refuse_list(l, "a ] without [");
  if (used + n > MAX_NAME) return refuse_list(l, "a name of over 255 letters");
  memcpy(l->name + used, p, n);
  if (p[n] == '[') return with_bracket(l, p + n + 1, used + n, brackets);
  l->name[used + n] = '\0';
  if (used + n == 0) return refuse_list(l, "an empty name");
  if (++l->n > l->limit) return refuse_list(l, "too many hosts");
  return l->each(l->ctx, l->name);
}

copse_status copse_hostlist(const char *file, long line, const char *text, int limit,
                            copse_status (*each)(void *ctx, const char *name), void *ctx,
                            struct copse_err *err) {
  struct list l = {file, text, line, limit, 0, each, ctx, err, ""};
  for (const char *p = text;; p++) {
    COPSE_DO(expand(&l, p, 0, 0));
    bool inside = false;
    for (; *p && (inside || *p != ','); p++) inside = *p == '[' || (inside && *p != ']');
    if (!*p) break;
  }
  return COPSE_OK;
}

#define MAX_WORDS 64

struct reader {
  const char *file;
  struct copse_err *err;
  struct copse_fabric_map *map;
  struct copse_index_map *ids;
  int current; /* the switch that the line defines */
  long line;
  struct copse_lines *lines;
};

static copse_status refuse(const struct reader *r, const char *name, const char *text) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line, "%.80s %s", name, text);
}

/* Finds the switch of this name, or adds it. */
static copse_status intern(struct reader *r, const char *name, int *out) {
  struct copse_fabric_map *map = r->map;
  size_t n = (size_t)map->n_switches;
  *out = copse_index_map_find(r->ids, name, map->switches, sizeof *map->switches,
                              offsetof(struct copse_map_switch, id));
  if (*out >= 0) return COPSE_OK;
  if (n >= COPSE_TOPOLOGY_MAX_NODES) return refuse(r, name, "is one switch too many");
  COPSE_DO(COPSE_GROW(map->switches, map->switch_capacity, n + 1, r->err));
  map->switches[n] = (struct copse_map_switch){.line = r->line};
  COPSE_DO(copse_arena_text(&map->arena, name, &map->switches[n].id, r->err));
  COPSE_DO(copse_index_map_add(r->ids, copse_key_text(name), (int)n, r->err));
  *out = map->n_switches++;
  return COPSE_OK;
}

static copse_status add_host(void *ctx, const char *name) {
  struct reader *r = ctx;
  struct copse_map_port port = {
      .device = "", .sw = r->current, .bandwidth = COPSE_Q_ZERO, .line = r->line};
  if (r->map->n_ports >= COPSE_TOPOLOGY_MAX_NODES) return refuse(r, name, "is one host too many");
  COPSE_DO(copse_arena_text(&r->map->arena, name, &port.host, r->err));
  return copse_fabric_map_add_port(r->map, port, r->err);
}

static copse_status add_child(void *ctx, const char *name) {
  struct reader *r = ctx;
  int child = -1;
  COPSE_DO(intern(r, name, &child));
  if (child == r->current) return refuse(r, name, "is a switch below itself");
  if (r->map->switches[child].child)
    return refuse(r, name, "is below two switches; the tree plugin has one above each");
  r->map->switches[child].child = true;
  struct copse_map_cable cable = {child, r->current, COPSE_Q_ZERO};
  return copse_fabric_map_add_cable(r->map, cable, r->err);
}

static copse_status read_list(struct reader *r, const char *list,
                              copse_status (*each)(void *ctx, const char *name)) {
  return copse_hostlist(r->file, r->line, list, COPSE_TOPOLOGY_MAX_NODES, each, r, r->err);
}

static copse_status read_switch(struct reader *r, char **words, int n) {
  char *nodes = NULL, *switches = NULL;
  for (int i = 1; i < n; i++) {
    if (strncasecmp(words[i], "Nodes=", 6) == 0)
      nodes = words[i] + 6;
    else if (strncasecmp(words[i], "Switches=", 9) == 0)
      switches = words[i] + 9;
    else if (strncasecmp(words[i], "LinkSpeed=", 10) != 0)
      return refuse(r, words[i], "isn't known; Nodes=, Switches= and LinkSpeed= are");
  }
  if (!nodes == !switches) return refuse(r, words[0], "needs Nodes= or Switches=, one of them");
  COPSE_DO(intern(r, words[0] + 11, &r->current));
  if (r->map->switches[r->current].defined) return refuse(r, words[0], "twice");
  r->map->switches[r->current].defined = true;
  return nodes ? read_list(r, nodes, add_host) : read_list(r, switches, add_child);
}

/* Refuses switches without a line of their own, and switches that are above themselves. */
static copse_status check_tree(struct reader *r) {
  const struct copse_fabric_map *map = r->map;
  size_t n = (size_t)map->n_switches;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *above, *mark;
  COPSE_DO(COPSE_ARRAYS(&scratch, n, int, r->err, &above, &mark));
  for (int i = 0; i < map->n_cables; i++) above[map->cables[i].a] = map->cables[i].b + 1;
  for (int i = 0; i < map->n_switches; i++) {
    r->line = map->switches[i].line;
    if (!map->switches[i].defined)
      return refuse(r, map->switches[i].id, "is named and has no line SwitchName= of its own");
    int at = i;
    for (; at >= 0 && !mark[at]; at = above[at] - 1) mark[at] = i + 1;
    if (at >= 0 && mark[at] == i + 1)
      return refuse(r, map->switches[i].id, "is below itself, by way of others");
  }
  return COPSE_OK;
}

/* Reads a line and those that continue it after a backslash. All of them are adjacent in the
 * text: blanks in place of their ends join them. */
static char *next_line(struct reader *r) {
  char *line = copse_lines_next(r->lines), *tail = line;
  r->line = r->lines->line;
  for (size_t n; tail && (n = strlen(tail)) > 0 && tail[n - 1] == '\\';) {
    char *more = copse_lines_next(r->lines);
    tail[n - 1] = ' ';
    for (char *p = tail + n; more && p < more; p++) *p = ' ';
    tail = more;
  }
  return line;
}

static copse_status read_lines(struct reader *r) {
  char *words[MAX_WORDS];
  for (char *line; (line = next_line(r));) {
    line[strcspn(line, "#")] = '\0';
    int n = copse_split_words(line, words, MAX_WORDS);
    if (n == 0) continue;
    if (n > MAX_WORDS || strncasecmp(words[0], "SwitchName=", 11) != 0 || !words[0][11])
      return refuse(r, words[0], "where SwitchName=NAME was expected");
    COPSE_DO(read_switch(r, words, n));
  }
  if (r->map->n_switches > 0) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, 0, "no SwitchName= in it");
}

copse_status copse_read_slurm(const char *file, const char *data, size_t size,
                              const struct copse_notes *notes, struct copse_fabric_map *map,
                              struct copse_err *err) {
  COPSE_AT_END(copse_lines_free) struct copse_lines lines = {0};
  COPSE_AT_END(copse_index_map_free) struct copse_index_map ids = {0};
  struct reader r = {.file = file, .err = err, .map = map, .ids = &ids, .lines = &lines};
  COPSE_DO(copse_lines_open(file, data, size, &lines, err));
  COPSE_DO(read_lines(&r));
  COPSE_DO(check_tree(&r));
  copse_note(notes,
             "%s: topology.conf has no speeds; a switch's way up carries what the file's hosts "
             "below it can send, divided by the oversubscription",
             file);
  return COPSE_OK;
}
