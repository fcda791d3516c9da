/* copse_NAME_move() of every type, for element_cpu.c and gpu/tile.cuh, which define tiles first. */
#ifndef COPSE_RUNTIME_INTERPRETER_ELEMENT_MOVE_TYPES_H
#define COPSE_RUNTIME_INTERPRETER_ELEMENT_MOVE_TYPES_H

#define COPSE_JOIN3_NOW(a, b, c) a##b##c
#define COPSE_JOIN3(a, b, c) COPSE_JOIN3_NOW(a, b, c)
#define COPSE_JOIN4_NOW(a, b, c, d) a##b##c##d
#define COPSE_JOIN4(a, b, c, d) COPSE_JOIN4_NOW(a, b, c, d)

#define COPSE_MOVE_NAME int8
#define COPSE_MOVE_T int8_t
#define COPSE_MOVE_A int8_t
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME uint8
#define COPSE_MOVE_T uint8_t
#define COPSE_MOVE_A uint8_t
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME int32
#define COPSE_MOVE_T int32_t
#define COPSE_MOVE_A int32_t
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME uint32
#define COPSE_MOVE_T uint32_t
#define COPSE_MOVE_A uint32_t
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME int64
#define COPSE_MOVE_T int64_t
#define COPSE_MOVE_A int64_t
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME uint64
#define COPSE_MOVE_T uint64_t
#define COPSE_MOVE_A uint64_t
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME half
#define COPSE_MOVE_T uint16_t
#define COPSE_MOVE_A float
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME float
#define COPSE_MOVE_T float
#define COPSE_MOVE_A float
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME double
#define COPSE_MOVE_T double
#define COPSE_MOVE_A double
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME bfloat16
#define COPSE_MOVE_T uint16_t
#define COPSE_MOVE_A float
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME float8_e4m3
#define COPSE_MOVE_T uint8_t
#define COPSE_MOVE_A float
#include "runtime/interpreter/element_move_type.h"

#define COPSE_MOVE_NAME float8_e5m2
#define COPSE_MOVE_T uint8_t
#define COPSE_MOVE_A float
#include "runtime/interpreter/element_move_type.h"

#endif
