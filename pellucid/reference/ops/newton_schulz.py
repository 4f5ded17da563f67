"""What begins Muon's iteration: a matrix brought to length 1, so that no singular value is above 1."""

from typing import Any

import numpy as np

from pellucid.reference.op import each, everything, operation


@operation(everything, "{y} = √(Σ of the squares of all cells of {0[]})")
def length(x: Any) -> Any:
    """‖X‖ = √(Σ x²), the Frobenius norm."""
    return np.sqrt((x**2).sum())


@operation(each, "{y} = {0} / max({1}, {eps})")
def to_length_one(x: Any, size: Any, eps: float) -> Any:
    """X / max(‖X‖, ε): a matrix of nothing stays one."""
    return x / np.maximum(size, eps)
