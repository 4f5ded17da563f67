"""No residual: the sub-layer's output under another name."""

from pellucid.parts.residuals.none import NoResidual
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope


def apply(t: Scope, name: str, x: Ref, update: Ref, residual: NoResidual) -> Ref:
    return t.alias(name, update)
