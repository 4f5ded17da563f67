"""Functions of numbers that several kernels compute, in float32.

A branch on a constant that returns is always followed by `else`: the compiler reads what stands behind it."""

import triton
import triton.language as tl


@triton.jit
def wait_for_inputs(is_dependent: tl.constexpr):
    """Waits until the kernels before this one are complete: what was loaded before must not be theirs."""
    if is_dependent:
        tl.extra.cuda.gdc_wait()


@triton.jit
def start_dependents(is_dependent: tl.constexpr):
    """Lets the next kernel begin: it loads its weights while this one computes, and waits for its result."""
    if is_dependent:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def compute_tanh(x):
    """tanh x = 1 − 2 / (e^{2x} + 1), which neither overflows nor needs a library."""
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def bound_softly(x, limit: tl.constexpr):
    """limit · tanh(x / limit); x itself where there is no limit."""
    if limit > 0.0:
        x = limit * compute_tanh(x / limit)
    return x


@triton.jit
def activate(x, kind: tl.constexpr):
    """The activation function of this name."""
    if kind == "relu":
        return tl.where(x <= 0.0, 0.0, x)  # a NaN stays one
    elif kind == "relu_squared":
        return tl.where(x <= 0.0, 0.0, x * x)
    elif kind == "silu":
        return x / (1.0 + tl.exp(-x))
    elif kind == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        tl.static_assert(kind == "gelu_tanh")
        return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def measure(x, is_in, width: tl.constexpr, kind: tl.constexpr, eps: tl.constexpr):
    """Returns the mean and 1/σ of each row of x [rows channels], of which the first `width` channels count;
    RMSNorm's mean is 0."""
    mean = tl.zeros_like(tl.sum(x, 1))
    if kind == "layer_norm":
        mean = tl.sum(x, 1) / width
    centered = tl.where(is_in, x - mean[:, None], 0.0)
    return mean, tl.rsqrt(tl.sum(centered * centered, 1) / width + eps)


@triton.jit
def normalize(
    x, gain, shift, columns,
    width: tl.constexpr, kind: tl.constexpr, has_shift: tl.constexpr, eps: tl.constexpr,
):  # fmt: skip
    """Returns γ ⊙ (x − mean) / σ (+ β) of each row of x [rows channels]; beyond `width` it is 0. Without a
    norm, "none", it is x."""
    if kind == "none":
        y = x
    else:
        is_in = (columns < width)[None, :]
        mean, rstd = measure(x, is_in, width, kind, eps)
        y = (x - mean[:, None]) * rstd[:, None]
        y = y * tl.load(gain + columns, columns < width, 0.0).to(tl.float32)[None, :]
        if has_shift:
            y += tl.load(shift + columns, columns < width, 0.0).to(tl.float32)[None, :]
    return y


@triton.jit
def store_planes(at, x, is_in, stride, planes: tl.constexpr):
    """Stores float32 numbers for `multiply_rows`: as they are, or as a sum of three bfloat16 numbers, which
    together have all of their bits, so that a tensor core's products with them are exact."""
    if planes == 1:
        tl.store(at, x, is_in)
    else:
        left = x
        for plane in tl.static_range(planes):
            part = left.to(tl.bfloat16)
            tl.store(at + plane * stride, part, is_in)
            left -= part.to(tl.float32)
