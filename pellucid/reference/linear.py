"""A linear layer on the tape: x W + b, the bias where the layer has one."""

from pellucid.reference.op import Ref
from pellucid.reference.ops.einsum import einsum, format_axes, parse
from pellucid.reference.tape import Scope, Tape


def linear(t: Tape | Scope, name: str, x: Ref, layer: str, spec: str, **sizes: int) -> Ref:
    """The spec names the weight's axes, `btc,(hd)c->bhtd`; the bias has the first of them."""
    weight = t.ref(f"{layer}.weight")
    if f"{layer}.bias" not in t:
        return t(name, einsum, x, weight, spec=spec, **sizes)
    reads, _, gives = spec.partition("->")
    out = format_axes(parse(spec).inputs[1][:1])
    return t(name, einsum, x, weight, t.ref(f"{layer}.bias"), spec=f"{reads}+{out}->{gives}", **sizes)
