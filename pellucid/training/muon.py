"""Muon (Jordan et al. 2024): a matrix is updated by its momentum after a Newton-Schulz iteration."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pellucid.training.distributed.sharded import full_tensor, is_sharded, local_rows, to_local

Group = dict[str, Any]
A, B, C = 3.4445, -4.7750, 2.0315
MIN_NORM = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon's groups, and those of an optimizer for the rest, which share one state.

    `newton_schulz` is the type of the iteration; None is bfloat16 on CUDA and the weights' own elsewhere: on
    most CPUs bfloat16 is many times slower.
    """

    def __init__(self, groups: list[Group], rest: torch.optim.Optimizer | None, **settings: Any) -> None:
        super().__init__(groups or [{"params": []}], settings)
        if not groups:
            self.param_groups.clear()
        self.own, self.rest = list(self.param_groups), rest
        if rest is not None:
            self.param_groups.extend(rest.param_groups)
            rest.state = self.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.own:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for w in group["params"]:
                if w.grad is not None:
                    by_shape[w.shape].append(w)
            for (rows, columns), matrices in _stacks(by_shape):
                updates = orthogonalize(
                    torch.stack([full_tensor(x) for x in self._nesterov(matrices, group["beta"])]),
                    group["steps"],
                    group["newton_schulz"] or (torch.bfloat16 if matrices[0].is_cuda else matrices[0].dtype),
                )
                scale = math.sqrt(max(1.0, rows / columns))
                local = [to_local(w) for w in matrices]
                updates = updates.to(local[0].dtype)
                local_updates = [local_rows(w, x) for w, x in zip(matrices, updates, strict=True)]
                torch._foreach_mul_(local, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(local, local_updates, alpha=-group["lr"] * scale)
        if self.rest is not None:
            self.rest.step()

    def _nesterov(self, matrices: list[Tensor], beta: float) -> list[Tensor]:
        """Returns (1 − β) g + β m of each matrix, after its momentum m ← β m + (1 − β) g."""
        for w in matrices:
            if "momentum" not in self.state[w]:
                self.state[w]["momentum"] = torch.zeros_like(w)
        grads = [w.grad for w in matrices if w.grad is not None]
        momenta = [self.state[w]["momentum"] for w in matrices]
        torch._foreach_lerp_(momenta, grads, 1 - beta)
        return list(torch._foreach_lerp(grads, momenta, beta))


def _stacks(by_shape: dict[torch.Size, list[Tensor]]) -> Iterator[tuple[torch.Size, list[Tensor]]]:
    """Yields the matrices of one shape; sharded ones one at a time, so that no rank gathers many."""
    for shape, matrices in by_shape.items():
        for stack in [[w] for w in matrices] if is_sharded(matrices[0]) else [matrices]:
            yield shape, stack


def orthogonalize(x: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Returns nearly orthogonal matrices [… rows columns], after `steps` of
    X ← a X + (b X Xᵀ + c (X Xᵀ)²) X."""
    is_tall = x.shape[-2] > x.shape[-1]
    x = (x.mT if is_tall else x).to(dtype)
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=MIN_NORM)
    for _ in range(steps):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        x = torch.baddbmm(x, polynomial, x, beta=A)
    return x.mT if is_tall else x
