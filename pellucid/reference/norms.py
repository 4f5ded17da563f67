"""Normalization on the tape: one function per kind of `parts/norms.py`."""

from pellucid.base import registry
from pellucid.parts.norms import LayerNormConfig, NormConfig, RmsNormConfig
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import LETTERS, subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.normalization import rstd
from pellucid.reference.tape import TapeScope


def normalize(t: TapeScope, x: Ref, norm: NormConfig) -> Ref:
    """Returns x normalized along its last axis, under the name `out`."""
    ref: Ref = registry.function_of(__name__, norm.kind, "norm")(t, x, norm)
    return ref


@registry.kind("none")
def _none(t: TapeScope, x: Ref, norm: NormConfig) -> Ref:
    return t.alias("out", x)


@registry.kind("layer_norm")
def _layer_norm(t: TapeScope, x: Ref, norm: LayerNormConfig) -> Ref:
    """Returns γ ⊙ X̄ r + β with X̄ = X − mean and r = 1 / √(mean X̄² + eps).

    The three terms of its gradient, g − mean(g) − X̂ mean(g X̂), are the parts through `centered`, `mean` and
    `rstd`.
    """
    row, one = _row_letters(x)
    mean = t("mean", einsum, x, spec=f"{row}->{one}", scale=1 / x.shape[-1])
    return _scale_and_shift(t, _unit_rms(t, t("centered", subtract, x, mean), norm.eps))


@registry.kind("rms_norm")
def _rms_norm(t: TapeScope, x: Ref, norm: RmsNormConfig) -> Ref:
    """Returns γ ⊙ X r with r = 1 / √(mean X² + eps)."""
    return _scale_and_shift(t, _unit_rms(t, x, norm.eps))


def _unit_rms(t: TapeScope, x: Ref, eps: float) -> Ref:
    """Returns X̂ = X r with r = 1 / √(mean X² + eps), along the last axis."""
    row, one = _row_letters(x)
    return t("normed", einsum, x, t("rstd", rstd, x, eps=eps), spec=f"{row},{one}->{row}")


def _scale_and_shift(t: TapeScope, x: Ref) -> Ref:
    """Returns γ ⊙ X̂ (+ β)."""
    row, c = _row_letters(x)[0], _row_letters(x)[0][-1]
    shift = [t.ref("bias")] if "bias" in t else []
    spec = f"{row},{c}+{c}->{row}" if shift else f"{row},{c}->{row}"
    return t("out", einsum, x, t.ref("weight"), *shift, spec=spec)


def _row_letters(x: Ref) -> tuple[str, str]:
    """Returns the letters of an array, and of one number for each of its rows."""
    letters = LETTERS[: len(x.shape)]
    return letters, f"{letters[:-1]}1"
