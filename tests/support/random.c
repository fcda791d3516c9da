#include "support/random.h"

uint64_t copse_test_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int copse_test_random_int(uint64_t *state, int low, int high) {
  return low + (int)(copse_test_random(state) % (uint64_t)(high - low + 1));
}
