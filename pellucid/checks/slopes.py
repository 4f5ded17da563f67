"""Gradients against differences: the loss really changes as its gradient says."""

import math
from collections import defaultdict
from collections.abc import Callable

import torch

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.model.loss import loss
from pellucid.names import describe

TOLERANCE = 1e-7
TOKENS = 8


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
    dice = torch.Generator().manual_seed(0)
    worst, size = 0.0, 0.0
    found = []
    with torch.no_grad():
        for kind, names in kinds.items():
            way = {
                name: torch.randn(parameters[name].shape, dtype=torch.float64, generator=dice)
                for name in names
            }
            length = math.sqrt(sum(float(w.square().sum()) for w in way.values()))
            told = sum(
                float((p.grad.cpu() * way[name]).sum()) / length
                for name in names
                if (p := parameters[name]).grad is not None
            )

            def shifted(amount: float, way: dict[str, torch.Tensor] = way, length: float = length) -> float:
                for name, direction in way.items():
                    parameters[name].add_(direction.to(module.device), alpha=amount / length)
                found = float(loss(module(ids), targets))
                for name, direction in way.items():
                    parameters[name].sub_(direction.to(module.device), alpha=amount / length)
                return found

            found.append((kind, told, _slope(shifted, 1e-2)))
    module.zero_grad(set_to_none=True)
    size = max(abs(told) for _, told, _ in found)
    for kind, told, measured in found:
        error = abs(told - measured) / max(abs(told), size * 1e-3)
        if error > TOLERANCE:
            story = f"along all of {kind}, the gradient says {told!r} and the loss changes by {measured!r}"
            return Finding("BUG", f"{error:.1e}", f"d.{kind}", story)
        worst = max(worst, error)
    return Finding("equal", f"{worst:.1e} of {len(found)} directions")


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
