"""Precision of intermediate results: half precision is computed in float32, float64 stays float64; and where
a row's result is independent of the other rows, bit for bit. And how weights are rounded to a type."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pellucid.base.dtypes import Array, round_to_odd


class Placed(Protocol):
    """What has a type of numbers and a device: a tensor, or a module."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns float64 for float64, and float32 for every narrower type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widen(x: Tensor) -> Tensor:
    """Returns x in float32 if it is in half precision, else x itself."""
    return x.float() if x.element_size() < 4 else x


def to_roundable(weight: Array, dtype: torch.dtype) -> Tensor:
    """Returns a weight as a tensor that torch rounds once to this type: float64 to half precision it would
    round twice, first to float32."""
    is_wide = weight.dtype == np.float64 and dtype.itemsize < torch.float32.itemsize
    rounded = round_to_odd(weight) if is_wide else weight
    return torch.from_numpy(np.require(rounded, requirements=("C", "W")))


def sums_narrowly(x: Tensor) -> bool:
    """Returns whether torch's kernels for norms and embeddings would sum the gradient of a weight over the
    positions in half precision: on a CPU, where a sum of a thousand terms is then off by several percent."""
    return x.device.type == "cpu" and x.element_size() == 2 and torch.is_grad_enabled()


def disable_reduced_precision_reduction() -> None:
    """Makes products in half precision on a GPU add their parts in float32. By default cuBLAS may round
    partial sums to half precision where it splits a long sum: logits in float16 were off by 190 roundings."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def is_row_invariant(x: Placed) -> bool:
    """Returns whether each row of a result must depend on its own row alone, bit for bit: in float32 on a
    CPU, without gradients.

    Products and functions are then computed by kernels that treat every row and element alike, so that a text
    does not depend on the other texts of a batch.
    """
    return (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and torch.backends.mkldnn.is_available()
    )
