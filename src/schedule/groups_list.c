#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "base/memory.h"
#include "base/text.h"
#include "schedule/groups.h"
#include "topology/modify.h"

struct reader {
  const char *file;
  long line;
  const struct copse_topology *topology;
  struct copse_group *groups;
  size_t n, capacity;
  struct copse_err *err;
};

static copse_status refuse(const struct reader *r, const char *what) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line, "%s", what);
}

/* "allreduce" or "broadcast:3". */
static copse_status read_collective(const struct reader *r, char *word, struct copse_group *group) {
  char *colon = strchr(word, ':');
  if (colon) *colon = '\0';
  if (!copse_collective_from_name(word, &group->collective))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line,
                         "'%.40s' is no collective; a line is a list of ranks, such as 0-3,8, or a "
                         "collective and a list",
                         word);
  if (!copse_collective_rooted(group->collective)) {
    if (colon) return refuse(r, "a root (':') is for broadcast and reduce");
    group->root = -1;
  } else if (colon) {
    size_t digits = strspn(colon + 1, "0123456789");
    if (digits < 1 || digits > 9 || colon[1 + digits])
      return refuse(r, "a root must be a place in the list of ranks, from 0, such as broadcast:0");
    group->root = atoi(colon + 1);
  }
  return COPSE_OK;
}

static copse_status read_ranks(struct reader *r, const char *list, struct copse_group *group) {
  struct copse_text place = {0};
  copse_status status;
  copse_text_add(&place, "%s:%ld", r->file, r->line);
  COPSE_TRY(copse_text_status(&place, r->err));
  COPSE_TRY(
      copse_topology_parse_ranks(r->topology, place.data, list, &group->nodes, &group->n, r->err));
  if (group->n < 2) {
    status = refuse(r, "a group of one rank sends nothing; leave the line out");
  } else if (copse_collective_rooted(group->collective) &&
             (group->root < 0 || group->root >= group->n)) {
    status = copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line,
                           "%s needs a root from 0 to %d, a place in the list of ranks",
                           copse_collective_name(group->collective), group->n - 1);
  }
out:
  copse_text_free(&place);
  return status;
}

static copse_status read_line(struct reader *r, char *line, copse_collective collective, int root) {
  struct copse_group group = {.collective = collective, .root = root, .line = r->line};
  char *words[3], *rest = line, *word;
  int n = 0;
  copse_status status = COPSE_OK;
  line[strcspn(line, "#")] = '\0';
  while ((word = strsep(&rest, " \t\r"))) {
    if (!*word) continue;
    if (n == 2)
      return refuse(r, "more than a collective and a list of ranks; a list has no blanks");
    words[n++] = word;
  }
  if (n == 0) return COPSE_OK;
  if (n == 2) COPSE_TRY(read_collective(r, words[0], &group));
  COPSE_TRY(read_ranks(r, words[n - 1], &group));
  COPSE_TRY(copse_grow(&r->groups, &r->capacity, r->n + 1, sizeof *r->groups, r->err));
  r->groups[r->n++] = group;
  group.nodes = NULL;
out:
  free(group.nodes);
  return status;
}

copse_status copse_group_list_parse(const char *file, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    copse_collective collective, int root, struct copse_group **out,
                                    int *n, struct copse_err *err) {
  struct reader r = {.file = file, .topology = topology, .err = err};
  char *text = NULL, *rest, *line;
  copse_status status;
  *out = NULL;
  *n = 0;
  if (memchr(data, '\0', size))
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                         "NUL bytes; a file of groups is text, a list of ranks a line");
  COPSE_TRY(copse_calloc(size + 1, 1, &text, err));
  memcpy(text, data, size);
  rest = text;
  while ((line = strsep(&rest, "\n"))) {
    r.line++;
    COPSE_TRY(read_line(&r, line, collective, root));
  }
  if (r.n == 0) {
    status = copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                           "no group; give a list of ranks a line, such as 0-7");
    goto out;
  }
  *out = r.groups;
  *n = (int)r.n;
  r.groups = NULL;
out:
  copse_group_list_free(r.groups, (int)r.n);
  free(text);
  return status;
}

void copse_group_list_free(struct copse_group *groups, int n) {
  for (int g = 0; groups && g < n; g++) free(groups[g].nodes);
  free(groups);
}
