/* What the tests of src/topology share. */
#ifndef COPSE_TESTS_TOPOLOGY_HELPERS_H
#define COPSE_TESTS_TOPOLOGY_HELPERS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"
#include "support/support.h"
#include "topology/topology.h"

/* Notes of the last parse_as, one per line. */
static char seen_notes[4096];
static inline void take_note(void *ctx, const char *text) {
  (void)ctx;
  size_t used = strlen(seen_notes);
  snprintf(seen_notes + used, sizeof seen_notes - used, "%s\n", text);
}

static inline copse_status parse_as(const char *text, enum copse_link_mode links,
                                    struct copse_topology **out, struct copse_err *err) {
  const struct copse_notes notes = {take_note, NULL};
  const struct copse_topology_options options = {.links = links, .notes = &notes};
  seen_notes[0] = '\0';
  return copse_topology_parse("t", text, strlen(text), &options, out, err);
}

/* The topology of a text that must be good; release it. */
static inline struct copse_topology *read_good(const char *text, enum copse_link_mode links) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_OK(parse_as(text, links, &t, &err), &err);
  ck_assert_ptr_nonnull(t);
  return t;
}

/* A text that must be refused as bad input, with `part` in one line of message. */
static inline void expect_refusal(const char *text, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  ASSERT_FAILS(parse_as(text, COPSE_LINKS_ALL, &t, &err), COPSE_BAD_INPUT, &err, part);
  ck_assert_ptr_null(t);
  ck_assert_ptr_null(strchr(err.text, '\n'));
}

/* 4,000 texts with one byte of it changed, each read or refused as bad input. */
static inline void expect_changed_bytes_answered(const char *whole, uint64_t state) {
  size_t n = strlen(whole);
  char *text = malloc(n + 1);
  ck_assert_ptr_nonnull(text);
  for (int i = 0; i < 4000; i++) {
    memcpy(text, whole, n + 1);
    text[copse_test_random(&state) % n] = (char)copse_test_random(&state);
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    copse_status status = copse_topology_parse("t", text, n, NULL, &t, &err);
    ck_assert(status == COPSE_OK || status == COPSE_BAD_INPUT);
    ck_assert((status == COPSE_OK) == (t != NULL));
    copse_topology_free(t);
  }
  free(text);
}

/* The bandwidth of a link as text, "none" where there is none. */
static inline const char *bandwidth(const struct copse_topology *t, const char *src,
                                    const char *dst) {
  static char text[COPSE_Q_TEXT];
  int a = copse_topology_find(t, src), b = copse_topology_find(t, dst);
  if (a < 0 || b < 0) return "no such node";
  int link = copse_topology_find_link(t, a, b);
  return link < 0 ? "none" : copse_q_text(t->links[link].bandwidth, text);
}

static inline const char *total_bandwidth(const struct copse_topology *t) {
  static char text[COPSE_Q_TEXT];
  struct copse_q sum = COPSE_Q_ZERO;
  struct copse_err err = COPSE_ERR_INIT;
  for (int i = 0; i < t->n_links; i++)
    ASSERT_OK(copse_q_add(sum, t->links[i].bandwidth, &sum, &err), &err);
  return copse_q_text(sum, text);
}

static inline char *to_json(const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t size = 0;
  ASSERT_OK(copse_topology_to_json(t, &text, &size, &err), &err);
  ck_assert_uint_eq(strlen(text), size);
  return text;
}

/* Writes a file into a fresh folder; returns the static path. */
static inline const char *temp_file(const char *folder, const char *name, const char *text) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_ge(fputs(text, f), 0);
  ck_assert_int_eq(fclose(f), 0);
  return path;
}

static inline const char *temp_folder(void) {
  static char folder[64];
  snprintf(folder, sizeof folder, "/tmp/copse-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  return folder;
}

static inline void remove_folder(const char *folder) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  ck_assert_int_eq(system(command), 0);
}

#endif
