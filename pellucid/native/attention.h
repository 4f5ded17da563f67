/* Attention of one query, and a few heads that share a key head, over a text's cache.
 *
 * Scores, the largest, the exponentials and the weighted sum of the values are each computed in the order of the
 * positions, by one thread: a query's result depends on nothing but its own text.
 */
#ifndef PELLUCID_ATTENTION_H
#define PELLUCID_ATTENTION_H

#include "model.h"
#include "products.h"
#include "vector.h"

#define MOST_HEADS 4 /* that share a key head and are computed together */
#define WIDEST_HEAD 256

INLINE vf load_cached(const int kind, const void *p, int64_t at, int n) {
  if (n < LANES) {
    char kept[4 * LANES] = {0};
    int size = kind == CACHE_FLOAT32 ? 4 : kind == CACHE_INT8 ? 1 : 2;
    memcpy(kept, (const char *)p + at * size, (size_t)(n * size));
    p = kept, at = 0;
    switch (kind) {
      case CACHE_FLOAT32: return load((const float *)p);
      case CACHE_FLOAT16: return load_half((const uint16_t *)p);
      case CACHE_BFLOAT16: return load_bfloat((const uint16_t *)p);
      default: return load_int8((const int8_t *)p);
    }
  }
  switch (kind) {
    case CACHE_FLOAT32: return load((const float *)p + at);
    case CACHE_FLOAT16: return load_half((const uint16_t *)p + at);
    case CACHE_BFLOAT16: return load_bfloat((const uint16_t *)p + at);
    default: return load_int8((const int8_t *)p + at);
  }
}

static void store_cached(int kind, const float *x, void *p, int64_t slot, int n, float *scales) {
  int64_t at = slot * n;
  if (kind == CACHE_FLOAT32) memcpy((float *)p + at, x, (size_t)n * 4);
  else if (kind == CACHE_FLOAT16) for (int i = 0; i < n; i++) ((uint16_t *)p)[at + i] = narrow_half(x[i]);
  else if (kind == CACHE_BFLOAT16) for (int i = 0; i < n; i++) ((uint16_t *)p)[at + i] = narrow_bfloat(x[i]);
  else {
    float most = 0.0f;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float scale = most / 127.0f, divisor = scale < 1e-30f ? 1e-30f : scale;
    scales[slot] = scale;
    for (int i = 0; i < n; i++) ((int8_t *)p)[at + i] = (int8_t)rintf(x[i] / divisor);
  }
}

/* Keys or values that lie one after another. */
typedef struct {
  int64_t slot;
  int count;
} span;

/* scores[h][j] = q_h · k_j for the keys of one span, and a few heads that share them. */
INLINE void score_span(const int kind, const float *q, const void *k, const float *k_scale, span keys, const int d,
                       const int heads, float *scores, int64_t width) {
  for (int j = 0; j < keys.count; j += LANES) {
    vf products[MOST_HEADS][LANES];
    for (int i = 0; i < LANES; i++) {
      int key = j + i < keys.count ? j + i : keys.count - 1;
      int64_t at = (keys.slot + key) * d;
      vf sum[MOST_HEADS];
      UNROLL for (int h = 0; h < heads; h++) sum[h] = splat(0.0f);
      for (int c = 0; c < d; c += LANES) {
        vf part = load_cached(kind, k, at + c, d - c);
        UNROLL for (int h = 0; h < heads; h++) sum[h] = sum[h] + load(q + h * WIDEST_HEAD + c) * part;
      }
      UNROLL for (int h = 0; h < heads; h++) products[h][i] = sum[h];
    }
    UNROLL for (int h = 0; h < heads; h++) {
      vf found = sum_lanes_of_16(products[h]);
      if (kind == CACHE_INT8) found = found * load_part(k_scale + keys.slot + j, keys.count - j);
      store_part(scores + h * width + j, found, keys.count - j);
    }
  }
}

/* z_h += Σ_j p_hj v_j, one value after another; `part` of 16 channels. */
INLINE void mix_span(const int kind, const float *p, int64_t width, const void *v, const float *v_scale, span keys,
                     const int d, const int heads, const int parts, vf (*z)[WIDEST_HEAD / LANES]) {
  for (int j = 0; j < keys.count; j++) {
    int64_t at = (keys.slot + j) * d;
    float scale = kind == CACHE_INT8 ? v_scale[keys.slot + j] : 1.0f;
    UNROLL for (int c = 0; c < parts; c++) {
      vf value = load_cached(kind, v, at + c * LANES, d - c * LANES);
      UNROLL for (int h = 0; h < heads; h++) {
        float share = kind == CACHE_INT8 ? p[h * width + j] * scale : p[h * width + j];
        z[h][c] = z[h][c] + share * value;
      }
    }
  }
}

/* Replaces scores [count] by e^(s - max), where s = scale · score + bias, and returns their sum. */
INLINE float exponentiate(const model *m, int head, int count, float *scores) {
  const vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vf most = splat(-INFINITY), total = splat(0.0f);
  for (int j = 0; j < count; j += LANES) {
    vf s = load(scores + j) * m->scale;
    if (m->slopes) s = s + -m->slopes[head] * to_float(count - 1 - j - lane);
    if (count - j < LANES) s = choose(lane < count - j, s, splat(-INFINITY));
    store(scores + j, s);
    most = larger(s, most);
  }
  const float top = largest_lane(most);
  for (int j = 0; j < count; j += LANES) {
    vf e = exponential(load(scores + j) - top);
    store(scores + j, e);
    total = total + e;
  }
  return sum_lanes(total);
}

/* z of a few heads, from `first` on, that share a key head; q is WIDEST_HEAD apart from head to head. */
INLINE void attend_heads(const int kind, const int d, const int heads, const model *m, const cache_row *row,
                         int layer, int first, int position, const float *q, float *z, float *scores, int64_t width) {
  const int group = m->n_head / m->n_kv_head, parts = (d + LANES - 1) / LANES;
  const int64_t start = (first / group) * row->head_stride;
  const int64_t size = kind == CACHE_FLOAT32 ? 4 : kind == CACHE_INT8 ? 1 : 2;
  const void *k = (const char *)row->k[layer] + start * d * size, *v = (const char *)row->v[layer] + start * d * size;
  const float *k_scale = kind == CACHE_INT8 ? row->k_scale[layer] + start : 0;
  const float *v_scale = kind == CACHE_INT8 ? row->v_scale[layer] + start : 0;
  int oldest = m->window && position - m->window + 1 > 0 ? position - m->window + 1 : 0, count = position - oldest + 1;
  span spans[2] = {{oldest, count}, {0, 0}};
  if (row->ring) {
    spans[0].slot = oldest % row->ring;
    int room = row->ring - (int)spans[0].slot;
    if (count > room) spans[0].count = room, spans[1].count = count - room;
  }
  for (int i = 0, at = 0; i < 2; at += spans[i++].count)
    score_span(kind, q, k, k_scale, spans[i], d, heads, scores + at, width);
  float total[MOST_HEADS];
  vf sums[MOST_HEADS][WIDEST_HEAD / LANES];
  for (int h = 0; h < heads; h++) {
    total[h] = exponentiate(m, first + h, count, scores + h * width);
    for (int c = 0; c < parts; c++) sums[h][c] = splat(0.0f);
  }
  for (int i = 0, at = 0; i < 2; at += spans[i++].count)
    mix_span(kind, scores + at, width, v, v_scale, spans[i], d, heads, parts, sums);
  for (int h = 0; h < heads; h++)
    for (int c = 0; c < parts; c++) store_part(z + h * d + c * LANES, sums[h][c] / total[h], d - c * LANES);
}

#define ATTEND(KIND, D, HEADS) attend_heads(KIND, D, HEADS, m, row, layer, first, position, q, z, scores, width)
#define BY_HEADS(KIND, D) \
  switch (heads) {        \
    case 1: ATTEND(KIND, D, 1); break; \
    case 2: ATTEND(KIND, D, 2); break; \
    case 3: ATTEND(KIND, D, 3); break; \
    default: ATTEND(KIND, D, 4); break; \
  }

static void attend(const model *m, int kind, const cache_row *row, int layer, int first, int heads, int position,
                   const float *q, float *z, float *scores, int64_t width) {
  if (kind == CACHE_FLOAT16 && m->d_head == 64) BY_HEADS(CACHE_FLOAT16, 64)
  else if (kind == CACHE_FLOAT32 && m->d_head == 64) BY_HEADS(CACHE_FLOAT32, 64)
  else BY_HEADS(kind, m->d_head)
}
#endif
