"""elu(x) + 1, a curve that is nowhere below 0, and its slope."""

from typing import Any

import numpy as np

from pellucid.reference.op import each, operation


@operation(each, "{y} = {0} + 1 if {0} > 0, else e^{0}")
def elu_plus_one(x: Any) -> Any:
    """y = x + 1 where x > 0, else e^x."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0.0)))


@elu_plus_one.show
def _(x: Any) -> Any:
    return np.where(x > 0, x + 1, np.exp(x))


@elu_plus_one.slope
@operation(each, "{y} = {1} if {0} > 0, else e^{0} · {1}")
def elu_plus_one_back(x: Any, dy: Any) -> Any:
    """dx = dy where x > 0, else e^x dy; both are 1 · dy at 0."""
    return np.where(x > 0, dy, np.exp(np.minimum(x, 0.0)) * dy)


@elu_plus_one_back.show
def _(x: Any, dy: Any) -> Any:
    return np.where(x > 0, dy, np.exp(x) * dy)
