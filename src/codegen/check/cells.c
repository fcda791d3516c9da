/*
 * The memory of foreign programs on names, and the order of what their threads do; and the
 * multisets of ranks that all proofs compute with. docs/theory.md, "src/codegen/check/".
 */
#include "codegen/check/cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/text.h"
#include "codegen/check/multisets.h"

/* ==== multisets =============================================================================== */

/* Multisets of ranks: how often each rank's input went into a value. All proofs compute with them
 * in place of numbers, so that no wrong sum passes for a right one. */

/* Ranks are listed up to here, with room for one more. */
#define MOST_TEXT 216u

/* A sum as it was asked for. */
struct sum {
  int set, n;
  const int *terms;
};

struct copse_multisets {
  int n_ranks;
  uint8_t **counts; /* [n] of n_ranks each */
  size_t n, capacity;
  struct copse_index_map by_counts;
  struct sum *sums; /* [n_sums] */
  size_t n_sums, sums_capacity;
  struct copse_index_map by_terms;
  uint8_t *sum; /* [n_ranks] the multiset at hand */
  struct copse_arena arena;
  struct copse_line line; /* for messages */
};

copse_status copse_multisets_new(int n_ranks, struct copse_multisets **out, struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  (*out)->n_ranks = n_ranks;
  return COPSE_ARRAY(&(*out)->arena, (size_t)n_ranks, (*out)->sum, err);
}

void copse_multisets_free(struct copse_multisets *sets) {
  if (!sets) return;
  copse_index_map_free(&sets->by_counts);
  copse_index_map_free(&sets->by_terms);
  copse_arena_free(&sets->arena);
  free(sets);
}

/* Finds the number of the multiset in `sum`. */
static copse_status intern(struct copse_multisets *sets, int *set, struct copse_err *err) {
  size_t n = (size_t)sets->n_ranks, cursor = 0;
  uint64_t key = COPSE_HASH;
  uint8_t *copy;
  for (size_t i = 0; i < n; i++) key = copse_hash(key, sets->sum[i]);
  while ((*set = copse_index_map_next(&sets->by_counts, key, &cursor)) >= 0)
    if (memcmp(sets->counts[*set], sets->sum, n) == 0) return COPSE_OK;
  COPSE_DO(COPSE_GROW_IN(&sets->arena, sets->counts, sets->capacity, sets->n + 1, err));
  COPSE_DO(COPSE_ARRAY(&sets->arena, n, copy, err));
  COPSE_DO(copse_index_map_add(&sets->by_counts, key, (int)sets->n, err));
  memcpy(copy, sets->sum, n);
  *set = (int)sets->n;
  sets->counts[sets->n++] = copy;
  return COPSE_OK;
}

copse_status copse_multisets_single(struct copse_multisets *sets, int rank, int *set,
                                    struct copse_err *err) {
  memset(sets->sum, 0, (size_t)sets->n_ranks);
  sets->sum[rank] = 1;
  return intern(sets, set, err);
}

copse_status copse_multisets_everyone(struct copse_multisets *sets, int *set,
                                      struct copse_err *err) {
  memset(sets->sum, 1, (size_t)sets->n_ranks);
  return intern(sets, set, err);
}

static uint64_t key_of_terms(const int *terms, int n) {
  uint64_t key = (uint64_t)n;
  for (int i = 0; i < n; i++) key = copse_mix(key ^ (uint32_t)terms[i]);
  return key;
}

/* Returns the sum of these terms if it has been asked for before, or -1. */
static int known_sum(const struct copse_multisets *sets, uint64_t key, const int *terms, int n) {
  size_t cursor = 0, bytes = (size_t)n * sizeof *terms;
  for (int i; (i = copse_index_map_next(&sets->by_terms, key, &cursor)) >= 0;) {
    const struct sum *s = &sets->sums[i];
    if (s->n == n && memcmp(s->terms, terms, bytes) == 0) return s->set;
  }
  return -1;
}

static copse_status remember_sum(struct copse_multisets *sets, uint64_t key, const int *terms,
                                 int n, int set, struct copse_err *err) {
  int *copy;
  COPSE_DO(COPSE_ARRAY(&sets->arena, (size_t)n, copy, err));
  memcpy(copy, terms, (size_t)n * sizeof *terms);
  COPSE_DO(COPSE_GROW_IN(&sets->arena, sets->sums, sets->sums_capacity, sets->n_sums + 1, err));
  COPSE_DO(copse_index_map_add(&sets->by_terms, key, (int)sets->n_sums, err));
  sets->sums[sets->n_sums++] = (struct sum){set, n, copy};
  return COPSE_OK;
}

copse_status copse_multisets_sum(struct copse_multisets *sets, const int *terms, int n, int *set,
                                 struct copse_err *err) {
  uint64_t key = key_of_terms(terms, n);
  *set = n == 1 ? terms[0] : known_sum(sets, key, terms, n);
  if (*set >= 0) return COPSE_OK;
  memset(sets->sum, 0, (size_t)sets->n_ranks);
  for (int t = 0; t < n; t++) {
    const uint8_t *counts = sets->counts[terms[t]];
    for (int i = 0; i < sets->n_ranks; i++) {
      int sum = sets->sum[i] + counts[i];
      sets->sum[i] = (uint8_t)(sum > 255 ? 255 : sum);
    }
  }
  COPSE_DO(intern(sets, set, err));
  return remember_sum(sets, key, terms, n, *set, err);
}

bool copse_multisets_has(const struct copse_multisets *sets, int set, int rank) {
  return sets->counts[set][rank] > 0;
}

/* Whether some rank is in the multiset more than once. */
static bool multisets_repeats(const struct copse_multisets *sets, int set) {
  for (int i = 0; i < sets->n_ranks; i++)
    if (sets->counts[set][i] > 1) return true;
  return false;
}

const char *copse_multisets_text(struct copse_multisets *sets, int set) {
  const uint8_t *counts = sets->counts[set];
  const char *separator = " ";
  sets->line = (struct copse_line){.text = "ranks", .used = 5};
  for (int from = 0, to; from < sets->n_ranks && sets->line.used < MOST_TEXT; from = to) {
    for (to = from + 1; to < sets->n_ranks && counts[to] == counts[from];) to++;
    if (counts[from] == 0) continue;
    copse_line_add(&sets->line, "%s%d", separator, from);
    if (to - from > 1) copse_line_add(&sets->line, "-%d", to - 1);
    if (counts[from] > 1) copse_line_add(&sets->line, " (%d times)", counts[from]);
    separator = ", ";
  }
  return sets->line.text;
}

/* ==== cells and histories ===================================================================== */

/*
 * The memory of foreign programs on names, and the order of what their threads do.
 *
 * Histories. A thread's history is what it knows of the others: for each thread its latest action
 * known to be done (a vector clock). It travels with data, signals and flags. Histories are sparse,
 * as a thread learns of few others, and shared, so that keeping one costs little. A thread may be a
 * group whose members are ordered only where they meet: what it does is before its next actions,
 * and part of its history, once its members have met.
 *
 * Cells. Undefined memory and sums of different chunks are values too, with the step that made
 * them: only what reaches an output is a defect, and then that step is named. An access that is not
 * ordered with a conflicting one is a race.
 */

/* ---- histories ---------------------------------------------------------------------------- */

struct copse_history {
  struct copse_history *next, **at; /* all threads' histories; at: what points to this one */
  int refs;
  int n;
  struct copse_action last[]; /* [n] by thread: the latest known action of each */
};

struct thread {
  uint32_t time;
  uint32_t met; /* the time up to which its actions are ordered before its next ones */
  struct copse_history *known; /* NULL: nothing; its own entry may be behind `time` */
};

struct copse_threads {
  int n, n_groups;
  struct thread *threads;
  struct copse_history *histories;
};

struct copse_action copse_threads_act(struct copse_threads *t, int thread) {
  struct copse_action action = {thread, ++t->threads[thread].time};
  if (thread >= t->n_groups) copse_threads_meet(t, thread);
  return action;
}

void copse_threads_meet(struct copse_threads *t, int thread) {
  t->threads[thread].met = t->threads[thread].time;
}

uint32_t copse_threads_time(const struct copse_threads *t, int thread) {
  return t->threads[thread].time;
}

static copse_status new_history(struct copse_threads *t, int n, struct copse_history **out,
                                struct copse_err *err) {
  struct copse_history *h;
  COPSE_DO(copse_calloc(1, sizeof *h + (size_t)n * sizeof *h->last, &h, err));
  h->refs = 1;
  h->next = t->histories;
  h->at = &t->histories;
  if (h->next) h->next->at = &h->next;
  *out = t->histories = h;
  return COPSE_OK;
}

void copse_history_drop(struct copse_history *h) {
  if (!h || --h->refs > 0) return;
  *h->at = h->next;
  if (h->next) h->next->at = h->at;
  free(h);
}

/* Merges what the thread knows of both: of each thread the later action. */
static copse_status merge(struct copse_threads *t, struct thread *me, const struct copse_history *b,
                          struct copse_err *err) {
  const struct copse_history *a = me->known;
  struct copse_history *both;
  int i = 0, j = 0;
  COPSE_DO(new_history(t, a->n + b->n, &both, err));
  while (i < a->n || j < b->n) {
    struct copse_action *next = &both->last[both->n++];
    if (j == b->n || (i < a->n && a->last[i].thread < b->last[j].thread)) {
      *next = a->last[i++];
    } else if (i == a->n || b->last[j].thread < a->last[i].thread) {
      *next = b->last[j++];
    } else {
      *next = a->last[i].time > b->last[j].time ? a->last[i] : b->last[j];
      i++, j++;
    }
  }
  copse_history_drop(me->known);
  me->known = both;
  return COPSE_OK;
}

/* Whether `a` holds all that `b` holds. */
static bool covers(const struct copse_history *a, const struct copse_history *b) {
  int i = 0;
  for (int j = 0; j < b->n; j++) {
    while (i < a->n && a->last[i].thread < b->last[j].thread) i++;
    if (i == a->n || a->last[i].thread != b->last[j].thread || a->last[i].time < b->last[j].time)
      return false;
  }
  return true;
}

copse_status copse_history_learn(struct copse_threads *t, int thread, struct copse_history *history,
                                 struct copse_err *err) {
  struct thread *me = &t->threads[thread];
  if (!me->known) {
    me->known = history;
    history->refs++;
    return COPSE_OK;
  }
  if (me->known == history || covers(me->known, history)) return COPSE_OK;
  return merge(t, me, history, err);
}

copse_status copse_history_learn_action(struct copse_threads *t, int thread,
                                        struct copse_action action, struct copse_err *err) {
  struct copse_history *h;
  COPSE_DO(new_history(t, 1, &h, err));
  h->last[h->n++] = action;
  copse_status status = copse_history_learn(t, thread, h, err);
  copse_history_drop(h);
  return status;
}

copse_status copse_history_take(struct copse_threads *t, int thread, struct copse_history **out,
                                struct copse_err *err) {
  struct thread *me = &t->threads[thread];
  COPSE_DO(copse_history_learn_action(t, thread, (struct copse_action){thread, me->met}, err));
  me->known->refs++;
  *out = me->known;
  return COPSE_OK;
}

bool copse_threads_before(const struct copse_threads *t, struct copse_action action, int thread) {
  const struct copse_history *h = t->threads[thread].known;
  if (action.time == 0) return true;
  if (action.thread == thread)
    return action.time <= t->threads[thread].met || action.time == t->threads[thread].time;
  int low = 0, high = h ? h->n : 0;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (h->last[middle].thread < action.thread)
      low = middle + 1;
    else
      high = middle;
  }
  return h && low < h->n && h->last[low].thread == action.thread &&
         h->last[low].time >= action.time;
}

/* ---- cells -------------------------------------------------------------------------------- */

#define MAX_CELLS ((int64_t)1 << 25)

struct read {
  struct copse_action action;
  struct read *next;
};

struct cell {
  struct copse_value value;
  struct copse_action written;        /* last; time 0: never */
  struct read *reads;                 /* since then, the last of each thread */
  const struct copse_late_read *late; /* the first of the launch before */
};

/* A read that goes on when its rank has left. */
struct copse_late_read {
  struct copse_late_read *next; /* of the same cell, or a later one */
  size_t cell;
  char step[64];
  bool *known; /* [n_ranks] whether the rank knew of the read when it left */
};

struct copse_cells {
  struct copse_cells_of of;
  struct copse_threads threads;
  struct copse_multisets *sets;
  int *singles; /* [n_ranks] the set of one rank */
  int everyone;
  struct cell *cells;
  size_t n_cells;
  size_t *first; /* [n_ranks * COPSE_N_LETTERS] */
  int first_entry;
  struct read *spare; /* to be used again */
  struct copse_arena *arena;
};

static const char letters[] = "ios";

/* ---- where things are ----------------------------------------------------------------- */

int copse_cells_size(const struct copse_cells *c, int rank, enum copse_buffer_letter letter) {
  int blocks = letter == COPSE_LETTER_I ? copse_collective_inputs(c->of.collective, c->of.n_ranks)
                                        : copse_collective_outputs(c->of.collective, c->of.n_ranks);
  return (letter == COPSE_LETTER_S ? c->of.scratch[rank] : blocks * c->of.block) * c->of.slices;
}

/* Returns a cell's index. In place, one of input and output is a part of the other or both are the
 * same. */
static size_t index_of(const struct copse_cells *c, struct copse_cell_at at) {
  if (c->of.in_place) {
    int own = at.rank * c->of.block * c->of.slices;
    if (c->of.collective == COPSE_REDUCE_SCATTER && at.letter == COPSE_LETTER_O)
      at = (struct copse_cell_at){at.rank, COPSE_LETTER_I, own + at.offset};
    else if (c->of.collective == COPSE_ALLGATHER && at.letter == COPSE_LETTER_I)
      at = (struct copse_cell_at){at.rank, COPSE_LETTER_O, own + at.offset};
    else if (c->of.collective != COPSE_REDUCE_SCATTER && at.letter == COPSE_LETTER_I)
      at.letter = COPSE_LETTER_O;
  }
  return c->first[at.rank * COPSE_N_LETTERS + (int)at.letter] + (size_t)at.offset;
}

bool copse_cells_same(const struct copse_cells *c, struct copse_cell_at a, struct copse_cell_at b) {
  return index_of(c, a) == index_of(c, b);
}

static copse_status place_buffers(struct copse_cells *c, struct copse_err *err) {
  int64_t n = 0;
  COPSE_DO(COPSE_ARRAY(c->arena, (size_t)c->of.n_ranks * COPSE_N_LETTERS, c->first, err));
  for (int r = 0; r < c->of.n_ranks; r++)
    for (int l = 0; l < COPSE_N_LETTERS; l++) {
      c->first[r * COPSE_N_LETTERS + l] = (size_t)n;
      n += copse_cells_size(c, r, (enum copse_buffer_letter)l);
    }
  if (n > MAX_CELLS)
    return copse_fail_at(err, COPSE_UNSUPPORTED, c->of.label, 0,
                         "%lld chunks of memory over all ranks, more than the %lld that this "
                         "checker follows",
                         (long long)n, (long long)MAX_CELLS);
  c->n_cells = (size_t)n;
  return COPSE_ARRAY(c->arena, c->n_cells, c->cells, err);
}

static void fill_inputs(struct copse_cells *c) {
  for (size_t i = 0; i < c->n_cells; i++) c->cells[i].value.set = COPSE_SET_UNDEFINED;
  for (int r = 0; r < c->of.n_ranks; r++) {
    int n = copse_cells_size(c, r, COPSE_LETTER_I);
    int first = c->of.collective == COPSE_ALLGATHER ? r * c->of.block * c->of.slices : 0;
    for (int j = 0; j < n; j++)
      c->cells[index_of(c, (struct copse_cell_at){r, COPSE_LETTER_I, j})].value =
          (struct copse_value){c->singles[r], first + j, {0, 0}};
  }
}

copse_status copse_cells_new(struct copse_arena *arena, const struct copse_cells_of *of,
                             struct copse_cells **out, struct copse_threads **threads,
                             struct copse_err *err) {
  struct copse_cells *c;
  COPSE_DO(COPSE_ARRAY(arena, 1, c, err));
  *out = c;
  *threads = &c->threads;
  c->arena = arena;
  c->of = *of;
  if (c->of.slices == 0) c->of.slices = 1;
  c->threads.n = of->n_threads;
  c->threads.n_groups = of->n_groups;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)of->n_threads, c->threads.threads, err));
  COPSE_DO(copse_multisets_new(of->n_ranks, &c->sets, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)of->n_ranks, c->singles, err));
  for (int r = 0; r < of->n_ranks; r++)
    COPSE_DO(copse_multisets_single(c->sets, r, &c->singles[r], err));
  COPSE_DO(copse_multisets_everyone(c->sets, &c->everyone, err));
  COPSE_DO(place_buffers(c, err));
  fill_inputs(c);
  return COPSE_OK;
}

void copse_cells_free(struct copse_cells *c) {
  if (!c) return;
  while (c->threads.histories) {
    struct copse_history *next = c->threads.histories->next;
    free(c->threads.histories);
    c->threads.histories = next;
  }
  copse_multisets_free(c->sets);
}

/* ---- accesses ------------------------------------------------------------------------- */

static copse_status refute_race(struct copse_cells *c, struct copse_action now, const char *does,
                                struct copse_cell_at at, struct copse_action other, const char *did,
                                struct copse_err *err) {
  char here[64], there[64];
  long line = c->of.name(c->of.ctx, now, here);
  c->of.name(c->of.ctx, other, there);
  return copse_fail_at(err, COPSE_REFUTED, c->of.label, line,
                       "%s %s %c[%d] of gpu %d, which %s %s: a race, nothing orders the two", here,
                       does, letters[at.letter], at.offset / c->of.slices, at.rank, there, did);
}

static copse_status new_read(struct copse_cells *c, struct read **out, struct copse_err *err) {
  if (!c->spare) return COPSE_ARRAY(c->arena, 1, *out, err);
  *out = c->spare;
  c->spare = c->spare->next;
  (*out)->next = NULL;
  return COPSE_OK;
}

copse_status copse_cells_read(struct copse_cells *c, struct copse_action action,
                              struct copse_cell_at at, struct copse_value *value,
                              struct copse_err *err) {
  struct cell *cell = &c->cells[index_of(c, at)];
  if (!copse_threads_before(&c->threads, cell->written, action.thread))
    return refute_race(c, action, "reads", at, cell->written, "writes", err);
  *value = cell->value;
  if (value->set == COPSE_SET_UNDEFINED && value->fault.time == 0) value->fault = action;
  struct read **mine = &cell->reads;
  while (*mine && (*mine)->action.thread != action.thread) mine = &(*mine)->next;
  if (!*mine) COPSE_DO(new_read(c, mine, err));
  (*mine)->action = action;
  return COPSE_OK;
}

/* Checks the first write of a launch, and what may still be read there since the launch before. */
static copse_status check_late(struct copse_cells *c, const struct cell *cell,
                               struct copse_action action, struct copse_cell_at at,
                               struct copse_err *err) {
  const struct copse_late_read *late = cell->late;
  for (; late && late->cell == cell->late->cell; late = late->next) {
    bool safe = false;
    for (int q = 0; q < c->of.n_ranks && !safe; q++) {
      struct copse_action entry = {c->first_entry + q, 1};
      safe = late->known[q] && copse_threads_before(&c->threads, entry, action.thread);
    }
    if (safe) continue;
    char here[64];
    long line = c->of.name(c->of.ctx, action, here);
    return copse_fail_at(err, COPSE_REFUTED, c->of.label, line,
                         "%s writes %c[%d] of gpu %d, which %s of the launch before may still read "
                         "through its port: a race, nothing tells that it has",
                         here, letters[at.letter], at.offset / c->of.slices, at.rank, late->step);
  }
  return COPSE_OK;
}

copse_status copse_cells_write(struct copse_cells *c, struct copse_action action,
                               struct copse_cell_at at, struct copse_value value,
                               struct copse_err *err) {
  struct cell *cell = &c->cells[index_of(c, at)];
  if (!copse_threads_before(&c->threads, cell->written, action.thread))
    return refute_race(c, action, "writes", at, cell->written, "writes too", err);
  struct read **end = &cell->reads;
  for (; *end; end = &(*end)->next)
    if (!copse_threads_before(&c->threads, (*end)->action, action.thread))
      return refute_race(c, action, "writes", at, (*end)->action, "reads", err);
  if (cell->late && cell->written.time == 0) COPSE_DO(check_late(c, cell, action, at, err));
  *end = c->spare;
  c->spare = cell->reads;
  cell->reads = NULL;
  cell->written = action;
  cell->value = value;
  return COPSE_OK;
}

copse_status copse_cells_add(struct copse_cells *c, struct copse_action action,
                             struct copse_value *a, struct copse_value b, struct copse_err *err) {
  bool sound = a->fault.time == 0 && b.fault.time == 0;
  if (a->set < 0 || b.set < 0) {
    if (a->set >= 0) *a = b;
  } else if (a->position != b.position) {
    a->set = COPSE_SET_MIXED;
  } else {
    COPSE_DO(copse_multisets_sum(c->sets, (int[]){a->set, b.set}, 2, &a->set, err));
  }
  if (a->fault.time == 0) a->fault = b.fault;
  if (sound && (a->set == COPSE_SET_MIXED || multisets_repeats(c->sets, a->set))) a->fault = action;
  return COPSE_OK;
}

copse_status copse_cells_check_left(struct copse_cells *c, int first_end, int exempt,
                                    struct copse_err *err) {
  for (int r = 0; r < c->of.n_ranks; r++)
    for (int l = COPSE_N_LETTERS - 1; l >= 0; l--) /* in place, o is the better name than i */
      for (int j = 0; j < copse_cells_size(c, r, (enum copse_buffer_letter)l); j++) {
        struct copse_cell_at at = {r, (enum copse_buffer_letter)l, j};
        const struct cell *cell = &c->cells[index_of(c, at)];
        struct copse_action late = {0, 0};
        if (!copse_threads_before(&c->threads, cell->written, first_end + r)) late = cell->written;
        for (const struct read *i = cell->reads; i; i = i->next)
          if (i->action.thread < exempt &&
              !copse_threads_before(&c->threads, i->action, first_end + r))
            late = i->action;
        if (late.time == 0) continue;
        char step[64];
        long line = c->of.name(c->of.ctx, late, step);
        return copse_fail_at(err, COPSE_REFUTED, c->of.label, line,
                             "%s uses %c[%d] of gpu %d, which may have left by then: it waits for "
                             "no word of it",
                             step, letters[l], j / c->of.slices, r);
      }
  return COPSE_OK;
}

/* ---- from one launch to the next ------------------------------------------------------ */

copse_status copse_late_reads_take(const struct copse_cells *c, int first, int first_end,
                                   struct copse_late_reads *out, struct copse_err *err) {
  struct copse_late_read **end = &out->first, *late;
  size_t n_ranks = (size_t)c->of.n_ranks;
  for (size_t i = 0; i < c->n_cells; i++) {
    if (c->cells[i].written.time == 0) continue; /* nor will it be in the next launch */
    for (const struct read *k = c->cells[i].reads; k; k = k->next) {
      if (k->action.thread < first || k->action.thread >= first_end) continue;
      COPSE_DO(COPSE_ARRAY(&out->arena, 1, late, err));
      late->cell = i;
      c->of.name(c->of.ctx, k->action, late->step);
      COPSE_DO(COPSE_ARRAY(&out->arena, n_ranks, late->known, err));
      for (size_t q = 0; q < n_ranks; q++)
        late->known[q] = copse_threads_before(&c->threads, k->action, first_end + (int)q);
      *end = late;
      end = &late->next;
    }
  }
  return COPSE_OK;
}

void copse_cells_guard(struct copse_cells *c, const struct copse_late_reads *late,
                       int first_entry) {
  c->first_entry = first_entry;
  for (const struct copse_late_read *i = late ? late->first : NULL; i; i = i->next)
    if (!c->cells[i->cell].late) c->cells[i->cell].late = i;
}

/* ---- the result ----------------------------------------------------------------------- */

/* Returns what o[j] of the rank must be; set COPSE_SET_UNDEFINED: anything. */
static struct copse_value expected(const struct copse_cells *c, int rank, int j, int root) {
  struct copse_value v = {c->everyone, j, {0, 0}};
  int size = c->of.block * c->of.slices, block = j / size;
  switch (c->of.collective) {
    case COPSE_ALLREDUCE: break;
    case COPSE_REDUCE_SCATTER: v.position = rank * size + j; break;
    case COPSE_ALLGATHER: v.set = c->singles[block]; break;
    case COPSE_ALLTOALL:
      v.set = c->singles[block];
      v.position = rank * size + j % size;
      break;
    case COPSE_BROADCAST: v.set = c->singles[root]; break;
    case COPSE_REDUCE:
      if (rank != root) v.set = COPSE_SET_UNDEFINED;
      break;
  }
  return v;
}

/* Finds the root that a file for a rooted collective serves: the one whose result it has. */
static int find_root(const struct copse_cells *c) {
  bool reduce = c->of.collective == COPSE_REDUCE;
  int last = c->of.n_ranks - 1;
  for (int r = 0; r < c->of.n_ranks; r++) {
    struct copse_cell_at at = {reduce ? r : last, COPSE_LETTER_O, 0};
    int set = c->cells[index_of(c, at)].value.set;
    if (set == (reduce ? c->everyone : c->singles[r])) return r;
  }
  return 0;
}

static void describe(struct copse_cells *c, struct copse_value v, char *text, size_t size) {
  if (v.set == COPSE_SET_UNDEFINED)
    snprintf(text, size, "undefined memory");
  else if (v.set == COPSE_SET_MIXED)
    snprintf(text, size, "a sum of different chunks");
  else
    snprintf(text, size, "chunk %d of %s", v.position / c->of.slices,
             copse_multisets_text(c->sets, v.set));
}

static copse_status refute_result(struct copse_cells *c, struct copse_cell_at at,
                                  struct copse_value want, struct copse_err *err) {
  const struct cell *cell = &c->cells[index_of(c, at)];
  char has[300], wanted[300], step[64];
  struct copse_action blame = cell->value.fault.time ? cell->value.fault : cell->written;
  describe(c, cell->value, has, sizeof has);
  describe(c, want, wanted, sizeof wanted);
  const char *place = c->of.in_place ? "in place" : "out of place";
  if (blame.time == 0)
    return copse_fail_at(err, COPSE_REFUTED, c->of.label, 0,
                         "o[%d] of gpu %d is never written (%s): it needs %.100s",
                         at.offset / c->of.slices, at.rank, place, wanted);
  long line = c->of.name(c->of.ctx, blame, step);
  const char *why = cell->value.fault.time == 0              ? "writes the last value of"
                    : cell->value.set == COPSE_SET_UNDEFINED ? "reads undefined memory for"
                    : cell->value.set == COPSE_SET_MIXED     ? "adds different chunks for"
                                                             : "adds a rank twice for";
  return copse_fail_at(err, COPSE_REFUTED, c->of.label, line,
                       "%s %s o[%d] of gpu %d, which ends as %.110s instead of %.110s (%s)", step,
                       why, at.offset / c->of.slices, at.rank, has, wanted, place);
}

copse_status copse_cells_check_result(struct copse_cells *c, struct copse_err *err) {
  int root = find_root(c);
  for (int r = 0; r < c->of.n_ranks; r++) {
    int n = copse_cells_size(c, r, COPSE_LETTER_O);
    for (int j = 0; j < n; j++) {
      struct copse_cell_at at = {r, COPSE_LETTER_O, j};
      struct copse_value want = expected(c, r, j, root), has = c->cells[index_of(c, at)].value;
      if (want.set != COPSE_SET_UNDEFINED && (has.set != want.set || has.position != want.position))
        return refute_result(c, at, want, err);
    }
  }
  return COPSE_OK;
}
