"""The activations, one file per operation of that name in the specification; each has `curve(x)`."""

from collections.abc import Callable

from torch import Tensor

from pellucid import registry

Curve = Callable[[Tensor], Tensor]


def make(name: str) -> Curve:
    """The curve of one name."""
    curve: Curve = registry.module_of(__name__, name, "activation").curve
    return curve
