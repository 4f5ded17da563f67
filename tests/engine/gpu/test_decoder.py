"""What keeps a model from the decoder on a GPU."""

import torch

from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.generation.decoders import decode_module
from tests.engine.gpu.models import make_module

CPU = torch.device("cpu")


def test_a_model_on_a_cpu_has_other_decoders() -> None:
    module = make_module(CPU)
    assert find_obstacle(module) == "weights on cpu"
    assert isinstance(decode_module(module), NativeDecoder | type(module))
    assert not isinstance(decode_module(module), GpuDecoder)
