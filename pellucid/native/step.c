/* One call of a decoder: tokens of any number of texts through the whole model, their keys and values into the
 * caches, and the logits that are wanted. It is compiled for each instruction set.
 *
 * Each token, head and output channel is computed by itself in one fixed order, so the result depends neither on
 * the other tokens of the call nor on the number of threads: decoded, batched and prefilled tokens have the same
 * bits.
 */
#include <stdlib.h>

#include "attention.h"
#include "model.h"
#include "pool.h"
#include "products.h"
#include "vector.h"

#define BLOCK_TOKENS 64

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

/* Asks for the first weights of a thread's share, before it waits for the others to begin with them. */
static void prefetch(const step *s, const matrix *m, int thread) {
  int from, to;
  share(m->out, GROUP, s->threads, thread, &from, &to);
  const char *first = (const char *)m->data + from * m->stride * (m->kind == FLOAT32 ? 4 : 2);
  if (is_rounded(m)) first = (const char *)m->data + (int64_t)(from / TILE) * m->groups * m->stride;
  for (int i = 0; from < to && i < AHEAD; i += 64) __builtin_prefetch(first + i, 0, 3);
}

static void project(const step *s, const layer *l, int index, int thread) {
  const matrix *matrices[3] = {&l->q, &l->k, &l->v};
  float *outputs[3] = {s->q, s->k, s->v};
  for (int i = 0; i < 3; i++) {
    int from, to, width = matrices[i]->out;
    share(width, GROUP, s->threads, thread, &from, &to);
    multiply(matrices[i], &s->of_stream, from, to, s->tokens, outputs[i], width);
    for (int t = 0; t < s->tokens; t++) keep(s, Q + i, index, t, outputs[i] + (int64_t)t * width, from, to, width);
  }
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
  const int at_once = s->tokens * m->n_kv_head < s->threads ? 1 : group < MOST_HEADS ? group : MOST_HEADS;
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
    prefetch(s, &l->q, thread);
    read_stream(s, &l->attn_norm, ATTN_NORM, i, is_rounded(&l->q) || is_rounded(&l->k) || is_rounded(&l->v), thread);
    barrier_wait(wait);
    project(s, l, i, thread);
    barrier_wait(wait);
    place_heads(s, l, i, thread);
    barrier_wait(wait);
    attend_all(s, l, i, thread);
    prefetch(s, &l->o, thread);
    barrier_wait(wait);
    if (is_rounded(&l->o) && m->d_head % GROUP) {
      round_input(s, &s->of_z, m->n_head * m->d_head, thread);
      barrier_wait(wait);
    }
    add_output(s, &l->o, &s->of_z, ATTN_OUT, RESID_MID, i, thread);
    barrier_wait(wait);
    if (!l->up.data) continue; /* a block without an MLP */
    prefetch(s, m->is_gated ? &l->gate : &l->up, thread);
    read_stream(s, &l->mlp_norm, MLP_NORM, i, is_rounded(&l->up) || (m->is_gated && is_rounded(&l->gate)), thread);
    barrier_wait(wait);
    activate_hidden(s, l, i, thread);
    prefetch(s, &l->down, thread);
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
