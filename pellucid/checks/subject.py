"""The model that is verified, a text for it to read, and its fast engine in the types that checks need."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.errors import TokenError
from pellucid.explain.trace import Trace
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
