/* A model, the caches of its texts, and one call, as Python describes them (decoder.py has the same fields). */
#ifndef PELLUCID_MODEL_H
#define PELLUCID_MODEL_H

#include <stdint.h>

enum matrix_kind { FLOAT32, BFLOAT16, INT8, INT4 };
enum norm_kind { NO_NORM, LAYER_NORM, RMS_NORM };
enum activation_kind { RELU, RELU_SQUARED, SILU, GELU, GELU_TANH };
enum cache_kind { CACHE_FLOAT32, CACHE_FLOAT16, CACHE_BFLOAT16, CACHE_INT8 };

/* x W^T + b with W [out in].
 *
 * Floats are as torch holds them, row after row, `stride` numbers apart. Integers are in blocks of 16 rows and 32
 * inputs, `stride` bytes each, block after block along a row: 16 float16 scales, 16 float16 minimums where there
 * are any, then the integers, `offset` added so that none is negative. Byte 4 r + i of 64 belongs to row r. In 8
 * bits the eight times 64 bytes hold inputs 4 c + i; in 4 bits the four times 64 bytes hold inputs 4 c + i in
 * their low halves and 16 + 4 c + i in their high halves.
 */
typedef struct {
  int32_t kind, out, in, groups, offset, has_minimums;
  int64_t stride;
  const void *data;
  const float *bias;
} matrix;

typedef struct {
  int32_t kind;
  float eps;
  const float *weight, *bias;
} norm;

typedef struct {
  norm attn_norm, q_norm, k_norm, mlp_norm;
  matrix q, k, v, o, gate, up, down;
} layer;

typedef struct {
  int32_t n_layer, d_model, n_head, n_kv_head, d_head, d_ff, vocab_size, n_positions;
  int32_t activation, is_gated, n_pairs, rotates_neighbors, window;
  float scale;
  const float *cos_sin;       /* [2 n_positions pairs], or null without RoPE */
  const float *slopes;        /* [H] of ALiBi, or null */
  const float *position_rows; /* [n_positions C] added to the embedding, or null */
  norm embed_norm, final_norm;
  matrix embed, unembed;
  const layer *layers;
} model;

/* One text's keys and values: of each layer, [K slots D], and of an int8 cache the scales, [K slots]. */
typedef struct {
  void *const *k, *const *v;
  float *const *k_scale, *const *v_scale;
  int64_t head_stride; /* slots from head to head */
  int32_t capacity, ring; /* `ring` slots that positions share in turn, 0 where each position has its own */
} cache_row;

enum recorded_name {
  EMBEDDED, POSITIONED, EMBED_NORM, RESID_PRE, ATTN_NORM, Q, K, V, Q_NORMED, K_NORMED, Q_ROT, K_ROT, Z, ATTN_OUT,
  RESID_MID, MLP_NORM, GATE, UP, ACT, HIDDEN, MLP_OUT, RESID_POST, FINAL_NORM, NAMES
};

typedef struct {
  int32_t n_tokens, n_wanted, n_rows, cache, threads;
  const int32_t *ids, *positions, *rows; /* of each token; a row's tokens are in order */
  const int32_t *wanted;                 /* tokens whose logits are computed, in order */
  const cache_row *caches;
  float *logits;                   /* [wanted V] */
  float *const *recorded;          /* for each name, [layers tokens width], or null; the array itself may be null */
} call;
#endif
