"""A model with fewer blocks, tokens and positions, for checks of code that every block and token shares.

Its parameters are the first rows of the model's own, so that both engines compute with the same numbers.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Subject

LAYERS = 2
"""One block reads the embedding, the other one the output of a block."""


class ReducedModel:
    """The first `layers` blocks, `vocabulary` tokens and `context` positions of a model, or as many as it
    has."""

    def __init__(
        self,
        subject: Subject,
        *,
        layers: int = LAYERS,
        vocabulary: int | None = None,
        context: int | None = None,
    ) -> None:
        self.subject, own = subject, subject.config
        self.config: ModelConfig = replace(
            own,
            n_layer=min(layers, own.n_layer),
            vocab_size=min(vocabulary or own.vocab_size, own.vocab_size),
            context_length=min(context or own.context_length, own.context_length),
        )

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The first rows and columns of the model's own weights."""
        return {
            name: self.subject.weights[name][tuple(slice(size) for size in shape)]
            for name, shape in self.config.parameters().items()
        }

    def module(
        self, dtype: torch.dtype, *, context: int | None = None, layers: int | None = None
    ) -> Transformer:
        """Returns the fast engine in a type; `context` and `layers` reduce it further."""
        config = replace(
            self.config,
            context_length=min(context or self.config.context_length, self.config.context_length),
            n_layer=min(layers or self.config.n_layer, self.config.n_layer),
        )
        weights = {
            name: self.weights[name][tuple(slice(size) for size in shape)]
            for name, shape in config.parameters().items()
        }
        return Transformer.from_weights(config, weights, self.subject.model.resolve_device(), dtype).eval()

    def ids(self, count: int) -> list[int]:
        """Returns `count` tokens: those of the model's text, then random ones."""
        return [id % self.config.vocab_size for id in self.subject.make_ids(count)]


def gives_finite_logits(module: Transformer, rows: int = 8) -> bool:
    """Returns whether an uncached run gives finite logits for `rows` random texts; in float16 a number may
    be too large."""
    length = min(12, module.config.context_length)
    ids = np.random.default_rng(0).integers(0, module.config.vocab_size, (rows, length))
    with torch.no_grad():
        return bool(module(torch.from_numpy(ids).to(module.device)).isfinite().all())
