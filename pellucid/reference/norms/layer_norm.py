"""LayerNorm: RMSNorm of the stream without its mean.

Its gradient needs no formula of its own: the three terms g − mean(g) − X̂ mean(g X̂) of the textbooks
are the parts through `normed`, `mean` and `rstd`.
"""

from pellucid.parts.norms.layer_norm import LayerNorm
from pellucid.reference.norms import gain, row_letters, unit_size
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Scope


def apply(t: Scope, x: Ref, norm: LayerNorm) -> Ref:
    row, one = row_letters(x)
    mean = t("mean", einsum, x, spec=f"{row}->{one}", scale=1 / x.shape[-1])
    return gain(t, unit_size(t, t("centered", subtract, x, mean), norm.eps))
