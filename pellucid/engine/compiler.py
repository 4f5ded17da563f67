"""The compiler: whether torch.compile can work here, and compiled functions run eagerly for one context."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from pellucid.engine.compile_cache import use_own_folder

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
