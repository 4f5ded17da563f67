"""The plain feed-forward: A(x W_1) W_2."""

from pellucid.parts.mlps import Mlp
from pellucid.reference.linear import linear
from pellucid.reference.op import Ref
from pellucid.reference.ops import named
from pellucid.reference.tape import Scope


def apply(block: Scope, x: Ref, mlp: Mlp) -> Ref:
    t = block.scope("mlp")
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    hidden = t.alias("hidden", t("act", named(mlp.activation), up))
    return linear(block, "mlp_out", hidden, "mlp.down_proj", "btf,cf->btc")
