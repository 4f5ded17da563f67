"""Muon for the hidden matrices, AdamW for the rest, as one optimizer."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pellucid.parts.optimizers.muon import MuonConfig
from pellucid.training.distributed.pieces import in_pieces, local, rows_of, whole
from pellucid.training.groups import Group, Named, by_muon, group
from pellucid.training.optimizers import adamw

A, B, C = 3.4445, -4.7750, 2.0315
SHORTEST = 1e-7


def make(
    named: Named, settings: MuonConfig, newton_schulz: torch.dtype | None = None
) -> torch.optim.Optimizer:
    """`newton_schulz` is the type of the iteration; without one, bfloat16 on CUDA and the weights' own
    elsewhere: on most CPUs bfloat16 is many times slower."""
    inside, rest = by_muon(named)
    groups = [group(inside, settings.lr, weight_decay=settings.weight_decay)] if inside else []
    adam = adamw.make(rest, settings.rest) if rest else None
    return Muon(groups, adam, beta=settings.beta, steps=settings.steps, newton_schulz=newton_schulz)


class Muon(torch.optim.Optimizer):
    """Muon's groups, and those of an optimizer for the rest, which share one state."""

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
        for one in self.own:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for w in one["params"]:
                if w.grad is not None:
                    alike[w.shape].append(w)
            for (rows, columns), matrices in _together(alike):
                turned = orthogonal(
                    torch.stack([whole(x) for x in self._ahead(matrices, one["beta"])]),
                    one["steps"],
                    one["newton_schulz"] or (torch.bfloat16 if matrices[0].is_cuda else matrices[0].dtype),
                )
                scale = math.sqrt(max(1.0, rows / columns))
                mine = [local(w) for w in matrices]
                steps = [rows_of(w, x) for w, x in zip(matrices, turned.to(mine[0].dtype), strict=True)]
                torch._foreach_mul_(mine, 1 - one["lr"] * one["weight_decay"])
                torch._foreach_add_(mine, steps, alpha=-one["lr"] * scale)
        if self.rest is not None:
            self.rest.step()

    def _ahead(self, matrices: list[Tensor], beta: float) -> list[Tensor]:
        """The gradients blended with their momentum."""
        for w in matrices:
            if "momentum" not in self.state[w]:
                self.state[w]["momentum"] = torch.zeros_like(w)
        slopes = [w.grad for w in matrices if w.grad is not None]
        momenta = [self.state[w]["momentum"] for w in matrices]
        torch._foreach_lerp_(momenta, slopes, 1 - beta)
        return list(torch._foreach_lerp(slopes, momenta, beta))


def _together(alike: dict[torch.Size, list[Tensor]]) -> Iterator[tuple[torch.Size, list[Tensor]]]:
    """Those of one shape; where they lie in pieces one at a time, so that no rank gathers many."""
    for shape, matrices in alike.items():
        for some in [[w] for w in matrices] if in_pieces(matrices[0]) else [matrices]:
            yield shape, some


def orthogonal(x: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Matrices [… rows columns] turned nearly orthogonal: X ← a X + (b X Xᵀ + c (X Xᵀ)²) X."""
    tall = x.shape[-2] > x.shape[-1]
    x = (x.mT if tall else x).to(dtype)
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=SHORTEST)
    for _ in range(steps):
        gram = x @ x.mT
        both = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        x = torch.baddbmm(x, both, x, beta=A)
    return x.mT if tall else x
