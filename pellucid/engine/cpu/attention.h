/* Attention of the queries that share a key head, over a text's keys: of one token, or of a few that follow one
 * another.
 *
 * Scores, the largest, the exponentials and the weighted sum of the values are each computed in the order of the
 * positions, by one thread: a query's result depends on nothing but its own text. With an int8 cache the query is
 * rounded to 16-bit integers, as the input of a product is (products.h), and a score is an exact sum of integers.
 */
#ifndef PELLUCID_ATTENTION_H
#define PELLUCID_ATTENTION_H

#include "cached.h"
#include "model.h"
#include "products.h"
#include "vector.h"

#define MOST_HEADS 4 /* of one token that are computed together */
#define TILE_TOKENS 16 /* that are computed together where they follow one another */
#define WIDEST_HEAD 256
#define VALUE_BLOCK 32

typedef struct {
  float x[WIDEST_HEAD];
  int16_t q[WIDEST_HEAD]; /* x = scale q, q = 256 high + low */
  int8_t high[WIDEST_HEAD], low[WIDEST_HEAD];
  float scale, *scores, *z;
  int32_t sum;
  int first, count, head; /* the keys that it sees, and its head */
  float total; /* of its exponentials */
} query;

static void round_query(query *q, int d) {
  const float most = largest_magnitude(q->x, d);
  float factor = LIMIT / most;
  q->scale = most / LIMIT; /* an Inf or NaN stays one */
  q->sum = 0;
  if (most < 1e-30f) q->scale = 0.0f, factor = 0.0f;
  for (int i = 0; i < WIDEST_HEAD && i < d + 4 * LANES; i++) {
    const int rounded = i < d && q->scale == q->scale ? (int)rintf(q->x[i] * factor) : 0, high = (rounded + 128) >> 8;
    q->q[i] = (int16_t)rounded;
    q->high[i] = (int8_t)high;
    q->low[i] = (int8_t)(rounded - 256 * high);
    q->sum += rounded;
  }
}

/* ---- scores q · k of 16 keys; lane j is key j */

/* Asks for rows that are read later: the hardware stops at the end of a page. */
INLINE void prefetch_rows(const int kind, const char *rows, const int n, const int d) {
  if (kind != CACHE_INT8) return; /* of wider rows it costs more than it gains */
  const int size = d * cached_size(kind);
  for (int i = 0; i < n * size; i += 64) __builtin_prefetch(rows + 2 * LANES * size + i, 0, 3);
}

/* For a few queries: a lane holds channels of a key, which is read once. */
INLINE void score_rows(const int kind, query *q, const int heads, const char *keys, const int d, vf *found) {
  vf products[MOST_HEADS][LANES];
  for (int i = 0; i < LANES; i++) {
    vf sum[MOST_HEADS];
    UNROLL for (int h = 0; h < heads; h++) sum[h] = splat(0.0f);
    for (int c = 0; c < d; c += LANES) {
      const vf part = load_cached(kind, keys + (int64_t)i * d * cached_size(kind), c, d);
      UNROLL for (int h = 0; h < heads; h++) sum[h] = sum[h] + load(q[h].x + c) * part;
    }
    UNROLL for (int h = 0; h < heads; h++) products[h][i] = sum[h];
  }
  UNROLL for (int h = 0; h < heads; h++) found[h] = sum_lanes_of_16(products[h]);
}

/* Scores of four queries with turned keys, whose lanes are keys: Σ_c over the channels i, i + 16, …, then over i in the
 * tree of `sum_lanes`, each sum as soon as both of its parts are there. Where all products are zero the sum may be
 * -0, which has the same exponential. */
typedef struct {
  vf a, b, c, d;
} four;
INLINE four add_fours(four x, four y) {
  return (four){computed(x.a + y.a), computed(x.b + y.b), computed(x.c + y.c), computed(x.d + y.d)};
}
INLINE four multiply_key(const float *const *x, const int i, vf key) {
  key = computed(key);
  return (four){computed(x[0][i] * key), computed(x[1][i] * key), computed(x[2][i] * key), computed(x[3][i] * key)};
}
INLINE four add_class(const float *const *x, const vf (*turned)[LANES], const int d, const int i) {
  four sum = multiply_key(x, i, turned[0][i]);
  for (int c = LANES; c < d; c += LANES) sum = add_fours(sum, multiply_key(x, c + i, turned[c / LANES][i]));
  return sum;
}
INLINE four add_8(const float *const *x, const vf (*turned)[LANES], const int d, const int i) {
  return add_fours(add_class(x, turned, d, i), add_class(x, turned, d, i + 8));
}
INLINE four add_4(const float *const *x, const vf (*turned)[LANES], const int d, const int i) {
  return add_fours(add_8(x, turned, d, i), add_8(x, turned, d, i + 4));
}
INLINE four add_2(const float *const *x, const vf (*turned)[LANES], const int d, const int i) {
  return add_fours(add_4(x, turned, d, i), add_4(x, turned, d, i + 2));
}
INLINE void score_fours(const query *q, int queries, const vf (*turned)[LANES], const int d, vf *found) {
  for (int h = 0; h < queries; h += 4) {
    const float *x[4];
    UNROLL for (int i = 0; i < 4; i++) x[i] = q[h + i < queries ? h + i : queries - 1].x;
    const four sums = add_fours(add_2(x, turned, d, 0), add_2(x, turned, d, 1));
    found[h] = sums.a, found[h + 1] = sums.b, found[h + 2] = sums.c, found[h + 3] = sums.d;
  }
}
static __attribute__((noinline)) void score_queries(const query *q, int queries, const vf (*turned)[LANES], int d,
                                                    vf *found) {
  if (d == 64) score_fours(q, queries, turned, 64, found);
  else score_fours(q, queries, turned, d, found);
}

/* For many queries the keys are turned first: a lane holds a key, and nothing is added across lanes. */
INLINE void score_turned(const int kind, query *q, int queries, const char *keys, const int d, vf *found) {
  vf turned[WIDEST_HEAD / LANES][LANES];
  for (int c = 0; c < d; c += LANES) {
    for (int i = 0; i < LANES; i++)
      turned[c / LANES][i] = load_cached(kind, keys + (int64_t)i * d * cached_size(kind), c, d);
    transpose_16(turned[c / LANES]);
  }
  score_queries(q, queries, (const vf(*)[LANES])turned, d, found);
}

/* Of an int8 cache: sums of integers, in any order. */
#if defined(__AVX512VNNI__)
INLINE void add_integers(const query *q, int queries, const char *keys, const int d, vi *found) {
  for (int h = 0; h < queries; h++) found[h] = (vi){} - 128 * q[h].sum; /* 128 is added to keys: they have no sign */
  for (int c = 0; c < d; c += 4 * LANES) {
    const __mmask64 mask = d - c >= 64 ? ~0ull : (1ull << (d - c)) - 1;
    vf rows[LANES];
    UNROLL for (int i = 0; i < LANES; i++) rows[i] = (vf)_mm512_maskz_loadu_epi8(mask, keys + (int64_t)i * d + c);
    transpose_16(rows); /* lane j of rows[i] has channels c + 4 i … of key j */
    UNROLL for (int i = 0; i < LANES; i++) rows[i] = (vf)_mm512_xor_si512((__m512i)rows[i], _mm512_set1_epi8(-128));
    for (int h = 0; h < queries; h++) {
      __m512i high = _mm512_setzero_si512(), low = _mm512_setzero_si512();
      UNROLL for (int i = 0; i < LANES; i++) {
        int32_t upper, lower;
        memcpy(&upper, q[h].high + c + 4 * i, 4);
        memcpy(&lower, q[h].low + c + 4 * i, 4);
        high = _mm512_dpbusd_epi32(high, (__m512i)rows[i], _mm512_set1_epi32(upper));
        low = _mm512_dpbusd_epi32(low, (__m512i)rows[i], _mm512_set1_epi32(lower));
      }
      found[h] = found[h] + (vi)_mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
    }
  }
}
#else
INLINE void add_integers(const query *q, int queries, const char *keys, const int d, vi *found) {
  for (int h = 0; h < queries; h++)
    for (int i = 0; i < LANES; i++) {
      const int8_t *key = (const int8_t *)keys + (int64_t)i * d;
      int32_t sum = 0;
      int c = 0;
#if defined(__AVX2__)
      __m256i sums = _mm256_setzero_si256();
      for (; c + 16 <= d; c += 16)
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(key + c))),
                                                        _mm256_loadu_si256((const void *)(q[h].q + c))));
      int32_t kept[8];
      _mm256_storeu_si256((void *)kept, sums);
      for (int lane = 0; lane < 8; lane++) sum += kept[lane];
#endif
      for (; c < d; c++) sum += q[h].q[c] * key[c];
      found[h][i] = sum;
    }
}
#endif

static __attribute__((noinline)) void score_integers(const query *q, int queries, const char *keys, int d, vi *found) {
  if (d == 64) add_integers(q, queries, keys, 64, found);
  else add_integers(q, queries, keys, d, found);
}

/* The scores of all keys; `heads` is 0 where the queries are many. */
INLINE void score_all(const int kind, query *q, int queries, const int heads, const span *spans, int n_spans,
                      const int d) {
  const int size = d * cached_size(kind);
  for (int s = 0, place = 0; s < n_spans; place += spans[s++].count)
    for (int at = 0; at < spans[s].count; at += LANES) {
      const int n = spans[s].count - at < LANES ? spans[s].count - at : LANES;
      const char *keys = spans[s].k + (int64_t)at * size;
      char copied[LANES * WIDEST_HEAD * 4];
      if (n < LANES) keys = memcpy(copied, keys, (size_t)(n * size)); /* what follows is not ours to read */
      else prefetch_rows(kind, keys, LANES, d);
      vf found[MOST_HEADS * TILE_TOKENS];
      if (kind == CACHE_INT8) {
        const vf scales = load_part(spans[s].k_scale + at, n);
        vi sums[MOST_HEADS * TILE_TOKENS];
        score_integers(q, queries, keys, d, sums);
        for (int h = 0; h < queries; h++) found[h] = to_float(sums[h]) * (scales * q[h].scale);
      } else if (heads) score_rows(kind, q, heads, keys, d, found);
      else score_turned(kind, q, queries, keys, d, found);
      for (int h = 0; h < (heads ? heads : queries); h++) store_part(q[h].scores + place + at, found[h], n);
    }
}

/* Replaces the scores of a query by e^(s - max), where s = scale · score + bias, and keeps their sum. */
static void exponentiate(const model *m, query *q) {
  const vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int count = q->count;
  float *scores = q->scores + q->first;
  vf most = splat(-INFINITY), total = splat(0.0f);
  for (int j = 0; j < count; j += LANES) {
    vf s = load(scores + j) * m->scale;
    if (m->slopes) s = s + -m->slopes[q->head] * to_float(count - 1 - j - lane);
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
  q->total = sum_lanes(total);
}

/* ---- z_h += Σ_j p_hj v_j, one value after another */

/* Multiplies the shares of an int8 cache's values by the values' scales. */
static void scale_shares(const query *q, const span *spans, int n_spans) {
  for (int s = 0, place = 0; s < n_spans; place += spans[s++].count) {
    const int from = q->first > place ? q->first - place : 0, end = q->first + q->count - place;
    const int to = end < spans[s].count ? end : spans[s].count;
    float *shares = q->scores + place;
    for (int j = from; j < to; j += LANES) {
      const int n = to - j < LANES ? to - j : LANES;
      store_part(shares + j, load_part(shares + j, n) * load_part(spans[s].v_scale + j, n), n);
    }
  }
}

/* Of the values from … to, the first of which has the place `place` among the keys. */
INLINE void mix_values(const int kind, query *q, const int heads, const char *values, int place, int from, int to,
                       const int d) {
  const int size = d * cached_size(kind);
  for (int c = 0; c < d; c += 4 * LANES) { /* 16 sums at most, for the registers there are */
    const int parts = d - c >= 4 * LANES ? 4 : (d - c + LANES - 1) / LANES;
    vf z[MOST_HEADS][4];
    UNROLL for (int h = 0; h < heads; h++)
      UNROLL for (int i = 0; i < 4; i++) z[h][i] = i < parts ? load_part(q[h].z + c + i * LANES, d - c - i * LANES) : splat(0.0f);
    for (int j = from; j < to; j++) {
      const char *value = values + (int64_t)j * size;
      prefetch_rows(kind, value, 1, d);
      UNROLL for (int i = 0; i < 4; i++) if (i < parts) {
        const vf part = load_cached(kind, value, c + i * LANES, d);
        UNROLL for (int h = 0; h < heads; h++) z[h][i] = z[h][i] + q[h].scores[place + j] * part;
      }
    }
    UNROLL for (int h = 0; h < heads; h++)
      UNROLL for (int i = 0; i < 4; i++) if (i < parts) store_part(q[h].z + c + i * LANES, z[h][i], d - c - i * LANES);
  }
}

#if defined(__AVX2__)
#define BY_HEADS(RUN, ...)          \
  switch (heads) {                  \
    case 1: RUN(1, __VA_ARGS__) break; \
    case 2: RUN(2, __VA_ARGS__) break; \
    case 3: RUN(3, __VA_ARGS__) break; \
    default: RUN(4, __VA_ARGS__) break; \
  }
#else
#define BY_HEADS(RUN, ...) { RUN(heads, __VA_ARGS__) }
#endif

/* Values that several tokens see are widened once. */
#define MIX_WIDE(HEADS, D) mix_values(CACHE_FLOAT32, q, HEADS, (const char *)wide, place, from, to, D);
static void mix_wide(query *q, int heads, const float *wide, int place, int from, int to, int d) {
  if (d == 64) BY_HEADS(MIX_WIDE, 64)
  else BY_HEADS(MIX_WIDE, d)
}
INLINE void mix_tile(const int kind, query *q, int tokens, int heads, span values, int place, const int d) {
  float wide[VALUE_BLOCK * WIDEST_HEAD];
  for (int at = 0; at < values.count; at += VALUE_BLOCK) {
    const int n = values.count - at < VALUE_BLOCK ? values.count - at : VALUE_BLOCK;
    for (int j = 0; j < n; j++)
      for (int c = 0; c < d; c += LANES)
        store_part(wide + j * d + c, load_cached(kind, values.v + (int64_t)(at + j) * d * cached_size(kind), c, d), d - c);
    for (int t = 0; t < tokens; t++) {
      query *own = q + t * heads;
      const int start = own->first - place - at, end = start + own->count;
      mix_wide(own, heads, wide, place + at, start > 0 ? start : 0, end < n ? end : n, d);
    }
  }
}

/* ---- z of the queries of a few tokens, a few heads each */

static void begin_mix(const model *m, const int kind, query *q, int queries, const span *spans, int n_spans) {
  for (int h = 0; h < queries; h++) {
    exponentiate(m, &q[h]);
    if (kind == CACHE_INT8) scale_shares(&q[h], spans, n_spans);
    memset(q[h].z, 0, (size_t)m->d_head * sizeof(float));
  }
}

#define ATTEND_ONE(HEADS, D, KIND)                                                               \
  {                                                                                              \
    score_all(KIND, q, HEADS, HEADS, spans, n_spans, D);                                         \
    begin_mix(m, KIND, q, HEADS, spans, n_spans);                                                \
    for (int s = 0, place = 0; s < n_spans; place += spans[s++].count)                           \
      mix_values(KIND, q, HEADS, spans[s].v, place, 0, spans[s].count, D);                       \
  }
#define ATTEND_TILE(D, KIND)                                                                     \
  {                                                                                              \
    score_all(KIND, q, tokens * heads, 0, spans, n_spans, D);                                    \
    begin_mix(m, KIND, q, tokens * heads, spans, n_spans);                                       \
    for (int s = 0, place = 0; s < n_spans; place += spans[s++].count)                           \
      mix_tile(KIND, q, tokens, heads, spans[s], place, D);                                      \
  }
#define GIVEN const model *m, int d, int heads, query *q, int tokens, const span *spans, int n_spans
#define FUNCTION static __attribute__((noinline)) void /* each by itself: a compiler takes long over long ones */
#define DEFINE(NAME, KIND, WIDTH)                                                                \
  FUNCTION NAME##_one(GIVEN) { (void)d, (void)tokens; BY_HEADS(ATTEND_ONE, WIDTH, KIND) }        \
  FUNCTION NAME##_tile(GIVEN) { (void)d; ATTEND_TILE(WIDTH, KIND) }
DEFINE(float32, CACHE_FLOAT32, d)
DEFINE(float16, CACHE_FLOAT16, d)
DEFINE(bfloat16, CACHE_BFLOAT16, d)
DEFINE(int8, CACHE_INT8, d)
typedef void (*attention)(GIVEN);
static const attention ATTENTIONS[][2] = {
    {float32_one, float32_tile}, {float16_one, float16_tile}, {bfloat16_one, bfloat16_tile}, {int8_one, int8_tile}};
#if defined(__AVX512F__) /* heads of the most common width, with loops of known length */
DEFINE(float32_64, CACHE_FLOAT32, 64)
DEFINE(float16_64, CACHE_FLOAT16, 64)
DEFINE(bfloat16_64, CACHE_BFLOAT16, 64)
DEFINE(int8_64, CACHE_INT8, 64)
static const attention ATTENTIONS_64[][2] = {{float32_64_one, float32_64_tile}, {float16_64_one, float16_64_tile},
                                             {bfloat16_64_one, bfloat16_64_tile}, {int8_64_one, int8_64_tile}};
#else
#define ATTENTIONS_64 ATTENTIONS
#endif

static void attend(const model *m, int kind, int heads, query *q, int tokens, const span *spans, int n_spans) {
  const int d = m->d_head;
  if (kind == CACHE_INT8) for (int h = 0; h < tokens * heads; h++) round_query(&q[h], d);
  (d == 64 ? ATTENTIONS_64 : ATTENTIONS)[kind][tokens > 1](m, d, heads, q, tokens, spans, n_spans);
  for (int h = 0; h < tokens * heads; h++)
    for (int c = 0; c < d; c += LANES) store_part(q[h].z + c, load_part(q[h].z + c, d - c) / q[h].total, d - c);
}
#endif
