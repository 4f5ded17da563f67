"""How a sub-layer's output meets the stream, one file per kind of `parts/residuals/`; each has
`join(x, update, residual)`."""

import functools
import importlib
from collections.abc import Callable

from torch import Tensor

from pellucid.parts.residuals import ResidualConfig

Join = Callable[[Tensor, Tensor], Tensor]


def make(residual: ResidualConfig) -> Join:
    """The stream after a sub-layer, from the stream before and what the sub-layer wrote."""
    join = importlib.import_module(f"{__name__}.{residual.kind}").join
    return functools.partial(join, residual=residual)
