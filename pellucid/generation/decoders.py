"""What reads tokens into caches by `forward_packed`: a module, or its decoder on a CPU or on a GPU."""

from collections.abc import Callable

from pellucid.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.gpu.recorded_module import RecordedModule
from pellucid.model.transformer import Transformer
from pellucid.native.decoder import NativeDecoder, accelerate

Decoder = Transformer | NativeDecoder | GpuDecoder | RecordedModule


def make_decoder(module: Transformer, report: Callable[[str], None] = lambda text: None) -> Decoder:
    """Returns the fastest decoder of a module, itself where it has no other; `report` gets the reason where
    the module's own step runs."""
    if module.device.type != "cuda":
        return accelerate(module, report)
    if (obstacle := find_obstacle(module)) is None:
        return GpuDecoder(module)
    report(f"decoding runs the module's own kernels, recorded: the fused step does not have {obstacle}.")
    return RecordedModule(module)
