/* One MOVE on a CPU: the loops of element_move_op.h, compiled here once for every type and
 * reduction, and the choice among them. */
#include "runtime/interpreter/element_move.h"

#include "runtime/interpreter/element_tile_cpu.h"

#include "runtime/interpreter/element_move_types.h"

bool copse_move_run(const struct copse_move *move, uint32_t thread, uint32_t n_threads) {
  /* One source and no division: the bits as they are, also those of a NaN. */
  if (move->n_src == 1 && move->divisor == 1)
    return copse_move_copy(move, copse_type_bytes(move->type), thread, n_threads);
#define MOVE_OF(NAME, TYPE, T, A) \
  case TYPE: return copse_##NAME##_move(move, thread, n_threads);
  switch (move->type) {
    COPSE_ELEMENT_TYPES(MOVE_OF)
    default: return false;
  }
}
