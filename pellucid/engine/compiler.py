"""The compiler: whether torch.compile can work here, where its code is kept, and compiled functions that run
eagerly for one context.

PyTorch finds compiled code by what was compiled, not by the instructions that it was compiled for. In a
folder that several machines share, or that was moved to another, it would run code of another vector width,
which reads and writes other numbers than it should. So each processor, instruction set and version has
one of its own.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

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


def clear_cache() -> None:
    """Removes what was compiled before, from the folder and from this process."""
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    clear_caches()
    folder = Path(os.environ[VARIABLE])
    if folder.name.startswith(OWN):  # else the user has set it since, and may keep other things there
        shutil.rmtree(folder, ignore_errors=True)


NO_COMPILER = "compiled code on a CPU needs a C++ compiler, and there is no g++ or clang++ here"
COMPILER_IS_OFF = "torch.compile runs Python code here: it is switched off, as by TORCHDYNAMO_DISABLE=1"

_eager_blocks: ContextVar[int] = ContextVar("eager_blocks", default=0)
"""Open blocks that want eager code; a count, since blocks may end in any order."""

use_own_folder()  # here, so that it holds for what a user compiles of the engine, too


def lacks_compiler(device: torch.device) -> bool:
    """Returns whether code for this device would need a C++ compiler, and there is none."""
    return device.type == "cpu" and not (shutil.which("g++") or shutil.which("clang++"))


@contextmanager
def eager_in_this_context() -> Iterator[None]:
    """In this block, compiled functions that this context calls run their Python code instead.

    `torch.compiler.set_stance("force_eager")` would do the same to every thread of the process.
    """
    _install_stance()
    _eager_blocks.set(_eager_blocks.get() + 1)
    try:
        yield
    finally:
        _eager_blocks.set(_eager_blocks.get() - 1)


class _ContextStance:
    """The compiler's stance: "force_eager" in contexts that ask for it, elsewhere what it was."""

    def __init__(self, other: Any) -> None:
        self.other = other

    @property
    def stance(self) -> str:
        return "force_eager" if _eager_blocks.get() else str(self.other.stance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.other, name)


def _install_stance() -> None:
    """Replaces torch's process-wide stance, once, by one that asks the context."""
    from torch._dynamo import eval_frame

    if not isinstance(eval_frame._stance, _ContextStance):
        eval_frame._set_stance(_ContextStance(eval_frame._stance))  # type: ignore[arg-type]
