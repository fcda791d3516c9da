/*
 * A template of element_move.h, included once per type and operation (no guard). Takes
 * COPSE_MOVE_NAME, COPSE_MOVE_T, COPSE_MOVE_A; takes and undefines COPSE_MOVE_OP.
 */
#define COPSE_MOVE_FN(suffix) COPSE_JOIN3(copse_, COPSE_MOVE_NAME, suffix)
#define COPSE_MOVE_FOLD COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _, COPSE_MOVE_OP)
#define COPSE_MOVE_LOOP COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _move_, COPSE_MOVE_OP)
#define COPSE_MOVE_BLOCK COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _block_, COPSE_MOVE_OP)

/* n elements from `first` on, n <= lanes. All sources are read before any destination is
 * written, so that they may be the same memory. */
COPSE_MOVE_INLINE void COPSE_MOVE_BLOCK(const struct copse_move *move, uint64_t first, uint32_t n) {
  COPSE_MOVE_A total[COPSE_MOVE_LANES(COPSE_MOVE_T)];
  const COPSE_MOVE_T *head = (const COPSE_MOVE_T *)move->src[0] + first;
  for (uint32_t i = 0; i < n; i++) total[i] = COPSE_MOVE_FN(_load)(head[i]);
  for (uint32_t k = 1; k < move->n_src; k++) {
    const COPSE_MOVE_T *src = (const COPSE_MOVE_T *)move->src[k] + first;
    for (uint32_t i = 0; i < n; i++)
      total[i] = COPSE_MOVE_FOLD(total[i], COPSE_MOVE_FN(_load)(src[i]));
  }
  if (move->divisor != 1)
    for (uint32_t i = 0; i < n; i++) total[i] = COPSE_MOVE_FN(_divide)(total[i], move->divisor);
  for (uint32_t k = 0; k < move->n_dst; k++) {
    COPSE_MOVE_T *dst = (COPSE_MOVE_T *)move->dst[k] + first;
    for (uint32_t i = 0; i < n; i++) dst[i] = COPSE_MOVE_FN(_store)(total[i]);
  }
}

COPSE_HD static inline void COPSE_MOVE_LOOP(const struct copse_move *move, uint32_t thread,
                                            uint32_t n_threads) {
  const uint32_t lanes = COPSE_MOVE_LANES(COPSE_MOVE_T);
  const uint64_t step = (uint64_t)lanes * n_threads;
  for (uint64_t first = (uint64_t)lanes * thread; first < move->count; first += step) {
    uint64_t left = move->count - first;
    if (left >= lanes) /* a constant length, for which the compiler vectorises */
      COPSE_MOVE_BLOCK(move, first, lanes);
    else
      COPSE_MOVE_BLOCK(move, first, (uint32_t)left);
  }
}

#undef COPSE_MOVE_FN
#undef COPSE_MOVE_FOLD
#undef COPSE_MOVE_LOOP
#undef COPSE_MOVE_BLOCK
#undef COPSE_MOVE_OP
