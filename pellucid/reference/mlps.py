"""The MLP on the tape: one function per form of `parts/mlps.py`."""

from pellucid.base import registry
from pellucid.parts.mlps import MlpConfig
from pellucid.reference.layers import KeepMasks, apply_dropout, linear
from pellucid.reference.op import Ref
from pellucid.reference.ops import find_op
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import TapeScope


def apply_mlp(block: TapeScope, x: Ref, mlp: MlpConfig, dropout: KeepMasks | None) -> Ref:
    """Returns the MLP's output [B T C], under the name `mlp_out`."""
    t = block.scope("mlp")
    hidden: Ref = registry.function_of(__name__, mlp.form, "MLP form")(t, x, mlp)
    hidden = apply_dropout(t, "hidden", hidden, dropout)
    return linear(block, "mlp_out", hidden, "mlp.down_proj", "btf,cf->btc")


@registry.kind("plain")
def _compute_plain(t: TapeScope, x: Ref, mlp: MlpConfig) -> Ref:
    """Returns A(x W_1) [B T F]."""
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    return t.alias("hidden", t("act", find_op(mlp.activation), up))


@registry.kind("gated")
def _compute_gated(t: TapeScope, x: Ref, mlp: MlpConfig) -> Ref:
    """Returns A(x W_G) ⊙ x W_1 [B T F]."""
    gate = linear(t, "gate", x, "gate_proj", "btc,fc->btf")
    up = linear(t, "up", x, "up_proj", "btc,fc->btf")
    act = t("act", find_op(mlp.activation), gate)
    return t("hidden", einsum, act, up, spec="btf,btf->btf")
