"""Layers on the tape: linear, dropout with a given mask, soft caps (`parts/caps.py`), and the forms of the
MLP (`parts/mlps.py`)."""

from collections.abc import Mapping

from pellucid.base import registry
from pellucid.parts.caps import CapConfig, TanhCap
from pellucid.parts.mlps import MlpConfig
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops import find_op
from pellucid.reference.ops.activations import soft_cap
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum, format_axes, parse
from pellucid.reference.tape import Tape, TapeScope

KeepMasks = Mapping[str, Array]
"""By name X.keep: 0 where dropout zeroes X, 1 / (1 − rate) elsewhere."""


def linear(t: Tape | TapeScope, name: str, x: Ref, layer: str, spec: str, **sizes: int) -> Ref:
    """Returns x Wᵀ (+ b) under `name`; the bias where the layer has one.

    The spec names the axes of x and of the weight (out, in), `btc,(hd)c->bhtd`; the bias has the weight's
    first axis.
    """
    weight = t.ref(f"{layer}.weight")
    if f"{layer}.bias" not in t:
        return t(name, einsum, x, weight, spec=spec, **sizes)
    inputs, _, result = spec.partition("->")
    out = format_axes(parse(spec).inputs[1][:1])
    return t(name, einsum, x, weight, t.ref(f"{layer}.bias"), spec=f"{inputs}+{out}->{result}", **sizes)


def apply_dropout(t: Tape | TapeScope, name: str, x: Ref, masks: KeepMasks | None) -> Ref:
    """Returns X ⊙ X.keep under the name X.dropped where the masks have one for X, else X."""
    full = f"{t.prefix}.{name}.keep" if isinstance(t, TapeScope) else f"{name}.keep"
    if masks is None or full not in masks:
        return x
    keep = t.constant(f"{name}.keep", masks[full])
    letters = LETTERS[: len(x.shape)]
    return t(f"{name}.dropped", einsum, x, keep, spec=f"{letters},{letters}->{letters}")


def apply_cap(t: Tape | TapeScope, name: str, x: Ref, cap: CapConfig) -> Ref:
    """Returns the capped values under `name`; without a cap, x itself."""
    if cap.is_none:
        return x
    ref: Ref = registry.function_of(__name__, cap.kind, "cap")(t, name, x, cap)
    return ref


@registry.kind("tanh")
def _tanh(t: Tape | TapeScope, name: str, x: Ref, cap: TanhCap) -> Ref:
    """limit · tanh(x / limit)."""
    return t(name, soft_cap, x, limit=cap.limit)


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
