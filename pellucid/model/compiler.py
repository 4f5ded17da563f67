"""Whether torch.compile can work here."""

import shutil

import torch

NO_COMPILER = "compiled code on a CPU needs a C++ compiler, and there is no g++ or clang++ here"


def lacks_compiler(device: torch.device) -> bool:
    """Whether code for this device would need a C++ compiler, and there is none."""
    return device.type == "cpu" and not (shutil.which("g++") or shutil.which("clang++"))
