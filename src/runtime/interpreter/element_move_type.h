/*
 * A template of element_move.h, included once per type (no guard). Takes and undefines
 * COPSE_MOVE_NAME; defines copse_NAME_move(). One loop nest per operation, from element_move_op.h.
 */
#define COPSE_MOVE_T COPSE_JOIN3(copse_, COPSE_MOVE_NAME, _stored)
#define COPSE_MOVE_A COPSE_JOIN3(copse_, COPSE_MOVE_NAME, _total)
#define COPSE_MOVE_OP sum
#include "runtime/interpreter/element_move_op.h"
#define COPSE_MOVE_OP prod
#include "runtime/interpreter/element_move_op.h"
#define COPSE_MOVE_OP min
#include "runtime/interpreter/element_move_op.h"
#define COPSE_MOVE_OP max
#include "runtime/interpreter/element_move_op.h"

COPSE_MOVE_FUNCTION bool COPSE_JOIN3(copse_, COPSE_MOVE_NAME,
                                        _move)(const struct copse_move *move, uint32_t thread,
                                               uint32_t n_threads) {
  switch (move->redop) {
    case COPSE_PROD:
      return COPSE_JOIN3(copse_, COPSE_MOVE_NAME, _move_prod)(move, thread, n_threads);
    case COPSE_MIN:
      return COPSE_JOIN3(copse_, COPSE_MOVE_NAME, _move_min)(move, thread, n_threads);
    case COPSE_MAX:
      return COPSE_JOIN3(copse_, COPSE_MOVE_NAME, _move_max)(move, thread, n_threads);
    default: return COPSE_JOIN3(copse_, COPSE_MOVE_NAME, _move_sum)(move, thread, n_threads);
  }
}

#undef COPSE_MOVE_NAME
#undef COPSE_MOVE_T
#undef COPSE_MOVE_A
