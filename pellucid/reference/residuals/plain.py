"""The residual connection: X + f(X)."""

from pellucid.parts.residuals.plain import PlainResidual
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.tape import Scope


def apply(t: Scope, name: str, x: Ref, update: Ref, residual: PlainResidual) -> Ref:
    return t(name, add, x, update)
