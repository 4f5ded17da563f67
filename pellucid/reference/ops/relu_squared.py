"""The square of ReLU, and its slope."""

from typing import Any

import numpy as np

from pellucid.reference.op import each, operation


@operation(each, "{y} = max(0, {0})²")
def relu_squared(x: Any) -> Any:
    """y = max(0, x)²."""
    return np.maximum(0.0, x) ** 2


@relu_squared.slope
@operation(each, "{y} = 2 · max(0, {0}) · {1}")
def relu_squared_back(x: Any, dy: Any) -> Any:
    """dx = 2 max(0, x) dy: there is no kink, the slope at 0 is 0 from both sides."""
    return 2 * np.maximum(0.0, x) * dy
