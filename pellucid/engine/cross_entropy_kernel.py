"""A Triton kernel for the loss of a row of logits and its gradient, which overwrites the row.

A row is read from memory once, is still cached when it is read again, and is written once; a softmax and its
backward pass read or write it four times. `engine/chunked_loss.py` defines what is computed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 4096, 16
"""Logits of a block, and the warps that share them: eight numbers, one load, for each thread."""
LOWEST = tl.constexpr(-1e38)
"""Below every logit; not −∞, because −∞ − (−∞) is NaN."""


@triton.jit
def _score(y, targets, losses, stride, size, smoothing, z, ignored, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores the loss of one row, and y ← ∂loss/∂y."""
    row = tl.program_id(0).to(tl.int64)
    start = y + row * stride
    target = tl.load(targets + row)
    columns = tl.arange(0, block)
    if target == ignored:
        tl.store(losses + row, 0.0)
        for at in range(0, size, block):
            tl.store(start + at + columns, tl.zeros((block,), y.dtype.element_ty), at + columns < size)
        return
    chosen = tl.load(start + target).to(tl.float32)
    # every lane keeps its own maximum and sum, so that the threads synchronize only at the end; two blocks at
    # a time, so that sums are rescaled half as often: the kernel is bound by its arithmetic
    highest = tl.full((block,), LOWEST, tl.float32)
    total, plain = tl.zeros((block,), tl.float32), tl.zeros((block,), tl.float32)
    for at in range(0, size, 2 * block):
        here, there = at + columns < size, at + block + columns < size
        a = tl.load(start + at + columns, here, LOWEST, eviction_policy="evict_last").to(tl.float32)
        b = tl.load(start + at + block + columns, there, LOWEST, eviction_policy="evict_last").to(tl.float32)
        higher = tl.maximum(highest, tl.maximum(a, b))
        total = total * tl.exp(highest - higher) + tl.exp(a - higher) + tl.exp(b - higher)
        highest = higher
        if smoothing > 0:
            plain += tl.where(here, a, 0.0) + tl.where(there, b, 0.0)
    top = tl.max(highest, 0)
    lse = top + tl.log(tl.sum(tl.where(columns < size, total * tl.exp(highest - top), 0.0), 0))
    loss = (1 - smoothing) * (lse - chosen) + smoothing * (lse - tl.sum(plain, 0) / size) + z * lse * lse
    tl.store(losses + row, loss)
    rise, less = 1 + 2 * z * lse, smoothing / size
    for at in range(0, size, block):
        inside = at + columns < size
        some = tl.load(start + at + columns, inside, LOWEST, eviction_policy="evict_first").to(tl.float32)
        grad = (tl.exp(some - lse) * rise - less).to(y.dtype.element_ty)
        tl.store(start + at + columns, grad, inside, eviction_policy="evict_first")
    tl.debug_barrier()  # the target's gradient is written after all others
    tl.store(start + target, (tl.exp(chosen - lse) * rise - less - (1 - smoothing)).to(y.dtype.element_ty))


@torch.library.custom_op("pellucid::score", mutates_args=("y",))
def score(y: Tensor, targets: Tensor, smoothing: float, z: float, ignored: int) -> Tensor:
    """Returns the losses [N] of the rows of logits y [N V] in float32; y becomes the gradient of their
    sum."""
    losses = torch.empty(len(y), device=y.device, dtype=torch.float32)
    _score[(len(y),)](
        y, targets, losses, y.stride(0), y.shape[1], smoothing, z, ignored, BLOCK, num_warps=WARPS
    )
    return losses


@score.register_fake
def _(y: Tensor, targets: Tensor, smoothing: float, z: float, ignored: int) -> Tensor:
    return torch.empty(len(y), device=y.device, dtype=torch.float32)
