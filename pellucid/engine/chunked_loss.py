"""The loss computed from the last hidden states in chunks, so that the logits never exist all at once.

The value is that of `engine/loss.py`. For each chunk of rows, logits and loss are computed, and from the
logits the chunk's part of the gradients, before they are freed:

    dy = p (1 + 2 z lse) − (1 − s) onehot − s / V        dX = dy W        dW = Σ dyᵀ X        db = Σ dy

so the backward pass only scales gradients that the forward pass has summed.
"""

import importlib.util
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.base.errors import UsageError
from pellucid.base.names import IGNORE_INDEX
from pellucid.engine.caps import Cap
from pellucid.engine.linear import NARROW_IS_SLOW, linear
from pellucid.engine.loss import check_settings
from pellucid.engine.precision import wide_dtype, widen

HAS_KERNELS = importlib.util.find_spec("triton") is not None
"""Triton comes with builds of torch for CUDA on Linux."""

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def chunked_loss(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    chunk: int,
    cap: Cap | None = None,
    smoothing: float = 0.0,
    z: float = 0.0,
) -> Tensor:
    """Returns `loss(cap(x Wᵀ + b), targets)` for hidden states x [B T C], `chunk` of the B · T rows at a
    time.

    Its logits are not tapped; to record them, use `loss`.
    """
    check_settings(smoothing, z, None, len(weight))
    if chunk < 1:
        raise UsageError(f"a chunk must have at least one row; got {chunk}.")
    needs_grad = tuple(
        torch.is_grad_enabled() and t is not None and t.requires_grad for t in (x, weight, bias)
    )
    rows = x.flatten(0, 1)
    total = _Chunked.apply(rows, weight, bias, targets.flatten(), chunk, cap, smoothing, z, needs_grad)  # type: ignore[no-untyped-call]
    return cast(Tensor, total)


class _Chunked(torch.autograd.Function):
    """Loss and gradients in one pass over the chunks; the gradients are saved for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        chunk: int,
        cap: Cap | None,
        smoothing: float,
        z: float,
        needs_grad: tuple[bool, bool, bool],
    ) -> Tensor:
        count = (targets != IGNORE_INDEX).sum().clamp_min(1)
        device, dtype = x.device.type, _dtype(x)
        with torch.autocast(device, enabled=False):
            inputs = (x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
            total, gradients = _sum_chunks(inputs, targets, chunk, cap, smoothing, z, needs_grad)
        ctx.save_for_backward(count, *gradients)
        ctx.dtypes = tuple(None if given is None else given.dtype for given in (x, weight, bias))
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor | None, ...]:
        count, *gradients = ctx.saved_tensors
        scale = dloss / count
        pairs = zip(gradients, ctx.dtypes, strict=True)
        return (*(None if sums is None else (sums * scale).to(dtype) for sums, dtype in pairs), *[None] * 6)


def _sum_chunks(
    inputs: tuple[Tensor, Tensor, Tensor | None],
    targets: Tensor,
    chunk: int,
    cap: Cap | None,
    smoothing: float,
    z: float,
    needs_grad: tuple[bool, bool, bool],
) -> tuple[Tensor, Gradients]:
    """Returns the sum of the losses of the targets that count, and its gradients; in float32 at least."""
    x, weight, bias = inputs
    wide = wide_dtype(x.dtype)
    total = x.new_zeros((), dtype=wide)
    dx = torch.empty_like(x) if needs_grad[0] else None
    dw = torch.zeros_like(weight, dtype=wide) if needs_grad[1] else None
    db = torch.zeros_like(bias, dtype=wide) if needs_grad[2] and bias is not None else None
    for start in range(0, len(x), chunk):
        here = slice(start, start + chunk)
        counted = (targets[here] != IGNORE_INDEX)[:, None]
        chunk_total, dy = _score_chunk(
            linear(x[here], weight, bias), targets[here], cap, smoothing, z, any(needs_grad)
        )
        total = total + chunk_total
        if dy is None:
            continue
        # rows that do not count are zeroed on the narrow side of each product, which is cheaper
        if db is not None:
            db += counted[:, 0].to(wide) @ dy.to(wide)
        dy = dy.to(x.dtype)
        if dx is not None:
            dx[here] = torch.where(counted, _multiply(dy, weight), 0.0)
        if dw is not None:
            _add_product(dw, dy.mT, torch.where(counted, x[here], 0.0))
    return total, (dx, dw, db)


def _score_chunk(
    y: Tensor, targets: Tensor, cap: Cap | None, smoothing: float, z: float, needs_grad: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns the sum of the losses of a chunk of logits y [N V], and its gradient if needed, which may
    overwrite the logits."""
    if needs_grad and y.element_size() <= 4 and has_kernel(y, cap):
        from pellucid.engine.cross_entropy_kernel import score

        return score(y, targets, smoothing, z, IGNORE_INDEX).sum(), y
    y = widen(y)
    chosen = targets[:, None].clamp_min(0)
    y, back, *_ = (y, None) if cap is None else torch.func.vjp(cap, y)
    log_probs = F.log_softmax(y, -1)
    each = (smoothing - 1) * log_probs.gather(1, chosen)
    if smoothing:
        each = each - smoothing * log_probs.mean(-1, keepdim=True)
    if z:
        lse = torch.logsumexp(y, -1, keepdim=True)
        each = each + z * lse.square()
    total = torch.where((targets != IGNORE_INDEX)[:, None], each, 0.0).sum()
    if not needs_grad:
        return total, None
    dy = log_probs.exp_()
    if z:
        dy.mul_(1 + 2 * z * lse)
    if smoothing:
        dy.sub_(smoothing / y.shape[1])
    dy.scatter_(1, chosen, dy.gather(1, chosen) - (1 - smoothing))
    return total, dy if back is None else back(dy)[0]


def has_kernel(x: Tensor, cap: Cap | None) -> bool:
    """Returns whether a fused kernel computes loss and gradient on this device; it has no cap."""
    return HAS_KERNELS and x.is_cuda and cap is None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += _multiply(a, b)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Returns a b, computed in float32 on a CPU without instructions for half precision."""
    if a.device.type == "cpu" and a.element_size() == 2 and NARROW_IS_SLOW:
        return a.float() @ b.float()
    return a @ b


def _dtype(x: Tensor) -> torch.dtype:
    """Returns the type of the matrix products: autocast's, if it is enabled."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
