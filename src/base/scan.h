/*
 * Reading of text without changing it, a piece at a time. Each function moves
 * the place behind what it has read, or leaves it and returns false.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/rational.h"

/* The rest of a text, such as a line without its end. */
struct copse_scan {
  const char *at, *end;
};

/* The next line of a text without its end ("\n" or "\r\n"); false at the end of the text. */
bool copse_scan_line(struct copse_scan *text, struct copse_scan *line);

void copse_scan_blanks(struct copse_scan *s);
bool copse_scan_is_empty(const struct copse_scan *s); /* but for blanks */
/* These bytes, as they are. */
bool copse_scan_literal(struct copse_scan *s, const char *literal);
/* Moves behind the first place of `text`. */
bool copse_scan_to(struct copse_scan *s, const char *text);
bool copse_scan_begins(const struct copse_scan *s, const char *literal);
/* A decimal, a minus before it if `negative`, of at most 18 digits. */
bool copse_scan_int(struct copse_scan *s, bool negative, int64_t *out);
/* The same in the range of ints, not negative but for -1. */
bool copse_scan_index(struct copse_scan *s, int *out);
/* Hexadecimal with or without 0x, at most 16 digits. */
bool copse_scan_hex(struct copse_scan *s, uint64_t *out);
/* Up to the next blank: at least one byte. */
bool copse_scan_word(struct copse_scan *s, struct copse_scan *word);
/* Whether a piece is this text. */
bool copse_scan_is(const struct copse_scan *s, const char *text);
/* The exact value of a piece such as "12.50", "1e+06" or "-3". */
bool copse_scan_decimal(const struct copse_scan *piece, struct copse_q *out);
/* The next word as such a number. */
bool copse_scan_number(struct copse_scan *s, struct copse_q *out);

/* A copy of a piece. */
copse_status copse_scan_text(struct copse_arena *arena, const struct copse_scan *piece,
                             const char **out, struct copse_err *err) COPSE_CHECKED;
