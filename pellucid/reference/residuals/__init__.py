"""How a sub-layer's output meets the stream, one file per kind of `parts/residuals/`; each has
`apply(t, name, x, update, residual)`."""

import importlib

from pellucid.parts.residuals import Residual
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope


def joined(t: Scope, name: str, x: Ref, update: Ref, residual: Residual) -> Ref:
    """The stream after the sub-layer."""
    ref: Ref = importlib.import_module(f"{__name__}.{residual.kind}").apply(t, name, x, update, residual)
    return ref
