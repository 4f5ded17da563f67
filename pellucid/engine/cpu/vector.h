/* Vectors of 16 lanes, and the few operations on them that have no operator.
 *
 * GCC's and Clang's vector extensions give + - * / on any instruction set. Everything here rounds as the
 * portable form does: no fused multiply-add, sums of lanes in one fixed tree. So a result does not depend on
 * the instruction set, bit for bit.
 */
#ifndef PELLUCID_VECTOR_H
#define PELLUCID_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define LANES 16

typedef float vf __attribute__((vector_size(64), may_alias));
typedef int32_t vi __attribute__((vector_size(64), may_alias));
typedef uint32_t vu __attribute__((vector_size(64), may_alias));
typedef float vf_any __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(64), aligned(4), may_alias));

INLINE vf splat(float x) { return (vf){} + x; }
INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf x) { *(vf_any *)p = x; }

/* The first n of 16 numbers, zeros after them: nothing is read behind the end of a row. */
INLINE vf load_part(const float *p, int n) {
  if (n >= LANES) return load(p);
  float kept[LANES] = {0};
  memcpy(kept, p, (size_t)n * sizeof *p);
  return load(kept);
}
INLINE void store_part(float *p, vf x, int n) {
  if (n >= LANES) { store(p, x); return; }
  float kept[LANES];
  store(kept, x);
  memcpy(p, kept, (size_t)n * sizeof *p);
}

/* x, in a register before what follows uses it: the compiler keeps the order that is written. Zen 4 gives vectors to
 * two queues in turn, each with a pipe that multiplies and one that adds: where single multiplications and additions
 * alternate, half of the pipes wait. */
INLINE vf computed(vf x) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(x));
#endif
  return x;
}

INLINE vf choose(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
#if defined(__AVX512F__) /* the second where one is NaN, as the comparisons below */
INLINE vf larger(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
#else
INLINE vf larger(vf a, vf b) { return choose(a > b, a, b); }
INLINE vf smaller(vf a, vf b) { return choose(a < b, a, b); }
#endif
/* The largest of n magnitudes; NaN where one is an Inf or NaN, which no comparison finds. */
INLINE float largest_magnitude(const float *x, int n) {
  float most = 0.0f, wrong = 0.0f;
  for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most, wrong += x[i] - x[i];
  return most + wrong;
}
INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf to_float(vi x) { return __builtin_convertvector(x, vf); }

/* Halves added to halves: lanes i and i + 8, then i + 4, i + 2, i + 1. */
INLINE float sum_lanes(vf x) {
  float t[LANES];
  store(t, x);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) t[i] = t[i] + t[i + half];
  return t[0];
}
INLINE int32_t sum_integers(vi x) { /* in any order: they are exact */
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)x);
#else
  int32_t sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
#endif
}
INLINE int32_t largest_integer(vi x, vi y) { /* of both */
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32(_mm512_max_epi32((__m512i)x, (__m512i)y));
#else
  int32_t found = x[0];
  for (int i = 0; i < LANES; i++) {
    found = x[i] > found ? x[i] : found;
    found = y[i] > found ? y[i] : found;
  }
  return found;
#endif
}
INLINE float largest_lane(vf x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x);
#endif
  float t[LANES], found;
  store(t, x);
  found = t[0];
  for (int i = 1; i < LANES; i++) found = t[i] > found ? t[i] : found;
  return found;
}

/* The lane sums of 16 vectors, one a lane, each in the tree of `sum_lanes`: lanes of two vectors that are `half`
 * apart are added, so that one vector holds both. */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif
#define ADD_HALVES(a, b, i0, i1, i2, i3, i4, i5, i6, i7, half)                                                     \
  (SHUFFLE(a, b, i0, i1, i2, i3, i4, i5, i6, i7, i0 + 16, i1 + 16, i2 + 16, i3 + 16, i4 + 16, i5 + 16, i6 + 16,    \
           i7 + 16) +                                                                                              \
   SHUFFLE(a, b, i0 + half, i1 + half, i2 + half, i3 + half, i4 + half, i5 + half, i6 + half, i7 + half,           \
           i0 + 16 + half, i1 + 16 + half, i2 + 16 + half, i3 + 16 + half, i4 + 16 + half, i5 + 16 + half,         \
           i6 + 16 + half, i7 + 16 + half))
static __attribute__((noinline)) vf sum_lanes_of_16(vf *x) { /* once for all callers: it is long */
  for (int i = 0; i < 8; i++) x[i] = ADD_HALVES(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 8);
  for (int i = 0; i < 4; i++) x[i] = ADD_HALVES(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 4);
  for (int i = 0; i < 2; i++) x[i] = ADD_HALVES(x[2 * i], x[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13, 2);
  return ADD_HALVES(x[0], x[1], 0, 2, 4, 6, 8, 10, 12, 14, 1);
}

/* Row i becomes column i of 16 vectors: the bits of a lane's and a vector's number change places, one by one. */
#if defined(__AVX512F__)
#define SWAP_HALVES(a, b, i0, i1, i2, i3, i4, i5, i6, i7, half)                                                    \
  do {                                                                                                             \
    const vf low = a, high = b;                                                                                    \
    a = PICK_HALVES(low, high, i0, i1, i2, i3, i4, i5, i6, i7, half);                                              \
    b = PICK_HALVES(low, high, i0 + half, i1 + half, i2 + half, i3 + half, i4 + half, i5 + half, i6 + half,        \
                    i7 + half, half);                                                                              \
  } while (0)
#define PICK_HALVES(a, b, i0, i1, i2, i3, i4, i5, i6, i7, half) \
  (half == 8 ? SHUFFLE(a, b, i0, i1, i2, i3, i4, i5, i6, i7, i0 + 16, i1 + 16, i2 + 16, i3 + 16, i4 + 16, i5 + 16, i6 + 16, i7 + 16) \
   : half == 4 ? SHUFFLE(a, b, i0, i1, i2, i3, i0 + 16, i1 + 16, i2 + 16, i3 + 16, i4, i5, i6, i7, i4 + 16, i5 + 16, i6 + 16, i7 + 16) \
   : half == 2 ? SHUFFLE(a, b, i0, i1, i0 + 16, i1 + 16, i2, i3, i2 + 16, i3 + 16, i4, i5, i4 + 16, i5 + 16, i6, i7, i6 + 16, i7 + 16) \
               : SHUFFLE(a, b, i0, i0 + 16, i1, i1 + 16, i2, i2 + 16, i3, i3 + 16, i4, i4 + 16, i5, i5 + 16, i6, i6 + 16, i7, i7 + 16))
INLINE void transpose_16(vf *x) {
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) SWAP_HALVES(x[i], x[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 8);
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
    const int at = i / 4 * 8 + i % 4;
    SWAP_HALVES(x[at], x[at + 4], 0, 1, 2, 3, 8, 9, 10, 11, 4);
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
    const int at = i / 2 * 4 + i % 2;
    SWAP_HALVES(x[at], x[at + 2], 0, 1, 4, 5, 8, 9, 12, 13, 2);
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) SWAP_HALVES(x[2 * i], x[2 * i + 1], 0, 2, 4, 6, 8, 10, 12, 14, 1);
}
#else
INLINE void transpose_16(vf *x) {
  float rows[LANES][LANES], columns[LANES][LANES];
  for (int i = 0; i < LANES; i++) store(rows[i], x[i]);
  for (int i = 0; i < LANES; i++)
    for (int j = 0; j < LANES; j++) columns[j][i] = rows[i][j];
  for (int i = 0; i < LANES; i++) x[i] = load(columns[i]);
}
#endif

/* ---- 16-bit floats */

INLINE float widen_half(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023, bits;
  if (exponent == 31) bits = sign | 0x7f800000 | fraction << 13;
  else if (exponent) bits = sign | (exponent + 112) << 23 | fraction << 13;
  else {
    float small = (float)fraction * 0x1p-24f;
    memcpy(&bits, &small, 4);
    bits |= sign;
  }
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
INLINE uint16_t narrow_half(float x) { /* to the nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (rest < 0x38800000) { /* subnormal: a multiple of 2^-24, rounded by the float's own addition */
    float size;
    memcpy(&size, &rest, 4);
    size += 0.5f;
    memcpy(&rest, &size, 4);
    return (uint16_t)(sign | (rest - 0x3f000000));
  }
  rest += 0xfff + ((rest >> 13) & 1);
  return (uint16_t)(sign | ((rest - 0x38000000) >> 13));
}
INLINE vf load_half(const uint16_t *p) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#else
  float t[LANES];
  for (int i = 0; i < LANES; i++) t[i] = widen_half(p[i]);
  return load(t);
#endif
}
INLINE vf load_bfloat(const uint16_t *p) {
#if defined(__AVX512F__)
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
#else
  vu t;
  for (int i = 0; i < LANES; i++) t[i] = (uint32_t)p[i] << 16;
  return (vf)t;
#endif
}
INLINE uint16_t narrow_bfloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
INLINE vf load_int8(const int8_t *p) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
#else
  vi t;
  for (int i = 0; i < LANES; i++) t[i] = p[i];
  return to_float(t);
#endif
}

/* ---- functions */

/* The nearest integer, ties to even, for |x| < 2^22. */
INLINE vf round_even(vf x) { return (x + 12582912.0f) - 12582912.0f; }

/* e^x: x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial for e^r; 0 below -87.3, and for -inf. */
INLINE vf exponential(vf x) {
  const vf low = splat(-87.3f), high = splat(88.3f);
  vi is_zero = x < low;
  vf y = smaller(high, larger(low, x));
  vf n = round_even(y * 1.44269504f);
  vf r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  vi power = (__builtin_convertvector(n, vi) + 127) << 23;
  return (vf)(~is_zero & (vi)(p * (vf)power));
}
#endif
