/*
 * NCCL's logs: lines, who wrote them, and what all ranks' lines say together. A line is told by
 * "NCCL INFO " and the like; HOST:PID:TID stands before it, with launchers' marks and time stamps
 * around it. A second mark in a line begins another line, which a second process wrote into it.
 * What messages say is read in log_lines.c. Sources: those of log.h, in NVIDIA/nccl src/init.cc,
 * src/graph and src/transport.
 */
#include "nccl/log.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "nccl/log_internal.h"

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

copse_status copse_log_name(struct copse_log_reader *r, const struct copse_scan *piece,
                            const char **out, struct copse_err *err) {
  char text[256];
  size_t n = (size_t)(piece->end - piece->at);
  if (n > sizeof text - 1) n = sizeof text - 1;
  for (size_t i = 0; i < n; i++) text[i] = piece->at[i] ? piece->at[i] : '?';
  text[n] = '\0';
  return copse_names_keep(&r->names, &r->arena, text, out, err);
}

/* ---- processes and threads of lines ---------------------------------------------------------- */

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
#define MAX_SAME_PID 512

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
  for (int tried = 0; i >= 0 && tried < MAX_SAME_PID; i = r->processes[i].same_pid, tried++) {
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

/* ==== joining ================================================================================ */

/*
 * Ranks are joined by commId (a split's by its parent, colour and number), rings from "Channel"
 * lines or, where those are cut, from "Ring" lines or from connections made before "Connected all
 * rings", which are the rings' own.
 */
struct join {
  struct copse_nccl_log *log;
  struct copse_log_reader *r;
  struct copse_log_comm *comms;
  size_t comm_capacity;
  int n_comms;
  struct copse_index_map by_key, by_rank;
  struct copse_err *err;
};

static void free_join(struct join *j) {
  free(j->comms);
  copse_index_map_free(&j->by_key);
  copse_index_map_free(&j->by_rank);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static uint64_t comm_key(const struct join *j, const struct copse_log_member *m) {
  uint64_t key = copse_scatter((uint64_t)m->n_ranks);
  if (m->id) return key ^ copse_scatter(m->id);
  if (m->parent < 0) return key;
  uint64_t parent = (uint64_t)j->r->members[m->parent].comm + 1;
  key ^= copse_scatter(parent) ^ copse_scatter((uint64_t)m->color ^ 0x5bd1e995);
  return key ^ copse_scatter((uint64_t)m->split << 32);
}

static copse_status name_comm(struct join *j, const struct copse_log_member *m, const char **out) {
  struct copse_arena *arena = &j->r->arena;
  if (m->id)
    *out = copse_arena_printf(arena, "0x%llx", (unsigned long long)m->id);
  else if (m->parent >= 0)
    *out = copse_arena_printf(arena, "a split of %.100s, color %lld",
                              j->comms[j->r->members[m->parent].comm].id, (long long)m->color);
  else
    *out = copse_arena_printf(arena, "of %d ranks", m->n_ranks);
  return *out ? COPSE_OK : copse_fail_nomem(j->err);
}

static bool has_rank(const struct join *j, int comm, int rank) {
  size_t cursor = 0;
  return copse_index_map_next(&j->by_rank, copse_key_pair(comm, rank), &cursor) >= 0;
}

#define MAX_TRIED 64

/* Places a member in the first communicator of its name that has no such rank yet. A name is used
 * again where a log lacks ids; as hostile text may repeat one rank for ever, few are looked
 * through. */
static copse_status place(struct join *j, struct copse_log_member *m) {
  uint64_t key = comm_key(j, m);
  size_t cursor = 0;
  int i, tried = 0;
  while ((i = copse_index_map_next(&j->by_key, key, &cursor)) >= 0 && tried++ < MAX_TRIED)
    if (j->comms[i].n_ranks == m->n_ranks && !has_rank(j, i, m->rank.rank)) break;
  if (i < 0 || tried > MAX_TRIED) {
    struct copse_log_comm comm = {.n_ranks = m->n_ranks};
    i = j->n_comms;
    COPSE_DO(name_comm(j, m, &comm.id));
    COPSE_DO(COPSE_GROW(j->comms, j->comm_capacity, (size_t)i + 1, j->err));
    j->comms[j->n_comms++] = comm;
    if (tried <= MAX_TRIED) COPSE_DO(copse_index_map_add(&j->by_key, key, i, j->err));
  }
  struct copse_log_comm *comm = &j->comms[i];
  const char *version = j->r->processes[m->process].version;
  m->comm = i;
  comm->n_known++;
  if (!comm->version) comm->version = version;
  if (m->n_hosts > 0) comm->n_hosts = m->n_hosts;
  if (comm->n_channels < m->n_channels) comm->n_channels = m->n_channels;
  return copse_index_map_add(&j->by_rank, copse_key_pair(i, m->rank.rank), i, j->err);
}

static const char *only_version(const struct join *j) {
  const char *version = j->r->version;
  for (int i = 0; i < j->r->n_processes && !version; i++) version = j->r->processes[i].version;
  return version;
}

struct order {
  int n_ranks, comm;
};
COPSE_ORDER(larger_first, struct order, COPSE_DOWN(n_ranks) ?: COPSE_UP(comm))

/* Numbers communicators anew, those of more ranks first. */
static copse_status sort_comms(struct join *j) {
  size_t n = (size_t)j->n_comms;
  struct order *order;
  struct copse_log_comm *sorted;
  int *place_of;
  COPSE_DO(COPSE_ARRAY(&j->r->arena, n, order, j->err));
  COPSE_DO(COPSE_ARRAY(&j->r->arena, n, sorted, j->err));
  COPSE_DO(COPSE_ARRAY(&j->r->arena, n, place_of, j->err));
  for (int i = 0; i < j->n_comms; i++) order[i] = (struct order){j->comms[i].n_ranks, i};
  COPSE_SORT(order, n, larger_first);
  for (int i = 0; i < j->n_comms; i++) {
    sorted[i] = j->comms[order[i].comm];
    place_of[order[i].comm] = i;
  }
  for (int i = 0; i < j->r->n_members; i++)
    if (j->r->members[i].comm >= 0) j->r->members[i].comm = place_of[j->r->members[i].comm];
  j->log->comms = sorted;
  j->log->n_comms = j->n_comms;
  return COPSE_OK;
}

static copse_status find_comms(struct join *j) {
  const char *version = only_version(j);
  for (int i = 0; i < j->r->n_members; i++) {
    struct copse_log_member *m = &j->r->members[i];
    m->comm = -1;
    if (m->rank.rank >= 0) COPSE_DO(place(j, m));
  }
  for (int i = 0; i < j->n_comms; i++)
    if (!j->comms[i].version) j->comms[i].version = version;
  return sort_comms(j);
}

/* ---- dealing out ----------------------------------------------------------------------------- */

/* A list's values in the order of their communicators: those of c are [first[c], first[c + 1]). */
struct dealt {
  void *values;
  int *first;
};

/* Sorts a list by communicators, by counting: that keeps the log's order within one. */
static copse_status deal(struct join *j, const struct copse_log_list *list, struct dealt *out) {
  size_t n = (size_t)list->n;
  struct copse_adjacency by_comm;
  int *comm;
  char *values = NULL;
  COPSE_DO(COPSE_ARRAY(&j->r->arena, n, comm, j->err));
  COPSE_DO(copse_arena_array(&j->r->arena, n, list->size, &values, j->err));
  for (int i = 0; i < list->n; i++)
    comm[i] = list->members[i] < 0 ? -1 : j->r->members[list->members[i]].comm;
  COPSE_DO(copse_adjacency_by(&j->r->arena, j->log->n_comms, list->n, comm, sizeof *comm, &by_comm,
                              j->err));
  int owned = by_comm.first[j->log->n_comms];
  for (int i = 0; i < owned; i++)
    memcpy(values + (size_t)i * list->size,
           (const char *)list->values + (size_t)by_comm.item[i] * list->size, list->size);
  j->log->n_unowned += list->n - owned;
  out->first = by_comm.first;
  out->values = values;
  return COPSE_OK;
}

/* Makes comms[..].field of a list, and its count. */
#define DEAL(j, list, field)                                                  \
  do {                                                                        \
    struct dealt dealt_;                                                      \
    COPSE_DO(deal(j, &(j)->r->list, &dealt_));                                \
    struct copse_log_comm *comms_ = (struct copse_log_comm *)(j)->log->comms; \
    for (int c_ = 0; c_ < (j)->log->n_comms; c_++) {                          \
      comms_[c_].n_##field = dealt_.first[c_ + 1] - dealt_.first[c_];         \
      comms_[c_].field = dealt_.values;                                       \
      comms_[c_].field += dealt_.first[c_];                                   \
    }                                                                         \
  } while (0)

COPSE_ORDER(by_rank, struct copse_log_rank, COPSE_UP(rank))

static copse_status deal_ranks(struct join *j) {
  int n_comms = j->log->n_comms, *next;
  struct copse_log_comm *comms = (struct copse_log_comm *)j->log->comms;
  struct copse_log_rank *all;
  int total = 0;
  COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)j->r->n_members, all, j->err));
  COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)n_comms, next, j->err));
  for (int c = 0; c < n_comms; c++) {
    comms[c].ranks = all + total;
    next[c] = total;
    total += comms[c].n_known;
  }
  for (int i = 0; i < j->r->n_members; i++)
    if (j->r->members[i].comm >= 0) all[next[j->r->members[i].comm]++] = j->r->members[i].rank;
  for (int c = 0; c < n_comms; c++)
    COPSE_SORT((struct copse_log_rank *)comms[c].ranks, comms[c].n_known, by_rank);
  return COPSE_OK;
}

/* ---- graphs, trees, choices ------------------------------------------------------------------ */

/* Gives graphs their channels, which stand behind them in the log's order. */
static copse_status join_hops(struct join *j) {
  struct copse_log_graph *graphs = j->r->graphs.values;
  const struct copse_log_hops *hops = j->r->hops.values;
  int n = j->r->graphs.n, *fill;
  COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)n, fill, j->err));
  for (int i = 0; i < j->r->hops.n; i++) graphs[hops[i].graph].n_listed++;
  for (int g = 0; g < n; g++) {
    const struct copse_log_hop **channels;
    int *n_hops, member = j->r->graphs.members[g];
    graphs[g].rank = member < 0 ? -1 : j->r->members[member].rank.rank;
    COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)graphs[g].n_listed, channels, j->err));
    COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)graphs[g].n_listed, n_hops, j->err));
    graphs[g].channels = channels;
    graphs[g].n_hops = n_hops;
  }
  for (int i = 0; i < j->r->hops.n; i++) {
    struct copse_log_graph *g = &graphs[hops[i].graph];
    int at = fill[hops[i].graph]++;
    ((const struct copse_log_hop **)g->channels)[at] = hops[i].hops;
    ((int *)g->n_hops)[at] = hops[i].n;
  }
  return COPSE_OK;
}

COPSE_ORDER(by_channel_and_rank, struct copse_log_tree, COPSE_UP(channel) ?: COPSE_UP(rank))

/* Sorts trees and drops doubles: "Trees" and "Tree" lines say the same twice. */
static void sort_trees(struct copse_log_comm *comm) {
  struct copse_log_tree *trees = (struct copse_log_tree *)comm->trees;
  int n = 0;
  COPSE_SORT(trees, comm->n_trees, by_channel_and_rank);
  for (int i = 0; i < comm->n_trees; i++)
    if (n == 0 || by_channel_and_rank(&trees[n - 1], &trees[i]) != 0) trees[n++] = trees[i];
  comm->n_trees = n;
}

COPSE_ORDER(by_call, struct copse_log_pick, strcmp(a->function, b->function) ?: COPSE_UP(bytes) ?:
            strcmp(a->algorithm, b->algorithm) ?: strcmp(a->protocol, b->protocol))

static void merge_picks(struct copse_log_comm *comm) {
  struct copse_log_pick *picks = (struct copse_log_pick *)comm->picks;
  int n = 0;
  COPSE_SORT(picks, comm->n_picks, by_call);
  for (int i = 0; i < comm->n_picks; i++) {
    if (n > 0 && by_call(&picks[n - 1], &picks[i]) == 0)
      picks[n - 1].times += picks[i].times;
    else
      picks[n++] = picks[i];
  }
  comm->n_picks = n;
}

/* ---- rings ----------------------------------------------------------------------------------- */

COPSE_ORDER(pass_by_channel, struct copse_log_pass, COPSE_UP(channel) ?: COPSE_UP(src))
COPSE_ORDER(listed_by_channel, struct copse_log_listed, COPSE_UP(channel))

struct ring_source {
  struct copse_log_listed *listed;
  struct copse_log_pass *passes;
  int n_listed, n_passes;
};

/* Returns the end of the passes of the channel that begins at `at`. */
static int end_of(const struct ring_source *s, int at) {
  int end = at;
  while (end < s->n_passes && s->passes[end].channel == s->passes[at].channel) end++;
  return end;
}

/* Follows the passes from rank 0 through all. Those of one rank must agree; NULL if they don't. */
static copse_status follow(struct join *j, const struct copse_log_pass *passes, int n, int n_ranks,
                           const int **out) {
  int *order, at = 0, rank = 0;
  *out = NULL;
  if (n < n_ranks) return COPSE_OK;
  COPSE_AT_END(copse_free_at) int *next = NULL;
  COPSE_DO(copse_calloc((size_t)n_ranks, sizeof *next, &next, j->err));
  for (int i = 0; i < n_ranks; i++) next[i] = -1;
  for (int i = 0; i < n; i++) {
    int src = passes[i].src, dst = passes[i].dst;
    if (src < 0 || src >= n_ranks || dst < 0 || dst >= n_ranks) return COPSE_OK;
    if (next[src] >= 0 && next[src] != dst) return COPSE_OK;
    next[src] = dst;
  }
  COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)n_ranks, order, j->err));
  do {
    order[at++] = rank;
    rank = next[rank];
  } while (rank > 0 && at < n_ranks);
  if (rank == 0 && at == n_ranks) *out = order;
  return COPSE_OK;
}

/* Whether a list holds every rank once. */
static copse_status is_whole(struct join *j, const struct copse_log_listed *listed, int n_ranks,
                             bool *out) {
  *out = false;
  if (listed->n != n_ranks) return COPSE_OK;
  COPSE_AT_END(copse_free_at) bool *seen = NULL;
  COPSE_DO(copse_calloc((size_t)n_ranks, sizeof *seen, &seen, j->err));
  for (int i = 0; i < n_ranks; i++) {
    int rank = listed->order[i];
    if (rank >= n_ranks || seen[rank]) return COPSE_OK;
    seen[rank] = true;
  }
  *out = true;
  return COPSE_OK;
}

static copse_status add_ring(struct join *j, const struct ring_source *s, int *l, int *p,
                             int n_ranks, struct copse_log_ring *ring) {
  bool from_list = *l < s->n_listed, from_pass = *p < s->n_passes, whole;
  if (from_list && from_pass && s->listed[*l].channel > s->passes[*p].channel) from_list = false;
  if (from_list && from_pass && s->listed[*l].channel < s->passes[*p].channel) from_pass = false;
  *ring = (struct copse_log_ring){
      .channel = from_list ? s->listed[*l].channel : s->passes[*p].channel, .order = NULL};
  for (; from_list && *l < s->n_listed && s->listed[*l].channel == ring->channel; (*l)++) {
    COPSE_DO(is_whole(j, &s->listed[*l], n_ranks, &whole));
    if (whole) ring->order = s->listed[*l].order;
  }
  if (!from_pass) return COPSE_OK;
  int end = end_of(s, *p);
  if (!ring->order) COPSE_DO(follow(j, s->passes + *p, end - *p, n_ranks, &ring->order));
  *p = end;
  return COPSE_OK;
}

static copse_status join_rings(struct join *j, struct copse_log_comm *comm,
                               const struct ring_source *s) {
  struct copse_log_ring *rings;
  int l = 0, p = 0, channels = 0;
  COPSE_SORT(s->listed, s->n_listed, listed_by_channel);
  COPSE_SORT(s->passes, s->n_passes, pass_by_channel);
  for (int i = 0; i < s->n_passes; i = end_of(s, i)) channels++;
  COPSE_DO(COPSE_ARRAY(&j->r->arena, (size_t)(channels + s->n_listed), rings, j->err));
  comm->rings = rings;
  while (l < s->n_listed || p < s->n_passes)
    COPSE_DO(add_ring(j, s, &l, &p, comm->n_ranks, &rings[comm->n_rings++]));
  if (comm->n_rings > 0 && comm->n_channels <= rings[comm->n_rings - 1].channel)
    comm->n_channels = rings[comm->n_rings - 1].channel + 1;
  return COPSE_OK;
}

static copse_status join_all_rings(struct join *j) {
  struct copse_log_comm *comms = (struct copse_log_comm *)j->log->comms;
  struct dealt listed, passes;
  COPSE_DO(deal(j, &j->r->listed, &listed));
  int64_t unowned = j->log->n_unowned;
  COPSE_DO(deal(j, &j->r->passes, &passes));
  j->log->n_unowned = unowned; /* they are of edges, which are counted, or two to a line */
  for (int c = 0; c < j->log->n_comms; c++) {
    struct ring_source s = {(struct copse_log_listed *)listed.values + listed.first[c],
                            (struct copse_log_pass *)passes.values + passes.first[c],
                            listed.first[c + 1] - listed.first[c],
                            passes.first[c + 1] - passes.first[c]};
    COPSE_DO(join_rings(j, &comms[c], &s));
  }
  return COPSE_OK;
}

/* ---- remarks --------------------------------------------------------------------------------- */

static void remark(const struct copse_nccl_log *log, const char *label,
                   const struct copse_notes *notes) {
  if (log->n_foreign > 0)
    copse_note(notes, "%s: %lld of %lld lines are not of NCCL and were passed over", label,
               (long long)log->n_foreign, (long long)log->n_lines);
  if (log->n_cut > 0)
    copse_note(notes,
               "%s: %lld lines of NCCL are cut or damaged, and were left out in part or "
               "whole",
               label, (long long)log->n_cut);
  if (log->n_unowned > 0)
    copse_note(notes, "%s: %lld lines are of no communicator that the log names, and were left out",
               label, (long long)log->n_unowned);
  for (int c = 0; c < log->n_comms; c++) {
    const struct copse_log_comm *comm = &log->comms[c];
    int lost = 0;
    for (int i = 0; i < comm->n_rings; i++) lost += !comm->rings[i].order;
    if (comm->n_known < comm->n_ranks)
      copse_note(notes, "%s: communicator %s: the log has %d of %d ranks", label, comm->id,
                 comm->n_known, comm->n_ranks);
    if (lost > 0)
      copse_note(notes,
                 "%s: communicator %s: the rings of %d of %d channels are not in the log in whole; "
                 "NCCL_DEBUG_SUBSYS=INIT,GRAPH on all ranks shows them",
                 label, comm->id, lost, comm->n_rings);
    if (c == 15 && log->n_comms > 16) {
      copse_note(notes, "%s: and %d smaller communicators", label, log->n_comms - 16);
      break;
    }
  }
}

static copse_status join_members(struct copse_nccl_log *log, const char *label,
                                 const struct copse_notes *notes, struct copse_err *err) {
  COPSE_AT_END(free_join) struct join join = {.log = log, .r = log->reader, .err = err};
  struct join *j = &join;
  COPSE_DO(find_comms(j));
  COPSE_DO(deal_ranks(j));
  COPSE_DO(join_hops(j));
  DEAL(j, trees, trees);
  DEAL(j, graphs, graphs);
  DEAL(j, edges, edges);
  DEAL(j, picks, picks);
  for (int c = 0; c < log->n_comms; c++) {
    sort_trees((struct copse_log_comm *)&log->comms[c]);
    merge_picks((struct copse_log_comm *)&log->comms[c]);
  }
  COPSE_DO(join_all_rings(j));
  remark(log, label, notes);
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
  return join_members(log, label, notes, err);
}
