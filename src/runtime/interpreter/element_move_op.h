/* A template of element_move.h, included once per type and operation (no guard). Takes
 * COPSE_MOVE_NAME, COPSE_MOVE_T, COPSE_MOVE_A; takes and undefines COPSE_MOVE_OP. */
#define COPSE_MOVE_FN(suffix) COPSE_JOIN3(copse_, COPSE_MOVE_NAME, suffix)
#define COPSE_MOVE_FOLD COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _, COPSE_MOVE_OP)
#define COPSE_MOVE_LOOP COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _move_, COPSE_MOVE_OP)
#define COPSE_MOVE_BLOCK COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _block_, COPSE_MOVE_OP)
#define COPSE_MOVE_VECTOR COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _vector_, COPSE_MOVE_OP)
#define COPSE_MOVE_PACKETS COPSE_JOIN4(copse_, COPSE_MOVE_NAME, _packets_, COPSE_MOVE_OP)

/* Moves one tile. All sources are read before any destination is written, so that they may be the
 * same memory. */
COPSE_MOVE_INLINE bool COPSE_MOVE_BLOCK(const struct copse_move *move, struct copse_tile tile) {
  COPSE_MOVE_A total[COPSE_TILE_LANES(COPSE_MOVE_T)];
  COPSE_MOVE_T part[COPSE_TILE_LANES(COPSE_MOVE_T)];
  const uint32_t n = COPSE_TILE_SIZE(COPSE_MOVE_T, tile);
  if (!copse_tile_read(move, &move->src[0], tile, part, sizeof *part)) return false;
  const COPSE_MOVE_T *head = COPSE_TILE_IN(COPSE_MOVE_T, move->src[0], tile, part);
  COPSE_TILE_UNROLL
  for (uint32_t i = 0; i < n; i++) total[i] = COPSE_MOVE_FN(_load)(head[i]);
  for (uint32_t k = 1; k < move->n_src; k++) {
    if (!copse_tile_read(move, &move->src[k], tile, part, sizeof *part)) return false;
    const COPSE_MOVE_T *next = COPSE_TILE_IN(COPSE_MOVE_T, move->src[k], tile, part);
    COPSE_TILE_UNROLL
    for (uint32_t i = 0; i < n; i++)
      total[i] = COPSE_MOVE_FOLD(total[i], COPSE_MOVE_FN(_load)(next[i]));
  }
  if (move->divisor != 1) {
    COPSE_TILE_UNROLL
    for (uint32_t i = 0; i < n; i++) total[i] = COPSE_MOVE_FN(_divide)(total[i], move->divisor);
  }
  for (uint32_t k = 0; k < move->n_dst; k++) {
    COPSE_MOVE_T *out = COPSE_TILE_OUT(COPSE_MOVE_T, move->dst[k], tile, part);
    COPSE_TILE_UNROLL
    for (uint32_t i = 0; i < n; i++) out[i] = COPSE_MOVE_FN(_store)(total[i]);
    copse_tile_write(&move->dst[k], tile, part, sizeof *part);
  }
  return true;
}

#if defined(COPSE_TILE_SOURCES)
/* Moves one vector, where operands are packets: those of several sources are read at a time. */
__device__ static __forceinline__ bool COPSE_MOVE_VECTOR(const struct copse_move *move,
                                                         const struct copse_tile &tile) {
  const uint32_t n = COPSE_VECTOR_LANES(COPSE_MOVE_T);
  COPSE_MOVE_A total[n] = {};
  COPSE_MOVE_T parts[COPSE_TILE_SOURCES * n], out[n];
  for (uint32_t first = 0; first < move->n_src; first += COPSE_TILE_SOURCES) {
    uint32_t left = move->n_src - first;
    if (left > COPSE_TILE_SOURCES) left = COPSE_TILE_SOURCES;
    if (!copse_sources_read(move, first, left, tile, parts)) return false;
    COPSE_TILE_UNROLL
    for (uint32_t k = 0; k < COPSE_TILE_SOURCES; k++) {
      if (k >= left) break;
      COPSE_TILE_UNROLL
      for (uint32_t i = 0; i < n; i++) {
        COPSE_MOVE_A next = COPSE_MOVE_FN(_load)(parts[k * n + i]);
        total[i] = first + k == 0 ? next : (COPSE_MOVE_A)COPSE_MOVE_FOLD(total[i], next);
      }
    }
  }
  if (move->divisor != 1)
    for (uint32_t i = 0; i < n; i++) total[i] = COPSE_MOVE_FN(_divide)(total[i], move->divisor);
  COPSE_TILE_UNROLL
  for (uint32_t i = 0; i < n; i++) out[i] = COPSE_MOVE_FN(_store)(total[i]);
  copse_destinations_write(move, tile, out);
  return true;
}

/* Loops in a function of its own: calls within the other one would cost it registers. */
__device__ static COPSE_NOINLINE bool COPSE_MOVE_PACKETS(const struct copse_move *move,
                                                         struct copse_tiles tiles) {
  struct copse_tile tile;
  while (copse_tiles_next(&tiles, &tile))
    if (!COPSE_MOVE_VECTOR(move, tile)) return false;
  return true;
}
#endif

COPSE_MOVE_FUNCTION bool COPSE_MOVE_LOOP(const struct copse_move *move, uint32_t thread,
                                            uint32_t n_threads) {
  struct copse_tiles tiles = copse_tiles_of(move, thread, n_threads, sizeof(COPSE_MOVE_T));
  struct copse_tile tile;
  bool ok = true;
#if defined(COPSE_TILE_SOURCES)
  if (tiles.tile.packets) return COPSE_MOVE_PACKETS(move, tiles);
#endif
  while (ok && copse_tiles_next(&tiles, &tile)) {
    if (COPSE_TILE_IS_FULL(COPSE_MOVE_T, tile)) /* a constant length, which vectorises */
      ok = COPSE_MOVE_BLOCK(move, COPSE_TILE_FULL(COPSE_MOVE_T, tile));
    else
      ok = COPSE_MOVE_BLOCK(move, tile);
  }
  return ok;
}

#undef COPSE_MOVE_FN
#undef COPSE_MOVE_FOLD
#undef COPSE_MOVE_LOOP
#undef COPSE_MOVE_BLOCK
#undef COPSE_MOVE_VECTOR
#undef COPSE_MOVE_PACKETS
#undef COPSE_MOVE_OP
