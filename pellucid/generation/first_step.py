"""The first steps of a compiled decoder, compared with the module's before it decodes a text.

Its code may come from another machine or from a damaged file; wrong numbers would be the only sign of it.
"""

import logging
import time
import weakref
from typing import Protocol

import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.taps import current_watcher
from pellucid.engine.transformer import Transformer

COUNT = 3
"""Tokens that are read: all but the last at once, as of a prompt."""
TOLERANCE, NARROW_TOLERANCE = 0.05, 0.25
"""How much of the largest logit a logit may differ; the second where the module computes in bfloat16.
Rounding stays far below, and `verify` judges it; code for another machine computes something else."""

log = logging.getLogger(__name__)

_compared: weakref.WeakSet[Transformer] = weakref.WeakSet()
"""The modules whose decoders were compared in this process."""


class Decodes(Protocol):
    """Decoders, which read tokens into caches."""

    @property
    def cache_dtype(self) -> torch.dtype: ...

    def forward_packed(self, rows: list[tuple[Cache, list[int]]], wanted: list[int]) -> Tensor: ...


def find_wrong_step(decoder: Decodes, module: Transformer) -> str | None:
    """Returns by how much the decoder's logits differ from the module's, where that is not rounding; None
    where they agree, or were compared before. The log says what it cost."""
    if module in _compared or current_watcher(module) is not None:
        return None
    began = time.perf_counter()
    with torch.no_grad():
        wanted, got = (
            read_tokens(module, module, torch.float32),
            read_tokens(decoder, module, decoder.cache_dtype),
        )
    _compared.add(module)
    if not wanted.isfinite().all():
        return None  # a model of NaN or Inf: nothing to compare with
    size = wanted.abs().max()
    difference = float((got - wanted).abs().max() / size) if size else 0.0
    log.info(
        "the decoder agrees with the module to %.2g, %.0f ms", difference, 1e3 * (time.perf_counter() - began)
    )
    allowed = NARROW_TOLERANCE if module.dtype == torch.bfloat16 else TOLERANCE
    return None if difference <= allowed else f"{difference:.2g} of the largest logit"


def read_tokens(decoder: Decodes | Transformer, module: Transformer, dtype: torch.dtype) -> Tensor:
    """Returns the logits of some tokens [N V], float64: of all but the last in one call, then of the last."""
    config = module.config
    count = min(COUNT, config.context_length)
    ids = [index * (config.vocab_size - 1) // max(count - 1, 1) for index in range(count)]
    cache = Cache(config, 1, count, dtype=dtype, device=module.device)
    row, parts = cache.row(0), [part for part in (ids[:-1], ids[-1:]) if part]
    logits = [decoder.forward_packed([(row, part)], [*range(len(part))]) for part in parts]
    return torch.cat(logits).double()
