"""Checks the gradients of every path that training takes, unwatched: fused and chunked losses, joined
products, packed rows, activation checkpointing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from pellucid.base.names import IGNORE_INDEX
from pellucid.engine.chunked_loss import chunked_loss, has_kernel
from pellucid.engine.linear import to_floats
from pellucid.engine.loss import loss
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.checks.check import Check, Subject, compare_values
from pellucid.verification.verdict import Finding, Judged, Verdict

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


CHECKS = (
    Check(
        "backward paths",
        "Each gradient of a fused, chunked or checkpointed pass equals the specification's.",
        f"{TOLERANCE:g}",
        measure_backward_paths,
        Judged.PROGRAM,
        quick=False,
        needs_floats=True,
    ),
)
