"""The folder of code that PyTorch has compiled: one for each processor, instruction set and version.

PyTorch finds compiled code by what was compiled, not by the instructions that it was compiled for. In a
folder that several machines share, or that was moved to another, it would run code of another vector width,
which reads and writes other numbers than it should.
"""

import hashlib
import os
import platform
import shutil
from pathlib import Path

import torch

from pellucid.base.files import find_user_folder

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
OWN = "pellucid-"
"""Begins the name of each folder of ours; a process that one of ours has started finds it in VARIABLE."""


def use_own_folder() -> None:
    """Makes PyTorch keep its compiled code in this machine's folder, inside of the user's."""
    os.environ[VARIABLE] = str(find_folder(os.environ.get(VARIABLE)))


def find_folder(given: str | None) -> Path:
    """Returns the folder of this machine and these versions, in the one that was given.

    >>> own = find_folder("/cache")
    >>> own.parent == Path("/cache"), find_folder(str(own)) == own
    (True, True)
    """
    parent = Path(given) if given else find_user_folder("cache") / "compiled"
    if parent.name.startswith(OWN):
        parent = parent.parent
    return parent / name_folder(torch.backends.cpu.get_cpu_capability(), _describe_processor())


def name_folder(instructions: str, processor: str) -> str:
    """Returns a name that another instruction set, processor, or version of PyTorch or Pellucid changes."""
    from pellucid import __version__

    digest = hashlib.sha256(repr((processor, torch.__version__, __version__)).encode()).hexdigest()[:12]
    return f"{OWN}{__version__}-torch-{torch.__version__}-{instructions}-{digest}"


def _describe_processor() -> str:
    """Returns the processor's model and its instructions, as Linux lists them; elsewhere its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    keys = ("vendor_id", "model name", "flags", "Features")
    return "\n".join(next((line for line in lines if line.startswith(key)), "") for key in keys)


def clear() -> None:
    """Removes what was compiled before, from the folder and from this process."""
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    clear_caches()
    folder = Path(os.environ[VARIABLE])
    if folder.name.startswith(OWN):  # else the user has set it since, and may keep other things there
        shutil.rmtree(folder, ignore_errors=True)
