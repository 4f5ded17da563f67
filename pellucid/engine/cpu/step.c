/* One call of a decoder: tokens of any number of texts through the whole model, their keys and values into the
 * caches, and the logits that are wanted. It is compiled for each instruction set.
 *
 * Each token, head and output channel is computed by itself in one fixed order, so the result depends neither on
 * the other tokens of the call nor on the number of threads: decoded, batched and prefilled tokens have the same
 * bits.
 */
#include <stdlib.h>

#include "attention.h"
#include "cached.h"
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
  vf positive = choose(x <= splat(0.0f), splat(0.0f), x); /* a NaN stays one */
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
  const float *sine = cosine + (int64_t)m->n_positions * m->n_pairs;
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
  int splits_tokens; /* each thread computes tokens of its own, and not outputs of all */
  float *x, *normed, *q, *k, *v, *z, *out, *gate, *up, *scores;
  int64_t score_width;
  int token[BLOCK_TOKENS]; /* of the call, at each place of the block */
  int wanted[BLOCK_TOKENS], n_wanted, logits_at; /* the places whose logits are wanted, and the first of these */
  int tile; /* tokens that attend together */
  int starts[BLOCK_TOKENS + 1], n_runs; /* tokens of one text that follow one another are a run */
  int run_of[BLOCK_TOKENS];
  char *staged_k, *staged_v; /* [K block D]: what a ring takes when no token of the block needs what it replaces */
  float *staged_k_scale, *staged_v_scale;
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

/* The outputs from … to, of n, of the tokens first … last that a thread computes. */
typedef struct {
  int from, to, first, last;
} part;
INLINE part share_outputs(const step *s, int n, int thread) {
  part own = {0, n, 0, s->tokens};
  if (s->splits_tokens) share(s->tokens, 1, s->threads, thread, &own.first, &own.last);
  else share(n, GROUP, s->threads, thread, &own.from, &own.to);
  return own;
}

/* Waits for the other threads, where what follows reads what they compute. */
INLINE void meet(step *s) {
  if (!s->splits_tokens) barrier_wait(&s->wait);
}

static void multiply_part(const matrix *m, const input *in, part own, float *y, int64_t stride) {
  const input some = skip_tokens(in, own.first);
  multiply(m, &some, own.from, own.to, own.last - own.first, y + own.first * stride, stride);
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
  int first, last;
  share(s->tokens, 1, s->threads, thread, &first, &last);
  for (int t = first; t < last; t++) {
    float *x = s->x + t * pad(n);
    embed_token(&m->embed, s->c->ids[s->token[t]], x);
    keep(s, EMBEDDED, 0, t, x, 0, n, n);
    if (m->position_rows) {
      const float *row = m->position_rows + (int64_t)s->c->positions[s->token[t]] * n;
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
  part own = {0, n, 0, s->tokens};
  if (s->tokens >= s->threads) share(s->tokens, 1, s->threads, thread, &own.first, &own.last);
  else share(n, GROUP, s->threads, thread, &own.from, &own.to);
  const int from = own.from, to = own.to;
  for (int t = own.first; t < own.last; t++) {
    float *y = s->of_stream.x + t * s->of_stream.width;
    normalize(nm, s->x + t * pad(n), y, n, from, to);
    keep(s, name, layer, t, y, from, to, n);
    if (needs_integers)
      for (int g = from / GROUP; g * GROUP < to; g++) round_group(&s->of_stream, t, g);
  }
}

/* Asks for the first weights of a thread's share, before it waits for the others to begin with them. */
static void prefetch(const step *s, const matrix *m, int thread) {
  const part own = share_outputs(s, m->out, thread);
  const int from = own.from, to = own.to;
  const char *first = (const char *)m->data + from * m->stride * (m->kind == FLOAT32 ? 4 : 2);
  if (is_rounded(m)) first = (const char *)m->data + (int64_t)(from / TILE) * m->groups * m->stride;
  for (int i = 0; from < to && i < AHEAD; i += 64) __builtin_prefetch(first + i, 0, 3);
}

static void project(const step *s, const layer *l, int index, int thread) {
  const matrix *matrices[3] = {&l->q, &l->k, &l->v};
  float *outputs[3] = {s->q, s->k, s->v};
  for (int i = 0; i < 3; i++) {
    const int width = matrices[i]->out;
    const part own = share_outputs(s, width, thread);
    multiply_part(matrices[i], &s->of_stream, own, outputs[i], width);
    for (int t = own.first; t < own.last; t++)
      keep(s, Q + i, index, t, outputs[i] + (int64_t)t * width, own.from, own.to, width);
  }
}

/* The tokens of each text in the block, from `starts[i]` to `starts[i + 1]`. */
static void find_runs(step *s) {
  const int32_t *rows = s->c->rows, *positions = s->c->positions;
  s->n_runs = 0;
  for (int t = 0; t < s->tokens; t++) {
    const int at = s->token[t], before = t ? s->token[t - 1] : 0;
    const int follows = t && rows[at] == rows[before] && positions[at] == positions[before] + 1;
    if (!follows) s->starts[s->n_runs++] = t;
    s->run_of[t] = s->n_runs - 1;
  }
  s->starts[s->n_runs] = s->tokens;
}

INLINE int run_length(const step *s, int run) { return s->starts[run + 1] - s->starts[run]; }

/* Whether a token's key and value wait beside its ring: a ring has no room for a token and what it replaces. */
INLINE int is_staged(const step *s, int t) {
  return s->c->caches[s->c->rows[s->token[t]]].ring && run_length(s, s->run_of[t]) > 1;
}

/* Staged keys and values of a head from token t on. */
INLINE span find_staged(const step *s, int head, int t, int count) {
  const int64_t at = (int64_t)head * BLOCK_TOKENS + t, bytes = at * s->m->d_head * cached_size(s->c->cache);
  return (span){s->staged_k + bytes, s->staged_v + bytes, s->staged_k_scale + at, s->staged_v_scale + at, count};
}

/* The slot of a token in its text's cache. */
INLINE span find_slot(const step *s, int index, int head, int t) {
  const cache_row *row = &s->c->caches[s->c->rows[s->token[t]]];
  const int position = s->c->positions[s->token[t]];
  return find_slots(row, s->c->cache, index, head, s->m->d_head, row->ring ? position % row->ring : position, 1);
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
    rotate(m, s->c->positions[s->token[t]], own + at, kept);
    memcpy(own + at, kept, (size_t)d * sizeof(float));
    keep(s, name + 2, index, t, own, at, at + d, width);
  }
}

static void place_heads(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const int heads = m->n_head + m->n_kv_head, d = m->d_head, width = m->n_kv_head * d;
  int first, last;
  share(s->tokens * heads, 1, s->threads, thread, &first, &last);
  for (int unit = first; unit < last; unit++) {
    int t = unit / heads, head = unit % heads;
    if (head < m->n_head) {
      place_head(s, &l->q_norm, Q_NORMED, index, t, head, m->n_head, s->q);
      continue;
    }
    head -= m->n_head;
    place_head(s, &l->k_norm, K_NORMED, index, t, head, m->n_kv_head, s->k);
    const span own = is_staged(s, t) ? find_staged(s, head, t, 1) : find_slot(s, index, head, t);
    store_cached(s->c->cache, s->k + (int64_t)t * width + head * d, own.k, d, own.k_scale);
    store_cached(s->c->cache, s->v + (int64_t)t * width + head * d, own.v, d, own.v_scale);
  }
}

/* Moves staged keys and values to their rings: of each text, the last that a ring holds. */
static void commit_staged(const step *s, int index, int thread) {
  const int kind = s->c->cache, heads = s->m->n_kv_head;
  const size_t bytes = (size_t)(s->m->d_head * cached_size(kind));
  for (int unit = thread; unit < s->tokens * heads; unit += s->threads) {
    const int t = unit / heads, head = unit % heads;
    if (!is_staged(s, t) || s->starts[s->run_of[t] + 1] - t > s->c->caches[s->c->rows[s->token[t]]].ring) continue;
    const span from = find_staged(s, head, t, 1), to = find_slot(s, index, head, t);
    memcpy(to.k, from.k, bytes);
    memcpy(to.v, from.v, bytes);
    if (kind == CACHE_INT8) *to.k_scale = *from.k_scale, *to.v_scale = *from.v_scale;
  }
}

/* The keys that tokens t … t + count of a run see, from the oldest of the first on; returns how many spans. */
static int find_keys(const step *s, int index, int head, int t, int count, int oldest, span *spans) {
  const cache_row *row = &s->c->caches[s->c->rows[s->token[t]]];
  const int d = s->m->d_head, kind = s->c->cache, end = s->c->positions[s->token[t]] + count;
  if (!is_staged(s, t)) return find_positions(row, kind, index, head, d, oldest, end - oldest, spans);
  int start = s->starts[s->run_of[t]], begin = s->c->positions[s->token[start]];
  int n = 0;
  if (oldest < begin) n = find_positions(row, kind, index, head, d, oldest, begin - oldest, spans);
  else start += oldest - begin, begin = oldest;
  spans[n++] = find_staged(s, head, start, end - begin);
  return n;
}

/* Attention of `count` tokens from t on, for some heads from `first` on that share a key head. */
static void attend_tokens(const step *s, const layer *l, int index, int t, int count, int first, int heads, int thread) {
  const model *m = s->m;
  const int d = m->d_head, all = m->n_head * d, at = first * d;
  query q[MOST_HEADS * TILE_TOKENS];
  int base = 0;
  for (int i = 0; i < count; i++) {
    const int position = s->c->positions[s->token[t + i]];
    const int oldest = m->window && position - m->window + 1 > 0 ? position - m->window + 1 : 0;
    if (!i) base = oldest;
    for (int h = 0; h < heads; h++) {
      query *one = &q[i * heads + h];
      memcpy(one->x, s->q + (int64_t)(t + i) * all + at + h * d, (size_t)d * sizeof(float));
      memset(one->x + d, 0, (size_t)(WIDEST_HEAD - d < LANES ? WIDEST_HEAD - d : LANES) * sizeof(float));
      one->scores = s->scores + ((int64_t)thread * MOST_HEADS * s->tile + i * heads + h) * s->score_width;
      one->z = s->of_z.x + (t + i) * s->of_z.width + at + h * d;
      one->first = oldest - base, one->count = position - oldest + 1, one->head = first + h;
    }
  }
  span spans[MOST_SPANS];
  const int n = find_keys(s, index, first / (m->n_head / m->n_kv_head), t, count, base, spans);
  attend(m, s->c->cache, heads, q, count, spans, n);
  for (int i = 0; i < count; i++) {
    keep(s, Z, index, t + i, s->of_z.x + (t + i) * s->of_z.width, at, at + heads * d, all);
    if (d % GROUP == 0 && is_rounded(&l->o))
      for (int g = at / GROUP; g < (at + heads * d) / GROUP; g++) round_group(&s->of_z, t + i, g);
  }
}

/* Tokens of one text in tiles; of several texts one each, heads that share keys together, as many for each thread. */
static void attend_all(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const int group = m->n_head / m->n_kv_head;
  if (s->n_runs == s->tokens) {
    int from, to;
    share(s->tokens * m->n_head, 1, s->threads, thread, &from, &to);
    for (int unit = from, heads; unit < to; unit += heads) {
      const int first = unit % m->n_head;
      heads = group - first % group < MOST_HEADS ? group - first % group : MOST_HEADS;
      if (heads > to - unit) heads = to - unit;
      attend_tokens(s, l, index, unit / m->n_head, 1, first, heads, thread);
    }
    return;
  }
  const part own = share_outputs(s, 0, thread);
  for (int run = 0, unit = 0; run < s->n_runs; run++) {
    const int begin = s->starts[run] > own.first ? s->starts[run] : own.first;
    const int end = s->starts[run + 1] < own.last ? s->starts[run + 1] : own.last;
    for (int t = begin; t < end; t += s->tile)
      for (int head = 0; head < m->n_kv_head; head++)
        for (int some = 0; some < group; some += MOST_HEADS, unit++) {
          if (!s->splits_tokens && unit % s->threads != thread) continue;
          const int left = end - t, heads = group - some < MOST_HEADS ? group - some : MOST_HEADS;
          attend_tokens(s, l, index, t, left < s->tile ? left : s->tile, head * group + some, heads, thread);
        }
  }
}

static void round_input(const step *s, const input *in, int n, int thread) {
  int groups = (n + GROUP - 1) / GROUP, first, last;
  share(s->tokens * groups, 1, s->threads, thread, &first, &last);
  for (int unit = first; unit < last; unit++) round_group(in, unit / groups, unit % groups);
}

/* x += the product, after it is kept under its name. */
static void add_output(const step *s, const matrix *m, const input *in, int name, int after, int index, int thread) {
  const int n = s->m->d_model;
  const part own = share_outputs(s, n, thread);
  const int from = own.from, to = own.to;
  multiply_part(m, in, own, s->out, pad(n));
  for (int t = own.first; t < own.last; t++) {
    float *x = s->x + t * pad(n), *out = s->out + t * pad(n);
    keep(s, name, index, t, out, from, to, n);
    for (int i = from; i < to; i++) x[i] = x[i] + out[i];
    keep(s, after, index, t, x, from, to, n);
  }
}

static void activate_hidden(const step *s, const layer *l, int index, int thread) {
  const model *m = s->m;
  const int n = m->d_ff;
  const part own = share_outputs(s, n, thread);
  const int from = own.from, to = own.to;
  if (m->is_gated) multiply_part(&l->gate, &s->of_stream, own, s->gate, pad(n));
  multiply_part(&l->up, &s->of_stream, own, s->up, pad(n));
  for (int t = own.first; t < own.last; t++) {
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

/* Whether threads take tokens of their own: as many each, and enough that it does not matter that each reads all
 * weights. What a token computes then stays in the caches of one core, and threads wait for keys and values alone. */
static int can_split(const step *s) {
  if (s->threads == 1 || !s->tokens || s->tokens % (TILE_TOKENS * s->threads)) return 0;
  for (int t = 0; t < s->tokens; t++)
    if (is_staged(s, t)) return 0;
  return 1;
}

/* The block's tokens, and those of them whose logits are wanted. */
static void begin_block(step *s, int tokens) {
  s->tokens = tokens;
  for (int t = 0; t < tokens; t++) s->token[t] = s->first + t;
  s->n_wanted = s->logits_at = 0;
  for (int i = 0; i < s->c->n_wanted; i++) {
    int token = s->c->wanted[i] - s->first;
    if (token < 0) s->logits_at = i + 1;
    else if (token < tokens) s->wanted[s->n_wanted++] = token;
  }
  find_runs(s);
  s->splits_tokens = can_split(s);
}

/* Whether the last block of the model needs the wanted tokens alone, once the keys and values of all are kept. */
static int can_narrow(const step *s) {
  if (s->c->recorded || s->n_wanted == s->tokens) return 0;
  for (int t = 0; t < s->tokens; t++)
    if (is_staged(s, t)) return 0;
  return 1;
}

/* Moves the wanted tokens to the first places; the others are not computed any further. */
static void narrow(step *s) {
  const int64_t width = (int64_t)s->m->n_head * s->m->d_head, n = pad(s->m->d_model);
  for (int i = 0; i < s->n_wanted; i++) {
    const int from = s->wanted[i];
    memmove(s->q + i * width, s->q + from * width, (size_t)width * sizeof(float));
    memmove(s->x + i * n, s->x + from * n, (size_t)n * sizeof(float));
    s->token[i] = s->token[from];
    s->wanted[i] = i;
  }
  s->tokens = s->n_wanted;
  find_runs(s);
  s->splits_tokens = can_split(s);
}

/* Logits of the wanted tokens of this block: their final norm replaces the stream's first rows. */
static void unembed(step *s, int thread) {
  const model *m = s->m;
  const int n = m->d_model, found = s->n_wanted;
  for (int i = thread; i < found; i += s->threads) {
    float *y = s->of_stream.x + i * s->of_stream.width;
    normalize(&m->final_norm, s->x + s->wanted[i] * pad(n), y, n, 0, n);
    keep(s, FINAL_NORM, 0, s->wanted[i], y, 0, n, n);
    if (is_rounded(&m->unembed))
      for (int g = 0; g * GROUP < n; g++) round_group(&s->of_stream, i, g);
  }
  barrier_wait(&s->wait);
  int from, to;
  share(m->vocab_size, GROUP, s->threads, thread, &from, &to);
  if (found) multiply(&m->unembed, &s->of_stream, from, to, found, s->c->logits + (int64_t)s->logits_at * m->vocab_size, m->vocab_size);
  barrier_wait(&s->wait);
}

static void run_block(void *argument, int thread) {
  step *s = argument;
  const model *m = s->m;
  barrier *wait = &s->wait;
  const int narrows = can_narrow(s);
  embed(s, thread);
  meet(s);
  for (int i = 0; i < m->n_layer; i++) {
    const layer *l = &m->layers[i];
    int first, last;
    share(s->tokens, 1, s->threads, thread, &first, &last);
    for (int t = first; t < last; t++)
      keep(s, RESID_PRE, i, t, s->x + t * pad(m->d_model), 0, m->d_model, m->d_model);
    prefetch(s, &l->q, thread);
    read_stream(s, &l->attn_norm, ATTN_NORM, i, is_rounded(&l->q) || is_rounded(&l->k) || is_rounded(&l->v), thread);
    meet(s);
    project(s, l, i, thread);
    meet(s);
    place_heads(s, l, i, thread);
    barrier_wait(wait);
    if (narrows && i == m->n_layer - 1) {
      if (!thread) narrow(s);
      barrier_wait(wait);
    }
    attend_all(s, l, i, thread);
    prefetch(s, &l->o, thread);
    meet(s);
    if (s->n_runs < s->tokens) commit_staged(s, i, thread);
    if (is_rounded(&l->o) && m->d_head % GROUP) {
      round_input(s, &s->of_z, m->n_head * m->d_head, thread);
      meet(s);
    }
    add_output(s, &l->o, &s->of_z, ATTN_OUT, RESID_MID, i, thread);
    meet(s);
    if (!l->up.data) continue; /* a block without an MLP */
    prefetch(s, m->is_gated ? &l->gate : &l->up, thread);
    read_stream(s, &l->mlp_norm, MLP_NORM, i, is_rounded(&l->up) || (m->is_gated && is_rounded(&l->gate)), thread);
    meet(s);
    activate_hidden(s, l, i, thread);
    prefetch(s, &l->down, thread);
    meet(s);
    add_output(s, &l->down, &s->of_hidden, MLP_OUT, RESID_POST, i, thread);
    meet(s);
  }
  if (s->splits_tokens) barrier_wait(wait);
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

/* Lays out the working memory from `start` on, and returns its bytes, of which the first `zeros` begin as zeros. */
static size_t lay_out(step *s, int tokens, int longest, char *start, size_t *zeros) {
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
  const int64_t staged = (int64_t)(s->tile > 1 ? BLOCK_TOKENS : 0) * m->n_kv_head;
  s->staged_k = take(&place, (size_t)(staged * m->d_head) * 4);
  s->staged_v = take(&place, (size_t)(staged * m->d_head) * 4);
  s->staged_k_scale = take(&place, (size_t)staged * 4);
  s->staged_v_scale = take(&place, (size_t)staged * 4);
  *zeros = (size_t)(place - start);
  s->scores = take(&place, (size_t)(s->threads * MOST_HEADS * s->tile * s->score_width) * 4);
  return (size_t)(place - start);
}

/* Returns 0, or 1 where memory is missing. The call was checked: see decoder.c. */
int run_step(const model *m, const call *c) {
  int longest = 0;
  for (int i = 0; i < c->n_tokens; i++) longest = c->positions[i] >= longest ? c->positions[i] + 1 : longest;
  int threads = pool_begin(c->threads);
  int tokens = c->n_tokens < BLOCK_TOKENS ? c->n_tokens : BLOCK_TOKENS;
  step s = {.m = m, .c = c, .threads = threads, .tile = tokens < TILE_TOKENS ? tokens : TILE_TOKENS};
  size_t zeros, bytes = lay_out(&s, tokens, longest, 0, &zeros);
  char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory) memset(memory, 0, zeros);
  s.wait.count = threads;
  if (memory) lay_out(&s, tokens, longest, memory, &zeros);
  for (s.first = 0; memory && s.first < c->n_tokens; s.first += tokens) {
    begin_block(&s, c->n_tokens - s.first < tokens ? c->n_tokens - s.first : tokens);
    pool_run(run_block, &s, threads);
  }
  pool_end(threads);
  free(memory);
  return !memory;
}
