"""LayerNorm: RMSNorm of the stream without its mean.

Its gradient needs no formula of its own: the three terms g − mean(g) − X̂ mean(g X̂) of the textbooks
are the parts through `normed`, `mean` and `rstd`.
"""

from pellucid.parts.norms.layer_norm import LayerNorm
from pellucid.reference.norms import gain
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.rstd import rstd
from pellucid.reference.tape import Scope


def apply(t: Scope, x: Ref, norm: LayerNorm) -> Ref:
    mean = t("mean", einsum, x, spec="btc->bt1", scale=1 / x.shape[-1])
    centered = t("centered", subtract, x, mean)
    r = t("rstd", rstd, centered, eps=norm.eps)
    return gain(t, t("normed", einsum, centered, r, spec="btc,bt1->btc"))
