"""The model and its loss as one module: what is compiled, and what several processes share."""

import contextlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.model.chunked_loss import by_kernel, chunked_loss
from pellucid.model.loss import loss
from pellucid.model.taps import is_explicit
from pellucid.model.transformer import Transformer
from pellucid.training.recipe.sections import TrainSettings

LOGITS = {"cpu": (1 << 22, 1 << 21), "cuda": (1 << 30, 1 << 30), "kernel": (1 << 26, 1 << 31)}
"""From how many on they are made in chunks, and how many make one: what a processor's cache holds, and what
a GPU's memory can spare; less often where they are copied into float32 than where one kernel, which is also
quicker than a softmax and its slope, writes over them."""


class Objective(nn.Module):
    """Ids and targets [B T] in, the mean loss over the targets that count out."""

    def __init__(self, model: Transformer, asked: TrainSettings, dtype: str) -> None:
        super().__init__()
        self.model, self.asked, self.dtype = model, asked, dtype
        model.checkpointing = asked.activation_checkpointing

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        asked, model = self.asked, self.model
        where = "kernel" if by_kernel(ids, model.cap) else ids.device.type
        chunk = asked.logits_chunk or chunk_for(ids.numel(), model.config.vocab_size, where)
        if not chunk or is_explicit(model):  # a recording wants to see the logits
            return loss(self._logits(ids), targets, smoothing=asked.label_smoothing, z=asked.z_loss)
        weight = model.embed.weight if model.unembed.weight is None else model.unembed.weight
        with self._precision():
            return chunked_loss(
                model.hidden_states(ids), weight, model.unembed.bias, targets, chunk=chunk, cap=model.cap,
                smoothing=asked.label_smoothing, z=asked.z_loss,
            )  # fmt: skip

    def logits(self, ids: Tensor) -> Tensor:
        """For who has no targets; beside `forward`, so that sharded weights are gathered for either."""
        return self._logits(ids)

    def _logits(self, ids: Tensor) -> Tensor:
        with self._precision():
            logits: Tensor = self.model(ids)
            return logits

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Products in half precision, where that is asked for and the weights are wider."""
        narrow = self.dtype == "bfloat16" and self.model.dtype != torch.bfloat16
        device = self.model.device.type
        return torch.autocast(device, torch.bfloat16) if narrow else contextlib.nullcontext()


def chunk_for(positions: int, vocab_size: int, where: str) -> int:
    """How many positions make a chunk, where their logits are too many at once; else 0.

    >>> chunk_for(16 * 256, 5000, "cpu"), chunk_for(12 * 64, 65, "cpu"), chunk_for(64 * 1024, 50304, "kernel")
    (410, 0, 32768)
    """
    few, at_once = LOGITS.get(where, LOGITS["cpu"])
    chunks = math.ceil(positions * vocab_size / at_once)
    return math.ceil(positions / chunks) if positions * vocab_size > few else 0
