"""Optimizers by name: torch's own where it has one, over groups of named parameters.

A step of a run is `scale_learning_rate`, `set_betas` and `update`. The state of an optimizer goes into a
checkpoint under the names of its parameters, as tensors and plain numbers. Every group has `initial_lr`, the
rate that a schedule's factor multiplies, and the names of its parameters.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.base import registry
from pellucid.base.errors import ConfigError, FileError
from pellucid.parts.optimizers import (
    Adam,
    AdamL2,
    AdamW,
    AveragingMomentum,
    Momentum,
    MuonConfig,
    OptimizerConfig,
    Sgd,
    decays,
    is_hidden_matrix,
)
from pellucid.training.distributed.sharded import (
    full_tensor,
    is_sharded,
    local_rows,
    shard_like,
    to_local,
)

Named = Mapping[str, nn.Parameter]
PLAIN = ("lr", "betas")
"""The numbers of a group that change during a run."""
A, B, C = 3.4445, -4.7750, 2.0315
"""The polynomial of Muon's iteration."""
MIN_NORM = 1e-7
Group = dict[str, Any]


def make_optimizer(named: Named, settings: OptimizerConfig) -> Optimizer:
    """Returns the optimizer of a recipe for the trainable parameters, which must not be empty."""
    if not named:
        raise ConfigError("there is no parameter to train; let train.only and train.freeze leave some.")
    optimizer = registry.function_of(__name__, settings.kind, "optimizer")(named, settings)
    assert isinstance(optimizer, Optimizer)
    return optimizer


# ---- the kinds


@registry.kind("sgd")
def make_sgd(named: Named, settings: Sgd) -> Optimizer:
    return torch.optim.SGD([_group(named, settings.lr)])


@registry.kind("momentum")
def make_momentum(named: Named, settings: Momentum) -> Optimizer:
    """Returns SGD whose momentum accumulates gradients: torch's own form."""
    return torch.optim.SGD([_group(named, settings.lr)], momentum=settings.beta)


@registry.kind("averaging_momentum")
def make_averaging_momentum(named: Named, settings: AveragingMomentum) -> Optimizer:
    """Returns SGD whose momentum averages gradients, from 0: torch's `dampening` of β.

    torch alone would take the whole first gradient as the first momentum.
    """
    beta = settings.beta
    optimizer = torch.optim.SGD([_group(named, settings.lr)], momentum=beta, dampening=beta)
    if beta:
        for parameter in named.values():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


@registry.kind("adam")
def make_adam(named: Named, settings: Adam) -> Optimizer:
    groups = [_group(named, settings.lr)]
    return torch.optim.Adam(groups, betas=settings.betas_at(0), eps=settings.eps, fused=_can_fuse(named))


@registry.kind("adam_l2")
def make_adam_l2(named: Named, settings: AdamL2) -> Optimizer:
    """Returns Adam with an L2 penalty, which torch's Adam calls `weight_decay`."""
    groups = _group_by_decay(named, settings.lr, settings.weight_decay)
    return torch.optim.Adam(groups, betas=settings.betas_at(0), eps=settings.eps, fused=_can_fuse(named))


@registry.kind("adamw")
def make_adamw(named: Named, settings: AdamW) -> Optimizer:
    """Returns AdamW. Each number is updated from itself alone, so the result does not depend on threads."""
    groups = _group_by_decay(named, settings.lr, settings.weight_decay)
    return torch.optim.AdamW(groups, betas=settings.betas_at(0), eps=settings.eps, fused=_can_fuse(named))


@registry.kind("muon")
def make_muon(named: Named, settings: MuonConfig, newton_schulz: torch.dtype | None = None) -> Optimizer:
    """Returns Muon for the hidden matrices and AdamW for the rest, as one optimizer."""
    matrices = {name: value for name, value in named.items() if is_hidden_matrix(name, tuple(value.shape))}
    rest = {name: value for name, value in named.items() if name not in matrices}
    groups = [_group(matrices, settings.lr, weight_decay=settings.weight_decay)] if matrices else []
    adamw = make_adamw(rest, settings.adamw) if rest else None
    return Muon(groups, adamw, beta=settings.beta, steps=settings.steps, newton_schulz=newton_schulz)


def _group(named: Named, lr: float, **settings: Any) -> Group:
    """Returns one group, as torch's optimizers take it: parameters with their names."""
    return {"params": list(named.items()), "lr": lr, "initial_lr": lr} | settings


def _group_by_decay(named: Named, lr: float, weight_decay: float) -> list[Group]:
    """Returns the group that decays and the one that does not; an empty one is omitted."""
    decaying = {name: value for name, value in named.items() if decays(name, tuple(value.shape))}
    others = {name: value for name, value in named.items() if name not in decaying}
    groups = [_group(decaying, lr, weight_decay=weight_decay), _group(others, lr, weight_decay=0.0)]
    return [group for group in groups if group["params"]]


def _can_fuse(named: Named) -> bool:
    """Returns whether torch has one kernel for the whole update on the parameters' device: CPUs and CUDA
    do."""
    return all(value.device.type in ("cpu", "cuda") for value in named.values())


# ---- Muon


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): a matrix is updated by its momentum after a Newton-Schulz iteration.

    Its groups, and those of an optimizer for the rest, which share one state.

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


# ---- a step


def scale_learning_rate(optimizer: Optimizer, factor: float) -> None:
    """Multiplies every group's initial learning rate by a schedule's factor."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def set_betas(optimizer: Optimizer, settings: OptimizerConfig, step: int) -> None:
    """Sets β₂ to its value at a step, while it warms up."""
    if betas := settings.betas_at(step):
        for group in optimizer.param_groups:
            if "betas" in group:
                group["betas"] = betas


def update(optimizer: Optimizer, is_finite: Tensor) -> None:
    """Updates the parameters if `is_finite`. A fused kernel reads that on the device, so that the host does
    not wait for it."""
    groups = optimizer.param_groups
    if all(group.get("fused") and not any(map(is_sharded, group["params"])) for group in groups):
        optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif is_finite:
        optimizer.step()


# ---- in a checkpoint


def get_state(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the state of an optimizer: tensors by NAME.KEY, and the numbers of each group as JSON."""
    tensors = {
        f"{name}.{key}": value
        for name, parameter in _named_parameters(optimizer)
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }
    groups = [
        {"names": list(group["param_names"])} | {key: group[key] for key in PLAIN if key in group}
        for group in optimizer.param_groups
    ]
    return tensors, {"groups": groups}


def load_state(optimizer: Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Sets the state of an optimizer of the same kind to what `get_state` returned, bit for bit."""
    groups = optimizer.param_groups
    ours, theirs = [group["param_names"] for group in groups], [saved["names"] for saved in plain["groups"]]
    if ours != theirs:
        unknown = sorted({name for names in ours for name in names} ^ {n for names in theirs for n in names})
        reason = f"{unknown[0]!r} is in only one of them" if unknown else "they are grouped differently"
        raise FileError(
            f"the saved optimizer is not of these parameters: {reason}. Resume with the recipe of the run."
        )
    keys: dict[str, list[str]] = defaultdict(list)
    for full_name in tensors:
        name, _, key = full_name.rpartition(".")
        keys[name].append(key)
    state = {
        n: _load_parameter(n, parameter, tensors, keys[n]) for n, parameter in _named_parameters(optimizer)
    }
    if extra := sorted(set(tensors) - {f"{name}.{key}" for name, own in state.items() for key in own}):
        raise FileError(f"the saved optimizer has {extra[0]!r}, which belongs to no parameter of this run.")
    for group, saved in zip(groups, plain["groups"], strict=True):
        for key in PLAIN:
            if (key in saved) != (key in group):
                raise FileError(
                    f"the saved optimizer {'has' if key in saved else 'lacks'} {key!r}, so it is of another "
                    "kind. Resume with the recipe of the run."
                )
            if key in saved:
                value = saved[key]
                group[key] = tuple(value) if isinstance(value, list) else value
    for name, parameter in _named_parameters(optimizer):
        optimizer.state.pop(parameter, None)
        if state[name]:
            optimizer.state[parameter] = state[name]


def _named_parameters(optimizer: Optimizer) -> list[tuple[str, Tensor]]:
    groups = optimizer.param_groups
    return [pair for group in groups for pair in zip(group["param_names"], group["params"], strict=True)]


def _load_parameter(
    name: str, parameter: Tensor, tensors: Mapping[str, Tensor], keys: list[str]
) -> dict[str, Tensor]:
    """Returns the saved tensors of one parameter on its device, sharded like it; scalars stay scalars.

    Each is read once: they may be in a file.
    """
    own: dict[str, Tensor] = {}
    for key in keys:
        full_name = f"{name}.{key}"
        value = tensors[full_name]
        if value.dim() and value.shape != parameter.shape:
            raise FileError(
                f"{full_name!r} has the shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}."
            )
        own[key] = shard_like(parameter, value)
    return own
