/* A repeatable random number generator (splitmix64); needs nothing else. */
#ifndef COPSE_TESTS_RANDOM_H
#define COPSE_TESTS_RANDOM_H

#include <stdint.h>

uint64_t copse_test_random(uint64_t *state);
int copse_test_random_int(uint64_t *state, int low, int high); /* both included */

#endif
