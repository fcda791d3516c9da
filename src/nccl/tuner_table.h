/*
 * Tuner tables: which algorithm, protocol and channel count a call of NCCL takes, by its bytes and
 * its communicator. One line a rule, the columns those of NCCL's example plugin and of RCCL's
 * built-in tuner:
 *
 *   # colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
 *   allreduce,0,65536,tree,ll,0,-1,-1,-1,-1
 *
 * Both readers take what they do not know for something else (an unknown algorithm for "ring", an
 * empty field for no field). This one refuses it, so that a table means the same to all of them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

/* NCCL's numbers. */
enum copse_tuner_collective {
  COPSE_TUNER_BROADCAST,
  COPSE_TUNER_REDUCE,
  COPSE_TUNER_ALLGATHER,
  COPSE_TUNER_REDUCE_SCATTER,
  COPSE_TUNER_ALLREDUCE,
  COPSE_TUNER_N_COLLECTIVES
};
enum copse_tuner_algorithm {
  COPSE_TUNER_TREE,
  COPSE_TUNER_RING,
  COPSE_TUNER_COLLNET_DIRECT,
  COPSE_TUNER_COLLNET_CHAIN,
  COPSE_TUNER_NVLS,
  COPSE_TUNER_NVLS_TREE,
  COPSE_TUNER_PAT, /* since 2.23 */
  COPSE_TUNER_N_ALGORITHMS
};
enum copse_tuner_protocol {
  COPSE_TUNER_LL,
  COPSE_TUNER_LL128,
  COPSE_TUNER_SIMPLE,
  COPSE_TUNER_N_PROTOCOLS
};

/* The words of the table, by number. */
extern const char *const copse_tuner_collectives[COPSE_TUNER_N_COLLECTIVES];
extern const char *const copse_tuner_algorithms[COPSE_TUNER_N_ALGORITHMS];
extern const char *const copse_tuner_protocols[COPSE_TUNER_N_PROTOCOLS];

enum { COPSE_TUNER_ANY = -1 }; /* of the numbers below that a call is compared with */

struct copse_tuner_rule {
  int collective, algorithm, protocol;
  uint64_t min_bytes, max_bytes; /* both included */
  int channels;                  /* 0: NCCL's choice, as -1 in the file is too */
  int nodes, ranks;              /* of the communicator, or COPSE_TUNER_ANY */
  int pipe_ops;                  /* operations grouped in the call, or COPSE_TUNER_ANY */
  int registered;                /* buffers: 0, 1 or COPSE_TUNER_ANY */
};

/* Zero-initialise; free with copse_tuner_table_free. */
struct copse_tuner_table {
  struct copse_tuner_rule *rules; /* [n] in the file's order: the first that fits is taken */
  size_t n, capacity;
};

/*
 * Reads a table. `label` names it in messages. COPSE_BAD_INPUT, with the line, for anything that is
 * not exactly a rule, a comment with '#' in the first column or an empty line; beyond 4,096 rules
 * or 255 characters a line (where NCCL's reader would go on with another line). CR before a line's
 * end is passed over. On failure *out is empty.
 */
copse_status copse_tuner_table_parse(const char *label, const char *data, size_t size,
                                     struct copse_tuner_table *out,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_tuner_table_free(struct copse_tuner_table *table);

/* Adds a rule at the end. */
copse_status copse_tuner_table_add(struct copse_tuner_table *table,
                                   const struct copse_tuner_rule *rule,
                                   struct copse_err *err) COPSE_CHECKED;

/* Prints the table as text, under a header that is a comment: all ten columns. `keep` stands where
 * channels are NCCL's choice: 0, but -1 for RCCL, which refuses 0. Reading it back gives the same
 * rules. */
void copse_tuner_table_print(const struct copse_tuner_table *table, int keep,
                             struct copse_text *out);

/* What a call is, as a plugin is asked. COPSE_TUNER_ANY: the interface does not say. */
struct copse_tuner_call {
  int collective;
  uint64_t bytes;
  int nodes, ranks, pipe_ops, registered;
};

/*
 * Finds the first rule for the call from rule number `from` on, its number at *at; NULL: none. A
 * rule that names what the interface does not say (COPSE_TUNER_ANY in the call) does not fit: what
 * one rank takes must not follow from a guess.
 */
const struct copse_tuner_rule *copse_tuner_table_find(const struct copse_tuner_table *table,
                                                      const struct copse_tuner_call *call,
                                                      size_t from, size_t *at);
