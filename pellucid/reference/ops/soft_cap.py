"""The soft cap: small numbers stay as they are, large ones approach a limit."""

from typing import Any

import numpy as np

from pellucid.reference.op import Gradients, Ref, each, operation


@operation(each, "{y} = {limit} · tanh({0} / {limit})")
def soft_cap(x: Any, limit: float) -> Any:
    """y = c tanh(x / c)."""
    return limit * np.tanh(x / limit)


@soft_cap.gradient
def _(y: Ref, dy: Ref, x: Ref, limit: float) -> Gradients:
    yield x, soft_cap_back(x, dy, limit=limit)


@operation(each, "{y} = (1 - tanh({0} / {limit})²) · {1}")
def soft_cap_back(x: Any, dy: Any, limit: float) -> Any:
    """dx = (1 − tanh²(x / c)) dy."""
    return (1 - np.tanh(x / limit) ** 2) * dy
