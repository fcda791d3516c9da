#include "topology/fabric/map.h"

#include <stdlib.h>
#include <string.h>

#include "topology/fabric/fabric.h"

void copse_fabric_map_free(struct copse_fabric_map *map) {
  free(map->switches);
  free(map->ports);
  free(map->cables);
  copse_arena_free(&map->arena);
  *map = (struct copse_fabric_map){0};
}

struct plugging {
  const struct copse_composer *c;
  const struct copse_fabric_map *map;
  int *first_port; /* [n_hosts + 1] into c->ports */
  bool *taken;     /* [n_ports] of the map */
  int first_switch;
};

/* A host's ports in the map, which stand together. */
struct rows {
  int first, n;
};

/* "mlx5_10" comes behind "mlx5_9". */
static int natural_order(const char *a, const char *b) {
  while (*a && *b) {
    size_t m = strspn(a, "0123456789"), n = strspn(b, "0123456789");
    if (m > 0 && n > 0) {
      if (m != n) return m < n ? -1 : 1;
      int order = memcmp(a, b, m);
      if (order != 0) return order;
      a += m;
      b += n;
    } else if (*a != *b) {
      break;
    } else {
      a++;
      b++;
    }
  }
  return (unsigned char)*a - (unsigned char)*b;
}

static int compare_ports(const void *x, const void *y) {
  const struct copse_map_port *a = x, *b = y;
  int order = strcmp(a->host, b->host);
  if (order == 0) order = natural_order(a->device, b->device);
  return order ? order : (a->line > b->line) - (a->line < b->line);
}

void copse_fabric_map_sort(struct copse_fabric_map *map) {
  if (map->n_ports > 0) qsort(map->ports, (size_t)map->n_ports, sizeof *map->ports, compare_ports);
}

static struct rows find_rows(const struct copse_fabric_map *map, const char *host) {
  int low = 0, high = map->n_ports;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(map->ports[middle].host, host) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  struct rows rows = {low, 0};
  while (low + rows.n < map->n_ports && strcmp(map->ports[low + rows.n].host, host) == 0) rows.n++;
  return rows;
}

/* The row of this device; device NULL: the next one that is free. -1: none. */
static int find_row(const struct plugging *p, struct rows rows, const char *device) {
  for (int i = rows.first; i < rows.first + rows.n; i++)
    if (!p->taken[i] && (!device || strcmp(p->map->ports[i].device, device) == 0)) return i;
  return -1;
}

static copse_status plug(struct plugging *p, struct copse_port *port, int row) {
  const struct copse_map_port *end = &p->map->ports[row];
  if (end->bandwidth.num > 0) port->bandwidth = end->bandwidth;
  p->taken[row] = end->device[0] != '\0'; /* a host as a whole takes all of its cables */
  return copse_fabric_plug(p->c, port, p->first_switch + end->sw);
}

/* "mlx5_0" of "net@mlx5_0". */
static const char *device_of(const struct copse_port *port) {
  const char *at = strrchr(port->id, '@');
  return at ? at + 1 : port->id;
}

/* By the names of devices if the host's topology knows them all, else in order. */
static copse_status plug_host(struct plugging *p, int h, const char *name, long line) {
  struct copse_port *ports = p->c->ports + p->first_port[h];
  int n = p->first_port[h + 1] - p->first_port[h];
  struct rows rows = find_rows(p->map, name);
  bool named = true;
  if (rows.n == 0 || p->taken[rows.first])
    return copse_fail_at(p->c->err, COPSE_BAD_INPUT, p->c->file, line, "host \"%.80s\" is %s", name,
                         rows.n ? "named twice" : "not in the fabric's file");
  for (int i = 0; i < n && named; i++) named = find_row(p, rows, device_of(&ports[i])) >= 0;
  bool whole = p->map->ports[rows.first].device[0] == '\0';
  if (!named && !whole && rows.n != n)
    return copse_fail_at(p->c->err, COPSE_BAD_INPUT, p->c->file, line,
                         "host \"%.80s\" has %d ports in the fabric's file and %d NICs in its "
                         "topology, whose ids don't name the devices; they can't be told apart",
                         name, rows.n, n);
  copse_status status = COPSE_OK;
  for (int i = 0; i < n && status == COPSE_OK; i++) {
    int row = find_row(p, rows, named ? device_of(&ports[i]) : NULL);
    if (row < 0) row = rows.first; /* two ports of one name in the host */
    status = plug(p, &ports[i], row);
  }
  p->taken[rows.first] = true;
  return status;
}

static copse_status plug_hosts(struct plugging *p) {
  const struct copse_composer *c = p->c;
  int h = 0;
  copse_status status = COPSE_OK;
  for (int g = 0; g < c->n_groups; g++)
    for (int i = 0; i < c->groups[g].count; i++, h++)
      COPSE_TRY(plug_host(p, h, c->groups[g].names[i], c->groups[g].line));
out:
  return status;
}

/* ---- cables between switches -------------------------------------------------------------- */

/*
 * A tree without speeds: what is plugged in below a switch, by the whole file (a job's hosts
 * may be few of them), divided by the oversubscription, goes up. Switches whose children are
 * all done come next; the file's cables make a forest, so that every one comes.
 */
static copse_status size_tree(const struct plugging *p, struct copse_q *up) {
  const struct copse_fabric_map *map = p->map;
  const struct copse_fabric *fabric = p->c->fabric;
  struct copse_err *err = p->c->err;
  int *parent = NULL, *waiting = NULL, *queue = NULL, head = 0, tail = 0;
  size_t n = (size_t)map->n_switches;
  struct copse_q host, sum;
  copse_status status;
  COPSE_TRY(copse_calloc(n, sizeof *parent, &parent, err));
  COPSE_TRY(copse_calloc(n, sizeof *waiting, &waiting, err));
  COPSE_TRY(copse_calloc(n, sizeof *queue, &queue, err));
  COPSE_TRY(copse_q_mul(fabric->bandwidth, (struct copse_q){p->c->n_places, 1}, &host, err));
  for (size_t i = 0; i < n; i++) parent[i] = -1, up[i] = COPSE_Q_ZERO;
  for (int i = 0; i < map->n_cables; i++) {
    parent[map->cables[i].a] = map->cables[i].b;
    waiting[map->cables[i].b]++;
  }
  for (int i = 0; i < map->n_ports; i++)
    COPSE_TRY(copse_q_add(up[map->ports[i].sw], host, &up[map->ports[i].sw], err));
  for (int i = 0; i < map->n_switches; i++)
    if (waiting[i] == 0) queue[tail++] = i;
  while (head < tail) {
    int i = queue[head++], above = parent[i];
    COPSE_TRY(copse_q_div(up[i], fabric->oversubscription, &up[i], err));
    if (above < 0) continue;
    COPSE_TRY(copse_q_add(up[above], up[i], &sum, err));
    up[above] = sum;
    if (--waiting[above] == 0) queue[tail++] = above;
  }
out:
  free(parent);
  free(waiting);
  free(queue);
  return status;
}

static copse_status join_switches(const struct plugging *p) {
  const struct copse_fabric_map *map = p->map;
  struct copse_q *up = NULL;
  copse_status status = COPSE_OK;
  bool sized = map->n_cables > 0 && map->cables[0].bandwidth.num > 0;
  if (!sized) {
    COPSE_TRY(copse_calloc((size_t)map->n_switches, sizeof *up, &up, p->c->err));
    COPSE_TRY(size_tree(p, up));
  }
  for (int i = 0; i < map->n_cables; i++) {
    const struct copse_map_cable *cable = &map->cables[i];
    struct copse_q bandwidth = sized ? cable->bandwidth : up[cable->a];
    if (bandwidth.num == 0) continue; /* a branch of the tree without hosts */
    COPSE_TRY(
        copse_fabric_join(p->c, p->first_switch + cable->a, p->first_switch + cable->b, bandwidth));
  }
out:
  free(up);
  return status;
}

copse_status copse_fabric_add_map(const struct copse_composer *c) {
  struct plugging p = {.c = c, .map = c->fabric->map};
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)c->n_hosts + 1, sizeof *p.first_port, &p.first_port, c->err));
  COPSE_TRY(copse_calloc((size_t)p.map->n_ports, sizeof *p.taken, &p.taken, c->err));
  for (int i = 0; i < c->n_ports; i++) p.first_port[c->ports[i].host + 1] = i + 1;
  for (int i = 0; i < p.map->n_switches; i++)
    COPSE_TRY(
        copse_fabric_add_switch(c, i == 0 ? &p.first_switch : NULL, "%s", p.map->switches[i].id));
  COPSE_TRY(plug_hosts(&p));
  status = join_switches(&p);
out:
  free(p.first_port);
  free(p.taken);
  return status;
}
