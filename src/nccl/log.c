/*
 * NCCL's logs: lines, who wrote them, and to which communicator a thread belongs. A line is told by
 * "NCCL INFO " and the like; HOST:PID:TID stands before it, with launchers' marks and time stamps
 * around it. A second mark in a line begins another line, which a second process wrote into it.
 * What messages say is read in log_lines.c, joined over ranks in log_join.c. Sources: those of
 * log.h, in NVIDIA/nccl src/init.cc, src/graph and src/transport.
 */
#include "nccl/log.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/log_internal.h"

#define MAX_RANKS (1 << 22)

static void free_list(struct copse_log_list *list) {
  free(list->values);
  free(list->members);
}

void copse_nccl_log_free(struct copse_nccl_log *log) {
  struct copse_log_reader *r = log->reader;
  *log = (struct copse_nccl_log){0};
  if (!r) return;
  struct copse_log_list *lists[] = {&r->listed, &r->passes, &r->trees, &r->graphs,   &r->hops,
                                    &r->edges,  &r->picks,  &r->nics,  &r->settings, &r->warnings};
  struct copse_index_map *maps[] = {&r->process_map, &r->thread_map, &r->pointer_map,
                                    &r->said_map,    &r->nic_map,    &r->pid_map};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free_list(lists[i]);
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) copse_index_map_free(maps[i]);
  free(r->processes);
  free(r->threads);
  free(r->members);
  free(r->pointers);
  copse_names_free(&r->names);
  copse_arena_free(&r->arena);
  free(r);
}

copse_status copse_nccl_log_open(struct copse_nccl_log *log, struct copse_err *err) {
  *log = (struct copse_nccl_log){0};
  COPSE_DO(copse_calloc(1, sizeof *log->reader, &log->reader, err));
  struct copse_log_reader *r = log->reader;
  r->listed.size = sizeof(struct copse_log_listed);
  r->passes.size = sizeof(struct copse_log_pass);
  r->trees.size = sizeof(struct copse_log_tree);
  r->graphs.size = sizeof(struct copse_log_graph);
  r->hops.size = sizeof(struct copse_log_hops);
  r->edges.size = sizeof(struct copse_log_edge);
  r->picks.size = sizeof(struct copse_log_pick);
  r->nics.size = sizeof(struct copse_log_nic);
  r->settings.size = r->warnings.size = sizeof(struct copse_log_said);
  return COPSE_OK;
}

copse_status copse_log_push(struct copse_log_list *list, int member, const void *value,
                            struct copse_err *err) {
  size_t n = (size_t)list->n;
  COPSE_DO(copse_grow(&list->values, &list->capacity, n + 1, list->size, err));
  COPSE_DO(COPSE_GROW(list->members, list->member_capacity, n + 1, err));
  memcpy((char *)list->values + n * list->size, value, list->size);
  list->members[list->n++] = member;
  return COPSE_OK;
}

copse_status copse_log_name(struct copse_log_reader *r, const struct copse_scan *piece,
                            const char **out, struct copse_err *err) {
  char text[256];
  size_t n = (size_t)(piece->end - piece->at);
  if (n > sizeof text - 1) n = sizeof text - 1;
  for (size_t i = 0; i < n; i++) text[i] = piece->at[i] ? piece->at[i] : '?';
  text[n] = '\0';
  return copse_names_keep(&r->names, &r->arena, text, out, err);
}

/* ---- who wrote a line ------------------------------------------------------------------------ */

struct mark {
  const char *start; /* of HOST */
  struct copse_scan host, message;
  int64_t pid, tid;
  bool is_warning;
};

/* Reads "node-a:4120:4171", the host being what stands behind a launcher's last mark. */
static bool read_who(const char *at, const char *end, struct mark *mark) {
  const char *colon[2];
  const char *p = end;
  for (int i = 1; i >= 0; i--) {
    while (p > at && p[-1] >= '0' && p[-1] <= '9') p--;
    if (p == at || p[-1] != ':') return false;
    colon[i] = --p;
  }
  struct copse_scan pid = {colon[0] + 1, colon[1]}, tid = {colon[1] + 1, end};
  while (p > at && !strchr(" \t:<>[]|", p[-1])) p--;
  mark->start = p;
  mark->host = (struct copse_scan){p, colon[0]};
  return p < colon[0] && copse_scan_int(&pid, false, &mark->pid) &&
         copse_scan_int(&tid, false, &mark->tid);
}

#define LONGEST_PREFIX 512

/* Looks for the last word of [at, end) that says who. */
static bool look_back(const char *at, const char *end, struct mark *mark) {
  if (end - at > LONGEST_PREFIX) at = end - LONGEST_PREFIX;
  while (end > at) {
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    const char *word = end;
    while (word > at && word[-1] != ' ' && word[-1] != '\t') word--;
    if (word < end && read_who(word, end, mark)) return true;
    end = word;
  }
  return false;
}

/* Finds the first mark of a line behind *s. */
static bool find_mark(const struct copse_scan *s, struct mark *mark) {
  static const char *const levels[] = {"INFO", "WARN", "TRACE", "CALL"};
  struct copse_scan rest = *s;
  while (copse_scan_to(&rest, "NCCL ")) {
    const char *before = rest.at - strlen("NCCL ");
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
      struct copse_scan message = rest;
      if (!copse_scan_literal(&message, levels[i])) continue;
      if (message.at < message.end && *message.at++ != ' ') continue;
      if (!look_back(s->at, before, mark)) continue;
      mark->message = message;
      mark->is_warning = i == 1;
      return true;
    }
  }
  return false;
}

bool copse_nccl_log_has(const char *data, size_t size) {
  struct copse_scan text = {data, data + size}, line;
  struct mark mark;
  while (copse_scan_line(&text, &line))
    if (find_mark(&line, &mark)) return true;
  return false;
}

static uint64_t key_of(const char *host, int64_t pid) {
  return copse_key_text(host) ^ copse_scatter((uint64_t)pid);
}

/* Bounds the time that hostile text costs. */
#define MAX_TRIED 512

static int first_of_pid(const struct copse_log_reader *r, int64_t pid) {
  size_t cursor = 0;
  return copse_index_map_next(&r->pid_map, (uint64_t)pid, &cursor);
}

/* Finds the writer by the end of its name: where another process's line was written into a line,
 * the rest of that line stands before the host's name. */
static int find_process(const struct copse_log_reader *r, const char *host, int64_t pid,
                        bool glued) {
  size_t cursor = 0, n = strlen(host);
  for (int i; (i = copse_index_map_next(&r->process_map, key_of(host, pid), &cursor)) >= 0;)
    if (r->processes[i].pid == pid && strcmp(r->processes[i].host, host) == 0) return i;
  int i = glued ? first_of_pid(r, pid) : -1;
  for (int tried = 0; i >= 0 && tried < MAX_TRIED; i = r->processes[i].same_pid, tried++) {
    size_t m = strlen(r->processes[i].host);
    if (m < n && strcmp(host + n - m, r->processes[i].host) == 0) return i;
  }
  return -1;
}

/* Adds a process to the list of those of one pid, since a map is slow with many entries of one
 * key. */
static copse_status list_pid(struct copse_log_reader *r, int process, struct copse_err *err) {
  int first = first_of_pid(r, r->processes[process].pid);
  uint64_t pid = (uint64_t)r->processes[process].pid;
  if (first < 0) return copse_index_map_add(&r->pid_map, pid, process, err);
  r->processes[r->processes[first].last_same].same_pid = process;
  r->processes[first].last_same = process;
  return COPSE_OK;
}

static copse_status need_process(struct copse_log_reader *r, const struct mark *mark, bool glued,
                                 int *out, struct copse_err *err) {
  struct copse_log_process process = {
      .pid = mark->pid, .first_member = -1, .last_member = -1, .same_pid = -1};
  COPSE_DO(copse_log_name(r, &mark->host, &process.host, err));
  *out = find_process(r, process.host, mark->pid, glued);
  if (*out >= 0) return COPSE_OK;
  *out = r->n_processes;
  COPSE_DO(COPSE_GROW(r->processes, r->process_capacity, (size_t)*out + 1, err));
  process.last_same = *out;
  r->processes[r->n_processes++] = process;
  if (!glued) COPSE_DO(list_pid(r, *out, err));
  return copse_index_map_add(&r->process_map, key_of(process.host, process.pid), *out, err);
}

static copse_status need_thread(struct copse_log_reader *r, const struct mark *mark, bool glued,
                                int *out, struct copse_err *err) {
  struct copse_log_thread thread = {.tid = mark->tid, .member = -1, .graph = -1};
  size_t cursor = 0;
  COPSE_DO(need_process(r, mark, glued, &thread.process, err));
  uint64_t key = copse_scatter((uint64_t)mark->tid) ^ (uint64_t)thread.process;
  for (int i; (i = copse_index_map_next(&r->thread_map, key, &cursor)) >= 0;)
    if (r->threads[i].process == thread.process && r->threads[i].tid == mark->tid) {
      *out = i;
      return COPSE_OK;
    }
  *out = r->n_threads;
  COPSE_DO(COPSE_GROW(r->threads, r->thread_capacity, (size_t)*out + 1, err));
  r->threads[r->n_threads++] = thread;
  return copse_index_map_add(&r->thread_map, key, *out, err);
}

/* ---- which communicator ---------------------------------------------------------------------- */

static copse_status add_member(struct copse_log_reader *r, int process,
                               const struct copse_log_member *member, struct copse_err *err) {
  struct copse_log_process *p = &r->processes[process];
  int n = r->n_members;
  COPSE_DO(COPSE_GROW(r->members, r->member_capacity, (size_t)n + 1, err));
  r->members[n] = *member;
  r->members[n].process = process;
  r->members[n].next = -1;
  r->members[n].rank.host = p->host;
  r->members[n].rank.pid = p->pid;
  if (p->n_members++ == 0)
    p->first_member = n;
  else
    r->members[p->last_member].next = n;
  p->last_member = n;
  r->n_members++;
  return COPSE_OK;
}

static const struct copse_log_member unnamed = {
    .rank = {.rank = -1, .cuda_dev = -1, .nvml_dev = -1, .local_rank = -1},
    .parent = -1,
    .comm = -1};

int copse_log_member_of(const struct copse_log_reader *r, int thread) {
  const struct copse_log_thread *t = &r->threads[thread];
  const struct copse_log_process *p = &r->processes[t->process];
  if (t->member >= 0) return t->member;
  return p->n_members == 1 && p->has_starts ? p->first_member : -1;
}

copse_status copse_log_need_member(struct copse_log_reader *r, int thread, int *member,
                                   struct copse_err *err) {
  *member = copse_log_member_of(r, thread);
  if (*member >= 0 || r->processes[r->threads[thread].process].has_starts) return COPSE_OK;
  COPSE_DO(add_member(r, r->threads[thread].process, &unnamed, err));
  *member = r->threads[thread].member = r->n_members - 1;
  return COPSE_OK;
}

static uint64_t member_key(int process, uint64_t pointer) {
  return copse_scatter(pointer) ^ (uint64_t)process;
}

static int find_pointer(const struct copse_log_reader *r, int process, uint64_t pointer) {
  size_t cursor = 0;
  for (int i;
       (i = copse_index_map_next(&r->pointer_map, member_key(process, pointer), &cursor)) >= 0;)
    if (r->pointers[i].process == process && r->pointers[i].pointer == pointer) return i;
  return -1;
}

/* Finds the latest of this process with this pointer, which a new communicator may get again. */
static int find_member(const struct copse_log_reader *r, int process, uint64_t pointer) {
  int i = find_pointer(r, process, pointer);
  return i < 0 ? -1 : r->pointers[i].latest;
}

static copse_status set_member(struct copse_log_reader *r, int process, uint64_t pointer,
                               int member, struct copse_err *err) {
  int i = find_pointer(r, process, pointer);
  if (i >= 0) {
    r->pointers[i].latest = member;
    return COPSE_OK;
  }
  size_t n = (size_t)r->n_pointers;
  COPSE_DO(COPSE_GROW(r->pointers, r->pointer_capacity, n + 1, err));
  r->pointers[r->n_pointers++] = (struct copse_log_pointer){process, pointer, member};
  return copse_index_map_add(&r->pointer_map, member_key(process, pointer), (int)n, err);
}

static bool read_value(struct copse_scan *s, const struct copse_scan *key,
                       struct copse_log_member *m, uint64_t *parent) {
  const struct {
    const char *name;
    int *value;
  } numbers[] = {{"rank", &m->rank.rank},           {"nranks", &m->n_ranks},
                 {"nRanks", &m->n_ranks},           {"nNodes", &m->n_hosts},
                 {"cudaDev", &m->rank.cuda_dev},    {"nvmlDev", &m->rank.nvml_dev},
                 {"localRank", &m->rank.local_rank}};
  copse_scan_blanks(s);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (copse_scan_is(key, numbers[i].name)) return copse_scan_index(s, numbers[i].value);
  if (copse_scan_is(key, "busId")) return copse_scan_hex(s, &m->rank.bus);
  if (copse_scan_is(key, "commId")) return copse_scan_hex(s, &m->id);
  if (copse_scan_is(key, "parent")) return copse_scan_hex(s, parent);
  if (copse_scan_is(key, "color")) return copse_scan_int(s, true, &m->color);
  if (copse_scan_is(key, "splitCount") || copse_scan_is(key, "childCount"))
    return copse_scan_int(s, false, &m->split);
  return true;
}

/* Numbers a split among those of its parent, where the line doesn't. */
static void find_parent(struct copse_log_reader *r, int process, uint64_t pointer,
                        struct copse_log_member *m) {
  m->parent = pointer ? find_member(r, process, pointer) : -1;
  if (m->parent < 0) return;
  if (m->split < 0) m->split = r->members[m->parent].n_splits;
  r->members[m->parent].n_splits++;
}

/* Takes what one more line says of a member that is known. */
static void take(struct copse_log_member *to, const struct copse_log_member *from) {
  if (from->n_hosts > 0) to->n_hosts = from->n_hosts;
  if (from->id) to->id = from->id;
  if (from->rank.local_rank >= 0) to->rank.local_rank = from->rank.local_rank;
  if (from->rank.nvml_dev >= 0) to->rank.nvml_dev = from->rank.nvml_dev;
  if (from->rank.cuda_dev >= 0) to->rank.cuda_dev = from->rank.cuda_dev;
  if (from->rank.bus) to->rank.bus = from->rank.bus;
}

/* Places a line "comm P rank R nranks N": the member of before, the thread's unnamed one, or a new
 * one. */
static copse_status place_member(struct copse_log_reader *r, int thread, bool is_start,
                                 uint64_t parent, struct copse_log_member *m,
                                 struct copse_err *err) {
  struct copse_log_thread *t = &r->threads[thread];
  int process = t->process, known = find_member(r, process, m->pointer);
  if (known >= 0) {
    const struct copse_log_member *k = &r->members[known];
    bool same_id = k->id && k->id == m->id, differ = k->id && m->id && k->id != m->id;
    if (k->rank.rank != m->rank.rank || k->n_ranks != m->n_ranks || differ ||
        (!same_id && (is_start || k->gone)))
      known = -1;
  }
  if (known < 0 && !is_start && t->member >= 0 && r->members[t->member].rank.rank < 0) {
    known = t->member; /* lines of before its name: 2.18.1 has no "Init START" */
    r->members[known].rank.rank = m->rank.rank;
    r->members[known].n_ranks = m->n_ranks;
    r->members[known].pointer = m->pointer;
    COPSE_DO(set_member(r, process, m->pointer, known, err));
  }
  if (known >= 0) {
    take(&r->members[known], m);
    t->member = known;
    return COPSE_OK;
  }
  find_parent(r, process, parent, m);
  COPSE_DO(add_member(r, process, m, err));
  t->member = r->n_members - 1;
  t->graph = -1;
  return set_member(r, process, m->pointer, t->member, err);
}

copse_status copse_log_name_comm(struct copse_log_reader *r, int thread, struct copse_scan message,
                                 struct copse_err *err) {
  struct copse_log_thread *t = &r->threads[thread];
  struct copse_log_member m = unnamed;
  struct copse_scan s = message, key, state = message;
  uint64_t parent = 0;
  m.split = -1;
  if (!copse_scan_to(&s, "comm ") || !copse_scan_hex(&s, &m.pointer)) return COPSE_OK;
  while (copse_scan_word(&s, &key) && !copse_scan_begins(&key, "-"))
    if (!read_value(&s, &key, &m, &parent)) {
      r->n_cut++;
      return COPSE_OK;
    }
  bool is_start = copse_scan_to(&state, "- Init START");
  bool is_whole = is_start || m.n_hosts > 0 || copse_scan_to(&state, "- Init COMPLETE");
  bool ends = copse_scan_to(&state, "Destroy COMPLETE") || copse_scan_to(&state, "Abort COMPLETE");
  r->processes[t->process].has_starts |= is_start;
  int known = find_member(r, t->process, m.pointer);
  if (m.rank.rank < 0 || m.n_ranks < 1 || ends) { /* the name alone, as calls have it */
    if (known >= 0) t->member = known;
    if (known >= 0 && ends) r->members[known].gone = true;
    return COPSE_OK;
  }
  if (!is_whole || m.rank.rank >= m.n_ranks || m.n_ranks > MAX_RANKS) {
    r->n_cut++;
    return COPSE_OK;
  }
  return place_member(r, thread, is_start, parent, &m, err);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads one line of a file, which may hold several of NCCL's. */
static copse_status read_line(struct copse_log_reader *r, struct copse_scan line,
                              struct copse_err *err) {
  struct mark mark, next;
  struct copse_scan rest = line;
  if (!find_mark(&line, &mark)) {
    copse_scan_blanks(&rest);
    r->n_foreign += rest.at < rest.end;
    if (!copse_scan_literal(&rest, "NCCL version ") && !copse_scan_literal(&rest, "RCCL version "))
      return COPSE_OK;
    struct copse_scan word;
    r->n_foreign--;
    return copse_scan_word(&rest, &word) ? copse_log_name(r, &word, &r->version, err) : COPSE_OK;
  }
  for (bool glued = false;; glued = true, mark = next) {
    int thread;
    bool more = find_mark(&mark.message, &next);
    if (more) mark.message.end = next.start;
    COPSE_DO(need_thread(r, &mark, glued, &thread, err));
    COPSE_DO(copse_log_message(r, thread, mark.is_warning, mark.message, err));
    if (!more) return COPSE_OK;
  }
}

copse_status copse_nccl_log_add(struct copse_nccl_log *log, const char *data, size_t size,
                                struct copse_err *err) {
  struct copse_scan text = {data, data + size}, line;
  while (copse_scan_line(&text, &line)) {
    log->reader->n_lines++;
    COPSE_DO(read_line(log->reader, line, err));
  }
  return COPSE_OK;
}

copse_status copse_nccl_log_finish(struct copse_nccl_log *log, const char *label,
                                   const struct copse_notes *notes, struct copse_err *err) {
  struct copse_log_reader *r = log->reader;
  log->n_lines = r->n_lines;
  log->n_foreign = r->n_foreign;
  log->n_cut = r->n_cut;
  log->nics = r->nics.values;
  log->n_nics = r->nics.n;
  log->settings = r->settings.values;
  log->n_settings = r->settings.n;
  log->warnings = r->warnings.values;
  log->n_warnings = r->warnings.n;
  return copse_log_join(log, label, notes, err);
}
