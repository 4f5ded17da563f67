"""Decoders, which read tokens by `forward_packed`: a module, or its decoder on a CPU or on a GPU.

The first steps of a compiled decoder are compared with the module's before it decodes a text. Its code may
come from another machine or from a damaged file; wrong numbers would be the only sign of it.
"""

import logging
import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder, accelerate
from pellucid.engine.cpu.library import remove_built
from pellucid.engine.gpu.captured_module import RecordedModule
from pellucid.engine.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.engine.taps import current_watcher
from pellucid.engine.transformer import Transformer
from pellucid.formats.pretrained import parameter_count

if TYPE_CHECKING:
    from pellucid.model import Model

Decoder = Transformer | NativeDecoder | GpuDecoder | RecordedModule

LARGE = 10_000_000
"""Parameters from which it is worth a line that a model is decoded in PyTorch."""
COUNT = 3
"""Tokens that are read: all but the last at once, as of a prompt."""
TOLERANCE, NARROW_TOLERANCE = 0.05, 0.25
"""How much of the largest logit a logit may differ; the second where the module computes in bfloat16.
Rounding stays far below, and `verify` judges it; code for another machine computes something else."""

log = logging.getLogger(__name__)

_compared: weakref.WeakSet[Transformer] = weakref.WeakSet()
"""The modules whose decoders were compared in this process."""
_refused: weakref.WeakKeyDictionary[Transformer, str] = weakref.WeakKeyDictionary()
"""The modules whose decoders were found wrong in this process, and the reason that is reported."""


def make_decoder(model: "Model") -> Decoder:
    """Returns the model's fastest decoder, or its module where the machine or a choice of the model leaves
    none; of a large model, the log then says why, once."""
    matters = parameter_count(model.config.parameters()) >= LARGE
    return decode_module(model.module, _say_once if matters else log.info)


@cache
def _say_once(reason: str) -> None:
    log.warning("%s", reason)


def decode_module(module: Transformer, report: Callable[[str], None] = lambda text: None) -> Decoder:
    """Returns the fastest decoder of a module, itself where it has no other, or where the first steps of the
    other are wrong; `report` gets the reason where the module's own step runs."""
    if module not in _refused:
        decoder = _find_decoder(module, report)
        if not isinstance(decoder, NativeDecoder | GpuDecoder) or not (
            wrong := find_wrong_step(decoder, module)
        ):
            return decoder
        removed = isinstance(decoder, NativeDecoder) and remove_built(decoder.library)
        _refused[module] = (
            f"decoding runs in PyTorch: the first steps of the compiled decoder differ by {wrong}."
            + " It was removed, and the next process builds it again." * removed
        )
    report(_refused[module])
    return module


def _find_decoder(module: Transformer, report: Callable[[str], None]) -> Decoder:
    if module.device.type != "cuda":
        return accelerate(module, report)
    if (obstacle := find_obstacle(module)) is None:
        return GpuDecoder(module)
    report(f"decoding runs the module's own kernels, recorded: the fused step does not have {obstacle}.")
    return RecordedModule(module)


# ---- the first steps


def find_wrong_step(decoder: Decoder, module: Transformer) -> str | None:
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


def read_tokens(decoder: Decoder, module: Transformer, dtype: torch.dtype) -> Tensor:
    """Returns the logits of some tokens [N V], float64: of all but the last in one call, then of the last."""
    config = module.config
    count = min(COUNT, config.context_length)
    ids = [index * (config.vocab_size - 1) // max(count - 1, 1) for index in range(count)]
    cache = Cache(config, 1, count, dtype=dtype, device=module.device)
    row, parts = cache.row(0), [part for part in (ids[:-1], ids[-1:]) if part]
    logits = [decoder.forward_packed([(row, part)], [*range(len(part))]) for part in parts]
    return torch.cat(logits).double()
