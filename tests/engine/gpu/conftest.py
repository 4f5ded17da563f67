"""The device on which kernels run: a GPU, or this machine by Triton's interpreter."""

from typing import Any

import pytest
import torch


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Skips where there is no Triton; its kernels are imported after this."""
    if torch.cuda.is_available():
        pytest.importorskip("triton")
        return torch.device("cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    _multiply_bfloat16(monkeypatch)
    return torch.device("cpu")


def _multiply_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the interpreter widen numbers in bfloat16 before it multiplies them, and integers before they
    become such numbers: by itself it takes their bits for integers."""
    import numpy as np
    from triton.runtime import interpreter

    kind, tl = interpreter.InterpreterBuilder, interpreter.tl
    multiply, cast = kind.create_dot, kind.cast_impl

    def widen(one: Any) -> Any:
        if one.dtype.scalar != tl.bfloat16:
            return one
        return interpreter.TensorHandle((one.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return multiply(self, widen(a), widen(b), *others)

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if kind.scalar == tl.bfloat16 and source.dtype.scalar.is_int():
            source = cast(self, source, tl.float32)
        return cast(self, source, kind)

    monkeypatch.setattr(kind, "create_dot", create_dot)
    monkeypatch.setattr(kind, "cast_impl", cast_impl)
