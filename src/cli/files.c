/*
 * Files that commands take and make: of what kind an input is, by its content, and what would be
 * overwritten; folders of plans, and sets of files that are made as a whole. A set is
 * written into a folder beside the one that is asked for, or inside it where that is there already,
 * and put in place by renaming at the end. What is unfinished is removed, also by a signal that
 * ends the program, so that no job loads half a set. And copse's own libraries over MPI and UCX,
 * which are loaded where a command needs them.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "codegen/lower/lower.h"
#include "nccl/reports.h"
#include "runtime/ucx/rendezvous.h"

/* ==== kinds of files ====================================================================== */

/* In the order of the bits; JSON by its "format". */
static const struct {
  const char *name, *format;
} kinds[] = {{"a topology", "copse-topology"},
             {"a profile", "copse-profile"},
             {"a demand matrix", "copse-demand"},
             {"a schedule", "copse-schedule"},
             {"an index of groups", "copse-groups"},
             {"an index of schedules for failures", "copse-failures"},
             {"an index of plans", "copse-plans"},
             {"a plan", NULL},
             {"the text form of a plan", "copse-plan-text"},
             {"an MSCCL program", NULL},
             {"an MSCCL++ plan", NULL},
             {"a certificate of rings", "copse-rings"},
             {"a graph dump of NCCL", NULL},
             {"a log or report of NCCL", NULL},
             {"a routing trace", "copse-trace"},
             {"a placement of experts", "copse-placement"},
             {"a table of compute times", "copse-compute"},
             {"a table of copse quality", NULL},
             {"a picture or page", NULL}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- kinds by content ---------------------------------------------------------------------- */

static bool has(const char *data, size_t size, const char *text) {
  return memmem(data, size, text, strlen(text)) != NULL;
}

/* Returns the kind of what stands after "format":, its version aside. */
static unsigned kind_of_format(const char *name, size_t n) {
  static const char *const others[] = {"copse-cluster", "copse-synthetic"}; /* topologies too */
  for (int i = 0; i < N_KINDS; i++)
    if (kinds[i].format && strlen(kinds[i].format) == n && memcmp(kinds[i].format, name, n) == 0)
      return 1u << i;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strlen(others[i]) == n && memcmp(others[i], name, n) == 0) return COPSE_KIND_TOPOLOGY;
  return COPSE_KIND_UNKNOWN;
}

static unsigned kind_of_json(const char *data, size_t size) {
  static const char key[] = "\"format\"";
  const char *end = data + size, *at = data;
  while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
    at += sizeof key - 1;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at++ != ':') continue;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at++ != '"') continue;
    size_t n = 0;
    while (at + n < end && at[n] && !strchr("/\"", at[n])) n++;
    return kind_of_format(at, n);
  }
  return has(data, size, "\"threadblocks\"") ? COPSE_KIND_MSCCLPP : COPSE_KIND_UNKNOWN;
}

static unsigned kind_of_xml(const char *data, size_t size) {
  static const struct {
    const char *text;
    unsigned kind;
  } marks[] = {{"<algo", COPSE_KIND_MSCCL},
               {"<graphs", COPSE_KIND_GRAPHS},
               {"<system", COPSE_KIND_TOPOLOGY},
               {"<svg", COPSE_KIND_PICTURE},
               {"<html", COPSE_KIND_PICTURE}};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (has(data, size < 4096 ? size : 4096, marks[i].text)) return marks[i].kind;
  return COPSE_KIND_UNKNOWN;
}

enum copse_cli_kind copse_cli_kind_of(const char *data, size_t size) {
  size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  unsigned kind = COPSE_KIND_UNKNOWN;
  if (size >= 8 && memcmp(data, "COPSEPLN", 8) == 0) return COPSE_KIND_PLAN;
  while (at < size && data[at] && strchr(" \t\r\n", data[at])) at++;
  if (at == size || memchr(data, '\0', size)) return COPSE_KIND_UNKNOWN;
  if (data[at] == '<') kind = kind_of_xml(data + at, size - at);
  if (data[at] == '{') kind = kind_of_json(data + at, size - at);
  if (size - at > 15 && memcmp(data + at, "# copse-quality", 15) == 0) return COPSE_KIND_QUALITY;
  if (kind) return (enum copse_cli_kind)kind;
  unsigned theirs = copse_nccl_detect(data, size);
  if (theirs & COPSE_NCCL_IS_TOPOLOGY) return COPSE_KIND_TOPOLOGY;
  if (theirs & (COPSE_NCCL_IS_NVBANDWIDTH | COPSE_NCCL_IS_PROFILE)) return COPSE_KIND_PROFILE;
  return theirs ? COPSE_KIND_LOG : COPSE_KIND_UNKNOWN;
}

/* ---- inputs and outputs of the command line ------------------------------------------------ */

enum { MOST_INPUTS = 64 };
static struct {
  const char *path, *option;
  unsigned kinds;
} inputs[MOST_INPUTS];
static int n_inputs;

/* Puts a file of the same content in place of a pipe. What can't be done is left. */
static void make_stdin_readable_again(void) {
  static char piece[65536];
  struct stat about;
  if (fstat(STDIN_FILENO, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
  int copy = memfd_create("stdin", MFD_CLOEXEC);
  if (copy < 0) return;
  size_t all = 0;
  for (ssize_t n; all <= COPSE_FILE_MAX_BYTES && (n = read(STDIN_FILENO, piece, sizeof piece)) > 0;
       all += (size_t)n)
    for (ssize_t done = 0, m; done < n; done += m)
      if ((m = write(copy, piece + done, (size_t)(n - done))) <= 0) break;
  if (lseek(copy, 0, SEEK_SET) == 0) dup2(copy, STDIN_FILENO);
  close(copy);
}

void copse_cli_expect_kinds(const char *path, unsigned expected, const char *option) {
  if (expected == 0 || n_inputs == MOST_INPUTS) return;
  if (strcmp(path, "-") == 0) make_stdin_readable_again();
  inputs[n_inputs].path = path;
  inputs[n_inputs].kinds = expected;
  inputs[n_inputs++].option = option;
}

static struct {
  const char *path, *option;
} outputs[4];
static int n_outputs;

void copse_cli_note_output(const char *path, const char *option) {
  if (n_outputs == sizeof outputs / sizeof *outputs) return;
  outputs[n_outputs].path = path;
  outputs[n_outputs++].option = option;
}

const char *copse_cli_find_overwritten(const char **input) {
  for (int o = 0; o < n_outputs; o++)
    for (int i = 0; i < n_inputs; i++) {
      struct stat in, out;
      if (stat(outputs[o].path, &out) != 0 || stat(inputs[i].path, &in) != 0) continue;
      if (!S_ISREG(out.st_mode) || in.st_dev != out.st_dev || in.st_ino != out.st_ino) continue;
      *input = inputs[i].path;
      return outputs[o].option;
    }
  return NULL;
}

/* ---- inputs of another kind than expected -------------------------------------------------- */

static unsigned kind_of_file(const char *path) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  struct stat about;
  bool is_stdin = strcmp(path, "-") == 0;
  if (is_stdin ? fstat(STDIN_FILENO, &about) != 0 : stat(path, &about) != 0) return 0;
  if (!S_ISREG(about.st_mode)) return COPSE_KIND_UNKNOWN;
  if (is_stdin && (clearerr(stdin), fseek(stdin, 0, SEEK_SET)) != 0) return COPSE_KIND_UNKNOWN;
  if (copse_file_read(path, &data, &size, NULL) != COPSE_OK) return COPSE_KIND_UNKNOWN;
  return copse_cli_kind_of(data, size);
}

void copse_cli_kinds_add_names(struct copse_line *line, unsigned expected) {
  const char *before = "";
  for (int i = 0; i < N_KINDS; i++) {
    if (!(expected & 1u << i)) continue;
    expected &= ~(1u << i);
    copse_line_add(line, "%s%s", before, kinds[i].name);
    before = expected & (expected - 1) ? ", " : " or ";
  }
}

bool copse_cli_kinds_find_misplaced(struct copse_cli_misplaced *out) {
  for (int i = 0; i < n_inputs; i++) {
    unsigned kind = kind_of_file(inputs[i].path);
    if (kind == COPSE_KIND_UNKNOWN || kind & inputs[i].kinds) continue;
    *out = (struct copse_cli_misplaced){inputs[i].path, inputs[i].option, kind, inputs[i].kinds};
    return true;
  }
  return false;
}

/* Finds the first by name whose content may stand in place of the folder. */
static void find_inside(const char *folder, unsigned expected, char inside[256]) {
  struct dirent **entries = NULL;
  char path[PATH_MAX];
  int n = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    const char *name = entries[i]->d_name;
    bool fits = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path;
    if (!*inside && fits && kind_of_file(path) & expected) snprintf(inside, 256, "%s", name);
    free(entries[i]);
  }
  free(entries);
}

bool copse_cli_kinds_find_folder(struct copse_cli_misplaced *out, char inside[256]) {
  struct stat about;
  *inside = '\0';
  for (int i = 0; i < n_inputs; i++) {
    if (stat(inputs[i].path, &about) != 0 || !S_ISDIR(about.st_mode)) continue;
    *out = (struct copse_cli_misplaced){inputs[i].path, inputs[i].option, COPSE_KIND_UNKNOWN,
                                        inputs[i].kinds};
    find_inside(inputs[i].path, inputs[i].kinds, inside);
    return true;
  }
  return false;
}

/* ==== folders of files ====------------------------------------------------------------------ */

copse_status copse_cli_make_folder(const char *folder, struct copse_err *err) {
  struct stat about;
  if (mkdir(folder, 0777) == 0) return COPSE_OK;
  int why = errno;
  if (why == EEXIST && stat(folder, &about) == 0 && S_ISDIR(about.st_mode)) return COPSE_OK;
  return copse_fail_at(err, COPSE_IO, folder, 0, "cannot be made a folder: %s", strerror(why));
}

static int is_plan(const struct dirent *entry) {
  return copse_file_ends_with(entry->d_name, ".plan");
}

/* Checks that members are numbers from 0, or null; more digits than a rational holds may be any. */
static copse_status check_numbers(const struct copse_json *json, const cJSON *object,
                                  const char *const names[], struct copse_err *err) {
  for (; *names; names++) {
    const cJSON *item = copse_json_get(object, *names);
    struct copse_err ignored = COPSE_ERR_INIT;
    struct copse_q q = COPSE_Q_ZERO;
    bool is = item && copse_json_is_number(item);
    if (!item || cJSON_IsNull(item)) continue;
    if (is && copse_json_rational(json, item, object, *names, &q, &ignored) != COPSE_OK) continue;
    if (!is || q.num < 0)
      return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(item, object),
                           "\"%s\" must be a number from 0", *names);
  }
  return COPSE_OK;
}

static copse_status check_predicted(const struct copse_json *json, const cJSON *range,
                                    struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"bytes", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "of a message, such as 1024"},
      {"us", COPSE_JSON_NEEDED | COPSE_JSON_ANY, "the plan's time, such as 1.5"},
      {"bound_us", COPSE_JSON_NEEDED | COPSE_JSON_ANY, "no schedule is faster, such as 1.2"},
      {"gap_percent", COPSE_JSON_NEEDED | COPSE_JSON_ANY, "above the bound, such as 25"},
      {0}};
  COPSE_JSON_EACH (item, copse_json_get(range, "predicted")) {
    COPSE_DO(copse_json_expect_object(json, item, range, "one of \"predicted\"", keys, err));
    COPSE_DO(check_numbers(json, item, (const char *const[]){"us", "bound_us", NULL}, err));
  }
  return COPSE_OK;
}

static copse_status read_range(const struct copse_json *json, const cJSON *range,
                               struct copse_cli_indexed *out, struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"collective", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "such as \"allreduce\""},
      {"root", COPSE_JSON_INDEX, "of a broadcast or reduce, the rank"},
      {"min_bytes", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "of the message, such as 0"},
      {"max_bytes", COPSE_JSON_NEEDED | COPSE_JSON_ANY, "such as 9414; null: any"},
      {"plan", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "a file, such as \"allreduce-1.plan\""},
      {"schedule", COPSE_JSON_STRING, "a file, such as \"allreduce-1.json\""},
      {"low_latency", COPSE_JSON_BOOL, "whether it sends packets"},
      {"one_hop", COPSE_JSON_BOOL, "whether each rank sends all to every other one"},
      {"chosen", COPSE_JSON_STRING, "how the schedule was made"},
      {"time_per_GB", COPSE_JSON_NUMBER, "seconds per GB, such as \"1/600\""},
      {"max_height", COPSE_JSON_INDEX, "hops, such as 2"},
      {"mean_height", COPSE_JSON_ANY, "hops, such as 1.5"},
      {"above_fastest", COPSE_JSON_ANY, "a part, such as 0.01"},
      {"fastest", COPSE_JSON_STRING, "how that schedule was made"},
      {"at_bytes", COPSE_JSON_INDEX, "of a message"},
      {"fewer_hops", COPSE_JSON_NUMBER, "such as 1"},
      {"predicted", COPSE_JSON_ARRAY, "such as [{\"bytes\": 1024, \"us\": 1.5, ...}]"},
      {"above_before", COPSE_JSON_ANY, "a part, such as 0.01"},
      {"before_at_bytes", COPSE_JSON_INDEX, "of a message"},
      {"like", COPSE_JSON_ANY, "a plan of before, or null"},
      {"changed_ranks", COPSE_JSON_ARRAY, "ranks, such as [0, 3]"},
      {0}};
  const cJSON *most;
  int64_t min, max = INT64_MAX, root = -1;
  COPSE_DO(copse_json_expect_object(json, range, json->root, "a range", keys, err));
  COPSE_DO(copse_json_get_int(json, range, "min_bytes", 0, INT64_MAX, &min, err));
  most = copse_json_get(range, "max_bytes");
  if (!cJSON_IsNull(most))
    COPSE_DO(copse_json_get_int(json, range, "max_bytes", 0, INT64_MAX, &max, err));
  if (copse_json_get(range, "root"))
    COPSE_DO(copse_json_get_int(json, range, "root", 0, INT32_MAX, &root, err));
  COPSE_DO(check_numbers(
      json, range, (const char *const[]){"mean_height", "above_fastest", "above_before", NULL},
      err));
  COPSE_DO(check_predicted(json, range, err));
  out->line = copse_json_line(range, NULL);
  out->collective = copse_json_text_or(range, "collective", "");
  out->root = (int)root;
  out->min_bytes = (uint64_t)min;
  out->max_bytes = (uint64_t)max;
  return COPSE_OK;
}

/* Gives each plan of the list what the index says of it. */
static copse_status read_ranges(const struct copse_json *json, const char *folder,
                                struct copse_arena *arena, struct copse_cli_listed *list, int n,
                                struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-plans/1\""},
      {"topology", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "its name"},
      {"nranks", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "the number of ranks, such as 8"},
      {"since", COPSE_JSON_STRING, "the folder of the plans of before"},
      {"ranges", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "one for each plan"},
      {0}};
  const cJSON *ranges;
  struct copse_cli_indexed of_all = {.index = copse_arena_printf(arena, "%s/index.json", folder)};
  if (!of_all.index) return copse_fail_nomem(err);
  COPSE_DO(copse_json_expect_format(json, "copse-plans/1", err));
  COPSE_DO(copse_json_expect_object(json, json->root, NULL, "an index of plans", keys, err));
  COPSE_DO(copse_json_get_int(json, json->root, "nranks", 1, INT32_MAX, &of_all.n_ranks, err));
  ranges = copse_json_get(json->root, "ranges");
  if (!copse_json_first(ranges))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(json->root, NULL),
                         "\"ranges\" is empty");
  COPSE_JSON_EACH (range, ranges) {
    struct copse_cli_indexed it = of_all;
    COPSE_DO(read_range(json, range, &it, err));
    const char *plan = copse_json_text_or(range, "plan", "");
    int at = 0;
    while (at < n && strcmp(list[at].name, plan) != 0) at++;
    if (at == n || list[at].indexed.index)
      return copse_fail_at(err, COPSE_BAD_INPUT, json->file, it.line,
                           at < n ? "names %.80s, which has a range already"
                                  : "names %.80s, which is not in the folder: copy it there",
                           plan);
    it.topology = copse_arena_strdup(arena, copse_json_text_or(json->root, "topology", ""));
    it.collective = copse_arena_strdup(arena, it.collective);
    if (!it.topology || !it.collective) return copse_fail_nomem(err);
    list[at].indexed = it;
  }
  return COPSE_OK;
}

#define MEND_INDEX "make the plans again, or remove this file"

/* Reads the folder's index.json, if there is one. An index of another kind is ignored. */
static copse_status read_index(const char *folder, struct copse_arena *arena,
                               struct copse_cli_listed *list, int n, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  COPSE_AT_END(copse_json_free_at) struct copse_json json = {0};
  struct copse_err why = COPSE_ERR_INIT;
  size_t size;
  const char *path = copse_arena_printf(arena, "%s/index.json", folder);
  if (!path) return copse_fail_nomem(err);
  if (access(path, F_OK) != 0) return COPSE_OK;
  COPSE_DO(copse_file_read(path, &data, &size, err));
  if (copse_cli_kind_of(data, size) & (COPSE_KIND_GROUPS | COPSE_KIND_FAILURES)) return COPSE_OK;
  copse_status status = copse_json_parse(path, data, size, &json, &why);
  if (status == COPSE_OK) status = read_ranges(&json, folder, arena, list, n, &why);
  return status == COPSE_OK ? COPSE_OK : copse_fail(err, status, "%.380s; " MEND_INDEX, why.text);
}

copse_status copse_cli_check_indexed(const struct copse_cli_listed *listed,
                                     const struct copse_plan *plan, struct copse_err *err) {
  const struct copse_cli_indexed *it = &listed->indexed;
  const struct copse_plan_header *h = &plan->header;
  const char *collective = copse_collective_name((copse_collective)h->collective);
  const char *wrong = NULL;
  if (!it->index) return COPSE_OK;
  if (strcmp(it->collective, collective) != 0) wrong = "\"collective\"";
  if (it->root != h->root) wrong = "\"root\"";
  if (it->min_bytes != h->min_bytes) wrong = "\"min_bytes\"";
  if (it->max_bytes != h->max_bytes) wrong = "\"max_bytes\"";
  if (it->n_ranks != h->n_ranks) wrong = "\"nranks\"";
  if (strcmp(it->topology, plan->name) != 0) wrong = "\"topology\"";
  return wrong ? copse_fail_at(err, COPSE_BAD_INPUT, it->index, it->line,
                               "%s is not that of %.80s; " MEND_INDEX, wrong, listed->name)
               : COPSE_OK;
}

copse_status copse_cli_list_plans(const char *folder, struct copse_arena *arena,
                                  const struct copse_cli_listed **plans, int *n,
                                  struct copse_err *err) {
  struct dirent **found = NULL;
  struct copse_cli_listed *list = NULL;
  *n = scandir(folder, &found, is_plan, alphasort);
  if (*n < 0) return copse_fail_at(err, COPSE_IO, folder, 0, "cannot be opened");
  copse_status status = COPSE_ARRAY(arena, (size_t)*n + 1, list, err);
  for (int i = 0; i < *n; i++) {
    if (status == COPSE_OK && !(list[i].name = copse_arena_strdup(arena, found[i]->d_name)))
      status = copse_fail_nomem(err);
    free(found[i]);
  }
  free(found);
  if (status == COPSE_OK && *n == 0)
    status = copse_fail_at(err, COPSE_BAD_INPUT, folder, 0,
                           "has no plans (*.plan); 'copse plans TOPO -o FOLDER' makes them");
  *plans = list;
  return status == COPSE_OK ? read_index(folder, arena, list, *n, err) : status;
}

/* Reads a plan's file, or a schedule. */
static copse_status read_plan(struct copse_cli_work *w, const struct copse_lower_options *lower,
                              const char *path, const struct copse_cli_listed *listed,
                              struct copse_cli_plan *out, struct copse_err *err) {
  const char *end = strrchr(path, '.');
  out->schedule = path;
  free(w->data);
  w->data = NULL;
  COPSE_DO(copse_file_read(path, &w->data, &w->size, err));
  if (copse_cli_kind_of(w->data, w->size) == COPSE_KIND_SCHEDULE) {
    COPSE_DO(copse_schedule_load(path, &w->schedule, err));
    COPSE_DO(copse_schedule_expand(w->schedule, err));
    COPSE_DO(copse_lower_schedule(w->schedule, lower, &w->plan, err));
    copse_schedule_free(w->schedule);
    w->schedule = NULL;
  } else {
    COPSE_DO(copse_plan_decode(path, w->data, w->size, &w->plan, err));
    COPSE_DO(copse_cli_check_indexed(listed, w->plan, err));
    out->schedule = copse_arena_printf(&w->arena, "%.*s.json", end ? (int)(end - path) : 0, path);
    if (!out->schedule) return copse_fail_nomem(err);
    if (!end || access(out->schedule, F_OK) != 0) out->schedule = NULL;
  }
  out->header = w->plan->header;
  COPSE_DO(COPSE_ARRAY(&w->arena, out->header.n_ranks, out->parts, err));
  COPSE_DO(copse_plan_digest_parts(w->plan, out->parts, err));
  copse_plan_free(w->plan);
  w->plan = NULL;
  return COPSE_OK;
}

COPSE_ORDER(by_size, struct copse_cli_plan, COPSE_UP(header.max_bytes) ?: strcmp(a->name, b->name))

copse_status copse_cli_read_plans(const char *from, const struct copse_lower_options *lower,
                                  struct copse_cli_work *w, struct copse_cli_plan **plans, int *n,
                                  struct copse_err *err) {
  const char *slash = strrchr(from, '/'), *path;
  const struct copse_cli_listed alone = {.name = slash && slash[1] ? slash + 1 : from},
                                *names = &alone;
  struct copse_cli_plan *list;
  struct stat about;
  bool is_folder = stat(from, &about) == 0 && S_ISDIR(about.st_mode);
  int n_names = 1;
  if (is_folder) COPSE_DO(copse_cli_list_plans(from, &w->arena, &names, &n_names, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)n_names, list, err));
  for (*n = 0; *n < n_names; ++*n) {
    list[*n].name = names[*n].name;
    path = is_folder ? copse_arena_printf(&w->arena, "%s/%s", from, names[*n].name) : from;
    if (!path) return copse_fail_nomem(err);
    COPSE_DO(read_plan(w, lower, path, &names[*n], &list[*n], err));
  }
  COPSE_SORT(list, *n, by_size);
  *plans = list;
  return COPSE_OK;
}

copse_status copse_cli_write_in(const char *folder, const char *name, const void *data, size_t size,
                                struct copse_err *err) {
  struct copse_text path = {0};
  copse_text_add(&path, "%s/%s", folder, name);
  copse_status status = copse_text_status(&path, err);
  if (status == COPSE_OK) status = copse_file_write(path.data, data, size, err);
  copse_text_free(&path);
  return status;
}

/* ---- sets of files ------------------------------------------------------------------------- */

static copse_status refuse_old(const char *folder, const char *suffix, struct copse_err *err) {
  DIR *dir = opendir(folder);
  bool found = false;
  if (!dir) return copse_fail_at(err, COPSE_IO, folder, 0, "cannot be opened");
  for (const struct dirent *it; !found && (it = readdir(dir)) != NULL;)
    found = copse_file_ends_with(it->d_name, suffix);
  closedir(dir);
  return found ? copse_fail_at(err, COPSE_INVALID, folder, 0,
                               "holds plans already, which a job would load as well: name another "
                               "folder or remove them")
               : COPSE_OK;
}

/* Removes what is not in place. Allocates nothing, and is safe in a signal's handler. */
static void remove_made(const struct copse_cli_set *set) {
  char path[PATH_MAX];
  size_t n = set->making ? strlen(set->making) : 0;
  if (n == 0 || n + 1 >= sizeof path) return;
  memcpy(path, set->making, n);
  path[n++] = '/';
  for (const char *name = set->written.data; name && *name; name = strchr(name, '\n') + 1) {
    size_t length = strcspn(name, "\n");
    if (n + length >= sizeof path) continue;
    memcpy(path + n, name, length);
    path[n + length] = '\0';
    unlink(path);
  }
  rmdir(set->making);
}

/* The set that signals remove before they end the program. They wait while it is changed. */
static const struct copse_cli_set *unfinished;

static void remove_and_end(int signal) { /* whose default is restored */
  if (unfinished) remove_made(unfinished);
  raise(signal);
}

/* Catches the signals that end the program; one that is ignored (nohup) stays so. */
static void catch_endings(const struct copse_cli_set *set) {
  struct sigaction is, catching = {.sa_handler = remove_and_end, .sa_flags = (int)SA_RESETHAND};
  unfinished = set;
  for (const int *it = copse_file_endings; *it; it++)
    if (sigaction(*it, NULL, &is) == 0 && is.sa_handler == SIG_DFL) sigaction(*it, &catching, NULL);
}

static copse_status begin_set(const char *output, const char *suffix, struct copse_cli_set *set,
                              struct copse_err *err) {
  size_t n = strlen(output);
  mode_t mask = umask(0);
  umask(mask);
  while (n > 1 && output[n - 1] == '/') n--;
  set->output = output;
  set->exists = access(output, F_OK) == 0;
  if (set->exists) COPSE_DO(copse_cli_make_folder(output, err)); /* refuses a file of this name */
  if (set->exists) COPSE_DO(refuse_old(output, suffix, err));
  set->making = copse_arena_printf(&set->arena, "%.*s%s.making-XXXXXX", (int)n, output,
                                   set->exists ? "/" : "");
  if (!set->making) return copse_fail_nomem(err);
  char *made = mkdtemp(set->making);
  if (made && chmod(made, 0777 & ~mask) == 0) return COPSE_OK;
  if (!made) set->making = NULL;
  return copse_fail_at(err, COPSE_IO, output, 0, "cannot be made a folder: %s", strerror(errno));
}

copse_status copse_cli_set_begin(const char *output, const char *suffix, struct copse_cli_set *set,
                                 struct copse_err *err) {
  sigset_t before = copse_file_hold_endings();
  copse_status status = begin_set(output, suffix, set, err);
  if (status == COPSE_OK) catch_endings(set);
  copse_file_release_endings(&before);
  return status;
}

copse_status copse_cli_set_add(struct copse_cli_set *set, const char *name, const void *data,
                               size_t size, struct copse_err *err) {
  sigset_t before = copse_file_hold_endings();
  copse_status status = copse_cli_write_in(set->making, name, data, size, err);
  if (status == COPSE_OK) copse_text_add(&set->written, "%s\n", name);
  copse_file_release_endings(&before);
  return status == COPSE_OK ? copse_text_status(&set->written, err) : status;
}

/* Returns the path of a file in a folder, where names end in '\n'; NULL when memory ran out. */
static const char *path_in(struct copse_cli_set *set, const char *folder, const char *name) {
  return copse_arena_printf(&set->arena, "%s/%.*s", folder, (int)strcspn(name, "\n"), name);
}

static copse_status cannot_place(const struct copse_cli_set *set, struct copse_err *err) {
  return copse_fail_at(err, COPSE_IO, set->output, 0, "cannot be put in place: %s",
                       strerror(errno));
}

/* Moves all files up; where one fails, those moved before are removed. */
static copse_status move_up(struct copse_cli_set *set, struct copse_err *err) {
  const char *name = set->written.data;
  copse_status status = COPSE_OK;
  while (status == COPSE_OK && *name) {
    const char *from = path_in(set, set->making, name), *to = path_in(set, set->output, name);
    if (!from || !to)
      status = copse_fail_nomem(err);
    else if (rename(from, to) != 0)
      status = cannot_place(set, err);
    else
      name = strchr(name, '\n') + 1;
  }
  for (const char *it = set->written.data; status != COPSE_OK && it < name;
       it = strchr(it, '\n') + 1) {
    const char *to = path_in(set, set->output, it);
    if (to) remove(to);
  }
  return status;
}

static copse_status place_set(struct copse_cli_set *set, struct copse_err *err) {
  if (set->exists) COPSE_DO(move_up(set, err));
  if ((set->exists ? rmdir(set->making) : rename(set->making, set->output)) != 0)
    return cannot_place(set, err);
  set->making = NULL;
  return COPSE_OK;
}

copse_status copse_cli_set_place(struct copse_cli_set *set, struct copse_err *err) {
  sigset_t before = copse_file_hold_endings();
  copse_status status = place_set(set, err);
  copse_file_release_endings(&before);
  return status;
}

void copse_cli_set_end(struct copse_cli_set *set) {
  sigset_t before = copse_file_hold_endings();
  remove_made(set);
  unfinished = NULL;
  copse_text_free(&set->written);
  copse_arena_free(&set->arena);
  copse_file_release_endings(&before);
}

/* ---- libraries over MPI and UCX ------------------------------------------------------------ */

/* A library of copse's own, beside the program or where the system looks, and what is missing
 * without it. */
struct wire_library {
  const char *file, *system_file, *entry, *missing;
};
static const struct wire_library over_mpi = {"libcopse-mpi.so", "libcopse-mpi.so.0",
                                             "copse_mpi_start",
                                             "backend mpi: no MPI here, or copse was built without "
                                             "it (scripts/bootstrap installs Open MPI)"};
static const struct wire_library over_ucx = {
    "libcopse-ucx.so", "libcopse-ucx.so.0", "copse_ucx_start",
    "backend ucx: no UCX here, or copse was built without it (scripts/bootstrap installs UCX)"};

typedef copse_status mpi_start(const char *version, double timeout_seconds, copse_wire *wire,
                               char *text, size_t size);
typedef copse_status ucx_start(const char *version, const struct copse_meeting *meeting,
                               copse_wire *wire, char *text, size_t size);

/* Finds the library's entry and stores it at *start, a pointer to a function. The library is never
 * closed: MPI doesn't come twice into a process. */
static copse_status find_start(const struct wire_library *of, void *start, struct copse_err *err) {
  char path[PATH_MAX + 64];
  bool beside = copse_cli_library(of->file, path, sizeof path) ||
                copse_cli_library(of->system_file, path, sizeof path); /* as a wheel has it */
  void *library = dlopen(beside ? path : of->system_file, RTLD_NOW | RTLD_GLOBAL);
  void *found = library ? dlsym(library, of->entry) : NULL;
  const char *why = found ? "" : dlerror();
  memcpy(start, &found, sizeof found); /* ISO C has no such cast */
  if (found) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED, "%s: %s", of->missing, why ? why : of->file);
}

/* UCX starts without its own messages: it prints what its threads and handlers meet, a dead peer
 * among it, and that is copse's to say. */
copse_status copse_cli_start_wire(double timeout_seconds, const struct copse_meeting *meeting,
                                  copse_wire *wire, char *text, size_t size,
                                  struct copse_err *err) {
  mpi_start *mpi;
  ucx_start *ucx;
  if (!meeting) {
    COPSE_DO(find_start(&over_mpi, &mpi, err));
    return mpi(COPSE_VERSION_STRING, timeout_seconds, wire, text, size);
  }
  (void)setenv("UCX_LOG_LEVEL", "fatal", 0);
  (void)setenv("UCX_HANDLE_ERRORS", "none", 0);
  (void)signal(SIGPIPE, SIG_IGN);
  COPSE_DO(find_start(&over_ucx, &ucx, err));
  return ucx(COPSE_VERSION_STRING, meeting, wire, text, size);
}
