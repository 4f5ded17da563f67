"""Attention of new tokens, each over the cache of its text: Z = softmax(mask(cap(q Kᵀ · scale) + B)) V.

A program has one key head of one text and a part of its keys, and reads them once for all query heads that
share it, or for one of them where there are few programs. It normalizes and rotates its queries and the new
key itself, and the first part writes the new key and value to the cache. The keys of earlier tokens are asked
for before the kernel that computes the queries is complete. Where several new tokens are of one text, their
keys and values are written first, by a kernel of its own, and read from the cache.
"""

import triton
import triton.language as tl

from pellucid.engine.gpu.arithmetic import (
    bound_softly,
    measure,
    start_dependents,
    store_planes,
    wait_for_inputs,
)

LOWEST = tl.constexpr(-1e30)
"""Below every score; not −∞, because −∞ − (−∞) is NaN."""


@triton.jit
def load_head(
    at, rows, is_row, channels, cos, sin, gain, shift,
    d_head: tl.constexpr, layout: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr,
):  # fmt: skip
    """Returns heads [rows channels], normalized and rotated: y_i = x_i cos θ ∓ x_j sin θ, where j is the
    other channel of the pair."""
    is_channel = channels < d_head
    is_in = is_row[:, None] & is_channel[None, :]
    half: tl.constexpr = d_head // 2
    if layout == "pairs":
        other, pair, is_first = channels ^ 1, channels // 2, channels % 2 == 0
    else:
        is_first = channels < half
        other = tl.where(is_first, channels + half, channels - half)
        pair = channels % half if half > 0 else channels
    x = tl.load(at + rows[:, None] * d_head + channels[None, :], is_in, 0.0)
    x_other = x
    if layout != "none":
        x_other = tl.load(at + rows[:, None] * d_head + other[None, :], is_in, 0.0)
    if norm != "none":
        mean, rstd = measure(x, is_in, d_head, norm, eps)
        x = (x - mean[:, None]) * rstd[:, None]
        x *= tl.load(gain + channels, is_channel, 0.0).to(tl.float32)[None, :]
        if has_shift:
            x += tl.load(shift + channels, is_channel, 0.0).to(tl.float32)[None, :]
        if layout != "none":
            x_other = (x_other - mean[:, None]) * rstd[:, None]
            x_other *= tl.load(gain + other, is_channel, 0.0).to(tl.float32)[None, :]
            if has_shift:
                x_other += tl.load(shift + other, is_channel, 0.0).to(tl.float32)[None, :]
    if layout != "none":
        c = tl.load(cos + pair, is_channel, 0.0)
        s = tl.load(sin + pair, is_channel, 0.0)
        x = x * c[None, :] + x_other * tl.where(is_first, -s, s)[None, :]
    return tl.where(is_in, x, 0.0)


@triton.jit
def multiply_exactly(a, b, total, planes: tl.constexpr):
    """Returns total + a b for float32 a and b as the cache holds it, by tensor cores: a as a sum of three
    numbers of b's type, which together have its bits; in float16, those down to 2⁻²⁵. The smallest are added
    first, since a tensor core cuts off what it adds to its accumulator."""
    if planes == 1:
        total = tl.dot(a, b, total, input_precision="ieee")
    else:
        tl.static_assert(planes == 3)
        high = a.to(b.dtype)
        left = a - high.to(tl.float32)
        middle = left.to(b.dtype)
        low = (left - middle.to(tl.float32)).to(b.dtype)
        total = tl.dot(high, b, tl.dot(middle, b, tl.dot(low, b, total)))
    return total


@triton.jit
def attend(
    qkv, z, partial, highest, total,
    keys, values, slots, positions,
    cos_sin, slopes, q_gain, q_shift, k_gain, k_shift,
    row_stride, head_stride, n_positions, plane_out,
    n_head: tl.constexpr, n_kv_head: tl.constexpr, d_head: tl.constexpr,
    scale: tl.constexpr, cap: tl.constexpr, window: tl.constexpr, ring: tl.constexpr,
    layout: tl.constexpr, has_slopes: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr,
    splits: tl.constexpr, planes: tl.constexpr, planes_out: tl.constexpr,
    shared: tl.constexpr, heads: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
    is_stored: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Attends for `shared` query heads, one or all of one key head, to one part of the keys of one text;
    `is_stored` says that the cache has the keys of the new tokens."""
    start_dependents(is_dependent)
    units: tl.constexpr = n_head // shared
    text, unit, split = tl.program_id(0) // units, tl.program_id(0) % units, tl.program_id(1)
    slot, position = tl.load(slots + text), tl.load(positions + text)
    if slot < 0:
        wait_for_inputs(is_dependent)  # so that this kernel never ends before the ones that it follows
        return
    groups: tl.constexpr = n_head // n_kv_head
    head = unit * shared // groups
    first = tl.maximum(position - window + 1, 0) if window > 0 else 0
    last = position + 1 if is_stored else position
    length = tl.cdiv(tl.cdiv(last - first, splits), block) * block
    begin = first + split * length
    end = tl.minimum(begin + length, last)
    d, g = tl.arange(0, channels), tl.arange(0, heads)
    base = slot.to(tl.int64) * row_stride + head.to(tl.int64) * head_stride
    if is_stored:
        wait_for_inputs(is_dependent)
    # the first keys and values are on their way while the queries are computed
    k, v = load_block(keys + base, values + base, begin, end, d, d_head, ring, block)
    if not is_stored:
        wait_for_inputs(is_dependent)
    cos = cos_sin + position * (d_head // 2)
    sin = cos + n_positions * (d_head // 2)
    start = qkv + text * ((n_head + 2 * n_kv_head) * d_head)
    q = load_head(
        start + unit * shared * d_head, g, g < shared, d, cos, sin, q_gain, q_shift,
        d_head, layout, norm, has_shift, eps,
    )  # fmt: skip
    q *= scale
    slope = tl.zeros((heads,), tl.float32)
    if has_slopes:
        slope = tl.load(slopes + unit * shared + g, g < shared, 0.0).to(tl.float32)
    if heads == 1:
        m, sums, out = attend_singly(
            q, k, v, keys + base, values + base, begin, end, position, slope, d,
            d_head, cap, ring, has_slopes, channels, block,
        )  # fmt: skip
    else:
        m, sums, out = attend_jointly(
            q, k, v, keys + base, values + base, begin, end, position, slope, d,
            d_head, cap, ring, has_slopes, planes, heads, channels, block,
        )  # fmt: skip
    if not is_stored:  # noqa: SIM102 - of a constant, only one side is compiled
        if split == 0:  # the new token itself
            one = tl.arange(0, 1)
            new_k = load_head(
                start + (n_head + head) * d_head, one, one == 0, d, cos, sin, k_gain, k_shift,
                d_head, layout, norm, has_shift, eps,
            ).to(keys.dtype.element_ty)  # fmt: skip
            new_v = tl.load(start + (n_head + n_kv_head + head) * d_head + d, d < d_head, 0.0)[None, :]
            new_v = new_v.to(values.dtype.element_ty)
            if unit * shared % groups == 0:
                place = position % ring if ring > 0 else position
                at = base + place * d_head + d[None, :]
                tl.store(keys + at, new_k, (d < d_head)[None, :])
                tl.store(values + at, new_v, (d < d_head)[None, :])
            score = bound_softly(tl.sum(q * new_k.to(tl.float32), 1), cap)
            higher = tl.maximum(m, score)
            kept, p = tl.exp(m - higher), tl.exp(score - higher)
            sums = sums * kept + p
            out = out * kept[:, None] + p[:, None] * new_v.to(tl.float32)
            m = higher
    h = text * n_head + unit * shared + g
    is_in = (g < shared)[:, None] & (d < d_head)[None, :]
    if splits == 1:
        store_planes(z + h[:, None] * d_head + d[None, :], out / sums[:, None], is_in, plane_out, planes_out)
    else:
        part = h * splits + split
        tl.store(partial + part[:, None] * d_head + d[None, :], out, is_in)
        tl.store(highest + part, m, g < shared)
        tl.store(total + part, sums, g < shared)


@triton.jit
def store_keys(
    qkv, keys, values, slots, positions, cos_sin, k_gain, k_shift, row_stride, head_stride, n_positions,
    n_head: tl.constexpr, n_kv_head: tl.constexpr, d_head: tl.constexpr, layout: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr, channels: tl.constexpr,
    is_dependent: tl.constexpr,
):  # fmt: skip
    """Writes the key of one head of a new token, normalized and rotated, and its value to the cache."""
    start_dependents(is_dependent)
    token, head = tl.program_id(0) // n_kv_head, tl.program_id(0) % n_kv_head
    slot, position = tl.load(slots + token), tl.load(positions + token)
    wait_for_inputs(is_dependent)
    if slot < 0:
        return
    d, one = tl.arange(0, channels), tl.arange(0, 1)
    cos = cos_sin + position * (d_head // 2)
    start = qkv + token * ((n_head + 2 * n_kv_head) * d_head)
    k = load_head(
        start + (n_head + head) * d_head, one, one == 0, d, cos, cos + n_positions * (d_head // 2),
        k_gain, k_shift, d_head, layout, norm, has_shift, eps,
    )  # fmt: skip
    v = tl.load(start + (n_head + n_kv_head + head) * d_head + d, d < d_head, 0.0)[None, :]
    at = slot.to(tl.int64) * row_stride + head.to(tl.int64) * head_stride + position * d_head + d[None, :]
    tl.store(keys + at, k.to(keys.dtype.element_ty), (d < d_head)[None, :])
    tl.store(values + at, v.to(values.dtype.element_ty), (d < d_head)[None, :])


@triton.jit
def attend_singly(
    q, k, v, keys, values, begin, end, position, slope, d,
    d_head: tl.constexpr, cap: tl.constexpr, ring: tl.constexpr, has_slopes: tl.constexpr,
    channels: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Returns the maximum, the sum and the output of one query head. Every key of a block keeps its own until
    the end, so that threads do not wait for each other."""
    m = tl.full((block,), LOWEST, tl.float32)
    sums = tl.zeros((block,), tl.float32)
    out = tl.zeros((block, channels), tl.float32)
    while begin < end:
        j = begin + tl.arange(0, block)
        scores = bound_softly(tl.sum(k.to(tl.float32) * q, 1), cap)
        if has_slopes:
            scores -= slope * (position - j).to(tl.float32)
        scores = tl.where(j < end, scores, LOWEST)
        higher = tl.maximum(m, scores)
        kept, p = tl.exp(m - higher), tl.where(j < end, tl.exp(scores - higher), 0.0)
        sums = sums * kept + p
        out = out * kept[:, None] + p[:, None] * v.to(tl.float32)
        m = higher
        begin += block
        k, v = load_block(keys, values, begin, end, d, d_head, ring, block)
    highest = tl.max(m, 0)
    weight = tl.exp(m - highest)
    one = tl.zeros((1,), tl.float32)
    return one + highest, one + tl.sum(sums * weight, 0), tl.sum(out * weight[:, None], 0)[None, :]


@triton.jit
def attend_jointly(
    q, k, v, keys, values, begin, end, position, slope, d,
    d_head: tl.constexpr, cap: tl.constexpr, ring: tl.constexpr, has_slopes: tl.constexpr,
    planes: tl.constexpr, heads: tl.constexpr, channels: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Returns the maxima, sums and outputs of the query heads that share a key head, by tensor cores."""
    m = tl.full((heads,), LOWEST, tl.float32)
    sums = tl.zeros((heads,), tl.float32)
    out = tl.zeros((heads, channels), tl.float32)
    while begin < end:
        j = begin + tl.arange(0, block)
        scores = multiply_exactly(q, tl.trans(k), tl.zeros((heads, block), tl.float32), planes)
        scores = bound_softly(scores, cap)
        if has_slopes:
            scores -= slope[:, None] * (position - j).to(tl.float32)[None, :]
        scores = tl.where((j < end)[None, :], scores, LOWEST)
        higher = tl.maximum(m, tl.max(scores, 1))
        p = tl.where((j < end)[None, :], tl.exp(scores - higher[:, None]), 0.0)
        kept = tl.exp(m - higher)
        sums = sums * kept + tl.sum(p, 1)
        out = out * kept[:, None] + multiply_exactly(p, v, tl.zeros((heads, channels), tl.float32), planes)
        m = higher
        begin += block
        k, v = load_block(keys, values, begin, end, d, d_head, ring, block)
    return m, sums, out


@triton.jit
def load_block(keys, values, begin, end, d, d_head: tl.constexpr, ring: tl.constexpr, block: tl.constexpr):
    """Returns keys and values [block channels] of the positions from `begin`; beyond `end` they are 0."""
    j = begin + tl.arange(0, block)
    is_in = (j < end)[:, None] & (d < d_head)[None, :]
    place = j % ring if ring > 0 else j
    at = place[:, None] * d_head + d[None, :]
    return tl.load(keys + at, is_in, 0.0), tl.load(values + at, is_in, 0.0)


@triton.jit
def combine(
    z, partial, highest, total, slots, plane_out,
    n_head: tl.constexpr, d_head: tl.constexpr, splits: tl.constexpr,
    planes_out: tl.constexpr, channels: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Adds the parts s of one head: z = Σ_s e^{m_s − m} out_s / Σ_s e^{m_s − m} total_s."""
    start_dependents(is_dependent)
    h = tl.program_id(0)
    wait_for_inputs(is_dependent)
    if tl.load(slots + h // n_head) < 0:
        return
    s, d = tl.arange(0, splits), tl.arange(0, channels)
    m = tl.load(highest + h * splits + s)
    weight = tl.exp(m - tl.max(m, 0))
    at = (h * splits + s)[:, None] * d_head + d[None, :]
    parts = tl.load(partial + at, (d < d_head)[None, :], 0.0)
    below = tl.sum(weight * tl.load(total + h * splits + s), 0)
    out = tl.sum(parts * weight[:, None], 0) / below
    store_planes(z + h * d_head + d, out, d < d_head, plane_out, planes_out)
