"""Two values in one: a share of the second, and the rest of the first."""

from typing import Any

from pellucid.reference.op import Gradients, Ref, each, operation
from pellucid.reference.ops.arithmetic import shared


@operation(each, "{y} = (1 - {share}) · {0} + {share} · {1}")
def blend(a: Any, b: Any, share: float) -> Any:
    """y = (1 − α) a + α b."""
    return (1 - share) * a + share * b


@blend.gradient
def _(y: Ref, dy: Ref, a: Ref, b: Ref, share: float) -> Gradients:
    yield a, shared(dy, a.shape, 1 - share)
    yield b, shared(dy, b.shape, share)
