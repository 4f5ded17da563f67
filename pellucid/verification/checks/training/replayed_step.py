"""A replayed training step, recorded: everything that it read and computed, for the checks of a run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.data.rows import Batch
from pellucid.engine.dropout import Dropout
from pellucid.engine.lora import LoraLinear
from pellucid.engine.taps import look
from pellucid.reference.op import Array
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.saving import rng
from pellucid.training.state import TrainState
from pellucid.training.step import Hook, forward_backward
from pellucid.verification.runs.rebuilt_step import to_float64

KEEP = ".keep"
"""The end of the name of a dropout mask."""
Tensors = dict[str, Tensor]


class MicroBatch(NamedTuple):
    """The rows that one call of the loss read, and the mean loss that it returned."""

    rows: Batch
    loss: Tensor


class Pass(NamedTuple):
    """The rows of a forward and backward pass, its mean loss and its gradients."""

    rows: Batch
    loss: float
    grads: Tensors


class LossRecorder(Hook):
    """Keeps the micro-batches of a step, their losses, and their dropout masks where it has any.

    For the masks each micro-batch is run once more from the RNG state before it, on the explicit path, where
    masks have names.
    """

    def __init__(self) -> None:
        self.micro_batches: list[MicroBatch] = []
        self.has_drawn = False
        """Whether a forward pass drew random numbers."""
        self.knows_masks = True
        """Whether recording the masks drew exactly the random numbers of the step, so that they are its
        masks: not where a kernel or compiled code draws in its own way, nor of adapters, whose masks have no
        name."""
        self._masks: dict[str, list[Tensor]] = {}

    @property
    def keep(self) -> dict[str, Array]:
        """The masks of the whole batch by name, 0 where a number was dropped; empty where they are not
        known."""
        return {name: to_float64(torch.cat(m)) for name, m in self._masks.items()} if self.knows_masks else {}

    def before_forward(self, state: TrainState, batch: DeviceBatch) -> None:
        loss, rates = state.loss, get_dropout_rates(state)

        def record_loss(ids: Tensor, targets: Tensor, segments: Tensor | None) -> Tensor:
            before = rng.get_torch_rng_state(state.device)
            found = loss(ids, targets, segments)
            self.micro_batches.append(MicroBatch(_to_batch(ids, targets, segments), found.detach()))
            if rates:
                self._record_masks(state, before, ids, segments)
            return found

        self._loss, state.loss = loss, record_loss

    def after_backward(self, state: TrainState) -> None:
        state.loss = self._loss

    def _record_masks(
        self, state: TrainState, before: list[Tensor], ids: Tensor, segments: Tensor | None
    ) -> None:
        after = rng.get_torch_rng_state(state.device)

        def take(name: str, value: Tensor) -> None:
            if name.endswith(KEEP):
                self._masks.setdefault(name, []).append(value.detach())

        rng.set_torch_rng_state(before, state.device)
        with torch.no_grad(), look(take):
            state.objective.logits(ids, segments)
        own = rng.get_torch_rng_state(state.device)
        rng.set_torch_rng_state(after, state.device)
        has_names = not any(m.dropout for m in state.model.modules() if isinstance(m, LoraLinear))
        is_same = state.device.type == "cpu" and all(map(torch.equal, own, after))
        self.knows_masks &= is_same and has_names
        self.has_drawn |= not all(map(torch.equal, before, after))


@dataclass
class StepRecorder(Hook):
    """Keeps the batch of a step, the weights with which it computed, and its gradients before and after
    clipping. Tensors are copies in their own type.

    With `rows`, the gradients to judge are those of a pass of its own before the step, without dropout, over
    this many rows of each micro-batch.
    """

    rows: int | None = None
    weights: Tensors = field(default_factory=dict)
    """Those of the model: rounded copies where the run has masters."""
    trainable: Tensors = field(default_factory=dict)
    """All parameters as the optimizer updates them: masters of bfloat16 weights."""
    grads: Tensors = field(default_factory=dict)
    clipped: Tensors = field(default_factory=dict)
    judged: Pass | None = None
    """The pass of its own."""
    sums: Tensors = field(default_factory=dict)
    """The bfloat16 gradients of all micro-batches, added up in float32 here, where the run has masters."""
    micro_batches: int = 0

    def before_forward(self, state: TrainState, batch: DeviceBatch) -> None:
        self.batch = batch
        self.weights = _copy(dict(state.model.named_parameters()))
        self.trainable = _copy(state.weights.named)
        if self.rows is not None:
            self.judged = self._run_apart(state, batch, self.rows)
        if state.weights.bfloat16:
            self._accumulate, state.weights.accumulate_grads = (  # type: ignore[method-assign]
                state.weights.accumulate_grads,
                lambda: self._add_grads(state),
            )

    def _add_grads(self, state: TrainState) -> None:
        """Adds the gradients of a micro-batch to the sums before the run adds them to its masters."""
        self.micro_batches += 1
        for name, weight in state.weights.bfloat16.items():
            if weight.grad is not None:
                own = weight.grad.detach().to("cpu", torch.float32, copy=True)
                self.sums[name] = self.sums[name] + own if name in self.sums else own
        self._accumulate()

    def after_backward(self, state: TrainState) -> None:
        if state.weights.bfloat16:
            state.weights.accumulate_grads = self._accumulate  # type: ignore[method-assign]
        self.grads = _copy_grads(state)

    def before_update(self, state: TrainState) -> None:
        self.clipped = _copy_grads(state)

    def _run_apart(self, state: TrainState, batch: DeviceBatch, rows: int) -> Pass:
        """Computes loss and gradients of the first rows of each micro-batch; the state stays as it was."""
        before, parts = rng.get_torch_rng_state(state.device), state.recipe.train.accumulate
        size = len(batch.ids) // parts
        chosen = [part * size + row for part in range(parts) for row in range(min(rows, size))]
        documents = batch.batch.segments
        few = Batch(
            batch.batch.ids[chosen],
            batch.batch.targets[chosen],
            None if documents is None else documents[chosen],
        )
        with without_dropout(state):
            loss, _ = forward_backward(state, state.prefetcher.to_device(few))
        found = Pass(few, float(loss), _copy_grads(state))
        state.weights.zero_grads()
        rng.set_torch_rng_state(before, state.device)
        return found


def get_dropout_rates(state: TrainState) -> dict[str, float]:
    """Returns the rate of each value with dropout, by its name; of an adapter by that of its module."""
    rates = {m.name: m.rate for m in state.model.modules() if isinstance(m, Dropout)}
    rates |= {n: m.dropout for n, m in state.model.named_modules() if isinstance(m, LoraLinear)}
    return {name: rate for name, rate in rates.items() if rate}


@contextmanager
def without_dropout(state: TrainState) -> Iterator[None]:
    """In this block every dropout rate is 0, in training mode."""
    layers = [(module, module.rate) for module in state.model.modules() if isinstance(module, Dropout)]
    adapters = [(m, m.dropout) for m in state.model.modules() if isinstance(m, LoraLinear)]
    for layer, _ in layers:
        layer.rate = 0.0
    for adapter, _ in adapters:
        adapter.dropout = 0.0
    try:
        yield
    finally:
        for layer, rate in layers:
            layer.rate = rate
        for adapter, rate in adapters:
            adapter.dropout = rate


def _copy(named: Mapping[str, Tensor]) -> Tensors:
    return {name: value.detach().to("cpu", copy=True) for name, value in named.items()}


def _copy_grads(state: TrainState) -> Tensors:
    return _copy({name: p.grad for name, p in state.weights.trainable.items() if p.grad is not None})


def _to_batch(ids: Tensor, targets: Tensor, segments: Tensor | None) -> Batch:
    documents = None if segments is None else segments.cpu().numpy()
    return Batch(ids.cpu().numpy(), targets.cpu().numpy(), documents)
