"""Decoders, which read tokens by `forward_packed`: a module, or its decoder on a CPU or on a GPU."""

import weakref
from collections.abc import Callable

from pellucid.engine.cpu.decoder import NativeDecoder, accelerate
from pellucid.engine.cpu.library import remove_built
from pellucid.engine.gpu.captured_module import RecordedModule
from pellucid.engine.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.engine.transformer import Transformer
from pellucid.generation.first_step import find_wrong_step

Decoder = Transformer | NativeDecoder | GpuDecoder | RecordedModule

_refused: weakref.WeakKeyDictionary[Transformer, str] = weakref.WeakKeyDictionary()
"""The modules whose decoders were found wrong in this process, and the reason that is reported."""


def make_decoder(module: Transformer, report: Callable[[str], None] = lambda text: None) -> Decoder:
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
