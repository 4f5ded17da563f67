"""The compiler: whether torch.compile can work here, and compiled functions run eagerly for one context."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from pellucid.engine.compile_cache import use_own_folder

NO_COMPILER = "compiled code on a CPU needs a C++ compiler, and there is no g++ or clang++ here"

_is_eager: ContextVar[bool] = ContextVar("is_eager", default=False)

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
    outer = _is_eager.get()
    _is_eager.set(True)
    try:
        yield
    finally:
        _is_eager.set(outer)


class _ContextStance:
    """The compiler's stance: "force_eager" in contexts that ask for it, elsewhere what it was."""

    def __init__(self, other: Any) -> None:
        self.other = other

    @property
    def stance(self) -> str:
        return "force_eager" if _is_eager.get() else str(self.other.stance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.other, name)


def _install_stance() -> None:
    """Replaces torch's process-wide stance, once, by one that asks the context."""
    from torch._dynamo import eval_frame

    if not isinstance(eval_frame._stance, _ContextStance):
        eval_frame._set_stance(_ContextStance(eval_frame._stance))  # type: ignore[arg-type]
