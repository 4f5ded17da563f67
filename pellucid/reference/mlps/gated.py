"""The gated feed-forward: H = A(x W_G) ⊙ x W_1."""

from pellucid.parts.mlps import Mlp
from pellucid.reference.linear import linear
from pellucid.reference.op import Ref
from pellucid.reference.ops import named
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Scope


def apply(t: Scope, x: Ref, mlp: Mlp) -> Ref:
    gate = linear(t, "gate", x, "gate_proj", "btc,fc->btf")
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    act = t("act", named(mlp.activation), gate)
    return t("hidden", einsum, act, up, spec="btf,btf->btf")
