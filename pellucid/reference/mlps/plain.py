"""The plain feed-forward: A(x W_1) W_2."""

from pellucid.parts.mlps import Mlp
from pellucid.reference.dropout import Dropped, dropped
from pellucid.reference.linear import linear
from pellucid.reference.op import Ref
from pellucid.reference.ops import named
from pellucid.reference.tape import Scope


def apply(block: Scope, x: Ref, mlp: Mlp, dropout: Dropped | None) -> Ref:
    t = block.scope("mlp")
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    hidden = t.alias("hidden", t("act", named(mlp.activation), up))
    hidden = dropped(t, "hidden", hidden, dropout)
    return linear(block, "mlp_out", hidden, "mlp.down_proj", "btf,cf->btc")
