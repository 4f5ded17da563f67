"""The norms, one file per kind of `parts/norms/`; each has `apply(t, x, norm)`."""

import importlib

from pellucid.parts.norms import Norm
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.rstd import rstd
from pellucid.reference.tape import Scope


def normed(t: Scope, x: Ref, norm: Norm) -> Ref:
    """The stream as the sub-layer reads it."""
    ref: Ref = importlib.import_module(f"{__name__}.{norm.kind}").apply(t, x, norm)
    return ref


def unit_size(t: Scope, x: Ref, eps: float) -> Ref:
    """X̂ = X r with r = 1 / √(mean X² + eps), along the last axis."""
    row, one = row_letters(x)
    return t("normed", einsum, x, t("rstd", rstd, x, eps=eps), spec=f"{row},{one}->{row}")


def gain(t: Scope, x: Ref) -> Ref:
    """Y = γ ⊙ X̂ (+ β)."""
    row, c = row_letters(x)[0], row_letters(x)[0][-1]
    shift = [t.ref("bias")] if "bias" in t else []
    spec = f"{row},{c}+{c}->{row}" if shift else f"{row},{c}->{row}"
    return t("out", einsum, x, t.ref("weight"), *shift, spec=spec)


def row_letters(x: Ref) -> tuple[str, str]:
    """The letters of an array, and of one number for each of its rows."""
    letters = LETTERS[: len(x.shape)]
    return letters, f"{letters[:-1]}1"
