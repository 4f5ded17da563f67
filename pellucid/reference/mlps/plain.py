"""The plain feed-forward: H = A(x W_1)."""

from pellucid.parts.mlps import Mlp
from pellucid.reference.linear import linear
from pellucid.reference.op import Ref
from pellucid.reference.ops import named
from pellucid.reference.tape import Scope


def apply(t: Scope, x: Ref, mlp: Mlp) -> Ref:
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    return t.alias("hidden", t("act", named(mlp.activation), up))
