/*
 * The output of ibnetdiscover (infiniband-diags, "topology file format"): a section for each
 * switch and channel adapter, a line for each port that is connected:
 *
 *     Switch  40 "S-b8599f0300"  # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 7 lmc 0
 *     [1]     "H-0c42a10300"[1](c42a10300)   # "node01 mlx5_0" lid 12 4xHDR
 *     [40]    "S-b8599f0301"[3]              # "MF0;spine1:MQM8700/U1" lid 9 4xHDR
 *
 * A cable stands in the sections of both its ends, and is taken once.
 */
#include <stdlib.h>
#include <string.h>

#include "topology/fabric/fabric.h"
#include "base/graph.h"
#include "base/text.h"
#include "topology/topology.h"

struct element {
  const char *guid, *about; /* "S-b8599f0300", "node01 mlx5_0" or NULL */
  long line;
  int sw; /* its number in the map; -1: an adapter */
};

struct cable {
  int a, b, a_port, b_port; /* a < b, or a == b and a_port <= b_port */
  struct copse_q bandwidth;
  long line;
};

struct reader {
  const char *file;
  struct copse_err *err;
  struct copse_fabric_map *map;
  struct copse_index_map ids;
  struct element *elements;
  struct cable *cables;
  size_t element_capacity, cable_capacity;
  int n_elements, n_cables;
  int current; /* the section's, or -1 */
  long line;
};

#define refuse(r, ...) copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->file, (r)->line, __VA_ARGS__)

/* Looks up the GB/s of one lane after its coding: SDR to QDR 8b/10b, from FDR on 64b/66b. */
static bool lane_rate(const char *name, struct copse_q *out) {
  static const struct {
    const char *name;
    struct copse_q rate;
  } known[] = {{"SDR", {1, 4}},   {"DDR", {1, 2}},   {"QDR", {1, 1}},
               {"FDR10", {5, 4}}, {"FDR", {75, 44}}, {"EDR", {25, 8}},
               {"HDR", {25, 4}},  {"NDR", {25, 2}},  {"XDR", {25, 1}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) {
      *out = known[i].rate;
      return true;
    }
  return false;
}

/* Reads the last "4xHDR" of the line. */
static copse_status read_speed(const struct reader *r, char *comment, struct copse_q *out) {
  char *save = NULL;
  for (char *p = strtok_r(comment, " \t", &save); p; p = strtok_r(NULL, " \t", &save)) {
    size_t digits = strspn(p, "0123456789");
    struct copse_q lane;
    if (digits == 0 || digits > 2 || p[digits] != 'x' || !lane_rate(p + digits + 1, &lane))
      continue;
    if (atoi(p) > 0) return copse_q_mul(lane, (struct copse_q){atoi(p), 1}, out, r->err);
  }
  return refuse(r, "a port without width and speed, such as 4xHDR");
}

/* Returns the text between the next two quotes and moves *p behind them; NULL if there is none. */
static char *next_quoted(char **p) {
  char *begin = strchr(*p, '"'), *end = begin ? strchr(begin + 1, '"') : NULL;
  if (!end) return NULL;
  *end = '\0';
  *p = end + 1;
  return begin + 1;
}

static copse_status intern(struct reader *r, const char *guid, const char *about, int *out) {
  size_t n = (size_t)r->n_elements;
  struct element element = {.line = r->line, .sw = -1};
  int at = copse_index_map_find(&r->ids, guid, r->elements, sizeof *r->elements,
                                offsetof(struct element, guid));
  if (at < 0) {
    if (n >= COPSE_TOPOLOGY_MAX_NODES) return refuse(r, "more elements than a topology can have");
    COPSE_DO(copse_arena_text(&r->map->arena, guid, &element.guid, r->err));
    COPSE_DO(copse_grow(&r->elements, &r->element_capacity, n + 1, sizeof element, r->err));
    COPSE_DO(copse_index_map_add(&r->ids, copse_key_text(guid), (int)n, r->err));
    r->elements[at = r->n_elements++] = element;
  }
  if (about && !r->elements[at].about)
    COPSE_DO(copse_arena_text(&r->map->arena, about, &r->elements[at].about, r->err));
  *out = at;
  return COPSE_OK;
}

/* Reads the line of a Switch, Ca or Rt, which begins a section; routers lead out of the fabric and
 * are left out. */
static copse_status read_section(struct reader *r, char *line) {
  char *p = line, *guid = next_quoted(&p);
  if (!guid || (strncmp(guid, "S-", 2) != 0 && strncmp(guid, "H-", 2) != 0)) {
    r->current = -1;
    return COPSE_OK;
  }
  return intern(r, guid, next_quoted(&p), &r->current);
}

static bool read_port(const char *p, int *port) {
  int64_t v = 0;
  bool good = *p++ == '[' && copse_text_number(&p, 9, &v);
  *port = (int)v;
  return good && v < 1 << 16;
}

/* Reads a port's line. On an adapter's line the lid comes first, and the quoted text names the
 * switch. */
static copse_status read_cable(struct reader *r, char *line) {
  struct cable cable = {.a = r->current, .line = r->line};
  char *p = line, *guid = next_quoted(&p);
  if (!guid || !read_port(line, &cable.a_port) || !read_port(p, &cable.b_port))
    return refuse(r, "a port's line is such as [1] \"S-0002c902004049f8\"[20] # \"leaf1\" 4xHDR");
  if (strncmp(guid, "S-", 2) != 0 && strncmp(guid, "H-", 2) != 0) return COPSE_OK;
  p = strchr(p, '#');
  if (!p) return refuse(r, "a port's line without its comment, which says the speed");
  char *quoted = strrchr(p, '"'), *about = next_quoted(&p);
  COPSE_DO(intern(r, guid, about, &cable.b));
  COPSE_DO(read_speed(r, about ? quoted + 1 : p, &cable.bandwidth));
  if (cable.a > cable.b || (cable.a == cable.b && cable.a_port > cable.b_port)) {
    int node = cable.a, port = cable.a_port;
    cable.a = cable.b, cable.a_port = cable.b_port;
    cable.b = node, cable.b_port = port;
  }
  if (r->n_cables >= COPSE_TOPOLOGY_MAX_LINKS) return refuse(r, "more ports than links can be");
  return COPSE_PUSH(r->cables, r->n_cables, r->cable_capacity, r->err, cable);
}

static copse_status read_lines(struct reader *r, struct copse_lines *lines) {
  r->current = -1;
  for (char *line; (line = copse_lines_next(lines));) {
    r->line = lines->line;
    if (strncmp(line, "Switch", 6) == 0 || strncmp(line, "Ca", 2) == 0 ||
        strncmp(line, "Rt", 2) == 0)
      COPSE_DO(read_section(r, line));
    else if (line[0] == '[' && r->current >= 0)
      COPSE_DO(read_cable(r, line));
  }
  return COPSE_OK;
}

/* ---- the map -------------------------------------------------------------------------------- */

COPSE_ORDER(compare_cables, struct cable,
            COPSE_UP(a) ?: COPSE_UP(a_port) ?: COPSE_UP(b) ?: COPSE_UP(b_port))

/* Adds the switches: one is called by its text, "MF0;leaf1:MQM8700/U1", if no switch before it was;
 * else by its guid. */
static copse_status add_switches(struct reader *r) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map names = {0};
  for (int i = 0; i < r->n_elements; i++) {
    struct element *e = &r->elements[i];
    struct copse_fabric_map *map = r->map;
    size_t cursor = 0, n = (size_t)map->n_switches;
    if (e->guid[0] != 'S') continue;
    uint64_t key = e->about ? copse_key_text(e->about) : 0;
    bool free_name = e->about && e->about[0] && strlen(e->about) < 100 &&
                     copse_index_map_next(&names, key, &cursor) < 0;
    if (free_name) COPSE_DO(copse_index_map_add(&names, key, i, r->err));
    COPSE_DO(COPSE_GROW_IN(&map->arena, map->switches, map->switch_capacity, n + 1, r->err));
    map->switches[n] =
        (struct copse_map_switch){.id = free_name ? e->about : e->guid, .line = e->line};
    e->sw = map->n_switches++;
  }
  return COPSE_OK;
}

/* Adds an adapter's port; its text "node01 mlx5_0" is the host, and its device. */
static copse_status add_port(struct reader *r, const struct element *adapter, int sw,
                             const struct cable *cable) {
  struct copse_fabric_map *map = r->map;
  if (!adapter->about || !adapter->about[0]) return COPSE_OK;
  char *host = copse_arena_strdup(&map->arena, adapter->about);
  if (!host) return copse_fail_nomem(r->err);
  char *device = host + strcspn(host, " ");
  if (*device) *device++ = '\0';
  device[strcspn(device, " ")] = '\0';
  struct copse_map_port port = {host, *device ? device : adapter->guid, sw, cable->bandwidth,
                                cable->line};
  return copse_fabric_map_add_port(map, port, r->err);
}

static copse_status add_cables(struct reader *r) {
  struct copse_fabric_map *map = r->map;
  COPSE_SORT(r->cables, r->n_cables, compare_cables);
  for (int i = 0; i < r->n_cables; i++) {
    const struct cable *cable = &r->cables[i];
    const struct element *a = &r->elements[cable->a], *b = &r->elements[cable->b];
    if (i > 0 && compare_cables(cable, cable - 1) == 0) continue;
    if (a == b) continue; /* a loopback plug */
    if (a->sw < 0 && b->sw < 0) continue;
    struct copse_map_cable joined = {a->sw, b->sw, cable->bandwidth};
    COPSE_DO(a->sw < 0   ? add_port(r, a, b->sw, cable)
             : b->sw < 0 ? add_port(r, b, a->sw, cable)
                         : copse_fabric_map_add_cable(map, joined, r->err));
  }
  return COPSE_OK;
}

static void release(struct reader *r) {
  copse_index_map_free(&r->ids);
  free(r->elements);
  free(r->cables);
}

copse_status copse_read_ibnetdiscover(const char *file, const char *data, size_t size,
                                      struct copse_fabric_map *map, struct copse_err *err) {
  COPSE_AT_END(release) struct reader r = {.file = file, .err = err, .map = map};
  COPSE_AT_END(copse_lines_free) struct copse_lines lines = {0};
  COPSE_DO(copse_lines_open(file, data, size, &lines, err));
  COPSE_DO(read_lines(&r, &lines));
  COPSE_DO(add_switches(&r));
  COPSE_DO(add_cables(&r));
  if (map->n_switches == 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                         "no switch in it; ibnetdiscover prints lines such as Switch 40 \"S-..\"");
  return COPSE_OK;
}
