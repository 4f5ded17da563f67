"""The recorder: how large activations, gradients, weights and updates are, at the first and every N-th step.

    recorder = Recorder(every=100)
    train_step(state, [recorder])
    recorder.take()                     # Recorded, or None

For each parameter: the norms of its gradient before clipping and of the weight, and the norm of its update
relative to that of the weight. For some activations in each block: root mean square, largest magnitude and
share of zeros, from one more forward pass of the updated weights over a few rows of the batch. That pass is
eager, has no dropout and draws no random number, so that no bit of the training depends on it. All figures
are copied from the device at once.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.patterns import matches
from pellucid.data.rows import Batch
from pellucid.engine.taps import current_watcher, look
from pellucid.training.distributed.sharded import full_tensor
from pellucid.training.events import Recorded
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.state import TrainState
from pellucid.training.step import Hook

ACTIVATIONS = (
    "embedded",
    "blocks.*.attn_out",
    "blocks.*.mlp.hidden",
    "blocks.*.mlp_out",
    "blocks.*.resid_post",
    "final_norm.out",
    "logits",
)
"""Activations that are recorded, where a model has them."""
MAX_TOKENS = 512
"""Tokens of the extra forward pass, at most; but at least one row."""
DIGITS = 5
Figures = dict[tuple[str, str], Tensor]
"""By the name of a value and of the statistic."""


class _BeforeUpdate(NamedTuple):
    weights: list[Tensor]
    grad_norms: Sequence[Tensor]


class Recorder(Hook):
    """Records the first step and every `every`-th; none where that is 0."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._before: _BeforeUpdate | None = None
        self._recorded: Recorded | None = None

    def take(self) -> Recorded | None:
        """Returns what was recorded last, once."""
        recorded, self._recorded = self._recorded, None
        return recorded

    def after_backward(self, state: TrainState) -> None:
        step = state.meters.step + 1
        self._before = None
        if self.every and (step == 1 or step % self.every == 0):
            weights = [weight.detach().clone() for weight in _learning(state).values()]
            self._before = _BeforeUpdate(weights, torch._foreach_norm(state.weights.grads()))

    def after_update(self, state: TrainState, batch: DeviceBatch, is_finite: Tensor) -> None:
        before, self._before = self._before, None
        if before is None or not is_finite:
            return
        learning = _learning(state)
        norms = torch._foreach_norm(before.weights)
        torch._foreach_sub_(before.weights, [weight.detach() for weight in learning.values()])
        ratios = torch._foreach_div(torch._foreach_norm(before.weights), norms)
        activations = _measure_activations(state, batch.batch)
        parameters = _columns(learning, gradient=before.grad_norms, weight=norms, ratio=ratios)
        table = _to_table(activations | parameters)
        self._recorded = Recorded(
            state.meters.step + 1,
            {name: table[name] for name, _ in activations},
            {name: table[name] for name in learning},
        )


def _learning(state: TrainState) -> dict[str, Tensor]:
    return {name: weight for name, weight in state.weights.trainable.items() if weight.grad is not None}


@torch.no_grad()
def _measure_activations(state: TrainState, batch: Batch) -> Figures:
    """Returns the statistics of the activations; none where someone else records, who would see this pass."""
    found: Figures = {}
    if current_watcher(state.model) is not None:
        return found

    def measure(name: str, value: Tensor) -> None:
        if matches(name, ACTIVATIONS):
            wide = value.float()
            found[name, "rms"] = torch.linalg.vector_norm(wide) / wide.numel() ** 0.5
            found[name, "max"] = torch.linalg.vector_norm(wide, float("inf"))
            found[name, "zeros"] = (wide == 0).float().mean()

    rows = max(1, MAX_TOKENS // batch.ids.shape[1])
    given = (array[:rows] for array in (batch.ids, batch.segments) if array is not None)
    inputs = [torch.from_numpy(array).to(state.device, torch.int64) for array in given]
    state.model.eval()
    try:
        with state.parallel.gather_weights(), look(measure, fused=True):
            state.objective.logits(*inputs)
    finally:
        state.model.train()
    return found


def _columns(names: Iterable[str], **columns: Sequence[Tensor]) -> Figures:
    return {(n, column): x for column, xs in columns.items() for n, x in zip(names, xs, strict=True)}


def _to_table(figures: Figures) -> dict[str, dict[str, float]]:
    """Returns the figures by name, copied in one transfer and rounded; those that are not finite are omitted,
    such as the relative update of a weight that is 0."""
    numbers = torch.stack([full_tensor(figure).double() for figure in figures.values()]).tolist()
    table: dict[str, dict[str, float]] = {}
    for (name, column), number in zip(figures, numbers, strict=True):
        row = table.setdefault(name, {})
        if math.isfinite(number):
            row[column] = float(f"{number:.{DIGITS}g}")
    return table
