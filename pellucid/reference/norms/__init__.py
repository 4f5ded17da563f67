"""The norms, one file per kind of `parts/norms/`; each has `apply(t, x, norm)`."""

import importlib

from pellucid.parts.norms import Norm
from pellucid.reference.op import Ref
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Scope


def normed(t: Scope, x: Ref, norm: Norm) -> Ref:
    """The stream as the sub-layer reads it."""
    ref: Ref = importlib.import_module(f"{__name__}.{norm.kind}").apply(t, x, norm)
    return ref


def gain(t: Scope, x: Ref) -> Ref:
    """Y = γ ⊙ X̂ (+ β)."""
    shift = [t.ref("bias")] if "bias" in t else []
    return t("out", einsum, x, t.ref("weight"), *shift, spec="btc,c+c->btc" if shift else "btc,c->btc")
