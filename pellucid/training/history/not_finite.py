"""Where the first number that is none came from: its name, and what it was made of.

When a loss or a gradient is not finite, the same micro-batches are run once more with the same dice, on the
path where every value has a name, and each value is looked at as it passes. What a value is made of is known
to the specification: the steps of a model of the same choices and the smallest sizes.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.errors import PellucidError
from pellucid.explain.expression import figure
from pellucid.model.taps import look
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.training.distributed.pieces import whole
from pellucid.training.feed import Fed
from pellucid.training.saving import randomness

if TYPE_CHECKING:
    from pellucid.training.loop import Trainer

_LAYER = re.compile(r"blocks\.(\d+)\.")
LAYERS, TOKENS, CHANNELS = 3, 2, 4
"""The smallest model whose first, inner and last blocks can be told apart."""


class Figures(NamedTuple):
    """A value at a glance: how many numbers, how many are NaN or infinite, and the ends of the rest."""

    size: int
    nan: int
    infinite: int
    low: float
    high: float

    @property
    def bad(self) -> int:
        return self.nan + self.infinite

    def __str__(self) -> str:
        """
        >>> str(Figures(4096, 0, 12, -1.0, 3.1e38)), str(Figures(8, 0, 0, -1.0, 2.0))
        ('12 of 4,096 are infinite', 'from -1 to 2')
        """
        told = [
            f"{count:,} {word}" for count, word in ((self.nan, "NaN"), (self.infinite, "infinite")) if count
        ]
        if not told:
            return f"from {figure(self.low, 3)} to {figure(self.high, 3)}"
        first, *more = told
        count, word = first.split(" ")
        return f"{count} of {self.size:,} are {word}" + "".join(f", {one}" for one in more)


class Located(NamedTuple):
    """The first value that was not finite, and in words what it was made of."""

    name: str
    about: str


def located(trainer: "Trainer", fed: Fed, dice: list[Tensor], total: float) -> Located:
    """Run a batch once more from the dice before it, and look; weights and dice are then as they were."""
    outside = _first_slope(trainer)
    after = randomness.torch_dice(trainer.device)
    sight = Sight()
    trainer.weights.forget()
    randomness.throw_again(dice, trainer.device)
    try:
        with look(sight):
            trainer._backward(fed)
    except torch.OutOfMemoryError:  # the explicit path takes more than the fused one
        if not trainer.ranks.alone:
            raise  # the others are waiting for its gradients
        trainer.weights.forget()
        return Located(_first(Sight(), total, outside), "")
    finally:
        randomness.throw_again(after, trainer.device)
    name = _first(sight, total, outside)
    seen = dict(sight.before or sight.seen)
    for weight, parameter in trainer.weights.named.items():
        seen.setdefault(weight, figures(weight, parameter))
        if parameter.grad is not None:
            seen.setdefault(f"d.{weight}", figures(f"d.{weight}", parameter.grad))
    return Located(name, _told(name, seen, trainer.model.config))


def _first(sight: "Sight", total: float, outside: str) -> str:
    """By the order of computation: a value, the loss, a gradient, and at last a parameter's gradient."""
    if sight.bad and (not sight.bad.startswith("d.") or math.isfinite(total)):
        return sight.bad
    return outside if math.isfinite(total) and outside else "loss"


def _first_slope(trainer: "Trainer") -> str:
    """The first parameter whose gradient is not finite."""
    slopes = ((n, p.grad) for n, p in trainer.weights.named.items() if p.grad is not None)
    return next((f"d.{name}" for name, slope in slopes if not whole(torch.isfinite(slope).all())), "")


class Sight:
    """Looks at values as they pass, and at their gradients when they come back."""

    def __init__(self) -> None:
        self.seen: dict[str, Figures] = {}
        self.bad = ""
        self.before: dict[str, Figures] = {}
        """All that was seen when the first bad one came."""

    def __call__(self, name: str, value: Tensor) -> None:
        self.see(name, value)
        if value.requires_grad:
            value.register_hook(lambda slope: self.see(f"d.{name}", slope))

    def see(self, name: str, value: Tensor) -> None:
        self.seen[name] = found = figures(name, value)
        if found.bad and not self.bad:
            self.bad, self.before = name, dict(self.seen)


def figures(name: str, value: Tensor) -> Figures:
    value = whole(value.detach())
    if name.endswith(".masked"):  # −∞ is what it is for
        value = torch.where(value == -math.inf, 0.0, value)
    good = torch.isfinite(value)
    nan, infinite = int(torch.isnan(value).sum()), int(torch.isinf(value).sum())
    if nan + infinite == value.numel():
        return Figures(value.numel(), nan, infinite, math.nan, math.nan)
    low, high = torch.where(good, value, math.inf).min(), torch.where(good, value, -math.inf).max()
    return Figures(value.numel(), nan, infinite, float(low), float(high))


def _told(name: str, seen: dict[str, Figures], config: ModelConfig) -> str:
    scope = name.removeprefix("d.").rpartition(".")[0]
    made_of = [
        f"{_short(read, scope)} ({seen[read]})"
        for read in dict.fromkeys(inputs(config, name, set(seen)))
        if read in seen
    ]
    own = [str(seen[name])] if name in seen and seen[name].bad else []
    return "; ".join([*own, *([f"it is made of {' and '.join(made_of)}"] if made_of else [])])


def _short(name: str, scope: str) -> str:
    d = "d." if name.startswith("d.") else ""
    return d + name.removeprefix("d.").removeprefix(f"{scope}.") if scope else name


# ---- what reads what


def inputs(config: ModelConfig, name: str, known: set[str]) -> Iterator[str]:
    """The known values that a value is made of, by the steps of the specification."""
    if name.endswith(".dropped"):
        yield from (name.removesuffix(".dropped"), name.removesuffix("dropped") + "keep")
        return
    try:
        tape = _small(config)
    except PellucidError:  # a choice that no small model can make
        return
    layer = _LAYER.search(name)
    shift = 0
    if layer:
        here = int(layer[1])
        inner = here if here == 0 else LAYERS - 1 if here == config.n_layer - 1 else 1
        shift = here - min(inner, here)
    yield from _inputs(tape, _moved(name, -shift), known, shift)


def _inputs(tape: Tape, name: str, known: set[str], shift: int) -> Iterator[str]:
    step = tape.steps.get(tape.resolve(name))
    for read in step.inputs if step else ():
        if (called := _moved(read, shift)) in known:
            yield called
        else:
            yield from _inputs(tape, read, known, shift)


def _moved(name: str, shift: int) -> str:
    """The same name, so many layers higher."""
    return _LAYER.sub(lambda found: f"blocks.{int(found[1]) + shift}.", name)


def _small(config: ModelConfig) -> Tape:
    """One step, forward and backward, of a model with the same choices and the smallest sizes."""
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
