/* One call of a decoder: tokens of any number of texts through the whole model, their keys and values into the
 * caches, and the logits that are wanted. It is compiled for each instruction set.
 *
 * Each token, head and output channel is computed by itself in one fixed order, so the result depends neither on
 * the other tokens of the call nor on the number of threads: decoded, batched and prefilled tokens have the same
 * bits. Products of quantized weights round the input to 16-bit integers, for each group of 32, and are sums of
 * integers, which are exact; every group's sum is then multiplied by its two scales and added in float32.
 */
#include <stdlib.h>

#include "model.h"
#include "pool.h"
#include "vector.h"

#define GROUP 32
#define TILE 16
#define BLOCK_TOKENS 64
#define MOST_HEADS 4 /* that share a key head and are computed together */
#define WIDEST_HEAD 256
#define UNROLL _Pragma("GCC unroll 16")
#define LIMIT 32512.0f /* the largest rounded input: 127 times 256, so that its upper byte is signed */

/* ---- the input of a product: floats, and for quantized weights integers q with x = scale q */

typedef struct {
  float *x;
  int64_t width; /* floats from token to token, a multiple of 32; zeros behind a row's end */
  int16_t *q;
  int8_t *high, *low; /* q = 256 high + low, for instructions that multiply bytes */
  float *scale, *scaled_sum;
  int32_t *sum; /* of a group's q */
} input;

static void round_group(const input *in, int token, int group) {
  int64_t at = token * in->width + (int64_t)group * GROUP, place = at / GROUP;
  vf a = load(in->x + at), b = load(in->x + at + LANES);
  float most = largest_lane(larger(magnitude(a), magnitude(b)));
  float scale = most / LIMIT, factor = LIMIT / most;
  if (sum_lanes((a - a) + (b - b)) != 0.0f) scale = NAN, factor = 0.0f; /* an Inf or NaN stays one */
  else if (most < 1e-30f) scale = 0.0f, factor = 0.0f;
  int32_t q[GROUP], sum = 0;
  for (int half = 0; half < 2; half++) {
    vf x = round_even((half ? b : a) * factor);
    if (scale != scale) x = splat(0.0f);
    vi rounded = __builtin_convertvector(x, vi);
#if defined(__AVX512VNNI__)
    vi high = (rounded + 128) >> 8, low = rounded - (high << 8);
    _mm_storeu_si128((void *)(in->high + at + LANES * half), _mm512_cvtepi32_epi8((__m512i)high));
    _mm_storeu_si128((void *)(in->low + at + LANES * half), _mm512_cvtepi32_epi8((__m512i)low));
#endif
    *(vi_any *)(q + LANES * half) = rounded;
  }
  for (int i = 0; i < GROUP; i++) sum += q[i];
#if defined(__AVX512VNNI__)
#elif defined(__AVX2__) /* multiplies pairs of 16-bit integers: the even and the odd bytes of four weights */
  static const int PAIRED[4] = {0, 2, 1, 3};
  for (int i = 0; i < GROUP; i++) in->q[at + i] = (int16_t)q[(i & ~3) + PAIRED[i & 3]];
#else
  for (int i = 0; i < GROUP; i++) in->q[at + i] = (int16_t)q[i];
#endif
  in->scale[place] = scale;
  in->sum[place] = sum;
  in->scaled_sum[place] = scale * (float)sum;
}

/* ---- products of quantized weights: 16 rows by a few tokens */

INLINE int block_start(const matrix *m) { return m->has_minimums ? 64 : 32; }

#if defined(__AVX512VNNI__)
INLINE void add_products(const uint8_t *w, const int bits, const input *in, const int64_t *at, const int tokens,
                         vi *sums) {
  const int chains = tokens == 1 ? 2 : 1; /* sums that do not wait for each other */
  __m512i high[4][2], low[4][2];
  UNROLL for (int t = 0; t < tokens; t++)
    UNROLL for (int part = 0; part < chains; part++) high[t][part] = low[t][part] = _mm512_setzero_si512();
  const __m512i nibble = _mm512_set1_epi8(15);
  UNROLL for (int c = 0; c < 8; c++) {
    __m512i weights;
    const int part = c % chains;
    if (bits == 8) weights = _mm512_loadu_si512(w + 64 * c);
    else {
      weights = _mm512_loadu_si512(w + 64 * (c & 3));
      weights = _mm512_and_si512(c < 4 ? weights : _mm512_srli_epi16(weights, 4), nibble);
    }
    UNROLL for (int t = 0; t < tokens; t++) {
      int32_t upper, lower;
      memcpy(&upper, in->high + at[t] + 4 * c, 4);
      memcpy(&lower, in->low + at[t] + 4 * c, 4);
      high[t][part] = _mm512_dpbusd_epi32(high[t][part], weights, _mm512_set1_epi32(upper));
      low[t][part] = _mm512_dpbusd_epi32(low[t][part], weights, _mm512_set1_epi32(lower));
    }
  }
  UNROLL for (int t = 0; t < tokens; t++) {
    if (chains == 2) {
      high[t][0] = _mm512_add_epi32(high[t][0], high[t][1]);
      low[t][0] = _mm512_add_epi32(low[t][0], low[t][1]);
    }
    sums[t] = (vi)_mm512_add_epi32(_mm512_slli_epi32(high[t][0], 8), low[t][0]);
  }
}
#elif defined(__AVX2__)
INLINE void add_products(const uint8_t *w, const int bits, const input *in, const int64_t *at, const int tokens,
                         vi *sums) {
  __m256i sum[4][2];
  for (int t = 0; t < tokens; t++) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
  const __m256i byte = _mm256_set1_epi16(255), nibble = _mm256_set1_epi8(15);
  for (int c = 0; c < 8; c++)
    for (int half = 0; half < 2; half++) {
      __m256i weights = _mm256_loadu_si256((const void *)(w + 64 * (bits == 8 ? c : c & 3) + 32 * half));
      if (bits == 4) weights = _mm256_and_si256(c < 4 ? weights : _mm256_srli_epi16(weights, 4), nibble);
      __m256i even = _mm256_and_si256(weights, byte), odd = _mm256_srli_epi16(weights, 8);
      for (int t = 0; t < tokens; t++) {
        int32_t first, second;
        memcpy(&first, in->q + at[t] + 4 * c, 4);
        memcpy(&second, in->q + at[t] + 4 * c + 2, 4);
        sum[t][half] = _mm256_add_epi32(sum[t][half], _mm256_madd_epi16(even, _mm256_set1_epi32(first)));
        sum[t][half] = _mm256_add_epi32(sum[t][half], _mm256_madd_epi16(odd, _mm256_set1_epi32(second)));
      }
    }
  for (int t = 0; t < tokens; t++) memcpy(&sums[t], sum[t], 64);
}
#else
INLINE void add_products(const uint8_t *w, const int bits, const input *in, const int64_t *at, const int tokens,
                         vi *sums) {
  for (int t = 0; t < tokens; t++) {
    int32_t sum[TILE] = {0};
    for (int c = 0; c < 8; c++)
      for (int row = 0; row < TILE; row++)
        for (int i = 0; i < 4; i++) {
          int byte = w[64 * (bits == 8 ? c : c & 3) + 4 * row + i];
          int weight = bits == 8 ? byte : c < 4 ? byte & 15 : byte >> 4;
          sum[row] += weight * in->q[at[t] + 4 * c + i];
        }
    memcpy(&sums[t], sum, sizeof sum);
  }
}
#endif

INLINE void multiply_tile(const matrix *m, const int bits, const input *in, int64_t tile, int first,
                          const int tokens, vf *y) {
  const uint8_t *block = (const uint8_t *)m->data + tile * m->groups * m->stride;
  const int start = block_start(m);
  UNROLL for (int t = 0; t < tokens; t++) y[t] = splat(0.0f);
  for (int g = 0; g < m->groups; g++, block += m->stride) {
    int64_t at[4];
    vi sums[4];
    UNROLL for (int t = 0; t < tokens; t++) at[t] = (first + t) * in->width + (int64_t)g * GROUP;
    add_products(block + start, bits, in, at, tokens, sums);
    vf scales = load_half((const uint16_t *)block);
    UNROLL for (int t = 0; t < tokens; t++) {
      int64_t place = at[t] / GROUP;
      vi sum = sums[t] - m->offset * in->sum[place];
      y[t] = y[t] + to_float(sum) * (scales * in->scale[place]);
    }
    if (m->has_minimums) {
      vf minimums = load_half((const uint16_t *)block + TILE);
      UNROLL for (int t = 0; t < tokens; t++) y[t] = y[t] + minimums * in->scaled_sum[at[t] / GROUP];
    }
  }
}

/* ---- products of float weights: 4 rows by a few tokens; lane i adds the inputs i, i + 16, … */

INLINE vf load_weights(const int kind, const void *row, int64_t at, int n) {
  if (kind == FLOAT32) return load_part((const float *)row + at, n);
  if (n >= LANES) return load_bfloat((const uint16_t *)row + at);
  uint16_t kept[LANES] = {0};
  memcpy(kept, (const uint16_t *)row + at, (size_t)n * 2);
  return load_bfloat(kept);
}

INLINE void multiply_rows(const matrix *m, const int kind, const input *in, int64_t row, const int rows, int first,
                          const int tokens, float (*y)[TILE]) {
  const int64_t size = kind == FLOAT32 ? 4 : 2;
  const char *w = (const char *)m->data + row * m->stride * size;
  vf sum[4][4];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int t = 0; t < tokens; t++) sum[r][t] = splat(0.0f);
  for (int64_t i = 0; i < m->in; i += LANES) {
    int n = m->in - i < LANES ? (int)(m->in - i) : LANES;
    vf x[4];
    UNROLL for (int t = 0; t < tokens; t++) x[t] = load(in->x + (first + t) * in->width + i);
    UNROLL for (int r = 0; r < rows; r++) {
      vf weights = load_weights(kind, w + r * m->stride * size, i, n);
      UNROLL for (int t = 0; t < tokens; t++) sum[r][t] = sum[r][t] + weights * x[t];
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int t = 0; t < tokens; t++) y[t][r] = sum_lanes(sum[r][t]);
}

/* Adds nothing: y [tokens, stride] = x W^T + b for the outputs from … to, which are multiples of 16 or the end. */
INLINE void multiply_few(const matrix *m, const input *in, int from, int to, int first, const int tokens, float *y,
                         int64_t stride) {
  for (int row = from; row < to; row += TILE) {
    int n = to - row < TILE ? to - row : TILE;
    float out[4][TILE];
    if (m->kind == INT8 || m->kind == INT4) {
      vf sums[4];
      if (m->kind == INT8) multiply_tile(m, 8, in, row / TILE, first, tokens, sums);
      else multiply_tile(m, 4, in, row / TILE, first, tokens, sums);
      for (int t = 0; t < tokens; t++) store(out[t], sums[t]);
    } else {
      for (int r = 0; r < n; r += 4) {
        float few[4][TILE];
        int rows = n - r < 4 ? n - r : 4;
        if (rows == 4 && m->kind == FLOAT32) multiply_rows(m, FLOAT32, in, row + r, 4, first, tokens, few);
        else if (rows == 4) multiply_rows(m, BFLOAT16, in, row + r, 4, first, tokens, few);
        else
          for (int one = 0; one < rows; one++) {
            float single[4][TILE];
            if (m->kind == FLOAT32) multiply_rows(m, FLOAT32, in, row + r + one, 1, first, tokens, single);
            else multiply_rows(m, BFLOAT16, in, row + r + one, 1, first, tokens, single);
            for (int t = 0; t < tokens; t++) few[t][one] = single[t][0];
          }
        for (int t = 0; t < tokens; t++) memcpy(out[t] + r, few[t], (size_t)rows * sizeof(float));
      }
    }
    for (int t = 0; t < tokens; t++) {
      vf sum = load(out[t]);
      if (m->bias) sum = sum + load_part(m->bias + row, n);
      store_part(y + (first + t) * stride + row, sum, n);
    }
  }
}

static void multiply(const matrix *m, const input *in, int from, int to, int tokens, float *y, int64_t stride) {
  /* a few rows at a time, so that they stay in the nearest cache while every token meets them */
  const int rows = tokens <= 4 ? to - from : 2 * TILE;
  for (int row = from; row < to; row += rows) {
    int end = row + rows < to ? row + rows : to, t = 0;
    for (; t + 4 <= tokens; t += 4) multiply_few(m, in, row, end, t, 4, y, stride);
    if (tokens - t >= 2) multiply_few(m, in, row, end, t, 2, y, stride), t += 2;
    if (tokens - t == 1) multiply_few(m, in, row, end, t, 1, y, stride);
  }
}

/* ---- norms and activations */

/* y = norm(x) for the channels from … to; the statistics are those of all n channels. */
static void normalize(const norm *nm, const float *x, float *y, int n, int from, int to) {
  float mean = 0.0f, rstd = 1.0f;
  if (nm->kind == LAYER_NORM) {
    vf sum = splat(0.0f);
    for (int i = 0; i < n; i += LANES) sum = sum + load_part(x + i, n - i);
    mean = sum_lanes(sum) / (float)n;
  }
  if (nm->kind != NO_NORM) {
    vf sum = splat(0.0f);
    for (int i = 0; i < n; i += LANES) {
      vf centered = load_part(x + i, n - i) - mean;
      if (n - i < LANES) {
        float kept[LANES];
        store(kept, centered);
        centered = load_part(kept, n - i);
      }
      sum = sum + centered * centered;
    }
    rstd = 1.0f / sqrtf(sum_lanes(sum) / (float)n + nm->eps);
  }
  for (int i = from; i < to; i += LANES) {
    int some = to - i;
    vf value = load_part(x + i, some);
    if (nm->kind != NO_NORM) {
      value = (value - mean) * rstd * load_part(nm->weight + i, some);
      if (nm->bias) value = value + load_part(nm->bias + i, some);
    }
    store_part(y + i, value, some);
  }
}

INLINE vf activate(const int kind, vf x) {
  vf positive = choose(x > splat(0.0f), x, splat(0.0f));
  switch (kind) {
    case RELU: return positive;
    case RELU_SQUARED: return positive * positive;
    case SILU: return x / (1.0f + exponential(-x));
    case GELU: {
      float t[LANES];
      store(t, x);
      for (int i = 0; i < LANES; i++) t[i] = 0.5f * t[i] * (1.0f + erff(t[i] * 0.70710678f));
      return load(t);
    }
    default: /* GELU_TANH: (1 + tanh u) / 2 = 1 / (1 + e^-2u) */
      return x / (1.0f + exponential(-1.5957691f * (x + 0.044715f * x * x * x)));
  }
}

/* ---- attention */

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
  score_span(kind, q, k, k_scale, spans[0], d, heads, scores, width);
  score_span(kind, q, k, k_scale, spans[1], d, heads, scores + spans[0].count, width);
  float total[MOST_HEADS];
  vf sums[MOST_HEADS][WIDEST_HEAD / LANES];
  for (int h = 0; h < heads; h++) {
    total[h] = exponentiate(m, first + h, count, scores + h * width);
    for (int c = 0; c < parts; c++) sums[h][c] = splat(0.0f);
  }
  mix_span(kind, scores, width, v, v_scale, spans[0], d, heads, parts, sums);
  mix_span(kind, scores + spans[0].count, width, v, v_scale, spans[1], d, heads, parts, sums);
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

static void rotate(const model *m, int position, const float *x, float *y) {
  const float *cosine = m->cos_sin + (int64_t)position * m->n_pairs;
  const float *sine = cosine + (int64_t)m->context_length * m->n_pairs;
  for (int i = 0; i < m->n_pairs; i++) {
    int a = m->rotates_neighbors ? 2 * i : i, b = m->rotates_neighbors ? 2 * i + 1 : i + m->n_pairs;
    float first = x[a], second = x[b];
    y[a] = first * cosine[i] - second * sine[i];
    y[b] = second * cosine[i] + first * sine[i];
  }
  for (int i = 2 * m->n_pairs; i < m->d_head; i++) y[i] = x[i];
}

/* ---- the call */

typedef struct {
  const model *m;
  const call *c;
  barrier wait;
  int threads, first, tokens; /* the block of the call's tokens that is being computed */
  float *x, *normed, *q, *k, *v, *z, *out, *gate, *up, *scores;
  int64_t score_width;
  input of_stream, of_z, of_hidden;
} step;

INLINE int64_t pad(int64_t n) { return (n + GROUP - 1) / GROUP * GROUP; }

/* The part of n items, in units, that a thread computes. */
INLINE void share(int n, int unit, int threads, int thread, int *from, int *to) {
  int64_t units = (n + unit - 1) / unit;
  *from = (int)(units * thread / threads) * unit;
  *to = (int)(units * (thread + 1) / threads) * unit;
  if (*to > n) *to = n;
  if (*from > n) *from = n;
}

static void keep(const step *s, int name, int layer, int token, const float *x, int from, int to, int width) {
  if (!s->c->recorded || !s->c->recorded[name]) return;
  int64_t row = (int64_t)layer * s->c->n_tokens + s->first + token;
  memcpy(s->c->recorded[name] + row * width + from, x + from, (size_t)(to - from) * sizeof(float));
}

static int is_rounded(const matrix *m) { return m->kind == INT8 || m->kind == INT4; }

static void embed_token(const matrix *m, int id, float *x) {
  if (!is_rounded(m)) {
    for (int i = 0; i < m->in; i += LANES) {
      const char *row = (const char *)m->data + id * m->stride * (m->kind == FLOAT32 ? 4 : 2);
      store_part(x + i, load_weights(m->kind, row, i, m->in - i), m->in - i);
    }
    return;
  }
  const int lane = id % TILE, start = block_start(m);
  const uint8_t *block = (const uint8_t *)m->data + (int64_t)(id / TILE) * m->groups * m->stride;
  for (int g = 0; g < m->groups; g++, block += m->stride) {
    float scale = widen_half(((const uint16_t *)block)[lane]), minimum = 0.0f;
    if (m->has_minimums) minimum = widen_half(((const uint16_t *)block)[TILE + lane]);
    for (int i = 0; i < GROUP && g * GROUP + i < m->in; i++) {
      int c = i / 4, byte = block[start + 64 * (m->kind == INT8 ? c : c & 3) + 4 * lane + i % 4];
      int q = (m->kind == INT8 ? byte : c < 4 ? byte & 15 : byte >> 4) - m->offset;
      float value = scale * (float)q;
      x[g * GROUP + i] = m->has_minimums ? value + minimum : value;
    }
  }
}

static void embed(const step *s, int thread) {
  const model *m = s->m;
  const int n = m->d_model;
  for (int t = thread; t < s->tokens; t += s->threads) {
    float *x = s->x + t * pad(n);
    embed_token(&m->embed, s->c->ids[s->first + t], x);
    keep(s, EMBEDDED, 0, t, x, 0, n, n);
    if (m->position_rows) {
      const float *row = m->position_rows + (int64_t)s->c->positions[s->first + t] * n;
      for (int i = 0; i < n; i++) x[i] = x[i] + row[i];
    }
    keep(s, POSITIONED, 0, t, x, 0, n, n);
    if (m->embed_norm.kind != NO_NORM) {
      normalize(&m->embed_norm, x, s->normed + t * pad(n), n, 0, n);
      memcpy(x, s->normed + t * pad(n), (size_t)n * sizeof(float));
      keep(s, EMBED_NORM, 0, t, x, 0, n, n);
    }
  }
}

/* The norm of the residual stream, rounded where a product wants integers. */
static void read_stream(const step *s, const norm *nm, int name, int layer, int needs_integers, int thread) {
  const int n = s->m->d_model;
  for (int t = 0; t < s->tokens; t++) {
    int from = 0, to = n;
    if (s->tokens >= s->threads) {
      if (t % s->threads != thread) continue;
    } else share(n, GROUP, s->threads, thread, &from, &to);
    float *y = s->of_stream.x + t * s->of_stream.width;
    normalize(nm, s->x + t * pad(n), y, n, from, to);
    keep(s, name, layer, t, y, from, to, n);
    if (needs_integers)
      for (int g = from / GROUP; g * GROUP < to; g++) round_group(&s->of_stream, t, g);
  }
}

static void project(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const matrix *matrices[3] = {&l->q, &l->k, &l->v};
  float *outputs[3] = {s->q, s->k, s->v};
  for (int i = 0; i < 3; i++) {
    int from, to, width = matrices[i]->out;
    share(width, GROUP, s->threads, thread, &from, &to);
    multiply(matrices[i], &s->of_stream, from, to, s->tokens, outputs[i], width);
    for (int t = 0; t < s->tokens; t++) keep(s, Q + i, index, t, outputs[i] + (int64_t)t * width, from, to, width);
  }
  (void)m;
}

/* Normalizes and rotates one head of a query or key, in place. */
static void place_head(const step *s, const norm *nm, int name, int index, int t, int head, int heads, float *x) {
  const model *m = s->m;
  const int d = m->d_head, width = heads * d, at = head * d;
  float *own = x + (int64_t)t * width, kept[WIDEST_HEAD];
  if (nm->kind != NO_NORM) {
    normalize(nm, own + at, kept, d, 0, d);
    memcpy(own + at, kept, (size_t)d * sizeof(float));
    keep(s, name, index, t, own, at, at + d, width);
  }
  if (m->cos_sin) {
    rotate(m, s->c->positions[s->first + t], own + at, kept);
    memcpy(own + at, kept, (size_t)d * sizeof(float));
    keep(s, name + 2, index, t, own, at, at + d, width);
  }
}

static void place_heads(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const int heads = m->n_head + m->n_kv_head, d = m->d_head, width = m->n_kv_head * d;
  for (int unit = thread; unit < s->tokens * heads; unit += s->threads) {
    int t = unit / heads, head = unit % heads;
    if (head < m->n_head) {
      place_head(s, &l->q_norm, Q_NORMED, index, t, head, m->n_head, s->q);
      continue;
    }
    head -= m->n_head;
    place_head(s, &l->k_norm, K_NORMED, index, t, head, m->n_kv_head, s->k);
    const cache_row *row = &s->c->caches[s->c->rows[s->first + t]];
    int64_t slot = s->c->positions[s->first + t], start = head * row->head_stride;
    if (row->ring) slot %= row->ring;
    float *k_scale = s->c->cache == CACHE_INT8 ? row->k_scale[index] + start : 0;
    float *v_scale = s->c->cache == CACHE_INT8 ? row->v_scale[index] + start : 0;
    const int64_t size = s->c->cache == CACHE_FLOAT32 ? 4 : s->c->cache == CACHE_INT8 ? 1 : 2;
    const float *k = s->k + (int64_t)t * width + head * d, *v = s->v + (int64_t)t * width + head * d;
    store_cached(s->c->cache, k, (char *)row->k[index] + start * d * size, slot, d, k_scale);
    store_cached(s->c->cache, v, (char *)row->v[index] + start * d * size, slot, d, v_scale);
  }
}

static void attend_all(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const int d = m->d_head, all = m->n_head * d, group = m->n_head / m->n_kv_head;
  const int rounds_here = d % GROUP == 0 && is_rounded(&l->o);
  /* heads that share keys are computed together, unless there is then too little for every thread */
  const int at_once = s->tokens * m->n_kv_head < 2 * s->threads ? 1 : group < MOST_HEADS ? group : MOST_HEADS;
  const int parts = (group + at_once - 1) / at_once, units = m->n_kv_head * parts;
  float *scores = s->scores + thread * MOST_HEADS * s->score_width;
  for (int unit = thread; unit < s->tokens * units; unit += s->threads) {
    int t = unit / units, first = unit % units / parts * group + unit % parts * at_once;
    int heads = group - unit % parts * at_once < at_once ? group - unit % parts * at_once : at_once, at = first * d;
    const cache_row *row = &s->c->caches[s->c->rows[s->first + t]];
    float q[MOST_HEADS * WIDEST_HEAD], *z = s->of_z.x + t * s->of_z.width;
    for (int h = 0; h < heads; h++) {
      float *one = q + h * WIDEST_HEAD;
      memcpy(one, s->q + (int64_t)t * all + at + h * d, (size_t)d * sizeof(float));
      memset(one + d, 0, (size_t)(WIDEST_HEAD - d < LANES ? WIDEST_HEAD - d : LANES) * sizeof(float));
    }
    attend(m, s->c->cache, row, index, first, heads, s->c->positions[s->first + t], q, z + at, scores, s->score_width);
    keep(s, Z, index, t, z, at, at + heads * d, all);
    if (rounds_here)
      for (int g = at / GROUP; g < (at + heads * d) / GROUP; g++) round_group(&s->of_z, t, g);
  }
}

static void round_input(const step *s, const input *in, int n, int thread) {
  int groups = (n + GROUP - 1) / GROUP;
  for (int unit = thread; unit < s->tokens * groups; unit += s->threads) round_group(in, unit / groups, unit % groups);
}

/* x += the product, after it is kept under its name. */
static void add_output(const step *s, const matrix *m, const input *in, int name, int after, int index, int thread) {
  const int n = s->m->d_model;
  int from, to;
  share(n, GROUP, s->threads, thread, &from, &to);
  multiply(m, in, from, to, s->tokens, s->out, pad(n));
  for (int t = 0; t < s->tokens; t++) {
    float *x = s->x + t * pad(n), *out = s->out + t * pad(n);
    keep(s, name, index, t, out, from, to, n);
    for (int i = from; i < to; i++) x[i] = x[i] + out[i];
    keep(s, after, index, t, x, from, to, n);
  }
}

static void activate_hidden(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const int n = m->d_ff;
  int from, to;
  share(n, GROUP, s->threads, thread, &from, &to);
  if (m->is_gated) multiply(&l->gate, &s->of_stream, from, to, s->tokens, s->gate, pad(n));
  multiply(&l->up, &s->of_stream, from, to, s->tokens, s->up, pad(n));
  for (int t = 0; t < s->tokens; t++) {
    float *up = s->up + t * pad(n), *gate = m->is_gated ? s->gate + t * pad(n) : up;
    float *hidden = s->of_hidden.x + t * s->of_hidden.width;
    if (m->is_gated) keep(s, GATE, index, t, gate, from, to, n);
    keep(s, UP, index, t, up, from, to, n);
    for (int i = from; i < to; i += LANES) {
      vf act = activate(m->activation, load_part(gate + i, to - i));
      store_part(gate + i, act, to - i); /* the up-projection itself where there is no gate: it is not read again */
      if (m->is_gated) act = act * load_part(up + i, to - i);
      store_part(hidden + i, act, to - i);
    }
    keep(s, ACT, index, t, gate, from, to, n);
    keep(s, HIDDEN, index, t, hidden, from, to, n);
    if (is_rounded(&l->down))
      for (int g = from / GROUP; g * GROUP < to; g++) round_group(&s->of_hidden, t, g);
  }
}

/* Logits of the wanted tokens of this block: their final norm replaces the stream's first rows. */
static void unembed(step *s, int thread) {
  const model *m = s->m;
  const int n = m->d_model;
  int found = 0, at[BLOCK_TOKENS], place = 0;
  for (int i = 0; i < s->c->n_wanted; i++) {
    int token = s->c->wanted[i] - s->first;
    if (token < 0) place = i + 1;
    else if (token < s->tokens) at[found++] = token;
  }
  for (int i = thread; i < found; i += s->threads) {
    float *y = s->of_stream.x + i * s->of_stream.width;
    normalize(&m->final_norm, s->x + at[i] * pad(n), y, n, 0, n);
    keep(s, FINAL_NORM, 0, at[i], y, 0, n, n);
    if (is_rounded(&m->unembed))
      for (int g = 0; g * GROUP < n; g++) round_group(&s->of_stream, i, g);
  }
  barrier_wait(&s->wait);
  int from, to;
  share(m->vocab_size, GROUP, s->threads, thread, &from, &to);
  if (found) multiply(&m->unembed, &s->of_stream, from, to, found, s->c->logits + (int64_t)place * m->vocab_size, m->vocab_size);
  barrier_wait(&s->wait);
}

static void run_block(void *argument, int thread) {
  step *s = argument;
  const model *m = s->m;
  barrier *wait = &s->wait;
  embed(s, thread);
  barrier_wait(wait);
  for (int i = 0; i < m->n_layer; i++) {
    const layer *l = &m->layers[i];
    for (int t = thread; t < s->tokens; t += s->threads)
      keep(s, RESID_PRE, i, t, s->x + t * pad(m->d_model), 0, m->d_model, m->d_model);
    read_stream(s, &l->attn_norm, ATTN_NORM, i, is_rounded(&l->q) || is_rounded(&l->k) || is_rounded(&l->v), thread);
    barrier_wait(wait);
    project(s, l, i, thread);
    barrier_wait(wait);
    place_heads(s, l, i, thread);
    barrier_wait(wait);
    attend_all(s, l, i, thread);
    barrier_wait(wait);
    if (is_rounded(&l->o) && m->d_head % GROUP) {
      round_input(s, &s->of_z, m->n_head * m->d_head, thread);
      barrier_wait(wait);
    }
    add_output(s, &l->o, &s->of_z, ATTN_OUT, RESID_MID, i, thread);
    barrier_wait(wait);
    if (!l->up.data) continue; /* a block without an MLP */
    read_stream(s, &l->mlp_norm, MLP_NORM, i, is_rounded(&l->up) || (m->is_gated && is_rounded(&l->gate)), thread);
    barrier_wait(wait);
    activate_hidden(s, l, i, thread);
    barrier_wait(wait);
    add_output(s, &l->down, &s->of_hidden, MLP_OUT, RESID_POST, i, thread);
    barrier_wait(wait);
  }
  unembed(s, thread);
}

static void *take(char **place, size_t bytes) {
  void *found = *place;
  *place += (bytes + 63) / 64 * 64;
  return found;
}

static void lay_out_input(input *in, int tokens, int64_t n, char **place) {
  in->width = pad(n);
  size_t count = (size_t)(tokens * in->width);
  in->x = take(place, count * 4);
  in->q = take(place, count * 2);
  in->high = take(place, count);
  in->low = take(place, count);
  in->scale = take(place, count / GROUP * 4);
  in->scaled_sum = take(place, count / GROUP * 4);
  in->sum = take(place, count / GROUP * 4);
}

/* Lays out the working memory from `place` on, and returns its bytes. */
static size_t lay_out(step *s, int tokens, int longest, char *start) {
  const model *m = s->m;
  char *place = start;
  const int64_t heads = (int64_t)m->n_head * m->d_head, kv = (int64_t)m->n_kv_head * m->d_head;
  lay_out_input(&s->of_stream, tokens, m->d_model, &place);
  lay_out_input(&s->of_z, tokens, heads, &place);
  lay_out_input(&s->of_hidden, tokens, m->d_ff, &place);
  s->x = take(&place, (size_t)(tokens * pad(m->d_model)) * 4);
  s->normed = take(&place, (size_t)(tokens * pad(m->d_model)) * 4);
  s->out = take(&place, (size_t)(tokens * pad(m->d_model)) * 4);
  s->q = take(&place, (size_t)(tokens * pad(heads)) * 4);
  s->k = take(&place, (size_t)(tokens * pad(kv)) * 4);
  s->v = take(&place, (size_t)(tokens * pad(kv)) * 4);
  s->gate = take(&place, (size_t)(tokens * pad(m->d_ff)) * 4);
  s->up = take(&place, (size_t)(tokens * pad(m->d_ff)) * 4);
  s->score_width = pad(longest) + GROUP;
  s->scores = take(&place, (size_t)(s->threads * MOST_HEADS * s->score_width) * 4);
  return (size_t)(place - start);
}

/* Returns 0, or 1 where memory is missing. The call was checked: see decoder.c. */
int run_step(const model *m, const call *c) {
  int longest = 0;
  for (int i = 0; i < c->n_tokens; i++) longest = c->positions[i] >= longest ? c->positions[i] + 1 : longest;
  int threads = pool_begin(c->threads);
  int tokens = c->n_tokens < BLOCK_TOKENS ? c->n_tokens : BLOCK_TOKENS;
  step s = {.m = m, .c = c, .threads = threads};
  size_t bytes = lay_out(&s, tokens, longest, 0);
  char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory) memset(memory, 0, bytes);
  s.wait.count = threads;
  if (memory) lay_out(&s, tokens, longest, memory);
  for (s.first = 0; memory && s.first < c->n_tokens; s.first += tokens) {
    s.tokens = c->n_tokens - s.first < tokens ? c->n_tokens - s.first : tokens;
    pool_run(run_block, &s, threads);
  }
  pool_end(threads);
  free(memory);
  return !memory;
}
