/* The entry points: whether this machine has the instructions, a call with its checks, and packing. */
#include <string.h>

#include "model.h"

int run_step(const model *, const call *);

/* Returns whether this machine has the instructions for which step.c was compiled. */
int pellucid_is_supported(void) {
#if defined(SET_AVX512)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#elif defined(SET_AVX2)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2");
#else
  return 1;
#endif
}

/* Returns the size of each structure, for the reader of this interface to compare with its own. */
const int32_t *pellucid_sizes(void) {
  static const int32_t SIZES[] = {sizeof(matrix), sizeof(norm), sizeof(layer), sizeof(model), sizeof(cache_row), sizeof(call)};
  return SIZES;
}

enum { DONE, NO_MEMORY, BAD_CALL, BAD_TOKEN, BAD_POSITION, BAD_ROW, BAD_WANTED };

/* Runs a call; returns 0, or what is wrong with it: nothing outside the model and the caches is ever touched. */
int pellucid_run(const model *m, const call *c) {
  if (c->n_tokens < 1 || c->threads < 1 || c->n_wanted < 0) return BAD_CALL;
  for (int i = 0; i < c->n_tokens; i++) {
    if (c->ids[i] < 0 || c->ids[i] >= m->vocab_size) return BAD_TOKEN;
    if (c->rows[i] < 0 || c->rows[i] >= c->n_rows) return BAD_ROW;
    const cache_row *row = &c->caches[c->rows[i]];
    const int end = row->ring || row->capacity > m->n_positions ? m->n_positions : row->capacity;
    if (c->positions[i] < 0 || c->positions[i] >= end) return BAD_POSITION;
  }
  for (int i = 0; i < c->n_wanted; i++)
    if (c->wanted[i] < (i ? c->wanted[i - 1] + 1 : 0) || c->wanted[i] >= c->n_tokens) return BAD_WANTED;
  return run_step(m, c) ? NO_MEMORY : DONE;
}

/* Writes a quantized matrix, int8 [out in] with float16 scales and minimums [out groups of `group`], as blocks of
 * 16 rows and 32 inputs (model.h); rows and inputs that it does not have are zeros with the scale 0. */
void pellucid_pack(const int8_t *integers, const uint16_t *scales, const uint16_t *minimums, int32_t out, int32_t in,
                   int32_t group, int32_t bits, int32_t offset, uint8_t *packed) {
  const int64_t groups = (in + 31) / 32, scale_width = (in + group - 1) / group;
  const int start = minimums ? 64 : 32;
  const int64_t stride = start + (bits == 8 ? 512 : 256);
  for (int64_t tile = 0; tile < (out + 15) / 16; tile++)
    for (int64_t g = 0; g < groups; g++) {
      uint8_t *block = packed + (tile * groups + g) * stride;
      memset(block, 0, (size_t)stride);
      for (int lane = 0; lane < 16; lane++) {
        const int64_t row = tile * 16 + lane;
        if (row >= out) continue;
        const int64_t of = row * scale_width + g * 32 / group;
        memcpy(block + 2 * lane, scales + of, 2);
        if (minimums) memcpy(block + 32 + 2 * lane, minimums + of, 2);
        for (int i = 0; i < 32; i++) {
          const int64_t column = g * 32 + i;
          const int q = (column < in ? integers[row * in + column] : 0) + offset;
          uint8_t *byte = block + start + 64 * (bits == 8 ? i / 4 : i / 4 & 3) + 4 * lane + i % 4;
          *byte |= (uint8_t)(bits == 8 || i < 16 ? q : q << 4);
        }
      }
    }
}
