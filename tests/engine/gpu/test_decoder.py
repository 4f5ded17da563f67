"""What keeps a model from the decoder on a GPU, and that nothing of it is imported without one."""

import subprocess
import sys

import torch

from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.generation.decoders import decode_module
from tests.engine.gpu.models import make_module

CPU = torch.device("cpu")


def test_the_engine_imports_no_triton() -> None:
    code = "import sys, pellucid.generation.scheduler; print('triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_model_on_a_cpu_has_other_decoders() -> None:
    module = make_module(CPU)
    assert find_obstacle(module) == "weights on cpu"
    assert isinstance(decode_module(module), NativeDecoder | type(module))
    assert not isinstance(decode_module(module), GpuDecoder)
