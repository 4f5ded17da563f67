"""Products with the weights: y = A(norm(x) Wᵀ + b), for one row of x by vectors, for several by tensor cores.

A program computes some outputs of one matrix, or of one of up to three that share an input (Q, K, V). It asks
for its weights before the kernel that computes x is complete. Weights are floats, or integers with a scale
(and a minimum) for each group of inputs; all sums are in float32.
"""

import triton
import triton.language as tl

from pellucid.engine.gpu.arithmetic import (
    activate,
    bound_softly,
    normalize,
    start_dependents,
    store_planes,
    wait_for_inputs,
)


@triton.jit
def load_weights(w, lines, columns, is_in, width: tl.constexpr):
    """Returns numbers [lines columns] of a matrix [out width]; each is read once in a step."""
    at = w + lines.to(tl.int64)[:, None] * width + columns[None, :]
    return tl.load(at, is_in, 0, eviction_policy="evict_first")


@triton.jit
def prefetch(w, lines, is_line, width: tl.constexpr):
    """Asks for the cache lines of some rows of a matrix, which then wait in L2."""
    per_line: tl.constexpr = 1024 // w.dtype.element_ty.primitive_bitwidth
    steps: tl.constexpr = triton.next_power_of_2((width + per_line - 1) // per_line)
    columns = tl.minimum(tl.arange(0, steps) * per_line, width - 1)
    at = w + tl.where(is_line, lines, 0).to(tl.int64)[:, None] * width + columns[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at.to(tl.int64)], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def widen_integers(w, is_compiled: tl.constexpr):
    """Returns 8-bit integers in float32, faster than by the GPU's own conversion.

    The bits of 2²³ with its last byte replaced by n + 128 are those of the float 2²³ + 128 + n."""
    if is_compiled:
        return tl.inline_asm_elementwise(
            """
            {
            .reg .b32 biased;
            xor.b32 biased, $4, 0x80808080;
            prmt.b32 $0, biased, 0x4B000000, 0x7540;
            prmt.b32 $1, biased, 0x4B000000, 0x7541;
            prmt.b32 $2, biased, 0x4B000000, 0x7542;
            prmt.b32 $3, biased, 0x4B000000, 0x7543;
            sub.f32 $0, $0, 0f4B000080;
            sub.f32 $1, $1, 0f4B000080;
            sub.f32 $2, $2, 0f4B000080;
            sub.f32 $3, $3, 0f4B000080;
            }
            """,
            "=r,=r,=r,=r,r", [w], tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        return w.to(tl.float32)


@triton.jit
def widen(
    w, scales, minimums, lines, columns, is_in,
    width: tl.constexpr, group: tl.constexpr, has_minimums: tl.constexpr, is_compiled: tl.constexpr,
):  # fmt: skip
    """Returns weights in float32: as they are, or scale · integer (+ minimum). A scale of a whole row is left
    for the sum."""
    x = widen_integers(w, is_compiled) if group > 0 else w.to(tl.float32)
    if group > 0 and (group < width or has_minimums):
        groups: tl.constexpr = (width + group - 1) // group
        at = lines.to(tl.int64)[:, None] * groups + (columns // group)[None, :]
        x *= tl.load(scales + at, is_in, 0.0).to(tl.float32)
        if has_minimums:
            x += tl.load(minimums + at, is_in, 0.0).to(tl.float32)
    return x


@triton.jit
def sum_vector(
    held, given, scales, minimums, lines, columns, is_in,
    width: tl.constexpr, group: tl.constexpr, has_minimums: tl.constexpr, is_compiled: tl.constexpr,
):  # fmt: skip
    """Returns the sums [lines] of weights [lines columns] times one row [1 columns]."""
    numbers = widen(
        held, scales, minimums, lines, columns, is_in, width, group, has_minimums, is_compiled
    )  # fmt: skip
    return tl.sum(numbers * given, 1)


@triton.jit
def multiply_vector(
    x, y, gain, shift,
    w0, w1, w2, b0, b1, b2, s0, s1, s2, m0, m1, m2,
    best, best_id,
    width: tl.constexpr, out0: tl.constexpr, out1: tl.constexpr, out2: tl.constexpr,
    norm: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr,
    group: tl.constexpr, has_minimums: tl.constexpr, has_bias: tl.constexpr,
    ending: tl.constexpr, activation: tl.constexpr, cap: tl.constexpr,
    rows: tl.constexpr, block: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Computes some outputs for one row x [width], and ends as `ending` says: "store" them, "add" them to y,
    "activate" them, "gate" those of the second matrix by the first, or keep the largest of some "logits"."""
    start_dependents(is_dependent)
    pid = tl.program_id(0)
    blocks0: tl.constexpr = (out0 + rows - 1) // rows
    blocks1: tl.constexpr = 0 if ending == "gate" else (out1 + rows - 1) // rows
    if pid < blocks0:
        w, b, s, m, out, first, before = w0, b0, s0, m0, out0, pid * rows, 0
    elif pid < blocks0 + blocks1:
        w, b, s, m, out, first, before = w1, b1, s1, m1, out1, (pid - blocks0) * rows, out0
    else:
        w, b, s, m, out = w2, b2, s2, m2, out2
        first, before = (pid - blocks0 - blocks1) * rows, out0 + out1
    lines = first + tl.arange(0, rows)
    is_line = lines < out
    columns = tl.arange(0, block)
    is_in = is_line[:, None] & (columns < width)[None, :]
    held = load_weights(w, lines, columns, is_in, width)
    if ending == "gate":
        held_up = load_weights(w1, lines, columns, is_in, width)
    bias = tl.zeros((rows,), tl.float32)
    bias_up = bias
    if has_bias:
        bias = tl.load(b + lines, is_line, 0.0).to(tl.float32)
        if ending == "gate":
            bias_up = tl.load(b1 + lines, is_line, 0.0).to(tl.float32)
    wait_for_inputs(is_dependent)
    given = tl.load(x + columns, columns < width, 0.0)[None, :]
    is_scaled_later: tl.constexpr = norm == "rms_norm" and not has_shift
    if is_scaled_later:  # 1/σ is a factor of the sum: the two sums do not wait for each other
        rstd = tl.rsqrt(tl.sum(given * given, 1) / width + eps)
        given *= tl.load(gain + columns, columns < width, 0.0).to(tl.float32)[None, :]
    else:
        given = normalize(given, gain, shift, columns, width, norm, has_shift, eps)
    total = sum_vector(
        held, given, s, m, lines, columns, is_in, width, group, has_minimums, is_dependent
    )  # fmt: skip
    if ending == "gate":
        total_up = sum_vector(
            held_up, given, s1, m1, lines, columns, is_in, width, group, has_minimums, is_dependent
        )  # fmt: skip
    for start in tl.static_range(block, width, block):  # only where nothing is normalized
        more = start + columns
        is_more = is_line[:, None] & (more < width)[None, :]
        given = tl.load(x + more, more < width, 0.0)[None, :]
        held = load_weights(w, lines, more, is_more, width)
        total += sum_vector(
            held, given, s, m, lines, more, is_more, width, group, has_minimums, is_dependent
        )  # fmt: skip
        if ending == "gate":
            held_up = load_weights(w1, lines, more, is_more, width)
            total_up += sum_vector(
                held_up, given, s1, m1, lines, more, is_more, width, group, has_minimums, is_dependent
            )  # fmt: skip
    if is_scaled_later:
        total *= rstd
        if ending == "gate":
            total_up *= rstd
    if group >= width and not has_minimums:
        total *= tl.load(s + lines, is_line, 0.0).to(tl.float32)
        if ending == "gate":
            total_up *= tl.load(s1 + lines, is_line, 0.0).to(tl.float32)
    total += bias
    at = y + before + lines
    if ending == "add":
        total += tl.load(at, is_line, 0.0)
    elif ending == "activate":
        total = activate(total, activation)
    elif ending == "gate":
        total = activate(total, activation) * (total_up + bias_up)
    elif ending == "logits":
        total = bound_softly(total, cap)
        only = tl.arange(0, 1)
        keep_best(best + pid, best_id + pid, total[None, :], lines, is_line, only, only == 0, 1)
    tl.store(at, total, is_line)


@triton.jit
def keep_best(best, best_id, logits, lines, is_line, rows, is_row, stride: tl.constexpr):
    """Stores the largest of some logits [rows lines], of equals the first, and its token; NaN and +∞ are
    stored as +∞."""
    is_bad = (logits != logits) | (logits == float("inf"))
    shown = tl.where(is_line[None, :], tl.where(is_bad, float("inf"), logits), float("-inf"))
    highest = tl.max(shown, 1)
    ids = tl.min(tl.where((shown == highest[:, None]) & is_line[None, :], lines[None, :], 2147483647), 1)
    tl.store(best + rows * stride, highest, is_row)
    tl.store(best_id + rows * stride, ids, is_row)


@triton.jit
def multiply_rows(
    x, y,
    w0, w1, w2, b0, b1, b2, s0, s1, s2, m0, m1, m2,
    best, best_id, plane_in, plane_out, y_stride, count,
    width: tl.constexpr, out0: tl.constexpr, out1: tl.constexpr, out2: tl.constexpr,
    group: tl.constexpr, has_minimums: tl.constexpr, has_bias: tl.constexpr,
    ending: tl.constexpr, activation: tl.constexpr, cap: tl.constexpr,
    planes: tl.constexpr, planes_out: tl.constexpr, n_blocks: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Computes some outputs for some rows of x [planes count width], with the endings of
    `multiply_vector`."""
    start_dependents(is_dependent)
    pid = tl.program_id(0)
    blocks0: tl.constexpr = (out0 + block_n - 1) // block_n
    blocks1: tl.constexpr = 0 if ending == "gate" else (out1 + block_n - 1) // block_n
    if pid < blocks0:
        w, b, s, m, out, first, before = w0, b0, s0, m0, out0, pid * block_n, 0
    elif pid < blocks0 + blocks1:
        w, b, s, m, out, first, before = w1, b1, s1, m1, out1, (pid - blocks0) * block_n, out0
    else:
        w, b, s, m, out = w2, b2, s2, m2, out2
        first, before = (pid - blocks0 - blocks1) * block_n, out0 + out1
    lines = first + tl.arange(0, block_n)
    is_line = lines < out
    rows = tl.program_id(1) * block_m + tl.arange(0, block_m)
    is_row = rows < count
    if is_dependent:
        prefetch(w, lines, is_line, width)
        if ending == "gate":
            prefetch(w1, lines, is_line, width)
    wait_for_inputs(is_dependent)
    total = sum_products(
        x, w, s, m, rows, is_row, lines, is_line, plane_in,
        width, group, has_minimums, planes, block_m, block_n, block_k,
    )  # fmt: skip
    if has_bias:
        total += tl.load(b + lines, is_line, 0.0).to(tl.float32)[None, :]
    at = y + rows.to(tl.int64)[:, None] * y_stride + (before + lines)[None, :]
    is_in = is_row[:, None] & is_line[None, :]
    if ending == "add":
        total += tl.load(at, is_in, 0.0)
    elif ending == "activate":
        total = activate(total, activation)
    elif ending == "gate":
        up = sum_products(
            x, w1, s1, m1, rows, is_row, lines, is_line, plane_in,
            width, group, has_minimums, planes, block_m, block_n, block_k,
        )  # fmt: skip
        if has_bias:
            up += tl.load(b1 + lines, is_line, 0.0).to(tl.float32)[None, :]
        total = activate(total, activation) * up
    elif ending == "logits":
        total = bound_softly(total, cap)
        keep_best(best + pid, best_id + pid, total, lines, is_line, rows, is_row, n_blocks)
    store_planes(at, total, is_in, plane_out, planes_out)


@triton.jit
def sum_products(
    x, w, s, m, rows, is_row, lines, is_line, plane,
    width: tl.constexpr, group: tl.constexpr, has_minimums: tl.constexpr, planes: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Returns x Wᵀ [rows lines]; integers are multiplied as they are, and a block of them by its scales.

    Each block of inputs is summed by itself, and the sums are added in float32: a tensor core does not round
    what it adds to its accumulator but cuts it off, always towards zero, and would do so for every 16 inputs.
    """
    total = tl.zeros((block_m, block_n), tl.float32)
    sums = tl.zeros((block_m,), tl.float32)
    groups: tl.constexpr = 1 if group == 0 else (width + group - 1) // group
    for start in range(0, width, block_k):
        columns = start + tl.arange(0, block_k)
        is_column = columns < width
        held = load_weights(w, lines, columns, is_line[:, None] & is_column[None, :], width)
        part = tl.zeros((block_m, block_n), tl.float32)
        if groups > 1:
            sums = tl.zeros((block_m,), tl.float32)
        for index in tl.static_range(planes):  # the smallest first: a sum of small numbers is cut off less
            at = x + (planes - 1 - index) * plane + rows[:, None] * width + columns[None, :]
            given = tl.load(at, is_row[:, None] & is_column[None, :], 0.0)
            part = multiply_tile(given, held, part)
            if has_minimums:
                sums += tl.sum(given.to(tl.float32), 1)
        if groups > 1:
            part = scale_group(part, sums, s, m, lines * groups + start // group, is_line, has_minimums)
        total += part
    if group > 0 and groups == 1:
        total = scale_group(total, sums, s, m, lines, is_line, has_minimums)
    return total


@triton.jit
def multiply_tile(given, held, total):
    """Returns total + given heldᵀ, exact up to the rounding of sums; float32 weights are split like
    inputs."""
    if given.dtype == tl.float32:
        total = tl.dot(given, tl.trans(held), total, input_precision="ieee")
    elif held.dtype != tl.float32:
        total = tl.dot(given, tl.trans(held.to(tl.bfloat16)), total)
    else:
        left = held
        for _ in tl.static_range(3):
            part = left.to(tl.bfloat16)
            total = tl.dot(given, tl.trans(part), total)
            left -= part.to(tl.float32)
    return total


@triton.jit
def scale_group(part, sums, s, m, at, is_line, has_minimums: tl.constexpr):
    """Returns s · Σ x q (+ m · Σ x) of one group of inputs."""
    part *= tl.load(s + at, is_line, 0.0).to(tl.float32)[None, :]
    if has_minimums:
        part += sums[:, None] * tl.load(m + at, is_line, 0.0).to(tl.float32)[None, :]
    return part
