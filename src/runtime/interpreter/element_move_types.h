/* copse_NAME_move() of every type, for interpreter.c and gpu/tile.cuh, which define tiles first. */
#pragma once

#define COPSE_JOIN3_NOW(a, b, c) a##b##c
#define COPSE_JOIN3(a, b, c) COPSE_JOIN3_NOW(a, b, c)
#define COPSE_JOIN4_NOW(a, b, c, d) a##b##c##d
#define COPSE_JOIN4(a, b, c, d) COPSE_JOIN4_NOW(a, b, c, d)

/* copse_NAME_stored and copse_NAME_total, the accumulator's. */
#define COPSE_MOVE_TYPES(NAME, TYPE, T, A) \
  typedef T copse_##NAME##_stored;         \
  typedef A copse_##NAME##_total;
COPSE_ELEMENT_TYPES(COPSE_MOVE_TYPES)

#define COPSE_MOVE_NAME int8
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME uint8
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME int32
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME uint32
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME int64
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME uint64
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME half
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME float
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME double
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME bfloat16
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME float8_e4m3
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME float8_e5m2
#include "runtime/interpreter/element_move_type.h"
