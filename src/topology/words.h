/*
 * The parts of a topology as people know them.
 *
 *   question                                          function
 *   -----------------------------------------------   -----------------------------
 *   which nodes are a host's?                         copse_places_find
 *   "GPU 3 of h1"                                     copse_node_words
 *   "h0.gpu0 -> h0.nvswitch (.., 300 GB/s)"           copse_link_words
 *   "into host h0: 8 NICs of 50 GB/s"                 copse_cut_words
 *   which id may have been meant?                     COPSE_NEAR_ID
 *   which nodes does "net@mlx5_*" name?               copse_id_is_pattern, copse_id_matches
 */
#pragma once

#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "topology/topology.h"

struct copse_places {
  int n;                    /* 0: none to tell */
  const int *of;            /* [n_nodes] -1: of the fabric, or n is 0 */
  const char *const *names; /* [n] "h3"; "host 3" where ids have no such prefix */
  const int *numbers; /* [n_nodes] number of a rank in its host: NVML's where the file has it, else
                         that in its id "gpu3", else by order of ranks; -1: no rank */
};

/* Measures "NAME." at the start of an id, NAME a word; 0 if it has none. */
size_t copse_id_prefix(const char *id);

/* Finds hosts by ids, if every rank has a prefix and there are two or more of two nodes; else by
 * links: components without the nodes of type "switch", of at least two ranks each. They are in
 * order of their first ranks; `arena` has all of *out. COPSE_NOMEM. O(n_nodes + n_links). */
copse_status copse_places_find(const struct copse_topology *topology, struct copse_arena *arena,
                               struct copse_places *out, struct copse_err *err) COPSE_CHECKED;

/* Adds "GPU 3", "GPU 3 of h1", with the id behind it where that is not gpu3 and h1.gpu3; the id of
 * a relay. */
void copse_node_words(const struct copse_topology *topology, const struct copse_places *hosts,
                      int node, struct copse_text *text);

/* Returns "cpu@0 -> cpu@1 (link between sockets, 16 GB/s)"; NULL when memory ran out. */
const char *copse_link_words(const struct copse_topology *topology, int link,
                             struct copse_arena *arena);

/* Returns what a link from src to dst is called: "NIC" or, for many, "NICs". */
const char *copse_link_kind(const struct copse_topology *topology, int link, bool many);

/*
 * Describes the links that leave the set `cut` [n_cut] of nodes (with `reduces`, that enter it),
 * as seen from the side with fewer ranks: "into host h0: 8 NICs of 50 GB/s (400 GB/s)". NULL when
 * memory ran out.
 */
const char *copse_cut_words(const struct copse_topology *topology, const int *cut, int n_cut,
                            bool reduces, struct copse_arena *arena);

/* ---- ids that users write -------------------------------------------------------------------- */

/* Whether it has one of the characters * ? [ of a pattern of the shell. */
static inline bool copse_id_is_pattern(const char *text) { return strpbrk(text, "*?[") != NULL; }

/* Whether the pattern names the id: all of it, or without its host ("net@mlx5_*" names
 * "h3.net@mlx5_0"), or what is behind its @ ("mlx5_*"). */
bool copse_id_matches(const char *pattern, const char *id);

/* How a message about an id that is not there ends: "; did you mean \"gpu3\"?", or what lists the
 * ids. */
#define COPSE_NEAR_TEXT 160
const char *copse_near_text(const struct copse_topology *topology, const char *written,
                            char text[COPSE_NEAR_TEXT]);
/* The same for printf; lasts as long as the block it stands in. */
#define COPSE_NEAR_ID(topology, written) \
  copse_near_text((topology), (written), (char[COPSE_NEAR_TEXT]){0})
