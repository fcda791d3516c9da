/*
 * Inside src/topology only: the text that tools print, line by line and word by word. Escape
 * sequences of terminals (nvidia-smi underlines its header) are taken out.
 */
#ifndef COPSE_TOPOLOGY_INPUT_TEXT_LINES_H
#define COPSE_TOPOLOGY_INPUT_TEXT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct copse_lines {
  char *text; /* a copy, cut up by reading */
  char *next;
  long line; /* of what copse_lines_next last returned */
};

/* Refuses text with NUL bytes. Release with copse_lines_free, whatever the outcome. */
copse_status copse_lines_open(const char *file, const char *data, size_t size,
                              struct copse_lines *out, struct copse_err *err) COPSE_CHECKED;
void copse_lines_free(struct copse_lines *lines);

/* The next line without its end, or NULL. */
char *copse_lines_next(struct copse_lines *lines);

/* Cuts a line at blanks; at most `max` words are stored, all are counted. */
int copse_split_words(char *line, char **words, int max);

/* "GPU12" with prefix "GPU" is 12; -1 for anything else, and from a million on. */
int copse_numbered(const char *word, const char *prefix);

#endif
