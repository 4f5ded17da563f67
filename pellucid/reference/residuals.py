"""Residual connections on the tape: one function per kind of `parts/residuals.py`."""

from pellucid.base import registry
from pellucid.parts.residuals import ResidualConfig, ScaledResidual
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import add, scaled_sum
from pellucid.reference.tape import TapeScope


def add_residual(t: TapeScope, name: str, x: Ref, update: Ref, residual: ResidualConfig) -> Ref:
    """Returns the stream after a sub-layer with output `update`, under `name`."""
    ref: Ref = registry.function_of(__name__, residual.kind, "residual")(t, name, x, update, residual)
    return ref


@registry.kind("none")
def _replace(t: TapeScope, name: str, x: Ref, update: Ref, residual: ResidualConfig) -> Ref:
    """Returns f(X): no residual connection."""
    return t.alias(name, update)


@registry.kind("plain")
def _add(t: TapeScope, name: str, x: Ref, update: Ref, residual: ResidualConfig) -> Ref:
    """Returns X + f(X)."""
    return t(name, add, x, update)


@registry.kind("scaled")
def _add_scaled(t: TapeScope, name: str, x: Ref, update: Ref, residual: ScaledResidual) -> Ref:
    """Returns X + α f(X)."""
    return t(name, scaled_sum, x, update, alpha=residual.alpha)
