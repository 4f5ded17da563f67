"""Layers on the tape: linear, dropout with a given mask, and soft caps, the kinds of `parts/caps.py`."""

from collections.abc import Mapping

from pellucid.base import registry
from pellucid.parts.caps import CapConfig, TanhCap
from pellucid.reference.op import Array, Ref
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
