"""The ends of a step: the choice of the next token, its embedding, and the norm of several rows.

A text's state on the device is its token, its position, its slot (−1 where it has ended), how many tokens it
may still draw, and how many it has drawn; the tokens go to `drawn`, a ring in host memory.
"""

import triton
import triton.language as tl

from pellucid.engine.gpu.arithmetic import normalize, start_dependents, store_planes, wait_for_inputs


@triton.jit
def embed_token(
    x, id, position, row, embed, scales, minimums, position_rows, gain, shift,
    width: tl.constexpr, group: tl.constexpr, has_minimums: tl.constexpr, has_rows: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Stores the embedding of a token, with its position's row, normalized where the model does that."""
    c = tl.arange(0, block)
    is_in = c < width
    y = tl.load(embed + id.to(tl.int64) * width + c, is_in, 0).to(tl.float32)
    if group > 0:
        groups: tl.constexpr = (width + group - 1) // group
        y *= tl.load(scales + id * groups + c // group, is_in, 0.0).to(tl.float32)
        if has_minimums:
            y += tl.load(minimums + id * groups + c // group, is_in, 0.0).to(tl.float32)
    if has_rows:
        y += tl.load(position_rows + position.to(tl.int64) * width + c, is_in, 0.0).to(tl.float32)
    y = tl.sum(normalize(y[None, :], gain, shift, c, width, norm, has_shift, eps), 0)
    tl.store(x + row * width + c, y, is_in)


@triton.jit
def embed(
    x, tokens, positions, slots, weight, scales, minimums, position_rows, gain, shift,
    width: tl.constexpr, group: tl.constexpr, has_minimums: tl.constexpr, has_rows: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Embeds the token of each text: the start of a step whose tokens the host has chosen."""
    row = tl.program_id(0)
    if tl.load(slots + row) >= 0:
        id, position = tl.load(tokens + row), tl.load(positions + row)
        embed_token(
            x, id, position, row, weight, scales, minimums, position_rows, gain, shift,
            width, group, has_minimums, has_rows, norm, has_shift, eps, block,
        )  # fmt: skip


@triton.jit
def pick(
    x, tokens, positions, slots, left, steps, drawn, best, best_id, chosen,
    weight, scales, minimums, position_rows, gain, shift, most,
    n_blocks: tl.constexpr, blocks: tl.constexpr, is_chosen: tl.constexpr, ring: tl.constexpr,
    width: tl.constexpr, group: tl.constexpr, has_minimums: tl.constexpr, has_rows: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr, block: tl.constexpr,
    is_dependent: tl.constexpr,
):  # fmt: skip
    """Takes the token with the largest logit, or the one that a sampler chose, and embeds it for the next
    step; −1 where a logit is NaN or +∞, or all are −∞, which ends the text on the device."""
    start_dependents(is_dependent)
    row = tl.program_id(0)
    slot = tl.load(slots + row)
    wait_for_inputs(is_dependent)
    if slot < 0:
        return
    b = tl.arange(0, blocks)
    values = tl.load(best + row * n_blocks + b, b < n_blocks, float("-inf"))
    highest = tl.max(values, 0)
    ids = tl.load(best_id + row * n_blocks + b, b < n_blocks, 2147483647)
    id = tl.min(tl.where(values == highest, ids, 2147483647), 0)
    if is_chosen:
        id = tl.load(chosen + row)
    is_good = (highest < float("inf")) & (highest > float("-inf"))
    step, remaining, position = tl.load(steps + row), tl.load(left + row), tl.load(positions + row) + 1
    tl.store(drawn + (step % ring) * most + row, tl.where(is_good, id, -1))
    tl.store(steps + row, step + 1)
    tl.store(left + row, remaining - 1)
    goes_on = is_good & (remaining > 1)
    tl.store(slots + row, tl.where(goes_on, slot, -1))
    if goes_on:
        tl.store(tokens + row, id)
        tl.store(positions + row, position)
        embed_token(
            x, id, position, row, weight, scales, minimums, position_rows, gain, shift,
            width, group, has_minimums, has_rows, norm, has_shift, eps, block,
        )  # fmt: skip


@triton.jit
def normalize_rows(
    x, y, gain, shift, plane_out,
    width: tl.constexpr, norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr,
    planes_out: tl.constexpr, block: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Normalizes a row [width] for `multiply_rows`."""
    start_dependents(is_dependent)
    row, c = tl.program_id(0), tl.arange(0, block)
    wait_for_inputs(is_dependent)
    given = tl.load(x + row * width + c, c < width, 0.0)[None, :]
    given = tl.sum(normalize(given, gain, shift, c, width, norm, has_shift, eps), 0)
    store_planes(y + row * width + c, given, c < width, plane_out, planes_out)
