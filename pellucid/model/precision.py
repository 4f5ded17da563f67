"""Precision of intermediate results: half precision is computed in float32, float64 stays float64."""

import torch
from torch import Tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns float64 for float64, and float32 for every narrower type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widen(x: Tensor) -> Tensor:
    """Returns x in float32 if it is in half precision, else x itself."""
    return x.float() if x.element_size() < 4 else x
