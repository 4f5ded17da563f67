"""The loss straight from the final stream, so that the logits of a large vocabulary never exist at once.

`model/loss.py` says what is computed. Here a chunk of rows at a time is unembedded, scored and, while its
logits are still there, turned into its part of the gradients:

    dy = p (1 + 2 z lse) − (1 − s) onehot − s / V        dX = dy W        dW = Σ dyᵀ X        db = Σ dy

so the backward pass only scales what the forward has added up.
"""

import importlib.util
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.errors import UsageError
from pellucid.model.caps import Cap
from pellucid.model.linear import NARROW_IS_SLOW, linear
from pellucid.model.loss import check
from pellucid.names import IGNORE_INDEX

HAS_KERNELS = importlib.util.find_spec("triton") is not None
"""As wherever torch for a GPU was installed on Linux."""

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
    """`loss(cap(x Wᵀ + b), targets)` of the stream [B T C], `chunk` rows of B · T at a time.

    Nothing inside has a name: who wants to see the logits takes the plain loss.
    """
    check(smoothing, z, None, len(weight))
    if chunk < 1:
        raise UsageError(f"a chunk is at least one row; got {chunk}.")
    needs = tuple(torch.is_grad_enabled() and t is not None and t.requires_grad for t in (x, weight, bias))
    rows, wanted = x.flatten(0, 1), targets.flatten()
    total = _Chunked.apply(rows, weight, bias, wanted, chunk, cap, smoothing, z, needs)  # type: ignore[no-untyped-call]
    return cast(Tensor, total)


class _Chunked(torch.autograd.Function):
    """Loss and gradients in one pass over the chunks; the gradients wait for the backward pass."""

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
        needs: tuple[bool, bool, bool],
    ) -> Tensor:
        count = (targets != IGNORE_INDEX).sum().clamp_min(1)
        device, dtype = x.device.type, _dtype(x)
        with torch.autocast(device, enabled=False):
            inputs = (x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
            total, gradients = _sums(inputs, targets, chunk, cap, smoothing, z, needs)
        ctx.save_for_backward(count, *gradients)
        ctx.dtypes = tuple(None if given is None else given.dtype for given in (x, weight, bias))
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor | None, ...]:
        count, *gradients = ctx.saved_tensors
        scale = dloss / count
        found = zip(gradients, ctx.dtypes, strict=True)
        return (*(None if sums is None else (sums * scale).to(dtype) for sums, dtype in found), *[None] * 6)


def _sums(
    inputs: tuple[Tensor, Tensor, Tensor | None],
    targets: Tensor,
    chunk: int,
    cap: Cap | None,
    smoothing: float,
    z: float,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Gradients]:
    """The losses of the targets that count, added up, and the gradients of that sum; at least in float32."""
    x, weight, bias = inputs
    exact = x.dtype if x.element_size() >= 4 else torch.float32
    total = x.new_zeros((), dtype=exact)
    dx = torch.empty_like(x) if needs[0] else None
    dw = torch.zeros_like(weight, dtype=exact) if needs[1] else None
    db = torch.zeros_like(bias, dtype=exact) if needs[2] and bias is not None else None
    for start in range(0, len(x), chunk):
        here = slice(start, start + chunk)
        counted = (targets[here] != IGNORE_INDEX)[:, None]
        summed, dy = _scored(linear(x[here], weight, bias), targets[here], cap, smoothing, z, any(needs))
        total = total + summed
        if dy is None:
            continue
        # what is not counted is left out of the narrow side, where leaving out costs little
        if db is not None:
            db += counted[:, 0].to(exact) @ dy.to(exact)
        dy = dy.to(x.dtype)
        if dx is not None:
            dx[here] = torch.where(counted, _times(dy, weight), 0.0)
        if dw is not None:
            _add_product(dw, dy.mT, torch.where(counted, x[here], 0.0))
    return total, (dx, dw, db)


def _scored(
    y: Tensor, targets: Tensor, cap: Cap | None, smoothing: float, z: float, slopes: bool
) -> tuple[Tensor, Tensor | None]:
    """The losses of a chunk of logits [N V], added up, and their gradient where it is wanted, which may take
    the logits' place."""
    if slopes and y.element_size() <= 4 and by_kernel(y, cap):
        from pellucid.model.score_kernel import score

        return score(y, targets, smoothing, z, IGNORE_INDEX).sum(), y
    y = y if y.element_size() >= 4 else y.float()
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
    if not slopes:
        return total, None
    dy = log_probs.exp_()
    if z:
        dy.mul_(1 + 2 * z * lse)
    if smoothing:
        dy.sub_(smoothing / y.shape[1])
    dy.scatter_(1, chosen, dy.gather(1, chosen) - (1 - smoothing))
    return total, dy if back is None else back(dy)[0]


def by_kernel(x: Tensor, cap: Cap | None) -> bool:
    """Whether one kernel scores logits of this device; none caps them."""
    return HAS_KERNELS and x.is_cuda and cap is None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += _times(a, b)


def _times(a: Tensor, b: Tensor) -> Tensor:
    """a b; in float32 where the processor has no narrower products."""
    if a.device.type == "cpu" and a.element_size() == 2 and NARROW_IS_SLOW:
        return a.float() @ b.float()
    return a @ b


def _dtype(x: Tensor) -> torch.dtype:
    """What the products are made in: as autocast says, where it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
