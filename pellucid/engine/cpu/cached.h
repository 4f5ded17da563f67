/* Keys and values as a cache holds them, and where those lie that a query attends to. */
#ifndef PELLUCID_CACHED_H
#define PELLUCID_CACHED_H

#include "model.h"
#include "vector.h"

INLINE int cached_size(const int kind) { return kind == CACHE_FLOAT32 ? 4 : kind == CACHE_INT8 ? 1 : 2; }

INLINE vf load_whole(const int kind, const char *p) {
  switch (kind) {
    case CACHE_FLOAT32: return load((const float *)p);
    case CACHE_FLOAT16: return load_half((const uint16_t *)p);
    case CACHE_BFLOAT16: return load_bfloat((const uint16_t *)p);
    default: return load_int8((const int8_t *)p);
  }
}

/* The channels from `at` on of one key or value of d channels, zeros behind them; integers without their scale. */
INLINE vf load_cached(const int kind, const char *p, int at, int d) {
  const int size = cached_size(kind);
  if (d - at >= LANES) return load_whole(kind, p + at * size);
  char kept[4 * LANES] = {0};
  memcpy(kept, p + at * size, (size_t)((d - at) * size));
  return load_whole(kind, kept);
}

static void store_cached(int kind, const float *x, char *p, int d, float *scale) {
  if (kind == CACHE_FLOAT32) memcpy(p, x, (size_t)d * 4);
  else if (kind == CACHE_FLOAT16) for (int i = 0; i < d; i++) ((uint16_t *)p)[i] = narrow_half(x[i]);
  else if (kind == CACHE_BFLOAT16) for (int i = 0; i < d; i++) ((uint16_t *)p)[i] = narrow_bfloat(x[i]);
  else {
    *scale = largest_magnitude(x, d) / 127.0f; /* an Inf or NaN stays one */
    const int is_number = *scale == *scale;
    const float divisor = *scale < 1e-30f ? 1e-30f : *scale;
    for (int i = 0; i < d; i++) ((int8_t *)p)[i] = is_number ? (int8_t)rintf(x[i] / divisor) : 0;
  }
}

/* Keys and values of one head that lie one after another; an int8 cache has a scale for each. */
typedef struct {
  char *k, *v;
  float *k_scale, *v_scale;
  int count;
} span;

#define MOST_SPANS 3 /* the two ends of a ring, and tokens of this call that are not in it yet */

/* `count` slots of a head from `slot` on. */
INLINE span find_slots(const cache_row *row, int kind, int layer, int head, int d, int64_t slot, int count) {
  const int64_t at = head * row->head_stride + slot, bytes = at * d * cached_size(kind);
  span found = {(char *)row->k[layer] + bytes, (char *)row->v[layer] + bytes, 0, 0, count};
  if (kind == CACHE_INT8) found.k_scale = row->k_scale[layer] + at, found.v_scale = row->v_scale[layer] + at;
  return found;
}

/* The positions from `oldest` on, in their order; returns the number of spans. */
INLINE int find_positions(const cache_row *row, int kind, int layer, int head, int d, int oldest, int count, span *spans) {
  const int slot = row->ring ? oldest % row->ring : oldest, room = row->ring ? row->ring - slot : count;
  spans[0] = find_slots(row, kind, layer, head, d, slot, count < room ? count : room);
  if (count <= room) return 1;
  spans[1] = find_slots(row, kind, layer, head, d, 0, count - room);
  return 2;
}
#endif
