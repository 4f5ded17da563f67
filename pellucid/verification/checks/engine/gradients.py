"""Checks gradients against finite differences: the loss changes as its gradient says."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

import torch

from pellucid.base.names import describe
from pellucid.engine.loss import loss
from pellucid.engine.transformer import Transformer
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.verdict import Finding, Judged, Verdict

TOLERANCE = 1e-7
TOKENS = 8
STEP_SIZES = (1e-2, 1e-3, 1e-4)
"""Step sizes of the difference. A long step meets curvature and kinks, a short one rounding: the next is
tried where one disagrees, and a wrong gradient agrees with none."""


def measure_finite_differences(subject: Subject) -> Finding:
    """Compares directional derivatives with central differences, along one random unit direction for each
    kind of parameter, all layers together."""
    module = subject.module(torch.float64)
    ids, targets = (torch.tensor([given[:TOKENS]], device=module.device) for given in subject.pair)
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, _ in module.named_parameters():
        kinds[_kind_of(name)].append(name)
    derivatives = _directional_derivatives(module, kinds, ids, targets)
    scale, worst = max(map(abs, derivatives.values())), 0.0
    for kind, derivative in derivatives.items():
        loss_at = partial(_loss_at, module, _direction(module, kinds[kind]), ids, targets)
        for step in STEP_SIZES:
            difference = _central_difference(loss_at, step)
            error = abs(derivative - difference) / (max(abs(derivative), scale * 1e-3) or 1.0)
            if error <= TOLERANCE:
                break
        else:
            message = (
                f"along all of {kind}, the gradient says {derivative!r}, the loss changes by {difference!r}"
            )
            return Finding(Verdict.BUG, f"{error:.1e}", f"d.{kind}", message)
        worst = max(worst, error)
    return Finding(Verdict.EQUAL, f"{worst:.1e} of {len(derivatives)} directions")


def _directional_derivatives(
    module: Transformer, kinds: Mapping[str, list[str]], ids: torch.Tensor, targets: torch.Tensor
) -> dict[str, float]:
    """Returns Σ gradient · direction for each kind of parameter."""
    module.zero_grad(set_to_none=True)
    loss(module(ids), targets).backward()
    found: dict[str, float] = {}
    for kind, names in kinds.items():
        direction, grads = (
            _direction(module, names),
            {name: module.get_parameter(name).grad for name in names},
        )
        found[kind] = sum(float((g * direction[name]).sum()) for name, g in grads.items() if g is not None)
    module.zero_grad(set_to_none=True)
    return found


def _direction(module: Transformer, names: list[str]) -> dict[str, torch.Tensor]:
    """Returns a random direction of length 1, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    shapes = {name: module.get_parameter(name).shape for name in names}
    parts = {n: torch.randn(shape, dtype=torch.float64, generator=generator) for n, shape in shapes.items()}
    length = math.sqrt(sum(float(part.square().sum()) for part in parts.values()))
    return {name: (part / length).to(module.device) for name, part in parts.items()}


@torch.no_grad()
def _loss_at(
    module: Transformer,
    direction: Mapping[str, torch.Tensor],
    ids: torch.Tensor,
    targets: torch.Tensor,
    distance: float,
) -> float:
    """Returns the loss with the parameters moved along the direction; they are restored afterwards."""
    moved = {name: module.get_parameter(name) for name in direction}
    before = {name: parameter.clone() for name, parameter in moved.items()}
    for name, parameter in moved.items():
        parameter.add_(direction[name], alpha=distance)
    found = float(loss(module(ids), targets))
    for name, parameter in moved.items():
        parameter.copy_(before[name])
    return found


def _central_difference(loss_at: Callable[[float], float], h: float) -> float:
    """Returns (4 D(h/2) − D(h)) / 3, Richardson's extrapolation of D(h) = (f(h) − f(−h)) / 2h."""

    def central(h: float) -> float:
        return (loss_at(h) - loss_at(-h)) / (2 * h)

    return (4 * central(h / 2) - central(h)) / 3


def _kind_of(name: str) -> str:
    """Returns the name of a parameter without its layer: blocks.*.attn.q_proj.weight."""
    row = describe(name)
    first, _, rest = name.partition(".")
    return f"blocks.*.{rest.partition('.')[2]}" if row and first == "blocks" else name


CHECKS = (
    Check(
        "finite differences",
        "Along a random direction of each kind of parameter, the loss changes as its gradient says.",
        f"{TOLERANCE:g}",
        measure_finite_differences,
        Judged.PROGRAM,
        quick=False,
        needs_floats=True,
    ),
)
