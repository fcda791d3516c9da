/*
 * Where a topology comes from: a file, a name of the catalogue ("dgx-a100" becomes the path of a
 * file in one of its folders) or memory, its format told by the content. The first byte tells XML
 * ('<') from JSON ('{'); text goes by words that only one tool prints. docs/formats.md has all.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "topology/input/profile.h"
#include "topology/input/readers.h"

static const char *const endings[] = {".json", ".xml", ".txt"};
#define N_ENDINGS (sizeof endings / sizeof *endings)

/* Whether the text may be a name of the catalogue. */
static bool is_bare_name(const char *path) {
  return path[0] && path[0] != '.' && strcmp(path, "-") != 0 && !strchr(path, '/');
}

copse_status copse_catalogue_path(const char *name, const char *const *folders, char **out,
                                  struct copse_err *err) {
  *out = NULL;
  if (!is_bare_name(name)) return COPSE_OK;
  for (; folders && *folders; folders++)
    for (size_t i = 0; i < N_ENDINGS; i++) {
      if (asprintf(out, "%s/%s%s", *folders, name, endings[i]) < 0) {
        *out = NULL;
        return copse_fail_nomem(err);
      }
      if (access(*out, F_OK) == 0) return COPSE_OK;
      free(*out);
      *out = NULL;
    }
  return COPSE_OK;
}

copse_status copse_catalogue_find(const char *path, const char *const *folders, char **out,
                                  struct copse_err *err) {
  bool is_file = strcmp(path, "-") == 0 || access(path, F_OK) == 0;
  *out = NULL;
  if (!is_file) COPSE_DO(copse_catalogue_path(path, folders, out, err));
  if (!*out) *out = strdup(path);
  return *out ? COPSE_OK : copse_fail_nomem(err);
}

/* Refuses what is neither a file nor a name of the catalogue. */
static copse_status refuse_name(const char *name, const char *const *folders,
                                struct copse_err *err) {
  struct copse_catalogue catalogue;
  struct copse_near_name near = {.given = name};
  if (!folders)
    return copse_fail(err, COPSE_IO,
                      "%s: no such file, and names of the catalogue are not read here: "
                      "copse_topology_named takes them, 'copse topo NAME -o FILE' writes a file",
                      name);
  COPSE_DO(copse_catalogue_list(folders, &catalogue, err));
  for (int i = 0; i < catalogue.n; i++) copse_near_name_consider(&near, catalogue.entries[i].name);
  copse_status status =
      near.name
          ? copse_fail(err, COPSE_IO,
                       "%s: no such file or topology; did you mean %s (copse topo --list)?", name,
                       near.name)
          : copse_fail(err, COPSE_IO,
                       "%s: no such file, nor a topology that 'copse topo --list' shows", name);
  copse_catalogue_free(&catalogue);
  return status;
}

/* ---- the list ------------------------------------------------------------------------------ */

void copse_catalogue_free(struct copse_catalogue *catalogue) {
  free(catalogue->entries);
  copse_arena_free(&catalogue->arena);
  *catalogue = (struct copse_catalogue){0};
}

static size_t ending_length(const char *file) {
  size_t n = strlen(file);
  for (size_t i = 0; i < N_ENDINGS; i++) {
    size_t m = strlen(endings[i]);
    if (file[0] != '.' && n > m && strcmp(file + n - m, endings[i]) == 0) return m;
  }
  return 0;
}

static bool has(const struct copse_catalogue *catalogue, const char *file, size_t n) {
  for (int i = 0; i < catalogue->n; i++) {
    const char *name = catalogue->entries[i].name;
    if (strlen(name) == n && memcmp(name, file, n) == 0) return true;
  }
  return false;
}

static copse_status add(struct copse_catalogue *catalogue, const char *folder, const char *file,
                        struct copse_err *err) {
  size_t ending = ending_length(file), n = strlen(file) - ending;
  struct copse_arena *arena = &catalogue->arena;
  if (ending == 0 || has(catalogue, file, n)) return COPSE_OK;
  struct copse_catalogue_entry entry = {copse_arena_printf(arena, "%.*s", (int)n, file),
                                        copse_arena_printf(arena, "%s/%s", folder, file)};
  if (!entry.name || !entry.path) return copse_fail_nomem(err);
  COPSE_DO(COPSE_PUSH(catalogue->entries, catalogue->n, catalogue->capacity, err, entry));
  return COPSE_OK;
}

COPSE_ORDER(by_name, struct copse_catalogue_entry, strcmp(a->name, b->name))

copse_status copse_catalogue_list(const char *const *folders, struct copse_catalogue *out,
                                  struct copse_err *err) {
  copse_status status = COPSE_OK;
  *out = (struct copse_catalogue){0};
  for (; folders && *folders && status == COPSE_OK; folders++) {
    DIR *dir = opendir(*folders);
    for (struct dirent *e; dir && status == COPSE_OK && (e = readdir(dir));)
      status = add(out, *folders, e->d_name, err);
    if (dir) closedir(dir);
  }
  COPSE_SORT(out->entries, out->n, by_name);
  if (status != COPSE_OK) copse_catalogue_free(out);
  return status;
}

void copse_note_unused_options(const struct copse_input *in, const char *what, unsigned used) {
  const struct copse_topology_options *o = in->options;
  if (o->links != COPSE_LINKS_DEFAULT && !(used & COPSE_USES_LINKS))
    copse_note(o->notes, "%s: --links has no effect on %s, which says its links itself", in->label,
               what);
  if (o->nvlink_switch.num != 0 && !(used & COPSE_USES_NVLINK_SWITCH))
    copse_note(o->notes, "%s: --nvlink-switch has no effect on %s; it is for XML", in->label, what);
  if (o->gpu && !(used & COPSE_USES_GPU))
    copse_note(o->notes, "%s: --gpu has no effect on %s; it is for matrices", in->label, what);
}

static const struct copse_topology_options default_options;

bool copse_link_mode_from_name(const char *name, enum copse_link_mode *out) {
  static const char *const names[] = {[COPSE_LINKS_DEFAULT] = "default",
                                      [COPSE_LINKS_NVLINK] = "nvlink",
                                      [COPSE_LINKS_ALL] = "all"};
  int mode = COPSE_LINKS_ALL;
  while (mode >= 0 && strcmp(names[mode], name) != 0) mode--;
  if (mode >= 0) *out = (enum copse_link_mode)mode;
  return mode >= 0;
}

/* Returns the first byte after blanks and a byte order mark, or 0. */
static char first_byte(const char *data, size_t size) {
  size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a BOM */
  while (at < size && data[at] != '\0' && strchr(" \t\r\n", data[at])) at++;
  return at < size ? data[at] : '\0';
}

static bool is_blank(const char *data, size_t size) {
  return first_byte(data, size) == '\0' && memchr(data, '\0', size) == NULL;
}

static bool contains(const struct copse_input *in, const char *text) {
  return memmem(in->data, in->size, text, strlen(text)) != NULL;
}

/* Recognises what tools print; refuses fabrics, which have no GPUs. */
static copse_status parse_text(const struct copse_input *in, struct copse_topology **out,
                               struct copse_err *err) {
  bool slurm = contains(in, "SwitchName="), ib = contains(in, "switchguid=");
  bool matrix = false;
  if (copse_is_nccl_tree(in)) return copse_read_nccl_tree(in, out, err);
  if (contains(in, "between two GPUs")) return copse_read_matrix(in, true, out, err);
  COPSE_DO(copse_find_nvidia_smi(in, &matrix, err));
  if (matrix) return copse_read_matrix(in, false, out, err);
  if (slurm || ib)
    return copse_fail_at(err, COPSE_BAD_INPUT, in->label, 1,
                         "%s, which is a fabric without its hosts; name it in cluster JSON: "
                         "\"fabric\": {\"type\": \"%s\", \"file\": ..}",
                         slurm ? "Slurm's topology.conf" : "the output of ibnetdiscover",
                         slurm ? "slurm" : "ibnetdiscover");
  return copse_fail_at(err, COPSE_BAD_INPUT, in->label, 1,
                       "neither topology JSON (which begins with '{') nor NCCL topology XML "
                       "(which begins with '<') nor what nvidia-smi topo -m or rocm-smi "
                       "--showtopo print");
}

/* ---- what is surely mistyped ---------------------------------------------------------------- */

/* GB/s. Slower than 8 Mb/s, or faster than any link that there is: another unit was meant. NICs of
 * 200 Gb/s and more, typed as GB/s, have 1.6 Tb/s or more. A port has up to twice what its slot
 * takes in real hosts (400 Gb/s on PCIe Gen4), Gb/s typed for GB/s at least three times. */
static const struct copse_q least_link = {1, 1000}, most_link = {100000, 1}, most_nic = {200, 1},
                            most_over_slot = {5, 2};

/* One kind of oddity: the first of it, and how many there are. */
struct oddity {
  int first, second, n; /* node, or link's nodes */
  struct copse_q GBps, than;
};

static void meet(struct oddity *it, const struct copse_link *link, struct copse_q than) {
  if (it->n++ == 0) *it = (struct oddity){link->src, link->dst, 1, link->bandwidth, than};
}

static void note_oddity(const struct copse_input *in, const struct copse_topology *t,
                        const struct oddity *it, const char *before, const char *after,
                        const char *mistake) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  if (it->n == 0) return;
  copse_text_add(&text, "%s: %s -> %s has %.6g GB/s", in->label, t->nodes[it->first].id,
                 t->nodes[it->second].id, copse_q_to_double(it->GBps));
  if (it->n > 1) copse_text_add(&text, " (and %d link%s alike)", it->n - 1, COPSE_S(it->n - 1));
  if (*before) copse_text_add(&text, ", %s %.6g", before, copse_q_to_double(it->than));
  copse_text_add(&text, "%s%s", after, mistake);
  if (text.data && !text.failed) copse_note(in->options->notes, "%s", text.data);
}

static bool is_word(const char *type, const char *const *words) {
  while (*words && strcmp(type, *words) != 0) words++;
  return *words != NULL;
}

/* A port's links to parts of its host, as many as 64 bits hold. */
struct slot {
  struct copse_q GBps;
  int n;
};

/* Whether the port's cable is too fast for its slot; not where 64 bits don't say. */
static bool is_too_wide(const struct copse_link *cable, const struct slot *slot) {
  struct copse_q most;
  return slot->n > 0 && copse_q_mul(slot->GBps, most_over_slot, &most, NULL) == COPSE_OK &&
         copse_q_cmp(cable->bandwidth, most) > 0;
}

static copse_status note_speeds(const struct copse_input *in, const struct copse_topology *t,
                                struct copse_err *err) {
  static const char *const of_host[] = {"gpu", "nvswitch", "pcie", "cpu", "nic", NULL};
  static const char *const ports[] = {"nic", "net", NULL};
  struct oddity slow = {0}, fast = {0}, wide = {0}, nic = {0};
  COPSE_AT_END(copse_free_at) struct slot *slots = NULL;
  COPSE_DO(copse_calloc((size_t)t->n_nodes, sizeof *slots, &slots, err));
  for (int v = 0; v < t->n_nodes; v++) slots[v].GBps = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    struct slot *slot = &slots[l->src];
    if (is_word(t->nodes[l->dst].type, of_host) &&
        copse_q_add(slot->GBps, l->bandwidth, &slot->GBps, NULL) == COPSE_OK)
      slot->n++;
  }
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    const struct slot *slot = &slots[l->src];
    bool cable = is_word(t->nodes[l->src].type, ports) &&
                 !is_word(t->nodes[l->dst].type, of_host) &&
                 strcmp(t->nodes[l->dst].type, "net") != 0;
    if (copse_q_cmp(l->bandwidth, least_link) < 0) meet(&slow, l, COPSE_Q_ZERO);
    if (copse_q_cmp(l->bandwidth, most_link) > 0)
      meet(&fast, l, COPSE_Q_ZERO);
    else if (cable && is_too_wide(l, slot))
      meet(&wide, l, slot->GBps);
    else if (cable && copse_q_cmp(l->bandwidth, most_nic) >= 0)
      meet(&nic, l, COPSE_Q_ZERO);
  }
  const char *gigabits = "; Gb/s typed for GB/s? 400 Gb/s are 50 GB/s";
  const char *unit = "; bandwidth is in GB/s (10^9 bytes per second)";
  note_oddity(in, t, &slow, "", ", less than 8 Mb/s", unit);
  note_oddity(in, t, &fast, "", ", more than any link", unit);
  note_oddity(in, t, &wide, "and its NIC", " GB/s within the host", gigabits);
  note_oddity(in, t, &nic, "", ", 1.6 Tb/s or more", gigabits);
  return COPSE_OK;
}

/* Notes types of nodes that differ only by capital letters from types that commands know. */
static void note_types(const struct copse_input *in, const struct copse_topology *t) {
  static const char *const known[] = {"gpu", "nvswitch", "pcie", "cpu", "nic", "net", "switch"};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    int first = -1, n = 0;
    for (int i = t->n_nodes - 1; i >= 0; i--) {
      const char *type = t->nodes[i].type;
      if (strcasecmp(type, known[k]) != 0 || strcmp(type, known[k]) == 0) continue;
      first = i;
      n++;
    }
    if (n == 0) continue;
    copse_note(in->options->notes,
               "%s: %d node%s, %.80s first, ha%s type \"%.40s\", a relay as any "
               "unknown type is: write \"%s\"",
               in->label, n, COPSE_S(n), t->nodes[first].id, n == 1 ? "s" : "ve",
               t->nodes[first].type, known[k]);
  }
}

/* Notes likely mistakes in what people write; what machines print is as it is. Once for a cluster,
 * whose hosts are in it. */
static copse_status note_mistakes(const struct copse_input *in, const struct copse_topology *t,
                                  struct copse_err *err) {
  if (in->depth > 0 || !in->options->notes) return COPSE_OK;
  note_types(in, t);
  return note_speeds(in, t, err);
}

static copse_status parse_json(const struct copse_input *in, struct copse_topology **out,
                               struct copse_err *err) {
  COPSE_DO(copse_read_topology_json(in, out, err));
  return note_mistakes(in, *out, err);
}

/* ---- formats -------------------------------------------------------------------------------- */

static copse_status parse(const struct copse_input *in, struct copse_topology **out,
                          struct copse_err *err) {
  switch (first_byte(in->data, in->size)) {
    case '<': return copse_read_nccl_xml(in, out, err);
    case '{': return parse_json(in, out, err);
    case '[': /* JSON, or an escape sequence that lost its ESC in copying: "[4mGPU0", or a time */
      if (!contains(in, "[4m") && !copse_is_nccl_tree(in))
        return copse_read_topology_json(in, out, err);
      break;
    default: break;
  }
  if (is_blank(in->data, in->size))
    return copse_fail_at(err, COPSE_BAD_INPUT, in->label, 1,
                         "empty, where topology JSON or NCCL topology XML was expected");
  return parse_text(in, out, err);
}

/* Applies the profile's rules, which are for the whole topology, not for its hosts. */
static copse_status finish(copse_status status, const struct copse_topology_options *options,
                           struct copse_topology **out, struct copse_err *err) {
  if (status == COPSE_OK && options->profile)
    status = copse_profile_apply(options->profile, options->notes, out, err);
  if (status != COPSE_OK) {
    copse_topology_free(*out);
    *out = NULL;
  }
  return status;
}

copse_status copse_topology_parse(const char *label, const char *data, size_t size,
                                  const struct copse_topology_options *options,
                                  struct copse_topology **out, struct copse_err *err) {
  if (!options) options = &default_options;
  const struct copse_input in = {label, data, size, options, 0};
  *out = NULL;
  return finish(parse(&in, out, err), options, out, err);
}

copse_status copse_topology_load_at(const char *path, const struct copse_topology_options *options,
                                    int depth, struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL, *file = NULL;
  size_t size = 0;
  *out = NULL;
  COPSE_DO(copse_catalogue_find(path, options->catalogue, &file, err));
  if (is_bare_name(path) && strcmp(file, path) == 0 && access(path, F_OK) != 0)
    return refuse_name(path, options->catalogue, err);
  COPSE_DO(copse_file_read(file, &data, &size, err));
  const struct copse_input in = {copse_file_label(file), data, size, options, depth};
  return parse(&in, out, err);
}

static copse_status make_synthetic(const char *spec, const struct copse_topology_options *options,
                                   struct copse_topology **out, struct copse_err *err) {
  const struct copse_input in = {.label = "--synthetic", .options = options};
  COPSE_AT_END(copse_builder_free_at) struct copse_topology_builder *builder = NULL;
  COPSE_DO(copse_builder_new(in.label, &builder, err));
  COPSE_DO(copse_builder_set_name(builder, spec, err));
  COPSE_DO(copse_build_synthetic(builder, in.label, 0, spec, options->notes, err));
  COPSE_DO(copse_builder_finish(builder, out, err));
  copse_note_unused_options(&in, "a synthetic line", 0);
  return note_mistakes(&in, *out, err);
}

copse_status copse_topology_synthetic(const char *spec,
                                      const struct copse_topology_options *options,
                                      struct copse_topology **out, struct copse_err *err) {
  if (!options) options = &default_options;
  *out = NULL;
  return finish(make_synthetic(spec, options, out, err), options, out, err);
}

copse_status copse_topology_load(const char *path, const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) {
  if (!options) options = &default_options;
  return finish(copse_topology_load_at(path, options, 0, out, err), options, out, err);
}
