/* Finds guessed links in the certificate of a schedule's bound (guess.h). */
#include "schedule/guess.h"

#include <string.h>

#include "base/types.h"

/* Marks links that lead out of a set of nodes, or into it. */
static void cross(const struct copse_topology *t, const int *nodes, int n, bool into, bool *inside,
                  bool *counts) {
  memset(inside, 0, (size_t)t->n_nodes * sizeof *inside);
  for (int i = 0; i < n; i++) inside[nodes[i]] = true;
  for (int i = 0; i < t->n_links && n > 0; i++)
    counts[i] |= inside[t->links[i].src] != into && inside[t->links[i].dst] == into;
}

copse_status copse_guessed_find(const struct copse_topology *topology,
                                const struct copse_schedule *schedule, struct copse_arena *arena,
                                struct copse_guessed *out, struct copse_err *err) {
  const struct copse_bound *bound = &schedule->bound;
  size_t n_links = (size_t)topology->n_links;
  bool *inside, *counts;
  int *links;
  *out = (struct copse_guessed){0};
  COPSE_DO(COPSE_ARRAY(arena, (size_t)topology->n_nodes, inside, err));
  COPSE_DO(COPSE_ARRAY(arena, n_links, counts, err));
  COPSE_DO(COPSE_ARRAY(arena, n_links, links, err));
  bool reduces = copse_collective_reduces(schedule->collective);
  cross(topology, bound->cut, bound->n_cut, reduces && schedule->collective != COPSE_ALLREDUCE,
        inside, counts);
  cross(topology, bound->reduce_cut, bound->n_reduce_cut, true, inside, counts);
  for (int i = 0; i < bound->n_cuts; i++)
    cross(topology, bound->cuts[i].nodes, bound->cuts[i].n_nodes,
          bound->cuts[i].phase == COPSE_PHASE_REDUCE, inside, counts);
  for (int i = 0; i < bound->n_lengths; i++) {
    int link = copse_topology_find_link(topology, bound->lengths[i].src, bound->lengths[i].dst);
    if (link >= 0) counts[link] = true;
  }
  for (int i = 0; i < topology->n_links; i++)
    if (counts[i] && topology->links[i].guess != COPSE_GUESS_NONE) links[out->n++] = i;
  out->links = links;
  return COPSE_OK;
}

/* Those of one kind; false, and nothing, where there is none. */
static bool add_kind(const struct copse_topology *topology, const struct copse_guessed *guessed,
                     enum copse_guess guess, struct copse_text *text) {
  const struct copse_link *first = NULL;
  int n = 0;
  for (int i = guessed->n - 1; i >= 0; i--) {
    const struct copse_link *link = &topology->links[guessed->links[i]];
    if (link->guess != guess) continue;
    first = link;
    n++;
  }
  if (!first) return false;
  copse_text_add(text, "%s -> %s", topology->nodes[first->src].id, topology->nodes[first->dst].id);
  if (n > 1) copse_text_add(text, " and %d like it", n - 1);
  copse_text_add(text, ", %.10g GB/s: %s", copse_q_to_double(first->bandwidth),
                 copse_guess_reason(guess));
  return true;
}

void copse_guessed_text(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        const char *before, struct copse_text *text) {
  for (enum copse_guess guess = COPSE_GUESS_NONE + 1; guess <= COPSE_GUESS_CLASS; guess++) {
    size_t start = text->size;
    copse_text_add(text, "%s", before);
    if (add_kind(topology, guessed, guess, text))
      copse_text_add(text, ". To measure it: %s\n", copse_guess_remedy(guess));
    else
      text->size = start;
  }
}

void copse_guessed_json(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        struct copse_text *text) {
  copse_text_add(text, "[");
  for (int i = 0; i < guessed->n; i++) {
    const struct copse_link *link = &topology->links[guessed->links[i]];
    copse_text_add(text, "%s{\"src\": ", i ? ", " : "");
    copse_text_add_json_string(text, topology->nodes[link->src].id);
    copse_text_add(text, ", \"dst\": ");
    copse_text_add_json_string(text, topology->nodes[link->dst].id);
    copse_text_add(text, ", \"bandwidth_GBps\": ");
    copse_text_add_json_number(text, copse_q_to_double(link->bandwidth));
    copse_text_add(text, ", \"reason\": ");
    copse_text_add_json_string(text, copse_guess_reason(link->guess));
    copse_text_add(text, ", \"remedy\": ");
    copse_text_add_json_string(text, copse_guess_remedy(link->guess));
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]");
}
