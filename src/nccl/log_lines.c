/*
 * What the messages of NCCL's logs say, a message at a time, and of which communicator they are. A
 * message that begins as one that is known and doesn't end so has been cut, and is counted and left
 * out. The source of each form is the function of NCCL that prints it, in NVIDIA/nccl src/init.cc,
 * src/graph and src/transport (log.h).
 */
#include <stdio.h>
#include <string.h>

#include "nccl/log_internal.h"

#define MAX_CHANNELS 4096
#define MAX_RANKS (1 << 22)

/* A message, its writer, and where errors go. */
struct line {
  struct copse_log_reader *r;
  struct copse_log_thread *thread;
  int thread_index;
  struct copse_scan s;
  size_t size;
  struct copse_err *err;
};

static copse_status cut(const struct line *l) {
  l->r->n_cut++;
  return COPSE_OK;
}

static bool read_channel(struct copse_scan *s, int *channel) {
  copse_scan_blanks(s);
  return copse_scan_index(s, channel) && *channel >= 0 && *channel < MAX_CHANNELS;
}

/* Whether nothing more comes, or what RCCL says behind many messages: " comm 0x.. nRanks 08 busId
 * c1000". */
static bool ends(const struct copse_scan *s) {
  struct copse_scan rest = *s;
  copse_scan_blanks(&rest);
  return rest.at == rest.end || copse_scan_begins(&rest, "comm 0x");
}

static copse_status push(struct copse_log_list *list, int member, const void *value,
                         struct copse_err *err) {
  size_t n = (size_t)list->n;
  COPSE_DO(copse_grow(&list->values, &list->capacity, n + 1, list->size, err));
  COPSE_DO(COPSE_GROW(list->members, list->member_capacity, n + 1, err));
  memcpy((char *)list->values + n * list->size, value, list->size);
  list->members[list->n++] = member;
  return COPSE_OK;
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

/* Returns the member whose line a thread prints; -1: not known. */
static int member_of(const struct copse_log_reader *r, int thread) {
  const struct copse_log_thread *t = &r->threads[thread];
  const struct copse_log_process *p = &r->processes[t->process];
  if (t->member >= 0) return t->member;
  return p->n_members == 1 && p->has_starts ? p->first_member : -1;
}

/* Finds the member whose line a thread prints, or makes it where a thread may print before its
 * communicator is named. */
static copse_status need_member(struct copse_log_reader *r, int thread, int *member,
                                struct copse_err *err) {
  *member = member_of(r, thread);
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

/* Adds what one more line says to a known member. */
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

/* Reads "comm P rank D nranks D ...": finds or makes the member. */
static copse_status name_comm(struct copse_log_reader *r, int thread, struct copse_scan message,
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
  bool ended = copse_scan_to(&state, "Destroy COMPLETE") || copse_scan_to(&state, "Abort COMPLETE");
  r->processes[t->process].has_starts |= is_start;
  int known = find_member(r, t->process, m.pointer);
  if (m.rank.rank < 0 || m.n_ranks < 1 || ended) { /* the name alone, as calls have it */
    if (known >= 0) t->member = known;
    if (known >= 0 && ended) r->members[known].gone = true;
    return COPSE_OK;
  }
  if (!is_whole || m.rank.rank >= m.n_ranks || m.n_ranks > MAX_RANKS) {
    r->n_cut++;
    return COPSE_OK;
  }
  return place_member(r, thread, is_start, parent, &m, err);
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Reads "  0   3   2   1": NCCL leaves ranks out of a long list, and may end it in "...". */
static copse_status on_order(struct line *l, int channel, int n_channels) {
  struct copse_log_listed listed = {.channel = channel};
  COPSE_AT_END(copse_free_at) int *order = NULL;
  size_t capacity = 0, n = 0;
  int rank, member, *kept;
  for (copse_scan_blanks(&l->s); copse_scan_index(&l->s, &rank); copse_scan_blanks(&l->s)) {
    if (rank < 0) return cut(l);
    COPSE_DO(COPSE_PUSH(order, n, capacity, l->err, rank));
  }
  if (!copse_scan_is_empty(&l->s) && !copse_scan_begins(&l->s, "...")) return cut(l);
  COPSE_DO(need_member(l->r, l->thread_index, &member, l->err));
  COPSE_DO(COPSE_ARRAY(&l->r->arena, n, kept, l->err));
  if (n > 0) memcpy(kept, order, n * sizeof *kept);
  listed.n = (int)n;
  listed.order = kept;
  if (member >= 0 && l->r->members[member].n_channels < n_channels)
    l->r->members[member].n_channels = n_channels;
  return push(&l->r->listed, member, &listed, l->err);
}

/* Reads "Ring 00 : 7 -> 0 -> 1". */
static copse_status on_ring(struct line *l) {
  struct copse_log_pass in, out;
  int member, rank;
  if (!read_channel(&l->s, &in.channel) || !copse_scan_literal(&l->s, " : ") ||
      !copse_scan_index(&l->s, &in.src) || !copse_scan_literal(&l->s, " -> ") ||
      !copse_scan_index(&l->s, &rank) || !copse_scan_literal(&l->s, " -> ") ||
      !copse_scan_index(&l->s, &out.dst) || !ends(&l->s))
    return cut(l);
  out.channel = in.channel;
  in.dst = out.src = rank;
  COPSE_DO(need_member(l->r, l->thread_index, &member, l->err));
  COPSE_DO(push(&l->r->passes, member, &in, l->err));
  return push(&l->r->passes, member, &out, l->err);
}

static copse_status on_rings_connected(struct line *l) {
  int member = member_of(l->r, l->thread_index);
  if (member >= 0) l->r->members[member].rings_connected = true;
  return COPSE_OK;
}

/* ---- trees ----------------------------------------------------------------------------------- */

static bool read_down(struct copse_scan *s, int down[3]) {
  return copse_scan_index(s, &down[0]) && copse_scan_literal(s, "/") &&
         copse_scan_index(s, &down[1]) && copse_scan_literal(s, "/") &&
         copse_scan_index(s, &down[2]);
}

/* Reads " [0] 1/-1/-1->0->-1": a channel of "Trees". */
static bool read_tree(struct copse_scan *s, struct copse_log_tree *tree) {
  copse_scan_blanks(s);
  return copse_scan_literal(s, "[") && read_channel(s, &tree->channel) &&
         copse_scan_literal(s, "] ") && read_down(s, tree->down) && copse_scan_literal(s, "->") &&
         copse_scan_index(s, &tree->rank) && copse_scan_literal(s, "->") &&
         copse_scan_index(s, &tree->up) && (s->at == s->end || *s->at == ' ');
}

/* NCCL cuts the text at 1022 bytes, or the line at 1023: what is last then may lack digits. */
#define LONGEST_TREES 1010

static copse_status on_trees(struct line *l) {
  struct copse_log_tree tree;
  int member;
  COPSE_DO(need_member(l->r, l->thread_index, &member, l->err));
  while (read_tree(&l->s, &tree)) {
    bool is_last = ends(&l->s);
    if (is_last && l->size >= LONGEST_TREES && *l->s.at != ' ') break;
    COPSE_DO(push(&l->r->trees, member, &tree, l->err));
    if (is_last) return COPSE_OK;
  }
  return cut(l);
}

/* Reads "Tree 0 : -1 -> 0 -> 1/4/-1". */
static copse_status on_tree(struct line *l) {
  struct copse_log_tree tree;
  int member;
  if (!read_channel(&l->s, &tree.channel) || !copse_scan_literal(&l->s, " : ") ||
      !copse_scan_index(&l->s, &tree.up) || !copse_scan_literal(&l->s, " -> ") ||
      !copse_scan_index(&l->s, &tree.rank) || !copse_scan_literal(&l->s, " -> ") ||
      !read_down(&l->s, tree.down) || !ends(&l->s))
    return cut(l);
  COPSE_DO(need_member(l->r, l->thread_index, &member, l->err));
  return push(&l->r->trees, member, &tree, l->err);
}

/* ---- graphs of a host ------------------------------------------------------------------------ */

static bool read_pair(struct copse_scan *s, const char *key, struct copse_scan *a,
                      struct copse_scan *b) {
  if (!copse_scan_literal(s, key)) return false;
  a->at = s->at;
  while (s->at < s->end && *s->at != '/' && *s->at != ',') s->at++;
  a->end = b->at = b->end = s->at;
  if (s->at < s->end && *s->at == '/') b->at = ++s->at;
  while (s->at < s->end && *s->at != ',') s->at++;
  b->end = s->at;
  return a->at < a->end && copse_scan_literal(s, ", ");
}

/* Reads "Pattern 4, crossNic 0, nChannels 2, bw 24.0/24.0, type NVL/PIX, sameChannels 0". */
static copse_status on_pattern(struct line *l) {
  struct copse_log_graph graph = {0};
  struct copse_scan *s = &l->s, bw[2], type[2];
  int member, same;
  if (!copse_scan_index(s, &graph.pattern) || !copse_scan_literal(s, ", crossNic ") ||
      !copse_scan_index(s, &graph.crossnic) || !copse_scan_literal(s, ", nChannels ") ||
      !copse_scan_index(s, &graph.n_channels) || graph.n_channels < 0 ||
      graph.n_channels > MAX_CHANNELS || !copse_scan_literal(s, ", ") ||
      !read_pair(s, "bw ", &bw[0], &bw[1]) || !copse_scan_decimal(&bw[0], &graph.bw_intra) ||
      !copse_scan_decimal(&bw[1], &graph.bw_inter) || !read_pair(s, "type ", &type[0], &type[1]) ||
      !copse_scan_literal(s, "sameChannels ") || !copse_scan_index(s, &same) ||
      !copse_scan_is_empty(s))
    return cut(l);
  graph.same_channels = same > 0;
  COPSE_DO(copse_log_name(l->r, &type[0], &graph.type_intra, l->err));
  COPSE_DO(copse_log_name(l->r, &type[1], &graph.type_inter, l->err));
  COPSE_DO(need_member(l->r, l->thread_index, &member, l->err));
  l->thread->graph = l->r->graphs.n;
  l->thread->graph_left = graph.n_channels;
  return push(&l->r->graphs, member, &graph, l->err);
}

/* Whether NET is decimal, as up to 2.20; it is hex in 2.21 and 2.22, and SYSTEM-DEV from then on,
 * in hex too. */
static bool is_decimal_net(const struct line *l) {
  const char *version = l->r->processes[l->thread->process].version;
  if (!version) version = l->r->version;
  return version && strncmp(version, "2.", 2) == 0 && strncmp(version, "2.21", 4) < 0;
}

/* Reads " GPU/0-22000", " GPU/3" or " NET/0-0". */
static bool read_hop(const struct line *l, struct copse_scan *s, struct copse_log_hop *hop) {
  struct copse_scan word, first;
  uint64_t id;
  int64_t number;
  if (!copse_scan_word(s, &word)) return false;
  *hop = (struct copse_log_hop){.is_net = copse_scan_begins(&word, "NET/"), .system = -1};
  if (!copse_scan_literal(&word, "GPU/") && !copse_scan_literal(&word, "NET/")) return false;
  first = word;
  if (copse_scan_hex(&first, &id) && copse_scan_literal(&first, "-")) {
    hop->system = id < 65536 ? (int)id : 65536;
    return copse_scan_hex(&first, &hop->id) && first.at == first.end;
  }
  if (hop->is_net && !is_decimal_net(l))
    return copse_scan_hex(&word, &hop->id) && word.at == word.end;
  if (!copse_scan_int(&word, false, &number) || word.at != word.end) return false;
  hop->id = (uint64_t)number;
  return true;
}

/* Reads " 0 : NET/0-0 GPU/0-22000 .. NET/0-0". */
static copse_status on_graph_channel(struct line *l) {
  struct copse_log_hops channel = {.graph = l->thread->graph};
  COPSE_AT_END(copse_free_at) struct copse_log_hop *hops = NULL;
  struct copse_log_hop hop, *kept;
  size_t capacity = 0, n = 0;
  while (!copse_scan_is_empty(&l->s)) {
    if (!read_hop(l, &l->s, &hop)) return cut(l);
    COPSE_DO(COPSE_PUSH(hops, n, capacity, l->err, hop));
  }
  COPSE_DO(COPSE_ARRAY(&l->r->arena, n, kept, l->err));
  if (n > 0) memcpy(kept, hops, n * sizeof *kept);
  channel.hops = kept;
  channel.n = (int)n;
  l->thread->graph_left--;
  return push(&l->r->hops, l->r->graphs.members[channel.graph], &channel, l->err);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Reads "IB/0(3)/GDRDMA(PCI)/Shared": the network's name may have blanks and slashes. */
static copse_status read_network(struct line *l, struct copse_scan s, struct copse_log_edge *edge,
                                 bool *good) {
  struct copse_scan rest = s, name = s, after;
  const char *slash = NULL;
  for (after = s; copse_scan_to(&after, "/");)
    if (after.at < after.end && *after.at >= '0' && *after.at <= '9') slash = after.at;
  *good = slash != NULL;
  if (!slash) return COPSE_OK;
  rest.at = slash;
  name.end = slash - 1;
  *good = copse_scan_index(&rest, &edge->net_dev);
  if (copse_scan_literal(&rest, "("))
    *good = *good && copse_scan_index(&rest, &edge->proxy) && copse_scan_literal(&rest, ")");
  edge->gdr = copse_scan_literal(&rest, "/GDRDMA");
  return copse_log_name(l->r, &name, &edge->net, l->err);
}

static copse_status read_via(struct line *l, struct copse_log_edge *edge, bool *good) {
  static const struct {
    const char *text;
    enum copse_log_via via;
  } ways[] = {{"P2P/MNNVL", COPSE_VIA_MNNVL},
              {"P2P/indirect", COPSE_VIA_INDIRECT},
              {"P2P", COPSE_VIA_P2P},
              {"SHM", COPSE_VIA_SHM}};
  struct copse_scan *s = &l->s, comm = *s;
  if (copse_scan_to(&comm, " comm 0x")) s->end = comm.at - strlen(" comm 0x");
  while (s->end > s->at && s->end[-1] == ' ') s->end--;
  *good = s->at < s->end;
  if (copse_scan_literal(s, "NET/") || copse_scan_literal(s, "COLLNET/")) {
    edge->via = s->at[-5] == 'L' ? COPSE_VIA_COLLNET : COPSE_VIA_NET;
    return read_network(l, *s, edge, good);
  }
  edge->via = COPSE_VIA_OTHER;
  for (size_t i = sizeof ways / sizeof *ways; i-- > 0;)
    if (copse_scan_begins(s, ways[i].text)) edge->via = ways[i].via;
  return copse_log_name(l->r, s, &edge->net, l->err);
}

/* Finds the member that an edge is of. Threads that connect at the first call print lines of a
 * communicator that they don't name: it is that in which this process is the rank at this end, if
 * there is one only. The thread's other lines are taken to be of the same. */
static int owner(const struct line *l, const struct copse_log_edge *edge) {
  const struct copse_log_member *members = l->r->members;
  int member = member_of(l->r, l->thread_index), found = -1, tried = 0;
  int rank = edge->receive ? edge->dst : edge->src;
  if (member >= 0 && (members[member].rank.rank < 0 || members[member].rank.rank == rank))
    return member;
  int i = l->r->processes[l->thread->process].first_member;
  for (; i >= 0 && tried < 64; i = members[i].next, tried++) {
    if (members[i].gone || members[i].rank.rank != rank) continue;
    if (found >= 0) return -1;
    found = i;
  }
  if (found >= 0) l->thread->member = found;
  return found;
}

static copse_status add_edge(struct line *l, const struct copse_log_edge *edge) {
  int member = owner(l, edge);
  if (member < 0) COPSE_DO(need_member(l->r, l->thread_index, &member, l->err));
  struct copse_log_pass pass = {edge->channel, edge->src, edge->dst};
  bool is_ring = edge->connection <= 0 && edge->src != edge->dst && member >= 0 &&
                 !l->r->members[member].rings_connected;
  if (is_ring) COPSE_DO(push(&l->r->passes, member, &pass, l->err));
  return push(&l->r->edges, member, edge, l->err);
}

/* Reads "0[0] -> 1[1] via P2P/IPC" or "9[1] -> 0[0] [receive] via NET/IB/0/GDRDMA"; what is in
 * brackets is the NVML device, in 2.18.1 the bus id. */
static copse_status on_edge(struct line *l, struct copse_log_edge *edge) {
  struct copse_scan *s = &l->s;
  uint64_t device;
  bool good;
  if (!copse_scan_index(s, &edge->src) || !copse_scan_literal(s, "[") ||
      !copse_scan_hex(s, &device) || !copse_scan_literal(s, "] -> ") ||
      !copse_scan_index(s, &edge->dst) || !copse_scan_literal(s, "[") ||
      !copse_scan_hex(s, &device) || !copse_scan_literal(s, "] "))
    return cut(l);
  edge->receive = copse_scan_literal(s, "[receive] ");
  if (!edge->receive) copse_scan_literal(s, "[send] ");
  if (edge->src < 0 || edge->dst < 0 || !copse_scan_literal(s, "via ")) return cut(l);
  COPSE_DO(read_via(l, edge, &good));
  return good ? add_edge(l, edge) : cut(l);
}

/* Reads "CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA". */
static copse_status on_collnet(struct line *l) {
  struct copse_log_edge edge = {.connection = -1, .net_dev = -1, .proxy = -1};
  struct copse_scan *s = &l->s;
  bool good;
  if (!read_channel(s, &edge.channel) || !copse_scan_literal(s, "/") ||
      !copse_scan_index(s, &edge.connection) || !copse_scan_literal(s, " : ") ||
      !copse_scan_index(s, &edge.src) || !copse_scan_literal(s, " "))
    return cut(l);
  edge.dst = edge.src;
  edge.receive = copse_scan_literal(s, "[receive] ");
  if (!edge.receive) copse_scan_literal(s, "[send] ");
  if (!copse_scan_literal(s, "via ")) return cut(l);
  COPSE_DO(read_via(l, &edge, &good));
  return good ? add_edge(l, &edge) : cut(l);
}

/* Reads a channel: "Channel 00/24 : 0 1 2 .." is a ring, "Channel 00/0 : 0[0] -> 1[1] via .." a
 * connection. */
static copse_status on_channel(struct line *l) {
  struct copse_log_edge edge = {.connection = -1, .net_dev = -1, .proxy = -1};
  struct copse_scan rest;
  int second = -1, rank;
  if (!read_channel(&l->s, &edge.channel)) return cut(l);
  if (copse_scan_literal(&l->s, "/") && !copse_scan_index(&l->s, &second)) return cut(l);
  copse_scan_blanks(&l->s);
  if (!copse_scan_literal(&l->s, ":")) return cut(l);
  copse_scan_blanks(&l->s);
  rest = l->s;
  if (!copse_scan_index(&rest, &rank)) return cut(l);
  if (!copse_scan_begins(&rest, "[")) return on_order(l, edge.channel, second);
  edge.connection = second;
  return on_edge(l, &edge);
}

/* ---- NICs ------------------------------------------------------------------------------------ */

/* Adds "mlx5_0:1/IB" or "mlx5_0:1:0:0/RoCE". */
static copse_status add_nic(struct line *l, const char *net, int index, struct copse_scan word) {
  struct copse_log_nic nic = {.net = net, .index = index, .link = ""};
  struct copse_scan name = word, link = word;
  nic.host = l->r->processes[l->thread->process].host;
  if (copse_scan_to(&link, "/")) {
    name.end = link.at - 1;
    COPSE_DO(copse_log_name(l->r, &link, &nic.link, l->err));
  }
  COPSE_DO(copse_log_name(l->r, &name, &nic.name, l->err));
  const struct copse_log_nic *all = l->r->nics.values;
  uint64_t key =
      copse_scatter((uintptr_t)nic.host) ^ copse_scatter((uintptr_t)net) ^ (uint64_t)index;
  size_t cursor = 0;
  for (int i; (i = copse_index_map_next(&l->r->nic_map, key, &cursor)) >= 0;)
    if (all[i].index == index && all[i].host == nic.host && all[i].net == net) return COPSE_OK;
  COPSE_DO(copse_index_map_add(&l->r->nic_map, key, l->r->nics.n, l->err));
  return push(&l->r->nics, -1, &nic, l->err);
}

/* Reads "NET/IB : Using [0]mlx5_0:1/IB [1]={[0] mlx5_1:1/IB, ..} [RO]; OOB eth0:192.0.2.10<0>". */
static copse_status on_net(struct line *l) {
  struct copse_scan name = l->s, word, oob;
  const char *net;
  int index;
  if (!copse_scan_to(&l->s, " : Using ")) return COPSE_OK;
  name.end = l->s.at - strlen(" : Using ");
  COPSE_DO(copse_log_name(l->r, &name, &net, l->err));
  oob = l->s;
  if (copse_scan_to(&oob, ";")) l->s.end = oob.at - 1;
  while (copse_scan_to(&l->s, "[")) {
    bool merged;
    if (!copse_scan_index(&l->s, &index) || !copse_scan_literal(&l->s, "]")) continue;
    merged = copse_scan_literal(&l->s, "={");
    word.at = l->s.at;
    if (merged ? !copse_scan_to(&l->s, "}") : !copse_scan_word(&l->s, &word)) return cut(l);
    if (merged) word.end = l->s.at - 1;
    COPSE_DO(add_nic(l, net, index, word));
  }
  return COPSE_OK;
}

/* ---- choices --------------------------------------------------------------------------------- */

/* Reads a choice. Numbers of algorithms and protocols are those of NCCL's
 * src/include/nccl_common.h. */
static copse_status read_choice(struct line *l, const char *key, const char *const *names, int n,
                                const char **out, bool *good) {
  struct copse_scan word;
  int number;
  *good = copse_scan_literal(&l->s, key) && copse_scan_word(&l->s, &word);
  if (!*good) return COPSE_OK;
  struct copse_scan digits = word;
  if (copse_scan_index(&digits, &number) && digits.at == digits.end && number >= 0 && number < n) {
    *out = names[number];
    return COPSE_OK;
  }
  return copse_log_name(l->r, &word, out, l->err);
}

/* Reads "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}", and the older
 * "1048576 Bytes -> Algo 1 proto 2 time 123.456789". */
static copse_status on_pick(struct line *l) {
  static const char *const algorithms[] = {
      "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
  static const char *const protocols[] = {"LL", "LL128", "SIMPLE"};
  struct copse_log_pick pick = {.function = "", .time_us = {-1, 1}, .times = 1};
  struct copse_scan *s = &l->s, name = *s, colon = *s;
  bool good;
  int lo, hi;
  if (copse_scan_to(&colon, ": ")) {
    name.end = colon.at - 2;
    COPSE_DO(copse_log_name(l->r, &name, &pick.function, l->err));
    *s = colon;
  }
  copse_scan_blanks(s);
  if (!copse_scan_int(s, false, &pick.bytes) || !copse_scan_literal(s, " Bytes -> ")) return cut(l);
  COPSE_DO(read_choice(l, "Algo ", algorithms, 7, &pick.algorithm, &good));
  if (good) COPSE_DO(read_choice(l, " proto ", protocols, 3, &pick.protocol, &good));
  if (!good) return cut(l);
  if (copse_scan_literal(s, " time ") && !copse_scan_number(s, &pick.time_us)) return cut(l);
  if (copse_scan_literal(s, " channel{Lo..Hi}={") && copse_scan_index(s, &lo) &&
      copse_scan_literal(s, "..") && copse_scan_index(s, &hi) && lo >= 0 && hi >= lo)
    pick.channels = hi - lo + 1;
  return push(&l->r->picks, member_of(l->r, l->thread_index), &pick, l->err);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Reads "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, ..". */
static copse_status on_channel_counts(struct line *l) {
  struct copse_scan s = l->s;
  int64_t n, coll = 0;
  while (copse_scan_blanks(&s), copse_scan_int(&s, false, &n)) {
    if (copse_scan_begins(&s, " coll ")) coll = n;
    if (!copse_scan_to(&s, ",")) break;
  }
  int member = member_of(l->r, l->thread_index);
  if (member < 0 || coll > MAX_CHANNELS) return COPSE_OK;
  struct copse_log_member *m = &l->r->members[member];
  if (m->n_channels < coll) m->n_channels = (int)coll;
  return COPSE_OK;
}

/* Texts of a list, each once. Very many different ones are left out: none of them is news. */
#define MAX_SAID 4096

static copse_status say(struct line *l, struct copse_log_list *list, const char *host,
                        const char *text) {
  struct copse_log_said said = {.host = host, .text = text, .times = 1};
  struct copse_log_said *all = list->values;
  uint64_t key = copse_key_text(text) ^ (list == &l->r->warnings);
  size_t cursor = 0;
  for (int i; (i = copse_index_map_next(&l->r->said_map, key, &cursor)) >= 0;)
    if (i < list->n && all[i].text == text) {
      all[i].times++;
      return COPSE_OK;
    }
  if (list->n >= MAX_SAID) return COPSE_OK;
  COPSE_DO(copse_index_map_add(&l->r->said_map, key, list->n, l->err));
  return push(list, -1, &said, l->err);
}

/* Reads "NCCL_ALGO set by environment to RING.". */
static copse_status on_setting(struct line *l) {
  struct copse_scan s = l->s, name;
  char text[512];
  const char *kept;
  if (!copse_scan_word(&s, &name) || !copse_scan_literal(&s, " set by environment to "))
    return cut(l);
  while (s.end > s.at && (s.end[-1] == '.' || s.end[-1] == ' ')) s.end--;
  int n = snprintf(text, sizeof text, "%.*s=%.*s", (int)copse_smaller(name.end - name.at, 100),
                   name.at, (int)copse_smaller(s.end - s.at, 120), s.at);
  COPSE_DO(copse_log_name(l->r, &(struct copse_scan){text, text + n}, &kept, l->err));
  return say(l, &l->r->settings, l->r->processes[l->thread->process].host, kept);
}

static copse_status on_version(struct line *l) {
  struct copse_scan word;
  if (!copse_scan_word(&l->s, &word)) return cut(l);
  if (copse_scan_is(&word, ":") && !copse_scan_word(&l->s, &word)) return cut(l);
  return copse_log_name(l->r, &word, &l->r->processes[l->thread->process].version, l->err);
}

/* Lines that are told apart by how they begin. */
static const struct {
  const char *begin;
  copse_status (*read)(struct line *l);
} kinds[] = {{"Channel ", on_channel},
             {"Ring ", on_ring},
             {"Trees", on_trees},
             {"Tree ", on_tree},
             {"Pattern ", on_pattern},
             {"CollNet ", on_collnet},
             {"NET/", on_net},
             {"NCCL version ", on_version},
             {"RCCL version ", on_version},
             {"Connected all rings", on_rings_connected}};

/* Whether the line is a graph's channel: it begins with blanks and goes by the lines before it. */
static bool is_graph_channel(struct line *l) {
  struct copse_scan s = l->s;
  int channel;
  copse_scan_blanks(&s);
  if (l->thread->graph < 0 || l->thread->graph_left <= 0) return false;
  if (!copse_scan_index(&s, &channel) || !copse_scan_literal(&s, " : ")) return false;
  l->s = s;
  return true;
}

copse_status copse_log_message(struct copse_log_reader *r, int thread, bool is_warning,
                               struct copse_scan message, struct copse_err *err) {
  struct line l = {r,  &r->threads[thread], thread, message, (size_t)(message.end - message.at),
                   err};
  if (is_warning) {
    const char *text;
    COPSE_DO(copse_log_name(r, &message, &text, err));
    return say(&l, &r->warnings, r->processes[l.thread->process].host, text);
  }
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (copse_scan_literal(&l.s, kinds[i].begin)) return kinds[i].read(&l);
  if (is_graph_channel(&l)) return on_graph_channel(&l);
  struct copse_scan s = message;
  if (copse_scan_to(&s, " Bytes -> Algo ")) return on_pick(&l);
  if (copse_scan_to(&s, " set by environment to ")) return on_setting(&l);
  if (copse_scan_to(&s, " coll channels, ")) return on_channel_counts(&l);
  if (copse_scan_to(&s, "comm 0x")) return name_comm(r, thread, message, err);
  return COPSE_OK;
}
