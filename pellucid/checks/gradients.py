"""Gradients against differences: the loss really changes as its gradient says."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

import torch

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.model.loss import loss
from pellucid.model.transformer import Transformer
from pellucid.names import describe

TOLERANCE = 1e-7
TOKENS = 8
STEPS = (1e-2, 1e-3, 1e-4)
"""Lengths of a step. A long one meets curves and kinks, a short one rounding: the next is taken where one
disagrees, and a wrong gradient agrees with none."""


def slopes(subject: Subject) -> Finding:
    """Along one random direction for each kind of parameter, all layers together; a central difference with
    Richardson's extrapolation, (4 s(h/2) − s(h)) / 3."""
    module = subject.module(torch.float64)
    ids, targets = (torch.tensor([given[:TOKENS]], device=module.device) for given in subject.pair)
    kinds: dict[str, list[str]] = defaultdict(list)
    parameters = dict(module.named_parameters())
    for name in parameters:
        kinds[_kind(name)].append(name)
    module.zero_grad(set_to_none=True)
    loss(module(ids), targets).backward()
    told: dict[str, float] = {}
    for kind, names in kinds.items():
        way, gradients = _direction(module, names), {name: parameters[name].grad for name in names}
        told[kind] = sum(float((g * way[name]).sum()) for name, g in gradients.items() if g is not None)
    module.zero_grad(set_to_none=True)
    size, worst = max(map(abs, told.values())), 0.0
    for kind, slope in told.items():
        loss_at = partial(_loss_at, module, _direction(module, kinds[kind]), ids, targets)
        for step in STEPS:
            measured = _slope(loss_at, step)
            error = abs(slope - measured) / (max(abs(slope), size * 1e-3) or 1.0)
            if error <= TOLERANCE:
                break
        else:
            story = f"along all of {kind}, the gradient says {slope!r} and the loss changes by {measured!r}"
            return Finding("BUG", f"{error:.1e}", f"d.{kind}", story)
        worst = max(worst, error)
    return Finding("equal", f"{worst:.1e} of {len(told)} directions")


def _direction(module: Transformer, names: list[str]) -> dict[str, torch.Tensor]:
    """One direction of length 1, the same whenever it is asked for."""
    dice = torch.Generator().manual_seed(0)
    shapes = {name: module.get_parameter(name).shape for name in names}
    way = {name: torch.randn(shape, dtype=torch.float64, generator=dice) for name, shape in shapes.items()}
    length = math.sqrt(sum(float(part.square().sum()) for part in way.values()))
    return {name: (part / length).to(module.device) for name, part in way.items()}


@torch.no_grad()
def _loss_at(
    module: Transformer, way: Mapping[str, torch.Tensor], ids: torch.Tensor, targets: torch.Tensor, far: float
) -> float:
    """The loss with the parameters moved so far this way; they are put back as they were."""
    moved = {name: module.get_parameter(name) for name in way}
    before = {name: parameter.clone() for name, parameter in moved.items()}
    for name, parameter in moved.items():
        parameter.add_(way[name], alpha=far)
    found = float(loss(module(ids), targets))
    for name, parameter in moved.items():
        parameter.copy_(before[name])
    return found


def _slope(loss_at: Callable[[float], float], h: float) -> float:
    def central(h: float) -> float:
        return (loss_at(h) - loss_at(-h)) / (2 * h)

    return (4 * central(h / 2) - central(h)) / 3


def _kind(name: str) -> str:
    row = describe(name)
    first, _, rest = name.partition(".")
    return f"blocks.*.{rest.partition('.')[2]}" if row and first == "blocks" else name


CHECKS = (
    Check(
        "slopes",
        "the loss changes along each kind of parameter as its gradient says",
        f"{TOLERANCE:g}",
        slopes,
        quick=False,
    ),
)
