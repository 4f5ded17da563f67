"""A sum whose second term counts more or less than it is."""

from typing import Any

from pellucid.reference.op import Gradients, Ref, each, operation
from pellucid.reference.ops.arithmetic import shared


@operation(each, "{y} = {0} + {alpha} · {1}")
def scaled_sum(x: Any, update: Any, alpha: float) -> Any:
    """y = x + α u."""
    return x + alpha * update


@scaled_sum.gradient
def _(y: Ref, dy: Ref, x: Ref, update: Ref, alpha: float) -> Gradients:
    yield x, shared(dy, x.shape)
    yield update, shared(dy, update.shape, alpha)
