/*
 * The files of docs/examples that work as they are, in the program: `copse topo --example KIND`
 * prints one. The Makefile makes the table.
 */
#pragma once

/* "cluster-rails", and the text of docs/examples/cluster-rails.json. Ends with a row of zeros. */
struct copse_example {
  const char *kind, *text;
};
extern const struct copse_example copse_examples[];
extern const char *const copse_example_kinds[]; /* the same kinds, NULL-terminated */
