"""The gated feed-forward: (A(x W_G) ⊙ x W_1) W_2."""

from pellucid.parts.mlps import Mlp
from pellucid.reference.dropout import Dropped, dropped
from pellucid.reference.linear import linear
from pellucid.reference.op import Ref
from pellucid.reference.ops import named
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Scope


def apply(block: Scope, x: Ref, mlp: Mlp, dropout: Dropped | None) -> Ref:
    t = block.scope("mlp")
    gate = linear(t, "gate", x, "gate_proj", "btc,fc->btf")
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    act = t("act", named(mlp.activation), gate)
    hidden = t("hidden", einsum, act, up, spec="btf,btf->btf")
    hidden = dropped(t, "hidden", hidden, dropout)
    return linear(block, "mlp_out", hidden, "mlp.down_proj", "btf,cf->btc")
