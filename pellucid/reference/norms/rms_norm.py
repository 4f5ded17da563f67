"""RMSNorm: Y = γ ⊙ X r with r = 1 / √(mean X² + eps)."""

from pellucid.parts.norms.rms_norm import RmsNorm
from pellucid.reference.norms import gain
from pellucid.reference.op import Ref
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.rstd import rstd
from pellucid.reference.tape import Scope


def apply(t: Scope, x: Ref, norm: RmsNorm) -> Ref:
    r = t("rstd", rstd, x, eps=norm.eps)
    return gain(t, t("normed", einsum, x, r, spec="btc,bt1->btc"))
