"""Locates the first NaN or Inf of a step: its name, and which inputs it was computed from.

When a loss or a gradient is not finite, the same micro-batches are computed once more from the same RNG
state, on the explicit path where every value has a name, and each value is checked as it passes. The inputs
of a value are those of the specification's step of that name, in a small model of the same architecture.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.base.errors import PellucidError
from pellucid.base.formatting import format_number
from pellucid.config import ModelConfig
from pellucid.engine.taps import look
from pellucid.training import step
from pellucid.training.distributed.sharded import full_tensor
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.saving import rng
from pellucid.training.state import TrainState
from pellucid.training.step import Hook, Nonfinite

if TYPE_CHECKING:  # the specification is imported where a step has a NaN
    from pellucid.reference.tape import Tape

_LAYER = re.compile(r"blocks\.(\d+)\.")
LAYERS, TOKENS, CHANNELS = 3, 2, 4
"""The smallest model in which the first, an inner and the last block differ."""


class ValueSummary(NamedTuple):
    """How many numbers a value has, how many are NaN or infinite, and the range of the others."""

    size: int
    nan: int
    infinite: int
    low: float
    high: float

    @property
    def nonfinite(self) -> int:
        return self.nan + self.infinite

    def __str__(self) -> str:
        """
        >>> str(ValueSummary(4096, 0, 12, -1.0, 3.1e38)), str(ValueSummary(8, 0, 0, -1.0, 2.0))
        ('12 of 4,096 are infinite', 'from -1 to 2')
        """
        if not self.nonfinite:
            return f"from {format_number(self.low, 3)} to {format_number(self.high, 3)}"
        if not self.nan:
            return f"{self.infinite:,} of {self.size:,} are infinite"
        infinite = f", {self.infinite:,} infinite" if self.infinite else ""
        return f"{self.nan:,} of {self.size:,} are NaN{infinite}"


class NonfiniteLocator(Hook):
    """Names the first NaN or Inf of a skipped step. Weights and RNG state stay those of the step."""

    def before_forward(self, state: TrainState, batch: DeviceBatch) -> None:
        self._rng_state = rng.get_torch_rng_state(state.device)

    def locate_nonfinite(self, state: TrainState, batch: DeviceBatch, loss: float) -> Nonfinite:
        """Repeats the forward and backward pass from the RNG state before it, checking each value."""
        first_grad = _first_nonfinite_grad(state)
        after = rng.get_torch_rng_state(state.device)
        values = _Values()
        state.weights.zero_grads()
        rng.set_torch_rng_state(self._rng_state, state.device)
        try:
            with look(values):
                step.forward_backward(state, batch)
        except torch.OutOfMemoryError:  # the explicit path takes more memory than the fused one
            if not state.ranks.is_single_process:
                raise  # the others wait for its gradients
            state.weights.zero_grads()
            return Nonfinite(_first(_Values(), loss, first_grad))
        finally:
            rng.set_torch_rng_state(after, state.device)
        name = _first(values, loss, first_grad)
        summaries = dict(values.before or values.summaries)
        for weight, parameter in state.weights.named.items():
            summaries.setdefault(weight, summarize(weight, parameter))
            if parameter.grad is not None:
                summaries.setdefault(f"d.{weight}", summarize(f"d.{weight}", parameter.grad))
        return Nonfinite(name, _describe(name, summaries, state.model.config))


def _first(values: "_Values", loss: float, first_grad: str) -> str:
    """Returns the first in the order of computation: value, loss, gradient, parameter's gradient."""
    name = values.first_nonfinite
    if name and (not name.startswith("d.") or math.isfinite(loss)):
        return name
    return first_grad if math.isfinite(loss) and first_grad else "loss"


def _first_nonfinite_grad(state: TrainState) -> str:
    """Returns the name of the first parameter gradient that is not finite; empty where there is none."""
    grads = ((n, p.grad) for n, p in state.weights.named.items() if p.grad is not None)
    return next((f"d.{name}" for name, grad in grads if not full_tensor(torch.isfinite(grad).all())), "")


class _Values:
    """Summarizes the values that pass, and their gradients in the backward pass."""

    def __init__(self) -> None:
        self.summaries: dict[str, ValueSummary] = {}
        self.first_nonfinite = ""
        self.before: dict[str, ValueSummary] = {}
        """What had passed when the first NaN or Inf came."""

    def __call__(self, name: str, value: Tensor) -> None:
        self.add(name, value)
        if value.requires_grad:
            value.register_hook(lambda grad: self.add(f"d.{name}", grad))

    def add(self, name: str, value: Tensor) -> None:
        self.summaries[name] = summary = summarize(name, value)
        if summary.nonfinite and not self.first_nonfinite:
            self.first_nonfinite, self.before = name, dict(self.summaries)


def summarize(name: str, value: Tensor) -> ValueSummary:
    value = full_tensor(value.detach())
    if name.endswith(".masked"):  # where −∞ is right
        value = torch.where(value == -math.inf, 0.0, value)
    finite = torch.isfinite(value)
    nan, infinite = int(torch.isnan(value).sum()), int(torch.isinf(value).sum())
    if nan + infinite == value.numel():
        return ValueSummary(value.numel(), nan, infinite, math.nan, math.nan)
    low, high = torch.where(finite, value, math.inf).min(), torch.where(finite, value, -math.inf).max()
    return ValueSummary(value.numel(), nan, infinite, float(low), float(high))


def _describe(name: str, summaries: dict[str, ValueSummary], config: ModelConfig) -> str:
    scope = name.removeprefix("d.").rpartition(".")[0]
    sources = [
        f"{_short(source, scope)} ({summaries[source]})"
        for source in dict.fromkeys(inputs(config, name, set(summaries)))
        if source in summaries
    ]
    own = [str(summaries[name])] if name in summaries and summaries[name].nonfinite else []
    return "; ".join([*own, *([f"computed from {' and '.join(sources)}"] if sources else [])])


def _short(name: str, scope: str) -> str:
    d = "d." if name.startswith("d.") else ""
    return d + name.removeprefix("d.").removeprefix(f"{scope}.") if scope else name


# ---- the inputs of a value


def inputs(config: ModelConfig, name: str, known: set[str]) -> Iterator[str]:
    """Yields the known values that a value is computed from, by the steps of the specification."""
    if name.endswith(".dropped"):
        yield from (name.removesuffix(".dropped"), name.removesuffix("dropped") + "keep")
        return
    try:
        tape = _small_tape(config)
    except PellucidError:  # the architecture has no small model
        return
    layer = _LAYER.search(name)
    shift = 0
    if layer:
        here = int(layer[1])
        inner = here if here == 0 else LAYERS - 1 if here == config.n_layer - 1 else 1
        shift = here - min(inner, here)
    yield from _inputs(tape, _shift(name, -shift), known, shift)


def _inputs(tape: "Tape", name: str, known: set[str], shift: int) -> Iterator[str]:
    found = tape.steps.get(tape.resolve(name))
    for read in found.inputs if found else ():
        if (source := _shift(read, shift)) in known:
            yield source
        else:
            yield from _inputs(tape, read, known, shift)


def _shift(name: str, shift: int) -> str:
    """Returns the same name in a layer further up by `shift`."""
    return _LAYER.sub(lambda found: f"blocks.{int(found[1]) + shift}.", name)


def _small_tape(config: ModelConfig) -> "Tape":
    """Returns forward and backward of a model of the same architecture and the smallest sizes."""
    from pellucid.reference.training import forward

    d_head = min(config.d_head, CHANNELS)
    small = replace(
        config,
        n_layer=min(config.n_layer, LAYERS),
        vocab_size=min(config.vocab_size, CHANNELS),
        d_head=d_head,
        d_model=config.n_head * d_head,
        d_ff=min(config.d_ff, CHANNELS),
    )
    weights = {name: np.zeros(shape) for name, shape in small.parameters().items()}
    ids = np.zeros((1, min(TOKENS, config.context_length)), int)
    with np.errstate(all="ignore"):
        tape = forward(small, weights, ids, ids)
        tape.backward(tape.ref("loss"))
    return tape
