"""The scaled residual: X + α f(X)."""

from pellucid.parts.residuals.scaled import ScaledResidual
from pellucid.reference.op import Ref
from pellucid.reference.ops.scaled_sum import scaled_sum
from pellucid.reference.tape import Scope


def apply(t: Scope, name: str, x: Ref, update: Ref, residual: ScaledResidual) -> Ref:
    return t(name, scaled_sum, x, update, alpha=residual.alpha)
