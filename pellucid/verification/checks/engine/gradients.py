"""Checks gradients: by finite differences, the loss changes as its gradient says; and every path that
training takes has those of the specification, unwatched: fused and chunked losses, joined products, packed
rows, activation checkpointing."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pellucid.base.names import IGNORE_INDEX, describe
from pellucid.engine.chunked_loss import chunked_loss, has_kernel
from pellucid.engine.linear import to_floats
from pellucid.engine.loss import loss
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.checks.check import Subject, compare_values
from pellucid.verification.verdict import Finding, Verdict

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


TOKENS = 8
SMOOTHING, Z = 0.1, 1e-3
TOLERANCE = 1e-7
"""Kernels subtract what is nearly equal in the gradient of a saturated softmax; a wrong path is off by much
more."""
KERNEL_TOLERANCE = 1e-3
"""Of the GPU kernel, which computes in float32, relative to the largest gradient of each parameter."""

Loss = Callable[[Transformer, Tensor, Tensor, Tensor], Tensor]
"""The loss of a batch: ids, targets and segments [B T]."""


def _compute_fused(module: Transformer, ids: Tensor, targets: Tensor, segments: Tensor) -> Tensor:
    return loss(module(ids, segments=segments), targets, smoothing=SMOOTHING, z=Z)


def _compute_chunked(module: Transformer, ids: Tensor, targets: Tensor, segments: Tensor) -> Tensor:
    """Chunks of three rows: the last one is shorter."""
    weight = to_floats(module.unembedding)
    x = module.hidden_states(ids, segments=segments)
    return chunked_loss(
        x, weight, module.unembed.bias, targets, chunk=3, cap=module.cap, smoothing=SMOOTHING, z=Z
    )


def _compute_checkpointed(module: Transformer, ids: Tensor, targets: Tensor, segments: Tensor) -> Tensor:
    with _checkpointing(module):
        return _compute_fused(module, ids, targets, segments)


@contextmanager
def _checkpointing(module: Transformer) -> Iterator[None]:
    before, module.checkpointing = module.checkpointing, True
    try:
        yield
    finally:
        module.checkpointing = before


LOSSES: dict[str, Loss] = {
    "fused": _compute_fused,
    "chunked": _compute_chunked,
    "checkpointed": _compute_checkpointed,
}


def measure_backward_paths(subject: Subject) -> Finding:
    """Compares loss and gradients of each path with the specification's, on two packed rows with targets that
    do not count."""
    subject = subject.excerpt
    length = min(TOKENS, subject.config.context_length)
    rows = [subject.make_ids(length + 1, seed) for seed in range(2)]
    ids, targets = [row[:-1] for row in rows], [row[1:] for row in rows]
    targets[0][length // 2], targets[1][0] = IGNORE_INDEX, IGNORE_INDEX
    segments = [[int(place >= length // 3) for place in range(length)], [0] * length]
    config, weights = subject.config, subject.weights
    tape = forward(
        config, weights, ids, targets, objective={"smoothing": SMOOTHING, "z": Z}, segments=np.array(segments)
    )
    tape.backward(tape.ref("loss"))
    given = [torch.tensor(part, device=subject.model.resolve_device()) for part in (ids, targets, segments)]
    names = ["loss", *(f"d.{name}" for name in weights if f"d.{name}" in tape)]
    wanted = {name: tape[name] for name in names}
    worst = ""
    for path, compute in LOSSES.items():
        got = _compute_gradients(subject.module(torch.float64), compute, given)
        found = compare_values(got, wanted, TOLERANCE)
        if found.verdict is Verdict.BUG:
            return Finding(Verdict.BUG, f"{path}: {found.measured}", found.at, found.message)
        worst = max(worst, found.measured)
    if has_kernel(given[0], None) and config.logit_cap.is_none:
        got = _compute_gradients(subject.module(torch.float32), _compute_chunked, given)
        found = compare_values(got, wanted, KERNEL_TOLERANCE)
        if found.verdict is Verdict.BUG:
            return Finding(Verdict.BUG, f"GPU kernel: {found.measured}", found.at, found.message)
    part = subject.describe_excerpt()
    return Finding(Verdict.EQUAL, f"{worst}, {', '.join(LOSSES)}" + f"; {part}" * bool(part))


def _compute_gradients(module: Transformer, compute: Loss, given: list[Tensor]) -> dict[str, Array]:
    """Returns the loss and the gradient of each parameter; one that has none is zero."""
    with torch.enable_grad():
        value = compute(module, *given)
        parameters = dict(module.named_parameters())
        grads = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    found = {
        f"d.{name}": torch.zeros_like(parameter) if grad is None else grad
        for (name, parameter), grad in zip(parameters.items(), grads, strict=True)
    }
    return {name: tensor.detach().double().cpu().numpy() for name, tensor in {"loss": value, **found}.items()}
