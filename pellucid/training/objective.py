"""The model and its loss as one module, which is compiled and which DDP or FSDP wraps."""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.base.errors import ConfigError, PellucidError
from pellucid.engine.chunked_loss import chunked_loss, has_kernel
from pellucid.engine.linear import to_floats
from pellucid.engine.loss import loss
from pellucid.engine.taps import is_explicit
from pellucid.engine.transformer import Transformer
from pellucid.text.tokenizer import Tokenizer
from pellucid.training.recipe.sections import TrainSettings

LOGITS = {"cpu": (1 << 22, 1 << 21), "cuda": (1 << 30, 1 << 30), "kernel": (1 << 26, 1 << 31)}
"""By device, the number of logits above which they are computed in chunks, and the number in one chunk: what
a CPU's cache holds, and what a GPU's memory can spare. The Triton kernel overwrites logits with their
gradients and is faster than a softmax, so it is used for fewer logits and takes larger chunks."""


class Objective(nn.Module):
    """Computes the mean loss over the counted targets from ids and targets [B T].

    `segments` [B T] numbers the documents of packed rows, which do not see each other. `class_weights` [V]
    weighs the targets, Σ w nll / Σ w.
    """

    class_weights: Tensor | None

    def __init__(
        self, model: Transformer, asked: TrainSettings, dtype: str, class_weights: Tensor | None = None
    ) -> None:
        super().__init__()
        self.model, self.asked, self.dtype = model, asked, dtype
        self.register_buffer("class_weights", class_weights, persistent=False)
        model.checkpointing = asked.activation_checkpointing
        model.cover(
            model.config.context_length
        )  # the length of a row, so that a compiled step stays as it is

    def forward(self, ids: Tensor, targets: Tensor, segments: Tensor | None = None) -> Tensor:
        asked, model = self.asked, self.model
        where = "kernel" if has_kernel(ids, model.cap) else ids.device.type
        chunk = asked.logits_chunk or chunk_for(ids.numel(), model.config.vocab_size, where)
        if not chunk or self.class_weights is not None or is_explicit(model):  # a recording has the logits
            return loss(
                self._logits(ids, segments), targets, smoothing=asked.label_smoothing, z=asked.z_loss,
                class_weights=self.class_weights,
            )  # fmt: skip
        weight = to_floats(model.unembedding)
        with self._precision():
            return chunked_loss(
                model.hidden_states(ids, segments=segments), weight, model.unembed.bias, targets,
                chunk=chunk, cap=model.cap, smoothing=asked.label_smoothing, z=asked.z_loss,
            )  # fmt: skip

    def logits(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """Returns the logits [B T V]; a method of its own, so that FSDP gathers the weights for it."""
        return self._logits(ids, segments)

    def _logits(self, ids: Tensor, segments: Tensor | None) -> Tensor:
        with self._precision():
            logits: Tensor = self.model(ids, segments=segments)
            return logits

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Autocasts products to bfloat16, where the recipe says so and the weights are wider."""
        narrow = self.dtype == "bfloat16" and self.model.dtype != torch.bfloat16
        device = self.model.device.type
        return torch.autocast(device, torch.bfloat16) if narrow else contextlib.nullcontext()


def make_class_weights(weights: Mapping[str, float], tokenizer: Tokenizer, size: int) -> Tensor | None:
    """Returns the weight of each of `size` tokens, [V] float64; None where all are 1.

    A token is named as the tokenizer has it, or by a text that is one token, or by its id.
    """
    if not weights:
        return None
    table = torch.ones(size, dtype=torch.float64)
    for text, weight in weights.items():
        table[_find_token(text, tokenizer)] = weight
    return table


def _find_token(text: str, tokenizer: Tokenizer) -> int:
    if (id := tokenizer.id_of(text)) is not None:
        return id
    ids = []
    with contextlib.suppress(PellucidError):
        ids = tokenizer.encode(text)
    if len(ids) == 1 and tokenizer.decode(ids) == text:
        return ids[0]
    if text.isdecimal() and int(text) < tokenizer.vocab_size:
        return int(text)
    tokens = ", ".join(repr(tokenizer.decode([id])) for id in ids[:8])
    raise ConfigError(
        f"train.class_weights names {text!r}, which is not one token of this tokenizer"
        + (f": it is encoded as {tokens}. Weigh these, or give an id" if tokens else ". Give an id")
        + f" from 0 to {tokenizer.vocab_size - 1}."
    )


def chunk_for(positions: int, vocab_size: int, where: str) -> int:
    """Returns the positions of a chunk, where the logits of all are too many at once; else 0.

    >>> chunk_for(16 * 256, 5000, "cpu"), chunk_for(12 * 64, 65, "cpu"), chunk_for(64 * 1024, 50304, "kernel")
    (410, 0, 32768)
    """
    few, at_once = LOGITS.get(where, LOGITS["cpu"])
    chunks = math.ceil(positions * vocab_size / at_once)
    return math.ceil(positions / chunks) if positions * vocab_size > few else 0
