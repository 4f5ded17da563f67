"""A check: one claim about a model, its error budget, and the function that measures it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.errors import TokenError
from pellucid.explain.trace import Trace
from pellucid.format import pluralize
from pellucid.judge.mismatch import explain_mismatch, find_mismatch, kind_of, largest, scales_by_kind
from pellucid.judge.verdict import Finding, Verdict
from pellucid.model.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.workbench import Model

TEXT = (
    "The old lighthouse keeper counted the ships every evening. On the third of May, at 7:45, he counted "
    "twelve; the thirteenth came an hour later, without a light, and no one aboard could say why."
)
LENGTH = 32
"""How many tokens most checks read: enough for every kind of step, few enough for float64 on two cores."""


class Subject:
    """A model that is verified."""

    def __init__(self, model: Model, text: str = TEXT) -> None:
        self.model, self.text = model, text

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The weights, held here because many checks read them and a file would be read again for each."""
        return dict(self.model.weights)

    @cached_property
    def all_ids(self) -> list[int]:
        """The ids of the text; where the model cannot encode it, random ids from a fixed seed."""
        try:
            ids = self.model.encode(self.text)
        except TokenError:
            ids = np.random.default_rng(0).integers(0, self.config.vocab_size, LENGTH).tolist()
        return ids[: self.config.context_length]

    @property
    def ids(self) -> list[int]:
        return self.all_ids[:LENGTH]

    @property
    def pair(self) -> tuple[list[int], list[int]]:
        """The ids that are read, and their targets: the id after each."""
        return (self.ids[:-1], self.ids[1:]) if len(self.ids) > 1 else (self.ids, self.ids)

    def module(self, dtype: torch.dtype, layers: int | None = None) -> Transformer:
        """Returns the fast engine in a type; with `layers`, only that many of the first blocks."""
        if self._made and self._made[0] == (dtype, layers):
            return self._made[1]
        self._made = None  # one at a time: a real model in float64 is large
        config = self.config if layers is None else replace(self.config, n_layer=layers)
        weights = {name: self.weights[name] for name in config.parameters()}
        module = Transformer.from_weights(config, weights, self.model.resolve_device(), dtype).eval()
        self._made = (dtype, layers), module
        return module

    _made: tuple[Any, Transformer] | None = None

    @cached_property
    def program(self) -> Tape:
        """The specification's forward pass on the pair, which several checks share."""
        ids, targets = self.pair
        return forward(self.config, self.weights, [ids], [targets])

    def trace(self, tape: Tape, ids: list[int]) -> Trace:
        """Returns a trace of the tape with the tokens of its positions, for messages."""
        tokens = [self.model.token(id) for id in ids]
        return Trace(tape, {}, {"t": tokens, "s": tokens})


@dataclass(frozen=True)
class Check:
    """One claim about a model, a complete sentence."""

    name: str
    claim: str
    budget: str
    measure: Callable[[Subject], Finding]
    quick: bool = True
    """Whether it also runs with `--quick`."""
    required: bool = False
    """Whether the checks after it are not run where it finds a bug: they would measure that bug again, and
    blame something else."""

    def run(self, subject: Subject) -> Finding:
        """Measures the claim on a model."""
        start = time.perf_counter()
        found = self.measure(subject)
        seconds = time.perf_counter() - start
        return replace(found, name=self.name, claim=self.claim, allowed=self.budget, seconds=seconds)


def compare_values(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float, trace: Trace | None = None
) -> Finding:
    """Returns EQUAL where every wanted value is within the tolerance, else BUG at the first that is not."""
    scales = scales_by_kind(wanted)
    worst = 0.0
    for name, value in wanted.items():
        scale = scales[kind_of(name)]
        if found := find_mismatch(name, got[name], value, tolerance, scale):
            message = explain_mismatch(found, trace) if trace and name in trace.tape else str(found)
            return Finding(Verdict.BUG, f"{found.got:.6g} for {found.wanted:.6g}", name, message)
        worst = max(worst, _largest_error(got[name], value) / (max(largest([value]), scale * 1e-3) or 1.0))
    return Finding(Verdict.EQUAL, f"{worst:.1e} of {pluralize(len(wanted), 'value')}")


def _largest_error(got: Array, wanted: Array) -> float:
    is_finite = np.isfinite(wanted)
    return float(np.abs(got[is_finite] - wanted[is_finite]).max(initial=0.0))
