/* Products x W^T + b: of float weights in float32, of quantized weights as exact sums of integers.
 *
 * For quantized weights the input is rounded to 16-bit integers, for each group of 32: x = scale q. The sum of a
 * group's products is an exact integer; it is multiplied by both scales and added in float32, group after group.
 */
#ifndef PELLUCID_PRODUCTS_H
#define PELLUCID_PRODUCTS_H

#include "model.h"
#include "vector.h"

#define GROUP 32
#define TILE 16
#define MOST_TOKENS 8 /* whose products with one tile of weights are computed together */
#if defined(__AVX2__)
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL /* vectors are many registers here: the compiler knows better */
#endif
#define ROWS (2 * TILE) /* of weights that meet all of many tokens before the next rows do */
#define AHEAD 4096 /* bytes of weights that are asked for before they are used */
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

/* The same input from a token on. */
INLINE input skip_tokens(const input *in, int tokens) {
  const int64_t at = tokens * in->width, place = at / GROUP;
  return (input){in->x + at, in->width, in->q + at, in->high + at, in->low + at,
                 in->scale + place, in->scaled_sum + place, in->sum + place};
}

static void round_group(const input *in, int token, int group) {
  int64_t at = token * in->width + (int64_t)group * GROUP, place = at / GROUP;
  vf x[2] = {load(in->x + at), load(in->x + at + LANES)};
  /* magnitudes are in the order of their bits, an Inf or NaN above all */
  const int32_t bits = largest_integer((vi)magnitude(x[0]), (vi)magnitude(x[1]));
  float most;
  memcpy(&most, &bits, 4);
  float scale = most / LIMIT, factor = LIMIT / most;
  if (bits >= 0x7f800000) scale = NAN, factor = 0.0f, x[0] = x[1] = splat(0.0f); /* an Inf or NaN stays one */
  else if (most < 1e-30f) scale = 0.0f, factor = 0.0f;
  vi sums = {};
#if !defined(__AVX512VNNI__)
  int32_t q[GROUP];
#endif
  UNROLL for (int half = 0; half < 2; half++) {
    const vi rounded = __builtin_convertvector(round_even(x[half] * factor), vi);
#if defined(__AVX512VNNI__) /* the last byte is the lower plane */
    _mm_storeu_si128((void *)(in->high + at + LANES * half), _mm512_cvtepi32_epi8((__m512i)((rounded + 128) >> 8)));
    _mm_storeu_si128((void *)(in->low + at + LANES * half), _mm512_cvtepi32_epi8((__m512i)rounded));
#else
    *(vi_any *)(q + LANES * half) = rounded;
#endif
    sums = sums + rounded;
  }
  const int32_t sum = sum_integers(sums);
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

INLINE int is_rounded(const matrix *m) { return m->kind == INT8 || m->kind == INT4; }
INLINE int block_start(const matrix *m) { return m->has_minimums ? 64 : 32; }

#if defined(__AVX512VNNI__)
INLINE void add_products(const uint8_t *w, const int bits, const input *in, const int64_t *at, const int tokens,
                         vi *sums) {
  const int chains = tokens == 1 ? 2 : 1; /* sums that do not wait for each other */
  __m512i high[MOST_TOKENS][2], low[MOST_TOKENS][2];
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
  __m256i sum[MOST_TOKENS][2];
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

INLINE void multiply_tile(const matrix *m, const int bits, const int has_minimums, const input *in, int64_t tile,
                          int first, const int tokens, vf *y) {
  const uint8_t *block = (const uint8_t *)m->data + tile * m->groups * m->stride;
  const int start = block_start(m);
  UNROLL for (int t = 0; t < tokens; t++) y[t] = splat(0.0f);
  for (int g = 0; g < m->groups; g++, block += m->stride) {
    int64_t at[MOST_TOKENS];
    vi sums[MOST_TOKENS];
    UNROLL for (int t = 0; t < tokens; t++) at[t] = (first + t) * in->width + (int64_t)g * GROUP;
    if (tokens <= 2 || !first) /* these meet the weights first: the hardware stops at the end of a page */
      UNROLL for (int i = 0; i < (bits == 8 ? 512 : 256) + 2 * TILE * (1 + has_minimums); i += 64)
        __builtin_prefetch(block + AHEAD + i, 0, 3);
    add_products(block + start, bits, in, at, tokens, sums);
    vf scales = load_half((const uint16_t *)block);
    UNROLL for (int t = 0; t < tokens; t++) {
      int64_t place = at[t] / GROUP;
      if (!has_minimums) sums[t] = sums[t] - m->offset * in->sum[place];
      y[t] = y[t] + to_float(sums[t]) * (scales * in->scale[place]);
    }
    if (has_minimums) {
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

/* y[t][r]: the lanes of the products of a few rows with each token, not yet added up. */
INLINE void multiply_rows(const matrix *m, const int kind, const input *in, int64_t row, const int rows, int first,
                          const int tokens, vf (*y)[TILE]) {
  const int64_t size = kind == FLOAT32 ? 4 : 2;
  const char *w = (const char *)m->data + row * m->stride * size;
  vf sum[4][MOST_TOKENS];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int t = 0; t < tokens; t++) sum[r][t] = splat(0.0f);
  for (int64_t i = 0; i < m->in; i += LANES) {
    int n = m->in - i < LANES ? (int)(m->in - i) : LANES;
    vf x[MOST_TOKENS];
    UNROLL for (int t = 0; t < tokens; t++) x[t] = load(in->x + (first + t) * in->width + i);
    if (tokens <= 2) /* the rows after these, into L2: several short streams are too few misses at once for L1 */
      UNROLL for (int r = 0; r < rows; r++) __builtin_prefetch(w + ((rows + r) * m->stride + i) * size, 0, 2);
    UNROLL for (int r = 0; r < rows; r++) {
      vf weights = load_weights(kind, w + r * m->stride * size, i, n);
      UNROLL for (int t = 0; t < tokens; t++) sum[r][t] = sum[r][t] + weights * x[t];
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int t = 0; t < tokens; t++) y[t][r] = sum[r][t];
}

INLINE void multiply_floats(const matrix *m, const int kind, const input *in, int64_t row, int rows, int first,
                            const int tokens, vf *y) {
  vf lanes[MOST_TOKENS][TILE];
  int r = 0;
  for (; r + 4 <= rows; r += 4) {
    vf few[MOST_TOKENS][TILE];
    multiply_rows(m, kind, in, row + r, 4, first, tokens, few);
    UNROLL for (int t = 0; t < tokens; t++) memcpy(lanes[t] + r, few[t], 4 * sizeof(vf));
  }
  for (; r < TILE; r++) {
    vf one[MOST_TOKENS][TILE];
    if (r < rows) multiply_rows(m, kind, in, row + r, 1, first, tokens, one);
    for (int t = 0; t < tokens; t++) {
      if (r < rows) lanes[t][r] = one[t][0];
      else lanes[t][r] = splat(0.0f);
    }
  }
  for (int t = 0; t < tokens; t++) y[t] = sum_lanes_of_16(lanes[t]);
}

/* y [tokens, stride] = x W^T + b for the outputs from … to; `from` is a multiple of 16. */
INLINE void multiply_few(const matrix *m, const input *in, int from, int to, int first, const int tokens, float *y,
                         int64_t stride) {
  for (int row = from; row < to; row += TILE) {
    int n = to - row < TILE ? to - row : TILE;
    vf sums[MOST_TOKENS];
    if (m->kind == FLOAT32) multiply_floats(m, FLOAT32, in, row, n, first, tokens, sums);
    else if (m->kind == BFLOAT16) multiply_floats(m, BFLOAT16, in, row, n, first, tokens, sums);
    else if (m->kind == INT8 && m->has_minimums) multiply_tile(m, 8, 1, in, row / TILE, first, tokens, sums);
    else if (m->kind == INT8) multiply_tile(m, 8, 0, in, row / TILE, first, tokens, sums);
    else if (m->has_minimums) multiply_tile(m, 4, 1, in, row / TILE, first, tokens, sums);
    else multiply_tile(m, 4, 0, in, row / TILE, first, tokens, sums);
    vf bias = splat(0.0f);
    if (m->bias) bias = load_part(m->bias + row, n);
    for (int t = 0; t < tokens; t++) {
      if (m->bias) sums[t] = sums[t] + bias;
      store_part(y + (first + t) * stride + row, sums[t], n);
    }
  }
}

static void multiply(const matrix *m, const input *in, int from, int to, int tokens, float *y, int64_t stride) {
  /* a few rows at a time, so that they stay in the nearest cache while every token meets them */
  const int rows = tokens <= 2 ? to - from : ROWS;
  for (int row = from; row < to; row += rows) {
    int end = row + rows < to ? row + rows : to, t = 0;
    if (is_rounded(m))
      for (; t + 8 <= tokens; t += 8) multiply_few(m, in, row, end, t, 8, y, stride);
    for (; t + 4 <= tokens; t += 4) multiply_few(m, in, row, end, t, 4, y, stride);
    if (tokens - t >= 2) multiply_few(m, in, row, end, t, 2, y, stride), t += 2;
    if (tokens - t == 1) multiply_few(m, in, row, end, t, 1, y, stride);
  }
}
#endif
