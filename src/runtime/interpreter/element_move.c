#include "runtime/interpreter/element_move.h"

#include "runtime/interpreter/element_tile_cpu.h"

#include "runtime/interpreter/element_move_types.h"

bool copse_move_run(const struct copse_move *move, uint32_t thread, uint32_t n_threads) {
  /* One source and no division: the bits as they are, also those of a NaN. */
  if (move->n_src == 1 && move->divisor == 1)
    return copse_move_copy(move, copse_type_bytes(move->type), thread, n_threads);
  switch (move->type) {
    case COPSE_INT8: return copse_int8_move(move, thread, n_threads);
    case COPSE_UINT8: return copse_uint8_move(move, thread, n_threads);
    case COPSE_INT32: return copse_int32_move(move, thread, n_threads);
    case COPSE_UINT32: return copse_uint32_move(move, thread, n_threads);
    case COPSE_INT64: return copse_int64_move(move, thread, n_threads);
    case COPSE_UINT64: return copse_uint64_move(move, thread, n_threads);
    case COPSE_HALF: return copse_half_move(move, thread, n_threads);
    case COPSE_FLOAT: return copse_float_move(move, thread, n_threads);
    case COPSE_DOUBLE: return copse_double_move(move, thread, n_threads);
    case COPSE_BFLOAT16: return copse_bfloat16_move(move, thread, n_threads);
    case COPSE_FLOAT8_E4M3: return copse_float8_e4m3_move(move, thread, n_threads);
    case COPSE_FLOAT8_E5M2: return copse_float8_e5m2_move(move, thread, n_threads);
    default: return false;
  }
}
